"""`lucid.nn.utils`: what is done to parameters, gradients, modules and sequences."""

from __future__ import annotations

import importlib
from typing import Any

from lucid.nn.utils import rnn
from lucid.nn.utils.clip_grad import (
    clip_grad_norm,
    clip_grad_norm_,
    clip_grad_value_,
    clip_grads_with_norm_,
    get_total_norm,
)
from lucid.nn.utils.rnn import (
    PackedSequence,
    pack_padded_sequence,
    pack_sequence,
    pad_packed_sequence,
    pad_sequence,
    unpack_sequence,
    unpad_sequence,
)

# Imported on first use: they need the modules, which need `rnn`.
_LAZY = {
    "convert_conv2d_weight_memory_format": "convert",
    "convert_conv3d_weight_memory_format": "convert",
    "copy_parameters_and_buffers": "convert",
    "fuse_conv_bn_eval": "fusion",
    "fuse_conv_bn_weights": "fusion",
    "fuse_linear_bn_eval": "fusion",
    "fuse_linear_bn_weights": "fusion",
    "parameters_to_vector": "convert",
    "remove_spectral_norm": "norms",
    "remove_weight_norm": "norms",
    "skip_init": "convert",
    "spectral_norm": "norms",
    "vector_to_parameters": "convert",
    "weight_norm": "norms",
}
_PACKAGES = ("fusion", "parametrizations", "parametrize", "prune", "stateless")

__all__ = [
    "PackedSequence",
    "clip_grad_norm",
    "clip_grad_norm_",
    "clip_grad_value_",
    "clip_grads_with_norm_",
    "get_total_norm",
    "pack_padded_sequence",
    "pack_sequence",
    "pad_packed_sequence",
    "pad_sequence",
    "rnn",
    "unpack_sequence",
    "unpad_sequence",
]


def __getattr__(name: str) -> Any:
    if name in _PACKAGES:
        return importlib.import_module(f"lucid.nn.utils.{name}")
    if name in _LAZY:
        value = getattr(importlib.import_module(f"lucid.nn.utils.{_LAZY[name]}"), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'lucid.nn.utils' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY, *_PACKAGES})
