"""The main module of processes that `multiprocessing` starts under the switch: it runs the program's own."""

from __future__ import annotations

import os
import runpy

import lucid.as_torch  # noqa: F401
from lucid.as_torch._finder import MAIN

if __name__ == "__mp_main__":
    _kind, _, _main = os.environ.get(MAIN, "").partition("=")
    if _kind == "init_main_from_path" and _main:
        globals().update(runpy.run_path(_main, run_name="__mp_main__"))
    elif _kind == "init_main_from_name" and _main not in ("", "lucid.as_torch.__main__", __name__):
        globals().update(runpy.run_module(_main, run_name="__mp_main__", alter_sys=True))
