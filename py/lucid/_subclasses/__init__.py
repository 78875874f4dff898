"""Tensors without memory that say the device they were asked for, as `torch._subclasses`: see `fake_tensor`."""

from __future__ import annotations

from lucid._subclasses import functional_tensor as functional_tensor
from lucid._subclasses import meta_utils as meta_utils
from lucid._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
    UnsupportedFakeTensorException,
)

__all__ = [
    "DataDependentOutputException",
    "DynamicOutputShapeException",
    "FakeTensor",
    "FakeTensorMode",
    "UnsupportedFakeTensorException",
]
