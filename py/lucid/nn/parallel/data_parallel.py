"""`DataParallel`, for scripts that have it: there is one device here to be parallel on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lucid import errors
from lucid.nn.modules.module import Module
from lucid.nn.parallel._devices import number
from lucid.nn.parallel.parallel_apply import parallel_apply
from lucid.nn.parallel.replicate import replicate
from lucid.nn.parallel.scatter_gather import gather, scatter_kwargs

__all__ = ["DataParallel", "data_parallel"]


def _one_device(where: str, device_ids: Sequence[Any] | None, output_device: Any) -> list[Any]:
    """The devices as a list.

    Raises:
        ValueError: several are named.
    """
    ids = [] if device_ids is None else list(device_ids)
    named = {number(d, where) for d in ids} | ({number(output_device, where)} if output_device is not None else set())
    if len(named) > 1:
        raise errors.ValueError(
            f"{where}: there is one GPU device, but device_ids={ids} and output_device={output_device} name "
            "several; leave them out, or name one"
        )
    return ids


class DataParallel(Module):
    """Runs `module`, whose state is under `module.` as in PyTorch. A device has one GPU here, so nothing is split.

    A subclass may split by itself: `scatter`, `replicate`, `parallel_apply` and `gather` are PyTorch's methods.

    Args:
        module (Module): What runs.
        device_ids (Sequence[Any], optional): None, or one device's number or name. Several are a ValueError.
        output_device (int, str or lucid.device, optional): None, or the device of `device_ids`.
        dim (int, default: 0): Along which PyTorch splits the inputs; here `scatter` and `gather` do.

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
        ids = _one_device("DataParallel", device_ids, output_device)
        self.module = module
        self.dim = dim
        self.device_ids = ids
        self.output_device = ids[0] if output_device is None and ids else output_device

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        """What the module makes of the same arguments."""
        return self.module(*inputs, **kwargs)

    def replicate(self, module: Module, device_ids: Sequence[Any]) -> list[Module]:
        """Copies of a module, one for each device.

        Args:
            module (Module): the module.
            device_ids (sequence of int, str or lucid.device): the devices.

        Returns:
            list of Module: the copies.

        Example:
            >>> layer = lucid.nn.Linear(2, 1)
            >>> len(lucid.nn.DataParallel(layer).replicate(layer, ["cpu"]))
            1
        """
        return replicate(module, device_ids)

    def scatter(self, inputs: tuple[Any, ...], kwargs: dict[str, Any] | None, device_ids: Sequence[Any]) -> Any:
        """The arguments of a call, split along `dim` over devices.

        Args:
            inputs (tuple): the positional arguments.
            kwargs (dict, optional): the keyword arguments.
            device_ids (sequence of int, str or lucid.device): the devices.

        Returns:
            tuple: the positional and the keyword arguments of each device.

        Example:
            >>> lucid.nn.DataParallel(lucid.nn.ReLU()).scatter((lucid.ones(2),), {}, ["cpu", "cpu"])
            (((tensor([1.]),), (tensor([1.]),)), ({}, {}))
        """
        return scatter_kwargs(inputs, kwargs, device_ids, dim=self.dim)

    def parallel_apply(self, replicas: Sequence[Module], inputs: Sequence[Any], kwargs: Any) -> list[Any]:
        """Calls copies of a module, each with its arguments.

        Args:
            replicas (sequence of Module): the copies.
            inputs (sequence): of each its positional arguments.
            kwargs (sequence of dict): of each its keyword arguments.

        Returns:
            list: the results.

        Example:
            >>> relu = lucid.nn.ReLU()
            >>> lucid.nn.DataParallel(relu).parallel_apply([relu], [(lucid.ones(1),)], [{}])
            [tensor([1.])]
        """
        return parallel_apply(replicas, inputs, kwargs)

    def gather(self, outputs: Sequence[Any], output_device: Any) -> Any:
        """Results of several devices, put together along `dim`.

        Args:
            outputs (sequence): the results.
            output_device (int, str or lucid.device): where to.

        Returns:
            object: one result.

        Example:
            >>> lucid.nn.DataParallel(lucid.nn.ReLU()).gather([lucid.ones(1), lucid.ones(1)], "cpu")
            tensor([1., 1.])
        """
        return gather(outputs, output_device, dim=self.dim)


def data_parallel(
    module: Module,
    inputs: Any,
    device_ids: Sequence[Any] | None = None,
    output_device: Any = None,
    dim: int = 0,
    module_kwargs: dict[str, Any] | None = None,
) -> Any:
    """Calls a module as `DataParallel` does: on the one device, without splitting its inputs.

    Args:
        module (Module): what runs; its parameters are on the device.
        inputs (object): its positional arguments as a tuple, or the one that there is.
        device_ids (sequence of int, str or lucid.device, optional): None, or one device.
        output_device (int, str or lucid.device, optional): None, or the same device.
        dim (int, default: 0): Along which PyTorch splits the inputs. Accepted and without effect.
        module_kwargs (dict, optional): its keyword arguments.

    Returns:
        object: its result.

    Raises:
        ValueError: several devices are named.

    Example:
        >>> lucid.nn.parallel.data_parallel(lucid.nn.ReLU(), lucid.tensor([-1.0]))
        tensor([0.])
    """
    _one_device("data_parallel", device_ids, output_device)
    positional = inputs if isinstance(inputs, tuple) else () if inputs is None else (inputs,)
    return module(*positional, **(module_kwargs or {}))
