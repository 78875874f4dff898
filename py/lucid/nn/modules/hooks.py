"""Handles that take a registered hook back out."""

from __future__ import annotations

import itertools
import weakref
from collections import OrderedDict
from collections.abc import MutableMapping
from typing import Any

__all__ = ["RemovableHandle"]

_ids = itertools.count()


class RemovableHandle:
    """What registering a hook gives back: `remove()` takes the hook out. As a context manager it does so at its end."""

    id: int

    def __init__(self, hooks: MutableMapping[int, Any], *, extra: tuple[MutableMapping[int, Any], ...] = ()) -> None:
        self.id = next(_ids)
        self._places = tuple(weakref.ref(place) for place in (hooks, *extra))

    def remove(self) -> None:
        """Takes the hook out. Doing so twice is harmless."""
        for place in self._places:
            hooks = place()
            if hooks is not None:
                hooks.pop(self.id, None)

    def __enter__(self) -> RemovableHandle:
        return self

    def __exit__(self, *exc: object) -> None:
        self.remove()

    def __getstate__(self) -> int:
        return self.id

    def __setstate__(self, state: int) -> None:
        self.id = state
        self._places = ()


def register(
    hooks: OrderedDict[int, Any],
    hook: Any,
    prepend: bool = False,
    extra: tuple[MutableMapping[int, Any], ...] = (),
) -> RemovableHandle:
    """Enters a hook; `prepend` puts it before all that are there. `extra` are flags kept under the same id."""
    handle = RemovableHandle(hooks, extra=extra)
    hooks[handle.id] = hook
    if prepend:
        hooks.move_to_end(handle.id, last=False)
    for flags in extra:
        flags[handle.id] = True
    return handle
