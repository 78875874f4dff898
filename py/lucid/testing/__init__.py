"""Comparing results in tests, as `torch.testing` does: `assert_close`."""

from __future__ import annotations

import cmath
import math
from collections.abc import Callable, Mapping, Sequence
from numbers import Number
from typing import Any

import lucid
from lucid import Tensor
from lucid._make_tensor import make_tensor as make_tensor

__all__ = ["assert_close", "make_tensor"]

#: What may differ by dtype, relative and absolute; other dtypes must be equal.
_TOLERANCES = {
    lucid.float16: (1e-3, 1e-5),
    lucid.bfloat16: (1.6e-2, 1e-5),
    lucid.float32: (1.3e-6, 1e-5),
    lucid.float64: (1e-7, 1e-7),
    lucid.complex64: (1.3e-6, 1e-5),
    lucid.complex128: (1e-7, 1e-7),
}


class _Mismatch(Exception):
    """What differs, and where in the containers."""

    def __init__(self, kind: type[Exception], text: str, at: str = "") -> None:
        super().__init__(text)
        self.kind, self.text, self.at = kind, text, at

    def __str__(self) -> str:
        return self.text + (f"\n\nThe failure occurred for item {self.at}" if self.at else "")


class _Comparison:
    """How values are compared, and the comparing of all kinds of values."""

    def __init__(
        self, rtol: float | None, atol: float | None, equal_nan: bool, subclasses: bool, names: list[str]
    ) -> None:
        self.given = None if rtol is None or atol is None else (rtol, atol)
        self.equal_nan, self.subclasses, self.names = equal_nan, subclasses, names

    def compare(self, actual: Any, expected: Any, at: str = "") -> None:
        containers = (Sequence, Mapping)
        try:
            if isinstance(actual, str) or isinstance(expected, str):
                raise self.unable(actual, expected)
            if isinstance(actual, Mapping) and isinstance(expected, Mapping):
                return self.mappings(actual, expected, at)
            if isinstance(actual, Sequence) and isinstance(expected, Sequence):
                if len(actual) != len(expected):
                    text = f"The length of the sequences mismatch: {len(actual)} != {len(expected)}"
                    raise _Mismatch(AssertionError, text)
                for i, (a, e) in enumerate(zip(actual, expected, strict=True)):
                    self.compare(a, e, f"{at}[{i}]")
                return None
            if actual is None or expected is None:
                if actual is not expected:
                    raise _Mismatch(AssertionError, f"None mismatch: {actual} is not {expected}")
                return None
            if isinstance(actual, bool) and isinstance(expected, bool):
                if actual is not expected:
                    raise _Mismatch(AssertionError, f"Booleans mismatch: {actual} is not {expected}")
                return None
            if any(isinstance(x, (bool, *containers)) for x in (actual, expected)):
                raise self.unable(actual, expected)
            if isinstance(actual, Number) and isinstance(expected, Number):
                return self.numbers(actual, expected)
            return self.tensors(actual, expected)
        except _Mismatch as e:
            e.at = e.at or at
            raise

    @staticmethod
    def unable(actual: Any, expected: Any) -> _Mismatch:
        text = f"No comparison pair was able to handle inputs of type {type(actual)} and {type(expected)}."
        return _Mismatch(TypeError, text)

    def mappings(self, actual: Mapping[Any, Any], expected: Mapping[Any, Any], at: str) -> None:
        missing, more = expected.keys() - actual.keys(), actual.keys() - expected.keys()
        if missing or more:
            text = (
                "The keys of the mappings do not match:\n"
                f"Missing keys in the actual mapping: {sorted(missing, key=str)}\n"
                f"Additional keys in the actual mapping: {sorted(more, key=str)}"
            )
            raise _Mismatch(AssertionError, text)
        for key in sorted(actual, key=str):
            self.compare(actual[key], expected[key], f"{at}[{key!r}]")

    def tolerances(self, *dtypes: lucid.dtype) -> tuple[float, float]:
        if self.given is not None:
            return self.given
        found = [_TOLERANCES.get(d, (0.0, 0.0)) for d in dtypes]
        return max(r for r, _ in found), max(a for _, a in found)

    def numbers(self, actual: Any, expected: Any) -> None:
        if "dtype" in self.names and type(actual) is not type(expected):
            raise _Mismatch(AssertionError, f"The (d)types do not match: {type(actual)} != {type(expected)}.")
        exact = all(isinstance(x, int) for x in (actual, expected))
        self.scalars(actual, expected, *((0.0, 0.0) if exact and not self.given else self.tolerances(lucid.float64)))

    def scalars(self, actual: Any, expected: Any, rtol: float, atol: float) -> None:
        if actual == expected or (self.equal_nan and cmath.isnan(actual) and cmath.isnan(expected)):
            return
        off = abs(actual - expected)
        # Infinities are equal or differ; NaN is not below anything.
        if cmath.isfinite(expected) and off <= atol + rtol * abs(expected):
            return
        relative = off / abs(expected) if expected else math.inf
        raise _Mismatch(
            AssertionError,
            self.found("Scalars", rtol, atol)
            + (
                f"Expected {expected} but got {actual}.\n"
                f"Absolute difference: {off}{self.allowed(rtol, atol, atol)}\n"
                f"Relative difference: {relative}{self.allowed(rtol, atol, rtol)}"
            ),
        )

    @staticmethod
    def found(what: str, rtol: float, atol: float) -> str:
        return f"{what} are not {'close' if rtol or atol else 'equal'}!\n\n"

    @staticmethod
    def allowed(rtol: float, atol: float, this: float) -> str:
        return f" (up to {this} allowed)" if rtol or atol else ""

    def tensors(self, actual: Any, expected: Any) -> None:
        related = isinstance(actual, type(expected)) or isinstance(expected, type(actual))
        if not related or (not self.subclasses and type(actual) is not type(expected)):
            raise self.unable(actual, expected)
        try:
            a, e = (x.detach() if isinstance(x, Tensor) else lucid.as_tensor(x) for x in (actual, expected))
        except (TypeError, ValueError, RuntimeError):
            raise self.unable(actual, expected) from None
        for name in ("shape", *self.names):
            x, y = (getattr(t, name)() if name == "stride" else getattr(t, name) for t in (a, e))
            if name == "shape":
                x, y = (f"lucid.Size({list(s)})" for s in (x, y))
            if x != y:
                name += "()" if name == "stride" else ""
                raise _Mismatch(AssertionError, f"The values for attribute {name!r} do not match: {x} != {y}.")
        rtol, atol = self.tolerances(a.dtype, e.dtype)
        if a.is_sparse != e.is_sparse:
            a, e = (t.to_dense() if t.is_sparse else t for t in (a, e))
        if a.is_sparse:
            a, e = a.coalesce(), e.coalesce()
            if a._nnz() != e._nnz():
                text = f"The number of specified values in sparse COO tensors does not match: {a._nnz()} != {e._nnz()}"
                raise _Mismatch(AssertionError, text)
            self.close(a.indices(), e.indices(), 0.0, 0.0, "Sparse COO indices")
            return self.close(a.values(), e.values(), rtol, atol, "Sparse COO values")
        return self.close(a, e, rtol, atol, "Tensor-likes")

    def close(self, a: Tensor, e: Tensor, rtol: float, atol: float, what: str) -> None:
        if a.device != e.device:
            a, e = a.cpu(), e.cpu()
        dtype = lucid.promote_types(a.dtype, e.dtype)
        if dtype in (lucid.float8_e4m3fn, lucid.float8_e5m2):
            dtype = lucid.float32
        a, e = a.to(dtype), e.to(dtype)
        same = lucid.isclose(a, e, rtol=rtol, atol=atol, equal_nan=self.equal_nan)
        if same.all():
            return
        if not (dtype.is_floating_point or dtype.is_complex):
            a, e = a.to(lucid.int64), e.to(lucid.int64)
        if a.ndim == 0:
            off, relative = ((x.item()) for x in self.differences(a, e, same))
            raise _Mismatch(
                AssertionError,
                self.found("Scalars", rtol, atol)
                + (
                    f"Expected {e.item()} but got {a.item()}.\n"
                    f"Absolute difference: {off}{self.allowed(rtol, atol, atol)}\n"
                    f"Relative difference: {relative}{self.allowed(rtol, atol, rtol)}"
                ),
            )
        wrong, n = int((~same).sum().item()), same.numel()
        lines = [f"Mismatched elements: {wrong} / {n} ({100 * wrong / n:.1f}%)"]
        names, limits = ("absolute", "relative"), (atol, rtol)
        for name, off, limit in zip(names, self.differences(a, e, same), limits, strict=True):
            greatest, i = off.flatten().max(0)
            at = tuple(int(k) for k in lucid.unravel_index(i, off.shape))
            text = f"Greatest {name} difference: {greatest.item()} at index {at}"
            lines.append(text + self.allowed(rtol, atol, limit))
        raise _Mismatch(AssertionError, self.found(what, rtol, atol) + "\n".join(lines))

    @staticmethod
    def differences(a: Tensor, e: Tensor, same: Tensor) -> tuple[Tensor, Tensor]:
        """By how much the elements that do not match differ, and by how much of what is expected."""
        off = (a - e).abs().masked_fill(same, 0)
        return off, (off / e.abs()).masked_fill(same, 0)


def assert_close(
    actual: Any,
    expected: Any,
    *,
    allow_subclasses: bool = True,
    rtol: float | None = None,
    atol: float | None = None,
    equal_nan: bool = False,
    check_device: bool = True,
    check_dtype: bool = True,
    check_layout: bool = True,
    check_stride: bool = False,
    msg: str | Callable[[str], str] | None = None,
) -> None:
    """Raises where two values are not close: `|actual - expected| <= atol + rtol |expected|` for each element.

    Args:
        actual (object): tensors, what `as_tensor` takes, numbers, bools, None, and sequences and mappings of
            these.
        expected (object): tensors, what `as_tensor` takes, numbers, bools, None, and sequences and mappings of
            these.
        allow_subclasses (bool, default: True): tensors and values of a subclass may be compared with those of its
            base.
        rtol (float, optional): both or none. By default by dtype: float16 1e-3, 1e-5; bfloat16 1.6e-2, 1e-5;
            float32 and complex64 1.3e-6, 1e-5; float64, complex128 and Python's floats 1e-7, 1e-7; others must be
            equal. Of two dtypes the greater.
        atol (float, optional): both or none. By default by dtype: float16 1e-3, 1e-5; bfloat16 1.6e-2, 1e-5;
            float32 and complex64 1.3e-6, 1e-5; float64, complex128 and Python's floats 1e-7, 1e-7; others must be
            equal. Of two dtypes the greater.
        equal_nan (bool, default: False): NaN is close to NaN.
        check_device (bool, default: True): compare these, too.
        check_dtype (bool, default: True): compare these, too.
        check_layout (bool, default: True): compare these, too.
        check_stride (bool, default: False): compare these, too.
        msg (str | Callable[[str], str], optional): the error's text instead of the one made, or a function of
            that.

    Raises:
        AssertionError: they are not close; says how many elements, the greatest differences, and where.
        TypeError: values of kinds that cannot be compared.
        ValueError: one tolerance without the other.

    Example:
        >>> lucid.testing.assert_close(lucid.tensor([1.0]), lucid.tensor([1.0 + 1e-7]))
    """
    if (rtol is None) != (atol is None):
        missing = "rtol" if rtol is None else "atol"
        raise ValueError(f"Both 'rtol' and 'atol' must be either specified or omitted, but got no {missing}.")
    checks = {"device": check_device, "dtype": check_dtype, "layout": check_layout, "stride": check_stride}
    names = [name for name, asked in checks.items() if asked]
    try:
        _Comparison(rtol, atol, equal_nan, allow_subclasses, names).compare(actual, expected)
    except _Mismatch as e:
        kind, text = e.kind, str(e)
    else:
        return
    if msg is not None and kind is AssertionError:
        text = msg if isinstance(msg, str) else msg(text)
    raise kind(text)
