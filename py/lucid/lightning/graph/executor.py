"""What computes a plan. An executor sees operators by name, tensors and attributes, and nothing of the graph."""

from __future__ import annotations

import bisect
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from lucid import _C, errors
from lucid.lightning.graph._recording import quiet
from lucid.lightning.graph.registry import op_named

__all__ = ["EagerExecutor", "Executor", "ProgramExecutor", "Step"]

Tensor = _C.Tensor
# An operator's name, its attributes, the tensors it reads and writes by number, and the device it runs on.
Step = tuple[str, Mapping[str, Any], Sequence[int], Sequence[int], _C.device]


class Executor(Protocol):
    """Runs the steps of a plan."""

    def run(self, steps: Sequence[Step], feeds: Mapping[int, Tensor], wanted: Sequence[int]) -> dict[int, Tensor]:
        """The wanted tensors, computed from those fed, each step on its device."""
        ...


class EagerExecutor:
    """Runs the engine's ops one after the other; on a GPU they are one lazy graph, evaluated at the end. Tensors go as
    soon as nothing reads them any more."""

    def run(self, steps: Sequence[Step], feeds: Mapping[int, Tensor], wanted: Sequence[int]) -> dict[int, Tensor]:
        out = self._made(steps, feeds, wanted)
        _settle(out)
        return out

    def _made(
        self,
        steps: Sequence[Step],
        feeds: Mapping[int, Tensor],
        wanted: Sequence[int],
        seen: Callable[[list[Tensor]], None] | None = None,
    ) -> dict[int, Tensor]:
        values = dict(feeds)
        last = {t: i for i, (_, _, inputs, _, _) in enumerate(steps) for t in inputs}
        kept = set(wanted)
        with quiet():
            for i, (name, attrs, inputs, outputs, device) in enumerate(steps):
                operands = [values[t] if values[t].device == device else values[t].to(device) for t in inputs]
                results = op_named(name).run(operands, attrs)
                if seen is not None:
                    seen(results)
                values.update(zip(outputs, results, strict=True))
                for t in {*inputs, *outputs}:
                    if last.get(t, -1) <= i and t not in kept:
                        values.pop(t, None)
        missing = [t for t in wanted if t not in values]
        if missing:
            raise errors.InternalError(f"GraphIR: tensors {missing} were not computed")
        return {t: values[t] for t in wanted}


def _settle(made: Mapping[int, Tensor]) -> None:
    """Computes what is pending on a GPU."""
    pending = [tensor for tensor in made.values() if not tensor.is_cpu]
    if pending:
        _C._eval(pending, True)


class _Prepared:
    """One of the engine's programs, and which tensors it takes and gives."""

    def __init__(
        self, steps: Sequence[Step], graph: _C._Graph, fed: list[int], outputs: dict[int, int], ends: list[int]
    ) -> None:
        self.steps = steps
        self.fed = fed
        self.outputs = outputs
        graph.optimize()
        self.program = graph.program([])
        # The engine's values are numbered as they are made, so that the last one of each step of the plan tells whose
        # the engine's steps are.
        made = [row["output"] for row in graph.steps()]
        kernels = [sorted({bisect.bisect_left(ends, made[at]) for at in group}) for group in self.program.fused()]
        self.kernels = [kernel for kernel in kernels if len(kernel) > 1]

    def run(self, feeds: Mapping[int, Tensor]) -> dict[int, Tensor]:
        with quiet():
            made = self.program.call([feeds[t] for t in self.fed], list(self.outputs.values()))
        return dict(zip(self.outputs, made, strict=True))


class ProgramExecutor:
    """Runs the engine's program. The first run of a plan on tensors of some layout records the engine's graph while it
    computes; the engine's passes optimise that graph, and later runs call the program made of it.

    Example::

        >>> import lucid.lightning as lc
        >>> g = lc.GraphIR(lc.graph.ProgramExecutor(capacity=1))
        >>> x, y = g.add_tensor((2,)), g.add_tensor((2,))
        >>> _ = g.add_node("relu", [x], [y])
        >>> [g.execute_f32({x: [-1.0, i]}, device="cpu")[y].tolist() for i in (1.0, 2.0)]
        [[0.0, 1.0], [0.0, 2.0]]

    Args:
        capacity (int, default: 8): How many programs are kept, of those called last.
    """

    def __init__(self, capacity: int = 8) -> None:
        self._capacity = capacity
        self._eager = EagerExecutor()
        self._prepared: OrderedDict[tuple[Any, ...], _Prepared] = OrderedDict()
        self._lock = threading.Lock()

    def run(self, steps: Sequence[Step], feeds: Mapping[int, Tensor], wanted: Sequence[int]) -> dict[int, Tensor]:
        # A thread that records already, such as one of lucid.compile, has the steps in its own graph.
        if not steps or _C._graph_recording():
            return self._eager.run(steps, feeds, wanted)
        # The program of a plan holds it, so that no other plan gets its id.
        key = (id(steps), tuple(feeds), tuple(wanted), _C._tensor_guards(list(feeds.values())))
        with self._lock:
            found = self._prepared.get(key)
            if found is not None:
                self._prepared.move_to_end(key)
        out = found.run(feeds) if found is not None else self._record(key, steps, feeds, wanted)
        _settle(out)
        return out

    def kernels(self, steps: Sequence[Step]) -> list[list[int]] | None:
        """The steps of a plan that the engine's program runs as one kernel, by place; `None` before it has run."""
        with self._lock:
            return next((p.kernels for p in reversed(self._prepared.values()) if p.steps is steps), None)

    def _record(
        self, key: tuple[Any, ...], steps: Sequence[Step], feeds: Mapping[int, Tensor], wanted: Sequence[int]
    ) -> dict[int, Tensor]:
        fed = list(feeds)
        recorder = _C._GraphRecorder(list(feeds.values()), False)
        ends = [len(fed) - 1]

        def seen(results: list[Tensor]) -> None:
            values = [recorder.value_of(t) for t in results]
            ends.append(max(ends[-1], *(v for v in values if v is not None)))

        try:
            out = self._eager._made(steps, feeds, wanted, seen)
            values = {t: recorder.value_of(tensor) for t, tensor in out.items()}
            broken = recorder.broken()
            graph, captures, _ = recorder.finish()
        finally:
            recorder.abort()
        outputs = {t: v for t, v in values.items() if v is not None}
        if broken or captures or len(outputs) != len(values):
            return out
        graph.set_outputs(list(outputs.values()))
        prepared = _Prepared(steps, graph, fed, outputs, ends[1:])
        with self._lock:
            self._prepared[key] = prepared
            while len(self._prepared) > self._capacity:
                self._prepared.popitem(last=False)
        return out
