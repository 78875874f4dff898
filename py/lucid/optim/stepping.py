"""Optimizers whose step is one of the engine's: what they share.

A subclass names the engine's step, its state tensors and its numbers; `step` brings all parameters of all groups to the
engine in one call. Of a sparse gradient the rows alone step, where the optimizer takes one. Counts (`step` and others)
are 0-d float32 tensors on the CPU whatever the parameter's device, and are replaced, not written, at each step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import lucid
from lucid import _C, Tensor, errors
from lucid.optim.optimizer import Optimizer

__all__ = ["Batch", "Stepping", "as_real", "refuse"]

# The kind of step, its options, and lists of parameters, gradients and state.
Batch = tuple[str, dict[str, float], list[list[Tensor]]]
Counts = dict[str, float]


def as_real(tensor: Tensor) -> Tensor:
    """A complex tensor as pairs of numbers, in the same storage; others as they are.

    Args:
        tensor (Tensor): any shape, complex or real.

    Returns:
        Tensor: (…, 2) for a complex tensor, else the tensor itself.

    Example:
        >>> lucid.optim.stepping.as_real(lucid.ones(1, dtype=lucid.complex64)).shape
        lucid.Size([1, 2])
    """
    return _C.view_as_real(tensor) if tensor.is_complex() else tensor


def check_variants(group: dict[str, Any], param: Tensor) -> None:
    """Refuses, at a step, what PyTorch's variants of it cannot do. Here a step is one engine call in any case."""
    if group.get("capturable") and not group.get("fused") and param.is_cpu:
        raise AssertionError("If capturable=True, params and state_steps must be on the GPU device.")
    if group.get("foreach") and group.get("differentiable"):
        raise AssertionError("_foreach ops don't support autograd")
    if group.get("fused") and not param.is_floating_point():
        raise errors.RuntimeError("`fused=True` requires all the params to be floating point Tensors")


def refuse(optimizer: Optimizer, grad: Tensor, instead: str = "", complex: bool = False) -> None:
    """Refuses a sparse gradient, and with `complex` a complex one.

    Args:
        optimizer (Optimizer): the optimizer, which the message names.
        grad (Tensor): the gradient, of any shape.
        instead (str, default: ""): what the message advises.
        complex (bool, default: False): refuses complex gradients, too.

    Raises:
        RuntimeError: the gradient is refused.

    Example:
        >>> optimizer = lucid.optim.SGD([lucid.zeros(1)], lr=0.1)
        >>> lucid.optim.stepping.refuse(optimizer, lucid.ones(1))
    """
    if grad.is_sparse:
        raise errors.RuntimeError(f"{type(optimizer).__name__} does not support sparse gradients{instead}")
    if complex and grad.is_complex():
        raise errors.RuntimeError(f"{type(optimizer).__name__} does not support complex parameters")


class Stepping(Optimizer):
    """Base of optimizers that step in one engine call.

    Args:
        params (ParamsT): the parameters to optimize, pairs of a name and a parameter, or dicts of groups with
            options of their own.
        defaults (dict[str, Any]): the options, for groups that do not have them.

    Example:
        >>> isinstance(lucid.optim.SGD([lucid.zeros(1)], lr=0.1), lucid.optim.stepping.Stepping)
        False
    """

    _kind: ClassVar[str]
    _counts: ClassVar[tuple[str, ...]] = ("step",)
    # State tensors in the order of the engine's step, and the options that it takes.
    _state: ClassVar[tuple[str, ...]] = ()
    _numbers: ClassVar[tuple[str, ...]] = ()
    _takes_sparse: ClassVar[bool] = False
    # What to do instead, in the error for a sparse gradient.
    _instead: ClassVar[str] = ""

    def _arrays(self, group: dict[str, Any]) -> tuple[str, ...]:
        """Names of a parameter's state tensors, in the order of the engine's step."""
        return self._state

    def _options(self, group: dict[str, Any]) -> dict[str, float]:
        """The step's options that only depend on the group."""
        options = {name: float(group[name]) for name in self._numbers if name != "betas"}
        if "betas" in self._numbers:
            beta1, beta2 = group["betas"]
            options |= {"beta1": float(beta1), "beta2": float(beta2)}
        return options

    def _advance(self, group: dict[str, Any], counts: Counts) -> tuple[dict[str, float], Counts]:
        """The options that depend on counts, and the counts after this step."""
        number = counts["step"] + 1.0
        return {"t": number}, {"step": number}

    def _first_counts(self, group: dict[str, Any]) -> Counts:
        return dict.fromkeys(self._counts, 0.0)

    def _first_value(self, group: dict[str, Any], name: str) -> float:
        """What every number of a state tensor begins with."""
        return 0.0

    def _first_array(self, group: dict[str, Any], name: str, param: Tensor) -> Tensor:
        value = self._first_value(group, name)
        if value == 0.0:
            return lucid.zeros_like(param.detach())
        return lucid.full_like(param.detach(), complex(value, value) if param.is_complex() else value)

    def _count(self, value: float) -> Any:
        """A count as the state keeps it."""
        return lucid.tensor(value, dtype=lucid.float32)

    def _check_grad(self, group: dict[str, Any], grad: Tensor) -> None:
        if not self._takes_sparse:
            refuse(self, grad, self._instead)

    def _begin(self, group: dict[str, Any], param: Tensor, state: dict[str, Any]) -> None:
        for name, value in self._first_counts(group).items():
            state[name] = self._count(value)
        for name in self._state_order(group):
            state[name] = self._first_array(group, name, param)

    def _state_order(self, group: dict[str, Any]) -> tuple[str, ...]:
        """The state tensors' order in the state dict."""
        return self._arrays(group)

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        # State from before counts were tensors.
        for own in self.state.values():
            for name in self._counts:
                if name in own and not isinstance(own[name], Tensor):
                    own[name] = self._count(float(own[name]))

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Updates every parameter that has a gradient, in one engine call; asynchronous on the GPU device."""
        loss = self._evaluate(closure)
        batches: list[Batch] = []
        after: list[tuple[Counts, list[dict[str, Any]]]] = []
        for group in self.param_groups:
            self._collect(group, batches, after)
        if batches:
            _C._optimizer_step(batches, bool(self.defaults.get("differentiable", False)))
        for counts, states in after:
            # Parameters that step together share their counts, so that each is read once at the next step.
            for name, value in counts.items():
                count = self._count(value)
                for state in states:
                    state[name] = count
        return loss

    def _collect(
        self, group: dict[str, Any], batches: list[Batch], after: list[tuple[Counts, list[dict[str, Any]]]]
    ) -> None:
        arrays = self._arrays(group)
        variants = group.get("capturable") or group.get("fused") or group.get("foreach")
        known: dict[tuple[int, ...], tuple[float, ...]] = {}
        together: dict[tuple[float, ...], tuple[list[list[Tensor]], list[dict[str, Any]]]] = {}
        for param in group["params"]:
            grad = param.grad
            if grad is None:
                continue
            self._check_grad(group, grad)
            if variants:
                check_variants(group, param)
            state = self.state[param]
            if not state:
                self._begin(group, param, state)
            held = [state[name] for name in self._counts]
            ids = tuple(map(id, held))
            key = known.get(ids)
            if key is None:
                key = known[ids] = tuple(float(count) for count in held)
            entry = together.get(key)
            if entry is None:
                entry = together[key] = ([[] for _ in range(2 + len(arrays))], [])
            lists, states = entry
            lists[0].append(param)
            lists[1].append(grad)
            for into, name in zip(lists[2:], arrays, strict=True):
                into.append(state[name])
            states.append(state)
            if param.is_complex():
                for tensors in lists:
                    tensors[-1] = as_real(tensors[-1])
        if not together:
            return
        options = self._options(group)
        for key, (lists, states) in together.items():
            own, counts = self._advance(group, dict(zip(self._counts, key, strict=True)))
            batches.append((self._kind, {**options, **own}, lists))
            after.append((counts, states))
