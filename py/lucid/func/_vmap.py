"""`vmap`: a function of samples as a function of batches."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from lucid import _C, errors
from lucid._C import Tensor
from lucid._warnings import warn
from lucid.utils import _pytree

RANDOMNESS = ("error", "different", "same")


def name_of(func: Callable[..., Any]) -> str:
    """What messages call a function."""
    if hasattr(func, "__name__"):
        return str(func.__name__)
    if isinstance(func, functools.partial):
        return f"functools.partial({name_of(func.func)}, ...)"
    return repr(func)


def check_randomness(randomness: str) -> None:
    """Refuses other words than the three."""
    if randomness not in RANDOMNESS:
        raise RuntimeError(f"Only allowed values for randomness are 'error', 'different', or 'same'. Got {randomness}")


def vmap(
    func: Callable[..., Any],
    in_dims: Any = 0,
    out_dims: Any = 0,
    randomness: str = "error",
    *,
    chunk_size: int | None = None,
    strategy: str = "vectorize",
) -> Callable[..., Any]:
    """The function that runs `func` on every sample of its arguments at once.

    `in_dims` says which dimension of each argument counts the samples: one number, or one per argument, nested as the
    arguments are; `None` for what all samples share. `out_dims` says where that dimension goes in the results. Inside
    of `func` tensors show the shape of one sample. With `chunk_size` so many samples run at a time.

    Random ops raise by default; with `randomness="different"` each sample draws its own numbers, with `"same"` all
    share them. What depends on values inside of `func` (`item`, `if`, `nonzero`) raises. Gradients pass through.

    With `strategy="loop"` (not in PyTorch) `func` runs once per sample, on tensors as they are, and the results are
    stacked: slower, and good for code that `"vectorize"`, the default, refuses.

    ```
    lucid.vmap(lucid.dot)(x, y)                  # rows of (N, D) with rows of (N, D): (N,)
    lucid.vmap(lucid.func.grad(loss), in_dims=(None, 0, 0))(params, x, y)    # gradients per sample
    ```

    Args:
        func (Callable[..., Any]): a function of tensors.
        in_dims (int, None or nest of these, default: 0): which dimension of each argument counts the samples; None
            for what all share.
        out_dims (int or nest of ints, default: 0): where that dimension is in each result.
        randomness (str, default: "error"): "error", "same" or "different": what random ops in `func` do.
        chunk_size (int, optional): how many samples run at once; all by default.
        strategy (str, default: "vectorize"): "vectorize" runs all samples in one call, "loop" one call for each.

    Returns:
        callable: the function of batches.

    Raises:
        ValueError: `in_dims` do not fit the arguments, or the batch sizes differ.

    Example:
        >>> dot = lucid.vmap(lambda x, y: x @ y)
        >>> dot(lucid.tensor([[1.0, 2.0], [3.0, 4.0]]), lucid.ones(2, 2))
        tensor([3., 7.])
    """
    check_randomness(randomness)
    if chunk_size is not None and chunk_size <= 0:
        raise ValueError(f"vmap: chunk_size should be None or greater than 0. (got {chunk_size})")
    if strategy not in ("vectorize", "loop"):
        raise ValueError(f"vmap: strategy should be 'vectorize' or 'loop', got {strategy!r}")

    @functools.wraps(func)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        _check_out_dims(out_dims, func)
        size, dims, leaves, spec = _inputs(func, in_dims, args)
        if strategy == "loop" and size:
            return _loop(func, size, dims, leaves, spec, out_dims, randomness, kwargs)
        call = functools.partial(_run, func, dims, spec, out_dims, randomness, kwargs)
        if chunk_size is None or size == 0:
            outs, found, out_spec = call(size, leaves)
            return _pytree.tree_unflatten(outs, out_spec)
        state = _C.get_rng_state() if randomness == "same" else None
        parts = []
        for start in range(0, size, chunk_size):
            length = min(chunk_size, size - start)
            if state is not None:
                # All samples are to have the same numbers, those of other chunks too.
                _C.set_rng_state(state)
            chunk = [x if d is None else x.narrow(d, start, length) for x, d in zip(leaves, dims, strict=True)]
            outs, found, out_spec = call(length, chunk)
            parts.append(outs)
        joined = [
            pieces[0] if dim is None else _C.cat(list(pieces), dim)
            for dim, pieces in zip(found, zip(*parts, strict=True), strict=True)
        ]
        return _pytree.tree_unflatten(joined, out_spec)

    return wrapped


def _run(
    func: Callable[..., Any],
    dims: list[int | None],
    spec: _pytree.TreeSpec,
    out_dims: Any,
    randomness: str,
    kwargs: dict[str, Any],
    size: int,
    leaves: list[Any],
) -> tuple[list[Any], list[Any], _pytree.TreeSpec]:
    """The results' leaves, where each has its samples' dimension, and how they are nested."""
    with level_of(size, randomness) as level:
        hidden = [x if d is None else _C._vmap_hide(x, d, level) for x, d in zip(leaves, dims, strict=True)]
        result = func(*_pytree.tree_unflatten(hidden, spec), **kwargs)
        outs, out_spec = _pytree.tree_flatten(result)
        found = _outputs(func, out_dims, result, out_spec)
        shown = [_shown(func, out, dim, level) for out, dim in zip(outs, found, strict=True)]
        return shown, found, out_spec


def _loop(
    func: Callable[..., Any],
    size: int,
    dims: list[int | None],
    leaves: list[Any],
    spec: _pytree.TreeSpec,
    out_dims: Any,
    randomness: str,
    kwargs: dict[str, Any],
) -> Any:
    """The results of one call per sample, stacked."""
    state = _C.get_rng_state()
    calls = []
    for i in range(size):
        if randomness == "same":
            _C.set_rng_state(state)
        sample = [x if d is None else x.select(d, i) for x, d in zip(leaves, dims, strict=True)]
        result = func(*_pytree.tree_unflatten(sample, spec), **kwargs)
        outs, out_spec = _pytree.tree_flatten(result)
        found = _outputs(func, out_dims, result, out_spec)
        calls.append(outs)
        if randomness == "error" and not _C.get_rng_state().equal(state):
            raise RuntimeError(
                "vmap: called random operation while in randomness error mode. Please either use the 'same' or "
                "'different' randomness flags on vmap or perform the randomness operation out of vmap"
            )
    joined = []
    for dim, pieces in zip(found, zip(*calls, strict=True), strict=True):
        if dim is None:
            joined.append(pieces[-1])
            continue
        if not all(isinstance(piece, Tensor) for piece in pieces):
            name = name_of(func)
            raise ValueError(f"vmap({name}, ...): `{name}` must only return Tensors, got type {type(pieces[0])}.")
        joined.append(_C.stack(list(pieces), dim))
    return _pytree.tree_unflatten(joined, out_spec)


@contextmanager
def level_of(size: int, randomness: str, alike: bool = False) -> Iterator[int]:
    """A block in which a level runs, by its id. `alike`: samples differ in their tangents alone."""
    level = _C._vmap_enter(size, randomness, alike)
    try:
        yield level
    finally:
        _C._vmap_exit(level)
        for op in _C._vmap_fallbacks():
            warn(f"vmap: there is no batching rule for {op} yet: it runs sample by sample, which is slow")


def _is_int(x: Any) -> bool:
    return isinstance(x, int) and not isinstance(x, bool)


def _inputs(
    func: Callable[..., Any], in_dims: Any, args: tuple[Any, ...]
) -> tuple[int, list[int | None], list[Any], _pytree.TreeSpec]:
    name = name_of(func)
    if not isinstance(in_dims, (int, tuple)):
        raise ValueError(
            f"vmap({name}, in_dims={in_dims}, ...)(<inputs>): expected `in_dims` to be int or a (potentially nested) "
            f"tuple matching the structure of inputs, got: {type(in_dims)}."
        )
    if not args:
        raise ValueError(
            f"vmap({name})(<inputs>): got no inputs. Maybe you forgot to add inputs, or you are trying to vmap over a "
            f"function with no inputs. The latter is unsupported."
        )
    leaves, spec = _pytree.tree_flatten(args)
    given = _pytree._broadcast_to_and_flatten(in_dims, spec)
    if given is None:
        raise ValueError(
            f"vmap({name}, in_dims={in_dims}, ...)(<inputs>): in_dims is not compatible with the structure of "
            f"`inputs`. "
            f"in_dims has structure {_pytree.tree_structure(in_dims)} but inputs has structure {spec}."
        )
    dims: list[int | None] = []
    sizes = []
    for x, dim in zip(leaves, given, strict=True):
        where = f"vmap({name}, in_dims={in_dims}, ...)(<inputs>): Got in_dim={dim} for"
        if dim is None:
            dims.append(None)
            continue
        if not _is_int(dim):
            raise ValueError(f"{where} an input but in_dim must be either an integer dimension or None.")
        if not isinstance(x, Tensor):
            raise ValueError(
                f"{where} an input but the input is of type {type(x)}. We cannot vmap over non-Tensor arguments, "
                f"please use None as the respective in_dim"
            )
        if getattr(type(x), "_of_parts", False):
            raise errors.NotImplementedError(f"vmap: {type(x).__name__} has no rule for it; pass its parts")
        if not -x.ndim <= dim < x.ndim:
            raise ValueError(
                f"{where} some input, but that input is a Tensor of dimensionality {x.ndim} so expected in_dim to "
                f"satisfy -{x.ndim} <= in_dim < {x.ndim}."
            )
        dims.append(dim % x.ndim)
        sizes.append(x.shape[dim])
    if not sizes:
        raise ValueError("vmap: Expected at least one Tensor to vmap over")
    if any(size != sizes[0] for size in sizes):
        raise ValueError(
            f"vmap: Expected all tensors to have the same size in the mapped dimension, got sizes {sizes} for the "
            f"mapped dimension"
        )
    return sizes[0], dims, leaves, spec


def _check_out_dims(out_dims: Any, func: Callable[..., Any]) -> None:
    for dim in _pytree.tree_leaves(out_dims):
        if dim is not None and not _is_int(dim):
            raise ValueError(
                f"vmap({name_of(func)}, ..., out_dims={out_dims}): `out_dims` must be an int, None or a python "
                f"collection of ints representing where in the outputs the vmapped dimension should appear."
            )


def _outputs(func: Callable[..., Any], out_dims: Any, result: Any, spec: _pytree.TreeSpec) -> list[Any]:
    def fail() -> NoReturn:
        raise ValueError(
            f"vmap({name_of(func)}, ..., out_dims={out_dims})(<inputs>): out_dims is not compatible with the structure "
            f"of `outputs`. out_dims has structure {_pytree.tree_structure(out_dims)} but outputs has structure {spec}."
        )

    if isinstance(result, Tensor):
        if isinstance(out_dims, tuple) and len(out_dims) == 1:
            return list(out_dims)
        if out_dims is not None and not _is_int(out_dims):
            fail()
        return [out_dims]
    found = _pytree._broadcast_to_and_flatten(out_dims, spec)
    if found is None:
        fail()
    return found


def _shown(func: Callable[..., Any], out: Any, dim: int | None, level: int) -> Any:
    name = name_of(func)
    if dim is None:
        if isinstance(out, Tensor) and _is_batched_at(out, level):
            raise ValueError(f"vmap({name}, ...): `{name}` can not return a BatchedTensor when out_dim is None")
        return out
    if not isinstance(out, Tensor):
        raise ValueError(
            f"vmap({name}, ...): `{name}` must only return Tensors, got type {type(out)}. Did you mean to set "
            f"out_dims= "
            f"to None for output?"
        )
    return _C._vmap_show(out, dim, level)


def _is_batched_at(t: Tensor, level: int) -> bool:
    parts = _C._vmap_parts(t)
    return parts is not None and (parts[1] == level or _is_batched_at(parts[2], level))


def debug_unwrap(tensor: Tensor, *, recurse: bool = True) -> Tensor:
    """What a tensor inside of `vmap` is made of: all samples at once, in front. For debuggers, not for computing with.

    At all levels unless `recurse` is off; any other tensor is given back.

    Args:
        tensor (Tensor): a tensor inside of `vmap`, of any shape.
        recurse (bool, default: True): unwraps all levels.

    Returns:
        Tensor: the batch.

    Example:
        >>> lucid.func.debug_unwrap(lucid.ones(1))
        tensor([1.])
    """
    while (parts := _C._vmap_parts(tensor)) is not None:
        tensor = parts[2]
        if not recurse:
            break
    return tensor
