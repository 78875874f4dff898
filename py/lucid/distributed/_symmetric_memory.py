"""Memory of a GPU that other processes write to, as `torch.distributed._symmetric_memory`: there is none."""

from __future__ import annotations

from typing import NoReturn

from lucid import errors


def get_symm_mem_workspace(group_name: str, min_size: int) -> NoReturn:
    """A buffer that all members of a group see: raises an error.

    Raises:
        NotImplementedError: always.
    """
    raise errors.NotImplementedError(
        f"distributed._symmetric_memory.get_symm_mem_workspace('{group_name}', {min_size}): processes do not write to "
        "each other's memory; lucid.distributed has send, recv and collectives"
    )
