"""`ZeroRedundancyOptimizer`: each process keeps the optimizer's state for its share of the parameters."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import lucid
from lucid import Tensor, errors
from lucid.distributed._objects import _gathered
from lucid.distributed._state import resolve
from lucid.distributed.optim._post_local_sgd import DistributedOptimizer as DistributedOptimizer
from lucid.distributed.optim._post_local_sgd import PostLocalSGDOptimizer as PostLocalSGDOptimizer
from lucid.optim import Optimizer

__all__ = ["DistributedOptimizer", "PostLocalSGDOptimizer", "ZeroRedundancyOptimizer"]


class ZeroRedundancyOptimizer(Optimizer):
    """An optimizer whose state is divided among the processes: each steps its share of the parameters and sends them to
    all.

    Gradients have to be the same on every process, as `DistributedDataParallel` makes them.

    Args:
        params (iterable of Parameter or dict): the parameters, or groups of them, in the same order on every process.
        optimizer_class (type): the optimizer that steps the share, such as `lucid.optim.Adam`.
        process_group (ProcessGroup, optional): the group; default: all processes of the job.
        parameters_as_bucket_view (bool, optional): parameters of one owner and dtype travel together in any case.
        overlap_with_ddp (bool, optional): must be False. Default: False.
        defaults (object): the optimizer's options, by name.

    Raises:
        NotImplementedError: `overlap_with_ddp` is True.
        ValueError: this process is not in the group.

    Example:
        >>> import lucid.distributed as dist
        >>> from lucid.distributed.optim import ZeroRedundancyOptimizer
        >>> dist.init_process_group(init_method="tcp://127.0.0.1:0", rank=0, world_size=1)
        >>> weight = lucid.nn.Parameter(lucid.ones(2))
        >>> optimizer = ZeroRedundancyOptimizer([weight], lucid.optim.SGD, lr=0.5)
        >>> weight.sum().backward()
        >>> optimizer.step()
        >>> weight.detach()
        tensor([0.5000, 0.5000])
        >>> dist.destroy_process_group()

    Reference:
        Rajbhandari et al., ZeRO: Memory Optimizations Toward Training Trillion Parameter Models, 2020 (stage 1).
    """

    def __init__(
        self,
        params: Iterable[Any],
        optimizer_class: Callable[..., Optimizer],
        process_group: Any = None,
        parameters_as_bucket_view: bool = False,
        overlap_with_ddp: bool = False,
        **defaults: Any,
    ) -> None:
        if overlap_with_ddp:
            raise errors.NotImplementedError("ZeroRedundancyOptimizer: overlap_with_ddp must be False")
        found = resolve(process_group, "ZeroRedundancyOptimizer")
        if found is None:
            raise errors.ValueError("ZeroRedundancyOptimizer: this process is not in the group")
        self.process_group = found
        self._made = False
        super().__init__(params, defaults)
        n, rank = found.size(), found.rank()
        loads = [0] * n
        self._owner: dict[int, int] = {}
        every = [p for g in self.param_groups for p in g["params"]]
        for p in sorted(every, key=lambda p: -p.numel()):
            to = loads.index(min(loads))
            loads[to] += p.numel()
            self._owner[id(p)] = to
        own = []
        for g in self.param_groups:
            mine = [p for p in g["params"] if self._owner[id(p)] == rank]
            own.append({**{k: v for k, v in g.items() if k != "params"}, "params": mine})
        # A process whose share is empty steps nothing.
        self._places = [i for i, g in enumerate(own) if g["params"]]
        self.optim = optimizer_class([own[i] for i in self._places], **defaults) if self._places else None
        for place, g in zip(self._places, self.optim.param_groups if self.optim else (), strict=True):
            for key, value in g.items():
                self.param_groups[place].setdefault(key, value)
        self._everywhere()
        self._all_states: list[Any] | None = None
        self._made = True

    def _everywhere(self) -> None:
        """Options that the inner optimizer added, on processes that have no share, too."""
        options = [{k: v for k, v in g.items() if k != "params"} for g in self.param_groups]
        for other in _gathered(self.process_group, options):
            for g, more in zip(self.param_groups, other, strict=True):
                for key, value in more.items():
                    g.setdefault(key, value)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Groups are given at construction."""
        if self._made:
            raise errors.NotImplementedError("ZeroRedundancyOptimizer: give all groups of parameters at construction")
        super().add_param_group(param_group)

    def step(self, closure: Any = None, **kwargs: Any) -> Any:
        """Steps this process's share, and sends every parameter from its owner to all."""
        loss = None
        if closure is not None:
            with lucid.enable_grad():
                loss = closure()
        if self.optim is not None:
            # A scheduler changes the outer groups.
            for place, g in zip(self._places, self.optim.param_groups, strict=True):
                g.update({k: v for k, v in self.param_groups[place].items() if k != "params"})
            self.optim.step(**kwargs)
        with lucid.no_grad():
            self._send()
        return loss

    def _send(self) -> None:
        group = self.process_group
        kinds: dict[Any, list[Tensor]] = {}
        for g in self.param_groups:
            for p in g["params"]:
                kinds.setdefault((self._owner[id(p)], str(p.dtype), str(p.device)), []).append(p.detach())
        works = []
        for (owner, *_), same in kinds.items():
            flat = lucid.cat([p.reshape(-1) for p in same])
            works.append((group.native.begin("broadcast", flat, "SUM", owner, None, group.timeout), same, owner))
        for work, same, owner in works:
            flat, at = work.wait(), 0
            for p in same:
                if owner != group.rank():
                    p.copy_(flat[at : at + p.numel()].reshape(p.shape))
                at += p.numel()

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forgets all gradients, not those of the share alone."""
        super().zero_grad(set_to_none)

    def _numbers(self) -> dict[int, int]:
        return {id(p): i for i, p in enumerate(p for g in self.param_groups for p in g["params"])}

    def consolidate_state_dict(self, to: int = 0) -> None:
        """Gathers all shares of the state on rank `to`; every process calls it, before `state_dict`."""
        numbers = self._numbers()
        own = {numbers[id(p)]: s for p, s in (self.optim.state.items() if self.optim else ())}
        gathered = _gathered(self.process_group, own)
        self._all_states = gathered if self.process_group.ranks[self.process_group.rank()] == to else None

    def state_dict(self) -> dict[str, Any]:
        """The whole state, as the inner optimizer of one process would have it, on the rank of
        `consolidate_state_dict`.

        Raises:
            RuntimeError: elsewhere, or before it.
        """
        if self._all_states is None:
            raise errors.RuntimeError(
                "Optimizer state has not been consolidated on this rank. Please call "
                "`consolidate_state_dict(to=rank)` on all "
                "ranks beforehand if you meant to save the global state."
            )
        numbers = self._numbers()
        groups = [{**g, "params": [numbers[id(p)] for p in g["params"]]} for g in self.param_groups]
        state = {i: s for share in self._all_states for i, s in share.items()}
        return {"state": dict(sorted(state.items())), "param_groups": groups}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Loads a whole state; each process keeps its share."""
        every = [p for g in self.param_groups for p in g["params"]]
        for g, other in zip(self.param_groups, state_dict["param_groups"], strict=True):
            g.update({k: v for k, v in other.items() if k != "params"})
        if self.optim is None:
            return
        numbers = self._numbers()
        inner = self.optim.state_dict()
        mine = [p for g in self.optim.param_groups for p in g["params"]]
        inner["state"] = {
            i: state_dict["state"][numbers[id(p)]] for i, p in enumerate(mine) if numbers[id(p)] in state_dict["state"]
        }
        for place, g in zip(self._places, inner["param_groups"], strict=True):
            g.update({k: v for k, v in state_dict["param_groups"][place].items() if k != "params"})
        assert len(every) == len(numbers)
        self.optim.load_state_dict(inner)
