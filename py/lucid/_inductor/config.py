"""Settings of `torch._inductor`: any may be set and is read back, and a warning says once that it changes nothing."""

from __future__ import annotations

import sys
import types

from lucid._warnings import warn_once

coordinate_descent_tuning: bool = False
coordinate_descent_check_all_directions: bool = False
conv_1x1_as_mm: bool = False
cpp_wrapper: bool = False
debug: bool = False
epilogue_fusion: bool = True
force_fuse_int_mm_with_mul: bool = False
freezing: bool = False
fx_graph_cache: bool = True
max_autotune: bool = False
max_autotune_gemm_backends: str = "ATEN"
shape_padding: bool = True
use_mixed_mm: bool = False


class _Settings(types.SimpleNamespace):
    def __setattr__(self, name: str, value: object) -> None:
        _warn()
        super().__setattr__(name, value)


class _Module(types.ModuleType):
    def __setattr__(self, name: str, value: object) -> None:
        if not name.startswith("__"):
            _warn()
        super().__setattr__(name, value)


def _warn() -> None:
    why = "_inductor.config: its settings change nothing; lucid.compile has no settings of kernels"
    warn_once("_inductor.config", why)


triton = _Settings(cudagraphs=False, unique_kernel_names=True, autotune_pointwise=True)
cpp = _Settings(threads=-1, simdlen=None, enable_kernel_profile=False)

sys.modules[__name__].__class__ = _Module
