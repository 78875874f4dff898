"""A text that comes with Python, for the examples: its licence or, where that is missing, what its modules say.

`python examples/texts.py` prints it.
"""

from __future__ import annotations

import ast
import importlib.util
import sys
import sysconfig
from collections.abc import Iterator
from importlib.abc import InspectLoader
from pathlib import Path

# Shorter files only say where the licence is.
WHOLE = 5_000
# Of the documentation strings there are millions of characters.
ENOUGH = 40_000


def licence() -> str | None:
    """Python's licence, from the places where its installers put it."""
    library = Path(sysconfig.get_path("stdlib"))
    share = Path(sys.base_prefix) / "share" / "doc"
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    for folder in (library, library.parent, Path(sys.base_prefix), share / version):
        for name in ("LICENSE.txt", "LICENSE"):
            try:
                text = (folder / name).read_text(encoding="utf-8")
            except (OSError, UnicodeDecodeError):
                continue
            # A licence of something else may be in a folder above.
            if len(text) >= WHOLE and "PYTHON SOFTWARE FOUNDATION LICENSE" in text.upper():
                return text
    return None


def documentation() -> str:
    """The documentation strings of the standard library's modules, in alphabetical order, until there is enough."""
    found: list[str] = []
    for name in sorted(sys.stdlib_module_names):
        for said in _strings(name):
            found.append(said)
            if sum(map(len, found)) >= ENOUGH:
                return "\n\n".join(found)
    raise RuntimeError("this Python has neither its licence nor the documentation strings of its standard library")


def _strings(module: str) -> Iterator[str]:
    """What a module and its classes and functions say of themselves, without importing it; it may have no source."""
    try:
        spec = importlib.util.find_spec(module)
        loader = spec.loader if spec else None
        source = loader.get_source(module) if isinstance(loader, InspectLoader) else None
        tree = ast.parse(source or "")
    except (ImportError, OSError, SyntaxError, ValueError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            said = ast.get_docstring(node)
            if said and said.isascii():
                yield said


def text() -> str:
    """The licence, or else the documentation strings."""
    return licence() or documentation()


if __name__ == "__main__":
    print(text())
