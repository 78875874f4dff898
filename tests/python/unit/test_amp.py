"""Autocast and `GradScaler` without PyTorch: state, nesting, threads, casts of leaves, gradients, training."""

from __future__ import annotations

import copy
import pickle
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import lucid
import lucid.nn.functional as F
import pytest
from lucid import nn
from lucid.amp import GradScaler, autocast, custom_bwd, custom_fwd

from tests.python.tolerances import TABLE


def test_state_nests_and_is_restored(device: str) -> None:
    default = lucid.bfloat16 if device == "cpu" else lucid.float16
    other = lucid.float16 if device == "cpu" else lucid.bfloat16
    a = lucid.ones(2, 2, device=device)
    assert not lucid.is_autocast_enabled(device) and lucid.get_autocast_dtype(device) == default
    with autocast(device):
        assert lucid.is_autocast_enabled(device) and (a @ a).dtype == default
        with autocast(device, dtype=other):
            assert (a @ a).dtype == other and lucid.get_autocast_dtype(device) == other
            with autocast(device, enabled=False):
                assert (a @ a).dtype == lucid.float32 and not lucid.is_autocast_enabled(device)
            assert (a @ a).dtype == other
        assert (a @ a).dtype == default
        with pytest.raises(KeyError), autocast(device, enabled=False):
            raise KeyError
        assert (a @ a).dtype == default
    assert (a @ a).dtype == lucid.float32
    assert not lucid.is_autocast_enabled(device) and lucid.get_autocast_dtype(device) == default


def test_devices_are_apart() -> None:
    a, b = lucid.ones(2, 2), lucid.ones(2, 2, device="gpu")
    with autocast("cpu"):
        assert (a @ a).dtype == lucid.bfloat16 and (b @ b).dtype == lucid.float32
        with autocast("cuda"):
            assert (a @ a).dtype == lucid.bfloat16 and (b @ b).dtype == lucid.float16


def test_as_a_decorator(device: str) -> None:
    @autocast(device)
    def product(a: lucid.Tensor, again: bool = True) -> lucid.Tensor:
        return product(a, again=False) if again else a @ a

    assert product(lucid.ones(2, 2, device=device)).dtype == lucid.get_autocast_dtype(device)
    assert not lucid.is_autocast_enabled(device)


def test_threads_have_their_own(device: str) -> None:
    seen: list[Any] = []
    a = lucid.ones(2, 2, device=device)
    with autocast(device):
        thread = threading.Thread(target=lambda: seen.extend([lucid.is_autocast_enabled(device), (a @ a).dtype]))
        thread.start()
        thread.join()
    assert seen == [False, lucid.float32]


def test_policies(device: str) -> None:
    low = lucid.get_autocast_dtype(device)
    a = lucid.full((3, 3), 0.5, device=device)
    h = a.to(low)
    full = low if device == "cpu" else lucid.float32
    with autocast(device):
        assert F.linear(a, a, a[0]).dtype == low and lucid.matmul(h, a).dtype == low
        assert F.mse_loss(h, h).dtype == lucid.float32 and h.prod().dtype == lucid.float32
        assert h.exp().dtype == full and h.sum().dtype == full and F.softmax(h, -1).dtype == full
        assert h.relu().dtype == low and (h + h).dtype == low and (h + a).dtype == lucid.float32
        assert lucid.cat([h, a]).dtype == lucid.float32
        assert h.mean().dtype == low and h.std().dtype == low
        index = lucid.zeros(3, 3, dtype=lucid.int64, device=device)
        assert (index @ index).dtype == lucid.int64 if device == "cpu" else index.sum().dtype == lucid.int64
    if device == "cpu":
        d = lucid.ones(2, 2, dtype=lucid.float64)
        with autocast("cpu"):
            assert (d @ d).dtype == lucid.float64


def test_gradients_have_the_leaves_dtype(device: str) -> None:
    w = lucid.full((3, 3), 0.25, device=device, requires_grad=True)
    x = lucid.ones(2, 3, device=device, requires_grad=True)
    with autocast(device):
        loss = (F.linear(x, w) ** 2).mean()
        loss.backward()
    assert w.grad is not None and w.grad.dtype == lucid.float32 and w.grad.device == w.device
    assert x.grad is not None and x.grad.tolist() == [[pytest.approx(0.1875, rel=TABLE["float16"].rtol)] * 3] * 2
    w.grad = None
    with autocast(device):
        loss = (F.linear(x, w) ** 2).mean()
    (g,) = lucid.autograd.grad(loss, w, create_graph=True)
    (gg,) = lucid.autograd.grad(g.sum(), x)
    assert gg.dtype == lucid.float32


def casts(f: Callable[[], Any]) -> int:
    with lucid.profile() as p:
        f()
    return int(p.ops.get("cast", {"calls": 0})["calls"])


def test_leaves_are_cast_once(device: str) -> None:
    w = lucid.ones(3, 3, device=device, requires_grad=True)
    x = lucid.ones(3, 3, device=device, dtype=lucid.get_autocast_dtype(device))

    def twice(**options: Any) -> int:
        def run() -> None:
            with autocast(device, **options):
                x @ w
                x @ w

        return casts(run)

    assert twice() == 1 and twice(cache_enabled=False) == 2
    with autocast(device):
        before = (x @ w)[0, 0].item()
        with lucid.no_grad():
            w.mul_(2)
        # What was kept is stale.
        assert (x @ w)[0, 0].item() == 2 * before
        lucid.clear_autocast_cache()
        with lucid.no_grad():
            assert not (x @ w).requires_grad
        assert (x @ w).requires_grad


def test_wrong_arguments() -> None:
    with pytest.raises(ValueError, match="Expected `device_type` of type `str`"):
        autocast(3)  # type: ignore[arg-type]
    with pytest.raises(RuntimeError, match="unsupported autocast device_type"):
        autocast("tpu")
    with pytest.warns(UserWarning, match="Disabling autocast"):
        block = autocast("cpu", dtype=lucid.float32)
    with block:
        assert not lucid.is_autocast_enabled("cpu")
    with pytest.raises(ValueError, match="float16 or bfloat16"):
        lucid.set_autocast_dtype("cpu", lucid.float32)


def test_functions_with_own_gradients() -> None:
    @custom_fwd(device_type="cpu", cast_inputs=lucid.float32)
    def cast_forward(ctx: Any, a: lucid.Tensor, more: dict[str, Any]) -> Any:
        return lucid.is_autocast_enabled("cpu"), a.dtype, more["b"][0].dtype, more["c"].dtype, more["d"]

    @custom_fwd(device_type="cpu")
    def forward(ctx: Any, a: lucid.Tensor) -> Any:
        return lucid.is_autocast_enabled("cpu"), (a @ a).dtype

    @custom_bwd(device_type="cpu")
    def backward(ctx: Any) -> Any:
        return lucid.is_autocast_enabled("cpu"), lucid.get_autocast_dtype("cpu")

    half, double = lucid.ones(2, 2, dtype=lucid.bfloat16), lucid.ones(1, dtype=lucid.float64)
    more = {"b": [half], "c": double, "d": "text"}
    first, second, third = SimpleNamespace(), SimpleNamespace(), SimpleNamespace()
    with autocast("cpu", dtype=lucid.float16):
        assert cast_forward(first, half, more) == (False, lucid.float32, lucid.float32, lucid.float64, "text")
        assert forward(second, lucid.ones(2, 2)) == (True, lucid.float16)
    assert cast_forward(third, half, more)[1] == lucid.bfloat16
    assert backward(first) == (False, lucid.bfloat16)
    assert backward(second) == (True, lucid.float16)
    assert not lucid.is_autocast_enabled("cpu")


def test_scalers_are_copied_between_iterations() -> None:
    p = lucid.ones(2, requires_grad=True)
    sgd = lucid.optim.SGD([p])
    scaler = GradScaler("cpu", init_scale=4.0, growth_interval=1)
    scaler.scale(p.sum()).backward()
    scaler.step(sgd)
    with pytest.raises(AssertionError, match="may only be pickled"):
        pickle.dumps(scaler)
    scaler.update()
    for other in (pickle.loads(pickle.dumps(scaler)), copy.deepcopy(scaler)):
        assert other.get_scale() == 8.0 and other.state_dict() == scaler.state_dict()
    off = GradScaler("cpu", enabled=False)
    assert off.scale(p) is p and off.get_scale() == 1.0 and not off.is_enabled()


def test_what_cannot_be_scaled() -> None:
    scaler = GradScaler("cpu")
    for wrong in ("loss", b"loss", 3.0, None, [lucid.ones(1), "loss"]):
        with pytest.raises(ValueError, match="iterable of Tensors"):
            scaler.scale(wrong)


def test_one_engine_call_unscales_all(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    unscale = lucid._C._unscale_
    monkeypatch.setattr(lucid._C, "_unscale_", lambda g, s: calls.append(len(g)) or unscale(g, s))
    params = [lucid.ones(3, device=device, requires_grad=True) for _ in range(5)]
    sgd = lucid.optim.SGD(params)
    scaler = GradScaler(device, init_scale=16.0)
    scaler.scale(sum(p.sum() for p in params)).backward()
    with lucid.profile() as profile:
        scaler.unscale_(sgd)
    assert calls == [5] and profile.total["evaluations"] == 0
    assert all(p.grad.tolist() == [1.0] * 3 for p in params)


class Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 4, 3, padding=1), nn.Conv2d(4, 8, 3, padding=1)
        self.fc = nn.Linear(8 * 2 * 2, 4)

    def forward(self, x: lucid.Tensor) -> lucid.Tensor:
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        return self.fc(x.flatten(1))


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out, self.norm = nn.Linear(8, 24), nn.Linear(8, 4), nn.LayerNorm(8)

    def forward(self, x: lucid.Tensor) -> lucid.Tensor:
        x = x.flatten(1).reshape(-1, 8, 8)
        q, k, v = self.qkv(self.norm(x)).chunk(3, -1)
        y = F.scaled_dot_product_attention(q, k, v)
        return self.out((x + y).mean(1))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("model", [Small, Attention])
def test_training_converges(model: type[nn.Module], dtype: str, device: str) -> None:
    lucid.manual_seed(0)
    x = lucid.randn(32, 1, 8, 8)
    y = lucid.stack([x[:, 0, :4].mean((1, 2)), x[:, 0, 4:].mean((1, 2)), x[:, 0, :, 0].mean(1), x[:, 0, 0].mean(1)], 1)
    x, y = x.to(device), y.argmax(1).to(device)
    net = model().to(device)
    adam = lucid.optim.Adam(net.parameters(), lr=2e-2)
    scaler = GradScaler(device, enabled=dtype == "float16")
    first = last = 0.0
    for _ in range(40):
        with autocast(device, dtype=getattr(lucid, dtype) if dtype != "float32" else None, enabled=dtype != "float32"):
            loss = F.cross_entropy(net(x), y)
        loss.eval()
        adam.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(adam)
        scaler.update()
        last = loss.item()
        first = first or last
    assert all(p.dtype == lucid.float32 for p in net.parameters())
    assert last < 0.25 * first
