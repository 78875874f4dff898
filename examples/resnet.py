"""Trains a small ResNet on handwritten digits that are turned, scaled and shifted anew each time they are shown.

    python examples/resnet.py --device cpu|gpu [--quick] [--width N] [--plot FILE] [--json] …

The digits are scikit-learn's, as scanned: 8 by 8. The default run is expected to get 98 % of the test part right, the
quick one 85 %.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import digits
import lucid
import lucid.nn.functional as F
from harness import Run, accuracy, parser
from lucid import nn, optim

SIZE = 8


class Block(nn.Module):
    """Two convolutions beside a shortcut (He et al., 2016): (N, before, H, W) to (N, width, H/stride, W/stride)."""

    def __init__(self, before: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(before, width, 3, stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(width)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or before != width:
            self.shortcut = nn.Sequential(nn.Conv2d(before, width, 1, stride, bias=False), nn.BatchNorm2d(width))

    def forward(self, x: lucid.Tensor) -> lucid.Tensor:
        y = F.relu(self.norm1(self.conv1(x)))
        y = self.norm2(self.conv2(y))
        return F.relu(y + self.shortcut(x))


class ResNet(nn.Sequential):
    """A stem, three blocks of growing width, and a linear map of their mean: (N, 1, H, W) to (N, 10)."""

    def __init__(self, width: int) -> None:
        super().__init__(
            nn.Conv2d(1, width, 3, padding=1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            Block(width, width, 1),
            Block(width, 2 * width, 2),
            Block(2 * width, 4 * width, 2),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(4 * width, 10),
        )


def augment(x: lucid.Tensor) -> lucid.Tensor:
    """Turns each image (N, C, H, W) by up to 15°, scales it by up to a tenth and shifts it by up to a pixel.

    What comes in from outside is as the image's edge, which is mostly paper.
    """

    def within(limit: float) -> lucid.Tensor:
        return (2 * lucid.rand(len(x), device=x.device) - 1) * limit

    angle, scale = within(math.pi / 12), 1 + within(0.1)
    cos, sin = scale * angle.cos(), scale * angle.sin()
    # The grid's coordinates go from -1 to 1 over the image, so a pixel is 2 / W of them.
    across, down = within(2 / x.shape[3]), within(2 / x.shape[2])
    theta = lucid.stack([lucid.stack([cos, -sin, across], 1), lucid.stack([sin, cos, down], 1)], 1)
    grid = F.affine_grid(theta, x.shape, align_corners=False)
    return F.grid_sample(x, grid, padding_mode="border", align_corners=False)


def main(argv: Sequence[str] | None = None) -> dict[str, Any]:
    """Trains a ResNet and gives what `--json` prints."""
    args = parser("ResNet", __doc__, epochs=(25, 3), batch=(64, 64), width=(16, 8)).parse_args(argv)
    run = Run(args)
    train, test = digits.datasets(SIZE)
    loader = run.loader(train)
    model = ResNet(args.width).to(run.device)
    # Weight decay is for the weights of maps, not for biases and norms.
    maps = [p for p in model.parameters() if p.dim() > 1]
    rest = [p for p in model.parameters() if p.dim() <= 1]
    groups = [{"params": maps, "weight_decay": 5e-4}, {"params": rest, "weight_decay": 0.0}]
    optimizer = optim.SGD(groups, lr=0.1, momentum=0.9, nesterov=True)
    scheduler = optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, total_steps=args.epochs * len(loader))
    run.track(model=model, optimizer=optimizer, scheduler=scheduler)
    for _ in run.epochs():
        for x, y in run.batches(loader):
            loss = F.cross_entropy(model(augment(x)), y)
            loss.eval()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            scheduler.step()
            run.record(loss)
        run.report(test_accuracy=accuracy(model, test, run.device))
    return run.finish()


if __name__ == "__main__":
    main()
