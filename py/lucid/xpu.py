"""Intel's GPUs, as `torch.xpu`: there are none, so questions are answered and the rest says so."""

from __future__ import annotations

from typing import Any

from lucid import errors

__all__ = ["device_count", "empty_cache", "is_available", "is_bf16_supported", "is_initialized", "manual_seed"]


def is_available() -> bool:
    """Whether there is such a GPU: `False`."""
    return False


def is_initialized() -> bool:
    """Whether it is in use: `False`."""
    return False


def device_count() -> int:
    """The number of such GPUs: 0."""
    return 0


def is_bf16_supported() -> bool:
    """Whether it computes in bfloat16: `False`."""
    return False


def empty_cache() -> None:
    """Frees its unused memory, of which there is none."""


def manual_seed(seed: int) -> None:
    """Seeds its generator, which is not there; `lucid.manual_seed` seeds those of both devices."""


def manual_seed_all(seed: int) -> None:
    """Seeds the generators of all such GPUs; there are none."""


def memory_allocated(device: Any = None) -> int:
    """Its memory in use: 0."""
    return 0


def memory_reserved(device: Any = None) -> int:
    """Its memory that is kept: 0."""
    return 0


def max_memory_allocated(device: Any = None) -> int:
    """The most of its memory that was in use: 0."""
    return 0


def reset_peak_memory_stats(device: Any = None) -> None:
    """Forgets the most of its memory that was in use."""


def get_rng_state_all() -> list[Any]:
    """The states of the generators of all such GPUs: none."""
    return []


def set_rng_state_all(new_states: Any) -> None:
    """Sets the generators of all such GPUs; there are none."""
    if list(new_states):
        raise errors.GpuNotAvailable("xpu.set_rng_state_all(): there is no Intel GPU")


def _need(name: str) -> Any:
    def call(*args: Any, **kwargs: Any) -> Any:
        raise errors.GpuNotAvailable(f"xpu.{name}(): there is no Intel GPU; the devices are 'cpu' and 'gpu'")

    call.__name__ = call.__qualname__ = name
    call.__doc__ = "Needs an Intel GPU.\n\n    Raises:\n        RuntimeError: always; there is none."
    return call


for _name in (
    *("current_device", "device", "get_device_capability", "get_device_name", "get_device_properties", "set_device"),
    *("synchronize", "current_stream", "stream", "get_rng_state", "set_rng_state"),
):
    globals()[_name] = _need(_name)
