"""Compiled programs against eager ones: what a call may change and what it gives."""

from __future__ import annotations

import dataclasses
import threading
from typing import Any

import lucid
import lucid.nn.functional as F
import pytest
from lucid import nn

from tests.python.parity.compile.test_compile_parity import count
from tests.python.tolerances import near


def test_writes_in_place_reach_inputs_and_state() -> None:
    total = lucid.zeros(3)

    def f(x: lucid.Tensor, out: lucid.Tensor) -> lucid.Tensor:
        total.add_(x)
        out[1:] = x[:-1] * 2
        out[0].fill_(9)
        x.relu_()
        return x

    compiled = lucid.compile(f, fullgraph=True)
    for n in range(3):
        x, out = lucid.tensor([1.0, -2.0, n]), lucid.zeros(3)
        assert compiled(x, out) is x
        assert x.tolist() == [1.0, 0.0, n]
        assert out.tolist() == [9.0, 2.0, -4.0]
        assert total.tolist() == [n + 1.0, -2.0 * (n + 1), n * (n + 1) / 2]
    assert count(compiled, "replayed") == 2


def test_inputs_that_alias_have_a_graph_of_their_own() -> None:
    def f(x: lucid.Tensor, y: lucid.Tensor) -> lucid.Tensor:
        x.add_(1)
        return x + y

    compiled = lucid.compile(f)
    for _ in range(2):
        assert compiled(lucid.zeros(2), lucid.zeros(2)).tolist() == [1.0, 1.0]
        x = lucid.zeros(2)
        assert compiled(x, x).tolist() == [2.0, 2.0]
        base = lucid.zeros(3)
        assert compiled(base[:2], base[1:]).tolist() == [2.0, 1.0]


def test_results_are_of_every_call_its_own() -> None:
    table = lucid.compile(lambda: (lucid.tensor([1.0, 2.0]), lucid.zeros(2), lucid.zeros(2)))
    for _ in range(3):
        made = table()
        for t in made:
            t.add_(1)
        assert [t.tolist() for t in made] == [[2.0, 3.0], [1.0, 1.0], [1.0, 1.0]]


def test_exceptions_leave_no_graph() -> None:
    calls: dict[str, bool] = {"fails": True}

    def f(x: lucid.Tensor) -> lucid.Tensor:
        if calls["fails"]:
            raise KeyError("inside")
        return x + 1

    compiled = lucid.compile(f)
    with pytest.raises(KeyError, match="inside"):
        compiled(lucid.ones(2))
    assert not lucid.compiler.is_compiling()
    calls["fails"] = False
    assert compiled(lucid.ones(2)).tolist() == [2.0, 2.0]
    index = lucid.compile(lambda x, i: x[i])
    assert index(lucid.ones(3), lucid.tensor([0, 2])).tolist() == [1.0, 1.0]
    for _ in range(2):
        with pytest.raises(IndexError):
            index(lucid.ones(3), lucid.tensor([0, 3]))


def test_threads_call_one_function() -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4))
    compiled = lucid.compile(model)
    wrong: list[Any] = []

    def work(seed: int) -> None:
        try:
            for n in range(15):
                x = lucid.full((1 + (n + seed) % 3, 8), float(seed))
                got = compiled(x)
                grads = lucid.autograd.grad(got.sum(), list(model.parameters()))
                want = lucid.autograd.grad(model(x).sum(), list(model.parameters()))
                for g, w in zip(grads, want, strict=True):
                    lucid.testing.assert_close(g, w)
        except Exception as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_recompiles_are_counted_and_limited() -> None:
    compiled = lucid.compile(lambda x: x * 2, recompile_limit=3)
    for n in range(1, 7):
        assert compiled(lucid.ones(n)).tolist() == [2.0] * n
    found = lucid.compiler.statistics(compiled)
    assert (found["recorded"], found["recompiles"], found["eager"]) == (3, 2, 3)
    assert any("limit" in reason for reason in found["reasons"])


def test_nested_transforms_modes_and_subclasses() -> None:
    inner = lucid.compile(lambda x: x.sin())
    outer = lucid.compile(lambda x: inner(x) + inner(x * 2))
    x = lucid.rand(3, 4)
    for _ in range(2):
        lucid.testing.assert_close(outer(x), x.sin() + (x * 2).sin())
    assert count(outer, "replayed") == 1
    lucid.testing.assert_close(lucid.vmap(inner)(x), x.sin())
    lucid.testing.assert_close(lucid.func.grad(lambda y: inner(y).sum())(x), x.cos())
    mapped = lucid.compile(lambda x: lucid.vmap(lambda row: row * row.sum())(x))
    for _ in range(2):
        lucid.testing.assert_close(mapped(x), x * x.sum(1, keepdim=True))
    gradient = lucid.compile(lambda x: lucid.func.grad(lambda y: (y * y).sum())(x))
    for _ in range(2):
        lucid.testing.assert_close(gradient(x), 2 * x)

    class Own(lucid.Tensor):
        pass

    own = x.as_subclass(Own)
    assert type(inner(own)) is Own
    with lucid.inference_mode():
        assert inner(x).is_inference()


def test_gradients_of_arguments_and_their_errors() -> None:
    compiled = lucid.compile(lambda x, y: (x * y, x.detach(), (y > 0)))
    for _ in range(2):
        x, y = lucid.rand(3, requires_grad=True), lucid.rand(3, requires_grad=True)
        z = x * 2
        got, cut, flags = compiled(z, y)
        assert not cut.requires_grad
        assert not flags.requires_grad
        got.sum().backward(retain_graph=True)
        got.sum().backward()
        lucid.testing.assert_close(x.grad, 4 * y.detach())
        lucid.testing.assert_close(y.grad, 4 * x.detach())
        with pytest.raises(RuntimeError, match="second time"):
            got.sum().backward()
    f = lucid.compile(lambda x, y: x * y)
    for _ in range(3):
        x, y = lucid.rand(3, requires_grad=True), lucid.rand(3)
        out = f(x, y)
        y.add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace"):
            out.sum().backward()


def test_custom_functions_keep_their_gradients() -> None:
    class Straight(lucid.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: lucid.Tensor) -> lucid.Tensor:
            return x.round()

        @staticmethod
        def backward(ctx: Any, g: lucid.Tensor) -> lucid.Tensor:
            return g * 3

    compiled = lucid.compile(lambda x: Straight.apply(x) * 2)
    for _ in range(3):
        x = lucid.rand(3, requires_grad=True)
        compiled(x).sum().backward()
        assert x.grad.tolist() == [6.0, 6.0, 6.0]


def test_a_step_with_clipping_averages_and_a_scheduler() -> None:
    def run(compiles: bool) -> list[float]:
        lucid.manual_seed(0)
        model, average = nn.Linear(4, 2), nn.Linear(4, 2)
        opt = lucid.optim.AdamW(model.parameters(), lr=0.1)
        scheduler = lucid.optim.lr_scheduler.StepLR(opt, 2)

        def step(x: lucid.Tensor, y: lucid.Tensor) -> lucid.Tensor:
            loss = F.mse_loss(model(x), y)
            loss.backward()
            norm = nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            opt.step()
            opt.zero_grad()
            with lucid.no_grad():
                for a, p in zip(average.parameters(), model.parameters(), strict=True):
                    a.lerp_(p, 0.1)
            return loss.detach() + norm

        f = lucid.compile(step) if compiles else step
        losses = []
        for _ in range(6):
            losses.append(f(lucid.randn(3, 4), lucid.randn(3, 2)).item())
            scheduler.step()
        if compiles:
            assert count(f, "replayed") >= 4, lucid.compiler.statistics(f)
        return losses + [v for p in [*model.parameters(), *average.parameters()] for v in p.flatten().tolist()]

    assert run(True) == pytest.approx(run(False), **near("program"))


def test_gradients_accumulate_over_calls() -> None:
    model = nn.Linear(3, 1)

    def micro(x: lucid.Tensor) -> lucid.Tensor:
        loss = model(x).sum()
        loss.backward()
        return loss.detach()

    compiled = lucid.compile(micro, fullgraph=True)
    for n in range(1, 5):
        compiled(lucid.ones(2, 3))
        assert model.weight.grad.tolist() == [[2.0 * n] * 3]
    kept = model.weight.grad
    compiled(lucid.ones(2, 3))
    assert kept is model.weight.grad
    assert count(compiled, "replayed") == 3


def test_module_compile_copies_and_state() -> None:
    import copy
    import pickle

    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
    x = lucid.randn(2, 3)
    want, keys = model(x), list(model.state_dict())
    model.compile()
    for _ in range(2):
        lucid.testing.assert_close(model(x), want)
    other = copy.deepcopy(model)
    with lucid.no_grad():
        other[0].weight.zero_()
        other[0].bias.fill_(2)
    assert other(x).tolist() == [[2.0] * 3] * 2
    lucid.testing.assert_close(model(x), want)
    assert list(model.state_dict()) == keys
    lucid.testing.assert_close(pickle.loads(pickle.dumps(model))(x), want)
    wrapped = lucid.compile(model)
    assert wrapped._orig_mod is model
    assert all(a is b for a, b in zip(wrapped.parameters(), model.parameters(), strict=True))


def test_options_that_make_no_sense_are_errors() -> None:
    for options in ({"mode": "fast"}, {"options": {"a": 1}}, {"backend": "cuda"}, {"recompile_limit": 0}):
        with pytest.raises(RuntimeError):
            lucid.compile(lambda x: x, **options)
    with pytest.raises(TypeError):
        lucid.compile(3)  # type: ignore[call-overload]
    f = lambda x: x  # noqa: E731
    assert lucid.compile(f, disable=True) is f
    assert lucid.compile(f, backend="eager") is f
    with lucid.compiler.set_stance("force_eager"):
        g = lucid.compile(lambda x: x + 1)
        g(lucid.ones(1))
    assert count(g, "calls") == 0


def test_graphs_are_folded_printed_and_checked() -> None:
    def f(x: lucid.Tensor) -> lucid.Tensor:
        _ = x.exp()
        return (x * 2 + 1).sin() + (x * 2 + 1).sin()

    compiled = lucid.compile(f)
    x = lucid.rand(4)
    with lucid.no_grad():
        assert lucid.equal(compiled(x), compiled(x))
    found = lucid.compiler.explain(compiled)
    ops = [step["op"] for step in found.graphs[0]["steps"]]
    assert ops.count("sin") == 1
    assert "exp" not in ops
    assert "full" not in ops
    assert len(found.graphs[0]["groups"]) == 1
    assert found.graphs[0]["dot"].startswith("digraph")
    assert "sin" in str(found)


def test_dataclasses_may_be_reached() -> None:
    @dataclasses.dataclass(frozen=True)
    class Config:
        scale: float = 2.0

    config = Config()
    f = lucid.compile(lambda x: x * config.scale + 1, fullgraph=True)
    assert f(lucid.ones(2)).tolist() == f(lucid.ones(2)).tolist() == [3.0, 3.0]
