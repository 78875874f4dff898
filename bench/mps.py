"""Forward passes and training steps of three models on the GPU device, beside PyTorch on the same machine's GPU.

    python bench/mps.py [--device gpu] [--seconds 40] [--json]

PyTorch's side is on `mps` or `cuda`, and on its CPU device where it has neither; it is left out where PyTorch is not
installed. A second, identical PyTorch side is the control. Both start from the same parameters and must agree before
anything is timed.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from typing import Any

import lucid
import nets
import numpy as np
from timing import Case, Variant, measure, table

try:
    import torch
except ImportError:
    torch = None

# The model, its input's shape, and whether it is trained as a classifier or to give its input back.
MODELS: dict[str, tuple[Callable[[Any], Any], tuple[int, ...], bool]] = {
    "lenet, batch 64": (nets.lenet, (64, 1, 28, 28), True),
    "mlp, batch 256": (nets.mlp, (256, 784), True),
    "transformer block, 16 x 64 x 128": (nets.block, (16, 64, 128), False),
}


def peer_device() -> str | None:
    """Where PyTorch computes."""
    if torch is None:
        return None
    if torch.backends.mps.is_available():
        return "mps"
    return "cuda" if torch.cuda.is_available() else "cpu"


def numbers(model: Any) -> dict[str, np.ndarray]:
    """A model's parameters."""
    return {name: p.detach().cpu().numpy() for name, p in model.named_parameters()}


class Side:
    """A model in one library, on one device."""

    def __init__(self, lib: Any, device: str, made: Any, x: np.ndarray, y: np.ndarray | None) -> None:
        self.lib = lib
        self.model = made.to(device)
        self.optimizer = lib.optim.SGD(self.model.parameters(), lr=1e-3)
        self.x = lib.from_numpy(x).to(device)
        self.y = self.x if y is None else lib.from_numpy(y).to(device)
        self.loss = lib.nn.functional.mse_loss if y is None else lib.nn.functional.cross_entropy
        self.device = device

    def forward(self) -> Any:
        """The model's output, nothing recorded."""
        with self.lib.no_grad():
            return self.model(self.x)

    def step(self) -> Any:
        """A training step's loss."""
        self.optimizer.zero_grad()
        loss = self.loss(self.model(self.x), self.y)
        loss.backward()
        self.optimizer.step()
        return loss

    def finish(self, made: Any) -> None:
        """Wait for it."""
        if self.lib is lucid:
            lucid.eval(made, *self.model.parameters())
        elif self.device == "mps":
            torch.mps.synchronize()
        elif self.device == "cuda":
            torch.cuda.synchronize()

    def variants(self) -> dict[str, Variant]:
        """What is timed."""
        return {"forward": Variant(self.forward, self.finish), "step": Variant(self.step, self.finish)}


def sides(name: str, device: str) -> dict[str, Side]:
    """A model on each side, from one set of parameters."""
    build, shape, classes = MODELS[name]
    rng = np.random.default_rng(0)
    x = rng.standard_normal(shape).astype(np.float32)
    y = rng.integers(0, 10, shape[0]) if classes else None
    ours = build(lucid)
    made = {"ours": Side(lucid, device, ours, x, y)}
    where = peer_device()
    given = numbers(ours)
    for peer in ("peer", "control") if where else ():
        model = build(torch)
        model.load_state_dict({k: torch.tensor(v) for k, v in given.items()})
        made[peer] = Side(torch, str(where), model, x, y)
    if where:
        first, second = (made[s].forward().detach().cpu().numpy() for s in ("ours", "peer"))
        np.testing.assert_allclose(first, second, rtol=2e-3, atol=2e-3)
    return made


def profile(device: str, seconds: float) -> dict[str, Any]:
    """All rows."""
    cases = []
    for name in MODELS:
        found = {side: made.variants() for side, made in sides(name, device).items()}
        cases += [Case(f"{name}: {what}", {s: v[what] for s, v in found.items()}) for what in ("forward", "step")]
    measure(cases, seconds)
    rows = []
    for case in cases:
        row: dict[str, Any] = {"name": case.name, "ours_us": case.variants["ours"].median}
        if "peer" in case.variants:
            peer = case.variants["peer"].median
            row |= {"peer_us": peer, "ratio": row["ours_us"] / peer, "control": case.variants["control"].median / peer}
        rows.append(row)
    peer_name = f"PyTorch {torch.__version__} on {peer_device()}" if torch is not None else None
    return {"benchmark": "mps", "device": str(lucid.device(device)), "peer": peer_name, "rows": rows}


def show(found: dict[str, Any]) -> str:
    """The rows as a table."""
    lines = []
    for row in found["rows"]:
        rest = (
            [f"{row['peer_us']:.0f}", f"{row['ratio']:.2f}", f"{row['control']:.2f}"] if "ratio" in row else ["-"] * 3
        )
        lines.append([row["name"], f"{row['ours_us']:.0f}", *rest])
    return table(["model", "ours us", "PyTorch us", "ours/PyTorch", "control"], lines)


def main() -> None:
    """Reads the command line, measures, prints."""
    parser = argparse.ArgumentParser(description="Models on the GPU device beside PyTorch.")
    parser.add_argument("--device", default="gpu", help="gpu, or its real name")
    parser.add_argument("--seconds", type=float, default=40, help="how long to measure, about")
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    args = parser.parse_args()
    found = profile(args.device, args.seconds)
    print(f"device {found['device']}; peer {found['peer']}\n{show(found)}")
    if args.json:
        print(json.dumps(found))


if __name__ == "__main__":
    main()
