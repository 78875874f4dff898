"""PyTorch's file of how tensors are sent between processes: as handles on shared memory."""

from __future__ import annotations

from typing import Any

from lucid import Tensor
from lucid.multiprocessing import _reduce
from lucid.multiprocessing import init_reductions as init_reductions


def reduce_tensor(tensor: Tensor) -> Any:
    """What is sent of a tensor: a function, and its arguments, which make it in the other process."""
    return _reduce(tensor)
