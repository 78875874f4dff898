"""The device `meta`: every op's result has the shape, dtype and strides that it has on the CPU; nothing has
elements."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import lucid
import pytest
import torch
from lucid import nn

from tests.python.samples import dress, lucid_function, results, rows, samples

#: Rows that look at elements, and what they say.
READS = {
    **dict.fromkeys(
        [
            "allclose",
            "equal",
            "repeat_interleave",
            "bincount",
            "histogram",
            "histogramdd",
            "one_hot",
        ],
        "cannot read the elements of a meta tensor",
    ),
    **dict.fromkeys(
        "nonzero argwhere masked_select unique unique_consecutive".split(),  # noqa: SIM905
        "depends on the elements",
    ),
}


def facts(value: Any) -> Any:
    if isinstance(value, lucid.Tensor):
        return (value.shape, value.dtype, value.stride(), value.requires_grad)
    return value


DTYPES = ("float64", "bfloat16", "int64", "uint8", "complex64", "bool", "uint16", "float8_e5m2")


@pytest.mark.parametrize("row", rows(), ids=lambda row: row["name"])
def test_every_op(row: dict[str, Any]) -> None:
    f = lucid_function(row)
    for sample in samples(row):
        varying = any(data.varies for data in sample.tensors())
        for dtype in DTYPES if varying else DTYPES[:1]:
            for layout in ("contiguous", "transposed") if varying else ("contiguous",):
                compare(row, f, sample, dtype, layout)


def compare(row: dict[str, Any], f: Any, sample: Any, dtype: str, layout: str) -> None:
    def tensor(data: Any) -> lucid.Tensor:
        numbers, views = dress(data, layout)
        t = lucid.tensor(numbers)
        return views(t.to(getattr(lucid, dtype)) if data.varies else t)

    args, kwargs = sample.map(tensor)
    try:
        want = results(f(*args, **kwargs))
    except (RuntimeError, TypeError):
        return
    args, kwargs = sample.map(lambda data: tensor(data).to("meta"))
    tensors = [a for a in [*args, *kwargs.values()] if isinstance(a, lucid.Tensor)]
    try:
        with lucid.device("meta"):
            got = results(f(*args, **kwargs))
    except (RuntimeError, NotImplementedError) as error:
        masks = any(t.dtype == lucid.bool for t in tensors) or row["name"] in ("index_put", "index")
        said = READS.get(row["name"], "depends on the elements" if masks else None)
        assert said is not None, f"{row['name']}({sample.text}): {error}"
        assert said in str(error)
        assert str(error).startswith(row["name"]) or "meta tensor" in str(error)
        return
    assert [facts(g) for g in got] == [facts(w) for w in want], f"{row['name']}({sample.text}) {dtype} {layout}"
    assert all(g.is_meta for g in got if isinstance(g, lucid.Tensor))


def test_reading_is_an_error_as_in_pytorch() -> None:
    ours, theirs = lucid.ones(2, 3, device="meta"), torch.ones(2, 3, device="meta")
    one, other = lucid.ones((), device="meta"), torch.ones((), device="meta")
    for call in (
        lambda t, o: o.item(),
        lambda t, o: t.tolist(),
        lambda t, o: bool(o > 0),
        lambda t, o: float(o),
        lambda t, o: t.to("cpu"),
        lambda t, o: t.cpu(),
    ):
        with pytest.raises((RuntimeError, NotImplementedError)):
            call(theirs, other)
        with pytest.raises((RuntimeError, NotImplementedError), match="meta"):
            call(ours, one)
    with pytest.raises(NotImplementedError, match="nonzero"):
        ours.nonzero()
    with pytest.raises(RuntimeError, match="same device"):
        ours + lucid.ones(2, 3)
    with pytest.raises((RuntimeError, TypeError)):
        ours.numpy()
    assert repr(ours) == repr(theirs)
    assert repr(ours.int()) == repr(theirs.int()).replace("torch.", "lucid.")
    assert "meta" in ours._repr_html_()
    assert (ours.is_meta, ours.is_cpu, ours.device.type) == (True, False, "meta")


def test_no_memory_is_used() -> None:
    before = lucid.memory_stats("cpu")["current"]
    x = lucid.empty(10**6, 10**6, device="meta", requires_grad=True)
    y = (x @ x.t()).relu().sum()
    y.backward()
    assert x.grad.shape == x.shape
    assert x.grad.is_meta
    assert (lucid.ones((), dtype=lucid.float32) * x).is_meta
    assert lucid.memory_stats("cpu")["current"] - before < 10**5
    with pytest.raises(RuntimeError, match="more elements"):
        lucid.empty(2**62, 4, device="meta")


def build(framework: Any, module: Any) -> Any:
    with framework.device("meta"):
        return module.Sequential(
            module.Conv2d(3, 4, 3), module.BatchNorm2d(4), module.ReLU(), module.Flatten(), module.Linear(144, 5)
        )


def test_modules_are_built_without_memory_and_filled_later() -> None:
    model, peer = build(lucid, nn), build(torch, torch.nn)
    assert all(t.is_meta for t in [*model.parameters(), *model.buffers()])
    names = [(k, tuple(v.shape)) for k, v in model.state_dict().items()]
    assert names == [(k, tuple(v.shape)) for k, v in peer.state_dict().items()]
    assert tuple(model(lucid.empty(2, 3, 8, 8, device="meta")).shape) == (2, 5)
    opt = lucid.optim.AdamW(model.parameters())
    model(lucid.empty(2, 3, 8, 8, device="meta")).sum().backward()
    opt.step()
    full = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 5))
    with pytest.warns(UserWarning, match="no-op"):
        model.load_state_dict(full.state_dict())
    assert all(t.is_meta for t in model.parameters())
    copied = copy.deepcopy(model)
    model.load_state_dict(full.state_dict(), assign=True)
    x = lucid.randn(2, 3, 8, 8)
    assert lucid.equal(model.eval()(x), full.eval()(x))
    assert all(p.requires_grad and p.is_leaf for p in model.parameters())
    empty = copied.to_empty(device="cpu")
    assert all(t.is_cpu for t in [*empty.parameters(), *empty.buffers()])
    empty.load_state_dict(full.state_dict())
    assert lucid.equal(empty.eval()(x), full.eval()(x))
    with pytest.raises(NotImplementedError, match="meta"):
        build(lucid, nn).to("cpu")


def test_defaults_writes_and_pickles() -> None:
    with lucid.device("meta"):
        assert lucid.tensor([1, 2]).is_meta
        assert lucid.randn(3).is_meta
        assert lucid.zeros(2, device="cpu").is_cpu
    assert lucid.zeros(1).is_cpu
    x = lucid.zeros(2, 3, device="meta")
    version = x._version
    x[0] = 1
    x.add_(2).copy_(lucid.ones(2, 3))
    assert x._version > version
    assert x.t().stride() == (1, 3)
    assert x[0].data_ptr is not None
    assert (x.element_size(), x.nbytes, x.untyped_storage().nbytes()) == (4, 24, 24)
    with pytest.raises(NotImplementedError, match="meta"):
        lucid.zeros(2, 3).copy_(x)
    back = pickle.loads(pickle.dumps(x.device))
    assert back == x.device == lucid.device("meta")
    assert {lucid.device("cpu"), lucid.device("meta")} == {lucid.device("meta"), lucid.device("cpu")}
    made = copy.deepcopy(x)
    assert made.is_meta
    assert made.shape == x.shape
    assert lucid.empty_like(x, device="cpu").is_cpu
