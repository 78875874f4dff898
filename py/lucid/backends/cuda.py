"""NVIDIA's GPU, as in `torch.backends.cuda`: is it what MLX computes on, and how precise products have to be."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import lucid
from lucid import _gpu
from lucid._warnings import warn_once

__all__ = [
    "allow_fp16_bf16_reduction_math_sdp",
    "cudnn_sdp_enabled",
    "enable_cudnn_sdp",
    "enable_flash_sdp",
    "enable_math_sdp",
    "enable_mem_efficient_sdp",
    "flash_sdp_enabled",
    "fp16_bf16_reduction_math_sdp_allowed",
    "is_built",
    "is_flash_attention_available",
    "math_sdp_enabled",
    "matmul",
    "mem_efficient_sdp_enabled",
    "sdp_kernel",
]

#: Which of PyTorch's implementations of attention are on: kept and read back. Attention has one a device here.
_sdp = {"flash": True, "mem_efficient": True, "math": True, "cudnn": True, "reduction": False}


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


def _switch(name: str, enabled: bool) -> None:
    warn_once("enable_sdp", f"enable_{name}_sdp(): changes nothing; attention has one implementation a device")
    _sdp[name] = bool(enabled)


def flash_sdp_enabled() -> bool:
    """Whether FlashAttention is on, as set; it changes nothing."""
    return _sdp["flash"]


def enable_flash_sdp(enabled: bool) -> None:
    """Sets whether FlashAttention is on; warns once that it changes nothing.

    Args:
        enabled (bool): the setting.

    Example:
        >>> lucid.backends.cuda.enable_flash_sdp(True)
    """
    _switch("flash", enabled)


def mem_efficient_sdp_enabled() -> bool:
    """Whether memory-efficient attention is on, as set; it changes nothing."""
    return _sdp["mem_efficient"]


def enable_mem_efficient_sdp(enabled: bool) -> None:
    """Sets whether memory-efficient attention is on; warns once that it changes nothing.

    Args:
        enabled (bool): the setting.

    Example:
        >>> lucid.backends.cuda.enable_mem_efficient_sdp(True)
    """
    _switch("mem_efficient", enabled)


def math_sdp_enabled() -> bool:
    """Whether attention written in ops is on, as set; it changes nothing."""
    return _sdp["math"]


def enable_math_sdp(enabled: bool) -> None:
    """Sets whether attention written in ops is on; warns once that it changes nothing.

    Args:
        enabled (bool): the setting.

    Example:
        >>> lucid.backends.cuda.enable_math_sdp(True)
    """
    _switch("math", enabled)


def cudnn_sdp_enabled() -> bool:
    """Whether cuDNN's attention is on, as set; it changes nothing."""
    return _sdp["cudnn"]


def enable_cudnn_sdp(enabled: bool) -> None:
    """Sets whether cuDNN's attention is on; warns once that it changes nothing.

    Args:
        enabled (bool): the setting.

    Example:
        >>> lucid.backends.cuda.enable_cudnn_sdp(True)
    """
    _switch("cudnn", enabled)


def fp16_bf16_reduction_math_sdp_allowed() -> bool:
    """Whether sums of 16-bit attention may be 16-bit, as set; they are float32."""
    return _sdp["reduction"]


def allow_fp16_bf16_reduction_math_sdp(enabled: bool) -> None:
    """Sets whether sums of 16-bit attention may be 16-bit; they are float32, which both settings allow.

    Args:
        enabled (bool): the setting.

    Example:
        >>> lucid.backends.cuda.allow_fp16_bf16_reduction_math_sdp(False)
    """
    _sdp["reduction"] = bool(enabled)


def is_flash_attention_available() -> bool:
    """Whether PyTorch's FlashAttention is there: `False`."""
    return False


@contextlib.contextmanager
def sdp_kernel(
    enable_flash: bool = True, enable_math: bool = True, enable_mem_efficient: bool = True, enable_cudnn: bool = True
) -> Iterator[None]:
    """A block with these switches of attention: the older name of `nn.attention.sdpa_kernel`, as a warning says.

    Differences from PyTorch: each device has one implementation, which is used whatever is chosen; a warning says so
    once.

    Args:
        enable_flash (bool, default: True): whether FlashAttention is on.
        enable_math (bool, default: True): whether the composition of ops is on.
        enable_mem_efficient (bool, default: True): whether memory-efficient attention is on.
        enable_cudnn (bool, default: True): whether cuDNN's attention is on.

    Returns:
        context manager: the block.

    Example:
        >>> with lucid.backends.cuda.sdp_kernel(enable_flash=False):
        ...     print(lucid.backends.cuda.flash_sdp_enabled())
        False
    """
    from lucid.nn.attention import SDPBackend, sdpa_kernel

    why = "`lucid.backends.cuda.sdp_kernel()` is deprecated. Please use `lucid.nn.attention.sdpa_kernel()` instead."
    warn_once("sdp_kernel", why, FutureWarning)
    switches = (
        (enable_flash, SDPBackend.FLASH_ATTENTION),
        (enable_math, SDPBackend.MATH),
        (enable_mem_efficient, SDPBackend.EFFICIENT_ATTENTION),
        (enable_cudnn, SDPBackend.CUDNN_ATTENTION),
    )
    with sdpa_kernel([backend for on, backend in switches if on]):
        yield
