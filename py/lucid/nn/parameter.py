"""`Parameter`: a tensor that a module lists among its parameters.

Depends on the core's `Tensor` alone. A parameter shares storage with the tensor it was made from, and is a leaf.
"""

from __future__ import annotations

from typing import Any, cast

import lucid
from lucid import _C, Tensor, errors

__all__ = ["Buffer", "Parameter", "UninitializedBuffer", "UninitializedParameter", "is_lazy"]


class _ParameterMeta(type):
    """A parameter of another class than `Parameter` is a tensor of that class that says so."""

    def __instancecheck__(cls, instance: Any) -> bool:
        return super().__instancecheck__(instance) or (
            cls is Parameter and isinstance(instance, Tensor) and getattr(instance, "_is_param", False)
        )


@_C._left_alone
class Parameter(Tensor, metaclass=_ParameterMeta):
    """A tensor that is a module's parameter: assigned as an attribute, it appears in `Module.parameters()`.

    What is computed from parameters is plain tensors. Of data of a subclass of `Tensor` it makes a tensor of that
    class, which counts as a parameter (`isinstance` says so, too), as PyTorch does.

    Args:
        data (Tensor, optional): the tensor whose storage it shares, of any shape; an empty one by default.
        requires_grad (bool, default: True): Whether gradients are recorded, also inside `no_grad`.

    Returns:
        Parameter: a leaf.

    Example:
        >>> from lucid import nn
        >>> nn.Parameter(lucid.zeros(2))
        Parameter containing:
        tensor([0., 0.], requires_grad=True)
    """

    _is_param: bool

    def __new__(cls, data: Tensor | None = None, requires_grad: bool = True) -> Parameter:
        if data is None:
            data = lucid.empty(0)
        if not isinstance(data, Tensor):
            raise errors.TypeError(f"expected a Tensor as a Parameter's data, got {type(data).__name__}")
        made: Parameter
        if not _C._overrides(data):
            made = Tensor._make_subclass(cls, data, requires_grad)
            return made
        like: Any = data.detach().requires_grad_(requires_grad)
        if type(like) is not type(data):
            raise errors.RuntimeError(
                f"Creating a Parameter from an instance of type {type(data).__name__} requires that detach() returns "
                f"an instance of the same type, but return type {type(like).__name__} was found instead."
            )
        made = cast("Parameter", like)
        made._is_param = True
        return made

    def __init__(self, data: Tensor | None = None, requires_grad: bool = True) -> None:
        pass

    def __deepcopy__(self, memo: dict[int, Any]) -> Parameter:
        if id(self) not in memo:
            # Without the gradient, unlike a plain tensor's copy: as in PyTorch.
            memo[id(self)] = type(self)(self.detach().clone(), self.requires_grad)
        found: Parameter = memo[id(self)]
        return found

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        made = _rebuild, (type(self), self.detach(), self.requires_grad)
        # What was set on it comes along, as in PyTorch.
        return (*made, dict(self.__dict__)) if self.__dict__ else made

    def __repr__(self) -> str:
        return "Parameter containing:\n" + super().__repr__()


@_C._left_alone
class Buffer(Tensor):
    """A tensor that, assigned as an attribute, becomes a module's buffer.

    Args:
        data (Tensor, optional): the tensor whose storage it shares, of any shape; an empty one by default.
        persistent (bool, default: True): Whether it is part of `state_dict()`.

    Example:
        >>> from lucid import nn
        >>> layer = nn.Module()
        >>> layer.steps = nn.Buffer(lucid.zeros(1))
        >>> list(layer.state_dict())
        ['steps']
    """

    persistent: bool

    def __new__(cls, data: Tensor | None = None, *, persistent: bool = True) -> Buffer:
        made: Buffer = Tensor._make_subclass(cls, lucid.empty(0) if data is None else data)
        made.persistent = persistent
        return made

    def __init__(self, data: Tensor | None = None, *, persistent: bool = True) -> None:
        pass

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return _rebuild_buffer, (type(self), self.detach(), self.persistent)


class UninitializedTensorMixin:
    """What both kinds without a shape share: a place and a dtype, and an error for all that needs a shape."""

    def materialize(self, shape: Any, device: Any = None, dtype: Any = None) -> None:
        """Makes it an ordinary tensor of this shape, in place, with elements that may be anything.

        Args:
            shape: The sizes.
            device: Default: where it was made.
            dtype: Default: the one it was made with.
        """
        tensor: Any = self
        made = lucid.empty(
            tuple(shape), device=tensor.device if device is None else device, dtype=dtype or tensor.dtype
        )
        tensor.__class__ = self.cls_to_become  # type: ignore[attr-defined]
        tensor.data = made

    @property
    def shape(self) -> Any:
        raise errors.RuntimeError(_NO_SHAPE)

    def size(self, *args: Any) -> Any:
        raise errors.RuntimeError(_NO_SHAPE)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"


_NO_SHAPE = (
    "Can't access the shape of an uninitialized parameter or buffer. This error usually happens in `load_state_dict` "
    "when trying to load an uninitialized parameter into an initialized one. Call `forward` to initialize the "
    "parameters before accessing their attributes."
)


@_C._left_alone
class UninitializedParameter(UninitializedTensorMixin, Parameter):
    """A parameter whose shape is not known yet; `materialize` gives it one. What lazy modules start with.

    Args:
        requires_grad (bool, default: True): records gradients.
        device (lucid.device or str, optional): where the result is made; the current default device by default.
        dtype (lucid.dtype, optional): the dtype of the result; that of the arguments, or the default dtype, by
            default.

    Example:
        >>> from lucid import nn
        >>> weight = nn.UninitializedParameter()
        >>> weight.materialize((2, 3))
        >>> weight.shape
        lucid.Size([2, 3])
    """

    cls_to_become = Parameter

    def __new__(cls, requires_grad: bool = True, device: Any = None, dtype: Any = None) -> UninitializedParameter:
        made: UninitializedParameter = Tensor._make_subclass(
            cls, lucid.empty(0, device=device, dtype=dtype), requires_grad
        )
        return made

    def __init__(self, requires_grad: bool = True, device: Any = None, dtype: Any = None) -> None:
        pass

    def __deepcopy__(self, memo: dict[int, Any]) -> UninitializedParameter:
        if id(self) not in memo:
            memo[id(self)] = type(self)(self.requires_grad, self.device, self.dtype)
        found: UninitializedParameter = memo[id(self)]
        return found

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return type(self), (self.requires_grad, self.device, self.dtype)


@_C._left_alone
class UninitializedBuffer(UninitializedTensorMixin, Tensor):
    """A buffer whose shape is not known yet; `materialize` gives it one.

    Args:
        requires_grad (bool, default: False): records gradients.
        device (lucid.device or str, optional): where the result is made; the current default device by default.
        dtype (lucid.dtype, optional): the dtype of the result; that of the arguments, or the default dtype, by
            default.
        persistent (bool, default: True): is part of `state_dict()`.

    Example:
        >>> from lucid import nn
        >>> buffer = nn.UninitializedBuffer()
        >>> buffer.materialize((2,))
        >>> buffer.shape
        lucid.Size([2])
    """

    cls_to_become = Buffer
    persistent: bool

    def __new__(
        cls, requires_grad: bool = False, device: Any = None, dtype: Any = None, persistent: bool = True
    ) -> UninitializedBuffer:
        made: UninitializedBuffer = Tensor._make_subclass(
            cls, lucid.empty(0, device=device, dtype=dtype), requires_grad
        )
        made.persistent = persistent
        return made

    def __init__(
        self, requires_grad: bool = False, device: Any = None, dtype: Any = None, persistent: bool = True
    ) -> None:
        pass

    def __deepcopy__(self, memo: dict[int, Any]) -> UninitializedBuffer:
        if id(self) not in memo:
            memo[id(self)] = type(self)(self.requires_grad, self.device, self.dtype, self.persistent)
        found: UninitializedBuffer = memo[id(self)]
        return found

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return type(self), (self.requires_grad, self.device, self.dtype, self.persistent)


def is_lazy(param: Any) -> bool:
    """Has this parameter or buffer no shape yet?

    Args:
        param (object): a parameter or buffer, of any shape, or another object.

    Returns:
        bool: whether it is uninitialized.

    Example:
        >>> from lucid import nn
        >>> nn.parameter.is_lazy(nn.LazyLinear(2).weight)
        True
    """
    return isinstance(param, UninitializedTensorMixin)


def _rebuild(cls: type[Parameter], data: Tensor, requires_grad: bool) -> Parameter:
    return cls(data, requires_grad)


def _rebuild_buffer(cls: type[Buffer], data: Tensor, persistent: bool) -> Buffer:
    return cls(data, persistent=persistent)
