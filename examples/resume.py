"""Stops a training run in the middle, goes on from its last checkpoint, and compares with a run that was not stopped.

    python examples/resume.py [lenet|char_transformer|lstm|mlp|resnet|vae] [--device cpu|gpu] [--quick] …

What follows the example's name is passed on to it. The three runs are processes of their own, and the stopped one has
gone some steps beyond its last checkpoint, as a crash would have it. The losses of all steps and the figures of all
epochs must be the same to the last bit: a checkpoint has the states of model, optimizer, schedule, loss scaler and
random numbers, and where in the data the run was. The exit status is 1 where they differ.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

EXAMPLES = ("lenet", "char_transformer", "lstm", "mlp", "resnet", "vae")


def start(example: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Runs an example to its end."""
    script = Path(__file__).with_name(f"{example}.py")
    return subprocess.run([sys.executable, str(script), *options], stdout=subprocess.PIPE, text=True)


def result(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """What a run printed as JSON."""
    if done.returncode:
        raise SystemExit(f"{' '.join(done.args)}: exit status {done.returncode}")
    made: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return made


def main(argv: Sequence[str] | None = None) -> dict[str, Any]:
    """Runs an example whole, then in two parts, and gives what was compared."""
    options = list(sys.argv[1:] if argv is None else argv)
    if {"-h", "--help"} & set(options):
        print((__doc__ or "").strip())
        raise SystemExit(0)
    example = options.pop(0) if options and not options[0].startswith("-") else "lenet"
    if example not in EXAMPLES:
        raise SystemExit(f"there is no example {example!r} to resume; there are {', '.join(EXAMPLES)}")
    whole = result(start(example, *options, "--json"))
    count = len(whole["losses"])
    # Saved inside of an epoch, mostly, and stopped a little later.
    every = count * 2 // 5 + 1
    stop = min(every + every // 2, count)
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = str(Path(folder) / "run.pt")
        saving = ("--checkpoint", checkpoint, "--every", str(every), "--stop", str(stop))
        stopped = start(example, *options, *saving)
        if stopped.returncode != 1 or not Path(checkpoint).exists():
            raise SystemExit(f"{example} was to stop after {stop} of {count} steps and leave a checkpoint")
        resumed = result(start(example, *options, "--resume", checkpoint, "--json"))
    same = resumed["losses"] == whole["losses"] and resumed["history"] == whole["history"]
    print(f"{example} on {whole['device']}: {count} steps, stopped after {stop}, a checkpoint each {every}")
    print(f"last loss {whole['losses'][-1]!r}, of the resumed run {resumed['losses'][-1]!r}")
    if not same:
        pairs = zip(whole["losses"], resumed["losses"], strict=False)
        first = next((i for i, (a, b) in enumerate(pairs, 1) if a != b), None)
        raise SystemExit(f"the losses differ from step {first} on" if first else "the figures of the epochs differ")
    print("the same to the last bit")
    return {"example": example, "device": whole["device"], "steps": count, "stopped": stop, "every": every}


if __name__ == "__main__":
    main()
