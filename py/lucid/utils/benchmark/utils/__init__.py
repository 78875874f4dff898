"""PyTorch's folder of what timing is made of: the names of `lucid.utils.benchmark`."""

from lucid.utils.benchmark.utils import common as common
from lucid.utils.benchmark.utils import compare as compare
from lucid.utils.benchmark.utils import timer as timer
