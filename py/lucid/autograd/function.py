"""Functions with gradients of their own.

A `Function` says how a result is computed and how its gradient is; `apply` puts it on the tape as one node.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any, TypeVar, cast
from weakref import WeakValueDictionary

from lucid import _C
from lucid._C import Tensor
from lucid._C import dtype as DType
from lucid._grad_mode import no_grad
from lucid._warnings import warn
from lucid.autograd import _forward, _vmap
from lucid.autograd._vmap import VmapInfo

F = TypeVar("F", bound=Callable[..., Any])

_bare = threading.local()
"""How many functions' `forward` this thread is in that no transform sees into."""


class FunctionCtx:
    """What `forward` hands to `backward`: saved tensors, and whatever attributes are set on it."""

    needs_input_grad: tuple[bool, ...] = ()
    """Which of `apply`'s arguments need a gradient."""

    _to_save: tuple[Tensor | None, ...] = ()
    _for_forward: tuple[Tensor | None, ...] | None = None
    _saved: Any = None
    _roles: dict[int, str] | None = None
    _dirty: tuple[Tensor, ...] = ()
    _non_differentiable: tuple[Tensor, ...] = ()
    _materialize = True
    _grad_dtypes: tuple[DType | None, ...] | None = None

    def save_for_backward(self, *tensors: Tensor | None) -> None:
        """Saves tensors (or `None`) for `backward`, which finds them as `saved_tensors`.

        They may be inputs, results or others. In-place writes to them are noticed. Other objects: set attributes.
        """
        for i, t in enumerate(tensors):
            if t is not None and not isinstance(t, Tensor):
                raise TypeError(
                    f"save_for_backward can only save variables, but argument {i} is of type {type(t).__name__}"
                )
        self._to_save = tensors

    def save_for_forward(self, *tensors: Tensor | None) -> None:
        """Saves tensors (or `None`) for `jvp`, which finds them as `saved_tensors`. Kept no longer than that call."""
        for i, t in enumerate(tensors):
            if t is not None and not isinstance(t, Tensor):
                got = type(t).__name__
                raise TypeError(f"save_for_forward can only save variables, but argument {i} is of type {got}")
        self._for_forward = tensors

    def mark_dirty(self, *args: Tensor) -> None:
        """Says which inputs `forward` has written in place. They must be among its results."""
        self._dirty = args

    def mark_non_differentiable(self, *args: Tensor) -> None:
        """Says which results pass no gradient. `backward` still gets an argument for each."""
        self._non_differentiable = args

    def mark_shared_storage(self, *pairs: Any) -> None:
        """Does nothing: that a result shows an argument's memory is seen without it. Deprecated."""
        warn("`mark_shared_storage` is deprecated. Tensors that share storage are seen without it.", FutureWarning)

    def set_output_grad_dtype(self, *dtypes: DType | None) -> None:
        """Says in which dtype `backward` gets the gradient of each result: by default the result's own, with `None`
        whatever it has. Results that pass no gradient have `None`. Once.
        """
        if self._grad_dtypes is not None:
            raise RuntimeError("set_output_grad_dtype can only be called once")
        self._grad_dtypes = dtypes

    def set_materialize_grads(self, value: bool) -> None:
        """With `False`, gradients of results that nothing used are `None` instead of zeros."""
        if not isinstance(value, bool):
            raise TypeError(f"set_materialize_grads(): argument 'value' must be bool, not {type(value).__name__}")
        self._materialize = value

    @property
    def saved_tensors(self) -> tuple[Tensor | None, ...]:
        """What `save_for_backward` saved; in `jvp`, what `save_for_forward` did."""
        if self._for_forward is not None:
            return self._for_forward
        if self._saved is None:
            return self._to_save
        saved: tuple[Tensor | None, ...] = self._saved.get()
        return saved

    @property
    def saved_variables(self) -> tuple[Tensor | None, ...]:
        """`saved_tensors` by its old name, which is deprecated."""
        warn("'saved_variables' is deprecated; use 'saved_tensors'", DeprecationWarning)
        return self.saved_tensors


_CONTEXTS: WeakValueDictionary[int, FunctionCtx] = WeakValueDictionary()
"""The contexts of the functions on the tape, by the addresses of their nodes, which keep them."""


def context_of(address: int) -> FunctionCtx | None:
    """The context of a node: what is set on it is seen on `grad_fn` too."""
    return _CONTEXTS.get(address)


class _FunctionMeta(type):
    """Gives each function the class of its contexts, named as in PyTorch."""

    def __init__(cls, name: str, bases: tuple[type, ...], attrs: dict[str, Any]) -> None:
        super().__init__(name, bases, attrs)
        cls._backward_cls = type(f"{name}Backward", (FunctionCtx,), {"_forward_cls": cls})


class Function(metaclass=_FunctionMeta):
    """Base class of functions with a gradient of their own, called by `apply`.

    A subclass has static methods `forward(ctx, *args)` and `backward(ctx, *grad_outputs)`, or `forward(*args)`,
    `setup_context(ctx, inputs, output)` and `backward`. `forward` runs unrecorded and gives a tensor or a tuple, of
    which tensors are results on the tape. `backward` gets one gradient per result and gives one per argument of
    `forward`, None where there is none; it is recorded with `create_graph`, so that its gradient can be taken again.

    Args:
        args (object): ignored, with a warning: a function is never made, its static methods are called by the class.
        kwargs (object): ignored likewise.

    Example:
        >>> class Square(lucid.autograd.Function):
        ...     @staticmethod
        ...     def forward(ctx, x):
        ...         ctx.save_for_backward(x)
        ...         return x * x
        ...
        ...     @staticmethod
        ...     def backward(ctx, grad):
        ...         (x,) = ctx.saved_tensors
        ...         return 2 * x * grad
        >>> x = lucid.tensor(3.0, requires_grad=True)
        >>> Square.apply(x).backward()
        >>> x.grad
        tensor(6.)
    """

    _backward_cls: type[FunctionCtx]

    generate_vmap_rule = False
    """With `True`, the function runs inside of `vmap` by its own `forward`, `setup_context` and `backward`."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        warn(
            f"{type(self)} should not be instantiated. Methods on autograd functions are all static, so you should "
            "invoke them on the class itself.",
            DeprecationWarning,
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("Legacy autograd function with non-static forward method is deprecated; use apply()")

    @staticmethod
    def forward(*args: Any, **kwargs: Any) -> Any:
        """Computes the result. To be defined by the subclass."""
        raise NotImplementedError("You must implement the forward function for custom autograd.Function.")

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        """Saves what `backward` needs, where `forward` takes no `ctx`."""
        raise NotImplementedError("setup_context is not implemented.")

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        """Computes the gradients of the arguments. To be defined by the subclass, unless no gradient is asked for."""
        raise NotImplementedError(
            "You must implement either the backward or vjp method for your custom autograd.Function to use it with "
            "backward mode AD."
        )

    vjp = backward

    @staticmethod
    def jvp(ctx: Any, *grad_inputs: Any) -> Any:
        """Computes the results' tangents from those of the arguments, in forward mode (`lucid.autograd.forward_ad`).

        Called after `forward` where an argument has a tangent. An argument without one has zeros, or `None` where it is
        no tensor or after `set_materialize_grads(False)`. Gives one tangent per result, `None` for a result that is not
        differentiable. Of an argument that `forward` wrote in place, the tangent must be written in place. To be
        defined by the subclass, unless it is not used with dual tensors.
        """
        raise NotImplementedError(
            "You must implement the jvp function for custom autograd.Function to use it with forward mode AD."
        )

    @staticmethod
    def vmap(info: VmapInfo, in_dims: tuple[int | None, ...], *args: Any) -> Any:
        """Computes the results of all samples at once: `(output, out_dims)`.

        `args` are the arguments outside of `vmap`; `in_dims` says for each which dimension counts the samples, `None`
        where all samples share it. `info` has `batch_size` and `randomness`. To be defined by the subclass, unless it
        sets `generate_vmap_rule` or is not used inside of `vmap`.
        """
        raise NotImplementedError("To use autograd.Function with vmap, you must override the vmap staticmethod.")

    @classmethod
    def _gradients(cls, ctx: Any, *grads: Any) -> Any:
        """Calls what the subclass has defined, `backward` or `vjp`."""
        return (cls.backward if cls.backward is not Function.backward else cls.vjp)(ctx, *grads)

    @classmethod
    def apply(cls, *args: Any, **kwargs: Any) -> Any:
        """Calls `forward` and puts the result on the tape."""
        old = cls.setup_context is Function.setup_context
        if old and _C._is_transformed() and not getattr(_bare, "depth", 0):
            raise RuntimeError(
                "In order to use an autograd.Function with functorch transforms (vmap, grad, jvp, jacrev, ...), it "
                f"must override the setup_context staticmethod; {cls.__name__} does not."
            )
        level = _vmap.level_of(args)
        if level is not None:
            return _vmap.call(cls, level, args, kwargs)
        ctx = cls._backward_cls()
        ctx.needs_input_grad = tuple(isinstance(a, Tensor) and a.requires_grad for a in args)
        if _C._forward_active():
            return _forward.applied(cls, ctx, args, kwargs)
        return cls._applied(ctx, args, kwargs)

    @classmethod
    def _unseen(cls, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """`forward` inside of a transform, which sees nothing of what is in it."""
        _bare.depth = getattr(_bare, "depth", 0) + 1
        try:
            return cls.forward(*args, **kwargs)
        finally:
            _bare.depth -= 1

    @classmethod
    def _applied(cls, ctx: FunctionCtx, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        with no_grad():
            if cls.setup_context is not Function.setup_context:
                output = cls._unseen(args, kwargs) if _C._is_transformed() else cls.forward(*args, **kwargs)
                cls.setup_context(ctx, args, output)
            else:
                output = cls.forward(ctx, *args, **kwargs)
        single = not isinstance(output, tuple)
        outputs = [output] if single else list(output)
        _record(cls, ctx, args, outputs)
        return outputs[0] if single else tuple(outputs)


def _record(cls: type[Function], ctx: FunctionCtx, args: tuple[Any, ...], outputs: list[Any]) -> None:
    """Puts the tensors among `outputs` on the tape, replacing those that cannot be results themselves."""
    at = [i for i, a in enumerate(args) if isinstance(a, Tensor)]
    inputs = [args[i] for i in at]
    dirty = _written(ctx, inputs)
    if not dirty <= {id(o) for o in outputs}:
        raise RuntimeError(
            "Some elements marked as dirty during the forward method were not returned as output. The inputs that are "
            f"modified inplace must all be outputs of the Function, {cls.__name__}."
        )
    still = {id(t) for t in ctx._non_differentiable}
    results: list[Tensor] = []
    passes: list[bool] = []
    several = sum(isinstance(o, Tensor) for o in outputs) > 1
    recording = _C.is_grad_enabled() and any(t.requires_grad for t in inputs)
    if recording:
        for t in ctx._non_differentiable:
            if not isinstance(t, Tensor):
                got = type(t).__name__
                raise RuntimeError(f"mark_non_differentiable only accepts variable arguments, but got {got}")
    for i, out in enumerate(outputs):
        if not isinstance(out, Tensor):
            continue
        fixed = id(out) in still
        written = id(out) in dirty
        if (fixed or not recording) and out.requires_grad and any(out is t for t in inputs):
            # An input that no gradient passes is given back cut off.
            out = outputs[i] = out.detach()
            written = False
        if written and out.requires_grad and out.is_leaf and _C.is_grad_enabled():
            raise RuntimeError("a leaf Variable that requires grad is being used in an in-place operation.")
        if written or out._is_view() or any(out is t for t in inputs):
            # The result must be a tensor of its own, on the same storage.
            given = any(out is t for t in inputs)
            alias = out.detach() if written else _C._custom_view(out, given, several)
            if not written:
                outputs[i] = alias
            elif several and out._is_view() and recording:
                raise RuntimeError(
                    "If your Function modifies inplace an input that is a view of another Tensor, your Function cannot "
                    "return more than one Tensor. This is not supported by the current autograd engine. You should "
                    "either make sure the input is not a view (using .clone() for example) or make your Function only "
                    "return one Tensor (potentially splitting it into two Functions: one doing the inplace that "
                    "returns a single Tensor and a second one that does the other operations)."
                )
            if written or not given:
                ctx._to_save = tuple(alias if t is out else t for t in ctx._to_save)
            out = alias
        results.append(out)
        passes.append(not fixed)
        if ctx._roles is not None:
            ctx._roles[i] = "written" if written else "fixed" if fixed else "free"
    # Results that are no tensors have a gradient, too: None.
    places = [i for i, o in enumerate(outputs) if isinstance(o, Tensor)]
    dtypes = None if ctx._grad_dtypes is None else _declared(ctx._grad_dtypes, outputs, places, passes)
    backward = functools.partial(_backward, cls, ctx, at, len(args), places, len(outputs))
    ctx._saved = _C._record_function(
        f"{cls.__name__}Backward",
        inputs,
        results,
        [not p for p in passes],
        ctx._to_save,
        ctx._materialize,
        backward,
        dtypes,
    )
    if ctx._saved is None:
        return
    _CONTEXTS[ctx._saved.address()] = ctx
    ctx._to_save = ()
    tensors = (o for o in outputs if isinstance(o, Tensor))
    for out, result in zip(tensors, results, strict=True):
        if id(out) in dirty:
            _C._record_dirty(out, result)
    ctx._dirty = ctx._non_differentiable = ()


def _declared(dtypes: tuple[Any, ...], outputs: list[Any], places: list[int], passes: list[bool]) -> list[DType | None]:
    """What a function declared of its tensors' gradients."""
    if len(dtypes) != len(outputs):
        raise RuntimeError(
            "set_output_grad_dtype expected the number of declarations to match the number of outputs: the Function "
            f"returned {len(outputs)} values but {len(dtypes)} declarations were provided"
        )
    differentiable = {
        i
        for i, passed in zip(places, passes, strict=True)
        if passed and (outputs[i].is_floating_point() or outputs[i].is_complex())
    }
    for i, dtype in enumerate(dtypes):
        if dtype is not None and not isinstance(dtype, DType):
            got = type(dtype).__name__
            raise RuntimeError(
                f"set_output_grad_dtype expects each declaration to be a lucid.dtype or None, but got {got}"
            )
        if dtype is not None and i not in differentiable:
            raise RuntimeError(
                f"set_output_grad_dtype: got a concrete dtype for output {i}, but that output is not a differentiable "
                f"tensor (it is a non-tensor, was marked non-differentiable, or has a non-differentiable dtype). Pass "
                f"None for output {i} instead."
            )
    return [dtypes[i] for i in places]


def _written(ctx: FunctionCtx, inputs: list[Tensor]) -> set[int]:
    """The ids of what `forward` has marked as dirty. Their versions rise, whether or not it wrote them by our ops."""
    for i, t in enumerate(ctx._dirty):
        if not isinstance(t, Tensor):
            raise RuntimeError(f"mark_dirty can only accept variables, but argument {i} is of type {type(t).__name__}")
        if not any(t is x for x in inputs):
            warn(
                "Only input Tensors should be given to ctx.mark_dirty(). If a Tensor is not an input, there is no need "
                "to pass it to mark_dirty()."
            )
        t._touch()
    return {id(t) for t in ctx._dirty}


def _backward(
    cls: type[Function], ctx: FunctionCtx, at: list[int], n: int, places: list[int], results: int, *grads: Tensor | None
) -> Any:
    """The gradients of the tensors among the `n` arguments, from those of the tensors among the results."""
    given: list[Tensor | None] = [None] * results
    for i, grad in zip(places, grads, strict=True):
        given[i] = grad
    found = cls._gradients(ctx, *given)
    listed = found if isinstance(found, tuple) else (found,)
    name = f"{cls.__name__}Backward"
    if len(listed) > n and all(g is None for g in listed[n:]):
        listed = listed[:n]
    if len(listed) != n:
        raise RuntimeError(
            f"function {name} returned an incorrect number of gradients (expected {n}, got {len(listed)})"
        )
    for i, g in enumerate(listed):
        if g is not None and not isinstance(g, Tensor):
            got = type(g).__name__
            raise RuntimeError(f"expected Variable or None (got {got}), from function {name} at position {i + 1}")
        if g is not None and i not in at:
            raise RuntimeError(
                f"function {name} returned a gradient different from None at position {i + 1}, but the corresponding "
                "forward input was not a Variable"
            )
    return tuple(listed[i] for i in at)


def once_differentiable(fn: F) -> F:
    """For a `backward` whose own gradient cannot be taken: asking for it is an error instead of a wrong value."""

    @functools.wraps(fn)
    def wrapper(ctx: Any, *args: Any) -> Any:
        with no_grad():
            outputs = fn(ctx, *args)
        if not _C.is_grad_enabled() or not any(isinstance(a, Tensor) and a.requires_grad for a in args):
            return outputs
        listed = outputs if isinstance(outputs, tuple) else (outputs,)
        refused = tuple(_Refuse.apply(o, *args) if isinstance(o, Tensor) else o for o in listed)
        return refused if isinstance(outputs, tuple) else refused[0]

    return cast(F, wrapper)


class _Refuse(Function):
    """Passes a tensor on; its gradient is an error."""

    generate_vmap_rule = True

    @staticmethod
    def forward(value: Tensor, *args: Any) -> Tensor:
        return value.detach()

    @staticmethod
    def setup_context(ctx: FunctionCtx, inputs: tuple[Any, ...], output: Any) -> None:
        pass

    @staticmethod
    def backward(ctx: FunctionCtx, *grads: Any) -> Any:
        raise RuntimeError("trying to differentiate twice a function that was marked with @once_differentiable")


class InplaceFunction(Function):
    """A `Function`, as older code names one that may write its arguments."""

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace


class NestedIOFunction(Function):
    """A `Function` whose arguments older code nests. As in PyTorch it cannot be called any more: use a `Function`."""

    def forward_extended(self, *input: Any) -> Any:
        """Computes the results. To be defined by the subclass."""
        raise NotImplementedError

    def backward_extended(self, *grad_output: Any) -> Any:
        """Computes the gradients. To be defined by the subclass."""
        raise NotImplementedError


FunctionMeta = _FunctionMeta
