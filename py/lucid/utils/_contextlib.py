"""Context managers that are decorators too, as `torch.utils._contextlib`."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, Self, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


def context_decorator(ctx: Any, func: Any) -> Any:
    """Wraps a function so that each call, and each step of a generator, runs in a block of its own.

    Args:
        ctx: a context manager, or a function without arguments that makes one for each call.
        func: a function or generator function.

    Raises:
        RuntimeError: `func` is a class: decorate its methods.
    """
    if inspect.isclass(func):
        raise RuntimeError(
            f"Cannot decorate classes; it is ambiguous whether only the constructor or all methods should have the "
            f"context manager applied: decorate methods of {func.__name__}"
        )
    make: Callable[[], Any] = (lambda: ctx) if hasattr(ctx, "__enter__") else ctx
    if inspect.isgeneratorfunction(func):

        @functools.wraps(func)
        def generate(*args: Any, **kwargs: Any) -> Any:
            steps = func(*args, **kwargs)
            send: Callable[[], Any] = lambda: next(steps)  # noqa: E731
            while True:
                with make():
                    try:
                        value = send()
                    except StopIteration as e:
                        return e.value
                try:
                    given = yield value
                except GeneratorExit:
                    with make():
                        steps.close()
                    raise
                except BaseException as e:
                    send = functools.partial(steps.throw, e)
                else:
                    send = functools.partial(steps.send, given)

        return generate

    @functools.wraps(func)
    def decorated(*args: Any, **kwargs: Any) -> Any:
        with make():
            return func(*args, **kwargs)

    return decorated


class _DecoratorContextManager:
    """A context manager whose instances decorate functions: each call enters a `clone`."""

    def __call__(self, orig_func: F) -> F:
        return context_decorator(self.clone, orig_func)  # type: ignore[no-any-return]

    def __enter__(self) -> None:
        raise NotImplementedError

    def __exit__(self, exc_type: Any, exc_value: Any, traceback: Any) -> None:
        raise NotImplementedError

    def clone(self) -> Self:
        """Another of the same class."""
        return self.__class__()


class _NoParamDecoratorContextManager(_DecoratorContextManager):
    """One without arguments, which decorates without parentheses too."""

    def __new__(cls, orig_func: Any = None) -> Any:
        return super().__new__(cls) if orig_func is None else cls()(orig_func)
