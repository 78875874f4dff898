"""The older path of `fully_shard`."""

from lucid.distributed.fsdp import fully_shard as fully_shard
