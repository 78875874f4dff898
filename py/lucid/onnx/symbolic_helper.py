"""Names of `torch.onnx.symbolic_helper`, with which packages write rules for PyTorch's older exporter of graphs.

`lucid.onnx.export` has rules of its own: what such a rule would write is not asked for, so that decorating one gives it
back, and calling a helper says so.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from lucid import errors

__all__ = ["parse_args"]

F = TypeVar("F", bound=Callable[..., Any])


def parse_args(*arg_descriptors: str) -> Callable[[F], F]:
    """A decorator of rules that PyTorch's older exporter calls. `lucid.onnx.export` calls none.

    Args:
        *arg_descriptors (str): the kinds of the rule's arguments, as "v", "i" and "none"; without effect.

    Returns:
        callable: gives the rule itself.

    Example:
        >>> from lucid.onnx.symbolic_helper import parse_args
        >>> @parse_args("v", "i")
        ... def rule(g, x, dim): ...
        >>> rule.__name__
        'rule'
    """
    return lambda rule: rule


if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

        def helper(*args: Any, **kwargs: Any) -> Any:
            raise errors.NotImplementedError(
                f"symbolic_helper.{name}: rules for PyTorch's older exporter are not run; lucid.onnx.export has its own"
            )

        helper.__name__ = helper.__qualname__ = name
        return helper
