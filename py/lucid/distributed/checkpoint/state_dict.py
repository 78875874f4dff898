"""State dicts of modules and optimizers for checkpoints, with sharded parameters as such."""

from __future__ import annotations

import dataclasses
from typing import Any

import lucid
from lucid import Tensor, errors
from lucid._warnings import warn_without_effect
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
    """What the functions of this module return and accept.

    Args:
        full_state_dict (bool, optional): whether sharded tensors come out whole; every process has to call the function
            then. Default: False.
        cpu_offload (bool, optional): whether tensors are copied to the CPU. Default: False.
        ignore_frozen_params (bool, optional): whether parameters that need no gradient are left out. Default: False.
        keep_submodule_prefixes (bool, optional): prefixes are always kept; False gives one warning.
        strict (bool, optional): whether a name that the module lacks is an error. Default: True.
        broadcast_from_rank0 (bool, optional): must be False: each process reads what it needs.
        flatten_optimizer_state_dict (bool, optional): the state always has PyTorch's nested form; True gives one
            warning.
        dsd_fqn_modifiers (str, optional): modules rename nothing; another value gives one warning.

    Example:
        >>> from lucid.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
        >>> options = StateDictOptions(cpu_offload=True, ignore_frozen_params=True)
        >>> model = lucid.nn.Linear(2, 2)
        >>> model.bias.requires_grad_(False)
        Parameter containing:
        ...
        >>> list(get_model_state_dict(model, options=options))
        ['weight']
    """

    full_state_dict: bool = False
    cpu_offload: bool = False
    ignore_frozen_params: bool = False
    keep_submodule_prefixes: bool = True
    strict: bool = True
    broadcast_from_rank0: bool = False
    flatten_optimizer_state_dict: bool = False
    dsd_fqn_modifiers: str = "_fqn_modifiers"

    def __post_init__(self) -> None:
        warn_without_effect(
            "StateDictOptions",
            "state dicts have one form",
            keep_submodule_prefixes=not self.keep_submodule_prefixes,
            flatten_optimizer_state_dict=self.flatten_optimizer_state_dict,
            dsd_fqn_modifiers=self.dsd_fqn_modifiers != "_fqn_modifiers",
        )


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


def _init_optim_state(optim: Any) -> None:
    """Makes the state of an optimizer that has none yet: by a step with gradients and rates of 0."""
    parameters = [p for group in optim.param_groups for p in group["params"]]
    if optim.state or any(p.grad is not None for p in parameters):
        return
    for p in parameters:
        if p.requires_grad:
            p.grad = lucid.zeros_like(p)
    rates = [group["lr"] for group in optim.param_groups if "lr" in group]
    for group in optim.param_groups:
        if "lr" in group:
            group["lr"] = lucid.tensor(0.0) if isinstance(group["lr"], Tensor) else 0.0
    optim.step(closure=None)
    for group in optim.param_groups:
        if "lr" in group:
            group["lr"] = rates.pop(0)
    optim.zero_grad(set_to_none=True)


def get_model_state_dict(model: Module, *, options: StateDictOptions | None = None) -> dict[str, Any]:
    """Gives a module's parameters and buffers by name, on the same memory; sharded parameters as `DTensor`s.

    Args:
        model (Module): of any kind, such as one of `fully_shard` or `DistributedDataParallel`.
        options (StateDictOptions, optional): what to leave out, gather or copy. Default: nothing.

    Returns:
        dict of str to Tensor or DTensor: names as the bare module has them, without the wrappers' prefixes.

    Example:
        >>> from lucid.distributed.checkpoint.state_dict import get_model_state_dict
        >>> {name: tuple(t.shape) for name, t in get_model_state_dict(lucid.nn.Linear(3, 2)).items()}
        {'weight': (2, 3), 'bias': (2,)}
    """
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
    """Copies a state dict of `get_model_state_dict` into a module. What `load` has filled in place is there already.

    Args:
        model (Module): of the same parameters; its shards may differ from those that were saved.
        model_state_dict (dict of str to Tensor or DTensor): values by name; of a sharded parameter whole or as
            `DTensor`.
        options (StateDictOptions, optional): `strict=False` skips names that the module lacks.

    Raises:
        KeyError: the module lacks a name, unless `options.strict` is False.

    Example:
        >>> from lucid.distributed.checkpoint.state_dict import get_model_state_dict, set_model_state_dict
        >>> trained, fresh = lucid.nn.Linear(2, 2), lucid.nn.Linear(2, 2)
        >>> set_model_state_dict(fresh, get_model_state_dict(trained))
        >>> lucid.equal(fresh.weight, trained.weight)
        True
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
    """Gives an optimizer's state by its parameters' names: `{"weight.exp_avg": …}`.

    Args:
        model (Module): whose parameters the optimizer has.
        optimizer (Optimizer): the state's owner, after at least one step.
        options (StateDictOptions, optional): what to gather or copy. Default: nothing.

    Returns:
        dict of str to Tensor, DTensor or number: tensors of a sharded parameter's shape are sharded alike.

    Example:
        >>> from lucid.distributed.checkpoint.state_dict import get_optimizer_state_dict
        >>> model = lucid.nn.Linear(2, 1, bias=False)
        >>> optimizer = lucid.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        >>> model(lucid.ones(2)).sum().backward()
        >>> optimizer.step()
        >>> get_optimizer_state_dict(model, optimizer)
        {'weight.momentum_buffer': tensor([[1., 1.]])}
    """
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
    """Puts a state dict of `get_optimizer_state_dict` into an optimizer.

    Args:
        model (Module): whose parameters the optimizer has.
        optimizer (Optimizer): of the same parameters; its state is overwritten.
        optim_state_dict (dict of str to Tensor, DTensor or number): state by parameter's name and state's name.
        options (StateDictOptions, optional): checked for settings that are not there.

    Example:
        >>> from lucid.distributed.checkpoint.state_dict import set_optimizer_state_dict
        >>> model = lucid.nn.Linear(2, 1, bias=False)
        >>> optimizer = lucid.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        >>> set_optimizer_state_dict(model, optimizer, {"weight.momentum_buffer": lucid.ones(1, 2)})
        >>> optimizer.state[model.weight]["momentum_buffer"]
        tensor([[1., 1.]])
    """
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
    """Gives a module's and its optimizers' state: `get_model_state_dict` and `get_optimizer_state_dict` together.

    Args:
        model (Module): whose parameters and buffers are given.
        optimizers (Optimizer or iterable of Optimizer): whose states are merged; no two own one parameter.
        options (StateDictOptions, optional): what to leave out, gather or copy. Default: nothing.

    Returns:
        tuple of (dict, dict): the module's state, and the optimizers'.

    Example:
        >>> from lucid.distributed.checkpoint.state_dict import get_state_dict
        >>> model = lucid.nn.Linear(2, 2)
        >>> weights, state = get_state_dict(model, lucid.optim.Adam(model.parameters()))
        >>> list(weights), state
        (['weight', 'bias'], {})
    """
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
    """Restores a module and its optimizers: `set_model_state_dict` and `set_optimizer_state_dict` together.

    Args:
        model (Module): the module, overwritten.
        optimizers (Optimizer or iterable of Optimizer): whose states are overwritten.
        model_state_dict (dict): as `get_state_dict` gives it first.
        optim_state_dict (dict): as `get_state_dict` gives it second.
        options (StateDictOptions, optional): `strict=False` skips names that the module lacks.

    Raises:
        KeyError: the module lacks a name, unless `options.strict` is False.

    Example:
        >>> from lucid.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
        >>> model = lucid.nn.Linear(2, 2)
        >>> optimizer = lucid.optim.Adam(model.parameters())
        >>> weights, state = get_state_dict(model, optimizer)
        >>> set_state_dict(model, optimizer, model_state_dict=weights, optim_state_dict=state)
    """
    set_model_state_dict(model, model_state_dict, options=options)
    for optimizer in list(optimizers) if isinstance(optimizers, (list, tuple, set)) else [optimizers]:
        set_optimizer_state_dict(model, optimizer, optim_state_dict, options=options)
