"""Timing of statements, as `torch.utils.benchmark`: `Timer`, `Measurement`, `Compare`.

The GPU device is waited for before the clock is read, so that a statement's work is in its time.
"""

from __future__ import annotations

from lucid.utils.benchmark import utils as utils
from lucid.utils.benchmark._compare import Compare as Compare
from lucid.utils.benchmark._measure import Measurement as Measurement
from lucid.utils.benchmark._measure import TaskSpec as TaskSpec
from lucid.utils.benchmark._measure import select_unit as select_unit
from lucid.utils.benchmark._measure import trim_sigfig as trim_sigfig
from lucid.utils.benchmark._measure import unit_to_english as unit_to_english
from lucid.utils.benchmark._timer import Language as Language
from lucid.utils.benchmark._timer import Timer as Timer
from lucid.utils.benchmark._timer import timer as timer

__all__ = ["Compare", "Language", "Measurement", "TaskSpec", "Timer", "select_unit", "timer", "trim_sigfig"]
__all__ += ["unit_to_english"]
