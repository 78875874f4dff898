"""Compiled functions: which graph a call runs, when one is recorded, and what is counted."""

from __future__ import annotations

import dataclasses
import functools
import threading
import weakref
from collections.abc import Callable
from typing import Any

import lucid
from lucid import _C, errors
from lucid._C import Tensor
from lucid.compiler import _trees
from lucid.compiler._state import Unguarded, Walk
from lucid.compiler._trace import Compiled, Eager, GraphBreak, outside, record

#: Every compiled function that is alive, for `reset`.
_ALL: weakref.WeakSet[Function] = weakref.WeakSet()


@dataclasses.dataclass
class Statistics:
    """What compiled functions have done.

    Attributes:
        calls: calls of compiled functions, nested ones left out.
        recorded: graphs that were recorded, the first call of each.
        replayed: calls that ran a graph.
        eager: calls that ran as they are written.
        recompiles: graphs of functions that had one already.
        reasons: why calls ran as they are written, with how often.
    """

    calls: int = 0
    recorded: int = 0
    replayed: int = 0
    eager: int = 0
    recompiles: int = 0
    reasons: dict[str, int] = dataclasses.field(default_factory=dict)

    def note(self, reasons: list[str]) -> None:
        """Counts a call that ran as it is written."""
        self.eager += 1
        for reason in reasons:
            self.reasons[reason] = self.reasons.get(reason, 0) + 1


TOTAL = Statistics()


def _surroundings() -> tuple[Any, ...]:
    """What a call depends on beside its arguments and what the function reaches."""
    autocast = tuple(
        (_C._autocast_enabled(d), _C._autocast_dtype(d)) if _C._autocast_enabled(d) else None
        for d in ("cpu", "gpu", "meta")
    )
    return (
        _C.is_grad_enabled(),
        _C.is_inference_mode_enabled(),
        autocast,
        _C.get_default_dtype(),
        _C.get_default_device(),
        _C._get_deterministic(),
        lucid.is_anomaly_enabled(),
    )


def _unfit() -> str | None:
    """Why no graph can be recorded or run where the call is."""
    if _C._forward_active():
        return "forward-mode differentiation is at work"
    if _C._vmap_active() or _C._is_transformed():
        return "a function transform is at work"
    if _C.is_inference_mode_enabled():
        return "inference mode is on"
    if _C._torch_function_modes():
        return "a function mode is at work"
    return None


class Function:
    """A function that runs recorded graphs.

    Args:
        fn: the function.
        fullgraph: whether what cannot be one graph is an error.
        limit: how many graphs are kept; calls beyond run as they are written.
    """

    def __init__(self, fn: Callable[..., Any], *, fullgraph: bool, limit: int | None, name: str | None) -> None:
        self.fn = fn
        self.fullgraph = fullgraph
        self._limit = limit
        self.name = name or getattr(fn, "__qualname__", type(fn).__name__)
        self.entries: dict[Any, Compiled | Eager] = {}
        self.statistics = Statistics()
        self._lock = threading.Lock()
        self._last: Walk | None = None
        _ALL.add(self)

    def limit(self) -> int:
        """How many graphs are kept."""
        from lucid._dynamo import config

        return config.recompile_limit if self._limit is None else self._limit

    def reset(self) -> None:
        """Forgets all graphs, and what was counted."""
        with self._lock:
            self.entries = {}
            self._last = None
            self.statistics = Statistics()

    def _eager(self, reasons: list[str], args: Any, kwargs: Any) -> Any:
        if self.fullgraph:
            raise GraphBreak(f"compile(fullgraph=True): {self.name}: {'; '.join(reasons)}")
        self.statistics.note(reasons)
        TOTAL.note(reasons)
        return self.fn(*args, **kwargs)

    def call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The function's result."""
        if _C._graph_recording():
            return self.fn(*args, **kwargs)
        from lucid.compiler import _stance_name

        if _stance_name() == "force_eager":
            return self.fn(*args, **kwargs)
        self.statistics.calls += 1
        TOTAL.calls += 1
        unfit = _unfit()
        if unfit is not None:
            return self._eager([unfit], args, kwargs)
        leaves: list[Any] = []
        tree = _trees.flatten((args, kwargs), leaves)
        tensors, kinds, others = _trees.split(leaves)
        if any(type(t) not in _tensor_types() or t.is_sparse or _C._vmap_parts(t) for t in tensors):
            return self._eager(["an argument is a sparse tensor, or of a subclass"], args, kwargs)

        def again() -> Walk:
            return Walk([("function", self.fn), *others, *_global_hooks()])

        walk = self._last
        if walk is None or others or _global_hooks() or not walk.unchanged():
            try:
                walk = again()
            except Unguarded as error:
                return self._eager([str(error)], args, kwargs)
            self._last = None if others or _global_hooks() else walk
        every = [*tensors, *walk.tensors]
        if any(t.is_sparse or _C._vmap_parts(t) for t in walk.tensors):
            return self._eager(["the function reaches a sparse tensor"], args, kwargs)
        key = (tree, tuple(kinds), walk.key(), _C._tensor_guards(every), _surroundings())
        entry = self.entries.get(key)
        if isinstance(entry, Compiled):
            inputs = entry.inputs(tensors, every)
            if inputs is not None and entry.guard == entry.grad_guards(every):
                self.statistics.replayed += 1
                TOTAL.replayed += 1
                return entry(inputs, tensors, every)
            entry = None
        if isinstance(entry, Eager):
            return self._eager(entry.reasons, args, kwargs)
        return self._record(key, args, kwargs, tensors, walk, again)

    def _record(self, key: Any, args: Any, kwargs: Any, tensors: list[Tensor], walk: Walk, again: Any) -> Any:
        if len(self.entries) >= self.limit() and key not in self.entries:
            reason = f"there are {len(self.entries)} graphs already, the limit (lucid._dynamo.config.recompile_limit)"
            return self._eager([reason], args, kwargs)
        result, entry = record(self.fn, args, kwargs, tensors, walk, again, self.fullgraph)
        if isinstance(entry, Compiled):
            # What the facts name by identity lives as long as they do.
            entry.kept = walk.kept
            for count in (self.statistics, TOTAL):
                count.recorded += 1
                count.recompiles += bool(self.entries)
        else:
            entry.kept = walk.kept
            self.statistics.note(entry.reasons)
            TOTAL.note(entry.reasons)
        with self._lock:
            self.entries[key] = entry
        return result


@functools.cache
def _tensor_types() -> tuple[type, ...]:
    from lucid.nn import Buffer, Parameter

    return (Tensor, Parameter, Buffer)


def _global_hooks() -> list[tuple[str, Any]]:
    from lucid.nn.modules import call

    return [("global hooks", hooks) for hooks in (call._PRE, call._POST, call._BACKWARD, call._BACKWARD_PRE) if hooks]


def compiled_function(fn: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    """The function that runs recorded graphs of another, with its name and signature."""
    made = Function(fn, **options)

    @functools.wraps(fn)
    def call(*args: Any, **kwargs: Any) -> Any:
        return made.call(args, kwargs)

    call._compiled = made  # type: ignore[attr-defined]
    call._torchdynamo_orig_callable = fn  # type: ignore[attr-defined]
    return call


def disabled(fn: Callable[..., Any]) -> Callable[..., Any]:
    """The function as one that ends the graph of whoever calls it; of a module the module, of a class the class."""
    from lucid.nn import Module

    if isinstance(fn, type):
        return fn
    if isinstance(fn, Module):
        fn.__dict__["forward"] = disabled(fn.forward)
        fn.__dict__["_lucid_disabled"] = True
        return fn

    @functools.wraps(fn)
    def call(*args: Any, **kwargs: Any) -> Any:
        if _C._graph_recording():
            outside(f"{getattr(fn, '__qualname__', fn)} is disabled for the compiler")
        return fn(*args, **kwargs)

    call._lucid_disabled = True  # type: ignore[attr-defined]
    return call


@dataclasses.dataclass
class Explanation:
    """What `explain` found.

    Attributes:
        graph_count: graphs that were recorded.
        graph_break_count: reasons why calls run as they are written.
        break_reasons: those.
        op_count: steps of all graphs.
        graphs: per graph its text, its steps, what each pass changed, and the groups of element-wise steps.
    """

    graph_count: int
    graph_break_count: int
    break_reasons: list[str]
    op_count: int
    graphs: list[dict[str, Any]]

    def __str__(self) -> str:
        lines = [f"Graph Count: {self.graph_count}", f"Graph Break Count: {self.graph_break_count}"]
        lines += [f"Op Count: {self.op_count}", "Break Reasons:"]
        lines += [f"  Break Reason {i + 1}: {reason}" for i, reason in enumerate(self.break_reasons)]
        for i, graph in enumerate(self.graphs):
            passes = ", ".join(f"{name} {count}" for name, count in graph["passes"])
            groups = f"{len(graph['groups'])} groups of element-wise steps"
            lines += [f"Graph {i + 1}: {len(graph['steps'])} steps ({passes}; {groups})", graph["text"]]
        return "\n".join(lines)


def explanation(made: Function) -> Explanation:
    """What is known of a compiled function."""
    graphs = [entry for entry in made.entries.values() if isinstance(entry, Compiled)]
    rows = [
        {
            "text": str(g.graph),
            "steps": g.graph.steps(),
            "passes": g.passes,
            "groups": g.graph.groups(),
            "dot": g.graph.to_dot(),
        }
        for g in graphs
    ]
    reasons = list(made.statistics.reasons)
    return Explanation(len(rows), len(reasons), reasons, sum(len(r["steps"]) for r in rows), rows)


def reset_all() -> None:
    """Forgets the graphs of all compiled functions, and all counts."""
    for made in list(_ALL):
        made.reset()
    fresh = Statistics()
    for field in dataclasses.fields(Statistics):
        setattr(TOTAL, field.name, getattr(fresh, field.name))


def check(what: Any) -> None:
    """A TypeError for what cannot be compiled."""
    if not callable(what):
        raise errors.TypeError(f"compile(): expected a function or a module, got {type(what).__name__}")
