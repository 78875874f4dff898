"""Functions that take functions, by PyTorch's path: `cond`, `while_loop`, `associative_scan`."""

from lucid._higher_order_ops.associative_scan import associative_scan as associative_scan
from lucid._idioms import cond as cond
from lucid._idioms import while_loop as while_loop

__all__ = ["associative_scan", "cond", "while_loop"]
