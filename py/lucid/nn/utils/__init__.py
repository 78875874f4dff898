"""`lucid.nn.utils`: what is done to parameters, gradients, modules and sequences."""

from __future__ import annotations

import importlib
from typing import Any

from lucid._absent import missing
from lucid.nn.utils import rnn
from lucid.nn.utils.clip_grad import (
    clip_grad_norm,
    clip_grad_norm_,
    clip_grad_value_,
    clip_grads_with_norm_,
    get_total_norm,
)
from lucid.nn.utils.convert_parameters import (
    copy_parameters_and_buffers,
    parameters_to_vector,
    vector_to_parameters,
)
from lucid.nn.utils.fusion import fuse_conv_bn_eval, fuse_conv_bn_weights, fuse_linear_bn_eval, fuse_linear_bn_weights
from lucid.nn.utils.init import skip_init
from lucid.nn.utils.memory_format import convert_conv2d_weight_memory_format, convert_conv3d_weight_memory_format
from lucid.nn.utils.rnn import (
    PackedSequence,
    pack_padded_sequence,
    pack_sequence,
    pad_packed_sequence,
    pad_sequence,
    unpack_sequence,
    unpad_sequence,
)

# These two are files' names as well: here they are the functions, as in PyTorch.
from lucid.nn.utils.spectral_norm import remove_spectral_norm, spectral_norm
from lucid.nn.utils.weight_norm import remove_weight_norm, weight_norm

# Imported on first use: they need the modules, which need `rnn`.
_PACKAGES = ("parametrizations", "parametrize", "prune", "stateless")

__all__ = [
    "PackedSequence",
    "clip_grad_norm",
    "clip_grad_norm_",
    "clip_grad_value_",
    "clip_grads_with_norm_",
    "convert_conv2d_weight_memory_format",
    "convert_conv3d_weight_memory_format",
    "copy_parameters_and_buffers",
    "fuse_conv_bn_eval",
    "fuse_conv_bn_weights",
    "fuse_linear_bn_eval",
    "fuse_linear_bn_weights",
    "get_total_norm",
    "pack_padded_sequence",
    "pack_sequence",
    "pad_packed_sequence",
    "pad_sequence",
    "parameters_to_vector",
    "remove_spectral_norm",
    "remove_weight_norm",
    "rnn",
    "skip_init",
    "spectral_norm",
    "unpack_sequence",
    "unpad_sequence",
    "vector_to_parameters",
    "weight_norm",
]


def __getattr__(name: str) -> Any:
    if name in _PACKAGES:
        return importlib.import_module(f"lucid.nn.utils.{name}")
    raise missing("lucid.nn.utils", name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_PACKAGES})
