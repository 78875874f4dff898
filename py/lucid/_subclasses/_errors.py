"""What calls on fake tensors raise, by PyTorch's names."""

from __future__ import annotations

from typing import Any

from lucid import errors


class _OfAnOp(errors.RuntimeError):
    """An error that names an op."""

    def __init__(self, func: Any) -> None:
        super().__init__(str(func))
        self.func = func


class DataDependentOutputException(_OfAnOp):
    """A call whose result is elements of a tensor, which a fake tensor does not have."""


class DynamicOutputShapeException(_OfAnOp):
    """A call whose result has a shape that depends on elements."""


class UnsupportedOperatorException(_OfAnOp):
    """A call that does not compute on tensors without memory."""


class _OfAReason(errors.RuntimeError):
    """An error that says why."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class UnsupportedFakeTensorException(_OfAReason):
    """A tensor of which no fake one can be made."""


class MetadataMismatchError(_OfAReason):
    """Two tensors that should have the same shape, dtype and device."""


class FakeTensorDeviceMismatchError(errors.RuntimeError):
    """Operands on two devices."""
