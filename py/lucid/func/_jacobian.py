"""Jacobians and Hessians: products with every vector of the standard basis, batched by `vmap`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from lucid import _C
from lucid._C import Tensor
from lucid.func._grad import Argnums, Pushed, chosen, vjp_by
from lucid.func._vmap import check_randomness, level_of, vmap
from lucid.utils import _pytree


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

    Args:
        func (Callable[..., Any]): a function of tensors.
        argnums (int or tuple of ints, default: 0): which arguments are differentiated with respect to.
        has_aux (bool, default: False): `func` returns a pair of the output and other results.
        chunk_size (int, optional): how many rows are computed at once; all by default.

    Returns:
        callable: returns the blocks.

    Raises:
        ValueError: `chunk_size` is not positive.

    Example:
        >>> lucid.func.jacrev(lambda x: x**2)(lucid.tensor([1.0, 2.0]))
        tensor([[2., 0.],
                [0., 4.]])
    """
    if chunk_size is not None and chunk_size <= 0:
        raise ValueError("jacrev: `chunk_size` should be greater than 0.")

    @functools.wraps(func)
    def wrapped(*args: Any) -> Any:
        _refuse_complex("jacrev", _pytree.tree_leaves(args), "inputs")
        found = vjp_by(func, args, argnums, has_aux)
        output, vjp_fn = found[0], found[1]
        leaves, spec = _pytree.tree_flatten(output)
        _refuse_complex("jacrev", leaves, "outputs")
        picked: Any = tuple(args[i] for i in chosen(argnums, len(args)))
        if isinstance(argnums, int):
            picked = picked[0]
        inputs, in_spec = _pytree.tree_flatten(picked)

        def rows(*vectors: Tensor) -> tuple[Tensor, ...]:
            return tuple(_pytree.tree_leaves(vjp_fn(_pytree.tree_unflatten(vectors, spec))))

        blocks = vmap(rows, chunk_size=chunk_size)(*basis(leaves))
        # Of each input the rows of all outputs, cut into those of each: views of several, as PyTorch's are.
        cut = [b.split([y.numel() for y in leaves]) for b in blocks]
        jacobian = []
        for i, y in enumerate(leaves):
            parts = [own[i].reshape((*y.shape, *x.shape)) for own, x in zip(cut, inputs, strict=True)]
            jacobian.append(_pytree.tree_unflatten(parts, in_spec))
        made = _pytree.tree_unflatten(jacobian, spec)
        return (made, found[2]) if has_aux else made

    return wrapped


def jacfwd(
    func: Callable[..., Any], argnums: Argnums = 0, has_aux: bool = False, *, randomness: str = "error"
) -> Callable[..., Any]:
    """The function that gives the Jacobian of `func` by its arguments `argnums`, column by column.

    Shaped as `jacrev`'s. Columns are products `J v` (see `jvp`); `randomness` is `vmap`'s, for random ops in `func`.

    Args:
        func (Callable[..., Any]): a function of tensors.
        argnums (int or tuple of ints, default: 0): which arguments are differentiated with respect to.
        has_aux (bool, default: False): `func` returns a pair of the output and other results.
        randomness (str, default: "error"): "error", "same" or "different": what random ops in `func` do.

    Returns:
        callable: returns the blocks.

    Example:
        >>> lucid.func.jacfwd(lambda x: x**2)(lucid.tensor([1.0, 2.0]))
        tensor([[2., 0.],
                [0., 4.]])
    """
    check_randomness(randomness)

    @functools.wraps(func)
    def wrapped(*args: Any) -> Any:
        _refuse_complex("jacfwd", _pytree.tree_leaves(args), "inputs")
        at = chosen(argnums, len(args))
        inputs, in_spec = _pytree.tree_flatten(tuple(args[i] for i in at))
        vectors = basis(inputs)

        def of_picked(*xs: Any) -> Any:
            given = list(args)
            for i, x in zip(at, xs, strict=True):
                given[i] = x
            return func(*given)

        # The function is run once, on inputs that carry all vectors as tangents.
        size = sum(x.numel() for x in inputs)
        with level_of(size, randomness, randomness != "different") as level:
            tangents = [_C._vmap_hide(v, 0, level) for v in vectors]
            call = Pushed(of_picked, tuple(args[i] for i in at), tangents, "jvp(f, primals, tangents)", False, has_aux)
            blocks = [_C._vmap_show(v, -1, level) for v in call.tangents]
            # What depends on no random number is the same for all vectors.
            aux = _pytree.tree_map(lambda x: _shown(x, level) if isinstance(x, Tensor) else x, call.aux)
        _refuse_complex("jacfwd", blocks, "outputs")
        own = in_spec if isinstance(argnums, tuple) else _pytree.tree_structure(args[at[0]])
        jacobian = []
        for block in blocks:
            columns = block.split([x.numel() for x in inputs], -1)
            parts = [c.reshape((*block.shape[:-1], *x.shape)) for c, x in zip(columns, inputs, strict=True)]
            jacobian.append(_pytree.tree_unflatten(parts, own))
        made = _pytree.tree_unflatten(jacobian, call.spec)
        return (made, aux) if has_aux else made

    return wrapped


def _shown(x: Tensor, level: int) -> Tensor:
    """`aux` outside of the level: that of the first vector where it is batched."""
    parts = _C._vmap_parts(x)
    return x if parts is None or parts[1] != level else _C._vmap_show(x, 0, level)[0]


def hessian(func: Callable[..., Any], argnums: Argnums = 0) -> Callable[..., Any]:
    """The function that gives the Hessian of `func` by its arguments `argnums`: `jacfwd(jacrev(func))`.

    Args:
        func (Callable[..., Any]): a function that returns a 0-d tensor.
        argnums (int or tuple of ints, default: 0): which arguments are differentiated with respect to.

    Returns:
        callable: returns the blocks.

    Example:
        >>> lucid.func.hessian(lambda x: (x**3).sum())(lucid.tensor([1.0, 2.0]))
        tensor([[ 6.,  0.],
                [ 0., 12.]])
    """
    return jacfwd(jacrev(func, argnums), argnums)
