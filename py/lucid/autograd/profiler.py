"""PyTorch's place for the profiler's names."""

from lucid._profile import profile as profile
