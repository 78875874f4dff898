"""Loads the extension, and says in one sentence what to do where its libraries are missing or of another version."""

from __future__ import annotations

import os
import sys

_MLX = "0.32.2"

# MLX reads it once, at the first launch on an NVIDIA GPU. Its graphs of CUDA's begin to run when they are complete;
# launched one by one, kernels run while the next are recorded: most training steps that were measured took 0.6 to 0.9
# of the time (docs/compile.md).
os.environ.setdefault("MLX_USE_CUDA_GRAPHS", "0")
# MLX keeps plans of the last 128 convolutions there, and raises after some hundreds of shapes, gradients' among them.
# Images of many sizes are no mistake: it keeps more, and makes the others again.
os.environ.setdefault("MLX_CUDA_CONV_CACHE_SIZE", "1024")
os.environ.setdefault("MLX_ENABLE_CACHE_THRASHING_CHECK", "0")


def _installed() -> str | None:
    """The version of the installed MLX, if any. Only looked up where something is wrong already."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("mlx")
    except PackageNotFoundError:
        return None


def _advice(error: ImportError) -> str:
    text = str(error)
    mac = sys.platform == "darwin"
    found = _installed()
    extras = "'lucid'" if mac else "'lucid[cpu]', 'lucid[cuda12]' or 'lucid[cuda13]'"
    if found is not None and found.split("+")[0] != _MLX:
        return f"Lucid needs MLX {_MLX}, but MLX {found} is installed: run pip install with {extras}."
    if "scipy_openblas" in text:
        return "Lucid needs OpenBLAS: run pip install 'scipy-openblas32==0.3.34.481.3'."
    if "libmlx" in text or found is None:
        return f"Lucid needs MLX {_MLX}, which is not installed: run pip install with {extras}, as fits this machine."
    return f"Lucid's extension module could not be loaded: {text}"


try:
    from lucid import _C
except ImportError as error:
    raise ImportError(_advice(error)) from error

_C._check_mlx()
