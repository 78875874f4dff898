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
        #: Rules that call the function itself on a tensor's parts, so that in-place forms write to these.
        self.direct: set[Rule] = set()

    def add(self, *names: str) -> Callable[[Rule], Rule]:
        """A decorator that makes a function the rule of these names."""

        def register(rule: Rule) -> Rule:
            for name in names:
                self.table[name] = rule
            return rule

        return register

    def run(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What the rule gives, or the error of one that is not there; the tensor itself for in-place forms."""
        name = name_of(func)
        dunder = name.startswith("__")
        in_place = name.endswith("_") and not dunder
        rule = self.table.get(name[2:-2] if dunder else name.removesuffix("_") if in_place else name)
        if in_place and rule in self.direct and rule is not None:
            rule(func, *args, **kwargs)
            return args[0]
        if rule is None or in_place:
            raise errors.NotImplementedError(
                f"{name}: there is no rule of it for {self.what}; convert the tensor first, or compute with its parts"
            )
        return rule(func, *args, **kwargs)
