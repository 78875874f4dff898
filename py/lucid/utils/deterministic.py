"""What new memory holds where deterministic algorithms are asked for, as `torch.utils.deterministic`."""

from __future__ import annotations

import sys
import types

from lucid._warnings import warn_once


class _Deterministic(types.ModuleType):
    @property
    def fill_uninitialized_memory(self) -> bool:
        """Is memory filled with a known value? Always: `lucid.empty` gives zeros, where PyTorch has NaN."""
        return True

    @fill_uninitialized_memory.setter
    def fill_uninitialized_memory(self, mode: bool) -> None:
        if not mode:
            why = "utils.deterministic.fill_uninitialized_memory = False has no effect: new memory is always zeros"
            warn_once("fill_uninitialized_memory", why)


sys.modules[__name__].__class__ = _Deterministic
