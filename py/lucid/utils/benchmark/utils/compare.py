"""PyTorch's file of tables of measurements."""

from lucid.utils.benchmark._compare import Compare as Compare
