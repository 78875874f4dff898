"""The graph of a computation: its nodes, and hooks on what it saves.

A tensor's `grad_fn` is a `Node`; `next_functions` leads on to the leaves. Tensors that the tape saves for gradients can
be packed and unpacked by hooks, `save_on_cpu` being one.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Any, Literal, NamedTuple

from lucid import _C
from lucid._C import Tensor
from lucid._C import _Node as Node
from lucid.autograd import RemovableHandle

__all__ = [
    "GradientEdge",
    "Node",
    "disable_saved_tensors_hooks",
    "get_gradient_edge",
    "register_multi_grad_hook",
    "save_on_cpu",
    "saved_tensors_hooks",
]


class GradientEdge(NamedTuple):
    """Where a gradient goes: result `output_nr` of `node`."""

    node: Node
    output_nr: int


def get_gradient_edge(tensor: Tensor) -> GradientEdge:
    """Where the gradient of `tensor` goes. For a leaf it is the node that adds to its `grad`."""
    edge = tensor._gradient_edge()
    if edge is None:
        raise RuntimeError("It is not possible to get the gradient edge for a Tensor that does not require gradients")
    return GradientEdge(*edge)


class saved_tensors_hooks:
    """A block whose ops save `pack_hook(tensor)`, which `unpack_hook` turns back into the tensor when a gradient asks.

    `pack_hook` may give any object. `unpack_hook` must give a tensor of the same elements. Neither is recorded.
    """

    def __init__(self, pack_hook: Callable[[Tensor], Any], unpack_hook: Callable[[Any], Tensor]) -> None:
        self.pack_hook = pack_hook
        self.unpack_hook = unpack_hook

    def __enter__(self) -> None:
        _C._push_saved_tensors_hooks(self.pack_hook, self.unpack_hook)

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        _C._pop_saved_tensors_hooks()


class save_on_cpu(saved_tensors_hooks):
    """A block whose ops keep what they save for gradients on the CPU, until it is asked for.

    `pin_memory` is accepted as in PyTorch; memory here needs no pinning.
    """

    def __init__(self, pin_memory: bool = False, device_type: str = "gpu") -> None:
        def pack(tensor: Tensor) -> tuple[Any, Tensor]:
            # A copy on the CPU too, so that a later write to the tensor is not seen.
            return tensor.device, tensor.to("cpu") if tensor.device.type != "cpu" else tensor.clone()

        def unpack(packed: tuple[Any, Tensor]) -> Tensor:
            device, tensor = packed
            return tensor.to(device)

        super().__init__(pack, unpack)


@contextlib.contextmanager
def disable_saved_tensors_hooks(error_message: str) -> Iterator[None]:
    """A block in which hooks on saved tensors are refused with `error_message`."""
    _C._push_saved_tensors_refusal(error_message)
    try:
        yield
    finally:
        _C._pop_saved_tensors_hooks()


class _Handles:
    """The handles of one hook on several tensors."""

    def __init__(self, handles: Sequence[RemovableHandle]) -> None:
        self._handles = tuple(handles)

    def remove(self) -> None:
        """Takes the hook away from all of them."""
        for handle in self._handles:
            handle.remove()

    def __enter__(self) -> _Handles:
        return self

    def __exit__(self, *exc: object) -> None:
        self.remove()


def register_multi_grad_hook(
    tensors: Sequence[Tensor],
    fn: Callable[[Sequence[Tensor | None]], None] | Callable[[Tensor], None],
    *,
    mode: Literal["all", "any"] = "all",
) -> _Handles:
    """Calls `fn` in each backward pass: with the gradients of all `tensors` once they are there, or with the first.

    With `mode="all"`, tensors that a pass does not reach keep it from being called, unlike in PyTorch, which looks
    ahead in the graph.
    """
    if mode not in ("all", "any"):
        raise ValueError(f"Expects mode to be one of ('all', 'any') but got {mode}")
    lock = threading.Lock()
    got: dict[int, Tensor] = {}
    n = len(tensors)

    def hook(i: int, grad: Tensor) -> None:
        with lock:
            first = not got
            got[i] = grad
            done = len(got) == n
            grads = [got.get(j) for j in range(n)]
            if done:
                got.clear()
        if mode == "any" and first:
            fn(grad)  # type: ignore[arg-type]
        elif mode == "all" and done:
            fn(grads)  # type: ignore[arg-type]

    return _Handles([t.register_hook(functools.partial(hook, i)) for i, t in enumerate(tensors)])
