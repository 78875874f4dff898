"""What a report of a fault should say of the machine, as `torch.utils.collect_env`.

python -m lucid.utils.collect_env
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import sys
from typing import NamedTuple

__all__ = ["SystemEnv", "get_env_info", "get_pretty_env_info", "main"]

_PACKAGES = ("numpy", "mlx", "mlx-cpu", "mlx-metal", "mlx-cuda-12", "mlx-cuda-13", "scipy-openblas32", "torch")


class SystemEnv(NamedTuple):
    """What `get_env_info` finds out about this system.

    Args:
        lucid_version (str): Lucid's version.
        python_version (str): Python's version, with its word size.
        python_platform (str): the platform as Python describes it.
        os (str): the operating system.
        processor (str): the processor's model.
        processors (str): how many processors there are.
        threads (str): how many threads the CPU backend uses.
        gpu (str): the device that MLX computes on.
        environment (tuple of tuple of (str, str)): environment variables that Lucid or MLX reads, with their values.
        packages (tuple of tuple of (str, str)): related packages with their versions.

    Example:
        >>> from lucid.utils.collect_env import get_env_info
        >>> get_env_info().lucid_version == lucid.__version__
        True
    """

    lucid_version: str
    python_version: str
    python_platform: str
    os: str
    processor: str
    processors: str
    threads: str
    gpu: str
    environment: tuple[tuple[str, str], ...]
    packages: tuple[tuple[str, str], ...]


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            for line in file:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def get_env_info() -> SystemEnv:
    """Collects the facts; nothing is run and nothing leaves the machine.

    Example:
        >>> from lucid.utils.collect_env import get_env_info
        >>> get_env_info().lucid_version == lucid.__version__
        True
    """
    import lucid
    from lucid import _gpu

    versions = []
    for name in _PACKAGES:
        try:
            versions.append((name, importlib.metadata.version(name)))
        except importlib.metadata.PackageNotFoundError:
            continue
    gpu = lucid.device("gpu").type
    kind = "" if _gpu.kind() in ("metal", "cuda") else " (MLX's CPU stream)"
    prefixes = ("LUCID_", "MLX_", "OPENBLAS_", "OMP_", "CUDA_VISIBLE", "DYLD_LIBRARY", "LD_LIBRARY")
    return SystemEnv(
        lucid.__version__,
        sys.version.replace("\n", " "),
        platform.platform(),
        f"{platform.system()} {platform.release()} ({platform.machine()})",
        _processor(),
        str(os.cpu_count()),
        str(lucid.get_num_threads()),
        gpu + kind,
        tuple(sorted((k, v) for k, v in os.environ.items() if k.startswith(prefixes))),
        tuple(versions),
    )


def get_pretty_env_info() -> str:
    """The facts as a text."""
    info = get_env_info()
    lines = [
        f"Lucid version: {info.lucid_version}",
        f"Python version: {info.python_version}",
        f"Python platform: {info.python_platform}",
        f"OS: {info.os}",
        f"Processor: {info.processor} ({info.processors})",
        f"Threads of the cpu device: {info.threads}",
        f"GPU device: {info.gpu}",
        "",
        "Versions of relevant libraries:",
        *(f"[pip3] {name}=={version}" for name, version in info.packages),
    ]
    if info.environment:
        lines += ["", "Environment:", *(f"{k}={v}" for k, v in info.environment)]
    return "\n".join(lines)


def main() -> None:
    """Prints the facts."""
    print(get_pretty_env_info())


if __name__ == "__main__":
    main()
