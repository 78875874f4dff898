"""Grad mode as context managers and decorators. The mode belongs to the thread."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any, TypeVar, cast

from lucid._C import _restore_mode, _set_grad_enabled, _set_inference_mode, _set_layout_enforced

F = TypeVar("F", bound=Callable[..., Any])


def _is_generator(function: Callable[..., Any]) -> bool:
    # What `inspect.isgeneratorfunction` looks at; importing `inspect` would double the package's import time.
    code = getattr(getattr(function, "__func__", function), "__code__", None)
    return code is not None and bool(code.co_flags & 0x20)


class _Mode:
    """A block, or a function's body, in one grad mode. May be entered again while it is open."""

    def __init__(self, mode: bool) -> None:
        self._mode = mode
        self._former: list[Any] = []

    def _fresh(self) -> _Mode:
        """A mode of the same kind, for one call of a decorated function."""
        return _Mode(self._mode)

    def clone(self) -> _Mode:
        """Another of its kind."""
        return self._fresh()

    def __enter__(self) -> None:
        self._former.append(_set_grad_enabled(self._mode))

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        _set_grad_enabled(self._former.pop())

    def __call__(self, function: F) -> F:
        fresh = self._fresh
        if _is_generator(function):

            @functools.wraps(function)
            def generator(*args: Any, **kwargs: Any) -> Any:
                # The mode holds while the generator runs, not while it is suspended.
                with fresh():
                    steps = function(*args, **kwargs)
                sent: Any = None
                while True:
                    try:
                        with fresh():
                            item = steps.send(sent)
                    except StopIteration as stop:
                        return stop.value
                    try:
                        sent = yield item
                    except GeneratorExit:
                        steps.close()
                        raise

            return cast(F, generator)

        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            with fresh():
                return function(*args, **kwargs)

        return cast(F, wrapper)


class no_grad(_Mode):
    """Records nothing: `with lucid.no_grad():`, or as the decorator `@lucid.no_grad()`.

    Args:
        orig_func (callable, optional): the function to decorate.

    Example:
        >>> x = lucid.ones(1, requires_grad=True)
        >>> with lucid.no_grad():
        ...     print((x * 2).requires_grad)
        False
    """

    def __init__(self, orig_func: Any = None) -> None:
        super().__init__(False)

    def _fresh(self) -> _Mode:
        return no_grad()

    def __new__(cls, orig_func: Any = None) -> Any:
        # `@lucid.no_grad` without parentheses.
        return object.__new__(cls) if orig_func is None else _Mode(False)(orig_func)


class enable_grad(_Mode):
    """Records, also inside of `no_grad`.

    Args:
        orig_func (callable, optional): the function to decorate.

    Example:
        >>> x = lucid.ones(1, requires_grad=True)
        >>> with lucid.no_grad(), lucid.enable_grad():
        ...     print((x * 2).requires_grad)
        True
    """

    def __init__(self, orig_func: Any = None) -> None:
        super().__init__(True)

    def _fresh(self) -> _Mode:
        return enable_grad()

    def __new__(cls, orig_func: Any = None) -> Any:
        return object.__new__(cls) if orig_func is None else _Mode(True)(orig_func)


class inference_mode(_Mode):
    """Records nothing, and what is made in it never can be: its tensors cannot be saved for a gradient, nor written in
    place outside. `inference_mode(False)` leaves the mode and records.

    Args:
        mode (bool or callable, default: True): turns it on; or the function to decorate.

    Example:
        >>> with lucid.inference_mode():
        ...     print(lucid.ones(1).is_inference())
        True
    """

    def __init__(self, mode: Any = True) -> None:
        super().__init__(bool(mode))

    def __new__(cls, mode: Any = True) -> Any:
        return inference_mode()(mode) if callable(mode) else object.__new__(cls)

    def _fresh(self) -> _Mode:
        return inference_mode(self._mode)

    def __enter__(self) -> None:
        self._former.append(_set_inference_mode(self._mode))

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        _restore_mode(self._former.pop())


class set_grad_enabled(_Mode):
    """Sets the mode at once; as a context manager or decorator, for the block or function only.

    Args:
        mode (bool): records gradients.

    Raises:
        TypeError: `mode` is no bool.

    Example:
        >>> with lucid.set_grad_enabled(False):
        ...     print(lucid.is_grad_enabled())
        False
    """

    def __init__(self, mode: bool) -> None:
        if not isinstance(mode, bool):
            raise TypeError(f"set_grad_enabled(): argument 'mode' must be bool, not {type(mode).__name__}")
        super().__init__(mode)
        self._former.append(_set_grad_enabled(mode))
        self._entered = False

    def __enter__(self) -> None:
        if self._entered:
            super().__enter__()
        self._entered = True

    def __call__(self, function: F) -> F:
        # As a decorator it must not change the mode where it stands.
        _set_grad_enabled(self._former.pop())
        return super().__call__(function)

    def clone(self) -> set_grad_enabled:
        """Another of its kind, which sets the mode now."""
        return set_grad_enabled(self._mode)


class enforce_grad_layout_policy(_Mode):
    """Says whether a leaf's first gradient must have the leaf's layout: at once, and for the block, of this thread.

    With `False`, a gradient that nothing else holds is kept as it was made.

    Args:
        enable (bool, default: True): gives the first gradient of a leaf the leaf's memory layout.

    Example:
        >>> with lucid.autograd.enforce_grad_layout_policy(False):
        ...     pass
    """

    def __init__(self, enable: bool = True) -> None:
        super().__init__(bool(enable))
        self._former.append(_set_layout_enforced(self._mode))

    def _fresh(self) -> enforce_grad_layout_policy:
        return enforce_grad_layout_policy(self._mode)

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        _set_layout_enforced(self._former[-1])

    def __call__(self, function: F) -> F:
        # As a decorator it must not change the mode where it stands.
        _set_layout_enforced(self._former[-1])
        return super().__call__(function)


_threads = threading.local()


class set_multithreading_enabled(_Mode):
    """Says whether backward passes may use threads of their own: at once, and as a context manager for the block only.

    They never do here: a pass runs in the thread that asks for it, with either setting, which belongs to the thread.

    Args:
        mode (bool): the setting.

    Raises:
        TypeError: `mode` is no bool.

    Example:
        >>> with lucid.autograd.set_multithreading_enabled(False):
        ...     print(lucid.autograd.is_multithreading_enabled())
        False
    """

    def __init__(self, mode: bool) -> None:
        if not isinstance(mode, bool):
            got = type(mode).__name__
            raise TypeError(f"set_multithreading_enabled(): argument 'mode' must be bool, not {got}")
        super().__init__(mode)
        self._former.append(is_multithreading_enabled())
        _threads.enabled = mode

    def _fresh(self) -> set_multithreading_enabled:
        return set_multithreading_enabled(self._mode)

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        _threads.enabled = self._former[-1]


def is_multithreading_enabled() -> bool:
    """What `set_multithreading_enabled` has set in this thread; `True` at first."""
    return bool(getattr(_threads, "enabled", True))
