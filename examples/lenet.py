"""Trains LeNet-5 on handwritten digits, on the CPU or on the GPU device, in float32 or in mixed precision.

    python examples/lenet.py --device cpu|gpu [--quick] [--amp bfloat16|float16] [--plot FILE] [--json] …

The digits are the 1,797 real scans that ship inside scikit-learn, with a held-out test part (see `digits.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import digits
import lucid
import lucid.nn.functional as F
from harness import Run, accuracy, parser
from lucid import nn, optim


class LeNet(nn.Module):
    """LeNet-5 (LeCun et al., 1998) with ReLU and max-pooling: (N, 1, 28, 28) to (N, 10)."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 6, 5, padding=2)
        self.conv2 = nn.Conv2d(6, 16, 5)
        self.pool = nn.MaxPool2d(2)
        self.fc1 = nn.Linear(16 * 5 * 5, 120)
        self.fc2 = nn.Linear(120, 84)
        self.fc3 = nn.Linear(84, 10)

    def forward(self, x: lucid.Tensor) -> lucid.Tensor:
        x = self.pool(F.relu(self.conv1(x)))
        x = self.pool(F.relu(self.conv2(x)))
        x = F.relu(self.fc1(x.flatten(1)))
        x = F.relu(self.fc2(x))
        return self.fc3(x)


def main(argv: Sequence[str] | None = None) -> dict[str, Any]:
    """Trains a LeNet and gives what `--json` prints."""
    run = Run(parser("LeNet-5", __doc__, amp=True, epochs=(10, 2), batch=(64, 32)).parse_args(argv))
    train, test = digits.datasets()
    loader = run.loader(train)
    model = LeNet().to(run.device)
    optimizer = optim.Adam(model.parameters(), lr=4e-3)
    scheduler = optim.lr_scheduler.CosineAnnealingLR(optimizer, run.args.epochs * len(loader))
    # Scales the loss for float16 alone, whose smallest number gradients easily fall below.
    scaler = lucid.amp.GradScaler(run.device, enabled=run.args.amp == "float16")
    run.track(model=model, optimizer=optimizer, scheduler=scheduler, scaler=scaler)
    for _ in run.epochs():
        for x, y in run.batches(loader):
            # Each batch is shifted by up to two pixels.
            x = x.roll(lucid.randint(-2, 3, (2,)).tolist(), (2, 3))
            with run.autocast():
                loss = F.cross_entropy(model(x), y)
            loss.eval()
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            scheduler.step()
            run.record(loss)
        run.report(test_accuracy=accuracy(model, test, run.device))
    return run.finish()


if __name__ == "__main__":
    main()
