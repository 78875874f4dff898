"""`torch._C.parse_schema`: the text of an op's signature, read into its parts."""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass
from typing import Any

from lucid import errors
from lucid.library import _schema


@dataclass(frozen=True)
class Argument:
    """An argument of an op; its type is the text that the signature has."""

    name: str
    type: str
    default_value: Any
    kwarg_only: bool
    is_out: bool
    _required: bool

    def has_default_value(self) -> bool:
        """May it be left out?"""
        return not self._required


@dataclass(frozen=True)
class Return:
    """A result of an op."""

    type: str


@dataclass(frozen=True)
class FunctionSchema:
    """The name, arguments and results of an op."""

    name: str
    overload_name: str
    arguments: tuple[Argument, ...]
    returns: tuple[Return, ...]
    is_mutable: bool
    _text: str

    def __str__(self) -> str:
        return self._text

    def is_backward_compatible_with(self, old: FunctionSchema) -> bool:
        """May calls of an older signature be calls of this one? Its arguments are all here, in their places, others
        may be left out, and the results are the same."""
        if (self.name, self.overload_name, self.returns) != (old.name, old.overload_name, old.returns):
            return False
        if len(self.arguments) < len(old.arguments):
            return False
        if not all(map(_takes, self.arguments, old.arguments)):
            return False
        return all(a.has_default_value() for a in self.arguments[len(old.arguments) :])


def _takes(new: Argument, old: Argument) -> bool:
    """Does an argument take what an older one takes, and stand for the same where it is left out?"""
    if (new.name, new.is_out) != (old.name, old.is_out) or new.type not in (old.type, f"{old.type}?"):
        return False
    if new.kwarg_only and not old.kwarg_only:
        return False
    return not old.has_default_value() or (new.has_default_value() and new.default_value == old.default_value)


def parse_schema(schema: str) -> FunctionSchema:
    """Reads a signature, such as `aten::add.Tensor(Tensor self, Tensor other) -> Tensor`.

    Raises:
        RuntimeError: the text is no signature.
    """
    try:
        full, found = _schema.parse(schema)
    except errors.ValueError as e:
        raise errors.RuntimeError(f"parse_schema: {e}") from None
    name, _, overload = full.partition(".")
    missing = inspect.Parameter.empty
    arguments = tuple(
        Argument(
            a.name,
            a.type,
            None if a.default is missing else a.default,
            a.keyword_only,
            a.mutated and a.keyword_only,
            a.default is missing,
        )
        for a in found.arguments
    )
    text = re.sub(r"\s+", " ", schema.strip())
    returns = tuple(map(Return, found.returns))
    return FunctionSchema(name, overload, arguments, returns, any(a.mutated for a in found.arguments), text)
