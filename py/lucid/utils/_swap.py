"""Two tensors that exchange what they are, as `torch.utils.swap_tensors`."""

from __future__ import annotations

import copyreg
from typing import Any

from lucid import errors
from lucid._C import Tensor


def swap_tensors(t1: Tensor, t2: Tensor) -> None:
    """Exchanges the contents of two leaf tensors: elements, dtype, device, gradient, class and attributes. Each object
    keeps its identity, so that who holds one then holds what the other was.

    Args:
        t1 (Tensor): a leaf of any shape.
        t2 (Tensor): another, of any shape.

    Raises:
        RuntimeError: for tensors with a history, or with different slots. PyTorch refuses weak references, too; here
            they go on leading to the same object.
        TypeError: for what is no tensor.

    Example:
        >>> a, b = lucid.tensor([1.0, 2.0]), lucid.tensor([3])
        >>> lucid.utils.swap_tensors(a, b)
        >>> a, b
        (tensor([3]), tensor([1., 2.]))
    """
    names = ("t1", "t2")
    for name, t in zip(names, (t1, t2), strict=True):
        if not isinstance(t, Tensor):
            raise errors.TypeError(f"swap_tensors expects tensors, got {type(t).__name__}")
        if not t.is_leaf:
            raise errors.RuntimeError(f"swap_tensors: {name} has a history; detach it first")
    # PyTorch asks this private function too.
    slots: list[set[str]] = [set(copyreg._slotnames(type(t))) for t in (t1, t2)]  # type: ignore[attr-defined]
    if slots[0] != slots[1]:
        raise errors.RuntimeError("Cannot swap t1 and t2 if they have different slots")
    was = [(t.detach(), t.grad, t.requires_grad) for t in (t1, t2)]
    for t, (data, grad, wanted) in ((t1, was[1]), (t2, was[0])):
        t.grad = None
        t.requires_grad_(False)
        t.data = data
        t.requires_grad_(wanted)
        t.grad = grad
    if type(t1) is not type(t2):
        _exchange(t1, t2, "__class__")
    if hasattr(t1, "__dict__") and hasattr(t2, "__dict__"):
        _exchange(t1, t2, "__dict__")
    for slot in slots[0]:
        _exchange(t1, t2, slot)


def _exchange(t1: Any, t2: Any, name: str) -> None:
    absent = object()
    first, second = getattr(t1, name, absent), getattr(t2, name, absent)
    for t, value in ((t1, second), (t2, first)):
        if value is not absent:
            setattr(t, name, value)
        elif hasattr(t, name):
            delattr(t, name)
