"""Layers and losses of `lucid.nn`, without PyTorch."""

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
from tests.python.unit.test_nn import Net, Registers, _Block


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


@pytest.mark.parametrize("norm", ["batch_norm", "group_norm"])
def test_norms_name_themselves_where_devices_differ(norm: str) -> None:
    x, w, b = lucid.ones(4, 6, 5), lucid.ones(6, device="gpu"), lucid.zeros(6)
    with pytest.raises(lucid.DeviceMismatch, match=f"^{norm}: .*same device"):
        F.batch_norm(x, None, None, w, b, True) if norm == "batch_norm" else F.group_norm(x, 2, w, b)
