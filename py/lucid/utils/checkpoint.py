"""Recomputing instead of keeping: what a function saves for its gradients is made again when backward asks for it.

Chen et al., "Training Deep Nets with Sublinear Memory Cost" (2016).
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from lucid import _C
from lucid._C import Tensor
from lucid._grad_mode import enable_grad, no_grad
from lucid.autograd.function import Function
from lucid.autograd.graph import saved_tensors_hooks

__all__ = [
    "CheckpointError",
    "check_backward_validity",
    "checkpoint",
    "checkpoint_sequential",
    "detach_variable",
    "noop_context_fn",
    "set_checkpoint_early_stop",
]


class CheckpointError(RuntimeError):
    """The function saved other tensors when it was run again."""


_early_stop = [True]


class set_checkpoint_early_stop:
    """A block in which recomputing stops as soon as all that is needed is there (the default), or does not."""

    def __init__(self, enable: bool) -> None:
        self._enable = bool(enable)
        self._former = True

    def __enter__(self) -> None:
        self._former, _early_stop[0] = _early_stop[0], self._enable

    def __exit__(self, *exc: object) -> None:
        _early_stop[0] = self._former


class _Stop(Exception):
    """Everything that was saved has been made again."""


class _Slot:
    """Stands for a saved tensor."""

    __slots__ = ("__weakref__", "index", "seen")

    def __init__(self, index: int, seen: tuple[Any, ...]) -> None:
        self.index = index
        self.seen = seen


def _look(tensor: Tensor) -> tuple[Any, ...]:
    return tuple(tensor.shape), tensor.dtype, tensor.device


class _Frame:
    """One call of a checkpointed function."""

    def __init__(self, run: Callable[[], Any], early_stop: bool, check: Callable[[Tensor], Any] | None) -> None:
        self.run = run
        self.early_stop = early_stop
        self.check = check
        self.count = 0
        self.held: dict[int, Tensor] = {}

    def pack(self, tensor: Tensor) -> _Slot:
        slot = _Slot(self.count, self.check(tensor) if self.check else ())
        self.count += 1
        return slot

    def unpack(self, slot: _Slot) -> Tensor:
        if slot.index not in self.held:
            self._recompute()
        # Handed out once for each time that it is asked for: the tape keeps what it needs longer.
        found = self.held.pop(slot.index, None)
        if found is None:
            raise CheckpointError(
                "lucid.utils.checkpoint: A different number of tensors was saved during the original forward and "
                f"recomputation.\nNumber of tensors saved during forward: {self.count}"
            )
        if self.check is not None and self.check(found) != slot.seen:
            raise CheckpointError(
                "lucid.utils.checkpoint: Recomputed values for the following tensors have different metadata than "
                f"during the forward pass.\ntensor at position {slot.index}:\nsaved metadata: {slot.seen}\n"
                f"recomputed metadata: {self.check(found)}"
            )
        return found

    def _recompute(self) -> None:
        made: dict[int, Tensor] = {}

        def keep(tensor: Tensor) -> Tensor:
            made[len(made)] = tensor
            if self.early_stop and len(made) == self.count:
                raise _Stop
            return tensor

        with saved_tensors_hooks(keep, lambda t: t), enable_grad(), contextlib.suppress(_Stop):
            self.run()
        if len(made) != self.count:
            raise CheckpointError(
                "lucid.utils.checkpoint: A different number of tensors was saved during the original forward and "
                f"recomputation.\nNumber of tensors saved during forward: {self.count}\n"
                f"Number of tensors saved during recomputation: {len(made)}."
            )
        self.held = made


@contextlib.contextmanager
def _random_state(state: Tensor | None) -> Iterator[None]:
    """Runs a block with the random state of back then."""
    if state is None:
        yield
        return
    now = _C.get_rng_state()
    _C.set_rng_state(state)
    try:
        yield
    finally:
        _C.set_rng_state(now)


def noop_context_fn() -> tuple[Any, Any]:
    """The default `context_fn`: two contexts that do nothing."""
    return contextlib.nullcontext(), contextlib.nullcontext()


def checkpoint(
    function: Callable[..., Any],
    *args: Any,
    use_reentrant: bool | None = None,
    context_fn: Callable[[], tuple[Any, Any]] = noop_context_fn,
    determinism_check: str = "default",
    debug: bool = False,
    preserve_rng_state: bool = True,
    early_stop: bool = True,
    **kwargs: Any,
) -> Any:
    """`function(*args, **kwargs)`, of which nothing is kept for gradients: backward runs it again.

    With `preserve_rng_state` it sees the same random numbers then. `use_reentrant=True` is PyTorch's older way, in
    which one of `args` must require a gradient. Unlike in PyTorch, the default is `False`. `context_fn` gives the
    contexts for the first and for the second run; `determinism_check="none"` leaves out the comparison of shapes,
    dtypes and devices. `debug` is accepted.

    Raises `CheckpointError` where the second run saves other tensors than the first.
    """
    if determinism_check not in ("default", "none"):
        raise ValueError(f"determinism_check should be one of ['default', 'none'] but got {determinism_check}")
    if use_reentrant:
        if context_fn is not noop_context_fn or debug:
            raise ValueError("Passing `context_fn` or `debug` is only supported when use_reentrant=False.")
        if kwargs:
            raise ValueError("Unexpected keyword arguments: " + ",".join(kwargs))
        check_backward_validity(args)
        return _Reentrant.apply(function, preserve_rng_state, *args)
    first, second = context_fn()
    state = _C.get_rng_state() if preserve_rng_state else None
    recording = _C.is_grad_enabled()

    def again() -> None:
        with _random_state(state), second:
            function(*args, **kwargs)

    frame = _Frame(again, early_stop and _early_stop[0], _look if determinism_check == "default" else None)
    if not recording:
        with first:
            return function(*args, **kwargs)
    with saved_tensors_hooks(frame.pack, frame.unpack), first:
        return function(*args, **kwargs)


def check_backward_validity(inputs: Iterable[Any]) -> None:
    """Warns where no tensor among the inputs requires a gradient: reentrant checkpointing then gives none."""
    if not any(isinstance(x, Tensor) and x.requires_grad for x in inputs):
        warnings.warn("None of the inputs have requires_grad=True. Gradients will be None", stacklevel=3)


def detach_variable(inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """The inputs with their tensors cut off from the tape, as leaves that require gradients where they did."""
    if not isinstance(inputs, tuple):
        raise RuntimeError(f"Only tuple of tensors is supported. Got Unsupported input type: {type(inputs).__name__}")
    return tuple(x.detach().requires_grad_(x.requires_grad) if isinstance(x, Tensor) else x for x in inputs)


class _Reentrant(Function):
    """The older way: one node, whose backward runs the function recorded and goes back through it."""

    @staticmethod
    def forward(ctx: Any, function: Callable[..., Any], preserve: bool, *args: Any) -> Any:
        ctx.function = function
        ctx.state = _C.get_rng_state() if preserve else None
        ctx.rest = [None if isinstance(a, Tensor) else a for a in args]
        ctx.at = [i for i, a in enumerate(args) if isinstance(a, Tensor)]
        ctx.save_for_backward(*(args[i] for i in ctx.at))
        with no_grad():
            return function(*args)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        args = list(ctx.rest)
        for i, t in zip(ctx.at, ctx.saved_tensors, strict=True):
            args[i] = t.detach().requires_grad_(t.requires_grad)
        with _random_state(ctx.state), enable_grad():
            outputs = ctx.function(*args)
        listed = outputs if isinstance(outputs, tuple) else (outputs,)
        pairs = [(o, g) for o, g in zip(listed, grads, strict=True) if isinstance(o, Tensor) and o.requires_grad]
        if not pairs:
            raise RuntimeError("none of output has requires_grad=True, this checkpoint() is not necessary")
        _C._backward([o for o, _ in pairs], [g for _, g in pairs], False, False, None)
        return (None, None, *(a.grad if isinstance(a, Tensor) else None for a in args))


def checkpoint_sequential(
    functions: Any, segments: int, input: Any, use_reentrant: bool | None = None, **kwargs: Any
) -> Any:
    """The functions (or modules) one after another, checkpointed in `segments` segments; the last one is kept."""
    preserve = kwargs.pop("preserve_rng_state", True)
    if kwargs:
        raise ValueError("Unexpected keyword arguments: " + ",".join(kwargs))
    children = getattr(functions, "children", None)
    steps = list(children()) if children is not None else list(functions)
    if segments < 1 or segments > max(len(steps), 1):
        raise ValueError(f"segments must be between 1 and the number of functions, {len(steps)}; got {segments}")

    def run(start: int, end: int) -> Callable[[Any], Any]:
        def forward(value: Any) -> Any:
            for step in steps[start:end]:
                value = step(value)
            return value

        return forward

    size = len(steps) // segments
    for i in range(segments - 1):
        part = run(i * size, (i + 1) * size)
        input = checkpoint(part, input, use_reentrant=use_reentrant, preserve_rng_state=preserve)
    return run((segments - 1) * size, len(steps))(input)
