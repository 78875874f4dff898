"""Policies: which modules of a model are sharded by themselves."""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from lucid.nn.modules.module import Module

__all__ = [
    "CustomPolicy",
    "ModuleWrapPolicy",
    "always_wrap_policy",
    "enable_wrap",
    "lambda_auto_wrap_policy",
    "size_based_auto_wrap_policy",
    "transformer_auto_wrap_policy",
    "wrap",
]


def always_wrap_policy(*args: Any, **kwargs: Any) -> bool:
    """Shards every module by itself.

    Args:
        args (object): ignored; other policies take the module, `recurse` and `nonwrapped_numel`.
        kwargs (object): ignored likewise.

    Returns:
        bool: True.

    Example:
        >>> from lucid.distributed.fsdp.wrap import always_wrap_policy
        >>> always_wrap_policy(lucid.nn.ReLU(), recurse=False, nonwrapped_numel=0)
        True
    """
    return True


class ModuleWrapPolicy:
    """Shards each module of the given classes by itself.

    Args:
        module_classes (iterable of type): classes of modules.

    Example:
        >>> from lucid.distributed.fsdp.wrap import ModuleWrapPolicy
        >>> policy = ModuleWrapPolicy([lucid.nn.Linear])
        >>> policy(lucid.nn.Linear(2, 2), recurse=False), policy(lucid.nn.ReLU(), recurse=False)
        (True, False)
    """

    def __init__(self, module_classes: Iterable[type[Module]]) -> None:
        self._module_classes = tuple(module_classes)

    def __call__(self, module: Module, recurse: bool, *args: Any, **kwargs: Any) -> bool:
        return recurse or isinstance(module, self._module_classes)

    def __repr__(self) -> str:
        return f"ModuleWrapPolicy({[c.__name__ for c in self._module_classes]})"


class CustomPolicy:
    """Shards each module by itself for which a function gives a true value.

    Args:
        lambda_fn (callable): called with each module.

    Example:
        >>> from lucid.distributed.fsdp.wrap import CustomPolicy
        >>> policy = CustomPolicy(lambda module: sum(p.numel() for p in module.parameters()) > 100)
        >>> policy(lucid.nn.Linear(20, 20), recurse=False), policy(lucid.nn.Linear(2, 2), recurse=False)
        (True, False)
    """

    def __init__(self, lambda_fn: Callable[[Module], Any]) -> None:
        self._lambda_fn = lambda_fn

    def __call__(self, module: Module, recurse: bool, *args: Any, **kwargs: Any) -> bool:
        return recurse or bool(self._lambda_fn(module))


def lambda_auto_wrap_policy(
    module: Module, recurse: bool, nonwrapped_numel: int, lambda_fn: Callable[[Module], Any]
) -> bool:
    """Shards each module by itself for which `lambda_fn` gives True. `functools.partial` makes a policy of it.

    Args:
        module (Module): the module that is asked about.
        recurse (bool): whether the question is if modules below it are visited; the answer is yes.
        nonwrapped_numel (int): how many elements of it are in no sharded module yet; not used.
        lambda_fn (callable): called with the module.

    Returns:
        bool: whether the module is sharded by itself.

    Example:
        >>> from functools import partial
        >>> from lucid.distributed.fsdp.wrap import lambda_auto_wrap_policy
        >>> policy = partial(lambda_auto_wrap_policy, lambda_fn=lambda m: isinstance(m, lucid.nn.Linear))
        >>> policy(lucid.nn.Linear(2, 2), recurse=False, nonwrapped_numel=6)
        True
    """
    return recurse or bool(lambda_fn(module))


def transformer_auto_wrap_policy(
    module: Module, recurse: bool, nonwrapped_numel: int, transformer_layer_cls: set[type[Module]]
) -> bool:
    """Shards each module of a Transformer's layer classes by itself. `functools.partial` makes a policy of it.

    Args:
        module (Module): the module that is asked about.
        recurse (bool): whether the question is if modules below it are visited; the answer is yes.
        nonwrapped_numel (int): how many elements of it are in no sharded module yet; not used.
        transformer_layer_cls (set of type): the layers' classes.

    Returns:
        bool: whether the module is sharded by itself.

    Example:
        >>> from functools import partial
        >>> from lucid.distributed.fsdp.wrap import transformer_auto_wrap_policy
        >>> policy = partial(transformer_auto_wrap_policy, transformer_layer_cls={lucid.nn.TransformerEncoderLayer})
        >>> policy(lucid.nn.Linear(2, 2), recurse=False, nonwrapped_numel=6)
        False
    """
    return recurse or isinstance(module, tuple(transformer_layer_cls))


def _or_policy(module: Module, recurse: bool, nonwrapped_numel: int, policies: list[Any]) -> bool:
    """Modules that one of several policies says yes to."""
    return any(p(module=module, recurse=recurse, nonwrapped_numel=nonwrapped_numel) for p in policies)


def size_based_auto_wrap_policy(
    module: Module,
    recurse: bool,
    nonwrapped_numel: int,
    min_num_params: int = int(1e8),
    force_leaf_modules: set[type[Module]] | None = None,
    exclude_wrap_modules: set[type[Module]] | None = None,
) -> bool:
    """Shards each module by itself whose elements, without those of sharded modules below it, are many enough.

    Args:
        module (Module): the module that is asked about.
        recurse (bool): whether the question is if modules below it are visited.
        nonwrapped_numel (int): how many elements of it are in no sharded module yet.
        min_num_params (int, optional): how many are enough. Default: 100,000,000.
        force_leaf_modules (set of type, optional): classes whose modules below are not visited. Default:
            `{nn.MultiheadAttention}`.
        exclude_wrap_modules (set of type, optional): classes that are never sharded by themselves. Default:
            `{nn.ModuleList, nn.ModuleDict}`, which are not called.

    Returns:
        bool: whether the module is sharded by itself; with `recurse=True`, whether modules below it are visited.

    Example:
        >>> from functools import partial
        >>> from lucid.distributed.fsdp.wrap import size_based_auto_wrap_policy
        >>> policy = partial(size_based_auto_wrap_policy, min_num_params=100)
        >>> policy(lucid.nn.Linear(20, 20), recurse=False, nonwrapped_numel=420)
        True
    """
    from lucid import nn

    excluded = exclude_wrap_modules if exclude_wrap_modules is not None else {nn.ModuleList, nn.ModuleDict}
    leaves = force_leaf_modules if force_leaf_modules is not None else {nn.MultiheadAttention}
    large = nonwrapped_numel >= min_num_params
    if recurse:
        return large and not isinstance(module, tuple(leaves))
    return large and not isinstance(module, tuple(excluded))


#: The class that `wrap` applies, and its arguments, in the blocks of `enable_wrap`.
_wrapper: contextvars.ContextVar[tuple[Callable[..., Module], dict[str, Any]] | None]
_wrapper = contextvars.ContextVar("wrapper", default=None)


@contextlib.contextmanager
def enable_wrap(*, wrapper_cls: Callable[..., Module], **wrapper_kwargs: Any) -> Iterator[None]:
    """A block in which `wrap(module)` gives `wrapper_cls(module, **wrapper_kwargs)`.

    Args:
        wrapper_cls (type): `FullyShardedDataParallel`, or another class that takes a module.
        **wrapper_kwargs (object): its other arguments.

    Returns:
        context manager: the block.

    Example:
        >>> from lucid.distributed.fsdp.wrap import enable_wrap, wrap
        >>> with enable_wrap(wrapper_cls=lucid.nn.Sequential):
        ...     print(type(wrap(lucid.nn.ReLU())).__name__)
        Sequential
    """
    token = _wrapper.set((wrapper_cls, wrapper_kwargs))
    try:
        yield
    finally:
        _wrapper.reset(token)


def wrap(module: Module, **wrap_overrides: Any) -> Module:
    """Wraps a module as the `enable_wrap` around says; elsewhere gives it as it is.

    Args:
        module (Module): what is wrapped, on any device.
        **wrap_overrides (object): arguments of the class that take the place of the block's.

    Returns:
        Module: the wrapped module, or `module` itself.

    Example:
        >>> from lucid.distributed.fsdp.wrap import wrap
        >>> type(wrap(lucid.nn.ReLU())).__name__
        'ReLU'
    """
    found = _wrapper.get()
    if found is None:
        return module
    make, options = found
    return make(module, **{**options, **wrap_overrides})
