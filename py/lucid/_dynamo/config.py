"""Settings of `torch._dynamo`: any may be set and is read back. Nothing is compiled here."""

from __future__ import annotations

recompile_limit: int = 8
cache_size_limit: int = 8
accumulated_recompile_limit: int = 256
accumulated_cache_size_limit: int = 256
assume_static_by_default: bool = True
automatic_dynamic_shapes: bool = True
capture_dynamic_output_shape_ops: bool = False
capture_scalar_outputs: bool = False
capture_func_transforms: bool = True
guard_nn_modules: bool = True
inline_inbuilt_nn_modules: bool = True
optimize_ddp: bool = True
specialize_int: bool = False
suppress_errors: bool = False
verbose: bool = False
disable: bool = False
