"""The GPU device by CUDA's name, which the files of `lucid.cuda` share."""

from lucid._gpu import Named

__all__ = ["CUDA"]

CUDA = Named("cuda", "lucid.cuda.is_available()")
