"""`TorchDispatchMode`: a block in which a class sees every op, to count, log or replace them.

    class Count(TorchDispatchMode):
        def __init__(self):
            super().__init__()
            self.calls = collections.Counter()

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            self.calls[str(func)] += 1
            return func(*args, **(kwargs or {}))

Calls of layers, of `nn.functional` and of operators are seen as the ops below them, as in PyTorch: a linear layer as
`aten.t.default` and `aten.addmm.default`, a convolution as `aten.convolution.default`, `x[0]` as `aten.select.int`.

The ops of a backward pass are seen while it runs, from the outermost `backward` or `autograd.grad`: those that PyTorch
composes a gradient of, or one op of the node's name (`aten.gelu_backward.default`), and what custom functions, hooks
and checkpoints call. They cost a second computation of the gradients that are composed.

Differences from PyTorch: `einsum`, recurrent layers, attention and other calls that are one kernel here are seen as one
op of their own name, and so are their gradients; an op of a backward pass that is one kernel runs on the arguments that
the mode is shown alone; gradients of `linalg.lu`, `linalg.lstsq` and `triangular_solve` are not seen; ops compare equal
by name, whatever their overloads.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lucid import _C
from lucid.overrides import TorchFunctionMode
from lucid.utils._overloads import overload as overload_of

__all__ = ["Op", "TorchDispatchMode", "is_traceable_wrapper_subclass"]


def is_traceable_wrapper_subclass(t: object) -> bool:
    """Whether it is an instance of a subclass of `Tensor` that tells what it is made of and is made of that again."""
    methods = ("__tensor_flatten__", "__tensor_unflatten__")
    return isinstance(t, _C.Tensor) and type(t) is not _C.Tensor and all(hasattr(t, name) for name in methods)


class Op:
    """An op as a mode sees it: called, it runs; it is printed as `aten.add.Tensor`, and compared by name."""

    namespace = "aten"

    def __init__(
        self, name: str, function: Callable[..., Any], overload: str = "default", lowered: bool = False
    ) -> None:
        self.__name__ = f"{name}.{overload}"
        self._opname, self._function, self._overloadname, self._lowered = name, function, overload, lowered

    @property
    def overloadpacket(self) -> Any:
        """The op without its overload: `lucid.ops.aten.add`."""
        from lucid import ops

        return getattr(ops.aten, self._opname)

    _overloadpacket = overloadpacket

    @property
    def tags(self) -> list[Any]:
        """What the op says of itself: see `lucid.Tag`."""
        from lucid import _tags

        return list(_tags.of(self._opname))

    def name(self) -> str:
        """`aten::add.Tensor`; without the overload where that is `default`."""
        return f"aten::{self._opname}" + (f".{self._overloadname}" if self._overloadname != "default" else "")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        # The mode around the one that is shown this op is shown the op, too, and not what it is made of.
        if self._lowered and _C._torch_function_modes() and not _C._is_torch_function_all_disabled():
            return _C._handle_torch_function(self, (), *args, **kwargs)
        return self._function(*args, **kwargs)

    def __str__(self) -> str:
        return f"aten.{self.__name__}"

    def __repr__(self) -> str:
        return f"<OpOverload(op='aten.{self._opname}', overload='{self._overloadname}')>"

    def __eq__(self, other: object) -> bool:
        return type(other).__name__ in ("Op", "_Native") and getattr(other, "_opname", None) == self._opname

    def __hash__(self) -> int:
        return hash(("aten", self._opname))


_OPERATORS = {
    **{f"__{side}{name}__": name for name in ("add", "sub", "mul", "pow", "mod", "matmul") for side in ("", "r", "i")},
    **{f"__{side}truediv__": "div" for side in ("", "r", "i")},
    **{f"__{side}floordiv__": "floor_divide" for side in ("", "r", "i")},
    **{f"__{name}__": name for name in ("eq", "ne", "lt", "le", "gt", "ge", "neg", "abs")},
    **{f"__{side}{name}__": f"bitwise_{name}" for name in ("and", "or", "xor") for side in ("", "r", "i")},
    "__getitem__": "index",
    "__setitem__": "index_put_",
    "__invert__": "bitwise_not",
}

#: What tells of a tensor and computes nothing.
_QUERIES = frozenset(
    [
        "__get__",
        "__set__",
        "__delete__",
        "size",
        "dim",
        "numel",
        "nelement",
        "stride",
        "storage_offset",
        "is_contiguous",
        "is_floating_point",
        "is_complex",
        "element_size",
        "get_device",
        "data_ptr",
        "__len__",
        "__repr__",
        "__format__",
        "__hash__",
        "__iter__",
        "requires_grad_",
        "backward",
        "register_hook",
        "retain_grad",
        "is_same_size",
        "has_names",
        "__bool__",
        "__int__",
        "__float__",
        "__index__",
        "tolist",
        "numpy",
        "__array__",
        "__dlpack__",
        "__dlpack_device__",
        "__reduce_ex__",
        "__deepcopy__",
        "untyped_storage",
        "storage",
        "_is_view",
        "names",
    ]
)


def _is_differentiation(func: Any, called: str) -> bool:
    """Is it `Tensor.backward`, `autograd.backward` or `autograd.grad`?"""
    own = getattr(func, "__module__", None) == "lucid.autograd"
    return called == "backward" or (own and called == "grad")


class TorchDispatchMode(TorchFunctionMode):
    """What is asked about the ops of this thread inside `with`. A subclass defines `__torch_dispatch__(self, func,
    types, args=(), kwargs=None)`; while it runs, its mode is off.
    """

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        raise NotImplementedError

    #: Whether calls are shown as the ops below them.
    _lowers = True
    #: Whether the ops of backward passes are shown.
    _shows_backward = True

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if isinstance(func, Op):
            return self.__torch_dispatch__(func, types, args, kwargs)
        called = getattr(func, "__name__", "")
        if called == "__get__" and self._lowers:
            attribute = getattr(getattr(func, "__self__", None), "__name__", "")
            if attribute in ("T", "H", "mT"):
                return self._lower(attribute, func, types, (args[0], attribute), {}, lambda: func(*args, **kwargs))
        if _is_differentiation(func, called):
            if not self._shows_backward:
                return func(*args, **kwargs)
            with _backward_ops.shown(self, called, args, kwargs):
                return func(*args, **kwargs)
        if called in _QUERIES or not called:
            return func(*args, **kwargs)
        name = _OPERATORS.get(called, called)

        def whole() -> Any:
            op = Op(name, func, overload_of(name, args, kwargs))
            return self.__torch_dispatch__(op, types, args, kwargs)

        if not self._lowers:
            return whole()
        return self._lower(called if called in _lowering.RULES else name, func, types, args, kwargs, whole)

    def _sizes_of(self, t: Any) -> Any:
        """The shape that rules write into the ops below a call."""
        return t.shape

    def _lower(
        self,
        name: str,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        whole: Callable[[], Any],
    ) -> Any:
        """The result by the rule of a name; where there is none, that of `whole`."""
        ruled, result = _lowering.lower(name, _Run(self, types), args, kwargs)
        return result if ruled else whole()


class _Run:
    """Runs the ops of a rule before a mode's eyes."""

    def __init__(self, mode: TorchDispatchMode, types: Any) -> None:
        self.mode, self.types, self.ran = mode, types, False

    def __call__(self, full: str, *args: Any, **kwargs: Any) -> Any:
        from lucid import ops

        self.ran = True
        name, _, overload = full.partition(".")
        function = getattr(ops.aten, name)
        op = Op(name, function, overload or overload_of(name, args, kwargs), lowered=True)
        return self.mode.__torch_dispatch__(op, self.types, args, kwargs)

    def sizes(self, t: Any) -> Any:
        """A tensor's shape, as the mode sees it."""
        return self.mode._sizes_of(t)

    def inside(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Calls a function, whose calls are seen."""
        self.ran = True
        with self.mode:
            return function(*args, **kwargs)


from lucid.utils import _backward_ops, _lowering  # noqa: E402  # It needs `nn.functional`, which is not there yet.
