"""The generator that all devices share, by CUDA's name."""

from __future__ import annotations

from lucid import _C
from lucid.cuda._named import CUDA

__all__ = [
    "get_rng_state",
    "get_rng_state_all",
    "initial_seed",
    "manual_seed",
    "manual_seed_all",
    "seed",
    "seed_all",
    "set_rng_state",
    "set_rng_state_all",
]

manual_seed = manual_seed_all = CUDA.manual_seed
seed = seed_all = CUDA.seed
get_rng_state = CUDA.get_rng_state
set_rng_state = CUDA.set_rng_state


def initial_seed() -> int:
    """What the generator was seeded with."""
    CUDA.need("initial_seed")
    return _C.initial_seed()


def get_rng_state_all() -> list[_C.Tensor]:
    """The state for each GPU: one, or none."""
    return [_C.get_rng_state()] if CUDA.is_available() else []


def set_rng_state_all(new_states: list[_C.Tensor]) -> None:
    """Puts back what `get_rng_state_all` gave.

    Args:
        new_states (list[_C.Tensor]): what `get_rng_state_all` returned.

    Example:
        >>> lucid.cuda.set_rng_state_all(lucid.cuda.get_rng_state_all())
    """
    for state in new_states:
        set_rng_state(state)
