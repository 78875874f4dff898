"""Ops that are recorded as what they are made of."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import lucid
import lucid.nn.functional as F
from lucid import Tensor


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """Softmax of the products, times the values."""
    if enable_gqa:
        n = query.shape[-3] // key.shape[-3]
        key, value = key.repeat_interleave(n, -3), value.repeat_interleave(n, -3)
    scores = lucid.matmul(query * (scale or 1.0 / math.sqrt(query.shape[-1])), key.transpose(-2, -1))
    if is_causal:
        keep = lucid.ones(query.shape[-2], key.shape[-2], dtype=lucid.bool, device=query.device).tril()
        attn_mask = keep if attn_mask is None else attn_mask
    if attn_mask is not None:
        if attn_mask.dtype == lucid.bool:
            scores = scores.masked_fill(lucid.logical_not(attn_mask), float("-inf"))
        else:
            scores = scores + attn_mask
    return lucid.matmul(lucid.softmax(scores, -1), value)


def multi_head_attention_forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim_to_check: int,
    num_heads: int,
    in_proj_weight: Tensor | None,
    in_proj_bias: Tensor | None,
    bias_k: Tensor | None,
    bias_v: Tensor | None,
    add_zero_attn: bool,
    dropout_p: float,
    out_proj_weight: Tensor,
    out_proj_bias: Tensor | None,
    training: bool = True,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    use_separate_proj_weight: bool = False,
    q_proj_weight: Tensor | None = None,
    k_proj_weight: Tensor | None = None,
    v_proj_weight: Tensor | None = None,
    static_k: Tensor | None = None,
    static_v: Tensor | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> Any:
    """Products, heads, attention and the last product, on `(L, N, E)`."""
    from lucid.onnx._build import OnnxExporterError

    plain = not add_zero_attn and bias_k is None and static_k is None and static_v is None
    if not plain or in_proj_weight is None or query.ndim != 3:
        raise OnnxExporterError(
            "onnx.export: multi_head_attention_forward with bias_k, add_zero_attn, separate weights or "
            "without a batch; write the attention with F.scaled_dot_product_attention"
        )
    tgt, _, embed = query.shape
    src, size = key.shape[0], embed // num_heads
    biases = [None] * 3 if in_proj_bias is None else list(in_proj_bias.chunk(3))
    q, k, v = (F.linear(x, w, b) for x, w, b in zip((query, key, value), in_proj_weight.chunk(3), biases, strict=True))
    q = q.reshape(tgt, -1, num_heads, size).permute(1, 2, 0, 3)
    k = k.reshape(src, -1, num_heads, size).permute(1, 2, 0, 3)
    v = v.reshape(src, -1, num_heads, size).permute(1, 2, 0, 3)
    scores = lucid.matmul(q * (1.0 / math.sqrt(size)), k.transpose(-2, -1))
    if attn_mask is not None:
        if attn_mask.ndim == 3:
            attn_mask = attn_mask.reshape(-1, num_heads, tgt, src)
        masked = attn_mask.dtype == lucid.bool
        scores = scores.masked_fill(attn_mask, float("-inf")) if masked else scores + attn_mask
    elif is_causal:
        later = lucid.ones(tgt, src, dtype=lucid.bool, device=query.device).triu(1)
        scores = scores.masked_fill(later, float("-inf"))
    if key_padding_mask is not None:
        padding = key_padding_mask.reshape(-1, 1, 1, src)
        masked = padding.dtype == lucid.bool
        scores = scores.masked_fill(padding, float("-inf")) if masked else scores + padding
    weights = lucid.softmax(scores, -1)
    out = lucid.matmul(weights, v).permute(2, 0, 1, 3).reshape(tgt, -1, embed)
    out = F.linear(out, out_proj_weight, out_proj_bias)
    if not need_weights:
        return out, None
    return out, weights.mean(1) if average_attn_weights else weights


def gelu(input: Tensor, approximate: str = "none") -> Tensor:
    """By the error function, or tanh."""
    if approximate == "tanh":
        inner = math.sqrt(2 / math.pi) * (input + 0.044715 * (input * input * input))
        return input * 0.5 * (lucid.tanh(inner) + 1.0)
    return input * 0.5 * (lucid.erf(input * math.sqrt(0.5)) + 1.0)


def silu(input: Tensor, inplace: bool = False) -> Tensor:
    """`x · sigmoid(x)`."""
    return input * lucid.sigmoid(input)


def group_norm(
    input: Tensor, num_groups: int, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Tensor:
    """Norms of groups of channels."""
    channels = input.shape[1]
    rows = input.reshape(-1, num_groups, input[0].numel() // num_groups)
    centred = rows - rows.mean(-1, keepdim=True)
    variance = (centred * centred).mean(-1, keepdim=True)
    out = (centred * lucid.rsqrt(variance + eps)).reshape(-1, *input.shape[1:])
    shape = [1, channels] + [1] * (input.ndim - 2)
    if weight is not None:
        out = out * weight.detach().reshape(shape)
    return out + bias.detach().reshape(shape) if bias is not None else out


def rms_norm(input: Tensor, normalized_shape: Any, weight: Tensor | None = None, eps: float | None = None) -> Tensor:
    """`x · rsqrt(mean(x²) + eps) · weight`."""
    dims = list(range(-len(normalized_shape), 0))
    eps = lucid.finfo(input.dtype).eps if eps is None else eps
    out: Tensor = input * lucid.rsqrt((input * input).mean(dims, keepdim=True) + eps)
    return out if weight is None else out * weight


def normalize(input: Tensor, p: float = 2.0, dim: int = 1, eps: float = 1e-12, out: Any = None) -> Tensor:
    """`x / max(‖x‖, eps)`, of order 2."""
    if p != 2.0:
        norm = (input.abs() ** p).sum(dim, keepdim=True) ** (1.0 / p)
    else:
        norm = lucid.sqrt((input * input).sum(dim, keepdim=True))
    return input / norm.clamp(min=eps)


def addmm(input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """`beta · input + alpha · mat1 @ mat2`."""
    product = lucid.matmul(mat1, mat2)
    product = product if alpha == 1 else product * alpha
    return product + (input if beta == 1 else input * beta)


def var(input: Tensor, dim: Any = None, unbiased: bool = True, keepdim: bool = False, correction: Any = None) -> Tensor:
    """The mean of squares about the mean."""
    by = int(unbiased) if correction is None else correction
    dims = list(range(input.ndim)) if dim is None else ([dim] if isinstance(dim, int) else list(dim))
    n = math.prod(input.shape[d] for d in dims)
    centred = input - input.mean(dims, keepdim=True)
    total: Tensor = (centred * centred).sum(dims, keepdim=keepdim) / (n - by)
    return total


DECOMPOSED: dict[str, Callable[..., Any]] = {
    f.__name__: f
    for f in (
        *(scaled_dot_product_attention, multi_head_attention_forward, gelu, silu, group_norm, rms_norm, normalize),
        *(addmm, var),
    )
}
