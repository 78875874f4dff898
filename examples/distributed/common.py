"""What the examples of several processes share: digits, a network, training, and one process to compare with."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lucid
import lucid.distributed as dist
from lucid import Tensor, nn

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

BATCH = 64


def arguments(doc: str) -> argparse.Namespace:
    """The command line."""
    p = argparse.ArgumentParser(description=doc.split("\n")[0])
    p.add_argument("--device", default="cpu", help="cpu or gpu")
    p.add_argument("--steps", type=int, default=60)
    return p.parse_args()


def digits(device: str) -> tuple[Tensor, Tensor]:
    """The scans, as rows of 64 numbers, and what they show."""
    from digits import load

    data = load(size=8)
    x = lucid.from_numpy(data["train_x"]).reshape(-1, 64)
    return x.to(device), lucid.from_numpy(data["train_y"]).to(device)


def network() -> nn.Sequential:
    """The same network wherever it is made."""
    lucid.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 10))


def optimizer(params: Any) -> lucid.optim.Optimizer:
    """The optimizer of all examples."""
    return lucid.optim.Adam(params, lr=2e-3)


def batches(x: Tensor, y: Tensor, steps: int) -> Any:
    """The batches of all processes together, in one order."""
    for step in range(steps):
        at = step * BATCH % (len(x) - BATCH)
        yield x[at : at + BATCH], y[at : at + BATCH]


def train(net: nn.Module, opt: Any, args: argparse.Namespace, part: Callable[[Tensor], Tensor]) -> float:
    """Trains on this process's part of each batch; the last loss."""
    loss = lucid.zeros(())
    for x, y in batches(*digits(args.device), args.steps):
        opt.zero_grad()
        loss = nn.functional.cross_entropy(net(part(x)), part(y))
        loss.backward()
        opt.step()
    return float(loss.item())


def rank_part(t: Tensor) -> Tensor:
    """This process's rows of a batch."""
    return t.chunk(dist.get_world_size())[dist.get_rank()]


def compare(title: str, loss: float, args: argparse.Namespace) -> None:
    """Prints the loss beside that of one process, and fails where they differ."""
    if dist.get_rank() == 0:
        net = network().to(args.device)
        alone = train(net, optimizer(net.parameters()), args, lambda t: t)
        print(f"{title}, {dist.get_world_size()} processes: loss {loss:.6f}; one process: {alone:.6f}", flush=True)
        if abs(loss - alone) > 1e-3 * max(1.0, alone):
            raise SystemExit("the losses differ")
    dist.barrier()
    dist.destroy_process_group()


def mean(loss: float) -> float:
    """The mean of all processes' losses."""
    t = lucid.tensor(loss, dtype=lucid.float64, device="cpu")
    dist.all_reduce(t, dist.ReduceOp.AVG)
    return float(t.item())
