"""`grad`, `vjp`, `jvp` and what is made like them.

The tape is one for all transforms. A transform differentiates by inputs of its own making (`_C._fresh`): a step on the
tape after the caller's tensor, so that inner and outer derivatives do not mix, and inside of `vmap` one per sample.
Forward products are made by tensors that carry tangents, at levels that nest.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from lucid import _C
from lucid._C import Tensor
from lucid._grad_mode import enable_grad, inference_mode
from lucid.autograd.forward_ad import dual_of as make_dual
from lucid.utils import _pytree

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


def flat_output(output: Any, where: str) -> tuple[list[Tensor], _pytree.TreeSpec]:
    """The leaves of a function's output, which must be tensors, and how they are nested."""
    leaves, spec = _pytree.tree_flatten(output)
    if not leaves:
        raise RuntimeError(f"{where}: Expected f to be a function that has non-empty output (got output = {leaves})")
    for x in leaves:
        if not isinstance(x, Tensor):
            raise RuntimeError(f"{where}: expected f(*primals) to return only tensors, got unsupported type {type(x)}")
    return leaves, spec


def _own(inputs: list[Tensor]) -> list[Tensor]:
    """Inputs that the transform at work has made, which its function may write."""
    for x in inputs:
        _C._adopt(x)
    return inputs


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
        leaves, self.spec = _pytree.tree_flatten(picked)
        for x in leaves:
            if not isinstance(x, Tensor):
                raise ValueError(f"Thing passed to transform API must be Tensor, got {type(x)}")
        # A transform records in inference mode, too.
        with inference_mode(False) if _C.is_inference_mode_enabled() else enable_grad():
            former = _C._enter_transform(True)
            try:
                self.inputs = _own([_C._fresh(x) for x in leaves])
                given = list(args)
                made = _pytree.tree_unflatten(self.inputs, self.spec)
                for i, x in zip(at, (made,) if isinstance(argnums, int) else made, strict=True):
                    given[i] = x
                self.output = func(*given, **kwargs)
            finally:
                _C._leave_transform(former)
        # What goes on from here asks for other gradients; this call's own are asked for by name.
        _C._retire(self.inputs)
        self.aux: Any = None
        if has_aux:
            if not (isinstance(self.output, tuple) and len(self.output) == 2):
                raise RuntimeError(f"{where}: output of function f should be a tuple: (output, aux) if has_aux is True")
            self.output, self.aux = self.output

    def flat_output(self) -> tuple[list[Tensor], _pytree.TreeSpec]:
        """The output's leaves, which must be tensors, and how they are nested."""
        return flat_output(self.output, self.where)

    def wanted(self, *tensors: Tensor) -> bool:
        """Is a gradient wanted outside of this call for what these, or their tangents, depend on?"""
        return self.recording and any(t.requires_grad for t in tensors) and _C._leads_elsewhere(list(tensors), True)

    def kept(self, x: Tensor) -> bool:
        """Has this result a history that others than this call ask for?"""
        return self.recording and x.requires_grad and _C._leads_elsewhere([x])

    def outside(self, tree: Any) -> Any:
        """Results as the caller sees them: without a history that only this call has made."""

        def one(x: Any) -> Any:
            if not isinstance(x, Tensor):
                return x
            return x if self.kept(x) else _C._cut(x)

        return _pytree.tree_map(one, tree)


def pulled(
    outputs: Sequence[Tensor],
    inputs: Sequence[Tensor],
    weights: Sequence[Tensor | None],
    create_graph: bool,
    retain_graph: bool = True,
) -> list[Tensor]:
    """The gradients of the weighted outputs by the inputs; zeros where they do not depend on them."""

    def leads(y: Tensor) -> bool:
        """Has it a history? A view that was made while nothing was recorded requires a gradient and has none."""
        return y.requires_grad and (y.grad_fn is not None or any(y is x for x in inputs))

    pairs = [(y, w) for y, w in zip(outputs, weights, strict=True) if leads(y)]
    found: Sequence[Tensor | None] = [None] * len(inputs)
    if pairs:
        ys, ws = zip(*pairs, strict=True)
        found = _C._grad(list(ys), list(inputs), list(ws), retain_graph, create_graph, True)
    return [_C.zeros_like(x) if g is None else g for x, g in zip(inputs, found, strict=True)]


# ---- reverse


def grad_and_value(func: Callable[..., Any], argnums: Argnums = 0, has_aux: bool = False) -> Callable[..., Any]:
    """The function that gives the gradient of `func`, a scalar function, by its arguments `argnums`, and its value.

    With `has_aux`, `func` gives `(output, aux)`, and this `(gradient, (output, aux))`. Gradients are nested as the
    arguments are, and can be differentiated again.

    Args:
        func (Callable[..., Any]): a function that returns a 0-d tensor.
        argnums (int or tuple of ints, default: 0): which arguments are differentiated with respect to.
        has_aux (bool, default: False): `func` returns a pair of the value and other results.

    Returns:
        callable: returns the gradient and the value.

    Raises:
        RuntimeError: the output is no 0-d floating tensor, or `argnums` is out of range.

    Example:
        >>> lucid.func.grad_and_value(lambda x: x**2)(lucid.tensor(3.0))
        (tensor(6.), tensor(9.))
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
        grads = call.outside(pulled([output], call.inputs, [None], call.wanted(output)))
        grad_tree, value = _pytree.tree_unflatten(grads, call.spec), call.outside(output)
        return (grad_tree, (value, call.outside(call.aux))) if has_aux else (grad_tree, value)

    return wrapped


def grad(func: Callable[..., Any], argnums: Argnums = 0, has_aux: bool = False) -> Callable[..., Any]:
    """The function that gives the gradient of `func`, a scalar function, by its arguments `argnums`.

    With `has_aux`, `func` gives `(output, aux)`, and this `(gradient, aux)`. `grad(grad(f))` is the second derivative,
    and `vmap(grad(f))` gives gradients per sample.

    Args:
        func (Callable[..., Any]): a function that returns a 0-d tensor.
        argnums (int or tuple of ints, default: 0): which arguments are differentiated with respect to.
        has_aux (bool, default: False): `func` returns a pair of the value and other results.

    Returns:
        callable: returns the gradient, nested as the arguments.

    Example:
        >>> lucid.func.grad(lambda x: x**2)(lucid.tensor(3.0))
        tensor(6.)
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

    Args:
        func (Callable[..., Any]): a function of tensors.
        *primals (object): its arguments.
        has_aux (bool, default: False): `func` returns a pair of the output and other results.

    Returns:
        tuple: the output, and the function of a cotangent.

    Example:
        >>> y, pull = lucid.func.vjp(lambda x: x**2, lucid.tensor([1.0, 2.0]))
        >>> pull(lucid.ones(2))
        (tensor([2., 4.]),)
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
        weights, given = _pytree.tree_flatten(cotangents)
        if given != spec:
            raise RuntimeError(
                f"Expected pytree structure of cotangents to be the same as pytree structure of outputs to the "
                f"function. cotangents: {given}, primal output: {spec}"
            )
        record = _C.is_grad_enabled() if create_graph is None else create_graph
        elsewhere = record and _C._leads_elsewhere([*leaves, *weights], True)
        found = pulled(leaves, call.inputs, weights, elsewhere, retain_graph)
        return _pytree.tree_unflatten([g if _C._leads_elsewhere([g]) else _C._cut(g) for g in found], call.spec)

    value = call.outside(call.output)
    return (value, vjp_fn, call.outside(call.aux)) if has_aux else (value, vjp_fn)


# ---- forward


class Transposed:
    """The linear map from `inputs` to `outputs`, as the tape has it: holds `Jᵀ u`, to be differentiated by `u`."""

    def __init__(self, outputs: Sequence[Tensor], inputs: Sequence[Tensor]) -> None:
        self.outputs, self.inputs = outputs, inputs
        with enable_grad():
            live = [y for y in outputs if y.requires_grad]
            self.weights = [_C._fresh(_C.zeros_like(y)) for y in live]
            _C._retire(self.weights)
            found: Sequence[Tensor | None] = [None] * len(inputs)
            if live:
                found = _C._grad(live, list(inputs), self.weights, True, True)
        self.pulled = [g if g is not None and g.requires_grad else None for g in found]

    def __call__(self, vectors: Sequence[Tensor]) -> list[Tensor]:
        """`J v` for each output."""
        pairs = [(g, v) for g, v in zip(self.pulled, vectors, strict=True) if g is not None]
        found: Sequence[Tensor | None] = [None] * len(self.weights)
        if pairs and self.weights:
            gs, vs = zip(*pairs, strict=True)
            record = _C.is_grad_enabled() and _C._leads_elsewhere([*self.outputs, *vectors], True)
            found = _C._grad(list(gs), self.weights, list(vs), True, record)
        left = iter(found)
        out = []
        for y in self.outputs:
            t = next(left) if y.requires_grad else None
            if t is not None and t.requires_grad and not _C._leads_elsewhere([t]):
                t = _C._cut(t)
            out.append(_C.zeros_like(y) if t is None else t)
        return out


class Pushed:
    """A call of a function on inputs that carry tangents, at a level of its own."""

    def __init__(
        self,
        func: Callable[..., Any],
        primals: Any,
        tangents: Sequence[Tensor],
        where: str,
        strict: bool = False,
        has_aux: bool = False,
        recorded: bool = False,
    ) -> None:
        leaves, spec = _pytree.tree_flatten(primals)
        level, former = _C._open_level(recorded), _C._enter_transform(False)
        try:
            duals = _own([make_dual(x, v) for x, v in zip(leaves, tangents, strict=True)])
            output, aux = func(*_pytree.tree_unflatten(duals, spec)), None
            if has_aux:
                if not (isinstance(output, tuple) and len(output) == 2):
                    raise RuntimeError(
                        f"{where}: output of function f should be a tuple: (output, aux) if has_aux is True"
                    )
                output, aux = output
            outputs, self.spec = flat_output(output, where)
            self.aux = _pytree.tree_map(lambda x: _C._unpack_dual(x)[0] if isinstance(x, Tensor) else x, aux)
            self.values: list[Tensor] = []
            self.tangents: list[Tensor] = []
            for y in outputs:
                value, v = _C._unpack_dual(y)
                if v is None and strict:
                    raise RuntimeError(
                        "jvp(f, primals, tangents): The output of f is independent of the inputs. This is not allowed "
                        "with strict=True."
                    )
                self.values.append(value)
                self.tangents.append(_C.zeros_like(value) if v is None else v)
        finally:
            _C._leave_transform(former)
            _C._close_level(level)
        # A derivative in reverse within the call has left its history in them, which nobody else asks for.
        self.tangents = [v if not v.requires_grad or _C._leads_elsewhere([v]) else _C._cut(v) for v in self.tangents]
        if _C.is_inference_mode_enabled():
            # What a transform makes is no inference tensor.
            self.values, self.tangents = ([_C._cut(t) for t in made] for made in (self.values, self.tangents))


def jvp(func: Callable[..., Any], primals: Any, tangents: Any, *, strict: bool = False, has_aux: bool = False) -> Any:
    """`func(*primals)` and `J · tangents`; both are tuples, nested alike.

    With `strict`, an output that does not depend on the inputs is an error instead of a zero tangent. With `has_aux`,
    `func` gives `(output, aux)`, and `aux` comes third. Runs in forward mode (`lucid.autograd.forward_ad`), at a level
    of its own, so that calls nest; a custom function needs a `jvp`.

    Args:
        func (Callable[..., Any]): a function of tensors.
        primals (tuple): its arguments.
        tangents (tuple): the tangents of the arguments, nested alike.
        strict (bool, default: False): raises an error where an output does not depend on the inputs.
        has_aux (bool, default: False): `func` returns a pair of the output and other results.

    Returns:
        tuple: the output and its tangent.

    Raises:
        RuntimeError: the tangents do not fit the arguments.

    Example:
        >>> lucid.func.jvp(lambda x: x**2, (lucid.tensor([3.0]),), (lucid.ones(1),))
        (tensor([9.]), tensor([6.]))
    """
    where = "jvp(f, primals, tangents)"
    if not isinstance(primals, tuple):
        raise RuntimeError(f"{where}: Expected primals to be a tuple. E.g. it should be valid to call f(*primals).")
    leaves, spec = _pytree.tree_flatten(primals)
    given, given_spec = _pytree.tree_flatten(tangents)
    if spec != given_spec:
        raise RuntimeError(
            f"{where}: Expected primals and tangents to have the same python structure. For example, if primals is a "
            f"tuple of 3 tensors, tangents also must be. Got primals with structure {spec} and tangents with structure "
            f"{given_spec}"
        )
    _only_tensors(where, leaves, "primals")
    _only_tensors(where, given, "tangents")
    call = Pushed(func, primals, given, where, strict, has_aux)
    out = _pytree.tree_unflatten(call.values, call.spec), _pytree.tree_unflatten(call.tangents, call.spec)
    return (*out, call.aux) if has_aux else out


def _only_tensors(where: str, leaves: list[Any], name: str) -> None:
    if not leaves:
        raise RuntimeError(f"{where}: Expected {name} to contain at least one Tensor.")
    for x in leaves:
        if not isinstance(x, Tensor):
            raise RuntimeError(f"{where}: Expected {name} to only contain Tensors, got {type(x)}")


class Linear:
    """A function's derivative at a point as a linear map: made of one run in forward mode that the tape records."""

    def __init__(self, func: Callable[..., Any], primals: Any, where: str, has_aux: bool = False) -> None:
        self.recording = _C.is_grad_enabled()
        leaves, self.in_spec = _pytree.tree_flatten(primals)
        for x in leaves:
            if not isinstance(x, Tensor):
                raise ValueError(f"Thing passed to transform API must be Tensor, got {type(x)}")
        with enable_grad():
            self.vectors = [_C._fresh(_C.zeros_like(x)) for x in leaves]
            # The function may write its arguments, and with them what they carry: not the vectors themselves.
            call = Pushed(func, primals, [v.clone() for v in self.vectors], where, False, has_aux, True)
            _C._retire(self.vectors)
        self.spec, self.aux, self.values = call.spec, self.outside(call.aux), self.outside(call.values)
        self.push = Transposed(call.tangents, self.vectors)

    def outside(self, tree: Any) -> Any:
        """Results as the caller sees them: recorded only where the caller records."""
        return _pytree.tree_map(lambda x: _C._cut(x) if isinstance(x, Tensor) and not self.recording else x, tree)


def linearize(func: Callable[..., Any], *primals: Any) -> tuple[Any, Callable[..., Any]]:
    """`func(*primals)`, and the function that takes tangents to `J · tangents` there, without running `func` again.

    Args:
        func (Callable[..., Any]): a function of tensors.
        *primals (object): its arguments.

    Returns:
        tuple: the output, and the function of tangents.

    Raises:
        RuntimeError: the outputs are no tensors.

    Example:
        >>> y, push = lucid.func.linearize(lambda x: x**2, lucid.tensor([3.0]))
        >>> push(lucid.ones(1))
        tensor([6.])
    """
    linear = Linear(func, primals, "linearize(f, *primals)")
    leaves = _pytree.tree_leaves(primals)
    kinds = [[(what, getattr(x, what)) for what in ("shape", "device", "dtype")] for x in leaves]

    def jvp_fn(*tangents: Any) -> Any:
        given, spec = _pytree.tree_flatten(tangents)
        if spec != linear.in_spec:
            raise RuntimeError(f"Expected the tangents {spec} to have the same argspec as the primals {linear.in_spec}")
        for i, (t, kind) in enumerate(zip(given, kinds, strict=True)):
            for what, wanted in kind:
                if getattr(t, what) != wanted:
                    raise RuntimeError(
                        f"tangent:{i} with {what} {getattr(t, what)} in flattened pytree doesn't match the {what} "
                        f"{wanted} of the corresponding primal."
                    )
        return _pytree.tree_unflatten(linear.push(given), linear.spec)

    return _pytree.tree_unflatten(linear.values, linear.spec), jvp_fn
