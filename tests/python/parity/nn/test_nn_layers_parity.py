"""More layers against PyTorch's, by the table's test of `test_nn_parity`: outputs, gradients, state dicts, reprs."""

from __future__ import annotations

from typing import Any

import lucid
import lucid.nn.functional as F
import numpy as np
import pytest
import torch

from tests.python.parity.nn import test_nn_parity as table
from tests.python.parity.nn.test_nn_parity import Maker, close, inputs, integers, normal, numbers, pair, weighted_sum
from tests.python.tolerances import within

device = table.device


def signs(*shape: int) -> np.ndarray:
    return np.where(normal(*shape, seed=5) > 0, 1, -1).astype(np.float32)


def positive(*shape: int) -> np.ndarray:
    return (np.abs(normal(*shape, seed=6)) + 0.3).astype(np.float32)


def labels(high: int, *shape: int) -> np.ndarray:
    return integers(high, *shape)


ELEMENTWISE = [
    "SELU",
    "CELU",
    "Mish",
    "Hardswish",
    "Hardsigmoid",
    "Hardtanh",
    "LogSigmoid",
    "Softsign",
    "Tanhshrink",
    "Hardshrink",
    "Softshrink",
    "Softmax2d",
]


def plain(name: str) -> Maker:
    return lambda nn: getattr(nn, name)()


def padding(kind: str, n: int) -> Maker:
    return lambda nn: getattr(nn, f"{kind}Pad{n}d")(1, *([2.5] if kind == "Constant" else []))


MODULES: list[tuple[str, Maker, list[np.ndarray]]] = [
    *[(name, plain(name), [normal(2, 4, 6, 6) * 3]) for name in ELEMENTWISE],
    ("CELU alpha", lambda nn: nn.CELU(0.6), [normal(3, 4)]),
    ("Hardtanh bounds", lambda nn: nn.Hardtanh(-0.3, 0.9), [normal(3, 4)]),
    ("Threshold", lambda nn: nn.Threshold(0.1, 7), [normal(3, 4)]),
    ("PReLU", lambda nn: nn.PReLU(), [normal(3, 4)]),
    ("PReLU channels", lambda nn: nn.PReLU(4), [normal(3, 4, 5)]),
    ("GLU", lambda nn: nn.GLU(1), [normal(3, 4, 2)]),
    ("Softmin", lambda nn: nn.Softmin(1), [normal(3, 4)]),
    ("Bilinear", lambda nn: nn.Bilinear(3, 4, 5), [normal(2, 6, 3), normal(2, 6, 4, seed=4)]),
    ("CosineSimilarity", lambda nn: nn.CosineSimilarity(1, 1e-6), [normal(3, 4, 2), normal(3, 4, 2, seed=4)]),
    ("PairwiseDistance", lambda nn: nn.PairwiseDistance(), [normal(3, 4), normal(3, 4, seed=4)]),
    ("PairwiseDistance 3", lambda nn: nn.PairwiseDistance(3.0, keepdim=True), [normal(3, 4), normal(3, 4, seed=4)]),
    ("ConvTranspose1d", lambda nn: nn.ConvTranspose1d(4, 6, 3, 2, 1, 1, 2), [normal(2, 4, 5)]),
    ("ConvTranspose3d", lambda nn: nn.ConvTranspose3d(2, 3, 2, 2), [normal(1, 2, 3, 2, 2)]),
    ("AvgPool3d", lambda nn: nn.AvgPool3d(2, 1, 1), [normal(1, 2, 4, 4, 4)]),
    ("LPPool1d", lambda nn: nn.LPPool1d(2, 3, 2), [positive(2, 3, 9)]),
    ("LPPool2d", lambda nn: nn.LPPool2d(3, (2, 3), 2, True), [positive(2, 3, 7, 8)]),
    ("LPPool3d", lambda nn: nn.LPPool3d(2, 2), [positive(1, 2, 4, 4, 4)]),
    ("AdaptiveAvgPool1d", lambda nn: nn.AdaptiveAvgPool1d(4), [normal(2, 3, 9)]),
    ("AdaptiveAvgPool2d", lambda nn: nn.AdaptiveAvgPool2d((3, None)), [normal(2, 3, 7, 6)]),
    ("AdaptiveAvgPool2d even", lambda nn: nn.AdaptiveAvgPool2d(1), [normal(2, 3, 7, 6)]),
    ("AdaptiveAvgPool2d up", lambda nn: nn.AdaptiveAvgPool2d(9), [normal(3, 7, 6)]),
    ("AdaptiveAvgPool3d", lambda nn: nn.AdaptiveAvgPool3d((2, 3, 4)), [normal(1, 2, 4, 5, 6)]),
    ("AdaptiveMaxPool1d", lambda nn: nn.AdaptiveMaxPool1d(4), [normal(2, 3, 9)]),
    ("AdaptiveMaxPool2d", lambda nn: nn.AdaptiveMaxPool2d((3, None)), [normal(2, 3, 7, 6)]),
    ("AdaptiveMaxPool3d", lambda nn: nn.AdaptiveMaxPool3d(3), [normal(1, 2, 4, 5, 6)]),
    ("BatchNorm3d", lambda nn: nn.BatchNorm3d(2), [normal(2, 2, 3, 3, 3)]),
    ("InstanceNorm1d", lambda nn: nn.InstanceNorm1d(3), [normal(2, 3, 5)]),
    ("InstanceNorm2d", lambda nn: nn.InstanceNorm2d(3, affine=True), [normal(2, 3, 5, 4)]),
    ("InstanceNorm2d tracked", lambda nn: nn.InstanceNorm2d(3, 1e-4, 0.2, True, True), [normal(2, 3, 5, 4)]),
    ("InstanceNorm2d unbatched", lambda nn: nn.InstanceNorm2d(3), [normal(3, 5, 4)]),
    ("InstanceNorm3d", lambda nn: nn.InstanceNorm3d(2), [normal(2, 2, 3, 3, 3)]),
    ("LocalResponseNorm", lambda nn: nn.LocalResponseNorm(3, 0.1, 0.6, 1.5), [normal(2, 5, 4, 4)]),
    ("LocalResponseNorm even", lambda nn: nn.LocalResponseNorm(4), [normal(2, 6, 4)]),
    ("Upsample", lambda nn: nn.Upsample(scale_factor=2), [normal(2, 3, 4, 5)]),
    ("Upsample size", lambda nn: nn.Upsample((7, 3), mode="bilinear"), [normal(2, 3, 4, 5)]),
    ("UpsamplingNearest2d", lambda nn: nn.UpsamplingNearest2d(scale_factor=1.7), [normal(2, 3, 4, 5)]),
    ("UpsamplingBilinear2d", lambda nn: nn.UpsamplingBilinear2d((7, 9)), [normal(2, 3, 4, 5)]),
    ("PixelShuffle", lambda nn: nn.PixelShuffle(2), [normal(2, 8, 3, 4)]),
    ("PixelUnshuffle", lambda nn: nn.PixelUnshuffle(2), [normal(2, 3, 4, 6)]),
    ("ChannelShuffle", lambda nn: nn.ChannelShuffle(2), [normal(2, 6, 3, 2)]),
    ("Unfold", lambda nn: nn.Unfold((2, 3), (1, 2), (1, 0), (2, 1)), [normal(2, 3, 6, 7)]),
    ("Fold", lambda nn: nn.Fold((5, 6), 2, padding=1, stride=2), [normal(2, 12, 12)]),
    ("Unflatten", lambda nn: nn.Unflatten(1, (2, 3)), [normal(2, 6, 3)]),
    *[
        (f"{kind}Pad{n}d", padding(kind, n), [normal(2, 3, *[4, 5, 6][:n])])
        for kind in ("Zero", "Constant", "Reflection", "Replication", "Circular")
        for n in (1, 2, 3)
    ],
    ("MarginRankingLoss", lambda nn: nn.MarginRankingLoss(0.3), [normal(6), normal(6, seed=4), signs(6)]),
    ("HingeEmbeddingLoss", lambda nn: nn.HingeEmbeddingLoss(0.7), [normal(4, 3), signs(4, 3)]),
    (
        "CosineEmbeddingLoss",
        lambda nn: nn.CosineEmbeddingLoss(0.1),
        [normal(4, 3), normal(4, 3, seed=4), signs(4).astype(np.int64)],
    ),
    (
        "MultiLabelMarginLoss",
        lambda nn: nn.MultiLabelMarginLoss(),
        [normal(2, 4), np.array([[3, 0, -1, 1], [1, -1, 0, 0]])],
    ),
    ("MultiLabelSoftMarginLoss", lambda nn: nn.MultiLabelSoftMarginLoss(), [normal(4, 3), labels(2, 4, 3)]),
    ("MultiMarginLoss", lambda nn: nn.MultiMarginLoss(), [normal(4, 3), labels(3, 4)]),
    ("MultiMarginLoss 2", lambda nn: nn.MultiMarginLoss(2, 0.6, reduction="none"), [normal(4, 3), labels(3, 4)]),
    ("PoissonNLLLoss", lambda nn: nn.PoissonNLLLoss(full=True), [normal(4, 3), positive(4, 3) * 3]),
    ("PoissonNLLLoss rates", lambda nn: nn.PoissonNLLLoss(False), [positive(4, 3), positive(4, 3) * 3]),
    ("GaussianNLLLoss", lambda nn: nn.GaussianNLLLoss(full=True), [normal(4, 3), normal(4, 3, seed=4), positive(4, 3)]),
    ("GaussianNLLLoss wide", lambda nn: nn.GaussianNLLLoss(), [normal(4, 3), normal(4, 3, seed=4), positive(4)]),
    (
        "TripletMarginLoss",
        lambda nn: nn.TripletMarginLoss(0.8, 3, swap=True),
        [normal(4, 3), normal(4, 3, seed=4), normal(4, 3, seed=5)],
    ),
    (
        "TripletMarginWithDistanceLoss",
        lambda nn: nn.TripletMarginWithDistanceLoss(margin=0.8, reduction="sum"),
        [normal(4, 3), normal(4, 3, seed=4), normal(4, 3, seed=5)],
    ),
    ("EmbeddingBag", lambda nn: nn.EmbeddingBag(7, 3), [integers(7, 2, 5)]),
    ("EmbeddingBag max", lambda nn: nn.EmbeddingBag(7, 3, mode="max", padding_idx=2), [integers(7, 4, 5)]),
    ("EmbeddingBag offsets", lambda nn: nn.EmbeddingBag(7, 3, mode="sum"), [integers(7, 9), np.array([0, 4, 4, 7])]),
    (
        "EmbeddingBag max offsets",
        lambda nn: nn.EmbeddingBag(7, 3, mode="max"),
        [integers(7, 9), np.array([0, 4, 4, 7])],
    ),
    ("EmbeddingBag mean", lambda nn: nn.EmbeddingBag(7, 3, padding_idx=1), [integers(7, 9), np.array([0, 4, 4, 7])]),
    ("Embedding max_norm", lambda nn: nn.Embedding(7, 3, max_norm=0.7), [integers(7, 2, 5)]),
    ("Embedding by frequency", lambda nn: nn.Embedding(7, 3, scale_grad_by_freq=True), [integers(4, 2, 5)]),
    (
        "TransformerDecoderLayer",
        lambda nn: nn.TransformerDecoderLayer(8, 2, 16, 0.0),
        [normal(5, 3, 8), normal(4, 3, 8, seed=4)],
    ),
    (
        "TransformerDecoder",
        lambda nn: nn.TransformerDecoder(
            nn.TransformerDecoderLayer(8, 2, 16, 0.0, "gelu", batch_first=True, norm_first=True), 2, nn.LayerNorm(8)
        ),
        [normal(3, 5, 8), normal(3, 4, 8, seed=4)],
    ),
    (
        "Transformer",
        lambda nn: nn.Transformer(8, 2, 1, 2, 16, 0.0, batch_first=True, norm_first=True),
        [normal(3, 5, 8), normal(3, 4, 8, seed=4)],
    ),
    ("RNNCell", lambda nn: nn.RNNCell(3, 5, nonlinearity="relu"), [normal(2, 3), normal(2, 5)]),
    ("GRUCell", lambda nn: nn.GRUCell(3, 5), [normal(2, 3), normal(2, 5)]),
    ("GRUCell unbatched", lambda nn: nn.GRUCell(3, 5, bias=False), [normal(3)]),
]


@pytest.mark.parametrize(("name", "make", "arrays"), MODULES, ids=[m[0] for m in MODULES])
def test_outputs_gradients_and_buffers(name: str, make: Maker, arrays: list[np.ndarray], device: str) -> None:
    table.test_outputs_gradients_and_buffers(name, make, arrays, device)


@pytest.mark.parametrize(("name", "make", "arrays"), MODULES, ids=[m[0] for m in MODULES])
def test_reprs_and_state_dicts(name: str, make: Maker, arrays: list[np.ndarray]) -> None:
    table.test_reprs_and_state_dicts(name, make, arrays)


# ---- recurrent layers ------------------------------------------------------------------------------------------------

RECURRENT: list[tuple[str, Maker]] = [
    ("RNN", lambda nn: nn.RNN(3, 4)),
    ("RNN relu", lambda nn: nn.RNN(3, 4, 2, nonlinearity="relu", bidirectional=True)),
    ("LSTM", lambda nn: nn.LSTM(3, 4, 2)),
    ("LSTM first", lambda nn: nn.LSTM(3, 4, batch_first=True, bias=False)),
    ("LSTM projected", lambda nn: nn.LSTM(3, 4, 2, bidirectional=True, proj_size=2)),
    ("GRU", lambda nn: nn.GRU(3, 4, 2, bidirectional=True)),
    ("GRU first", lambda nn: nn.GRU(3, 4, batch_first=True)),
]


def flat(value: Any) -> list[Any]:
    if isinstance(value, (lucid.Tensor, torch.Tensor)):
        return [value]
    return [t for v in value for t in flat(v)] if isinstance(value, (tuple, list)) else []


@pytest.mark.parametrize(("name", "make"), RECURRENT, ids=[r[0] for r in RECURRENT])
@pytest.mark.parametrize("form", ["batched", "unbatched", "packed", "unsorted"])
@pytest.mark.parametrize("given", [False, True])
def test_recurrent_layers(name: str, make: Maker, form: str, given: bool, device: str) -> None:
    ours, theirs = pair(make, device)
    assert repr(ours) == repr(theirs)
    count = 1 if form == "unbatched" else 3
    x = normal(5, count, 3)
    if theirs.batch_first and form != "unbatched":
        x = x.swapaxes(0, 1).copy()
    (a,), (b,) = inputs([x[:, 0].copy() if form == "unbatched" else x], device)
    lengths = {"packed": [5, 3, 2], "unsorted": [2, 5, 3]}.get(form)
    xa, xb = a, b
    if lengths:
        first = theirs.batch_first
        xa = lucid.nn.utils.rnn.pack_padded_sequence(a, lengths, first, enforce_sorted=form == "packed")
        xb = torch.nn.utils.rnn.pack_padded_sequence(b, torch.tensor(lengths), first, enforce_sorted=form == "packed")
    args_a, args_b = [xa], [xb]
    if given:
        layers = theirs.num_layers * (2 if theirs.bidirectional else 1)
        shapes = [(layers, count, theirs.proj_size or 4)] + ([(layers, count, 4)] if theirs.mode == "LSTM" else [])
        states = [normal(*s, seed=8 + i) for i, s in enumerate(shapes)]
        if form == "unbatched":
            states = [s[:, 0].copy() for s in states]
        ha, hb = inputs(states, device)
        args_a.append(tuple(ha) if len(ha) > 1 else ha[0])
        args_b.append(tuple(hb) if len(hb) > 1 else hb[0])
    got, wanted = flat(ours(*args_a)), flat(theirs(*args_b))
    assert len(got) == len(wanted)
    for g, w in zip(got, wanted, strict=True):
        close(g, w, where=name)
    sum(weighted_sum(g, lucid) for g in got if g.requires_grad).backward()
    sum(weighted_sum(w, torch) for w in wanted if w.requires_grad).backward()
    close(a.grad, b.grad, "backward", name)
    for (n, p), (_, q) in zip(ours.named_parameters(), theirs.named_parameters(), strict=True):
        close(p.grad, q.grad, "backward", f"{n} of {name}")


def test_soft_margin_loss(device: str) -> None:
    (x,), (y,) = inputs([normal(4, 3) * 50], device)
    got = lucid.nn.SoftMarginLoss()(x, lucid.tensor(signs(4, 3), device=device))
    wanted = torch.nn.SoftMarginLoss()(y, torch.tensor(signs(4, 3)))
    close(got, wanted)
    got.backward()
    wanted.backward()
    close(x.grad, y.grad, "backward")


def test_adaptive_log_softmax(device: str) -> None:
    ours, theirs = pair(lambda nn: nn.AdaptiveLogSoftmaxWithLoss(16, 20, [4, 10], 2.0, True), device)
    assert repr(ours) == repr(theirs)
    (x,), (y,) = inputs([normal(6, 16)], device)
    target = integers(20, 6)
    got, wanted = ours(x, lucid.tensor(target, device=device)), theirs(y, torch.tensor(target))
    close(got.output, wanted.output)
    close(got.loss, wanted.loss)
    got.loss.backward()
    wanted.loss.backward()
    close(x.grad, y.grad, "backward")
    close(ours.log_prob(x), theirs.log_prob(y))
    assert ours.predict(x).tolist() == theirs.predict(y).tolist()
    with pytest.raises(RuntimeError):
        ours(x, lucid.tensor(target + 20, device=device))
    with pytest.raises(ValueError, match="cutoffs"):
        lucid.nn.AdaptiveLogSoftmaxWithLoss(16, 20, [10, 4])


def test_lstm_cell(device: str) -> None:
    ours, theirs = pair(lambda nn: nn.LSTMCell(3, 5), device)
    (x, h, c), (y, g, d) = inputs([normal(2, 3), normal(2, 5), normal(2, 5, seed=3)], device)
    for got, wanted in zip(ours(x, (h, c)), theirs(y, (g, d)), strict=True):
        close(got, wanted)


def test_padded_and_packed(device: str) -> None:
    rows = [normal(n, 2, seed=n) for n in (2, 5, 3)]
    xs, ys = inputs(rows, device)
    ours, theirs = lucid.nn.utils.rnn, torch.nn.utils.rnn
    for first in (False, True):
        for side in ("left", "right"):
            close(ours.pad_sequence(xs, first, 7.0, side), theirs.pad_sequence(ys, first, 7.0, side))
    a, b = ours.pack_sequence(xs, False), theirs.pack_sequence(ys, False)
    for got, wanted in zip(a, b, strict=True):
        np.testing.assert_array_equal(numbers(got), numbers(wanted))
    padded, lengths = ours.pad_packed_sequence(a, True, -1.0, 6)
    wanted, sizes = theirs.pad_packed_sequence(b, True, -1.0, 6)
    close(padded, wanted)
    assert lengths.tolist() == sizes.tolist()
    for got, wanted in zip(ours.unpack_sequence(a), ys, strict=True):
        close(got, wanted)
    for bad in ({"lengths": [2, 5, 3]}, {"lengths": [5, 3]}, {"lengths": [5, 3, 0]}):
        with pytest.raises(RuntimeError):
            ours.pack_padded_sequence(lucid.ones(5, 3, 2, device=device), **bad)


# ---- functions -------------------------------------------------------------------------------------------------------

FUNCTIONS: list[tuple[str, str, list[np.ndarray], list[Any], dict[str, Any]]] = [
    *[
        (f"interpolate {mode} {options}", "interpolate", [normal(2, 2, *[5, 6, 4][:n])], [], {"mode": mode, **options})
        for mode, n in (
            ("nearest", 2),
            ("nearest-exact", 2),
            ("linear", 1),
            ("bilinear", 2),
            ("bicubic", 2),
            ("trilinear", 3),
            ("area", 2),
        )
        for options in (
            {"scale_factor": 1.7},
            {"scale_factor": 0.6},
            {"size": 7},
            {"size": [3, 8, 5][:n]},
            {"scale_factor": 1.3, "recompute_scale_factor": True},
            *(
                [{"size": 8, "align_corners": True}, {"size": 3, "align_corners": True}]
                if "linear" in mode or "cubic" in mode
                else []
            ),
            *(
                [{"size": 3, "antialias": True}, {"size": (9, 2), "antialias": True}]
                if mode in ("bilinear", "bicubic")
                else []
            ),
        )
    ],
    *[
        (
            f"grid_sample {mode} {pad} {align}",
            "grid_sample",
            [normal(2, 3, 4, 5), normal(2, 3, 2, 2, seed=4)],
            [],
            {"mode": mode, "padding_mode": pad, "align_corners": align},
        )
        for mode in ("bilinear", "nearest", "bicubic")
        for pad in ("zeros", "border", "reflection")
        for align in (False, True)
    ],
    *[
        (
            f"grid_sample 3-d {mode} {pad} {align}",
            "grid_sample",
            [normal(2, 3, 3, 4, 5), normal(2, 2, 3, 2, 3, seed=4)],
            [],
            {"mode": mode, "padding_mode": pad, "align_corners": align},
        )
        for mode in ("bilinear", "nearest", "bicubic")
        for pad in ("zeros", "border", "reflection")
        for align in (False, True)
    ],
    ("affine_grid", "affine_grid", [normal(2, 2, 3)], [(2, 3, 4, 5)], {"align_corners": False}),
    ("affine_grid 3-d", "affine_grid", [normal(2, 3, 4)], [(2, 3, 2, 4, 5)], {"align_corners": True}),
    ("normalize", "normalize", [normal(3, 4)], [], {"p": 3.0, "dim": 0}),
    ("pdist", "pdist", [normal(5, 3)], [1.5], {}),
    (
        "attention",
        "scaled_dot_product_attention",
        [normal(2, 4, 3, 6), normal(2, 2, 5, 6), normal(2, 2, 5, 4)],
        [],
        {"enable_gqa": True},
    ),
    ("smooth fold", "fold", [normal(8, 9)], [(4, 4), 2], {}),
]


@pytest.mark.parametrize("align", [False, True])
@pytest.mark.parametrize("size", [(1, 1, 5, 7), (1, 1, 8, 10, 27)])
def test_sizes_that_are_tensors_keep_the_dtype(size: tuple[int, ...], align: bool) -> None:
    n = len(size) - 2
    theta = normal(1, n, n + 1).astype(np.float64)
    ours = F.affine_grid(lucid.tensor(theta), [lucid.tensor(s) for s in size], align_corners=align)
    theirs = torch.nn.functional.affine_grid(torch.tensor(theta), [torch.tensor(s) for s in size], align_corners=align)
    np.testing.assert_allclose(ours.numpy(), theirs.numpy(), **within("float64 rounding"))


@pytest.mark.parametrize(("name", "function", "arrays", "args", "options"), FUNCTIONS, ids=[f[0] for f in FUNCTIONS])
def test_functions(
    name: str, function: str, arrays: list[np.ndarray], args: list[Any], options: dict[str, Any], device: str
) -> None:
    xs, ys = inputs(arrays, device)
    got = getattr(F, function)(*xs, *args, **options)
    wanted = getattr(torch.nn.functional, function)(*ys, *args, **options)
    close(got, wanted, where=name)
    weighted_sum(got, lucid).backward()
    weighted_sum(wanted, torch).backward()
    for x, y in zip(xs, ys, strict=True):
        # A gradient that PyTorch gives as zeros may be none here.
        if y.grad is not None and (x.grad is not None or numbers(y.grad).any()):
            np.testing.assert_allclose(
                numbers(x.grad), numbers(y.grad), **within("loss gradients"), err_msg=f"gradient of {name}"
            )


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("flat_targets", [False, True])
def test_ctc(reduction: str, flat_targets: bool, device: str) -> None:
    logits = normal(8, 4, 5)
    (x,), (y,) = inputs([logits], device)
    rows = [[1, 2, 2], [3, 1, 4], [1], []]
    lengths = [len(r) for r in rows]
    targets = np.array([i for r in rows for i in r] if flat_targets else [r + [1] * (3 - len(r)) for r in rows])
    steps = [8, 3, 5, 6]
    got = F.ctc_loss(x.log_softmax(2), lucid.tensor(targets, device=device), steps, lengths, reduction=reduction)
    wanted = torch.nn.functional.ctc_loss(
        y.log_softmax(2), torch.tensor(targets), tuple(steps), tuple(lengths), reduction=reduction
    )
    close(got, wanted)
    weighted_sum(got, lucid).backward()
    weighted_sum(wanted, torch).backward()
    close(x.grad, y.grad, "backward")


def test_ctc_that_cannot_be_aligned(device: str) -> None:
    x = lucid.randn(2, 1, 4, device=device, requires_grad=True)
    target = lucid.tensor([[1, 1, 2]], device=device)
    assert F.ctc_loss(x.log_softmax(2), target, [2], [3]).item() == float("inf")
    loss = F.ctc_loss(x.log_softmax(2), target, [2], [3], zero_infinity=True)
    loss.backward()
    assert loss.item() == 0 and not numbers(x.grad).any()


@pytest.mark.parametrize("zero_infinity", [False, True])
def test_ctc_by_primitives(zero_infinity: bool) -> None:
    """MLX's primitives, which stand for the CPU's kernel where there is a GPU, give what it gives."""
    (x,), (y,) = inputs([normal(6, 5, 4)], "gpu")
    steps, lengths = [6, 3, 0, 0, 2], [2, 3, 0, 1, 2]
    # What is behind a row's labels is not looked at.
    targets = [[1, 2, -7], [3, 3, 1], [9, 9, 9], [2, -1, 99], [3, 3, 0]]
    wanted_targets = torch.tensor([[1, 2, 1], [3, 3, 1], [1, 1, 1], [2, 1, 1], [3, 3, 1]])
    wanted = torch.nn.functional.ctc_loss(
        y.log_softmax(2), wanted_targets, steps, lengths, reduction="none", zero_infinity=zero_infinity
    )
    weighted_sum(wanted, torch).backward()
    try:
        lucid._C.set_hosting(False)
        got = F.ctc_loss(
            x.log_softmax(2), lucid.tensor(targets, device="gpu"), steps, lengths, 0, "none", zero_infinity
        )
        weighted_sum(got, lucid).backward()
        close(got, wanted)
        close(x.grad, y.grad, "backward")
        # Nothing to read, and nothing to find.
        nothing = lucid.zeros(0, 3, 4, device="gpu").requires_grad_()
        loss = F.ctc_loss(nothing, lucid.zeros(3, 0, dtype=lucid.int64, device="gpu"), [0] * 3, [0] * 3, 0, "none")
        loss.sum().backward()
        assert loss.tolist() == [0.0] * 3 and nothing.grad.shape == (0, 3, 4)
    finally:
        lucid._C.set_hosting(True)


def test_ctc_in_transforms_and_graphs(device: str) -> None:
    x, steps, lengths = lucid.randn(3, 5, 2, 4, device=device), [5, 4], [2, 1]
    targets = lucid.tensor([[1, 2], [3, 1]], device=device)

    def loss(x: lucid.Tensor) -> lucid.Tensor:
        return F.ctc_loss(x.log_softmax(-1), targets, steps, lengths)

    one_by_one = lucid.stack([loss(sample) for sample in x])
    close(lucid.func.vmap(loss)(x), one_by_one)
    grads = lucid.func.vmap(lucid.func.grad(loss))(x)
    close(grads[1], lucid.func.grad(loss)(x[1]), "backward")
    tangent = lucid.func.jvp(loss, (x[0],), (lucid.ones_like(x[0]),))[1]
    close(tangent, grads[0].sum(), "backward")
    compiled = lucid.compile(loss, fullgraph=True)
    for sample in x:
        close(compiled(sample), loss(sample))
    leaf = x[0].clone().requires_grad_()
    (first,) = lucid.autograd.grad(loss(leaf), leaf, create_graph=True)
    with pytest.raises(NotImplementedError, match="derivative for '_ctc_loss_backward'"):
        first.square().sum().backward()
    for wrong in ([[1, 4], [3, 1]], [[1, 2], [-1, 1]]):
        with pytest.raises(IndexError, match="out of bounds"):
            F.ctc_loss(x[0], lucid.tensor(wrong, device=device), steps, lengths)
    with pytest.raises(RuntimeError, match="class indices"):
        F.ctc_loss(x[0], targets.float(), steps, lengths)


@pytest.mark.parametrize("n", [2, 3])
def test_fractional_pools_and_unpools(n: int, device: str) -> None:
    x = normal(2, 3, *[7, 8, 6][:n])
    samples = np.random.default_rng(3).uniform(0, 1, (2, 3, n)).astype(np.float32)
    args: Any = {"output_size": [3, 4, 2][:n], "return_indices": True}
    got = getattr(F, f"fractional_max_pool{n}d")(
        lucid.tensor(x, device=device), 2, _random_samples=lucid.tensor(samples, device=device), **args
    )
    wanted = getattr(torch.nn.functional, f"fractional_max_pool{n}d")(
        torch.tensor(x), 2, _random_samples=torch.tensor(samples), **args
    )
    close(got[0], wanted[0])
    assert got[1].tolist() == wanted[1].tolist()
    pooled, at = getattr(F, f"max_pool{n}d")(lucid.tensor(x, device=device), 2, return_indices=True)
    theirs, there = getattr(torch.nn.functional, f"max_pool{n}d")(torch.tensor(x), 2, return_indices=True)
    for size in (None, x.shape[2:]):
        close(
            getattr(F, f"max_unpool{n}d")(pooled, at, 2, output_size=size),
            getattr(torch.nn.functional, f"max_unpool{n}d")(theirs, there, 2, output_size=size),
        )
    got = getattr(F, f"adaptive_max_pool{n}d")(lucid.tensor(x, device=device), 3, True)
    wanted = getattr(torch.nn.functional, f"adaptive_max_pool{n}d")(torch.tensor(x), 3, True)
    assert got[1].tolist() == wanted[1].tolist()


BAD: list[tuple[str, Maker]] = [
    ("interpolate both", lambda f: f.nn.functional.interpolate(f.ones(1, 1, 2, 2), size=3, scale_factor=2)),
    ("interpolate none", lambda f: f.nn.functional.interpolate(f.ones(1, 1, 2, 2))),
    ("interpolate mode", lambda f: f.nn.functional.interpolate(f.ones(1, 1, 2, 2), size=3, mode="linear")),
    ("grid_sample mode", lambda f: f.nn.functional.grid_sample(f.ones(1, 1, 2, 2), f.ones(1, 2, 2, 2), "cubic")),
    ("pixel_shuffle", lambda f: f.nn.functional.pixel_shuffle(f.ones(1, 3, 2, 2), 2)),
    ("fold", lambda f: f.nn.functional.fold(f.ones(1, 8, 7), (4, 4), 2)),
    ("nll label", lambda f: f.nn.functional.nll_loss(f.zeros(2, 3), f.tensor([0, 3]))),
    ("embedding index", lambda f: f.nn.functional.embedding(f.tensor([5]), f.ones(3, 2))),
    ("multi_margin p", lambda f: f.nn.MultiMarginLoss(3)),
    ("triplet margin", lambda f: f.nn.TripletMarginLoss(-1)),
    ("lstm input", lambda f: f.nn.LSTM(3, 4)(f.ones(2, 2, 5))),
    ("lstm dims", lambda f: f.nn.LSTM(3, 4)(f.ones(2, 2, 2, 3))),
    ("lstm dropout", lambda f: f.nn.LSTM(3, 4, dropout=1.5)),
    ("gru proj", lambda f: f.nn.GRU(3, 4, proj_size=2)),
    ("rnn nonlinearity", lambda f: f.nn.RNN(3, 4, nonlinearity="sine")),
    ("cell input", lambda f: f.nn.GRUCell(3, 4)(f.ones(2, 5))),
    ("instance norm dims", lambda f: f.nn.InstanceNorm2d(3)(f.ones(2, 3))),
    ("embedding bag", lambda f: f.nn.EmbeddingBag(3, 2)(f.tensor([0, 1]))),
    ("adaptive dims", lambda f: f.nn.AdaptiveAvgPool2d(2)(f.ones(2, 2))),
    ("gaussian var", lambda f: f.nn.GaussianNLLLoss()(f.ones(2), f.ones(2), -f.ones(2))),
    ("dropout2d p", lambda f: f.nn.Dropout2d(2.0)),
    ("unflatten", lambda f: f.nn.Unflatten(1, 3)),
    ("cosine dims", lambda f: f.nn.CosineEmbeddingLoss()(f.ones(2), f.ones(2), f.ones(2))),
    ("fractional", lambda f: f.nn.FractionalMaxPool2d(2)),
]


@pytest.mark.parametrize(("name", "call"), BAD, ids=[b[0] for b in BAD])
def test_bad_arguments_raise_what_pytorch_raises(name: str, call: Maker) -> None:
    with pytest.raises(Exception) as wanted:
        call(torch)
    with pytest.raises(
        wanted.type if wanted.type in (ValueError, TypeError, IndexError, NotImplementedError) else RuntimeError
    ):
        call(lucid)
