"""Errors that say what was called: a function's or a class's name in front of messages that do not have it."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any, TypeVar

from lucid._C import LucidError

F = TypeVar("F", bound=Callable[..., Any])

_OWN = (AssertionError, IndexError, KeyError, NotImplementedError, RuntimeError, TypeError, ValueError)


def _plain(text: str) -> str:
    return text.lower().replace("_", "")


def name_error(error: Exception, name: str) -> None:
    """Puts `name` before the message of an exception that is raised from here on, if the message is a text without it.

    Errors of the operating system, those about attributes, and classes that are not Lucid's or Python's are left alone.
    """
    if not isinstance(error, LucidError) and type(error) not in _OWN:
        return
    if isinstance(error, (OSError, AttributeError)) or not error.args or not isinstance(error.args[0], str):
        return
    if _plain(name) not in _plain(error.args[0]):
        error.args = (f"{name}: {error.args[0]}", *error.args[1:])


def name_call(error: Exception, name: str) -> None:
    """Puts `name` before the message of one of Lucid's errors that begins with no name."""
    text = error.args[0] if isinstance(error, LucidError) and error.args else None
    if isinstance(text, str) and not re.match(r"[A-Za-z_]\w*(\(\))?: ", text):
        error.args = (f"{name}: {text}", *error.args[1:])


def named(function: F, name: str | None = None) -> F:
    """The function, with its name in its errors."""
    shown = name or function.__name__

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except Exception as error:
            name_error(error, shown)
            raise

    return call  # type: ignore[return-value]


def named_by_class(method: F) -> F:
    """A method, with the name of its object's class in its errors."""

    @functools.wraps(method)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return method(self, *args, **kwargs)
        except Exception as error:
            name_error(error, type(self).__name__)
            raise

    return call  # type: ignore[return-value]


class NamedInErrors:
    """A base whose subclasses within Lucid have their name in the errors of their constructors."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "__init__" in cls.__dict__ and cls.__module__.startswith("lucid."):
            cls.__init__ = named_by_class(cls.__dict__["__init__"])  # type: ignore[method-assign]
