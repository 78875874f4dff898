"""Convolutions and norms of random shapes beside PyTorch's in float64: results and gradients.

    python -m tests.python.fuzz layers [--device gpu] [--seconds 60] [--seed 0]

For devices whose kernels are chosen by shapes, such as cuDNN's: on an NVIDIA GPU as anywhere.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable, Sequence
from typing import Any

import lucid
import lucid.nn.functional as F
import numpy as np
import torch
import torch.nn.functional as TF

# Of the largest number there is. Products of many 16-bit numbers are rounded once; cuDNN transforms some of float32.
TOLERANCE = {"float32": 2e-4, "bfloat16": 4e-2}
Layer = Callable[..., Any]


def convolution(rnd: random.Random) -> tuple[str, list[tuple[int, ...]], Layer, Layer]:
    """Shapes of input and weight, and the function in both libraries."""
    name = rnd.choice(["conv2d", "conv2d", "conv2d", "conv1d", "conv3d", "conv_transpose2d"])
    ndim = int(name[-2])
    groups = rnd.choice([1, 1, 1, 2])
    inward, outward = groups * rnd.choice([1, 2, 3, 5, 8, 16, 33]), groups * rnd.choice([1, 2, 4, 7, 16, 40])
    images = [rnd.randint(1, 40 if ndim < 3 else 9) for _ in range(ndim)]
    window = [rnd.randint(1, 5 if ndim < 3 else 3) for _ in range(ndim)]
    stride, padding, dilation = (
        [rnd.choice(of) for _ in range(ndim)] for of in ((1, 2, 3), (0, 1, 2, 3), (1, 1, 1, 2))
    )
    how: list[Any] = [None, stride, padding]
    weight = (outward, inward // groups, *window)
    if name == "conv_transpose2d":
        how += [[rnd.randrange(max(s, d)) for s, d in zip(stride, dilation, strict=True)], groups]
        weight = (inward, outward // groups, *window)
        how += [dilation]
    else:
        how += [dilation, groups]
    shapes = [(rnd.choice([1, 1, 2, 3, 5, 8, 33]), inward, *images), weight]
    text = f"{name} of {shapes[0]} by {weight}, {how[1:]}"
    return text, shapes, lambda *x: getattr(F, name)(*x, *how), lambda *x: getattr(TF, name)(*x, *how)


def norm(rnd: random.Random) -> tuple[str, list[tuple[int, ...]], Layer, Layer]:
    """The same of a batch or group norm with a weight and a bias."""
    channels = rnd.choice([2, 4, 6, 12, 33, 64])
    images = [rnd.randint(2, 30 if n < 3 else 8) for n in [rnd.choice([1, 2, 2, 2, 3])] for _ in range(n)]
    shapes = [(rnd.choice([2, 3, 7, 16]), channels, *images), (channels,), (channels,)]
    if rnd.random() < 0.5:
        text = f"batch_norm of {shapes[0]}"
        return (
            text,
            shapes,
            lambda x, w, b: F.batch_norm(x, None, None, w, b, True),
            lambda x, w, b: TF.batch_norm(x, None, None, w, b, True),
        )
    # Of fewer numbers gradients are what is left of a difference of nearly equal ones.
    groups = rnd.choice(
        [g for g in range(1, channels + 1) if channels % g == 0 and channels // g * images[0] >= 4] or [1]
    )
    text = f"group_norm of {shapes[0]} in {groups}"
    return text, shapes, lambda x, w, b: F.group_norm(x, groups, w, b), lambda x, w, b: TF.group_norm(x, groups, w, b)


def difference(ours: lucid.Tensor, theirs: torch.Tensor) -> float:
    """The largest one, over the largest number."""
    apart = np.abs(ours.detach().float().cpu().numpy() - theirs.detach().float().numpy())
    return float(apart.max(initial=0.0)) / max(float(theirs.detach().abs().max()), 1e-2)


def wrong(seed: int, device: str) -> str | None:
    """What one case says that differs; nothing where it agrees, or has no result."""
    rnd, rng = random.Random(seed), np.random.default_rng(seed)
    text, shapes, ours, theirs = rnd.choice([convolution, norm])(rnd)
    dtype = rnd.choice(["float32", "float32", "bfloat16"])
    last = len(shapes[0]) == 4 and rnd.random() < 0.3
    arrays = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
    # Parameters of norms are float32 beside 16-bit inputs too.
    dtypes: Sequence[str] = [dtype] + [dtype if len(shape) > 1 else "float32" for shape in shapes[1:]]
    reference = [
        torch.tensor(a).to(getattr(torch, d)).double().requires_grad_() for a, d in zip(arrays, dtypes, strict=True)
    ]
    try:
        y = theirs(*reference)
    except RuntimeError:
        return None
    if y.numel() == 0:
        return None
    g = torch.tensor(rng.standard_normal(tuple(y.shape)).astype(np.float32)).to(getattr(torch, dtype))
    y.backward(g.double())
    inputs = [lucid.tensor(a).to(device).to(getattr(lucid, d)) for a, d in zip(arrays, dtypes, strict=True)]
    if last:
        inputs[0] = inputs[0].contiguous(memory_format=lucid.channels_last)
    inputs = [x.detach().requires_grad_() for x in inputs]
    z = ours(*inputs)
    z.backward(lucid.tensor(g.float().numpy()).to(device).to(getattr(lucid, dtype)))
    pairs = [("the result", z, y)]
    pairs += [(f"gradient {i}", a.grad, b.grad) for i, (a, b) in enumerate(zip(inputs, reference, strict=True))]
    for what, a, b in pairs:
        apart = difference(a, b)
        if not apart <= TOLERANCE[dtype]:
            return f"seed {seed}, {text}, {dtype}{', channels last' if last else ''}: {what} differs by {apart:.1e}"
    return None


def main(arguments: list[str]) -> int:
    """Run cases for some time; 1 where one differs."""
    parser = argparse.ArgumentParser(prog="python -m tests.python.fuzz layers", description=__doc__)
    parser.add_argument("--device", default="gpu")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    end, seed, found = time.monotonic() + options.seconds, options.seed * 1_000_000, 0
    while time.monotonic() < end:
        seed += 1
        try:
            said = wrong(seed, options.device)
        except lucid.LucidError as e:
            said = f"seed {seed}: {type(e).__name__}: {e}"
        if said is not None:
            found += 1
            print(said, flush=True)
    print(f"{seed - options.seed * 1_000_000} cases on {options.device}, {found} differ")
    return int(found > 0)
