"""Data loading: datasets, samplers and `DataLoader`, with PyTorch's names and meaning."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lucid._absent import teller
from lucid.utils.data import _utils as _utils
from lucid.utils.data._collate import collate as collate
from lucid.utils.data._collate import default_collate as default_collate
from lucid.utils.data._collate import default_collate_fn_map as default_collate_fn_map
from lucid.utils.data._collate import default_convert as default_convert
from lucid.utils.data._worker import WorkerInfo as WorkerInfo
from lucid.utils.data._worker import get_worker_info as get_worker_info
from lucid.utils.data.dataloader import DataLoader as DataLoader
from lucid.utils.data.dataset import ChainDataset as ChainDataset
from lucid.utils.data.dataset import ConcatDataset as ConcatDataset
from lucid.utils.data.dataset import Dataset as Dataset
from lucid.utils.data.dataset import IterableDataset as IterableDataset
from lucid.utils.data.dataset import StackDataset as StackDataset
from lucid.utils.data.dataset import Subset as Subset
from lucid.utils.data.dataset import TensorDataset as TensorDataset
from lucid.utils.data.dataset import random_split as random_split
from lucid.utils.data.distributed import DistributedSampler as DistributedSampler
from lucid.utils.data.sampler import BatchSampler as BatchSampler
from lucid.utils.data.sampler import RandomSampler as RandomSampler
from lucid.utils.data.sampler import Sampler as Sampler
from lucid.utils.data.sampler import SequentialSampler as SequentialSampler
from lucid.utils.data.sampler import SubsetRandomSampler as SubsetRandomSampler
from lucid.utils.data.sampler import WeightedRandomSampler as WeightedRandomSampler

if not TYPE_CHECKING:
    __getattr__ = teller(__name__)
