"""Programs of images and sound as popular repositories write them: fine-tuning, detection, speech."""

from __future__ import annotations

import collections
import math
from importlib import import_module
from typing import Any

from tests.python.parity.programs.programs import Draws, program, state


@program
def fine_tuning(m: Any, device: str, d: Draws) -> Any:
    nn, F = m.nn, m.nn.functional
    swa_utils = import_module(f"{m.__name__}.optim.swa_utils")

    def backbone() -> Any:
        return nn.Sequential(
            collections.OrderedDict(
                conv=nn.Conv2d(3, 4, 3, padding=1, bias=False),
                bn=nn.BatchNorm2d(4),
                act=nn.Hardswish(inplace=True),
                dw=nn.Conv2d(4, 4, 3, groups=4, stride=2, padding=1),
                pool=nn.AdaptiveAvgPool2d((1, 1)),
                flat=nn.Flatten(),
                fc=nn.Linear(4, 10),
            )
        )

    teacher, student = d.fill(backbone()), d.fill(backbone())
    for name, p in student.named_parameters():
        p.requires_grad = not name.startswith("conv.")
    student.fc = d.fill(nn.Linear(student.fc.in_features, 5))
    teacher.fc = d.fill(nn.Linear(4, 5))
    teacher.eval()
    features: dict[str, Any] = {}
    hooks = [
        net.dw.register_forward_hook(lambda _m, _i, o, k=k: features.__setitem__(k, o))
        for k, net in (("t", teacher), ("s", student))
    ]
    decay = [p for n, p in student.named_parameters() if p.requires_grad and p.ndim > 1]
    rest = [p for n, p in student.named_parameters() if p.requires_grad and p.ndim <= 1]
    opt = m.optim.SGD([{"params": decay, "weight_decay": 1e-2}, {"params": rest}], lr=0.1, momentum=0.9, nesterov=True)
    schedule = m.optim.lr_scheduler.OneCycleLR(opt, max_lr=[0.1, 0.05], total_steps=6, pct_start=0.3)
    averaged = swa_utils.AveragedModel(student, multi_avg_fn=swa_utils.get_ema_multi_avg_fn(0.8))
    x, y, said = d.normal(12, 3, 6, 6), d.labels(5, 12), []
    loader = m.utils.data.DataLoader(m.utils.data.TensorDataset(x, y), batch_size=4, drop_last=True)
    for epoch in range(2):
        student.train()
        student.bn.eval() if epoch == 0 else None
        for inputs, labels in loader:
            lam, order = 0.3, m.arange(inputs.size(0) - 1, -1, -1, device=device)
            mixed = lam * inputs + (1 - lam) * inputs[order]
            out = student(mixed)
            with m.no_grad():
                soft = teacher(mixed)
            hard = lam * F.cross_entropy(out, labels) + (1 - lam) * F.cross_entropy(out, labels[order])
            kd = F.kl_div(F.log_softmax(out / 4, 1), F.softmax(soft / 4, 1), reduction="batchmean") * 16
            loss = hard + kd + F.mse_loss(features["s"], features["t"])
            opt.zero_grad()
            loss.backward()
            opt.step()
            schedule.step()
            averaged.update_parameters(student)
            said.append((loss.item(), *schedule.get_last_lr()))
    for hook in hooks:
        hook.remove()
    swa_utils.update_bn(loader, averaged)
    averaged.eval()
    with m.no_grad():
        top = averaged(x).topk(3, 1, True, True)[1].t()
        right = top.eq(y.view(1, -1).expand_as(top))
        accuracy = [right[:k].reshape(-1).float().sum(0, keepdim=True).mul_(100.0 / 12).item() for k in (1, 3)]
    return said, accuracy, state(averaged), int(averaged.n_averaged)


@program
def detection_transformer(m: Any, device: str, d: Draws) -> Any:
    nn, F = m.nn, m.nn.functional

    def xyxy(b: Any) -> Any:
        cx, cy, w, h = b.unbind(-1)
        return m.stack([cx - 0.5 * w, cy - 0.5 * h, cx + 0.5 * w, cy + 0.5 * h], dim=-1)

    def giou(a: Any, b: Any) -> Any:
        area = [(t[:, 2] - t[:, 0]) * (t[:, 3] - t[:, 1]) for t in (a, b)]
        wh = (m.min(a[:, None, 2:], b[:, 2:]) - m.max(a[:, None, :2], b[:, :2])).clamp(min=0)
        inter = wh[:, :, 0] * wh[:, :, 1]
        union = area[0][:, None] + area[1] - inter
        whole = (m.max(a[:, None, 2:], b[:, 2:]) - m.min(a[:, None, :2], b[:, :2])).clamp(min=0).prod(-1)
        return inter / union - (whole - union) / whole

    mask = m.zeros(2, 3, 4, dtype=m.bool, device=device)
    mask[1, :, 3:] = True
    y_embed, x_embed = (~mask).cumsum(1, dtype=m.float32), (~mask).cumsum(2, dtype=m.float32)
    y_embed = y_embed / (y_embed[:, -1:, :] + 1e-6) * 2 * math.pi
    x_embed = x_embed / (x_embed[:, :, -1:] + 1e-6) * 2 * math.pi
    dim_t = m.arange(4, dtype=m.float32, device=device)
    dim_t = 10000 ** (2 * m.div(dim_t, 2, rounding_mode="floor") / 4)
    parts = []
    for e in (y_embed, x_embed):
        p = e[:, :, :, None] / dim_t
        parts.append(m.stack((p[:, :, :, 0::2].sin(), p[:, :, :, 1::2].cos()), dim=4).flatten(3))
    pos = m.cat(parts, dim=3).permute(0, 3, 1, 2)
    encoder = d.fill(nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, 0.0), 1, enable_nested_tensor=False))
    decoder = d.fill(nn.TransformerDecoder(nn.TransformerDecoderLayer(8, 2, 16, 0.0, "gelu", norm_first=True), 1))
    query, classes, boxes = d.fill(nn.Embedding(5, 8)), d.fill(nn.Linear(8, 4)), d.fill(nn.Linear(8, 4))
    model = nn.ModuleList([encoder, decoder, query, classes, boxes])
    opt = m.optim.SGD(model.parameters(), lr=1e-2)
    image, said = d.normal(2, 8, 3, 4), []
    targets = [(d.labels(3, n), 0.3 + 0.2 * d.uniform(n, 4)) for n in (2, 1)]
    weight = m.ones(4, device=device)
    weight[-1] = 0.1
    for _ in range(2):
        src = (image + pos).flatten(2).permute(2, 0, 1)
        memory = encoder(src, src_key_padding_mask=mask.flatten(1))
        hs = decoder(query.weight.unsqueeze(1).repeat(1, 2, 1), memory, memory_key_padding_mask=mask.flatten(1))
        hs = hs.transpose(0, 1)
        logits, found = classes(hs), boxes(hs).sigmoid()
        loss, matched = 0.0, m.full((2, 5), 3, dtype=m.int64, device=device)
        for b, (labels, wanted) in enumerate(targets):
            cost = (
                m.cdist(found[b], wanted, p=1) - logits[b].softmax(-1)[:, labels] - giou(xyxy(found[b]), xyxy(wanted))
            )
            rows = cost.detach().argmin(0)
            matched[b, rows] = labels
            loss = loss + F.l1_loss(found[b, rows], wanted, reduction="none").sum() / len(labels)
            loss = loss + (1 - m.diag(giou(xyxy(found[b, rows]), xyxy(wanted)))).sum()
        loss = loss + F.cross_entropy(logits.transpose(1, 2), matched, weight)
        opt.zero_grad()
        loss.backward()
        opt.step()
        said.append(loss.item())
    return said, matched, found, state(decoder)[:5]


@program
def speech_with_ctc(m: Any, device: str, d: Draws) -> Any:
    nn, F = m.nn, m.nn.functional
    wave = d.normal(2, 800)
    spec = m.stft(wave, 64, hop_length=16, window=m.hann_window(64, device=device), return_complex=True)
    power = m.view_as_real(spec).pow(2).sum(-1)
    mel = m.linspace(0, 1, 33, device=device)[:, None] * m.linspace(0.5, 1, 8, device=device)
    x = (mel.t() @ power).clamp(min=1e-5).log()
    x = (x - x.mean((1, 2), keepdim=True)) / x.std((1, 2), keepdim=True)
    net = d.fill(
        nn.Sequential(
            nn.Conv1d(8, 6, 5, stride=2, padding=2, bias=False), nn.BatchNorm1d(6), nn.GELU(), nn.Dropout(0.0)
        )
    )
    lstm, head = d.fill(nn.LSTM(6, 5, 2, bidirectional=True)), d.fill(nn.Linear(10, 7))
    parts = nn.ModuleList([net, lstm, head])
    ctc, opt = nn.CTCLoss(blank=0, zero_infinity=True), m.optim.NAdam(parts.parameters(), lr=1e-2)
    targets, sizes = d.labels(7, 9, low=1), m.tensor([4, 5])
    said = []
    for _ in range(3):
        h = net(x).permute(2, 0, 1).contiguous()
        out, _ = lstm(h)
        log = F.log_softmax(head(out), dim=-1)
        lengths = m.full((2,), log.size(0), dtype=m.long)
        loss = ctc(log, targets, lengths, sizes)
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(parts.parameters(), 1.0, error_if_nonfinite=True)
        opt.step()
        said.append(loss.item())
    best = [m.unique_consecutive(p).tolist() for p in log.argmax(-1).t()]
    back = m.istft(spec, 64, hop_length=16, window=m.hann_window(64, device=device), length=800)
    return said, best, back, state(net)
