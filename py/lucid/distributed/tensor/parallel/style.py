"""PyTorch's file of the styles."""

from lucid.distributed.tensor.parallel import ColwiseParallel as ColwiseParallel
from lucid.distributed.tensor.parallel import ParallelStyle as ParallelStyle
from lucid.distributed.tensor.parallel import RowwiseParallel as RowwiseParallel
