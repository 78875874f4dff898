"""Collectives over MPI, against a computation in one process. Run by `mpirun`, which says which rank this is."""

from __future__ import annotations

import ctypes

import lucid
import lucid.distributed as dist
from lucid.distributed import ReduceOp

from tests.python.integration.distributed.check_collectives import FLOATS, INTEGERS, fold, made, ops_of, same


def check(device: str, rank: int, n: int) -> None:
    for dtype in (*FLOATS, *INTEGERS):
        if device == "gpu" and dtype in (lucid.float64, lucid.complex128):
            continue
        rows = [made(r, (3, 5), dtype) for r in range(n)]
        own = rows[rank].to(device)
        for op in ops_of(dtype):
            x = own.clone()
            dist.all_reduce(x, op=op)
            same(x, fold(op, rows), (device, dtype, op))
        x = own.t().clone().t()
        dist.broadcast(x, 1)
        same(x, rows[1], (device, dtype, "broadcast"))
        outs = [lucid.zeros_like(own) for _ in range(n)]
        dist.all_gather(outs, own.clone())
        for r in range(n):
            same(outs[r], rows[r], (device, dtype, "all_gather", r))
    sent = lucid.arange(7.0, device=device)
    if rank == 0:
        dist.send(sent * 2, 1)
    else:
        got = lucid.zeros(7, device=device)
        dist.recv(got, 0)
        same(got, sent * 2, (device, "recv"))
    if device == "cpu":
        x = (lucid.ones(2) * (rank + 1)).requires_grad_()
        dist.nn.functional.all_reduce(x * x, op=ReduceOp.SUM).sum().backward()
        same(x.grad, x.detach() * 2 * n, "gradient")


if __name__ == "__main__":
    dist.init_process_group("mpi")
    assert dist.get_backend() == "mpi"
    for device in ("cpu", "gpu"):
        check(device, dist.get_rank(), dist.get_world_size())
    dist.barrier()
    # MPI is finalized although something has the group until the process has ended.
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(dist.group.WORLD))
    dist.destroy_process_group()
    print("done over mpi", flush=True)
