"""Datasets: where samples come from, by index (`Dataset`) or in order (`IterableDataset`), and how they are combined.

Depends on tensors only for `TensorDataset` and on random permutations for `random_split`.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Generic, TypeVar

import lucid
from lucid._public_names import NamedInErrors
from lucid._warnings import warn

T_co = TypeVar("T_co", covariant=True)
T = TypeVar("T")


class Dataset(NamedInErrors, Generic[T_co]):
    """Samples by index. A subclass has `__getitem__`, mostly `__len__`, and may have `__getitems__` (a list of
    indices).

    Without `__len__` the default samplers raise TypeError, as in PyTorch.
    """

    def __getitem__(self, index: Any) -> T_co:
        raise NotImplementedError("Subclasses of Dataset should implement __getitem__.")

    def __add__(self, other: Dataset[Any]) -> ConcatDataset[Any]:
        return ConcatDataset([self, other])


class IterableDataset(Dataset[T_co], Iterable[T_co]):
    """Samples in an order of its own. A subclass has `__iter__`.

    With several workers each iterates over its own copy: shard by `get_worker_info()`, or every sample appears once per
    worker.
    """

    def __iter__(self) -> Iterator[T_co]:
        raise NotImplementedError("Subclasses of IterableDataset should implement __iter__.")

    def __add__(self, other: Dataset[Any]) -> ChainDataset:  # type: ignore[override]
        return ChainDataset([self, other])


class TensorDataset(Dataset[tuple[lucid.Tensor, ...]]):
    """Sample `i` is the tuple of the tensors' rows `i`.

    Raises AssertionError where the first dimensions differ.

    Args:
        *tensors (lucid.Tensor): tensors whose first sizes agree, (N, …).

    Raises:
        AssertionError: the first sizes differ.

    Example:
        >>> dataset = lucid.utils.data.TensorDataset(lucid.tensor([1, 2]), lucid.tensor([3, 4]))
        >>> dataset[1]
        (tensor(2), tensor(4))
    """

    tensors: tuple[lucid.Tensor, ...]

    def __init__(self, *tensors: lucid.Tensor) -> None:
        if any(tensors[0].size(0) != t.size(0) for t in tensors):
            raise AssertionError(f"Size mismatch between tensors: {[t.shape[0] for t in tensors]}")
        self.tensors = tensors

    def __getitem__(self, index: Any) -> tuple[lucid.Tensor, ...]:
        return tuple(t[index] for t in self.tensors)

    def __len__(self) -> int:
        return int(self.tensors[0].size(0))


class StackDataset(Dataset[Any]):
    """Samples of several datasets together: sample `i` is the tuple (or the dict) of the datasets' samples `i`.

    Args:
        args (Dataset or sequence): the datasets, of one length; a sample is a tuple.
        kwargs (Dataset or sequence): the datasets by name, of one length; a sample is a dict.

    Raises:
        ValueError: the lengths differ, there are none, or some by position and some by name.

    Example:
        >>> from lucid.utils.data import StackDataset
        >>> StackDataset(image=[1, 2], label=["a", "b"])[1]
        {'image': 2, 'label': 'b'}
    """

    datasets: tuple[Any, ...] | dict[str, Any]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if args and kwargs:
            raise ValueError(
                "Supported either ``tuple``- (via ``args``) or ``dict``- (via ``kwargs``) like input/output, "
                "but both types are given."
            )
        if not args and not kwargs:
            raise ValueError("At least one dataset should be passed")
        self.datasets = args or kwargs
        self._length = len(self._parts()[0])
        if any(len(d) != self._length for d in self._parts()):
            raise ValueError("Size mismatch between datasets")

    def _parts(self) -> list[Any]:
        return list(self.datasets.values()) if isinstance(self.datasets, dict) else list(self.datasets)

    def _join(self, samples: Iterable[Any]) -> Any:
        if isinstance(self.datasets, dict):
            return dict(zip(self.datasets, samples, strict=True))
        return tuple(samples)

    def __getitem__(self, index: Any) -> Any:
        return self._join(d[index] for d in self._parts())

    def __getitems__(self, indices: Sequence[Any]) -> list[Any]:
        columns = []
        for dataset in self._parts():
            if callable(getattr(dataset, "__getitems__", None)):
                items = dataset.__getitems__(indices)
                if len(items) != len(indices):
                    raise ValueError(
                        f"Nested dataset's output size mismatch. Expected {len(indices)}, got {len(items)}"
                    )
            else:
                items = [dataset[i] for i in indices]
            columns.append(items)
        return [self._join(row) for row in zip(*columns, strict=True)]

    def __len__(self) -> int:
        return self._length


class ConcatDataset(Dataset[T_co]):
    """The datasets one after the other, by index. Negative indices count from the end.

    Args:
        datasets (Iterable[Dataset[Any]]): datasets with lengths.

    Raises:
        AssertionError: there is none, or one is iterable alone.

    Example:
        >>> lucid.utils.data.ConcatDataset([range(2), range(3)])[3]
        1
    """

    datasets: list[Dataset[T_co]]
    cumulative_sizes: list[int]

    @staticmethod
    def cumsum(sequence: Iterable[Any]) -> list[int]:
        """The running sums of the lengths."""
        sums, total = [], 0
        for dataset in sequence:
            total += len(dataset)
            sums.append(total)
        return sums

    def __init__(self, datasets: Iterable[Dataset[Any]]) -> None:
        self.datasets = list(datasets)
        if not self.datasets:
            raise AssertionError("datasets should not be an empty iterable")
        if any(isinstance(d, IterableDataset) for d in self.datasets):
            raise AssertionError("ConcatDataset does not support IterableDataset")
        self.cumulative_sizes = self.cumsum(self.datasets)

    def __len__(self) -> int:
        return self.cumulative_sizes[-1]

    def __getitem__(self, idx: int) -> T_co:
        if idx < 0:
            if -idx > len(self):
                raise ValueError(
                    f"ConcatDataset: absolute value of index should not exceed dataset length, got {idx} for "
                    f"{len(self)}"
                )
            idx += len(self)
        if idx >= len(self):
            raise IndexError(f"ConcatDataset: index {idx} is out of range for {len(self)} elements")
        which = bisect.bisect_right(self.cumulative_sizes, idx)
        start = self.cumulative_sizes[which - 1] if which else 0
        return self.datasets[which][idx - start]

    @property
    def cummulative_sizes(self) -> list[int]:
        """PyTorch's old spelling of `cumulative_sizes`."""
        warn("cummulative_sizes attribute is renamed to cumulative_sizes", FutureWarning)
        return self.cumulative_sizes


class ChainDataset(IterableDataset[Any]):
    """Iterable datasets one after the other; each is asked for its iterator when its turn comes.

    Args:
        datasets (Iterable[Dataset[Any]]): the iterable datasets, in order.

    Example:
        >>> class Numbers(lucid.utils.data.IterableDataset):
        ...     def __iter__(self):
        ...         return iter([1, 2])
        >>> list(lucid.utils.data.ChainDataset([Numbers(), Numbers()]))
        [1, 2, 1, 2]
    """

    def __init__(self, datasets: Iterable[Dataset[Any]]) -> None:
        self.datasets = datasets

    def _parts(self) -> Iterator[Any]:
        for d in self.datasets:
            if not isinstance(d, IterableDataset):
                raise AssertionError("ChainDataset only supports IterableDataset")
            yield d

    def __iter__(self) -> Iterator[Any]:
        for d in self._parts():
            yield from d

    def __len__(self) -> int:
        return sum(len(d) for d in self._parts())


class Subset(Dataset[T_co]):
    """The samples of a dataset at the given indices.

    Args:
        dataset (Dataset[T_co]): the dataset that the samples are of.
        indices (Sequence[Any]): the indices of the samples.

    Raises:
        IndexError: an index is out of range.

    Example:
        >>> lucid.utils.data.Subset(range(10), [5, 7])[1]
        7
    """

    dataset: Dataset[T_co]
    indices: Sequence[Any]

    def __init__(self, dataset: Dataset[T_co], indices: Sequence[Any]) -> None:
        self.dataset = dataset
        self.indices = indices
        own = type(self)
        if own.__getitem__ is not Subset.__getitem__ and own.__getitems__ is Subset.__getitems__:
            raise NotImplementedError(
                f"{own.__name__} overrides __getitem__ but not __getitems__. When subclassing Subset and overriding "
                "__getitem__, you must also override __getitems__, which is what DataLoader calls."
            )

    def __getitem__(self, idx: Any) -> Any:
        if isinstance(idx, list):
            return self.dataset[[self.indices[i] for i in idx]]
        return self.dataset[self.indices[idx]]

    def __getitems__(self, indices: list[Any]) -> list[Any]:
        many = getattr(self.dataset, "__getitems__", None)
        if callable(many):
            found: list[Any] = many([self.indices[i] for i in indices])
            return found
        return [self.dataset[self.indices[i]] for i in indices]

    def __len__(self) -> int:
        return len(self.indices)


def random_split(
    dataset: Dataset[T], lengths: Sequence[int | float], generator: lucid.Generator | None = None
) -> list[Subset[T]]:
    """Splits a dataset at random into parts without overlap.

    Raises ValueError for lengths that do not add up and for fractions outside of 0 to 1; warns of empty parts.

    Args:
        dataset (Dataset[T]): What is split; it has a length.
        lengths (Sequence[int | float]): Sizes that sum to the dataset's, or fractions that sum to 1. A fraction's
            size is rounded down, and what is left over goes to the parts in turn, one sample each.
        generator (lucid.Generator, optional): Where the permutation comes from; the process's generator by
            default.

    Returns:
        list of Subsets: the parts.

    Raises:
        ValueError: the lengths do not sum to the dataset's length.

    Example:
        >>> [len(part) for part in lucid.utils.data.random_split(range(10), [0.7, 0.3])]
        [7, 3]
    """
    total = len(dataset)  # type: ignore[arg-type]
    if math.isclose(sum(lengths), 1) and sum(lengths) <= 1:
        sizes = []
        for i, fraction in enumerate(lengths):
            if fraction < 0 or fraction > 1:
                raise ValueError(f"Fraction at index {i} is not between 0 and 1")
            sizes.append(math.floor(total * fraction))
        for i in range(total - sum(sizes)):
            sizes[i % len(sizes)] += 1
        for i, size in enumerate(sizes):
            if size == 0:
                warn(f"Length of split at index {i} is 0. This might result in an empty dataset.")
    else:
        sizes = list(lengths)  # type: ignore[arg-type]
    if sum(sizes) != total:
        raise ValueError(
            "random_split: Sum of input lengths does not equal the length of the input dataset, got "
            f"{list(lengths)} for {total}"
        )
    order = lucid.randperm(total, generator=generator, device="cpu").tolist()
    ends = list(_running(sizes))
    return [Subset(dataset, order[end - size : end]) for end, size in zip(ends, sizes, strict=True)]


def _running(sizes: Iterable[int]) -> Iterator[int]:
    total = 0
    for size in sizes:
        total += size
        yield total
