"""Modules against PyTorch's: reprs, state dicts loaded unchanged, outputs, gradients, initial distributions."""

from __future__ import annotations

import copy
import inspect
import math
from collections.abc import Callable
from typing import Any

import lucid
import lucid.nn.functional as F
import numpy as np
import pytest
import torch

from tests.python import tolerances
from tests.python.tolerances import TABLE, within

DEVICES = ["cpu", "gpu"]
Maker = Callable[[Any], Any]


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def integers(high: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(1).integers(0, high, shape)


def probabilities(*shape: int) -> np.ndarray:
    e = np.exp(normal(*shape, seed=2))
    made: np.ndarray = e / e.sum(1, keepdims=True)
    return made


def numbers(t: Any) -> np.ndarray:
    return np.asarray(t.detach().cpu().tolist())


def close(got: Any, wanted: Any, kind: str = "forward", where: str = "") -> None:
    assert tuple(got.shape) == tuple(wanted.shape), where
    rtol, atol = getattr(tolerances, kind)("float32")
    np.testing.assert_allclose(numbers(got), numbers(wanted), rtol, atol, err_msg=where)


# Each row: how to make the module from either `nn`, and the inputs.
MODULES: list[tuple[str, Maker, list[np.ndarray]]] = [
    ("Identity", lambda nn: nn.Identity(3, foo=1), [normal(3, 4)]),
    ("Linear", lambda nn: nn.Linear(4, 5), [normal(3, 4)]),
    ("Linear 3-d", lambda nn: nn.Linear(4, 5, bias=False), [normal(2, 3, 4)]),
    ("Linear 1-d", lambda nn: nn.Linear(4, 5), [normal(4)]),
    ("Conv1d", lambda nn: nn.Conv1d(3, 4, 3, 2, 1), [normal(2, 3, 9)]),
    ("Conv1d same", lambda nn: nn.Conv1d(3, 4, 4, padding="same", dilation=2), [normal(2, 3, 9)]),
    ("Conv2d", lambda nn: nn.Conv2d(1, 6, 5, padding=2), [normal(2, 1, 8, 8)]),
    ("Conv2d all", lambda nn: nn.Conv2d(4, 6, (3, 2), (2, 1), (1, 2), (1, 2), 2, False), [normal(2, 4, 7, 9)]),
    ("Conv2d depthwise", lambda nn: nn.Conv2d(4, 8, 3, groups=4), [normal(2, 4, 6, 6)]),
    ("Conv2d unbatched", lambda nn: nn.Conv2d(3, 4, 3), [normal(3, 6, 6)]),
    ("Conv2d same", lambda nn: nn.Conv2d(3, 4, (3, 4), padding="same"), [normal(2, 3, 6, 6)]),
    ("Conv2d valid", lambda nn: nn.Conv2d(3, 4, 3, padding="valid"), [normal(2, 3, 6, 6)]),
    ("Conv2d reflect", lambda nn: nn.Conv2d(3, 4, 3, padding=(1, 2), padding_mode="reflect"), [normal(2, 3, 6, 6)]),
    ("Conv2d replicate", lambda nn: nn.Conv2d(3, 4, 3, padding=2, padding_mode="replicate"), [normal(2, 3, 6, 6)]),
    ("Conv2d circular", lambda nn: nn.Conv2d(3, 4, 4, padding="same", padding_mode="circular"), [normal(2, 3, 6, 6)]),
    ("Conv3d", lambda nn: nn.Conv3d(2, 3, 2, padding=1), [normal(2, 2, 4, 5, 4)]),
    ("ConvTranspose2d", lambda nn: nn.ConvTranspose2d(4, 6, 3, 2, 1, 1, 2), [normal(2, 4, 5, 4)]),
    ("ConvTranspose2d dilated", lambda nn: nn.ConvTranspose2d(3, 2, 3, dilation=2, bias=False), [normal(1, 3, 4, 4)]),
    ("MaxPool1d", lambda nn: nn.MaxPool1d(3, 2, 1), [normal(2, 3, 9)]),
    ("MaxPool2d", lambda nn: nn.MaxPool2d(2), [normal(2, 3, 6, 6)]),
    ("MaxPool2d all", lambda nn: nn.MaxPool2d((2, 3), (2, 1), (1, 1), (1, 2), ceil_mode=True), [normal(2, 3, 7, 8)]),
    ("MaxPool3d", lambda nn: nn.MaxPool3d(2), [normal(1, 2, 4, 4, 4)]),
    ("AvgPool1d", lambda nn: nn.AvgPool1d(3, 2, 1), [normal(2, 3, 9)]),
    ("AvgPool2d", lambda nn: nn.AvgPool2d(2), [normal(2, 3, 6, 6)]),
    ("AvgPool2d all", lambda nn: nn.AvgPool2d(3, 2, 1, True, False), [normal(2, 3, 8, 7)]),
    ("AvgPool2d divisor", lambda nn: nn.AvgPool2d(2, divisor_override=3), [normal(2, 3, 6, 6)]),
    ("BatchNorm1d", lambda nn: nn.BatchNorm1d(4), [normal(6, 4)]),
    ("BatchNorm1d 3-d", lambda nn: nn.BatchNorm1d(4, eps=1e-3, momentum=None), [normal(3, 4, 5)]),
    ("BatchNorm2d", lambda nn: nn.BatchNorm2d(3, momentum=0.3), [normal(4, 3, 5, 5)]),
    ("BatchNorm2d plain", lambda nn: nn.BatchNorm2d(3, affine=False, track_running_stats=False), [normal(4, 3, 2, 2)]),
    ("LayerNorm", lambda nn: nn.LayerNorm(4), [normal(3, 4)]),
    ("LayerNorm 2-d", lambda nn: nn.LayerNorm((3, 4), 1e-3, bias=False), [normal(2, 3, 4)]),
    ("LayerNorm plain", lambda nn: nn.LayerNorm(4, elementwise_affine=False), [normal(3, 4)]),
    ("GroupNorm", lambda nn: nn.GroupNorm(2, 4), [normal(3, 4, 5, 5)]),
    ("RMSNorm", lambda nn: nn.RMSNorm(4), [normal(2, 3, 4)]),
    ("RMSNorm eps", lambda nn: nn.RMSNorm((3, 4), eps=1e-2, elementwise_affine=False), [normal(2, 3, 4)]),
    ("Embedding", lambda nn: nn.Embedding(7, 3), [integers(7, 2, 5)]),
    ("Embedding padding", lambda nn: nn.Embedding(7, 3, padding_idx=-2), [np.array([[0, 5, 5], [6, 5, 0]])]),
    ("Dropout nothing", lambda nn: nn.Dropout(0.0), [normal(3, 4)]),
    ("Dropout everything", lambda nn: nn.Dropout(1.0), [normal(3, 4)]),
    ("Flatten", lambda nn: nn.Flatten(), [normal(2, 3, 4, 5)]),
    ("Flatten part", lambda nn: nn.Flatten(0, -2), [normal(2, 3, 4, 5)]),
    ("ReLU", lambda nn: nn.ReLU(), [normal(3, 4)]),
    ("ReLU6", lambda nn: nn.ReLU6(), [normal(3, 4) * 5]),
    ("GELU", lambda nn: nn.GELU(), [normal(3, 4)]),
    ("GELU tanh", lambda nn: nn.GELU("tanh"), [normal(3, 4)]),
    ("SiLU", lambda nn: nn.SiLU(), [normal(3, 4)]),
    ("Tanh", lambda nn: nn.Tanh(), [normal(3, 4)]),
    ("Sigmoid", lambda nn: nn.Sigmoid(), [normal(3, 4)]),
    ("LeakyReLU", lambda nn: nn.LeakyReLU(0.2), [normal(3, 4)]),
    ("ELU", lambda nn: nn.ELU(0.7), [normal(3, 4)]),
    ("Softplus", lambda nn: nn.Softplus(2, 1), [normal(3, 4)]),
    ("Softmax", lambda nn: nn.Softmax(1), [normal(3, 4)]),
    ("LogSoftmax", lambda nn: nn.LogSoftmax(-1), [normal(2, 3, 4)]),
    ("Sequential", lambda nn: nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 2)), [normal(3, 4)]),
    (
        "LeNet",
        lambda nn: nn.Sequential(
            nn.Conv2d(1, 6, 5, padding=2),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(6, 16, 5),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(400, 120),
            nn.ReLU(),
            nn.Linear(120, 10),
        ),
        [normal(3, 1, 28, 28)],
    ),
    ("MSELoss", lambda nn: nn.MSELoss(), [normal(3, 4), normal(3, 4, seed=9)]),
    ("L1Loss", lambda nn: nn.L1Loss(reduction="sum"), [normal(3, 4), normal(3, 4, seed=9)]),
    ("SmoothL1Loss", lambda nn: nn.SmoothL1Loss(beta=0.5), [normal(3, 4), normal(3, 4, seed=9)]),
    ("HuberLoss", lambda nn: nn.HuberLoss("none", 0.7), [normal(3, 4), normal(3, 4, seed=9)]),
    ("CrossEntropyLoss", lambda nn: nn.CrossEntropyLoss(), [normal(6, 5), integers(5, 6)]),
    (
        "CrossEntropyLoss all",
        lambda nn: nn.CrossEntropyLoss(ignore_index=2, label_smoothing=0.1, reduction="sum"),
        [normal(6, 5, 3), integers(5, 6, 3)],
    ),
    ("CrossEntropyLoss soft", lambda nn: nn.CrossEntropyLoss(), [normal(6, 5), probabilities(6, 5).astype(np.float32)]),
    ("NLLLoss", lambda nn: nn.NLLLoss(reduction="none"), [normal(6, 5), integers(5, 6)]),
    (
        "BCELoss",
        lambda nn: nn.BCELoss(),
        [probabilities(4, 3).astype(np.float32), probabilities(4, 3).astype(np.float32)],
    ),
    ("BCEWithLogitsLoss", lambda nn: nn.BCEWithLogitsLoss(), [normal(4, 3), probabilities(4, 3).astype(np.float32)]),
    (
        "KLDivLoss",
        lambda nn: nn.KLDivLoss(reduction="batchmean"),
        [normal(4, 3), probabilities(4, 3).astype(np.float32)],
    ),
    ("KLDivLoss log", lambda nn: nn.KLDivLoss(reduction="sum", log_target=True), [normal(4, 3), normal(4, 3, seed=3)]),
    ("TransformerEncoderLayer", lambda nn: nn.TransformerEncoderLayer(8, 2, 16, 0.0), [normal(5, 3, 8)]),
    (
        "TransformerEncoderLayer first",
        lambda nn: nn.TransformerEncoderLayer(8, 2, 16, 0.0, "gelu", batch_first=True, norm_first=True, bias=False),
        [normal(3, 5, 8)],
    ),
    (
        "TransformerEncoder",
        lambda nn: nn.TransformerEncoder(
            nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True), 2, nn.LayerNorm(8), enable_nested_tensor=False
        ),
        [normal(3, 5, 8)],
    ),
]


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def pair(make: Maker, device: str) -> tuple[Any, Any]:
    """The module of both frameworks, with PyTorch's weights loaded unchanged."""
    torch.manual_seed(0)
    theirs = make(torch.nn)
    with torch.no_grad():
        # Norms' ones and zeros would hide a mix-up.
        for p in theirs.parameters():
            p.add_(0.1 * torch.randn_like(p))
    ours = make(lucid.nn)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    keys = ours.load_state_dict(theirs.state_dict())
    assert not keys.missing_keys and not keys.unexpected_keys
    return ours.to(device), theirs


def inputs(arrays: list[np.ndarray], device: str) -> tuple[list[Any], list[Any]]:
    ours = [lucid.tensor(a, device=device) for a in arrays]
    theirs = [torch.tensor(a) for a in arrays]
    for o, t in zip(ours, theirs, strict=True):
        assert str(o.dtype).rpartition(".")[2] == str(t.dtype).rpartition(".")[2]
        if t.is_floating_point():
            o.requires_grad_()
            t.requires_grad_()
    return ours, theirs


def weighted_sum(out: Any, framework: Any) -> Any:
    """A scalar to which every element counts differently."""
    if out.dim() == 0:
        return out
    weights = np.linspace(-1, 1.3, math.prod(out.shape), dtype=np.float32).reshape(tuple(out.shape))
    if framework is lucid:
        return (out * lucid.tensor(weights, device=out.device)).sum()
    return (out * torch.tensor(weights)).sum()


@pytest.mark.parametrize(("name", "make", "arrays"), MODULES, ids=[m[0] for m in MODULES])
def test_outputs_gradients_and_buffers(name: str, make: Maker, arrays: list[np.ndarray], device: str) -> None:
    ours, theirs = pair(make, device)
    for training in (True, False):
        ours.train(training)
        theirs.train(training)
        ours.zero_grad()
        theirs.zero_grad()
        xs, ys = inputs(arrays, device)
        got, wanted = ours(*xs), theirs(*ys)
        where = f"{name}, training={training}, {device}"
        close(got, wanted, where=where)
        assert got.requires_grad == wanted.requires_grad, where
        if not wanted.requires_grad:
            continue
        weighted_sum(got, lucid).backward()
        weighted_sum(wanted, torch).backward()
        for x, y in zip(xs, ys, strict=True):
            if y.grad is not None:
                close(x.grad, y.grad, "backward", f"input's gradient of {where}")
        grads = {n: p.grad for n, p in theirs.named_parameters()}
        assert [n for n, _ in ours.named_parameters()] == list(grads)
        for n, p in ours.named_parameters():
            close(p.grad, grads[n], "backward", f"{n}'s gradient of {where}")
        for n, b in theirs.named_buffers():
            close(dict(ours.named_buffers())[n], b, where=f"{n} of {where}")


@pytest.mark.parametrize(("name", "make", "arrays"), MODULES, ids=[m[0] for m in MODULES])
def test_reprs_and_state_dicts(name: str, make: Maker, arrays: list[np.ndarray]) -> None:
    ours, theirs = pair(make, "cpu")
    assert repr(ours) == repr(theirs)
    own, other = ours.state_dict(), theirs.state_dict()
    for key, value in other.items():
        assert tuple(own[key].shape) == tuple(value.shape)
        assert str(own[key].dtype).rpartition(".")[2] == str(value.dtype).rpartition(".")[2]
        np.testing.assert_array_equal(numbers(own[key]), numbers(value))
    assert own._metadata == other._metadata
    # And back: PyTorch takes ours.
    back = copy.deepcopy(theirs)
    back.load_state_dict({k: torch.tensor(v.tolist(), dtype=other[k].dtype) for k, v in own.items()})


def test_constructors_take_the_same_arguments() -> None:
    own = {
        "FusedLinear",
        "MultilabelMarginLoss",
        "QuantizedEmbedding",
        "QuantizedLinear",
        "RotaryEmbedding",
        "SinusoidalEmbedding",
        "SinusoidalEmbedding2D",
        "TimestepEmbedding",
    }
    for name in lucid.nn.modules.__all__:
        if name in own or name.startswith("register_") or name == "LazyModuleMixin":
            continue
        theirs = getattr(torch.nn, name, None) or getattr(torch.utils.hooks, name)
        if name in ("Module", "RemovableHandle", "Identity", "Tanh", "Sigmoid", "Sequential"):
            continue
        if name in ("LogSigmoid", "Softmax2d", "Softsign", "Tanhshrink"):
            # They take none, which PyTorch's signatures, `Module`'s own, do not say.
            assert not inspect.signature(getattr(lucid.nn, name)).parameters
            continue
        if name in ("RNN", "LSTM", "GRU"):
            # Ours name their arguments where PyTorch's are *args.
            assert list(inspect.signature(getattr(lucid.nn, name)).parameters)[:2] == ["input_size", "hidden_size"]
            continue

        def signature(cls: Any) -> list[tuple[str, Any, Any]]:
            params = inspect.signature(cls.__init__).parameters.values()
            return [(p.name, p.kind, getattr(p.default, "__name__", p.default)) for p in params]

        assert signature(getattr(lucid.nn, name)) == signature(theirs), name


ATTENTION: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("plain", {}, {}),
    ("no weights", {}, {"need_weights": False}),
    ("each head's weights", {}, {"average_attn_weights": False}),
    ("batch first", {"batch_first": True}, {}),
    ("no bias", {"bias": False}, {}),
    ("sizes", {"kdim": 6, "vdim": 5}, {}),
    ("bias and zero", {"add_bias_kv": True, "add_zero_attn": True}, {}),
    ("bias and zero, masked", {"add_bias_kv": True, "add_zero_attn": True}, {"padding": True, "mask": "bool"}),
    ("padding", {}, {"padding": True, "need_weights": False}),
    ("bool mask", {}, {"mask": "bool", "need_weights": False}),
    ("float mask", {}, {"mask": "float"}),
    ("mask per head", {"batch_first": True}, {"mask": "heads"}),
    ("both masks", {}, {"padding": True, "mask": "float", "need_weights": False}),
    ("causal", {"self": True}, {"mask": "causal", "is_causal": True, "need_weights": False}),
    ("self-attention", {"self": True}, {}),
    ("unbatched", {"unbatched": True}, {"padding": True}),
]


@pytest.mark.parametrize(("name", "made", "called"), ATTENTION, ids=[a[0] for a in ATTENTION])
def test_attention(name: str, made: dict[str, Any], called: dict[str, Any], device: str) -> None:
    made, called = dict(made), dict(called)
    alone, unbatched = made.pop("self", False), made.pop("unbatched", False)
    ours, theirs = pair(lambda nn: nn.MultiheadAttention(8, 2, **made), device)
    assert repr(ours) == repr(theirs)
    length, keys, count = 4, 4 if alone else 5, 3
    shapes = [(length, count, 8), (keys, count, made.get("kdim", 8)), (keys, count, made.get("vdim", 8))]
    arrays = [normal(*shape, seed=i) for i, shape in enumerate(shapes)]
    if made.get("batch_first"):
        arrays = [a.swapaxes(0, 1).copy() for a in arrays]
    if unbatched:
        arrays = [a[:, 0].copy() for a in arrays]
    extra: dict[str, np.ndarray] = {}
    if called.pop("padding", False):
        hidden = np.zeros((count, keys), dtype=bool)
        hidden[1, -2:] = True
        extra["key_padding_mask"] = hidden[1] if unbatched else hidden
    mask = called.pop("mask", None)
    if mask == "bool":
        extra["attn_mask"] = np.triu(np.ones((length, keys), dtype=bool), 2)
    elif mask == "causal":
        extra["attn_mask"] = np.triu(np.ones((length, keys), dtype=bool), 1)
    elif mask == "float":
        extra["attn_mask"] = normal(length, keys, seed=7)
    elif mask == "heads":
        extra["attn_mask"] = normal(count * 2, length, keys, seed=7)
    if mask == "float" and "key_padding_mask" in extra:
        extra["key_padding_mask"] = np.where(extra["key_padding_mask"], -np.inf, 0).astype(np.float32)
    xs, ys = inputs(arrays, device)
    if alone:
        xs, ys = [xs[0]] * 3, [ys[0]] * 3
    got = ours(*xs, **{k: lucid.tensor(v, device=device) for k, v in extra.items()}, **called)
    wanted = theirs(*ys, **{k: torch.tensor(v) for k, v in extra.items()}, **called)
    close(got[0], wanted[0], where=name)
    assert (got[1] is None) == (wanted[1] is None)
    if wanted[1] is not None:
        close(got[1], wanted[1], where=f"weights of {name}")
    weighted_sum(got[0], lucid).backward()
    weighted_sum(wanted[0], torch).backward()
    close(xs[0].grad, ys[0].grad, "backward", name)
    for (n, p), (_, q) in zip(ours.named_parameters(), theirs.named_parameters(), strict=True):
        close(p.grad, q.grad, "backward", f"{n}'s gradient of {name}")


def test_pool_indices(device: str) -> None:
    for n, shape in ((1, (2, 3, 9)), (2, (2, 3, 7, 8)), (3, (1, 2, 4, 5, 6))):
        x = normal(*shape)
        for batched in (True, False):
            given = x if batched else x[0]
            ours = getattr(lucid.nn, f"MaxPool{n}d")(3, 2, 1, return_indices=True)(lucid.tensor(given, device=device))
            theirs = getattr(torch.nn, f"MaxPool{n}d")(3, 2, 1, return_indices=True)(torch.tensor(given))
            close(ours[0], theirs[0])
            assert ours[1].tolist() == theirs[1].tolist()


PADS: list[tuple[str, list[int], tuple[int, ...]]] = [
    *[(mode, [1, 2], (2, 5, 6)) for mode in ("constant", "reflect", "replicate", "circular")],
    *[(mode, [0, 2, 2, 1], (2, 3, 5, 6)) for mode in ("constant", "reflect", "replicate", "circular")],
    *[(mode, [2, -1, -1, 2], (2, 3, 5, 6)) for mode in ("constant", "circular")],
    ("constant", [-1, -1], (2, 5, 6)),
    ("replicate", [7, 8], (2, 5, 6)),
]


@pytest.mark.parametrize(("mode", "pad", "shape"), PADS)
def test_pad(mode: str, pad: list[int], shape: tuple[int, ...], device: str) -> None:
    (a,), (b,) = inputs([normal(*shape)], device)
    got, wanted = F.pad(a, pad, mode), torch.nn.functional.pad(b, pad, mode)
    close(got, wanted)
    weighted_sum(got, lucid).backward()
    weighted_sum(wanted, torch).backward()
    close(a.grad, b.grad, "backward")


def test_conv_transpose_output_size(device: str) -> None:
    ours, theirs = pair(lambda nn: nn.ConvTranspose2d(2, 3, 3, stride=2, padding=1), device)
    x = normal(1, 2, 4, 4)
    for size in ([7, 8], [1, 3, 8, 7]):
        close(ours(lucid.tensor(x, device=device), output_size=size), theirs(torch.tensor(x), output_size=size))
    with pytest.raises(ValueError, match="output size"):
        ours(lucid.tensor(x, device=device), output_size=[20, 20])


INITS: list[tuple[str, dict[str, Any]]] = [
    ("uniform_", {"a": -2.0, "b": 3.0}),
    ("normal_", {"mean": 1.0, "std": 2.0}),
    ("trunc_normal_", {"mean": 0.5, "std": 1.0, "a": -1.0, "b": 1.0}),
    ("constant_", {"val": 0.3}),
    ("ones_", {}),
    ("zeros_", {}),
    ("xavier_uniform_", {"gain": 2.0}),
    ("xavier_normal_", {}),
    ("kaiming_uniform_", {"a": math.sqrt(5)}),
    ("kaiming_uniform_", {"mode": "fan_out", "nonlinearity": "relu"}),
    ("kaiming_normal_", {}),
    ("kaiming_normal_", {"mode": "fan_out", "nonlinearity": "tanh"}),
]


@pytest.mark.parametrize(("name", "options"), INITS)
@pytest.mark.parametrize("shape", [(300, 200), (40, 30, 5, 5)])
def test_init_distributions(name: str, options: dict[str, Any], shape: tuple[int, ...], device: str) -> None:
    """The same mean, deviation, range and quantiles, each within five standard errors."""
    lucid.manual_seed(0)
    torch.manual_seed(0)
    ours = lucid.empty(shape, device=device)
    assert getattr(lucid.nn.init, name)(ours, **options) is ours
    a, b = numbers(ours).ravel(), numbers(getattr(torch.nn.init, name)(torch.empty(shape), **options)).ravel()
    error = b.std() / math.sqrt(b.size)
    assert abs(a.mean() - b.mean()) <= 5 * math.sqrt(2) * error + 1e-7
    assert abs(a.std() - b.std()) <= 0.03 * b.std() + 1e-7
    low, high = b.min() - 0.1 * np.ptp(b), b.max() + 0.1 * np.ptp(b)
    assert low - 1e-6 <= a.min() and a.max() <= high + 1e-6
    np.testing.assert_allclose(
        np.quantile(a, [0.1, 0.5, 0.9]), np.quantile(b, [0.1, 0.5, 0.9]), **within("sample quantiles", b.std() + 1e-5)
    )


@pytest.mark.parametrize("name", ["linear", "conv2d", "sigmoid", "tanh", "relu", "leaky_relu", "selu"])
@pytest.mark.parametrize("param", [None, 0.3])
def test_calculate_gain(name: str, param: float | None) -> None:
    assert lucid.nn.init.calculate_gain(name, param) == pytest.approx(torch.nn.init.calculate_gain(name, param))


MADE: list[tuple[str, Maker]] = [
    ("Linear", lambda nn: nn.Linear(300, 200)),
    ("Conv2d", lambda nn: nn.Conv2d(30, 40, 5, groups=2)),
    ("ConvTranspose2d", lambda nn: nn.ConvTranspose2d(30, 40, 5)),
    ("Embedding", lambda nn: nn.Embedding(200, 300, padding_idx=3)),
    ("MultiheadAttention", lambda nn: nn.MultiheadAttention(120, 4, add_bias_kv=True)),
    ("BatchNorm2d", lambda nn: nn.BatchNorm2d(50)),
]


@pytest.mark.parametrize(("name", "make"), MADE, ids=[m[0] for m in MADE])
def test_new_modules_start_as_pytorchs_do(name: str, make: Maker) -> None:
    lucid.manual_seed(0)
    torch.manual_seed(0)
    ours, theirs = make(lucid.nn).state_dict(), make(torch.nn).state_dict()
    for key, value in theirs.items():
        a, b = numbers(ours[key]).ravel(), numbers(value).ravel()
        assert abs(a.mean() - b.mean()) <= 7.1 * b.std() / math.sqrt(b.size) + 1e-7, key
        assert abs(a.std() - b.std()) <= max(0.05, 2 / math.sqrt(b.size)) * b.std() + 1e-7, key
        assert np.abs(a).max() <= np.abs(b).max() * 1.2 + 1e-7, key
    if name == "Embedding":
        assert not numbers(ours["weight"])[3].any()


def test_load_errors_read_as_pytorchs() -> None:
    def message(nn: Any, tensor: Any) -> str:
        model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
        with pytest.raises(RuntimeError) as caught:
            model.load_state_dict({"0.weight": tensor([1.0]), "2.weight": tensor([1.0]), "0.extra": tensor([1.0])})
        return str(caught.value).replace("torch.Size", "lucid.Size")

    assert message(lucid.nn, lucid.tensor) == message(torch.nn, torch.tensor)


def test_old_batch_norm_state_dicts_load() -> None:
    """Before version 2 there was no count of batches."""
    model, state = lucid.nn.BatchNorm1d(3), torch.nn.BatchNorm1d(3).state_dict()
    del state["num_batches_tracked"]
    state._metadata[""]["version"] = 1
    model.load_state_dict(state)
    assert model.num_batches_tracked.item() == 0


def test_transformer_trains_as_pytorchs(device: str) -> None:
    """Twenty steps of a small transformer with Adam follow PyTorch's losses."""

    def make(nn: Any) -> Any:
        layer = nn.TransformerEncoderLayer(16, 4, 32, 0.0, "gelu", batch_first=True)
        return nn.Sequential(
            nn.Embedding(11, 16), nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Linear(16, 11)
        )

    ours, theirs = pair(make, device)
    tokens = integers(11, 8, 10)
    x, y = tokens[:, :-1].copy(), tokens[:, 1:].copy()
    a = lucid.optim.Adam(ours.parameters(), lr=1e-3)
    b = torch.optim.Adam(theirs.parameters(), lr=1e-3)
    for step in range(20):
        loss = F.cross_entropy(ours(lucid.tensor(x, device=device)).transpose(1, 2), lucid.tensor(y, device=device))
        loss.eval()
        a.zero_grad()
        loss.backward()
        a.step()
        wanted = torch.nn.functional.cross_entropy(theirs(torch.tensor(x)).transpose(1, 2), torch.tensor(y))
        b.zero_grad()
        wanted.backward()
        b.step()
        assert loss.item() == pytest.approx(wanted.item(), rel=TABLE["program"].rtol), step
