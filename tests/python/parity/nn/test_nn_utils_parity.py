"""`lucid.nn.utils` and `lucid.nn.init` against PyTorch's, lazy modules, and hooks that see gradients."""

from __future__ import annotations

import copy
import importlib
import pickle
from typing import Any

import lucid
import numpy as np
import pytest
import torch
import torch.nn.utils.parametrize
import torch.nn.utils.prune

from tests.python.parity.nn import test_nn_parity as table
from tests.python.parity.nn.test_nn_parity import close, inputs, normal, numbers, pair
from tests.python.tolerances import near, within

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
    np.testing.assert_allclose(numbers(lucid.nn.utils.remove_weight_norm(ours)(x)), before, **within("few ops"))
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
        np.testing.assert_allclose(numbers(ours(x)), before, **within("few ops"))
    layer = lucid.nn.utils.parametrizations.orthogonal(lucid.nn.Linear(5, 3))
    w = layer.weight
    np.testing.assert_allclose(numbers(w @ w.t()), np.eye(3), **within("near zero"))


def test_fusion(device: str) -> None:
    conv, norm = lucid.nn.Conv2d(2, 3, 3), lucid.nn.BatchNorm2d(3)
    norm(lucid.randn(4, 3, 2, 2))
    conv.to(device).eval()
    norm.to(device).eval()
    x = lucid.tensor(normal(1, 2, 5, 5), device=device)
    fused = lucid.nn.utils.fuse_conv_bn_eval(conv, norm)
    np.testing.assert_allclose(numbers(fused(x)), numbers(norm(conv(x))), **within("program"))


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


def alike(a: Any, b: Any) -> None:
    """Nests of lists and dicts whose floats are nearly the same and whose other values are the same."""
    if isinstance(a, list):
        for x, y in zip(a, b, strict=True):
            alike(x, y)
    elif isinstance(a, dict):
        assert list(a) == list(b)
        alike(list(a.values()), list(b.values()))
    else:
        assert a == (pytest.approx(b, **near("few ops")) if isinstance(b, float) else b)


def pruned(framework: Any, place: str, seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)
    layer = framework.nn.Conv2d(3, 4, 2)
    with framework.no_grad():
        for p in layer.parameters():
            p.copy_(framework.tensor(rng.standard_normal(tuple(p.shape)).astype("float32")))
    return layer.to(place)


def masks(*layers: Any) -> list[Any]:
    return [b.tolist() for layer in layers for _, b in sorted(layer.named_buffers())]


def prune_in_turn(m: Any, place: str) -> list[Any]:
    prune, layer = m.nn.utils.prune, pruned(m, place)
    found = []
    for hook in (
        prune.L1Unstructured.apply(layer, "weight", amount=0.3),
        prune.LnStructured.apply(layer, "weight", 0.5, 2, 0),
        prune.L1Unstructured.apply(layer, "weight", 5),
        prune.Identity.apply(layer, "bias"),
    ):
        found += [type(hook).__name__, len(hook) if isinstance(hook, prune.PruningContainer) else 0, masks(layer)]
    layer(m.ones(1, 3, 3, 3, device=place)).sum().backward()
    found += [sorted(layer.state_dict()), prune.is_pruned(layer), layer.weight_orig.grad.tolist()]
    prune.remove(layer, "weight")
    prune.remove(layer, "bias")
    assert not prune.is_pruned(layer) and isinstance(layer.weight, m.nn.Parameter)
    return [*found, sorted(n for n, _ in layer.named_parameters()), layer.weight.tolist()]


def prune_globally(m: Any, place: str) -> list[Any]:
    prune, layers = m.nn.utils.prune, [pruned(m, place, seed) for seed in range(2)]
    prune.ln_structured(layers[0], "weight", 1, float("inf"), 1)
    pairs = [(layer, "weight") for layer in layers]
    prune.global_unstructured([*pairs, (layers[0], "bias")], prune.L1Unstructured, amount=0.4)
    first = masks(*layers)
    scores = {(layers[1], "weight"): m.ones(4, 3, 2, 2, device=place).cumsum(0) * 1e-3}
    prune.global_unstructured(pairs, prune.L1Unstructured, importance_scores=scores, amount=7)
    return [first, [sum(np.ravel(mask) == 0) for mask in masks(*layers)]]


def prune_by_own_methods(m: Any, place: str) -> list[Any]:
    prune = m.nn.utils.prune

    class Odd(prune.BasePruningMethod):  # type: ignore[misc]
        PRUNING_TYPE = "unstructured"

        def compute_mask(self, t: Any, default_mask: Any) -> Any:
            mask = default_mask.clone()
            mask.view(-1)[::2] = 0
            return mask

    class First(prune.BasePruningMethod):  # type: ignore[misc]
        PRUNING_TYPE = "structured"
        dim = 1

        def compute_mask(self, t: Any, default_mask: Any) -> Any:
            mask = default_mask.clone()
            mask[:, 0] = 0
            return mask

    layer, found = pruned(m, place), []
    for method in (Odd, Odd, First, First):
        method.apply(layer, "weight")
        found.append(masks(layer))
    return found


def prune_tensors(m: Any, place: str) -> list[Any]:
    prune, x = m.nn.utils.prune, m.tensor([1.0, 2.0, 3.0, 4.0], device=place)
    half = prune.L1Unstructured(2)
    within = half.prune(x, default_mask=m.tensor([1.0, 1.0, 0.0, 1.0], device=place))
    found = [half.prune(x).tolist(), within.tolist(), half.prune(x, importance_scores=-x + 5).tolist()]
    for call in (
        lambda n: prune.ln_structured(n, "weight", 1, "fro", 0),
        lambda n: prune.ln_structured(n, "weight", 0.5, -float("inf"), -1),
        lambda n: prune.ln_structured(n, "weight", 1, 1, 1, importance_scores=m.ones(4, 3, 2, 2).cumsum(1).to(place)),
        lambda n: prune.l1_unstructured(n, "weight", 0),
        lambda n: prune.custom_from_mask(n, "bias", m.tensor([0, 1, 0, 1], device=place)),
        lambda n: prune.custom_from_mask(prune.identity(n, "bias"), "bias", m.tensor([0, 1, 1, 1], device=place)),
    ):
        found.append(masks(call(pruned(m, place))))
    for call in (
        lambda n: prune.random_structured(n, "weight", 2, 0),
        lambda n: prune.random_unstructured(n, "weight", 0.25),
        lambda n: prune.RandomStructured.apply(n, "weight", 1) and n,
    ):
        # Which ones is chance; how many is not.
        found.append(np.sum(masks(call(pruned(m, place)))))
    return found


@pytest.mark.parametrize("way", [prune_in_turn, prune_globally, prune_by_own_methods, prune_tensors])
def test_pruning(way: Any, device: str) -> None:
    alike(way(lucid, device), way(torch, "cpu"))


def test_pruned_state_dicts_are_exchanged() -> None:
    ours, theirs = pruned(lucid, "cpu"), pruned(torch, "cpu", 1)
    lucid.nn.utils.prune.l1_unstructured(ours, "weight", 5)
    torch.nn.utils.prune.ln_structured(theirs, "weight", 2, 2, 0)
    ours.load_state_dict(theirs.state_dict())
    x = normal(1, 3, 4, 4)
    close(ours(lucid.tensor(x)), theirs(torch.tensor(x)))


PRUNED_WRONG: list[tuple[str, Any]] = [
    ("amount=-1", lambda m, p: p.L1Unstructured(-1)),
    ("amount=1.5", lambda m, p: p.LnStructured(1.5, 2)),
    ("Invalid type for amount", lambda m, p: p.RandomUnstructured("half")),
    ("abstract", lambda m, p: p.BasePruningMethod()),
    ("amount=99", lambda m, p: p.random_unstructured(pruned(m, "cpu"), "weight", 99)),
    ("multidimensional", lambda m, p: p.ln_structured(pruned(m, "cpu"), "bias", 1, 2, 0)),
    ("Invalid index 7", lambda m, p: p.random_structured(pruned(m, "cpu"), "weight", 1, 7)),
    ("importance_scores", lambda m, p: p.l1_unstructured(pruned(m, "cpu"), "weight", 1, m.ones(3))),
    ("importance_scores", lambda m, p: p.L1Unstructured(1).prune(m.ones(2), importance_scores=m.ones(3))),
    ("nothing", lambda m, p: p.identity(pruned(m, "cpu"), "nothing")),
    ("shape", lambda m, p: p.custom_from_mask(pruned(m, "cpu"), "weight", m.ones(3))),
    ("not an Iterable", lambda m, p: p.global_unstructured(3, p.L1Unstructured, amount=1)),
    ("unstructured", lambda m, p: p.global_unstructured([(pruned(m, "cpu"), "weight")], p.LnStructured, amount=1, n=2)),
    (
        "dict",
        lambda m, p: p.global_unstructured(
            [(pruned(m, "cpu"), "weight")], p.L1Unstructured, importance_scores=[1], amount=1
        ),
    ),
    ("has to be pruned before", lambda m, p: p.remove(pruned(m, "cpu"), "weight")),
    ("BasePruningMethod", lambda m, p: p.PruningContainer().add_pruning_method("half")),
]


@pytest.mark.parametrize(("words", "call"), PRUNED_WRONG, ids=[words for words, _ in PRUNED_WRONG])
def test_pruning_refuses(words: str, call: Any) -> None:
    kinds = []
    for m in (torch, lucid):
        with pytest.raises(Exception, match=words) as caught:
            call(m, m.nn.utils.prune)
        kinds.append(caught.type)
    assert issubclass(kinds[1], kinds[0])


def test_a_failed_method_leaves_the_module_as_it_was() -> None:
    prune = lucid.nn.utils.prune
    layer = pruned(lucid, "cpu")
    prune.l1_unstructured(layer, "weight", 5)
    before, hooks = masks(layer), list(layer._forward_pre_hooks.values())
    with pytest.raises(ValueError, match="amount"):
        prune.l1_unstructured(layer, "weight", 99)
    with pytest.raises(ValueError, match="amount"):
        prune.l1_unstructured(layer, "bias", 99)
    assert masks(layer) == before and list(layer._forward_pre_hooks.values()) == hooks and len(hooks) == 1
    assert sorted(n for n, _ in layer.named_parameters()) == ["bias", "weight_orig"]


def transferred(m: Any) -> list[Any]:
    parametrize = m.nn.utils.parametrize

    class Symmetric(m.nn.Module):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            return x.triu() + x.triu(1).transpose(-1, -2)

    class Doubled(m.nn.Module):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            return 2 * x

        def right_inverse(self, x: Any) -> Any:
            return x / 2

    def linear(n: int) -> Any:
        layer = m.nn.Linear(n, n)
        with m.no_grad():
            for p in layer.parameters():
                p.copy_(m.arange(1.0, p.numel() + 1).reshape(p.shape))
        return layer

    source, normed = linear(3), m.nn.utils.parametrizations.weight_norm(linear(2))
    parametrize.register_parametrization(source, "weight", Symmetric())
    parametrize.register_parametrization(source, "weight", Doubled())
    parametrize.register_parametrization(source, "bias", Doubled())
    found = [source.weight.tolist(), source.bias.tolist(), source.parametrizations.weight.original.tolist()]
    for origin, to, name in (
        (source, linear(3), None),
        (source, linear(3), "bias"),
        (source, m.nn.Module(), "weight"),
        (normed, linear(2), None),
        (linear(2), linear(2), None),
    ):
        assert parametrize.transfer_parametrizations_and_params(origin, to, name) is to
        found += [type(to).__name__, {k: v.tolist() for k, v in to.state_dict().items()}]
        found += [getattr(to, k).tolist() for k in ("weight", "bias") if hasattr(to, k)]
    copied = copy.deepcopy(source)
    found.append(copied.weight.tolist())
    with pytest.raises(RuntimeError, match="only supported through state_dict"):
        pickle.dumps(source)
    return found


def test_parametrizations_are_transferred() -> None:
    alike(transferred(lucid), transferred(torch))


def test_prefixes_are_taken_from_state_dicts() -> None:
    found = []
    for m in (lucid, torch):
        net = m.nn.Module()
        net.module = m.nn.Sequential(m.nn.Linear(1, 1), m.nn.BatchNorm1d(1))
        state = net.state_dict()
        state["other"] = m.ones(1)
        m.nn.modules.utils.consume_prefix_in_state_dict_if_present(state, "module.")
        found.append((sorted(state), dict(state._metadata)))
        del state["other"]
        made = m.nn.Sequential(m.nn.Linear(1, 1), m.nn.BatchNorm1d(1)).load_state_dict(state)
        assert not made.missing_keys and not made.unexpected_keys
    assert found[0] == found[1]


def test_global_hooks_are_where_pytorch_has_them() -> None:
    for m in (lucid, torch):
        module, seen = m.nn.modules.module, []
        handle = module.register_module_forward_hook(lambda layer, args, out, seen=seen: seen.append(type(layer)))
        with handle:
            m.nn.Linear(1, 1)(m.ones(1, 1))
        m.nn.Linear(1, 1)(m.ones(1, 1))
        assert seen == [m.nn.Linear]


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
        np.testing.assert_allclose(g, w, **within("near zero"))


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
    np.testing.assert_allclose(numbers(product), 4 * np.eye(min(w.shape)), **within("deep program"))


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


def _accessed(f: Any) -> list[Any]:
    """What PyTorch's accessor of named members tells, step by step; errors by their kinds and texts."""
    members = importlib.import_module(f"{f.__name__}.nn.utils._named_member_accessor")
    model = f.nn.Sequential(f.nn.Linear(2, 3), f.nn.Sequential(f.nn.BatchNorm1d(3)))
    f.nn.init.ones_(model[0].weight)
    model.plain = f.ones(1)
    accessor, told = members.NamedMemberAccessor(model), []

    def ask(call: Any) -> None:
        try:
            found = call()
        except Exception as e:
            kind = next(c.__name__ for c in type(e).__mro__ if c.__module__ == "builtins")
            found = (kind, str(e).replace("lucid", "torch"))
        told.append(found)

    names = ["0.weight", "0.bias", "1.0.weight", "1.0.bias", "1.0.running_mean", "1.0.running_var"]
    ask(lambda: [n for n, _ in accessor.named_tensors()])
    ask(lambda: [n for n, _ in accessor.named_modules()] + [n for n, _ in accessor.named_parameters()])
    ask(lambda: accessor.get_submodule("1.0") is model[1][0] and accessor.get_submodule("") is model)
    ask(lambda: [tuple(t.shape) for t in accessor.get_tensors(names)])
    former = model[0].weight
    ask(lambda: accessor.swap_tensor("0.weight", f.zeros(3, 2)) is former and model[0].weight.sum().item())
    ask(lambda: accessor.set_tensor("0.weight", former) or model[0].weight is former)
    ask(lambda: accessor.set_tensor("plain", None) or model.plain)
    ask(lambda: accessor.swap_tensor("new", f.ones(2)))
    ask(lambda: accessor.swap_tensor("new", f.ones(2), allow_missing=True) is members._MISSING and model.new.tolist())
    ask(lambda: accessor.set_tensors_dict({"1.0.running_mean": f.ones(3)}) or model[1][0].running_mean.tolist())
    ask(lambda: accessor.swap_tensors_dict({"0.bias": f.zeros(3), "0.none": f.ones(1), "0.1": f.ones(2)}))
    ask(lambda: hasattr(model[0], "none") or model[0].bias.requires_grad)
    ask(lambda: accessor.swap_tensors_dict({"0.other": f.ones(1)}, allow_missing=True)[1])
    ask(lambda: accessor.swap_tensors(["0.other", "0.bias"], [f.ones(2), f.ones(3)])[0].tolist())
    ask(lambda: accessor.set_tensors(["0.bias"], []))
    ask(lambda: accessor.check_keys(["0.weight", "2.weight"]))
    ask(lambda: accessor.del_tensors(["0.bias", "new"]) or hasattr(model[0], "bias") or hasattr(model, "new"))
    ask(lambda: accessor.del_tensor("0.bias"))
    for name in ("2", "plain", "0.weight"):
        ask(lambda name=name: accessor.get_submodule(name))
    ask(lambda: accessor.get_tensor("0.nothing"))
    ask(lambda: accessor.get_tensor("0.in_features"))
    ask(lambda: accessor.swap_tensor("0.in_features", f.ones(1)))
    ask(lambda: accessor.set_tensor("0.weight", 3))
    ask(lambda: accessor.swap_tensor("0.", f.ones(1)))
    ask(lambda: members.set_tensor(model, "0.weight", f.ones(1)))
    ask(lambda: members.set_tensor(3, "a", f.ones(1)))
    layer = f.nn.ReLU()
    ask(lambda: type(accessor.swap_submodule("1.0", layer)).__name__ + type(model[1][0]).__name__)
    ask(lambda: accessor.swap_submodule("1.5", layer))
    ask(lambda: accessor.swap_submodule("1.0", 3))
    return told


def test_named_member_accessor() -> None:
    ours, theirs = _accessed(lucid), _accessed(torch)
    assert len(ours) == len(theirs)
    for i, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        assert a == b, i
    # What was found below a submodule is not found there once another is in its place.
    from lucid.nn.utils._named_member_accessor import NamedMemberAccessor

    model = lucid.nn.Sequential(lucid.nn.Sequential(lucid.nn.Linear(2, 3)))
    accessor = NamedMemberAccessor(model)
    assert accessor.get_tensor("0.0.weight").shape == (3, 2)
    accessor.swap_submodule("0", lucid.nn.Sequential(lucid.nn.Linear(4, 5)))
    assert accessor.get_tensor("0.0.weight").shape == (5, 4)
