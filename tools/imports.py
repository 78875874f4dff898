#!/usr/bin/env python3
"""Which of PyTorch's names a Python file uses that Lucid lacks, read from its syntax tree; nothing of it is run.

    python tools/imports.py FILE_OR_FOLDER… [--summary] [--names N] [--all] [--json]

A file is complete if every name of `torch` that it imports or reaches (`import torch.nn as nn`, `nn.Linear`) is there
under `lucid`. Not counted, unless `--all`: what is under `if TYPE_CHECKING`, in a `try` that catches the failure of an
import or an attribute, or asked for by `hasattr`; and, where PyTorch is installed, names that it lacks itself.
"""

from __future__ import annotations

import argparse
import ast
import functools
import importlib
import json
import sys
import types
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_CATCHES = {"ImportError", "ModuleNotFoundError", "AttributeError", "Exception", "BaseException", "RuntimeError"}


class Names(ast.NodeVisitor):
    """Collects the dotted names below `torch` that a file uses, without `torch.`, and where."""

    def __init__(self, tree: ast.AST) -> None:
        self.bound: dict[str, str] = {}
        self.used: dict[str, int] = {}
        self.optional: dict[str, int] = {}
        self._guarded = 0
        self._bind(tree)
        self.visit(tree)

    def _bind(self, tree: ast.AST) -> None:
        """The names that imports bind to modules and members of torch."""
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                for a in node.names:
                    if a.name.split(".")[0] == "torch":
                        self.bound[a.asname or "torch"] = a.name.partition(".")[2] if a.asname else ""
            elif isinstance(node, ast.ImportFrom) and not node.level and (node.module or "").split(".")[0] == "torch":
                base = (node.module or "").partition(".")[2]
                for a in node.names:
                    self.bound[a.asname or a.name] = f"{base}.{a.name}".lstrip(".")
        for node in ast.walk(tree):
            if isinstance(node, ast.arg):
                self.bound.pop(node.arg, None)
            elif isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load) and node.id != "torch":
                self.bound.pop(node.id, None)

    def use(self, name: str, line: int) -> None:
        if name:
            (self.optional if self._guarded else self.used).setdefault(name, line)

    def visit_Import(self, node: ast.Import) -> None:
        for a in node.names:
            if a.name.split(".")[0] == "torch":
                self.use(a.name.partition(".")[2], node.lineno)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        if node.level or (node.module or "").split(".")[0] != "torch":
            return
        base = (node.module or "").partition(".")[2]
        for a in node.names:
            self.use(base if a.name == "*" else f"{base}.{a.name}".lstrip("."), node.lineno)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        parts: list[str] = []
        at: ast.expr = node
        while isinstance(at, ast.Attribute):
            parts.append(at.attr)
            at = at.value
        if isinstance(at, ast.Name) and at.id in self.bound:
            self.use(".".join([*filter(None, [self.bound[at.id]]), *reversed(parts)]), node.lineno)
        else:
            self.generic_visit(node)

    def visit_If(self, node: ast.If) -> None:
        test = ast.dump(node.test)
        guarded = "'TYPE_CHECKING'" in test or "id='hasattr'" in test
        self.visit(node.test)
        self._guarded += guarded
        for child in node.body:
            self.visit(child)
        self._guarded -= guarded
        for child in node.orelse:
            self.visit(child)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        guarded = "id='hasattr'" in ast.dump(node.test)
        self._guarded += guarded
        self.generic_visit(node)
        self._guarded -= guarded

    def visit_Try(self, node: ast.Try) -> None:
        caught = [h.type for h in node.handlers]
        guarded = any(t is None or _CATCHES & {n.id for n in ast.walk(t) if isinstance(n, ast.Name)} for t in caught)
        self._guarded += guarded
        for child in node.body:
            self.visit(child)
        self._guarded -= guarded
        for child in (*node.handlers, *node.orelse, *node.finalbody):
            self.visit(child)


class Framework:
    """A framework's names, found by importing its modules."""

    def __init__(self, name: str) -> None:
        self.root = importlib.import_module(name)

    @functools.cache  # noqa: B019
    def lacks(self, name: str) -> str | None:
        """The shortest prefix of a dotted name that is not there; `None` if all of it is.

        Members are followed through modules and classes; what is beyond a value is not known without running.
        """
        at: Any = self.root
        path = self.root.__name__
        parts = name.split(".")
        for i, part in enumerate(parts):
            if not isinstance(at, (types.ModuleType, type)):
                return None
            if isinstance(at, type) and at is not getattr(self.root, "Tensor", None):
                return None
            missing = object()
            try:
                found = getattr(at, part, missing)
                if found is missing and isinstance(at, types.ModuleType):
                    found = importlib.import_module(f"{path}.{part}")
            except Exception:
                return ".".join(parts[: i + 1])
            if found is missing:
                return ".".join(parts[: i + 1])
            at, path = found, f"{path}.{part}"
        return None


def files(given: list[str]) -> Iterator[Path]:
    for path in map(Path, given):
        yield from sorted(path.rglob("*.py")) if path.is_dir() else [path]


def main(argv: list[str] | None = None) -> int:
    """Prints, for each file, the names that are not there; gives 1 if there are any."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="+", metavar="FILE_OR_FOLDER")
    parser.add_argument("--summary", action="store_true", help="only the share of complete files, and the names")
    parser.add_argument("--names", type=int, default=40, metavar="N", help="how many names the summary lists")
    parser.add_argument("--all", action="store_true", help="count guarded names, and those that PyTorch lacks, too")
    parser.add_argument("--json", action="store_true", help="the result as one JSON object")
    args = parser.parse_args(argv)
    warnings.simplefilter("ignore")
    ours = Framework("lucid")
    try:
        theirs = None if args.all else Framework("torch")
    except ImportError:
        theirs = None
    seen, missing_of, unread = 0, {}, []
    for path in files(args.paths):
        try:
            names = Names(ast.parse(path.read_bytes()))
        except (SyntaxError, ValueError, OSError, RecursionError) as e:
            unread.append(f"{path}: {e}")
            continue
        if not names.bound and not names.used and not names.optional:
            continue
        seen += 1
        used = {**names.optional, **names.used} if args.all else names.used
        missing: dict[str, int] = {}
        for name, line in used.items():
            lacking = ours.lacks(name)
            if lacking is not None and (theirs is None or theirs.lacks(name) is None):
                missing.setdefault(lacking, line)
        if missing:
            missing_of[str(path)] = missing
    counts = Counter(name for missing in missing_of.values() for name in missing)
    complete = seen - len(missing_of)
    share = complete / seen if seen else 1.0
    if args.json:
        whole = {"files": seen, "complete": complete, "missing": dict(counts.most_common()), "unread": unread}
        print(json.dumps(whole if args.summary else {**whole, "by_file": missing_of}))
        return int(bool(missing_of or unread))
    for line in unread:
        print(f"{line} (not read)", file=sys.stderr)
    if not args.summary:
        for path, missing in missing_of.items():
            for name, line in sorted(missing.items(), key=lambda item: item[1]):
                print(f"{path}:{line}: torch.{name}")
    print(f"{complete} of {seen} files that use torch are complete ({share:.1%})")
    if args.summary:
        # What a name alone keeps from being complete says what to add first.
        alone = Counter(next(iter(m)) for m in missing_of.values() if len(m) == 1)
        for name, n in counts.most_common(args.names):
            print(f"{n:6} files, {alone[name]:5} by this alone: torch.{name}")
    return int(bool(missing_of or unread))


if __name__ == "__main__":
    sys.exit(main())
