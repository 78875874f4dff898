"""Tensors in nests of tuples, lists and dicts, split over devices and put together again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import lucid
from lucid import Tensor, errors
from lucid.nn.parallel._devices import as_device

__all__ = ["gather", "scatter", "scatter_kwargs"]


def _is_namedtuple(obj: Any) -> bool:
    return isinstance(obj, tuple) and hasattr(obj, "_asdict") and hasattr(obj, "_fields")


def scatter(inputs: Any, target_gpus: Sequence[Any], dim: int = 0) -> Any:
    """Splits the tensors of a nest into chunks along a dimension, one for each device, as `chunk` does.

    There is one GPU device: programs name it once, which copies. Other objects are given to each device as they are.
    Gradients go back to the inputs. Differs from PyTorch: the CPU may be a device, also several times.

    Args:
        inputs (object): a tensor of any shape, or a nest of tuples, lists and dicts of tensors and other objects.
        target_gpus (sequence of int, str or lucid.device): the devices.
        dim (int, default: 0): the dimension to split.

    Returns:
        list: a nest for each device; of a tensor a tuple of tensors. Fewer where `dim` is shorter.

    Raises:
        RuntimeError: a device is a GPU of another number than 0, or a tensor has no dimension to split.
        TypeError: a device is neither number nor name.

    Example:
        >>> lucid.nn.parallel.scatter({"x": lucid.arange(4)}, ["cpu", "cpu"])
        [{'x': tensor([0, 1])}, {'x': tensor([2, 3])}]
    """
    devices = [as_device(d, "scatter") for d in target_gpus]

    def split(obj: Any) -> Any:
        if isinstance(obj, Tensor):
            parts = obj.chunk(len(devices), dim)
            return tuple(part.to(device) for part, device in zip(parts, devices, strict=False))
        if _is_namedtuple(obj):
            return [type(obj)(*parts) for parts in zip(*map(split, obj), strict=False)]
        if isinstance(obj, tuple) and obj:
            return list(zip(*map(split, obj), strict=False))
        if isinstance(obj, list) and obj:
            return [list(parts) for parts in zip(*map(split, obj), strict=False)]
        if isinstance(obj, dict) and obj:
            return [type(obj)(parts) for parts in zip(*map(split, obj.items()), strict=False)]
        return [obj for _ in devices]

    return split(inputs)


def scatter_kwargs(
    inputs: tuple[Any, ...], kwargs: dict[str, Any] | None, target_gpus: Sequence[Any], dim: int = 0
) -> tuple[tuple[Any, ...], tuple[dict[str, Any], ...]]:
    """`scatter` of positional and keyword arguments: as many of the ones as of the others.

    Args:
        inputs (tuple): the positional arguments.
        kwargs (dict, optional): the keyword arguments.
        target_gpus (sequence of int, str or lucid.device): the devices.
        dim (int, default: 0): the dimension to split.

    Returns:
        tuple: the positional arguments of each device, and the keyword arguments of each.

    Raises:
        RuntimeError: a device is a GPU of another number than 0, or a tensor has no dimension to split.

    Example:
        >>> lucid.nn.parallel.scatter_gather.scatter_kwargs((), {"flag": True}, ["cpu"])
        (((),), ({'flag': True},))
    """
    positional = list(scatter(inputs, target_gpus, dim)) if inputs else []
    named = list(scatter(kwargs, target_gpus, dim)) if kwargs else []
    positional += [()] * (len(named) - len(positional))
    named += [{} for _ in range(len(positional) - len(named))]
    return tuple(positional), tuple(named)


def gather(outputs: Any, target_device: Any, dim: int = 0) -> Any:
    """Puts the results of several devices together on one: tensors end to end along a dimension, nests part by part.

    Scalars become elements of a vector, with PyTorch's warning. Gradients go back to each result.

    Args:
        outputs (sequence): a result of each device: tensors, whose sizes may differ along `dim` alone, or nests of
            the same structure.
        target_device (int, str or lucid.device): where the result is to be; 0 is the GPU, -1 the CPU.
        dim (int, default: 0): the dimension.

    Returns:
        object: one tensor or nest.

    Raises:
        RuntimeError: shapes do not fit, or the device is a GPU of another number than 0.
        ValueError: dicts of different sizes.

    Example:
        >>> lucid.nn.parallel.gather([lucid.ones(1), lucid.zeros(2)], "cpu")
        tensor([1., 0., 0.])
    """
    device = as_device(target_device, "gather")

    def join(parts: Sequence[Any]) -> Any:
        first = parts[0]
        if isinstance(first, Tensor):
            moved = [part.to(device) for part in parts]
            if dim == 0 and all(part.ndim == 0 for part in moved):
                from lucid._warnings import warn

                warn(
                    "Was asked to gather along dimension 0, but all input tensors were scalars; will instead unsqueeze "
                    "and return a vector."
                )
                moved = [part.reshape(1) for part in moved]
            return lucid.cat(moved, dim)
        if first is None:
            return None
        if isinstance(first, dict):
            if any(len(part) != len(first) for part in parts):
                raise errors.ValueError("All dicts must have the same number of keys")
            made: Any = type(first)
            return made((key, join([part[key] for part in parts])) for key in first)
        if _is_namedtuple(first):
            return type(first)._make(map(join, zip(*parts, strict=True)))
        return type(first)(map(join, zip(*parts, strict=True)))

    return join(outputs)
