"""`FakeTensorMode`: a block in which tensors have a shape, a dtype and a device, and no memory.

    with FakeTensorMode():
        model = lucid.nn.Linear(100_000, 100_000, device="cuda")
        y = model(lucid.ones(8, 100_000, device="cuda"))
    y           # FakeTensor(..., device='cuda', size=(8, 100000), grad_fn=<AddmmBackward0>)

A `FakeTensor` is a tensor of the meta device that says another one: factories make them under the mode, and calls on
them, also outside of it, give them, with the shape and the dtype that the meta device gives and the device of the
operands. Operands of two devices are an error. The tape records as for other tensors, so that backward passes give
gradients, which are fake, too.

What depends on elements raises: `DataDependentOutputException` where a number is asked for, and
`DynamicOutputShapeException` where a shape depends on elements. A tensor of one element made from data keeps it.

Differences from PyTorch: the mode is asked about whole calls and not about the ops below them, which is what errors
name; sizes are numbers, also with a `ShapeEnv`; a fake tensor made of a view does not share memory with that of its
base; in the `backward` of a custom function tensors are those of the meta device; autocast does not apply, and
transforms such as `func.grad` and `vmap` raise an error; modes around this one do not see the calls in it.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import lucid
from lucid import _C, Tensor, _repr, errors
from lucid._subclasses import _call, _rules
from lucid._subclasses._errors import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorDeviceMismatchError,
    MetadataMismatchError,
    UnsupportedFakeTensorException,
    UnsupportedOperatorException,
)
from lucid._warnings import warn_once
from lucid.overrides import TorchFunctionMode
from lucid.utils.weak import WeakIdKeyDictionary

__all__ = [
    "DataDependentOutputException",
    "DynamicOutputShapeException",
    "FakeTensor",
    "FakeTensorConverter",
    "FakeTensorDeviceMismatchError",
    "FakeTensorMode",
    "MetadataMismatchError",
    "UnsupportedFakeTensorException",
    "UnsupportedOperatorException",
    "is_fake",
    "maybe_get_fake_mode",
    "unset_fake_temporarily",
]


class FakeTensor(Tensor):
    """A tensor without memory that says a device.

    Args:
        fake_mode (FakeTensorMode): the mode that its calls are computed by.
        elem (Tensor): a tensor of the meta device, of any shape, which has the shape, the dtype and the strides.
        device (lucid.device or str): the device that it says.
        constant (Tensor, optional): a tensor of one element, which it stands for.

    Raises:
        RuntimeError: `elem` is not of the meta device.

    Example:
        >>> from lucid._subclasses import FakeTensor, FakeTensorMode
        >>> FakeTensor(FakeTensorMode(), lucid.empty(2, 3, device="meta"), "cpu")
        FakeTensor(..., size=(2, 3))
    """

    fake_mode: FakeTensorMode
    fake_device: lucid.device
    constant: Tensor | None
    _is_param: bool

    def __new__(
        cls, fake_mode: FakeTensorMode, elem: Tensor, device: Any, constant: Tensor | None = None
    ) -> FakeTensor:
        with _C.DisableTorchFunction():
            if not elem.is_meta:
                raise errors.RuntimeError(f"FakeTensor: expected a tensor of the meta device, got one of {elem.device}")
            made: FakeTensor = Tensor._make_subclass(cls, elem, elem.requires_grad)
        made.__dict__.update(fake_mode=fake_mode, fake_device=_call.device_of(device), constant=constant)
        return made

    def __init__(self, *_args: Any, **_kwargs: Any) -> None:
        pass

    @classmethod
    def __torch_function__(
        cls, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        fake = next(t for t in _call.tensors((args, kwargs)) if isinstance(t, FakeTensor))
        return fake.fake_mode._run(func, args, kwargs or {})

    @staticmethod
    def from_tensor(t: Tensor, fake_mode: FakeTensorMode) -> FakeTensor:
        """The fake tensor of a tensor: `fake_mode.from_tensor(t)`."""
        return fake_mode.from_tensor(t)

    def __repr__(self, *, tensor_contents: str | None = None) -> str:
        device, parameter = self.fake_device, self.__dict__.get("_is_param", False)
        with _C.DisableTorchFunction():
            suffixes = [] if device.type == "cpu" else [f"device='{device}'"]
            suffixes.append(f"size={tuple(self.shape)}")
            suffixes += [f"dtype={self.dtype}"] if self.dtype is not _C.get_default_dtype() else []
            made_by = self._grad_fn_name
            if made_by is not None:
                suffixes.append(f"grad_fn=<{made_by}>")
            elif self.requires_grad:
                suffixes.append("requires_grad=True")
        text = _repr._with_suffixes(f"FakeTensor({tensor_contents or '...'}", suffixes, len("FakeTensor("), False)
        return f"Parameter({text})" if parameter else text

    def __str__(self) -> str:
        return repr(self)

    def _result_of(self, *args: Any) -> Any:
        # What layers call on a result, of which no class is asked.
        with _C.DisableTorchFunction():
            made = Tensor._result_of(self, *args)
        return made if made is self else _call.become(made, self.fake_mode, self.fake_device)

    def __deepcopy__(self, memo: dict[int, Any]) -> FakeTensor:
        if id(self) not in memo:
            with _C.DisableTorchFunction():
                if not self.is_leaf:
                    raise errors.RuntimeError("only tensors that the user made can be copied deeply: see detach()")
                elem = self.detach().clone().requires_grad_(self.requires_grad)
                constant = None if self.constant is None else self.constant.clone()
            made = FakeTensor(self.fake_mode, elem, self.fake_device)
            made.__dict__.update({k: v for k, v in self.__dict__.items() if k not in made.__dict__ and k != "constant"})
            made.constant = constant
            memo[id(self)] = made
        found: FakeTensor = memo[id(self)]
        return found

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise UnsupportedFakeTensorException(
            "a FakeTensor has no elements to pickle; under `serialization.skip_data(materialize_fake_tensors=True)` "
            "`save` leaves room for them"
        )


class FakeTensorConverter:
    """Makes fake tensors of tensors, the same one of a tensor as long as it lives.

    Args:
        copy_data (bool, default: False): must be False: a fake tensor has no elements.
        export (bool, default: False): changes nothing, as tensors are not traced.

    Raises:
        NotImplementedError: `copy_data=True`.

    Example:
        >>> from lucid._subclasses.fake_tensor import FakeTensorConverter, FakeTensorMode
        >>> FakeTensorConverter().from_real_tensor(FakeTensorMode(), lucid.ones(2))
        FakeTensor(..., size=(2,))
    """

    def __init__(self, *, copy_data: bool = False, export: bool = False) -> None:
        if copy_data:
            raise errors.NotImplementedError("FakeTensorConverter: a fake tensor has no elements to copy")
        self.export = export
        #: References to the fake tensors, which live as long as others have them.
        self.tensor_memo: WeakIdKeyDictionary = WeakIdKeyDictionary()

    def from_real_tensor(
        self,
        fake_mode: FakeTensorMode,
        t: Tensor,
        make_constant: bool = False,
        shape_env: Any = None,
        *,
        source: Any = None,
        symbolic_context: Any = None,
        trace: bool = True,
    ) -> FakeTensor:
        """The fake tensor of a tensor: of its shape, strides, dtype and device, a parameter if it is one.

        Args:
            fake_mode (FakeTensorMode): its mode.
            t (Tensor): a tensor of any shape.
            make_constant (bool, default: False): whether it stands for the elements.
            shape_env (ShapeEnv, optional): without effect: sizes are numbers.
            source (object, optional): without effect: it names a tensor for a tracer.
            symbolic_context (object, optional): must be None.
            trace (bool, default: True): without effect: nothing is traced.

        Returns:
            FakeTensor: the same one each time.

        Raises:
            UnsupportedFakeTensorException: the tensor is sparse or nested.
            NotImplementedError: `symbolic_context`, which asks for symbolic sizes.
        """
        if symbolic_context is not None:
            raise errors.NotImplementedError("FakeTensorConverter: sizes are numbers, not symbols")
        if isinstance(t, FakeTensor):
            fake_mode._own(t)
            return t
        kept = self.tensor_memo.get(t)
        found: FakeTensor | None = None if kept is None else kept()
        if found is not None:
            return found
        made = _fake_of(self, fake_mode, t, make_constant)
        self.tensor_memo[t] = weakref.ref(made)
        return made

    def from_meta_and_device(self, fake_mode: FakeTensorMode, t: Tensor, device: Any, *_: Any) -> FakeTensor:
        """A fake tensor on a tensor of the meta device, which says another device."""
        return FakeTensor(fake_mode, t, device)


def _fake_of(converter: FakeTensorConverter, fake_mode: FakeTensorMode, t: Tensor, make_constant: bool) -> FakeTensor:
    with _C.DisableTorchFunction():
        if t.layout is not lucid.strided or t.is_nested:
            raise UnsupportedFakeTensorException(f"FakeTensor: no fake tensors are made of {t.layout!r} tensors")
        elem = lucid.empty_strided(tuple(t.shape), tuple(t.stride()), dtype=t.dtype, device="meta")
        made = FakeTensor(
            fake_mode, elem.requires_grad_(t.requires_grad), t.device, t.detach() if make_constant else None
        )
        if isinstance(t, lucid.nn.Parameter):
            made._is_param = True
        if not t.is_leaf:
            with lucid.enable_grad():
                return _call.become(made.clone(), fake_mode, t.device)
        grad = t.grad
        if grad is not None:
            made.grad = converter.from_real_tensor(fake_mode, grad)
    return made


class _Unset(threading.local):
    """How many blocks of `unset_fake_temporarily` the thread is in."""

    depth = 0


_unset = _Unset()


class FakeTensorMode(TorchFunctionMode):
    """What makes fake tensors inside `with`: see this file.

    Args:
        allow_fallback_kernels (bool, default: True): changes nothing: no call makes memory for its operands.
        allow_non_fake_inputs (bool, default: False): whether other tensors may be operands, for which fake ones are
            computed with; an error otherwise.
        shape_env (ShapeEnv, optional): sizes are numbers with one, too, of which a warning says so once where it asks
            for symbols.
        static_shapes (bool, optional): True: sizes are numbers.
        export (bool, default: False): changes nothing, as tensors are not traced.

    Example:
        >>> from lucid._subclasses.fake_tensor import FakeTensorMode
        >>> with FakeTensorMode():
        ...     lucid.nn.Linear(3, 4)(lucid.ones(2, 3)).shape
        lucid.Size([2, 4])
    """

    def __init__(
        self,
        *,
        allow_fallback_kernels: bool = True,
        allow_non_fake_inputs: bool = False,
        shape_env: Any = None,
        static_shapes: bool | None = None,
        export: bool = False,
    ) -> None:
        self.allow_fallback_kernels, self.export = allow_fallback_kernels, export
        self.allow_non_fake_inputs = allow_non_fake_inputs
        self.shape_env = shape_env
        self.static_shapes = True if static_shapes is None else static_shapes
        symbols = shape_env is not None and not getattr(shape_env, "assume_static_by_default", False)
        if static_shapes is False or (symbols and static_shapes is None):
            warn_once("FakeTensorMode(shape_env=)", "FakeTensorMode: sizes are numbers and not symbols")
        self.fake_tensor_converter = FakeTensorConverter(export=export)

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if _unset.depth:
            return func(*args, **(kwargs or {}))
        return self._run(func, args, kwargs or {})

    def _run(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return _rules.run(self, func, args, kwargs)

    def _own(self, tensor: FakeTensor) -> None:
        """Is a fake tensor this mode's?"""
        if tensor.fake_mode is not self:
            raise AssertionError(f"Mixing fake modes NYI {tensor.fake_mode=} vs {self=}")

    def from_tensor(
        self,
        tensor: Tensor,
        *,
        static_shapes: bool | None = None,
        source: Any = None,
        symbolic_context: Any = None,
        trace: bool = True,
    ) -> FakeTensor:
        """The fake tensor of a tensor: see `FakeTensorConverter.from_real_tensor`.

        Args:
            tensor (Tensor): a tensor of any shape.
            static_shapes (bool, optional): True: sizes are numbers.
            source (object, optional): without effect: it names a tensor for a tracer.
            symbolic_context (object, optional): must be None.
            trace (bool, default: True): without effect: nothing is traced.

        Returns:
            FakeTensor: the same one each time.

        Raises:
            UnsupportedFakeTensorException: the tensor is sparse or nested.
            AssertionError: the tensor is a fake one of another mode.
        """
        if static_shapes is False:
            warn_once("FakeTensorMode(shape_env=)", "FakeTensorMode: sizes are numbers and not symbols")
        return self.fake_tensor_converter.from_real_tensor(self, tensor, symbolic_context=symbolic_context)


def active() -> FakeTensorMode | None:
    """The innermost mode that is on; `None` without one."""
    modes = [] if _unset.depth else [m for m in _C._torch_function_modes() if isinstance(m, FakeTensorMode)]
    return modes[-1] if modes else None


@contextmanager
def unset_fake_temporarily() -> Iterator[FakeTensorMode | None]:
    """A block in which new tensors have memory, inside of one in which they have none.

    Yields:
        FakeTensorMode: the mode that is off in it, or None.

    Example:
        >>> from lucid._subclasses.fake_tensor import FakeTensorMode, unset_fake_temporarily
        >>> with FakeTensorMode(), unset_fake_temporarily():
        ...     lucid.ones(2).tolist()
        [1.0, 1.0]
    """
    was = active()
    _unset.depth += 1
    try:
        yield was
    finally:
        _unset.depth -= 1


def is_fake(x: object) -> bool:
    """Whether it is a fake tensor, or a tensor that is made of some.

    Args:
        x (object): any object.

    Returns:
        bool: whether it is.

    Example:
        >>> lucid._subclasses.fake_tensor.is_fake(lucid.ones(1))
        False
    """
    return maybe_get_fake_mode(x) is not None


def maybe_get_fake_mode(t: object) -> FakeTensorMode | None:
    """The mode of a fake tensor, or of the ones that a tensor is made of; `None` for others.

    Args:
        t (object): any object.

    Returns:
        FakeTensorMode: the mode, or None.

    Raises:
        AssertionError: the parts are of two modes.

    Example:
        >>> lucid._subclasses.fake_tensor.maybe_get_fake_mode(lucid.ones(1)) is None
        True
    """
    from lucid.utils._python_dispatch import is_traceable_wrapper_subclass

    if isinstance(t, FakeTensor):
        return t.fake_mode
    if not is_traceable_wrapper_subclass(t):
        return None
    parts: Any = t
    modes = {maybe_get_fake_mode(getattr(t, name)) for name in parts.__tensor_flatten__()[0]}
    if len(modes) > 1:
        raise AssertionError("the parts of a tensor are fake tensors of more than one mode")
    return modes.pop() if modes else None
