"""Averages of a model's weights over training: `AveragedModel`, its averages, its schedule, and batch norm's part."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy
from typing import Any, Literal

import lucid
from lucid import Tensor, errors
from lucid.nn import Module
from lucid.optim.lr_scheduler import LRScheduler, per_group
from lucid.optim.optimizer import Optimizer

__all__ = [
    "SWALR",
    "AveragedModel",
    "get_ema_avg_fn",
    "get_ema_multi_avg_fn",
    "get_swa_avg_fn",
    "get_swa_multi_avg_fn",
    "update_bn",
]

# The new average of one tensor, from the old one, the model's, and how many went in; or of many, in place.
_One = Callable[[Tensor, Tensor, Any], Tensor]
_Many = Callable[[Sequence[Tensor], Sequence[Tensor], Any], None]


def _in_place(average: _One) -> _Many:
    def update(averaged: Sequence[Tensor], current: Sequence[Tensor], count: Any) -> None:
        with lucid.no_grad():
            for mean, new in zip(averaged, current, strict=True):
                # Integers are averaged as PyTorch does: what the formula gives is cut off.
                mean.copy_(average(mean, new, count).to(mean.dtype))

    return update


def get_ema_avg_fn(decay: float = 0.999) -> _One:
    """An exponential average: `decay · mean + (1 - decay) · new`.

    Args:
        decay (float, default: 0.999): the share of the old average, within 0 to 1.

    Returns:
        callable: takes the average, the new value and the number of averaged models.

    Raises:
        ValueError: `decay` is not within 0 to 1.

    Example:
        >>> average = lucid.optim.swa_utils.get_ema_avg_fn(0.5)
        >>> average(lucid.zeros(1), lucid.ones(1), 1)
        tensor([0.5000])
    """
    if not 0.0 <= decay <= 1.0:
        raise errors.ValueError(f"Invalid decay value {decay} provided. Please provide a value in [0,1] range.")

    def update(mean: Tensor, new: Tensor, count: Any) -> Tensor:
        with lucid.no_grad():
            average: Tensor = mean * decay + new * (1 - decay)
            return average

    return update


def get_ema_multi_avg_fn(decay: float = 0.999) -> _Many:
    """`get_ema_avg_fn` for lists of tensors, in place.

    Args:
        decay (float, default: 0.999): the share of the old average, within 0 to 1.

    Returns:
        callable: takes the averages, the new values and the number of averaged models.

    Raises:
        ValueError: `decay` is not within 0 to 1.

    Example:
        >>> means = [lucid.zeros(1)]
        >>> lucid.optim.swa_utils.get_ema_multi_avg_fn(0.5)(means, [lucid.ones(1)], 1)
        >>> means
        [tensor([0.5000])]
    """
    return _in_place(get_ema_avg_fn(decay))


def get_swa_avg_fn() -> _One:
    """The plain average: `mean + (new - mean) / (count + 1)`."""

    def update(mean: Tensor, new: Tensor, count: Any) -> Tensor:
        with lucid.no_grad():
            average: Tensor = mean + (new - mean) / (count + 1)
            return average

    return update


def get_swa_multi_avg_fn() -> _Many:
    """`get_swa_avg_fn` for lists of tensors, in place."""
    return _in_place(get_swa_avg_fn())


class AveragedModel(Module):
    """A copy of a model that holds the average of its weights (Izmailov et al., 2018).

    Args:
        model (Module): What is averaged; it is copied.
        device (lucid.device or str, optional): Where the copy is kept.
        avg_fn (_One, optional): New average of a tensor by `avg_fn(averaged, current, num_averaged)`.
        multi_avg_fn (_Many, optional): The same for lists, in place.
        use_buffers (bool, default: False): Average buffers too, rather than copying them.

    Raises:
        AssertionError: both functions are given.

    Example:
        >>> from lucid import nn
        >>> layer = nn.Linear(1, 1)
        >>> mean = lucid.optim.swa_utils.AveragedModel(layer)
        >>> mean.update_parameters(layer)
        >>> mean.n_averaged
        tensor(1)
    """

    n_averaged: Tensor

    def __init__(
        self,
        model: Module,
        device: Any = None,
        avg_fn: _One | None = None,
        multi_avg_fn: _Many | None = None,
        use_buffers: bool = False,
    ) -> None:
        super().__init__()
        if avg_fn is not None and multi_avg_fn is not None:
            raise AssertionError("Only one of avg_fn and multi_avg_fn should be provided")
        self.module = deepcopy(model)
        if device is not None:
            self.module = self.module.to(device)
        self.register_buffer("n_averaged", lucid.tensor(0, dtype=lucid.int64, device=device))
        self.avg_fn = avg_fn
        self.multi_avg_fn = multi_avg_fn
        self.use_buffers = use_buffers

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The averaged model's output."""
        return self.module(*args, **kwargs)

    def _averaged(self, model: Module) -> list[Tensor]:
        tensors: Iterable[Tensor] = model.parameters()
        if self.use_buffers:
            tensors = itertools.chain(tensors, model.buffers())
        return [tensor.detach() for tensor in tensors]

    def update_parameters(self, model: Module) -> None:
        """Takes the model's weights into the average."""
        means = self._averaged(self.module)
        news = [new.to(mean.device) for mean, new in zip(means, self._averaged(model), strict=True)]
        count = int(self.n_averaged.item())
        if count == 0:
            for mean, new in zip(means, news, strict=True):
                mean.copy_(new)
        elif means:
            one = self.avg_fn
            many = self.multi_avg_fn or (get_swa_multi_avg_fn() if one is None else _in_place(one))
            many(means, news, self.n_averaged.to(means[0].device))
        if not self.use_buffers:
            for mean, new in zip(self.module.buffers(), model.buffers(), strict=True):
                mean.detach().copy_(new.detach().to(mean.device))
        self.n_averaged += 1


def update_bn(loader: Iterable[Any], model: Module, device: Any = None) -> None:
    """Computes the running statistics of a model's batch norms anew, in one pass over the data.

    Each batch is a tensor, or a list or tuple that begins with one.

    Args:
        loader (Iterable[Any]): batches, each a tensor or a sequence that begins with one.
        model (Module): the model with the batch norms.
        device (lucid.device or str, optional): where batches are moved first.

    Example:
        >>> from lucid import nn
        >>> model = nn.BatchNorm1d(1)
        >>> lucid.optim.swa_utils.update_bn([lucid.tensor([[1.0], [3.0]])], model)
        >>> model.running_mean
        tensor([2.])
    """
    norms = [m for m in model.modules() if hasattr(m, "reset_running_stats") and hasattr(m, "momentum")]
    if not norms:
        return
    momenta = [norm.momentum for norm in norms]
    was_training = model.training
    model.train()
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None
    for batch in loader:
        x = batch[0] if isinstance(batch, (list, tuple)) else batch
        model(x if device is None else x.to(device))
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum
    model.train(was_training)


class SWALR(LRScheduler):
    """Moves the rate to `swa_lr` over `anneal_epochs`, where it stays.

    Args:
        optimizer (Optimizer): Whose rates are set.
        swa_lr (float): One rate, or one per group.
        anneal_epochs (int, default: 10): Default: 10.
        anneal_strategy (Literal['cos', 'linear'], default: "cos"): "cos" or "linear".
        last_epoch (int, default: -1): Where to go on; -1 starts anew.

    Raises:
        ValueError: another strategy, or a negative number of epochs.

    Example:
        >>> optimizer = lucid.optim.SGD([lucid.zeros(1)], lr=1.0)
        >>> scheduler = lucid.optim.swa_utils.SWALR(optimizer, swa_lr=0.1, anneal_epochs=2)
        >>> for _ in range(3):
        ...     optimizer.step()
        ...     scheduler.step()
        >>> scheduler.get_last_lr()
        [0.1]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        swa_lr: float,
        anneal_epochs: int = 10,
        anneal_strategy: Literal["cos", "linear"] = "cos",
        last_epoch: int = -1,
    ) -> None:
        for rate, group in zip(per_group("swa_lr", optimizer, swa_lr), optimizer.param_groups, strict=True):
            group["swa_lr"] = rate
        if anneal_strategy not in ("cos", "linear"):
            raise errors.ValueError(f"anneal_strategy must be one of 'cos' or 'linear', instead got {anneal_strategy}")
        self._anneal_strategy = anneal_strategy
        if not isinstance(anneal_epochs, int) or anneal_epochs < 0:
            raise errors.ValueError(f"anneal_epochs must be equal or greater than 0, got {anneal_epochs}")
        self.anneal_epochs = anneal_epochs
        super().__init__(optimizer, last_epoch)

    def _share(self, step: int) -> float:
        t = max(0.0, min(1.0, step / max(1, self.anneal_epochs)))
        return (1 - math.cos(math.pi * t)) / 2 if self._anneal_strategy == "cos" else t

    def get_lr(self) -> list[Any]:
        """The rates at the present step."""
        self._warn_unless_stepping()
        step = self._step_count - 1
        if self.anneal_epochs == 0:
            step = max(1, step)
        before, now = self._share(step - 1), self._share(step)
        values = []
        for group in self.optimizer.param_groups:
            target, rate = group["swa_lr"], group["lr"]
            start = target if before == 1 else (rate - before * target) / (1 - before)
            values.append(target * now + start * (1 - now))
        return values
