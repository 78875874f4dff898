"""Entering hooks in the mappings that modules and optimizers keep them in."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import MutableMapping, Sequence
from typing import Any

from lucid.utils.hooks import RemovableHandle


def register(
    hooks: OrderedDict[int, Any],
    hook: Any,
    prepend: bool = False,
    extra: Sequence[MutableMapping[int, Any]] = (),
) -> RemovableHandle:
    """Enters a hook; `prepend` puts it before all that are there. `extra` are flags kept under the same id."""
    handle = RemovableHandle(hooks, extra_dict=extra)
    hooks[handle.id] = hook
    if prepend:
        hooks.move_to_end(handle.id, last=False)
    for flags in extra:
        flags[handle.id] = True
    return handle
