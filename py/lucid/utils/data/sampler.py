"""Samplers: in which order a loader asks a dataset for its samples, and in which batches.

Random ones draw from `generator`, or from one that the process's generator seeds anew for each epoch.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence, Sized
from typing import Any, Generic, TypeVar

import lucid
from lucid._public_names import NamedInErrors

T_co = TypeVar("T_co", covariant=True)

# Permuting or drawing by parts keeps the memory of an epoch of draws with replacement bounded.
_PART = 32


class Sampler(NamedInErrors, Generic[T_co]):
    """An iterable of indices or of batches of them. A subclass has `__iter__`, and `__len__` where it is known."""

    def __iter__(self) -> Iterator[T_co]:
        raise NotImplementedError


class SequentialSampler(Sampler[int]):
    """`0, 1, …, len(data_source) - 1`.

    Args:
        data_source (Sized): what has the length.

    Example:
        >>> list(lucid.utils.data.SequentialSampler(range(3)))
        [0, 1, 2]
    """

    data_source: Sized

    def __init__(self, data_source: Sized) -> None:
        self.data_source = data_source

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self.data_source)))

    def __len__(self) -> int:
        return len(self.data_source)


def draw_seed(generator: lucid.Generator | None = None) -> int:
    """A random non-negative integer below 2⁶³ - 1."""
    return int(lucid.randint(0, 2**63 - 1, (), generator=generator, dtype=lucid.int64, device="cpu").item())


class RandomSampler(Sampler[int]):
    """Indices in random order.

    Args:
        data_source (Sized): What has the length.
        replacement (bool, default: False): Whether each index is drawn anew, so that some come twice and some
            never.
        num_samples (int, optional): How many; the length by default. Without replacement more than that go on with
            another permutation.
        generator (lucid.Generator, optional): The source of randomness.

    Raises:
        ValueError: `num_samples` is not positive.

    Example:
        >>> sorted(lucid.utils.data.RandomSampler(range(3)))
        [0, 1, 2]
    """

    data_source: Sized
    replacement: bool

    def __init__(
        self,
        data_source: Sized,
        replacement: bool = False,
        num_samples: int | None = None,
        generator: lucid.Generator | None = None,
    ) -> None:
        self.data_source = data_source
        self.replacement = replacement
        self._num_samples = num_samples
        self.generator = generator
        if not isinstance(replacement, bool):
            raise TypeError(f"replacement should be a boolean value, but got replacement={replacement}")
        if not isinstance(self.num_samples, int) or self.num_samples <= 0:
            raise ValueError(f"num_samples should be a positive integer value, but got num_samples={self.num_samples}")

    @property
    def num_samples(self) -> int:
        """How many indices an epoch has."""
        return len(self.data_source) if self._num_samples is None else self._num_samples

    def __iter__(self) -> Iterator[int]:
        n, wanted = len(self.data_source), self.num_samples
        generator = self.generator
        if generator is None:
            generator = lucid.Generator().manual_seed(draw_seed())
        if n == 0:
            if wanted and self.replacement:
                raise RuntimeError("cannot draw samples from an empty data source")
            return
        while wanted > 0:
            if self.replacement:
                part = lucid.randint(0, n, (min(wanted, _PART),), generator=generator, dtype=lucid.int64, device="cpu")
            else:
                part = lucid.randperm(n, generator=generator, device="cpu")
            yield from part.tolist()[:wanted]
            wanted -= part.numel()

    def __len__(self) -> int:
        return self.num_samples


class SubsetRandomSampler(Sampler[int]):
    """The given indices in random order, each once.

    Args:
        indices (Sequence[int]): the indices to draw, each once.
        generator (lucid.Generator, optional): the source of random bits; the one that `lucid.manual_seed` seeds by
            default.

    Example:
        >>> sorted(lucid.utils.data.SubsetRandomSampler([4, 2]))
        [2, 4]
    """

    indices: Sequence[int]

    def __init__(self, indices: Sequence[int], generator: lucid.Generator | None = None) -> None:
        self.indices = indices
        self.generator = generator

    def __iter__(self) -> Iterator[int]:
        for i in lucid.randperm(len(self.indices), generator=self.generator, device="cpu").tolist():
            yield self.indices[i]

    def __len__(self) -> int:
        return len(self.indices)


class WeightedRandomSampler(Sampler[int]):
    """Indices `0, …, len(weights) - 1`, drawn with probabilities in proportion to `weights`, which need not sum to one.

    Raises ValueError for weights that are not one-dimensional; RuntimeError when iterated where a weight is negative or
    not finite, all are zero, or more are to be drawn without replacement than there are. See `lucid.multinomial`.

    Args:
        weights (Sequence[float] | lucid.Tensor): a weight for each index, (n,).
        num_samples (int): the number of draws.
        replacement (bool, default: True): an index may be drawn several times.
        generator (lucid.Generator, optional): the source of random bits; the one that `lucid.manual_seed` seeds by
            default.

    Raises:
        ValueError: `weights` is no vector, or `num_samples` not positive.

    Example:
        >>> list(lucid.utils.data.WeightedRandomSampler([0.0, 1.0], 3))
        [1, 1, 1]
    """

    weights: lucid.Tensor
    num_samples: int
    replacement: bool

    def __init__(
        self,
        weights: Sequence[float] | lucid.Tensor,
        num_samples: int,
        replacement: bool = True,
        generator: lucid.Generator | None = None,
    ) -> None:
        if not isinstance(num_samples, int) or isinstance(num_samples, bool) or num_samples <= 0:
            raise ValueError(f"num_samples should be a positive integer value, but got num_samples={num_samples}")
        if not isinstance(replacement, bool):
            raise ValueError(f"replacement should be a boolean value, but got replacement={replacement}")
        made = weights if isinstance(weights, lucid.Tensor) else lucid.tensor(list(weights), device="cpu")
        made = made.detach().cpu().double()
        if made.dim() != 1:
            raise ValueError(f"weights should be a 1d sequence but given weights have shape {tuple(made.shape)}")
        self.weights = made
        self.num_samples = num_samples
        self.replacement = replacement
        self.generator = generator

    def __iter__(self) -> Iterator[int]:
        drawn = lucid.multinomial(self.weights, self.num_samples, self.replacement, generator=self.generator)
        yield from drawn.tolist()

    def __len__(self) -> int:
        return self.num_samples


class BatchSampler(Sampler[list[int]]):
    """Another sampler's indices in lists of `batch_size`; `drop_last` leaves a shorter last one out.

    Args:
        sampler (Sampler[Any] | Iterable[Any]): the indices.
        batch_size (int): the number of indices in each list.
        drop_last (bool): leaves out a shorter last list.

    Raises:
        ValueError: `batch_size` is not positive.

    Example:
        >>> list(lucid.utils.data.BatchSampler(range(5), 2, drop_last=False))
        [[0, 1], [2, 3], [4]]
    """

    sampler: Sampler[Any] | Iterable[Any]
    batch_size: int
    drop_last: bool

    def __init__(self, sampler: Sampler[Any] | Iterable[Any], batch_size: int, drop_last: bool) -> None:
        if not isinstance(batch_size, int) or isinstance(batch_size, bool) or batch_size <= 0:
            raise ValueError(f"batch_size should be a positive integer value, but got batch_size={batch_size}")
        if not isinstance(drop_last, bool):
            raise ValueError(f"drop_last should be a boolean value, but got drop_last={drop_last}")
        self.sampler = sampler
        self.batch_size = batch_size
        self.drop_last = drop_last

    def __iter__(self) -> Iterator[list[int]]:
        indices = iter(self.sampler)
        while batch := list(itertools.islice(indices, self.batch_size)):
            if len(batch) == self.batch_size or not self.drop_last:
                yield batch

    def __len__(self) -> int:
        n: int = len(self.sampler)  # type: ignore[arg-type]
        return n // self.batch_size if self.drop_last else (n + self.batch_size - 1) // self.batch_size
