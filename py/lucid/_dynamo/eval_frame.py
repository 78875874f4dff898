"""PyTorch's file of compiled modules."""

from lucid.compiler._module import OptimizedModule as OptimizedModule
