"""Registers the ops `torchvision::…` and `image::…`, with the schemas that torchvision's Python calls them by."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import lucid
from lucid import Tensor, errors
from lucid._vision import _boxes, _deform, _images, _regions
from lucid.library._operator import OPERATORS, Operator

_SIZES = "int batch_size, int channels, int height, int width"
_ROIS = "Tensor rois, float spatial_scale, int pooled_height, int pooled_width"
_MAPPED = "Tensor rois, Tensor channel_mapping, float spatial_scale, int pooled_height, int pooled_width"
_CONV = (
    "Tensor input, Tensor weight, Tensor offset, Tensor mask, Tensor bias, int stride_h, int stride_w, int pad_h, "
    "int pad_w, int dilation_h, int dilation_w, int groups, int offset_groups, bool use_mask"
)


def _back(function: Callable[[Tensor], Tensor], size: tuple[int, ...], grad: Tensor) -> Tensor:
    """The gradient of a function that is linear in an input of this size."""
    with lucid.enable_grad():
        at = lucid.zeros(size, dtype=grad.dtype, device=grad.device, requires_grad=True)
        result: tuple[Tensor, ...] = lucid.autograd.grad(function(at), at, grad)
    return result[0]


def _roi_align_backward(
    grad: Tensor,
    rois: Tensor,
    scale: float,
    ph: int,
    pw: int,
    n: int,
    c: int,
    h: int,
    w: int,
    ratio: int,
    aligned: bool,
) -> Tensor:
    return _back(lambda x: _regions.roi_align(x, rois, scale, ph, pw, ratio, aligned), (n, c, h, w), grad)


def _ps_roi_align_backward(
    grad: Tensor,
    rois: Tensor,
    mapping: Tensor,
    scale: float,
    ph: int,
    pw: int,
    ratio: int,
    n: int,
    c: int,
    h: int,
    w: int,
) -> Tensor:
    return _back(lambda x: _regions.ps_roi_align(x, rois, scale, ph, pw, ratio)[0], (n, c, h, w), grad)


def _ps_roi_pool_backward(
    grad: Tensor, rois: Tensor, mapping: Tensor, scale: float, ph: int, pw: int, n: int, c: int, h: int, w: int
) -> Tensor:
    return _back(lambda x: _regions.ps_roi_pool(x, rois, scale, ph, pw, last=0)[0], (n, c, h, w), grad)


def _roi_pool_backward(
    grad: Tensor, rois: Tensor, argmax: Tensor, scale: float, ph: int, pw: int, n: int, c: int, h: int, w: int
) -> Tensor:
    """Adds each gradient where the largest element was."""
    channel = lucid.arange(c, device=grad.device).reshape(1, c, 1, 1)
    index = (rois[:, 0].long().reshape(-1, 1, 1, 1) * c + channel) * (h * w) + argmax.long()
    taken = argmax >= 0
    made = lucid.zeros(n * c * h * w, dtype=grad.dtype, device=grad.device)
    values = lucid.where(taken, grad, 0).reshape(-1)
    return made.index_add(0, lucid.where(taken, index, 0).reshape(-1), values).reshape(n, c, h, w)


def _deform_conv2d_backward(
    grad: Tensor, input: Tensor, weight: Tensor, offset: Tensor, mask: Tensor, bias: Tensor, *rest: Any
) -> tuple[Tensor, ...]:
    with lucid.enable_grad():
        given: list[Any] = [t.detach().requires_grad_() for t in (input, weight, offset, mask, bias)]
        result = _deform.deform_conv2d(*given, *rest)
        found = lucid.autograd.grad(result, given, grad, allow_unused=True)
    return tuple(lucid.zeros_like(t) if g is None else g for t, g in zip(given, found, strict=True))


def _none(name: str, why: str) -> Callable[..., Any]:
    def refuse(*args: Any) -> Any:
        raise errors.NotImplementedError(f"{name}: {why}")

    return refuse


_OPS: dict[str, tuple[str, Callable[..., Any]]] = {
    "torchvision::nms": ("(Tensor dets, Tensor scores, float iou_threshold) -> Tensor", _boxes.nms),
    "torchvision::qnms": (
        "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
        _none("torchvision::qnms", "there are no quantized tensors; use nms"),
    ),
    "torchvision::roi_align": (
        f"(Tensor input, {_ROIS}, int sampling_ratio, bool aligned) -> Tensor",
        _regions.roi_align,
    ),
    "torchvision::qroi_align": (
        "(Tensor input, Tensor rois, float input_scale, int input_zero_point, float rois_scale, int rois_zero_point, "
        "float spatial_scale, int pooled_height, int pooled_width, int sampling_ratio, bool aligned) -> Tensor",
        _none("torchvision::qroi_align", "there are no quantized tensors; use roi_align"),
    ),
    "torchvision::roi_pool": (f"(Tensor input, {_ROIS}) -> (Tensor, Tensor)", _regions.roi_pool),
    "torchvision::ps_roi_align": (
        f"(Tensor input, {_ROIS}, int sampling_ratio) -> (Tensor, Tensor)",
        _regions.ps_roi_align,
    ),
    "torchvision::ps_roi_pool": (
        f"(Tensor input, {_ROIS}) -> (Tensor, Tensor)",
        lambda *given: _regions.ps_roi_pool(*given),
    ),
    "torchvision::deform_conv2d": (f"({_CONV}) -> Tensor", _deform.deform_conv2d),
    "torchvision::_roi_align_backward": (
        f"(Tensor grad, {_ROIS}, {_SIZES}, int sampling_ratio, bool aligned) -> Tensor",
        _roi_align_backward,
    ),
    "torchvision::_roi_pool_backward": (
        "(Tensor grad, Tensor rois, Tensor argmax, float spatial_scale, int pooled_height, int pooled_width, "
        f"{_SIZES}) -> Tensor",
        _roi_pool_backward,
    ),
    "torchvision::_ps_roi_align_backward": (
        f"(Tensor grad, {_MAPPED}, int sampling_ratio, {_SIZES}) -> Tensor",
        _ps_roi_align_backward,
    ),
    "torchvision::_ps_roi_pool_backward": (f"(Tensor grad, {_MAPPED}, {_SIZES}) -> Tensor", _ps_roi_pool_backward),
    "torchvision::_deform_conv2d_backward": (
        f"(Tensor grad, {_CONV}) -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
        _deform_conv2d_backward,
    ),
    # What torchvision's library was made for: -1 where it is no CUDA.
    "torchvision::_cuda_version": ("() -> int", lambda: -1),
    "image::read_file": ("(str filename) -> Tensor", _images.read_file),
    "image::write_file": ("(str filename, Tensor data) -> Tensor", _images.write_file),
    **{
        f"image::{f.__name__}": ("(Tensor data, int mode, bool apply_exif_orientation=False) -> Tensor", f)
        for f in (_images.decode_png, _images.decode_jpeg, _images.decode_image)
    },
    "image::decode_webp": ("(Tensor data, int mode) -> Tensor", _images.decode_webp),
    "image::decode_gif": ("(Tensor data) -> Tensor", _images.decode_gif),
    "image::encode_png": ("(Tensor data, int compression_level) -> Tensor", _images.encode_png),
    "image::encode_jpeg": ("(Tensor data, int quality) -> Tensor", _images.encode_jpeg),
    **{
        f"image::{name}": (
            schema,
            _none(f"image::{name}", "nvJPEG needs PyTorch's library; the op for the CPU is there"),
        )
        for name, schema in (
            ("decode_jpegs_cuda", "(Tensor[] encoded_images, int mode, Device device) -> Tensor[]"),
            ("encode_jpegs_cuda", "(Tensor[] decoded_images, int quality) -> Tensor[]"),
        )
    },
}

for _name, (_schema, _function) in _OPS.items():
    _op = Operator(_name, _schema)
    _op.kernels["any"] = _function
    OPERATORS.setdefault(_name, _op)
