"""Ways to use Lucid in a loop, continued: graphs, transforms, modules, files, other libraries, threads."""

from __future__ import annotations

import contextlib
import copy
import io
import pickle
import threading
from pathlib import Path
from typing import Any

import lucid
import numpy as np
from lucid import nn
from lucid.autograd import forward_ad
from lucid.func import functional_call, grad, jacfwd, jacrev, jvp, vjp, vmap
from lucid.utils.checkpoint import checkpoint
from lucid.utils.data import DataLoader, TensorDataset

from tests.python.hostile.leak_patterns import Step, cpu_only, data, leaf, mlp, pattern

# ---- graphs ----------------------------------------------------------------------------------------------------------


@pattern
def forward_without_backward(device: str, folder: Path) -> Step:
    model, x = mlp(device), data(device)
    return lambda: model(x).sum().item()


@pattern
def double_backward(device: str, folder: Path) -> Step:
    x = leaf(device)

    def step() -> None:
        (g,) = lucid.autograd.grad((x**3).sum(), x, create_graph=True)
        g.square().sum().backward()

    return step


@pattern
def retained_graph(device: str, folder: Path) -> Step:
    x = leaf(device)

    def step() -> None:
        y = x.exp().sum()
        y.backward(retain_graph=True)
        y.backward()

    return step


@pattern
def checkpointed(device: str, folder: Path) -> Step:
    model, x = mlp(device), leaf(device)

    def step() -> None:
        checkpoint(model, x, use_reentrant=False).sum().backward()
        checkpoint(model, x, use_reentrant=True).sum().backward()

    return step


@pattern
def checkpointed_without_backward(device: str, folder: Path) -> Step:
    model, x = mlp(device), leaf(device)
    return lambda: checkpoint(model, x, use_reentrant=False)


@pattern
def nodes_looked_at(device: str, folder: Path) -> Step:
    x = leaf(device)

    def step() -> None:
        node = (x.exp() * 2).sum().grad_fn
        while node is not None:
            node = node.next_functions[0][0] if node.next_functions else None

    return step


@pattern
def anomaly(device: str, folder: Path) -> Step:
    x = leaf(device)

    def step() -> None:
        with lucid.autograd.detect_anomaly(check_nan=False):
            x.exp().sum().backward()

    return step


@pattern
def error_in_backward(device: str, folder: Path) -> Step:
    x = leaf(device)

    def fail(g: lucid.Tensor) -> None:
        raise ValueError("in the middle")

    def step() -> None:
        y = x.exp()
        y.register_hook(fail)
        with contextlib.suppress(ValueError):
            (y * 2).sum().backward()

    return step


@pattern
def error_in_forward(device: str, folder: Path) -> Step:
    x = leaf(device)

    class Broken(nn.Module):
        def forward(self, x: lucid.Tensor) -> Any:
            y = x.exp()
            raise ValueError(f"in the middle {y.shape}")

    model = nn.Sequential(nn.Linear(32, 32), Broken()).to(device)
    model.register_full_backward_hook(lambda m, gi, go: None)

    def step() -> None:
        with contextlib.suppress(ValueError):
            model(x)
        with contextlib.suppress(RuntimeError):
            lucid.ones(2, 3, device=device) @ lucid.ones(2, 3, device=device)

    return step


@pattern
def views_and_writes(device: str, folder: Path) -> Step:
    x = leaf(device)

    def step() -> None:
        y = x * 1
        y[:, 1:3].mul_(2)
        y.t()[0].zero_()
        y.view(-1)[::2].add_(1)
        assert y._base is None
        y.sum().backward()

    return step


@pattern
def slicing(device: str, folder: Path) -> Step:
    x = data(device)
    index = lucid.tensor([0, 2, 1], device=device)

    def step() -> None:
        list(x)
        x[1:3, ::2], x[..., None], x[index], x[x > 0], x[0, 1].item(), x.split(4), x.unbind(1), x.chunk(3)

    return step


@pattern
def data_replaced(device: str, folder: Path) -> Step:
    model = mlp(device)

    def step() -> None:
        for p in model.parameters():
            p.data = p.data * 0.9
            p.grad = p.detach().clone()

    return step


@pattern
def parametrized_and_pruned(device: str, folder: Path) -> Step:
    x = data(device)

    def step() -> None:
        layer = nn.utils.parametrizations.weight_norm(nn.Linear(32, 4).to(device))
        layer(x).sum().backward()

    return step


# ---- transforms ------------------------------------------------------------------------------------------------------


def f(x: lucid.Tensor) -> lucid.Tensor:
    return (x.sin() * x).sum()


@pattern
def vmapped(device: str, folder: Path) -> Step:
    x = data(device)
    return lambda: vmap(lambda r: r.softmax(0) * 2)(x)


@pattern
def vmapped_gradients(device: str, folder: Path) -> Step:
    x = data(device)
    return lambda: vmap(grad(f))(x)


@pattern
def jacobians(device: str, folder: Path) -> Step:
    x = data(device, 4)

    def step() -> None:
        jacrev(lambda x: x.sin())(x)
        jacfwd(lambda x: x.sin())(x)
        jvp(f, (x,), (x,))
        vjp(f, x)[1](lucid.ones((), device=device))

    return step


@pattern
def dual_numbers(device: str, folder: Path) -> Step:
    x = data(device)

    def step() -> None:
        with forward_ad.dual_level():
            forward_ad.unpack_dual(forward_ad.make_dual(x, x).exp())

    return step


@pattern
def transform_that_fails(device: str, folder: Path) -> Step:
    x = data(device)

    def fails(r: lucid.Tensor) -> lucid.Tensor:
        raise ValueError(f"{r.exp().shape}")

    def step() -> None:
        for transformed in (vmap(fails), grad(fails), jacfwd(fails)):
            with contextlib.suppress(ValueError):
                transformed(x)

    return step


@pattern
def functional_calls(device: str, folder: Path) -> Step:
    model, x = mlp(device), data(device)
    values = {name: p.detach() for name, p in model.named_parameters()}
    return lambda: grad(lambda v: functional_call(model, v, (x,)).sum())(values)


# ---- objects ---------------------------------------------------------------------------------------------------------


@pattern
def modules_made_and_dropped(device: str, folder: Path) -> Step:
    return lambda: mlp(device)


@pattern
def modules_copied(device: str, folder: Path) -> Step:
    model = mlp(device)
    model.register_full_backward_hook(print)
    return lambda: copy.deepcopy(model)


@pattern
def modules_pickled(device: str, folder: Path) -> Step:
    model = mlp(device)
    return lambda: pickle.loads(pickle.dumps(model))


@pattern
def module_that_holds_itself(device: str, folder: Path) -> Step:
    x = data(device)

    def step() -> None:
        model = mlp(device)
        model.__dict__["own"] = model
        model.__dict__["loss"] = model(x).sum()

    return step


@pattern
def tensors_that_hold_themselves(device: str, folder: Path) -> Step:
    def step() -> None:
        x = leaf(device)
        x.own = x
        y = x * 2
        y.own = (y, y.grad_fn)
        x.grad = x.detach().clone()
        x.grad.of = x

    return step


@pattern
def state_dicts(device: str, folder: Path) -> Step:
    model = mlp(device)

    def step() -> None:
        model.load_state_dict(model.state_dict())
        model.load_state_dict(model.state_dict(), assign=True)

    return step


@pattern
def printing(device: str, folder: Path) -> Step:
    model, x = mlp(device), leaf(device)
    return lambda: (repr(x), repr(x * 2), str(model), f"{x.sum():.2f}")


@pattern
def saving_and_loading(device: str, folder: Path) -> Step:
    model = mlp(device)

    def step() -> None:
        file = io.BytesIO()
        lucid.save(model.state_dict(), file)
        file.seek(0)
        lucid.load(file)
        lucid.save({"x": [model[0].weight]}, folder / "x.pt")
        lucid.load(folder / "x.pt", mmap=True)

    return step


@pattern
def safetensors(device: str, folder: Path) -> Step:
    model = mlp(device)

    def step() -> None:
        lucid.save_safetensors(model.state_dict(), folder / "x.safetensors")
        lucid.load_safetensors(folder / "x.safetensors", device)
        lucid.save_sharded(model.state_dict(), folder / "shards", max_shard_size=256)
        lucid.load_sharded(folder / "shards", device)

    return step


@pattern
def bad_files(device: str, folder: Path) -> Step:
    (folder / "bad.pt").write_bytes(b"PK\x03\x04" + bytes(100))
    (folder / "bad.safetensors").write_bytes(b"\x05\0\0\0\0\0\0\0{abc}")

    def step() -> None:
        with contextlib.suppress(Exception):
            lucid.load(folder / "bad.pt")
        with contextlib.suppress(Exception):
            lucid.load_safetensors(folder / "bad.safetensors")

    return step


@cpu_only
def numpy_and_dlpack(device: str, folder: Path) -> Step:
    x, a = lucid.randn(16, 32), np.ones((16, 32), np.float32)

    def step() -> None:
        x.numpy().sum()
        lucid.from_numpy(a).sum()
        np.from_dlpack(x).sum()
        lucid.from_dlpack(a).sum()
        lucid.from_dlpack(x.__dlpack__())
        # A capsule that nobody takes.
        x.__dlpack__()
        lucid.tensor(a), lucid.as_tensor(a), np.asarray(x), lucid.frombuffer(bytearray(64), dtype=lucid.int32)

    return step


@cpu_only
def storages(device: str, folder: Path) -> Step:
    def step() -> None:
        x = lucid.ones(1000)
        x.untyped_storage().resize_(8000)
        x.set_(lucid.ones(10).untyped_storage())

    return step


@cpu_only
def storage_resized_over_and_over(device: str, folder: Path) -> Step:
    x = lucid.ones(10_000)
    x.data_ptr()

    def step() -> None:
        x.untyped_storage().resize_(0)
        x.untyped_storage().resize_(40_000)
        x.data_ptr()

    return step


@cpu_only
def shared_memory(device: str, folder: Path) -> Step:
    return lambda: lucid.ones(1000).share_memory_()


@pattern
def loader(device: str, folder: Path) -> Step:
    loaded = DataLoader(TensorDataset(lucid.randn(8, 4), lucid.arange(8)), batch_size=4, shuffle=True)
    return lambda: [x.to(device) for x, _ in loaded]


@cpu_only
def loader_with_threads(device: str, folder: Path) -> Step:
    source = TensorDataset(lucid.randn(8, 4))
    return lambda: list(DataLoader(source, batch_size=4, num_workers=2, worker_type="thread"))


@cpu_only
def loader_left_in_the_middle(device: str, folder: Path) -> Step:
    source = TensorDataset(lucid.randn(64, 4))
    return lambda: next(iter(DataLoader(source, batch_size=4, num_workers=1, worker_type="thread")))


@pattern
def threads(device: str, folder: Path) -> Step:
    model, x = mlp(device), data(device)

    def work() -> None:
        lucid.autograd.grad(model(x).sum(), list(model.parameters()))

    def step() -> None:
        team = [threading.Thread(target=work) for _ in range(2)]
        for t in team:
            t.start()
        for t in team:
            t.join()

    return step


@pattern
def between_devices(device: str, folder: Path) -> Step:
    x = leaf(device)
    return lambda: x.to("cpu").to("gpu").to(device).sum().backward()


@pattern
def sparse(device: str, folder: Path) -> Step:
    x = data(device, 8, 8)

    def step() -> None:
        s = x.to_sparse()
        (s @ x, s.coalesce(), s.to_dense())

    return step


@pattern
def subclasses(device: str, folder: Path) -> Step:
    class Own(lucid.Tensor):
        pass

    x = data(device).as_subclass(Own)

    def step() -> None:
        y = x * 2 + 1
        y.note = y
        y.sum()

    return step


@pattern
def random_state(device: str, folder: Path) -> Step:
    def step() -> None:
        lucid.manual_seed(1)
        lucid.set_rng_state(lucid.get_rng_state())
        lucid.rand(4, generator=lucid.Generator().manual_seed(2)).to(device)
        lucid.randperm(10, device=device)

    return step


@pattern
def profiled(device: str, folder: Path) -> Step:
    x = data(device)

    def step() -> None:
        with lucid.profile():
            x.exp().sum().item()

    return step
