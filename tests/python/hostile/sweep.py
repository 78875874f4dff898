"""The sweep: cases of targets and conditions, what children answer, and the report.

A case is a target, a condition and a seed. From the three follows a program, as text, which the child runs.
"""

from __future__ import annotations

import inspect
import json
import math
import random
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.python import fuzz
from tests.python.fuzz.calls import array
from tests.python.fuzz.process import Answers, is_finding, limit_memory, run_all
from tests.python.fuzz.run import use

from .operands import LONG
from .programs import CONDITIONS, NUMBERS_ALONE, Programs

MODULE = "tests.python.hostile"
#: Bytes that a child may add to what it has, and seconds that a case may take.
MEMORY = 2 << 30
LIMIT = 20.0
#: Ends that would be findings, and are PyTorch's own.
AS_IN_PYTORCH = {("lucid.nn.init.xavier_", "ZeroDivisionError"), ("lucid.nn.init.kaiming_", "ZeroDivisionError")}
#: Targets that end the process, wait for somebody, or change what all later cases do.
APART = ("set_", "hooks", "set_default", "use_deterministic", "init_process", "use_file_system", "breakpoint")


# ---- the child -------------------------------------------------------------------------------------------------------


def prepare() -> Callable[[Any], Iterator[Answers]]:
    """What a child answers a case with: a program of its own, or one that is given as text."""
    import lucid

    # MLX takes memory for its threads and tables once: that is no case's.
    (lucid.zeros(8, 8, device="gpu") @ lucid.ones(8, 8, device="gpu")).eval()
    (lucid.zeros(8, 8) @ lucid.ones(8, 8)).eval()
    write = Programs()
    limit_memory(MEMORY)
    sys.setswitchinterval(1e-4)

    def answer(case: Any) -> Iterator[Answers]:
        times = 1
        if isinstance(case, dict):
            text: str | None = case["program"]
            times = case["times"]
        else:
            try:
                text = write(*case)
            except Exception as e:
                yield {"text": f"writing {case}", "kind": f"sweep {type(e).__name__}", "why": str(e)[:500]}
                return
        if text is None:
            yield {"kind": "no such case", "finding": False}
            return
        yield {"text": text}
        for _ in range(times - 1):
            run(text)
        yield run(text)

    return answer


def environment() -> dict[str, Any]:
    """The names that programs use."""
    import lucid
    import numpy as np

    from . import compare, memory
    from .calls import step

    tools = (*vars(memory).items(), *vars(compare).items())
    names = {k: v for k, v in tools if callable(v) and getattr(v, "__module__", "").startswith(MODULE)}
    return {**names, "lucid": lucid, "np": np, "step": step, "NP": array, "inf": math.inf, "nan": math.nan}


def peak_memory() -> int:
    """The most bytes that this process has had in memory; 0 where the system does not say.

    `getrusage` would not do: what it counts begins with the parent's peak.
    """
    status = Path("/proc/self/status")
    found = re.search(r"VmHWM:\s*(\d+) kB", status.read_text()) if status.exists() else None
    return int(found[1]) << 10 if found else 0


def run(text: str) -> Answers:
    """What a program did."""
    import lucid

    from . import memory

    env = environment()
    random.seed(0)
    lucid.manual_seed(0)
    before = peak_memory()
    done: Answers = {"kind": "ok", "finding": False}
    try:
        exec(text, env)
        use(env.get("out"))
    except BaseException as e:
        kind = type(e).__name__
        done = {"kind": kind, "finding": is_finding(e), "why": str(e)[:500]}
        if isinstance(e, MemoryError):
            done["kind"] = "MemoryError"
        del e
    finally:
        memory.release()
        env.clear()
    grown = peak_memory() - before
    if grown > MEMORY:
        return {"kind": "memory", "finding": True, "why": f"{grown >> 20} MiB, without OutOfMemory"}
    return done


# ---- the parent ------------------------------------------------------------------------------------------------------


@dataclass
class Report:
    """What a sweep found."""

    calls: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    #: The shortest program of each finding, by target, condition and kind.
    findings: dict[tuple[str, str, str], Answers] = field(default_factory=dict)
    #: Programs that took longer than the limit, as their sizes may justify.
    slow: dict[str, str] = field(default_factory=dict)
    reached: set[str] = field(default_factory=set)
    without: set[str] = field(default_factory=set)
    seconds: float = 0.0

    def add(self, said: Answers) -> None:
        path, condition, _ = said["case"]
        if said["kind"] == "no such case":
            self.without.add(path)
            return
        self.calls += 1
        self.kinds[said["kind"]] += 1
        self.reached.add(path)
        theirs = any(path.startswith(p) and said["kind"] == kind for p, kind in AS_IN_PYTORCH)
        if not said["finding"] or theirs:
            return
        if said["kind"] == "hang" and said.get("computes") and condition in LONG:
            self.slow.setdefault(path, said["text"])
            return
        key = (path, condition, said["kind"])
        if key not in self.findings or len(said["text"]) < len(self.findings[key]["text"]):
            self.findings[key] = said

    def shrink(self, jobs: int, seconds: float = 300.0) -> None:
        """Shortens what was found; of findings that say the same, the shortest first and alone."""
        from .shrink import shortest

        alike: dict[tuple[str, str], list[tuple[str, str, str]]] = {}
        for key, found in sorted(self.findings.items(), key=lambda i: len(i[1]["text"])):
            words = str(found.get("why", "")).split("\n")[0]
            alike.setdefault((key[2], "".join(c for c in words if not c.isdigit())), []).append(key)
        until = time.monotonic() + seconds
        with ThreadPoolExecutor(jobs) as pool:
            keys = [k for group in alike.values() for k in group[:3]]
            for key, found in zip(keys, pool.map(lambda k: shortest(self.findings[k], until), keys), strict=True):
                self.findings[key] = found

    def text(self) -> str:
        lines = [
            f"{self.calls} programs of {len(self.reached)} targets in {self.seconds:.0f} s; "
            f"{len(self.without - self.reached)} targets take no tensor and no number",
            "ends: " + ", ".join(f"{k} {n}" for k, n in self.kinds.most_common()),
        ]
        for (path, condition, kind), f in sorted(self.findings.items(), key=lambda i: (i[0][2], i[0][0])):
            why = "\n    ".join(str(f.get("why", "")).splitlines()[-30:])
            program = "\n    ".join(f["text"].splitlines())
            replay = json.dumps(f["case"])
            lines.append(f"\n{kind}: {path}, {condition}\n    {program}\n    # {why}\n    # --replay '{replay}'")
        if self.slow:
            lines.append("\nLonger than the limit, on sizes that may justify it:")
            lines += [f"    {text.splitlines()[-1][:200]}" for text in self.slow.values()]
        lines.append(f"\n{len(self.findings)} findings")
        return "\n".join(lines)


def paths(only: str = "") -> list[str]:
    """The targets."""
    found = [p for p in fuzz.targets() if only in p and not p.rsplit(".", 1)[-1].startswith(APART)]
    if not found:
        raise SystemExit(f"no target's path has {only!r} in it")
    return found


def cases(only: str, conditions: tuple[str, ...], seed: int, share: float = 1.0) -> Iterator[tuple[str, str, int]]:
    """Every target under every condition, in any order, again and again; of giants, which take longest, a share."""
    rng = random.Random(seed)
    everything = [(p, c) for p in paths(only) for c in conditions]
    turn = seed * 1_000_003
    while True:
        for path, condition in rng.sample(everything, len(everything)):
            if condition not in LONG or rng.random() < share:
                yield path, condition, turn
        turn += 1


def sweep(
    seconds: float,
    jobs: int,
    seed: int = 0,
    only: str = "",
    conditions: tuple[str, ...] = (*CONDITIONS, NUMBERS_ALONE),
    most: int | None = None,
    patience: float = LIMIT,
    share: float = 1.0,
    shrink: bool = True,
) -> Report:
    """Runs cases for a time, or until so many were tried: the same ones for a seed."""
    report, begun = Report(), time.monotonic()
    drawn = (c for n, c in enumerate(cases(only, conditions, seed, share)) if most is None or n < most)
    if most is not None:
        drawn = iter([next(drawn) for _ in range(most)])
    limit = lambda case: patience if case[1] in LONG else LIMIT  # noqa: E731
    run_all(drawn, jobs, seconds, report.add, module=MODULE, limit=limit)
    if shrink:
        report.shrink(jobs)
    report.seconds = time.monotonic() - begun
    return report


def standalone(text: str) -> str:
    """A program with the definitions of the tools that it uses."""
    used = [v for k, v in environment().items() if f"{k}(" in text and inspect.isfunction(v)]
    names = ", ".join(f.__name__ for f in used)
    where = sorted({f.__module__ for f in used})
    imports = [f"from {m} import {names}" for m in where[:1]] if used else []
    return "\n".join(["import lucid", "import numpy as np", *imports, text])


def write_report(report: Report, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(report.text() + "\n")
