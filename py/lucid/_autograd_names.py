"""`torch._C._autograd`: types that programs name in annotations."""

from __future__ import annotations

from typing import Any

from lucid import errors
from lucid.profiler import ProfilerActivity as ProfilerActivity


class _KinetoEvent:
    """An event of PyTorch's tracer: making one raises an error.

    Raises:
        NotImplementedError: always.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise errors.NotImplementedError("_C._autograd._KinetoEvent: lucid.profiler has events of its own, OpEvent")
