"""Selective checkpointing: a policy says of each op whether its results are kept or made again.

Modes of `lucid.overrides` see the ops of both runs. What a kept op saves for its gradient and is none of its arguments
is kept beside its results; arguments are left to the checkpoint around it, which makes them again. In the second run
the op is not called: its results are there, and its arguments are handed to the checkpoint in the first run's order.
"""

from __future__ import annotations

import enum
import functools
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import lucid
from lucid import _C
from lucid._C import Tensor
from lucid._warnings import warn
from lucid.autograd.graph import own_hooks, saved_tensors_hooks, users_hooks
from lucid.overrides import TorchFunctionMode, is_tensor_method_or_property, resolve_name
from lucid.utils import _pytree


def saved(args: tuple[Any, ...]) -> Callable[[], list[Any]]:
    """Arguments as the tape saves tensors: through its hooks, and with an error where one was written since."""
    at = [i for i, a in enumerate(args) if isinstance(a, Tensor)]
    rest = [None if isinstance(a, Tensor) else a for a in args]
    # A step of its own, which no gradient passes.
    token, end = _C.zeros(0, requires_grad=True), _C.zeros(0)
    kept = _C._record_function(
        "CheckpointInputs", [token], [end], [False], tuple(args[i] for i in at), True, lambda g: g
    )

    def get() -> list[Any]:
        found = list(rest)
        if kept is not None and end.requires_grad:
            for i, t in zip(at, kept.get(), strict=True):
                found[i] = t
        return found

    return get


class CheckpointPolicy(enum.Enum):
    """What a policy says of an op: keep its results, or make them again.

    `MUST_` and `PREFER_` are the same here. As in PyTorch's eager mode, the results of ops that are to be offloaded are
    made again.
    """

    MUST_SAVE = 0
    PREFER_SAVE = 1
    MUST_RECOMPUTE = 2
    PREFER_RECOMPUTE = 3
    MUST_CPU_OFFLOAD = 4
    PREFER_CPU_OFFLOAD = 5


_KEEPS = (CheckpointPolicy.MUST_SAVE, CheckpointPolicy.PREFER_SAVE)


class SelectiveCheckpointContext:
    """What a selective checkpoint's policy gets beside the op and its arguments.

    Args:
        is_recompute (bool): whether the second run asks; always False: the policy is asked in the first.
        op_output (object, optional): the op's result.

    Example:
        >>> from lucid.utils.checkpoint import SelectiveCheckpointContext
        >>> SelectiveCheckpointContext(is_recompute=False, op_output=lucid.ones(2)).op_output
        tensor([1., 1.])
    """

    def __init__(self, *, is_recompute: bool, op_output: Any = None) -> None:
        self.is_recompute = is_recompute
        self.op_output = op_output


#: The ops that no policy is asked about.
SAC_IGNORED_OPS = {lucid.detach}


@functools.cache
def op_of(function: Callable[..., Any]) -> Callable[..., Any]:
    """The one function that stands for an op: of a method of tensors the function of its name, if there is one."""
    import lucid.nn.functional

    name = getattr(function, "__name__", "")
    if is_tensor_method_or_property(function):
        for place in (lucid, lucid.nn.functional):
            found: Any = getattr(place, name, None)
            if callable(found):
                return found  # type: ignore[no-any-return]
    elif getattr(lucid.nn.functional, name, None) is function and name in _C.__all__:
        return getattr(lucid, name, function)  # type: ignore[no-any-return]
    return function


class _Slot:
    """What the tape has in place of a tensor that an op saves."""

    __slots__ = ("get", "tensor", "version")

    def __init__(self, tensor: Tensor) -> None:
        self.tensor: Tensor | None = tensor
        self.version = tensor._version
        self.get: Callable[[], list[Any]] | None = None

    def leave(self) -> None:
        """Leaves the tensor to the hooks around."""
        self.get, self.tensor = saved((self.tensor,)), None

    def unpack(self) -> Tensor:
        if self.get is not None:
            found: Tensor = self.get()[0]
            return found
        assert self.tensor is not None
        if self.tensor._version != self.version:
            raise RuntimeError(
                "one of the variables needed for gradient computation has been modified by an inplace operation: a "
                f"tensor of shape {list(self.tensor.shape)} that an op of a selective checkpoint saved is at version "
                f"{self.tensor._version}; expected version {self.version} instead."
            )
        return self.tensor


class _Place(NamedTuple):
    """Which argument a saved tensor is, or shows a part of."""

    argument: int
    layout: tuple[tuple[int, ...], tuple[int, ...], int] | None

    @classmethod
    def find(cls, tensor: Tensor, arguments: Sequence[Tensor]) -> _Place | None:
        for i, a in enumerate(arguments):
            if a.dtype != tensor.dtype or not tensor._shares_storage(a):
                continue
            offset = tensor.storage_offset() - a.storage_offset()
            if (tensor.shape, tensor.stride(), offset) == (a.shape, a.stride(), 0):
                return cls(i, None)
            return cls(i, (tuple(tensor.shape), tensor.stride(), offset))
        return None

    def show(self, arguments: Sequence[Tensor]) -> Tensor:
        own = arguments[self.argument].detach()
        if self.layout is None:
            return own
        shape, stride, offset = self.layout
        return own.as_strided(shape, stride, own.storage_offset() + offset)


class _Entry:
    """The results of one call."""

    def __init__(
        self,
        output: Any,
        places: list[_Place],
        random: list[int] | None,
        hooks: saved_tensors_hooks | None = None,
    ) -> None:
        leaves, self.spec = _pytree.tree_flatten(output)
        self.leaves = [x.detach() if isinstance(x, Tensor) else x for x in leaves]
        self.versions = [x._version if isinstance(x, Tensor) else 0 for x in leaves]
        self.followed = [isinstance(x, Tensor) and x.requires_grad for x in leaves]
        self.places = places
        #: The state of the random numbers after it, where it drew some.
        self.random = random
        self.unpack = None if hooks is None else hooks.unpack_hook
        #: What the user's hooks made of the tensors, which are not kept then.
        self.packed: list[Any] = []
        if hooks is not None:
            with lucid.no_grad():
                self.packed = [hooks.pack_hook(x) if isinstance(x, Tensor) else x for x in self.leaves]
            self.is_tensor = [isinstance(x, Tensor) for x in self.leaves]
            self.leaves = []

    def bring_back(self) -> None:
        """Has the user's hooks give the tensors again."""
        if self.unpack is not None:
            with lucid.no_grad():
                given = zip(self.packed, self.is_tensor, strict=True)
                self.leaves = [self.unpack(x).detach() if tensor else x for x, tensor in given]
            self.versions = [x._version if isinstance(x, Tensor) else 0 for x in self.leaves]

    def results(self, op: str, given: Sequence[Tensor], mutation: bool) -> Any:
        self.bring_back()
        tensors = [x for x in self.leaves if isinstance(x, Tensor)]
        if not mutation and any(
            isinstance(x, Tensor) and x._version != v for x, v in zip(self.leaves, self.versions, strict=True)
        ):
            raise RuntimeError("Tensor cached during selective activation checkpoint has been mutated")

        def refuse(*_: Any) -> Any:
            raise RuntimeError(
                f"{op}: its results were kept by a selective checkpoint, and the function that runs again takes a "
                "gradient through them; let the policy have the op run again"
            )

        if any(self.followed):
            still = [not f for x, f in zip(self.leaves, self.followed, strict=True) if isinstance(x, Tensor)]
            inputs = [t for t in given if t.requires_grad] or [_C.zeros(0, requires_grad=True)]
            _C._record_function("Kept", inputs, tensors, still, (), True, refuse)
        return _pytree.tree_unflatten(self.leaves, self.spec)


_AGAIN = object()
_TAKEN = object()
_MISMATCH = (
    "This can happen if the operations in the checkpointed region are nondeterministic or depend on global state that "
    "changed between forward and backward."
)


class _Storage:
    """What the first run has for the second: by op and by how often that was called before."""

    def __init__(self) -> None:
        self.calls: dict[Any, list[Any]] = defaultdict(list)
        self.random: list[int] | None = None


def _random() -> list[int]:
    found: list[int] = _C.get_rng_state().tolist()
    return found


def _passes(op: Callable[..., Any]) -> bool:
    """Is it none of the ops that count: an attribute, or one that is ignored?"""
    return getattr(op, "__name__", "") in ("__get__", "__set__", "__delete__") or op in SAC_IGNORED_OPS


def _tensors(args: Any, kwargs: Any) -> list[Tensor]:
    return [x for x in _pytree.tree_iter((args, kwargs)) if isinstance(x, Tensor)]


class _Run(TorchFunctionMode):
    """One of the two runs: sees every call of an op that counts."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs, op = kwargs or {}, op_of(func)
        return func(*args, **kwargs) if _passes(op) else self.run(op, func, args, kwargs)

    def run(self, op: Any, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What the call gives in this run."""
        raise NotImplementedError


class Keeping(_Run):
    """The first run."""

    #: Does what is kept go through the user's hooks on saved tensors? A warning tells where nobody said so.
    respects: bool | None = None

    def __init__(self, policy: Callable[..., Any], storage: _Storage) -> None:
        self.policy, self.storage = policy, storage

    def __enter__(self) -> Keeping:
        self.storage.random = _random()
        super().__enter__()
        return self

    def run(self, op: Any, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        slots: list[_Slot] = []

        def pack(tensor: Tensor) -> _Slot:
            slots.append(_Slot(tensor))
            return slots[-1]

        before = _random()
        with own_hooks(pack, _Slot.unpack):
            output = func(*args, **kwargs)
        after = _random()
        given, made = _tensors(args, kwargs), _tensors(output, None)
        # What is a view of an argument, or was written to one, is made again: nothing would be saved, and who shows
        # the same memory is to see the same.
        keeps = bool(made) and not any(y is x or y._shares_storage(x) for y in made for x in given)
        if made:
            told = self.policy(SelectiveCheckpointContext(is_recompute=False, op_output=output), op, *args, **kwargs)
            if not isinstance(told, (bool, CheckpointPolicy)):
                raise TypeError(f"a policy gives a CheckpointPolicy or a bool, not {type(told).__name__}")
            keeps = keeps and (told in _KEEPS or told is True)
        places: list[_Place] = []
        for slot in slots:
            place = _Place.find(slot.tensor, given) if keeps and slot.tensor is not None else None
            if place is not None:
                places.append(place)
            if place is not None or not keeps:
                slot.leave()
        random = after if after != before else None
        self.storage.calls[op].append(_Entry(output, places, random, self._hooks()) if keeps else _AGAIN)
        return output

    def _hooks(self) -> saved_tensors_hooks | None:
        """The user's hooks that results which are kept go through."""
        hooks = users_hooks()
        if hooks is not None and self.respects is None:
            warn(
                "Hooks on saved tensors are around a selective checkpoint, which keeps tensors past them; in a future "
                "release they will go through the hooks. Pass respect_saved_tensors_hooks=True or False to checkpoint.",
                FutureWarning,
            )
        return hooks if self.respects else None


class _Kept(_Run):
    """The second run."""

    def __init__(self, storage: _Storage, mutation: bool) -> None:
        self.storage, self.mutation = storage, mutation
        self.counts: dict[Any, int] = defaultdict(int)
        self.follows = False

    def __enter__(self) -> _Kept:
        self.counts.clear()
        # Where it does not see the same random numbers, the state is none of this run's business.
        self.follows = _random() == self.storage.random
        super().__enter__()
        return self

    def run(self, op: Any, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        name = resolve_name(op)
        calls, at = self.storage.calls.get(op), self.counts[op]
        self.counts[op] += 1
        if calls is None:
            raise RuntimeError(f"{name} encountered during backward but not found in storage. {_MISMATCH}")
        if at >= len(calls):
            raise RuntimeError(
                f"{name} invocation index {at} encountered during backward but not found in storage. {_MISMATCH}"
            )
        entry = calls[at]
        if entry is _TAKEN:
            raise RuntimeError(
                "Trying to backward an extra time. You are only allowed to backward once on any region computed under "
                "selective activation checkpoint."
            )
        if entry is _AGAIN:
            return func(*args, **kwargs)
        calls[at] = _TAKEN
        given = _tensors(args, kwargs)
        for place in entry.places:
            saved((place.show(given),))
        if entry.random is not None and self.follows:
            _C.set_rng_state(_C.tensor(entry.random, dtype=_C.uint8))
        return entry.results(str(name), given, self.mutation)


def create_selective_checkpoint_contexts(
    policy_fn_or_list: Callable[..., Any] | list[Callable[..., Any]], allow_cache_entry_mutation: bool = False
) -> tuple[Any, Any]:
    """Makes the two contexts of a checkpoint that keeps the results of some ops, for its `context_fn`.

    Differences from PyTorch: ops are Lucid's functions as users call them, where PyTorch's are `torch.ops.aten.*`, of
    which composites are made. `lucid.nn.functional.linear` is one op, and `x @ y`, `x.matmul(y)` and
    `lucid.matmul(x, y)` are all `lucid.matmul`; a method without a function of its name is itself, such as
    `lucid.Tensor.__getitem__`. What such a function calls within is part of it. Ops that give no tensors, or views of
    their arguments, or write to them, always run again. After an op that drew random numbers and is kept, the second
    run goes on with the numbers of the first; PyTorch's goes on with other ones. A function that takes gradients
    within must not take them through kept ops.

    Args:
        policy_fn_or_list (callable or list of callable): ops whose results are kept; or a function that is called with
            a `SelectiveCheckpointContext`, the op and its arguments after each op of the first run, and gives a
            `CheckpointPolicy` (or whether to keep).
        allow_cache_entry_mutation (bool, optional): whether kept results may be written to; else that is an error in
            the backward pass. Default: False.

    Returns:
        tuple of two context managers: for the first run, and for the one in the backward pass.

    Raises:
        ValueError: something in the list is no op.
        TypeError: neither a list nor a function is given.
        RuntimeError: in the backward pass, where the second run calls other ops, a kept result was written to, or the
            pass comes through the same checkpoint again.

    Example:
        >>> import functools
        >>> from lucid.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts
        >>> keep = functools.partial(create_selective_checkpoint_contexts, [lucid.matmul])
        >>> x = lucid.ones(2, 2, requires_grad=True)
        >>> checkpoint(lambda x: (x @ x).exp().sum(), x, use_reentrant=False, context_fn=keep).backward()
        >>> x.grad.shape
        lucid.Size([2, 2])
    """
    if isinstance(policy_fn_or_list, list):
        for op in policy_fn_or_list:
            module = str(getattr(op, "__module__", None))
            known = module == "lucid" or module.startswith("lucid.")
            if not callable(op) or isinstance(op, type) or not (known or is_tensor_method_or_property(op)):
                raise ValueError(
                    "Expected op in `op_list` to be a function of lucid or a method of its tensors, such as lucid.mm, "
                    f"but got: {op} of type {type(op)}."
                )
        ops = {op_of(op) for op in policy_fn_or_list}

        def policy(ctx: SelectiveCheckpointContext, op: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
            return CheckpointPolicy.MUST_SAVE if op in ops else CheckpointPolicy.PREFER_RECOMPUTE

    elif callable(policy_fn_or_list):
        policy = policy_fn_or_list
    else:
        raise TypeError("policy_fn_or_list must be either a function or a list of ops.")
    storage = _Storage()
    return Keeping(policy, storage), _Kept(storage, allow_cache_entry_mutation)
