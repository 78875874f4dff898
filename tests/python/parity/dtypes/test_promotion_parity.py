"""Result dtypes of every two-sided element-wise op against PyTorch: all pairs of dtypes, tensors with and without
dimensions, and Python numbers on either side. Where PyTorch refuses a pair, so must we, unless it only lacks a kernel
or a signature."""

from __future__ import annotations

import contextlib
import operator
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import lucid
import pytest
import torch

from tests.python.samples import DOUBLE, lucid_dtypes, lucid_function, plain, rows

DTYPES = lucid_dtypes()
#: PyTorch's complex dtypes of other widths; complex64 stands in for all of them here.
OTHER_COMPLEX = {"complex32", "bcomplex32"}
NUMBERS = [True, 2, 2.5, 1j]
LACKS = (
    "must be Tensor, not",
    "invalid combination of arguments",
    "not implemented for",
    "not supported for",
    "unsupported for",
    "not yet implemented",
    "only supports",
)
#: Exceptions from the pattern, by op, with the reason.
DIFFERS = {
    "float_power": "the GPU device has no double precision",
    "polar": "there is no complex32",
    "complex": "there is no complex32",
}


def two_sided(row: Any) -> bool:
    kinds = [p["kind"] for p in row["params"] if p["default"] is None]
    return (
        row["family"] in ("binary", "pointwise", "compare", "complex")
        and len(kinds) == 2
        and kinds[0] == "Tensor"
        and kinds[1] in ("Tensor", "Operand")
        and "." not in row["torch"]
        and row["torch"] != "-"
        and row["name"] not in DIFFERS
    )


ROWS = [r for r in rows() if two_sided(r)]


def operands(dtype: str, device: str) -> Iterator[tuple[str, Any, Any]]:
    """One dtype as tensors with and without dimensions, in both frameworks."""
    for data in ([1, 1], 1):
        theirs = torch.tensor(data).to(getattr(torch, dtype))
        ours = lucid.tensor(data).to(getattr(lucid, dtype)).to(device)
        yield f"{dtype}{list(theirs.shape)}", ours, theirs


def agree(ours: Any, theirs: Any) -> bool:
    return plain(ours) == plain(theirs) or (plain(theirs) in OTHER_COMPLEX and plain(ours) == "complex64")


def check(where: str, ours: Callable[[], Any], theirs: Callable[[], Any], wrong: list[str]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            wanted = theirs().dtype
        except (RuntimeError, TypeError, NotImplementedError) as refused:
            if any(lack in str(refused) for lack in LACKS):
                return
            with contextlib.suppress(RuntimeError, TypeError):
                wrong.append(f"{where}: {ours().dtype} where PyTorch refuses: {str(refused)[:80]}")
            return
        if plain(wanted) in DOUBLE and where.startswith("gpu"):
            return
        try:
            got = ours().dtype
        except (RuntimeError, TypeError) as e:
            wrong.append(f"{where}: {str(e)[:80]}, for {wanted}")
            return
        if not agree(got, wanted):
            wrong.append(f"{where}: {got} for {wanted}")


@pytest.mark.parametrize("device", ["cpu", "gpu"])
@pytest.mark.parametrize("row", ROWS, ids=lambda r: r["name"])
def test_pairs_of_tensors(row: Any, device: str) -> None:
    wrong: list[str] = []
    ours, theirs = lucid_function(row), getattr(torch, row["torch"])
    dtypes = [d for d in DTYPES if device == "cpu" or d not in DOUBLE]
    for a in dtypes:
        for b in dtypes:
            for left, la, ta in operands(a, device):
                for right, lb, tb in operands(b, device):
                    where = f"{device} {row['name']}({left}, {right})"
                    check(where, lambda x=la, y=lb: ours(x, y), lambda x=ta, y=tb: theirs(x, y), wrong)
    assert not wrong, "\n".join([str(len(wrong)), *wrong[:40]])


@pytest.mark.parametrize("device", ["cpu", "gpu"])
@pytest.mark.parametrize("row", [r for r in ROWS if r["params"][1]["kind"] == "Operand"], ids=lambda r: r["name"])
def test_numbers_on_either_side(row: Any, device: str) -> None:
    wrong: list[str] = []
    ours, theirs = lucid_function(row), getattr(torch, row["torch"])
    dtypes = [d for d in DTYPES if device == "cpu" or d not in DOUBLE]
    for dtype in dtypes:
        for name, x, t in operands(dtype, device):
            for n in NUMBERS:
                where = f"{device} {row['name']}({name}, {n})"
                check(where, lambda x=x, n=n: ours(x, n), lambda t=t, n=n: theirs(t, n), wrong)
                where = f"{device} {row['name']}({n}, {name})"
                check(where, lambda x=x, n=n: ours(n, x), lambda t=t, n=n: theirs(n, t), wrong)
    assert not wrong, "\n".join([str(len(wrong)), *wrong[:40]])


OPERATORS = [
    *(operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod, operator.pow),
    *(operator.and_, operator.or_, operator.xor, operator.lshift, operator.rshift),
    *(operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge),
]


@pytest.mark.parametrize("device", ["cpu", "gpu"])
@pytest.mark.parametrize("op", OPERATORS, ids=lambda op: op.__name__)
def test_operators(op: Any, device: str) -> None:
    wrong: list[str] = []
    dtypes = [d for d in DTYPES if device == "cpu" or d not in DOUBLE]
    for dtype in dtypes:
        for name, x, t in operands(dtype, device):
            for n in NUMBERS:
                check(f"{device} {name} {op.__name__} {n}", lambda x=x, n=n: op(x, n), lambda t=t, n=n: op(t, n), wrong)
                check(f"{device} {n} {op.__name__} {name}", lambda x=x, n=n: op(n, x), lambda t=t, n=n: op(n, t), wrong)
    assert not wrong, "\n".join([str(len(wrong)), *wrong[:40]])
