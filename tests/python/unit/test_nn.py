"""Modules without PyTorch: attributes, the tree, hooks, state dicts, moving, copying, repr."""

from __future__ import annotations

import copy
import math
import pickle
import typing
from collections import OrderedDict
from typing import Any

import lucid
import lucid.nn.functional as F
import pytest
from lucid import nn

from tests.python.tolerances import TABLE, within


@pytest.fixture(params=["cpu", "gpu"])
def device(request: pytest.FixtureRequest) -> str:
    return str(request.param)


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


def test_gradients_are_zeroed_or_removed(device: str) -> None:
    net = Net().to(device)
    net(lucid.ones(2, 2, device=device)).sum().backward()
    grad = net.scale.grad
    assert grad is not None and grad.item() != 0
    net.zero_grad(set_to_none=False)
    assert net.scale.grad is not None and net.scale.grad.item() == 0 and grad.item() == 0
    net.zero_grad()
    assert all(p.grad is None for p in net.parameters())
    net.requires_grad_(False)
    assert not net(lucid.ones(2, 2, device=device)).requires_grad


def test_apply_goes_bottom_up() -> None:
    seen: list[str] = []
    net = Net()
    assert net.apply(lambda m: seen.append(type(m).__name__)) is net
    assert seen == ["Linear", "ReLU", "Sequential", "Linear", "Net"]


# ---- containers ------------------------------------------------------------------------------------------------------


def test_sequential() -> None:
    chain = nn.Sequential(OrderedDict(first=nn.Linear(1, 2), second=nn.ReLU()))
    assert (
        [n for n, _ in chain.named_children()] == ["first", "second"]
        and chain.first is chain[0]
        and chain[-1] is chain.second
    )
    assert isinstance(chain[:1], nn.Sequential) and list(chain[:1]._modules) == ["first"]
    plain = nn.Sequential(nn.ReLU(), nn.Tanh())
    plain.append(nn.Sigmoid()).insert(1, nn.GELU())
    assert [type(m).__name__ for m in plain] == ["ReLU", "GELU", "Tanh", "Sigmoid"]
    assert isinstance(plain.pop(0), nn.ReLU) and len(plain) == 3
    del plain[0]
    assert list(plain._modules) == ["0", "1"]
    assert len(plain + nn.Sequential(nn.ReLU())) == 3
    plain[0] = nn.Identity()
    assert isinstance(plain[0], nn.Identity)
    for index in (2, -3):
        with pytest.raises(IndexError):
            plain[index]
    assert nn.Sequential()(5) == 5


def test_module_list_and_dict() -> None:
    modules = nn.ModuleList([nn.Linear(1, 1), nn.Linear(1, 1)])
    modules += [nn.ReLU()]
    modules.append(nn.ReLU())
    assert len(modules) == 4 and len(list(modules.parameters())) == 4 and len(modules[1:3]) == 2
    assert repr(modules) == (
        "ModuleList(\n  (0-1): 2 x Linear(in_features=1, out_features=1, bias=True)\n  (2-3): 2 x ReLU()\n)"
    )
    named = nn.ModuleDict({"a": nn.Linear(1, 1)})
    named["b"] = nn.ReLU()
    named.update([("c", nn.Tanh())])
    assert list(named) == ["a", "b", "c"] and "b" in named and len(named) == 3
    assert isinstance(named.pop("b"), nn.ReLU) and [k for k, _ in named.items()] == ["a", "c"]
    assert list(named.state_dict()) == ["a.weight", "a.bias"]


# ---- layers ----------------------------------------------------------------------------------------------------------


def test_dropout_scales_what_it_keeps(device: str) -> None:
    lucid.manual_seed(0)
    layer, x = nn.Dropout(0.25), lucid.ones(100, 100, device=device)
    out = layer(x)
    values = {round(v, 5) for row in out.tolist() for v in row}
    assert values == {0.0, round(1 / 0.75, 5)}
    assert abs((out == 0).float().mean().item() - 0.25) < 0.02
    assert layer.eval()(x) is x or lucid.equal(layer(x), x)
    y = lucid.ones(100, device=device)
    assert nn.Dropout(0.5, inplace=True)(y) is y and 0 < (y == 0).float().mean().item() < 1
    with pytest.raises(ValueError, match="between 0 and 1"):
        nn.Dropout(1.5)


def test_in_place_activations(device: str) -> None:
    for layer in (nn.ReLU(True), nn.ReLU6(True), nn.SiLU(True), nn.LeakyReLU(0.1, True), nn.ELU(1.0, True)):
        x = lucid.tensor([-1.0, 2.0, 9.0], device=device)
        wanted = type(layer)()(x) if isinstance(layer, nn.ReLU) else None
        out = layer(x)
        assert out is x
        if wanted is not None:
            assert lucid.equal(out, wanted)


def test_batch_norm_statistics(device: str) -> None:
    layer = nn.BatchNorm1d(2, momentum=0.5).to(device)
    x = lucid.tensor([[1.0, 10.0], [3.0, 30.0]], device=device)
    layer(x)
    assert layer.running_mean.tolist() == [1.0, 10.0] and layer.running_var.tolist() == [1.5, 100.5]
    assert layer.num_batches_tracked.item() == 1
    layer.eval()(x)
    assert layer.num_batches_tracked.item() == 1
    layer.reset_running_stats()
    assert layer.running_mean.tolist() == [0.0, 0.0] and layer.num_batches_tracked.item() == 0
    for wrong in (lucid.ones(2), lucid.ones(2, 2, 2, 2)):
        with pytest.raises(ValueError, match="expected 2D or 3D input"):
            layer(wrong)
    with pytest.raises(ValueError, match="more than 1 value per channel"):
        nn.BatchNorm1d(2).to(device)(lucid.ones(1, 2, device=device))


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (lambda: nn.Conv2d(3, 4, 3, groups=2), ValueError),
        (lambda: nn.Conv2d(4, 3, 3, groups=2), ValueError),
        (lambda: nn.Conv2d(4, 4, 3, groups=0), ValueError),
        (lambda: nn.Conv2d(4, 4, 3, padding="some"), ValueError),
        (lambda: nn.Conv2d(4, 4, 3, stride=2, padding="same"), ValueError),
        (lambda: nn.Conv2d(4, 4, 3, padding_mode="mirror"), ValueError),
        (lambda: nn.ConvTranspose2d(4, 4, 3, padding_mode="reflect"), ValueError),
        (lambda: nn.GroupNorm(3, 4), ValueError),
        (lambda: nn.MultiheadAttention(5, 2), AssertionError),
        (lambda: nn.MultiheadAttention(0, 2), ValueError),
        (lambda: nn.Embedding(3, 2, padding_idx=3), AssertionError),
        (lambda: nn.TransformerEncoderLayer(4, 2, activation="sine"), RuntimeError),
        (lambda: nn.init.xavier_uniform_(lucid.ones(3)), ValueError),
        (lambda: nn.init.kaiming_uniform_(lucid.ones(3, 3), mode="fan"), ValueError),
        (lambda: nn.init.calculate_gain("sine"), ValueError),
        (lambda: F.pad(lucid.ones(1, 3), [1]), RuntimeError),
        (lambda: F.pad(lucid.ones(1, 3), [3, 0], "reflect"), RuntimeError),
        (lambda: F.pad(lucid.ones(1, 3), [1, 0], "mirror"), NotImplementedError),
    ],
)
def test_bad_arguments(make: Any, kind: type[Exception]) -> None:
    with pytest.raises(kind):
        make()


def test_shapes_that_do_not_fit(device: str) -> None:
    for layer, shape in (
        (nn.Linear(3, 4), (2, 5)),
        (nn.Conv2d(3, 4, 3), (2, 5, 8, 8)),
        (nn.Conv2d(3, 4, 9), (2, 3, 8, 8)),
        (nn.LayerNorm(3), (2, 4)),
    ):
        with pytest.raises(RuntimeError):
            layer.to(device)(lucid.ones(shape, device=device))


def test_old_reduction_arguments_warn() -> None:
    with pytest.warns(UserWarning, match="reduction='sum'"):
        assert nn.MSELoss(size_average=False).reduction == "sum"
    with pytest.warns(UserWarning, match="reduction='none'"):
        assert nn.CrossEntropyLoss(reduce=False).reduction == "none"
    with pytest.warns(UserWarning, match="Implicit dimension"):
        nn.Softmax()(lucid.ones(2, 2))


def test_weights_of_losses_are_buffers(device: str) -> None:
    loss = nn.CrossEntropyLoss(weight=lucid.tensor([1.0, 3.0])).to(device)
    assert loss.weight.device == lucid.device(device)
    x = lucid.zeros(2, 2, device=device)
    x[1, 1] = 2.0
    got = loss(x, lucid.tensor([0, 1], device=device)).item()
    assert got == pytest.approx((math.log(2) + 3 * math.log(1 + math.exp(-2))) / 4, rel=TABLE["few ops"].rtol)


def test_init_is_seeded(device: str) -> None:
    def draw() -> Any:
        lucid.manual_seed(3)
        return nn.Linear(4, 5).to(device).weight.tolist()

    first = draw()
    assert first == draw() and first != nn.Linear(4, 5).weight.tolist()
    lucid.manual_seed(3)
    there = nn.Linear(4, 5, device=device).weight.tolist()
    for row, wanted in zip(there, first, strict=True):
        assert row == pytest.approx(wanted, rel=TABLE["few ops"].rtol)


def test_gpu_windows_of_a_strided_input() -> None:
    """MLX's strided views take row-major arrays only: elements that are one stride apart had slipped through."""
    big = lucid.randn(2, 1, 6, 6, 3)
    found = []
    for device in ("cpu", "gpu"):
        x = big.to(device)[..., 1]
        w = lucid.ones(2, 1, 3, 3, device=device, requires_grad=True)
        lucid.nn.functional.conv2d(x, w).sum().backward()
        found.append((w.grad.cpu(), x[0, 0].diagonal().cpu(), x[0, 0].clone().diagonal(1).cpu()))
    for a, b in zip(*found, strict=True):
        assert lucid.allclose(a, b, **within("near zero"))


def test_gpu_groups_in_three_dimensions() -> None:
    x, w = lucid.randn(2, 4, 3, 4, 3), lucid.randn(4, 2, 2, 2, 2)
    wanted = lucid.nn.functional.conv3d(x, w, groups=2)
    assert lucid.allclose(
        lucid.nn.functional.conv3d(x.to("gpu"), w.to("gpu"), groups=2).cpu(), wanted, **within("near zero")
    )


def test_what_cannot_be_copied_or_cut_is_refused() -> None:
    """Each was found by the fuzzer: a hang, an internal error, a division by zero."""
    with pytest.raises(TypeError, match="copies"):
        nn.TransformerEncoder(lucid.ones(1), 2**31 - 1)  # type: ignore[arg-type]
    with pytest.raises(lucid.errors.OutOfMemory, match="cannot allocate"):
        lucid.zeros(0, 3).chunk(2**63 - 1)
    assert [list(t.shape) for t in lucid.zeros(0, 3).chunk(2)] == [[0, 3], [0, 3]]
    with pytest.raises(ValueError, match="groups"):
        nn.init.dirac_(lucid.zeros(2, 2, 3), 0)


def test_share_memory_moves_parameters_and_buffers() -> None:
    module = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    weight, values = module[0].weight, module[0].weight.clone()
    assert module.share_memory() is module and module[0].weight is weight
    assert all(t.is_shared() for t in (*module.parameters(), *module.buffers()))
    assert lucid.equal(weight, values) and weight.is_leaf and weight.requires_grad


class Registers(nn.Module):
    """A module with one of each kind, and the same name in another sense where `plain`."""

    def __init__(self, plain: bool = False) -> None:
        super().__init__()
        self.layer = "none" if plain else nn.Linear(2, 2)
        self.register_buffer("seen", lucid.ones(2))
        self.scale = nn.Parameter(lucid.ones(1))


def test_registered_names_are_attributes_of_instances_alone() -> None:
    module, plain = Registers(), Registers(plain=True)
    assert isinstance(module.layer, nn.Linear) and plain.layer == "none"
    assert module.seen.shape == (2,) and module.scale.requires_grad
    assert not hasattr(Registers, "layer")
    with pytest.raises(AttributeError, match="type object 'Registers' has no attribute 'layer'"):
        _ = Registers.layer
    del module.layer
    assert not hasattr(module, "layer")
    assert not hasattr(copy.deepcopy(module), "layer")
    with pytest.raises(AttributeError, match="'Registers' object has no attribute 'layer'"):
        _ = module.layer
    module.layer = 5
    assert module.layer == 5
    module._modules["layer"] = nn.ReLU()
    del module.__dict__["layer"]
    assert isinstance(module.layer, nn.ReLU)


def test_registered_names_come_after_what_a_class_says() -> None:
    class Named(Registers):
        layer = property(lambda self: "a property")  # type: ignore[assignment]

        def __getattr__(self, name: str) -> object:
            return f"no {name}" if name == "missing" else super().__getattr__(name)

    named = Registers()
    named.__class__ = Named
    assert named.layer == "a property" and named.missing == "no missing"
    assert named.scale.requires_grad
    with pytest.raises(AttributeError, match="'Named' object has no attribute 'other'"):
        _ = named.other
    found = Registers.__dict__["scale"]
    assert pickle.loads(pickle.dumps(found)).__get__(named, Named) is named.scale


def test_names_registered_on_a_bare_module_stay_its_own() -> None:
    bare = nn.Module()
    bare.only_here = nn.Parameter(lucid.ones(1))
    assert bare.only_here.requires_grad and not hasattr(nn.Module, "only_here") and not hasattr(nn.ReLU(), "only_here")


def test_a_module_without_init_says_so_when_called() -> None:
    class Bare(nn.Module):
        def __init__(self) -> None:
            pass

    with pytest.raises(AttributeError, match=r"before Module.__init__\(\) call"):
        Bare()(lucid.ones(1))


@pytest.mark.parametrize("rows", [1, 3, 64, 3000])
@pytest.mark.parametrize("grad", [False, True])
def test_linear_layers_in_a_row_agree(rows: int, grad: bool) -> None:
    # On Metal and CUDA short ones are one kernel where no gradient will be asked for.
    lucid.manual_seed(0)
    net = nn.Sequential(
        nn.Linear(33, 70), nn.ReLU(), nn.Linear(70, 20, bias=False), nn.Linear(20, 5), nn.ReLU(), nn.ReLU()
    )
    x = lucid.randn(rows, 33)
    wanted, other = net(x), net[:2](x)
    net = net.to("gpu").requires_grad_(grad)
    between = net[:2](x.to("gpu"))
    got = net[2:](between)
    for g, w in ((got, wanted), (between, other)):
        assert lucid.allclose(g.cpu(), w, **within("program"))
    if grad:
        got.sum().backward()
        assert all(p.grad is not None for p in net.parameters())


def test_annotations_of_modules_can_be_read() -> None:
    for name in lucid.nn.modules.__all__:
        layer = getattr(lucid.nn, name)
        if isinstance(layer, type):
            typing.get_type_hints(layer)


class _Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attn = nn.MultiheadAttention(4, 2)
        self.mlp = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(7, 4))

    def forward(self, x: lucid.Tensor) -> lucid.Tensor:
        return self.mlp(x + self.attn(x, x, x)[0])


@pytest.mark.parametrize("hooked", [False, True])
def test_errors_name_the_path_in_the_model(hooked: bool) -> None:
    encoder = nn.Module()
    encoder.layers = nn.ModuleList([_Block(), _Block()])
    encoder.forward = lambda x: encoder.layers[1](x)
    model = nn.Sequential(encoder)
    if hooked:
        encoder.register_forward_hook(lambda *_: None)
    with pytest.raises(lucid.errors.ShapeMismatch, match=r"^0\.layers\.1\.mlp\.2: linear: input's last") as caught:
        model(lucid.randn(3, 1, 4))
    assert caught.value.module_path == "0.layers.1.mlp.2" and caught.value.op == "linear"
    # A layer alone has no path; neither have errors of a module that is not below the one that was called.
    with pytest.raises(lucid.errors.ShapeMismatch, match=r"^linear: "):
        model[0].layers[0].mlp[2](lucid.randn(1, 8))
    stranger = nn.Linear(2, 2)
    model = nn.Sequential(nn.Identity())
    model[0].forward = lambda x: stranger(x)
    with pytest.raises(lucid.errors.ShapeMismatch, match=r"^linear: "):
        model(lucid.randn(1, 3))
    # What a program raises itself is left as it is.
    model[0].forward = {}.__getitem__
    with pytest.raises(KeyError) as missing:
        model("key")
    assert missing.value.args == ("key",)
