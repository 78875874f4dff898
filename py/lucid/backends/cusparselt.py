"""cuSPARSELt, as in `torch.backends.cusparselt`: it is not used."""

from __future__ import annotations

__all__ = ["is_available", "version"]


def is_available() -> bool:
    """False: sparse tensors are computed by Lucid's own kernels and MLX's."""
    return False


def version() -> int | None:
    """None: there is no cuSPARSELt."""
    return None
