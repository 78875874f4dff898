#!/usr/bin/env python3
"""Write the stubs of `lucid._C` from the op table.

    python py/tools/stubs.py            write py/lucid/_C.pyi
    python py/tools/stubs.py --check    are they up to date and complete? (exit status 1 if not)

Ops come from `op_schemas()`; what has no row stands in stub_head.pyi beside this script.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
PACKAGE = HERE.parent / "lucid"
OUT = PACKAGE / "_C.pyi"

# How the kinds of the op table are written as types; the names with an underscore are defined in the head.
KINDS = {
    "Tensor": "Tensor",
    "OptTensor": "Tensor | None",
    "Tensors": "Sequence[Tensor]",
    "Operand": "_Operand",
    "OptOperand": "_Operand | None",
    "Number": "_Number",
    "OptNumber": "_Number | None",
    "Int": "_int",
    "Start": "_int | Tensor",
    "OptInt": "_int | None",
    "Float": "_float",
    "OptFloat": "_float | None",
    "Bool": "_bool",
    "Whether": "_bool | None",
    "OptBool": "_bool | None",
    "Dim": "_int",
    "OptDim": "_int | None",
    "Dims": "_Ints",
    "OptDims": "_Ints | None",
    "Sizes": "Sequence[_int]",
    "Sections": "_Ints | Tensor",
    "DimPairs": "_int | Sequence[_Ints]",
    "Dtype": "_dtype",
    "OptDtype": "_dtype | None",
    "DeviceArg": "_device",
    "OptDevice": "_device | None",
    "OptGenerator": "Generator | None",
    "Text": "str",
    "OptText": "str | None",
    "OptFloats": "Sequence[_float] | None",
    "OptOrder": "_Number | str | None",
    "Spacing": "_Number | Sequence[_Number] | Sequence[Tensor]",
    "OptFormat": "memory_format | None",
    "Bins": "_int | Sequence[_int | Tensor]",
    "SomeTensor": "Tensor",
    "SomeOperand": "_Operand",
    "SomeNumber": "_Number",
    "SomeInt": "_int",
    "SomeDim": "_int",
    "SomeDims": "_Ints",
    "SomeOrder": "_Number | str",
    "SomeText": "str",
}
RESULTS = {
    "Tensor": "Tensor",
    "Tensors": "tuple[Tensor, ...]",
    "ValuesIndices": "ValuesIndices",
    "MinMax": "MinMax",
    "SignLogabsdet": "SignLogabsdet",
    "MantissaExponent": "MantissaExponent",
    "Pair": "tuple[Tensor, Tensor]",
    "Each": "Any",
    "Named": "Any",
    "Truth": "_bool",
    "Packed": "Any",
    "MaybeIndices": "Any",
    "HistEdges": "HistEdges",
    "HistEdgesList": "HistEdgesList",
}


# What the bindings add to a row's own parameters, and other names of some of these: NumPy's, and PyTorch's overloads'.
BESIDE = {"out": "Any", "layout": "Any", "pin_memory": "_bool | None", "requires_grad": "_bool | None"}
OTHER_NAMES = {
    "axis": "dim",
    "keepdims": "keepdim",
    "split_size": "split_size_or_sections",
    **dict.fromkeys(("indices", "sections", "tensor_indices_or_sections"), "indices_or_sections"),
    "tensor": "input",
    "axis0": "dim0",
    "axis1": "dim1",
    "input2": "L",
}


def literal(rust: str | None) -> str:
    """A row's default, a Rust expression, as stubs write it."""
    bare = "" if rust is None else rust.replace(" ", "")
    words = {"None": "None", "true": "True", "false": "False"}
    if bare in words or re.fullmatch(r"-?[0-9][0-9.e-]*|\"[a-z]*\"", bare):
        return words.get(bare, bare)
    return "..."


def extras(row: dict[str, Any], live: Any) -> str:
    """The keyword-only parameters that the bindings add to a row's."""
    taken = set(inspect.signature(live).parameters) - {p["name"] for p in row["params"]}
    kinds = {p["name"]: KINDS[p["kind"]] for p in row["params"]}
    found = [f"{name}: {kinds[own]} = ..." for name, own in OTHER_NAMES.items() if name in taken]
    return ", ".join([*found, *(f"{name}: {kind} = ..." for name, kind in BESIDE.items() if name in taken)])


def parameters(params: list[dict[str, Any]], extra: str = "", optional: bool = False) -> str:
    """The parameters of a row as a signature; `extra` is keyword-only ones more. With `optional`, what has another
    name, and what follows it, need not be given."""
    parts, keywords, seen = [], False, False
    for p in params:
        seen |= optional and p["name"] in OTHER_NAMES.values()
        if p["keyword_only"] and not keywords:
            keywords = True
            parts.append("*")
        value = literal(p["default"])
        # Some defaults are None for the engine alone.
        value = "..." if value == "None" and "None" not in KINDS[p["kind"]] else value
        default = "" if p["default"] is None and not seen else f" = {value}"
        parts.append(f"{p['name']}: {KINDS[p['kind']]}{default}")
    if extra:
        parts += [extra] if keywords else ["*", extra]
    return ", ".join(parts)


def may_be_listed(params: list[dict[str, Any]], kinds: tuple[str, ...]) -> bool:
    """Do sizes or dimensions stand alone, so that a call may list them: `reshape(2, 3)`?"""
    positional = [p for p in params if not p["keyword_only"]]
    return len(positional) == 1 and positional[0]["kind"] in kinds and positional[0]["default"] is None


def with_doc(definition: str, row: dict[str, Any]) -> str:
    """The definition with the row's documentation as its docstring."""
    doc = re.sub(r"\[`([^`]*)`\](\([^)]*\))?", r"`\1`", row["doc"]).strip()
    if not doc or not definition.endswith(": ...") or '"""' in doc or "\\" in doc:
        return definition
    lines = "\n".join("    " + line.strip() if line.strip() else "" for line in doc.splitlines()).strip()
    return f'{definition.removesuffix(" ...")}\n    """{lines}"""'


def definitions(name: str, row: dict[str, Any], live: Any, method: bool) -> Iterator[str]:
    params = row["params"][1:] if method else row["params"]
    result = RESULTS[row["returns"]]
    extra = extras(row, live)
    new = "requires_grad" in extra
    first = ["self"] if method else []
    signature = ", ".join([*first, *filter(None, [parameters(params, extra, "axis:" in extra)])])
    many = {p.name for p in inspect.signature(live).parameters.values() if p.kind is p.VAR_POSITIONAL}
    at = next((i for i, p in enumerate(params) if p["kind"] == "Tensors" and p["name"] in many), None)
    if at is not None:
        before = parameters(params[:at])
        rest = parameters(params[at + 1 :], extra).removeprefix("*, ")
        each = ", ".join(filter(None, [before, f"*{params[at]['name']}: Tensor", rest]))
        yield f"@overload\ndef {name}({signature}) -> {result}: ..."
        yield f"@overload\ndef {name}({each}) -> {result}: ..."
        return
    listed = may_be_listed(params, ("Sizes", "Dims")) if method else new and may_be_listed(params, ("Sizes",))
    if not listed:
        yield f"def {name}({signature}) -> {result}: ..."
        return
    rest = parameters(params[1:], extra).removeprefix("*, ")
    many = ", ".join([*first, f"*{params[0]['name']}: _int", *filter(None, [rest])])
    yield f"@overload\ndef {name}({signature}) -> {result}: ..."
    yield f"@overload\ndef {name}({many}) -> {result}: ..."


def in_place(name: str, row: dict[str, Any]) -> str:
    signature = ", ".join(["self", *filter(None, [parameters(row["params"][1:])])])
    return f"def {name}({signature}) -> Self: ..."


def in_place_function(name: str, row: dict[str, Any]) -> str:
    signature = ", ".join(["input: Tensor", "/", *filter(None, [parameters(row["params"][1:])])])
    return f"def {name}({signature}) -> Tensor: ..."


def names(body: list[ast.stmt]) -> set[str]:
    """The names that statements of a stub define."""
    found = set()
    for s in body:
        if isinstance(s, (ast.FunctionDef, ast.ClassDef)):
            found.add(s.name)
        elif isinstance(s, ast.AnnAssign) and isinstance(s.target, ast.Name):
            found.add(s.target.id)
        elif isinstance(s, ast.Assign):
            found.update(t.id for t in s.targets if isinstance(t, ast.Name))
    return found


def class_body(tree: ast.Module, name: str) -> list[ast.stmt]:
    return next(s.body for s in tree.body if isinstance(s, ast.ClassDef) and s.name == name)


def generate(module: Any) -> str:
    """The stubs' text."""
    head = (HERE / "stub_head.pyi").read_text()
    tree = ast.parse(head)
    by_hand, methods_by_hand = names(tree.body), names(class_body(tree, "Tensor"))
    rows = {row["name"]: row for row in module._op_schemas()}
    tensor = module.Tensor

    functions: list[str] = []
    for name, live in sorted(vars(module).items()):
        real = getattr(live, "__name__", "")
        row = rows.get(real)
        if name not in by_hand and row is None and real.endswith("_") and real.removesuffix("_") in rows:
            functions.append(in_place_function(name, rows[real.removesuffix("_")]))
        if name not in by_hand and callable(live) and row is not None and not isinstance(live, type):
            functions += [with_doc(d, row) for d in definitions(name, row, live, method=False)]
    methods: list[str] = []
    for name in sorted(dir(tensor)):
        live = getattr(tensor, name)
        real = getattr(live, "__name__", "")
        if name in methods_by_hand or name in dir(object):
            continue
        if real in rows:
            methods += [with_doc(d, rows[real]) for d in definitions(name, rows[real], live, method=True)]
        elif real.removesuffix("_") in rows:
            methods.append(in_place(name, rows[real.removesuffix("_")]))

    values = [f"{name}: dtype" for name, v in vars(module).items() if isinstance(v, module.dtype)]
    classes = []
    for name, v in vars(module).items():
        if isinstance(v, type) and issubclass(v, Exception):
            bases = ", ".join(
                f"builtins.{b.__name__}" if b.__module__ == "builtins" else b.__name__ for b in v.__bases__
            )
            classes.append(f"class {name}({bases}): ...")
    text = head.replace("# @@EXCEPTIONS AND DTYPES@@", "\n".join(["import builtins", "", *classes, "", *values]))
    text = text.replace("    # @@METHODS@@", "\n".join("    " + line for m in methods for line in m.splitlines()))
    text = text.replace("# @@FUNCTIONS@@", "\n".join(functions))
    public = "__all__ = [\n" + "".join(f'    "{n}",\n' for n in sorted(module.__all__)) + "]"
    text = text.replace("__all__: list[str]", public)

    return "# Written by py/tools/stubs.py from the op table. Do not edit.\n" + text


def problems(module: Any, text: str) -> Iterator[str]:
    """What the stubs and the module do not agree on."""
    if not OUT.exists() or OUT.read_text() != text:
        yield f"{OUT.name} is not up to date: run py/tools/stubs.py"
    tree = ast.parse(text)
    stub = names(tree.body)
    stub -= {"_Number", "_Operand", "_Ints", "_dtype", "_device", "__all__"}
    ignored = {"__all__", "__doc__", "__file__", "__loader__", "__name__", "__package__", "__spec__"}
    # `__getattr__` finds names that packages touch, and would hide wrong ones from type checkers.
    yield from differences("lucid._C", stub, set(vars(module)) - ignored - {"__getattr__"})
    for name in ("Tensor", "Generator", "dtype", "device"):
        cls = getattr(module, name)
        own = {n for n in vars(cls) if n not in vars(object) and n not in ("__dict__", "__weakref__", "__module__")}
        stubbed = {n for n in names(class_body(tree, name)) if n not in vars(object)}
        yield from differences(f"lucid.{name}", stubbed, own)


def differences(where: str, stub: set[str], live: set[str]) -> Iterator[str]:
    for name in sorted(live - stub):
        yield f"{where}.{name} has no stub"
    for name in sorted(stub - live):
        yield f"{where}.{name} has a stub but does not exist"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if something does not agree")
    check = parser.parse_args().check
    sys.path.insert(0, str(PACKAGE.parent))
    from lucid import _C as module

    text = generate(module)
    if not check:
        OUT.write_text(text)
    found = list(problems(module, text))
    for problem in found:
        print(problem, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
