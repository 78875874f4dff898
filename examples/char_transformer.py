"""Trains a small causal transformer to write Python's licence, character by character, and shows what it writes.

    python examples/char_transformer.py --device cpu|gpu [--quick] [--amp bfloat16|float16] [--plot FILE] [--json] …

The text comes with Python (see `texts.py`). Its last tenth is held out: the loss there stops falling where the network
begins to know the rest by heart, which is what its sample then shows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import lucid
import lucid.nn.functional as F
import texts
from harness import Run, parser
from lucid import nn, optim
from lucid.utils.data import Dataset


class Windows(Dataset[tuple[lucid.Tensor, lucid.Tensor]]):
    """Pieces of a text, `stride` apart: `length` characters, and the same one further on.

    With `jitter` a piece begins anywhere before the next, so that nothing is learned of where pieces begin.
    """

    def __init__(self, codes: lucid.Tensor, length: int, stride: int, jitter: bool = False) -> None:
        self.codes, self.length, self.stride, self.jitter = codes, length, stride, jitter

    def __len__(self) -> int:
        return (len(self.codes) - self.length) // self.stride

    def __getitem__(self, index: int) -> tuple[lucid.Tensor, lucid.Tensor]:
        start = index * self.stride
        if self.jitter:
            start += int(lucid.randint(0, self.stride, ()).item())
        return self.codes[start : start + self.length], self.codes[start + 1 : start + self.length + 1]


class Writer(nn.Module):
    """Characters (N, L) to logits of the next one at each place (N, L, letters); L is at most `length`."""

    def __init__(self, letters: int, length: int, width: int, layers: int) -> None:
        super().__init__()
        self.length = length
        self.letter = nn.Embedding(letters, width)
        self.place = nn.Embedding(length, width)
        layer = nn.TransformerEncoderLayer(
            width, nhead=4, dim_feedforward=4 * width, dropout=0.1, activation="gelu", batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, layers, norm=nn.LayerNorm(width), enable_nested_tensor=False)
        self.head = nn.Linear(width, letters)
        for embedding in (self.letter, self.place):
            nn.init.normal_(embedding.weight, std=0.02)
        # The encoder's layers are copies of one; each starts from weights of its own.
        for name, p in self.encoder.named_parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02 if "out_proj" not in name else 0.02 / math.sqrt(2 * layers))

    def forward(self, x: lucid.Tensor) -> lucid.Tensor:
        length = x.shape[1]
        mask = nn.Transformer.generate_square_subsequent_mask(length, device=x.device)
        hidden = self.letter(x) + self.place(lucid.arange(length, device=x.device))
        return self.head(self.encoder(hidden, mask=mask, is_causal=True))

    @lucid.no_grad()
    def write(self, start: lucid.Tensor, count: int, temperature: float = 0.7) -> lucid.Tensor:
        """Goes on from characters (L,) by `count` more, each drawn by its probability; high temperatures dare more."""
        self.eval()
        text = start
        for _ in range(count):
            logits = self(text[-self.length :].unsqueeze(0))[0, -1]
            drawn = F.gumbel_softmax(logits / temperature, hard=True).argmax()
            text = lucid.cat([text, drawn.reshape(1)])
        self.train()
        return text


def held_out_loss(model: Writer, data: Windows, run: Run) -> float:
    """Cross-entropy per character of text that was not trained on."""
    parts = [data[i] for i in range(len(data))]
    x, y = (lucid.stack(list(part)).to(run.device) for part in zip(*parts, strict=True))
    model.eval()
    with lucid.no_grad(), run.autocast():
        loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten()).item()
    model.train()
    return loss


def main(argv: Sequence[str] | None = None) -> dict[str, Any]:
    """Trains the network, shows a sample, and gives what `--json` prints."""
    args = parser(
        "Transformer",
        __doc__,
        amp=True,
        epochs=(60, 2),
        batch=(32, 16),
        length=(64, 32),
        width=(96, 32),
        layers=(3, 2),
        sample=(400, 80),
    ).parse_args(argv)
    run = Run(args)
    text = texts.text()
    letters = sorted(set(text))
    codes = lucid.tensor([letters.index(c) for c in text])
    split = len(text) * 9 // 10
    train = Windows(codes[:split], args.length, args.length // 2, jitter=True)
    test = Windows(codes[split:], args.length, args.length)
    loader = run.loader(train)
    model = Writer(len(letters), args.length, args.width, args.layers).to(run.device)
    optimizer = optim.AdamW(model.parameters(), lr=4e-3, weight_decay=0.05)
    steps = args.epochs * len(loader)
    scheduler = optim.lr_scheduler.OneCycleLR(optimizer, max_lr=4e-3, total_steps=steps, pct_start=0.1)
    # Scales the loss for float16 alone, whose smallest number gradients easily fall below.
    scaler = lucid.amp.GradScaler(run.device, enabled=args.amp == "float16")
    run.track(model=model, optimizer=optimizer, scheduler=scheduler, scaler=scaler)
    for _ in run.epochs():
        for x, y in run.batches(loader):
            with run.autocast():
                loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten())
            loss.eval()
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            scheduler.step()
            run.record(loss)
        run.report(held_out_loss=held_out_loss(model, test, run))
    start = codes[split // 2 :][: args.length // 2].to(run.device)
    sample = "".join(letters[code] for code in model.write(start, args.sample).tolist())
    print(f"--- from {len(start)} characters on ---\n{sample}\n---")
    return run.finish(sample=sample)


if __name__ == "__main__":
    main()
