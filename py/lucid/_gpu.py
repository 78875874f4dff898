"""What the names of the GPU device share (`lucid.accelerator`, `cuda`, `mps` and `metal`).

Which kind of device it is, what can be asked of it, its one queue, and moments in its work.
"""

from __future__ import annotations

import builtins
import time
from collections import OrderedDict
from importlib import import_module
from types import ModuleType, TracebackType
from typing import Any, ClassVar, TypeVar

from lucid import _C
from lucid._warnings import warn_without_effect
from lucid.errors import GpuNotAvailable, RuntimeError, TypeError, ValueError

S = TypeVar("S", bound="Stream")

#: What each kind of device is called, and what it needs.
_NEEDS = {
    "cuda": ("CUDA", "CUDA needs an NVIDIA GPU and the package lucid[cuda12] or lucid[cuda13]"),
    "metal": ("Metal", "Metal needs an Apple chip"),
    "gpu": ("GPU", "One needs an Apple chip, or an NVIDIA GPU and the package lucid[cuda12] or lucid[cuda13]"),
}


def kind() -> str | None:
    """The GPU device's kind, `metal` or `cuda`; `None` where MLX offers no GPU."""
    try:
        name = _C.device("gpu").type
    except GpuNotAvailable:
        return None
    return name if name in ("cuda", "metal") else None


class Named:
    """The GPU device under a name: of the kind `wanted`, or of any. `ask` is the question that users can put first.

    There is one GPU, whose index is 0: devices that functions take are PyTorch's, and every other is refused.
    """

    def __init__(self, wanted: str | None, ask: str) -> None:
        self._wanted, self._ask = wanted, ask

    def is_available(self) -> bool:
        """Does the installed MLX compute on such a GPU?"""
        here = kind()
        return here is not None and self._wanted in (None, here)

    def device_count(self) -> int:
        """How many such GPUs this process sees (`CUDA_VISIBLE_DEVICES`); it computes on one of them."""
        return _C._gpu_count() if self.is_available() else 0

    def need(self, op: str, device: object = None, others: bool = False) -> None:
        """`GpuNotAvailable` where there is no such GPU, and what is wrong with a device that is not it: the one that
        this process computes on, or with `others` any that is there.
        """
        if not self.is_available():
            missing, why = _NEEDS[self._wanted or "gpu"]
            raise GpuNotAvailable(
                f"{op}: the installed MLX has no {missing} device, its device is {_C.device('gpu').type!r}. {why}. "
                f'{self._ask} tells; device="gpu" names what there is'
            )
        self._check(op, device, others)

    def _check(self, op: str, device: object, others: bool) -> None:
        if device is None:
            return
        if isinstance(device, int) and not isinstance(device, bool):
            if others and 0 <= device < _C._gpu_count():
                return
            try:
                _C.device("gpu", device)
            except builtins.RuntimeError as e:
                raise RuntimeError(f"{op}: {e}") from None
            return
        if not isinstance(device, (str, _C.device)):
            raise TypeError(f"{op}: device must be an int, a str or a device, but got {type(device).__name__}")
        if (named := _C.device(device)).type == "cpu":
            raise ValueError(f"{op}: expected a GPU device, but got: {named}")

    def take(self, op: str, device: object = None, others: bool = False) -> None:
        """As `need`; but in CUDA's place `x.cuda()`'s device will do: with one warning, or an error under
        `LUCID_STRICT_DEVICE=1`.
        """
        if self._wanted != "cuda" or self.is_available():
            self.need(op, device, others)
            return
        _C.device(self._wanted)
        if device is not None:
            Named(None, self._ask)._check(op, device, others)

    def _bytes(self, op: str, device: object, *keys: str) -> int:
        if not self.is_available():
            return 0
        self.need(op, device, True)
        if self._is_other(device):
            return 0
        stats = _C.memory_stats("gpu")
        return sum(int(stats[key]) for key in keys)

    def _is_other(self, device: object) -> bool:
        """Is it the number of a GPU that this process does not compute on?"""
        own = (_C._gpu_index(), None) if _C._gpu_count() > 1 else (device,)
        return isinstance(device, int) and device not in own

    def info(self, device: object) -> dict[str, Any]:
        """What MLX says of a GPU."""
        return _C._gpu_info(device if isinstance(device, int) else None)

    def current_device(self) -> int:
        """The number of the GPU that this process computes on."""
        self.take("current_device")
        return _C._gpu_index()

    def set_device(self, device: object) -> None:
        """Says which GPU this process computes on. It computes on one: call this before anything is done on a GPU.

        Args:
            device (int, str or lucid.device): the GPU.

        Raises:
            RuntimeError: there is no such GPU, or the process computes on another already.

        Example:
            >>> if lucid.cuda.is_available():
            ...     lucid.cuda.set_device(0)
        """
        self.take("set_device", device)

    def set_stream(self, stream: Stream | None) -> None:
        """Says which queue is used: there is one.

        Args:
            stream (Stream, optional): the queue; there is one.

        Raises:
            RuntimeError: `device` is another device, or there is no such GPU.

        Example:
            >>> if lucid.cuda.is_available():
            ...     lucid.cuda.set_stream(lucid.cuda.current_stream())
        """
        self.take("set_stream")

    def synchronize(self, device: object = None) -> None:
        """Waits until the GPU has done all that was started.

        Args:
            device (int, str or lucid.device, optional): the GPU. Default: the process's own.

        Raises:
            RuntimeError: `device` is another device, or there is no such GPU.

        Example:
            >>> if lucid.cuda.is_available():
            ...     lucid.cuda.synchronize()
        """
        self.take("synchronize", device, True)
        if not self._is_other(device):
            _C._synchronize("gpu")

    def empty_cache(self) -> None:
        """Gives memory kept for reuse back to the system; nothing where there is no such GPU."""
        if self.is_available():
            _C.empty_cache("gpu")

    def memory_allocated(self, device: object = None) -> int:
        """Bytes in use by tensors on the GPU; 0 where there is none.

        Args:
            device (int, str or lucid.device, optional): the GPU. Default: the process's own.

        Returns:
            int: bytes.

        Raises:
            RuntimeError: `device` is another device, or there is no such GPU.

        Example:
            >>> lucid.cuda.memory_allocated() >= 0
            True
        """
        return self._bytes("memory_allocated", device, "current")

    def max_memory_allocated(self, device: object = None) -> int:
        """The most bytes in use since the start or the last `reset_peak_memory_stats`; 0 where there is no GPU.

        Args:
            device (int, str or lucid.device, optional): the GPU. Default: the process's own.

        Returns:
            int: bytes.

        Raises:
            RuntimeError: `device` is another device, or there is no such GPU.

        Example:
            >>> lucid.cuda.max_memory_allocated() >= 0
            True
        """
        return self._bytes("max_memory_allocated", device, "peak")

    def memory_reserved(self, device: object = None) -> int:
        """Bytes in use by tensors or kept for reuse; 0 where there is no GPU.

        Args:
            device (int, str or lucid.device, optional): the GPU. Default: the process's own.

        Returns:
            int: bytes.

        Raises:
            RuntimeError: `device` is another device, or there is no such GPU.

        Example:
            >>> lucid.cuda.memory_reserved() >= 0
            True
        """
        return self._bytes("memory_reserved", device, "current", "cached")

    def max_memory_reserved(self, device: object = None) -> int:
        """The most bytes known to have been in use or kept: MLX counts no peak of what it keeps, so this is the greater
        of the peak in use and of what is in use or kept now.

        Args:
            device (int, str or lucid.device, optional): the GPU. Default: the process's own.

        Returns:
            int: bytes.

        Raises:
            RuntimeError: `device` is another device, or there is no such GPU.

        Example:
            >>> lucid.cuda.max_memory_reserved() >= 0
            True
        """
        return max(self.max_memory_allocated(device), self.memory_reserved(device))

    def memory_stats(self, device: object = None) -> OrderedDict[str, int]:
        """What is counted, under PyTorch's names: `allocated_bytes` and `reserved_bytes` with `.all.current` and
        `.all.peak`. Empty where there is no GPU.

        Args:
            device (int, str or lucid.device, optional): the GPU. Default: the process's own.

        Returns:
            OrderedDict: counts by name.

        Raises:
            RuntimeError: `device` is another device, or there is no such GPU.

        Example:
            >>> len(lucid.cuda.memory_stats()) >= 0
            True
        """
        if not self.is_available():
            return OrderedDict()
        return OrderedDict(
            (
                ("allocated_bytes.all.current", self.memory_allocated(device)),
                ("allocated_bytes.all.peak", self.max_memory_allocated(device)),
                ("reserved_bytes.all.current", self.memory_reserved(device)),
                ("reserved_bytes.all.peak", self.max_memory_reserved(device)),
            )
        )

    def reset_peak_memory_stats(self, device: object = None) -> None:
        """Makes the current use the peak.

        Args:
            device (int, str or lucid.device, optional): the GPU. Default: the process's own.

        Raises:
            RuntimeError: `device` is another device, or there is no such GPU.

        Example:
            >>> if lucid.cuda.is_available():
            ...     lucid.cuda.reset_max_memory_allocated()
        """
        self.need("reset_peak_memory_stats", device, True)
        if self._is_other(device):
            return
        _C.reset_peak_memory_stats("gpu")

    def memory_info(self, device: object = None) -> tuple[int, int]:
        """Free and all bytes of the GPU's memory. Where MLX does not tell what is free (on Metal), what this process
        has not reserved.

        Args:
            device (int, str or lucid.device, optional): the GPU. Default: the process's own.

        Returns:
            tuple of ints: free and all bytes.

        Raises:
            RuntimeError: `device` is another device, or there is no such GPU.

        Example:
            >>> if lucid.cuda.is_available():
            ...     free, total = lucid.cuda.mem_get_info()
        """
        self.need("memory_info", device, True)
        info = self.info(device)
        total, free = int(info["total_memory"] or 0), info["free_memory"]
        return total - self.memory_reserved() if free is None else int(free), total

    def manual_seed(self, seed: int) -> None:
        """Seeds the generator that all devices share; nothing where there is no such GPU.

        Args:
            seed (int): where the sequence of random numbers starts, from -2**63 to 2**64 - 1.

        Raises:
            RuntimeError: `seed` is out of that range.

        Example:
            >>> lucid.cuda.manual_seed(0)
        """
        if self.is_available():
            _C.manual_seed(seed)

    def seed(self) -> None:
        """Seeds the generator that all devices share with a number from the system; nothing where there is no such
        GPU.
        """
        if self.is_available():
            _C.seed()

    def get_rng_state(self, device: object = None) -> _C.Tensor:
        """The state of the generator that all devices share.

        Args:
            device (int, str or lucid.device, optional): the GPU. Default: the process's own.

        Returns:
            Tensor: the state, (bytes,), uint8.

        Raises:
            RuntimeError: `device` is another device, or there is no such GPU.

        Example:
            >>> if lucid.cuda.is_available():
            ...     state = lucid.cuda.get_rng_state()
        """
        self.need("get_rng_state", device, True)
        return _C.get_rng_state()

    def set_rng_state(self, new_state: _C.Tensor, device: object = None) -> None:
        """Puts back a state of the generator that all devices share.

        Args:
            new_state (_C.Tensor): what `get_rng_state` returned, (bytes,), uint8.
            device (int, str or lucid.device, optional): the GPU. Default: the process's own.

        Raises:
            RuntimeError: `device` is another device, or there is no such GPU.

        Example:
            >>> if lucid.cuda.is_available():
            ...     lucid.cuda.set_rng_state(lucid.cuda.get_rng_state())
        """
        self.need("set_rng_state", device, True)
        _C.set_rng_state(new_state)

    def device_name(self, device: object = None) -> str:
        """The GPU's name, such as "Apple M3 Max".

        Args:
            device (int, str or lucid.device, optional): the GPU. Default: the process's own.

        Returns:
            str: the name.

        Raises:
            RuntimeError: `device` is another device, or there is no such GPU.

        Example:
            >>> if lucid.cuda.is_available():
            ...     name = lucid.cuda.get_device_name()
        """
        self.need("get_device_name", device, True)
        return str(self.info(device)["name"])


ANY = Named(None, "lucid.accelerator.is_available()")


def get_device_module(device: _C.device | str | None = None) -> ModuleType:
    """Gives the module of a device: `lucid.cpu`, `lucid.cuda`, `lucid.mps` or `lucid.metal`.

    Args:
        device (device or str, optional): the device. Default: the GPU, or the CPU where there is none.

    Returns:
        module: which may say that no such device is here.

    Raises:
        RuntimeError: it is no device, or one without a module, as the GPU device is where MLX offers no GPU.

    Example:
        >>> lucid.get_device_module("cpu").__name__
        'lucid.cpu'
    """
    if not (device is None or isinstance(device, (str, _C.device))):
        raise RuntimeError(f"Invalid value of device '{device}', expect lucid.device, str, or None")
    name = (kind() or "cpu") if device is None else str(device).partition(":")[0]
    # What is named need not be here: scripts ask its module whether it is.
    if name not in ("cpu", "cuda", "mps", "metal"):
        name = _C.device(name).type
    if name not in ("cpu", "cuda", "mps", "metal"):
        raise RuntimeError(f"Device '{name}' does not have a corresponding module registered as 'lucid.{name}'.")
    return import_module(f"lucid.{name}")


class Pass:
    """A block in which nothing is otherwise: what PyTorch's blocks choose, there is one of here."""

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None


class Stream:
    """The GPU's queue. There is one, on which all work runs in order: streams are equal, waiting for one another is
    done already, and `with` changes nothing.

    Args: `device` and `priority` as PyTorch's; there is one device, and nothing to be before or after.

    Raises: `GpuNotAvailable` where there is no GPU; where another device is in its place, under `LUCID_STRICT_DEVICE=1`
        only.

    Args:
        device (int, str or lucid.device, optional): the GPU. Default: the process's own.
        priority (int, default: 0): another one gives one warning that it has no effect.

    Example:
        >>> if lucid.cuda.is_available():
        ...     lucid.cuda.Stream().synchronize()
    """

    _named: ClassVar[Named] = ANY

    def __init__(self, device: object = None, priority: int = 0) -> None:
        warn_without_effect(type(self).__name__, "there is one queue", priority=bool(priority))
        self._named.take(type(self).__name__, device)

    @property
    def device(self) -> _C.device:
        """The GPU device."""
        return _C.device("gpu")

    def synchronize(self) -> None:
        """Waits until all that was started is done."""
        _C._synchronize("gpu")

    def query(self) -> bool:
        """Is all that was started done? Waits for it: MLX does not tell."""
        self.synchronize()
        return True

    def record_event(self, event: Event | None = None) -> Event:
        """`event`, or a new one, recorded."""
        event = Event() if event is None else event
        event.record(self)
        return event

    def wait_event(self, event: Event) -> None:
        """Nothing to wait for: what is recorded later runs later."""

    def wait_stream(self, stream: Stream) -> None:
        """Nothing to wait for: there is one queue."""

    def __enter__(self: S) -> S:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream)

    def __hash__(self) -> int:
        return hash(Stream)

    def __repr__(self) -> str:
        return f"<lucid.{type(self).__name__} of {self.device}>"


class Event:
    """A moment in the GPU's work.

    `record` waits for what was started, so that the time between two events is that of the work between them; what is
    pending and was not started (`eval`) is not part of it.

    Args:
        enable_timing (bool, optional): whether `elapsed_time` can ask it. Default: False.
        blocking (bool, optional): `synchronize` lets other threads run in any case.
        interprocess (bool, optional): True gives one warning: no other process can wait for the event.

    Raises:
        GpuNotAvailable: there is no such GPU.

    Example:
        >>> if lucid.accelerator.is_available():
        ...     start, end = lucid.Event(enable_timing=True), lucid.Event(enable_timing=True)
        ...     start.record(); end.record()
        ...     milliseconds = start.elapsed_time(end)
    """

    _named: ClassVar[Named] = ANY

    def __init__(self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False) -> None:
        warn_without_effect(type(self).__name__, "no other process can wait for it", interprocess=interprocess)
        self._named.take(type(self).__name__)
        self._timed = bool(enable_timing)
        self._time: float | None = None

    def record(self, stream: Stream | None = None) -> None:
        """Waits for the work started so far and takes the time."""
        _C._synchronize("gpu")
        self._time = time.perf_counter()

    def query(self) -> bool:
        """Is all before it done? `record` has waited for it."""
        return True

    def wait(self, stream: Stream | None = None) -> None:
        """Nothing to wait for: `record` has waited."""

    def synchronize(self) -> None:
        """As `wait`."""

    def elapsed_time(self, end_event: Event) -> float:
        """Milliseconds from this event to another. Both must be made with `enable_timing`, and recorded."""
        if not (self._timed and end_event._timed):
            raise RuntimeError("elapsed_time: Both events must be created with argument 'enable_timing=True'.")
        if self._time is None or end_event._time is None:
            raise RuntimeError("elapsed_time: Both events must be recorded before calculating elapsed time.")
        return (end_event._time - self._time) * 1000.0
