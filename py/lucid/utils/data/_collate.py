"""How samples become a batch: `collate` and what it does by default.

NumPy's types are recognised by name, so that batches without arrays need no NumPy.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Mapping, MutableMapping, MutableSequence, Sequence
from typing import Any

import lucid

# Names of this file without an underscore are PyTorch's, which `_utils/collate.py` shows.
CollateMap = dict[type | tuple[type, ...], Callable[..., Any]]

default_collate_err_msg_format = (
    "default_collate: batch must contain tensors, numpy arrays, numbers, dicts or lists; found {}"
)
# NumPy's dtypes of strings and objects.
np_str_obj_array_pattern = re.compile("[SaUO]")


def _is_numpy(obj: Any) -> bool:
    cls = type(obj)
    return any(c.__module__ == "numpy" and c.__name__ in ("ndarray", "generic") for c in cls.__mro__)


def _is_array(obj: Any) -> bool:
    return _is_numpy(obj) and hasattr(obj, "__array_finalize__")


def _mapping(like: Any, convert: Callable[[Any], Any]) -> Any:
    """A mapping of `like`'s type, with `convert(key)` for its keys; a dict where the type cannot be made."""
    values = {key: convert(key) for key in like}
    try:
        if isinstance(like, MutableMapping):
            # The type may carry more than its items: change a copy.
            clone = copy.copy(like)
            clone.update(values)
            return clone
        return type(like)(values)
    except TypeError:
        return values


def _sequence(like: Any, values: list[Any]) -> Any:
    """A sequence of `like`'s type with these values; a list where the type cannot be made."""
    try:
        if isinstance(like, MutableSequence):
            clone = copy.copy(like)
            for i, value in enumerate(values):
                clone[i] = value
            return clone
        return type(like)(values)
    except TypeError:
        return values


def default_convert(data: Any) -> Any:
    """NumPy arrays and numbers, also inside mappings, tuples and sequences, as tensors; all else as it is.

    Tuples become lists, as in PyTorch. What a `DataLoader` with `batch_size=None` does to each sample.

    Args:
        data (object): a sample.

    Returns:
        object: the sample of tensors.

    Example:
        >>> lucid.utils.data.default_convert([1, "a"])
        [1, 'a']
    """
    if isinstance(data, lucid.Tensor):
        return data
    if _is_numpy(data) and type(data).__name__ not in ("str_", "bytes_", "string_"):
        if _is_array(data) and np_str_obj_array_pattern.search(data.dtype.str):
            return data
        return lucid.tensor(data, device="cpu") if not _is_array(data) else lucid.from_numpy(data)
    if isinstance(data, Mapping):
        return _mapping(data, lambda key: default_convert(data[key]))
    if isinstance(data, tuple) and hasattr(data, "_fields"):
        return type(data)(*(default_convert(d) for d in data))
    if isinstance(data, tuple):
        return [default_convert(d) for d in data]
    if isinstance(data, Sequence) and not isinstance(data, str | bytes):
        return _sequence(data, [default_convert(d) for d in data])
    return data


def collate(batch: Any, *, collate_fn_map: CollateMap | None = None) -> Any:
    """One object of a list of samples: mappings key by key, tuples and sequences position by position.

    Raises TypeError for elements without an entry; RuntimeError for sequences of unequal lengths.

    Args:
        batch (list): The samples, of which the first says how all are put together.
        collate_fn_map (CollateMap, optional): Functions for elements of a type: by the type itself, else by the
            first entry that it is an instance of. Each is called as `f(batch, collate_fn_map=collate_fn_map)`.

    Returns:
        object: the batch.

    Raises:
        TypeError: samples of a type that has no rule.

    Example:
        >>> lucid.utils.data.collate([1, 2], collate_fn_map={int: lambda batch, **rest: sum(batch)})
        3
    """
    first = batch[0]
    kind = type(first)
    if collate_fn_map is not None:
        if kind in collate_fn_map:
            return collate_fn_map[kind](batch, collate_fn_map=collate_fn_map)
        for each, function in collate_fn_map.items():
            if isinstance(first, each):
                return function(batch, collate_fn_map=collate_fn_map)
        if _is_numpy(first) and collate_fn_map is default_collate_fn_map:
            return _numpy_batch(batch, collate_fn_map)
    if isinstance(first, Mapping):
        return _mapping(first, lambda key: collate([d[key] for d in batch], collate_fn_map=collate_fn_map))
    if isinstance(first, tuple) and hasattr(first, "_fields"):
        columns = zip(*batch, strict=False)
        return kind(*(collate(column, collate_fn_map=collate_fn_map) for column in columns))
    # A string is a sequence of strings: without an entry there would be no end.
    if isinstance(first, Sequence) and not isinstance(first, str):
        if any(len(sample) != len(first) for sample in batch):
            raise RuntimeError("each element in list of batch should be of equal size")
        made = [collate(column, collate_fn_map=collate_fn_map) for column in zip(*batch, strict=True)]
        return made if isinstance(first, tuple) else _sequence(first, made)
    raise TypeError(default_collate_err_msg_format.format(kind))


def _numpy_batch(batch: Any, collate_fn_map: CollateMap) -> Any:
    rule = collate_numpy_array_fn if _is_array(batch[0]) else collate_numpy_scalar_fn
    return rule(batch, collate_fn_map=collate_fn_map)


def collate_numpy_array_fn(batch: Any, *, collate_fn_map: CollateMap | None = None) -> Any:
    """NumPy arrays, as tensors, by the rule for these.

    Raises:
        TypeError: arrays of strings or objects.
    """
    first = batch[0]
    if np_str_obj_array_pattern.search(first.dtype.str):
        raise TypeError(default_collate_err_msg_format.format(first.dtype))
    return collate([lucid.from_numpy(b) for b in batch], collate_fn_map=collate_fn_map)


def collate_numpy_scalar_fn(batch: Any, *, collate_fn_map: CollateMap | None = None) -> Any:
    """NumPy's numbers, as a vector of their dtype."""
    return lucid.stack([lucid.tensor(b, device="cpu") for b in batch])


def collate_tensor_fn(batch: Any, *, collate_fn_map: CollateMap | None = None) -> Any:
    """Tensors, stacked."""
    return lucid.stack(list(batch), 0)


def collate_float_fn(batch: Any, *, collate_fn_map: CollateMap | None = None) -> Any:
    """Floats, as a vector of float64."""
    return lucid.tensor(list(batch), dtype=lucid.float64, device="cpu")


def collate_int_fn(batch: Any, *, collate_fn_map: CollateMap | None = None) -> Any:
    """Whole numbers, as a vector of int64."""
    return lucid.tensor(list(batch), device="cpu")


def collate_str_fn(batch: Any, *, collate_fn_map: CollateMap | None = None) -> Any:
    """Strings, as they are."""
    return batch


default_collate_fn_map: CollateMap = {
    lucid.Tensor: collate_tensor_fn,
    float: collate_float_fn,
    int: collate_int_fn,
    str: collate_str_fn,
    bytes: collate_str_fn,
}


def default_collate(batch: Any) -> Any:
    """A batch of samples, with a first dimension of its size.

    Tensors and NumPy arrays are stacked, NumPy's and Python's numbers become a vector (floats float64, ints int64),
    strings and bytes stay a list; mappings, named tuples and sequences are taken apart, tuples giving lists.

    Raises RuntimeError for tensors of unequal shapes and sequences of unequal lengths; TypeError for anything else.

    Args:
        batch (list): the samples.

    Returns:
        object: the batch.

    Example:
        >>> lucid.utils.data.default_collate([(1, lucid.ones(1)), (2, lucid.zeros(1))])
        [tensor([1, 2]), tensor([[1.],
                [0.]])]
    """
    return collate(batch, collate_fn_map=default_collate_fn_map)
