"""Docstrings that functions share with the ops they call: the sections are written once, in engine/ops/docs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def share_sections(function: Callable[..., Any], op: Callable[..., Any], **arguments: str) -> None:
    """Gives a function the sections of an op's docstring after its own summary.

    Parameters that the function does not have are left out.

    Args:
        function (callable): a Python function, whose docstring is its summary.
        op (callable): the op that it calls.
        arguments (str): for each parameter that the function adds, its type in parentheses and its description.
    """
    lines = (op.__doc__ or "").splitlines()
    if "Args:" not in lines:
        return
    code = function.__code__
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    start = lines.index("Args:")
    end = lines.index("", start)
    described = [line for line in lines[start + 1 : end] if line.split(" ", 5)[4] in names]
    # The function's own words come first where it has some.
    described = [line for line in described if line.split(" ", 5)[4] not in arguments]
    described += [f"    {name} {about}" for name, about in arguments.items()]
    summary = [line.removeprefix("    ") for line in (function.__doc__ or "").rstrip().splitlines()]
    function.__doc__ = "\n".join([*summary, "", "Args:", *described, *lines[end:]])


def share_in_place(function: Callable[..., Any], plain: Callable[..., Any]) -> None:
    """Gives the in-place form of a function the sections of the plain one, but for `inplace`.

    Args:
        function (callable): the in-place form, whose docstring is its summary.
        plain (callable): the function that makes a new tensor.
    """
    whole = plain.__doc__ or ""
    if "\n    Args:" in whole:
        whole = "\n".join(line.removeprefix("    ") for line in whole.splitlines())
    sections = [line for line in whole[whole.find("Args:") :].splitlines() if not line.lstrip().startswith("inplace (")]
    result = sections.index("Returns:") + 1 if "Returns:" in sections else 0
    if result:
        sections[result] = "    Tensor: `input` itself, which holds the result."
    function.__doc__ = "\n".join([(function.__doc__ or "").rstrip(), "", *sections])


def share_arguments(cls: type, like: type, *without: str) -> None:
    """Gives a class the `Args:` section of another one, after its own summary.

    Args:
        cls (type): a class whose docstring has no such section.
        like (type): a class whose docstring has one.
        without (str): the names of arguments that `cls` does not have.
    """
    source, own = (like.__doc__ or "").splitlines(), cls.__doc__ or ""
    start = next(i for i, line in enumerate(source) if line.strip() == "Args:")
    end = next((i for i in range(start, len(source)) if not source[i].strip()), len(source))
    indent = len(source[start]) - len(source[start].lstrip()) + 4
    lines: list[str] = []
    dropped = False
    for line in source[start + 1 : end]:
        if not line[indent].isspace():
            dropped = line.split()[0] in without
        if not dropped:
            lines.append(line)
    before, example, after = own.partition("    Example:")
    cls.__doc__ = "\n".join([before.rstrip(), "", source[start], *lines, "", example + after])
