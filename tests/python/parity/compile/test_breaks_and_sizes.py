"""Graph breaks in two halves, one recording for many sizes, explanations of recompiles, and the tuning cache."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lucid
import lucid.nn.functional as F
import pytest
from lucid import nn

from tests.python.tolerances import within


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    lucid.compiler.reset()
    yield
    lucid.compiler.reset()


def count(f: Any, name: str) -> Any:
    return lucid.compiler.statistics(f)[name]


def parts(f: Any) -> list[Any]:
    return list(f._compiled.part_functions())


def check(plain: Any, compiled: Any, *calls: tuple[Any, ...]) -> None:
    """The same values and gradients, several times."""
    for _ in range(3):
        for args in calls:
            grads = []
            for f in (plain, compiled):
                own = [a.detach().requires_grad_(True) if isinstance(a, lucid.Tensor) else a for a in args]
                out = f(*own)
                outs = [t for t in (out if isinstance(out, tuple) else (out,)) if isinstance(t, lucid.Tensor)]
                loss = sum((o * o).sum() for o in outs if o.requires_grad)
                found = ()
                if isinstance(loss, lucid.Tensor):
                    found = lucid.autograd.grad(
                        loss, [a for a in own if isinstance(a, lucid.Tensor)], allow_unused=True
                    )
                grads.append((outs, found))
            (a, da), (b, db) = grads
            assert len(a) == len(b)
            for x, y in zip([*a, *da], [*b, *db], strict=True):
                assert (x is None) == (y is None)
                if x is not None:
                    lucid.testing.assert_close(x.detach(), y.detach(), equal_nan=True)


def item_in_the_middle(x: Any, y: Any) -> Any:
    h = lucid.tanh(x @ y)
    h = h * 2 + 1
    scale = h.abs().max().item()
    z = h / scale
    return z.sin() + x.sum()


def branch_on_data(x: Any) -> Any:
    y = x * 3
    z = y.exp()
    if y.sum() > 0:
        z = z + 1
        z = z.log()
    else:
        z = z - 1
        z = z.sqrt().nan_to_num()
    return z.cos() * y


def loop_on_data(x: Any) -> Any:
    steps = 0
    while x.norm().item() < 100.0:
        x = x * 2 + 0.1
        x = x + x.sin()
        steps += 1
    return x / (steps + 1)


def printing(x: Any) -> Any:
    y = (x + 1).relu()
    print("a line", end="")
    y = y.exp()
    return y.mean(), y


@pytest.mark.parametrize("fn", [item_in_the_middle, branch_on_data, loop_on_data, printing])
def test_both_halves_of_a_broken_graph_run_compiled(fn: Any, capsys: pytest.CaptureFixture[str]) -> None:
    lucid.manual_seed(0)
    x = lucid.rand(4, 4) + 0.1
    args = (x, lucid.randn(4, 4)) if fn is item_in_the_middle else (x,)
    compiled = lucid.compile(fn)
    calls = [args, tuple(-a for a in args)] if fn is branch_on_data else [args]
    check(fn, compiled, *calls)
    assert count(compiled, "split") > 0 and count(compiled, "reasons")
    found = parts(compiled)
    assert len(found) >= 2 and all(p.statistics.replayed > 0 for p in found), [p.statistics for p in found]
    explained = lucid.compiler.explain(compiled)
    assert explained.graph_count >= 2 and explained.parts
    if fn is printing:
        capsys.readouterr()
        compiled(x)
        assert capsys.readouterr().out == "a line"


class Broken(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(4, 8), nn.Linear(8, 2)

    def forward(self, x: Any) -> Any:
        h = F.relu(self.a(x))
        if h.max().item() > 1e6:
            h = h / 1e6
        return self.b(h)


def test_modules_train_in_parts() -> None:
    lucid.manual_seed(0)
    plain, given = Broken(), Broken()
    given.load_state_dict(plain.state_dict())
    compiled = lucid.compile(given)
    x = lucid.randn(5, 4)
    for model, net in ((plain, plain), (given, compiled)):
        optimizer = lucid.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(4):
            optimizer.zero_grad()
            net(x).square().mean().backward()
            optimizer.step()
    for p, q in zip(plain.parameters(), given.parameters(), strict=True):
        lucid.testing.assert_close(p.detach(), q.detach())
    assert count(compiled, "split") == 3
    assert all(p.statistics.replayed > 0 for p in parts(compiled)), [p.statistics for p in parts(compiled)]


def test_what_is_taken_apart_keeps_python_s_meaning() -> None:
    calls: list[int] = []

    def early(x: Any, stop: bool = False) -> Any:
        y = x * 2
        if stop:
            return y + 1
        calls.append(int(y.sum().item()))
        y = y + 1
        y = y * 2
        return y

    def raising(x: Any) -> Any:
        y = x * 2
        if y.sum().item() < 0:
            raise ValueError("below zero")
        y = y.log()
        return y + 1

    f, g = lucid.compile(early), lucid.compile(raising)
    for _ in range(3):
        assert f(lucid.ones(2)).tolist() == [6.0, 6.0] and f(lucid.ones(2), stop=True).tolist() == [3.0, 3.0]
        assert g(lucid.ones(2)).tolist() == raising(lucid.ones(2)).tolist()
        with pytest.raises(ValueError, match="below zero"):
            g(-lucid.ones(2))
    assert calls == [4, 4, 4]


def test_fullgraph_names_the_line() -> None:
    with pytest.raises(RuntimeError, match=r"test_breaks_and_sizes\.py:\d+, in item_in_the_middle"):
        lucid.compile(item_in_the_middle, fullgraph=True)(lucid.ones(2, 2), lucid.ones(2, 2))
    with pytest.raises(RuntimeError, match=r"print.*test_breaks_and_sizes\.py:\d+, in printing"):
        lucid.compile(printing, fullgraph=True)(lucid.ones(2))


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.position = nn.Embedding(30, 16), nn.Embedding(64, 16)
        self.norm, self.qkv, self.out = nn.LayerNorm(16), nn.Linear(16, 48), nn.Linear(16, 30)

    def forward(self, ids: Any) -> Any:
        b, t = ids.shape
        x = self.embedding(ids) + self.position(lucid.arange(t))
        q, k, v = self.qkv(self.norm(x)).split(16, dim=2)
        q, k, v = (z.view(b, t, 4, 4).transpose(1, 2) for z in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(x + y.transpose(1, 2).contiguous().view(b, t, 16))


def images() -> Any:
    layers = (nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 2))
    return nn.Sequential(*layers).eval()


MODELS: dict[str, Any] = {
    "attention": (Attention, lambda b, t: lucid.randint(0, 30, (b, t)), ((4, 6), (2, 3), (5, 9), (7, 12), (3, 2))),
    "mlp": (
        lambda: nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4), nn.Softmax(-1)),
        lambda b, t: lucid.randn(b, 8),
        ((6, 0), (2, 0), (3, 0), (11, 0), (12, 0)),
    ),
    "images": (
        images,
        lambda b, t: lucid.randn(b, 3, 8, 8),
        ((4, 0), (2, 0), (9, 0), (13, 0)),
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_one_recording_holds_for_many_sizes(name: str) -> None:
    make, data, sizes = MODELS[name]
    lucid.manual_seed(0)
    model = make()
    compiled = lucid.compile(model, dynamic=True)
    for _ in range(2):
        for b, t in sizes:
            x = data(b, t)
            got, want = [], []
            for f, into in ((model, want), (compiled, got)):
                model.zero_grad()
                out = f(x)
                out.square().mean().backward()
                into += [out.detach(), *[p.grad.clone() for p in model.parameters() if p.grad is not None]]
            assert len(got) == len(want)
            for g, w in zip(got, want, strict=True):
                lucid.testing.assert_close(g, w, **within("program"))
    found = lucid.compiler.statistics(compiled)
    assert found["recorded"] == 1 and found["instantiated"] == len(sizes) - 1, found
    assert not found["eager"] and not found["static_reasons"]


def test_sizes_that_decide_are_recorded_each() -> None:
    def special(x: Any) -> Any:
        return x * 2 if x.shape[0] == 7 else x + 1

    def parity(x: Any) -> Any:
        return x * 2 if x.shape[0] % 2 else x + 1

    def large(x: Any) -> Any:
        return x * 2 if x.shape[0] > 50 else x + 1

    def cut(x: Any) -> Any:
        return x[:40].sum() + x.mean()

    for fn in (special, parity, large, cut):
        f = lucid.compile(fn, dynamic=True, recompile_limit=100)
        for n in (2, 3, 7, 8, 49, 50, 51, 80, 7, 200):
            x = lucid.randn(n)
            lucid.testing.assert_close(f(x), fn(x))
    f = lucid.compile(special, dynamic=True)
    f(lucid.ones(4))
    assert any("==" in reason for reason in count(f, "static_reasons"))


def test_recompiles_are_explained() -> None:
    settings = {"factor": 2}

    def f(x: Any, flag: bool = False) -> Any:
        return x * settings["factor"] + flag

    g = lucid.compile(f)
    g(lucid.ones(2))
    g(lucid.ones(3))
    g(lucid.ones(3).double())
    g(lucid.ones(3), True)
    settings["factor"] = 3
    assert g(lucid.ones(2)).tolist() == [3.0, 3.0]
    reasons = count(g, "recompile_reasons")
    assert count(g, "recompiles") == 4
    assert any("shape" in r for r in reasons) and any("no tensor" in r for r in reasons)
    assert any("factor" in r for r in reasons), reasons
    text = str(lucid.compiler.explain(g))
    assert "Recompiled" in text


def test_explanations_as_json_and_as_a_page(tmp_path: Path) -> None:
    found = lucid.compiler.explain(lambda x: (x @ x).relu().sum(), lucid.randn(4, 4))
    data = json.loads(found.to_json())
    assert data["graphs"][0]["flops"] >= 2 * 4 * 4 * 4 and data["times_ms"]["compiled"] > 0
    found.save(str(tmp_path / "a.html"))
    page = (tmp_path / "a.html").read_text()
    assert "<svg" in page and "matmul" in page
    assert page.replace("http://www.w3.org/2000/svg", "").count("http") == 0


def test_threads_call_one_function_at_once() -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
    for dynamic in (False, True):
        f = lucid.compile(model, dynamic=dynamic, recompile_limit=64)
        want = {n: model(lucid.ones(n, 4)).detach() for n in range(2, 10)}
        failed: list[Any] = []

        def work(f: Any = f, want: Any = want, failed: Any = failed) -> None:
            for _ in range(5):
                for n, w in want.items():
                    try:
                        lucid.testing.assert_close(f(lucid.ones(n, 4)).detach(), w)
                    except Exception as error:
                        failed.append(error)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        assert not failed, failed[0]


def test_the_tuning_cache_is_shared_shown_and_cleared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from lucid import _tuning

    file = tmp_path / "tune.json"
    monkeypatch.setenv("LUCID_TUNE_CACHE", str(file))
    cache = lucid.compiler.tune_cache
    assert cache.path() == str(file) and cache.entries() == {}
    code = (
        "import sys; from lucid import _tuning\n"
        "for i in range(8): _tuning.shared().remember(f'k {sys.argv[1]} {i}', 'a', {'a': 1.0, 'b': 2.0})"
    )
    running = [subprocess.Popen([sys.executable, "-c", code, str(i)]) for i in range(3)]
    assert [p.wait(60) for p in running] == [0, 0, 0]
    found = json.loads(file.read_text())
    assert len(found["entries"]) == 24 and found["version"] == _tuning.VERSION
    _tuning.shared().reset()
    assert len(cache.entries("k 1")) == 8 and cache.forget("k 1") == 8 and len(cache.entries()) == 16
    shown = subprocess.run(
        [sys.executable, "-m", "lucid.compiler", "cache", "--json"], capture_output=True, text=True, check=True
    )
    assert len(json.loads(shown.stdout)["entries"]) == 16
    for broken in ("", "{", "[]", '{"format": "another"}', json.dumps({**found, "version": 99})):
        file.write_text(broken)
        _tuning.shared().reset()
        assert cache.entries() == {}
        assert _tuning.shared().choose("x", {"a": lambda: 1}) == "a"
        assert list(json.loads(file.read_text())["entries"]) == ["x"]
    subprocess.run([sys.executable, "-m", "lucid.compiler", "cache", "--clear"], capture_output=True, check=True)
    assert not file.exists()


def test_what_calls_may_change_and_give() -> None:
    seen: list[int] = []

    def nothing(x: Any) -> None:
        x.mul_(2)

    def numbers(x: Any) -> Any:
        return x.shape[0], "name", None

    def fails(x: Any, at: int) -> Any:
        seen.append(at)
        y = x * 2
        if at > 1:
            raise KeyError(at)
        return y

    f, g, h = lucid.compile(nothing), lucid.compile(numbers, dynamic=True), lucid.compile(fails)
    for turn in range(3):
        x = lucid.ones(2)
        assert f(x) is None and x.tolist() == [2.0, 2.0]
        assert g(lucid.ones(2 + turn)) == (2 + turn, "name", None)
        assert h(lucid.ones(1), 1).tolist() == [2.0]
        with pytest.raises(KeyError):
            h(lucid.ones(1), 2)
    assert seen == [1, 2] * 3
    # Dtypes, devices and requirements that change between the calls.
    k = lucid.compile(lambda x: (x * 3).sum(), dynamic=True)
    for n in (3, 4):
        for x in (lucid.ones(n), lucid.ones(n).double(), lucid.ones(n, device="gpu"), lucid.ones(n, dtype=lucid.int32)):
            y = k(x)
            assert y.item() == 3 * n and y.dtype == (x * 3).sum().dtype and y.device == x.device
        z = lucid.ones(n, requires_grad=True)
        k(z).backward()
        assert z.grad is not None and z.grad.tolist() == [3.0] * n


class Ends:
    """Something that the collector alone can free, and whose end is heard of."""

    def __init__(self) -> None:
        self.me = self

    def __del__(self) -> None:
        time.time()


def test_what_the_collector_calls_is_not_what_the_function_calls() -> None:
    """Hypothesis, for one, asks for the time whenever the collector runs."""

    def heard(phase: str, info: dict[str, int]) -> None:
        time.perf_counter()

    threshold = gc.get_threshold()
    gc.callbacks.append(heard)
    try:
        gc.set_threshold(1)
        compiled = lucid.compile(lambda x: x * 2)
        assert compiled(lucid.ones(2)).tolist() == [2.0, 2.0]
        seen = lucid.compiler.statistics(compiled)
        assert (seen["recorded"], seen["eager"], seen["reasons"]) == (1, 0, {})
    finally:
        gc.set_threshold(*threshold)
        gc.callbacks.remove(heard)


def test_finalizers_are_not_what_the_function_calls() -> None:
    def f(x: lucid.Tensor) -> lucid.Tensor:
        for _ in range(10):
            Ends()
        return x * len([[i] for i in range(30_000)])

    compiled = lucid.compile(f)
    assert compiled(lucid.ones(2)).tolist() == [30_000.0, 30_000.0] and gc.isenabled()
    assert count(compiled, "reasons") == {}


def test_threads_call_a_function_in_parts() -> None:
    f = lucid.compile(item_in_the_middle)
    x, y = lucid.rand(4, 4), lucid.rand(4, 4)
    want = item_in_the_middle(x, y)
    failed: list[Any] = []

    def work() -> None:
        for _ in range(10):
            try:
                lucid.testing.assert_close(f(x, y), want)
            except Exception as error:
                failed.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failed, failed[0]
