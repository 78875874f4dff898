"""Lucid: tensors, automatic differentiation and training, with PyTorch's names and meaning.

The engine is the extension module `lucid._C`; ops and classes come from there. What is heavier (`nn`, `optim`, …) is
imported when it is first asked for.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from lucid import _load as _load

# isort: split
# Only after `_load` has seen to it that the extension can be imported.
from lucid import _C, _absent_dtypes, _c_names, _copies, _foreach, _interop
from lucid import dtypes as dtypes
from lucid._absent import missing as _missing
from lucid._C import *  # noqa: F403
from lucid._C import OutOfMemory as OutOfMemoryError
from lucid._C import __version__ as __version__
from lucid._C import contiguous_format as legacy_contiguous_format  # noqa: F401
from lucid._constants import e as e
from lucid._constants import inf as inf
from lucid._constants import nan as nan
from lucid._constants import newaxis as newaxis
from lucid._constants import pi as pi
from lucid._dtypes import finfo as finfo
from lucid._dtypes import iinfo as iinfo
from lucid._evaluation import eval as eval
from lucid._evaluation import synchronize as synchronize
from lucid._grad_mode import enable_grad as enable_grad
from lucid._grad_mode import inference_mode as inference_mode
from lucid._grad_mode import no_grad as no_grad
from lucid._grad_mode import set_grad_enabled as set_grad_enabled
from lucid._schemas import OpSchema as OpSchema
from lucid._schemas import op_schemas as op_schemas
from lucid._settings import are_deterministic_algorithms_enabled as are_deterministic_algorithms_enabled
from lucid._settings import get_deterministic_debug_mode as get_deterministic_debug_mode
from lucid._settings import get_float32_matmul_precision as get_float32_matmul_precision
from lucid._settings import get_float64_policy as get_float64_policy
from lucid._settings import get_num_interop_threads as get_num_interop_threads
from lucid._settings import get_zero_copy_threshold as get_zero_copy_threshold
from lucid._settings import (
    is_deterministic_algorithms_warn_only_enabled as is_deterministic_algorithms_warn_only_enabled,
)
from lucid._settings import is_warn_always_enabled as is_warn_always_enabled
from lucid._settings import set_anomaly_enabled as set_anomaly_enabled
from lucid._settings import set_deterministic as set_deterministic
from lucid._settings import set_deterministic_debug_mode as set_deterministic_debug_mode
from lucid._settings import set_float32_matmul_precision as set_float32_matmul_precision
from lucid._settings import set_float64_policy as set_float64_policy
from lucid._settings import set_flush_denormal as set_flush_denormal
from lucid._settings import set_num_interop_threads as set_num_interop_threads
from lucid._settings import set_warn_always as set_warn_always
from lucid._settings import set_zero_copy_threshold as set_zero_copy_threshold
from lucid._settings import use_deterministic_algorithms as use_deterministic_algorithms
from lucid._size import Size as Size
from lucid._tensor_types import BFloat16Tensor as BFloat16Tensor
from lucid._tensor_types import BoolTensor as BoolTensor
from lucid._tensor_types import ByteTensor as ByteTensor
from lucid._tensor_types import CharTensor as CharTensor
from lucid._tensor_types import ComplexDoubleTensor as ComplexDoubleTensor
from lucid._tensor_types import ComplexFloatTensor as ComplexFloatTensor
from lucid._tensor_types import DoubleTensor as DoubleTensor
from lucid._tensor_types import FloatTensor as FloatTensor
from lucid._tensor_types import HalfTensor as HalfTensor
from lucid._tensor_types import IntTensor as IntTensor
from lucid._tensor_types import LongTensor as LongTensor
from lucid._tensor_types import ShortTensor as ShortTensor
from lucid._tensor_types import set_default_tensor_type as set_default_tensor_type
from lucid._type_names import broadcast_shapes as broadcast_shapes
from lucid._type_names import typename as typename
from lucid._typing import DeviceLike as DeviceLike
from lucid._typing import DTypeLike as DTypeLike
from lucid._typing import HasShape as HasShape
from lucid._typing import Scalar as Scalar
from lucid._typing import ShapeLike as ShapeLike
from lucid._typing import StateDict as StateDict
from lucid._typing import SupportsGrad as SupportsGrad
from lucid._typing import SupportsNumpyConversion as SupportsNumpyConversion
from lucid._typing import TensorLike as TensorLike
from lucid._typing import TensorLikeProtocol as TensorLikeProtocol
from lucid._typing import TensorOrScalar as TensorOrScalar

if TYPE_CHECKING:
    from lucid import __config__ as __config__
    from lucid import _dynamo as _dynamo
    from lucid import accelerator as accelerator
    from lucid import amp as amp
    from lucid import ao as ao
    from lucid import autograd as autograd
    from lucid import backends as backends
    from lucid import compiler as compiler
    from lucid import cpu as cpu
    from lucid import cuda as cuda
    from lucid import distributed as distributed
    from lucid import distributions as distributions
    from lucid import einops as einops
    from lucid import fft as fft
    from lucid import func as func
    from lucid import futures as futures
    from lucid import fx as fx
    from lucid import hub as hub
    from lucid import jit as jit
    from lucid import library as library
    from lucid import lightning as lightning
    from lucid import linalg as linalg
    from lucid import llm as llm
    from lucid import masked as masked
    from lucid import mps as mps
    from lucid import nested as nested
    from lucid import onnx as onnx
    from lucid import ops as ops
    from lucid import overrides as overrides
    from lucid import profiler as profiler
    from lucid import quantization as quantization
    from lucid import quasirandom as quasirandom
    from lucid import random as random
    from lucid import serialization as serialization
    from lucid import signal as signal
    from lucid import sparse as sparse
    from lucid import special as special
    from lucid import storage as storage
    from lucid import testing as testing
    from lucid import torch_version as torch_version
    from lucid import types as types
    from lucid import utils as utils
    from lucid import version as version
    from lucid import xpu as xpu
    from lucid._C import dequantize_affine as dequantize_affine
    from lucid._C import dynamic_quantized_matmul as dynamic_quantized_matmul
    from lucid._C import gather_qmm as gather_qmm
    from lucid._C import quantize_affine as quantize_affine
    from lucid._C import quantized_matmul as quantized_matmul
    from lucid._compile import compile as compile
    from lucid._convert import asarray as asarray
    from lucid._convert import from_file as from_file
    from lucid._convert import from_numpy as from_numpy
    from lucid._convert import frombuffer as frombuffer
    from lucid._gpu import Event as Event
    from lucid._gpu import Stream as Stream
    from lucid._gpu import get_device_module as get_device_module
    from lucid._idioms import cond as cond
    from lucid._idioms import seed_everything as seed_everything
    from lucid._idioms import while_loop as while_loop
    from lucid._layers import *  # noqa: F403
    from lucid._lobpcg import lobpcg as lobpcg
    from lucid._native_ops import _grouped_mm as _grouped_mm
    from lucid._native_ops import _int_mm as _int_mm
    from lucid._native_ops import _scaled_mm as _scaled_mm
    from lucid._native_ops import frobenius_norm as frobenius_norm
    from lucid._native_ops import get_device as get_device
    from lucid._native_ops import native_batch_norm as native_batch_norm
    from lucid._native_ops import native_dropout as native_dropout
    from lucid._native_ops import native_group_norm as native_group_norm
    from lucid._native_ops import native_layer_norm as native_layer_norm
    from lucid._native_ops import norm_except_dim as norm_except_dim
    from lucid._profile import profile as profile
    from lucid._repr import get_printoptions as get_printoptions
    from lucid._repr import printoptions as printoptions
    from lucid._repr import set_printoptions as set_printoptions
    from lucid._sparse_compressed import sparse_bsr_tensor as sparse_bsr_tensor
    from lucid._sparse_compressed import sparse_csc_tensor as sparse_csc_tensor
    from lucid._sparse_csr import sparse_csr_tensor as sparse_csr_tensor
    from lucid._storage import BFloat16Storage as BFloat16Storage
    from lucid._storage import BoolStorage as BoolStorage
    from lucid._storage import ByteStorage as ByteStorage
    from lucid._storage import CharStorage as CharStorage
    from lucid._storage import ComplexDoubleStorage as ComplexDoubleStorage
    from lucid._storage import ComplexFloatStorage as ComplexFloatStorage
    from lucid._storage import DoubleStorage as DoubleStorage
    from lucid._storage import FloatStorage as FloatStorage
    from lucid._storage import HalfStorage as HalfStorage
    from lucid._storage import IntStorage as IntStorage
    from lucid._storage import LongStorage as LongStorage
    from lucid._storage import ShortStorage as ShortStorage
    from lucid._storage import StorageBase as StorageBase
    from lucid._storage import TypedStorage as TypedStorage
    from lucid._storage import UntypedStorage as UntypedStorage
    from lucid._storage import is_storage as is_storage
    from lucid._symbols import SymBool as SymBool
    from lucid._symbols import SymFloat as SymFloat
    from lucid._symbols import SymInt as SymInt
    from lucid._symbols import sym_float as sym_float
    from lucid._symbols import sym_int as sym_int
    from lucid._symbols import sym_ite as sym_ite
    from lucid._symbols import sym_max as sym_max
    from lucid._symbols import sym_min as sym_min
    from lucid._symbols import sym_not as sym_not
    from lucid._symbols import sym_sqrt as sym_sqrt
    from lucid._symbols import sym_sum as sym_sum
    from lucid._tags import Tag as Tag
    from lucid.amp.autocast_mode import autocast as autocast
    from lucid.amp.autocast_mode import clear_autocast_cache as clear_autocast_cache
    from lucid.amp.autocast_mode import get_autocast_cpu_dtype as get_autocast_cpu_dtype
    from lucid.amp.autocast_mode import get_autocast_dtype as get_autocast_dtype
    from lucid.amp.autocast_mode import get_autocast_gpu_dtype as get_autocast_gpu_dtype
    from lucid.amp.autocast_mode import is_autocast_available as is_autocast_available
    from lucid.amp.autocast_mode import is_autocast_cache_enabled as is_autocast_cache_enabled
    from lucid.amp.autocast_mode import is_autocast_cpu_enabled as is_autocast_cpu_enabled
    from lucid.amp.autocast_mode import is_autocast_enabled as is_autocast_enabled
    from lucid.amp.autocast_mode import set_autocast_cache_enabled as set_autocast_cache_enabled
    from lucid.amp.autocast_mode import set_autocast_cpu_dtype as set_autocast_cpu_dtype
    from lucid.amp.autocast_mode import set_autocast_cpu_enabled as set_autocast_cpu_enabled
    from lucid.amp.autocast_mode import set_autocast_dtype as set_autocast_dtype
    from lucid.amp.autocast_mode import set_autocast_enabled as set_autocast_enabled
    from lucid.amp.autocast_mode import set_autocast_gpu_dtype as set_autocast_gpu_dtype
    from lucid.amp.grad_scaler import GradScaler as GradScaler
    from lucid.autograd.anomaly_mode import is_anomaly_check_nan_enabled as is_anomaly_check_nan_enabled
    from lucid.autograd.anomaly_mode import is_anomaly_enabled as is_anomaly_enabled
    from lucid.func import vmap as vmap
    from lucid.jit import ScriptModule as ScriptModule
    from lucid.serialization import load as load
    from lucid.serialization import load_safetensors as load_safetensors
    from lucid.serialization import load_sharded as load_sharded
    from lucid.serialization import save as save
    from lucid.serialization import save_safetensors as save_safetensors
    from lucid.serialization import save_sharded as save_sharded
    from lucid.sparse import dsmm as dsmm
    from lucid.sparse import spmm as spmm
    from lucid.utils.dlpack import from_dlpack as from_dlpack
    from lucid.utils.dlpack import to_dlpack as to_dlpack

# What is imported on first use: sub-packages, and names that live in a module of their own.
_PACKAGES = {
    "__config__",
    "__future__",
    "_dynamo",
    "_functorch",
    "_guards",
    "_higher_order_ops",
    "_inductor",
    "_ops",
    "_subclasses",
    "_tensor_str",
    "accelerator",
    "amp",
    "ao",
    "autograd",
    "backends",
    "classes",
    "compiler",
    "cpu",
    "cuda",
    "distributed",
    "distributions",
    "einops",
    "errors",
    "export",
    "fft",
    "func",
    "functional",
    "futures",
    "fx",
    "hub",
    "jit",
    "library",
    "lightning",
    "linalg",
    "llm",
    "masked",
    "metal",
    "monitor",
    "mps",
    "mtia",
    "multiprocessing",
    "nested",
    "nn",
    "numa",
    "onnx",
    "ops",
    "optim",
    "overrides",
    "package",
    "profiler",
    "quantization",
    "quasirandom",
    "random",
    "return_types",
    "serialization",
    "signal",
    "sparse",
    "special",
    "storage",
    "testing",
    "torch_version",
    "types",
    "utils",
    "version",
    "xpu",
}
_NAMES = {
    "seed_everything": "lucid._idioms",
    "cond": "lucid._idioms",
    "while_loop": "lucid._idioms",
    "compile": "lucid._compile",
    "SymInt": "lucid._symbols",
    "SymFloat": "lucid._symbols",
    "SymBool": "lucid._symbols",
    "BFloat16Storage": "lucid._storage",
    "BoolStorage": "lucid._storage",
    "ByteStorage": "lucid._storage",
    "CharStorage": "lucid._storage",
    "ComplexDoubleStorage": "lucid._storage",
    "ComplexFloatStorage": "lucid._storage",
    "DoubleStorage": "lucid._storage",
    "FloatStorage": "lucid._storage",
    "HalfStorage": "lucid._storage",
    "IntStorage": "lucid._storage",
    "LongStorage": "lucid._storage",
    "ShortStorage": "lucid._storage",
    "TypedStorage": "lucid._storage",
    "StorageBase": "lucid._storage",
    "Tag": "lucid._tags",
    "UntypedStorage": "lucid._storage",
    "is_storage": "lucid._storage",
    "asarray": "lucid._convert",
    "from_dlpack": "lucid.utils.dlpack",
    "to_dlpack": "lucid.utils.dlpack",
    "get_printoptions": "lucid._repr",
    "printoptions": "lucid._repr",
    "from_file": "lucid._convert",
    "from_numpy": "lucid._convert",
    "frombuffer": "lucid._convert",
    "load": "lucid.serialization",
    "load_safetensors": "lucid.serialization",
    "load_sharded": "lucid.serialization",
    "profile": "lucid._profile",
    "save": "lucid.serialization",
    "save_safetensors": "lucid.serialization",
    "save_sharded": "lucid.serialization",
    "set_printoptions": "lucid._repr",
    "GradScaler": "lucid.amp.grad_scaler",
    "ScriptModule": "lucid.jit",
    "is_anomaly_check_nan_enabled": "lucid.autograd.anomaly_mode",
    "is_anomaly_enabled": "lucid.autograd.anomaly_mode",
    "Event": "lucid._gpu",
    "Stream": "lucid._gpu",
    "get_device_module": "lucid._gpu",
    "lobpcg": "lucid._lobpcg",
    "_shape_as_tensor": "lucid._native_ops",
    "_softmax_backward_data": "lucid._native_ops",
    "frobenius_norm": "lucid._native_ops",
    "get_device": "lucid._native_ops",
    "native_batch_norm": "lucid._native_ops",
    "native_dropout": "lucid._native_ops",
    "native_group_norm": "lucid._native_ops",
    "native_layer_norm": "lucid._native_ops",
    "norm_except_dim": "lucid._native_ops",
    "sparse_bsr_tensor": "lucid._sparse_compressed",
    "sparse_csc_tensor": "lucid._sparse_compressed",
    "sparse_csr_tensor": "lucid._sparse_csr",
    "_grouped_mm": "lucid._native_ops",
    "_scaled_mm": "lucid._native_ops",
    "_int_mm": "lucid._native_ops",
    "autocast": "lucid.amp.autocast_mode",
    "get_autocast_cpu_dtype": "lucid.amp.autocast_mode",
    "get_autocast_gpu_dtype": "lucid.amp.autocast_mode",
    "is_autocast_cpu_enabled": "lucid.amp.autocast_mode",
    "set_autocast_cpu_dtype": "lucid.amp.autocast_mode",
    "set_autocast_cpu_enabled": "lucid.amp.autocast_mode",
    "set_autocast_gpu_dtype": "lucid.amp.autocast_mode",
    "clear_autocast_cache": "lucid.amp.autocast_mode",
    "get_autocast_dtype": "lucid.amp.autocast_mode",
    "is_autocast_available": "lucid.amp.autocast_mode",
    "is_autocast_cache_enabled": "lucid.amp.autocast_mode",
    "is_autocast_enabled": "lucid.amp.autocast_mode",
    "set_autocast_cache_enabled": "lucid.amp.autocast_mode",
    "set_autocast_dtype": "lucid.amp.autocast_mode",
    "set_autocast_enabled": "lucid.amp.autocast_mode",
    "sym_float": "lucid._symbols",
    "sym_int": "lucid._symbols",
    "sym_ite": "lucid._symbols",
    "sym_max": "lucid._symbols",
    "sym_min": "lucid._symbols",
    "sym_not": "lucid._symbols",
    "sym_sqrt": "lucid._symbols",
    "sym_sum": "lucid._symbols",
    "dsmm": "lucid.sparse",
    "spmm": "lucid.sparse",
    "vmap": "lucid.func",
    "dequantize_affine": "lucid._C",
    "dynamic_quantized_matmul": "lucid._C",
    "gather_qmm": "lucid._C",
    "quantize_affine": "lucid._C",
    "quantized_matmul": "lucid._C",
    "_dirichlet_grad": "lucid._C",
    "_fft_c2c": "lucid._C",
    "_fft_c2r": "lucid._C",
    "_fft_r2c": "lucid._C",
    "_sample_dirichlet": "lucid._C",
    "_standard_gamma": "lucid._C",
    "_standard_gamma_grad": "lucid._C",
    "Future": "lucid.jit._future",
    "fork": "lucid.jit._future",
    "wait": "lucid.jit._future",
    "_assert": "lucid._checks",
    "_assert_async": "lucid._checks",
    "_check": "lucid._checks",
    "_check_index": "lucid._checks",
    "_check_is_size": "lucid._checks",
    "_check_not_implemented": "lucid._checks",
    "_check_tensor_all": "lucid._checks",
    "_check_tensor_all_with": "lucid._checks",
    "_check_type": "lucid._checks",
    "_check_value": "lucid._checks",
    "_check_with": "lucid._checks",
}
_NAMES |= dict.fromkeys(
    [
        "AnyType", "AwaitType", "BoolType", "ClassType", "ComplexType", "DeviceObjType", "DictType", "EnumType",
        "FloatType", "FutureType", "InferredType", "IntType", "InterfaceType", "ListType", "NoneType", "NumberType",
        "OptionalType", "PyObjectType", "RRefType", "StreamObjType", "StringType", "SymBoolType", "SymIntType",
        "TensorType", "TupleType", "UnionType",
    ],
    "lucid._script_types",
)  # fmt: skip
_NAMES |= dict.fromkeys(
    [
        "_amp_foreach_non_finite_check_and_unscale_", "_amp_update_scale_",
        "_cast_Byte", "_cast_Char", "_cast_Double", "_cast_Float", "_cast_Half", "_cast_Int", "_cast_Long",
        "_cast_Short", "_convert_indices_from_coo_to_csr", "_convert_indices_from_csr_to_coo",
        "_nested_view_from_buffer", "_segment_reduce", "has_cuda", "has_cudnn", "has_mps",
    ],
    "lucid._older_ops",
)  # fmt: skip

# Layers as functions, where PyTorch has these at the top level too.
_LAYERS = frozenset(
    [
        "adaptive_avg_pool1d",
        "adaptive_max_pool1d",
        "affine_grid_generator",
        "alpha_dropout",
        "alpha_dropout_",
        "avg_pool1d",
        "batch_norm",
        "bilinear",
        "binary_cross_entropy_with_logits",
        "celu_",
        "channel_shuffle",
        "conv1d",
        "conv2d",
        "conv3d",
        "conv_tbc",
        "conv_transpose1d",
        "conv_transpose2d",
        "conv_transpose3d",
        "convolution",
        "cosine_embedding_loss",
        "cosine_similarity",
        "ctc_loss",
        "dropout",
        "dropout_",
        "embedding",
        "embedding_bag",
        "embedding_renorm_",
        "feature_alpha_dropout",
        "feature_alpha_dropout_",
        "feature_dropout",
        "feature_dropout_",
        "grid_sampler",
        "grid_sampler_2d",
        "grid_sampler_3d",
        "group_norm",
        "gru",
        "gru_cell",
        "hardshrink",
        "hinge_embedding_loss",
        "instance_norm",
        "kl_div",
        "layer_norm",
        "lstm",
        "lstm_cell",
        "margin_ranking_loss",
        "max_pool1d",
        "max_pool1d_with_indices",
        "max_pool2d",
        "max_pool3d",
        "native_channel_shuffle",
        "pairwise_distance",
        "pdist",
        "pixel_shuffle",
        "pixel_unshuffle",
        "poisson_nll_loss",
        "prelu",
        "rms_norm",
        "rnn_relu",
        "rnn_relu_cell",
        "rnn_tanh",
        "rnn_tanh_cell",
        "rrelu",
        "rrelu_",
        "selu_",
        "threshold",
        "threshold_",
        "triplet_margin_loss",
    ]
)


if not TYPE_CHECKING:

    def _make_wrapper_subclass(cls: Any, size: Any, *args: Any, **kwargs: Any) -> Any:
        """A tensor of a class that is asked about each op: see `lucid._wrapper_subclass`."""
        from lucid._wrapper_subclass import make_wrapper_subclass

        return make_wrapper_subclass(cls, size, *args, **kwargs)

    # PyTorch's own name of the same attribute.
    _C.Tensor._grad = _C.Tensor.grad
    _C.Tensor._make_wrapper_subclass = staticmethod(_make_wrapper_subclass)
    del _make_wrapper_subclass

    def __getattr__(name: str) -> Any:
        value: Any
        if name in _PACKAGES:
            try:
                value = importlib.import_module(f"lucid.{name}")
            except ModuleNotFoundError as e:
                if e.name != f"lucid.{name}":
                    raise
                raise _missing("lucid", name) from None
        elif name.endswith("_copy") and name in _copies.names():
            value = _copies.make(name)
        elif name.startswith("_foreach_") and name in _foreach.names():
            value = _foreach.make(name)
        elif name in _absent_dtypes.names():
            value = _absent_dtypes.get(name)
        elif name in _LAYERS:
            value = getattr(importlib.import_module("lucid._functional"), name)
        elif name in _NAMES:
            value = getattr(importlib.import_module(_NAMES[name]), name)
        else:
            raise _missing("lucid", name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_PACKAGES, *_NAMES, *_LAYERS, *_copies.names(), *_absent_dtypes.names()})


__all__ = [
    *_C.__all__,
    "DTypeLike",
    "DeviceLike",
    "HasShape",
    "OpSchema",
    "OutOfMemoryError",
    "Scalar",
    "ShapeLike",
    "Size",
    "StateDict",
    "SupportsGrad",
    "SupportsNumpyConversion",
    "TensorLike",
    "TensorLikeProtocol",
    "TensorOrScalar",
    "are_deterministic_algorithms_enabled",
    "broadcast_shapes",
    "dtypes",
    "e",
    "enable_grad",
    "eval",
    "finfo",
    "get_float32_matmul_precision",
    "get_float64_policy",
    "get_num_interop_threads",
    "get_zero_copy_threshold",
    "iinfo",
    "inf",
    "inference_mode",
    "is_deterministic_algorithms_warn_only_enabled",
    "nan",
    "newaxis",
    "no_grad",
    "op_schemas",
    "pi",
    "set_deterministic",
    "set_float32_matmul_precision",
    "set_float64_policy",
    "set_grad_enabled",
    "set_num_interop_threads",
    "set_zero_copy_threshold",
    "synchronize",
    "typename",
    "use_deterministic_algorithms",
]

_c_names.install()
_interop.watch()
