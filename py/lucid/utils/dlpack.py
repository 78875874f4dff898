"""DLPack: tensors from other libraries and for them, without a copy.

Only memory of the host is shared. On the GPU device a tensor is evaluated and shown where the host sees its elements,
read-only, since MLX's arrays never change; that is what MLX's CPU stream has anyway, and the unified memory of Metal;
with Metal and CUDA it has never been run.
"""

from __future__ import annotations

import enum
from typing import Any

import lucid
from lucid import _C
from lucid._C import Tensor

__all__ = ["DLDeviceType", "from_dlpack", "to_dlpack"]


class DLDeviceType(enum.IntEnum):
    """Kinds of devices, as the standard numbers them."""

    kDLCPU = 1
    kDLCUDA = 2
    kDLCUDAHost = 3
    kDLOpenCL = 4
    kDLVulkan = 7
    kDLMetal = 8
    kDLVPI = 9
    kDLROCM = 10
    kDLROCMHost = 11
    kDLExtDev = 12
    kDLCUDAManaged = 13
    kDLOneAPI = 14
    kDLWebGPU = 15
    kDLHexagon = 16
    kDLMAIA = 17


def _device() -> tuple[DLDeviceType, int]:
    return (DLDeviceType.kDLCPU, 0)


def _export(
    tensor: Tensor,
    *,
    stream: Any = -1,
    max_version: tuple[int, int] | None = None,
    dl_device: tuple[int, int] | None = None,
    copy: bool | None = None,
) -> Any:
    """A capsule of the tensor's elements in place: `Tensor.__dlpack__`.

    Versioned where `max_version` is at least (1, 0), else of the old kind. A tensor that requires gradients, another
    device than the host's memory and, in an old capsule, memory that is not writable are a BufferError.
    """
    if tensor.requires_grad:
        raise BufferError("Can't export tensors that require gradient, use tensor.detach()")
    if tensor.is_sparse:
        raise BufferError("Can't export tensors with layout other than lucid.strided; call to_dense() first")
    if stream is not None and type(stream) is not int:
        raise TypeError("stream must be ``int`` or ``none``")
    if stream is not None and stream != -1:
        raise AssertionError("stream should be None on cpu.")
    if dl_device is not None and tuple(int(d) for d in dl_device) != (1, 0):
        raise BufferError(
            f"Can't export to DLPack's device {tuple(dl_device)}: only the host's memory, (1, 0), is shared"
        )
    versioned = max_version is not None and max_version[0] >= 1
    tensor = tensor.detach()
    if copy:
        return _C._to_dlpack(tensor.to("cpu", copy=True), versioned, True)
    if not versioned and not tensor.is_cpu and copy is None:
        # An old capsule cannot say that it must not be written to.
        return _C._to_dlpack(tensor.cpu(), False, True)
    return _C._to_dlpack(tensor, versioned, False)


def to_dlpack(tensor: Tensor) -> Any:
    """A DLPack capsule of the old kind, which shows the tensor's memory and can be consumed once.

    Args:
        tensor (Tensor): any tensor, of any shape.

    Returns:
        capsule: can be consumed once.

    Raises:
        RuntimeError: the tensor requires gradients, or its memory cannot be shown.

    Example:
        >>> lucid.utils.dlpack.from_dlpack(lucid.utils.dlpack.to_dlpack(lucid.ones(2)))
        tensor([1., 1.])
    """
    if not isinstance(tensor, Tensor):
        raise TypeError(f"to_dlpack(): argument 'tensor' must be Tensor, not {type(tensor).__name__}")
    if tensor.requires_grad:
        raise RuntimeError("Can't export tensors that require gradient, use tensor.detach()")
    if tensor.is_sparse:
        raise RuntimeError("Cannot access data pointer of Tensor that doesn't have storage; call to_dense() first")
    return _export(tensor)


def from_dlpack(ext_tensor: Any, *, device: Any = None, copy: bool | None = None) -> Tensor:
    """A tensor that shows the memory of a DLPack capsule, or of an object with `__dlpack__`.

    Writes to either are seen by both; what the producer marks as read-only cannot be written to. With `device` the
    tensor is moved there, with `copy=True` it is always a copy, with `copy=False` needing one is a ValueError. Memory
    that the host does not see is a BufferError.

    Args:
        ext_tensor (capsule or object): a DLPack capsule, or an object with `__dlpack__`.
        device (lucid.device or str, optional): where the tensor is moved.
        copy (bool, optional): copies always, or never; only where needed by default.

    Returns:
        Tensor: of the shape and dtype of the memory.

    Raises:
        RuntimeError: a dtype or device that is not here.

    Example:
        >>> lucid.utils.dlpack.from_dlpack(lucid.ones(2))
        tensor([1., 1.])
    """
    if not hasattr(ext_tensor, "__dlpack__"):
        if device is not None or copy is not None:
            raise AssertionError("device and copy kwargs not supported when ext_tensor is already a DLPack capsule.")
        return _C._from_dlpack(ext_tensor)[0]
    moves = False
    if device is not None:
        device = lucid.device(device)
        moves = device.type != "cpu"
        if moves and copy is False:
            raise ValueError(f"cannot move a DLPack tensor to '{device}' without copying. Set copy=None or copy=True.")
    wanted: dict[str, Any] = {"max_version": (1, 0)}
    if copy is not None and not moves:
        wanted["copy"] = copy
    # Producers of before version 1 know neither argument; that they do not is a TypeError of theirs.
    while True:
        try:
            capsule = ext_tensor.__dlpack__(**wanted)
            break
        except TypeError:
            if not wanted:
                raise
            wanted.popitem()
    tensor, copied = _C._from_dlpack(capsule)
    if copy and not moves and not copied and "copy" not in wanted:
        tensor = tensor.clone()
    return tensor.to(device) if moves else tensor
