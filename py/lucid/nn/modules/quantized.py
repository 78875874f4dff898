"""Layers whose weights are quantised in groups: packed words, scales and biases, as `lucid.quantize_affine` makes
them."""

from __future__ import annotations

from typing import Any

import lucid
from lucid import Tensor, errors
from lucid.nn.modules.linear import Linear
from lucid.nn.modules.module import Module
from lucid.nn.modules.sparse import Embedding
from lucid.nn.parameter import Parameter

__all__ = ["QuantizedEmbedding", "QuantizedLinear"]

GROUPS = (32, 64, 128)
BITS = (2, 3, 4, 5, 6, 8)


def _check(op: str, columns: int, group_size: int, bits: int) -> None:
    if group_size not in GROUPS or bits not in BITS:
        raise errors.ValueError(
            f"{op}: group_size must be one of {GROUPS} and bits one of {BITS}, got group_size={group_size}, bits={bits}"
        )
    if columns % group_size:
        raise errors.ValueError(f"{op}: rows of {columns} elements do not fall into groups of {group_size}")


class _Quantized(Module):
    """Buffers `weight` (int32), `scales` and `biases` of a matrix (rows, columns), or of several (E, rows, columns)."""

    weight: Tensor
    scales: Tensor
    biases: Tensor
    #: Are activations rounded to 8 bits (`lucid.dynamic_quantized_matmul`)? On the CPU, for 4 and 8 bits.
    dynamic: bool = False

    def __init__(
        self, shape: tuple[int, ...], group_size: int, bits: int, device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__()
        _check(type(self).__name__, shape[-1], group_size, bits)
        self.group_size, self.bits = group_size, bits
        lead, groups = shape[:-1], shape[-1] // group_size
        words = shape[-1] // 32 * bits
        # "blank" is for loaders: one element of memory, which stands for all until the real ones are set.
        shapes = (*lead, words), (*lead, groups), (*lead, groups)
        for name, size, value in zip(("weight", "scales", "biases"), shapes, (0, 1, 0), strict=True):
            of = lucid.int32 if name == "weight" else dtype or lucid.get_default_dtype()
            if device == "blank":
                made = lucid.full((1,) * len(size), value, dtype=of, device="cpu").expand(size)
            else:
                made = lucid.full(size, value, dtype=of, device=device)
            self.register_buffer(name, made)

    @property
    def in_bytes(self) -> int:
        """Bytes of the packed words, scales and biases."""
        return sum(t.numel() * t.itemsize for t in (self.weight, self.scales, self.biases))

    def set_packed(self, weight: Tensor, scales: Tensor, biases: Tensor) -> None:
        """Takes what `lucid.quantize_affine` gave; shapes must be those that the layer has."""
        for name, given in (("weight", weight), ("scales", scales), ("biases", biases)):
            own = getattr(self, name)
            if own.shape != given.shape:
                raise errors.ValueError(
                    f"{type(self).__name__}: {name} has shape {tuple(given.shape)}, expected {tuple(own.shape)}"
                )
        if weight.dtype != lucid.int32:
            raise errors.TypeError(f"{type(self).__name__}: packed words must be int32, not {weight.dtype}")
        self.weight, self.scales, self.biases = weight, scales, biases

    def set_weight(self, weight: Tensor) -> None:
        """Quantises `weight`."""
        self.set_packed(*lucid.quantize_affine(weight.detach(), group_size=self.group_size, bits=self.bits))

    def product(self, input: Tensor) -> Tensor:
        """`x Wᵀ` with the matrix `W`."""
        parts, group = (self.scales, self.biases), self.group_size
        if self.dynamic:
            return lucid.dynamic_quantized_matmul(
                input, self.weight, f"affine{self.bits}", *parts, group_size=group
            )
        return lucid.quantized_matmul(input, self.weight, *parts, group_size=group, bits=self.bits)

    def dequantize(self) -> Tensor:
        """The weight as floats."""
        parts = (self.weight, self.scales, self.biases)
        made: Tensor = lucid.dequantize_affine(*parts, group_size=self.group_size, bits=self.bits)
        return made


class QuantizedLinear(_Quantized):
    """`Linear` with a quantised weight: `y = x Wᵀ + b`, (…, in_features) to (…, out_features).

    The weight takes no gradient, the input and the bias do. PyTorch has no such layer; mlx.nn's has the same format.

    Args:
        in_features (int): Size of each input row; a multiple of `group_size`.
        out_features (int): Size of each output row.
        bias (bool, default: True): Whether there is a bias.
        group_size (int, default: 64): Neighbours of a row that share scale and bias: 32, 64 or 128.
        bits (int, default: 4): Bits of an element: 2, 3, 4, 5, 6 or 8.
        device (lucid.device or str, optional): where the result is made; the current default device by default.
        dtype (lucid.dtype, optional): the dtype of the result; that of the arguments, or the default dtype, by
            default.

    Example:
        >>> from lucid import nn
        >>> nn.QuantizedLinear(64, 2)(lucid.zeros(1, 64)).shape
        lucid.Size([1, 2])
    """

    bias: Parameter | None

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        group_size: int = 64,
        bits: int = 4,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__((out_features, in_features), group_size, bits, device, dtype)
        self.in_features, self.out_features = in_features, out_features
        self.register_parameter(
            "bias", Parameter(lucid.zeros(out_features, device=device, dtype=dtype)) if bias else None
        )

    @classmethod
    def from_linear(cls, linear: Linear, group_size: int = 64, bits: int = 4) -> QuantizedLinear:
        """The layer with `linear`'s weight quantised, and its bias."""
        weight = linear.weight
        made = cls(
            linear.in_features, linear.out_features, False, group_size, bits, device=weight.device, dtype=weight.dtype
        )
        made.set_weight(weight)
        made.bias = linear.bias
        return made.train(linear.training)

    def forward(self, input: Tensor) -> Tensor:
        made = self.product(input)
        return made if self.bias is None else made + self.bias

    def extra_repr(self) -> str:
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}, "
            f"group_size={self.group_size}, bits={self.bits}"
        )


class QuantizedEmbedding(_Quantized):
    """`Embedding` with a quantised table: integers (*) to (*, embedding_dim).

    Only the rows that are looked up are dequantised. `as_linear` multiplies with the table, for models that tie it to
    their output.

    Args:
        num_embeddings (int): Rows of the table.
        embedding_dim (int): Size of a row; a multiple of `group_size`.
        group_size (int, default: 64): 32, 64 or 128.
        bits (int, default: 4): 2, 3, 4, 5, 6 or 8.
        device (lucid.device or str, optional): where the result is made; the current default device by default.
        dtype (lucid.dtype, optional): the dtype of the result; that of the arguments, or the default dtype, by
            default.

    Example:
        >>> from lucid import nn
        >>> nn.QuantizedEmbedding(10, 64)(lucid.tensor([1, 2])).shape
        lucid.Size([2, 64])
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        group_size: int = 64,
        bits: int = 4,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__((num_embeddings, embedding_dim), group_size, bits, device, dtype)
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim

    @classmethod
    def from_embedding(cls, embedding: Embedding, group_size: int = 64, bits: int = 4) -> QuantizedEmbedding:
        """The layer with `embedding`'s table quantised; one with `max_norm` is refused."""
        if embedding.max_norm is not None:
            raise errors.ValueError("QuantizedEmbedding: a table with max_norm changes when it is read")
        weight = embedding.weight
        made = cls(
            embedding.num_embeddings,
            embedding.embedding_dim,
            group_size,
            bits,
            device=weight.device,
            dtype=weight.dtype,
        )
        made.set_weight(weight)
        return made.train(embedding.training)

    def forward(self, input: Tensor) -> Tensor:
        rows = [lucid.nn.functional.embedding(input.reshape(-1), t) for t in (self.scales, self.biases)]
        words = self.weight.index_select(0, input.reshape(-1))
        made = lucid.dequantize_affine(words, *rows, group_size=self.group_size, bits=self.bits)
        return made.reshape(*input.shape, self.embedding_dim)

    def as_linear(self, input: Tensor) -> Tensor:
        """`x Tᵀ` with the table `T`: (…, embedding_dim) to (…, num_embeddings)."""
        return self.product(input)

    def extra_repr(self) -> str:
        return f"{self.num_embeddings}, {self.embedding_dim}, group_size={self.group_size}, bits={self.bits}"
