"""Fuzzes every public function, method and class of the package, or runs random programs beside PyTorch.

python -m tests.python.fuzz --seconds 600 --jobs 2 [--seed 7] [--only linalg]
python -m tests.python.fuzz --replay 'lucid.add' 12345
python -m tests.python.fuzz programs --seconds 600 --jobs 2 [--seed 7]
python -m tests.python.fuzz layers [--device gpu] [--seconds 60] [--seed 7]: convolutions and norms of random shapes
python -m tests.python.fuzz compiled [SECONDS] [SEED]: random programs, compiled against eager
"""

from __future__ import annotations

import argparse
import sys

from .calls import call_text
from .process import serve
from .run import fuzz, prepare, run_case
from .targets import schemas, targets


def main() -> None:
    if sys.argv[1:2] == ["programs"]:
        from . import programs

        sys.exit(programs.main(sys.argv[2:]))
    if sys.argv[1:2] == ["layers"]:
        from . import layers

        sys.exit(layers.main(sys.argv[2:]))
    if sys.argv[1:2] == ["compiled"]:
        from tests.python.parity.compile import random_programs

        sys.exit(random_programs.main(sys.argv[2:]))
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="a part of the targets' paths")
    parser.add_argument("--replay", nargs=2, metavar=("PATH", "SEED"))
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        serve(prepare)
    elif options.replay:
        path, seed = options.replay
        text = call_text(path, targets()[path], schemas(), int(seed))
        print(text, flush=True)
        print(run_case(text, True))
    else:
        report, total = fuzz(options.seconds, options.jobs, options.seed, options.only)
        print(report.text(total))
        sys.exit(bool(report.findings))


if __name__ == "__main__":
    main()
