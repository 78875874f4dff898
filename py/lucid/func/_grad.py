"""`grad`, `vjp`, `jvp` and what is made like them.

The tape is one for all transforms. A transform differentiates by inputs of its own making (`_C._fresh`): a step on the
tape after the caller's tensor, so that inner and outer derivatives do not mix, and inside of `vmap` one per sample.
Forward products are made by differentiating twice: `J v` is the gradient of `Jᵀ u` by `u`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from lucid import _C
from lucid._C import Tensor
from lucid._grad_mode import enable_grad
from lucid.func import _tree

Argnums: TypeAlias = int | tuple[int, ...]


# ---- arguments


def chosen(argnums: Argnums, count: int) -> tuple[int, ...]:
    """The positions that `argnums` names among `count` arguments."""
    if not isinstance(argnums, (int, tuple)):
        raise RuntimeError(f"argnums must be int or Tuple[int, ...], got: {type(argnums)}")
    found = []
    for n in argnums if isinstance(argnums, tuple) else (argnums,):
        if not isinstance(n, int):
            raise RuntimeError(f"argnum must be int, got: {type(n)}")
        if not -count <= n < count:
            raise RuntimeError(f"Got argnum={n}, but only {count} positional inputs")
        found.append(n % count)
    if not found:
        raise RuntimeError("argnums must be non-empty")
    if len(set(found)) != len(found):
        raise RuntimeError(f"argnums elements must be unique, got {argnums}")
    return tuple(found)


class Traced:
    """A call of a function on inputs made to be differentiated by."""

    def __init__(
        self,
        func: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        argnums: Argnums | None,
        has_aux: bool,
        where: str,
    ) -> None:
        self.recording = _C.is_grad_enabled()
        self.where = where
        at = chosen(argnums, len(args)) if argnums is not None else tuple(range(len(args)))
        picked: Any = tuple(args[i] for i in at)
        if isinstance(argnums, int):
            picked = picked[0]
        leaves, self.spec = _tree.flatten(picked)
        for x in leaves:
            if not isinstance(x, Tensor):
                raise ValueError(f"Thing passed to transform API must be Tensor, got {type(x)}")
        with enable_grad():
            self.inputs = [_C._fresh(x) for x in leaves]
            given = list(args)
            made = _tree.unflatten(self.inputs, self.spec)
            for i, x in zip(at, (made,) if isinstance(argnums, int) else made, strict=True):
                given[i] = x
            self.output = func(*given, **kwargs)
        # What goes on from here asks for other gradients; this call's own are asked for by name.
        _C._retire(self.inputs)
        self.aux: Any = None
        if has_aux:
            if not (isinstance(self.output, tuple) and len(self.output) == 2):
                raise RuntimeError(f"{where}: output of function f should be a tuple: (output, aux) if has_aux is True")
            self.output, self.aux = self.output

    def flat_output(self) -> tuple[list[Tensor], _tree.Spec]:
        """The output's leaves, which must be tensors, and how they are nested."""
        leaves, spec = _tree.flatten(self.output)
        if not leaves:
            raise RuntimeError(
                f"{self.where}: Expected f to be a function that has non-empty output (got output = {leaves})"
            )
        for x in leaves:
            if not isinstance(x, Tensor):
                raise RuntimeError(
                    f"{self.where}: expected f(*primals) to return only tensors, got unsupported type {type(x)}"
                )
        return leaves, spec

    def wanted(self, *tensors: Tensor, but: Sequence[Tensor] = ()) -> bool:
        """Is a gradient wanted outside of this call for what these depend on?"""
        own = [*self.inputs, *but]
        return self.recording and any(t.requires_grad for t in tensors) and _C._leads_elsewhere(list(tensors), own)

    def outside(self, tree: Any, but: Sequence[Tensor] = ()) -> Any:
        """Results as the caller sees them: without a history that only this call has made."""

        def one(x: Any) -> Any:
            if not isinstance(x, Tensor):
                return x
            return x if self.wanted(x, but=but) else x.detach()

        return _tree.map_leaves(one, tree)


def pulled(
    outputs: Sequence[Tensor],
    inputs: Sequence[Tensor],
    weights: Sequence[Tensor | None],
    create_graph: bool,
    retain_graph: bool = True,
) -> list[Tensor]:
    """The gradients of the weighted outputs by the inputs; zeros where they do not depend on them."""
    pairs = [(y, w) for y, w in zip(outputs, weights, strict=True) if y.requires_grad]
    found: Sequence[Tensor | None] = [None] * len(inputs)
    if pairs:
        ys, ws = zip(*pairs, strict=True)
        found = _C._grad(list(ys), list(inputs), list(ws), retain_graph, create_graph)
    return [_C.zeros_like(x) if g is None else g for x, g in zip(inputs, found, strict=True)]


# ---- reverse


def grad_and_value(func: Callable[..., Any], argnums: Argnums = 0, has_aux: bool = False) -> Callable[..., Any]:
    """The function that gives the gradient of `func`, a scalar function, by its arguments `argnums`, and its value.

    With `has_aux`, `func` gives `(output, aux)`, and this `(gradient, (output, aux))`. Gradients are nested as the
    arguments are, and can be differentiated again.
    """

    @functools.wraps(func)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        where = "grad_and_value(f)(*args)"
        call = Traced(func, args, kwargs, argnums, has_aux, where)
        output = call.output
        if not isinstance(output, Tensor):
            raise RuntimeError(f"{where}: Expected f(*args) to return a Tensor, got {type(output)}")
        if output.ndim != 0:
            raise RuntimeError(
                f"{where}: Expected f(*args) to return a scalar Tensor, got tensor with {output.ndim} dims. Maybe you "
                f"wanted to use the vjp or jacrev APIs instead?"
            )
        grads = pulled([output], call.inputs, [None], call.wanted(output))
        grad_tree, value = _tree.unflatten(grads, call.spec), call.outside(output)
        return (grad_tree, (value, call.outside(call.aux))) if has_aux else (grad_tree, value)

    return wrapped


def grad(func: Callable[..., Any], argnums: Argnums = 0, has_aux: bool = False) -> Callable[..., Any]:
    """The function that gives the gradient of `func`, a scalar function, by its arguments `argnums`.

    With `has_aux`, `func` gives `(output, aux)`, and this `(gradient, aux)`. `grad(grad(f))` is the second derivative,
    and `vmap(grad(f))` gives gradients per sample.
    """
    both = grad_and_value(func, argnums, has_aux)

    @functools.wraps(func)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        gradient, value = both(*args, **kwargs)
        return (gradient, value[1]) if has_aux else gradient

    return wrapped


def vjp(func: Callable[..., Any], *primals: Any, has_aux: bool = False) -> Any:
    """`func(*primals)`, and the function that takes a cotangent of the output to `cotangent · J`, a tuple like
    `primals`.

    With `has_aux`, `func` gives `(output, aux)`, and `aux` comes third.
    """
    return vjp_by(func, primals, None, has_aux)


def vjp_by(func: Callable[..., Any], primals: tuple[Any, ...], argnums: Argnums | None, has_aux: bool) -> Any:
    """`vjp` by some of the arguments."""
    call = Traced(func, primals, {}, argnums, has_aux, "vjp(f, *primals)")
    leaves, spec = call.flat_output()
    for x in leaves:
        if not (x.is_floating_point() or x.is_complex()):
            raise RuntimeError(
                f"vjp(f, ...): All outputs of f must be floating-point or complex Tensors, got Tensor with dtype "
                f"{x.dtype}"
            )

    def vjp_fn(cotangents: Any, retain_graph: bool = True, create_graph: bool | None = None) -> Any:
        weights, given = _tree.flatten(cotangents)
        if given != spec:
            raise RuntimeError(
                f"Expected pytree structure of cotangents to be the same as pytree structure of outputs to the "
                f"function. cotangents: {given}, primal output: {spec}"
            )
        record = _C.is_grad_enabled() if create_graph is None else create_graph
        elsewhere = record and _C._leads_elsewhere([*leaves, *weights], call.inputs)
        return _tree.unflatten(pulled(leaves, call.inputs, weights, elsewhere, retain_graph), call.spec)

    value = call.outside(call.output)
    return (value, vjp_fn, call.outside(call.aux)) if has_aux else (value, vjp_fn)


# ---- forward


class Pushed:
    """A call whose tangents can be pushed forward: holds `Jᵀ u`, to be differentiated by `u`."""

    def __init__(self, call: Traced) -> None:
        self.call = call
        self.outputs, self.spec = call.flat_output()
        with enable_grad():
            live = [y for y in self.outputs if y.requires_grad]
            self.weights = [_C._fresh(_C.zeros_like(y)) for y in live]
            _C._retire(self.weights)
            found: Sequence[Tensor | None] = [None] * len(call.inputs)
            if live:
                found = _C._grad(live, call.inputs, self.weights, True, True)
        self.pulled = [g if g is not None and g.requires_grad else None for g in found]

    def __call__(self, tangents: Sequence[Tensor], strict: bool = False) -> list[Tensor]:
        """`J v` for each output."""
        call = self.call
        pairs = [(g, v) for g, v in zip(self.pulled, tangents, strict=True) if g is not None]
        found: Sequence[Tensor | None] = [None] * len(self.weights)
        if pairs and self.weights:
            gs, vs = zip(*pairs, strict=True)
            record = _C.is_grad_enabled() and _C._leads_elsewhere(
                [*self.outputs, *tangents], [*call.inputs, *self.weights]
            )
            found = _C._grad(list(gs), self.weights, list(vs), True, record)
        left = iter(found)
        out = []
        for y in self.outputs:
            t = next(left) if y.requires_grad else None
            if t is None and strict:
                raise RuntimeError(
                    "jvp(f, primals, tangents): The output of f is independent of the inputs. This is not allowed with "
                    "strict=True."
                )
            out.append(_C.zeros_like(y) if t is None else t)
        return out


def jvp(func: Callable[..., Any], primals: Any, tangents: Any, *, strict: bool = False, has_aux: bool = False) -> Any:
    """`func(*primals)` and `J · tangents`; both are tuples, nested alike.

    With `strict`, an output that does not depend on the inputs is an error instead of a zero tangent. With `has_aux`,
    `func` gives `(output, aux)`, and `aux` comes third. The cost is that of differentiating twice in reverse.
    """
    where = "jvp(f, primals, tangents)"
    if not isinstance(primals, tuple):
        raise RuntimeError(f"{where}: Expected primals to be a tuple. E.g. it should be valid to call f(*primals).")
    leaves, spec = _tree.flatten(primals)
    given, given_spec = _tree.flatten(tangents)
    if spec != given_spec:
        raise RuntimeError(
            f"{where}: Expected primals and tangents to have the same python structure. For example, if primals is a "
            f"tuple of 3 tensors, tangents also must be. Got primals with structure {spec} and tangents with structure "
            f"{given_spec}"
        )
    _only_tensors(where, leaves, "primals")
    _only_tensors(where, given, "tangents")
    for x, v in zip(leaves, given, strict=True):
        if x.shape != v.shape:
            raise RuntimeError(f"{where}: Expected tensor {x.shape} and its tangent {v.shape} to have the same shape")
    call = Traced(func, primals, {}, None, has_aux, where)
    push = Pushed(call)
    out = _tree.unflatten(push(given, strict), push.spec)
    value = call.outside(call.output)
    return (value, out, call.outside(call.aux)) if has_aux else (value, out)


def _only_tensors(where: str, leaves: list[Any], name: str) -> None:
    if not leaves:
        raise RuntimeError(f"{where}: Expected {name} to contain at least one Tensor.")
    for x in leaves:
        if not isinstance(x, Tensor):
            raise RuntimeError(f"{where}: Expected {name} to only contain Tensors, got {type(x)}")


def linearize(func: Callable[..., Any], *primals: Any) -> tuple[Any, Callable[..., Any]]:
    """`func(*primals)`, and the function that takes tangents to `J · tangents` there, without running `func` again."""
    call = Traced(func, primals, {}, None, False, "linearize(f, *primals)")
    push = Pushed(call)

    def jvp_fn(*tangents: Any) -> Any:
        given, spec = _tree.flatten(tangents)
        if spec != call.spec:
            raise RuntimeError(f"Expected the tangents {spec} to have the same argspec as the primals {call.spec}")
        for i, (t, x) in enumerate(zip(given, call.inputs, strict=True)):
            for what in ("shape", "device", "dtype"):
                if getattr(t, what) != getattr(x, what):
                    raise RuntimeError(
                        f"tangent:{i} with {what} {getattr(t, what)} in flattened pytree doesn't match the {what} "
                        f"{getattr(x, what)} of the corresponding primal."
                    )
        return _tree.unflatten(push(given), push.spec)

    return call.outside(call.output), jvp_fn
