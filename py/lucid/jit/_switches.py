"""Switches and passes of PyTorch's compiler of scripts, which change nothing here."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, TypeVar

from lucid import errors
from lucid._warnings import warn_once, warn_without_effect
from lucid.nn.modules.module import Module

T = TypeVar("T")


def freeze(mod: T, preserved_attrs: Any = None, optimize_numerics: bool = True) -> T:
    """Gives back a module in evaluation mode as it is; PyTorch inlines its parameters.

    Args:
        mod (Module): in evaluation mode.
        preserved_attrs (list of str, optional): all attributes stay in any case.
        optimize_numerics (bool, optional): False gives one warning: nothing is folded.

    Returns:
        Module: `mod` itself.

    Raises:
        RuntimeError: the module is in training mode, which PyTorch refuses too.

    Example:
        >>> net = lucid.nn.Linear(2, 1).eval()
        >>> lucid.jit.freeze(net) is net
        True
    """
    warn_without_effect("freeze", "nothing is folded into the module", optimize_numerics=not optimize_numerics)
    if getattr(mod, "training", False):
        raise errors.RuntimeError(
            "Freezing is currently only implemented for modules in eval mode. "
            "Please call .eval() on your module before freezing."
        )
    return mod


def optimize_for_inference(mod: T, other_methods: Any = None) -> T:
    """Puts a module into evaluation mode; PyTorch fuses its ops, too. `lucid.compile` does that here.

    Args:
        mod (Module): the module, changed in place.
        other_methods (list of str, optional): without effect, with one warning.

    Returns:
        Module: `mod` itself.

    Example:
        >>> lucid.jit.optimize_for_inference(lucid.nn.Dropout()).training
        False
    """
    warn_without_effect("optimize_for_inference", "the module stays as it is", other_methods=bool(other_methods))
    return mod.eval() if isinstance(mod, Module) else mod


def _without_effect(name: str) -> None:
    warn_once(f"jit.{name}", f"jit.{name}: changes nothing; there is no compiler of scripts")


def run_frozen_optimizations(mod: Any, optimize_numerics: bool = True, preserved_methods: Any = None) -> None:
    """Accepts a pass of PyTorch's compiler of scripts; warns once that it changes nothing.

    Args:
        mod (Module): stays as it is.
        optimize_numerics (bool, optional): without effect.
        preserved_methods (list of str, optional): without effect.

    Example:
        >>> lucid.jit.run_frozen_optimizations(lucid.nn.Linear(2, 1))
    """
    _without_effect("run_frozen_optimizations")


def set_fusion_strategy(strategy: list[tuple[str, int]]) -> list[tuple[str, int]]:
    """Accepts a switch of PyTorch's compiler of scripts; warns once that it changes nothing.

    Args:
        strategy (list of tuple of (str, int)): kinds of specialisation and how often each may happen.

    Returns:
        list of tuple of (str, int): `strategy` itself.

    Example:
        >>> lucid.jit.set_fusion_strategy([("STATIC", 2)])
        [('STATIC', 2)]
    """
    _without_effect("set_fusion_strategy")
    return strategy


def enable_onednn_fusion(enabled: bool) -> None:
    """Accepts a switch of PyTorch's compiler of scripts; warns once that it changes nothing.

    Args:
        enabled (bool): whether PyTorch fuses scripts with oneDNN.

    Example:
        >>> lucid.jit.enable_onednn_fusion(True)
    """
    _without_effect("enable_onednn_fusion")


def onednn_fusion_enabled() -> bool:
    """Whether oneDNN fuses scripts: `False`."""
    return False


@contextlib.contextmanager
def fuser(name: str) -> Iterator[None]:
    """Accepts PyTorch's choice of a fuser of scripts for a `with` block; warns once that it changes nothing.

    Args:
        name (str): such as `"fuser1"`.

    Yields:
        None

    Example:
        >>> with lucid.jit.fuser("fuser1"):
        ...     y = lucid.ones(2) + 1
    """
    _without_effect("fuser")
    yield


@contextlib.contextmanager
def optimized_execution(should_optimize: bool) -> Iterator[None]:
    """Accepts PyTorch's switch of script optimisations for a `with` block; warns once that it changes nothing.

    Args:
        should_optimize (bool): whether PyTorch optimises.

    Yields:
        None

    Example:
        >>> with lucid.jit.optimized_execution(False):
        ...     y = lucid.ones(2) + 1
    """
    _without_effect("optimized_execution")
    yield


class strict_fusion:
    """A block in which PyTorch's compiler of scripts must fuse all ops; warns once that it changes nothing."""

    def __enter__(self) -> None:
        _without_effect("strict_fusion")

    def __exit__(self, *exc: object) -> None:
        pass
