"""`nn.parallel`'s pieces on one device; PyTorch's need a GPU, and its modules on the CPU give the numbers."""

from __future__ import annotations

import collections
import importlib
import warnings
from typing import Any

import lucid
import numpy as np
import pytest
import torch
from lucid import nn
from lucid.nn import parallel
from lucid.nn.parallel.scatter_gather import gather, scatter, scatter_kwargs

from tests.python.tolerances import within

Pair = collections.namedtuple("Pair", "x y")
DEVICES = ["cpu", "gpu", -1, 0, lucid.device("cpu")]


def test_scattered_nests() -> None:
    x = lucid.arange(10).reshape(5, 2)
    nest = {"a": (x, "text"), "b": [x, None], "c": Pair(x, 1), "d": ()}
    first, second = scatter(nest, ["cpu", "cpu"])
    for part, rows in ((first, x[:3]), (second, x[3:])):
        assert part["a"][0].tolist() == part["b"][0].tolist() == part["c"].x.tolist() == rows.tolist()
        assert (part["a"][1], part["b"][1], part["c"].y, part["d"]) == ("text", None, 1, ())
        assert isinstance(part["c"], Pair) and isinstance(part["b"], list)
    assert [p.tolist() for p in scatter(x, ["cpu", "cpu"], dim=1)] == [x[:, :1].tolist(), x[:, 1:].tolist()]
    assert [len(p) for p in scatter(lucid.ones(2), ["cpu"] * 3)] == [1, 1]
    assert scatter("word", ["cpu", "cpu"]) == ["word", "word"]


@pytest.mark.parametrize("device", DEVICES)
def test_scatter_and_gather_move_and_have_gradients(device: Any) -> None:
    x = lucid.randn(4, 3, requires_grad=True)
    parts = scatter(x, [device, "cpu"])
    there = lucid.device(device) if not isinstance(device, int) else lucid.device("gpu" if device == 0 else "cpu")
    assert [p.device for p in parts] == [there, lucid.device("cpu")]
    whole = gather([part * 2 for part in parts], device)
    assert whole.device == there
    whole.sum().backward()
    assert x.grad is not None and x.grad.tolist() == [[2.0] * 3] * 4


def test_scattered_arguments() -> None:
    x = lucid.ones(4)
    assert scatter_kwargs((), None, ["cpu"]) == ((), ())
    positional, named = scatter_kwargs((x,), {}, ["cpu", "cpu"])
    assert [len(p[0]) for p in positional] == [2, 2] and named == ({}, {})
    positional, named = scatter_kwargs((), {"x": x}, ["cpu", "cpu"])
    assert positional == ((), ()) and [len(n["x"]) for n in named] == [2, 2]


def test_gathered_nests() -> None:
    a, b = lucid.zeros(2), lucid.ones(1)
    made = gather([{"x": (a, None), "p": Pair(a, b)}, {"x": (b, None), "p": Pair(b, a)}], "cpu")
    assert made["x"][0].tolist() == [0.0, 0.0, 1.0] and made["x"][1] is None
    assert (made["p"].x.tolist(), made["p"].y.tolist()) == ([0.0, 0.0, 1.0], [1.0, 0.0, 0.0])
    with pytest.raises(ValueError, match="same number of keys"):
        gather([{"x": a}, {"x": a, "y": b}], "cpu")
    with pytest.warns(UserWarning, match="scalars"):
        assert gather([lucid.tensor(1.0), lucid.tensor(2.0)], "cpu").tolist() == [1.0, 2.0]


def test_other_devices_are_refused() -> None:
    for call in (
        lambda d: scatter(lucid.ones(2), [d]),
        lambda d: gather([lucid.ones(2)], d),
        lambda d: parallel.replicate(nn.ReLU(), [d]),
        lambda d: parallel.parallel_apply([nn.ReLU()], [lucid.ones(2)], devices=[d]),
    ):
        with pytest.raises(RuntimeError, match="invalid device ordinal: 1 of 1"):
            call(1)
        with pytest.raises(TypeError, match="float"):
            call(0.5)


def model(framework: Any) -> Any:
    net = framework.nn
    made = net.Sequential(net.Linear(3, 4), net.BatchNorm1d(4), net.Tanh(), net.Linear(4, 2))
    made.append(made[3].__class__(2, 2))
    made[4].weight = made[3].weight = framework.nn.Parameter(framework.ones(2, 2))  # shared
    made[3].in_features = 2
    made.insert(3, net.Linear(4, 2))
    return made


def test_replicas_compute_and_give_gradients() -> None:
    theirs, ours = model(torch), model(lucid)
    ours.load_state_dict({k: lucid.tensor(v.numpy()) for k, v in theirs.state_dict().items()})
    x = np.random.default_rng(0).standard_normal((6, 3)).astype(np.float32)
    replicas = parallel.replicate(ours, ["cpu", "cpu"])
    assert all(type(r) is type(ours) and not list(r.parameters()) for r in replicas)
    assert replicas[0][4].weight is replicas[0][5].weight is not ours[4].weight
    parts = scatter((lucid.tensor(x),), ["cpu", "cpu"])
    y = gather(parallel.parallel_apply(replicas, parts), "cpu")
    expected = torch.cat([theirs(part) for part in torch.tensor(x).chunk(2)])
    np.testing.assert_allclose(y.detach().numpy(), expected.detach().numpy(), **within("program"))
    y.square().sum().backward()
    expected.square().sum().backward()
    for (name, p), q in zip(ours.named_parameters(), theirs.parameters(), strict=True):
        assert p.grad is not None, name
        # The first bias comes before a batch norm: its gradient is 0, up to the rounding of what cancels.
        np.testing.assert_allclose(p.grad.numpy(), q.grad.numpy(), **within("deep program"))
    # Buffers on the same device are the module's own.
    np.testing.assert_allclose(ours[1].running_mean.numpy(), theirs[1].running_mean.numpy(), **within("program"))
    assert all(not p.requires_grad for r in parallel.replicate(ours, [0], detach=True) for p in [r[0].weight])
    assert parallel.replicate(ours, ["gpu"])[0][0].weight.device == lucid.device("gpu")
    assert list(ours.state_dict()) == list(theirs.state_dict())


def test_parallel_apply() -> None:
    relu, x = nn.ReLU(), lucid.tensor([-1.0, 2.0])
    assert [t.tolist() for t in parallel.parallel_apply([relu, relu], [x, (x,)])] == [[0.0, 2.0]] * 2
    flat = nn.Flatten()
    assert parallel.parallel_apply([flat], [()], [{"input": lucid.ones(2, 3, 4)}])[0].shape == (2, 12)
    for given, name in (([x, x], "inputs"), ([x], "kwargs_tup"), ([x], "devices")):
        options: dict[str, Any] = {name: []} if name != "inputs" else {}
        with pytest.raises(AssertionError, match=f"number of {name}"):
            parallel.parallel_apply([relu], given, **options)


def test_data_parallel_as_a_function_and_its_methods() -> None:
    layer, x = nn.Linear(3, 2), lucid.ones(4, 3)
    for given in ({}, {"device_ids": [0]}, {"device_ids": [0], "output_device": 0}):
        assert lucid.equal(parallel.data_parallel(layer, x, **given), layer(x))
    assert lucid.equal(parallel.data_parallel(layer, None, module_kwargs={"input": x}), layer(x))
    with pytest.raises(ValueError, match=r"data_parallel: there is one GPU device.*\[0, 1\]"):
        parallel.data_parallel(layer, x, [0, 1])
    wrapped, devices = nn.DataParallel(layer), ["cpu", "cpu"]
    inputs, kwargs = wrapped.scatter((x,), {}, devices)
    results = wrapped.parallel_apply(wrapped.replicate(wrapped.module, devices), inputs, kwargs)
    assert lucid.equal(wrapped.gather(results, "cpu"), layer(x))


@pytest.mark.parametrize("name", ["data_parallel", "replicate", "parallel_apply", "scatter_gather", "distributed"])
def test_files(name: str) -> None:
    here, theirs = (importlib.import_module(f"{f}.nn.parallel.{name}") for f in ("lucid", "torch"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for each in theirs.__all__ if hasattr(theirs, "__all__") else ():
            assert each == "get_a_var" or hasattr(here, each)
    if name in ("data_parallel", "replicate", "parallel_apply"):
        assert getattr(parallel, name) is getattr(here, name), "the package shows the function"


COMM = lucid.nn.parallel.comm


def test_comm_copies_and_sums() -> None:
    x = lucid.arange(6.0).view(3, 2)
    one, two = COMM.broadcast(x, ["cpu", "cpu"])
    assert one is x and two is not x and two.equal(x) and two.data_ptr() != x.data_ptr()
    out = [lucid.zeros(3, 2), lucid.zeros(3, 2, device="gpu")]
    assert COMM.broadcast(x, out=out)[1] is out[1] and out[1].cpu().equal(x)
    copies = COMM.broadcast_coalesced([x, x.int()], ["cpu", "gpu"])
    assert [[t.device.type == "cpu" for t in place] for place in copies] == [[True, True], [False, False]]
    assert copies[1][1].cpu().equal(x.int())
    assert COMM.reduce_add([x]) is x
    total = COMM.reduce_add([x, x.to("gpu"), x], "gpu")
    assert total.device == lucid.device("gpu") and total.cpu().equal(x * 3)
    sums = COMM.reduce_add_coalesced([copies[0], copies[1]])
    assert sums[0].equal(x * 2) and sums[1].equal(x.int() * 2)
    assert lucid.cuda.comm.reduce_add is COMM.reduce_add and parallel.comm is COMM


def test_comm_scatters_and_gathers() -> None:
    x = lucid.arange(6.0).view(3, 2)
    parts = COMM.scatter(x, ["cpu", "gpu"], [1, 2])
    assert parts[0].equal(x[:1]) and parts[1].device == lucid.device("gpu") and parts[1].cpu().equal(x[1:])
    assert [tuple(p.shape) for p in COMM.scatter(x, ["cpu", "cpu"])] == [(2, 2), (1, 2)]
    assert COMM.gather(parts, destination="cpu").equal(x)
    out = [lucid.zeros(3, 1), lucid.zeros(3, 1)]
    assert COMM.scatter(x, dim=1, out=out)[1] is out[1] and out[1].equal(x[:, 1:])
    assert COMM.gather(out, 1, out=(joined := lucid.zeros(3, 2))) is joined and joined.equal(x)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda x: COMM.broadcast(x), "Exactly one"),
        (lambda x: COMM.broadcast(x, ["cpu"], out=[x]), "Exactly one"),
        (lambda x: COMM.scatter(x), "Exactly one"),
        (lambda x: COMM.scatter(x, chunk_sizes=[2], out=[x]), "chunk_sizes"),
        (lambda x: COMM.scatter(x, ["cpu"], [1, 1]), "2 chunk_sizes for 1"),
        (lambda x: COMM.gather([x], 0, "cpu", out=x), "destination"),
        (lambda x: COMM.reduce_add([x, x[:1]]), "invalid size"),
        (lambda x: COMM.reduce_add([]), "at least one"),
    ],
)
def test_comm_refuses(call: Any, text: str) -> None:
    with pytest.raises((lucid.errors.RuntimeError, lucid.errors.ValueError), match=text):
        call(lucid.ones(2))
