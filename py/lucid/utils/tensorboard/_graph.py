"""The graph of a module's call as a GraphDef: one node per op, in the scopes of the modules that call it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import lucid
from lucid import Tensor, errors, nn
from lucid.overrides import TorchFunctionMode
from lucid.utils.tensorboard._proto import data, integer, shape


def _tensors(value: Any) -> Iterator[Tensor]:
    """The tensors in containers."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, dict):
        for v in value.values():
            yield from _tensors(v)
    elif isinstance(value, (list, tuple)):
        for v in value:
            yield from _tensors(v)


class _Recorder(TorchFunctionMode):
    """Records the ops of one call and which tensors they take."""

    def __init__(self, model: nn.Module) -> None:
        self.scopes = [type(model).__name__]
        self.nodes: list[bytes] = []
        self.counts: dict[str, int] = {}
        # By id: the node that gives a tensor, and the tensor, so that its id stays its own.
        self.made: dict[int, tuple[str, Tensor]] = {}

    def add(self, name: str, op: str, inputs: list[str], results: list[Tensor]) -> None:
        number = self.counts[name] = self.counts.get(name, -1) + 1
        name = f"{name}_{number}" if number else name
        shapes = b"".join(data(7, shape(t.shape)) for t in results)
        attr = data(5, data(1, "_output_shapes") + data(2, data(1, shapes)))
        if results:
            attr += data(5, data(1, "dtype") + data(2, data(2, str(results[0].dtype))))
        self.nodes.append(data(1, data(1, name) + data(2, op) + b"".join(data(3, i) for i in inputs) + attr))
        for t in results:
            self.made[id(t)] = (name, t)

    def inputs(self, value: Any) -> list[str]:
        """The nodes that give the tensors of a call; what nothing has made is a constant."""
        names = []
        for t in _tensors(value):
            if id(t) not in self.made:
                self.add(f"{'/'.join(self.scopes)}/constant", "Constant", [], [t])
            names.append(self.made[id(t)][0])
        return names

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        results = list(_tensors(result))
        name = getattr(func, "__name__", type(func).__name__)
        if results and name not in ("__get__", "__set__"):
            self.add(f"{'/'.join(self.scopes)}/{name}", f"lucid::{name}", self.inputs((args, kwargs)), results)
        return result


def graph(model: nn.Module, input_to_model: Any, verbose: bool = False) -> bytes:
    """Runs a module and gives the graph of the call.

    Args:
        model: the module; it runs in the mode in which it is, without gradients.
        input_to_model: the argument of the call, or a tuple or list of arguments.
        verbose: whether to print the names of the nodes.

    Returns:
        The bytes of a GraphDef.

    Raises:
        TypeError: `model` is no module, or there is no input.
    """
    if not isinstance(model, nn.Module):
        raise errors.TypeError(f"add_graph: expected a module, got {type(model).__name__}")
    if input_to_model is None:
        raise errors.TypeError("add_graph: input_to_model is needed: the graph is that of a call")
    args = tuple(input_to_model) if isinstance(input_to_model, (tuple, list)) else (input_to_model,)
    recorder = _Recorder(model)
    for i, t in enumerate(_tensors(args)):
        recorder.add(f"input/x{i or ''}", "IO Node", [], [t])
    paths = {}
    for path, module in model.named_modules():
        parts, at, names = path.split(".") if path else [], model, [type(model).__name__]
        for part in parts:
            at = getattr(at, part)
            names.append(f"{type(at).__name__}[{part}]")
        paths[id(module)] = names
        for name, t in (*module.named_parameters(recurse=False), *module.named_buffers(recurse=False)):
            if id(t) not in recorder.made:
                kind = "Parameter" if isinstance(t, nn.Parameter) else "Buffer"
                recorder.add(f"{'/'.join(names)}/{name}", kind, [], [t])
    former: list[list[str]] = []

    def enter(module: nn.Module, _args: Any) -> None:
        former.append(recorder.scopes)
        recorder.scopes = paths.get(id(module), recorder.scopes)

    def leave(module: nn.Module, _args: Any, _result: Any) -> None:
        recorder.scopes = former.pop()

    hooks: list[Any] = []
    try:
        for module in model.modules():
            hooks.append(module.register_forward_pre_hook(enter))
            hooks.append(module.register_forward_hook(leave))
        with lucid.no_grad(), recorder:
            result = model(*args)
    finally:
        for hook in hooks:
            hook.remove()
    for i, name in enumerate(recorder.inputs(result)):
        recorder.add(f"output/y{i or ''}", "IO Node", [name], [])
    if verbose:
        print(*recorder.counts, sep="\n")
    return b"".join(recorder.nodes) + data(4, integer(1, 22))
