"""The names of steps on the tape, for functions that are made of several ops here and are one in PyTorch."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from lucid import _C

P = ParamSpec("P")
T = TypeVar("T")


def step(name: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """What the function records is shown as the backward of PyTorch's op `name`."""

    def wrap(function: Callable[P, T]) -> Callable[P, T]:
        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> T:
            with _C._Step(name):
                return function(*args, **kwargs)

        return call

    return wrap
