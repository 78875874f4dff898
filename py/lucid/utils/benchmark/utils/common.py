"""PyTorch's file of measurements."""

from lucid.utils.benchmark._measure import Measurement as Measurement
from lucid.utils.benchmark._measure import TaskSpec as TaskSpec
from lucid.utils.benchmark._measure import select_unit as select_unit
from lucid.utils.benchmark._measure import trim_sigfig as trim_sigfig
from lucid.utils.benchmark._measure import unit_to_english as unit_to_english
