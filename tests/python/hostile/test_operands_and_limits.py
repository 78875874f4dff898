"""Operands of other libraries, buffers of objects, very many dimensions and layers, long work of other threads."""

from __future__ import annotations

import operator
import threading
import time
from collections.abc import Callable
from typing import Any

import lucid
import numpy as np
import pytest
import torch
from lucid import nn

OPERATORS = [
    operator.add,
    operator.sub,
    operator.mul,
    operator.truediv,
    operator.floordiv,
    operator.mod,
    operator.pow,
    operator.matmul,
    operator.and_,
    operator.or_,
    operator.xor,
    operator.lshift,
    operator.rshift,
    operator.eq,
    operator.ne,
    operator.lt,
    operator.le,
    operator.gt,
    operator.ge,
    operator.iadd,
    operator.imul,
]


@pytest.mark.parametrize("f", OPERATORS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("parameter", [False, True])
def test_operators_of_tensors_of_two_libraries_name_the_remedy(f: Callable[..., Any], parameter: bool) -> None:
    ours, theirs = lucid.ones(2), torch.ones(2)
    if parameter:
        ours, theirs = nn.Parameter(ours), torch.nn.Parameter(theirs)
    for a, b in ((ours, theirs), (theirs, ours)):
        # In place a parameter refuses what is no tensor of its library by the argument's kind.
        in_place = parameter and f in (operator.iadd, operator.imul)
        with pytest.raises(TypeError, match="must be Tensor" if in_place and a is ours else r"lucid\.as_tensor"):
            f(a, b)
    assert lucid.as_tensor(torch.ones(2)).tolist() == [1.0, 1.0]


def test_functions_of_two_libraries_are_type_errors() -> None:
    ours, theirs = lucid.ones(2), torch.ones(2)
    calls: list[Callable[[], Any]] = [
        lambda: torch.add(ours, theirs),
        lambda: torch.add(ours, ours),
        lambda: torch.nn.functional.relu(ours),
        lambda: torch.nn.functional.linear(ours, theirs),
        lambda: torch.stack([theirs, ours]),
        lambda: torch.Tensor.add(theirs, ours),
        lambda: lucid.add(ours, theirs),
        lambda: lucid.add(theirs, ours),
        lambda: lucid.cat([ours, theirs]),
        lambda: nn.functional.linear(ours, theirs),
    ]
    for call in calls:
        with pytest.raises(TypeError):
            call()
    with pytest.raises(TypeError, match=r"lucid\.as_tensor"):
        torch.add(ours, theirs)
    with pytest.raises(TypeError, match=r"torch.Tensor.*lucid.as_tensor"):
        lucid.add(ours, theirs)


def test_buffers_of_objects_are_refused() -> None:
    for array in (
        np.array([object(), None], dtype=object),
        np.array([(1, None)], dtype=[("a", "i8"), ("b", "O")]),
    ):
        with pytest.raises(TypeError, match="objects"):
            lucid.frombuffer(array, dtype=lucid.int64)
    # A name with that letter is no object.
    named = np.array([(1, 2)], dtype=[("O", "i8"), ("b", "i8")])
    assert lucid.frombuffer(named, dtype=lucid.int64).tolist() == [1, 2]


DEEP: dict[str, Callable[[lucid.Tensor], Any]] = {
    "transpose": lambda x: x.transpose(-1, -2).contiguous(),
    "permute": lambda x: x.permute(list(range(291, -1, -1))).contiguous(),
    "permute_sum": lambda x: x.permute(list(range(291, -1, -1))).sum(0),
    "transposed_product": lambda x: (x.transpose(-1, -2) * x).transpose(-1, 0).contiguous(),
    "amax": lambda x: x.transpose(-1, -2).amax(-1),
    "where": lambda x: lucid.where(x.transpose(-1, -2) > 1, x, x * 2),
    "index_fill": lambda x: x.clone().index_fill_(-1, lucid.tensor([0], device=x.device), 3.0),
    "softmax": lambda x: x.softmax(-1),
    "sort": lambda x: x.sort(-1)[0],
    "matmul": lambda x: x @ x,
}


@pytest.mark.parametrize("name", DEEP)
def test_over_255_dimensions(name: str) -> None:
    x = lucid.arange(4.0).reshape([1] * 290 + [2, 2])
    wanted = DEEP[name](x)
    got = DEEP[name](x.to("gpu")).cpu()
    assert got.shape == wanted.shape
    assert lucid.allclose(got.flatten(), wanted.flatten())


def test_gradients_of_over_255_dimensions() -> None:
    x = lucid.arange(4.0)
    for device in ("cpu", "gpu"):
        y = x.to(device).reshape([1] * 290 + [2, 2]).requires_grad_()
        (y.transpose(-1, -2) * y).sum().backward()
        assert y.grad is not None
        assert y.grad.flatten().tolist() == [0.0, 4.0, 2.0, 6.0]


def test_loading_a_state_dict_takes_linear_time() -> None:
    def best(layers: int) -> float:
        model = nn.Sequential(*(nn.Linear(1, 1) for _ in range(layers)))
        state = model.state_dict()
        times = []
        for _ in range(3):
            start = time.perf_counter()
            model.load_state_dict(state)
            times.append(time.perf_counter() - start)
        return min(times)

    # Eight times the layers: 64 times as long where it is quadratic.
    assert best(4000) < 24 * best(500)


def test_names_of_children_with_dots_and_hooks_that_rename() -> None:
    inner, outer = nn.Linear(2, 2), nn.Module()
    outer._modules["a.b"] = inner
    # As in PyTorch the key counts as unexpected, and is read all the same.
    outer.load_state_dict({k: t + 1 for k, t in outer.state_dict().items()}, strict=False)

    def rename(module: Any, state: dict[str, Any], prefix: str, *rest: Any) -> None:
        for key in [k for k in state if k.startswith(f"{prefix}old.")]:
            state[key.replace("old.", "new.")] = state.pop(key)

    model = nn.Module()
    model.new = nn.Linear(2, 2)
    model.register_load_state_dict_pre_hook(rename)
    model.load_state_dict({"old.weight": lucid.ones(2, 2), "old.bias": lucid.ones(2)})
    assert model.new.weight.sum().item() == 4


@pytest.mark.parametrize(
    "make", [lambda: lucid.randperm(4_000_000), lambda: lucid.rand(40_000_000)], ids=["randperm", "rand"]
)
def test_other_threads_run_while_much_is_made(make: Callable[[], Any]) -> None:
    done = threading.Event()
    worker = threading.Thread(target=lambda: (make(), done.set()))
    longest, last = 0.0, time.perf_counter()
    start = last
    worker.start()
    while not done.is_set():
        time.sleep(0.001)
        now = time.perf_counter()
        longest, last = max(longest, now - last), now
    worker.join()
    assert longest < max(0.5 * (last - start), 0.05)


RECEIVERS = [(d, x) for d in ("cpu", "gpu") for x in ("float32", "float64", "int64", "uint8", "float16", "bfloat16")]
# The GPU device has no float64.
RECEIVERS.remove(("gpu", "float64"))


@pytest.mark.parametrize(("device", "x"), RECEIVERS)
@pytest.mark.parametrize("a", ["uint8", "float16", "bfloat16", "int64", "float32"])
@pytest.mark.parametrize("b", ["uint8", "float16"])
def test_products_are_promoted_before_they_are_computed(x: str, a: str, b: str, device: str) -> None:

    def run(L: Any, f: Callable[..., Any], kw: dict[str, Any]) -> Any:
        def full(dtype: str, value: float) -> Any:
            return L.full((2,), value, dtype=getattr(L, dtype), **kw)

        try:
            made = f(L, full(x, 1), full(a, 200), full(b, 200))
            return str(made.dtype).split(".")[1], made.tolist()
        except (RuntimeError, TypeError) as e:
            return isinstance(e, RuntimeError), None

    for f in (
        lambda L, x, a, b: L.addcmul(x, a, b),
        lambda L, x, a, b: L.addcmul(x, a, b, value=2),
        lambda L, x, a, b: x.addcmul_(a, b),
        lambda L, x, a, b: L.addcdiv(x, a, b),
        lambda L, x, a, b: x.addcdiv_(a, b),
    ):
        ours, theirs = run(lucid, f, {"device": device}), run(torch, f, {})
        assert ours == theirs
