"""Solves the adding problem with an LSTM: the sum of the two marked numbers of a long sequence.

    python examples/lstm.py --device cpu|gpu [--quick] [--length N] [--plot FILE] [--json] …

Each step of a sequence is a number in [0, 1) and a mark; two numbers are marked, one in each half, and their sum is
asked for at the end (Hochreiter and Schmidhuber, 1997). Who does not remember can only say 1, at a mean squared error
of 1/6; a network counts as having solved the problem where its error on new sequences is a tenth of that or less.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import lucid
import lucid.nn.functional as F
from harness import Run, parser
from lucid import nn, optim
from lucid.utils.data import TensorDataset

# The variance of the sum of two numbers that are uniform in [0, 1).
BASELINE = 1 / 6


class Adder(nn.Module):
    """An LSTM and a linear map of its last state: (N, L, 2) to (N,)."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(2, hidden, batch_first=True)
        self.head = nn.Linear(hidden, 1)
        with lucid.no_grad():
            # A forget gate that starts open, so that early marks have gradients (Gers et al., 2000).
            self.lstm.bias_ih_l0[hidden : 2 * hidden] = 1.0

    def forward(self, x: lucid.Tensor) -> lucid.Tensor:
        states, _ = self.lstm(x)
        return self.head(states[:, -1]).squeeze(1)


def sequences(count: int, length: int) -> TensorDataset:
    """Sequences (count, length, 2) of numbers and marks, and the sums (count,)."""
    numbers = lucid.rand(count, length)
    half = length // 2
    first, second = lucid.randint(0, half, (count, 1)), lucid.randint(half, length, (count, 1))
    marks = lucid.zeros(count, length).scatter(1, lucid.cat([first, second], 1), 1.0)
    return TensorDataset(lucid.stack([numbers, marks], 2), (numbers * marks).sum(1))


def main(argv: Sequence[str] | None = None) -> dict[str, Any]:
    """Trains the network on new sequences and gives what `--json` prints."""
    args = parser(
        "Adding problem",
        __doc__,
        epochs=(20, 12),
        batch=(32, 16),
        length=(30, 8),
        hidden=(32, 32),
        sequences=(3200, 1024),
    ).parse_args(argv)
    run = Run(args)
    train, test = sequences(args.sequences, args.length), sequences(512, args.length)
    loader = run.loader(train)
    model = Adder(args.hidden).to(run.device)
    optimizer = optim.Adam(model.parameters(), lr=5e-3)
    scheduler = optim.lr_scheduler.CosineAnnealingLR(optimizer, args.epochs * len(loader))
    run.track(model=model, optimizer=optimizer, scheduler=scheduler)
    for _ in run.epochs():
        for x, y in run.batches(loader):
            loss = F.mse_loss(model(x), y)
            loss.eval()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            run.record(loss)
        with lucid.no_grad():
            x, y = (part.to(run.device) for part in test.tensors)
            run.report(test_error=F.mse_loss(model(x), y).item())
    error = run.history[-1]["test_error"]
    solved = error <= BASELINE / 10
    print(f"error on new sequences {error:.4f}, without memory {BASELINE:.4f}: {'solved' if solved else 'not solved'}")
    return run.finish(solved=solved)


if __name__ == "__main__":
    main()
