"""Schemas of custom ops: made from annotations, read from text, and bound to the arguments of a call."""

from __future__ import annotations

import inspect
import re
import types
import typing
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, Union, get_args, get_origin

import lucid
from lucid import errors

_BASIC: dict[Any, str] = {
    lucid.Tensor: "Tensor",
    int: "SymInt",
    float: "float",
    bool: "bool",
    str: "str",
    complex: "Scalar",
    lucid.dtype: "ScalarType",
    lucid.device: "Device",
    int | float | bool: "Scalar",
}


class Argument(NamedTuple):
    """An argument of an op."""

    name: str
    type: str
    default: Any
    keyword_only: bool
    mutated: bool


class Schema(NamedTuple):
    """The arguments of an op, and the types of its results."""

    arguments: tuple[Argument, ...]
    returns: tuple[str, ...]

    def bind(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        """The value of each argument, defaults included.

        Raises:
            RuntimeError: an argument is missing, unknown, given twice, or is no tensor where one is expected.
        """
        positional = [a for a in self.arguments if not a.keyword_only]
        if len(args) > len(positional):
            raise errors.RuntimeError(f"{name}() takes {len(positional)} positional arguments, got {len(args)}")
        given = dict(zip((a.name for a in positional), args, strict=False))
        for key, value in kwargs.items():
            if key in given:
                raise errors.RuntimeError(f"{name}() got argument {key!r} twice")
            given[key] = value
        values = []
        for a in self.arguments:
            if a.name in given:
                value = given.pop(a.name)
            elif a.default is inspect.Parameter.empty:
                raise errors.RuntimeError(f"{name}() is missing value for argument '{a.name}'")
            else:
                value = a.default
            if a.type == "Tensor" and not isinstance(value, lucid.Tensor):
                got = type(value).__name__
                raise errors.RuntimeError(f"{name}(): expected argument {a.name!r} to be a tensor, got {got}")
            values.append(value)
        if given:
            raise errors.RuntimeError(f"{name}() has no argument {next(iter(given))!r}")
        return values


def _type(kind: Any) -> str | None:
    if kind in _BASIC:
        return _BASIC[kind]
    origin, parameters = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        inner = [t for t in parameters if t is not type(None)]
        if len(inner) == len(parameters):
            return "Scalar" if set(inner) == {int, float, bool} else None
        found = _type(inner[0]) if len(inner) == 1 else ("Scalar" if set(inner) == {int, float, bool} else None)
        return None if found is None else f"{found}?"
    if origin in (list, Sequence) or (origin is not None and getattr(origin, "__name__", "") in ("Sequence", "list")):
        found = _type(parameters[0])
        return None if found is None or found.endswith("]") else f"{found}[]"
    return None


def infer(function: Callable[..., Any], mutates_args: Any, op_name: str | None = None) -> str:
    """The schema that a function's annotations describe; see `lucid.library.infer_schema`."""
    try:
        hints = typing.get_type_hints(function)
    except Exception as e:
        raise errors.ValueError(f"infer_schema(func): cannot read the annotations of {function}: {e}") from e
    unknown = isinstance(mutates_args, str)
    if unknown and mutates_args != "unknown":
        raise errors.ValueError(
            "mutates_args must either be a sequence of the names of the arguments that are mutated or the string "
            "'unknown'."
        )
    mutated = set() if unknown else set(mutates_args)
    parts, star, names = [], False, set()
    for i, p in enumerate(inspect.signature(function).parameters.values()):
        if p.kind not in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY):
            raise errors.ValueError(
                "infer_schema(func): We do not support positional-only args, varargs, or varkwargs."
            )
        if p.name not in hints:
            raise errors.ValueError(f"infer_schema(func): Parameter {p.name} must have a type annotation.")
        kind = _type(hints[p.name])
        if kind is None:
            raise errors.ValueError(f"infer_schema(func): Parameter {p.name} has unsupported type {hints[p.name]}.")
        names.add(p.name)
        if p.kind == p.KEYWORD_ONLY and not star:
            star = True
            parts.append("*")
        if p.name in mutated or (unknown and kind.startswith("Tensor")):
            if not kind.startswith("Tensor"):
                raise errors.ValueError(
                    f"infer_schema(func): Parameter {p.name} is in mutable_args but only Tensors or collections of "
                    "Tensors can be mutated"
                )
            kind = kind.replace("Tensor", f"Tensor(a{i}!)", 1)
        default = "" if p.default is p.empty else f"={_default(p.default)}"
        parts.append(f"{kind} {p.name}{default}")
    if mutated - names:
        raise errors.ValueError(
            f"infer_schema(func): {sorted(mutated - names)} in mutates_args are no arguments of the function."
        )
    made = hints.get("return", inspect.Signature.empty)
    if made is inspect.Signature.empty:
        raise errors.ValueError("infer_schema(func): No return type annotation was provided. Please add one.")
    if made in (None, type(None)):
        result = "()"
    elif get_origin(made) is tuple:
        inner = [_type(t) for t in get_args(made)]
        result = "(" + ", ".join(t or "?" for t in inner) + ")" if all(inner) else ""
    else:
        result = _type(made) or ""
    if not result:
        raise errors.ValueError(f"infer_schema(func): Return has unsupported type {made}.")
    return f"{op_name or ''}({', '.join(parts)}) -> {result}"


def _default(value: Any) -> str:
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, lucid.dtype):
        return str(value).removeprefix("lucid.")
    return str(value)


_ARGUMENT = re.compile(
    r"(?P<type>[A-Za-z]+)(?P<alias>\([^)]*\))?(?P<suffix>[\[\]?0-9]*)\s+(?P<name>\w+)(=(?P<default>.*))?"
)


def _split(text: str) -> list[str]:
    """The parts between commas that are in no brackets."""
    parts, depth, part = [], 0, ""
    for c in text:
        depth += (c in "([") - (c in ")]")
        if c == "," and depth == 0:
            parts.append(part)
            part = ""
        else:
            part += c
    return [p.strip() for p in (*parts, part) if p.strip()]


def _read_default(text: str) -> Any:
    text = text.strip()
    if text in ("None", "True", "False"):
        return {"None": None, "True": True, "False": False}[text]
    if text[:1] in "'\"":
        return text[1:-1]
    if text.startswith("["):
        return [_read_default(t) for t in _split(text[1:-1])]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return getattr(lucid, text, text)


def parse(text: str) -> tuple[str, Schema]:
    """Reads a schema: `name(Tensor x, *, float y=1.0) -> Tensor`.

    Raises:
        ValueError: the text is no schema.
    """
    found = re.fullmatch(r"\s*([\w:.]*)\s*\((.*)\)\s*->\s*(.+?)\s*", text, re.DOTALL)
    if found is None:
        raise errors.ValueError(f"expected a schema of the form 'name(Tensor x) -> Tensor', got {text!r}")
    arguments, only = [], False
    for part in _split(found.group(2)):
        if part == "*":
            only = True
            continue
        read = _ARGUMENT.fullmatch(part)
        if read is None:
            raise errors.ValueError(f"the argument {part!r} of the schema {text!r} cannot be read")
        default = inspect.Parameter.empty if read["default"] is None else _read_default(read["default"])
        kind = read["type"] + read["suffix"]
        arguments.append(Argument(read["name"], kind, default, only, "!" in (read["alias"] or "")))
    result = found.group(3).strip()
    kinds = _split(result[1:-1]) if result.startswith("(") else [result]
    return found.group(1), Schema(tuple(arguments), tuple(re.sub(r"\(.*?\)", "", k).split()[0] for k in kinds))


def tensors(values: Iterable[Any]) -> list[Any]:
    """The tensors among values and lists of values."""
    found = []
    for v in values:
        found += [t for t in (v if isinstance(v, (list, tuple)) else (v,)) if isinstance(t, lucid.Tensor)]
    return found
