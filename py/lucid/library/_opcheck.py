"""Tests of what is registered for a custom op."""

from __future__ import annotations

from typing import Any

import lucid
from lucid import errors
from lucid.library._operator import Operator
from lucid.library._schema import tensors


def _results(value: Any) -> list[Any]:
    return tensors(value if isinstance(value, (list, tuple)) else [value])


def _schema(op: Operator, values: list[Any]) -> None:
    before = [[t.detach().clone() for t in tensors([v])] for v in values]
    args, named = op.arguments(values)
    with lucid.no_grad():
        op(*args, **named)
    for a, v, was in zip(op.schema.arguments, values, before, strict=True):
        if not a.mutated and not all(lucid.equal(x.detach(), y) for x, y in zip(tensors([v]), was, strict=True)):
            raise errors.RuntimeError(f"{op.name()}: argument {a.name!r} is written to, but the schema does not say so")


def _autograd(op: Operator, values: list[Any]) -> None:
    wanted = [t for t in tensors(values) if t.requires_grad]
    if not wanted or op.mutated:
        return
    args, named = op.arguments(values)
    results = [r for r in _results(op(*args, **named)) if r.requires_grad]
    if not results:
        raise errors.RuntimeError(f"{op.name()}: no result needs a gradient, though an argument does")
    lucid.autograd.grad([r.sum() for r in results], wanted, allow_unused=True)


def _fake(op: Operator, values: list[Any]) -> None:
    if op.fake is None:
        raise errors.RuntimeError(f"{op.name()}: there is no function of shapes; add one with register_fake")
    args, named = op.arguments(values)
    with lucid.no_grad():
        real, fake = _results(op(*args, **named)), _results(op.fake(*args, **named))
    told = [[(tuple(t.shape), t.dtype, t.device) for t in each] for each in (real, fake)]
    if told[0] != told[1]:
        raise errors.RuntimeError(f"{op.name()}: the kernel gives {told[0]}, the function of shapes {told[1]}")


_TESTS = {"test_schema": _schema, "test_autograd_registration": _autograd, "test_faketensor": _fake}


def run(op: Operator, args: tuple[Any, ...], kwargs: dict[str, Any], names: list[str], raising: bool) -> dict[str, Any]:
    """Runs the tests of these names on a call."""
    told: dict[str, Any] = {}
    for name in names:
        if name not in _TESTS:
            raise errors.RuntimeError(f"opcheck(): expected tests of {sorted(_TESTS)}, got {name!r}")
        try:
            _TESTS[name](op, op.schema.bind(op.name(), args, kwargs))
            told[name] = "SUCCESS"
        except Exception as e:
            if raising:
                raise
            told[name] = e
    return told
