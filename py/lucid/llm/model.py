"""The decoder: one definition for Llama, Mistral, Mixtral, Qwen, Gemma 2 and 3 and Phi-3, by its `Config`.

Module and parameter names are Hugging Face's, so that checkpoints load by name. Weights are dense or quantised
(`lucid.quantization.quantize`); every layer works with either.
"""

from __future__ import annotations

import math
from typing import Any

import lucid
from lucid import Tensor, errors, nn
from lucid.llm.blocks import BlockEmbedding, Blocks
from lucid.llm.cache import Cache, LayerCache, RotatingCache
from lucid.llm.config import Config
from lucid.llm.rope import Rope, rotate
from lucid.llm.token_step import forget, step
from lucid.nn import functional as F
from lucid.nn.modules.quantized import QuantizedEmbedding, _Quantized
from lucid.nn.parameter import Parameter

#: The device of weights that are to be replaced: each is one element in memory, seen in every place.
BLANK = "blank"


def blank(shape: tuple[int, ...], dtype: Any = None) -> Tensor:
    """A tensor of this shape with the memory of one element."""
    return lucid.zeros((1,) * len(shape), dtype=dtype, device="cpu").expand(shape)


def linear(columns: int, rows: int, bias: bool, device: Any = None, dtype: Any = None) -> nn.Module:
    """`nn.Linear`, blank if asked for."""
    if device != BLANK:
        return nn.Linear(columns, rows, bias, device=device, dtype=dtype)
    made = nn.Linear.__new__(nn.Linear)
    nn.Module.__init__(made)
    made.in_features, made.out_features = columns, rows
    made.weight = Parameter(blank((rows, columns), dtype), requires_grad=False)
    made.register_parameter("bias", Parameter(blank((rows,), dtype), requires_grad=False) if bias else None)
    return made


def embedding(rows: int, columns: int, device: Any = None, dtype: Any = None) -> nn.Module:
    """`nn.Embedding`, blank if asked for."""
    if device != BLANK:
        return nn.Embedding(rows, columns, device=device, dtype=dtype)
    return nn.Embedding(rows, columns, _weight=blank((rows, columns), dtype), _freeze=True)


class RMSNorm(nn.Module):
    """`x / sqrt(mean(x²) + eps) · weight`, in float32; with `unit_offset` times `1 + weight`."""

    weight: Parameter

    def __init__(self, size: int, eps: float, unit_offset: bool = False, device: Any = None, dtype: Any = None) -> None:
        super().__init__()
        self.eps, self.unit_offset = eps, unit_offset
        start = lucid.zeros if unit_offset else lucid.ones
        value = blank((size,), dtype) if device == BLANK else start(size, device=device, dtype=dtype)
        self.weight = Parameter(value)

    def forward(self, x: Tensor) -> Tensor:
        if not self.unit_offset:
            return F.rms_norm(x, [x.shape[-1]], self.weight, self.eps)
        # Gemma's is multiplied before it is rounded.
        made = F.rms_norm(x.to(lucid.float32), [x.shape[-1]], 1.0 + self.weight.to(lucid.float32), self.eps)
        return made.to(x.dtype)


class Attention(nn.Module):
    """Attention with grouped heads, rotations and a cache."""

    def __init__(self, config: Config, layer: int, device: Any = None, dtype: Any = None) -> None:
        super().__init__()
        c, to = config, {"device": device, "dtype": dtype}
        self.heads, self.kv_heads, self.head_dim = c.num_attention_heads, c.num_key_value_heads, c.head_dim
        self.window = c.layer_windows[layer]
        self.scale = (c.query_pre_attn_scalar or c.head_dim) ** -0.5
        self.cap = c.attn_logit_softcapping
        self.q_proj = linear(c.hidden_size, self.heads * c.head_dim, c.qkv_bias, **to)
        self.k_proj = linear(c.hidden_size, self.kv_heads * c.head_dim, c.qkv_bias, **to)
        self.v_proj = linear(c.hidden_size, self.kv_heads * c.head_dim, c.qkv_bias, **to)
        self.o_proj = linear(self.heads * c.head_dim, c.hidden_size, c.o_bias, **to)
        self.q_norm = RMSNorm(c.head_dim, c.rms_norm_eps, c.unit_offset, **to) if c.qk_norm else None
        self.k_norm = RMSNorm(c.head_dim, c.rms_norm_eps, c.unit_offset, **to) if c.qk_norm else None

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, masks: Masks, cache: LayerCache | None) -> Tensor:
        batch, length, _ = x.shape

        def heads(y: Tensor, count: int, norm: RMSNorm | None) -> Tensor:
            y = y.reshape(batch, length, count, self.head_dim)
            return (y if norm is None else norm(y)).transpose(1, 2)

        q = rotate(heads(self.q_proj(x), self.heads, self.q_norm), cos, sin)
        k = rotate(heads(self.k_proj(x), self.kv_heads, self.k_norm), cos, sin)
        v = heads(self.v_proj(x), self.kv_heads, None)
        first = 0
        if cache is not None:
            k, v, first = cache.update(k, v)
        mask = masks.of(self.window, k.shape[2], first, cache)
        if self.cap is None:
            made = F.scaled_dot_product_attention(
                q, k, v, attn_mask=mask, is_causal=mask is None and length > 1, scale=self.scale, enable_gqa=True
            )
        else:
            made = self._capped(q, k, v, masks.full(self.window, k.shape[2], first, cache))
        y: Tensor = self.o_proj(made.transpose(1, 2).reshape(batch, length, self.heads * self.head_dim))
        return y

    def _capped(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        """Attention whose scores go through `cap · tanh(score / cap)`."""
        assert self.cap is not None
        k, v = (t.repeat_interleave(self.heads // self.kv_heads, 1) for t in (k, v))
        scores = (q @ k.transpose(-1, -2)) * self.scale
        scores = (scores / self.cap).tanh() * self.cap
        # Rows that may look nowhere are padding: any finite weights do.
        scores = scores.to(lucid.float32).masked_fill(~mask, -1e30)
        made: Tensor = scores.softmax(-1).to(v.dtype) @ v
        return made


class Masks:
    """Which tokens a step's queries may look at, made once for all layers of a kind."""

    def __init__(self, length: int, offset: int, padding: Tensor | None, device: Any) -> None:
        self.length, self.offset, self.padding, self.device = length, offset, padding, device
        self._made: dict[Any, Tensor] = {}

    def of(self, window: int | None, keys: int, first: int, cache: LayerCache | None) -> Tensor | None:
        """A mask (B or 1, 1, L, S), true where a query may look; None where causality alone says it."""
        within = window is None or self.offset + self.length <= window
        ring = first < 0
        if self.padding is None:
            if self.length == 1 and (within or ring or (window is not None and keys <= window)):
                return None
            if within and self.offset == 0:
                return None
        return self.full(window, keys, first, cache)

    def full(self, window: int | None, keys: int, first: int, cache: LayerCache | None) -> Tensor:
        """The same, always."""
        key = (window, keys, first)
        if key not in self._made:
            if first < 0:
                assert isinstance(cache, RotatingCache)
                at = cache.tokens(self.device)
            else:
                at = lucid.arange(first, first + keys, device=self.device)
            query = lucid.arange(self.offset, self.offset + self.length, device=self.device)[:, None]
            mask = at <= query
            if window is not None:
                mask = mask & (at > query - window)
            mask = mask[None, None]
            if self.padding is not None:
                mask = mask & (at >= self.padding[:, None, None, None])
            self._made[key] = mask
        return self._made[key]


def _gelu_tanh(x: Tensor) -> Tensor:
    return F.gelu(x, approximate="tanh")


def _activation(name: str) -> Any:
    return {"silu": F.silu, "gelu_pytorch_tanh": _gelu_tanh}.get(name, F.gelu)


class MLP(nn.Module):
    """`down(act(gate(x)) · up(x))`."""

    def __init__(self, config: Config, device: Any = None, dtype: Any = None) -> None:
        super().__init__()
        c, to = config, {"device": device, "dtype": dtype}
        self.gate_proj = linear(c.hidden_size, c.intermediate_size, c.mlp_bias, **to)
        self.up_proj = linear(c.hidden_size, c.intermediate_size, c.mlp_bias, **to)
        self.down_proj = linear(c.intermediate_size, c.hidden_size, c.mlp_bias, **to)
        self.act = _activation(c.hidden_act)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.down_proj(self.act(self.gate_proj(x)) * self.up_proj(x))
        return y


class ExpertLinear(nn.Module):
    """The matrices (out, in) of all experts: `weight` (experts, out, in)."""

    weight: Parameter

    def __init__(self, experts: int, columns: int, rows: int, device: Any = None, dtype: Any = None) -> None:
        super().__init__()
        self.quantized_columns = columns
        shape = (experts, rows, columns)
        if device == BLANK:
            self.weight = Parameter(blank(shape, dtype))
            return
        self.weight = Parameter(lucid.empty(shape, device=device, dtype=dtype))
        nn.init.uniform_(self.weight, -1 / math.sqrt(columns), 1 / math.sqrt(columns))

    def to_quantized(self, group_size: int, bits: int) -> QuantizedExpertLinear:
        """With the weights quantised."""
        w = self.weight
        made = QuantizedExpertLinear(tuple(w.shape), group_size, bits, device=w.device, dtype=w.dtype)
        made.set_weight(w)
        return made

    def of_expert(self, x: Tensor, expert: int) -> Tensor:
        """`x` (N, in) by one expert."""
        return F.linear(x, self.weight[expert])


class QuantizedExpertLinear(_Quantized):
    """`ExpertLinear` with quantised matrices."""

    def gathered(self, x: Tensor, experts: Tensor, rows: Tensor) -> Tensor:
        """Row `rows[i]` of `x` (N, in) by expert `experts[i]`: (*experts, out)."""
        made = lucid.gather_qmm(
            x[:, None], self.weight, self.scales, self.biases, experts, rows,
            group_size=self.group_size, bits=self.bits,
        )  # fmt: skip
        return made.squeeze(-2)

    def of_expert(self, x: Tensor, expert: int) -> Tensor:
        """`x` (N, in) by one expert."""
        parts = (self.weight[expert], self.scales[expert], self.biases[expert])
        return lucid.quantized_matmul(x, *parts, group_size=self.group_size, bits=self.bits)


class MoE(nn.Module):
    """Each token through its best experts, by their shares (Mixtral, Qwen 3 MoE)."""

    def __init__(self, config: Config, device: Any = None, dtype: Any = None) -> None:
        super().__init__()
        c, to = config, {"device": device, "dtype": dtype}
        self.experts, self.chosen, self.norm = c.num_experts, c.num_experts_per_tok, c.norm_topk_prob
        self.gate = linear(c.hidden_size, c.num_experts, False, **to)
        self.gate_proj: Any = ExpertLinear(c.num_experts, c.hidden_size, c.moe_intermediate_size, **to)
        self.up_proj: Any = ExpertLinear(c.num_experts, c.hidden_size, c.moe_intermediate_size, **to)
        self.down_proj: Any = ExpertLinear(c.num_experts, c.moe_intermediate_size, c.hidden_size, **to)
        self.act = _activation(c.hidden_act)

    def forward(self, x: Tensor) -> Tensor:
        flat = x.reshape(-1, x.shape[-1])
        shares, chosen = self.gate(flat).to(lucid.float32).softmax(-1).topk(self.chosen, -1)
        if self.norm:
            shares = shares / shares.sum(-1, keepdim=True)
        shares = shares.to(x.dtype)
        gate, up, down = self.gate_proj, self.up_proj, self.down_proj
        if all(isinstance(m, QuantizedExpertLinear) for m in (gate, up, down)):
            rows = lucid.arange(flat.shape[0], device=x.device)[:, None].expand_as(chosen)
            y = self.act(gate.gathered(flat, chosen, rows)) * up.gathered(flat, chosen, rows)
            each = lucid.arange(chosen.numel(), device=x.device).reshape(chosen.shape)
            y = down.gathered(y.reshape(-1, y.shape[-1]), chosen, each)
            mixed: Tensor = (y * shares[..., None]).sum(-2).reshape(x.shape)
            return mixed
        made = lucid.zeros_like(flat)
        for expert in range(self.experts):
            token, place = (chosen == expert).nonzero(as_tuple=True)
            if token.numel() == 0:
                continue
            rows = flat.index_select(0, token)
            y = self.act(gate.of_expert(rows, expert)) * up.of_expert(rows, expert)
            y = down.of_expert(y, expert) * shares[token, place][:, None]
            made = made.index_add(0, token, y)
        return made.reshape(x.shape)


class Layer(nn.Module):
    """Attention and MLP, each behind a norm and beside a residual; Gemma 2 and 3 have norms behind them too."""

    def __init__(self, config: Config, layer: int, device: Any = None, dtype: Any = None) -> None:
        super().__init__()
        c, to = config, {"device": device, "dtype": dtype}

        def norm() -> RMSNorm:
            return RMSNorm(c.hidden_size, c.rms_norm_eps, c.unit_offset, **to)

        self.self_attn = Attention(c, layer, **to)
        self.mlp: nn.Module = MoE(c, **to) if c.sparse_layers[layer] else MLP(c, **to)
        self.input_layernorm = norm()
        self.post_attention_layernorm = norm()
        self.pre_feedforward_layernorm = norm() if c.post_norms else None
        self.post_feedforward_layernorm = norm() if c.post_norms else None

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, masks: Masks, cache: LayerCache | None) -> Tensor:
        y: Tensor = self.self_attn(self.input_layernorm(x), cos, sin, masks, cache)
        if self.pre_feedforward_layernorm is None or self.post_feedforward_layernorm is None:
            x = x + y
            y = self.mlp(self.post_attention_layernorm(x))
            return x + y
        x = x + self.post_attention_layernorm(y)
        y = self.post_feedforward_layernorm(self.mlp(self.pre_feedforward_layernorm(x)))
        return x + y


class Decoder(nn.Module):
    """Embeddings, layers and the last norm."""

    def __init__(self, config: Config, device: Any = None, dtype: Any = None) -> None:
        super().__init__()
        c, to = config, {"device": device, "dtype": dtype}
        self.embed_tokens = embedding(c.vocab_size, c.hidden_size, **to)
        self.layers = nn.ModuleList([Layer(c, i, **to) for i in range(c.num_hidden_layers)])
        self.norm = RMSNorm(c.hidden_size, c.rms_norm_eps, c.unit_offset, **to)


class CausalLM(nn.Module):
    """A decoder-only language model. `forward` takes tokens (B, L), integers, and gives logits (B, L, vocab_size).

    Args:
        config (Config): its sizes and switches.
        device (device or str, optional): where the parameters are. Default: the default device.
        dtype (dtype, optional): the parameters' dtype. Default: the default dtype.

    Example:
        >>> config = lucid.llm.Config("llama", 32, 16, 32, 2, 2, 1, 8)
        >>> model = lucid.llm.CausalLM(config)
        >>> model(lucid.tensor([[1, 2, 3]])).shape
        lucid.Size([1, 3, 32])
    """

    def __init__(self, config: Config, device: Any = None, dtype: Any = None) -> None:
        super().__init__()
        self.config = config
        self.model = Decoder(config, device, dtype)
        self.lm_head: nn.Module | None = None
        if not config.tie_word_embeddings:
            self.lm_head = linear(config.hidden_size, config.vocab_size, False, device, dtype)
        self.rope = Rope(config)
        self.local_rope = None if config.rope_local_theta is None else Rope(config, local=True)

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        # What the engine holds of the old parameters would keep their memory.
        forget(self)
        return super()._apply(fn, recurse)

    @property
    def device(self) -> Any:
        """Where the model is."""
        return self.model.norm.weight.device

    def forward(
        self,
        tokens: Tensor,
        cache: Cache | None = None,
        padding: Tensor | None = None,
        last_only: bool = False,
    ) -> Tensor:
        """The logits of the tokens after each of `tokens`.

        Args:
            tokens: Numbers of tokens (B, L).
            cache: What earlier calls with it have seen comes before `tokens`; it takes what this call adds.
            padding: How many tokens at the start of each sequence are padding, (B,); the cache's own where there is
            one.
            last_only: Give logits (B, 1, vocab_size) of the last token alone.

        Raises ValueError for tokens that are not (B, L).
        """
        if cache is not None and padding is None and tokens.ndim == 2 and (last_only or tokens.shape[1] == 1):
            made = step(self, tokens, cache)
            if made is not None:
                return made[:, None]
        x = self.hidden(tokens, cache, padding)
        return self.logits(x[:, -1:] if last_only else x)

    def begin(
        self, tokens: Tensor, cache: Cache | None = None, padding: Tensor | None = None
    ) -> tuple[Tensor, list[tuple[Tensor, Tensor]], Masks]:
        """What the first layer takes: embeddings (B, L, hidden_size), cosines and sines for each layer, and masks."""
        if tokens.ndim != 2 or tokens.shape[1] == 0:
            raise errors.ValueError(f"CausalLM: expected tokens of shape (B, L), got {tuple(tokens.shape)}")
        if cache is not None and padding is None:
            padding = cache.padding
        offset = cache.offset if cache is not None else 0
        length = tokens.shape[1]
        device = tokens.device
        positions = lucid.arange(offset, offset + length, device=device)[None]
        if padding is not None:
            positions = (positions - padding[:, None]).clamp(min=0)
        embed: Any = self.model.embed_tokens
        x: Tensor = embed(tokens)
        if self.config.scale_embeddings:
            x = x * lucid.tensor(self.config.hidden_size**0.5, dtype=x.dtype, device=device)

        def angles(rope: Rope) -> tuple[Tensor, Tensor]:
            cos, sin = rope.angles(positions, offset + length, padding)
            return cos.to(x.dtype), sin.to(x.dtype)

        whole = angles(self.rope)
        local = whole if self.local_rope is None else angles(self.local_rope)
        by_layer = [whole if window is None else local for window in self.config.layer_windows]
        return x, by_layer, Masks(length, offset, padding, device)

    def hidden(self, tokens: Tensor, cache: Cache | None = None, padding: Tensor | None = None) -> Tensor:
        """What `logits` takes: the last layer's output (B, L, hidden_size) behind the last norm. Arguments as of
        `forward`."""
        x, angles, masks = self.begin(tokens, cache, padding)
        for i, layer in enumerate(self.model.layers):
            x = layer(x, *angles[i], masks, None if cache is None else cache.layers[i])
        if cache is not None:
            cache.offset += tokens.shape[1]
        y: Tensor = self.model.norm(x)
        return y

    def logits(self, x: Tensor) -> Tensor:
        """The logits (B, L, vocab_size) of hidden states (B, L, hidden_size)."""
        embed: Any = self.model.embed_tokens
        if self.lm_head is not None:
            logits: Tensor = self.lm_head(x)
        elif isinstance(embed, (QuantizedEmbedding, BlockEmbedding)):
            logits = embed.as_linear(x)
        else:
            logits = F.linear(x, embed.weight)
        cap = self.config.final_logit_softcapping
        return logits if cap is None else (logits / cap).tanh() * cap

    def num_parameters(self) -> int:
        """How many parameters the model has, those that are packed counted as they were."""
        count = sum(p.numel() for p in self.parameters())
        packed = (m for m in self.modules() if isinstance(m, _Quantized))
        blocks = sum(m.rows * m.columns for m in self.modules() if isinstance(m, Blocks))
        return count + blocks + sum(m.scales.numel() * m.group_size for m in packed)
