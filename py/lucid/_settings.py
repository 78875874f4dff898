"""Process-wide switches that PyTorch has too."""

from __future__ import annotations

import os

from lucid import _C, errors
from lucid._warnings import warn

_interop_threads = 1
_matmul_precision = "highest"


def set_num_interop_threads(num: int) -> None:
    """Sets how many ops may run beside each other. Ops run on the thread that calls them, so the number is kept, read
    back, and starts no threads; `set_num_threads` sets how many one op uses.

    Args:
        num (int): the number, positive.

    Raises:
        RuntimeError: `num` is not positive.

    Example:
        >>> lucid.set_num_interop_threads(lucid.get_num_interop_threads())
    """
    global _interop_threads
    if isinstance(num, bool) or not isinstance(num, int):
        raise errors.TypeError(f"set_num_interop_threads expects an int, but got {type(num).__name__}")
    if num < 1:
        raise errors.RuntimeError(f"Expected a positive number of threads, got {num}")
    _interop_threads = num


def get_num_interop_threads() -> int:
    """The number that `set_num_interop_threads` was given; 1 at first."""
    return _interop_threads


def use_deterministic_algorithms(mode: bool, *, warn_only: bool = False) -> None:
    """With `mode`, ops that may give other numbers when run again (`op_schemas()` says which, and why) raise a
    RuntimeError on the GPU device, or with `warn_only` warn. On the CPU every op gives the same numbers.

    Args:
        mode (bool): turns it on.
        warn_only (bool, default: False): warns, rather than raises an error.

    Raises:
        TypeError: `mode` is no bool.

    Example:
        >>> lucid.use_deterministic_algorithms(False)
    """
    if not isinstance(mode, bool):
        raise errors.TypeError(f"use_deterministic_algorithms expects a bool, but got {type(mode).__name__}")
    _C._set_deterministic((2 if not warn_only else 1) if mode else 0)


def are_deterministic_algorithms_enabled() -> bool:
    """Is `use_deterministic_algorithms` on?"""
    return _C._get_deterministic() > 0


def is_deterministic_algorithms_warn_only_enabled() -> bool:
    """Is it on with `warn_only`?"""
    return _C._get_deterministic() == 1


def set_float32_matmul_precision(precision: str) -> None:
    """Says how precise products of float32 matrices have to be: "highest", "high" or "medium"; another word warns and
    changes nothing. Products are computed in full float32 whatever is set, which the lower two words allow.

    Args:
        precision (str): "highest", "high" or "medium".

    Raises:
        TypeError: `precision` is no str.

    Example:
        >>> lucid.set_float32_matmul_precision("highest")
    """
    global _matmul_precision
    if not isinstance(precision, str):
        raise errors.RuntimeError(f"set_float32_matmul_precision expects a str, but got {type(precision).__name__}")
    if precision not in ("highest", "high", "medium"):
        text = f"{precision} is not one of 'highest', 'high', or 'medium'; the current call has no effect."
        warn(text)
        return
    _matmul_precision = precision


def get_float32_matmul_precision() -> str:
    """What `set_float32_matmul_precision` was given; "highest" at first."""
    return _matmul_precision


def set_warn_always(b: bool) -> None:
    """Sets whether what is warned of once in a process is warned of each time. Python's filters still decide.

    Args:
        b (bool): whether each time.

    Raises:
        RuntimeError: `b` is no bool.

    Example:
        >>> lucid.set_warn_always(False)
    """
    if not isinstance(b, bool):
        raise errors.RuntimeError(f"setWarnOnlyOnce expects a bool, but got {type(b).__name__}")
    _C._warn_always(b)


def is_warn_always_enabled() -> bool:
    """What `set_warn_always` was given; False at first."""
    return _C._warn_always()


_DEBUG_MODES = {"default": 0, "warn": 1, "error": 2}


def set_deterministic_debug_mode(debug_mode: int | str) -> None:
    """Sets `use_deterministic_algorithms` by a word or a number.

    Args:
        debug_mode (int or str): "default" (0) for off, "warn" (1) or "error" (2) for ops that are not deterministic.

    Raises:
        TypeError: `debug_mode` is neither int nor str.
        RuntimeError: it is another word or number.

    Example:
        >>> lucid.set_deterministic_debug_mode("default")
    """
    if isinstance(debug_mode, bool) or not isinstance(debug_mode, (int, str)):
        raise errors.TypeError(f"debug_mode must be str or int, but got {type(debug_mode).__name__}")
    mode = _DEBUG_MODES.get(debug_mode, debug_mode) if isinstance(debug_mode, str) else debug_mode
    if mode not in (0, 1, 2):
        words = "`default`, `warn`, `error`" if isinstance(debug_mode, str) else "0, 1, 2"
        raise errors.RuntimeError(f"invalid value of debug_mode, expected one of {words}, but got {debug_mode}")
    use_deterministic_algorithms(mode != 0, warn_only=mode == 1)


def get_deterministic_debug_mode() -> int:
    """What `set_deterministic_debug_mode` was given, as a number."""
    return _C._get_deterministic()


def set_flush_denormal(mode: bool) -> bool:
    """Asks for numbers below the normal ones to become zero. Here they are always kept.

    Args:
        mode (bool): whether they should become zero.

    Returns:
        bool: whether that is so now: True for `mode=False`, else False, as in PyTorch on a processor that cannot.

    Raises:
        RuntimeError: `mode` is no bool.

    Example:
        >>> lucid.set_flush_denormal(True)
        False
    """
    if not isinstance(mode, bool):
        raise errors.RuntimeError(f"flush_denormal expects a bool, but got {type(mode).__name__}")
    return not mode


def set_anomaly_enabled(enabled: bool, check_nan: bool = True) -> None:
    """Sets anomaly mode for the process, as `autograd.set_detect_anomaly` does.

    Args:
        enabled (bool): whether a backward pass names the forward call of a node that fails.
        check_nan (bool, optional): whether a gradient of NaN fails. Default: True.

    Example:
        >>> lucid.set_anomaly_enabled(False)
    """
    _C._set_detect_anomaly(bool(enabled), bool(check_nan))


def set_deterministic(mode: bool) -> None:
    """`use_deterministic_algorithms(mode)`: ops that may give other numbers when run again become errors on the GPU.

    Args:
        mode (bool): turns it on.

    Example:
        >>> lucid.set_deterministic(False)
    """
    use_deterministic_algorithms(mode)


def set_zero_copy_threshold(bytes: int) -> int:
    """Sets from how many bytes on CPU and GPU share a tensor's memory instead of copying it, where they can at all
    (docs/macos.md): 32 KiB at first. 0 shares whatever can be, a large number copies everything. An NVIDIA GPU has
    memory of its own, to which everything is copied.

    Args:
        bytes (int): the size of a tensor's elements, at least 0.

    Returns:
        The threshold until now.

    Raises:
        ValueError: `bytes` is negative.

    Example:
        >>> before = lucid.set_zero_copy_threshold(64 * 1024)
        >>> lucid.set_zero_copy_threshold(before)
        65536
    """
    if isinstance(bytes, bool) or not isinstance(bytes, int):
        raise errors.TypeError(f"set_zero_copy_threshold expects an int, but got {type(bytes).__name__}")
    if not 0 <= bytes < 1 << 63:
        raise errors.ValueError(f"set_zero_copy_threshold expects a number of bytes of at least 0, but got {bytes}")
    before = get_zero_copy_threshold()
    _C._zero_copy_threshold(bytes)
    return before


def get_zero_copy_threshold() -> int:
    """From how many bytes on CPU and GPU share a tensor's memory."""
    return _C._zero_copy_threshold()


_POLICIES = {"error": False, "downcast": True}


def set_float64_policy(policy: str) -> None:
    """Says what becomes of float64 and complex128 tensors that come to the GPU device, which has no such numbers.

    Args:
        policy (str): `"error"`, the default, raises; `"downcast"` makes float32 and complex64 of them, and warns
            once. The environment variable `LUCID_FLOAT64_POLICY` sets it when Lucid is imported.

    Raises:
        ValueError: another word.

    Example:
        >>> lucid.set_float64_policy(lucid.get_float64_policy())
    """
    if policy not in _POLICIES:
        raise errors.ValueError(f"set_float64_policy expects 'error' or 'downcast', but got {policy!r}")
    _C._float64_downcast(_POLICIES[policy])


def get_float64_policy() -> str:
    """What `set_float64_policy` was given; `"error"` at first."""
    return "downcast" if _C._float64_downcast() else "error"


if "LUCID_FLOAT64_POLICY" in os.environ:
    set_float64_policy(os.environ["LUCID_FLOAT64_POLICY"])
