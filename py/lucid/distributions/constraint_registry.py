"""Registries that give a transform from unconstrained numbers to a constraint's region.

`biject_to(constraint)` is a bijection, with `log_abs_det_jacobian`, as Hamiltonian Monte Carlo needs it.
`transform_to(constraint)` need not be one; it acts on coordinates where it can, which suits optimizers such as Adam.
They differ for the simplex, where `transform_to` gives a softmax, and for matrices.
"""

from __future__ import annotations

from collections.abc import Callable
from numbers import Number
from typing import Any

from lucid.distributions import constraints, transforms
from lucid.distributions.constraints import Constraint
from lucid.distributions.transforms import Transform

__all__ = ["ConstraintRegistry", "biject_to", "transform_to"]

_Factory = Callable[[Any], Transform]


class ConstraintRegistry:
    """Links kinds of constraints to transforms into their regions.

    Example:
        >>> from lucid.distributions import constraints, transform_to
        >>> transform_to(constraints.unit_interval)
        SigmoidTransform()
    """

    def __init__(self) -> None:
        self._registry: dict[type, _Factory] = {}

    def register(self, constraint: Any, factory: _Factory | None = None) -> Any:
        """Registers what makes the transform of a kind of constraint; without `factory` a decorator.

        Args:
            constraint (type or Constraint): a subclass of `Constraint`, or an instance of it.
            factory (Callable, optional): from a constraint to a `Transform`.

        Returns:
            Callable: the factory, or the decorator.

        Raises:
            TypeError: if `constraint` is neither a constraint nor a class of them.

        Example:
            >>> from lucid.distributions import constraints, transforms
            >>> registry = ConstraintRegistry()
            >>> @registry.register(constraints.positive)
            ... def softplus(constraint):
            ...     return transforms.SoftplusTransform()
            >>> registry(constraints.positive)
            SoftplusTransform()
        """
        if factory is None:
            return lambda factory: self.register(constraint, factory)
        kind = type(constraint) if isinstance(constraint, Constraint) else constraint
        if not isinstance(kind, type) or not issubclass(kind, Constraint):
            raise TypeError(f"Expected constraint to be either a Constraint subclass or instance, but got {constraint}")
        self._registry[kind] = factory
        return factory

    def __call__(self, constraint: Constraint) -> Transform:
        """Gives the transform into a constraint's region.

        Args:
            constraint (Constraint): the region, such as `constraints.positive`.

        Returns:
            Transform: from unconstrained numbers into the region.

        Raises:
            NotImplementedError: none is registered for the constraint's kind.
        """
        factory = self._registry.get(type(constraint))
        if factory is None:
            raise NotImplementedError(f"Cannot transform {type(constraint).__name__} constraints")
        return factory(constraint)


biject_to = ConstraintRegistry()
transform_to = ConstraintRegistry()


def _both(*kinds: Any) -> Callable[[_Factory], _Factory]:
    """Registers for kinds of constraints in both registries."""

    def decorate(factory: _Factory) -> _Factory:
        for kind in kinds:
            biject_to.register(kind, factory)
            transform_to.register(kind, factory)
        return factory

    return decorate


_both(constraints.real)(lambda constraint: transforms.identity_transform)
_both(constraints.corr_cholesky)(lambda constraint: transforms.CorrCholeskyTransform())
biject_to.register(constraints.simplex, lambda constraint: transforms.StickBreakingTransform())
transform_to.register(constraints.simplex, lambda constraint: transforms.SoftmaxTransform())
transform_to.register(constraints.lower_cholesky, lambda constraint: transforms.LowerCholeskyTransform())
for _kind in (constraints.positive_definite, constraints.positive_semidefinite):
    transform_to.register(_kind, lambda constraint: transforms.PositiveDefiniteTransform())


@_both(constraints.greater_than, constraints.greater_than_eq)
def _to_half_line(constraint: Any) -> Transform:
    shift = transforms.AffineTransform(constraint.lower_bound, 1)
    return transforms.ComposeTransform([transforms.ExpTransform(), shift])


@_both(constraints.less_than)
def _to_half_line_below(constraint: Any) -> Transform:
    mirror = transforms.AffineTransform(constraint.upper_bound, -1)
    return transforms.ComposeTransform([transforms.ExpTransform(), mirror])


@_both(constraints.interval, constraints.half_open_interval)
def _to_interval(constraint: Any) -> Transform:
    low, high = constraint.lower_bound, constraint.upper_bound
    if isinstance(low, Number) and isinstance(high, Number) and low == 0 and high == 1:  # type: ignore[comparison-overlap]
        return transforms.SigmoidTransform()
    return transforms.ComposeTransform([transforms.SigmoidTransform(), transforms.AffineTransform(low, high - low)])


def _structured(registry: ConstraintRegistry) -> None:
    """Registers what is made of the registry's own transforms of parts."""

    def independent(constraint: Any) -> Transform:
        base = registry(constraint.base_constraint)
        return transforms.IndependentTransform(base, constraint.reinterpreted_batch_ndims)

    def cat(constraint: Any) -> Transform:
        return transforms.CatTransform([registry(c) for c in constraint.cseq], constraint.dim, constraint.lengths)

    def stack(constraint: Any) -> Transform:
        return transforms.StackTransform([registry(c) for c in constraint.cseq], constraint.dim)

    for kind, factory in ((constraints.independent, independent), (constraints.cat, cat), (constraints.stack, stack)):
        registry.register(kind, factory)


_structured(biject_to)
_structured(transform_to)
