"""Older names for sparse tensors of the GPU: those of `lucid.sparse`, which are where their values are."""

from __future__ import annotations

from lucid._sparse_types import BFloat16Tensor as BFloat16Tensor
from lucid._sparse_types import ByteTensor as ByteTensor
from lucid._sparse_types import CharTensor as CharTensor
from lucid._sparse_types import DoubleTensor as DoubleTensor
from lucid._sparse_types import FloatTensor as FloatTensor
from lucid._sparse_types import HalfTensor as HalfTensor
from lucid._sparse_types import IntTensor as IntTensor
from lucid._sparse_types import LongTensor as LongTensor
from lucid._sparse_types import ShortTensor as ShortTensor
