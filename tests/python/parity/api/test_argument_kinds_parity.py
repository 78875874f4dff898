"""Arguments of unusual kinds that PyTorch takes, and what comes of them. What it refuses is in `bad_inputs`."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import lucid
import pytest
import torch

DEVICES = ["cpu", "gpu"]


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> Iterator[str]:
    lucid.set_default_device(request.param)
    yield request.param
    lucid.set_default_device("cpu")


def plain(x: Any) -> Any:
    """A value to compare: a tensor as its dtype, shape and rounded numbers."""
    if isinstance(x, (tuple, list)):
        return [plain(part) for part in x]
    if not isinstance(x, (lucid.Tensor, torch.Tensor)):
        return x
    dtype, numbers = str(x.dtype).split(".")[-1], x.detach().flatten().tolist()
    if x.is_floating_point():
        numbers = [str(n) if math.isnan(n) or math.isinf(n) else float(f"{n:.4g}") for n in numbers]
    return dtype, tuple(x.shape), numbers


def x(m: Any) -> Any:
    return m.arange(6.0).reshape(2, 3) / 4


def whole(m: Any) -> Any:
    return m.tensor([[1, -2, 3], [0, 5, -6]])


def truths(m: Any) -> Any:
    return m.tensor([[True, False, True], [False, False, True]])


def both(m: Any) -> Any:
    return m.nn.functional


CASES: dict[str, Callable[[Any], Any]] = {
    "dropout of integers, nothing dropped": lambda m: both(m).dropout(whole(m), 0.0),
    "dropout of integers, in evaluation": lambda m: both(m).dropout(whole(m), 0.5, False),
    "dropout of integers, all dropped": lambda m: both(m).dropout(whole(m), 1.0),
    "dropout of truths, all dropped": lambda m: both(m).dropout(truths(m), 1.0),
    "dropout of NaN, all dropped": lambda m: both(m).dropout(m.tensor([math.nan, 1.0]), 1.0),
    "dropout of integers in place": lambda m: both(m).dropout(whole(m), 1.0, inplace=True),
    "dropout1d of integers, all dropped": lambda m: both(m).dropout1d(whole(m), 1.0),
    "alpha_dropout of integers, all dropped": lambda m: both(m).alpha_dropout(whole(m), 1.0, True),
    "label_smoothing below 0": lambda m: both(m).cross_entropy(x(m), m.tensor([0, 2]), label_smoothing=-0.5),
    "label_smoothing below 0, weighted": lambda m: both(m).cross_entropy(
        x(m), m.tensor([0, 2]), m.tensor([1.0, 2.0, 3.0]), label_smoothing=-2
    ),
    "label_smoothing of NaN": lambda m: both(m).cross_entropy(x(m), m.tensor([0, 2]), label_smoothing=math.nan),
    "label_smoothing below 0, probabilities": lambda m: both(m).cross_entropy(x(m), x(m) / 4, label_smoothing=-1),
    "mse_loss of integers and floats": lambda m: both(m).mse_loss(whole(m), x(m)),
    "mse_loss of floats and integers": lambda m: both(m).mse_loss(x(m), whole(m)),
    "mse_loss of floats and truths": lambda m: both(m).mse_loss(x(m), truths(m)),
    "mse_loss of truths and floats": lambda m: both(m).mse_loss(truths(m), x(m), reduction="none"),
    "l1_loss of integers and floats": lambda m: both(m).l1_loss(whole(m), x(m)),
    "l1_loss of integers": lambda m: both(m).l1_loss(whole(m), whole(m) + 2, reduction="sum"),
    "smooth_l1_loss of integers and floats": lambda m: both(m).smooth_l1_loss(whole(m), x(m)),
    "smooth_l1_loss of floats and truths": lambda m: both(m).smooth_l1_loss(x(m), truths(m), beta=0.5),
    "huber_loss of halves and floats": lambda m: both(m).huber_loss(x(m).to(m.float16), x(m) + 2),
    "huber_loss of floats and truths": lambda m: both(m).huber_loss(x(m), truths(m)),
    "logits of floats, targets of halves": lambda m: both(m).binary_cross_entropy_with_logits(
        x(m), m.ones(2, 3, dtype=m.float16)
    ),
    "cosine_similarity of integers and floats": lambda m: both(m).cosine_similarity(whole(m), x(m) + 1),
    "normalize along all": lambda m: both(m).normalize(x(m), dim=None),
    "normalize along several": lambda m: both(m).normalize(x(m), dim=(0, 1)),
    "normalize into nothing": lambda m: both(m).normalize(x(m), out=m.empty(0)),
    "lp_pool1d of the largest": lambda m: both(m).lp_pool1d(whole(m).to(m.float32)[None], math.inf, 2),
    "lp_pool2d of the smallest": lambda m: both(m).lp_pool2d(whole(m).to(m.float32)[None], -math.inf, 2, 1),
    "layer_norm, eps beyond 64 bits": lambda m: both(m).layer_norm(x(m), [3], eps=10**20),
    "isclose, rtol beyond 64 bits": lambda m: m.isclose(x(m), x(m) + 1, rtol=10**20),
    "embedding_bag to the last offset": lambda m: both(m).embedding_bag(
        m.tensor([0, 1, 2, 3]), m.arange(8.0).reshape(4, 2), m.tensor([0, 2, 3]), mode="sum", include_last_offset=True
    ),
    "embedding_bag of no bags": lambda m: both(m).embedding_bag(
        m.tensor([0, 1]), m.arange(8.0).reshape(4, 2), m.tensor([0]), mode="sum", include_last_offset=True
    ),
    "size_average of 0": lambda m: both(m).mse_loss(x(m), x(m) + 1, size_average=0),
    "reduce of 0": lambda m: both(m).soft_margin_loss(x(m), x(m) + 1, reduce=0),
    "gumbel_softmax of a tensor of temperatures": lambda m: (
        both(m).gumbel_softmax(x(m), m.tensor([[0.1], [0.2]]), hard=1).sum(1)
    ),
    "gaussian_nll_loss of a number": lambda m: both(m).gaussian_nll_loss(x(m), 2.0, 0.5, full=1),
    "inplace is any truth": lambda m: both(m).rrelu(x(m) - 1, inplace=1),
    "margins in tensors": lambda m: both(m).margin_ranking_loss(
        m.ones(3), m.zeros(3), -m.ones(3), margin=m.tensor(0.5)
    ),
    "sizes one by one": lambda m: [
        m.ones(4).reshape(4),
        m.ones(2, 2).permute(1, 0),
        m.ones(3).flip(0),
        m.ones(3).tile(2),
        m.ones(1).expand(3, 3),
        m.ones(3).new_zeros(3),
    ],
}


@pytest.mark.parametrize("name", CASES)
def test_unusual_arguments(name: str, device: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert plain(CASES[name](lucid)) == plain(CASES[name](torch))


@pytest.mark.parametrize("reduction", ["none", "mean"])
def test_gradients_in_mixed_dtypes(reduction: str, device: str) -> None:
    def run(m: Any) -> list[Any]:
        made = []
        for name in ("mse_loss", "smooth_l1_loss", "l1_loss"):
            a = (m.arange(4.0) / 3).to(m.float16).requires_grad_()
            b = (2 - m.arange(4.0) / 4).requires_grad_()
            getattr(m.nn.functional, name)(a, b, reduction=reduction).sum().backward()
            made += [plain(a.grad)[:2], plain(b.grad)]
        return made

    assert run(lucid) == run(torch)
