"""Compiled modules."""

from __future__ import annotations

import weakref
from typing import Any

from lucid.compiler._function import Function
from lucid.nn import Module


class ModuleCall:
    """The compiled calls of a module that `Module.compile` was called on; a copy of the module records its own."""

    def __init__(self, args: tuple[Any, ...], options: dict[str, Any]) -> None:
        self.args = args
        self.options = options
        self._owner: Any = None
        self._call: Any = None

    def run(self, module: Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Calls the module."""
        import lucid

        if self._owner is None or self._owner() is not module:
            self._call = lucid.compile(module._call_plain, *self.args, **self.options)
            self._owner = weakref.ref(module)
        return self._call(*args, **kwargs)

    def __reduce__(self) -> Any:
        return ModuleCall, (self.args, self.options)


class OptimizedModule(Module):
    """A module that runs recorded graphs of another, with its parameters, and its attributes.

    Args:
        mod: the module.
        options: of `lucid.compile`.
    """

    _orig_mod: Module

    def __init__(self, mod: Module, options: dict[str, Any]) -> None:
        super().__init__()
        self._orig_mod = mod
        self.__dict__["_compiled"] = Function(mod, **options)
        self.training = mod.training

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the module, or runs its graph."""
        return self.__dict__["_compiled"].call(args, kwargs)

    def __getattr__(self, name: str) -> Any:
        if name == "_orig_mod":
            return self._modules["_orig_mod"]
        return getattr(self._modules["_orig_mod"], name)

    def __setattr__(self, name: str, value: Any) -> None:
        own = ("training", "_orig_mod")
        if name in own or "_modules" not in self.__dict__ or "_orig_mod" not in self._modules:
            super().__setattr__(name, value)
        else:
            setattr(self._orig_mod, name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self._orig_mod, name)

    def __reduce__(self) -> Any:
        return _rebuilt, (self._orig_mod, self.__dict__["_compiled"].fullgraph)


def _rebuilt(mod: Module, fullgraph: bool) -> OptimizedModule:
    return OptimizedModule(mod, {"fullgraph": fullgraph, "limit": None, "name": None, "dynamic": None})
