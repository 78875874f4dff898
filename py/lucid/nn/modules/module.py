"""`Module`: the base class of everything that holds parameters.

A module is a tree: parameters, buffers and child modules, each in a dict by name. Attribute access goes through these
dicts, as in PyTorch, and so do `state_dict`, `to` and `apply`. Calling a module without hooks costs one check.
The state-dict half is in `state.py`.
"""

from __future__ import annotations

import builtins
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import lucid
from lucid import Tensor, errors
from lucid._public_names import NamedInErrors
from lucid.nn.modules.call import (
    _REGISTRATION,
    CallMixin,
    _registered,
    register_module_backward_hook,
    register_module_buffer_registration_hook,
    register_module_forward_hook,
    register_module_forward_pre_hook,
    register_module_full_backward_hook,
    register_module_full_backward_pre_hook,
    register_module_module_registration_hook,
    register_module_parameter_registration_hook,
)
from lucid.nn.modules.move import Conversion, parse_to
from lucid.nn.modules.state import StateDictMixin
from lucid.nn.modules.state import _IncompatibleKeys as _IncompatibleKeys
from lucid.nn.parameter import Buffer, Parameter

__all__ = [
    "Module",
    "register_module_backward_hook",
    "register_module_buffer_registration_hook",
    "register_module_forward_hook",
    "register_module_forward_pre_hook",
    "register_module_full_backward_hook",
    "register_module_full_backward_pre_hook",
    "register_module_module_registration_hook",
    "register_module_parameter_registration_hook",
    "weight_and_bias",
]

T = TypeVar("T", bound="Module")
_E = TypeVar("_E")

# By the names that packages take from PyTorch's file.
_EXTRA_STATE_KEY_SUFFIX = "_extra_state"
_global_parameter_registration_hooks = _REGISTRATION["parameter"]
_global_module_registration_hooks = _REGISTRATION["module"]
_global_buffer_registration_hooks = _REGISTRATION["buffer"]


class Module(NamedInErrors, CallMixin, StateDictMixin):
    """Base class of neural network modules.

    A subclass calls `super().__init__()`, assigns parameters, buffers and child modules as attributes, and defines
    `forward`, which a call of the module runs.

    Args:
        args (object): refused, unless the class sets `call_super_init`; then for the next class's constructor.
        kwargs (object): refused likewise.

    Raises:
        TypeError: arguments are given, and `call_super_init` is not set.

    Example:
        >>> class Net(lucid.nn.Module):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.hidden, self.out = lucid.nn.Linear(4, 8), lucid.nn.Linear(8, 2)
        ...
        ...     def forward(self, x):
        ...         return self.out(self.hidden(x).relu())
        >>> net = Net()
        >>> net(lucid.ones(3, 4)).shape, len(list(net.parameters()))
        (lucid.Size([3, 2]), 4)
    """

    training: bool
    _version: int = 1
    call_super_init: bool = False
    # Names that `__getattr__` serves, for type checkers: attributes may be parameters, buffers or modules.
    _parameters: dict[str, Parameter | None]
    _buffers: dict[str, Tensor | None]
    _modules: dict[str, Module | None]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if not self.call_super_init and (args or kwargs):
            odd = (
                f"got an unexpected keyword argument '{next(iter(kwargs))}'"
                if kwargs
                else (f"takes 1 positional argument but {len(args) + 1} were given")
            )
            raise errors.TypeError(f"{type(self).__name__}.__init__() {odd}")
        # Straight into the dict: `__setattr__` would look each of these up.
        self.__dict__.update(
            training=True,
            _parameters={},
            _buffers={},
            _non_persistent_buffers_set=set(),
            _modules={},
            _forward_pre_hooks=OrderedDict(),
            _forward_pre_hooks_with_kwargs=OrderedDict(),
            _forward_hooks=OrderedDict(),
            _forward_hooks_with_kwargs=OrderedDict(),
            _forward_hooks_always_called=OrderedDict(),
            _backward_hooks=OrderedDict(),
            _backward_pre_hooks=OrderedDict(),
            _state_dict_hooks=OrderedDict(),
            _state_dict_pre_hooks=OrderedDict(),
            _load_state_dict_pre_hooks=OrderedDict(),
            _load_state_dict_post_hooks=OrderedDict(),
        )
        if self.call_super_init:
            super().__init__(*args, **kwargs)

    def _forward_unimplemented(self, *inputs: Any) -> None:
        raise errors.NotImplementedError(f'Module [{type(self).__name__}] is missing the required "forward" function')

    forward: Callable[..., Any] = _forward_unimplemented

    # ---- attributes --------------------------------------------------------------------------------------------------

    def __getattr__(self, name: str) -> Any:
        # Only called where ordinary lookup failed. Spelled out, not a loop: every layer's call comes through here.
        slots = self.__dict__
        named = slots.get("_modules")
        if named is not None:
            if name in named:
                return named[name]
            named = slots["_parameters"]
            if name in named:
                return named[name]
            named = slots["_buffers"]
            if name in named:
                return named[name]
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")

    def __setattr__(self, name: str, value: Any) -> None:
        slots = self.__dict__
        params, buffers, modules = slots.get("_parameters"), slots.get("_buffers"), slots.get("_modules")
        if isinstance(value, Parameter):
            if params is None:
                raise AttributeError("cannot assign parameters before Module.__init__() call")
            self._forget(name, keep=params)
            self.register_parameter(name, value)
        elif params is not None and name in params:
            if value is not None:
                raise errors.TypeError(
                    f"cannot assign '{_typename(value)}' as parameter '{name}' (lucid.nn.Parameter or None expected)"
                )
            self.register_parameter(name, None)
        elif isinstance(value, Module):
            if modules is None:
                raise AttributeError("cannot assign module before Module.__init__() call")
            self._forget(name, keep=modules)
            modules[name] = _registered("module", self, name, value)
        elif modules is not None and name in modules:
            if value is not None:
                raise errors.TypeError(
                    f"cannot assign '{_typename(value)}' as child module '{name}' (lucid.nn.Module or None expected)"
                )
            modules[name] = None
        elif isinstance(value, Buffer) or (buffers is not None and name in buffers):
            if buffers is None:
                raise AttributeError("cannot assign buffer before Module.__init__() call")
            if value is not None and not isinstance(value, Tensor):
                raise errors.TypeError(
                    f"cannot assign '{_typename(value)}' as buffer '{name}' "
                    f"(lucid.nn.Buffer, lucid.Tensor or None expected)"
                )
            if isinstance(value, Buffer):
                self._forget(name, keep=buffers)
                self.register_buffer(name, value, value.persistent)
            else:
                buffers[name] = _registered("buffer", self, name, value)
        else:
            super().__setattr__(name, value)

    def __delattr__(self, name: str) -> None:
        for named in (self._parameters, self._buffers, self._modules):
            if name in named:
                del named[name]
                self._non_persistent_buffers_set.discard(name)
                return
        super().__delattr__(name)

    def __dir__(self) -> list[str]:
        own = set(super().__dir__()) | set(self._parameters) | set(self._buffers) | set(self._modules)
        return sorted(name for name in own if not name[0].isdigit())

    def _forget(self, name: str, keep: object) -> None:
        """Takes a name out of every place it may be in but one."""
        slots = self.__dict__
        slots.pop(name, None)
        for named in (slots["_parameters"], slots["_buffers"], slots["_modules"]):
            if named is not keep:
                named.pop(name, None)
        self._non_persistent_buffers_set.discard(name)

    def _check_name(self, what: str, name: object, present: object) -> None:
        if "_parameters" not in self.__dict__:
            raise AttributeError(f"cannot assign {what} before Module.__init__() call")
        if not isinstance(name, str):
            raise errors.TypeError(f"{what} name should be a string. Got {_typename(name)}")
        if "." in name:
            raise KeyError(f'{what} name can\'t contain ".", got: "{name}"')
        if name == "":
            raise KeyError(f'{what} name can\'t be empty string ""')
        if hasattr(self, name) and name not in present:  # type: ignore[operator]
            raise KeyError(f"attribute '{name}' already exists")

    def register_parameter(self, name: str, param: Parameter | None) -> None:
        """Adds a parameter, or None for one that is absent and not in the state dict."""
        self._check_name("parameter", name, self.__dict__.get("_parameters", ()))
        if param is not None and not isinstance(param, Parameter):
            raise errors.TypeError(
                f"cannot assign '{_typename(param)}' object to parameter '{name}' (lucid.nn.Parameter or None required)"
            )
        if param is not None and not param.is_leaf:
            raise errors.ValueError(
                f"Cannot assign non-leaf Tensor to parameter '{name}'. Model parameters must be created explicitly. "
                f"To express '{name}' as a function of another Tensor, compute the value in the forward() method."
            )
        self._parameters[name] = _registered("parameter", self, name, param)

    def register_buffer(self, name: str, tensor: Tensor | None, persistent: bool = True) -> None:
        """Adds a buffer: a tensor that is state but no parameter. `persistent` ones are in the state dict."""
        self._check_name("buffer", name, self.__dict__.get("_buffers", ()))
        if tensor is not None and not isinstance(tensor, Tensor):
            raise errors.TypeError(
                f"cannot assign '{_typename(tensor)}' object to buffer '{name}' (lucid Tensor or None required)"
            )
        self._buffers[name] = _registered("buffer", self, name, tensor)
        if persistent:
            self._non_persistent_buffers_set.discard(name)
        else:
            self._non_persistent_buffers_set.add(name)

    def add_module(self, name: str, module: Module | None) -> None:
        """Adds a child module under a name."""
        self._check_name("module", name, self.__dict__.get("_modules", ()))
        if module is not None and not isinstance(module, Module):
            raise errors.TypeError(f"{_typename(module)} is not a Module subclass")
        self._modules[name] = _registered("module", self, name, module)

    def register_module(self, name: str, module: Module | None) -> None:
        """`add_module` under another name."""
        self.add_module(name, module)

    # ---- walking the tree --------------------------------------------------------------------------------------------

    def get_submodule(self, target: str) -> Module:
        """The descendant named by a dotted path; the module itself for the empty one."""
        module: Module = self
        for name in target.split(".") if target else ():
            if not hasattr(module, name):
                raise AttributeError(f"{type(module).__name__} has no attribute `{name}`")
            found = getattr(module, name)
            if not isinstance(found, Module):
                raise AttributeError(f"`{name}` is not an nn.Module")
            module = found
        return module

    def set_submodule(self, target: str, module: Module, strict: bool = False) -> None:
        """Puts a module in the place of the descendant named by a dotted path; with `strict` one must be there."""
        if not target:
            raise errors.ValueError("Cannot set the submodule without a target name!")
        parent, _, name = target.rpartition(".")
        if not isinstance(module, Module):
            raise errors.ValueError(f"`module` is not an nn.Module, found {builtins.type(module)}")
        owner = self.get_submodule(parent)
        if strict and not hasattr(owner, name):
            raise AttributeError(f"{owner._get_name()} has no attribute `{name}`")
        if hasattr(owner, name) and not isinstance(getattr(owner, name), Module):
            raise AttributeError(f"`{name}` is not an nn.Module")
        setattr(owner, name, module)

    def get_parameter(self, target: str) -> Parameter:
        """The parameter named by a dotted path."""
        parent, _, name = target.rpartition(".")
        owner = self.get_submodule(parent)
        if not hasattr(owner, name):
            raise AttributeError(f"{owner._get_name()} has no attribute `{name}`")
        found = getattr(owner, name)
        if not isinstance(found, Parameter):
            raise AttributeError(f"`{name}` is not an nn.Parameter")
        return found

    def get_buffer(self, target: str) -> Tensor:
        """The buffer named by a dotted path."""
        parent, _, name = target.rpartition(".")
        module = self.get_submodule(parent)
        if not hasattr(module, name):
            raise AttributeError(f"{module._get_name()} has no attribute `{name}`")
        if name not in module._buffers:
            raise AttributeError(f"`{name}` is not a buffer")
        found: Tensor = getattr(module, name)
        return found

    def named_modules(
        self, memo: set[Module] | None = None, prefix: str = "", remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Module]]:
        """Every module of the tree with its dotted path, itself first under the path `prefix`."""
        seen = set() if memo is None else memo
        # A stack, so that a deep chain of modules is no deep recursion.
        pending: list[tuple[str, Module]] = [(prefix, self)]
        while pending:
            path, module = pending.pop()
            if module in seen:
                continue
            if remove_duplicate:
                seen.add(module)
            yield path, module
            below = [(f"{path}.{name}" if path else name, m) for name, m in module._modules.items() if m is not None]
            pending.extend(reversed(below))

    def modules(self, remove_duplicate: bool = True) -> Iterator[Module]:
        """Every module of the tree, itself first; each once, unless told otherwise."""
        for _, module in self.named_modules(remove_duplicate=remove_duplicate):
            yield module

    def named_children(self) -> Iterator[tuple[str, Module]]:
        """The immediate child modules with their names, each once."""
        seen = set()
        for name, module in self._modules.items():
            if module is not None and module not in seen:
                seen.add(module)
                yield name, module

    def children(self) -> Iterator[Module]:
        """The immediate child modules."""
        for _, module in self.named_children():
            yield module

    def _named_members(
        self,
        members: Callable[[Module], dict[str, _E | None]],
        prefix: str,
        recurse: bool,
        remove_duplicate: bool,
    ) -> Iterator[tuple[str, _E]]:
        seen: set[int] = set()
        modules = self.named_modules(prefix=prefix, remove_duplicate=remove_duplicate) if recurse else [(prefix, self)]
        for path, module in modules:
            for name, member in members(module).items():
                if member is None or id(member) in seen:
                    continue
                if remove_duplicate:
                    seen.add(id(member))
                yield (f"{path}.{name}" if path else name), member

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Parameter]]:
        """Parameters with their dotted names, shared ones once unless `remove_duplicate` is False."""
        return self._named_members(lambda m: m._parameters, prefix, recurse, remove_duplicate)

    def parameters(self, recurse: bool = True) -> Iterator[Parameter]:
        """Parameters of the tree, or of this module alone without `recurse`; shared ones once."""
        for _, param in self.named_parameters(recurse=recurse):
            yield param

    def named_buffers(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Tensor]]:
        """Buffers with their dotted names."""
        return self._named_members(lambda m: m._buffers, prefix, recurse, remove_duplicate)

    def buffers(self, recurse: bool = True) -> Iterator[Tensor]:
        """Buffers of the tree, or of this module alone without `recurse`."""
        for _, buffer in self.named_buffers(recurse=recurse):
            yield buffer

    def apply(self: T, fn: Callable[[Module], None]) -> T:
        """Calls `fn` on every descendant, children first, and on the module itself last."""
        for module in self.children():
            module.apply(fn)
        fn(self)
        return self

    # ---- moving and converting ---------------------------------------------------------------------------------------

    def _apply(self: T, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> T:
        """Replaces the data of every parameter, its gradient, and every buffer by `fn` of it.

        Parameters keep their identity, so an optimizer made before still holds them.
        """
        if recurse:
            for module in self.children():
                module._apply(fn)
        from lucid import __future__ as future

        for name, param in self._parameters.items():
            if param is None:
                continue
            grad = param.grad
            data = fn(param.detach())
            if future._swap or future._overwrite:
                new = Parameter(data, param.requires_grad)
                if grad is not None:
                    new.grad = fn(grad.detach()).requires_grad_(grad.requires_grad)
                if future._swap:
                    lucid.utils.swap_tensors(param, new)
                else:
                    self._parameters[name] = new
                continue
            if data is not param and grad is not None:
                param.grad = None
            param.data = data
            if grad is not None:
                param.grad = fn(grad.detach()).requires_grad_(grad.requires_grad)
        for name, buffer in self._buffers.items():
            if buffer is not None:
                self._buffers[name] = fn(buffer)
        return self

    def to(self: T, *args: Any, **kwargs: Any) -> T:
        """Moves and converts parameters and buffers, in place.

        Takes a device, a dtype, both, or a tensor to be like. Only floating-point and complex tensors change dtype; the
        others only move. With `memory_format` the dimensions of tensors with four or five are in memory as it says.
        """
        return self._apply(parse_to(args, kwargs))

    def cpu(self: T) -> T:
        """Moves all parameters and buffers to the CPU."""
        return self._apply(Conversion(device="cpu"))

    def gpu(self: T) -> T:
        """Moves all parameters and buffers to the GPU device. (PyTorch: `cuda`.)"""
        return self._apply(Conversion(device="gpu"))

    def type(self: T, dst_type: Any) -> T:
        """Casts all parameters and buffers, integers too."""
        return self._apply(lambda t: t.to(dst_type))

    def float(self: T) -> T:
        """Casts floating-point parameters and buffers to float32."""
        return self._apply(Conversion(dtype="float32"))

    def double(self: T) -> T:
        """Casts floating-point parameters and buffers to float64."""
        return self._apply(Conversion(dtype="float64"))

    def half(self: T) -> T:
        """Casts floating-point parameters and buffers to float16."""
        return self._apply(Conversion(dtype="float16"))

    def bfloat16(self: T) -> T:
        """Casts floating-point parameters and buffers to bfloat16."""
        return self._apply(Conversion(dtype="bfloat16"))

    def cuda(self: T, device: Any = None) -> T:
        """Moves all parameters and buffers to the GPU device."""
        return self._apply(Conversion(device="cuda" if device is None else device))

    def metal(self: T) -> T:
        """Moves all parameters and buffers to the GPU device, by the name it has on a Mac."""
        return self._apply(Conversion(device="metal"))

    def to_empty(self: T, *, device: Any, recurse: bool = True) -> T:
        """Moves parameters and buffers without their elements, which may then be anything.

        So a module that was made on the device `meta` gets its memory.
        """
        return self._apply(lambda t: lucid.empty_like(t, device=device), recurse)

    def share_memory(self: T) -> T:
        """Moves parameters and buffers into memory that other processes can map, see `Tensor.share_memory_`."""
        for tensor in (*self.parameters(), *self.buffers()):
            tensor.share_memory_()
        return self

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """Has calls of this module run recorded graphs, as `lucid.compile(self)` would; takes the same options."""
        import lucid

        # Its options are checked; of each copy of the module the calls are recorded apart.
        if lucid.compile(self, *args, **kwargs) is not self:
            from lucid.compiler._module import ModuleCall

            self.__dict__["_compiled_call"] = ModuleCall(args, kwargs)

    # ---- modes and gradients -----------------------------------------------------------------------------------------

    def train(self: T, mode: bool = True) -> T:
        """Sets training mode, which dropout and batch normalisation heed, on the whole tree."""
        if not isinstance(mode, bool):
            raise errors.ValueError(f"{type(self).__name__}: training mode is expected to be boolean, got {mode!r}")
        self.training = mode
        for module in self.children():
            module.train(mode)
        return self

    def eval(self: T) -> T:
        """Sets evaluation mode: `train(False)`. (Not to be confused with `Tensor.eval()`, which computes.)"""
        return self.train(False)

    def _replicate_for_data_parallel(self: T) -> T:
        from lucid.nn.parallel.replicate import without_parameters

        return without_parameters(self)

    def requires_grad_(self: T, requires_grad: bool = True) -> T:
        """Says whether gradients are recorded for all parameters."""
        for param in self.parameters():
            param.requires_grad_(requires_grad)
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Removes the gradients of all parameters, or zeroes them."""
        for param in self.parameters():
            grad = param.grad
            if grad is None:
                continue
            if set_to_none:
                param.grad = None
            else:
                grad.detach().zero_()

    # ---- showing -----------------------------------------------------------------------------------------------------

    def _get_name(self) -> str:
        return self.__class__.__name__

    def extra_repr(self) -> str:
        """What the module's repr shows between the parentheses; for subclasses to define."""
        return ""

    def __repr__(self) -> str:
        extra = self.extra_repr()
        lines = extra.split("\n") if extra else []
        children = [f"({name}): {_addindent(repr(module), 2)}" for name, module in self._modules.items()]
        name = self._get_name()
        if len(lines) == 1 and not children:
            return f"{name}({lines[0]})"
        body = lines + children
        return f"{name}(\n  " + "\n  ".join(body) + "\n)" if body else f"{name}()"

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        for name in _HOOKS:
            # Pickles of before a kind of hook existed lack its dict.
            self.__dict__.setdefault(name, OrderedDict())


_HOOKS = (
    "_forward_pre_hooks",
    "_forward_pre_hooks_with_kwargs",
    "_forward_hooks",
    "_forward_hooks_with_kwargs",
    "_forward_hooks_always_called",
    "_backward_hooks",
    "_backward_pre_hooks",
    "_state_dict_hooks",
    "_state_dict_pre_hooks",
    "_load_state_dict_pre_hooks",
    "_load_state_dict_post_hooks",
)


def weight_and_bias(module: Any) -> tuple[Any, Any]:
    """`module.weight` and `module.bias`, without the detour that attributes take to them.

    Args:
        module (Module): a module with a weight and a bias.

    Returns:
        tuple of Tensors: both; None for a bias that is not there.

    Example:
        >>> from lucid import nn
        >>> weight, bias = nn.modules.module.weight_and_bias(nn.Linear(3, 2))
        >>> weight.shape, bias.shape
        (lucid.Size([2, 3]), lucid.Size([2]))
    """
    own = module._parameters
    try:
        return own["weight"], own["bias"]
    except KeyError:
        # Something else stands in for a parameter: a property, a plain attribute.
        return module.weight, module.bias


def _typename(value: object) -> str:
    cls = builtins.type(value)
    return cls.__qualname__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"


def _addindent(s_: str, numSpaces: int) -> str:
    """The text with all lines but the first moved to the right, and lines of blanks made empty."""
    first, *rest = s_.split("\n")
    return "\n".join([first, *(" " * numSpaces + line if line.strip() else "" for line in rest)])
