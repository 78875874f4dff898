"""`nn.MultiheadAttention` under random combinations of its arguments: results, weights, gradients, refusals."""

from __future__ import annotations

import random
from contextlib import AbstractContextManager
from typing import Any

import lucid
import numpy as np
import pytest
import torch

from tests.python.tolerances import within

CHOICES: dict[str, list[Any]] = {
    "others": [(None, None), (5, 6)],
    "bias": [True, False],
    "add_bias_kv": [False, True],
    "add_zero_attn": [False, True],
    "batch_first": [False, True],
    "train": [True, False],
    "grad": [True, False],
    "dims": [3, 2],
    "itself": [False, True],
    "padding": [None, "bool", "float", "numbers"],
    "mask": [None, "bool", "float", "numbers", "3-d", "3-d numbers"],
    "need_weights": [True, False],
    "average": [True, False],
    "is_causal": [False, True],
}
E, H, L, S, N = 8, 2, 3, 4, 2


def masks(c: dict[str, Any], s: int, r: np.random.Generator) -> tuple[Any, Any]:
    """What hides keys by themselves, and what hides them from queries."""
    hidden = r.random((N, s)) > 0.6
    hidden[:, 0] = False
    hidden = hidden[0] if c["dims"] == 2 else hidden
    future, many = np.triu(np.ones((L, s), bool), 1), (H if c["dims"] == 2 else N * H, L, s)
    scattered = r.random(many) > 0.7
    scattered[:, :, 0] = False

    def weights(where: Any) -> Any:
        return np.where(where, -np.inf, 0.0).astype(np.float32)

    def numbers(shape: Any) -> Any:
        return r.standard_normal(shape).astype(np.float32)

    padding = {"bool": hidden, "float": weights(hidden), "numbers": numbers(hidden.shape), None: None}
    mask = {"bool": future, "float": weights(future), "numbers": numbers((L, s)), None: None}
    return padding[c["padding"]], (mask | {"3-d": scattered, "3-d numbers": numbers(many)})[c["mask"]]


def run(m: Any, c: dict[str, Any], device: str) -> list[Any]:
    kdim, vdim = (None, None) if c["itself"] else c["others"]
    options = {name: c[name] for name in ("bias", "add_bias_kv", "add_zero_attn", "batch_first")}
    layer = m.nn.MultiheadAttention(E, H, kdim=kdim, vdim=vdim, **options).to(device).train(c["train"])
    r = np.random.default_rng(1)
    with m.no_grad():
        for p in layer.parameters():
            p.copy_(m.tensor(r.standard_normal(tuple(p.shape)).astype(np.float32) / 2))

    def made(length: int, size: int) -> Any:
        a = r.standard_normal((length, N, size)).astype(np.float32)
        a = a[:, 0] if c["dims"] == 2 else a.swapaxes(0, 1).copy() if c["batch_first"] else a
        return m.tensor(a, device=device, requires_grad=c["grad"])

    q = made(L, E)
    k, v = (q, q) if c["itself"] else (made(S, kdim or E), made(S, vdim or E))
    hide, mask = (None if a is None else m.tensor(a, device=device) for a in masks(c, L if c["itself"] else S, r))
    recorded: AbstractContextManager[Any] = m.enable_grad() if c["grad"] else m.no_grad()
    with recorded:
        out, weights = layer(
            q,
            k,
            v,
            key_padding_mask=hide,
            need_weights=c["need_weights"],
            attn_mask=mask,
            average_attn_weights=c["average"],
            is_causal=c["is_causal"],
        )
        seen = [out, weights]
        if c["grad"]:
            loss = (out * out).sum() if weights is None else (out * out).sum() + (weights * weights).sum()
            loss.backward()
            seen += [q.grad, *(p.grad for p in layer.parameters())]
    return [None if t is None else np.array(t.detach().tolist()) for t in seen]


def attempt(m: Any, c: dict[str, Any], device: str) -> Any:
    try:
        return run(m, c, device)
    except (AssertionError, RuntimeError, TypeError, ValueError) as error:
        kinds = (AssertionError, TypeError, ValueError, RuntimeError)
        return next(kind.__name__ for kind in kinds if isinstance(error, kind))


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("device", ["cpu", "gpu"])
@pytest.mark.parametrize("seed", range(8))
def test_combinations(seed: int, device: str) -> None:
    draw = random.Random(seed)
    for _ in range(20):
        c = {name: draw.choice(values) for name, values in CHOICES.items()}
        theirs, ours = attempt(torch, c, "cpu"), attempt(lucid, c, device)
        if isinstance(theirs, str) or isinstance(ours, str):
            assert ours == theirs, c
            continue
        for a, b in zip(theirs, ours, strict=True):
            assert (a is None) == (b is None), c
            if a is not None:
                np.testing.assert_allclose(b, a, **within("program"), err_msg=str(c))
