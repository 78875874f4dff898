"""`DataLoader`: batches of a dataset, made here or by workers."""

from __future__ import annotations

import multiprocessing
import os
import queue
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, TypeVar

import lucid
from lucid._public_names import NamedInErrors
from lucid._warnings import warn
from lucid.utils.data import _fetch, _team, _worker
from lucid.utils.data._collate import default_collate, default_convert
from lucid.utils.data.dataset import IterableDataset
from lucid.utils.data.sampler import BatchSampler, RandomSampler, Sampler, SequentialSampler, draw_seed

T_co = TypeVar("T_co", covariant=True)
# PyTorch's names of the types of `collate_fn` and `worker_init_fn`.
_collate_fn_t = Callable[[list[Any]], Any]
_worker_init_fn_t = Callable[[int], None]

_FIXED = ("batch_size", "batch_sampler", "sampler", "drop_last", "dataset", "persistent_workers", "worker_type")
_NO_FORK = (
    "multiprocessing_context='fork' is refused on this platform: its system libraries do not work in a forked child. "
    "Use 'spawn' (the default here) or 'forkserver', or worker_type='thread'"
)


class _Endless(Sampler[None]):
    """What stands for the indices of an iterable dataset."""

    def __iter__(self) -> Iterator[None]:
        while True:
            yield None


class DataLoader(NamedInErrors, Generic[T_co]):
    """An iterable over batches of a dataset, with PyTorch's arguments.

    Worker processes start as PyTorch's do. On Linux they are forked: datasets, lambdas and classes of a notebook are
    simply there, and scripts need no guard. On macOS, or where it is asked for, they are spawned: what they are given
    must be picklable, and a script guards its entry by `if __name__ == "__main__":`; where that cannot work and
    nothing was asked for, threads do the work instead, with one warning that says why (PyTorch raises).

    Workers use the CPU only: a tensor of the GPU device in the dataset is an error there. Worker `i` seeds Python's
    `random`, Lucid and, where it was imported, NumPy with `base_seed + i`; code there sees `get_worker_info()`. Their
    batches come through shared memory. An exception there is raised here with the worker's traceback, and a worker
    that dies is a RuntimeError.

    Args:
        dataset (Dataset): A `Dataset`, anything with `__getitem__` and `__len__`, or an `IterableDataset`.
        batch_size (int, default: 1): Samples per batch; None gives single samples, through `collate_fn` alone.
        shuffle (bool, optional): Whether each epoch has a new random order.
        sampler (Sampler[Any] | Iterable[Any], optional): The indices, in order; excludes `shuffle`.
        batch_sampler (Sampler[list[Any]] | Iterable[list[Any]], optional): Lists of indices; excludes
            `batch_size`, `shuffle`, `sampler` and `drop_last`.
        num_workers (int, default: 0): How many workers make batches ahead; 0 makes them here.
        collate_fn (Callable[[Any], Any], optional): Makes a batch of a list of samples; `default_collate`, or
            `default_convert` without a batch size.
        pin_memory (bool, default: False): Accepted and without effect: no device here has memory of another kind
            to copy from faster.
        drop_last (bool, default: False): Whether a last shorter batch is left out.
        timeout (float, default: 0): Seconds to wait for a batch of a worker before a RuntimeError; 0 waits for
            ever.
        worker_init_fn (Callable[[int], None], optional): Called in each worker with its number, after seeding.
        multiprocessing_context (str or context, optional): `'fork'`, `'spawn'` or `'forkserver'`, or such a context.
            `'fork'` is the default on Linux and refused elsewhere, where `'spawn'` is.
        generator (lucid.Generator, optional): The source of random orders and of the workers' seeds.
        prefetch_factor (int, optional): Batches that each worker makes ahead; 2 by default.
        persistent_workers (bool, default: False): Whether workers outlive the epoch.
        pin_memory_device (str, default: ""): Accepted and without effect.
        in_order (bool, default: True): Whether batches come in the sampler's order; without it, as they are done.
        worker_type (str, default: "process"): `'process'`, or `'thread'` (not in PyTorch): threads share the
            dataset and all global state, so nothing is pickled or reseeded, and Python code runs one thread at a
            time.

    Raises:
        ValueError: arguments that do not go together, or are out of their range.

    Example:
        >>> dataset = lucid.utils.data.TensorDataset(lucid.arange(5))
        >>> [x.tolist() for (x,) in lucid.utils.data.DataLoader(dataset, batch_size=2)]
        [[0, 1], [2, 3], [4]]
    """

    dataset: Any
    batch_size: int | None
    num_workers: int
    pin_memory: bool
    drop_last: bool
    timeout: float
    sampler: Sampler[Any] | Iterable[Any]
    pin_memory_device: str
    prefetch_factor: int | None
    _initialized = False

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Sampler[Any] | Iterable[Any] | None = None,
        batch_sampler: Sampler[list[Any]] | Iterable[list[Any]] | None = None,
        num_workers: int = 0,
        collate_fn: Callable[[Any], Any] | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], None] | None = None,
        multiprocessing_context: Any = None,
        generator: lucid.Generator | None = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
        worker_type: str = "process",
    ) -> None:
        if num_workers < 0:
            raise ValueError(
                f"num_workers option should be non-negative, got {num_workers}; use num_workers=0 to disable "
                "multiprocessing."
            )
        if timeout < 0:
            raise ValueError(f"timeout option should be non-negative, got {timeout}")
        if num_workers == 0 and prefetch_factor is not None:
            raise ValueError(
                "prefetch_factor option could only be specified in multiprocessing. Let num_workers > 0 to enable "
                "multiprocessing, otherwise set prefetch_factor to None."
            )
        if prefetch_factor is not None and prefetch_factor < 0:
            raise ValueError("prefetch_factor option should be non-negative")
        if persistent_workers and num_workers == 0:
            raise ValueError("persistent_workers option needs num_workers > 0")
        if worker_type not in ("process", "thread"):
            raise ValueError(f"worker_type should be 'process' or 'thread', but got {worker_type!r}")
        self.dataset = dataset
        self.num_workers = num_workers
        self.prefetch_factor = 2 if num_workers > 0 and prefetch_factor is None else prefetch_factor
        self.pin_memory = pin_memory
        self.pin_memory_device = pin_memory_device
        self.timeout = timeout
        self.worker_init_fn = worker_init_fn
        self.worker_type = worker_type
        self.multiprocessing_context = multiprocessing_context
        self.in_order = in_order
        self._iterable = isinstance(dataset, IterableDataset)
        if self._iterable:
            given = (("shuffle", shuffle or None), ("sampler", sampler), ("batch_sampler", batch_sampler))
            for name, value in given:
                if value is not None:
                    raise ValueError(
                        f"DataLoader with IterableDataset: expected unspecified {name} option, but got {name}={value}"
                    )
        if sampler is not None and shuffle:
            raise ValueError("sampler option is mutually exclusive with shuffle")
        if batch_sampler is not None:
            if batch_size != 1 or shuffle or sampler is not None or drop_last:
                raise ValueError(
                    "batch_sampler option is mutually exclusive with batch_size, shuffle, sampler, and drop_last"
                )
            batch_size = None
            drop_last = False
        elif batch_size is None and drop_last:
            raise ValueError("batch_size=None option disables auto-batching and is mutually exclusive with drop_last")
        if sampler is None:
            if self._iterable:
                sampler = _Endless()
            elif shuffle:
                sampler = RandomSampler(dataset, generator=generator)
            else:
                sampler = SequentialSampler(dataset)
        if batch_size is not None and batch_sampler is None:
            batch_sampler = BatchSampler(sampler, batch_size, drop_last)
        self.batch_size = batch_size
        self.drop_last = drop_last
        self.sampler = sampler
        self.batch_sampler = batch_sampler
        self.generator = generator
        if collate_fn is None:
            collate_fn = default_collate if self._auto_collation else default_convert
        self.collate_fn = collate_fn
        self.persistent_workers = persistent_workers
        self._initialized = True
        self._length_told: int | None = None
        self._iterator: Any = None
        self.check_worker_number_rationality()

    @property
    def multiprocessing_context(self) -> Any:
        """The context that starts workers, or None for the default."""
        return self._context

    @multiprocessing_context.setter
    def multiprocessing_context(self, context: Any) -> None:
        if context is not None:
            if self.num_workers == 0:
                raise ValueError(
                    "multiprocessing_context can only be used with multi-process loading (num_workers > 0), but got "
                    f"num_workers={self.num_workers}"
                )
            if isinstance(context, str):
                methods = multiprocessing.get_all_start_methods()
                if context not in methods:
                    raise ValueError(
                        f"multiprocessing_context option should specify a valid start method in {methods!r}, but got "
                        f"multiprocessing_context={context!r}"
                    )
                context = multiprocessing.get_context(context)
            if not isinstance(context, multiprocessing.context.BaseContext):
                raise TypeError(
                    "multiprocessing_context option should be a valid context object or a string specifying the start "
                    f"method, but got multiprocessing_context={context}"
                )
            if context.get_start_method() == "fork" and not _team.forks():
                raise ValueError(_NO_FORK)
        self._context = context

    def __setattr__(self, name: str, value: Any) -> None:
        if self._initialized and name in _FIXED:
            raise ValueError(f"{name} attribute should not be set after {type(self).__name__} is initialized")
        super().__setattr__(name, value)

    @property
    def _auto_collation(self) -> bool:
        return self.batch_sampler is not None

    @property
    def _index_sampler(self) -> Any:
        return self.batch_sampler if self._auto_collation else self.sampler

    def _get_iterator(self) -> _BaseIterator:
        return _LocalIterator(self) if self.num_workers == 0 else _WorkerIterator(self)

    def __iter__(self) -> Iterator[Any]:
        if not (self.persistent_workers and self.num_workers > 0):
            return self._get_iterator()
        if self._iterator is None or self._iterator.closed:
            self._iterator = self._get_iterator()
        else:
            self._iterator.restart()
        found: Iterator[Any] = self._iterator
        return found

    def __len__(self) -> int:
        if not self._iterable:
            return len(self._index_sampler)
        # The best guess for an iterable: it may be sharded otherwise.
        length = self._length_told = len(self.dataset)
        if self.batch_size is None:
            return length
        return length // self.batch_size if self.drop_last else -(-length // self.batch_size)

    def check_worker_number_rationality(self) -> None:
        """Warns where there are more worker processes than processors to run on."""
        if not self.num_workers or self.worker_type == "thread":
            return
        try:
            most = len(os.sched_getaffinity(0))
        except AttributeError:
            most = os.cpu_count() or 1
        if self.num_workers > most:
            warn(
                f"This DataLoader will create {self.num_workers} worker processes in total. Our suggested max "
                f"number of "
                f"worker in current system is {most}, which is smaller than what this DataLoader is going to create. "
                "Please be aware that excessive worker creation might get DataLoader running slow or even freeze, "
                "lower "
                "the worker number to avoid potential slowness/freeze if necessary."
            )


class _BaseIterator:
    """One epoch. Counts what an iterable dataset gives against what it said it would."""

    def __init__(self, loader: DataLoader[Any]) -> None:
        self.loader = loader
        self.base_seed = draw_seed(loader.generator)
        self.sampler_iter = iter(loader._index_sampler)
        self.yielded = 0
        # What was said before this epoch: a `list` asks when it has begun.
        self.told = loader._length_told if loader._iterable else None

    def __iter__(self) -> _BaseIterator:
        return self

    def _next(self) -> Any:
        raise NotImplementedError

    def __next__(self) -> Any:
        data = self._next()
        self.yielded += 1
        told = self.told
        if told is not None and self.yielded > told:
            text = (
                f"Length of IterableDataset {self.loader.dataset} was reported to be {told} (when accessing "
                f"len(dataloader)), but {self.yielded} samples have been fetched. "
            )
            if self.loader.num_workers > 1:
                text += "For multi-process data-loading, shard the dataset by get_worker_info()."
            warn(text)
        return data

    def __len__(self) -> int:
        return len(self.loader._index_sampler)


class _LocalIterator(_BaseIterator):
    """Batches made in this thread."""

    def __init__(self, loader: DataLoader[Any]) -> None:
        super().__init__(loader)
        self.fetcher = _fetch.fetcher_of(
            loader._iterable, loader.dataset, loader._auto_collation, loader.collate_fn, loader.drop_last
        )

    def _next(self) -> Any:
        return self.fetcher.fetch(next(self.sampler_iter))


class _WorkerIterator(_BaseIterator):
    """Batches made by workers. Every task that was sent is answered once; answers are taken in order, or as they
    come."""

    def __init__(self, loader: DataLoader[Any]) -> None:
        self.closed = True
        super().__init__(loader)
        job = _worker.Job(
            loader.dataset,
            loader._iterable,
            loader._auto_collation,
            loader.collate_fn,
            loader.drop_last,
            self.base_seed,
            loader.worker_init_fn,
            loader.num_workers,
        )
        self.team: Any
        self.team = _team.start(job, loader.multiprocessing_context, loader.worker_type)
        self.closed = False
        try:
            self._begin()
        except BaseException:
            self.close()
            raise

    def _begin(self) -> None:
        n = self.loader.num_workers
        self.sent = 0
        self.wanted = 0
        self.at_work: dict[int, int] = {}
        self.arrived: dict[int, Any] = {}
        self.active = [True] * n
        self.turn = 0
        self.finished = False
        for _ in range((self.loader.prefetch_factor or 0) * n):
            self._send_next()

    def restart(self) -> None:
        """The next epoch with the same workers."""
        self.base_seed = draw_seed(self.loader.generator)
        self.sampler_iter = iter(self.loader._index_sampler)
        self.yielded = 0
        self.told = self.loader._length_told if self.loader._iterable else None
        for answer in self.arrived.values():
            if isinstance(answer, _team._Packed | _team._Whole):
                answer.discard()
        try:
            for worker in range(self.loader.num_workers):
                self.team.send(worker, _worker.Resume(self.base_seed))
            resumed = 0
            while resumed < self.loader.num_workers:
                _, _, answer = self._receive()
                if isinstance(answer, _worker.Resume):
                    resumed += 1
                elif isinstance(answer, _team._Packed | _team._Whole):
                    answer.discard()
            self._begin()
        except BaseException:
            self.close()
            raise

    def _send_next(self) -> None:
        """Gives the next indices to the next worker that has more to give and room for it."""
        n = self.loader.num_workers
        busy = [0] * n
        for worker in self.at_work.values():
            busy[worker] += 1
        most = max(self.loader.prefetch_factor or 0, 1)
        for step in range(n):
            worker = (self.turn + step) % n
            if self.active[worker] and (self.loader.in_order or busy[worker] < most):
                break
        else:
            return
        try:
            index = next(self.sampler_iter)
        except StopIteration:
            return
        self.team.send(worker, (self.sent, index))
        self.at_work[self.sent] = worker
        self.turn = worker + 1
        self.sent += 1

    def _receive(self) -> tuple[int, Any, Any]:
        timeout = self.loader.timeout
        try:
            worker, number, answer = self.team.receive(timeout if timeout > 0 else None)
        except queue.Empty:
            raise RuntimeError(f"DataLoader timed out after {timeout} seconds") from None
        if number is None and isinstance(answer, _worker.Raised):
            # The worker could not even begin.
            self.close()
            answer.reraise()
        return worker, number, answer

    def _answer(self) -> tuple[int, Any]:
        """The next worker's number and its answer, in the order asked for."""
        if not self.at_work and not self.arrived:
            self._send_next()
        if not self.at_work and not self.arrived:
            raise StopIteration
        while True:
            if self.wanted in self.arrived:
                number = self.wanted
                break
            if not self.loader.in_order and self.arrived:
                number = next(iter(self.arrived))
                break
            _, number, answer = self._receive()
            self.arrived[number] = answer
        self.wanted += 1
        return self.at_work.pop(number), self.arrived.pop(number)

    def _next(self) -> Any:
        if self.closed or self.finished:
            raise StopIteration
        try:
            while True:
                worker, answer = self._answer()
                if isinstance(answer, _worker.Ended):
                    self.active[worker] = False
                    continue
                self._send_next()
                break
        except StopIteration:
            self.finished = True
            if not self.loader.persistent_workers:
                self.close()
            raise
        except BaseException as e:
            # After a timeout the next call may still find the batch.
            if not (isinstance(e, RuntimeError) and "timed out" in str(e)):
                self.close()
            raise
        if isinstance(answer, _worker.Raised):
            answer.reraise()
        return answer.open()

    def close(self) -> None:
        """Ends the workers; waiting batches are dropped."""
        if self.closed:
            return
        self.closed = True
        for answer in self.arrived.values():
            if isinstance(answer, _team._Packed | _team._Whole):
                answer.discard()
        self.arrived.clear()
        self.at_work.clear()
        self.team.close()

    def __del__(self) -> None:
        if not getattr(self, "closed", True):
            self.close()


# By PyTorch's names, for `isinstance`.
_BaseDataLoaderIter = _BaseIterator
_SingleProcessDataLoaderIter = _LocalIterator
_MultiProcessingDataLoaderIter = _WorkerIterator
