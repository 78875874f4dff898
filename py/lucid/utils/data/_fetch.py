"""Turning indices into a batch: the step that the main process and every worker share."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any


class MapFetcher:
    """Samples by index, together through `__getitems__` where the dataset has it."""

    def __init__(self, dataset: Any, auto_collation: bool, collate_fn: Callable[[Any], Any], drop_last: bool) -> None:
        self.dataset = dataset
        self.auto_collation = auto_collation
        self.collate_fn = collate_fn

    def fetch(self, index: Any) -> Any:
        if not self.auto_collation:
            return self.collate_fn(self.dataset[index])
        if getattr(self.dataset, "__getitems__", None):
            return self.collate_fn(self.dataset.__getitems__(index))
        return self.collate_fn([self.dataset[i] for i in index])


class IterableFetcher:
    """The next samples of an iterable; of the index only its length counts. StopIteration at the end."""

    def __init__(self, dataset: Any, auto_collation: bool, collate_fn: Callable[[Any], Any], drop_last: bool) -> None:
        self.iterator = iter(dataset)
        self.auto_collation = auto_collation
        self.collate_fn = collate_fn
        self.drop_last = drop_last
        self.ended = False

    def fetch(self, index: Any) -> Any:
        if self.ended:
            raise StopIteration
        if not self.auto_collation:
            return self.collate_fn(next(self.iterator))
        samples = list(itertools.islice(self.iterator, len(index)))
        self.ended = len(samples) < len(index)
        if not samples or (self.drop_last and self.ended):
            raise StopIteration
        return self.collate_fn(samples)


def fetcher_of(iterable: bool, *args: Any) -> MapFetcher | IterableFetcher:
    """The fetcher of a kind of dataset."""
    return IterableFetcher(*args) if iterable else MapFetcher(*args)
