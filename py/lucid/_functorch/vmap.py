"""Parts of `vmap` that packages with samples of batches of their own take. `lucid.vmap` is not made of them, so that
what is set here in their place changes nothing."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from lucid import Tensor, errors
from lucid._functorch_names import _add_batch_dim as _add_batch_dim
from lucid._functorch_names import _remove_batch_dim as _remove_batch_dim
from lucid._functorch_names import is_batchedtensor as is_batchedtensor
from lucid.utils._pytree import _broadcast_to_and_flatten as _broadcast_to_and_flatten
from lucid.utils._pytree import tree_flatten as tree_flatten
from lucid.utils._pytree import tree_unflatten as tree_unflatten


def _get_name(func: Callable[..., Any]) -> str:
    """What errors call a function."""
    if hasattr(func, "__name__"):
        return str(func.__name__)
    if isinstance(func, functools.partial):
        return f"functools.partial({_get_name(func.func)}, ...)"
    return repr(func)


def _maybe_remove_batch_dim(name: str, batched_output: Any, vmap_level: int, batch_size: int, out_dim: Any) -> Any:
    """The batch of a result, with its dimension at `out_dim`; what is none of a batch as it is, for `None`."""
    if out_dim is None:
        if isinstance(batched_output, Tensor) and is_batchedtensor(batched_output):
            raise errors.ValueError(f"vmap({name}, ...): `{name}` can not return a BatchedTensor when out_dim is None")
        return batched_output
    if not isinstance(batched_output, Tensor):
        raise errors.ValueError(
            f"vmap({name}, ...): `{name}` must only return Tensors, got type {type(batched_output)}. "
            "Did you mean to set out_dims= to None for output?"
        )
    return _remove_batch_dim(batched_output, vmap_level, batch_size, out_dim)
