"""PyTorch's file of the default timeout."""

from lucid.distributed._state import default_pg_timeout as default_pg_timeout

default_pg_nccl_timeout = default_pg_timeout
