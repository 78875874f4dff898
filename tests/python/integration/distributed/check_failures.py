"""What goes wrong between processes is one error on every rank that is there, in time. Started without the launcher."""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import Any

import lucid
import lucid.distributed as dist


def refused(call: Any, *words: str, within: float = 60.0) -> None:
    # The longest timeout here is 20 s, beside what a busy machine takes: what hangs ends in the test's own limit.
    begun = time.monotonic()
    try:
        call()
    except dist.DistBackendError as e:
        assert time.monotonic() - begun < within, (time.monotonic() - begun, e)
        assert isinstance(e, RuntimeError)
        for word in words:
            assert word in str(e), (word, str(e))
        return
    raise AssertionError(f"no error that says {words}")


def main() -> None:
    rank, n = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group(timeout=20)
    assert (dist.get_rank(), dist.get_world_size()) == (rank, n)
    groups = [dist.new_group(timeout=10 if i < 3 else 2) for i in range(7)]
    x = lucid.ones(3)
    dist.all_reduce(x)
    # Each on a group of its own: one that has failed stays so.
    refused(lambda: dist.all_reduce(lucid.ones(3 + rank), group=groups[0]), "all_reduce", "[3]", "[4]", "rank 1")
    refused(lambda: dist.all_reduce(lucid.ones(3), group=groups[0]), "[4]")
    wrong = lucid.ones(3, dtype=lucid.float32 if rank else lucid.int32)
    refused(lambda: dist.broadcast(wrong, 0, group=groups[1]), "int32", "float32")
    call = dist.barrier if rank else lambda group: dist.all_reduce(x, group=group)
    refused(lambda: call(group=groups[2]), "barrier", "all_reduce")
    # Only one calls; the other is asked what it did last.
    if rank == 0:
        refused(lambda: dist.all_reduce(x, group=groups[3]), "rank 1 did not call it", "2.0 s", "barrier")
        refused(lambda: dist.monitored_barrier(groups[4], timeout=0.5), "rank 1", "0.5 s")
        work = dist.all_reduce(x, group=groups[5], async_op=True)
        refused(work.wait, "rank 1")
        assert isinstance(work.exception(), dist.DistBackendError) and not work.is_success()
        # Nobody sends.
        refused(lambda: dist.recv(lucid.ones(2), group=groups[5]), "recv", "[1]", "2 s")
    # A wait has a limit of its own, and the message arrives all the same.
    if rank == 0:
        y = lucid.zeros(2)
        late = dist.irecv(y, 1)
        try:
            late.wait(0.1)
            raise AssertionError
        except dist.DistBackendError as e:
            assert "wait()" in str(e)
        dist.barrier()
        late.wait()
        assert y.tolist() == [5.0, 5.0]
    else:
        dist.barrier()
        dist.send(lucid.full((2,), 5.0), 0)
    dist.all_reduce(x)
    how = sys.argv[1]
    if rank == 1 and how == "die":
        dist.all_reduce(lucid.ones(1_000_000), async_op=True)
        os.kill(os.getpid(), signal.SIGKILL)
    if rank == 1 and how == "stop":
        # It takes part as far as the agreement, and no farther.
        dist.all_reduce(lucid.ones(2), group=groups[6])
        os.kill(os.getpid(), signal.SIGSTOP)
    if how == "stop":
        dist.all_reduce(lucid.ones(2), group=groups[6])
        refused(lambda: dist.all_reduce(lucid.ones(2), group=groups[6]), "rank 1", "all_reduce")
        # Its messages, too.
        refused(lambda: dist.recv(lucid.ones(2), 1, group=groups[6]), "rank 1")
    else:

        def until_it_is_noticed() -> None:
            for _ in range(3):
                dist.all_reduce(lucid.ones(1_000_000))

        refused(until_it_is_noticed, "rank 1 has ended", "all_reduce")
        # The call of a lazy one returns; who reads its result learns the same.
        lazy = lucid.ones(3, device="gpu")
        dist.all_reduce(lazy)
        refused(lambda: lazy.sum().item(), "rank 1 has ended", "all_reduce")
        refused(dist.barrier, "rank 1 has ended")
    print("done", flush=True)


main()
