"""Layers, one family per file. `lucid.nn` shows them all."""

from lucid.nn.modules.activation import (
    ELU,
    GELU,
    LeakyReLU,
    LogSoftmax,
    ReLU,
    ReLU6,
    Sigmoid,
    SiLU,
    Softmax,
    Softplus,
    Tanh,
)
from lucid.nn.modules.attention import MultiheadAttention
from lucid.nn.modules.container import ModuleDict, ModuleList, Sequential
from lucid.nn.modules.conv import Conv1d, Conv2d, Conv3d, ConvTranspose2d
from lucid.nn.modules.dropout import Dropout
from lucid.nn.modules.flatten import Flatten
from lucid.nn.modules.hooks import RemovableHandle
from lucid.nn.modules.linear import Identity, Linear
from lucid.nn.modules.loss import (
    BCELoss,
    BCEWithLogitsLoss,
    CrossEntropyLoss,
    HuberLoss,
    KLDivLoss,
    L1Loss,
    MSELoss,
    NLLLoss,
    SmoothL1Loss,
)
from lucid.nn.modules.module import Module
from lucid.nn.modules.normalization import BatchNorm1d, BatchNorm2d, GroupNorm, LayerNorm, RMSNorm
from lucid.nn.modules.pooling import AvgPool1d, AvgPool2d, MaxPool1d, MaxPool2d, MaxPool3d
from lucid.nn.modules.sparse import Embedding
from lucid.nn.modules.transformer import TransformerEncoder, TransformerEncoderLayer

__all__ = [
    "ELU",
    "GELU",
    "AvgPool1d",
    "AvgPool2d",
    "BCELoss",
    "BCEWithLogitsLoss",
    "BatchNorm1d",
    "BatchNorm2d",
    "Conv1d",
    "Conv2d",
    "Conv3d",
    "ConvTranspose2d",
    "CrossEntropyLoss",
    "Dropout",
    "Embedding",
    "Flatten",
    "GroupNorm",
    "HuberLoss",
    "Identity",
    "KLDivLoss",
    "L1Loss",
    "LayerNorm",
    "LeakyReLU",
    "Linear",
    "LogSoftmax",
    "MSELoss",
    "MaxPool1d",
    "MaxPool2d",
    "MaxPool3d",
    "Module",
    "ModuleDict",
    "ModuleList",
    "MultiheadAttention",
    "NLLLoss",
    "RMSNorm",
    "ReLU",
    "ReLU6",
    "RemovableHandle",
    "Sequential",
    "SiLU",
    "Sigmoid",
    "SmoothL1Loss",
    "Softmax",
    "Softplus",
    "Tanh",
    "TransformerEncoder",
    "TransformerEncoderLayer",
]
