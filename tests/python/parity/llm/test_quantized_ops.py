"""The `quantized` family: MLX's bits, products against dequantised matrices, gradients, layers, refusals."""

from __future__ import annotations

from typing import Any

import lucid
import mlx.core as mx
import numpy as np
import pytest
from lucid import _C, nn

from tests.python import limitations
from tests.python.tolerances import within

DEVICES = ("cpu", "gpu")
FORMATS = [(bits, group) for bits in (2, 3, 4, 5, 6, 8) for group in (32, 64, 128)]


def matrices(*shape: int) -> np.ndarray:
    """Rows of many kinds: ordinary, constant, zero, one-sided, tiny, with one large element."""
    rng = np.random.default_rng(0)
    w = rng.normal(size=shape).astype(np.float32)
    flat = w.reshape(-1, shape[-1])
    flat[0], flat[1], flat[2], flat[3] = 0, 2.5, -1.25, np.abs(flat[3])
    flat[4] *= 1e-9
    flat[5, 7] = 1e4
    flat[6] = -np.abs(flat[6])
    return w


@pytest.mark.parametrize(("bits", "group"), FORMATS)
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_quantize_is_that_of_mlx_bit_by_bit(bits: int, group: int, dtype: str) -> None:
    w = matrices(9, 256)
    x = mx.array(w).astype(getattr(mx, dtype))
    wanted = [np.array(p.astype(mx.float32) if i else p) for i, p in enumerate(mx.quantize(x, group, bits))]
    for device in DEVICES:
        parts = lucid.quantize_affine(
            lucid.tensor(w, device=device).to(getattr(lucid, dtype)), group_size=group, bits=bits
        )
        assert parts[0].dtype == lucid.int32
        np.testing.assert_array_equal(parts[0].cpu().numpy().view(np.uint32), wanted[0])
        for got, want in zip(parts[1:], wanted[1:], strict=True):
            assert got.dtype == getattr(lucid, dtype)
            np.testing.assert_array_equal(got.float().cpu().numpy(), want)
        back = lucid.dequantize_affine(*parts, group_size=group, bits=bits)
        assert back.dtype == getattr(lucid, dtype)
        theirs = mx.dequantize(*mx.quantize(x, group, bits), group, bits).astype(mx.float32)
        # MLX rounds the product and the sum to 16 bits each, Lucid their result: a row's largest numbers set the step.
        step = {"float32": 1e-6, "float16": 2**-10, "bfloat16": 2**-7}[dtype]
        wrong = np.abs(back.float().cpu().numpy() - np.array(theirs))
        assert (wrong <= step * np.abs(w).max(axis=1, keepdims=True)).all()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("bits", "group"), FORMATS)
def test_products_are_those_of_dequantised_matrices(bits: int, group: int, device: str) -> None:
    rng = np.random.default_rng(1)
    form = {"group_size": group, "bits": bits}
    w = lucid.tensor(rng.normal(size=(70, 256)).astype(np.float32), device=device)
    parts = lucid.quantize_affine(w, **form)
    dense = lucid.dequantize_affine(*parts, **form)
    for shape in ((256,), (1, 256), (3, 256), (2, 5, 256), (40, 256), (0, 256)):
        x = lucid.tensor(rng.normal(size=shape).astype(np.float32), device=device)
        got = lucid.quantized_matmul(x, *parts, **form)
        np.testing.assert_allclose(got.cpu().numpy(), (x @ dense.T).cpu().numpy(), **within("quantised product"))
    for rows in (1, 40):
        x = lucid.tensor(rng.normal(size=(rows, 70)).astype(np.float32), device=device)
        got = lucid.quantized_matmul(x, *parts, transpose=False, **form)
        np.testing.assert_allclose(got.cpu().numpy(), (x @ dense).cpu().numpy(), **within("quantised product"))
    for dtype in (lucid.float16, lucid.bfloat16):
        x = lucid.tensor(rng.normal(size=(2, 256)).astype(np.float32), device=device).to(dtype)
        got = lucid.quantized_matmul(x, *parts, **form)
        assert got.dtype == dtype
        wanted = x.float() @ lucid.dequantize_affine(parts[0], parts[1].to(dtype), parts[2].to(dtype), **form).float().T
        np.testing.assert_allclose(
            got.float().cpu().numpy(), wanted.cpu().numpy(), **within("quantised product of halves")
        )


@pytest.mark.parametrize("device", DEVICES)
def test_gathered_products(device: str) -> None:
    rng = np.random.default_rng(2)
    w = lucid.tensor(rng.normal(size=(4, 24, 64)).astype(np.float32), device=device)
    parts = lucid.quantize_affine(w, bits=8)
    dense = lucid.dequantize_affine(*parts, bits=8).cpu().numpy()
    x = lucid.tensor(rng.normal(size=(5, 3, 64)).astype(np.float32), device=device, requires_grad=True)
    lhs, rhs = np.array([[0, 4, 4], [2, 0, 1]]), np.array([3, 0, 3])
    got = lucid.gather_qmm(x, *parts, lucid.tensor(rhs, device=device), lucid.tensor(lhs, device=device), bits=8)
    wanted = np.einsum("abmk,bnk->abmn", x.detach().cpu().numpy()[lhs], dense[rhs])
    assert got.shape == (2, 3, 3, 24)
    np.testing.assert_allclose(got.detach().cpu().numpy(), wanted, **within("quantised product"))
    (got * got).sum().backward()
    grad = np.zeros((5, 3, 64), np.float32)
    np.add.at(grad, lhs, np.einsum("abmn,bnk->abmk", 2 * wanted, dense[rhs]))
    np.testing.assert_allclose(x.grad.cpu().numpy(), grad, **within("quantised gradient"))
    for bad in (4, -1):
        with pytest.raises(lucid.errors.IndexError, match="out of"):
            lucid.gather_qmm(
                x, *parts, lucid.tensor([bad], device=device), lucid.tensor([0], device=device), bits=8
            ).eval()


@pytest.mark.parametrize("device", DEVICES)
def test_gradients(device: str) -> None:
    rng = np.random.default_rng(3)
    parts = lucid.quantize_affine(lucid.tensor(rng.normal(size=(10, 64)).astype(np.float32), device=device))
    dense = lucid.dequantize_affine(*parts)
    x = lucid.tensor(rng.normal(size=(2, 3, 64)).astype(np.float32), device=device, requires_grad=True)
    (lucid.quantized_matmul(x, *parts) ** 2).sum().backward()
    wanted = 2 * (x.detach() @ dense.T) @ dense
    np.testing.assert_allclose(x.grad.cpu().numpy(), wanted.cpu().numpy(), **within("quantised gradient"))
    each = lucid.func.vmap(lambda r: lucid.quantized_matmul(r, *parts))(x.detach())
    np.testing.assert_allclose(each.cpu().numpy(), (x.detach() @ dense.T).cpu().numpy(), **within("quantised product"))
    scales = parts[1].clone().requires_grad_()
    with pytest.raises(lucid.errors.LucidError, match="derivative"):
        lucid.quantized_matmul(x, parts[0], scales, parts[2]).sum().backward()


@pytest.mark.parametrize("device", DEVICES)
def test_layers(device: str) -> None:
    lucid.manual_seed(0)
    linear = nn.Linear(128, 20, device=device)
    layer = nn.QuantizedLinear.from_linear(linear, 32, 8)
    x = lucid.randn(4, 128, device=device)
    np.testing.assert_allclose(
        layer(x).detach().cpu().numpy(), linear(x).detach().cpu().numpy(), **within("8-bit weights")
    )
    assert set(dict(layer.named_parameters())) == {"bias"}
    state = layer.state_dict()
    again = nn.QuantizedLinear(128, 20, group_size=32, bits=8, device=device)
    again.load_state_dict(state)
    np.testing.assert_array_equal(again(x).detach().cpu().numpy(), layer(x).detach().cpu().numpy())
    table = nn.Embedding(12, 64, device=device)
    packed = nn.QuantizedEmbedding.from_embedding(table, 64, 8)
    ids = lucid.tensor([[0, 11, 3]], device=device)
    np.testing.assert_allclose(
        packed(ids).detach().cpu().numpy(), table(ids).detach().cpu().numpy(), **within("8-bit weights")
    )
    np.testing.assert_allclose(
        packed.as_linear(x[:, :64]).cpu().numpy(),
        (x[:, :64] @ packed.dequantize().T).cpu().numpy(),
        **within("quantised gradient"),
    )
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Sequential(nn.Linear(64, 7), nn.Linear(7, 2))).to(device)
    before = model(x[:, :64]).detach().cpu().numpy()
    size = lucid.quantization.model_bytes(model)
    mixed = lucid.quantization.quantize(model, 4, 32, lambda path, m: {"bits": 8} if path == "0" else "2.1" not in path)
    assert [m.bits for m in mixed.modules() if isinstance(m, nn.QuantizedLinear)] == [8, 4]
    assert lucid.quantization.model_bytes(model) < 0.5 * size
    np.testing.assert_allclose(model(x[:, :64]).detach().cpu().numpy(), before, **within("4-bit weights"))
    packed_out = model(x[:, :64]).detach().cpu().numpy()
    floats = lucid.quantization.dequantize(model)
    assert not any(isinstance(m, nn.QuantizedLinear) for m in floats.modules())
    np.testing.assert_allclose(floats(x[:, :64]).detach().cpu().numpy(), packed_out, **within("quantised product"))


@pytest.mark.parametrize("device", DEVICES)
def test_refusals(device: str) -> None:
    w = lucid.randn(4, 64, device=device)
    parts = lucid.quantize_affine(w)
    x = lucid.randn(2, 64, device=device)
    cases: list[tuple[Any, str]] = [
        (lambda: lucid.quantize_affine(w, bits=7), "bits must be"),
        (lambda: lucid.quantize_affine(w, group_size=16), "group_size must be"),
        (lambda: lucid.quantize_affine(w[:, :40]), "multiple of group_size"),
        (lambda: lucid.quantize_affine(w[0]), "2-D"),
        (lambda: lucid.quantize_affine(w.int()), "not implemented for int32"),
        (lambda: lucid.dequantize_affine(parts[0].long(), *parts[1:]), "int32"),
        (lambda: lucid.dequantize_affine(*parts, bits=8), "do not fit"),
        (lambda: lucid.dequantize_affine(*parts, group_size=32), "do not fit"),
        (lambda: lucid.dequantize_affine(parts[0], parts[1][:3], parts[2][:3]), "do not fit"),
        (lambda: lucid.dequantize_affine(parts[0], parts[1], parts[2].half()), "same dtype"),
        (lambda: lucid.quantized_matmul(x[:, :63], *parts), "last of size 64"),
        (lambda: lucid.quantized_matmul(x, *parts, transpose=False), "last of size 4"),
        (lambda: lucid.quantized_matmul(x.int(), *parts), "not implemented for int32"),
        (lambda: lucid.quantized_matmul(x[0, 0], *parts), "at least 1"),
        (lambda: lucid.gather_qmm(x[None], *parts, lucid.tensor([0], device=device)), "shape"),
        (lambda: nn.QuantizedLinear(60, 2), "groups"),
    ]
    for call, words in cases:
        with pytest.raises(lucid.errors.LucidError, match=words):
            call()
    # Rows of no elements, and no rows.
    assert lucid.quantize_affine(lucid.empty(0, 64, device=device))[0].shape == (0, 8)
    none = lucid.quantize_affine(lucid.empty(0, 64, device=device))
    assert lucid.quantized_matmul(x, *none).shape == (2, 0)
    assert lucid.quantized_matmul(lucid.ones(2, 0, device=device), *none, transpose=False).tolist() == [[0.0] * 64] * 2


def rounded(x: np.ndarray) -> np.ndarray:
    """Groups of 32 rounded to 8 bits."""
    groups = x.reshape(-1, 32)
    scale = np.abs(groups).max(1, keepdims=True) / np.float32(127)
    return (np.round(groups / np.where(scale == 0, 1, scale)) * scale).reshape(x.shape)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("packing", ["Q4_0", "Q8_0", "Q4_K", "Q5_K", "Q6_K", "affine4", "affine8"])
def test_products_with_activations_of_8_bits(packing: str, device: str) -> None:
    rng = np.random.default_rng(3)
    rows, columns = 37, 512
    if packing.startswith("affine"):
        form = {"bits": int(packing[-1]), "group_size": 64}
        w = lucid.tensor(rng.normal(size=(rows, columns)).astype(np.float32), device=device)
        parts = lucid.quantize_affine(w, **form)
        dense = lucid.dequantize_affine(*parts, **form)
        given: Any = (parts[0], packing, *parts[1:])
    else:
        size, width = {"Q4_0": (32, 18), "Q8_0": (32, 34), "Q4_K": (256, 144), "Q5_K": (256, 176), "Q6_K": (256, 210)}[
            packing
        ]
        raw = rng.integers(0, 256, (rows * columns // size, width)).astype(np.uint8)
        scale = rng.uniform(0.001, 0.02, (len(raw), 2)).astype(np.float16).view(np.uint8)
        if packing == "Q6_K":
            raw[:, 208:] = scale[:, :2]
        else:
            raw[:, :2] = scale[:, :2]
        if packing in ("Q4_K", "Q5_K"):
            raw[:, 2:4] = scale[:, 2:]
        blocks = lucid.tensor(raw.reshape(rows, -1))
        dense = _C._gguf_dequantize(blocks.reshape(-1), packing, [rows, columns])
        given = (blocks.to(device), packing)
    if limitations.known("dynamic_quantized_matmul", device, "float32"):
        with pytest.raises(NotImplementedError, match="take quantized_matmul, or the cpu"):
            lucid.dynamic_quantized_matmul(lucid.ones(2, columns, device=device), *given).eval()
        return
    dense = dense.cpu().numpy()
    for shape in ((columns,), (3, columns), (2, 9, columns), (0, columns)):
        x = rng.normal(size=shape).astype(np.float32)
        got = lucid.dynamic_quantized_matmul(lucid.tensor(x, device=device), *given)
        wanted = rounded(x) @ dense.T
        assert got.shape == wanted.shape
        # A half may be rounded the other way.
        room = 1e-3 * np.sqrt((dense**2).sum(1)).max() * 10
        np.testing.assert_allclose(got.cpu().numpy(), wanted, atol=room)
        assert np.abs(got.cpu().numpy() - wanted).mean() < room / 10 if got.numel() else True
    x = lucid.tensor(rng.normal(size=(2, columns)).astype(np.float32), device=device, requires_grad=True)
    lucid.dynamic_quantized_matmul(x, *given).sum().backward()
    assert x.grad is not None
    np.testing.assert_allclose(x.grad.cpu().numpy(), np.tile(dense.sum(0), (2, 1)), **within("rounded weights"))
    half = lucid.dynamic_quantized_matmul(x.detach().to(lucid.bfloat16), *given)
    assert half.dtype == lucid.bfloat16
    for bad in (
        lambda: lucid.dynamic_quantized_matmul(x, given[0], "Q3_K"),
        lambda: lucid.dynamic_quantized_matmul(x[:, :480], *given),
        lambda: lucid.dynamic_quantized_matmul(x, given[0][:, :-1], *given[1:]),
        lambda: lucid.dynamic_quantized_matmul(x, given[0], packing, x, x)
        if len(given) == 2
        else lucid.dynamic_quantized_matmul(x, given[0], packing),
    ):
        with pytest.raises((ValueError, RuntimeError)):
            bad()
