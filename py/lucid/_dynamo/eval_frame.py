"""PyTorch's file of compiled modules."""

from lucid.compiler._module import OptimizedModule as OptimizedModule


def is_dynamo_supported() -> bool:
    """Whether PyTorch's tracer is there: `False`."""
    return False
