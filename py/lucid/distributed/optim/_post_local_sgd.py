"""An optimizer whose parameters are averaged after steps."""

from __future__ import annotations

import warnings
from typing import Any

from lucid import errors
from lucid.distributed.algorithms.model_averaging.averagers import ModelAverager
from lucid.optim import Optimizer


class PostLocalSGDOptimizer(Optimizer):
    """An optimizer that each process steps for itself, and whose parameters an averager averages after steps.

    Args:
        optim (Optimizer): the optimizer that steps.
        averager (ModelAverager): what averages, such as a `PeriodicModelAverager`.

    Example:
        >>> import lucid.distributed as dist
        >>> from lucid.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
        >>> from lucid.distributed.optim import PostLocalSGDOptimizer
        >>> dist.init_process_group(init_method="tcp://127.0.0.1:0", rank=0, world_size=1)
        >>> weight = lucid.nn.Parameter(lucid.ones(2))
        >>> inner = lucid.optim.SGD([weight], lr=0.5)
        >>> optimizer = PostLocalSGDOptimizer(inner, PeriodicModelAverager(period=4, warmup_steps=100))
        >>> weight.sum().backward()
        >>> optimizer.step()
        >>> weight.detach(), optimizer.state_dict()["step"]
        (tensor([0.5000, 0.5000]), 1)
        >>> dist.destroy_process_group()

    Reference:
        Lin et al., Don't Use Large Mini-Batches, Use Local SGD, 2020.
    """

    def __init__(self, optim: Optimizer, averager: ModelAverager) -> None:
        # The groups and the state are those of the optimizer inside.
        self.optim, self.averager = optim, averager
        self.param_groups = optim.param_groups

    @property
    def state(self) -> Any:  # type: ignore[override]
        """The state of the optimizer inside."""
        return self.optim.state

    def __repr__(self) -> str:
        return repr(self.optim)

    def state_dict(self) -> dict[str, Any]:
        """The state of the optimizer inside, and the averager's number of steps as `step`."""
        return {**self.optim.state_dict(), "step": self.averager.step}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Loads what `state_dict` gave; without `step` the averager begins anew, with a warning."""
        self.optim.load_state_dict({k: v for k, v in state_dict.items() if k != "step"})
        self.param_groups = self.optim.param_groups
        if "step" not in state_dict:
            warnings.warn(
                "Loaded state dict does not contain a step counter for an averager. Setting step counter to 0.",
                stacklevel=2,
            )
        self.averager.step = state_dict.get("step", 0)

    def step(self, closure: Any = None) -> Any:
        """Steps the optimizer inside, and lets the averager average."""
        loss = self.optim.step(closure) if closure is not None else self.optim.step()
        self.averager.average_parameters(self.param_groups)
        return loss

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forgets the gradients."""
        self.optim.zero_grad(set_to_none)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Adds a group to the optimizer inside."""
        self.optim.add_param_group(param_group)


class DistributedOptimizer:
    """An optimizer of parameters on other machines, which PyTorch reaches by remote calls; there are none here.

    Args:
        args (object): anything.
        kwargs (object): anything, by name.

    Raises:
        NotImplementedError: always; `ZeroRedundancyOptimizer` divides an optimizer's state among processes.

    Example:
        >>> try:
        ...     lucid.distributed.optim.DistributedOptimizer()
        ... except NotImplementedError as e:
        ...     print("no remote calls" in str(e))
        True
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise errors.NotImplementedError(
            "DistributedOptimizer: there are no remote calls (torch.distributed.rpc); ZeroRedundancyOptimizer divides "
            "an optimizer's state among processes"
        )
