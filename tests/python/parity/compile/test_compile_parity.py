"""Compiled against eager: every op's samples, modules, training steps, and what must not be kept from one call to the
next."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import lucid
import lucid.nn.functional as F
import pytest
from lucid import nn

from tests.python.samples import lucid_function, results, rows, samples

DEVICES = ("cpu", "gpu")

#: Why no graph is all of an op, where it is not.
KNOWN = (
    "the elements of a tensor are read",
    "the shape of the result depends on the elements",
    "the call returns a view of a tensor that it was given, or reaches",
    "the call returns several views of one tensor",
)


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    lucid.compiler.reset()
    yield
    lucid.compiler.reset()


def count(f: Any, name: str) -> int:
    return int(lucid.compiler.statistics(f)[name])


def same(got: Any, want: Any, exact: bool = True) -> None:
    assert type(got) is type(want)
    if not isinstance(want, lucid.Tensor):
        assert got == want
        return
    facts = [(t.shape, t.stride(), t.dtype, t.device, t.requires_grad, t.is_leaf) for t in (got, want)]
    assert facts[0] == facts[1]
    if exact:
        assert lucid.equal(got.detach(), want.detach()) or lucid.allclose(got.detach(), want.detach(), equal_nan=True)
    else:
        lucid.testing.assert_close(got.detach(), want.detach(), equal_nan=True)


def inputs_of(row: dict[str, Any], device: str) -> Iterator[tuple[list[Any], dict[str, Any]]]:
    for sample in samples(row, device):

        def made(data: Any) -> Any:
            t = lucid.tensor(data.values)
            if device == "gpu" and t.dtype == lucid.float64:
                t = t.float()
            if device == "gpu" and t.dtype == lucid.complex128:
                t = t.to(lucid.complex64)
            return t.to(device)

        try:
            args, kwargs = sample.map(made)
            results(lucid_function(row)(*args, **kwargs))
        except (RuntimeError, TypeError, NotImplementedError):
            continue  # What eager refuses there is tested as a refusal elsewhere.
        yield args, kwargs


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("row", rows(), ids=lambda row: row["name"])
def test_every_op(row: dict[str, Any], device: str) -> None:
    f = lucid_function(row)

    def call(args: list[Any], kwargs: dict[str, Any]) -> Any:
        return f(*args, **kwargs)

    compiled = lucid.compile(call, recompile_limit=100)
    replayed = 0
    for args, kwargs in inputs_of(row, device):
        for _ in range(2):
            want = results(call(args, kwargs))
            got = results(compiled(args, kwargs))
            assert len(got) == len(want)
            for g, w in zip(got, want, strict=True):
                same(g, w)
        replayed += 1
        tensors = [a for a in [*args, *kwargs.values()] if isinstance(a, lucid.Tensor)]
        wide = [t for t in tensors if t.is_floating_point()]
        if not row["differentiable"] or not wide:
            continue
        for t in wide:
            t.requires_grad_(True)
        try:
            check_gradients(call, compiled, args, kwargs, wide)
        finally:
            for t in wide:
                t.requires_grad_(False)
    found = lucid.compiler.statistics(compiled)
    known = [r.endswith(KNOWN) or r.startswith("its gradient cannot be recorded") for r in found["reasons"]]
    assert all(known), found
    assert found["replayed"] > 0 or found["reasons"] or not replayed


def check_gradients(call: Any, compiled: Any, args: list[Any], kwargs: dict[str, Any], wide: list[Any]) -> None:
    grads: list[Any] = []
    for g in (call, compiled, compiled):
        try:
            outs = [o for o in results(g(args, kwargs)) if isinstance(o, lucid.Tensor) and o.requires_grad]
            weights = [lucid.full_like(o, 0.5) for o in outs]
            made = lucid.autograd.grad(outs, wide, weights, allow_unused=True) if outs else ()
        except (RuntimeError, NotImplementedError) as error:
            # What has no derivative has none compiled.
            grads.append(type(error))
            continue
        grads.append(made)
    for made in grads[1:]:
        if isinstance(grads[0], type):
            assert made is grads[0]
            continue
        for g, w in zip(made, grads[0], strict=True):
            assert (g is None) == (w is None)
            if w is not None:
                same(g, w, exact=False)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.out = nn.LayerNorm(16), nn.LayerNorm(16)
        self.attention = nn.MultiheadAttention(16, 2, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16))

    def forward(self, x: lucid.Tensor) -> lucid.Tensor:
        y = self.norm(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        return x + self.mlp(self.out(x))


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 3, 3, padding=1, bias=False), nn.BatchNorm2d(3)
        self.conv2, self.bn2 = nn.Conv2d(3, 3, 3, padding=1, bias=False), nn.BatchNorm2d(3)

    def forward(self, x: lucid.Tensor) -> lucid.Tensor:
        return (x + self.bn2(self.conv2(self.bn1(self.conv1(x)).relu()))).relu()


class Lstm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.head = nn.LSTM(5, 6, 2, batch_first=True), nn.Linear(6, 3)

    def forward(self, x: lucid.Tensor) -> lucid.Tensor:
        return self.head(self.lstm(x)[0][:, -1])


def lenet() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(400, 120), nn.ReLU(), nn.Dropout(0.5), nn.Linear(120, 10),
    )  # fmt: skip


MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "lenet": (lenet, (4, 1, 28, 28)),
    "gpt block": (Block, (2, 7, 16)),
    "resnet block": (Residual, (2, 3, 8, 8)),
    "lstm": (Lstm, (3, 4, 5)),
}
OPTIMIZERS: dict[str, Callable[[Any], lucid.optim.Optimizer]] = {
    "sgd": lambda p: lucid.optim.SGD(p, lr=0.05, momentum=0.9),
    "adamw": lambda p: lucid.optim.AdamW(p, lr=0.01, eps=1e-2),
}


def trained(name: str, device: str, optimizer: str, how: str) -> tuple[list[lucid.Tensor], nn.Module, Any]:
    lucid.manual_seed(5)
    make, shape = MODELS[name]
    model = make().to(device)
    opt = OPTIMIZERS[optimizer](model.parameters())
    called: Any = lucid.compile(model) if how == "module" else model

    def step(x: lucid.Tensor) -> lucid.Tensor:
        opt.zero_grad()
        loss = called(x).square().mean()
        loss.backward()
        opt.step()
        return loss

    made: Any = lucid.compile(step, fullgraph=True) if how == "step" else step
    losses = [made(lucid.randn(shape, device=device)).detach() for _ in range(5)]
    return losses, model, made if how == "step" else called


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", MODELS)
def test_training(name: str, device: str, optimizer: str) -> None:
    want, plain, _ = trained(name, device, optimizer, "eager")
    for how in ("module", "step"):
        got, model, compiled = trained(name, device, optimizer, how)
        for g, w in zip(got, want, strict=True):
            lucid.testing.assert_close(g, w)
        for (key, g), w in zip(model.state_dict().items(), plain.state_dict().values(), strict=True):
            lucid.testing.assert_close(g, w, msg=lambda text, key=key: f"{key}: {text}")
        assert count(compiled, "replayed") >= 3, lucid.compiler.statistics(compiled)
        assert count(compiled, "eager") == 0, lucid.compiler.statistics(compiled)


def test_evaluation_and_training_have_graphs_of_their_own() -> None:
    lucid.manual_seed(0)
    model = Residual()
    compiled = lucid.compile(model)
    x = lucid.randn(2, 3, 4, 4)
    for mode in (True, False, True, False):
        model.train(mode)
        mean = model.bn1.running_mean.clone()
        with lucid.no_grad():
            got = compiled(x)
        assert lucid.equal(mean, model.bn1.running_mean) is not mode
        if not mode:
            lucid.testing.assert_close(got, model(x).detach())
    assert (count(compiled, "recorded"), count(compiled, "replayed")) == (2, 2)


def test_random_numbers_are_those_of_eager() -> None:
    def f(x: lucid.Tensor) -> tuple[lucid.Tensor, ...]:
        return F.dropout(x, 0.5), lucid.rand(3) + lucid.randn(3), lucid.randint(0, 9, (4,)), lucid.randperm(5)

    compiled, x = lucid.compile(f), lucid.ones(50)
    made = []
    for g in (f, compiled):
        lucid.manual_seed(3)
        made.append([t for _ in range(3) for t in g(x)])
    for got, want in zip(made[1], made[0], strict=True):
        assert lucid.equal(got, want)
    assert lucid.rand(1).item() == (lucid.manual_seed(3), [f(x) for _ in range(3)], lucid.rand(1).item())[2]


def test_a_generator_that_is_given() -> None:
    def f(g: lucid.Generator) -> lucid.Tensor:
        return lucid.rand(3, generator=g)

    a, b = lucid.Generator().manual_seed(1), lucid.Generator().manual_seed(1)
    compiled = lucid.compile(f)
    assert all(lucid.equal(compiled(a), f(b)) for _ in range(3))


def test_what_a_call_reads_is_never_stale() -> None:
    scale, box, model = 2.0, {"a": 1}, nn.Linear(2, 2)

    class Settings:
        power = 1

    settings = Settings()

    def f(x: lucid.Tensor, k: Any) -> lucid.Tensor:
        return model(x) * scale + box["a"] * k + settings.power

    compiled, x = lucid.compile(f, recompile_limit=100), lucid.ones(1, 2)

    def check() -> None:
        with lucid.no_grad():
            lucid.testing.assert_close(compiled(x, 1), f(x, 1))
            lucid.testing.assert_close(compiled(x, 1.5), f(x, 1.5))

    check()
    check()
    scale = 3.0
    check()
    box["a"] = 5
    check()
    settings.power = 4
    check()
    Settings.power = 9
    del settings.power
    check()
    with lucid.no_grad():
        model.weight.mul_(2)
    check()
    model.weight = nn.Parameter(lucid.ones(2, 2))
    check()
    model.bias.data = lucid.full((2,), 7.0)
    check()
    model.register_forward_hook(lambda *a: a[-1] * 10)
    check()
    x = lucid.ones(3, 2)
    check()
    x = lucid.ones(2, 3).t()
    check()
    x = lucid.ones(1, 2, requires_grad=True)
    assert compiled(x, 1).requires_grad
    with lucid.autocast("cpu", dtype=lucid.bfloat16):
        assert compiled(x, 1).dtype == f(x, 1).dtype


@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_results_of_whole_steps_went_backward(device: str) -> None:
    model = nn.Linear(3, 2, device=device)
    optimizer = lucid.optim.SGD(model.parameters(), lr=0.1)

    @lucid.compile
    def step(x: lucid.Tensor, kind: str) -> Any:
        optimizer.zero_grad()
        y = model(x)
        loss = y.sum()
        loss.backward()
        optimizer.step()
        return {"loss": loss, "both": (loss, y.detach() * 2), "view": (loss, y.t())}[kind]

    x = lucid.ones(4, 3, device=device)
    for kind in ("loss", "both", "view"):
        for _ in range(4):
            made = step(x, kind)
            results = made if isinstance(made, tuple) else (made,)
            assert [t.requires_grad for t in results] == [kind != "both" or i == 0 for i in range(len(results))]
            for again in (results[0].backward, lambda r=results: lucid.autograd.grad(r[0] * 2, model.weight)):
                with pytest.raises(RuntimeError, match="second time"):
                    again()
    assert lucid.compiler.statistics(step)["replayed"] >= 6


FACTOR = 1.0


def _scaled(x: lucid.Tensor, by: float = 2.0, *, more: float = 0.0) -> lucid.Tensor:
    return x * by + more


def _shifted(x: lucid.Tensor, by: float = 2.0, *, more: float = 0.0) -> lucid.Tensor:
    return x - by - more


def test_functions_lists_names_and_types_are_never_stale() -> None:
    class Plain:
        by = 3.0

    class Other(Plain):
        by = 4.0

    weights, settings, late = [1.0, 2.0], Plain(), 5.0

    def f(x: lucid.Tensor) -> lucid.Tensor:
        return _scaled(x * settings.by) * FACTOR + sum(weights) + late

    compiled, x = lucid.compile(f, recompile_limit=100), lucid.ones(2)
    code, defaults, keywords, factor = _scaled.__code__, _scaled.__defaults__, _scaled.__kwdefaults__, FACTOR

    def changes() -> Iterator[None]:
        nonlocal late
        weights[1] = 7.0
        yield
        weights.append(1.0)
        yield
        settings.__class__ = Other
        yield
        late = 6.0
        yield
        _scaled.__defaults__ = (8.0,)
        yield
        _scaled.__kwdefaults__ = {"more": 9.0}
        yield
        _scaled.__code__ = _shifted.__code__
        yield
        globals()["FACTOR"] = 10.0
        yield

    try:
        seen = [compiled(x).tolist(), compiled(x).tolist()]
        for _ in changes():
            seen.append(compiled(x).tolist())
            assert seen[-1] == f(x).tolist() == compiled(x).tolist() != seen[-2]
    finally:
        _scaled.__code__, _scaled.__defaults__, _scaled.__kwdefaults__ = code, defaults, keywords
        globals()["FACTOR"] = factor
    for wrong in ([("nothing", {}, ())], [("values", [], ())], [()], [("names", {}, (1,))], [7]):
        with pytest.raises((TypeError, IndexError)):
            lucid._C._unchanged(wrong)
    assert lucid._C._unchanged([("items", weights, tuple(weights)), ("values", {}, ())])
    assert not lucid._C._unchanged([("items", weights, tuple(weights[1:]))])


def test_true_and_one_and_minus_zero_are_not_alike() -> None:
    compiled = lucid.compile(lambda x, k: x / k if k else x * k)
    x = lucid.ones(2)
    for k in (0.0, -0.0, 1, True, 1.0, 0):
        got, want = compiled(x, k), (x / k if k else x * k)
        same(got, want)
        assert lucid.equal(lucid.signbit(got), lucid.signbit(want))


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (lambda x: x * x.sum().item(), "item"),
        (lambda x: x if x.sum() > 0 else -x, "read"),
        (lambda x: x[x > 0], "shape"),
        (lambda x: (print("hello"), x + 1)[1], "print"),
        (lambda x: x + __import__("time").time() * 0, "__import__"),
        (lambda x: x.view(-1), "view"),
        (lambda x: x.tolist(), "read"),
        (lambda x: lucid.from_numpy(x.numpy()), "memory"),
        (lambda x: (lucid.manual_seed(1), x + 1)[1], "generator"),
        (lambda x: x.detach().requires_grad_().register_hook(print) and x + 1, "hook"),
        (lambda x: lucid.compiler.disable(lambda y: y + 1)(x), "disabled"),
        (lambda x: iter([x + 1]), "type"),
    ],
)
def test_breaks_are_counted_and_explained(
    body: Callable[[lucid.Tensor], Any], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    compiled, x = lucid.compile(body), lucid.tensor([1.0, -2.0, 4.0])
    for _ in range(3):
        got, want = compiled(x), body(x)
        if isinstance(want, lucid.Tensor):
            assert lucid.equal(got, want)
    found = lucid.compiler.statistics(compiled)
    assert found["eager"] == 3
    assert any(reason in text for text in found["reasons"]), found
    assert reason in str(lucid.compiler.explain(compiled))
    assert capsys.readouterr().out.count("hello") in (0, 6)
    with pytest.raises(RuntimeError):
        lucid.compile(body, fullgraph=True)(x)


def test_fullgraph_names_the_line() -> None:
    def f(x: lucid.Tensor) -> float:
        y = x + 1
        return y.sum().item()  # the line

    with pytest.raises(RuntimeError, match="item") as caught:
        lucid.compile(f, fullgraph=True)(lucid.ones(2))
    assert any("# the line" in str(entry.statement) for entry in caught.traceback)


def test_effects_on_python_state_are_kept() -> None:
    seen: list[Any] = []
    count_of = {"n": 0}

    def appends(x: lucid.Tensor) -> lucid.Tensor:
        seen.append(x.shape)
        return x + 1

    def counts(x: lucid.Tensor) -> lucid.Tensor:
        count_of["n"] += 1
        return x + count_of["n"]

    class Keeps(nn.Module):
        def forward(self, x: lucid.Tensor) -> lucid.Tensor:
            self.last = x * 2
            return x + 1

    x, keeps = lucid.ones(2), Keeps()
    a, b, c = lucid.compile(appends), lucid.compile(counts), lucid.compile(keeps)
    for n in range(1, 4):
        a(x)
        assert lucid.equal(b(x), x + n)
        y = x * n
        c(y)
        assert lucid.equal(keeps.last, y * 2)
        assert len(seen) == n
