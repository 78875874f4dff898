"""`lc-run infer|train|bench`: the tiny transformer from a shell."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

import lucid
from lucid import errors
from lucid.lightning._runtime import device_of
from lucid.lightning.runner.checkpoint import load_checkpoint, save_checkpoint
from lucid.lightning.runner.model import TinyTransformer, TransformerConfig
from lucid.lightning.runner.run import bench, generate, train

__all__ = ["main"]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="lc-run", description="Train, run and time a tiny transformer of bytes.")
    commands = parser.add_subparsers(dest="command", required=True)
    for name, about in (
        ("infer", "add bytes to a prompt"),
        ("train", "train on a text and write a checkpoint"),
        ("bench", "time the forward"),
    ):
        command = commands.add_parser(name, help=about)
        command.add_argument("--device", default="cpu", help="cpu, metal, cuda or auto")
        command.add_argument("--seed", type=int, default=0)
        command.add_argument("--json", action="store_true", help="print one JSON object")
        command.add_argument("--checkpoint", type=Path, help="what to load, and for train to write")
        if name != "infer":
            for size, value in (("context", 64), ("width", 64), ("heads", 4), ("layers", 2)):
                command.add_argument(f"--{size}", type=int, default=value, help="of a fresh model")
            command.add_argument("--batch", type=int, default=8)
        if name == "infer":
            command.add_argument("--prompt", required=True)
            command.add_argument("--count", type=int, default=32)
            command.add_argument("--temperature", type=float, default=0.0)
        elif name == "train":
            command.add_argument("--text", type=Path, required=True, help="a file")
            command.add_argument("--steps", type=int, default=100)
            command.add_argument("--lr", type=float, default=3e-3)
            command.add_argument("--resume", action="store_true", help="go on from the checkpoint")
        else:
            command.add_argument("--iters", type=int, default=10)
            command.add_argument("--warmup", type=int, default=2)
    return parser


def _fresh(given: argparse.Namespace, device: object) -> TinyTransformer:
    lucid.manual_seed(given.seed)
    config = TransformerConfig(context=given.context, width=given.width, heads=given.heads, layers=given.layers)
    model = TinyTransformer(config)
    model.to(device)
    return model


def _run(given: argparse.Namespace) -> dict[str, object]:
    device = device_of("lc-run", given.device)
    if given.command == "infer":
        if given.checkpoint is None:
            raise errors.ValueError("infer needs --checkpoint")
        model, _ = load_checkpoint(given.checkpoint, device)
        out = generate(model, given.prompt, count=given.count, temperature=given.temperature, seed=given.seed)
        return {"text": out.decode("utf-8", "replace")}
    if given.command == "bench":
        model = _fresh(given, device) if given.checkpoint is None else load_checkpoint(given.checkpoint, device)[0]
        return bench(model, batch=given.batch, warmup=given.warmup, iters=given.iters)
    begin, optimizer = 0, None
    if given.resume:
        if given.checkpoint is None:
            raise errors.ValueError("train --resume needs --checkpoint")
        model, state = load_checkpoint(given.checkpoint, device)
        begin = state["step"]
        optimizer = lucid.optim.AdamW(model.parameters(), lr=given.lr)
        if state["optimizer"] is not None:
            optimizer.load_state_dict(state["optimizer"])
    else:
        model = _fresh(given, device)
    done = train(
        model,
        given.text.read_bytes(),
        steps=given.steps,
        batch=given.batch,
        lr=given.lr,
        seed=given.seed,
        optimizer=optimizer,
        begin=begin,
    )
    if given.checkpoint is not None:
        save_checkpoint(given.checkpoint, model, done["optimizer"], done["step"], given.seed)
    return {"step": done["step"], "first_loss": done["losses"][0], "last_loss": done["losses"][-1]}


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command of `lc-run`: `train`, `infer` or `bench`.

    Args:
        arguments (sequence of str, optional): the command line's arguments. Default: `sys.argv[1:]`.

    Returns:
        int: 0 where it went well, 2 for a user's mistake.

    Example:
        >>> from lucid.lightning.runner.cli import main
        >>> main(["--help"])
        Traceback (most recent call last):
        ...
        SystemExit: 0
    """
    given = _parser().parse_args(arguments)
    try:
        result = _run(given)
    except (errors.LucidError, OSError) as e:
        print(f"lc-run {given.command}: {e}", file=sys.stderr)
        return 2
    if given.json:
        print(json.dumps(result))
    elif given.command == "infer":
        print(result["text"])
    else:
        print("  ".join(f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}" for k, v in result.items()))
    return 0
