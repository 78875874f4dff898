"""Values that a thread computes, as `torch.futures`."""

from __future__ import annotations

from lucid.jit._future import Future as Future
from lucid.jit._future import collect_all as collect_all
from lucid.jit._future import wait_all as wait_all

__all__ = ["Future", "collect_all", "wait_all"]
