"""`lucid.nn.functional`: layers, activations and losses as functions.

Most names are the engine's own functions, passed on as they are. What PyTorch's signature has beyond them (`inplace`,
string padding, `return_indices`) is thin Python here, as are the few composites.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from lucid import _C, Tensor, errors
from lucid._absent import teller
from lucid._C import (
    _has_torch_function,
    avg_pool1d,
    avg_pool2d,
    avg_pool3d,
    batch_norm,
    conv_transpose1d,
    conv_transpose2d,
    conv_transpose3d,
    gelu,
    glu,
    group_norm,
    hardshrink,
    layer_norm,
    linear,
    logsigmoid,
    one_hot,
    pad,
    prelu,
    relu_,
    rms_norm,
    scaled_dot_product_attention,
    sigmoid,
    softplus,
    softshrink,
    softsign,
    tanh,
    tanhshrink,
)
from lucid._docs import share_in_place, share_sections
from lucid._public_names import MODES, checked
from lucid._warnings import warn, warn_once
from lucid.nn._functional.ctc import *  # noqa: F403
from lucid.nn._functional.ctc import __all__ as _ctc
from lucid.nn._functional.distance import *  # noqa: F403
from lucid.nn._functional.distance import __all__ as _distance
from lucid.nn._functional.dropout import *  # noqa: F403
from lucid.nn._functional.dropout import __all__ as _dropout
from lucid.nn._functional.layers import *  # noqa: F403
from lucid.nn._functional.layers import __all__ as _layers
from lucid.nn._functional.loss import *  # noqa: F403
from lucid.nn._functional.loss import __all__ as _loss
from lucid.nn._functional.loss_classes import *  # noqa: F403
from lucid.nn._functional.loss_classes import __all__ as _loss_classes
from lucid.nn._functional.loss_linear import *  # noqa: F403
from lucid.nn._functional.loss_linear import __all__ as _loss_linear
from lucid.nn._functional.loss_plain import *  # noqa: F403
from lucid.nn._functional.loss_plain import __all__ as _loss_plain
from lucid.nn._functional.max_pooling import *  # noqa: F403
from lucid.nn._functional.max_pooling import __all__ as _max_pooling
from lucid.nn._functional.multihead import multi_head_attention_forward
from lucid.nn._functional.pooling import *  # noqa: F403
from lucid.nn._functional.pooling import __all__ as _pooling
from lucid.nn._functional.positions import *  # noqa: F403
from lucid.nn._functional.positions import __all__ as _positions
from lucid.nn._functional.resample import *  # noqa: F403
from lucid.nn._functional.resample import __all__ as _resample
from lucid.nn._functional.resize import *  # noqa: F403
from lucid.nn._functional.resize import __all__ as _resize
from lucid.nn.parameter import Parameter

__all__ = [
    "avg_pool1d",
    "avg_pool2d",
    "avg_pool3d",
    "batch_norm",
    "celu",
    "celu_",
    "conv1d",
    "conv2d",
    "conv3d",
    "conv_tbc",
    "conv_transpose1d",
    "conv_transpose2d",
    "conv_transpose3d",
    "dropout",
    "elu",
    "elu_",
    "gelu",
    "glu",
    "group_norm",
    "hardshrink",
    "hardsigmoid",
    "hardswish",
    "hardtanh",
    "hardtanh_",
    "layer_norm",
    "leaky_relu",
    "leaky_relu_",
    "linear",
    "log_softmax",
    "logsigmoid",
    "max_pool1d",
    "max_pool1d_with_indices",
    "max_pool2d",
    "max_pool2d_with_indices",
    "max_pool3d",
    "max_pool3d_with_indices",
    "mish",
    "multi_head_attention_forward",
    "one_hot",
    "pad",
    "prelu",
    "relu",
    "relu6",
    "relu_",
    "rms_norm",
    "scaled_dot_product_attention",
    "rrelu_",
    "selu",
    "selu_",
    "sigmoid",
    "silu",
    "softmax",
    "softplus",
    "softshrink",
    "softsign",
    "tanh",
    "tanhshrink",
    "threshold",
    "threshold_",
    *_ctc,
    *_distance,
    *_dropout,
    *_layers,
    *_loss,
    *_loss_classes,
    *_loss_linear,
    *_loss_plain,
    *_max_pooling,
    *_pooling,
    *_positions,
    *_resample,
    *_resize,
]


# ---- activations -----------------------------------------------------------------------------------------------------

#: Asks classes and modes about a call.
_ask: Callable[..., Tensor] = _C._handle_torch_function


def _is_asked(input: Any) -> bool:
    """Are classes or modes asked about a function of this before its work, by `__torch_function__`?"""
    return (type(input) is not Tensor or bool(MODES)) and _has_torch_function((input,))


def relu(input: Tensor, inplace: bool = False) -> Tensor:
    """`max(x, 0)`, with slope 0 at 0."""
    if _is_asked(input):
        return _ask(relu, (input,), input, inplace=inplace)
    return input.relu_() if inplace else _C.relu(input)


def _written(f: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """`f(x)` written over `x`; of a copy where the gradient needs what is written over."""
    return _C._overwrite(x, f(_C._rewritten(x).clone() if x.requires_grad else x))


def _over(x: Tensor, f: Callable[..., Tensor], *args: float) -> Tensor:
    """`f(x, *args)` written over `x`, as one of the steps to which PyTorch gives a number of their own in place."""
    with _C._Step(f.__name__ + "_"):
        return _written(lambda x: f(x, *args), x)


def silu(input: Tensor, inplace: bool = False) -> Tensor:
    """`x · sigmoid(x)`."""
    if _is_asked(input):
        return _ask(silu, (input,), input, inplace=inplace)
    return _written(_C.silu, input) if inplace else _C.silu(input)


def relu6(input: Tensor, inplace: bool = False) -> Tensor:
    """`min(max(x, 0), 6)`."""
    if _is_asked(input):
        return _ask(relu6, (input,), input, inplace=inplace)
    return _written(_C.relu6, input) if inplace else _C.relu6(input)


def leaky_relu(input: Tensor, negative_slope: float = 0.01, inplace: bool = False) -> Tensor:
    """`x` above 0, `negative_slope · x` below."""
    if _is_asked(input):
        return _ask(leaky_relu, (input,), input, negative_slope=negative_slope, inplace=inplace)
    return _over(input, _C.leaky_relu, negative_slope) if inplace else _C.leaky_relu(input, negative_slope)


def leaky_relu_(input: Tensor, negative_slope: float = 0.01) -> Tensor:
    """`leaky_relu` in place."""
    if _is_asked(input):
        return _ask(leaky_relu_, (input,), input, negative_slope)
    return leaky_relu(input, negative_slope, inplace=True)


def elu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """`x` above 0, `alpha · (exp(x) - 1)` below."""
    if _is_asked(input):
        return _ask(elu, (input,), input, alpha=alpha, inplace=inplace)
    return _over(input, _C.elu, alpha) if inplace else _C.elu(input, alpha)


def elu_(input: Tensor, alpha: float = 1.0) -> Tensor:
    """`elu` in place."""
    if _is_asked(input):
        return _ask(elu_, (input,), input, alpha)
    return elu(input, alpha, inplace=True)


def selu(input: Tensor, inplace: bool = False) -> Tensor:
    """`scale · (max(x, 0) + min(0, alpha · (exp(x) - 1)))` with constants that keep mean 0 and variance 1."""
    if _is_asked(input):
        return _ask(selu, (input,), input, inplace=inplace)
    return _over(input, _C.selu) if inplace else _C.selu(input)


def selu_(input: Tensor) -> Tensor:
    """`selu` in place."""
    if _is_asked(input):
        return _ask(selu_, (input,), input)
    return selu(input, inplace=True)


def celu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """`max(x, 0) + min(0, alpha · (exp(x / alpha) - 1))`."""
    if _is_asked(input):
        return _ask(celu, (input,), input, alpha=alpha, inplace=inplace)
    return _over(input, _C.celu, alpha) if inplace else _C.celu(input, alpha)


def celu_(input: Tensor, alpha: float = 1.0) -> Tensor:
    """`celu` in place."""
    if _is_asked(input):
        return _ask(celu_, (input,), input, alpha)
    return celu(input, alpha, inplace=True)


def mish(input: Tensor, inplace: bool = False) -> Tensor:
    """`x · tanh(softplus(x))`."""
    if _is_asked(input):
        return _ask(mish, (input,), input, inplace=inplace)
    return _written(_C.mish, input) if inplace else _C.mish(input)


def hardswish(input: Tensor, inplace: bool = False) -> Tensor:
    """`x · relu6(x + 3) / 6`."""
    if _is_asked(input):
        return _ask(hardswish, (input,), input, inplace=inplace)
    return _written(_C.hardswish, input) if inplace else _C.hardswish(input)


def hardsigmoid(input: Tensor, inplace: bool = False) -> Tensor:
    """`relu6(x + 3) / 6`."""
    if _is_asked(input):
        return _ask(hardsigmoid, (input,), input, inplace=inplace)
    return _written(_C.hardsigmoid, input) if inplace else _C.hardsigmoid(input)


def hardtanh(input: Tensor, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> Tensor:
    """`x` held within `min_val` to `max_val`."""
    if _is_asked(input):
        return _ask(hardtanh, (input,), input, min_val=min_val, max_val=max_val, inplace=inplace)
    if inplace:
        return _written(lambda x: _C.hardtanh(x, min_val, max_val), input)
    return _C.hardtanh(input, min_val, max_val)


def hardtanh_(input: Tensor, min_val: float = -1.0, max_val: float = 1.0) -> Tensor:
    """`hardtanh` in place."""
    if _is_asked(input):
        return _ask(hardtanh_, (input,), input, min_val, max_val)
    return hardtanh(input, min_val, max_val, inplace=True)


def threshold(input: Tensor, threshold: float, value: float, inplace: bool = False) -> Tensor:
    """`x` where `x > threshold`, else `value`."""
    if _is_asked(input):
        return _ask(_threshold, (input,), input, threshold, value, inplace=inplace)
    return threshold_(input, threshold, value) if inplace else _C.threshold(input, threshold, value)


_threshold = threshold


def threshold_(input: Tensor, threshold: float, value: float) -> Tensor:
    """`threshold` in place."""
    if _is_asked(input):
        return _ask(threshold_, (input,), input, threshold, value)
    with _C._Step("threshold_"):
        made: Tensor = input.masked_fill_(input.detach() <= threshold, value)
    return made


def rrelu_(input: Tensor, lower: float = 1.0 / 8, upper: float = 1.0 / 3, training: bool = False) -> Tensor:
    """`rrelu` in place."""
    if _is_asked(input):
        return _ask(rrelu_, (input,), input, lower, upper, training)
    return rrelu(input, lower, upper, training, inplace=True)  # noqa: F405


def softmax(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None) -> Tensor:
    """`exp(x) / sum(exp(x))` along `dim`; `dtype` casts first."""
    if _is_asked(input):
        return _ask(softmax, (input,), input, dim=dim, _stacklevel=_stacklevel, dtype=dtype)
    return _C.softmax(input, _softmax_dim("softmax", input, dim), dtype=dtype)


def log_softmax(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None) -> Tensor:
    """`log(softmax(x))` along `dim`, without overflow; `dtype` casts first."""
    if _is_asked(input):
        return _ask(log_softmax, (input,), input, dim=dim, _stacklevel=_stacklevel, dtype=dtype)
    return _C.log_softmax(input, _softmax_dim("log_softmax", input, dim), dtype=dtype)


def _softmax_dim(name: str, input: Tensor, dim: int | None) -> int:
    if dim is not None:
        return dim
    warn(f"Implicit dimension choice for {name} has been deprecated. Change the call to include dim=X as an argument.")
    return 0 if input.dim() in (0, 1, 3) else 1


def dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Zero with probability `p`, else `x / (1 - p)`; the input itself unless `training`."""
    if _is_asked(input):
        return _ask(dropout, (input,), input, p=p, training=training, inplace=inplace)
    if inplace and training and p > 0:
        return _C._overwrite(input, _C.dropout(_C._rewritten(input), p, training))
    return _C.dropout(input, p, training)


# ---- layers ----------------------------------------------------------------------------------------------------------


class _Conv(Protocol):
    """A convolution as a function."""

    def __call__(
        self,
        input: Tensor,
        weight: Tensor,
        bias: Tensor | None = None,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
    ) -> Tensor: ...


class _MaxPool(Protocol):
    """A max-pooling as a function."""

    def __call__(
        self,
        input: Tensor,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        dilation: Any = 1,
        ceil_mode: bool = False,
        return_indices: bool = False,
    ) -> Any: ...


def _made(function: Any, name: str, doc: str) -> Any:
    """A function that was made for some number of dimensions, under its own name."""
    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    return function


def _conv(n: int, space: str) -> _Conv:
    run = getattr(_C, f"conv{n}d")

    def call(
        input: Tensor,
        weight: Tensor,
        bias: Tensor | None = None,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
    ) -> Tensor:
        if isinstance(padding, str):
            input, padding = _string_padding(input, weight, padding, stride, dilation, n)
        made: Tensor = run(input, weight, bias, stride, padding, dilation, groups)
        return made

    doc = f'{n}-D convolution: (N, C, {space}) with (out, C / groups, window…). `padding` may be "same" or "valid".'
    made: _Conv = _made(call, f"conv{n}d", doc)
    return made


conv1d, conv2d, conv3d = _conv(1, "L"), _conv(2, "H, W"), _conv(3, "D, H, W")


def conv_tbc(input: Tensor, weight: Tensor, bias: Tensor, pad: int = 0) -> Tensor:
    """`conv1d` of sequences (time, N, C) with (window, C, out) and (out): (time', N, out).

    Args:
        input (Tensor): (time, N, C).
        weight (Tensor): (window, C, out).
        bias (Tensor): (out,).
        pad (int, default: 0): zeros added at both ends of the time.

    Returns:
        Tensor: (time', N, out), with time' = time + 2·pad − window + 1.

    Raises:
        RuntimeError: a tensor has another number of dimensions.

    Example:
        >>> import lucid.nn.functional as F
        >>> F.conv_tbc(lucid.ones(5, 1, 2), lucid.ones(3, 2, 4), lucid.zeros(4)).shape
        lucid.Size([3, 1, 4])
    """
    if input.dim() != 3 or weight.dim() != 3 or bias.dim() != 1:
        raise errors.RuntimeError(
            "conv_tbc: expected input (time, batch, in), weight (window, in, out) and bias (out), got "
            f"{list(input.shape)}, {list(weight.shape)} and {list(bias.shape)}"
        )
    made = _C.conv1d(input.permute([1, 2, 0]), weight.permute([2, 1, 0]), bias, 1, pad)
    return made.permute([2, 0, 1])._result_of(input, True)


def _string_padding(
    input: Tensor, weight: Tensor, padding: str, stride: Any, dilation: Any, n: int
) -> tuple[Tensor, Any]:
    """The input and the number padding that "same" or "valid" stand for; an uneven "same" pads the input first."""
    if padding not in ("same", "valid"):
        raise errors.RuntimeError(f"conv{n}d: Invalid padding string {padding!r}, should be one of 'valid', 'same'")
    if padding == "valid":
        return input, 0
    if any(step != 1 for step in _each(stride, n)):
        raise errors.RuntimeError(f"conv{n}d: padding='same' is not supported for strided convolutions, got {stride}")
    around = _around("same", tuple(weight.shape)[-n:], _each(dilation, n))
    if all(low == high for low, high in zip(around[::2], around[1::2], strict=True)):
        return input, tuple(reversed(around[::2]))
    warn_once(
        "same",
        "padding='same' with windows of even length and an odd dilation may need a copy of the input.",
    )
    return _C.constant_pad_nd(input, around), 0


def _each(value: Any, n: int) -> tuple[int, ...]:
    if not isinstance(value, Sequence):
        return (value,) * n
    return tuple(value) * n if len(value) == 1 else tuple(value)


def _around(padding: Any, window: Sequence[int], dilation: Sequence[int]) -> list[int]:
    """What `pad` takes for a convolution's padding: low and high of the last dimension, then of the one before, …"""
    around: list[int] = []
    for i in reversed(range(len(window))):
        if padding == "valid":
            low = high = 0
        elif padding == "same":
            total = dilation[i] * (window[i] - 1)
            low, high = total // 2, total - total // 2
        else:
            low = high = padding[i]
        around += [low, high]
    return around


def _max_pool(n: int, space: str) -> tuple[_MaxPool, _MaxPool]:
    name = f"max_pool{n}d"
    run = getattr(_C, name)

    def call(
        input: Tensor,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        dilation: Any = 1,
        ceil_mode: bool = False,
        return_indices: bool = False,
    ) -> Any:
        made = run(input, kernel_size, stride, padding, dilation, ceil_mode)
        if return_indices:
            return made, _max_indices(input, n, kernel_size, stride, padding, dilation, ceil_mode)
        return made

    def with_indices(
        input: Tensor,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        dilation: Any = 1,
        ceil_mode: bool = False,
        return_indices: bool = False,
    ) -> Any:
        return call(input, kernel_size, stride, padding, dilation, ceil_mode, True)

    where = f"(N, C, {space}); with `return_indices` also its index in {space}, flat"
    return (
        _made(call, name, f"The largest element of each window of {where}."),
        _made(with_indices, f"{name}_with_indices", f"`{name}` with `return_indices`."),
    )


max_pool1d, max_pool1d_with_indices = _max_pool(1, "L")
max_pool2d, max_pool2d_with_indices = _max_pool(2, "H, W")
max_pool3d, max_pool3d_with_indices = _max_pool(3, "D, H, W")


def _max_indices(
    input: Tensor, n: int, kernel_size: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool
) -> Tensor:
    window = _each(kernel_size, n)
    steps = window if stride is None else _each(stride, n)
    alone = input.dim() == n + 1
    found = _C.max_pool_indices(
        input.unsqueeze(0) if alone else input, window, steps, _each(padding, n), _each(dilation, n), ceil_mode
    )
    return found.squeeze(0)._result_of(input) if alone else found


# These functions and the ops that they call share one documentation.
_INPLACE = "(bool, default: False): writes the result over `input`, and returns `input`."
_SPACES = {1: "L", 2: "H, W", 3: "D, H, W"}
for _op in (
    "relu",
    "silu",
    "relu6",
    "leaky_relu",
    "elu",
    "selu",
    "celu",
    "mish",
    "hardswish",
    "hardsigmoid",
    "hardtanh",
):
    share_sections(globals()[_op], getattr(_C, _op), inplace=_INPLACE)
for _op in ("threshold", "dropout"):
    share_sections(globals()[_op], getattr(_C, _op), inplace=_INPLACE)
for _op in ("leaky_relu", "elu", "selu", "celu", "hardtanh", "threshold", "rrelu"):
    share_in_place(globals()[_op + "_"], globals()[_op])
for _op in ("softmax", "log_softmax"):
    share_sections(globals()[_op], getattr(_C, _op))
for _n in _SPACES:
    share_sections(
        globals()[f"conv{_n}d"],
        getattr(_C, f"conv{_n}d"),
        padding='(int, tuple of ints or str, default: 0): zeros added on both sides of each spatial dimension; "valid" '
        'adds none, "same" as many as keep the size.',
    )
    for _pool in (f"max_pool{_n}d", f"max_pool{_n}d_with_indices"):
        share_sections(
            globals()[_pool],
            getattr(_C, f"max_pool{_n}d"),
            return_indices=f"(bool, default: False): also returns each element's flat index in ({_SPACES[_n]}), int64.",
        )

# What is made of several calls looks at its arguments, and says in its errors which function was called.
_COMPOSED = (
    *_ctc,
    *_distance,
    *_dropout,
    *_layers,
    *_loss,
    *_loss_classes,
    *_loss_linear,
    *_loss_plain,
    *_max_pooling,
    *_pooling,
    *_resample,
    *_resize,
)
for _name in (*_COMPOSED, "conv_tbc", "multi_head_attention_forward"):
    globals()[_name] = checked(globals()[_name], Parameter)

if not TYPE_CHECKING:
    __getattr__ = teller(__name__)
