"""Tensors with a contract: shape, strides, layout, bounds and device, checked before a kernel trusts them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

from lucid import _C, errors
from lucid._convert import from_numpy
from lucid.lightning import _arrays, _dispatch
from lucid.lightning._runtime import device_of

__all__ = ["Tensor", "Tensor64", "TensorView"]


def _ints(op: str, name: str, values: Any) -> tuple[int, ...]:
    """A list of sizes, offsets or strides."""
    if isinstance(values, int) and not isinstance(values, bool):
        values = (values,)
    try:
        out = tuple(int(v.__index__()) for v in values)
    except (TypeError, AttributeError):
        raise errors.TypeError(f"{op}: {name} must be ints, got {values!r}") from None
    if any(abs(v) >= _arrays.MOST_ELEMENTS for v in out):
        raise errors.ValueError(f"{op}: {name} {out} are too large")
    return out


def _contiguous_strides(shape: Sequence[int]) -> tuple[int, ...]:
    return tuple(math.prod(shape[i + 1 :]) for i in range(len(shape)))


class _Contract:
    """The metadata that tensors and views share, and its validators."""

    _data: _C.Tensor

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes."""
        return tuple(self._data.shape)

    @property
    def strides(self) -> tuple[int, ...]:
        """Elements from one index to the next, for each dimension."""
        return tuple(self._data.stride())

    @property
    def rank(self) -> int:
        """The number of dimensions."""
        return len(self._data.shape)

    @property
    def numel(self) -> int:
        """The number of elements."""
        return int(self._data.numel())

    @property
    def dtype(self) -> str:
        """`"float32"` or `"float64"`."""
        return repr(self._data.dtype).removeprefix("lucid.")

    @property
    def device(self) -> str:
        """The device's name."""
        return self._data.device.type

    @property
    def offset_elements(self) -> int:
        """Elements from the storage's begin to the first element."""
        return int(self._data.storage_offset())

    @property
    def is_contiguous(self) -> bool:
        """Are the elements one after the other in memory, the last index fastest?"""
        return self._data.is_contiguous()

    @property
    def layout(self) -> str:
        """`"contiguous"` or `"strided"`."""
        return "contiguous" if self.is_contiguous else "strided"

    @property
    def storage_numel(self) -> int:
        """The number of elements that the storage has room for."""
        return int(self._data.untyped_storage().nbytes()) // self._data.element_size()

    def contract(self) -> dict[str, Any]:
        """All of the metadata as a dict."""
        return {
            "shape": self.shape,
            "strides": self.strides,
            "rank": self.rank,
            "numel": self.numel,
            "dtype": self.dtype,
            "device": self.device,
            "layout": self.layout,
            "offset_elements": self.offset_elements,
        }

    def validate_contract(self) -> bool:
        """Checks the metadata by itself: ranks, counts and bounds agree.

        Returns:
            `True`.

        Raises:
            ValueError: They do not, with which of them.
        """
        _validate(self.shape, self.strides, self.offset_elements, None)
        return True

    def validate_contract_for_storage(self, storage_numel: int | None = None) -> bool:
        """Checks that each element is within a storage of `storage_numel` elements, its own by default."""
        count = self.storage_numel if storage_numel is None else _ints("validate", "storage_numel", storage_numel)[0]
        _validate(self.shape, self.strides, self.offset_elements, count)
        return True


def _validate(shape: Sequence[int], strides: Sequence[int], offset: int, storage_numel: int | None) -> None:
    if len(shape) != len(strides):
        raise errors.ValueError(f"contract: shape {tuple(shape)} and strides {tuple(strides)} have different ranks")
    if any(n < 0 for n in shape):
        raise errors.ValueError(f"contract: shape {tuple(shape)} has a negative size")
    if offset < 0 or any(s < 0 for s in strides):
        raise errors.ValueError(f"contract: strides {tuple(strides)} and offset {offset} must be from 0 on")
    if 0 in shape or storage_numel is None:
        return
    last = offset + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
    if last >= storage_numel:
        raise errors.ValueError(
            f"contract: the element at {last} is outside of a storage of {storage_numel} elements (shape "
            f"{tuple(shape)}, strides {tuple(strides)}, offset {offset})"
        )


class Tensor(_Contract):
    """A float32 tensor with its metadata: shape, strides, offset and storage.

    Args:
        data (nested list, array or Tensor): the values, which are copied.
        device (device or str, optional): `"cpu"`, `"metal"`, `"cuda"` or `"auto"`. Default: `"cpu"`.

    Raises:
        TypeError: `data` is no nested list of numbers, array or tensor.
        DtypeMismatch: `data` has another dtype.

    Example:
        >>> import lucid.lightning as lc
        >>> t = lc.Tensor([[1.0, 2.0], [3.0, 4.0]])
        >>> t.shape, t.strides, t.add(t).to_list()
        ((2, 2), (2, 1), [[2.0, 4.0], [6.0, 8.0]])
    """

    _dtype: ClassVar[_C.dtype] = _C.float32

    def __init__(self, data: Any, device: Any = "cpu") -> None:
        op = f"{type(self).__name__}()"
        chosen = device_of(op, device)
        numpy = _arrays._ndarray()
        if isinstance(data, _C.Tensor):
            made = data.detach().clone()
        elif numpy is not None and isinstance(data, numpy):
            made = _from_array(op, data)
        else:
            try:
                made = _C.tensor(data, dtype=self._dtype)
            except (TypeError, ValueError, RuntimeError) as e:
                raise errors.TypeError(f"{op}: no (nested) list of numbers: {e}") from None
        if made.dtype is not self._dtype:
            raise errors.DtypeMismatch(f"{op}: expected {self._dtype}, got {made.dtype}")
        self._data = made.to(chosen)

    @classmethod
    def _wrap(cls, data: _C.Tensor) -> Any:
        out = object.__new__(cls)
        out._data = data
        return out

    @classmethod
    def zeros(cls, shape: Sequence[int], device: Any = "cpu") -> Any:
        """A tensor of zeros."""
        op = f"{cls.__name__}.zeros()"
        sizes = _ints(op, "shape", shape)
        if any(n < 0 for n in sizes) or math.prod(sizes) >= _arrays.MOST_ELEMENTS:
            raise errors.ValueError(f"{op}: shape {sizes} is negative or too large")
        return cls._wrap(_C.zeros(*sizes, dtype=cls._dtype, device=device_of(op, device)))

    @classmethod
    def from_list(cls, data: Any, shape: Sequence[int] | None = None, device: Any = "cpu") -> Any:
        """A tensor of a (nested) list's values, in `shape` where that is given."""
        out = cls(data, device)
        return out if shape is None else out.reshape(shape)

    @classmethod
    def from_numpy(cls, array: Any, device: Any = "cpu") -> Any:
        """A tensor of an array's values, which are copied."""
        numpy = _arrays.numpy()
        if not isinstance(array, numpy.ndarray):
            raise errors.TypeError(f"{cls.__name__}.from_numpy(): expected a NumPy array, got {type(array).__name__}")
        return cls(array, device)

    @classmethod
    def from_numpy_array(cls, array: Any, device: Any = "cpu") -> Any:
        """`from_numpy`."""
        return cls.from_numpy(array, device)

    def to_list(self) -> Any:
        """The values as a nested list."""
        return self._data.cpu().tolist()

    def to_numpy(self) -> Any:
        """The values as an array of its own memory."""
        return self._data.cpu().clone().contiguous().numpy()

    def __repr__(self) -> str:
        return f"{type(self).__name__}(shape={self.shape}, device={self.device!r})"

    def _lucid(self) -> _C.Tensor:
        """The engine's tensor, of the same memory."""
        return self._data

    def add(self, other: Tensor) -> Any:
        """The elementwise sum of two tensors of one shape, dtype and device."""
        if type(other) is not type(self):
            raise errors.TypeError(
                f"{type(self).__name__}.add(): expected a {type(self).__name__}, got {type(other).__name__}"
            )
        if other.shape != self.shape:
            raise errors.ShapeMismatch(f"{type(self).__name__}.add(): shapes {self.shape} and {other.shape} differ")
        if other._data.device != self._data.device:
            raise errors.DeviceMismatch(
                f"{type(self).__name__}.add(): devices {self.device} and {other.device} differ; make both on one"
            )
        return self._wrap(_dispatch.evaluate(self._data + other._data))

    def reshape(self, shape: Sequence[int]) -> Any:
        """The same values in another shape of as many elements; one size may be -1."""
        op = f"{type(self).__name__}.reshape()"
        return self._wrap(self._data.reshape(_reshaped(op, self.numel, _ints(op, "shape", shape))))

    def view(self, shape: Sequence[int] | None = None) -> TensorView:
        """A view of the same memory, in `shape` where that is given."""
        return TensorView(self) if shape is None else TensorView(self).reshape(shape)

    def slice(self, begin: Sequence[int], end: Sequence[int], step: Sequence[int] | None = None) -> TensorView:
        """A view of the elements from `begin` to before `end`, every `step`-th, for each dimension."""
        return TensorView(self).slice(begin, end, step)


class Tensor64(Tensor):
    """A float64 tensor with its metadata, on the CPU alone; otherwise as `Tensor`.

    Args:
        data (nested list, array or Tensor): the values, which are copied.
        device (device or str, optional): `"cpu"`.

    Raises:
        TypeError: `data` is no nested list of numbers, array or tensor.
        DtypeMismatch: `data` has another dtype.

    Example:
        >>> import lucid.lightning as lc
        >>> lc.Tensor64([1.0, 2.0]).dtype
        'float64'
    """

    _dtype: ClassVar[_C.dtype] = _C.float64


def _from_array(op: str, array: Any) -> _C.Tensor:
    if array.dtype.char not in "fd" or not array.dtype.isnative:
        raise errors.DtypeMismatch(f"{op}: expected float32 or float64 of the machine's byte order, got {array.dtype}")
    return from_numpy(array.copy())


def _reshaped(op: str, numel: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    known = math.prod(n for n in shape if n != -1)
    if shape.count(-1) > 1 or any(n < -1 for n in shape):
        raise errors.ShapeMismatch(f"{op}: {shape} is no shape")
    if -1 in shape and known and numel % known == 0:
        shape = tuple(numel // known if n == -1 else n for n in shape)
    if math.prod(shape) != numel or -1 in shape:
        raise errors.ShapeMismatch(f"{op}: {numel} elements do not fit the shape {shape}")
    return shape


class TensorView(_Contract):
    """A view: another shape, strides and offset over a tensor's memory. Writes to either are seen by both.

    Args:
        tensor (Tensor or TensorView): a `Tensor`, a `Tensor64` or another view, of any shape.

    Raises:
        TypeError: `tensor` is none of these.

    Example:
        >>> import lucid.lightning as lc
        >>> lc.Tensor([1.0, 2.0, 3.0, 4.0]).slice([1], [4], [2]).slice_copy()
        [2.0, 4.0]
    """

    def __init__(self, tensor: Tensor | TensorView) -> None:
        if not isinstance(tensor, (Tensor, TensorView)):
            raise errors.TypeError(f"TensorView(): expected a Tensor or TensorView, got {type(tensor).__name__}")
        self._data = tensor._data

    @classmethod
    def _wrap(cls, data: _C.Tensor) -> TensorView:
        out = object.__new__(cls)
        out._data = data
        return out

    def __repr__(self) -> str:
        return f"TensorView(shape={self.shape}, strides={self.strides}, offset={self.offset_elements})"

    def validate_view_contract(self) -> bool:
        """Checks that each element of the view is within its storage; `validate_contract_for_storage` of its own."""
        return self.validate_contract_for_storage()

    def reshape(self, shape: Sequence[int]) -> TensorView:
        """The view in another shape of as many elements.

        Raises:
            ShapeMismatch: The elements are too few or too many, or so spread that this needs a copy.
        """
        op = "TensorView.reshape()"
        wanted = _reshaped(op, self.numel, _ints(op, "shape", shape))
        try:
            return self._wrap(self._data.view(wanted))
        except errors.LucidError as e:
            raise errors.ShapeMismatch(f"{op}: {self!r} as {wanted} needs a copy; use slice_copy(): {e}") from None

    view = reshape

    def slice(self, begin: Sequence[int], end: Sequence[int], step: Sequence[int] | None = None) -> TensorView:
        """A view of the elements from `begin` to before `end`, every `step`-th, for each dimension.

        Raises:
            IndexError: A range is not within its dimension, or empty.
        """
        op = "TensorView.slice()"
        first, last = _ints(op, "begin", begin), _ints(op, "end", end)
        steps = (1,) * self.rank if step is None else _ints(op, "step", step)
        if not len(first) == len(last) == len(steps) == self.rank:
            raise errors.ShapeMismatch(f"{op}: begin, end and step need one number for each of {self.rank} dimensions")
        for i, (b, e, s, n) in enumerate(zip(first, last, steps, self.shape, strict=True)):
            if not (0 <= b < e <= n and s >= 1):
                raise errors.IndexError(f"{op}: {b}:{e}:{s} is no range of dimension {i} of size {n}")
        keys = tuple(slice(b, e, s) for b, e, s in zip(first, last, steps, strict=True))
        return self._wrap(self._data[keys] if keys else self._data)

    def to_host_view(self) -> Any:
        """The view's values as a memoryview of the storage where that is in the CPU's memory, else of a copy."""
        return memoryview(self.to_host_view_numpy())

    def to_host_view_numpy(self) -> Any:
        """The view as an array of the same memory, strides included; of a GPU's tensor an array of its own."""
        data = self._data.detach()
        return data.numpy() if data.is_cpu else data.cpu().numpy()

    def slice_copy(self) -> Any:
        """The view's values as a nested list."""
        return self._data.cpu().tolist()

    def slice_copy_numpy(self) -> Any:
        """The view's values as a contiguous array of its own memory."""
        return self._data.detach().cpu().clone().contiguous().numpy()

    def read_strided(self, shape: Sequence[int], strides: Sequence[int], offset: int = 0) -> Any:
        """Values read from the storage by a shape, strides and an offset of one's own, as a nested list.

        Raises:
            ValueError: An element would be outside of the storage.
        """
        op = "TensorView.read_strided()"
        sizes, steps = _ints(op, "shape", shape), _ints(op, "strides", strides)
        start = _ints(op, "offset", offset)[0]
        _validate(sizes, steps, start, self.storage_numel)
        return self._data.detach().cpu().as_strided(sizes, steps, start).tolist()
