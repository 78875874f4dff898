"""What goes wrong with files."""

from __future__ import annotations

import pickle

from lucid._C import LucidError


class InvalidFileError(LucidError, RuntimeError):
    """The file is not what it should be: truncated, damaged, of another format, or made to harm."""


class UnpicklingError(LucidError, pickle.UnpicklingError):
    """The file's pickle asks for something that is not allowed, or is no pickle at all."""
