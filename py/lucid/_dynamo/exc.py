"""Errors of `torch._dynamo`, for `except`: nothing raises them."""

from __future__ import annotations


class TorchDynamoException(RuntimeError):
    """The base of the compiler's errors."""


class Unsupported(TorchDynamoException):
    """A program that PyTorch's tracer cannot trace."""


class InternalTorchDynamoError(TorchDynamoException):
    """A fault of PyTorch's tracer."""


class UserError(Unsupported):
    """A program that uses the compiler in a wrong way."""


class BackendCompilerFailed(TorchDynamoException):
    """A fault of a compiler."""


class RecompileError(TorchDynamoException):
    """A function that would be compiled again, where that is not allowed."""
