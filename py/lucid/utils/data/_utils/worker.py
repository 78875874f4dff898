"""What a worker knows of itself."""

from __future__ import annotations

from lucid.utils.data._worker import WorkerInfo as WorkerInfo
from lucid.utils.data._worker import get_worker_info as get_worker_info
