"""The older names of `lucid.library`, as `torch._custom_ops`."""

from __future__ import annotations

from lucid.library import custom_op as custom_op
from lucid.library import get_ctx as get_ctx
from lucid.library import impl as impl
from lucid.library import impl_abstract as impl_abstract

__all__ = ["custom_op", "get_ctx", "impl", "impl_abstract"]
