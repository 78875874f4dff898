"""The direct way of small calls: the same bits as the long way, the errors, nothing written where one is raised."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import lucid
import lucid.lightning as lc
import numpy as np
import pytest
from lucid.lightning import _direct

from tests.python.tolerances import within

RNG = np.random.default_rng(0)


def array(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


Operands = Callable[[], tuple[np.ndarray, ...]]

CALLS: dict[str, tuple[Operands, Callable[..., Any]]] = {
    "vector_add": (lambda: (array(64), array(64)), lambda x, y: lc.vector_add(x, y, "cpu")),
    "vector_add of large ones": (lambda: (array(40_000), array(40_000)), lambda x, y: lc.vector_add(x, y, "cpu")),
    "vector_add of strided ones": (
        lambda: (array(8, 6)[:, ::2], array(3, 8).T),
        lambda x, y: lc.vector_add(x, y, "cpu"),
    ),
    "matrix_sub": (lambda: (array(3, 5), array(3, 5)), lambda x, y: lc.matrix_sub(x, y, 3, 5, "cpu")),
    "matrix_sub of flat ones": (lambda: (array(15), array(15)), lambda x, y: lc.matrix_sub(x, y, 3, 5, "cpu")),
    "matrix_div": (lambda: (array(3, 5), array(3, 5)), lambda x, y: lc.matrix_div(x, y, device="cpu")),
    "attention2d": (
        lambda: (array(5, 4), array(7, 4), array(7, 3)),
        lambda q, k, v: lc.attention2d(q, k, v, False, "cpu"),
    ),
    "attention2d, causal": (lambda: (array(6, 4), array(6, 4)), lambda q, k: lc.attention2d(q, k, k, True, "cpu")),
    "attention_forward": (
        lambda: (array(6, 4), array(6, 4)),
        lambda q, k: lc.attention_forward(q, k, k, 6, 4, False, "cpu"),
    ),
    "attention_forward of flat ones": (
        lambda: (array(24), array(24)),
        lambda q, k: lc.attention_forward(q, k, k, 6, 4, True, "cpu"),
    ),
    "matmul2d": (lambda: (array(9, 4), array(4, 7)), lambda a, b: lc.matmul2d(a, b, "cpu")),
    "matmul2d of transposes": (lambda: (array(4, 9).T, array(7, 4).T), lambda a, b: lc.matmul2d(a, b, "cpu")),
    "convolution and attention": (
        lambda: (array(1, 3, 4, 4), array(2, 3, 3, 3), array(2)),
        lambda x, w, b: lc.api.conv_attention_torchstrong_nchw(x, w, b, 6, 8, 1, 1, 1, 1, "cpu"),
    ),
    "conv2d_nchw": (
        lambda: (array(2, 3, 8, 8), array(4, 3, 3, 3), array(4)),
        lambda x, w, b: lc.conv2d_nchw(x, w, b, 1, 2, 1, 0, "cpu"),
    ),
    "conv2d_nchw without bias": (
        lambda: (array(1, 2, 5, 5), array(3, 2, 2, 2)),
        lambda x, w: lc.conv2d_nchw(x, w, device="cpu"),
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_the_same_as_the_long_way(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    make, call = CALLS[name]
    operands = make()
    call(*operands)
    taken: list[object] = []
    for way in ("shown", "attention_array", "convolution"):
        own = getattr(_direct, way)
        monkeypatch.setattr(_direct, way, lambda *args, own=own: taken.append(made := own(*args)) or made)
    direct = call(*operands)
    assert taken and taken[-1] is not None, "the direct way was not taken"
    monkeypatch.setattr(_direct, "takes", lambda _: False)
    long = call(*operands)
    assert type(direct) is np.ndarray and direct.dtype == np.float32 and direct.flags.writeable
    assert direct.shape == long.shape and direct.tobytes() == long.tobytes()


INTO: dict[str, tuple[Operands, tuple[int, ...], Callable[..., Any]]] = {
    "attention2d_into": (
        lambda: (array(5, 4), array(5, 4), array(5, 4)),
        (5, 4),
        lambda q, k, v, out: lc.attention2d_into(q, k, v, out, False, "cpu"),
    ),
    "attention_into, flat": (
        lambda: (array(20), array(20), array(20)),
        (20,),
        lambda q, k, v, out: lc.api.attention_into(q, k, v, out, 5, 4, False, "cpu"),
    ),
    "conv2d_nchw_into": (
        lambda: (array(1, 2, 6, 6), array(3, 2, 3, 3), array(3)),
        (1, 3, 6, 6),
        lambda x, w, b, out: lc.conv2d_nchw_into(x, w, b, out, 1, 1, 1, 1, "cpu"),
    ),
    "conv2d_nchw_into without bias": (
        lambda: (array(1, 2, 6, 6), array(3, 2, 3, 3)),
        (1, 3, 4, 4),
        lambda x, w, out: lc.conv2d_nchw_into(x, w, None, out, device="cpu"),
    ),
    "matmul2d_into": (
        lambda: (array(5, 7), array(7, 6)),
        (5, 6),
        lambda a, b, out: lc.matmul2d_into(a, b, out, "cpu"),
    ),
    "matmul2d_into of a transposed one": (
        lambda: (array(5, 7), array(6, 7).T),
        (5, 6),
        lambda a, b, out: lc.matmul2d_into(a, b, out, "cpu"),
    ),
    "convolution and attention": (
        lambda: (array(1, 3, 4, 4), array(2, 3, 3, 3), array(2)),
        (6, 8),
        lambda x, w, b, out: lc.api.conv_attention_torchstrong_nchw_into(x, w, b, out, 6, 8, 1, 1, 1, 1, "cpu"),
    ),
    "matrix_sub_into": (
        lambda: (array(4, 3), array(4, 3)),
        (4, 3),
        lambda a, b, out: lc.matrix_sub_into(a, b, out, 4, 3, "cpu"),
    ),
    "matrix_div_into, flat and large": (
        lambda: (array(90_000), array(90_000)),
        (90_000,),
        lambda a, b, out: lc.matrix_div_into(a, b, out, 300, 300, "cpu"),
    ),
}


@pytest.mark.parametrize("name", INTO)
def test_the_same_in_the_callers_memory(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    make, shape, call = INTO[name]
    operands = make()
    direct, long = np.full(shape, np.nan, np.float32), np.full(shape, np.nan, np.float32)
    # NumPy's classes are looked up at the first general call of a process.
    call(*operands, long)
    long.fill(np.nan)
    taken: list[object] = []
    for way in ("shown", "_arithmetic_float32_into"):
        own = getattr(_direct, way)
        monkeypatch.setattr(_direct, way, lambda *args, own=own: taken.append(made := own(*args)) or made)
    call(*operands, direct)
    assert taken and taken[-1] not in (None, False), "the direct way was not taken"
    takes = _direct.takes
    monkeypatch.setattr(_direct, "takes", lambda _: False)
    call(*operands, long)
    assert np.isfinite(long).all() and direct.tobytes() == long.tobytes()
    # Memory that an operand has too is refused by both.
    for taking in (takes, lambda _: False):
        monkeypatch.setattr(_direct, "takes", taking)
        whole = array(4 * int(np.prod(shape)))
        first = whole[: operands[0].size].reshape(operands[0].shape)
        out = whole[1 : 1 + int(np.prod(shape))].reshape(shape)
        before = whole.copy()
        with pytest.raises(lucid.errors.ValueError, match="overlaps"):
            call(first, *operands[1:], out)
        assert whole.tobytes() == before.tobytes()


class Named(np.ndarray):
    """An array of a class of its own."""


def fields() -> np.ndarray:
    """Floats that are no whole number of floats apart."""
    return np.zeros(32, [("x", np.float32), ("y", np.uint16)])["x"]


#: Float32 arrays that cannot be shown to the engine where they are.
ODD: dict[str, Callable[[], np.ndarray]] = {
    "read-only": lambda: read_only(),
    "reversed": lambda: array(32)[::-1],
    "fields": fields,
    "a subclass": lambda: array(32).view(Named),
    "at an odd address": lambda: np.frombuffer(bytearray(129), np.uint8)[1:].view(np.float32),
}


@pytest.mark.parametrize("name", ODD)
def test_arrays_that_cannot_be_shown_go_the_long_way(name: str) -> None:
    x, y = ODD[name](), array(32)
    assert _direct.shown("cpu", (x, y)) is None
    before = x.copy()
    assert lc.vector_add(x, y, "cpu").tobytes() == np.add(x, y).tobytes()
    lc.vector_add_into(x, y, out := np.full(32, np.nan, np.float32), "cpu")
    assert out.tobytes() == np.add(x, y).tobytes() and x.tobytes() == before.tobytes()
    made = lc.attention_forward(x, x, x, 4, 8, False, "cpu")
    assert made.tobytes() == lc.attention_forward(before, before, before, 4, 8, False, "cpu").tobytes()
    product = np.full((4, 4), np.nan, np.float32)
    lc.matmul2d_into(x.reshape(4, 8), y.reshape(8, 4), product, "cpu")
    np.testing.assert_allclose(product, x.reshape(4, 8) @ y.reshape(8, 4), **within("few ops"))


@pytest.mark.parametrize("shape", [(4, 8), (8, 4), (16, 2)])
def test_arrays_in_another_shape(shape: tuple[int, int]) -> None:
    flat, strided = array(32), array(4, 16)[:, ::2]
    for x, fits in ((flat, True), (flat.reshape(shape), True), (strided, strided.shape == shape), (array(31), False)):
        made = _direct.shown("cpu", (x,), shape)
        assert (made is not None) is fits
        if made is not None:
            assert tuple(made[0].shape) == shape and made[0].tolist() == x.reshape(shape).tolist()


def test_arrays_are_held_while_they_are_shown() -> None:
    x = array(1000)
    want = x.tolist()
    (shown,) = _direct.shown("cpu", (x,)) or ()
    del x
    array(1000)
    assert shown.tolist() == want


@pytest.mark.parametrize("place", ["apart", "the first operand", "the second operand"])
def test_results_in_the_callers_memory(place: str) -> None:
    a, b = array(32), array(32)
    want = a + b
    out = {"apart": np.full(32, np.nan, np.float32), "the first operand": a, "the second operand": b}[place]
    lc.vector_add_into(a, b, out, "cpu")
    assert out.tobytes() == want.tobytes()


def overlapping() -> tuple[np.ndarray, ...]:
    memory = array(64)
    return memory[:32], array(32), memory[16:48]


def read_only() -> np.ndarray:
    out = array(32)
    out.flags.writeable = False
    return out


BAD: dict[str, tuple[Callable[[], tuple[Any, ...]], type[Exception]]] = {
    "overlap": (overlapping, lucid.errors.ValueError),
    "other size": (lambda: (array(32), array(31), array(32)), lucid.errors.ShapeMismatch),
    "output of another size": (lambda: (array(32), array(32), array(33)), lucid.errors.ShapeMismatch),
    "float64": (lambda: (array(32).astype(np.float64), array(32), array(32)), lucid.errors.DtypeMismatch),
    "other byte order": (lambda: (array(32).astype(">f4"), array(32), array(32)), lucid.errors.DtypeMismatch),
    "output of float64": (lambda: (array(32), array(32), np.ones(32)), lucid.errors.DtypeMismatch),
    "read-only output": (lambda: (array(32), array(32), read_only()), lucid.errors.ValueError),
    "strided output": (lambda: (array(32), array(32), array(64)[::2]), lucid.errors.ValueError),
    "nothing": (lambda: (array(0), array(0), array(0)), lucid.errors.ValueError),
    "no array": (lambda: (array(32), None, array(32)), lucid.errors.TypeError),
}


@pytest.mark.parametrize("what", BAD)
def test_errors_write_nothing(what: str) -> None:
    make, kind = BAD[what]
    a, b, out = make()
    before = [x.tobytes() if x is not None else None for x in (a, b, out)]
    with pytest.raises(kind):
        lc.vector_add_into(a, b, out, "cpu")
    assert [x.tobytes() if x is not None else None for x in (a, b, out)] == before


def test_outputs_that_in_place_ops_refuse() -> None:
    a, b = array(32), array(32)
    with lucid.inference_mode():
        out = lucid.zeros(32)
    with pytest.raises(RuntimeError, match="inference tensor"):
        lc.vector_add_into(a, b, out, "cpu")
    with lucid.inference_mode():
        lc.vector_add_into(a, b, out, "cpu")
    assert out.numpy().tobytes() == (a + b).tobytes()


def test_attention_refuses_overlap() -> None:
    memory = array(100)
    q = memory[:20].reshape(5, 4)
    with pytest.raises(lucid.errors.ValueError, match="overlaps"):
        lc.attention2d_into(q, array(5, 4), array(5, 4), memory[4:24].reshape(5, 4), False, "cpu")


@pytest.mark.parametrize("sizes", [(0, 4), (-5, 4), (1 << 70, 4), (5, 1 << 64), (4, 5), (5, 5)])
def test_sizes_that_do_not_fit(sizes: tuple[int, int]) -> None:
    for x in (array(5, 4), array(20)):
        if sizes == (4, 5) and x.ndim == 1:
            continue
        with pytest.raises((lucid.errors.ValueError, lucid.errors.ShapeMismatch)):
            lc.attention_forward(x, x, x, *sizes, False, "cpu")


def test_steps_of_convolutions_are_looked_at_each_time() -> None:
    x, w = array(1, 1, 4, 4), array(1, 1, 2, 2)
    lc.conv2d_nchw(x, w, None, 1, 1, 0, 0, "cpu")
    for steps in ((True, 1, 0, 0), (1.0, 1, 0, 0), ([1], 1, 0, 0)):
        with pytest.raises(lucid.errors.TypeError):
            lc.conv2d_nchw(x, w, None, *steps, "cpu")


def test_what_watches_sees_all() -> None:
    a = array(8)
    lc.runtime_trace_enable(True)
    lc.vector_add(a, a, "cpu")
    assert [e["op"] for e in lc.runtime_trace_events()] == ["vector_add"]
    lc.runtime_trace_enable(False)
    lc.runtime_input_check_set("nan")
    a[3] = np.nan
    with pytest.raises(lucid.errors.ValueError, match="NaN"):
        lc.vector_add(a, a, "cpu")
