"""How tensors are printed, under PyTorch's private names, which packages with tensors of their own print with."""

from __future__ import annotations

from typing import Any

from lucid import Tensor, _repr
from lucid._repr import _options as PRINT_OPTS  # noqa: F401
from lucid._repr import get_printoptions as get_printoptions
from lucid._repr import printoptions as printoptions
from lucid._repr import set_printoptions as set_printoptions


def _tensor_str(self: Tensor, indent: int) -> str:
    """The elements, as inside of `tensor(...)`; lines after the first begin with `indent` spaces."""
    return "[]" if self.numel() == 0 else _repr._body(self.detach(), indent)


def _add_suffixes(tensor_str: str, suffixes: list[str], indent: int, force_newline: bool) -> str:
    """Elements, what follows them, and the closing parenthesis."""
    return _repr._with_suffixes(tensor_str, suffixes, indent, force_newline)


def _str_intern(inp: Tensor, *, tensor_contents: str | None = None) -> str:
    """`repr` of a tensor, with a text in place of its elements where one is given."""
    return _repr._tensor_repr(inp, tensor_contents)


def _str(self: Tensor, *, tensor_contents: Any = None) -> str:
    """`repr` of a tensor, with a text in place of its elements where one is given."""
    from lucid import no_grad

    with no_grad():
        return _str_intern(self, tensor_contents=tensor_contents)
