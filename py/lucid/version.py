"""Versions, under the names of `torch.version`."""

from __future__ import annotations

from importlib import metadata

from lucid._C import __version__

__all__ = ["__version__", "cuda", "debug", "hip"]


def _cuda() -> str | None:
    for major in ("13", "12"):
        try:
            metadata.version(f"mlx-cuda-{major}")
        except metadata.PackageNotFoundError:
            continue
        return f"{major}.0"
    return None


#: The version of CUDA that the installed MLX is made for; `None` where it is made for none.
cuda: str | None = _cuda()
#: That of ROCm's HIP: MLX is made for none.
hip: str | None = None
#: Is this a build with checks that are slow?
debug = False
