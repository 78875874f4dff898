"""`python -m lucid.lightning SCRIPT [ARGUMENTS]`: runs a script that imports `lightning_core`."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

from lucid import lightning


def main() -> int:
    if len(sys.argv) < 2 or sys.argv[1] in ("-h", "--help"):
        print("usage: python -m lucid.lightning SCRIPT [ARGUMENTS]", file=sys.stderr)
        return 0 if len(sys.argv) > 1 else 2
    script = Path(sys.argv[1])
    if not script.is_file():
        print(f"python -m lucid.lightning: there is no script {script}", file=sys.stderr)
        return 2
    lightning.install()
    sys.argv = sys.argv[1:]
    sys.path[0] = str(script.resolve().parent)
    runpy.run_path(str(script), run_name="__main__")
    return 0


if __name__ == "__main__":
    sys.exit(main())
