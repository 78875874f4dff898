"""What a decoder is made of: one `Config` for every architecture, read from `config.json` or from GGUF metadata."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from lucid import errors

#: Hugging Face's `model_type`s that `Config.from_hf` reads.
ARCHITECTURES = ("llama", "mistral", "mixtral", "qwen2", "qwen3", "qwen3_moe", "gemma2", "gemma3_text", "phi3")
#: The same by `general.architecture` of GGUF files. Mistral's, Mixtral's and SmolLM's files say `llama`.
GGUF_ARCHITECTURES = {
    "llama": "llama",
    "qwen2": "qwen2",
    "qwen3": "qwen3",
    "qwen3moe": "qwen3_moe",
    "gemma2": "gemma2",
    "gemma3": "gemma3_text",
    "phi3": "phi3",
}
_MOST = 1 << 24


@dataclasses.dataclass
class Config:
    """Sizes and switches of a decoder-only transformer, named as in Hugging Face's `config.json` where it has them.

    Args:
        model_type (str): such as `"llama"` or `"qwen3"`.
        vocab_size (int): how many tokens there are.
        hidden_size (int): features of a token between layers.
        intermediate_size (int): features inside an MLP.
        num_hidden_layers (int): how many layers there are.
        num_attention_heads (int): heads of queries.
        num_key_value_heads (int): heads of keys and values, which divide those of queries.
        head_dim (int): features of a head.
        rms_norm_eps (float, optional): what RMSNorm adds to the mean square. Default: 1e-6.
        rope_theta (float, optional): the base of rotary embeddings' wavelengths. Default: 10000.
        rope_scaling (dict, optional): how they are scaled for longer texts, with `rope_type`. Default: not.
        rope_local_theta (float, optional): the base for layers with a window (Gemma 3). Default: `rope_theta`.
        partial_rotary_factor (float, optional): the share of a head's features that is rotated. Default: 1.
        max_position_embeddings (int, optional): the longest text, in tokens. Default: 2048.
        tie_word_embeddings (bool, optional): whether logits use the embedding's weight. Default: False.
        qkv_bias (bool, optional): whether the projections of queries, keys and values have a bias. Default: False.
        o_bias (bool, optional): whether attention's output projection has one. Default: False.
        mlp_bias (bool, optional): whether the MLP's projections have one. Default: False.
        hidden_act (str, optional): `"silu"`, `"gelu"` or `"gelu_pytorch_tanh"`. Default: `"silu"`.
        layer_windows (list of int or None, optional): for each layer how many tokens attention sees; None: all.
            Default: all in each.
        qk_norm (bool, optional): whether each head's queries and keys pass RMSNorm (Qwen 3). Default: False.
        num_experts (int, optional): experts of a mixture. Default: 0, dense MLPs.
        num_experts_per_tok (int, optional): how many experts see a token. Default: 0.
        moe_intermediate_size (int, optional): features inside an expert. Default: 0.
        norm_topk_prob (bool, optional): whether the chosen experts' weights are scaled to sum 1. Default: True.
        sparse_layers (list of bool, optional): which layers have experts. Default: all where `num_experts` > 0.
        unit_offset (bool, optional): whether RMSNorm multiplies by `1 + weight` (Gemma). Default: False.
        post_norms (bool, optional): whether norms follow attention and MLP, too (Gemma 2). Default: False.
        scale_embeddings (bool, optional): whether embeddings are multiplied by √hidden_size (Gemma). Default: False.
        attn_logit_softcapping (float, optional): the bound `c` in `c · tanh(score / c)` of attention. Default: none.
        final_logit_softcapping (float, optional): the same for the logits. Default: none.
        query_pre_attn_scalar (float, optional): scores are divided by its root. Default: `head_dim`.
        bos_token_id (int, optional): the token that begins a text. Default: none.
        eos_token_id (list of int, optional): the tokens that end one. Default: none.
        pad_token_id (int, optional): the token that pads a batch. Default: none.

    Raises:
        ValueError: a size is no positive integer, sizes do not divide, the activation is not known, or a list does not
            have an entry for each layer.

    Example:
        >>> config = lucid.llm.Config(
        ...     "llama",
        ...     vocab_size=32,
        ...     hidden_size=16,
        ...     intermediate_size=32,
        ...     num_hidden_layers=2,
        ...     num_attention_heads=2,
        ...     num_key_value_heads=1,
        ...     head_dim=8,
        ... )
        >>> config.context
        2048
    """

    model_type: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    rms_norm_eps: float = 1e-6
    rope_theta: float = 10000.0
    rope_scaling: dict[str, Any] | None = None
    rope_local_theta: float | None = None
    partial_rotary_factor: float = 1.0
    max_position_embeddings: int = 2048
    tie_word_embeddings: bool = False
    qkv_bias: bool = False
    o_bias: bool = False
    mlp_bias: bool = False
    hidden_act: str = "silu"
    layer_windows: list[int | None] = dataclasses.field(default_factory=list)
    qk_norm: bool = False
    num_experts: int = 0
    num_experts_per_tok: int = 0
    moe_intermediate_size: int = 0
    norm_topk_prob: bool = True
    sparse_layers: list[bool] = dataclasses.field(default_factory=list)
    unit_offset: bool = False
    post_norms: bool = False
    scale_embeddings: bool = False
    attn_logit_softcapping: float | None = None
    final_logit_softcapping: float | None = None
    query_pre_attn_scalar: float | None = None
    bos_token_id: int | None = None
    eos_token_id: list[int] = dataclasses.field(default_factory=list)
    pad_token_id: int | None = None

    def __post_init__(self) -> None:
        sizes = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")
        for name in (*sizes, "num_key_value_heads", "head_dim", "max_position_embeddings"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= _MOST:
                raise errors.ValueError(f"config: {name} must be an integer from 1 to {_MOST}, got {value!r}")
        if self.num_attention_heads % self.num_key_value_heads:
            raise errors.ValueError(
                f"config: {self.num_attention_heads} query heads do not share {self.num_key_value_heads} key heads"
            )
        if self.hidden_act not in ("silu", "gelu", "gelu_pytorch_tanh"):
            raise errors.ValueError(f"config: hidden_act {self.hidden_act!r} is not known; silu and gelu are")
        if not self.layer_windows:
            self.layer_windows = [None] * self.num_hidden_layers
        if not self.sparse_layers:
            self.sparse_layers = [self.num_experts > 0] * self.num_hidden_layers
        if not len(self.layer_windows) == len(self.sparse_layers) == self.num_hidden_layers:
            raise errors.ValueError(f"config: lists of layers must have {self.num_hidden_layers} entries")
        if self.num_experts and not 0 < self.num_experts_per_tok <= self.num_experts:
            raise errors.ValueError(
                f"config: num_experts_per_tok must be from 1 to {self.num_experts}, got {self.num_experts_per_tok}"
            )

    @property
    def context(self) -> int:
        """The most tokens of a text."""
        scaling = self.rope_scaling or {}
        longer = scaling.get("factor", 1) if scaling.get("rope_type") == "dynamic" else 1
        return int(self.max_position_embeddings * max(longer, 1))

    @property
    def rotary_dim(self) -> int:
        """How many elements of a head are rotated."""
        return int(self.head_dim * self.partial_rotary_factor)

    @classmethod
    def from_hf(cls, given: Mapping[str, Any]) -> Config:
        """Of a `config.json`. Raises ValueError, naming the key, for what is missing or not known."""
        if given.get("model_type") == "gemma3" and isinstance(given.get("text_config"), Mapping):
            # A model that sees too; its decoder is what is read.
            ends = {k: given[k] for k in ("eos_token_id", "bos_token_id", "pad_token_id") if k in given}
            given = {**ends, **given["text_config"], "model_type": "gemma3_text"}
        kind = given.get("model_type")
        if kind not in ARCHITECTURES:
            raise errors.ValueError(f"config: model_type {kind!r} is not known; {', '.join(ARCHITECTURES)} are")

        def need(name: str) -> Any:
            if given.get(name) is None:
                raise errors.ValueError(f"config: {name} is missing")
            return given[name]

        heads, hidden, layers = need("num_attention_heads"), need("hidden_size"), need("num_hidden_layers")
        # Newer files keep what concerns rotations together.
        rope = dict(given.get("rope_parameters") or {})
        local_theta = None
        if kind == "gemma3_text":
            local = rope.get("sliding_attention") or {}
            local_theta = local.get("rope_theta") or given.get("rope_local_base_freq") or 10000.0
            rope = dict(rope.get("full_attention") or {})
            rope.setdefault("rope_theta", given.get("rope_theta") or 1e6)
        theta = rope.pop("rope_theta", None) or given.get("rope_theta") or 10000.0
        partial = rope.pop("partial_rotary_factor", None) or given.get("partial_rotary_factor") or 1.0
        scaling = given.get("rope_scaling") or (rope if rope.get("rope_type", "default") != "default" else None)
        scaling = dict(scaling) if scaling else None
        if scaling is not None:
            scaling.setdefault("rope_type", scaling.get("type", "default"))
            for name in ("original_max_position_embeddings",):
                if given.get(name) is not None:
                    scaling.setdefault(name, given[name])
        window = given.get("sliding_window")
        windows: list[int | None] = [None] * int(layers)
        types = given.get("layer_types")
        if types is not None:
            windows = [window if t == "sliding_attention" else None for t in types]
        elif kind == "gemma2":
            windows = [window if i % 2 == 0 else None for i in range(layers)]
        elif kind == "gemma3_text":
            pattern = given.get("sliding_window_pattern") or 6
            windows = [window if (i + 1) % pattern else None for i in range(layers)]
        elif kind in ("mistral", "mixtral", "phi3"):
            windows = [window] * int(layers)
        elif kind in ("qwen2", "qwen3", "qwen3_moe") and given.get("use_sliding_window"):
            windows = [window if i >= given.get("max_window_layers", 0) else None for i in range(layers)]
        eos = given.get("eos_token_id")
        sparse = []
        if kind == "qwen3_moe":
            step, dense = given.get("decoder_sparse_step", 1), given.get("mlp_only_layers") or []
            sparse = [i not in dense and (i + 1) % step == 0 for i in range(layers)]
        experts = given.get("num_local_experts") or given.get("num_experts")
        experts = experts if kind in ("mixtral", "qwen3_moe") else 0
        gemma = kind in ("gemma2", "gemma3_text")
        caps = (50.0, 30.0) if kind == "gemma2" else (None, None)
        bias = bool(given.get("attention_bias", False))
        return cls(
            model_type=kind,
            vocab_size=need("vocab_size"),
            hidden_size=hidden,
            intermediate_size=need("intermediate_size"),
            num_hidden_layers=layers,
            num_attention_heads=heads,
            num_key_value_heads=given.get("num_key_value_heads") or heads,
            head_dim=given.get("head_dim") or hidden // heads,
            rms_norm_eps=given.get("rms_norm_eps", 1e-6),
            rope_theta=theta,
            rope_scaling=scaling,
            rope_local_theta=local_theta,
            partial_rotary_factor=partial if kind == "phi3" else 1.0,
            max_position_embeddings=given.get("max_position_embeddings", 2048),
            tie_word_embeddings=given.get("tie_word_embeddings", gemma),
            qkv_bias=True if kind == "qwen2" else bias,
            o_bias=False if kind in ("qwen2", "mistral", "mixtral", "phi3") else bias,
            mlp_bias=bool(given.get("mlp_bias", False)),
            hidden_act=given.get("hidden_activation") or given.get("hidden_act") or "silu",
            layer_windows=windows,
            qk_norm=kind.startswith("qwen3") or kind == "gemma3_text",
            num_experts=experts or 0,
            num_experts_per_tok=given.get("num_experts_per_tok") or 0 if experts else 0,
            moe_intermediate_size=(given.get("moe_intermediate_size") or given["intermediate_size"]) if experts else 0,
            norm_topk_prob=True if kind == "mixtral" else bool(given.get("norm_topk_prob", False)),
            sparse_layers=sparse,
            unit_offset=gemma,
            post_norms=gemma,
            scale_embeddings=gemma,
            attn_logit_softcapping=given.get("attn_logit_softcapping", caps[0]) if gemma else None,
            final_logit_softcapping=given.get("final_logit_softcapping", caps[1]) if gemma else None,
            query_pre_attn_scalar=given.get("query_pre_attn_scalar", 256) if gemma else None,
            bos_token_id=given.get("bos_token_id"),
            eos_token_id=[] if eos is None else [eos] if isinstance(eos, int) else list(eos),
            pad_token_id=given.get("pad_token_id"),
        )

    @classmethod
    def from_gguf(cls, metadata: Mapping[str, Any], has: frozenset[str]) -> Config:
        """Of a GGUF file's metadata; `has` are the names of its tensors. Raises ValueError as `from_hf`."""
        name = metadata.get("general.architecture")
        kind = GGUF_ARCHITECTURES.get(name) if isinstance(name, str) else None
        if kind is None:
            raise errors.ValueError(
                f"config: the GGUF architecture {name!r} is not known; {', '.join(GGUF_ARCHITECTURES)} are"
            )

        def get(key: str, default: Any = None) -> Any:
            found = metadata.get(f"{name}.{key}")
            return default if found is None else found

        def need(key: str) -> int:
            found = get(key)
            if isinstance(found, bool) or not isinstance(found, int):
                raise errors.ValueError(f"config: the GGUF key {name}.{key} is missing, or no integer: {found!r}")
            return found

        heads, hidden, layers = need("attention.head_count"), need("embedding_length"), need("block_count")
        if not 0 < heads <= _MOST or not 0 < layers <= _MOST:
            raise errors.ValueError(f"config: the GGUF file has {heads} heads and {layers} layers")
        head_dim = get("attention.key_length", hidden // heads)
        rotary = get("rope.dimension_count", head_dim)
        tokens = metadata.get("tokenizer.ggml.tokens")
        window = get("attention.sliding_window")
        windows: list[int | None] = [None] * layers
        if window and kind == "gemma2":
            windows = [window if i % 2 == 0 else None for i in range(layers)]
        elif window and kind == "gemma3_text":
            windows = [window if (i + 1) % 6 else None for i in range(layers)]
        elif window and kind in ("llama", "phi3"):
            windows = [window] * layers
        scaling = None
        context = get("context_length", 2048)
        if get("rope.scaling.type") in ("linear", "yarn"):
            scaling = {"rope_type": get("rope.scaling.type"), "factor": get("rope.scaling.factor", 1.0)}
            if get("rope.scaling.original_context_length"):
                scaling["original_max_position_embeddings"] = get("rope.scaling.original_context_length")
        elif kind == "phi3" and get("rope.scaling.original_context_length"):
            # The factors are tensors of the file, which make it longrope when they are read.
            scaling = {
                "rope_type": "default",
                "original_max_position_embeddings": get("rope.scaling.original_context_length"),
                "attention_factor": get("rope.scaling.attn_factor"),
            }
        experts = get("expert_count", 0)
        gemma = kind in ("gemma2", "gemma3_text")
        caps = (50.0, 30.0) if kind == "gemma2" else (None, None)
        return cls(
            model_type="mixtral" if kind == "llama" and experts else kind,
            vocab_size=len(tokens) if isinstance(tokens, list) else need("vocab_size"),
            hidden_size=hidden,
            intermediate_size=get("feed_forward_length") or need("expert_feed_forward_length"),
            num_hidden_layers=layers,
            num_attention_heads=heads,
            num_key_value_heads=get("attention.head_count_kv", heads),
            head_dim=head_dim,
            rms_norm_eps=get("attention.layer_norm_rms_epsilon", 1e-6),
            rope_theta=get("rope.freq_base", 1e6 if kind == "gemma3_text" else 10000.0),
            rope_scaling=scaling,
            rope_local_theta=get("rope.freq_base_swa", 10000.0) if kind == "gemma3_text" else None,
            partial_rotary_factor=rotary / head_dim,
            max_position_embeddings=context,
            tie_word_embeddings="output.weight" not in has,
            qkv_bias="blk.0.attn_q.bias" in has,
            o_bias="blk.0.attn_output.bias" in has,
            hidden_act="gelu_pytorch_tanh" if gemma else "silu",
            layer_windows=windows,
            qk_norm="blk.0.attn_q_norm.weight" in has,
            num_experts=experts,
            num_experts_per_tok=get("expert_used_count", 0),
            moe_intermediate_size=get("expert_feed_forward_length") or get("feed_forward_length") or 0,
            norm_topk_prob=True,
            sparse_layers=[f"blk.{i}.ffn_gate_inp.weight" in has for i in range(layers)],
            unit_offset=False,
            post_norms=gemma,
            scale_embeddings=gemma,
            attn_logit_softcapping=get("attn_logit_softcapping", caps[0]) if gemma else None,
            final_logit_softcapping=get("final_logit_softcapping", caps[1]) if gemma else None,
            query_pre_attn_scalar=(
                hidden / heads if (kind, layers) in (("gemma2", 46), ("gemma3_text", 62)) else head_dim
            )
            if gemma
            else None,
            bos_token_id=metadata.get("tokenizer.ggml.bos_token_id"),
            eos_token_id=[
                metadata[f"tokenizer.ggml.{k}"]
                for k in ("eos_token_id", "eot_token_id")
                if isinstance(metadata.get(f"tokenizer.ggml.{k}"), int)
            ],
            pad_token_id=metadata.get("tokenizer.ggml.padding_token_id"),
        )
