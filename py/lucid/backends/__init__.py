"""What there is to compute with, and PyTorch's switches for it, as in `torch.backends`.

Scripts ask `backends.mps.is_available()` and set `backends.cudnn.benchmark`. Lucid's libraries are others: MLX on the
GPU, Accelerate or OpenBLAS and its own kernels on the CPU. So MKL, oneDNN, NNPACK and OpenMP are not there, and of the
switches each says in its module what it does here.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from lucid._absent import teller
from lucid.backends import accelerate as accelerate
from lucid.backends import cpu as cpu
from lucid.backends import cuda as cuda
from lucid.backends import cudnn as cudnn
from lucid.backends import cusparselt as cusparselt
from lucid.backends import metal as metal
from lucid.backends import mkl as mkl
from lucid.backends import mkldnn as mkldnn
from lucid.backends import mps as mps
from lucid.backends import nnpack as nnpack
from lucid.backends import openmp as openmp
from lucid.backends import opt_einsum as opt_einsum
from lucid.backends import quantized as quantized

__all__ = [
    "accelerate",
    "cpu",
    "cuda",
    "cudnn",
    "cusparselt",
    "metal",
    "mkl",
    "mkldnn",
    "mps",
    "nnpack",
    "openmp",
    "opt_einsum",
    "quantized",
]


def flags_frozen() -> bool:
    """Are switches set by context managers alone? `disable_global_flags` would have it so, and is not there."""
    return False


@contextmanager
def __allow_nonbracketed_mutation() -> Iterator[None]:
    """A block in which switches may be set, as they always may be; MONAI's `set_determinism` names it."""
    yield


if not TYPE_CHECKING:
    __getattr__ = teller(__name__)
