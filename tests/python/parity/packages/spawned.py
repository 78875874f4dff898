"""Functions that spawned processes run; in a module that imports no PyTorch."""

from __future__ import annotations

import os
import signal
import time
from typing import Any


def write(i: int, shared: Any, scale: int) -> None:
    shared[i] = (i + 1) * scale


def fail(i: int) -> None:
    if i == 1:
        raise ValueError("told by the process")
    time.sleep(60)


def leave(i: int) -> None:
    os._exit(7)


def killed(i: int) -> None:
    os.kill(os.getpid(), signal.SIGKILL)
