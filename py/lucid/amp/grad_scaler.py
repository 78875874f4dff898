"""`GradScaler`: losses scaled up so that float16 gradients do not vanish, and steps left out where they overflowed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from enum import Enum
from typing import Any

import lucid
from lucid import _C, Tensor, errors
from lucid.optim import Optimizer

__all__ = ["GradScaler", "OptState"]


class OptState(Enum):
    """How far an optimizer is between two updates of the scale."""

    READY = 0
    UNSCALED = 1
    STEPPED = 2


def _fresh() -> dict[str, Any]:
    return {"stage": OptState.READY, "found_inf": []}


class GradScaler:
    """Scales losses, unscales gradients, and leaves out steps that overflowed (Micikevicius et al., 2018).

    The scale shrinks by `backoff_factor` where a step was left out, and grows by `growth_factor` after
    `growth_interval` steps without. `scaler.scale(loss).backward()`, `scaler.step(optimizer)`, `scaler.update()`.

    All gradients are looked at in one engine call; `step` waits for its answer, once.

    Args:
        device (str, default: "gpu"): the type of the device.
        init_scale (float, default: 65536.0): the scale at first.
        growth_factor (float, default: 2.0): what the scale grows by, above 1.
        backoff_factor (float, default: 0.5): what the scale shrinks by, below 1.
        growth_interval (int, default: 2000): the number of steps without overflow after which it grows.
        enabled (bool, default: True): scales; else losses and steps are left alone.

    Raises:
        ValueError: a factor is out of its range.

    Example:
        >>> x = lucid.ones(1, requires_grad=True)
        >>> optimizer = lucid.optim.SGD([x], lr=0.5)
        >>> scaler = lucid.amp.GradScaler("cpu")
        >>> scaler.scale((x * x).sum()).backward()
        >>> scaler.step(optimizer)
        >>> scaler.update()
        >>> x.detach()
        tensor([0.])
    """

    def __init__(
        self,
        device: str = "gpu",
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:
        self._device = device
        self._enabled = enabled
        if not enabled:
            return
        if growth_factor <= 1.0:
            raise AssertionError("The growth factor must be > 1.0.")
        if backoff_factor >= 1.0:
            raise AssertionError("The backoff factor must be < 1.0.")
        self._init_scale = init_scale
        self._scale: Tensor | None = None
        self._growth_factor = growth_factor
        self._backoff_factor = backoff_factor
        self._growth_interval = growth_interval
        self._init_growth_tracker = 0
        self._growth_tracker: Tensor | None = None
        self._per_optimizer_states: defaultdict[int, dict[str, Any]] = defaultdict(_fresh)

    def _tensors(self, method: str) -> tuple[Tensor, Tensor]:
        fix = "This may indicate your script did not use scaler.scale(loss or outputs) earlier in the iteration."
        if self._scale is None:
            raise AssertionError(f"Attempted {method} but _scale is None.  {fix}")
        if self._growth_tracker is None:
            raise AssertionError(f"Attempted {method} but _growth_tracker is None.  {fix}")
        return self._scale, self._growth_tracker

    def _start(self, device: Any) -> Tensor:
        if self._growth_tracker is not None:
            raise AssertionError("_growth_tracker initialized before _scale")
        self._scale = lucid.tensor(self._init_scale, dtype=lucid.float32, device=device)
        self._growth_tracker = lucid.tensor(self._init_growth_tracker, dtype=lucid.int32, device=device)
        return self._scale

    def scale(self, outputs: Any) -> Any:
        """A tensor, or all tensors of an iterable, times the scale."""
        if not self._enabled:
            return outputs
        if isinstance(outputs, Tensor):
            scale = self._start(outputs.device) if self._scale is None else self._scale
            return outputs * scale.to(outputs.device)
        if isinstance(outputs, Iterable) and not isinstance(outputs, str):
            scaled = [self.scale(value) for value in outputs]
            return type(outputs)(scaled) if isinstance(outputs, (list, tuple)) else iter(scaled)
        raise errors.ValueError("outputs must be a Tensor or an iterable of Tensors")

    def unscale_(self, optimizer: Optimizer) -> None:
        """Takes the gradients of an optimizer's parameters back to size, in place; once between updates.

        Raises:
            RuntimeError: on a second call, or after `step`.
            ValueError: for float16 gradients.
        """
        if not self._enabled:
            return
        self._tensors("unscale_")
        state = self._per_optimizer_states[id(optimizer)]
        if state["stage"] is OptState.UNSCALED:
            raise errors.RuntimeError("unscale_() has already been called on this optimizer since the last update().")
        if state["stage"] is OptState.STEPPED:
            raise errors.RuntimeError("unscale_() is being called after step().")
        state["found_inf"] = self._unscale(optimizer, allow_half=False)
        state["stage"] = OptState.UNSCALED

    def _unscale(self, optimizer: Optimizer, allow_half: bool) -> list[Tensor]:
        scale, _ = self._tensors("unscale_")
        params = (param for group in optimizer.param_groups for param in group["params"])
        grads = [param.grad for param in params if param.grad is not None]
        if not allow_half and any(grad.dtype == lucid.float16 for grad in grads):
            raise errors.ValueError("Attempting to unscale FP16 gradients.")
        # In double precision the inverse of a float32 is rounded once; the GPU device has none.
        inverse = scale.double().reciprocal().float() if scale.is_cpu else scale.reciprocal()
        return _C._unscale_([grad._values() if grad.is_sparse else grad for grad in grads], inverse)

    def step(self, optimizer: Optimizer, *args: Any, **kwargs: Any) -> Any:
        """The optimizer's step, left out where a gradient is not finite; unscales first where that has not been done.

        Raises:
            RuntimeError: on a second call between updates, and for a closure.
        """
        if not self._enabled:
            return optimizer.step(*args, **kwargs)
        if "closure" in kwargs:
            raise errors.RuntimeError("Closure use is not currently supported if GradScaler is enabled.")
        self._tensors("step")
        state = self._per_optimizer_states[id(optimizer)]
        if state["stage"] is OptState.STEPPED:
            raise errors.RuntimeError("step() has already been called since the last update().")
        if state["stage"] is OptState.READY:
            self.unscale_(optimizer)
        if not state["found_inf"]:
            raise AssertionError("No inf checks were recorded for this optimizer.")
        stepped = None
        if not sum(found.item() for found in state["found_inf"]):
            stepped = optimizer.step(*args, **kwargs)
        state["stage"] = OptState.STEPPED
        return stepped

    def update(self, new_scale: float | Tensor | None = None) -> None:
        """Brings the scale up to date after the steps of an iteration, or sets it. Evaluates nothing."""
        if not self._enabled:
            return
        scale, tracker = self._tensors("update")
        if new_scale is not None:
            if isinstance(new_scale, Tensor):
                reason = "new_scale should be a float or a 1-element lucid.FloatTensor with requires_grad=False."
                if new_scale.numel() != 1 or new_scale.requires_grad or new_scale.dtype != lucid.float32:
                    raise AssertionError(reason)
            with lucid.no_grad():
                scale.copy_(lucid.as_tensor(new_scale, dtype=lucid.float32).reshape([]).to(scale.device))
        else:
            found = [value for state in self._per_optimizer_states.values() for value in state["found_inf"]]
            if not found:
                raise AssertionError("No inf checks were recorded prior to update.")
            total = found[0].to(scale.device)
            for other in found[1:]:
                total = total + other.to(scale.device)
            self._move(scale, tracker, total > 0)
        self._per_optimizer_states = defaultdict(_fresh)

    def _move(self, scale: Tensor, tracker: Tensor, overflowed: Tensor) -> None:
        with lucid.no_grad():
            due = tracker + 1 == self._growth_interval
            grown = scale * self._growth_factor
            # A scale that would overflow stays.
            grown = lucid.where(grown.isfinite(), grown, scale)
            new = lucid.where(overflowed, scale * self._backoff_factor, lucid.where(due, grown, scale))
            count = lucid.where(overflowed.logical_or(due), lucid.zeros_like(tracker), tracker + 1)
            scale.copy_(new)
            tracker.copy_(count)

    def get_scale(self) -> float:
        """The scale, or 1 where scaling is off. Waits for the device."""
        if not self._enabled:
            return 1.0
        return self._init_scale if self._scale is None else float(self._scale.item())

    def get_growth_factor(self) -> float:
        """The factor of growth."""
        return self._growth_factor

    def set_growth_factor(self, new_factor: float) -> None:
        """Sets the factor of growth."""
        self._growth_factor = new_factor

    def get_backoff_factor(self) -> float:
        """The factor of retreat."""
        return self._backoff_factor

    def set_backoff_factor(self, new_factor: float) -> None:
        """Sets the factor of retreat."""
        self._backoff_factor = new_factor

    def get_growth_interval(self) -> int:
        """After how many good steps the scale grows."""
        return self._growth_interval

    def set_growth_interval(self, new_interval: int) -> None:
        """Sets after how many good steps the scale grows."""
        self._growth_interval = new_interval

    def _get_growth_tracker(self) -> int:
        if not self._enabled:
            return 0
        return self._init_growth_tracker if self._growth_tracker is None else int(self._growth_tracker.item())

    def is_enabled(self) -> bool:
        """Does it scale?"""
        return self._enabled

    def state_dict(self) -> dict[str, Any]:
        """Scale, factors, interval and count, as PyTorch's; empty where scaling is off."""
        if not self._enabled:
            return {}
        return {
            "scale": self.get_scale(),
            "growth_factor": self._growth_factor,
            "backoff_factor": self._backoff_factor,
            "growth_interval": self._growth_interval,
            "_growth_tracker": self._get_growth_tracker(),
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Takes over what `state_dict` gave, also PyTorch's."""
        if not self._enabled:
            return
        if not state_dict:
            raise errors.RuntimeError(
                "The source state dict is empty, possibly because it was saved from a disabled instance of GradScaler."
            )
        self._init_scale = state_dict["scale"]
        self._growth_factor = state_dict["growth_factor"]
        self._backoff_factor = state_dict["backoff_factor"]
        self._growth_interval = state_dict["growth_interval"]
        self._init_growth_tracker = state_dict["_growth_tracker"]
        if self._scale is not None and self._growth_tracker is not None:
            with lucid.no_grad():
                self._scale.fill_(state_dict["scale"])
                self._growth_tracker.fill_(state_dict["_growth_tracker"])

    def __getstate__(self) -> dict[str, Any]:
        state = self.__dict__.copy()
        if self._enabled:
            if self._per_optimizer_states:
                raise AssertionError(
                    "A GradScaler instance may only be pickled at the beginning of an iteration, or at the end after "
                    "scaler.update()."
                )
            state["_init_scale"] = self.get_scale()
            state["_init_growth_tracker"] = self._get_growth_tracker()
            state["_scale"] = None
            state["_growth_tracker"] = None
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
