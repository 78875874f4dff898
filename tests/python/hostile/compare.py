"""Calls that must give the same: of temporaries and of kept tensors, of views and of copies, mapped and in a loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import lucid
import numpy as np

from tests.python import tolerances


class Differs(Exception):
    """Two calls that must give the same do not."""


def flat(value: Any) -> list[Any]:
    """The tensors and numbers of a result."""
    if isinstance(value, dict):
        return [v for x in value.values() for v in flat(x)]
    if isinstance(value, (tuple, list)):
        return [v for x in value for v in flat(x)]
    return [value] if isinstance(value, (lucid.Tensor, bool, int, float, complex)) else []


def numbers(x: Any) -> Any:
    if not isinstance(x, lucid.Tensor):
        return np.asarray(x)
    x = x.detach().to_dense() if x.is_sparse else x.detach()
    return (x.float() if x.dtype == lucid.bfloat16 else x).cpu().resolve_conj().resolve_neg().numpy()


def must_agree(got: Any, want: Any, what: str) -> None:
    """Raises where results differ by more than rounding."""
    ours, theirs = flat(got), flat(want)
    if len(ours) != len(theirs):
        raise Differs(f"{what}: {len(ours)} results for {len(theirs)}")
    for i, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        dtype = str(getattr(b, "dtype", "float64")).rsplit(".", 1)[-1]
        relative, absolute = tolerances.backward(dtype)
        x, y = numbers(a), numbers(b)
        if x.shape != y.shape or x.dtype != y.dtype:
            raise Differs(f"{what}: result {i} is {x.dtype} {x.shape} for {y.dtype} {y.shape}")
        with np.errstate(all="ignore"):
            if not np.allclose(x, y, 10 * relative, 10 * absolute, equal_nan=True):
                raise Differs(f"{what}: result {i} is {x.reshape(-1)[:8].tolist()} for {y.reshape(-1)[:8].tolist()}")


def outcome(call: Callable[[], Any], leaves: list[Any]) -> tuple[str, list[Any]]:
    """The kind of error of a call, or its results and the gradients of its leaves."""
    lucid.manual_seed(0)
    for x in leaves:
        x.grad = None
    try:
        results = flat(call())
        total = None
        for r in results:
            if isinstance(r, lucid.Tensor) and r.requires_grad and r.numel() and not r.is_sparse:
                r = lucid.view_as_real(r) if r.is_complex() else r
                part = (r.float() * r.float()).sum()
                total = part if total is None else total + part
        copies = [r.detach().clone() if isinstance(r, lucid.Tensor) else r for r in results]
        if total is not None:
            total.backward()
        return "", copies + [x.grad for x in leaves if x.grad is not None]
    except (MemoryError, RuntimeError, ValueError, TypeError, IndexError) as e:
        if type(e).__name__ == "InternalError":
            raise
        return type(e).__name__, []


def leaves_of(xs: tuple[Any, ...], grad: bool) -> tuple[list[Any], list[Any]]:
    """Tensors that may require gradients, and those of them that do."""
    made = [x.detach().requires_grad_() if grad and (x.is_floating_point() or x.is_complex()) else x for x in xs]
    return made, [x for x in made if x.requires_grad]


def again(x: Any) -> Any:
    """A tensor like `x` that is an op's result, so that the next may take its memory."""
    return x | x if x.dtype == lucid.bool else x * 1


def with_temporaries(call: Callable[..., Any], *xs: Any, grad: bool = False) -> list[Any]:
    """The call of kept tensors; raises where one of temporaries gives something else.

    Each argument is temporary alone, then all are; the tensors that they are made of must not change.
    """
    made, leaves = leaves_of(xs, grad)
    before = [x.detach().clone() for x in xs]
    error, want = outcome(lambda: call(*[k for k in [again(x) for x in made]]), leaves)

    def kept() -> Any:
        held = [again(x) for x in made]
        result = call(*held)
        for h in held:
            h.detach().eval()
        return result

    error, want = outcome(kept, leaves)
    n = len(made)
    for which in [*([i] for i in range(n)), list(range(n))] if n > 1 else [[0]]:
        held = [None if i in which else again(x) for i, x in enumerate(made)]

        def temporary(held: list[Any] = held) -> Any:
            # Nothing but the call holds what is made here.
            return call(*(again(made[i]) if h is None else h for i, h in enumerate(held)))

        other, got = outcome(temporary, leaves)
        if other != error:
            raise Differs(f"argument {which} temporary: {other or 'a result'} for {error or 'a result'}")
        must_agree(got, want, f"argument {which} temporary")
    must_agree(list(xs), before, "what the arguments were made of")
    return want


def with_copies(call: Callable[..., Any], *xs: Any, grad: bool = False) -> list[Any]:
    """The call of views; raises where one of their contiguous copies gives something else."""
    error, got = outcome(lambda: call(*xs), [])
    other, want = outcome(lambda: call(*[x.detach().clone(memory_format=lucid.contiguous_format) for x in xs]), [])
    if error == other:
        must_agree(got, want, "the call of copies")
    return got


def with_loop(call: Callable[..., Any], *xs: Any) -> Any:
    """The call under vmap; raises where a loop gives something else. The batch dimension is the first."""
    error, got = outcome(lambda: lucid.func.vmap(call)(*xs), [])
    other, want = outcome(
        lambda: [
            lucid.stack(list(r)) for r in zip(*[flat(call(*each)) for each in zip(*xs, strict=True)], strict=True)
        ],
        [],
    )
    if not error and not other:
        must_agree(got, want, "a loop")
    return got
