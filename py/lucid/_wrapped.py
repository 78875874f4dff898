"""What tensors with more than elements share (`nested`, `masked`): a class that is asked about each function.

Such a tensor holds ordinary ones, and is made of them by the functions it knows. A function that it does not know is
a NotImplementedError that names it, never a wrong value. Depends on `__torch_function__`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lucid import errors

Rule = Callable[..., Any]


def name_of(func: Any) -> str:
    """What a function that a class is asked about is called: `add`, `shape` (an attribute), `__add__`."""
    name: str = getattr(func, "__name__", type(func).__name__)
    if name in ("__get__", "__set__"):
        own = getattr(func, "__self__", None)
        name = getattr(own, "__name__", name)
    return name


class Rules:
    """The functions that a class knows, by name: one rule for a function, a method and an operator of the same work."""

    def __init__(self, what: str) -> None:
        self.what = what
        self.table: dict[str, Rule] = {}

    def add(self, *names: str) -> Callable[[Rule], Rule]:
        """A decorator that makes a function the rule of these names."""

        def register(rule: Rule) -> Rule:
            for name in names:
                self.table[name] = rule
            return rule

        return register

    def run(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What the rule gives, or the error of one that is not there."""
        name = name_of(func).strip("_")
        rule = self.table.get(name)
        if rule is None:
            raise errors.NotImplementedError(
                f"{name}: there is no rule of it for {self.what}; convert the tensor first, or compute with its parts"
            )
        return rule(func, *args, **kwargs)
