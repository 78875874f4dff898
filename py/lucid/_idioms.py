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
        pred: a bool, or a tensor of one bool.
        true_fn, false_fn: functions of the operands.
        operands: a tuple or list of tensors, or of containers of these.

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


def seed_everything(seed: int | None = None, workers: bool = False, verbose: bool = False) -> int:
    """Seeds Lucid's generators, Python's `random`, and NumPy's if NumPy is imported, and keeps the seed for processes.

    Args:
        seed: between 0 and 2^32 - 1; `None` takes `PL_GLOBAL_SEED` of the environment, or 0.
        workers: whether `PL_SEED_WORKERS` is set for Lightning's data loaders; Lucid's seed their workers either way.
        verbose: whether to print the seed.

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
