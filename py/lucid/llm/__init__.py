"""Language models: load, run, serve, fine-tune, quantise and measure decoder-only transformers.

Llama 2 and 3, SmolLM, Mistral, Mixtral, Qwen 2.5 and 3 (with its mixture of experts), Gemma 2 and 3 and Phi-3 from
Hugging Face's folders, mlx-community's quantised ones, and GGUF files. The models are one definition (`model.py`) over
`lucid.nn`, so that they train, quantise and run on both devices; files, tokenizers, templates, HTTP and kernels are
Rust (`lucid::llm`).

    model = lucid.llm.load_model("folder-or-file.gguf")
    tokenizer = lucid.llm.load_tokenizer("folder-or-file.gguf")
    print(lucid.llm.generate(model, "Once upon a time", tokenizer=tokenizer)[0].text)

From a shell: `python -m lucid.llm chat --model folder-or-file.gguf`.
"""

from __future__ import annotations

from lucid.llm.batching import Batcher, Request
from lucid.llm.cache import Cache
from lucid.llm.config import Config
from lucid.llm.constraint import Constraint, Vocabulary
from lucid.llm.finetuning import finetune
from lucid.llm.generation import Generated, generate, padded, perplexity, prefill, stream
from lucid.llm.loading import load_model, save_model
from lucid.llm.lora import LoRALinear, add_lora, load_adapter, merge_lora, save_adapter
from lucid.llm.model import CausalLM
from lucid.llm.prefix import PrefixCache
from lucid.llm.sampling import Sampler
from lucid.llm.tokenizer import Tokenizer, load_tokenizer

__all__ = [
    "Batcher",
    "Cache",
    "CausalLM",
    "Config",
    "Constraint",
    "Generated",
    "LoRALinear",
    "PrefixCache",
    "Request",
    "Sampler",
    "Tokenizer",
    "Vocabulary",
    "add_lora",
    "finetune",
    "generate",
    "load_adapter",
    "load_model",
    "load_tokenizer",
    "merge_lora",
    "padded",
    "perplexity",
    "prefill",
    "save_adapter",
    "save_model",
    "stream",
]
