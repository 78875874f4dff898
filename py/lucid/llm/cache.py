"""Caches of keys and values: growing, of a fixed size, rotating (the last `window` tokens), and quantised.

A cache belongs to a batch: all its sequences have seen the same number of tokens, `offset`, of which the first
`padding[b]` of sequence `b` are padding. What a layer's cache gives are keys, values, and which tokens they are of.
"""

from __future__ import annotations

from typing import Any

import lucid
from lucid import Tensor, errors
from lucid.llm.config import Config

#: Tokens by which a growing cache grows at least.
STEP = 256


class LayerCache:
    """Keys and values (B, heads, tokens, head_dim) of one layer, in one buffer each that doubles."""

    def __init__(self, limit: int | None = None, fixed: bool = False) -> None:
        self.limit, self.fixed = limit, fixed
        self.length = 0
        self.buffers: list[Tensor] = []

    def update(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, int]:
        """Takes new keys and values; gives all, and the number of the first token among them."""
        return (*self._store([k, v]), 0)

    def reserve(self, count: int, new: list[Tensor] | None = None) -> None:
        """Makes room for `count` more tokens, at first of buffers like `new`."""
        start, end = self.length, self.length + count
        if self.limit is not None and end > self.limit:
            raise errors.ValueError(f"cache: {end} tokens do not fit into the {self.limit} of the cache")
        if self.buffers and end <= self.buffers[0].shape[2]:
            return
        room = self.limit if self.fixed and self.limit else max(2 * start, -(-end // STEP) * STEP)
        if self.limit is not None:
            room = min(room, self.limit)
        grown = []
        for i, x in enumerate(self.buffers if new is None else new):
            buffer = x.new_zeros((*x.shape[:2], room, x.shape[3]))
            if start:
                buffer[:, :, :start] = self.buffers[i][:, :, :start]
            grown.append(buffer)
        self.buffers = grown

    def _store(self, new: list[Tensor]) -> Any:
        start, end = self.length, self.length + new[0].shape[2]
        self.reserve(new[0].shape[2], new)
        for buffer, x in zip(self.buffers, new, strict=True):
            buffer[:, :, start:end] = x
        self.length = end
        return [b[:, :, :end] for b in self.buffers]

    def trim(self, count: int) -> None:
        """Forgets the last `count` tokens."""
        self.length -= count

    def reorder(self, index: Tensor) -> None:
        """Sequence `b` goes on from what was sequence `index[b]`."""
        self.buffers = [b.index_select(0, index) for b in self.buffers]

    @property
    def nbytes(self) -> int:
        """Bytes of the buffers."""
        return sum(b.numel() * b.itemsize for b in self.buffers)


class RotatingCache(LayerCache):
    """The last `window` tokens: token `n` is in place `n % window`."""

    def __init__(self, window: int) -> None:
        super().__init__()
        self.window = window

    def update(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, int]:
        start, end, window = self.length, self.length + k.shape[2], self.window
        if k.shape[2] == 1 and self.buffers and self.buffers[0].shape[2] == window and start >= window:
            at = start % window
            for buffer, x in zip(self.buffers, (k, v), strict=True):
                buffer[:, :, at : at + 1] = x
            self.length = end
            return (self.buffers[0], self.buffers[1], -1)
        first = max(start - window + 1, 0)
        joined = (
            [k, v]
            if first == start
            else [lucid.cat([self._ordered(b, first, start), x], 2) for b, x in zip(self.buffers, (k, v), strict=True)]
        )
        # What the next tokens may look at.
        kept = max(end - window, first)
        self.buffers = [x[:, :, kept - first :] for x in joined]
        self.buffers = [
            b.roll(kept % window, 2).contiguous() if end - kept == window else b.clone() for b in self.buffers
        ]
        self.length = end
        return (joined[0], joined[1], first)

    def _ordered(self, buffer: Tensor, first: int, start: int) -> Tensor:
        if start <= self.window and buffer.shape[2] == start:
            return buffer[:, :, first:start]
        return buffer.roll(-(start % self.window), 2)[:, :, self.window - (start - first) :]

    def tokens(self, device: Any) -> Tensor:
        """The numbers of the tokens in a full buffer."""
        last = self.length - 1
        return last - (last - lucid.arange(self.window, device=device)) % self.window

    def trim(self, count: int) -> None:
        if self.length > self.window:
            raise errors.ValueError("cache: a rotating cache that is full cannot forget its last tokens")
        self.length -= count
        self.buffers = [b[:, :, : self.length].clone() for b in self.buffers]


class QuantizedCache(LayerCache):
    """Keys and values in groups of `group_size` elements of `bits` bits; dequantised when they are read."""

    def __init__(self, bits: int = 8, group_size: int = 64, limit: int | None = None) -> None:
        super().__init__(limit)
        self.bits, self.group_size = bits, group_size

    def update(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, int]:
        if k.shape[-1] % self.group_size:
            raise errors.ValueError(
                f"cache: heads of {k.shape[-1]} elements do not fall into groups of {self.group_size}"
            )
        bits, group_size = self.bits, self.group_size
        parts = [lucid.quantize_affine(x, group_size=group_size, bits=bits) for x in (k, v)]
        held = self._store([*parts[0], *parts[1]])
        return (
            lucid.dequantize_affine(*held[:3], group_size=group_size, bits=bits),
            lucid.dequantize_affine(*held[3:], group_size=group_size, bits=bits),
            0,
        )


class Cache:
    """Keys and values of earlier tokens, for each layer of a model.

    Args:
        config (Config): the model's sizes.
        kind (str, optional): `"growing"`; `"static"`, which has memory for `max_size` tokens from the start on; or
            `"quantized"`. Default: `"growing"`.
        max_size (int, optional): the most tokens; needed for `"static"`. Default: no limit.
        bits (int, optional): bits of an element of a quantised cache. Default: 8.
        group_size (int, optional): how many of its elements share a scale. Default: 64.
        padding (Tensor, optional): how many tokens at the start of each sequence are padding, of shape (B,), int64.
            Default: none.
        rotating (bool, optional): whether layers with a window keep only the window's tokens. Default: True.

    Raises:
        ValueError: another kind, or `"static"` without `max_size`.

    Example:
        >>> config = lucid.llm.Config("llama", 32, 16, 32, 2, 2, 1, 8)
        >>> model, cache = lucid.llm.CausalLM(config), lucid.llm.Cache(config)
        >>> _ = model(lucid.tensor([[1, 2, 3]]), cache=cache)
        >>> cache.offset
        3
    """

    def __init__(
        self,
        config: Config,
        kind: str = "growing",
        max_size: int | None = None,
        bits: int = 8,
        group_size: int = 64,
        padding: Tensor | None = None,
        rotating: bool = True,
    ) -> None:
        if kind not in ("growing", "static", "quantized"):
            raise errors.ValueError(f"cache: kind must be growing, static or quantized, got {kind!r}")
        if kind == "static" and max_size is None:
            raise errors.ValueError("cache: a static cache needs max_size")
        self.offset = 0
        self.padding = padding
        self.layers: list[LayerCache] = []
        for window in config.layer_windows:
            if window is not None and rotating and kind != "quantized":
                self.layers.append(RotatingCache(window))
            elif kind == "quantized":
                self.layers.append(QuantizedCache(bits, group_size, max_size))
            else:
                self.layers.append(LayerCache(max_size, kind == "static"))

    def trim(self, count: int) -> None:
        """Forgets the last `count` tokens. Raises ValueError where a rotating cache is full."""
        if not 0 <= count <= self.offset:
            raise errors.ValueError(f"cache: cannot forget {count} of {self.offset} tokens")
        for layer in self.layers:
            layer.trim(count)
        self.offset -= count

    def reorder(self, index: Tensor) -> None:
        """Sequence `b` goes on from what was sequence `index[b]`."""
        for layer in self.layers:
            layer.reorder(index)
        if self.padding is not None:
            self.padding = self.padding.index_select(0, index)

    @property
    def nbytes(self) -> int:
        """Bytes of all buffers."""
        return sum(layer.nbytes for layer in self.layers)
