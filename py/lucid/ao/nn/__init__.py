"""`lucid.ao.nn.quantized`, the same as `lucid.nn.quantized`."""

from __future__ import annotations

from lucid.ao.nn import quantized as quantized
