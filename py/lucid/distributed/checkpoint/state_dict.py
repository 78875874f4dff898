"""State dicts of modules and optimizers for checkpoints, with sharded parameters as such."""

from __future__ import annotations

from typing import Any

from lucid import Tensor
from lucid.distributed.tensor import DTensor
from lucid.nn.modules.module import Module

__all__ = ["get_model_state_dict", "get_optimizer_state_dict", "set_model_state_dict", "set_optimizer_state_dict"]


def _shown(value: Tensor) -> Any:
    return DTensor.of(value) if getattr(value, "_sharding", None) is not None else value.detach()


def get_model_state_dict(model: Module) -> dict[str, Any]:
    """A module's parameters and buffers by name, on the same memory; sharded ones as `DTensor`s."""
    names = model.state_dict().keys()
    every: dict[str, Tensor] = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    return {n.removeprefix("module."): _shown(every[n]) for n in names if n in every}


def set_model_state_dict(model: Module, model_state_dict: dict[str, Any]) -> None:
    """Copies such a state dict into a module; what `load` filled of it is there already."""
    import lucid

    own = get_model_state_dict(model)
    with lucid.no_grad():
        for name, value in model_state_dict.items():
            to = own[name].to_local() if isinstance(own[name], DTensor) else own[name]
            value = value.to_local() if isinstance(value, DTensor) else value
            if to is not value:
                to.detach().copy_(value)


def get_optimizer_state_dict(model: Module, optimizer: Any) -> dict[str, Any]:
    """An optimizer's state by its parameters' names: tensors of a sharded parameter's shape are sharded alike."""
    out: dict[str, Any] = {}
    for name, p in model.named_parameters():
        for key, value in optimizer.state.get(p, {}).items():
            spec = getattr(p, "_sharding", None)
            alike = isinstance(value, Tensor) and spec is not None and value.shape == p.shape and value.ndim > 0
            shown = DTensor(value, spec) if alike and spec is not None else value
            out[f"{name.removeprefix('module.')}.{key}"] = shown
    return out


def set_optimizer_state_dict(model: Module, optimizer: Any, optim_state_dict: dict[str, Any]) -> None:
    """Puts such a state dict into an optimizer of the same parameters."""
    for name, p in model.named_parameters():
        prefix = f"{name.removeprefix('module.')}."
        for key, value in optim_state_dict.items():
            if key.startswith(prefix) and "." not in key[len(prefix) :]:
                optimizer.state[p][key[len(prefix) :]] = value.to_local() if isinstance(value, DTensor) else value
