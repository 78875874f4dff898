"""Every collective against a computation in one process. Run by the launcher; each rank knows what every rank has."""

from __future__ import annotations

import functools
import os
import sys
from typing import Any

import lucid
import lucid.distributed as dist
import lucid.distributed.nn.functional as dnf
from lucid.distributed import ReduceOp

FLOATS = (lucid.float16, lucid.bfloat16, lucid.float32, lucid.float64, lucid.complex64, lucid.complex128)
INTEGERS = (lucid.bool, lucid.uint8, lucid.int8, lucid.int16, lucid.int32, lucid.int64)


def made(rank: int, shape: tuple[int, ...], dtype: Any) -> lucid.Tensor:
    """What a rank has: small integers, so that sums are exact in every dtype."""
    g = lucid.Generator().manual_seed(100 + rank)
    if dtype == lucid.bool:
        return lucid.randint(0, 2, shape, generator=g, device="cpu").to(dtype)
    x = lucid.randint(0 if dtype == lucid.uint8 else -3, 4, shape, generator=g, device="cpu")
    return x.to(dtype)


def same(a: lucid.Tensor, b: lucid.Tensor, what: object) -> None:
    a, b = a.detach().cpu(), b.detach().cpu()
    assert a.dtype == b.dtype and a.shape == b.shape, (what, a.dtype, b.dtype, a.shape, b.shape)
    assert lucid.equal(a, b), (what, a, b)


def fold(op: ReduceOp, rows: list[lucid.Tensor]) -> lucid.Tensor:
    two = {
        ReduceOp.SUM: lambda a, b: a + b,
        ReduceOp.PRODUCT: lambda a, b: a * b,
        ReduceOp.MIN: lucid.minimum,
        ReduceOp.MAX: lucid.maximum,
        ReduceOp.BAND: lambda a, b: a & b,
        ReduceOp.BOR: lambda a, b: a | b,
        ReduceOp.BXOR: lambda a, b: a ^ b,
    }
    if op is ReduceOp.AVG:
        return fold(ReduceOp.SUM, rows) / len(rows)
    return functools.reduce(two[op], rows)


def ops_of(dtype: Any) -> list[ReduceOp]:
    ops = [ReduceOp.SUM, ReduceOp.PRODUCT]
    if not dtype.is_complex:
        ops += [ReduceOp.MIN, ReduceOp.MAX]
    if dtype in FLOATS:
        return [*ops, ReduceOp.AVG]
    return [*ops, ReduceOp.BAND, ReduceOp.BOR, ReduceOp.BXOR]


def check_dtypes(device: str, rank: int, n: int) -> None:
    for dtype in (*FLOATS, *INTEGERS):
        if device == "gpu" and dtype in (lucid.float64, lucid.complex128):
            continue
        rows = [made(r, (3, 5), dtype) for r in range(n)]
        own = rows[rank].to(device)
        for op in ops_of(dtype):
            x = own.clone()
            assert dist.all_reduce(x, op) is None
            same(x, fold(op, rows), (device, dtype, op))
        x = own.clone()
        dist.broadcast(x, 1)
        same(x, rows[1], (device, dtype, "broadcast"))
        outs = [lucid.zeros_like(own) for _ in range(n)]
        dist.all_gather(outs, own)
        for r in range(n):
            same(outs[r], rows[r], (device, dtype, "all_gather", r))


def check_sizes(device: str, rank: int, n: int) -> None:
    for size in (0, 1, 2, n - 1, n + 1, 1000, 1_000_000 if n == 2 else 100_000):
        rows = [made(r, (size,), lucid.float32) for r in range(n)]
        x = rows[rank].to(device).clone()
        dist.all_reduce(x)
        same(x, fold(ReduceOp.SUM, rows), (device, size))
        x = rows[rank].to(device).clone()
        out = lucid.zeros(n * size, device=device)
        dist.all_gather_into_tensor(out, x)
        same(out, lucid.cat(rows), (device, size, "all_gather_into_tensor"))
    if n == 2 and device == "cpu":
        # Numbers that are exact, so that nothing of ten million is off.
        x = lucid.arange(10_000_000, dtype=lucid.float32) % 1024 + rank
        expected = (lucid.arange(10_000_000, dtype=lucid.float32) % 1024) * 2 + 1
        dist.all_reduce(x)
        assert lucid.equal(x, expected)
    # A scalar, and tensors whose elements are not in row-major order; only what they show is written.
    x = lucid.tensor(float(rank + 1), device=device)
    dist.all_reduce(x)
    assert x.shape == () and x.item() == n * (n + 1) / 2
    rows = [made(r, (4, 6), lucid.float32) for r in range(n)]
    whole = rows[rank].to(device).clone()
    dist.all_reduce(whole.t()[1:4:2])
    expected = rows[rank].clone()
    expected.t()[1:4:2] = fold(ReduceOp.SUM, rows).t()[1:4:2]
    same(whole, expected, "not contiguous")
    # Bits that a sum of floats would change.
    x = (
        lucid.tensor([-0.0, float("nan"), float("inf"), 1e-45], device=device)
        if rank == 0
        else lucid.ones(4, device=device)
    )
    dist.broadcast(x, 0)
    bits = x.cpu().view(lucid.int32).tolist()
    assert bits[0] == -(2**31) and bits[2:] == [0x7F800000, 1] and x[1].isnan().item()
    p = lucid.nn.Parameter(lucid.full((2,), float(rank), device=device))
    dist.all_reduce(p)
    assert p.requires_grad and p.tolist() == [n * (n - 1) / 2] * 2


def check_others(device: str, rank: int, n: int) -> None:
    rows = [made(r, (n, 2), lucid.float32) for r in range(n)]
    own = rows[rank].to(device)
    total = fold(ReduceOp.SUM, rows)
    x = own.clone()
    dist.reduce(x, 1)
    same(x, total if rank == 1 else rows[rank], "reduce")
    got = [lucid.zeros(n, 2, device=device) for _ in range(n)] if rank == 0 else None
    dist.gather(own, got, dst=0)
    if got is not None:
        for r in range(n):
            same(got[r], rows[r], "gather")
    out = lucid.zeros(2, device=device)
    dist.scatter(out, list(own.unbind(0)) if rank == 1 else None, src=1)
    same(out, rows[1][rank], "scatter")
    dist.reduce_scatter(out, list(own.unbind(0)), ReduceOp.MAX)
    same(out, fold(ReduceOp.MAX, rows)[rank], "reduce_scatter")
    dist.reduce_scatter_tensor(out, own.reshape(-1))
    same(out, total[rank], "reduce_scatter_tensor")
    outs = [lucid.zeros(2, device=device) for _ in range(n)]
    dist.all_to_all(outs, list(own.unbind(0)))
    for r in range(n):
        same(outs[r], rows[r][rank], "all_to_all")
    single = lucid.zeros(n, 2, device=device)
    dist.all_to_all_single(single, own)
    same(single, lucid.stack([rows[r][rank] for r in range(n)]), "all_to_all_single")
    # Parts of several sizes: rank r sends i + r rows to rank i.
    sent = [i + rank for i in range(n)]
    coming = [rank + r for r in range(n)]
    x = lucid.cat([lucid.full((s, 1), float(10 * rank + i), device=device) for i, s in enumerate(sent)])
    out = lucid.zeros(sum(coming), 1, device=device)
    dist.all_to_all_single(out, x, coming, sent)
    assert out.reshape(-1).tolist() == [float(10 * r + rank) for r in range(n) for _ in range(coming[r])]
    # Work: in the background, in the order of the calls.
    works = []
    xs = [lucid.full((1000,), float(rank + i), device=device) for i in range(4)]
    for x in xs:
        works.append(dist.all_reduce(x, async_op=True))
    for i, (x, work) in enumerate(zip(xs, works, strict=True)):
        assert work.wait() and work.is_completed() and work.is_success()
        assert x[0].item() == n * (n - 1) / 2 + n * i
    ts = [lucid.full((2,), float(rank), device=device), lucid.full((3, 1), 1.0, device=device)]
    dist.all_reduce_coalesced(ts)
    assert ts[0].tolist() == [n * (n - 1) / 2] * 2 and ts[1].reshape(-1).tolist() == [float(n)] * 3


def check_messages(device: str, rank: int, n: int) -> None:
    if rank == 0:
        dist.send(lucid.arange(5, device=device), n - 1, tag=7)
    elif rank == n - 1:
        x = lucid.zeros(5, dtype=lucid.int64, device=device)
        assert dist.recv(x, 0, tag=7) == 0
        assert x.tolist() == [0, 1, 2, 3, 4]
    # Around the ring, all at once, in both directions.
    right, left = (rank + 1) % n, (rank - 1) % n
    got = lucid.zeros(3, device=device)
    back = lucid.zeros(3, device=device)
    ops = [
        dist.P2POp(dist.isend, lucid.full((3,), float(rank), device=device), right),
        dist.P2POp(dist.isend, lucid.full((3,), float(-rank), device=device), left),
        dist.P2POp(dist.irecv, got, left),
        dist.P2POp(dist.irecv, back, right),
    ]
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    # From whoever sends first: two messages of each rank, in their order.
    if rank == 0:
        seen: dict[int, list[float]] = {}
        for _ in range(2 * (n - 1)):
            x = lucid.zeros(2, device=device)
            seen.setdefault(dist.recv(x), []).append(x[1].item() if x[0].item() else -1.0)
        assert seen == {r: [r * 1.0, r * 2.0] for r in range(1, n)}, seen
    else:
        for k in (1, 2):
            dist.send(lucid.tensor([1.0, float(rank * k)], device=device), 0)
    assert got.tolist() == [float(left)] * 3 and (back.tolist() == [float(-right)] * 3)


def check_objects(rank: int, n: int) -> None:
    objects: list[Any] = [None] * n
    dist.all_gather_object(objects, {"rank": rank, "text": "x" * (rank * 100)})
    assert [o["rank"] for o in objects] == list(range(n)) and len(objects[n - 1]["text"]) == (n - 1) * 100
    listed: list[Any] = ["a", {1, 2}] if rank == 0 else [None, None]
    dist.broadcast_object_list(listed, 0)
    assert listed == ["a", {1, 2}]
    got: list[Any] | None = [None] * n if rank == 1 else None
    dist.gather_object(rank * 2, got, 1)
    assert got is None or got == [2 * r for r in range(n)]
    one: list[Any] = [None]
    dist.scatter_object_list(one, [str(i) for i in range(n)] if rank == 0 else None, 0)
    assert one == [str(rank)]
    if rank == 0:
        dist.send_object_list(["hello", 3], 1)
    elif rank == 1:
        pair: list[Any] = [None, None]
        dist.recv_object_list(pair, 0)
        assert pair == ["hello", 3]


def check_groups(rank: int, n: int) -> None:
    even = dist.new_group(list(range(0, n, 2)))
    odd = dist.new_group(list(range(1, n, 2)))
    mine, members = (even, range(0, n, 2)) if rank % 2 == 0 else (odd, range(1, n, 2))
    other = odd if rank % 2 == 0 else even
    assert other is dist.GroupMember.NON_GROUP_MEMBER and dist.get_rank(other) == -1
    assert dist.all_reduce(lucid.ones(1), group=other) is None
    x = lucid.tensor([float(rank)])
    dist.all_reduce(x, group=mine)
    assert x.item() == sum(members)
    assert dist.get_process_group_ranks(mine) == list(members) and dist.get_world_size(mine) == len(members)
    assert dist.get_global_rank(mine, 0) == members[0] and dist.get_group_rank(mine, rank) == dist.get_rank(mine)
    x = lucid.tensor([float(rank)])
    dist.broadcast(x, members[-1], group=mine)
    assert x.item() == members[-1]
    if n == 4:
        mesh = dist.init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
        assert mesh.get_coordinate() == [rank // 2, rank % 2] and mesh["tp"].size() == 2
        x = lucid.tensor([float(rank)])
        dist.all_reduce(x, group=mesh.get_group("dp"))
        assert x.item() == rank % 2 + (2 + rank % 2)
    dist.barrier(mine)
    dist.monitored_barrier(timeout=20)
    backend = os.environ.get("LUCID_DISTRIBUTED_BACKEND", "gloo").replace("ring", "gloo")
    assert dist.get_backend() == backend and dist.is_initialized() and dist.group.WORLD.size() == n


def check_gradients(rank: int, n: int) -> None:
    """Of the sum of all ranks' losses, against one process that has all the inputs."""
    weights = [made(100 + r, (n, 2), lucid.float64) for r in range(n)]

    def losses(kind: str, xs: list[lucid.Tensor]) -> lucid.Tensor:
        rows = lucid.stack(xs)
        results = {
            "all_reduce": [rows.sum(0)] * n,
            "avg": [rows.mean(0)] * n,
            "product": [rows.prod(0)] * n,
            "broadcast": [xs[1]] * n,
            "all_gather": [rows.sum(0) * rows[0]] * n,
            "reduce_scatter": [rows.sum(0)[r].expand(n, 2) for r in range(n)],
            "all_to_all": [rows[:, r] for r in range(n)],
        }[kind]
        return sum(((out**2) * w).sum() for out, w in zip(results, weights, strict=True)) + 0 * (rows**2).sum()

    def own(kind: str, x: lucid.Tensor) -> lucid.Tensor:
        if kind == "all_reduce":
            out = dnf.all_reduce(x)
        elif kind in ("avg", "product"):
            out = dnf.all_reduce(x, ReduceOp.AVG if kind == "avg" else ReduceOp.PRODUCT)
        elif kind == "broadcast":
            out = dnf.broadcast(x, 1)
        elif kind == "all_gather":
            rows = dnf.all_gather(x)
            out = sum(rows) * rows[0]
        elif kind == "reduce_scatter":
            out = dnf.reduce_scatter(lucid.zeros(2, dtype=x.dtype), list(x.unbind(0))).expand(n, 2)
        else:
            out = dnf.all_to_all_single(lucid.zeros_like(x), x)
        return ((out**2) * weights[rank]).sum()

    for kind in ("all_reduce", "avg", "product", "broadcast", "all_gather", "reduce_scatter", "all_to_all"):
        xs = [(made(r, (n, 2), lucid.float64) + 0.5).requires_grad_() for r in range(n)]
        (expected,) = lucid.autograd.grad(losses(kind, xs), xs[rank])
        # The same for a loss that is made of these gradients.
        firsts = lucid.autograd.grad(losses(kind, xs), xs, create_graph=True)
        (twice,) = lucid.autograd.grad(sum((g**2).sum() for g in firsts), xs[rank])
        x = xs[rank].detach().clone().requires_grad_()
        (got,) = lucid.autograd.grad(own(kind, x), x, create_graph=True)
        assert lucid.allclose(got, expected), (kind, got, expected)
        (again,) = lucid.autograd.grad((got**2).sum(), x)
        assert lucid.allclose(again, twice), (kind, "double", again, twice)


def check_errors(rank: int, n: int) -> None:
    """Arguments that one process sees are wrong, before anything is sent."""

    def refused(kind: type[BaseException], call: Any, *args: Any, **kwargs: Any) -> None:
        try:
            call(*args, **kwargs)
        except kind:
            return
        raise AssertionError((call, args))

    x = lucid.ones(3)
    refused(ValueError, dist.broadcast, x, n)
    refused(ValueError, dist.all_gather, [x], lucid.ones(3))
    refused(ValueError, dist.all_gather, [x] * n, lucid.ones(4))
    refused(TypeError, dist.all_reduce, [1.0])
    refused(TypeError, dist.all_reduce, lucid.ones(2, dtype=lucid.int64), ReduceOp.AVG)
    refused(TypeError, dist.all_reduce, lucid.ones(2), ReduceOp.BAND)
    refused(ValueError, dist.new_group, [0, n])
    refused(ValueError, dist.new_group, [0, 0])
    refused(ValueError, dist.send, x, rank)
    refused(ValueError, dist.init_process_group)
    refused(ValueError, dist.Backend, "carrier pigeon")
    refused(ValueError, dist.all_to_all_single, lucid.ones(n + 1), lucid.ones(n + 1))
    small = lucid.full((2,), float(rank)).to(lucid.float8_e4m3fn)
    for op in (ReduceOp.SUM, ReduceOp.MAX, ReduceOp.PRODUCT):
        refused(TypeError, dist.all_reduce, small.clone(), op)
    dist.broadcast(small, 1)
    assert small.float().tolist() == [1.0, 1.0]
    refused(ValueError, dist.reduce_scatter_tensor, lucid.ones(2), lucid.ones(3))


def check_coalesced(device: str, rank: int, n: int) -> None:
    for size in (1, 40, 1 << 20):
        shapes = [((2, 3), lucid.float32), ((4,), lucid.int32), ((), lucid.float32), ((0, 2), lucid.float32)]
        tensors = [made(rank, shape, dtype).to(device) for shape, dtype in shapes]
        strided = made(rank, (3, 2), lucid.float32).to(device).t()
        dist._broadcast_coalesced(dist.group.WORLD, [*tensors, strided], size, n - 1)
        for t, (shape, dtype) in zip(tensors, shapes, strict=True):
            same(t, made(n - 1, shape, dtype), "broadcast_coalesced")
        same(strided, made(n - 1, (3, 2), lucid.float32).t(), "broadcast_coalesced")


def main() -> None:
    for name in sys.argv[1:]:
        assert name in ("again",)
    dist.init_process_group(timeout=60)
    rank, n = dist.get_rank(), dist.get_world_size()
    for device in ("cpu", "gpu"):
        check_dtypes(device, rank, n)
        check_sizes(device, rank, n)
        check_others(device, rank, n)
        check_messages(device, rank, n)
        check_coalesced(device, rank, n)
    check_objects(rank, n)
    check_groups(rank, n)
    check_gradients(rank, n)
    check_errors(rank, n)
    # The job can be left and made again.
    dist.destroy_process_group()
    assert not dist.is_initialized()
    dist.init_process_group("ring")
    x = lucid.ones(2)
    dist.all_reduce(x)
    assert x.tolist() == [float(n)] * 2
    dist.destroy_process_group()
    print("done", flush=True)


if __name__ == "__main__":
    main()
