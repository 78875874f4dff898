"""Calls of every public callable that are known to succeed, with their tensor arguments apart."""

from __future__ import annotations

import ast
import re
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import lucid
import numpy as np

from tests.python import fuzz
from tests.python.fuzz.calls import tensor
from tests.python.fuzz.run import run_case
from tests.python.samples import NOT_OF_EQUAL_ROWS, UP_TO_SIGN, Data, makers

from .known_calls import known
from .operands import Operand


@dataclass(frozen=True)
class Call:
    """A call in which `arg0`, `arg1`, … stand for its tensor arguments."""

    path: str
    text: str
    operands: tuple[Operand, ...]
    #: The dtypes that the op says it takes.
    dtypes: tuple[str, ...] = ()
    #: Is its result one number for one set of values, whatever memory they are in?
    unique: bool = False

    def of(self, texts: list[str]) -> str:
        """The call with these arguments."""
        return re.sub(r"\barg(\d+)\b", lambda m: texts[int(m[1])], self.text)

    def function(self) -> str:
        """A function of the tensor arguments."""
        return f"lambda {', '.join(f'arg{i}' for i in range(len(self.operands)))}: {self.text}"


class _Parse(ast.NodeTransformer):
    def __init__(self, make: dict[str, Any]) -> None:
        self.make = make
        self.found: list[Operand] = []

    def visit_Call(self, node: ast.Call) -> ast.AST:
        if isinstance(node.func, ast.Name) and node.func.id in self.make and node.func.id != "DT":
            made = eval(compile(ast.Expression(node), "<sample>", "eval"), dict(self.make))
            data = made if isinstance(made, Data) else Data(np.asarray(made))
            self.found.append(Operand.of(data.values, data.varies))
            return ast.Name(f"arg{len(self.found) - 1}", ast.Load())
        return self.generic_visit(node)

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        if isinstance(node.value, ast.Name) and node.value.id == "DT":
            return ast.Attribute(ast.Name("lucid", ast.Load()), node.attr, ast.Load())
        return self.generic_visit(node)


def parse(path: str, text: str, make: dict[str, Any], **more: Any) -> Call:
    tree = _Parse(make)
    body = ast.fix_missing_locations(tree.visit(ast.parse(text, mode="eval")))
    return Call(path, ast.unparse(body), tuple(tree.found), **more)


def of_row(path: str, schema: Any, sample: str) -> Call:
    """The call of a row's sample, as a function or as a method."""
    rng = np.random.default_rng(zlib.crc32(f"{schema['name']}({sample})".encode()))
    name = path.rsplit(".", 1)[-1]
    dtypes = tuple(str(d).rsplit(".", 1)[-1] for d in schema["dtypes"])
    unique = schema["determinism"] == "yes" and not schema["name"].startswith(("empty", "new_empty"))
    unique = unique and schema["name"] not in (*NOT_OF_EQUAL_ROWS, *UP_TO_SIGN)
    text = f"{path}({sample})"
    if path.startswith("lucid.Tensor."):
        tree = ast.parse(f"f({sample})", mode="eval").body
        assert isinstance(tree, ast.Call)
        if not tree.args:
            return Call(path, "None", ())
        at = next((i for i, q in enumerate(schema["params"]) if q["kind"] == "Tensor"), 0)
        if at >= len(tree.args):
            return Call(path, "None", ())
        rest = [ast.unparse(a) for a in tree.args]
        self = rest.pop(at)
        named = [f"{k.arg}={ast.unparse(k.value)}" for k in tree.keywords]
        text = f"{self}.{name}({', '.join([*rest, *named])})"
    return parse(path, text, makers(rng, False), dtypes=dtypes, unique=unique)


def guessed(path: str, target: Any, rows: dict[str, Any], tries: int = 25) -> list[Call]:
    """The calls that the fuzzer writes and that succeed, of those with tensors the first."""
    without: list[Call] = []

    def literal(shape: Any, dtype: str, device: str, *rest: Any) -> Any:
        return tensor(shape, dtype, "cpu").float().numpy()

    for seed in range(tries):
        text = fuzz.call_text(path, target, rows, seed)
        if (without and "T(" not in text) or run_case(text, False)["kind"] != "ok":
            continue
        call = parse(path, re.sub(r"\bT\(", "TENSOR(", text), {"TENSOR": literal})
        if call.operands:
            return [call]
        without.append(call)
    return without[:1]


class Calls:
    """The known calls of targets, found when they are asked for."""

    def __init__(self) -> None:
        self.targets, self.rows, self.known = fuzz.targets(), fuzz.schemas(), known()
        self.found: dict[str, list[Call]] = {}

    def __call__(self, path: str) -> list[Call]:
        if path not in self.found:
            self.found[path] = self.find(path)
        return self.found[path]

    def find(self, path: str) -> list[Call]:
        if path in self.known:
            make = makers(np.random.default_rng(0), False)
            return [parse(path, text, make) for text in self.known[path]]
        name = path.rsplit(".", 1)[-1]
        for row in (name, name.rstrip("_"), path.removeprefix("lucid.").replace(".", "_"), f"special_{name}"):
            schema = self.rows.get(row)
            if schema and schema["samples"] and not name.startswith("__"):
                calls = [of_row(path, schema, s) for s in schema["samples"]]
                return [c for c in calls if c.text != "None"] or guessed(path, self.targets[path], self.rows)
        return guessed(path, self.targets[path], self.rows)


def step(optimizer: Callable[..., Any], parameter: Any, gradient: Any) -> Any:
    """A parameter after an optimizer's step."""
    p = parameter.detach().clone().requires_grad_()
    p.grad = gradient.to_sparse() if optimizer is lucid.optim.SparseAdam else gradient
    optimizer([p], lr=0.1).step(lambda: (p * p).sum()) if optimizer is lucid.optim.LBFGS else optimizer([p]).step()
    return p.detach()
