"""Settings of `torch._dynamo`, of which `lucid.compile` has some.

`recompile_limit`, also as `cache_size_limit`, is how many graphs a function may have; `disable` has compiled
functions
run
as they are written; `suppress_errors` asks for what happens anyway: what no graph can hold runs as it is written.
Others
are kept and read back, and one that is changed gives one warning that it has no effect.
"""

from __future__ import annotations

import contextlib
import sys
import types
from collections.abc import Iterator
from typing import Any

from lucid._warnings import warn_without_effect

recompile_limit: int = 8
cache_size_limit: int = 8
accumulated_recompile_limit: int = 256
accumulated_cache_size_limit: int = 256
assume_static_by_default: bool = True
automatic_dynamic_shapes: bool = True
capture_dynamic_output_shape_ops: bool = False
capture_scalar_outputs: bool = False
capture_func_transforms: bool = True
guard_nn_modules: bool = True
inline_inbuilt_nn_modules: bool = True
optimize_ddp: bool = True
skip_fwd_side_effects_in_bwd_under_checkpoint: bool = False
specialize_int: bool = False
suppress_errors: bool = False
verbose: bool = False
disable: bool = False

_LIMITS = ("recompile_limit", "cache_size_limit")


class _Settings(types.ModuleType):
    def __setattr__(self, name: str, value: Any) -> None:
        if name in _LIMITS:
            for alias in _LIMITS:
                super().__setattr__(alias, value)
            return
        if not name.startswith("_") and name not in ("disable", "suppress_errors"):
            missing = object()
            changed = getattr(self, name, missing) != value
            warn_without_effect("lucid._dynamo.config", "lucid.compile has no such setting", **{name: changed})
        super().__setattr__(name, value)


@contextlib.contextmanager
def patch(name: str | dict[str, Any] | None = None, value: Any = None, **changes: Any) -> Iterator[None]:
    """A block in which settings are as given; also as a decorator.

    Args:
        name (str or dict, optional): the name of a setting, or several with their values.
        value (object, optional): the value of the one.
        **changes (object): settings by name.

    Returns:
        context manager: the block.

    Example:
        >>> with lucid._dynamo.config.patch(recompile_limit=2):
        ...     print(lucid._dynamo.config.cache_size_limit)
        2
    """
    here = sys.modules[__name__]
    given = {**(name if isinstance(name, dict) else {} if name is None else {name: value}), **changes}
    former = {key: getattr(here, key) for key in given}
    for key, each in given.items():
        setattr(here, key, each)
    try:
        yield
    finally:
        for key, each in former.items():
            types.ModuleType.__setattr__(here, key, each)
        for key in set(former) & set(_LIMITS):
            setattr(here, key, former[key])


sys.modules[__name__].__class__ = _Settings
