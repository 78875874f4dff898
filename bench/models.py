"""Whole training steps of real models: Lucid, PyTorch and `mlx.nn`, each eager and compiled.

    python bench/models.py [--device cpu|gpu] [--compiled] [--only PATTERN] [--quick] [--seconds 10] [--json]
        [--sides LIST] [--threads 1]

A step is forward, loss, backward and optimizer. All sides begin with the same weights, take turns in one process, and
are timed until everything is evaluated; their losses are compared first. `control` is a second PyTorch eager side
(of Lucid's where PyTorch has no such device) over the first. Peak memory is of one more step of each side, by the
library's own count (of the GPU; of Lucid on the CPU too). How to read the table: `bench/README.md`.
"""

from __future__ import annotations

import argparse
import gc
import json
import re
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import lucid
import numpy as np
from model_zoo import ROWS, Row, Sizes, initial
from timing import Case, Variant, measure, table


@dataclass
class Side:
    """One library's way to do a row's step."""

    step: Callable[[], Any]
    loss: Callable[[Any], float]
    wait: Callable[[Any], None]
    peak: Callable[[Callable[[], Any]], float | None]


def make_step(lib: Any, row: Row, sizes: Sizes, state: dict[str, np.ndarray] | None, device: Any) -> tuple[Any, Any]:
    """The step of a library in PyTorch's idiom, and the network."""
    lib.manual_seed(0)
    model = row.model(lib, sizes)
    if state is not None:
        model.load_state_dict({k: lib.tensor(v) for k, v in state.items()})
    model.to(device)
    rate = 1e-4
    optimizer = getattr(lib.optim, row.optimizer)(model.parameters(), lr=rate)
    x, y = (lib.tensor(a).to(device) for a in row.batch(sizes))
    # What the step reads must not lead to what draws the batch: that would be no function of the graph's inputs.
    kind, autocast = str(lib.device(device).type), row.autocast

    def step() -> Any:
        optimizer.zero_grad()
        if autocast:
            with lib.autocast(kind, dtype=lib.bfloat16):
                loss = lib.nn.functional.cross_entropy(model(x), y)
        else:
            loss = lib.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return step, model


def lucid_side(row: Row, sizes: Sizes, state: dict[str, np.ndarray], device: str, compiled: bool) -> Side:
    """Lucid's."""
    step, model = make_step(lucid, row, sizes, state, device)
    run = lucid.compile(step) if compiled else step
    kind = lucid.device(device).type

    def wait(loss: Any) -> None:
        lucid.eval(loss, *model.parameters())

    def peak(work: Callable[[], Any]) -> float | None:
        place = "cpu" if kind == "cpu" else "gpu"
        lucid._C.reset_peak_memory_stats(place)
        wait(work())
        return float(lucid._C.memory_stats(place)["peak"])

    return Side(run, lambda loss: float(loss.item()), wait, peak)


def torch_side(row: Row, sizes: Sizes, state: dict[str, np.ndarray], device: str, compiled: bool) -> Side | None:
    """PyTorch's; `None` where it has no such device, or no compiler."""
    import torch

    if device != "cpu" and not torch.cuda.is_available():
        return None
    place = "cpu" if device == "cpu" else "cuda"
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    step, _ = make_step(torch, row, sizes, state, place)
    run = step
    if compiled:
        try:
            # Is there a compiler? The step itself would be one ahead of the other sides after a trial.
            torch.compile(lambda x: x + 1)(torch.ones(2, device=place))
            run = torch.compile(step)
        except Exception as error:
            print(f"torch.compile: {type(error).__name__}: {str(error).splitlines()[0][:80]}", file=sys.stderr)
            return None

    def wait(_: Any) -> None:
        if place == "cuda":
            torch.cuda.synchronize()

    def peak(work: Callable[[], Any]) -> float | None:
        if place == "cpu":
            return None
        torch.cuda.reset_peak_memory_stats()
        wait(work())
        return float(torch.cuda.max_memory_allocated())

    return Side(run, lambda loss: float(loss.item()), wait, peak)


def mlx_side(name: str, sizes: Sizes, state: dict[str, np.ndarray], device: str, compiled: bool) -> Side | None:
    """`mlx.nn`'s; `None` where there is no MLX, or no such network for it here."""
    if device == "cpu":
        return None
    try:
        import mlx.core as mx
        from mlx_zoo import make
    except ImportError:
        return None
    made = make(name, ROWS[name], sizes, state, compiled)
    if made is None:
        return None
    step, kept = made

    def wait(loss: Any) -> None:
        mx.eval(loss, kept())

    def peak(work: Callable[[], Any]) -> float | None:
        mx.reset_peak_memory()
        wait(work())
        return float(mx.get_peak_memory())

    return Side(step, lambda loss: float(loss.item()), wait, peak)


def sides_of(name: str, quick: bool, device: str, wanted: list[str]) -> dict[str, Side]:
    """The sides of a row, by name."""
    row = ROWS[name]
    sizes = row.quick if quick else row.full
    lucid.manual_seed(0)
    state = initial(row.model(lucid, sizes))
    makers: dict[str, Callable[[], Side | None]] = {
        "lucid": lambda: lucid_side(row, sizes, state, device, False),
        "lucid.compile": lambda: lucid_side(row, sizes, state, device, True),
        "torch": lambda: torch_side(row, sizes, state, device, False),
        "torch.compile": lambda: torch_side(row, sizes, state, device, True),
        "mlx.nn": lambda: mlx_side(name, sizes, state, device, False),
        "mx.compile": lambda: mlx_side(name, sizes, state, device, True),
    }
    found: dict[str, Side] = {}
    for side in wanted:
        try:
            made = makers[side]()
        except ImportError:
            made = None
        if made is not None:
            found[side] = made
    control = "torch" if "torch" in found else "lucid"
    if control in found:
        again = makers[control]()
        if again is not None:
            found["control"] = again
    return found


def check(name: str, sides: dict[str, Side], loose: bool) -> None:
    """Three steps of each side, whose losses must be the same."""
    losses: dict[str, list[float]] = {}
    for side, each in sides.items():
        losses[side] = []
        for _ in range(3):
            loss = each.step()
            each.wait(loss)
            losses[side].append(each.loss(loss))
    first = next(iter(losses))
    for side, got in losses.items():
        if not np.allclose(got, losses[first], rtol=0.05 if loose else 2e-3, atol=1e-3):
            raise RuntimeError(f"{name}: the losses of {side} are {got}, those of {first} {losses[first]}")


def main() -> None:
    """Times, and prints."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu", help="cpu, or the GPU device's name")
    parser.add_argument("--compiled", action="store_true", help="the compilers' sides, too")
    parser.add_argument("--only", default="", help="a regular expression of rows")
    parser.add_argument("--sides", default="", help="a list of sides, instead of all")
    parser.add_argument("--quick", action="store_true", help="small shapes, for a CPU")
    parser.add_argument("--seconds", type=float, default=10.0, help="per row")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    lucid.set_num_threads(options.threads)
    try:
        import torch

        torch.set_num_threads(options.threads)
    except ImportError:
        pass
    wanted = ["lucid", "torch", "mlx.nn"]
    if options.compiled:
        wanted = ["lucid", "lucid.compile", "torch", "torch.compile", "mlx.nn", "mx.compile"]
    if options.sides:
        wanted = options.sides.split(",")
    rows = []
    for name in ROWS:
        if not re.search(options.only, name):
            continue
        try:
            begun = time.perf_counter()
            rows.append(one(name, options, wanted))
            print(f"{name}: measured in {time.perf_counter() - begun:.0f} s", file=sys.stderr, flush=True)
        except Exception as error:  # One row that fails leaves the others.
            print(f"{name}: {type(error).__name__}: {error}", file=sys.stderr)
        gc.collect()
    columns = [*wanted, "control"]
    shown = []
    for row in rows:
        cells = [row["name"]]
        for side in columns:
            cells.append(f"{row['ms'][side]:.2f}" if side in row["ms"] else "")
        for side in wanted:
            peak = row["peak_bytes"].get(side)
            cells.append(f"{peak / 2**20:.0f}" if peak else "")
        shown.append(cells)
    print(table(["step", *[f"{c} ms" for c in columns], *[f"{c} MiB" for c in wanted]], shown))
    if options.json:
        print(json.dumps({"device": options.device, "threads": options.threads, "rows": rows}))


def one(name: str, options: argparse.Namespace, wanted: list[str]) -> dict[str, Any]:
    """A row's figures."""
    begun = time.perf_counter()
    sides = sides_of(name, options.quick, options.device, wanted)
    check(name, sides, ROWS[name].autocast)
    ready = time.perf_counter() - begun
    variants = {side: Variant(each.step, each.wait) for side, each in sides.items()}
    measure([Case(name, variants)], options.seconds, least=3, warmup=1)
    return {
        "name": name,
        "ms": {side: v.median / 1e3 for side, v in variants.items()},
        "least_ms": {side: min(v.total) / 1e3 for side, v in variants.items()},
        "peak_bytes": {side: sides[side].peak(each.step) for side, each in sides.items()},
        "ready_s": ready,
    }


if __name__ == "__main__":
    main()
