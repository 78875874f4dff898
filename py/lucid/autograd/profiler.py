"""PyTorch's place for the profiler's names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lucid._absent import teller
from lucid._profile import profile as profile
from lucid.profiler import kineto_available as kineto_available
from lucid.profiler import record_function as record_function

if not TYPE_CHECKING:
    __getattr__ = teller(__name__)
