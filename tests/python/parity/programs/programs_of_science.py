"""Programs of science: inference, physics, geometry, probability and what else tensors are good for; see `programs`."""

from __future__ import annotations

import io
import math
from importlib import import_module
from typing import Any

from tests.python.parity.programs.programs import Draws, gradients, program, state


@program
def gaussian_process(m: Any, device: str, d: Draws) -> Any:
    x, y = d.normal(12, 2), d.normal(12)
    logs = m.nn.Parameter(m.zeros(3, device=device))
    opt, said = m.optim.Adam([logs], lr=0.1), []

    def kernel(a: Any, b: Any) -> Any:
        scale, width = logs[0].exp(), logs[1].exp()
        return scale * (-0.5 * m.cdist(a, b, compute_mode="donot_use_mm_for_euclid_dist").pow(2) / width).exp()

    for _ in range(4):
        cov = kernel(x, x) + (logs[2].exp() + 1e-3) * m.eye(12, device=device)
        chol = m.linalg.cholesky(cov)
        alpha = m.cholesky_solve(y[:, None], chol)
        loss = 0.5 * (y @ alpha).squeeze() + chol.diagonal().log().sum() + 6 * math.log(2 * math.pi)
        opt.zero_grad()
        loss.backward()
        opt.step()
        said.append(loss.item())
    near = d.normal(3, 2)
    v = m.linalg.solve_triangular(chol, kernel(x, near), upper=False)
    return said, logs, kernel(near, x) @ alpha, kernel(near, near) - v.mT @ v


@program
def conditional_random_field(m: Any, device: str, d: Draws) -> Any:
    emissions = d.normal(5, 3, 4).requires_grad_()
    moves, first = d.normal(4, 4).requires_grad_(), d.normal(4).requires_grad_()
    tags, mask = d.labels(4, 5, 3), m.ones(5, 3, dtype=m.bool, device=device)
    mask[3:, 1] = False
    alpha = first + emissions[0]
    score = first[tags[0]] + emissions[0].gather(1, tags[0].unsqueeze(1)).squeeze(1)
    for t in range(1, 5):
        step = m.logsumexp(alpha.unsqueeze(2) + moves + emissions[t].unsqueeze(1), dim=1)
        alpha = m.where(mask[t].unsqueeze(1), step, alpha)
        gain = moves[tags[t - 1], tags[t]] + emissions[t, m.arange(3, device=device), tags[t]]
        score = score + gain * mask[t]
    loss = (alpha.logsumexp(1) - score).mean()
    loss.backward()
    best, history = (first + emissions[0]).detach(), []
    for t in range(1, 5):
        best, before = (best.unsqueeze(2) + moves.detach() + emissions[t].detach().unsqueeze(1)).max(dim=1)
        history.append(before)
    path = [best.argmax(1)]
    for before in reversed(history):
        path.insert(0, before.gather(1, path[0][:, None]).squeeze(1))
    return loss, emissions.grad, moves.grad, first.grad, m.stack(path)


@program
def graph_convolution(m: Any, device: str, d: Draws) -> Any:
    nn = m.nn
    lin1, lin2 = d.fill(nn.Linear(4, 6)), d.fill(nn.Linear(6, 3))
    edges, x = d.labels(7, 2, 15), d.normal(7, 4)
    loops = m.arange(7, device=device).repeat(2, 1)
    src, dst = m.cat([edges, loops], dim=1)
    degree = m.zeros(7, device=device).scatter_add_(0, dst, m.ones(src.shape[0], device=device))
    norm = degree.rsqrt()[src] * degree.pow(-0.5)[dst]

    def pass_on(h: Any) -> Any:
        return m.zeros(7, h.size(1), device=device).index_add(0, dst, norm.unsqueeze(1) * h[src])

    out = pass_on(lin2(pass_on(lin1(x)).relu()))
    scores = (x[src] * x[dst]).sum(-1)
    top = m.full((7,), -math.inf, device=device).scatter_reduce(0, dst, scores, "amax")
    weights = (scores - top[dst]).exp()
    weights = weights / m.zeros(7, device=device).index_add_(0, dst, weights)[dst]
    pooled = m.zeros(7, 3, device=device).index_add_(0, dst, out[src] * weights[:, None])
    pooled.square().sum().backward()
    dense = m.zeros(7, 7, device=device).index_put_((dst, src), norm, accumulate=True)
    near = m.allclose(dense @ x, pass_on(x), atol=1e-5)
    return out, pooled, near, gradients(lin1), gradients(lin2)


@program
def vector_quantisation(m: Any, device: str, d: Draws) -> Any:
    nn, F = m.nn, m.nn.functional
    enc, dec, book = d.fill(nn.Conv2d(1, 3, 2, 2)), d.fill(nn.ConvTranspose2d(3, 1, 2, 2)), d.fill(nn.Embedding(5, 3))
    opt = m.optim.Adam([*enc.parameters(), *dec.parameters(), *book.parameters()], lr=1e-2)
    x, said = d.normal(4, 1, 6, 6), []
    for _ in range(3):
        z = enc(x).permute(0, 2, 3, 1).contiguous()
        flat = z.view(-1, 3)
        gaps = flat.pow(2).sum(1, keepdim=True) - 2 * flat @ book.weight.t() + book.weight.pow(2).sum(1)
        index = gaps.argmin(1)
        q = book(index).view_as(z)
        loss = F.mse_loss(q, z.detach()) + 0.25 * F.mse_loss(q.detach(), z)
        q = z + (q - z).detach()
        loss = loss + F.mse_loss(dec(q.permute(0, 3, 1, 2)), x)
        opt.zero_grad()
        loss.backward()
        opt.step()
        used = F.one_hot(index, 5).float().mean(0)
        said += [loss.item(), m.exp(-(used * (used + 1e-10).log()).sum()).item()]
    return said, index, state(book), state(enc)


@program
def diffusion(m: Any, device: str, d: Draws) -> Any:
    nn, F = m.nn, m.nn.functional

    class Diffusion(nn.Module):  # type: ignore[name-defined, misc]
        def __init__(self) -> None:
            super().__init__()
            betas = m.linspace(1e-4, 0.2, 10)
            self.register_buffer("alpha_bar", m.cumprod(1 - betas, dim=0))
            self.register_buffer("betas", betas, persistent=False)
            self.net = nn.Sequential(nn.Linear(2 + 8, 16), nn.SiLU(), nn.Linear(16, 2))

        def embed(self, t: Any) -> Any:
            freqs = m.exp(-math.log(10000.0) * m.arange(4, device=t.device) / 4)
            angles = t[:, None].float() * freqs[None]
            return m.cat([angles.sin(), angles.cos()], dim=-1)

        def forward(self, x: Any, t: Any) -> Any:
            return self.net(m.cat([x, self.embed(t)], -1))

    model = d.fill(Diffusion())
    opt, said = m.optim.RAdam(model.parameters(), lr=1e-2), []
    for _ in range(4):
        x, t, noise = d.normal(8, 2), d.labels(10, 8), d.normal(8, 2)
        a = model.alpha_bar.gather(0, t).unsqueeze(-1)
        loss = F.mse_loss(model(a.sqrt() * x + (1 - a).sqrt() * noise, t), noise)
        opt.zero_grad()
        loss.backward()
        opt.step()
        said.append(loss.item())
    x = d.normal(3, 2)
    with m.no_grad():
        for step in reversed(range(10)):
            t = m.full((3,), step, dtype=m.long, device=device)
            beta, bar = model.betas[step], model.alpha_bar[step]
            x = (x - beta / (1 - bar).sqrt() * model(x, t)) / (1 - beta).sqrt()
            if step > 0:
                x += beta.sqrt() * d.normal(3, 2)
    return said, x, sorted(model.state_dict())


@program
def neural_ode_with_adjoint(m: Any, device: str, d: Draws) -> Any:
    nn = m.nn
    field = d.fill(nn.Sequential(nn.Linear(2, 6), nn.Tanh(), nn.Linear(6, 2)))
    params = tuple(field.parameters())

    class Solve(m.autograd.Function):  # type: ignore[name-defined, misc]
        @staticmethod
        def forward(ctx: Any, x: Any, steps: int, *weights: Any) -> Any:
            with m.no_grad():
                for _ in range(steps):
                    x = x + field(x) / steps
            ctx.steps = steps
            ctx.save_for_backward(x)
            return x

        @staticmethod
        def backward(ctx: Any, adjoint: Any) -> Any:
            (x,) = ctx.saved_tensors
            total = [m.zeros_like(p) for p in params]
            for _ in range(ctx.steps):
                with m.enable_grad():
                    x = x.detach().requires_grad_()
                    slope = field(x)
                grads = m.autograd.grad(slope, (x, *params), adjoint / ctx.steps)
                adjoint = adjoint + grads[0]
                total = [a + g for a, g in zip(total, grads[1:], strict=True)]
                x = x - slope.detach() / ctx.steps
            return adjoint, None, *total

    x = d.normal(5, 2).requires_grad_()
    Solve.apply(x, 8, *params).pow(2).mean().backward()
    return x.grad, gradients(field)


@program
def rotary_and_grouped_attention(m: Any, device: str, d: Draws) -> Any:
    F = m.nn.functional
    q, k, v = d.normal(2, 5, 4, 6).requires_grad_(), d.normal(2, 5, 2, 6), d.normal(2, 5, 2, 6)
    angles = m.outer(m.arange(5, device=device).float(), 10000.0 ** (-m.arange(0, 6, 2, device=device) / 6))
    turn = m.polar(m.ones_like(angles), angles)

    def rotate(x: Any) -> Any:
        pairs = m.view_as_complex(x.reshape(*x.shape[:-1], -1, 2))
        return m.view_as_real(pairs * turn[None, :, None]).flatten(3)

    def rotate_half(x: Any) -> Any:
        a, b = x[..., ::2], x[..., 1::2]
        sin, cos = angles.sin()[:, None], angles.cos()[:, None]
        return m.stack((a * cos - b * sin, a * sin + b * cos), dim=-1).flatten(-2)

    rq, rk = rotate(q), rotate_half(k)
    wide_k, wide_v = (t.repeat_interleave(2, dim=2) for t in (rk, v))
    scores = m.einsum("bqhd,bkhd->bhqk", rq, wide_k) / math.sqrt(6)
    window = m.ones(5, 5, dtype=m.bool, device=device).tril().triu(-2)
    slopes = 2.0 ** -m.arange(1, 5, device=device)
    place = m.arange(5, device=device)
    scores = scores - slopes[:, None, None] * (place[:, None] - place[None]).abs()
    out = m.einsum("bhqk,bkhd->bqhd", scores.masked_fill(~window, -math.inf).softmax(-1), wide_v)
    bias = (-slopes[:, None, None] * (place[:, None] - place[None]).abs()).masked_fill(~window, -math.inf)
    same = F.scaled_dot_product_attention(*(t.transpose(1, 2) for t in (rq, wide_k, wide_v)), attn_mask=bias)
    out.pow(2).sum().backward()
    return out, m.allclose(out, same.transpose(1, 2), atol=1e-5), q.grad


@program
def mixture_of_experts(m: Any, device: str, d: Draws) -> Any:
    nn, F = m.nn, m.nn.functional
    gate = d.fill(nn.Linear(4, 3, bias=False))
    experts = d.fill(nn.ModuleList(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4)) for _ in range(3)))
    x = d.normal(10, 4)
    logits = gate(x)
    weights, chosen = logits.softmax(-1).topk(2, dim=-1)
    weights = weights / weights.sum(-1, keepdim=True)
    out = m.zeros_like(x)
    for i, expert in enumerate(experts):
        row, slot = m.where(chosen == i)
        if row.numel():
            out.index_add_(0, row, expert(x[row]) * weights[row, slot, None])
    share = F.one_hot(chosen, 3).sum(1).float().mean(0)
    loss = (
        out.pow(2).mean()
        + 0.01 * (share * logits.softmax(-1).mean(0)).sum() * 3
        + 1e-3 * logits.logsumexp(-1).pow(2).mean()
    )
    loss.backward()
    return loss, out, share, gradients(gate), gradients(experts)


@program
def deep_q_learning(m: Any, device: str, d: Draws) -> Any:
    nn, F = m.nn, m.nn.functional

    def net() -> Any:
        return nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 2))

    online, target = d.fill(net()), net().to(device)
    target.load_state_dict(online.state_dict())
    target.requires_grad_(False)
    opt, said = m.optim.Adam(online.parameters(), lr=1e-2), []
    memory = [(d.normal(3), int(d.labels(2, 1)), float(d.uniform(1)), d.normal(3), i % 4 == 3) for i in range(12)]
    for start in range(0, 12, 4):
        s, a, r, n, done = zip(*memory[start : start + 4], strict=True)
        s, n = m.stack(s), m.stack(n)
        a, r = m.tensor(a, device=device), m.tensor(r, device=device)
        done = m.tensor(done, dtype=m.float32, device=device)
        q = online(s).gather(1, a.view(-1, 1)).squeeze(1)
        with m.no_grad():
            best = online(n).argmax(1, keepdim=True)
            wanted = r + 0.9 * (1 - done) * target(n).gather(1, best).squeeze(1)
        loss = F.huber_loss(q, wanted)
        opt.zero_grad()
        loss.backward()
        opt.step()
        with m.no_grad():
            for p, t in zip(online.parameters(), target.parameters(), strict=True):
                t.lerp_(p, 0.05)
        said.append(loss.item())
    return said, state(target)


@program
def clipped_policy(m: Any, device: str, d: Draws) -> Any:
    nn = m.nn
    net = d.fill(nn.Linear(3, 2))
    log_std = nn.Parameter(m.full((2,), -0.5, device=device))
    opt, said = m.optim.Adam([*net.parameters(), log_std], lr=1e-2, eps=1e-5), []
    s, noise, gain = d.normal(16, 3), d.normal(16, 2), d.normal(16)

    def log_prob(a: Any) -> Any:
        z = (a - net(s)) / log_std.exp()
        return (-0.5 * z.square() - log_std - 0.5 * math.log(2 * math.pi)).sum(-1)

    with m.no_grad():
        actions = net(s) + log_std.exp() * noise
        former = log_prob(actions)
    for _ in range(3):
        ratio = (log_prob(actions) - former).exp()
        loss = -m.min(ratio * gain, ratio.clamp(0.8, 1.2) * gain).mean() - 0.01 * log_std.sum()
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_([*net.parameters(), log_std], 0.5, error_if_nonfinite=True)
        opt.step()
        kl = ((ratio - 1) - ratio.log()).mean()
        said += [loss.item(), kl.item(), ((ratio - 1).abs() > 0.2).float().mean().item()]
    return said, log_std, state(net)


@program
def low_rank_adapters(m: Any, device: str, d: Draws) -> Any:
    nn = m.nn

    class Adapted(nn.Module):  # type: ignore[name-defined, misc]
        def __init__(self, base: Any, rank: int) -> None:
            super().__init__()
            self.base = base.requires_grad_(False)
            self.down = nn.Parameter(m.zeros(rank, base.in_features))
            self.up = nn.Parameter(m.zeros(base.out_features, rank))

        def forward(self, x: Any) -> Any:
            return self.base(x) + x @ self.down.T @ self.up.T

        @m.no_grad()
        def merged(self) -> Any:
            whole = nn.Linear(self.base.in_features, self.base.out_features).to(self.down.device)
            whole.weight.copy_(self.base.weight + self.up @ self.down)
            whole.bias.copy_(self.base.bias)
            return whole

    model = nn.Sequential(nn.Linear(5, 6), nn.ReLU(), nn.Linear(6, 2))
    for name, child in list(model.named_children()):
        if isinstance(child, nn.Linear):
            setattr(model, name, Adapted(child, 2))
    model = d.fill(model)
    trained = [p for p in model.parameters() if p.requires_grad]
    opt = m.optim.SGD(trained, lr=0.1, momentum=0.9, dampening=0.1)
    x, y = d.normal(9, 5), d.normal(9, 2)
    for _ in range(3):
        opt.zero_grad()
        (model(x) - y).abs().mean().backward()
        opt.step()
    merged = nn.Sequential(model[0].merged(), nn.ReLU(), model[2].merged())
    file = io.BytesIO()
    m.save({k: v for k, v in model.state_dict().items() if "base" not in k}, file)
    file.seek(0)
    kept = m.load(file)
    missing = model.load_state_dict(kept, strict=False).missing_keys
    return len(trained), missing, m.allclose(merged(x), model(x), atol=1e-5), state(model)


@program
def style_of_an_image(m: Any, device: str, d: Draws) -> Any:
    nn, F = m.nn, m.nn.functional
    net = d.fill(nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.AvgPool2d(2), nn.Conv2d(4, 4, 2), nn.ReLU()))
    kept: dict[str, Any] = {}
    handles = [net[i].register_forward_hook(lambda mod, args, out, i=i: kept.__setitem__(str(i), out)) for i in (0, 3)]
    net.requires_grad_(False).eval()

    def gram(t: Any) -> Any:
        b, c, h, w = t.shape
        f = t.reshape(b, c, h * w)
        return f.bmm(f.transpose(1, 2)) / (c * h * w)

    net(d.uniform(1, 3, 8, 8))
    style = {k: gram(v).detach() for k, v in kept.items()}
    image = d.uniform(1, 3, 8, 8).requires_grad_()
    opt, said = m.optim.LBFGS([image], max_iter=4, history_size=3), []

    def closure() -> Any:
        opt.zero_grad()
        net(image)
        loss = sum(F.mse_loss(gram(kept[k]), style[k]) for k in style) * 1e3
        loss = loss + 1e-2 * (image[..., 1:] - image[..., :-1]).abs().mean()
        loss.backward()
        said.append(loss.item())
        return loss

    opt.step(closure)
    for h in handles:
        h.remove()
    with m.no_grad():
        image.clamp_(0, 1)
    return said, image, len(net[0]._forward_hooks)


@program
def optimal_transport(m: Any, device: str, d: Draws) -> Any:
    x, y = d.normal(6, 2).requires_grad_(), d.normal(5, 2)
    cost = (x[:, None] - y[None]).pow(2).sum(-1)
    a, b = m.full((6,), 1 / 6, device=device).log(), m.full((5,), 1 / 5, device=device).log()
    f, g = m.zeros(6, device=device), m.zeros(5, device=device)
    for _ in range(20):
        f = -0.5 * m.logsumexp((g - cost) / 0.5 + b, dim=1)
        g = -0.5 * m.logsumexp((f[:, None] - cost) / 0.5 + a[:, None], dim=0)
    plan = ((f[:, None] + g - cost) / 0.5 + a[:, None] + b).exp()
    (plan * cost).sum().backward()
    return plan, x.grad, plan.sum(0)


@program
def boxes(m: Any, device: str, d: Draws) -> Any:
    corner, size = d.uniform(8, 2) * 4, d.uniform(8, 2) * 3 + 0.5
    box, score = m.cat([corner, corner + size], -1), d.uniform(8)
    area = (box[:, 2:] - box[:, :2]).prod(-1)
    low, high = m.max(box[:, None, :2], box[None, :, :2]), m.min(box[:, None, 2:], box[None, :, 2:])
    both = (high - low).clamp(min=0).prod(2)
    iou = both / (area[:, None] + area[None] - both)
    order, kept = score.argsort(descending=True), []
    while order.numel() > 0:
        i = order[0].item()
        kept.append(i)
        order = order[1:][iou[i, order[1:]] <= 0.3]
    matched = iou.fill_diagonal_(0).max(dim=1)
    whole = m.stack([box[:, :2].amin(0), box[:, 2:].amax(0)])
    return kept, iou, matched.values, matched.indices, whole, m.nonzero(iou > 0.2)


@program
def samples_one_by_one(m: Any, device: str, d: Draws) -> Any:
    nn, F, func = m.nn, m.nn.functional, import_module(f"{m.__name__}.func")
    model = d.fill(nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)))
    params = {k: v.detach() for k, v in model.named_parameters()}
    x, y = d.normal(6, 4), d.labels(3, 6)

    def loss(p: Any, one: Any, label: Any) -> Any:
        return F.cross_entropy(func.functional_call(model, p, (one.unsqueeze(0),)), label.unsqueeze(0))

    per = func.vmap(func.grad(loss), in_dims=(None, 0, 0))(params, x, y)
    norms = sum(g.flatten(1).pow(2).sum(1) for g in per.values()).sqrt()
    scale = (0.5 / norms).clamp(max=1.0)
    private = {k: m.einsum("n...,n->...", g, scale) for k, g in per.items()}
    jac = func.jacrev(lambda one: model(one))(x[0])
    hess = func.hessian(lambda one: model(one).logsumexp(-1))(x[0])
    out, push = func.jvp(lambda v: model(v).softmax(-1), (x[0],), (m.ones(4, device=device),))
    copies = [d.fill(nn.Linear(4, 2)) for _ in range(3)]
    stacked, _ = func.stack_module_state(copies)
    many = func.vmap(lambda p, v: func.functional_call(copies[0], p, (v,)), (0, None))(stacked, x)
    return list(per.values()), norms, list(private.values()), jac, hess, out, push, many


@program
def a_checkpoint_resumed(m: Any, device: str, d: Draws) -> Any:
    nn, F = m.nn, m.nn.functional
    utils = import_module(f"{m.__name__}.utils.data")

    def fresh() -> Any:
        model = nn.Sequential(nn.Linear(3, 6), nn.ELU(), nn.Linear(6, 1)).to(device)
        opt = m.optim.Adam(model.parameters(), lr=0.02, weight_decay=1e-3)
        return model, opt, m.optim.lr_scheduler.StepLR(opt, 2, gamma=0.5)

    model, opt, sched = fresh()
    d.fill(model)
    loader = utils.DataLoader(utils.TensorDataset(d.normal(10, 3).cpu(), d.normal(10, 1).cpu()), batch_size=4)

    def epoch(model: Any, opt: Any, sched: Any) -> float:
        total = 0.0
        for x, y in loader:
            loss = F.smooth_l1_loss(model(x.to(device)), y.to(device), beta=0.5)
            opt.zero_grad()
            loss.backward()
            opt.step()
            total += loss.item() * x.size(0)
        sched.step()
        return total / len(loader.dataset)

    said = [epoch(model, opt, sched) for _ in range(2)]
    file = io.BytesIO()
    m.save({"model": model.state_dict(), "opt": opt.state_dict(), "sched": sched.state_dict(), "epoch": 2}, file)
    said += [epoch(model, opt, sched) for _ in range(2)]
    file.seek(0)
    kept = m.load(file, map_location=device)
    other, opt2, sched2 = fresh()
    other.load_state_dict(kept["model"])
    opt2.load_state_dict(kept["opt"])
    sched2.load_state_dict(kept["sched"])
    again = [epoch(other, opt2, sched2) for _ in range(2)]
    return said, again, sched2.get_last_lr(), opt2.state_dict()["param_groups"], state(other)


@program
def distillation_and_focal_loss(m: Any, device: str, d: Draws) -> Any:
    nn, F = m.nn, m.nn.functional
    teacher, student = d.fill(nn.Linear(5, 4)).eval(), d.fill(nn.Linear(5, 4))
    x, y = d.normal(7, 5), d.labels(4, 7)
    with m.no_grad():
        soft = F.softmax(teacher(x) / 3.0, dim=1)
    logits = student(x)
    kd = F.kl_div(F.log_softmax(logits / 3.0, dim=1), soft, reduction="batchmean") * 9
    ce = F.cross_entropy(logits, y, reduction="none")
    focal = ((1 - m.exp(-ce)) ** 2 * ce).mean()
    smooth = m.full_like(logits, 0.1 / 3).scatter_(1, y.unsqueeze(1), 0.9)
    manual = -(smooth * logits.log_softmax(-1)).sum(-1).mean()
    hit = logits.topk(2, dim=1).indices.eq(y[:, None]).any(1).float().mean()
    (kd + focal + manual).backward()
    confusion = m.zeros(4, 4, dtype=m.int64, device=device)
    confusion.index_put_((y, logits.argmax(1)), m.tensor(1, device=device), accumulate=True)
    return kd, focal, manual, hit, confusion, gradients(student)


@program
def invertible_flow(m: Any, device: str, d: Draws) -> Any:
    nn = m.nn

    class Coupling(nn.Module):  # type: ignore[name-defined, misc]
        def __init__(self, flip: bool) -> None:
            super().__init__()
            self.net, self.flip = nn.Sequential(nn.Linear(2, 6), nn.Tanh(), nn.Linear(6, 4)), flip
            self.mix = nn.Parameter(m.eye(4))

        def forward(self, x: Any) -> Any:
            a, b = x.chunk(2, dim=1)
            a, b = (b, a) if self.flip else (a, b)
            s, t = self.net(a).tensor_split(2, dim=1)
            y = m.cat([a, b * s.tanh().exp() + t], dim=1)
            _, logabs = m.linalg.slogdet(self.mix)
            return y @ self.mix, s.tanh().sum(1) + logabs

        @m.no_grad()
        def inverse(self, y: Any) -> Any:
            a, c = m.linalg.solve(self.mix.T, y.T).T.chunk(2, dim=1)
            s, t = self.net(a).tensor_split(2, dim=1)
            b = (c - t) * (-s.tanh()).exp()
            return m.cat([b, a] if self.flip else [a, b], dim=1)

    flow = d.fill(nn.ModuleList([Coupling(False), Coupling(True)]))
    with m.no_grad():
        for layer in flow:
            layer.mix += m.eye(4, device=device)
    opt, said, x = m.optim.Adadelta(flow.parameters(), lr=0.5), [], d.normal(12, 4)
    for _ in range(3):
        z, total = x, 0.0
        for layer in flow:
            z, part = layer(z)
            total = total + part
        loss = (0.5 * z.square().sum(1) - total).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        said.append(loss.item())
    z = flow[1](flow[0](x)[0])[0]
    back = flow[0].inverse(flow[1].inverse(z))
    return said, m.allclose(back, x, atol=1e-3), state(flow)
