"""Programs as files: a function or module recorded ahead of time, with its weights, as `torch.export` writes them.

`export` records a call as one graph without Python; `ExportedProgram.save` writes graph and weights as one file, which
`load` reads, and which Rust programs load and run without Python (`lucid::graph::load`). The format is a safetensors
file whose metadata hold the graph; it has a version and a checksum, and is replaced in one step.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lucid import errors
from lucid._warnings import warn_without_effect
from lucid.export._program import Dim, ExportedProgram, dims
from lucid.export._record import record_program

__all__ = ["Dim", "ExportedProgram", "dims", "export", "load", "save"]


def export(
    mod: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
    strict: bool = False,
    preserve_module_call_signature: Any = (),
) -> ExportedProgram:
    """Records a call of a function or module as a program that runs without Python.

    Args:
        mod (callable): a function or module. A module's parameters and buffers are the program's weights, by name;
            other tensors that it reads are kept as constants.
        args (tuple): the arguments of a call. Tensors are the program's inputs; other values are part of it.
        kwargs (dict, optional): arguments by name. Default: none.
        dynamic_shapes (dict or tuple, optional): which sizes may vary: from argument name (or, a tuple, by position) to
            a dict from dimension to `Dim`, or a tuple with a `Dim` or None per dimension. `Dim.AUTO` and `Dim.DYNAMIC`
            name one by themselves. Default: none varies.
        strict (bool, optional): the call is run in any case; True gives one warning.
        preserve_module_call_signature (sequence of str, optional): without effect, with one warning.

    Returns:
        ExportedProgram: the graph with its weights; `module()` runs it, `save` writes it.

    Raises:
        TypeError: `args` is no tuple, or `mod` cannot be called.
        RuntimeError: the call is no graph (the error names the line), a size does not vary as was said, or a step
            cannot be written to a file.

    Differences from PyTorch: programs compute no gradients; a `Dim` without `max` goes up to four times the size at
    hand, at least 64, for a program is recorded at the ends of its ranges.

    Example:
        >>> net, x = lucid.nn.Linear(3, 2), lucid.ones(2, 3)
        >>> program = lucid.export.export(net, (x,), dynamic_shapes={"input": {0: lucid.export.Dim("n")}})
        >>> program.module()(lucid.ones(5, 3)).shape
        lucid.Size([5, 2])
    """
    warn_without_effect("export", "the call is run and its ops are recorded", strict=strict)
    warn_without_effect(
        "export",
        "a program is one flat graph",
        preserve_module_call_signature=bool(preserve_module_call_signature),
    )
    if not isinstance(args, tuple):
        raise errors.TypeError(f"export(): args must be a tuple of arguments, got {type(args).__name__}")
    if not callable(mod):
        raise errors.TypeError(f"export(): expected a function or a module, got {type(mod).__name__}")
    return record_program(mod, args, dict(kwargs or {}), dynamic_shapes)


def save(ep: ExportedProgram, f: Any, *, extra_files: Any = None, opset_version: Any = None) -> None:
    """Writes a program to a file that `load` and Rust programs read.

    Args:
        ep (ExportedProgram): what `export` gives.
        f (str, os.PathLike or binary file): where it is written.
        extra_files (dict of str to str, optional): further text by name, kept in the file. Default: none.
        opset_version (dict, optional): without effect, with one warning.

    Raises:
        TypeError: `ep` is no program.

    Example:
        >>> import io
        >>> program = lucid.export.export(lambda x: x * 2, (lucid.ones(2),))
        >>> file = io.BytesIO()
        >>> lucid.export.save(program, file, extra_files={"note": "doubles"})
        >>> _ = file.seek(0)
        >>> texts = {"note": ""}
        >>> _ = lucid.export.load(file, extra_files=texts)
        >>> texts
        {'note': 'doubles'}
    """
    warn_without_effect("save", "the format has its own version", opset_version=opset_version is not None)
    if not isinstance(ep, ExportedProgram):
        raise errors.TypeError(f"export.save(): expected an ExportedProgram, got {type(ep).__name__}")
    if extra_files:
        for name, text in extra_files.items():
            ep._extra[str(name)] = text if isinstance(text, str) else bytes(text).decode("utf-8")
    if isinstance(f, (str, os.PathLike)):
        ep._write(os.fspath(f))
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "program"
        ep._write(os.fspath(path))
        f.write(path.read_bytes())


def load(f: Any, *, extra_files: Any = None, expected_opset_version: Any = None, device: Any = None) -> ExportedProgram:
    """Reads a program that `save` or `save_compiled` wrote.

    Args:
        f (str, os.PathLike or binary file): the file to read.
        extra_files (dict of str to str, optional): its keys' texts are filled in. Default: none.
        expected_opset_version (dict, optional): without effect, with one warning.
        device (device or str, optional): where it runs. Default: where it was exported, or the CPU.

    Returns:
        ExportedProgram: the graph with its weights.

    Raises:
        LucidError: the file cannot be read, is of another format or version, or is damaged.

    Example:
        >>> import io
        >>> file = io.BytesIO()
        >>> lucid.export.save(lucid.export.export(lambda x: x * 2, (lucid.ones(2),)), file)
        >>> _ = file.seek(0)
        >>> lucid.export.load(file).module()(lucid.ones(2))
        tensor([2., 2.])
    """
    warn_without_effect(
        "load", "the format has its own version", expected_opset_version=expected_opset_version is not None
    )
    if isinstance(f, (str, os.PathLike)):
        found = ExportedProgram._read(os.fspath(f), device)
    else:
        data = f.read()
        if not isinstance(data, (bytes, bytearray)):
            raise errors.TypeError("export.load(): expected a path or a file that is open in binary mode")
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "program"
            path.write_bytes(data)
            found = ExportedProgram._read(os.fspath(path), device)
    for name in extra_files or ():
        extra_files[name] = found._extra.get(name, "")
    return found
