"""Every public function and layer of the op table on the CPU device, with PyTorch beside it in the same process.

    python bench/ops.py [--quick] [--only PATTERN] [--device cpu|gpu] [--threads 1] [--share 1/4] [--log FILE]
                        [--json FILE] [--check BASELINE]

The rows are made from the op table: each op's samples, their sizes multiplied until the largest tensor has 256, 64 K
or 1 M elements, forward and backward, in each dtype that counts and in two layouts. `ops_models.py` adds layers and
convolutions of published networks and whole training steps. With `--device gpu` the GPU device is measured
against our own CPU device. How to read the table: `bench/README.md`.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import sys
import time
import warnings
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "python"))

import lucid  # noqa: E402
import numpy as np  # noqa: E402
import samples  # noqa: E402
import torch  # noqa: E402
from ops_models import model_rows  # noqa: E402
from timing import Case, Clock, Turn, Work, calls_of, measure, table  # noqa: E402

SIZES = {"256": 256, "64K": 1 << 16, "1M": 1 << 20}
#: Ops whose work grows faster than their elements: of matrices up to this many.
CUBIC = {"linalg": 1 << 14, "factor": 1 << 14, "contract": 1 << 16, "matrix": 1 << 14}
#: What takes longer than this on either side with 16 K elements is not timed with a million.
TOO_LONG_S = 0.01
PROBE = 1 << 14
#: Nor is a row of which one call takes longer than this, in nanoseconds.
TOO_LONG_NS = 400_000_000
#: dtypes beside float32, each where the op takes it.
DTYPES = ("float16", "bfloat16", "float64", "int64", "complex64", "bool")
#: Above this times the recorded ratio `--check` reports a row.
WORSE = 1.3


@dataclass(frozen=True)
class Side:
    """A library on a device."""

    lib: Any
    device: str

    def tensor(self, values: np.ndarray, dtype: str | None = None) -> Any:
        """The numbers as a tensor, in another dtype if one is given."""
        made = self.lib.tensor(np.ascontiguousarray(values))
        if dtype is not None:
            made = made.to(getattr(self.lib, dtype))
        return made.to("gpu") if self.device == "gpu" else made

    def finished(self, work: Work) -> Work:
        """The work, until its results are there."""
        if self.device != "gpu":
            return work

        def evaluated() -> Any:
            made = work()
            lucid.eval(*[t for t in samples.results(made) if isinstance(t, lucid.Tensor)])
            return made

        return evaluated


@dataclass(frozen=True)
class Row:
    """A piece of work on any side."""

    name: str
    make: Callable[[Side], Work]
    #: Is it short enough to be timed?
    short: Callable[[tuple[Side, Side]], bool] = lambda sides: True


def grown(text: str, name: str, elements: int) -> samples.Sample | None:
    """A sample with its dimensions multiplied, so that its largest tensor has about so many elements."""

    def of(factor: float, only_shapes: bool) -> tuple[samples.Sample, int]:
        rng = np.random.default_rng(zlib.crc32(f"{name}({text})".encode()))
        plain = samples.makers(rng, False)
        most = 0

        def wide(n: int) -> int:
            return n if n <= 1 else max(1, round(n * factor))

        def maker(key: str) -> Callable[..., Any]:
            def make(*shape: Any, **options: Any) -> Any:
                nonlocal most
                if key == "I":
                    low, high, *rest = shape
                    grown_shape = [low, wide(high) if high > 2 else high, *map(wide, rest)]
                    most = max(most, math.prod(grown_shape[2:]))
                else:
                    grown_shape = [wide(n) for n in shape]
                    most = max(most, math.prod(grown_shape))
                if only_shapes:
                    return 0
                return plain[key](*grown_shape, **options)

            return make

        names = {
            key: maker(key) if key in "NPUIBW" or key in ("REG", "SYM", "SPD", "ORDER", "PERM") else f
            for key, f in plain.items()
        }
        if only_shapes:
            names["FIXED"] = lambda x: x
        args, kwargs = eval(f"(lambda *a, **k: (a, k))({text})", names)
        return samples.Sample(text, args, kwargs), most

    try:
        small = of(1, True)[1]
        if small == 0:
            return None
        low, high = 1.0, float(elements)
        for _ in range(40):
            middle = math.sqrt(low * high)
            low, high = (middle, high) if of(middle, True)[1] <= elements else (low, middle)
        return of(low, False)[0]
    except Exception:
        return None


def functions(schema: dict[str, Any]) -> dict[Any, Callable[..., Any]] | None:
    """The function of a row in both libraries; none where PyTorch has none of that kind."""
    path = schema["torch"]
    if path in ("-", ""):
        return None
    if path.startswith("Tensor."):
        name = path.split(".")[1]

        def method(x: Any, *args: Any, **options: Any) -> Any:
            return getattr(x, name)(*args, **options)

        return {lucid: method, torch: method}
    theirs: Any = torch
    try:
        for part in path.split("."):
            theirs = getattr(theirs, part)
        return {lucid: samples.lucid_function(schema), torch: theirs}
    except AttributeError:
        return None


def arguments(
    sample: samples.Sample, side: Side, dtype: str, transposed: bool, grad: bool
) -> tuple[list[Any], list[Any], dict[str, Any]]:
    """The tensors that get gradients, and the arguments."""
    wanted: list[Any] = []

    def convert(data: samples.Data) -> Any:
        values, floating = data.values, data.values.dtype.kind == "f"
        to = dtype if floating and data.varies else None
        if transposed and values.ndim >= 2 and not data.symmetric:
            made = side.tensor(np.swapaxes(values, 0, -1), to).transpose(0, -1)
        else:
            made = side.tensor(values, to)
        if grad and floating and data.varies and data.gradient:
            made = made.detach().requires_grad_()
            wanted.append(made)
        return made

    def own(x: Any) -> Any:
        return getattr(side.lib, x.name) if isinstance(x, samples.DType) else x

    args, kwargs = sample.map(convert)
    return wanted, [own(a) for a in args], {key: own(value) for key, value in kwargs.items()}


def op_row(
    schema: dict[str, Any], both: dict[Any, Any], text: str, size: str, dtype: str, transposed: bool, back: bool
) -> Row:
    """One op at one size."""

    def made(side: Side, elements: int) -> Work:
        sample = grown(text, schema["name"], min(elements, CUBIC.get(schema["family"], 1 << 30)))
        if sample is None:
            raise ValueError("the sample has no other sizes")
        function = both[side.lib]
        wanted, args, kwargs = arguments(sample, side, dtype, transposed, back)
        if not back:
            return side.finished(lambda: function(*args, **kwargs))
        ends = [y for y in samples.results(function(*args, **kwargs)) if y.requires_grad]
        if not wanted or not ends:
            raise ValueError("no gradient")
        ones = [side.lib.ones_like(y) for y in ends]

        def work() -> Any:
            made = [y for y in samples.results(function(*args, **kwargs)) if y.requires_grad]
            return side.lib.autograd.grad(made, wanted, ones, allow_unused=True)

        return side.finished(work)

    def short(sides: tuple[Side, Side]) -> bool:
        if SIZES[size] <= PROBE:
            return True
        for side in sides:
            try:
                begun = time.perf_counter()
                made(side, PROBE)()
                if time.perf_counter() - begun > 4 * TOO_LONG_S:
                    return False
                work, begun = made(side, PROBE), time.perf_counter()
                work()
            except Exception:
                return False
            if time.perf_counter() - begun > TOO_LONG_S:
                return False
        return True

    what = [schema["torch"] or schema["name"], size]
    what += [dtype] if dtype != "float32" else []
    what += ["transposed"] if transposed else []
    what += ["forward and backward"] if back else []
    return Row(f"{' '.join(what)} ({text})", lambda side: made(side, SIZES[size]), short)


def rows_of_table(quick: bool) -> Iterator[Row]:
    """Every op's rows, the small sizes first."""
    for schema in samples.rows():
        both = functions({**schema, "torch": schema["torch"] or schema["name"]})
        if both is None or not schema["samples"]:
            continue
        real = "float32" in schema["dtypes"]
        texts = schema["samples"][:1] if quick else schema["samples"][:3]
        for text in texts:
            for size in ("256", "1M") if quick else SIZES:
                main = "float32" if real else ("complex64" if "complex64" in schema["dtypes"] else "int64")
                for back in (False, True):
                    if back and not schema["differentiable"]:
                        continue
                    yield op_row(schema, both, text, size, main, False, back)
                    if not quick:
                        yield op_row(schema, both, text, size, main, True, back)
                if quick:
                    continue
                for dtype in DTYPES:
                    if dtype in schema["dtypes"] and dtype != main:
                        yield op_row(schema, both, text, size, dtype, False, False)


# ---- measuring -------------------------------------------------------------------------------------------------------


def compare(row: Row, sides: tuple[Side, Side], clock: Clock, least: int) -> dict[str, Any] | None:
    """One row of the result; none where a side does not do it."""
    ours, peer = sides
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.manual_seed(0)
            lucid.manual_seed(0)
            works = {"ours": row.make(ours), "peer": row.make(peer), "again": row.make(ours), "control": row.make(peer)}
            calls = calls_of(works["peer"], clock)
            begun = clock()
            works["ours"]()
            if clock() - begun > TOO_LONG_NS:
                print(f"slow {row.name}: {(clock() - begun) / 1e9:.2f} s", file=sys.stderr)
                return None
            case = Case(row.name, {side: Turn(work, calls, 0.0, clock) for side, work in works.items()})
            measure([case], 0, least=least, most=least, warmup=1)
    except Exception as error:
        print(f"skipped {row.name}: {type(error).__name__}: {str(error)[:100]}", file=sys.stderr)
        return None
    times = {side: min(case.variants[side].total) for side in works}
    best = min(times["ours"], times["again"])
    theirs = min(times["peer"], times["control"])
    return {
        "name": row.name,
        "ours_us": best,
        "peer_us": theirs,
        "ratio": best / theirs,
        "control": times["control"] / times["peer"],
    }


def summary(found: list[dict[str, Any]]) -> str:
    """How many rows are within the goals."""
    ratios = [r["ratio"] for r in found]
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
    above = sum(r > WORSE for r in ratios)
    below = sum(r <= 1.05 for r in ratios) / len(ratios)
    return f"{len(ratios)} rows; geometric mean {mean:.2f}; {above} above {WORSE}; {below:.1%} at or below 1.05"


def show(found: list[dict[str, Any]], peer: str, most: int) -> str:
    """The rows by ratio, the worst first."""
    ordered = sorted(found, key=lambda r: -r["ratio"])
    lines = [
        [r["name"][:100], f"{r['ours_us']:.1f}", f"{r['peer_us']:.1f}", f"{r['ratio']:.2f}", f"{r['control']:.2f}"]
        for r in ordered[:most]
    ]
    return table(["", "ours µs", f"{peer} µs", "ratio", "control"], lines)


def check(found: list[dict[str, Any]], file: Path) -> list[str]:
    """The rows that are slower than a recorded run by more than [`WORSE`], beyond what a microsecond does."""
    before = {r["name"]: r for r in json.loads(file.read_text())["rows"]}
    worse = []
    for row in found:
        old = before.get(row["name"])
        if old is not None and row["ratio"] > WORSE * max(old["ratio"], 0.5) and row["ours_us"] > row["peer_us"] + 2:
            worse.append(f"{row['name']}: {row['ratio']:.2f} × {row['peer_us']:.1f} µs, recorded {old['ratio']:.2f}")
    return worse


def share(rows: list[Row], text: str) -> list[Row]:
    """Share K of N, "K/N": every N-th row from the K-th, so that each share is a sample of the whole table."""
    part, whole = map(int, text.split("/"))
    if not 1 <= part <= whole:
        raise ValueError(f"share {text}: K of N, with 1 <= K <= N")
    return rows[part - 1 :: whole]


class Log:
    """Rows in a file, one JSON object a line, each written as it ends; a run that was cut off goes on from there."""

    def __init__(self, file: Path | None) -> None:
        self.file = file
        lines = file.read_text().splitlines() if file is not None and file.exists() else []
        self.rows = {row["name"]: row for row in map(json.loads, lines)}

    def add(self, row: dict[str, Any]) -> None:
        """Writes a row; one without a ratio was not measured."""
        self.rows[row["name"]] = row
        if self.file is not None:
            with self.file.open("a") as file:
                file.write(json.dumps(row) + "\n")

    def measured(self) -> list[dict[str, Any]]:
        """The rows that have a ratio."""
        return [row for row in self.rows.values() if "ratio" in row]


def main() -> int:
    """Reads the command line, measures, prints."""
    parser = argparse.ArgumentParser(description="Every op beside PyTorch.")
    parser.add_argument("--quick", action="store_true", help="one sample, two sizes, float32, few rounds")
    parser.add_argument("--only", default="", metavar="PATTERN", help="rows whose name this regular expression finds")
    parser.add_argument("--device", choices=("cpu", "gpu"), default="cpu", help="gpu: against our own CPU device")
    parser.add_argument("--threads", type=int, default=1, help="threads of all sides")
    parser.add_argument("--rounds", type=int, default=0, help="rounds of each row")
    parser.add_argument("--rows", type=int, default=60, help="how many rows to print, the worst first; 0 for all")
    parser.add_argument("--share", default="1/1", metavar="K/N", help="every N-th row, from the K-th on")
    parser.add_argument("--log", metavar="FILE", type=Path, help="append rows as they end; do not repeat those in it")
    parser.add_argument("--json", metavar="FILE", type=Path, help="write all rows here")
    parser.add_argument("--check", metavar="BASELINE", type=Path, help="fail where a row is slower than recorded")
    parser.add_argument("--list", action="store_true", help="print the names of the rows and stop")
    parser.add_argument("--no-models", action="store_true", help="the op table's rows alone")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    lucid.set_num_threads(args.threads)
    chosen = list(rows_of_table(args.quick))
    if not args.no_models:
        chosen += [Row(name, make) for name, make in model_rows(args.quick)]
    chosen = share([row for row in chosen if re.search(args.only, row.name)], args.share)
    if args.list:
        print("\n".join(row.name for row in chosen))
        return 0
    sides = (Side(lucid, args.device), Side(lucid if args.device == "gpu" else torch, "cpu"))
    clock = time.perf_counter_ns if args.threads > 1 or args.device == "gpu" else time.process_time_ns
    log = Log(args.log)
    for row in chosen:
        if row.name in log.rows:
            continue
        made = compare(row, sides, clock, args.rounds or (3 if args.quick else 7)) if row.short(sides) else None
        log.add(made or {"name": row.name})
    found = log.measured()
    if not found:
        parser.error(f"no row matches {args.only!r}")
    peer = "CPU device" if args.device == "gpu" else "PyTorch"
    print(show(found, peer, args.rows or len(found)))
    print(summary(found))
    if args.json:
        about = {"benchmark": "ops", "device": args.device, "threads": args.threads, "cores": os.cpu_count()}
        versions = {"lucid": lucid.__version__, "torch": torch.__version__}
        args.json.write_text(json.dumps({**about, "versions": versions, "rows": found}, indent=0) + "\n")
    worse = check(found, args.check) if args.check else []
    print("\n".join(worse))
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main())
