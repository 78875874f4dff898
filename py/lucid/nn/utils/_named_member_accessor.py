"""Submodules and tensors of a module by their paths, found once, as PyTorch's file of this name has them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from lucid import Tensor
from lucid.nn.modules.module import Module

#: Stands for a tensor that a module does not have.
_MISSING: Any = object()


def _check(module: Any, name: str, kind: str) -> None:
    if not isinstance(module, Module):
        raise TypeError(f"{module} is not an instance of lucid.nn.Module")
    if "." in name:
        raise KeyError(f'{kind} name can\'t contain "."')
    if name == "":
        raise KeyError(f'{kind} name can\'t be empty string ""')


def _check_tensor(tensor: Any) -> None:
    if not isinstance(tensor, Tensor) and tensor is not None and tensor is not _MISSING:
        raise TypeError(f"{tensor} is not an instance of lucid.Tensor")


def _registered(module: Module, name: str) -> dict[str, Any] | None:
    """The dictionary of a module that has a tensor of this name."""
    tables: tuple[dict[str, Any], ...] = (module._parameters, module._buffers)
    return next((table for table in tables if name in table), None)


def set_tensor(module: Module, name: str, tensor: Tensor | None) -> None:
    """Puts a tensor in the place of a module's parameter, buffer or attribute, as what it was there."""
    _check(module, name, "tensor")
    if tensor is _MISSING:
        raise TypeError(f"{tensor} is not an instance of lucid.Tensor")
    _check_tensor(tensor)
    table = _registered(module, name)
    if table is None:
        setattr(module, name, tensor)
    else:
        table[name] = tensor


def swap_tensor(module: Module, name: str, tensor: Any, allow_missing: bool = False) -> Any:
    """`set_tensor`, which gives back what was there. `_MISSING` as the tensor deletes it."""
    _check(module, name, "tensor")
    _check_tensor(tensor)
    table = _registered(module, name)
    if table is not None:
        former = table[name]
        if tensor is _MISSING:
            del table[name]
        else:
            table[name] = tensor
        return former
    former = getattr(module, name, _MISSING)
    if former is _MISSING and not allow_missing:
        raise AttributeError(f"{module._get_name()} has no attribute `{name}`")
    if former is not _MISSING and former is not None and not isinstance(former, Tensor):
        raise TypeError(f"attribute `{name}`: {former} is not an instance of lucid.Tensor")
    if tensor is not _MISSING:
        setattr(module, name, tensor)
    elif former is not _MISSING:
        delattr(module, name)
    return former


def swap_submodule(module: Module, name: str, submodule: Module) -> Module:
    """Puts a module in the place of a submodule, which it gives back."""
    if not isinstance(submodule, Module):
        raise TypeError(f"{submodule} is not an instance of lucid.nn.Module")
    _check(module, name, "submodule")
    if name not in module._modules:
        raise KeyError(f"submodule {name} does not exist")
    former = module._modules[name]
    if not isinstance(former, Module):
        raise TypeError(f"{name} attribute is not an instance of lucid.nn.Module")
    module._modules[name] = submodule
    return former


class NamedMemberAccessor:
    """Gets, sets, swaps and deletes members of a module by paths such as `layers.0.weight`.

    Args:
        module (Module): the module. What is found of its submodules is kept.

    Example:
        >>> from lucid.nn.utils._named_member_accessor import NamedMemberAccessor
        >>> accessor = NamedMemberAccessor(lucid.nn.Sequential(lucid.nn.Linear(2, 1)))
        >>> accessor.get_tensor("0.weight").shape
        lucid.Size([1, 2])
    """

    def __init__(self, module: Module) -> None:
        self.module = module
        self.memo: dict[str, Module] = {}

    def _parent(self, path: str) -> tuple[Module, str]:
        prefix, _, name = path.rpartition(".")
        return self.get_submodule(prefix), name

    def get_submodule(self, name: str) -> Module:
        """The submodule of a path; the module itself for an empty one."""
        if not name:
            return self.module
        found = self.memo.get(name)
        if found is None:
            parent, own = self._parent(name)
            found = getattr(parent, own, _MISSING)
            if found is _MISSING:
                raise AttributeError(f"{parent._get_name()} has no attribute `{own}`")
            if not isinstance(found, Module):
                raise TypeError(f"submodule `{name}`: {found} is not an instance of lucid.nn.Module")
            self.memo[name] = found
        return found

    def swap_submodule(self, path: str, value: Module) -> Module:
        """Puts a module in the place of a submodule, which it gives back."""
        # What was found of the former one and below it is another module's from now on.
        self.memo = {name: m for name, m in self.memo.items() if name != path and not name.startswith(f"{path}.")}
        return swap_submodule(*self._parent(path), value)

    def get_tensor(self, name: str) -> Any:
        """The tensor of a path, or None."""
        parent, own = self._parent(name)
        tensor = getattr(parent, own, _MISSING)
        if tensor is _MISSING:
            raise AttributeError(f"{parent._get_name()} has no attribute `{name}`")
        _check_tensor(tensor)
        return tensor

    def set_tensor(self, name: str, value: Tensor | None) -> None:
        """Puts a tensor in the place of that of a path."""
        set_tensor(*self._parent(name), value)

    def del_tensor(self, name: str) -> None:
        """Deletes the tensor of a path."""
        parent, own = self._parent(name)
        if not hasattr(parent, own):
            raise AttributeError(f"{parent._get_name()} has no attribute `{name}`")
        delattr(parent, own)

    def swap_tensor(self, name: str, value: Any, allow_missing: bool = False) -> Any:
        """Puts a tensor in the place of that of a path, which it gives back."""
        return swap_tensor(*self._parent(name), value, allow_missing=allow_missing)

    def get_tensors(self, names: Iterable[str]) -> list[Any]:
        """The tensors of paths."""
        return [self.get_tensor(name) for name in names]

    @staticmethod
    def _paired(names: Iterable[str], values: Iterable[Any]) -> list[tuple[str, Any]]:
        names, values = list(names), list(values)
        if len(names) != len(values):
            raise AssertionError(
                f"names and values must have the same length, got {len(names)} names and {len(values)} values"
            )
        return list(zip(names, values, strict=True))

    def set_tensors(self, names: Iterable[str], values: Iterable[Tensor | None]) -> None:
        """Puts tensors in the places of those of paths."""
        for name, value in self._paired(names, values):
            self.set_tensor(name, value)

    def set_tensors_dict(self, named_tensors: dict[str, Tensor | None]) -> None:
        """Puts tensors in the places of those of paths."""
        for name, value in named_tensors.items():
            self.set_tensor(name, value)

    def del_tensors(self, names: Iterable[str]) -> None:
        """Deletes the tensors of paths."""
        for name in names:
            self.del_tensor(name)

    def swap_tensors(self, names: Iterable[str], values: Iterable[Any], allow_missing: bool = False) -> list[Any]:
        """Puts tensors in the places of those of paths, which it gives back."""
        return [self.swap_tensor(name, value, allow_missing) for name, value in self._paired(names, values)]

    def swap_tensors_dict(
        self, named_tensors: dict[str, Any], allow_missing: bool = False
    ) -> tuple[dict[str, Any], list[str]]:
        """Puts tensors in the places of those of paths, all or none. What was there, and which paths had nothing."""
        former: dict[str, Any] = {}
        try:
            for name, tensor in named_tensors.items():
                former[name] = self.swap_tensor(name, tensor, allow_missing=True)
            missing = [name for name, tensor in former.items() if tensor is _MISSING]
            if missing and not allow_missing:
                raise RuntimeError(f"Missing key(s): {', '.join(map(repr, missing))}.")
        except Exception:
            for name, tensor in former.items():
                self.swap_tensor(name, tensor, allow_missing=True)
            raise
        return former, missing

    def check_keys(self, keys: Iterable[str]) -> tuple[list[str], list[str]]:
        """Which paths of tensors are not among the keys, and which keys are no such paths."""
        given = set(keys)
        valid = {name for name, _ in self.named_tensors(remove_duplicate=False)}
        return sorted(valid - given), sorted(given - valid)

    def named_parameters(self, remove_duplicate: bool = True) -> Iterator[tuple[str, Tensor]]:
        """The module's parameters by their paths."""
        yield from self.module.named_parameters(remove_duplicate=remove_duplicate)

    def named_buffers(self, remove_duplicate: bool = True) -> Iterator[tuple[str, Tensor]]:
        """The module's buffers by their paths."""
        yield from self.module.named_buffers(remove_duplicate=remove_duplicate)

    def named_tensors(self, remove_duplicate: bool = True) -> Iterator[tuple[str, Tensor]]:
        """The module's parameters and buffers by their paths."""
        yield from self.named_parameters(remove_duplicate)
        yield from self.named_buffers(remove_duplicate)

    def named_modules(self, remove_duplicate: bool = True) -> Iterator[tuple[str, Module]]:
        """The module and its submodules by their paths."""
        yield from self.module.named_modules(remove_duplicate=remove_duplicate)
