"""Datasets, samplers, collation and the loader, whose workers may die, hang, raise and be abandoned."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from collections import Counter, OrderedDict, namedtuple
from pathlib import Path
from typing import Any

import data_cases as cases
import lucid
import pytest
from lucid.utils import data
from lucid.utils.data import DataLoader

KINDS = ("process", "thread")
SHM = Path("/dev/shm")


@pytest.fixture(autouse=True)
def _no_advice_about_processors() -> Any:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "This DataLoader will create")
        yield


def segments() -> set[str]:
    """Shared memory of loaders, of any process: their names begin so."""
    return {p.name for p in SHM.glob("lucid????????_*")} if SHM.exists() else set()


def numbers(batches: Any) -> list[int]:
    return [int(i) for b in batches for i in b]


# ---- datasets and samplers -------------------------------------------------------------------------------------------


def test_datasets() -> None:
    x, y = lucid.arange(6).reshape(3, 2), lucid.arange(3)
    t = data.TensorDataset(x, y)
    assert len(t) == 3
    assert t[1][0].tolist() == [2, 3]
    with pytest.raises(AssertionError, match="Size mismatch"):
        data.TensorDataset(x, lucid.arange(2))
    c = data.ConcatDataset([cases.Rows(2), cases.Rows(3)])
    assert len(c) == 5
    assert (c[4]["i"], c[-1]["i"], c[1]["i"], c[-5]["i"]) == (2, 2, 1, 0)
    with pytest.raises(ValueError, match="absolute value"):
        c[-6]
    with pytest.raises(AssertionError):
        data.ConcatDataset([])
    with pytest.raises(AssertionError, match="IterableDataset"):
        data.ConcatDataset([cases.Sharded(2)])
    assert list(cases.Sharded(2) + cases.Sharded(3)) == [0, 1, 0, 1, 2]
    assert len(data.ChainDataset([cases.Sharded(2, 2), cases.Sharded(3, 3)])) == 5
    s = data.StackDataset(a=cases.Rows(3), b=t)
    assert s[2]["b"][1].item() == 2
    assert [r["a"]["i"] for r in s.__getitems__([2, 0])] == [2, 0]
    with pytest.raises(ValueError, match="At least one"):
        data.StackDataset()
    with pytest.raises(ValueError, match="both types"):
        data.StackDataset(t, a=t)
    with pytest.raises(ValueError, match="Size mismatch"):
        data.StackDataset(t, cases.Rows(2))
    sub = data.Subset(t, [2, 0])
    assert [r[1].item() for r in sub.__getitems__([0, 1])] == [2, 0]
    assert len(cases.Rows(1) + cases.Rows(2)) == 3
    with pytest.raises(NotImplementedError):
        data.Dataset[Any]()[0]

    class Half(data.Subset[Any]):
        def __getitem__(self, idx: Any) -> Any:
            return None

    with pytest.raises(NotImplementedError, match="__getitems__"):
        Half(t, [0])


def test_random_split() -> None:
    parts = data.random_split(range(10), [3, 7], generator=lucid.Generator().manual_seed(1))  # type: ignore[arg-type]
    again = data.random_split(range(10), [3, 7], generator=lucid.Generator().manual_seed(1))  # type: ignore[arg-type]
    assert [list(p.indices) for p in parts] == [list(p.indices) for p in again]
    assert sorted([*parts[0].indices, *parts[1].indices]) == list(range(10))
    assert [len(p) for p in data.random_split(range(10), [0.33, 0.33, 0.34])] == [4, 3, 3]  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="Sum of input lengths"):
        data.random_split(range(10), [3, 3])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="not between"):
        data.random_split(range(10), [-0.5, 1.5])  # type: ignore[arg-type]
    with pytest.warns(UserWarning, match="might result in an empty dataset"):
        data.random_split(range(1), [0.5, 0.5])  # type: ignore[arg-type]


def test_samplers() -> None:
    assert list(data.SequentialSampler(range(3))) == [0, 1, 2]
    g = lucid.Generator().manual_seed(0)
    first, second = list(data.RandomSampler(range(9), generator=g)), list(data.RandomSampler(range(9), generator=g))
    assert sorted(first) == sorted(second) == list(range(9))
    assert first != second
    lucid.manual_seed(3)
    a = list(data.RandomSampler(range(9)))
    lucid.manual_seed(3)
    assert a == list(data.RandomSampler(range(9)))
    more = list(data.RandomSampler(range(4), num_samples=10))
    assert sorted(more[:4]) == sorted(more[4:8]) == list(range(4))
    assert len(more) == 10
    drawn = list(data.RandomSampler(range(3), replacement=True, num_samples=100))
    assert set(drawn) == {0, 1, 2}
    assert len(drawn) == 100
    with pytest.raises(TypeError, match="replacement"):
        data.RandomSampler(range(3), replacement=1)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="num_samples"):
        data.RandomSampler(range(3), num_samples=-1)
    assert sorted(data.SubsetRandomSampler([5, 7, 9])) == [5, 7, 9]
    assert list(data.BatchSampler(range(5), 2, False)) == [[0, 1], [2, 3], [4]]
    assert list(data.BatchSampler(range(5), 2, True)) == [[0, 1], [2, 3]]
    assert [len(data.BatchSampler(range(5), 2, drop)) for drop in (False, True)] == [3, 2]
    for size in (0, True, 1.5):
        with pytest.raises(ValueError, match="batch_size"):
            data.BatchSampler(range(5), size, False)  # type: ignore[arg-type]


def test_weighted_sampler_follows_its_weights() -> None:
    g = lucid.Generator().manual_seed(5)
    drawn = Counter(data.WeightedRandomSampler([1.0, 0.0, 3.0], 4000, generator=g))
    assert drawn[1] == 0
    assert abs(drawn[2] / drawn[0] - 3) < 0.4
    firsts = Counter(
        next(iter(data.WeightedRandomSampler([1.0, 0.0, 3.0], 2, replacement=False, generator=g))) for _ in range(2000)
    )
    assert abs(firsts[2] / firsts[0] - 3) < 0.6
    assert sorted(data.WeightedRandomSampler([1.0, 0.0, 3.0], 2, replacement=False)) == [0, 2]
    # As in PyTorch, what has no weight comes when nothing else is left.
    assert list(data.WeightedRandomSampler([1.0, 0.0], 2, replacement=False)) == [0, 1]
    for weights, n, replacement in (([0.0, 0.0], 1, True), ([-1.0, 2.0], 1, True), ([1.0, 0.0], 3, False)):
        with pytest.raises(RuntimeError):
            list(data.WeightedRandomSampler(weights, n, replacement))
    with pytest.raises(ValueError, match="1d"):
        data.WeightedRandomSampler(lucid.ones(2, 2), 1)


def test_distributed_sampler_shares_every_index() -> None:
    for drop in (False, True):
        shares = [list(data.DistributedSampler(range(10), 3, r, drop_last=drop)) for r in range(3)]
        assert {len(s) for s in shares} == {3 if drop else 4}
        assert len({i for s in shares for i in s}) == (9 if drop else 10)
    s = data.DistributedSampler(range(10), 2, 0)
    before = list(s)
    s.set_epoch(1)
    assert list(s) != before
    assert list(data.DistributedSampler(range(2), 5, 4, shuffle=False)) == [0]
    with pytest.raises(ValueError, match="Invalid rank"):
        data.DistributedSampler(range(2), 2, 2)
    with pytest.raises(RuntimeError, match="num_replicas"):
        data.DistributedSampler(range(2))


# ---- collation -------------------------------------------------------------------------------------------------------

Point = namedtuple("Point", "x y")


def test_collate() -> None:
    c = data.default_collate
    assert c([1, 2]).dtype is lucid.int64
    assert c([1.0, 2]).dtype is lucid.float64
    assert c([True, False]).dtype is lucid.bool
    assert c(["a", "b"]) == ["a", "b"]
    assert c([b"a"]) == [b"a"]
    made = c([{"a": 1, "b": (2, [3.0])}, {"a": 4, "b": (5, [6.0])}])
    assert made["a"].tolist() == [1, 4]
    assert isinstance(made["b"], list)
    assert made["b"][1][0].tolist() == [3.0, 6.0]
    p = c([Point(1, 2), Point(3, 4)])
    assert type(p) is Point
    assert p.y.tolist() == [2, 4]
    assert type(c([OrderedDict(a=1)])) is OrderedDict
    assert c([range(2), range(2)])[1].tolist() == [1, 1]
    with pytest.raises(RuntimeError, match="equal size"):
        c([[1], [1, 2]])
    with pytest.raises(RuntimeError):
        c([lucid.ones(2), lucid.ones(3)])
    with pytest.raises(TypeError, match="batch must contain tensors"):
        c([None, None])
    own = data.collate([1, 2], collate_fn_map={int: lambda batch, *, collate_fn_map: sum(batch)})
    assert own == 3


def test_collate_and_convert_numpy() -> None:
    np = pytest.importorskip("numpy")
    c, v = data.default_collate, data.default_convert
    assert c([np.ones(2, "float32")] * 3).shape == (3, 2)
    assert c([np.float32(1), np.float32(2)]).dtype is lucid.float32
    assert c([np.float64(1)]).dtype is lucid.float64
    assert c([np.int16(1)]).dtype is lucid.int16
    assert c([np.str_("a")]) == ["a"]
    with pytest.raises(TypeError, match="found <U1"):
        c([np.array(["a"])])
    made = v({"a": np.arange(2), "b": [1, (np.float32(2), "s")], "c": np.array(["s"])})
    assert made["a"].tolist() == [0, 1]
    assert made["b"][1][0].dtype is lucid.float32
    assert isinstance(made["b"][1], list)
    assert isinstance(made["c"], np.ndarray)
    assert type(v(Point(np.arange(2), 1))) is Point


# ---- the loader, here ------------------------------------------------------------------------------------------------


def test_batches_made_here() -> None:
    loader = DataLoader(cases.Rows(5), batch_size=2)
    assert len(loader) == 3
    assert [b["i"].tolist() for b in loader] == [[0, 1], [2, 3], [4]]
    assert [b["i"].tolist() for b in DataLoader(cases.Rows(5), 2, drop_last=True)] == [[0, 1], [2, 3]]
    assert [s["i"] for s in DataLoader(cases.Rows(3), batch_size=None)] == [0, 1, 2]
    assert sorted(numbers(b["i"] for b in DataLoader(cases.Rows(9), 2, shuffle=True))) == list(range(9))
    assert [b["i"].tolist() for b in DataLoader(cases.Rows(9), sampler=[4, 2], batch_size=2)] == [[4, 2]]
    assert [b["i"].tolist() for b in DataLoader(cases.Rows(9), batch_sampler=[[1], [2, 3]])] == [[1], [2, 3]]
    assert [b.tolist() for b in DataLoader(cases.Sharded(5), 2)] == [[0, 1], [2, 3], [4]]
    assert [b.tolist() for b in DataLoader(cases.Sharded(5), 2, drop_last=True)] == [[0, 1], [2, 3]]
    assert list(DataLoader(cases.Sharded(3), None)) == [0, 1, 2]
    assert len(DataLoader(cases.Sharded(5, 5), 2)) == 3
    g = [lucid.Generator().manual_seed(4) for _ in range(2)]
    orders = [numbers(b["i"] for b in DataLoader(cases.Rows(9), shuffle=True, generator=x)) for x in g]
    assert orders[0] == orders[1]


@pytest.mark.parametrize(
    ("error", "words", "kwargs"),
    [
        (ValueError, "non-negative", {"num_workers": -1}),
        (ValueError, "timeout", {"timeout": -1}),
        (ValueError, "prefetch_factor", {"prefetch_factor": 2}),
        (ValueError, "prefetch_factor", {"prefetch_factor": -2, "num_workers": 1}),
        (ValueError, "persistent_workers", {"persistent_workers": True}),
        (ValueError, "mutually exclusive with shuffle", {"shuffle": True, "sampler": [1]}),
        (ValueError, "batch_sampler option", {"batch_sampler": [[1]], "batch_size": 2}),
        (ValueError, "batch_size=None", {"batch_size": None, "drop_last": True}),
        (ValueError, "valid start method", {"num_workers": 1, "multiprocessing_context": "none"}),
        (TypeError, "context object", {"num_workers": 1, "multiprocessing_context": 3}),
        (ValueError, "num_workers > 0", {"multiprocessing_context": "spawn"}),
        (ValueError, "worker_type", {"worker_type": "fiber"}),
        (ValueError, "batch_size should be", {"batch_size": 0}),
    ],
)
def test_arguments_are_checked(error: type[Exception], words: str, kwargs: dict[str, Any]) -> None:
    with pytest.raises(error, match=words):
        DataLoader(cases.Rows(4), **kwargs)


def test_iterables_take_no_samplers_and_attributes_stay() -> None:
    for kwargs in ({"shuffle": True}, {"sampler": [1]}, {"batch_sampler": [[1]]}):
        with pytest.raises(ValueError, match="IterableDataset"):
            DataLoader(cases.Sharded(4), **kwargs)  # type: ignore[arg-type]
    assert DataLoader(cases.Sharded(4), shuffle=False).pin_memory is False
    loader = DataLoader(cases.Rows(2))
    with pytest.raises(ValueError, match="should not be set"):
        loader.batch_size = 3
    with pytest.warns(UserWarning, match="was reported to be 2"):
        loader = DataLoader(cases.Sharded(5, told=2), batch_size=1)
        assert len(loader) == 2
        assert len(list(loader)) == 5


# ---- workers ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_workers_keep_the_order_and_no_process_uses_mlx(kind: str) -> None:
    used = int(lucid._C._gpu_in_use())
    batches = list(DataLoader(cases.Rows(11), 3, num_workers=2, worker_type=kind))
    assert [b["i"].tolist() for b in batches] == [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9, 10]]
    assert [b["worker"][0].item() for b in batches] == [0, 1, 0, 1]
    assert batches[3]["x"].tolist() == [[9.0] * 4, [10.0] * 4]
    if kind == "process":
        pids = {p for b in batches for p in b["pid"].tolist()}
        assert len(pids) == 2
        assert os.getpid() not in pids
        # A forked process knows that its parent had used it.
        assert all(m <= used for b in batches for m in b["mlx"].tolist())


def test_large_batches_come_through_shared_memory_which_is_removed() -> None:
    before = segments()
    out = list(DataLoader(cases.Heavy(), num_workers=2, collate_fn=cases.first))
    assert [b["i"] for b in out] == list(range(8))
    for b in out:
        assert b["t"].shape == (3, 20_000)
        assert bool((b["t"] == b["i"]).all().item())
        assert b["same"] is b["t"]
        assert b["a"].shape == (50_000,)
        assert (b["a"] == b["i"]).all()
        b["a"][0] = -1
        assert b["b"].dtype is lucid.bfloat16
    assert segments() == before


@pytest.mark.parametrize("kind", KINDS)
def test_iterables_in_workers(kind: str) -> None:
    out = numbers(DataLoader(cases.Sharded(20), 3, num_workers=3, worker_type=kind))
    assert sorted(out) == list(range(20))
    assert sorted(numbers(DataLoader(cases.Unsharded(3), 2, num_workers=2, worker_type=kind))) == [0, 0, 1, 1, 2, 2]
    with pytest.raises(ValueError, match="no iterator"):
        list(DataLoader(cases.Unsharded(3, fails=True), num_workers=1, worker_type=kind))


def test_seeds_of_workers() -> None:
    def draws() -> list[tuple[Any, ...]]:
        g = lucid.Generator().manual_seed(11)
        return list(DataLoader(cases.Draws(), None, num_workers=2, generator=g))

    one, two = draws(), draws()
    assert one == two
    assert [d[0] for d in one] == [0, 1, 0, 1]
    assert one[1][1] == one[0][1] + 1
    assert len({d[2] for d in one}) == len({d[3] for d in one}) == 4


SCRIPT = """
import os, signal, sys, threading, time
sys.path.insert(0, {folder!r})
import data_cases as cases
from lucid.utils.data import DataLoader
if __name__ == "__main__":
    # Also where the tests themselves ignore interrupts, as what runs in the background of a shell does.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    loader = DataLoader(cases.{dataset}, num_workers=2, collate_fn=cases.first)
    it = iter(loader)
    next(it)
    print(*it.team.pids(), flush=True)
    {then}
"""


def run_script(tmp_path: Path, dataset: str, then: str) -> subprocess.Popen[str]:
    file = tmp_path / "script.py"
    file.write_text(SCRIPT.format(folder=str(Path(__file__).parent), dataset=dataset, then=then))
    return subprocess.Popen(
        [sys.executable, str(file)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": str(Path(lucid.__file__).resolve().parent.parent)},
    )


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    try:
        # It may end between the question and the answer.
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return Path("/proc/self").exists()
