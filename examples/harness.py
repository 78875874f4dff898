"""What the training examples share: command line, order of the data, progress, checkpoints, figures.

An example states its sizes, builds its model, and writes its loop:

    run = Run(parser("LeNet-5", __doc__, epochs=(10, 2), batch=(64, 64)).parse_args(argv))
    model = ...
    run.track(model=model, optimizer=optimizer, scheduler=scheduler)
    loader = run.loader(dataset)
    for _ in run.epochs():
        for x, y in run.batches(loader):
            ...
            run.record(loss)
        run.report(test_accuracy=...)
    return run.finish()

A checkpoint holds all that the rest of a run depends on: what is tracked, the random state, and how far the run got.
The order of the data follows from the seed and the epoch alone, so a run that goes on in the middle of an epoch leaves
out what it has seen and has exactly the losses of a run that was never interrupted.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator, Sized
from typing import Any

import lucid
from lucid import nn
from lucid.utils.data import DataLoader, Dataset, Sampler, TensorDataset
from tqdm import tqdm

AMP = {"bfloat16": lucid.bfloat16, "float16": lucid.float16}


def parser(title: str, doc: str | None, *, amp: bool = False, **sizes: tuple[float, float]) -> argparse.ArgumentParser:
    """The command line of an example whose sizes have these values: (by default, with `--quick`).

    `epochs` and `batch` are always among them; `title` heads its plots, and `doc` is the text of its module.
    """
    made = argparse.ArgumentParser(description=(doc or "").strip().partition("\n")[0])
    made.set_defaults(title=title, sizes=sizes, amp=None)
    made.add_argument("--device", default="cpu", help="cpu, or gpu (metal, cuda, or MLX without a GPU)")
    made.add_argument("--quick", action="store_true", help="a small run, to see that all works")
    for name, (full, quick) in sizes.items():
        made.add_argument(f"--{name}", type=type(full), metavar="N", help=f"default: {full} ({quick} with --quick)")
    made.add_argument("--seed", type=int, default=0)
    if amp:
        made.add_argument("--amp", choices=tuple(AMP), help="compute in this dtype where autocast does")
    made.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    made.add_argument("--plot", metavar="FILE", help="draw the loss and the other figures")
    made.add_argument("--logdir", metavar="DIR", help="write the figures for TensorBoard")
    made.add_argument("--checkpoint", metavar="FILE", help="save the run after each epoch")
    made.add_argument("--every", type=int, default=0, metavar="N", help="save it after each N steps as well")
    made.add_argument("--resume", metavar="FILE", help="go on from a checkpoint")
    made.add_argument("--stop", type=int, default=0, metavar="N", help="leave off after N steps, as a crash would")
    return made


def accuracy(model: nn.Module, data: TensorDataset, device: str) -> float:
    """The share of the examples (inputs, classes) that the model gets right."""
    x, y = (part.to(device) for part in data.tensors)
    model.eval()
    with lucid.no_grad():
        right = (model(x).argmax(1) == y).float().mean().item()
    model.train()
    return right


class Order(Sampler[int]):
    """Each index once, in an order that the seed and the epoch tell, without the first `skip`."""

    def __init__(self, count: int, seed: int) -> None:
        self.count, self.seed = count, seed
        self.epoch = self.skip = 0

    def __iter__(self) -> Iterator[int]:
        generator = lucid.Generator()
        # Epochs of one seed are not those of another, later by one.
        generator.manual_seed(self.seed * 1_000_003 + self.epoch)
        return iter(lucid.randperm(self.count, generator=generator, device="cpu").tolist()[self.skip :])

    def __len__(self) -> int:
        return self.count


class Run:
    """One run of an example: its arguments, how far it is, and what it found.

    `losses` has each step's loss; `history` each epoch's mean and what `report` was given.
    """

    def __init__(self, args: argparse.Namespace) -> None:
        for name, (full, quick) in args.sizes.items():
            if getattr(args, name) is None:
                setattr(args, name, quick if args.quick else full)
            if getattr(args, name) <= 0:
                raise SystemExit(f"--{name} must be above zero")
        self.args = args
        self.device = str(lucid.empty(0, device=args.device).device)
        # What another run must have in common to go on from here.
        self.setting = {"seed": args.seed, "amp": args.amp, **{name: getattr(args, name) for name in args.sizes}}
        self.epoch = self.step = 0
        self.losses: list[float] = []
        self.history: list[dict[str, float]] = []
        self._tracked: dict[str, Any] = {}
        self._random: lucid.Tensor | None = None
        self._start = time.perf_counter()
        self._writer: Any = None
        if args.logdir:
            from lucid.utils.tensorboard import SummaryWriter

            self._writer = SummaryWriter(args.logdir)
        lucid.manual_seed(args.seed)

    # --- the loop -----------------------------------------------------------------------------------------------------

    def loader(self, data: Dataset[Any]) -> DataLoader[Any]:
        """Batches of `--batch` samples in an order that a resumed run finds again."""
        assert isinstance(data, Sized)
        # A generator of its own, so that beginning an epoch draws nothing from the one of the model.
        own = lucid.Generator()
        return DataLoader(data, self.args.batch, sampler=Order(len(data), self.args.seed), generator=own)

    def track(self, **parts: Any) -> None:
        """Says what has state, by name; with `--resume` each part gets its state back."""
        self._tracked = parts
        if not self.args.resume:
            return
        saved = lucid.load(self.args.resume)
        for name, now in self.setting.items():
            if saved["setting"].get(name) != now:
                raise SystemExit(f"{self.args.resume}: made with {name} {saved['setting'].get(name)}, not {now}")
        for name, part in parts.items():
            part.load_state_dict(saved["parts"][name])
        self.epoch, self.step = saved["epoch"], saved["step"]
        self.losses, self.history, self._random = saved["losses"], saved["history"], saved["random"]

    def epochs(self) -> Iterator[int]:
        """The numbers of the epochs that are still to be run, from 1."""
        if self._random is not None:
            lucid.set_rng_state(self._random)
        while self.epoch < self.args.epochs:
            yield self.epoch + 1

    def batches(self, loader: DataLoader[Any]) -> Iterator[list[lucid.Tensor]]:
        """The epoch's batches that are still to be trained on, on the device, with a bar on a terminal."""
        order = loader.sampler
        assert isinstance(order, Order), "Run.loader makes loaders that can be resumed"
        order.epoch, order.skip = self.epoch, self.step * self.args.batch
        title = f"epoch {self.epoch + 1}/{self.args.epochs}"
        for batch in tqdm(loader, title, len(loader), initial=self.step, leave=False, disable=None):
            yield [part.to(self.device) for part in batch]
            self.step += 1
            if self.args.every and len(self.losses) % self.args.every == 0:
                self._save()
            if self.args.stop and len(self.losses) >= self.args.stop:
                raise SystemExit(f"stopped after {self.args.stop} steps, as asked")

    def autocast(self) -> lucid.autocast:
        """Mixed precision, where `--amp` asks for it."""
        return lucid.autocast(self.device, dtype=AMP.get(self.args.amp), enabled=self.args.amp is not None)

    def record(self, loss: lucid.Tensor) -> None:
        """Notes the loss of a step."""
        self.losses.append(loss.item())
        if self._writer:
            self._writer.add_scalar("step/loss", self.losses[-1], len(self.losses))

    def report(self, **figures: float) -> None:
        """Ends an epoch: says its mean loss and these figures, and saves the run if a checkpoint was asked for."""
        mean = sum(self.losses[-self.step :]) / self.step
        self.epoch, self.step = self.epoch + 1, 0
        self.history.append({"epoch": self.epoch, "loss": mean, **figures})
        said = "".join(f"{name.replace('_', ' ')} {value:.4f}  " for name, value in figures.items())
        print(f"epoch {self.epoch}/{self.args.epochs}  loss {mean:.4f}  {said}{self._passed():.1f} s", flush=True)
        if self._writer:
            for name, value in self.history[-1].items():
                if name != "epoch":
                    self._writer.add_scalar(f"epoch/{name}", value, self.epoch)
        self._save()

    def finish(self, **more: Any) -> dict[str, Any]:
        """Draws the plot, says the result, and gives it: what `--json` prints, with `more` in it."""
        model: nn.Module = self._tracked["model"]
        result = {
            "device": self.device,
            **self.setting,
            "parameters": sum(p.numel() for p in model.parameters()),
            "seconds": round(self._passed(), 3),
            **{name: value for name, value in self.history[-1].items() if name != "epoch"},
            **more,
            "history": self.history,
            "losses": self.losses,
        }
        said = ", ".join(f"{k.replace('_', ' ')} {v:.4f}" for k, v in self.history[-1].items() if k != "epoch")
        print(f"{self.device}: {said} after {result['seconds']:.1f} s")
        if self._writer:
            self._writer.close()
        if self.args.plot:
            self._plot(self.args.plot)
        if self.args.json:
            print(json.dumps(result))
        return result

    # --- inside -------------------------------------------------------------------------------------------------------

    def _passed(self) -> float:
        return time.perf_counter() - self._start

    def _save(self) -> None:
        if not self.args.checkpoint:
            return
        parts = {name: part.state_dict() for name, part in self._tracked.items()}
        random = lucid.get_rng_state()
        state = {"parts": parts, "random": random, "setting": self.setting, "epoch": self.epoch, "step": self.step}
        lucid.save({**state, "losses": self.losses, "history": self.history}, self.args.checkpoint)

    def _plot(self, path: str) -> None:
        """The loss of each step and its mean over each epoch on the left, the other figures on the right."""
        from matplotlib.figure import Figure

        others = [name for name in self.history[-1] if name not in ("epoch", "loss")]
        figure = Figure(figsize=(7 if others else 4, 3), layout="constrained")
        left, *right = figure.subplots(1, 2 if others else 1, squeeze=False)[0]
        epochs = [h["epoch"] for h in self.history]
        size = len(self.losses) / len(epochs)
        left.plot([(i + 1) / size for i in range(len(self.losses))], self.losses, alpha=0.35, label="step")
        means = [h["loss"] for h in self.history]
        left.plot([e - 0.5 for e in epochs], means, color="tab:blue", label="mean of the epoch")
        scale = "log" if min(self.losses) > 0 else "linear"
        left.set(title=f"{self.args.title} on {self.device}: loss", xlabel="epoch", yscale=scale)
        left.legend()
        for axes in right:
            for other in others:
                axes.plot(epochs, [h[other] for h in self.history], label=other.replace("_", " "))
            axes.set(title="by epoch", xlabel="epoch")
            axes.legend()
        for axes in (left, *right):
            axes.grid(alpha=0.3)
        figure.savefig(path, dpi=100)
