#!/usr/bin/env python3
"""Which public callables of `lucid` lack a part of their documentation?

    python tools/docstrings.py               what is missing, by package; exit status 1 where anything is
    python tools/docstrings.py --why NAME    what the callables whose names begin with NAME lack
    python tools/docstrings.py --examples    run every example

A callable is complete with a summary, and, where it has parameters, each of them in `Args:` with a type and a
description, a shape for tensors, `Returns:`, `Raises:` where it raises, and an example. Nothing that the signature
says by itself counts as a description. Where the signature is `*args, **kwargs`, as that of a function with overloads,
the names are those of the overloads in the stub. The public surface is what the modules of the package list in
`__all__`, and the methods of `Tensor`.
"""

from __future__ import annotations

import argparse
import ast
import doctest
import enum
import functools
import importlib
import inspect
import pkgutil
import re
import sys
import textwrap
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
SECTION = re.compile(r"^(Args|Attributes|Returns|Yields|Raises|Example|Examples)( [^:]*)?:$")
ARGUMENT = re.compile(r"^(\*{0,2}\w+(?:, \*{0,2}\w+)*) \((.+?)\): (.*)$")
SHAPE = re.compile(
    r"\(…|\([^)]*,[^)]*\)|\(\w+\)|shape|sizes?\b|dimension|scalar|0-d|vector|matri|tensors? (of|that)|"
    r"each|elements|any|dtype"
)
FILLER = {"the", "a", "an", "of", "to", "for", "value", "argument"}

# What PyTorch programs ask for and Lucid answers for no hardware of its own: their names are the documentation.
SKIPPED_MODULES = ("lucid.as_torch", "lucid.xpu", "lucid.mtia", "lucid.return_types")


def modules() -> Iterator[Any]:
    """Every public module of the package: no part of its name begins with an underscore."""
    import lucid

    yield lucid
    yield from _below(lucid)


def _below(package: Any) -> Iterator[Any]:
    """The public modules below a package. What is left out is not imported either."""
    for found in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        if found.name.rpartition(".")[2].startswith("_") or found.name.startswith(SKIPPED_MODULES):
            continue
        module = importlib.import_module(found.name)
        yield module
        if found.ispkg:
            yield from _below(module)


def public_callables() -> dict[str, Any]:
    """Every public callable by its shortest name. One that several modules export is listed once."""
    from lucid import Tensor

    found: dict[str, Any] = {}
    seen: set[int] = set()

    def add(name: str, value: Any) -> None:
        if callable(value) and not inspect.ismodule(value) and id(value) not in seen:
            seen.add(id(value))
            found[name] = value

    for module in sorted(modules(), key=lambda m: (m.__name__.count("."), m.__name__)):
        for name in getattr(module, "__all__", dir(module) if hasattr(module, "__path__") else ()):
            value = getattr(module, name, None)
            # Bound methods are made anew at each access.
            home = getattr(value, "__module__", None) or "lucid"
            if name.startswith("_") or not str(home).startswith("lucid"):
                continue
            if isinstance(value, type) and issubclass(value, BaseException):
                continue
            if type(value).__name__ in ("method_descriptor", "dtype", "_Dtypes"):
                continue
            add(f"{module.__name__}.{name}", value)
    for name in dir(Tensor):
        value = getattr(Tensor, name)
        if not name.startswith("_") and type(value).__name__ in ("method_descriptor", "function"):
            add(f"lucid.Tensor.{name}", value)
    return found


def documentation(value: Any) -> str:
    """The docstring of a callable; of a class its own, and that of `__init__`; of an object its class's and
    that of `__call__`."""
    if isinstance(value, type):
        own = value.__dict__.get("__doc__") or ""
        init = value.__dict__.get("__init__")
        return inspect.cleandoc(own) + "\n\n" + inspect.cleandoc(getattr(init, "__doc__", None) or "")
    own = inspect.cleandoc(getattr(value, "__doc__", None) or "")
    call = vars(type(value)).get("__call__")
    if inspect.isfunction(call) and not inspect.isfunction(value):
        own += "\n\n" + inspect.cleandoc(call.__doc__ or "")
    return own


@functools.cache
def stub_names() -> dict[str, list[str]]:
    """The parameters of each function, and method of `Tensor`, that is written in Rust: those of all its overloads."""
    found: dict[str, list[str]] = {}

    def note(name: str, function: ast.FunctionDef) -> None:
        given = function.args
        # A stub cannot have a parameter `from`.
        listed = [a.arg.removesuffix("_") for a in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
        own = found.setdefault(name, [])
        own += [n for n in listed if n not in ("self", *own) and not n.startswith("_")]

    for node in ast.parse((HERE.parent / "py" / "lucid" / "_C.pyi").read_text()).body:
        if isinstance(node, ast.FunctionDef):
            note(node.name, node)
        elif isinstance(node, ast.ClassDef) and node.name == "Tensor":
            for method in node.body:
                if isinstance(method, ast.FunctionDef):
                    note(f"Tensor.{method.name}", method)
    return found


def is_written_in_rust(value: Any) -> bool:
    return type(value).__name__ in ("builtin_function_or_method", "method_descriptor")


def parameters(value: Any) -> list[str]:
    """The names of the parameters that have to be described. Members of an enumeration are not made by calling it.

    `*args` and `**kwargs` stand for the parameters of another signature: of what is written in Rust those of its stub;
    else they need no words of their own where others are described that the signature does not have.
    """
    if isinstance(value, type) and (issubclass(value, enum.Enum) or getattr(value, "_is_protocol", False)):
        return []
    try:
        given = list(inspect.signature(value).parameters.values())
    except (ValueError, TypeError):
        given = []
    shown = [p for p in given if p.name not in ("self", "cls") and not p.name.startswith("_")]
    passed = {(inspect.Parameter.VAR_POSITIONAL, "args"), (inspect.Parameter.VAR_KEYWORD, "kwargs")}
    own = [p.name for p in shown if (p.kind, p.name) not in passed]
    rest = [p.name for p in shown if (p.kind, p.name) in passed]
    if is_written_in_rust(value) and (rest or not given):
        return [*own, *(n for n in stub_names().get(value.__qualname__, []) if n not in own)]
    if not rest or (isinstance(value, type) and "__init__" not in value.__dict__):
        return own
    described = arguments(sections(documentation(value)).get("Args", []))
    return own if described.keys() - set(own) else [*own, *rest]


def sections(doc: str) -> dict[str, list[str]]:
    """The lines of each section; those before the first one are `summary`."""
    found: dict[str, list[str]] = {"summary": []}
    now = "summary"
    for line in doc.splitlines():
        if match := SECTION.match(line):
            now = match[1].removesuffix("s") if match[1].startswith("Example") else match[1]
            found.setdefault(now, [])
        else:
            found[now].append(line)
    return found


def arguments(lines: list[str]) -> dict[str, tuple[str, str]]:
    """Type and description by name, of the lines of `Args:`."""
    text = textwrap.dedent("\n".join(lines))
    found: dict[str, tuple[str, str]] = {}
    last: list[str] = []
    for line in text.splitlines():
        if match := ARGUMENT.match(line):
            last = [n.strip().lstrip("*") for n in match[1].split(",")]
            found.update(dict.fromkeys(last, (match[2], match[3])))
        elif line.startswith(" ") and last:
            for name in last:
                kind, about = found[name]
                found[name] = (kind, about + " " + line.strip())
    return found


def says_nothing(name: str, kind: str, about: str) -> bool:
    """Does a description repeat no more than the parameter's name and type?"""
    words = set(re.findall(r"[a-z]+", about.lower())) - FILLER
    kind = kind.partition(", default")[0]
    return not words - set(re.findall(r"[a-z]+", (name.replace("_", " ") + " " + kind).lower()))


def returns_nothing(value: Any) -> bool:
    if isinstance(value, type):
        return True
    annotation = getattr(value, "__annotations__", {}).get("return", "")
    return str(annotation) in ("None", "NoReturn") or annotation is None


def raises(value: Any) -> bool:
    """Does the callable's own source raise? What is written in Rust checks its arguments."""
    code = value.__dict__.get("__init__") if isinstance(value, type) else value
    call = vars(type(value)).get("__call__")
    if inspect.isfunction(call) and not isinstance(value, type):
        code = call
    if not inspect.isfunction(code):
        return not isinstance(value, type)
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(code)))
    except (OSError, SyntaxError, TypeError):
        return False
    return any(isinstance(node, ast.Raise) for node in ast.walk(tree))


def missing(value: Any) -> list[str]:
    """The parts that the documentation of a callable lacks."""
    doc = documentation(value)
    parts = sections(doc)
    lacks = [] if "".join(parts["summary"]).strip() else ["a summary"]
    names = parameters(value)
    if not names:
        return lacks
    described = arguments(parts.get("Args", []))
    for name in names:
        if name not in described:
            lacks.append(f"the argument {name}")
            continue
        kind, about = described[name]
        if says_nothing(name, kind, about):
            lacks.append(f"a description of {name}")
        elif kind.startswith("Tensor") and not SHAPE.search(about):
            lacks.append(f"the shape of {name}")
    if not returns_nothing(value) and not parts.keys() & {"Returns", "Yields"}:
        lacks.append("Returns")
    if raises(value) and "Raises" not in parts:
        lacks.append("Raises")
    if ">>>" not in doc:
        lacks.append("an example")
    return lacks


def run_examples(found: dict[str, Any], report: Callable[[str], Any]) -> tuple[int, int]:
    """Runs the examples of the callables' docstrings. How many failed, and how many statements there were."""
    import lucid
    from lucid.nn.modules import call as hooks

    parser = doctest.DocTestParser()
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    failed = statements = 0
    for name, value in found.items():
        lucid.manual_seed(0)
        # A process has backward hooks of one kind for every module, even after they are removed.
        hooks._every._is_full_backward_hook = None
        # As in a module's own doctests, its names are there; but those of `lucid` itself would hide Python's `float`.
        module = getattr(value, "__module__", None) or "lucid"
        names = {} if module in ("lucid", "lucid._C") else dict(vars(sys.modules[module]))
        test = parser.get_doctest(documentation(value), {**names, "lucid": lucid}, name, None, 0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = doctest.DocTestRunner(optionflags=flags, verbose=False).run(test, out=report)
        failed += result.failed
        statements += result.attempted
    return failed, statements


def table(lacking: dict[str, list[str]], found: dict[str, Any]) -> Iterator[str]:
    """How much of each package is documented."""

    def package(name: str) -> str:
        return name.rsplit(".", 1)[0]

    total, open_ = Counter(map(package, found)), Counter(map(package, lacking))
    for name, count in sorted(total.items(), key=lambda pair: -open_[pair[0]]):
        yield f"{name:50} {count - open_[name]:5} of {count:5}"
    yield f"{'all':50} {len(found) - len(lacking):5} of {len(found):5}"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--why", metavar="NAME", help="what the callables whose names begin with NAME lack")
    parser.add_argument("--examples", metavar="NAME", nargs="?", const="", help="run the examples")
    asked = parser.parse_args()
    sys.path.insert(0, str(HERE.parent / "py"))
    warnings.simplefilter("ignore")
    found = public_callables()
    if asked.examples is not None:
        chosen = {name: value for name, value in found.items() if name.startswith(asked.examples)}
        failed, statements = run_examples(chosen, sys.stdout.write)
        print(f"{statements} statements, {failed} failed")
        return 1 if failed else 0
    lacking = {name: lacks for name, value in found.items() if (lacks := missing(value))}
    if asked.why is not None:
        for name, lacks in sorted(lacking.items()):
            if name.startswith(asked.why):
                print(f"{name}: {', '.join(lacks)}")
        return 0
    for line in table(lacking, found):
        print(line)
    for name, lacks in sorted(lacking.items()):
        print(f"{name} lacks {', '.join(lacks)}", file=sys.stderr)
    return 1 if lacking else 0


if __name__ == "__main__":
    sys.exit(main())
