"""The smallest set of primitives: each op of the table both ways, and why the others have one way."""

from __future__ import annotations

from typing import Any

import lucid
import pytest
from lucid import _C

from tests.python.samples import lucid_function, results, rows, samples
from tests.python.tolerances import within

SMALLEST = {
    *("log2", "exp2", "sin", "sqrt", "reciprocal", "add", "mul", "remainder", "lt", "sum", "amax"),
    # Movement, casts and constants.
    *("copy", "clone", "contiguous", "cast", "to", "to_dtype", "full", "arange", "assign", "draw", "eval"),
    *("reshape", "permute", "expand", "slice", "narrow", "as_strided", "view_as_real", "view_as_complex", "view_dtype"),
}

#: How close results are where a closed form loses digits: an ulp of the logarithm is many of a power.
WIDE = {"pow", "float_power", "prod"}


def both_ways(row: dict[str, Any], args: Any, kwargs: Any) -> list[tuple[str, str]] | None:
    """Compares the graph with its decomposition; what stays, with the reasons. `None` where there is no graph."""
    f = lucid_function(row)
    tensors = [a for v in [*args, *kwargs.values()] for a in (v if isinstance(v, (list, tuple)) else [v])]
    tensors = [t for t in tensors if isinstance(t, lucid.Tensor)]
    distinct = [t for i, t in enumerate(tensors) if all(t is not u for u in tensors[:i])]
    recorder = _C._GraphRecorder(distinct, False)
    try:
        with lucid.no_grad():
            outs = [o for o in results(f(*args, **kwargs)) if isinstance(o, lucid.Tensor)]
        values = [recorder.value_of(o) for o in outs]
        broken = recorder.broken()
        graph, captures, more = recorder.finish()
    finally:
        recorder.abort()
    if broken or more or None in values or not values or graph.written():
        return None
    graph.set_outputs([v for v in values if v is not None])
    plain, small = graph, graph.copy()
    left = small.decompose()
    names = {step["op"] for step in small.steps()}
    assert names - {name for name, _ in left} <= SMALLEST, names
    given = [*distinct, *[t for _, t in captures]]
    if any(not o.numel() for o in outs):
        return left
    want = plain.program([]).call(given, [v for v in values if v is not None])
    got = small.program([]).call(given, [v for v in values if v is not None])
    for g, w in zip(got, want, strict=True):
        assert g.shape == w.shape and g.dtype == w.dtype and g.stride() == w.stride()
        if bool(w.isfinite().all()) if w.is_floating_point() else True:
            lucid.testing.assert_close(g, w, **within("logarithms" if row["name"] in WIDE else "near zero"))
    return left


#: Families whose ops all decompose for float32, by the names of their rows.
CLOSED = """neg abs sign exp expm1 log log10 log1p rsqrt square floor ceil trunc rint cos tan sinh cosh tanh asinh
    sigmoid relu silu sub div maximum minimum logaddexp hypot eq ne le gt ge amin prod argmax argmin any all cumsum
    logcumsumexp where gather cat flip softmax log_softmax matmul linear embedding layer_norm conv1d conv2d max_pool2d
    avg_pool2d argsort topk mean var std softplus logsumexp mse_loss stack roll""".split()  # noqa: SIM905


@pytest.mark.parametrize("row", rows(), ids=lambda row: row["name"])
def test_each_op_both_ways(row: dict[str, Any]) -> None:
    whole = tried = 0
    for sample in samples(row, "cpu"):
        try:
            args, kwargs = sample.map(lambda data: lucid.tensor(data.values))
            results(lucid_function(row)(*args, **kwargs))
        except (RuntimeError, TypeError, NotImplementedError):
            continue
        left = both_ways(row, args, kwargs)
        if left is None:
            continue
        assert all(reason for _, reason in left)
        tried += 1
        whole += not left
    if row["name"] in CLOSED:
        assert whole, f"{row['name']}: {tried} calls, none of them decomposes"
