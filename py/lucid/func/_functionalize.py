"""`functionalize`: a function seen as one without in-place writes."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

_KINDS = ("mutations", "mutations_and_views")


def functionalize(func: Callable[..., Any], *, remove: str = "mutations") -> Callable[..., Any]:
    """The same function, with the same results and gradients, and the same writes to its arguments.

    In PyTorch it is for what sees the ops one by one, a tracer or another transform, which then meets no in-place write
    and, with `remove="mutations_and_views"`, no view. Here the tape, `vmap` and the GPU's graph take writes and views
    apart themselves, whether they come through this or not, so nothing is left to be rewritten: what it does is to
    check `remove`.

    Args:
        func (Callable[..., Any]): a function of tensors.
        remove (str, default: "mutations"): "mutations" or "mutations_and_views".

    Returns:
        callable: the function.

    Raises:
        RuntimeError: another `remove`.

    Example:
        >>> lucid.func.functionalize(lambda x: x.clone().add_(1))(lucid.ones(1))
        tensor([2.])
    """
    if remove not in _KINDS:
        raise RuntimeError(
            f"functionalize(f, remove='mutations'): received invalid argument for remove={remove}. Valid options are "
            "remove='mutations', for programs without in-place ops, and remove='mutations_and_views', for programs "
            "without views, too."
        )

    @functools.wraps(func)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        return func(*args, **kwargs)

    return wrapped
