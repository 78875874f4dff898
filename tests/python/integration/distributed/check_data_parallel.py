"""`DistributedDataParallel` with PowerSGD, and with uneven inputs, against one process. Run by the launcher."""

from __future__ import annotations

from typing import Any

import lucid
import lucid.distributed as dist
from lucid import nn
from lucid.distributed.algorithms.ddp_comm_hooks import powerSGD_hook
from lucid.distributed.algorithms.ddp_comm_hooks.post_localSGD_hook import PostLocalSGDState, post_localSGD_hook
from lucid.distributed.algorithms.join import Join, Joinable, JoinHook
from lucid.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from lucid.distributed.optim import PostLocalSGDOptimizer
from lucid.distributed.utils import _sync_module_states
from lucid.nn.data_parallel import GradBucket
from lucid.nn.parallel import DistributedDataParallel as DDP

from tests.python.tolerances import within

STEPS = 20


def model() -> nn.Sequential:
    lucid.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 9), nn.Tanh(), nn.Linear(9, 7), nn.Tanh(), nn.Linear(7, 3))


def data(n: int) -> tuple[lucid.Tensor, lucid.Tensor]:
    g = lucid.Generator().manual_seed(5)
    return lucid.randn(8 * n, 6, generator=g, device="cpu"), lucid.randn(8 * n, 3, generator=g, device="cpu")


def close(a: lucid.Tensor, b: lucid.Tensor, what: object, name: str = "near zero") -> None:
    assert lucid.allclose(a.detach(), b.detach(), **within(name)), (what, a, b)


def trained(net: nn.Module, x: lucid.Tensor, y: lucid.Tensor) -> list[float]:
    """The losses of some steps, as means over the processes."""
    opt = lucid.optim.SGD(net.parameters(), lr=0.1)
    losses = []
    for _ in range(STEPS):
        opt.zero_grad()
        loss = nn.functional.mse_loss(net(x), y)
        loss.backward()
        opt.step()
        losses.append(loss.detach())
    every = lucid.stack(losses)
    dist.all_reduce(every, dist.ReduceOp.AVG)
    return every.tolist()


def check_powersgd(rank: int, n: int) -> None:
    x, y = data(n)
    expected = trained(model(), x, y)
    x, y = x.chunk(n)[rank], y.chunk(n)[rank]
    # A rank as high as the matrices': nothing is left out.
    state = powerSGD_hook.PowerSGDState(None, 9, 2, min_compression_rate=0.1)
    net = DDP(model())
    net.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    close(lucid.tensor(trained(net, x, y)), lucid.tensor(expected), "full rank", "program")
    for hook in (powerSGD_hook.powerSGD_hook, powerSGD_hook.batched_powerSGD_hook):
        state = powerSGD_hook.PowerSGDState(None, 1, 2, min_compression_rate=1)
        net = DDP(model())
        net.register_comm_hook(state, hook)
        losses = trained(net, x, y)
        assert losses[-1] < losses[0] and abs(losses[-1] - expected[-1]) < 0.2, losses
        assert state.compression_stats()[0] > 1.2 and state.iter == STEPS
        # Every process has the same, and what was sent and what was kept are all that there was.
        sent, kept = lucid.nn.utils.parameters_to_vector(net.parameters()).detach(), state.error_dict[0].clone()
        mean = sent.clone()
        dist.all_reduce(mean, dist.ReduceOp.AVG)
        close(mean, sent, "replicas")
        flat = lucid.randn(kept.numel(), generator=lucid.Generator().manual_seed(rank), device="cpu")
        bucket = GradBucket(0, flat, net._buckets[0], True)
        out = hook(state, bucket).wait()
        whole = flat + kept
        for t in (whole, error := state.error_dict[0].clone(), out):
            dist.all_reduce(t, dist.ReduceOp.AVG)
        close(out + error, whole, "error feedback")


def check_uneven_inputs(rank: int, n: int) -> None:
    """`join`: rank r has r + 2 inputs."""
    x, y = data(n)
    parts = list(zip(x.chunk(8 * n // 2), y.chunk(8 * n // 2), strict=True))
    for by_all in (True, False):
        alone, net = model(), DDP(model(), find_unused_parameters=by_all)
        opt, other = (lucid.optim.SGD(m.parameters(), lr=0.1) for m in (net, alone))
        with net.join(divide_by_initial_world_size=by_all):
            for a, b in parts[: rank + 2]:
                opt.zero_grad()
                nn.functional.mse_loss(net(a), b).backward()
                opt.step()
        for i in range(n + 1):
            going = sum(i < r + 2 for r in range(n))
            other.zero_grad()
            a, b = parts[i]
            (nn.functional.mse_loss(alone(a), b) * going / (n if by_all else going)).backward()
            other.step()
        for p, q in zip(net.parameters(), alone.parameters(), strict=True):
            close(p, q, ("join", by_all))
    net = DDP(nn.Sequential(nn.Linear(6, 3), nn.BatchNorm1d(3)))
    try:
        with net.join(throw_on_early_termination=True):
            for a, _ in parts[: rank + 2]:
                net(a).sum().backward()
        raise AssertionError("one ended early")
    except RuntimeError as e:
        assert "no inputs any more" in str(e)


class Count(Joinable):
    """Sums a number over all processes in each pass; one without inputs adds nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.sums: list[float] = []
        self.last: bool | None = None

    def __call__(self, x: float) -> None:
        Join.notify_join_context(self)
        self.add(x)

    def add(self, x: float) -> None:
        total = lucid.tensor([x])
        dist.all_reduce(total)
        self.sums.append(total.item())

    def join_hook(self, **kwargs: Any) -> JoinHook:
        assert kwargs == {"nothing": 0.0}

        class Hook(JoinHook):
            def main_hook(hook) -> None:
                self.add(kwargs["nothing"])

            def post_hook(hook, is_last_joiner: bool) -> None:
                self.last = is_last_joiner

        return Hook()

    @property
    def join_device(self) -> Any:
        return lucid.device("cpu")

    @property
    def join_process_group(self) -> Any:
        return dist.group.WORLD


def check_join(rank: int, n: int) -> None:
    """`Join` of a joinable and of a module: rank r has r + 2 inputs."""
    count = Count()
    with Join([count], nothing=0.0):
        for _ in range(rank + 2):
            count(1.0)
    assert count.sums == [float(sum(i < r + 2 for r in range(n))) for i in range(n + 1)] and count.last == (
        rank == n - 1
    )
    x, y = data(n)
    nets = [DDP(model()), DDP(model())]
    blocks = [nets[0].join(), Join([nets[1]])]
    for net, block in zip(nets, blocks, strict=True):
        with block:
            for a, b in list(zip(x.chunk(8 * n // 2), y.chunk(8 * n // 2), strict=True))[: rank + 2]:
                nn.functional.mse_loss(net(a), b).backward()
    for p, q in zip(nets[0].parameters(), nets[1].parameters(), strict=True):
        close(p.grad, q.grad, "Join")
    try:
        with Join([count], throw_on_early_termination=True, nothing=0.0):
            for _ in range(rank + 2):
                count(1.0)
        raise AssertionError("one ended early")
    except RuntimeError as e:
        assert "exhausted inputs" in str(e)


def check_local_sgd(rank: int, n: int) -> None:
    """Gradients of all processes at first; then each steps alone, and parameters are averaged every third step."""
    x, y = data(n)
    x, y = x.chunk(n)[rank], y.chunk(n)[rank]
    net = DDP(model())
    subgroup = [dist.new_group([r]) for r in range(n)][rank]
    net.register_comm_hook(PostLocalSGDState(None, subgroup, 2), post_localSGD_hook)
    averager = PeriodicModelAverager(period=3, warmup_steps=2)
    opt = PostLocalSGDOptimizer(lucid.optim.SGD(net.parameters(), lr=0.1), averager)
    same = []
    for _ in range(7):
        opt.zero_grad()
        nn.functional.mse_loss(net(x), y).backward()
        opt.step()
        own = nn.utils.parameters_to_vector(net.parameters()).detach()
        mean = own.clone()
        dist.all_reduce(mean, dist.ReduceOp.AVG)
        same.append(bool((own - mean).abs().max() < 1e-6))
    assert same == [True, True, True, False, False, True, False], same
    assert opt.state_dict()["step"] == 7 and averager.step == 7
    _sync_module_states(net.module, None, 1 << 20, n - 1, {"0.bias"})
    held = [p.detach().clone() for p in net.parameters()]
    for p in held:
        dist.broadcast(p, 0)
    differ = [not lucid.equal(p, q) for p, q in zip(held, net.parameters(), strict=True)]
    assert differ == [rank != 0 and name == "0.bias" for name, _ in net.module.named_parameters()]


dist.init_process_group(timeout=60)
check_join(dist.get_rank(), dist.get_world_size())
check_local_sgd(dist.get_rank(), dist.get_world_size())
check_powersgd(dist.get_rank(), dist.get_world_size())
check_uneven_inputs(dist.get_rank(), dist.get_world_size())
dist.destroy_process_group()
print("done", flush=True)
