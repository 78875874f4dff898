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
from lucid._warnings import warn_without_effect

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
    """What `flex_attention` gives besides: log-sum-exp of the scores, their maximum.

    Args:
        lse (bool, default: False): the logarithm of the sum of the exponentials.
        max_scores (bool, default: False): the largest score.

    Example:
        >>> lucid.nn.attention.flex_attention.AuxRequest(lse=True)
        AuxRequest(lse=True, max_scores=False)
    """

    lse: bool = False
    max_scores: bool = False


class AuxOutput(NamedTuple):
    """What was asked for by `AuxRequest`; `None` where not. Each of shape `(B, H, L)`, float32.

    Args:
        lse (ForwardRef('Tensor or None'), optional): of shape (B, H, L).
        max_scores (ForwardRef('Tensor or None'), optional): of shape (B, H, L).

    Example:
        >>> lucid.nn.attention.flex_attention.AuxOutput()
        AuxOutput(lse=None, max_scores=None)
    """

    lse: Tensor | None = None
    max_scores: Tensor | None = None


def noop_mask(batch: Tensor, head: Tensor, token_q: Tensor, token_kv: Tensor) -> Tensor:
    """A mask that lets every query see every key.

    Args:
        batch (Tensor): the index of the batch, 0-d.
        head (Tensor): the index of the head, 0-d.
        token_q (Tensor): the index of the query, 0-d.
        token_kv (Tensor): the index of the key, 0-d.

    Returns:
        Tensor: true, 0-d.

    Example:
        >>> i = lucid.tensor(0)
        >>> lucid.nn.attention.flex_attention.noop_mask(i, i, i, i)
        tensor(True)
    """
    return batch.new_ones((), dtype=lucid.bool)


def and_masks(*mask_mods: MaskMod) -> MaskMod:
    """The mask of what all masks let through.

    Args:
        *mask_mods (callable): masks, of batch, head, query and key.

    Returns:
        callable: the mask of all.

    Example:
        >>> from lucid.nn.attention.flex_attention import and_masks, create_mask
        >>> mask = and_masks(lambda b, h, q, kv: q >= kv, lambda b, h, q, kv: q - kv < 2)
        >>> create_mask(mask, None, None, 3, 3)[0, 0].int()
        tensor([[1, 0, 0],
                [1, 1, 0],
                [0, 1, 1]], dtype=lucid.int32)
    """

    def mask(b: Tensor, h: Tensor, q: Tensor, kv: Tensor) -> Tensor:
        result = noop_mask(b, h, q, kv)
        for mod in mask_mods:
            result = result & mod(b, h, q, kv)
        return result

    return mask


def or_masks(*mask_mods: MaskMod) -> MaskMod:
    """The mask of what one of the masks lets through.

    Args:
        *mask_mods (callable): masks, of batch, head, query and key.

    Returns:
        callable: the mask of any.

    Example:
        >>> from lucid.nn.attention.flex_attention import create_mask, or_masks
        >>> mask = or_masks(lambda b, h, q, kv: q == kv, lambda b, h, q, kv: kv == 0)
        >>> create_mask(mask, None, None, 3, 3)[0, 0].int()
        tensor([[1, 0, 0],
                [1, 1, 0],
                [1, 0, 1]], dtype=lucid.int32)
    """

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
        mod_fn (callable): of four arguments a mask, of five a score function.
        B (int, optional): the size of the batch; None is 1.
        H (int, optional): the number of heads; None is 1.
        Q_LEN (int): the number of queries.
        KV_LEN (int): the number of keys.
        device (lucid.device or str, optional): where the table is.

    Returns:
        Tensor: (B, H, Q_LEN, KV_LEN), bool.

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


def _ordered(blocks: Tensor) -> tuple[Tensor, Tensor]:
    """Of each line of blocks, how many are set, and which: those first, in order, then the others."""
    order = blocks.to(lucid.int32).argsort(dim=-1, descending=True, stable=True)
    return blocks.sum(-1).to(lucid.int32), order.to(lucid.int32)


def _from_ordered(counts: Tensor, indices: Tensor, columns: int) -> Tensor:
    """The inverse of `_ordered`: which blocks are set."""
    places = lucid.arange(indices.shape[-1], device=indices.device)
    kept = places < counts.unsqueeze(-1)
    # What is not set goes to a column of its own, which is dropped.
    target = indices.long().masked_fill(~kept, columns)
    made = lucid.zeros(*indices.shape[:-1], columns + 1, dtype=lucid.bool, device=indices.device)
    return made.scatter(-1, target, kept)[..., :columns]


class BlockMask:
    """A mask by blocks of queries and keys; see `create_block_mask`.

    Of each line of blocks of queries, `kv_num_blocks` (B, H, query blocks) says in how many blocks of keys something is
    seen, and `kv_indices` (B, H, query blocks, key blocks) in which, these first; `full_kv_num_blocks` and
    `full_kv_indices` the same of blocks in which all is seen, which do not count in the former. `q_num_blocks`,
    `q_indices`, `full_q_num_blocks` and `full_q_indices` are those of each line of blocks of keys. All are int32.

    Args:
        mask_mod (callable): the mask, of batch, head, query and key.
        shape (tuple[int, int, int, int]): (B, H, queries, keys).
        block (tuple[int, int]): the sizes of a block of queries and keys.
        partial (Tensor): whether something and not all of each block is seen, (B, H, query blocks, key blocks), bool.
        full (Tensor): whether all of each block is seen, likewise.

    Example:
        >>> from lucid.nn.attention.flex_attention import create_block_mask
        >>> mask = create_block_mask(lambda b, h, q, kv: q >= kv, None, None, 256, 256)
        >>> mask.shape, mask.kv_num_blocks.tolist(), mask.full_kv_num_blocks.tolist()
        ((1, 1, 256, 256), [[[1, 1]]], [[[0, 1]]])
    """

    def __init__(
        self,
        mask_mod: MaskMod,
        shape: tuple[int, int, int, int],
        block: tuple[int, int],
        partial: Tensor,
        full: Tensor,
    ) -> None:
        self.mask_mod, self.shape, self.BLOCK_SIZE = mask_mod, shape, block
        self.seq_lengths = shape[2:]
        self._partial, self._full = partial, full
        #: What attention asks: the function itself, unless the blocks say more.
        self._asked = mask_mod

    @classmethod
    def from_kv_blocks(
        cls,
        kv_num_blocks: Tensor,
        kv_indices: Tensor,
        full_kv_num_blocks: Tensor | None = None,
        full_kv_indices: Tensor | None = None,
        BLOCK_SIZE: int | tuple[int, int] = _DEFAULT_SPARSE_BLOCK_SIZE,
        mask_mod: MaskMod | None = None,
        seq_lengths: tuple[int, int] | None = None,
        compute_q_blocks: bool = True,
    ) -> BlockMask:
        """Makes a mask of the blocks that are seen, of each line of blocks of queries.

        Args:
            kv_num_blocks (Tensor): in how many blocks of keys `mask_mod` decides, (B, H, query blocks).
            kv_indices (Tensor): in which, these first, (B, H, query blocks, key blocks).
            full_kv_num_blocks (Tensor, optional): how many blocks of keys are seen whole, likewise.
            full_kv_indices (Tensor, optional): which, likewise.
            BLOCK_SIZE (int | tuple[int, int], default: 128): the size of a block.
            mask_mod (callable, optional): what is seen in the blocks of `kv_indices`; all by default.
            seq_lengths (tuple[int, int], optional): the numbers of queries and keys; whole blocks by default.
            compute_q_blocks (bool, default: True): the blocks of queries are computed when they are read, in any case.

        Returns:
            BlockMask: the mask.

        Raises:
            RuntimeError: `kv_indices` has fewer than two dimensions.
            ValueError: one of `full_kv_num_blocks` and `full_kv_indices` is missing.
        """
        if kv_indices.ndim < 2:
            raise errors.RuntimeError("BlockMask must have at least 2 dimensions")
        if (full_kv_num_blocks is None) != (full_kv_indices is None):
            raise errors.ValueError("full_kv_num_blocks and full_kv_indices must be both provided or omitted")
        block = (BLOCK_SIZE, BLOCK_SIZE) if isinstance(BLOCK_SIZE, int) else (BLOCK_SIZE[0], BLOCK_SIZE[1])
        rows, columns = int(kv_indices.shape[-2]), int(kv_indices.shape[-1])
        partial = _from_ordered(kv_num_blocks, kv_indices, columns)
        if full_kv_num_blocks is None or full_kv_indices is None:
            full = lucid.zeros_like(partial)
        else:
            full = _from_ordered(full_kv_num_blocks, full_kv_indices, columns)
        sizes = (rows * block[0], columns * block[1]) if seq_lengths is None else seq_lengths
        batch = [1] * (4 - kv_indices.ndim) + [int(n) for n in kv_indices.shape[:-2]]
        inner = noop_mask if mask_mod is None else mask_mod
        made = cls(inner, (batch[0], batch[1], *sizes), block, partial, full)
        made._asked = made._by_blocks
        return made

    def _by_blocks(self, b: Tensor, h: Tensor, q: Tensor, kv: Tensor) -> Tensor:
        partial, full = (t.reshape(*self.shape[:2], *t.shape[-2:]) for t in (self._partial, self._full))
        at = (b % self.shape[0], h % self.shape[1], q // self.BLOCK_SIZE[0], kv // self.BLOCK_SIZE[1])
        return full[at] | (partial[at] & self.mask_mod(b, h, q, kv))

    @property
    def kv_num_blocks(self) -> Tensor:
        """How many blocks of keys are seen in part, of each line of blocks of queries."""
        return _ordered(self._partial)[0]

    @property
    def kv_indices(self) -> Tensor:
        """Which blocks of keys are seen in part, these first."""
        return _ordered(self._partial)[1]

    @property
    def full_kv_num_blocks(self) -> Tensor:
        """How many blocks of keys are seen whole."""
        return _ordered(self._full)[0]

    @property
    def full_kv_indices(self) -> Tensor:
        """Which blocks of keys are seen whole, these first."""
        return _ordered(self._full)[1]

    @property
    def q_num_blocks(self) -> Tensor:
        """How many blocks of queries see a block of keys in part."""
        return _ordered(self._partial.transpose(-2, -1))[0]

    @property
    def q_indices(self) -> Tensor:
        """Which blocks of queries see a block of keys in part, these first."""
        return _ordered(self._partial.transpose(-2, -1))[1]

    @property
    def full_q_num_blocks(self) -> Tensor:
        """How many blocks of queries see a block of keys whole."""
        return _ordered(self._full.transpose(-2, -1))[0]

    @property
    def full_q_indices(self) -> Tensor:
        """Which blocks of queries see a block of keys whole, these first."""
        return _ordered(self._full.transpose(-2, -1))[1]

    def to_dense(self) -> Tensor:
        """The blocks in which anything is seen: 1 or 0, of shape `(B, H, blocks of queries, blocks of keys)`."""
        return (self._partial | self._full).to(lucid.int32)

    def sparsity(self) -> float:
        """The share of blocks in which nothing is seen, in percent."""
        return 100.0 * (1 - float((self._partial | self._full).float().mean()))

    def numel(self) -> int:
        """The number of elements of the mask."""
        return math.prod(self.shape)

    def to(self, device: Any) -> BlockMask:
        """The mask on another device. Tensors that its function holds stay where they are."""
        made = BlockMask(self.mask_mod, self.shape, self.BLOCK_SIZE, self._partial.to(device), self._full.to(device))
        if self._asked is not self.mask_mod:
            made._asked = made._by_blocks
        return made

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

    Differences from PyTorch: blocks in which nothing is seen are computed too.

    Args:
        mask_mod (callable): says whether a query sees a key, of the indices b, h, q and kv.
        B (int, optional): the size of the batch; None where the mask is the same for all.
        H (int, optional): the number of heads; None where the mask is the same for all.
        Q_LEN (int): the number of queries.
        KV_LEN (int): the number of keys.
        device (lucid.device or str, optional): where it is computed.
        BLOCK_SIZE (int | tuple[int, int], default: 128): the size of a block, one for queries and keys or two.
        **options (object): each gives one warning that it has no effect.

    Returns:
        BlockMask: the mask.

    Example:
        >>> from lucid.nn.attention.flex_attention import create_block_mask
        >>> create_block_mask(lambda b, h, q, kv: q >= kv, None, None, 256, 256)
        BlockMask(shape=(1, 1, 256, 256), sparsity=25.00%)
    """
    warn_without_effect("create_block_mask", "the mask is made as it is", **dict.fromkeys(options, True))
    block = (BLOCK_SIZE, BLOCK_SIZE) if isinstance(BLOCK_SIZE, int) else tuple(BLOCK_SIZE)
    table = create_mask(mask_mod, B, H, Q_LEN, KV_LEN, device)
    more = [-Q_LEN % block[0], -KV_LEN % block[1]]
    padded = lucid.nn.functional.pad(table.to(lucid.int32), (0, more[1], 0, more[0]))
    rows, columns = (Q_LEN + more[0]) // block[0], (KV_LEN + more[1]) // block[1]
    parts = padded.reshape(*table.shape[:2], rows, block[0], columns, block[1])
    seen = parts.sum((3, 5))
    full = seen == block[0] * block[1]
    return BlockMask(mask_mod, (B or 1, H or 1, Q_LEN, KV_LEN), block, (seen > 0) & ~full, full)  # type: ignore[arg-type]


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
        query (Tensor): (B, H, L, E).
        key (Tensor): (B, H, S, E).
        value (Tensor): (B, H, S, V).
        score_mod (callable, optional): changes a score, of the score and the indices b, h, q and kv.
        block_mask (BlockMask, optional): which keys each query sees.
        scale (float, optional): the factor of the scores; 1 / √E by default.
        enable_gqa (bool, default: False): several heads of the query share one of key and value.
        return_lse (bool, default: False): also returns the logarithm of the sum of the exponentials, (B, H, L).
        kernel_options (dict, optional): without effect, with one warning: there is one kernel.
        return_aux (AuxRequest, optional): what else is returned.

    Returns:
        Tensor: (B, H, L, V), and what was asked for.

    Raises:
        ValueError: the shapes do not fit, or the mask is for fewer queries or keys.

    Example:
        >>> from lucid.nn.attention.flex_attention import flex_attention
        >>> q = lucid.ones(1, 2, 3, 4)
        >>> flex_attention(q, q, q, lambda s, b, h, q, kv: s - (q - kv).abs()).shape
        lucid.Size([1, 2, 3, 4])
    """
    warn_without_effect("flex_attention", "it has one kernel", kernel_options=bool(kernel_options))
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
        seen = _mapped(block_mask._asked, False)(*indices)
        scores = scores.masked_fill(~seen, -math.inf)
    lse = scores.logsumexp(-1)
    # Where nothing is seen, the difference is NaN; such a row is zeros.
    weights = (scores - lse.unsqueeze(-1)).exp().masked_fill((lse == -math.inf).unsqueeze(-1), 0.0)
    result = (weights @ value.to(wide)).to(query.dtype)
    if return_aux is not None:
        highest = scores.amax(-1) if return_aux.max_scores else None
        return result, AuxOutput(lse if return_aux.lse else None, highest)
    return (result, lse) if return_lse else result
