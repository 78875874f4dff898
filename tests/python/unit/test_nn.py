"""Modules without PyTorch: attributes, the tree, hooks, state dicts, moving, copying, repr."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import lucid
import pytest
from lucid import nn


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(2, 3), nn.ReLU())
        self.head = nn.Linear(3, 1)
        self.scale = nn.Parameter(lucid.ones(1))
        self.register_buffer("count", lucid.zeros(1))
        self.register_buffer("scratch", lucid.zeros(2), persistent=False)

    def forward(self, x: lucid.Tensor) -> lucid.Tensor:
        return self.head(self.body(x)) * self.scale


# ---- Parameter -------------------------------------------------------------------------------------------------------


def test_parameter_is_a_leaf_that_shares_storage() -> None:
    data = lucid.tensor([1.0, 2.0])
    p = nn.Parameter(data)
    assert isinstance(p, lucid.Tensor) and p.requires_grad and p.is_leaf
    with lucid.no_grad():
        p.mul_(2)
        assert nn.Parameter(data).requires_grad
    assert data.tolist() == [2.0, 4.0]
    assert not isinstance(p * 2, nn.Parameter)
    assert not nn.Parameter(lucid.tensor([1.0]), requires_grad=False).requires_grad
    assert nn.Parameter().shape == (0,)
    assert repr(p).startswith("Parameter containing:\ntensor(")


def test_parameter_of_integers_needs_no_grad() -> None:
    with pytest.raises(RuntimeError):
        nn.Parameter(lucid.tensor([1, 2]))
    assert nn.Parameter(lucid.tensor([1, 2]), requires_grad=False).tolist() == [1, 2]
    with pytest.raises(TypeError):
        nn.Parameter([1.0])  # type: ignore[arg-type]


@pytest.mark.parametrize("how", [copy.deepcopy, lambda p: pickle.loads(pickle.dumps(p))])
def test_parameter_copies(how: Any, device: str) -> None:
    p = nn.Parameter(lucid.tensor([1.0, 2.0], device=device), requires_grad=False)
    q = how(p)
    assert type(q) is nn.Parameter and not q.requires_grad and q.device == p.device
    p.mul_(3)
    assert q.tolist() == [1.0, 2.0]


# ---- attributes ------------------------------------------------------------------------------------------------------


def test_assignment_registers() -> None:
    net = Net()
    names = ["scale", "body.0.weight", "body.0.bias", "head.weight", "head.bias"]
    assert [n for n, _ in net.named_parameters()] == names
    assert [n for n, _ in net.named_buffers()] == ["count", "scratch"]
    assert [n for n, _ in net.named_children()] == ["body", "head"]
    assert [n for n, _ in net.named_modules()] == ["", "body", "body.0", "body.1", "head"]
    assert net.scale is net._parameters["scale"] and "scale" not in net.__dict__
    assert {"scale", "count", "body"} <= set(dir(net))


def test_assignment_moves_a_name_between_kinds() -> None:
    net = nn.Module()
    net.x = 3
    net.x = nn.Parameter(lucid.ones(1))
    assert "x" in net._parameters and "x" not in net.__dict__
    net.x = None
    assert net.x is None and list(net.parameters()) == []
    del net.x
    net.x = nn.Linear(1, 1)
    assert "x" in net._modules
    del net.x
    net.register_buffer("x", lucid.ones(1), persistent=False)
    net.x = nn.Parameter(lucid.ones(1))
    assert list(net._buffers) == [] and list(net.state_dict()) == ["x"]
    assert net._non_persistent_buffers_set == set()


def test_wrong_assignments() -> None:
    net = Net()
    with pytest.raises(
        TypeError, match=r"cannot assign 'lucid\.Tensor' as parameter 'scale' \(lucid.nn.Parameter or None expected\)"
    ):
        net.scale = lucid.ones(1)
    with pytest.raises(TypeError, match="cannot assign 'int' as child module 'head'"):
        net.head = 3
    with pytest.raises(TypeError, match="cannot assign 'str' as buffer 'count'"):
        net.count = "many"
    with pytest.raises(AttributeError, match="'Net' object has no attribute 'missing'"):
        _ = net.missing
    with pytest.raises(AttributeError):
        del net.missing
    with pytest.raises(KeyError, match="attribute 'head' already exists"):
        net.register_parameter("head", nn.Parameter(lucid.ones(1)))
    with pytest.raises(KeyError, match="contain"):
        net.register_buffer("a.b", lucid.ones(1))
    with pytest.raises(KeyError, match="empty string"):
        net.add_module("", nn.Identity())
    with pytest.raises(TypeError, match="not a Module subclass"):
        net.add_module("x", 3)  # type: ignore[arg-type]


def test_use_before_init() -> None:
    class Early(nn.Module):
        def __init__(self, what: Any) -> None:
            self.x = what

    for what, kind in ((nn.Parameter(lucid.ones(1)), "parameters"), (nn.Identity(), "module")):
        with pytest.raises(AttributeError, match=rf"cannot assign {kind} before Module.__init__\(\) call"):
            Early(what)
    with pytest.raises(TypeError, match="unexpected keyword argument 'size'"):
        nn.ReLU(size=3)  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        nn.Tanh(3)  # type: ignore[call-arg]
    with pytest.raises(NotImplementedError, match='missing the required "forward"'):
        nn.Module()(1)


def test_multiple_inheritance() -> None:
    class Named:
        def __init__(self, name: str) -> None:
            self.name = name

    class Both(nn.Module, Named):
        def __init__(self) -> None:
            nn.Module.__init__(self)
            Named.__init__(self, "both")
            self.w = nn.Parameter(lucid.ones(1))

    both = Both()
    assert both.name == "both" and len(list(both.parameters())) == 1


def test_shared_modules_and_parameters_count_once() -> None:
    layer = nn.Linear(2, 2)
    net = nn.Sequential(layer, layer)
    assert len(list(net.parameters())) == 2
    assert len(list(net.named_parameters(remove_duplicate=False))) == 4
    assert [n for n, _ in net.named_modules()] == ["", "0"]
    assert list(net.state_dict()) == ["0.weight", "0.bias", "1.weight", "1.bias"]
    tied = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    tied[1].weight = tied[0].weight
    assert len(list(tied.parameters())) == 3
    copied = copy.deepcopy(tied)
    assert copied[1].weight is copied[0].weight and copied[0].weight is not tied[0].weight


def test_paths() -> None:
    net = Net()
    assert net.get_submodule("body.0") is net.body[0] and net.get_submodule("") is net
    assert net.get_parameter("body.0.weight") is net.body[0].weight
    assert net.get_buffer("count") is net.count
    with pytest.raises(AttributeError):
        net.get_submodule("body.9")
    with pytest.raises(AttributeError):
        net.get_parameter("count")
    net.set_submodule("body.1", nn.Tanh())
    assert isinstance(net.body[1], nn.Tanh)


def test_a_deep_tree_is_walked_without_recursion() -> None:
    root = module = nn.Module()
    for _ in range(5000):
        module.next = nn.Module()
        module = module.next
    assert sum(1 for _ in root.modules()) == 5001


# ---- calling and hooks -----------------------------------------------------------------------------------------------


def test_hooks_see_and_change(device: str) -> None:
    layer = nn.Linear(2, 2).to(device)
    x = lucid.ones(3, 2, device=device)
    plain = layer(x)
    calls: list[str] = []
    first = layer.register_forward_pre_hook(lambda m, args: calls.append("pre"))
    second = layer.register_forward_pre_hook(
        lambda m, args: (calls.append("pre first"), (args[0] * 2,))[1], prepend=True
    )
    third = layer.register_forward_hook(lambda m, args, out: (calls.append("post"), out + 1)[1])
    assert lucid.allclose(layer(x), layer.forward(x * 2) + 1)
    assert calls == ["pre first", "pre", "post"]
    for handle in (first, second, third):
        handle.remove()
        handle.remove()
    assert lucid.equal(layer(x), plain) and len(calls) == 3


def test_hooks_with_kwargs() -> None:
    class Twice(nn.Module):
        def forward(self, x: int, *, by: int = 2) -> int:
            return x * by

    module = Twice()
    with module.register_forward_pre_hook(lambda m, args, kwargs: (args, {"by": kwargs["by"] + 1}), with_kwargs=True):
        with module.register_forward_hook(lambda m, args, kwargs, out: (out, kwargs), with_kwargs=True):
            assert module(5, by=2) == (15, {"by": 3})
        assert module(5, by=3) == 20
    assert module(5, by=3) == 15
    module.register_forward_pre_hook(lambda m, args, kwargs: 3, with_kwargs=True)
    with pytest.raises(RuntimeError, match="tuple of"):
        module(5)


def test_hooks_that_always_run() -> None:
    class Fails(nn.Module):
        def forward(self, x: int) -> int:
            raise ArithmeticError("no")

    module, calls = Fails(), []
    module.register_forward_hook(lambda m, args, out: calls.append("never"))
    module.register_forward_hook(lambda m, args, out: calls.append(out), always_call=True)
    with pytest.raises(ArithmeticError):
        module(1)
    assert calls == [None]


# ---- state dicts -----------------------------------------------------------------------------------------------------


def test_state_dict_shares_storage_and_loads(device: str) -> None:
    net, other = Net().to(device), Net().to(device)
    state = net.state_dict()
    assert list(state) == ["scale", "count", "body.0.weight", "body.0.bias", "head.weight", "head.bias"]
    assert not state["scale"].requires_grad and net.state_dict(keep_vars=True)["scale"] is net.scale
    assert next(iter(net.state_dict(prefix="net."))) == "net.scale"
    before = other.scale
    keys = other.load_state_dict(state)
    assert repr(keys) == "<All keys matched successfully>" and other.scale is before
    x = lucid.ones(4, 2, device=device)
    assert lucid.equal(net(x), other(x))
    with lucid.no_grad():
        net.scale.mul_(5)
    assert state["scale"].item() == 5 and other.scale.item() == 1


def test_everything_wrong_is_in_one_error() -> None:
    net = Net()
    state = net.state_dict()
    del state["scale"], state["head.bias"]
    state["foo"] = lucid.ones(1)
    state["body.7.weight"] = lucid.ones(1)
    state["head.weight"] = lucid.ones(4)
    state["body.0.bias"] = "three"
    before = net.body[0].weight.tolist()
    state["body.0.weight"] = state["body.0.weight"] + 1
    with pytest.raises(RuntimeError) as caught:
        net.load_state_dict(state)
    text = str(caught.value)
    assert text.startswith("Error(s) in loading state_dict for Net:\n\t")
    for part in (
        'Missing key(s) in state_dict: "scale", "head.bias"',
        'Unexpected key(s) in state_dict: "foo", "body.7.weight"',
        "size mismatch for head.weight: copying a param with shape lucid.Size([4]) from checkpoint, "
        "the shape in current model is lucid.Size([1, 3]).",
        'While copying the parameter named "body.0.bias", expected a Tensor',
    ):
        assert part in text
    # As in PyTorch, what fits has been copied.
    assert net.body[0].weight.flatten().tolist() == pytest.approx([v + 1 for row in before for v in row])
    del state["head.weight"], state["body.0.bias"]
    missing, unexpected = net.load_state_dict(state, strict=False)
    assert set(missing) == {"scale", "head.bias", "head.weight", "body.0.bias"}
    assert set(unexpected) == {"foo", "body.7.weight"}
    with pytest.raises(TypeError, match="dict-like"):
        net.load_state_dict([("scale", 1)])  # type: ignore[arg-type]


def test_load_converts_and_assigns(device: str) -> None:
    layer = nn.Linear(2, 1).to(device)
    layer.load_state_dict({"weight": [[1.0, 2.0]], "bias": lucid.tensor([3.0], dtype=lucid.float64)})
    assert layer.weight.tolist() == [[1.0, 2.0]] and layer.bias.dtype == lucid.float32
    state = {"weight": lucid.ones(1, 2, dtype=lucid.float16), "bias": lucid.ones(1, dtype=lucid.float16)}
    layer.weight.requires_grad_(False)
    layer.load_state_dict(state, assign=True)
    assert layer.weight.dtype == lucid.float16 and isinstance(layer.weight, nn.Parameter)
    assert not layer.weight.requires_grad and layer.bias.requires_grad


def test_extra_state_and_hooks() -> None:
    class Extra(nn.Linear):
        note: Any = None

        def get_extra_state(self) -> Any:
            return {"note": self.note}

        def set_extra_state(self, state: Any) -> None:
            self.note = state["note"]

    a, b = nn.Sequential(Extra(1, 1)), nn.Sequential(Extra(1, 1))
    a[0].note = "hi"
    seen: list[Any] = []
    a.register_state_dict_pre_hook(lambda m, prefix, keep: seen.append("pre"))
    a.register_state_dict_post_hook(lambda m, state, prefix, meta: state.update(more=1))
    state = a.state_dict()
    assert list(state) == ["0.weight", "0.bias", "0._extra_state", "more"] and seen == ["pre"]
    b.register_load_state_dict_pre_hook(lambda m, state, *rest: state.pop("more"))
    b.register_load_state_dict_post_hook(lambda m, keys: seen.append(keys.missing_keys))
    b.load_state_dict(state)
    assert b[0].note == "hi" and seen == ["pre", []]
    assert state._metadata["0"] == {"version": 1}


@pytest.mark.parametrize("how", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_copy_and_pickle(how: Any, device: str) -> None:
    net = nn.Sequential(
        nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(8, 3), nn.TransformerEncoderLayer(3, 1, 4)
    )
    net.to(device).eval()
    net[0].bias.requires_grad_(False)
    other = how(net)
    assert repr(other) == repr(net) and not other.training
    assert [p.requires_grad for p in other.parameters()] == [p.requires_grad for p in net.parameters()]
    x = lucid.randn(2, 1, 4, 4, device=device)
    assert lucid.equal(other(x), net(x))
    with lucid.no_grad():
        other[3].weight.zero_()
    assert net[3].weight.abs().sum().item() > 0


# ---- moving, modes, gradients ----------------------------------------------------------------------------------------


def test_to_keeps_parameters_and_their_ties(device: str) -> None:
    net = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2), nn.BatchNorm1d(2))
    net[1].weight = net[0].weight
    params, values = list(net.parameters()), net[0].weight.tolist()
    assert net.to(device) is net
    assert all(p is q for p, q in zip(params, net.parameters(), strict=True))
    assert net[1].weight is net[0].weight and net[0].weight.tolist() == values
    assert all(t.device == lucid.device(device) for t in (*net.parameters(), *net.buffers()))
    net(lucid.ones(3, 2, device=device)).sum().backward()
    net.to(lucid.float16)
    assert all(p.dtype == lucid.float16 and p.grad.dtype == lucid.float16 for p in net.parameters())
    assert net[2].num_batches_tracked.dtype == lucid.int64
    net.to("cpu", lucid.float64)
    assert all(p.dtype == lucid.float64 and p.is_leaf and p.requires_grad for p in net.parameters())
    net.to(lucid.ones(1, device=device))
    assert net[0].weight.dtype == lucid.float32 and net[0].weight.device == lucid.device(device)
    assert net.double().cpu().half().bfloat16().float()[0].weight.dtype == lucid.float32 if device == "cpu" else True


def test_wrong_moves() -> None:
    with pytest.raises(TypeError, match="floating point or complex"):
        nn.Linear(1, 1).to(lucid.int32)
    with pytest.raises(TypeError, match="unexpected keyword"):
        nn.Linear(1, 1).to(place="cpu")
    with pytest.raises(RuntimeError):
        nn.Linear(1, 1).double().to("gpu")


def test_an_optimizer_made_before_the_move_still_trains(device: str) -> None:
    layer = nn.Linear(1, 1, bias=False)
    optimizer = lucid.optim.SGD(layer.parameters(), lr=0.5)
    layer.to(device)
    with lucid.no_grad():
        layer.weight.fill_(1)
    layer(lucid.ones(1, 1, device=device)).sum().backward()
    optimizer.step()
    assert layer.weight.item() == 0.5


def test_modes() -> None:
    net = Net()
    assert all(m.training for m in net.modules())
    assert net.eval() is net and not any(m.training for m in net.modules())
    net.head.train()
    assert net.head.training and not net.training
    with pytest.raises(ValueError, match="boolean"):
        net.train(1)  # type: ignore[arg-type]


# ---- containers ------------------------------------------------------------------------------------------------------


# ---- layers ----------------------------------------------------------------------------------------------------------


class Registers(nn.Module):
    """A module with one of each kind, and the same name in another sense where `plain`."""

    def __init__(self, plain: bool = False) -> None:
        super().__init__()
        self.layer = "none" if plain else nn.Linear(2, 2)
        self.register_buffer("seen", lucid.ones(2))
        self.scale = nn.Parameter(lucid.ones(1))


class _Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attn = nn.MultiheadAttention(4, 2)
        self.mlp = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(7, 4))

    def forward(self, x: lucid.Tensor) -> lucid.Tensor:
        return self.mlp(x + self.attn(x, x, x)[0])
