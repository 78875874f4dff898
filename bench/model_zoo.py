"""The networks of `models.py`, each written once over the names that Lucid and PyTorch share: `lib` is either.

A row is a network, a batch and a loss; what is timed is its whole training step.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Sizes:
    """What a row's network and batch measure: one set for a GPU, one (`quick`) for a CPU."""

    batch: int
    width: int = 0
    depth: int = 0
    heads: int = 0
    steps: int = 0
    side: int = 0
    classes: int = 10


@dataclass(frozen=True)
class Row:
    """A network, its batch and its loss.

    Attributes:
        model: makes the network of a library.
        batch: the inputs and the targets, as NumPy arrays.
        optimizer: the class's name in `lib.optim`.
        autocast: whether the forward pass runs under bfloat16 autocast.
    """

    model: Callable[[Any, Sizes], Any]
    batch: Callable[[Sizes], tuple[np.ndarray, np.ndarray]]
    full: Sizes
    quick: Sizes
    optimizer: str = "AdamW"
    autocast: bool = False
    dense: bool = False


def tokens(s: Sizes) -> tuple[np.ndarray, np.ndarray]:
    """Token numbers, and the ones that follow."""
    draw = np.random.default_rng(0).integers(0, s.classes, (s.batch, s.steps + 1))
    return draw[:, :-1].copy(), draw[:, 1:].reshape(-1).copy()


def images(channels: int) -> Callable[[Sizes], tuple[np.ndarray, np.ndarray]]:
    """Normal images, and class numbers."""

    def make(s: Sizes) -> tuple[np.ndarray, np.ndarray]:
        draw = np.random.default_rng(0)
        x = draw.standard_normal((s.batch, channels, s.side, s.side)).astype(np.float32)
        return x, draw.integers(0, s.classes, s.batch)

    return make


def masks(s: Sizes) -> tuple[np.ndarray, np.ndarray]:
    """Images, and a class for each pixel."""
    draw = np.random.default_rng(0)
    x = draw.standard_normal((s.batch, 3, s.side, s.side)).astype(np.float32)
    return x, draw.integers(0, s.classes, (s.batch, s.side, s.side))


def sequences(s: Sizes) -> tuple[np.ndarray, np.ndarray]:
    """Normal sequences, and class numbers."""
    draw = np.random.default_rng(0)
    x = draw.standard_normal((s.batch, s.steps, s.width)).astype(np.float32)
    return x, draw.integers(0, s.classes, s.batch)


def vectors(s: Sizes) -> tuple[np.ndarray, np.ndarray]:
    """Vectors of 784, and class numbers."""
    draw = np.random.default_rng(0)
    return draw.standard_normal((s.batch, 784)).astype(np.float32), draw.integers(0, s.classes, s.batch)


def _transformer(lib: Any, s: Sizes, causal: bool) -> Any:
    """A pre-norm block of width `s.width`."""
    nn, c = lib.nn, s.width

    class Block(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(c), nn.LayerNorm(c)
            self.inward, self.outward = nn.Linear(c, 3 * c), nn.Linear(c, c)
            self.wide, self.narrow = nn.Linear(c, 4 * c), nn.Linear(4 * c, c)

        def forward(self, x: Any) -> Any:
            b, t, _ = x.shape
            qkv = self.inward(self.norm1(x)).reshape(b, t, 3, s.heads, c // s.heads).permute(2, 0, 3, 1, 4)
            seen = nn.functional.scaled_dot_product_attention(qkv[0], qkv[1], qkv[2], is_causal=causal)
            x = x + self.outward(seen.transpose(1, 2).reshape(b, t, c))
            return x + self.narrow(nn.functional.gelu(self.wide(self.norm2(x)), approximate="tanh"))

    return Block()


def gpt(lib: Any, s: Sizes) -> Any:
    """GPT-2: learned positions, tied to nothing, the vocabulary's logits of every position."""
    nn = lib.nn

    class GPT(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.word, self.place = nn.Embedding(s.classes, s.width), nn.Embedding(s.steps, s.width)
            self.blocks = nn.ModuleList([_transformer(lib, s, True) for _ in range(s.depth)])
            self.norm, self.head = nn.LayerNorm(s.width), nn.Linear(s.width, s.classes, bias=False)
            # GPT-2 shares the embedding with the head.
            self.head.weight = self.word.weight
            nn.init.normal_(self.word.weight, std=0.02)

        def forward(self, x: Any) -> Any:
            y = self.word(x) + self.place.weight[: x.shape[1]]
            for block in self.blocks:
                y = block(y)
            return self.head(self.norm(y)).reshape(-1, s.classes)

    return GPT()


def vit(lib: Any, s: Sizes) -> Any:
    """A vision transformer over patches of 16 x 16 (4 x 4 for small images), averaged over the patches."""
    nn = lib.nn
    patch = 16 if s.side >= 128 else 4
    count = (s.side // patch) ** 2

    class ViT(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.patches = nn.Conv2d(3, s.width, patch, stride=patch)
            self.place = nn.Parameter(lib.zeros(1, count, s.width))
            self.blocks = nn.ModuleList([_transformer(lib, s, False) for _ in range(s.depth)])
            self.norm, self.head = nn.LayerNorm(s.width), nn.Linear(s.width, s.classes)

        def forward(self, x: Any) -> Any:
            y = self.patches(x).flatten(2).transpose(1, 2) + self.place
            for block in self.blocks:
                y = block(y)
            return self.head(self.norm(y).mean(1))

    return ViT()


def resnet18(lib: Any, s: Sizes) -> Any:
    """ResNet-18; images under 64 pixels keep their size in the first convolution."""
    nn = lib.nn

    class Basic(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self, inward: int, outward: int, stride: int) -> None:
            super().__init__()
            self.conv1 = nn.Conv2d(inward, outward, 3, stride=stride, padding=1, bias=False)
            self.conv2 = nn.Conv2d(outward, outward, 3, padding=1, bias=False)
            self.norm1, self.norm2 = nn.BatchNorm2d(outward), nn.BatchNorm2d(outward)
            self.short = nn.Sequential()
            if stride > 1 or inward != outward:
                self.short = nn.Sequential(
                    nn.Conv2d(inward, outward, 1, stride=stride, bias=False), nn.BatchNorm2d(outward)
                )

        def forward(self, x: Any) -> Any:
            y = nn.functional.relu(self.norm1(self.conv1(x)))
            return nn.functional.relu(self.norm2(self.conv2(y)) + self.short(x))

    stem = [nn.Conv2d(3, 64, 3, padding=1, bias=False), nn.BatchNorm2d(64), nn.ReLU()]
    if s.side >= 64:
        stem = [
            nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False),
            nn.BatchNorm2d(64),
            nn.ReLU(),
            nn.MaxPool2d(3, stride=2, padding=1),
        ]
    layers, inward = stem, 64
    for outward, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        layers += [Basic(inward, outward, stride), Basic(outward, outward, 1)]
        inward = outward
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, s.classes))


def unet(lib: Any, s: Sizes) -> Any:
    """A U-Net of `s.depth` levels with group norm and SiLU; a class for each pixel."""
    nn = lib.nn

    def stage(inward: int, outward: int) -> Any:
        return nn.Sequential(
            nn.Conv2d(inward, outward, 3, padding=1),
            nn.GroupNorm(8, outward),
            nn.SiLU(),
            nn.Conv2d(outward, outward, 3, padding=1),
            nn.GroupNorm(8, outward),
            nn.SiLU(),
        )

    class UNet(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            widths = [s.width * 2**i for i in range(s.depth)]
            self.down = nn.ModuleList([stage(a, b) for a, b in zip([3, *widths], widths, strict=False)])
            self.pool = nn.MaxPool2d(2)
            self.up = nn.ModuleList([nn.ConvTranspose2d(2 * w, w, 2, stride=2) for w in reversed(widths[:-1])])
            self.join = nn.ModuleList([stage(2 * w, w) for w in reversed(widths[:-1])])
            self.head = nn.Conv2d(s.width, s.classes, 1)

        def forward(self, x: Any) -> Any:
            kept = []
            for i, down in enumerate(self.down):
                x = down(x if i == 0 else self.pool(x))
                kept.append(x)
            for up, join, skip in zip(self.up, self.join, reversed(kept[:-1]), strict=True):
                x = join(lib.cat([up(x), skip], 1))
            return self.head(x)

    return UNet()


def recurrent(kind: str) -> Callable[[Any, Sizes], Any]:
    """`s.depth` recurrent layers of `s.width`, and a linear layer over the last step."""

    def make(lib: Any, s: Sizes) -> Any:
        nn = lib.nn

        class Recurrent(nn.Module):  # type: ignore[misc, name-defined]
            def __init__(self) -> None:
                super().__init__()
                self.rnn = getattr(nn, kind)(s.width, s.width, s.depth, batch_first=True)
                self.head = nn.Linear(s.width, s.classes)

            def forward(self, x: Any) -> Any:
                y, _ = self.rnn(x)
                return self.head(y[:, -1])

        return Recurrent()

    return make


def mlp(lib: Any, s: Sizes) -> Any:
    """784, `s.depth` hidden layers of `s.width`, the classes."""
    nn = lib.nn
    widths = [784] + [s.width] * s.depth
    layers: list[Any] = []
    for a, b in itertools.pairwise(widths):
        layers += [nn.Linear(a, b), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(widths[-1], s.classes))


def lenet(lib: Any, s: Sizes) -> Any:
    """LeNet-5 for 28 x 28 images."""
    from nets import lenet as make

    return make(lib)


ROWS: dict[str, Row] = {
    "GPT-2": Row(
        gpt,
        tokens,
        Sizes(8, width=768, depth=12, heads=12, steps=512, classes=50257),
        Sizes(4, width=128, depth=2, heads=4, steps=64, classes=512),
    ),
    "GPT-2 bf16": Row(
        gpt,
        tokens,
        Sizes(8, width=768, depth=12, heads=12, steps=512, classes=50257),
        Sizes(4, width=128, depth=2, heads=4, steps=64, classes=512),
        autocast=True,
    ),
    "ResNet-18": Row(resnet18, images(3), Sizes(64, side=128, classes=100), Sizes(4, side=32, classes=10)),
    "LSTM": Row(recurrent("LSTM"), sequences, Sizes(32, 256, 2, steps=64), Sizes(16, 64, 2, steps=32)),
    "GRU": Row(recurrent("GRU"), sequences, Sizes(32, 256, 2, steps=64), Sizes(16, 64, 2, steps=32)),
    "MLP": Row(mlp, vectors, Sizes(256, 1024, 2), Sizes(64, 256, 2)),
    "LeNet": Row(lenet, images(1), Sizes(64, side=28), Sizes(64, side=28), optimizer="Adam"),
    "ViT-S": Row(
        vit,
        images(3),
        Sizes(32, width=384, depth=12, heads=6, side=224, classes=1000),
        Sizes(4, width=96, depth=2, heads=3, side=32),
    ),
    "U-Net": Row(unet, masks, Sizes(8, width=64, depth=4, side=128, classes=8), Sizes(2, width=16, depth=3, side=32)),
}


def initial(model: Any) -> dict[str, np.ndarray]:
    """The state of a network as NumPy arrays, so that every library begins with the same numbers."""
    return {k: np.array(v.detach().cpu().numpy()) for k, v in model.state_dict().items()}
