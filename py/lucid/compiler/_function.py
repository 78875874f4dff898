"""Compiled functions: which graph a call runs, when one is recorded, and what is counted."""

from __future__ import annotations

import dataclasses
import functools
import sys
import threading
import types
import weakref
from collections.abc import Callable
from typing import Any

import lucid
from lucid import _C, errors
from lucid._C import Tensor
from lucid.compiler import _trees
from lucid.compiler._dynamic import MOST_INSTANCES, Family, NotDynamic, facts, generalise
from lucid.compiler._report import Explanation, row_of
from lucid.compiler._split import Split, Whole, writes
from lucid.compiler._stand_ins import bridged, stand_ins
from lucid.compiler._state import Unguarded, Walk
from lucid.compiler._trace import (
    Compiled,
    Eager,
    GraphBreak,
    outside,
    plain_function,
    record,
)

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
        instantiated: graphs made of a recording at other sizes, without another one.
        split: calls that ran in parts, since no graph holds some of their lines.
        reasons: why calls ran as they are written, or in parts, with how often.
        recompile_reasons: what differed from the recordings that there were, with how often.
        static_reasons: why recordings are for their sizes alone, though `dynamic` was asked for.
    """

    calls: int = 0
    recorded: int = 0
    replayed: int = 0
    eager: int = 0
    recompiles: int = 0
    instantiated: int = 0
    split: int = 0
    reasons: dict[str, int] = dataclasses.field(default_factory=dict)
    recompile_reasons: dict[str, int] = dataclasses.field(default_factory=dict)
    static_reasons: dict[str, int] = dataclasses.field(default_factory=dict)

    def note(self, reasons: list[str]) -> None:
        """Counts a call that ran as it is written."""
        self.eager += 1
        self.tally(self.reasons, reasons)

    @staticmethod
    def tally(into: dict[str, int], reasons: list[str]) -> None:
        """Counts reasons."""
        for reason in reasons:
            into[reason] = into.get(reason, 0) + 1


TOTAL = Statistics()


def _world() -> str | None:
    """The name of the group whose collectives are meant where none is named."""
    loaded = sys.modules.get("lucid.distributed._state")
    world = None if loaded is None else loaded._state.world
    return None if world is None else str(world.group_name)


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
        _world(),
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
        dynamic: whether recordings are to hold for other sizes, too.
        parent: the function that this one is a part of, in parts.
    """

    def __init__(
        self,
        fn: Callable[..., Any],
        *,
        fullgraph: bool,
        limit: int | None,
        name: str | None,
        dynamic: bool | None = None,
        parent: Function | None = None,
    ) -> None:
        self.fn = fn
        self.dynamic = bool(dynamic)
        self.parent = parent
        self.parts: Split | None = None
        self.instances: dict[Any, Compiled] = {}
        self._families: dict[Any, list[Family]] = {}
        self._lines: set[int] = set()
        self._whole = False
        self._kept: list[Function] = []
        self.in_place = False
        self.fullgraph = fullgraph
        self._limit = limit
        self.name = str(name or getattr(fn, "__qualname__", type(fn).__name__))
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
            self.instances = {}
            self._families = {}
            self.parts, self._lines, self._whole = None, set(), False

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
        parts = self.parts
        if parts is not None and (owner := self._owner()) is not None:
            self.statistics.split += 1
            TOTAL.split += 1
            return parts.call(*owner, *args, **kwargs)
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
        if self.dynamic:
            found = self._instance(key, tensors, walk, tree, kinds)
            if found is not None:
                inputs = found.inputs(tensors, every)
                if inputs is not None:
                    self.statistics.replayed += 1
                    TOTAL.replayed += 1
                    return found(inputs, tensors, every)
        return self._record(key, args, kwargs, tensors, walk, again)

    def _family_key(self, tensors: list[Tensor], walk: Walk, tree: Any, kinds: list[Any]) -> Any:
        reached = _C._tensor_guards(walk.tensors)
        return (tree, tuple(kinds), walk.key(), reached, tuple(facts(t) for t in tensors), _surroundings())

    def _instance(self, key: Any, tensors: list[Tensor], walk: Walk, tree: Any, kinds: list[Any]) -> Compiled | None:
        """The graph for these sizes of a recording at others."""
        found = self.instances.get(key)
        if found is not None:
            return found
        for family in self._families.get(self._family_key(tensors, walk, tree, kinds), ()):
            sizes = family.sizes(tensors)
            if sizes is None:
                continue
            try:
                made = family.instance(sizes)
            except errors.LucidError:
                # Recorded for itself, with the error that the call has, if any.
                continue
            with self._lock:
                if len(self.instances) >= MOST_INSTANCES:
                    del self.instances[next(iter(self.instances))]
                self.instances[key] = made
            for count in (self.statistics, TOTAL):
                count.instantiated += 1
            return made  # type: ignore[no-any-return]
        return None

    def _generalise(self, entry: Compiled, args: Any, kwargs: Any, tensors: list[Tensor], walk: Walk) -> None:
        """Makes a recording one for other sizes, where it can be."""
        leaves: list[Any] = []
        tree = _trees.flatten((args, kwargs), leaves)
        _, kinds, others = _trees.split(leaves)

        def shadow(changed: list[Tensor]) -> Any:
            a, k = self._with((args, kwargs), tensors, changed)
            now = Walk([("function", self.fn), *others, *_global_hooks()])
            return record(self.fn, a, k, changed, now, lambda: now, False, True)[1]

        key = self._family_key(tensors, walk, tree, kinds)
        try:
            family = generalise(shadow, entry, tensors, walk)
        except (NotDynamic, Unguarded) as error:
            for count in (self.statistics, TOTAL):
                count.tally(count.static_reasons, [str(error)])
            return
        with self._lock:
            self._families.setdefault(key, []).insert(0, family)

    @staticmethod
    def _with(call: tuple[Any, Any], tensors: list[Tensor], others: list[Tensor]) -> Any:
        leaves: list[Any] = []
        tree = _trees.flatten(call, leaves)
        to = {id(t): c for t, c in zip(tensors, others, strict=True)}
        return _trees.unflatten(tree, iter([to.get(id(leaf), leaf) for leaf in leaves]))

    def _owner(self) -> tuple[Any, ...] | None:
        """What the parts are called with before the arguments: of a module's forward the module. `None` where its call
        does more than call that."""
        fn: Any = self.fn
        if isinstance(fn, types.FunctionType):
            return ()
        module = fn if isinstance(fn, lucid.nn.Module) else fn.__self__
        if not isinstance(module, lucid.nn.Module):
            return (module,)
        hooks = (module._forward_hooks, module._forward_pre_hooks, module._backward_hooks, module._backward_pre_hooks)
        return None if any(hooks) or _global_hooks() or "forward" in module.__dict__ else (module,)

    def _take_apart(self, lines: frozenset[int]) -> None:
        """Has later calls run in parts, around the lines that no graph holds."""
        if self.parent is not None:
            self.parent._take_apart(lines)
            return
        if self.fullgraph or self._whole or not lines or lines <= self._lines:
            return
        fn = plain_function(self.fn)
        fn = getattr(fn, "__func__", fn)
        if not isinstance(fn, types.FunctionType):
            return

        def compiled(part: types.FunctionType) -> Any:
            made = Function(part, fullgraph=False, limit=None, name=None, dynamic=self.dynamic, parent=self)
            # Writes to what is computed are fine, writes to leaves are not.
            names = part.__code__.co_names
            made.in_place = any(n.endswith("_") and not n.endswith("__") for n in names) or writes(part.__code__)
            self._kept.append(made)
            return compiled_call(made)

        with self._lock:
            self._lines |= lines
            self._kept = []
            try:
                self.parts = Split(fn, set(self._lines), compiled)
            except Whole:
                self.parts, self._whole = None, True

    def part_functions(self) -> list[Function]:
        """The compiled functions of its parts."""
        return [part._compiled for part in self.parts.parts] if self.parts is not None else []

    def _explain_recompile(self, key: Any) -> list[str]:
        """What of a call differs from the recording that it is most like."""
        best: list[str] | None = None
        for known in self.entries:
            if len(known) != len(key):
                continue
            differs = [name for name, a, b in zip(_KEY_PARTS, known, key, strict=True) if a != b]
            if "what the function reaches" in differs and (paths := known[2].differing(key[2])):
                differs[differs.index("what the function reaches")] = paths
            if best is None or len(differs) < len(best):
                best = differs
        return best or []

    def _record(self, key: Any, args: Any, kwargs: Any, tensors: list[Tensor], walk: Walk, again: Any) -> Any:
        if len(self.entries) >= self.limit() and key not in self.entries:
            reason = f"there are {len(self.entries)} graphs already, the limit (lucid._dynamo.config.recompile_limit)"
            return self._eager([reason], args, kwargs)
        inside = stand_ins(tensors) if self.parent is not None and not self.in_place else tensors
        if all(a is b for a, b in zip(inside, tensors, strict=True)):
            result, entry = record(self.fn, args, kwargs, tensors, walk, again, self.fullgraph, self.dynamic)
        else:
            # What led to the arguments of a part is another part's.
            a, k = self._with((args, kwargs), tensors, inside)
            result, entry = record(self.fn, a, k, inside, walk, again, self.fullgraph, self.dynamic)
            reached = [t for t in walk.tensors if all(t is not u for u in tensors)]
            result = bridged(result, [*inside, *reached], [*tensors, *reached])
        why = self._explain_recompile(key) if self.entries else []
        if isinstance(entry, Compiled):
            # What the facts name by identity lives as long as they do.
            entry.kept = walk.kept
            for count in (self.statistics, TOTAL):
                count.recorded += 1
                count.recompiles += bool(self.entries)
                count.tally(count.recompile_reasons, why)
        else:
            entry.kept = walk.kept
            self.statistics.note(entry.reasons)
            TOTAL.note(entry.reasons)
            self._take_apart(entry.lines)
        with self._lock:
            self.entries[key] = entry
        if self.dynamic and isinstance(entry, Compiled):
            self._generalise(entry, args, kwargs, tensors, walk)
            entry.raw = None
        return result


#: What the parts of a key say, in order.
_KEY_PARTS = (
    "the structure of the arguments",
    "an argument that is no tensor",
    "what the function reaches",
    "the shape, strides, dtype, device or gradient of a tensor",
    "grad mode, autocast, or a default dtype or device",
)


@functools.cache
def _tensor_types() -> tuple[type, ...]:
    from lucid.nn import Buffer, Parameter

    return (Tensor, Parameter, Buffer)


def _global_hooks() -> list[tuple[str, Any]]:
    from lucid.nn.modules import call

    return [("global hooks", hooks) for hooks in (call._PRE, call._POST, call._BACKWARD, call._BACKWARD_PRE) if hooks]


def compiled_function(fn: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    """The function that runs recorded graphs of another, with its name and signature."""
    return compiled_call(Function(fn, **options))


def compiled_call(made: Function) -> Callable[..., Any]:
    """A function that calls a compiled one."""
    fn = made.fn

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


def explanation(made: Function) -> Explanation:
    """What is known of a compiled function."""
    every = [made, *made.part_functions()]
    graphs = [entry for f in every for entry in f.entries.values() if isinstance(entry, Compiled)]
    rows = [row_of(g.graph, g.passes) for g in graphs]
    reasons = list(dict.fromkeys(reason for f in every for reason in f.statistics.reasons))
    found = Explanation(len(rows), len(reasons), reasons, sum(len(r["steps"]) for r in rows), rows)
    found.recompile_reasons = dict(made.statistics.recompile_reasons)
    found.static_reasons = dict(made.statistics.static_reasons)
    found.parts = [f.name for f in made.part_functions()]
    return found


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
