"""Fuzzes every public callable: a case is a target and a seed, and from both follows a call."""

from __future__ import annotations

import contextlib
import gc
import itertools
import os
import random
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .calls import array, call_text, tensor
from .process import MEMORY, Answers, is_finding, limit_memory, run_all
from .targets import schemas, targets


def prepare() -> Callable[[Any], Iterator[Answers]]:
    """What a child answers a case with."""
    import lucid

    lucid.zeros(1, device="gpu").eval()
    found, rows = targets(), schemas()
    limit_memory(MEMORY)

    def answer(case: Any) -> Iterator[Answers]:
        path, seed, deep = case
        try:
            text = call_text(path, found[path], rows, seed)
        except BaseException as e:
            yield {"text": f"writing {path}", "kind": f"fuzzer {type(e).__name__}", "why": str(e)}
            return
        yield {"text": text}
        yield run_case(text, deep)

    return answer


def run_case(text: str, deep: bool) -> dict[str, Any]:
    """What a call did: its kind of end, and the finding if it is one."""
    import lucid

    env = {"T": tensor, "NP": array, "lucid": lucid, "inf": float("inf"), "nan": float("nan")}
    random.seed(0)
    lucid.manual_seed(0)
    done: dict[str, Any] = {"kind": "ok", "finding": False}
    try:
        result = eval(text, env)
        use(result)
    except BaseException as e:
        done = {"kind": type(e).__name__, "finding": is_finding(e), "why": str(e)[:500]}
        del e
    if deep and not done["finding"]:
        grown = growth(text, env)
        if grown:
            done = {"kind": "growing memory", "finding": True, "why": f"{grown} bytes per call"}
    return done


def use(result: Any, depth: int = 0) -> None:
    """Evaluates what came out, prints it and goes backward from it."""
    import lucid

    if isinstance(result, (list, tuple)) and depth < 3:
        for r in list(result)[:4]:
            use(r, depth + 1)
    if not isinstance(result, lucid.Tensor):
        return
    result.eval()
    if result.numel() < 5000:
        repr(result)
    if result.requires_grad and result.numel():
        total = (result * result.conj()).real if result.is_complex() and hasattr(result, "real") else result
        total.float().sum().backward() if not total.is_complex() else None


def growth(text: str, env: dict[str, Any]) -> int:
    """Bytes that the process grows by per call, where it keeps growing."""
    page = os.sysconf("SC_PAGE_SIZE")

    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * page

    if not Path("/proc/self/statm").exists():
        return 0
    until = time.monotonic() + 2.0
    rounds: list[int] = []
    for _ in range(4):
        for _ in range(100):
            with contextlib.suppress(BaseException):
                use(eval(text, env))
            if time.monotonic() > until:
                return 0
        gc.collect()
        rounds.append(resident())
    steps = [b - a for a, b in itertools.pairwise(rounds[1:])]
    return min(steps) // 100 if min(steps) > 400 << 10 else 0


@dataclass
class Report:
    """What a run found."""

    calls: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    findings: list[dict[str, Any]] = field(default_factory=list)
    reached: set[str] = field(default_factory=set)
    succeeded: set[str] = field(default_factory=set)

    def text(self, all_targets: int) -> str:
        lines = [
            f"{self.calls} calls of {len(self.reached)}/{all_targets} targets, {len(self.succeeded)} with success",
            "ends: " + ", ".join(f"{k} {n}" for k, n in self.kinds.most_common()),
        ]
        for f in self.findings:
            lines.append(f"\n{f['kind']}: {f['text']}\n    {f.get('why', '')}\n    --replay {f['path']!r} {f['seed']}")
        lines.append(f"{len(self.findings)} findings")
        return "\n".join(lines)


def fuzz(seconds: float, jobs: int, seed: int = 0, only: str = "", most: int | None = None) -> tuple[Report, int]:
    """Fuzzes for a time, or until `most` calls are made: the same ones for a seed. Gives the report and the number of
    targets.
    """
    paths = [p for p in targets() if only in p]
    if not paths:
        raise SystemExit(f"no target's path has {only!r} in it")
    report = Report()
    seen: set[tuple[str, str, str]] = set()

    def cases() -> Iterator[tuple[str, int, bool]]:
        order = random.Random(seed)
        for turn in itertools.count():
            case = seed * 1_000_003 + turn
            for path in order.sample(paths, len(paths)):
                yield path, case, zlib.crc32(f"{path}{case}".encode()) % 97 == 0

    def done(said: Answers) -> None:
        path, case, _ = said["case"]
        said |= {"path": path, "seed": case}
        report.calls += 1
        report.kinds[said["kind"]] += 1
        report.reached.add(path)
        if said["kind"] == "ok":
            report.succeeded.add(path)
        key = (path, said["kind"], str(said.get("why", ""))[:60])
        if said["finding"] and key not in seen:
            seen.add(key)
            report.findings.append(said)

    # What sets something for the whole process must not touch the cases that follow.
    run_all(itertools.islice(cases(), most), jobs, seconds, done, fresh=lambda c: "set_" in c[0].rsplit(".", 1)[-1])
    return report, len(paths)
