"""`python -m lucid.distributed.launch`: the older name of `lucid.distributed.run`."""

from __future__ import annotations

import sys

from lucid.distributed.run import main

if __name__ == "__main__":
    sys.exit(main())
