"""`lucid.ao.quantization`: what models that can be quantized are made of, in floating point."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lucid._absent import teller
from lucid.ao import nn as nn
from lucid.ao import quantization as quantization

__all__ = ["nn", "quantization"]

if not TYPE_CHECKING:
    __getattr__ = teller(__name__)
