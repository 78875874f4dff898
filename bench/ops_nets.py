"""Networks of the kinds that programs train, small ones, for `ops_models.py`: `lib` is this project or PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

NETS: dict[str, Callable[[Any], Any]] = {}


def net(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Lists a network by its name."""
    NETS[function.__name__] = function
    return function


def residual(lib: Any, inputs: int, outputs: int, stride: int) -> Any:
    """A basic block of ResNet."""
    nn = lib.nn

    class Block(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
            self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
            self.norm1, self.norm2 = nn.BatchNorm2d(outputs), nn.BatchNorm2d(outputs)
            self.act = nn.ReLU(inplace=True)
            self.down = None
            if stride != 1 or inputs != outputs:
                self.down = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

        def forward(self, x: Any) -> Any:
            y = self.norm2(self.conv2(self.act(self.norm1(self.conv1(x)))))
            return self.act(y + (x if self.down is None else self.down(x)))

    return Block()


@net
def resnet18(lib: Any) -> Any:
    """ResNet-18 with the stem of ImageNet."""
    nn = lib.nn
    parts = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
    width = 64
    for outputs, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        parts += [residual(lib, width, outputs, stride), residual(lib, outputs, outputs, 1)]
        width = outputs
    return nn.Sequential(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10))


@net
def cifar_resnet(lib: Any) -> Any:
    """ResNet-8 for 32² images."""
    nn = lib.nn
    parts = [nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU()]
    parts += [residual(lib, 16, 16, 1), residual(lib, 16, 32, 2), residual(lib, 32, 64, 2)]
    return nn.Sequential(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))


@net
def mobilenet(lib: Any) -> Any:
    """Inverted residuals with ReLU6."""
    nn = lib.nn

    def inverted(inputs: int, outputs: int, stride: int) -> Any:
        wide = 4 * inputs
        return nn.Sequential(
            nn.Conv2d(inputs, wide, 1, bias=False),
            nn.BatchNorm2d(wide),
            nn.ReLU6(),
            nn.Conv2d(wide, wide, 3, stride, 1, groups=wide, bias=False),
            nn.BatchNorm2d(wide),
            nn.ReLU6(),
            nn.Conv2d(wide, outputs, 1, bias=False),
            nn.BatchNorm2d(outputs),
        )

    parts = [nn.Conv2d(3, 16, 3, 2, 1, bias=False), nn.BatchNorm2d(16), nn.Hardswish()]
    parts += [inverted(16, 24, 1), inverted(24, 32, 2), inverted(32, 64, 2)]
    return nn.Sequential(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))


@net
def efficientnet(lib: Any) -> Any:
    """Depthwise 5x5 with SiLU and squeeze and excitation."""
    nn = lib.nn

    class Squeeze(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self, n: int) -> None:
            super().__init__()
            self.pool = nn.AdaptiveAvgPool2d(1)
            self.down, self.up = nn.Conv2d(n, n // 4, 1), nn.Conv2d(n // 4, n, 1)
            self.act = nn.SiLU()

        def forward(self, x: Any) -> Any:
            return x * lib.sigmoid(self.up(self.act(self.down(self.pool(x)))))

    def part(n: int) -> list[Any]:
        wide = 4 * n
        return [
            nn.Conv2d(n, wide, 1, bias=False),
            nn.BatchNorm2d(wide),
            nn.SiLU(),
            nn.Conv2d(wide, wide, 5, 1, 2, groups=wide, bias=False),
            nn.BatchNorm2d(wide),
            nn.SiLU(),
            Squeeze(wide),
            nn.Conv2d(wide, n, 1, bias=False),
            nn.BatchNorm2d(n),
        ]

    stem = [nn.Conv2d(3, 24, 3, 2, 1, bias=False), nn.BatchNorm2d(24), nn.SiLU()]
    return nn.Sequential(*stem, *part(24), *part(24), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(24, 10))


@net
def convnext(lib: Any) -> Any:
    """Depthwise 7x7, a layer norm over channels, GELU."""
    nn = lib.nn

    class Block(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self, n: int) -> None:
            super().__init__()
            self.depth = nn.Conv2d(n, n, 7, padding=3, groups=n)
            self.norm = nn.LayerNorm(n)
            self.up, self.down = nn.Linear(n, 4 * n), nn.Linear(4 * n, n)
            self.act = nn.GELU()

        def forward(self, x: Any) -> Any:
            y = self.norm(self.depth(x).permute(0, 2, 3, 1))
            return x + self.down(self.act(self.up(y))).permute(0, 3, 1, 2)

    return nn.Sequential(
        nn.Conv2d(3, 48, 4, 4), Block(48), Block(48), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(48, 10)
    )


@net
def unet(lib: Any) -> Any:
    """Two levels, with transposed convolutions on the way up."""
    nn = lib.nn

    def double(inputs: int, outputs: int) -> Any:
        return nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, padding=1),
            nn.BatchNorm2d(outputs),
            nn.ReLU(),
            nn.Conv2d(outputs, outputs, 3, padding=1),
            nn.BatchNorm2d(outputs),
            nn.ReLU(),
        )

    class UNet(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second, self.bottom = double(3, 16), double(16, 32), double(32, 64)
            self.up2, self.up1 = nn.ConvTranspose2d(64, 32, 2, 2), nn.ConvTranspose2d(32, 16, 2, 2)
            self.left2, self.left1 = double(64, 32), double(32, 16)
            self.pool, self.last = nn.MaxPool2d(2), nn.Conv2d(16, 1, 1)

        def forward(self, x: Any) -> Any:
            a = self.first(x)
            b = self.second(self.pool(a))
            c = self.bottom(self.pool(b))
            y = self.left2(lib.cat([self.up2(c), b], 1))
            return self.last(self.left1(lib.cat([self.up1(y), a], 1)))

    return UNet()


@net
def generator(lib: Any) -> Any:
    """DCGAN's generator of 32² images."""
    nn = lib.nn
    parts = [nn.ConvTranspose2d(64, 128, 4, 1, 0, bias=False), nn.BatchNorm2d(128), nn.ReLU()]
    for inputs, outputs in ((128, 64), (64, 32)):
        parts += [nn.ConvTranspose2d(inputs, outputs, 4, 2, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()]
    return nn.Sequential(*parts, nn.ConvTranspose2d(32, 3, 4, 2, 1, bias=False), nn.Tanh())


@net
def discriminator(lib: Any) -> Any:
    """DCGAN's discriminator of 32² images."""
    nn = lib.nn
    parts = [nn.Conv2d(3, 32, 4, 2, 1), nn.LeakyReLU(0.2)]
    for inputs, outputs in ((32, 64), (64, 128)):
        parts += [nn.Conv2d(inputs, outputs, 4, 2, 1, bias=False), nn.BatchNorm2d(outputs), nn.LeakyReLU(0.2)]
    return nn.Sequential(*parts, nn.Conv2d(128, 1, 4), nn.Flatten())


@net
def autoencoder(lib: Any) -> Any:
    """784-128-16-128-784 with ELU."""
    nn = lib.nn
    return nn.Sequential(
        nn.Linear(784, 128), nn.ELU(), nn.Linear(128, 16), nn.ELU(), nn.Linear(16, 128), nn.ELU(), nn.Linear(128, 784)
    )


def recurrent(lib: Any, kind: str, layers: int, both: bool, outputs: int, last: bool) -> Any:
    """A recurrent layer and a linear one, of the last step or of all."""
    nn = lib.nn

    class Net(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self, inputs: int) -> None:
            super().__init__()
            self.rnn = getattr(nn, kind)(inputs, 64, layers, batch_first=True, bidirectional=both)
            self.head = nn.Linear(128 if both else 64, outputs)

        def forward(self, x: Any) -> Any:
            y = self.rnn(x)[0]
            return self.head(y[:, -1] if last else y)

    return Net(32 if last else 40)


@net
def lstm(lib: Any) -> Any:
    """Two layers of 64."""
    return recurrent(lib, "LSTM", 2, False, 10, True)


@net
def gru(lib: Any) -> Any:
    """One layer of 64."""
    return recurrent(lib, "GRU", 1, False, 10, True)


@net
def speech(lib: Any) -> Any:
    """An LSTM in both directions with classes at each step."""
    return recurrent(lib, "LSTM", 1, True, 30, False)


@net
def bag(lib: Any) -> Any:
    """Means of embeddings and a linear layer."""
    nn = lib.nn
    return nn.Sequential(nn.EmbeddingBag(5000, 64), nn.Linear(64, 4))


@net
def language(lib: Any) -> Any:
    """Embeddings and two transformer layers of 64."""
    nn = lib.nn

    class Language(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.tokens, self.places = nn.Embedding(500, 64), nn.Embedding(32, 64)
            layer = nn.TransformerEncoderLayer(64, 4, 128, 0.0, batch_first=True)
            self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
            self.head = nn.Linear(64, 500)

        def forward(self, x: Any) -> Any:
            y = self.tokens(x) + self.places(lib.arange(x.shape[1], device=x.device))
            return self.head(self.layers(y)).reshape(-1, 500)

    return Language()


@net
def vit(lib: Any) -> Any:
    """Patches of 8² and two transformer layers of 64."""
    nn = lib.nn

    class Vision(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.patches = nn.Conv2d(3, 64, 8, 8)
            layer = nn.TransformerEncoderLayer(64, 4, 128, 0.0, "gelu", batch_first=True, norm_first=True)
            self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
            self.head = nn.Linear(64, 10)

        def forward(self, x: Any) -> Any:
            return self.head(self.layers(self.patches(x).flatten(2).transpose(1, 2)).mean(1))

    return Vision()


@net
def mixer(lib: Any) -> Any:
    """Patches of 4², mixed over places and over channels."""
    nn = lib.nn

    class Mixer(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.patches = nn.Conv2d(3, 64, 4, 4)
            self.norm1, self.norm2 = nn.LayerNorm(64), nn.LayerNorm(64)
            self.places = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 64))
            self.channels = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 64))
            self.head = nn.Linear(64, 10)

        def forward(self, x: Any) -> Any:
            y = self.patches(x).flatten(2).transpose(1, 2)
            y = y + self.places(self.norm1(y).transpose(1, 2)).transpose(1, 2)
            y = y + self.channels(self.norm2(y))
            return self.head(y.mean(1))

    return Mixer()


@net
def policy(lib: Any) -> Any:
    """17-64-64-6 with tanh."""
    nn = lib.nn
    return nn.Sequential(nn.Linear(17, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 6))
