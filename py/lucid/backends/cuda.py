"""NVIDIA's GPU, as in `torch.backends.cuda`: is it what MLX computes on, and how precise products have to be."""

from __future__ import annotations

import lucid
from lucid import _gpu

__all__ = ["is_built", "matmul"]


def is_built() -> bool:
    """Is the installed MLX the one for CUDA, and is there such a GPU?"""
    return _gpu.kind() == "cuda"


class _Matmul:
    """How precise products of matrices have to be."""

    __slots__ = ("allow_bf16_reduced_precision_reduction", "allow_fp16_reduced_precision_reduction")

    #: Sums of 16-bit products are float32's whatever is set, which both settings allow.
    allow_bf16_reduced_precision_reduction: bool
    allow_fp16_reduced_precision_reduction: bool

    def __init__(self) -> None:
        self.allow_bf16_reduced_precision_reduction = self.allow_fp16_reduced_precision_reduction = True

    @property
    def allow_tf32(self) -> bool:
        """May float32 products be less precise? `set_float32_matmul_precision` by another name. They are not: only
        `MLX_ENABLE_TF32=1` in the environment makes them so.
        """
        return lucid.get_float32_matmul_precision() != "highest"

    @allow_tf32.setter
    def allow_tf32(self, value: bool) -> None:
        lucid.set_float32_matmul_precision("high" if value else "highest")


matmul = _Matmul()
