"""The runtime's trace: a ring buffer of events, their timeline, and its export as Chrome's trace and as a page.

While the trace is off an op pays for reading one attribute.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Sequence
from typing import Any

from lucid import errors

__all__ = [
    "runtime_trace_capacity",
    "runtime_trace_clear",
    "runtime_trace_enable",
    "runtime_trace_enabled",
    "runtime_trace_events",
    "runtime_trace_set_capacity",
    "runtime_trace_timeline",
]

DEFAULT_CAPACITY = 4096
MOST_EVENTS = 1 << 22

Event = dict[str, Any]


class _Ring:
    """The newest events, with a count of those that were dropped for them."""

    def __init__(self) -> None:
        self.enabled = False
        self.lock = threading.Lock()
        self.events: deque[Event] = deque(maxlen=DEFAULT_CAPACITY)
        self.made = 0

    def add(
        self,
        kind: str,
        op: str,
        start_ns: int,
        requested: str,
        selected: str,
        *,
        fallback: bool = False,
        shape: Sequence[int] = (),
        nbytes: int = 0,
    ) -> None:
        """Notes an event that began at `start_ns` and ends now."""
        end = time.perf_counter_ns()
        event: Event = {
            "type": kind,
            "op": op,
            "timestamp_ns": start_ns,
            "duration_ns": end - start_ns,
            "requested_device": requested,
            "selected_device": selected,
            "fallback": fallback,
            "shape": tuple(shape),
            "bytes": nbytes,
            "thread": threading.get_ident(),
        }
        with self.lock:
            event["seq"] = self.made
            self.made += 1
            self.events.append(event)


RING = _Ring()


def runtime_trace_enable(enabled: bool = True, capacity: int | None = None) -> None:
    """Starts or stops noting events; those noted so far stay.

    Args:
        enabled (bool, default: True): Whether events are noted from now on.
        capacity (int, optional): How many of the newest events are kept, from 1 to 4194304; `None` leaves it.

    Raises:
        TypeError: `enabled` is no bool, or `capacity` no int.
        ValueError: `capacity` is out of its range.

    Example:
        >>> import lucid.lightning as lc
        >>> lc.runtime_trace_enable(True, capacity=1000)
        >>> lc.runtime_trace_enabled()
        True
        >>> lc.runtime_trace_enable(False)
    """
    if not isinstance(enabled, bool):
        raise errors.TypeError(f"runtime_trace_enable(): enabled must be a bool, got {type(enabled).__name__}")
    if capacity is not None:
        runtime_trace_set_capacity(capacity)
    RING.enabled = enabled


def runtime_trace_enabled() -> bool:
    """Are events noted?"""
    return RING.enabled


def runtime_trace_clear() -> None:
    """Forgets all events; capacity and whether events are noted stay."""
    with RING.lock:
        RING.events.clear()
        RING.made = 0


def runtime_trace_capacity() -> int:
    """How many of the newest events are kept."""
    return RING.events.maxlen or 0


def runtime_trace_set_capacity(capacity: int) -> None:
    """Sets how many of the newest events are kept; older ones are dropped.

    Args:
        capacity (int): from 1 to 4194304.

    Raises:
        TypeError: `capacity` is no int.
        ValueError: it is out of its range.

    Example:
        >>> import lucid.lightning as lc
        >>> former = lc.runtime_trace_capacity()
        >>> lc.runtime_trace_set_capacity(100)
        >>> lc.runtime_trace_capacity()
        100
        >>> lc.runtime_trace_set_capacity(former)
    """
    if not isinstance(capacity, int) or isinstance(capacity, bool):
        raise errors.TypeError(f"runtime_trace: capacity must be an int, got {type(capacity).__name__}")
    if not 1 <= capacity <= MOST_EVENTS:
        raise errors.ValueError(f"runtime_trace: capacity must be from 1 to {MOST_EVENTS}, got {capacity}")
    with RING.lock:
        RING.events = deque(RING.events, maxlen=capacity)


def runtime_trace_events(limit: int | None = None) -> list[Event]:
    """Gives the events that are kept, the oldest first.

    Args:
        limit (int, optional): how many of the newest ones. Default: all.

    Returns:
        A list of dicts with `seq`, `type` (`op_dispatch`, `upload`, `download`, `sync` or `session`), `op`,
        `timestamp_ns`, `duration_ns`, `requested_device`, `selected_device`, `fallback`, `shape`, `bytes`, `thread`.

    Raises:
        ValueError: `limit` is no int from 0 on.

    Example:
        >>> import lucid.lightning as lc
        >>> lc.runtime_trace_clear()
        >>> lc.runtime_trace_enable()
        >>> _ = lc.matmul2d([[1.0]], [[2.0]], "cpu")
        >>> lc.runtime_trace_enable(False)
        >>> [event["type"] for event in lc.runtime_trace_events()]
        ['op_dispatch']
    """
    if limit is not None and (not isinstance(limit, int) or limit < 0):
        raise errors.ValueError(f"runtime_trace_events(): limit must be an int from 0 on, got {limit!r}")
    with RING.lock:
        events = [dict(event) for event in RING.events]
    return events if limit is None else events[len(events) - min(limit, len(events)) :]


def _op_path(event: Event) -> str:
    return f"{event['op']}|{event['selected_device']}|{'fallback' if event['fallback'] else 'direct'}"


_GROUPS: dict[str, Callable[[Event], str]] = {
    "op_path": _op_path,
    "op": lambda e: str(e["op"]),
    "type": lambda e: str(e["type"]),
    "device": lambda e: str(e["selected_device"]),
    "thread": lambda e: str(e["thread"]),
}
_SORTS = ("timestamp_ns", "duration_ns", "delta_next_ns", "seq")
_GROUP_SORTS = (
    "total_delta_next_ns",
    "total_duration_ns",
    "count",
    "mean_duration_ns",
    "max_duration_ns",
    "first_timestamp_ns",
    "key",
)


def _one_of(name: str, value: object, known: Collection[str]) -> None:
    if value not in known:
        raise errors.ValueError(f"runtime_trace_timeline(): {name} must be one of {', '.join(known)}, got {value!r}")


def runtime_trace_timeline(
    group_by: str = "op_path",
    group_sort_by: str = "total_delta_next_ns",
    group_descending: bool = True,
    hotspot_top_k: int = 10,
    sort_by: str = "timestamp_ns",
    descending: bool = False,
) -> dict[str, Any]:
    """The events sorted, grouped and with the longest of them apart.

    Args:
        group_by (str, default: "op_path"): `op_path` (op, selected device, `direct` or `fallback`), `op`, `type`,
            `device` or `thread`.
        group_sort_by (str, default: "total_delta_next_ns"): `total_delta_next_ns`, `total_duration_ns`, `count`,
            `mean_duration_ns`, `max_duration_ns`, `first_timestamp_ns` or `key`.
        group_descending (bool, default: True): The largest group first.
        hotspot_top_k (int, default: 10): How many of the longest events `hotspots` has.
        sort_by (str, default: "timestamp_ns"): How `events` is sorted: `timestamp_ns`, `duration_ns`,
            `delta_next_ns` or `seq`.
        descending (bool, default: False): The largest event first.

    Returns:
        A dict with `events` (each with `delta_next_ns`, the time until the next event began), `groups`, `hotspots`,
        `event_count`, `dropped`, `span_ns`, `capacity` and the options.

    Raises:
        ValueError: An option is not known, or `hotspot_top_k` is negative.

    Example:
        >>> import lucid.lightning as lc
        >>> lc.runtime_trace_clear()
        >>> lc.runtime_trace_enable()
        >>> _ = lc.matmul2d([[1.0]], [[2.0]], "cpu")
        >>> lc.runtime_trace_enable(False)
        >>> lc.runtime_trace_timeline(group_by="type")["groups"][0]["count"]
        1
    """
    _one_of("group_by", group_by, _GROUPS)
    _one_of("group_sort_by", group_sort_by, _GROUP_SORTS)
    _one_of("sort_by", sort_by, _SORTS)
    if not isinstance(hotspot_top_k, int) or hotspot_top_k < 0:
        raise errors.ValueError(f"runtime_trace_timeline(): hotspot_top_k must be from 0 on, got {hotspot_top_k!r}")
    with RING.lock:
        events = [dict(event) for event in RING.events]
        dropped = RING.made - len(events)
    events.sort(key=lambda e: (e["timestamp_ns"], e["seq"]))
    for event, following in zip(events, [*events[1:], None], strict=False):
        # The last event has no next one: its own time stands for it.
        event["delta_next_ns"] = (
            event["duration_ns"] if following is None else following["timestamp_ns"] - event["timestamp_ns"]
        )
        event["op_path"] = _op_path(event)
    groups: dict[str, dict[str, Any]] = {}
    for event in events:
        key = _GROUPS[group_by](event)
        group = groups.setdefault(
            key,
            {
                "key": key,
                "count": 0,
                "total_duration_ns": 0,
                "total_delta_next_ns": 0,
                "max_duration_ns": 0,
                "fallbacks": 0,
                "bytes": 0,
                "first_timestamp_ns": event["timestamp_ns"],
            },
        )
        group["count"] += 1
        group["total_duration_ns"] += event["duration_ns"]
        group["total_delta_next_ns"] += event["delta_next_ns"]
        group["max_duration_ns"] = max(group["max_duration_ns"], event["duration_ns"])
        group["fallbacks"] += bool(event["fallback"])
        group["bytes"] += event["bytes"]
    for group in groups.values():
        group["mean_duration_ns"] = group["total_duration_ns"] / group["count"]
    span = max((e["timestamp_ns"] + e["duration_ns"] for e in events), default=0)
    hotspots = sorted(events, key=lambda e: (-e["duration_ns"], e["seq"]))[:hotspot_top_k]
    return {
        "events": sorted(events, key=lambda e: e[sort_by], reverse=descending),
        "groups": sorted(groups.values(), key=lambda g: g[group_sort_by], reverse=group_descending),
        "hotspots": hotspots,
        "event_count": len(events),
        "dropped": dropped,
        "capacity": runtime_trace_capacity(),
        "span_ns": span - events[0]["timestamp_ns"] if events else 0,
        "group_by": group_by,
        "group_sort_by": group_sort_by,
    }
