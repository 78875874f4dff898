"""What collectives share: reductions, the handle of a collective that was started, and checks of arguments."""

from __future__ import annotations

import datetime
import enum
from collections.abc import Callable, Sequence
from typing import Any

import lucid
from lucid import _C, Tensor, errors
from lucid.distributed._state import ProcessGroup, default_group
from lucid.distributed.store import seconds


class ReduceOp(enum.Enum):
    """How values of several processes become one."""

    SUM = 0
    AVG = 1
    PRODUCT = 2
    MIN = 3
    MAX = 4
    BAND = 5
    BOR = 6
    BXOR = 7


class reduce_op:
    """`ReduceOp`'s members under their older name."""

    SUM = ReduceOp.SUM
    PRODUCT = ReduceOp.PRODUCT
    MIN = ReduceOp.MIN
    MAX = ReduceOp.MAX


class Work:
    """A collective operation that was started with `async_op=True`.

    The collectives make it; a program calls `wait()`, and reads the tensors that it gave to the collective afterwards.

    Args:
        works (sequence of native handles): the operations of the engine that belong to it.
        then (callable, optional): called with the list of their results when all are done; it writes them to the
            caller's tensors. Default: None, the results are kept as they are.

    Example:
        >>> import lucid.distributed as dist
        >>> dist.init_process_group(init_method="tcp://127.0.0.1:0", rank=0, world_size=1)
        >>> x = lucid.tensor([1.0, 2.0])
        >>> work = dist.all_reduce(x, async_op=True)
        >>> work.wait()
        True
        >>> work.is_completed(), work.is_success()
        (True, True)
        >>> dist.destroy_process_group()
    """

    def __init__(self, works: Sequence[_C._Work], then: Callable[[list[Any]], Any] | None = None) -> None:
        self._works, self._then = list(works), then
        self._result: Any = None
        self._error: BaseException | None = None
        self._done = False

    def is_completed(self) -> bool:
        """Is it done, or has it failed?"""
        return self._done or all(w.is_completed() for w in self._works)

    def wait(self, timeout: datetime.timedelta | float | None = None) -> bool:
        """Waits until it is done.

        Raises:
            DistBackendError: what went wrong.
        """
        if not self._done:
            limit = None if timeout is None else seconds(timeout)
            try:
                results = [w.wait(limit) for w in self._works]
                if self._then is not None:
                    with lucid.no_grad():
                        self._result = self._then(results)
                else:
                    self._result = results[0] if len(results) == 1 else results
            except errors.DistBackendError as e:
                late = [w for w in self._works if not w.is_completed()]
                if limit is None or not late:
                    self._error = e
                    raise
                # It goes on: a later wait may find it done.
                where = f"on rank {default_group().rank()}" if lucid.distributed.is_initialized() else "here"
                raise errors.DistBackendError(
                    f"{str(e).split(':')[0]}: {where}: not done within the {limit:g} s given to wait(); the operation "
                    "goes on until the group's own timeout, which names the rank that is late"
                ) from None
            except BaseException as e:
                self._error = e
                raise
            self._done = True
        return True

    def is_success(self) -> bool:
        """Is it done, and did it not fail?"""
        return self._done

    def exception(self) -> BaseException | None:
        """What went wrong."""
        return self._error

    def result(self) -> Any:
        """What it made; waits."""
        self.wait()
        return self._result

    def synchronize(self) -> None:
        """As `wait`."""
        self.wait()

    def get_future(self) -> Any:
        """A `lucid.futures.Future` of the result, as a list of tensors. Waits."""
        from lucid.futures import Future

        made: Any = Future()
        self.wait()
        made.set_result(self._result if isinstance(self._result, list) else [self._result])
        return made


def _tensor(x: Any, op: str) -> Tensor:
    if not isinstance(x, Tensor):
        raise errors.TypeError(f"{op}: expected a Tensor, got {type(x).__name__}")
    return x


def _how(op: Any, name: str) -> str:
    if not isinstance(op, ReduceOp):
        raise errors.ValueError(f"{name}: {op!r} is no ReduceOp")
    return op.name


def _ended(work: Work, async_op: bool) -> Work | None:
    if async_op:
        return work
    work.wait()
    return None


def _root(found: ProcessGroup, rank: int | None, group_rank: int | None, op: str) -> int:
    if (rank is None) == (group_rank is None):
        raise errors.ValueError(f"{op}: give one of the rank in the job and the rank in the group")
    if group_rank is not None:
        if not 0 <= group_rank < found.size():
            raise errors.ValueError(f"{op}: no rank {group_rank} in a group of {found.size()}")
        return group_rank
    assert rank is not None
    return found.local(int(rank), op)
