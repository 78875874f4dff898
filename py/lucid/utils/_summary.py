"""`lucid.utils.summary`: a table of a model's layers."""

from __future__ import annotations

from typing import Any

import lucid
from lucid import errors
from lucid.nn.modules.module import Module
from lucid.utils import _pytree

__all__ = ["ModelSummary", "summary"]


class ModelSummary:
    """What `summary` found; prints as a table.

    Attributes:
        rows: per module its path, class, result's shapes, parameters (its own), operations and bytes of results.
        total_params, trainable_params: numbers of elements; a parameter of two modules counts once.
        total_flops: floating-point operations of the call.
        param_bytes, output_bytes: of the parameters and buffers, and of the results of modules without submodules.
    """

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []
        self.total_params = self.trainable_params = self.total_flops = 0
        self.param_bytes = self.output_bytes = 0

    def __str__(self) -> str:
        lines = [("Layer", "Output", "Params", "FLOPs", "Memory")]
        for row in self.rows:
            name = (
                "  " * row["depth"] + f"{row['type']}" + (f" ({row['path'].rpartition('.')[2]})" if row["path"] else "")
            )
            shapes = ", ".join(str(s) for s in row["shapes"])
            counts = (f"{row['params']:,}" if row["params"] else "-", f"{row['flops']:,}" if row["flops"] else "-")
            lines.append((name, shapes, *counts, _bytes(row["bytes"])))
        widths = [max(len(line[i]) for line in lines) for i in range(5)]
        text = [
            "  ".join(
                (
                    line[0].ljust(widths[0]),
                    line[1].ljust(widths[1]),
                    *(c.rjust(w) for c, w in zip(line[2:], widths[2:], strict=True)),
                )
            ).rstrip()
            for line in lines
        ]
        rule = "-" * max(map(len, text))
        frozen = self.total_params - self.trainable_params
        foot = [
            f"Parameters: {self.total_params:,} ({self.trainable_params:,} trainable, {frozen:,} not)",
            f"FLOPs of the call: {self.total_flops:,}",
            f"Memory: parameters and buffers {_bytes(self.param_bytes)}, results {_bytes(self.output_bytes)}",
        ]
        return "\n".join([text[0], rule, *text[1:], rule, *foot])

    __repr__ = __str__


def _bytes(n: int) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if n < 1024 or unit == "GiB":
            return f"{n:,.0f} {unit}" if unit == "B" else f"{n:,.1f} {unit}"
        n /= 1024  # type: ignore[assignment]
    return ""


def summary(
    model: Module, input: Any = None, *, depth: int | None = None, verbose: bool = True, **kwargs: Any
) -> ModelSummary:
    """Calls a model once and tabulates its layers: shapes, parameters, operations and memory.

    Args:
        model: the model; called in eval mode, without gradients, and put back into its mode.
        input: the argument of the call, a tuple of arguments, or a list or tuple of ints: the shape of one tensor of
            ones on the model's device.
        depth: how deep the table goes into modules; `None` for all.
        verbose: whether to print it.
        **kwargs: arguments of the call by name.

    Returns:
        A `ModelSummary`.

    Raises:
        TypeError: `model` is no module.

    Example:
        >>> model = lucid.nn.Sequential(lucid.nn.Linear(3, 4), lucid.nn.ReLU())
        >>> found = lucid.utils.summary(model, (2, 3), verbose=False)
        >>> found.total_params, found.total_flops
        (16, 48)
    """
    from lucid.utils.flop_counter import FlopCounterMode

    if not isinstance(model, Module):
        raise errors.TypeError(f"summary(): expected a module, got {type(model).__name__}")
    first = next(iter([*model.parameters(), *model.buffers()]), None)
    if isinstance(input, (list, tuple)) and input and all(isinstance(n, int) for n in input):
        args: tuple[Any, ...] = (lucid.ones(*input, device=None if first is None else first.device),)
    else:
        args = tuple(input) if isinstance(input, (list, tuple)) else () if input is None else (input,)
    found, seen = ModelSummary(), {}
    root = type(model).__name__
    results: dict[int, tuple[list[tuple[int, ...]], int]] = {}

    def note(module: Module, _args: Any, result: Any) -> None:
        held = [t for t in _pytree.tree_leaves(result) if isinstance(t, lucid.Tensor)]
        results[id(module)] = ([tuple(t.shape) for t in held], sum(t.numel() * t.element_size() for t in held))

    hooks = [m.register_forward_hook(note) for m in model.modules()]
    modes = [(m, m.training) for m in model.modules()]
    try:
        model.eval()
        with lucid.no_grad(), FlopCounterMode(display=False) as counter:
            model(*args, **kwargs)
    finally:
        for hook in hooks:
            hook.remove()
        for m, training in modes:
            m.training = training
    counts = counter.get_flop_counts()
    for path, module in model.named_modules():
        level = path.count(".") + 1 if path else 0
        own = 0
        for p in module.parameters(recurse=False):
            own += p.numel()
            if id(p) not in seen:
                seen[id(p)] = p
                found.total_params += p.numel()
                found.trainable_params += p.numel() if p.requires_grad else 0
                found.param_bytes += p.numel() * p.element_size()
        for b in module.buffers(recurse=False):
            if id(b) not in seen:
                seen[id(b)] = b  # type: ignore[assignment]
                found.param_bytes += b.numel() * b.element_size()
        shapes, size = results.get(id(module), ([], 0))
        if not any(True for _ in module.children()):
            found.output_bytes += size
        if depth is not None and level > depth:
            continue
        flops = sum(counts.get(f"{root}.{path}" if path else root, {}).values())
        row = {"path": path, "type": type(module).__name__, "depth": level, "shapes": shapes}
        found.rows.append({**row, "params": own, "flops": flops, "bytes": size})
    found.total_flops = counter.get_total_flops()
    if verbose:
        print(found)
    return found
