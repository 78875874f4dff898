"""What the op table promises, without PyTorch: gradients by finite differences, and the GPU device against the CPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import lucid
import numpy as np
import pytest

from tests.python import limitations, tolerances
from tests.python.samples import (
    BY_HAND,
    DOUBLE,
    LAYOUTS,
    STORED,
    UP_TO_SIGN,
    Data,
    DType,
    Sample,
    dress,
    fits_in_place,
    layouts,
    lucid_dtypes,
    lucid_function,
    results,
    rows,
    samples,
    single,
)

ROWS = rows()
DIFFERENTIABLE = [r for r in ROWS if r["differentiable"] and r["name"] not in limitations.STRAIGHT_THROUGH]


def name_of(row: Any) -> str:
    return str(row["name"])


def make(d: Data, dtype: str, device: str, layout: str = "contiguous", grad: bool = False) -> lucid.Tensor:
    numbers, views = dress(d, layout)
    if numbers.dtype == np.float64 and device == "gpu":
        numbers = numbers.astype(np.float32)
    t = lucid.tensor(numbers, device=device)
    if d.varies:
        t = t.to(getattr(lucid, dtype))
    t = views(t)
    varies = grad and d.varies and d.gradient and (t.is_floating_point() or t.is_complex())
    return t.detach().requires_grad_() if varies else t


def call(
    row: Any, sample: Sample, dtype: str, device: str, layout: str = "contiguous", grad: bool = False
) -> tuple[list[Any], list[Any]]:
    leaves: list[Any] = []

    def convert(d: Data) -> Any:
        t = make(d, dtype, device, layout, grad)
        if t.requires_grad:
            leaves.append(t)
        return t

    args, kwargs = sample.map(convert)
    args = [getattr(lucid, a.name) if isinstance(a, DType) else a for a in args]
    kwargs = {k: getattr(lucid, v.name) if isinstance(v, DType) else v for k, v in kwargs.items()}
    if row["family"] in ("create", "random"):
        kwargs["device"] = device
    return results(lucid_function(row)(*args, **kwargs)), leaves


def numbers(t: Any) -> np.ndarray:
    if isinstance(t, lucid.Tensor) and t.is_complex():
        return numbers(lucid.view_as_real(t.detach()))
    return np.asarray(t.detach().cpu().to(lucid.float64).tolist()) if isinstance(t, lucid.Tensor) else np.asarray(t)


def of_leaves(row: Any, sample: Sample, leaves: list[Data], dtype: str) -> Callable[..., Any]:
    """The row's differentiable results as a function of some of its tensors, in double precision."""

    def function(*given: lucid.Tensor) -> Any:
        queue = list(given)

        def convert(data: Data) -> Any:
            if not any(data is leaf for leaf in leaves):
                return make(data, dtype, "cpu")
            t = queue.pop(0)
            return (t + t.mH) / 2 if data.symmetric else t

        args, kwargs = sample.map(convert)
        args = [getattr(lucid, a.name) if isinstance(a, DType) else a for a in args]
        out = [r for r in results(lucid_function(row)(*args, **kwargs)) if r.is_floating_point() or r.is_complex()]
        return tuple(r for r in out if r.requires_grad)

    return function


@pytest.mark.parametrize("row", DIFFERENTIABLE, ids=name_of)
@pytest.mark.parametrize("order", ["gradcheck", "gradgradcheck"])
def test_gradients_match_finite_differences(row: Any, order: str) -> None:
    dtypes = [d for d in DOUBLE if d in row["dtypes"]]
    if not dtypes:
        pytest.fail(f"{row['name']} is differentiable but takes no double precision")
    for dtype in dtypes:
        # Complex vectors that are unique up to their phases have no gradients, and convolutions are slow.
        apart = row["name"] in UP_TO_SIGN or row["family"] == "conv"
        if not limitations.known(row["name"], "cpu", dtype) and not (apart and dtype == "complex128"):
            check_gradients(row, order, dtype)


def check_gradients(row: Any, order: str, dtype: str) -> None:
    checked = 0
    for sample in samples(row):
        sample = sample.of_complex(dtype) if dtype == "complex128" else sample
        leaves = [d for d in sample.tensors() if d.varies and d.gradient and d.values.size]
        if not leaves:
            continue
        inputs = [make(d, dtype, "cpu", grad=True) for d in leaves]

        function = of_leaves(row, sample, leaves, dtype)
        try:
            if not function(*inputs):
                continue  # A cast to integers, say.
        except lucid.DtypeMismatch:
            assert dtype == "complex128", sample.text
            continue  # Rounded quotients, say; that PyTorch refuses them, too, is tested where it is there.
        checked += 1

        assert getattr(lucid.autograd, order)(function, inputs), f"{row['name']}({sample.text})"
    assert checked


@pytest.fixture
def mlx_own() -> Iterator[None]:
    """MLX's own primitives on its CPU stream too, as on Metal and CUDA."""
    lucid._C.set_hosting(False)
    yield
    lucid._C.set_hosting(True)


HOSTED = [r for r in ROWS if r["family"] in ("conv", "pool", "fft")]


@pytest.mark.usefixtures("mlx_own")
@pytest.mark.parametrize("row", HOSTED, ids=name_of)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_mlx_agrees_with_cpu(row: Any, layout: str) -> None:
    test_gpu_agrees_with_cpu(row, layout)


@pytest.mark.parametrize("row", ROWS, ids=name_of)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_gpu_agrees_with_cpu(row: Any, layout: str) -> None:
    if layout not in layouts(row):
        return
    signs = row["name"] not in UP_TO_SIGN
    for dtype in ("float32", "float16", "bfloat16"):
        if dtype not in row["dtypes"] or limitations.known(row["name"], "gpu", dtype):
            continue
        for sample in samples(row, "gpu"):
            where = f"{row['name']}({sample.text}) {dtype} {layout}"
            try:
                wanted, cpu_leaves = call(row, sample, dtype, "cpu", layout, grad=True)
            except lucid.LucidError as refused:
                with pytest.raises(type(refused)):
                    call(row, sample, dtype, "gpu", layout)
                continue
            got, gpu_leaves = call(row, sample, dtype, "gpu", layout, grad=True)
            assert len(wanted) == len(got), where
            rtol, atol = tolerances.forward(dtype)
            for w, g in zip(wanted, got, strict=True):
                if isinstance(w, lucid.Tensor):
                    assert (g.dtype, g.shape, g.stride()) == (w.dtype, w.shape, w.stride()), where
                mine, own = (numbers(g), numbers(w)) if signs else (np.abs(numbers(g)), np.abs(numbers(w)))
                np.testing.assert_allclose(mine, own, rtol, atol, err_msg=where)
            if dtype != "float32" or not cpu_leaves or not signs or not row["differentiable"]:
                continue
            rtol, atol = tolerances.backward(dtype)
            wanted_grads, got_grads = gradients(wanted, cpu_leaves), gradients(got, gpu_leaves)
            for w, g in zip(wanted_grads, got_grads, strict=True):
                np.testing.assert_allclose(numbers(g), numbers(w), rtol, atol, err_msg=f"gradient of {where}")


def gradients(outputs: list[Any], leaves: list[Any]) -> list[Any]:
    """Gradients of a weighted sum of all outputs, so that each element counts differently."""
    total = None
    for out in outputs:
        if isinstance(out, lucid.Tensor) and out.requires_grad:
            out = lucid.view_as_real(out) if out.is_complex() else out
            weights = lucid.arange(1, out.numel() + 1, device=out.device).to(out.dtype).reshape(out.shape) / 7
            term = (out * weights).sum()
            total = term if total is None else total + term
    if total is None:
        return []
    grads = lucid.autograd.grad(total, leaves, allow_unused=True)
    return [g if g is not None else lucid.zeros(leaf.shape) for g, leaf in zip(grads, leaves, strict=True)]


@pytest.mark.parametrize("row", [r for r in ROWS if r["method"] or r["in_place"]], ids=name_of)
@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_methods_and_in_place_forms_agree(row: Any, device: str) -> None:
    for sample in samples(row, device):
        (x, *rest), kwargs = sample.map(lambda d, s=sample: make(d, single(row, s, d), device))
        rest = [getattr(lucid, a.name) if isinstance(a, DType) else a for a in rest]
        if row["method"]:
            wanted = [numbers(r) for r in results(lucid_function(row)(x, *rest, **kwargs))]
            got = [numbers(r) for r in results(getattr(x, row["name"])(*rest, **kwargs))]
            for w, g in zip(wanted, got, strict=True):
                np.testing.assert_array_equal(g, w)
        if not row["in_place"]:
            continue
        result = lucid_function(row)(x, *rest, **kwargs)
        if row["family"] == "view":
            version = x._version
            assert getattr(x, row["name"] + "_")(*rest, **kwargs) is x
            assert (x._version, x.shape, x.stride()) == (version + 1, result.shape, result.stride())
            np.testing.assert_array_equal(numbers(x), numbers(result))
            continue
        if not fits_in_place(row, result, x):
            before = numbers(x)
            with pytest.raises(RuntimeError):
                getattr(x, row["name"] + "_")(*rest, **kwargs)
            np.testing.assert_array_equal(numbers(x), before)
            continue
        version = x._version
        assert getattr(x, row["name"] + "_")(*rest, **kwargs) is x
        assert x._version == version + 1
        np.testing.assert_array_equal(numbers(x), numbers(result.to(x.dtype)))


@pytest.mark.parametrize("row", [r for r in ROWS if r["primitive"]], ids=name_of)
@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_dtypes_outside_of_the_row_are_refused(row: Any, device: str) -> None:
    """A dtype that the row does not list is a typed error, not a wrong value."""
    outside = [d for d in ("bool", "int64", "complex64") if d not in row["dtypes"]]
    sample = next(iter(samples(row)))
    varying = [d for d in sample.tensors() if d.varies]
    for dtype in outside if varying else ():
        args, kwargs = sample.map(lambda d, dtype=dtype: make(d, dtype, device))
        with pytest.raises(lucid.LucidError) as caught:
            lucid.eval(*[r for r in results(lucid_function(row)(*args, **kwargs)) if isinstance(r, lucid.Tensor)])
        assert dtype in str(caught.value), f"{row['name']} {dtype}: {caught.value}"


def test_rows_are_complete() -> None:
    # The tests above choose by these words: a misspelt one would test nothing.
    assert {d for r in ROWS for d in r["dtypes"]} == {*lucid_dtypes(), *STORED}
    names = [r["name"] for r in lucid.op_schemas()]
    assert len(names) == len(set(names)) >= 120
    for r in lucid.op_schemas():
        assert r["doc"].strip(), r["name"]
        assert r["version"] >= 1
        if r["torch"] != "-" and r["samples"] == [] and r["name"] not in BY_HAND:
            pytest.fail(f"{r['name']} has a torch name and no sample")
