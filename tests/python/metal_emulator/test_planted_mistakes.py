"""Mistakes that the emulator must find, each planted into a kernel that it runs without a complaint."""

from __future__ import annotations

import numpy as np
import pytest

from tests.python.metal_emulator.launches import launch
from tools.metal.emulator import KernelError

pytestmark = pytest.mark.usefixtures("compiler")

X = np.arange(64, dtype=np.float32)
N = np.array([64], np.int32)
GOOD = """uint32_t i = INDEX, lane = LANE;
SHARED float s[64];
s[lane] = x[i] * 2.0f;
BARRIER;
int k = (int)n[0];
float v = s[31 - lane];
out[i] = v + float(k);
"""

# What is replaced by what, and what is found.
MISTAKES = {
    "a missing barrier": ("BARRIER;", "", "uninitialised: threadgroup memory s|race: threadgroup memory s"),
    "a barrier too late": ("BARRIER;\n", "s[31 - lane] += 1.0f; BARRIER;\n", "uninitialised|race"),
    "reading where the next round writes": ("out[i] = v", "s[lane] = 0.0f; out[i] = v", "race: threadgroup memory s"),
    "a barrier that some threads skip": (
        "BARRIER;",
        "if (lane < 16) { BARRIER; }",
        "divergence: 16 of the 32|race|uninit",
    ),
    "a return before a barrier": ("BARRIER;", "if (i > 40) return; BARRIER;", "divergence: 9 of the 32"),
    "two barriers for one": ("BARRIER;", "if (lane < 16) { BARRIER; } else { BARRIER; k2 = 1; }", "different barriers"),
    "an input's end": ("x[i]", "x[i + 1]", r"out of bounds: x\[64\] read, which has 64 elements"),
    "an input's start": ("x[i]", "x[(int)i - 1]", r"out of bounds: x\[-1\] read"),
    "an output's end": ("out[i]", "out[i + 1]", r"out of bounds: out\[64\] written|unwritten: out\[0\]"),
    "the end of threadgroup memory": ("s[31 - lane]", "s[lane + 64]", "out of bounds"),
    "an address far away": ("x[i]", "x[i + 100000000u]", "out of bounds"),
    "an output that is not written": ("out[i]", "if (i != 5) out[i]", r"unwritten: out\[5\]"),
    "an output that is read": ("out[i] = v", "out[i] += v", r"uninitialised: out\[0\] read"),
    "two threads at one output": ("out[i]", "out[i / 2 * 2]", r"race: out\[0\] written and written by thread 0"),
    "two groups at one output": ("out[i]", "if (lane == 0) out[0]", r"race: out\[0\]"),
    "an input that is written": (
        "out[i]",
        "((WRITABLE float*)x)[i] = 1.0f; out[i]",
        r"written: x\[0\], which is an input",
    ),
    "misaligned vectors": ("x[i]", "((const WRITABLE float4*)x)[i / 4].x", "misaligned: 16 bytes at x|misaligned"),
    "a sum that overflows": ("float(k)", "float(k * 100000000)", "undefined: a product of signed integers"),
    "a division by zero": ("float(k)", "float(7 / (k - 64))", "undefined: an integer is divided by zero"),
    "a float too large for its integer": ("float(k)", "float((int)(1e20f + v))", "undefined: a float that its integer"),
    "an array's end": ("float(k)", "few[k]", "out of bounds: an index beyond"),
    "a variable without a value": ("float(k)", "nothing", "uninitialized"),
    "too much threadgroup memory": ("float s[64]", "float s[16000]", "bytes of threadgroup memory"),
    "a name that is nowhere": ("x[i]", "y[i]", "undeclared|unknown"),
    "a constant input that is written": ("out[i]", "x[i] = 1.0f; out[i]", "const|read-only variable"),
}

# For Metal alone.
METAL = {
    "device memory taken for threadgroup memory": ("out[i] =", "device float* p = s; out[i] =", "cannot initialize"),
    "threadgroup memory taken for device memory": (
        "out[i] =",
        "threadgroup float* p = out; out[i] =",
        "cannot initialize",
    ),
    "constant memory taken for device memory": ("out[i] =", "const device int* p = n; out[i] =", "cannot initialize"),
    "a pointer without an address space": ("out[i] =", "const float* p = x; out[i] =", "cannot initialize"),
    "a cast between address spaces": (
        "x[i]",
        "((const threadgroup float*)x)[i]",
        "converts between mismatching address",
    ),
    "double": ("float v", "double v", "'double'"),
    "a static variable": ("int k", "static int k", "static local variable"),
    "CUDA's barrier": ("BARRIER", "__syncthreads()", "__syncthreads"),
    "CUDA's intrinsic": ("x[i] * 2.0f", "__expf(x[i])", "__expf"),
    "CUDA's shuffle": ("x[i] * 2.0f", "__shfl_xor_sync(0xffffffff, x[i], 1)", "__shfl_xor_sync"),
    "CUDA's place": ("= INDEX", "= blockIdx.x * blockDim.x + threadIdx.x", "blockIdx"),
    "C's library": ("x[i] * 2.0f", 'expf(x[i]) + (float)printf("%d", 1)', "printf"),
    "a header of C": (None, "#include <cmath>\n", "'cmath' file not found"),
    "an allocation": ("float(k)", "*new float(1)", "new|operator"),
    "an exception": ("float(k)", "(k ? throw 1 : 1.0f)", "exceptions disabled|throw"),
    "a virtual function": (None, "struct S { virtual int f(); };\n", "virtual functions"),
    "threadgroup memory of another function": (
        None,
        "float f() { threadgroup float q[4]; return 0; }\n",
        "non-kernel function",
    ),
    "a program's variable": (None, "float counter = 0;\n", "constant address space|program scope"),
    "the flag of the wrong memory": ("mem_threadgroup", "mem_device", "race: threadgroup memory s|uninit"),
    "a simdgroup's barrier": ("threadgroup_barrier", "simdgroup_barrier", "SIMD"),
    "an attribute that only a macro names": ("= INDEX", "= PLACE", "thread_position_in_grid"),
    "the shape of a single number": ("float(k)", "float(one_shape[0])", "one_shape"),
    "a single number taken for an array": ("float(k)", "one[0]", "subscripted value"),
    "a single number's address as a device pointer": (
        "out[i] =",
        "const device float* p = &one; out[i] =",
        "cannot initialize",
    ),
    "few elements as a device pointer": ("out[i] =", "const device float* p = three; out[i] =", "cannot initialize"),
    "a long's atomic": (
        "out[i] =",
        "device atomic<long>* a = (device atomic<long>*)out;"
        " atomic_store_explicit(a, 1, memory_order_relaxed); out[i] =",
        "no such atomic",
    ),
    "a plain access of what is atomic": (
        "out[i] = v",
        "atomic_fetch_add_explicit((device atomic_float*)&out[0], 1.0f, memory_order_relaxed); out[i] = v",
        "uninitialised|race",
    ),
    "an operation of a simdgroup that some threads skip": (
        "float v = s[31 - lane]",
        "float v = 0; if (lane < 3) { v = simd_sum(1.0f); } else BARRIER",
        "divergence",
    ),
    "the name `device`": ("k", "device", "expected|invalid|error"),
    "the name `constant`": ("k", "constant", "expected|invalid|error"),
    "the name `kernel`": ("k", "kernel", "expected|invalid|error"),
    "the name `thread`": ("k", "thread", "expected|invalid|error"),
    "the name `vertex`": ("k", "vertex", "MSL reserves"),
    "the name `fragment`": ("k", "fragment", "MSL reserves"),
    "the name `half`": ("k", "half", "expected|half"),
    "the name `bool`": ("k", "bool", "expected|bool"),
}

CUDA = {
    "Metal's barrier": ("BARRIER", "threadgroup_barrier(mem_flags::mem_threadgroup)", "threadgroup_barrier|mem_flags"),
    "Metal's address space": ("SHARED float", "threadgroup float", "threadgroup"),
    "Metal's place": ("INDEX", "thread_position_in_grid.x", "thread_position_in_grid"),
    "Metal's mathematics": ("x[i] * 2.0f", "metal::precise::exp(x[i])", "metal"),
    # OpenCL takes the shift modulo the type's bits; in CUDA and C++ it is undefined.
    "a shift too far": ("float(k)", "float(1 << k)", "undefined: a shift"),
    "a grid that ends within a group": (None, "", "out of bounds"),
}


def body_of(old: str | None, new: str) -> tuple[str, str]:
    """The header and the body with the mistake in it."""
    if old is None:
        return new, GOOD
    body = (
        GOOD.replace("int k =", "float few[4] = {0.0f, 1.0f, 2.0f, 3.0f}; int k2 = 0; k2 += 1; int k =")
        if "few" in new or "k2" in new
        else GOOD
    )
    if new == "nothing":
        body = body.replace("int k", "float nothing; int k")
    if "k2 = 1" in new:
        body = body.replace("BARRIER;", "int k2 = 0; BARRIER;", 1).replace("int k2 = 0; k2 += 1;", "")
    if old == "k":
        return "", body.replace("int k ", f"int {new} ").replace("float(k)", f"float({new})")
    assert old in body or old in ("mem_threadgroup", "threadgroup_barrier"), old
    return "", body.replace(old, new)


def run(language: str, header: str, body: str, grid: int = 64, group: int = 32) -> np.ndarray:
    inputs = {"x": X, "n": N, "one": np.float32(3).reshape(()), "three": X[:3]}
    if language == "metal":
        body = body.replace("WRITABLE", "device").replace("uint32_t i = INDEX", "uint i = INDEX")
    else:
        body = body.replace("WRITABLE", "").replace("float(one", "float(*one")
    return launch(language, body, inputs, {"out": ("float32", (64,))}, grid, group, header=header)[0]


@pytest.mark.parametrize("language", ["metal", "cuda"])
def test_the_kernel_itself_is_right(language: str) -> None:
    want = (X.reshape(2, 32)[:, ::-1] * 2 + 64).reshape(64)
    np.testing.assert_array_equal(run(language, "", GOOD), want)


@pytest.mark.parametrize("language", ["metal", "cuda"])
@pytest.mark.parametrize("label", MISTAKES)
def test_a_mistake_is_found(language: str, label: str) -> None:
    old, new, found = MISTAKES[label]
    with pytest.raises(KernelError, match=found):
        run(language, *body_of(old, new))


@pytest.mark.parametrize("label", METAL)
def test_a_mistake_in_metal_is_found(label: str) -> None:
    old, new, found = METAL[label]
    header, body = body_of(old, new)
    group = 32
    if old in ("mem_threadgroup", "threadgroup_barrier"):
        body = GOOD.replace("BARRIER", "threadgroup_barrier(mem_flags::mem_threadgroup)").replace(old, new)
    if found == "SIMD":
        # Beyond one simdgroup, whose threads wait for no others.
        body, group, found = body.replace("31 -", "63 -"), 64, "race: threadgroup memory s|uninit"
    if "PLACE" in new:
        header = "#define PLACE thread_position_in_grid.x\n"
    with pytest.raises(KernelError, match=found):
        run("metal", header, body, group=group)


@pytest.mark.parametrize("label", CUDA)
def test_a_mistake_in_cuda_is_found(label: str) -> None:
    old, new, found = CUDA[label]
    with pytest.raises(KernelError, match=found):
        run("cuda", *body_of(old, new), group=32 if old else 48)


@pytest.mark.parametrize("language", ["metal", "cuda"])
def test_groups_have_at_most_1024_threads(language: str) -> None:
    with pytest.raises(KernelError, match="a group of 1025 threads: 1 to 1024"):
        run(language, "", GOOD, group=1025)


def test_metal_has_31_buffers() -> None:
    body = "uint i = INDEX; out[i] = " + " + ".join(f"p{k}[i]" for k in range(31)) + ";"
    many = {f"p{k}": X for k in range(31)}
    few = dict(list(many.items())[:30])
    whole = launch("metal", body.replace(" + p30[i]", ""), few, {"out": ("float32", (64,))})[0]
    np.testing.assert_array_equal(whole, X * 30)
    with pytest.raises(KernelError, match="32 buffers: Metal has 31"):
        launch("metal", body, many, {"out": ("float32", (64,))})
    # Shapes take buffers too.
    with pytest.raises(KernelError, match="32 buffers: Metal has 31"):
        launch("metal", body.replace(" + p30[i]", " + p0_shape[0]"), few, {"out": ("float32", (64,))})
