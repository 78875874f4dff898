#!/usr/bin/env python3
"""Lightning Core's tables: lucid.lightning on a device against PyTorch on the same, in one run, with a control.

    python bench/lightning/bench.py --suite quick
    python bench/lightning/bench.py --suite all --out results
    python bench/lightning/bench.py --suite all --device cuda --out results

Suites: kernel (attention, convolution, GEMM), pipeline (FFN, LN -> projection, conv -> attention), ml (linear, matrix
sub, vector add), sweep (large GEMM in three tuning modes), overhead (direct calls against `lc.api`), quick (a row of
each family), ai (kernel, pipeline and overhead), dl (sweep), all. All variants of all rows take turns. `ratio` is
PyTorch's median over the better of ours; `control` is a second PyTorch over the first, and says how far from 1 a ratio
may be by chance. On the CPU PyTorch starts from tensors; on a GPU both sides start from arrays in the host's memory and
end there, uploads and downloads included, since that is what a call of Lightning Core does. `cv` is the coefficient of
variation of our medians over --repeats runs of the whole; a suite of more than --gate percent is said not to be stable,
and with --strict ends in an error.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import os
import statistics
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import lucid
import lucid.lightning as lc
import numpy as np
import timing
import torch
import torch.nn.functional as F

RNG = np.random.default_rng(0)
# Rows that are only listed need no numbers: zeros are pages that nobody touches.
LISTING = "--list" in sys.argv


def rand(*shape: int) -> np.ndarray:
    return np.zeros(shape, np.float32) if LISTING else RNG.random(shape, np.float32)


#: Where PyTorch computes, which main() sets.
PEER = "cpu"


def peer(work: Callable[..., torch.Tensor], *arrays: np.ndarray) -> Callable[[], Any]:
    """PyTorch's side of a row, from arrays: on a GPU they go there and the result comes back, as in a call of ours."""
    tensors = [torch.from_numpy(x) for x in arrays]
    if PEER == "cpu":
        return lambda: work(*tensors)
    return lambda: work(*(t.to(PEER) for t in tensors)).cpu()


def peer_device(device: str) -> str:
    """PyTorch's device that is the one named, or the CPU where it has none."""
    if device in ("cuda", "gpu") and torch.cuda.is_available():
        return "cuda"
    return "mps" if device in ("metal", "gpu") and torch.backends.mps.is_available() else "cpu"


@dataclass
class Row:
    """A row of a table: what ours does, what the integrated API does, and what PyTorch does."""

    suite: str
    family: str
    shape: str
    direct: Callable[[], Any]
    integrated: Callable[[], Any] | None
    torch: Callable[[], Any] | None
    mode: str = ""

    @property
    def name(self) -> str:
        return f"{self.suite} {self.family} {self.shape}" + (f" {self.mode}" if self.mode else "")


def attention_row(suite: str, seq: int, dim: int, device: str) -> Row:
    q, k, v = (rand(seq * dim) for _ in range(3))
    out = np.empty(seq * dim, np.float32)
    matrices = (x.reshape(1, 1, seq, dim) for x in (q, k, v))
    return Row(
        suite,
        "attention",
        f"seq={seq},dim={dim}",
        lambda: lc.attention_forward(q, k, v, seq, dim, False, device),
        lambda: lc.api.attention_into(q, k, v, out, seq, dim, False, device),
        peer(F.scaled_dot_product_attention, *matrices),
    )


def conv_row(suite: str, n: int, c: int, size: int, device: str) -> Row:
    x, w, b = rand(n, c, size, size), rand(16, c, 3, 3), rand(16)
    out = np.empty((n, 16, size, size), np.float32)
    return Row(
        suite,
        "conv",
        f"{n}x{c}x{size}x{size}->16,k=3",
        lambda: lc.lightning_conv_relu_nchw(x, w, b, 1, 1, 1, 1, device),
        lambda: lc.api.conv_relu_nchw_into(x, w, b, out, 1, 1, 1, 1, device),
        peer(lambda x, w, b: F.relu(F.conv2d(x, w, b, padding=1)), x, w, b),
    )


def gemm_row(suite: str, family: str, m: int, k: int, n: int, device: str) -> Row:
    a, b = rand(m, k), rand(k, n)
    out, other = np.empty((m, n), np.float32), np.empty((m, n), np.float32)
    session = lc.MatMulMetalResidentSession(m, k, n, device)
    return Row(
        suite,
        family,
        f"{m}x{k}x{n}",
        lambda: session.run_batch_sync_into(a, b, out, 1),
        lambda: lc.lightning_matmul_into(a, b, other, device),
        peer(torch.matmul, a, b),
    )


def kernel(device: str) -> list[Row]:
    rows = [attention_row("kernel", *s, device) for s in ((8, 16), (8, 32), (12, 12))]
    rows += [conv_row("kernel", *s, device) for s in ((1, 3, 16), (1, 3, 24), (2, 3, 16), (1, 3, 28))]
    return rows + [gemm_row("kernel", "gemm", s, s, s, device) for s in (256, 896, 1024)]


def graph_call(g: lc.GraphIR, x: np.ndarray, device: str) -> Callable[[], Any]:
    fused, _ = g.fuse(device)
    return lambda: fused.execute_f32({"x": x}, device)


def ffn_row(batch: int, width: int, inner: int, device: str) -> Row:
    x = rand(batch, width) - 0.5
    model = lc.Sequential(lc.Linear(width, inner), lc.GELU(), lc.Linear(inner, width))
    w1, b1, w2, b2 = (p.data for p in model.parameters())
    g = lc.GraphIR()
    g.add_tensor((batch, width), name="x")
    for name, value in (("w1", w1), ("b1", b1), ("w2", w2), ("b2", b2)):
        g.add_tensor(value.shape, name=name, value=value)
    for name, size in (("p", inner), ("q", inner), ("r", inner), ("s", width), ("out", width)):
        g.add_tensor((batch, size), name=name)
    g.add_node("matmul", ["x", "w1"], ["p"])
    g.add_node("bias_add", ["p", "b1"], ["q"])
    g.add_node("gelu", ["q"], ["r"])
    g.add_node("matmul", ["r", "w2"], ["s"])
    g.add_node("bias_add", ["s", "b2"], ["out"])
    theirs = torch.nn.Sequential(torch.nn.Linear(width, inner), torch.nn.GELU(), torch.nn.Linear(inner, width)).to(PEER)
    shape = f"batch={batch},d={width},ff={inner}"
    return Row("pipeline", "ffn", shape, graph_call(g, x, device), lambda: model(x), peer(theirs, x))


def norm_row(batch: int, width: int, outer: int, device: str) -> Row:
    x = rand(batch, width)
    model = lc.Sequential(lc.LayerNorm(width), lc.Linear(width, outer))
    weight, bias, w, b = (p.data for p in model.parameters())
    g = lc.GraphIR()
    g.add_tensor((batch, width), name="x")
    for name, value in (("weight", weight), ("bias", bias), ("w", w), ("b", b)):
        g.add_tensor(value.shape, name=name, value=value)
    for name, size in (("n", width), ("p", outer), ("out", outer)):
        g.add_tensor((batch, size), name=name)
    g.add_node("layer_norm", ["x", "weight", "bias"], ["n"])
    g.add_node("matmul", ["n", "w"], ["p"])
    g.add_node("bias_add", ["p", "b"], ["out"])
    theirs = torch.nn.Sequential(torch.nn.LayerNorm(width), torch.nn.Linear(width, outer)).to(PEER)
    shape = f"batch={batch},d={width},out={outer}"
    return Row("pipeline", "ln->proj", shape, graph_call(g, x, device), lambda: model(x), peer(theirs, x))


def conv_attention_row(suite: str, seq: int, dim: int, device: str) -> Row:
    x, w, b = rand(1, 3, 8, 8), rand(16, 3, 3, 3), rand(16)
    out = np.empty(seq * dim, np.float32)
    need = seq * dim

    def theirs(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        flat = F.relu(F.conv2d(x, w, b, padding=1)).reshape(-1)
        flat = flat.repeat(-(-3 * need // flat.numel()))
        q, k, v = (flat[i * need : (i + 1) * need].reshape(1, 1, seq, dim) for i in range(3))
        return F.scaled_dot_product_attention(q, k, v)

    return Row(
        suite,
        "conv->attn",
        f"1x3x8x8->16,k=3;seq={seq},dim={dim}",
        lambda: lc.lightning_conv_attention_torchstrong_nchw_into(x, w, b, out, seq, dim, 1, 1, 1, 1, device),
        lambda: lc.api.conv_attention_torchstrong_nchw(x, w, b, seq, dim, 1, 1, 1, 1, device, "graph"),
        peer(theirs, x, w, b),
    )


def pipeline(device: str) -> list[Row]:
    rows = [ffn_row(512, 768, 3072, device), ffn_row(1024, 768, 3072, device)]
    rows += [norm_row(1024, 1024, 1024, device), norm_row(2048, 1024, 1024, device)]
    return rows + [conv_attention_row("pipeline", *s, device) for s in ((48, 48), (192, 48), (192, 8), (96, 48))]


def sub_row(rows: int, cols: int, device: str) -> Row:
    a, b = rand(rows * cols), rand(rows * cols)
    out, other = np.empty_like(a), np.empty_like(a)
    session = lc.MatrixElemwiseMetalResidentSession(rows, cols, device)
    session.sub_start_into(a, b, out)
    return Row(
        "ml",
        "matrix sub",
        f"{rows}x{cols}",
        lambda: session.sub_run_into(a, b, out),
        lambda: lc.matrix_sub_into(a, b, other, rows, cols, device),
        peer(torch.sub, a.reshape(rows, cols), b.reshape(rows, cols)),
    )


def add_row(n: int, device: str) -> Row:
    a, b = rand(n), rand(n)
    out = np.empty_like(a)
    return Row(
        "ml",
        "vector add",
        f"n={n}",
        lambda: lc.vector_add_into(a, b, out, device),
        lambda: lc.vector_add(a, b, device),
        peer(torch.add, a, b),
    )


def ml(device: str) -> list[Row]:
    shapes = ((1024, 1024, 512), (2048, 1024, 512), (4096, 1024, 1024))
    rows = [gemm_row("ml", "linear", *s, device) for s in shapes]
    rows += [sub_row(*s, device) for s in ((512, 512), (1024, 1024), (2048, 1024))]
    return rows + [add_row(n, device) for n in (65536, 262144, 1048576, 4194304)]


MODES = {
    "runtime_default_promoted": {"CJ_MATMUL_DISABLE_PROMOTED_BUCKETS": "0"},
    "aggressive_mps_no_bucket": {
        "CJ_MATMUL_DISABLE_PROMOTED_BUCKETS": "1",
        "CJ_MATMUL_PREFER_MPS_ON_LARGE": "1",
        "CJ_MATMUL_TRY_KERNEL_ON_LARGE": "0",
    },
    "kernel_favor_no_bucket": {
        "CJ_MATMUL_DISABLE_PROMOTED_BUCKETS": "1",
        "CJ_MATMUL_PREFER_MPS_ON_LARGE": "0",
        "CJ_MATMUL_TRY_KERNEL_ON_LARGE": "1",
        "CJ_MATMUL_MPS_HYST_PCT": "0.0",
    },
}


def under(mode: str, work: Callable[[], Any]) -> Callable[[], Any]:
    """Work under a tuning mode's variables."""

    def run() -> Any:
        before = {name: os.environ.get(name) for name in MODES[mode]}
        os.environ.update(MODES[mode])
        try:
            return work()
        finally:
            for name, value in before.items():
                os.environ.pop(name) if value is None else os.environ.__setitem__(name, value)

    return run


def sweep(device: str) -> list[Row]:
    shapes = ((1024, 1024, 1024), (1536,) * 3, (2048,) * 3, (3072,) * 3, (4096, 1024, 4096))
    rows = []
    for shape in shapes:
        row = gemm_row("sweep", "gemm", *shape, device)
        for mode in MODES:
            integrated = row.integrated and under(mode, row.integrated)
            rows.append(Row("sweep", "gemm", row.shape, under(mode, row.direct), integrated, row.torch, mode))
    return rows


def overhead(device: str) -> list[Row]:
    rows = []
    for seq, dim in ((256, 64), (512, 64)):
        q, k, v = (rand(seq * dim) for _ in range(3))
        call = (q, k, v, seq, dim, False, device)
        direct, integrated = lc.attention_forward, lc.api.attention
        rows.append(
            Row(
                "overhead",
                "attention",
                f"seq={seq},dim={dim}",
                lambda c=call, f=direct: f(*c),
                lambda c=call, f=integrated: f(*c),
                None,
            )
        )
    for n in (1, 2):
        row = conv_row("overhead", n, 3, 32, device)
        x, w, b = rand(n, 3, 32, 32), rand(16, 3, 3, 3), rand(16)
        row.direct = lambda c=(x, w, b, 1, 1, 1, 1, device): lc.conv2d_nchw(*c)
        row.integrated = lambda c=(x, w, b, 1, 1, 1, 1, device): lc.api.conv_relu_nchw(*c)
        row.torch = None
        rows.append(row)
    for seq in (48, 96):
        row = conv_attention_row("overhead", seq, 48, device)
        row.torch = None
        rows.append(row)
    return rows


def quick(device: str) -> list[Row]:
    rows = [attention_row("quick", *s, device) for s in ((8, 16), (96, 48), (256, 64))]
    rows += [conv_row("quick", *s, device) for s in ((1, 3, 16), (1, 3, 32), (2, 3, 32))]
    return rows + [gemm_row("quick", "gemm", s, s, s, device) for s in (256, 1024)]


SUITES: dict[str, list[Callable[[str], list[Row]]]] = {
    "quick": [quick],
    "kernel": [kernel],
    "pipeline": [pipeline],
    "ml": [ml],
    "sweep": [sweep],
    "overhead": [overhead],
    "ai": [kernel, pipeline, overhead],
    "dl": [sweep],
    "all": [kernel, pipeline, ml, sweep, overhead],
}


def run(rows: list[Row], seconds: float, repeats: int) -> list[dict[str, Any]]:
    """Times all rows in turns, `repeats` times over."""
    noted: list[dict[str, list[float]]] = [{} for _ in rows]
    for _ in range(repeats):
        cases = []
        for row in rows:
            works = {"direct": row.direct, "integrated": row.integrated, "torch": row.torch, "control": row.torch}
            turns = {n: timing.Turn(w, timing.calls_of(w)) for n, w in works.items() if w is not None}
            cases.append(timing.Case(row.name, turns))  # type: ignore[arg-type]
        with torch.no_grad():
            timing.measure(cases, seconds / repeats, least=3, warmup=1)
        for case, note in zip(cases, noted, strict=True):
            for name, variant in case.variants.items():
                note.setdefault(name, []).append(variant.median)
    out = []
    for row, note in zip(rows, noted, strict=True):
        ms = {name: statistics.median(times) / 1e3 for name, times in note.items()}
        ours = min(ms["direct"], ms.get("integrated", math.inf))
        best = "direct" if ms["direct"] <= ms.get("integrated", math.inf) else "integrated"
        out.append(
            {
                "suite": row.suite,
                "family": row.family,
                "shape": row.shape,
                "mode": row.mode,
                "direct_ms": ms["direct"],
                "integrated_ms": ms.get("integrated"),
                "torch_ms": ms.get("torch"),
                "ratio": ms["torch"] / ours if "torch" in ms else None,
                "control": ms["control"] / ms["torch"] if "torch" in ms else None,
                "best": best,
                "cv_pct": 100 * statistics.pstdev(note[best]) / statistics.mean(note[best]) if repeats > 1 else None,
            }
        )
    return out


def stability(rows: list[dict[str, Any]], gate: float) -> dict[str, Any]:
    """The suite's coefficient of variation: of all rows' times, weighted by them as the total is."""
    known = [r for r in rows if r["cv_pct"] is not None]
    if not known:
        return {"cv_pct": None, "gate_pct": gate, "stable": None}
    total = sum(r[f"{r['best']}_ms"] for r in known)
    cv = math.sqrt(sum((r["cv_pct"] * r[f"{r['best']}_ms"]) ** 2 for r in known)) / total
    return {"cv_pct": cv, "gate_pct": gate, "stable": cv <= gate}


def cell(value: Any, digits: str) -> str:
    return "" if value is None else format(value, digits)


HEAD = ("row", "direct ms", "integrated ms", "torch ms", "ratio", "control", "cv %")


def lines(rows: list[dict[str, Any]]) -> list[list[str]]:
    return [
        [
            " ".join(filter(None, (r["suite"], r["family"], r["shape"], r["mode"]))),
            cell(r["direct_ms"], ".4f"),
            cell(r["integrated_ms"], ".4f"),
            cell(r["torch_ms"], ".4f"),
            cell(r["ratio"], ".2f"),
            cell(r["control"], ".2f"),
            cell(r["cv_pct"], ".1f"),
        ]
        for r in rows
    ]


def markdown(result: dict[str, Any]) -> str:
    """The result as Markdown."""
    head = f"| {' | '.join(HEAD)} |\n|---|{'---:|' * (len(HEAD) - 1)}"
    body = "\n".join(f"| {' | '.join(line)} |" for line in lines(result["rows"]))
    lost = [r for r in result["rows"] if r["ratio"] is not None and r["ratio"] < 1]
    compared = [r for r in result["rows"] if r["ratio"] is not None]
    found = result["stability"]
    said = "not repeated" if found["stable"] is None else ("stable" if found["stable"] else "not stable")
    return (
        f"{result['device']}, {result['threads']} thread(s), {result['peer']}, Lucid {result['lucid']}, load "
        f"{result['load']}. {len(compared) - len(lost)} of {len(compared)} rows at least as fast as PyTorch. The run "
        f"is {said}: coefficient of variation {cell(found['cv_pct'], '.1f') or 'unknown'} %, gate "
        f"{found['gate_pct']:g} %.\n\n"
        f"{head}\n{body}\n"
    )


def write(result: dict[str, Any], folder: Path, name: str) -> list[Path]:
    """Writes CSV, JSON and Markdown."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{name}.{kind}" for kind in ("csv", "json", "md")]
    with paths[0].open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, fieldnames=list(result["rows"][0]))
        writer.writeheader()
        writer.writerows(result["rows"])
    paths[1].write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    paths[2].write_text(markdown(result), encoding="utf-8")
    return paths


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--suite", choices=SUITES, default="quick")
    parser.add_argument("--device", default="cpu", help="cpu, metal, cuda or auto; PyTorch's too, where it has it")
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--repeats", type=int, default=int(os.environ.get("LC_BENCH_TIMING_RUNS", "3")))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--gate", type=float, default=2.0, help="percent")
    parser.add_argument("--strict", action="store_true", help="an error where the run is not stable")
    parser.add_argument("--only", default="", help="rows whose name has this text")
    parser.add_argument("--out", type=Path, help="a folder for CSV, JSON and Markdown")
    parser.add_argument("--json", action="store_true", help="print one JSON object too")
    parser.add_argument("--list", action="store_true", help="print the rows and end")
    given = parser.parse_args()
    global PEER
    PEER = peer_device(given.device)
    torch.set_num_threads(given.threads)
    lucid.set_num_threads(given.threads)
    with tempfile.TemporaryDirectory() as caches:
        # Each run times its products anew.
        os.environ.setdefault("CJ_MATMUL_TUNE_CACHE_FILE", str(Path(caches) / "matmul.json"))
        rows = [row for make in SUITES[given.suite] for row in make(given.device) if given.only in row.name]
        if not rows:
            parser.error(f"no row has {given.only!r} in its name")
        if given.list:
            print("\n".join(row.name for row in rows))
            return 0
        timed = run(rows, given.seconds, max(1, given.repeats))
    result = {
        "suite": given.suite,
        "device": given.device,
        # Where `auto` computes what is large.
        "gpu": str(lucid.device("gpu")),
        "peer": f"PyTorch {torch.__version__} on {PEER}",
        "threads": given.threads,
        "torch": torch.__version__,
        "lucid": lucid.__version__,
        "load": " ".join(f"{x:.1f}" for x in os.getloadavg()),
        "stability": stability(timed, given.gate),
        "rows": timed,
    }
    print(timing.table(HEAD, lines(timed)))
    found = result["stability"]
    if found["stable"] is False:
        print(f"not stable: coefficient of variation {found['cv_pct']:.1f} %, more than {given.gate:g} %")
    for path in write(result, given.out, given.suite) if given.out else []:
        print(f"wrote {path}")
    if given.json:
        print(json.dumps(result))
    return int(given.strict and found["stable"] is not True)


if __name__ == "__main__":
    sys.exit(main())
