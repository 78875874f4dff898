"""Graphs of programs against PyTorch's: traced, run, transformed, pickled."""

from __future__ import annotations

import copy
import math
import operator
import pickle
import re
from typing import Any

import lucid
import lucid.fx.experimental.proxy_tensor
import lucid.fx.experimental.symbolic_shapes
import lucid.fx.passes.shape_prop
import numpy as np
import pytest
import torch
import torch.fx.passes.shape_prop

from tests.python.tolerances import within

BOTH = [torch, lucid]
DEVICES = ["cpu", "gpu"]


def nets(f: Any) -> dict[str, Any]:
    """Modules with shapes of an input."""
    nn, F = f.nn, f.nn.functional

    class Block(nn.Module):
        def __init__(self, n: int) -> None:
            super().__init__()
            self.conv, self.norm = nn.Conv2d(n, n, 3, padding=1), nn.BatchNorm2d(n)
            self.scale = nn.Parameter(f.full((n, 1, 1), 0.5))
            self.register_buffer("shift", f.ones(n, 1, 1))

        def forward(self, x: Any) -> Any:
            return x + self.scale * F.relu(self.norm(self.conv(x))) - self.shift

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.MaxPool2d(2))
            self.blocks = nn.ModuleList([Block(4) for _ in range(2)])
            self.head = nn.Linear(4, 5)

        def forward(self, x: Any, scale: float = 1.0) -> Any:
            x = self.stem(x)
            for block in self.blocks:
                x = block(x)
            x = x.mean((2, 3)).flatten(1)
            return {"logits": self.head(x) * scale, "all": [x, (x[:, 1:], x.shape[0])]}

    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.qkv, self.out = nn.Linear(8, 24), nn.Linear(8, 8)

        def forward(self, x: Any) -> Any:
            b, n, c = x.shape
            q, k, v = self.qkv(x).reshape(b, n, 3, 2, c // 2).permute(2, 0, 3, 1, 4).unbind(0)
            x = F.scaled_dot_product_attention(q, k, v)
            return self.out(x.transpose(1, 2).reshape(b, n, c))

    return {"net": (Net, (2, 3, 8, 8)), "attention": (Attention, (2, 3, 8))}


def pair(name: str, device: str = "cpu") -> list[tuple[Any, Any]]:
    """The same module on both sides, and its input."""
    made = []
    array = None
    state = None
    for f in BOTH:
        make, shape = nets(f)[name]
        model = make().eval()
        if state is None:
            state = {k: v.numpy() for k, v in model.state_dict().items()}
            array = np.random.default_rng(5).standard_normal(shape).astype(np.float32)
        else:
            model.load_state_dict({k: f.tensor(v) for k, v in state.items()})
            model = model.to(device)
        made.append((model, f.tensor(array).to(device if f is lucid else "cpu")))
    return made


def leaves(f: Any, value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [x for v in value.values() for x in leaves(f, v)]
    if isinstance(value, (list, tuple)):
        return [x for v in value for x in leaves(f, v)]
    return [value.detach().cpu().numpy() if isinstance(value, f.Tensor) else value]


def ops(graph: Any) -> list[tuple[str, str, str]]:
    """What nodes do, by names that both frameworks have."""

    def target(t: Any) -> str:
        return t if isinstance(t, str) else getattr(t, "__name__", str(t))

    return [(n.op, target(n.target), str([str(a) for a in n.all_input_nodes])) for n in graph.nodes]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", ["net", "attention"])
def test_graphs_and_results(name: str, device: str) -> None:
    graphs, results = [], []
    for f, (model, x) in zip(BOTH, pair(name, device), strict=True):
        gm = f.fx.symbolic_trace(model)
        gm.graph.lint()
        graphs.append(ops(gm.graph))
        results.append(leaves(f, gm(x)))
        for a, b in zip(results[-1], leaves(f, model(x)), strict=True):
            np.testing.assert_array_equal(a, b)
        again = f.fx.Interpreter(gm).run(x)
        for a, b in zip(results[-1], leaves(f, again), strict=True):
            np.testing.assert_array_equal(a, b)
        assert list(gm.state_dict()) == list(model.state_dict())
        moved = f.fx.Transformer(gm).transform()
        for a, b in zip(results[-1], leaves(f, moved(x)), strict=True):
            np.testing.assert_array_equal(a, b)
    assert graphs[0] == graphs[1]
    for a, b in zip(*results, strict=True):
        np.testing.assert_allclose(b, a, **within("program"))


@pytest.mark.parametrize("device", DEVICES)
def test_gradients_go_to_the_same_parameters(device: str) -> None:
    model, x = pair("net", device)[1]
    gm = lucid.fx.symbolic_trace(model)
    gm(x)["logits"].sum().backward()
    assert all(p.grad is not None for p in model.parameters())
    assert gm.head.weight is model.head.weight


def program(f: Any, x: Any, y: Any = 2) -> Any:
    a = f.relu(x) + y
    a += 1
    b = f.cat([a, x.neg()], dim=0)
    c = b[0], b[..., None].sum(-1)
    d = getattr(f.nn.functional, "gelu")(-a / 2 @ a.T)  # noqa: B009
    return f.stack([2 - d, 3 * d, d**2, 2**d]), c, a.dtype, (a > 0) & (a < 9), a[1:, 0:1]


def given(f: Any) -> Any:
    """The program with its framework, which is no argument of what is traced."""
    return lambda x, y=2: program(f, x, y)


def relu_and(f: Any) -> Any:
    return lambda x: f.relu(x) + 1


def test_functions() -> None:
    seen = []
    for f in BOTH:
        gm = f.fx.symbolic_trace(given(f))
        x = f.tensor([[1.0, -2.0], [3.0, 0.5]])
        got, want = gm(x), program(f, x)
        for a, b in zip(leaves(f, got), leaves(f, want), strict=True):
            assert np.array_equal(a, b) if isinstance(a, np.ndarray) else a == b
        assert gm(x, 5)[4].tolist() == program(f, x, 5)[4].tolist()
        seen.append(ops(gm.graph))
        fixed = f.fx.symbolic_trace(given(f), concrete_args={"y": 7})
        assert fixed(x, 7)[4].tolist() == program(f, x, 7)[4].tolist()
        with pytest.raises(AssertionError, match="specialized"):
            fixed(x, 8)
    assert seen[0] == seen[1]


def constant(f: Any) -> Any:
    held = f.tensor([1.0, 2.0])

    def add(x: Any) -> Any:
        return x + held

    return add


def packed(x: Any, *rest: Any, **named: Any) -> Any:
    return x + rest[0] * named["scale"]


def test_constants_and_packed_arguments() -> None:
    for f in BOTH:
        gm = f.fx.symbolic_trace(constant(f))
        assert gm(f.ones(2)).tolist() == [2, 3]
        assert [n.target for n in gm.graph.nodes if n.op == "get_attr"] == ["_tensor_constant0"]
        gm = f.fx.symbolic_trace(packed)
        assert gm(f.ones(1), f.ones(1), scale=3).tolist() == [4]
        assert [n.target for n in gm.graph.nodes if n.op == "placeholder"] == ["x", "*rest", "**named"]


CONTROL = {
    "if": lambda x: x if x.sum() > 0 else -x,
    "for": lambda x: sum(v for v in x),
    "int": lambda x: range(x),
    "in": lambda x: 3 in x,
}


@pytest.mark.parametrize("name", CONTROL)
def test_flow_that_depends_on_values(name: str) -> None:
    kinds = []
    for f in BOTH:
        with pytest.raises(Exception) as e:
            f.fx.symbolic_trace(CONTROL[name])
        kinds.append(next(k for k in (ValueError, RuntimeError, TypeError) if issubclass(e.type, k)))
    assert kinds[0] is kinds[1]


@lucid.fx.wrap
def wrapped(x: Any) -> Any:
    return x + 1 if x.sum() > 0 else x


torch.fx.wrap("wrapped")
lucid.fx.wrap("len")
torch.fx.wrap("len")


def root_of(x: Any) -> Any:
    return math.sqrt(x)


def test_wrapped_functions() -> None:
    for f in BOTH:
        gm = f.fx.symbolic_trace(lambda x: wrapped(x) * len(x))
        assert [n.name for n in gm.graph.nodes] == ["x", "wrapped", "len_1", "mul", "output"]
        assert gm(f.ones(2)).tolist() == [4, 4]
        gm = f.fx.symbolic_trace(root_of)
        assert gm(9.0) == 3.0
        with pytest.raises((NotImplementedError, RuntimeError)):
            f.fx.wrap(3)
    assert wrapped(lucid.zeros(1)).item() == 0
    assert math.sqrt(4.0) == 2.0

    def inner() -> None:
        lucid.fx.wrap("inner")

    with pytest.raises(NotImplementedError, match="top level"):
        inner()


def test_editing() -> None:
    for f in BOTH:
        gm = f.fx.symbolic_trace(relu_and(f))
        for node in gm.graph.nodes:
            if node.target is f.relu:
                with gm.graph.inserting_after(node):
                    new = gm.graph.call_function(f.neg, (node.args[0],))
                node.replace_all_uses_with(new)
                gm.graph.erase_node(node)
        gm.graph.lint()
        gm.recompile()
        assert gm(f.ones(1)).item() == 0
        first = next(iter(gm.graph.nodes))
        with pytest.raises(RuntimeError, match="still had"):
            gm.graph.erase_node(first)
        with gm.graph.inserting_before(gm.graph.output_node()):
            gm.graph.call_function(f.neg, (first,))
        assert gm.graph.eliminate_dead_code()
        assert not gm.graph.eliminate_dead_code()
        if f is lucid:
            with pytest.raises(RuntimeError, match="another graph"):
                f.fx.Graph().call_function(f.neg, (first,))
        assert first < gm.graph.output_node()
        new.update_arg(0, 3.0)
        assert not first.users
        first.prepend(new)
        assert next(iter(gm.graph.nodes)) is new


def test_lint_and_missing_attributes() -> None:
    for f in BOTH:
        graph = f.fx.Graph()
        x = graph.placeholder("x")
        graph.output(graph.call_module("there.it.goes", (x,)))
        with pytest.raises((RuntimeError, AttributeError)):
            f.fx.GraphModule(f.nn.Module(), graph)
        with pytest.raises(RuntimeError, match="not provided"):
            f.fx.GraphModule({}, graph)
        gm = f.fx.GraphModule({"there.it.goes": f.nn.ReLU()}, graph)
        assert gm(f.tensor([-1.0])).item() == 0
        assert gm.delete_submodule("there.it.goes")
        assert not gm.delete_submodule("there.it.goes")
        assert gm.add_submodule("a.b", f.nn.ReLU())
        gm.delete_all_unused_submodules()
        assert not hasattr(gm, "a") or not hasattr(gm.a, "b")


@pytest.mark.parametrize("name", ["net", "attention"])
def test_code(name: str) -> None:
    """Code and graphs read as PyTorch's, with Lucid's name in the place of its."""
    theirs, ours = (f.fx.symbolic_trace(pair(name)[i][0]) for i, f in enumerate((torch, lucid)))
    # PyTorch writes annotations, too.
    code = theirs.code.replace("torch._C._nn.", "lucid.nn.functional.").replace("torch.", "lucid.")
    plain = re.sub(r" : _\w+_| -> _\w+_", "", code)
    wanted = [line.rstrip() for line in plain.splitlines()]
    assert [line for line in wanted if line] == [line for line in ours.code.splitlines() if line]
    wanted_graph = str(theirs.graph).replace("torch._C._nn.", "lucid.nn.functional.").replace("torch.", "lucid.")
    assert re.sub(r" : '\w+'", " :", wanted_graph) == str(ours.graph)
    assert ours.code.splitlines()[0] in ours.print_readable(print_output=False)
    ours.graph.print_tabular()


def test_expressions_of_code() -> None:
    def program(x: Any, y: Any) -> Any:
        z = (-x) ** 2 - (-3) ** y + x @ y / 2 % 5
        return lucid.where((z >= 1) & ~(z != y), z[..., None, :2].squeeze(1), lucid.linalg.det(z) * z[:, :2]) // 1

    x, y = lucid.tensor([[1.0, 2.0], [3.0, 4.0]]), lucid.tensor([[2.0, 1.0], [1.0, 2.0]])
    gm = lucid.fx.symbolic_trace(program)
    for part in ("neg ** 2", "(-3) ** y", "x @ y", "lucid.linalg.det(", "lucid.where(", " & ", "~"):
        assert part in gm.code, gm.code
    assert lucid.equal(gm(x, y), program(x, y))
    traced = lucid.fx.experimental.proxy_tensor.make_fx(lambda t: t.sin() * 2)(x)
    assert "lucid.ops.aten.sin.default(" in traced.code and lucid.equal(traced(x), x.sin() * 2)


@pytest.mark.parametrize("how", ["pickle", "deepcopy", "copy"])
@pytest.mark.parametrize("device", DEVICES)
def test_copies(how: str, device: str) -> None:
    model, x = pair("net", device)[1]
    gm = lucid.fx.symbolic_trace(model)
    made = {"pickle": lambda g: pickle.loads(pickle.dumps(g)), "deepcopy": copy.deepcopy, "copy": copy.copy}[how](gm)
    assert type(made).__name__ == type(gm).__name__ == "Net"
    assert made.code == gm.code
    for a, b in zip(leaves(lucid, gm(x)), leaves(lucid, made(x)), strict=True):
        np.testing.assert_array_equal(a, b)
    assert (made.head.weight is gm.head.weight) == (how == "copy")
    node = next(n for n in made.graph.nodes if n.target is operator.sub)
    node.target = operator.add
    made.recompile()
    assert made.code != gm.code
    assert not lucid.equal(made(x)["logits"], gm(x)["logits"])


def two_sums(f: Any) -> Any:
    def net(x: Any, w: Any) -> Any:
        a = f.relu(x) + w
        b = f.relu(a) + w
        return b * f.relu(x)

    return net


def operator_add(x: Any, w: Any) -> Any:
    return x + w


def subtraction(f: Any) -> Any:
    return lambda x, w: f.sub(x, w)


def sigmoid(f: Any) -> Any:
    return lambda x: f.sigmoid(x)


def test_patterns() -> None:
    for f in BOTH:
        gm = f.fx.symbolic_trace(two_sums(f))
        found = f.fx.replace_pattern(gm, operator_add, subtraction(f))
        assert len(found) == 2
        x, w = f.tensor([3.0]), f.tensor([1.0])
        assert gm(x, w).item() == 3.0
        assert not f.fx.replace_pattern(gm, sigmoid(f), lambda x: x)


def test_tracers_may_be_changed() -> None:
    for f, (model, x) in zip(BOTH, pair("net"), strict=True):
        block = type(model.blocks[0])

        class Tracer(f.fx.Tracer):
            def is_leaf_module(self, m: Any, name: str, block: Any = block) -> bool:
                return isinstance(m, block) or super().is_leaf_module(m, name)

            def create_proxy(self, kind: str, target: Any, args: Any, kwargs: Any, *rest: Any, **more: Any) -> Any:
                proxy = super().create_proxy(kind, target, args, kwargs, *rest, **more)
                proxy.node.meta["seen"] = True
                return proxy

        tracer = Tracer(autowrap_functions=(wrapped,))
        graph = tracer.trace(model)
        assert [n.target for n in graph.nodes if n.op == "call_module"][3:5] == ["blocks.0", "blocks.1"]
        assert all(n.meta.get("seen") for n in graph.nodes if n.op == "call_module")
        gm = f.fx.GraphModule(tracer.root, graph)
        np.testing.assert_array_equal(gm(x)["logits"].detach().numpy(), model(x)["logits"].detach().numpy())


def test_tracing_leaves_nothing_behind() -> None:
    call, read = lucid.nn.Module.__call__, lucid.nn.Module.__getattr__
    for model in (pair("net")[1][0], lambda x: 1 if x else 2):
        try:
            lucid.fx.symbolic_trace(model)
        except ValueError as e:
            assert "control flow" in str(e)
        assert lucid.nn.Module.__call__ is call
        assert lucid.nn.Module.__getattr__ is read


def test_shapes() -> None:
    found = []
    for f, (model, x) in zip(BOTH, pair("net"), strict=True):
        gm = f.fx.symbolic_trace(model)
        f.fx.passes.shape_prop.ShapeProp(gm).propagate(x)
        metas = [n.meta.get("tensor_meta") for n in gm.graph.nodes]
        found.append([tuple(m.shape) for m in metas if hasattr(m, "shape")])
    assert found[0] == found[1]
    assert len(found[0]) > 10


def test_symbols_are_numbers() -> None:
    for f in BOTH:
        shapes = f.fx.experimental.symbolic_shapes
        assert shapes.guard_or_false(3 > 2)
        assert not shapes.guard_or_true(3 < 2)
        assert shapes.statically_known_true(True)
    assert lucid.fx.experimental.symbolic_shapes.free_symbols(3) == set()


@pytest.mark.parametrize("device", DEVICES)
def test_features_are_extracted(device: str) -> None:
    # As torchvision does: nodes by the modules that make them, an output of several, the rest removed.
    model, x = pair("net", device)[1]

    class Named(lucid.fx.Tracer):
        def __init__(self) -> None:
            super().__init__()
            self.at, self.names = "", {}

        def call_module(self, m: Any, forward: Any, args: Any, kwargs: Any) -> Any:
            before = self.at
            self.at = self.path_of_module(m)
            try:
                return super().call_module(m, forward, args, kwargs)
            finally:
                self.at = before

        def create_proxy(self, kind: str, target: Any, args: Any, kwargs: Any, *rest: Any, **more: Any) -> Any:
            proxy = super().create_proxy(kind, target, args, kwargs, *rest, **more)
            self.names[proxy.node] = self.at
            return proxy

    tracer = Named()
    graph = tracer.trace(model)
    gm = lucid.fx.GraphModule(tracer.root, graph, "Features")
    wanted = {}
    for ours, theirs in zip(gm.graph.nodes, graph.nodes, strict=True):
        for name in ("stem.2", "blocks.0", "blocks.1"):
            if tracer.names.get(theirs, "") == name:
                wanted[name] = ours
    gm.graph.erase_node(gm.graph.output_node())
    with gm.graph.inserting_after(list(gm.graph.nodes)[-1]):
        gm.graph.output(wanted)
    gm.graph.eliminate_dead_code()
    gm.recompile()
    gm.delete_all_unused_submodules()
    found = gm(x)
    stem = model.stem(x)
    assert lucid.equal(found["stem.2"], stem)
    assert lucid.equal(found["blocks.1"], model.blocks[1](model.blocks[0](stem)))
    assert not hasattr(gm, "head")


def _foldable(f: Any) -> Any:
    layers = f.nn

    class Net(layers.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.body = layers.Sequential(
                layers.Conv2d(2, 3, 3), layers.BatchNorm2d(3), layers.ReLU(), layers.Dropout(0.5)
            )
            self.shared, self.norm = layers.Conv2d(3, 3, 1), layers.BatchNorm2d(3)
            self.plain = layers.BatchNorm2d(3, track_running_stats=False)
            self.head, self.last = layers.Linear(3, 4), layers.BatchNorm1d(4)

        def forward(self, x: Any) -> Any:
            x = self.body(x)
            y = self.shared(x)
            x = self.plain(self.norm(y) + y)
            return self.last(self.head(x.mean((2, 3))))

    return Net()


def test_models_for_inference() -> None:
    import lucid.fx.experimental.optimization as ours
    import torch.fx.experimental.optimization as theirs

    reference, model = _foldable(torch), _foldable(lucid)
    rng = np.random.default_rng(0)
    state = {k: rng.uniform(0.5, 1.5, tuple(v.shape)).astype(np.float32) for k, v in model.state_dict().items()}
    for module, f in ((model, lucid), (reference, torch)):
        module.load_state_dict({k: f.tensor(v) if v.ndim else f.tensor(3) for k, v in state.items()})
        module.eval()
    x = rng.standard_normal((2, 2, 5, 5)).astype(np.float32)
    want = reference(torch.tensor(x)).detach().numpy()

    def calls(graph: Any) -> list[str]:
        return [str(n.target) for n in graph.nodes if n.op == "call_module"]

    fused = ours.fuse(model)
    assert calls(fused.graph) == calls(theirs.fuse(reference).graph)
    best = ours.optimize_for_inference(model)
    assert calls(best.graph) == [c for c in calls(fused.graph) if c != "body.3"]
    for made in (model, fused, best, ours.optimize_for_inference(model, {"conv_bn_fuse": False})):
        np.testing.assert_allclose(made(lucid.tensor(x)).detach().numpy(), want, **within("program"))
    # The model itself is as it was.
    assert "body.1" in dict(model.named_modules()) and calls(lucid.fx.symbolic_trace(model).graph)[1] == "body.1"
    with pytest.raises(ValueError, match="GraphModule"):
        ours.fuse(model, no_trace=True)
    with pytest.raises(AssertionError, match="eval"):
        ours.fuse(model.train())
    with pytest.raises(RuntimeError, match="no pass 'other'"):
        ours.optimize_for_inference(model.eval(), {"other": True})
    nodes = list(lucid.fx.symbolic_trace(model).graph.nodes)
    with pytest.raises(RuntimeError, match="neither an input"):
        ours.extract_subgraph(model, nodes[2:3], nodes[:1], nodes[2:3])


def test_checks_and_lists_of_operands_are_recorded() -> None:
    def told(f: Any) -> list[Any]:
        def program(x: Any, y: Any) -> Any:
            f._assert(x.shape[0] == 2, "two rows")
            return f.einsum("ij,jk->ik", [x, y]) + f.functional.einsum("ij,jk->ik", x, y)

        traced = f.fx.symbolic_trace(program)
        nodes = [(n.op, getattr(n.target, "__name__", n.target), len(n.args)) for n in traced.graph.nodes]
        results = [traced(f.ones(2, 3), f.ones(3, 2)).tolist()]
        with pytest.raises(AssertionError, match="two rows"):
            traced(f.ones(1, 3), f.ones(3, 2))
        return [nodes, results]

    assert told(lucid) == told(torch)
