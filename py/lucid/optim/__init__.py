"""`lucid.optim`: optimizers with PyTorch's names, defaults, arithmetic and state dicts."""

from lucid.optim.adam import Adam, AdamW
from lucid.optim.optimizer import Optimizer
from lucid.optim.sgd import SGD

__all__ = ["SGD", "Adam", "AdamW", "Optimizer"]
