"""Handles that take a registered hook back out, of modules, optimizers, tensors and nodes of the graph."""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Callable, MutableMapping, Sequence
from typing import Any, ClassVar, TypeVar

from lucid._warnings import warn

__all__ = ["RemovableHandle", "unserializable_hook", "warn_if_has_hooks"]

Hooks = MutableMapping[int, Any]
F = TypeVar("F", bound=Callable[..., Any])


class RemovableHandle:
    """What registering a hook gives back: `remove()` takes the hook out. As a context manager it does so at its end.

    Copied together with its mappings, as with the module that keeps it, a handle removes the copy's hook.

    Args:
        hooks_dict (Hooks): where the hook is, under the handle's `id`. It is not kept alive, so it has to be a
            mapping that can be referred to weakly, as an `OrderedDict` can.
        extra_dict (Hooks | Sequence[Hooks], optional): a mapping, or a list of such, from which the same `id` is
            taken as well.

    Example:
        >>> from collections import OrderedDict
        >>> hooks = OrderedDict()
        >>> handle = lucid.utils.hooks.RemovableHandle(hooks)
        >>> hooks[handle.id] = print
        >>> handle.remove()
        >>> len(hooks)
        0
    """

    id: int
    next_id: ClassVar[int] = 0

    def __init__(self, hooks_dict: Hooks, *, extra_dict: Hooks | Sequence[Hooks] | None = None) -> None:
        self.id = RemovableHandle.next_id
        RemovableHandle.next_id += 1
        extra = [extra_dict] if isinstance(extra_dict, MutableMapping) else extra_dict or ()
        self._places = tuple(weakref.ref(place) for place in (hooks_dict, *extra))

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

    def __getstate__(self) -> tuple[int, tuple[Hooks | None, ...]]:
        return self.id, tuple(place() for place in self._places)

    def __setstate__(self, state: tuple[int, tuple[Hooks | None, ...]]) -> None:
        self.id, places = state
        # A mapping that is gone has nothing to remove, and neither has an empty one that nothing keeps.
        self._places = tuple(weakref.ref(OrderedDict() if place is None else place) for place in places)
        RemovableHandle.next_id = max(RemovableHandle.next_id, self.id + 1)


def unserializable_hook(f: F) -> F:
    """Marks a hook that is meant to be left out where its tensor is pickled or saved: no warning tells of it.

    Args:
        f (F): the hook.

    Returns:
        callable: `f` itself.

    Example:
        >>> hook = lucid.utils.hooks.unserializable_hook(lambda grad: None)
    """
    f.__torch_unserializable__ = True  # type: ignore[attr-defined]
    return f


def warn_if_has_hooks(tensor: Any) -> None:
    """Warns of each hook of a tensor that is left out where that is pickled or saved.

    Args:
        tensor (object): the tensor, of any shape.

    Example:
        >>> lucid.utils.hooks.warn_if_has_hooks(lucid.ones(1))
    """
    for hook in (tensor._backward_hooks or {}).values():
        if not hasattr(hook, "__torch_unserializable__"):
            warn(
                f"backward hook {hook!r} on tensor will not be serialized. If this is expected, decorate the function "
                "with @lucid.utils.hooks.unserializable_hook to suppress this warning."
            )


class EngineHandle(RemovableHandle):
    """The handle of a hook that the engine keeps, with a tensor or a node."""

    def __init__(self, owner: Any, id: int) -> None:
        self._owner: Any = owner
        self.id = id

    def remove(self) -> None:
        """Takes the hook away; a second time it does nothing."""
        if self._owner is not None:
            self._owner._remove_hook(self.id)
        self._owner = None
