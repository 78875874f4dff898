"""Read-only memory, and index arrays that another thread changes: typed errors, and nothing is touched elsewhere."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import lucid
import pytest

np = pytest.importorskip("numpy")


def read_only() -> Any:
    array = np.arange(12.0, dtype=np.float32).reshape(3, 4)
    array.setflags(write=False)
    return lucid.from_numpy(array)


AT = lucid.tensor([0, 2])
WRITES: dict[str, Callable[[Any], Any]] = {
    "index_put_": lambda x: x.index_put_((AT,), lucid.tensor(1.0)),
    "index_put_ accumulate": lambda x: x.index_put_((AT,), lucid.tensor(1.0), accumulate=True),
    "setitem by indices": lambda x: x.__setitem__(AT, 1.0),
    "setitem by a mask": lambda x: x.__setitem__(x > 3, 1.0),
    "setitem by a slice": lambda x: x.__setitem__(slice(1), 1.0),
    "scatter_": lambda x: x.scatter_(0, lucid.zeros(1, 4, dtype=lucid.int64), lucid.ones(1, 4)),
    "scatter_ number": lambda x: x.scatter_(0, lucid.zeros(1, 4, dtype=lucid.int64), 1.0),
    "scatter_add_": lambda x: x.scatter_add_(0, lucid.zeros(1, 4, dtype=lucid.int64), lucid.ones(1, 4)),
    "scatter_reduce_": lambda x: x.scatter_reduce_(0, lucid.zeros(1, 4, dtype=lucid.int64), lucid.ones(1, 4), "amax"),
    "index_add_": lambda x: x.index_add_(0, AT, lucid.ones(2, 4)),
    "index_copy_": lambda x: x.index_copy_(0, AT, lucid.ones(2, 4)),
    "index_fill_": lambda x: x.index_fill_(0, AT, 1.0),
    "index_reduce_": lambda x: x.index_reduce_(0, AT, lucid.ones(2, 4), "amax"),
    "put_": lambda x: x.put_(AT, lucid.ones(2)),
    "masked_fill_": lambda x: x.masked_fill_(x > 3, 1.0),
    "masked_scatter_": lambda x: x.masked_scatter_(x > 3, lucid.ones(12)),
    "fill_": lambda x: x.fill_(1.0),
    "zero_": lambda x: x.zero_(),
    "copy_": lambda x: x.copy_(lucid.ones(3, 4)),
    "add_": lambda x: x.add_(1.0),
    "fill_diagonal_": lambda x: x.fill_diagonal_(1.0),
    "out": lambda x: lucid.add(lucid.ones(3, 4), 1.0, out=x),
    "index_select out": lambda x: lucid.index_select(lucid.ones(3, 4), 0, lucid.tensor([0, 1, 2]), out=x),
    "normal_": lambda x: x.normal_(),
    "sort out": lambda x: lucid.sort(lucid.ones(3, 4), out=(x, lucid.zeros(3, 4, dtype=lucid.int64))),
}


@pytest.mark.parametrize("name", WRITES)
def test_writes_to_read_only_memory_are_typed_errors(name: str) -> None:
    x = read_only()
    with pytest.raises(lucid.LucidError) as raised:
        WRITES[name](x)
    assert type(raised.value).__name__ != "InternalError", raised.value
    assert isinstance(raised.value, RuntimeError)
    assert "not writable" in str(raised.value)
    assert x.flatten().tolist() == list(range(12))


N, ROWS = 50_000, 100
READS: dict[str, Callable[[Any], Any]] = {
    "index": lambda at: lucid.arange(ROWS)[at],
    "index rows": lambda at: lucid.arange(ROWS * 3).reshape(ROWS, 3)[at],
    "index columns": lambda at: lucid.arange(ROWS * 2).reshape(2, ROWS)[:, at],
    "index_select": lambda at: lucid.arange(ROWS).index_select(0, at),
    "gather": lambda at: lucid.arange(ROWS).gather(0, at),
    "gather columns": lambda at: lucid.arange(ROWS * 2).reshape(2, ROWS).gather(1, at.expand(2, N)),
    "take": lambda at: lucid.arange(ROWS).take(at),
    "embedding": lambda at: lucid.nn.functional.embedding(at, lucid.ones(ROWS, 2)),
    "index_put_": lambda at: lucid.zeros(ROWS).index_put_((at,), lucid.ones(N)),
    "index_put_ accumulate": lambda at: lucid.zeros(ROWS).index_put_((at,), lucid.ones(N), accumulate=True),
    "scatter_": lambda at: lucid.zeros(ROWS).scatter_(0, at, lucid.ones(N)),
    "scatter_add": lambda at: lucid.zeros(ROWS).scatter_add(0, at, lucid.ones(N)),
    "scatter columns": lambda at: lucid.zeros(2, ROWS).scatter_add(1, at.expand(2, N), lucid.ones(2, N)),
    "index_add_": lambda at: lucid.zeros(ROWS).index_add_(0, at, lucid.ones(N)),
    "bincount": lambda at: at.bincount(),
    "one_hot": lambda at: lucid.nn.functional.one_hot(at[:100]),
    "nll_loss": lambda at: lucid.nn.functional.nll_loss(lucid.zeros(N, ROWS), at),
}


@pytest.mark.parametrize("name", READS)
def test_indices_that_change_meanwhile(name: str) -> None:
    array = np.zeros(N, dtype=np.int64)
    at = lucid.from_numpy(array)
    done = threading.Event()
    far = [0, 1 << 40, ROWS - 1, -(1 << 40), ROWS, (1 << 63) - 1]

    def write() -> None:
        i = 0
        while not done.is_set():
            # Mostly in range, so that checks pass and what they checked changes.
            array[:] = 1
            array[i % N :: 97] = far[i % len(far)]
            i += 1

    writer = threading.Thread(target=write)
    writer.start()
    typed = 0
    try:
        for _ in range(40):
            try:
                READS[name](at)
            except (lucid.LucidError, IndexError, RuntimeError, ValueError) as e:
                assert type(e).__name__ != "InternalError", e
                typed += 1
    finally:
        done.set()
        writer.join()
    array[:] = 1
    READS[name](at)


def test_an_index_is_written_to_itself() -> None:
    # The index array shows the memory that is written to: refused as in PyTorch, or read as it was; never waited for.
    for write in (
        lambda at, view: at.index_put_((view,), lucid.tensor([5, 6, 7])),
        lambda at, view: at.scatter_(0, view, lucid.tensor([5, 6, 7])),
        lambda at, view: at.index_add_(0, view, lucid.tensor([5, 6, 7])),
        lambda at, view: at.index_copy_(0, view, lucid.tensor([5, 6, 7])),
    ):
        at = lucid.tensor([2, 0, 1])
        for view in (at, at.view(3), lucid.from_numpy(at.numpy())):
            at.copy_(lucid.tensor([2, 0, 1]))
            try:
                write(at, view)
            except RuntimeError as e:
                assert "memory location" in str(e)
            else:
                assert at.tolist() in ([6, 7, 5], [8, 7, 6])


def test_threads_that_index_each_others_arrays() -> None:
    # Locks are taken in one order, whatever is read and what is written.
    a, b = lucid.zeros(1000, dtype=lucid.int64), lucid.zeros(1000, dtype=lucid.int64)

    def work(x: Any, y: Any) -> None:
        for _ in range(400):
            x.index_put_((y,), y)
            x.scatter_(0, y, y)

    threads = [threading.Thread(target=work, args=pair) for pair in ((a, b), (b, a), (a, b), (b, a))]
    for t in threads:
        t.start()
    for t in threads:
        t.join(timeout=60)
    assert not any(t.is_alive() for t in threads)


def test_out_of_range_is_named() -> None:
    with pytest.raises(IndexError, match="index 5 is out of bounds for dimension 0 with size 3"):
        lucid.zeros(3, 2)[lucid.tensor([5])]
    with pytest.raises(IndexError, match="index -4 is out of bounds"):
        lucid.zeros(3)[lucid.tensor([[0], [-4]]).expand(2, 300)]
    with pytest.raises(IndexError, match="index 3 is out of bounds"):
        lucid.zeros(3).index_put_((lucid.tensor([0, 3]),), lucid.ones(2))
