"""Batches of tensors of different lengths without padding, as in `torch.nested`: the jagged layout.

A nested tensor of shape (N, j, …) keeps its rows one after the other as `values()`, and where each begins as
`offsets()`. Functions of elements, `linear`, norms, reductions and attention work on the rows there are:

    nt = lucid.nested.nested_tensor([lucid.randn(3, 8), lucid.randn(5, 8)])
    y = nn.Linear(8, 4)(nt)                   # (2, j, 4): 8 rows, none of padding
    y.to_padded_tensor(0.0).shape             # (2, 5, 4)

Gradients go through all of it, to the tensors that `as_nested_tensor` was given. Differences from PyTorch: the jagged
layout is the default and the only one, so that one dimension alone may differ; a function without a rule raises
NotImplementedError by its name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lucid._absent import teller
from lucid.nested._ops import RULES as RULES
from lucid.nested._tensor import NestedTensor as NestedTensor
from lucid.nested._tensor import (
    as_nested_tensor,
    masked_select,
    narrow,
    nested_tensor,
    nested_tensor_from_jagged,
    to_padded_tensor,
)

__all__ = [
    "NestedTensor",
    "as_nested_tensor",
    "masked_select",
    "narrow",
    "nested_tensor",
    "nested_tensor_from_jagged",
    "to_padded_tensor",
]

if not TYPE_CHECKING:
    __getattr__ = teller(__name__)
