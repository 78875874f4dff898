"""Which mode the tensors without memory among some are of: see `lucid._subclasses.fake_tensor`."""

from __future__ import annotations

from typing import Any


def detect_fake_mode(inputs: Any = None) -> Any:
    """The mode that is on, or that of the fake tensors among `inputs`; `None` without either.

    Raises:
        AssertionError: there are fake tensors of more than one.
    """
    from lucid._subclasses.fake_tensor import active, maybe_get_fake_mode
    from lucid.utils._pytree import tree_leaves

    modes = {active(), *map(maybe_get_fake_mode, tree_leaves(inputs))} - {None}
    if len(modes) > 1:
        raise AssertionError("there are fake tensors of more than one FakeTensorMode")
    return modes.pop() if modes else None


def active_fake_mode() -> Any:
    """The mode that makes new tensors fake ones; `None` without one."""
    from lucid._subclasses.fake_tensor import active

    return active()
