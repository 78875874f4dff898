"""Tensors to and from NumPy, PyTorch, MLX and TensorFlow, and what each can do."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
from typing import Any

from lucid import _C, errors
from lucid._convert import from_numpy as _from_array
from lucid.utils.dlpack import from_dlpack, to_dlpack

__all__ = [
    "capability_table",
    "capability_table_markdown",
    "from_mlx",
    "from_numpy",
    "from_tensorflow",
    "from_torch",
    "to_mlx",
    "to_numpy",
    "to_tensorflow",
    "to_torch",
]

_PACKAGES = {"numpy": "numpy", "torch": "torch", "mlx": "mlx.core", "tensorflow": "tensorflow"}


def _import(name: str) -> Any:
    try:
        return importlib.import_module(_PACKAGES[name])
    except ImportError as e:
        raise errors.RuntimeError(f"interop: this needs {name}, which is not installed: {e}") from None


def _tensor(op: str, x: Any) -> _C.Tensor:
    from lucid.lightning._tensor import Tensor

    if isinstance(x, Tensor):
        return x._lucid()
    if not isinstance(x, _C.Tensor):
        raise errors.TypeError(f"interop.{op}(): expected a lucid.Tensor, got {type(x).__name__}")
    return x


def _foreign(op: str, module: str, x: Any) -> None:
    if not type(x).__module__.startswith(module):
        raise errors.TypeError(f"interop.{op}(): expected a tensor of {module}, got {type(x).__name__}")


def to_numpy(x: Any) -> Any:
    """Gives a tensor as a NumPy array: a CPU tensor's memory is shared, that of a GPU is copied.

    Args:
        x (Tensor): of `lucid` or `lucid.lightning`, of any shape; not bfloat16.

    Returns:
        array: of the same shape.

    Raises:
        TypeError: `x` is no tensor, or NumPy does not have its dtype.

    Example:
        >>> from lucid.lightning import interop
        >>> interop.to_numpy(lucid.ones(2))
        array([1., 1.], dtype=float32)
    """
    tensor = _tensor("to_numpy", x).detach().cpu()
    try:
        return tensor.numpy()
    except TypeError as e:
        raise errors.DtypeMismatch(f"interop.to_numpy(): {e}") from None


def from_numpy(x: Any) -> _C.Tensor:
    """Gives a tensor that shares an array's memory.

    Args:
        x (array): of NumPy, of any shape.

    Returns:
        Tensor: of the same shape, on the CPU.

    Raises:
        TypeError: `x` is no array of NumPy, or has a dtype that tensors do not have.

    Example:
        >>> import numpy as np
        >>> from lucid.lightning import interop
        >>> interop.from_numpy(np.ones(2, np.float32))
        tensor([1., 1.])
    """
    _foreign("from_numpy", "numpy", x)
    return _from_array(x)


def to_torch(x: Any) -> Any:
    """Gives a tensor as PyTorch's, by DLPack: memory is shared on the CPU, and on CUDA; of other GPUs it is copied.

    Args:
        x (Tensor): of `lucid` or `lucid.lightning`, of any shape.

    Returns:
        torch.Tensor: of the same shape.

    Raises:
        TypeError: `x` is no tensor.
        ImportError: PyTorch is not installed.

    Example:
        >>> import importlib.util
        >>> from lucid.lightning import interop
        >>> if importlib.util.find_spec("torch"):
        ...     assert interop.to_torch(lucid.ones(2)).tolist() == [1.0, 1.0]
    """
    torch = _import("torch")
    tensor = _tensor("to_torch", x).detach()
    if tensor.device.type in ("metal", "mlx"):
        tensor = tensor.cpu()
    return torch.from_dlpack(tensor)


def from_torch(x: Any) -> _C.Tensor:
    """Gives a tensor that shares a PyTorch tensor's memory; one on a GPU that the engine does not share is copied.

    Args:
        x (torch.Tensor): of any shape; gradients are left behind.

    Returns:
        Tensor: of the same shape.

    Raises:
        TypeError: `x` is no tensor of PyTorch.

    Example:
        >>> import importlib.util
        >>> from lucid.lightning import interop
        >>> if importlib.util.find_spec("torch"):
        ...     import torch
        ...     assert interop.from_torch(torch.ones(2)).tolist() == [1.0, 1.0]
    """
    _foreign("from_torch", "torch", x)
    tensor = x.detach()
    try:
        return from_dlpack(tensor.cpu() if tensor.device.type == "mps" else tensor)
    except (BufferError, TypeError) as e:
        raise errors.TypeError(f"interop.from_torch(): PyTorch does not hand the tensor over: {e}") from None


def to_mlx(x: Any) -> Any:
    """Gives a tensor as MLX's array; the values are copied by the CPU.

    Args:
        x (Tensor): of `lucid` or `lucid.lightning`, of any shape.

    Returns:
        mlx.core.array: of the same shape.

    Raises:
        TypeError: `x` is no tensor.
        ImportError: MLX's Python package is not installed.

    Example:
        >>> import importlib.util
        >>> from lucid.lightning import interop
        >>> if importlib.util.find_spec("mlx"):
        ...     assert interop.to_mlx(lucid.ones(2)).tolist() == [1.0, 1.0]
    """
    mlx = _import("mlx")
    tensor = _tensor("to_mlx", x).detach().cpu()
    if tensor.dtype is _C.bfloat16:
        return mlx.array(tensor.float().numpy()).astype(mlx.bfloat16)
    return mlx.array(tensor.numpy())


def from_mlx(x: Any) -> _C.Tensor:
    """Gives an MLX array as a tensor; the values are copied, since MLX may give the memory to another array.

    Args:
        x (mlx.core.array): of any shape.

    Returns:
        Tensor: of the same shape, on the CPU.

    Raises:
        TypeError: `x` is no array of MLX.
        ImportError: MLX's Python package is not installed.

    Example:
        >>> import importlib.util
        >>> from lucid.lightning import interop
        >>> if importlib.util.find_spec("mlx"):
        ...     import mlx.core
        ...     assert interop.from_mlx(mlx.core.ones((2,))).tolist() == [1.0, 1.0]
    """
    _foreign("from_mlx", "mlx", x)
    mlx = _import("mlx")
    if x.dtype == mlx.bfloat16:
        return _from_array(_import("numpy").array(x.astype(mlx.float32))).to(dtype=_C.bfloat16)
    return _from_array(_import("numpy").array(x))


def to_tensorflow(x: Any) -> Any:
    """Gives a tensor as TensorFlow's, by DLPack, which shares a CPU tensor's memory.

    Args:
        x (Tensor): of `lucid` or `lucid.lightning`, of any shape.

    Returns:
        tensorflow.Tensor: of the same shape.

    Raises:
        TypeError: `x` is no tensor.
        ImportError: TensorFlow is not installed.

    Example:
        >>> import importlib.util
        >>> from lucid.lightning import interop
        >>> if importlib.util.find_spec("tensorflow"):
        ...     assert interop.to_tensorflow(lucid.ones(2)).shape == (2,)
    """
    tensorflow = _import("tensorflow")
    return tensorflow.experimental.dlpack.from_dlpack(to_dlpack(_tensor("to_tensorflow", x).detach().cpu()))


def from_tensorflow(x: Any) -> _C.Tensor:
    """Gives a tensor that shares a TensorFlow tensor's memory, by DLPack.

    Args:
        x (tensorflow.Tensor): of any shape.

    Returns:
        Tensor: of the same shape.

    Raises:
        TypeError: `x` is no tensor of TensorFlow.
        ImportError: TensorFlow is not installed.

    Example:
        >>> import importlib.util
        >>> from lucid.lightning import interop
        >>> if importlib.util.find_spec("tensorflow"):
        ...     import tensorflow
        ...     assert interop.from_tensorflow(tensorflow.ones(2)).tolist() == [1.0, 1.0]
    """
    tensorflow = _import("tensorflow")
    _foreign("from_tensorflow", "tensorflow", x)
    return from_dlpack(tensorflow.experimental.dlpack.to_dlpack(x))


_TABLE: tuple[dict[str, Any], ...] = (
    {
        "package": "numpy",
        "to": "zero-copy on the CPU",
        "from": "zero-copy",
        "by": "array interface",
        "dtypes": "no bfloat16",
    },
    {"package": "torch", "to": "zero-copy on the CPU", "from": "zero-copy", "by": "DLPack", "dtypes": "all"},
    {"package": "mlx", "to": "copy", "from": "copy", "by": "buffer", "dtypes": "no float64 on MLX's GPU"},
    {"package": "tensorflow", "to": "zero-copy on the CPU", "from": "zero-copy", "by": "DLPack", "dtypes": "all"},
)


def capability_table(*, installed: bool = True) -> list[dict[str, Any]]:
    """What tensors of each package cost to bring over, and by what way.

    Args:
        installed (bool, default: True): Add which packages are installed here, with versions.

    Returns:
        A list of dicts with `package`, `to`, `from`, `by`, `dtypes`, and with `installed` `version` (`None` where the
        package is not there).

    Example:
        >>> from lucid.lightning import interop
        >>> [row["package"] for row in interop.capability_table(installed=False)]
        ['numpy', 'torch', 'mlx', 'tensorflow']
    """
    rows = [dict(row) for row in _TABLE]
    if installed:
        for row in rows:
            try:
                row["version"] = importlib.metadata.version(row["package"])
            except importlib.metadata.PackageNotFoundError:
                row["version"] = None
    return rows


def capability_table_markdown() -> str:
    """The table without versions, as Markdown."""
    rows = capability_table(installed=False)
    lines = ["| Package | To | From | By | Dtypes |", "|---|---|---|---|---|"]
    lines += [f"| {r['package']} | {r['to']} | {r['from']} | {r['by']} | {r['dtypes']} |" for r in rows]
    return "\n".join(lines)
