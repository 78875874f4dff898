"""Layers as functions of the module itself, against PyTorch's: values, gradients, the order of arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import lucid
import numpy as np
import pytest
import torch

from tests.python.tolerances import within

Case = Callable[[Any, Any], Any]


def draw(L: Any, leaves: list[Any]) -> Callable[..., Any]:
    """Numbers that are the same in both frameworks, as leaves."""
    rng = np.random.default_rng(7)

    def new(*shape: int, grad: bool = True) -> Any:
        t = L.tensor(rng.standard_normal(shape).astype(np.float32))
        if grad:
            leaves.append(t.requires_grad_())
        return t

    return new


def run(L: Any, case: Case) -> tuple[list[Any], list[Any]]:
    leaves: list[Any] = []
    out = case(L, draw(L, leaves))
    outs = [o for o in (out if isinstance(out, (tuple, list)) else [out]) if o is not None]
    total = sum((o.float() * o.float()).sum() for o in outs if o.requires_grad)
    if isinstance(total, (lucid.Tensor, torch.Tensor)):
        total.backward()
    grads = [None if t.grad is None else np.asarray(t.grad.tolist()) for t in leaves]
    return [np.asarray(o.tolist()) for o in outs], grads


def weights(new: Callable[..., Any], gates: int, layers: int, directions: int, bias: bool, project: int = 0) -> Any:
    made = []
    state = project or 4
    for layer in range(layers):
        for _ in range(directions):
            made += [new(gates * 4, 3 if layer == 0 else state * directions), new(gates * 4, state)]
            made += [new(gates * 4), new(gates * 4)] if bias else []
            made += [new(project, 4)] if project else []
    return made


def ints(L: Any, *values: Any) -> Any:
    return L.tensor(list(values))


CASES: dict[str, Case] = {
    "conv1d": lambda L, n: L.conv1d(n(2, 3, 8), n(4, 3, 3), n(4), 2, 1),
    "conv2d": lambda L, n: L.conv2d(n(2, 4, 6, 6), n(4, 2, 3, 3), None, (2, 1), "valid", 1, 2),
    "conv3d": lambda L, n: L.conv3d(n(1, 2, 4, 4, 4), n(3, 2, 2, 2, 2), n(3)),
    "conv_transpose1d": lambda L, n: L.conv_transpose1d(n(2, 3, 5), n(3, 4, 3), n(4), 2, 1, 1),
    "conv_transpose2d": lambda L, n: L.conv_transpose2d(n(2, 3, 5, 5), n(3, 4, 3, 3), n(4), 2, 1, 1),
    "conv_transpose3d": lambda L, n: L.conv_transpose3d(n(1, 2, 3, 3, 3), n(2, 3, 2, 2, 2)),
    "conv_tbc": lambda L, n: L.conv_tbc(n(6, 2, 3), n(3, 3, 4), n(4), 1),
    "convolution": lambda L, n: L.convolution(n(2, 3, 8), n(4, 3, 3), n(4), [2], [1], [1], False, [0], 1),
    "convolution, transposed": lambda L, n: L.convolution(
        n(2, 3, 5, 5), n(3, 4, 3, 3), None, [2, 2], [1, 1], [1, 1], True, [1, 1], 1
    ),
    "layer_norm": lambda L, n: L.layer_norm(n(2, 3, 4), (4,), n(4), n(4), 1e-3, False),
    "group_norm": lambda L, n: L.group_norm(n(2, 4, 3), 2, n(4), n(4), 1e-3, True),
    "batch_norm": lambda L, n: L.batch_norm(
        n(4, 3), n(3), n(3), n(3, grad=False), n(3, grad=False) ** 2, True, 0.1, 1e-5, False
    ),
    "batch_norm, evaluated": lambda L, n: L.batch_norm(
        n(4, 3), None, None, n(3, grad=False), n(3, grad=False) ** 2 + 1, False, 0.1, 1e-5, True
    ),
    "instance_norm": lambda L, n: L.instance_norm(n(2, 3, 4), n(3), n(3), None, None, True, 0.1, 1e-5, False),
    "rms_norm": lambda L, n: L.rms_norm(n(2, 4), (4,), n(4), 1e-5),
    "dropout, evaluated": lambda L, n: L.dropout(n(3, 4), 0.5, False),
    "dropout, of all": lambda L, n: L.dropout(n(3, 4), 1.0, True),
    "alpha_dropout, evaluated": lambda L, n: L.alpha_dropout(n(3, 4), 0.5, False),
    "feature_dropout, evaluated": lambda L, n: L.feature_dropout(n(3, 4), 0.5, False),
    "feature_alpha_dropout, evaluated": lambda L, n: L.feature_alpha_dropout(n(3, 4), 0.5, False),
    "embedding": lambda L, n: L.embedding(n(5, 3), ints(L, 1, 2, 2, 4), 2),
    "embedding, by frequency": lambda L, n: L.embedding(n(5, 3), ints(L, 1, 2, 2, 4), -1, True),
    "embedding_renorm_": lambda L, n: L.embedding_renorm_(n(5, 3, grad=False), ints(L, 0, 3), 0.5, 2.0),
    "embedding_bag": lambda L, n: L.embedding_bag(n(6, 2), ints(L, 1, 2, 3, 3, 5), ints(L, 0, 2, 2)),
    "embedding_bag, weighted": lambda L, n: L.embedding_bag(
        n(6, 2), ints(L, 1, 2, 3, 3, 5), ints(L, 0, 2), False, 0, False, n(5)
    ),
    "embedding_bag, means": lambda L, n: L.embedding_bag(n(6, 2), ints(L, 1, 2, 3, 3, 5), ints(L, 0, 2, 2), False, 1),
    "embedding_bag, maxima": lambda L, n: L.embedding_bag(
        n(6, 2), ints(L, 1, 2, 3, 4, 5), ints(L, 0, 2, 5), False, 2, False, None, True, 3
    ),
    "max_pool1d": lambda L, n: L.max_pool1d(n(2, 3, 8), 2, 2, 1, 1, True),
    "max_pool2d": lambda L, n: L.max_pool2d(n(2, 3, 8, 8), 3, 2),
    "max_pool3d": lambda L, n: L.max_pool3d(n(1, 2, 4, 4, 4), 2),
    "max_pool1d_with_indices": lambda L, n: L.max_pool1d_with_indices(n(2, 3, 8), 2),
    "avg_pool1d": lambda L, n: L.avg_pool1d(n(2, 3, 8), 3, 2, 1, False, False),
    "adaptive_avg_pool1d": lambda L, n: L.adaptive_avg_pool1d(n(2, 3, 8), 3),
    "adaptive_max_pool1d": lambda L, n: L.adaptive_max_pool1d(n(2, 3, 8), 3),
    "pixel_shuffle": lambda L, n: L.pixel_shuffle(n(2, 8, 3, 3), 2),
    "pixel_unshuffle": lambda L, n: L.pixel_unshuffle(n(2, 2, 4, 4), 2),
    "channel_shuffle": lambda L, n: L.channel_shuffle(n(2, 4, 3), 2),
    "prelu": lambda L, n: L.prelu(n(2, 3, 4), n(3)),
    "hardshrink": lambda L, n: L.hardshrink(n(3, 4), 0.3),
    "threshold": lambda L, n: L.threshold(n(3, 4), 0.1, 2.0),
    "threshold_": lambda L, n: L.threshold_(n(3, 4) * 1, 0.1, 2.0),
    "rrelu": lambda L, n: L.rrelu(n(3, 4), 0.1, 0.3),
    "celu_": lambda L, n: L.celu_(n(3, 4) * 1, 0.5),
    "selu_": lambda L, n: L.selu_(n(3, 4) * 1),
    "bilinear": lambda L, n: L.bilinear(n(2, 3), n(2, 4), n(5, 3, 4), n(5)),
    "cosine_similarity": lambda L, n: L.cosine_similarity(n(2, 3), n(2, 3), 1),
    "pairwise_distance": lambda L, n: L.pairwise_distance(n(2, 3), n(2, 3), 1.0, 1e-6, True),
    "pdist": lambda L, n: L.pdist(n(4, 3), 1.0),
    "affine_grid_generator": lambda L, n: L.affine_grid_generator(n(2, 2, 3), (2, 3, 4, 5), True),
    "grid_sampler": lambda L, n: L.grid_sampler(n(1, 2, 4, 4), n(1, 3, 3, 2), 0, 1, False),
    "grid_sampler_2d": lambda L, n: L.grid_sampler_2d(n(1, 2, 4, 4), n(1, 3, 3, 2), 0, 0, True),
    "cosine_embedding_loss": lambda L, n: L.cosine_embedding_loss(n(2, 3), n(2, 3), ints(L, 1, -1), 0.2, 2),
    "hinge_embedding_loss": lambda L, n: L.hinge_embedding_loss(n(3), ints(L, 1, -1, 1), 0.5, 0),
    "margin_ranking_loss": lambda L, n: L.margin_ranking_loss(n(3), n(3), ints(L, 1, -1, 1), 0.5),
    "triplet_margin_loss": lambda L, n: L.triplet_margin_loss(n(2, 3), n(2, 3), n(2, 3), 1.0, 2.0, 1e-6, True, 2),
    "poisson_nll_loss": lambda L, n: L.poisson_nll_loss(n(3), n(3, grad=False).abs(), True, False, 1e-8, 1),
    "kl_div": lambda L, n: L.kl_div(n(3, 4), n(3, 4, grad=False), 2, log_target=True),
    "binary_cross_entropy_with_logits": lambda L, n: L.binary_cross_entropy_with_logits(
        n(3), n(3, grad=False).abs(), None, n(3, grad=False), 0
    ),
    "ctc_loss": lambda L, n: L.ctc_loss(
        n(5, 2, 4).log_softmax(2), L.tensor([[1, 2], [3, 1]]), ints(L, 5, 5), ints(L, 2, 2), 0, 2
    ),
    "lstm": lambda L, n: L.lstm(
        n(5, 2, 3), (n(4, 2, 4), n(4, 2, 4)), weights(n, 4, 2, 2, True), True, 2, 0.0, False, True, False
    ),
    "lstm, projected": lambda L, n: L.lstm(
        n(2, 5, 3), (n(1, 2, 2), n(1, 2, 4)), weights(n, 4, 1, 1, True, 2), True, 1, 0.0, True, False, True
    ),
    "lstm, packed": lambda L, n: L.lstm(
        n(5, 3), ints(L, 3, 2), (n(1, 3, 4), n(1, 3, 4)), weights(n, 4, 1, 1, False), False, 1, 0.0, False, False
    ),
    "gru": lambda L, n: L.gru(n(5, 2, 3), n(2, 2, 4), weights(n, 3, 2, 1, True), True, 2, 0.0, False, False, False),
    "gru, packed": lambda L, n: L.gru(
        n(5, 3), ints(L, 3, 2), n(2, 3, 4), weights(n, 3, 1, 2, True), True, 1, 0.0, False, True
    ),
    "rnn_tanh": lambda L, n: L.rnn_tanh(
        n(2, 5, 3), n(1, 2, 4), weights(n, 1, 1, 1, True), True, 1, 0.0, False, False, batch_first=True
    ),
    "rnn_relu": lambda L, n: L.rnn_relu(
        n(5, 2, 3), n(1, 2, 4), weights(n, 1, 1, 1, False), False, 1, 0.0, False, False, False
    ),
    "lstm_cell": lambda L, n: L.lstm_cell(n(2, 3), (n(2, 4), n(2, 4)), n(16, 3), n(16, 4), n(16), n(16)),
    "gru_cell": lambda L, n: L.gru_cell(n(2, 3), n(2, 4), n(12, 3), n(12, 4)),
    "rnn_tanh_cell": lambda L, n: L.rnn_tanh_cell(n(2, 3), n(2, 4), n(4, 3), n(4, 4), n(4), n(4)),
    "rnn_relu_cell": lambda L, n: L.rnn_relu_cell(n(2, 3), n(2, 4), n(4, 3), n(4, 4)),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_values_and_gradients(case: Case) -> None:
    (got, got_grads), (wanted, wanted_grads) = run(lucid, case), run(torch, case)
    assert len(got) == len(wanted)
    for g, w in zip(got, wanted, strict=True):
        np.testing.assert_allclose(g, w, **within("program"))
    for g, w in zip(got_grads, wanted_grads, strict=True):
        assert (g is None) == (w is None)
        if g is not None:
            np.testing.assert_allclose(g, w, **within("whole programs"))


def test_every_name_is_pytorchs_and_has_a_case() -> None:
    drawn = {"rrelu_", "native_channel_shuffle", "grid_sampler_3d"}
    drawn |= {name + "_" for name in ("dropout", "alpha_dropout", "feature_dropout", "feature_alpha_dropout")}
    cased = {key.split(",")[0] for key in CASES}
    for name in lucid._LAYERS:
        assert hasattr(torch, name), name
        assert name in dir(lucid)
        assert name in cased or name in drawn, name
    same = {n for n in vars(torch) if getattr(torch.nn.functional, n, None) is getattr(torch, n) and n.islower()}
    for name in same & set(dir(lucid.nn.functional)) & lucid._LAYERS:
        assert getattr(lucid, name) is getattr(lucid.nn.functional, name)


def test_dropout_in_place() -> None:
    for name in ("dropout_", "alpha_dropout_", "feature_dropout_", "feature_alpha_dropout_"):
        x = lucid.ones(4, 50)
        assert getattr(lucid, name)(x, 0.5, True) is x
        assert 1 < len(set(x.flatten().tolist())) <= 2
        y = lucid.ones(4, 5)
        assert getattr(lucid, name)(y, 0.5, False).tolist() == lucid.ones(4, 5).tolist()
    x = lucid.ones(6, 8, 5)
    rows = lucid.feature_dropout(x, 0.5, True).tolist()
    assert all(len(set(row)) == 1 for sample in rows for row in sample)


def test_wrong_arguments() -> None:
    x = lucid.ones(2, 3)
    with pytest.raises(ValueError, match="reduction"):
        lucid.kl_div(x, x, 5)
    with pytest.raises(TypeError, match="batch_sizes"):
        lucid.gru(x, x)
    with pytest.raises(RuntimeError, match="weights"):
        lucid.gru(lucid.ones(2, 1, 3), lucid.ones(1, 1, 4), [x], True, 1, 0.0, False, False, False)
    with pytest.raises(RuntimeError, match="dimensions"):
        lucid.convolution(x, x, None, [1], [0], [1], False, [0], 1)


BYTES = [
    (mode, options, more)
    for mode in ("bilinear", "bicubic", "lanczos")
    for options in (
        {"size": (3, 11)},
        {"size": (100, 71)},
        {"scale_factor": 2.3},
        {"scale_factor": 0.4},
        {"scale_factor": (1.0, 1.7)},
        {"scale_factor": 0.37, "recompute_scale_factor": True},
        {"size": (33, 20)},
    )
    for more in ({}, {"antialias": True}, {"align_corners": True}, {"antialias": True, "align_corners": True})
    if mode != "lanczos" or more == {"antialias": True}
]


@pytest.mark.parametrize("device", ["cpu", "gpu"])
@pytest.mark.parametrize(("mode", "options", "more"), BYTES, ids=str)
def test_resized_bytes_are_the_same_bytes(
    mode: str, options: dict[str, Any], more: dict[str, Any], device: str
) -> None:
    rng = np.random.default_rng(0)
    for shape in ((1, 3, 33, 20), (2, 5, 5, 7)):
        x = rng.integers(0, 256, shape, dtype=np.uint8)
        # Black and white: the filters' overshoots are cut off.
        x[..., ::2] = np.where(x[..., ::2] > 127, 255, 0)
        wanted = torch.nn.functional.interpolate(torch.tensor(x), mode=mode, **options, **more)
        got = lucid.nn.functional.interpolate(lucid.tensor(x, device=device), mode=mode, **options, **more)
        assert got.dtype == lucid.uint8 and got.tolist() == wanted.tolist()


@pytest.mark.parametrize("options", [{"size": (3, 20)}, {"scale_factor": 0.6}, {"scale_factor": (1.0, 2.5)}], ids=str)
def test_lanczos(options: dict[str, Any]) -> None:
    def case(L: Any, new: Any) -> Any:
        return L.nn.functional.interpolate(new(2, 3, 9, 14), mode="lanczos", antialias=True, **options)

    (ours, grads), (theirs, others) = run(lucid, case), run(torch, case)
    for a, b in zip(ours + grads, theirs + others, strict=True):
        np.testing.assert_allclose(a, b, **within("near zero"))


def test_bytes_and_lanczos_refuse_as_pytorch() -> None:
    for f in (torch, lucid):
        resize, byte, x = f.nn.functional.interpolate, f.zeros(1, 1, 4, dtype=f.uint8), f.ones(1, 1, 4, 4)
        for mode in ("linear", "area"):
            with pytest.raises(NotImplementedError):
                resize(byte, 2, mode=mode)
        for wrong in ({}, {"antialias": True, "align_corners": True}):
            with pytest.raises(ValueError, match="Lanczos mode"):
                resize(x, 2, mode="lanczos", **wrong)
