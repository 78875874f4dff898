"""Copies and sums of tensors over devices, as `torch.cuda.comm`: there are the GPU of the process and the CPU.

Differs from PyTorch: the CPU may be a device, also several times, and gradients go back to the operands.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import lucid
from lucid import Tensor, errors
from lucid.nn.parallel._devices import as_device
from lucid.nn.parallel.scatter_gather import gather as _joined

__all__ = ["broadcast", "broadcast_coalesced", "gather", "reduce_add", "reduce_add_coalesced", "scatter"]


def _one_of(where: str, devices: Any, out: Any) -> None:
    if (devices is None) == (out is None):
        raise errors.RuntimeError(
            f"{where}: Exactly one of 'devices' and 'out' must be specified, but got devices={devices} and out={out}"
        )


def broadcast(
    tensor: Tensor, devices: Sequence[Any] | None = None, *, out: Sequence[Tensor] | None = None
) -> tuple[Tensor, ...]:
    """Copies a tensor to devices.

    Args:
        tensor (Tensor): a tensor of any shape.
        devices (sequence of int, str or lucid.device, optional): the devices, the tensor's own the first.
        out (sequence of Tensor, optional): tensors of its shape that are written, in place of new ones.

    Returns:
        tuple of Tensor: the tensor on each device, itself where it is there; `out` where it is given.

    Raises:
        RuntimeError: both or neither of `devices` and `out` are given, or there is no such device.

    Example:
        >>> lucid.nn.parallel.comm.broadcast(lucid.ones(2), ["cpu", "cpu"])
        (tensor([1., 1.]), tensor([1., 1.]))
    """
    _one_of("broadcast", devices, out)
    if out is not None:
        for o in out:
            o.copy_(tensor)
        return tuple(out)
    return tuple(
        tensor.to(as_device(d, "broadcast"), copy=i > 0)  # A later one is a copy, also on the same device.
        for i, d in enumerate(devices or ())
    )


def broadcast_coalesced(
    tensors: Sequence[Tensor], devices: Sequence[Any], buffer_size: int = 10485760
) -> list[tuple[Tensor, ...]]:
    """Copies tensors to devices.

    Args:
        tensors (sequence of Tensor): tensors of any shapes.
        devices (sequence of int, str or lucid.device): the devices, the tensors' own the first.
        buffer_size (int, default: 10485760): without effect: each tensor is a copy of its own.

    Returns:
        list of tuples of Tensor: for each device the tensors on it.

    Raises:
        RuntimeError: there is no such device.

    Example:
        >>> lucid.nn.parallel.comm.broadcast_coalesced([lucid.ones(1), lucid.zeros(1)], ["cpu"])
        [(tensor([1.]), tensor([0.]))]
    """
    copies = [broadcast(t, devices) for t in tensors]
    return [tuple(copy[i] for copy in copies) for i in range(len(devices))]


def _destination(destination: Any, like: Tensor, where: str) -> lucid.device:
    if destination is None:
        return like.device
    return as_device(destination, where)


def reduce_add(inputs: Sequence[Tensor], destination: Any = None) -> Tensor:
    """The sum of tensors of one shape, on one device.

    Args:
        inputs (sequence of Tensor): tensors of one shape.
        destination (int, str or lucid.device, optional): where the sum is to be. Default: the first one's device.

    Returns:
        Tensor: the sum, of their shape; the tensor itself where there is one that is there.

    Raises:
        ValueError: the shapes differ, or there are no tensors.
        RuntimeError: there is no such device.

    Example:
        >>> lucid.nn.parallel.comm.reduce_add([lucid.ones(2), lucid.ones(2)])
        tensor([2., 2.])
    """
    if not inputs:
        raise errors.ValueError("reduce_add: expected at least one tensor")
    device = _destination(destination, inputs[0], "reduce_add")
    for x in inputs:
        if x.shape != inputs[0].shape:
            raise errors.ValueError(
                f"reduce_add: input has invalid size: got {tuple(x.shape)}, but expected {tuple(inputs[0].shape)}"
            )
    total = inputs[0].to(device)
    for x in inputs[1:]:
        total = total + x.to(device)
    return total


def reduce_add_coalesced(
    inputs: Sequence[Sequence[Tensor]], destination: Any = None, buffer_size: int = 10485760
) -> tuple[Tensor, ...]:
    """The sums of lists of tensors, place by place.

    Args:
        inputs (sequence of sequences of Tensor): for each device the tensors on it, of the same shapes.
        destination (int, str or lucid.device, optional): where the sums are to be. Default: the first ones' devices.
        buffer_size (int, default: 10485760): without effect: each place is a sum of its own.

    Returns:
        tuple of Tensor: the sum for each place.

    Raises:
        ValueError: shapes or lengths differ.

    Example:
        >>> lucid.nn.parallel.comm.reduce_add_coalesced([[lucid.ones(1)], [lucid.ones(1)]])
        (tensor([2.]),)
    """
    return tuple(reduce_add(place, destination) for place in zip(*inputs, strict=True))


def scatter(
    tensor: Tensor,
    devices: Sequence[Any] | None = None,
    chunk_sizes: Sequence[int] | None = None,
    dim: int = 0,
    streams: Sequence[Any] | None = None,
    *,
    out: Sequence[Tensor] | None = None,
) -> tuple[Tensor, ...]:
    """Splits a tensor over devices.

    Args:
        tensor (Tensor): a tensor of any shape with at least one dimension.
        devices (sequence of int, str or lucid.device, optional): where the parts go, one each.
        chunk_sizes (sequence of int, optional): the size of each part along `dim`; as equal as can be by default.
        dim (int, default: 0): the dimension to split.
        streams (sequence, optional): without effect: there is one queue.
        out (sequence of Tensor, optional): tensors that are written, whose sizes along `dim` are those of the parts.

    Returns:
        tuple of Tensor: the parts; `out` where it is given.

    Raises:
        RuntimeError: both or neither of `devices` and `out` are given, `chunk_sizes` with `out`, sizes that do not add
            up, or no such device.

    Example:
        >>> lucid.nn.parallel.comm.scatter(lucid.arange(4), ["cpu", "cpu"], [1, 3])
        (tensor([0]), tensor([1, 2, 3]))
    """
    _one_of("scatter", devices, out)
    if out is not None:
        if chunk_sizes is not None:
            raise errors.RuntimeError("scatter: 'chunk_sizes' must not be specified when 'out' is specified")
        parts = tensor.split([o.shape[dim] for o in out], dim)
        for o, part in zip(out, parts, strict=True):
            o.copy_(part)
        return tuple(out)
    places = [as_device(d, "scatter") for d in devices or ()]
    if chunk_sizes is not None and len(chunk_sizes) != len(places):
        raise errors.RuntimeError(f"scatter: {len(chunk_sizes)} chunk_sizes for {len(places)} devices")
    parts = tensor.chunk(len(places), dim) if chunk_sizes is None else tensor.split(list(chunk_sizes), dim)
    return tuple(part.to(place) for part, place in zip(parts, places, strict=False))


def gather(tensors: Sequence[Tensor], dim: int = 0, destination: Any = None, *, out: Tensor | None = None) -> Tensor:
    """Puts tensors of several devices end to end on one.

    Args:
        tensors (sequence of Tensor): tensors whose sizes differ along `dim` alone.
        dim (int, default: 0): the dimension.
        destination (int, str or lucid.device, optional): where the result is to be; -1 is the CPU. Default: the first
            one's device.
        out (Tensor, optional): a tensor of the result's shape that is written, in place of a new one.

    Returns:
        Tensor: the tensors end to end; `out` where it is given.

    Raises:
        RuntimeError: both `destination` and `out` are given, shapes do not fit, or there is no such device.

    Example:
        >>> lucid.nn.parallel.comm.gather([lucid.ones(1), lucid.zeros(2)])
        tensor([1., 0., 0.])
    """
    if out is None:
        result: Tensor = _joined(list(tensors), _destination(destination, tensors[0], "gather"), dim)
        return result
    if destination is not None:
        raise errors.RuntimeError(f"gather: 'destination' must not be specified when 'out' is, but got {destination}")
    return out.copy_(_joined(list(tensors), out.device, dim))
