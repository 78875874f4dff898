"""`DistributedDataParallel`, and `DataParallel` with its parts for scripts that have it: there is one device here to be
parallel on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lucid._absent import teller
from lucid.nn.data_parallel import DistributedDataParallel
from lucid.nn.parallel import comm as comm
from lucid.nn.parallel.data_parallel import DataParallel, data_parallel
from lucid.nn.parallel.parallel_apply import parallel_apply
from lucid.nn.parallel.replicate import replicate
from lucid.nn.parallel.scatter_gather import gather, scatter

__all__ = [
    "DataParallel",
    "DistributedDataParallel",
    "data_parallel",
    "gather",
    "parallel_apply",
    "replicate",
    "scatter",
]

if not TYPE_CHECKING:
    __getattr__ = teller(__name__)
