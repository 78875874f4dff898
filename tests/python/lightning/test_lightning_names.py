"""Every public name of Lightning Core is there, as a function or class with the methods it has."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path

import lucid.lightning as lc
import pytest

FUNCTIONS = [
    "clear_attention2d_session_cache",
    "attention_forward",
    "attention_forward_with_policy",
    "attention2d",
    "attention2d_into",
    "attention2d_session",
    "graph_validation_passes",
    "graph_registry_size",
    "graph_registry_schemas",
    "graph_registry_schema",
    "matmul",
    "matmul_np",
    "matmul_np_into",
    "matmul_with_policy",
    "matmul_np_with_policy",
    "matmul_np_into_with_policy",
    "conv2d_nchw",
    "conv2d_nchw_into",
    "conv2d_nchw_metal_resident",
    "matmul_reset_tuning",
    "vector_add",
    "matrix_sub",
    "matmul2d",
    "matmul2d_into",
    "matmul2d_resident_session",
    "cuda_available",
    "metal_available",
    "backend_name",
    "memory_model_name",
    "runtime_sync_policy_set",
    "runtime_sync_policy_get",
    "runtime_sync_apply",
    "runtime_sync_apply_default",
    "runtime_backend_capabilities",
    "runtime_active_backend_capabilities",
    "runtime_backend_interfaces",
    "runtime_active_backend_interfaces",
    "runtime_trace_enable",
    "runtime_trace_enabled",
    "runtime_trace_clear",
    "runtime_trace_capacity",
    "runtime_trace_events",
    "runtime_trace_timeline",
]

INTEGRATED = [
    "clear_attention_session_cache",
    "conv_relu_nchw",
    "conv_relu_nchw_into",
    "attention",
    "attention_into",
    "conv_attention_torchstrong_nchw",
    "conv_attention_torchstrong_nchw_into",
    "conv_attention_torchstrong_nchw_ab_report",
    "set_backend",
    "get_backend",
    "set_engine",
    "get_engine",
]

HELPER = [
    "_import_torch",
    "_torch_device_for",
    "_resolve_engine",
    "_as_f32_c",
    "_as_out_f32_c_no_copy",
    "set_backend",
    "get_backend",
    "tensor",
    "Linear",
    "lightning_matmul",
    "lightning_matmul_into",
    "_get_or_create_attention_session",
    "clear_attention_session_cache",
    "lightning_attention",
    "lightning_conv_relu_nchw",
    "lightning_conv_relu_torchstrong_nchw",
    "ConvReLUResidentBlock",
    "AttentionResidentBlock",
    "ConvAttentionResidentPipeline",
    "lightning_conv_attention_torchstrong_nchw",
    "lightning_conv_attention_torchstrong_nchw_ab_report",
]

USED_BY_SCRIPTS = [
    "Sequential",
    "Linear",
    "ReLU",
    "GELU",
    "LayerNorm",
    "Embedding",
    "Conv2d",
    "SGD",
    "lightning_matmul",
    "lightning_matmul_into",
]

TENSOR = [
    "shape",
    "strides",
    "rank",
    "numel",
    "is_contiguous",
    "layout",
    "dtype",
    "offset_elements",
    "device",
    "validate_contract",
    "validate_contract_for_storage",
    "contract",
    "storage_numel",
]

CLASSES = {
    "AttentionIoPolicy": [
        "upload_q",
        "upload_k",
        "upload_v",
        "upload_target",
        "download_out",
        "download_v",
        "synchronize",
        "loss_every",
        "output_scale",
        "output_bias",
        "output_relu",
    ],
    "AttentionSession": [
        "set_default_policy",
        "forward",
        "forward_with_policy",
        "forward_into",
        "forward_with_policy_into",
        "train_step",
        "train_step_with_policy",
    ],
    "GraphIR": [
        "add_tensor",
        "add_node",
        "validate",
        "validate_report",
        "num_tensors",
        "num_nodes",
        "tensors",
        "nodes",
        "plan",
        "plan_groups",
        "plan_summary",
        "execute_f32",
        "execute_f64",
    ],
    "MatMulIoPolicy": ["upload_a", "upload_b", "download_out", "synchronize"],
    "MatrixElementwiseIoPolicy": ["upload_a", "upload_b", "download_out", "synchronize"],
    "VectorAddIoPolicy": ["upload_a", "upload_b", "download_out", "synchronize"],
    "MatMulMetalResidentSession": [
        "start",
        "run",
        "finish",
        "sync",
        "run_batch_sync",
        "start_into",
        "run_into",
        "finish_into",
        "sync_into",
        "run_batch_sync_into",
        "run_batch_sync_no_download_into",
        "run_batch_sync_cached_no_download",
    ],
    "Conv2dMetalResidentSession": ["start_into", "run_into", "sync_into", "finish_into", "run_batch_sync_into"],
    "MatrixElemwiseMetalResidentSession": [
        "sub_start",
        "sub_run",
        "sub_finish",
        "div_start",
        "div_run",
        "div_finish",
        "sub",
        "div",
        "sub_start_into",
        "sub_run_into",
        "sub_finish_into",
        "div_start_into",
        "div_run_into",
        "div_finish_into",
    ],
    "VectorAddMetalResidentSession": ["start", "run", "finish", "add", "start_into", "run_into", "finish_into"],
    "Tensor": [
        *TENSOR,
        *[
            "zeros",
            "from_numpy_array",
            "reshape",
            "view",
            "slice",
            "from_list",
            "from_numpy",
            "to_list",
            "to_numpy",
            "add",
        ],
    ],
    "Tensor64": [
        *TENSOR,
        *[
            "zeros",
            "from_numpy_array",
            "reshape",
            "view",
            "slice",
            "from_list",
            "from_numpy",
            "to_list",
            "to_numpy",
            "add",
        ],
    ],
    "TensorView": [
        *TENSOR,
        *[
            "validate_view_contract",
            "reshape",
            "view",
            "slice",
            "to_host_view",
            "to_host_view_numpy",
            "slice_copy",
            "slice_copy_numpy",
            "read_strided",
        ],
    ],
}


@pytest.mark.parametrize("name", [*FUNCTIONS, *USED_BY_SCRIPTS])
def test_names_of_the_package(name: str) -> None:
    function = getattr(lc, name)
    assert callable(function)
    assert inspect.getdoc(function), "documented"


@pytest.mark.parametrize("name", INTEGRATED)
def test_names_of_the_integrated_api(name: str) -> None:
    assert getattr(lc.api, name) is getattr(lc, f"lightning_{name}")
    assert inspect.getdoc(getattr(lc.api, name))


@pytest.mark.parametrize("name", HELPER)
def test_names_of_the_helper_module(name: str) -> None:
    assert callable(getattr(lc.integrated_api, name))


@pytest.mark.parametrize("name", CLASSES)
def test_methods_and_fields_of_classes(name: str) -> None:
    kind = getattr(lc, name)
    there = {*dir(kind), *getattr(kind, "__annotations__", {})}
    for base in kind.__mro__:
        there |= set(getattr(base, "__annotations__", {}))
    assert set(CLASSES[name]) <= there
    for member in CLASSES[name]:
        value = inspect.getattr_static(kind, member, None)
        if value is not None and not name.endswith("Policy"):
            assert inspect.getdoc(getattr(kind, member)), member


SCRIPT = """
import sys
import lightning_core as lc
import lightning_core.api, lightning_core_integrated_api as helper
from lightning_core import matmul2d
print(lc.__name__, helper.get_backend(), __name__, *sys.argv[1:])
"""


def test_scripts_run_through_the_module(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    command = [sys.executable, "-m", "lucid.lightning", str(script), "a", "b"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "lucid.lightning lightning __main__ a b"
    bad = subprocess.run([*command[:3], str(tmp_path / "none.py")], capture_output=True, text=True, check=False)
    assert bad.returncode == 2 and "no script" in bad.stderr


def test_another_lightning_core_is_not_replaced() -> None:
    code = """
import sys, types
sys.modules["lightning_core"] = types.ModuleType("lightning_core")
import lucid.lightning
try:
    lucid.lightning.install()
except RuntimeError as e:
    print("another lightning_core" in str(e))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "True"


def test_importing_needs_no_numpy() -> None:
    code = """
import sys
sys.modules["numpy"] = None
import lucid, lucid.lightning as lc
print(lc.matmul2d([[1.0, 2.0]], [[3.0], [4.0]], "cpu"), lc.matmul2d(lucid.ones(1, 2), lucid.ones(2, 1), "cpu").item())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[[11.0]] 2.0"
