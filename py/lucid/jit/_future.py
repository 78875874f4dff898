"""Values that a thread computes: `fork`, `wait` and `Future`, as `torch.jit` and `torch.futures` have them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future as _Inner
from typing import Any

from lucid import errors

__all__ = ["Future", "collect_all", "fork", "wait", "wait_all"]


class Future:
    """A value that may not be there yet.

    Args:
        devices (object, optional): without effect: a GPU has one stream, whose order holds between threads.

    Example:
        >>> future = lucid.jit.Future()
        >>> then = future.then(lambda f: f.value() + 1)
        >>> future.set_result(1)
        >>> then.wait()
        2
    """

    def __init__(self, *, devices: Any = None) -> None:
        self._inner: _Inner[Any] = _Inner()

    def done(self) -> bool:
        """Whether there is a value or an error."""
        return self._inner.done()

    def wait(self) -> Any:
        """Waits for the value and returns it; raises the error if there is one."""
        return self._inner.result()

    def value(self) -> Any:
        """Returns the value.

        Raises:
            RuntimeError: it is not there yet.
        """
        if not self.done():
            raise errors.RuntimeError("Future.value(): the future is not completed; call wait()")
        return self._inner.result()

    def set_result(self, result: Any) -> None:
        """Sets the value, once."""
        if self.done():
            raise errors.RuntimeError("Future can only be marked completed once")
        self._inner.set_result(result)

    def set_exception(self, result: BaseException) -> None:
        """Sets the error that `wait` raises."""
        if not isinstance(result, Exception):
            raise AssertionError(f"{result} is of type {type(result)}, not an Exception.")
        self._inner.set_exception(result)

    def add_done_callback(self, callback: Callable[[Future], Any]) -> None:
        """Calls a function with this future once it is done."""
        self._inner.add_done_callback(lambda _: callback(self))

    def then(self, callback: Callable[[Future], Any]) -> Future:
        """Returns a future of what a function gives of this one, once it is done."""
        result = Future()

        def run(_: Any) -> None:
            try:
                result.set_result(callback(self))
            except Exception as e:
                result.set_exception(e)

        self._inner.add_done_callback(run)
        return result


def fork(func: Callable[..., Any], *args: Any, **kwargs: Any) -> Future:
    """Calls a function in a thread of its own.

    Args:
        func (Callable[..., Any]): a function.
        *args (object): its arguments.
        **kwargs (object): its arguments.

    Returns:
        A future of its result. Grad mode is that of the caller.

    Example:
        >>> lucid.jit.wait(lucid.jit.fork(lambda x: x + 1, lucid.ones(2)))
        tensor([2., 2.])
    """
    import lucid

    result, recording = Future(), lucid.is_grad_enabled()

    def run() -> None:
        try:
            with lucid.set_grad_enabled(recording):
                result.set_result(func(*args, **kwargs))
        except Exception as e:
            result.set_exception(e)

    threading.Thread(target=run, name="lucid-fork").start()
    return result


def wait(future: Future) -> Any:
    """Waits for the value of a future of `fork`.

    Args:
        future (Future): what `fork` returned.

    Returns:
        object: the value.

    Raises:
        Exception: what the forked function raised.

    Example:
        >>> future = lucid.jit.fork(lambda x: x + 1, lucid.ones(2))
        >>> lucid.jit.wait(future)
        tensor([2., 2.])
    """
    return future.wait()


def wait_all(futures: list[Future]) -> list[Any]:
    """Waits for the values of several futures and returns them.

    Args:
        futures (list[Future]): those to wait for.

    Returns:
        list: their values.

    Example:
        >>> future = lucid.futures.Future()
        >>> future.set_result(1)
        >>> lucid.futures.wait_all([future])
        [1]
    """
    return [future.wait() for future in futures]


def collect_all(futures: list[Future]) -> Future:
    """Returns a future of the list, which is done once all of its futures are.

    Args:
        futures (list[Future]): those to wait for.

    Returns:
        Future: of the list of all.

    Example:
        >>> future = lucid.futures.Future()
        >>> future.set_result(1)
        >>> lucid.futures.collect_all([future]).wait()[0].value()
        1
    """
    result, left, lock = Future(), [len(futures)], threading.Lock()

    def count(_: Future) -> None:
        with lock:
            left[0] -= 1
            last = left[0] == 0
        if last:
            result.set_result(futures)

    if not futures:
        result.set_result(futures)
    for future in futures:
        future.add_done_callback(count)
    return result
