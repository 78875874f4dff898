"""A tokenizer of printable bytes and a small random model for it."""

from __future__ import annotations

import json

import lucid
from lucid import llm

TEMPLATE = (
    "{% if tools %}{% for t in tools %}{{ t.function.name }}|{% endfor %}{% endif %}"
    "{% for m in messages %}{{ m.role[0] }}:{{ m.content }}\n{% endfor %}{% if add_generation_prompt %}a:{% endif %}"
)


def letters() -> llm.Tokenizer:
    """Tokens are the printable bytes; 95 ends."""
    vocab = {chr(b): b - 32 for b in range(32, 127)}
    vocab["<end>"] = 95
    made = {
        "version": "1.0",
        "added_tokens": [
            {"id": 95, "content": "<end>", "special": True, "single_word": False, "lstrip": False, "rstrip": False,
             "normalized": False}
        ],
        "normalizer": {"type": "Replace", "pattern": {"String": "\n"}, "content": "|"},
        "pre_tokenizer": None,
        "post_processor": None,
        "decoder": {"type": "Fuse"},
        "model": {"type": "BPE", "vocab": vocab, "merges": []},
    }  # fmt: skip
    return llm.Tokenizer(lucid._C._Tokenizer.from_json(json.dumps(made).encode()), {}, TEMPLATE)


def small() -> llm.CausalLM:
    lucid.manual_seed(0)
    config = llm.Config("llama", 96, 32, 64, 2, 2, 1, 16, max_position_embeddings=256, eos_token_id=[95])
    model = llm.CausalLM(config).eval()
    for parameter in model.parameters():
        parameter.data = parameter.data + lucid.randn(parameter.shape) * 0.2
    return model
