"""How parts of divided sequences travel, which is not set here: sequences are not divided."""

from lucid.distributed.tensor.experimental import _absent

__all__ = ["set_rotate_method"]

set_rotate_method = _absent("_attention.set_rotate_method", "sequences are not divided among processes")
