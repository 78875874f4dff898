"""What the CPU can do, as in `torch.backends.cpu`."""

from __future__ import annotations

import functools
import platform
from pathlib import Path

__all__ = ["get_cpu_capability"]


@functools.cache
def get_cpu_capability() -> str:
    """The widest vectors that the CPU has, by PyTorch's names: `"AVX512"`, `"AVX2"`, or `"DEFAULT"` for all others.

    Lucid's kernels choose by themselves.
    """
    if platform.machine().lower() not in ("x86_64", "amd64"):
        return "DEFAULT"
    try:
        flags = Path("/proc/cpuinfo").read_text(errors="replace")
    except OSError:
        return "AVX2"
    return "AVX512" if "avx512f" in flags else "AVX2" if "avx2" in flags else "DEFAULT"
