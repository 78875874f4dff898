"""PyTorch's file of the readers and writers of folders."""

from lucid.distributed.checkpoint._storage import FileSystemReader as FileSystemReader
from lucid.distributed.checkpoint._storage import FileSystemWriter as FileSystemWriter
