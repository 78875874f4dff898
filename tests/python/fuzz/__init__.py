"""The fuzzer of every public callable, and random programs.

A case is a target and a seed; from both follows a call, as text. Calls run in child processes with a time limit and a
memory cap. A crash, a hang, a panic, growing memory and an exception of a kind that PyTorch would not raise are
findings. `python -m tests.python.fuzz --help` says how to run it.
"""

from __future__ import annotations

from .calls import call_text
from .process import Child, one
from .run import fuzz, run_case
from .targets import schemas, targets

__all__ = ["Child", "call_text", "fuzz", "one", "run_case", "schemas", "targets"]
