"""`lucid.einops` against PyPI's `einops` on PyTorch's tensors; and that package on Lucid's own."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import einops
import lucid
import lucid.einops as ours
import numpy as np
import pytest
import torch
from lucid.einops.layers import EinMix, Rearrange, Reduce

from tests.python.tolerances import TABLE, within

DEVICES = ["cpu", "gpu"]

#: Function, pattern, shape, further arguments.
CASES: list[tuple[str, str, tuple[int, ...], dict[str, Any]]] = [
    ("rearrange", "a b c -> a b c", (2, 3, 4), {}),
    ("rearrange", "a b c -> c (b a)", (2, 3, 4), {}),
    ("rearrange", "(a x) (b y) -> x y (a b)", (4, 6), {"x": 2, "b": 3}),
    ("rearrange", "... c -> c ...", (2, 3, 4), {}),
    ("rearrange", "b ... -> b (...)", (2, 3, 4), {}),
    ("rearrange", "b ... c -> (... b) c", (2, 3, 5, 4), {}),
    ("rearrange", "... -> ...", (), {}),
    ("rearrange", "a 1 () b -> b a 1", (3, 1, 1, 4), {}),
    ("rearrange", "b (h w c) -> b c h w", (0, 12), {"h": 2, "w": 3}),
    ("rearrange", "seq   batch_1  c1 -> batch_1 seq c1", (3, 2, 4), {}),
    *(
        ("reduce", p, s, {"reduction": r, **k})
        for r in ("min", "max", "sum", "mean", "prod")
        for p, s, k in (
            ("a b c -> a", (2, 3, 4), {}),
            ("a b c -> () b ()", (2, 3, 4), {}),
            ("b (h k) (w l) -> (w h) b", (2, 4, 6), {"k": 2, "l": 3}),
            ("... c -> ...", (2, 3, 4), {}),
            ("a ... c -> c a", (2, 3, 2, 4), {}),
            ("a b -> b a", (2, 3), {}),
            ("... ->", (2, 3), {}),
        )
    ),
    ("repeat", "a b -> a b k", (2, 3), {"k": 2}),
    ("repeat", "a b -> (k a) (b l)", (2, 3), {"k": 2, "l": 3}),
    ("repeat", "a -> a 3 1 2", (2,), {}),
    ("repeat", "... c -> c k ...", (2, 3, 4), {"k": 3}),
    ("repeat", "(a x) -> x (a 2)", (6,), {"x": 3}),
    ("repeat", "-> k", (), {"k": 3}),
    ("repeat", "a b -> b a", (2, 3), {}),
    ("repeat", "a -> a k", (2,), {"k": 0}),
]


def data(*shape: int) -> Any:
    return np.random.default_rng(1).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("name", "pattern", "shape", "more"), CASES, ids=lambda x: str(x))
@pytest.mark.parametrize("package", ["lucid", "einops"])
def test_values_and_gradients(
    package: str, name: str, pattern: str, shape: tuple[int, ...], more: dict[str, Any], device: str
) -> None:
    x = lucid.tensor(data(*shape), device=device, requires_grad=True)
    y = torch.tensor(data(*shape), requires_grad=True)
    got = getattr(ours if package == "lucid" else einops, name)(x, pattern, **more)
    want = getattr(einops, name)(y, pattern, **more)
    assert tuple(got.shape) == tuple(want.shape)
    np.testing.assert_allclose(got.detach().cpu().numpy(), want.detach().numpy(), **within("few ops"))
    weight = data(*want.shape)
    (got * lucid.tensor(weight, device=device)).sum().backward()
    (want * torch.tensor(weight)).sum().backward()
    np.testing.assert_allclose(x.grad.cpu().numpy(), y.grad.numpy(), **within("few ops"))
    # A temporary as the input gives the same.
    again = getattr(ours, name)(lucid.tensor(data(*shape), device=device) + 0, pattern, **more)
    np.testing.assert_allclose(again.cpu().numpy(), want.detach().numpy(), **within("few ops"))


@pytest.mark.parametrize("device", DEVICES)
def test_lists_are_stacked(device: str) -> None:
    parts = [data(2, 3) + i for i in range(4)]
    got = ours.rearrange([lucid.tensor(p, device=device) for p in parts], "n h w -> h (n w)")
    assert got.tolist() == einops.rearrange([torch.tensor(p) for p in parts], "n h w -> h (n w)").tolist()


@pytest.mark.parametrize("reduction", ["any", "all"])
@pytest.mark.parametrize("device", DEVICES)
def test_bools_are_reduced(reduction: str, device: str) -> None:
    x = data(3, 4, 2) > 0
    got = ours.reduce(lucid.tensor(x, device=device), "a b c -> b", reduction)
    assert got.tolist() == einops.reduce(torch.tensor(x), "a b c -> b", reduction).tolist()


def test_a_function_reduces() -> None:
    got = ours.reduce(lucid.tensor(data(3, 4)), "a b -> b", lambda x, dims: x.logsumexp(dims))
    want = einops.reduce(torch.tensor(data(3, 4)), "a b -> b", lambda x, dims: x.logsumexp(dims))
    np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=TABLE["rounding"].rtol)


def test_results_are_views() -> None:
    x = lucid.tensor(data(2, 12, 3))
    for got in (
        ours.rearrange(x, "b (h w) c -> b c h w", h=3),
        ours.repeat(x, "b n c -> b k n c", k=4),
        *ours.unpack(x, [(2, 3), (6,)], "b * c"),
    ):
        assert got._base is x or (got.data_ptr() >= x.data_ptr() and got._is_view())


def test_what_is_recorded() -> None:
    x = lucid.tensor(data(2, 12, 3))
    with lucid.profile() as seen:
        ours.reduce(x, "b (h w) c -> w b h", "sum", h=3)
    counted = {name: op["calls"] for name, op in seen.ops.items()}
    assert counted == {"reshape": 1, "sum": 1, "permute": 1}


EINSUMS = [
    ("i k, k j -> i j", [(2, 3), (3, 4)]),
    ("batch row col, col -> row batch", [(2, 3, 4), (4,)]),
    ("... in_dim, out_dim in_dim -> ... out_dim", [(2, 5, 3), (4, 3)]),
    ("i i ->", [(3, 3)]),
    ("a b c, c b d, a g k -> a b k", [(2, 3, 4), (4, 3, 2), (2, 3, 2)]),
]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("pattern", "shapes"), EINSUMS)
def test_einsum(pattern: str, shapes: list[tuple[int, ...]], device: str) -> None:
    arrays = [data(*s) for s in shapes]
    here = [lucid.tensor(a, device=device) for a in arrays]
    want = einops.einsum(*map(torch.tensor, arrays), pattern).numpy()
    for got in (ours.einsum(*here, pattern), ours.einsum(pattern, *here), einops.einsum(*here, pattern)):
        np.testing.assert_allclose(got.cpu().numpy(), want, **within("near zero"))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("package", [ours, einops])
def test_pack_and_unpack(package: Any, device: str) -> None:
    arrays = [data(2, 5), data(2, 3, 5), data(2, 3, 4, 5), data(2, 0, 5)]
    packed, shapes = package.pack([lucid.tensor(a, device=device) for a in arrays], "b * c")
    want, theirs = einops.pack([torch.tensor(a) for a in arrays], "b * c")
    assert packed.tolist() == want.tolist()
    assert [tuple(s) for s in shapes] == [tuple(s) for s in theirs]
    for got, was in zip(package.unpack(packed, shapes, "b * c"), arrays, strict=True):
        assert got.tolist() == was.tolist()
    for open_ in ([(1,), (-1,)], [(2, -1), (), (1, 1)], [(-1, 4)]):
        got = [t.shape for t in package.unpack(packed, open_, "b * c")]
        assert [tuple(s) for s in got] == [tuple(t.shape) for t in einops.unpack(want, open_, "b * c")]


def test_parse_shape() -> None:
    for pattern in ("b _ c", "... c", "b ... _", "b _ 4"):
        assert ours.parse_shape(lucid.zeros(2, 3, 4), pattern) == einops.parse_shape(torch.zeros(2, 3, 4), pattern)


BAD = [
    ("rearrange", (lambda f: (f.zeros(2, 3), "a b -> a c")), {}),
    ("rearrange", (lambda f: (f.zeros(2, 3), "a b c -> c b a")), {}),
    ("rearrange", (lambda f: (f.zeros(2, 3), "a (b c) -> a b c")), {}),
    ("rearrange", (lambda f: (f.zeros(2, 3), "a (b c) -> a b c")), {"b": 2}),
    ("rearrange", (lambda f: (f.zeros(2, 3), "a b -> b a")), {"q": 2}),
    ("rearrange", (lambda f: (f.zeros(2, 3), "a a -> a a")), {}),
    ("rearrange", (lambda f: (f.zeros(2, 3), "((a) b) -> a b")), {}),
    ("rearrange", (lambda f: (f.zeros(2, 3), "(a b -> a b")), {}),
    ("rearrange", (lambda f: (f.zeros(2, 3), "a b) -> a b")), {}),
    ("rearrange", (lambda f: (f.zeros(2, 3), "a 3 -> 3 a")), {}),
    ("rearrange", (lambda f: (f.zeros(2, 3), "(... a) -> a ...")), {}),
    ("rearrange", (lambda f: (f.zeros(2, 3), "a b -> b ...")), {}),
    ("rearrange", (lambda f: (f.zeros(2, 3), "a _b -> _b a")), {}),
    ("rearrange", (lambda f: (f.zeros(2, 3), "a b. -> b. a")), {}),
    ("rearrange", (lambda f: (f.zeros(2), "a b ... -> b a ...")), {}),
    ("rearrange", (lambda f: (f.zeros(2, 3), "a 1 -> a")), {}),
    ("repeat", (lambda f: (f.zeros(2), "a -> a k")), {}),
    ("repeat", (lambda f: (f.zeros(2, 3), "a b -> a k")), {"k": 2}),
    ("reduce", (lambda f: (f.zeros(2, 3), "a b -> a c", "sum")), {"c": 2}),
    ("reduce", (lambda f: (f.zeros(2, 3), "a b -> a", "median")), {}),
    ("reduce", (lambda f: (f.zeros(2, 3, dtype=f.int64), "a b -> a", "mean")), {}),
    ("einsum", (lambda f: (f.zeros(2, 3), f.zeros(3, 2), "i k, k j")), {}),
    ("einsum", (lambda f: (f.zeros(2, 3), "(i k) -> i")), {}),
    ("einsum", (lambda f: (f.zeros(2, 3), "i -> i")), {}),
    ("einsum", (lambda f: ("i -> i",)), {}),
    ("pack", (lambda f: ([f.zeros(2, 3)], "a b")), {}),
    ("pack", (lambda f: ([f.zeros(2)], "a * b")), {}),
    ("pack", (lambda f: ([f.zeros(2, 3), f.zeros(3, 3)], "a *")), {}),
    ("unpack", (lambda f: (f.zeros(2, 3), [(2,), (2,)], "a *")), {}),
    ("unpack", (lambda f: (f.zeros(2, 3), [(-1,), (-1,)], "a *")), {}),
    ("unpack", (lambda f: (f.zeros(2, 3), [(3,)], "a b *")), {}),
    ("parse_shape", (lambda f: (f.zeros(2, 3), "a b c")), {}),
    ("parse_shape", (lambda f: (f.zeros(2, 3), "(a b) c")), {}),
    ("parse_shape", (lambda f: (f.zeros(2, 3), "a 1")), {}),
]


@pytest.mark.parametrize("at", range(len(BAD)))
def test_bad_patterns(at: int) -> None:
    name, made, more = BAD[at]
    with pytest.raises(Exception) as there:
        getattr(einops, name)(*made(torch), **more)
    kind = next(k for k in (NotImplementedError, RuntimeError, ValueError, TypeError) if issubclass(there.type, k))
    with pytest.raises(kind):
        getattr(ours, name)(*made(lucid), **more)


@pytest.mark.parametrize("bad", [2.5, -1, True, "2", [2]])
def test_bad_lengths(bad: Any) -> None:
    with pytest.raises(ours.EinopsError):
        ours.rearrange(lucid.zeros(4), "(a b) -> a b", a=bad)
    with pytest.raises(ours.EinopsError, match="'axes -> axes'"):
        ours.rearrange(lucid.zeros(4), "a")
    with pytest.raises(TypeError, match="expected a tensor"):
        ours.rearrange(bad, "a -> a")


@pytest.mark.parametrize("device", DEVICES)
def test_layers(device: str) -> None:
    x = lucid.tensor(data(2, 3, 4, 6), device=device)
    model = lucid.nn.Sequential(Rearrange("b c (h k) w -> b (c k) h w", k=2), Reduce("b c h w -> b c w", "max"))
    want = einops.reduce(torch.tensor(data(2, 3, 4, 6)), "b c (h k) w -> b (c k) w", "max", k=2)
    assert model(x).tolist() == want.tolist()
    assert repr(model[0]) == "Rearrange('b c (h k) w -> b (c k) h w', k=2)"


@pytest.mark.parametrize(
    ("pattern", "weight", "bias", "lengths", "shape"),
    [
        ("t b i -> t b o", "i o", "o", {"i": 3, "o": 4}, (2, 5, 3)),
        ("t b (head i) -> t b (head o)", "head i o", None, {"head": 2, "i": 3, "o": 4}, (2, 5, 6)),
        ("b ... i -> b ... o", "i o", "o", {"i": 3, "o": 4}, (2, 5, 6, 3)),
        ("b h w -> b w k", "h k", "k", {"h": 3, "k": 2}, (2, 3, 4)),
        ("b c -> b c", "c", "", {"c": 3}, (2, 3)),
    ],
)
def test_einmix(pattern: str, weight: str, bias: str | None, lengths: dict[str, int], shape: tuple[int, ...]) -> None:
    from einops.layers.torch import EinMix as Theirs

    here, there = EinMix(pattern, weight, bias, **lengths), Theirs(pattern, weight, bias, **lengths)
    assert {k: tuple(v.shape) for k, v in here.named_parameters()} == {
        k: tuple(v.shape) for k, v in there.named_parameters()
    }
    here.load_state_dict({k: lucid.tensor(v.numpy()) for k, v in there.state_dict().items()})
    want = there(torch.tensor(data(*shape))).detach().numpy()
    np.testing.assert_allclose(here(lucid.tensor(data(*shape))).detach().numpy(), want, **within("few ops"))
    for bad in ({"weight_shape": "(i o)"}, {"weight_shape": "q"}, {"bias_shape": "zz"}, {"nothing": 3}):
        with pytest.raises(ours.EinopsError):
            EinMix(**{"pattern": pattern, "weight_shape": weight, "bias_shape": bias, **lengths, **bad})


@pytest.mark.parametrize("order", ["einops, lucid", "lucid, einops"])
def test_the_package_works_in_either_order_of_import(order: str) -> None:
    code = f"""
import {order}, sys
for device in ("cpu", "gpu"):
    x = lucid.ones(2, 3, device=device, requires_grad=True)
    einops.reduce(einops.repeat(x, "a b -> (b k) a", k=2), "b a -> b", "sum").sum().backward()
    print(x.grad.tolist(), "torch" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "[[2.0, 2.0, 2.0], [2.0, 2.0, 2.0]] False\n" * 2


def test_under_vmap() -> None:
    x = lucid.tensor(data(3, 4, 6))
    got = lucid.vmap(lambda t: ours.rearrange(t, "a (b c) -> c (a b)", b=2))(x)
    assert lucid.equal(got, ours.rearrange(x, "n a (b c) -> n c (a b)", b=2))
