"""Tensors and nodes as declared, and what the engine's graph of them says: validation, plans, fusion, execution."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lucid import _C, errors
from lucid._convert import from_numpy
from lucid.lightning import _arrays
from lucid.lightning._runtime import device_of
from lucid.lightning._trace import RING
from lucid.lightning.graph import fusion, validate
from lucid.lightning.graph._recording import DTYPES, Recording, Steps, record
from lucid.lightning.graph.executor import Executor, ProgramExecutor, Step
from lucid.lightning.graph.registry import op_named

__all__ = ["GraphIR", "Node", "TensorInfo"]

_SIZES = {"float32": 4, "float64": 8}
MOST_TENSORS = 1 << 20


@dataclass
class TensorInfo:
    """A tensor of a graph; `GraphIR.add_tensor` makes it.

    Args:
        id (int): its number in the graph.
        name (str): its name, by which executions may be fed.
        shape (tuple of int): its sizes.
        dtype (str): `"float32"` or `"float64"`.
        value (Tensor, optional): a constant's value, of that shape. Default: None, it is fed or computed.

    Example:
        >>> from lucid.lightning.graph.ir import TensorInfo
        >>> TensorInfo(0, "x", (2, 3), "float32").nbytes
        24
    """

    id: int
    name: str
    shape: tuple[int, ...]
    dtype: str
    value: _C.Tensor | None = None

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return _SIZES[self.dtype]

    @property
    def nbytes(self) -> int:
        """Bytes of its elements."""
        return math.prod(self.shape) * self.itemsize


@dataclass
class Node:
    """A node of a graph; `GraphIR.add_node` makes it.

    Args:
        id (int): its number in the graph.
        op (str): the operator's name.
        inputs (tuple of int): the numbers of the tensors that it reads.
        outputs (tuple of int): the numbers of those that it writes.
        attrs (dict): the operator's attributes by name.
        device (str): where it is computed.
        name (str): its own name.

    Example:
        >>> from lucid.lightning.graph.ir import Node
        >>> Node(0, "relu", (0,), (1,), {}, "cpu", "relu_0").op
        'relu'
    """

    id: int
    op: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    attrs: dict[str, Any]
    device: str
    name: str


class GraphIR:
    """A graph of operators over tensors of known shapes.

    Example::

        >>> import lucid.lightning as lc
        >>> g = lc.GraphIR()
        >>> x, y, z = (g.add_tensor((1, 2)) for _ in range(3))
        >>> _ = g.add_node("vector_add", [x, y], [z])
        >>> g.validate()
        True
        >>> g.execute_f32({x: [[1.0, 2.0]], y: [[3.0, 4.0]]}, device="cpu")[z].tolist()
        [[4.0, 6.0]]

    Args:
        executor (Executor, optional): What computes; the engine's program of the graph by default.
    """

    def __init__(self, executor: Executor | None = None) -> None:
        self._executor: Executor = ProgramExecutor() if executor is None else executor
        self._tensors: list[TensorInfo] = []
        self._nodes: list[Node] = []
        self._names: dict[str, int] = {}
        self._marked: set[int] = set()
        # What fusion left without a node: their numbers stay, so that those of others do not change.
        self._removed: frozenset[int] = frozenset()
        self._changed()

    def _changed(self) -> None:
        """Forgets what the engine said of the graph as it was."""
        self._recording: Recording | None = None
        self._valid = False
        self._plans: dict[_C.device, list[Step]] = {}
        # Constants on a device, each with the value and its version that it was made of.
        self._constants: dict[tuple[int, str, _C.device], tuple[_C.Tensor, int, _C.Tensor]] = {}

    def _recorded(self) -> Recording:
        """The engine's graph of the nodes, recorded over meta tensors."""
        if self._recording is None:
            self._recording = record(self)
        return self._recording

    def _engine(self, op: str) -> tuple[Recording, Steps]:
        """The engine's graph of a valid one."""
        self.validate()
        recorded = self._recorded()
        if recorded.steps is None:
            raise errors.InternalError(f"{op}: the engine has no graph of what it verified")
        return recorded, recorded.steps

    # ---- making ------------------------------------------------------------------------------------------------------

    def add_tensor(
        self, shape: Sequence[int], dtype: str = "float32", name: str | None = None, value: Any = None
    ) -> int:
        """Adds a tensor.

        Args:
            shape: Sizes from 0 on.
            dtype: `"float32"` or `"float64"`.
            name: A name of its own; `"t<number>"` by default.
            value: Makes it a constant: an array, list or tensor of this shape, which is copied.

        Returns:
            The tensor's number.
        """
        op = "GraphIR.add_tensor()"
        if isinstance(shape, (str, bytes)) or not hasattr(shape, "__iter__"):
            raise errors.TypeError(f"{op}: shape must be sizes, got {shape!r}")
        sizes = tuple(shape)
        if any(not isinstance(n, int) or isinstance(n, bool) for n in sizes):
            raise errors.TypeError(f"{op}: shape must be ints, got {sizes}")
        if any(n < 0 for n in sizes) or math.prod(sizes) >= _arrays.MOST_ELEMENTS:
            raise errors.ValueError(f"{op}: shape {sizes} is negative or too large")
        if dtype not in DTYPES:
            raise errors.DtypeMismatch(f"{op}: dtype must be float32 or float64, got {dtype!r}")
        if len(self._tensors) >= MOST_TENSORS:
            raise errors.ValueError(f"{op}: a graph has at most {MOST_TENSORS} tensors")
        number = len(self._tensors)
        name = f"t{number}" if name is None else name
        if not isinstance(name, str) or name in self._names:
            raise errors.ValueError(f"{op}: a name must be a str that no other tensor has, got {name!r}")
        info = TensorInfo(number, name, sizes, dtype)
        if value is not None:
            info.value = self._fed(op, info, value, dtype).clone()
        self._tensors.append(info)
        self._names[name] = number
        self._changed()
        return number

    def _number(self, op: str, key: Any) -> int:
        """A tensor's number, given as that or as its name."""
        number = self._names.get(key) if isinstance(key, str) else key
        if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number < len(self._tensors):
            raise errors.ValueError(f"{op}: there is no tensor {key!r}")
        return number

    def add_node(
        self,
        op: str,
        inputs: Sequence[Any],
        outputs: Sequence[Any],
        attrs: Mapping[str, Any] | None = None,
        device: str = "auto",
        name: str | None = None,
    ) -> int:
        """Adds a node.

        Args:
            op: An operator of `graph_registry_schemas`.
            inputs, outputs: Tensors by number or name.
            attrs: Attributes; those left out have their defaults.
            device: Where it runs; `"auto"` is where the graph is executed.
            name: A name for reports.

        Returns:
            The node's number.

        Raises:
            ValueError: There is no such operator, attribute or tensor.
            TypeError: An attribute is of another type.
        """
        call = "GraphIR.add_node()"
        operator = op_named(op)
        number = len(self._nodes)
        if device != "auto":
            device_of(call, device)
        node = Node(
            number,
            op,
            tuple(self._number(call, t) for t in inputs),
            tuple(self._number(call, t) for t in outputs),
            operator.attrs(attrs or {}),
            device,
            name or f"{op}_{number}",
        )
        self._nodes.append(node)
        self._changed()
        return number

    def mark_output(self, tensor: Any) -> None:
        """Keeps a tensor as a result although nodes read it: execution gives it, and no fusion removes it."""
        self._marked.add(self._number("GraphIR.mark_output()", tensor))
        self._changed()

    # ---- looking -----------------------------------------------------------------------------------------------------

    def num_tensors(self) -> int:
        """The number of tensors."""
        return len(self._tensors)

    def num_nodes(self) -> int:
        """The number of nodes."""
        return len(self._nodes)

    def tensors(self) -> list[dict[str, Any]]:
        """The tensors as dicts: `id`, `name`, `shape`, `dtype`, `constant`, `bytes`."""
        return [
            {
                "id": t.id,
                "name": t.name,
                "shape": t.shape,
                "dtype": t.dtype,
                "constant": t.value is not None,
                "bytes": t.nbytes,
            }
            for t in self._tensors
        ]

    def nodes(self) -> list[dict[str, Any]]:
        """The nodes as dicts: `id`, `name`, `op`, `inputs`, `outputs`, `attrs`, `device`."""
        return [
            {
                "id": n.id,
                "name": n.name,
                "op": n.op,
                "inputs": list(n.inputs),
                "outputs": list(n.outputs),
                "attrs": dict(n.attrs),
                "device": n.device,
            }
            for n in self._nodes
        ]

    def inputs(self) -> list[int]:
        """The tensors that must be fed: read by a node, written by none, no constants."""
        written = {t for n in self._nodes for t in n.outputs}
        read = {t for n in self._nodes for t in n.inputs}
        return [t.id for t in self._tensors if t.id in read and t.id not in written and t.value is None]

    def outputs(self) -> list[int]:
        """The graph's results: written by a node and read by none, or marked."""
        read = {t for n in self._nodes for t in n.inputs}
        written = {t for n in self._nodes for t in n.outputs}
        return [t.id for t in self._tensors if t.id in written and (t.id not in read or t.id in self._marked)]

    # ---- checking ----------------------------------------------------------------------------------------------------

    def validate_report(self) -> dict[str, Any]:
        """What each check finds: `ok`, `issues` and `passes`, a list of dicts with `pass`, `ok`, `issues`, `about`."""
        return validate.report(self)

    def validate(self) -> bool:
        """Checks the graph.

        Returns:
            `True`.

        Raises:
            ValueError: A check found something; the message has all of it.
        """
        if self._valid:
            return True
        found = self.validate_report()
        if not found["ok"]:
            raise errors.ValueError(f"GraphIR.validate(): {'; '.join(found['issues'])}")
        self._valid = True
        return True

    # ---- planning ----------------------------------------------------------------------------------------------------

    def plan(self, device: str = "auto") -> list[dict[str, Any]]:
        """The nodes in the order of execution.

        Args:
            device: Where nodes run that name none.

        Returns:
            A list of dicts with `step`, `node`, `op`, `inputs`, `outputs`, `requested_device`, `device` (the engine's),
            `fallback` (another GPU than the one named stands for it), `engine` (the steps of the engine's graph, by
            name), their `launches`, `bytes` (read and written), `flops` and `macs` (half of those), and `frees`
            (tensors that nothing reads after the step).
        """
        recorded, engine = self._engine("GraphIR.plan()")
        sequence = recorded.order
        last = {t: i for i, n in enumerate(sequence) for t in (*self._nodes[n].inputs, *self._nodes[n].outputs)}
        kept = {*self.outputs(), *(t.id for t in self._tensors if t.value is not None)}
        steps = []
        for i, number in enumerate(sequence):
            node = self._nodes[number]
            requested = device if node.device == "auto" else node.device
            chosen = device_of("GraphIR.plan()", requested).type
            places = recorded.places[number]
            work = engine.work(places, self._tensors[node.outputs[0]].itemsize)
            steps.append(
                {
                    "step": i,
                    "node": number,
                    "op": node.op,
                    "inputs": list(node.inputs),
                    "outputs": list(node.outputs),
                    "requested_device": requested,
                    "device": chosen,
                    "fallback": requested not in ("auto", "gpu", "mps") and requested != chosen,
                    "engine": [engine.rows[at]["op"] for at in places],
                    "launches": work.launches,
                    "bytes": work.bytes,
                    "flops": work.flops,
                    "macs": work.flops // 2,
                    "frees": [
                        t for t in dict.fromkeys((*node.inputs, *node.outputs)) if last[t] == i and t not in kept
                    ],
                }
            )
        return steps

    def plan_groups(self, device: str = "auto", sync_boundaries: bool = True) -> list[dict[str, Any]]:
        """The plan's steps in groups that run without waiting.

        Args:
            device: As in `plan`.
            sync_boundaries: A group ends where the device changes, which needs a wait and a transfer; otherwise where
                steps begin or cease to be on another device than the one named.

        Returns:
            A list of dicts with `group`, `device`, `steps`, `nodes`, `fallback`, `sync_after`, `transfers` (tensors of
            earlier groups on another device), and `kernels`: the lists of nodes that the engine's program runs as one
            kernel, `None` before the graph was executed there.
        """
        kernels = None
        prepared = self._plans.get(device_of("GraphIR.plan_groups()", device))
        if prepared is not None and isinstance(self._executor, ProgramExecutor):
            kernels = self._executor.kernels(prepared)
        groups: list[dict[str, Any]] = []
        place: dict[int, str] = {}
        for step in self.plan(device):
            key = step["device"] if sync_boundaries else step["fallback"]
            if not groups or groups[-1]["_key"] != key:
                groups.append(
                    {
                        "_key": key,
                        "group": len(groups),
                        "device": step["device"],
                        "steps": [],
                        "nodes": [],
                        "fallback": False,
                        "sync_after": False,
                        "transfers": [],
                        "kernels": None,
                    }
                )
            group = groups[-1]
            group["steps"].append(step["step"])
            group["nodes"].append(step["node"])
            group["fallback"] = group["fallback"] or step["fallback"]
            for t in step["inputs"]:
                if place.get(t, step["device"]) != step["device"] and t not in group["transfers"]:
                    group["transfers"].append(t)
            place.update(dict.fromkeys(step["outputs"], step["device"]))
        for group, following in zip(groups, [*groups[1:], None], strict=False):
            del group["_key"]
            if kernels is not None:
                order, own = self._recorded().order, set(group["steps"])
                group["kernels"] = [[order[at] for at in kernel] for kernel in kernels if own.issuperset(kernel)]
            group["sync_after"] = following is None or following["device"] != group["device"]
        return groups

    def plan_summary(self, device: str = "auto") -> dict[str, Any]:
        """The plan in numbers.

        Args:
            device: As in `plan`.

        Returns:
            A dict with `steps`, `groups`, `sync_boundaries`, `fallbacks`, `ops` (steps by operator), `launches`,
            `flops`, `macs`, `bytes` (of all tensors), `peak_bytes` (the most that storages of the engine's graph hold
            at once), `engine_steps`, and `passes` (how many of those each of the engine's passes changes).
        """
        steps = self.plan(device)
        recorded, engine = self._engine("GraphIR.plan_summary()")
        ops: dict[str, int] = {}
        for step in steps:
            ops[step["op"]] = ops.get(step["op"], 0) + 1
        groups = self.plan_groups(device)
        kept = [recorded.values[t] for t in self.outputs()]
        sizes = {value: self._tensors[t].nbytes for t, value in recorded.values.items()}
        return {
            "steps": len(steps),
            "groups": len(groups),
            "sync_boundaries": sum(g["sync_after"] for g in groups),
            "fallbacks": sum(s["fallback"] for s in steps),
            "ops": ops,
            "launches": sum(s["launches"] for s in steps),
            "flops": sum(s["flops"] for s in steps),
            "macs": sum(s["macs"] for s in steps),
            "bytes": sum(t.nbytes for t in self._tensors),
            "peak_bytes": engine.peak(sizes, kept),
            "engine_steps": len(engine.rows),
            "passes": engine.passes(),
        }

    # ---- fusing ------------------------------------------------------------------------------------------------------

    def fuse(self, device: str = "auto", least_saved_us: float = 0.0) -> tuple[GraphIR, fusion.FusionReport]:
        """A graph in which fused operators replace chains of nodes, and a report of each decision.

        Args:
            device: For whose costs to decide.
            least_saved_us: Replace where the cost model sees at least so many microseconds saved.

        Returns:
            The fused graph, whose tensors have the numbers of this one's, and the report.
        """
        self.validate()
        least = _arrays.number("GraphIR.fuse()", "least_saved_us", least_saved_us, least=0.0)
        kind = "cpu" if device_of("GraphIR.fuse()", device).type == "cpu" else "gpu"
        decisions, replaced = [], {}
        for candidate in fusion.candidates(self):
            decision = fusion.decide(self, candidate, kind, least)
            decisions.append(decision)
            if decision["fused"]:
                replaced[candidate.nodes[-1]] = candidate
        dropped = {n for c in replaced.values() for n in c.nodes}
        out = GraphIR(self._executor)
        out._tensors = [TensorInfo(t.id, t.name, t.shape, t.dtype, t.value) for t in self._tensors]
        out._names, out._marked = dict(self._names), set(self._marked)
        for node in self._nodes:
            found = replaced.get(node.id)
            if found is not None:
                out.add_node(found.op, found.inputs, [found.output], found.attrs, node.device)
            elif node.id not in dropped:
                out.add_node(node.op, node.inputs, node.outputs, node.attrs, node.device, node.name)
        touched = {t for n in out._nodes for t in (*n.inputs, *n.outputs)}
        out._removed = frozenset(t.id for t in out._tensors if t.id not in touched)
        return out, fusion.FusionReport(kind, decisions)

    # ---- executing ---------------------------------------------------------------------------------------------------

    def _fed(self, op: str, info: TensorInfo, value: Any, dtype: str) -> _C.Tensor:
        wanted = DTYPES[dtype]
        numpy = _arrays._ndarray()
        if isinstance(value, _C.Tensor):
            tensor = value.detach()
        elif numpy is not None and isinstance(value, numpy):
            if value.dtype.char not in "fd" or not value.dtype.isnative:
                raise errors.DtypeMismatch(f"{op}: tensor {info.name} must be {dtype}, got {value.dtype}")
            tensor = from_numpy(value if value.flags.writeable else value.copy())
        elif isinstance(value, (list, tuple, int, float)) and not isinstance(value, bool):
            try:
                tensor = _C.tensor(value, dtype=wanted)
            except (TypeError, ValueError, RuntimeError) as e:
                raise errors.TypeError(f"{op}: tensor {info.name}: no (nested) list of numbers: {e}") from None
        else:
            raise errors.TypeError(
                f"{op}: tensor {info.name} must be an array, list or tensor, got {type(value).__name__}"
            )
        if tensor.dtype is not wanted:
            raise errors.DtypeMismatch(f"{op}: tensor {info.name} must be {dtype}, got {tensor.dtype}")
        if tuple(tensor.shape) != info.shape:
            raise errors.ShapeMismatch(
                f"{op}: tensor {info.name} must have shape {info.shape}, got {tuple(tensor.shape)}"
            )
        return tensor

    def _execute(self, op: str, feeds: Mapping[Any, Any], device: Any, outputs: Any, dtype: str) -> dict[int, Any]:
        self.validate()
        if not isinstance(feeds, Mapping):
            raise errors.TypeError(f"{op}: feeds must be a mapping of tensors, got {type(feeds).__name__}")
        given = {self._number(op, key): value for key, value in feeds.items()}
        needed = set(self.inputs())
        unknown = sorted(set(given) - needed)
        if unknown:
            raise errors.ValueError(f"{op}: tensors {unknown} are no inputs; the inputs are {sorted(needed)}")
        missing = sorted(needed - set(given))
        if missing:
            raise errors.ValueError(f"{op}: tensors {missing} are not fed")
        chosen = device_of(op, device)
        values = {t: self._fed(op, self._tensors[t], value, dtype) for t, value in given.items()}
        for info in self._tensors:
            if info.value is not None:
                values[info.id] = self._constant(info, dtype, chosen)
        known = {*values, *(t for n in self._nodes for t in n.outputs)}
        wanted = self.outputs() if outputs is None else [self._number(op, t) for t in outputs]
        unknown = [t for t in wanted if t not in known]
        if unknown:
            raise errors.ValueError(f"{op}: tensors {unknown} are not computed by the graph")
        start = time.perf_counter_ns()
        results = self._executor.run(self._plan_on(op, chosen), values, wanted)
        if RING.enabled:
            RING.add("graph", "execute", start, str(device), chosen.type)
        own = {tensor._storage_key() for tensor in values.values()}
        out = {}
        for t, tensor in results.items():
            # What is given belongs to the caller, and is no view of what was fed or of a constant.
            mine = tensor.clone() if tensor._storage_key() in own else tensor
            out[t] = mine.cpu().contiguous().numpy()
        return out

    def _constant(self, info: TensorInfo, dtype: str, device: _C.device) -> _C.Tensor:
        """A constant's value, kept on the device where its nodes run, so that it goes there once."""
        assert info.value is not None
        places = {n.device for n in self._nodes if info.id in n.inputs} - {"auto"}
        if device.type == "cpu" or any(device_of("GraphIR", place) != device for place in places):
            return info.value.to(DTYPES[dtype])
        key, value = (info.id, dtype, device), info.value
        kept = self._constants.get(key)
        if kept is None or kept[0] is not value or kept[1] != value._version:
            kept = self._constants[key] = (value, value._version, value.to(device, DTYPES[dtype]))
        return kept[2]

    def _plan_on(self, op: str, device: _C.device) -> list[Step]:
        """What the executor runs, for nodes that name no device of their own on this one."""
        steps = self._plans.get(device)
        if steps is None:
            steps = []
            for n in self._engine(op)[0].order:
                node = self._nodes[n]
                place = device if node.device == "auto" else device_of(op, node.device)
                steps.append((node.op, node.attrs, node.inputs, node.outputs, place))
            steps = self._plans.setdefault(device, steps)
        return steps

    def _compute(self, values: Mapping[int, _C.Tensor], wanted: int, device: _C.device) -> _C.Tensor:
        """One tensor from inputs that are known to fit, left on the device: for callers that made the graph."""
        return self._executor.run(self._plan_on("GraphIR", device), values, [wanted])[wanted]

    def execute_f32(
        self, feeds: Mapping[Any, Any], device: Any = "metal", outputs: Sequence[Any] | None = None
    ) -> dict[int, Any]:
        """Computes in float32.

        Args:
            feeds: The inputs by number or name: arrays, lists or tensors of float32.
            device: Where nodes run that name no device of their own.
            outputs: What to give; the graph's outputs by default.

        Returns:
            NumPy arrays by the tensors' numbers.

        Raises:
            ValueError: The graph is not valid, an input is missing, or something else is fed.
            ShapeMismatch, DtypeMismatch: What is fed is of another shape or dtype.
        """
        return self._execute("GraphIR.execute_f32()", feeds, device, outputs, "float32")

    def execute_f64(
        self, feeds: Mapping[Any, Any], device: Any = "cpu", outputs: Sequence[Any] | None = None
    ) -> dict[int, Any]:
        """Computes in float64, which no GPU of the engine has: on the CPU alone. Otherwise as `execute_f32`."""
        return self._execute("GraphIR.execute_f64()", feeds, device, outputs, "float64")
