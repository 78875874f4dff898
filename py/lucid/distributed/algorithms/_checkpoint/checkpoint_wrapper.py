"""Modules whose activations are computed again in the backward pass."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from lucid import errors
from lucid.autograd.graph import save_on_cpu
from lucid.nn.modules.module import Module
from lucid.utils.checkpoint import checkpoint

__all__ = [
    "CheckpointImpl",
    "CheckpointWrapper",
    "OffloadWrapper",
    "apply_activation_checkpointing",
    "checkpoint_wrapper",
    "offload_wrapper",
]

_PREFIX = "_checkpoint_wrapped_module."


class CheckpointImpl(enum.Enum):
    """Which of `utils.checkpoint`'s two ways."""

    REENTRANT = enum.auto()
    NO_REENTRANT = enum.auto()


class CheckpointWrapper(Module):
    """A module that runs again in the backward pass instead of keeping what it computed; its state dict has the names
    of the module inside."""

    _checkpoint_wrapped_module: Module

    def __init__(
        self,
        mod: Module,
        checkpoint_impl: CheckpointImpl = CheckpointImpl.NO_REENTRANT,
        checkpoint_fn: Callable[..., Any] | None = None,
        **checkpoint_fn_kwargs: Any,
    ) -> None:
        super().__init__()
        self._checkpoint_wrapped_module = mod
        reentrant = checkpoint_impl is CheckpointImpl.REENTRANT
        self.__dict__["checkpoint_fn"] = (
            partial(checkpoint, use_reentrant=reentrant, **checkpoint_fn_kwargs)
            if checkpoint_fn is None
            else partial(checkpoint_fn, **checkpoint_fn_kwargs)
        )
        self.register_state_dict_post_hook(_drop_prefix)
        self.register_load_state_dict_pre_hook(_add_prefix)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the module inside."""
        run: Callable[..., Any] = self.__dict__["checkpoint_fn"]
        return run(self._checkpoint_wrapped_module, *args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(self._modules["_checkpoint_wrapped_module"], name)

    def named_parameters(self, *args: Any, **kwargs: Any) -> Iterator[tuple[str, Any]]:
        """The parameters by the names of the module inside."""
        for name, p in super().named_parameters(*args, **kwargs):
            yield name.replace(_PREFIX, ""), p


def _rename(state_dict: dict[str, Any], old: str, new: str) -> None:
    for name in [n for n in state_dict if n.startswith(old)]:
        state_dict[new + name[len(old) :]] = state_dict.pop(name)


def _drop_prefix(module: Module, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
    _rename(state_dict, prefix + _PREFIX, prefix)


def _add_prefix(module: Module, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
    _rename(state_dict, prefix, prefix + _PREFIX)


def checkpoint_wrapper(
    module: Module,
    checkpoint_impl: CheckpointImpl = CheckpointImpl.NO_REENTRANT,
    checkpoint_fn: Callable[..., Any] | None = None,
    **checkpoint_fn_kwargs: Any,
) -> CheckpointWrapper:
    """The module in a `CheckpointWrapper`."""
    return CheckpointWrapper(module, checkpoint_impl, checkpoint_fn, **checkpoint_fn_kwargs)


class OffloadWrapper(CheckpointWrapper):
    """A module whose activations are kept on the CPU device until the backward pass; its state dict has the names of
    the module inside."""

    def __init__(self, mod: Module) -> None:
        super().__init__(mod, checkpoint_fn=_offloaded)


def _offloaded(module: Module, *args: Any, **kwargs: Any) -> Any:
    with save_on_cpu():
        return module(*args, **kwargs)


def offload_wrapper(module: Module) -> OffloadWrapper:
    """The module in an `OffloadWrapper`."""
    return OffloadWrapper(module)


def apply_activation_checkpointing(
    model: Module,
    checkpoint_wrapper_fn: Callable[[Module], Module] = checkpoint_wrapper,
    check_fn: Callable[[Module], bool] = lambda _: True,
    auto_wrap_policy: Callable[..., bool] | None = None,
) -> None:
    """Puts the modules below a model that `check_fn` says yes to into wrappers, in place."""
    if auto_wrap_policy is not None:
        raise errors.NotImplementedError("apply_activation_checkpointing: give check_fn instead of auto_wrap_policy")
    chosen = {id(m) for m in model.modules() if m is not model and check_fn(m)}
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if id(child) in chosen:
                setattr(parent, name, checkpoint_wrapper_fn(child))
