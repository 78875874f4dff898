"""Names around the choice of an attention kernel, as `torch.nn.attention`. Lucid has one implementation a device."""

from __future__ import annotations

import contextlib
import enum
import importlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from lucid._absent import missing
from lucid._warnings import warn_once
from lucid.backends import cuda as _switches

__all__ = ["WARN_FOR_UNFUSED_KERNELS", "SDPBackend", "sdpa_kernel"]

WARN_FOR_UNFUSED_KERNELS = False


class SDPBackend(enum.Enum):
    """PyTorch's implementations of `scaled_dot_product_attention`."""

    ERROR = -1
    MATH = 0
    FLASH_ATTENTION = 1
    EFFICIENT_ATTENTION = 2
    CUDNN_ATTENTION = 3
    OVERRIDEABLE = 4


@contextlib.contextmanager
def sdpa_kernel(backends: list[SDPBackend] | SDPBackend, set_priority: bool = False) -> Iterator[None]:
    """A block in which PyTorch chooses among some implementations of attention.

    Differences from PyTorch: each device has one implementation, which is used whatever is chosen; a warning says so
    once.

    Args:
        backends (list[SDPBackend] | SDPBackend): one or several; the switches of `lucid.backends.cuda` say so
            inside of the block.
        set_priority (bool, default: False): whether the order counts.

    Returns:
        context manager: the block.

    Raises:
        AssertionError: `backends` is neither.

    Example:
        >>> from lucid.nn.attention import SDPBackend, sdpa_kernel
        >>> with sdpa_kernel(SDPBackend.MATH):
        ...     print(lucid.backends.cuda.flash_sdp_enabled())
        False
    """
    given = [backends] if isinstance(backends, SDPBackend) else backends
    if not isinstance(given, (list, tuple)) or not all(isinstance(b, SDPBackend) for b in given):
        raise AssertionError("Backend must be an instance of SDPBackend or a list of SDPBackend instances")
    warn_once("sdpa_kernel", "sdpa_kernel(): the choice changes nothing; attention has one implementation a device")
    names = {
        "flash": SDPBackend.FLASH_ATTENTION,
        "mem_efficient": SDPBackend.EFFICIENT_ATTENTION,
        "math": SDPBackend.MATH,
        "cudnn": SDPBackend.CUDNN_ATTENTION,
    }
    former = dict(_switches._sdp)
    _switches._sdp.update({name: b in given for name, b in names.items()})
    try:
        yield
    finally:
        _switches._sdp.update(former)


def _get_flash_version() -> str:
    """The version of the library of flash attention: raises an error.

    Raises:
        NotImplementedError: always.
    """
    from lucid import errors

    raise errors.NotImplementedError(
        "nn.attention._get_flash_version: attention is computed by Lucid's own kernels and MLX's, which are no library "
        "of flash attention"
    )


if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """Loads `flex_attention` when it is first asked for."""
        if name == "flex_attention":
            return importlib.import_module("lucid.nn.attention.flex_attention")
        raise missing(__name__, name)
