"""Whole programs in PyTorch's idioms, written once for either package: each gives numbers that both must agree on.

A program takes the module (`torch` or `lucid`), a device and a `Draws` of the same numbers for both. Layers begin with
weights drawn from there, too.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np

PROGRAMS: dict[str, Callable[..., Any]] = {}


def program(f: Callable[..., Any]) -> Callable[..., Any]:
    PROGRAMS[f.__name__] = f
    return f


class Draws:
    """The same numbers in the same order, as tensors of one package on one device."""

    def __init__(self, m: Any, device: str, seed: int = 0) -> None:
        self.m, self.device, self.rng = m, device, np.random.default_rng(seed)

    def normal(self, *shape: int, scale: float = 1.0) -> Any:
        values = (self.rng.standard_normal(shape) * scale).astype(np.float32)
        return self.m.tensor(values.tolist(), device=self.device)

    def uniform(self, *shape: int) -> Any:
        return self.m.tensor(self.rng.random(shape).astype(np.float32).tolist(), device=self.device)

    def labels(self, high: int, *shape: int, low: int = 0) -> Any:
        return self.m.tensor(self.rng.integers(low, high, shape).tolist(), device=self.device)

    def fill(self, module: Any) -> Any:
        """The module on the device, with weights drawn in the order of its parameters."""
        module = module.to(self.device)
        with self.m.no_grad():
            for p in module.parameters():
                p.copy_(self.normal(*p.shape, scale=0.3))
        return module


def gradients(module: Any) -> list[Any]:
    return [None if p.grad is None else p.grad.clone() for p in module.parameters()]


def state(module: Any) -> list[Any]:
    return [v.detach().clone() for v in module.state_dict().values()]


@program
def vae(m: Any, device: str, d: Draws) -> Any:
    nn, F = m.nn, m.nn.functional

    class VAE(nn.Module):  # type: ignore[name-defined, misc]
        def __init__(self) -> None:
            super().__init__()
            self.enc = nn.Sequential(nn.Linear(12, 8), nn.ReLU())
            self.mu, self.logvar = nn.Linear(8, 3), nn.Linear(8, 3)
            self.dec = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 12))

        def forward(self, x: Any, noise: Any) -> Any:
            h = self.enc(x)
            mu, logvar = self.mu(h), self.logvar(h)
            std = (0.5 * logvar).exp()
            return self.dec(mu + noise * std), mu, logvar

    model = d.fill(VAE())
    opt = m.optim.Adam(model.parameters(), lr=1e-2)
    x, losses = d.uniform(16, 12), []
    for _ in range(5):
        logits, mu, logvar = model(x, d.normal(16, 3))
        rec = F.binary_cross_entropy_with_logits(logits, x, reduction="sum")
        kld = -0.5 * m.sum(1 + logvar - mu.pow(2) - logvar.exp())
        loss = (rec + kld) / len(x)
        opt.zero_grad()
        loss.backward()
        opt.step()
        losses.append(loss.item())
    return losses, state(model)


@program
def gan(m: Any, device: str, d: Draws) -> Any:
    nn, F = m.nn, m.nn.functional
    g = d.fill(
        nn.Sequential(nn.Linear(4, 16, bias=False), nn.BatchNorm1d(16), nn.LeakyReLU(0.2), nn.Linear(16, 6), nn.Tanh())
    )
    c = d.fill(nn.Sequential(nn.utils.spectral_norm(nn.Linear(6, 8)), nn.LeakyReLU(0.2, inplace=True), nn.Linear(8, 1)))
    with m.no_grad():
        c[0].weight_u.copy_(F.normalize(d.normal(8), dim=0))
        if hasattr(c[0], "weight_v"):
            c[0].weight_v.copy_(F.normalize(d.normal(6), dim=0))
    og = m.optim.Adam(g.parameters(), lr=2e-3, betas=(0.5, 0.999))
    oc = m.optim.RMSprop(c.parameters(), lr=1e-3)
    real, said = d.normal(10, 6), []
    for _ in range(3):
        fake = g(d.normal(10, 4))
        oc.zero_grad(set_to_none=True)
        loss_c = F.softplus(-c(real)).mean() + F.softplus(c(fake.detach())).mean()
        mix = d.uniform(10, 1)
        between = (mix * real + (1 - mix) * fake.detach()).requires_grad_(True)
        (slope,) = m.autograd.grad(c(between).sum(), between, create_graph=True)
        loss_c = loss_c + 10 * ((slope.norm(2, dim=1) - 1) ** 2).mean()
        loss_c.backward()
        oc.step()
        for p in c.parameters():
            p.requires_grad_(False)
        og.zero_grad()
        loss_g = F.softplus(-c(fake)).mean()
        loss_g.backward()
        og.step()
        for p in c.parameters():
            p.requires_grad_(True)
        said += [loss_c.item(), loss_g.item()]
    return said, state(g), state(c)


@program
def accumulation_clipping_and_schedule(m: Any, device: str, d: Draws) -> Any:
    nn, F = m.nn, m.nn.functional
    model = d.fill(nn.Sequential(nn.Linear(6, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 4)))
    decayed = [p for n, p in model.named_parameters() if n.endswith("weight") and p.ndim > 1]
    rest = [p for n, p in model.named_parameters() if not (n.endswith("weight") and p.ndim > 1)]
    groups = [{"params": decayed, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0, "lr": 2e-2}]
    opt = m.optim.AdamW(groups, lr=1e-2)
    warm = m.optim.lr_scheduler.LambdaLR(opt, lambda step: min(1.0, (step + 1) / 3))
    cosine = m.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=5)
    sched = m.optim.lr_scheduler.SequentialLR(opt, [warm, cosine], milestones=[3])
    data, targets, said = d.normal(32, 6), d.labels(4, 32), []
    for _ in range(3):
        for i in range(0, 32, 8):
            loss = F.cross_entropy(model(data[i : i + 8]), targets[i : i + 8], label_smoothing=0.1) / 2
            loss.backward()
            if (i // 8 + 1) % 2 == 0:
                total = nn.utils.clip_grad_norm_(model.parameters(), 0.5)
                opt.step()
                sched.step()
                opt.zero_grad()
                said += [total.item(), *sched.get_last_lr()]
    return said, state(model), opt.state_dict()["state"][0]["exp_avg"]


@program
def seq2seq_with_teacher_forcing(m: Any, device: str, d: Draws) -> Any:
    nn, F = m.nn, m.nn.functional
    rnn = nn.utils.rnn

    class Seq2Seq(nn.Module):  # type: ignore[name-defined, misc]
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(9, 5, padding_idx=0)
            self.encoder = nn.GRU(5, 6, batch_first=True, bidirectional=True)
            self.bridge = nn.Linear(12, 6)
            self.attend = nn.Linear(6, 12, bias=False)
            self.cell = nn.GRUCell(5 + 12, 6)
            self.out = nn.Linear(6, 9)

        def forward(self, source: Any, lengths: Any, target: Any, forced: list[bool]) -> Any:
            packed = rnn.pack_padded_sequence(self.embed(source), lengths, batch_first=True, enforce_sorted=False)
            packed, h = self.encoder(packed)
            memory, _ = rnn.pad_packed_sequence(packed, batch_first=True)
            hidden = m.tanh(self.bridge(m.cat([h[0], h[1]], dim=1)))
            mask = source[:, : memory.size(1)] == 0
            token, logits = target[:, 0], []
            for t in range(1, target.size(1)):
                scores = m.bmm(memory, self.attend(hidden).unsqueeze(2)).squeeze(2)
                weights = scores.masked_fill(mask, float("-inf")).softmax(-1)
                context = (weights.unsqueeze(1) @ memory).squeeze(1)
                hidden = self.cell(m.cat((self.embed(token), context), -1), hidden)
                logits.append(self.out(hidden))
                token = target[:, t] if forced[t] else logits[-1].argmax(-1)
            return m.stack(logits, dim=1)

    model = d.fill(Seq2Seq())
    with m.no_grad():
        model.embed.weight[0].zero_()
    lengths = m.tensor([4, 2, 3])
    source = d.labels(9, 3, 4, low=1)
    source = source.masked_fill(m.arange(4, device=device) >= lengths.to(device).unsqueeze(1), 0)
    target = d.labels(9, 3, 5, low=1)
    opt, said = m.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True), []
    for step in range(3):
        logits = model(source, lengths, target, [True, step % 2 == 0, False, True, True])
        loss = F.cross_entropy(logits.reshape(-1, 9), target[:, 1:].reshape(-1), ignore_index=3)
        opt.zero_grad()
        loss.backward()
        opt.step()
        said.append(loss.item())
    return said, state(model)


@program
def maml(m: Any, device: str, d: Draws) -> Any:
    nn, F = m.nn, m.nn.functional
    func = import_module(f"{m.__name__}.func")
    model = d.fill(nn.Sequential(nn.Linear(1, 8), nn.Tanh(), nn.Linear(8, 1)))
    meta, said = m.optim.Adam(model.parameters(), lr=1e-2), []
    for _ in range(3):
        meta.zero_grad()
        total = 0.0
        for _task in range(2):
            amplitude, phase = d.uniform(1) * 4 + 0.1, d.uniform(1) * math.pi
            xs, xq = d.uniform(5, 1) * 10 - 5, d.uniform(5, 1) * 10 - 5
            fast = dict(model.named_parameters())
            for _inner in range(2):
                loss = F.mse_loss(func.functional_call(model, fast, (xs,)), amplitude * m.sin(xs - phase))
                grads = m.autograd.grad(loss, list(fast.values()), create_graph=True)
                fast = {n: p - 0.01 * g for (n, p), g in zip(fast.items(), grads, strict=True)}
            total = total + F.mse_loss(func.functional_call(model, fast, (xq,)), amplitude * m.sin(xq - phase))
        total.backward()
        meta.step()
        said.append(total.item())
    return said, state(model)


@program
def ema_through_state_dict(m: Any, device: str, d: Draws) -> Any:
    nn = m.nn
    model = d.fill(
        nn.Sequential(nn.Conv1d(2, 4, 3, padding=1), nn.BatchNorm1d(4), nn.ReLU(), nn.Flatten(), nn.Linear(20, 2))
    )
    ema = copy.deepcopy(model).eval()
    for p in ema.parameters():
        p.requires_grad_(False)
    opt = m.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(4):
        model.train()
        loss = model(d.normal(6, 2, 5)).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        own = model.state_dict()
        kept = {
            k: v * 0.9 + own[k].detach() * 0.1 if v.dtype.is_floating_point else own[k].clone()
            for k, v in ema.state_dict().items()
        }
        found = ema.load_state_dict(kept)
        assert not found.missing_keys and not found.unexpected_keys
    x = d.normal(3, 2, 5)
    return ema(x), model.eval()(x), int(ema[1].num_batches_tracked), [n for n, _ in ema.named_buffers()]


@program
def weight_tying(m: Any, device: str, d: Draws) -> Any:
    nn, F = m.nn, m.nn.functional

    class Tied(nn.Module):  # type: ignore[name-defined, misc]
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(7, 5)
            self.mix = nn.Linear(5, 5)
            self.head = nn.Linear(5, 7, bias=False)
            self.head.weight = self.embed.weight

        def forward(self, tokens: Any) -> Any:
            return self.head(self.mix(self.embed(tokens)).tanh())

    model = d.fill(Tied())
    tokens, next_tokens = d.labels(7, 4, 3), d.labels(7, 4, 3)
    opt = m.optim.Adagrad(model.parameters(), lr=0.1)
    for _ in range(3):
        opt.zero_grad()
        F.cross_entropy(model(tokens).flatten(0, 1), next_tokens.flatten()).backward()
        opt.step()
    again = Tied().to(device)
    again.load_state_dict(model.state_dict())
    shared = again.head.weight is again.embed.weight
    return [len(list(model.parameters())), sorted(model.state_dict()), shared], again(tokens), gradients(model)


@program
def function_with_several_outputs(m: Any, device: str, d: Draws) -> Any:
    class Polar(m.autograd.Function):  # type: ignore[name-defined, misc]
        @staticmethod
        def forward(ctx: Any, x: Any, y: Any, scale: float) -> Any:
            r, angle = (x * x + y * y).sqrt(), m.atan2(y, x)
            ctx.save_for_backward(x, y, r)
            ctx.scale = scale
            octant = (angle * 4 / math.pi).round().to(m.int64)
            ctx.mark_non_differentiable(octant)
            ctx.set_materialize_grads(False)
            return r * scale, angle, octant

        @staticmethod
        def backward(ctx: Any, gr: Any, ga: Any, _octant: Any) -> Any:
            x, y, r = ctx.saved_tensors
            gx = gy = 0
            if gr is not None:
                gx, gy = gr * ctx.scale * x / r, gr * ctx.scale * y / r
            if ga is not None:
                gx, gy = gx - ga * y / r**2, gy + ga * x / r**2
            return gx, gy, None

    x, y = d.normal(6).requires_grad_(), d.normal(6).requires_grad_()
    r, angle, octant = Polar.apply(x, y, 2.0)
    (gx,) = m.autograd.grad((r * angle.sin()).sum(), x, create_graph=True)
    gx.square().sum().backward()
    (only,) = m.autograd.grad(Polar.apply(x, y, 3.0)[1].sum(), y)
    return r, angle, octant, octant.requires_grad, gx, x.grad, y.grad, only


@program
def pruning_by_hooks(m: Any, device: str, d: Draws) -> Any:
    nn = m.nn
    model = d.fill(nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3)))
    masks, seen = {}, []
    for name, p in model.named_parameters():
        if p.dim() > 1:
            k = p.numel() // 2
            bound = p.detach().abs().flatten().kthvalue(k).values
            masks[name] = (p.detach().abs() > bound).to(p.dtype)
            with m.no_grad():
                p.mul_(masks[name])
            p.register_hook(lambda g, mask=masks[name]: g * mask)
    model[1].register_forward_hook(lambda mod, args, out: seen.append((out > 0).sum().item()))
    handle = model[2].register_forward_pre_hook(lambda mod, args: (args[0] * 2,))
    model[2].register_full_backward_hook(lambda mod, gi, go: seen.append(tuple(gi[0].shape)))
    opt = m.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    x = d.normal(5, 6)
    for step in range(3):
        if step == 2:
            handle.remove()
        opt.zero_grad()
        model(x).logsumexp(1).mean().backward()
        opt.step()
    dead = [int((p == 0).sum()) for n, p in model.named_parameters() if n in masks]
    return seen, dead, state(model)


@program
def quantile_regression(m: Any, device: str, d: Draws) -> Any:
    nn = m.nn
    model = d.fill(nn.Sequential(nn.Linear(3, 10), nn.SiLU(), nn.Linear(10, 3)))
    levels = m.tensor([0.1, 0.5, 0.9], device=device)
    x, y = d.normal(40, 3), d.normal(40)
    opt, said = m.optim.LBFGS(model.parameters(), lr=0.5, max_iter=5, line_search_fn="strong_wolfe"), []

    def closure() -> Any:
        opt.zero_grad()
        gap = y.unsqueeze(-1) - model(x)
        loss = m.maximum(levels * gap, (levels - 1) * gap).mean() + 1e-3 * sum(
            p.pow(2).sum() for p in model.parameters()
        )
        loss.backward()
        return loss

    for _ in range(2):
        said.append(float(opt.step(closure)))
    with m.no_grad():
        made = model(x)
    return said, m.quantile(y, levels), made.sort(dim=-1).values.mean(0), (y[:, None] < made).float().mean(dim=0)


@program
def simclr(m: Any, device: str, d: Draws) -> Any:
    nn, F = m.nn, m.nn.functional
    model = d.fill(
        nn.Sequential(nn.Conv2d(1, 4, 3, stride=2), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(16, 8))
    )
    opt, said = m.optim.SGD(model.parameters(), lr=0.2, weight_decay=1e-4), []
    images = d.normal(6, 1, 9, 9)
    for _ in range(3):
        a, b = images + 0.1 * d.normal(6, 1, 9, 9), images.flip(-1)
        z = F.normalize(model(m.cat([a, b])), dim=1)
        sim = z @ z.t() / 0.5
        sim.fill_diagonal_(float("-inf"))
        loss = F.cross_entropy(sim, m.arange(12, device=device).roll(6))
        opt.zero_grad()
        loss.backward()
        opt.step()
        said.append(loss.item())
    return said, sim, state(model)


@program
def beam_search(m: Any, device: str, d: Draws) -> Any:
    nn, width, vocabulary = m.nn, 3, 8
    embed, cell = d.fill(nn.Embedding(vocabulary, 6)), d.fill(nn.LSTMCell(6, 7))
    head = d.fill(nn.Linear(7, vocabulary))
    with m.inference_mode():
        beams = m.full((1, 1), 1, dtype=m.long, device=device)
        scores = m.zeros(1, device=device)
        h, c = m.zeros(1, 7, device=device), m.zeros(1, 7, device=device)
        done: list[tuple[float, list[int]]] = []
        for _ in range(6):
            h, c = cell(embed(beams[:, -1]), (h, c))
            logp = head(h * 3).log_softmax(-1)
            total = scores[:, None] + logp
            scores, flat = total.view(-1).topk(min(width, total.numel()))
            parent, token = m.div(flat, vocabulary, rounding_mode="floor"), flat % vocabulary
            beams = m.cat([beams.index_select(0, parent), token[:, None]], dim=1)
            h, c = h[parent], c[parent]
            ended = token == 0
            done += [(s.item() / beams.size(1), b.tolist()) for s, b in zip(scores[ended], beams[ended], strict=True)]
            if ended.all():
                break
            scores = scores.masked_fill(ended, -1e9)
    return sorted(done, reverse=True)[:3], scores, beams


@program
def k_means(m: Any, device: str, d: Draws) -> Any:
    points = m.cat([d.normal(20, 2) * 0.3 + m.tensor(c, device=device) for c in ([0.0, 0.0], [3.0, 3.0], [0.0, 4.0])])
    centres = points[m.tensor([0, 25, 50], device=device)].clone()
    for _ in range(5):
        nearest = m.cdist(points, centres).argmin(dim=1)
        sums = m.zeros_like(centres).index_add_(0, nearest, points)
        counts = m.bincount(nearest, minlength=3).clamp(min=1)
        centres = sums / counts.unsqueeze(1)
    other = m.zeros_like(centres).scatter_reduce(0, nearest[:, None].expand(-1, 2), points, "mean", include_self=False)
    inertia = (points - centres[nearest]).pow(2).sum()
    order = m.unique(nearest, return_counts=True)
    return centres, other, counts, inertia, *order


@program
def conjugate_gradient(m: Any, device: str, d: Draws) -> Any:
    q = d.normal(6, 6)
    a, b = q @ q.mT + m.eye(6, device=device), d.normal(6)
    x = m.zeros_like(b)
    r = b - a @ x
    p, rs, said = r.clone(), r @ r, []
    for _ in range(6):
        ap = m.mv(a, p)
        alpha = rs / p.dot(ap)
        x.add_(p, alpha=alpha.item())
        r = r - alpha * ap
        new = m.vdot(r, r)
        if new.sqrt() < 1e-4:
            break
        p = r + (new / rs) * p
        rs = new
        said.append(bool(rs > 0))
    return said, m.linalg.solve(a, b) - x.detach() < 1e-2, m.linalg.norm(a @ x - b) < 1e-2, m.linalg.slogdet(a)
