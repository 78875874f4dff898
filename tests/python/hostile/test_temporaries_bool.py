"""Ops of truth values and integers on temporaries, whose memory MLX may write the result over, against PyTorch.

MLX's CPU stream gave the first operand of `bool ^ bool` where that operand was a temporary.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import lucid
import pytest
import torch

OPERATORS = {
    "&": operator.and_,
    "|": operator.or_,
    "^": operator.xor,
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": operator.floordiv,
    "%": operator.mod,
    "<<": operator.lshift,
    ">>": operator.rshift,
    "/": operator.truediv,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
FUNCTIONS = ["logical_and", "logical_or", "logical_xor", "maximum", "minimum", "fmod", "gcd", "lcm", "pow", "where"]
INPLACE = {"&=": operator.iand, "|=": operator.ior, "^=": operator.ixor, "+=": operator.iadd, "*=": operator.imul}
DTYPES = ["bool", "uint8", "int8", "int16", "int32", "int64"]
# Shapes of both operands: alike, a number, a row, a transposed operand.
SHAPES = [((37,), (37,)), ((6, 8), ()), ((6, 8), (8,)), ((6, 8), (6, 1)), ((1030,), (1030,))]


def numbers(dtype: str, shape: tuple[int, ...], seed: int) -> torch.Tensor:
    """Small ones without 0, so that everything divides; of truth values both."""
    made = torch.randint(1, 7, shape, generator=torch.Generator().manual_seed(seed))
    return made > 3 if dtype == "bool" else made.to(getattr(torch, dtype))


def temporary(x: Any) -> Any:
    """The same elements as the result of an op that nobody holds."""
    return ~~x


def calls(library: Any) -> dict[str, Callable[[Any, Any], Any]]:
    """Every op by its name; `where` takes truth from the first operand."""
    found: dict[str, Callable[[Any, Any], Any]] = dict(OPERATORS)
    found |= {name: getattr(library, name) for name in FUNCTIONS if name != "where"}
    found["where"] = lambda a, b: library.where(a > 3 if a.dtype != library.bool else a, a, b)
    return found | {name: lambda a, b, f=f: f(a.clone(), b) for name, f in INPLACE.items()}


@pytest.mark.parametrize("device", ["cpu", "gpu"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_temporaries_give_what_held_tensors_give(dtype: str, device: str) -> None:
    ours, theirs = calls(lucid), calls(torch)
    wrong = []
    for shapes in SHAPES:
        a, b = (numbers(dtype, shape, seed) for seed, shape in enumerate(shapes))
        x, y = (lucid.tensor(t.tolist(), dtype=getattr(lucid, dtype), device=device) for t in (a, b))
        for name in theirs:
            for first, second in ((a, b), (b, a)):
                p, q = (x, y) if first is a else (y, x)
                try:
                    want = theirs[name](first, second)
                except (RuntimeError, TypeError, NotImplementedError):
                    continue
                forms = {
                    "held": lambda p=p, q=q, f=ours[name]: f(p, q),
                    "first": lambda p=p, q=q, f=ours[name]: f(temporary(p), q),
                    "second": lambda p=p, q=q, f=ours[name]: f(p, temporary(q)),
                    "both": lambda p=p, q=q, f=ours[name]: f(temporary(p), temporary(q)),
                    "transposed": lambda p=p, q=q, f=ours[name]: f(
                        temporary(p.mT).mT if p.ndim == 2 else p, temporary(q)
                    ),
                }
                for form, made in forms.items():
                    got = torch.tensor(made().cpu().numpy())
                    same = (
                        torch.allclose(got, want, equal_nan=True)
                        if want.is_floating_point()
                        else torch.equal(got, want)
                    )
                    if not same:
                        wrong.append((name, form, shapes, first is b))
    assert not wrong


@pytest.mark.parametrize("device", ["cpu", "gpu"])
@pytest.mark.parametrize("dtype", DTYPES[1:])
@pytest.mark.parametrize("op", ["%", "//", "fmod", "remainder", "floor_divide"])
def test_nothing_divided_by_zero_is_nothing(op: str, dtype: str, device: str) -> None:
    f = OPERATORS.get(op) or getattr(lucid, op)
    kind = getattr(lucid, dtype)
    empty = lucid.empty(0, 3, dtype=kind, device=device)
    for zero in (lucid.zeros((), dtype=kind, device=device), lucid.zeros(3, dtype=kind, device=device), 0):
        assert f(empty, zero).shape == (0, 3)
    with pytest.raises(RuntimeError, match="ZeroDivision"):
        f(lucid.ones(2, dtype=kind, device=device), lucid.zeros((), dtype=kind, device=device)).eval()


@pytest.mark.parametrize("device", ["cpu", "gpu"])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_erf_keeps_the_sign_of_zero(dtype: str, device: str) -> None:
    x = lucid.tensor([0.0, -0.0, 1.0, -1.0], dtype=getattr(lucid, dtype), device=device)
    assert lucid.signbit(lucid.erf(x)).tolist() == [False, True, False, True]
    assert lucid.signbit(lucid.erf(x * 1)).tolist() == [False, True, False, True]
