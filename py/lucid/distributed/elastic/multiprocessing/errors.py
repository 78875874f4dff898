"""`record`: leaves a function's error where the launcher finds it."""

from __future__ import annotations

import functools
import json
import os
import time
import traceback
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from lucid._warnings import warn_without_effect

P = ParamSpec("P")
R = TypeVar("R")


class ChildFailedError(RuntimeError):
    """A process that the launcher started has failed."""


def write_error(e: BaseException) -> None:
    """Leaves an error in the file that the launcher names; the first one stays."""
    path = os.environ.get("TORCHELASTIC_ERROR_FILE")
    if not path or os.path.exists(path):
        return
    told = {
        "time": time.time(),
        "kind": type(e).__name__,
        "message": str(e),
        "traceback": "".join(traceback.format_exception(e)),
    }
    with open(f"{path}.part", "w") as file:
        json.dump(told, file)
    os.replace(f"{path}.part", path)


def record(fn: Callable[P, R], error_handler: object = None) -> Callable[P, R]:
    """The function, whose error is left for the launcher to tell."""
    warn_without_effect(
        "record", "errors are written as the launcher reads them", error_handler=error_handler is not None
    )

    @functools.wraps(fn)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return fn(*args, **kwargs)
        except Exception as e:
            write_error(e)
            raise

    return run
