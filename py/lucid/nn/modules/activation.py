"""Element-wise activations, softmax, and attention."""

from __future__ import annotations

from typing import Any

import lucid
from lucid import Tensor, errors
from lucid._warnings import warn
from lucid.nn import functional as F
from lucid.nn import init
from lucid.nn.modules.linear import NonDynamicallyQuantizableLinear
from lucid.nn.modules.module import Module
from lucid.nn.parameter import Parameter

__all__ = [
    "CELU",
    "ELU",
    "GELU",
    "GLU",
    "SELU",
    "Hardshrink",
    "Hardsigmoid",
    "Hardswish",
    "Hardtanh",
    "LeakyReLU",
    "LogSigmoid",
    "LogSoftmax",
    "Mish",
    "MultiheadAttention",
    "PReLU",
    "RReLU",
    "ReLU",
    "ReLU6",
    "SiLU",
    "Sigmoid",
    "Softmax",
    "Softmax2d",
    "Softmin",
    "Softplus",
    "Softshrink",
    "Softsign",
    "Tanh",
    "Tanhshrink",
    "Threshold",
]


class _InPlace(Module):
    """An activation whose one option is whether to write over the input."""

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace

    def extra_repr(self) -> str:
        return "inplace=True" if self.inplace else ""


class ReLU(_InPlace):
    """`max(x, 0)`. `inplace` writes over the input."""

    def forward(self, input: Tensor) -> Tensor:
        return F.relu(input, self.inplace)


class SiLU(_InPlace):
    """`x · sigmoid(x)`. `inplace` writes over the input."""

    def forward(self, input: Tensor) -> Tensor:
        return F.silu(input, self.inplace)


class GELU(Module):
    """`x Φ(x)`; `approximate="tanh"` takes the usual approximation. Default: "none"."""

    def __init__(self, approximate: str = "none") -> None:
        super().__init__()
        self.approximate = approximate

    def forward(self, input: Tensor) -> Tensor:
        return F.gelu(input, approximate=self.approximate)

    def extra_repr(self) -> str:
        return f"approximate={self.approximate!r}"


class Tanh(Module):
    """`tanh(x)`."""

    def __init__(self) -> None:
        super().__init__()

    def forward(self, input: Tensor) -> Tensor:
        return F.tanh(input)


class Sigmoid(Module):
    """`1 / (1 + exp(-x))`."""

    def __init__(self) -> None:
        super().__init__()

    def forward(self, input: Tensor) -> Tensor:
        return F.sigmoid(input)


class LeakyReLU(Module):
    """`x` above 0, `negative_slope · x` below. Default slope: 0.01. `inplace` writes over the input."""

    def __init__(self, negative_slope: float = 0.01, inplace: bool = False) -> None:
        super().__init__()
        self.negative_slope = negative_slope
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        return F.leaky_relu(input, self.negative_slope, self.inplace)

    def extra_repr(self) -> str:
        return f"negative_slope={self.negative_slope}{', inplace=True' if self.inplace else ''}"


class _Exponential(Module):
    """An activation that goes to `-alpha`."""

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        super().__init__()
        self.alpha = alpha
        self.inplace = inplace

    def extra_repr(self) -> str:
        return f"alpha={self.alpha}{', inplace=True' if self.inplace else ''}"


class ELU(_Exponential):
    """`x` above 0, `alpha · (exp(x) - 1)` below. Default alpha: 1. `inplace` writes over the input."""

    def forward(self, input: Tensor) -> Tensor:
        return F.elu(input, self.alpha, self.inplace)


class Softplus(Module):
    """`log(1 + exp(beta x)) / beta`; `x` itself where `beta x > threshold`. Defaults: beta 1, threshold 20."""

    def __init__(self, beta: float = 1.0, threshold: float = 20.0) -> None:
        super().__init__()
        self.beta = beta
        self.threshold = threshold

    def forward(self, input: Tensor) -> Tensor:
        return F.softplus(input, self.beta, self.threshold)

    def extra_repr(self) -> str:
        return f"beta={self.beta}, threshold={self.threshold}"


def _refuse_dim(dim: Any) -> None:
    if dim is not None and (not isinstance(dim, int) or isinstance(dim, bool)):
        raise errors.TypeError(f"dim must be an int or None, got {type(dim)}")


class _AlongDim(Module):
    """A softmax along `dim`."""

    def __init__(self, dim: int | None = None) -> None:
        _refuse_dim(dim)
        super().__init__()
        self.dim = dim

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self.__dict__.setdefault("dim", None)

    def extra_repr(self) -> str:
        return f"dim={self.dim}"


class Softmax(_AlongDim):
    """`exp(x) / sum(exp(x))` along `dim`."""

    def forward(self, input: Tensor) -> Tensor:
        return F.softmax(input, self.dim, _stacklevel=5)


class LogSoftmax(_AlongDim):
    """`log(softmax(x))` along `dim`, without overflow."""

    def forward(self, input: Tensor) -> Tensor:
        return F.log_softmax(input, self.dim, _stacklevel=5)


class SELU(_InPlace):
    """`scale · (max(x, 0) + min(0, alpha · (exp(x) - 1)))` with selu's constants. `inplace` writes over the input."""

    def forward(self, input: Tensor) -> Tensor:
        return F.selu(input, self.inplace)


class Mish(_InPlace):
    """`x · tanh(softplus(x))`. `inplace` writes over the input."""

    def forward(self, input: Tensor) -> Tensor:
        return F.mish(input, self.inplace)


class Hardswish(_InPlace):
    """`x · relu6(x + 3) / 6`. `inplace` writes over the input."""

    def forward(self, input: Tensor) -> Tensor:
        return F.hardswish(input, self.inplace)

    def extra_repr(self) -> str:
        return ""


class Hardsigmoid(_InPlace):
    """`relu6(x + 3) / 6`. `inplace` writes over the input."""

    def forward(self, input: Tensor) -> Tensor:
        return F.hardsigmoid(input, self.inplace)

    def extra_repr(self) -> str:
        return ""


class CELU(_Exponential):
    """`max(x, 0) + min(0, alpha · (exp(x / alpha) - 1))`. Default alpha: 1. `inplace` writes over the input."""

    def forward(self, input: Tensor) -> Tensor:
        return F.celu(input, self.alpha, self.inplace)


class Hardtanh(Module):
    """`x` held within `min_val` (default: -1) to `max_val` (default: 1). `inplace` writes over the input."""

    def __init__(
        self,
        min_val: float = -1.0,
        max_val: float = 1.0,
        inplace: bool = False,
        min_value: float | None = None,
        max_value: float | None = None,
    ) -> None:
        super().__init__()
        for value, older, newer in ((min_value, "min_value", "min_val"), (max_value, "max_value", "max_val")):
            if value is not None:
                warn(f"keyword argument `{older}` is deprecated and renamed to `{newer}`", FutureWarning)
        self.min_val = min_val if min_value is None else min_value
        self.max_val = max_val if max_value is None else max_value
        self.inplace = inplace
        if self.max_val <= self.min_val:
            raise AssertionError(f"max_val ({max_val}) must be larger than min_val ({min_val})")

    def forward(self, input: Tensor) -> Tensor:
        return F.hardtanh(input, self.min_val, self.max_val, self.inplace)

    def extra_repr(self) -> str:
        return f"min_val={self.min_val}, max_val={self.max_val}{', inplace=True' if self.inplace else ''}"


class ReLU6(Hardtanh):
    """`min(max(x, 0), 6)`. `inplace` writes over the input."""

    def __init__(self, inplace: bool = False) -> None:
        super().__init__(0.0, 6.0, inplace)

    def forward(self, input: Tensor) -> Tensor:
        return F.relu6(input, self.inplace)

    def extra_repr(self) -> str:
        return "inplace=True" if self.inplace else ""


class LogSigmoid(Module):
    """`log(1 / (1 + exp(-x)))`, without overflow."""

    def __init__(self) -> None:
        super().__init__()

    def forward(self, input: Tensor) -> Tensor:
        return F.logsigmoid(input)


class Softsign(Module):
    """`x / (1 + |x|)`."""

    def __init__(self) -> None:
        super().__init__()

    def forward(self, input: Tensor) -> Tensor:
        return F.softsign(input)


class Tanhshrink(Module):
    """`x - tanh(x)`."""

    def __init__(self) -> None:
        super().__init__()

    def forward(self, input: Tensor) -> Tensor:
        return F.tanhshrink(input)


class _Shrink(Module):
    """An activation that is 0 within `lambd`."""

    def __init__(self, lambd: float = 0.5) -> None:
        super().__init__()
        self.lambd = lambd

    def extra_repr(self) -> str:
        return f"{self.lambd}"


class Hardshrink(_Shrink):
    """`x` where `|x| > lambd` (default: 0.5), else 0."""

    def forward(self, input: Tensor) -> Tensor:
        return F.hardshrink(input, self.lambd)


class Softshrink(_Shrink):
    """`x` moved towards 0 by `lambd` (default: 0.5), and 0 within it."""

    def forward(self, input: Tensor) -> Tensor:
        return F.softshrink(input, self.lambd)


class Threshold(Module):
    """`x` where `x > threshold`, else `value`. `inplace` writes over the input."""

    def __init__(self, threshold: float, value: float, inplace: bool = False) -> None:
        super().__init__()
        self.threshold = threshold
        self.value = value
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        return F.threshold(input, self.threshold, self.value, self.inplace)

    def extra_repr(self) -> str:
        return f"threshold={self.threshold}, value={self.value}{', inplace=True' if self.inplace else ''}"


class PReLU(Module):
    """`x` above 0, `weight · x` below, with a learned weight for all channels or one each (He et al., 2015).

    Args:
        num_parameters: 1, or the number of channels. Default: 1.
        init: The first weight. Default: 0.25.
    """

    weight: Parameter

    def __init__(self, num_parameters: int = 1, init: float = 0.25, device: Any = None, dtype: Any = None) -> None:
        super().__init__()
        self.num_parameters = num_parameters
        self.init = init
        self.weight = Parameter(lucid.empty(num_parameters, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Sets the weight to its first value."""
        init.constant_(self.weight, self.init)

    def forward(self, input: Tensor) -> Tensor:
        return F.prelu(input, self.weight)

    def extra_repr(self) -> str:
        return f"num_parameters={self.num_parameters}"


class RReLU(Module):
    """`x` above 0, `a x` below; `a` is random from `lower` (1/8) to `upper` (1/3) in training, else their mean."""

    def __init__(self, lower: float = 1.0 / 8, upper: float = 1.0 / 3, inplace: bool = False) -> None:
        super().__init__()
        self.lower = lower
        self.upper = upper
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        return F.rrelu(input, self.lower, self.upper, self.training, self.inplace)

    def extra_repr(self) -> str:
        return f"lower={self.lower}, upper={self.upper}{', inplace=True' if self.inplace else ''}"


class GLU(Module):
    """The first half along `dim` (default: -1) times the sigmoid of the second."""

    def __init__(self, dim: int = -1) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, input: Tensor) -> Tensor:
        return F.glu(input, self.dim)

    def extra_repr(self) -> str:
        return f"dim={self.dim}"


class Softmin(_AlongDim):
    """`softmax(-x)` along `dim`."""

    def forward(self, input: Tensor) -> Tensor:
        return F.softmin(input, self.dim, _stacklevel=5)


class Softmax2d(Module):
    """`softmax` over the channels of (N, C, H, W) or (C, H, W)."""

    def __init__(self) -> None:
        super().__init__()

    def forward(self, input: Tensor) -> Tensor:
        if input.dim() not in (3, 4):
            raise errors.ValueError(f"Softmax2d: expected input to be 3D or 4D, got {input.dim()}D instead")
        return F.softmax(input, -3, _stacklevel=5)


class MultiheadAttention(Module):
    """`num_heads` attentions side by side, each on its own projection of query, key and value (Vaswani et al., 2017).

    Args:
        embed_dim: Size of the query and of the output; a multiple of `num_heads`.
        num_heads: How many heads.
        dropout: Probability of dropping an attention weight in training. Default: 0.
        bias: Whether the projections have biases. Default: True.
        add_bias_kv: Whether to append a learned position to keys and values. Default: False.
        add_zero_attn: Whether to append a position of zeros. Default: False.
        kdim: Size of the keys. Default: `embed_dim`.
        vdim: Size of the values. Default: `embed_dim`.
        batch_first: Whether the batch comes before the length. Default: False.

    Parameters have PyTorch's names: `in_proj_weight` (or `q_proj_weight`, `k_proj_weight`, `v_proj_weight` where sizes
    differ), `in_proj_bias`, `bias_k`, `bias_v`, `out_proj.weight`, `out_proj.bias`.
    """

    in_proj_weight: Parameter | None
    in_proj_bias: Parameter | None
    q_proj_weight: Parameter | None
    k_proj_weight: Parameter | None
    v_proj_weight: Parameter | None
    bias_k: Parameter | None
    bias_v: Parameter | None
    out_proj: NonDynamicallyQuantizableLinear

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        if embed_dim <= 0 or num_heads <= 0:
            raise errors.ValueError(
                f"embed_dim and num_heads must be greater than 0, "
                f"got embed_dim={embed_dim} and num_heads={num_heads} instead"
            )
        super().__init__()
        self.embed_dim = embed_dim
        self.kdim = embed_dim if kdim is None else kdim
        self.vdim = embed_dim if vdim is None else vdim
        self._qkv_same_embed_dim = self.kdim == embed_dim and self.vdim == embed_dim
        self.num_heads = num_heads
        self.dropout = dropout
        self.batch_first = batch_first
        self.head_dim = embed_dim // num_heads
        if self.head_dim * num_heads != embed_dim:
            raise AssertionError(f"embed_dim must be divisible by num_heads, got {embed_dim} and {num_heads}")

        def blank(wanted: bool, *shape: int) -> Parameter | None:
            return Parameter(lucid.empty(shape, device=device, dtype=dtype)) if wanted else None

        same = self._qkv_same_embed_dim
        self.register_parameter("q_proj_weight", blank(not same, embed_dim, embed_dim))
        self.register_parameter("k_proj_weight", blank(not same, embed_dim, self.kdim))
        self.register_parameter("v_proj_weight", blank(not same, embed_dim, self.vdim))
        self.register_parameter("in_proj_weight", blank(same, 3 * embed_dim, embed_dim))
        self.register_parameter("in_proj_bias", blank(bias, 3 * embed_dim))
        self.out_proj = NonDynamicallyQuantizableLinear(embed_dim, embed_dim, bias=bias, device=device, dtype=dtype)
        self.register_parameter("bias_k", blank(add_bias_kv, 1, 1, embed_dim))
        self.register_parameter("bias_v", blank(add_bias_kv, 1, 1, embed_dim))
        self.add_zero_attn = add_zero_attn
        self._reset_parameters()

    def _reset_parameters(self) -> None:
        for weight in (self.in_proj_weight, self.q_proj_weight, self.k_proj_weight, self.v_proj_weight):
            if weight is not None:
                init.xavier_uniform_(weight)
        for bias in (self.in_proj_bias, self.out_proj.bias):
            if bias is not None:
                init.zeros_(bias)
        for position in (self.bias_k, self.bias_v):
            if position is not None:
                init.xavier_normal_(position)

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Attends from `query` to `key`, and mixes `value`.

        Args:
            query: (L, N, embed_dim), (N, L, embed_dim) with `batch_first`, or (L, embed_dim).
            key: As query, with length S and size `kdim`.
            value: As query, with length S and size `vdim`.
            key_padding_mask: (N, S) or (S): True, or -inf, where a key is not to be seen. Default: None.
            need_weights: Whether to give the weights too, which takes the slow path. Default: True.
            attn_mask: (L, S) or (N · num_heads, L, S): True, or -inf, where not to look. Default: None.
            average_attn_weights: Whether the weights are averaged over heads. Default: True.
            is_causal: A hint that `attn_mask` is the causal mask. Default: False.

        Returns the output, shaped as the query, and the weights (N, L, S), (N, num_heads, L, S) or None.
        """
        swap = self.batch_first and query.dim() == 3
        if swap:
            # The same tensor three times stays so: it is then projected at once.
            if query is key and key is value:
                query = key = value = query.transpose(0, 1)
            else:
                query, key, value = (x.transpose(0, 1) for x in (query, key, value))
        output, weights = F.multi_head_attention_forward(
            query,
            key,
            value,
            self.embed_dim,
            self.num_heads,
            self.in_proj_weight,
            self.in_proj_bias,
            self.bias_k,
            self.bias_v,
            self.add_zero_attn,
            self.dropout,
            self.out_proj.weight,
            self.out_proj.bias,
            self.training,
            key_padding_mask,
            need_weights,
            attn_mask,
            not self._qkv_same_embed_dim,
            self.q_proj_weight,
            self.k_proj_weight,
            self.v_proj_weight,
            average_attn_weights=average_attn_weights,
            is_causal=is_causal,
        )
        return (output.transpose(0, 1) if swap else output), weights
