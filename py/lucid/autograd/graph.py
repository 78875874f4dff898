"""The graph of a computation: its nodes, and hooks on what it saves.

A tensor's `grad_fn` is a `Node`; `next_functions` leads on to the leaves. Tensors that the tape saves for gradients can
be packed and unpacked by hooks, `save_on_cpu` being one.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal

from lucid import _C
from lucid._absent import teller
from lucid._C import Tensor
from lucid._C import _Node as Node
from lucid.autograd._edges import GradientEdge, get_gradient_edge
from lucid.utils.hooks import RemovableHandle

__all__ = [
    "GradientEdge",
    "Node",
    "allow_mutation_on_saved_tensors",
    "disable_saved_tensors_hooks",
    "get_gradient_edge",
    "increment_version",
    "queue_callback",
    "register_multi_grad_hook",
    "save_on_cpu",
    "saved_tensors_hooks",
]


def queue_callback(callback: Callable[[], object]) -> None:
    """Calls `callback()` once the backward pass that runs in this thread has made all its gradients.

    For hooks and for the `backward` of functions; elsewhere a `RuntimeError`. What was queued first is called first.

    Args:
        callback (Callable[[], object]): takes nothing.

    Example:
        >>> x = lucid.ones(1, requires_grad=True)
        >>> hook = x.register_hook(lambda g: lucid.autograd.graph.queue_callback(lambda: print("done")))
        >>> (x * 2).backward()
        done
    """
    _C._queue_callback(callback)


class saved_tensors_hooks:
    """A block whose ops save `pack_hook(tensor)`, which `unpack_hook` turns back into the tensor when a gradient asks.

    `pack_hook` may give any object. `unpack_hook` must give a tensor of the same elements. Neither is recorded.

    Args:
        pack_hook (Callable[[Tensor], Any]): takes the tensor to save, and returns any object.
        unpack_hook (Callable[[Any], Tensor]): takes that object, and returns the tensor.

    Example:
        >>> x = lucid.tensor([3.0], requires_grad=True)
        >>> with lucid.autograd.graph.saved_tensors_hooks(lambda t: t.tolist(), lucid.tensor):
        ...     y = x * x
        >>> y.backward()
        >>> x.grad
        tensor([6.])
    """

    #: Is it one that Lucid itself has put around an op, and not the user?
    _own = False

    def __init__(self, pack_hook: Callable[[Tensor], Any], unpack_hook: Callable[[Any], Tensor]) -> None:
        self.pack_hook = pack_hook
        self.unpack_hook = unpack_hook

    def __enter__(self) -> None:
        _C._push_saved_tensors_hooks(self.pack_hook, self.unpack_hook)
        if not self._own:
            _in_force().append(self)

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        _C._pop_saved_tensors_hooks()
        if not self._own:
            _in_force().pop()


class own_hooks(saved_tensors_hooks):
    """The same, for what Lucid itself keeps: `users_hooks` looks through it."""

    _own = True


_HERE = threading.local()


def _in_force() -> list[saved_tensors_hooks]:
    if not hasattr(_HERE, "hooks"):
        _HERE.hooks = []
    hooks: list[saved_tensors_hooks] = _HERE.hooks
    return hooks


def users_hooks() -> saved_tensors_hooks | None:
    """The innermost hooks on saved tensors that the user has put around what this thread does."""
    hooks = _in_force()
    return hooks[-1] if hooks else None


class save_on_cpu(saved_tensors_hooks):
    """A block whose ops keep what they save for gradients on the CPU, until it is asked for.

    `pin_memory` is without effect: memory here needs no pinning.

    Args:
        pin_memory (bool, default: False): without effect: host memory needs no pinning here.
        device_type (str, default: "gpu"): the type of the device that tensors come from.

    Example:
        >>> x = lucid.tensor([3.0], requires_grad=True)
        >>> with lucid.autograd.graph.save_on_cpu():
        ...     y = x * x
        >>> y.backward()
        >>> x.grad
        tensor([6.])
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
    """A block in which hooks on saved tensors are refused with `error_message`.

    Args:
        error_message (str): what the error says.

    Returns:
        context manager: the block.

    Example:
        >>> with lucid.autograd.graph.disable_saved_tensors_hooks("not here"):
        ...     pass
    """
    _C._push_saved_tensors_refusal(error_message)
    try:
        yield
    finally:
        _C._pop_saved_tensors_hooks()


class _MultiHandle(RemovableHandle):
    """The handles of one hook on several tensors."""

    def __init__(self, handles: Sequence[RemovableHandle]) -> None:
        self.handles = tuple(handles)

    def remove(self) -> None:
        """Takes the hook away from all of them."""
        for handle in self.handles:
            handle.remove()

    def __enter__(self) -> _MultiHandle:
        return self


def register_multi_grad_hook(
    tensors: Sequence[Tensor],
    fn: Callable[[Sequence[Tensor | None]], None] | Callable[[Tensor], None],
    *,
    mode: Literal["all", "any"] = "all",
) -> RemovableHandle:
    """Calls `fn` in each backward pass: with the gradients of all `tensors` that the pass reaches, `None` for the
    others, once they are there, or with the first one.

    The gradients come in the order of `tensors`. For "all" each must require a gradient; "any" passes over others.

    Args:
        tensors (Sequence[Tensor]): the tensors, of any shapes.
        fn (Callable[[Sequence[Tensor or None]], None] or Callable[[Tensor], None]): takes the gradients, or with
            "any" the first one.
        mode (Literal['all', 'any'], default: "all"): "all" or "any".

    Returns:
        RemovableHandle: its `remove()` takes the hook away.

    Raises:
        ValueError: another `mode`.

    Example:
        >>> x = lucid.ones(1, requires_grad=True)
        >>> handle = lucid.autograd.graph.register_multi_grad_hook([x], lambda grads: print(grads))
        >>> (x * 2).backward()
        [tensor([2.])]
    """
    if mode not in ("all", "any"):
        raise ValueError(f"Expects mode to be one of ('all', 'any') but got {mode}")
    lock = threading.Lock()
    got: dict[int, dict[int, Tensor]] = {}
    seen: dict[int, None] = {}
    nodes: list[Node] = []

    def first(grad: Tensor) -> None:
        key = _C._current_pass()
        with lock:
            if key in seen:
                return
            seen[key] = None
            # Passes are many; those that may still run are among the last.
            while len(seen) > 1024:
                del seen[next(iter(seen))]
        fn(grad)  # type: ignore[arg-type]

    def gather(i: int, grad: Tensor) -> None:
        key = _C._current_pass()
        with lock:
            grads = got.setdefault(key, {})
            grads[i] = grad
            if len(grads) < sum(bool(node._is_reached()) for node in nodes):
                return
            del got[key]
        fn([grads.get(j) for j in range(len(nodes))])  # type: ignore[arg-type]

    if mode == "any":
        return _MultiHandle([t.register_hook(first) for t in tensors if t.requires_grad])
    for t in tensors:
        edge = t._gradient_edge()
        if edge is None:
            raise AssertionError("Expected gradient function to be set")
        nodes.append(edge[0])
    return _MultiHandle([t.register_hook(functools.partial(gather, i)) for i, t in enumerate(tensors)])


def increment_version(tensor: Tensor | Iterable[Tensor]) -> None:
    """Says that the elements of a tensor, or of several, were written by other means than this package's.

    A gradient that needs what was there is an error from then on. Tensors made in inference mode have no version;
    nothing happens to them.

    Args:
        tensor (Tensor | Iterable[Tensor]): one or several, of any shapes.

    Raises:
        RuntimeError: what is no tensor.

    Example:
        >>> x = lucid.ones(1)
        >>> lucid.autograd.graph.increment_version(x)
        >>> x._version
        1
    """
    if isinstance(tensor, Tensor):
        tensor = (tensor,)
    elif not isinstance(tensor, Iterable):
        raise RuntimeError("increment_version expect a Iterable[Tensor] as input")
    for t in tensor:
        if not isinstance(t, Tensor):
            raise RuntimeError("increment_version expect a Iterable[Tensor] as input")
        if not t.is_inference():
            t._touch()


class _AllowMutationOnSavedContext:
    """What `allow_mutation_on_saved_tensors` gives: the copies that its graphs were recorded with."""

    def __init__(self) -> None:
        self._open = True

    def clear(self) -> None:
        """Ends the context: its graphs can no longer be walked."""
        self._open = False


_mutation = threading.local()


@contextlib.contextmanager
def allow_mutation_on_saved_tensors() -> Iterator[_AllowMutationOnSavedContext]:
    """A block in which tensors that gradients need may be written in place: gradients see what was there before.

    Every tensor that the tape saves is copied (on the GPU, whose arrays are never changed, that costs nothing), where
    PyTorch copies those that are written. Backward passes over what was recorded must run inside of the block.
    """
    if getattr(_mutation, "open", False):
        raise RuntimeError("allow_mutation_on_saved_tensors contexts cannot be nested")
    context = _AllowMutationOnSavedContext()

    def unpack(copy: Tensor) -> Tensor:
        if not context._open:
            raise AssertionError(
                "Trying to backward outside of the 'allow_mutation_on_saved_tensors' context in which the graph was "
                "originally recorded."
            )
        return copy

    _mutation.open = True
    try:
        with saved_tensors_hooks(lambda t: t.clone(), unpack):
            yield context
    finally:
        _mutation.open = False
        context.clear()


if not TYPE_CHECKING:
    __getattr__ = teller(__name__)
