"""Programs as popular repositories write them: diffusion, PPO, packed sequences, graphs, rays, flows, critics."""

from __future__ import annotations

import collections
import copy
import io
import math
from importlib import import_module
from typing import Any

import numpy as np

from tests.python.parity.programs.programs import Draws, gradients, program, state


@program
def ddpm_with_ema(m: Any, device: str, d: Draws) -> Any:
    nn, F = m.nn, m.nn.functional

    def timestep_embedding(t: Any, dim: int) -> Any:
        half = dim // 2
        freqs = m.exp(-math.log(10000) * m.arange(0, half, dtype=m.float32, device=t.device) / half)
        args = t[:, None].float() * freqs[None]
        return m.cat([m.cos(args), m.sin(args)], dim=-1)

    class Res(nn.Module):  # type: ignore[name-defined, misc]
        def __init__(self, a: int, b: int) -> None:
            super().__init__()
            self.inp = nn.Sequential(nn.GroupNorm(2, a), nn.SiLU(), nn.Conv2d(a, b, 3, padding=1))
            self.emb = nn.Sequential(nn.SiLU(), nn.Linear(16, 2 * b))
            self.norm = nn.GroupNorm(2, b, affine=False)
            self.out = nn.Sequential(nn.SiLU(), nn.Dropout(p=0.0), nn.Conv2d(b, b, 3, padding=1))
            self.skip = nn.Identity() if a == b else nn.Conv2d(a, b, 1)

        def forward(self, x: Any, emb: Any) -> Any:
            h = self.inp(x)
            scale, shift = self.emb(emb)[..., None, None].chunk(2, dim=1)
            return self.skip(x) + self.out(self.norm(h) * (scale + 1) + shift)

    class Attention(nn.Module):  # type: ignore[name-defined, misc]
        def __init__(self, c: int, heads: int = 2) -> None:
            super().__init__()
            self.heads, self.norm = heads, nn.GroupNorm(2, c)
            self.qkv, self.proj = nn.Conv1d(c, 3 * c, 1), nn.Conv1d(c, c, 1)

        def forward(self, x: Any) -> Any:
            b, c, *spatial = x.shape
            x = x.reshape(b, c, -1)
            q, k, v = self.qkv(self.norm(x)).reshape(b * self.heads, -1, x.shape[-1]).split(c // self.heads, dim=1)
            scale = 1 / math.sqrt(math.sqrt(q.shape[1]))
            weight = m.softmax(m.einsum("bct,bcs->bts", q * scale, k * scale), dim=-1)
            h = m.einsum("bts,bcs->bct", weight, v).reshape(b, -1, x.shape[-1])
            return (x + self.proj(h)).reshape(b, c, *spatial)

    class UNet(nn.Module):  # type: ignore[name-defined, misc]
        def __init__(self) -> None:
            super().__init__()
            self.time = nn.Sequential(nn.Linear(8, 16), nn.SiLU(), nn.Linear(16, 16))
            self.first = nn.Conv2d(1, 4, 3, padding=1)
            self.down = nn.ModuleList([Res(4, 4), nn.Conv2d(4, 4, 3, stride=2, padding=1), Res(4, 8)])
            self.mid = nn.ModuleList([Res(8, 8), Attention(8)])
            self.up = nn.ModuleList([Res(16, 8), nn.Upsample(scale_factor=2, mode="nearest"), Res(12, 4)])
            self.out = nn.Sequential(nn.GroupNorm(2, 4), nn.SiLU(), nn.Conv2d(4, 1, 3, padding=1))

        def forward(self, x: Any, t: Any) -> Any:
            emb, h = self.time(timestep_embedding(t, 8)), self.first(x)
            hs = []
            for layer in self.down:
                h = layer(h, emb) if isinstance(layer, Res) else layer(h)
                hs.append(h)
            h = self.mid[1](self.mid[0](h, emb))
            h = self.up[1](self.up[0](m.cat([h, hs.pop()], dim=1), emb))
            hs.pop()
            return self.out(self.up[2](m.cat((h, hs.pop()), dim=1), emb))

    steps = 20
    s = m.linspace(0, steps, steps + 1, dtype=m.float64) / steps
    bar = m.cos((s + 0.008) / 1.008 * math.pi * 0.5) ** 2
    betas = m.clip(1 - (bar / bar[0])[1:] / (bar / bar[0])[:-1], 0, 0.999)
    alphas = m.cumprod(1.0 - betas, dim=0)
    previous = F.pad(alphas[:-1], (1, 0), value=1.0)
    tables = {
        "a": alphas.sqrt(),
        "b": (1 - alphas).sqrt(),
        "c1": betas * previous.sqrt() / (1 - alphas),
        "c2": (1 - previous) * (1 - betas).sqrt() / (1 - alphas),
        "v": m.log((betas * (1 - previous) / (1 - alphas)).clamp(min=1e-20)),
    }
    tables = {k: v.to(m.float32).to(device) for k, v in tables.items()}

    def extract(name: str, t: Any, shape: Any) -> Any:
        return tables[name].gather(-1, t).reshape(t.shape[0], *((1,) * (len(shape) - 1)))

    net = d.fill(UNet())
    ema, decay = copy.deepcopy(net).eval().requires_grad_(False), 0.9
    opt = m.optim.AdamW(net.parameters(), lr=2e-3, betas=(0.9, 0.99), weight_decay=1e-2)
    warmup = m.optim.lr_scheduler.LambdaLR(opt, lr_lambda=lambda i: min((i + 1) / 3, 1.0))
    data, said = d.normal(4, 1, 8, 8).clamp(-1, 1), []
    for _ in range(4):
        t, noise = d.labels(steps, 4), d.normal(4, 1, 8, 8)
        noisy = extract("a", t, data.shape) * data + extract("b", t, data.shape) * noise
        loss = F.mse_loss(net(noisy, t), noise, reduction="none").flatten(1).mean(1).mean()
        opt.zero_grad(set_to_none=True)
        loss.backward()
        norm = nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        opt.step()
        warmup.step()
        with m.no_grad():
            for p, q in zip(ema.parameters(), net.parameters(), strict=True):
                p.lerp_(q, 1 - decay)
        said.append((loss.item(), norm.item(), warmup.get_last_lr()[0]))
    with m.inference_mode():
        x = d.normal(2, 1, 8, 8)
        for i in reversed(range(steps - 3, steps)):
            t = m.full((2,), i, device=device, dtype=m.long)
            eps = ema(x, t)
            start = ((x - extract("b", t, x.shape) * eps) / extract("a", t, x.shape)).clamp_(-1.0, 1.0)
            x = extract("c1", t, x.shape) * start + extract("c2", t, x.shape) * x
            if i > 0:
                x = x + (0.5 * extract("v", t, x.shape)).exp() * d.normal(2, 1, 8, 8)
    return said, x.clone(), state(ema)[:6]


@program
def ppo(m: Any, device: str, d: Draws) -> Any:
    nn = m.nn
    distributions = import_module(f"{m.__name__}.distributions")

    class Agent(nn.Module):  # type: ignore[name-defined, misc]
        def __init__(self) -> None:
            super().__init__()
            self.critic = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
            self.actor = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))
            self.mean = nn.Linear(4, 2)
            self.logstd = nn.Parameter(m.zeros(1, 2))

        def forward(self, x: Any, action: Any, move: Any) -> Any:
            which = distributions.Categorical(logits=self.actor(x))
            mean = self.mean(x)
            how = distributions.Normal(mean, self.logstd.expand_as(mean).exp())
            entropy = which.entropy() + how.entropy().sum(1)
            return which.log_prob(action) + how.log_prob(move).sum(1), entropy, self.critic(x)

    agent = d.fill(Agent())
    opt = m.optim.Adam(agent.parameters(), lr=2.5e-3, eps=1e-5)
    T, N = 6, 3
    obs, dones = m.zeros((T, N, 4)).to(device), m.zeros((T, N)).to(device)
    rewards, values, logs = (m.zeros((T, N), device=device) for _ in range(3))
    actions, moves = m.zeros((T, N), dtype=m.long, device=device), m.zeros((T, N, 2), device=device)
    at, done = d.normal(N, 4), m.zeros(N, device=device)
    for t in range(T):
        obs[t], dones[t] = at, done
        actions[t], moves[t] = d.labels(3, N), d.normal(N, 2)
        with m.no_grad():
            log, _, value = agent(at, actions[t], moves[t])
            values[t] = value.flatten()
        logs[t] = log
        at = (at + 0.1 * d.normal(N, 4)).clip(-2, 2)
        rewards[t] = m.where(at[:, 0] > 0, 1.0, -0.5).view(-1)
        done = (d.uniform(N) > 0.8).float()
    with m.no_grad():
        following = agent.critic(at).reshape(1, -1)
        advantages, last = m.zeros_like(rewards), 0
        for t in reversed(range(T)):
            alive = 1.0 - (done if t == T - 1 else dones[t + 1])
            after = following if t == T - 1 else values[t + 1]
            delta = rewards[t] + 0.99 * after * alive - values[t]
            advantages[t] = last = delta + 0.99 * 0.95 * alive * last
        returns = advantages + values
    flat = [v.reshape((-1, *v.shape[2:])) for v in (obs, logs, actions, moves, advantages, returns, values)]
    fractions, said = [], []
    for epoch in range(2):
        opt.param_groups[0]["lr"] = (1 - epoch / 2) * 2.5e-3
        order = np.random.default_rng(epoch).permutation(T * N)
        for start in range(0, T * N, 6):
            ob, oldlog, action, move, advantage, ret, old = (v[order[start : start + 6]] for v in flat)
            log, entropy, value = agent(ob, action, move)
            ratio = (log - oldlog).exp()
            with m.no_grad():
                kl = ((ratio - 1) - (log - oldlog)).mean()
                fractions += [((ratio - 1.0).abs() > 0.2).float().mean().item()]
            advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
            policy = m.max(-advantage * ratio, -advantage * m.clamp(ratio, 1 - 0.2, 1 + 0.2)).mean()
            clipped = old + m.clamp(value.view(-1) - old, -0.2, 0.2)
            v_loss = 0.5 * m.max((value.view(-1) - ret) ** 2, (clipped - ret) ** 2).mean()
            loss = policy - 0.01 * entropy.mean() + v_loss * 0.5
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
            opt.step()
            said.append((loss.item(), kl.item()))
    explained = 1 - np.var((flat[5] - flat[6]).cpu().numpy()) / np.var(flat[5].cpu().numpy())
    return said, fractions, float(explained), state(agent)


@program
def packed_sequences_with_attention(m: Any, device: str, d: Draws) -> Any:
    nn, F = m.nn, m.nn.functional
    rnn = import_module(f"{m.__name__}.nn.utils.rnn")
    embed = d.fill(nn.Embedding(12, 6, padding_idx=0))
    encoder = d.fill(nn.GRU(6, 5, batch_first=True, bidirectional=True))
    cell, bridge = d.fill(nn.LSTMCell(6 + 10, 5)), d.fill(nn.Linear(10, 5))
    score, head = d.fill(nn.Linear(15, 1)), d.fill(nn.Linear(5, 12))
    parts = nn.ModuleList([embed, encoder, cell, bridge, score, head])
    texts = [d.labels(12, n, low=1) for n in (3, 6, 4)]
    lengths = m.tensor([len(t) for t in texts])
    source = rnn.pad_sequence(texts, batch_first=True)
    target = rnn.pad_sequence([d.labels(12, n, low=1) for n in (4, 2, 5)], batch_first=True)
    opt = m.optim.Adadelta(parts.parameters(), lr=0.5)
    said = []
    for _ in range(3):
        packed = rnn.pack_padded_sequence(embed(source), lengths, batch_first=True, enforce_sorted=False)
        out, hidden = encoder(packed)
        memory, sizes = rnn.pad_packed_sequence(out, batch_first=True, total_length=7)
        h = m.tanh(bridge(m.cat((hidden[-2], hidden[-1]), dim=1)))
        c, word, loss = m.zeros_like(h), m.ones(3, dtype=m.long, device=device), 0.0
        mask = m.arange(7, device=device)[None, :] >= sizes.to(device)[:, None]
        for t in range(target.size(1)):
            e = score(m.cat([memory, h.unsqueeze(1).expand(-1, 7, -1)], -1)).squeeze(-1)
            weights = F.softmax(e.masked_fill(mask, float("-inf")), dim=-1)
            context = m.bmm(weights.unsqueeze(1), memory).squeeze(1)
            h, c = cell(m.cat((embed(word), context), 1), (h, c))
            logits = head(h)
            loss += F.cross_entropy(logits, target[:, t], ignore_index=0, label_smoothing=0.1, reduction="sum")
            word = target[:, t] if t % 2 else logits.argmax(-1)
        loss = loss / (target != 0).sum()
        opt.zero_grad()
        loss.backward()
        opt.step()
        said.append(loss.item())
    return said, weights, embed.weight.grad, state(encoder)


@program
def graphs(m: Any, device: str, d: Draws) -> Any:
    nn, F = m.nn, m.nn.functional
    n, edges = 7, d.labels(7, 2, 15)
    loops = m.arange(n, device=device).unsqueeze(0).repeat(2, 1)
    edges = m.unique(m.cat([edges, loops], dim=1), dim=1)
    row, col = edges
    degree = m.zeros(n, device=device).scatter_add_(0, col, m.ones(edges.size(1), device=device))
    norm = degree.pow(-0.5)
    norm.masked_fill_(norm == float("inf"), 0)
    weight = norm[row] * norm[col]
    adjacency = m.sparse_coo_tensor(m.stack([col, row]), weight, (n, n)).coalesce()

    class GAT(nn.Module):  # type: ignore[name-defined, misc]
        def __init__(self, a: int, b: int, heads: int) -> None:
            super().__init__()
            self.lin = nn.Linear(a, b * heads, bias=False)
            self.att = nn.Parameter(m.empty(1, heads, 2 * b))
            self.heads = heads

        def forward(self, x: Any) -> Any:
            x = self.lin(x).view(n, self.heads, -1)
            e = F.leaky_relu((m.cat([x[row], x[col]], -1) * self.att).sum(-1), 0.2)
            index = col.unsqueeze(-1).expand_as(e)
            top = m.full((n, self.heads), float("-inf"), device=device).scatter_reduce(0, index, e, "amax")
            e = (e - top[col].detach()).exp()
            total = m.zeros(n, self.heads, device=device).index_add(0, col, e)
            alpha = e / (total.index_select(0, col) + 1e-16)
            return m.zeros_like(x).index_add_(0, col, x[row] * alpha.unsqueeze(-1)).mean(1)

    x, y = d.normal(n, 4), d.labels(3, n)
    train = m.zeros(n, dtype=m.bool, device=device)
    train[:4] = True
    conv, gat, out = d.fill(nn.Linear(4, 6)), d.fill(GAT(6, 5, 2)), d.fill(nn.Linear(5, 3))
    parts = nn.ModuleDict({"conv": conv, "gat": gat, "out": out})
    opt = m.optim.Adam([{"params": conv.parameters(), "weight_decay": 5e-4}, {"params": gat.parameters()}], lr=0.01)
    opt.add_param_group({"params": out.parameters(), "lr": 0.02})
    said = []
    for _ in range(3):
        h = F.relu(m.sparse.mm(adjacency, conv(x)))
        h = F.elu(gat(h))
        logits = F.log_softmax(out(h), dim=1)
        loss = F.nll_loss(logits[train], y[train])
        opt.zero_grad()
        loss.backward()
        opt.step()
        correct = logits[~train].max(1)[1].eq(y[~train]).sum()
        said.append((loss.item(), int(correct)))
    batch = m.tensor([0, 0, 0, 1, 1, 2, 2], device=device)
    pooled = m.zeros(3, 5, device=device).scatter_reduce(
        0, batch[:, None].expand(-1, 5), h.detach(), reduce="mean", include_self=False
    )
    return said, pooled, m.bincount(col, minlength=n), adjacency.to_dense(), state(parts), gradients(gat)


@program
def nerf(m: Any, device: str, d: Draws) -> Any:
    nn, F = m.nn, m.nn.functional

    def encode(x: Any, levels: int) -> Any:
        bands = 2.0 ** m.linspace(0.0, levels - 1, levels, device=device)
        return m.cat([x, *(f(x * b) for b in bands for f in (m.sin, m.cos))], -1)

    H, W, focal = 3, 4, 2.5
    i, j = m.meshgrid(m.linspace(0, W - 1, W), m.linspace(0, H - 1, H), indexing="ij")
    i, j = i.t().to(device), j.t().to(device)
    dirs = m.stack([(i - W * 0.5) / focal, -(j - H * 0.5) / focal, -m.ones_like(i)], -1)
    pose = m.eye(4, device=device)[:3] + 0.1 * d.normal(3, 4)
    rays_d = m.sum(dirs[..., None, :] * pose[:3, :3], -1).reshape(-1, 3)
    rays_o = pose[:3, -1].expand(rays_d.shape)
    view = rays_d / m.norm(rays_d, dim=-1, keepdim=True)

    def render(net: Any, z: Any) -> Any:
        points = rays_o[..., None, :] + rays_d[..., None, :] * z[..., :, None]
        flat = encode(points.reshape(-1, 3), 2)
        seen = encode(view[:, None].expand(points.shape).reshape(-1, 3), 1)
        raw = m.cat([net(m.cat([flat, seen], -1)[k : k + 32]) for k in range(0, flat.shape[0], 32)], 0)
        raw = raw.reshape(*points.shape[:-1], 4)
        dists = z[..., 1:] - z[..., :-1]
        dists = m.cat([dists, m.tensor([1e10], device=device).expand(dists[..., :1].shape)], -1)
        alpha = 1.0 - m.exp(-F.relu(raw[..., 3]) * dists * m.norm(rays_d[..., None, :], dim=-1))
        clear = m.cat([m.ones((alpha.shape[0], 1), device=device), 1.0 - alpha + 1e-10], -1)
        weights = alpha * m.cumprod(clear, -1)[:, :-1]
        return m.sum(weights[..., None] * m.sigmoid(raw[..., :3]), -2), weights, m.sum(weights * z, -1)

    coarse, fine = (d.fill(nn.Sequential(nn.Linear(24, 8), nn.ReLU(), nn.Linear(8, 4))) for _ in range(2))
    opt = m.optim.Adam([*coarse.parameters(), *fine.parameters()], lr=5e-3)
    target, said = d.uniform(H * W, 3), []
    for _ in range(3):
        z = (2.0 * (1.0 - m.linspace(0.0, 1.0, 5)) + 6.0 * m.linspace(0.0, 1.0, 5)).to(device).expand([H * W, 5])
        mids = 0.5 * (z[..., 1:] + z[..., :-1])
        upper, lower = m.cat([mids, z[..., -1:]], -1), m.cat([z[..., :1], mids], -1)
        z = lower + (upper - lower) * d.uniform(*z.shape)
        rgb0, weights, _ = render(coarse, z)
        pdf = weights[..., 1:-1].detach() + 1e-5
        pdf = pdf / m.sum(pdf, -1, keepdim=True)
        cdf = m.cumsum(pdf, -1)
        cdf = m.cat([m.zeros_like(cdf[..., :1]), cdf], -1)
        u = d.uniform(H * W, 3).contiguous()
        inds = m.searchsorted(cdf, u, right=True)
        below, above = m.max(m.zeros_like(inds - 1), inds - 1), m.min((cdf.shape[-1] - 1) * m.ones_like(inds), inds)
        both, bins = m.stack([below, above], -1), 0.5 * (z[..., 1:] + z[..., :-1])
        shape = [both.shape[0], both.shape[1], cdf.shape[-1]]
        cdf_g = m.gather(cdf.unsqueeze(1).expand(shape), 2, both)
        bins_g = m.gather(bins.unsqueeze(1).expand(shape), 2, both)
        denom = cdf_g[..., 1] - cdf_g[..., 0]
        denom = m.where(denom < 1e-5, m.ones_like(denom), denom)
        more = bins_g[..., 0] + (u - cdf_g[..., 0]) / denom * (bins_g[..., 1] - bins_g[..., 0])
        z, _ = m.sort(m.cat([z, more.detach()], -1), -1)
        rgb, _, depth = render(fine, z)
        loss = F.mse_loss(rgb, target) + F.mse_loss(rgb0, target)
        opt.zero_grad()
        loss.backward()
        opt.step()
        said.append((loss.item(), -10.0 * math.log10(loss.item())))
    return said, rgb, depth, state(fine)


@program
def dqn(m: Any, device: str, d: Draws) -> Any:
    nn, F = m.nn, m.nn.functional

    class Dueling(nn.Module):  # type: ignore[name-defined, misc]
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Sequential(nn.Linear(4, 8), nn.ReLU())
            self.value, self.advantage = nn.Linear(8, 1), nn.Linear(8, 3)
            self.register_buffer("noise", m.zeros(8))
            self.register_buffer("seen", m.tensor(0), persistent=False)

        def forward(self, x: Any) -> Any:
            self.seen += x.shape[0]
            h = self.body(x) + self.noise
            a = self.advantage(h)
            return self.value(h) + a - a.mean(dim=1, keepdim=True)

    net = d.fill(Dueling())
    target = copy.deepcopy(net)
    target.load_state_dict(net.state_dict())
    opt = m.optim.RMSprop(net.parameters(), lr=1e-3, alpha=0.95, centered=True, momentum=0.1)
    replay: Any = collections.deque(maxlen=16)
    rng, said = np.random.default_rng(3), []
    for _ in range(20):
        s = rng.standard_normal(4).astype(np.float32)
        replay.append((s, int(rng.integers(3)), np.float32(rng.random()), s + 1, bool(rng.random() < 0.2)))
    for _ in range(4):
        batch = [replay[i] for i in rng.integers(len(replay), size=8)]
        s, a, r, after, done = map(np.array, zip(*batch, strict=True))
        states = m.as_tensor(s).to(device, non_blocking=True)
        following = m.from_numpy(after).to(device)
        acts, ends = m.LongTensor(a).to(device), m.BoolTensor(done).to(device)
        net.noise.copy_(0.01 * d.normal(8))
        q = net(states).gather(1, acts.unsqueeze(-1)).squeeze(-1)
        with m.no_grad():
            best = net(following).argmax(dim=1, keepdim=True)
            wanted = target(following).gather(1, best).squeeze(1)
            wanted[ends] = 0.0
            wanted = m.tensor(r).to(device) + 0.99 * wanted * (~ends)
        td = (q - wanted).abs().detach()
        loss = (F.huber_loss(q, wanted, reduction="none", delta=0.5) * (td + 1e-3).pow(0.6) / td.max()).mean()
        opt.zero_grad()
        loss.backward()
        for p in net.parameters():
            p.grad.data.clamp_(-1, 1)
        opt.step()
        for p, q_ in zip(target.parameters(), net.parameters(), strict=True):
            p.data.mul_(0.9).add_(q_.data, alpha=0.1)
        said.append((loss.item(), float(td.mean())))
    file = io.BytesIO()
    m.save({"net": net.state_dict(), "opt": opt.state_dict(), "step": 4}, file)
    file.seek(0)
    read = m.load(file, map_location="cpu")
    fresh = Dueling()
    fresh.load_state_dict(read["net"])
    return said, sorted(read["net"]), read["step"], state(fresh), state(target), int(net.seen)


@program
def normalizing_flow(m: Any, device: str, d: Draws) -> Any:
    nn, F = m.nn, m.nn.functional
    D = import_module(f"{m.__name__}.distributions")

    class Coupling(nn.Module):  # type: ignore[name-defined, misc]
        def __init__(self, flip: bool) -> None:
            super().__init__()
            self.flip, self.net = flip, nn.Sequential(nn.Linear(2, 8), nn.LeakyReLU(0.1), nn.Linear(8, 4))

        def forward(self, x: Any) -> Any:
            a, b = x.chunk(2, -1)
            a, b = (b, a) if self.flip else (a, b)
            s, t = self.net(a).chunk(2, -1)
            s = 2 * m.tanh(s / 2)
            return m.cat((b * s.exp() + t, a) if self.flip else (a, b * s.exp() + t), -1), s.sum(-1)

    class Invertible(nn.Module):  # type: ignore[name-defined, misc]
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(m.eye(4))

        def forward(self, x: Any) -> Any:
            return F.linear(x, self.weight), m.linalg.slogdet(self.weight)[1].expand(x.shape[0])

    flow = nn.ModuleList([Coupling(False), Invertible(), Coupling(True)]).to(device)
    for layer in flow:
        d.fill(layer)
    with m.no_grad():
        flow[1].weight += m.eye(4, device=device)
    scale = m.tril(0.1 * d.normal(4, 4)).fill_diagonal_(1.0)
    base = D.MultivariateNormal(m.zeros(4, device=device), scale_tril=scale)
    opt = m.optim.Adamax(flow.parameters(), lr=1e-2)
    x, said = d.normal(16, 4), []
    for _ in range(3):
        z, log = x, 0.0
        for layer in flow:
            z, more = layer(z)
            log = log + more
        loss = -(base.log_prob(z) + log).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        said.append(loss.item())
    squashed = D.TransformedDistribution(
        D.Independent(D.Normal(m.zeros(4, device=device), 1.0), 1),
        [D.TanhTransform(cache_size=1), D.AffineTransform(1, 2)],
    )
    jacobian = m.func.vmap(m.func.jacrev(lambda v: flow[0](v)[0]))(x[:3])
    return said, z, squashed.log_prob(x.clamp(-0.9, 0.9) + 1), jacobian, m.linalg.slogdet(jacobian)[1], state(flow)


@program
def wgan_with_penalty(m: Any, device: str, d: Draws) -> Any:
    nn = m.nn
    spectral = import_module(f"{m.__name__}.nn.utils.parametrizations").weight_norm
    G = nn.Sequential(nn.ConvTranspose2d(4, 6, 3, bias=False), nn.BatchNorm2d(6), nn.ReLU(True))
    G.append(nn.ConvTranspose2d(6, 1, 4, 2, 1)).append(nn.Tanh())
    C = nn.Sequential(nn.Conv2d(1, 4, 4, 2, 1), nn.LeakyReLU(0.2, inplace=True), nn.Conv2d(4, 1, 3))
    G, C = d.fill(G), d.fill(C)
    C[2] = spectral(C[2])
    opts = [m.optim.Adam(net.parameters(), lr=1e-3, betas=(0.0, 0.9)) for net in (G, C)]
    real, said = d.normal(3, 1, 6, 6), []
    for step in range(4):
        fake = G(d.normal(3, 4, 1, 1))
        eps = d.uniform(3, 1, 1, 1).expand_as(real)
        between = (eps * real + (1 - eps) * fake.detach()).requires_grad_(True)
        score = C(between)
        (grads,) = m.autograd.grad(
            outputs=score, inputs=between, grad_outputs=m.ones_like(score), create_graph=True, retain_graph=True
        )
        penalty = ((grads.view(3, -1).norm(2, dim=1) - 1) ** 2).mean()
        loss = C(fake.detach()).mean() - C(real).mean() + 10 * penalty
        opts[1].zero_grad()
        loss.backward()
        opts[1].step()
        if step % 2:
            for p in C.parameters():
                p.requires_grad_(False)
            opts[0].zero_grad()
            (-C(fake).mean()).backward()
            opts[0].step()
            for p in C.parameters():
                p.requires_grad_(True)
        said.append((loss.item(), penalty.item()))
    return said, state(G), state(C), fake
