"""Layers and convolutions of published networks, and whole training steps, for `ops.py`.

A row is its name and a function that makes the work on a side: `side.lib` is the library, `side.tensor` makes a tensor.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from nets import block, lenet, mlp
from ops_nets import NETS

Rows = Iterator[tuple[str, Callable[[Any], Any]]]


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    """Standard normal float32."""
    return np.random.default_rng(seed + math.prod(shape)).standard_normal(shape).astype(np.float32)


def whole(high: int, *shape: int) -> np.ndarray:
    """Whole numbers below `high`."""
    return np.random.default_rng(high + math.prod(shape)).integers(0, high, shape)


#: Where, input, outputs, window, stride, groups.
CONVOLUTIONS: list[tuple[str, tuple[int, ...], int, int, int, int]] = [
    ("ResNet stem", (1, 3, 224, 224), 64, 7, 2, 1),
    ("ResNet 64 of 56²", (1, 64, 56, 56), 64, 3, 1, 1),
    ("ResNet 128 of 28²", (4, 128, 28, 28), 128, 3, 1, 1),
    ("ResNet 256 of 14²", (4, 256, 14, 14), 256, 3, 1, 1),
    ("ResNet 512 of 7²", (4, 512, 7, 7), 512, 3, 1, 1),
    ("ResNet 512 of 7², one image", (1, 512, 7, 7), 512, 3, 1, 1),
    ("ResNet 256 to 512, stride 2", (4, 256, 14, 14), 512, 3, 2, 1),
    ("ResNet 1x1 256 to 512, stride 2", (4, 256, 14, 14), 512, 1, 2, 1),
    ("ResNet 1x1 256 to 64", (4, 256, 56, 56), 64, 1, 1, 1),
    ("small ResNet 64 of 8²", (8, 64, 8, 8), 64, 3, 1, 1),
    ("small ResNet 128 of 4²", (8, 128, 4, 4), 128, 3, 1, 1),
    ("small ResNet 256 of 2²", (8, 256, 2, 2), 256, 3, 1, 1),
    ("small ResNet 512 of 1²", (8, 512, 1, 1), 512, 3, 1, 1),
    ("small ResNet 256 to 512 of 4², stride 2", (8, 256, 4, 4), 512, 3, 2, 1),
    ("CIFAR ResNet 16 of 32²", (32, 16, 32, 32), 16, 3, 1, 1),
    ("CIFAR ResNet 32 of 16²", (32, 32, 16, 16), 32, 3, 1, 1),
    ("MobileNet depthwise 3x3 of 28²", (4, 192, 28, 28), 192, 3, 1, 192),
    ("MobileNet depthwise 3x3, stride 2", (4, 144, 56, 56), 144, 3, 2, 144),
    ("MobileNet 1x1 expand", (4, 32, 28, 28), 192, 1, 1, 1),
    ("EfficientNet depthwise 5x5 of 14²", (4, 240, 14, 14), 240, 5, 1, 240),
    ("ConvNeXt depthwise 7x7 of 28²", (2, 96, 28, 28), 96, 7, 1, 96),
    ("ResNeXt 3x3 of 32 groups", (2, 128, 28, 28), 128, 3, 1, 32),
    ("U-Net 32 of 64²", (2, 32, 64, 64), 32, 3, 1, 1),
    ("DCGAN 4x4, stride 2", (16, 64, 16, 16), 128, 4, 2, 1),
]


def graded(make: Callable[[Any], tuple[Any, list[Any], Callable[..., Any]]], back: bool) -> Callable[[Any], Any]:
    """The work of a function alone, or with the gradients of what it is of."""

    def work_on(side: Any) -> Any:
        args, wanted, function = make(side)
        if not back:
            return side.finished(lambda: function(*args))
        for t in wanted:
            t.requires_grad_()
        ones = side.lib.ones_like(function(*args).detach())
        return side.finished(lambda: side.lib.autograd.grad(function(*args), wanted, ones))

    return work_on


def convolutions() -> Rows:
    """conv2d of the networks' shapes, and their transposes."""
    for name, shape, outputs, window, stride, groups in CONVOLUTIONS:

        def make(side: Any, of: Any = (shape, outputs, window, stride, groups)) -> Any:
            shape, outputs, window, stride, groups = of
            fan = shape[1] // groups * window * window
            x = side.tensor(numbers(*shape))
            w = side.tensor(numbers(outputs, shape[1] // groups, window, window) / math.sqrt(fan))
            b = side.tensor(numbers(outputs))

            def conv(x: Any, w: Any, b: Any) -> Any:
                return side.lib.nn.functional.conv2d(x, w, b, stride, window // 2, 1, groups)

            return (x, w, b), [x, w, b], conv

        for back in (False, True):
            yield f"conv2d {name}{', forward and backward' if back else ''}", graded(make, back)


#: name, layer, input shape
LAYERS: list[tuple[str, Callable[[Any], Any], tuple[int, ...]]] = [
    ("LSTM batch 1, 100 steps of 64", lambda nn: nn.LSTM(64, 64, batch_first=True), (1, 100, 64)),
    ("LSTM 32x16x64", lambda nn: nn.LSTM(64, 64, batch_first=True), (32, 16, 64)),
    ("GRU 16x50x64", lambda nn: nn.GRU(64, 64, batch_first=True), (16, 50, 64)),
    ("GRU both ways, batch 1", lambda nn: nn.GRU(32, 32, batch_first=True, bidirectional=True), (1, 60, 32)),
    ("ConvTranspose2d 64 to 32", lambda nn: nn.ConvTranspose2d(64, 32, 4, 2, 1), (8, 64, 8, 8)),
    ("BatchNorm2d 64 of 28²", lambda nn: nn.BatchNorm2d(64), (8, 64, 28, 28)),
    ("GroupNorm 32 of 64 of 28²", lambda nn: nn.GroupNorm(32, 64), (4, 64, 28, 28)),
    ("LayerNorm 768", lambda nn: nn.LayerNorm(768), (8, 64, 768)),
    ("RMSNorm 768", lambda nn: nn.RMSNorm(768), (8, 64, 768)),
    (
        "TransformerEncoderLayer 128",
        lambda nn: nn.TransformerEncoderLayer(128, 4, 256, 0.0, batch_first=True),
        (8, 32, 128),
    ),
    ("Softmax over channels", lambda nn: nn.Softmax(1), (4, 21, 64, 64)),
    ("PixelShuffle 2", lambda nn: nn.PixelShuffle(2), (4, 64, 28, 28)),
    ("Upsample bilinear", lambda nn: nn.Upsample(scale_factor=2, mode="bilinear"), (4, 32, 28, 28)),
    ("ReflectionPad2d 3", lambda nn: nn.ReflectionPad2d(3), (4, 32, 64, 64)),
    ("AdaptiveAvgPool2d 1", lambda nn: nn.AdaptiveAvgPool2d(1), (16, 512, 7, 7)),
]


def like(side: Any, make: Callable[[Any], Any]) -> Any:
    """A module with the numbers that PyTorch starts with, on either side."""
    import torch

    torch.manual_seed(0)
    state = {key: value.numpy() for key, value in make(torch.nn).state_dict().items()}
    made = make(side.lib.nn)
    made.load_state_dict({key: side.lib.tensor(value) for key, value in state.items()})
    return made.to("gpu") if side.device == "gpu" else made


def layers() -> Rows:
    """Modules."""
    for name, layer, shape in LAYERS:

        def make(side: Any, of: Any = (layer, shape)) -> Any:
            module, x = like(side, of[0]), side.tensor(numbers(*of[1]))

            def call(x: Any) -> Any:
                made = module(x)
                return made[0] if isinstance(made, tuple) else made

            return (x,), [x, *module.parameters()], call

        for back in (False, True):
            yield f"layer {name}{', forward and backward' if back else ''}", graded(make, back)


def functions() -> Rows:
    """Calls as users' programs make them, which the op table does not name by shape."""
    bags, table_of = whole(4096, 256, 16), numbers(4096, 64)
    for mode in ("mean", "sum", "max"):

        def bag(side: Any, mode: str = mode) -> Any:
            w, i = side.tensor(table_of), side.tensor(bags)
            return (i, w), [w], lambda i, w: side.lib.nn.functional.embedding_bag(i, w, mode=mode)

        for back in (False, True):
            yield f"embedding_bag {mode} 256x16 of 64{', forward and backward' if back else ''}", graded(bag, back)

    def ctc(side: Any) -> Any:
        x = side.tensor(numbers(50, 4, 30))
        targets, lengths = side.tensor(1 + whole(29, 4, 20)), side.tensor(np.full(4, 50))
        found = side.tensor(np.array([20, 15, 12, 9]))
        F = side.lib.nn.functional
        return (x,), [x], lambda x: F.ctc_loss(F.log_softmax(x, -1), targets, lengths, found)

    def dense(side: Any) -> Any:
        x, y = side.tensor(numbers(4, 21, 64, 64)), side.tensor(whole(21, 4, 64, 64))
        return (x,), [x], lambda x: side.lib.nn.functional.cross_entropy(x, y)

    for name, make in (("ctc_loss 50x4x30", ctc), ("cross_entropy 4x21x64²", dense)):
        for back in (False, True):
            yield f"{name}{', forward and backward' if back else ''}", graded(make, back)

    thousand, scalars = numbers(1000).tolist(), list(numbers(1000))
    plain: dict[str, Callable[[Any], Any]] = {
        "tensor(list of 1000 floats)": lambda side: lambda: side.lib.tensor(thousand),
        "tensor(list of 1000 np.float32)": lambda side: lambda: side.lib.tensor(scalars),
        "randperm 100000": lambda side: lambda: side.lib.randperm(100_000),
    }
    calls: dict[str, tuple[tuple[int, ...], Callable[[Any, Any], Any]]] = {
        "x ** 3 of 1M": ((1024, 1024), lambda lib, x: x**3),
        "x % 1.0 of 1M": ((1024, 1024), lambda lib, x: x % 1.0),
        "half + half of 1M": ((1024, 1024), lambda lib, x: x.half() + x.half()),
        "norm(dim=1) of 1M": ((1024, 1024), lambda lib, x: x.norm(dim=1)),
        "clamp of 1M": ((1024, 1024), lambda lib, x: x.clamp(-1, 1)),
        "permute and contiguous of 1M": ((16, 64, 32, 32), lambda lib, x: x.permute(0, 2, 3, 1).contiguous()),
        "normalize of 1M": ((1024, 1024), lambda lib, x: lib.nn.functional.normalize(x, dim=1)),
        "std(dim=0) of 1M": ((1024, 1024), lambda lib, x: x.std(0)),
    }
    for name, start in plain.items():
        yield name, lambda side, start=start: side.finished(start(side))
    for name, (shape, f) in calls.items():

        def call(side: Any, of: Any = (shape, f)) -> Any:
            x = side.tensor(numbers(*of[0]))
            return side.finished(lambda: of[1](side.lib, x))

        yield name, call


def step(
    net: Callable[[Any], Any],
    inputs: tuple[np.ndarray, ...],
    loss: Callable[[Any, Any, tuple[Any, ...]], Any],
    optimizer: Callable[[Any, Any], Any],
) -> Callable[[Any], Any]:
    """A whole training step: zero_grad, forward, loss, backward, optimizer."""

    def make(side: Any) -> Any:
        import torch

        torch.manual_seed(0)
        state = {key: value.numpy() for key, value in net(torch).state_dict().items()}
        model = net(side.lib)
        model.load_state_dict({key: side.lib.tensor(value) for key, value in state.items()})
        if side.device == "gpu":
            model = model.to("gpu")
        chosen = optimizer(side.lib, model.parameters())
        x, *rest = (side.tensor(x) for x in inputs)

        def work() -> Any:
            chosen.zero_grad()
            made = loss(side.lib, model(x), tuple(rest))
            made.backward()
            chosen.step()
            return made.detach()

        return side.finished(work)

    return make


def adam(lib: Any, params: Any) -> Any:
    """Adam with small steps."""
    return lib.optim.Adam(params, lr=1e-4)


def sgd(lib: Any, params: Any) -> Any:
    """SGD with momentum and small steps."""
    return lib.optim.SGD(params, lr=1e-4, momentum=0.9)


def classes(lib: Any, out: Any, rest: tuple[Any, ...]) -> Any:
    """Cross-entropy of classes."""
    return lib.nn.functional.cross_entropy(out, rest[0])


def squares(lib: Any, out: Any, rest: tuple[Any, ...]) -> Any:
    """Mean square."""
    return (out * out).mean()


def truths(lib: Any, out: Any, rest: tuple[Any, ...]) -> Any:
    """Binary cross-entropy of logits."""
    return lib.nn.functional.binary_cross_entropy_with_logits(out, rest[0])


def ctc(lib: Any, out: Any, rest: tuple[Any, ...]) -> Any:
    """CTC of (batch, time, classes)."""
    F = lib.nn.functional
    return F.ctc_loss(F.log_softmax(out, -1).transpose(0, 1), *rest)


def steps() -> Rows:
    """Twenty networks."""
    image, small = numbers(8, 3, 32, 32), numbers(32, 3, 32, 32)
    halves = (np.abs(numbers(16, 1)) > 0.5).astype(np.float32)
    mask = (numbers(2, 1, 64, 64) > 0).astype(np.float32)
    spoken = (numbers(4, 50, 40), 1 + whole(29, 4, 12), np.full(4, 50), np.full(4, 12))
    known: list[tuple[str, Callable[[Any], Any], tuple[np.ndarray, ...], Any, Any]] = [
        ("LeNet", lenet, (numbers(64, 1, 28, 28), whole(10, 64)), classes, adam),
        ("MLP", mlp, (numbers(64, 784), whole(10, 64)), classes, sgd),
        ("transformer block", block, (numbers(16, 64, 128),), squares, adam),
        ("ResNet-18, 8 images of 32²", NETS["resnet18"], (image, whole(10, 8)), classes, sgd),
        ("CIFAR ResNet-8, 32 images", NETS["cifar_resnet"], (small, whole(10, 32)), classes, sgd),
        ("MobileNet, 8 images", NETS["mobilenet"], (image, whole(10, 8)), classes, sgd),
        ("EfficientNet blocks, 8 images", NETS["efficientnet"], (image, whole(10, 8)), classes, adam),
        ("ConvNeXt blocks, 8 images", NETS["convnext"], (image, whole(10, 8)), classes, adam),
        ("U-Net, 2 images of 64²", NETS["unet"], (numbers(2, 3, 64, 64), mask), truths, adam),
        ("DCGAN generator", NETS["generator"], (numbers(16, 64, 1, 1),), squares, adam),
        ("DCGAN discriminator", NETS["discriminator"], (numbers(16, 3, 32, 32), halves), truths, adam),
        ("autoencoder", NETS["autoencoder"], (numbers(64, 784),), squares, adam),
        ("LSTM, 2 layers", NETS["lstm"], (numbers(16, 40, 32), whole(10, 16)), classes, adam),
        ("GRU classifier", NETS["gru"], (numbers(16, 40, 32), whole(10, 16)), classes, adam),
        ("speech, LSTM both ways and CTC", NETS["speech"], spoken, ctc, adam),
        ("text, EmbeddingBag", NETS["bag"], (whole(5000, 64, 20), whole(4, 64)), classes, sgd),
        ("language model, 2 blocks", NETS["language"], (whole(500, 8, 32), whole(500, 256)), classes, adam),
        ("vision transformer", NETS["vit"], (image, whole(10, 8)), classes, adam),
        ("MLP mixer", NETS["mixer"], (image, whole(10, 8)), classes, adam),
        ("policy, tanh MLP", NETS["policy"], (numbers(256, 17),), squares, adam),
    ]
    for name, net, inputs, loss, optimizer in known:
        yield f"step of {name}", step(net, inputs, loss, optimizer)


def model_rows(quick: bool) -> Rows:
    """All of them; of `quick` runs without the convolutions' grid."""
    yield from functions()
    yield from layers()
    yield from convolutions()
    yield from steps()
