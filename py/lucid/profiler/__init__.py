"""Profiling: when each op ran, what it cost and what it allocated; ranges that a program names; tables and traces.

    with lucid.profiler.profile(profile_memory=True, record_shapes=True) as p:
        with lucid.profiler.record_function("forward"):
            loss = model(x)
        loss.eval()
    print(p.key_averages().table(sort_by="cpu_time_total"))
    p.export_chrome_trace("trace.json")

`with lucid.profiler() as p:` is short for a `Profiler` that records memory, shapes and floating-point operations.

Events are the engine's primitives, of all threads, and evaluations. Work on the GPU device is recorded first and run
when a value is needed: an op's time there is that of recording it, and the work is seen in `eval` and `read`. Tracing
is process-wide, and one profiler runs at a time.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from lucid._absent import teller
from lucid.profiler._events import MemoryStats, OpEvent, ProfileSummary
from lucid.profiler._schedule import ProfilerAction, schedule
from lucid.profiler._trace import (
    Profiler,
    ProfilerActivity,
    kineto_available,
    profile,
    record_function,
    supported_activities,
    tensorboard_trace_handler,
)

__all__ = [
    "MemoryStats",
    "OpEvent",
    "ProfileSummary",
    "Profiler",
    "ProfilerAction",
    "ProfilerActivity",
    "kineto_available",
    "profile",
    "record_function",
    "schedule",
    "supported_activities",
    "tensorboard_trace_handler",
]


class _Callable(ModuleType):
    """The module is called as a short form: `with lucid.profiler() as p:`."""

    def __call__(
        self, *, profile_memory: bool = True, record_shapes: bool = True, with_flops: bool = True, **kwargs: Any
    ) -> Profiler:
        """`Profiler` with memory, shapes and floating-point operations recorded unless that is turned off."""
        return Profiler(profile_memory=profile_memory, record_shapes=record_shapes, with_flops=with_flops, **kwargs)


sys.modules[__name__].__class__ = _Callable

if not TYPE_CHECKING:
    __getattr__ = teller(__name__)
