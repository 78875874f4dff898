"""What a worker knows of itself."""

from __future__ import annotations

import sys
import types

from lucid.utils.data import _worker
from lucid.utils.data._worker import WorkerInfo as WorkerInfo
from lucid.utils.data._worker import get_worker_info as get_worker_info


class _Worker(types.ModuleType):
    @property
    def _worker_info(self) -> WorkerInfo | None:
        """The worker of this thread; programs that play a worker set it."""
        return get_worker_info()

    @_worker_info.setter
    def _worker_info(self, info: WorkerInfo | None) -> None:
        _worker._local.info = info


sys.modules[__name__].__class__ = _Worker
