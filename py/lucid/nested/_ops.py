"""What functions of tensors do with nested ones: the rules of `NestedTensor`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import lucid
from lucid import Tensor, errors
from lucid._wrapped import name_of
from lucid.nested._tensor import RULES, NestedTensor, RaggedSize
from lucid.nn import functional as F

_ELEMENTWISE = """abs acos acosh asin asinh atan atanh bernoulli ceil celu clone contiguous cos cosh deg2rad detach
digamma double elu erf erfc erfinv exp exp2 expm1 float floor frac gelu half hardshrink hardsigmoid
hardswish hardtanh bfloat16 bool int isfinite isinf isnan leaky_relu lgamma log log10 log1p log2
logical_not logit logsigmoid long mish nan_to_num neg positive rad2deg reciprocal relu relu6 round
rsqrt selu sigmoid sign silu sin sinc sinh softplus softshrink softsign sqrt square tan tanh
tanhshrink to trunc threshold dropout alpha_dropout cpu cuda type_as zeros_like ones_like empty_like
full_like rand_like randn_like clamp clamp_min clamp_max pow_scalar"""

_BINARY = """add sub mul div true_divide floor_divide remainder fmod pow maximum minimum fmax fmin atan2 eq ne lt
le gt ge logical_and logical_or logical_xor bitwise_and bitwise_or bitwise_xor copysign hypot where
lerp addcmul addcdiv rsub radd rmul rtruediv rpow and or xor truediv masked_fill"""


def _fail(op: str, why: str) -> NoReturn:
    raise errors.RuntimeError(f"{op}(): {why}")


def _first(args: Sequence[Any]) -> NestedTensor:
    return next(a for a in args if isinstance(a, NestedTensor))


def _aligned(op: str, x: Any, nt: NestedTensor) -> Any:
    """An operand as the rows of a nested tensor see it: the rows of another, or what broadcasts to them."""
    if isinstance(x, NestedTensor):
        if x._bounds != nt._bounds or x._ragged != nt._ragged:
            _fail(op, f"the nested tensors have different lengths or layouts: {x.shape} and {nt.shape}")
        return x._rows
    if not isinstance(x, Tensor) or x.ndim < nt.ndim - nt._ragged:
        return x
    # A dense operand that has the dimension of the rows: of size 1 there, and of N or 1 in the batch's.
    at = x.ndim - (nt.ndim - nt._ragged)
    if x.shape[at] != 1:
        _fail(op, f"a dense operand of shape {list(x.shape)} does not broadcast to {nt.shape}; make it nested")
    if x.ndim < nt.ndim or x.shape[0] == 1:
        return x.squeeze(0) if x.ndim == nt.ndim else x
    if x.shape[0] != len(nt):
        _fail(op, f"a dense operand of shape {list(x.shape)} does not broadcast to {nt.shape}")
    lengths = lucid.tensor([b - a for a, b in nt.spans()], device=x.device)
    return x.squeeze(at).repeat_interleave(lengths, 0).movedim(0, nt._ragged - 1)


def _elementwise(func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    nt = _first(args)
    name = name_of(func)
    rows = [_aligned(name, a, nt) for a in args]
    kwargs = {k: _aligned(name, v, nt) for k, v in kwargs.items()}
    made = func(*rows, **kwargs)
    return nt.like(made) if isinstance(made, Tensor) else made


RULES.direct.add(_elementwise)
for _name in (_ELEMENTWISE + " " + _BINARY).split():
    RULES.table[_name] = _elementwise


def _dims(op: str, nt: NestedTensor, dim: Any) -> list[int]:
    dims = [dim] if isinstance(dim, int) else list(dim)
    for d in dims:
        if not -nt.ndim <= d < nt.ndim:
            raise errors.IndexError(f"{op}(): dimension {d} is out of range for a nested tensor of {nt.ndim}")
    return [d % nt.ndim for d in dims]


def _dense_dim(op: str, nt: NestedTensor, dim: int) -> int:
    """A dimension beside the batch's and the rows', as the rows number it."""
    (d,) = _dims(op, nt, dim)
    if d in (0, nt._ragged):
        _fail(op, f"dim {dim} of a nested tensor of shape {nt.shape} is the batch's, or differs from row to row")
    return d - 1


@RULES.add("linear")
def _linear(func: Any, input: Any, weight: Tensor, bias: Tensor | None = None) -> Any:
    nt = _first([input])
    if nt._ragged == nt.ndim - 1:
        _fail("linear", f"the last dimension of {nt.shape} differs from row to row")
    return nt.like(func(nt._rows, weight, bias))


@RULES.add("matmul", "rmatmul")
def _matmul(func: Any, input: Any, other: Any) -> Any:
    if isinstance(input, NestedTensor) and not isinstance(other, NestedTensor):
        if other.ndim == 2 and input._ragged != input.ndim - 1:
            return input.like(input._rows @ other)
    elif isinstance(input, NestedTensor) and isinstance(other, NestedTensor) and input._bounds == other._bounds:
        parts = [a @ b for a, b in zip(input.unbind(), other.unbind(), strict=True)]
        left, right = input._ragged == input.ndim - 1, other._ragged == other.ndim - 2
        if left and right:
            return lucid.stack(parts)
    _fail("matmul", "expected a nested tensor by a dense matrix, or two whose rows are summed over")


@RULES.add("layer_norm", "rms_norm")
def _norm(func: Any, input: Any, normalized_shape: Sequence[int], *args: Any, **kwargs: Any) -> Any:
    if input.ndim - len(normalized_shape) <= input._ragged:
        _fail(name_of(func), f"cannot normalize over the dimension that differs of {input.shape}")
    return input.like(func(input._rows, normalized_shape, *args, **kwargs))


@RULES.add("softmax", "log_softmax")
def _softmax(func: Any, input: Any, dim: int = -1, *args: Any, **kwargs: Any) -> Any:
    if _dims("softmax", input, dim)[0] == input._ragged:
        parts = [func(t, input._ragged - 1, *args, **kwargs) for t in input.unbind()]
        return input.like(lucid.cat(parts, input._ragged - 1))
    return input.like(func(input._rows, _dense_dim(name_of(func), input, dim), *args, **kwargs))


@RULES.add("sum", "mean", "amax", "amin", "max", "min", "prod", "std", "var", "any", "all")
def _reduce(func: Any, input: Any, dim: Any = None, keepdim: bool = False, **kwargs: Any) -> Any:
    op = name_of(func)
    if dim is None:
        return func(input._rows, **kwargs)
    dims = _dims(op, input, dim)
    if 0 in dims:
        _fail(op, f"reducing over the batch of a nested tensor needs all dimensions, got dim={dim}")
    if input._ragged in dims:
        own = [d - 1 for d in dims]
        parts = [func(t, own[0] if isinstance(dim, int) else own, keepdim, **kwargs) for t in input.unbind()]
        if not isinstance(parts[0], Tensor):
            columns = [lucid.stack(list(column)) for column in zip(*parts, strict=True)]
            return type(parts[0])(*columns)
        return lucid.stack(parts)
    own = [d - 1 for d in dims]
    made = func(input._rows, own[0] if isinstance(dim, int) else own, keepdim, **kwargs)
    ragged = input._ragged - (0 if keepdim else sum(d < input._ragged for d in dims))
    return input.like(made, ragged) if isinstance(made, Tensor) else type(made)(*(input.like(m, ragged) for m in made))


@RULES.add("transpose", "swapaxes", "swapdims")
def _transpose(func: Any, input: Any, dim0: int, dim1: int) -> Any:
    a, b = _dims("transpose", input, [dim0, dim1])
    if 0 in (a, b) and a != b:
        _fail("transpose", "the batch's dimension of a nested tensor stays the first")
    moved = {a: b, b: a}.get(input._ragged, input._ragged)
    return input.like(input._rows.transpose(a - 1, b - 1), moved) if a != b else input


@RULES.add("permute")
def _permute(func: Any, input: Any, *dims: Any) -> Any:
    order = _dims("permute", input, dims[0] if len(dims) == 1 and not isinstance(dims[0], int) else dims)
    if sorted(order) != list(range(input.ndim)) or order[0] != 0:
        _fail("permute", f"expected an order of {input.ndim} dimensions that keeps the batch's first, got {order}")
    return input.like(input._rows.permute(*(d - 1 for d in order[1:])), order.index(input._ragged))


@RULES.add("view", "reshape")
def _reshape(func: Any, input: Any, *shape: Any) -> Any:
    sizes = list(shape[0] if len(shape) == 1 and not isinstance(shape[0], int) else shape)
    at = next((i for i, n in enumerate(sizes) if isinstance(n, RaggedSize)), None)
    inferred = [i for i, n in enumerate(sizes) if n == -1 and not isinstance(n, RaggedSize)]
    if at is None and inferred:
        # PyTorch takes -1 at the place of the rows for them.
        at = input._ragged if input._ragged in inferred else inferred[0]
        inferred.remove(at)
    if not sizes or sizes[0] not in (len(input), -1) or at is None or at == 0 or input._ragged != 1 or at != 1:
        _fail("view", f"cannot view a nested tensor of shape {input.shape} as {sizes}")
    return input.like(input._rows.reshape([input._rows.shape[0], *sizes[2:]]))


@RULES.add("unflatten")
def _unflatten(func: Any, input: Any, dim: int, sizes: Sequence[int]) -> Any:
    d = _dense_dim("unflatten", input, dim)
    return input.like(input._rows.unflatten(d, sizes), input._ragged + (len(sizes) - 1 if d < input._ragged - 1 else 0))


@RULES.add("flatten")
def _flatten(func: Any, input: Any, start_dim: int = 0, end_dim: int = -1) -> Any:
    a, b = _dims("flatten", input, [start_dim, end_dim])
    if a <= input._ragged <= b or a == 0:
        _fail("flatten", f"cannot flatten the batch's dimension, or the one that differs, of {input.shape}")
    return input.like(input._rows.flatten(a - 1, b - 1), input._ragged - (b - a if b < input._ragged else 0))


@RULES.add("unsqueeze")
def _unsqueeze(func: Any, input: Any, dim: int) -> Any:
    d = dim + input.ndim + 1 if dim < 0 else dim
    if not 0 < d <= input.ndim:
        _fail("unsqueeze", f"dim {dim} is out of range, or before the batch's, of {input.shape}")
    return input.like(input._rows.unsqueeze(d - 1), input._ragged + (d <= input._ragged))


@RULES.add("squeeze")
def _squeeze(func: Any, input: Any, dim: int) -> Any:
    d = _dense_dim("squeeze", input, dim)
    gone = input._rows.shape[d] == 1
    return input.like(input._rows.squeeze(d), input._ragged - (gone and d < input._ragged - 1))


@RULES.add("chunk", "split")
def _chunk(func: Any, input: Any, sizes: Any, dim: int = 0) -> Any:
    return tuple(input.like(part) for part in func(input._rows, sizes, _dense_dim(name_of(func), input, dim)))


@RULES.add("cat", "concat", "concatenate")
def _cat(func: Any, tensors: Sequence[Any], dim: int = 0) -> Any:
    nt = _first(tensors)
    if not all(isinstance(t, NestedTensor) for t in tensors):
        _fail("cat", "expected nested tensors only")
    if _dims("cat", nt, dim)[0] == 0:
        if any(t._ragged != 1 for t in tensors):
            _fail("cat", "expected nested tensors whose dimension 1 differs")
        from lucid.nested._tensor import as_nested_tensor

        return as_nested_tensor([row for t in tensors for row in t.unbind()])
    rows = [_aligned("cat", t, nt) for t in tensors]
    return nt.like(lucid.cat(rows, _dense_dim("cat", nt, dim)))


@RULES.add("getitem", "select")
def _getitem(func: Any, input: Any, index: Any, *more: Any) -> Any:
    if name_of(func) == "select":
        if _dims("select", input, index) == [0]:
            return input.unbind()[more[0]]
        return input.like(
            input._rows.select(_dense_dim("select", input, index), more[0]),
            input._ragged - (index % input.ndim < input._ragged),
        )
    if isinstance(index, int):
        return input.unbind()[index]
    if isinstance(index, tuple) and index and isinstance(index[0], int):
        return input.unbind()[index[0]][index[1:]]
    _fail("__getitem__", "nested tensors are indexed by a number first, or by unbind()")


@RULES.add("embedding")
def _embedding(func: Any, input: Any, weight: Tensor, *args: Any, **kwargs: Any) -> Any:
    return input.like(func(input._rows, weight, *args, **kwargs))


@RULES.add("scaled_dot_product_attention")
def _attention(
    func: Any,
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    """Attention within each sequence: no row sees one of another, and none is padding."""
    op = "scaled_dot_product_attention"
    if not all(isinstance(t, NestedTensor) and t.ndim == 4 and t._ragged == 2 for t in (query, key, value)):
        _fail(op, "expected nested queries, keys and values of shape (N, heads, j, size)")
    if key._bounds != value._bounds or len(query) != len(key):
        _fail(op, f"keys and values have different lengths: {key.shape}, {value.shape}")
    if attn_mask is not None:
        _fail(op, "a mask is not taken with nested tensors, which have no padding; is_causal is")
    parts = [
        F.scaled_dot_product_attention(
            q.unsqueeze(0),
            k.unsqueeze(0),
            v.unsqueeze(0),
            None,
            dropout_p,
            is_causal,
            scale=scale,
            enable_gqa=enable_gqa,
        ).squeeze(0)
        for q, k, v in zip(query.unbind(), key.unbind(), value.unbind(), strict=True)
    ]
    return query.like(lucid.cat(parts, 1))


@RULES.add("backward")
def _backward(func: Any, input: Any, gradient: Any = None, *args: Any, **kwargs: Any) -> None:
    input._rows.backward(gradient._rows if isinstance(gradient, NestedTensor) else gradient, *args, **kwargs)


@RULES.add("is_same_size")
def _is_same_size(func: Any, input: Any, other: Any) -> Any:
    return input._bounds == other._bounds and input._rows.shape == other._rows.shape


@RULES.add("element_size", "is_floating_point", "is_complex", "is_contiguous", "get_device", "nelement")
def _told(func: Any, input: Any, *args: Any, **kwargs: Any) -> Any:
    return func(input._rows, *args, **kwargs)


__all__ = ["RULES"]
