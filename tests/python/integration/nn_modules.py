"""A module of each class of `lucid.nn` with its inputs: what examples/architectures/modules.rs has, too."""

from __future__ import annotations

from collections.abc import Callable

import lucid
from lucid import nn

Tensor = lucid.Tensor
Made = tuple[Callable[[], nn.Module], Callable[[], tuple[Tensor, ...]]]


def normal(*shape: int) -> Callable[[], tuple[Tensor, ...]]:
    """One input of normal numbers."""
    return lambda: (lucid.randn(*shape),)


def normals(*shapes: tuple[int, ...]) -> Callable[[], tuple[Tensor, ...]]:
    """Several."""
    return lambda: tuple(lucid.randn(*shape) for shape in shapes)


def classes(n: int, *shape: int) -> Tensor:
    """Indices of classes."""
    return lucid.randint(0, n, shape)


def signs(*shape: int) -> Tensor:
    """1 and -1."""
    return lucid.randint(0, 2, shape).to(lucid.float32) * 2 - 1


class Listed(nn.Module):
    """A `ModuleList`, called one after the other."""

    def __init__(self) -> None:
        super().__init__()
        self.parts = nn.ModuleList([nn.Linear(4, 3), nn.Linear(3, 2)])

    def forward(self, x: Tensor) -> Tensor:
        return self.parts[1](self.parts[0](x))


class Mapped(nn.Module):
    """A `ModuleDict`, likewise."""

    def __init__(self) -> None:
        super().__init__()
        self.parts = nn.ModuleDict({"a": nn.Linear(4, 3), "b": nn.Linear(3, 2)})

    def forward(self, x: Tensor) -> Tensor:
        return self.parts["b"](self.parts["a"](x))


class Scaled(nn.Module):
    """Parameters in a list or by name, as a factor."""

    def __init__(self, parts: nn.ParameterList | nn.ParameterDict, key: int | str) -> None:
        super().__init__()
        self.parts, self.key = parts, key

    def forward(self, x: Tensor) -> Tensor:
        return x * self.parts[self.key]


def pooled(n: int) -> tuple[Tensor, Tensor]:
    """Maxima of n spatial dimensions, and their places."""
    call = {1: nn.MaxPool1d, 2: nn.MaxPool2d, 3: nn.MaxPool3d}[n]
    values, places = call(2, return_indices=True)(lucid.randn(2, 3, *([4] * n)))
    return values, places


def quantized(layer: nn.QuantizedLinear | nn.QuantizedEmbedding, *shape: int) -> nn.Module:
    """The layer with random weights."""
    layer.set_weight(lucid.randn(*shape))
    return layer


IMAGE, LINE, VOLUME = (2, 4, 6, 5), (2, 4, 9), (2, 4, 5, 6, 4)

ACTIVATIONS: dict[str, Made] = {
    name: (make, normal(2, 4, 6, 6))
    for name, make in {
        "CELU": lambda: nn.CELU(0.7),
        "ELU": lambda: nn.ELU(0.7),
        "GELU": lambda: nn.GELU("tanh"),
        "GLU": nn.GLU,
        "SELU": nn.SELU,
        "Hardshrink": lambda: nn.Hardshrink(0.4),
        "Hardsigmoid": nn.Hardsigmoid,
        "Hardswish": nn.Hardswish,
        "Hardtanh": lambda: nn.Hardtanh(-0.5, 0.6),
        "LeakyReLU": lambda: nn.LeakyReLU(0.2),
        "LogSigmoid": nn.LogSigmoid,
        "LogSoftmax": lambda: nn.LogSoftmax(1),
        "Mish": nn.Mish,
        "RReLU": lambda: nn.RReLU(0.1, 0.3),
        "ReLU": nn.ReLU,
        "ReLU6": nn.ReLU6,
        "SiLU": nn.SiLU,
        "Sigmoid": nn.Sigmoid,
        "Softmax": lambda: nn.Softmax(1),
        "Softmax2d": nn.Softmax2d,
        "Softmin": lambda: nn.Softmin(1),
        "Softplus": lambda: nn.Softplus(2.0, 3.0),
        "Softshrink": lambda: nn.Softshrink(0.4),
        "Softsign": nn.Softsign,
        "Tanh": nn.Tanh,
        "Tanhshrink": nn.Tanhshrink,
        "Threshold": lambda: nn.Threshold(0.1, -2.0),
        "PReLU": lambda: nn.PReLU(4),
    }.items()
}

LOSSES: dict[str, Made] = {
    "BCELoss": (nn.BCELoss, lambda: (lucid.rand(4, 3), lucid.rand(4, 3))),
    "BCEWithLogitsLoss": (lambda: nn.BCEWithLogitsLoss(reduction="sum"), lambda: (lucid.randn(4, 3), lucid.rand(4, 3))),
    "CTCLoss": (nn.CTCLoss, lambda: (lucid.randn(6, 2, 5).log_softmax(2), lucid.tensor([[1, 2, 2], [4, 3, 0]]))),
    "CosineEmbeddingLoss": (
        lambda: nn.CosineEmbeddingLoss(0.1),
        lambda: (lucid.randn(4, 3), lucid.randn(4, 3), signs(4)),
    ),
    "CrossEntropyLoss": (
        lambda: nn.CrossEntropyLoss(label_smoothing=0.1),
        lambda: (lucid.randn(4, 3), classes(3, 4)),
    ),
    "GaussianNLLLoss": (
        lambda: nn.GaussianNLLLoss(full=True),
        lambda: (lucid.randn(4, 3), lucid.randn(4, 3), lucid.rand(4, 3) + 0.1),
    ),
    "HingeEmbeddingLoss": (nn.HingeEmbeddingLoss, lambda: (lucid.randn(4, 3), signs(4, 3))),
    "HuberLoss": (lambda: nn.HuberLoss(delta=0.5), normals((4, 3), (4, 3))),
    "KLDivLoss": (
        lambda: nn.KLDivLoss(reduction="batchmean"),
        lambda: (lucid.randn(4, 3).log_softmax(1), lucid.randn(4, 3).softmax(1)),
    ),
    "L1Loss": (lambda: nn.L1Loss(reduction="none"), normals((4, 3), (4, 3))),
    "LinearCrossEntropyLoss": (
        lambda: nn.LinearCrossEntropyLoss(4, 3, out_features=(2,), bias=True, label_smoothing=0.1),
        lambda: (lucid.randn(5, 4), classes(3, 5, 2)),
    ),
    "MSELoss": (nn.MSELoss, normals((4, 3), (4, 3))),
    "MarginRankingLoss": (lambda: nn.MarginRankingLoss(0.2), lambda: (lucid.randn(4), lucid.randn(4), signs(4))),
    "MultiLabelMarginLoss": (
        nn.MultiLabelMarginLoss,
        lambda: (lucid.randn(2, 4), lucid.tensor([[3, 0, -1, 1], [2, -1, 0, 0]])),
    ),
    "MultiLabelSoftMarginLoss": (
        nn.MultiLabelSoftMarginLoss,
        lambda: (lucid.randn(4, 3), classes(2, 4, 3).to(lucid.float32)),
    ),
    "MultiMarginLoss": (lambda: nn.MultiMarginLoss(p=2), lambda: (lucid.randn(4, 3), classes(3, 4))),
    "NLLLoss": (nn.NLLLoss, lambda: (lucid.randn(4, 3).log_softmax(1), classes(3, 4))),
    "PoissonNLLLoss": (lambda: nn.PoissonNLLLoss(full=True), lambda: (lucid.randn(4, 3), lucid.rand(4, 3) * 4)),
    "SmoothL1Loss": (lambda: nn.SmoothL1Loss(beta=0.5), normals((4, 3), (4, 3))),
    "SoftMarginLoss": (nn.SoftMarginLoss, lambda: (lucid.randn(4, 3), signs(4, 3))),
    "TripletMarginLoss": (lambda: nn.TripletMarginLoss(swap=True), normals((4, 3), (4, 3), (4, 3))),
    "TripletMarginWithDistanceLoss": (
        lambda: nn.TripletMarginWithDistanceLoss(margin=0.5),
        normals((4, 3), (4, 3), (4, 3)),
    ),
    "AdaptiveLogSoftmaxWithLoss": (
        lambda: nn.AdaptiveLogSoftmaxWithLoss(8, 20, [5, 10], div_value=2.0, head_bias=True),
        lambda: (lucid.randn(4, 8), lucid.tensor([0, 6, 12, 19])),
    ),
}

POOLS: dict[str, Made] = {
    "AdaptiveAvgPool1d": (lambda: nn.AdaptiveAvgPool1d(3), normal(*LINE)),
    "AdaptiveAvgPool2d": (lambda: nn.AdaptiveAvgPool2d((3, 2)), normal(*IMAGE)),
    "AdaptiveAvgPool3d": (lambda: nn.AdaptiveAvgPool3d(2), normal(*VOLUME)),
    "AdaptiveMaxPool1d": (lambda: nn.AdaptiveMaxPool1d(3), normal(*LINE)),
    "AdaptiveMaxPool2d": (lambda: nn.AdaptiveMaxPool2d((3, 2)), normal(*IMAGE)),
    "AdaptiveMaxPool3d": (lambda: nn.AdaptiveMaxPool3d(2), normal(*VOLUME)),
    "AvgPool1d": (lambda: nn.AvgPool1d(3, 2, 1), normal(*LINE)),
    "AvgPool2d": (
        lambda: nn.AvgPool2d((2, 3), ceil_mode=True, count_include_pad=False, padding=1),
        normal(*IMAGE),
    ),
    "AvgPool3d": (lambda: nn.AvgPool3d(2), normal(*VOLUME)),
    "LPPool1d": (lambda: nn.LPPool1d(2.0, 3), normal(*LINE)),
    "LPPool2d": (lambda: nn.LPPool2d(3.0, 2), lambda: (lucid.rand(*IMAGE),)),
    "LPPool3d": (lambda: nn.LPPool3d(2.0, 2), normal(*VOLUME)),
    "MaxPool1d": (lambda: nn.MaxPool1d(3, 2, 1), normal(*LINE)),
    "MaxPool2d": (lambda: nn.MaxPool2d((2, 3), dilation=(2, 1), ceil_mode=True), normal(*IMAGE)),
    "MaxPool3d": (lambda: nn.MaxPool3d(2), normal(*VOLUME)),
    "MaxUnpool1d": (lambda: nn.MaxUnpool1d(2), lambda: pooled(1)),
    "MaxUnpool2d": (lambda: nn.MaxUnpool2d(2), lambda: pooled(2)),
    "MaxUnpool3d": (lambda: nn.MaxUnpool3d(2), lambda: pooled(3)),
    "FractionalMaxPool2d": (
        lambda: nn.FractionalMaxPool2d(2, (4, 3), return_indices=True),
        lambda: (lucid.randn(2, 3, 9, 7), lucid.rand(2, 3, 2)),
    ),
    "FractionalMaxPool3d": (
        lambda: nn.FractionalMaxPool3d(2, output_ratio=0.5, return_indices=True),
        lambda: (lucid.randn(2, 3, 6, 7, 8), lucid.rand(2, 3, 3)),
    ),
}

IMAGES: dict[str, Made] = {
    "ChannelShuffle": (lambda: nn.ChannelShuffle(2), normal(*IMAGE)),
    "PixelShuffle": (lambda: nn.PixelShuffle(2), normal(*IMAGE)),
    "PixelUnshuffle": (lambda: nn.PixelUnshuffle(2), normal(2, 4, 6, 4)),
    "CircularPad1d": (lambda: nn.CircularPad1d((1, 2)), normal(*LINE)),
    "CircularPad2d": (lambda: nn.CircularPad2d(1), normal(*IMAGE)),
    "CircularPad3d": (lambda: nn.CircularPad3d(1), normal(*VOLUME)),
    "ConstantPad1d": (lambda: nn.ConstantPad1d(1, 2.5), normal(*LINE)),
    "ConstantPad2d": (lambda: nn.ConstantPad2d((1, 2, 0, 1), -1.0), normal(*IMAGE)),
    "ConstantPad3d": (lambda: nn.ConstantPad3d(1, 0.5), normal(*VOLUME)),
    "ReflectionPad1d": (lambda: nn.ReflectionPad1d(2), normal(*LINE)),
    "ReflectionPad2d": (lambda: nn.ReflectionPad2d((1, 2, 0, 1)), normal(*IMAGE)),
    "ReflectionPad3d": (lambda: nn.ReflectionPad3d(1), normal(*VOLUME)),
    "ReplicationPad1d": (lambda: nn.ReplicationPad1d(2), normal(*LINE)),
    "ReplicationPad2d": (lambda: nn.ReplicationPad2d((1, 2, 0, 1)), normal(*IMAGE)),
    "ReplicationPad3d": (lambda: nn.ReplicationPad3d(1), normal(*VOLUME)),
    "ZeroPad1d": (lambda: nn.ZeroPad1d(1), normal(*LINE)),
    "ZeroPad2d": (lambda: nn.ZeroPad2d((1, -1, 2, 0)), normal(*IMAGE)),
    "ZeroPad3d": (lambda: nn.ZeroPad3d(1), normal(*VOLUME)),
    "Upsample": (lambda: nn.Upsample(scale_factor=1.5, mode="bicubic"), normal(*IMAGE)),
    "UpsamplingBilinear2d": (lambda: nn.UpsamplingBilinear2d(scale_factor=2), normal(*IMAGE)),
    "UpsamplingNearest2d": (lambda: nn.UpsamplingNearest2d(scale_factor=2), normal(*IMAGE)),
    "Unfold": (lambda: nn.Unfold(2, padding=1, stride=2), normal(*IMAGE)),
    "Fold": (lambda: nn.Fold((4, 5), 2, padding=1, stride=2), normal(2, 8, 9)),
    "Flatten": (nn.Flatten, normal(*IMAGE)),
    "Unflatten": (lambda: nn.Unflatten(1, (2, -1)), normal(*IMAGE)),
    "Identity": (nn.Identity, normal(3, 4)),
    "Dropout": (nn.Dropout, normal(3, 4)),
    "Dropout1d": (nn.Dropout1d, normal(*LINE)),
    "Dropout2d": (nn.Dropout2d, normal(*IMAGE)),
    "Dropout3d": (nn.Dropout3d, normal(*VOLUME)),
    "AlphaDropout": (nn.AlphaDropout, normal(3, 4)),
    "FeatureAlphaDropout": (nn.FeatureAlphaDropout, normal(*IMAGE)),
    "CrossMapLRN2d": (lambda: nn.CrossMapLRN2d(4, alpha=0.5, k=2.0), normal(2, 6, 3, 3)),
    "LocalResponseNorm": (lambda: nn.LocalResponseNorm(3, alpha=0.5), normal(2, 6, 3, 3)),
    "CosineSimilarity": (nn.CosineSimilarity, normals((4, 3), (4, 3))),
    "PairwiseDistance": (lambda: nn.PairwiseDistance(3.0, keepdim=True), normals((4, 3), (4, 3))),
    "SinusoidalEmbedding": (lambda: nn.SinusoidalEmbedding(6), normal(2, 3)),
    "SinusoidalEmbedding2D": (lambda: nn.SinusoidalEmbedding2D(8), normal(2, 8, 3, 4)),
}

LAYERS: dict[str, Made] = {
    "RNN": (lambda: nn.RNN(4, 3, nonlinearity="relu"), normals((5, 2, 4), (1, 2, 3))),
    "GRU": (lambda: nn.GRU(4, 3, 2, bidirectional=True), normal(5, 2, 4)),
    "LSTM": (lambda: nn.LSTM(4, 3, 2, proj_size=2, batch_first=True), normal(5, 2, 4)),
    "RNNCell": (lambda: nn.RNNCell(4, 3), normals((2, 4), (2, 3))),
    "GRUCell": (lambda: nn.GRUCell(4, 3), normals((2, 4), (2, 3))),
    "LSTMCell": (lambda: nn.LSTMCell(4, 3), normals((2, 4), (2, 3), (2, 3))),
    "MultiheadAttention": (
        lambda: nn.MultiheadAttention(8, 2, kdim=5, vdim=6),
        normals((4, 2, 8), (3, 2, 5), (3, 2, 6)),
    ),
    "TransformerEncoderLayer": (
        lambda: nn.TransformerEncoderLayer(8, 2, 12, activation="gelu", norm_first=True),
        normal(4, 2, 8),
    ),
    "TransformerDecoderLayer": (
        lambda: nn.TransformerDecoderLayer(8, 2, 12, batch_first=True),
        normals((2, 4, 8), (2, 3, 8)),
    ),
    "TransformerEncoder": (
        lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 12), 2, nn.LayerNorm(8)),
        normal(4, 2, 8),
    ),
    "TransformerDecoder": (
        lambda: nn.TransformerDecoder(nn.TransformerDecoderLayer(8, 2, 12), 2),
        normals((4, 2, 8), (3, 2, 8)),
    ),
    "Transformer": (lambda: nn.Transformer(8, 2, 1, 2, 12), normals((4, 2, 8), (3, 2, 8))),
    "Linear": (lambda: nn.Linear(4, 3), normal(2, 5, 4)),
    "FusedLinear": (lambda: nn.FusedLinear(4, 3, activation="gelu"), normal(2, 5, 4)),
    "QuantizedLinear": (
        lambda: quantized(nn.QuantizedLinear(64, 3, group_size=32, bits=8), 3, 64),
        normal(2, 64),
    ),
    "QuantizedEmbedding": (lambda: quantized(nn.QuantizedEmbedding(5, 64), 5, 64), lambda: (classes(5, 2, 3),)),
    "Bilinear": (lambda: nn.Bilinear(4, 3, 2), normals((5, 4), (5, 3))),
    "Conv1d": (lambda: nn.Conv1d(4, 6, 3, padding="same", groups=2), normal(*LINE)),
    "Conv2d": (lambda: nn.Conv2d(4, 6, (3, 2), 2, (1, 0), (1, 2)), normal(*IMAGE)),
    "Conv3d": (lambda: nn.Conv3d(4, 2, 3, padding=1, padding_mode="reflect", bias=False), normal(*VOLUME)),
    "ConvTranspose1d": (lambda: nn.ConvTranspose1d(4, 2, 3, 2, output_padding=1), normal(*LINE)),
    "ConvTranspose2d": (lambda: nn.ConvTranspose2d(4, 6, 3, groups=2, padding=1), normal(*IMAGE)),
    "ConvTranspose3d": (lambda: nn.ConvTranspose3d(4, 2, 2, dilation=2), normal(*VOLUME)),
    "BatchNorm1d": (lambda: nn.BatchNorm1d(4), normal(*LINE)),
    "SyncBatchNorm": (lambda: nn.SyncBatchNorm(4), normal(*LINE)),
    "BatchNorm2d": (lambda: nn.BatchNorm2d(4, eps=1e-3), normal(*IMAGE)),
    "BatchNorm3d": (lambda: nn.BatchNorm3d(4, affine=False), normal(*VOLUME)),
    "InstanceNorm1d": (lambda: nn.InstanceNorm1d(4), normal(*LINE)),
    "InstanceNorm2d": (lambda: nn.InstanceNorm2d(4, affine=True), normal(*IMAGE)),
    "InstanceNorm3d": (lambda: nn.InstanceNorm3d(4, affine=True, track_running_stats=True), normal(*VOLUME)),
    "LayerNorm": (lambda: nn.LayerNorm((3, 4)), normal(2, 3, 4)),
    "RMSNorm": (lambda: nn.RMSNorm(4, eps=1e-4), normal(2, 3, 4)),
    "GroupNorm": (lambda: nn.GroupNorm(2, 4), normal(*IMAGE)),
    "Embedding": (lambda: nn.Embedding(7, 3, padding_idx=1), lambda: (classes(7, 2, 4),)),
    "EmbeddingBag": (lambda: nn.EmbeddingBag(7, 3, mode="max"), lambda: (classes(7, 2, 4),)),
    "RotaryEmbedding": (lambda: nn.RotaryEmbedding(8), normal(2, 5, 8)),
    "TimestepEmbedding": (lambda: nn.TimestepEmbedding(8), lambda: (lucid.rand(3) * 100,)),
    "Sequential": (lambda: nn.Sequential(nn.Linear(4, 3), nn.ReLU()), normal(2, 4)),
    "ModuleList": (Listed, normal(2, 4)),
    "ModuleDict": (Mapped, normal(2, 4)),
    "ParameterList": (lambda: Scaled(nn.ParameterList([nn.Parameter(lucid.randn(4))]), 0), normal(2, 4)),
    "ParameterDict": (
        lambda: Scaled(nn.ParameterDict({"gain": nn.Parameter(lucid.randn(4))}), "gain"),
        normal(2, 4),
    ),
}

MODULES = ACTIVATIONS | LOSSES | POOLS | IMAGES | LAYERS

#: Classes of `lucid.nn` that Rust has no module of, and why.
WITHOUT = {
    "Module": "the trait `Module`",
    "Container": "PyTorch's old name of Module",
    "RNNBase": "the base of RNN, LSTM and GRU",
    "RNNCellBase": "the base of the cells",
    "NLLLoss2d": "PyTorch's old name of NLLLoss",
    "MultilabelMarginLoss": "another name of MultiLabelMarginLoss",
    "DataParallel": "one device: the module itself",
}
