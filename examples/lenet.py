"""Trains LeNet-5 on handwritten digits, on the CPU or on the GPU device.

    python examples/lenet.py --device cpu|gpu [--epochs N] [--batch N] [--seed N] [--json] [--png FILE]

The digits are the 1,797 real scans that ship inside scikit-learn, with a held-out test part (see `digits.py`). With
`--json` the last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import sys
import time
from collections.abc import Iterable, Iterator
from typing import Any

import digits
import lucid
import lucid.nn.functional as F
from lucid import nn, optim

RATE = 4e-3


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


def batches(
    x: lucid.Tensor, y: lucid.Tensor, size: int, shifts: random.Random
) -> Iterator[tuple[lucid.Tensor, lucid.Tensor]]:
    """All examples once, in random order, `size` at a time, each batch shifted by up to two pixels."""
    order = lucid.randperm(len(x), device=x.device)
    for start in range(0, len(x), size):
        pick = order[start : start + size]
        yield x[pick].roll((shifts.randint(-2, 2), shifts.randint(-2, 2)), (2, 3)), y[pick]


def accuracy(model: nn.Module, x: lucid.Tensor, y: lucid.Tensor) -> float:
    """The share of examples that the model gets right."""
    model.eval()
    with lucid.no_grad():
        right = (model(x).argmax(1) == y).float().mean().item()
    model.train()
    return float(right)


def progress(steps: Iterable[Any], count: int, title: str) -> Iterator[Any]:
    """Shows a bar while the steps are gone through; on a terminal only."""
    if not sys.stderr.isatty():
        yield from steps
        return
    try:
        from tqdm import tqdm
    except ImportError:
        for i, step in enumerate(steps, 1):
            done = 30 * i // count
            print(f"\r{title} [{'#' * done}{'.' * (30 - done)}] {i}/{count}", end="", file=sys.stderr, flush=True)
            yield step
        print("\r\033[K", end="", file=sys.stderr)
    else:
        yield from tqdm(steps, title, count, leave=False)


def plot(history: list[dict[str, float]], device: str, path: str) -> None:
    """Draws loss and accuracy per epoch."""
    from matplotlib.figure import Figure

    epochs = [h["epoch"] for h in history]
    figure = Figure(figsize=(7, 3), layout="constrained")
    left, right = figure.subplots(1, 2)
    left.plot(epochs, [h["loss"] for h in history], marker="o")
    left.set(title=f"LeNet-5 on {device}: training loss", xlabel="epoch", ylabel="cross-entropy", yscale="log")
    right.plot(epochs, [h["accuracy"] for h in history], marker="o", color="tab:green")
    right.axhline(0.97, color="grey", linewidth=0.8, linestyle="--")
    right.set(title="test accuracy", xlabel="epoch", ylim=(min(0.8, *(h["accuracy"] for h in history)), 1))
    for axes in (left, right):
        axes.grid(alpha=0.3)
    figure.savefig(path, dpi=120)


def train(device: str, epochs: int, batch: int, seed: int) -> dict[str, Any]:
    """Trains a LeNet, showing how it goes, and gives what `--json` prints."""
    lucid.manual_seed(seed)
    data = {name: lucid.tensor(array, device=device) for name, array in digits.load().items()}
    model = LeNet().to(device)
    optimizer = optim.Adam(model.parameters(), lr=RATE)
    shifts = random.Random(seed)
    count = -(-len(data["train_x"]) // batch)
    steps = 0
    history: list[dict[str, float]] = []
    start = time.perf_counter()
    for epoch in range(1, epochs + 1):
        total = 0.0
        shuffled = batches(data["train_x"], data["train_y"], batch, shifts)
        for x, y in progress(shuffled, count, f"epoch {epoch}/{epochs}"):
            # Half a cosine from the full rate down to nothing.
            optimizer.param_groups[0]["lr"] = RATE * (1 + math.cos(math.pi * steps / (epochs * count))) / 2
            steps += 1
            loss = F.cross_entropy(model(x), y)
            loss.eval()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() * len(x)
        mean, right = total / len(data["train_x"]), accuracy(model, data["test_x"], data["test_y"])
        history.append({"epoch": epoch, "loss": mean, "accuracy": right})
        passed = time.perf_counter() - start
        print(f"epoch {epoch}/{epochs}  loss {mean:.4f}  test accuracy {right:.4f}  {passed:.1f} s", flush=True)
    return {
        "device": str(data["train_x"].device),
        "accuracy": history[-1]["accuracy"],
        "loss": history[-1]["loss"],
        "seconds": round(time.perf_counter() - start, 3),
        "epochs": epochs,
        "batch": batch,
        "seed": seed,
        "parameters": sum(p.numel() for p in model.parameters()),
        "history": history,
    }


def main() -> None:
    """Reads the command line and trains."""
    parser = argparse.ArgumentParser(description="Trains LeNet-5 on handwritten digits.")
    parser.add_argument("--device", default="cpu", help="cpu, or gpu (metal, cuda, or MLX without a GPU)")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    parser.add_argument("--png", metavar="FILE", help="draw loss and accuracy per epoch")
    args = parser.parse_args()
    if args.epochs < 1 or args.batch < 1:
        parser.error("--epochs and --batch must be at least 1")
    result = train(args.device, args.epochs, args.batch, args.seed)
    print(f"{result['device']}: test accuracy {result['accuracy']:.4f} after {result['seconds']:.1f} s")
    if args.png:
        plot(result["history"], result["device"], args.png)
    if args.json:
        print(json.dumps(result))


if __name__ == "__main__":
    main()
