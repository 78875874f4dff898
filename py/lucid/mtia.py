"""Meta's accelerators, as `torch.mtia`: there are none, so questions are answered and the rest says so."""

from __future__ import annotations

from typing import Any

from lucid import errors

__all__ = ["device_count", "empty_cache", "is_available", "is_initialized", "manual_seed", "manual_seed_all"]


def is_available() -> bool:
    """Whether there is such a device: `False`."""
    return False


def is_initialized() -> bool:
    """Whether it is in use: `False`."""
    return False


def device_count() -> int:
    """The number of such devices: 0."""
    return 0


def empty_cache() -> None:
    """Frees its unused memory, of which there is none."""


def manual_seed(seed: int) -> None:
    """Seeds its generator, which is not there; `lucid.manual_seed` seeds those of both devices."""


def manual_seed_all(seed: int) -> None:
    """Seeds the generators of all such devices; there are none."""


def _need(name: str) -> Any:
    def call(*args: Any, **kwargs: Any) -> Any:
        raise errors.GpuNotAvailable(f"mtia.{name}(): there is no such device; the devices are 'cpu' and 'gpu'")

    call.__name__ = call.__qualname__ = name
    call.__doc__ = "Needs one of Meta's accelerators.\n\n    Raises:\n        RuntimeError: always; there is none."
    return call


for _name in (
    *("current_device", "current_stream", "default_stream", "device", "get_device_capability", "get_device_properties"),
    *("get_rng_state", "set_rng_state", "memory_allocated", "max_memory_allocated", "memory_stats", "set_device"),
    *("stream", "synchronize"),
):
    globals()[_name] = _need(_name)
