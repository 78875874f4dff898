"""GGUF files of models: what `load_model` reads, and llama.cpp."""

from __future__ import annotations

import json
import math
import os
import re
from typing import Any

import lucid
from lucid import _C, Tensor, errors
from lucid.llm.blocks import refuse
from lucid.llm.config import Config
from lucid.llm.loading import _GEMMA_LAYER, _GGUF_LAYER
from lucid.llm.model import CausalLM
from lucid.llm.rope import frequencies
from lucid.llm.tokenizer import Tokenizer
from lucid.nn.modules.quantized import _Quantized

#: Formats of matrices.
FORMATS = ("F32", "F16", "BF16", "Q8_0", "Q5_1", "Q5_0", "Q4_1", "Q4_0")
#: `general.file_type` of each, as llama.cpp numbers them.
_FILE_TYPES = {"F32": 0, "F16": 1, "Q4_0": 2, "Q4_1": 3, "Q8_0": 7, "Q5_0": 8, "Q5_1": 9, "BF16": 32}
_ARCHITECTURES = {
    "llama": "llama",
    "mistral": "llama",
    "mixtral": "llama",
    "qwen2": "qwen2",
    "qwen3": "qwen3",
    "qwen3_moe": "qwen3moe",
    "gemma2": "gemma2",
    "gemma3_text": "gemma3",
    "phi3": "phi3",
}
_TOP = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}


def _permuted(x: Tensor, heads: int) -> Tensor:
    """Rows in GGUF's order for `llama`, where elements that are rotated together are beside each other."""
    rows = x.shape[0]
    return x.reshape(heads, 2, rows // heads // 2, *x.shape[1:]).transpose(1, 2).reshape(x.shape)


def _name(path: str, config: Config) -> str:
    lead, _, kind = path.rpartition(".")
    if lead in _TOP:
        return f"{_TOP[lead]}.{kind}"
    found = re.fullmatch(r"model\.layers\.(\d+)\.(.+)", lead)
    if found:
        layer = int(found[1])
        table = {ours: theirs for theirs, ours in _GGUF_LAYER.items()}
        for part in ("gate", "up", "down"):
            table[f"mlp.{part}_proj"] = f"ffn_{part}_exps" if config.sparse_layers[layer] else f"ffn_{part}"
        if config.post_norms:
            table.update({ours: theirs for theirs, ours in _GEMMA_LAYER.items()})
        if found[2] in table:
            return f"blk.{layer}.{table[found[2]]}.{kind}"
    raise errors.ValueError(f"write_gguf: GGUF has no name for {path}")


def _weights(model: CausalLM) -> dict[str, Tensor]:
    """Dense tensors by our names."""
    refuse("write_gguf", model)
    made: dict[str, Tensor] = {}
    packed = {path for path, m in model.named_modules() if isinstance(m, _Quantized)}
    for path, module in model.named_modules():
        if isinstance(module, _Quantized):
            made[f"{path}.weight"] = module.dequantize()
    for name, tensor in model.named_parameters():
        if ".lora_" in name:
            raise errors.ValueError("write_gguf: the model has adapters; merge them first")
        if name.rpartition(".")[0] not in packed or name.endswith(".bias"):
            made[name] = tensor.detach()
    return made


def _tensors(model: CausalLM) -> dict[str, Tensor]:
    """Tensors by GGUF's names, in its order and layout."""
    config = model.config
    weights = _weights(model)
    made: dict[str, Tensor] = {}
    for path, tensor in weights.items():
        if config.unit_offset and tensor.ndim == 1 and "norm" in path:
            tensor = tensor.float() + 1.0
        if _ARCHITECTURES[config.model_type] == "llama":
            if ".q_proj." in path:
                tensor = _permuted(tensor, config.num_attention_heads)
            elif ".k_proj." in path:
                tensor = _permuted(tensor, config.num_key_value_heads)
        fused = re.fullmatch(r"model\.layers\.(\d+)\.(self_attn\.[qkv]|mlp\.(gate|up))_proj\.(\w+)", path)
        if config.model_type == "phi3" and fused:
            lead = f"model.layers.{fused[1]}"
            if "self_attn.q" in path:
                parts = [weights[f"{lead}.self_attn.{n}_proj.{fused[4]}"] for n in "qkv"]
                made[f"blk.{fused[1]}.attn_qkv.{fused[4]}"] = lucid.cat(parts)
            elif "mlp.gate" in path:
                parts = [weights[f"{lead}.mlp.{n}_proj.{fused[4]}"] for n in ("gate", "up")]
                made[f"blk.{fused[1]}.ffn_up.{fused[4]}"] = lucid.cat(parts)
            continue
        made[_name(path, config)] = tensor
    return made


def _metadata(model: CausalLM, name: str, factors: dict[str, Tensor]) -> dict[str, Any]:
    """What a file says of the model; tensors of rotations are added to `factors`."""
    c = model.config
    arch = _ARCHITECTURES[c.model_type]
    own: dict[str, Any] = {
        "block_count": c.num_hidden_layers,
        "context_length": c.max_position_embeddings,
        "embedding_length": c.hidden_size,
        "feed_forward_length": c.intermediate_size,
        "attention.head_count": c.num_attention_heads,
        "attention.head_count_kv": c.num_key_value_heads,
        "attention.key_length": c.head_dim,
        "attention.value_length": c.head_dim,
        "attention.layer_norm_rms_epsilon": float(c.rms_norm_eps),
        "rope.dimension_count": c.rotary_dim,
        "rope.freq_base": float(c.rope_theta),
        "vocab_size": c.vocab_size,
    }
    windows = [w for w in c.layer_windows if w is not None]
    if windows:
        own["attention.sliding_window"] = windows[0]
    if c.num_experts:
        own["expert_count"], own["expert_used_count"] = c.num_experts, c.num_experts_per_tok
        if c.model_type == "qwen3_moe":
            own["expert_feed_forward_length"] = c.moe_intermediate_size
    for key in ("attn_logit_softcapping", "final_logit_softcapping"):
        if getattr(c, key) is not None:
            own[key] = float(getattr(c, key))
    if c.rope_local_theta is not None:
        own["rope.freq_base_swa"] = float(c.rope_local_theta)
    scaling = c.rope_scaling or {}
    kind = scaling.get("rope_type", "default")
    if kind in ("linear", "yarn"):
        own["rope.scaling.type"] = kind
        own["rope.scaling.factor"] = float(scaling["factor"])
        if scaling.get("original_max_position_embeddings"):
            own["rope.scaling.original_context_length"] = int(scaling["original_max_position_embeddings"])
    elif kind == "llama3":
        plain = [c.rope_theta ** -(i / c.rotary_dim) for i in range(0, c.rotary_dim, 2)]
        divided = [a / b for a, b in zip(plain, frequencies(c)[0], strict=True)]
        factors["rope_freqs.weight"] = lucid.tensor(divided, dtype=lucid.float32)
    elif kind in ("longrope", "su"):
        for part in ("long", "short"):
            factors[f"rope_factors_{part}.weight"] = lucid.tensor(scaling[f"{part}_factor"], dtype=lucid.float32)
        own["rope.scaling.original_context_length"] = int(scaling["original_max_position_embeddings"])
        own["rope.scaling.attn_factor"] = model.rope.short[1]
    elif kind != "default":
        raise errors.NotImplementedError(f"write_gguf: GGUF has no RoPE scaling of type {kind!r}")
    general = {"general.architecture": arch, "general.name": name, "general.quantization_version": 2}
    return {**general, **{f"{arch}.{k}": v for k, v in own.items()}}


_PRE = {
    r"\p{N}{1,3}": "llama-bpe",
    r"\p{N}|": "qwen2",
}


def _pre(given: Any) -> str:
    """GGUF's name of the way in which a byte-level tokenizer splits text."""
    steps = given.get("pretokenizers", [given]) if isinstance(given, dict) else []
    kinds = [s.get("type") for s in steps]
    if kinds == ["ByteLevel"] and steps[0].get("use_regex", True):
        return "gpt-2"
    if kinds == ["Digits", "ByteLevel"]:
        return "smollm"
    if kinds == ["Split", "ByteLevel"]:
        pattern = steps[0].get("pattern", {}).get("Regex", "")
        for part, name in _PRE.items():
            if part in pattern:
                return name
    raise errors.NotImplementedError(f"write_gguf: GGUF has no name for a tokenizer that splits text by {kinds}")


def tokenizer_metadata(tokenizer: Tokenizer, config: Config) -> dict[str, Any]:
    """The vocabulary of a tokenizer as GGUF has it: byte-level BPE, or SentencePiece's BPE.

    Raises NotImplementedError for tokenizers of other kinds, ValueError for more tokens than the model has.
    """
    given = json.loads(tokenizer._engine.to_json())
    model = given["model"]
    if model.get("type", "BPE") != "BPE":
        raise errors.NotImplementedError(f"write_gguf: tokenizers of the type {model.get('type')!r} are not written")
    by_number = {int(i): t for t, i in model["vocab"].items()}
    added = {int(t["id"]): t for t in given.get("added_tokens") or []}
    by_number.update({i: t["content"] for i, t in added.items()})
    if by_number and max(by_number) >= config.vocab_size:
        raise errors.ValueError(
            f"write_gguf: the tokenizer has the token {max(by_number)}, the model {config.vocab_size} tokens"
        )
    merges = [m if isinstance(m, list) else m.split(" ") for m in model.get("merges") or []]
    sentence_piece = bool(model.get("byte_fallback"))
    tokens, kinds, scores = [], [], []
    ranks: dict[str, int] = {}
    for rank, (left, right) in enumerate(merges):
        ranks.setdefault(left + right, rank)
    for i in range(config.vocab_size):
        token = by_number.get(i)
        kind = 1
        if token is None:
            token, kind = f"[PAD{i}]", 5
        elif sentence_piece and re.fullmatch(r"<0x[0-9A-Fa-f]{2}>", token):
            kind = 6
        elif token == model.get("unk_token"):
            kind = 2
        elif i in added:
            kind = 3 if added[i].get("special") else 4
        tokens.append(token)
        kinds.append(kind)
        scores.append(float(-ranks.get(token, 0)) if kind == 1 else 0.0)
    made: dict[str, Any] = {"tokenizer.ggml.tokens": tokens, "tokenizer.ggml.token_type": kinds}
    if sentence_piece:
        made["tokenizer.ggml.model"] = "llama"
        made["tokenizer.ggml.scores"] = scores
        made["tokenizer.ggml.add_space_prefix"] = '"Prepend"' in json.dumps(given.get("normalizer"))
    else:
        made["tokenizer.ggml.model"] = "gpt2"
        made["tokenizer.ggml.pre"] = _pre(given.get("pre_tokenizer"))
        made["tokenizer.ggml.merges"] = [f"{a} {b}" for a, b in merges]
    for key, token in (("bos", "bos_token"), ("unknown", "unk_token"), ("padding", "pad_token")):
        number = tokenizer.token_to_id(tokenizer.special.get(token, ""))
        if number is not None:
            made[f"tokenizer.ggml.{key}_token_id"] = number
    if config.bos_token_id is not None and config.bos_token_id < config.vocab_size:
        made["tokenizer.ggml.bos_token_id"] = config.bos_token_id
    for key, token_id in zip(("eos", "eot"), config.eos_token_id, strict=False):
        made[f"tokenizer.ggml.{key}_token_id"] = token_id
    bos = made.get("tokenizer.ggml.bos_token_id")
    made["tokenizer.ggml.add_bos_token"] = bos is not None and tokenizer.encode("a")[:1] == [bos]
    if tokenizer.chat_template:
        made["tokenizer.chat_template"] = tokenizer.chat_template
    return made


#: What a reader derives from the architecture, where GGUF has no key of its own.
_DERIVED = (
    "layer_windows",
    "query_pre_attn_scalar",
    "attn_logit_softcapping",
    "final_logit_softcapping",
    "norm_topk_prob",
    "hidden_act",
    "rope_local_theta",
)


def _check_read_back(config: Config, metadata: dict[str, Any], names: frozenset[str]) -> None:
    """Refuses a model of which a reader of the file would make another one."""
    read = Config.from_gguf(metadata, names)
    for field in _DERIVED:
        if field == "norm_topk_prob" and not config.num_experts:
            continue
        own, found = getattr(config, field), getattr(read, field)
        same = own == found
        if isinstance(own, int | float) and isinstance(found, int | float):
            same = math.isclose(own, found, rel_tol=1e-6)
        if not same:
            raise errors.NotImplementedError(
                f"write_gguf: GGUF has no key for {field} = {own!r} of {config.model_type}; a reader takes {found!r}"
            )


def save_gguf(
    model: CausalLM,
    path: str | os.PathLike[str],
    format: str = "F16",
    tokenizer: Tokenizer | None = None,
    name: str = "lucid",
) -> None:
    """Writes a model as one GGUF file.

    Args:
        model: The model; quantised layers are written from their rounded weights, adapters must be merged.
        path: The file.
        format: Of matrices: F32, F16, BF16, Q8_0, Q5_1, Q5_0, Q4_1 or Q4_0. Vectors are float32, and so are matrices
            whose rows do not fall into blocks of 32. Default: F16.
        tokenizer: Its vocabulary is written too.
        name: What the file calls the model.

    Raises ValueError for formats that are not written, NotImplementedError for what GGUF has no form for.
    """
    if format not in FORMATS:
        raise errors.ValueError(f"write_gguf: the format {format!r} is not written; {', '.join(FORMATS)} are")
    factors: dict[str, Tensor] = {}
    metadata = _metadata(model, name, factors)
    metadata["general.file_type"] = _FILE_TYPES[format]
    if tokenizer is not None:
        metadata.update(tokenizer_metadata(tokenizer, model.config))
    listed = [(n, "F32", t) for n, t in factors.items()]
    tensors = _tensors(model)
    _check_read_back(model.config, metadata, frozenset(tensors))
    for n, tensor in tensors.items():
        # A router's few numbers decide much.
        whole = tensor.ndim < 2 or "ffn_gate_inp" in n or (format[0] == "Q" and tensor.shape[-1] % 32)
        listed.append((n, "F32" if whole else format, tensor.detach().to("cpu").contiguous()))
    _C._gguf_write(os.fspath(path), metadata, listed)
