"""Less common arguments of PyTorch's nn: older arguments, weights of elements, versions of state dicts."""

from __future__ import annotations

import warnings
from collections import OrderedDict
from typing import Any

import lucid
import lucid.nn as nn
import lucid.nn.functional as F
import numpy as np
import pytest
import torch
import torch.nn.grad
from lucid.nn.utils import parametrizations

from tests.python.tolerances import TABLE, within

rng = np.random.default_rng(7)
T = torch.nn.functional


def normal(*shape: int) -> np.ndarray:
    return rng.standard_normal(shape).astype(np.float32)


def numbers(x: Any) -> np.ndarray:
    return np.asarray(x.detach().cpu().numpy())


def close(x: Any, y: Any, tolerance: float = TABLE["near zero"].rtol, where: str = "") -> None:
    np.testing.assert_allclose(numbers(x), numbers(y), tolerance, tolerance, err_msg=where)


def probability(*shape: int) -> np.ndarray:
    return rng.uniform(0.05, 0.95, shape).astype(np.float32)


LABELS = np.array([2, 0, 1])
LOSSES: list[tuple[str, list[np.ndarray], dict[str, Any]]] = [
    ("mse_loss", [normal(3, 4), normal(3, 4)], {}),
    ("l1_loss", [normal(3, 4), normal(3, 4)], {}),
    ("smooth_l1_loss", [normal(3, 4), normal(3, 4)], {"beta": 0.5}),
    ("kl_div", [normal(3, 4), probability(3, 4)], {}),
    ("binary_cross_entropy", [probability(3, 4), probability(3, 4)], {}),
    ("binary_cross_entropy_with_logits", [normal(3, 4), probability(3, 4)], {}),
    ("nll_loss", [normal(3, 4), LABELS], {}),
    ("cross_entropy", [normal(3, 4), LABELS], {"label_smoothing": 0.1}),
    ("poisson_nll_loss", [normal(3, 4), probability(3, 4)], {}),
    ("hinge_embedding_loss", [normal(3, 4), np.sign(normal(3, 4))], {}),
    ("soft_margin_loss", [normal(3, 4), np.sign(normal(3, 4))], {}),
    ("margin_ranking_loss", [normal(3), normal(3), np.sign(normal(3))], {}),
    ("cosine_embedding_loss", [normal(3, 4), normal(3, 4), np.sign(normal(3))], {}),
    ("triplet_margin_loss", [normal(3, 4), normal(3, 4), normal(3, 4)], {}),
    ("multi_margin_loss", [normal(3, 4), LABELS], {}),
    ("multilabel_margin_loss", [normal(1, 4), np.array([[3, 0, -1, 1]])], {}),
    ("multilabel_soft_margin_loss", [normal(3, 4), (normal(3, 4) > 0).astype(np.float32)], {}),
]


@pytest.mark.parametrize("device", ["cpu", "gpu"])
@pytest.mark.parametrize(("name", "arrays", "options"), LOSSES, ids=[case[0] for case in LOSSES])
def test_older_names_of_reductions(name: str, arrays: list[np.ndarray], options: dict[str, Any], device: str) -> None:
    for old in ({"size_average": False}, {"size_average": True}, {"reduce": False}, {"reduce": True}, None):
        given = {**options, **(old or {})}
        with warnings.catch_warnings(record=True) as ours:
            warnings.simplefilter("always")
            got = getattr(F, name)(*(lucid.tensor(a, device=device) for a in arrays), **given)
        with warnings.catch_warnings(record=True) as theirs:
            warnings.simplefilter("always")
            wanted = getattr(T, name)(*(torch.tensor(a) for a in arrays), **given)
        close(got, wanted, where=f"{name} {old}")
        said = [[w.category for w in ws if "size_average" in str(w.message)] for ws in (ours, theirs)]
        assert said[0] == said[1] == ([UserWarning] if old else [])
        if old:
            assert str(ours[0].message) == str(theirs[0].message)


def test_older_names_of_reductions_of_modules() -> None:
    for name in ("MSELoss", "L1Loss", "SmoothL1Loss", "BCELoss", "NLLLoss", "CrossEntropyLoss", "KLDivLoss"):
        for old in ({"size_average": False}, {"reduce": False}, {"reduce": True}):
            with pytest.warns(UserWarning, match="please use reduction="):
                got = getattr(nn, name)(**old).reduction
            with pytest.warns(UserWarning):
                assert got == getattr(torch.nn, name)(**old).reduction


@pytest.mark.parametrize("device", ["cpu", "gpu"])
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("name", ["mse_loss", "l1_loss", "huber_loss"])
def test_weights_of_elements(name: str, reduction: str, device: str) -> None:
    x, y, w = normal(3, 4), normal(3, 4), probability(3, 4)
    ours = [lucid.tensor(a, device=device, requires_grad=True) for a in (x, y, w)]
    theirs = [torch.tensor(a, requires_grad=True) for a in (x, y, w)]
    got = getattr(F, name)(ours[0], ours[1], reduction=reduction, weight=ours[2])
    wanted = getattr(T, name)(theirs[0], theirs[1], reduction=reduction, weight=theirs[2])
    close(got, wanted)
    got.sum().backward()
    wanted.sum().backward()
    for a, b in zip(ours, theirs, strict=True):
        close(a.grad, b.grad)
    with pytest.raises(ValueError, match=r"same size.*\[3, 1\]"):
        getattr(F, name)(ours[0], ours[1], weight=lucid.ones(3, 1, device=device))


@pytest.mark.parametrize("name", ["mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss"])
def test_a_target_that_broadcasts_is_warned_of(name: str) -> None:
    with pytest.warns(UserWarning, match=r"target size .*\[1, 3\].* different to the input size .*\[2, 3\]"):
        getattr(F, name)(lucid.ones(2, 3), lucid.ones(1, 3))
    with pytest.warns(UserWarning, match="different to the input size"):
        getattr(T, name)(torch.ones(2, 3), torch.ones(1, 3))


@pytest.mark.parametrize("device", ["cpu", "gpu"])
@pytest.mark.parametrize("n", [1, 2, 3])
def test_pools_with_indices(n: int, device: str) -> None:
    x = normal(2, 3, *[7, 6, 8][:n])
    ours, theirs = lucid.tensor(x, device=device), torch.tensor(x)
    for name, size in ((f"max_pool{n}d_with_indices", 2), (f"adaptive_max_pool{n}d_with_indices", 3)):
        got, wanted = getattr(F, name)(ours, size), getattr(T, name)(theirs, size)
        close(got[0], wanted[0])
        assert got[1].tolist() == wanted[1].tolist()
    if n > 1:
        samples = probability(2, 3, n)
        name = f"fractional_max_pool{n}d_with_indices"
        got = getattr(F, name)(ours, 2, 3, _random_samples=lucid.tensor(samples, device=device))
        wanted = getattr(T, name)(theirs, 2, 3, _random_samples=torch.tensor(samples))
        close(got[0], wanted[0])
        assert got[1].tolist() == wanted[1].tolist()


@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_small_layers(device: str) -> None:
    x = normal(2, 7, 4, 5)
    for size in (1, 2, 3, 4, 5, 9):
        ours, theirs = nn.CrossMapLRN2d(size, 0.3, 0.6, 1.5), torch.nn.CrossMapLRN2d(size, 0.3, 0.6, 1.5)
        assert repr(ours) == repr(theirs)
        a, b = lucid.tensor(x, device=device, requires_grad=True), torch.tensor(x, requires_grad=True)
        got, wanted = ours(a), theirs(b)
        close(got, wanted, where=f"size {size}")
        assert lucid.autograd.gradcheck(ours.cpu(), [lucid.tensor(x[:1, :, :1, :1]).double().requires_grad_()])
    with pytest.raises(ValueError, match="4D, got 2D"):
        nn.CrossMapLRN2d(3)(lucid.ones(2, 3))
    series, window, bias = normal(6, 2, 3), normal(3, 3, 4), normal(4)
    got = F.conv_tbc(*(lucid.tensor(a, device=device) for a in (series, window, bias)), 1)
    close(got, T.conv_tbc(*(torch.tensor(a) for a in (series, window, bias)), 1))
    with pytest.raises(RuntimeError, match=r"conv_tbc.*\[2, 3\]"):
        F.conv_tbc(lucid.ones(2, 3), lucid.ones(3, 3, 4), lucid.ones(4))


def test_data_parallel() -> None:
    inner = nn.Linear(3, 2)
    for given in ({}, {"device_ids": [0]}, {"device_ids": [0], "output_device": 0}, {"device_ids": ["cpu"]}):
        wrapped = nn.DataParallel(inner, **given)  # type: ignore[arg-type]
        assert wrapped.module is inner
        assert list(wrapped.state_dict()) == ["module.weight", "module.bias"]
        x = lucid.ones(4, 3)
        assert lucid.equal(wrapped(x), inner(x))
        assert lucid.equal(wrapped(input=x), inner(x))
    with pytest.raises(ValueError, match=r"one GPU device.*\[0, 1\]"):
        nn.DataParallel(inner, device_ids=[0, 1])
    with pytest.raises(ValueError, match="output_device=1"):
        nn.DataParallel(inner, device_ids=[0], output_device=1)
    with pytest.raises(TypeError, match="float"):
        nn.DataParallel(inner, device_ids=[0.5])


# ---- orthogonal weights ----------------------------------------------------------------------------------------------


def pair(shape: tuple[int, ...], how: str | None, trivial: bool, device: str) -> tuple[Any, Any]:
    """The same parametrized weight here and there."""
    theirs, ours = torch.nn.Module(), nn.Module()
    theirs.weight = torch.nn.Parameter(torch.nn.init.orthogonal_(torch.empty(shape)))
    ours.weight = nn.Parameter(lucid.empty(shape, device=device).normal_())  # type: ignore[assignment]
    torch.nn.utils.parametrizations.orthogonal(theirs, orthogonal_map=how, use_trivialization=trivial)
    parametrizations.orthogonal(ours, orthogonal_map=how, use_trivialization=trivial)
    return ours, theirs


@pytest.mark.parametrize("device", ["cpu", "gpu"])
@pytest.mark.parametrize("trivial", [True, False])
@pytest.mark.parametrize("how", [None, "matrix_exp", "cayley", "householder"])
@pytest.mark.parametrize("shape", [(4, 4), (5, 3), (3, 5), (2, 4, 3), (1, 1), (4, 1)], ids=str)
def test_orthogonal_weights(shape: tuple[int, ...], how: str | None, trivial: bool, device: str) -> None:
    if not trivial and (how in ("matrix_exp", "cayley") or (how is None and shape[-1] == shape[-2])):
        module = nn.Module()
        module.weight = nn.Parameter(lucid.randn(shape, device=device))  # type: ignore[assignment]
        parametrizations.orthogonal(module, orthogonal_map=how, use_trivialization=False)
        with pytest.raises(NotImplementedError, match="use_trivialization=False"):
            module.weight = module.weight
    else:
        ours, theirs = pair(shape, how, trivial, device)
        # A matrix that is orthonormal is what it was before.
        again = nn.Module()
        again.weight = nn.Parameter(lucid.tensor(numbers(theirs.weight), device=device))  # type: ignore[assignment]
        parametrizations.orthogonal(again, orthogonal_map=how, use_trivialization=trivial)
        close(again.weight, theirs.weight)
        again.weight = lucid.tensor(numbers(theirs.weight), device=device)  # type: ignore[assignment]
        close(again.weight, theirs.weight)
    ours, theirs = nn.Module(), torch.nn.Module()
    theirs.weight = torch.nn.Parameter(torch.randn(shape))
    ours.weight = nn.Parameter(lucid.empty(shape, device=device).normal_())
    torch.nn.utils.parametrizations.orthogonal(theirs, orthogonal_map=how, use_trivialization=trivial)
    parametrizations.orthogonal(ours, orthogonal_map=how, use_trivialization=trivial)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    with torch.no_grad():
        original = theirs.parametrizations.weight.original
        original += 0.4 * torch.tensor(normal(*shape))
        if how == "householder" or (how is None and shape[-1] != shape[-2]):
            # Only signs are read from the diagonal.
            original.diagonal(0, -2, -1).copy_(torch.where(original.diagonal(0, -2, -1) > 0, 1.0, -1.0))
    ours.load_state_dict(theirs.state_dict())
    close(ours.weight, theirs.weight)
    q = numbers(ours.weight)
    q = q.swapaxes(-1, -2) if q.shape[-2] < q.shape[-1] else q
    gram = q.swapaxes(-1, -2) @ q
    np.testing.assert_allclose(gram, np.broadcast_to(np.eye(q.shape[-1]), gram.shape), **within("near zero"))
    weight = normal(*shape)
    (ours.weight * lucid.tensor(weight, device=device)).sum().backward()
    (theirs.weight * torch.tensor(weight)).sum().backward()
    close(ours.parametrizations.weight.original.grad, theirs.parametrizations.weight.original.grad, 1e-4)


def test_orthogonal_refuses() -> None:
    for call, kind in (
        (lambda p, layer: p.orthogonal(layer, orthogonal_map="polar"), ValueError),
        (lambda p, layer: p.orthogonal(layer, "bias"), ValueError),
        (lambda p, layer: p.orthogonal(layer, "nothing"), ValueError),
        (lambda p, layer: setattr(p.orthogonal(layer), "weight", layer.weight[:, :1]), ValueError),
    ):
        for p, framework in ((torch.nn.utils.parametrizations, torch), (parametrizations, lucid)):
            with pytest.raises(kind):
                call(p, framework.nn.Linear(3, 3))


# ---- versions of state dicts -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [None, 1, 2, "no metadata"])
def test_batch_norm_reads_state_dicts_of_every_version(version: Any) -> None:
    outcomes = []
    for framework in (torch, lucid):
        state = framework.nn.BatchNorm1d(3).state_dict()
        plain = OrderedDict((k, v) for k, v in state.items() if k != "num_batches_tracked")
        if version != "no metadata":
            plain._metadata = OrderedDict({"": {"version": version} if version else {}})  # type: ignore[attr-defined]
        layer = framework.nn.BatchNorm1d(3)
        layer(framework.ones(2, 3))
        try:
            layer.load_state_dict(plain)
            outcomes.append(int(layer.num_batches_tracked.item()))
        except RuntimeError as e:
            assert "num_batches_tracked" in str(e)
            outcomes.append(-1)
    assert outcomes[0] == outcomes[1]


def test_state_dicts_carry_versions() -> None:
    def model(f: Any) -> Any:
        return f.nn.Sequential(
            f.nn.Conv2d(1, 2, 1), f.nn.BatchNorm2d(2), f.nn.MultiheadAttention(4, 2), f.nn.InstanceNorm1d(2)
        )

    ours, theirs = model(lucid).state_dict(), model(torch).state_dict()
    assert {k: dict(v) for k, v in ours._metadata.items()} == {k: dict(v) for k, v in theirs._metadata.items()}


def test_utils_are_found_without_an_import() -> None:
    assert lucid.utils.data.DataLoader.__name__ == "DataLoader"
    with pytest.raises(AttributeError, match="nothing"):
        _ = lucid.utils.nothing


@pytest.mark.parametrize("n", [1, 2, 3])
def test_gradients_of_convolutions(n: int) -> None:
    rng = np.random.default_rng(n)
    x, w = (rng.standard_normal(s).astype(np.float32) for s in ((2, 4, *(7,) * n), (6, 2, *(3,) * n)))
    found = []
    for f in (lucid, torch):
        y = getattr(f.nn.functional, f"conv{n}d")(f.tensor(x), f.tensor(w), None, 2, 1, 1, 2)
        g = f.arange(float(y.numel())).reshape(y.shape).cos()
        of_input, of_weight = (getattr(f.nn.grad, f"conv{n}d_{what}") for what in ("input", "weight"))
        made = (
            of_input(x.shape, f.tensor(w), g, 2, 1, 1, 2),
            of_weight(f.tensor(x), w.shape, g, stride=2, padding=1, groups=2),
        )
        found.append([t.tolist() for t in made])
        with pytest.raises(RuntimeError):
            of_input((1, 3), f.tensor(w), g)
    for ours, theirs in zip(*found, strict=True):
        np.testing.assert_allclose(ours, theirs, **within("deep program"))


def test_packed_sequences_change_their_data() -> None:
    shown = []
    for f in (lucid, torch):
        packed = f.nn.utils.rnn.pack_sequence([f.arange(3.0), f.arange(2.0)])
        made = [getattr(packed, name)() for name in ("int", "short", "char", "byte", "long", "double", "half", "cpu")]
        shown.append([(str(p.data.dtype).split(".")[1], p.data.tolist(), p.batch_sizes.tolist()) for p in made])
        assert packed.cpu(dtype=f.float64).data.dtype == f.float64
        assert not packed.is_pinned()
    assert shown[0] == shown[1]
