"""Errors that say where in the model they were raised: `encoder.layers.3.self_attn: …`.

A call of a module that fails passes the error on to the call around it. Each call that the error leaves knows the path
from its own module to the one below, so the message begins with the path from the outermost module that was called.
"""

from __future__ import annotations

from typing import Any

from lucid import errors
from lucid._public_names import name_call

__all__ = ["locate"]


def locate(error: errors.LucidError, module: Any, name: bool) -> None:
    """Adds to an error's message the path from a module to the submodule that raised it, and sets `error.module_path`.

    Args:
        error (LucidError): the error that leaves the call of `module`. Errors of the operating system are left alone,
            as their message is made of a number and a file.
        module (Module): the module that was called.
        name (bool): whether a message that names no function gets the class's name, where the class is Lucid's.

    Example:
        >>> net = lucid.nn.Sequential(lucid.nn.ReLU(), lucid.nn.Linear(3, 2))
        >>> try:
        ...     net(lucid.ones(1, 4))
        ... except RuntimeError as error:
        ...     print(error.module_path)
        1
    """
    if isinstance(error, OSError) or not error.args or not isinstance(error.args[0], str):
        return
    known: dict[str, Any] = error.__dict__
    below = known.get("_raised_in")
    if below is None:
        if name and type(module).__module__.startswith("lucid."):
            name_call(error, type(module).__name__)
        known["_raised_in"] = (module, "", error.args[0])
        return
    failed, path, message = below
    if failed is module:
        return
    own = next((own for own, part in module.named_modules() if part is failed), None)
    if own is None:
        return
    path = f"{own}.{path}" if path else own
    known.update(_raised_in=(module, path, message), module_path=path)
    error.args = (f"{path}: {message}", *error.args[1:])
