"""Calls of several modules, each with inputs of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lucid.nn.modules.module import Module
from lucid.nn.parallel._devices import as_device

__all__ = ["parallel_apply"]


def parallel_apply(
    modules: Sequence[Module],
    inputs: Sequence[Any],
    kwargs_tup: Sequence[dict[str, Any]] | None = None,
    devices: Sequence[Any] | None = None,
) -> list[Any]:
    """Calls each module with its inputs, one after the other: there is one GPU, which takes the calls in order.

    Args:
        modules (sequence of Module): what to call, in this order.
        inputs (sequence): of each module its positional arguments, or the one that there is.
        kwargs_tup (sequence of dict, optional): of each module its keyword arguments.
        devices (sequence of int, str or lucid.device, optional): of each module its device, which is checked: a call is
            computed where its tensors are.

    Returns:
        list: the results.

    Raises:
        AssertionError: the lengths differ.
        RuntimeError: a device is a GPU of another number than 0.

    Example:
        >>> relu = lucid.nn.ReLU()
        >>> lucid.nn.parallel.parallel_apply([relu, relu], [lucid.tensor([-1.0]), (lucid.tensor([2.0]),)])
        [tensor([0.]), tensor([2.])]
    """
    keywords = [{}] * len(modules) if kwargs_tup is None else kwargs_tup
    lengths = {"inputs": len(inputs), "kwargs_tup": len(keywords)}
    if devices is not None:
        lengths["devices"] = len(devices)
        for device in devices:
            if device is not None:
                as_device(device, "parallel_apply")
    for name, length in lengths.items():
        if length != len(modules):
            raise AssertionError(f"The number of modules {len(modules)} is not equal to the number of {name} {length}")
    results = []
    for module, given, named in zip(modules, inputs, keywords, strict=True):
        positional = given if isinstance(given, (list, tuple)) else (given,)
        results.append(module(*positional, **named))
    return results
