"""PyTorch's file of the process groups and collectives: the names of `lucid.distributed`."""

from lucid.distributed import *  # noqa: F403
from lucid.distributed import _state
from lucid.distributed._state import ProcessGroup


def _get_default_group() -> ProcessGroup:
    """The group of all processes.

    Raises:
        ValueError: before `init_process_group`.
    """
    return _state.default_group("_get_default_group")
