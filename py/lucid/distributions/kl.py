"""Kullback-Leibler divergences: the registry of closed forms, and an estimate where there is none."""

from __future__ import annotations

import copy
import functools
import warnings
from collections.abc import Callable
from typing import Any

import lucid
from lucid import Tensor
from lucid.distributions.distribution import Distribution
from lucid.distributions.independent import Independent

__all__ = ["kl_divergence", "register_kl"]

_Function = Callable[[Any, Any], Tensor]
_KL_REGISTRY: dict[tuple[type, type], _Function] = {}


def register_kl(type_p: type, type_q: type) -> Callable[[_Function], _Function]:
    """Registers a function as the divergence of a pair of classes; a decorator.

    Of several that fit a pair, that of the most derived classes is taken.

    Args:
        type_p (type): a subclass of `Distribution`.
        type_q (type): a subclass of `Distribution`.

    Returns:
        Callable: the decorator.

    Raises:
        TypeError: if it is no class.

    Example:
        >>> from lucid.distributions import Normal
        >>> class Mine(Normal):
        ...     pass
        >>> @register_kl(Mine, Normal)
        ... def kl_mine_normal(p, q):
        ...     return lucid.tensor(7.0)
        >>> kl_divergence(Mine(0.0, 1.0), Normal(0.0, 1.0))
        tensor(7.)
    """
    for name, kind in (("type_p", type_p), ("type_q", type_q)):
        # Any class, as in PyTorch: packages have distributions with a base of their own.
        if not isinstance(kind, type):
            raise TypeError(f"Expected {name} to be a Distribution subclass but got {kind}")

    def decorate(function: _Function) -> _Function:
        _KL_REGISTRY[type_p, type_q] = function
        _lookup.cache_clear()
        return function

    return decorate


def _most_derived(pairs: list[tuple[type, type]], side: int) -> tuple[type, type]:
    """The pair whose class on one side is derived from those of all others; of equal ones by the other side."""
    best = pairs[0]
    for pair in pairs[1:]:
        order = (side, 1 - side)
        mine, theirs = [pair[i] for i in order], [best[i] for i in order]
        better = issubclass(mine[1], theirs[1]) if mine[0] is theirs[0] else issubclass(mine[0], theirs[0])
        best = pair if better else best
    return best


@functools.cache
def _lookup(type_p: type, type_q: type) -> _Function | None:
    pairs = [(p, q) for p, q in _KL_REGISTRY if issubclass(type_p, p) and issubclass(type_q, q)]
    if not pairs:
        return None
    left, right = _most_derived(pairs, 0), _most_derived(pairs, 1)
    if _KL_REGISTRY[left] is not _KL_REGISTRY[right]:
        warnings.warn(
            f"Ambiguous kl_divergence({type_p.__name__}, {type_q.__name__}). "
            f"Please register_kl({left[0].__name__}, {right[1].__name__})",
            RuntimeWarning,
            stacklevel=3,
        )
    return _KL_REGISTRY[left]


def kl_divergence(p: Distribution, q: Distribution, *, num_samples: int = 1000) -> Tensor:
    """Gives the Kullback-Leibler divergence `KL(p ‖ q) = ∫ p(x) log (p(x) / q(x)) dx`.

    Where no closed form is registered for the pair, the expectation is taken over all values of `p`, if it is discrete
    and can list them; else it is estimated from samples of `p`, with a warning. The estimate has gradients through the
    samples where `p` has `rsample`. PyTorch raises an error instead.

    Args:
        p (Distribution): the distribution of `x`.
        q (Distribution): what it is compared with.
        num_samples (int): how many samples an estimate takes. Default: 1000.

    Returns:
        Tensor: of shape `batch_shape`.

    Raises:
        TypeError: if an argument is no distribution.
        ValueError: if the distributions have different event shapes.
        NotImplementedError: if one is discrete and the other is not, or an estimate needs a density that is not there.

    Example:
        >>> from lucid.distributions import Normal
        >>> kl_divergence(Normal(0.0, 1.0), Normal(1.0, 1.0))
        tensor(0.5000)
    """
    for name, given in (("p", p), ("q", q)):
        if not isinstance(given, Distribution):
            raise TypeError(f"kl_divergence: expected {name} to be a Distribution, but got {type(given).__name__}")
    function = _lookup(type(p), type(q))  # type: ignore[arg-type]
    if function is not None:
        try:
            return function(p, q)
        except NotImplementedError:
            # A closed form of some members of a class only.
            pass
    return _expectation(p, q, num_samples)


def _unchecked(distribution: Any) -> Any:
    """The same distribution, whose densities take any value."""
    plain = copy.copy(distribution)
    plain._validate_args = False
    for name in ("base_dist", "_component_distribution", "_dirichlet", "_categorical"):
        if name in plain.__dict__:
            plain.__dict__[name] = _unchecked(plain.__dict__[name])
    return plain


def _expectation(p: Distribution, q: Distribution, num_samples: int) -> Tensor:
    """`E_p[log p(x) - log q(x)]`, over all values or over samples."""
    if p.support.is_discrete != q.support.is_discrete:
        raise NotImplementedError(
            f"No KL(p || q) is implemented for p type {type(p).__name__} and q type {type(q).__name__}: "
            "one is discrete, the other is not"
        )
    if p.event_shape != q.event_shape:
        raise ValueError(f"KL divergence of distributions with event shapes {p.event_shape} and {q.event_shape}")
    exact = p.has_enumerate_support and not isinstance(p, Independent)
    if exact:
        try:
            x = p.enumerate_support()
        except NotImplementedError:
            exact = False
    if not exact:
        warnings.warn(
            f"kl_divergence({type(p).__name__}, {type(q).__name__}) has no closed form and is estimated from "
            f"{num_samples} samples",
            UserWarning,
            stacklevel=3,
        )
        x = p.rsample((num_samples,)) if p.has_rsample else p.sample((num_samples,))
    # Samples that q cannot give make the divergence infinite.
    event = tuple(range(-len(q.event_shape), 0))
    outside = ~q.support.check(x)
    shape = outside.shape + (1,) * len(event)
    try:
        inside = q.sample()
    except NotImplementedError:
        inside = x
    log_q = _unchecked(q).log_prob(lucid.where(outside.reshape(shape), inside.to(x), x))
    log_p = _unchecked(p).log_prob(x)
    ratio = lucid.where(outside, lucid.inf, log_p - log_q)
    if exact:
        return lucid.where(log_p > -lucid.inf, log_p.exp() * ratio, 0.0).sum(0)
    return ratio.mean(0)


# The closed forms register themselves.
from lucid.distributions import _kl_pairs as _kl_pairs  # noqa: E402
