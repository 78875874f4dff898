"""Names of PyTorch's compiler of kernels, as `torch._inductor`: its settings. `lucid.compile` has its own compiler."""

from __future__ import annotations

from lucid._inductor import codecache as codecache
from lucid._inductor import config as config
from lucid.compiler import cudagraph_mark_step_begin as cudagraph_mark_step_begin
