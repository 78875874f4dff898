"""How each op is written in ONNX. A rule gets the builder, the op's arguments, and gives the result's name or names."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import lucid
from lucid import Tensor
from lucid.onnx._build import Builder, OnnxExporterError

RULES: dict[str, Callable[..., Any]] = {}


def rule(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        RULES.update(dict.fromkeys(names, function))
        return function

    return add


def _unary(name: str, op: str) -> None:
    RULES[name] = lambda g, input, *_, **__: g.emit(op, g.of(input))


for _name, _op in {
    **{n: n.capitalize() for n in ("abs", "ceil", "cos", "erf", "exp", "floor", "log", "neg", "relu", "round")},
    **{n: n.capitalize() for n in ("sigmoid", "sign", "sin", "sqrt", "tan", "tanh", "reciprocal")},
    **{"isnan": "IsNaN", "isinf": "IsInf", "logical_not": "Not", "hardswish": "HardSwish", "mish": "Mish"},
    **{"softsign": "Softsign", "acos": "Acos", "asin": "Asin", "atan": "Atan", "cosh": "Cosh", "sinh": "Sinh"},
}.items():
    _unary(_name, _op)

for _same in ("contiguous", "clone", "detach", "dropout", "alpha_dropout", "feature_alpha_dropout", "dropout1d"):
    RULES[_same] = lambda g, input, *_, **__: g.emit("Identity", g.of(input))
for _same in ("dropout2d", "dropout3d", "cpu", "gpu", "alias", "requires_grad_"):
    RULES[_same] = RULES["dropout"]


def _promoted(a: Any, b: Any) -> lucid.dtype:
    made: lucid.dtype = lucid.result_type(a, b)
    return made


def _operands(g: Builder, a: Any, b: Any, dtype: lucid.dtype | None = None) -> tuple[str, str]:
    """Both operands in one dtype: ONNX promotes nothing."""
    wanted = dtype or _promoted(a, b)
    names = []
    for x in (a, b):
        if isinstance(x, Tensor):
            names.append(g.of(x) if x.dtype == wanted else g.cast(g.of(x), wanted))
        else:
            names.append(g.constant(lucid.tensor(x, dtype=wanted, device="cpu")))
    return names[0], names[1]


def _binary(name: str, op: str, swap: bool = False) -> None:
    def write(g: Builder, input: Any, other: Any, *_: Any, alpha: float = 1, **__: Any) -> Any:
        a, b = _operands(g, input, other)
        if alpha != 1:
            b = g.emit("Mul", b, g.constant(lucid.tensor(alpha, dtype=_promoted(input, other), device="cpu")))
        return g.emit(op, b, a) if swap else g.emit(op, a, b)

    RULES[name] = write


for _name, _op in {
    **{"add": "Add", "sub": "Sub", "mul": "Mul", "minimum": "Min", "maximum": "Max"},
    **{"gt": "Greater", "ge": "GreaterOrEqual", "lt": "Less", "le": "LessOrEqual", "eq": "Equal"},
    **{
        "logical_and": "And",
        "logical_or": "Or",
        "logical_xor": "Xor",
    },
}.items():
    _binary(_name, _op)
_binary("rsub", "Sub", swap=True)


@rule("bitwise_not", "bitwise_and", "bitwise_or", "bitwise_xor")
def _bits(g: Builder, input: Any, other: Any = None) -> Any:
    kind = {"bitwise_not": "Not", "bitwise_and": "And", "bitwise_or": "Or", "bitwise_xor": "Xor"}[g.op]
    operands = [input] if g.op == "bitwise_not" else [input, other]
    logical = all(isinstance(x, bool) or (isinstance(x, Tensor) and x.dtype == lucid.bool) for x in operands)
    names = [g.of(input)] if g.op == "bitwise_not" else list(_operands(g, input, other))
    return g.emit(kind if logical else f"Bitwise{kind}", *names)


@rule("ne")
def _ne(g: Builder, input: Any, other: Any) -> Any:
    return g.emit("Not", g.emit("Equal", *_operands(g, input, other)))


@rule("div", "true_divide")
def _div(g: Builder, input: Any, other: Any, *, rounding_mode: str | None = None, **_: Any) -> Any:
    dtype = _promoted(input, other)
    if rounding_mode is None and not dtype.is_floating_point:
        dtype = lucid.get_default_dtype()
    made = g.emit("Div", *_operands(g, input, other, dtype))
    if rounding_mode == "floor" and dtype.is_floating_point:
        return g.emit("Floor", made)
    if rounding_mode is not None:
        raise OnnxExporterError("onnx.export: div with a rounding mode; only floor of floats is there")
    return made


@rule("pow")
def _pow(g: Builder, input: Any, exponent: Any) -> Any:
    return g.emit("Pow", *_operands(g, input, exponent))


@rule("rsqrt")
def _rsqrt(g: Builder, input: Tensor) -> Any:
    return g.emit("Reciprocal", g.emit("Sqrt", g.of(input)))


@rule("square")
def _square(g: Builder, input: Tensor) -> Any:
    return g.emit("Mul", g.of(input), g.of(input))


@rule("matmul", "mm", "bmm")
def _matmul(g: Builder, input: Tensor, other: Tensor, **_: Any) -> Any:
    return g.emit("MatMul", g.of(input), g.of(other))


@rule("linear")
def _linear(g: Builder, input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Any:
    if input.ndim == 2 and bias is not None:
        return g.emit("Gemm", g.of(input), g.of(weight), g.of(bias), transB=1)
    made = g.emit("MatMul", g.of(input), g.emit("Transpose", g.of(weight), perm=[1, 0]))
    return made if bias is None else g.emit("Add", made, g.of(bias))


@rule("einsum")
def _einsum(g: Builder, equation: str, *operands: Any) -> Any:
    given = operands[0] if isinstance(operands[0], (list, tuple)) else operands
    return g.emit("Einsum", *(g.of(x) for x in given), equation=equation)


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


@rule("reshape", "view", "flatten", "unflatten", "view_as", "reshape_as", "unsqueeze", "squeeze", "ravel")
def _reshape(g: Builder, input: Tensor, *_: Any, **__: Any) -> Any:
    return g.reshape(g.of(input), g.shape)


@rule("permute", "transpose", "swapaxes", "swapdims", "movedim", "t", "mT", "T")
def _permute(g: Builder, input: Tensor, *args: Any, **named: Any) -> Any:
    # Sizes that tell the axes apart, permuted alike.
    function = {"T": "t", "mT": "mT"}.get(g.op, g.op)
    marked = lucid.empty([i + 2 for i in range(input.ndim)], device="meta")
    made = getattr(marked, function)
    made = made(*args, **named) if callable(made) else made
    return g.emit("Transpose", g.of(input), perm=[int(n) - 2 for n in made.shape])


@rule("expand", "broadcast_to", "expand_as")
def _expand(g: Builder, input: Tensor, *_: Any, **__: Any) -> Any:
    lead = len(g.shape) - input.ndim
    sizes = list(g.shape)
    for i, varies in enumerate(g.dynamic):
        if varies and (i < lead or input.shape[i - lead] == 1):
            raise OnnxExporterError(f"onnx.export: {g.op} to a size that varies")
        if varies:
            sizes[i] = 1
    return g.emit("Expand", g.of(input), g.ints(sizes))


@rule("repeat", "tile")
def _repeat(g: Builder, input: Tensor, *sizes: Any) -> Any:
    times = list(sizes[0]) if isinstance(sizes[0], (list, tuple)) else list(sizes)
    x = g.of(input)
    if len(times) > input.ndim:
        x = g.emit("Unsqueeze", x, g.ints(range(len(times) - input.ndim)))
    return g.emit("Tile", x, g.ints([1] * (input.ndim - len(times)) + times))


@rule("repeat_interleave")
def _repeat_interleave(g: Builder, input: Tensor, repeats: int, dim: int | None = None, **_: Any) -> Any:
    if not isinstance(repeats, int) or dim is None:
        raise OnnxExporterError("onnx.export: repeat_interleave by one number along one dimension")
    at = lucid.arange(input.shape[dim]).repeat_interleave(repeats)
    return g.emit("Gather", g.of(input), g.of(at), axis=dim)


@rule("cat", "concat", "concatenate")
def _cat(g: Builder, tensors: Any, dim: int = 0, **named: Any) -> Any:
    given = [t for t in tensors if t.numel() or t.ndim > 1]
    return g.emit("Concat", *(g.of(t) for t in given), axis=named.get("axis", dim))


@rule("stack")
def _stack(g: Builder, tensors: Any, dim: int = 0, **_: Any) -> Any:
    axis = dim % (len(g.shape))
    parts = [g.emit("Unsqueeze", g.of(t), g.ints([axis])) for t in tensors]
    return g.emit("Concat", *parts, axis=axis)


@rule("chunk", "split", "unbind", "tensor_split", "split_with_sizes")
def _split(g: Builder, input: Tensor, *args: Any, dim: int | None = None, outs: Any = (), **named: Any) -> Any:
    unbound = g.op == "unbind"
    axis = dim if dim is not None else (args[0] if unbound and args else args[1] if len(args) > 1 else 0)
    sizes = [1] * len(outs) if unbound else [o.shape[axis] for o in outs]
    made = g.emit("Split", g.of(input), g.ints(sizes), outputs=len(sizes), axis=axis)
    made = [made] if len(sizes) == 1 else made
    return [g.emit("Squeeze", m, g.ints([axis])) for m in made] if unbound else made


@rule("index", "select", "narrow", "index_select")
def _index(g: Builder, input: Tensor, *args: Any, **named: Any) -> Any:
    if g.op == "index_select":
        return g.emit("Gather", g.of(input), g.of(args[1]), axis=args[0])
    if g.op == "select":
        return g.emit("Gather", g.of(input), g.constant(lucid.tensor(int(args[1]))), axis=args[0])
    if g.op == "narrow":
        key: Any = tuple([slice(None)] * (args[0] % input.ndim) + [slice(args[1], args[1] + args[2])])
    else:
        key = args[0] if isinstance(args[0], tuple) else (args[0],)
    dims = sum(k is not None and k is not Ellipsis for k in key)
    if any(k is Ellipsis for k in key):
        at = next(i for i, k in enumerate(key) if k is Ellipsis)
        key = (*key[:at], *[slice(None)] * (input.ndim - dims), *key[at + 1 :])
    x, axis, gathers = g.of(input), 0, 0
    squeezed: list[int] = []
    added: list[int] = []
    for k in key:
        if k is None:
            added.append(axis - len(squeezed) + len(added))
            continue
        if isinstance(k, slice):
            if k != slice(None):
                step = 1 if k.step is None else k.step
                low = 0 if k.start is None else int(k.start)
                high = 2**62 if k.stop is None else int(k.stop)
                x = g.emit("Slice", x, g.ints([low]), g.ints([high]), g.ints([axis]), g.ints([step]))
        elif isinstance(k, bool) or (isinstance(k, Tensor) and k.dtype in (lucid.bool, lucid.uint8)):
            raise OnnxExporterError("onnx.export: indexing by a mask, whose result has no fixed shape; use where")
        elif isinstance(k, int):
            x = g.emit("Gather", x, g.ints([k]), axis=axis)
            squeezed.append(axis)
        else:
            gathers += 1
            tensor = k if isinstance(k, Tensor) else lucid.tensor(k)
            if gathers > 1 or (tensor.ndim != 1 and (squeezed or added or axis + 1 < input.ndim)):
                raise OnnxExporterError("onnx.export: indexing by several lists; use gather")
            x = g.emit("Gather", x, g.of(tensor), axis=axis)
        axis += 1
    if squeezed:
        x = g.emit("Squeeze", x, g.ints(squeezed))
    return g.emit("Unsqueeze", x, g.ints(added)) if added else (x if x != g.of(input) else g.emit("Identity", x))


@rule("gather")
def _gather(g: Builder, input: Tensor, dim: int, index: Tensor, **_: Any) -> Any:
    return g.emit("GatherElements", g.of(input), g.of(index), axis=dim)


@rule("where")
def _where(g: Builder, condition: Tensor, input: Any, other: Any) -> Any:
    return g.emit("Where", g.of(condition), *_operands(g, input, other))


@rule("masked_fill")
def _masked_fill(g: Builder, input: Tensor, mask: Tensor, value: Any) -> Any:
    fill = g.of(value) if isinstance(value, Tensor) else g.of(value, input)
    return g.emit("Where", g.of(mask), fill, g.of(input))


def _axes(input: Tensor, dim: Any) -> list[int]:
    if dim is None or dim == ():
        return list(range(input.ndim))
    return [int(dim)] if isinstance(dim, int) else [int(d) for d in dim]


@rule("sum", "mean", "prod", "amax", "amin", "logsumexp")
def _reduce(g: Builder, input: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None, **_: Any) -> Any:
    op = {"sum": "ReduceSum", "mean": "ReduceMean", "prod": "ReduceProd", "amax": "ReduceMax", "amin": "ReduceMin"}
    x = g.of(input)
    if g.op == "sum" and not input.dtype.is_floating_point:
        x = g.cast(x, lucid.int64)
    axes = g.ints(_axes(input, dim))
    return g.emit(op.get(g.op, "ReduceLogSumExp"), x, axes, keepdims=int(keepdim))


@rule("max", "min")
def _extremum(g: Builder, input: Tensor, dim: Any = None, keepdim: bool = False, outs: Any = (), **_: Any) -> Any:
    kind = g.op.capitalize()
    if isinstance(dim, Tensor):
        return g.emit(kind, *_operands(g, input, dim))
    if dim is None:
        return g.emit(f"Reduce{kind}", g.of(input), keepdims=0)
    values = g.emit(f"Reduce{kind}", g.of(input), g.ints([dim]), keepdims=int(keepdim))
    return [values, g.emit(f"Arg{kind}", g.of(input), axis=dim, keepdims=int(keepdim))]


@rule("argmax", "argmin")
def _arg(g: Builder, input: Tensor, dim: int | None = None, keepdim: bool = False) -> Any:
    op = "ArgMax" if g.op == "argmax" else "ArgMin"
    if dim is None:
        flat = g.reshape(g.of(input), [math.prod(input.shape)], ())
        return g.emit(op, flat, axis=0, keepdims=0)
    return g.emit(op, g.of(input), axis=dim, keepdims=int(keepdim))


@rule("topk")
def _topk(g: Builder, input: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True, **_: Any) -> Any:
    return g.emit("TopK", g.of(input), g.ints([k]), outputs=2, axis=dim, largest=int(largest), sorted=int(sorted))


@rule("cumsum")
def _cumsum(g: Builder, input: Tensor, dim: int, **_: Any) -> Any:
    return g.emit("CumSum", g.of(input), g.constant(lucid.tensor(int(dim))))


@rule("tril", "triu")
def _triangle(g: Builder, input: Tensor, diagonal: int = 0) -> Any:
    at = g.constant(lucid.tensor(int(diagonal)))
    return g.emit("Trilu", g.of(input), at, upper=int(g.op == "triu"))


@rule("to", "type", "float", "double", "half", "int", "long", "bool", "type_as")
def _to(g: Builder, input: Tensor, *args: Any, result: Any = None, **_: Any) -> Any:
    return g.cast(g.of(input), result.dtype)


@rule("ones_like", "zeros_like", "full_like")
def _like(g: Builder, input: Tensor, fill: Any = None, *, result: Any = None, **named: Any) -> Any:
    if any(g.dynamic):
        raise OnnxExporterError(f"onnx.export: {g.op} of a size that varies; write it by broadcasting")
    value = {"ones_like": 1, "zeros_like": 0}.get(g.op, named.get("fill_value", fill))
    return g.constant(lucid.full(g.shape, value, dtype=result.dtype, device="cpu"))


@rule("pixel_shuffle")
def _pixel_shuffle(g: Builder, input: Tensor, upscale_factor: int) -> Any:
    return g.emit("DepthToSpace", g.of(input), blocksize=upscale_factor, mode="CRD")


@rule("glu")
def _glu(g: Builder, input: Tensor, dim: int = -1) -> Any:
    half = input.shape[dim] // 2
    a, b = g.emit("Split", g.of(input), g.ints([half, half]), outputs=2, axis=dim)
    return g.emit("Mul", a, g.emit("Sigmoid", b))
