"""`python -m lucid.as_torch script.py arguments…`: runs a program in which `torch` is Lucid.

As with `python` itself, `-m module` runs a module and `-c code` runs text.
"""

from __future__ import annotations

import os
import runpy
import sys

import lucid.as_torch

_USAGE = "usage: python -m lucid.as_torch (script.py | -m module | -c code) [arguments …]"


def main() -> None:
    """Runs the program that the command line names, with the arguments after it."""
    given = sys.argv[1:]
    if not given or given[0] in ("-h", "--help"):
        print(_USAGE, f"\ntorch is Lucid {lucid.__version__}, as version {lucid.as_torch.VERSION}")
        raise SystemExit(0 if given else 2)
    if given[0] in ("-m", "-c") and len(given) < 2:
        raise SystemExit(_USAGE)
    if given[0] == "-m":
        sys.argv = given[1:]
        runpy.run_module(given[1], run_name="__main__", alter_sys=True)
    elif given[0] == "-c":
        sys.argv = ["-c", *given[2:]]
        module = type(sys)("__main__")
        sys.modules["__main__"] = module
        exec(compile(given[1], "<string>", "exec"), vars(module))
    else:
        if not os.path.exists(given[0]):
            raise SystemExit(f"lucid.as_torch: can't open file {given[0]!r}: no such file")
        sys.argv = given
        # As python does: the script's folder comes first, where `-m` had put the working one.
        sys.path[0] = os.path.dirname(os.path.abspath(given[0]))
        _run_path(given[0])


def _run_path(path: str) -> None:
    """Runs a script as the main module, which stays after the end, as classes that are pickled need it."""
    if os.path.isdir(path):
        runpy.run_path(path, run_name="__main__")
        return
    with open(path, "rb") as file:
        code = compile(file.read(), path, "exec")
    module = type(sys)("__main__")
    module.__dict__.update(__file__=path, __builtins__=__builtins__, __spec__=None)
    sys.modules["__main__"] = module
    exec(code, vars(module))


if __name__ == "__main__":
    main()
