"""`MaskedTensor`: data, and which of its elements count; and its rules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import lucid
from lucid import Tensor, errors
from lucid._wrapped import Rules, name_of
from lucid.masked import _reductions, _scans

RULES = Rules("masked tensors")


def _fail(op: str, why: str) -> NoReturn:
    raise errors.RuntimeError(f"{op}(): {why}")


class _Masked(lucid.autograd.Function):
    """The data, whose gradient is zero where the mask is false."""

    @staticmethod
    def forward(ctx: Any, data: Tensor, mask: Tensor) -> Tensor:
        ctx.save_for_backward(mask)
        return data.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        (mask,) = ctx.saved_tensors
        return lucid.where(mask, grad, 0.0), None


class MaskedTensor(Tensor):
    """Data and a bool mask of its shape: where the mask is true, an element counts.

    `lucid.masked.masked_tensor(data, mask)` makes it; reductions and element-wise ops leave out what does not count.

    Args:
        args (object): what `Tensor` is made of: data or sizes. The result has no mask; use `masked_tensor`.
        dtype (dtype, optional): the data's dtype.
        device (device or str, optional): where the data are.
        requires_grad (bool, optional): whether the data get a gradient. Default: False.

    Example:
        >>> x = lucid.masked.masked_tensor(lucid.tensor([1.0, 2.0, 3.0]), lucid.tensor([True, False, True]))
        >>> type(x).__name__, x.sum().item()
        ('MaskedTensor', 4.0)
    """

    #: What transforms read of a tensor is not all there is of this one.
    _of_parts = True
    _data: Tensor
    _mask: Tensor

    @classmethod
    def make(cls, data: Tensor, mask: Tensor) -> MaskedTensor:
        """A masked tensor of these parts."""
        made: MaskedTensor = Tensor._make_subclass(cls, data.detach())
        made._data, made._mask = data, mask
        return made

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if getattr(func, "__name__", "") == "__get__":
            return getattr(args[0]._data, name_of(func))
        return RULES.run(func, tuple(args), dict(kwargs or {}))

    def get_data(self) -> Tensor:
        """The data, with what does not count."""
        return self._data

    def get_mask(self) -> Tensor:
        """The mask."""
        return self._mask

    def to_tensor(self, value: Any) -> Tensor:
        """The data with `value` where the mask is false."""
        return lucid.where(self._mask, self._data, value)

    requires_grad = property(lambda self: self._data.requires_grad, lambda self, on: self._data.requires_grad_(on))
    is_leaf = property(lambda self: self._data.is_leaf)
    grad_fn = property(lambda self: self._data.grad_fn)

    @property  # type: ignore[misc]
    def grad(self) -> Any:
        """The gradient, masked as this tensor."""
        found = self._data.grad
        return None if found is None else MaskedTensor.make(found, self._mask)

    def requires_grad_(self, requires_grad: bool = True) -> MaskedTensor:
        """Says whether gradients are wanted of the data."""
        self._data.requires_grad_(requires_grad)
        return self

    def __repr__(self, **_: Any) -> str:
        if self._data.ndim == 0:
            shown = f"{self._data.item():8.4f}" if self._data.is_floating_point() else str(self._data.item())
            return f"MaskedTensor({shown if self._mask.item() else '--'}, {self._mask.item()})"
        return f"MaskedTensor(\n{_rows(self._data.tolist(), self._mask.tolist(), 1)}\n)"

    __str__ = __repr__
    __hash__ = object.__hash__

    def __reduce_ex__(self, protocol: Any) -> Any:
        return MaskedTensor.make, (self._data, self._mask)


def _rows(data: Any, mask: Any, depth: int) -> str:
    indent = "  " * depth
    if data and isinstance(data[0], list):
        inner = ",\n".join(_rows(d, m, depth + 1) for d, m in zip(data, mask, strict=True))
        return f"{indent}[\n{inner}\n{indent}]"
    shown = (f"{d:8.4f}" if isinstance(d, float) else f"{d}" for d in data)
    cells = (text if m else "--".rjust(len(text)) for text, m in zip(shown, mask, strict=True))
    return f"{indent}[{', '.join(cells)}]"


def masked_tensor(data: Tensor, mask: Tensor, requires_grad: bool = False) -> MaskedTensor:
    """A new masked tensor, a leaf, of copies of the data and the mask.

    Args:
        data (Tensor): the elements, of any shape.
        mask (Tensor): A bool tensor of the same shape: true is what counts.
        requires_grad (bool, default: False): Whether `backward` leaves a gradient in it.

    Returns:
        MaskedTensor: of the shape of `data`.

    Raises:
        TypeError: no tensors, or a mask that is not bool.
        ValueError: another shape or device of the mask.

    Example:
        >>> mt = lucid.masked.masked_tensor(lucid.tensor([1.0, 2.0]), lucid.tensor([True, False]))
        >>> (mt + 1).to_tensor(0)
        tensor([2., 0.])
    """
    data, mask = _checked("masked_tensor", data, mask)
    return MaskedTensor.make(data.detach().clone().requires_grad_(requires_grad), mask.clone())


def as_masked_tensor(data: Tensor, mask: Tensor) -> MaskedTensor:
    """A masked tensor of the data, which gets gradients through it: those of what counts.

    Args and errors are those of `masked_tensor`.

    Args:
        data (Tensor): the elements, of any shape.
        mask (Tensor): which elements count, bool, of the shape of `data`.

    Returns:
        MaskedTensor: of the shape of `data`.

    Example:
        >>> lucid.masked.as_masked_tensor(lucid.tensor([1.0, 2.0]), lucid.tensor([True, False])).get_mask()
        tensor([ True, False])
    """
    data, mask = _checked("as_masked_tensor", data, mask)
    return MaskedTensor.make(_Masked.apply(data, mask), mask)


def is_masked_tensor(obj: Any, /) -> bool:
    """Is it a masked tensor?

    Args:
        obj (object): any object.

    Returns:
        bool: whether it is.

    Example:
        >>> lucid.masked.is_masked_tensor(lucid.ones(1))
        False
    """
    return isinstance(obj, MaskedTensor)


def _checked(op: str, data: Any, mask: Any) -> tuple[Tensor, Tensor]:
    if isinstance(data, MaskedTensor) or isinstance(mask, MaskedTensor):
        raise errors.TypeError(
            f"{op}: data and mask must be plain tensors; get_data() and get_mask() give a masked one's"
        )
    if not isinstance(data, Tensor) or not isinstance(mask, Tensor):
        raise errors.TypeError(f"{op}: data must be a Tensor, and so the mask, got {type(data)} and {type(mask)}")
    if mask.dtype is not lucid.bool:
        raise errors.TypeError(f"{op}: mask must have dtype bool, got {mask.dtype}")
    if data.shape != mask.shape:
        raise errors.ValueError(f"{op}: data.size() must equal mask.size(), got {data.shape} and {mask.shape}")
    if data.device != mask.device:
        raise errors.ValueError(f"{op}: data and mask must be on the same device, got {data.device} and {mask.device}")
    return data, mask


# ---- the rules -------------------------------------------------------------------------------------------------------

_UNARY = """abs absolute acos acosh angle asin asinh atan atanh bitwise_not ceil clamp clip clone contiguous cos
cosh deg2rad detach digamma erf erfc erfinv exp exp2 expm1 float double half bfloat16 int long floor
frac lgamma log log10 log1p log2 logit i0 isnan nan_to_num neg negative positive pow rad2deg
reciprocal round rsqrt sigmoid sign sgn signbit sin sinc sinh sqrt square tan tanh trunc to cpu cuda
relu gelu silu zeros_like ones_like full_like logical_not type_as"""

_BINARY = """add arctan2 atan2 bitwise_and bitwise_or bitwise_xor div divide eq floor_divide fmax fmin fmod ge
greater greater_equal gt le less less_equal logaddexp logaddexp2 lt maximum minimum mul multiply ne
not_equal remainder sub subtract true_divide rsub radd rmul rtruediv rpow and or xor truediv pow
logical_and logical_or logical_xor"""

_VIEWS = """view reshape transpose permute t squeeze unsqueeze flatten unflatten expand expand_as select narrow
getitem movedim index_select gather repeat flip roll diagonal tril triu"""


def _elementwise(func: Callable[..., Any], *args: Any, **kwargs: Any) -> MaskedTensor:
    op = name_of(func)
    masks = [a._mask for a in args if isinstance(a, MaskedTensor)]
    if any(not lucid.equal(masks[0], m) for m in masks[1:]):
        raise errors.ValueError(f"{op}: Input masks must match; combine them first: masked_tensor(x.get_data(), mask)")
    made = func(*(a._data if isinstance(a, MaskedTensor) else a for a in args), **kwargs)
    mask = masks[0].to(made.device)
    if mask.shape != made.shape:
        mask = mask.expand(made.shape)
    return MaskedTensor.make(made, mask)


RULES.direct.add(_elementwise)
for _name in (_UNARY + " " + _BINARY).split():
    RULES.table[_name] = _elementwise


def _viewed(func: Callable[..., Any], input: Any, *args: Any, **kwargs: Any) -> Any:
    return MaskedTensor.make(func(input._data, *args, **kwargs), func(input._mask, *args, **kwargs))


for _name in _VIEWS.split():
    RULES.table[_name] = _viewed


@RULES.add("sum", "mean", "prod", "amax", "amin", "var", "std", "argmax", "argmin", "logsumexp")
def _reduce(
    func: Callable[..., Any], input: Any, dim: Any = None, keepdim: bool = False, **kwargs: Any
) -> MaskedTensor:
    op = name_of(func)
    made = getattr(_reductions, op)(input._data, dim, keepdim=keepdim, mask=input._mask, **kwargs)
    dims = list(range(input._mask.ndim)) if dim is None else dim
    return MaskedTensor.make(made, lucid.any(input._mask, dims, keepdim))


@RULES.add("norm")
def _norm(func: Callable[..., Any], input: Any, p: Any = 2, dim: Any = None, keepdim: bool = False) -> MaskedTensor:
    made = _reductions.norm(input._data, 2.0 if p == "fro" else p, dim, keepdim=keepdim, mask=input._mask)
    dims = list(range(input._mask.ndim)) if dim is None else dim
    return MaskedTensor.make(made, lucid.any(input._mask, dims, keepdim))


@RULES.add("all")
def _all(func: Callable[..., Any], input: Any, dim: Any = None, keepdim: bool = False) -> MaskedTensor:
    dims = list(range(input._mask.ndim)) if dim is None else dim
    filled = lucid.where(input._mask, input._data.bool(), lucid.tensor(True, device=input._mask.device))
    return MaskedTensor.make(lucid.all(filled, dims, keepdim), lucid.any(input._mask, dims, keepdim))


@RULES.add("softmax", "log_softmax", "softmin")
def _softmax(func: Callable[..., Any], input: Any, dim: int, dtype: Any = None, **_: Any) -> MaskedTensor:
    made = getattr(_scans, name_of(func))(input._data, dim, dtype=dtype, mask=input._mask)
    return MaskedTensor.make(made, input._mask)


@RULES.add("cumsum", "cumprod")
def _scan(func: Callable[..., Any], input: Any, dim: int, *, dtype: Any = None) -> MaskedTensor:
    made = getattr(_scans, name_of(func))(input._data, dim, dtype=dtype, mask=input._mask)
    return MaskedTensor.make(made, input._mask)


@RULES.add("where")
def _where(func: Callable[..., Any], condition: Tensor, input: Any, other: Any) -> MaskedTensor:
    x, y = (t if isinstance(t, MaskedTensor) else _fail("where", "expected two masked tensors") for t in (input, other))
    return MaskedTensor.make(lucid.where(condition, x._data, y._data), lucid.where(condition, x._mask, y._mask))


@RULES.add("stack", "cat")
def _join(func: Callable[..., Any], tensors: Any, dim: int = 0) -> MaskedTensor:
    if not all(isinstance(t, MaskedTensor) for t in tensors):
        _fail(name_of(func), "expected masked tensors only")
    return MaskedTensor.make(func([t._data for t in tensors], dim), func([t._mask for t in tensors], dim))


@RULES.add("unbind")
def _unbind(func: Callable[..., Any], input: Any, dim: int = 0) -> tuple[MaskedTensor, ...]:
    pairs = zip(input._data.unbind(dim), input._mask.unbind(dim), strict=True)
    return tuple(MaskedTensor.make(d, m) for d, m in pairs)


@RULES.add("backward")
def _backward(func: Callable[..., Any], input: Any, gradient: Any = None, *args: Any, **kwargs: Any) -> None:
    input._data.backward(gradient._data if isinstance(gradient, MaskedTensor) else gradient, *args, **kwargs)


@RULES.add("item", "tolist", "len", "dim", "size", "numel", "nelement", "stride", "is_floating_point", "is_complex")
def _told(func: Callable[..., Any], input: Any, *args: Any) -> Any:
    if name_of(func) in ("item", "tolist") and not bool(input._mask.all()):
        _fail(name_of(func), "an element does not count: to_tensor(value) says what is there")
    return func(input._data, *args)
