"""All that is measured on a GPU, in one call: LeNet against raw MLX, `mlx.nn` and PyTorch on CUDA; what a call costs.

    python bench/gpu.py FILE [--seconds 60]

Writes one JSON object to FILE: the results of `lenet_overhead.py` for batches of 64 and 1, those of `dispatch.py` on
the GPU device, and PyTorch's times for the same LeNet on CUDA where it finds one. Prints the tables as they are made.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import dispatch
import lenet_overhead
import torch
from nets import lenet
from timing import Case, Variant, measure


def _pytorch(batch: int, seconds: float) -> dict[str, float]:
    """Medians in microseconds of PyTorch's eager LeNet on CUDA, each run to its end."""
    model = lenet(torch).cuda()
    optimizer = torch.optim.Adam(model.parameters(), fused=True)
    x, y = torch.randn(batch, 1, 28, 28, device="cuda"), torch.arange(batch, device="cuda") % 10

    def forward() -> None:
        with torch.no_grad():
            model(x)
        torch.cuda.synchronize()

    def step() -> None:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        torch.cuda.synchronize()

    turns = {"forward": Variant(forward, lambda _: None), "adam step": Variant(step, lambda _: None)}
    measure([Case("PyTorch", dict(turns))], seconds, least=20)
    return {name: turn.median for name, turn in turns.items()}


def main() -> None:
    """Reads the command line, measures, prints, writes."""
    parser = argparse.ArgumentParser(description="All that is measured on a GPU.")
    parser.add_argument("file", type=Path, metavar="FILE", help="where the JSON goes")
    parser.add_argument("--seconds", type=float, default=60, help="how long to measure, about")
    args = parser.parse_args()
    share = args.seconds / 4
    result: dict[str, Any] = {"benchmark": "gpu"}
    for batch in (64, 1):
        found = lenet_overhead.profile("gpu", batch, share)
        if torch.cuda.is_available():
            found["pytorch_us"] = _pytorch(batch, 2)
        result[f"lenet batch {batch}"] = found
        print(lenet_overhead.show(found))
        print(f"PyTorch on CUDA: {found.get('pytorch_us', 'not there')}\n", flush=True)
        args.file.write_text(json.dumps(result))
    result["dispatch"] = dispatch.profile("^gpu", share)
    print(dispatch.show(result["dispatch"]))
    args.file.write_text(json.dumps(result))


if __name__ == "__main__":
    main()
