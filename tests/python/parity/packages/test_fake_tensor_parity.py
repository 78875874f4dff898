"""`FakeTensorMode` beside PyTorch's: what fake tensors say, what is computed of them, and what is refused."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import lucid
import numpy as np
import pytest
import torch
from lucid._subclasses import fake_tensor as lucid_fake
from torch._subclasses import fake_tensor as torch_fake

BOTH = [(torch, torch_fake, "xpu:0"), (lucid, lucid_fake, str(lucid.device("gpu")))]


def both(function: Callable[..., Any], **options: Any) -> list[Any]:
    """What a function of a framework, its module of fake tensors and a second device says with each."""
    said = []
    for framework, fakes, device in BOTH:
        try:
            with fakes.FakeTensorMode(**options) as mode:
                result = function(framework, mode, device)
        except (RuntimeError, AssertionError) as e:
            names = {"AssertionError", "RuntimeError", "FakeTensorDeviceMismatchError"}
            names |= {"DataDependentOutputException", "DynamicOutputShapeException"}
            kind = next(c.__name__ for c in type(e).__mro__ if c.__name__ in names)
            result = kind, (str(e) if kind.startswith(("Da", "Dy", "Fake")) else "")
        said.append(str(result).replace(device, "second").replace("lucid.", "torch."))
    return said


CALLS: dict[str, Callable[..., Any]] = {
    "ones": lambda t, m, d: t.ones(2, 3),
    "zeros elsewhere": lambda t, m, d: t.zeros(2, 3, device=d),
    "meta": lambda t, m, d: t.empty(2, device="meta"),
    "dtype": lambda t, m, d: t.ones(2, dtype=t.int64),
    "arange": lambda t, m, d: t.arange(5, device=d),
    "full": lambda t, m, d: t.full((2, 2), 1.5),
    "randint": lambda t, m, d: t.randint(0, 4, (3,)),
    "randperm": lambda t, m, d: t.randperm(4),
    "linspace": lambda t, m, d: t.linspace(0, 1, 5, dtype=t.float64),
    "eye": lambda t, m, d: t.eye(3, 2),
    "normal": lambda t, m, d: t.normal(0.0, 1.0, (2, 2)),
    "hann_window": lambda t, m, d: t.hann_window(4),
    "empty_strided": lambda t, m, d: t.empty_strided((2, 3), (1, 2)).stride(),
    "tensor": lambda t, m, d: t.tensor([1.0, 2.0]),
    "tensor elsewhere": lambda t, m, d: t.tensor([1, 2], device=d),
    "as_tensor": lambda t, m, d: t.as_tensor([1, 2]),
    "array": lambda t, m, d: t.as_tensor(np.ones((2, 2))),
    "requires_grad": lambda t, m, d: t.ones(2, requires_grad=True),
    "grad_fn": lambda t, m, d: t.ones(2, requires_grad=True) * 2,
    "parameter": lambda t, m, d: t.nn.Parameter(t.ones(2)),
    "is parameter": lambda t, m, d: isinstance(t.nn.Parameter(t.ones(2)), t.nn.Parameter),
    "device": lambda t, m, d: t.ones(2, device=d).device,
    "attributes": lambda t, m, d: (t.ones(2).is_meta, t.ones(2).is_cpu, t.ones(2, device=d).is_cpu, t.ones(2).shape),
    "get_device": lambda t, m, d: t.ones(2).get_device(),
    "type": lambda t, m, d: t.ones(2).type(),
    "to double": lambda t, m, d: t.ones(2).to(t.float64),
    "to itself": lambda t, m, d: (x := t.ones(2)).to("cpu") is x,
    "to a tensor's": lambda t, m, d: t.ones(2).to(t.ones(1, dtype=t.float16)),
    "to meta": lambda t, m, d: t.ones(2).to("meta", t.float64),
    "cpu": lambda t, m, d: t.ones(2, device="meta").cpu(),
    "new_ones": lambda t, m, d: t.ones(2, device=d).new_ones(3),
    "zeros_like": lambda t, m, d: t.zeros_like(t.ones(2), device=d),
    "sum": lambda t, m, d: t.ones(2, 3, device=d).sum(1),
    "promotion": lambda t, m, d: t.ones(2, dtype=t.int32) + 1.5,
    "one element": lambda t, m, d: t.ones(2, device=d) + t.ones(()),
    "one element first": lambda t, m, d: t.ones(()) * t.ones(2, device=d),
    "two devices": lambda t, m, d: t.ones(2) + t.ones(2, device=d),
    "two devices, one element": lambda t, m, d: t.ones((), device=d) + t.ones(2),
    "two devices, meta": lambda t, m, d: t.ones(2, device="meta") + t.ones(2),
    "cat of two devices": lambda t, m, d: t.cat([t.ones(2), t.ones(2, device=d)]),
    "layer elsewhere": lambda t, m, d: t.nn.functional.linear(t.ones(1, 3, device=d), t.ones(2, 3)),
    "einsum": lambda t, m, d: t.einsum("ij,kj->ik", t.ones(2, 3), t.ones(4, 3)),
    "svd": lambda t, m, d: t.linalg.svd(t.ones(3, 2)).S,
    "topk": lambda t, m, d: t.ones(2, 5).topk(2).indices,
    "split": lambda t, m, d: t.ones(5).split([2, 3])[1],
    "view": lambda t, m, d: t.ones(2, 3).view(-1).T,
    "transposed strides": lambda t, m, d: t.ones(2, 3).t().stride(),
    "index": lambda t, m, d: t.ones(4, 2)[t.tensor([0, 1, 1])],
    "slice": lambda t, m, d: t.ones(4, 2)[1:, None],
    "write": lambda t, m, d: t.ones(4, 2).index_fill_(0, t.tensor([0]), 1.0),
    "in place": lambda t, m, d: (x := t.ones(2)).add_(1) is x,
    "iteration": lambda t, m, d: list(t.ones(2, 3)),
    "bernoulli": lambda t, m, d: t.bernoulli(t.ones(3)),
    "multinomial": lambda t, m, d: t.multinomial(t.ones(2, 3), 2),
    "one_hot": lambda t, m, d: t.nn.functional.one_hot(t.tensor([1, 2]), 4),
    "dropout": lambda t, m, d: t.nn.functional.dropout(t.ones(3), 0.5),
    "repeats": lambda t, m, d: t.repeat_interleave(t.ones(2, 3), t.tensor([1, 2]), dim=0, output_size=3),
    "where": lambda t, m, d: t.where(t.ones(2) > 0, 1.0, 0.0),
    "written mask": lambda t, m, d: (x := t.ones(2), x.__setitem__(x > 0, 0.0))[0],
    "item": lambda t, m, d: t.ones(2).sum().item(),
    "bool": lambda t, m, d: bool(t.ones(2).sum() > 0),
    "int": lambda t, m, d: int(t.ones(())),
    "tolist": lambda t, m, d: t.ones(2).tolist(),
    "numpy": lambda t, m, d: t.ones(2).numpy(),
    "equal": lambda t, m, d: t.equal(t.ones(2), t.ones(2)),
    "allclose": lambda t, m, d: t.allclose(t.ones(2), t.ones(2)),
    "nonzero": lambda t, m, d: t.ones(2).nonzero(),
    "mask": lambda t, m, d: (x := t.ones(2))[x > 0],
    "masked_select": lambda t, m, d: t.masked_select(t.ones(2), t.ones(2) > 0),
    "where alone": lambda t, m, d: t.where(t.ones(2) > 0),
    "unique": lambda t, m, d: t.unique(t.ones(2)),
    "bincount": lambda t, m, d: t.bincount(t.tensor([1, 2])),
    "repeat_interleave": lambda t, m, d: t.repeat_interleave(t.tensor([1, 2])),
    "a known element": lambda t, m, d: t.tensor(3.0).item(),
    "computed of known ones": lambda t, m, d: (t.tensor(3) + t.tensor([4])).item(),
    "written known one": lambda t, m, d: t.tensor(3.0).add_(1).item(),
    "written with others": lambda t, m, d: t.tensor(3.0).add_(t.ones(())).item(),
    "known range": lambda t, m, d: list(range(t.tensor(3))),
    "known ones": lambda t, m, d: t.tensor([1.0, 2.0]).sum().item(),
    "shapes": lambda t, m, d: t.ones(2, 3) @ t.ones(2, 3),
}


@pytest.mark.parametrize("name", CALLS)
def test_calls_say_what_pytorch_s_do(name: str) -> None:
    theirs, ours = both(CALLS[name])
    assert ours == theirs


REAL = {torch: torch.ones(2, 3), lucid: lucid.ones(2, 3)}
INPUTS: dict[str, Callable[..., Any]] = {
    "with a fake one": lambda t, m, d: t.ones(2, 3) + REAL[t],
    "alone": lambda t, m, d: REAL[t] * 2,
    "element": lambda t, m, d: REAL[t].sum().item(),
    "on two devices": lambda t, m, d: t.ones(2, 3, device=d) + REAL[t],
    "shape": lambda t, m, d: REAL[t].shape,
    "from_tensor": lambda t, m, d: m.from_tensor(REAL[t]),
    "from_tensor with gradients": lambda t, m, d: m.from_tensor(REAL[t].clone().requires_grad_()),
    "twice": lambda t, m, d: (a := m.from_tensor(REAL[t])) is m.from_tensor(REAL[t]) and a.device,
    "of a fake one": lambda t, m, d: (x := t.ones(2)) is m.from_tensor(x),
}


@pytest.mark.parametrize("allowed", [False, True])
@pytest.mark.parametrize("name", INPUTS)
def test_tensors_with_memory(name: str, allowed: bool) -> None:
    theirs, ours = both(INPUTS[name], allow_non_fake_inputs=allowed)
    assert ours == theirs


@pytest.mark.parametrize("strides", [(3, 1), (1, 2)])
def test_fake_tensors_of_parameters_and_strides(strides: tuple[int, int]) -> None:
    for framework, fakes, _ in BOTH:
        mode, converter = fakes.FakeTensorMode(), fakes.FakeTensorConverter()
        real = framework.nn.Parameter(framework.empty_strided((2, 3), strides))
        fake = converter.from_real_tensor(mode, real)
        assert isinstance(fake, framework.nn.Parameter) and isinstance(fake, fakes.FakeTensor)
        assert fake.stride() == strides and fake.requires_grad and fake.is_leaf
        assert str(fake) == "Parameter(FakeTensor(..., size=(2, 3), requires_grad=True))"
        # Calls on it are fake outside of the mode, too.
        assert str((fake * 2).detach()) == "FakeTensor(..., size=(2, 3))"
        assert fakes.maybe_get_fake_mode(fake) is mode and not fakes.is_fake(real)


LAYERS: dict[str, tuple[Callable[[Any], Any], Callable[[Any, dict[str, Any]], Any]]] = {
    "Linear": (lambda t: t.nn.Linear(3, 4), lambda t, o: t.randn(2, 3, **o)),
    "Conv2d": (lambda t: t.nn.Conv2d(3, 4, 3, padding=1), lambda t, o: t.randn(2, 3, 8, 8, **o)),
    "BatchNorm2d": (lambda t: t.nn.BatchNorm2d(3), lambda t, o: t.randn(2, 3, 8, 8, **o)),
    "LayerNorm": (lambda t: t.nn.LayerNorm(8), lambda t, o: t.randn(2, 8, **o)),
    "Embedding": (lambda t: t.nn.Embedding(5, 4), lambda t, o: t.zeros(2, 3, dtype=t.int64, **o)),
    "Transformer": (
        lambda t: t.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True),
        lambda t, o: t.randn(2, 3, 8, **o),
    ),
    "GRU": (lambda t: t.nn.GRU(3, 4, num_layers=2), lambda t, o: t.randn(5, 2, 3, **o)),
    "Sequential": (
        lambda t: t.nn.Sequential(
            t.nn.Conv2d(1, 2, 3), t.nn.ReLU(), t.nn.MaxPool2d(2), t.nn.Flatten(), t.nn.Linear(18, 2)
        ),
        lambda t, o: t.randn(2, 1, 8, 8, **o),
    ),
}


@pytest.mark.parametrize("device", ["cpu", "second"])
@pytest.mark.parametrize("name", LAYERS)
def test_layers_and_their_gradients(name: str, device: str) -> None:
    said = []
    for framework, fakes, second in BOTH:
        # PyTorch has no kernels of a device that it was not built for, which some layers ask about.
        at = "meta" if device == "second" and framework is torch else second if device == "second" else "cpu"
        layer_of, input_of = LAYERS[name]
        with fakes.FakeTensorMode(), framework.device(at):
            layer = layer_of(framework)
            result = layer(input_of(framework, {}))
            result = result[0] if isinstance(result, tuple) else result
            result.sum().backward()
        lines = [tuple(result.shape), result.dtype, result.device]
        for key, p in layer.named_parameters():
            assert isinstance(p, fakes.FakeTensor) and isinstance(p, framework.nn.Parameter)
            assert isinstance(p.grad, fakes.FakeTensor) and p.grad is p.grad and p.grad.device == p.device
            lines.append((key, tuple(p.grad.shape), p.grad.dtype, p.device))
        said.append(str(lines).replace("lucid.", "torch.").replace(at, "here"))
    assert said[0] == said[1]


@pytest.mark.parametrize("optimizer", ["SGD", "Adam", "AdamW"])
def test_a_step_of_an_optimizer(optimizer: str) -> None:
    for framework, fakes, _ in BOTH:
        with fakes.FakeTensorMode():
            layer = framework.nn.Linear(3, 4)
            optim = getattr(framework.optim, optimizer)(layer.parameters(), lr=0.1)
            for _ in range(2):
                optim.zero_grad()
                layer(framework.ones(2, 3)).square().mean().backward()
                optim.step()
        state = optim.state[layer.weight]
        assert all(
            isinstance(v, fakes.FakeTensor) for v in state.values() if isinstance(v, framework.Tensor) and v.ndim
        )


def test_gradients_hooks_and_custom_functions() -> None:
    for framework, fakes, device in BOTH:
        # PyTorch's backward pass aborts the process on a device that it was not built for.
        device = "meta" if framework is torch else device
        seen: list[Any] = []

        class Double(framework.autograd.Function):  # type: ignore[name-defined, misc]
            @staticmethod
            def forward(ctx: Any, x: Any) -> Any:
                ctx.save_for_backward(x)
                return x * 2

            @staticmethod
            def backward(ctx: Any, g: Any) -> Any:
                return g * 2 + ctx.saved_tensors[0] * 0

        with fakes.FakeTensorMode():
            x = framework.ones(2, 3, device=device, requires_grad=True)
            x.register_hook(lambda g, seen=seen: seen.append((g * 2).device))
            y = Double.apply(x)
            assert isinstance(y, fakes.FakeTensor) and str(y.device) == device
            (g,) = framework.autograd.grad(y.sum(), [x], create_graph=True)
            assert isinstance(g, fakes.FakeTensor) and g.shape == (2, 3) and str(g.device) == device
            y = (x * x).sum()
            y.backward()
            assert [str(d) for d in seen] == [device, device] and x.grad.shape == (2, 3)


def test_copies_states_and_moves_of_modules() -> None:
    # PyTorch copies no fake tensors deeply, and moves no modules of them.
    with lucid_fake.FakeTensorMode():
        layer = lucid.nn.BatchNorm1d(3)
        copied = copy.deepcopy(layer)
        assert isinstance(copied.weight, lucid.nn.Parameter) and isinstance(copied.weight, lucid_fake.FakeTensor)
        assert copied.weight is not layer.weight and copied.weight.requires_grad
        copied.load_state_dict(layer.state_dict())
        layer.to(lucid.float64).to("meta")
        assert {str(t.device) for t in layer.state_dict().values()} == {"meta"}
        assert str(layer.running_mean) == "FakeTensor(..., device='meta', size=(3,), dtype=lucid.float64)"
        assert str(lucid.nn.MaxPool2d(2)(lucid.ones(1, 1, 4, 4, device="meta")).device) == "meta"


def test_a_block_without_the_mode() -> None:
    for framework, fakes, _ in BOTH:
        with fakes.FakeTensorMode() as mode:
            with fakes.unset_fake_temporarily() as was:
                real = framework.ones(2)
            assert was is mode and not isinstance(real, fakes.FakeTensor)
            assert isinstance(framework.ones(2), fakes.FakeTensor)
        with fakes.unset_fake_temporarily() as was:
            assert was is None
        with fakes.FakeTensorMode(), pytest.raises(AssertionError, match="Mixing fake modes"):
            framework.ones(2) + mode.from_tensor(real)


def test_no_memory_is_taken() -> None:
    with lucid_fake.FakeTensorMode():
        layer = lucid.nn.Linear(1_000_000, 1_000_000, device="gpu")
        y = layer(lucid.ones(8, 1_000_000, device="gpu"))
    assert y.shape == (8, 1_000_000) and y.device == lucid.device("gpu")


def test_what_fake_tensors_do_not_do() -> None:
    from lucid._subclasses.functional_tensor import FunctionalTensor, mb_unwrap_functional_tensor
    from lucid._subclasses.meta_utils import MetaConverter

    mode, x = lucid_fake.FakeTensorMode(), lucid.ones(2)
    with pytest.raises(lucid_fake.UnsupportedFakeTensorException, match="sparse"):
        mode.from_tensor(lucid.eye(2).to_sparse())
    with pytest.raises(lucid.errors.RuntimeError, match="meta device"):
        lucid_fake.FakeTensor(mode, x, "cpu")
    with pytest.raises(lucid.errors.NotImplementedError, match="not symbols"):
        mode.from_tensor(x, symbolic_context=object())
    with pytest.raises(lucid.errors.NotImplementedError):
        lucid_fake.FakeTensorConverter(copy_data=True)
    with pytest.raises(lucid.errors.NotImplementedError, match="in-place"):
        FunctionalTensor(x)
    assert mb_unwrap_functional_tensor(x) is x
    for transform in (lucid.func.grad, lucid.vmap):
        with mode, pytest.raises(lucid.errors.NotImplementedError, match="transforms"):
            transform(lambda t: (t * t).sum())(
                lucid.ones(3, 2)[0] if transform is lucid.func.grad else lucid.ones(3, 2)
            )
    convert = MetaConverter()
    assert convert(x) is convert(x) and convert(x).is_meta and convert(3) == 3


def test_which_mode_is_on() -> None:
    from lucid import _guards

    mode = lucid_fake.FakeTensorMode()
    fake = mode.from_tensor(lucid.ones(1))
    assert _guards.detect_fake_mode([lucid.ones(1)]) is None and _guards.detect_fake_mode({"x": [fake]}) is mode
    with mode:
        assert _guards.active_fake_mode() is mode and _guards.detect_fake_mode() is mode
    with lucid_fake.FakeTensorMode(), pytest.raises(AssertionError):
        _guards.detect_fake_mode(fake)
