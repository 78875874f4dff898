"""Ways to use Lucid in a loop, each as a function that makes one step: what `test_leaks` measures the memory of.

A pattern takes a device and gives a function to be called over and over. What it makes before is kept; what a call
makes has to be gone after it, or after a garbage collection where the call made a cycle.
"""

from __future__ import annotations

import copy
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lucid
from lucid import nn
from lucid.autograd import Function
from lucid.autograd import graph as autograd_graph

Step = Callable[[], Any]
Pattern = Callable[[str, Path], Step]

PATTERNS: dict[str, Pattern] = {}
# NumPy and DLPack see the CPU's memory alone; some patterns are about the CPU, or about no device.
CPU_ONLY: set[str] = set()


# What was made by `leaf` and `mlp`, whose gradients are dropped before memory is measured: on the GPU device each step
# adds to them, which is not computed before somebody asks.
LEAVES: weakref.WeakSet[lucid.Tensor] = weakref.WeakSet()


def drop_gradients() -> None:
    for x in list(LEAVES):
        x.grad = None


def pattern(f: Pattern) -> Pattern:
    PATTERNS[f.__name__] = f
    return f


def cpu_only(f: Pattern) -> Pattern:
    CPU_ONLY.add(f.__name__)
    return pattern(f)


def data(device: str, *shape: int) -> lucid.Tensor:
    return lucid.randn(*(shape or (16, 32)), device=device)


def leaf(device: str, *shape: int) -> lucid.Tensor:
    x = data(device, *shape).requires_grad_()
    LEAVES.add(x)
    return x


def mlp(device: str) -> nn.Module:
    return kept(nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 8)).to(device))


def kept(model: nn.Module) -> nn.Module:
    LEAVES.update(model.parameters())
    return model


# ---- training --------------------------------------------------------------------------------------------------------


def training(make: Callable[[Any], Any]) -> Pattern:
    def made(device: str, folder: Path) -> Step:
        model, x = mlp(device), data(device)
        optimizer = make(model.parameters())

        def step() -> None:
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()

        return step

    return made


for name in ("SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "Adadelta", "NAdam", "RAdam", "Adamax"):
    kind = getattr(lucid.optim, name)
    PATTERNS[f"train_{name}"] = training(lambda p, kind=kind: kind(p, lr=1e-3))
PATTERNS["train_momentum"] = training(lambda p: lucid.optim.SGD(p, lr=1e-3, momentum=0.9, nesterov=True))


@pattern
def train_new_optimizer_each_time(device: str, folder: Path) -> Step:
    model, x = mlp(device), data(device)

    def step() -> None:
        optimizer = lucid.optim.Adam(model.parameters())
        scheduler = lucid.optim.lr_scheduler.StepLR(optimizer, 2)
        model(x).sum().backward()
        optimizer.step()
        scheduler.step()

    return step


@pattern
def train_lbfgs(device: str, folder: Path) -> Step:
    w = leaf(device, 8)
    optimizer = lucid.optim.LBFGS([w], max_iter=3, history_size=2)

    def closure() -> lucid.Tensor:
        optimizer.zero_grad()
        loss = (w - 1).square().sum()
        loss.backward()
        return loss

    return lambda: optimizer.step(closure)


@pattern
def optimizer_state_round_trip(device: str, folder: Path) -> Step:
    model, x = mlp(device), data(device)
    optimizer = lucid.optim.Adam(model.parameters())
    model(x).sum().backward()
    optimizer.step()
    return lambda: optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))


@pattern
def train_convolution(device: str, folder: Path) -> Step:
    layers = nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()
    model = kept(nn.Sequential(*layers).to(device))
    x = data(device, 2, 1, 10, 10)
    return lambda: model(x).sum().backward()


@pattern
def train_lstm(device: str, folder: Path) -> Step:
    model, x = kept(nn.LSTM(8, 8, 2).to(device)), data(device, 5, 2, 8)
    return lambda: model(x)[0].sum().backward()


@pattern
def train_attention(device: str, folder: Path) -> Step:
    model = kept(nn.TransformerEncoderLayer(16, 2, 16, dropout=0.1).to(device))
    x = data(device, 4, 2, 16)
    return lambda: model(x).sum().backward()


@pattern
def train_clipped(device: str, folder: Path) -> Step:
    model, x = mlp(device), data(device)

    def step() -> None:
        model(x).sum().backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        nn.utils.clip_grad_value_(model.parameters(), 0.5)

    return step


@cpu_only
def train_autocast_and_scaler(device: str, folder: Path) -> Step:
    model, x = mlp(device), data(device)

    def step() -> None:
        with lucid.autocast("cpu", dtype=lucid.bfloat16):
            loss = model(x).sum()
        loss.backward()

    return step


@pattern
def losses(device: str, folder: Path) -> Step:
    model, x, y = mlp(device), data(device), lucid.zeros(16, dtype=lucid.int64, device=device)
    return lambda: nn.functional.cross_entropy(model(x), y).backward()


# ---- hooks -----------------------------------------------------------------------------------------------------------


def module_hook(register: str, hook: Callable[..., Any]) -> Pattern:
    def made(device: str, folder: Path) -> Step:
        model, x = mlp(device), leaf(device)
        for layer in model:
            getattr(layer, register)(hook)
        return lambda: model(x).sum().backward()

    return made


PATTERNS["full_backward_hook"] = module_hook("register_full_backward_hook", lambda m, gi, go: None)
PATTERNS["full_backward_hook_that_changes"] = module_hook("register_full_backward_hook", lambda m, gi, go: gi)
PATTERNS["full_backward_pre_hook"] = module_hook("register_full_backward_pre_hook", lambda m, go: go)
PATTERNS["forward_hook"] = module_hook("register_forward_hook", lambda m, x, y: y * 1)
PATTERNS["forward_pre_hook"] = module_hook("register_forward_pre_hook", lambda m, x: x)


@pattern
def full_backward_hook_without_backward(device: str, folder: Path) -> Step:
    model, x = mlp(device), leaf(device)
    model.register_full_backward_hook(lambda m, gi, go: None)
    model.register_full_backward_pre_hook(lambda m, go: None)
    return lambda: model(x)


@pattern
def full_backward_hook_of_several_tensors(device: str, folder: Path) -> Step:
    class Pair(nn.Module):
        def forward(self, a: lucid.Tensor, b: lucid.Tensor) -> Any:
            return a * b, a + b

    model, a, b = Pair(), leaf(device), leaf(device)
    model.register_full_backward_hook(lambda m, gi, go: None)
    model.register_full_backward_pre_hook(lambda m, go: None)

    def step() -> None:
        c, d = model(a, b)
        (c.sum() + d.sum()).backward()

    return step


@pattern
def module_hooks_added_and_removed(device: str, folder: Path) -> Step:
    model, x = mlp(device), leaf(device)

    def step() -> None:
        handles = [layer.register_full_backward_hook(lambda m, gi, go: None) for layer in model]
        handles += [layer.register_forward_hook(lambda m, x, y: None) for layer in model]
        model(x).sum().backward()
        for handle in handles:
            handle.remove()

    return step


@pattern
def tensor_hook(device: str, folder: Path) -> Step:
    x = leaf(device)

    def step() -> None:
        y = x * 2
        y.register_hook(lambda g: g * 2)
        y.sum().backward()

    return step


@pattern
def tensor_hook_that_holds_its_tensor(device: str, folder: Path) -> Step:
    x = leaf(device)

    def step() -> None:
        y = x * 2
        y.register_hook(lambda g: g * y.detach())
        y.sum().backward()

    return step


@pattern
def tensor_hook_that_holds_its_node(device: str, folder: Path) -> Step:
    x = leaf(device)

    def step() -> None:
        y = x * 2
        node = y.grad_fn
        y.register_hook(lambda g: None if node is None else g)
        y.sum().backward()

    return step


@pattern
def node_hook_that_holds_its_node(device: str, folder: Path) -> Step:
    x = leaf(device)

    def step() -> None:
        node = (x * 2).exp().grad_fn
        node.register_hook(lambda gi, go: None if node is None else gi)
        node.register_prehook(lambda go: None if node is None else go)

    return step


@pattern
def hook_that_holds_a_later_result(device: str, folder: Path) -> Step:
    x = leaf(device)

    def step() -> None:
        y = x * 2
        kept: list[Any] = []
        y.register_hook(lambda g: kept and None)
        kept.append((y.exp() + y).sum())

    return step


@pattern
def hook_of_a_leaf_that_holds_it(device: str, folder: Path) -> Step:
    def step() -> None:
        x = leaf(device)
        x.register_hook(lambda g: g + x.detach())
        x.register_post_accumulate_grad_hook(lambda p: x.sum())
        (x * 2).sum().backward()

    return step


@pattern
def hooks_of_parameters_that_hold_their_module(device: str, folder: Path) -> Step:
    x = data(device)

    def step() -> None:
        model = mlp(device)
        for p in model.parameters():
            p.register_hook(lambda g, model=model: g)
            p.register_post_accumulate_grad_hook(lambda p, model=model: None)
        model(x).sum().backward()

    return step


@pattern
def metadata_of_a_node_that_holds_it(device: str, folder: Path) -> Step:
    x = leaf(device)

    def step() -> None:
        node = (x * 2).grad_fn
        node.metadata["node"] = node

    return step


@pattern
def retained_gradients(device: str, folder: Path) -> Step:
    x = leaf(device)

    def step() -> None:
        y = x * 2
        y.retain_grad()
        y.exp().sum().backward()
        assert y.grad is not None

    return step


@pattern
def multi_grad_hook(device: str, folder: Path) -> Step:
    x = leaf(device)

    def step() -> None:
        y, z = x * 2, x * 3
        autograd_graph.register_multi_grad_hook([y, z], lambda grads: None)
        (y + z).sum().backward()

    return step


@pattern
def saved_tensor_hooks(device: str, folder: Path) -> Step:
    x = leaf(device)

    def step() -> None:
        with autograd_graph.saved_tensors_hooks(lambda t: (t * 2,), lambda p: p[0] / 2):
            y = x.exp().sin()
        y.sum().backward()

    return step


@pattern
def saved_tensor_hooks_that_hold_the_result(device: str, folder: Path) -> Step:
    x = leaf(device)

    def step() -> None:
        kept: list[Any] = []
        with autograd_graph.saved_tensors_hooks(lambda t: (t, kept), lambda p: p[0]):
            kept.append(x.exp().sin())

    return step


@pattern
def saved_on_cpu(device: str, folder: Path) -> Step:
    x = leaf(device)

    def step() -> None:
        with autograd_graph.save_on_cpu():
            y = (x * x).exp()
        y.sum().backward()

    return step


# ---- functions of one's own ------------------------------------------------------------------------------------------


class Square(Function):
    @staticmethod
    def forward(ctx: Any, x: lucid.Tensor) -> lucid.Tensor:
        ctx.save_for_backward(x)
        ctx.note = {"shape": x.shape}
        return x * x

    @staticmethod
    def backward(ctx: Any, g: lucid.Tensor) -> lucid.Tensor:
        return 2 * ctx.saved_tensors[0] * g


class HoldsItsResult(Function):
    @staticmethod
    def forward(ctx: Any, x: lucid.Tensor) -> lucid.Tensor:
        ctx.result = x.exp()
        return ctx.result

    @staticmethod
    def backward(ctx: Any, g: lucid.Tensor) -> lucid.Tensor:
        return ctx.result.detach() * g


@pattern
def custom_function(device: str, folder: Path) -> Step:
    x = leaf(device)
    return lambda: Square.apply(x).sum().backward()


@pattern
def custom_function_twice_differentiated(device: str, folder: Path) -> Step:
    x = leaf(device)

    def step() -> None:
        (g,) = lucid.autograd.grad(Square.apply(x).sum(), x, create_graph=True)
        g.sum().backward()

    return step


@pattern
def custom_function_that_holds_its_result(device: str, folder: Path) -> Step:
    x = leaf(device)

    def step() -> None:
        HoldsItsResult.apply(x)
        HoldsItsResult.apply(x).sum().backward()

    return step


@pattern
def custom_function_made_in_a_loop(device: str, folder: Path) -> Step:
    x = leaf(device)

    def step() -> None:
        class Twice(Function):
            @staticmethod
            def forward(ctx: Any, x: lucid.Tensor) -> lucid.Tensor:
                return x * 2

            @staticmethod
            def backward(ctx: Any, g: lucid.Tensor) -> lucid.Tensor:
                return g * 2

        Twice.apply(x).sum().backward()

    return step
