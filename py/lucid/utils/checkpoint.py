"""Recomputing instead of keeping: what a function saves for its gradients is made again when backward asks for it.

Chen et al., "Training Deep Nets with Sublinear Memory Cost" (2016). Calls nest: what the inner one
keeps, its arguments, is made again by the outer one.
"""

from __future__ import annotations

import contextlib
import threading
import traceback
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any, ClassVar

from lucid import _C
from lucid._C import Tensor
from lucid._grad_mode import enable_grad, no_grad
from lucid._warnings import warn
from lucid.autograd.function import Function
from lucid.autograd.graph import own_hooks
from lucid.utils import _pytree
from lucid.utils._selective import (
    SAC_IGNORED_OPS,
    CheckpointPolicy,
    Keeping,
    SelectiveCheckpointContext,
    create_selective_checkpoint_contexts,
    saved,
)

__all__ = [
    "SAC_IGNORED_OPS",
    "CheckpointError",
    "CheckpointFunction",
    "CheckpointPolicy",
    "GraphExecGroup",
    "SelectiveCheckpointContext",
    "check_backward_validity",
    "checkpoint",
    "checkpoint_sequential",
    "create_selective_checkpoint_contexts",
    "detach_variable",
    "get_device_states",
    "noop_context_fn",
    "set_checkpoint_debug_enabled",
    "set_checkpoint_early_stop",
    "set_device_states",
]


class CheckpointError(RuntimeError):
    """The function saved other tensors when it was run again."""


class _Setting:
    """A block in which one of the options below is what it says, whatever calls ask for; `None` leaves it to them."""

    value: ClassVar[list[bool | None]]

    def __init__(self, enable: bool | None) -> None:
        self._enable = enable
        self._former: bool | None = None

    def __enter__(self) -> None:
        self._former, self.value[0] = self.value[0], self._enable

    def __exit__(self, *exc: object) -> None:
        self.value[0] = self._former

    @classmethod
    def or_else(cls, asked: bool) -> bool:
        return asked if cls.value[0] is None else bool(cls.value[0])


class set_checkpoint_early_stop(_Setting):
    """A block in which recomputing stops as soon as all is there that is needed, or not, whatever calls ask for.

    Args:
        enable (bool, optional): whether to stop; None leaves it to each call.

    Example:
        >>> with lucid.utils.checkpoint.set_checkpoint_early_stop(False):
        ...     pass
    """

    value: ClassVar[list[bool | None]] = [None]


class set_checkpoint_debug_enabled(_Setting):
    """A block in which all calls run as with `debug=True`, or with `False` none does.

    Args:
        enabled (bool, optional): debugs all calls, or none; None leaves it to each call.

    Example:
        >>> with lucid.utils.checkpoint.set_checkpoint_debug_enabled(None):
        ...     pass
    """

    value: ClassVar[list[bool | None]] = [None]

    def __init__(self, enabled: bool | None) -> None:
        super().__init__(enabled)


_group = threading.local()


class GraphExecGroup:
    """A block of several backward passes for which each checkpointed call is run again once at most.

    They must go over different parts of the graph: what one of them has taken is not there for the next, which is a
    `CheckpointError`. Blocks do not nest.
    """

    def __enter__(self) -> GraphExecGroup:
        if self._get_current_group() is not None:
            raise RuntimeError("GraphExecGroup contexts cannot be nested. Already inside one.")
        _group.current = self
        return self

    def __exit__(self, *exc: object) -> None:
        _group.current = None

    @classmethod
    def _get_current_group(cls) -> GraphExecGroup | None:
        found: GraphExecGroup | None = getattr(_group, "current", None)
        return found


class _Stop(Exception):
    """Everything that was saved has been made again."""


class _Look(threading.local):
    """Whether saved tensors are only looked at, on this thread, and will be unpacked once more."""

    on = False


_look_on = _Look()


@contextlib.contextmanager
def _looking() -> Iterator[None]:
    """A context in which unpacking a saved tensor does not use it up."""
    before, _look_on.on = _look_on.on, True
    try:
        yield
    finally:
        _look_on.on = before


class _Holder:
    """Stands for a saved tensor: lives as long as a node of the graph needs it."""

    __slots__ = ("__weakref__", "index", "made")

    def __init__(self, index: int) -> None:
        self.index = index
        # By pass: what was made again, `None` once it was taken.
        self.made: dict[Any, Tensor | None] = {}


def _look(tensor: Tensor) -> dict[str, Any]:
    return {"shape": tensor.shape, "dtype": tensor.dtype, "device": tensor.device}


def _blind(tensor: Tensor) -> None:
    return None


_CHECKS: dict[str, Callable[[Tensor], Any]] = {"default": _look, "none": _blind}


class _State:
    """What a function's results depend on beside its arguments, as it is now."""

    def __init__(self, preserve_rng: bool) -> None:
        self.random = _C.get_rng_state() if preserve_rng else None
        self.device = _C.get_default_device()
        self.casts = [(d, _C._autocast_enabled(d), _C._autocast_dtype(d)) for d in ("cpu", "gpu")]
        self.cache = _C._autocast_cache_enabled()

    @contextlib.contextmanager
    def again(self) -> Iterator[None]:
        """A block in which it is as it was."""
        from lucid.amp.autocast_mode import autocast

        with contextlib.ExitStack() as stack:
            if self.random is not None:
                stack.callback(_C.set_rng_state, _C.get_rng_state())
                _C.set_rng_state(self.random)
            if _C.get_default_device() != self.device:
                stack.enter_context(self.device)
            for device, enabled, dtype in self.casts:
                if enabled or _C._autocast_enabled(device):
                    stack.enter_context(autocast(device, dtype, enabled, self.cache))
            yield


class _Frame:
    """One call of a checkpointed function."""

    def __init__(
        self,
        run: Callable[..., Any],
        args: tuple[Any, ...],
        early_stop: bool,
        look: Callable[[Tensor], Any],
        debug: bool,
    ) -> None:
        self.run = run
        self.args = saved(args)
        self.early_stop = early_stop
        self.look = look
        self.debug = debug
        self.holders: list[weakref.ref[_Holder]] = []
        self.seen: list[Any] = []
        self.done: set[Any] = set()
        self.counts: dict[Any, int] = {}
        self.complete = False
        # A gradient taken within the function saves in the second run what the first had not saved yet.
        self.unmatched = False
        # Where tensors were saved, in the two runs.
        self.traces: tuple[list[str], list[str]] = ([], [])

    def pack(self, tensor: Tensor) -> _Holder:
        holder = _Holder(len(self.holders))
        self.holders.append(weakref.ref(holder))
        self.seen.append(self.look(tensor))
        self._trace(0, tensor)
        return holder

    def unpack(self, holder: _Holder) -> Tensor:
        key: Any = GraphExecGroup._get_current_group() or _C._current_pass() or object()
        try:
            if key not in self.done:
                self._recompute(key)
                self.done.add(key)
                self._check(key)
            found = holder.made.get(key)
            if found is None:
                raise CheckpointError(
                    "lucid.utils.checkpoint: Unpack is being triggered for a tensor that was already unpacked once. If "
                    "you are calling ctx.saved_tensors in backward, make sure to do so only once; under "
                    "GraphExecGroup, passes must not need the same tensors."
                )
        except CheckpointError as e:
            if self.debug:
                raise CheckpointError(self._report()) from e
            raise
        if not _look_on.on:
            holder.made[key] = None
        return found

    def _recompute(self, key: Any) -> None:
        self.counts[key] = 0

        def keep(tensor: Tensor) -> Tensor:
            tensor = tensor.detach()
            index = self.counts[key]
            self.counts[key] += 1
            self._trace(1, tensor)
            if index >= len(self.holders):
                if self.complete:
                    raise CheckpointError(
                        "lucid.utils.checkpoint: trying to save more tensors during recomputation than during the "
                        f"original forward pass.{_TIP}"
                    )
                self.unmatched = True
                return tensor
            holder = self.holders[index]()
            if holder is not None:
                holder.made[key] = tensor
            if self.early_stop and index + 1 == len(self.holders):
                raise _Stop
            return tensor

        self.traces[1].clear()
        args = self.args()
        with own_hooks(keep, lambda t: t), enable_grad(), contextlib.suppress(_Stop):
            self.run(*args)

    def _check(self, key: Any) -> None:
        """Were the tensors of the second run those of the first?"""
        if self.unmatched:
            return
        if self.counts[key] != len(self.holders):
            raise CheckpointError(
                "lucid.utils.checkpoint: A different number of tensors was saved during the original forward and "
                f"recomputation.\nNumber of tensors saved during forward: {len(self.holders)}\n"
                f"Number of tensors saved during recomputation: {self.counts[key]}.{_TIP}"
            )
        others = ""
        for i, (weak, seen) in enumerate(zip(self.holders, self.seen, strict=True)):
            holder = weak()
            made = holder.made.get(key) if holder is not None else None
            if made is not None and self.look(made) != seen:
                others += f"tensor at position {i}:\nsaved metadata: {seen}\nrecomputed metadata: {self.look(made)}\n"
        if others:
            raise CheckpointError(
                "lucid.utils.checkpoint: Recomputed values for the following tensors have different metadata than "
                f"during the forward pass.\n{others}{_TIP}"
            )

    def _trace(self, run: int, tensor: Tensor) -> None:
        if self.debug:
            where = "".join(traceback.format_stack()[:-2])
            self.traces[run].append(f"tensor {len(self.traces[run])}, {_look(tensor)}\n{where}")

    def _report(self) -> str:
        first, second = ("\n".join(t) or "none\n" for t in self.traces)
        return (
            "An error happened while unpacking tensors; dumping logs of latest computation because you passed "
            "`debug=True` to `lucid.utils.checkpoint.checkpoint()`.\n\n"
            f"1. Where tensors were saved in the original forward\n\n{first}\n"
            f"2. Where tensors were saved during recomputation\n\n{second}"
        )


_TIP = (
    "\nTip: To see where they were saved, pass `debug=True` to `lucid.utils.checkpoint.checkpoint(...)` or wrap the "
    "code in `with lucid.utils.checkpoint.set_checkpoint_debug_enabled(True):`."
)


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
    respect_saved_tensors_hooks: bool | None = None,
    **kwargs: Any,
) -> Any:
    """`function(*args, **kwargs)`, of which nothing is kept for gradients but `args`: backward runs it again.

    With `preserve_rng_state` it sees the same random numbers then; autocast and the default device are those of the
    first run in any case. `use_reentrant=True` is PyTorch's older way, in which one of `args` must require a gradient.
    Unlike in PyTorch, the default is `False`. `context_fn` gives the contexts for the first and for the second run
    (`create_selective_checkpoint_contexts` makes those that keep the results of some ops);
    `determinism_check="none"` leaves out the comparison of shapes, dtypes and devices. The second run stops as soon as
    all is there that the first saved, unless `early_stop` is off. With `debug`, errors say where tensors were saved in
    both runs (PyTorch's list the ops).

    What a selective checkpoint keeps goes through the hooks on saved tensors that are around the call with
    `respect_saved_tensors_hooks`, and not without it, of which a FutureWarning tells unless it is `False`.

    Raises `CheckpointError` where the second run saves other tensors than the first, and as all gradients where an
    argument was written in between.

    Args:
        function (Callable[..., Any]): what to run, and to run again in backward.
        *args (object): its arguments.
        use_reentrant (bool, optional): runs backward inside of backward, as PyTorch's older form does; must be
            given, or a warning asks.
        context_fn (callable, optional): returns two context managers, for the first run and for the second.
        determinism_check (str, default: "default"): "default" compares shapes and dtypes of both runs, "none"
            nothing.
        debug (bool, default: False): traces the ops of both runs where they differ.
        preserve_rng_state (bool, default: True): draws the same random numbers again.
        early_stop (bool, default: True): stops the second run as soon as all is there that is needed.
        respect_saved_tensors_hooks (bool, optional): whether what a selective checkpoint keeps goes through the hooks
            around the call.
        **kwargs (object): its keyword arguments.

    Returns:
        object: what `function` returns.

    Raises:
        ValueError: another `determinism_check`, or arguments that do not go together.

    Example:
        >>> x = lucid.tensor([3.0], requires_grad=True)
        >>> y = lucid.utils.checkpoint.checkpoint(lambda x: (x * x).sin(), x, use_reentrant=False)
        >>> y.backward()
        >>> bool(x.grad == (x * x).cos().detach() * 6)
        True
    """
    if use_reentrant is None:
        warn(
            "lucid.utils.checkpoint: the use_reentrant parameter should be passed explicitly. It is False by default "
            "here, which is recommended."
        )
    if use_reentrant:
        if context_fn is not noop_context_fn or debug or respect_saved_tensors_hooks is not None:
            raise ValueError(
                "Passing `context_fn`, `debug`, or `respect_saved_tensors_hooks` is only supported when "
                "use_reentrant=False."
            )
        if kwargs:
            raise ValueError("Unexpected keyword arguments: " + ",".join(kwargs))
        return CheckpointFunction.apply(function, preserve_rng_state, *args)
    debug = set_checkpoint_debug_enabled.or_else(debug)
    if debug and context_fn is not noop_context_fn:
        raise ValueError("debug=True is incompatible with non-default context_fn")
    if determinism_check not in _CHECKS:
        raise ValueError(f"determinism_check should be one of {list(_CHECKS)}, but got {determinism_check}")
    first, second = context_fn()
    if not _C.is_grad_enabled():
        return function(*args, **kwargs)
    state = _State(preserve_rng_state)

    def again(*args: Any) -> None:
        with state.again(), second:
            function(*args, **kwargs)

    stops = set_checkpoint_early_stop.or_else(early_stop)
    frame = _Frame(again, args, stops, _CHECKS[determinism_check], debug)
    if isinstance(first, Keeping):
        first.respects = respect_saved_tensors_hooks
    with own_hooks(frame.pack, frame.unpack), first:
        output = function(*args, **kwargs)
    frame.complete = True
    return output


def get_device_states(*args: Any) -> tuple[list[int], list[Tensor]]:
    """The random state of the devices of tensors, which `set_device_states` takes. All devices share one here.

    Args:
        *args (object): tensors, and nests of them; those on the CPU and other values do not count.

    Returns:
        tuple: the indices of the GPUs, one for each tensor, and their states, uint8 tensors.

    Example:
        >>> lucid.utils.checkpoint.get_device_states(lucid.ones(2))
        ([], [])
    """
    leaves = _pytree.tree_leaves(args)
    devices = [_C._gpu_index() for x in leaves if isinstance(x, Tensor) and x.device.type not in ("cpu", "meta")]
    return devices, [_C.get_rng_state() for _ in devices]


def set_device_states(devices: Iterable[int], states: Iterable[Tensor], *, device_type: str | None = None) -> None:
    """Has random numbers go on from states that `get_device_states` gave.

    Args:
        devices (iterable of int): the numbers of GPUs: the one that this process computes on.
        states (iterable of Tensor): a state for each.
        device_type (str, optional): the devices' type; with "meta" nothing is set.

    Raises:
        ValueError: there is no such device.

    Example:
        >>> lucid.utils.checkpoint.set_device_states([], [])
    """
    if device_type == "meta":
        return
    for device, state in zip(devices, states, strict=False):
        if device != _C._gpu_index():
            raise ValueError(f"set_device_states: this process computes on GPU {_C._gpu_index()}, got {device}")
        _C.set_rng_state(state)


def check_backward_validity(inputs: Iterable[Any]) -> None:
    """Warns where no tensor among the inputs requires a gradient: reentrant checkpointing then gives none.

    Args:
        inputs (Iterable[Any]): the inputs, tensors of any shapes among them.

    Example:
        >>> lucid.utils.checkpoint.check_backward_validity([lucid.ones(1, requires_grad=True)])
    """
    if not any(isinstance(x, Tensor) and x.requires_grad for x in inputs):
        warn("None of the inputs have requires_grad=True. Gradients will be None")


def detach_variable(inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """The inputs with their tensors cut off from the tape, as leaves that require gradients where they did.

    Args:
        inputs (tuple[Any, ...]): the inputs, tensors of any shapes among them.

    Returns:
        tuple: the inputs, with detached tensors.

    Raises:
        RuntimeError: `inputs` is no tuple.

    Example:
        >>> x = lucid.ones(1, requires_grad=True) * 2
        >>> lucid.utils.checkpoint.detach_variable((x, 1))[0].is_leaf
        True
    """
    if not isinstance(inputs, tuple):
        raise RuntimeError(f"Only tuple of tensors is supported. Got Unsupported input type: {type(inputs).__name__}")
    return tuple(x.detach().requires_grad_(x.requires_grad) if isinstance(x, Tensor) else x for x in inputs)


class CheckpointFunction(Function):
    """The older way: one node, whose backward runs the function recorded and differentiates it."""

    @staticmethod
    def forward(ctx: Any, run_function: Callable[..., Any], preserve_rng_state: bool, *args: Any) -> Any:
        check_backward_validity(args)
        ctx.function = run_function
        ctx.state = _State(preserve_rng_state)
        ctx.rest = [None if isinstance(a, Tensor) else a for a in args]
        ctx.at = [i for i, a in enumerate(args) if isinstance(a, Tensor)]
        ctx.save_for_backward(*(args[i] for i in ctx.at))
        with no_grad():
            return run_function(*args)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        if _C._chosen_alone():
            raise RuntimeError(
                "When use_reentrant=True, lucid.utils.checkpoint is incompatible with .grad() or passing an `inputs` "
                "parameter to .backward(). To resolve this error, you can either set use_reentrant=False, or call "
                ".backward() without passing the `inputs` argument."
            )
        args = list(ctx.rest)
        for i, t in zip(ctx.at, ctx.saved_tensors, strict=True):
            args[i] = t.detach().requires_grad_(t.requires_grad)
        with ctx.state.again(), enable_grad():
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
    """The functions (or modules) one after another, checkpointed in `segments` segments; the last one is kept.

    Args:
        functions (Sequential or sequence of callables): what to run, one after another.
        segments (int): the number of segments.
        input (Tensor): what the first function gets, of any shape.
        use_reentrant (bool, optional): as in `checkpoint`.
        **kwargs (object): the other options of `checkpoint`.

    Returns:
        object: what the last function returns.

    Raises:
        ValueError: `segments` is not within the number of functions.

    Example:
        >>> from lucid import nn
        >>> model = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 1))
        >>> lucid.utils.checkpoint.checkpoint_sequential(model, 2, lucid.ones(1, 2), use_reentrant=False).shape
        lucid.Size([1, 1])
    """
    if use_reentrant is None:
        warn(
            "lucid.utils.checkpoint.checkpoint_sequential: the use_reentrant parameter should be passed explicitly. It "
            "is False by default here, which is recommended."
        )
        use_reentrant = False
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
