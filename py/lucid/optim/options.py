"""The options of optimizers: which values make sense, stated once by name, and how constructors refuse the others.

A constructor hands all its arguments to `checked`, which gives the defaults of the groups. An option whose rule or
message differs in one optimizer is named there, with a rule of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lucid import Tensor, errors
from lucid._warnings import warn_without_effect

__all__ = ["at_least", "check", "checked", "rate"]

# Raises where a value makes no sense.
Rule = Callable[[Any], None]


def check(holds: bool, message: str) -> None:
    """A ValueError with the message where an argument is out of its range.

    Args:
        holds (bool): whether the argument is right.
        message (str): the message of the error.

    Raises:
        ValueError: it is not.

    Example:
        >>> lucid.optim.options.check(True, "lr must be positive")
    """
    if not holds:
        raise errors.ValueError(message)


def at_least(least: float, message: str) -> Rule:
    """Refuses NaN and what is smaller, with the message and the value.

    Args:
        least (float): the smallest number that is taken.
        message (str): the message of the error.

    Returns:
        callable: takes a value, and raises a ValueError where it is smaller.

    Example:
        >>> lucid.optim.options.at_least(0.0, "negative: ")(1.0)
    """
    return lambda value: check(bool(value >= least), f"{message}{value}")


def rate(message: str = "Invalid learning rate: ", accepts: Callable[[Any], Any] = lambda lr: lr >= 0.0) -> Rule:
    """The rule of a learning rate: one number, from 0 on unless `accepts` says otherwise.

    Args:
        message (str, default: "Invalid learning rate: "): the message of the error.
        accepts (Callable[[Any], Any], optional): takes a rate, and returns whether it is right.

    Returns:
        callable: takes a value, and raises a ValueError where it is none.

    Example:
        >>> lucid.optim.options.rate()(0.1)
    """

    def run(lr: Any) -> None:
        check(not isinstance(lr, Tensor) or lr.numel() == 1, "Tensor lr must be 1-element")
        check(bool(accepts(lr)), f"{message}{lr}")

    return run


def _betas(betas: Any) -> None:
    for i in range(2):
        check(not isinstance(betas[i], Tensor) or betas[i].numel() == 1, f"Tensor betas[{i}] must be 1-element")
        check(bool(0.0 <= betas[i] < 1.0), f"Invalid beta parameter at index {i}: {betas[i]}")


def _etas(etas: Any) -> None:
    check(0.0 < etas[0] < 1.0 < etas[1], f"Invalid eta values: {etas[0]}, {etas[1]}")


_FROM_ZERO = ("weight_decay", "momentum", "alpha", "lambd", "lr_decay", "momentum_decay", "initial_accumulator_value")

RULES: dict[str, Rule] = {
    "lr": rate(),
    "eps": at_least(0.0, "Invalid epsilon value: "),
    "betas": _betas,
    "etas": _etas,
    "rho": lambda rho: check(0.0 <= rho <= 1.0, f"Invalid rho value: {rho}"),
    **{name: at_least(0.0, f"Invalid {name} value: ") for name in _FROM_ZERO},
}


def checked(arguments: dict[str, Any], **own: Rule) -> dict[str, Any]:
    """The options among a constructor's arguments (its `locals()`), by the rules of their names or by `own` ones.

    Args:
        arguments (dict[str, Any]): the constructor's `locals()`.
        **own (callable): rules by the names of options, in the place of the usual ones.

    Returns:
        dict: the options by name.

    Raises:
        ValueError: for a value that makes no sense.
        RuntimeError: for variants of a step that PyTorch cannot combine. Here a step is one engine call in any case.

    Example:
        >>> lucid.optim.options.checked({"params": [], "lr": 0.1})["lr"]
        0.1
    """
    options = {name: value for name, value in arguments.items() if name not in ("self", "params", "__class__")}
    for name, value in options.items():
        rule = own.get(name) or RULES.get(name)
        if rule is not None:
            rule(value)
    why = "there are no CUDA graphs to capture the step in"
    warn_without_effect("Optimizer", why, capturable=bool(options.get("capturable")))
    if options.get("fused") and options.get("differentiable"):
        raise errors.RuntimeError("`fused` does not support `differentiable`")
    if options.get("fused") and options.get("foreach"):
        raise errors.RuntimeError("`fused` and `foreach` cannot be `True` together.")
    return options
