"""A tiny transformer that is trained, saved, loaded and run: `lc-run`, or `python -m lucid.lightning.runner`."""

from __future__ import annotations

from lucid.lightning.runner.checkpoint import load_checkpoint as load_checkpoint
from lucid.lightning.runner.checkpoint import save_checkpoint as save_checkpoint
from lucid.lightning.runner.model import Block as Block
from lucid.lightning.runner.model import TinyTransformer as TinyTransformer
from lucid.lightning.runner.model import TransformerConfig as TransformerConfig
from lucid.lightning.runner.run import bench as bench
from lucid.lightning.runner.run import generate as generate
from lucid.lightning.runner.run import train as train

__all__ = [
    "Block",
    "TinyTransformer",
    "TransformerConfig",
    "bench",
    "generate",
    "load_checkpoint",
    "save_checkpoint",
    "train",
]
