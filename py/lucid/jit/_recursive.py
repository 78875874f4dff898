"""What of PyTorch's compiler of scripts packages import. Nothing is compiled: a module that is scripted stays Python.

Descriptions and checks work; what would compile says in one sentence that it does not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from lucid import errors
from lucid.nn.modules.module import Module

_WHY = "there are no scripts here; lucid.jit.script returns the module itself, and lucid.compile compiles it"


class ScriptMethodStub(NamedTuple):
    """A method that would be compiled."""

    resolution_callback: Any
    def_: Any
    original_method: Any


class PropertyStub(NamedTuple):
    """A property that would be compiled."""

    resolution_callback: Any
    def_: Any


#: Attributes of modules that scripts leave out.
ignored_attributes = [
    *("_version", "_parameters", "_buffers", "_non_persistent_buffers_set", "_backward_hooks", "_backward_pre_hooks"),
    *("_forward_hooks", "_forward_hooks_with_kwargs", "_forward_pre_hooks", "_forward_pre_hooks_with_kwargs"),
    *("_forward_hooks_always_called", "_state_dict_hooks", "_state_dict_pre_hooks", "_load_state_dict_pre_hooks"),
    *("_load_state_dict_post_hooks", "_modules", "_initializing", "dump_patches"),
]


def check_module_initialized(mod: Any) -> None:
    """Raises a RuntimeError where `nn.Module.__init__` of a module was not called."""
    if not isinstance(mod, Module):
        raise AssertionError(f"expected a module, got {type(mod).__name__}")
    if "_parameters" not in mod.__dict__:
        raise errors.RuntimeError(
            f"'{type(mod).__module__}.{type(mod).__name__}' has not been initialized, did you forget to call 'super()'?"
        )


def get_class_properties(cls: type, self_name: str = "self") -> list[Any]:
    """The properties of a class that would be compiled: none are. `self_name` has no effect."""
    return []


def create_script_module(
    nn_module: Module, stubs_fn: Any = None, share_types: bool = True, is_tracing: bool = False
) -> Module:
    """The module itself, as `jit.script` returns it; `stubs_fn`, `share_types` and `is_tracing` have no effect."""
    check_module_initialized(nn_module)
    return nn_module


def _absent(name: str) -> Callable[..., Any]:
    def function(*args: Any, **kwargs: Any) -> Any:
        raise errors.NotImplementedError(f"jit._recursive.{name}: {_WHY}")

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"Raises NotImplementedError: {_WHY}."
    return function


for _name in [
    "ConcreteTypeStore",
    "create_hooks_from_stubs",
    "create_methods_and_properties_from_stubs",
    "create_script_class",
    "create_script_module_impl",
    "compile_unbound_method",
    "get_hook_stubs",
    "get_module_concrete_type",
    "get_property_stubs",
    "infer_concrete_type_builder",
    "infer_methods_to_compile",
    "interface_script",
    "lazy_bind",
    "make_stub",
    "make_stub_from_method",
    "make_stubs_for_overloads",
    "make_stubs_from_exported_methods",
    "try_compile_fn",
    "wrap_cpp_class",
    "wrap_cpp_module",
]:
    globals()[_name] = _absent(_name)
