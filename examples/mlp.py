"""Fits a curve with a small network: the shortest whole training loop.

python examples/mlp.py [--device cpu|gpu]
"""

from __future__ import annotations

import argparse

import lucid
from lucid import nn, optim


def main() -> None:
    """Fits sin(3x) on [-1, 1] and says how well."""
    parser = argparse.ArgumentParser(description="Fits a curve with a small network.")
    parser.add_argument("--device", default="cpu")
    device = parser.parse_args().device

    lucid.manual_seed(0)
    x = lucid.linspace(-1, 1, 256, device=device).unsqueeze(1)
    y = lucid.sin(3 * x) + 0.05 * lucid.randn_like(x)
    model = nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1)).to(device)
    loss_of, optimizer = nn.MSELoss(), optim.AdamW(model.parameters(), lr=1e-2)
    for step in range(1, 501):
        loss = loss_of(model(x), y)
        loss.eval()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 100 == 0:
            print(f"step {step}  loss {loss.item():.5f}")
    with lucid.no_grad():
        error = (model(x) - lucid.sin(3 * x)).abs().max().item()
    print(f"largest distance from the curve: {error:.3f}")


if __name__ == "__main__":
    main()
