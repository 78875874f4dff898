"""Calls that end otherwise than in PyTorch, as data: what each gives there and here, and why.

The docs' table is made of it, and a test runs each on both sides, so that none is listed longer than it holds.
"""

from __future__ import annotations

import ast
import contextlib
import io
import warnings
from dataclasses import dataclass
from types import ModuleType


@dataclass(frozen=True)
class Difference:
    """One program, whose last line is an expression. ``torch`` and ``lucid`` are what it gives, or the error's kind."""

    program: str
    torch: str
    lucid: str
    reason: str


DIFFERENCES: tuple[Difference, ...] = ()


def outcome(program: str, module: ModuleType) -> str:
    """What a program gives with `torch` as the name of a framework: the last line's `str`, or the kind of the error."""
    *lines, last = ast.parse(program).body
    assert isinstance(last, ast.Expr), program
    names: dict[str, object] = {"torch": module, "nn": module.nn, "F": module.nn.functional}
    with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
        warnings.simplefilter("ignore")
        try:
            exec(compile(ast.Module(lines, []), "<program>", "exec"), names)
            return str(eval(compile(ast.Expression(last.value), "<program>", "eval"), names))
        except Exception as e:
            return type(e).__name__
