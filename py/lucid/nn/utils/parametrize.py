"""Parametrizations: parameters that are computed from others whenever they are asked for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import lucid
from lucid import Tensor, errors
from lucid.nn.modules.container import ModuleDict, ModuleList
from lucid.nn.modules.module import Module
from lucid.nn.parameter import Parameter

__all__ = [
    "ParametrizationList",
    "cached",
    "is_parametrized",
    "register_parametrization",
    "remove_parametrizations",
    "transfer_parametrizations_and_params",
    "type_before_parametrizations",
]

_cache: dict[tuple[int, str], Any] | None = None


def __getattr__(name: str) -> int:
    if name == "_cache_enabled":
        # PyTorch's count of the blocks of `cached()` that are open.
        return int(_cache is not None)
    raise AttributeError(f"module 'lucid.nn.utils.parametrize' has no attribute '{name}'")


@contextmanager
def cached() -> Iterator[None]:
    """Within it, each parametrized tensor is computed once."""
    global _cache
    outer = _cache
    _cache = {} if outer is None else outer
    try:
        yield
    finally:
        _cache = outer


class ParametrizationList(ModuleList):
    """The parametrizations of one tensor, and what they start from: `original`, or `original0`, `original1`, …

    Args:
        modules (sequence of Modules): the parametrizations, first to last.
        original (Tensor): the tensor that is parametrized, of any shape.
        unsafe (bool, default: False): does not check that shape and dtype stay.

    Raises:
        ValueError: there is no parametrization, or it changes shape or dtype.

    Example:
        >>> from lucid import nn
        >>> layer = nn.utils.parametrizations.weight_norm(nn.Linear(3, 2))
        >>> len(layer.parametrizations.weight)
        1
    """

    def __init__(self, modules: Any, original: Tensor, unsafe: bool = False) -> None:
        modules = list(modules)
        if not modules:
            raise errors.ValueError("ParametrizationList requires one or more modules.")
        super().__init__(modules)
        self.unsafe = unsafe
        shape, dtype = original.shape, original.dtype
        new: Any = original
        with lucid.no_grad():
            for module in reversed(modules):
                if hasattr(module, "right_inverse"):
                    # One that has no inverse starts from what it is given.
                    with suppress(NotImplementedError):
                        new = module.right_inverse(new)
        self.is_tensor = isinstance(new, Tensor)
        self.ntensors = 1 if self.is_tensor else len(new)
        if self.is_tensor:
            if isinstance(original, Parameter):
                if new is not original:
                    original.data = new.detach()
                self.original = original
            else:
                self.register_buffer("original", new)
        else:
            for i, part in enumerate(new):
                if isinstance(original, Parameter):
                    setattr(self, f"original{i}", Parameter(part.detach(), original.requires_grad))
                else:
                    self.register_buffer(f"original{i}", part)
        if not unsafe:
            made = self()
            if not isinstance(made, Tensor):
                raise errors.ValueError(f"A parametrization must return a tensor. Got {type(made).__name__}.")
            if made.dtype != dtype:
                raise errors.ValueError(
                    f"Registering a parametrization may not change the dtype of the tensor, unless `unsafe` flag is "
                    f"enabled.\nmodule dtype: {dtype}\nparametrized dtype: {made.dtype}"
                )
            if made.shape != shape:
                raise errors.ValueError(
                    f"Registering a parametrization may not change the shape of the tensor, unless `unsafe` flag is "
                    f"enabled.\nmodule shape: {shape}\nparametrized shape: {made.shape}"
                )

    def right_inverse(self, value: Tensor) -> None:
        """Sets what the parametrizations start from so that they give `value`."""
        with lucid.no_grad():
            new: Any = value
            for module in reversed(list(self)):
                if not hasattr(module, "right_inverse"):
                    raise errors.RuntimeError(
                        f"parametrization {type(module).__name__} does not implement right_inverse."
                    )
                new = module.right_inverse(new)
            parts = [new] if self.is_tensor else list(new)
            names = ["original"] if self.is_tensor else [f"original{i}" for i in range(self.ntensors)]
            for name, part in zip(names, parts, strict=True):
                getattr(self, name).data = part.detach().clone()

    def forward(self) -> Any:
        modules = list(self)
        if self.is_tensor:
            x = modules[0](self.original)
        else:
            x = modules[0](*(getattr(self, f"original{i}") for i in range(self.ntensors)))
        for module in modules[1:]:
            x = module(x)
        return x


def _property(name: str) -> property:
    def get(self: Any) -> Any:
        chain = self.parametrizations[name]
        if _cache is None:
            return chain()
        key = (id(self), name)
        if key not in _cache:
            _cache[key] = chain()
        return _cache[key]

    def put(self: Any, value: Tensor) -> None:
        self.parametrizations[name].right_inverse(value)

    return property(get, put)


def _deepcopy(self: Any, memo: dict[int, Any]) -> Any:
    import copy

    if id(self) in memo:
        return memo[id(self)]
    made = self.__new__(type(self))
    memo[id(self)] = made
    made.__dict__ = copy.deepcopy(self.__dict__, memo)
    return made


def _getstate(self: Any) -> Any:
    raise errors.RuntimeError(
        "Serialization of parametrized modules is only supported through state_dict(): their class is made when they "
        "are parametrized"
    )


def register_parametrization(
    module: Module, tensor_name: str, parametrization: Module, *, unsafe: bool = False
) -> Module:
    """Makes `module.tensor_name` the value of `parametrization` of what it is now; several may be stacked.

    Args:
        module (Module): Whose tensor.
        tensor_name (str): A parameter's or buffer's name.
        parametrization (Module): Called with the tensor; its `right_inverse`, if any, gives what it starts from,
            so that the value stays. One that is stacked on others is called with their value, which changes it.
        unsafe (bool, default: False): Whether shape and dtype may change, and are not checked.

    Returns:
        Module: `module` itself.

    Raises:
        ValueError: the module has no such tensor, or the parametrization changes shape or dtype, unless `unsafe`.

    Example:
        >>> from lucid import nn
        >>> class Symmetric(nn.Module):
        ...     def forward(self, x):
        ...         return x.triu() + x.triu(1).T
        >>> layer = nn.utils.parametrize.register_parametrization(nn.Linear(3, 3), "weight", Symmetric())
        >>> bool((layer.weight == layer.weight.T).all())
        True
    """
    parametrization.train(module.training)
    if is_parametrized(module, tensor_name):
        chain = module.parametrizations[tensor_name]
        if not unsafe:
            value = getattr(module, tensor_name)
            made = parametrization(value)
            if not isinstance(made, Tensor) or made.shape != value.shape or made.dtype != value.dtype:
                raise errors.ValueError(
                    "Registering a parametrization may not change the shape or dtype of the tensor, unless `unsafe` "
                    "flag is enabled."
                )
        # As in PyTorch what the first one starts from stays, so the tensor's value changes.
        chain.append(parametrization)
        chain.unsafe |= unsafe
        return module
    if tensor_name not in module._parameters and tensor_name not in module._buffers:
        raise errors.ValueError(
            f"Module '{module}' does not have a parameter, a buffer, or a parametrized element with name "
            f"'{tensor_name}'"
        )
    original = getattr(module, tensor_name)
    chain = ParametrizationList([parametrization], original, unsafe=unsafe)
    delattr(module, tensor_name)
    if not is_parametrized(module):
        cls = type(module)
        module.__class__ = type(
            f"Parametrized{cls.__name__}", (cls,), {"__deepcopy__": _deepcopy, "__getstate__": _getstate}
        )
        module.parametrizations = ModuleDict()
    setattr(type(module), tensor_name, _property(tensor_name))
    module.parametrizations[tensor_name] = chain
    return module


def is_parametrized(module: Module, tensor_name: str | None = None) -> bool:
    """Has the module parametrizations, or one of this name?

    Args:
        module (Module): the module that is asked about.
        tensor_name (str, optional): a name; any by default.

    Returns:
        bool: whether it is so.

    Example:
        >>> from lucid import nn
        >>> nn.utils.parametrize.is_parametrized(nn.Linear(3, 3))
        False
    """
    found = module._modules.get("parametrizations")
    if not isinstance(found, ModuleDict):
        return False
    return len(found) > 0 if tensor_name is None else tensor_name in found


def remove_parametrizations(module: Module, tensor_name: str, leave_parametrized: bool = True) -> Module:
    """Makes `module.tensor_name` an ordinary tensor again: its present value, or what it was computed from.

    Args:
        module (Module): the module with the tensor.
        tensor_name (str): the name of the tensor that is parametrized.
        leave_parametrized (bool, default: True): keeps the present value, rather than what it was computed from.

    Returns:
        Module: `module` itself.

    Raises:
        ValueError: the tensor is not parametrized.

    Example:
        >>> from lucid import nn
        >>> layer = nn.utils.parametrizations.weight_norm(nn.Linear(3, 2))
        >>> sorted(nn.utils.parametrize.remove_parametrizations(layer, "weight").state_dict())
        ['bias', 'weight']
    """
    if not is_parametrized(module, tensor_name):
        raise errors.ValueError(f"Module {module} does not have a parametrization on {tensor_name}")
    chain = module.parametrizations[tensor_name]
    if chain.is_tensor:
        original = chain.original
        if leave_parametrized:
            with lucid.no_grad():
                original.data = getattr(module, tensor_name).detach().clone()
    elif leave_parametrized:
        value = getattr(module, tensor_name)
        original = Parameter(value.detach().clone()) if value.requires_grad else value.detach().clone()
    else:
        raise errors.ValueError(
            "Cannot leave unparametrized (`leave_parametrized=False`) a tensor that is parametrized in "
            "terms of a sequence of tensors."
        )
    delattr(type(module), tensor_name)
    del module.parametrizations[tensor_name]
    if isinstance(original, Parameter):
        module.register_parameter(tensor_name, original)
    else:
        module.register_buffer(tensor_name, original)
    if not is_parametrized(module):
        delattr(module, "parametrizations")
        module.__class__ = type(module).__bases__[0]
    return module


def transfer_parametrizations_and_params(
    from_module: Module, to_module: Module, tensor_name: str | None = None
) -> Module:
    """Parametrizes a module as another one is, with the same parametrizations, and gives it what these start from.

    The parametrizations are shared; what they start from is copied, as a parameter of its own.

    Args:
        from_module (Module): Whose parametrizations; nothing happens where it has none.
        to_module (Module): Who gets them. A parameter that it has not yet is made.
        tensor_name (str, optional): The one tensor to look at.

    Returns:
        Module: `to_module` itself.

    Raises:
        ValueError: the modules' parametrizations do not fit.

    Example:
        >>> from lucid import nn
        >>> a = nn.utils.parametrizations.weight_norm(nn.Linear(3, 2))
        >>> b = nn.utils.parametrize.transfer_parametrizations_and_params(a, nn.Linear(3, 2))
        >>> nn.utils.parametrize.is_parametrized(b)
        True
    """
    if not is_parametrized(from_module):
        return to_module
    for name in list(from_module.parametrizations) if tensor_name is None else [tensor_name]:
        if not is_parametrized(from_module, name):
            raise errors.ValueError(f"Module {from_module} does not have a parametrization on {name}")
        chain = from_module.parametrizations[name]
        if not hasattr(to_module, name):
            setattr(to_module, name, Parameter(getattr(from_module, name).detach().clone()))
        for parametrization in chain:
            register_parametrization(to_module, name, parametrization)
        own = to_module.parametrizations[name]
        starts = ["original"] if chain.is_tensor else [f"original{i}" for i in range(chain.ntensors)]
        for start in starts:
            value = getattr(chain, start)
            copied = value.detach().clone()
            kept = Parameter(copied, value.requires_grad) if isinstance(value, Parameter) else copied
            setattr(own, start, kept)
    return to_module


def type_before_parametrizations(module: Module) -> type[Any]:
    """The module's class before it was parametrized.

    Args:
        module (Module): the module, parametrized or not.

    Returns:
        type: the class.

    Example:
        >>> from lucid import nn
        >>> layer = nn.utils.parametrizations.weight_norm(nn.Linear(3, 2))
        >>> nn.utils.parametrize.type_before_parametrizations(layer).__name__
        'Linear'
    """
    return type(module).__bases__[0] if is_parametrized(module) else type(module)
