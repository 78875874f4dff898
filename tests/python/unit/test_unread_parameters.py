"""No parameter of a public function silently does nothing: the body reads it, or the documentation says so."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import lucid

ROOT = Path(lucid.__file__).parent
SAYS = re.compile(
    r"(?i)accepted|no effect|without effect|ignored|chang\w+ nothing|for PyTorch's|only PyTorch|in any case|never used|"
    r"deprecated"
)

#: Methods whose parameters Python, or a caller of many such methods, decides.
PROTOCOLS = {
    *("__exit__", "__call__", "__reduce_ex__", "__deepcopy__", "__get__", "__torch_function__", "__torch_dispatch__"),
    *("create_module", "find_spec"),
}

#: What a function's documentation does not say, and why nothing is lost.
KNOWN: dict[str, str] = {
    **dict.fromkeys(
        (
            *("fx.interpreter.Interpreter", "fx.interpreter.Transformer", "fx._trace.Tracer"),
            "fx.node.Node.format_node",
            *("fx.experimental.symbolic_shapes", "distributions.transforms", "distributions._transform_base"),
            *("nn.utils._prune_methods", "nn.attention.flex_attention.noop_mask", "onnx._decompose"),
            "utils.data._fetch",
            *("distributed.fsdp.wrap", "distributed.elastic.multiprocessing.errors.record", "compiler._report.flops"),
        ),
        "the signature that callers of several such functions share",
    ),
    **dict.fromkeys(
        ("fx.graph.Graph", "fx.graph_module.GraphModule"),
        "how a graph is shown in PyTorch; the code is the same",
    ),
    **dict.fromkeys(("xpu", "cuda.device_of", "compiler.list_backends"), "one device, one compiler"),
    **dict.fromkeys(
        ("_gpu", "_storage", "_convert", "autograd.function"),
        "one stream; copies are done when they return",
    ),
    **dict.fromkeys(
        ("_aten.upsample_nearest2d", "_aten.upsample_bilinear2d"),
        "the output's size is given beside the scales",
    ),
    **dict.fromkeys(
        ("_dynamo", "jit", "export._program.ExportedProgram.module"),
        "a hint to a compiler that reads scripts",
    ),
    **dict.fromkeys(("_grad_mode", "utils._pytree.register_dataclass"), "PyTorch's own bookkeeping"),
    **dict.fromkeys(
        ("package", "utils.cpp_extension"),
        "what the module is about is not there: making one is an error, asking is answered by no",
    ),
    **dict.fromkeys(("library.define", "library.Library.define"), "what PyTorch's compiler is told of an op"),
    **dict.fromkeys(
        ("distributed._functional_collectives",),
        "a name for PyTorch's groups, whose object is given beside it",
    ),
    **dict.fromkeys(("distributed.store",), "PyTorch's server waits for so many processes; each `get` waits here"),
    **dict.fromkeys(
        ("distributed.fsdp",),
        "what PyTorch's own functions hand to one another; gathers are done on return",
    ),
    **dict.fromkeys(("_sparse_csr",), "a matrix has two sparse dimensions and no dense one"),
    **dict.fromkeys(
        ("nn.attention.sdpa_kernel", "autograd.graph.save_on_cpu"),
        "one implementation a device, one GPU",
    ),
    **dict.fromkeys(("autograd._gradcheck.gradcheck",), "gradients of sparse inputs have their pattern alone"),
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

    def listed(name: str) -> str | None:
        return next((k for k in KNOWN if name.startswith((f"{k}.", f"{k}("))), None)

    silent = sorted(name for name in found if listed(name) is None)
    assert not silent, f"taken and not read: {silent}; read them, warn, or document that they have no effect"
    assert {listed(name) for name in found} == set(KNOWN), "a reason is listed for what is read or documented"
