"""How each op is written in ONNX. A rule gets the builder, the op's arguments, and gives the result's name or names."""

from __future__ import annotations

import math
from collections.abc import Callable
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
