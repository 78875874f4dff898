"""The ops of a run, in order, as a mode sees them: what `lucid.onnx` and `lucid.jit` write into files."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import lucid
from lucid import Tensor
from lucid._wrapped import name_of
from lucid.nn.parameter import Parameter
from lucid.utils import _pytree
from lucid.utils._python_dispatch import Op, TorchDispatchMode

#: Attributes that are views, as ops.
_ATTRIBUTES: dict[str, tuple[str, tuple[int, ...]]] = {
    "T": ("transpose", (0, 1)),
    "mT": ("transpose", (-2, -1)),
    "data": ("detach", ()),
}
#: Python's operators with the operands the other way around.
_REFLECTED = frozenset(f"__r{name}__" for name in ("sub", "truediv", "pow", "matmul", "add", "mul"))
#: Ops that change what a tensor shows of its elements, and none of them.
_MOVES = frozenset(("transpose_", "swapaxes_", "swapdims_", "t_", "squeeze_", "unsqueeze_"))
#: Ops that give their operand where there is nothing to do.
_SAME = ("contiguous", "to", "float", "detach", "dropout", "flatten", "reshape", "expand_as", "type", "cpu", "gpu")


def _layout(t: Tensor) -> Any:
    return tuple(t.shape), tuple(t.stride()), t.storage_offset(), t.dtype


class Call:
    """One op that ran."""

    def __init__(self, name: str, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        self.name, self.function = name, function
        self.args, self.kwargs, self.result = args, kwargs, result
        self.outs = [t for t in _pytree.tree_leaves(result) if isinstance(t, Tensor)]
        # Of tensors that are written later the shapes now.
        self.shapes = [tuple(t.shape) for t in self.outs]


class Recorder(TorchDispatchMode):
    """Keeps the ops that depend on the inputs.

    Args:
        inputs: The inputs.
        error: What is raised where an op cannot be kept.
        who: Who says so.
        decomposed: By name of an op the function whose ops are kept in its place.
        lowers: Whether what is kept are the ops below calls.
    """

    _shows_backward = False

    def __init__(
        self,
        inputs: Sequence[Tensor],
        error: type[Exception],
        who: str,
        decomposed: Mapping[str, Callable[..., Any]] | None = None,
        lowers: bool = False,
    ) -> None:
        super().__init__()
        self._lowers = lowers
        self.error, self.who, self.decomposed = error, who, decomposed or {}
        self.calls: list[Call] = []
        self.kept: list[Any] = list(inputs)
        self.depends = {id(t) for t in inputs}
        # Of what there are views.
        self.bases: list[Any] = []
        # By where elements are, the tensors that show them; and what else was seen.
        self.places: dict[int, list[Tensor]] = {}
        self.same: dict[int, Tensor] = {}
        self.constants: set[int] = set()

    def _has_views(self, t: Tensor) -> bool:
        return any(base is t for base in self.bases)

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if getattr(func, "__name__", "") == "__get__" and self._depends(args[0]):
            # Attributes that are tensors: `x.T`.
            name = name_of(func)
            made = func(*args, **(kwargs or {}))
            if isinstance(made, Tensor) and name not in ("grad", "_base"):
                if name not in _ATTRIBUTES:
                    raise self.error(f"{self.who}: the attribute {name} of a tensor is not recorded; use an op")
                op, rest = _ATTRIBUTES[name]
                return self.__torch_dispatch__(Op(op, getattr(Tensor, op)), types, (args[0], *rest), {})
            return made
        return super().__torch_function__(func, types, args, kwargs)

    def _depends(self, t: Any) -> bool:
        """Does a tensor depend on the inputs? One on the same elements as another is that other."""
        if not isinstance(t, Tensor):
            return False
        if id(t) in self.depends:
            return True
        if id(t) in self.constants or not self.calls or t.numel() == 0:
            return False
        there = self.places.get(t.untyped_storage().data_ptr())
        if there is None or isinstance(t, Parameter):
            self.constants.add(id(t))
            self.kept.append(t)
            return False
        found = next((u for u in there if _layout(u) == _layout(t)), None)
        if found is None:
            raise self.error(f"{self.who}: a view of a tensor was made where it could not be seen; use ops")
        self.depends.add(id(t))
        self.kept.append(t)
        self.same[id(t)] = found
        return True

    def _is_sized(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Is a size of a tensor among the arguments, where sizes are kept?"""
        return False

    def _of(self, t: Any) -> Any:
        return self.same.get(id(t), t)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        name = str(func).split(".")[1]
        if getattr(getattr(func, "_function", None), "__name__", "") in _REFLECTED:
            # `2 - x` asks `x` for `__rsub__`.
            args = args[::-1]
            func = getattr(lucid, name)
        given = [t for t in _pytree.tree_leaves((args, kwargs)) if isinstance(t, Tensor)]
        depends = any([self._depends(t) for t in given]) or self._is_sized(args, kwargs)
        # Below a call, what is made of parameters belongs to the graph, which would hold a copy of a view otherwise.
        depends = depends or (func._lowered and any(isinstance(t, Parameter) for t in given))
        if depends and name in self.decomposed:
            with self:
                return self.decomposed[name](*args, **kwargs)
        if any(id(t) in self.same for t in given):
            args, kwargs = _pytree.tree_map(self._of, (args, kwargs))
            given = [self._of(t) for t in given]
        result = func(*args, **kwargs)
        if not depends:
            return result
        inplace = any(result is t for t in given) and name not in _SAME
        moves = name in _MOVES
        if name == "index_put_" or (inplace and not moves and (result._is_view() or self._has_views(result))):
            raise self.error(f"{self.who}: {name} writes to a part of a tensor; make a new one by cat or where")
        self.calls.append(Call(name.rstrip("_") if inplace else name, func, args, kwargs, result))
        self.bases += [t._base for t in self.calls[-1].outs if t._is_view()]
        self.kept.append((args, kwargs, result))
        for t in self.calls[-1].outs:
            self.depends.add(id(t))
            if t.numel():
                self.places.setdefault(t.untyped_storage().data_ptr(), []).append(t)
        return result
