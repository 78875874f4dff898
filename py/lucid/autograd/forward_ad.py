"""Forward mode: tensors that carry a tangent along, and with it products of Jacobians with vectors.

    with fwAD.dual_level():
        dual = fwAD.make_dual(primal, tangent)
        value, product = fwAD.unpack_dual(f(dual))

Ops, in-place writes and views carry tangents on, also without recording; inference mode does not, and a custom function
needs a `jvp`. The cost is a small multiple of the function's own, whatever the number of inputs, and nothing is kept.
There is one such level at a time in the process, as in PyTorch; those of `lucid.func.jvp` nest. Tangents can be
differentiated in reverse, and gradients computed from dual tensors carry tangents themselves, so that Hessian-vector
products come from either order.
"""

from __future__ import annotations

from types import TracebackType
from typing import Any, NamedTuple

from lucid import _C
from lucid._C import Tensor
from lucid._grad_mode import F, _Mode

__all__ = [
    "UnpackedDualTensor",
    "dual_level",
    "enter_dual_level",
    "exit_dual_level",
    "make_dual",
    "set_fwd_grad_enabled",
    "unpack_dual",
]

_current_level = -1
"""The open level, 0, or -1."""


def enter_dual_level() -> int:
    """Opens the level at which tensors can have tangents, and gives its number, 0. One at a time, or `RuntimeError`."""
    global _current_level
    _C._enter_dual_level()
    _current_level = 0
    return 0


def exit_dual_level(*, level: int | None = None) -> None:
    """Closes the level; the tangents that were made at it are gone. `level` may be the last opened only.

    Args:
        level (int, optional): the level, which must be the last opened; that one by default.

    Raises:
        RuntimeError: no level is open, or another one than the last is named.

    Example:
        >>> from lucid.autograd import forward_ad
        >>> level = forward_ad.enter_dual_level()
        >>> forward_ad.exit_dual_level()
    """
    global _current_level
    if (_current_level if level is None else level) < 0:
        raise RuntimeError("Dual level must be a positive number.")
    if level is not None and level != _current_level:
        raise RuntimeError(
            "Trying to exit a forward AD level that was not the last one that was created. This is not supported."
        )
    _C._exit_dual_level()
    _current_level = -1


class dual_level:
    """A block, or a function's body, in which tensors can have tangents. Gives the level's number."""

    def __enter__(self) -> int:
        return enter_dual_level()

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        exit_dual_level()

    __call__ = _Mode.__call__

    def _fresh(self) -> dual_level:
        return dual_level()

    clone = _fresh


def make_dual(tensor: Tensor, tangent: Tensor, *, level: int | None = None) -> Tensor:
    """A view of `tensor` that carries `tangent`, of the same shape.

    Where the tangent has the tensor's strides, it is the tangent itself, so that in-place ops on the dual
    tensor write to it; else a copy. Both must be of a floating-point or complex dtype (`ValueError`).

    Args:
        tensor (Tensor): the primal, of any shape, floating or complex.
        tangent (Tensor): the tangent, of the shape and dtype of `tensor`.
        level (int, optional): the dual level; the current one by default.

    Returns:
        Tensor: the dual tensor.

    Raises:
        ValueError: a dtype that is neither floating nor complex.

    Example:
        >>> from lucid.autograd import forward_ad
        >>> with forward_ad.dual_level():
        ...     x = forward_ad.make_dual(lucid.tensor([3.0]), lucid.ones(1))
        ...     print(forward_ad.unpack_dual(x * x).tangent)
        tensor([6.])
    """
    for x, what in ((tensor, "primal"), (tangent, "tangent")):
        if not isinstance(x, Tensor):
            raise TypeError(f"make_dual(): expected {what} to be a Tensor, got {type(x).__name__}")
    if (_current_level if level is None else level) < 0:
        raise RuntimeError(
            "Trying to create a dual Tensor for forward AD but no level exists, make sure to enter_dual_level() first."
        )
    if level is not None and level != _current_level:
        raise RuntimeError("Invalid level given to _make_dual")
    return dual_of(tensor, tangent)


def dual_of(tensor: Tensor, tangent: Tensor) -> Tensor:
    """`make_dual` at the innermost level of the thread, whoever opened it."""
    for x, what in ((tensor, "primal"), (tangent, "tangent")):
        if not (x.is_floating_point() or x.is_complex()):
            raise ValueError(f"Expected {what} to be floating point or complex, but got: {x.dtype}")
    dual: Tensor = _C._make_dual(tensor, tangent)
    return dual


class UnpackedDualTensor(NamedTuple):
    """What `unpack_dual` gives: the tensor without its tangent, and the tangent or `None`.

    Args:
        primal (ForwardRef('Tensor')): the tensor without its tangent, of any shape.
        tangent (ForwardRef('Tensor or None')): the tangent, of the same shape; None where there is none.

    Example:
        >>> lucid.autograd.forward_ad.UnpackedDualTensor(lucid.ones(1), None).tangent
    """

    primal: Tensor
    tangent: Tensor | None


def unpack_dual(tensor: Tensor, *, level: int | None = None) -> UnpackedDualTensor:
    """A view of the tensor without its tangent, and the tangent, or `None` where it has none.

    Args:
        tensor (Tensor): any tensor, of any shape.
        level (int, optional): the dual level; the current one by default.

    Returns:
        UnpackedDualTensor: primal and tangent.

    Example:
        >>> from lucid.autograd import forward_ad
        >>> with forward_ad.dual_level():
        ...     print(forward_ad.unpack_dual(lucid.ones(1)).tangent)
        None
    """
    if (_current_level if level is None else level) < 0:
        return UnpackedDualTensor(tensor, None)
    return UnpackedDualTensor(*_C._unpack_dual(tensor))


class set_fwd_grad_enabled(_Mode):
    """Says whether this thread's ops carry tangents on: from now on, in a block, or in a function's body.

    Args:
        mode (bool): carries tangents on.

    Example:
        >>> with lucid.autograd.forward_ad.set_fwd_grad_enabled(False):
        ...     pass
    """

    def __init__(self, mode: bool) -> None:
        self._mode = mode
        self._former: list[Any] = [_C._set_fwd_grad_enabled(mode)]
        self._entered = False

    def _fresh(self) -> set_fwd_grad_enabled:
        return set_fwd_grad_enabled(self._mode)

    def __enter__(self) -> None:
        # The first block puts back what the constructor found.
        if self._entered:
            self._former.append(_C._set_fwd_grad_enabled(self._mode))
        self._entered = True

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        _C._set_fwd_grad_enabled(self._former.pop())

    def __call__(self, function: F) -> F:
        # As a decorator it must not change the mode where it stands.
        _C._set_fwd_grad_enabled(self._former.pop())
        return super().__call__(function)


_set_fwd_grad_enabled = set_fwd_grad_enabled
_is_fwd_grad_enabled = _C._is_fwd_grad_enabled
