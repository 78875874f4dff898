"""Errors that say what was called: a function's or a class's name in front of messages that do not have it."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable
from typing import Any, TypeVar

from lucid._C import LucidError, Tensor, _handle_torch_function, _has_torch_function, _overrides

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


def named(function: F, name: str | None = None, look: Callable[..., bool] | None = None) -> F:
    """The function, with its name in its errors. `look` sees the arguments first, and says the name itself.

    Where `look` says that classes are to be asked about the call, they are, by `__torch_function__`.
    """
    shown = name or function.__name__

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if look is not None and look(args, kwargs):
            tensors = (*args, *kwargs.values())
            if _has_torch_function(tensors):
                return _handle_torch_function(call, tensors, *args, **kwargs)
        try:
            return function(*args, **kwargs)
        except Exception as error:
            name_error(error, shown)
            raise

    return call  # type: ignore[return-value]


#: Flags of PyTorch's Python code, which asks what is given whether it is true, as it does where a flag may be `None`.
#: Others must be bools.
_TRUTHS = frozenset({"inplace", "hard", "return_indices", "antialias"})


def _is_real(value: Any) -> bool:
    return isinstance(value, (int, float)) or (getattr(value, "ndim", None) == 0 and not _is(value, "is_complex"))


def _is_whole(value: Any) -> bool:
    return hasattr(value, "__index__") and not isinstance(value, bool) and getattr(value, "ndim", 0) == 0


def _is(tensor: Any, question: str) -> bool:
    return bool(getattr(tensor, question, bool)())


#: What a parameter takes, by its annotation: classes that are seen at once, and what else to ask of another.
_TAKEN: dict[str, tuple[tuple[type, ...], Callable[[Any], bool]]] = {
    "Tensor": ((Tensor,), lambda value: isinstance(value, Tensor)),
    "bool": ((bool,), lambda value: False),
    "float": ((float, int, bool), _is_real),
    "int": ((int,), _is_whole),
}


#: The modes of `lucid.overrides` that are on, of all threads: while it is empty no function looks at its thread's.
MODES: list[Any] = []


def checked(function: F, *exact: type) -> F:
    """The function, named in its errors, with a TypeError for arguments of other kinds than its annotations have.

    Tensors, bools and numbers are looked at, as PyTorch's parser does for what is one call of its engine. Classes with
    a `__torch_function__` are asked about the call, as PyTorch's functions in Python ask them; `exact` are subclasses
    of `Tensor` that are never asked.
    """
    shown = function.__name__
    takes: list[tuple[str, frozenset[type] | None, Callable[[Any], bool] | None, str]] = []
    for name, parameter in inspect.signature(function).parameters.items():
        kind, _, other = str(parameter.annotation).partition(" | ")
        truth = name in _TRUTHS or (kind, other) == ("bool", "None")
        known = None if truth or other not in ("", "None") else _TAKEN.get(kind)
        tensors = exact if kind == "Tensor" else ()
        classes = frozenset((*known[0], *tensors, *((type(None),) if other else ()))) if known else None
        takes.append((name, classes, known[1] if known else None, kind))
    by_name = {entry[0]: entry for entry in takes}

    def look(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        asked = bool(MODES)
        for value, (name, classes, ask, kind) in zip(args, takes, strict=False):
            if classes is not None and type(value) not in classes:
                if _overrides(value):
                    asked = True
                elif not ask(value):  # type: ignore[misc]
                    raise _wrong(shown, name, kind, value)
        for key, value in kwargs.items():
            name, classes, ask, kind = by_name.get(key) or (key, None, None, "")
            if classes is not None and type(value) not in classes:
                if _overrides(value):
                    asked = True
                elif not ask(value):  # type: ignore[misc]
                    raise _wrong(shown, name, kind, value)
        return asked

    return named(function, look=look)


@functools.cache
def public(function: Callable[..., Any]) -> Callable[..., Any]:
    """What users know a function of the engine as: itself, or the layer's function that passes its arguments on."""
    import lucid
    import lucid.nn.functional

    name = function.__name__
    if name in lucid._C.__all__:
        return function
    known: Callable[..., Any] = getattr(lucid.nn.functional, name, function)
    own = [p for p, kind in inspect.signature(function).parameters.items() if kind.kind is not kind.KEYWORD_ONLY]
    return known if list(inspect.signature(known).parameters)[: len(own)] == own else function


def _wrong(function: str, name: str, kind: str, value: Any) -> Exception:
    from lucid import errors

    return errors.TypeError(f"{function}(): argument '{name}' must be {kind}, not {type(value).__name__}")


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
