"""Makes a program that ends badly shorter, for as long as it ends in the same way."""

from __future__ import annotations

import ast
import time
from collections.abc import Iterator
from typing import Any

from tests.python.fuzz.process import Answers, Child, one

#: What a child runs.
MODULE = "tests.python.hostile"


class _Replace(ast.NodeTransformer):
    def __init__(self, number: int) -> None:
        self.number, self.seen, self.done = number, -1, False

    def choices(self, node: ast.expr) -> list[ast.expr]:
        """What is shorter than an expression and might stand in its place."""
        if isinstance(node, ast.Call):
            found: list[ast.expr] = []
            if isinstance(node.func, ast.Attribute) and not isinstance(node.func.value, ast.Name):
                found.append(node.func.value)
            found += [ast.Call(node.func, node.args, [k for k in node.keywords if k is not j]) for j in node.keywords]
            if len(node.args) > 1:
                found.append(ast.Call(node.func, node.args[:-1], node.keywords))
            return found
        if isinstance(node, ast.List) and len(node.elts) > 1:
            half = len(node.elts) // 2
            return [ast.List(node.elts[:1], node.ctx), ast.List(node.elts[:half], node.ctx)]
        if isinstance(node, ast.Constant) and type(node.value) in (int, float) and node.value not in (0, 1):
            return [
                ast.Constant(1),
                *([ast.Constant(int(node.value))] if isinstance(node.value, float) and abs(node.value) < 99 else []),
            ]
        return []

    def visit(self, node: ast.AST) -> Any:
        if self.done:
            return node
        if isinstance(node, ast.expr):
            for choice in self.choices(node):
                self.seen += 1
                if self.seen == self.number:
                    self.done = True
                    return choice
        return self.generic_visit(node)


def shorter(text: str) -> Iterator[str]:
    """Programs that are one step shorter."""
    lines = text.split("\n")
    for i in range(len(lines) - 1):
        yield "\n".join(lines[:i] + lines[i + 1 :])
    number = 0
    while True:
        replace = _Replace(number)
        tree = replace.visit(ast.parse(text))
        if not replace.done:
            return
        candidate = ast.unparse(ast.fix_missing_locations(tree))
        if len(candidate) < len(text):
            yield candidate
        number += 1


class Runner:
    """Runs programs one after the other, in a new child where one ended."""

    def __init__(self) -> None:
        self.worker: Child | None = None

    def __call__(self, text: str, times: int = 1, limit: float = 10.0) -> Answers:
        self.worker = self.worker or Child(MODULE)
        said, alive = one(self.worker, {"program": text, "times": times}, limit)
        if not alive:
            self.close()
        return said

    def close(self) -> None:
        if self.worker:
            self.worker.close()
        self.worker = None


def culprit(found: Answers, run: Runner) -> Answers:
    """The finding with the program that causes it, which may be an earlier one where memory was damaged."""
    texts = [found["text"], *reversed(found.get("recent", []))]
    for times, limit in ((1, 10.0), (100, 30.0)):
        for text in texts if found["kind"].startswith("crash") else texts[:1]:
            if text.startswith("writing "):
                continue
            run.close()
            said = run(text, times, limit)
            if said["finding"] and said["kind"].startswith("crash") == found["kind"].startswith("crash"):
                return {**found, **said, "case": found["case"], "times": times}
    return {**found, "why": f"not again when run alone; after {found.get('recent')}\n{found.get('why')}", "times": 0}


def shortest(found: Answers, until: float, most: int = 60) -> Answers:
    """The finding with a shorter program."""
    if found["kind"] in ("hang", "no child", "memory") or found["kind"].startswith("sweep"):
        return found
    run, tries = Runner(), 0
    try:
        found = culprit(found, run)
        again = found["times"] > 0
        while again:
            again = False
            for text in shorter(found["text"]):
                if tries >= most or time.monotonic() > until:
                    return found
                tries += 1
                said = run(text, found["times"])
                if said["finding"] and said["kind"] == found["kind"]:
                    found = {**found, **said, "case": found["case"]}
                    again = True
                    break
    finally:
        run.close()
    return found
