"""Trains a variational autoencoder on handwritten digits, and draws digits that nobody wrote.

    python examples/vae.py --device cpu|gpu [--quick] [--beta N] [--picture FILE] [--plot FILE] [--json] …

`--picture` shows held-out digits above what the network makes of their codes, and below them digits from random codes.
The loss weighs the code by `--beta` (Higgins et al., 2017): the digits were scanned as 8 by 8 pixels, so that of their
28 by 28 each counts several times over, and at a weight of 1 random codes would seldom be like those of digits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import digits
import lucid
import lucid.nn.functional as F
from harness import Run, parser
from lucid import nn, optim


class VAE(nn.Module):
    """An autoencoder of images (N, 1, 28, 28) whose codes (N, latent) are normal (Kingma and Welling, 2014)."""

    def __init__(self, latent: int, width: int) -> None:
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(1, width, 4, stride=2, padding=1),
            nn.SiLU(),
            nn.Conv2d(width, 2 * width, 4, stride=2, padding=1),
            nn.SiLU(),
            nn.Flatten(),
            nn.Linear(2 * width * 7 * 7, 2 * latent),
        )
        self.decoder = nn.Sequential(
            nn.Linear(latent, 2 * width * 7 * 7),
            nn.SiLU(),
            nn.Unflatten(1, (2 * width, 7, 7)),
            nn.ConvTranspose2d(2 * width, width, 4, stride=2, padding=1),
            nn.SiLU(),
            nn.ConvTranspose2d(width, 1, 4, stride=2, padding=1),
        )

    def forward(self, x: lucid.Tensor) -> tuple[lucid.Tensor, lucid.Tensor, lucid.Tensor]:
        """The logits of each pixel being ink, and mean and logarithm of the variance of the code."""
        mean, log_variance = self.encoder(x).chunk(2, dim=1)
        code = mean + (log_variance / 2).exp() * lucid.randn_like(mean)
        return self.decoder(code), mean, log_variance


def loss_of(model: VAE, x: lucid.Tensor, beta: float) -> lucid.Tensor:
    """The negative evidence lower bound per image, in nats, with the code's cost `beta` times."""
    logits, mean, log_variance = model(x)
    pixels = F.binary_cross_entropy_with_logits(logits, x, reduction="sum")
    code = 0.5 * (mean.square() + log_variance.exp() - 1 - log_variance).sum()
    return (pixels + beta * code) / len(x)


def picture(model: VAE, x: lucid.Tensor, latent: int, path: str) -> None:
    """Draws a row of digits, a row of their reconstructions, and four rows from random codes."""
    from matplotlib.figure import Figure

    with lucid.no_grad():
        mean, _ = model.encoder(x).chunk(2, dim=1)
        again = model.decoder(mean).sigmoid()
        new = model.decoder(lucid.randn(4 * len(x), latent, device=x.device)).sigmoid()
    images = lucid.cat([x, again, new]).squeeze(1).to("cpu").numpy()
    figure = Figure(figsize=(len(x) * 0.6, 6 * 0.6 + 0.4), layout="constrained")
    grid = figure.subplots(6, len(x))
    for image, axes in zip(images, grid.flat, strict=True):
        axes.imshow(image, cmap="gray_r", vmin=0, vmax=1)
        axes.set(xticks=[], yticks=[])
    for row, title in zip(grid, ("digit", "again", "new", "", "", ""), strict=True):
        row[0].set_ylabel(title)
    figure.savefig(path, dpi=72)


def main(argv: Sequence[str] | None = None) -> dict[str, Any]:
    """Trains the network, draws the picture, and gives what `--json` prints."""
    made = parser("VAE", __doc__, epochs=(60, 2), batch=(64, 32), latent=(8, 8), width=(16, 8), beta=(4.0, 4.0))
    made.add_argument("--picture", metavar="FILE", help="draw reconstructions and samples")
    args = made.parse_args(argv)
    run = Run(args)
    train, test = digits.datasets(normalise=False)
    loader = run.loader(train)
    model = VAE(args.latent, args.width).to(run.device)
    optimizer = optim.Adam(model.parameters(), lr=2e-3)
    scheduler = optim.lr_scheduler.CosineAnnealingLR(optimizer, args.epochs)
    run.track(model=model, optimizer=optimizer, scheduler=scheduler)
    held_out = test.tensors[0].to(run.device)
    for _ in run.epochs():
        for x, _ in run.batches(loader):
            loss = loss_of(model, x, args.beta)
            loss.eval()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            run.record(loss)
        scheduler.step()
        with lucid.no_grad():
            run.report(test_loss=loss_of(model, held_out, args.beta).item())
    if args.picture:
        picture(model, held_out[:12], args.latent, args.picture)
    return run.finish()


if __name__ == "__main__":
    main()
