"""PyTorch's place for the profiler's names."""

from lucid._profile import profile as profile
from lucid.profiler import record_function as record_function
