"""PyTorch's `*_copy` functions: each view of the op table as a copy, `transpose_copy` for `transpose`.

They are made from the table's rows when first asked for; there is no list of them.
"""

from __future__ import annotations

import functools
from typing import Any

from lucid import _C, errors
from lucid._warnings import warn

_SUFFIX = "_copy"
# Rows of the family whose result is a copy already, or may be one, and those that PyTorch does not count as views.
_NOT_VIEWS = {"reshape", "flatten", "contiguous", "narrow_copy"}
_NOT_VIEWS |= {"unsafe_chunk", "unsafe_split", "unsafe_split_with_sizes"}


@functools.cache
def names() -> dict[str, str]:
    """The functions, and the view that each copies."""
    views = [s["name"] for s in _C._op_schemas() if s["family"] == "view" and s["name"] not in _NOT_VIEWS]
    return {view + _SUFFIX: view for view in [*views, "detach", *_WITHOUT_NAME]}


def _slice(input: _C.Tensor, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> _C.Tensor:
    """What `input[start:end:step]` shows, along `dim`."""
    if step < 1:
        raise errors.RuntimeError("slice step must be positive")
    dim = range(input.ndim)[dim] if input.ndim else dim
    return input[(slice(None),) * dim + (slice(start, end, step),)]


def _view(input: _C.Tensor, size: Any = None, *, dtype: Any = None) -> _C.Tensor:
    """`input` under another shape, whatever its strides, as it is copied anyway; or its bytes as another dtype."""
    given = size if dtype is None else dtype
    return input.reshape(given) if isinstance(given, (tuple, list)) else input.view(dtype=given)


def _expand(input: _C.Tensor, size: Any, *, implicit: bool = False) -> _C.Tensor:
    """`expand` of a sequence of sizes."""
    if not isinstance(size, (tuple, list)):
        raise errors.TypeError(f"expand_copy(): argument 'size' must be tuple of ints, not {type(size).__name__}")
    return input.expand(size)


# Views that are no function of their own, or whose copies take other arguments.
_WITHOUT_NAME: dict[str, Any] = {
    "alias": lambda input: input.view_as(input),
    "slice": _slice,
    "view": _view,
    "expand": _expand,
}


def _copy(shown: _C.Tensor) -> _C.Tensor:
    """A copy, row-major as PyTorch's."""
    return shown.clone(memory_format=_C.contiguous_format)


def _write(name: str, out: _C.Tensor, shown: _C.Tensor) -> None:
    """Writes what a view shows to `out`, which is resized where it has another shape."""
    if out.dtype != shown.dtype:
        raise errors.RuntimeError(f"Expected out tensor to have dtype {shown.dtype}, but got {out.dtype} instead")
    if _C.is_grad_enabled() and out.requires_grad:
        raise errors.RuntimeError(
            f"{name}(): functions with out=... arguments don't support automatic differentiation, but one of the "
            "arguments requires grad."
        )
    if out.shape != shown.shape:
        if out.numel():
            warn(
                f"An output with one or more elements was resized since it had shape {list(out.shape)}, which does not "
                f"match the required output shape {list(shown.shape)}. This behavior is deprecated."
            )
        out.resize_(shown.shape)
    out.copy_(shown.detach())


def _documentation(own: str, view: Any) -> str:
    """The summary of a copying function, with the sections of its view."""
    import inspect

    summary = f"A copy of what `{own}` shows, with the same arguments."
    described = inspect.cleandoc(view.__doc__ or "")
    begin = described.find("Args:")
    if begin < 0:
        return summary
    out = "    out (Tensor, optional): of any shape; it is resized, and written to."
    arguments, end, rest = described[begin:].partition("\n\n")
    example = f"Example of the view `{own}`:"
    return f"{summary}\n\n{arguments}\n{out}{end}{rest}".replace("Example:", example)


def make(name: str) -> Any:
    """The function of that name.

    Raises:
        KeyError: there is no such view.
    """
    own = names()[name]
    view = _WITHOUT_NAME.get(own) or getattr(_C, own, None) or getattr(_C.Tensor, own)

    def copies(*args: Any, **kwargs: Any) -> Any:
        out = kwargs.pop("out", None)
        shown = view(*args, **kwargs)
        if out is not None:
            targets = out if isinstance(shown, (tuple, list)) else (out,)
            for target, source in zip(targets, shown if targets is out else (shown,), strict=True):
                _write(name, target, source)
            return out
        return type(shown)(map(_copy, shown)) if isinstance(shown, (tuple, list)) else _copy(shown)

    copies.__name__ = copies.__qualname__ = name
    copies.__doc__ = _documentation(own, view)
    return copies
