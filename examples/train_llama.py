"""Trains a small Llama on what Python's modules say of themselves, quantises it, and shows what that costs.

    python examples/train_llama.py [--out FOLDER] [--steps 600] [--device cpu|gpu] [--quick] [--json]

The text is the docstrings of the standard library; a byte-level BPE is trained on it first. The folder that is written
runs with `python -m lucid.llm generate --model FOLDER --prompt "Return "`. `--quick` is a few steps of a smaller model.
"""

from __future__ import annotations

import argparse
import ast
import collections
import itertools
import json
import math
import re
import sysconfig
import tempfile
import time
from pathlib import Path
from typing import Any

import lucid
import lucid.nn.functional as F
from lucid import llm
from lucid.quantization import model_bytes, quantize

WORDS = re.compile(r" ?[A-Za-z]+| ?[0-9]+| ?[^\sA-Za-z0-9]+|\s+")


def corpus(most: int) -> str:
    """Docstrings of the standard library, file by file in alphabetical order."""
    parts, size = [], 0
    for path in sorted(Path(sysconfig.get_path("stdlib")).rglob("*.py")):
        if "site-packages" in path.parts or "test" in path.parts or "idlelib" in path.parts:
            continue
        try:
            tree = ast.parse(path.read_text(encoding="utf-8"))
        except (OSError, SyntaxError, ValueError):
            continue
        for node in ast.walk(tree):
            if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)):
                text = ast.get_docstring(node)
                if text and len(text) > 40:
                    parts.append(text)
                    size += len(text)
        if size > most:
            break
    return "\n\n".join(parts)[:most]


def byte_letters() -> dict[int, str]:
    """The letter that byte-level BPE writes each byte as."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    other = (b for b in range(256) if b not in plain)
    return {**{b: chr(b) for b in plain}, **{b: chr(256 + i) for i, b in enumerate(other)}}


def train_tokenizer(text: str, size: int, folder: Path) -> None:
    """Byte-level BPE with `size` tokens, as a `tokenizer.json`."""
    letters = byte_letters()
    counts = collections.Counter(WORDS.findall(text))
    words = [([letters[b] for b in word.encode()], n) for word, n in counts.items()]
    tokens = ["<|end|>", *letters.values()]
    merges: list[tuple[str, str]] = []
    while len(tokens) < size:
        pairs: collections.Counter[tuple[str, str]] = collections.Counter()
        for word, n in words:
            for pair in itertools.pairwise(word):
                pairs[pair] += n
        if not pairs:
            break
        a, b = max(pairs, key=lambda p: (pairs[p], p))
        merges.append((a, b))
        tokens.append(a + b)
        for word, _ in words:
            i = 0
            while i + 1 < len(word):
                if word[i] == a and word[i + 1] == b:
                    word[i : i + 2] = [a + b]
                i += 1
    made = {
        "version": "1.0",
        "added_tokens": [
            {"id": 0, "content": "<|end|>", "special": True, "single_word": False, "lstrip": False, "rstrip": False,
             "normalized": False}
        ],
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [
                {"type": "Split", "pattern": {"Regex": WORDS.pattern}, "behavior": "Isolated", "invert": False},
                {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False},
            ],
        },
        "decoder": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False},
        "model": {
            "type": "BPE", "vocab": {t: i for i, t in enumerate(tokens)}, "merges": [list(m) for m in merges],
        },
    }  # fmt: skip
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokenizer.json").write_text(json.dumps(made), encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<|end|>"}), encoding="utf-8")


def main() -> dict[str, Any]:
    parser = argparse.ArgumentParser(description="Trains a small Llama and quantises it.")
    parser.add_argument("--out", default=None, help="the folder to write; a temporary one where none is given")
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    quick = given.quick
    steps, length, batch = (min(given.steps, 40), 64, 4) if quick else (given.steps, 128, 8)
    lucid.manual_seed(given.seed)
    folder = Path(given.out or tempfile.mkdtemp(prefix="llama-"))

    started = time.perf_counter()
    text = corpus(100_000 if quick else 1_500_000)
    train_tokenizer(text, 384 if quick else 1024, folder)
    tokenizer = llm.load_tokenizer(folder)
    tokens = tokenizer.encode(text)
    held_out = tokens[int(0.97 * len(tokens)) :][:2560]
    data = lucid.tensor(tokens[: int(0.97 * len(tokens))], device=given.device)
    print(f"{len(text)} characters, {len(tokens)} tokens of {tokenizer.vocab_size} in "
          f"{time.perf_counter() - started:.1f} s")  # fmt: skip

    width, layers = (64, 2) if quick else (256, 4)
    config = llm.Config(
        "llama", tokenizer.vocab_size, width, 3 * width, layers, 4, 2, width // 4,
        max_position_embeddings=512, tie_word_embeddings=True, eos_token_id=[0],
    )  # fmt: skip
    model = llm.CausalLM(config, device=given.device)
    for name, parameter in model.named_parameters():
        if parameter.ndim > 1:
            lucid.nn.init.normal_(
                parameter, std=0.02 / (math.sqrt(2 * layers) if "o_proj" in name or "down" in name else 1)
            )
    print(f"{model.num_parameters() / 1e6:.2f} M parameters")
    optimizer = lucid.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.1, betas=(0.9, 0.95))
    schedule = lucid.optim.lr_scheduler.OneCycleLR(optimizer, 2e-3, total_steps=steps + 1, pct_start=0.1)
    losses = []
    offsets = lucid.arange(length + 1, device=given.device)
    for step in range(steps):
        starts = lucid.randint(0, len(data) - length - 1, (batch, 1)).to(given.device)
        rows = data[starts + offsets]
        logits = model(rows[:, :-1])
        loss = F.cross_entropy(logits.reshape(-1, logits.shape[-1]), rows[:, 1:].reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        lucid.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
        if step % 50 == 0 or step + 1 == steps:
            print(f"step {step:4} loss {losses[-1]:.3f}, {time.perf_counter() - started:.0f} s", flush=True)
    model.eval()
    llm.save_model(model, folder)

    made: dict[str, Any] = {"losses": losses, "folder": str(folder), "perplexity": {}}
    for bits in (None, 8, 4):
        packed = llm.load_model(folder, given.device)
        if bits:
            quantize(packed, bits, 32)
        value = llm.perplexity(packed, held_out, 256)
        made["perplexity"][bits or "float32"] = value
        rise = 100 * (value / made["perplexity"]["float32"] - 1)
        print(f"{bits or 'float32'} bits: {model_bytes(packed) / 1e6:.2f} MB, perplexity {value:.3f} ({rise:+.2f} %)")
    prompt = "Return the"
    made["sample"] = llm.generate(
        model, prompt, 40, tokenizer, llm.Sampler(temperature=0.7, top_p=0.9, seed=given.seed)
    )[0].text  # fmt: skip
    print(prompt + made["sample"])
    if given.json:
        print(json.dumps(made))
    return made


if __name__ == "__main__":
    main()
