"""`lucid.optim`: optimizers and learning-rate schedules with PyTorch's names, defaults, arithmetic and state dicts."""

from lucid.optim import lr_scheduler as lr_scheduler
from lucid.optim.adagrad import Adadelta, Adagrad, RMSprop
from lucid.optim.adam import Adam, Adamax, AdamW, NAdam, RAdam
from lucid.optim.lr_scheduler import (
    ChainedScheduler,
    ConstantLR,
    CosineAnnealingLR,
    CosineAnnealingWarmRestarts,
    CyclicLR,
    ExponentialLR,
    LambdaLR,
    LinearLR,
    LRScheduler,
    MultiplicativeLR,
    MultiStepLR,
    NoamScheduler,
    OneCycleLR,
    PolynomialLR,
    ReduceLROnPlateau,
    SequentialLR,
    StepLR,
)
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
    "ChainedScheduler",
    "ConstantLR",
    "CosineAnnealingLR",
    "CosineAnnealingWarmRestarts",
    "CyclicLR",
    "ExponentialLR",
    "LRScheduler",
    "LambdaLR",
    "LinearLR",
    "Lion",
    "MultiStepLR",
    "MultiplicativeLR",
    "NAdam",
    "NoamScheduler",
    "OneCycleLR",
    "Optimizer",
    "PolynomialLR",
    "RAdam",
    "RMSprop",
    "ReduceLROnPlateau",
    "Rprop",
    "SequentialLR",
    "StepLR",
    "lr_scheduler",
]
