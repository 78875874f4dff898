"""Checkpoints: weights, the optimizer's state, sizes and progress in one file."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path
from typing import Any

import lucid
from lucid import errors
from lucid.lightning.runner.model import TinyTransformer, TransformerConfig

__all__ = ["load_checkpoint", "save_checkpoint"]

FORMAT = "lucid-lightning-transformer"
VERSION = 1


def save_checkpoint(
    path: str | os.PathLike[str], model: TinyTransformer, optimizer: Any = None, step: int = 0, seed: int = 0
) -> None:
    """Writes a model, and with an optimizer its state; the file is renamed into place when it is whole.

    Args:
        path (str or os.PathLike): the file to write.
        model (TinyTransformer): whose weights and sizes are written.
        optimizer (Optimizer, optional): whose state is written. Default: none.
        step (int, optional): how many steps the model was trained for. Default: 0.
        seed (int, optional): the seed that it was trained with. Default: 0.

    Raises:
        TypeError: `model` is no `TinyTransformer`.
        OSError: the file cannot be written.

    Example:
        >>> import tempfile
        >>> from lucid.lightning import runner
        >>> model = runner.TinyTransformer(runner.TransformerConfig(context=8, width=8, heads=2, layers=1))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     runner.save_checkpoint(f"{folder}/model.pt", model, step=3)
        ...     runner.load_checkpoint(f"{folder}/model.pt")[1]["step"]
        3
    """
    if not isinstance(model, TinyTransformer):
        raise errors.TypeError(f"save_checkpoint(): expected a TinyTransformer, got {type(model).__name__}")
    data = {
        "format": FORMAT,
        "version": VERSION,
        "config": json.dumps(dataclasses.asdict(model.config)),
        "step": int(step),
        "seed": int(seed),
        "model": {k: v.detach().cpu() for k, v in model.state_dict().items()},
        "optimizer": None if optimizer is None else optimizer.state_dict(),
    }
    fresh = Path(f"{os.fspath(path)}.{os.getpid()}.part")
    try:
        lucid.save(data, fresh)
        os.replace(fresh, path)
    finally:
        fresh.unlink(missing_ok=True)


def load_checkpoint(path: str | os.PathLike[str], device: Any = "cpu") -> tuple[TinyTransformer, dict[str, Any]]:
    """Reads a checkpoint that `save_checkpoint` wrote.

    Args:
        path (str or os.PathLike): the file to read.
        device (device or str, optional): where the model goes. Default: `"cpu"`.

    Returns:
        tuple of (TinyTransformer, dict): the model, and `step`, `seed` and `optimizer` (its state, or None).

    Raises:
        FileNotFoundError: There is no file.
        ValueError: It is no checkpoint of this kind or version, or its weights do not fit its sizes.

    Example:
        >>> import tempfile
        >>> from lucid.lightning import runner
        >>> model = runner.TinyTransformer(runner.TransformerConfig(context=8, width=8, heads=2, layers=1))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     runner.save_checkpoint(f"{folder}/model.pt", model)
        ...     loaded, _ = runner.load_checkpoint(f"{folder}/model.pt")
        >>> loaded.config.context
        8
    """
    data = lucid.load(path, map_location="cpu")
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise errors.ValueError(f"load_checkpoint(): {os.fspath(path)} is no checkpoint of a TinyTransformer")
    if data.get("version") != VERSION:
        raise errors.ValueError(f"load_checkpoint(): version {data.get('version')!r}; this Lucid reads {VERSION}")
    try:
        model = TinyTransformer(TransformerConfig(**json.loads(data["config"])))
        model.load_state_dict(data["model"])
    except (KeyError, TypeError, RuntimeError, ValueError) as e:
        raise errors.ValueError(f"load_checkpoint(): {os.fspath(path)} is broken: {e}") from e
    model.to(device)
    return model, {"step": data.get("step", 0), "seed": data.get("seed", 0), "optimizer": data.get("optimizer")}
