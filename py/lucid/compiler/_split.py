"""Functions whose call is not one graph, in parts: what can be recorded before and behind a line that cannot.

A recording says at which lines its graph broke. The function's source is taken apart there: runs of statements
become functions of the variables that they read, each compiled by itself; the lines between them, and the tests of
branches and loops that hold them, run as they are written. What this cannot take apart without changing what it does
stays whole: functions without source, generators, and those that define functions, delete names or catch exceptions.
"""

from __future__ import annotations

import ast
import collections
import dis
import inspect
import textwrap
import types
from collections.abc import Callable
from typing import Any

#: Statements and expressions that tie a function's parts together.
_WHOLE = (
    ast.AsyncFor,
    ast.AsyncFunctionDef,
    ast.AsyncWith,
    ast.Await,
    ast.ClassDef,
    ast.Delete,
    ast.FunctionDef,
    ast.Global,
    ast.Import,
    ast.ImportFrom,
    ast.Lambda,
    ast.Match,
    ast.NamedExpr,
    ast.Nonlocal,
    ast.Try,
    ast.Yield,
    ast.YieldFrom,
)


def writes(code: types.CodeType) -> bool:
    """Does a function assign to parts of what it has, or update it with an operator?"""
    for step in dis.get_instructions(code):
        if step.opname.startswith("STORE_SUBSCR") or (step.opname == "BINARY_OP" and step.argrepr.endswith("=")):
            return True
    return any(writes(c) for c in code.co_consts if isinstance(c, types.CodeType))


class Whole(Exception):
    """A function that is not taken apart."""


def _definition(fn: types.FunctionType) -> ast.FunctionDef:
    """The function's syntax tree, with its file's line numbers."""
    try:
        lines, first = inspect.getsourcelines(fn.__code__)
        tree = ast.parse(textwrap.dedent("".join(lines)))
    except (OSError, TypeError, SyntaxError, IndentationError) as error:
        raise Whole("there is no source") from error
    made = tree.body[0]
    if not isinstance(made, ast.FunctionDef) or made.name != fn.__code__.co_name:
        raise Whole("it is not a function of statements")
    ast.increment_lineno(tree, first - 1)
    made.decorator_list = []
    made.returns = None
    arguments = made.args
    for arg in [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]:
        if arg is not None:
            arg.annotation = None
    for node in ast.walk(made):
        if isinstance(node, _WHOLE) and node is not made:
            raise Whole(f"it has a {type(node).__name__}")
        if isinstance(node, ast.AnnAssign) and node.value is None:
            raise Whole("it declares a variable that it does not set")
        private = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
        if private.startswith("__") and not private.endswith("__"):
            raise Whole(f"it uses {private}, whose name its class changes")
        if isinstance(node, ast.Name) and node.id in ("super", "locals", "vars", "eval", "exec", "__class__"):
            raise Whole(f"it uses {node.id}")
    return made


class _Names(ast.NodeVisitor):
    """The names that statements read and bind; those of comprehensions are their own."""

    def __init__(self, statements: list[ast.stmt]) -> None:
        self.read: list[str] = []
        self.bound: list[str] = []
        for statement in statements:
            self.visit(statement)

    def visit_Name(self, node: ast.Name) -> None:
        into = self.read if isinstance(node.ctx, ast.Load) else self.bound
        if node.id not in into:
            into.append(node.id)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        if isinstance(node.target, ast.Name) and node.target.id not in self.read:
            self.read.append(node.target.id)
        self.generic_visit(node)

    def _comprehension(self, node: Any) -> None:
        inner = _Names([])
        inner.generic_visit(node)
        self.read += [name for name in inner.read if name not in inner.bound and name not in self.read]

    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = _comprehension


def _surely(statements: list[ast.stmt]) -> set[str]:
    """The names that are bound when these statements have run to their end."""
    found: set[str] = set()
    for statement in statements:
        if isinstance(statement, (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Expr)):
            found |= set(_Names([statement]).bound)
        elif isinstance(statement, ast.With):
            found |= set(_Names([ast.Expr(item.context_expr) for item in statement.items]).bound)
            found |= _surely(statement.body)
        elif isinstance(statement, ast.If) and statement.orelse:
            found |= _surely(statement.body) & _surely(statement.orelse)
    return found


class _Returns(ast.NodeTransformer):
    def visit_Return(self, node: ast.Return) -> ast.Return:
        value = node.value or ast.Constant(None)
        return ast.copy_location(ast.Return(ast.Tuple([ast.Constant(True), value], ast.Load())), node)


def _read_counts(statements: list[ast.stmt]) -> collections.Counter[str]:
    nodes = (node for statement in statements for node in ast.walk(statement))
    found: collections.Counter[str] = collections.Counter()
    for node in nodes:
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            found[node.id] += 1
        elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            found[node.target.id] += 1
    return found


def _holds(statement: ast.AST, lines: set[int]) -> bool:
    first, last = getattr(statement, "lineno", 0), getattr(statement, "end_lineno", 0) or 0
    return any(first <= line <= last for line in lines)


def _loose(statement: ast.stmt) -> bool:
    """Does a `break` or `continue` leave for a loop around the statement?"""
    stack: list[ast.AST] = [statement]
    while stack:
        node = stack.pop()
        if isinstance(node, (ast.Break, ast.Continue)):
            return True
        if not isinstance(node, (ast.For, ast.While)):
            stack += ast.iter_child_nodes(node)
    return False


class Split:
    """A function in parts.

    Args:
        fn: the function.
        lines: the lines of its file that no graph can hold.
        compiled: makes a compiled function of a part.

    Attributes:
        call: the function, with its parts compiled.
        parts: those.

    Raises:
        Whole: it cannot be taken apart, or nothing of it is left.
    """

    def __init__(self, fn: types.FunctionType, lines: set[int], compiled: Callable[[Any], Any]) -> None:
        self.fn = fn
        self.lines = lines
        self.parts: list[Any] = []
        self._sources: list[ast.FunctionDef] = []
        definition = _definition(fn)
        code = fn.__code__
        self._variables = {*code.co_varnames, *code.co_cellvars}
        if code.co_cellvars:
            raise Whole("a function inside of it shares its variables")
        arguments = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & 4)]
        arguments += code.co_varnames[len(arguments) : len(arguments) + bool(code.co_flags & 8)]
        self._bound = set(arguments)
        body = definition.body
        self._reads = _read_counts(body)
        if isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant):
            body = body[1:]
        definition.body = self._block(body, set(arguments)) or [ast.Pass()]
        if not self._sources:
            raise Whole("no part of it can be recorded")
        names = [source.name for source in self._sources]
        codes = self._compiled([*self._sources, definition], [*code.co_freevars, *names])
        cells = dict(zip(code.co_freevars, fn.__closure__ or (), strict=True))
        made: dict[str, Any] = {}
        for name in names:
            part = self._function(codes[name], cells)
            part.__qualname__ = f"{fn.__qualname__}.{name}"
            made[name] = compiled(part)
        self.parts = [made[name] for name in names]
        whole = {**cells, **{name: types.CellType(part) for name, part in made.items()}}
        self.call = self._function(codes[definition.name], whole)

    def _function(self, code: types.CodeType, cells: dict[str, Any]) -> types.FunctionType:
        closure = tuple(cells[name] for name in code.co_freevars)
        made = types.FunctionType(code, self.fn.__globals__, code.co_name, self.fn.__defaults__, closure)
        made.__kwdefaults__ = self.fn.__kwdefaults__
        made.__module__ = self.fn.__module__
        if code.co_name != self.fn.__code__.co_name:
            made.__defaults__ = made.__kwdefaults__ = None
        return made

    def _compiled(self, definitions: list[ast.FunctionDef], free: list[str]) -> dict[str, types.CodeType]:
        """The code of functions whose free variables are as listed."""
        arguments = ast.arguments(
            posonlyargs=[], args=[ast.arg(name) for name in free], kwonlyargs=[], kw_defaults=[], defaults=[]
        )
        # Defaults are taken from the function itself.
        for definition in definitions:
            definition.args.defaults = [ast.Constant(None) for _ in definition.args.defaults]
            definition.args.kw_defaults = [d and ast.Constant(None) for d in definition.args.kw_defaults]
        outer = ast.FunctionDef(name="__parts", args=arguments, body=list(definitions), decorator_list=[])
        if "type_params" in ast.FunctionDef._fields:
            outer.type_params = []  # type: ignore[attr-defined,unused-ignore]
        module = ast.fix_missing_locations(ast.Module([outer], []))
        compiled = compile(module, self.fn.__code__.co_filename, "exec", dont_inherit=True)
        inside = next(c for c in compiled.co_consts if isinstance(c, types.CodeType))
        return {c.co_name: c for c in inside.co_consts if isinstance(c, types.CodeType)}

    def _block(self, statements: list[ast.stmt], known: set[str]) -> list[ast.stmt]:
        """The statements of a block with runs of those that can be recorded as calls of parts."""
        made: list[ast.stmt] = []
        run: list[ast.stmt] = []

        def end() -> None:
            if run:
                made.extend(self._part(list(run), known))
                known.update(_surely(run))
                run.clear()

        for statement in statements:
            if not _holds(statement, self.lines) and not _loose(statement):
                run.append(statement)
                continue
            end()
            made.append(self._eager(statement, known))
            known.update(_surely([statement]))
        end()
        return made

    def _eager(self, statement: ast.stmt, known: set[str]) -> ast.stmt:
        if isinstance(statement, ast.If):
            statement.body = self._block(statement.body, set(known))
            statement.orelse = self._block(statement.orelse, set(known))
        elif isinstance(statement, ast.While) and not statement.orelse:
            statement.body = self._block(statement.body, set(known))
        elif isinstance(statement, ast.For) and not statement.orelse:
            target = set(_Names([ast.Expr(statement.target)]).bound)
            statement.body = self._block(statement.body, {*known, *target})
        elif isinstance(statement, ast.With):
            statement.body = self._block(statement.body, set(known))
        return statement

    def _part(self, run: list[ast.stmt], known: set[str]) -> list[ast.stmt]:
        """Calls of a part with these statements; themselves, where they are no part."""
        names = _Names(run)
        inputs = [name for name in names.read if name in self._variables and name in known]
        # What the part binds on some ways through it only has to be there before.
        surely = _surely(run)
        maybe = [name for name in names.bound if name not in surely]
        ends = isinstance(run[-1], ast.Return)
        plain = not any(isinstance(node, ast.Call) for s in run for node in ast.walk(s)) and not ends
        unknown = [n for n in names.read if n in self._variables and n not in known and n not in names.bound]
        if unknown or (not ends and any(name not in known for name in maybe)) or (plain and len(run) < 2):
            return run
        inputs += [name for name in maybe if name not in inputs and name in known]
        # What nothing else reads stays inside.
        own = _read_counts(run)
        outputs = [] if ends else [n for n in names.bound if self._reads[n] > own[n]]
        name = f"__part{len(self._sources)}"
        results = ast.Tuple([ast.Name(n, ast.Load()) for n in outputs], ast.Load())
        body: list[ast.stmt] = [_Returns().visit(s) for s in run]
        if not ends:
            body.append(ast.Return(ast.Tuple([ast.Constant(False), results], ast.Load())))
        arguments = ast.arguments(
            posonlyargs=[], args=[ast.arg(n) for n in inputs], kwonlyargs=[], kw_defaults=[], defaults=[]
        )
        source = ast.FunctionDef(name=name, args=arguments, body=body, decorator_list=[])
        if "type_params" in ast.FunctionDef._fields:
            source.type_params = []  # type: ignore[attr-defined,unused-ignore]
        self._sources.append(ast.copy_location(source, run[0]))
        call = ast.Call(ast.Name(name, ast.Load()), [ast.Name(n, ast.Load()) for n in inputs], [])
        pair = ast.Tuple([ast.Name("__left", ast.Store()), ast.Name("__result", ast.Store())], ast.Store())
        left, result = ast.Name("__left", ast.Load()), ast.Name("__result", ast.Load())
        made: list[ast.stmt] = [ast.Assign([pair], call)]
        if ends:
            made.append(ast.Return(result))
        else:
            if any(isinstance(node, ast.Return) for s in run for node in ast.walk(s)):
                made.append(ast.If(left, [ast.Return(result)], []))
            if outputs:
                into = ast.Tuple([ast.Name(n, ast.Store()) for n in outputs], ast.Store())
                made.append(ast.Assign([into], result))
        return [ast.copy_location(s, run[0]) for s in made]
