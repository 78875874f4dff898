"""Layers over ggml's blocks as a GGUF file stores them, for the CPU: activations are rounded to 8 bits for products.

`load_model(path, activations="int8")` makes them; they infer, and have no form of their own in files.
"""

from __future__ import annotations

from typing import Any

import lucid
from lucid import _C, Tensor, errors, nn
from lucid.nn.parameter import Parameter

#: Formats that `lucid.dynamic_quantized_matmul` multiplies with, and the elements and bytes of their blocks.
FORMATS = {"Q4_0": (32, 18), "Q8_0": (32, 34), "Q4_K": (256, 144), "Q5_K": (256, 176), "Q6_K": (256, 210)}


class Blocks(nn.Module):
    """A matrix (rows, columns) as a buffer `blocks` of bytes (rows, bytes of a row)."""

    blocks: Tensor

    def __init__(self, rows: int, columns: int, format: str) -> None:
        super().__init__()
        if format not in FORMATS:
            raise errors.ValueError(f"{type(self).__name__}: the format {format!r} is none of {', '.join(FORMATS)}")
        size, width = FORMATS[format]
        self.rows, self.columns, self.format = rows, columns, format
        shape = (rows, columns // size * width)
        # One element of memory until a loader sets the real ones.
        self.register_buffer("blocks", lucid.zeros((1, 1), dtype=lucid.uint8, device="cpu").expand(shape))

    def product(self, x: Tensor) -> Tensor:
        """`x Wᵀ`: (…, columns) to (…, rows)."""
        return lucid.dynamic_quantized_matmul(x, self.blocks, self.format)

    def extra_repr(self) -> str:
        return f"{self.rows}, {self.columns}, {self.format}"


class BlockLinear(Blocks):
    """`nn.Linear` over blocks."""

    bias: Parameter | None

    def __init__(self, rows: int, columns: int, format: str, bias: Any = None) -> None:
        super().__init__(rows, columns, format)
        self.register_parameter("bias", bias)

    def forward(self, input: Tensor) -> Tensor:
        made = self.product(input)
        return made if self.bias is None else made + self.bias


class BlockEmbedding(Blocks):
    """`nn.Embedding` over blocks; `as_linear` multiplies with the table."""

    def forward(self, input: Tensor) -> Tensor:
        rows = self.blocks.index_select(0, input.reshape(-1))
        made = _C._gguf_dequantize(rows.reshape(-1), self.format, [rows.shape[0], self.columns])
        return made.reshape(*input.shape, self.columns)

    def as_linear(self, input: Tensor) -> Tensor:
        """`x Tᵀ` with the table `T`."""
        return self.product(input)


def refuse(op: str, model: nn.Module) -> None:
    """Raises NotImplementedError for a model with such layers, which has no form to be written in."""
    if any(isinstance(m, Blocks) for m in model.modules()):
        raise errors.NotImplementedError(f"{op}: the model was loaded with activations='int8'; load it without")
