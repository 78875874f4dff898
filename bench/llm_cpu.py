"""Language models on the CPU against llama.cpp: the same GGUF files, the same threads, taking turns in one process.

    pip install llama-cpp-python==0.3.16       # builds llama.cpp for this machine: minutes, CMake comes with it
    python bench/llm_cpu.py [--shape llama-3.2-1b] [--layers 4] [--vocab 16384] [--formats Q4_0 Q8_0 Q4_K Q6_K BF16]
        [--threads 1] [--prompt 128] [--new 24] [--rounds 5] [--json]

Weights are random; Q4_K and Q6_K files are made by llama.cpp. Both sides round activations to 8 bits but for BF16.
`ratio` is ours over theirs in tokens per second: above 1 ours is faster. `control` is a second turn of theirs over the
first. With one thread times are the processor's for that thread, which other programs disturb little. Greedy tokens
after the prompt are compared too; random weights make near ties, so that they may part.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import llama_cpp
import lucid
from llm import SHAPES
from lucid import llm
from lucid.llm import gguf_export
from lucid.llm.gguf_export import save_gguf

#: Set to the thread's own time where there is one thread.
clock = time.perf_counter
K_QUANTS = {"Q4_K": llama_cpp.LLAMA_FTYPE_MOSTLY_Q4_K_S, "Q6_K": llama_cpp.LLAMA_FTYPE_MOSTLY_Q6_K}


def dense(shape: dict[str, Any]) -> llm.CausalLM:
    """A model with random weights in bfloat16."""
    config = llm.Config("llama", **shape, max_position_embeddings=4096, rope_theta=500000.0)
    model = llm.CausalLM(config, device=llm.model.BLANK, dtype=lucid.bfloat16).eval()
    lucid.manual_seed(0)
    for name, parameter in list(model.named_parameters()):
        lead, _, last = name.rpartition(".")
        value = lucid.ones(parameter.shape)
        if parameter.ndim > 1:
            value = lucid.randn(parameter.shape) * 0.02
        value = value.to(lucid.bfloat16)
        setattr(model.get_submodule(lead), last, lucid.nn.Parameter(value, requires_grad=False))
    return model


def vocabulary(tokenizer: Any, config: llm.Config) -> dict[str, Any]:
    """A vocabulary of no words: llama.cpp reads no file without one."""
    count = config.vocab_size
    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{i:02X}>" for i in range(256)), *(f"t{i}" for i in range(259, count))]
    return {
        "tokenizer.ggml.model": "llama", "tokenizer.ggml.tokens": pieces,
        "tokenizer.ggml.scores": [-float(i) for i in range(count)],
        "tokenizer.ggml.token_type": [2, 3, 3, *[6] * 256, *[1] * (count - 259)],
        "tokenizer.ggml.bos_token_id": 1, "tokenizer.ggml.eos_token_id": 2, "tokenizer.ggml.unknown_token_id": 0,
    }  # fmt: skip


gguf_export.tokenizer_metadata = vocabulary


def write(model: llm.CausalLM, folder: Path, form: str) -> Path:
    """A GGUF file in a format."""
    path = folder / f"{form}.gguf"
    if form not in K_QUANTS:
        save_gguf(model, path, form, tokenizer=object())  # type: ignore[arg-type]
        return path
    source = folder / "F16.gguf"
    if not source.exists():
        save_gguf(model, source, "F16", tokenizer=object())  # type: ignore[arg-type]
    how = llama_cpp.llama_model_quantize_default_params()
    how.ftype, how.nthread, how.pure = K_QUANTS[form], 2, True
    if llama_cpp.llama_model_quantize(str(source).encode(), str(path).encode(), ctypes.byref(how)):
        raise RuntimeError(f"llama.cpp could not write {form}")
    return path


class Ours:
    """Lucid's side."""

    def __init__(self, path: Path, form: str) -> None:
        dtype = lucid.bfloat16 if form == "BF16" else None
        self.model = llm.load_model(path, "cpu", dtype, activations="float" if form == "BF16" else "int8")

    @lucid.no_grad()
    def run(self, prompt: list[int], new: int) -> tuple[float, float, list[int]]:
        """Seconds for the prompt and for a new token, and the tokens."""
        cache = llm.Cache(self.model.config)
        started = clock()
        chosen = llm.prefill(self.model, lucid.tensor([prompt]), cache).argmax(-1)
        read, times, made = clock() - started, [], [int(chosen.item())]
        for _ in range(new):
            started = clock()
            chosen = self.model(chosen[:, None], cache=cache)[:, -1].argmax(-1)
            made.append(int(chosen.item()))
            times.append(clock() - started)
        return read, statistics.median(times), made


class Theirs:
    """llama.cpp's side."""

    def __init__(self, path: Path, threads: int, context: int) -> None:
        self.model = llama_cpp.Llama(
            str(path), n_ctx=context, n_batch=512, n_threads=threads, n_threads_batch=threads, verbose=False
        )

    def _best(self) -> int:
        logits = llama_cpp.llama_get_logits_ith(self.model.ctx, -1)
        size = self.model.n_vocab()
        values = (ctypes.c_float * size).from_address(ctypes.addressof(logits.contents))
        return int(lucid.frombuffer(values, dtype=lucid.float32).argmax().item())

    def run(self, prompt: list[int], new: int) -> tuple[float, float, list[int]]:
        """The same."""
        self.model.reset()
        llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(self.model.ctx), True)
        started = clock()
        self.model.eval(prompt)
        chosen = self._best()
        read, times, made = clock() - started, [], [chosen]
        for _ in range(new):
            started = clock()
            self.model.eval([chosen])
            chosen = self._best()
            made.append(chosen)
            times.append(clock() - started)
        return read, statistics.median(times), made


def main() -> None:
    parser = argparse.ArgumentParser(description="Times prefill and decoding against llama.cpp.")
    parser.add_argument("--shape", choices=SHAPES, default="llama-3.2-1b")
    parser.add_argument("--layers", type=int, default=None)
    parser.add_argument("--vocab", type=int, default=None, help="tokens, where the shape's are to be fewer")
    parser.add_argument("--formats", nargs="+", default=["Q4_0", "Q8_0", "Q4_K", "Q6_K", "BF16"])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--prompt", type=int, default=128)
    parser.add_argument("--new", type=int, default=24)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    if given.threads == 1:
        global clock
        clock = time.thread_time
    shape = dict(SHAPES[given.shape])
    shape["num_hidden_layers"] = given.layers or shape["num_hidden_layers"]
    shape["vocab_size"] = given.vocab or shape["vocab_size"]
    lucid.set_num_threads(given.threads)
    lucid.manual_seed(1)
    prompt = lucid.randint(3, shape["vocab_size"], (given.prompt,)).tolist()
    print(f"{given.shape}, {shape['num_hidden_layers']} layers, {given.threads} threads, prompt {given.prompt}")
    print(f"{'format':>7} {'step':>8} {'ours tok/s':>11} {'llama.cpp':>10} {'ratio':>6} {'control':>8}  same tokens")
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        model = dense(shape)
        for form in given.formats:
            path = write(model, Path(folder), form)
            sides = [Ours(path, form), Theirs(path, given.threads, 1024), None]
            sides[2] = sides[1]
            seen: list[list[tuple[float, float, list[int]]]] = [[], [], []]
            for i in range(given.rounds + 1):
                for side in [(i + j) % 3 for j in range(3)]:
                    done = sides[side].run(prompt, given.new)  # type: ignore[union-attr]
                    if i:
                        seen[side].append(done)
            same = 0
            for a, b in zip(seen[0][0][2], seen[1][0][2], strict=True):
                if a != b:
                    break
                same += 1
            for step, size in (("prefill", given.prompt), ("decode", 1)):
                at = 0 if step == "prefill" else 1
                ours, theirs, again = (size / statistics.median(run[at] for run in side) for side in seen)
                row = {
                    "format": form, "step": step, "ours": ours, "theirs": theirs, "ratio": ours / theirs,
                    "control": again / theirs, "same": same,
                }  # fmt: skip
                rows.append(row)
                print(f"{form:>7} {step:>8} {ours:11.2f} {theirs:10.2f} {ours / theirs:6.2f} {again / theirs:8.2f}  "
                      f"{same} of {given.new + 1}", flush=True)  # fmt: skip
    if given.json:
        print(json.dumps({"rows": rows}))


if __name__ == "__main__":
    main()
