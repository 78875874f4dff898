"""The op table's samples, made into arguments for any framework.

A sample is an argument list in Python's syntax over the makers below, such as ``N(3, 4), dim=1``. Makers draw from a
generator seeded by op and sample, so that every framework, device and layout sees the same numbers.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import lucid
import numpy as np

LAYOUTS = ("contiguous", "transposed", "sliced", "expanded")

#: Decompositions that are unique up to signs of their columns: what they give is compared without signs.
UP_TO_SIGN = ("linalg_eigh", "linalg_svd", "svd")
#: Rows that no sample can test, by why; parity tests of their own compare what does not depend on it.
BY_HAND = {
    "linalg_eig": "in any order and phase",
    "linalg_eigvals": "in any order",
    "svd_lowrank": "random",
    "pca_lowrank": "random",
    "ctc_loss": "of logarithms of probabilities, with the derivative of no function",
}
#: Of matrices of equal rows, as expanded ones are, these give what is not defined: bases of a null space, gradients at
#: equal singular values, what is left of a matrix that could not be factored, what rounding leaves of a singular one.
NOT_OF_EQUAL_ROWS = {
    *UP_TO_SIGN,
    *(f"linalg_{name}" for name in ("cholesky_ex", "cond", "eigvalsh", "inv_ex", "lstsq", "lu", "matrix_norm")),
    *(f"linalg_{name}" for name in ("matrix_rank", "norm", "pinv", "qr", "slogdet", "solve_ex", "svdvals")),
    *(
        "geqrf",
        "linalg_solve",
        "lu",
        "linalg_lu_factor",
        "linalg_lu_factor_ex",
        "linalg_tensorinv",
        "linalg_tensorsolve",
        "nuclear_norm",
        "pinverse",
        "slogdet",
    ),
    # Points that are equal have no derivative between them.
    "gradient",
    # Nor do segments of equal lengths, or from equal offsets on, cover what they are of.
    "segment_reduce",
}


def layouts(row: dict[str, Any]) -> tuple[str, ...]:
    """The layouts that a row is tested on."""
    return LAYOUTS[:-1] if row["name"] in NOT_OF_EQUAL_ROWS else LAYOUTS


#: Rows whose in-place forms take nothing but what has the result's dtype already.
SAME_IN_PLACE = ("float_power",)


def fits_in_place(row: dict[str, Any], result: Any, x: Any) -> bool:
    """Can the row's in-place form write this result over `x`?"""
    if row["name"] in SAME_IN_PLACE and result.dtype != x.dtype:
        return False
    return bool(result.shape == x.shape and lucid.can_cast(result.dtype, x.dtype))


@dataclass(frozen=True)
class Data:
    """Numbers for a tensor argument."""

    values: np.ndarray
    #: Does it take part in varying the dtype?
    varies: bool = True
    #: And in gradients?
    gradient: bool = True
    #: Is it a symmetric matrix, of which half is read? Then it is varied as a whole.
    symmetric: bool = False
    #: Are they places to write at, none of them twice? Which of several values stays is not promised on GPUs.
    distinct: bool = False


@dataclass(frozen=True)
class Sample:
    """One call of an op."""

    text: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def tensors(self) -> list[Data]:
        """Its tensor arguments, in order."""
        found: list[Data] = []
        self.map(lambda d: found.append(d))
        return found

    def fits(self, device: str) -> bool:
        """Does the device have the dtypes that are asked for? That the GPU device says so is tested apart."""
        asked = [v.name for v in (*self.args, *self.kwargs.values()) if isinstance(v, DType)]
        return device != "gpu" or not set(asked) & set(DOUBLE)

    def of_complex(self, dtype: str) -> Sample:
        """The call with imaginary parts beside its real numbers."""
        rng = np.random.default_rng(2)

        def turned(d: Data) -> Data:
            turn = rng.standard_normal(d.values.shape)
            # Symmetric matrices become Hermitian ones, by little enough to stay definite.
            turn = 0.1 * (turn - np.swapaxes(turn, -1, -2)) if d.symmetric else turn
            values = (d.values + 1j * turn).astype(dtype)
            return Data(values, gradient=d.gradient, symmetric=d.symmetric) if d.varies else d

        args, kwargs = self.map(turned)
        return Sample(f"complex {self.text}", tuple(args), kwargs)

    def map(self, f: Callable[[Data], Any]) -> tuple[list[Any], dict[str, Any]]:
        """Its arguments with ``f`` applied to the data of each tensor."""

        def convert(x: Any) -> Any:
            if isinstance(x, Data):
                return f(x)
            if isinstance(x, list):
                return [convert(y) for y in x]
            return x

        return [convert(a) for a in self.args], {k: convert(v) for k, v in self.kwargs.items()}


def makers(rng: np.random.Generator, integers: bool) -> dict[str, Any]:
    """What a sample's text may call. With ``integers``, what would vary in floating dtypes is small whole numbers."""

    def real(values: np.ndarray, low: int = -4) -> Data:
        if integers:
            whole = rng.integers(low, 5, values.shape)
            return Data(np.where(whole == 0, 1, whole) if low > 0 else whole)
        return Data(values)

    def normal(*shape: int) -> Data:
        # Away from kinks and ties, where numerical derivatives and rounding decide.
        values = rng.standard_normal(shape)
        return real(np.asarray(values + 0.05 * np.sign(values)))

    def positive(*shape: int, lo: float = 0.5, hi: float = 2.0) -> Data:
        return real(np.asarray(rng.uniform(lo, hi, shape)), low=1)

    def unit(*shape: int) -> Data:
        return real(np.asarray(rng.uniform(-0.9, 0.9, shape)))

    def whole(lo: int, hi: int, *shape: int) -> Data:
        return Data(np.asarray(rng.integers(lo, hi, shape)), varies=False)

    def truth(*shape: int) -> Data:
        return Data(np.asarray(rng.integers(0, 2, shape)).astype(bool), varies=False)

    def permutations(rows: int, cols: int) -> Data:
        return Data(np.stack([rng.permutation(cols) for _ in range(rows)]), varies=False)

    def order(n: int) -> Data:
        return Data(rng.permutation(n), varies=False, distinct=True)

    def ascending(*shape: int) -> Data:
        return Data(np.sort(positive(*shape).values, -1), gradient=False)

    def lengths(total: int, *shape: int) -> Data:
        # Of neighbouring segments that cover so many elements.
        each = [np.diff(offsets(total, shape[-1] + 1).values) for _ in range(int(np.prod(shape[:-1])))]
        return Data(np.stack(each).reshape(shape), varies=False)

    def offsets(total: int, n: int) -> Data:
        inner = 1 + np.sort(rng.permutation(total - 1)[: n - 2])
        return Data(np.concatenate([[0], inner, [total]]).astype(np.int64), varies=False)

    def regular(*shape: int) -> Data:
        # A square matrix, or a tensor of as many elements as one, that is far from being singular.
        n = shape[-1] if shape[-1:] == shape[-2:-1] and len(shape) < 4 else int(np.sqrt(np.prod(shape)))
        n = n if np.prod(shape) % (n * n) == 0 else shape[-1]
        return Data((rng.standard_normal(shape).reshape(-1, n, n) / 2 + 2 * np.eye(n)).reshape(shape))

    def symmetric(*shape: int) -> Data:
        values = rng.standard_normal(shape)
        return Data(values + np.swapaxes(values, -1, -2), symmetric=True)

    def definite(*shape: int) -> Data:
        values = rng.standard_normal(shape)
        return Data(values @ np.swapaxes(values, -1, -2) + np.eye(shape[-1]), symmetric=True)

    def pivots(*shape: int) -> Data:
        n = shape[-1]
        return Data(rng.integers(np.arange(1, n + 1), n + 1, shape).astype(np.int32), varies=False)

    def words(*shape: int) -> Data:
        # Any 32 bits.
        return Data(rng.integers(-(2**31), 2**31, shape).astype(np.int32), varies=False)

    def fixed(d: Data) -> Data:
        return Data(d.values, gradient=False)

    dtypes = SimpleNamespace(**{name: DType(name) for name in lucid_dtypes()})
    return {
        "N": normal,
        "P": positive,
        "U": unit,
        "W": words,
        "I": whole,
        "B": truth,
        "PERM": permutations,
        "ORDER": order,
        "ASC": ascending,
        "LENGTHS": lengths,
        "OFFSETS": offsets,
        "REG": regular,
        "SYM": symmetric,
        "SPD": definite,
        "PIV": pivots,
        "FIXED": fixed,
        "DT": dtypes,
    }


#: What the GPU device does not have.
DOUBLE = ("float64", "complex128")


@dataclass(frozen=True)
class DType:
    """A dtype argument, by name."""

    name: str


def lucid_dtypes() -> list[str]:
    """The names of the dtypes that are computed in."""
    return [
        "bool",
        "uint8",
        "int8",
        "int16",
        "int32",
        "int64",
        "float16",
        "bfloat16",
        "float32",
        "float64",
        "complex64",
        "complex128",
    ]


#: Dtypes that are stored, and computed with in others by the few ops that PyTorch has for them. Tests of their own
#: (`parity/dtypes`) go through them.
STORED = ("uint16", "uint32", "uint64", "float8_e4m3fn", "float8_e5m2")


def samples(schema: Any, device: str = "cpu", integers: bool = False) -> Iterator[Sample]:
    """The samples of a row that a device can run."""
    for text in schema["samples"]:
        rng = np.random.default_rng(zlib.crc32(f"{schema['name']}({text})".encode()))
        args, kwargs = eval(f"(lambda *a, **k: (a, k))({text})", makers(rng, integers))
        sample = Sample(text, args, kwargs)
        if sample.fits(device):
            yield sample


def rows() -> list[dict[str, Any]]:
    """The rows that have samples, with the names of their dtypes."""
    return [{**s, "dtypes": [plain(d) for d in s["dtypes"]]} for s in lucid.op_schemas() if s["samples"]]


def of_complex_alone(row: dict[str, Any]) -> bool:
    """Does the row take complex numbers and no real ones?"""
    return "float32" not in row["dtypes"] and "complex64" in row["dtypes"]


def single(row: dict[str, Any], sample: Sample, data: Data) -> str:
    """The dtype of single precision for one of a sample's tensors.

    Of rows that take complex numbers alone the first tensor is complex. A window beside it is real: with a complex one
    the result would have to be complex, too.
    """
    return "complex64" if of_complex_alone(row) and data is sample.tensors()[0] else "float32"


def plain(dtype: Any) -> str:
    """A dtype's name without its package."""
    return str(dtype).rsplit(".", 1)[-1]


def dress(data: Data, layout: str) -> tuple[np.ndarray, Callable[[Any], Any]]:
    """Numbers to make a tensor of, and the views that turn it into one of the wanted layout with the data's values.

    The views are spelt the same in both frameworks.
    """
    values = data.values
    if layout == "transposed" and values.ndim >= 2:
        return np.ascontiguousarray(np.swapaxes(values, 0, -1)), lambda t: t.transpose(0, -1)
    if layout == "sliced" and values.ndim >= 1:
        padded = np.zeros((values.shape[0] + 2, *values.shape[1:]), values.dtype)
        padded[1:-1] = values
        return padded, lambda t: t.narrow(0, 1, values.shape[0])
    if layout == "expanded" and values.ndim >= 1 and not data.distinct:
        return values[:1].copy(), lambda t: t.expand(*values.shape)
    return values, lambda t: t


def lucid_function(schema: Any) -> Callable[..., Any]:
    """The public function of a row, or its method where there is only that."""
    path = schema["torch"]
    if path.startswith("Tensor."):
        name = schema["name"]
        return lambda x, *a, **k: getattr(x, name)(*a, **k)
    if path == "-" or path.startswith("special."):
        return getattr(lucid._C, schema["name"])
    owners = {"nn.functional": lucid.nn.functional, "linalg": lucid.linalg, "fft": lucid.fft}
    owner: Any = owners.get(path.rpartition(".")[0], lucid)
    return getattr(owner, path.rsplit(".", 1)[-1])


def results(value: Any) -> list[Any]:
    """What an op returned, as one list."""
    if isinstance(value, (tuple, list)):
        return [r for v in value for r in results(v)]
    return [value]
