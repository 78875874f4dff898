"""The ops below a call, by the names that PyTorch's dispatcher gives them: what `TorchDispatchMode` shows.

`nn.functional.linear` is `aten.t` and `aten.addmm`, a convolution of any kind `aten.convolution`, `x[:, 1:]` is
`aten.slice.Tensor`. Each rule runs those ops one by one, and what it gives is the call's result. A call without a rule
is one op of its own name.
"""

from __future__ import annotations

import builtins
import functools
import inspect
import operator
from collections.abc import Callable, Sequence
from typing import Any

import lucid
from lucid import _C, Tensor

#: Runs an op: its name with the overload, and its arguments. `sizes` of it gives a tensor's shape, `inside` calls a
#: function whose calls are shown, and `ran` says whether any op was.
Run = Any

RULES: dict[str, Callable[..., Any]] = {}


class NoRule(Exception):
    """These arguments are shown as the call itself; raised before any op runs."""


def rule(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A decorator that makes a function the rule of these names."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        RULES.update(dict.fromkeys(names, function))
        return function

    return register


# ---- products --------------------------------------------------------------------------------------------------------


@rule("linear")
def linear(run: Run, input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Any:
    if weight.dim() != 2 or input.dim() < 1:
        raise NoRule
    if bias is None:
        transposed = run("t", weight)
        if input.dim() == 1:
            return matmul(run, input, transposed)
        made = run("mm", _matrix(run, input), transposed)
    else:
        rows = _matrix(run, input)
        made = run("addmm", bias, rows, run("t", weight))
    return made if input.dim() == 2 else run("_unsafe_view", made, (*run.sizes(input)[:-1], run.sizes(weight)[0]))


def _broadcast(a: Sequence[int], b: Sequence[int]) -> list[int]:
    """The batch of two batches; sizes may be those that remember where they come from."""
    n = max(len(a), len(b))
    lucid.broadcast_shapes(tuple(map(int, a)), tuple(map(int, b)))
    pairs = zip([1] * (n - len(a)) + list(a), [1] * (n - len(b)) + list(b), strict=True)
    return [y if x == 1 else x for x, y in pairs]


def _matrix(run: Run, x: Tensor) -> Tensor:
    """The tensor's rows as a matrix."""
    made: Tensor = x if x.dim() == 2 else run("view", _rows(run, x), (-1, run.sizes(x)[-1]))
    return made


def _rows(run: Run, x: Tensor) -> Tensor:
    """The tensor in the order of its elements, as a view takes it."""
    made: Tensor = x if x.is_contiguous() else run("clone", x, memory_format=lucid.contiguous_format)
    return made


@rule("matmul")
def matmul(run: Run, input: Tensor, other: Tensor) -> Any:
    a, b = input.dim(), other.dim()
    if a == b == 1:
        return run("dot", input, other)
    if a == b == 2:
        return run("mm", input, other)
    if (a, b) == (2, 1):
        return run("mv", input, other)
    if (a, b) == (1, 2):
        return run("squeeze_.dim", run("mm", run("unsqueeze", input, 0), other), 0)
    if a >= 3 and b == 2:
        return run(
            "_unsafe_view", run("mm", _matrix(run, input), other), (*run.sizes(input)[:-1], run.sizes(other)[-1])
        )
    if not (a >= 3 and b >= 3) or input.is_sparse or other.is_sparse:
        raise NoRule
    batch = _broadcast(run.sizes(input)[:-2], run.sizes(other)[:-2])
    parts = []
    for x in (input, other):
        wide = run("expand", x, (*batch, *run.sizes(x)[-2:]))
        # A batch that is one already is shown as a view all the same.
        parts.append(reshape(run, wide, (-1, *run.sizes(x)[-2:])))
    return run("_unsafe_view", run("bmm", *parts), (*batch, run.sizes(input)[-2], run.sizes(other)[-1]))


def _convolution(n: int, transposed: bool) -> None:
    def each(value: Any) -> list[int]:
        return [value] * n if isinstance(value, int) else list(value) * (n if len(value) == 1 else 1)

    def convolve(run: Run, input: Tensor, args: Sequence[Any]) -> Any:
        if input.dim() == n + 1:
            return run("squeeze.dim", run("convolution", run("unsqueeze", input, 0), *args), 0)
        return run("convolution", input, *args)

    def plain(
        run: Run,
        input: Tensor,
        weight: Tensor,
        bias: Tensor | None = None,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
    ) -> Any:
        if isinstance(padding, str):
            extra = [d * (k - 1) for d, k in zip(each(dilation), weight.shape[2:], strict=True)]
            if padding == "valid":
                padding = 0
            elif any(e % 2 for e in extra):
                raise NoRule
            else:
                padding = [e // 2 for e in extra]
        rest = (each(stride), each(padding), each(dilation), False, [0] * n, groups)
        return convolve(run, input, (weight, bias, *rest))

    def back(
        run: Run,
        input: Tensor,
        weight: Tensor,
        bias: Tensor | None = None,
        stride: Any = 1,
        padding: Any = 0,
        output_padding: Any = 0,
        groups: int = 1,
        dilation: Any = 1,
    ) -> Any:
        rest = (each(stride), each(padding), each(dilation), True, each(output_padding), groups)
        return convolve(run, input, (weight, bias, *rest))

    RULES[f"conv_transpose{n}d" if transposed else f"conv{n}d"] = back if transposed else plain


for _n in (1, 2, 3):
    _convolution(_n, False)
    _convolution(_n, True)


@rule("multi_head_attention_forward")
def attention(run: Run, *args: Any, **kwargs: Any) -> Any:
    from lucid.onnx._decompose import multi_head_attention_forward

    given = inspect.signature(multi_head_attention_forward).bind(*args, **kwargs)
    given.apply_defaults()
    told = given.arguments
    others = ("bias_k", "bias_v", "add_zero_attn", "static_k", "static_v")
    plain = told["in_proj_weight"] is not None and not any(told[n] is not None and told[n] is not False for n in others)
    if not plain or told["query"].dim() != 3 or (told["training"] and told["dropout_p"]):
        raise NoRule
    return run.inside(multi_head_attention_forward, *args, **kwargs)


# ---- activations, norms, losses --------------------------------------------------------------------------------------


def _soft(name: str) -> None:
    def soft(
        run: Run, input: Tensor, dim: int | None = None, *rest: Any, dtype: Any = None, _stacklevel: int = 3
    ) -> Any:
        # After the dimension `nn.functional` has a number, and the method a dtype.
        dtype = next((r for r in rest if isinstance(r, lucid.dtype)), dtype)
        if dim is None:
            raise NoRule
        x = input if dtype is None or dtype == input.dtype else run("_to_copy", input, dtype=dtype)
        return run(f"_{name}", x, dim, False)

    RULES[name] = soft


for _name in ("softmax", "log_softmax"):
    _soft(_name)


@rule("layer_norm")
def layer_norm(
    run: Run,
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Any:
    return run("native_layer_norm", input, normalized_shape, weight, bias, eps)[0]


@rule("group_norm")
def group_norm(
    run: Run,
    input: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Any:
    n, c, *rest = run.sizes(input)
    each = functools.reduce(operator.mul, rest, 1)
    return run("native_group_norm", input, weight, bias, n, c, each, num_groups, eps)[0]


@rule("batch_norm")
def batch_norm(run: Run, input: Tensor, *args: Any, **kwargs: Any) -> Any:
    names = ("running_mean", "running_var", "weight", "bias", "training", "momentum", "eps")
    # `lucid.batch_norm` has the weights first, and one more argument at its end.
    if len(args) == 8 or "cudnn_enabled" in kwargs:
        raise NoRule
    given = {**dict(zip(names, args, strict=False)), **kwargs}
    mean, var, weight, bias = (given.get(n) for n in names[:4])
    rest = (given.get("training", False), given.get("momentum", 0.1), given.get("eps", 1e-5))
    return run("native_batch_norm", input, weight, bias, mean, var, *rest)[0]


@rule("cross_entropy")
def cross_entropy(
    run: Run,
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: Any = None,
    ignore_index: int = -100,
    reduce: Any = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Any:
    if input.dim() != 2 or target.is_floating_point() or label_smoothing or (size_average, reduce) != (None, None):
        raise NoRule
    return nll_loss(run, run("_log_softmax", input, 1, False), target, weight, None, ignore_index, None, reduction)


@rule("nll_loss")
def nll_loss(
    run: Run,
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: Any = None,
    ignore_index: int = -100,
    reduce: Any = None,
    reduction: str = "mean",
) -> Any:
    kinds = ("none", "mean", "sum")
    if input.dim() != 2 or (size_average, reduce) != (None, None) or reduction not in kinds:
        raise NoRule
    return run("nll_loss_forward", input, target, weight, kinds.index(reduction), ignore_index)[0]


@rule("l1_loss")
def l1_loss(run: Run, input: Tensor, target: Tensor, *args: Any, **kwargs: Any) -> Any:
    reduction = kwargs.pop("reduction", "mean")
    if args or kwargs or input.shape != target.shape or reduction not in ("mean", "sum", "none"):
        raise NoRule
    made = run("abs", run("sub.Tensor", input, target))
    return made if reduction == "none" else run(reduction, made)


@rule("relu6")
def relu6(run: Run, input: Tensor, inplace: bool = False) -> Any:
    return run("hardtanh_" if inplace else "hardtanh", input, 0.0, 6.0)


@rule("max_pool2d")
def max_pool2d(run: Run, input: Tensor, *args: Any, **kwargs: Any) -> Any:
    if kwargs.pop("return_indices", False) or len(args) > 5:
        raise NoRule
    return run("max_pool2d_with_indices", input, *args, **kwargs)[0]


@rule("adaptive_avg_pool2d")
def adaptive_avg_pool2d(run: Run, input: Tensor, output_size: Any) -> Any:
    sizes = (output_size,) * 2 if isinstance(output_size, int) else tuple(output_size)
    if sizes == (1, 1):
        return run("mean.dim", input, [-1, -2], True)
    return run(
        "_adaptive_avg_pool2d",
        input,
        [s if n is None else n for n, s in zip(sizes, run.sizes(input)[-2:], strict=True)],
    )


@rule("dropout")
def dropout(run: Run, input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
    if not training or p == 0:
        return input
    if inplace or not 0 < p < 1:
        raise NoRule
    kept = run("bernoulli_.float", run("empty_like", input), 1 - p)
    return run("mul.Tensor", input, run("div_.Scalar", kept, 1 - p))


@rule("interpolate")
def interpolate(
    run: Run,
    input: Tensor,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Any:
    if input.dim() != 4 or mode not in ("nearest", "bilinear") or antialias or recompute_scale_factor:
        raise NoRule
    if size is None and scale_factor is not None:
        scales = [scale_factor] * 2 if isinstance(scale_factor, (int, float)) else list(scale_factor)
        # Other scales lie between two sizes, and the op takes the scale itself.
        if any(s != int(s) for s in scales):
            raise NoRule
        size = [n * int(s) for n, s in zip(run.sizes(input)[2:], scales, strict=True)]
    elif size is None:
        raise NoRule
    size = [size] * 2 if isinstance(size, int) else list(size)
    if mode == "nearest":
        return run("upsample_nearest2d", input, size)
    return run("upsample_bilinear2d", input, size, bool(align_corners))


@rule("pad")
def pad(run: Run, input: Tensor, pad: Sequence[int], mode: str = "constant", value: float | None = None) -> Any:
    if mode != "constant":
        raise NoRule
    return run("constant_pad_nd", input, list(pad), value or 0.0)


# ---- shapes ----------------------------------------------------------------------------------------------------------


@rule("reshape", "view_as", "reshape_as")
def reshape(run: Run, input: Tensor, *shape: Any, **kwargs: Any) -> Any:
    if kwargs or not shape:
        raise NoRule
    if isinstance(shape[0], Tensor):
        sizes: Any = tuple(run.sizes(shape[0]))
    else:
        sizes = tuple(shape[0]) if isinstance(shape[0], (tuple, list)) else shape
    with _C.DisableTorchFunction():
        try:
            input.detach().view(sizes)
        except RuntimeError:
            views = False
        else:
            views = True
    if views:
        return run("view", input, sizes)
    return run("_unsafe_view", run("clone", input, memory_format=lucid.contiguous_format), sizes)


@rule("flatten")
def flatten(run: Run, input: Tensor, start_dim: int = 0, end_dim: int = -1) -> Any:
    n = input.dim()
    if not isinstance(start_dim, int) or not isinstance(end_dim, int) or n == 0:
        raise NoRule
    first, last = start_dim % n, end_dim % n
    if first == last:
        return input
    if first > last:
        raise NoRule
    shape = run.sizes(input)
    joined = functools.reduce(operator.mul, shape[first : last + 1])
    return reshape(run, input, (*shape[:first], joined, *shape[last + 1 :]))


@rule("contiguous")
def contiguous(run: Run, input: Tensor, memory_format: Any = None) -> Any:
    kept = memory_format or lucid.contiguous_format
    return input if input.is_contiguous(memory_format=kept) else run("clone", input, memory_format=kept)


@rule("chunk")
def chunk(run: Run, input: Tensor, chunks: int, dim: int = 0) -> Any:
    size = run.sizes(input)[dim]
    if chunks < 1 or not size:
        raise NoRule
    return run("split.Tensor", input, -(-size // chunks), dim)


@rule("split")
def split(run: Run, input: Tensor, split_size: Any, dim: int = 0) -> Any:
    return run("split.Tensor" if isinstance(split_size, int) else "split_with_sizes", input, split_size, dim)


def _cast(name: str, dtype: lucid.dtype) -> None:
    def method(run: Run, input: Tensor) -> Any:
        return cast(run, input, dtype)

    RULES[name] = method


def cast(run: Run, input: Tensor, dtype: lucid.dtype) -> Any:
    return input if input.dtype == dtype else run("_to_copy", input, dtype=dtype)


for _name in ("float", "double", "half", "bfloat16", "int", "long", "bool"):
    _cast(_name, getattr(lucid, _name))


@rule("to")
def to(run: Run, input: Tensor, *args: Any, **kwargs: Any) -> Any:
    if len(args) + len(kwargs) != 1:
        raise NoRule
    (given,) = (*args, *kwargs.values())
    if isinstance(given, lucid.dtype):
        return cast(run, input, given)
    if isinstance(given, (str, lucid.device)):
        device = lucid.device(given)
        # A name such as "cuda" may mean the device that the tensor is on.
        return (
            input
            if input.device == device or input.device.type == device.type
            else run("_to_copy", input, device=device)
        )
    raise NoRule


@rule("item")
def item(run: Run, input: Tensor) -> Any:
    return run("_local_scalar_dense", input)


@rule("index")
def index(run: Run, input: Tensor, key: Any) -> Any:
    """`x[key]`: a `select`, `slice` or `unsqueeze` for each part, and `index` for what tensors choose."""
    parts = key if isinstance(key, tuple) else (key,)
    plain = (int, builtins.slice, type(None), type(Ellipsis), Tensor)
    if any(isinstance(p, bool) or not isinstance(p, plain) for p in parts) or sum(p is Ellipsis for p in parts) > 1:
        raise NoRule
    bounds = [b for p in parts if isinstance(p, builtins.slice) for b in (p.start, p.stop, p.step)]
    if any(not isinstance(b, (int, type(None))) for b in bounds) or any(_takes(p) == 0 for p in parts if p is not None):
        raise NoRule
    dim, chosen, at = 0, [], input
    for p in parts:
        if p is Ellipsis:
            dim += max(input.dim() - sum(_takes(q) for q in parts if q is not Ellipsis), 0)
        elif p is None:
            at, dim = run("unsqueeze", at, dim), dim + 1
        elif isinstance(p, Tensor):
            chosen.append((dim, p))
            dim += _takes(p)
        elif isinstance(p, int):
            at = run("select.int", at, dim, p)
        else:
            if (p.start, p.stop, p.step) != (None, None, None):
                stop = p.stop if p.stop is not None else _LAST
                at = run("slice.Tensor", at, dim, p.start or 0, stop, *([] if p.step in (None, 1) else [p.step]))
            dim += 1
    if not chosen:
        return at if at is not input else run("alias", input)
    indices: list[Any] = [None] * (max(d for d, _ in chosen) + 1)
    for d, p in chosen:
        indices[d] = p
    return run("index.Tensor", at, indices)


@rule("__setitem__")
def set_item(run: Run, input: Tensor, key: Any, value: Any) -> Any:
    parts = key if isinstance(key, tuple) else (key,)
    if any(isinstance(p, Tensor) for p in parts) or not isinstance(value, (int, float, Tensor)):
        raise NoRule
    at = index(run, input, key)
    run("copy_" if isinstance(value, Tensor) and value.dim() else "fill_", at, value)


def _pair(name: str, of_two: str) -> None:
    def extreme(run: Run, input: Tensor, other: Tensor) -> Any:
        if not isinstance(other, Tensor):
            raise NoRule
        return run(of_two, input, other)

    RULES[name] = extreme


_pair("max", "maximum")
_pair("min", "minimum")


@rule("outer")
def outer(run: Run, input: Tensor, vec2: Tensor) -> Any:
    if input.dim() != 1 or vec2.dim() != 1:
        raise NoRule
    return run("mul", run("view", input, (-1, 1)), vec2)


@rule("normalize")
def normalize(run: Run, input: Tensor, p: float = 2.0, dim: int = 1, eps: float = 1e-12, out: Any = None) -> Any:
    if out is not None or not isinstance(dim, int):
        raise NoRule
    least = run("clamp_min", run("linalg_vector_norm", input, p, [dim], True), eps)
    return run("div", input, run("expand", least, run.sizes(input)))


#: Where a slice without an end stops.
_LAST = 2**63 - 1


def _takes(part: Any) -> int:
    """How many dimensions a part of a key takes."""
    if isinstance(part, Tensor):
        return part.dim() if part.dtype in (lucid.bool, lucid.uint8) else min(part.dim(), 1)
    return int(part is not None)


@rule("__rsub__")
def rsub(run: Run, input: Tensor, other: Any) -> Any:
    return run("rsub.Tensor" if isinstance(other, Tensor) else "rsub.Scalar", input, other)


@rule("__rtruediv__")
def rdiv(run: Run, input: Tensor, other: Any) -> Any:
    if isinstance(other, Tensor):
        raise NoRule
    return run("mul.Tensor", run("reciprocal", input), other)


@rule("__rpow__")
def rpow(run: Run, input: Tensor, other: Any) -> Any:
    return run("pow.Scalar", other, input)


@rule("relu")
def relu(run: Run, input: Tensor, inplace: bool = False) -> Any:
    return run("relu_" if inplace else "relu", input)


@rule("T", "H", "mT")
def transposed(run: Run, input: Tensor, name: str) -> Any:
    if name == "mT":
        return run("transpose.int", input, -2, -1)
    if input.is_complex() and name == "H":
        raise NoRule
    return run("permute", input, list(range(input.dim()))[::-1])


# ---- running ---------------------------------------------------------------------------------------------------------


@functools.cache
def _signature(function: Callable[..., Any]) -> inspect.Signature:
    return inspect.signature(function)


def lower(name: str, run: Run, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[bool, Any]:
    """Runs a call's ops by its rule: whether there was one, and the result."""
    function = RULES.get(name)
    if function is None or not args or not any(isinstance(a, Tensor) for a in args):
        return False, None
    try:
        _signature(function).bind(run, *args, **kwargs)
        return True, function(run, *args, **kwargs)
    except Exception:
        # Arguments that the rule does not know, or that are wrong: the call itself takes them, or says why not.
        if run.ran:
            raise
        return False, None
