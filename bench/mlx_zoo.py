"""The networks of `model_zoo.py` written with `mlx.nn`: images are NHWC, and weights are those of the other sides."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
import numpy as np
from mlx.utils import tree_map
from model_zoo import Row, Sizes


class Weights:
    """Layers of `mlx.nn` with the numbers of a state in PyTorch's names."""

    def __init__(self, state: dict[str, np.ndarray]) -> None:
        self.state = state

    def of(self, name: str) -> mx.array | None:
        """An array, if there is one of this name."""
        found = self.state.get(name)
        return None if found is None else mx.array(found)

    def linear(self, name: str) -> nn.Linear:
        """A linear layer."""
        w, b = self.of(f"{name}.weight"), self.of(f"{name}.bias")
        layer = nn.Linear(w.shape[1], w.shape[0], bias=b is not None)
        layer.weight = w
        if b is not None:
            layer.bias = b
        return layer

    def conv(self, name: str, stride: int = 1, padding: int = 0) -> nn.Conv2d:
        """A convolution."""
        w, b = self.of(f"{name}.weight"), self.of(f"{name}.bias")
        size = (w.shape[2], w.shape[3])
        layer = nn.Conv2d(w.shape[1], w.shape[0], size, stride=stride, padding=padding, bias=b is not None)
        layer.weight = mx.contiguous(w.transpose(0, 2, 3, 1))
        if b is not None:
            layer.bias = b
        return layer

    def conv_transposed(self, name: str, stride: int) -> nn.ConvTranspose2d:
        """A transposed convolution."""
        w = self.of(f"{name}.weight")
        layer = nn.ConvTranspose2d(w.shape[0], w.shape[1], (w.shape[2], w.shape[3]), stride=stride)
        layer.weight = mx.contiguous(w.transpose(1, 2, 3, 0))
        layer.bias = self.of(f"{name}.bias")
        return layer

    def norm(self, name: str, kind: Callable[[int], Any]) -> Any:
        """A normalisation."""
        layer = kind(self.state[f"{name}.weight"].shape[0])
        layer.weight, layer.bias = self.of(f"{name}.weight"), self.of(f"{name}.bias")
        return layer


class Block(nn.Module):
    """A transformer block."""

    def __init__(self, take: Weights, name: str, s: Sizes, causal: bool) -> None:
        super().__init__()
        self.norm1, self.norm2 = take.norm(f"{name}.norm1", nn.LayerNorm), take.norm(f"{name}.norm2", nn.LayerNorm)
        self.inward, self.outward = take.linear(f"{name}.inward"), take.linear(f"{name}.outward")
        self.wide, self.narrow = take.linear(f"{name}.wide"), take.linear(f"{name}.narrow")
        self.heads, self.causal = s.heads, causal

    def __call__(self, x: mx.array) -> mx.array:
        b, t, c = x.shape
        qkv = self.inward(self.norm1(x)).reshape(b, t, 3, self.heads, c // self.heads).transpose(2, 0, 3, 1, 4)
        scale = (c // self.heads) ** -0.5
        mask = "causal" if self.causal else None
        seen = mx.fast.scaled_dot_product_attention(qkv[0], qkv[1], qkv[2], scale=scale, mask=mask)
        x = x + self.outward(seen.transpose(0, 2, 1, 3).reshape(b, t, c))
        return x + self.narrow(nn.gelu_approx(self.wide(self.norm2(x))))


class GPT(nn.Module):
    """See `model_zoo.gpt`."""

    def __init__(self, take: Weights, s: Sizes) -> None:
        super().__init__()
        self.word, self.place = take.of("word.weight"), take.of("place.weight")
        self.blocks = [Block(take, f"blocks.{i}", s, True) for i in range(s.depth)]
        self.norm, self.classes = take.norm("norm", nn.LayerNorm), s.classes

    def __call__(self, x: mx.array) -> mx.array:
        y = self.word[x] + self.place[: x.shape[1]]
        for block in self.blocks:
            y = block(y)
        return (self.norm(y) @ self.word.T).reshape(-1, self.classes)


class ViT(nn.Module):
    """See `model_zoo.vit`."""

    def __init__(self, take: Weights, s: Sizes) -> None:
        super().__init__()
        self.patches = take.conv("patches", stride=take.state["patches.weight"].shape[2])
        self.place = take.of("place")
        self.blocks = [Block(take, f"blocks.{i}", s, False) for i in range(s.depth)]
        self.norm, self.head = take.norm("norm", nn.LayerNorm), take.linear("head")

    def __call__(self, x: mx.array) -> mx.array:
        y = self.patches(x)
        y = y.reshape(y.shape[0], -1, y.shape[-1]) + self.place
        for block in self.blocks:
            y = block(y)
        return self.head(self.norm(y).mean(1))


class Basic(nn.Module):
    """A residual block."""

    def __init__(self, take: Weights, name: str, stride: int) -> None:
        super().__init__()
        self.conv1, self.conv2 = take.conv(f"{name}.conv1", stride, 1), take.conv(f"{name}.conv2", 1, 1)
        self.norm1, self.norm2 = take.norm(f"{name}.norm1", nn.BatchNorm), take.norm(f"{name}.norm2", nn.BatchNorm)
        self.short = []
        if f"{name}.short.0.weight" in take.state:
            self.short = [take.conv(f"{name}.short.0", stride), take.norm(f"{name}.short.1", nn.BatchNorm)]

    def __call__(self, x: mx.array) -> mx.array:
        y = nn.relu(self.norm1(self.conv1(x)))
        for layer in self.short:
            x = layer(x)
        return nn.relu(self.norm2(self.conv2(y)) + x)


class ResNet(nn.Module):
    """See `model_zoo.resnet18`."""

    def __init__(self, take: Weights, s: Sizes) -> None:
        super().__init__()
        self.large = s.side >= 64
        self.conv = take.conv("0", 2, 3) if self.large else take.conv("0", 1, 1)
        self.norm = take.norm("1", nn.BatchNorm)
        first = 4 if self.large else 3
        strides = [1, 1, 2, 1, 2, 1, 2, 1]
        self.blocks = [Basic(take, str(first + i), stride) for i, stride in enumerate(strides)]
        self.head = take.linear(str(first + 10))
        self.pool = nn.MaxPool2d(3, stride=2, padding=1)

    def __call__(self, x: mx.array) -> mx.array:
        x = nn.relu(self.norm(self.conv(x)))
        if self.large:
            x = self.pool(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x.mean((1, 2)))


class Recurrent(nn.Module):
    """See `model_zoo.recurrent`."""

    def __init__(self, take: Weights, s: Sizes, kind: Callable[..., Any]) -> None:
        super().__init__()
        self.layers = []
        for i in range(s.depth):
            layer = kind(s.width, s.width)
            layer.Wx, layer.Wh = take.of(f"rnn.weight_ih_l{i}"), take.of(f"rnn.weight_hh_l{i}")
            bias, other = take.of(f"rnn.bias_ih_l{i}"), take.of(f"rnn.bias_hh_l{i}")
            if kind is nn.LSTM:
                layer.bias = bias + other
            else:
                # The candidate's second bias stays by itself.
                n = 2 * s.width
                layer.b, layer.bhn = mx.concatenate([bias[:n] + other[:n], bias[n:]]), other[n:]
            self.layers.append(layer)
        self.head = take.linear("head")

    def __call__(self, x: mx.array) -> mx.array:
        for layer in self.layers:
            x = layer(x)
            x = x[0] if isinstance(x, tuple) else x
        return self.head(x[:, -1])


class MLP(nn.Module):
    """See `model_zoo.mlp`."""

    def __init__(self, take: Weights, s: Sizes) -> None:
        super().__init__()
        self.layers = [take.linear(str(2 * i)) for i in range(s.depth + 1)]

    def __call__(self, x: mx.array) -> mx.array:
        for layer in self.layers[:-1]:
            x = nn.relu(layer(x))
        return self.layers[-1](x)


class LeNet(nn.Module):
    """See `model_zoo.lenet`."""

    def __init__(self, take: Weights, s: Sizes) -> None:
        super().__init__()
        self.conv1, self.conv2 = take.conv("0", padding=2), take.conv("3")
        self.linears = [take.linear(name) for name in ("7", "9", "11")]
        self.pool = nn.MaxPool2d(2)

    def __call__(self, x: mx.array) -> mx.array:
        x = self.pool(nn.relu(self.conv1(x)))
        x = self.pool(nn.relu(self.conv2(x))).transpose(0, 3, 1, 2).reshape(x.shape[0], -1)
        for layer in self.linears[:-1]:
            x = nn.relu(layer(x))
        return self.linears[-1](x)


class UNet(nn.Module):
    """See `model_zoo.unet`."""

    def __init__(self, take: Weights, s: Sizes) -> None:
        super().__init__()

        def group(width: int) -> nn.GroupNorm:
            return nn.GroupNorm(8, width, pytorch_compatible=True)

        def stage(name: str) -> list[Any]:
            return [
                take.conv(f"{name}.0", padding=1),
                take.norm(f"{name}.1", group),
                take.conv(f"{name}.3", padding=1),
                take.norm(f"{name}.4", group),
            ]

        self.down = [stage(f"down.{i}") for i in range(s.depth)]
        self.up = [take.conv_transposed(f"up.{i}", 2) for i in range(s.depth - 1)]
        self.join = [stage(f"join.{i}") for i in range(s.depth - 1)]
        self.head, self.pool = take.conv("head"), nn.MaxPool2d(2)

    def _stage(self, layers: list[Any], x: mx.array) -> mx.array:
        for conv, norm in (layers[:2], layers[2:]):
            x = nn.silu(norm(conv(x)))
        return x

    def __call__(self, x: mx.array) -> mx.array:
        kept = []
        for i, down in enumerate(self.down):
            x = self._stage(down, x if i == 0 else self.pool(x))
            kept.append(x)
        for up, join, skip in zip(self.up, self.join, reversed(kept[:-1]), strict=True):
            x = self._stage(join, mx.concatenate([up(x), skip], -1))
        return self.head(x)


MODELS: dict[str, Callable[[Weights, Sizes], nn.Module]] = {
    "GPT-2": GPT,
    "GPT-2 bf16": GPT,
    "ResNet-18": ResNet,
    "LSTM": lambda take, s: Recurrent(take, s, nn.LSTM),
    "GRU": lambda take, s: Recurrent(take, s, nn.GRU),
    "MLP": MLP,
    "LeNet": LeNet,
    "ViT-S": ViT,
    "U-Net": UNet,
}


def make(
    name: str, row: Row, sizes: Sizes, state: dict[str, np.ndarray], compiled: bool
) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """A row's step, and what must be evaluated after it. MLX has no autocast: there all weights are bfloat16."""
    model = MODELS[name](Weights(state), sizes)
    if row.autocast:
        model.update(tree_map(lambda p: p.astype(mx.bfloat16), model.parameters()))
    kind = optim.AdamW if row.optimizer == "AdamW" else optim.Adam
    optimizer = kind(1e-4, bias_correction=True)
    x, y = (mx.array(a) for a in row.batch(sizes))
    if x.ndim == 4:
        x = mx.contiguous(x.transpose(0, 2, 3, 1))
    if row.autocast and x.dtype == mx.float32:
        x = x.astype(mx.bfloat16)
    mx.eval(x, y, model.parameters())

    def loss_of(model: nn.Module, x: mx.array, y: mx.array) -> mx.array:
        return nn.losses.cross_entropy(model(x).astype(mx.float32), y, reduction="mean")

    value_and_grad = nn.value_and_grad(model, loss_of)

    def step() -> mx.array:
        loss, grads = value_and_grad(model, x, y)
        optimizer.update(model, grads)
        return loss

    kept = [model.state, optimizer.state]
    run = mx.compile(step, inputs=kept, outputs=kept) if compiled else step
    return run, lambda: kept
