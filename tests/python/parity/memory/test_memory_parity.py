"""Memory against PyTorch: what views show and share, what writes through them change, and small rules beside."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import lucid
import pytest
import torch

DEVICES = ("cpu", "gpu")

# ---- views -----------------------------------------------------------------------------------------------------------

#: The views that PyTorch's documentation lists under "Tensor Views".
VIEWS: dict[str, Callable[[Any, Any], Any]] = {
    "basic indexing": lambda L, x: x[1:, ::2],
    "an index": lambda L, x: x[1],
    "a new dimension": lambda L, x: x[:, None],
    "an ellipsis": lambda L, x: x[...],
    "adjoint": lambda L, x: x.adjoint(),
    "as_strided": lambda L, x: x.as_strided((2, 3), (1, 4), 2),
    "detach": lambda L, x: x.detach(),
    "diagonal": lambda L, x: x.diagonal(1),
    "diagonal below": lambda L, x: x.diagonal(-1),
    "expand": lambda L, x: x.expand(2, 4, 6),
    "expand_as": lambda L, x: x[:1].expand_as(x),
    "movedim": lambda L, x: x.movedim(0, 1),
    "moveaxis": lambda L, x: x.moveaxis(0, -1),
    "narrow": lambda L, x: x.narrow(1, 2, 3),
    "permute": lambda L, x: x.permute(1, 0),
    "select": lambda L, x: x.select(1, 3),
    "squeeze": lambda L, x: x[:1].squeeze(),
    "squeeze of one": lambda L, x: x[:, :1].squeeze(1),
    "swapaxes": lambda L, x: x.swapaxes(0, 1),
    "transpose": lambda L, x: x.transpose(0, 1),
    "t": lambda L, x: x.t(),
    "T": lambda L, x: x.T,
    "H": lambda L, x: x.H,
    "mT": lambda L, x: x.mT,
    "mH": lambda L, x: x.mH,
    "real": lambda L, x: x.real,
    "unflatten": lambda L, x: x.unflatten(1, (2, 3)),
    "unfold": lambda L, x: x.unfold(1, 3, 2),
    "unsqueeze": lambda L, x: x.unsqueeze(1),
    "unsqueeze last": lambda L, x: x.unsqueeze(-1),
    "view": lambda L, x: x.view(3, 8),
    "view_as": lambda L, x: x.view_as(L.zeros(2, 12)),
    "view of a dtype": lambda L, x: x.view(L.int32),
    "unbind": lambda L, x: x.unbind(1)[2],
    "split": lambda L, x: x.split(4, 1)[1],
    "split by sizes": lambda L, x: x.split([1, 3])[1],
    "hsplit": lambda L, x: x.hsplit(3)[1],
    "vsplit": lambda L, x: x.vsplit(2)[1],
    "tensor_split": lambda L, x: x.tensor_split(4, 1)[2],
    "split_with_sizes": lambda L, x: x.split_with_sizes([2, 4], 1)[1],
    "swapdims": lambda L, x: x.swapdims(0, 1),
    "chunk": lambda L, x: x.chunk(4, 1)[1],
    "reshape": lambda L, x: x.reshape(2, 12),
    "reshape_as": lambda L, x: x.reshape_as(L.zeros(8, 3)),
    "flatten": lambda L, x: x.flatten(),
    "ravel": lambda L, x: x.ravel(),
    "contiguous": lambda L, x: x.contiguous(),
    "broadcast_to": lambda L, x: L.broadcast_to(x, (3, 4, 6)),
    "atleast_3d": lambda L, x: L.atleast_3d(x),
    "positive": lambda L, x: x.positive(),
    # These copy.
    "reshape of a transpose": lambda L, x: x.t().reshape(-1),
    "flatten of a transpose": lambda L, x: x.t().flatten(),
    "advanced indexing": lambda L, x: x[[0, 2]],
    "contiguous of a transpose": lambda L, x: x.t().contiguous(),
    "clone": lambda L, x: x.clone(),
    "repeat": lambda L, x: x.repeat(1, 1),
    "tile": lambda L, x: x.tile(1),
    "roll": lambda L, x: x.roll(0),
}
#: What gives several views at once. PyTorch refuses writes to one of them where a gradient is recorded; here they go.
SEVERAL = ("unbind", "split", "split by sizes", "split_with_sizes", "chunk")
#: Of what the views are taken.
SOURCES: dict[str, Callable[[Any, Any], Any]] = {
    "whole": lambda L, b: b[:4, :6].clone(),
    "a part": lambda L, b: b[1:5, 1:7],
    "a transpose": lambda L, b: b[:6, :4].t(),
}


def attempt(run: Callable[[], Any]) -> Any:
    try:
        return run()
    except (RuntimeError, TypeError, IndexError, ValueError, OverflowError) as error:
        # A DtypeMismatch is a TypeError too; here it stands for what PyTorch mostly raises.
        kinds = (IndexError, OverflowError, ValueError, RuntimeError, TypeError)
        return next(k for k in kinds if isinstance(error, k))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("name", VIEWS)
def test_what_views_show_and_share(name: str, source: str, device: str) -> None:
    def run(L: Any, device: str) -> Any:
        base = L.arange(64, device=device).to(L.float32).reshape(8, 8)
        x = SOURCES[source](L, base)
        y = VIEWS[name](L, x)
        if name != "view of a dtype":
            seen = [y.tolist(), y.data_ptr() - x.data_ptr() if y.numel() and y._version == x._version else None]
        else:
            seen = []
        shares = y.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()
        seen += [tuple(y.shape), y.stride(), y.storage_offset(), y.is_contiguous(), y._is_view(), shares]
        if not shares:
            seen[1] = None
        version = x._version
        x.add_(1)
        seen += [y._version - version if shares else 0, y.tolist()]
        if 0 not in y.stride() and name not in ("unfold", "view of a dtype"):
            y.mul_(2)
            seen += [x.tolist(), base.tolist()]
        return seen

    ours, theirs = attempt(lambda: run(lucid, device)), attempt(lambda: run(torch, "cpu"))
    if device == "gpu" and isinstance(ours, list) and isinstance(theirs, list) and name != "view of a dtype":
        # Addresses are those of the host's copy; those of views differ by their offsets, too.
        ours[1] = theirs[1] = None
    assert ours == theirs


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", [n for n in VIEWS if n not in ("detach", "view of a dtype", *SEVERAL)])
def test_writes_are_seen_by_the_tape(name: str, device: str) -> None:
    """What was saved and then written through a view is an error; what was not is differentiated."""

    def run(L: Any, device: str) -> Any:
        leaf = (L.arange(24, device=device).to(L.float32).reshape(4, 6) / 10).requires_grad_()
        x = leaf * 1
        square = x.square()
        y = VIEWS[name](L, x)
        if 0 in y.stride() or name == "unfold":
            return None
        y.mul_(3)
        saved = attempt(lambda: square.sum().backward())
        z = leaf * 1
        VIEWS[name](L, z).mul_(3)
        (z * z).sum().backward()
        return saved, [round(g, 3) for g in leaf.grad.flatten().tolist()]

    assert attempt(lambda: run(lucid, device)) == attempt(lambda: run(torch, "cpu"))


# ---- small rules -----------------------------------------------------------------------------------------------------

BIG = 2**63
CALLS: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda L, d: L.ones(2, device=d) + BIG,
    "add to integers": lambda L, d: L.arange(3, device=d) + BIG,
    "subtract from": lambda L, d: BIG - L.arange(3, device=d),
    "multiply": lambda L, d: L.ones(2, device=d) * BIG,
    "divide": lambda L, d: L.arange(3, device=d) / BIG,
    "compare": lambda L, d: L.ones(2, device=d) < BIG,
    "compare integers": lambda L, d: L.arange(3, device=d) == BIG,
    "beyond 64 bits": lambda L, d: L.ones(2, device=d) * 2**64,
    "compare beyond 64 bits": lambda L, d: L.ones(2, device=d) > 2**70,
    "below 64 bits": lambda L, d: L.ones(2, device=d) + (-BIG - 1),
    "fill_": lambda L, d: L.ones(2, device=d).fill_(BIG),
    "fill_ of integers": lambda L, d: L.arange(3, device=d).fill_(BIG),
    "full": lambda L, d: L.full((2,), BIG, device=d),
    "full of floats": lambda L, d: L.full((2,), BIG, dtype=L.float32, device=d),
    "full_like": lambda L, d: L.full_like(L.arange(2, device=d), BIG),
    "tensor": lambda L, d: L.tensor(BIG, device=d),
    "tensor of a list": lambda L, d: L.tensor([BIG], device=d),
    "assign": lambda L, d: L.ones(2, device=d).__setitem__(0, BIG),
    "clamp": lambda L, d: L.ones(2, device=d).clamp(max=BIG),
    "masked_fill": lambda L, d: L.ones(2, device=d).masked_fill(L.ones(2, device=d) > 0, BIG),
    "alpha": lambda L, d: L.ones(2, device=d).add(L.ones(2, device=d), alpha=BIG),
    "power": lambda L, d: L.pow(2, L.full((1,), 3.0, device=d)),
    "square of bool": lambda L, d: L.square(L.tensor([True, False], device=d)),
    "square of bool by method": lambda L, d: L.tensor([True, False], device=d).square(),
    "square_ of bool": lambda L, d: L.tensor([True, False], device=d).square_(),
    "ellipses": lambda L, d: L.arange(4, device=d)[..., ..., ...],
    "ellipses and a dimension": lambda L, d: L.arange(24, device=d).reshape(2, 3, 4)[..., None, ...],
    "ellipses and an index": lambda L, d: L.arange(24, device=d).reshape(2, 3, 4)[..., 0, ...],
    "ellipses beyond": lambda L, d: L.arange(24, device=d).reshape(2, 3, 4)[..., ..., 0],
    "clone_": lambda L, d: hasattr(L.Tensor, "clone_") or hasattr(L, "clone_"),
    "chain_matmul of one": lambda L, d: (lambda x: L.chain_matmul(x) is x)(L.ones(2, 2, device=d)),
}


def numbers(value: Any) -> Any:
    if not hasattr(value, "tolist"):
        return value
    return str(value.dtype).rsplit(".", 1)[-1], tuple(value.shape), value.tolist()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", CALLS)
@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::UserWarning")
def test_small_rules(name: str, device: str) -> None:
    ours = attempt(lambda: numbers(CALLS[name](lucid, device)))
    assert ours == attempt(lambda: numbers(CALLS[name](torch, "cpu")))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_index_fill_of_expanded_tensors(dim: int, device: str) -> None:
    def run(L: Any, device: str) -> Any:
        base = L.zeros(4, device=device)
        wide = base.expand(3, 4)
        wide.index_fill_(dim, L.tensor([2, 0], device=device), 5.0)
        wide.index_fill_(dim, L.tensor([], dtype=L.int64, device=device), 6.0)
        seen = [base.tolist(), wide.tolist(), base._version]
        return [*seen, attempt(lambda: wide.index_fill_(dim, L.tensor([7], device=device), 1.0).tolist())]

    ours, theirs = run(lucid, device), run(torch, "cpu")
    assert ours[:2] == theirs[:2] and ours[2] >= 1 and ours[3] == theirs[3]


def test_warn_always() -> None:
    for L in (lucid, torch):
        assert L.is_warn_always_enabled() is False
        L.set_warn_always(True)
        assert L.is_warn_always_enabled() is True
        L.set_warn_always(False)
        with pytest.raises(RuntimeError):
            L.set_warn_always(1)


# ---- out -------------------------------------------------------------------------------------------------------------

OUTS: dict[str, Callable[[Any, Any], Any]] = {
    "overlapping in part": lambda L, b: L.exp(b[:-1], out=b[1:]),
    "overlapping the second": lambda L, b: L.add(L.ones(7, device=b.device), b[:-1], out=b[1:]),
    "transposed": lambda L, b: L.neg(b[:4].view(2, 2), out=b[:4].view(2, 2).t()),
    "itself": lambda L, b: L.exp(b, out=b),
    "the same part": lambda L, b: L.exp(b[:4], out=b[:4]),
    "beside": lambda L, b: L.exp(b[:4], out=b[4:]),
    "expanded": lambda L, b: L.exp(b, out=L.zeros(1, device=b.device).expand(8)),
    "of integers": lambda L, b: L.exp(b, out=L.zeros(8, dtype=L.int64, device=b.device)),
    "of half": lambda L, b: L.exp(b, out=L.zeros(8, dtype=L.float16, device=b.device)),
    "too small": lambda L, b: L.exp(b, out=L.zeros(3, device=b.device)),
    "empty": lambda L, b: L.exp(b, out=L.empty(0, device=b.device)),
    "requiring gradients": lambda L, b: L.exp(b, out=L.zeros(8, device=b.device, requires_grad=True)),
    "where, itself": lambda L, b: L.where(b > 0.3, b, -b, out=b),
    "where, transposed": lambda L, b: L.where(
        L.ones(2, 2, device=b.device) > 0, b[:4].view(2, 2), b[:4].view(2, 2).t(), out=b[:4].view(2, 2)
    ),
    "maximum in part": lambda L, b: L.max(b[:-1], L.ones(7, device=b.device), out=b[1:]),
    "cross, itself": lambda L, b: L.cross(b[:3], b[3:6], out=b[:3]),
    "linalg.cross, the second": lambda L, b: L.linalg.cross(b[:3], b[3:6], out=b[3:6]),
    "kron, itself": lambda L, b: L.kron(b[:1], b, out=b),
    "take, itself": lambda L, b: L.take(b, L.arange(8, device=b.device), out=b),
    "take_along_dim, itself": lambda L, b: L.take_along_dim(b, L.arange(8, device=b.device), 0, out=b),
    "masked_select, itself": lambda L, b: L.masked_select(b, b >= 0, out=b),
    "nonzero, itself": lambda L, b: (lambda i: L.nonzero(i, out=i))(L.ones(2, 2, dtype=L.int64, device=b.device)),
    "take, beside": lambda L, b: L.take(b[:4], L.tensor([3, 2, 1, 0], device=b.device), out=b[4:]),
    "sum over a part": lambda L, b: L.sum(b, 0, out=b[3]),
    "mean over a part": lambda L, b: L.mean(b, 0, out=b[5]),
    "amax over a part": lambda L, b: L.amax(b, 0, out=b[5]),
    "logsumexp over a part": lambda L, b: L.logsumexp(b, 0, out=b[5]),
    "dot over a part": lambda L, b: L.dot(b, b, out=b[2]),
    "norm over a part": lambda L, b: L.linalg.vector_norm(b, out=b[2]),
    "cumsum, shifted": lambda L, b: L.cumsum(b[:-1], 0, out=b[1:]),
    "zeros, too small": lambda L, b: L.zeros(8, out=L.ones(3, device=b.device)),
    "ones, too big": lambda L, b: L.ones(2, 2, out=L.zeros(9, device=b.device)),
    "full, transposed": lambda L, b: L.full((2, 3), 4.0, out=L.zeros(3, 2, device=b.device).t()),
    "eye, too small": lambda L, b: L.eye(3, out=L.ones(3, device=b.device)),
    "zeros, of integers": lambda L, b: L.zeros(3, out=L.ones(3, dtype=L.int64, device=b.device)),
    "bernoulli, of integers": lambda L, b: L.bernoulli((b > 0).to(L.float32), out=L.zeros(8, device=b.device).long()),
    "bernoulli, complex": lambda L, b: L.bernoulli(b, out=L.zeros(8, dtype=L.complex64, device=b.device)),
    "a copied view, too small": lambda L, b: L.unsqueeze_copy(b, 0, out=L.ones(3, device=b.device)),
    "a copied view": lambda L, b: L.transpose_copy(b.view(2, 4), 0, 1, out=L.ones(4, 2, device=b.device)),
    "a copied view of half": lambda L, b: L.unsqueeze_copy(b, 0, out=L.ones(1, 8, device=b.device).half()),
    "a copied view requiring gradients": lambda L, b: L.squeeze_copy(
        b, out=L.ones(8, device=b.device).requires_grad_()
    ),
    "a copied view of what does": lambda L, b: L.squeeze_copy(b.requires_grad_(), out=L.ones(8, device=b.device)),
    "copied views": lambda L, b: (lambda outs: (L.unbind_copy(b.view(2, 4), out=outs), outs[1])[1])(
        [L.ones(4, device=b.device), L.ones(2, device=b.device)]
    ),
    "of what requires gradients": lambda L, b: L.exp(b.requires_grad_(), out=L.zeros(8, device=b.device)),
}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", OUTS)
def test_out(name: str, device: str) -> None:
    def run(L: Any, device: str) -> Any:
        b = L.arange(8, device=device).to(L.float32) / 8
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            made = OUTS[name](L, b)
        kind, shape, values = numbers(made)
        return kind, shape, [round(v, 2) for v in values], [round(v, 2) for v in b.tolist()], len(caught)

    assert attempt(lambda: run(lucid, device)) == attempt(lambda: run(torch, "cpu"))


# ---- writes that read what they write --------------------------------------------------------------------------------

SHARED: dict[str, str] = {
    "the next row": "b[1:].add_(b[:-1])",
    "the next row, copied": "b[1:].copy_(b[:-1])",
    "the next row, assigned": "b.__setitem__(slice(1, None), b[:-1])",
    "a row of itself": "b.add_(b[0])",
    "an element of the row": "b[0].copy_(b[0, 0])",
    "shifted, times": "b.view(-1)[1:].mul_(b.view(-1)[:-1])",
    "shifted, three": "b.view(-1)[1:].addcmul_(b.view(-1)[:-1], b.view(-1)[:-1])",
    "shifted, lerp": "b.view(-1)[1:].lerp_(b.view(-1)[:-1], 0.5)",
    "shifted, clamp": "b.view(-1)[1:].clamp_(b.view(-1)[:-1])",
    "shifted, eq": "b.view(-1)[1:].eq_(b.view(-1)[:-1])",
    "transposed": "b[:3, :3].contiguous().view(3, 3).add_(1)",
    "index_copy": "b[0].index_copy_(0, i, b[0, :2])",
    "index_add": "b[0].index_add_(0, i, b[0, :2])",
    "scatter": "b[0].scatter_(0, i, b[0, :2])",
    "scatter_add": "b[0].scatter_add_(0, i, b[0, :2])",
    "scatter_reduce": "b[0].scatter_reduce_(0, i, b[0, :2], 'amax')",
    "index_put": "b[0].index_put_((i,), b[0, :2])",
    "put": "b[0].put_(i, b[0, :2])",
    "itself": "b.add_(b)",
    "the same part": "b[1:].mul_(b[1:])",
    "beside": "b[0].add_(b[1])",
    "every other": "b.view(-1)[::2].add_(b.view(-1)[1::2])",
    "of another dtype, shifted": "b.view(-1)[:6].copy_(b.view(-1).view(L.int32)[3:9])",
    "of another dtype, beside": "b.view(-1)[:4].copy_(b.view(-1).view(L.int32)[4:8])",
    "masked_scatter": "b.view(-1).masked_scatter_(b.view(-1) < 3, b.view(-1)[3:9])",
    "with gaps": "b[:, 1:].add_(b[:, :-1].clone())",
    "a number of its own": "b.masked_fill_(b > 2, b[0, 1])",
    "an index's number of its own": "b[0].index_fill_(0, i, b[0, 1])",
    "expanded": "b[:1, :1].expand(3, 4).add_(1)",
    "expanded, of nothing": "b[:0, :1].expand(0, 4).add_(1)",
    "expanded over nothing": "b[0, :0].expand(4, 0).add_(1)",
}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", SHARED)
def test_writes_that_read_the_same_memory(name: str, device: str) -> None:
    def run(L: Any, device: str) -> Any:
        b = L.arange(12.0, device=device).reshape(3, 4)
        eval(SHARED[name], {"b": b, "i": L.tensor([0, 1], device=device), "L": L})
        return b.tolist()

    assert attempt(lambda: run(lucid, device)) == attempt(lambda: run(torch, "cpu"))


# ---- x.data ----------------------------------------------------------------------------------------------------------

DATA: dict[str, str] = {
    "a write before backward": "y.data.add_(1); (s.backward(), x.grad.tolist())[1]",
    "a write to a detached one": "y.detach().add_(1); s.backward()",
    "a write to a leaf's": "x.data.zero_(); s.backward(); x.grad.tolist()",
    "its count": "q = y.data; q.add_(1); [q._version, y._version, y.data._version]",
    "a view's count": "q = y.data; r = q[0]; r.add_(1); [q._version, y._version, r._version, y.tolist()]",
    "a detached one's count": "q = y.data; r = q.detach(); r.add_(1); [q._version, y._version]",
    "the count of one's own writes": "q = y.data; y.detach().add_(1); [q._version, y._version, q.tolist()]",
    "a new one's count": "y.detach().add_(1); [y.data._version, y.data.data._version]",
    "saved itself": "q = x.data; t = (q * w).sum(); q.add_(1); t.backward()",
    "saved, its tensor written": "q = x.data; t = (q * w).sum(); x.detach().add_(1); t.backward(); w.grad.tolist()",
    "replaced": "t = (3 * x).sum(); x.data = x.data + 1; t.backward(); [x.grad.tolist(), x.tolist()]",
    "replaced twice": "t = (3 * x).sum(); x.data = x.data + 1; x.data = x.data * 2; t.backward(); x.grad.tolist()",
    "replaced, both used": "t = (3 * x).sum(); x.data = x.data + 1; (t + (2 * x).sum()).backward(); x.grad.tolist()",
    "replaced, hooked": "x.register_hook(lambda g: g * 2); x.data = x.data + 1; x.sum().backward(); x.grad.tolist()",
}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", DATA)
def test_data(name: str, device: str) -> None:
    def run(L: Any, device: str) -> Any:
        x = L.arange(6.0, device=device).reshape(2, 3).requires_grad_()
        y = x * 2
        own = {"x": x, "y": y, "s": (y * y).sum() + (x * x).sum(), "w": L.ones(3, device=device, requires_grad=True)}
        *before, last = DATA[name].split("; ")
        for statement in before:
            exec(statement, own)
        return eval(last, own)

    assert attempt(lambda: run(lucid, device)) == attempt(lambda: run(torch, "cpu"))
