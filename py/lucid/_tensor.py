"""PyTorch's file of the class `Tensor`."""

from lucid import Tensor as Tensor
