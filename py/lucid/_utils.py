"""Functions that PyTorch's pickles name, and helpers that packages take from `torch._utils`.

`lucid.load` reads checkpoints without running anything of them. These functions are for plain pickles of tensors, which
`pickle.loads` reads: under `lucid.as_torch` their names lead here.
"""

from __future__ import annotations

import io
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Any

import lucid
from lucid import Tensor, errors
from lucid._storage import TypedStorage, UntypedStorage

__all__: list[str] = []


def _rebuild_tensor(storage: Any, storage_offset: int, size: Sequence[int], stride: Sequence[int]) -> Tensor:
    """A tensor on a storage."""
    if not isinstance(storage, TypedStorage | UntypedStorage):
        raise errors.TypeError(f"_rebuild_tensor: expected a storage, got {type(storage).__name__}")
    return lucid.as_strided(storage._tensor, tuple(size), tuple(stride), storage_offset)


def _rebuild_tensor_v2(
    storage: Any,
    storage_offset: int,
    size: Sequence[int],
    stride: Sequence[int],
    requires_grad: bool,
    backward_hooks: Any,
    metadata: Any = None,
) -> Tensor:
    """A tensor on a storage, of one dtype, that may require gradients."""
    made = _rebuild_tensor(storage, storage_offset, size, stride).detach()
    if metadata:
        made = made.conj() if metadata.get("conj") else made
        made = -made if metadata.get("neg") else made
    made.requires_grad_(requires_grad)
    if backward_hooks:
        for hook in backward_hooks.values():
            made.register_hook(hook)
    return made


def _rebuild_tensor_v3(
    storage: Any,
    storage_offset: int,
    size: Sequence[int],
    stride: Sequence[int],
    requires_grad: bool,
    backward_hooks: Any,
    dtype: lucid.dtype,
    metadata: Any = None,
) -> Tensor:
    """A tensor on a storage of bytes."""
    elements = TypedStorage._of(storage.untyped()._tensor.view(dtype))
    return _rebuild_tensor_v2(elements, storage_offset, size, stride, requires_grad, backward_hooks, metadata)


def _rebuild_parameter(data: Tensor, requires_grad: bool, backward_hooks: Any) -> Any:
    """A parameter of a tensor."""
    return lucid.nn.Parameter(data, requires_grad)


def _rebuild_parameter_with_state(data: Tensor, requires_grad: bool, backward_hooks: Any, state: Any) -> Any:
    """A parameter of a tensor, with its attributes."""
    made = _rebuild_parameter(data, requires_grad, backward_hooks)
    made.__dict__.update(state[0] if isinstance(state, tuple) else state)
    return made


def _load_storage_from_bytes(data: bytes) -> Any:
    """What `torch.save` wrote into bytes, as pickles of tensors keep their storages."""
    return lucid.load(io.BytesIO(data), weights_only=True)


def _get_available_device_type() -> str | None:
    """`"cuda"` or `"mps"` where there is such a GPU."""
    if lucid.cuda.is_available():
        return "cuda"
    return "mps" if lucid.backends.mps.is_available() else None


def _get_device_module(device_type: str) -> Any:
    """The module of a kind of device.

    Raises:
        RuntimeError: there is none of this name.
    """
    found = getattr(lucid, device_type, None)
    if found is None:
        raise errors.RuntimeError(f"Device '{device_type}' does not have a corresponding module registered")
    return found


def _flatten_dense_tensors(tensors: Iterable[Tensor]) -> Tensor:
    """The elements of all tensors in one vector."""
    parts = [t.contiguous().view(-1) for t in tensors]
    return lucid.cat(parts) if len(parts) > 1 else parts[0].clone()


def _unflatten_dense_tensors(flat: Tensor, tensors: Iterable[Tensor]) -> tuple[Tensor, ...]:
    """Views of a vector in the shapes of tensors."""
    given = list(tensors)
    sizes = [t.numel() for t in given]
    return tuple(p.view(t.shape) for p, t in zip(flat[: sum(sizes)].split(sizes), given, strict=True))


def _rebuild_device_tensor_from_numpy(data: Any, dtype: lucid.dtype, device: Any, requires_grad: bool) -> Tensor:
    """A tensor of an array."""
    return lucid.from_numpy(data).to(dtype=dtype, device=device).requires_grad_(requires_grad)


def _take_tensors(tensors: Iterable[Tensor], size_limit: int) -> Iterable[list[Tensor]]:
    """Groups of tensors of one dtype with at most so many bytes, or one tensor."""
    groups: OrderedDict[Any, tuple[list[Tensor], int]] = OrderedDict()
    for tensor in tensors:
        group, size = groups.get(tensor.dtype, ([], 0))
        if group and size + tensor.nbytes > size_limit:
            yield group
            group, size = [], 0
        groups[tensor.dtype] = ([*group, tensor], size + tensor.nbytes)
    for group, _ in groups.values():
        if group:
            yield group


def _element_size(dtype: lucid.dtype) -> int:
    """Bytes per element."""
    return dtype.itemsize


def _get_device_index(device: Any, optional: bool = False, allow_cpu: bool = False) -> int:
    """The number of a device: 0 of the GPU device, -1 of the CPU.

    Raises:
        ValueError: for the CPU without `allow_cpu`, and for `None` without `optional`.
    """
    if isinstance(device, int):
        return device
    if device is None and optional:
        return 0
    found = lucid.device(device) if isinstance(device, str) else device
    if not isinstance(found, lucid.device):
        raise errors.ValueError(f"Expected a device with a specified index or an integer, but got: {device}")
    if found.type == "cpu":
        if allow_cpu:
            return -1
        raise errors.ValueError(f"Expected a non cpu device, but got: {device}")
    return found.index or 0
