"""Keys and values of prompts that were read, so that what later prompts share with them is not read again."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path

import lucid
from lucid import Tensor, errors
from lucid.llm.cache import Cache
from lucid.llm.model import CausalLM
from lucid.serialization._safetensors import _File, save_safetensors

_MOST_TOKENS = 1 << 24


def fingerprint(model: CausalLM) -> str:
    """A digest of a model's sizes and of some of its weights: files of other models are refused."""
    digest = hashlib.sha256(repr(model.config).encode())
    layer = model.model.layers[-1]
    first = next(layer.parameters())
    for tensor in (model.model.norm.weight, first.reshape(-1)[:4096]):
        digest.update(repr(tensor.detach().to("cpu").float().tolist()).encode())
    return digest.hexdigest()


def _shared(a: Sequence[int], b: Sequence[int]) -> int:
    """How many tokens two lists begin with in common."""
    count = 0
    for x, y in zip(a, b, strict=False):
        if x != y:
            break
        count += 1
    return count


class PrefixCache:
    """Keys and values of prompts, found again by the tokens that a prompt begins with; the least used go first.

    Args:
        model (CausalLM): the model that reads the prompts.
        max_bytes (int, optional): the most memory for keys and values. Default: 1 GiB.

    Raises:
        ValueError: `max_bytes` is negative.

    Example:
        >>> model = lucid.llm.CausalLM(lucid.llm.Config("llama", 32, 16, 32, 2, 2, 1, 8))
        >>> prefixes = lucid.llm.PrefixCache(model)
        >>> _ = lucid.llm.generate(model, [[1, 2, 3, 4]], 2, prefixes=prefixes)
        >>> prefixes.find([1, 2, 3, 9]).offset
        3
    """

    def __init__(self, model: CausalLM, max_bytes: int = 1 << 30) -> None:
        if max_bytes < 0:
            raise errors.ValueError(f"PrefixCache: max_bytes must be 0 or more, got {max_bytes}")
        self.config, self.device = model.config, model.device
        self._model = fingerprint(model)
        self.max_bytes = max_bytes
        # From the least recently used on.
        self._entries: list[tuple[list[int], Cache]] = []
        self.hits = 0

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def nbytes(self) -> int:
        """Bytes of all keys and values."""
        return sum(cache.nbytes for _, cache in self._entries)

    def find(self, tokens: Sequence[int]) -> Cache:
        """A cache of the longest beginning of `tokens` that is known, at least one token short of all; perhaps empty.

        What is done with it does not change what is kept.
        """
        best, at = 0, -1
        for i, (known, _) in enumerate(self._entries):
            count = min(_shared(known, tokens), len(tokens) - 1)
            if count > best:
                best, at = count, i
        made = Cache(self.config, rotating=False)
        if at >= 0:
            entry = self._entries.pop(at)
            self._entries.append(entry)
            self.hits += 1
            for own, held in zip(made.layers, entry[1].layers, strict=True):
                # Full as they are: whoever adds a token copies first.
                own.buffers = [b[:, :, :best] for b in held.buffers]
                own.length = best
            made.offset = best
        return made

    def put(self, tokens: Sequence[int], cache: Cache) -> None:
        """Keeps a cache of one sequence, which has seen `tokens`. It may go on being used."""
        tokens = list(tokens)
        if cache.offset != len(tokens) or cache.padding is not None:
            raise errors.ValueError(f"PrefixCache: the cache has seen {cache.offset} tokens, not {len(tokens)}")
        kept = Cache(self.config, rotating=False)
        for own, held in zip(kept.layers, cache.layers, strict=True):
            own.buffers = [b[:, :, : len(tokens)].clone() for b in held.buffers]
            own.length = len(tokens)
        kept.offset = len(tokens)
        # What it begins with is found in it too.
        self._entries = [e for e in self._entries if _shared(e[0], tokens) < len(e[0])]
        self._entries.append((tokens, kept))
        while self._entries and self.nbytes > self.max_bytes:
            self._entries.pop(0)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes all to one safetensors file, which `load` reads."""
        tensors: dict[str, Tensor] = {}
        for i, (_, cache) in enumerate(self._entries):
            for layer, held in enumerate(cache.layers):
                for name, buffer in zip(("keys", "values"), held.buffers, strict=True):
                    tensors[f"{i}.{layer}.{name}"] = buffer.contiguous().to("cpu")
        listed = json.dumps([tokens for tokens, _ in self._entries])
        if not tensors:
            tensors["empty"] = lucid.zeros(1)
        save_safetensors(tensors, path, {"tokens": listed, "model": self._model})

    def load(self, path: str | os.PathLike[str]) -> None:
        """Takes what a file of `save` has. Raises FileError for damaged files, ValueError for those of other models."""
        file = _File("load", str(path), "cpu", True)
        try:
            notes = file.metadata or {}
            try:
                listed = json.loads(notes["tokens"])
                good = isinstance(listed, list) and all(
                    isinstance(row, list)
                    and 0 < len(row) <= _MOST_TOKENS
                    and all(type(t) is int and 0 <= t < self.config.vocab_size for t in row)
                    for row in listed
                )
            except (KeyError, TypeError, ValueError, RecursionError):
                good = False
            if not good:
                raise errors.FileError(f"{Path(path)}: is no prefix cache of prompts")
            if notes.get("model") != self._model:
                raise errors.ValueError(f"{Path(path)}: the cache is of another model")
            c = self.config
            for i, tokens in enumerate(listed):
                cache = Cache(c, rotating=False)
                shape = (1, c.num_key_value_heads, len(tokens), c.head_dim)
                for layer, own in enumerate(cache.layers):
                    names = [f"{i}.{layer}.{n}" for n in ("keys", "values")]
                    if any(n not in file.entries for n in names):
                        raise errors.FileError(f"{Path(path)}: lacks {names[0]} or {names[1]}")
                    own.buffers = [file.tensor(n).clone().to(self.device) for n in names]
                    if any(tuple(b.shape) != shape for b in own.buffers):
                        raise errors.FileError(f"{Path(path)}: {names[0]} has not the shape {shape}")
                    own.length = len(tokens)
                cache.offset = len(tokens)
                self.put(tokens, cache)
        finally:
            file.close()
