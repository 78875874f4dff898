"""How layers are written in ONNX: convolutions, norms, activations with numbers, pooling, resizing, padding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import lucid
from lucid import Tensor
from lucid.onnx._build import Builder, OnnxExporterError
from lucid.onnx._rules import rule


def _many(value: Any, n: int) -> list[int]:
    return [int(v) for v in value] if isinstance(value, (list, tuple)) else [int(value)] * n


def _padded(padding: Any, n: int, kernel: Sequence[int], dilation: Sequence[int]) -> list[int]:
    if padding == "valid":
        return [0] * 2 * n
    if padding == "same":
        whole = [d * (k - 1) for d, k in zip(dilation, kernel, strict=True)]
        return [w // 2 for w in whole] + [w - w // 2 for w in whole]
    return _many(padding, n) * 2


@rule("conv1d", "conv2d", "conv3d")
def _conv(
    g: Builder,
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Any:
    n = weight.ndim - 2
    if input.ndim != weight.ndim:
        raise OnnxExporterError("onnx.export: a convolution without a batch; unsqueeze(0) the input")
    kernel, dilations = list(weight.shape[2:]), _many(dilation, n)
    names = [g.of(input), g.of(weight)] + ([g.of(bias)] if bias is not None else [])
    pads = _padded(padding, n, kernel, dilations)
    return g.emit(
        "Conv", *names, kernel_shape=kernel, strides=_many(stride, n), pads=pads, dilations=dilations, group=groups
    )


@rule("conv_transpose1d", "conv_transpose2d", "conv_transpose3d")
def _conv_transpose(
    g: Builder,
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
) -> Any:
    n = weight.ndim - 2
    names = [g.of(input), g.of(weight)] + ([g.of(bias)] if bias is not None else [])
    return g.emit(
        "ConvTranspose",
        *names,
        kernel_shape=list(weight.shape[2:]),
        strides=_many(stride, n),
        pads=_many(padding, n) * 2,
        output_padding=_many(output_padding, n),
        dilations=_many(dilation, n),
        group=groups,
    )


@rule("batch_norm")
def _batch_norm(
    g: Builder,
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Any:
    if training or running_mean is None or running_var is None:
        raise OnnxExporterError("onnx.export: batch norm over the batch's own statistics; call model.eval() first")
    n = running_mean.shape[0]
    scale = weight if weight is not None else lucid.ones(n, dtype=input.dtype)
    shift = bias if bias is not None else lucid.zeros(n, dtype=input.dtype)
    names = [g.of(t) for t in (input, scale, shift, running_mean, running_var)]
    return g.emit("BatchNormalization", *names, epsilon=eps)


@rule("layer_norm")
def _layer_norm(
    g: Builder,
    input: Tensor,
    normalized_shape: Any,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Any:
    sizes = list(normalized_shape) if not isinstance(normalized_shape, int) else [normalized_shape]
    scale = weight if weight is not None else lucid.ones(sizes, dtype=input.dtype)
    names = [g.of(input), g.of(scale)] + ([g.of(bias)] if bias is not None else [])
    return g.emit("LayerNormalization", *names, axis=-len(sizes), epsilon=eps)


@rule("instance_norm")
def _instance_norm(
    g: Builder,
    input: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Any:
    if not use_input_stats:
        return _batch_norm(g, input, running_mean, running_var, weight, bias, False, momentum, eps)
    n = input.shape[1]
    scale = weight if weight is not None else lucid.ones(n, dtype=input.dtype)
    shift = bias if bias is not None else lucid.zeros(n, dtype=input.dtype)
    return g.emit("InstanceNormalization", g.of(input), g.of(scale), g.of(shift), epsilon=eps)


@rule("embedding")
def _embedding(g: Builder, input: Tensor, weight: Tensor, *_: Any, **__: Any) -> Any:
    return g.emit("Gather", g.of(weight), g.of(input), axis=0)


@rule("softmax", "log_softmax")
def _softmax(g: Builder, input: Tensor, dim: int | None = None, *, dtype: Any = None, **_: Any) -> Any:
    x = g.of(input) if dtype in (None, input.dtype) else g.cast(g.of(input), dtype)
    return g.emit("LogSoftmax" if g.op == "log_softmax" else "Softmax", x, axis=-1 if dim is None else dim)


@rule("leaky_relu", "elu", "celu", "selu")
def _leaky(g: Builder, input: Tensor, slope: Any = None, *_: Any, **named: Any) -> Any:
    alpha = named.get("negative_slope", named.get("alpha", slope))
    op = {"leaky_relu": "LeakyRelu", "elu": "Elu", "celu": "Celu", "selu": "Selu"}[g.op]
    if g.op == "selu":
        return g.emit(op, g.of(input))
    alpha = (0.01 if g.op == "leaky_relu" else 1.0) if alpha is None else float(alpha)
    return g.emit(op, g.of(input), alpha=alpha)


@rule("prelu")
def _prelu(g: Builder, input: Tensor, weight: Tensor) -> Any:
    w = g.of(weight)
    if weight.numel() > 1:
        w = g.reshape(w, [weight.numel()] + [1] * (input.ndim - 2), ())
    return g.emit("PRelu", g.of(input), w)


@rule("hardsigmoid")
def _hardsigmoid(g: Builder, input: Tensor, *_: Any, **__: Any) -> Any:
    return g.emit("HardSigmoid", g.of(input), alpha=1.0 / 6.0, beta=0.5)


@rule("softplus")
def _softplus(g: Builder, input: Tensor, beta: float = 1.0, *_: Any, **__: Any) -> Any:
    if beta == 1:
        return g.emit("Softplus", g.of(input))
    by = g.of(float(beta), input)
    return g.emit("Div", g.emit("Softplus", g.emit("Mul", g.of(input), by)), by)


@rule("relu6", "hardtanh", "clamp", "clip", "clamp_min", "clamp_max")
def _clamp(g: Builder, input: Tensor, min: Any = None, max: Any = None, *_: Any, **named: Any) -> Any:
    low, high = named.get("min_val", min), named.get("max_val", max)
    if g.op == "relu6":
        low, high = 0.0, 6.0
    elif g.op == "hardtanh":
        low, high = (-1.0 if low is None else low), (1.0 if high is None else high)
    elif g.op == "clamp_max":
        low, high = None, low if high is None else high
    names = ["" if v is None else g.of(v) if isinstance(v, Tensor) else g.of(v, input) for v in (low, high)]
    return g.emit("Clip", g.of(input), *names)


@rule("max_pool1d", "max_pool2d", "max_pool3d")
def _max_pool(
    g: Builder,
    input: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    n = int(g.op[8])
    if return_indices or input.ndim != n + 2:
        raise OnnxExporterError("onnx.export: max pooling with indices, or without a batch")
    kernel = _many(kernel_size, n)
    return g.emit(
        "MaxPool",
        g.of(input),
        kernel_shape=kernel,
        strides=kernel if stride is None else _many(stride, n),
        pads=_many(padding, n) * 2,
        dilations=_many(dilation, n),
        ceil_mode=int(ceil_mode),
    )


@rule("avg_pool1d", "avg_pool2d", "avg_pool3d")
def _avg_pool(
    g: Builder,
    input: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: Any = None,
) -> Any:
    n = int(g.op[8])
    if divisor_override is not None or input.ndim != n + 2:
        raise OnnxExporterError("onnx.export: average pooling with a divisor of its own, or without a batch")
    kernel = _many(kernel_size, n)
    return g.emit(
        "AveragePool",
        g.of(input),
        kernel_shape=kernel,
        strides=kernel if stride is None else _many(stride, n),
        pads=_many(padding, n) * 2,
        ceil_mode=int(ceil_mode),
        count_include_pad=int(count_include_pad),
    )


@rule("adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d", "adaptive_max_pool2d")
def _adaptive(g: Builder, input: Tensor, output_size: Any, *_: Any, **__: Any) -> Any:
    n = int(g.op[-2])
    sizes = list(output_size) if isinstance(output_size, (list, tuple)) else [output_size] * n
    there = list(input.shape[-n:])
    wanted = [t if s is None else int(s) for s, t in zip(sizes, there, strict=True)]
    kind = "MaxPool" if "max" in g.op else "AveragePool"
    if all(s == 1 for s in wanted):
        return g.emit(f"Global{kind}", g.of(input))
    if any(t % s for s, t in zip(wanted, there, strict=True)):
        raise OnnxExporterError(f"onnx.export: {g.op} from {there} to {wanted}, whose windows differ in size")
    kernel = [t // s for s, t in zip(wanted, there, strict=True)]
    return g.emit(kind, g.of(input), kernel_shape=kernel, strides=kernel)


@rule("interpolate")
def _interpolate(
    g: Builder,
    input: Tensor,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    **_: Any,
) -> Any:
    modes = {"nearest": "nearest", "bilinear": "linear", "linear": "linear", "trilinear": "linear", "bicubic": "cubic"}
    if mode not in modes:
        raise OnnxExporterError(f"onnx.export: interpolate with mode '{mode}'; one of {', '.join(modes)}")
    scales = [float(o) / float(i) for o, i in zip(g.shape[2:], input.shape[2:], strict=True)]
    if scale_factor is not None:
        scales = [float(s) for s in (scale_factor if isinstance(scale_factor, (list, tuple)) else [scale_factor])]
        scales = scales * (input.ndim - 2) if len(scales) == 1 else scales
    by = g.constant(lucid.tensor([1.0, 1.0, *scales], dtype=lucid.float32, device="cpu"))
    where = "align_corners" if align_corners else "asymmetric" if mode == "nearest" else "half_pixel"
    return g.emit(
        "Resize",
        g.of(input),
        "",
        by,
        mode=modes[mode],
        coordinate_transformation_mode=where,
        nearest_mode="floor" if mode == "nearest" else None,
        cubic_coeff_a=-0.75 if mode == "bicubic" else None,
    )


@rule("pad")
def _pad(g: Builder, input: Tensor, pad: Any, mode: str = "constant", value: Any = None) -> Any:
    n = len(pad) // 2
    begin, end = [0] * input.ndim, [0] * input.ndim
    for i in range(n):
        begin[input.ndim - 1 - i], end[input.ndim - 1 - i] = int(pad[2 * i]), int(pad[2 * i + 1])
    kind = {"constant": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}[mode]
    if kind == "wrap":
        raise OnnxExporterError("onnx.export: circular padding is of opset 19; pad with cat")
    fill = [g.of(0.0 if value is None else value, input)] if kind == "constant" else []
    return g.emit("Pad", g.of(input), g.ints([*begin, *end]), *fill, mode=kind)
