"""Constraints: regions of values, such as parameters and samples have to be in.

Each has `check(value)`, which gives True for every event inside. `is_discrete` says whether the region is one of
integers, `event_dim` how many of the last dimensions make one event.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import lucid
from lucid import Tensor
from lucid.distributions._constraint_base import Constraint
from lucid.distributions._matrix_constraints import (
    _CorrCholesky,
    _LowerCholesky,
    _LowerTriangular,
    _PositiveDefinite,
    _PositiveSemidefinite,
    _Square,
    _Symmetric,
)

__all__ = [
    "Constraint",
    "MixtureSameFamilyConstraint",
    "boolean",
    "cat",
    "corr_cholesky",
    "dependent",
    "dependent_property",
    "greater_than",
    "greater_than_eq",
    "half_open_interval",
    "independent",
    "integer_interval",
    "interval",
    "is_dependent",
    "less_than",
    "lower_cholesky",
    "lower_triangular",
    "multinomial",
    "nonnegative",
    "nonnegative_integer",
    "one_hot",
    "positive",
    "positive_definite",
    "positive_integer",
    "positive_semidefinite",
    "real",
    "real_vector",
    "simplex",
    "square",
    "stack",
    "symmetric",
    "unit_interval",
]


class _Dependent(Constraint):
    """A region that depends on other parameters, so that nothing is checked against it. Called, it gives one with known
    attributes.

    Args:
        is_discrete (bool, optional): whether the region is one of integers. Default: not known.
        event_dim (int, optional): how many of the last dimensions make one event. Default: not known.

    Returns:
        Constraint: the dependent constraint with these attributes.

    Example:
        >>> from lucid.distributions import constraints
        >>> constraints.dependent(is_discrete=True, event_dim=1).event_dim
        1
    """

    def __init__(self, *, is_discrete: Any = NotImplemented, event_dim: Any = NotImplemented) -> None:
        self._is_discrete = is_discrete
        self._event_dim = event_dim

    @property
    def is_discrete(self) -> Any:
        if self._is_discrete is NotImplemented:
            raise NotImplementedError(".is_discrete cannot be determined statically")
        return self._is_discrete

    @property
    def event_dim(self) -> Any:
        if self._event_dim is NotImplemented:
            raise NotImplementedError(".event_dim cannot be determined statically")
        return self._event_dim

    def __call__(self, *, is_discrete: Any = NotImplemented, event_dim: Any = NotImplemented) -> _Dependent:
        """Gives one whose attributes are known: `dependent(is_discrete=True, event_dim=1)`."""
        return _Dependent(
            is_discrete=self._is_discrete if is_discrete is NotImplemented else is_discrete,
            event_dim=self._event_dim if event_dim is NotImplemented else event_dim,
        )

    def check(self, value: Tensor) -> Tensor:
        raise ValueError("Cannot determine validity of dependent constraint")


def is_dependent(constraint: Any) -> bool:
    """Says whether a constraint depends on other parameters.

    Args:
        constraint (Constraint): any constraint.

    Returns:
        bool: True for :data:`dependent` and what :class:`dependent_property` makes.

    Example:
        >>> from lucid.distributions import Uniform, constraints
        >>> constraints.is_dependent(Uniform.support)
        True
    """
    return isinstance(constraint, _Dependent)


class _DependentProperty(property, _Dependent):
    """A property of an instance that gives a constraint; on the class it is a constraint that depends on others.

    Args:
        fn (Callable, optional): the method that gives the constraint.
        is_discrete (bool, optional): the constraint's `is_discrete`, where known.
        event_dim (int, optional): the constraint's `event_dim`, where known.

    Example:
        >>> from lucid.distributions import constraints
        >>> class Box:
        ...     high = 2.0
        ...     @constraints.dependent_property(is_discrete=False, event_dim=0)
        ...     def support(self):
        ...         return constraints.interval(0.0, self.high)
        >>> Box().support
        Interval(lower_bound=0.0, upper_bound=2.0)
    """

    def __init__(
        self,
        fn: Callable[[Any], Any] | None = None,
        *,
        is_discrete: Any = NotImplemented,
        event_dim: Any = NotImplemented,
    ) -> None:
        property.__init__(self, fn)
        self._is_discrete = is_discrete
        self._event_dim = event_dim

    def __call__(self, fn: Callable[[Any], Any]) -> Any:  # type: ignore[override]
        return _DependentProperty(fn, is_discrete=self._is_discrete, event_dim=self._event_dim)


class _Wrapped(Constraint):
    """A constraint made of another one."""

    def __init__(self, base_constraint: Constraint) -> None:
        if not isinstance(base_constraint, Constraint):
            raise AssertionError(f"base_constraint must be a Constraint, got {type(base_constraint).__name__}")
        self.base_constraint = base_constraint

    @property
    def is_discrete(self) -> Any:
        return self.base_constraint.is_discrete

    @property
    def event_dim(self) -> Any:
        return self.base_constraint.event_dim


class _IndependentConstraint(_Wrapped):
    """Takes further dimensions into the event, which is inside where all its elements are.

    Args:
        base_constraint (Constraint): the constraint of each element.
        reinterpreted_batch_ndims (int): how many dimensions more an event has; at least 0.

    Raises:
        AssertionError: `base_constraint` is no constraint, or `reinterpreted_batch_ndims` no int of at least 0.

    Example:
        >>> from lucid.distributions import constraints
        >>> constraints.independent(constraints.positive, 1).check(lucid.tensor([[1.0, 2.0], [1.0, -1.0]]))
        tensor([ True, False])
    """

    def __init__(self, base_constraint: Constraint, reinterpreted_batch_ndims: int) -> None:
        super().__init__(base_constraint)
        if not isinstance(reinterpreted_batch_ndims, int):
            raise AssertionError(
                f"reinterpreted_batch_ndims must be an int, got {type(reinterpreted_batch_ndims).__name__}"
            )
        if reinterpreted_batch_ndims < 0:
            raise AssertionError(f"reinterpreted_batch_ndims must be >= 0, got {reinterpreted_batch_ndims}")
        self.reinterpreted_batch_ndims = reinterpreted_batch_ndims

    @property
    def event_dim(self) -> Any:
        return self.base_constraint.event_dim + self.reinterpreted_batch_ndims

    def check(self, value: Tensor) -> Tensor:
        inside = self.base_constraint.check(value)
        if inside.dim() < self.reinterpreted_batch_ndims:
            raise ValueError(f"Expected value.dim() >= {self.event_dim} but got {value.dim()}")
        return inside.reshape((*inside.shape[: inside.dim() - self.reinterpreted_batch_ndims], -1)).all(-1)

    def __repr__(self) -> str:
        return f"IndependentConstraint({self.base_constraint!r}, {self.reinterpreted_batch_ndims})"


class MixtureSameFamilyConstraint(_Wrapped):
    """The support of a mixture: that of its components, checked with the dimension of components put back.

    Args:
        base_constraint (Constraint): the support of the components.

    Example:
        >>> from lucid.distributions import constraints
        >>> constraints.MixtureSameFamilyConstraint(constraints.positive).check(lucid.tensor([1.0, -1.0]))
        tensor([ True, False])
    """

    def check(self, value: Tensor) -> Tensor:
        inside = self.base_constraint.check(value.unsqueeze(-1 - self.event_dim))
        if value.dim() < self.event_dim:
            raise ValueError(f"Expected value.dim() >= {self.event_dim} but got {value.dim()}")
        return inside.reshape((*inside.shape[: value.dim() - self.event_dim], -1)).all(-1)

    def __repr__(self) -> str:
        return f"{self.__class__.__name__}({self.base_constraint!r})"


# ---- numbers ---------------------------------------------------------------------------------------------------------


class _Boolean(Constraint):
    """The numbers 0 and 1."""

    is_discrete = True

    def check(self, value: Tensor) -> Tensor:
        return (value == 0) | (value == 1)


class _Bounded(Constraint):
    """What is between bounds."""

    def __init__(self, **bounds: Any) -> None:
        self.__dict__.update(bounds)
        self._bounds = tuple(bounds)


class _IntegerInterval(_Bounded):
    """The integers from `lower_bound` to `upper_bound`, both included.

    Args:
        lower_bound (number or Tensor): the least; a tensor broadcasts with the values.
        upper_bound (number or Tensor): the greatest; a tensor broadcasts with the values.

    Example:
        >>> from lucid.distributions import constraints
        >>> constraints.integer_interval(0, 3).check(lucid.tensor([0.0, 1.5, 4.0]))
        tensor([ True, False, False])
    """

    is_discrete = True
    lower_bound: Any
    upper_bound: Any

    def __init__(self, lower_bound: Any, upper_bound: Any) -> None:
        super().__init__(lower_bound=lower_bound, upper_bound=upper_bound)

    def check(self, value: Tensor) -> Tensor:
        return (value % 1 == 0) & (value >= self.lower_bound) & (value <= self.upper_bound)


class _IntegerGreaterThan(_Bounded):
    """The integers from `lower_bound` on."""

    is_discrete = True
    lower_bound: Any

    def __init__(self, lower_bound: Any) -> None:
        super().__init__(lower_bound=lower_bound)

    def check(self, value: Tensor) -> Tensor:
        return (value % 1 == 0) & (value >= self.lower_bound)


class _IntegerLessThan(_Bounded):
    """The integers up to `upper_bound`."""

    is_discrete = True
    upper_bound: Any

    def __init__(self, upper_bound: Any) -> None:
        super().__init__(upper_bound=upper_bound)

    def check(self, value: Tensor) -> Tensor:
        return (value % 1 == 0) & (value <= self.upper_bound)


class _Real(Constraint):
    """All numbers, infinite ones too, but NaN."""

    def check(self, value: Tensor) -> Tensor:
        return value == value


class _GreaterThan(_Bounded):
    """The numbers `x > lower_bound`.

    Args:
        lower_bound (number or Tensor): the bound, which is outside; a tensor broadcasts with the values.

    Example:
        >>> from lucid.distributions import constraints
        >>> constraints.greater_than(0.0).check(lucid.tensor([0.0, 1.0]))
        tensor([False,  True])
    """

    lower_bound: Any

    def __init__(self, lower_bound: Any) -> None:
        super().__init__(lower_bound=lower_bound)

    def check(self, value: Tensor) -> Tensor:
        return value > self.lower_bound


class _GreaterThanEq(_GreaterThan):
    """The numbers `x >= lower_bound`.

    Args:
        lower_bound (number or Tensor): the bound, which is inside; a tensor broadcasts with the values.

    Example:
        >>> from lucid.distributions import constraints
        >>> constraints.greater_than_eq(0.0).check(lucid.tensor([0.0, -1.0]))
        tensor([ True, False])
    """

    def check(self, value: Tensor) -> Tensor:
        return value >= self.lower_bound


class _LessThan(_Bounded):
    """The numbers `x < upper_bound`.

    Args:
        upper_bound (number or Tensor): the bound, which is outside; a tensor broadcasts with the values.

    Example:
        >>> from lucid.distributions import constraints
        >>> constraints.less_than(1.0).check(lucid.tensor([0.0, 1.0]))
        tensor([ True, False])
    """

    upper_bound: Any

    def __init__(self, upper_bound: Any) -> None:
        super().__init__(upper_bound=upper_bound)

    def check(self, value: Tensor) -> Tensor:
        return value < self.upper_bound


class _Interval(_Bounded):
    """The numbers `lower_bound <= x <= upper_bound`.

    Args:
        lower_bound (number or Tensor): the least; a tensor broadcasts with the values.
        upper_bound (number or Tensor): the greatest; a tensor broadcasts with the values.

    Example:
        >>> from lucid.distributions import constraints
        >>> constraints.interval(-1.0, 1.0).check(lucid.tensor([-1.0, 0.0, 2.0]))
        tensor([ True,  True, False])
    """

    lower_bound: Any
    upper_bound: Any

    def __init__(self, lower_bound: Any, upper_bound: Any) -> None:
        super().__init__(lower_bound=lower_bound, upper_bound=upper_bound)

    def check(self, value: Tensor) -> Tensor:
        return (value >= self.lower_bound) & (value <= self.upper_bound)


class _HalfOpenInterval(_Interval):
    """The numbers `lower_bound <= x < upper_bound`.

    Args:
        lower_bound (number or Tensor): the least, which is inside; a tensor broadcasts with the values.
        upper_bound (number or Tensor): the bound above, which is outside; a tensor broadcasts with the values.

    Example:
        >>> from lucid.distributions import constraints
        >>> constraints.half_open_interval(0.0, 1.0).check(lucid.tensor([0.0, 1.0]))
        tensor([ True, False])
    """

    def check(self, value: Tensor) -> Tensor:
        return (value >= self.lower_bound) & (value < self.upper_bound)


# ---- vectors and matrices --------------------------------------------------------------------------------------------


class _OneHot(Constraint):
    """Vectors of zeros and a single one."""

    is_discrete = True
    event_dim = 1

    def check(self, value: Tensor) -> Tensor:
        return boolean.check(value).all(-1) & value.sum(-1).eq(1)


class _Simplex(Constraint):
    """Vectors of numbers that are not negative and sum to 1."""

    event_dim = 1

    def check(self, value: Tensor) -> Tensor:
        return (value >= 0).all(-1) & ((value.sum(-1) - 1).abs() < 1e-6)


class _Multinomial(_Bounded):
    """Vectors of counts: numbers that are not negative and sum to at most `upper_bound`.

    Args:
        upper_bound (int or Tensor): the greatest sum; a tensor broadcasts with the sums.

    Example:
        >>> from lucid.distributions import constraints
        >>> constraints.multinomial(3).check(lucid.tensor([[1.0, 2.0], [2.0, 2.0]]))
        tensor([ True, False])
    """

    is_discrete = True
    event_dim = 1
    upper_bound: Any

    def __init__(self, upper_bound: Any) -> None:
        super().__init__(upper_bound=upper_bound)

    def check(self, value: Tensor) -> Tensor:
        return (value >= 0).all(-1) & (value.sum(-1) <= self.upper_bound)

    def __repr__(self) -> str:
        return "Multinomial()"


class _Several(Constraint):
    def __init__(self, cseq: Sequence[Constraint], dim: int) -> None:
        if not all(isinstance(c, Constraint) for c in cseq):
            raise AssertionError("All elements of cseq must be Constraint instances")
        self.cseq = list(cseq)
        self.dim = dim

    @property
    def is_discrete(self) -> Any:
        return any(c.is_discrete for c in self.cseq)

    @property
    def event_dim(self) -> Any:
        return max(c.event_dim for c in self.cseq)

    def _check_dim(self, value: Tensor) -> None:
        if not -value.dim() <= self.dim < value.dim():
            raise AssertionError(f"dim {self.dim} out of range for value with {value.dim()} dimensions")


class _Cat(_Several):
    """Different constraints for consecutive slices along a dimension.

    Args:
        cseq (sequence of Constraint): one for each slice.
        dim (int, optional): the dimension. Default: 0.
        lengths (sequence of int, optional): the slices' sizes. Default: 1 each.

    Raises:
        AssertionError: there are not as many lengths as constraints.

    Example:
        >>> from lucid.distributions import constraints
        >>> parts = constraints.cat([constraints.positive, constraints.real], lengths=[1, 2])
        >>> parts.check(lucid.tensor([-1.0, 0.0, 1.0]))
        tensor([False,  True,  True])
    """

    def __init__(self, cseq: Sequence[Constraint], dim: int = 0, lengths: Sequence[int] | None = None) -> None:
        super().__init__(cseq, dim)
        self.lengths = [1] * len(self.cseq) if lengths is None else list(lengths)
        if len(self.lengths) != len(self.cseq):
            raise AssertionError(f"lengths ({len(self.lengths)}) must match cseq ({len(self.cseq)})")

    def check(self, value: Tensor) -> Tensor:
        self._check_dim(value)
        starts = [sum(self.lengths[:i]) for i in range(len(self.lengths))]
        each = zip(self.cseq, starts, self.lengths, strict=True)
        return lucid.cat([c.check(value.narrow(self.dim, start, length)) for c, start, length in each], self.dim)


class _Stack(_Several):
    """Constraints of the slices along a dimension.

    Args:
        cseq (sequence of Constraint): one for each slice.
        dim (int): the dimension. Default: 0.

    Example:
        >>> from lucid.distributions import constraints
        >>> constraints.stack([constraints.positive, constraints.real]).check(lucid.tensor([-1.0, -1.0]))
        tensor([False,  True])
    """

    def __init__(self, cseq: Sequence[Constraint], dim: int = 0) -> None:
        super().__init__(cseq, dim)

    @property
    def event_dim(self) -> Any:
        dim = super().event_dim
        # The dimension of slices is part of the event where it is among the event's.
        return dim + 1 if self.dim + dim < 0 else dim

    def check(self, value: Tensor) -> Tensor:
        self._check_dim(value)
        slices = [value.select(self.dim, i) for i in range(value.size(self.dim))]
        return lucid.stack([c.check(v) for v, c in zip(slices, self.cseq, strict=False)], self.dim)


dependent = _Dependent()
dependent_property = _DependentProperty
independent = _IndependentConstraint
boolean = _Boolean()
one_hot = _OneHot()
nonnegative_integer = _IntegerGreaterThan(0)
positive_integer = _IntegerGreaterThan(1)
integer_interval = _IntegerInterval
real = _Real()
real_vector = independent(real, 1)
positive = _GreaterThan(0.0)
nonnegative = _GreaterThanEq(0.0)
greater_than = _GreaterThan
greater_than_eq = _GreaterThanEq
less_than = _LessThan
multinomial = _Multinomial
unit_interval = _Interval(0.0, 1.0)
interval = _Interval
half_open_interval = _HalfOpenInterval
simplex = _Simplex()
lower_triangular = _LowerTriangular()
lower_cholesky = _LowerCholesky()
corr_cholesky = _CorrCholesky()
square = _Square()
symmetric = _Symmetric()
positive_semidefinite = _PositiveSemidefinite()
positive_definite = _PositiveDefinite()
cat = _Cat
stack = _Stack
