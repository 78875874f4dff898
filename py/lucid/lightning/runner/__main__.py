"""`python -m lucid.lightning.runner`: what `lc-run` is."""

from __future__ import annotations

import sys

from lucid.lightning.runner.cli import main

if __name__ == "__main__":
    sys.exit(main())
