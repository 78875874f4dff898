"""Tokens per second of language models with random weights of real shapes, at several widths of weights.

    python bench/llm.py [--shape llama-3.2-1b] [--bits 4 8 16 32] [--device cpu|gpu] [--prompt 128] [--new 16]
        [--layers N] [--rounds 3] [--json]

All variants take turns; figures are medians over the rounds, with the middle half's range. `--layers` runs fewer layers
than the shape has, where memory or time are short. The share of the roofline is weights read per second over what a
sum over a large tensor reads per second on the same device.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from typing import Any

import lucid
from lucid import llm
from lucid.quantization import model_bytes, quantize

SHAPES: dict[str, dict[str, Any]] = {
    "llama-3.2-1b": {
        "vocab_size": 128256, "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16,
        "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 64, "tie_word_embeddings": True,
    },
    "llama-3.1-8b": {
        "vocab_size": 128256, "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
        "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128,
    },
    "smollm-135m": {
        "vocab_size": 49152, "hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30,
        "num_attention_heads": 9, "num_key_value_heads": 3, "head_dim": 64, "tie_word_embeddings": True,
    },
}  # fmt: skip


def build(shape: dict[str, Any], bits: int, device: str) -> llm.CausalLM:
    """A model with random weights: of 32 or 16 bits as floats, below quantised in groups of 64."""
    config = llm.Config("llama", **shape, max_position_embeddings=8192, rope_theta=500000.0)
    dtype = lucid.float32 if bits == 32 or (device == "cpu" and bits < 16) else lucid.bfloat16
    model = llm.CausalLM(config, device=llm.model.BLANK, dtype=dtype).eval()
    lucid.manual_seed(0)
    for name, parameter in list(model.named_parameters()):
        lead, _, last = name.rpartition(".")
        value = lucid.ones(parameter.shape, dtype=dtype, device=device)
        if parameter.ndim > 1:
            value = (lucid.randn(parameter.shape, device=device) * 0.02).to(dtype)
        setattr(model.get_submodule(lead), last, lucid.nn.Parameter(value, requires_grad=False))
    return quantize(model, bits, 64) if bits < 16 else model  # type: ignore[return-value]


@lucid.no_grad()
def measure(model: llm.CausalLM, tokens: lucid.Tensor, new: int) -> tuple[float, float]:
    """Seconds for the prompt, and for each new token."""
    cache = llm.Cache(model.config)
    started = time.perf_counter()
    chosen = llm.prefill(model, tokens, cache).argmax(-1)
    chosen.eval()
    read = time.perf_counter() - started
    times = []
    for _ in range(new):
        started = time.perf_counter()
        chosen = model(chosen[:, None], cache=cache)[:, -1].argmax(-1)
        chosen.eval()
        times.append(time.perf_counter() - started)
    return read, statistics.median(times)


def bandwidth(device: str) -> float:
    """Bytes that a sum over a large tensor reads per second."""
    x = lucid.ones(1 << 26, device=device)
    best = float("inf")
    for _ in range(4):
        started = time.perf_counter()
        x.sum().eval()
        best = min(best, time.perf_counter() - started)
    return x.numel() * 4 / best


def main() -> None:
    parser = argparse.ArgumentParser(description="Times prefill and decoding.")
    parser.add_argument("--shape", choices=SHAPES, default="llama-3.2-1b")
    parser.add_argument("--bits", type=int, nargs="+", default=[4, 8, 16, 32])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--prompt", type=int, default=128)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--new", type=int, default=16)
    parser.add_argument("--layers", type=int, default=None)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    shape = dict(SHAPES[given.shape])
    if given.layers:
        shape["num_hidden_layers"] = given.layers
    models = {bits: build(shape, bits, given.device) for bits in given.bits}
    tokens = lucid.randint(0, shape["vocab_size"], (given.batch, given.prompt)).to(given.device)
    for model in models.values():
        measure(model, tokens, 1)
    seen: dict[int, list[tuple[float, float]]] = {bits: [] for bits in models}
    for round_ in range(given.rounds):
        order = list(models)[round_ % len(models) :] + list(models)[: round_ % len(models)]
        for bits in order:
            seen[bits].append(measure(models[bits], tokens, given.new))
    reads = bandwidth(given.device)
    print(f"{given.shape}, {shape['num_hidden_layers']} layers, {given.device}, {lucid.get_num_threads()} threads, "
          f"batch {given.batch}, prompt {given.prompt}; a sum reads {reads / 1e9:.1f} GB/s")  # fmt: skip
    print(f"{'bits':>5} {'MB':>8} {'prefill tok/s':>14} {'decode tok/s':>13} {'of roofline':>12}")
    rows = []
    for bits, model in models.items():
        prefill, decode = (statistics.median(column) for column in zip(*seen[bits], strict=True))
        size = model_bytes(model)
        row = {
            "bits": bits, "mb": size / 1e6, "prefill": tokens.numel() / prefill, "decode": given.batch / decode,
            "roofline": size / decode / reads,
        }  # fmt: skip
        rows.append(row)
        figures = f"{row['mb']:8.1f} {row['prefill']:14.1f} {row['decode']:13.2f}"
        print(f"{bits:5} {figures} {100 * row['roofline']:11.0f} %")
    if given.json:
        print(json.dumps({"rows": rows, "bandwidth": reads}))


if __name__ == "__main__":
    main()
