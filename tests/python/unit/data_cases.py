"""Datasets and functions that worker processes import; at the top of a module of their own, since they are spawned."""

from __future__ import annotations

import os
import random
import time
from typing import Any

import lucid
from lucid.utils.data import Dataset, IterableDataset, get_worker_info


class Rows(Dataset[Any]):
    """Sample `i` is a vector of `i`s, and where it was made."""

    def __init__(self, n: int, size: int = 4) -> None:
        self.n, self.size = n, size

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, i: int) -> Any:
        info = get_worker_info()
        return {
            "x": lucid.full((self.size,), float(i)),
            "i": i,
            "worker": -1 if info is None else info.id,
            "pid": os.getpid(),
            "mlx": int(lucid._C._gpu_in_use()),
        }


class Draws(Dataset[Any]):
    """What the generators of a worker give first."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, i: int) -> Any:
        info = get_worker_info()
        assert info is not None
        return info.id, info.seed, random.random(), float(lucid.rand(()).item())


class Fails(Dataset[Any]):
    """Sample 3 raises."""

    def __init__(self, how: str) -> None:
        self.how = how

    def __len__(self) -> int:
        return 6

    def __getitem__(self, i: int) -> int:
        if i == 3:
            if self.how == "value":
                raise ValueError("bad sample")
            if self.how == "key":
                raise KeyError("two\nlines")
            if self.how == "odd":
                raise Odd(1, 2)
            if self.how == "local":
                raise type("Local", (RuntimeError,), {})("only here")
            if self.how == "exit":
                os._exit(3)
            if self.how == "kill":
                os.kill(os.getpid(), 9)
            if self.how == "sys":
                raise SystemExit(4)
            if self.how == "slow":
                time.sleep(60)
            if self.how == "unpicklable":
                return lambda: None  # type: ignore[return-value]
        return i


class Odd(Exception):
    """An exception with arguments of its own."""

    def __init__(self, a: int, b: int) -> None:
        super().__init__(f"{a} {b}")


class Sharded(IterableDataset[int]):
    """`0, …, n - 1`, every worker its share."""

    def __init__(self, n: int, told: int | None = None) -> None:
        self.n, self.told = n, told

    def __len__(self) -> int:
        if self.told is None:
            raise TypeError("no length")
        return self.told

    def __iter__(self) -> Any:
        info = get_worker_info()
        return iter(range(self.n)) if info is None else iter(range(info.id, self.n, info.num_workers))


class Unsharded(IterableDataset[int]):
    """The same for every worker; the iterator fails where asked to."""

    def __init__(self, n: int, fails: bool = False) -> None:
        self.n, self.fails = n, fails

    def __iter__(self) -> Any:
        if self.fails:
            raise ValueError("no iterator")
        return iter(range(self.n))


class Heavy(Dataset[Any]):
    """A tensor large enough for shared memory, and an array beside it."""

    def __len__(self) -> int:
        return 8

    def __getitem__(self, i: int) -> Any:
        import numpy as np

        shared = lucid.full((3, 20_000), float(i))
        return {"t": shared, "same": shared, "a": np.full(50_000, i), "b": lucid.ones(2, dtype=lucid.bfloat16), "i": i}


def first(batch: list[Any]) -> Any:
    """A collate function that leaves a sample as it is."""
    return batch[0]


def on_gpu(batch: list[int]) -> Any:
    """A collate function that a worker process must refuse."""
    return lucid.ones(2, device="gpu")


def init_fails(worker: int) -> None:
    raise ValueError(f"worker {worker} cannot begin")


def init_marks(worker: int) -> None:
    os.environ["LUCID_TEST_WORKER"] = str(worker)


def mark(batch: list[int]) -> tuple[str, list[int]]:
    return os.environ.get("LUCID_TEST_WORKER", ""), batch


class Unloadable:
    """Pickles, and fails when it is unpickled."""

    def __len__(self) -> int:
        return 3

    def __getitem__(self, i: int) -> int:
        return i

    def __reduce__(self) -> Any:
        return _refuse, ()


def _refuse() -> Any:
    raise ValueError("does not come back")
