"""`lucid.nn.utils` and `lucid.nn.init` against PyTorch's, lazy modules, and hooks that see gradients."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import lucid
import numpy as np
import pytest
import torch

from tests.python.parity import test_nn_parity as table
from tests.python.parity.test_nn_parity import close, inputs, normal, numbers, pair

device = table.device


@pytest.mark.parametrize("order", [2.0, 1.0, 3.0, float("inf")])
def test_gradients_are_clipped(order: float, device: str) -> None:
    grads = [normal(3, 4), normal(5, seed=3)]
    ours = [lucid.nn.Parameter(lucid.zeros(g.shape, device=device)) for g in grads]
    theirs = [torch.nn.Parameter(torch.zeros(g.shape)) for g in grads]
    for p, q, g in zip(ours, theirs, grads, strict=True):
        p.grad, q.grad = lucid.tensor(g, device=device), torch.tensor(g)
    close(
        lucid.nn.utils.clip_grad_norm_(ours, 1.5, order), torch.nn.utils.clip_grad_norm_(theirs, 1.5, norm_type=order)
    )
    lucid.nn.utils.clip_grad_value_(ours, 0.2)
    torch.nn.utils.clip_grad_value_(theirs, 0.2)
    for p, q in zip(ours, theirs, strict=True):
        close(p.grad, q.grad)
    vector = lucid.nn.utils.parameters_to_vector(ours)
    lucid.nn.utils.vector_to_parameters(vector.detach() + 1, ours)
    assert all((numbers(p) == 1).all() for p in ours)


def test_norms_that_are_not_finite() -> None:
    p = lucid.nn.Parameter(lucid.ones(2))
    p.grad = lucid.tensor([float("inf"), 1.0])
    with pytest.raises(RuntimeError, match="non-finite"):
        lucid.nn.utils.clip_grad_norm_([p], 1.0, error_if_nonfinite=True)
    assert lucid.nn.utils.clip_grad_norm_([lucid.nn.Parameter(lucid.ones(2))], 1.0).item() == 0


def test_old_norms(device: str) -> None:
    def wrapped(nn: Any) -> Any:
        return nn.utils.weight_norm(nn.Linear(4, 3), dim=0)

    ours, theirs = pair(wrapped, device)
    (x,), (y,) = inputs([normal(2, 4)], device)
    close(ours(x), theirs(y))
    ours(x).sum().backward()
    theirs(y).sum().backward()
    for (n, p), (m, q) in zip(ours.named_parameters(), theirs.named_parameters(), strict=True):
        assert n == m
        close(p.grad, q.grad, "backward", n)
    before = numbers(ours(x))
    np.testing.assert_allclose(numbers(lucid.nn.utils.remove_weight_norm(ours)(x)), before, 1e-5, 1e-6)
    assert list(ours.state_dict()) == ["bias", "weight"]
    ours, theirs = pair(lambda nn: nn.utils.spectral_norm(nn.Linear(4, 3)), device)
    for training in (True, False):
        ours.train(training)
        theirs.train(training)
        close(ours(x), theirs(y))
    lucid.nn.utils.remove_spectral_norm(ours)
    assert list(ours.state_dict()) == ["bias", "weight"]


def test_parametrizations(device: str) -> None:
    for name in ("weight_norm", "spectral_norm"):

        def wrapped(nn: Any, name: str = name) -> Any:
            parametrizations = lucid.nn.utils.parametrizations
            if nn is torch.nn:
                from torch.nn.utils import parametrizations
            return getattr(parametrizations, name)(nn.Linear(4, 3))

        torch.manual_seed(0)
        theirs = wrapped(torch.nn).eval()
        ours = wrapped(lucid.nn).eval()
        ours.load_state_dict(theirs.state_dict())
        ours.to(device)
        (x,), (y,) = inputs([normal(2, 4)], device)
        close(ours(x), theirs(y), where=name)
        ours(x).sum().backward()
        theirs(y).sum().backward()
        for (n, p), (m, q) in zip(ours.named_parameters(), theirs.named_parameters(), strict=True):
            assert n == m
            close(p.grad, q.grad, "backward", n)
        parametrize = lucid.nn.utils.parametrize
        assert parametrize.is_parametrized(ours, "weight")
        before = numbers(copy.deepcopy(ours)(x))
        parametrize.remove_parametrizations(ours, "weight")
        assert type(ours) is lucid.nn.Linear
        np.testing.assert_allclose(numbers(ours(x)), before, 1e-5, 1e-6)
    layer = lucid.nn.utils.parametrizations.orthogonal(lucid.nn.Linear(5, 3))
    w = layer.weight
    np.testing.assert_allclose(numbers(w @ w.t()), np.eye(3), atol=1e-5)


def test_fusion(device: str) -> None:
    conv, norm = lucid.nn.Conv2d(2, 3, 3), lucid.nn.BatchNorm2d(3)
    norm(lucid.randn(4, 3, 2, 2))
    conv.to(device).eval()
    norm.to(device).eval()
    x = lucid.tensor(normal(1, 2, 5, 5), device=device)
    fused = lucid.nn.utils.fuse_conv_bn_eval(conv, norm)
    np.testing.assert_allclose(numbers(fused(x)), numbers(norm(conv(x))), 1e-4, 1e-5)


def test_functional_call(device: str) -> None:
    layer = lucid.nn.Linear(2, 1).to(device)
    before = layer.weight
    given = {"weight": lucid.ones(1, 2, device=device, requires_grad=True), "bias": lucid.zeros(1, device=device)}
    call = lucid.nn.utils.stateless.functional_call
    out = call(layer, given, lucid.ones(1, 2, device=device))
    assert out.item() == 2 and layer.weight is before
    out.backward()
    assert given["weight"].grad.tolist() == [[1.0, 1.0]]
    with pytest.raises(AttributeError):
        call(layer, {"other": before}, lucid.ones(1, 2, device=device))


def test_pruning(device: str) -> None:
    prune = lucid.nn.utils.prune
    layer = lucid.nn.Linear(4, 3).to(device)
    with lucid.no_grad():
        layer.weight.copy_(lucid.arange(12, device=device).reshape(3, 4).to(lucid.float32) + 1)
    prune.l1_unstructured(layer, "weight", 5)
    assert (numbers(layer.weight) == 0).sum() == 5 and numbers(layer.weight).max() == 12
    assert set(layer.state_dict()) == {"bias", "weight_orig", "weight_mask"} and prune.is_pruned(layer)
    prune.ln_structured(layer, "weight", 1, 2, 0)
    assert (numbers(layer.weight)[:2] == 0).all() or (numbers(layer.weight) == 0).sum() > 5
    kept = numbers(layer.weight)
    prune.remove(layer, "weight")
    np.testing.assert_array_equal(numbers(layer.weight), kept)
    assert not prune.is_pruned(layer) and isinstance(layer.weight, lucid.nn.Parameter)
    for wrong, kind in ((-1, ValueError), (99, ValueError), (1.5, ValueError), ("half", TypeError)):
        with pytest.raises(kind):
            prune.random_unstructured(layer, "weight", wrong)


LAZY: list[tuple[str, list[Any], tuple[int, ...]]] = [
    ("LazyLinear", [3], (2, 5)),
    ("LazyConv1d", [4, 3], (2, 3, 8)),
    ("LazyConv2d", [4, 3], (2, 3, 8, 8)),
    ("LazyConv3d", [4, 2], (2, 3, 4, 4, 4)),
    ("LazyConvTranspose1d", [4, 3], (2, 3, 8)),
    ("LazyConvTranspose2d", [4, 3], (2, 3, 4, 4)),
    ("LazyConvTranspose3d", [4, 2], (2, 3, 2, 2, 2)),
    ("LazyBatchNorm1d", [], (4, 3)),
    ("LazyBatchNorm2d", [], (4, 3, 2, 2)),
    ("LazyInstanceNorm2d", [], (4, 3, 2, 2)),
]


@pytest.mark.parametrize(("name", "args", "shape"), LAZY, ids=[entry[0] for entry in LAZY])
def test_lazy_modules(name: str, args: list[Any], shape: tuple[int, ...], device: str) -> None:
    ours = getattr(lucid.nn, name)(*args, device=device)
    theirs = getattr(torch.nn, name)(*args)
    with pytest.raises(RuntimeError, match="uninitialized"):
        _ = ours.weight.shape
    copied = copy.deepcopy(ours)
    assert repr(ours) == repr(theirs)
    theirs(torch.tensor(normal(*shape)))
    for module in (ours, copied):
        module(lucid.tensor(normal(*shape), device=device))
        assert type(module).__name__ == type(theirs).__name__ and repr(module) == repr(theirs)
        assert {k: tuple(v.shape) for k, v in module.state_dict().items()} == {
            k: tuple(v.shape) for k, v in theirs.state_dict().items()
        }
        assert type(module.weight) is lucid.nn.Parameter
    loaded = getattr(lucid.nn, name)(*args)
    loaded.load_state_dict(theirs.state_dict())
    np.testing.assert_array_equal(numbers(loaded.weight), numbers(theirs.weight))


def test_lazy_modules_are_pickled() -> None:
    made = pickle.loads(pickle.dumps(lucid.nn.LazyLinear(2)))
    assert made(lucid.ones(1, 7)).shape == (1, 2) and type(made) is lucid.nn.Linear


def test_backward_hooks(device: str) -> None:
    """The same gradients seen, and the same changes made, as in PyTorch."""

    class Two(lucid.nn.Module):
        def forward(self, a: Any, b: Any) -> Any:
            return a * b, a + b

    class TorchTwo(torch.nn.Module):
        def forward(self, a: Any, b: Any) -> Any:
            return a * b, a + b

    seen: list[list[Any]] = []
    results = []
    for module, tensor in ((Two(), lambda x: lucid.tensor(x, device=device)), (TorchTwo(), torch.tensor)):
        mine: list[Any] = []

        def hook(m: Any, grad_input: Any, grad_output: Any, mine: list[Any] = mine) -> Any:
            mine.extend(numbers(g) for g in (*grad_input, *grad_output))
            return tuple(g * 2 for g in grad_input)

        module.register_full_backward_pre_hook(lambda m, grads: tuple(g * 3 for g in grads))
        module.register_full_backward_hook(hook)
        a, b = (tensor(normal(2, 3, seed=i)).requires_grad_() for i in (1, 2))
        x, y = module(a, b)
        (x.sum() + (y * y).sum()).backward()
        seen.append(mine)
        results.append([numbers(a.grad), numbers(b.grad)])
    for g, w in zip((*seen[0], *results[0]), (*seen[1], *results[1]), strict=True):
        np.testing.assert_allclose(g, w, 1e-5, 1e-5)


def test_hooks_of_all_modules() -> None:
    nn, seen = lucid.nn.modules, []
    handles = [
        nn.register_module_forward_pre_hook(lambda m, args: seen.append("pre")),
        nn.register_module_forward_hook(lambda m, args, out: seen.append("post")),
        nn.register_module_full_backward_hook(lambda m, i, o: seen.append("backward")),
        nn.register_module_parameter_registration_hook(lambda m, name, p: seen.append(name)),
    ]
    layer = lucid.nn.Linear(2, 1)
    layer(lucid.ones(1, 2, requires_grad=True)).sum().backward()
    for handle in handles:
        handle.remove()
    lucid.nn.Linear(2, 1)(lucid.ones(1, 2))
    assert seen == ["weight", "bias", "pre", "post", "backward"]


@pytest.mark.parametrize("shape", [(6, 4), (4, 6), (3, 2, 5)])
def test_orthogonal(shape: tuple[int, ...], device: str) -> None:
    w = lucid.nn.init.orthogonal_(lucid.empty(shape, device=device), gain=2.0).reshape([shape[0], -1])
    product = w @ w.t() if w.shape[0] <= w.shape[1] else w.t() @ w
    np.testing.assert_allclose(numbers(product), 4 * np.eye(min(w.shape)), atol=1e-4)


def test_dirac_and_sparse(device: str) -> None:
    for shape, groups in (((4, 3, 3), 1), ((4, 2, 3, 3), 2), ((2, 3, 2, 3, 4), 1)):
        close(
            lucid.nn.init.dirac_(lucid.ones(shape, device=device), groups),
            torch.nn.init.dirac_(torch.ones(shape), groups),
        )
    w = numbers(lucid.nn.init.sparse_(lucid.empty((10, 4), device=device), 0.35))
    assert ((w == 0).sum(0) == 4).all()
    with pytest.warns(FutureWarning, match="deprecated in favor"):
        lucid.nn.init.constant(lucid.empty(2), 3.0)


def test_parameter_containers() -> None:
    for nn, tensor in ((lucid.nn, lucid.ones), (torch.nn, torch.ones)):
        listed = nn.ParameterList([tensor(2), nn.Parameter(tensor(3))])
        listed.append(tensor(1))
        listed += [tensor(4)]
        assert [p.shape[0] for p in listed] == [2, 3, 1, 4] and len(listed[1:3]) == 2
        assert list(listed.state_dict()) == ["0", "1", "2", "3"]
        with pytest.raises(IndexError):
            _ = listed[4]
        named = nn.ParameterDict({"b": tensor(1), "a": tensor(2)})
        assert list(named.keys()) == ["a", "b"] and "a" in named
        named["c"] = tensor(3)
        assert named.popitem()[0] == "c" and named.get("z") is None and len(named | named) == 2
        assert all(isinstance(p, nn.Parameter) for p in named.values())
