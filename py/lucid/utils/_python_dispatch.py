"""`TorchDispatchMode`: a block in which a class sees every op, to count, log or replace them.

    class Count(TorchDispatchMode):
        def __init__(self):
            super().__init__()
            self.calls = collections.Counter()

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            self.calls[str(func)] += 1
            return func(*args, **(kwargs or {}))

Differences from PyTorch: ops are those of Lucid's op table as the program, layers and `nn.functional` call them
(`aten.linear.default`, not the `aten.addmm.default` below it), those of backward passes are not seen, and the overload
is always `default`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from lucid.overrides import TorchFunctionMode

__all__ = ["Op", "TorchDispatchMode"]


class Op:
    """An op as a mode sees it: called, it runs; it is printed as `aten.add.default`, and compared by name."""

    namespace = "aten"
    _overloadname = "default"

    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        self.__name__ = f"{name}.default"
        self._opname, self._function = name, function

    @property
    def overloadpacket(self) -> Any:
        """The op without its overload: `lucid.ops.aten.add`."""
        from lucid import ops

        return getattr(ops.aten, self._opname)

    def name(self) -> str:
        """`aten::add`."""
        return f"aten::{self._opname}"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._function(*args, **kwargs)

    def __str__(self) -> str:
        return f"aten.{self._opname}.default"

    def __repr__(self) -> str:
        return f"<OpOverload(op='aten.{self._opname}', overload='default')>"

    def __eq__(self, other: object) -> bool:
        return type(other).__name__ in ("Op", "_Native") and getattr(other, "_opname", None) == self._opname

    def __hash__(self) -> int:
        return hash(("aten", self._opname))


_OPERATORS = {
    **{f"__{side}{name}__": name for name in ("add", "sub", "mul", "pow", "mod", "matmul") for side in ("", "r", "i")},
    **{f"__{side}truediv__": "div" for side in ("", "r", "i")},
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


class TorchDispatchMode(TorchFunctionMode):
    """What is asked about the ops of this thread inside `with`. A subclass defines `__torch_dispatch__(self, func,
    types, args=(), kwargs=None)`; while it runs, its mode is off.
    """

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        raise NotImplementedError

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        if name in _QUERIES or not name:
            return func(*args, **kwargs)
        return self.__torch_dispatch__(_op(_OPERATORS.get(name, name), func), types, args, kwargs)


@functools.lru_cache(4096)
def _op(name: str, function: Callable[..., Any]) -> Op:
    return Op(name, function)
