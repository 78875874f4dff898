"""Local SGD after a while: gradients are averaged over all processes at first, and then within a subgroup alone.

Reference: Lin et al., Don't Use Large Mini-Batches, Use Local SGD, 2020.
"""

from __future__ import annotations

from typing import Any

from lucid import errors
from lucid.distributed.algorithms.ddp_comm_hooks.default_hooks import Reduced, allreduce_hook
from lucid.nn.data_parallel import GradBucket

__all__ = ["PostLocalSGDState", "post_localSGD_hook"]


class PostLocalSGDState:
    """What `post_localSGD_hook` keeps between backward passes.

    Args:
        process_group (object, optional): the group of the first passes; all processes where it is None.
        subgroup (object, optional): the group of the later ones, such as the processes of one machine.
        start_localSGD_iter (int): how many passes come first.
        post_local_gradient_allreduce (bool, default: True): whether gradients are averaged at all after these.

    Raises:
        ValueError: a negative number of passes.

    Example:
        >>> from lucid.distributed.algorithms.ddp_comm_hooks.post_localSGD_hook import PostLocalSGDState
        >>> PostLocalSGDState(process_group=None, subgroup=None, start_localSGD_iter=100).iter
        0
    """

    def __init__(
        self,
        process_group: Any,
        subgroup: Any,
        start_localSGD_iter: int,
        post_local_gradient_allreduce: bool = True,
    ) -> None:
        if start_localSGD_iter < 0:
            raise errors.ValueError("PostLocalSGDState: start_localSGD_iter must not be negative")
        self.process_group, self.subgroup = process_group, subgroup
        self.start_localSGD_iter = start_localSGD_iter
        self.post_local_gradient_allreduce = post_local_gradient_allreduce
        self.iter = 0

    def maybe_increase_iter(self, bucket: GradBucket) -> None:
        """Counts a pass, at its last bucket."""
        if bucket.is_last():
            self.iter += 1


class _Here:
    """A future of a vector that is there."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def wait(self) -> Any:
        """The vector."""
        return self._value

    value = wait

    def done(self) -> bool:
        """Is it there? It is."""
        return True


def post_localSGD_hook(state: PostLocalSGDState, bucket: GradBucket) -> Reduced | _Here:
    """The mean over all processes for the first passes, later over the subgroup, or of none.

    Parameters are to be averaged now and then: see `PeriodicModelAverager`.

    Args:
        state (PostLocalSGDState): when the change comes, and the groups.
        bucket (GradBucket): the gradients.

    Returns:
        A future of the mean, as long as the bucket's vector.

    Example:
        >>> import lucid.distributed as dist
        >>> from lucid.distributed.algorithms.ddp_comm_hooks.post_localSGD_hook import PostLocalSGDState
        >>> from lucid.distributed.algorithms.ddp_comm_hooks.post_localSGD_hook import post_localSGD_hook
        >>> dist.init_process_group(init_method="tcp://127.0.0.1:0", rank=0, world_size=1)
        >>> model = lucid.nn.parallel.DistributedDataParallel(lucid.nn.Linear(2, 1))
        >>> model.register_comm_hook(PostLocalSGDState(None, None, 100), post_localSGD_hook)
        >>> model(lucid.ones(1, 2)).sum().backward()
        >>> model.module.weight.grad
        tensor([[1., 1.]])
        >>> dist.destroy_process_group()
    """
    first = state.iter < state.start_localSGD_iter
    state.maybe_increase_iter(bucket)
    if first:
        return allreduce_hook(state.process_group, bucket)
    if not state.post_local_gradient_allreduce:
        return _Here(bucket.buffer())
    return allreduce_hook(state.subgroup, bucket)
