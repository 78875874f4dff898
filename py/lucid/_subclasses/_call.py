"""A call on fake tensors, its operands and its results."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import lucid
from lucid import _C, Tensor, errors
from lucid._c_names import _are_functorch_transforms_active
from lucid._subclasses._errors import FakeTensorDeviceMismatchError

if TYPE_CHECKING:
    from lucid._subclasses.fake_tensor import FakeTensor, FakeTensorMode


@dataclass
class Call:
    """A call that a mode computes."""

    mode: FakeTensorMode
    func: Callable[..., Any]
    name: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def owned(self) -> Call:
        """The call with fake tensors in the place of others, which must be allowed."""
        if all(is_fake(t) for t in tensors((self.args, self.kwargs))):
            for t in tensors((self.args, self.kwargs)):
                self.mode._own(t)
            return self
        return Call(self.mode, self.func, self.name, self._fake(self.args), self._fake(self.kwargs))

    def _fake(self, value: Any) -> Any:
        if isinstance(value, Tensor):
            if not is_fake(value) and value.is_meta and _are_functorch_transforms_active():
                raise errors.NotImplementedError(
                    f"{self.name}: transforms such as func.grad and vmap do not take fake tensors; call them outside "
                    "of the FakeTensorMode, on tensors of the meta device"
                )
            if not is_fake(value) and not self.mode.allow_non_fake_inputs:
                raise AssertionError(
                    "Please convert all Tensors to FakeTensors first or instantiate FakeTensorMode with "
                    f"'allow_non_fake_inputs'. Found in {self.name} with a tensor of shape {tuple(value.shape)}"
                )
            return self.mode.from_tensor(value)
        if isinstance(value, dict):
            return {k: self._fake(v) for k, v in value.items()}
        if isinstance(value, (list, tuple)):
            parts = [self._fake(v) for v in value]
            if any(a is not b for a, b in zip(parts, value, strict=True)):
                return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
        return value


def is_fake(value: object) -> bool:
    """Is it a fake tensor?"""
    from lucid._subclasses.fake_tensor import FakeTensor

    return isinstance(value, FakeTensor)


def fake_device(tensor: Any) -> lucid.device:
    device: lucid.device = tensor.fake_device
    return device


def tensors(value: Any) -> Iterator[Any]:
    """The tensors in nests of tuples, lists and dicts."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (tuple, list)):
        for v in value:
            yield from tensors(v)
    elif isinstance(value, dict):
        for v in value.values():
            yield from tensors(v)


def device_of(device: Any) -> lucid.device:
    """A device given by number, by name, or as one; the default device for `None`."""
    from lucid.nn.parallel._devices import as_device

    return lucid.get_default_device() if device is None else as_device(device, "FakeTensor")


@functools.cache
def probe(device: lucid.device) -> Tensor:
    """A tensor of a device, which tells its attributes."""
    with _C.DisableTorchFunction():
        return _C.empty(0, device=device)


def become(tensor: Tensor, mode: FakeTensorMode, device: lucid.device) -> FakeTensor:
    """Makes a fake tensor of a tensor of the meta device, which keeps its place on the tape."""
    from lucid._subclasses.fake_tensor import FakeTensor

    tensor.__class__ = FakeTensor
    tensor.__dict__.update(fake_mode=mode, fake_device=device, constant=None)
    return tensor  # type: ignore[return-value]


def wrapped(value: Any, mode: FakeTensorMode, device: lucid.device) -> Any:
    """A result with fake tensors in the place of others."""
    if isinstance(value, Tensor):
        if is_fake(value):
            # Layers give what they make the class of an operand.
            return value if "fake_mode" in value.__dict__ else become(value, mode, device)
        with _C.DisableTorchFunction():
            if not value.is_meta:
                return mode.from_tensor(value)
            value = value if type(value) is Tensor else value.as_subclass(Tensor)
        return become(value, mode, device)
    if isinstance(value, (tuple, list)):
        parts = [wrapped(v, mode, device) for v in value]
        if all(a is b for a, b in zip(parts, value, strict=True)):
            return value
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    if isinstance(value, dict):
        for k, v in value.items():
            value[k] = wrapped(v, mode, device)
    return value


def common_device(call: Call) -> lucid.device:
    """The device of the operands; one element of the CPU goes with any."""
    found: lucid.device | None = None
    weak = True
    for t in tensors((call.args, call.kwargs)):
        with _C.DisableTorchFunction():
            scalar = t.ndim == 0
        device = t.fake_device
        if found is None or (weak and device != found):
            found, weak = device, scalar and device.type == "cpu"
        elif device != found and not (scalar and device.type == "cpu"):
            raise FakeTensorDeviceMismatchError(
                f"Expected all tensors to be on the same device, but found at least two devices, {found} and {device}!"
            )
        elif device == found:
            weak = weak and scalar
    return found if found is not None else lucid.get_default_device()


def named(names: str) -> frozenset[str]:
    """Names, with spaces between."""
    return frozenset(names.split())
