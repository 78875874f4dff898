"""Names of the files that PyTorch has `vmap` in, as `torch._functorch`."""

from lucid._functorch import vmap as vmap
