"""Collectives as nodes of compiled graphs: one graph, and the values and gradients of the calls as they are written."""

from __future__ import annotations

from collections.abc import Callable

import lucid
import lucid.distributed as dist
import lucid.distributed._functional_collectives as fc
import lucid.distributed.nn.functional as dnf
from lucid import Tensor, nn
from lucid.distributed import ReduceOp
from lucid.nn.parallel import DistributedDataParallel

from tests.python.tolerances import within

FAMILY = {row["name"] for row in lucid.op_schemas() if row["family"] == "communication"}


def nodes(fn: object, graphs: int = 1) -> list[str]:
    """The collectives of the graph of a compiled function, in order, or of several graphs that have the same."""
    found = lucid.compiler.explain(fn)
    assert found.graph_count <= graphs and found.graph_break_count == 0, str(found)
    each = [[step["op"] for step in graph["steps"] if step["op"] in FAMILY] for graph in found.graphs]
    assert each and all(one == each[0] for one in each), each
    return each[0]


def differentiable(n: int) -> dict[str, tuple[Callable[[Tensor], Tensor], list[str]]]:
    """Functions of an (n, 3) tensor, with the nodes of their graphs: of the values, then of the gradients."""
    whole = lucid.arange(n * 3.0).reshape(n, 3)
    return {
        "sum": (lambda x: (dnf.all_reduce(x * 2) * x).sum(), ["all_reduce"] * 2),
        "avg": (lambda x: (dnf.all_reduce(x, ReduceOp.AVG) ** 2).sum(), ["all_reduce"] * 2),
        "max": (
            lambda x: (dnf.all_reduce(x, ReduceOp.MAX) ** 2).sum(),
            ["all_reduce_extreme", "all_reduce", "all_reduce"],
        ),
        "product": (
            lambda x: dnf.all_reduce(x + 3, ReduceOp.PRODUCT).sum(),
            ["all_gather", "reduce_scatter"],
        ),
        "gather": (
            lambda x: (lucid.stack(dnf.all_gather(x)) * whole.to(x.device)).sum() * x.sum(),
            ["all_gather", "reduce_scatter"],
        ),
        "scatter": (
            lambda x: (fc.reduce_scatter_tensor(x, "sum", 0, dist.group.WORLD) * x.sum()).sum(),
            ["reduce_scatter", "all_gather"],
        ),
        "broadcast": (lambda x: (dnf.broadcast(x * x, 1) * x).sum(), ["broadcast", "all_reduce"]),
        "exchange": (lambda x: (dnf.all_to_all_single(x, x) * x).sum(), ["all_to_all"] * 2),
    }


def check_functions(device: str, rank: int, n: int) -> None:
    for name, (fn, expected) in differentiable(n).items():
        compiled = lucid.compile(fn, fullgraph=True)
        for i in range(3):
            x = (lucid.arange(n * 3.0, device=device).reshape(n, 3) + 10 * rank + i) / 7
            pairs = []
            for call in (fn, compiled):
                leaf = x.clone().requires_grad_()
                value = call(leaf)
                value.backward()
                pairs.append((value.detach(), leaf.grad))
            for a, b in zip(*pairs, strict=True):
                # A kernel of several ops on a GPU rounds fewer times.
                exact = a.device.type in ("cpu", "mlx")
                alike = lucid.equal(a, b) if exact else lucid.allclose(a, b, **within("few ops"))
                assert alike, (name, device, i, a, b)
        assert nodes(compiled) == expected, (name, nodes(compiled))
        assert lucid.compiler.statistics(compiled)["replayed"] == 2


def check_in_place(device: str, rank: int, n: int) -> None:
    def step(x: Tensor, y: Tensor) -> Tensor:
        # Nobody reads what comes of the first; the others take part in it all the same.
        dnf.all_reduce(y)
        dist.all_reduce(x)
        rows = [lucid.empty_like(y) for _ in range(n)]
        dist.all_gather(rows, y * 2)
        part = lucid.empty_like(y)
        dist.reduce_scatter(part, [y + i for i in range(n)], ReduceOp.SUM)
        dist.broadcast(y, 1)
        return lucid.stack(rows).sum(0) + part + x

    compiled = lucid.compile(step, fullgraph=True)
    for i in range(3):
        own = [lucid.arange(4.0, device=device) + rank + i, lucid.arange(4.0, device=device) * (rank + 1)]
        other = [t.clone() for t in own]
        same = step(*own)
        assert lucid.equal(compiled(*other), same), (device, i)
        assert all(lucid.equal(a, b) for a, b in zip(own, other, strict=True)), (device, i)
    expected = ["all_reduce", "all_reduce", "all_gather", "reduce_scatter", "broadcast"]
    assert nodes(compiled) == expected, nodes(compiled)


def trained(device: str, rank: int, compiled: bool) -> tuple[list[float], list[Tensor], list[str]]:
    """Losses and parameters of some steps of data-parallel training, and the collectives of the step's graph."""
    lucid.manual_seed(0)
    net = nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 3)).to(device)
    model = DistributedDataParallel(net)
    optimizer = lucid.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def step(x: Tensor, y: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    call = lucid.compile(step, fullgraph=True) if compiled else step
    g = lucid.Generator().manual_seed(7 + rank)
    losses = []
    for _ in range(5):
        x = lucid.randn(6, 5, generator=g).to(device)
        y = lucid.randint(0, 3, (6,), generator=g).to(device)
        losses.append(call(x, y).item())
    # The first step finds no gradients, and no momentum.
    found = nodes(call, 2) if compiled else []
    return losses, [p.detach().cpu() for p in model.parameters()], found


def check_training(device: str, rank: int) -> None:
    losses, parameters, _ = trained(device, rank, False)
    again, same, found = trained(device, rank, True)
    # Buffers, then gradients.
    assert found == ["broadcast", "broadcast", "all_reduce"], found
    assert lucid.allclose(lucid.tensor(losses), lucid.tensor(again), **within("training")), (losses, again)
    for a, b in zip(parameters, same, strict=True):
        assert lucid.allclose(a, b, **within("training")), device


def check_breaks() -> None:
    def gradients_outside(x: Tensor) -> Tensor:
        return model(x)

    model = DistributedDataParallel(nn.Linear(2, 1))
    compiled = lucid.compile(gradients_outside)
    for _ in range(2):
        compiled(lucid.ones(1, 2)).sum().backward()
    reasons = lucid.compiler.explain(compiled).break_reasons
    assert any("DistributedDataParallel" in reason for reason in reasons), reasons
    waits = lucid.compile(lambda x: dist.barrier() or x + 1)
    waits(lucid.ones(1))
    assert any("barrier" in reason for reason in lucid.compiler.explain(waits).break_reasons)


def main() -> None:
    dist.init_process_group(timeout=60)
    rank, n = dist.get_rank(), dist.get_world_size()
    for device in ("cpu", "gpu"):
        check_functions(device, rank, n)
        check_in_place(device, rank, n)
        check_training(device, rank)
    check_breaks()
    # A graph is for the group that it was recorded with.
    total = lucid.compile(lambda x: dnf.all_reduce(x), fullgraph=True)
    total(lucid.ones(2))
    dist.destroy_process_group()
    dist.init_process_group(timeout=60)
    assert total(lucid.ones(2)).tolist() == [float(n)] * 2
    dist.destroy_process_group()
    print("done", flush=True)


main()
