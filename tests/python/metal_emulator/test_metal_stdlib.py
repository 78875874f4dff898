"""Metal's library on this machine: special cases, types, simdgroups, atomics, what MLX hands over."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.python.metal_emulator.launches import launch
from tests.python.tolerances import TABLE, within

pytestmark = pytest.mark.usefixtures("compiler")

INF, NAN = math.inf, math.nan


def each(expression: str, x: list[float], y: list[float] | None = None, dtype: str = "float32") -> list[float]:
    """An expression of `a` (and `b`) for each element."""
    a = np.array(x, dtype)
    b = np.array(y if y is not None else x, dtype)
    word = {"float32": "float", "float16": "half", "int32": "int", "uint32": "uint"}[dtype]
    body = f"uint i = INDEX; {word} a = x[i % x_shape[0]], b = y[i % x_shape[0]]; out[i] = float({expression});"
    (made,) = launch("metal", body, {"x": a, "y": b}, {"out": ("float32", (len(x),))}, len(x), len(x))
    return [float(v) for v in made]


# Expression, arguments, results by MSL's table of special cases.
CASES = [
    ("max(a, b)", [NAN, 1, -0.0, INF], [1, NAN, -1, NAN], [1, 1, -0.0, INF]),
    ("min(a, b)", [NAN, 1, 2, -INF], [1, NAN, -1, NAN], [1, 1, -1, -INF]),
    ("fmax(a, b)", [NAN, NAN], [NAN, 2], [NAN, 2]),
    ("clamp(a, 0.0f, 1.0f)", [-1, 0.5, 2, NAN], None, [0, 0.5, 1, 0]),
    ("saturate(a)", [-1, 0.25, 3, NAN], None, [0, 0.25, 1, 0]),
    ("sign(a)", [-3, 0, 5, NAN], None, [-1, 0, 1, 0]),
    ("fract(a)", [1.25, -0.25, -1e-10, 2], None, [0.25, 0.75, 0.99999994, 0]),
    ("round(a)", [0.5, 1.5, -2.5, 0.4], None, [1, 2, -3, 0]),
    ("rint(a)", [0.5, 1.5, 2.5, -0.5], None, [0, 2, 2, -0.0]),
    ("step(a, b)", [1, 1, 1], [0.5, 1, 2], [0, 1, 1]),
    ("mix(a, b, 0.25f)", [0, 4], [8, 8], [2, 5]),
    ("exp(a)", [-INF, 0, INF, 1], None, [0, 1, INF, math.e]),
    ("log(a)", [0, 1, INF, -1], None, [-INF, 0, INF, NAN]),
    ("precise::sqrt(a)", [0, 4, -1, INF], None, [0, 2, NAN, INF]),
    ("rsqrt(a)", [4, INF], None, [0.5, 0]),
    ("powr(a, b)", [2, 2, -1], [3, -1, 2], [8, 0.5, NAN]),
    ("fmod(a, b)", [5.5, -5.5], [2, 2], [1.5, -1.5]),
    ("copysign(a, b)", [1, -1], [-2, 2], [-1, 1]),
    ("isnan(a) ? 1 : isinf(a) ? 2 : 3", [NAN, -INF, 1], None, [1, 2, 3]),
    ("select(a, b, a > 1.0f)", [1, 2], [7, 8], [1, 8]),
    ("as_type<float>(as_type<uint>(a) & 0x7fffffffu)", [-3, 4], None, [3, 4]),
    ("fma(a, b, 1.0f)", [2, 3], [4, 5], [9, 16]),
    ("a / b", [1, 0, -1], [0, 0, 0], [INF, NAN, -INF]),
]


@pytest.mark.parametrize("case", CASES, ids=[c[0] for c in CASES])
def test_special_cases(case: tuple[str, list[float], list[float] | None, list[float]]) -> None:
    expression, x, y, want = case
    np.testing.assert_allclose(each(expression, x, y), want, rtol=TABLE["metal functions"].rtol)


INTEGERS = [
    ("clz(a)", [0, 1, 2**31], None, [32, 31, 0]),
    ("ctz(a)", [0, 1, 8], None, [32, 0, 3]),
    ("popcount(a)", [0, 255, 2**32 - 1], None, [0, 8, 32]),
    ("mulhi(a, b)", [2**31, 2**16], [4, 2**16], [2, 1]),
    ("rotate(a, b)", [1, 1], [4, 0], [16, 1]),
    ("absdiff(a, b)", [3, 5], [5, 3], [2, 2]),
    ("max(a, b)", [3, 5], [5, 3], [5, 5]),
]


@pytest.mark.parametrize("case", INTEGERS, ids=[c[0] for c in INTEGERS])
def test_integers(case: tuple[str, list[float], list[float] | None, list[float]]) -> None:
    expression, x, y, want = case
    assert each(expression, x, y, "uint32") == want


def test_halves_are_rounded_after_each_operation() -> None:
    x = np.linspace(-3, 3, 64, dtype=np.float16)
    (made,) = launch(
        "metal", "uint i = INDEX; out[i] = exp(x[i]) * x[i] + 1.0h;", {"x": x}, {"out": ("float16", (64,))}
    )
    np.testing.assert_array_equal(made, np.exp(x.astype(np.float32)).astype(np.float16) * x + np.float16(1))


def test_bfloats_are_rounded_to_nearest() -> None:
    x = np.array([1.0, 1.00390625, 1.01171875, -3.14159, 1e38, 65280.0, 0.1, 7.0], np.float32)
    (made,) = launch("metal", "uint i = INDEX; out[i] = bfloat16_t(x[i]);", {"x": x}, {"out": ("bfloat16", (8,))}, 8, 8)
    bits = x.view(np.uint32)
    np.testing.assert_array_equal(made, ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16))
    (back,) = launch(
        "metal",
        "uint i = INDEX; out[i] = x[i];",
        {"x": made},
        {"out": ("float32", (8,))},
        8,
        8,
        kinds={"x": "bfloat16"},
    )
    np.testing.assert_array_equal(back, (made.astype(np.uint32) << 16).view(np.float32))


def test_vectors() -> None:
    x = np.arange(16, dtype=np.float32)
    body = """uint i = INDEX;
float2 a = float2(x[2 * i], x[2 * i + 1]);
float4 b = float4(a, a.yx) * 2.0f + float4(1.0f);
float3 c = max(b.xyz, float3(4.0f));
out[i] = dot(b, b) + c.x + c.z + uint3(thread_position_in_grid).x;"""
    (made,) = launch("metal", body, {"x": x}, {"out": ("float32", (8,))}, 8, 8)
    p, q = x[::2], x[1::2]
    b = np.stack([p, q, q, p]) * 2 + 1
    want = (b * b).sum(0) + np.maximum(b[0], 4) + np.maximum(b[2], 4) + np.arange(8)
    np.testing.assert_array_equal(made, want)


X = np.random.default_rng(3).standard_normal(96).astype(np.float32)
GROUPS = X.reshape(3, 32)
LANES = np.arange(32)
SIMD = {
    "simd_sum(v)": lambda g: np.broadcast_to(g.sum(1, keepdims=True), g.shape),
    "simd_max(v)": lambda g: np.broadcast_to(g.max(1, keepdims=True), g.shape),
    "simd_min(v)": lambda g: np.broadcast_to(g.min(1, keepdims=True), g.shape),
    "simd_product(v)": lambda g: np.broadcast_to(g.prod(1, keepdims=True), g.shape),
    "simd_shuffle(v, ushort(7))": lambda g: np.broadcast_to(g[:, 7:8], g.shape),
    "simd_broadcast(v, ushort(31))": lambda g: np.broadcast_to(g[:, 31:], g.shape),
    "simd_broadcast_first(v)": lambda g: np.broadcast_to(g[:, :1], g.shape),
    "simd_shuffle_xor(v, ushort(5))": lambda g: g[:, LANES ^ 5],
    "simd_shuffle_down(v, ushort(3))": lambda g: g[:, np.where(LANES + 3 < 32, LANES + 3, LANES)],
    "simd_shuffle_up(v, ushort(3))": lambda g: g[:, np.where(LANES >= 3, LANES - 3, LANES)],
    "simd_prefix_inclusive_sum(v)": lambda g: g.cumsum(1),
    "simd_prefix_exclusive_sum(v)": lambda g: g.cumsum(1) - g,
    "float(simd_all(v > 0.0f)) + 2.0f * float(simd_any(v > 0.0f))": lambda g: np.broadcast_to(
        (g > 0).all(1, keepdims=True) + 2.0 * (g > 0).any(1, keepdims=True), g.shape
    ),
    "float(thread_index_in_simdgroup + 100 * simdgroup_index_in_threadgroup)": lambda g: (
        np.arange(96).reshape(3, 32) % 32 + 100 * np.arange(3)[:, None]
    ),
}


@pytest.mark.parametrize("expression", SIMD)
def test_simdgroups(expression: str) -> None:
    body = f"uint i = INDEX; float v = x[i]; out[i] = {expression};"
    (made,) = launch("metal", body, {"x": X}, {"out": ("float32", (96,))}, 96, 96)
    np.testing.assert_allclose(made.reshape(3, 32), SIMD[expression](GROUPS), **within("program"))


def test_threads_beyond_the_grid_are_not_in_metal_and_are_in_cuda() -> None:
    body = "out[INDEX] = float(threads_per_threadgroup.x + 100 * simdgroups_per_threadgroup);"
    (made,) = launch("metal", body, {}, {"out": ("float32", (72,))}, 72, 48)
    np.testing.assert_array_equal(made, np.where(np.arange(72) < 48, 248, 124))
    body = "if (INDEX < 72) out[INDEX] = (float)blockDim.x;"
    (made,) = launch("cuda", body, {}, {"out": ("float32", (72,))}, 72, 48)
    np.testing.assert_array_equal(made, np.full(72, 48))


def test_places_in_three_dimensions() -> None:
    body = """uint3 p = thread_position_in_grid, q = thread_position_in_threadgroup, g = threadgroup_position_in_grid;
uint3 n = threads_per_grid;
out[p.x + n.x * (p.y + n.y * p.z)] = p.x == g.x * 2 + q.x && p.y == g.y * 3 + q.y && p.z == g.z * 2 + q.z;"""
    (made,) = launch("metal", body, {}, {"out": ("float32", (4, 5, 3))}, (3, 5, 4), (2, 3, 2))
    assert made.all()


def test_atomics() -> None:
    body = "atomic_fetch_add_explicit(&out[INDEX % 3], x[INDEX], memory_order_relaxed);"
    (made,) = launch("metal", body, {"x": X}, {"out": ("float32", (3,))}, 96, 32, atomic=True, init_value=0.0)
    np.testing.assert_allclose(made, X.reshape(32, 3).sum(0), **within("program"))
    body = """threadgroup atomic_int most;
if (LANE == 0) atomic_store_explicit(&most, 0, memory_order_relaxed);
BARRIER;
atomic_fetch_max_explicit(&most, int(LANE) * 3 % 64, memory_order_relaxed);
BARRIER;
out[INDEX] = atomic_load_explicit(&most, memory_order_relaxed);"""
    (made,) = launch("metal", body, {}, {"out": ("int32", (64,))}, 64, 32)
    np.testing.assert_array_equal(made, np.full(64, max(k * 3 % 64 for k in range(32))))
    body = "atomicAdd(&out[INDEX % 3], x[INDEX]);"
    (made,) = launch("cuda", body, {"x": X}, {"out": ("float32", (3,))}, 96, 32, init_value=0.0)
    np.testing.assert_allclose(made, X.reshape(32, 3).sum(0), **within("program"))


def test_simdgroup_matrices() -> None:
    rng = np.random.default_rng(5)
    a, b = rng.standard_normal((2, 8, 16)).astype(np.float32)
    body = """simdgroup_float8x8 p, q, sum;
threadgroup float tile[64];
for (uint k = LANE; k < 64; k += 32) tile[k] = 1.0f;
BARRIER;
simdgroup_load(sum, tile);
for (int k = 0; k < 2; k++) {
  simdgroup_load(p, a + 8 * k, 16);
  simdgroup_load(q, b + 8 * k, 16);
  simdgroup_multiply_accumulate(sum, p, q, sum);
}
simdgroup_store(sum, out, 8);"""
    (made,) = launch("metal", body, {"a": a, "b": b}, {"out": ("float32", (8, 8))}, 32, 32)
    np.testing.assert_allclose(made, a[:, :8] @ b[:, :8] + a[:, 8:] @ b[:, 8:] + 1, **within("near zero"))


def test_templates_shapes_and_strides() -> None:
    x = np.arange(24, dtype=np.float32).reshape(4, 6)
    body = """uint i = INDEX;
T total = T(0);
for (int k = 0; k < x_shape[1]; k++) total += T(x[i * x_strides[0] + k * x_strides[1]]);
out[i] = B ? total * T(N) + T(x_ndim) : T(0);"""
    values = [("T", "float32"), ("N", 3), ("B", True)]
    for language in ("metal", "cuda"):
        (made,) = launch(
            language,
            body.replace("uint ", "unsigned int "),
            {"x": x},
            {"out": ("float32", (4,))},
            4,
            4,
            template=values,
        )
        np.testing.assert_array_equal(made, x.sum(1) * 3 + 2)


def test_single_numbers_and_few_elements_come_in_constant_memory() -> None:
    body = "constant const float* p = few; constant const float& q = one; out[INDEX] = p[INDEX % 3] * q;"
    inputs = {"few": np.array([1, 2, 3], np.float32), "one": np.array(5, np.float32)}
    (made,) = launch("metal", body, inputs, {"out": ("float32", (6,))}, 6, 6)
    np.testing.assert_array_equal(made, [5, 10, 15, 5, 10, 15])


def test_bools_and_complex_numbers() -> None:
    x = np.array([1 + 2j, 3 - 1j, 0.5j, -2], np.complex64)
    keep = np.array([True, False, True, True])
    body = "uint i = INDEX; complex64_t z = x[i]; if (keep[i]) z = z * z; else z = complex64_t(0.0f, 1.0f); out[i] = z;"
    (made,) = launch("metal", body, {"x": np.tile(x, 2), "keep": np.tile(keep, 2)}, {"out": ("complex64", (8,))}, 8, 8)
    np.testing.assert_allclose(made, np.tile(np.where(keep, x * x, 1j), 2))


def test_init_value_fills_outputs() -> None:
    for dtype in ("float32", "float16", "int32"):
        (made,) = launch("metal", "if (INDEX == 1) out[INDEX] = 7;", {}, {"out": (dtype, (4,))}, 4, 4, init_value=2.0)
        np.testing.assert_array_equal(made, [2, 7, 2, 2])


def test_functions_and_constants_of_the_header() -> None:
    header = """constant float TABLE[4] = {1.0f, 2.0f, 4.0f, 8.0f};
template <typename T> T twice(T x) { return x + x; }
float sum_of(const device float* p, uint n) { float s = 0; for (uint k = 0; k < n; k++) s += p[k]; return s; }
void put(thread float& to, float v) { to = v; }
"""
    body = "float v; put(v, twice(TABLE[INDEX % 4])); out[INDEX] = v + sum_of(x, 3);"
    (made,) = launch("metal", body, {"x": X}, {"out": ("float32", (8,))}, 8, 8, header=header)
    np.testing.assert_allclose(made, np.tile([2, 4, 8, 16], 2) + X[:3].sum(), rtol=TABLE["rounding"].rtol)
