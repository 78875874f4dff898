"""`linear_cross_entropy` and its layer against PyTorch's: values, gradients, pieces of the batch, errors."""

from __future__ import annotations

import re
from typing import Any

import lucid
import numpy as np
import pytest
import torch

from tests.python.parity.nn import test_nn_parity as table
from tests.python.tolerances import TABLE, within

device = table.device

CASES: list[dict[str, Any]] = [
    {},
    {"bias": True, "ignore_index": -1},
    {"reduction": "none"},
    {"reduction": "sum", "weighted": True},
    {"weighted": True, "ignore_index": 3, "label_smoothing": 0.2},
    {"probabilities": True, "weighted": True, "label_smoothing": 0.1},
    {"out_features": (2, 3), "bias": True},
    {"out_features": (2,), "probabilities": True},
]
PIECES: list[dict[str, Any] | None] = [None, {"batch_chunk_size": 3}, {}, {"chunking_method": "aspect_ratio:2"}]


def run(framework: Any, place: str, options: Any, case: dict[str, Any]) -> tuple[list[Any], Any]:
    rng = np.random.default_rng(0)
    where = {"device": place} if framework is lucid else {}

    def tensor(values: Any, **more: Any) -> Any:
        return framework.tensor(values, **where, **more)

    said = {k: v for k, v in case.items() if k not in ("weighted", "probabilities")}
    layer = framework.nn.LinearCrossEntropyLoss(
        3,
        11,
        **said,
        weight=tensor(rng.random(11).astype("float32")) if case.get("weighted") else None,
        options=None if options is None else framework.nn.LinearCrossEntropyOptions(**options),
        **where,
    )
    with framework.no_grad():
        for p in layer.parameters():
            p.copy_(tensor(rng.standard_normal(tuple(p.shape)).astype("float32")))
    x = tensor(rng.standard_normal((7, 3)).astype("float32"), requires_grad=True)
    places = case.get("out_features", ())
    if case.get("probabilities"):
        shares = rng.random((7, 11, *places)).astype("float32")
        target = tensor(shares / shares.sum(1, keepdims=True))
    else:
        labels = rng.integers(0, 11, (7, *places))
        labels.flat[2] = case.get("ignore_index", 1)
        target = tensor(labels)
    made = layer(x, target)
    made.sum().backward()
    return [made, x.grad, *(p.grad for p in layer.parameters())], layer


@pytest.mark.parametrize("options", PIECES, ids=str)
@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.filterwarnings("ignore:linear_cross_entropy")
def test_linear_cross_entropy(case: dict[str, Any], options: Any, device: str) -> None:
    (ours, mine), (theirs, other) = run(lucid, device, options, case), run(torch, "cpu", options, case)
    assert repr(mine) == repr(other) and list(mine.state_dict()) == list(other.state_dict())
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a.tolist(), b.tolist(), **within("few ops"))


def test_pieces_never_make_all_logits(device: str) -> None:
    features, classes, samples = 4, 512, 256
    layer = lucid.nn.LinearCrossEntropyLoss(
        features, classes, options=lucid.nn.LinearCrossEntropyOptions(batch_chunk_size=8), device=device
    )
    x = lucid.randn(samples, features, device=device)
    sizes = []
    with lucid.autograd.graph.saved_tensors_hooks(lambda t: sizes.append(t.numel()) or t, lambda t: t):
        loss = layer(x, lucid.arange(samples, device=device))
    assert max(sizes, default=0) < samples * classes // 8
    loss.backward(retain_graph=True)
    first = layer.linear.weight.grad.clone()
    loss.backward()
    np.testing.assert_allclose(layer.linear.weight.grad.tolist(), (2 * first).tolist(), rtol=TABLE["few ops"].rtol)


WRONG: list[tuple[str, Any]] = [
    ("last dimensions", lambda f, n: f.linear_cross_entropy(n.ones(2, 3), n.ones(4, 5), n.tensor([0, 1]))),
    ("9", lambda f, n: f.linear_cross_entropy(n.ones(2, 3), n.ones(4, 3), n.tensor([0, 9]))),
    ("batch_size", lambda f, n: f.linear_cross_entropy(n.ones(2, 3), n.ones(4, 3), n.tensor([0, 1, 1]))),
    ("1 or 2", lambda f, n: f.linear_cross_entropy(n.ones(2, 5, 3), n.ones(4, 3), n.zeros(2, 5, dtype=n.int64))),
    ("at least 2", lambda f, n: f.linear_cross_entropy(n.ones(2, 3), n.ones(3), n.tensor([0, 1]))),
    ("batched input", lambda f, n: f.linear_cross_entropy(n.ones(3), n.ones(4, 2, 3), n.tensor([0, 1]))),
    (
        "linear_bias",
        lambda f, n: f.linear_cross_entropy(n.ones(2, 3), n.ones(4, 3), n.tensor([0, 1]), linear_bias=n.ones(3)),
    ),
    ("4 classes", lambda f, n: f.linear_cross_entropy(n.ones(2, 3), n.ones(4, 3), n.tensor([0, 1]), weight=n.ones(3))),
    ("ignore_index", lambda f, n: f.linear_cross_entropy(n.ones(2, 3), n.ones(4, 3), n.ones(2, 4), ignore_index=1)),
    ("weight shape", lambda f, n: n.nn.LinearCrossEntropyLoss(3, 4, weight=n.ones(3))),
    ("[0, 1]", lambda f, n: n.nn.LinearCrossEntropyLoss(3, 4, label_smoothing=3.0)),
    ("positive int", lambda f, n: n.nn.LinearCrossEntropyOptions(batch_chunk_size=0)),
    ("chunking_method", lambda f, n: n.nn.LinearCrossEntropyOptions(chunking_method="half")),
    ("acc_policy", lambda f, n: n.nn.LinearCrossEntropyOptions(acc_policy="best")),
    ("acc_dtype", lambda f, n: n.nn.LinearCrossEntropyOptions(acc_dtype=n.int32)),
    (
        "pass only one",
        lambda f, n: f.linear_cross_entropy(
            n.ones(4, 3),
            n.ones(4, 3),
            n.tensor([0, 1, 2, 3]),
            options=n.nn.LinearCrossEntropyOptions(batch_chunk_size=3, chunking_method="aspect_ratio"),
        ),
    ),
]


@pytest.mark.parametrize(("words", "call"), WRONG, ids=[words for words, _ in WRONG])
def test_what_does_not_fit(words: str, call: Any) -> None:
    kinds = []
    for framework in (torch, lucid):
        with pytest.raises((RuntimeError, ValueError, IndexError), match=re.escape(words)) as caught:
            call(framework.nn.functional, framework)
        kinds.append(caught.type)
    assert issubclass(kinds[1], kinds[0])
