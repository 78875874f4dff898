"""The ops of a backward pass, by the names that PyTorch's dispatcher gives them: what `TorchDispatchMode` shows of it.

Hooks are on every node of the graph for as long as a pass runs. The engine computes the gradients of a node as always;
then the node's rule (`_backward_rules`) runs the ops that PyTorch composes the gradient of, and a node without a rule
is shown as one op, `aten.gelu_backward.default`, whose result is what the engine computed. What the ops of a rule give
is dropped, unless a mode changed an argument or a result of one: then it takes the place of the engine's gradients.
"""

from __future__ import annotations

import contextlib
import functools
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from lucid import _C, Tensor, errors
from lucid.utils import _pytree
from lucid.utils._backward_rules import RULES, signed
from lucid.utils._overloads import overload as overload_of

#: By a node's name without its number, an op that is not called as the node is.
_NAMES = {
    "AdaptiveAvgPool2D": "_adaptive_avg_pool2d_backward",
    "ConstantPadNd": "constant_pad_nd",
    "Dropout": "native_dropout_backward",
    "Embedding": "embedding_dense_backward",
    "LogSoftmax": "_log_softmax_backward_data",
    "Relu": "threshold_backward",
    "ScaledDotProductAttention": "_scaled_dot_product_flash_attention_for_cpu_backward",
    "Softmax": "_softmax_backward_data",
}
#: What such an op takes behind the gradient: names of what was saved. `result` is the node's own result.
_TAKES = {
    "AvgPool2D": ("kernel_size", "stride", "padding", "ceil_mode", "count_include_pad", "divisor_override"),
    "Convolution": ("input", "weight", "stride", "padding", "dilation", "groups"),
    "Elu": ("alpha", "scale", "input_scale", "self"),
    "Embedding": ("indices",),
    "Gelu": ("self",),
    "Hardtanh": ("self", "min_val", "max_val"),
    "LeakyRelu": ("self", "negative_slope"),
    "LogSoftmax": ("result", "dim"),
    "NativeGroupNorm": ("input", "weight", "num_groups"),
    "NativeLayerNorm": ("input", "normalized_shape", "weight", "bias"),
    "NllLoss": ("target", "weight", "reduction", "ignore_index"),
    "Relu": ("result",),
    "Sigmoid": ("result",),
    "Silu": ("self",),
    "Softmax": ("result", "dim"),
    "Tanh": ("result",),
}
#: Whose gradients conjugate what was saved where it is complex, as their rules do not.
_CONJUGATES = frozenset(("Abs", "Cos", "Div", "Exp", "Log", "Mul", "Pow", "Reciprocal", "Sin", "Sqrt"))
#: Steps of calls with several results, whose edges are in another order than their inputs: they are not shown.
_NOT_SHOWN = re.compile("(LinalgLu|LinalgLstsq|TriangularSolve)Backward")
_NODE = re.compile(r"(\w+?)Backward\d+$")
_WORD = re.compile(r"(?<=[a-z])(?=[A-Z])|(?<=[0-9])(?=[A-CE-Z])|(?<=[0-9]D)(?=[A-Z])")


class _Saved:
    """What a rule reads of a node: values by name, `None` where nothing was saved by it."""

    def __init__(self, node: Any, names: Sequence[str]) -> None:
        from lucid.utils import checkpoint

        has = set(dir(node))
        with checkpoint._looking():
            for name in (n.removesuffix("?") for n in names):
                told = name if name == "saved_tensors" else f"_saved_{name}"
                setattr(self, name, getattr(node, told) if told in has else None)

    def __getattr__(self, name: str) -> Any:
        return None


class _Run:
    """Runs the ops of a node before the eyes of the modes that are on, and notes whether one changed anything."""

    def __init__(self, node: str) -> None:
        self.node, self.changed = node, False

    def __call__(self, full: str, *args: Any, **kwargs: Any) -> Any:
        from lucid import ops

        return self.op(full, getattr(ops.aten, full.partition(".")[0]), args, kwargs)

    def whole_name(self) -> str:
        """The op that the node is where no rule shows what it is made of."""
        return _NAMES.get(self.node) or _WORD.sub("_", self.node).lower() + "_backward"

    def engines(self, name: str, result: Any, args: tuple[Any, ...]) -> Any:
        """Shows an op that the engine ran."""

        def function(*own: Any, **named: Any) -> Any:
            if _are_same((own, named), (args, {})):
                return result
            raise errors.NotImplementedError(
                f"aten.{name}: the op of a backward pass runs on the arguments that the mode was shown, not on others"
            )

        return self.op(name, function, args, {})

    def op(self, full: str, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        from lucid.utils._python_dispatch import Op

        made: list[Any] = []

        def call(*own: Any, **named: Any) -> Any:
            self.changed |= not _are_same((own, named), (args, kwargs))
            made.append(function(*own, **named))
            return made[-1]

        name, _, overload = full.partition(".")
        result = Op(name, call, overload or overload_of(name, args, kwargs), lowered=True)(*args, **kwargs)
        self.changed |= not made or result is not made[-1]
        return result


def _are_same(some: Any, others: Any) -> bool:
    def is_same(x: Any, y: Any) -> bool:
        return x is y or not (isinstance(x, Tensor) or isinstance(y, Tensor) or x != y)

    a, b = (_pytree.tree_leaves(x) for x in (some, others))
    return len(a) == len(b) and all(map(is_same, a, b))


def _places(inputs: Sequence[Any], edges: Sequence[Any]) -> list[int]:
    """Which of a node's inputs its edges are of: the engine counts masks and numbers as inputs, too."""
    extra = len(inputs) - len(edges)
    found: list[int] = []
    for i, x in enumerate(inputs):
        k = len(found)
        if x is None and extra > 0 and (k == len(edges) or edges[k][0] is not None):
            extra -= 1
        else:
            found.append(i)
    return found


class _Asking(threading.local):
    """Whether modes are being asked about a backward pass of this thread that does not run yet."""

    on = False


_asking = _Asking()


class Pass:
    """Shows the ops of one backward pass to the dispatch modes that were on when it was asked for.

    Args:
        modes: the modes, the innermost last.
        roots: what is differentiated.
        given: the gradients of the roots, `None` where they are ones.
    """

    def __init__(self, modes: Sequence[Any], roots: Sequence[Tensor], given: Sequence[Any]) -> None:
        self.modes = list(modes)
        self.handles: list[Any] = []
        self.on = False
        # By node and number of its result: the gradient so far where several are added, and what modes made of it.
        self.so_far: dict[tuple[Any, int], Tensor] = {}
        self.altered: dict[tuple[Any, int], Tensor] = {}
        self.saved: dict[Any, _Saved] = {}
        self.roots = [(t, g) for t, g in zip(roots, given, strict=True) if isinstance(t, Tensor)]

    def __enter__(self) -> Pass:
        seen: set[Any] = set()
        waiting = [t.grad_fn for t, _ in self.roots if t.grad_fn is not None]
        while waiting:
            node = waiting.pop()
            if node in seen:
                continue
            seen.add(node)
            waiting += [n for n, _ in node.next_functions if n is not None]
            if _NOT_SHOWN.match(node.name()):
                continue
            self.handles.append(node.register_prehook(functools.partial(self._before, node)))
            self.handles.append(node.register_hook(functools.partial(self._after, node)))
        return self

    def __exit__(self, *_exc: object) -> None:
        for handle in self.handles:
            handle.remove()
        self._off()

    def _off(self) -> None:
        if self.on:
            self.on = False
            for _ in self.modes:
                _C._pop_torch_function_mode()

    def _turn_on(self) -> None:
        """Has the modes see what Python calls from here to the pass's end: custom functions, hooks, checkpoints."""
        if self.on:
            return
        _asking.on = False  # What is differentiated within is a pass of its own.
        there = _C._torch_function_modes()
        self.modes = [m for m in self.modes if not any(m is other for other in there)]
        for mode in self.modes:
            _C._push_torch_function_mode(mode)
        self.on = True
        for root, given in self.roots:
            if given is None:
                run = _Run("root")
                with _C.DisableTorchFunction():
                    bare = root.detach()
                made = run("ones_like", bare, memory_format=_C.preserve_format)
                self.so_far[root.grad_fn, root.output_nr] = made
                if run.changed:
                    self.altered[root.grad_fn, root.output_nr] = made

    def _before(self, node: Any, grads: tuple[Any, ...]) -> Any:
        self._turn_on()
        changed = [self.altered.pop((node, i), g) for i, g in enumerate(grads)]
        for i, _ in enumerate(grads):
            self.so_far.pop((node, i), None)
        name = _NODE.match(node.name())
        if node.name().endswith("AccumulateGrad"):
            self._accumulate(node.variable, changed)
        elif name is not None:
            names = RULES[name[1]][0] if name[1] in RULES else _TAKES.get(name[1], ())
            self.saved[node] = _Saved(node, names)
        return None if all(a is b for a, b in zip(changed, grads, strict=True)) else tuple(changed)

    def _accumulate(self, leaf: Tensor, grads: list[Any]) -> None:
        if not grads or grads[0] is None:
            return
        run, grad, old = _Run("AccumulateGrad"), grads[0], leaf.grad
        if grad.layout != leaf.layout or leaf.layout != _C.strided:
            return
        if old is not None:
            # The engine adds: the op is shown on what it would be called with, and not run a second time.
            name = "add.Tensor" if _C.is_grad_enabled() else "add_.Tensor"
            run.engines(name, old, (old, grad))
        elif not _C.is_grad_enabled() and grad.stride() == leaf.stride():
            made = run("detach", grad)
            grads[0] = made if run.changed else grad
        elif not _C.is_grad_enabled():
            made = run("new_empty_strided", grad, tuple(leaf.shape), leaf.stride())
            made = run("copy_", made, grad)
            grads[0] = made if run.changed else grad

    def _after(self, node: Any, inputs: tuple[Any, ...], outputs: tuple[Any, ...]) -> Any:
        if not self.on:
            return None
        made = list(inputs)
        name, saved = _NODE.match(node.name()), self.saved.pop(node, None)
        if name is not None and saved is not None and any(x is not None for x in inputs):
            run, places = _Run(name[1]), _places(inputs, node.next_functions)
            given = [inputs[i] for i in places]
            own = self._ruled(run, saved, outputs, given)
            own = self._whole(run, saved, outputs, given) if own is NotImplemented else own
            for i, x, g in zip(places, given, own, strict=False):
                g = self._summed(run, g, x)
                made[i] = g if run.changed and g is not None else x
        self._add_up(node, made)
        return None if all(a is b for a, b in zip(made, inputs, strict=True)) else tuple(made)

    def _ruled(self, run: _Run, saved: _Saved, outputs: tuple[Any, ...], inputs: list[Any]) -> Any:
        if run.node not in RULES or len(outputs) != 1 or outputs[0] is None or not any(x is not None for x in inputs):
            return NotImplemented
        if outputs[0].is_complex() and run.node in _CONJUGATES:
            return NotImplemented
        names, rule = RULES[run.node]
        if any(getattr(saved, name) is None for name in names if not name.endswith("?")):
            return NotImplemented
        return rule(run, saved, outputs, inputs)

    def _whole(self, run: _Run, saved: _Saved, outputs: tuple[Any, ...], inputs: list[Any]) -> Any:
        """The node as one op."""
        composite = run.node in ("UnsafeView", "Squeeze") and len(inputs) > 1
        if composite:
            run.node = "Linear" if len(inputs) > 2 else "Matmul"
        takes = [getattr(saved, key) for key in _TAKES.get(run.node, ())]
        takes = [signed(x) if type(x) is int else x for x in takes]
        if "result" in _TAKES.get(run.node, ()) and isinstance(takes[0], Tensor):
            takes[0] = run("detach", takes[0])
        args = (*(g for g in outputs if g is not None), *takes)
        result = inputs[0] if len(inputs) == 1 else tuple(inputs)
        given = run.engines(run.whole_name(), result, args)
        return given if isinstance(given, (tuple, list)) else (given,)

    def _summed(self, run: _Run, grad: Any, engine: Tensor | None) -> Any:
        """The gradient without what broadcasting added."""
        if engine is None or not isinstance(grad, Tensor) or grad.shape == engine.shape:
            return grad
        extra = grad.dim() - engine.dim()
        if extra < 0 or any(b not in (1, a) for a, b in zip(grad.shape[extra:], engine.shape, strict=True)):
            return grad
        dims = [i for i in range(grad.dim()) if i < extra or (engine.shape[i - extra] == 1 != grad.shape[i])]
        if not dims:
            return grad
        grad = run("sum.dim_IntList", grad, dims, True)
        return run("view", grad, tuple(engine.shape)) if extra else grad

    def _add_up(self, node: Any, made: list[Any]) -> None:
        """Shows the sums of gradients that come to the same node."""
        edges = node.next_functions
        for i, (place, nr) in zip(_places(made, edges), edges, strict=False):
            grad = made[i]
            if place is None or grad is None or place._is_reached() is False:
                continue
            key = (place, nr)
            if key in self.so_far and self.so_far[key].shape == grad.shape:
                run = _Run("add")
                grad = run("add.Tensor", self.so_far[key], grad)
                if run.changed or key in self.altered:
                    self.altered[key] = grad
            self.so_far[key] = grad


@contextlib.contextmanager
def shown(mode: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[None]:
    """A context of a call of `backward` or `grad`, about which a mode is asked and off meanwhile."""
    if _asking.on:
        # An outer mode is asked about the pass of an inner one, which shows it to both.
        yield
        return
    first = args[0] if args else kwargs.get("outputs", kwargs.get("tensors"))
    roots = [first] if isinstance(first, Tensor) else list(first) if isinstance(first, (tuple, list)) else []
    place = 2 if name == "grad" else 1
    names = ("grad_outputs", "grad_tensors", "gradient")
    given = args[place] if len(args) > place else next((kwargs[n] for n in names if kwargs.get(n) is not None), None)
    weights = list(given) if isinstance(given, (tuple, list)) else [given]
    weights += [None] * (len(roots) - len(weights))
    around = [m for m in _C._torch_function_modes() if getattr(m, "_shows_backward", False)]
    _asking.on = True
    try:
        with Pass([*around, mode], roots, weights[: len(roots)]):
            yield
    finally:
        _asking.on = False
