"""safetensors files: whole, or tensor by tensor. The format's checks are the engine's, through the `safetensors` crate.

On the CPU tensors are in the mapped file and are read when they are used; writing to one does not reach the file.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import lucid
from lucid import _C, Tensor
from lucid.serialization._source import FileSource, MappedSource

PathLike = str | os.PathLike[str]


def _path(op: str, path: Any) -> str:
    try:
        found = os.fspath(path)
    except TypeError:
        found = None
    if not isinstance(found, str):
        raise lucid.errors.TypeError(
            f"{op}: expected str or os.PathLike as the file's path, not {type(path).__name__}"
        ) from None
    return found


class _File:
    """An open file: its header, and its tensors on demand."""

    def __init__(self, op: str, path: PathLike, device: Any, mmap: bool) -> None:
        self.path = _path(op, path)
        self.device = lucid.device(lucid.get_default_device() if device is None else device)
        on_cpu = self.device.type == "cpu"
        self.file: Any = None
        self.source: Any
        try:
            size = os.stat(self.path).st_size
            if mmap and on_cpu and size:
                self.source = MappedSource(self.path)
            else:
                self.file = open(self.path, "rb")  # noqa: SIM115
                self.source = FileSource(self.file)
        except FileNotFoundError as e:
            raise lucid.errors.FileNotFoundError(f"{self.path}: {e.strerror}") from None
        except OSError as e:
            raise lucid.errors.FileError(f"{self.path}: {e.strerror}") from None
        try:
            size = self.source.size
            prefix = bytes(self.source.read(0, min(8, size)))
            head = bytes(self.source.read(0, _C._safetensors_header_len(self.path, prefix, size)))
            entries, self.metadata = self.header(head, size)
        except BaseException:
            self.close()
            raise
        self.entries = {e[0]: e for e in entries}

    def header(self, head: bytes, size: int) -> Any:
        """Its entries and texts, from the bytes of the header."""
        return _C._safetensors_header(self.path, head, size)

    def tensor(self, name: str, rows: range | None = None) -> Tensor:
        """The tensor, or consecutive rows of its first dimension."""
        if name not in self.entries:
            raise lucid.errors.ValueError(f"{self.path}: there is no tensor {name!r}")
        _, dtype, shape, start, size = self.entries[name]
        if rows is not None:
            row = size // shape[0]
            start, size, shape = start + rows.start * row, len(rows) * row, (len(rows), *shape[1:])
        data = self.source.read(start, size)
        # Unaligned data cannot be mapped.
        if isinstance(data, memoryview) and size and start % dtype.itemsize == 0:
            return lucid.frombuffer(data, dtype=dtype).reshape(list(shape))
        return _C._from_bytes(bytes(data), list(shape), dtype, self.device)

    def close(self) -> None:
        if self.file is not None:
            self.file.close()


def save_safetensors(tensors: Mapping[str, Tensor], path: PathLike, metadata: Mapping[str, str] | None = None) -> None:
    """Writes named tensors, and texts beside them, as a safetensors file.

    Tensors that share storage are written each on its own. The target is always the old file or the new one, whole.
    Raises TypeError for anything but tensors under strings, and FileError with the path.

    Args:
        tensors (Mapping[str, Tensor]): tensors of any shapes by name.
        path (PathLike): the file to write.
        metadata (Mapping[str, str], optional): texts that are stored beside the tensors.

    Raises:
        TypeError: anything but tensors under strings.

    Example:
        >>> import os, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = os.path.join(folder, "x.safetensors")
        ...     lucid.serialization.save_safetensors({"x": lucid.ones(2)}, path)
        ...     print(lucid.serialization.load_safetensors(path))
        {'x': tensor([1., 1.])}
    """
    texts = dict(metadata or {})
    if not all(isinstance(s, str) for pair in texts.items() for s in pair):
        raise lucid.errors.TypeError("save_safetensors: metadata must be a dict of strings by strings")
    _C._save_safetensors(dict(tensors), _path("save_safetensors", path), texts)


def load_safetensors(path: PathLike, device: Any = None, *, mmap: bool = False) -> dict[str, Tensor]:
    """All tensors of a safetensors file, on a device (the default one where none is given).

    With `mmap`, those on the CPU are in the mapped file, so that nothing is read before it is used; whoever shortens
    the file meanwhile ends this process when it is read (SIGBUS, mmap(2)). Raises FileNotFoundError, and FileError for
    what is no such file. `safe_open` reads single tensors and the metadata.

    Args:
        path (PathLike): the file to read.
        device (lucid.device or str, optional): where the tensors go; the default device by default.
        mmap (bool, default: False): maps the file, rather than reading it.

    Returns:
        dict of Tensors: the tensors by name, of any shapes.

    Example:
        >>> import os, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = os.path.join(folder, "x.safetensors")
        ...     lucid.serialization.save_safetensors({"x": lucid.ones(2)}, path)
        ...     print(lucid.serialization.load_safetensors(path))
        {'x': tensor([1., 1.])}
    """
    file = _File("load_safetensors", path, device, mmap)
    try:
        return {name: file.tensor(name) for name in file.entries}
    finally:
        file.close()


class _Slice:
    """A tensor that is read in part: `slice[1:3, :]`."""

    def __init__(self, file: _File, name: str) -> None:
        self._file, self._name = file, name

    def get_shape(self) -> list[int]:
        """Its sizes."""
        return list(self._file.entries[self._name][2])

    def get_dtype(self) -> Any:
        """Its dtype."""
        return self._file.entries[self._name][1]

    def __getitem__(self, index: Any) -> Tensor:
        first, rest = (index[0], index[1:]) if isinstance(index, tuple) and index else (index, ())
        shape = self.get_shape()
        if not (shape and shape[0] and isinstance(first, slice)):
            return self._file.tensor(self._name)[index].contiguous()
        rows = range(*first.indices(shape[0]))
        if rows.step < 1 or not rows:
            return self._file.tensor(self._name)[index].contiguous()
        read = self._file.tensor(self._name, range(rows.start, rows[-1] + 1))
        return read[(slice(None, None, rows.step), *rest)].contiguous()


class safe_open:
    """A safetensors file, tensor by tensor: a context manager as the `safetensors` package has it.

    Args:
        filename (PathLike): The path.
        framework (str, default: "lucid"): Accepted for that package's sake: `"pt"` or `"lucid"`.
        device (lucid.device or str, default: "cpu"): Where the tensors go; the CPU by default.

    Raises:
        FileError: the file is no safetensors file.

    Example:
        >>> import os, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = os.path.join(folder, "x.safetensors")
        ...     lucid.serialization.save_safetensors({"x": lucid.ones(2)}, path)
        ...     with lucid.serialization.safe_open(path) as file:
        ...         print(list(file.keys()))
        ['x']
    """

    def __init__(self, filename: PathLike, framework: str = "lucid", device: Any = "cpu") -> None:
        if framework not in ("pt", "lucid", "torch", "pytorch"):
            raise lucid.errors.ValueError(f"safe_open: framework should be 'pt' or 'lucid', got {framework!r}")
        self._file = _File("safe_open", filename, device, False)

    def __enter__(self) -> safe_open:
        return self

    def __exit__(self, *details: Any) -> None:
        self._file.close()

    def keys(self) -> list[str]:
        """The tensors' names, sorted."""
        return sorted(self._file.entries)

    def offset_keys(self) -> list[str]:
        """The tensors' names, in the file's order."""
        return list(self._file.entries)

    def metadata(self) -> dict[str, str] | None:
        """The texts beside the tensors; None where there are none."""
        return dict(self._file.metadata) or None

    def get_tensor(self, name: str) -> Tensor:
        """One tensor."""
        return self._file.tensor(name)

    def get_slice(self, name: str) -> _Slice:
        """One tensor, of which only the rows that are indexed are read."""
        if name not in self._file.entries:
            raise lucid.errors.ValueError(f"{self._file.path}: there is no tensor {name!r}")
        return _Slice(self._file, name)
