"""What Python sees of tensors beside their values: names of steps, the gradient's object, strides, kinds of errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import lucid
import numpy as np
import pytest
import torch

from tests.python import limitations
from tests.python.samples import DType, Sample, lucid_function, results, rows, samples

DEVICES = ("cpu", "gpu")

# ---- names of steps --------------------------------------------------------------------------------------------------


def torch_function(row: Any) -> Callable[..., Any]:
    owner: Any = torch
    for part in row["torch"].split("."):
        owner = getattr(owner, part)
    return owner


def names(L: Any, function: Callable[..., Any], sample: Sample, complex_only: bool) -> list[str | None]:
    def convert(d: Any) -> Any:
        t = L.tensor(d.values.astype(np.float32) if d.varies else d.values)
        t = t.to(L.complex64) if complex_only and d.varies else t
        wanted = d.varies and d.gradient and (t.is_floating_point() or t.is_complex())
        return t.requires_grad_() if wanted else t

    args, kwargs = sample.map(convert)
    args = [getattr(L, a.name) if isinstance(a, DType) else a for a in args]
    kwargs = {k: getattr(L, v.name) if isinstance(v, DType) else v for k, v in kwargs.items()}
    found = []
    for r in results(function(*args, **kwargs)):
        node = getattr(r, "grad_fn", None)
        assert node is None or type(node).__name__ == node.name().rsplit("::")[-1]
        found.append(None if node is None else node.name())
    return found


#: Linear algebra is not named after PyTorch's steps: these are of the factorisations that it calls inside.
# Factorisations, and what is made of them, have steps of their own here.
NAMED = [r for r in rows() if r["differentiable"] and r["torch"] != "-" and not r["torch"].startswith("linalg.")]


@pytest.mark.parametrize("row", NAMED, ids=lambda r: str(r["name"]))
def test_steps_have_pytorchs_names(row: Any) -> None:
    odd = row["name"] in limitations.STEP_NAMES
    differed = False
    for sample in samples(row):
        only = "float32" not in row["dtypes"] and "complex64" in row["dtypes"]
        try:
            wanted = names(torch, torch_function(row), sample, only)
        except (RuntimeError, TypeError, ValueError):
            continue  # Not for float32 there; values are compared elsewhere.
        got = names(lucid, lucid_function(row), sample, only)
        differed |= got != wanted
        if not odd:
            assert got == wanted, f"{row['name']}({sample.text})"
    assert differed or not odd, f"{row['name']} needs no exception"


NAMED_CALLS: dict[str, Callable[[Any, Any], Any]] = {
    "x + 1": lambda L, x: x + 1,
    "1 - x": lambda L, x: 1 - x,
    "x / 2": lambda L, x: x / 2,
    "x ** 2": lambda L, x: x**2,
    "x ** x": lambda L, x: x**x,
    "x % 2": lambda L, x: x % 2,
    "x % x": lambda L, x: x % x,
    "x[0]": lambda L, x: x[0],
    "x[:1]": lambda L, x: x[:1],
    "x.T": lambda L, x: x.T,
    "max of a dimension": lambda L, x: x.max(1)[0],
    "max of two": lambda L, x: L.max(x, x),
    "std": lambda L, x: x.std(),
    "std of a dimension": lambda L, x: x.std(0),
    "var": lambda L, x: x.var(1),
    "logsumexp": lambda L, x: x.logsumexp(0),
    "cumsum": lambda L, x: x.cumsum(0),
    "clamp": lambda L, x: x.clamp(0, 1),
    "clamp by tensors": lambda L, x: x.clamp(x, x),
    "where": lambda L, x: L.where(x > 0, x, x),
    "masked_fill": lambda L, x: x.masked_fill(x > 0, 1),
    "relu": lambda L, x: L.relu(x),
    "softmax": lambda L, x: x.softmax(0),
    "t_": lambda L, x: (x * 1).t_(),
    "transpose_": lambda L, x: (x * 1).transpose_(0, 1),
    "squeeze_": lambda L, x: (x * 1).squeeze_(),
    "squeeze_ of one": lambda L, x: (x * 1).squeeze_(0),
    "squeeze_ of several": lambda L, x: (x * 1).squeeze_((0, 1)),
    "unsqueeze_": lambda L, x: (x * 1).unsqueeze_(0),
    "as_strided_": lambda L, x: (x * 1).as_strided_((2,), (1,)),
    "clone": lambda L, x: x.clone(),
    "mul_": lambda L, x: (x * 1).mul_(x),
    "max": lambda L, x: x.max(),
    "min": lambda L, x: L.min(x),
    "2 ** x": lambda L, x: 2**x,
    "pow of a number": lambda L, x: L.pow(2, x),
    "float_power of a number": lambda L, x: L.float_power(2, x),
    "xlogy of a number": lambda L, x: L.xlogy(2, x),
    "an ellipsis": lambda L, x: x[...],
    "fill_": lambda L, x: (x * 1).fill_(2),
    "fill_ with a tensor": lambda L, x: (x * 1).fill_(L.tensor(2.0)),
    "zero_": lambda L, x: (x * 1).zero_(),
    "masked_fill with a tensor": lambda L, x: x.masked_fill(x > 0, x[0, 0]),
    "linear": lambda L, x: L.nn.functional.linear(x, x),
    "linear and bias": lambda L, x: L.nn.functional.linear(x, x, x[0]),
    "matrix and vector": lambda L, x: x @ x[0],
    "vectors": lambda L, x: x[0] @ x[0],
    "vector and matrix": lambda L, x: x[0] @ x,
    "batches": lambda L, x: x[None] @ x[None],
    "std_mean": lambda L, x: L.std_mean(x)[0],
    "var_mean": lambda L, x: L.var_mean(x)[1],
    "l1_loss summed": lambda L, x: L.nn.functional.l1_loss(x, x + 1, reduction="sum"),
    "kl_div": lambda L, x: L.nn.functional.kl_div(x, x, reduction="mean"),
    "dropout": lambda L, x: L.nn.functional.dropout(x),
    "reshape that copies": lambda L, x: x.t().reshape(-1),
    "flatten that copies": lambda L, x: x.t().flatten(),
    "ravel that copies": lambda L, x: x.t().ravel(),
    "to with a copy": lambda L, x: x.to(L.float32, copy=True),
    "linalg.inv": lambda L, x: L.linalg.inv(x),
    "linalg.solve": lambda L, x: L.linalg.solve(x, x),
    "linalg.svdvals": lambda L, x: L.linalg.svdvals(x),
    "linalg.eigvalsh": lambda L, x: L.linalg.eigvalsh(x),
    "logdet": lambda L, x: x.logdet(),
    "pinverse": lambda L, x: x.pinverse(),
    "matrix_exp": lambda L, x: L.matrix_exp(x),
    "prelu": lambda L, x: x.prelu(L.ones(1)),
    "hardshrink": lambda L, x: x.hardshrink(0.3),
    "index_add_": lambda L, x: (x * 1).index_add_(0, L.tensor([0, 1]), x),
    "index_put_": lambda L, x: (x * 1).index_put_((L.tensor([0, 1]),), x),
    "scatter_add_": lambda L, x: (x * 1).scatter_add_(0, L.tensor([[0, 1]]), x),
    "scatter_ with a number": lambda L, x: (x * 1).scatter_(0, L.tensor([[0, 1]]), 2.0),
    "index_fill_": lambda L, x: (x * 1).index_fill_(0, L.tensor([0]), 2.0),
    "embedding": lambda L, x: L.nn.functional.embedding(L.tensor([1]), x),
    "probabilities": lambda L, x: L.nn.functional.cross_entropy(x, L.ones(2, 2), reduction="none"),
    "probabilities, mean": lambda L, x: L.nn.functional.cross_entropy(x, L.ones(2, 2)),
    "classes": lambda L, x: L.nn.functional.cross_entropy(x, L.tensor([0, 1])),
    "classes of images": lambda L, x: L.nn.functional.cross_entropy(x[..., None, None], L.zeros(2, 1, 1).long()),
    "smoothed classes": lambda L, x: L.nn.functional.cross_entropy(x, L.tensor([0, 1]), label_smoothing=0.1),
    "ctc_loss": lambda L, x: L.nn.functional.ctc_loss(x[:, None], L.tensor([[1]]), (2,), (1,), reduction="none"),
    "ctc_loss, finite": lambda L, x: L.nn.functional.ctc_loss(
        x[:, None], L.tensor([[1]]), (2,), (1,), reduction="none", zero_infinity=True
    ),
    "ctc_loss of one": lambda L, x: L.nn.functional.ctc_loss(x, L.tensor([1]), L.tensor(2), L.tensor(1)),
    "pairwise_distance": lambda L, x: L.nn.functional.pairwise_distance(x, x.flip(0)),
    "pairwise_distance of order 0": lambda L, x: L.nn.functional.pairwise_distance(x, x.flip(0), 0),
    "pdist": lambda L, x: L.nn.functional.pdist(x),
    "soft_margin_loss": lambda L, x: L.nn.functional.soft_margin_loss(x, L.ones(2, 2)),
    "multi_margin_loss": lambda L, x: L.nn.functional.multi_margin_loss(x, L.tensor([0, 1])),
    "multilabel_margin_loss": lambda L, x: L.nn.functional.multilabel_margin_loss(x, L.tensor([[0, -1]] * 2)),
    "GRUCell": lambda L, x: L.nn.GRUCell(2, 2)(x, x),
    "LSTMCell": lambda L, x: L.nn.LSTMCell(2, 2)(x, (x, x))[0],
    "RNNCell": lambda L, x: L.nn.RNNCell(2, 2)(x, x),
    "RNNCell of relu": lambda L, x: L.nn.RNNCell(2, 2, nonlinearity="relu")(x, x),
    "pixel_shuffle": lambda L, x: L.nn.functional.pixel_shuffle(x.reshape(4, 1, 1), 2),
    "pixel_unshuffle": lambda L, x: L.nn.functional.pixel_unshuffle(x[None], 2),
    "channel_shuffle": lambda L, x: L.nn.functional.channel_shuffle(x.reshape(1, 4, 1), 2),
    "nearest": lambda L, x: L.nn.functional.interpolate(x[None, None], scale_factor=2),
    "nearest exact": lambda L, x: L.nn.functional.interpolate(x[None], size=3, mode="nearest-exact"),
    "bilinear": lambda L, x: L.nn.functional.interpolate(x[None, None], size=(3, 3), mode="bilinear"),
    "bicubic": lambda L, x: L.nn.functional.interpolate(x[None, None], size=(3, 3), mode="bicubic"),
    "linear in one dimension": lambda L, x: L.nn.functional.interpolate(x[None], size=3, mode="linear"),
    "antialiased": lambda L, x: L.nn.functional.interpolate(x[None, None], size=1, mode="bilinear", antialias=True),
    "affine_grid": lambda L, x: L.nn.functional.affine_grid(L.cat([x, x[:, :1]], 1)[None], [1, 1, 2, 2]),
    "grid_sample": lambda L, x: L.nn.functional.grid_sample(x[None, None], L.zeros(1, 1, 1, 2)),
    "unfold of images": lambda L, x: L.nn.functional.unfold(x[None, None], 2),
    "fold": lambda L, x: L.nn.functional.fold(x.reshape(1, 4, 1), (2, 2), 2),
    "embedding_bag": lambda L, x: L.nn.functional.embedding_bag(L.tensor([[0, 1]]), x),
    "rrelu": lambda L, x: L.nn.functional.rrelu(x, training=True),
    "adaptive_avg_pool2d": lambda L, x: L.nn.functional.adaptive_avg_pool2d(x[None], (2, 1)),
    "adaptive_avg_pool1d": lambda L, x: L.nn.functional.adaptive_avg_pool1d(x, 2),
    "adaptive_max_pool2d": lambda L, x: L.nn.functional.adaptive_max_pool2d(x[None], 1),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", NAMED_CALLS)
def test_calls_have_pytorchs_names(name: str) -> None:
    def run(L: Any) -> str:
        x = L.tensor([[1.0, -2.0], [3.0, 4.0]], requires_grad=True)
        return str(NAMED_CALLS[name](L, x).grad_fn.name())

    assert run(lucid) == run(torch)


def test_an_item_that_is_set_is_named_as_pytorch_names_it() -> None:
    def run(L: Any, values: bool) -> str:
        x = L.ones(3, requires_grad=True) * 2
        x[L.tensor([0, 2])] = L.ones(2, requires_grad=True) if values else 3.0
        return str(x.grad_fn.name())

    assert run(lucid, True) == run(torch, True)


#: Calls of one step, of whose inputs some have no gradient: how many PyTorch shows.
ONE_STEP: dict[str, Callable[[Any, Any], Any]] = {
    "embedding": NAMED_CALLS["embedding"],
    "where": NAMED_CALLS["where"],
    "gather": lambda L, x: x.gather(0, L.tensor([[0, 1]])),
    "index_select": lambda L, x: x.index_select(0, L.tensor([0])),
    "x[i]": lambda L, x: x[L.tensor([0])],
    "index_put": lambda L, x: x.index_put((L.tensor([0]),), x[0]),
    "masked_fill": NAMED_CALLS["masked_fill"],
    "mean": lambda L, x: x.mean(),
    "mean of a dimension": lambda L, x: x.mean(0),
    "max of a dimension": NAMED_CALLS["max of a dimension"],
    "classes": NAMED_CALLS["classes"],
    "x * 2": lambda L, x: x * 2,
    "x * tensor": lambda L, x: x * L.ones(2),
    "hardtanh": lambda L, x: L.nn.functional.hardtanh(x),
    "norm": lambda L, x: L.linalg.vector_norm(x),
    "padded": lambda L, x: L.nn.functional.pad(x, (1, 1)),
    "max_pool2d": lambda L, x: L.nn.functional.max_pool2d(x[None], 2),
    "std": NAMED_CALLS["std"],
    "clamp": NAMED_CALLS["clamp"],
    "take": lambda L, x: x.take(L.tensor([0])),
    "sort": lambda L, x: x.sort(0)[0],
    "prelu": lambda L, x: x.prelu(x[0, :1]),
}


@pytest.mark.parametrize("name", ONE_STEP)
def test_steps_lead_to_as_many_as_in_pytorch(name: str) -> None:
    def run(L: Any) -> list[bool]:
        x = L.tensor([[1.0, -2.0], [3.0, 4.0]], requires_grad=True) * 1
        return [node is not None for node, _ in ONE_STEP[name](L, x).grad_fn.next_functions]

    assert run(lucid) == run(torch)


# ---- the gradient's object -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("device", DEVICES)
def test_the_gradient_is_one_object(device: str) -> None:
    def run(L: Any, device: str) -> Any:
        x = L.ones(3, device=device, requires_grad=True)
        seen: list[Any] = [x.grad]
        (x * 2).sum().backward()
        g = x.grad
        g.note = "kept"
        seen += [x.grad is g, x.grad.note]
        (x * 3).sum().backward()
        seen += [x.grad is g, g.tolist()]
        (x * x).sum().backward(create_graph=True)
        seen += [x.grad is g, g.tolist(), x.grad.tolist(), x.grad.requires_grad]
        x.grad = None
        seen += [x.grad, g.note]
        other = L.zeros(3, device=device)
        x.grad = other
        seen += [x.grad is other]
        del x.grad
        seen.append(x.grad)
        x.grad = other
        x.grad.zero_()
        x.data = L.ones(3, device=device) * 2
        seen += [x.grad is other]
        x.grad = L.ones(1, device=device).expand(3)
        try:
            (x * 2).sum().backward()
            seen.append(x.grad.tolist())
        except RuntimeError:
            seen.append("refused")
        return seen

    got, wanted = run(lucid, device), run(torch, "cpu")
    # Into an expanded gradient PyTorch cannot add.
    assert got[:-1] == wanted[:-1]
    assert got[-1] == [3.0] * 3


# ---- strides ---------------------------------------------------------------------------------------------------------

VIEWS: dict[str, Callable[[Any], Any]] = {
    "select": lambda x: x.select(0, 0),
    "select, last": lambda x: x.select(-1, 0),
    "squeeze": lambda x: x.squeeze(),
    "squeeze, one": lambda x: x.squeeze(1),
    "unsqueeze, first": lambda x: x.unsqueeze(0),
    "unsqueeze, middle": lambda x: x.unsqueeze(1),
    "unsqueeze, last": lambda x: x.unsqueeze(-1),
    "None": lambda x: x[:, None],
    "slice": lambda x: x[:, ::2],
    "reshape": lambda x: x.reshape(x.shape),
    "view": lambda x: x.view(x.shape),
    "reshape, longer": lambda x: x.reshape(1, *x.shape, 1),
    "flatten": lambda x: x.flatten(1),
    "unflatten": lambda x: x.unflatten(0, (1, -1)),
    "expand": lambda x: x.expand(1, *x.shape),
    "expand, more": lambda x: x.expand(1, 2, *x.shape),
    "expand, same": lambda x: x.expand_as(x),
    "transpose": lambda x: x.transpose(0, 1),
    "diagonal": lambda x: x.diagonal(),
    "unfold": lambda x: x.unfold(0, 1, 1),
    "narrow": lambda x: x.narrow(0, 0, 1),
    "split": lambda x: x.split(1, 1)[0],
    "unbind": lambda x: x.unbind(1)[0],
    "movedim": lambda x: x.movedim(0, -1),
}
BASES: dict[str, Callable[[Any], Any]] = {
    "plain": lambda L: L.ones(2, 3, 4),
    "with ones": lambda L: L.ones(3, 1, 4),
    "of ones": lambda L: L.ones(1, 1, 1),
    "transposed": lambda L: L.ones(4, 1, 3).transpose(0, 2),
    "sliced": lambda L: L.ones(4, 5, 6)[1:2, ::2, :1],
    "strided": lambda L: L.ones(40).as_strided((1, 3, 1), (7, 2, 9), 1),
    "expanded": lambda L: L.ones(3, 1, 1).expand(3, 1, 4),
    "empty": lambda L: L.ones(2, 1, 0),
}


@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("device", DEVICES)
def test_strides_of_views(base: str, device: str) -> None:
    for name, view in VIEWS.items():

        def run(L: Any, device: str, view: Callable[[Any], Any] = view) -> Any:
            with L.device(device) if L is torch else lucid_default(device):
                x = BASES[base](L)
            try:
                y = view(x)
            except (RuntimeError, IndexError) as e:
                return IndexError if isinstance(e, IndexError) else RuntimeError
            return tuple(y.shape), tuple(y.stride()), y.storage_offset(), y.is_contiguous()

        assert run(lucid, device) == run(torch, "cpu"), f"{name} of {base}"


class lucid_default:
    def __init__(self, device: str) -> None:
        self.device, self.former = device, lucid.get_default_device()

    def __enter__(self) -> None:
        lucid.set_default_device(self.device)

    def __exit__(self, *args: Any) -> None:
        lucid.set_default_device(self.former)


# ---- kinds of errors -------------------------------------------------------------------------------------------------

BIG = 2**70
CALLS: dict[str, Callable[[Any], Any]] = {
    "tensor(None)": lambda L: L.tensor(None),
    "tensor([None])": lambda L: L.tensor([None]),
    "tensor(2**70)": lambda L: L.tensor(BIG),
    "tensor([2**64])": lambda L: L.tensor([2**64]),
    "tensor(2**63)": lambda L: L.tensor(2**63),
    "tensor('a')": lambda L: L.tensor("a"),
    "x + 2**70": lambda L: L.ones(2) + BIG,
    "x * -2**70": lambda L: L.ones(2) * -BIG,
    "full": lambda L: L.full((2,), BIG),
    "fill_": lambda L: L.ones(2).fill_(BIG),
    "x[0] = 2**70": lambda L: L.ones(2).__setitem__(0, BIG),
    "x[2**70]": lambda L: L.ones(2)[BIG],
    "sum(2**70)": lambda L: L.ones(2).sum(BIG),
    "arange": lambda L: L.arange(BIG),
    "x[..., ...]": lambda L: L.ones(2, 2)[..., ...].tolist(),
    "x[..., 0, ...]": lambda L: L.ones(2, 2)[..., 0, ...].tolist(),
    "x[..., ..., 0]": lambda L: L.ones(2, 2)[..., ..., 0],
    "x[..., ..., None]": lambda L: L.ones(2, 2)[..., ..., None],
    "x[0, 0, 0]": lambda L: L.ones(2, 2)[0, 0, 0],
    "x[..., 0, ..., 0]": lambda L: L.arange(8).reshape(2, 2, 2)[..., 0, ..., 0],
}


@pytest.mark.parametrize("name", CALLS)
def test_kinds_of_errors(name: str) -> None:
    kinds = (IndexError, OverflowError, TypeError, ValueError, RuntimeError)

    def run(L: Any) -> Any:
        try:
            return CALLS[name](L)
        except kinds as e:
            return next(k for k in kinds if isinstance(e, k))

    assert run(lucid) == run(torch)


# ---- older names of dtypes -------------------------------------------------------------------------------------------

TYPES = (
    "FloatTensor", "DoubleTensor", "HalfTensor", "BFloat16Tensor", "ByteTensor", "CharTensor", "ShortTensor",
    "IntTensor", "LongTensor", "BoolTensor",
)  # fmt: skip


@pytest.mark.parametrize("name", TYPES)
def test_tensor_types(name: str) -> None:
    def used(L: Any) -> Any:
        kind = getattr(L, name)
        x = kind([[1, 0], [1, 1]])
        return (
            x.tolist(), str(x.dtype)[6:], x.type()[6:], kind(2, 3).shape, kind().shape, kind(L.Size([2])).shape,
            isinstance(x, kind), isinstance(x, L.LongTensor), isinstance(3, kind), L.ones(2).type(kind).type()[6:],
            L.ones(2).type(x.type()).dtype == x.dtype, repr(L.nn.ParameterDict({"a": L.nn.Parameter(L.ones(2))}))[6:],
        )  # fmt: skip

    ours, theirs = used(lucid), used(torch)
    assert [str(v).replace("torch", "lucid") for v in theirs] == [str(v).replace("torch", "lucid") for v in ours]


@pytest.mark.parametrize("text", ["L.FloatTensor('a')", "L.FloatTensor([1], [2])", "L.ones(2).type('foo')"])
def test_wrong_tensor_types(text: str) -> None:
    with pytest.raises((TypeError, ValueError)):
        eval(text, {"L": torch})
    with pytest.raises(TypeError):
        eval(text, {"L": lucid})


def test_devices_by_type_and_tensors_from_the_end() -> None:
    def used(L: Any) -> Any:
        device = L.device(type="cpu", index=0)
        return device.type, L.device(type="cpu") == L.device("cpu"), [int(x) for x in reversed(L.arange(3))]

    assert used(lucid) == used(torch)
    for arguments in ({}, {"device": "cpu", "type": "cpu"}):
        with pytest.raises(TypeError):
            lucid.device(**arguments)
