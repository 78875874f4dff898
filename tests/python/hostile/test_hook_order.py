"""In which order hooks are called, and with what: random graphs with in-place ops, against PyTorch."""

from __future__ import annotations

import os
import random
from typing import Any

import lucid
import pytest
import torch

EXAMPLES = int(os.environ.get("LUCID_TEST_MAX_EXAMPLES", "0"))

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")

FEATURES = [
    {"accumulated"},
    {"several"},
    {"node"},
    {"written"},
    {"written", "accumulated", "retained"},
    {"written", "several", "node"},
    {"written", "accumulated", "several", "node", "retained"},
]


def numbers(g: Any) -> Any:
    return [round(v, 3) for v in g.tolist()]


def called(m: Any, seed: int, features: set[str], device: str) -> Any:
    """Which hooks a graph calls, with what they see, and the gradients that are kept."""
    draw, log = random.Random(seed), []
    leaves = [m.ones(2, device=device).requires_grad_() for _ in range(3)]
    tensors = list(leaves)
    for step in range(draw.randint(4, 10)):
        kind, at, other = draw.random(), draw.randrange(len(tensors)), draw.randrange(len(tensors))
        t, made = tensors[at], at >= len(leaves)

        def note(what: str, *seen: Any, step: int = step) -> None:
            log.append((what, step, *seen))

        if kind < 0.4:
            op = draw.choice(["mul", "add", "sin"])
            tensors.append(t.sin() if op == "sin" else getattr(t, op)(tensors[other]))
        elif kind < 0.5 and "written" in features and made:
            t.mul_(2)
        elif kind < 0.55 and "written" in features and made:
            t.add_(tensors[other])
        elif kind < 0.8:
            t.register_hook(lambda g, note=note: note("tensor", numbers(g)))
        elif kind < 0.86 and "accumulated" in features and not made:
            t.register_post_accumulate_grad_hook(lambda t, note=note: note("accumulated", numbers(t.grad)))
        elif kind < 0.92 and "several" in features:
            some = [tensors[i] for i in sorted(draw.sample(range(len(tensors)), draw.randint(1, 3)))]
            mode = draw.choice(["any", "all"])
            m.autograd.graph.register_multi_grad_hook(
                some,
                lambda g, note=note, mode=mode: note(
                    mode, numbers(g) if mode == "any" else [None if x is None else numbers(x) for x in g]
                ),
                mode=mode,
            )
        elif kind < 0.96 and "node" in features and made:
            t.grad_fn.register_hook(lambda inputs, outputs, note=note: note("after the node"))
            t.grad_fn.register_prehook(lambda outputs, note=note: note("before the node"))
        elif "retained" in features and made:
            t.retain_grad()
    sum(t.sum() for t in tensors[draw.randrange(3) :]).backward()
    return log, [None if t.grad is None else numbers(t.grad) for t in tensors]


def outcome(m: Any, seed: int, features: set[str], device: str) -> Any:
    try:
        return called(m, seed, features, device)
    except RuntimeError as e:
        # `mul_` of what a product keeps.
        assert "modified by an inplace operation" in str(e), e
        return "written over"


@pytest.mark.parametrize("device", ["cpu", "gpu"])
@pytest.mark.parametrize("features", FEATURES, ids=lambda f: " ".join(sorted(f)))
def test_hooks_are_called_in_pytorchs_order(features: set[str], device: str) -> None:
    for seed in range(EXAMPLES or 80):
        want = outcome(torch, seed, features, "cpu")
        got = outcome(lucid, seed, features, device)
        assert got == want, (seed, got, want)
