"""Export of a GraphIR as a Core ML program, by `coremltools`, which is an optional dependency.

Writing needs no Mac; `coremltools` checks the program by its own type inference while it converts. Running needs one.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Mapping
from typing import Any

from lucid import errors
from lucid.lightning.graph.ir import GraphIR, Node

__all__ = ["export_coreml", "supported_operators"]


def _coremltools() -> Any:
    try:
        return importlib.import_module("coremltools")
    except ImportError as e:
        raise errors.RuntimeError(f"export_coreml(): this needs coremltools (pip install coremltools): {e}") from None


def _act(mb: Any, x: Any, name: str) -> Any:
    return x if name == "none" else mb.relu(x=x) if name == "relu" else mb.gelu(x=x, mode="EXACT")


def _conv(mb: Any, t: list[Any], a: Mapping[str, Any]) -> Any:
    arguments: dict[str, Any] = {"bias": t[2]} if len(t) > 2 else {}
    pad = [a["pad_h"], a["pad_h"], a["pad_w"], a["pad_w"]]
    y = mb.conv(x=t[0], weight=t[1], strides=[a["stride_h"], a["stride_w"]], pad_type="custom", pad=pad, **arguments)
    return _act(mb, y, a.get("act", "none"))


def _matmul_bias_act(mb: Any, t: list[Any], a: Mapping[str, Any]) -> Any:
    y = mb.matmul(x=t[0], y=t[1])
    return _act(mb, y if len(t) < 3 else mb.add(x=y, y=t[2]), a["act"])


def _attention(mb: Any, t: list[Any], a: Mapping[str, Any]) -> Any:
    if a["causal"]:
        raise errors.NotImplementedError("export_coreml(): causal attention is not exported")
    scores = mb.mul(x=mb.matmul(x=t[0], y=t[1], transpose_y=True), y=float(t[0].shape[-1]) ** -0.5)
    return mb.matmul(x=mb.softmax(x=scores, axis=-1), y=t[2])


_LOWERINGS: dict[str, Callable[[Any, list[Any], Mapping[str, Any]], Any]] = {
    "matmul": lambda mb, t, a: mb.matmul(x=t[0], y=t[1]),
    "vector_add": lambda mb, t, a: mb.add(x=t[0], y=t[1]),
    "matrix_sub": lambda mb, t, a: mb.sub(x=t[0], y=t[1]),
    "matrix_div": lambda mb, t, a: mb.real_div(x=t[0], y=t[1]),
    "mul": lambda mb, t, a: mb.mul(x=t[0], y=t[1]),
    "bias_add": lambda mb, t, a: mb.add(x=t[0], y=t[1]),
    "relu": lambda mb, t, a: mb.relu(x=t[0]),
    "gelu": lambda mb, t, a: mb.gelu(x=t[0], mode="EXACT"),
    "scale": lambda mb, t, a: mb.mul(x=t[0], y=a["factor"]),
    "softmax": lambda mb, t, a: mb.softmax(x=t[0], axis=-1),
    "transpose": lambda mb, t, a: mb.transpose(x=t[0], perm=[1, 0]),
    "reshape": lambda mb, t, a: mb.reshape(x=t[0], shape=list(a["shape"])),
    "attention": _attention,
    "conv2d_nchw": _conv,
    "conv2d_act": _conv,
    "matmul_bias_act": _matmul_bias_act,
}


def supported_operators() -> list[str]:
    """The operators of GraphIR that are exported."""
    return list(_LOWERINGS)


def export_coreml(graph: GraphIR, path: str | os.PathLike[str], *, outputs: Any = None) -> dict[str, Any]:
    """Writes a graph as an `.mlpackage`.

    Args:
        graph (GraphIR): A valid graph of float32, whose weights are constants (`add_tensor(…, value=…)`).
        path (str | os.PathLike[str]): Ends in `.mlpackage`.
        outputs (object, optional): The results by number or name; the graph's own by default.

    Returns:
        A dict with `inputs` and `outputs` by name, with shapes, and `operators`.

    Raises:
        RuntimeError: `coremltools` is not installed, or refuses the program.
        NotImplementedError: An operator is not exported; nothing is written.
        ValueError: The graph is not valid or gives nothing, a result is an input, the path does not end in
            `.mlpackage`, or its folder is not there.

    Example:
        >>> import importlib.util, tempfile
        >>> import lucid.lightning as lc
        >>> graph = lc.GraphIR()
        >>> x, y = graph.add_tensor((1, 2), name="x"), graph.add_tensor((1, 2), name="y")
        >>> _ = graph.add_node("relu", [x], [y])
        >>> if importlib.util.find_spec("coremltools"):
        ...     with tempfile.TemporaryDirectory() as folder:
        ...         report = lc.coreml.export_coreml(graph, f"{folder}/relu.mlpackage")
    """
    if not isinstance(graph, GraphIR):
        raise errors.TypeError(f"export_coreml(): expected a GraphIR, got {type(graph).__name__}")
    if not isinstance(path, (str, os.PathLike)):
        raise errors.TypeError(f"export_coreml(): path must be a str or a path, got {type(path).__name__}")
    graph.validate()
    target = os.fspath(path)
    if not isinstance(target, str) or not target.endswith(".mlpackage"):
        raise errors.ValueError(f"export_coreml(): the path must end in .mlpackage, got {target!r}")
    if not os.path.isdir(os.path.dirname(os.path.abspath(target))):
        raise errors.ValueError(f"export_coreml(): the folder of {target!r} is not there")
    nodes = [graph._nodes[n] for n in graph._recorded().order]
    missing = sorted({node.op for node in nodes} - set(_LOWERINGS))
    if missing:
        raise errors.NotImplementedError(f"export_coreml(): operators {', '.join(missing)} are not exported")
    if any(t.dtype != "float32" for t in graph._tensors):
        raise errors.DtypeMismatch("export_coreml(): a graph of float32 is needed")
    numbers = [graph._number("export_coreml()", t) for t in outputs] if outputs is not None else graph.outputs()
    if not numbers:
        raise errors.ValueError("export_coreml(): the graph gives nothing: it has no nodes, or no outputs were named")
    given = sorted(set(numbers) & set(graph.inputs()))
    if given:
        raise errors.ValueError(f"export_coreml(): tensors {given} are inputs, and no results of the graph")
    return _convert(_coremltools(), graph, nodes, numbers, target)


def _convert(ct: Any, graph: GraphIR, nodes: list[Node], numbers: list[int], path: str) -> dict[str, Any]:
    mb = importlib.import_module("coremltools.converters.mil").Builder
    mil = importlib.import_module("coremltools.converters.mil.mil")
    inputs = {graph._tensors[t].name: graph._tensors[t].shape for t in graph.inputs()}
    target = ct.target.iOS16
    try:
        function = mil.Function({n: mb.placeholder(shape=s) for n, s in inputs.items()}, opset_version=target)
        with function:
            values: dict[int, Any] = {t: function.inputs[graph._tensors[t].name] for t in graph.inputs()}
            for info in graph._tensors:
                if info.value is not None:
                    values[info.id] = info.value.cpu().numpy().copy()
            for node in nodes:
                values[node.outputs[0]] = _LOWERINGS[node.op](mb, [values[t] for t in node.inputs], node.attrs)
            named = [mb.identity(x=values[t], name=graph._tensors[t].name) for t in numbers]
            function.set_outputs(named)
        program = mil.Program()
        program.add_function("main", function)
        model = ct.convert(
            program,
            source="milinternal",
            convert_to="mlprogram",
            minimum_deployment_target=target,
            compute_precision=ct.precision.FLOAT32,
            skip_model_load=True,
        )
    except errors.LucidError:
        raise
    except Exception as e:
        raise errors.RuntimeError(f"export_coreml(): coremltools refuses the graph: {e}") from e
    model.save(path)
    return {
        "inputs": inputs,
        "outputs": {graph._tensors[t].name: graph._tensors[t].shape for t in numbers},
        "operators": sorted({node.op for node in nodes}),
    }
