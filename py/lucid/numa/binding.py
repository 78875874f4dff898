"""How processes would be bound to parts of a machine's memory: values that `LaunchConfig` takes."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

__all__ = ["AffinityMode", "NumaOptions"]


class AffinityMode(StrEnum):
    """Which processors a process would be bound to."""

    NODE = "node"
    SOCKET = "socket"
    EXCLUSIVE = "exclusive"
    CORE_COMPLEX = "core-complex"


@dataclass(frozen=True)
class NumaOptions:
    """A wish to bind processes. `elastic_launch` leaves that to the system, with one warning.

    Args:
        affinity_mode (AffinityMode): which processors.
        should_fall_back_if_binding_fails (bool, default: False): whether processes start where it cannot be.

    Example:
        >>> from lucid.numa.binding import AffinityMode, NumaOptions
        >>> NumaOptions(AffinityMode.NODE).affinity_mode.value
        'node'
    """

    affinity_mode: AffinityMode
    should_fall_back_if_binding_fails: bool = False
