"""How tensors are printed, under PyTorch's private name, which programs use for its context manager."""

from __future__ import annotations

from lucid._repr import get_printoptions as get_printoptions
from lucid._repr import printoptions as printoptions
from lucid._repr import set_printoptions as set_printoptions
