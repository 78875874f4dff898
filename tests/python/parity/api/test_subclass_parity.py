"""Subclasses of `Tensor` side by side with PyTorch: of which class the results are."""

from __future__ import annotations

import copy
import io
import operator
import pickle
from collections.abc import Callable
from typing import Any

import lucid
import lucid.nn.functional
import pytest

from tests.python.parity.api.subclasses import DEEP, DEVICES, OTHER, PLAIN, LucidPlain, same, tensor

# ---- the class of results --------------------------------------------------------------------------------------------


def set_item(x: Any) -> Any:
    x[0] = 7
    return x


def set_data(L: Any, x: Any) -> Any:
    x.data = L.zeros(2, device=x.device)
    return x


def applied(name: str, call: Callable[[Any, Any, Any], Any]) -> Callable[[Any, Any, Any], Any]:
    return lambda L, x, y: call(getattr(operator, name), x, y)


# Name: what is made of a tensor of the class, `x`, and a plain one, `y`.
RESULTS: dict[str, Callable[[Any, Any, Any], Any]] = {
    **{
        name: applied(name, lambda f, x, y: f(x, y))
        for name in ["add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "eq", "ne", "lt", "le", "gt", "ge"]
    },
    **{
        "r" + name: applied(name, lambda f, x, y: f(y, x))
        for name in ["add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "eq", "ne", "lt", "le", "gt", "ge"]
    },
    **{
        "n" + name: applied(name, lambda f, x, y: f(2, x))
        for name in ["add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "eq", "ne", "lt", "le", "gt", "ge"]
    },
    **{
        "i" + name: applied("i" + name, lambda f, x, y: f(x, 2))
        for name in ["add", "sub", "mul", "truediv", "floordiv", "mod", "pow"]
    },
    **{name: applied(name, lambda f, x, y: f(x)) for name in ["neg", "pos", "abs"]},
    "matmul": lambda L, x, y: x @ y.T,
    "rmatmul": lambda L, x, y: y @ x.T,
    "invert": lambda L, x, y: ~(x > 1),
    "and": lambda L, x, y: (x > 1) & (y > 2),
    "rand": lambda L, x, y: (y > 1) & (x > 2),
    "shift": lambda L, x, y: x.long() << 1,
    "rshift": lambda L, x, y: 1 << x.long(),
    "index": lambda L, x, y: [
        x[0],
        x[:, 1:],
        x[..., None],
        x[x > 1],
        x[[0, 1], [1, 2]],
        x[L.tensor([1], device=x.device)],
    ],
    "indexed by": lambda L, x, y: y[x[0].long().clamp(0, 1)],
    "setitem": lambda L, x, y: set_item(x),
    "method": lambda L, x, y: [
        x.add(y),
        y.add(x),
        x.exp(),
        x.sum(),
        x.sum(dim=1),
        x.mean(0, keepdim=True),
        y.mul(other=x),
    ],
    "function": lambda L, x, y: [
        L.add(x, y),
        L.add(y, x),
        L.exp(x),
        L.sum(x, dim=1),
        L.sub(y, other=x),
        L.where(y > 1, x, 0.0),
    ],
    "list": lambda L, x, y: [L.cat([x, y]), L.cat([y, x], dim=1), L.stack((y, x))],
    "splits": lambda L, x, y: [
        x.split(1),
        L.chunk(x, 2),
        x.unbind(),
        list(x),
        L.tensor_split(x, 2),
        L.meshgrid(x[0], y[1], indexing="ij"),
    ],
    "named": lambda L, x, y: [x.max(1), L.min(x, 0), x.sort(), L.topk(x, 1), L.linalg.svd(x)[1], L.std_mean(x)],
    "names": lambda L, x, y: [x.max(1).values, x.sort().indices, L.linalg.qr(x).R.abs()],
    "views": lambda L, x, y: [
        x.view(3, 2),
        x.reshape(-1),
        x.T,
        x.mT,
        x.t(),
        x.transpose(0, 1),
        x.expand(2, 2, 3),
        x.squeeze(),
        x.diagonal(),
    ],
    "in place": lambda L, x, y: [x.add_(1), x.clamp_(0, 3), x.zero_(), x.fill_(2), x.copy_(y)],
    "in place of another": lambda L, x, y: [y.add_(x), y.copy_(x)],
    "like": lambda L, x, y: [
        L.zeros_like(x),
        L.ones_like(x),
        L.full_like(x, 2),
        x.new_zeros(2),
        x.new_tensor([1.0]),
        x.new_full((2,), 1),
    ],
    "new": lambda L, x, y: [L.tensor([1.0]), L.zeros(2), L.full((2,), 1.0), L.arange(3)],
    "data": lambda L, x, y: [
        x.data,
        x.detach(),
        x.clone(),
        x.contiguous(),
        x.to(L.float16),
        x.half(),
        x.cpu(),
        x.requires_grad_(),
    ],
    "set data": lambda L, x, y: set_data(L, x),
    "real": lambda L, x, y: [x.real, L.view_as_real(L.complex(x, y)), L.complex(y, x).imag],
    "values": lambda L, x, y: [
        x.shape,
        x.size(),
        x.size(0),
        x.stride(),
        x.dim(),
        x.ndim,
        x.numel(),
        len(x),
        x.tolist(),
        x.cpu().numpy(),
    ],
    "numbers": lambda L, x, y: [
        x[0, 0].item(),
        float(x[0, 0]),
        int(x[0, 1]),
        bool(x[0, 0]),
        complex(x[0, 0]),
        operator.index(x[0, 0].long()),
    ],
    "contains": lambda L, x, y: [
        2.0 in x,
        9.0 in x,
        L.equal(x, y),
        x.allclose(y),
        L.is_tensor(x),
        isinstance(x, L.Tensor),
    ],
    "out": lambda L, x, y: [L.add(y, 1, out=x), L.add(x, 1, out=y)],
    "F": lambda L, x, y: [
        L.nn.functional.relu(x),
        L.nn.functional.softmax(x, 1),
        L.nn.functional.linear(y, x),
        L.nn.functional.mse_loss(x, y),
        L.nn.functional.mse_loss(y, x),
        L.nn.functional.gelu(x),
        L.nn.functional.dropout(x, 0.0),
        L.nn.functional.pad(x, (1, 1)),
        L.nn.functional.layer_norm(x, (3,)),
        L.nn.functional.normalize(x),
        L.nn.functional.one_hot(x.long(), 5),
    ],
    "pool": lambda L, x, y: [
        L.nn.functional.max_pool1d(x, 2),
        L.nn.functional.max_pool1d(x, 2, return_indices=True),
        L.nn.functional.avg_pool1d(x, 2),
    ],
    "loss": lambda L, x, y: [
        L.nn.functional.cross_entropy(x, L.tensor([0, 2], device=x.device)),
        L.nn.functional.l1_loss(y, x),
        L.nn.functional.binary_cross_entropy_with_logits(x, y),
    ],
    "layer": lambda L, x, y: [L.nn.ReLU()(x), L.nn.Flatten(0)(x), L.nn.Softmax(1)(x), L.nn.Identity()(x)],
    "linalg": lambda L, x, y: [
        L.linalg.norm(x),
        L.linalg.vector_norm(x, dim=1),
        L.einsum("ij,kj->ik", x, y),
        L.special.expit(x),
        L.norm(x),
        L.linalg.matrix_norm(x),
    ],
    "reversed": lambda L, x, y: reversed(x),
    "unique": lambda L, x, y: [L.unique(x), x.unique(return_counts=True), L.bincount(x[0].long())],
    "bools": lambda L, x, y: [x.any(), L.all(x), L.isnan(x), L.isfinite(x)],
    "as_subclass": lambda L, x, y: [x.as_subclass(L.Tensor), y.as_subclass(PLAIN[L]), x.as_subclass(DEEP[L])],
    "as_tensor": lambda L, x, y: [L.as_tensor(x), L.asarray(x)],
    "random": lambda L, x, y: [L.zeros_like(L.rand_like(x)), L.zeros_like(L.bernoulli(x * 0))],
    "dtypes": lambda L, x, y: [x.dtype, L.result_type(x, 1), x.is_floating_point(), L.is_floating_point(x)],
    "two": lambda L, x, y: [x + DEEP[L](y), DEEP[L](y) + x, L.cat([y, x, DEEP[L](y)]), x.add(DEEP[L](y))],
    "unrelated": lambda L, x, y: x + OTHER[L](y),
    "unrelated, function": lambda L, x, y: L.add(x, OTHER[L](y)),
    "unrelated, method": lambda L, x, y: x.add_(OTHER[L](y)),
    "unrelated, comparison": lambda L, x, y: x < OTHER[L](y),
    "unrelated, list": lambda L, x, y: L.cat([x, OTHER[L](y)]),
    "parameter": lambda L, x, y: [
        x + L.nn.Parameter(y),
        L.nn.Parameter(y) + x,
        L.nn.Parameter(y) + 1,
        L.nn.Parameter(y).detach(),
    ],
    "parameter of it": lambda L, x, y: [
        L.nn.Parameter(x),
        isinstance(L.nn.Parameter(x), L.nn.Parameter),
        L.nn.Parameter(x).requires_grad,
        isinstance(x, L.nn.Parameter),
    ],
    "wrong": lambda L, x, y: x.reshape(7),
    "wrong name": lambda L, x, y: L.add(x, "text"),
    "not callable": lambda L, x, y: x.nothing,
    "read only": lambda L, x, y: setattr(x, "shape", 1),
}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", RESULTS)
def test_results_are_of_the_class(name: str, device: str) -> None:
    def act(L: Any, device: str) -> Any:
        y = tensor(L, device, [[2.0, 1.0, 3.0], [1.0, 2.0, 2.0]])
        return RESULTS[name](L, PLAIN[L](tensor(L, device)), y)

    same(act, device)


@pytest.mark.parametrize("device", DEVICES)
def test_the_tape_goes_through(device: str) -> None:
    def act(L: Any, device: str) -> Any:
        leaf = tensor(L, device).as_subclass(PLAIN[L]).detach().requires_grad_()
        plain = tensor(L, device).requires_grad_()
        loss = (leaf * 2 + plain.exp()).sum()
        loss.backward()
        grad = L.autograd.grad((leaf * leaf).sum(), leaf)[0]
        twice = L.autograd.grad((plain * plain.as_subclass(PLAIN[L])).sum(), plain)[0]
        hooked: list[Any] = []
        y = leaf * 3
        y.retain_grad()
        y.register_hook(lambda g: hooked.append(type(g).__name__))
        y.sum().backward()
        more = [hooked, y.grad, leaf.is_leaf, y.is_leaf, y.grad_fn is None, leaf.requires_grad]
        return [loss, leaf.grad, plain.grad, grad, twice, *more, leaf[0]._base]

    same(act, device)


@pytest.mark.parametrize("device", DEVICES)
def test_a_network_of_a_subclass_learns(device: str) -> None:
    def act(L: Any, device: str) -> Any:
        weight = L.nn.Parameter(PLAIN[L](tensor(L, device)))
        module = L.nn.Linear(3, 2, bias=False)
        module.weight = weight
        optimizer = L.optim.SGD(module.parameters(), lr=0.1, momentum=0.5)
        for _ in range(3):
            optimizer.zero_grad()
            loss = module(tensor(L, device)).square().mean()
            loss.backward()
            optimizer.step()
        return [loss, module.weight, [n for n, _ in module.named_parameters()], module.state_dict()["weight"]]

    same(act, device)


@pytest.mark.parametrize("device", DEVICES)
def test_copies_and_files(device: str) -> None:
    def act(L: Any, device: str) -> Any:
        x = PLAIN[L](tensor(L, device)).requires_grad_()
        x.note = "kept"
        shallow, again = copy.copy(x), pickle.loads(pickle.dumps(x))
        file = io.BytesIO()
        L.save(x, file)
        file.seek(0)
        loaded = L.load(file, weights_only=False)
        made = L.Tensor._make_subclass(PLAIN[L], tensor(L, device), True)
        every = [shallow, again, loaded, made]
        return [
            every,
            [getattr(t, "note", None) for t in every],
            [t.requires_grad for t in every],
            x.clone(),
            x.detach(),
        ]

    same(act, device)


@pytest.mark.parametrize("device", DEVICES)
def test_deep_copies_are_of_the_class(device: str) -> None:
    # PyTorch refuses it for a class that does not define `new_empty` itself.
    x = LucidPlain(tensor(lucid, device)).requires_grad_()
    x.note = ["kept"]  # type: ignore[attr-defined]
    (x * 2).sum().backward()
    deep = copy.deepcopy([x, x])[0]
    assert type(deep) is LucidPlain and deep.tolist() == x.tolist() and deep.requires_grad
    assert deep.note == ["kept"] and deep.note is not x.note  # type: ignore[attr-defined]
    assert deep.grad is not None and deep.grad.tolist() == [[2, 2, 2]] * 2
    with lucid.no_grad():
        deep.zero_()
    assert x.sum().item() > 0


@pytest.mark.parametrize("device", DEVICES)
def test_attributes_of_the_class(device: str) -> None:
    def act(L: Any, device: str) -> Any:
        class Named(L.Tensor):  # type: ignore[misc, name-defined]
            @staticmethod
            def __new__(cls, data: Any, name: str) -> Any:
                return data.as_subclass(cls)

            def __init__(self, data: Any, name: str) -> None:
                self.label = name

            @property
            def shape(self) -> Any:
                return tuple(super().shape)

            def half(self) -> Any:
                return super().half() * 2

            def __add__(self, other: Any) -> Any:
                return L.Tensor.__add__(self, other) * 10

        x = Named(tensor(L, device), "a")
        return [
            x,
            x.label,
            hasattr(x + 1, "label"),
            x.shape,
            x.half().float(),
            x + 1,
            1 + x,
            tensor(L, device) + x,
            repr(x).split("(")[0],
        ]

    same(act, device)
