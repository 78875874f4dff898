"""Metal has a kernel for each primitive that Lucid records, with the dtypes that it records it with."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import lucid
import pytest

from tests.python import limitations
from tests.python.samples import DOUBLE, rows, samples
from tests.python.unit.test_table import call, gradients
from tools.metal import metallib

ROWS = rows()
DTYPES = ["bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "complex64"]


@pytest.fixture(autouse=True, scope="module")
def library() -> None:
    if not metallib.available():
        pytest.skip("mlx-metal's library is not there: `make metal-check` fetches it")


def launched(*_: Any) -> Any:
    """What stands for kernels of our own: their results, which nobody reads."""
    outputs = _[4]
    sizes = {"float32": 4, "int32": 4, "int64": 8}
    made = []
    for _name, dtype, shape in outputs:
        n = sizes[dtype]
        for d in shape:
            n *= d
        made.append(bytes(n))
    return made


@pytest.fixture
def metal() -> Iterator[None]:
    """Lowerings are Metal's, and nothing is evaluated for being too much."""
    limits = lucid._C.lazy_limits()
    lucid._C._emulate_kernels("metal", launched)
    lucid._C.set_lazy_limits(ops=1 << 20)
    try:
        yield
    finally:
        lucid._C._emulate_kernels(None, None)
        lucid._C.set_lazy_limits(ops=limits[0])


def recorded(row: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """The primitives that the row's samples record, with where."""
    for dtype in row["dtypes"]:
        if dtype in DOUBLE or limitations.known(row["name"], "gpu", dtype):
            continue
        for sample in samples(row, "gpu"):
            try:
                results, leaves = call(row, sample, dtype, "gpu", grad=dtype in ("float32", "complex64"))
            except lucid.LucidError:
                continue  # Refused, as on the CPU: tests/python/unit/test_table.py compares.
            tensors = [r for r in results if isinstance(r, lucid.Tensor)]
            for node in lucid._C._graph_nodes(*tensors):
                yield node, f"{sample.text} of {dtype}"
            if leaves and row["differentiable"]:
                for node in lucid._C._graph_nodes(*gradients(results, leaves)):
                    yield node, f"the gradient of {sample.text} of {dtype}"


@pytest.mark.usefixtures("metal")
@pytest.mark.parametrize("row", ROWS, ids=lambda r: str(r["name"]))
def test_metal_has_what_is_recorded(row: dict[str, Any]) -> None:
    wrong = {f"{why}: {row['name']}({where})": None for node, where in recorded(row) if (why := metallib.missing(node))}
    assert not wrong, "\n".join(wrong)


# What the library's functions are, by dtype: MLX 0.32.2 has no kernel for these.
LACKING = {
    "Add": (),
    "Exp": ("bool", "uint8", "int8", "int16", "int32", "int64"),
    "Erf": ("bool", "uint8", "int8", "int16", "int32", "int64", "complex64"),
    "Sort": ("bool",),
    "ArgSort": ("bool",),
    "ArgReduce": ("complex64",),
    "SearchSorted": (),
    "Softmax": ("bool", "uint8", "int8", "int16", "int32", "int64", "complex64"),
    "Matmul": ("bool", "uint8", "int8", "int16", "int32", "int64"),
    "Convolution": ("bool", "uint8", "int8", "int16", "int32", "int64", "complex64"),
    "Arange": ("bool", "complex64"),
    "CumSum": ("bool",),
    "BitwiseInvert": ("bool", "float16", "bfloat16", "float32", "complex64"),
    "LogicalAnd": tuple(DTYPES[1:]),
    "ScatterAxis": ("int64", "complex64"),
    "ScatterAxis Sum": ("int64",),
    "Scatter Max": ("int64", "complex64"),
}


@pytest.mark.parametrize("primitive", LACKING)
def test_the_library_lacks_what_is_known(primitive: str) -> None:
    assert tuple(d for d in DTYPES if metallib.missing(f"{primitive} {d} {d} > {d}")) == LACKING[primitive]


def test_all_functions_are_read() -> None:
    names = metallib.functions()
    assert len(names) == 16140
    assert {"rbits", "vv_Addfloat32", "c_block_sort_int64_int64_bn128_tn4", "v_copybool_float32"} <= names
    assert not any("float64" in name for name in names)


def test_unknown_primitives_are_told() -> None:
    assert metallib.missing("Frobnicate float32 > float32") == "Frobnicate: not in the table of primitives"
    assert metallib.missing("Add float64 float64 > float64") == "Add: no kernel has float64"


WRITES = {
    "index_put": lambda x, at, v: x.index_put((at,), v),
    "item assignment": lambda x, at, v: x.__setitem__(at, v),
    "scatter": lambda x, at, v: x.scatter(0, at, v),
    "scatter_add": lambda x, at, v: x.scatter_add(0, at, v),
    "index_add": lambda x, at, v: x.index_add(0, at, v),
    "index_copy": lambda x, at, v: x.index_copy(0, at, v),
    "index_fill": lambda x, at, v: x.index_fill(0, at, 7),
    "accumulated index_put": lambda x, at, v: x.index_put((at,), v, accumulate=True),
    "scatter_reduce": lambda x, at, v: x.scatter_reduce(0, at, v, "amax") if not x.is_complex() else x,
    "as_strided_scatter": lambda x, at, v: x.as_strided_scatter(v, (4,), (2,)),
}


@pytest.mark.usefixtures("metal")
@pytest.mark.parametrize("how", WRITES)
@pytest.mark.parametrize("dtype", ["int64", "complex64", "int32", "float32"])
def test_writes_at_places_are_lowered_for_metal(how: str, dtype: str) -> None:
    """MLX scatters no elements of eight bytes on Metal, but for complex sums: the results are those of the CPU."""

    def write(device: str) -> lucid.Tensor:
        kind = getattr(lucid, dtype)
        x = (lucid.arange(8, device=device) * (1 << 40 if dtype == "int64" else 3)).to(kind)
        at = lucid.tensor([5, 0, 7, 2], device=device)
        v = (lucid.arange(4, device=device) - 2).to(kind)
        if dtype == "int64":
            v = v * 3_000_000_007
        y = x.clone()
        made = WRITES[how](y, at, v)
        return y if made is None else made

    on_gpu = write("gpu")
    wrong = [why for node in lucid._C._graph_nodes(on_gpu) if (why := metallib.missing(node))]
    assert not wrong
    assert on_gpu.tolist() == write("cpu").tolist()


@pytest.mark.usefixtures("metal")
def test_sums_at_places_met_several_times_are_whole() -> None:
    x = lucid.zeros(3, dtype=lucid.int64)
    at = lucid.tensor([0, 2, 0, 0, 2, 1, 0])
    v = lucid.arange(7) * (1 << 50) + 1
    want = x.scatter_add(0, at, v).tolist()
    assert x.to("gpu").scatter_add(0, at.to("gpu"), v.to("gpu")).tolist() == want
    assert x.to("gpu").index_put((at.to("gpu"),), v.to("gpu"), accumulate=True).tolist() == want
    # Of several values for one element one is written whole.
    (values,) = {tuple(x.to("gpu").scatter(0, at.to("gpu"), v.to("gpu")).tolist())}
    assert all(
        value in [n for n, k in zip(v.tolist(), at.tolist(), strict=True) if k == i] for i, value in enumerate(values)
    )
