"""The checks of gradients. The module can be called, since `lucid.autograd.gradcheck` is also the function."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from lucid.autograd._gradcheck import GradcheckError as GradcheckError
from lucid.autograd._gradcheck import gradcheck as gradcheck
from lucid.autograd._gradcheck import gradgradcheck as gradgradcheck


class _Callable(ModuleType):
    def __call__(self, *args: Any, **kwargs: Any) -> bool:
        return gradcheck(*args, **kwargs)


# An import of this module puts it where the package has the function.
sys.modules[__name__].__class__ = _Callable
