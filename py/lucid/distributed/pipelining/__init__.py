"""Pipelines: stages of a model on different processes, which work on different parts of a batch at the same time."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator
from typing import Any

import lucid
from lucid import Tensor, errors
from lucid.distributed._messages import irecv, isend
from lucid.distributed._objects import recv_object_list, send_object_list
from lucid.distributed._state import resolve
from lucid.distributed._work import Work
from lucid.nn.modules.module import Module

__all__ = ["PipelineStage", "Schedule1F1B", "ScheduleGPipe", "SplitPoint", "pipeline"]


class PipelineStage:
    """One stage of a pipeline: a module and its place among the stages. Stage `i` runs on member `i` of the group.

    Args:
        submodule (Module): what the stage computes: from one tensor or several to one tensor or a tuple of them.
        stage_index (int): this stage's place, from 0; it must be this process's rank in the group.
        num_stages (int): how many stages there are; it must be the group's size.
        device (device or str, optional): where it computes and receives. Default: `"cpu"`.
        group (ProcessGroup, optional): default: all processes of the job.

    Raises:
        ValueError: the group has another size, or this process another rank in it.

    Example:
        >>> import lucid.distributed as dist
        >>> from lucid.distributed.pipelining import PipelineStage
        >>> dist.init_process_group(init_method="tcp://127.0.0.1:0", rank=0, world_size=1)
        >>> stage = PipelineStage(lucid.nn.Linear(4, 2), stage_index=0, num_stages=1)
        >>> stage.is_first, stage.is_last
        (True, True)
        >>> dist.destroy_process_group()
    """

    def __init__(
        self, submodule: Module, stage_index: int, num_stages: int, device: Any = "cpu", group: Any = None
    ) -> None:
        found = resolve(group, "PipelineStage")
        if found is None or found.size() != num_stages:
            raise errors.ValueError(f"PipelineStage: {num_stages} stages need a group of as many processes")
        if found.rank() != stage_index:
            raise errors.ValueError(
                f"PipelineStage: stage {stage_index} belongs to member {stage_index} of the group, this is "
                f"member {found.rank()}"
            )
        self.submod, self.stage_index, self.num_stages = submodule, stage_index, num_stages
        self.device, self.group = lucid.device(device) if isinstance(device, str) else device, found
        self.is_first, self.is_last = stage_index == 0, stage_index == num_stages - 1
        self._sizes: list[tuple[tuple[int, ...], str, bool]] | None = None
        self._told = False
        self._kept: dict[int, tuple[list[Tensor], list[Tensor]]] = {}
        self._sent: list[Work | None] = []

    def _neighbour(self, step: int) -> int:
        return self.group.ranks[self.stage_index + step]

    def forward_one(self, i: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Computes part `i` of the batch, of what the stage before sends, and sends it on."""
        if not self.is_first:
            args = tuple(self._receive())
        out = self.submod(*args, **kwargs)
        outs = [out] if isinstance(out, Tensor) else list(out)
        inputs = [a for a in args if isinstance(a, Tensor) and a.requires_grad] if not self.is_first else []
        self._kept[i] = (inputs, outs)
        if not self.is_last:
            if not self._told:
                # Shapes are told once, by the first part.
                send_object_list([[(tuple(t.shape), str(t.dtype), t.requires_grad) for t in outs]], self._neighbour(1))
                self._told = True
            self._sent += [isend(t.detach().clone(), self._neighbour(1)) for t in outs]
        return out

    def _receive(self) -> list[Tensor]:
        if self._sizes is None:
            told: list[Any] = [None]
            recv_object_list(told, self._neighbour(-1))
            self._sizes = told[0]
        got, works = [], []
        for shape, dtype, _ in self._sizes:
            t = lucid.zeros(shape, dtype=getattr(lucid, dtype.removeprefix("lucid.")), device=self.device)
            works.append(irecv(t, self._neighbour(-1)))
            got.append(t)
        for work in works:
            if work is not None:
                work.wait()
        for t, (*_, wants) in zip(got, self._sizes, strict=True):
            t.requires_grad_(wants)
        return got

    def backward_one(self, i: int, loss: Tensor | None, scale: float = 1.0) -> None:
        """The gradients of part `i`: of its loss on the last stage, of what the next stage sends elsewhere."""
        inputs, outs = self._kept.pop(i)
        if self.is_last:
            assert loss is not None
            (loss * scale).backward()
        else:
            wanted = [t for t in outs if t.requires_grad]
            grads = [lucid.zeros_like(t.detach()) for t in wanted]
            works = [irecv(g, self._neighbour(1)) for g in grads]
            for work in works:
                if work is not None:
                    work.wait()
            lucid.autograd.backward(wanted, grads)
        if not self.is_first:
            for t in inputs:
                g = t.grad if t.grad is not None else lucid.zeros_like(t.detach())
                self._sent.append(isend(g.detach().clone(), self._neighbour(-1)))

    def drop(self, i: int) -> None:
        """Forgets part `i` of a pass without gradients."""
        self._kept.pop(i, None)

    def settle(self) -> None:
        """Waits until everything that was sent has arrived."""
        sent, self._sent = self._sent, []
        for work in sent:
            if work is not None:
                work.wait()


class _Schedule:
    """Splits a batch, and runs its parts through the stages.

    Args:
        stage: This process's stage.
        n_microbatches: Into how many parts batches are split, along the first dimension.
        loss_fn: `loss_fn(output, target)`, needed for gradients; on the last stage it is called.
        scale_grads: Whether gradients are divided by the number of parts, so that with a loss that is a mean they are
            those of the whole batch.
    """

    def __init__(
        self,
        stage: PipelineStage,
        n_microbatches: int,
        loss_fn: Callable[[Any, Any], Tensor] | None = None,
        args_chunk_spec: Any = None,
        kwargs_chunk_spec: Any = None,
        output_merge_spec: Any = None,
        scale_grads: bool = True,
    ) -> None:
        if args_chunk_spec is not None or kwargs_chunk_spec is not None or output_merge_spec is not None:
            raise errors.NotImplementedError("pipelining: batches are split, and joined, along the first dimension")
        if n_microbatches < 1:
            raise errors.ValueError(f"pipelining: {n_microbatches} microbatches")
        self._stage, self._n, self._loss_fn, self._scale = stage, n_microbatches, loss_fn, scale_grads

    def _order(self, backward: bool) -> Iterator[tuple[str, int]]:
        raise NotImplementedError

    def _split(self, value: Any) -> list[Any]:
        if not isinstance(value, Tensor):
            return [value] * self._n
        if value.shape[0] % self._n:
            raise errors.ValueError(
                f"pipelining: a batch of {value.shape[0]} does not split into {self._n} equal parts"
            )
        return list(value.chunk(self._n))

    def step(self, *args: Any, target: Any = None, losses: list[Tensor] | None = None, **kwargs: Any) -> Any:
        """Runs a batch forward, and with a `loss_fn` backward.

        Args:
            args: The batch, on the first stage; others give nothing.
            target: What the loss function compares with, on the last stage.
            losses: A list that gets the parts' losses, on the last stage.

        Returns:
            The outputs, joined, on the last stage; None elsewhere.
        """
        stage = self._stage
        if args and not stage.is_first:
            raise errors.ValueError("pipelining: the first stage gives the batch, the others get what it makes")
        backward = self._loss_fn is not None and lucid.is_grad_enabled()
        columns = [self._split(a) for a in args]
        named = {k: self._split(v) for k, v in kwargs.items()}
        targets = self._split(target) if target is not None else [None] * self._n
        outs: list[Any] = [None] * self._n
        own: list[Any] = [None] * self._n
        for kind, i in self._order(backward):
            if kind == "F":
                outs[i] = stage.forward_one(i, tuple(c[i] for c in columns), {k: v[i] for k, v in named.items()})
                if stage.is_last and self._loss_fn is not None:
                    own[i] = self._loss_fn(outs[i], targets[i])
                if not backward:
                    stage.drop(i)
            else:
                stage.backward_one(i, own[i], 1.0 / self._n if self._scale else 1.0)
        stage.settle()
        if not stage.is_last:
            return None
        if losses is not None and self._loss_fn is not None:
            losses[:] = [loss.detach() for loss in own]
        if isinstance(outs[0], Tensor):
            return lucid.cat([o.detach() if backward else o for o in outs])
        return tuple(lucid.cat([o[j] for o in outs]) for j in range(len(outs[0])))


class ScheduleGPipe(_Schedule):
    """Runs batches through a pipeline: all parts of a batch forward, then all parts backward.

    Args:
        stage (PipelineStage): what this process computes.
        n_microbatches (int): into how many parts a batch is split, along its first dimension.
        loss_fn (callable, optional): `loss_fn(output, target)`, called on the last stage; needed for gradients.
        args_chunk_spec (object, optional): must be None: positional inputs are split along the first dimension.
        kwargs_chunk_spec (object, optional): must be None: named inputs are split along the first dimension.
        output_merge_spec (object, optional): must be None: outputs are concatenated along the first dimension.
        scale_grads (bool, optional): whether gradients are divided by the number of parts, so that with a loss that is
            a mean they are those of the whole batch. Default: True.

    Raises:
        NotImplementedError: one of the three specs is given.
        ValueError: `n_microbatches` is less than 1.

    Example:
        >>> import lucid.distributed as dist
        >>> from lucid.distributed.pipelining import PipelineStage, ScheduleGPipe
        >>> dist.init_process_group(init_method="tcp://127.0.0.1:0", rank=0, world_size=1)
        >>> stage = PipelineStage(lucid.nn.Linear(4, 2), stage_index=0, num_stages=1)
        >>> schedule = ScheduleGPipe(stage, n_microbatches=2, loss_fn=lucid.nn.MSELoss())
        >>> losses = []
        >>> schedule.step(lucid.ones(6, 4), target=lucid.zeros(6, 2), losses=losses).shape
        lucid.Size([6, 2])
        >>> len(losses)
        2
        >>> dist.destroy_process_group()

    Reference:
        Huang et al., GPipe: Efficient Training of Giant Neural Networks using Pipeline Parallelism, 2019.
    """

    def _order(self, backward: bool) -> Iterator[tuple[str, int]]:
        yield from (("F", i) for i in range(self._n))
        if backward:
            yield from (("B", i) for i in range(self._n))


class Schedule1F1B(_Schedule):
    """Runs batches through a pipeline: alternates parts forward and parts backward once it is full.

    A stage then holds the saved tensors of at most as many parts as stages follow it.

    Args:
        stage (PipelineStage): what this process computes.
        n_microbatches (int): into how many parts a batch is split, along its first dimension.
        loss_fn (callable, optional): `loss_fn(output, target)`, called on the last stage; needed for gradients.
        args_chunk_spec (object, optional): must be None: positional inputs are split along the first dimension.
        kwargs_chunk_spec (object, optional): must be None: named inputs are split along the first dimension.
        output_merge_spec (object, optional): must be None: outputs are concatenated along the first dimension.
        scale_grads (bool, optional): whether gradients are divided by the number of parts, so that with a loss that is
            a mean they are those of the whole batch. Default: True.

    Raises:
        NotImplementedError: one of the three specs is given.
        ValueError: `n_microbatches` is less than 1.

    Example:
        >>> import lucid.distributed as dist
        >>> from lucid.distributed.pipelining import PipelineStage, Schedule1F1B
        >>> dist.init_process_group(init_method="tcp://127.0.0.1:0", rank=0, world_size=1)
        >>> stage = PipelineStage(lucid.nn.Linear(4, 2), stage_index=0, num_stages=1)
        >>> schedule = Schedule1F1B(stage, n_microbatches=3, loss_fn=lucid.nn.MSELoss())
        >>> schedule.step(lucid.ones(6, 4), target=lucid.zeros(6, 2)).shape
        lucid.Size([6, 2])
        >>> dist.destroy_process_group()

    Reference:
        Narayanan et al., PipeDream: Generalized Pipeline Parallelism for DNN Training, 2019.
    """

    def _order(self, backward: bool) -> Iterator[tuple[str, int]]:
        if not backward:
            yield from (("F", i) for i in range(self._n))
            return
        ahead = min(self._stage.num_stages - self._stage.stage_index - 1, self._n)
        yield from (("F", i) for i in range(ahead))
        for i in range(self._n - ahead):
            yield "F", ahead + i
            yield "B", i
        yield from (("B", i) for i in range(self._n - ahead, self._n))


class SplitPoint(enum.Enum):
    """Where `pipeline` would split a model: before or after a module."""

    BEGINNING = 1
    END = 2


def pipeline(
    module: Module,
    mb_args: tuple[Any, ...],
    mb_kwargs: dict[str, Any] | None = None,
    split_spec: dict[str, SplitPoint] | None = None,
    split_policy: Callable[..., Any] | None = None,
) -> Any:
    """Splits a model into stages from a trace, in PyTorch. Here stages are modules that the program makes.

    Args:
        module (Module): the model.
        mb_args (tuple): the arguments of a part of a batch.
        mb_kwargs (dict, optional): those by name.
        split_spec (dict, optional): by path of a module where to split.
        split_policy (callable, optional): a function that splits.

    Returns:
        Nothing.

    Raises:
        NotImplementedError: always; give each process its part of the model as a `PipelineStage`.

    Example:
        >>> lucid.distributed.pipelining.pipeline(lucid.nn.Linear(2, 2), (lucid.ones(1, 2),))
        Traceback (most recent call last):
        ...
        lucid.errors.NotImplementedError: pipeline: models are not split by a trace; make each part a PipelineStage
    """
    raise errors.NotImplementedError("pipeline: models are not split by a trace; make each part a PipelineStage")
