"""Copies of a module for several devices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import lucid
from lucid.nn.modules.module import Module
from lucid.nn.parallel._devices import as_device

__all__ = ["replicate"]

T = TypeVar("T", bound=Module)


def replicate(network: T, devices: Sequence[int | str | lucid.device], detach: bool = False) -> list[T]:
    """A copy of a module for each device, whose parameters are results of copying the module's, so that gradients go
    back to these.

    A copy has its parameters as attributes, not as parameters of its own. Buffers are the module's own where they are
    on the device, so that layers which update them do so in place.

    Args:
        network (Module): what is copied, with all modules below it.
        devices (sequence of int, str or lucid.device): the devices; there is one GPU.
        detach (bool, default: False): no gradients go back.

    Returns:
        list of Module: the copies.

    Raises:
        RuntimeError: a device is a GPU of another number than 0.

    Example:
        >>> copies = lucid.nn.parallel.replicate(lucid.nn.Linear(2, 1), ["cpu", "cpu"])
        >>> [copy(lucid.ones(3, 2)).shape for copy in copies]
        [lucid.Size([3, 1]), lucid.Size([3, 1])]
    """
    return [_copied(network, as_device(d, "replicate"), detach) for d in devices]


def without_parameters(module: T) -> T:
    """A module with the attributes of another and tables of its own, of which that of parameters is empty."""
    made = module.__new__(type(module))
    made.__dict__.update(module.__dict__)
    tables = {"_buffers": dict(module._buffers), "_modules": dict(module._modules), "_parameters": {}}
    made.__dict__.update(tables, _former_parameters={}, _is_replica=True)
    return made


def _copied(network: T, device: lucid.device, detach: bool) -> T:
    copies = {module: module._replicate_for_data_parallel() for module in network.modules()}
    parameters: dict[int, lucid.Tensor] = {}
    for module, copy in copies.items():
        for name, child in module._modules.items():
            copy._modules[name] = None if child is None else copies[child]
        for name, parameter in module._parameters.items():
            if parameter is None:
                copy._parameters[name] = None
                continue
            if id(parameter) not in parameters:
                # A view where the device is the same: a tensor of the graph, as a copy to another device is.
                source = parameter.detach() if detach else parameter
                parameters[id(parameter)] = source.to(device).view_as(source)
            object.__setattr__(copy, name, parameters[id(parameter)])
            copy._former_parameters[name] = parameters[id(parameter)]
        for name, buffer in module._buffers.items():
            copy._buffers[name] = None if buffer is None else buffer.to(device)
    return copies[network]  # type: ignore[return-value]
