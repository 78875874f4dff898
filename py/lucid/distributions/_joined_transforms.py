"""Several transforms side by side along a dimension."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import lucid
from lucid import Tensor
from lucid.distributions import constraints
from lucid.distributions._transform_base import Transform
from lucid.distributions.utils import _sum_rightmost, lazy_property


class _Joined(Transform):
    def __init__(self, tseq: Sequence[Transform], dim: int, cache_size: int) -> None:
        if not all(isinstance(t, Transform) for t in tseq):
            raise AssertionError("All elements of tseq must be Transform instances")
        super().__init__(cache_size=cache_size)
        self.transforms = [t.with_cache(cache_size) for t in tseq] if cache_size else list(tseq)
        self.dim = dim

    @property
    def bijective(self) -> Any:
        return all(t.bijective for t in self.transforms)

    def _check(self, size: int, what: str, **tensors: Tensor) -> None:
        for name, x in tensors.items():
            if not -x.dim() <= self.dim < x.dim():
                raise AssertionError(f"dim {self.dim} out of range for {name} with {x.dim()} dimensions")
            if x.size(self.dim) != size:
                raise AssertionError(f"{name}.size({self.dim}) = {x.size(self.dim)} must equal {what} {size}")


class CatTransform(_Joined):
    """Transforms of consecutive pieces along a dimension, joined as by `cat`.

    Args:
        tseq (sequence of Transform): one for each piece.
        dim (int): the dimension. Default: 0.
        lengths (sequence of int, optional): the pieces' sizes. Default: 1 each.
        cache_size (int): 0 or 1. Default: 0.

    Raises:
        AssertionError: if there are not as many lengths as transforms, or a tensor's size is not their sum.

    Example:
        >>> from lucid.distributions import CatTransform, ExpTransform, identity_transform
        >>> CatTransform([ExpTransform(), identity_transform], lengths=[1, 2])(lucid.zeros(3))
        tensor([1., 0., 0.])
    """

    def __init__(
        self, tseq: Sequence[Transform], dim: int = 0, lengths: Sequence[int] | None = None, cache_size: int = 0
    ) -> None:
        super().__init__(tseq, dim, cache_size)
        self.lengths = [1] * len(self.transforms) if lengths is None else list(lengths)
        if len(self.lengths) != len(self.transforms):
            raise AssertionError(f"lengths ({len(self.lengths)}) must match transforms ({len(self.transforms)})")

    @lazy_property
    def event_dim(self) -> Any:
        return max(t.event_dim for t in self.transforms)

    @lazy_property
    def length(self) -> Any:
        """The size of the dimension, all pieces together."""
        return sum(self.lengths)

    def _arguments(self) -> tuple[Any, ...]:
        return self.transforms, self.dim, self.lengths

    def _pieces(self, x: Tensor) -> list[Tensor]:
        starts = [sum(self.lengths[:i]) for i in range(len(self.lengths))]
        return [x.narrow(self.dim, start, length) for start, length in zip(starts, self.lengths, strict=True)]

    def _call(self, x: Tensor) -> Tensor:
        self._check(self.length, "length", x=x)
        return lucid.cat([t(piece) for t, piece in zip(self.transforms, self._pieces(x), strict=True)], dim=self.dim)

    def _inverse(self, y: Tensor) -> Tensor:
        self._check(self.length, "length", y=y)
        pieces = zip(self.transforms, self._pieces(y), strict=True)
        return lucid.cat([t.inv(piece) for t, piece in pieces], dim=self.dim)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        self._check(self.length, "length", x=x, y=y)
        terms = []
        for t, before, after in zip(self.transforms, self._pieces(x), self._pieces(y), strict=True):
            term = t.log_abs_det_jacobian(before, after)
            terms.append(_sum_rightmost(term, self.event_dim - t.event_dim))
        dim = self.dim - (x.dim() if self.dim >= 0 else 0) + self.event_dim
        # The dimension is part of the event where it is among the event's.
        return lucid.cat(terms, dim=dim) if dim < 0 else sum(terms[1:], terms[0])

    @constraints.dependent_property
    def domain(self) -> Any:
        return constraints.cat([t.domain for t in self.transforms], self.dim, self.lengths)

    @constraints.dependent_property
    def codomain(self) -> Any:
        return constraints.cat([t.codomain for t in self.transforms], self.dim, self.lengths)


class StackTransform(_Joined):
    """Transforms of the slices along a dimension, joined as by `stack`.

    Args:
        tseq (sequence of Transform): one for each slice.
        dim (int): the dimension. Default: 0.
        cache_size (int): 0 or 1. Default: 0.

    Raises:
        AssertionError: if a tensor has not as many slices as there are transforms.

    Example:
        >>> from lucid.distributions import ExpTransform, StackTransform, identity_transform
        >>> StackTransform([ExpTransform(), identity_transform])(lucid.zeros(2))
        tensor([1., 0.])
    """

    def __init__(self, tseq: Sequence[Transform], dim: int = 0, cache_size: int = 0) -> None:
        super().__init__(tseq, dim, cache_size)

    def _arguments(self) -> tuple[Any, ...]:
        return self.transforms, self.dim

    def _checked(self, **tensors: Tensor) -> None:
        self._check(len(self.transforms), "len(transforms)", **tensors)

    def _slices(self, x: Tensor) -> list[Tensor]:
        return [x.select(self.dim, i) for i in range(x.size(self.dim))]

    def _call(self, x: Tensor) -> Tensor:
        self._checked(x=x)
        return lucid.stack([t(v) for t, v in zip(self.transforms, self._slices(x), strict=True)], dim=self.dim)

    def _inverse(self, y: Tensor) -> Tensor:
        self._checked(y=y)
        return lucid.stack([t.inv(v) for t, v in zip(self.transforms, self._slices(y), strict=True)], dim=self.dim)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        self._checked(x=x, y=y)
        each = zip(self.transforms, self._slices(x), self._slices(y), strict=True)
        return lucid.stack([t.log_abs_det_jacobian(before, after) for t, before, after in each], dim=self.dim)

    @constraints.dependent_property
    def domain(self) -> Any:
        return constraints.stack([t.domain for t in self.transforms], self.dim)

    @constraints.dependent_property
    def codomain(self) -> Any:
        return constraints.stack([t.codomain for t in self.transforms], self.dim)
