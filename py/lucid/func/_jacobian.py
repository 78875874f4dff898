"""Jacobians and Hessians: products with every vector of the standard basis, batched by `vmap`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from lucid import _C
from lucid._C import Tensor
from lucid.func import _tree
from lucid.func._grad import Argnums, Linear, chosen, jvp, vjp_by
from lucid.func._vmap import check_randomness, vmap


def basis(tensors: Sequence[Tensor]) -> list[Tensor]:
    """The standard basis of all elements of the tensors: for each the vectors' parts, one after the other."""
    total = sum(t.numel() for t in tensors)
    out, start = [], 0
    for t in tensors:
        size = t.numel()
        block = _C.zeros((total, size), dtype=t.dtype, device=t.device)
        block.narrow(0, start, size).copy_(_C.eye(size, dtype=t.dtype, device=t.device))
        out.append(block.reshape((total, *t.shape)))
        start += size
    return out


def _refuse_complex(where: str, leaves: Sequence[Any], what: str) -> None:
    for i, x in enumerate(leaves):
        if isinstance(x, Tensor) and x.is_complex():
            raise RuntimeError(
                f"{where}: Expected all {what} to be real but received complex tensor at flattened input idx: {i}"
            )


def jacrev(
    func: Callable[..., Any],
    argnums: Argnums = 0,
    *,
    has_aux: bool = False,
    chunk_size: int | None = None,
    _preallocate_and_copy: bool = False,
) -> Callable[..., Any]:
    """The function that gives the Jacobian of `func` by its arguments `argnums`, row by row in reverse.

    Each output of shape (A…) and argument of shape (B…) has a block of shape (A…, B…): nested as the outputs are, and
    inside of that as the arguments. `chunk_size` rows are computed at a time, all by default. With `has_aux`, `func`
    gives `(output, aux)` and this `(jacobian, aux)`.
    """
    if chunk_size is not None and chunk_size <= 0:
        raise ValueError("jacrev: `chunk_size` should be greater than 0.")

    @functools.wraps(func)
    def wrapped(*args: Any) -> Any:
        _refuse_complex("jacrev", _tree.flatten(args)[0], "inputs")
        found = vjp_by(func, args, argnums, has_aux)
        output, vjp_fn = found[0], found[1]
        leaves, spec = _tree.flatten(output)
        _refuse_complex("jacrev", leaves, "outputs")
        picked: Any = tuple(args[i] for i in chosen(argnums, len(args)))
        if isinstance(argnums, int):
            picked = picked[0]
        inputs, in_spec = _tree.flatten(picked)

        def rows(*vectors: Tensor) -> tuple[Tensor, ...]:
            return tuple(_tree.flatten(vjp_fn(_tree.unflatten(vectors, spec)))[0])

        blocks = vmap(rows, chunk_size=chunk_size)(*basis(leaves))
        jacobian = []
        start = 0
        for y in leaves:
            size = y.numel()
            parts = [
                b.narrow(0, start, size).reshape((*y.shape, *x.shape)) for b, x in zip(blocks, inputs, strict=True)
            ]
            jacobian.append(_tree.unflatten(parts, in_spec))
            start += size
        made = _tree.unflatten(jacobian, spec)
        return (made, found[2]) if has_aux else made

    return wrapped


def jacfwd(
    func: Callable[..., Any], argnums: Argnums = 0, has_aux: bool = False, *, randomness: str = "error"
) -> Callable[..., Any]:
    """The function that gives the Jacobian of `func` by its arguments `argnums`, column by column.

    Shaped as `jacrev`'s. Columns are products `J v` (see `jvp`); `randomness` is `vmap`'s, for random ops in `func`.
    """
    check_randomness(randomness)

    @functools.wraps(func)
    def wrapped(*args: Any) -> Any:
        _refuse_complex("jacfwd", _tree.flatten(args)[0], "inputs")
        at = chosen(argnums, len(args))
        picked: Any = tuple(args[i] for i in at)
        if isinstance(argnums, int):
            picked = picked[0]
        inputs, in_spec = _tree.flatten(picked)
        columns, spec, outputs, aux = _columns(func, args, argnums, at, picked, has_aux, randomness)
        _refuse_complex("jacfwd", outputs, "outputs")
        blocks = vmap(columns, out_dims=-1, randomness=randomness)(*basis(inputs))
        jacobian = []
        for y, block in zip(outputs, blocks, strict=True):
            parts, start = [], 0
            for x in inputs:
                parts.append(block.narrow(-1, start, x.numel()).reshape((*y.shape, *x.shape)))
                start += x.numel()
            jacobian.append(_tree.unflatten(parts, in_spec))
        made = _tree.unflatten(jacobian, spec)
        return (made, aux) if has_aux else made

    return wrapped


def _columns(
    func: Callable[..., Any],
    args: tuple[Any, ...],
    argnums: Argnums,
    at: tuple[int, ...],
    picked: Any,
    has_aux: bool,
    randomness: str,
) -> tuple[Callable[..., Any], _tree.Spec, list[Tensor], Any]:
    """What takes a tangent to a column; then how the outputs are nested, the outputs, and `aux`."""

    def of_picked(*xs: Any) -> Any:
        given = list(args)
        for i, x in zip(at, xs, strict=True):
            given[i] = x
        return func(*given)

    primals = picked if isinstance(argnums, tuple) else (picked,)
    # Random numbers are the same for all columns, or refused: one run of the function does.
    forbids = randomness == "error"
    if forbids:
        _C._forbid_random(True)
    try:
        linear = Linear(of_picked, primals, "jvp(f, primals, tangents)", has_aux)
    finally:
        if forbids:
            _C._forbid_random(False)
    if randomness != "different":
        return (lambda *tangents: tuple(linear.push(tangents))), linear.spec, linear.values, linear.aux

    def again(*tangents: Tensor) -> tuple[Tensor, ...]:
        vs = _tree.unflatten(tangents, linear.in_spec)
        return tuple(_tree.flatten(jvp(of_picked, primals, vs, has_aux=has_aux)[1])[0])

    return again, linear.spec, linear.values, linear.aux


def hessian(func: Callable[..., Any], argnums: Argnums = 0) -> Callable[..., Any]:
    """The function that gives the Hessian of `func` by its arguments `argnums`: `jacfwd(jacrev(func))`."""
    return jacfwd(jacrev(func, argnums), argnums)
