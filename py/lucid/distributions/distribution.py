"""The base class of distributions."""

from __future__ import annotations

import warnings
from typing import Any, ClassVar, Self

import lucid
from lucid import Size, Tensor
from lucid.distributions import constraints
from lucid.distributions.constraints import Constraint
from lucid.distributions.utils import lazy_property

__all__ = ["Distribution"]


class Distribution:
    """A probability distribution; the base class of all.

    Parameters broadcast to `batch_shape`; one sample has `event_shape`. What `sample` gives has the shape
    `sample_shape + batch_shape + event_shape`.

    Args:
        batch_shape (Size): shape of the parameters. Default: `()`.
        event_shape (Size): shape of one sample. Default: `()`.
        validate_args (bool, optional): whether to check parameters and values. Default: as
            :meth:`set_default_validate_args` says; True at first, except under `python -O`.

    Raises:
        ValueError: if a parameter violates its constraint.

    Example:
        >>> lucid.distributions.Normal(lucid.zeros(3), 1.0).batch_shape
        lucid.Size([3])
    """

    has_rsample: bool = False
    has_enumerate_support: bool = False
    _validate_args = __debug__
    #: Names of the parameters that `expand` expands, and how many dimensions of their own each has.
    _expandable: ClassVar[dict[str, int]]

    @staticmethod
    def set_default_validate_args(value: bool) -> None:
        """Sets whether distributions made from now on check their arguments.

        Args:
            value (bool): whether to check.

        Raises:
            ValueError: if it is not a bool.

        Example:
            >>> lucid.distributions.Distribution.set_default_validate_args(True)
        """
        if value not in (True, False):
            raise ValueError
        Distribution._validate_args = value

    def __init__(self, batch_shape: Any = (), event_shape: Any = (), validate_args: bool | None = None) -> None:
        self._batch_shape = Size(batch_shape)
        self._event_shape = Size(event_shape)
        if validate_args is not None:
            self._validate_args = validate_args
        if self._validate_args:
            self._validate_parameters()

    def _validate_parameters(self) -> None:
        try:
            arg_constraints = self.arg_constraints
        except NotImplementedError:
            arg_constraints = {}
            warnings.warn(
                f"{self.__class__} does not define `arg_constraints`. Please set `arg_constraints = {{}}` or "
                "initialize the distribution with `validate_args=False` to turn off validation.",
                stacklevel=4,
            )
        for name, constraint in arg_constraints.items():
            if constraints.is_dependent(constraint):
                continue
            # What is computed from another parameter is not computed for a check.
            if name not in self.__dict__ and isinstance(getattr(type(self), name), lazy_property):
                continue
            value = getattr(self, name)
            if not bool(constraint.check(value).all()):
                raise ValueError(
                    f"Expected parameter {name} ({type(value).__name__} of shape {tuple(value.shape)}) "
                    f"of distribution {self!r} to satisfy the constraint {constraint!r}, "
                    f"but found invalid values:\n{value}"
                )

    def expand(self, batch_shape: Any, _instance: Any = None) -> Self:
        """Gives the distribution with its parameters expanded to another batch shape, without copies or new checks.

        Args:
            batch_shape (Size): the shape to expand to.

        Returns:
            Distribution: of the same class.

        Raises:
            NotImplementedError: if a subclass has an `__init__` of its own and no `expand`.

        Example:
            >>> lucid.distributions.Normal(0.0, 1.0).expand((2,)).mean
            tensor([0., 0.])
        """
        owner: Any = next((c for c in type(self).__mro__ if "_expandable" in c.__dict__), None)
        if owner is None:
            raise NotImplementedError
        new = self._get_checked_instance(owner, _instance)
        shape = Size(batch_shape)
        for name, dims in owner._expandable.items():
            if name in self.__dict__:
                value = self.__dict__[name]
                new.__dict__[name] = value.expand(shape + value.shape[value.dim() - dims :])
        self._expand_into(new, shape)
        Distribution.__init__(new, shape, self._event_shape, validate_args=False)
        new._validate_args = self._validate_args
        return new

    def _expand_into(self, new: Any, batch_shape: Size) -> None:
        """Sets what an expanded instance needs beside its parameters."""

    @property
    def batch_shape(self) -> Size:
        """The shape over which parameters are batched."""
        return self._batch_shape

    @property
    def event_shape(self) -> Size:
        """The shape of one sample, without batching."""
        return self._event_shape

    @property
    def arg_constraints(self) -> dict[str, Constraint]:
        """The constraint of each parameter, by name."""
        raise NotImplementedError

    @property
    def support(self) -> Any:
        """The constraint that samples satisfy."""
        raise NotImplementedError

    @property
    def mean(self) -> Tensor:
        """The mean, of shape `batch_shape + event_shape`."""
        raise NotImplementedError

    @property
    def mode(self) -> Tensor:
        """The mode, of shape `batch_shape + event_shape`."""
        raise NotImplementedError(f"{self.__class__} does not implement mode")

    @property
    def variance(self) -> Tensor:
        """The variance, of shape `batch_shape + event_shape`."""
        raise NotImplementedError

    @property
    def stddev(self) -> Tensor:
        """The standard deviation, `√variance`."""
        return self.variance.sqrt()

    def sample(self, sample_shape: Any = ()) -> Tensor:
        """Draws samples, without gradients.

        Args:
            sample_shape (Size): how many, in which shape. Default: `()`, one.

        Returns:
            Tensor: of shape `sample_shape + batch_shape + event_shape`.

        Example:
            >>> lucid.distributions.Normal(0.0, 1.0).sample((2, 3)).shape
            lucid.Size([2, 3])
        """
        with lucid.no_grad():
            return self.rsample(sample_shape)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        """Draws reparameterised samples, which have gradients in the parameters.

        Args:
            sample_shape (Size): how many, in which shape. Default: `()`, one.

        Returns:
            Tensor: of shape `sample_shape + batch_shape + event_shape`.

        Raises:
            NotImplementedError: where `has_rsample` is False.

        Example:
            >>> loc = lucid.zeros(3, requires_grad=True)
            >>> lucid.distributions.Normal(loc, 1.0).rsample().sum().backward()
            >>> loc.grad
            tensor([1., 1., 1.])
        """
        raise NotImplementedError

    def sample_n(self, n: int) -> Tensor:
        """Draws `n` samples. Deprecated: use `sample((n,))`.

        Args:
            n (int): how many.

        Returns:
            Tensor: of shape `(n,) + batch_shape + event_shape`.
        """
        warnings.warn(
            "`sample_n(n)` will be deprecated. Use `sample((n,))` instead.", category=FutureWarning, stacklevel=2
        )
        return self.sample(Size((n,)))

    def log_prob(self, value: Tensor) -> Tensor:
        """Gives the logarithm of the probability density, or mass, at a value.

        Args:
            value (Tensor): of a shape that broadcasts with `batch_shape + event_shape`.

        Returns:
            Tensor: of the broadcast shape without `event_shape`.

        Raises:
            ValueError: if arguments are checked and the value has another shape or is not in the support.

        Example:
            >>> lucid.distributions.Uniform(0.0, 2.0).log_prob(lucid.tensor(1.0)).exp()
            tensor(0.5000)
        """
        raise NotImplementedError

    def cdf(self, value: Tensor) -> Tensor:
        """Gives the cumulative distribution function `P(X <= value)`.

        Args:
            value (Tensor): of a shape that broadcasts with `batch_shape + event_shape`.

        Returns:
            Tensor: of the broadcast shape.

        Example:
            >>> lucid.distributions.Uniform(0.0, 2.0).cdf(lucid.tensor(0.5))
            tensor(0.2500)
        """
        raise NotImplementedError

    def icdf(self, value: Tensor) -> Tensor:
        """Gives the quantiles: the inverse of the cumulative distribution function.

        Args:
            value (Tensor): probabilities, of a shape that broadcasts with `batch_shape + event_shape`.

        Returns:
            Tensor: of the broadcast shape.

        Example:
            >>> lucid.distributions.Uniform(0.0, 2.0).icdf(lucid.tensor(0.25))
            tensor(0.5000)
        """
        raise NotImplementedError

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """Lists the values of a discrete distribution, along a new first dimension.

        Args:
            expand (bool): whether to expand over the batch. Default: True.

        Returns:
            Tensor: of shape `(cardinality,) + batch_shape + event_shape`; without `expand` the batch has ones.

        Example:
            >>> lucid.distributions.Bernoulli(0.3).enumerate_support()
            tensor([0., 1.])
        """
        raise NotImplementedError

    def entropy(self) -> Tensor:
        """Gives the entropy `-E[log p]`, in nats.

        Returns:
            Tensor: of shape `batch_shape`.

        Example:
            >>> lucid.distributions.Bernoulli(0.5).entropy()
            tensor(0.6931)
        """
        raise NotImplementedError

    def perplexity(self) -> Tensor:
        """Gives the exponential of the entropy.

        Returns:
            Tensor: of shape `batch_shape`.

        Example:
            >>> lucid.distributions.Bernoulli(0.5).perplexity()
            tensor(2.)
        """
        return lucid.exp(self.entropy())

    def _extended_shape(self, sample_shape: Any = ()) -> Size:
        return Size(sample_shape) + self._batch_shape + self._event_shape

    def _validate_sample(self, value: Tensor) -> None:
        """Checks that a value has the distribution's shape and is in its support."""
        if not isinstance(value, Tensor):
            raise ValueError("The value argument to log_prob must be a Tensor")
        shape = value.shape
        if shape[len(shape) - len(self._event_shape) :] != self._event_shape:
            raise ValueError(f"The right-most size of value must match event_shape: {shape} vs {self._event_shape}.")
        expected = self._batch_shape + self._event_shape
        for i, j in zip(reversed(shape), reversed(expected), strict=False):
            if i != 1 and j != 1 and i != j:
                raise ValueError(f"Value is not broadcastable with batch_shape+event_shape: {shape} vs {expected}.")
        try:
            support = self.support
        except NotImplementedError:
            warnings.warn(
                f"{self.__class__} does not define `support` to enable sample validation. Please initialize the "
                "distribution with `validate_args=False` to turn off validation.",
                stacklevel=3,
            )
            return
        if not bool(support.check(value).all()):
            raise ValueError(
                f"Expected value argument ({type(value).__name__} of shape {tuple(shape)}) to be within the support "
                f"({support!r}) of the distribution {self!r}, but found invalid values:\n{value}"
            )

    def _get_checked_instance(self, cls: type, _instance: Any = None) -> Any:
        if _instance is None and type(self).__init__ != cls.__init__:  # type: ignore[misc]
            raise NotImplementedError(
                f"Subclass {self.__class__.__name__} of {cls.__name__} that defines a custom __init__ method "
                "must also define a custom .expand() method."
            )
        return self.__new__(type(self)) if _instance is None else _instance

    def __repr__(self) -> str:
        given = [(name, self.__dict__[name]) for name in self.arg_constraints if name in self.__dict__]
        shown = [f"{name}: {value if value.numel() == 1 else value.size()}" for name, value in given]
        return f"{self.__class__.__name__}({', '.join(shown)})"
