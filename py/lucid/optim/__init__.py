"""`lucid.optim`: optimizers with PyTorch's names, defaults, arithmetic and state dicts."""

from lucid.optim.adagrad import Adadelta, Adagrad, RMSprop
from lucid.optim.adam import Adam, Adamax, AdamW, NAdam, RAdam
from lucid.optim.optimizer import Optimizer
from lucid.optim.sgd import SGD
from lucid.optim.simple import ASGD, Lion, Rprop

__all__ = [
    "ASGD",
    "SGD",
    "Adadelta",
    "Adagrad",
    "Adam",
    "AdamW",
    "Adamax",
    "Lion",
    "NAdam",
    "Optimizer",
    "RAdam",
    "RMSprop",
    "Rprop",
]
