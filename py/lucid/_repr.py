"""How tensors print: PyTorch's layout, precision and rules, and a table for notebooks.

Prints evaluate. Of large tensors only the edges are read.
"""

from __future__ import annotations

import dataclasses
import html
import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from lucid import _C
from lucid._C import Tensor
from lucid._grad_mode import no_grad
from lucid._warnings import warn_once


@dataclasses.dataclass
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
    """Sets how tensors are printed.

    Args:
        precision (int, optional): digits after the point. Default: 4 at first.
        threshold (float, optional): the number of elements above which a tensor is summarised. Default: 1000 at first.
        edgeitems (int, optional): how many elements a summary shows at each end of a dimension. Default: 3 at first.
        linewidth (int, optional): characters of a line. Default: 80 at first.
        profile (str, optional): "default", "short" or "full", which is set before the rest; another one sets nothing,
            with one warning.
        sci_mode (bool, optional): whether floats print in scientific notation. Default: None, the values decide.

    Raises:
        ValueError: a number that is no int of at least 0.

    Example:
        >>> lucid.set_printoptions(precision=2)
        >>> lucid.tensor(3.14159)
        tensor(3.14)
        >>> lucid.set_printoptions(profile="default")
    """
    global _options
    options = dataclasses.replace(_options)
    if profile is not None:
        if profile in _PROFILES:
            options = _Options(*_PROFILES[profile])
        else:
            why = f"set_printoptions: there are the profiles {', '.join(_PROFILES)}; {profile!r} sets nothing"
            warn_once(f"profile {profile!r}", why)
    if precision is not None:
        options.precision = precision
    if threshold is not None:
        options.threshold = threshold
    if edgeitems is not None:
        options.edgeitems = edgeitems
    if linewidth is not None:
        options.linewidth = linewidth
    options.sci_mode = sci_mode
    for name in ("precision", "edgeitems", "linewidth"):
        value = getattr(options, name)
        if not isinstance(value, int) or value < 0:
            raise ValueError(f"set_printoptions(): {name} must be an int from 0 on, got {value!r}")
    _options = options


def get_printoptions() -> dict[str, Any]:
    """The options as a dictionary that `set_printoptions` takes."""
    return dataclasses.asdict(_options)


@contextmanager
def printoptions(**options: Any) -> Iterator[None]:
    """Sets how tensors are printed within a `with` block.

    Args:
        options (object): as of `set_printoptions`.

    Yields:
        None

    Raises:
        ValueError: what `set_printoptions` refuses.

    Example:
        >>> with lucid.printoptions(precision=2):
        ...     print(lucid.tensor(3.14159))
        tensor(3.14)
    """
    global _options
    before = _options
    set_printoptions(**options)
    try:
        yield
    finally:
        _options = before


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
            self.width = max((len(str(v)) for v in values), default=1)
            return
        shown = [v for v in values if v != 0 and math.isfinite(v)]
        if not shown:
            return
        least, most = min(abs(v) for v in shown), max(abs(v) for v in shown)
        self.whole = all(v == math.ceil(v) for v in shown)
        # Wide ranges and extremes print in powers of ten.
        self.sci = _options.sci_mode if _options.sci_mode is not None else _extreme(least, most)
        self.width = max(1, *(len(self._text(v)) for v in shown))

    def _text(self, v: Any) -> str:
        if not self.floating:
            return str(v)
        if self.sci:
            return f"{v:.{_options.precision}e}"
        if self.whole:
            return f"{v:.0f}." if math.isfinite(v) else f"{v:.0f}"
        return f"{v:.{_options.precision}f}"

    def padded(self, v: Any) -> str:
        """One number, padded from the left."""
        return self._text(v).rjust(self.width)


def _extreme(least: float, most: float) -> bool:
    return most / least > 1000.0 or most > 1.0e8 or least < 1.0e-4


class _ComplexFormatter:
    def __init__(self, values: list[complex]) -> None:
        self.real = _Formatter([v.real for v in values], True)
        self.imag = _Formatter([v.imag for v in values], True)
        self.width = self.real.width + self.imag.width + 1

    def padded(self, v: complex) -> str:
        imag = self.imag.padded(v.imag).lstrip()
        return self.real.padded(v.real) + ("" if imag.startswith(("-", "+")) else "+") + imag + "j"


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
    if cut and n == 0:
        return "[...]"
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


def _formatter(dtype: Any, values: list[Any]) -> Any:
    return _ComplexFormatter(values) if dtype.is_complex else _Formatter(values, dtype.is_floating_point)


def _body(t: Tensor, indent: int) -> str:
    summarise = t.numel() > _options.threshold
    data = _edges(t, summarise).tolist()
    return _lines(data, tuple(t.shape), indent, summarise, _formatter(t.dtype, _flat(data)))


def _parts_body(parts: Iterable[tuple[str, Tensor]], indent: int) -> str:
    """The indices and the values of a sparse tensor, as tensors."""
    shown = []
    for name, part in parts:
        prefix = f"{name}=tensor("
        empty = part.numel() == 0
        text = f"[], size={tuple(part.shape)}" if empty else _body(part, indent + len(prefix))
        shown.append(f"{prefix}{text})")
    return (",\n" + " " * indent).join(shown)


def compressed_repr(tensor: Tensor, parts: Iterable[tuple[str, Tensor]], nnz: int) -> str:
    """`repr(tensor)` of a compressed layout, of these parts."""
    parts_of = dict(parts)
    values = parts_of["values"]
    with no_grad():
        suffixes = [] if values.is_cpu else [f"device='{values.device}'"]
        suffixes += [f"size={tuple(tensor.shape)}", f"nnz={nnz}"]
        default = _C.get_default_dtype()
        named = values.dtype not in (default, default.to_complex(), _C.int64, _C.bool)
        suffixes += [f"dtype={values.dtype}"] if named else []
        suffixes.append(f"layout={tensor.layout!r}")
        made_by = values._grad_fn_name
        if made_by is not None:
            suffixes.append(f"grad_fn=<{made_by}>")
        elif values.requires_grad:
            suffixes.append("requires_grad=True")
        shown = [(name, part.detach()) for name, part in parts_of.items()]
        return _with_suffixes("tensor(" + _parts_body(shown, 7), suffixes, 7, False)


def tensor_repr(tensor: Tensor) -> str:
    """`repr(tensor)`."""
    with no_grad():
        return _tensor_repr(tensor)


def _tensor_repr(tensor: Tensor, contents: str | None = None) -> str:
    """The text of a tensor, whose elements `contents` may replace."""
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
    default = _C.get_default_dtype()
    named = tensor.dtype not in (default, default.to_complex(), _C.int64, _C.bool)
    if tensor.is_sparse:
        text = _parts_body((("indices", tensor._indices()), ("values", tensor._values().detach())), indent)
        suffixes += [f"size={tuple(tensor.shape)}", f"nnz={tensor._nnz()}"]
        suffixes += [f"dtype={tensor.dtype}"] if named else []
        suffixes.append(f"layout={tensor.layout!r}")
    elif tensor.is_meta:
        suffixes.append(f"size={tuple(tensor.shape)}")
        suffixes += [f"dtype={tensor.dtype}"] if tensor.dtype is not default else []
        text = "..."
    elif tensor.numel() == 0:
        if tensor.ndim != 1:
            suffixes.append(f"size={tuple(tensor.shape)}")
        if tensor.dtype is not default:
            suffixes.append(f"dtype={tensor.dtype}")
        text = "[]"
    else:
        if not _options.edgeitems:
            suffixes.append(f"size={tuple(tensor.shape)}")
        if named:
            suffixes.append(f"dtype={tensor.dtype}")
        text = _body(tensor.detach(), indent) if contents is None else contents
    made_by = tensor._grad_fn_name
    if made_by is not None:
        suffixes.append(f"grad_fn=<{made_by}>")
    elif tensor.requires_grad:
        suffixes.append("requires_grad=True")
    if _C._forward_active():
        tangent = _C._tangent(tensor)
        if tangent is not None:
            suffixes.append(f"tangent={tangent}")
    return _with_suffixes(prefix + text, suffixes, indent, tensor.is_sparse)


def _with_suffixes(out: str, suffixes: list[str], indent: int, below: bool) -> str:
    """What follows the elements. A suffix that does not fit into the last line goes onto one of its own; the first one
    always, where it is to be `below`."""
    last = len(out) - out.rfind("\n") + 1
    for i, suffix in enumerate(suffixes):
        if last + len(suffix) + 2 > _options.linewidth or (below and i == 0):
            out += ",\n" + " " * indent + suffix
            last = indent + len(suffix)
        else:
            out += ", " + suffix
            last += len(suffix) + 2
    return out + ")"


# ---- notebooks -------------------------------------------------------------------------------------------------------

_CELL = "text-align:right;font-family:monospace;white-space:pre"


def tensor_html(tensor: Tensor) -> str:
    """A table of up to two dimensions, under a line of shape, dtype, device and statistics; text for more dimensions.

    Of large tensors the edges are shown, as in print; the statistics are those of all elements.
    """
    with no_grad():
        t = tensor.detach()
        facts = [
            type(tensor).__name__,
            f"shape {tuple(t.shape)}",
            repr(t.dtype).removeprefix("lucid."),
            str(t.device),
            *(["requires_grad"] if tensor.requires_grad else []),
            *_statistics(t),
        ]
        head = f"<div><small>{html.escape(' · '.join(facts))}</small></div>"
        if t.ndim > 2 or t.numel() == 0 or t.is_sparse or t.is_meta:
            return f"{head}<pre>{html.escape(repr(tensor))}</pre>"
        return head + _table(t)


def _table(t: Tensor) -> str:
    rows = t.reshape(1, -1) if t.ndim < 2 else t
    n = max(1, _options.edgeitems)
    summarise = t.numel() > _options.threshold
    with printoptions(**{**get_printoptions(), "edgeitems": n}):
        data = _edges(rows, summarise).tolist()
        form = _formatter(t.dtype, _flat(data))
        cells = [[html.escape(form.padded(v)) for v in row] for row in data]
    height, width = rows.shape
    columns: list[int | None] = [*range(width)]
    numbers: list[int | None] = [*range(height)]
    if summarise and width > 2 * n:
        columns = [*range(n), None, *range(width - n, width)]
        cells = [[*row[:n], "…", *row[n:]] for row in cells]
    if summarise and height > 2 * n:
        numbers = [*range(n), None, *range(height - n, height)]
        cells = [*cells[:n], ["…"] * len(columns), *cells[n:]]
    header = "".join(f"<th>{_mark(i)}</th>" for i in columns)
    body = "".join(
        f"<tr><th>{_mark(i)}</th>" + "".join(f'<td style="{_CELL}">{cell}</td>' for cell in row) + "</tr>"
        for i, row in zip(numbers, cells, strict=True)
    )
    return f"<table><thead><tr><th></th>{header}</tr></thead><tbody>{body}</tbody></table>"


def _mark(i: int | None) -> str:
    return "…" if i is None else str(i)


def _statistics(t: Tensor) -> list[str]:
    """What is worth knowing of all elements."""
    if t.numel() == 0 or t.dtype.is_complex or t.is_sparse or t.is_meta:
        return []
    if t.dtype is _C.bool:
        return [f"{int(t.sum())} of {t.numel()} true"]
    if not t.dtype.is_floating_point:
        return [f"min {int(t.amin())}", f"max {int(t.amax())}", f"mean {float(t.to(_C.float32).mean()):.4g}"]
    wide = t.to(_C.float32) if t.dtype.itemsize < 4 else t
    bad = int((wide != wide).sum())
    found = [f"min {float(wide.amin()):.4g}", f"max {float(wide.amax()):.4g}", f"mean {float(wide.mean()):.4g}"]
    return [*found, f"{bad} NaN"] if bad else found
