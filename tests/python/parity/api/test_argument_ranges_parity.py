"""Numbers without a tensor, logic in place on leaves, norms of next to nothing, weights that do not fit, nodes called
by hand: what PyTorch takes and what it refuses, beside it on both devices."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import lucid
import lucid.nn.functional
import numpy as np
import pytest
import torch
import torch.nn.functional

Call = Callable[[Any, Any], Any]
DEVICES = pytest.mark.parametrize("device", ["cpu", "gpu"])


def plain(value: Any) -> Any:
    if isinstance(value, (lucid.Tensor, torch.Tensor)):
        return str(value.dtype).partition(".")[2], tuple(value.shape), value.requires_grad, value.tolist()
    if isinstance(value, (tuple, list)):
        return [plain(v) for v in value]
    return value


def close(a: Any, b: Any) -> bool:
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(map(close, a, b))
    if isinstance(a, (float, complex)):
        return bool(np.isclose(a, b, 1e-5, 1e-6, equal_nan=True))
    return bool(a == b)


def outcome(m: Any, call: Call, k: dict[str, Any]) -> Any:
    try:
        return plain(call(m, k))
    except Exception as e:
        return e


def same(call: Call, device: str) -> None:
    theirs, ours = outcome(torch, call, {}), outcome(lucid, call, {"device": device})
    if isinstance(theirs, Exception) or isinstance(ours, Exception):
        # PyTorch's NotImplementedError of a kernel is one of its RuntimeErrors.
        kind = RuntimeError if isinstance(theirs, NotImplementedError) else type(theirs)
        assert isinstance(ours, kind), (theirs, ours)
    else:
        assert close(ours, theirs), (theirs, ours)


# ---- numbers alone ---------------------------------------------------------------------------------------------------

PAIRS = [(1, 2), (7, -2), (1.5, 2), (2, 2.5), (True, 2), (2, True), (True, False), (1, 2j), (1e300, 1e10), (1, 0)]
ALONE = ["add", "sub", "subtract", "mul", "multiply", "div", "divide", "true_divide", "floor_divide"]
TENSORS = ["remainder", "fmod", "pow", "rsub", "maximum", "atan2", "eq", "logical_and", "bitwise_and", "xlogy", "hypot"]


@pytest.mark.parametrize("name", ALONE + TENSORS)
def test_numbers_without_a_tensor(name: str) -> None:
    for a, b in PAIRS:
        same(lambda m, k, a=a, b=b: getattr(m, name)(a, b), "cpu")


@pytest.mark.parametrize(
    "call",
    [
        lambda m, k: m.add(1, 2, alpha=3),
        lambda m, k: m.sub(1, 2, alpha=0.5),
        lambda m, k: m.sub(1.0, 2, alpha=0.5),
        lambda m, k: m.add(1, 2, alpha=True),
        lambda m, k: m.add(True, True, alpha=True),
        lambda m, k: m.add(m.ones(2), 1, alpha=True),
        lambda m, k: m.add(m.ones(2), 1, alpha=2j),
        lambda m, k: m.sub(m.ones(2), m.ones(2), alpha=1j),
        lambda m, k: m.add(m.ones(2).bool(), m.ones(2).bool(), alpha=1.5),
        lambda m, k: m.add(m.ones(2).bool(), m.ones(2).bool(), alpha=2),
        lambda m, k: m.ones(2).add_(1, alpha=True),
        lambda m, k: m.div(7, 2, rounding_mode="floor"),
        lambda m, k: m.div(-7, 2, rounding_mode="trunc"),
        lambda m, k: m.add(input=2, other=3),
        lambda m, k: m.add(2, other=3),
        lambda m, k: m.add(1, 2, out=m.empty(())),
        lambda m, k: m.add(1, None),
        lambda m, k: m.add("a", 2),
        lambda m, k: m.add(m.add(1, 2), m.ones(2, dtype=m.int8)),
        lambda m, k: m.range(0, 3, requires_grad=None),
        lambda m, k: m.range(0, 3, requires_grad=True),
        lambda m, k: m.range(0, 3, requires_grad=1),
        lambda m, k: m.arange(3.0, requires_grad=None),
    ],
)
def test_numbers_and_flags(call: Call) -> None:
    same(call, "cpu")


# ---- logic in place --------------------------------------------------------------------------------------------------


def made(m: Any, k: Any, kind: str) -> Any:
    if kind in ("int", "bool"):
        return m.tensor([1, 0], dtype=m.int64 if kind == "int" else m.bool, **k)
    x = m.tensor([1.0, 0.0], requires_grad=kind != "plain", **k)
    return {"recorded": lambda: x * 1, "view": lambda: x[:], "plain": lambda: x, "leaf": lambda: x}[kind]()


@DEVICES
@pytest.mark.parametrize("name", ["logical_and_", "logical_or_", "logical_xor_", "logical_not_"])
def test_logic_in_place_is_not_recorded(name: str, device: str) -> None:
    for kind, other in itertools.product(
        ["leaf", "recorded", "view", "plain", "int", "bool"], ["leaf", "recorded", "plain"]
    ):

        def call(m: Any, k: Any, kind: str = kind, other: str = other) -> Any:
            x = made(m, k, kind)
            getattr(x, name)(*([] if name == "logical_not_" else [made(m, k, other)]))
            said = [x.detach(), x.requires_grad, x.is_leaf, type(x.grad_fn).__name__, x._version]
            if x.requires_grad:
                x.sum().backward()
            return [*said, x.grad if x.is_leaf else None]

        same(call, device)


@DEVICES
def test_what_was_saved_before_logic_in_place_is_missed(device: str) -> None:
    def call(m: Any, k: Any) -> Any:
        x = m.ones(2, requires_grad=True, **k) * 1
        y = x * x
        x.logical_not_()
        y.sum().backward()

    same(call, device)


# ---- norms of next to nothing ----------------------------------------------------------------------------------------

SHAPES = [(), (1,), (4,), (0,), (0, 3), (2, 0), (1, 0), (1, 3), (0, 0), (2, 3, 0), (2, 0, 3), (1, 0, 3), (1, 3, 1)]


@DEVICES
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_batch_norm(shape: tuple[int, ...], device: str) -> None:
    channels = shape[1] if len(shape) > 1 else 4
    for training, weighted, running in itertools.product([True, False], repeat=3):

        def call(m: Any, k: Any, training: bool = training, weighted: bool = weighted, running: bool = running) -> Any:
            x = m.ones(shape, **k).requires_grad_()
            stats = (m.zeros(channels, **k), m.ones(channels, **k)) if running else (None, None)
            weight = m.full((channels,), 3.0, **k).requires_grad_() if weighted else None
            bias = m.ones(channels, **k) if weighted else None
            y = m.nn.functional.batch_norm(x, *stats, weight, bias, training=training)
            y.sum().backward()
            return [y, x.grad, weight.grad if weight is not None else None, *stats]

        same(call, device)


@DEVICES
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_layers_of_three_channels_and_instance_norm(shape: tuple[int, ...], device: str) -> None:
    same(lambda m, k: m.nn.functional.instance_norm(m.ones(shape, **k)), device)
    for name, train in itertools.product(["BatchNorm1d", "BatchNorm2d", "InstanceNorm1d"], [True, False]):
        same(lambda m, k, n=name, t=train: getattr(m.nn, n)(3).to(**k).train(t)(m.ones(shape, **k)), device)


# ---- weights of attention --------------------------------------------------------------------------------------------

WIDTHS = [
    ((3, 2, 4), (3, 2, 5), (3, 2, 4)),
    ((3, 2, 4), (3, 2, 5), (3, 2, 5)),
    ((3, 2, 4), (3, 2, 4), (3, 2, 6)),
    ((3, 2, 4), (5, 2, 6), (5, 2, 5)),
    ((3, 4), (3, 5), (3, 5)),
    ((3, 2, 4), (3, 3, 4), (3, 3, 4)),
    ((3, 2, 4), (5, 3, 5), (5, 3, 6)),
    ((3, 2, 5), (3, 2, 4), (3, 2, 4)),
    ((4,), (4,), (4,)),
]


@DEVICES
@pytest.mark.parametrize("options", [{}, {"kdim": 5, "vdim": 6}, {"batch_first": True}, {"add_bias_kv": True}], ids=str)
def test_attention_of_other_widths(options: dict[str, Any], device: str) -> None:
    for shapes, train in itertools.product(WIDTHS, [True, False]):

        def call(m: Any, k: Any, shapes: Any = shapes, train: bool = train) -> Any:
            layer = m.nn.MultiheadAttention(4, 2, **options).to(**k).train(train)
            made, _ = layer(*(m.ones(s, **k) for s in shapes))
            return tuple(made.shape)

        same(call, device)


# ---- nodes called by hand --------------------------------------------------------------------------------------------


def hooked(replace: bool) -> Call:
    def call(m: Any, k: Any) -> Any:
        seen: list[str] = []
        x = m.ones(2, requires_grad=True, **k)
        y = x * 3
        y.register_hook(lambda g: seen.append("tensor"))
        y.grad_fn.register_prehook(lambda g: (seen.append("before"), None)[1])
        y.grad_fn.register_hook(lambda i, o: (g and g * 10 for g in i) if replace else seen.append("after"))
        return [y.grad_fn(m.ones(2, **k)), seen, x.grad, y.grad_fn(m.ones(2, **k))]

    return call


def of_a_leaf(m: Any, k: Any) -> Any:
    seen: list[str] = []
    x = m.ones(2, requires_grad=True, **k)
    x.register_hook(lambda g: seen.append("tensor"))
    x.register_post_accumulate_grad_hook(lambda t: seen.append("accumulated"))
    node = (x * 3).grad_fn.next_functions[0][0]
    node.register_hook(lambda i, o: seen.append("after"))
    node.register_prehook(lambda g: seen.append("before"))
    made = node(m.ones(2, **k))
    return [made, x.grad, seen]


def freed(m: Any, k: Any) -> Any:
    x = m.ones(2, requires_grad=True, **k)
    y = x * x
    y.sum().backward()
    return y.grad_fn(m.ones(2, **k))


def twice(m: Any, k: Any) -> Any:
    x = m.ones(2, requires_grad=True, **k)
    y = x * x
    first, second = y.grad_fn(m.ones(2, **k)), y.grad_fn(m.full((2,), 2.0, **k))
    y.sum().backward()
    return [first, second, x.grad]


@DEVICES
@pytest.mark.parametrize("call", [hooked(False), hooked(True), of_a_leaf, freed, twice])
def test_a_node_called_by_hand_calls_no_hook(call: Call, device: str) -> None:
    same(call, device)
