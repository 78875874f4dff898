"""Events and statistics of a running program, handed to callbacks, as `torch.monitor`."""

from __future__ import annotations

import datetime
import enum
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from lucid import errors

__all__ = [
    "Aggregation",
    "Event",
    "EventHandlerHandle",
    "Stat",
    "TensorboardEventHandler",
    "data_value_t",
    "log_event",
    "register_event_handler",
    "unregister_event_handler",
]

#: The name of the events that `Stat` logs.
STAT_EVENT = "torch.monitor.Stat"

#: What an event may hold under a name.
data_value_t = str | float | int | bool


class Aggregation(enum.Enum):
    """What a `Stat` makes of the numbers of a window."""

    NONE = 0
    VALUE = 1
    MEAN = 2
    COUNT = 3
    SUM = 4
    MAX = 5
    MIN = 6


VALUE = Aggregation.VALUE
MEAN = Aggregation.MEAN
COUNT = Aggregation.COUNT
SUM = Aggregation.SUM
MAX = Aggregation.MAX
MIN = Aggregation.MIN


class Event:
    """Something that happened, with data under names.

    Args:
        name (str): what happened; events of one kind have one name.
        timestamp (datetime.datetime): when.
        data (mapping of str to str, float, int or bool): what is known of it.

    Raises:
        TypeError: for arguments of another type.

    Example:
        >>> import datetime
        >>> event = lucid.monitor.Event("epoch", datetime.datetime.now(), {"loss": 0.5})
        >>> event.data["loss"]
        0.5
    """

    def __init__(self, name: str, timestamp: datetime.datetime, data: Mapping[str, data_value_t]) -> None:
        if not isinstance(name, str) or not isinstance(timestamp, datetime.datetime) or not isinstance(data, Mapping):
            kinds = ", ".join(type(v).__name__ for v in (name, timestamp, data))
            raise errors.TypeError(f"Event expects a str, a datetime and a mapping, got {kinds}")
        for key, value in data.items():
            if not isinstance(key, str) or not isinstance(value, str | float | int):
                raise errors.TypeError(f"Event: {key!r} holds {type(value).__name__}, no str, float, int or bool")
        self.name = name
        self.timestamp = timestamp
        self.data: dict[str, data_value_t] = {k: float(v) if isinstance(v, bool) else v for k, v in data.items()}


class EventHandlerHandle:
    """What `register_event_handler` gives, for `unregister_event_handler`.

    Args:
        callback (callable): takes an `Event`.

    Example:
        >>> handle = lucid.monitor.register_event_handler(print)
        >>> isinstance(handle, lucid.monitor.EventHandlerHandle)
        True
        >>> lucid.monitor.unregister_event_handler(handle)
    """

    def __init__(self, callback: Callable[[Event], Any]) -> None:
        self._callback = callback


_lock = threading.Lock()
_handles: list[EventHandlerHandle] = []


def log_event(event: Event) -> None:
    """Hands an event to every registered callback, in the order of their registration.

    Args:
        event (Event): what happened.

    Raises:
        TypeError: if it is none.

    Example:
        >>> import datetime
        >>> lucid.monitor.log_event(lucid.monitor.Event("start", datetime.datetime.now(), {}))
    """
    if not isinstance(event, Event):
        raise errors.TypeError(f"log_event expects an Event, got {type(event).__name__}")
    with _lock:
        handles = list(_handles)
    for handle in handles:
        handle._callback(event)


def register_event_handler(callback: Callable[[Event], Any]) -> EventHandlerHandle:
    """Has a function called with each event that is logged.

    Args:
        callback (callable): takes an `Event`. It runs inside of `log_event` and should be quick.

    Returns:
        EventHandlerHandle: for `unregister_event_handler`.

    Raises:
        TypeError: if it cannot be called.

    Example:
        >>> import datetime
        >>> seen = []
        >>> handle = lucid.monitor.register_event_handler(seen.append)
        >>> lucid.monitor.log_event(lucid.monitor.Event("start", datetime.datetime.now(), {}))
        >>> lucid.monitor.unregister_event_handler(handle)
        >>> [event.name for event in seen]
        ['start']
    """
    if not callable(callback):
        raise errors.TypeError(f"register_event_handler expects a callable, got {type(callback).__name__}")
    handle = EventHandlerHandle(callback)
    with _lock:
        _handles.append(handle)
    return handle


def unregister_event_handler(handler: EventHandlerHandle) -> None:
    """Ends what `register_event_handler` began. What is not registered is left alone.

    Args:
        handler (EventHandlerHandle): what it gave.

    Example:
        >>> handle = lucid.monitor.register_event_handler(print)
        >>> lucid.monitor.unregister_event_handler(handle)
    """
    with _lock:
        if handler in _handles:
            _handles.remove(handler)


class _Window:
    """The numbers of one window of a `Stat`."""

    def __init__(self) -> None:
        self.count, self.total, self.last, self.least, self.most = 0, 0.0, 0.0, 0.0, 0.0

    def add(self, v: float) -> None:
        self.least = v if self.count == 0 else min(self.least, v)
        self.most = v if self.count == 0 else max(self.most, v)
        self.count, self.total, self.last = self.count + 1, self.total + v, v

    def of(self, kind: Aggregation) -> float:
        mean = self.total / self.count if self.count else 0.0
        made = {VALUE: self.last, MEAN: mean, COUNT: self.count, SUM: self.total, MAX: self.most, MIN: self.least}
        return float(made.get(kind, 0.0))


class Stat:
    """Statistics of numbers over windows of time; each window that closes is logged as an event `torch.monitor.Stat`,
    whose data are `name.mean`, `name.count` and so on. What is left is logged when the object is deleted.

    Args:
        name (str): the statistic's name.
        aggregations (sequence of Aggregation): what is made of a window's numbers.
        window_size (datetime.timedelta): how long a window is; whole milliseconds count.
        max_samples (int): how many numbers a window takes; the last closes it, and others are left
            out. Default: any number.

    Raises:
        TypeError: for arguments of another type.

    Example:
        >>> import datetime
        >>> mean = lucid.monitor.Aggregation.MEAN
        >>> stat = lucid.monitor.Stat("loss", [mean], datetime.timedelta(minutes=1), max_samples=2)
        >>> stat.add(1.0)
        >>> stat.add(3.0)
        >>> stat.get()[mean]
        2.0
    """

    def __init__(
        self,
        name: str,
        aggregations: Sequence[Aggregation],
        window_size: datetime.timedelta,
        max_samples: int = 2**63 - 1,
    ) -> None:
        known = all(isinstance(a, Aggregation) for a in aggregations)
        if not isinstance(name, str) or not isinstance(window_size, datetime.timedelta) or not known:
            raise errors.TypeError("Stat expects a name, Aggregations and a timedelta")
        self._name = name
        self._kinds = tuple(dict.fromkeys(aggregations))
        self._size = max(window_size // datetime.timedelta(milliseconds=1), 1)
        self._most = int(max_samples)
        self._lock = threading.RLock()
        self._now, self._before = _Window(), _Window()
        self._window, self._logged = self._id(), -1

    @property
    def name(self) -> str:
        """The statistic's name."""
        return self._name

    @property
    def count(self) -> int:
        """How many numbers the open window has."""
        with self._lock:
            self._close()
            return self._now.count

    def add(self, v: float) -> None:
        """Adds a number to the open window.

        Args:
            v (float): the number.

        Raises:
            TypeError: if it is none.
        """
        if not isinstance(v, int | float):
            raise errors.TypeError(f"Stat.add expects a number, got {type(v).__name__}")
        with self._lock:
            self._close()
            if self._logged == self._window:
                return
            self._now.add(float(v))
            self._close()

    def get(self) -> dict[Aggregation, float]:
        """The aggregations of the last window that was closed, zeros before.

        Returns:
            dict of Aggregation to float: one of each.
        """
        with self._lock:
            self._close()
            return {kind: self._before.of(kind) for kind in self._kinds}

    def _id(self) -> int:
        return time.monotonic_ns() // 1_000_000 // self._size

    def _close(self) -> None:
        now = self._id()
        if now == self._window and self._now.count < self._most:
            return
        if self._now.count:
            self._log()
            self._logged = self._window
        self._window = now

    def _log(self) -> None:
        self._before, self._now = self._now, _Window()
        data = {f"{self._name}.{kind.name.lower()}": self._before.of(kind) for kind in self._kinds}
        log_event(Event(STAT_EVENT, datetime.datetime.now(), data))

    def __del__(self) -> None:
        window = getattr(self, "_now", None)
        if window is not None and window.count:
            self._log()


class TensorboardEventHandler:
    """A callback that writes the statistics of `Stat` as scalars.

    Args:
        writer (SummaryWriter): where they go.

    Example:
        >>> import tempfile
        >>> from lucid.utils.tensorboard import SummaryWriter
        >>> writer = SummaryWriter(tempfile.mkdtemp())
        >>> handler = lucid.monitor.TensorboardEventHandler(writer)
        >>> handle = lucid.monitor.register_event_handler(handler)
        >>> lucid.monitor.unregister_event_handler(handle)
        >>> writer.close()
    """

    def __init__(self, writer: Any) -> None:
        self._writer = writer

    def __call__(self, event: Event) -> None:
        """Writes an event's data, if a `Stat` logged it.

        Args:
            event (Event): the event.
        """
        if event.name == STAT_EVENT:
            for name, value in event.data.items():
                self._writer.add_scalar(name, value, walltime=event.timestamp.timestamp())
