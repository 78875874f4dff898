"""`Tensor._make_wrapper_subclass`: a tensor of a class that keeps its numbers elsewhere, and is asked about each op.

    class Scaled(lucid.Tensor):
        @staticmethod
        def __new__(cls, inner, scale):
            return lucid.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype, device=inner.device)

        def __init__(self, inner, scale):
            self.inner, self.scale = inner, scale

        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
            ...

The tensor itself has a shape, a dtype and a device, and no elements: its class's `__torch_dispatch__` is asked about
the ops below each call that it is an argument of, as a `TorchDispatchMode` is.

Differences from PyTorch: gradients are those of the tensors inside, since the class is asked before the tape and not
below it; `data_ptr` is 0, and sizes are fixed when the tensor is made.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import lucid
from lucid import _C, Tensor, errors
from lucid.utils import _pytree
from lucid.utils._python_dispatch import TorchDispatchMode

#: What an instance answers itself; the rest of its attributes are those of a tensor without elements.
_TOLD = {"device": "_wrapper_device", "layout": "_wrapper_layout"}


class _Asked(TorchDispatchMode):
    """Shows the ops below a call to a class."""

    _shows_backward = False

    def __init__(self, class_: Any, guard: Any) -> None:
        super().__init__()
        self.class_, self.guard = class_, guard

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if not any(isinstance(leaf, self.class_) for leaf in _pytree.tree_leaves((args, kwargs))):
            return func(*args, **kwargs)
        # What the class calls on its own instances is asked about, too.
        self.guard.__exit__(None, None, None)
        try:
            return self.class_.__torch_dispatch__(func, types, args, kwargs)
        finally:
            self.guard.__enter__()


@classmethod  # type: ignore[misc]
def _ask(
    cls: Any, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
) -> Any:
    kwargs = kwargs or {}
    name = getattr(func, "__name__", "")
    if name == "__get__":
        attribute = getattr(getattr(func, "__self__", None), "__name__", "")
        told = args[0].__dict__.get(_TOLD.get(attribute, ""))
        if told is not None:
            return told
    if name == "__repr__":
        return f"{type(args[0]).__name__}(shape={list(args[0].shape)}, dtype={args[0].dtype})"
    with (guard := _C.DisableTorchFunctionSubclass()):
        return _Asked(cls, guard).__torch_function__(func, types, args, kwargs)


def make_wrapper_subclass(
    cls: Any,
    size: Sequence[int],
    strides: Sequence[int] | None = None,
    storage_offset: int | None = None,
    memory_format: Any = None,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
    **_: Any,
) -> Tensor:
    """Makes a tensor of a class that defines `__torch_dispatch__`: see this file.

    Args:
        cls (type): a subclass of `Tensor`.
        size (Sequence[int]): its shape.
        strides (Sequence[int], optional): its strides; those of a contiguous tensor by default.
        storage_offset (int, optional): must be 0.
        memory_format (memory_format, optional): must be the contiguous one.
        dtype (dtype, optional): its dtype; the default one where it is not given.
        layout (layout, optional): what its attribute `layout` tells.
        device (device or str, optional): what its attribute `device` tells.
        pin_memory (bool, default: False): without effect: there is one host memory.
        requires_grad (bool, default: False): what its attribute tells.

    Returns:
        Tensor: an instance of `cls`.

    Raises:
        TypeError: the class is no subclass of `Tensor`, or does not define `__torch_dispatch__`.
        NotImplementedError: an offset, or another memory format.
    """
    if not (isinstance(cls, type) and issubclass(cls, Tensor)):
        raise errors.TypeError(f"_make_wrapper_subclass: expected a subclass of Tensor, got {cls!r}")
    if not hasattr(cls, "__torch_dispatch__"):
        raise errors.TypeError(
            f"_make_wrapper_subclass: {cls.__name__} must define __torch_dispatch__, which is asked about each op"
        )
    if storage_offset or memory_format not in (None, lucid.contiguous_format):
        raise errors.NotImplementedError("_make_wrapper_subclass: there are only contiguous sizes, without an offset")
    # `_disabled_torch_function_impl` turns off the class's say about whole calls, and leaves that about the ops below.
    own = [vars(c).get("__torch_function__") for c in cls.__mro__[: cls.__mro__.index(Tensor)]]
    if not any(f is not None and f is not _C._disabled_torch_function_impl for f in own):
        setattr(cls, "__torch_function__", _ask)  # noqa: B010  # It is a method of other classes.
    shape = tuple(int(n) for n in size)
    empty = lucid.empty(shape, dtype=dtype, device="meta")
    if strides is not None and tuple(strides) != tuple(empty.stride()):
        empty = lucid.empty_strided(shape, tuple(strides), dtype=dtype, device="meta")
    made: Tensor = Tensor._make_subclass(cls, empty, requires_grad)
    made.__dict__["_wrapper_device"] = lucid.device(device) if device is not None else lucid.get_default_device()
    made.__dict__["_wrapper_layout"] = layout or lucid.strided
    return made
