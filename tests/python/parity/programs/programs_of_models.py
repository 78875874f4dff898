"""Programs that train models of today; see `programs`."""

from __future__ import annotations

import math
from importlib import import_module
from typing import Any

from tests.python.parity.programs.programs import Draws, gradients, program, state


@program
def influence_functions(m: Any, device: str, d: Draws) -> Any:
    nn, F = m.nn, m.nn.functional
    model = d.fill(nn.Linear(4, 3))
    x, y = d.normal(12, 4), d.labels(3, 12)
    params = list(model.parameters())
    loss = F.cross_entropy(model(x), y) + 0.05 * sum((p**2).sum() for p in params)
    grads = m.autograd.grad(loss, params, create_graph=True)
    flat = m.cat([g.reshape(-1) for g in grads])

    def hvp(v: Any) -> Any:
        out = m.autograd.grad(flat @ v, params, retain_graph=True)
        return m.cat([g.contiguous().view(-1) for g in out])

    test = m.cat([g.view(-1) for g in m.autograd.grad(F.cross_entropy(model(x[:1]), y[:1]), params)])
    hessian = m.stack([hvp(e) for e in m.eye(flat.numel(), device=device)])
    influence = m.linalg.solve(hessian, test)
    per = []
    for i in range(3):
        g = m.autograd.grad(F.cross_entropy(model(x[i : i + 1]), y[i : i + 1]), params)
        per.append(-(m.cat([q.flatten() for q in g]) * influence).sum())
    functional = import_module(f"{m.__name__}.autograd.functional")

    def of_weight(w: Any) -> Any:
        return F.cross_entropy(F.linear(x, w, params[1].detach()), y)

    value, product = functional.hvp(of_weight, params[0].detach(), m.ones(3, 4, device=device))
    return m.stack(per), m.allclose(hessian, hessian.T, atol=1e-5), value, product


@program
def physics_informed(m: Any, device: str, d: Draws) -> Any:
    nn = m.nn
    net = d.fill(nn.Sequential(nn.Linear(2, 12), nn.Tanh(), nn.Linear(12, 12), nn.Softplus(), nn.Linear(12, 1)))
    opt, said = m.optim.NAdam(net.parameters(), lr=5e-3), []
    sched = m.optim.lr_scheduler.ReduceLROnPlateau(opt, patience=0, factor=0.5)
    for _ in range(4):
        xt = d.uniform(20, 2).requires_grad_(True)
        u = net(xt)
        (du,) = m.autograd.grad(u, xt, m.ones_like(u), create_graph=True)
        ux, ut = du[:, :1], du[:, 1:]
        uxx = m.autograd.grad(ux.sum(), xt, create_graph=True)[0][:, 0:1]
        edge = m.hstack([m.linspace(-1, 1, 10, device=device)[:, None], m.zeros(10, 1, device=device)])
        loss = (ut + u * ux - 0.01 / math.pi * uxx).square().mean()
        loss = loss + (net(edge) + m.sin(math.pi * edge[:, :1])).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        sched.step(loss.detach())
        said += [loss.item(), opt.param_groups[0]["lr"]]
    return said, state(net)


@program
def mixture_density(m: Any, device: str, d: Draws) -> Any:
    nn = m.nn
    trunk, head = d.fill(nn.Linear(1, 10)), d.fill(nn.Linear(10, 9))
    opt, said = m.optim.Adamax([*trunk.parameters(), *head.parameters()], lr=1e-2), []
    x, y = d.normal(30, 1), d.normal(30, 1)
    for _ in range(4):
        pi, mu, log_sigma = head(trunk(x).tanh()).chunk(3, dim=-1)
        log_sigma = log_sigma.clamp(-3, 3)
        z = (y - mu) / log_sigma.exp()
        parts = pi.log_softmax(-1) - 0.5 * z**2 - log_sigma - 0.5 * math.log(2 * math.pi)
        loss = -m.logsumexp(parts, dim=-1).mean()
        opt.zero_grad(set_to_none=False)
        loss.backward()
        opt.step()
        said.append(loss.item())
    with m.no_grad():
        best = pi.argmax(-1, keepdim=True)
        picked = mu.gather(-1, best).squeeze(-1)
    return said, picked, state(head)


@program
def transformer_with_a_cache(m: Any, device: str, d: Draws) -> Any:
    nn, F = m.nn, m.nn.functional

    class Block(nn.Module):  # type: ignore[name-defined, misc]
        def __init__(self, width: int, heads: int) -> None:
            super().__init__()
            self.heads = heads
            self.norm1, self.norm2 = nn.LayerNorm(width), nn.RMSNorm(width)
            self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width)
            self.mlp = nn.Sequential(
                nn.Linear(width, 2 * width), nn.GELU(approximate="tanh"), nn.Linear(2 * width, width)
            )

        def forward(self, x: Any, cache: Any = None) -> Any:
            b, t, c = x.shape
            q, k, v = self.qkv(self.norm1(x)).split(c, dim=2)
            q, k, v = (s.view(b, t, self.heads, c // self.heads).transpose(1, 2) for s in (q, k, v))
            if cache is not None:
                k, v = m.cat([cache[0], k], dim=2), m.cat([cache[1], v], dim=2)
            y = F.scaled_dot_product_attention(q, k, v, is_causal=cache is None)
            x = x + self.out(y.transpose(1, 2).contiguous().view(b, t, c))
            return x + self.mlp(self.norm2(x)), (k, v)

    class Tiny(nn.Module):  # type: ignore[name-defined, misc]
        def __init__(self) -> None:
            super().__init__()
            self.tokens, self.places = nn.Embedding(11, 8), nn.Embedding(16, 8)
            self.blocks = nn.ModuleList([Block(8, 2) for _ in range(2)])
            self.head = nn.Linear(8, 11)

        def forward(self, ids: Any, caches: Any = None) -> Any:
            start = 0 if caches is None else caches[0][0].size(2)
            x = self.tokens(ids) + self.places(m.arange(start, start + ids.size(1), device=ids.device))
            kept = []
            for i, block in enumerate(self.blocks):
                x, cache = block(x, None if caches is None else caches[i])
                kept.append(cache)
            return self.head(x), kept

    model = d.fill(Tiny())
    ids = d.labels(11, 2, 6)
    logits, _ = model(ids)
    loss = F.cross_entropy(logits[:, :-1].reshape(-1, 11), ids[:, 1:].reshape(-1))
    loss.backward()
    with m.no_grad():
        step, caches = model(ids[:, :3])
        made = [step]
        for t in range(3, 6):
            step, caches = model(ids[:, t : t + 1], caches)
            made.append(step)
        near = (m.cat(made, dim=1) - logits).abs().max() < 1e-4
        out, caches, token = [], None, ids[:, :1]
        for _ in range(5):
            step, caches = model(token, caches)
            token = step[:, -1].argmax(-1, keepdim=True)
            out.append(token)
    return loss, logits, near, m.cat(out, 1), gradients(model)


@program
def u_net(m: Any, device: str, d: Draws) -> Any:
    nn, F = m.nn, m.nn.functional

    def double(a: int, b: int) -> Any:
        return nn.Sequential(
            nn.Conv2d(a, b, 3, padding=1), nn.GroupNorm(2, b), nn.ReLU(inplace=True), nn.Conv2d(b, b, 3, padding=1)
        )

    class UNet(nn.Module):  # type: ignore[name-defined, misc]
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.c = double(1, 4), double(4, 8), double(8 + 4, 4)
            self.up, self.head = nn.ConvTranspose2d(8, 8, 2, stride=2), nn.Conv2d(4, 3, 1)

        def forward(self, x: Any) -> Any:
            first = self.a(x)
            deep = self.b(F.max_pool2d(first, 2))
            up = self.up(deep)
            dy, dx = first.size(2) - up.size(2), first.size(3) - up.size(3)
            up = F.pad(up, [dx // 2, dx - dx // 2, dy // 2, dy - dy // 2])
            wide = F.interpolate(deep[:, :3], size=x.shape[2:], mode="bilinear", align_corners=False)
            return self.head(self.c(m.cat([first, up], dim=1))) + wide

    net = d.fill(UNet())
    opt, said = m.optim.Adam(net.parameters(), lr=1e-2, amsgrad=True), []
    x, y = d.normal(2, 1, 9, 7), d.labels(3, 2, 9, 7)
    for _ in range(3):
        logits = net(x)
        p = logits.softmax(1)
        hot = F.one_hot(y, 3).permute(0, 3, 1, 2).to(p.dtype)
        dice = 1 - (2 * (p * hot).sum((2, 3)) + 1) / ((p + hot).sum((2, 3)) + 1)
        loss = F.cross_entropy(logits, y, weight=m.tensor([1.0, 2.0, 0.5], device=device)) + dice.mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        said.append(loss.item())
    return said, logits, state(net)


@program
def lstm_language_model(m: Any, device: str, d: Draws) -> Any:
    nn, F = m.nn, m.nn.functional
    embed, lstm = d.fill(nn.Embedding(10, 6)), d.fill(nn.LSTM(6, 8, num_layers=2))
    head = d.fill(nn.Linear(8, 10))
    params = [*embed.parameters(), *lstm.parameters(), *head.parameters()]
    text, hidden, said = d.labels(10, 13, 3), None, []
    for start in range(0, 12, 4):
        piece, wanted = text[start : start + 4], text[start + 1 : start + 5]
        if hidden is not None:
            hidden = tuple(h.detach() for h in hidden)
        out, hidden = lstm(embed(piece), hidden)
        loss = F.nll_loss(F.log_softmax(head(out), dim=-1).view(-1, 10), wanted.reshape(-1))
        for p in params:
            p.grad = None
        loss.backward()
        nn.utils.clip_grad_value_(params, 0.05)
        with m.no_grad():
            for p in params:
                p -= 0.5 * p.grad
        said.append(math.exp(loss.item()))
    return said, hidden[0], hidden[1], state(lstm)


@program
def policy_gradient(m: Any, device: str, d: Draws) -> Any:
    nn, F = m.nn, m.nn.functional
    actor, critic = d.fill(nn.Linear(4, 3)), d.fill(nn.Linear(4, 1))
    opt = m.optim.RMSprop([{"params": actor.parameters()}, {"params": critic.parameters(), "lr": 1e-2}], lr=1e-3)
    said = []
    for _ in range(3):
        s, logs, entropies, values, rewards = d.normal(1, 4), [], [], [], []
        for t in range(5):
            logits = actor(s)
            p = logits.softmax(-1)
            action = (p.cumsum(-1) < d.uniform(1, 1)).sum(-1).clamp(max=2)
            logs.append(logits.log_softmax(-1).gather(1, action[:, None]).squeeze())
            entropies.append(-(p * p.clamp_min(1e-8).log()).sum())
            values.append(critic(s).squeeze())
            rewards.append(float(action.item() == t % 3))
            s = s + 0.1 * F.one_hot(action, 4).float()
        returns, total = [], 0.0
        for r in reversed(rewards):
            total = r + 0.9 * total
            returns.insert(0, total)
        wanted = m.tensor(returns, device=device)
        wanted = (wanted - wanted.mean()) / (wanted.std() + 1e-6)
        value, log = m.stack(values), m.stack(logs)
        loss = (
            -(log * (wanted - value.detach())).sum()
            + F.smooth_l1_loss(value, wanted)
            - 0.01 * m.stack(entropies).mean()
        )
        opt.zero_grad()
        loss.backward()
        opt.step()
        said.append(loss.item())
    return said, state(actor), state(critic)
