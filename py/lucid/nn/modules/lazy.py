"""Lazy modules: those that learn the sizes of their inputs from the first call.

A lazy module's parameters have no shape until then (`UninitializedParameter`). The first call, in a hook before
`forward`, gives them shapes and initial values, and turns the module into its ordinary class.
"""

from __future__ import annotations

from typing import Any, ClassVar

from lucid import errors
from lucid.nn.parameter import UninitializedBuffer, UninitializedParameter, is_lazy

__all__ = ["LazyModuleMixin"]


class LazyModuleMixin:
    """Makes a module lazy. A subclass makes uninitialized parameters and defines `initialize_parameters(*args)`.

    `cls_to_become`, if set, is the class that the module has after its first call. A subclass may also name it in its
    header, `class LazyLinear(LazyModuleMixin, Linear, become=Linear)`.

    Args:
        args (object): for the next class's constructor.
        kwargs (object): for the next class's constructor.

    Example:
        >>> class LazyScale(lucid.nn.modules.lazy.LazyModuleMixin, lucid.nn.Module):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.scale = lucid.nn.UninitializedParameter()
        ...
        ...     def initialize_parameters(self, x):
        ...         self.scale.materialize(x.shape[-1:])
        ...         lucid.nn.init.ones_(self.scale)
        ...
        ...     def forward(self, x):
        ...         return x * self.scale
        >>> LazyScale()(lucid.ones(2, 3)).shape
        lucid.Size([2, 3])
    """

    cls_to_become: ClassVar[type[Any] | None] = None

    def __init_subclass__(cls, become: type[Any] | None = None, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if become is not None:
            cls.cls_to_become = become

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        this: Any = self
        self._initialize_hook = this.register_forward_pre_hook(_first_call, with_kwargs=True)

    def initialize_parameters(self, *args: Any, **kwargs: Any) -> None:
        """Gives the parameters shapes and values, for the first call's arguments."""
        raise errors.NotImplementedError(f"initialize_parameters is not implemented for {type(self).__name__}")

    def has_uninitialized_params(self) -> bool:
        """Is any parameter or buffer of this module still without a shape?"""
        this: Any = self
        return any(is_lazy(t) for t in (*this._parameters.values(), *this._buffers.values()))

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        import copy

        made: Any = type(self).__new__(type(self))
        memo[id(self)] = made
        state = {k: v for k, v in self.__dict__.items() if k != "_initialize_hook"}
        made.__dict__.update(copy.deepcopy(state, memo))
        made._relink()
        return made

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if k != "_initialize_hook"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[misc]
        self._relink()

    def _relink(self) -> None:
        """Puts a handle on the copied hook in the place of the original's."""
        this: Any = self
        for key, hook in list(this._forward_pre_hooks.items()):
            if hook is _first_call:
                del this._forward_pre_hooks[key]
                this._forward_pre_hooks_with_kwargs.pop(key, None)
        this.__dict__["_initialize_hook"] = this.register_forward_pre_hook(_first_call, with_kwargs=True)


def _first_call(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    module.initialize_parameters(*args, **kwargs)
    if module.has_uninitialized_params():
        raise errors.RuntimeError(f"module {module._get_name()} has not been fully initialized")
    module._initialize_hook.remove()
    del module.__dict__["_initialize_hook"]
    if module.cls_to_become is not None:
        module.__class__ = module.cls_to_become


def blank_parameter(device: Any, dtype: Any) -> UninitializedParameter:
    """A parameter to be given its shape later."""
    return UninitializedParameter(device=device, dtype=dtype)


def blank_buffer(device: Any, dtype: Any) -> UninitializedBuffer:
    """A buffer to be given its shape later."""
    return UninitializedBuffer(device=device, dtype=dtype)
