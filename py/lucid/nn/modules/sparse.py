"""Tables of vectors."""

from __future__ import annotations

from typing import Any

import lucid
from lucid import Tensor
from lucid.nn import functional as F
from lucid.nn import init
from lucid.nn.modules.module import Module
from lucid.nn.parameter import Parameter

__all__ = ["Embedding", "EmbeddingBag"]


class Embedding(Module):
    """Vectors by index: integers (…) to (…, embedding_dim).

    `weight` (num_embeddings, embedding_dim) starts standard normal.

    Args:
        num_embeddings (int): How many vectors.
        embedding_dim (int): Their size.
        padding_idx (int, optional): An index whose vector is zero at first and gets no gradient.
        max_norm (float, optional): Vectors that are used and longer are first scaled down to this.
        norm_type (float, default: 2.0): Of which norm.
        scale_grad_by_freq (bool, default: False): Whether gradients are divided by how often an index occurs.
        sparse (bool, default: False): Whether the gradient is a sparse tensor of the rows that were looked up.
        device (lucid.device or str, optional): where the result is made; the current default device by default.
        dtype (lucid.dtype, optional): the dtype of the result; that of the arguments, or the default dtype, by
            default.

    Raises:
        ValueError: `padding_idx` is out of range, or a given weight has another shape.

    Example:
        >>> from lucid import nn
        >>> nn.Embedding(10, 3)(lucid.tensor([[1, 2], [4, 5]])).shape
        lucid.Size([2, 2, 3])
    """

    weight: Parameter

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
        _weight: Tensor | None = None,
        _freeze: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        if padding_idx is not None:
            if not -num_embeddings <= padding_idx < num_embeddings:
                raise AssertionError(
                    f"Padding_idx must be within num_embeddings, got {padding_idx} for {num_embeddings}"
                )
            padding_idx %= num_embeddings
        self.num_embeddings = num_embeddings
        self.embedding_dim = embedding_dim
        self.padding_idx = padding_idx
        self.max_norm = max_norm
        self.norm_type = norm_type
        self.scale_grad_by_freq = scale_grad_by_freq
        self.sparse = sparse
        if _weight is None:
            blank = lucid.empty((num_embeddings, embedding_dim), device=device, dtype=dtype)
            self.weight = Parameter(blank, not _freeze)
            self.reset_parameters()
        else:
            if tuple(_weight.shape) != (num_embeddings, embedding_dim):
                raise AssertionError(
                    f"Shape of weight does not match num_embeddings and embedding_dim, got {list(_weight.shape)}"
                )
            self.weight = Parameter(_weight, not _freeze)

    def reset_parameters(self) -> None:
        """Draws new vectors."""
        init.normal_(self.weight)
        if self.padding_idx is not None:
            with lucid.no_grad():
                self.weight[self.padding_idx].fill_(0)

    def forward(self, input: Tensor) -> Tensor:
        return F.embedding(
            input,
            self.weight,
            self.padding_idx,
            self.max_norm,
            self.norm_type,
            self.scale_grad_by_freq,
            self.sparse,
        )

    def extra_repr(self) -> str:
        return _described(self) + (", sparse=True" if self.sparse else "")

    @classmethod
    def from_pretrained(
        cls,
        embeddings: Tensor,
        freeze: bool = True,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
    ) -> Embedding:
        """A table of given vectors (count, size); `freeze` keeps gradients from it."""
        if embeddings.dim() != 2:
            raise AssertionError(
                f"{cls.__name__}: Embeddings parameter is expected to be 2-dimensional, got {embeddings.dim()}-d"
            )
        rows, columns = embeddings.shape
        return cls(rows, columns, padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse, embeddings, freeze)


class EmbeddingBag(Module):
    """Sums, means or maxima of bags of vectors by index: (bags, length), or (total) with offsets, to (bags, size).

    Args:
        num_embeddings (int): How many vectors.
        embedding_dim (int): Their size.
        max_norm (float, optional): As in `Embedding`.
        norm_type (float, default: 2.0): As in `Embedding`.
        scale_grad_by_freq (bool, default: False): As in `Embedding`; not with "max".
        mode (str, default: "mean"): "sum", "mean" or "max".
        sparse (bool, default: False): As in `Embedding`; not with "max".
        include_last_offset (bool, default: False): Whether the last offset is the end of the last bag.
        padding_idx (int, optional): An index that counts nothing, whose vector is zero at first.
        device (lucid.device or str, optional): where the result is made; the current default device by default.
        dtype (lucid.dtype, optional): the dtype of the result; that of the arguments, or the default dtype, by
            default.

    Raises:
        ValueError: `padding_idx` is out of range, or a given weight has another shape.

    Example:
        >>> from lucid import nn
        >>> nn.EmbeddingBag(10, 3)(lucid.tensor([[1, 2], [4, 5]])).shape
        lucid.Size([2, 3])
    """

    weight: Parameter

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        mode: str = "mean",
        sparse: bool = False,
        _weight: Tensor | None = None,
        include_last_offset: bool = False,
        padding_idx: int | None = None,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.num_embeddings = num_embeddings
        self.embedding_dim = embedding_dim
        self.max_norm = max_norm
        self.norm_type = norm_type
        self.scale_grad_by_freq = scale_grad_by_freq
        if padding_idx is not None:
            if not -num_embeddings <= padding_idx < num_embeddings:
                raise AssertionError("padding_idx must be within num_embeddings")
            padding_idx %= num_embeddings
        self.padding_idx = padding_idx
        if _weight is None:
            self.weight = Parameter(lucid.empty((num_embeddings, embedding_dim), device=device, dtype=dtype))
            self.reset_parameters()
        else:
            if tuple(_weight.shape) != (num_embeddings, embedding_dim):
                raise AssertionError(
                    f"Shape of weight does not match num_embeddings and embedding_dim, got {list(_weight.shape)}"
                )
            self.weight = Parameter(_weight)
        self.mode = mode
        self.sparse = sparse
        self.include_last_offset = include_last_offset

    def reset_parameters(self) -> None:
        """Draws new vectors."""
        init.normal_(self.weight)
        if self.padding_idx is not None:
            with lucid.no_grad():
                self.weight[self.padding_idx].fill_(0)

    def forward(self, input: Tensor, offsets: Tensor | None = None, per_sample_weights: Tensor | None = None) -> Tensor:
        return F.embedding_bag(
            input,
            self.weight,
            offsets,
            self.max_norm,
            self.norm_type,
            self.scale_grad_by_freq,
            self.mode,
            self.sparse,
            per_sample_weights,
            self.include_last_offset,
            self.padding_idx,
        )

    def extra_repr(self) -> str:
        text = f"{self.num_embeddings}, {self.embedding_dim}"
        if self.max_norm is not None:
            text += f", max_norm={self.max_norm}"
        if self.norm_type != 2:
            text += f", norm_type={self.norm_type}"
        if self.scale_grad_by_freq:
            text += f", scale_grad_by_freq={self.scale_grad_by_freq}"
        text += f", mode={self.mode!r}"
        if self.padding_idx is not None:
            text += f", padding_idx={self.padding_idx}"
        return text

    @classmethod
    def from_pretrained(
        cls,
        embeddings: Tensor,
        freeze: bool = True,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        mode: str = "mean",
        sparse: bool = False,
        include_last_offset: bool = False,
        padding_idx: int | None = None,
    ) -> EmbeddingBag:
        """A table of given vectors (count, size); `freeze` keeps gradients from it."""
        if embeddings.dim() != 2:
            raise AssertionError(
                f"{cls.__name__}: Embeddings parameter is expected to be 2-dimensional, got {embeddings.dim()}-d"
            )
        rows, columns = embeddings.shape
        made = cls(
            rows,
            columns,
            max_norm,
            norm_type,
            scale_grad_by_freq,
            mode,
            sparse,
            embeddings,
            include_last_offset,
            padding_idx,
        )
        made.weight.requires_grad_(not freeze)
        return made


def _described(module: Any) -> str:
    text = f"{module.num_embeddings}, {module.embedding_dim}"
    if module.padding_idx is not None:
        text += f", padding_idx={module.padding_idx}"
    if module.max_norm is not None:
        text += f", max_norm={module.max_norm}"
    if module.norm_type != 2:
        text += f", norm_type={module.norm_type}"
    if module.scale_grad_by_freq is not False:
        text += f", scale_grad_by_freq={module.scale_grad_by_freq}"
    return text
