"""`rendezvous`: where a job's processes find one another."""

from __future__ import annotations

import os
from collections.abc import Iterator
from urllib.parse import parse_qs, urlsplit

from lucid import errors
from lucid.distributed.store import Store, TCPStore


def rendezvous(
    url: str, rank: int = -1, world_size: int = -1, timeout: float = 1800.0
) -> Iterator[tuple[Store, int, int]]:
    """Finds a job's store by a URL: yields the store, this process's rank and the world size.

    Args:
        url (str): `env://`, which reads MASTER_ADDR, MASTER_PORT, RANK and WORLD_SIZE of the environment, or
            `tcp://host:port?rank=R&world_size=N`. Rank 0 serves the store.
        rank (int, optional): this process's rank, where the URL does not say it. Default: -1, not given.
        world_size (int, optional): how many processes there are, where the URL does not say it. Default: -1, not given.
        timeout (float, optional): how many seconds to wait for the store. Default: 1800.

    Yields:
        tuple of (Store, int, int): the store, the rank and the world size.

    Raises:
        ValueError: the URL is neither `env://` nor `tcp://`.
        KeyError: a variable of `env://` is not set.

    Example:
        >>> from lucid.distributed import rendezvous
        >>> store, rank, size = next(rendezvous("tcp://127.0.0.1:0?rank=0&world_size=1"))
        >>> store.set("key", "value")
        >>> store.get("key"), rank, size
        (b'value', 0, 1)
    """
    parts = urlsplit(url)
    query = parse_qs(parts.query)
    if parts.scheme == "env":
        rank = int(os.environ["RANK"]) if rank < 0 else rank
        world_size = int(os.environ["WORLD_SIZE"]) if world_size < 0 else world_size
        host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    elif parts.scheme == "tcp":
        rank = int(query["rank"][0]) if "rank" in query else rank
        world_size = int(query["world_size"][0]) if "world_size" in query else world_size
        host, port = parts.hostname or "", parts.port or 0
    else:
        raise errors.ValueError(f"rendezvous: '{url}' is not env:// or tcp://")
    agent = parts.scheme == "env" and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    yield TCPStore(host, port, world_size, rank == 0 and not agent, timeout), rank, world_size
