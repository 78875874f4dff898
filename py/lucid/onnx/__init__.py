"""Models as ONNX files: `export` runs a model once and writes what its ops did.

The package `onnx` has to be installed for it. Control flow is what the run took; sizes are the example's, but for those
that `dynamic_axes` names.
"""

from __future__ import annotations

import enum
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import lucid
from lucid import Tensor
from lucid._recorder import Call, Recorder
from lucid.nn.modules.module import Module
from lucid.onnx import _layer_rules as _layer_rules
from lucid.onnx._build import Builder, elem_type
from lucid.onnx._build import OnnxExporterError as OnnxExporterError
from lucid.onnx._decompose import DECOMPOSED
from lucid.onnx._rules import RULES
from lucid.utils import _pytree

__all__ = [
    "ONNXProgram",
    "OnnxExporterError",
    "OperatorExportTypes",
    "TrainingMode",
    "export",
    "is_in_onnx_export",
    "register_custom_op_symbolic",
]

_exporting = False
#: Rules for another exporter, by the op's name.
_symbolic: dict[str, tuple[Callable[..., Any], int]] = {}
_PLACED = ("out", "memory_format", "non_blocking", "copy", "device")


def is_in_onnx_export() -> bool:
    """Does `export` run the model now?"""
    return _exporting


class TrainingMode(enum.Enum):
    """Which mode a model is exported in; `export` writes graphs for evaluation, `EVAL`."""

    EVAL = 0
    PRESERVE = 1
    TRAINING = 2


class OperatorExportTypes(enum.Enum):
    """What PyTorch's older exporter writes; graphs here have ONNX's own operators, `ONNX`."""

    ONNX = 0
    ONNX_ATEN = 1
    ONNX_ATEN_FALLBACK = 2
    ONNX_FALLTHROUGH = 3


def register_custom_op_symbolic(symbolic_name: str, symbolic_fn: Callable[..., Any], opset_version: int) -> None:
    """Notes a rule for PyTorch's older exporter. `export` asks none: where the op comes up, its error says so.

    Args:
        symbolic_name (str): the op, as `torchvision::nms`.
        symbolic_fn (callable): the rule.
        opset_version (int): the operator set that it writes.

    Example:
        >>> lucid.onnx.register_custom_op_symbolic("mine::op", lambda g, x: x, 18)
    """
    _symbolic[symbolic_name.partition("::")[2]] = (symbolic_fn, opset_version)


class ONNXProgram:
    """What `export` has made: a graph that ONNX runtimes run.

    Args:
        model_proto (onnx.ModelProto): the graph, as the package `onnx` has it.

    Example:
        >>> import importlib.util
        >>> if importlib.util.find_spec("onnx"):
        ...     program = lucid.onnx.export(lucid.nn.Linear(3, 2), lucid.ones(1, 3))
        ...     assert isinstance(program, lucid.onnx.ONNXProgram)
    """

    def __init__(self, model_proto: Any) -> None:
        self.model_proto = model_proto

    def save(self, destination: str | os.PathLike[str]) -> None:
        """Writes it to a file."""
        with open(destination, "wb") as file:
            file.write(self.model_proto.SerializeToString())

    def __call__(self, *args: Tensor) -> list[Tensor]:
        """Runs it with ONNX's reference evaluator, which is slow and meant for checks."""
        from onnx.reference import ReferenceEvaluator

        names = [i.name for i in self.model_proto.graph.input]
        given = {n: a.detach().cpu().numpy() for n, a in zip(names, args, strict=True)}
        return [lucid.as_tensor(r) for r in ReferenceEvaluator(self.model_proto).run(None, given)]


def _record(model: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[list[Tensor], Recorder, list[Tensor]]:
    inputs = [t for t in _pytree.tree_leaves((args, kwargs)) if isinstance(t, Tensor)]
    recorder = Recorder(inputs, OnnxExporterError, "onnx.export", DECOMPOSED)
    with lucid.no_grad(), recorder:
        result = model(*args, **kwargs)
    return inputs, recorder, [t for t in _pytree.tree_leaves(result) if isinstance(t, Tensor)]


def _varied(shapes: Sequence[tuple[int, ...]], others: Sequence[tuple[int, ...]]) -> list[tuple[bool, ...]]:
    return [tuple(a != b for a, b in zip(s, o, strict=True)) for s, o in zip(shapes, others, strict=True)]


#: Ops whose sizes are those of their result, of which the builder knows what varies.
_SHAPED = {RULES["reshape"], RULES["expand"]}


def _check_fixed(call: Call, other: Call, depends: set[int]) -> None:
    """An error where a number or a constant of an op is not the same for other sizes."""
    mine, theirs = (_pytree.tree_leaves((c.args, c.kwargs)) for c in (call, other))
    for a, b in zip(mine, theirs, strict=True):
        if isinstance(a, Tensor):
            fixed = id(a) in depends or a.shape == b.shape
        else:
            fixed = RULES.get(call.name) in _SHAPED or a == b
        if not fixed:
            raise OnnxExporterError(
                f"onnx.export: {call.name} is given a number or a constant that depends on a size that varies"
            )


def _translate(g: Builder, recorder: Recorder, others: list[Call] | None) -> None:
    for i, call in enumerate(recorder.calls):
        g.op, g.shape = call.name, call.shapes[0] if call.shapes else ()
        write = RULES.get(call.name)
        known = " (that of register_custom_op_symbolic is for another exporter)" if call.name in _symbolic else ""
        if write is None:
            raise OnnxExporterError(
                f"onnx.export: the op {call.name} has no rule; write this part of the model with other ops{known}"
            )
        g.dynamic = (False,) * len(g.shape)
        if others is not None:
            if others[i].name != call.name:
                raise OnnxExporterError("onnx.export: the model does something else where a dynamic size differs")
            _check_fixed(call, others[i], recorder.depends)
            g.dynamic = _varied(call.shapes[:1], others[i].shapes[:1])[0] if call.shapes else ()
        kwargs = {k: v for k, v in call.kwargs.items() if k not in _PLACED}
        if write in (RULES["split"], RULES["max"]):
            kwargs["outs"] = call.outs
        elif write in (RULES["to"], RULES["zeros_like"]):
            kwargs["result"] = call.result
        made = write(g, *call.args, **kwargs)
        names = [made] if isinstance(made, str) else list(made)
        for t, name in zip(call.outs, names, strict=True):
            g.names[id(t)] = name


def _larger(args: Any, inputs: list[Tensor], names: list[str], axes: Mapping[str, Any]) -> Any:
    """The arguments with one more along each dynamic axis."""
    grown: dict[int, Tensor] = {}
    by: dict[str, int] = {}
    for t, name in zip(inputs, names, strict=True):
        made = t
        for axis in axes.get(name, {}):
            at = lucid.arange(t.shape[axis] + 1) % max(t.shape[axis], 1)
            made = made.index_select(axis, at.to(t.device))
            by[name] = axis
        grown[id(t)] = made
    return _pytree.tree_map(lambda v: grown.get(id(v), v) if isinstance(v, Tensor) else v, args)


def _value_info(g: Builder, name: str, t: Tensor, axes: Any) -> Any:
    sizes: list[Any] = list(t.shape)
    for axis, label in axes.items() if isinstance(axes, Mapping) else ((a, f"{name}_{a}") for a in axes):
        sizes[axis] = str(label)
    return g.onnx.helper.make_tensor_value_info(name, elem_type(t.dtype), sizes)


def export(
    model: Any,
    args: Any = (),
    f: str | os.PathLike[str] | None = None,
    *,
    kwargs: dict[str, Any] | None = None,
    export_params: bool = True,
    verbose: bool | None = None,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
    opset_version: int | None = None,
    dynamic_axes: Mapping[str, Mapping[int, str] | Sequence[int]] | None = None,
    do_constant_folding: bool = True,
    training: Any = None,
    dynamo: bool | None = None,
) -> ONNXProgram:
    """Runs a model once and writes its ops as an ONNX graph.

    Args:
        model (Module or callable): a module, which is put into evaluation mode meanwhile, or a function.
        args (tuple or Tensor): the example call's arguments, or its one tensor. Tensors become the graph's inputs.
        f (str or os.PathLike, optional): the file to write. Default: none.
        kwargs (dict, optional): more arguments, by name. Default: none.
        export_params (bool, optional): must be True: weights are in the file.
        verbose (bool, optional): accepted for PyTorch's sake.
        input_names (sequence of str, optional): names of the inputs. Default: `input_0`, `input_1`, ….
        output_names (sequence of str, optional): names of the outputs. Default: `output_0`, `output_1`, ….
        opset_version (int, optional): ONNX's version of operators, 18 to 20. Default: 18.
        dynamic_axes (dict, optional): sizes that may vary: by name of an input or output a list of axes, or a dict of
            axes and their names. One of a tensor's sizes can vary where it is reshaped. Default: none.
        do_constant_folding (bool, optional): what does not depend on the inputs is always computed.
        training (object, optional): a graph for evaluation is written in any case; others are an error.
        dynamo (bool, optional): there is one exporter, which runs the model, in any case.

    Returns:
        ONNXProgram: `save(path)` writes it; `model_proto` is what the package `onnx` takes.

    Raises:
        ImportError: the package `onnx` is not installed.
        OnnxExporterError: ops have no rule; the message names them. Recurrent layers have none.

    Example:
        >>> import importlib.util, os, tempfile
        >>> if importlib.util.find_spec("onnx"):
        ...     with tempfile.TemporaryDirectory() as folder:
        ...         _ = lucid.onnx.export(lucid.nn.Linear(3, 2), lucid.ones(1, 3), f"{folder}/linear.onnx")
        ...         assert os.path.exists(f"{folder}/linear.onnx")
    """
    global _exporting
    opset = 18 if opset_version is None else opset_version
    if not 18 <= opset <= 20:
        raise OnnxExporterError(f"onnx.export: opset_version {opset}; one of 18, 19, 20")
    if not export_params:
        raise OnnxExporterError("onnx.export: export_params=False is not there; weights are in the file")
    if training not in (None, False, 0) and getattr(training, "name", "EVAL") != "EVAL":
        raise OnnxExporterError("onnx.export: graphs for training are not there; leave training out")
    g = Builder(opset)
    given = tuple(args) if isinstance(args, (tuple, list)) else (args,)
    named = dict(kwargs or {})
    modules = list(model.modules()) if isinstance(model, Module) else []
    modes = [m.training for m in modules]
    axes = dict(dynamic_axes or {})
    _exporting = True
    try:
        for m in modules:
            m.training = False
        inputs, recorder, outputs = _record(model, given, named)
        names = list(input_names or ())
        names += [f"input_{i}" for i in range(len(names), len(inputs))]
        unknown = set(axes) - set(names) - set(output_names or ())
        if unknown:
            raise OnnxExporterError(f"onnx.export: dynamic_axes names {sorted(unknown)}, which no input or output has")
        others, varied = None, None
        if any(name in axes for name in names):
            again, kwargs_again = _larger((given, named), inputs, names, axes)
            _, second, outputs_again = _record(model, again, kwargs_again)
            others = second.calls
            if len(others) != len(recorder.calls):
                raise OnnxExporterError("onnx.export: the model does something else where a dynamic size differs")
            varied = _varied([tuple(t.shape) for t in outputs], [tuple(t.shape) for t in outputs_again])
    finally:
        _exporting = False
        for m, mode in zip(modules, modes, strict=True):
            m.training = mode
    if isinstance(model, Module):
        g.labels = {id(t): n for n, t in [*model.named_parameters(), *model.named_buffers()]}
    for t, name in zip(inputs, names, strict=True):
        g.names[id(t)] = name
    _translate(g, recorder, others)
    ends = list(output_names or ())
    ends += [f"output_{i}" for i in range(len(ends), len(outputs))]
    results = []
    for i, (t, name) in enumerate(zip(outputs, ends, strict=True)):
        g.nodes.append(g.onnx.helper.make_node("Identity", [g.of(t)], [name]))
        free: Any = axes.get(name) or ([] if varied is None else [a for a, v in enumerate(varied[i]) if v])
        results.append(_value_info(g, name, t, free))
    starts = [_value_info(g, n, t, axes.get(n, ())) for n, t in zip(names, inputs, strict=True)]
    title = type(model).__name__ if isinstance(model, Module) else getattr(model, "__name__", "graph")
    graph = g.onnx.helper.make_graph(g.nodes, title, starts, results, list(g.initializers.values()))
    opsets = [g.onnx.helper.make_opsetid("", opset)]
    proto = g.onnx.helper.make_model(
        graph, opset_imports=opsets, ir_version=10, producer_name="lucid", producer_version=lucid.__version__
    )
    g.onnx.checker.check_model(proto)
    program = ONNXProgram(proto)
    if f is not None:
        program.save(f)
    if verbose:
        print(g.onnx.helper.printable_graph(graph))
    return program
