"""State dicts of modules and optimizers for checkpoints, with sharded parameters as such."""

from __future__ import annotations

import dataclasses
from typing import Any

import lucid
from lucid import Tensor, errors
from lucid.distributed.tensor import DTensor
from lucid.nn.modules.module import Module

__all__ = [
    "StateDictOptions",
    "get_model_state_dict",
    "get_optimizer_state_dict",
    "get_state_dict",
    "set_model_state_dict",
    "set_optimizer_state_dict",
    "set_state_dict",
]


@dataclasses.dataclass
class StateDictOptions:
    """What the functions here give and take.

    Attributes:
        full_state_dict: whether sharded tensors are whole; every process then calls the function.
        cpu_offload: whether tensors are copied to the CPU.
        ignore_frozen_params: whether parameters without gradients are left out.
        strict: whether every name has to be there.
        broadcast_from_rank0: not there; each process reads what it needs.
    """

    full_state_dict: bool = False
    cpu_offload: bool = False
    ignore_frozen_params: bool = False
    keep_submodule_prefixes: bool = True
    strict: bool = True
    broadcast_from_rank0: bool = False
    flatten_optimizer_state_dict: bool = False
    dsd_fqn_modifiers: str = "_fqn_modifiers"


#: What modules around others put before the names inside.
_WRAPPERS = ("_fsdp_wrapped_module.", "_checkpoint_wrapped_module.", "_orig_mod.")


def _clean(name: str) -> str:
    """A name without what wrappers put before it."""
    for wrapper in _WRAPPERS:
        name = name.replace(wrapper, "")
    return name.removeprefix("module.")


def _given(value: Any, options: StateDictOptions | None) -> Any:
    """A value as the options want it."""
    if options is None:
        return value
    if isinstance(value, DTensor) and options.full_state_dict:
        with lucid.no_grad():
            value = value.full_tensor().detach()
    return value.cpu() if options.cpu_offload and isinstance(value, Tensor) else value


def _check(options: StateDictOptions | None) -> None:
    if options is not None and options.broadcast_from_rank0:
        raise errors.NotImplementedError("StateDictOptions: broadcast_from_rank0 is not there; every process loads")


def _own_part(value: Any, to: Any) -> Any:
    """The part of a whole tensor that belongs to a sharded one."""
    if isinstance(value, DTensor):
        return value.to_local()
    if isinstance(to, DTensor) and isinstance(value, Tensor) and tuple(value.shape) == to.shape:
        dim, at = to.shard_of()
        begin, length = to.range_of(to.device_mesh.get_local_rank(at))
        return value.narrow(dim, begin, length)
    return value


def _shown(value: Tensor) -> Any:
    return DTensor.of(value) if getattr(value, "_sharding", None) is not None else value.detach()


def get_model_state_dict(model: Module, *, options: StateDictOptions | None = None) -> dict[str, Any]:
    """A module's parameters and buffers by name, on the same memory; sharded ones as `DTensor`s."""
    _check(options)
    names = [_clean(n) for n in model.state_dict()]
    parameters = {_clean(n): p for n, p in model.named_parameters(remove_duplicate=False)}
    every: dict[str, Tensor] = {**parameters, **{_clean(n): b for n, b in model.named_buffers(remove_duplicate=False)}}
    frozen = {n for n, p in parameters.items() if not p.requires_grad}
    left_out = frozen if options is not None and options.ignore_frozen_params else set()
    return {n: _given(_shown(every[n]), options) for n in names if n in every and n not in left_out}


def set_model_state_dict(
    model: Module, model_state_dict: dict[str, Any], *, options: StateDictOptions | None = None
) -> None:
    """Copies such a state dict into a module; what `load` filled of it is there already.

    Raises:
        KeyError: for names that the module lacks, unless `options.strict` is False.
    """
    _check(options)
    own = get_model_state_dict(model)
    with lucid.no_grad():
        for name, value in model_state_dict.items():
            if name not in own and options is not None and not options.strict:
                continue
            to = own[name].to_local() if isinstance(own[name], DTensor) else own[name]
            value = _own_part(value, own[name])
            if to is not value:
                to.detach().copy_(value)


def get_optimizer_state_dict(
    model: Module, optimizer: Any, *, options: StateDictOptions | None = None
) -> dict[str, Any]:
    """An optimizer's state by its parameters' names: tensors of a sharded parameter's shape are sharded alike."""
    _check(options)
    out: dict[str, Any] = {}
    for name, p in model.named_parameters():
        for key, value in optimizer.state.get(p, {}).items():
            spec = getattr(p, "_sharding", None)
            alike = isinstance(value, Tensor) and spec is not None and value.shape == p.shape and value.ndim > 0
            shown = DTensor(value, spec) if alike and spec is not None else value
            out[f"{_clean(name)}.{key}"] = _given(shown, options)
    return out


def set_optimizer_state_dict(
    model: Module, optimizer: Any, optim_state_dict: dict[str, Any], *, options: StateDictOptions | None = None
) -> None:
    """Puts such a state dict into an optimizer of the same parameters."""
    _check(options)
    for name, p in model.named_parameters():
        prefix = f"{_clean(name)}."
        to = _shown(p)
        for key, value in optim_state_dict.items():
            if key.startswith(prefix) and "." not in key[len(prefix) :]:
                optimizer.state[p][key[len(prefix) :]] = _own_part(value, to)


def get_state_dict(
    model: Module, optimizers: Any, *, options: StateDictOptions | None = None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """`get_model_state_dict` and `get_optimizer_state_dict`, of one optimizer or several."""
    every = list(optimizers) if isinstance(optimizers, (list, tuple, set)) else [optimizers]
    state: dict[str, Any] = {}
    for optimizer in every:
        state.update(get_optimizer_state_dict(model, optimizer, options=options))
    return get_model_state_dict(model, options=options), state


def set_state_dict(
    model: Module,
    optimizers: Any,
    *,
    model_state_dict: dict[str, Any],
    optim_state_dict: dict[str, Any],
    options: StateDictOptions | None = None,
) -> None:
    """`set_model_state_dict` and `set_optimizer_state_dict`, of one optimizer or several."""
    set_model_state_dict(model, model_state_dict, options=options)
    for optimizer in list(optimizers) if isinstance(optimizers, (list, tuple, set)) else [optimizers]:
        set_optimizer_state_dict(model, optimizer, optim_state_dict, options=options)
