"""The op table against PyTorch: values, dtypes, shapes, gradients, layouts, special values and integer dtypes."""

from __future__ import annotations

import itertools
from typing import Any

import lucid
import numpy as np
import pytest

from tests.python import limitations, tolerances
from tests.python.references import Reference, Values, recorded
from tests.python.samples import (
    UP_TO_SIGN,
    Data,
    DType,
    Sample,
    dress,
    layouts,
    lucid_dtypes,
    lucid_function,
    plain,
    results,
    rows,
    samples,
)

try:
    import torch
except ImportError:
    # Where there is none, what it gave is recorded.
    torch = None

ROWS = [r for r in rows() if r["torch"] != "-"]
ELEMENTWISE = [r for r in ROWS if r["family"] in ("unary", "binary", "pointwise", "compare", "reduce", "scan", "sort")]
# Ops whose second result says where the first was found, and where they take `dim`.
CHOSEN = {"topk": 2, "kthvalue": 2, "median": 1, "nanmedian": 1, "mode": 1}
# Where equal elements share a result, to which of them the gradient goes is not defined.
TIED = {*CHOSEN, "quantile", "nanquantile"}
# PyTorch's own faults: what it answers there is not compared.
FAULTS = {
    ("median", "expanded"): "its kernel reads past the end of expanded tensors",
    ("nanmedian", "expanded"): "its kernel reads past the end of expanded tensors",
}
# And the gradients that are not compared.
GRADIENT_FAULTS = {
    "cholesky_solve": "PyTorch's is not that of the half of the factor that is read",
    "cholesky_inverse": "PyTorch's is not that of the half of the factor that is read",
}
# The same of one layout.
LAYOUT_GRADIENT_FAULTS = {
    ("stft", "expanded"): "it takes strides, whose gradient is the mean of those of the elements that share memory",
}
SPECIAL = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 1e-40, 3e38, -3e38, 0.5, 88.0, -104.0])


def name_of(row: Any) -> str:
    return str(row["name"])


def torch_function(row: Any) -> Any:
    path = row["torch"]
    if path == "Tensor.to":
        return lambda x, dtype: x.to(dtype)
    owner: Any = torch
    for part in path.split("."):
        owner = getattr(owner, part)
    return owner


def torch_tensor(d: Data, dtype: str, layout: str, grad: bool) -> torch.Tensor:
    numbers, views = dress(d, layout)
    t = torch.tensor(numbers)
    if d.varies:
        t = t.to(getattr(torch, dtype))
    t = views(t).detach()
    return t.requires_grad_() if grad and d.varies and d.gradient and (t.is_floating_point() or t.is_complex()) else t


def lucid_tensor(d: Data, dtype: str, layout: str, grad: bool, device: str) -> lucid.Tensor:
    numbers, views = dress(d, layout)
    if numbers.dtype == np.float64 and device == "gpu":
        numbers = numbers.astype(np.float32)
    t = lucid.tensor(numbers, device=device)
    if d.varies:
        t = t.to(getattr(lucid, dtype))
    t = views(t).detach()
    return t.requires_grad_() if grad and d.varies and d.gradient and (t.is_floating_point() or t.is_complex()) else t


def to_numpy(t: Any) -> np.ndarray:
    if isinstance(t, lucid.Tensor):
        t = t.detach().cpu()
        return np.asarray(t.tolist()).reshape(tuple(t.shape))
    if torch is not None and isinstance(t, torch.Tensor):
        t = t.detach()
        return (t.to(torch.complex128) if t.is_complex() else t.double()).numpy(force=True)
    return np.asarray(t)


def named(value: Any, module: Any) -> Any:
    return getattr(module, value.name) if isinstance(value, DType) else value


def run_torch(row: Any, sample: Sample, dtype: str, layout: str, grad: bool) -> tuple[list[Any], list[Any]]:
    leaves: list[Any] = []

    def convert(d: Data) -> Any:
        t = torch_tensor(d, dtype, layout, grad)
        if t.requires_grad:
            leaves.append(t)
        return t

    args, kwargs = sample.map(convert)
    kwargs = {k: named(v, torch) for k, v in kwargs.items()}
    return results(torch_function(row)(*[named(a, torch) for a in args], **kwargs)), leaves


def run_lucid(
    row: Any, sample: Sample, dtype: str, layout: str, grad: bool, device: str
) -> tuple[list[Any], list[Any]]:
    leaves: list[Any] = []

    def convert(d: Data) -> Any:
        t = lucid_tensor(d, dtype, layout, grad, device)
        if t.requires_grad:
            leaves.append(t)
        return t

    args, kwargs = sample.map(convert)
    kwargs = {k: named(v, lucid) for k, v in kwargs.items()}
    if row["family"] == "create":
        kwargs["device"] = device
    return results(lucid_function(row)(*[named(a, lucid) for a in args], **kwargs)), leaves


def reference(row: Any, sample: Sample, dtype: str, layout: str, grad: bool, gradients: bool) -> Reference:
    """What PyTorch gives: with ``grad`` for arguments that want gradients, with ``gradients`` these too."""
    try:
        wanted, leaves = run_torch(row, sample, dtype, layout, grad)
    except (RuntimeError, NotImplementedError, TypeError, IndexError, ZeroDivisionError) as refused:
        return Reference(refused=str(refused))
    given = tuple(Values(plain(w.dtype), to_numpy(w)) if isinstance(w, torch.Tensor) else w for w in wanted)
    if row["name"] in CHOSEN and len(wanted) == 2:
        wanted = wanted[:1]
    if not gradients or not leaves or not any(isinstance(w, torch.Tensor) and w.requires_grad for w in wanted):
        return Reference(results=given)
    loss = weighted(wanted, lambda a, b, like: torch.arange(a, b).to(like.dtype))
    try:
        loss.backward()
    except RuntimeError as refused:
        # What PyTorch has no derivative for, or writes over before it is asked, may have one here.
        lacks = ("is not implemented", "modified by an inplace operation")
        assert any(lack in str(refused) for lack in lacks), f"{row['name']}({sample.text}) {dtype} {layout}: {refused}"
        return Reference(results=given)
    return Reference(results=given, gradients=tuple(w.grad if w.grad is None else to_numpy(w.grad) for w in leaves))


def compare(row: Any, sample: Sample, dtype: str, layout: str, device: str, grad: bool) -> None:
    where = f"{row['name']}({sample.text}) {dtype} {layout} {device}"
    gradients = grad and not (row["name"] in TIED and layout == "expanded") and row["name"] not in UP_TO_SIGN
    gradients = gradients and row["name"] not in GRADIENT_FAULTS
    gradients = gradients and (row["name"], layout) not in LAYOUT_GRADIENT_FAULTS
    wanted = recorded(f"{where} {grad}", lambda: reference(row, sample, dtype, layout, grad, gradients))
    if wanted.refused is not None:
        # Where PyTorch refuses, so must we, or at least give no wrong value silently: a typed error.
        lacks = ("not implemented for", "does not support automatic differentiation")
        if any(lack in wanted.refused for lack in lacks):
            return  # PyTorch lacks the kernel; having one is no fault.
        if row["name"] == "kron" and "Use .reshape(...) instead" in wanted.refused:
            return  # PyTorch's takes no transposed factors.
        with pytest.raises((RuntimeError, TypeError, IndexError, ValueError, ArithmeticError)):
            out, _ = run_lucid(row, sample, dtype, layout, False, device)
            lucid.eval(*[o for o in out if isinstance(o, lucid.Tensor)])
        return
    got, leaves = run_lucid(row, sample, dtype, layout, grad, device)
    given = wanted.results
    assert len(got) == len(given), where
    if row["name"] in CHOSEN and len(got) == 2:
        # Which of several equal elements is picked is not defined; what the indices point at is.
        place = CHOSEN[row["name"]]
        dim = sample.kwargs.get("dim", sample.args[place] if len(sample.args) > place else -1)
        source = lucid_tensor(sample.args[0], dtype, layout, False, device)
        at = got[1].unsqueeze(dim) if got[1].ndim < source.ndim else got[1]
        picked = source.gather(dim, at).reshape(got[0].shape)
        np.testing.assert_array_equal(to_numpy(picked), to_numpy(got[0]), err_msg=where)
        given, got = given[:1], got[:1]
    for w, g in zip(given, got, strict=True):
        if not isinstance(w, Values):
            assert g == w, where
            continue
        assert plain(g.dtype) == w.dtype, f"{where}: {g.dtype} for {w.dtype}"
        assert tuple(g.shape) == w.numbers.shape, where
        rtol, atol = tolerances.forward(w.dtype)
        if dtype in ("float16", "bfloat16"):
            rtol, atol = tolerances.forward(dtype)
        mine, theirs = to_numpy(g), w.numbers
        if row["name"] in UP_TO_SIGN:
            mine, theirs = np.abs(mine), np.abs(theirs)
        if row["family"] == "fft" and theirs.size:
            # Each number is a sum over the others, and is rounded as the largest of them is.
            atol = max(atol, tolerances.EPSILON.get(w.dtype, 0.0) * float(np.abs(theirs).max()))
        np.testing.assert_allclose(mine, theirs, rtol, atol, err_msg=where)
    if wanted.gradients is not None:
        compare_gradients(wanted.gradients, got, leaves, dtype, where)


def weighted(outputs: list[Any], arange: Any) -> Any:
    total = None
    for out in outputs:
        if getattr(out, "requires_grad", False):
            if out.is_complex():  # Gradients are of real losses: both parts count, differently.
                out = (lucid if isinstance(out, lucid.Tensor) else torch).view_as_real(out.resolve_conj())
            weights = arange(1, out.numel() + 1, out).reshape(out.shape) / 7
            term = (out * weights).sum()
            total = term if total is None else total + term
    return total


def compare_gradients(
    wanted: tuple[np.ndarray | None, ...], got: list[Any], leaves: list[Any], dtype: str, where: str
) -> None:
    loss = weighted(got, lambda a, b, like: lucid.arange(a, b, device=like.device).to(like.dtype))
    assert loss is not None, f"{where}: PyTorch has a gradient here"
    loss.backward()
    rtol, atol = tolerances.backward(dtype)
    for w, g in zip(wanted, leaves, strict=True):
        if w is None:
            assert g.grad is None or not to_numpy(g.grad).any(), f"gradient of {where}"
            continue
        if g.grad is None:
            assert not w.any(), f"{where}: no gradient"
            continue
        assert tuple(g.grad.shape) == w.shape, where
        np.testing.assert_allclose(to_numpy(g.grad), w, rtol, atol, err_msg=f"gradient of {where}")


@pytest.mark.parametrize("device", ["cpu", "gpu"])
@pytest.mark.parametrize("row", ROWS, ids=name_of)
def test_floating_dtypes_and_layouts(row: Any, device: str) -> None:
    for dtype in ("float32", "float64", "float16", "bfloat16"):
        if (
            dtype not in row["dtypes"]
            or (device == "gpu" and dtype == "float64")
            or limitations.known(row["name"], device, dtype)
        ):
            continue
        for sample in samples(row, device):
            for layout in layouts(row):
                if (row["name"], layout) in FAULTS:
                    continue
                compare(
                    row, sample, dtype, layout, device, grad=row["differentiable"] and dtype in ("float32", "float64")
                )


@pytest.mark.parametrize("device", ["cpu", "gpu"])
@pytest.mark.parametrize("row", ROWS, ids=name_of)
def test_integer_and_bool_dtypes(row: Any, device: str) -> None:
    for dtype in ("bool", "uint8", "int8", "int16", "int32", "int64"):
        if dtype not in row["dtypes"] or limitations.known(row["name"], device, dtype):
            continue
        for sample in samples(row, device, integers=True):
            compare(row, sample, dtype, "transposed", device, grad=False)


@pytest.mark.parametrize("device", ["cpu", "gpu"])
@pytest.mark.parametrize("row", ELEMENTWISE, ids=name_of)
def test_special_values(row: Any, device: str) -> None:
    """NaN, infinities, zeros of both signs, denormals and the ends of the range."""
    if "float32" not in row["dtypes"]:
        return
    for sample in samples(row, device):
        shapes = [d.values.shape for d in sample.tensors() if d.varies]
        if not shapes or limitations.known(row["name"], device, "special"):
            continue
        rng = np.random.default_rng(1)

        def special(d: Data, rng: np.random.Generator = rng) -> Data:
            return Data(rng.choice(SPECIAL, d.values.shape).astype(np.float32)) if d.varies else d

        args, kwargs = sample.map(special)
        compare(row, Sample(f"special {sample.text}", tuple(args), kwargs), "float32", "contiguous", device, grad=False)


@pytest.mark.parametrize("device", ["cpu", "gpu"])
@pytest.mark.parametrize(
    "row",
    [r for r in ROWS if "complex64" in r["dtypes"] and r["family"] not in ("create", "random", "transfer")],
    ids=name_of,
)
def test_complex(row: Any, device: str) -> None:
    for sample, dtype in itertools.product(samples(row, device), ("complex64", "complex128")):
        if limitations.known(row["name"], device, dtype) or (device == "gpu" and dtype == "complex128"):
            continue
        for layout in layouts(row):
            compare(row, sample.of_complex(dtype), dtype, layout, device, grad=row["differentiable"])


DTYPES = lucid_dtypes()
# PyTorch's complex dtypes of other widths; complex64 stands in for all of them here.
OTHER_COMPLEX = {"complex32", "bcomplex32"}


def agree(ours: Any, theirs: Any) -> bool:
    return plain(ours) == plain(theirs) or (plain(theirs) in OTHER_COMPLEX and plain(ours) == "complex64")


@pytest.mark.parametrize("a", DTYPES)
def test_promotion_table(a: str) -> None:
    for b in DTYPES:
        (la, lb), (ta, tb) = ((getattr(m, a), getattr(m, b)) for m in (lucid, torch))
        assert agree(lucid.promote_types(la, lb), torch.promote_types(ta, tb)), (a, b)
        assert lucid.can_cast(la, lb) == torch.can_cast(ta, tb), (a, b)
        for left in ([1, 0], 1):
            for right in ([1, 1], 1):
                theirs = torch.result_type(torch.tensor(left).to(ta), torch.tensor(right).to(tb))
                ours = lucid.tensor(left).to(la) * lucid.tensor(right).to(lb)
                assert agree(ours.dtype, theirs), (a, left, b, right)


@pytest.mark.parametrize("scalar", [True, 2, 2.5, 1j])
def test_promotion_with_numbers(scalar: Any) -> None:
    for dtype in DTYPES:
        for data in ([1, 0], 1):
            theirs = torch.result_type(torch.tensor(data).to(getattr(torch, dtype)), scalar)
            ours = lucid.tensor(data).to(getattr(lucid, dtype)) * scalar
            assert agree(ours.dtype, theirs), (dtype, data, scalar)
