"""The operators of GraphIR: for each its schema, and what it runs in the engine, which infers shapes and costs."""

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
    """An operator of graphs.

    Args:
        name (str): by which nodes name it.
        inputs (tuple of str): the inputs' names; those that end in `?` may be left out.
        outputs (tuple of str): the outputs' names.
        shapes (tuple of str): for each input a pattern of its shape: a letter is one size, the same wherever it stands,
            and `...` any sizes before those.
        run (callable): gives the outputs for the inputs' tensors and the attributes. Their shapes are those that the
            engine gives.
        about (str): what it computes.
        attributes (mapping of str to object, optional): by name the default, whose type values must have. Default:
            none.
        check (callable, optional): refuses attributes, given the inputs' shapes.
        version (int, optional): the version of its schema. Default: 1.

    Example:
        >>> from lucid.lightning.graph.registry import op_named
        >>> op_named("matmul").arity
        (2, 2)
    """

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    shapes: tuple[str, ...]
    run: Callable[[Sequence[Tensor], Attrs], list[Tensor]]
    about: str
    attributes: Mapping[str, Any] = field(default_factory=dict)
    check: Callable[[Sequence[Shape], Attrs], None] | None = None
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

    def fits(self, shapes: Sequence[Shape], attrs: Attrs) -> None:
        """Refuses shapes that do not fit the patterns, and attributes that do not fit the shapes.

        Raises:
            ShapeMismatch: A shape does not fit.
            ValueError: An attribute does not.
        """
        known: dict[str, Any] = {}
        if not all(_bind(pattern, shape, known) for pattern, shape in zip(self.shapes, shapes, strict=False)):
            wanted = ", ".join(f"({', '.join(pattern.split())})" for pattern in self.shapes[: len(shapes)])
            raise errors.ShapeMismatch(f"{self.name}: expected {wanted}, got {', '.join(map(str, shapes))}")
        if self.check is not None:
            self.check(shapes, attrs)

    def schema(self) -> dict[str, Any]:
        """The schema as a dict."""
        return {
            "name": self.name,
            "version": self.version,
            "inputs": [n.rstrip("?") for n in self.inputs],
            "optional_inputs": [n.rstrip("?") for n in self.inputs if n.endswith("?")],
            "outputs": list(self.outputs),
            "shapes": dict(zip((n.rstrip("?") for n in self.inputs), self.shapes, strict=True)),
            "attributes": {
                n: {"type": type(d).__name__, "default": list(d) if isinstance(d, tuple) else d}
                for n, d in self.attributes.items()
            },
            "dtypes": ["float32", "float64"],
            "devices": ["cpu", "gpu"],
            "about": self.about,
        }


def _bind(pattern: str, shape: Shape, known: dict[str, Any]) -> bool:
    """Does a shape fit a pattern, given the sizes that letters and `...` stand for already?"""
    letters = pattern.split()
    rest = len(shape) - len(letters)
    if letters and letters[0] == "...":
        letters, rest = letters[1:], rest + 1
        if rest < 0 or known.setdefault("...", shape[:rest]) != shape[:rest]:
            return False
        shape = shape[rest:]
    elif rest:
        return False
    return all(known.setdefault(letter, n) == n for letter, n in zip(letters, shape, strict=True))


def _activation(s: Sequence[Shape], a: Attrs) -> None:
    if a["act"] not in ("none", "relu", "gelu"):
        raise errors.ValueError(f"act must be none, relu or gelu, got {a['act']!r}")


def _arrangement(s: Sequence[Shape], a: Attrs) -> None:
    if a["seq_len"] < 1 or a["head_dim"] < 1:
        raise errors.ValueError("qkv_arrange: seq_len and head_dim must be from 1 on")
    if math.prod(s[0]) == 0:
        raise errors.ShapeMismatch(f"qkv_arrange: expected a tensor that is not empty, got {s[0]}")


def _sizes(s: Sequence[Shape], a: Attrs) -> None:
    if any(not isinstance(n, int) or n < 0 for n in a["shape"]):
        raise errors.ValueError(f"reshape: shape must be ints from 0 on, got {a['shape']}")


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


_CONV = {"stride_h": 1, "stride_w": 1, "pad_h": 0, "pad_w": 0}

_IMAGES = ("n c h w", "o c i j", "o")

_TABLE = (
    Op("matmul", ("a", "b"), ("out",), ("m k", "k n"), lambda t, a: [_C.matmul(t[0], t[1])], "a b"),
    Op("vector_add", ("a", "b"), ("out",), ("...", "..."), lambda t, a: [t[0] + t[1]], "a + b"),
    Op("matrix_sub", ("a", "b"), ("out",), ("...", "..."), lambda t, a: [t[0] - t[1]], "a - b"),
    Op("matrix_div", ("a", "b"), ("out",), ("...", "..."), lambda t, a: [t[0] / t[1]], "a / b"),
    Op("mul", ("a", "b"), ("out",), ("...", "..."), lambda t, a: [t[0] * t[1]], "a * b"),
    Op("bias_add", ("x", "bias"), ("out",), ("... n", "n"), lambda t, a: [t[0] + t[1]], "x + bias"),
    Op("relu", ("x",), ("out",), ("...",), lambda t, a: [t[0].relu()], "max(x, 0)"),
    Op("gelu", ("x",), ("out",), ("...",), lambda t, a: [_C.gelu(t[0])], "x Φ(x)"),
    Op("scale", ("x",), ("out",), ("...",), lambda t, a: [t[0] * a["factor"]], "factor * x", {"factor": 1.0}),
    Op(
        "softmax", ("x",), ("out",), ("... n",), lambda t, a: [t[0].softmax(-1)],
        "exp(x) over its sum, along the last dimension",
    ),
    Op("transpose", ("x",), ("out",), ("m n",), lambda t, a: [t[0].t()], "the transposed matrix"),
    Op(
        "reshape", ("x",), ("out",), ("...",), lambda t, a: [t[0].reshape(a["shape"])],
        "the same elements in another shape", {"shape": ()}, _sizes,
    ),
    Op(
        "layer_norm", ("x", "weight?", "bias?"), ("out",), ("... n", "n", "n"),
        lambda t, a: [
            _C.layer_norm(
                t[0], tuple(t[0].shape[-1:]), t[1] if len(t) > 1 else None, t[2] if len(t) > 2 else None, a["eps"]
            )
        ],
        "weight (x - mean) / sqrt(var + eps) + bias, along the last dimension", {"eps": 1e-5},
    ),
    Op(
        "attention", ("q", "k", "v"), ("out",), ("s d", "t d", "t e"),
        lambda t, a: [_C.scaled_dot_product_attention(t[0], t[1], t[2], is_causal=a["causal"])],
        "softmax(q kᵀ / sqrt(d)) v", {"causal": False},
    ),
    Op("conv2d_nchw", ("x", "w", "b?"), ("out",), _IMAGES, _run_conv, "a convolution of images", _CONV),
    Op(
        "qkv_arrange", ("x",), ("q", "k", "v"), ("...",), _run_arrange,
        "three matrices of the elements in order, repeated where they are too few",
        {"seq_len": 1, "head_dim": 1}, _arrangement,
    ),
    Op(
        "matmul_bias_act", ("a", "b", "bias?"), ("out",), ("m k", "k n", "n"), _run_matmul_bias_act,
        "act(a b + bias)", {"act": "none"}, _activation,
    ),
    Op(
        "conv2d_act", ("x", "w", "b?"), ("out",), _IMAGES, _run_conv, "act of a convolution of images",
        {**_CONV, "act": "relu"}, _activation,
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
    """Gives an operator's schema: inputs, outputs, attributes with types and defaults, dtypes, devices, version.

    Args:
        name (str): the operator's name, such as `"attention"`.

    Returns:
        dict: the schema, of JSON's types.

    Raises:
        ValueError: there is no such operator.

    Example:
        >>> import lucid.lightning as lc
        >>> lc.graph_registry_schema("attention")["attributes"]
        {'causal': {'type': 'bool', 'default': False}}
    """
    return op_named(name).schema()
