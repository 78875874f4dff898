"""`lucid.nn`: modules, parameters, their initialisation, and the functions they call.

PyTorch's names, signatures, defaults, reprs and state dict keys. Modules are thin: a hot layer is one engine call.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from lucid._absent import teller
from lucid.nn import functional, grad, init, parallel, utils
from lucid.nn import quantized as quantized
from lucid.nn.modules import *  # noqa: F403
from lucid.nn.modules import __all__ as _modules
from lucid.nn.parallel import DataParallel
from lucid.nn.parameter import Buffer, Parameter, UninitializedBuffer, UninitializedParameter

__all__ = [
    "Buffer",
    "DataParallel",
    "Parameter",
    "UninitializedBuffer",
    "UninitializedParameter",
    "functional",
    "grad",
    "init",
    "parallel",
    "utils",
    *_modules,
]

if not TYPE_CHECKING:
    _tell = teller(__name__)

    def __getattr__(name: str) -> Any:
        return importlib.import_module("lucid.nn.attention") if name == "attention" else _tell(name)
