"""Tensor arguments as hostile as safe code can make them, each as the text that makes it."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tests.python.fuzz.calls import DTYPES

#: What the GPU device does not have.
DOUBLE = ("float64", "complex128")
#: Sizes at which 32-bit, 33-bit and 64-bit counts end.
EDGES = [2**31 - 1, 2**31, 2**31 + 1, 2**32 - 1, 2**32, 2**32 + 1, 2**33, 2**40, 2**62, 2**63 - 1]
NUMBERS = [*EDGES, -1, 0, -(2**31), -(2**31) - 1, -(2**62), -(2**63), 65, 1000, 2**20]
REALS = ["float('nan')", "float('inf')", "-float('inf')", "1e308", "-0.0", "5e-324", "0.0", "1e-45"]


@dataclass(frozen=True)
class Operand:
    """A tensor argument that a call is known to take."""

    values: np.ndarray
    dtype: str
    #: May its dtype and its values be others?
    varies: bool = True

    @staticmethod
    def of(values: Any, varies: bool = True) -> Operand:
        array = np.asarray(values)
        kind = {"f": "float32", "c": "complex64", "b": "bool"}.get(array.dtype.kind, "int64")
        return Operand(array, str(array.dtype) if array.dtype == np.int32 else kind, varies)

    def cast(self, dtype: str) -> Operand:
        return replace(self, dtype=dtype) if self.varies else self

    def wide(self) -> np.ndarray:
        """Its values as Python's own kinds of numbers can be had of them."""
        if self.dtype == "bool":
            return self.values.astype(bool)
        if self.dtype.startswith("complex"):
            return self.values.astype(np.complex128)
        if "float" in self.dtype:
            return self.values.real.astype(np.float64)
        low = 0 if self.dtype == "uint8" else -128
        values = np.nan_to_num(self.values.real, nan=0, posinf=100, neginf=low)
        narrow = self.dtype in ("uint8", "int8")
        return np.clip(values, low, 127).astype(int) if narrow else values.astype(int)

    def list(self) -> str:
        """The values as a nested list, or as an expression that is shorter."""
        values = self.wide()
        if values.dtype.kind in "fc":
            values = np.round(values, 3)
        return repr(values.tolist()).replace("inf", "float('inf')").replace("nan", "float('nan')")

    def shaped(self, made: str) -> str:
        """A list of no elements does not say all of the shape."""
        lost = not self.values.size and self.values.ndim > 1
        return f"{made}.reshape{tuple(self.values.shape)}" if lost else made

    def text(self, device: str) -> str:
        """The tensor."""
        tail = f", dtype=lucid.{self.dtype}" + (f", device={device!r}" if device != "cpu" else "")
        if self.values.size <= 64:
            made = f"lucid.tensor({self.list()}{tail})"
            return self.shaped(made)
        n, shape = self.values.size, tuple(self.values.shape)
        if self.dtype == "bool":
            return f"(lucid.arange({n}, device={device!r}) % 3 == 0).reshape{shape}"
        top = int(np.abs(np.nan_to_num(self.values.real)).max()) + 1
        return f"(lucid.arange({n}, device={device!r}) % {max(top, 2)}).to(lucid.{self.dtype}).reshape{shape}"

    def array(self) -> str:
        """The NumPy array."""
        dtype = {"bfloat16": "float32"}.get(self.dtype, self.dtype)
        if self.values.size <= 64:
            made = f"np.array({self.list()}, {dtype!r})"
            return self.shaped(made)
        top = int(np.abs(np.nan_to_num(self.values.real)).max()) + 1
        return f"(np.arange({self.values.size}) % {max(top, 2)}).astype({dtype!r}).reshape{tuple(self.values.shape)}"

    def one(self, device: str) -> str:
        """A tensor of one element."""
        value = "True" if self.dtype == "bool" else "1"
        return f"lucid.tensor([{value}], dtype=lucid.{self.dtype}, device={device!r})"


def giant(x: Operand, device: str, rng: random.Random) -> str:
    """Far more elements than memory, all of them the same one."""
    shape = list(x.values.shape) or [1]
    shape[rng.randrange(len(shape))] = rng.choice(EDGES)
    if rng.random() < 0.2:
        shape = [2**20 if s > 2**32 else s for s in shape] + [2**20, 2**20]
    return f"{x.one(device)}.expand({', '.join(map(str, shape))})"


def edge(x: Operand, device: str, rng: random.Random) -> str:
    """A size near the end of what counts can hold, beside a size of zero or with strides of zero."""
    size = rng.choice(EDGES)
    tail = f"dtype=lucid.{x.dtype}, device={device!r}"
    shape = [rng.choice([size, 0, s]) for s in x.values.shape] or [size]
    kind = rng.randrange(4)
    if kind == 0:
        shape[rng.randrange(len(shape))] = 0
        return f"lucid.empty({tuple(shape)}, {tail})"
    if kind == 1:
        strides = tuple(rng.choice([0, 0, size]) if s == 1 else 0 for s in shape)
        return f"{x.one(device)}.as_strided({tuple(shape)}, {strides})"
    if kind == 2:
        return f"lucid.zeros({tuple(shape)}, {tail})"
    return f"lucid.empty(0, {tail}).expand(0).reshape(0, 1).expand(0, {size})"


def empty(x: Operand, device: str, rng: random.Random) -> str:
    shape = list(x.values.shape) or [0]
    if rng.random() < 0.3:
        shape = [0] * len(shape)
    shape[rng.randrange(len(shape))] = 0
    return f"lucid.empty({tuple(shape)}, dtype=lucid.{x.dtype}, device={device!r})"


def scalar(x: Operand, device: str, rng: random.Random) -> str:
    value = x.wide().reshape(-1)[:1].tolist() or [0]
    return replace(x, values=np.asarray(value[0])).text(device)


def many_dims(x: Operand, device: str, rng: random.Random) -> str:
    n = rng.choice([63, 64, 64, 64, 65, 200])
    if rng.random() < 0.5:
        return f"{x.one(device)}.reshape((1,) * {n})"
    return f"{x.text(device)}.reshape({tuple(x.values.shape)} + (1,) * {max(n - x.values.ndim, 0)})"


def special(x: Operand, device: str, rng: random.Random) -> str:
    """NaN, infinities and the ends of the dtype among the values."""
    if not x.values.size:
        return x.text(device)
    if "float" in x.dtype or "complex" in x.dtype:
        values = x.values.astype(np.complex128 if "complex" in x.dtype else np.float64).copy()
        ends: list[Any] = [np.nan, np.inf, -np.inf, 3e38, -0.0, 1e-45, 65504.0, 0.0]
    elif x.dtype == "bool":
        return x.text(device)
    else:
        info = np.iinfo(x.dtype)
        end = rng.choice([info.min, info.max, info.max // 2 + 1, -1 if info.min else 255, 2**31 & info.max])
        return f"lucid.full({tuple(x.values.shape)}, {end}, dtype=lucid.{x.dtype}, device={device!r})"
    for _ in range(rng.choice([1, values.size])):
        values.flat[rng.randrange(values.size)] = rng.choice(ends)
    text = replace(x, values=values).text(device)
    return text if values.size <= 64 else f"lucid.full({tuple(values.shape)}, float('nan'), device={device!r})"


def host(make: str) -> Any:
    def text(x: Operand, device: str, rng: random.Random) -> str:
        made = f"{make}({x.array()})"
        made += ".bfloat16()" if x.dtype == "bfloat16" else ""
        return made + (f".to({device!r})" if device != "cpu" else "")

    return text


def resized(x: Operand, device: str, rng: random.Random) -> str:
    """A storage that became larger or smaller than what its tensor says."""
    n = x.values.size
    return f"resized({x.text(device)}, {rng.choice([0, 0, 1, max(n - 1, 0), n + 1, 4 * n])})"


def shared(x: Operand, device: str, rng: random.Random) -> str:
    return f"{x.text('cpu')}.share_memory_()" + (f".to({device!r})" if device != "cpu" else "")


def mutated(x: Operand, device: str, rng: random.Random) -> str:
    return f"mutated({x.text(device)})"


def overlapping(x: Operand, device: str, rng: random.Random) -> str:
    """A view of fewer elements than it shows."""
    shape = tuple(x.values.shape)
    strides = tuple(rng.choice([0, 1, 1, 2, 3]) for _ in shape)
    span = sum(max(s - 1, 0) * t for s, t in zip(shape, strides, strict=True)) + 1 if x.values.size else 0
    flat = replace(x, values=np.resize(x.values.reshape(-1), span))
    return f"{flat.text(device)}.as_strided({shape}, {strides})"


def permuted(x: Operand, device: str, rng: random.Random) -> str:
    """A view whose dimensions are in another order in memory, with gaps."""
    order = list(range(x.values.ndim))
    rng.shuffle(order)
    back = tuple(int(i) for i in np.argsort(order))
    values = np.transpose(x.values, order) if order else x.values
    if not order:
        return x.text(device)
    spread = np.repeat(values, 2, -1) if rng.random() < 0.5 else values
    step = "" if spread is values else "[..., ::2]"
    return (
        f"{replace(x, values=spread).text(device)}{step}.permute{back}"
        if len(back) > 1
        else (f"{replace(x, values=spread).text(device)}{step}")
    )


def plain(x: Operand, device: str, rng: random.Random) -> str:
    return x.text(device)


#: What an argument may be.
MAKERS = {
    "giant": giant,
    "edge": edge,
    "empty": empty,
    "scalar": scalar,
    "64 dimensions": many_dims,
    "special": special,
    "read-only": host("read_only"),
    "read-only page": host("read_only_page"),
    "misaligned": host("misaligned"),
    "resized": resized,
    "shared": shared,
    "mutated": mutated,
    "overlapping": overlapping,
    "permuted": permuted,
}
#: Conditions whose work may rightly take as long as the sizes that they name.
LONG = ("giant", "edge", "numbers")


def dtype_for(rng: random.Random, device: str) -> str:
    return rng.choice([d for d in DTYPES if device == "cpu" or d not in DOUBLE])
