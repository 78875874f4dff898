"""GraphIR: every operator against the op itself, validation, plans, fusion, execution, bad input."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import lucid
import lucid.lightning as lc
import numpy as np
import pytest
import torch
from lucid import errors

from tests.python.tolerances import within

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(2)


def rand(*shape: int) -> Array:
    return RNG.random(shape) - 0.5


def t(x: Array) -> torch.Tensor:
    return torch.from_numpy(np.asarray(x))


def sdpa(q: Array, k: Array, v: Array, causal: bool = False) -> Array:
    return torch.nn.functional.scaled_dot_product_attention(t(q)[None], t(k)[None], t(v)[None], is_causal=causal)[
        0
    ].numpy()


def conv(x: Array, w: Array, b: Array | None = None, *, relu: bool = False, stride: Any = 1, padding: Any = 0) -> Array:
    y = torch.nn.functional.conv2d(t(x), t(w), None if b is None else t(b), stride, padding)
    return (y.relu() if relu else y).numpy()


X, W, C = rand(2, 3, 6, 5), rand(4, 3, 3, 2), rand(4)
CONV_ATTRS = {"stride_h": 2, "stride_w": 1, "pad_h": 1, "pad_w": 0}

# An operator, its inputs, its attributes, its outputs.
CASES: list[tuple[str, list[Array], dict[str, Any], Callable[..., Any]]] = [
    ("matmul", [rand(4, 3), rand(3, 5)], {}, lambda a, b: a @ b),
    ("vector_add", [rand(4), rand(4)], {}, lambda a, b: a + b),
    ("matrix_sub", [rand(4, 3), rand(4, 3)], {}, lambda a, b: a - b),
    ("matrix_div", [rand(4, 3), rand(4, 3) + 2], {}, lambda a, b: a / b),
    ("mul", [rand(4, 3), rand(4, 3)], {}, lambda a, b: a * b),
    ("bias_add", [rand(4, 3), rand(3)], {}, lambda a, b: a + b),
    ("relu", [rand(4, 3)], {}, lambda a: np.maximum(a, 0)),
    ("gelu", [rand(4, 3)], {}, lambda a: torch.nn.functional.gelu(t(a)).numpy()),
    ("scale", [rand(4, 3)], {"factor": -2}, lambda a: -2 * a),
    ("softmax", [rand(4, 3)], {}, lambda a: t(a).softmax(-1).numpy()),
    ("transpose", [rand(4, 3)], {}, lambda a: a.T),
    ("reshape", [rand(4, 3)], {"shape": [2, 6]}, lambda a: a.reshape(2, 6)),
    ("layer_norm", [rand(4, 3)], {}, lambda a: torch.nn.functional.layer_norm(t(a), (3,)).numpy()),
    (
        "layer_norm",
        [rand(4, 3), rand(3), rand(3)],
        {"eps": 0.5},
        lambda a, w, b: torch.nn.functional.layer_norm(t(a), (3,), t(w), t(b), 0.5).numpy(),
    ),
    ("attention", [rand(4, 3), rand(5, 3), rand(5, 2)], {}, sdpa),
    ("attention", [rand(4, 3), rand(4, 3), rand(4, 2)], {"causal": True}, lambda q, k, v: sdpa(q, k, v, True)),
    ("conv2d_nchw", [X, W], {}, conv),
    ("conv2d_nchw", [X, W, C], CONV_ATTRS, lambda x, w, b: conv(x, w, b, stride=(2, 1), padding=(1, 0))),
    ("conv2d_act", [X, W, C], {}, lambda x, w, b: conv(x, w, b, relu=True)),
    ("matmul_bias_act", [rand(4, 3), rand(3, 5)], {}, lambda a, b: a @ b),
    ("matmul_bias_act", [rand(4, 3), rand(3, 5), rand(5)], {"act": "relu"}, lambda a, b, c: np.maximum(a @ b + c, 0)),
    (
        "matmul_bias_act",
        [rand(4, 3), rand(3, 5), rand(5)],
        {"act": "gelu"},
        lambda a, b, c: torch.nn.functional.gelu(t(a @ b + c)).numpy(),
    ),
    (
        "qkv_arrange",
        [rand(2, 7)],
        {"seq_len": 2, "head_dim": 3},
        lambda a: list(np.tile(a.ravel(), 2)[:18].reshape(3, 2, 3)),
    ),
]


def build(
    op: str, inputs: list[Array], attrs: dict[str, Any], want: Any, dtype: str
) -> tuple[Any, list[int], list[int]]:
    g = lc.GraphIR()
    results = want if isinstance(want, list) else [want]
    ins = [g.add_tensor(x.shape, dtype) for x in inputs]
    outs = [g.add_tensor(y.shape, dtype) for y in results]
    g.add_node(op, ins, outs, attrs)
    return g, ins, outs


@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c[0]} {c[2]}")
def test_operators(case: Any) -> None:
    op, inputs, attrs, function = case
    want = function(*inputs)
    g, ins, outs = build(op, inputs, attrs, want, "float64")
    results = want if isinstance(want, list) else [want]
    for number, y in g.execute_f64(dict(zip(ins, inputs, strict=True))).items():
        assert y.dtype == np.float64
        np.testing.assert_allclose(y, results[outs.index(number)], **within("float64"))
    g, ins, outs = build(op, inputs, attrs, want, "float32")
    for device in ("cpu", "metal"):
        feeds = {n: x.astype(np.float32) for n, x in zip(ins, inputs, strict=True)}
        for number, y in g.execute_f32(feeds, device).items():
            np.testing.assert_allclose(y, results[outs.index(number)], **within("program"))


def test_every_operator_has_a_case_and_a_schema() -> None:
    assert {c[0] for c in CASES} == {s["name"] for s in lc.graph_registry_schemas()}
    assert lc.graph_registry_size() == len(lc.graph_registry_schemas())
    for schema in lc.graph_registry_schemas():
        assert lc.graph_registry_schema(schema["name"]) == schema and schema["version"] == 1 and schema["about"]
    with pytest.raises(errors.ValueError, match="sort"):
        lc.graph_registry_schema("sort")


def mlp(dtype: str = "float32") -> tuple[Any, dict[str, Array]]:
    """relu(x w1 + b1) w2 → attention by hand, with constants."""
    w1, b1, w2 = (rand(*s).astype(dtype) for s in ((6, 8), (8,), (8, 4)))
    g = lc.GraphIR()
    g.add_tensor((5, 6), dtype, "x")
    for name, value in (("w1", w1), ("b1", b1), ("w2", w2)):
        g.add_tensor(value.shape, dtype, name, value)
    for name, shape in (
        ("p", (5, 8)), ("q", (5, 8)), ("r", (5, 8)), ("h", (5, 4)), ("ht", (4, 5)), ("s", (5, 5)), ("c", (5, 5)),
        ("m", (5, 5)), ("out", (5, 4)),
    ):  # fmt: skip
        g.add_tensor(shape, dtype, name)
    # Not in order: nodes find theirs.
    g.add_node("matmul", ["m", "h"], ["out"])
    g.add_node("softmax", ["c"], ["m"])
    g.add_node("matmul", ["x", "w1"], ["p"])
    g.add_node("bias_add", ["p", "b1"], ["q"])
    g.add_node("relu", ["q"], ["r"])
    g.add_node("matmul", ["r", "w2"], ["h"])
    g.add_node("transpose", ["h"], ["ht"])
    g.add_node("matmul", ["h", "ht"], ["s"])
    g.add_node("scale", ["s"], ["c"], {"factor": 1 / math.sqrt(4)})
    return g, {"w1": w1, "b1": b1, "w2": w2}


def test_plans() -> None:
    g, _ = mlp()
    assert g.validate() and g.validate_report()["ok"]
    assert [p["pass"] for p in g.validate_report()["passes"]] == lc.graph_validation_passes()
    assert g.inputs() == [0] and [g.tensors()[n]["name"] for n in g.outputs()] == ["out"]
    assert (g.num_tensors(), g.num_nodes()) == (13, 9) == (len(g.tensors()), len(g.nodes()))
    plan = g.plan("cpu")
    known = {0, 1, 2, 3}
    for step in plan:
        assert set(step["inputs"]) <= known
        known |= set(step["outputs"])
    freed = [n for step in plan for n in step["frees"]]
    assert len(freed) == len(set(freed)) and 12 not in freed
    summary = g.plan_summary("cpu")
    assert summary["steps"] == 9 and summary["groups"] == 1 and summary["ops"]["matmul"] == 4
    assert summary["macs"] >= 5 * 6 * 8 + 5 * 8 * 4 + 2 * 5 * 4 * 5
    assert 0 < summary["peak_bytes"] < summary["bytes"]
    assert g.plan_groups("cpu")[-1]["sync_after"] is True

    other = "cuda" if lucid.device("gpu").type != "cuda" else "metal"
    mixed = lc.GraphIR()
    ids = [mixed.add_tensor((2, 2)) for _ in range(4)]
    for i, device in enumerate(("cpu", other, "cpu")):
        mixed.add_node("relu", [ids[i]], [ids[i + 1]], device=device)
    groups = mixed.plan_groups()
    assert [g["device"] for g in groups] == ["cpu", lucid.device("gpu").type, "cpu"]
    assert [g["transfers"] for g in groups] == [[], [1], [2]] and [g["fallback"] for g in groups] == [
        False,
        True,
        False,
    ]
    assert len(mixed.plan_groups(sync_boundaries=False)) == 3
    assert mixed.plan_summary()["fallbacks"] == 1
    x = rand(2, 2).astype(np.float32)
    np.testing.assert_array_equal(mixed.execute_f32({0: x}, "cpu")[3], np.maximum(x, 0))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_fusion_keeps_values(dtype: str) -> None:
    g, _ = mlp(dtype)
    fused, report = g.fuse("cpu")
    x = rand(5, 6).astype(dtype)
    run = "execute_f32" if dtype == "float32" else "execute_f64"
    (want,), (got,) = (getattr(graph, run)({"x": x}, "cpu").values() for graph in (g, fused))
    np.testing.assert_allclose(got, want, **within("program" if dtype == "float32" else "float64 rounding"))
    assert fused.num_tensors() == g.num_tensors(), "numbers stay"
    assert report.fused == len(report.decisions) >= 1
    assert "matmul+bias+act" in report.explain() and "saves 1 launch and" in report.explain()
    # h is read by three nodes: the rule of attention needs q and k to be any tensors, but no inner one to be shared.
    ops = [n["op"] for n in fused.nodes()]
    assert "matmul_bias_act" in ops and "attention" in ops and len(ops) == 3
    kept, report = g.fuse("cpu", least_saved_us=1e6)
    assert kept.num_nodes() == g.num_nodes() and report.fused == 0 and "less than" in report.explain()
    g.mark_output("p")
    marked, _ = g.fuse("cpu")
    assert {"p", "out"} == {marked.tensors()[n]["name"] for n in marked.outputs()}
    assert set(lc.graph_fusion_rules()) == {"attention", "matmul+bias+act", "conv+act"}


def test_attention_of_another_scale_is_not_fused() -> None:
    g = lc.GraphIR()
    for name, shape in (("q", (3, 4)), ("k", (5, 4)), ("v", (5, 2)), ("kt", (4, 5)), ("s", (3, 5)), ("c", (3, 5))):
        g.add_tensor(shape, name=name)
    g.add_tensor((3, 5), name="m"), g.add_tensor((3, 2), name="out")
    g.add_node("transpose", ["k"], ["kt"])
    g.add_node("matmul", ["q", "kt"], ["s"])
    g.add_node("scale", ["s"], ["c"], {"factor": 0.3})
    g.add_node("softmax", ["c"], ["m"])
    g.add_node("matmul", ["m", "v"], ["out"])
    assert "attention" not in [n["op"] for n in g.fuse("cpu")[0].nodes()]


def broken(how: str) -> Any:
    g = lc.GraphIR()
    a, b, c, d = (g.add_tensor((2, 2)) for _ in range(4))
    if how == "schema":
        g.add_node("matmul", [a], [b])
    elif how == "outputs":
        g.add_node("relu", [a], [b, c])
    elif how == "single_assignment":
        g.add_node("relu", [a], [b])
        g.add_node("gelu", [a], [b])
    elif how == "constant":
        k = g.add_tensor((2, 2), value=[[1.0, 2.0], [3.0, 4.0]])
        g.add_node("relu", [a], [k])
    elif how == "acyclic":
        g.add_node("relu", [a], [b])
        g.add_node("matmul", [b, d], [c])
        g.add_node("relu", [c], [d])
    elif how == "itself":
        g.add_node("relu", [a], [a])
    elif how == "shape":
        g.add_node("relu", [a], [g.add_tensor((3,))])
    elif how == "inputs":
        g.add_node("matmul", [a, g.add_tensor((3,))], [b])
    elif how == "dtype":
        g.add_node("relu", [a], [g.add_tensor((2, 2), "float64")])
    elif how == "usage":
        g.add_node("relu", [a], [b])
    return g


@pytest.mark.parametrize(
    "how",
    ["schema", "outputs", "single_assignment", "constant", "acyclic", "itself", "shape", "inputs", "dtype", "usage"],
)
def test_graphs_that_are_not_valid(how: str) -> None:
    g = broken(how)
    report = g.validate_report()
    assert not report["ok"] and report["issues"]
    for call in (g.validate, g.plan, g.fuse, lambda: g.execute_f32({0: [[1.0, 2.0], [3.0, 4.0]]})):
        with pytest.raises(errors.ValueError, match=r"validate\(\)"):
            call()


FEED = np.ones((5, 6), np.float32)


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda g: g.add_tensor("ab"), errors.TypeError),
        (lambda g: g.add_tensor((1.5,)), errors.TypeError),
        (lambda g: g.add_tensor((-1,)), errors.ValueError),
        (lambda g: g.add_tensor((1 << 40, 1 << 40)), errors.ValueError),
        (lambda g: g.add_tensor((2,), "int32"), errors.DtypeMismatch),
        (lambda g: g.add_tensor((2,), name="x"), errors.ValueError),
        (lambda g: g.add_tensor((2,), value=[1.0]), errors.ShapeMismatch),
        (lambda g: g.add_tensor((2,), value=np.ones(2)), errors.DtypeMismatch),
        (lambda g: g.add_node("sort", ["x"], ["p"]), errors.ValueError),
        (lambda g: g.add_node("relu", [99], ["p"]), errors.ValueError),
        (lambda g: g.add_node("relu", ["nobody"], ["p"]), errors.ValueError),
        (lambda g: g.add_node("relu", ["x"], ["p"], {"slope": 1}), errors.ValueError),
        (lambda g: g.add_node("scale", ["x"], ["p"], {"factor": "two"}), errors.TypeError),
        (lambda g: g.add_node("scale", ["x"], ["p"], {"factor": float("nan")}), errors.ValueError),
        (lambda g: g.add_node("relu", ["x"], ["p"], device="tpu"), errors.ValueError),
        (lambda g: g.execute_f32({}), errors.ValueError),
        (lambda g: g.execute_f32({"x": FEED, "w1": FEED}), errors.ValueError),
        (lambda g: g.execute_f32({"x": FEED[:, :2]}), errors.ShapeMismatch),
        (lambda g: g.execute_f32({"x": FEED.astype(np.float64)}), errors.DtypeMismatch),
        (lambda g: g.execute_f64({"x": FEED}), errors.DtypeMismatch),
        (lambda g: g.execute_f32({"x": "abc"}), errors.TypeError),
        (lambda g: g.execute_f32([FEED]), errors.TypeError),
        (lambda g: g.execute_f32({"x": FEED}, outputs=["nobody"]), errors.ValueError),
        (lambda g: g.fuse(least_saved_us=float("nan")), errors.ValueError),
        (lambda g: g.plan("tpu"), errors.ValueError),
    ],
)
def test_what_is_refused(call: Callable[[Any], Any], error: type[Exception]) -> None:
    g, _ = mlp()
    with pytest.raises(error) as raised:
        call(g)
    assert isinstance(raised.value, errors.LucidError)
    assert g.validate(), "nothing was added"


def test_another_executor_takes_the_engines_place() -> None:
    class Counting(lc.graph.EagerExecutor):
        steps = 0

        def run(self, steps: Any, feeds: Any, wanted: Any) -> Any:
            self.steps += len(steps)
            return super().run(steps, feeds, wanted)

    counting = Counting()
    g = lc.GraphIR(counting)
    a, b = g.add_tensor((2,)), g.add_tensor((2,))
    g.add_node("relu", [a], [b])
    assert g.execute_f32({a: [-1.0, 1.0]}, "cpu")[b].tolist() == [0.0, 1.0] and counting.steps == 1


@pytest.mark.parametrize("device", ["cpu", "metal"])
def test_programs_give_what_the_first_execution_gives(device: str) -> None:
    g, weights = mlp()
    assert g.plan_groups(device)[0]["kernels"] is None, "nothing was executed there"
    for _ in range(3):
        x = rand(5, 6).astype(np.float32)
        h = np.maximum(x @ weights["w1"] + weights["b1"], 0) @ weights["w2"]
        want = t(h @ h.T / 2).softmax(-1).numpy() @ h
        np.testing.assert_allclose(g.execute_f32({"x": x}, device)[12], want, **within("program"))
    np.testing.assert_allclose(g.execute_f32({"x": x}, device, ["h", "out"])[7], h, **within("program"))
    kernels = g.plan_groups(device)[0]["kernels"]
    assert kernels == ([[3, 4]] if device == "cpu" else []), "bias and relu are one kernel of the CPU"
    g.add_node("relu", ["out"], [g.add_tensor((5, 4))])
    np.testing.assert_allclose(g.execute_f32({"x": x}, device)[13], np.maximum(want, 0), **within("program"))


def test_the_engine_says_what_steps_cost() -> None:
    g = lc.GraphIR()
    a, b, c, d = g.add_tensor((4, 3)), g.add_tensor((3, 5)), g.add_tensor((4, 5)), g.add_tensor((5, 4))
    g.add_node("matmul", [a, b], [c])
    g.add_node("transpose", [c], [d])
    product, view = g.plan("cpu")
    assert product["engine"] == ["matmul"] and (product["launches"], product["flops"], product["macs"]) == (1, 120, 60)
    assert product["bytes"] == 4 * (12 + 15 + 20)
    assert view["engine"] == ["permute"] and (view["launches"], view["bytes"], view["flops"]) == (0, 0, 0)
    summary = g.plan_summary("cpu")
    assert summary["peak_bytes"] == 4 * (12 + 15 + 20), "a view holds nothing of its own"
    assert summary["engine_steps"] == 2 and set(summary["passes"]) >= {"dead code", "common subexpressions"}


def test_results_are_the_callers() -> None:
    g = lc.GraphIR()
    x, k = g.add_tensor((2, 2)), g.add_tensor((2, 2), value=[[1.0, 2.0], [3.0, 4.0]])
    y, z = g.add_tensor((4,)), g.add_tensor((4,))
    g.add_node("reshape", [x], [y], {"shape": (4,)})
    g.add_node("reshape", [k], [z], {"shape": (4,)})
    feed = np.ones((2, 2), np.float32)
    for _ in range(2):
        out = g.execute_f32({x: feed}, "cpu", [x, y, z])
        for array in out.values():
            array[...] = 7
        assert (feed == 1).all() and out[z].tolist() == [7.0] * 4
        assert g.execute_f32({x: feed}, "cpu")[z].tolist() == [1.0, 2.0, 3.0, 4.0]


def test_within_autocast_and_compile() -> None:
    g, _ = mlp()
    x = rand(5, 6).astype(np.float32)
    want = g.execute_f32({"x": x}, "cpu")[12]
    fresh = lc.GraphIR()
    a, b, c = fresh.add_tensor((5, 6)), fresh.add_tensor((6, 5)), fresh.add_tensor((5, 5))
    fresh.add_node("transpose", [a], [b])
    fresh.add_node("matmul", [a, b], [c])
    with lucid.autocast("cpu"):
        np.testing.assert_array_equal(g.execute_f32({"x": x}, "cpu")[12], want)
        np.testing.assert_allclose(fresh.execute_f32({a: x}, "cpu")[c], x @ x.T, **within("few ops"))

    def checked(y: Any) -> Any:
        other = lc.GraphIR()
        i, o = other.add_tensor((2, 2)), other.add_tensor((2, 2))
        other.add_node("relu", [i], [o])
        assert other.validate() and other.plan_summary("cpu")["launches"] == 1
        return y * 2

    assert lucid.compile(checked)(lucid.ones(2)).tolist() == [2.0, 2.0]


def test_a_long_chain() -> None:
    g = lc.GraphIR()
    first = last = g.add_tensor((2,))
    for _ in range(3000):
        following = g.add_tensor((2,))
        g.add_node("scale", [last], [following], {"factor": 1.0})
        last = following
    assert g.execute_f32({first: [1.0, 2.0]}, "cpu")[last].tolist() == [1.0, 2.0]
