"""No parameter of a public function silently does nothing: the body reads it, or the documentation says so."""

from __future__ import annotations

import ast
import io
import re
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import lucid
import lucid.distributed.checkpoint
import lucid.distributed.fsdp
import pytest
from lucid import _warnings

ROOT = Path(lucid.__file__).parent
SAYS = re.compile(
    r"(?i)no effect|without effect|ignored|chang\w+ nothing|only PyTorch|in any case|always|never used|deprecated"
)

#: Methods whose parameters Python, or a caller of many such methods, decides.
PROTOCOLS = {
    *("__exit__", "__call__", "__reduce_ex__", "__deepcopy__", "__get__", "__torch_function__", "__torch_dispatch__"),
    *("create_module", "find_spec"),
}

#: What a function's documentation does not say, and why nothing is lost: parameters by function, never by module.
KNOWN: dict[str, str] = {
    f"{function}({name})": reason
    for reason, functions in {
        "the signature that callers of several such functions share": {
            "autograd.function.FunctionCtx.mark_shared_storage": "pairs",
            "compiler._report.flops": "steps_by_value",
            "distributed.fsdp.wrap.lambda_auto_wrap_policy": "nonwrapped_numel",
            "distributed.fsdp.wrap.transformer_auto_wrap_policy": "nonwrapped_numel",
            "distributions._transform_base.ReshapeTransform.log_abs_det_jacobian": "y",
            **{
                f"distributions.transforms.{kind}Transform.log_abs_det_jacobian": "y"
                for kind in ("Affine", "CumulativeDistribution", "Exp", "Sigmoid", "Softplus", "Tanh")
            },
            "fx._trace.Tracer.getattr": "attr",
            "fx._trace.Tracer.is_leaf_module": "module_qualified_name",
            "fx.experimental.symbolic_shapes.free_symbols": "val",
            "fx.experimental.symbolic_shapes.free_unbacked_symbols": "x",
            "fx.experimental.symbolic_shapes.is_concrete_bool": "a",
            "fx.experimental.symbolic_shapes.is_concrete_int": "a",
            "fx.interpreter.Interpreter.get_attr": "args kwargs",
            "fx.interpreter.Interpreter.map_nodes_to_values": "n",
            "fx.interpreter.Interpreter.output": "target kwargs",
            "fx.interpreter.Interpreter.placeholder": "kwargs",
            "fx.interpreter.Interpreter.run": "enable_io_processing",
            "fx.interpreter.Transformer.placeholder": "kwargs",
            "fx.node.Node.format_node": "args kwargs",
            "nn.attention.flex_attention.noop_mask": "head token_q token_kv",
            "nn.utils._prune_methods.CustomFromMask.compute_mask": "t",
            "nn.utils._prune_methods.Identity.compute_mask": "t",
            "utils.data._fetch.MapFetcher.__init__": "drop_last",
        },
        "of layers for evaluation, written as ops of ONNX; what has no rule is refused before": {
            "onnx._decompose.multi_head_attention_forward": (
                "bias_v dropout_p embed_dim_to_check k_proj_weight q_proj_weight training use_separate_proj_weight "
                "v_proj_weight"
            ),
            "onnx._decompose.normalize": "out",
            "onnx._decompose.scaled_dot_product_attention": "dropout_p",
            "onnx._decompose.silu": "inplace",
        },
        "how a graph is shown in PyTorch; the code is the same": {
            "fx.graph.Graph.find_nodes": "sort",
            "fx.graph.Graph.python_code": "options",
            "fx.graph_module.GraphModule.print_readable": "options",
        },
        "one device, one stream, one compiler, one implementation": {
            "_gpu.Event.record": "stream",
            "_gpu.Named.set_stream": "stream",
            "autograd.graph.save_on_cpu.__init__": "device_type",
            "compiler.list_backends": "exclude_tags",
            "cuda.device_of.__init__": "obj",
            "nn.attention.sdpa_kernel": "set_priority",
            "xpu.max_memory_allocated": "device",
            "xpu.memory_allocated": "device",
            "xpu.memory_reserved": "device",
        },
        "copies are done when they return; storages are bytes": {
            "_convert.wrap_array": "context return_scalar",
            "_storage.TypedStorage.type": "non_blocking",
            "_storage.UntypedStorage.copy_": "non_blocking",
            "_storage.UntypedStorage.from_buffer": "dtype",
        },
        "the output's size is given beside the scales": {
            "_aten.upsample_bilinear2d": "scales_h scales_w",
            "_aten.upsample_nearest2d": "scales_h scales_w",
        },
        "a hint to a compiler that reads scripts": {
            "_dynamo.mark_static_address": "guard",
            "_dynamo.utils.compile_times": "aggregate",
            "_dynamo.utils.is_compile_supported": "device_type",
            "export._program.ExportedProgram.module": "check_guards",
            "jit.annotate": "the_type",
            "jit.script": "example_inputs",
            "jit.trace": "strict",
            "jit.trace_module": "strict",
            "library.Library.define": "alias_analysis",
        },
        "PyTorch's own bookkeeping": {
            "_grad_mode.enable_grad.__init__": "orig_func",
            "_grad_mode.no_grad.__init__": "orig_func",
            "utils._pytree.register_dataclass": "serialized_type_name",
        },
        "a rule takes the table of all rules, which those of elements do not ask": {
            f"utils.data._collate.collate_{kind}_fn": "collate_fn_map"
            for kind in ("float", "int", "numpy_scalar", "str", "tensor")
        },
        "what it is about is not there: making one is an error, asking is answered by no": {
            "_functorch_names.is_gradtrackingtensor": "tensor",
            "_functorch_names.is_legacy_batchedtensor": "tensor",
            "package.PackageExporter.__init__": "args kwargs",
            "package.PackageImporter.__init__": "args kwargs",
            "package.is_from_package": "obj",
            "utils.cpp_extension.BuildExtension.__init__": "args kwargs",
            "utils.cpp_extension.BuildExtension.with_options": "options",
            "utils.cpp_extension.get_compiler_abi_compatibility_and_version": "compiler",
        },
        "a name for PyTorch's groups, whose object is given beside it": {
            f"distributed._functional_collectives.{name}": "tag"
            for name in (
                *("all_gather_tensor", "all_reduce", "all_to_all_single", "broadcast", "reduce_scatter_tensor"),
            )
        },
        "PyTorch's server waits for so many processes; each `get` waits here": {
            "distributed.store.FileStore.__init__": "world_size",
            "distributed.store.TCPStore.__init__": "world_size",
        },
        "what PyTorch's own functions hand to one another": {
            "distributed.fsdp._wrapper.FullyShardedDataParallel.optim_state_dict": "group",
            "distributed.fsdp._wrapper.FullyShardedDataParallel.optim_state_dict_to_load": "optim args kwargs",
            "distributed.fsdp._wrapper.FullyShardedDataParallel.state_dict": "args",
        },
        "a matrix has two sparse dimensions and no dense one; gradients have its pattern": {
            "_sparse_batches.SparseBatch.to_sparse": "sparse_dim",
            "_sparse_csr.SparseCsrTensor.to_sparse": "sparse_dim",
            "_sparse_csr.SparseCsrTensor.to_sparse_csr": "dense_dim",
            "autograd._gradcheck.gradcheck": "masked",
        },
    }.items()
    for function, names in functions.items()
    for name in names.split()
}


def parameters(f: ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
    a = f.args
    return [p.arg for p in (*a.posonlyargs, *a.args, *a.kwonlyargs, a.vararg, a.kwarg) if p is not None]


def is_trivial(f: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Nothing but a docstring, `raise`, `pass` or `...`: a refusal, an abstract method, or a protocol."""
    plain = (ast.Raise, ast.Pass)
    return all(isinstance(s, plain) or (isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant)) for s in f.body)


def unread(path: Path) -> Iterator[str]:
    module = str(path.relative_to(ROOT).with_suffix("")).replace("/", ".").removesuffix(".__init__")

    def visit(node: ast.AST, prefix: str, texts: str) -> Iterator[str]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.ClassDef):
                if not child.name.startswith("_"):
                    yield from visit(child, f"{prefix}.{child.name}", ast.get_docstring(child) or "")
            elif isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
                public = not child.name.startswith("_") or child.name == "__init__"
                overload = any("overload" in ast.unparse(d) for d in child.decorator_list)
                if not public or overload or is_trivial(child) or child.name in PROTOCOLS:
                    continue
                read = {n.id for s in child.body for n in ast.walk(s) if isinstance(n, ast.Name)}
                text = f"{texts}\n{ast.get_docstring(child) or ''}"
                for name in parameters(child):
                    hidden = name.startswith("_") or name in ("self", "cls") or name in read or "locals" in read
                    if not hidden and not said(text, name):
                        yield f"{prefix}.{child.name}({name})"
            elif isinstance(child, (ast.If, ast.Try, ast.With)):
                yield from visit(child, prefix, texts)

    yield from visit(ast.parse(path.read_text(encoding="utf-8")), module, "")


def said(text: str, name: str) -> bool:
    """Whether the docstring says so of the parameter, or of the whole function, which then warns or refuses."""
    lines = text.splitlines()
    if SAYS.search(" ".join(lines[:5])) and re.search(r"warn|refuse", text):
        return True
    for i, line in enumerate(lines):
        if re.search(rf"\b{name}\b", line) and SAYS.search(" ".join(lines[i : i + 3])):
            return True
    return False


def test_parameters_are_read_or_documented() -> None:
    found = {name for path in sorted(ROOT.rglob("*.py")) if "as_torch" not in path.parts for name in unread(path)}

    silent = sorted(found - set(KNOWN))
    assert not silent, f"taken and not read: {silent}; read them, warn, or document that they have no effect"
    assert found >= set(KNOWN), f"listed, but read or documented: {sorted(set(KNOWN) - found)}"


def test_options_without_effect_warn_once() -> None:
    x = lucid.ones(1, requires_grad=True)
    asked: dict[str, Callable[[], Any]] = {
        "mode": lambda: lucid.compile(lambda t: t, mode="max-autotune"),
        "capturable": lambda: lucid.optim.AdamW([x], capturable=True),
        "optimize_ddp": lambda: setattr(lucid._dynamo.config, "optimize_ddp", False),
        "sync_files": lambda: lucid.distributed.checkpoint.FileSystemWriter("none", sync_files=False),
        "keep_low_precision_grads": lambda: lucid.distributed.fsdp.MixedPrecision(keep_low_precision_grads=True),
        "opset_version": lambda: lucid.export.save(
            lucid.export.export(lucid.nn.ReLU(), (lucid.ones(1),)), io.BytesIO(), opset_version={}
        ),
    }
    _warnings._given.clear()
    for name, call in asked.items():
        with pytest.warns(UserWarning, match=rf"{name} has no effect: \w"):
            call()
    # What asks for what happens anyway, and what was warned of before, is silent.
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for call in asked.values():
            call()
        lucid.optim.AdamW([x], foreach=None, fused=True)
        lucid.optim.SGD([x], lr=0.1, foreach=True, fused=False)
        lucid.compile(lambda t: t, mode="default")
        lucid._dynamo.config.cache_size_limit = 64
        assert lucid._dynamo.config.recompile_limit == 64
    lucid._dynamo.config.cache_size_limit = 8
    lucid._dynamo.config.optimize_ddp = True


def test_settings_of_dynamo_that_have_one() -> None:
    compiled = lucid.compile(lambda t: t + 1)
    with lucid._dynamo.config.patch(disable=True):
        assert compiled(lucid.ones(1)).item() == 2.0
        assert lucid.compiler.explain(compiled).graph_count == 0
    assert compiled(lucid.ones(1)).item() == 2.0
    assert lucid.compiler.explain(compiled).graph_count == 1


def test_what_a_library_registers_ends_with_it() -> None:
    op = lucid.library.custom_op("unread::twice", lambda t: t * 2, mutates_args=(), schema="(Tensor t) -> Tensor")
    library = lucid.library.Library("unread", "FRAGMENT")
    lucid.library.register_kernel(op, "cpu", lambda t: t * 3, lib=library)
    lucid.library.register_fake(op, lucid.empty_like, lib=library)
    assert op(lucid.ones(1)).item() == 3.0
    library._destroy()
    assert op(lucid.ones(1)).item() == 2.0 and op._opoverload.fake is None
    library.define("half(Tensor t) -> Tensor", tags="pointwise")
    half = lucid.ops.unread.half
    assert half.tags == ["pointwise"]
    lucid.library.register_fake(half, lucid.empty_like)
    with pytest.raises(RuntimeError, match="already has a fake impl"):
        lucid.library.register_fake(half, lucid.empty_like, allow_override=False)
