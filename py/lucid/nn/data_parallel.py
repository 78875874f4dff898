"""`DistributedDataParallel`: copies of a module in several processes, whose gradients are averaged while they are
computed."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import lucid
from lucid import _C, Tensor, errors
from lucid._warnings import warn_without_effect
from lucid.autograd import Function
from lucid.nn.modules.module import Module

__all__ = ["DistributedDataParallel", "GradBucket"]

FIRST_BUCKET = 1 << 20


class _Sink(Function):
    """Passes tensors through, and has the gradients waited for once the backward pass is over."""

    @staticmethod
    def forward(ctx: Any, ddp: Any, *tensors: Tensor) -> Any:
        ctx.ddp = ddp
        ctx.set_materialize_grads(False)
        return tuple(t.view_as(t) for t in tensors)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        ctx.ddp._begin_backward()
        return (None, *grads)


_ENDED_EARLY = "DistributedDataParallel.join: a process has no inputs any more, while others have"


class _Join:
    """What processes with different numbers of inputs tell one another before each pass."""

    def __init__(self, group: Any, by_all: bool, throws: bool) -> None:
        self.group, self.by_all, self.throws = group, by_all, throws
        # By how much sums are divided, and whose buffers count.
        self.divisor, self.source = group.size(), 0

    def _exchange(self, begins: bool, sync: bool, shares: bool) -> tuple[int, bool, bool]:
        size = self.group.size()
        numbers = [int(sync), int(shares), *(int(begins and i == self.group.rank()) for i in range(size))]
        with lucid.no_grad():
            t = lucid.tensor(numbers, dtype=lucid.int64, device="cpu")
            work = self.group.native.begin("all_reduce", t, "SUM", 0, None, self.group.timeout)
        found = work.wait().tolist()
        going = [i for i in range(size) if found[2 + i]]
        self.divisor = size if self.by_all or not going else len(going)
        self.source = going[0] if going else 0
        return len(going), bool(found[0]), bool(found[1])

    def announce(self, sync: bool, shares: bool) -> None:
        """Says that this process begins a pass, and what it will send."""
        going, _, _ = self._exchange(True, sync, shares)
        if self.throws and going < self.group.size():
            raise errors.RuntimeError(_ENDED_EARLY)

    def look(self) -> tuple[int, bool, bool]:
        """How many begin a pass, and what they will send, asked by one that begins none."""
        return self._exchange(False, False, False)

    def longest(self, last: bool) -> int:
        """The highest rank of those that went on longest."""
        group = self.group
        mine = lucid.tensor(group.rank() if last else -1, device="cpu")
        return int(group.native.begin("all_reduce", mine, "MAX", 0, None, group.timeout).wait().item())


class GradBucket:
    """Gradients that travel together: what a communication hook gets.

    Args:
        index (int): the number of the bucket.
        buffer (Tensor): the gradients in a row, (total,).
        parameters (list[Tensor]): the parameters whose gradients these are, of any shapes.
        is_last (bool): is the last bucket of a backward pass.

    Example:
        >>> bucket = lucid.nn.data_parallel.GradBucket(0, lucid.zeros(2), [lucid.zeros(2)], True)
        >>> bucket.is_last()
        True
    """

    def __init__(self, index: int, buffer: Tensor, parameters: list[Tensor], is_last: bool) -> None:
        self._index, self._buffer, self._parameters, self._is_last = index, buffer, parameters, is_last

    def index(self) -> int:
        """The bucket's number; the last layers' gradients are in number 0."""
        return self._index

    def buffer(self) -> Tensor:
        """The gradients as one vector, not divided by the number of processes."""
        return self._buffer

    def set_buffer(self, buffer: Tensor) -> None:
        """Replaces the vector."""
        self._buffer = buffer

    def gradients(self) -> list[Tensor]:
        """The gradients as views of the vector."""
        out, at = [], 0
        for p in self._parameters:
            out.append(self._buffer[at : at + p.numel()].view(p.shape))
            at += p.numel()
        return out

    def parameters(self) -> list[Tensor]:
        """Whose gradients they are."""
        return list(self._parameters)

    def is_last(self) -> bool:
        """Is it the last bucket of the backward pass?"""
        return self._is_last


def _visit(found: Any, of: Callable[[Tensor], Tensor]) -> Any:
    """The same nest of containers with each tensor replaced."""
    if isinstance(found, Tensor):
        return of(found)
    if isinstance(found, tuple) and hasattr(found, "_fields"):
        return type(found)(*(_visit(v, of) for v in found))
    if isinstance(found, (list, tuple)):
        return type(found)(_visit(v, of) for v in found)
    if isinstance(found, dict):
        return type(found)((k, _visit(v, of)) for k, v in found.items())
    if hasattr(found, "__dataclass_fields__"):
        for name in found.__dataclass_fields__:
            setattr(found, name, _visit(getattr(found, name), of))
    return found


class DistributedDataParallel(Module):
    """Trains copies of a module in all processes of a group: they start alike, and each gets the mean of all gradients.

    At construction rank 0's parameters and buffers are sent to all. In the backward pass gradients are put in buckets,
    from the last layer on; a bucket that is complete travels while the rest of the pass goes on. After `backward()`
    every parameter's `grad` is the mean over the processes. `state_dict()` has the module's names under `module.`.

    Differences from PyTorch: a parameter without a gradient is an error of that `backward()`, not of the next forward
    pass; there is no `join()`.

    Args:
        module (Module): its state has the same shapes on every process, which is checked.
        device_ids (list, optional): None, or a list of one device.
        output_device (device or int, optional): None, or the same device.
        dim (int, optional): inputs are not split here; another than 0 gives one warning.
        broadcast_buffers (bool, optional): whether rank 0's buffers are sent to all before each forward pass in
            training mode. Default: True.
        init_sync (bool, optional): whether the state is checked and sent at construction. Default: True.
        process_group (ProcessGroup, optional): the group; default: all processes of the job.
        bucket_cap_mb (float, optional): the size of a bucket in MiB; the first is at most 1 MiB. Default: 25.
        find_unused_parameters (bool, optional): whether parameters may be without a gradient in a pass. Those that no
            process used keep the `grad` that they had. Without it a pass that leaves a parameter out raises an error.
            Default: False.
        check_reduction (bool, optional): deprecated, and without effect in PyTorch, too.
        gradient_as_bucket_view (bool, optional): whether gradients become views of their bucket instead of copies.
            Default: False.
        static_graph (bool, optional): buckets are always the same.
        unknown (object): nothing: another name is an error.

    Raises:
        ValueError: no parameter needs a gradient, several devices are named, or this process is not in the group.
        TypeError: there is no argument of a name.
        DistBackendError: the processes' modules differ.

    Example:
        >>> import lucid.distributed as dist
        >>> from lucid.nn.parallel import DistributedDataParallel as DDP
        >>> dist.init_process_group("gloo", init_method="tcp://127.0.0.1:0", rank=0, world_size=1)
        >>> model = DDP(lucid.nn.Linear(3, 2))
        >>> model(lucid.ones(1, 3)).sum().backward()
        >>> tuple(model.module.weight.grad.shape)
        (2, 3)
        >>> dist.destroy_process_group()
    """

    def __init__(
        self,
        module: Module,
        device_ids: Sequence[Any] | None = None,
        output_device: Any = None,
        dim: int = 0,
        broadcast_buffers: bool = True,
        init_sync: bool = True,
        process_group: Any = None,
        bucket_cap_mb: float | None = None,
        find_unused_parameters: bool = False,
        check_reduction: bool = False,
        gradient_as_bucket_view: bool = False,
        static_graph: bool = False,
        **unknown: Any,
    ) -> None:
        warn_without_effect("DistributedDataParallel", "inputs are not split here", dim=dim != 0)
        super().__init__()
        from lucid.distributed import _state

        if unknown:
            raise errors.TypeError(f"DistributedDataParallel: there is no argument {', '.join(unknown)}")
        if device_ids is not None and len(device_ids) > 1:
            raise errors.ValueError("DistributedDataParallel: device_ids names several devices; a process has one")
        group = _state.resolve(process_group, "DistributedDataParallel")
        if group is None:
            raise errors.ValueError("DistributedDataParallel: this process is not in the group")
        named = [(n, p) for n, p in module.named_parameters() if p.requires_grad]
        self.__dict__["_ignored"] = set(getattr(module, "_ddp_params_and_buffers_to_ignore", ()))
        named = [(n, p) for n, p in named if n not in self._ignored]
        if not named:
            raise errors.ValueError(
                "DistributedDataParallel is not needed when a module doesn't have any parameters that require a "
                "gradient."
            )
        self.module = module
        self.device_ids, self.output_device, self.dim = device_ids, output_device, dim
        self.process_group = group
        self.broadcast_buffers = broadcast_buffers
        self.find_unused_parameters = find_unused_parameters
        self.gradient_as_bucket_view = gradient_as_bucket_view
        self.static_graph = static_graph
        self.require_backward_grad_sync = True
        self.bucket_bytes_cap = int((25 if bucket_cap_mb is None else bucket_cap_mb) * (1 << 20))
        self._hook: tuple[Any, Callable[[Any, GradBucket], Any]] | None = None
        names = {id(p): n for n, p in named}
        params = [p for _, p in named]
        self.__dict__["_names"] = names
        self.__dict__.update(_join=None, _sync=True, _works=[], _used=set())
        self.__dict__["_buckets"] = self._split(params)
        self.__dict__["_ready"] = [set() for _ in self._buckets]
        self.__dict__["_place"] = {id(p): b for b, bucket in enumerate(self._buckets) for p in bucket}
        if init_sync:
            self._verify()
            self._send_state(list(module.parameters()) + self._shared_buffers())
        self._reset()
        for p in params:
            p.register_post_accumulate_grad_hook(self._arrived)

    def _split(self, params: Sequence[Tensor]) -> list[list[Tensor]]:
        buckets: list[list[Tensor]] = []
        open_: dict[Any, tuple[list[Tensor], int]] = {}
        for p in reversed(params):
            kind = (p.dtype, p.device)
            size = p.numel() * p.element_size()
            bucket, held = open_.get(kind, ([], 0))
            cap = min(FIRST_BUCKET, self.bucket_bytes_cap) if bucket and bucket is buckets[0] else self.bucket_bytes_cap
            if not bucket or held + size > cap:
                bucket, held = [], 0
                buckets.append(bucket)
            bucket.append(p)
            open_[kind] = (bucket, held + size)
        return buckets

    def _shared_buffers(self) -> list[Tensor]:
        return [b for n, b in self.module.named_buffers() if n not in self._ignored]

    def _verify(self) -> None:
        from lucid.distributed import all_gather_object

        own = [(n, str(p.dtype), tuple(p.shape)) for n, p in self.module.named_parameters()]
        seen: list[Any] = [None] * self.process_group.size()
        all_gather_object(seen, own, self.process_group)
        for rank, other in enumerate(seen):
            if other != own:
                odd = next((a, b) for a, b in zip([*own, None], [*other, None], strict=False) if a != b)
                raise errors.DistBackendError(
                    f"DistributedDataParallel: the modules of ranks {self.process_group.rank()} and {rank} of the "
                    "group differ: "
                    f"{odd[0]} and {odd[1]}"
                )

    def _send_state(self, tensors: list[Tensor], source: int = 0) -> None:
        """Overwrites the tensors by those of a rank; those of one dtype and device travel as one."""
        kinds: dict[Any, list[Tensor]] = {}
        for t in tensors:
            kinds.setdefault((str(t.dtype), str(t.device)), []).append(t.detach())
        with lucid.no_grad():
            for same in kinds.values():
                flat = lucid.cat([t.reshape(-1) for t in same])
                group = self.process_group
                group.native.begin("broadcast", flat, "SUM", source, flat, group.timeout, True).wait()
                at = 0
                for t in same:
                    t.copy_(flat[at : at + t.numel()].reshape(t.shape))
                    at += t.numel()

    def _reset(self) -> None:
        # The same objects each time, for compiled functions that compare them.
        for ready in self._ready:
            ready.clear()
        self._works.clear()
        self._used.clear()
        self.__dict__["_queued"] = False

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        """What the module makes of the same arguments."""
        sync = lucid.is_grad_enabled() and self.require_backward_grad_sync
        self.__dict__["_sync"] = sync
        if sync:
            # What an earlier pass left behind, which an error ended.
            self._reset()
        shares = self.broadcast_buffers and self.training and self.require_backward_grad_sync
        if self._join is not None:
            self._join.announce(sync, shares)
        if shares:
            buffers = self._shared_buffers()
            if buffers:
                self._send_state(buffers, 0 if self._join is None else self._join.source)
        out = self.module(*inputs, **kwargs)
        if not sync:
            return out
        found: list[Tensor] = []

        def note(t: Tensor) -> Tensor:
            found.append(t)
            return t

        _visit(out, note)
        wanted = [t for t in found if t.requires_grad]
        if not wanted:
            return out
        passed = dict(zip(map(id, wanted), _Sink.apply(self, *wanted), strict=True))
        return _visit(out, lambda t: passed.get(id(t), t))

    def _begin_backward(self) -> None:
        if self._sync and not self._queued:
            self.__dict__["_queued"] = True
            _C._queue_callback(self._finish)

    def _arrived(self, p: Tensor) -> None:
        if not self._sync:
            return
        self._begin_backward()
        self._used.add(id(p))
        self._ready[self._place[id(p)]].add(id(p))
        # In the order of the buckets, which is the same everywhere.
        while len(self._works) < len(self._buckets):
            i = len(self._works)
            if len(self._ready[i]) < len(self._buckets[i]):
                return
            self._launch(i)

    def _launch(self, i: int) -> None:
        bucket = self._buckets[i]
        group = self.process_group
        with lucid.no_grad():
            parts = [
                p.grad.detach().reshape(-1)
                if p.grad is not None and id(p) in self._ready[i]
                else p.new_zeros(p.numel())
                for p in bucket
            ]
            flat = lucid.cat(parts) if len(parts) > 1 else parts[0].clone()
            if self._hook is None:
                flat = flat.div_(group.size() if self._join is None else self._join.divisor)
                self._works.append(group.native.begin("all_reduce", flat, "SUM", 0, flat, group.timeout))
            else:
                state, hook = self._hook
                self._works.append(hook(state, GradBucket(i, flat, bucket, i == len(self._buckets) - 1)))

    def _finish(self) -> None:
        """At the end of the backward pass: what did not come, then the results."""
        try:
            missing = [p for bucket in self._buckets for p in bucket if id(p) not in self._used]
            if missing and not self.find_unused_parameters:
                names = ", ".join(self._names[id(p)] for p in missing)
                raise errors.RuntimeError(
                    f"DistributedDataParallel: the loss does not depend on {names}; pass "
                    "find_unused_parameters=True, or use "
                    "them in the forward pass"
                )
            unused: set[int] = set()
            for i in range(len(self._works), len(self._buckets)):
                self._launch(i)
            if self.find_unused_parameters:
                group = self.process_group
                every = [p for bucket in self._buckets for p in bucket]
                flags = lucid.tensor([id(p) in self._used for p in every], dtype=lucid.uint8, device="cpu")
                seen = group.native.begin("all_reduce", flags, "MAX", 0, None, group.timeout).wait().tolist()
                unused = {id(p) for p, used in zip(every, seen, strict=True) if not used}
            with lucid.no_grad():
                for bucket, work in zip(self._buckets, self._works, strict=True):
                    flat = work.wait()
                    flat = flat[0] if isinstance(flat, (list, tuple)) else flat
                    at = 0
                    for p in bucket:
                        part = flat[at : at + p.numel()].view(p.shape)
                        at += p.numel()
                        if id(p) in unused:
                            continue
                        if p.grad is None or self.gradient_as_bucket_view:
                            p.grad = part
                        else:
                            p.grad.detach().copy_(part)
        finally:
            self._reset()

    def _shadow(self, sync: bool, shares: bool) -> None:
        """A pass of this process that has no inputs any more, for the sake of those that have."""
        if shares and self._join is not None and (buffers := self._shared_buffers()):
            self._send_state(buffers, self._join.source)
        if not sync:
            return
        self._reset()
        try:
            for i in range(len(self._buckets)):
                self._launch(i)
            if self.find_unused_parameters:
                count = sum(len(bucket) for bucket in self._buckets)
                flags = lucid.zeros(count, dtype=lucid.uint8, device="cpu")
                group = self.process_group
                group.native.begin("all_reduce", flags, "MAX", 0, None, group.timeout).wait()
            for work in self._works:
                work.wait()
        finally:
            self._reset()

    @contextlib.contextmanager
    def join(
        self,
        divide_by_initial_world_size: bool = True,
        enable: bool = True,
        throw_on_early_termination: bool = False,
    ) -> Iterator[None]:
        """A block in which processes may have different numbers of inputs.

        One that has left its loop takes part in the others' passes with gradients of zero, until all have left theirs;
        then all take the parameters and buffers of a process that went on longest.

        Args:
            divide_by_initial_world_size: Whether sums of gradients are divided by the number of all processes, rather
                than by that of those which still have inputs.
            enable: Whether the block does anything.
            throw_on_early_termination: Whether it is an error on all processes when one has no inputs any more.

        Raises:
            RuntimeError: One has none, with `throw_on_early_termination`.
        """
        if not enable or self.process_group.size() == 1:
            yield
            return
        joined = _Join(self.process_group, divide_by_initial_world_size, throw_on_early_termination)
        self.__dict__["_join"] = joined
        try:
            yield
            last = True
            while (going := joined.look())[0]:
                last = False
                if throw_on_early_termination:
                    raise errors.RuntimeError(_ENDED_EARLY)
                self._shadow(*going[1:])
            self._send_state([*self.module.parameters(), *self._shared_buffers()], joined.longest(last))
        finally:
            self.__dict__["_join"] = None

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """A block whose passes keep their gradients for themselves; the first one after it sends the sums."""
        former = self.require_backward_grad_sync
        self.require_backward_grad_sync = False
        try:
            yield
        finally:
            self.require_backward_grad_sync = former

    def register_comm_hook(self, state: Any, hook: Callable[[Any, GradBucket], Any]) -> None:
        """Has `hook(state, bucket)` send gradients, instead of an all-reduce.

        It returns a future, or a `Work`, of the vector that the bucket's gradients become: their mean, not their sum.
        Hooks as in PyTorch are in `lucid.distributed.algorithms.ddp_comm_hooks.default_hooks`.
        """
        if not callable(hook):
            raise errors.TypeError("register_comm_hook: the hook must be callable")
        if self._hook is not None:
            raise errors.RuntimeError("register_comm_hook can only be called once.")
        self._hook = (state, hook)
