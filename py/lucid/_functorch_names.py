"""`torch._C._functorch`: what packages ask about tensors inside `vmap` and transforms of `lucid.func`."""

from __future__ import annotations

from lucid import _C, errors
from lucid._C import Tensor


def is_batchedtensor(tensor: Tensor) -> bool:
    """Does the tensor stand for one sample of a batch, inside `vmap`?"""
    return _C._vmap_parts(tensor) is not None


def is_legacy_batchedtensor(tensor: Tensor) -> bool:
    """`False`: of PyTorch's older batches there are none."""
    return False


def is_gradtrackingtensor(tensor: Tensor) -> bool:
    """`False`: transforms that differentiate wrap no tensors here."""
    return False


def is_functorch_wrapped_tensor(tensor: Tensor) -> bool:
    """Is the tensor one of a transform? Here `vmap`'s alone are."""
    return is_batchedtensor(tensor)


def maybe_get_level(tensor: Tensor) -> int:
    """The level of the `vmap` whose sample the tensor stands for; -1 for others."""
    parts = _C._vmap_parts(tensor)
    return -1 if parts is None else parts[0]


def maybe_get_bdim(tensor: Tensor) -> int:
    """The dimension of a batch whose sample the tensor stands for: the first; -1 for others."""
    return 0 if is_batchedtensor(tensor) else -1


def get_unwrapped(tensor: Tensor) -> Tensor:
    """The batch whose sample the tensor stands for, with its dimension first.

    Raises:
        RuntimeError: the tensor stands for no sample.
    """
    parts = _C._vmap_parts(tensor)
    if parts is None:
        raise errors.RuntimeError("No wrappers present!")
    return parts[2]


def _add_batch_dim(tensor: Tensor, dim: int, level: int) -> Tensor:
    """A sample of a batch whose dimension is `dim`, for the `vmap` of this level."""
    return _C._vmap_hide(tensor, dim % tensor.ndim, level)


def _remove_batch_dim(tensor: Tensor, level: int, batch_size: int, dim: int) -> Tensor:
    """The batch of a sample, with its dimension at `dim`; a tensor without is repeated."""
    if is_batchedtensor(tensor):
        return _C._vmap_show(tensor, dim % (tensor.ndim + 1), level)
    place = dim % (tensor.ndim + 1)
    return tensor.unsqueeze(place).expand(*tensor.shape[:place], batch_size, *tensor.shape[place:])
