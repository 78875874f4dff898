"""What a worker knows of itself."""

from __future__ import annotations

import sys
import types

import numpy as np

from lucid.utils.data import _worker
from lucid.utils.data._worker import WorkerInfo as WorkerInfo
from lucid.utils.data._worker import get_worker_info as get_worker_info


def _generate_state(base_seed: int, worker_id: int) -> list[int]:
    """Four numbers of 32 bits to seed a worker's other generators with: those of NumPy's `SeedSequence`."""
    words = [worker_id, base_seed & 0xFFFFFFFF, base_seed >> 32, 0]
    return [int(n) for n in np.random.SeedSequence(words).generate_state(4)]


class _Worker(types.ModuleType):
    @property
    def _worker_info(self) -> WorkerInfo | None:
        """The worker of this thread; programs that play a worker set it."""
        return get_worker_info()

    @_worker_info.setter
    def _worker_info(self, info: WorkerInfo | None) -> None:
        _worker._local.info = info


sys.modules[__name__].__class__ = _Worker
