"""The kernels of mlx-metal's library, and those that MLX looks up for a primitive.

    python tools/metal/metallib.py [WORD]     the functions, or those whose name holds the word

`mlx.metallib` lists its functions by name: after a header of offsets, an entry for each with tags NAME, TYPE, HASH and
so on. MLX makes the name of what it needs from the primitive's name and the dtypes, and fails where the library has
none. Kernels of another kind are texts that MLX compiles when it needs them; what those refuse is in libmlx.dylib.
"""

from __future__ import annotations

import functools
import re
import struct
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
if __package__ in (None, ""):
    sys.path.insert(0, str(ROOT))

from tools.metal import toolchain  # noqa: E402

LIBRARY = toolchain.CROSS / "macos" / "mlx" / "lib" / "mlx.metallib"


def available() -> bool:
    """Is the library there, without fetching anything?"""
    return LIBRARY.is_file() and all(toolchain.fetch.in_place(w, toolchain.CROSS / "macos") for w in wheels())


def wheels() -> list[toolchain.fetch.Wheel]:
    """mlx-metal, as vendor/fetch.py pins it."""
    return [w for w in toolchain.fetch.PARTS[("Darwin", "arm64")] if w.package == "mlx-metal"]


def ensure() -> None:
    """Fetch the library where it lacks."""
    toolchain.parts.ensure_wheels("macos")


@functools.cache
def functions(path: Path = LIBRARY) -> frozenset[str]:
    """The names of the library's functions."""
    data = path.read_bytes()
    if data[:4] != b"MTLB":
        raise SystemExit(f"metal: {path} is no Metal library")
    start = struct.unpack_from("<Q", data, 0x18)[0]
    count = struct.unpack_from("<I", data, start)[0]
    names, at = set(), start + 4
    for _ in range(count):
        end = at + struct.unpack_from("<I", data, at)[0]
        tag = at + 4
        while tag < end and data[tag : tag + 4] != b"ENDT":
            size = struct.unpack_from("<H", data, tag + 4)[0]
            if data[tag : tag + 4] == b"NAME":
                names.add(data[tag + 6 : tag + 6 + size].rstrip(b"\0").decode())
            tag += 6 + size
        at = end
    if len(names) != count:
        raise SystemExit(f"metal: {len(names)} names of {count} functions in {path}")
    return frozenset(names)


# Primitives that compute nothing, or only copy elements of one dtype: MLX's copies exist for every pair of dtypes.
SHAPES = (
    "Broadcast BroadcastAxes Reshape Transpose Squeeze ExpandDims Flatten Unflatten Slice Split AsStrided StopGradient"
)
COPIES = "Contiguous Copy Concatenate Pad Full View DynamicSlice DynamicSliceUpdate"
# Compiled from texts, for any dtype of elements.
TEXTS = "Gather GatherAxis MaskedScatter Compiled CustomKernel"
# MLX has them for the CPU alone, to whose stream Lucid gives them.
CPU_ONLY = "Cholesky Eig Eigh Inverse LUF QRF SVD"
UNARY = (
    "Abs ArcCos ArcCosh ArcSin ArcSinh ArcTan ArcTanh BitwiseInvert Ceil Conjugate Cos Cosh Erf ErfInv Exp Expm1 Floor "
    "Imag Log Log10 Log1p Log2 LogicalNot Negative Real Round Rsqrt Sigmoid Sign Sin Sinh Sqrt Square Tan Tanh"
)
BINARY = (
    "Add ArcTan2 BitwiseAnd BitwiseOr BitwiseXor DivMod Divide Equal Greater GreaterEqual LeftShift Less LessEqual "
    "LogAddExp LogicalAnd LogicalOr Maximum Minimum Multiply NaNEqual NotEqual Power Remainder RightShift Subtract"
)
REDUCTIONS = "Sum Prod Max Min And Or"
SCANS = {"CumSum": "sum", "CumProd": "prod", "CumMin": "min", "CumMax": "max", "CumLogAddExp": "logaddexp"}
WIDTHS = {"bool": 1, "int8": 1, "uint8": 1, "int16": 2, "uint16": 2, "int32": 4, "uint32": 4, "int64": 8, "uint64": 8}
WIDTHS |= {"float16": 2, "bfloat16": 2, "float32": 4, "complex64": 8}
FLOATS = ("float16", "bfloat16", "float32")
# Sizes of groups and bits of affine quantisation, in which MLX has kernels; the engine refuses others.
GROUPS = [f"gs_{size}_b_{bits}" for size in (32, 64, 128) for bits in (2, 3, 4, 5, 6, 8)]


def type_name(dtype: str) -> str:
    """A dtype as it is in kernels' names."""
    return "bool_" if dtype == "bool" else dtype


def reduced(name: str, dtype: str) -> str:
    """The dtype by whose kernel MLX reduces: Booleans and unsigned integers go as signed ones of their width."""
    if name in ("Sum", "Prod") and (dtype == "bool" or "int" in dtype):
        return f"int{8 * WIDTHS[dtype]}"
    if name in ("And", "Or"):
        return "bool" if WIDTHS[dtype] == 1 else f"int{8 * WIDTHS[dtype]}"
    return dtype


def quantized(name: str, inputs: list[str], out: str) -> list[str]:
    """The kernels that a primitive of affine quantisation may ask for, in any size of groups and bits."""
    floats = [d for d in (*inputs, out) if d in FLOATS]
    of = "float" if floats[0] == "float32" else f"{floats[0]}_t"
    if name == "Quantize":
        return [f"affine_{'quantize' if inputs[0] in FLOATS else 'dequantize'}_{of}_{group}" for group in GROUPS]
    if name == "QuantizedMatmul":
        kinds = ("qmv", "qmv_fast", "qvm", "qmm_n")
        return [f"affine_{kind}_{of}_{group}_batch_{b}" for kind in kinds for group in GROUPS for b in (0, 1)]
    return [f"affine_gather_{kind}_{of}_{group}" for kind in ("qmv", "qmv_fast", "qvm", "qmm_n") for group in GROUPS]


def missing(node: str) -> str | None:
    """What Metal lacks for a primitive with these dtypes, a line such as `Add int8 int8 > int8`; `None` for nothing."""
    left, out = node.split(" > ")
    match = re.fullmatch(r"(.*?)((?: (?:bool|u?int\d+|b?float\d+|complex64))*)", left)
    assert match is not None, node
    name, inputs = match[1], match[2].split()
    if bad := {d for d in (*inputs, out) if d not in WIDTHS}:
        return f"{name}: no kernel has {', '.join(sorted(bad))}"
    have = functions()
    first = type_name(inputs[0]) if inputs else ""
    wanted: list[str] = []
    if name in f"{SHAPES} {TEXTS} {CPU_ONLY}".split():
        return None
    if name in COPIES.split():
        wanted = [f"v_copy{type_name(out)}{type_name(out)}", f"g1_copy{type_name(out)}{type_name(out)}"]
    elif name == "AsType":
        wanted = [f"v_copy{first}{type_name(out)}", f"g1_copy{first}{type_name(out)}"]
    elif name.startswith(("ScatterAxis", "Scatter")):
        # In both eval_gpu of libmlx.dylib 0.32.2: 8 bytes are refused, but for the sum of complex64.
        if WIDTHS[out] == 8 and not (out == "complex64" and name.endswith("Sum")):
            return f"{name}: does not support {out}"
        return None
    elif name.startswith("SliceUpdate"):
        return None
    elif name in UNARY.split():
        wanted = [f"v_{name}{first}{type_name(out)}", f"gn1_{name}{first}{type_name(out)}"]
    elif name in BINARY.split():
        wanted = [f"{kind}_{name}{first}" for kind in ("ss", "sv", "vs", "vv", "g1")]
    elif name == "Select":
        wanted = [f"{kind}_Select{type_name(out)}" for kind in ("v", "g1")]
    elif name in REDUCTIONS.split():
        if name in ("Max", "Min") and inputs[0] == "bool":
            name = {"Max": "Or", "Min": "And"}[name]
        dtype = type_name(reduced(name, inputs[0]))
        wanted = [
            f"{kind}_{name.lower()}{dtype}" for kind in ("all_reduce", "row_reduce_simple", "col_reduce_small_1_reduce")
        ]
    elif name in SCANS:
        wanted = [f"{kind}_scan_inclusive_{SCANS[name]}_{first}_{type_name(out)}" for kind in ("contig", "strided")]
    elif name == "ArgReduce":
        wanted = [f"argmin_{first}", f"argmax_{first}"]
    elif name == "Arange":
        wanted = [f"arange{type_name(out)}"]
    elif name in ("Sort", "Partition"):
        wanted = [f"c_block_sort_{first}_{first}_bn128_tn4", f"sort_mbsort_{first}_uint32_*"]
    elif name in ("ArgSort", "ArgPartition"):
        wanted = [f"carg_block_sort_{first}_uint32_bn128_tn4", f"sort_mbsort_{first}_uint32_*"]
    elif name == "SearchSorted":
        wanted = [f"searchsorted_{first}_left", f"searchsorted_{first}_right"]
    elif name in ("Softmax", "LogSumExp"):
        wanted = [f"block_{name.lower()}_{first}", f"looped_{name.lower()}_{first}"]
    elif name in ("Matmul", "AddMM"):
        wanted = [f"steel_gemm_fused_nn_{first}_{first}_bm64_bn64_bk16_wm2_wn2"]
    elif name == "Convolution":
        wanted = [f"implicit_gemm_conv_2d_{first}_bm32_bn8_bk16_wm4_wn1_channel_l_filter_l"]
    elif name == "RandomBits":
        wanted = ["rbits", "rbitsc"]
    elif name == "FFT":
        wanted = ["fft_mem_256_float2_float2", "fft_mem_256_float_float2", "fft_mem_256_float2_float"]
    elif name in ("ScaledDotProductAttention",):
        wanted = [f"sdpa_vector_{'float' if first == 'float32' else first + '_t'}_64_64"]
    elif name in ("LayerNorm", "LayerNormVJP"):
        wanted = [f"{'vjp_' if name.endswith('VJP') else ''}layer_norm{first}"]
    elif name in ("RMSNorm", "RMSNormVJP"):
        wanted = [f"{'vjp_' if name.endswith('VJP') else ''}rms{first}"]
    elif name in ("Quantize", "QuantizedMatmul", "GatherQMM"):
        wanted = quantized(name, inputs, out)
    else:
        return f"{name}: not in the table of primitives"
    lacking = [
        kernel
        for kernel in wanted
        if not (any(h.startswith(kernel[:-1]) for h in have) if kernel.endswith("*") else kernel in have)
    ]
    return f"{name}: no function {lacking[0]}" if lacking else None


def main() -> int:
    """Print names."""
    ensure()
    word = sys.argv[1] if len(sys.argv) > 1 else ""
    print("\n".join(sorted(name for name in functions() if word in name)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
