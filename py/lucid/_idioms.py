"""Functions of the top level that programs call around training: `cond`, `seed_everything`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import lucid
from lucid import _C, errors


def cond(
    pred: Any, true_fn: Callable[..., Any], false_fn: Callable[..., Any], operands: tuple[Any, ...] | list[Any] = ()
) -> Any:
    """Calls one of two functions, as a condition says.

        cond(p, f, g, x) = f(*x) if p else g(*x)

    Args:
        pred (bool or Tensor): the condition; of a tensor one element, bool.
        true_fn (callable): a function of the operands.
        false_fn (callable): a function of the operands.
        operands (tuple or list, optional): tensors, or containers of these. Default: none.

    Returns:
        What the chosen function returns; gradients go through that one. Under `vmap` over `pred` both are called, and
        each sample's result is chosen, as by `where`.

    Raises:
        RuntimeError: `pred` has several elements or another dtype than bool, an argument is no function, or `operands`
            is neither tuple nor list.

    Differences from PyTorch: the functions may give results of other shapes and dtypes than one another.

    Example:
        >>> lucid.cond(lucid.tensor(True), lambda x: x + 1, lambda x: x - 1, (lucid.ones(2),))
        tensor([2., 2.])
    """
    if not callable(true_fn) or not callable(false_fn):
        raise errors.RuntimeError("Expect both branches to be callable.")
    if not isinstance(operands, (tuple, list)):
        raise errors.RuntimeError(f"Expect operands to be a tuple or a list, but got {type(operands).__name__}.")
    if isinstance(pred, lucid.Tensor):
        if pred.numel() != 1 or pred.dtype is not lucid.bool:
            raise errors.RuntimeError(
                f"Expected pred to be bool or a tensor of one bool, but got shape {list(pred.shape)}, {pred.dtype}."
            )
        if _C._vmap_active() and _C._vmap_parts(pred) is not None:
            from lucid.utils import _pytree

            return _pytree.tree_map(
                lambda a, b: lucid.where(pred.reshape([1] * a.ndim), a, b), true_fn(*operands), false_fn(*operands)
            )
        pred = bool(pred.item())
    if not isinstance(pred, bool):
        raise errors.RuntimeError(f"Expected pred to be bool or tensor, but got {pred}.")
    return true_fn(*operands) if pred else false_fn(*operands)


def while_loop(
    cond_fn: Callable[..., Any], body_fn: Callable[..., Any], carried_inputs: tuple[Any, ...] | list[Any]
) -> tuple[Any, ...]:
    """Calls a function over and over, while a condition of its results holds.

        while cond_fn(*x): x = body_fn(*x)

    Args:
        cond_fn (callable): from the carried values to a bool, or to a tensor of one bool.
        body_fn (callable): from the carried values to as many new ones.
        carried_inputs (tuple or list): tensors, numbers, or containers of these.

    Returns:
        The values for which the condition no longer holds, a tuple. Gradients go through the steps that ran.

    Raises:
        RuntimeError: an argument is no function, `carried_inputs` is neither tuple nor list, the condition is no bool
            or tensor of one bool, or the body gives another number of values.

    Differences from PyTorch: the loop runs as Python's own does, and values may change their shapes and dtypes.

    Example:
        >>> lucid.while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, x * 2), (lucid.tensor(0), lucid.ones(1)))
        (tensor(3), tensor([8.]))
    """
    if not callable(cond_fn) or not callable(body_fn):
        raise errors.RuntimeError("Expect cond_fn and body_fn to be callable.")
    if not isinstance(carried_inputs, (tuple, list)):
        raise errors.RuntimeError(
            f"Expect carried_inputs to be a tuple or a list, but got {type(carried_inputs).__name__}."
        )
    carried = tuple(carried_inputs)
    while True:
        more = cond_fn(*carried)
        if isinstance(more, lucid.Tensor):
            if more.numel() != 1 or more.dtype is not lucid.bool:
                raise errors.RuntimeError(
                    f"cond_fn must return a boolean scalar tensor or a boolean but got shape {list(more.shape)}, "
                    f"{more.dtype}"
                )
            more = bool(more.item())
        if not isinstance(more, bool):
            raise errors.RuntimeError(f"cond_fn must return a boolean scalar tensor or a boolean but got {more!r}")
        if not more:
            return carried
        found = body_fn(*carried)
        found = tuple(found) if isinstance(found, (tuple, list)) else (found,)
        if len(found) != len(carried):
            raise errors.RuntimeError(
                f"body_fn should return as many values as it takes: it takes {len(carried)}, and gave {len(found)}"
            )
        carried = found


def seed_everything(seed: int | None = None, workers: bool = False, verbose: bool = False) -> int:
    """Seeds Lucid's generators, Python's `random`, and NumPy's if NumPy is imported, and keeps the seed for processes.

    Args:
        seed (int, optional): between 0 and 2^32 - 1. Default: `PL_GLOBAL_SEED` of the environment, or 0.
        workers (bool, optional): whether `PL_SEED_WORKERS` is set for Lightning's data loaders; Lucid's seed their
            workers either way. Default: False.
        verbose (bool, optional): whether to print it. Default: False.

    Returns:
        The seed.

    Raises:
        ValueError: it is out of range.

    Example:
        >>> lucid.seed_everything(42)
        42
        >>> a = lucid.rand(2)
        >>> _ = lucid.seed_everything(42)
        >>> lucid.equal(a, lucid.rand(2))
        True
    """
    import os
    import random
    import sys

    if seed is None:
        seed = int(os.environ.get("PL_GLOBAL_SEED", "0"))
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 1 << 32:
        raise errors.ValueError(f"seed_everything(): expected a seed between 0 and 2^32 - 1, got {seed!r}")
    if verbose:
        print(f"Seed set to {seed}")
    os.environ["PL_GLOBAL_SEED"], os.environ["PL_SEED_WORKERS"] = str(seed), str(int(workers))
    random.seed(seed)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(seed)
    lucid.manual_seed(seed)
    return seed
