"""Calls of public callables, as text, whose arguments are right, nearly right or wrong in kind, count, shape, dtype,
device and value.
"""

from __future__ import annotations

import inspect
import random
import zlib
from typing import Any

from .targets import parameters

DTYPES = ["bool", "uint8", "int8", "int16", "int32", "int64"]
DTYPES += ["float16", "bfloat16", "float32", "float64", "complex64", "complex128"]
SHAPES: list[tuple[int, ...]] = [
    (),
    (0,),
    (1,),
    (3,),
    (4,),
    (2, 3),
    (3, 3),
    (3, 2),
    (0, 3),
    (2, 0),
    (2, 3, 4),
    (2, 3, 3),
    (1, 4, 4),
    (2, 3, 8, 8),
    (1, 2, 5, 5),
    (2, 1, 3, 1, 2),
    (1, 2, 4, 4, 4),
    (1, 1, 1, 1, 1, 1, 1, 2),
    (33, 70),
]
INTS = [0, 1, 2, 3, -1, -2, 4, 5, 7, -3, 64, -100, 2**15, 2**31 - 1, 2**31, -(2**31)]
INTS += [2**62, 2**63 - 1, -(2**63), 2**63, 10**30]
FLOATS = ["0.0", "-0.0", "0.5", "1.0", "-1.5", "2.0", "1e-12", "1e308", "inf", "-inf", "nan", "5e-324"]
TEXTS = ["''", "'mean'", "'sum'", "'none'", "'cpu'", "'gpu'", "'zeros'", "'reflect'", "'ij'"]
TEXTS += ["'a\\0b'", "'%s%n'", "'é'", "'ij,jk->ik'"]
ODD = [
    "lucid.sparse_coo_tensor([[0, 1, 1], [2, 0, 2]], [3.0, 4.0, 5.0], (2, 3))",
    "None", "True", "False", "object()", "...", "slice(1, None, 2)", "{}", "{'a': 1}", "set()", "b'ab'", "range(3)",
    "(lambda *a, **k: a[0] if a else None)", "[]", "()", "[[1, 2], [3]]", "[None]", "(1, 'a')", "int", "float",
    "lucid.Tensor", "Ellipsis",
    "1j", "NP((2, 3))", "NP((), 'int64')", "lucid.Generator()", "iter([1, 2])", "[T((2,), 'float32', 'cpu'), 3]",
]  # fmt: skip


def tensor(
    shape: tuple[int, ...],
    dtype: str,
    device: str,
    kind: str = "normal",
    layout: str = "",
    seed: int = 0,
    grad: bool = False,
) -> Any:
    """A tensor for a call, `T` in its text."""
    import lucid
    import numpy as np

    rng = np.random.default_rng(seed)
    if dtype in ("float16", "bfloat16", "float32", "float64", "complex64", "complex128"):
        values = rng.standard_normal(shape)
        if kind == "special" and values.size:
            values.flat[rng.integers(values.size)] = rng.choice([np.inf, -np.inf, np.nan, 1e38, -0.0, 1e-40])
        if kind == "small":
            values = np.abs(values) % 1
    else:
        low, high = {"special": (-(2**31), 2**31 - 1), "small": (0, 2)}.get(kind, (-4, 5))
        values = rng.integers(low, high, shape)
    device = "cpu" if dtype in ("float64", "complex128") else device
    t = lucid.tensor(np.asarray(values)).to(getattr(lucid, dtype)).to(device)
    if layout == "transposed" and t.ndim >= 2:
        t = t.transpose(0, -1)
    elif layout == "sliced" and t.ndim >= 1 and t.shape[0] > 1:
        t = t[1:]
    elif layout == "expanded" and t.ndim >= 1 and t.shape[0] > 0:
        t = t[:1].expand(t.shape)
    if grad and (t.is_floating_point() or t.is_complex()):
        t = t.detach().requires_grad_()
        t = t * 1 if seed % 2 else t
    return t


def array(shape: tuple[int, ...], dtype: str = "float64") -> Any:
    """A NumPy array, `NP` in a call's text."""
    import numpy as np

    return np.ones(shape, dtype)


class Writer:
    """Writes calls from a random generator."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        # Most calls have one shape, dtype and device in common, or nothing would ever get past the first check.
        self.shape = rng.choice(SHAPES)
        self.dtype = rng.choice([*DTYPES, "float32", "float32", "float32", "int64"])
        self.device = rng.choice(["cpu", "gpu"])

    def tensor(self, strange: float = 0.15) -> str:
        rng = self.rng
        shape = self.shape if rng.random() > 2 * strange else rng.choice(SHAPES)
        dtype = self.dtype if rng.random() > strange else rng.choice(DTYPES)
        device = self.device if rng.random() > strange / 4 else rng.choice(["cpu", "gpu"])
        kind = rng.choice(["normal", "normal", "normal", "small", "special"])
        layout = rng.choice(["", "", "", "transposed", "sliced", "expanded"])
        grad = rng.random() < 0.3
        return f"T({shape}, {dtype!r}, {device!r}, {kind!r}, {layout!r}, {rng.randrange(1000)}, {grad})"

    def integer(self) -> str:
        return repr(self.rng.choice(INTS[:10] if self.rng.random() < 0.8 else INTS))

    def integers(self) -> str:
        rng = self.rng
        n = rng.choice([0, 1, 1, 2, 2, 2, 3, 4, 5])
        items = [self.integer() for _ in range(n)]
        return rng.choice(["({},)", "[{}]"]).format(", ".join(items)) if items else rng.choice(["()", "[]"])

    def anything(self) -> str:
        rng = self.rng
        return rng.choice(
            [
                lambda: self.tensor(0.5),
                self.integer,
                lambda: rng.choice(FLOATS),
                self.integers,
                lambda: rng.choice(TEXTS),
                lambda: rng.choice(ODD),
                lambda: f"lucid.{rng.choice(DTYPES)}",
                lambda: f"[{self.tensor()}, {self.tensor()}]",
            ]
        )()

    def of_kind(self, kind: str) -> str:
        """What a parameter kind of the op table asks for."""
        rng = self.rng
        if kind.startswith("Opt"):
            return "None" if rng.random() < 0.3 else self.of_kind(kind[3:])
        return {
            "Tensor": self.tensor,
            "Tensors": lambda: "[" + ", ".join(self.tensor() for _ in range(rng.randrange(4))) + "]",
            "Operand": lambda: (
                self.tensor() if rng.random() < 0.6 else rng.choice([self.integer(), rng.choice(FLOATS)])
            ),
            "Number": lambda: rng.choice([self.integer(), rng.choice(FLOATS), "True", "1j"]),
            "Int": self.integer,
            "Float": lambda: rng.choice(FLOATS),
            "Bool": lambda: rng.choice(["True", "False"]),
            "Dim": lambda: str(rng.randrange(-4, 4)),
            "Dims": self.integers,
            "Sizes": self.integers,
            "Dtype": lambda: f"lucid.{rng.choice(DTYPES)}",
            "Device": lambda: rng.choice(["'cpu'", "'gpu'", "lucid.device('cpu')"]),
            "DeviceArg": lambda: rng.choice(["'cpu'", "'gpu'"]),
            "Generator": lambda: "lucid.Generator()",
            "Text": lambda: rng.choice(TEXTS),
        }.get(kind, self.anything)()

    def named(self, name: str) -> str:
        """What a parameter of this name usually is."""
        for words, kind in NAMES.items():
            if name in words.split():
                return self.of_kind(kind)
        return self.tensor() if self.rng.random() < 0.4 else self.anything()

    def arguments(self, callable_: Any, schema: Any, method: bool) -> str:
        """The text between the parentheses."""
        rng = self.rng
        positional: list[str] = []
        named: list[str] = []
        if schema and rng.random() < 0.95:
            for p in schema["params"][1 if method else 0 :]:
                if p["default"] is not None and rng.random() < 0.5:
                    continue
                value = self.of_kind(p["kind"]) if rng.random() < 0.93 else self.anything()
                if p["keyword_only"] or named or rng.random() < 0.2:
                    named.append(f"{p['name']}={value}")
                else:
                    positional.append(value)
        else:
            for p in parameters(callable_)[1 if method else 0 :]:
                if p.default is not p.empty and rng.random() < 0.6:
                    continue
                if p.kind is p.VAR_POSITIONAL:
                    positional += [self.anything() for _ in range(rng.randrange(3))] if not named else []
                elif p.kind is p.VAR_KEYWORD:
                    continue
                else:
                    value = self.named(p.name) if rng.random() < 0.9 else self.anything()
                    if p.kind is p.KEYWORD_ONLY or named or (p.kind is not p.POSITIONAL_ONLY and rng.random() < 0.2):
                        named.append(f"{p.name}={value}")
                    else:
                        positional.append(value)
        if rng.random() < 0.03:
            positional.append(self.anything())
        if rng.random() < 0.03 and positional:
            positional.pop(rng.randrange(len(positional)))
        if rng.random() < 0.02 and not named:
            named.append(f"{rng.choice(['out', 'dim', 'dtype', 'nothing'])}={self.anything()}")
        return ", ".join([*positional, *named])


NAMES = {
    "input other x y tensor weight target a b self mask index source src value query key data q k v mat vec": "Tensor",
    "bias running_mean running_var attn_mask condition out": "OptTensor",
    "tensors parameters inputs outputs params": "Tensors",
    "dim dim0 dim1 axis start_dim end_dim": "Dim",
    "dims axes": "Dims",
    "size sizes shape kernel_size stride padding dilation output_size normalized_shape repeats shifts": "Sizes",
    "n m num groups num_classes start end step diagonal offset in_features out_features in_channels": "Int",
    "p eps alpha beta momentum lr margin scale gamma lambd negative_slope low high threshold": "Float",
    "keepdim training inplace bias affine batch_first unbiased descending sorted largest": "Bool",
    "dtype": "Dtype",
    "device": "Device",
    "mode reduction equation norm": "Text",
    "generator": "OptGenerator",
}


def call_text(path: str, callable_: Any, rows: dict[str, Any], seed: int) -> str:
    """The call of a case."""
    rng = random.Random(zlib.crc32(f"{path}:{seed}".encode()))
    w = Writer(rng)
    name = path.rsplit(".", 1)[-1]
    if path.startswith("lucid.Tensor."):
        schema = rows.get(name) or rows.get(name.rstrip("_")) if not name.startswith("__") else None
        if isinstance(inspect.getattr_static(owner(path), name, None), staticmethod):
            return f"{path}({w.arguments(callable_, None, False)})"
        return f"{w.tensor()}.{name}({w.arguments(callable_, schema, True)})"
    if isinstance(callable_, type):
        text = f"{path}({w.arguments(callable_, None, False)})"
        import lucid

        if issubclass(callable_, lucid.nn.Module):
            text += f"({w.tensor()})"
        return text
    tables = ("lucid.nn.functional.", "lucid.linalg.", "lucid.special.", "lucid.fft.")
    schema = rows.get(name) if path.startswith(tables) or path.count(".") == 1 else None
    return f"{path}({w.arguments(callable_, schema, False)})"


def owner(path: str) -> Any:
    """What a path's last name is looked up in."""
    import lucid

    found: Any = lucid
    for part in path.split(".")[1:-1]:
        found = getattr(found, part)
    return found
