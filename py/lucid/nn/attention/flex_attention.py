"""Attention with scores and masks that a function computes, as `torch.nn.attention.flex_attention`.

The functions are called once, under `vmap` over batch, head, query and key. All scores are in memory at a time, of
shape `(B, H, L, S)`: PyTorch's fused kernel needs less.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import lucid
from lucid import Tensor, errors

__all__ = [
    "AuxOutput",
    "AuxRequest",
    "BlockMask",
    "and_masks",
    "create_block_mask",
    "create_mask",
    "flex_attention",
    "noop_mask",
    "or_masks",
]

_DEFAULT_SPARSE_BLOCK_SIZE = 128
MaskMod = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
ScoreMod = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]


class AuxRequest(NamedTuple):
    """What `flex_attention` gives besides: log-sum-exp of the scores, their maximum."""

    lse: bool = False
    max_scores: bool = False


class AuxOutput(NamedTuple):
    """What was asked for by `AuxRequest`; `None` where not. Each of shape `(B, H, L)`, float32."""

    lse: Tensor | None = None
    max_scores: Tensor | None = None


def noop_mask(batch: Tensor, head: Tensor, token_q: Tensor, token_kv: Tensor) -> Tensor:
    """A mask that lets every query see every key."""
    return batch.new_ones((), dtype=lucid.bool)


def and_masks(*mask_mods: MaskMod) -> MaskMod:
    """The mask of what all masks let through."""

    def mask(b: Tensor, h: Tensor, q: Tensor, kv: Tensor) -> Tensor:
        result = noop_mask(b, h, q, kv)
        for mod in mask_mods:
            result = result & mod(b, h, q, kv)
        return result

    return mask


def or_masks(*mask_mods: MaskMod) -> MaskMod:
    """The mask of what one of the masks lets through."""

    def mask(b: Tensor, h: Tensor, q: Tensor, kv: Tensor) -> Tensor:
        result = b.new_zeros((), dtype=lucid.bool)
        for mod in mask_mods:
            result = result | mod(b, h, q, kv)
        return result

    return mask


def _mapped(fn: Callable[..., Tensor], score: bool) -> Callable[..., Tensor]:
    """A function of indices as one of all of them: outermost the batch, innermost the key."""
    for at in reversed(range(4)):
        dims = [None] * 4
        dims[at] = 0  # type: ignore[call-overload]
        fn = lucid.vmap(fn, in_dims=(0, *dims) if score else tuple(dims))
    return fn


def _indices(sizes: tuple[int, ...], device: Any) -> list[Tensor]:
    return [lucid.arange(n, device=device) for n in sizes]


def create_mask(
    mod_fn: MaskMod | ScoreMod, B: int | None, H: int | None, Q_LEN: int, KV_LEN: int, device: Any = None
) -> Tensor:
    """Tabulates a mask, or where a score function gives more than minus infinity.

    Args:
        mod_fn: of four arguments a mask, of five a score function.
        B, H: sizes of batch and heads; `None` for 1.
        Q_LEN, KV_LEN: numbers of queries and keys.
        device: where the table is.

    Returns:
        A tensor of bools of shape `(B, H, Q_LEN, KV_LEN)`.

    Example:
        >>> from lucid.nn.attention.flex_attention import create_mask
        >>> create_mask(lambda b, h, q, kv: q >= kv, None, None, 2, 2)[0, 0]
        tensor([[ True, False],
                [ True,  True]])
    """
    import inspect

    sizes = (B or 1, H or 1, Q_LEN, KV_LEN)
    score = len(inspect.signature(mod_fn).parameters) == 5
    given = [lucid.zeros(sizes, device=device)] if score else []
    table = _mapped(mod_fn, score)(*given, *_indices(sizes, device))
    return table > -math.inf if score else table


class BlockMask:
    """A mask by blocks of queries and keys; see `create_block_mask`.

    Attributes:
        seq_lengths: the numbers of queries and keys. mask_mod: the mask. BLOCK_SIZE: of a block.
        shape: `(B, H, queries, keys)`.
    """

    def __init__(
        self, mask_mod: MaskMod, shape: tuple[int, int, int, int], block: tuple[int, int], blocks: Tensor
    ) -> None:
        self.mask_mod, self.shape, self.BLOCK_SIZE = mask_mod, shape, block
        self.seq_lengths = shape[2:]
        self._blocks = blocks

    def to_dense(self) -> Tensor:
        """The blocks in which anything is seen: 1 or 0, of shape `(B, H, blocks of queries, blocks of keys)`."""
        return self._blocks

    def sparsity(self) -> float:
        """The share of blocks in which nothing is seen, in percent."""
        return 100.0 * (1 - float(self._blocks.float().mean()))

    def numel(self) -> int:
        """The number of elements of the mask."""
        return math.prod(self.shape)

    def to(self, device: Any) -> BlockMask:
        """The mask on another device. Tensors that its function holds stay where they are."""
        return BlockMask(self.mask_mod, self.shape, self.BLOCK_SIZE, self._blocks.to(device))

    def __repr__(self) -> str:
        return f"BlockMask(shape={self.shape}, sparsity={self.sparsity():.2f}%)"


def create_block_mask(
    mask_mod: MaskMod,
    B: int | None,
    H: int | None,
    Q_LEN: int,
    KV_LEN: int,
    device: Any = None,
    BLOCK_SIZE: int | tuple[int, int] = _DEFAULT_SPARSE_BLOCK_SIZE,
    _compile: bool = False,
    **options: Any,
) -> BlockMask:
    """Makes a mask for `flex_attention`.

    Args:
        mask_mod: `mask_mod(b, h, q, kv)` gives whether a query sees a key, of four indices.
        B, H: sizes of batch and heads; `None` if the mask is the same for all.
        Q_LEN, KV_LEN: numbers of queries and keys.
        device: where it is computed.
        BLOCK_SIZE: of a block of queries and keys, for `sparsity`.

    Returns:
        A `BlockMask`.

    Differences from PyTorch: blocks in which nothing is seen are computed too.

    Example:
        >>> from lucid.nn.attention.flex_attention import create_block_mask
        >>> create_block_mask(lambda b, h, q, kv: q >= kv, None, None, 256, 256)
        BlockMask(shape=(1, 1, 256, 256), sparsity=25.00%)
    """
    block = (BLOCK_SIZE, BLOCK_SIZE) if isinstance(BLOCK_SIZE, int) else tuple(BLOCK_SIZE)
    table = create_mask(mask_mod, B, H, Q_LEN, KV_LEN, device)
    more = [-Q_LEN % block[0], -KV_LEN % block[1]]
    padded = lucid.nn.functional.pad(table.to(lucid.int32), (0, more[1], 0, more[0]))
    rows, columns = (Q_LEN + more[0]) // block[0], (KV_LEN + more[1]) // block[1]
    parts = padded.reshape(*table.shape[:2], rows, block[0], columns, block[1])
    blocks = (parts.sum((3, 5)) > 0).to(lucid.int32)
    return BlockMask(mask_mod, (B or 1, H or 1, Q_LEN, KV_LEN), block, blocks)  # type: ignore[arg-type]


def flex_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    score_mod: ScoreMod | None = None,
    block_mask: BlockMask | None = None,
    scale: float | None = None,
    enable_gqa: bool = False,
    return_lse: bool = False,
    kernel_options: Any = None,
    *,
    return_aux: AuxRequest | None = None,
) -> Any:
    """Attention with scores that a function changes, and a mask.

        softmax(score_mod(query key^T * scale, b, h, q, kv) where the mask lets through) value

    Args:
        query: of shape `(B, H, L, E)`.
        key: of shape `(B, H, S, E)`; with `enable_gqa` fewer heads, of which `H` is a multiple.
        value: of shape `(B, H, S, F)`.
        score_mod: `score_mod(score, b, h, q, kv)` of a score and four indices. Gradients go to what it uses.
        block_mask: of `create_block_mask`.
        scale: by default `1 / sqrt(E)`.
        enable_gqa: whether several heads of the query share one of key and value.
        return_lse: whether to give the log-sum-exp too. return_aux: what to give besides.
        kernel_options: of PyTorch's kernel; there is none to choose here.

    Returns:
        A tensor of shape `(B, H, L, F)`, or a tuple of it and what was asked for. A query that sees no key gives zeros.

    Raises:
        ValueError: the shapes do not fit, or the mask is for fewer queries or keys.

    Example:
        >>> from lucid.nn.attention.flex_attention import flex_attention
        >>> q = lucid.ones(1, 2, 3, 4)
        >>> flex_attention(q, q, q, lambda s, b, h, q, kv: s - (q - kv).abs()).shape
        lucid.Size([1, 2, 3, 4])
    """
    if query.ndim != 4 or key.ndim != 4 or value.ndim != 4:
        raise errors.ValueError(
            f"NYI: query, key, and value must be 4D tensors, got {query.ndim}, {key.ndim}, {value.ndim}"
        )
    if query.shape[-1] != key.shape[-1] or key.shape[:3] != value.shape[:3]:
        shapes = f"{list(query.shape)}, {list(key.shape)}, {list(value.shape)}"
        raise errors.ValueError(f"flex_attention: the shapes of query, key and value do not fit: {shapes}")
    heads = query.shape[1]
    if key.shape[1] != heads:
        if not enable_gqa or heads % key.shape[1]:
            raise errors.ValueError(
                f"flex_attention: query has {heads} heads, key {key.shape[1]}; set enable_gqa for a multiple"
            )
        key, value = (t.repeat_interleave(heads // key.shape[1], 1) for t in (key, value))
    sizes = (query.shape[0], heads, query.shape[2], key.shape[2])
    if block_mask is not None and (sizes[2] > block_mask.shape[2] or sizes[3] > block_mask.shape[3]):
        raise errors.ValueError(
            f"flex_attention: block_mask was created for {block_mask.shape}, the scores have {sizes}"
        )
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    # Scores of 16-bit floats are float32, as in PyTorch's kernel.
    wide = lucid.float64 if query.dtype is lucid.float64 else lucid.float32
    scores = (query.to(wide) @ key.to(wide).transpose(-1, -2)) * scale
    indices = _indices(sizes, query.device)
    if score_mod is not None:
        scores = _mapped(score_mod, True)(scores, *indices)
    if block_mask is not None:
        seen = _mapped(block_mask.mask_mod, False)(*indices)
        scores = scores.masked_fill(~seen, -math.inf)
    lse = scores.logsumexp(-1)
    # Where nothing is seen, the difference is NaN; such a row is zeros.
    weights = (scores - lse.unsqueeze(-1)).exp().masked_fill((lse == -math.inf).unsqueeze(-1), 0.0)
    result = (weights @ value.to(wide)).to(query.dtype)
    if return_aux is not None:
        highest = scores.amax(-1) if return_aux.max_scores else None
        return result, AuxOutput(lse if return_aux.lse else None, highest)
    return (result, lse) if return_lse else result
