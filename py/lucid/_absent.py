"""Public names of PyTorch's that are not there, as data, and why: what an AttributeError says, the docs' table shows,
and a test compares with both frameworks, so that none is missing without a reason, and none is listed that is there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

QUANTIZED = "there are no quantized tensors; use float16 or bfloat16"
COMPILER = "of the compiler, and of scripts and graphs that it reads; run the Python function itself"
SHAPES = "no symbolic shapes"
COMPRESSED = "sparse tensors have the COO, CSR, CSC and BSR layouts alone"
SPARSE_PRODUCTS = "products whose result PyTorch lays out sparse; `mm` and `sparse.addmm` give a dense one"
OTHER_DTYPES = "the dtypes are those that MLX and the kernels of the CPU have"
REMOVED = "removed: in PyTorch it raises an error"
DEPRECATED = "deprecated in PyTorch"
VENDORS = "a kernel of one vendor's library"
OTHER_MACHINES = "of devices that Lucid does not run on"
BUILD = "tells how PyTorch was built, or loads its parts"
INTERNAL = "of PyTorch's own workings: types, tests and helpers that programs do not name"
JOINT = "part of batch norm over several processes"
CUDA = "CUDA's own: MLX has one memory pool, one stream a device, and no graphs of calls"
DATA_PIPES = "data pipes, which PyTorch has frozen"
TRACES = "of PyTorch's tracer of kernels; `lucid.profiler` counts ops, kernels and time"
EXPERIMENTAL = "experimental in PyTorch"
FUNCTIONS_OF_OPTIMIZERS = (
    "the step of an optimizer as a function, with its state as lists of tensors; the classes are there"
)
FILES = "how files are arranged, checked and mapped is not to be set"

#: Modules that are not there.
MODULES: dict[str, str] = {
    **dict.fromkeys(("nn.intrinsic", "nn.qat"), QUANTIZED),
    **dict.fromkeys(("nn.modules.linear_cross_entropy",), INTERNAL),
    "optim.functional": FUNCTIONS_OF_OPTIMIZERS,
    **dict.fromkeys(("utils.module_tracker",), INTERNAL),
    **dict.fromkeys(("utils.backend_registration", "utils.throughput_benchmark"), INTERNAL),
}


def _names(reason: str, names: str) -> dict[str, str]:
    return dict.fromkeys(names.split(), reason)


# The files of optimizers whose steps PyTorch has as functions of the same name.
_STEPS = ("adadelta", "adagrad", "adam", "adamax", "adamw", "asgd", "nadam", "radam", "rmsprop", "rprop", "sgd")

#: The names that are not there, by module.
ABSENT: dict[str, dict[str, str]] = {
    "": {
        **_names(
            QUANTIZED,
            """QInt32Storage QInt8Storage QUInt2x4Storage QUInt4x2Storage QUInt8Storage choose_qparams_optimized
            dequantize empty_quantized fake_quantize_per_channel_affine fake_quantize_per_tensor_affine
            fbgemm_linear_fp16_weight fbgemm_linear_fp16_weight_fp32_activation fbgemm_linear_int8_weight
            fbgemm_linear_int8_weight_fp32_activation fbgemm_linear_quantize_weight fbgemm_pack_gemm_matrix_fp16
            fbgemm_pack_quantized_matrix fused_moving_avg_obs_fake_quant int_repr per_channel_affine
            per_channel_affine_float_qparams per_channel_symmetric per_tensor_affine per_tensor_symmetric
            q_per_channel_axis q_per_channel_scales q_per_channel_zero_points q_scale q_zero_point qint32 qint8
            qscheme quantize_per_channel quantize_per_tensor quantize_per_tensor_dynamic quantized_batch_norm
            quantized_gru quantized_gru_cell quantized_lstm quantized_lstm_cell quantized_max_pool1d
            quantized_max_pool2d quantized_max_pool3d quantized_rnn_relu_cell quantized_rnn_tanh_cell quint2x4
            quint4x2 quint8""",
        ),
        **_names(
            COMPILER,
            """AliasDb Argument ArgumentSpec Block BufferDict CallStack Capsule Code CompilationUnit
            CompleteArgumentSpec ConcreteModuleType ConcreteModuleTypeBuilder DeepCopyMemoTable
            DeserializationStorageContext ErrorReport ExecutionPlan FileCheck FunctionSchema Gradient
            Graph GraphExecutorState IODescriptor JITException LiteScriptModule ModuleDict Node
            OperatorInfo ParameterDict ScriptClass ScriptClassFunction ScriptDict ScriptDictIterator
            ScriptDictKeyIterator ScriptFunction ScriptList ScriptListIterator ScriptMethod
            ScriptModuleSerializer ScriptObject ScriptObjectProperty SerializationStorageContext
            StaticModule TracingState Type Use Value cpp import_ir_module
            import_ir_module_from_buffer merge_type_from_type_comment parse_ir parse_schema
            parse_type_comment unify_type_list""",
        ),
        **_names(SHAPES, "sym_constrain_range sym_constrain_range_for_size sym_fresh_size"),
        **_names(
            INTERNAL,
            """AVG AcceleratorError AggregationType BenchmarkConfig BenchmarkExecutionStats DisableTorchFunction
            DisableTorchFunctionSubclass DispatchKey DispatchKeySet ExcludeDispatchKeyGuard FatalError
            LockingLogger LoggerBase NoopLogger PRIVATE_OPS PyTorchFileReader PyTorchFileWriter SUM
            ThroughputBenchmark autocast_decrement_nesting autocast_increment_nesting classproperty get_file_path
            init_num_threads is_distributed native_norm
            prepare_multiprocessing_environment profiler_allow_cudagraph_cupti_lazy_reinit_cuda12 slice_inverse
            thread_safe_generator""",
        ),
        **_names(
            BUILD,
            """USE_GLOBAL_DEPS USE_RTLD_GLOBAL_WITH_LIBTORCH compiled_with_cxx11_abi has_lapack has_mkl has_openmp
            has_spectral""",
        ),
        **_names(
            JOINT,
            """batch_norm_backward_elemt batch_norm_backward_reduce batch_norm_elemt batch_norm_gather_stats
            batch_norm_gather_stats_with_counts batch_norm_stats batch_norm_update_stats""",
        ),
        **_names(
            OTHER_DTYPES,
            """bit hash_tensor""",
        ),
        **_names(
            COMPRESSED,
            """ccol_indices_copy col_indices_copy crow_indices_copy indices_copy resize_as_sparse_ row_indices_copy
            sparse_bsc sparse_bsc_tensor sparse_compressed_tensor values_copy""",
        ),
        **_names(SPARSE_PRODUCTS, "hsmm hspmm saddmm smm sspaddmm"),
        **_names(
            VENDORS,
            """cudnn_affine_grid_generator cudnn_batch_norm cudnn_convolution cudnn_convolution_add_relu
            cudnn_convolution_relu cudnn_convolution_transpose cudnn_grid_sampler cudnn_is_acceptable
            miopen_batch_norm miopen_convolution miopen_convolution_add_relu miopen_convolution_relu
            miopen_convolution_transpose miopen_ctc_loss miopen_depthwise_convolution miopen_rnn
            mkldnn_adaptive_avg_pool2d mkldnn_convolution mkldnn_linear_backward_weights mkldnn_max_pool2d
            mkldnn_max_pool3d mkldnn_rnn_layer""",
        ),
        **_names(
            OTHER_MACHINES,
            """get_autocast_ipu_dtype get_autocast_xla_dtype is_autocast_ipu_enabled is_autocast_xla_enabled
            is_vulkan_available set_autocast_ipu_dtype set_autocast_ipu_enabled set_autocast_xla_dtype
            set_autocast_xla_enabled""",
        ),
        **_names(REMOVED, "Storage cholesky eig lstsq matrix_rank qr solve symeig"),
    },
    "Tensor": {
        **_names(
            QUANTIZED,
            """dequantize int_repr q_per_channel_axis q_per_channel_scales q_per_channel_zero_points q_scale
            q_zero_point qscheme""",
        ),
        **_names(
            COMPRESSED,
            """ccol_indices col_indices crow_indices resize_as_sparse_ row_indices sparse_resize_
            sparse_resize_and_clear_ to_sparse_bsc""",
        ),
        **_names(SPARSE_PRODUCTS, "smm sspaddmm"),
        **_names(OTHER_MACHINES, "ipu is_ipu is_maia is_mkldnn is_mtia is_vulkan mtia to_mkldnn xpu"),
        **_names(REMOVED, "cholesky eig lstsq qr solve symeig"),
        **_names(DEPRECATED, "index name reinforce resize resize_as storage_type volatile"),
        **_names(OTHER_DTYPES, "chalf hash_tensor"),
        **_names(INTERNAL, "const_data_ptr is_distributed slice_inverse"),
        **_names(EXPERIMENTAL, "to_padded_tensor"),
    },
    "nn": _names(INTERNAL, "factory_kwargs"),
    "nn.functional": {
        **_names(OTHER_DTYPES, "ScalingType SwizzleType scaled_addmm scaled_addmm_ scaled_grouped_mm scaled_mm"),
        **_names(
            INTERNAL, "assert_int_or_pair has_torch_function has_torch_function_unary has_torch_function_variadic"
        ),
    },
    "functional": _names(INTERNAL, "has_torch_function has_torch_function_unary has_torch_function_variadic"),
    "nn.modules.container": _names(INTERNAL, "T"),
    "nn.parallel": _names(
        "one process computes, on one GPU",
        "DistributedDataParallelCPU",
    ),
    "nn.utils.rnn": _names(INTERNAL, "PackedSequence_ bind"),
    "nn.utils.fusion": _names(INTERNAL, "ConvT LinearT"),
    "nn.utils.spectral_norm": _names(INTERNAL, "SpectralNormLoadStateDictPreHook SpectralNormStateDictHook T_module"),
    "nn.utils.weight_norm": _names(INTERNAL, "T_module"),
    "linalg": _names(EXPERIMENTAL, "matrix_sqrth polar"),
    "sparse": {
        **_names(COMPRESSED, "as_sparse_gradcheck solve spsolve"),
        **_names(
            VENDORS,
            """SparseSemiStructuredTensor SparseSemiStructuredTensorCUSPARSELT SparseSemiStructuredTensorCUTLASS
            to_sparse_semi_structured""",
        ),
    },
    "random": _names(INTERNAL, "thread_safe_generator"),
    "distributions.transforms": _names("`nn.functional` has it", "softplus"),
    "distributions.utils": _names(INTERNAL, "R T"),
    "autograd": _names(
        INTERNAL,
        """DeviceType ProfilerActivity ProfilerConfig ProfilerEvent ProfilerState SavedTensor has_torch_function
        is_view_replay_enabled kineto_available""",
    ),
    "autograd.graph": {
        **_names(COMPILER, "region_activation_memory_budget"),
        **_names(
            "a call is one step, whatever it is made of: there is no moment at which each is new", "node_creation_hook"
        ),
        **_names(CUDA, "set_override_stale_capture_stream set_warn_on_accumulate_grad_stream_mismatch"),
    },
    "autograd.function": _names(INTERNAL, "BackwardCFunction"),
    "autograd.profiler": _names(
        TRACES,
        """DeviceType EnforceUnique EventList FunctionEvent KinetoStepTracker MemRecordsAcc ProfilerActivity
        ProfilerConfig ProfilerState emit_itt emit_nvtx load_nvprof parse_nvprof_trace""",
    ),
    "autograd.gradcheck": _names(
        DEPRECATED, "get_analytical_jacobian get_numerical_jacobian get_numerical_jacobian_wrt_specific_input"
    ),
    "autograd.variable": _names(INTERNAL, "ImperativeEngine VariableMeta"),
    "overrides": _names(
        INTERNAL,
        """BaseTorchFunctionMode enable_reentrant_dispatch get_ignored_functions get_overridable_functions
        get_testing_overrides redispatch_function""",
    ),
    "storage": _names(INTERNAL, "T"),
    "optim": _names(FUNCTIONS_OF_OPTIMIZERS, "functional") | _names(INTERNAL, "swap_in_optimizer_params_and_state"),
    "optim.optimizer": _names(INTERNAL, "R T"),
    **{f"optim.{name}": _names(FUNCTIONS_OF_OPTIMIZERS, name) for name in _STEPS},
    "utils": _names(INTERNAL, "set_module"),
    "utils.data": _names(
        DATA_PIPES,
        """DFIterDataPipe DataChunk IterDataPipe MapDataPipe argument_validation functional_datapipe
        guaranteed_datapipes_determinism non_deterministic runtime_validation runtime_validation_disabled""",
    ),
    "utils.checkpoint": _names(INTERNAL, "DefaultDeviceType SavedTensor"),
    "utils.hooks": _names(INTERNAL, "BackwardHook"),
    "utils.dlpack": _names(INTERNAL, "ReadOnlyTensorWrapper"),
    "amp.autocast_mode": _names(INTERNAL, "autocast_decorator"),
    "serialization": {
        **_names(
            FILES,
            """LoadEndianness get_crc32_options get_default_load_endianness set_crc32_options
            set_default_load_endianness""",
        ),
        **_names(
            INTERNAL,
            """SourceChangeWarning StorageType T check_module_version_greater_or_equal default_restore_location
            get_unsafe_globals_in_checkpoint location_tag mkdtemp normalize_storage_type register_package
            storage_to_tensor_type validate_cuda_device validate_hpu_device""",
        ),
    },
    "profiler": _names(
        TRACES,
        """CuspyConfig DeviceType ExecutionTraceObserver PerformanceMetricsConfig ProfilerActivityConfig RecordScope""",
    ),
    "return_types": {
        **_names(
            "results written to `out` have the type of the others",
            """aminmax_out cummax_out cummin_out frexp_out geqrf_out histogram_out kthvalue_out
            linalg_cholesky_ex_out linalg_eig_out linalg_eigh_out linalg_inv_ex_out linalg_ldl_factor_ex_out
            linalg_ldl_factor_out linalg_lstsq_out linalg_lu_factor_ex_out linalg_lu_factor_out linalg_lu_out
            linalg_qr_out linalg_slogdet_out linalg_solve_ex_out linalg_svd_out lu_unpack_out max_out median_out
            min_out mode_out nanmedian_out slogdet_out sort_out svd_out topk_out triangular_solve_out""",
        ),
        **_names(EXPERIMENTAL, "linalg_polar linalg_polar_out"),
        **_names(INTERNAL, "all_return_types pytree_register_structseq"),
    },
    "mps": _names(
        "MLX compiles its kernels, and has one stream",
        """Stream compile_shader current_stream default_stream load_metallib profiler set_per_process_memory_fraction
        set_stream stream""",
    ),
    "cpu": _names(BUILD, "get_capabilities"),
    "cuda": _names(
        CUDA,
        """BFloat16Storage BoolStorage ByteStorage CharStorage ComplexDoubleStorage ComplexFloatStorage
        DeferredCudaCallError DoubleStorage ExternalStream FloatStorage GreenContext HalfStorage IntStorage
        LongStorage ShortStorage can_device_access_peer clock_rate current_blas_handle current_solver_handle
        device_memory_used export_dot export_graph_data get_gencode_flags get_stream_from_external get_sync_debug_mode
        graph_annotations has_half has_magma jiterator memory_usage power_draw set_sync_debug_mode
        temperature tunable utilization""",
    ),
    "cuda.streams": _names(CUDA, "ExternalStream"),
    "accelerator": _names(CUDA, "Graph empty_host_cache get_device_capability reset_accumulated_memory_stats"),
    "compiler": _names(
        COMPILER,
        """PrecompileError cudagraph_mark_warmup_incomplete get_default_backend load_compiled_function nonstrict_trace
        precompile set_default_backend""",
    ),
    "futures": _names(INTERNAL, "S T"),
    "fx": _names(INTERNAL, "CodeGen ProxyableClassMeta"),
    "jit": _names(COMPILER, "last_executed_optimized_graph"),
    "nn.attention": _names(
        VENDORS,
        """activate_flash_attention_impl current_flash_attention_impl list_flash_attention_impls
        register_flash_attention_impl restore_flash_attention_impl""",
    ),
    "version": _names(BUILD, "git_version rocm xpu"),
}


def missing(module: str, name: str) -> AttributeError:
    """The error for a name that a module does not have, with the reason if PyTorch's module has it.

    Args:
        module (str): the name of the module, such as `lucid.nn`.
        name (str): the attribute.

    Returns:
        AttributeError: the error.

    Example:
        >>> str(lucid.autograd.missing("lucid.nn", "nothing"))
        "module 'lucid.nn' has no attribute 'nothing'"
    """
    inner = module.partition(".")[2]
    full = f"{inner}.{name}".lstrip(".")
    reason = ABSENT.get(inner, {}).get(name) or MODULES.get(full)
    text = f"module {module!r} has no attribute {name!r}"
    return AttributeError(f"{text}: {reason}" if reason else text, name=name)


def teller(module: str) -> Callable[[str], Any]:
    """A `__getattr__` for a module that raises `missing`.

    Args:
        module (str): the name of the module.

    Returns:
        callable: the function.

    Raises:
        AttributeError: when it is called.

    Example:
        >>> callable(lucid._absent.teller("lucid.nn"))
        True
    """

    def tell(name: str) -> Any:
        raise missing(module, name)

    return tell
