"""Collectives of the GPU device are lazy: the call returns, and the members' order of evaluation does not matter."""

from __future__ import annotations

import lucid
import lucid.distributed as dist
import lucid.distributed.nn.functional as dnf
from lucid import Tensor, profiler
from lucid.distributed import ReduceOp, distributed_c10d


def meet(store: dist.Store, name: str, rank: int, first: int) -> None:
    """Rank `first` says that it has come here; the others wait for that."""
    if rank == first:
        store.set(name, "1")
    else:
        store.wait([name], 30)


def check_calls_return(store: dist.Store, rank: int, n: int) -> None:
    # Rank 1 calls only after rank 0's call has returned, which would not be if that waited for rank 1.
    if rank == 1:
        meet(store, "called", rank, 0)
    x = lucid.arange(5.0, device="gpu") + rank
    y = dnf.all_reduce(x)
    z = x.clone()
    dist.all_reduce(z, ReduceOp.MAX)
    # What is written afterwards is not sent.
    x.fill_(100.0)
    if rank == 0:
        meet(store, "called", rank, 0)
        total = sum(range(n))
        assert y.tolist() == [n * i + total for i in range(5)]
        assert z.tolist() == [i + n - 1.0 for i in range(5)]
    # Rank 1 has read nothing, and rank 0 has its results all the same.
    meet(store, "read", rank, 0)
    dist.barrier()


def check_order(rank: int, n: int) -> None:
    made = [dnf.all_gather(lucid.full((3,), 10.0 * i + rank, device="gpu")) for i in range(6)]
    order = range(6) if rank == 0 else reversed(range(6))
    for i in order:
        assert lucid.stack(made[i]).tolist() == [[10.0 * i + r] * 3 for r in range(n)], i
    # What is sent is made of what came, and many steps follow.
    x = lucid.ones(4, device="gpu")
    for _ in range(30):
        x = dnf.all_reduce(x, ReduceOp.AVG) + 1
        for _ in range(10):
            x = (x * 2 - x).abs()
    assert x.tolist() == [31.0] * 4


def check_gradients(rank: int, n: int) -> None:
    x = (lucid.arange(4.0, device="gpu") + rank).requires_grad_()
    loss = (dnf.all_reduce(x) ** 2).sum()
    loss.backward()
    expected = [2.0 * n * (n * i + sum(range(n))) for i in range(4)]
    assert x.grad is not None and x.grad.tolist() == expected


def check_profile(rank: int) -> None:
    x = lucid.ones(8, device="gpu")
    with lucid.profile() as counted:
        dist.all_reduce(x)
        dnf.all_gather(x.cpu())
    ops = counted.ops
    assert ops["all_reduce"]["calls"] == 1 and ops["all_gather"]["calls"] == 1, ops
    with profiler.profile() as traced:
        dist.all_reduce(x)
        dist.broadcast(x.cpu(), 0)
    found = sorted(e.name for e in traced.events() if e.category == "communication")
    assert found == ["all_reduce", "broadcast"], found


def check_errors(rank: int) -> None:
    def fails(make: Tensor, *words: str) -> None:
        for _ in range(2):
            try:
                make.sum().item()
                raise AssertionError("a collective that cannot be done has a value")
            except dist.DistBackendError as e:
                assert all(word in str(e) for word in words), e

    groups = [dist.new_group(timeout=20), dist.new_group(timeout=3)]
    # The calls return; who reads the results learns what was wrong.
    fails(dnf.all_reduce(lucid.ones(3 + rank, device="gpu"), group=groups[0]), "all_reduce", "[3]", "[4]", "rank 1")
    if rank == 0:
        fails(dnf.all_reduce(lucid.ones(3, device="gpu"), group=groups[1]), "all_reduce", "rank 1 did not call it")
    # Other arrays are what they were.
    assert lucid.ones(2, device="gpu").sum().item() == 2.0
    dist.barrier()


def main() -> None:
    dist.init_process_group(timeout=60)
    rank, n = dist.get_rank(), dist.get_world_size()
    store = dist.PrefixStore("lazy", distributed_c10d._get_default_store())
    check_calls_return(store, rank, n)
    check_order(rank, n)
    check_gradients(rank, n)
    check_profile(rank)
    check_errors(rank)
    # What is under way is done before the job is left.
    x = lucid.ones(3, device="gpu")
    dist.all_reduce(x)
    dist.destroy_process_group()
    assert x.tolist() == [float(n)] * 3
    print("done", flush=True)


main()
