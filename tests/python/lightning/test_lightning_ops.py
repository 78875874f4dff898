"""Ops: values against PyTorch on both devices, kinds of operands, memory of the caller's, and bad input."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import lucid
import lucid.lightning as lc
import numpy as np
import pytest
import torch
from lucid import errors

from tests.python.tolerances import within

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(0)


def rand(*shape: int) -> Array:
    return RNG.random(shape, np.float32)


A, B = rand(5, 7), rand(7, 3)
V, W = rand(11), rand(11)
M, N = rand(4, 6), rand(4, 6) + 1
Q, K, T = rand(6, 4), rand(6, 4), rand(6, 4)
X, F, C = rand(2, 3, 7, 6), rand(4, 3, 3, 2), rand(4)


def attention(causal: bool) -> Array:
    q, k, v = (torch.from_numpy(x)[None, None] for x in (Q, K, T))
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)[0, 0].numpy()


CONV = torch.nn.functional.conv2d(*map(torch.from_numpy, (X, F, C)), stride=(2, 1), padding=(1, 0)).numpy()
STEPS = (2, 1, 1, 0)
PIPELINE_FLAT = np.tile(np.maximum(CONV, 0).reshape(-1), 2)[:240].reshape(3, 20, 4)


def pipeline() -> Array:
    q, k, v = (torch.from_numpy(x.copy())[None, None] for x in PIPELINE_FLAT)
    return torch.nn.functional.scaled_dot_product_attention(q, k, v)[0, 0].numpy()


# The op's name, its operands, a call with a device, and what it should give.
OPS: dict[str, tuple[tuple[Array, ...], Callable[..., Any], Array]] = {
    "matmul2d": ((A, B), lambda d, a, b: lc.matmul2d(a, b, d), A @ B),
    "matmul": ((A, B), lambda d, a, b: lc.matmul(a, b, 5, 7, 3, d), A @ B),
    "matmul_with_policy": ((A, B), lambda d, a, b: lc.matmul_with_policy(a, b, 5, 7, 3, d), A @ B),
    "vector_add": ((V, W), lambda d, a, b: lc.vector_add(a, b, d), V + W),
    "matrix_sub": ((M, N), lambda d, a, b: lc.matrix_sub(a, b, 4, 6, d), M - N),
    "matrix_div": ((M, N), lambda d, a, b: lc.matrix_div(a, b, 4, 6, d), M / N),
    "attention2d": ((Q, K, T), lambda d, q, k, v: lc.attention2d(q, k, v, False, d), attention(False)),
    "attention2d causal": ((Q, K, T), lambda d, q, k, v: lc.attention2d(q, k, v, True, d), attention(True)),
    "attention_forward": ((Q, K, T), lambda d, *t: lc.attention_forward(*t, 6, 4, False, d), attention(False)),
    "api.attention": ((Q, K, T), lambda d, *t: lc.api.attention(*t, 6, 4, True, d), attention(True)),
    "conv2d_nchw": ((X, F, C), lambda d, *t: lc.conv2d_nchw(*t, *STEPS, d), CONV),
    "conv2d_nchw_metal_resident": ((X, F, C), lambda d, *t: lc.conv2d_nchw_metal_resident(*t, *STEPS, d), CONV),
    "api.conv_relu_nchw": ((X, F, C), lambda d, *t: lc.api.conv_relu_nchw(*t, *STEPS, d), np.maximum(CONV, 0)),
    "api.conv_attention": (
        (X, F, C),
        lambda d, *t: lc.api.conv_attention_torchstrong_nchw(*t, 20, 4, *STEPS, d),
        pipeline(),
    ),
    "api.conv_attention graph": (
        (X, F, C),
        lambda d, *t: lc.api.conv_attention_torchstrong_nchw(*t, 20, 4, *STEPS, d, "graph"),
        pipeline(),
    ),
}

# The same into the caller's memory.
INTO: dict[str, tuple[tuple[Array, ...], Callable[..., Any], Array]] = {
    "matmul2d_into": ((A, B), lambda d, a, b, o: lc.matmul2d_into(a, b, o, d), A @ B),
    "matmul_np_into": ((A, B), lambda d, a, b, o: lc.matmul_np_into(a, b, o, 5, 7, 3, d), A @ B),
    "matmul_np_into_with_policy": (
        (A, B),
        lambda d, a, b, o: lc.matmul_np_into_with_policy(a, b, o, 5, 7, 3, d, lc.MatMulIoPolicy()),
        A @ B,
    ),
    "vector_add_into": ((V, W), lambda d, a, b, o: lc.vector_add_into(a, b, o, d), V + W),
    "matrix_sub_into": ((M, N), lambda d, a, b, o: lc.matrix_sub_into(a, b, o, 4, 6, d), M - N),
    "matrix_div_into": ((M, N), lambda d, a, b, o: lc.matrix_div_into(a, b, o, device=d), M / N),
    "attention2d_into": ((Q, K, T), lambda d, q, k, v, o: lc.attention2d_into(q, k, v, o, True, d), attention(True)),
    "api.attention_into": (
        (Q, K, T),
        lambda d, q, k, v, o: lc.api.attention_into(q, k, v, o, 6, 4, False, d),
        attention(False),
    ),
    "conv2d_nchw_into": ((X, F, C), lambda d, x, w, b, o: lc.conv2d_nchw_into(x, w, b, o, *STEPS, d), CONV),
    "api.conv_relu_nchw_into": (
        (X, F, C),
        lambda d, x, w, b, o: lc.api.conv_relu_nchw_into(x, w, b, o, *STEPS, d),
        np.maximum(CONV, 0),
    ),
    "api.conv_attention_into": (
        (X, F, C),
        lambda d, x, w, b, o: lc.api.conv_attention_torchstrong_nchw_into(x, w, b, o, 20, 4, *STEPS, d),
        pipeline(),
    ),
}


def close(got: Any, want: Array) -> None:
    np.testing.assert_allclose(np.asarray(got), want, **within("program"))


@pytest.mark.parametrize("crossover", ["static", "off", "measured"])
@pytest.mark.parametrize("device", ["cpu", "metal", "gpu", "auto"])
@pytest.mark.parametrize("name", OPS)
def test_values(name: str, device: str, crossover: str) -> None:
    if crossover == "measured" and device != "metal":
        device = "cuda"
    lc.crossover_policy_set(lc.CrossoverPolicy(mode=crossover))
    operands, call, want = OPS[name]
    got = call(device, *operands)
    assert isinstance(got, np.ndarray) and got.dtype == np.float32 and got.shape == want.shape
    close(got, want)
    got[...] = 0
    close(call(device, *operands), want)


@pytest.mark.parametrize("name", OPS)
def test_kinds_of_operands(name: str) -> None:
    operands, call, want = OPS[name]
    listed = call("metal", *[x.tolist() for x in operands])
    assert isinstance(listed, list)
    close(listed, want)
    for device in ("cpu", "gpu"):
        got = call(device, *[lucid.from_numpy(x.copy()) for x in operands])
        assert isinstance(got, lucid.Tensor)
        assert got.device == lucid.device(device), "the device that was asked for"
        close(got.cpu().numpy(), want)
    read_only = [x.copy() for x in operands]
    for x in read_only:
        x.flags.writeable = False
    close(call("cpu", *read_only), want)
    strided = [np.ascontiguousarray(x.T).T for x in operands]
    close(call("cpu", *strided), want)


@pytest.mark.parametrize("name", ["matmul", "matmul_np", "matrix_sub", "attention_forward"])
def test_flat_operands_give_flat_results(name: str) -> None:
    calls = {
        "matmul": (lambda: lc.matmul(A.ravel(), B.ravel(), 5, 7, 3, "cpu"), A @ B),
        "matmul_np": (lambda: lc.matmul_np(A.ravel().tolist(), B.ravel().tolist(), 5, 7, 3, "cpu"), A @ B),
        "matrix_sub": (lambda: lc.matrix_sub(M.ravel(), N.ravel(), 4, 6, "metal"), M - N),
        "attention_forward": (
            lambda: lc.attention_forward(Q.ravel(), K.ravel(), T.ravel(), 6, 4, False, "cpu"),
            attention(False),
        ),
    }
    call, want = calls[name]
    got = call()
    assert isinstance(got, np.ndarray) and got.shape == (want.size,)
    close(got, want.ravel())


@pytest.mark.parametrize("device", ["cpu", "metal"])
@pytest.mark.parametrize("name", INTO)
def test_into_the_callers_memory(name: str, device: str) -> None:
    lc.crossover_policy_set(lc.CrossoverPolicy(mode="off"))
    operands, call, want = INTO[name]
    for shape in (want.shape, (want.size,)):
        out = np.full(shape, 7, np.float32)
        assert call(device, *operands, out) is None
        close(out.reshape(want.shape), want)
    tensor = lucid.zeros(*want.shape)
    address = tensor.data_ptr()
    call(device, *operands, tensor)
    close(tensor.numpy(), want)
    assert tensor.data_ptr() == address


@pytest.mark.parametrize("name", ["vector_add_into", "matrix_sub_into", "matrix_div_into"])
def test_elementwise_ops_are_computed_in_the_callers_memory(name: str) -> None:
    _, call, _ = INTO[name]
    shape = (11,) if name == "vector_add_into" else (4, 6)
    a, b = rand(*shape), rand(*shape)
    out = np.empty(shape, np.float32)
    call("cpu", a, b, out)
    lucid._C.reset_peak_memory_stats("cpu")
    before = lucid._C.memory_stats("cpu")["allocations"]
    call("cpu", a, b, out)
    assert lucid._C.memory_stats("cpu")["allocations"] == before, "nothing beside is allocated"


def test_operands_that_require_gradients_are_not_written_into_memory() -> None:
    a = lucid.ones(4, 4, requires_grad=True)
    out = np.full((4, 4), 7, np.float32)
    for call in (lambda: lc.matmul2d_into(a, a, out, "cpu"), lambda: lc.matrix_sub_into(a, a, out, device="cpu")):
        with pytest.raises(errors.ValueError, match="detach"):
            call()
    assert (out == 7).all()


def bad_outputs(shape: tuple[int, ...]) -> dict[str, tuple[Any, type[Exception]]]:
    read_only = np.full(shape, 7, np.float32)
    read_only.flags.writeable = False
    return {
        "float64": (np.full(shape, 7.0), errors.DtypeMismatch),
        "byte order": (np.full(shape, 7, ">f4"), errors.DtypeMismatch),
        "larger": (np.full((*shape, 2), 7, np.float32), errors.ShapeMismatch),
        "empty": (np.full(0, 7, np.float32), errors.ShapeMismatch),
        "not contiguous": (np.full((*shape, 2), 7, np.float32)[..., 0], errors.ValueError),
        "read-only": (read_only, errors.ValueError),
        "list": ([7.0], errors.TypeError),
        "none": (None, errors.TypeError),
        "int tensor": (lucid.full(shape, 7), errors.DtypeMismatch),
    }


@pytest.mark.parametrize("what", bad_outputs((1,)))
@pytest.mark.parametrize("name", INTO)
def test_bad_outputs_are_refused_and_not_written(name: str, what: str) -> None:
    operands, call, want = INTO[name]
    out, error = bad_outputs(want.shape)[what]
    before = np.array(out, copy=True) if isinstance(out, np.ndarray) else None
    with pytest.raises(error) as raised:
        call("cpu", *operands, out)
    assert isinstance(raised.value, errors.LucidError) and "()" in str(raised.value)
    if before is not None:
        np.testing.assert_array_equal(out, before)


@pytest.mark.parametrize("what", ["float64", "int32", "float16", "empty", "words", "ragged", "string", "none", "bool"])
@pytest.mark.parametrize("name", [*OPS, *INTO])
def test_bad_operands_are_refused_and_nothing_is_written(name: str, what: str) -> None:
    operands, call, want = (OPS | INTO)[name]
    bad: Any = {
        "float64": operands[0].astype(np.float64),
        "int32": operands[0].astype(np.int32),
        "float16": operands[0].astype(np.float16),
        "bool": operands[0].astype(bool),
        "empty": np.empty((0, *operands[0].shape[1:]), np.float32),
        "words": [["a"]],
        "ragged": [[1.0], [1.0, 2.0]],
        "string": "abc",
        "none": None,
    }[what]
    out = [np.full(want.shape, 7, np.float32)] if name in INTO else []
    with pytest.raises(errors.LucidError) as raised:
        call("cpu", bad, *operands[1:], *out)
    wanted = errors.DtypeMismatch if what in ("float64", "int32", "float16", "bool") else (TypeError, ValueError)
    assert isinstance(raised.value, wanted)
    assert all((o == 7).all() for o in out)


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("name", [*OPS, *INTO])
def test_nan_is_refused_where_the_input_check_says_so(name: str, value: float) -> None:
    operands, call, want = (OPS | INTO)[name]
    bad = operands[-1].copy()
    bad.flat[0] = value
    out = [np.full(want.shape, 7, np.float32)] if name in INTO else []
    call("cpu", *operands[:-1], bad, *[o.copy() for o in out])
    lc.runtime_input_check_set("finite")
    with pytest.raises(errors.ValueError, match="NaN"):
        call("cpu", *operands[:-1], bad, *out)
    assert all((o == 7).all() for o in out)
    lc.runtime_input_check_set("nan")
    if np.isnan(value):
        with pytest.raises(errors.ValueError, match="NaN"):
            call("cpu", *operands[:-1], bad, *out)
    else:
        call("cpu", *operands[:-1], bad, *out)


def test_values_that_are_not_finite_go_through_by_default() -> None:
    assert np.isnan(lc.vector_add(np.float32([np.nan, 1]), np.float32([1, 1]), "cpu")[0])
    assert np.isinf(lc.matrix_div(np.float32([[1]]), np.float32([[0]]), device="cpu")).all()


HUGE = 1 << 62


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda: lc.matmul2d(A, A), errors.ShapeMismatch),
        (lambda: lc.matmul2d(V, W), errors.ShapeMismatch),
        (lambda: lc.matmul(A, B, 5, 7, 4), errors.ShapeMismatch),
        (lambda: lc.matmul(A, B, -1, 7, 3), errors.ValueError),
        (lambda: lc.matmul(A, B, HUGE, 7, 3), errors.ValueError),
        (lambda: lc.matmul(A, B, 5.0, 7, 3), errors.TypeError),
        (lambda: lc.matmul2d(A, B, "tpu"), errors.ValueError),
        (lambda: lc.matmul2d(A, B, 3), errors.TypeError),
        (lambda: lc.vector_add(V, W[:-1]), errors.ShapeMismatch),
        (lambda: lc.matrix_sub(V, W), errors.ShapeMismatch),
        (lambda: lc.matrix_sub(M, N, 4, 7), errors.ShapeMismatch),
        (lambda: lc.attention2d(Q, K[:, :2], T), errors.ShapeMismatch),
        (lambda: lc.attention_forward(Q, K, T, 7, 4), errors.ShapeMismatch),
        (lambda: lc.attention_forward(Q, K, T, 6, HUGE), errors.ValueError),
        (lambda: lc.attention2d(Q, K, T, "yes"), errors.TypeError),
        (lambda: lc.conv2d_nchw(X, F[:, :2], C), errors.ShapeMismatch),
        (lambda: lc.conv2d_nchw(X, F, C[:-1]), errors.ShapeMismatch),
        (lambda: lc.conv2d_nchw(X[:, :, :1], F, C), errors.ShapeMismatch),
        (lambda: lc.conv2d_nchw(X, F, C, 0), errors.ValueError),
        (lambda: lc.conv2d_nchw(X, F, C, 1, 1, -1), errors.ValueError),
        (lambda: lc.conv2d_nchw(X, F, C, 1, 1, HUGE), errors.ValueError),
        (lambda: lc.conv2d_nchw(X, F, C, 1.5), errors.TypeError),
        (lambda: lc.conv2d_nchw(X, F, C, 1, 1, 1 << 30, 1 << 30), errors.ValueError),
        (lambda: lc.api.conv_attention_torchstrong_nchw(X, F, C, 0, 4), errors.ValueError),
        (lambda: lc.api.conv_attention_torchstrong_nchw(X, F, C, 4, 4, execution_mode="lazy"), errors.ValueError),
        (lambda: lc.runtime_input_check_set("some"), errors.ValueError),
    ],
)
def test_calls_that_do_not_fit(call: Callable[[], Any], error: type[Exception]) -> None:
    with pytest.raises(error) as raised:
        call()
    assert isinstance(raised.value, errors.LucidError)


def test_outputs_over_operands() -> None:
    square = rand(4, 4)
    with pytest.raises(errors.ValueError, match="overlaps a"):
        lc.matmul2d_into(square, square.copy(), square, "cpu")
    buffer = rand(20)
    with pytest.raises(errors.ValueError, match="overlaps"):
        lc.vector_add_into(buffer[:8], rand(8), buffer[4:12], "cpu")
    for which in (0, 1):
        for call, function in ((lc.vector_add_into, np.add), (lc.matrix_sub_into, np.subtract)):
            pair = [rand(2, 4), rand(2, 4)]
            want = function(*pair)
            call(*pair, pair[which], device="cpu")
            close(pair[which], want)


def test_gradients_flow_through_tensors() -> None:
    a = lucid.from_numpy(A.copy()).requires_grad_(True)
    lc.matmul2d(a, lucid.from_numpy(B.copy()), "cpu").sum().backward()
    close(a.grad.numpy(), np.tile(B.sum(1), (5, 1)))


def test_a_strict_device_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LUCID_STRICT_DEVICE", "1")
    other = "cuda" if lucid.device("gpu").type != "cuda" else "metal"
    with pytest.raises(errors.GpuNotAvailable):
        lc.matmul2d(A, B, other)
