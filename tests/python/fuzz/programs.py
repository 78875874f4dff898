"""Random programs beside PyTorch: views, writes in place, dtypes, both devices, backward, variables that are dropped.

    python -m tests.python.fuzz programs --seconds 3600 --jobs 16 [--seed 7] [--most 100000]
    python -m tests.python.fuzz programs --replay 123 --device gpu

Program N is made from the seed N (`tests.python.parity.programs.random_programs`) and run with PyTorch and with Lucid:
values, gradients, dtypes and kinds of errors are compared. A program that ends otherwise, in a crash or in a hang is
made as short as it can be and shown as Python; differences that are known are counted by their reason.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .process import Answers, Child, limit_memory, one, run_all, serve

MODULE = "tests.python.fuzz.programs"
LIMIT = 30.0
MEMORY = 3 << 30
DEVICES = ("cpu", "gpu")


def prepare() -> Callable[[Any], Iterator[Answers]]:
    """What a child answers: how the program of a seed, or one that is given, ends otherwise."""
    import lucid
    import torch

    from tests.python.parity.programs.autograd_programs import difference
    from tests.python.parity.programs.known_differences import reason
    from tests.python.parity.programs.random_programs import WideRun, case, from_json

    torch.set_num_threads(1)
    (lucid.zeros(2, 2, device="gpu") @ lucid.zeros(2, 2, device="gpu")).eval()
    limit_memory(MEMORY)

    def answer(said: Any) -> Iterator[Answers]:
        program = from_json(said["program"]) if "program" in said else case(said["seed"], said["device"])
        yield {"text": str(said.get("seed", "")) or "a program"}
        if package := {"lucid": lucid, "torch": torch}.get(said.get("only", "")):
            with lucid.device(said["device"]):
                program.run(package, WideRun(package))
            yield {"kind": "same", "finding": False}
            return
        why = difference(program, said["device"], WideRun)
        if why is None:
            yield {"kind": "same", "finding": False}
            return
        known = reason(program, said["device"], why)
        yield {"kind": known or "differs", "finding": known is None, "why": why[:2000]}

    return answer


def kind_of(said: Answers) -> str:
    """What must stay while a program is made shorter: the end, and which part of the outcome differs."""
    return f"{said['kind']} {str(said.get('why', '')).split(':')[0] if said['kind'] == 'differs' else ''}"


def shortest(found: Answers, seconds: float = 60.0) -> Answers:
    """The finding with the shortest program that ends in the same way."""
    from tests.python.parity.programs.random_programs import case, shorter, size, source, to_json

    device = found["case"]["device"]
    program, until = case(found["case"]["seed"], device), time.monotonic() + seconds
    worker: Child | None = None
    again = True
    try:
        while again and time.monotonic() < until:
            again = False
            for candidate in shorter(program):
                if size(candidate) >= size(program) or time.monotonic() > until:
                    continue
                worker = worker or Child(MODULE)
                said, alive = one(worker, {"program": to_json(candidate), "device": device}, 10.0)
                if not alive:
                    worker.close()
                    worker = None
                if said["finding"] and kind_of(said) == kind_of(found):
                    program, again = candidate, True
                    found = {**found, "why": said.get("why", "")}
                    break
    finally:
        if worker:
            worker.close()
    return {**found, "text": source(program, device)}


def alone(found: Answers, package: str) -> Answers:
    """How the program ends with one of both."""
    child = Child(MODULE)
    try:
        return one(child, {**found["case"], "only": package}, LIMIT)[0]
    finally:
        child.close()


def of_pytorch(found: Answers) -> str | None:
    """What PyTorch does alone that makes a finding none of Lucid's: it crashes where Lucid does not, or computes as
    long."""
    if found["kind"].startswith("crash"):
        crashes = not alone(found, "lucid")["finding"] and alone(found, "torch")["kind"].startswith("crash")
        return "PyTorch crashes" if crashes else None
    if found["kind"] == "hang":
        begun = time.monotonic()
        ended = alone(found, "torch")["kind"]
        return "PyTorch computes as long" if ended == "hang" or time.monotonic() - begun > LIMIT / 4 else None
    return None


@dataclass
class Report:
    """What programs did."""

    programs: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    findings: list[Answers] = field(default_factory=list)
    seconds: float = 0.0

    def add(self, said: Answers) -> None:
        self.programs += 1
        self.kinds[said["kind"]] += 1
        if said["finding"]:
            self.findings.append(said)

    def text(self) -> str:
        lines = [f"{self.programs} programs in {self.seconds:.0f} s"]
        lines += [f"    {n:8} {kind}" for kind, n in self.kinds.most_common()]
        for f in self.findings:
            at = f["case"]
            why = "\n# ".join(str(f.get("why", ""))[-1500:].splitlines())
            lines.append(f"\n# {f['kind']}: --replay {at['seed']} --device {at['device']}\n# {why}\n{f['text']}")
        lines.append(f"\n{len(self.findings)} findings")
        return "\n".join(lines)


def run(seconds: float, jobs: int, seed: int = 0, most: int | None = None, shrink: int = 40) -> Report:
    """Runs programs for a time, or until so many ran, each on both devices; shortens the first findings."""
    report, begun = Report(), time.monotonic()
    first = seed * 100_000_000

    def cases() -> Iterator[dict[str, Any]]:
        n = 0
        while most is None or n < most:
            yield {"seed": first + n // 2, "device": DEVICES[n % 2]}
            n += 1

    run_all(cases(), jobs, seconds, report.add, module=MODULE, limit=lambda case: LIMIT)
    for found in list(report.findings):
        if (why := of_pytorch(found)) is not None:
            report.findings.remove(found)
            report.kinds[found["kind"]] -= 1
            report.kinds[why] += 1
    with ThreadPoolExecutor(jobs) as pool:
        report.findings[:shrink] = pool.map(shortest, report.findings[:shrink])
    report.seconds = time.monotonic() - begun
    return report


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="tests.python.fuzz programs", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0, help="where the seeds of programs begin, in hundred millions")
    parser.add_argument("--most", type=int, help="end after so many programs")
    parser.add_argument("--report", type=Path, default=Path("programs-report.txt"))
    parser.add_argument("--replay", type=int, metavar="SEED", help="run one program and show it, shortened")
    parser.add_argument("--device", choices=DEVICES, default="cpu")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.child:
        serve(prepare)
        return 0
    if options.replay is not None:
        report = Report()
        child = Child(MODULE)
        report.add(one(child, {"seed": options.replay, "device": options.device}, LIMIT)[0])
        child.close()
        report.findings = [shortest(f) for f in report.findings]
    else:
        report = run(options.seconds, options.jobs, options.seed, options.most)
        options.report.write_text(report.text() + "\n")
    print(report.text())
    return bool(report.findings)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
