"""One recording of a function: its call runs as it is, and a graph of what it dispatched is kept, if that is all.

A recording ends in a `Compiled` that runs the graph again, or in an `Eager` that says why there is none. The call that
is recorded has its results either way.
"""

from __future__ import annotations

import sys
import threading
import types
from collections.abc import Callable, Iterable
from typing import Any, NoReturn

import lucid
from lucid import _C
from lucid._C import Tensor
from lucid.compiler import _trees
from lucid.compiler._state import Unguarded, Walk, changed, uncollected, watcher

_current = threading.local()


def tracer() -> Trace | None:
    """The recording of the calling thread."""
    return getattr(_current, "trace", None)


def host_call(step: Callable[[], Any], again: Callable[[], Any]) -> Any:
    """Runs an optimizer's step apart from the graph that is recorded; `again` is what each run of the graph calls."""
    trace = tracer()
    if trace is None:
        return step()
    return trace.host(step, again)


def outside(reason: str) -> None:
    """Ends the graph that the thread records, if it does."""
    trace = tracer()
    if trace is not None:
        trace.fail(reason)


class GraphBreak(lucid.errors.RuntimeError):
    """A function that has to be one graph, and is not."""


class Eager:
    """A key whose calls run as they are written.

    Attributes:
        lines: the lines of the function where the graph broke, where all reasons have one.
    """

    def __init__(self, reasons: list[str], lines: frozenset[int] = frozenset()) -> None:
        self.reasons = reasons
        self.lines = lines
        self.kept: Any = None


def broke(reason: str) -> None:
    """Called where the engine runs what no graph holds."""
    trace = tracer()
    if trace is not None:
        trace.note_line(reason)


def plain_function(fn: Any) -> Any:
    """The Python function that a call of a function, method or module runs, if it is one."""
    if isinstance(fn, lucid.nn.Module):
        fn = fn.forward
    if isinstance(fn, types.MethodType):
        # A module's own way of being called leads to its forward.
        owner, inner = fn.__self__, fn.__func__
        if isinstance(owner, lucid.nn.Module) and inner.__module__.partition(".")[0] == "lucid":
            forward = owner.forward
            return getattr(forward, "__func__", forward)
        return inner
    return fn


def _users(frame: types.FrameType | None) -> types.FrameType | None:
    while frame is not None and (frame.f_globals.get("__name__") or "").partition(".")[0] == "lucid":
        frame = frame.f_back
    return frame


def user_line(frame: types.FrameType | None) -> str:
    """Where in the program's own code a frame was called from."""
    found = _users(frame)
    return "" if found is None else f" (at {found.f_code.co_filename}:{found.f_lineno}, in {found.f_code.co_name})"


def _raised_at(error: BaseException) -> str:
    at, found = error.__traceback__, ""
    while at is not None:
        if (at.tb_frame.f_globals.get("__name__") or "").partition(".")[0] != "lucid":
            code = at.tb_frame.f_code
            found = f" (at {code.co_filename}:{at.tb_lineno}, in {code.co_name})"
        at = at.tb_next
    return found


def _guards(tensors: Iterable[Tensor | None]) -> bytes:
    return _C._tensor_guards([t for t in tensors if t is not None])


def _place(t: Tensor) -> tuple[Any, ...]:
    return (t._storage_key(), t.storage_offset(), tuple(t.shape), tuple(t.stride()), t.dtype)


class Trace:
    """A recording at work."""

    def __init__(self, args: list[Tensor], walk: Walk, strict: bool, raw: bool = False) -> None:
        self.args = args
        self.raw = raw
        self.walk = walk
        self.strict = strict
        self.reasons: list[str] = []
        self.hosts: list[tuple[Callable[[], Any], list[tuple[int, Any]]]] = []
        self.tensors = [*args, *walk.tensors]
        self.leaves = [i for i, t in enumerate(self.tensors) if t.requires_grad and t.is_leaf]
        self.grads = {i: self.tensors[i].grad for i in self.leaves}
        self._looked = dict(self.grads)
        self.recorder: Any = None
        self.incoming: set[int] = set()
        #: The code of the function that is recorded, and where in it the graph broke, by reason.
        self.code: types.CodeType | None = None
        self.lines: dict[str, int] = {}
        self.all_lines: set[int] = set()

    def fail(self, reason: str) -> None:
        """Notes why there is no graph; an error where there has to be one."""
        self.note_line(reason)
        if reason not in self.reasons:
            self.reasons.append(reason)
        if self.strict:
            raise GraphBreak(f"compile(fullgraph=True): {reason}{user_line(sys._getframe(1))}")

    def note_line(self, reason: str) -> None:
        """Notes at which line of the function something happens that no graph holds."""
        frame: types.FrameType | None = sys._getframe(1)
        while frame is not None and frame.f_code is not self.code:
            frame = frame.f_back
        if frame is not None and frame.f_lineno is not None:
            self.lines.setdefault(reason, frame.f_lineno)
            self.all_lines.add(frame.f_lineno)

    def first_guards(self, sources: list[tuple[str, int]]) -> bytes:
        """The guards of the gradients that the graph reads, as those were when the recording began."""
        return _guards(self.grads[i] for kind, i in sources if kind == "grad")

    def effects(self) -> list[tuple[int, Any]]:
        """The gradients of leaves that are others than at the last look: the leaf's number, and the value."""
        found: list[tuple[int, Any]] = []
        for i in self.leaves:
            now = self.tensors[i].grad
            if now is self._looked[i]:
                continue
            self._looked[i] = now
            value = None if now is None else self.recorder.value_of(now)
            if now is not None and value is None:
                self.fail("a gradient is set to a tensor that the graph does not make")
            found.append((i, value))
        return found

    def host(self, step: Callable[[], Any], again: Callable[[], Any]) -> Any:
        """Runs a step of the host's."""
        effects = self.effects()
        self.recorder.pause(True)
        _current.trace = None
        try:
            result = step()
        finally:
            _current.trace = self
            self.recorder.resume()
        if result is not None:
            self.fail("an optimizer's step returns a value")
        self.hosts.append((again, effects))
        return result

    @uncollected()  # From before to behind watching: what the collector calls is not what the function does.
    def run(self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Calls the function, watching."""
        self.recorder = _C._GraphRecorder(self.args, self.strict)
        former, profiler = getattr(_current, "trace", None), sys.getprofile()
        self.code = getattr(plain_function(fn), "__code__", None)
        _current.trace = self
        if profiler is None:
            sys.setprofile(watcher(self.fail))
        else:
            self.reasons.append("a profiler of Python's is at work")
        try:
            return fn(*args, **kwargs)
        except BaseException as error:
            sys.setprofile(profiler)
            self.recorder.abort()
            if self.strict and isinstance(error, lucid.errors.RuntimeError) and "(fullgraph=True)" in str(error):
                raise GraphBreak(f"{error}{_raised_at(error)}").with_traceback(error.__traceback__) from error
            raise
        finally:
            sys.setprofile(profiler)
            _current.trace = former


def _released(*_: Any) -> NoReturn:
    """The backward pass of results whose graph went backward in the call."""
    raise lucid.errors.RuntimeError(
        "Trying to backward through the graph a second time (or directly access saved tensors after they have "
        "already been freed). Saved intermediate values of the graph are freed when you call .backward() or "
        "autograd.grad(). Specify retain_graph=True if you need to backward through the graph a second time or "
        "if you need to access saved tensors after calling backward."
    )


class _Graphed(lucid.autograd.Function):
    """The part of a graph before its backward pass, with the part that is it as the gradient."""

    @staticmethod
    def forward(ctx: Any, compiled: Compiled, inputs: list[Tensor], tensors: list[Tensor], *wanted: Tensor) -> Any:
        run = compiled.forward(inputs, tensors)
        made = run.values(compiled.values)
        compiled.shared = any(t._is_view() or any(t is x for x in inputs) for t in made)
        ctx.compiled, ctx.run = compiled, run
        ctx.save_for_backward(*[inputs[i] for i in compiled.saved])
        ctx.mark_non_differentiable(*[t for i, t in enumerate(made) if i not in compiled.differentiable])
        return tuple(made)

    @staticmethod
    @lucid.autograd.function.once_differentiable
    def backward(ctx: Any, *grads: Any) -> Any:
        # Asked for so that inputs that were written since are an error.
        _ = ctx.saved_tensors
        compiled = ctx.compiled
        if compiled.released:
            _released()
        run = ctx.run.fork()
        for place, (value, layout) in compiled.incoming.items():
            g = grads[place]
            shape, stride, dtype, device = layout
            if g is None or tuple(g.stride()) != stride:
                strided = lucid.empty_strided(shape, stride, dtype=dtype, device=device)
                g = strided.zero_() if g is None else strided.copy_(g)
            run.set(value, g)
        run.run()
        wanted = iter(run.values([v for v in compiled.gradients if v is not None]))
        return (None, None, None, *[None if v is None else next(wanted) for v in compiled.gradients])


class Compiled:
    """A graph that runs in the place of a call."""

    def __init__(self) -> None:
        self.program: Any = None
        self.graph: Any = None
        self.passes: list[tuple[str, int]] = []
        self.tree: Any = None
        self.leaves: list[tuple[str, Any]] = []
        self.values: list[int] = []
        self.sources: list[tuple[str, int]] = []
        self.effects: list[tuple[int, Any]] = []
        self.hosts: list[tuple[Callable[[], Any], list[tuple[int, Any]]]] = []
        self.differentiable: frozenset[int] = frozenset()
        self.wanted: list[int] = []
        self.incoming: dict[int, tuple[int, Any]] = {}
        self.gradients: list[Any] = []
        self.saved: list[int] = []
        #: Did the graph go backward in the call?
        self.released = False
        #: May a result be a view, or what was given?
        self.shared = True
        self.split = 0
        self.guard = b""
        self.kept: Any = None
        #: The graph before any pass, where it may become one for sizes that vary.
        self.raw: _C._Graph | None = None

    def alike(self, other: Any) -> bool:
        """Is another recording one of the same call, at other sizes?"""
        if not isinstance(other, Compiled) or other.raw is None:
            return False
        names = ("tree", "leaves", "values", "sources", "effects", "differentiable", "wanted", "gradients", "released")
        places = {place: value for place, (value, _) in self.incoming.items()}
        same = all(getattr(self, name) == getattr(other, name) for name in names) and not other.hosts
        return same and places == {place: value for place, (value, _) in other.incoming.items()}

    def resized(self, graph: _C._Graph) -> Compiled:
        """What runs another graph, one for other sizes, in the place of this one."""
        made = Compiled()
        made.__dict__.update(self.__dict__)
        made.raw = None
        made.incoming = {}
        for place, (value, (_, _, dtype, device)) in self.incoming.items():
            shape, stride = graph.layout(value)
            made.incoming[place] = (value, (tuple(shape), tuple(stride), dtype, device))
        _make_program(made, graph)
        return made

    def inputs(self, args: list[Tensor], tensors: list[Tensor]) -> list[Tensor] | None:
        """What the graph reads, of the tensors that a call reaches; `None` where something is not there."""
        found: list[Any] = list(args)
        for kind, i in self.sources:
            found.append(tensors[i] if kind == "tensor" else tensors[i].grad)
        return None if any(t is None for t in found) else found

    def grad_guards(self, tensors: list[Tensor]) -> bytes:
        """The guards of the gradients that the graph reads."""
        return _guards(tensors[i].grad for kind, i in self.sources if kind == "grad")

    def forward(self, inputs: list[Tensor], tensors: list[Tensor]) -> Any:
        """Runs up to the backward pass, with the steps of the host in between."""
        run = self.program.begin(inputs)
        while (call := run.run(self.split)) is not None:
            again, effects = self.hosts[call]
            _set_grads(run, effects, tensors)
            again()
        _set_grads(run, self.effects, tensors)
        return run

    def __call__(self, inputs: list[Tensor], args: list[Tensor], tensors: list[Tensor]) -> Any:
        """The results of the call."""
        if not self.wanted:
            made = self.forward(inputs, tensors).values(self.values)
        elif self.released and not self.shared:
            # Nothing is left of the graph but that there was one.
            with lucid.no_grad():
                made = self.forward(inputs, tensors).values(self.values)
            leaves = [tensors[i] for i in self.wanted]
            fixed = [i not in self.differentiable for i in range(len(made))]
            _C._record_function("_GraphedBackward", leaves, made, fixed, (), True, _released, None)
        else:
            made = _Graphed.apply(self, inputs, tensors, *[tensors[i] for i in self.wanted])
        found = [made[x] if kind == "value" else tensors[x] if kind == "tensor" else x for kind, x in self.leaves]
        return _trees.unflatten(self.tree, iter(found))


def _set_grads(run: Any, effects: list[tuple[int, Any]], tensors: list[Tensor]) -> None:
    if not effects:
        return
    values = iter(run.values([value for _, value in effects if value is not None]))
    for i, value in effects:
        tensors[i].grad = None if value is None else next(values)


def record(
    fn: Callable[..., Any],
    args: Any,
    kwargs: Any,
    tensors: list[Tensor],
    walk: Walk,
    again: Any,
    strict: bool,
    raw: bool = False,
) -> Any:
    """Calls the function: its result, and what the next call with the same key does.

    Args:
        fn, args, kwargs: the call.
        tensors: those of the arguments.
        walk: what the function reaches, now.
        again: gives the same walk of what it reaches then.
        strict: whether a graph that is not all of the call is an error.
        raw: whether the graph is kept as it was before any pass, too.
    """
    trace = Trace(tensors, walk, strict, raw)
    parallel = _data_parallel(walk)
    hooked = any(_C._hook_count(t) > parallel.get(id(t), 0) for t in trace.tensors)
    before = (_C._tensor_guards(trace.tensors), [t._storage_key() for t in trace.tensors])
    result = trace.run(fn, args, kwargs)
    try:
        if hooked:
            trace.fail("a tensor has hooks on its gradient")
        _check_state(trace, again, before)
        compiled = None if trace.reasons else _finish(trace, result)
        if compiled is not None and parallel and compiled.wanted and not compiled.released:
            # Its hooks send the gradients, and no hook is called for those of a graph's results.
            trace.fail("the backward pass of a DistributedDataParallel is not part of the function")
            compiled = None
        if compiled is None:
            known = all(reason in trace.lines for reason in trace.reasons)
            return result, Eager(trace.reasons, frozenset(trace.all_lines) if known else frozenset())
        return result, compiled
    finally:
        trace.recorder.abort()


def _data_parallel(walk: Walk) -> dict[int, int]:
    """How many hooks of `DistributedDataParallel` each parameter has, by its id: what they do is part of the graph of a
    step with its backward pass."""
    found: dict[int, int] = {}
    loaded = sys.modules.get("lucid.nn.data_parallel")
    if loaded is None:
        return found
    for module in walk.modules:
        if isinstance(module, loaded.DistributedDataParallel):
            for key in module._place:
                found[key] = found.get(key, 0) + 1
    return found


def _check_state(trace: Trace, again: Any, before: tuple[bytes, list[Any]]) -> None:
    for reason in trace.recorder.broken():
        trace.fail(reason)
    try:
        path = changed(trace.walk, again())
    except Unguarded as error:
        path = str(error)
    if path is not None:
        trace.fail(f"the call changes {path}")
    after = _C._tensor_guards(trace.tensors)
    moved = before[1] != [t._storage_key() for t in trace.tensors]
    if moved or _without_grads(before[0], trace.tensors) != _without_grads(after, trace.tensors):
        trace.fail("the call changes a tensor's strides, or whether it requires a gradient")


def _without_grads(guards: bytes, tensors: list[Tensor]) -> bytes:
    # The bit that says whether there is a gradient: those are compared one by one.
    out, at = bytearray(guards), 0
    for t in tensors:
        out[at + 2] &= ~0x40
        out[at + 3] = 0
        at += 4 + 8 + 16 * t.ndim + 16
    return bytes(out)


def _finish(trace: Trace, result: Any) -> Compiled | None:
    recorder = trace.recorder
    made = Compiled()
    leaves: list[Any] = []
    made.tree = _trees.flatten(result, leaves)
    own = {id(t): i for i, t in reversed(list(enumerate(trace.tensors)))}
    outputs: list[Tensor] = []
    for leaf in leaves:
        if not isinstance(leaf, Tensor):
            if not _constant_result(leaf):
                trace.fail(f"the call returns a value of type {type(leaf).__name__}")
            made.leaves.append(("constant", leaf))
        elif id(leaf) in own:
            made.leaves.append(("tensor", own[id(leaf)]))
        else:
            place = next((i for i, t in enumerate(outputs) if t is leaf), len(outputs))
            if place == len(outputs):
                outputs.append(leaf)
            made.leaves.append(("value", place))
    for t in outputs:
        value = None if type(t) is not Tensor or t.is_sparse or _C._vmap_parts(t) else recorder.value_of(t)
        if value is None:
            trace.fail("the call returns a tensor that the graph does not make")
            return None
        made.values.append(value)
        if _C._hook_count(t):
            trace.fail("a result has hooks on its gradient")
    made.effects = trace.effects()
    made.hosts = trace.hosts
    differentiable = [i for i, t in enumerate(outputs) if t.requires_grad]
    made.differentiable = frozenset(differentiable)
    backward = recorder.backward_ran()
    recorder.split()
    if differentiable:
        _record_backward(trace, made, outputs, differentiable, backward)
    if trace.reasons:
        return None
    return _close(trace, made, outputs, backward)


def _constant_result(value: Any) -> bool:
    kinds = (_C.dtype, _C.device, _C.memory_format)
    return _trees.is_constant(value) or isinstance(value, (*kinds, lucid.Size))


def _weight(t: Tensor) -> Tensor:
    """A gradient of a result, to record with: it has the layout of the result, unless that shows an element twice."""
    repeats = any(step == 0 and size > 1 for step, size in zip(t.stride(), t.shape, strict=True))
    if repeats or not t.numel():
        return lucid.ones(t.shape, dtype=t.dtype, device=t.device)
    return lucid.empty_strided(t.shape, t.stride(), dtype=t.dtype, device=t.device).fill_(1)


def _record_backward(trace: Trace, made: Compiled, outputs: list[Tensor], places: list[int], ran: bool) -> None:
    wanted = [i for i, t in enumerate(trace.tensors) if t.requires_grad]
    # Each tensor once, though it be an argument and reached as well.
    wanted = [i for i in wanted if all(trace.tensors[j] is not trace.tensors[i] for j in wanted if j < i)]
    if any(not trace.tensors[i].is_leaf for i in wanted if i >= len(trace.args)):
        trace.fail("a tensor that is reached beside the arguments is no leaf")
        return
    if any(m._backward_hooks or m._backward_pre_hooks for m in trace.walk.modules):
        trace.fail("a module has backward hooks")
        return
    recorder = trace.recorder
    recorder.pause(False)
    incoming = [_weight(outputs[i]) for i in places]
    recorder.resume()
    values = [recorder.input(g) for g in incoming]
    inputs = [trace.tensors[i] for i in wanted]
    roots = [outputs[i] for i in places]
    # Nobody reads these gradients, so that the other processes need not take part.
    rehearsing = _C._rehearse_collectives(True)
    try:
        grads = lucid.autograd.grad(roots, inputs, incoming, retain_graph=True, allow_unused=True)
    except lucid.errors.RuntimeError as error:
        if not (ran and "second time" in str(error)):
            trace.fail(f"its gradient cannot be recorded: {error}")
            return
        made.released = True
        grads = (None,) * len(inputs)
    finally:
        _C._rehearse_collectives(rehearsing)
    # A result may require a gradient, and lead to none: it still does, when it is computed again.
    everything = made.released or all(g is None for g in grads)
    made.wanted = [i for i, g in zip(wanted, grads, strict=True) if g is not None or everything]
    made.gradients = [None if g is None else recorder.value_of(g) for g in grads if g is not None or everything]
    if any(g is not None and recorder.value_of(g) is None for g in grads):
        trace.fail("a gradient is not made by the graph")
    for place, value, g in zip(places, values, incoming, strict=True):
        made.incoming[place] = (value, (tuple(g.shape), tuple(g.stride()), g.dtype, g.device))
    for reason in recorder.broken():
        trace.fail(reason)
    trace.incoming = set(values)


def _close(trace: Trace, made: Compiled, outputs: list[Tensor], backward: bool) -> Compiled | None:
    graph, captures, broken = trace.recorder.finish()
    for reason in broken:
        trace.fail(reason)
    incoming = trace.incoming
    known = {_place(t): ("tensor", i) for i, t in reversed(list(enumerate(trace.tensors)))}
    for i, g in trace.grads.items():
        if g is not None:
            known.setdefault(_place(g), ("grad", i))
    for value, t in captures:
        if value in incoming:
            continue
        source = known.get(_place(t))
        if source is None:
            trace.fail(f"a tensor of shape {tuple(t.shape)} is read that cannot be found again")
            return None
        made.sources.append(source)
    order = [v for v in graph.inputs() if v not in incoming]
    given = dict(zip(order, [("tensor", i) for i in range(len(trace.args))] + made.sources, strict=True))
    roots = dict(zip(order, graph.roots(order), strict=True))
    written = set(graph.written())
    for value, (kind, i) in given.items():
        t = trace.tensors[i]
        if roots[value] in written and kind == "tensor" and t.requires_grad and not t.is_leaf:
            trace.fail("an argument that is no leaf is written to")
        if backward and kind == "tensor" and t.requires_grad and not t.is_leaf:
            trace.fail("a backward pass goes through a tensor that was computed before")
    seen: dict[int, int] = {}
    for place, root in enumerate(graph.roots(made.values)):
        if root in roots.values():
            trace.fail("the call returns a view of a tensor that it was given, or reaches")
        if root in seen and made.differentiable:
            trace.fail("the call returns several views of one tensor")
        seen[root] = place
    if trace.reasons:
        return None
    asked = [v for _, v in made.effects] + [v for _, effects in made.hosts for _, v in effects] + made.gradients
    graph.set_outputs(list(dict.fromkeys([*made.values, *[v for v in asked if v is not None]])))
    made.raw = graph.copy() if trace.raw else None
    made.guard = trace.first_guards(made.sources)
    _make_program(made, graph)
    return made


def _make_program(made: Compiled, graph: _C._Graph) -> None:
    """Runs the passes, and makes the graph ready to run."""
    incoming = [value for value, _ in made.incoming.values()]
    order = [v for v in graph.inputs() if v not in incoming]
    made.passes = graph.optimize()
    made.graph, made.split = graph, graph.split()
    made.program = graph.program(incoming)
    after = graph.steps()[made.split :]
    used = set(graph.roots([v for step in after for v in step["inputs"]]))
    made.saved = [n for n, root in enumerate(graph.roots(order)) if root in used]
