"""Exponential families."""

from __future__ import annotations

from typing import Any

import lucid
from lucid import Tensor
from lucid.distributions.distribution import Distribution

__all__ = ["ExponentialFamily"]


class ExponentialFamily(Distribution):
    """A distribution whose density is `h(x) exp(<t(x), θ> - F(θ))`, with natural parameters `θ` and log normaliser `F`.

    Subclasses define `_natural_params`, `_log_normalizer` and `_mean_carrier_measure` (`E[log h(x)]`). From these the
    entropy `F(θ) - <θ, ∇F(θ)> - E[log h(x)]` and KL divergences within a family follow, as Bregman divergences.

    Args:
        batch_shape (Size): shape of the parameters. Default: `()`.
        event_shape (Size): shape of one sample. Default: `()`.
        validate_args (bool, optional): whether to check parameters and values.

    Example:
        >>> isinstance(lucid.distributions.Normal(0.0, 1.0), ExponentialFamily)
        True

    Reference:
        Nielsen and Nock, "Entropies and cross-entropies of exponential families", 2010.
    """

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        raise NotImplementedError

    def _log_normalizer(self, *natural_params: Tensor) -> Tensor:
        raise NotImplementedError

    @property
    def _mean_carrier_measure(self) -> Any:
        raise NotImplementedError

    def _natural_gradient(self) -> tuple[list[Tensor], Tensor, tuple[Tensor, ...]]:
        """The natural parameters, the log normaliser and its gradient, which itself has gradients."""
        params = [p.detach().requires_grad_() for p in self._natural_params]
        with lucid.enable_grad():
            normalizer = self._log_normalizer(*params)
            grads = lucid.autograd.grad(normalizer.sum(), params, create_graph=True)
        return params, normalizer, tuple(grads)

    def entropy(self) -> Tensor:
        """Gives the entropy, by the gradient of the log normaliser.

        Returns:
            Tensor: of shape `batch_shape`.

        Example:
            >>> lucid.distributions.Exponential(1.0).entropy()
            tensor(1.)
        """
        params, normalizer, grads = self._natural_gradient()
        result = normalizer - self._mean_carrier_measure
        for p, g in zip(params, grads, strict=True):
            result = result - (p * g).reshape((*self._batch_shape, -1)).sum(-1)
        return result
