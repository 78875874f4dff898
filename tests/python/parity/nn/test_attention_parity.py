"""Scaled dot-product attention against PyTorch: masks, causality, shared heads, blind rows, dtypes, layouts."""

from __future__ import annotations

from typing import Any

import lucid
import lucid.nn.functional as F
import numpy as np
import pytest
import torch

from tests.python.tolerances import TABLE, within

TORCH = torch.nn.functional.scaled_dot_product_attention
rng = np.random.default_rng(5)


def normal(*shape: int) -> np.ndarray:
    return rng.standard_normal(shape).astype(np.float32)


def blind(*shape: int) -> np.ndarray:
    """A mask whose second row, and no other, sees nothing."""
    mask = rng.integers(0, 2, shape).astype(bool)
    mask[..., 0] = True
    mask[..., 1, :] = False
    return mask


def added(mask: np.ndarray) -> np.ndarray:
    return np.where(mask, rng.standard_normal(mask.shape), -np.inf).astype(np.float32)


Q, K, V = normal(2, 4, 5, 6), normal(2, 4, 7, 6), normal(2, 4, 7, 3)
LONG = [normal(1, 3, 90, 16), normal(1, 3, 70, 16), normal(1, 3, 70, 9)]
MASK = blind(5, 7)
#: (name, query, key and value, keyword arguments with masks as arrays)
CASES: list[tuple[str, list[np.ndarray], dict[str, Any]]] = [
    ("plain", [Q, K, V], {}),
    ("scale", [Q, K, V], {"scale": 0.2}),
    ("negative scale", [Q, K, V], {"scale": -1.5}),
    ("causal, more keys", [Q, K, V], {"is_causal": True}),
    ("causal, fewer keys", [K, Q, normal(2, 4, 5, 3)], {"is_causal": True}),
    ("causal, as many", [Q, Q, Q], {"is_causal": True}),
    ("bool", [Q, K, V], {"attn_mask": MASK}),
    ("bool per sample", [Q, K, V], {"attn_mask": blind(2, 1, 5, 7)}),
    ("bool per head", [Q, K, V], {"attn_mask": blind(4, 5, 7)}),
    ("bool for all queries", [Q, K, V], {"attn_mask": MASK[2:3]}),
    ("bool for all keys", [Q, K, V], {"attn_mask": MASK[:, 3:4]}),
    ("bool that hides all", [Q, K, V], {"attn_mask": np.zeros((5, 7), bool)}),
    ("numbers", [Q, K, V], {"attn_mask": normal(5, 7)}),
    ("numbers and infinities", [Q, K, V], {"attn_mask": added(MASK)}),
    ("numbers per sample and head", [Q, K, V], {"attn_mask": added(blind(2, 4, 5, 7))}),
    ("numbers per key", [Q, K, V], {"attn_mask": normal(2, 1, 1, 7)}),
    ("two dimensions", [Q[0, 0], K[0, 0], V[0, 0]], {"attn_mask": added(MASK)}),
    ("three dimensions", [Q[0], K[0], V[0]], {"attn_mask": blind(4, 5, 7)}),
    ("five dimensions", [x.reshape(2, 2, 2, *x.shape[2:]) for x in (Q, K, V)], {"attn_mask": blind(2, 5, 7)}),
    ("five with its mask", [x.reshape(2, 2, 2, *x.shape[2:]) for x in (Q, K, V)], {"attn_mask": blind(2, 1, 2, 5, 7)}),
    ("broadcast batch", [Q, K[:1], V[:1]], {"attn_mask": MASK}),
    ("broadcast dimensions", [Q, K[0, 0], V[0, 0]], {"is_causal": True}),
    ("shared heads", [Q, K[:, :2], V[:, :2]], {"enable_gqa": True}),
    ("one head for all", [Q, K[:, :1], V[:, :1]], {"enable_gqa": True, "is_causal": True}),
    ("shared heads with a mask", [Q, K[:, :2], V[:, :2]], {"enable_gqa": True, "attn_mask": added(blind(4, 5, 7))}),
    ("shared heads with one mask", [Q, K[:, :2], V[:, :2]], {"enable_gqa": True, "attn_mask": blind(5, 7)}),
    ("differently shared heads", [Q, K[:, :2], V[:, :1]], {"enable_gqa": True}),
    ("several blocks", LONG, {}),
    ("several blocks, causal", LONG, {"is_causal": True}),
    ("several blocks, masked", LONG, {"attn_mask": blind(3, 90, 70)}),
    ("large scores", [200 * Q, K, V], {}),
    ("no queries", [Q[:, :, :0], K, V], {}),
    ("no keys", [Q, K[:, :, :0], V[:, :, :0]], {}),
    ("no batch", [Q[:0], K[:0], V[:0]], {"attn_mask": MASK}),
]


def both(
    arrays: list[np.ndarray], options: dict[str, Any], device: str, dtype: str, layout: str = "contiguous"
) -> tuple[Any, Any]:
    """(result, gradients) here and in PyTorch."""
    found = []
    for framework, function in ((lucid, F.scaled_dot_product_attention), (torch, TORCH)):
        kind = getattr(framework, dtype)

        def make(a: np.ndarray, framework: Any = framework, kind: Any = kind) -> Any:
            place = {"device": device} if framework is lucid else {}
            if a.dtype == bool:
                return framework.tensor(a, **place)
            leaf = framework.tensor(a, **place).to(kind)
            return leaf.requires_grad_()

        def seen(x: Any) -> Any:
            # The same numbers, each row's heads beside each other.
            return x.transpose(-2, -3).contiguous().transpose(-2, -3) if layout == "heads last" else x

        leaves = [make(a) for a in arrays]
        given = {k: make(v) if isinstance(v, np.ndarray) else v for k, v in options.items()}
        y = function(*(seen(x) for x in leaves), **given)
        mask = given.get("attn_mask")
        if mask is not None and mask.dtype != framework.bool:
            leaves.append(mask)
        place = {"device": device} if framework is lucid else {}
        weight = np.linspace(-1, 1, y.numel(), dtype=np.float32).reshape(tuple(y.shape))
        (y * framework.tensor(weight, **place).to(kind)).sum().backward()
        found.append((y, [x.grad for x in leaves]))
    return found[0], found[1]


def numbers(x: Any) -> np.ndarray:
    return np.asarray(x.detach().to("cpu").to(lucid.float64 if isinstance(x, lucid.Tensor) else torch.float64).numpy())


def agree(ours: Any, theirs: Any, tolerance: float, where: str) -> None:
    np.testing.assert_allclose(numbers(ours[0]), numbers(theirs[0]), tolerance, tolerance, err_msg=where)
    for i, (x, y) in enumerate(zip(ours[1], theirs[1], strict=True)):
        if y is not None:
            wanted = numbers(y)
            most = max(1.0, np.abs(wanted).max(initial=0.0))
            got = np.zeros_like(wanted) if x is None else numbers(x)
            np.testing.assert_allclose(got, wanted, tolerance, 3 * tolerance * most, err_msg=f"{where}: gradient {i}")


@pytest.mark.parametrize("device", ["cpu", "gpu"])
@pytest.mark.parametrize(("name", "arrays", "options"), CASES, ids=[c[0] for c in CASES])
def test_values_and_gradients(name: str, arrays: list[np.ndarray], options: dict[str, Any], device: str) -> None:
    agree(*both(arrays, options, device, "float32"), 2e-4 if name == "large scores" else 2e-5, name)
    if all(a.ndim > 2 for a in arrays):
        agree(*both(arrays, options, device, "float32", "heads last"), 2e-4, f"{name}, heads last")
    if device == "cpu":
        agree(*both(arrays, options, device, "float64"), 1e-9, f"{name}, float64")


@pytest.mark.parametrize("device", ["cpu", "gpu"])
@pytest.mark.parametrize(("dtype", "tolerance"), [("float16", 1e-2), ("bfloat16", 6e-2)])
@pytest.mark.parametrize("options", [{}, {"is_causal": True}, {"attn_mask": blind(5, 7)}], ids=str)
def test_16_bit(dtype: str, tolerance: float, options: dict[str, Any], device: str) -> None:
    agree(*both([Q, K, V], options, device, dtype), tolerance, dtype)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_float32_mask_of_16_bit_queries(dtype: str) -> None:
    x = [lucid.tensor(a).to(getattr(lucid, dtype)) for a in (Q, K, V)]
    y = F.scaled_dot_product_attention(*x, lucid.tensor(added(MASK)))
    assert y.dtype == x[0].dtype and not y.isnan().any().item()
    assert not numbers(y)[..., 1, :].any()


@pytest.mark.parametrize(
    "options", [{}, {"is_causal": True}, {"attn_mask": blind(3, 4)}, {"enable_gqa": True}], ids=str
)
def test_gradients_of_gradients(options: dict[str, Any]) -> None:
    shared = 1 if options.get("enable_gqa") else 2
    shapes = [(1, 2, 3, 2), (1, shared, 4, 2), (1, shared, 4, 3)]
    leaves = [lucid.tensor(normal(*s)).to(lucid.float64).requires_grad_() for s in shapes]
    given = {k: lucid.tensor(v) if isinstance(v, np.ndarray) else v for k, v in options.items()}

    def attend(*x: Any) -> Any:
        return F.scaled_dot_product_attention(*x, **given)

    assert lucid.autograd.gradcheck(attend, leaves)
    assert lucid.autograd.gradgradcheck(attend, leaves)


@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_batches(device: str) -> None:
    q, k, v = (lucid.tensor(a, device=device) for a in (Q, K, V))
    mask = lucid.tensor(blind(2, 5, 7), device=device)

    def attend(q: Any, k: Any, v: Any, m: Any) -> Any:
        return F.scaled_dot_product_attention(q, k, v, m)

    for dims, chosen in (((0, 0, 0, 0), mask), ((0, None, None, 0), mask), ((0, 0, 0, None), mask[0])):
        own = [x if d == 0 else x[0] for x, d in zip((q, k, v), dims, strict=False)]
        got = lucid.func.vmap(attend, dims)(*own, chosen)
        each = [attend(*(x[i] if d == 0 else x for x, d in zip((*own, chosen), dims, strict=True))) for i in range(2)]
        np.testing.assert_allclose(numbers(got), numbers(lucid.stack(each)), **within("near zero"))


@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_dropout_drops_weights(device: str) -> None:
    lucid.manual_seed(3)
    q = lucid.zeros(1, 1, 1, 4, device=device)
    k, v = lucid.zeros(1, 1, 2000, 4, device=device), lucid.ones(1, 1, 2000, 1, device=device)
    # Weights of 1/2000, a quarter of them dropped, the others divided by 3/4.
    assert 0.9 < F.scaled_dot_product_attention(q, k, v, dropout_p=0.25).item() < 1.1
    assert F.scaled_dot_product_attention(q, k, v, dropout_p=0.25).item() != 1.0
    assert F.scaled_dot_product_attention(q, k, v, dropout_p=1.0).item() == 0.0
    # As PyTorch has it, and unlike in `dropout`.
    negative = F.scaled_dot_product_attention(q, k, v, dropout_p=-1.0)
    assert negative.item() == pytest.approx(1.0, rel=TABLE["program"].rtol)


@pytest.mark.parametrize("device", ["cpu", "gpu"])
@pytest.mark.parametrize("masked", [False, True])
def test_multihead_attention_with_and_without_weights(masked: bool, device: str) -> None:
    lucid.manual_seed(0)
    layer = lucid.nn.MultiheadAttention(8, 2, batch_first=True, device=device)
    x = lucid.randn(2, 5, 8, device=device, requires_grad=True)
    hidden = lucid.ones(5, 5, dtype=lucid.bool, device=device).triu(1) if masked else None
    found = []
    for need in (True, False):
        y, shown = layer(x, x, x, need_weights=need, attn_mask=hidden)
        assert (shown is not None) is need
        (g,) = lucid.autograd.grad((y * y).sum(), [x])
        found.append((numbers(y), numbers(g)))
    np.testing.assert_allclose(found[0][0], found[1][0], **within("few ops"))
    np.testing.assert_allclose(found[0][1], found[1][1], **within("program"))


def test_the_gpu_device_records_one_fused_operation() -> None:
    q, k, v = (lucid.tensor(a, device="gpu") for a in (Q, K, V))
    with lucid.profile() as p:
        F.scaled_dot_product_attention(q, k, v)
    assert p.ops["scaled_dot_product_attention"]["mlx_ops"] == 1
    assert set(p.ops) <= {"scaled_dot_product_attention", "reshape"}


BAD: list[tuple[str, Any, str]] = [
    ("dtypes", lambda f, s: s(f.ones(2, 3), f.ones(4, 3).to(f.float64), f.ones(4, 3)), "float64"),
    ("mask dtype", lambda f, s: s(f.ones(2, 3), f.ones(4, 3), f.ones(4, 3), f.ones(2, 4).to(f.int64)), "int64"),
    ("mask shape", lambda f, s: s(f.ones(2, 3), f.ones(4, 3), f.ones(4, 3), f.ones(2, 5)), "5"),
    ("large mask", lambda f, s: s(f.ones(1, 2, 3), f.ones(1, 4, 3), f.ones(1, 4, 3), f.ones(7, 2, 4)), "7"),
    (
        "causal and masked",
        lambda f, s: s(f.ones(2, 3), f.ones(4, 3), f.ones(4, 3), f.ones(2, 4), 0.0, True),
        "is_causal",
    ),
    ("a vector", lambda f, s: s(f.ones(3), f.ones(4, 3), f.ones(4, 3)), "2 dim"),
    ("sizes", lambda f, s: s(f.ones(2, 3), f.ones(4, 5), f.ones(4, 3)), "5"),
    ("lengths", lambda f, s: s(f.ones(2, 3), f.ones(4, 3), f.ones(6, 3)), "6"),
    ("heads", lambda f, s: s(f.ones(1, 4, 2, 3), f.ones(1, 3, 4, 3), f.ones(1, 3, 4, 3)), "3"),
    ("shared", lambda f, s: s(f.ones(1, 4, 2, 3), f.ones(1, 3, 4, 3), f.ones(1, 3, 4, 3), enable_gqa=True), "heads"),
    ("whole numbers", lambda f, s: s(*(f.ones(2, 3).to(f.int64) for _ in range(3))), "int64"),
    ("dropout", lambda f, s: s(f.ones(2, 3), f.ones(4, 3), f.ones(4, 3), dropout_p=2.0), "2"),
    ("positional scale", lambda f, s: s(f.ones(2, 3), f.ones(4, 3), f.ones(4, 3), None, 0.0, False, 1.0), "positional"),
]


@pytest.mark.parametrize("device", ["cpu", "gpu"])
@pytest.mark.parametrize(("name", "call", "says"), BAD, ids=[b[0] for b in BAD])
def test_refusals(name: str, call: Any, says: str, device: str) -> None:
    with pytest.raises(Exception) as wanted:
        call(torch, TORCH)
    lucid.set_default_device(device)
    try:
        with pytest.raises(wanted.type, match=says) as got:
            call(lucid, F.scaled_dot_product_attention)
    finally:
        lucid.set_default_device("cpu")
    # The GPU device refuses float64 before.
    assert name == "dtypes" or "scaled_dot_product_attention" in str(got.value)


QUERIES = {
    "row-major": lambda m, d: m.ones(2, 3, 5, 4, device=d),
    "heads put first": lambda m, d: m.ones(2, 5, 3, 4, device=d).transpose(1, 2),
    "one of three": lambda m, d: m.ones(2, 5, 36, device=d).split(12, 2)[1].view(2, 5, 3, 4).transpose(1, 2),
    "batch second": lambda m, d: m.ones(5, 2, 3, 4, device=d).permute(1, 2, 0, 3),
}


@pytest.mark.parametrize("device", ["cpu", "gpu"])
@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("query", QUERIES)
def test_the_result_lies_as_the_query_does(query: str, grad: bool, device: str) -> None:
    """So heads that were put first are put back in a view."""

    def run(m: Any, d: str) -> Any:
        q = QUERIES[query](m, d).requires_grad_(grad)
        y = m.nn.functional.scaled_dot_product_attention(q, q, q, is_causal=True)
        flat = y.transpose(1, 2).view(2, 5, -1) if query == "heads put first" else y
        return y.stride(), y.is_contiguous(), y._is_view(), flat.shape == (2, 5, 12), flat.tolist()

    theirs, ours = run(torch, "cpu"), run(lucid, device)
    assert ours[:-1] == theirs[:-1]
    np.testing.assert_allclose(np.asarray(ours[-1]), np.asarray(theirs[-1]), rtol=TABLE["few ops"].rtol)
