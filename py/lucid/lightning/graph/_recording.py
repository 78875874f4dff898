"""Recording declared nodes into the engine's graph, over meta tensors, so that nothing is computed."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import lucid
from lucid import _C, errors
from lucid.compiler._report import flops
from lucid.lightning.graph.registry import OPS

if TYPE_CHECKING:
    from lucid.lightning.graph.ir import GraphIR, Node

__all__ = ["Recording", "Work", "quiet", "record", "work_of"]

Tensor = _C.Tensor
Result = TypeVar("Result")

DTYPES = {"float32": _C.float32, "float64": _C.float64}
_FLOATS = {dtype: name for name, dtype in DTYPES.items()}


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """No gradients and no autocast: a graph's dtypes are the declared ones."""
    with lucid.no_grad(), lucid.autocast("cpu", enabled=False), lucid.autocast("gpu", enabled=False):
        yield


def apart(call: Callable[[], Result]) -> Result:
    """The result of a call that records a graph; on a thread of its own where this one records already."""
    if not _C._graph_recording():
        return call()
    done: list[Result] = []
    failed: list[BaseException] = []

    def run() -> None:
        try:
            done.append(call())
        except BaseException as e:
            failed.append(e)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if failed:
        raise failed[0]
    return done[0]


@dataclass(frozen=True)
class Work:
    """What steps of the engine's graph cost: launches, bytes read and written, floating-point operations."""

    launches: int = 0
    bytes: int = 0
    flops: int = 0

    def __add__(self, other: Work) -> Work:
        return Work(self.launches + other.launches, self.bytes + other.bytes, self.flops + other.flops)


class Steps:
    """The steps of one of the engine's graphs."""

    def __init__(self, graph: _C._Graph) -> None:
        self.graph = graph
        self.rows = graph.steps()
        self._by_value = {value: row for row in self.rows for value in row["outputs"]}
        self._roots: dict[int, int] = {}

    def root(self, value: int) -> int:
        """The value that a value's storage was made as."""
        if not self._roots:
            values = [*self.graph.inputs(), *self._by_value]
            self._roots = dict(zip(values, self.graph.roots(values), strict=True))
        return self._roots[value]

    def bytes_of(self, value: int, size: int = 4) -> int:
        """Bytes of a value's elements; `size` is an element's, for inputs."""
        row = self._by_value.get(value)
        if row is not None and len(row["outputs"]) == 1:
            return int(row["bytes"])
        count = size
        for n in self.graph.layout(value)[0]:
            count *= n
        return count

    def peak(self, sizes: Mapping[int, int], kept: Sequence[int]) -> int:
        """The most bytes that storages hold at once: inputs (of these sizes) always, others while they are read."""
        last = {self.root(v): at for at, row in enumerate(self.rows) for v in row["inputs"]}
        held = sum(sizes.get(v, 0) for v in self.graph.inputs())
        never = {*self.graph.inputs(), *(self.root(v) for v in kept)}
        most = held
        for at, row in enumerate(self.rows):
            touched = {self.root(v) for v in row["inputs"]}
            for value in row["outputs"]:
                if self.root(value) == value:
                    held += self.bytes_of(value)
                    touched.add(value)
            most = max(most, held)
            held -= sum(self.bytes_of(v) for v in touched if v not in never and last.get(v, -1) <= at)
        return most

    def passes(self) -> dict[str, int]:
        """How many steps each of the engine's passes changes, together where one runs twice."""
        counts: dict[str, int] = {}
        for name, count in self.graph.copy().optimize():
            counts[name] = counts.get(name, 0) + count
        return counts

    def work(self, places: Sequence[int], size: int = 4) -> Work:
        """The cost of steps, as places in `rows`. Views and scalars cost nothing."""
        total = Work()
        for at in places:
            row = self.rows[at]
            value = row["output"]
            if value is None or self.root(value) != value or not (row["inputs"] or row["shape"]):
                continue
            moved = sum(self.bytes_of(v, size) for v in {*row["outputs"], *row["inputs"]})
            total += Work(1, moved, flops(row, self._by_value, self.graph.layout))
        return total


@dataclass
class Recording:
    """What recording a declared graph gave.

    Args:
        order: The nodes that were recorded, each after those it reads from.
        cyclic: The nodes that never could be, because they wait for each other.
        issues: What does not fit, by check.
        steps: The engine's graph; `None` where something does not fit.
        places: For each node its steps in the engine's graph.
        values: For each tensor its value there.
    """

    order: list[int] = field(default_factory=list)
    cyclic: list[int] = field(default_factory=list)
    issues: dict[str, list[str]] = field(default_factory=lambda: {"shape": [], "dtype": [], "engine": []})
    steps: Steps | None = None
    places: dict[int, range] = field(default_factory=dict)
    values: dict[int, int] = field(default_factory=dict)


def record(g: GraphIR) -> Recording:
    """Records the nodes of a graph, in the order in which their inputs are there."""
    return apart(lambda: _record(g))


def _record(g: GraphIR) -> Recording:
    made = Recording()
    written = {t for node in g._nodes for t in node.outputs}
    given = [t.id for t in g._tensors if t.id not in written]
    tensors = {t: _declared(g, t) for t in given}
    recorder = _C._GraphRecorder(list(tensors.values()), False)
    ends: list[tuple[int, int]] = []
    try:
        made.values = dict(zip(given, range(len(given)), strict=True))
        newest = len(given) - 1
        with quiet():
            for node in _sequence(g, made):
                outputs = _run(g, node, tensors, made)
                for t, tensor in zip(node.outputs, outputs, strict=False):
                    tensors[t] = tensor
                    value = recorder.value_of(tensor)
                    if value is not None:
                        made.values[t] = value
                        newest = max(newest, value)
                ends.append((node.id, newest))
            for n in made.cyclic:
                _run(g, g._nodes[n], {}, made)
        made.issues["engine"] += recorder.broken()
        graph, _, _ = recorder.finish()
    except errors.LucidError as e:
        made.issues["engine"].append(str(e))
        return made
    finally:
        recorder.abort()
    if made.cyclic or any(made.issues.values()):
        return made
    try:
        graph.set_outputs([made.values[t] for t in g.outputs()])
        graph.verify()
    except (errors.LucidError, KeyError) as e:
        made.issues["engine"].append(str(e))
        return made
    made.steps = Steps(graph)
    at = 0
    for n, newest in ends:
        begin = at
        while at < len(made.steps.rows) and max(made.steps.rows[at]["outputs"], default=0) <= newest:
            at += 1
        made.places[n] = range(begin, at)
    return made


def _declared(g: GraphIR, t: int) -> Tensor:
    info = g._tensors[t]
    return _C.empty(info.shape, dtype=DTYPES[info.dtype], device="meta")


def _sequence(g: GraphIR, made: Recording) -> Iterator[Node]:
    """The nodes as their inputs are there; `made` gets their order and those that wait for each other."""
    writer = {t: node.id for node in g._nodes for t in node.outputs}
    waits = {node.id: {writer[t] for t in node.inputs if t in writer} for node in g._nodes}
    readers: dict[int, list[int]] = {}
    for reader, before in waits.items():
        for n in before:
            readers.setdefault(n, []).append(reader)
    ready = [n for n, before in waits.items() if not before]
    for n in ready:
        made.order.append(n)
        yield g._nodes[n]
        for reader in readers.get(n, []):
            waits[reader].discard(n)
            if not waits[reader]:
                ready.append(reader)
    placed = set(ready)
    made.cyclic = [n for n in waits if n not in placed]


def _run(g: GraphIR, node: Node, tensors: dict[int, Tensor], made: Recording) -> list[Tensor]:
    """A node's outputs as the engine makes them. Where something does not fit, that is noted, and they are as declared,
    so that one mistake is found once."""

    def declared() -> list[Tensor]:
        return [_declared(g, t) for t in node.outputs]

    op = OPS[node.op]
    where = f"node {node.id} ({node.op})"
    kinds = {g._tensors[t].dtype for t in (*node.inputs, *node.outputs)}
    if len(kinds) > 1:
        made.issues["dtype"].append(f"{where}: dtypes {', '.join(sorted(kinds))} are mixed")
        return declared()
    if not op.arity[0] <= len(node.inputs) <= op.arity[1] or len(node.outputs) != len(op.outputs):
        return declared()
    inputs = [tensors[t] if t in tensors else _declared(g, t) for t in node.inputs]
    try:
        op.fits([tuple(t.shape) for t in inputs], node.attrs)
        outputs = op.run(inputs, node.attrs)
    except (errors.LucidError, OverflowError) as e:
        made.issues["shape"].append(f"{where}: {e}")
        return declared()
    fits = True
    for t, tensor in zip(node.outputs, outputs, strict=True):
        info = g._tensors[t]
        if tuple(tensor.shape) != info.shape:
            fits = False
            made.issues["shape"].append(f"{where}: tensor {t} has shape {info.shape}, inferred {tuple(tensor.shape)}")
        if _FLOATS.get(tensor.dtype) != info.dtype:
            fits = False
            made.issues["dtype"].append(f"{where}: tensor {t} is {info.dtype}, the engine gives {tensor.dtype}")
    return outputs if fits else declared()


def work_of(op: str, shapes: Sequence[tuple[int, ...]], dtype: str, attrs: Any) -> Work:
    """The cost of an operator for inputs of these shapes."""
    for what, given, known in (("operator", op, OPS), ("dtype", dtype, DTYPES)):
        if not isinstance(given, str) or given not in known:
            raise errors.ValueError(f"work_of: the {what} {given!r} is none of {', '.join(known)}")

    def one() -> Work:
        inputs = [_C.empty(shape, dtype=DTYPES[dtype], device="meta") for shape in shapes]
        recorder = _C._GraphRecorder(inputs, False)
        try:
            with quiet():
                kept = OPS[op].run(inputs, attrs)
            values = [recorder.value_of(t) for t in kept]
            graph, _, _ = recorder.finish()
        finally:
            recorder.abort()
        graph.set_outputs([v for v in values if v is not None])
        steps = Steps(graph)
        return steps.work(range(len(steps.rows)), inputs[0].itemsize)

    return apart(one)
