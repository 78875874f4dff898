"""The direct way of small calls: float32 NumPy arrays on the CPU, while nothing is traced and no values are looked at.

What is general (lists, tensors, devices, policies, traces) costs more than a small op. These functions take what needs
none of it, and say with `None` that they do not: then the caller goes the long way, which also finds every mistake.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lucid import _C
from lucid.lightning import _arrays
from lucid.lightning._arrays import SMALL_BYTES
from lucid.lightning._trace import RING

Tensor = _C.Tensor
_show_float32 = _C._show_float32
_fill_float32 = _C._fill_float32
_arithmetic_into = _C._arithmetic_into
_arithmetic_float32_into = _C._arithmetic_float32_into
_conv_float32 = _C._conv_float32
_matmul_into = _C._matmul_into
_Settings = _arrays._Settings
_attention: Callable[..., Tensor] = _C.scaled_dot_product_attention
_attention_float32 = _C._attention_float32


def takes(device: Any) -> bool:
    """Is nothing asked for that the direct way does not do?"""
    return device.__class__ is str and device == "cpu" and not RING.enabled and _Settings.input_check == "none"


def arrays(operands: tuple[Any, ...]) -> bool:
    """Are all NumPy's arrays of float32?"""
    ndarray, float32 = _Settings.ndarray, _Settings.float32
    return ndarray is not None and all(x.__class__ is ndarray and x.dtype is float32 for x in operands)


def shown(device: Any, operands: tuple[Any, ...], shape: tuple[int, int] | None = None) -> list[Tensor] | None:
    """Tensors that show the operands, in `shape` where it is given: writable float32 arrays with elements, for the CPU;
    `None` otherwise."""
    if not takes(device):
        return None
    ndarray = _Settings.ndarray
    return None if ndarray is None else _show_float32(ndarray, operands, shape)


def given_back(tensor: Tensor, shape: tuple[int, ...]) -> Any:
    """A result as an array."""
    if 4 * tensor.numel() > SMALL_BYTES:
        return _arrays.result("numpy", tensor)
    ndarray = _Settings.ndarray
    array = ndarray(shape, _Settings.float32)
    _fill_float32(ndarray, array, tensor)
    return array


def binary(a: Any, b: Any, device: Any, function: Callable[[Tensor, Tensor], Tensor]) -> Any:
    """The result of two arrays of one shape, or `None`."""
    tensors = shown(device, (a, b))
    if tensors is None or a.shape != b.shape:
        return None
    return given_back(function(*tensors), a.shape)


def binary_into(a: Any, b: Any, out: Any, device: Any, op: str, in_place: Callable[[Tensor, Tensor], Tensor]) -> bool:
    """Computes into `out`, an array of the operands' shape in memory of its own; false where it did not."""
    if not takes(device):
        return False
    ndarray = _Settings.ndarray
    if ndarray is not None and _arithmetic_float32_into(ndarray, op, (a, b, out)):
        return True
    tensors = shown(device, (a, b, out))
    if tensors is None or not a.shape == b.shape == out.shape:
        return False
    ta, tb, to = tensors
    if _arithmetic_into(op, ta, tb, to):
        return True
    if not (ta.is_contiguous() and tb.is_contiguous() and to.is_contiguous()):
        return False
    start, size = to.data_ptr(), 4 * to.numel()
    if ta.data_ptr() != start or abs(tb.data_ptr() - start) < size:
        return False
    in_place(to, tb)
    return True


def convolution(operands: tuple[Any, ...], shape: Any, relu: bool) -> Any:
    """A convolution of arrays whose `ConvShape` is known, with relu or not, as a new array; `None` where it was not
    computed."""
    ndarray = _Settings.ndarray
    if ndarray is None:
        return None
    return _conv_float32(ndarray, _Settings.float32, operands, shape.out, shape.stride, shape.padding, relu)


def product_into(a: Any, b: Any, out: Any, device: Any, most: int) -> bool:
    """Computes the product of two matrices of fewer than `most` multiply-accumulates into `out`; false where it did
    not."""
    tensors = shown(device, (a, b, out))
    if tensors is None:
        return False
    sa, sb = a.shape, b.shape
    if not (len(sa) == len(sb) == 2 and sa[1] == sb[0] and sa[0] * sa[1] * sb[1] < most):
        return False
    return bool(_matmul_into(*tensors)) if out.shape == (sa[0], sb[1]) else False


def apart(out: Tensor, operands: list[Tensor]) -> bool:
    """Has `out` memory of its own? Where that is not sure, the long way says what is wrong."""
    start = out.data_ptr()
    end = start + 4 * out.numel()
    for t in operands:
        if not t.is_contiguous() or (start < (first := t.data_ptr()) + 4 * t.numel() and first < end):
            return False
    return True


def attention_array(q: Any, k: Any, v: Any, shape: tuple[int, int] | None, causal: bool, device: Any) -> Any:
    """Attention of three matrices, of `shape` or flat and read in it where it is given, as a new array; `None` where
    it was not computed."""
    ndarray = _Settings.ndarray
    if ndarray is None or not takes(device):
        return None
    return _attention_float32(ndarray, _Settings.float32, (q, k, v), shape, causal)


def attention(q: Any, k: Any, v: Any, causal: Any, device: Any, out: Any = None) -> Any:
    """Attention of three matrices, into `out` where there is one; `None` where it was not computed."""
    if causal.__class__ is not bool:
        return None
    if out is None:
        return attention_array(q, k, v, None, causal, device)
    tensors = shown(device, (q, k, v, out))
    if tensors is None:
        return None
    sq, sk, sv = q.shape, k.shape, v.shape
    if not (len(sq) == len(sk) == len(sv) == 2 and sq[1] == sk[1] and sk[0] == sv[0]):
        return None
    target = tensors.pop()
    if out.shape != (sq[0], sv[1]) or not target.is_contiguous():
        return None
    if not apart(target, tensors):
        return None
    target.copy_(_attention(*tensors, is_causal=causal))
    return out


def sized_attention(q: Any, k: Any, v: Any, shape: tuple[int, int], causal: Any, device: Any, out: Any = None) -> Any:
    """`attention` of operands that have `shape` or are all flat; the result is as they are."""
    if causal.__class__ is not bool or not (0 < shape[0] < 1 << 31 and 0 < shape[1] < 1 << 31):
        return None
    if out is None:
        return attention_array(q, k, v, shape, causal, device)
    tensors = shown(device, (q, k, v, out), shape)
    if tensors is None:
        return None
    own = q.shape
    if not own == k.shape == v.shape or (own != shape and len(own) != 1):
        return None
    target = tensors.pop()
    if out.shape != own or not target.is_contiguous() or not apart(target, tensors):
        return None
    target.copy_(_attention(*tensors, is_causal=causal))
    return out
