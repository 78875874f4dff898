"""What computes a plan. An executor sees operators by name, tensors and attributes, and nothing of the graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from lucid import _C, errors
from lucid._grad_mode import no_grad
from lucid.lightning.graph.registry import op_named

__all__ = ["EagerExecutor", "Executor", "Step"]

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
        values = dict(feeds)
        last = {t: i for i, (_, _, inputs, _, _) in enumerate(steps) for t in inputs}
        kept = set(wanted)
        with no_grad():
            for i, (name, attrs, inputs, outputs, device) in enumerate(steps):
                operands = [values[t] if values[t].device == device else values[t].to(device) for t in inputs]
                values.update(zip(outputs, op_named(name).run(operands, attrs), strict=True))
                for t in {*inputs, *outputs}:
                    if last.get(t, -1) <= i and t not in kept:
                        values.pop(t, None)
        missing = [t for t in wanted if t not in values]
        if missing:
            raise errors.InternalError(f"GraphIR: tensors {missing} were not computed")
        out = {t: values[t] for t in wanted}
        pending = [tensor for tensor in out.values() if not tensor.is_cpu]
        if pending:
            _C._eval(pending, True)
        return out
