"""How tensors print: PyTorch's layout, precision and rules.

Prints evaluate. Of large tensors only the edges are read.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from lucid import _C
from lucid._C import Tensor
from lucid._grad_mode import no_grad


@dataclass
class _Options:
    precision: int = 4
    threshold: float = 1000
    edgeitems: int = 3
    linewidth: int = 80
    sci_mode: bool | None = None


_options = _Options()
_PROFILES = {
    "default": (4, 1000, 3, 80),
    "short": (2, 1000, 2, 80),
    "full": (4, math.inf, 3, 80),
}


def set_printoptions(
    precision: int | None = None,
    threshold: float | None = None,
    edgeitems: int | None = None,
    linewidth: int | None = None,
    profile: str | None = None,
    sci_mode: bool | None = None,
) -> None:
    """Sets digits after the point, the number of elements from which tensors are summarised, how many are shown at each
    edge then, the line width, and whether floats print in scientific notation (`None` decides by the values)."""
    global _options
    if profile is not None:
        if profile not in _PROFILES:
            raise ValueError(f"expected one of {', '.join(_PROFILES)} as the profile, got {profile!r}")
        _options = _Options(*_PROFILES[profile])
    if precision is not None:
        _options.precision = precision
    if threshold is not None:
        _options.threshold = threshold
    if edgeitems is not None:
        _options.edgeitems = edgeitems
    if linewidth is not None:
        _options.linewidth = linewidth
    _options.sci_mode = sci_mode


class _Formatter:
    """Formats the numbers of one tensor, padded to one width.

    The width is that of the widest finite number but zero; what is wider still sticks out, as in PyTorch.
    """

    def __init__(self, values: list[Any], floating: bool) -> None:
        self.floating = floating
        self.whole = True
        self.sci = False
        self.width = 1
        if not floating:
            self.width = max(len(str(v)) for v in values)
            return
        shown = [v for v in values if v != 0 and math.isfinite(v)]
        if shown:
            least, most = min(abs(v) for v in shown), max(abs(v) for v in shown)
            self.whole = all(v == math.ceil(v) for v in shown)
            # Wide ranges and extremes print in powers of ten.
            self.sci = most / least > 1000.0 or most > 1e8 or (not self.whole and least < 1e-4)
            self.width = max(1, *(len(self._text(v)) for v in shown))
        if _options.sci_mode is not None:
            self.sci = _options.sci_mode

    def _text(self, v: Any) -> str:
        if not self.floating:
            return str(v)
        if self.sci:
            return f"{v:.{_options.precision}e}"
        if self.whole:
            return f"{v:.0f}." if math.isfinite(v) else str(v)
        return f"{v:.{_options.precision}f}"

    def padded(self, v: Any) -> str:
        """One number, padded from the left."""
        return self._text(v).rjust(self.width)


class _ComplexFormatter:
    def __init__(self, values: list[complex]) -> None:
        self.real = _Formatter([v.real for v in values], True)
        self.imag = _Formatter([v.imag for v in values], True)
        self.width = self.real.width + self.imag.width + 1

    def padded(self, v: complex) -> str:
        imag = self.imag.padded(v.imag).lstrip()
        return self.real.padded(v.real) + ("" if imag.startswith("-") else "+") + imag + "j"


def _flat(data: Any) -> list[Any]:
    stack, out = [data], []
    while stack:
        v = stack.pop()
        if isinstance(v, list):
            stack.extend(reversed(v))
        else:
            out.append(v)
    return out


def _edges(t: Tensor, summarise: bool) -> Tensor:
    """The elements that are shown: all, or those at each dimension's edges."""
    if not summarise:
        return t
    n = _options.edgeitems
    for d in range(t.ndim):
        size = t.shape[d]
        if size > 2 * n:
            t = _C.cat([t.narrow(d, 0, n), t.narrow(d, size - n, n)], d)
    return t


def _lines(data: Any, shape: tuple[int, ...], indent: int, summarise: bool, form: Any) -> str:
    n = _options.edgeitems
    if not shape:
        return str(form.padded(data))
    size, rest = shape[0], shape[1:]
    cut = summarise and size > 2 * n
    if not rest:
        per_line = max(1, (_options.linewidth - indent) // (form.width + 2))
        items = [form.padded(v) for v in data]
        if cut:
            items = [*items[:n], " ...", *items[n:]]
        rows = [", ".join(items[i : i + per_line]) for i in range(0, len(items), per_line)]
        return "[" + (",\n" + " " * (indent + 1)).join(rows) + "]"
    parts = [_lines(v, rest, indent + 1, summarise, form) for v in data]
    if cut:
        parts = [*parts[:n], "...", *parts[n:]]
    return "[" + ("," + "\n" * len(rest) + " " * (indent + 1)).join(parts) + "]"


def _body(t: Tensor, indent: int) -> str:
    summarise = t.numel() > _options.threshold
    data = _edges(t, summarise).tolist()
    values = _flat(data)
    if t.dtype.is_complex:
        form: Any = _ComplexFormatter(values)
    else:
        form = _Formatter(values, t.dtype.is_floating_point)
    return _lines(data, tuple(t.shape), indent, summarise, form)


def tensor_repr(tensor: Tensor) -> str:
    """`repr(tensor)`."""
    with no_grad():
        return _tensor_repr(tensor)


def _tensor_repr(tensor: Tensor) -> str:
    parts = _C._vmap_parts(tensor)
    if parts is not None:
        inner = "\n".join("    " + line for line in _tensor_repr(parts[2]).splitlines())
        return f"BatchedTensor(lvl={parts[0]}, bdim=0, value=\n{inner}\n)"
    kind = type(tensor).__name__
    prefix = "tensor(" if kind in ("Tensor", "Parameter") else f"{kind}("
    indent = len(prefix)
    suffixes = []
    if not tensor.is_cpu:
        suffixes.append(f"device='{tensor.device}'")
    plain = (_C.get_default_dtype(), _C.int64, _C.bool)
    named = tensor.dtype not in plain and not (tensor.dtype.is_complex and _C.get_default_dtype() is _C.float32)
    if tensor.numel() == 0:
        if tensor.ndim != 1:
            suffixes.append(f"size={tuple(tensor.shape)}")
        if tensor.dtype is not _C.get_default_dtype():
            suffixes.append(f"dtype={tensor.dtype}")
        text = "[]"
    else:
        if named:
            suffixes.append(f"dtype={tensor.dtype}")
        text = _body(tensor.detach(), indent)
    made_by = tensor._grad_fn_name
    if made_by is not None:
        suffixes.append(f"grad_fn=<{made_by}>")
    elif tensor.requires_grad:
        suffixes.append("requires_grad=True")
    # A suffix that does not fit into the last line goes onto one of its own.
    out = prefix + text
    last = len(out) - out.rfind("\n") + 1
    for suffix in suffixes:
        if last + len(suffix) + 2 > _options.linewidth:
            out += ",\n" + " " * indent + suffix
            last = indent + len(suffix)
        else:
            out += ", " + suffix
            last += len(suffix) + 2
    return out + ")"
