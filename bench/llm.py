"""Tokens per second of language models with random weights of real shapes, at several widths of weights.

    python bench/llm.py [--shape llama-3.2-1b] [--bits 4 8 16 32] [--device cpu|gpu] [--prompt 128] [--new 16]
        [--layers N] [--batch 1] [--rounds 3] [--peers mlx-lm] [--json]

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


class Lucid:
    """Our own side: one model at one width of weights."""

    def __init__(self, shape: dict[str, Any], bits: int, device: str) -> None:
        self.model, self.device = build(shape, bits, device), device
        lucid.eval(*self.model.parameters(), *self.model.buffers())
        self.bytes = model_bytes(self.model)

    @lucid.no_grad()
    def measure(self, prompt: list[list[int]], new: int) -> tuple[float, float]:
        """Seconds for the prompt, and for each new token; the next step is begun before a token is looked at."""
        tokens = lucid.tensor(prompt).to(self.device)
        cache = llm.Cache(self.model.config)
        started = time.perf_counter()
        chosen = llm.prefill(self.model, tokens, cache).argmax(-1)
        chosen.eval()
        read = time.perf_counter() - started
        started = time.perf_counter()
        for _ in range(new):
            last, chosen = chosen, self.model(chosen[:, None], cache=cache)[:, -1].argmax(-1)
            lucid.eval(chosen, wait=False)
            last.tolist()
        chosen.tolist()
        return read, (time.perf_counter() - started) / new

    def peak(self, prompt: list[list[int]]) -> float:
        """Bytes at most while a prompt is read and two tokens are made."""
        lucid._C.reset_peak_memory_stats("gpu" if self.device != "cpu" else "cpu")
        self.measure(prompt, 2)
        return float(lucid._C.memory_stats("gpu" if self.device != "cpu" else "cpu")["peak"])


class MlxLm:
    """mlx-lm's, by the same loop."""

    def __init__(self, shape: dict[str, Any], bits: int) -> None:
        import mlx.core as mx
        import mlx.nn as nn
        from mlx.utils import tree_flatten
        from mlx_lm.models import llama

        args = llama.ModelArgs(
            model_type="llama", rms_norm_eps=1e-6, max_position_embeddings=8192, rope_theta=500000.0,
            **{"tie_word_embeddings": False, **shape},
        )  # fmt: skip
        self.mx, self.model = mx, llama.Model(args)
        self.model.set_dtype(mx.float32 if bits == 32 else mx.bfloat16)
        if bits < 16:
            nn.quantize(self.model, 64, bits)
        mx.eval(self.model.parameters())
        self.bytes = sum(a.nbytes for _, a in tree_flatten(self.model.parameters()))

    def measure(self, prompt: list[list[int]], new: int) -> tuple[float, float]:
        """As ours."""
        from mlx_lm.models.cache import make_prompt_cache

        mx, tokens = self.mx, self.mx.array(prompt)
        cache = make_prompt_cache(self.model)

        def logits(x: Any) -> Any:
            y = self.model.model(x, cache)[:, -1:]
            tied = self.model.args.tie_word_embeddings
            return (self.model.model.embed_tokens.as_linear(y) if tied else self.model.lm_head(y))[:, -1]

        started = time.perf_counter()
        chosen = mx.argmax(logits(tokens), axis=-1)
        mx.eval(chosen)
        read = time.perf_counter() - started
        started = time.perf_counter()
        for _ in range(new):
            last, chosen = chosen, mx.argmax(logits(chosen[:, None]), axis=-1)
            mx.async_eval(chosen)
            last.tolist()
        chosen.tolist()
        return read, (time.perf_counter() - started) / new


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
    parser.add_argument("--peers", nargs="*", default=[], choices=["mlx-lm"])
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    shape = dict(SHAPES[given.shape])
    if given.layers:
        shape["num_hidden_layers"] = given.layers
    sides: dict[str, Any] = {}
    for bits in given.bits:
        sides[f"lucid {bits}"] = Lucid(shape, bits, given.device)
        if "mlx-lm" in given.peers:
            sides[f"mlx-lm {bits}"] = MlxLm(shape, bits)
    lucid.manual_seed(1)
    prompt = lucid.randint(0, shape["vocab_size"], (given.batch, given.prompt)).tolist()
    for side in sides.values():
        side.measure(prompt, 2)
    seen: dict[str, list[tuple[float, float]]] = {name: [] for name in sides}
    for round_ in range(given.rounds):
        order = list(sides)[round_ % len(sides) :] + list(sides)[: round_ % len(sides)]
        for name in order:
            seen[name].append(sides[name].measure(prompt, given.new))
    reads = bandwidth(given.device)
    print(f"{given.shape}, {shape['num_hidden_layers']} layers, {given.device}, {lucid.get_num_threads()} threads, "
          f"batch {given.batch}, prompt {given.prompt}; a sum reads {reads / 1e9:.1f} GB/s")  # fmt: skip
    head = f"{'side and bits':>14} {'MB':>8} {'peak MB':>8} {'prefill tok/s':>14} {'decode tok/s':>13}"
    print(f"{head} {'of roofline':>12}")
    rows = []
    for name, side in sides.items():
        prefill, decode = (statistics.median(column) for column in zip(*seen[name], strict=True))
        peak = side.peak(prompt) if isinstance(side, Lucid) else 0.0
        row = {
            "side": name, "mb": side.bytes / 1e6, "peak_mb": peak / 1e6,
            "prefill": given.batch * given.prompt / prefill, "decode": given.batch / decode,
            "roofline": side.bytes / decode / reads,
        }  # fmt: skip
        rows.append(row)
        figures = f"{row['mb']:8.1f} {row['peak_mb']:8.1f} {row['prefill']:14.1f} {row['decode']:13.2f}"
        print(f"{name:>14} {figures} {100 * row['roofline']:11.0f} %")
    if given.json:
        print(json.dumps({"rows": rows, "bandwidth": reads}))


if __name__ == "__main__":
    main()
