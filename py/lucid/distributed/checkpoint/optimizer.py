"""The state of an optimizer out of a checkpoint."""

from __future__ import annotations

from typing import Any

from lucid.distributed.checkpoint import CheckpointException
from lucid.distributed.checkpoint.format_utils import _EmptyStateDictLoadPlanner, _load_state_dict

__all__ = ["load_sharded_optimizer_state_dict"]


def load_sharded_optimizer_state_dict(
    model_state_dict: dict[str, Any], optimizer_key: str, storage_reader: Any, planner: Any = None
) -> dict[str, Any]:
    """The optimizer's state of a checkpoint, whole, on the CPU device.

    Difference from PyTorch: tensors are whole on every process, not shards; `FullyShardedDataParallel`'s
    `optim_state_dict_to_load` and `set_optimizer_state_dict` take them.

    Args:
        model_state_dict (dict): the model's state dict; without effect: states are whole.
        optimizer_key (str): the name under which the optimizer's state was saved.
        storage_reader (FileSystemReader): the folder.
        planner (DefaultLoadPlanner, optional): without effect: there is one way to fill a state dict.

    Returns:
        dict: the state under `optimizer_key`.

    Raises:
        CheckpointException: the checkpoint has nothing of that name.

    Example:
        >>> import tempfile
        >>> import lucid.distributed.checkpoint as dcp
        >>> from lucid.distributed.checkpoint.optimizer import load_sharded_optimizer_state_dict
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     dcp.save({"optim": {"momentum": lucid.ones(2)}}, checkpoint_id=f"{folder}/c", no_dist=True)
        ...     load_sharded_optimizer_state_dict({}, "optim", dcp.FileSystemReader(f"{folder}/c"))
        {'optim': {'momentum': tensor([1., 1.])}}
    """
    found: dict[str, Any] = {}
    _load_state_dict(found, storage_reader, planner=_EmptyStateDictLoadPlanner(), no_dist=True)
    if optimizer_key not in found:
        raise CheckpointException(f"load_sharded_optimizer_state_dict: the checkpoint has no '{optimizer_key}'")
    return {optimizer_key: found[optimizer_key]}
