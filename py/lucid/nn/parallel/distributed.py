"""`DistributedDataParallel` by the file that PyTorch has it in."""

from __future__ import annotations

from lucid.nn.parallel import DistributedDataParallel

__all__ = ["DistributedDataParallel"]
