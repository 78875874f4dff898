"""Small random models of every architecture, made by `transformers`, and prompts for them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

VOCAB = 96

#: Sizes that all share.
SIZES: dict[str, Any] = {
    "vocab_size": VOCAB,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "tie_word_embeddings": False,
}

LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
    "rope_theta": 5000.0,
}
LONGROPE = {
    "rope_type": "longrope",
    "short_factor": [1.0 + 0.1 * i for i in range(8)],
    "long_factor": [2.0 + 0.3 * i for i in range(8)],
    "rope_theta": 10000.0,
    "original_max_position_embeddings": 24,
}

#: Name: class of its configuration, and what it has of its own.
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama2": ("LlamaConfig", {}),
    "llama3": ("LlamaConfig", {"rope_parameters": LLAMA3, "tie_word_embeddings": True, "attention_bias": True}),
    "llama-yarn": (
        "LlamaConfig",
        {
            "rope_parameters": {
                "rope_type": "yarn",
                "factor": 4.0,
                "rope_theta": 10000.0,
                "original_max_position_embeddings": 32,
            }
        },
    ),
    "smollm": ("LlamaConfig", {"tie_word_embeddings": True, "num_attention_heads": 8, "num_key_value_heads": 4}),
    "mistral": ("MistralConfig", {"sliding_window": 6, "head_dim": 32}),
    "mixtral": ("MixtralConfig", {"num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": None}),
    "qwen2": ("Qwen2Config", {}),
    "qwen2-window": ("Qwen2Config", {"use_sliding_window": True, "sliding_window": 5, "max_window_layers": 1}),
    "qwen3": ("Qwen3Config", {"head_dim": 32}),
    "qwen3-moe": (
        "Qwen3MoeConfig",
        {
            "num_experts": 4,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 64,
            "norm_topk_prob": True,
            "head_dim": 16,
            "decoder_sparse_step": 2,
        },
    ),
    "gemma2": (
        "Gemma2Config",
        {"sliding_window": 6, "head_dim": 16, "query_pre_attn_scalar": 24, "tie_word_embeddings": True},
    ),
    "gemma3": (
        "Gemma3TextConfig",
        {
            "sliding_window": 6,
            "head_dim": 16,
            "query_pre_attn_scalar": 24,
            "tie_word_embeddings": True,
            "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
            "rope_parameters": {
                "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
                "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
            },
        },
    ),
    "llama-linear": ("LlamaConfig", {"rope_parameters": {"rope_type": "linear", "factor": 3.0, "rope_theta": 1e4}}),
    "llama-dynamic": (
        "LlamaConfig",
        {
            "rope_parameters": {"rope_type": "dynamic", "factor": 4.0, "rope_theta": 1e4},
            "max_position_embeddings": 32,
        },
    ),
    "phi3": ("Phi3Config", {"sliding_window": None}),
    "phi3-longrope": ("Phi3Config", {"rope_parameters": LONGROPE, "original_max_position_embeddings": 24}),
}


def make(name: str, folder: Path, **sizes: Any) -> Any:
    """The model, in evaluation mode, which has been written to the folder."""
    kind, own = MODELS[name]
    torch.manual_seed(sum(map(ord, name)))
    config = getattr(transformers, kind)(**{**SIZES, **own, **sizes})
    config._attn_implementation = "eager"
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            # Far enough from uniform that tokens differ, and norms from one.
            parameter.add_(torch.randn_like(parameter) * (0.3 if parameter.ndim == 1 else 0.08))
    model.save_pretrained(folder, max_shard_size="100KB")
    return model


def prompts(*lengths: int, seed: int = 0) -> list[list[int]]:
    """Random tokens, none of them special."""
    rng = np.random.default_rng(seed)
    return [[int(t) for t in rng.integers(3, VOCAB, n)] for n in lengths]
