"""`DistributedDataParallel`, and `DataParallel` for scripts that have it: there is one device here to be parallel
on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import lucid
from lucid import errors
from lucid._absent import teller
from lucid.nn.data_parallel import DistributedDataParallel
from lucid.nn.modules.module import Module

__all__ = ["DataParallel", "DistributedDataParallel"]


class DataParallel(Module):
    """Runs `module`, whose state is under `module.` as in PyTorch. A device has one GPU here, so nothing is split.

    Args:
        module (Module): What runs.
        device_ids (Sequence[Any], optional): None, or one device's number or name. Several are a ValueError.
        output_device (int, str or lucid.device, optional): None, or the device of `device_ids`.
        dim (int, default: 0): Along which PyTorch splits the inputs. Accepted and without effect.

    Raises:
        ValueError: several devices are named.

    Example:
        >>> from lucid import nn
        >>> nn.DataParallel(nn.Linear(2, 1))(lucid.zeros(3, 2)).shape
        lucid.Size([3, 1])
    """

    def __init__(
        self,
        module: Module,
        device_ids: Sequence[Any] | None = None,
        output_device: Any = None,
        dim: int = 0,
    ) -> None:
        super().__init__()
        ids = [] if device_ids is None else list(device_ids)
        if len({_number(d) for d in ids} | ({_number(output_device)} if output_device is not None else set())) > 1:
            raise errors.ValueError(
                f"DataParallel: there is one GPU device, but device_ids={ids} and output_device={output_device} name "
                "several; leave them out, or name one"
            )
        self.module = module
        self.dim = dim
        self.device_ids = ids
        self.output_device = ids[0] if output_device is None and ids else output_device

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        """What the module makes of the same arguments."""
        return self.module(*inputs, **kwargs)


def _number(device: Any) -> int:
    """The number of a GPU given by number, name or device; -1 for the CPU."""
    if isinstance(device, int) and not isinstance(device, bool):
        return device
    named = lucid.device(device) if isinstance(device, str) else device
    if not isinstance(named, lucid.device):
        raise errors.TypeError(f"DataParallel: expected a device's number or name, got {type(device).__name__}")
    return -1 if named.type == "cpu" else named.index or 0


if not TYPE_CHECKING:
    __getattr__ = teller(__name__)
