"""The same as `lucid.nn.quantized`."""

from __future__ import annotations

from lucid.nn.quantized import FloatFunctional as FloatFunctional
