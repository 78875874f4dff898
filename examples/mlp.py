"""Fits a curve with a small network: the shortest whole training loop.

python examples/mlp.py [--device cpu|gpu] [--quick] …
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import lucid
from harness import Run, parser
from lucid import nn, optim
from lucid.utils.data import TensorDataset


def main(argv: Sequence[str] | None = None) -> dict[str, Any]:
    """Fits sin(3x) on [-1, 1] from noisy points and says how well."""
    run = Run(parser("Curve", __doc__, epochs=(60, 20), batch=(16, 16)).parse_args(argv))
    x = lucid.linspace(-1, 1, 256).unsqueeze(1)
    curve = lucid.sin(3 * x)
    loader = run.loader(TensorDataset(x, curve + 0.05 * lucid.randn_like(x)))
    model = nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1)).to(run.device)
    loss_of, optimizer = nn.MSELoss(), optim.AdamW(model.parameters(), lr=1e-2)
    scheduler = optim.lr_scheduler.CosineAnnealingLR(optimizer, run.args.epochs)
    run.track(model=model, optimizer=optimizer, scheduler=scheduler)
    for _ in run.epochs():
        for xs, ys in run.batches(loader):
            loss = loss_of(model(xs), ys)
            loss.eval()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            run.record(loss)
        scheduler.step()
        with lucid.no_grad():
            found = model(x.to(run.device)).to("cpu")
        run.report(largest_error=(found - curve).abs().max().item())
    return run.finish()


if __name__ == "__main__":
    main()
