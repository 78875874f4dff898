"""`python -m lucid.llm generate|chat|serve|bench|convert|quantize|perplexity|finetune|merge|download`."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import lucid
from lucid import errors
from lucid.llm import (
    Cache,
    CausalLM,
    Constraint,
    PrefixCache,
    Sampler,
    Tokenizer,
    Vocabulary,
    add_lora,
    finetuning,
    generation,
    hub,
    load_adapter,
    load_model,
    load_tokenizer,
    merge_lora,
    save_adapter,
    save_model,
)
from lucid.llm.gguf_export import FORMATS, save_gguf
from lucid.llm.lora import TARGETS
from lucid.llm.quantizing import calibration_windows, gptq
from lucid.quantization import model_bytes, quantize


def _dtype(name: str) -> Any:
    if name not in ("float32", "float16", "bfloat16"):
        raise argparse.ArgumentTypeError(f"{name!r} is not float32, float16 or bfloat16")
    return getattr(lucid, name)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m lucid.llm", description="Runs and prepares language models.")
    commands = parser.add_subparsers(dest="command", required=True)

    def command(name: str, text: str) -> argparse.ArgumentParser:
        made = commands.add_parser(name, help=text, description=text)
        made.add_argument(
            "--model", required=True, help="a Hugging Face folder, a GGUF file, or the id of a model in the hub's cache"
        )
        made.add_argument("--adapter", default=None, help="a folder with a LoRA adapter")
        made.add_argument("--device", default=None, help="cpu or gpu")
        made.add_argument("--dtype", type=_dtype, default=None, help="of float weights: float32, float16 or bfloat16")
        return made

    def rounding(made: argparse.ArgumentParser) -> None:
        made.add_argument(
            "--activations", choices=("float", "int8"), default=None,
            help="int8 rounds activations for quantised matrices, the default on the cpu",
        )  # fmt: skip

    def sampling(made: argparse.ArgumentParser) -> None:
        made.add_argument("--max-tokens", type=int, default=256)
        made.add_argument("--temperature", type=float, default=0.0)
        made.add_argument("--top-k", type=int, default=0)
        made.add_argument("--top-p", type=float, default=1.0)
        made.add_argument("--min-p", type=float, default=0.0)
        made.add_argument("--repetition-penalty", type=float, default=1.0)
        made.add_argument("--presence-penalty", type=float, default=0.0)
        made.add_argument("--frequency-penalty", type=float, default=0.0)
        made.add_argument("--seed", type=int, default=None)
        made.add_argument("--stop", action="append", default=[])
        made.add_argument("--json-schema", default=None, help="a file with the schema that the output is JSON of")
        made.add_argument("--regex", default=None, help="a regular expression that the output matches")
        made.add_argument("--grammar", default=None, help="a file with a grammar in Lark's notation for the output")
        made.add_argument("--cache-bits", type=int, default=None, help="quantise the cache to so many bits")
        rounding(made)

    made = command("generate", "Goes on with a prompt.")
    made.add_argument("--prompt", required=True, help="text; - reads standard input")
    made.add_argument("--chat", action="store_true", help="put the prompt through the chat template")
    made.add_argument("--prompt-cache", default=None, help="a file that keeps what was read of earlier prompts")
    made.add_argument("--logprobs", action="store_true", help="print each token's log-probability instead of a stream")
    sampling(made)
    made = command("chat", "Talks in the terminal.")
    made.add_argument("--system", default=None, help="what the model is told first")
    sampling(made)
    made = command("bench", "Measures prefill and decoding.")
    made.add_argument("--prompt-tokens", type=int, default=512)
    made.add_argument("--new-tokens", type=int, default=32)
    made.add_argument("--batch", type=int, default=1)
    rounding(made)
    for name, text in (
        ("convert", "Writes a model as a folder of safetensors, or as a GGUF file."),
        ("quantize", "Writes a model with quantised weights, and what it costs in perplexity."),
    ):
        made = command(name, text)
        made.add_argument("--out", required=True, help="the folder to write; convert takes NAME.gguf too")
        made.add_argument("--format", choices=FORMATS, default="F16", help="of the matrices in a GGUF file")
        made.add_argument("--text", default=None, help="a text file to measure the perplexity on")
        if name == "quantize":
            made.add_argument("--bits", type=int, default=4)
            made.add_argument("--group-size", type=int, default=64)
            made.add_argument("--method", choices=("nearest", "gptq"), default="nearest")
            made.add_argument("--calibration", default=None, help="a text file whose activations gptq rounds for")
            made.add_argument("--calibration-windows", type=int, default=32)
    made = command("perplexity", "Measures a model on a text.")
    made.add_argument("--text", required=True)
    made.add_argument("--window", type=int, default=512)
    made.add_argument("--limit", type=int, default=None, help="the most windows")
    made = command("serve", "Serves OpenAI's HTTP API.")
    rounding(made)
    _serving(made)
    _learning(command("finetune", "Trains adapters (LoRA; QLoRA with --bits or a quantised model), or all weights."))
    made = command("merge", "Puts an adapter into a model's weights.")
    made.add_argument("--out", required=True, help="the folder to write, or NAME.gguf")
    made.add_argument("--format", choices=FORMATS, default="F16", help="of the matrices in a GGUF file")
    made = commands.add_parser("download", help="Fetches a model into the hub's cache.")
    made.add_argument("--model", required=True, help="the model's id, such as OWNER/NAME")
    made.add_argument("--revision", default="main")
    made.add_argument("--endpoint", default=None, help="where the hub is; HF_ENDPOINT, or the public one")
    made.add_argument("--file", action="append", default=[], help="only this file of the model, such as NAME.gguf")
    return parser


def _serving(made: argparse.ArgumentParser) -> None:
    made.add_argument("--host", default="127.0.0.1", help="others than loopback need an API key")
    made.add_argument("--port", type=int, default=8000)
    made.add_argument("--api-key", default=None, help="default: the environment's LUCID_API_KEY, if it is there")
    made.add_argument("--name", default=None, help="what clients call the model; its folder's name else")
    made.add_argument("--max-batch", type=int, default=32, help="sequences that run at once")
    made.add_argument("--max-requests", type=int, default=256, help="requests that run or wait")
    made.add_argument("--max-context", type=int, default=None, help="tokens of a sequence")
    made.add_argument("--body-limit", type=int, default=4 << 20, help="bytes of a request")
    made.add_argument("--prefix-bytes", type=int, default=256 << 20, help="memory for what was read of earlier prompts")


def _learning(made: argparse.ArgumentParser) -> None:
    made.add_argument(
        "--data", required=True, help="a .jsonl file of text, prompt and completion, or messages; or a text"
    )
    made.add_argument("--valid", default=None, help="a file like it to measure on")
    made.add_argument("--out", required=True, help="the folder of the adapter, or of the model with --full")
    made.add_argument("--full", action="store_true", help="train all weights")
    made.add_argument("--bits", type=int, default=None, help="quantise the weights first (QLoRA)")
    made.add_argument("--group-size", type=int, default=64)
    made.add_argument("--rank", type=int, default=8)
    made.add_argument("--alpha", type=float, default=16.0)
    made.add_argument("--dropout", type=float, default=0.0)
    made.add_argument("--targets", default=",".join(TARGETS), help="names of layers, with commas")
    made.add_argument("--steps", type=int, default=200)
    made.add_argument("--batch", type=int, default=4)
    made.add_argument("--accumulate", type=int, default=1)
    made.add_argument("--learning-rate", type=float, default=1e-4)
    made.add_argument("--weight-decay", type=float, default=0.0)
    made.add_argument("--warmup", type=int, default=10)
    made.add_argument("--max-tokens", type=int, default=512, help="of an example")
    made.add_argument("--valid-every", type=int, default=100)
    made.add_argument("--seed", type=int, default=0)


def _load(given: argparse.Namespace) -> CausalLM:
    started = time.perf_counter()
    given.model = str(hub.resolve(given.model))
    rounds = "float"
    if "activations" in given:
        on_cpu = lucid.device(given.device or lucid.get_default_device()).type == "cpu"
        rounds = given.activations or ("int8" if on_cpu and given.adapter is None else "float")
    model = load_model(given.model, given.device, given.dtype, rounds)
    if given.adapter is not None:
        load_adapter(model, given.adapter)
    size = model_bytes(model) / 1e9
    print(
        f"loaded {model.config.model_type}, {model.num_parameters() / 1e6:.1f} M parameters, {size:.2f} GB, on "
        f"{model.device} in {time.perf_counter() - started:.1f} s",
        file=sys.stderr,
    )
    return model


def _sampler(given: argparse.Namespace) -> Sampler:
    return Sampler(
        given.temperature,
        given.top_k,
        given.top_p,
        given.min_p,
        given.repetition_penalty,
        given.seed,
        given.presence_penalty,
        given.frequency_penalty,
    )


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as e:
        raise errors.FileError(f"{path}: {e}") from None


def _constraint(given: argparse.Namespace, model: CausalLM, tokenizer: Tokenizer) -> Constraint | None:
    """What the output keeps to, if anything."""
    asked = [n for n in ("json_schema", "regex", "grammar") if getattr(given, n) is not None]
    if not asked:
        return None
    ends = model.config.eos_token_id
    if len(asked) > 1 or not ends:
        raise errors.ValueError(
            "generate: give one of --json-schema, --regex and --grammar, for a model with an end token"
        )
    vocabulary = Vocabulary(tokenizer, model.config.vocab_size, ends[0])
    if given.regex is not None:
        return vocabulary.regex(given.regex)
    if given.grammar is not None:
        return vocabulary.grammar(_read(given.grammar))
    try:
        return vocabulary.json_schema(json.loads(_read(given.json_schema)))
    except json.JSONDecodeError as e:
        raise errors.ValueError(f"{given.json_schema}: not JSON: {e}") from None


def _prefixes(given: argparse.Namespace, model: CausalLM) -> PrefixCache | None:
    if given.prompt_cache is None:
        return None
    made = PrefixCache(model)
    if Path(given.prompt_cache).exists():
        made.load(given.prompt_cache)
    return made


def _cache_options(given: argparse.Namespace) -> dict[str, Any]:
    return {"kind": "quantized", "bits": given.cache_bits} if given.cache_bits else {}


def _show(read: int, of: int) -> None:
    if sys.stderr.isatty() and of > generation.CHUNK:
        print(f"\rreading {read} of {of} tokens", end="\n" if read == of else "", file=sys.stderr)


def _write(
    model: CausalLM,
    tokenizer: Tokenizer,
    tokens: list[int],
    given: argparse.Namespace,
    cache: Cache | None,
    prefixes: PrefixCache | None = None,
) -> str:
    """Streams an answer to standard output; says how fast it was."""
    started = time.perf_counter()
    first, count, text = 0.0, 0, ""
    options: Any = {} if cache is not None else {"cache_options": _cache_options(given)}
    options.update(prefixes=prefixes, constraint=_constraint(given, model, tokenizer))
    for token, piece in generation.stream(
        model,
        [tokens],
        given.max_tokens,
        tokenizer,
        _sampler(given),
        given.stop,
        cache=cache,
        progress=_show,
        **options,
    ):
        if count == 0:
            first = time.perf_counter()
        count += token >= 0
        text += piece
        print(piece, end="", flush=True)
    print()
    now = time.perf_counter()
    memory = int(lucid._C.memory_stats("gpu")["peak"])
    decode = (count - 1) / max(now - first, 1e-9)
    print(
        f"{len(tokens)} tokens read at {len(tokens) / max(first - started, 1e-9):.1f}/s, {count} written at "
        f"{decode:.1f}/s" + (f", {memory / 1e9:.2f} GB at most" if memory else ""),
        file=sys.stderr,
    )
    return text


def _generate(given: argparse.Namespace) -> None:
    model, tokenizer = _load(given), load_tokenizer(given.model)
    prompt = sys.stdin.read() if given.prompt == "-" else given.prompt
    if given.chat:
        prompt = tokenizer.apply_chat_template([{"role": "user", "content": prompt}])
    tokens = tokenizer.encode(prompt, not given.chat)
    prefixes = _prefixes(given, model)
    if given.logprobs:
        constraint = _constraint(given, model, tokenizer)
        made = generation.generate(
            model, [tokens], given.max_tokens, tokenizer, _sampler(given), given.stop, logprobs=True,
            cache_options=_cache_options(given), prefixes=prefixes, constraint=constraint,
        )[0]  # fmt: skip
        for token, logprob in zip(made.tokens, made.logprobs or (), strict=True):
            print(f"{logprob:9.4f}  {tokenizer.decode([token], False)!r}")
    else:
        _write(model, tokenizer, tokens, given, None, prefixes)
    if prefixes is not None:
        prefixes.save(given.prompt_cache)


def _chat(given: argparse.Namespace) -> None:
    model, tokenizer = _load(given), load_tokenizer(given.model)
    messages: list[dict[str, Any]] = [{"role": "system", "content": given.system}] if given.system else []
    cache: Cache | None = None
    seen: list[int] = []
    print("An empty line ends the conversation.", file=sys.stderr)
    while True:
        try:
            line = input("> ")
        except EOFError:
            break
        if not line.strip():
            break
        messages.append({"role": "user", "content": line})
        tokens = tokenizer.encode(tokenizer.apply_chat_template(messages), False)
        # What the cache has seen is not read again where the conversation begins with it.
        if cache is None or tokens[: len(seen)] != seen or len(tokens) <= len(seen):
            cache, seen = Cache(model.config, **_cache_options(given)), []
        text = _write(model, tokenizer, tokens[len(seen) :], given, cache)
        messages.append({"role": "assistant", "content": text})
        seen = tokens[: min(len(tokens), cache.offset)]
        extra = cache.offset - len(seen)
        try:
            cache.trim(extra)
        except errors.ValueError:
            cache, seen = None, []


@lucid.no_grad()
def _bench(given: argparse.Namespace) -> None:
    model = _load(given)
    tokens = lucid.randint(0, model.config.vocab_size, (given.batch, given.prompt_tokens), device=model.device)
    for run in ("warm-up", "measured"):
        cache = Cache(model.config)
        started = time.perf_counter()
        logits = generation.prefill(model, tokens, cache)
        chosen = logits.argmax(-1)
        chosen.eval()
        read = time.perf_counter() - started
        started = time.perf_counter()
        for _ in range(given.new_tokens):
            chosen = model(chosen[:, None], cache=cache)[:, -1].argmax(-1)
            chosen.eval()
        wrote = time.perf_counter() - started
        if run == "measured":
            print(
                f"batch {given.batch}: prefill {tokens.numel() / read:.1f} tokens/s, decode "
                f"{given.batch * given.new_tokens / wrote:.1f} tokens/s, cache {cache.nbytes / 1e6:.1f} MB"
            )


def _text(given: argparse.Namespace) -> list[int]:
    return load_tokenizer(given.model).encode(_read(given.text))


def _convert(given: argparse.Namespace) -> None:
    model = _load(given)
    source = given.model if Path(given.model).is_dir() else None
    before = generation.perplexity(model, _text(given)) if given.text else None
    if given.command == "quantize":
        size = model_bytes(model)
        if given.method == "gptq":
            if given.calibration is None:
                raise errors.ValueError("quantize: gptq needs a text with --calibration")
            tokens = load_tokenizer(given.model).encode(_read(given.calibration))
            gptq(model, calibration_windows(model, tokens, given.calibration_windows), given.bits, given.group_size)
        else:
            quantize(model, given.bits, given.group_size)
        print(f"{size / 1e6:.1f} MB before, {model_bytes(model) / 1e6:.1f} MB after")
    if before is not None:
        after = generation.perplexity(model, _text(given))
        print(f"perplexity {before:.4f} before, {after:.4f} after ({100 * (after / before - 1):+.2f} %)")
    _save(model, given, source)


def _save(model: CausalLM, given: argparse.Namespace, source: str | None) -> None:
    """Writes a model where `--out` says: as a GGUF file or as a folder."""
    if given.out.endswith(".gguf"):
        if given.command == "quantize":
            raise errors.ValueError("quantize: writes folders; convert --format Q4_0 writes a quantised GGUF file")
        save_gguf(model, given.out, given.format, load_tokenizer(given.model), Path(given.model).stem)
        print(f"wrote {given.out}")
        return
    save_model(model, given.out, source)
    if source is None:
        tokenizer = load_tokenizer(given.model)
        (Path(given.out) / "tokenizer.json").write_text(tokenizer._engine.to_json(), encoding="utf-8")
        if tokenizer.chat_template:
            (Path(given.out) / "chat_template.jinja").write_text(tokenizer.chat_template, encoding="utf-8")
    print(f"wrote {given.out}")


def _perplexity(given: argparse.Namespace) -> None:
    print(f"perplexity {generation.perplexity(_load(given), _text(given), given.window, given.limit):.4f}")


def _serve(given: argparse.Namespace) -> None:
    from lucid.llm.server import Server

    model, tokenizer = _load(given), load_tokenizer(given.model)
    server = Server(
        model, tokenizer, given.name or Path(given.model).stem, given.host, given.port,
        given.api_key or os.environ.get("LUCID_API_KEY"), given.body_limit, given.max_requests, given.max_batch,
        given.max_context, given.prefix_bytes,
    )  # fmt: skip

    def stop(number: int, frame: Any) -> None:
        # The second one ends all.
        signal.signal(number, signal.SIG_DFL)
        print("stopping when the requests that run are answered", file=sys.stderr)
        server.stop()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    host, port = server.address
    print(
        f"serving {server.name} at http://{f'[{host}]' if ':' in host else host}:{port}/v1", file=sys.stderr, flush=True
    )
    server.run()


def _finetune(given: argparse.Namespace) -> None:
    model = _load(given)
    tokenizer = load_tokenizer(given.model)
    lucid.manual_seed(given.seed)
    if given.full:
        if given.bits is not None:
            raise errors.ValueError("finetune: quantised weights do not learn; leave out --bits or --full")
        for parameter in model.parameters():
            parameter.requires_grad_(True)
    else:
        if given.adapter is not None:
            # Goes on with an adapter.
            for name, parameter in model.named_parameters():
                parameter.requires_grad_(".lora_" in name or name.endswith(("lora_A", "lora_B")))
        else:
            if given.bits is not None:
                quantize(model, given.bits, given.group_size)
            add_lora(model, given.rank, given.alpha, given.dropout, [t for t in given.targets.split(",") if t])
    learned = sum(p.numel() for p in model.parameters() if p.requires_grad)
    end = model.config.eos_token_id[0] if model.config.eos_token_id else None
    most = min(given.max_tokens, model.config.context)
    examples = finetuning.read_examples(given.data, tokenizer, most, end)
    valid = finetuning.read_examples(given.valid, tokenizer, most, end) if given.valid else []
    print(f"{learned / 1e6:.3f} M parameters learn from {len(examples)} examples", file=sys.stderr)

    def report(r: finetuning.Report) -> None:
        if r.step % 10 == 0 or r.step == given.steps or r.valid_loss is not None:
            valid_loss = "" if r.valid_loss is None else f", validation {r.valid_loss:.4f}"
            print(f"step {r.step}: loss {r.loss:.4f}{valid_loss}, {r.tokens_per_second:.0f} tokens/s", file=sys.stderr)

    losses = finetuning.finetune(
        model, examples, given.steps, given.batch, given.accumulate, given.learning_rate, given.warmup,
        given.weight_decay, valid=valid, valid_every=given.valid_every, seed=given.seed, report=report,
    )  # fmt: skip
    print(f"loss {losses[0]:.4f} at first, {losses[-1]:.4f} at last")
    if given.full:
        _save(model, given, given.model if Path(given.model).is_dir() else None)
    else:
        save_adapter(model, given.out, given.model)
        print(f"wrote {given.out}")


def _merge(given: argparse.Namespace) -> None:
    if given.adapter is None:
        raise errors.ValueError("merge: needs --adapter")
    model = merge_lora(_load(given))
    _save(model, given, given.model if Path(given.model).is_dir() else None)


def _download(given: argparse.Namespace) -> None:
    print(hub.download(given.model, given.revision, given.endpoint, given.file or None, say=_say))


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command; the exit status."""
    given = _parser().parse_args(arguments)
    run = {
        "generate": _generate,
        "chat": _chat,
        "serve": _serve,
        "bench": _bench,
        "convert": _convert,
        "quantize": _convert,
        "perplexity": _perplexity,
        "finetune": _finetune,
        "merge": _merge,
        "download": _download,
    }[given.command]
    try:
        run(given)
    except KeyboardInterrupt:
        print(file=sys.stderr)
        return 130
    except (errors.LucidError, OSError) as e:
        print(f"error: {e}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
