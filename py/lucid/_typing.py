"""Names for type annotations: what functions take for a number, a tensor, a shape, a dtype, a device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeAlias, runtime_checkable

from lucid._C import Tensor, device, dtype

#: A Python number.
Scalar: TypeAlias = bool | int | float | complex
#: A tensor or a number: the operands of arithmetic.
TensorOrScalar: TypeAlias = Tensor | Scalar
#: Sizes, as a tuple or a list; one number for one dimension.
ShapeLike: TypeAlias = int | Sequence[int]
#: An element type, or Python's type for one.
DTypeLike: TypeAlias = dtype | type[bool] | type[int] | type[float] | type[complex]
#: A device or its name.
DeviceLike: TypeAlias = device | str
#: What modules and optimizers save and load.
StateDict: TypeAlias = Mapping[str, Any]


@runtime_checkable
class HasShape(Protocol):
    """What has sizes."""

    @property
    def shape(self) -> Sequence[int]: ...


@runtime_checkable
class SupportsNumpyConversion(Protocol):
    """What gives itself as a NumPy array."""

    def __array__(self, dtype: Any = ..., copy: bool | None = ...) -> Any: ...


@runtime_checkable
class SupportsGrad(Protocol):
    """What takes part in differentiation."""

    @property
    def requires_grad(self) -> bool: ...
    @property
    def grad(self) -> Any: ...
    def backward(self) -> None: ...


@runtime_checkable
class TensorLikeProtocol(HasShape, Protocol):
    """What has sizes and an element type, and can be read."""

    @property
    def dtype(self) -> Any: ...
    def tolist(self) -> Any: ...


#: What `lucid.tensor` makes a tensor of.
TensorLike: TypeAlias = Tensor | Scalar | Sequence[Any] | SupportsNumpyConversion
