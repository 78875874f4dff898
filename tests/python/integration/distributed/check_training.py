"""Training on several processes against the same training on one, and checkpoints between them. Run by the launcher."""

from __future__ import annotations

import copy
import math
import sys
from pathlib import Path
from typing import Any

import lucid
import lucid.distributed as dist
import lucid.distributed.checkpoint as dcp
from lucid import nn
from lucid.distributed.algorithms._checkpoint.checkpoint_wrapper import (
    CheckpointWrapper,
    apply_activation_checkpointing,
)
from lucid.distributed.algorithms.ddp_comm_hooks import default_hooks
from lucid.distributed.checkpoint.format_utils import dcp_to_torch_save
from lucid.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    get_state_dict,
    set_state_dict,
)
from lucid.distributed.fsdp import (
    FSDPModule,
    FullStateDictConfig,
    MixedPrecisionPolicy,
    ShardingStrategy,
    StateDictType,
    fully_shard,
)
from lucid.distributed.fsdp import FullyShardedDataParallel as FSDP
from lucid.distributed.fsdp.wrap import ModuleWrapPolicy
from lucid.distributed.optim import ZeroRedundancyOptimizer
from lucid.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe
from lucid.distributed.tensor import (
    DTensor,
    Partial,
    Replicate,
    Shard,
    distribute_module,
    distribute_tensor,
    init_device_mesh,
)
from lucid.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from lucid.nn.parallel import DistributedDataParallel as DDP
from lucid.utils.data import DataLoader, DistributedSampler, TensorDataset

from tests.python.tolerances import TABLE

STEPS = 20


def model(seed: int = 0) -> nn.Sequential:
    lucid.manual_seed(seed)
    return nn.Sequential(nn.Linear(6, 9), nn.Tanh(), nn.Linear(9, 7), nn.Tanh(), nn.Linear(7, 3))


def data(n: int) -> tuple[lucid.Tensor, lucid.Tensor]:
    g = lucid.Generator().manual_seed(5)
    x = lucid.randn(8 * n, 6, generator=g, device="cpu")
    return x, lucid.randn(8 * n, 3, generator=g, device="cpu")


def train_alone(
    n: int, device: str, make: Any = model, steps: int = STEPS, adam: bool = True
) -> tuple[Any, list[float]]:
    net = make().to(device)
    opt = lucid.optim.Adam(net.parameters(), lr=0.01) if adam else lucid.optim.SGD(net.parameters(), lr=0.1)
    x, y = (t.to(device) for t in data(n))
    losses = []
    for _ in range(steps):
        opt.zero_grad()
        loss = nn.functional.mse_loss(net(x), y)
        loss.backward()
        opt.step()
        losses.append(loss.item())
    return net, losses


def mean(value: float) -> float:
    t = lucid.tensor(value, dtype=lucid.float64)
    dist.all_reduce(t, dist.ReduceOp.AVG)
    return float(t.item())


def close(a: Any, b: Any, what: object, tol: float = TABLE["few ops"].rtol) -> None:
    a, b = lucid.tensor(a) if isinstance(a, list) else a, lucid.tensor(b) if isinstance(b, list) else b
    assert lucid.allclose(a.detach().cpu(), b.detach().cpu(), rtol=tol, atol=tol), (what, a, b)


def train_shared(net: Any, opt: Any, device: str, n: int, rank: int, steps: int = STEPS) -> list[float]:
    x, y = (t.to(device)[rank * 8 : rank * 8 + 8] for t in data(n))
    losses = []
    for _ in range(steps):
        opt.zero_grad()
        loss = nn.functional.mse_loss(net(x).float(), y)
        loss.backward()
        opt.step()
        losses.append(mean(loss.item()))
    return losses


def check_ddp(device: str, rank: int, n: int) -> None:
    alone, expected = train_alone(n, device)
    # Ranks start with different weights; rank 0's count. Many small buckets.
    for how in ({}, {"bucket_cap_mb": 1e-4, "gradient_as_bucket_view": True}):
        net = DDP(model(rank).to(device), **how)
        assert (len(net._buckets) > 1) == bool(how)
        losses = train_shared(net, lucid.optim.Adam(net.parameters(), lr=0.01), device, n, rank)
        close(losses, expected, ("ddp", device))
        for a, b in zip(net.module.parameters(), alone.parameters(), strict=True):
            close(a, b, "weights", 1e-4)
    assert all(k.startswith("module.") for k in net.state_dict())


def check_ddp_ways(rank: int, n: int) -> None:
    # Accumulation: the same gradients as one pass over both halves.
    x, y = (t[rank * 8 : rank * 8 + 8] for t in data(n))
    net = DDP(model())
    with net.no_sync():
        nn.functional.mse_loss(net(x[:4]), y[:4]).backward()
    local = net.module[0].weight.grad.clone()
    nn.functional.mse_loss(net(x[4:]), y[4:]).backward()
    whole = model()
    xs, ys = data(n)
    for half in (slice(0, 4), slice(4, 8)):
        parts = [(xs[r * 8 : r * 8 + 8][half], ys[r * 8 : r * 8 + 8][half]) for r in range(n)]
        nn.functional.mse_loss(whole(lucid.cat([p[0] for p in parts])), lucid.cat([p[1] for p in parts])).backward()
    close(net.module[0].weight.grad, whole[0].weight.grad, "no_sync")
    assert not lucid.allclose(local, whole[0].weight.grad)

    # Hooks: 16 bits, and one that the user writes.
    for hook, tol in ((default_hooks.allreduce_hook, 1e-6), (default_hooks.bf16_compress_hook, 3e-2)):
        net = DDP(model())
        net.register_comm_hook(None, hook)
        nn.functional.mse_loss(net(x), y).backward()
        plain = DDP(model())
        nn.functional.mse_loss(plain(x), y).backward()
        close(net.module[2].weight.grad, plain.module[2].weight.grad, hook, tol)

    seen = []

    def own(state: Any, bucket: Any) -> Any:
        seen.append((bucket.index(), len(bucket.gradients()), bucket.is_last()))
        work = dist.all_reduce(bucket.buffer(), async_op=True)
        return work.get_future().then(lambda f: f.value()[0] / n)

    net = DDP(model())
    net.register_comm_hook(None, own)
    nn.functional.mse_loss(net(x), y).backward()
    close(net.module[2].weight.grad, plain.module[2].weight.grad, "own hook")
    assert seen == [(0, 6, True)]

    # Parameters that this process, or no process, uses.
    class Either(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.c = nn.Linear(2, 1), nn.Linear(2, 1), nn.Linear(2, 1)

        def forward(self, x: Any, first: bool) -> Any:
            return (self.a if first else self.b)(x)

    lucid.manual_seed(1)
    net = DDP(Either(), find_unused_parameters=True)
    net(lucid.ones(1, 2), rank == 0).sum().backward()
    close(net.module.a.weight.grad, lucid.full((1, 2), 1 / n), "used by one")
    close(net.module.b.weight.grad, lucid.full((1, 2), (n - 1) / n), "used by others")
    assert net.module.c.weight.grad is None
    net = DDP(Either())
    try:
        net(lucid.ones(1, 2), True).sum().backward()
        raise AssertionError("a parameter without a gradient must be an error")
    except RuntimeError as e:
        assert "b.weight" in str(e) and "find_unused_parameters" in str(e), e

    # Buffers of rank 0 count; state that does not fit is an error on every rank.
    net = DDP(nn.BatchNorm1d(2))
    net.module.running_mean.fill_(float(rank))
    net(lucid.ones(4, 2) * rank)
    close(net.module.running_mean, lucid.zeros(2) if rank == 0 else lucid.full((2,), 0.1 * rank), "buffers")
    try:
        DDP(nn.Linear(2, 2 + rank))
        raise AssertionError("modules that differ must be an error")
    except dist.DistBackendError as e:
        assert "differ" in str(e)


def check_sync_batch_norm(rank: int, n: int) -> None:
    lucid.manual_seed(0)
    xs = lucid.randn(4 * n, 3, 5, dtype=lucid.float64)
    weights = lucid.randn(4 * n, 3, 5, dtype=lucid.float64)
    plain = nn.BatchNorm1d(3).double()
    sync = nn.SyncBatchNorm.convert_sync_batchnorm(copy.deepcopy(plain))
    whole = xs.clone().requires_grad_()
    (plain(whole) * weights).sum().backward()
    part = slice(4 * rank, 4 * rank + 4)
    x = xs[part].clone().requires_grad_()
    (sync(x) * weights[part]).sum().backward()
    close(x.grad, whole.grad[part], "sync batch norm", 1e-9)
    total = sync.weight.grad.clone()
    dist.all_reduce(total)
    close(total, plain.weight.grad, "its weight", 1e-9)
    close(sync.running_var, plain.running_var, "its variance", 1e-9)


def check_sampler(rank: int, n: int) -> None:
    items = TensorDataset(lucid.arange(4 * n))
    sampler = DistributedSampler(items)
    sampler.set_epoch(3)
    own = [int(v) for (batch,) in DataLoader(items, batch_size=2, sampler=sampler) for v in batch]
    every: list[Any] = [None] * n
    dist.all_gather_object(every, own)
    assert sorted(v for part in every for v in part) == list(range(4 * n))


def check_zero(device: str, rank: int, n: int, folder: Path) -> None:
    _, expected = train_alone(n, device)
    net = DDP(model(rank).to(device))
    opt = ZeroRedundancyOptimizer(net.parameters(), lucid.optim.Adam, lr=0.01)
    losses = train_shared(net, opt, device, n, rank)
    close(losses, expected, ("zero", device))
    owned = sum(len(g["params"]) for g in opt.optim.param_groups)
    assert owned < 6, "a share, not all"
    opt.consolidate_state_dict()
    if rank == 0:
        state = opt.state_dict()
        assert sorted(state["state"]) == list(range(6))
        lucid.save(state, folder / f"zero-{device}.pt")
    else:
        try:
            opt.state_dict()
            raise AssertionError
        except RuntimeError:
            pass
    dist.barrier()
    again = ZeroRedundancyOptimizer(net.parameters(), lucid.optim.Adam, lr=0.5)
    again.load_state_dict(lucid.load(folder / f"zero-{device}.pt"))
    assert again.optim.param_groups[0]["lr"] == 0.01
    for p, s in opt.optim.state.items():
        close(again.optim.state[p]["exp_avg"], s["exp_avg"], "loaded state")


def sharded(device: str, reshard: bool = True, **how: Any) -> Any:
    net = model().to(device)
    for layer in (net[0], net[2]):
        fully_shard(layer, reshard_after_forward=reshard, **how)
    return fully_shard(net, reshard_after_forward=reshard, **how)


def check_fsdp(device: str, rank: int, n: int) -> None:
    alone, expected = train_alone(n, device)
    for reshard in (True, False):
        net = sharded(device, reshard)
        numel = sum(p.numel() for p in net.parameters())
        assert numel < sum(p.numel() for p in alone.parameters()), "shards"
        opt = lucid.optim.Adam(net.parameters(), lr=0.01)
        losses = train_shared(net, opt, device, n, rank)
        close(losses, expected, ("fsdp", device, reshard))
        for (name, p), q in zip(net.named_parameters(), alone.parameters(), strict=True):
            close(DTensor.of(p).full_tensor(), q, name, 1e-4)
    check_fsdp_in_parts(device, rank, n)
    mixed = sharded(device, mp_policy=MixedPrecisionPolicy(lucid.bfloat16, lucid.float32))
    losses = train_shared(mixed, lucid.optim.Adam(mixed.parameters(), lr=0.01), device, n, rank)
    close(losses, expected, "mixed precision", 0.05)
    assert all(p.dtype == lucid.float32 for p in mixed.parameters())


def check_fsdp_in_parts(device: str, rank: int, n: int) -> None:
    """Gradients of several backward passes, and their norm over all processes."""
    x, y = (t.to(device) for t in data(n))
    share = len(x) // n
    xs, ys = x[rank * share : (rank + 1) * share], y[rank * share : (rank + 1) * share]
    for order in (2.0, 1.0, math.inf, 0.0):
        net, alone = sharded(device), model().to(device)
        half = share // 2
        net.set_requires_gradient_sync(False)
        (nn.functional.mse_loss(net(xs[:half]), ys[:half]) * half / share).backward()
        assert all(p.grad is None for p in net.parameters()), "held, not summed"
        net.set_requires_gradient_sync(True)
        (nn.functional.mse_loss(net(xs[half:]), ys[half:]) * (share - half) / share).backward()
        nn.functional.mse_loss(alone(x), y).backward()
        got = lucid.nn.utils.clip_grad_norm_(net.parameters(), 0.05, order)
        close(got, lucid.nn.utils.clip_grad_norm_(alone.parameters(), 0.05, order), ("norm", order))
        for p, q in zip(net.parameters(), alone.parameters(), strict=True):
            assert isinstance(p, DTensor) and isinstance(p, nn.Parameter) and p.placements == (Shard(0),)
            close(DTensor(p.grad, p._sharding).full_tensor(), q.grad, "clipped gradient")
            close(p.full_tensor(), q, "full_tensor")


def check_fsdp_wrapper(device: str, rank: int, n: int, folder: Path) -> None:
    alone, expected = train_alone(n, device)
    whole = alone.state_dict()
    policy = ModuleWrapPolicy({nn.Linear})
    for strategy in (ShardingStrategy.FULL_SHARD, ShardingStrategy.SHARD_GRAD_OP):
        net = FSDP(model(rank).to(device), sharding_strategy=strategy, auto_wrap_policy=policy)
        assert sum(isinstance(m, FSDPModule) for m in net.modules()) == 4
        opt = lucid.optim.Adam(net.parameters(), lr=0.01)
        close(train_shared(net, opt, device, n, rank), expected, ("FSDP", device, strategy))
    state = net.state_dict()
    assert list(state) == list(whole)
    for name, value in state.items():
        close(value, whole[name], name, 1e-4)
    # Only rank 0 gets it; what another wrapper loads is the same again, and so is an optimizer's state.
    config = FullStateDictConfig(offload_to_cpu=True, rank0_only=True)
    with FSDP.state_dict_type(net, StateDictType.FULL_STATE_DICT, config):
        assert list(net.state_dict()) == (list(whole) if rank == 0 else [])
    optim = FSDP.optim_state_dict(net, opt)
    again = FSDP(model(7).to(device), auto_wrap_policy=policy)
    again.load_state_dict(state)
    other = lucid.optim.Adam(again.parameters(), lr=0.01)
    FSDP.set_state_dict_type(again, StateDictType.SHARDED_STATE_DICT)
    assert isinstance(again.state_dict()["0.weight"], DTensor)
    other.load_state_dict(FSDP.optim_state_dict_to_load(again, other, optim))
    for (name, p), q in zip(again.named_parameters(), net.parameters(), strict=True):
        close(p, q, name, 0.0)
        close(other.state[p]["exp_avg"], opt.state[q]["exp_avg"], name, 0.0)
    # The norm of all gradients is the one of one process.
    for m in (net, alone):
        m.zero_grad()
    x, y = (t.to(device) for t in data(n))
    nn.functional.mse_loss(alone(x), y).backward()
    nn.functional.mse_loss(net(x), y).backward()
    for order in (2.0, float("inf")):
        norm = net.clip_grad_norm_(0.01, order)
        close(norm, nn.utils.clip_grad_norm_(alone.parameters(), 0.01, order), ("norm", order), 1e-4)
    with FSDP.summon_full_params(net):
        assert net.module[0].weight.shape == (9, 6)
        with lucid.no_grad():
            net.module[0].weight.fill_(2.0)
    assert net.module[0].weight.unique().tolist() == [2.0]
    try:
        FSDP(model().to(device), sharding_strategy=ShardingStrategy.NO_SHARD)
        raise AssertionError
    except NotImplementedError as e:
        assert "DistributedDataParallel" in str(e)
    # Readers, writers and options as PyTorch names them; one file that any program reads.
    options = StateDictOptions(full_state_dict=True)
    model_state, optim_state = get_state_dict(again, other, options=options)
    assert all(not isinstance(v, DTensor) for v in [*model_state.values(), *optim_state.values()])
    set_state_dict(again, other, model_state_dict=model_state, optim_state_dict=optim_state, options=options)
    sharded_state = {"model": get_model_state_dict(again)}
    dcp.save(sharded_state, storage_writer=dcp.FileSystemWriter(folder / f"named-{device}"))
    if rank == 0:
        dcp_to_torch_save(folder / f"named-{device}", folder / "one.pt")
        read = lucid.load(folder / "one.pt")["model"]
        for name, value in read.items():
            close(value, model_state[name], name, 0.0)
    reader = dcp.FileSystemReader(folder / f"named-{device}")
    dist.barrier()
    dcp.load(sharded_state, storage_reader=reader)


def check_placements(rank: int, n: int) -> None:
    mesh = init_device_mesh("cpu", (n,))
    share = DTensor.from_local(lucid.full((4, 2), float(rank + 1)), mesh, [Partial()])
    assert share.full_tensor()[0, 0].item() == n * (n + 1) / 2
    part = share.redistribute(placements=[Shard(0)])
    assert part.to_local().shape == (4 // n, 2) and part.placements[0].is_shard(0)

    def halve(name: str, m: Any, mesh: Any) -> None:
        if isinstance(m, nn.Linear):
            m.weight.data = m.weight.data / 2

    net = nn.Linear(2, 2)
    before = net.weight.detach().clone()
    distribute_module(net, mesh, halve, output_fn=lambda m, out, mesh: out * 0)
    assert lucid.equal(net.weight, before / 2) and net(lucid.ones(1, 2)).abs().sum().item() == 0


def check_profiler(rank: int, n: int) -> None:
    with lucid.profiler() as p:
        work = dist.all_reduce(lucid.ones(3), async_op=True)
        dist.barrier()
        work.wait()
    found = {e.name: e for e in p.events() if e.category == "communication"}
    assert found.keys() == {"all_reduce", "barrier"} and found["all_reduce"].shape == [3]
    assert all(e.duration_ns > 0 for e in found.values())


def check_activation_checkpointing(rank: int, n: int) -> None:
    plain, net = model(), model()
    apply_activation_checkpointing(net, check_fn=lambda m: isinstance(m, nn.Linear))
    assert isinstance(net[0], CheckpointWrapper) and net.state_dict().keys() == plain.state_dict().keys()
    net.load_state_dict(plain.state_dict())
    x, _ = data(1)
    plain(x).sum().backward()
    net(x).sum().backward()
    for a, b in zip(net.parameters(), plain.parameters(), strict=True):
        close(a.grad, b.grad, "activation checkpointing")


class Two(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        lucid.manual_seed(0)
        self.up, self.down, self.out = nn.Linear(6, 8), nn.Linear(8, 8), nn.Linear(8, 3)

    def forward(self, x: Any) -> Any:
        return self.out(lucid.tanh(self.down(lucid.tanh(self.up(x)))))


def check_tensor_parallel(device: str, rank: int, n: int) -> None:
    _, expected = train_alone(n, device, Two)
    mesh = dist.init_device_mesh(device, (n,))
    net = Two().to(device)
    plan = {"up": ColwiseParallel(), "down": RowwiseParallel()}
    parallelize_module(net, mesh, plan)
    assert net.up.weight.shape == (8 // n, 6) and net.down.weight.shape == (8, 8 // n)
    x, y = (t.to(device) for t in data(n))
    opt = lucid.optim.Adam(net.parameters(), lr=0.01)
    losses = []
    for _ in range(STEPS):
        opt.zero_grad()
        loss = nn.functional.mse_loss(net(x), y)
        loss.backward()
        opt.step()
        losses.append(loss.item())
    close(losses, expected, ("tensor parallel", device))
    lucid.manual_seed(0)
    table, ids = nn.Embedding(4 * n, 6), lucid.tensor([[0, 4 * n - 1], [3, 2]])
    expected = table(ids).detach()
    for style in (RowwiseParallel(), ColwiseParallel(output_layouts=Replicate())):
        close(parallelize_module(copy.deepcopy(table), mesh, style)(ids), expected, style)
    d = distribute_tensor(lucid.arange(10.0) + rank, mesh, [Shard(0)])
    close(d.full_tensor(), lucid.arange(10.0), "distributed from rank 0")
    assert d.redistribute(placements=[Replicate()]).to_local().numel() == 10


def check_pipeline(device: str, rank: int, n: int, steps: int = STEPS) -> None:
    _, expected = train_alone(n, device, steps=steps, adam=False)
    whole = model().to(device)
    cuts = [0, 2, 5] if n == 2 else [0, 1, 2, 4, 5]
    x, y = (t.to(device) for t in data(n))
    for schedule in (ScheduleGPipe, Schedule1F1B):
        part = copy.deepcopy(whole[cuts[rank] : cuts[rank + 1]])
        stage = PipelineStage(part, rank, n, device)
        pipe = schedule(stage, 4, nn.functional.mse_loss)
        params = list(part.parameters())
        opt = lucid.optim.SGD(params, lr=0.1) if params else None
        losses = []
        for _ in range(steps):
            if opt is not None:
                opt.zero_grad()
            parts: list[Any] = []
            out = pipe.step(*([x] if rank == 0 else []), target=y if rank == n - 1 else None, losses=parts)
            if opt is not None:
                opt.step()
            if rank == n - 1:
                assert out.shape == y.shape
                losses.append(sum(p.item() for p in parts) / 4)
        if rank == n - 1:
            close(losses, expected, (schedule.__name__, device))


def check_save(folder: Path, rank: int, n: int) -> None:
    """Writes what another number of processes reads."""
    net = sharded("cpu")
    opt = lucid.optim.Adam(net.parameters(), lr=0.01)
    train_shared(net, opt, "cpu", 4, rank, 3)
    state = {
        "model": get_model_state_dict(net),
        "optim": get_optimizer_state_dict(net, opt),
        "step": 3,
        "nested": {"list": [1.5, lucid.arange(3)], "text": "x"},
    }
    dcp.save(state, checkpoint_id=folder / "one")
    handle = dcp.async_save({**state, "step": 4}, checkpoint_id=folder / "one")
    handle.result()
    assert sorted(p.name for p in folder.iterdir() if p.name.startswith(".")) == []
    full = {name: DTensor.of(p).full_tensor().detach() for name, p in net.named_parameters()}
    if rank == 0:
        lucid.save(full, folder / "expected.pt")


def check_load(folder: Path, rank: int, n: int) -> None:
    net = sharded("cpu")
    opt = lucid.optim.Adam(net.parameters(), lr=0.01)
    train_shared(net, opt, "cpu", n, rank, 1)
    state: dict[str, Any] = {
        "model": get_model_state_dict(net),
        "optim": get_optimizer_state_dict(net, opt),
        "step": 0,
        "nested": {"list": [0.0, lucid.zeros(3, dtype=lucid.int64)], "text": ""},
    }
    dcp.load(state, checkpoint_id=folder / "one")
    assert state["step"] == 4 and state["nested"]["list"][0] == 1.5 and state["nested"]["text"] == "x"
    assert state["nested"]["list"][1].tolist() == [0, 1, 2]
    expected = lucid.load(folder / "expected.pt")
    for name, p in net.named_parameters():
        close(DTensor.of(p).full_tensor(), expected[name], name, 0.0)
    try:
        dcp.load({"absent": lucid.zeros(1)}, checkpoint_id=folder / "one")
        raise AssertionError
    except dcp.CheckpointException as e:
        assert "absent" in str(e)


def main() -> None:
    what, folder = sys.argv[1], Path(sys.argv[2])
    dist.init_process_group(timeout=60)
    rank, n = dist.get_rank(), dist.get_world_size()
    if what == "load":
        check_load(folder, rank, n)
    for device in ("cpu", "gpu") if what == "train" else ():
        check_ddp(device, rank, n)
        check_zero(device, rank, n, folder)
        check_fsdp(device, rank, n)
        check_fsdp_wrapper(device, rank, n, folder)
        check_tensor_parallel(device, rank, n)
        check_pipeline(device, rank, n)
    if what == "train":
        check_ddp_ways(rank, n)
        check_sync_batch_norm(rank, n)
        check_sampler(rank, n)
        check_placements(rank, n)
        check_profiler(rank, n)
        check_activation_checkpointing(rank, n)
    if what == "save":
        check_pipeline("cpu", rank, n, 3)
        check_save(folder, rank, n)
    dist.destroy_process_group()
    print("done", flush=True)


main()
