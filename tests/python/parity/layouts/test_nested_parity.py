"""`lucid.nested` beside `torch.nested` in its jagged layout."""

from __future__ import annotations

import pickle
import warnings
from typing import Any

import lucid
import numpy as np
import pytest
import torch
from lucid import nn
from lucid.nn import functional as F

from tests.python.tolerances import within

DEVICES = ("cpu", "gpu")
ROWS = [np.random.default_rng(i).standard_normal((n, 6)).astype(np.float32) for i, n in enumerate((3, 1, 4))]


def pair(device: str = "cpu", rows: list[Any] | None = None, grad: bool = False) -> tuple[Any, Any]:
    rows = ROWS if rows is None else rows
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = torch.nested.nested_tensor([torch.tensor(r) for r in rows], layout=torch.jagged, requires_grad=grad)
    ours = lucid.nested.nested_tensor([lucid.tensor(r, device=device) for r in rows], requires_grad=grad)
    return ours, theirs


def same(ours: Any, theirs: Any, **tolerance: float) -> None:
    tolerance = tolerance or within("near zero")
    if theirs.is_nested:
        assert ours.is_nested and len(ours) == theirs.size(0) and ours.ndim == theirs.ndim
        for a, b in zip(ours.unbind(), theirs.unbind(), strict=True):
            same(a, b, **tolerance)
        return
    assert not ours.is_nested and tuple(ours.shape) == tuple(theirs.shape)
    np.testing.assert_allclose(ours.detach().cpu().numpy(), theirs.detach().numpy(), **tolerance)


PROGRAMS: dict[str, Any] = {
    "values": lambda t, x: x.values(),
    "offsets": lambda t, x: x.offsets(),
    "padded": lambda t, x: t.nested.to_padded_tensor(x, -1.0),
    "padded to a size": lambda t, x: t.nested.to_padded_tensor(x, 0.5, (3, 5, 6)),
    "unary": lambda t, x: t.tanh(t.relu(-x).exp()).sqrt(),
    "functional": lambda t, x: t.nn.functional.gelu(t.nn.functional.silu(x)),
    "numbers": lambda t, x: (2 * x + 1) / 3 - x,
    "reversed": lambda t, x: 1 - x,
    "nested": lambda t, x: x * x + x,
    "row": lambda t, x: x * t.arange(6.0).to(x.device) + t.ones(1, 1, 6).to(x.device),
    "compare": lambda t, x: (x > 0).float(),
    "where": lambda t, x: t.where(x > 0, x, t.zeros_like(x)),
    "clamp": lambda t, x: x.clamp(-0.5, 0.5),
    "linear": lambda t, x: t.nn.functional.linear(x, t.ones(2, 6).to(x.device), t.ones(2).to(x.device)),
    "matmul": lambda t, x: t.matmul(x, t.ones(6, 2).to(x.device)),
    "layer_norm": lambda t, x: t.nn.functional.layer_norm(x, (6,)),
    "softmax": lambda t, x: t.nn.functional.softmax(x, -1),
    "sum": lambda t, x: x.sum(),
    "mean": lambda t, x: x.mean(),
    "sum rows": lambda t, x: x.sum(dim=1),
    "sum columns": lambda t, x: x.sum(dim=-1),
    "keepdim": lambda t, x: x.sum(dim=-1, keepdim=True),
    "transpose": lambda t, x: x.transpose(1, 2).transpose(1, 2),
    "unflatten": lambda t, x: x.unflatten(-1, (2, 3)),
    "view": lambda t, x: x.reshape(3, -1, 2, 3),
    "chunk": lambda t, x: x.chunk(2, dim=-1)[1],
    "unsqueeze": lambda t, x: x.unsqueeze(-1),
    "cat": lambda t, x: t.cat([x, x * 2], dim=-1),
    "select": lambda t, x: x[2],
    "to": lambda t, x: x.to(t.float64),
    "clone": lambda t, x: x.clone().detach(),
    "iterated": lambda t, x: t.stack([row.sum() for row in x.unbind()]),
    "from jagged": lambda t, x: t.nested.nested_tensor_from_jagged(x.values() * 2, x.offsets()),
}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_agree(name: str, device: str) -> None:
    if device == "gpu" and name == "to":
        device = "cpu"
    ours, theirs = pair(device, grad=True)
    made, expected = PROGRAMS[name](lucid, ours), PROGRAMS[name](torch, theirs)
    same(made, expected)
    # PyTorch has no gradient of sums over one dimension.
    if expected.requires_grad and name not in ("sum rows", "sum columns", "keepdim"):
        (made.values() if made.is_nested else made).float().square().sum().backward()
        (expected.values() if expected.is_nested else expected).float().square().sum().backward()
        same(ours.grad, theirs.grad, **within("program"))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("causal", [False, True])
def test_attention_without_padding(device: str, causal: bool) -> None:
    rows = [np.random.default_rng(n).standard_normal((n, 8)).astype(np.float32) for n in (2, 5, 3)]
    ours, _ = pair(device, rows, grad=True)

    def attend(t: Any, x: Any) -> Any:
        q, k, v = (y.unflatten(-1, (2, 4)).transpose(1, 2) for y in (x, x * 0.5, x + 1))
        made = t.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
        return made.transpose(1, 2).flatten(-2)

    made = attend(lucid, ours)
    # PyTorch's has kernels for the CPU in some layouts alone: each sequence by itself is the reference.
    leaves = [torch.tensor(r, requires_grad=True) for r in rows]
    parts = [
        torch.nn.functional.scaled_dot_product_attention(
            *(y.reshape(1, -1, 2, 4).transpose(1, 2) for y in (x, x * 0.5, x + 1)), is_causal=causal
        )
        .transpose(1, 2)
        .reshape(-1, 8)
        for x in leaves
    ]
    for a, b in zip(made.unbind(), parts, strict=True):
        same(a, b)
    made.sum().backward()
    sum(p.sum() for p in parts).backward()  # type: ignore[union-attr]
    for a, leaf in zip(ours.grad.unbind(), leaves, strict=True):
        same(a, leaf.grad, **within("program"))


def test_a_transformer_layer_by_parts_and_gradients_to_the_parts() -> None:
    parts = [lucid.randn(n, 8, requires_grad=True) for n in (2, 4)]
    nt = lucid.nested.as_nested_tensor(parts)
    layers = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Dropout(0.0), nn.Linear(16, 8))
    made = layers(nt)
    made.square().sum().backward()
    grads = [p.grad.clone() for p in parts]
    for p in parts:
        p.grad = None
    for p, row in zip(parts, made.unbind(), strict=True):
        expected = layers(p)
        assert lucid.allclose(row, expected, **within("few ops"))
        expected.square().sum().backward()
    assert all(lucid.allclose(p.grad, g, **within("near zero")) for p, g in zip(parts, grads, strict=True))


def test_gradients_of_sums_over_one_dimension() -> None:
    parts = [lucid.randn(n, 3, requires_grad=True) for n in (2, 4)]
    for dim, keepdim in ((1, False), (2, True), (-1, False)):
        made = lucid.nested.as_nested_tensor(parts).sum(dim, keepdim)
        (made.values() if made.is_nested else made).square().sum().backward()
        grads = [p.grad.clone() for p in parts]
        for p in parts:
            p.grad = None
            p.sum(dim - 1 if dim > 0 else dim, keepdim).square().sum().backward()
        assert all(lucid.allclose(p.grad, g) for p, g in zip(parts, grads, strict=True))
        for p in parts:
            p.grad = None


def test_in_place_forms_write_or_say_so() -> None:
    nt, _ = pair()
    before = nt.values().clone()
    assert nt.mul_(2) is nt and lucid.equal(nt.values(), before * 2)
    assert nt.relu_() is nt and nt.values().min().item() == 0
    rows, same_one = nt.values().clone(), nt
    nt += 1
    assert nt is same_one and lucid.equal(nt.values(), rows + 1)
    x = lucid.sparse_csr_tensor([0, 1], [0], [-4.0])
    assert x.abs_() is x and x.values().tolist() == [4]
    for call in (lambda: x.mul_(2), lambda: nt.transpose_(1, 2)):
        with pytest.raises(NotImplementedError, match="no rule"):
            call()
    with pytest.raises(NotImplementedError, match="vmap"):
        lucid.vmap(lambda v: v)(nt)
    masked = lucid.masked.masked_tensor(lucid.ones(2), lucid.tensor([True, False]))
    assert masked.add_(1) is masked and masked.get_data().tolist() == [2, 2]


def test_shapes_tell_the_ragged_dimension() -> None:
    nt, _ = pair()
    batch, length, width = nt.shape
    assert (batch, width, str(length), nt.size(2), nt.numel(), len(nt)) == (3, 6, "j8", 6, 48, 3)
    assert nt.view(batch, length, 2, 3).shape[2:] == (2, 3)
    assert nt.layout is lucid.jagged and nt.is_nested and not nt.values().is_nested
    assert "nested_tensor([" in repr(nt) and pickle.loads(pickle.dumps(nt)).shape[2] == 6
    assert nt.dtype == lucid.float32 and nt.device == lucid.device("cpu")
    narrowed = lucid.nested.narrow(lucid.arange(12.0).reshape(2, 6), 1, lucid.tensor([0, 2]), lucid.tensor([1, 3]))
    assert [t.tolist() for t in narrowed.unbind()] == [[0], [8, 9, 10]]
    picked = lucid.nested.masked_select(lucid.arange(4.0).reshape(2, 2), lucid.tensor([[True, True], [False, True]]))
    assert [t.tolist() for t in picked.unbind()] == [[0, 1], [3]]


@pytest.mark.parametrize(
    ("error", "words", "call"),
    [
        (RuntimeError, "differ in their first size alone", lambda n, x: n.nested_tensor([[[1.0]], [[1.0, 2.0]]])),
        (RuntimeError, "non-empty", lambda n, x: n.nested_tensor([])),
        (RuntimeError, "different lengths", lambda n, x: x + n.nested_tensor([[1.0] * 6] * 3)),
        (RuntimeError, "does not broadcast", lambda n, x: x + lucid.ones(4, 6)),
        (RuntimeError, "batch", lambda n, x: x.transpose(0, 1)),
        (RuntimeError, "batch", lambda n, x: x.sum(0)),
        (RuntimeError, "cannot view", lambda n, x: x.reshape(6, -1)),
        (IndexError, "out of range", lambda n, x: x.sum(5)),
        (RuntimeError, "offsets must rise", lambda n, x: n.nested_tensor_from_jagged(x.values(), lucid.tensor([0, 9]))),
        (RuntimeError, "offsets or lengths", lambda n, x: n.nested_tensor_from_jagged(x.values())),
        (RuntimeError, "smaller than the padded", lambda n, x: n.to_padded_tensor(x, 0.0, (3, 2, 6))),
        (RuntimeError, "expected a nested", lambda n, x: n.to_padded_tensor(lucid.ones(2), 0.0)),
        (NotImplementedError, "layout", lambda n, x: n.nested_tensor([[1.0]], layout=lucid.strided)),
        (NotImplementedError, "cholesky", lambda n, x: lucid.linalg.cholesky(x)),
        (
            RuntimeError,
            "no padding",
            lambda n, x: F.scaled_dot_product_attention(
                *[x.unflatten(-1, (2, 3)).transpose(1, 2)] * 3, lucid.ones(3, 3)
            ),
        ),
    ],
)
def test_errors(error: type[Exception], words: str, call: Any) -> None:
    with pytest.raises(error, match=words):
        call(lucid.nested, pair()[0])


@pytest.mark.parametrize("device", DEVICES)
def test_names_of_the_internal_package(device: str) -> None:
    from lucid.nested._internal import nested_tensor as ours
    from lucid.nested._internal.sdpa import jagged_scaled_dot_product_attention
    from torch.nested._internal import nested_tensor as theirs

    assert ours.NestedTensor is lucid.nested.NestedTensor
    parts, offsets = [lucid.tensor(r, device=device) for r in ROWS], lucid.tensor([0, 3, 4, 8], device=device)
    their_parts, their_offsets = [torch.tensor(r) for r in ROWS], torch.tensor([0, 3, 4, 8])
    made, found = ours.jagged_from_list(parts, None)
    wanted, _ = theirs.jagged_from_list(their_parts, None)
    same(made, wanted)
    assert found.tolist() == [0, 3, 4, 8] and ours.jagged_from_list(parts, offsets)[1] is offsets
    same(ours.buffer_from_jagged(made), theirs.buffer_from_jagged(wanted))
    rows, their_rows = lucid.cat(parts), torch.cat(their_parts)
    same(
        ours.nested_view_from_values_offsets(rows, offsets),
        theirs.nested_view_from_values_offsets(their_rows, their_offsets),
    )
    same(
        ours.nested_view_from_values_offsets(rows.t(), offsets, ragged_idx=2),
        theirs.nested_view_from_values_offsets(their_rows.t(), their_offsets, ragged_idx=2),
    )
    padded, their_padded = made.to_padded_tensor(0.0), wanted.to_padded_tensor(0.0)
    same(ours.nested_from_padded(padded, offsets), theirs.nested_from_padded(their_padded, their_offsets))
    from lucid.nested._internal.ops import extract_kwargs

    kwargs = extract_kwargs(made)
    same(ours.NestedTensor(made.values() * 2, **kwargs), wanted * 2)
    assert kwargs["offsets"].tolist() == [0, 3, 4, 8] and len(ours._tensor_symint_registry) == 0
    with pytest.raises(NotImplementedError, match="without holes"):
        ours.NestedTensor(made.values(), offsets=kwargs["offsets"], lengths=kwargs["offsets"])
    starts, lengths = [0, 1, 0], [2, 1, 4]
    same(
        ours.jagged_from_tensor_and_lengths(padded, lucid.tensor(starts), lucid.tensor(lengths))[0],
        theirs.jagged_from_tensor_and_lengths(their_padded, torch.tensor(starts), torch.tensor(lengths))[0],
    )
    holes = ours.nested_view_from_values_offsets_lengths(rows, offsets, lucid.tensor([2, 1, 3]))
    their_holes = theirs.nested_view_from_values_offsets_lengths(their_rows, their_offsets, torch.tensor([2, 1, 3]))
    for a, b in zip(holes.unbind(), their_holes.unbind(), strict=True):
        same(a, b)
    q = lucid.nested.as_nested_tensor([p.view(-1, 2, 3) for p in parts]).transpose(1, 2)
    same(jagged_scaled_dot_product_attention(q, q, q), F.scaled_dot_product_attention(q, q, q))
    for bad in (
        lambda: ours.jagged_from_list(parts, lucid.tensor([0, 1, 2, 8])),
        lambda: ours.nested_view_from_values_offsets(rows, lucid.tensor([0, 9])),
        lambda: ours.nested_view_from_values_offsets(rows.t(), lucid.tensor([0, 5, 3, 8]), ragged_idx=2),
        lambda: ours.nested_view_from_values_offsets(rows.t(), lucid.tensor([0, 9]), ragged_idx=2),
        lambda: ours.nested_from_padded(padded, offsets, ragged_idx=2),
        lambda: ours.nested_view_from_values_offsets_lengths(rows, offsets, lucid.tensor([1]), ragged_idx=2),
    ):
        with pytest.raises(RuntimeError):
            bad()
