"""Process-wide switches that PyTorch has too."""

from __future__ import annotations

import warnings

from lucid import _C, errors

_interop_threads = 1
_matmul_precision = "highest"
_warn_always = False


def set_num_interop_threads(num: int) -> None:
    """Sets how many ops may run beside each other. Ops run on the thread that calls them, so the number is kept, read
    back, and starts no threads; `set_num_threads` sets how many one op uses.
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
    """
    global _matmul_precision
    if not isinstance(precision, str):
        raise errors.RuntimeError(f"set_float32_matmul_precision expects a str, but got {type(precision).__name__}")
    if precision not in ("highest", "high", "medium"):
        text = f"{precision} is not one of 'highest', 'high', or 'medium'; the current call has no effect."
        warnings.warn(text, UserWarning, stacklevel=2)
        return
    _matmul_precision = precision


def get_float32_matmul_precision() -> str:
    """What `set_float32_matmul_precision` was given; "highest" at first."""
    return _matmul_precision


def set_warn_always(b: bool) -> None:
    """Says whether a warning is given each time that there is a reason for it. Lucid's go through Python's `warnings`,
    whose filters decide; the setting is kept and read back."""
    global _warn_always
    if not isinstance(b, bool):
        raise errors.RuntimeError(f"setWarnOnlyOnce expects a bool, but got {type(b).__name__}")
    _warn_always = b


def is_warn_always_enabled() -> bool:
    """What `set_warn_always` was given; False at first."""
    return _warn_always
