"""Tensors of which some elements count and others do not, as in `torch.masked`.

A masked tensor is data and a mask of the same shape: true is what counts. Functions of elements are those of the data,
where the mask stays; reductions leave out what does not count, and give a masked result where nothing is left:

    mt = lucid.masked.masked_tensor(lucid.tensor([1.0, 2.0, 3.0]), lucid.tensor([True, False, True]))
    mt.mean()                   # MaskedTensor(  2.0000, True)

`sum`, `mean`, `softmax` and kin also take plain tensors with `mask=`, and give plain ones. Gradients go through to the
data, and are masked as it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lucid._absent import teller
from lucid.masked._reductions import (
    amax,
    amin,
    argmax,
    argmin,
    logsumexp,
    mean,
    median,
    norm,
    prod,
    std,
    sum,
    var,
)
from lucid.masked._scans import cumprod, cumsum, log_softmax, logaddexp, normalize, softmax, softmin
from lucid.masked._tensor import MaskedTensor, as_masked_tensor, is_masked_tensor, masked_tensor

__all__ = [
    "MaskedTensor",
    "amax",
    "amin",
    "argmax",
    "argmin",
    "as_masked_tensor",
    "cumprod",
    "cumsum",
    "is_masked_tensor",
    "log_softmax",
    "logaddexp",
    "logsumexp",
    "masked_tensor",
    "mean",
    "median",
    "norm",
    "normalize",
    "prod",
    "softmax",
    "softmin",
    "std",
    "sum",
    "var",
]

if not TYPE_CHECKING:
    __getattr__ = teller(__name__)
