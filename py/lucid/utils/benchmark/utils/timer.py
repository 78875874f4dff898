"""PyTorch's file of the timer."""

from lucid.utils.benchmark._timer import Language as Language
from lucid.utils.benchmark._timer import Timer as Timer
from lucid.utils.benchmark._timer import timer as timer
