"""`DistributedSampler`: each of several processes sees its own share of a dataset."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import lucid
from lucid.utils.data.sampler import Sampler


class DistributedSampler(Sampler[Any]):
    """Every `num_replicas`-th index, from `rank` on, of one order that all replicas share.

    Args:
        dataset (Dataset): What has the length.
        num_replicas (int, optional): How many processes; the job's where it is None.
        rank (int, optional): Which of them this is, from 0; the job's where it is None.
        shuffle (bool, default: True): Whether the order is random: a permutation by `seed + epoch`. Call
            `set_epoch` before each epoch.
        seed (int, default: 0): The same in all processes.
        drop_last (bool, default: False): Whether the tail that does not divide evenly is left out; otherwise
            indices from the start fill it up.

    Raises:
        ValueError: `rank` is not below `num_replicas`.

    Example:
        >>> list(lucid.utils.data.DistributedSampler(range(6), num_replicas=2, rank=1, shuffle=False))
        [1, 3, 5]
    """

    def __init__(
        self,
        dataset: Any,
        num_replicas: int | None = None,
        rank: int | None = None,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
    ) -> None:
        if num_replicas is None or rank is None:
            from lucid import distributed as dist

            if not dist.is_initialized():
                raise RuntimeError(
                    "DistributedSampler: no job was initialised (init_process_group); pass num_replicas= and rank="
                )
            num_replicas = dist.get_world_size() if num_replicas is None else num_replicas
            rank = dist.get_rank() if rank is None else rank
        if rank >= num_replicas or rank < 0:
            raise ValueError(f"Invalid rank {rank}, rank should be in the interval [0, {num_replicas - 1}]")
        self.dataset = dataset
        self.num_replicas = num_replicas
        self.rank = rank
        self.epoch = 0
        self.drop_last = drop_last
        n = len(dataset)
        if drop_last and n % num_replicas:
            self.num_samples = math.ceil((n - num_replicas) / num_replicas)
        else:
            self.num_samples = math.ceil(n / num_replicas)
        self.total_size = self.num_samples * num_replicas
        self.shuffle = shuffle
        self.seed = seed

    def __iter__(self) -> Iterator[Any]:
        n = len(self.dataset)
        if self.shuffle:
            generator = lucid.Generator().manual_seed(self.seed + self.epoch)
            indices = lucid.randperm(n, generator=generator, device="cpu").tolist()
        else:
            indices = list(range(n))
        if not self.drop_last and n:
            indices = (indices * math.ceil(self.total_size / n))[: self.total_size]
        else:
            indices = indices[: self.total_size]
        return iter(indices[self.rank : self.total_size : self.num_replicas])

    def __len__(self) -> int:
        return self.num_samples

    def set_epoch(self, epoch: int) -> None:
        """Makes the next iteration use the order of this epoch."""
        self.epoch = epoch
