"""LeNet-5 on the GPU device against hand-written raw MLX and against `mlx.nn`.

    python bench/lenet_overhead.py [--device gpu] [--batch 64] [--seconds 40] [--json] [--png FILE]

Three sides do the same work on the same numbers: this project (NCHW, modules and autograd), raw MLX (`mlx.core`, NHWC,
functions and closures, written by hand), and `mlx.nn` with `mlx.optimizers`. Each layer is timed alone and all of them
chained; then a whole training step (forward, backward, Adam). A second, identical raw MLX side is the control: its
ratio to the first shows the noise. Everything that is timed is evaluated. How to read the table: `bench/README.md`.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lucid
import lucid.nn.functional as F
import mlx.core as mx
import mlx.nn as mnn
import mlx.optimizers as mopt
import mlx.utils
import numpy as np
from lucid import nn, optim
from timing import Case, Variant, measure, table

LAYERS = ("conv1", "relu1", "pool1", "conv2", "relu2", "pool2", "flatten", "fc1", "relu3", "fc2", "relu4", "fc3")
SIDES = ("ours", "raw", "control", "mlx.nn")
RATE, BETA1, BETA2, EPS = 1e-3, 0.9, 0.999, 1e-8


def weights(seed: int = 0) -> dict[str, np.ndarray]:
    """LeNet-5's parameters in PyTorch's layout, uniform within ±1/sqrt(fan in)."""
    draw = np.random.default_rng(seed)
    shapes = {"conv1": (6, 1, 5, 5), "conv2": (16, 6, 5, 5), "fc1": (120, 400), "fc2": (84, 120), "fc3": (10, 84)}
    made = {}
    for name, shape in shapes.items():
        bound = 1 / math.sqrt(math.prod(shape[1:]))
        made[f"{name}.weight"] = draw.uniform(-bound, bound, shape).astype(np.float32)
        made[f"{name}.bias"] = draw.uniform(-bound, bound, shape[0]).astype(np.float32)
    return made


def channels_last(given: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The same parameters for NHWC: windows before channels, and fc1's columns in the order in which NHWC flattens."""
    made = dict(given)
    for name in ("conv1.weight", "conv2.weight"):
        made[name] = np.ascontiguousarray(given[name].transpose(0, 2, 3, 1))
    columns = given["fc1.weight"].reshape(120, 16, 5, 5).transpose(0, 2, 3, 1)
    made["fc1.weight"] = np.ascontiguousarray(columns.reshape(120, 400))
    return made


# ---- this project ----------------------------------------------------------------------------------------------------


class LeNet(nn.Module):
    """LeNet-5 as a user would write it, with a module per layer so that each can be timed alone."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 6, 5, padding=2)
        self.relu1 = nn.ReLU()
        self.pool1 = nn.MaxPool2d(2)
        self.conv2 = nn.Conv2d(6, 16, 5)
        self.relu2 = nn.ReLU()
        self.pool2 = nn.MaxPool2d(2)
        self.flatten = nn.Flatten()
        self.fc1 = nn.Linear(400, 120)
        self.relu3 = nn.ReLU()
        self.fc2 = nn.Linear(120, 84)
        self.relu4 = nn.ReLU()
        self.fc3 = nn.Linear(84, 10)

    def forward(self, x: lucid.Tensor) -> lucid.Tensor:
        x = self.pool1(self.relu1(self.conv1(x)))
        x = self.pool2(self.relu2(self.conv2(x)))
        x = self.relu3(self.fc1(self.flatten(x)))
        return self.fc3(self.relu4(self.fc2(x)))


class Ours:
    """The layers, the forward pass and the training step of this project."""

    def __init__(self, device: str, given: dict[str, np.ndarray], images: np.ndarray, labels: np.ndarray) -> None:
        self.model = LeNet()
        self.model.load_state_dict(given)
        # Nothing is recorded for a model whose parameters want no gradients.
        self.model.to(device).requires_grad_(False)
        self.trained = LeNet()
        self.trained.load_state_dict(given)
        self.trained.to(device)
        self.params = list(self.trained.parameters())
        self.optimizer = optim.Adam(self.params, lr=RATE, betas=(BETA1, BETA2), eps=EPS)
        self.x = lucid.tensor(images, device=device)
        self.y = lucid.tensor(labels, device=device)

    def layers(self) -> dict[str, Variant]:
        """Each layer on the output of the one before it, as that left it."""
        made = {}
        x = self.x
        for name in LAYERS:
            layer = getattr(self.model, name)
            made[name] = Variant(lambda layer=layer, x=x: layer(x), lucid.Tensor.eval)
            x = layer(x).eval()
        return made

    def forward(self) -> Variant:
        """The chained forward pass, without recording gradients."""
        return Variant(lambda: self.model(self.x), lucid.Tensor.eval)

    def step(self, early: bool) -> Variant:
        """Forward, backward and Adam; `early` evaluates the loss before going backward, as the documented loop does."""
        params = self.params

        def build() -> lucid.Tensor:
            loss = F.cross_entropy(self.trained(self.x), self.y)
            if early:
                loss.eval()
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            return loss

        def finish(loss: lucid.Tensor) -> None:
            lucid.eval(loss, *params)

        return Variant(build, finish)


# ---- raw MLX ---------------------------------------------------------------------------------------------------------


def _pool(x: mx.array) -> mx.array:
    n, h, w, c = x.shape
    return x.reshape(n, h // 2, 2, w // 2, 2, c).max(axis=(2, 4))


RAW: dict[str, Callable[[dict[str, mx.array], mx.array], mx.array]] = {
    "conv1": lambda p, x: mx.conv2d(x, p["conv1.weight"], padding=2) + p["conv1.bias"],
    "relu1": lambda p, x: mx.maximum(x, 0),
    "pool1": lambda p, x: _pool(x),
    "conv2": lambda p, x: mx.conv2d(x, p["conv2.weight"]) + p["conv2.bias"],
    "relu2": lambda p, x: mx.maximum(x, 0),
    "pool2": lambda p, x: _pool(x),
    "flatten": lambda p, x: x.reshape(x.shape[0], -1),
    "fc1": lambda p, x: mx.addmm(p["fc1.bias"], x, p["fc1.weight"].T),
    "relu3": lambda p, x: mx.maximum(x, 0),
    "fc2": lambda p, x: mx.addmm(p["fc2.bias"], x, p["fc2.weight"].T),
    "relu4": lambda p, x: mx.maximum(x, 0),
    "fc3": lambda p, x: mx.addmm(p["fc3.bias"], x, p["fc3.weight"].T),
}


def raw_forward(p: dict[str, mx.array], x: mx.array) -> mx.array:
    """The forward pass in MLX by hand: NHWC, no transposes, the bias of a linear layer within its product."""
    x = _pool(mx.maximum(mx.conv2d(x, p["conv1.weight"], padding=2) + p["conv1.bias"], 0))
    x = _pool(mx.maximum(mx.conv2d(x, p["conv2.weight"]) + p["conv2.bias"], 0))
    x = x.reshape(x.shape[0], -1)
    x = mx.maximum(mx.addmm(p["fc1.bias"], x, p["fc1.weight"].T), 0)
    x = mx.maximum(mx.addmm(p["fc2.bias"], x, p["fc2.weight"].T), 0)
    return mx.addmm(p["fc3.bias"], x, p["fc3.weight"].T)


class Raw:
    """The same with `mlx.core` alone."""

    def __init__(self, given: dict[str, np.ndarray], images: np.ndarray, labels: np.ndarray) -> None:
        self.params = {name: mx.array(value) for name, value in channels_last(given).items()}
        self.trained = dict(self.params)
        self.first = {name: mx.zeros_like(value) for name, value in self.params.items()}
        self.second = dict(self.first)
        self.steps = 0
        self.x = mx.array(np.ascontiguousarray(images.transpose(0, 2, 3, 1)))
        self.y = mx.array(labels)[:, None]
        mx.eval(self.params, self.first, self.x, self.y)
        self.slope = mx.value_and_grad(self.loss)

    def loss(self, params: dict[str, mx.array]) -> mx.array:
        """Mean cross-entropy: log-sum-exp less the logit of the label."""
        logits = raw_forward(params, self.x)
        picked = mx.take_along_axis(logits, self.y, axis=1)[:, 0]
        return (mx.logsumexp(logits, axis=1) - picked).mean()

    def layers(self) -> dict[str, Variant]:
        """Each layer on the output of the one before it."""
        made = {}
        x = self.x
        for name in LAYERS:
            made[name] = Variant(lambda layer=RAW[name], x=x: layer(self.params, x), mx.eval)
            x = RAW[name](self.params, x)
            mx.eval(x)
        return made

    def forward(self) -> Variant:
        """The chained forward pass."""
        return Variant(lambda: raw_forward(self.params, self.x), mx.eval)

    def step(self) -> Variant:
        """Forward, backward and Adam by hand, all evaluated at once."""

        def build() -> list[Any]:
            loss, grads = self.slope(self.trained)
            self.steps += 1
            rate = RATE / (1 - BETA1**self.steps)
            scale = math.sqrt(1 - BETA2**self.steps)
            for name, g in grads.items():
                m = self.first[name] = BETA1 * self.first[name] + (1 - BETA1) * g
                v = self.second[name] = BETA2 * self.second[name] + (1 - BETA2) * mx.square(g)
                self.trained[name] = self.trained[name] - rate * m / (mx.sqrt(v) / scale + EPS)
            return [loss, self.trained, self.first, self.second]

        return Variant(build, lambda pending: mx.eval(*pending))


# ---- mlx.nn ----------------------------------------------------------------------------------------------------------


class MlxLeNet(mnn.Module):
    """LeNet-5 with the modules of `mlx.nn`."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = mnn.Conv2d(1, 6, 5, padding=2)
        self.conv2 = mnn.Conv2d(6, 16, 5)
        self.pool = mnn.MaxPool2d(2, 2)
        self.fc1 = mnn.Linear(400, 120)
        self.fc2 = mnn.Linear(120, 84)
        self.fc3 = mnn.Linear(84, 10)

    def __call__(self, x: mx.array) -> mx.array:
        x = self.pool(mnn.relu(self.conv1(x)))
        x = self.pool(mnn.relu(self.conv2(x)))
        x = x.reshape(x.shape[0], -1)
        return self.fc3(mnn.relu(self.fc2(mnn.relu(self.fc1(x)))))


class MlxNn:
    """The same with `mlx.nn` and `mlx.optimizers`."""

    def __init__(self, given: dict[str, np.ndarray], images: np.ndarray, labels: np.ndarray) -> None:
        arrays = [(name, mx.array(value)) for name, value in channels_last(given).items()]
        self.model, self.trained = MlxLeNet(), MlxLeNet()
        for model in (self.model, self.trained):
            model.load_weights(arrays)
        self.optimizer = mopt.Adam(RATE, [BETA1, BETA2], EPS, bias_correction=True)
        self.x = mx.array(np.ascontiguousarray(images.transpose(0, 2, 3, 1)))
        self.y = mx.array(labels)
        mx.eval(self.model.parameters(), self.trained.parameters(), self.x, self.y)

        def loss(x: mx.array, y: mx.array) -> mx.array:
            return mnn.losses.cross_entropy(self.trained(x), y, reduction="mean")

        self.slope = mnn.value_and_grad(self.trained, loss)

    def layers(self) -> dict[str, Variant]:
        """Each layer on the output of the one before it."""
        model = self.model
        named = dict.fromkeys(("relu1", "relu2", "relu3", "relu4"), mnn.relu)
        named |= dict.fromkeys(("pool1", "pool2"), model.pool) | {"flatten": lambda x: x.reshape(x.shape[0], -1)}
        made = {}
        x = self.x
        for name in LAYERS:
            layer = named.get(name) or getattr(model, name)
            made[name] = Variant(lambda layer=layer, x=x: layer(x), mx.eval)
            x = layer(x)
            mx.eval(x)
        return made

    def forward(self) -> Variant:
        """The chained forward pass."""
        return Variant(lambda: self.model(self.x), mx.eval)

    def step(self) -> Variant:
        """Forward, backward and Adam, all evaluated at once."""

        def build() -> list[Any]:
            loss, grads = self.slope(self.x, self.y)
            self.optimizer.update(self.trained, grads)
            return [loss, self.trained.parameters(), self.optimizer.state]

        return Variant(build, lambda pending: mx.eval(*pending))


# ---- counting --------------------------------------------------------------------------------------------------------


def raw_primitives(*pending: Any) -> int:
    """How many primitives MLX would run to evaluate the arrays."""
    arrays = [a for _, a in mlx.utils.tree_flatten(list(pending)) if isinstance(a, mx.array)]
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "graph.dot")
        mx.export_to_dot(path, *arrays)
        text = Path(path).read_text()
    nodes = {line.split("[", 1)[0].strip(" {") for line in text.splitlines() if "shape=rectangle" in line}
    return len(nodes)


def our_primitives(tensor: lucid.Tensor) -> int:
    """How many primitives MLX would run to evaluate the tensor."""
    return sum(lucid._C.primitives(tensor).values())


# ---- putting it together ---------------------------------------------------------------------------------------------


def check(ours: Ours, raw: Raw, theirs: MlxNn) -> None:
    """All sides must compute the same, before anyone is timed."""
    got = np.asarray(ours.model(ours.x).tolist())
    for other in (raw_forward(raw.params, raw.x), theirs.model(theirs.x)):
        wanted = np.array(other)
        if not np.allclose(got, wanted, rtol=1e-3, atol=1e-4):
            raise SystemExit(f"the sides disagree on the forward pass by {np.abs(got - wanted).max():.2e}")
    loss = F.cross_entropy(ours.model(ours.x), ours.y).item()
    wanted = raw.loss(raw.params).item()
    if not math.isclose(loss, wanted, rel_tol=1e-4):
        raise SystemExit(f"the sides disagree on the loss: {loss} and {wanted}")


def cases(ours: Ours, raw: Raw, control: Raw, theirs: MlxNn) -> list[Case]:
    """Layers alone, the forward pass, and the training step in the two ways in which a user may write it."""
    alone = [side.layers() for side in (ours, raw, control, theirs)]
    made = [Case(name, {s: layers[name] for s, layers in zip(SIDES, alone, strict=True)}) for name in LAYERS]
    forward = [side.forward() for side in (ours, raw, control, theirs)]
    made.append(Case("forward", dict(zip(SIDES, forward, strict=True))))
    peers = {"raw": raw.step(), "control": control.step(), "mlx.nn": theirs.step()}
    made.append(
        Case("adam step", {"ours": ours.step(early=False), "ours, loss.eval()": ours.step(early=True), **peers})
    )
    return made


def row(name: str, ours: Variant, case: Case) -> dict[str, Any]:
    """One line of the result."""
    raw, control, theirs = (case.variants[s] for s in ("raw", "control", "mlx.nn"))
    return {
        "name": name,
        "ours_us": ours.median,
        "peer_us": raw.median,
        "ratio": ours.median / raw.median,
        "control": control.median / raw.median,
        "mlx_nn_us": theirs.median,
        "ratio_mlx_nn": ours.median / theirs.median,
        "ours_iqr_us": ours.quartiles,
        "peer_iqr_us": raw.quartiles,
        "mlx_nn_iqr_us": theirs.quartiles,
        # The optimizer starts evaluating by itself, so a step of ours has no moment at which only its graph is built.
        "ours_build_us": None if name.startswith("adam step") else ours.median_building,
        "peer_build_us": raw.median_building,
        "mlx_nn_build_us": theirs.median_building,
    }


def profile(device: str, batch: int, seconds: float) -> dict[str, Any]:
    """Measures everything and gives it as one object."""
    draw = np.random.default_rng(1)
    images = draw.standard_normal((batch, 1, 28, 28)).astype(np.float32)
    labels = draw.integers(0, 10, batch).astype(np.int64)
    given = weights()
    ours, theirs = Ours(device, given, images, labels), MlxNn(given, images, labels)
    raw, control = Raw(given, images, labels), Raw(given, images, labels)
    check(ours, raw, theirs)
    counted = {
        "ours": our_primitives(ours.model(ours.x)),
        "raw": raw_primitives(raw_forward(raw.params, raw.x)),
        "mlx.nn": raw_primitives(theirs.model(theirs.x)),
    }
    work = cases(ours, raw, control, theirs)
    rounds = measure(work, seconds)
    rows = [row(case.name, case.variants["ours"], case) for case in work]
    rows.append(row("adam step, loss.eval()", work[-1].variants["ours, loss.eval()"], work[-1]))
    by_name = {r["name"]: r for r in rows}
    keys = {"ours": "ours_us", "raw": "peer_us", "mlx.nn": "mlx_nn_us"}
    alone = {side: sum(by_name[name][key] for name in LAYERS) for side, key in keys.items()}
    return {
        "benchmark": "lenet_overhead",
        "device": str(ours.x.device),
        "mlx_device": str(mx.default_device()),
        "batch": batch,
        "rounds": rounds,
        "versions": {"lucid": lucid.__version__, "mlx": mx.__version__},
        "rows": rows,
        "layers_alone_us": alone,
        "fusion_efficiency": {side: by_name["forward"][key] / alone[side] for side, key in keys.items()},
        "primitives": counted,
    }


def show(result: dict[str, Any]) -> str:
    """The result as a table to read."""
    head = [
        "",
        "ours µs",
        "(IQR)",
        "raw µs",
        "(IQR)",
        "mlx.nn µs",
        "ours/raw",
        "control",
        "ours/mlx.nn",
        "build: ours",
        "raw",
        "mlx.nn",
    ]

    def spread(pair: tuple[float, float]) -> str:
        return f"({pair[0]:.0f}-{pair[1]:.0f})"

    rows: list[list[str]] = []
    for r in result["rows"]:
        if r["name"] == "forward":
            rows.append([])
        rows.append(
            [
                r["name"],
                f"{r['ours_us']:.0f}",
                spread(r["ours_iqr_us"]),
                f"{r['peer_us']:.0f}",
                spread(r["peer_iqr_us"]),
                f"{r['mlx_nn_us']:.0f}",
                f"{r['ratio']:.2f}",
                f"{r['control']:.2f}",
                f"{r['ratio_mlx_nn']:.2f}",
                "-" if r["ours_build_us"] is None else f"{r['ours_build_us']:.0f}",
                f"{r['peer_build_us']:.0f}",
                f"{r['mlx_nn_build_us']:.0f}",
            ]
        )
    fused, counted, alone = result["fusion_efficiency"], result["primitives"], result["layers_alone_us"]
    lines = [
        f"LeNet-5, batch {result['batch']}, on {result['device']} ({result['mlx_device']}), "
        f"medians of {result['rounds']} rounds",
        "",
        table(head, rows),
        "",
        "sum of layers alone  " + ", ".join(f"{side} {t:.0f} µs" for side, t in alone.items()),
        "fusion efficiency    "
        + ", ".join(f"{side} {f:.2f}" for side, f in fused.items())
        + "  (chained / sum of layers alone)",
        "forward's primitives " + ", ".join(f"{side} {n}" for side, n in counted.items()),
    ]
    return "\n".join(lines)


def picture(result: dict[str, Any], path: str) -> None:
    """Draws the times per layer, the chained times, and the ratios with the control's noise."""
    from matplotlib.figure import Figure

    colours = {"ours": "#1b6ca8", "raw": "#8a8a8a", "mlx.nn": "#e0a030"}
    keys = {
        "ours": ("ours_us", "ours_iqr_us"),
        "raw": ("peer_us", "peer_iqr_us"),
        "mlx.nn": ("mlx_nn_us", "mlx_nn_iqr_us"),
    }
    rows = result["rows"]
    figure = Figure(figsize=(13, 4.6), layout="constrained")
    left, middle, right = figure.subplots(1, 3, width_ratios=[5, 3, 4])

    def bars(axes: Any, shown: list[dict[str, Any]]) -> None:
        for i, (side, (key, spread)) in enumerate(keys.items()):
            at = np.arange(len(shown)) + (i - 1) * 0.27
            heights = np.array([r[key] for r in shown]) / 1000
            ends = np.array([r[spread] for r in shown]).T / 1000
            error = np.clip([heights - ends[0], ends[1] - heights], 0, None)
            axes.bar(at, heights, 0.25, yerr=error, color=colours[side], label=side, error_kw={"linewidth": 0.8})
        axes.set_xticks(range(len(shown)), [r["name"].replace(", ", ",\n") for r in shown], rotation=0)
        axes.set_ylabel("milliseconds (median, IQR)")
        axes.grid(axis="y", alpha=0.3)
        axes.set_axisbelow(True)

    bars(left, rows[: len(LAYERS)])
    left.tick_params(axis="x", rotation=60)
    left.set_title("each layer alone")
    left.legend(frameon=False)
    bars(middle, rows[len(LAYERS) :])
    middle.set_title("chained")
    names = [r["name"] for r in rows]
    at = np.arange(len(rows))[::-1]
    right.axvline(1, color="black", linewidth=0.8)
    right.scatter([r["control"] for r in rows], at, marker="|", s=90, color="#8a8a8a", label="raw / raw again (noise)")
    right.scatter([r["ratio"] for r in rows], at, color=colours["ours"], label="ours / raw")
    right.scatter(
        [r["ratio_mlx_nn"] for r in rows], at, marker="s", s=18, color=colours["mlx.nn"], label="ours / mlx.nn"
    )
    right.set_yticks(at, [name.replace(", ", ",\n") for name in names])
    right.set_xscale("log")
    ticks = [t for t in (0.1, 0.2, 0.5, 0.7, 1, 1.5, 2, 3, 5) if right.get_xlim()[0] <= t <= right.get_xlim()[1]]
    right.set_xticks(ticks, [str(t) for t in ticks])
    right.minorticks_off()
    right.set_title("ratio of medians (left of 1: ours is faster)")
    right.grid(alpha=0.3)
    right.legend(frameon=False, fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.07), ncols=3)
    fused = ", ".join(f"{side} {f:.2f}" for side, f in result["fusion_efficiency"].items())
    figure.suptitle(f"LeNet-5, batch {result['batch']}, {result['device']}: fusion efficiency {fused}", fontsize=11)
    figure.savefig(path, dpi=120)


def main() -> None:
    """Reads the command line, measures, prints."""
    parser = argparse.ArgumentParser(description="LeNet-5's overhead over raw MLX.")
    parser.add_argument("--device", default="gpu", help="gpu, or its real name")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=40, help="how long to measure, about")
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    parser.add_argument("--png", metavar="FILE", help="draw the result")
    args = parser.parse_args()
    if args.device == "cpu":
        parser.error("the peer is MLX, so --device must be the GPU device; bench/cpu_vs_torch.py compares the CPU")
    result = profile(args.device, args.batch, args.seconds)
    print(show(result))
    if args.png:
        picture(result, args.png)
        print(f"picture: {args.png}", file=sys.stderr)
    if args.json:
        print(json.dumps(result))


if __name__ == "__main__":
    main()
