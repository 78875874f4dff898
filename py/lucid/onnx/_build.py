"""The graph that is built: values by tensor, nodes, constants."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

import lucid
from lucid import Tensor, errors


class OnnxExporterError(errors.RuntimeError):
    """A program that cannot be written as an ONNX graph: the message names the op and what to do."""


def package() -> Any:
    """The package `onnx`.

    Raises:
        ImportError: where it is not installed.
    """
    try:
        return importlib.import_module("onnx")
    except ImportError as e:
        raise ImportError("lucid.onnx.export needs the package onnx: pip install onnx") from e


def elem_type(dtype: lucid.dtype) -> int:
    """ONNX's number of a dtype."""
    names = {
        lucid.float32: "FLOAT",
        lucid.float64: "DOUBLE",
        lucid.float16: "FLOAT16",
        lucid.int64: "INT64",
        lucid.int32: "INT32",
        lucid.int16: "INT16",
        lucid.int8: "INT8",
        lucid.uint8: "UINT8",
        lucid.bool: "BOOL",
    }
    if dtype not in names:
        raise OnnxExporterError(f"onnx.export: ONNX's operators do not take {dtype}; convert to float32 first")
    return int(getattr(package().TensorProto, names[dtype]))


class Builder:
    """Nodes in order, and the names of values.

    Attributes:
        dynamic: for the op that is translated, which sizes of its result vary, by position.
        shape: the result's shape.
    """

    def __init__(self, opset: int) -> None:
        self.onnx, self.opset = package(), opset
        self.nodes: list[Any] = []
        self.initializers: dict[str, Any] = {}
        self.names: dict[int, str] = {}
        # Values by id stay alive, so that ids stay theirs.
        self.kept: list[Tensor] = []
        self.labels: dict[int, str] = {}
        self.op = ""
        self.shape: tuple[int, ...] = ()
        self.dynamic: tuple[bool, ...] = ()
        self._count = 0

    def fresh(self, hint: str) -> str:
        """A name that is not taken."""
        self._count += 1
        return f"{hint}_{self._count}"

    def constant(self, t: Tensor) -> str:
        """A tensor that is stored in the file."""
        name = self.labels.get(id(t)) or self.fresh("constant")
        if name not in self.initializers:
            elem_type(t.dtype)
            # The package needs NumPy, too.
            array = t.detach().cpu().contiguous().numpy()
            self.initializers[name] = self.onnx.numpy_helper.from_array(array, name)
        return name

    def of(self, x: Any, like: Tensor | None = None) -> str:
        """The name of a tensor's value, or of a number's, in the dtype of another tensor."""
        if isinstance(x, Tensor):
            found = self.names.get(id(x))
            if found is None:
                found = self.names[id(x)] = self.constant(x)
                self.kept.append(x)
            return found
        dtype = like.dtype if like is not None else None
        if dtype is not None and not dtype.is_floating_point and isinstance(x, float):
            dtype = lucid.get_default_dtype()
        return self.constant(lucid.tensor(x, dtype=dtype, device="cpu"))

    def ints(self, values: Sequence[int]) -> str:
        """A constant list of integers, as shapes and axes are given."""
        return self.constant(lucid.tensor(list(values), dtype=lucid.int64, device="cpu"))

    def emit(self, op: str, *inputs: str, outputs: int = 1, **attributes: Any) -> Any:
        """Adds a node. The name of its result, or a list of several."""
        made = [self.fresh(op) for _ in range(outputs)]
        given = {k: v for k, v in attributes.items() if v is not None}
        self.nodes.append(self.onnx.helper.make_node(op, list(inputs), made, **given))
        return made[0] if outputs == 1 else made

    def reshape(self, x: str, shape: Sequence[int], dynamic: Sequence[bool] | None = None) -> str:
        """`x` in another shape, of which one size may vary."""
        dynamic = self.dynamic if dynamic is None else dynamic
        if sum(dynamic) > 1:
            raise OnnxExporterError(f"onnx.export: {self.op} makes a shape whose sizes vary; fix all but one")
        sizes = [-1 if i < len(dynamic) and dynamic[i] else n for i, n in enumerate(shape)]
        return str(self.emit("Reshape", x, self.ints(sizes)))

    def cast(self, x: str, dtype: lucid.dtype) -> str:
        """`x` in another dtype."""
        return str(self.emit("Cast", x, to=elem_type(dtype)))
