"""Sweeps every public callable with hostile arguments and writes a report of the shortest programs that end badly.

    python -m tests.python.hostile --seconds 3600 --jobs 16 [--seed 7] [--only linalg] [--conditions temporary,giant]
    python -m tests.python.hostile --replay '["lucid.add", "giant", 12]'
    python -m tests.python.hostile --program 'out = lucid.ones(1).expand(2**40) + 1'

Needs the package, NumPy and nothing else. The report is printed, and written to `--report`.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from tests.python.fuzz.process import Child, one, serve

from .programs import CONDITIONS, NUMBERS_ALONE, Programs
from .sweep import LIMIT, MODULE, prepare, standalone, sweep, write_report


def main() -> int:
    every = (*CONDITIONS, NUMBERS_ALONE)
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="a part of the targets' paths")
    parser.add_argument("--conditions", default="", help=f"of {', '.join(every)}; all of them")
    parser.add_argument("--report", type=Path, default=Path("hostile-report.txt"))
    parser.add_argument("--patience", type=float, default=LIMIT, help="seconds for what may rightly take long")
    parser.add_argument("--replay", metavar="CASE")
    parser.add_argument("--program")
    parser.add_argument("--times", type=int, default=1, help="how often to run a program: damage shows later")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        serve(prepare)
        return 0
    if options.replay or options.program:
        text = options.program or Programs()(*json.loads(options.replay))
        if text is None:
            parser.error("the condition says nothing about that target")
        print(standalone(text), flush=True)
        child = Child(MODULE)
        said, _ = one(child, {"program": text, "times": options.times}, LIMIT * options.times)
        child.close()
        print(f"# {said['kind']}: {said.get('why', '')}")
        return bool(said["finding"])
    conditions = tuple(options.conditions.split(",")) if options.conditions else every
    if unknown := set(conditions) - set(every):
        parser.error(f"no such condition: {', '.join(sorted(unknown))}")
    report = sweep(options.seconds, options.jobs, options.seed, options.only, conditions, patience=options.patience)
    write_report(report, options.report)
    print(report.text())
    return bool(report.findings)


if __name__ == "__main__":
    sys.exit(main())
