"""Lightning Core's runtime over Lucid's engine: explicit sessions, IO, synchronisation, tuning, traces and graphs.

Ops take float32 NumPy arrays, lists and Lucid's tensors, and give what they were given. `install()` lets scripts
`import lightning_core as lc`; `python -m lucid.lightning SCRIPT` runs one that does. What the names here mean, and
where they differ from Lightning Core's, is in docs/lightning.md.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from lucid.lightning import api as api
from lucid.lightning._arrays import runtime_input_check_get as runtime_input_check_get
from lucid.lightning._arrays import runtime_input_check_set as runtime_input_check_set
from lucid.lightning._attention import AttentionSession as AttentionSession
from lucid.lightning._attention import attention2d as attention2d
from lucid.lightning._attention import attention2d_into as attention2d_into
from lucid.lightning._attention import attention2d_session as attention2d_session
from lucid.lightning._attention import attention_forward as attention_forward
from lucid.lightning._attention import attention_forward_with_policy as attention_forward_with_policy
from lucid.lightning._attention import clear_attention2d_session_cache as clear_attention2d_session_cache
from lucid.lightning._conv import conv2d_nchw as conv2d_nchw
from lucid.lightning._conv import conv2d_nchw_into as conv2d_nchw_into
from lucid.lightning._elementwise import matrix_div as matrix_div
from lucid.lightning._elementwise import matrix_div_into as matrix_div_into
from lucid.lightning._elementwise import matrix_sub as matrix_sub
from lucid.lightning._elementwise import matrix_sub_into as matrix_sub_into
from lucid.lightning._elementwise import vector_add as vector_add
from lucid.lightning._elementwise import vector_add_into as vector_add_into
from lucid.lightning._env import environment as environment
from lucid.lightning._layers import GELU as GELU
from lucid.lightning._layers import SGD as SGD
from lucid.lightning._layers import Conv2d as Conv2d
from lucid.lightning._layers import Embedding as Embedding
from lucid.lightning._layers import LayerNorm as LayerNorm
from lucid.lightning._layers import Linear as Linear
from lucid.lightning._layers import Parameter as Parameter
from lucid.lightning._layers import ReLU as ReLU
from lucid.lightning._layers import Sequential as Sequential
from lucid.lightning._matmul import matmul as matmul
from lucid.lightning._matmul import matmul2d as matmul2d
from lucid.lightning._matmul import matmul2d_into as matmul2d_into
from lucid.lightning._matmul import matmul_np as matmul_np
from lucid.lightning._matmul import matmul_np_into as matmul_np_into
from lucid.lightning._matmul import matmul_reset_tuning as matmul_reset_tuning
from lucid.lightning._matmul import matmul_tuning as matmul_tuning
from lucid.lightning._policy import AttentionIoPolicy as AttentionIoPolicy
from lucid.lightning._policy import Conv2dIoPolicy as Conv2dIoPolicy
from lucid.lightning._policy import CrossoverPolicy as CrossoverPolicy
from lucid.lightning._policy import MatMulIoPolicy as MatMulIoPolicy
from lucid.lightning._policy import MatrixElementwiseIoPolicy as MatrixElementwiseIoPolicy
from lucid.lightning._policy import VectorAddIoPolicy as VectorAddIoPolicy
from lucid.lightning._policy import crossover_policy_get as crossover_policy_get
from lucid.lightning._policy import crossover_policy_set as crossover_policy_set
from lucid.lightning._policy_calls import conv2d_nchw_metal_resident as conv2d_nchw_metal_resident
from lucid.lightning._policy_calls import matmul_np_into_with_policy as matmul_np_into_with_policy
from lucid.lightning._policy_calls import matmul_np_with_policy as matmul_np_with_policy
from lucid.lightning._policy_calls import matmul_with_policy as matmul_with_policy
from lucid.lightning._policy_calls import matrix_sub_with_policy as matrix_sub_with_policy
from lucid.lightning._policy_calls import vector_add_with_policy as vector_add_with_policy
from lucid.lightning._runtime import backend_name as backend_name
from lucid.lightning._runtime import cuda_available as cuda_available
from lucid.lightning._runtime import memory_model_name as memory_model_name
from lucid.lightning._runtime import metal_available as metal_available
from lucid.lightning._runtime import runtime_active_backend_capabilities as runtime_active_backend_capabilities
from lucid.lightning._runtime import runtime_active_backend_interfaces as runtime_active_backend_interfaces
from lucid.lightning._runtime import runtime_backend_capabilities as runtime_backend_capabilities
from lucid.lightning._runtime import runtime_backend_interfaces as runtime_backend_interfaces
from lucid.lightning._runtime import runtime_sync_apply as runtime_sync_apply
from lucid.lightning._runtime import runtime_sync_apply_default as runtime_sync_apply_default
from lucid.lightning._runtime import runtime_sync_policy_get as runtime_sync_policy_get
from lucid.lightning._runtime import runtime_sync_policy_set as runtime_sync_policy_set
from lucid.lightning._session import SessionError as SessionError
from lucid.lightning._sessions import Conv2dMetalResidentSession as Conv2dMetalResidentSession
from lucid.lightning._sessions import ConvAttentionResidentSession as ConvAttentionResidentSession
from lucid.lightning._sessions import MatMulMetalResidentSession as MatMulMetalResidentSession
from lucid.lightning._sessions import MatrixElemwiseMetalResidentSession as MatrixElemwiseMetalResidentSession
from lucid.lightning._sessions import VectorAddMetalResidentSession as VectorAddMetalResidentSession
from lucid.lightning._sessions import matmul2d_resident_session as matmul2d_resident_session
from lucid.lightning._tensor import Tensor as Tensor
from lucid.lightning._tensor import Tensor64 as Tensor64
from lucid.lightning._tensor import TensorView as TensorView
from lucid.lightning._trace import runtime_trace_capacity as runtime_trace_capacity
from lucid.lightning._trace import runtime_trace_clear as runtime_trace_clear
from lucid.lightning._trace import runtime_trace_enable as runtime_trace_enable
from lucid.lightning._trace import runtime_trace_enabled as runtime_trace_enabled
from lucid.lightning._trace import runtime_trace_events as runtime_trace_events
from lucid.lightning._trace import runtime_trace_set_capacity as runtime_trace_set_capacity
from lucid.lightning._trace import runtime_trace_timeline as runtime_trace_timeline
from lucid.lightning._trace_export import runtime_trace_export_chrome as runtime_trace_export_chrome
from lucid.lightning._trace_export import runtime_trace_export_html as runtime_trace_export_html
from lucid.lightning.graph import FusionReport as FusionReport
from lucid.lightning.graph import GraphIR as GraphIR
from lucid.lightning.graph import graph_fusion_rules as graph_fusion_rules
from lucid.lightning.graph import graph_registry_schema as graph_registry_schema
from lucid.lightning.graph import graph_registry_schemas as graph_registry_schemas
from lucid.lightning.graph import graph_registry_size as graph_registry_size
from lucid.lightning.graph import graph_validation_passes as graph_validation_passes

if TYPE_CHECKING:
    from lucid.lightning import coreml as coreml
    from lucid.lightning import integrated_api as integrated_api
    from lucid.lightning import interop as interop
    from lucid.lightning import runner as runner

# The release of Lightning Core whose names these are.
__version__ = "0.1.13"

# The integrated API by its older names, with the prefix.
lightning_attention = api.attention
lightning_attention_into = api.attention_into
lightning_clear_attention_session_cache = api.clear_attention_session_cache
lightning_conv_attention_torchstrong_nchw = api.conv_attention_torchstrong_nchw
lightning_conv_attention_torchstrong_nchw_ab_report = api.conv_attention_torchstrong_nchw_ab_report
lightning_conv_attention_torchstrong_nchw_into = api.conv_attention_torchstrong_nchw_into
lightning_conv_relu_nchw = api.conv_relu_nchw
lightning_conv_relu_nchw_into = api.conv_relu_nchw_into
lightning_get_backend = api.get_backend
lightning_get_engine = api.get_engine
lightning_matmul = api.matmul
lightning_matmul_into = api.matmul_into
lightning_set_backend = api.set_backend
lightning_set_engine = api.set_engine

_LAZY = ("coreml", "integrated_api", "interop", "runner")


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        import importlib

        return importlib.import_module(f"lucid.lightning.{name}")
    raise AttributeError(f"module 'lucid.lightning' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})


def install() -> None:
    """Lets `import lightning_core` and `import lightning_core_integrated_api` of this process give this package.

    Raises:
        RuntimeError: Another `lightning_core` was imported already.

    Example::

        >>> import lucid.lightning
        >>> lucid.lightning.install()
        >>> import lightning_core as lc
        >>> lc is lucid.lightning
        True
    """
    from lucid import errors
    from lucid.lightning import integrated_api

    modules = {
        "lightning_core": sys.modules[__name__],
        "lightning_core.api": api,
        "lightning_core_integrated_api": integrated_api,
    }
    for name, module in modules.items():
        known = sys.modules.get(name)
        if known is not None and known is not module:
            raise errors.RuntimeError(f"lucid.lightning.install(): another {name} was imported already")
    sys.modules.update(modules)
