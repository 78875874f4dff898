"""Floating-point operations of a call, as `torch.utils.flop_counter`: counted by `lucid.profiler`, by module."""

from __future__ import annotations

from collections import defaultdict
from types import TracebackType
from typing import Any

from lucid import errors
from lucid._warnings import warn
from lucid.nn.modules import module as _module
from lucid.profiler import profile, record_function
from lucid.utils.benchmark._measure import trim_sigfig

__all__ = ["FlopCounterMode"]

#: The ops that count: products, as in PyTorch; sums and activations do not.
_COUNTED = frozenset(
    (
        *("matmul", "linear", "convolution", "convolution_input_gradient", "convolution_weight_gradient"),
        "scaled_dot_product_attention",
    )
)
_SCOPE = "lucid.flop_counter "


class FlopCounterMode:
    """Counts the floating-point operations of products, convolutions and attention in a block, backward too.

    A product of shapes `(n, k)` and `(k, m)` counts as `2 n k m`.

    Differences from PyTorch: ops have Lucid's names (`linear`, `matmul`, `convolution`), as strings, and what backward
    computes counts for `Global` alone.

    Args:
        mods (object, optional): without effect, with a warning: modules are found as they are called.
        depth (int, default: 2): how deep the table goes into modules.
        display (bool, default: True): whether to print the table at the end of the block.
        custom_mapping (dict[Any, Any], optional): taken by PyTorch for its ops; must be empty.

    Raises:
        NotImplementedError: there is a custom mapping.
        RuntimeError: another profiler runs.

    Example:
        >>> from lucid.utils.flop_counter import FlopCounterMode
        >>> with FlopCounterMode(display=False) as counter:
        ...     _ = lucid.nn.Linear(3, 4)(lucid.ones(2, 3))
        >>> counter.get_total_flops()
        48
    """

    def __init__(
        self, mods: Any = None, depth: int = 2, display: bool = True, custom_mapping: dict[Any, Any] | None = None
    ) -> None:
        if mods is not None:
            warn("mods argument is not needed anymore, you can stop passing it")
        if custom_mapping:
            raise errors.NotImplementedError(
                "FlopCounterMode: which ops count is not to be set; leave custom_mapping out"
            )
        self.depth, self.display = depth, display
        self.flop_counts: dict[str, dict[str, int]] = {}

    def __enter__(self) -> FlopCounterMode:
        self.flop_counts = {}
        self._type_names: dict[int, str] = {}
        self._open: list[Any] = []
        self._hooks = [
            _module.register_module_forward_pre_hook(self._enter_module),
            _module.register_module_forward_hook(self._leave_module, always_call=True),
        ]
        self._profile = profile(with_flops=True, record_shapes=True)
        try:
            self._profile.__enter__()
        except BaseException:
            self._unhook()
            raise
        return self

    def _unhook(self) -> None:
        for hook in self._hooks:
            hook.remove()

    def _enter_module(self, module: Any, _args: Any) -> None:
        if id(module) not in self._type_names:
            root = type(module).__name__
            for path, each in module.named_modules():
                self._type_names.setdefault(id(each), f"{root}.{path}" if path else root)
        scope = record_function(_SCOPE + self._type_names[id(module)])
        scope.__enter__()
        self._open.append(scope)

    def _leave_module(self, _module: Any, _args: Any, _result: Any) -> None:
        if self._open:
            self._open.pop().__exit__(None, None, None)

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._unhook()
        while self._open:
            self._open.pop().__exit__(None, None, None)
        self._profile.__exit__(kind, value, trace)
        counts: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
        events = self._profile.events()
        scopes = [e for e in events if e.name.startswith(_SCOPE)]
        for e in events:
            if e.name not in _COUNTED or not e.flops:
                continue
            counts["Global"][e.name] += e.flops
            around = {s.name.removeprefix(_SCOPE) for s in scopes if _inside(e, s)}
            for name in around:
                counts[name][e.name] += e.flops
        self.flop_counts = {name: dict(ops) for name, ops in counts.items()}
        if self.display:
            print(self.get_table(self.depth))

    def get_total_flops(self) -> int:
        """The operations of the block."""
        return sum(self.flop_counts.get("Global", {}).values())

    def get_flop_counts(self) -> dict[str, dict[str, int]]:
        """By module, `"Global"` for all, and by op."""
        return {name: dict(ops) for name, ops in self.flop_counts.items()}

    def get_table(self, depth: int | None = None) -> str:
        """The counts as a table.

        Args:
            depth: how deep it goes into modules.
        """
        depth = self.depth if depth is None else depth
        total = max(self.get_total_flops(), 1)
        lines = [("Module", "FLOP", "% Total")]
        for name, ops in self.flop_counts.items():
            level = 0 if name == "Global" else name.count(".") + 1
            if level > depth:
                continue
            n = sum(ops.values())
            lines.append((" " * level + name, _short(n), f"{100 * n / total:.2f}%"))
            lines += [(" " * level + f" - {op}", _short(k), f"{100 * k / total:.2f}%") for op, k in ops.items()]
        widths = [max(len(line[i]) for line in lines) for i in range(3)]
        rows = ["  ".join((a.ljust(widths[0]), b.rjust(widths[1]), c.rjust(widths[2]))) for a, b, c in lines]
        return "\n".join([rows[0], "  ".join("-" * w for w in widths), *rows[1:]])


def _inside(event: Any, scope: Any) -> bool:
    return bool(event.thread == scope.thread and scope.start_ns <= event.start_ns and event.end_ns <= scope.end_ns)


def _short(n: int) -> str:
    power = min((len(str(n)) - 1) // 3, 5)
    return f"{trim_sigfig(n / 1000**power, 4):g}{('', 'K', 'M', 'G', 'T', 'P')[power]}"
