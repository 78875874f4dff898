"""What the property tests draw: shapes, dtypes, and tensors of both frameworks with the same numbers."""

from __future__ import annotations

from typing import Any

import lucid
import numpy as np
import torch
from hypothesis import strategies as st

from tests.python.samples import lucid_dtypes

DTYPES = lucid_dtypes()
FLOATS = ["float16", "bfloat16", "float32", "float64"]
dtypes = st.sampled_from(DTYPES)
devices = st.sampled_from(["cpu", "gpu"])


def shapes(max_dims: int = 4, max_side: int = 4, min_side: int = 0) -> st.SearchStrategy[tuple[int, ...]]:
    """Sizes of small tensors."""
    return st.lists(st.integers(min_side, max_side), max_size=max_dims).map(tuple)


def on(dtype: str, device: str) -> str:
    """The device that has the dtype: the GPU device has no double precision."""
    return "cpu" if dtype in ("float64", "complex128") else device


def counting(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Distinct small numbers, as far as the dtype has them."""
    values = np.arange(int(np.prod(shape, dtype=int)))
    if dtype == "bool":
        return (values % 3 == 0).reshape(shape)
    return (values % 100).reshape(shape)


def pair(values: Any, dtype: str, device: str) -> tuple[Any, Any]:
    """The same tensor in PyTorch and here."""
    values = np.asarray(values)
    ours = lucid.tensor(values).to(getattr(lucid, dtype)).to(on(dtype, device))
    return torch.tensor(values).to(getattr(torch, dtype)), ours


def numbers(t: Any) -> Any:
    """Elements as nested lists that compare: NaN as text."""

    def plain(x: Any) -> Any:
        if isinstance(x, list):
            return [plain(y) for y in x]
        return "nan" if x != x else x

    return plain(t.detach().cpu().tolist())


def plain(dtype: Any) -> str:
    """A dtype's name without its package."""
    return str(dtype).rsplit(".", 1)[-1]


def outcome(f: Any) -> tuple[str, Any]:
    """What a call gives, or the kind of its error."""
    try:
        return "ok", f()
    except (IndexError, ValueError, TypeError, RuntimeError) as e:
        return kind_of(e), e


def kind_of(e: Exception) -> str:
    """The builtin that an exception is a kind of. A DtypeMismatch, a TypeError too, is what PyTorch mostly raises."""
    if isinstance(e, lucid.DtypeMismatch):
        return "RuntimeError"
    builtins = (NotImplementedError, IndexError, ValueError, RuntimeError, TypeError)
    return next(k.__name__ for k in builtins if isinstance(e, k))


def strides(t: Any) -> list[int]:
    """The strides that say something: those of dimensions with more than one element."""
    return [s for n, s in zip(t.shape, t.stride(), strict=True) if n > 1]


def same_error(wanted: str, got: str) -> bool:
    """Do both fail in the same way? PyTorch is not of one mind about IndexError and RuntimeError."""
    return wanted == got or {wanted, got} <= {"IndexError", "RuntimeError", "ValueError"}
