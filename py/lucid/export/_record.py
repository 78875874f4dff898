"""Recording programs: a call as one graph, at several sizes where sizes vary."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from typing import Any

import lucid
from lucid import _C, errors
from lucid._C import Tensor
from lucid.compiler import _trees
from lucid.compiler._dynamic import resized, same_random_numbers, samples
from lucid.compiler._function import _global_hooks
from lucid.compiler._state import Unguarded, Walk
from lucid.compiler._trace import GraphBreak, Trace
from lucid.export._program import Dim, ExportedProgram, _Hint, constant_to_json, tree_to_json
from lucid.nn import Module


class _Recording:
    """One recording: the graph, what it reads beside the arguments, and what the call gave."""

    def __init__(self, fn: Callable[..., Any], args: Any, kwargs: Any) -> None:
        leaves: list[Any] = []
        _trees.flatten((args, kwargs), leaves)
        self.tensors, _, others = _trees.split(leaves)
        try:
            walk = Walk([("function", fn), *others, *_global_hooks()])
        except Unguarded as error:
            raise errors.RuntimeError(f"export(): {error}") from error
        trace = Trace(self.tensors, walk, True)
        own = {t._storage_key() for t in trace.tensors}

        def call(*a: Any, **k: Any) -> Any:
            found: list[Any] = []
            tree = _trees.flatten(fn(*a, **k), found)
            # What is given back is the program's own, not a view of a weight or of an argument.
            mine = [t.clone() if isinstance(t, Tensor) and t._storage_key() in own else t for t in found]
            return _trees.unflatten(tree, iter(mine))

        try:
            with lucid.no_grad():
                result = trace.run(call, args, kwargs)
            for reason in trace.recorder.broken():
                raise GraphBreak(f"export(): {reason}")
            if trace.hosts:
                raise errors.RuntimeError("export(): an optimizer's step is no part of a program")
            found: list[Any] = []
            self.out_tree = _trees.flatten(result, found)
            outputs: list[Tensor] = []
            self.out_leaves: list[tuple[str, Any]] = []
            values: list[int] = []
            for leaf in found:
                if not isinstance(leaf, Tensor):
                    self.out_leaves.append(("constant", constant_to_json(leaf)))
                    continue
                value = trace.recorder.value_of(leaf)
                if value is None:
                    raise errors.RuntimeError("export(): a result is a tensor that the graph does not make")
                self.out_leaves.append(("value", len(values)))
                values.append(value)
                outputs.append(leaf)
            self.outputs = outputs
            self.graph, captures, _ = trace.recorder.finish()
            self.graph.set_outputs(values)
        finally:
            trace.recorder.abort()
        self.captures = [t for _, t in captures]


def _argument_names(fn: Callable[..., Any], args: Any, kwargs: Any) -> list[str]:
    """A name per tensor among the arguments, each once."""
    target = fn.forward if isinstance(fn, Module) else fn
    try:
        bound = inspect.signature(target).bind(*args, **kwargs).arguments
    except (TypeError, ValueError):
        bound = {f"arg{i}": a for i, a in enumerate(args)} | kwargs
    names: list[str] = []
    seen: list[Tensor] = []
    for name, value in bound.items():
        leaves: list[Any] = []
        _trees.flatten(value, leaves)
        single = len(leaves) == 1 and leaves[0] is value
        for i, leaf in enumerate(leaves):
            if isinstance(leaf, Tensor) and all(leaf is not t for t in seen):
                seen.append(leaf)
                names.append(name if single else f"{name}_{i}")
    return names


def _weight_names(fn: Callable[..., Any], captures: list[Tensor]) -> tuple[list[str], list[str]]:
    """A name per tensor that the program reads beside its arguments; which of them are parameters."""
    known: dict[tuple[Any, ...], str] = {}
    parameters: list[str] = []

    def place(t: Tensor) -> tuple[Any, ...]:
        return (t._storage_key(), t.storage_offset(), tuple(t.shape), tuple(t.stride()))

    owner = fn if isinstance(fn, Module) else getattr(fn, "__self__", None)
    if isinstance(owner, Module):
        for name, p in owner.named_parameters():
            known.setdefault(place(p), name)
            parameters.append(name)
        for name, b in owner.named_buffers():
            known.setdefault(place(b), name)
    names: list[str] = []
    for i, t in enumerate(captures):
        name = known.get(place(t), f"constant_{i}")
        names.append(name if name not in names else f"{name}_{i}")
    return names, [name for name in parameters if name in names]


def _sizes_that_vary(spec: Any, names: list[str], tensors: list[Tensor]) -> list[dict[int, Dim]]:
    """Per tensor which dimensions vary."""
    if spec is None:
        return [{} for _ in tensors]
    if isinstance(spec, dict):
        unknown = set(spec) - set(names)
        if unknown:
            raise errors.ValueError(f"export(): dynamic_shapes names {sorted(unknown)}, the tensors are {names}")
        each = [spec.get(name) for name in names]
    elif isinstance(spec, (tuple, list)):
        if len(spec) != len(tensors):
            raise errors.ValueError(f"export(): dynamic_shapes has {len(spec)} entries for {len(tensors)} tensors")
        each = list(spec)
    else:
        raise errors.TypeError(f"export(): dynamic_shapes must be a dict or a tuple, got {type(spec).__name__}")
    found: list[dict[int, Dim]] = []
    for name, t, of in zip(names, tensors, each, strict=True):
        rows = of.items() if isinstance(of, dict) else enumerate(of or ())
        here: dict[int, Dim] = {}
        for d, dim in rows:
            if dim is None or dim is Dim.STATIC or isinstance(dim, int):
                continue
            if not isinstance(d, int) or not -t.ndim <= d < t.ndim:
                raise errors.IndexError(f"export(): {name} has no dimension {d}")
            d %= t.ndim
            if isinstance(dim, _Hint):
                dim = Dim(f"{name}_{d}")
            if not isinstance(dim, Dim):
                raise errors.TypeError(f"export(): expected a Dim for dimension {d} of {name}, got {dim!r}")
            here[d] = dim
        found.append(here)
    return found


def record_program(fn: Callable[..., Any], args: Any, kwargs: Any, dynamic_shapes: Any) -> ExportedProgram:
    """The program of a call."""
    leaves: list[Any] = []
    tree = _trees.flatten((args, kwargs), leaves)
    first = _Recording(fn, args, kwargs)
    names = _argument_names(fn, args, kwargs)
    if len(names) != len(first.tensors):
        names = [f"input{i}" for i in range(len(first.tensors))]
    if any(leaf is other for i, leaf in enumerate(leaves) if isinstance(leaf, Tensor) for other in leaves[:i]):
        raise errors.ValueError("export(): one tensor is given for two arguments; give a copy")
    weight_names, parameters = _weight_names(fn, first.captures)
    weights = list(zip(weight_names, first.captures, strict=True))
    facts = {
        "in_tree": tree_to_json(tree),
        "in_leaves": [
            ("tensor", None) if isinstance(leaf, Tensor) else ("constant", constant_to_json(leaf)) for leaf in leaves
        ],
        "out_tree": tree_to_json(first.out_tree),
        "out_leaves": first.out_leaves,
        "parameters": parameters,
        "extra": {},
    }
    metadata = {"python": json.dumps(facts)}
    varying = _sizes_that_vary(dynamic_shapes, names, first.tensors)
    found = {dim.__name__: dim for of in varying for dim in of.values()}
    if not found:
        return ExportedProgram(_C._Exported.of(first.graph, names, weights, metadata))
    return _record_sizes(fn, (tree, leaves), first, names, weights, varying, found, metadata)


def _record_sizes(
    fn: Callable[..., Any],
    given: tuple[Any, list[Any]],
    first: _Recording,
    names: list[str],
    weights: list[tuple[str, Tensor]],
    varying: list[dict[int, Dim]],
    found: dict[str, Dim],
    metadata: dict[str, str],
) -> ExportedProgram:
    tree, leaves = given
    order = list(found)
    current: dict[str, int] = {}
    for name, t, of in zip(names, first.tensors, varying, strict=True):
        for d, dim in of.items():
            size = current.setdefault(dim.__name__, t.shape[d])
            if size != t.shape[d]:
                raise errors.RuntimeError(f"export(): {dim} is {size} and, in {name}, {t.shape[d]}")
    ranges = [(found[n].min, found[n].max or max(64, 4 * current[n])) for n in order]
    here = [current[n] for n in order]
    for n, size, (low, high) in zip(order, here, ranges, strict=True):
        if not low <= size <= high:
            raise errors.RuntimeError(f"export(): {n} is {size}, and may be from {low} to {high}")
    recordings = [(here, first)]
    for row in samples(here, ranges):
        sizes = dict(zip(order, row, strict=True))
        changed = {
            id(t): resized(t, {d: sizes[dim.__name__] for d, dim in of.items()})
            for t, of in zip(first.tensors, varying, strict=True)
        }
        a, k = _trees.unflatten(tree, iter([changed.get(id(leaf), leaf) for leaf in leaves]))
        try:
            with same_random_numbers():
                other = _Recording(fn, a, k)
        except errors.LucidError as error:
            raise errors.RuntimeError(f"export(): the sizes {sizes} do not work: {error}") from error
        same = other.out_leaves == first.out_leaves and other.out_tree == first.out_tree
        if not same or [t._storage_key() for t in other.captures] != [t._storage_key() for t in first.captures]:
            raise errors.RuntimeError(f"export(): for the sizes {sizes} the call does other things; fix a size")
        recordings.append((row, other))
    try:
        template = _C._GraphTemplate([(row, r.graph) for row, r in recordings])
    except errors.LucidError as error:
        raise errors.RuntimeError(f"export(): {error}; fix a size") from error
    symbols = [(n, low, high) for n, (low, high) in zip(order, ranges, strict=True)]
    inputs = [
        (name, t.dtype, [-1 - order.index(of[d].__name__) if d in of else n for d, n in enumerate(t.shape)])
        for name, t, of in zip(names, first.tensors, varying, strict=True)
    ]
    outputs = []
    for i, t in enumerate(first.outputs):
        each = [[r.outputs[i].shape[d] for _, r in recordings] for d in range(t.ndim)]
        whole: list[int] = []
        for column in each:
            like = [s for s in range(len(order)) if column == [row[s] for row, _ in recordings]]
            if len(set(column)) == 1:
                whole.append(column[0])
            elif like:
                whole.append(-1 - like[0])
            else:
                whole = []
                break
        outputs.append((f"output{i}", t.dtype, whole))
    return ExportedProgram(_C._Exported.of_template(template, symbols, inputs, outputs, weights, metadata))
