"""`lucid.overrides`: classes and modes that are asked before functions of tensors do their work.

A class that defines the class method `__torch_function__(cls, func, types, args=(), kwargs=None)` (PyTorch's name, so
that code for both needs no other) is asked where one of its instances is among the arguments of a function, method,
operator or attribute: subclasses of `Tensor`, and classes that are no tensors. `func` is the public function, such as
`lucid.add`, `lucid.Tensor.add` or `lucid.Tensor.shape.__get__`; `types` are the classes that are asked. What it returns
is the result; `NotImplemented` passes the question on. A subclass of `Tensor` without a method of its own has
`Tensor`'s, which makes tensors among the results instances of that class.

A `TorchFunctionMode` is asked about all calls of its thread while it is on, whatever the arguments.

Differences from PyTorch: `x += y` and the like leave `x` the same object, whatever a class that is asked gives back.
Lucid's functions in Python ask about their tensors where PyTorch's do; what they call within is asked about by its own
name. `relu`, `softmax` and others that `lucid` and `lucid.nn.functional` both have are asked about as `lucid.relu`.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

import lucid
from lucid import _C, Tensor
from lucid._absent import teller
from lucid._C import _handle_torch_function as handle_torch_function
from lucid._public_names import MODES

__all__ = [
    "TorchFunctionMode",
    "get_default_nowrap_functions",
    "handle_torch_function",
    "has_torch_function",
    "has_torch_function_unary",
    "has_torch_function_variadic",
    "is_tensor_like",
    "is_tensor_method_or_property",
    "resolve_name",
    "wrap_torch_function",
]

F = TypeVar("F", bound=Callable[..., Any])


def has_torch_function(relevant_args: Iterable[Any]) -> bool:
    """Is someone asked about a call with these arguments: a mode, or the class of one of them? Lists do not count.

    Args:
        relevant_args (Iterable[Any]): the arguments of a call.

    Returns:
        bool: whether it is so.

    Example:
        >>> lucid.overrides.has_torch_function((lucid.ones(1),))
        False
    """
    return _C._has_torch_function(relevant_args)


def has_torch_function_unary(obj: Any) -> bool:
    """`has_torch_function` of one argument.

    Args:
        obj (object): the argument of a call.

    Returns:
        bool: whether it is so.

    Example:
        >>> lucid.overrides.has_torch_function_unary(lucid.ones(1))
        False
    """
    return _C._has_torch_function((obj,))


def has_torch_function_variadic(*args: Any) -> bool:
    """Tells whether an argument is of a class with a `__torch_function__`: see `has_torch_function`.

    Args:
        args (object): any objects.

    Returns:
        bool: whether one of them is; False for plain tensors.

    Example:
        >>> from lucid.overrides import has_torch_function_variadic
        >>> has_torch_function_variadic(lucid.ones(1), 2.0)
        False
    """
    return _C._has_torch_function(args)


def is_tensor_like(inp: Any) -> bool:
    """Is it a tensor, or of a class with a `__torch_function__`?

    Args:
        inp (object): any object.

    Returns:
        bool: whether it is.

    Example:
        >>> lucid.overrides.is_tensor_like(1.0)
        False
    """
    return isinstance(inp, Tensor) or hasattr(inp, "__torch_function__")


def get_default_nowrap_functions() -> set[Any]:
    """The functions whose results `Tensor.__torch_function__` gives as they are."""
    own: Any = Tensor
    return {own._base.__get__, own.grad.__get__}


@functools.cache
def _members() -> frozenset[Any]:
    found = set()
    for value in vars(Tensor).values():
        if inspect.isgetsetdescriptor(value):
            found |= {getattr(value, "__get__"), getattr(value, "__set__"), getattr(value, "__delete__")}  # noqa: B009
        elif callable(value):
            found.add(value)
    return frozenset(found)


def is_tensor_method_or_property(func: Callable[..., Any]) -> bool:
    """Is it a method of `Tensor`, or what gets or sets one of its properties?

    Args:
        func (Callable[..., Any]): a function.

    Returns:
        bool: whether it is.

    Example:
        >>> lucid.overrides.is_tensor_method_or_property(lucid.Tensor.add)
        True
    """
    return func in _members() or getattr(func, "__name__", None) == "__get__"


def resolve_name(f: Callable[..., Any]) -> str | None:
    """The name by which a function or method is reached, such as `lucid.Tensor.add`; `None` if it has none.

    Args:
        f (Callable[..., Any]): a function or method.

    Returns:
        str: the name, or None.

    Example:
        >>> lucid.overrides.resolve_name(lucid.Tensor.add)
        'lucid.Tensor.add'
    """
    owner = getattr(f, "__self__", None)
    name = getattr(f, "__name__", None)
    if name in ("__get__", "__set__", "__delete__") and inspect.isgetsetdescriptor(owner):
        return f"lucid.Tensor.{owner.__name__}.{name}"
    if f in _members():
        return f"lucid.Tensor.{name}"
    if name is None:
        return None
    for prefix in ("", "nn.functional.", "linalg.", "special."):
        place: Any = lucid
        for part in prefix.split(".")[:-1]:
            place = getattr(place, part)
        if getattr(place, name, None) is f:
            return f"lucid.{prefix}{name}"
    module = getattr(f, "__module__", None)
    return f"{module}.{name}" if module else name


def wrap_torch_function(dispatcher: Callable[..., Iterable[Any]]) -> Callable[[F], F]:
    """Makes a function of one's own ask the classes of its arguments.

    Args:
        dispatcher (Callable[..., Iterable[Any]]): Takes the function's arguments and gives those whose classes are
            asked.

    Returns:
        callable: a decorator.

    Example:
        >>> @lucid.overrides.wrap_torch_function(lambda x: (x,))
        ... def twice(x):
        ...     return x * 2
        >>> twice(lucid.ones(1))
        tensor([2.])
    """

    def wrapped(function: F) -> F:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            relevant = dispatcher(*args, **kwargs)
            if has_torch_function(relevant):
                return handle_torch_function(call, relevant, *args, **kwargs)
            return function(*args, **kwargs)

        return call  # type: ignore[return-value]

    return wrapped


class TorchFunctionMode:
    """What is asked about the calls of this thread inside `with`: the innermost first, the others about what it calls.

    A subclass defines `__torch_function__(self, func, types, args=(), kwargs=None)`. While it runs, its mode is off;
    what it calls goes to the mode around it. `NotImplemented` leaves the call to the classes of its arguments.
    """

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        raise NotImplementedError

    def __enter__(self) -> TorchFunctionMode:
        MODES.append(self)
        _C._push_torch_function_mode(self)
        return self

    def __exit__(self, *_exc: object) -> None:
        _C._pop_torch_function_mode()
        MODES.remove(self)


if not TYPE_CHECKING:
    __getattr__ = teller(__name__)
