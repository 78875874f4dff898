"""Modules made of modules: a chain, a list, a dict."""

from __future__ import annotations

import operator
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar, overload

from lucid import Tensor, errors
from lucid._warnings import warn
from lucid.nn.modules.module import Module, _addindent
from lucid.nn.parameter import Parameter

__all__ = ["Container", "ModuleDict", "ModuleList", "ParameterDict", "ParameterList", "Sequential"]

S = TypeVar("S", bound="_Ordered")


class Container(Module):
    """Modules by name, in no order of calls. Deprecated: `Module` does all of it.

    Args:
        **kwargs (Module, optional): modules by name.

    Example:
        >>> from lucid import nn
        >>> list(nn.Container(a=nn.ReLU())._modules)
        ['a']
    """

    def __init__(self, **kwargs: Module | None) -> None:
        if type(self) is Container:
            _warn_of_container()
        super().__init__()
        for name, module in kwargs.items():
            self.add_module(name, module)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        _warn_of_container()
        super().__init_subclass__(**kwargs)


def _warn_of_container() -> None:
    warn(
        "`nn.Container` is deprecated. All of its functionality is now implemented in `nn.Module`. "
        "Subclass that instead.",
        FutureWarning,
    )


class _Ordered(Module):
    """What `Sequential` and `ModuleList` share: modules under the names "0", "1", …"""

    _modules: dict[str, Module]  # type: ignore[assignment]

    def _at(self, index: Any) -> str:
        """The name at a place, counted from the end where negative."""
        at, size = operator.index(index), len(self._modules)
        if not -size <= at < size:
            raise errors.IndexError(f"{type(self).__name__}: index {at} is out of range")
        return list(self._modules)[at % size]

    def _renumber(self, modules: Iterable[Module]) -> None:
        self._modules = {str(i): module for i, module in enumerate(modules)}

    @overload
    def __getitem__(self, index: int) -> Module: ...

    @overload
    def __getitem__(self: S, index: slice) -> S: ...

    def __getitem__(self, index: int | slice) -> Module:
        if isinstance(index, slice):
            return self._slice(index)
        return self._modules[self._at(index)]

    def _slice(self, index: slice) -> Module:
        raise NotImplementedError

    def __setitem__(self, index: int, module: Module) -> None:
        setattr(self, self._at(index), module)

    def __delitem__(self, index: int | slice) -> None:
        names = list(self._modules)[index] if isinstance(index, slice) else [self._at(index)]
        for name in names:
            delattr(self, name)
        self._renumber(self._modules.values())

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[Module]:
        return iter(self._modules.values())

    def append(self: S, module: Module) -> S:
        """Adds a module at the end."""
        self.add_module(str(len(self)), module)
        return self

    def extend(self: S, modules: Iterable[Module]) -> S:
        """Adds modules at the end, in order."""
        if not isinstance(modules, Iterable):
            raise errors.TypeError(
                f"{type(self).__name__}.extend should be called with an iterable, but got {type(modules).__name__}"
            )
        for module in list(modules):
            self.append(module)
        return self

    def insert(self: S, index: int, module: Module) -> S:
        """Puts a module before the one at `index`."""
        if not isinstance(module, Module):
            raise AssertionError(f"module should be of type: {Module}")
        modules = list(self._modules.values())
        if not -len(modules) <= index <= len(modules):
            raise errors.IndexError(f"Index out of range: {index}")
        modules.insert(index, module)
        self._renumber(modules)
        return self

    def pop(self, key: int | slice) -> Module:
        """Takes out a module and gives it back."""
        module = self[key]
        del self[key]
        return module

    def __dir__(self) -> list[str]:
        return [name for name in super().__dir__() if not name.isdigit()]


class Sequential(_Ordered):
    """Modules called one after the other, each with what the one before it gave.

    Takes modules as arguments, or one ordered dict of them by name.

    Args:
        *args (Module | OrderedDict[str, Module]): modules, or one ordered dict of modules by name.

    Example:
        >>> from lucid import nn
        >>> nn.Sequential(nn.Linear(2, 3), nn.ReLU())(lucid.zeros(1, 2)).shape
        lucid.Size([1, 3])
    """

    def __init__(self, *args: Module | OrderedDict[str, Module]) -> None:
        super().__init__()
        if len(args) == 1 and isinstance(args[0], OrderedDict):
            named: Iterable[tuple[str, Any]] = args[0].items()
        else:
            named = ((str(i), module) for i, module in enumerate(args))
        for name, module in named:
            self.add_module(name, module)

    def _slice(self, index: slice) -> Module:
        return type(self)(OrderedDict(list(self._modules.items())[index]))

    def extend(self, sequential: Iterable[Module]) -> Sequential:
        """Adds modules at the end, in order."""
        return super().extend(sequential)

    def __add__(self, other: Any) -> Sequential:
        if not isinstance(other, Sequential):
            raise errors.ValueError(
                f"add operator supports only objects of Sequential class, but {type(other)} is given."
            )
        return Sequential(*self, *other)

    def __iadd__(self, other: Any) -> Sequential:
        if not isinstance(other, Sequential):
            raise errors.ValueError(
                f"add operator supports only objects of Sequential class, but {type(other)} is given."
            )
        return self.extend(other)

    def __mul__(self, other: int) -> Sequential:
        return Sequential(*(self._copies(other)))

    def __rmul__(self, other: int) -> Sequential:
        return self * other

    def __imul__(self, other: int) -> Sequential:
        self._renumber(self._copies(other))
        return self

    def _copies(self, count: int) -> list[Module]:
        if not isinstance(count, int):
            raise errors.TypeError(f"unsupported operand type(s) for *: {type(self)} and {type(count)}")
        if count <= 0:
            raise errors.ValueError(f"Non-positive multiplication factor {count} for {type(self)}")
        # The same modules again, as in PyTorch: they share their parameters.
        return list(self) * count

    def forward(self, input: Any) -> Any:
        for module in self._modules.values():
            input = module(input)
        return input


class ModuleList(_Ordered):
    """A list of modules whose parameters are found.

    Args:
        modules (Iterable[Module], optional): the modules of the list.

    Example:
        >>> from lucid import nn
        >>> len(nn.ModuleList([nn.Linear(2, 2), nn.ReLU()]))
        2
    """

    def __init__(self, modules: Iterable[Module] | None = None) -> None:
        super().__init__()
        if modules is not None:
            self.extend(modules)

    def _slice(self, index: slice) -> Module:
        return type(self)(list(self._modules.values())[index])

    def __add__(self, other: Iterable[Module]) -> ModuleList:
        return ModuleList([*self, *other])

    def __iadd__(self, other: Iterable[Module]) -> ModuleList:
        return self.extend(other)

    def __repr__(self) -> str:
        runs: list[tuple[int, int, str]] = []
        for i, text in enumerate(map(repr, self)):
            if runs and runs[-1][2] == text:
                runs[-1] = (runs[-1][0], i, text)
            else:
                runs.append((i, i, text))
        name = self._get_name()
        if not runs:
            return f"{name}()"
        lines = [
            f"({a}): {_addindent(text, 2)}" if a == b else f"({a}-{b}): {b - a + 1} x {_addindent(text, 2)}"
            for a, b, text in runs
        ]
        return f"{name}(\n  " + "\n  ".join(lines) + "\n)"


class ModuleDict(Module):
    """A dict of modules by name, in order of insertion, whose parameters are found.

    Args:
        modules (Mapping[str, Module] | Iterable[tuple[str, Module]], optional): modules by name, or pairs of a
            name and a module.

    Example:
        >>> from lucid import nn
        >>> list(nn.ModuleDict({"act": nn.ReLU()}))
        ['act']
    """

    _modules: dict[str, Module]  # type: ignore[assignment]

    def __init__(self, modules: Mapping[str, Module] | Iterable[tuple[str, Module]] | None = None) -> None:
        super().__init__()
        if modules is not None:
            self.update(modules)

    def __getitem__(self, key: str) -> Module:
        return self._modules[key]

    def __setitem__(self, key: str, module: Module) -> None:
        self.add_module(key, module)

    def __delitem__(self, key: str) -> None:
        del self._modules[key]

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __contains__(self, key: object) -> bool:
        return key in self._modules

    def clear(self) -> None:
        """Takes out everything."""
        self._modules.clear()

    def pop(self, key: str) -> Module:
        """Takes out one module and gives it back."""
        return self._modules.pop(key)

    def keys(self) -> Iterable[str]:
        """The names."""
        return self._modules.keys()

    def items(self) -> Iterable[tuple[str, Module]]:
        """Names and modules."""
        return self._modules.items()

    def values(self) -> Iterable[Module]:
        """The modules."""
        return self._modules.values()

    def update(self, modules: Mapping[str, Module] | Iterable[tuple[str, Module]]) -> None:
        """Adds modules from a mapping or from pairs, replacing those of the same names."""
        if not isinstance(modules, Iterable):
            raise errors.TypeError(
                f"ModuleDict.update should be called with an iterable of key/value pairs, "
                f"but got {type(modules).__name__}"
            )
        pairs = modules.items() if isinstance(modules, (Mapping, ModuleDict)) else modules
        for i, pair in enumerate(pairs):
            if not isinstance(pair, Iterable):
                raise errors.TypeError(
                    f"ModuleDict update sequence element #{i} should be Iterable; is {type(pair).__name__}"
                )
            items = list(pair)
            if len(items) != 2:
                raise errors.ValueError(
                    f"ModuleDict update sequence element #{i} has length {len(items)}; 2 is required"
                )
            self[items[0]] = items[1]


class ParameterList(Module):
    """A list of parameters, which are found; tensors become parameters, other objects stay what they are.

    Args:
        values (Iterable[Any], optional): the parameters, tensors or other objects of the list.

    Example:
        >>> from lucid import nn
        >>> len(list(nn.ParameterList([lucid.zeros(1), lucid.zeros(2)]).parameters()))
        2
    """

    def __init__(self, values: Iterable[Any] | None = None) -> None:
        super().__init__()
        self._size = 0
        if values is not None:
            self.extend(values)

    def _name(self, index: Any) -> str:
        at = operator.index(index)
        if not -self._size <= at < self._size:
            raise errors.IndexError(f"{type(self).__name__}: index {at} is out of range")
        return str(at % self._size)

    @overload
    def __getitem__(self, index: int) -> Any: ...

    @overload
    def __getitem__(self, index: slice) -> ParameterList: ...

    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return type(self)(getattr(self, str(i)) for i in range(*index.indices(self._size)))
        return getattr(self, self._name(index))

    def __setitem__(self, index: int, value: Any) -> None:
        setattr(self, self._name(index), _parameter(value))

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[Any]:
        return iter([self[i] for i in range(self._size)])

    def __iadd__(self, values: Iterable[Any]) -> ParameterList:
        return self.extend(values)

    def __dir__(self) -> list[str]:
        return [name for name in super().__dir__() if not name.isdigit()]

    def append(self, value: Any) -> ParameterList:
        """Adds a value at the end."""
        self._size += 1
        self[self._size - 1] = value
        return self

    def extend(self, values: Iterable[Any]) -> ParameterList:
        """Adds values at the end, in order."""
        if not isinstance(values, Iterable) or isinstance(values, Tensor):
            raise errors.TypeError(
                f"ParameterList.extend should be called with an iterable, but got {type(values).__name__}"
            )
        for value in values:
            self.append(value)
        return self

    def extra_repr(self) -> str:
        return "\n".join(f"  ({i}): {_shown(value)}" for i, value in enumerate(self))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise errors.RuntimeError("ParameterList should not be called.")


class ParameterDict(Module):
    """A dict of parameters by name, which are found; tensors become parameters, other objects stay what they are.

    Args:
        parameters (mapping or iterable of pairs, optional): parameters, tensors or other objects by name.

    Example:
        >>> from lucid import nn
        >>> list(nn.ParameterDict({"w": lucid.zeros(1)}))
        ['w']
    """

    def __init__(self, parameters: Any = None) -> None:
        super().__init__()
        self._keys: dict[str, None] = {}
        if parameters is not None:
            self.update(parameters)

    @staticmethod
    def _name(key: Any) -> str:
        if not isinstance(key, str):
            raise errors.TypeError(
                f"Index given to ParameterDict cannot be used as a key as it is not a string ({key!r})"
            )
        return key

    def __getitem__(self, key: str) -> Any:
        if key not in self._keys:
            raise KeyError(key)
        return getattr(self, self._name(key))

    def __setitem__(self, key: str, value: Any) -> None:
        name = self._name(key)
        self._keys[name] = None
        setattr(self, name, _parameter(value))

    def __delitem__(self, key: str) -> None:
        del self._keys[key]
        delattr(self, self._name(key))

    def __len__(self) -> int:
        return len(self._keys)

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)

    def __reversed__(self) -> Iterator[str]:
        return reversed(list(self._keys))

    def __contains__(self, key: object) -> bool:
        return key in self._keys

    def __or__(self, other: ParameterDict) -> ParameterDict:
        made = self.copy()
        made.update(other)
        return made

    def __ror__(self, other: ParameterDict) -> ParameterDict:
        made = other.copy()
        made.update(self)
        return made

    def __ior__(self, other: ParameterDict) -> ParameterDict:
        self.update(other)
        return self

    def copy(self) -> ParameterDict:
        """Another dict of the same parameters."""
        return type(self)(OrderedDict(self.items()))

    def clear(self) -> None:
        """Takes out everything."""
        for key in list(self._keys):
            del self[key]

    def pop(self, key: str) -> Any:
        """Takes out one parameter and gives it back."""
        value = self[key]
        del self[key]
        return value

    def popitem(self) -> tuple[str, Any]:
        """Takes out the last name and parameter."""
        key, _ = self._keys.popitem()
        self._keys[key] = None
        return key, self.pop(key)

    def setdefault(self, key: str, default: Any = None) -> Any:
        """The parameter of a name, which is `default` from now on where there was none."""
        if key not in self:
            self[key] = default
        return self[key]

    def get(self, key: str, default: Any = None) -> Any:
        """The parameter of a name, or `default`."""
        return self[key] if key in self._keys else default

    def fromkeys(self, keys: Iterable[str], default: Any = None) -> ParameterDict:
        """A new dict with `default` under each name."""
        return type(self)((key, default) for key in keys)

    def keys(self) -> Iterable[str]:
        """The names."""
        return self._keys.keys()

    def items(self) -> Iterable[tuple[str, Any]]:
        """Names and parameters."""
        return ((key, self[key]) for key in list(self._keys))

    def values(self) -> Iterable[Any]:
        """The parameters."""
        return (self[key] for key in list(self._keys))

    def update(self, parameters: Any) -> None:
        """Adds parameters from a mapping or from pairs, replacing those of the same names."""
        if not isinstance(parameters, Iterable) and not isinstance(parameters, ParameterDict):
            raise errors.TypeError(
                f"ParametersDict.update should be called with an iterable of key/value pairs, "
                f"but got {type(parameters).__name__}"
            )
        if isinstance(parameters, (OrderedDict, ParameterDict)):
            pairs: Any = parameters.items()
        elif isinstance(parameters, Mapping):
            # As in PyTorch, which sorts mappings without an order of their own.
            pairs = sorted(parameters.items())
        else:
            pairs = parameters
        for i, pair in enumerate(pairs):
            items = list(pair)
            if len(items) != 2:
                raise errors.ValueError(
                    f"ParameterDict update sequence element #{i} has length {len(items)}; 2 is required"
                )
            self[items[0]] = items[1]

    def extra_repr(self) -> str:
        return "\n".join(f"  ({key}): {_shown(value, names=True)}" for key, value in self.items())

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise errors.RuntimeError("ParameterDict should not be called.")


def _parameter(value: Any) -> Any:
    return Parameter(value) if isinstance(value, Tensor) and not isinstance(value, Parameter) else value


def _shown(value: Any, names: bool = False) -> str:
    if not isinstance(value, Tensor):
        return f"Object of type: {type(value).__name__}"
    size = "x".join(str(n) for n in value.shape)
    kind = "Parameter" if isinstance(value, Parameter) else "Tensor"
    place = "" if value.is_cpu else f" ({value.device})"
    return f"{kind} containing: [{value.type() if names else value.dtype} of size {size}{place}]"
