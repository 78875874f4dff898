"""How indices become a batch."""

from __future__ import annotations

from lucid.utils.data._fetch import IterableFetcher as _IterableDatasetFetcher  # noqa: F401
from lucid.utils.data._fetch import MapFetcher as _MapDatasetFetcher  # noqa: F401
