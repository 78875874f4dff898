"""`lucid.optim`: optimizers and learning-rate schedules with PyTorch's names, defaults, arithmetic and state dicts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lucid._absent import teller
from lucid.optim import lr_scheduler as lr_scheduler
from lucid.optim import swa_utils as swa_utils
from lucid.optim.adadelta import Adadelta
from lucid.optim.adagrad import Adagrad
from lucid.optim.adam import Adam
from lucid.optim.adamax import Adamax
from lucid.optim.adamw import AdamW
from lucid.optim.asgd import ASGD
from lucid.optim.lbfgs import LBFGS
from lucid.optim.lion import Lion
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
from lucid.optim.matrix import Adafactor, Muon
from lucid.optim.nadam import NAdam
from lucid.optim.optimizer import Optimizer
from lucid.optim.radam import RAdam
from lucid.optim.rmsprop import RMSprop
from lucid.optim.rprop import Rprop
from lucid.optim.sgd import SGD
from lucid.optim.sparse_adam import SparseAdam

__all__ = [
    "ASGD",
    "LBFGS",
    "SGD",
    "Adadelta",
    "Adafactor",
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
    "Muon",
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
    "SparseAdam",
    "StepLR",
    "lr_scheduler",
    "swa_utils",
]

if not TYPE_CHECKING:
    __getattr__ = teller(__name__)
