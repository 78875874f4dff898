"""PyTorch's file of the default planners."""

from lucid.distributed.checkpoint._storage import DefaultLoadPlanner as DefaultLoadPlanner
from lucid.distributed.checkpoint._storage import DefaultSavePlanner as DefaultSavePlanner
