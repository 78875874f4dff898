"""Finding the hooks that `weight_norm` and `spectral_norm` put on modules."""

from __future__ import annotations

from typing import Any

__all__ = ["found"]


def found(module: Any, kind: type[Any], name: str) -> int | None:
    """The key of a module's hook before its call that is of a class and has a name, if there is one."""
    for key, hook in module._forward_pre_hooks.items():
        if isinstance(hook, kind) and hook.name == name:
            return int(key)
    return None
