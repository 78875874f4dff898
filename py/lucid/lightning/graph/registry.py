"""The operators of GraphIR: for each its schema, its shapes, its cost, and what it runs in the engine."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lucid import _C, errors

__all__ = ["OPS", "Op", "graph_registry_schema", "graph_registry_schemas", "graph_registry_size"]

Tensor = _C.Tensor
Shape = tuple[int, ...]
Attrs = Mapping[str, Any]


@dataclass(frozen=True)
class Op:
    """An operator.

    Args:
        name: Its name.
        inputs: The inputs' names; those that end in `?` may be left out.
        outputs: The outputs' names.
        infer: The outputs' shapes from the inputs' and the attributes; raises `ShapeMismatch`.
        run: The outputs from the inputs' tensors and the attributes.
        macs: Multiply-accumulates from the inputs' shapes, the outputs' and the attributes.
        attributes: By name the default, whose type values must have.
        about: What it computes.
    """

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    infer: Callable[[Sequence[Shape], Attrs], list[Shape]]
    run: Callable[[Sequence[Tensor], Attrs], list[Tensor]]
    macs: Callable[[Sequence[Shape], Sequence[Shape], Attrs], int]
    about: str
    attributes: Mapping[str, Any] = field(default_factory=dict)
    version: int = 1

    @property
    def arity(self) -> tuple[int, int]:
        """The fewest and the most inputs."""
        return sum(not n.endswith("?") for n in self.inputs), len(self.inputs)

    def attrs(self, given: Attrs) -> dict[str, Any]:
        """The attributes with defaults; unknown ones and other types are errors."""
        unknown = set(given) - set(self.attributes)
        if unknown:
            known = ", ".join(self.attributes) or "none"
            raise errors.ValueError(f"{self.name}: no attribute {', '.join(sorted(unknown))}; there are {known}")
        out = dict(self.attributes)
        for name, value in given.items():
            default = self.attributes[name]
            if isinstance(default, float) and isinstance(value, int) and not isinstance(value, bool):
                value = float(value)
            if isinstance(default, tuple):
                value = tuple(value) if isinstance(value, (list, tuple)) else value
            if type(value) is not type(default):
                raise errors.TypeError(
                    f"{self.name}: attribute {name} must be of {type(default).__name__}, got {type(value).__name__}"
                )
            if isinstance(value, float) and not math.isfinite(value):
                raise errors.ValueError(f"{self.name}: attribute {name} must be finite, got {value}")
            out[name] = value
        return out

    def schema(self) -> dict[str, Any]:
        """The schema as a dict."""
        return {
            "name": self.name,
            "version": self.version,
            "inputs": [n.rstrip("?") for n in self.inputs],
            "optional_inputs": [n.rstrip("?") for n in self.inputs if n.endswith("?")],
            "outputs": list(self.outputs),
            "attributes": {
                n: {"type": type(d).__name__, "default": list(d) if isinstance(d, tuple) else d}
                for n, d in self.attributes.items()
            },
            "dtypes": ["float32", "float64"],
            "devices": ["cpu", "gpu"],
            "about": self.about,
        }


def _refuse(op: str, wanted: str, shapes: Sequence[Shape]) -> errors.ShapeMismatch:
    return errors.ShapeMismatch(f"{op}: expected {wanted}, got {', '.join(map(str, shapes))}")


def _matmul(s: Sequence[Shape], a: Attrs) -> list[Shape]:
    if len(s[0]) != 2 or len(s[1]) != 2 or s[0][1] != s[1][0]:
        raise _refuse("matmul", "(m, k) and (k, n)", s)
    return [(s[0][0], s[1][1])]


def _same(name: str) -> Callable[[Sequence[Shape], Attrs], list[Shape]]:
    def infer(s: Sequence[Shape], a: Attrs) -> list[Shape]:
        if any(shape != s[0] for shape in s):
            raise _refuse(name, "one shape", s)
        return [s[0]]

    return infer


def _bias_add(s: Sequence[Shape], a: Attrs) -> list[Shape]:
    if not s[0] or s[1] != s[0][-1:]:
        raise _refuse("bias_add", "(…, n) and (n,)", s)
    return [s[0]]


def _matmul_bias_act(s: Sequence[Shape], a: Attrs) -> list[Shape]:
    out = _matmul(s, a)
    if len(s) > 2 and s[2] != (s[1][1],):
        raise _refuse("matmul_bias_act", "(m, k), (k, n) and (n,)", s)
    _activation(a)
    return out


def _activation(a: Attrs) -> None:
    if a["act"] not in ("none", "relu", "gelu"):
        raise errors.ValueError(f"act must be none, relu or gelu, got {a['act']!r}")


def _steps(a: Attrs) -> tuple[int, int, int, int]:
    return a["stride_h"], a["stride_w"], a["pad_h"], a["pad_w"]


def _conv(s: Sequence[Shape], a: Attrs) -> list[Shape]:
    from lucid.lightning._conv import ConvShape

    if "act" in a:
        _activation(a)
    return [ConvShape("conv2d_nchw", s[0], s[1], s[2] if len(s) > 2 else None, _steps(a)).out]


def _attention(s: Sequence[Shape], a: Attrs) -> list[Shape]:
    q, k, v = s
    if not (len(q) == len(k) == len(v) == 2 and q[1] == k[1] and k[0] == v[0]):
        raise _refuse("attention", "(s, d), (t, d) and (t, e)", s)
    return [(q[0], v[1])]


def _arrange(s: Sequence[Shape], a: Attrs) -> list[Shape]:
    if a["seq_len"] < 1 or a["head_dim"] < 1:
        raise errors.ValueError("qkv_arrange: seq_len and head_dim must be from 1 on")
    if math.prod(s[0]) == 0:
        raise _refuse("qkv_arrange", "a tensor that is not empty", s)
    return [(a["seq_len"], a["head_dim"])] * 3


def _transpose(s: Sequence[Shape], a: Attrs) -> list[Shape]:
    if len(s[0]) != 2:
        raise _refuse("transpose", "a matrix", s)
    return [(s[0][1], s[0][0])]


def _reshape(s: Sequence[Shape], a: Attrs) -> list[Shape]:
    if any(not isinstance(n, int) or n < 0 for n in a["shape"]) or math.prod(a["shape"]) != math.prod(s[0]):
        raise _refuse("reshape", f"as many elements as {a['shape']}", s)
    return [tuple(a["shape"])]


def _norm(s: Sequence[Shape], a: Attrs) -> list[Shape]:
    if not s[0] or any(shape != s[0][-1:] for shape in s[1:]):
        raise _refuse("layer_norm", "(…, n), and (n,) for weight and bias", s)
    return [s[0]]


def _softmax(s: Sequence[Shape], a: Attrs) -> list[Shape]:
    if not s[0]:
        raise _refuse("softmax", "at least one dimension", s)
    return [s[0]]


def _act(y: Tensor, name: str) -> Tensor:
    return y if name == "none" else y.relu() if name == "relu" else _C.gelu(y)


def _run_matmul_bias_act(t: Sequence[Tensor], a: Attrs) -> list[Tensor]:
    # The engine's linear takes its weight as (n, k), and fuses bias and activation into the product.
    bias = t[2] if len(t) > 2 else None
    if a["act"] != "none" and bias is not None:
        from lucid.nn import functional

        fused = functional.fused_linear_relu if a["act"] == "relu" else functional.fused_linear_gelu
        return [fused(t[0], t[1].t(), bias)]
    y = _C.matmul(t[0], t[1])
    return [_act(y if bias is None else y + bias, a["act"])]


def _run_conv(t: Sequence[Tensor], a: Attrs) -> list[Tensor]:
    y = _C.conv2d(t[0], t[1], t[2] if len(t) > 2 else None, (a["stride_h"], a["stride_w"]), (a["pad_h"], a["pad_w"]))
    return [_act(y, a.get("act", "none"))]


def _run_arrange(t: Sequence[Tensor], a: Attrs) -> list[Tensor]:
    from lucid.lightning._sessions import arrange

    return arrange(t[0], a["seq_len"], a["head_dim"])


def _elements(s: Sequence[Shape], o: Sequence[Shape], a: Attrs) -> int:
    return math.prod(o[0])


def _no_work(s: Sequence[Shape], o: Sequence[Shape], a: Attrs) -> int:
    return 0


def _product(s: Sequence[Shape], o: Sequence[Shape], a: Attrs) -> int:
    return s[0][0] * s[0][1] * s[1][1]


def _conv_macs(s: Sequence[Shape], o: Sequence[Shape], a: Attrs) -> int:
    return math.prod(o[0]) * math.prod(s[1][1:])


def _attention_macs(s: Sequence[Shape], o: Sequence[Shape], a: Attrs) -> int:
    return s[0][0] * s[1][0] * (s[0][1] + s[2][1])


_CONV = {"stride_h": 1, "stride_w": 1, "pad_h": 0, "pad_w": 0}

_TABLE = (
    Op("matmul", ("a", "b"), ("out",), _matmul, lambda t, a: [_C.matmul(t[0], t[1])], _product, "a b"),
    Op("vector_add", ("a", "b"), ("out",), _same("vector_add"), lambda t, a: [t[0] + t[1]], _elements, "a + b"),
    Op("matrix_sub", ("a", "b"), ("out",), _same("matrix_sub"), lambda t, a: [t[0] - t[1]], _elements, "a - b"),
    Op("matrix_div", ("a", "b"), ("out",), _same("matrix_div"), lambda t, a: [t[0] / t[1]], _elements, "a / b"),
    Op("mul", ("a", "b"), ("out",), _same("mul"), lambda t, a: [t[0] * t[1]], _elements, "a * b"),
    Op("bias_add", ("x", "bias"), ("out",), _bias_add, lambda t, a: [t[0] + t[1]], _elements, "x + bias"),
    Op("relu", ("x",), ("out",), _same("relu"), lambda t, a: [t[0].relu()], _elements, "max(x, 0)"),
    Op("gelu", ("x",), ("out",), _same("gelu"), lambda t, a: [_C.gelu(t[0])], _elements, "x Φ(x)"),
    Op(
        "scale", ("x",), ("out",), _same("scale"), lambda t, a: [t[0] * a["factor"]], _elements, "factor * x",
        {"factor": 1.0},
    ),
    Op(
        "softmax", ("x",), ("out",), _softmax, lambda t, a: [t[0].softmax(-1)], _elements,
        "exp(x) over its sum, along the last dimension",
    ),
    Op("transpose", ("x",), ("out",), _transpose, lambda t, a: [t[0].t()], _no_work, "the transposed matrix"),
    Op(
        "reshape", ("x",), ("out",), _reshape, lambda t, a: [t[0].reshape(a["shape"])], _no_work,
        "the same elements in another shape", {"shape": ()},
    ),
    Op(
        "layer_norm", ("x", "weight?", "bias?"), ("out",), _norm,
        lambda t, a: [
            _C.layer_norm(
                t[0], tuple(t[0].shape[-1:]), t[1] if len(t) > 1 else None, t[2] if len(t) > 2 else None, a["eps"]
            )
        ],
        _elements, "weight (x - mean) / sqrt(var + eps) + bias, along the last dimension", {"eps": 1e-5},
    ),
    Op(
        "attention", ("q", "k", "v"), ("out",), _attention,
        lambda t, a: [_C.scaled_dot_product_attention(t[0], t[1], t[2], is_causal=a["causal"])],
        _attention_macs, "softmax(q kᵀ / sqrt(d)) v", {"causal": False},
    ),
    Op("conv2d_nchw", ("x", "w", "b?"), ("out",), _conv, _run_conv, _conv_macs, "a convolution of images", _CONV),
    Op(
        "qkv_arrange", ("x",), ("q", "k", "v"), _arrange, _run_arrange, _no_work,
        "three matrices of the elements in order, repeated where they are too few", {"seq_len": 1, "head_dim": 1},
    ),
    Op(
        "matmul_bias_act", ("a", "b", "bias?"), ("out",), _matmul_bias_act, _run_matmul_bias_act, _product,
        "act(a b + bias)", {"act": "none"},
    ),
    Op(
        "conv2d_act", ("x", "w", "b?"), ("out",), _conv, _run_conv, _conv_macs, "act of a convolution of images",
        {**_CONV, "act": "relu"},
    ),
)  # fmt: skip

OPS: dict[str, Op] = {op.name: op for op in _TABLE}


def op_named(name: Any) -> Op:
    """An operator by its name.

    Raises:
        ValueError: There is none.
    """
    op = OPS.get(name) if isinstance(name, str) else None
    if op is None:
        raise errors.ValueError(f"GraphIR: no operator {name!r}; there are {', '.join(OPS)}")
    return op


def graph_registry_size() -> int:
    """The number of operators."""
    return len(OPS)


def graph_registry_schemas() -> list[dict[str, Any]]:
    """The schema of each operator."""
    return [op.schema() for op in OPS.values()]


def graph_registry_schema(name: str) -> dict[str, Any]:
    """An operator's schema: inputs, outputs, attributes with types and defaults, dtypes, devices, version.

    Example::

        >>> import lucid.lightning as lc
        >>> lc.graph_registry_schema("attention")["attributes"]
        {'causal': {'type': 'bool', 'default': False}}
    """
    return op_named(name).schema()
