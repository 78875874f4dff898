"""The networks whose training steps are measured, for this project and PyTorch alike: `lib` is either."""

from __future__ import annotations

from typing import Any


def lenet(lib: Any) -> Any:
    """LeNet-5 for 28x28 images."""
    nn = lib.nn
    return nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(400, 120),
        nn.ReLU(),
        nn.Linear(120, 84),
        nn.ReLU(),
        nn.Linear(84, 10),
    )


def mlp(lib: Any) -> Any:
    """784-256-10."""
    return lib.nn.Sequential(lib.nn.Linear(784, 256), lib.nn.ReLU(), lib.nn.Linear(256, 10))


def block(lib: Any) -> Any:
    """A transformer block of width 128 with four heads and a hidden layer of 512, for (16, 64, 128) inputs."""
    nn = lib.nn

    class Block(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(128), nn.LayerNorm(128)
            self.inward, self.outward = nn.Linear(128, 384), nn.Linear(128, 128)
            self.wide, self.narrow = nn.Linear(128, 512), nn.Linear(512, 128)

        def forward(self, x: Any) -> Any:
            b, t, c = x.shape
            q, k, v = self.inward(self.norm1(x)).reshape(b, t, 3, 4, c // 4).permute(2, 0, 3, 1, 4).unbind(0)
            seen = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.outward(seen.transpose(1, 2).reshape(b, t, c))
            return x + self.narrow(nn.functional.gelu(self.wide(self.norm2(x))))

    return Block()
