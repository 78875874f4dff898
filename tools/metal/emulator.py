"""Runs a custom kernel on this machine, as Metal or CUDA would, and refuses what they would refuse or leave undefined.

    run("metal", Launch(...))      the outputs, or KernelError with what is wrong

The whole text is compiled as MLX hands it over (mlx_text.py); include/ holds Metal's library and CUDA's words,
runtime.c runs the grid and watches every access. Found are: what the language does not have, address spaces mixed up,
more than 31 buffers, groups of more than 1,024 threads, more than 32 KB of threadgroup memory (48 KB in CUDA),
out-of-range indices, races between barriers, barriers that not all threads reach, memory read before it was written,
outputs never written, misaligned access, signed overflow and other undefined arithmetic.
"""

from __future__ import annotations

import ctypes
import functools
import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from . import mlx_text, toolchain
from .mlx_text import Argument

BUFFERS, THREADS = 31, 1024
SHARED = {"metal": 32 << 10, "cuda": 48 << 10}
SIZES = {
    "bool": 1,
    "uint8": 1,
    "int8": 1,
    "uint16": 2,
    "int16": 2,
    "float16": 2,
    "bfloat16": 2,
    "uint32": 4,
    "int32": 4,
}
SIZES |= {"float32": 4, "uint64": 8, "int64": 8, "float64": 8, "complex64": 8}
READ_ONLY, READ_WRITE, SHARED_KIND = 0, 1, 2
# What a kernel's body says of memory that the engine hands over only where it is so aligned, and of inputs it writes.
ALIGNED_INPUTS, ALIGNED = r"^// aligned to 16 bytes: (.+)$", 16
IN_PLACE = r"^// written in place: (.+)$"
# Around each buffer; an index that is off by less is told with the buffer's name.
MARGIN = 1 << 12

# The runtime's numbers of what a thread knows of itself.
NUMBERS = {
    "thread_position_in_grid": 0,
    "thread_position_in_threadgroup": 1,
    "threadgroup_position_in_grid": 2,
    "threads_per_grid": 3,
    "grid_size": 3,
    "threads_per_threadgroup": 4,
    "threadgroups_per_grid": 5,
    "thread_index_in_threadgroup": 6,
    "thread_index_in_simdgroup": 7,
    "simdgroup_index_in_threadgroup": 8,
    "simdgroups_per_threadgroup": 9,
    "dispatch_simdgroups_per_threadgroup": 9,
    "thread_execution_width": 10,
    "threads_per_simdgroup": 10,
    "grid_origin": 11,
    "thread_index_in_quadgroup": 12,
    "quadgroup_index_in_threadgroup": 13,
    "quadgroups_per_threadgroup": 14,
    "dispatch_quadgroups_per_threadgroup": 14,
    "dispatch_threads_per_threadgroup": 15,
}


class KernelError(Exception):
    """What is wrong with a kernel or its launch."""


@dataclass(frozen=True)
class Launch:
    """What MLX is given for one launch of a custom kernel."""

    name: str
    header: str
    body: str
    inputs: Sequence[tuple[Argument, bytes]]
    outputs: Sequence[Argument]
    grid: tuple[int, int, int]
    group: tuple[int, int, int]
    template: mlx_text.Template = ()
    atomic: bool = False
    init_value: float | None = None
    # The texts that were compiled, for who wants to see them.
    texts: list[str] = field(default_factory=list)


def text_of(language: str, launch: Launch) -> tuple[str, str]:
    """The function's name and the whole text."""
    inputs = [argument for argument, _ in launch.inputs]
    given = (launch.name, launch.header, launch.body, inputs, launch.outputs, launch.template)
    return mlx_text.metal(*given, launch.atomic) if language == "metal" else mlx_text.cuda(*given)


# Words of MSL that the compiler for OpenCL sees as plain names.
RESERVED = "vertex fragment threadgroup_imageblock ray_data object_data"
WORD = re.compile(r"\b(" + "|".join(RESERVED.split()) + r")\b")


def prepared(language: str, name: str, text: str, template: mlx_text.Template) -> str:
    """The text for the compiler, with a function through which the runtime calls the kernel."""
    whole = mlx_text.signature(text, name)
    if language == "metal":
        code = re.sub(r"//[^\n]*|/\*.*?\*/", " ", text, flags=re.DOTALL)
        if word := WORD.search(code):
            raise KernelError(f"{word[1]}: MSL reserves the word")
        if template:
            # A kernel is no template here: its parameters are what the only instance has.
            constants = []
            for key, value in template:
                if isinstance(value, str):
                    constants.append(f"typedef {mlx_text.METAL_TYPES[value]} {key};\n")
                else:
                    kind = "bool" if isinstance(value, bool) else "int"
                    constants.append(f"constant constexpr {kind} {key} = {str(value).lower()};\n")
            text = re.sub(
                r"^template <[^\n]*>\n(?=\[\[kernel\]\])", lambda _: "".join(constants), text, flags=re.MULTILINE
            )
            text = text[: text.index("\ntemplate [[host_name(")]
        text = text.replace(f"[[kernel]] void {name}(", f"__kernel void {name}(")
        calls = []
        for kind, parameter, attribute, number in whole:
            if attribute != "buffer":
                axes = ", ".join(
                    f"lucid_attribute({NUMBERS[parameter]}, {k})" for k in range(3 if kind == "uint3" else 1)
                )
                calls.append(f"({kind})({axes})")
            elif kind.endswith("&"):
                calls.append(f"*({kind[:-1]}*)lucid_arguments[{number}]")
            else:
                calls.append(f"({kind})lucid_arguments[{number}]")
        head = '#include "mlx_head.h"\n#line 1 "kernel"\n'
        tail = '#line 1 "entry"\nextern "C" void lucid_entry(const ulong __private* lucid_arguments)'
    else:
        calls = []
        for k, (kind, _, _, _) in enumerate(whole):
            kind = kind.replace("__grid_constant__ ", "").replace("const ", "", 1)
            kind = re.sub(r"\b(Shape|Strides|complex64_t)\b", r"mlx::core::cu::\1", kind.replace("mlx::core::cu::", ""))
            calls.append(f"({kind})lucid_arguments[{k}]" if "*" in kind else f"*(const {kind}*)lucid_arguments[{k}]")
        head = '#line 1 "kernel"\n'
        tail = '#line 1 "entry"\nextern "C" void lucid_entry(const unsigned long* lucid_arguments)'
        name = f"mlx::core::cu::{name}"
    return f"{head}{text}\n{tail} {{ {name}({', '.join(calls)}); }}\n"


@dataclass(frozen=True)
class Loaded:
    """A compiled kernel: its entry, and the variables that the threads of a group share, and its constants."""

    library: ctypes.CDLL
    entry: int
    shared: list[tuple[str, int, int]]
    constants: list[tuple[int, int]]


def variables(library: Path) -> tuple[int, list[tuple[str, int, int]], list[tuple[int, int]]]:
    """From an ELF file: where the entry is, the zeroed variables (name, place, size), and the sections of constants."""
    data = library.read_bytes()
    shoff = struct.unpack_from("<Q", data, 40)[0]
    size, count, names_at = struct.unpack_from("<3H", data, 58)
    sections = [struct.unpack_from("<2I4Q2I2Q", data, shoff + k * size) for k in range(count)]

    def string(table: int, at: int) -> str:
        start = sections[table][4] + at
        return data[start : data.index(b"\0", start)].decode()

    named = [string(names_at, s[0]) for s in sections]
    entry, found = 0, []
    for s in sections:
        if s[1] != 2:
            continue
        for at in range(s[4], s[4] + s[5], 24):
            name, info, _, where, value, extent = struct.unpack_from("<IBBHQQ", data, at)
            label = string(s[6], name)
            if label == "lucid_entry":
                entry = value
            elif info & 15 == 1 and 0 < where < count and sections[where][1] == 8:
                short = re.search(r"E(?:L?)(\d+)([A-Za-z_]\w*?)(?:_\d+)?$", label)
                found.append((short[2][: int(short[1])] if short else label, value, extent))
    constants = [
        (s[3], s[5]) for s, n in zip(sections, named, strict=True) if n.startswith((".rodata", ".data.rel.ro")) and s[5]
    ]
    return entry, found, constants


@functools.cache
def runtime() -> ctypes.CDLL:
    """The runtime, whose functions kernels find by name."""
    library = ctypes.CDLL(str(toolchain.runtime()), mode=ctypes.RTLD_GLOBAL)
    library.lucid_region.argtypes = [
        ctypes.c_char_p,
        ctypes.c_void_p,
        ctypes.c_uint64,
        ctypes.c_uint64,
        ctypes.c_int,
        ctypes.c_int,
    ]
    library.lucid_unwritten.restype = ctypes.c_int64
    library.lucid_launch.restype = ctypes.c_char_p
    library.lucid_launch.argtypes = [ctypes.c_void_p] * 4 + [ctypes.c_int]
    return library


@functools.cache
def load(language: str, text: str) -> Loaded:
    """Compile a prepared text and load it."""
    runtime()
    path = toolchain.compile_kernel(language, text)
    library = ctypes.CDLL(str(path))
    entry, shared, constants = variables(path)
    address = ctypes.cast(library.lucid_entry, ctypes.c_void_p).value
    assert address is not None
    base = address - entry
    shared = [(name, base + value, size) for name, value, size in shared]
    return Loaded(library, address, shared, [(base + at, size) for at, size in constants])


def checked(language: str, launch: Launch) -> None:
    """What Metal and CUDA refuse at the launch."""
    threads = launch.group[0] * launch.group[1] * launch.group[2]
    if not 0 < threads <= THREADS:
        raise KernelError(f"a group of {threads} threads: 1 to {THREADS} are possible")
    if min(launch.grid) < 1:
        raise KernelError(f"a grid of {launch.grid} threads")
    for argument, data in launch.inputs:
        if len(data) != argument.size * SIZES[argument.dtype]:
            raise KernelError(f"{argument.name}: {len(data)} bytes for shape {argument.shape} of {argument.dtype}")


def strides(shape: Sequence[int]) -> list[int]:
    """Row-major strides, in elements."""
    made, n = [], 1
    for d in reversed(shape):
        made.append(n)
        n *= d
    return made[::-1]


class Memory:
    """Buffers for one launch, each between margins and aligned to no more than its elements, or as the kernel says."""

    def __init__(self) -> None:
        self.kept: list[ctypes.Array[ctypes.c_char]] = []
        self.regions = 0

    def add(
        self, name: str, data: bytes, element: int, kind: int, filled: bool, alignment: int = 0
    ) -> tuple[int, int, int]:
        """A buffer with these bytes: its address, its region's number and its size."""
        block = ctypes.create_string_buffer(len(data) + 2 * MARGIN + 64)
        self.kept.append(block)
        start = ctypes.addressof(block) + MARGIN
        # At an odd multiple of the element's size: MLX hands over parts of larger arrays too.
        start += -start % 32 + max(element, alignment)
        ctypes.memmove(start, data, len(data))
        self.region(name, start, len(data), element, kind, filled)
        return start, self.regions - 1, len(data)

    def region(self, name: str, start: int, size: int, element: int, kind: int, filled: bool) -> None:
        """Tell the runtime of memory."""
        if runtime().lucid_region(name.encode(), start, size, element, kind, int(filled)):
            raise KernelError("no room for the shadow of memory")
        self.regions += 1


def filler(value: float, dtype: str, count: int) -> bytes:
    """So many elements of one value."""
    import numpy as np

    if dtype == "bfloat16":
        bits = np.full(count, value, np.float32).view(np.uint32)
        return (bits >> 16).astype(np.uint16).tobytes()
    return np.full(count, value, dtype).tobytes()


def run(language: str, launch: Launch) -> list[bytes]:
    """The bytes of each output, and of each input that is written in place, as the body names them."""
    checked(language, launch)
    name, text = text_of(language, launch)
    launch.texts.append(text)
    parameters = mlx_text.signature(text, name)
    buffers = sum(attribute == "buffer" for _, _, attribute, _ in parameters)
    if language == "metal" and buffers > BUFFERS:
        raise KernelError(f"{buffers} buffers: Metal has {BUFFERS}")
    try:
        loaded = load(language, prepared(language, name, text, launch.template))
    except toolchain.CompileError as e:
        raise KernelError(f"the compiler refuses the kernel:\n{e}") from None
    shared = sum(-(-size // 16) * 16 for _, _, size in loaded.shared)
    if shared > SHARED[language]:
        raise KernelError(f"{shared} bytes of threadgroup memory: {SHARED[language]} are possible")
    runtime().lucid_clear()
    memory = Memory()
    values: dict[str, int] = {}
    told = {name for line in re.findall(ALIGNED_INPUTS, launch.body, re.MULTILINE) for name in line.split(", ")}
    changed = [name for line in re.findall(IN_PLACE, launch.body, re.MULTILINE) for name in line.split(", ")]
    written, places = [], {}
    for argument, data in launch.inputs:
        size = SIZES[argument.dtype]
        alignment = ALIGNED if argument.name in told else 0
        kind = READ_WRITE if argument.name in changed else READ_ONLY
        places[argument.name] = memory.add(argument.name, data, size, kind, True, alignment)
        values[argument.name] = places[argument.name][0]
        more = {
            "shape": (struct.pack(f"<{len(argument.shape)}i", *argument.shape), 4),
            "strides": (struct.pack(f"<{len(argument.shape)}q", *strides(argument.shape)), 8),
            "ndim": (struct.pack("<i", len(argument.shape)), 4),
        }
        for kind in mlx_text.infos(argument, launch.body):
            packed, width = more[kind]
            if language == "cuda" and kind != "ndim":
                packed += bytes(8 * width - len(packed))
            key = f"{argument.name}_{kind}"
            values[key] = memory.add(key, packed, width, READ_ONLY, True)[0]
    for argument in launch.outputs:
        size, filled = SIZES[argument.dtype], launch.init_value is not None
        # What no kernel is to see: it is read only where something is wrong.
        data = b"\xa5" * (argument.size * size)
        if launch.init_value is not None:
            data = filler(launch.init_value, argument.dtype, argument.size)
        alignment = ALIGNED if argument.name in told else 0
        written.append(memory.add(argument.name, data, size, READ_WRITE, filled, alignment))
        values[argument.name] = written[-1][0]
    for variable, at, extent in loaded.shared:
        ctypes.memset(at, 0xA5, extent)
        memory.region(variable, at, extent, 4 if extent % 4 == 0 else 1, SHARED_KIND, False)
    for at, extent in loaded.constants:
        memory.region("a constant", at, extent, 1, READ_ONLY, True)
    given = b"".join(
        struct.pack("<Q", values[p]) for _, p, attribute, _ in parameters if language == "cuda" or attribute == "buffer"
    )
    table = memory.add("the table of arguments", given, 8, READ_ONLY, True)[0]
    # MLX makes a group no larger than the grid.
    group = [min(g, t) for g, t in zip(launch.group, launch.grid, strict=True)]
    done = runtime().lucid_launch(
        loaded.entry,
        table,
        (ctypes.c_uint32 * 3)(*launch.grid),
        (ctypes.c_uint32 * 3)(*group),
        int(language == "metal"),
    )
    if done:
        raise KernelError(done.decode())
    for argument, (_, region, _) in zip(launch.outputs, written, strict=True):
        if (byte := runtime().lucid_unwritten(region)) >= 0:
            raise KernelError(f"unwritten: {argument.name}[{byte // SIZES[argument.dtype]}] has no value")
    written += [places[name] for name in changed]
    return [ctypes.string_at(start, size) for start, _, size in written]


def engine_call(language: str, seen: list[str] | None = None):
    """A function as `lucid._C._emulate_kernels` takes it; `seen` gets the kernels' names."""

    def call(name, header, body, inputs, outputs, grid, group):
        if seen is not None:
            seen.append(name)
        launch = Launch(
            name,
            header,
            body,
            [(Argument(n, dtype, tuple(shape)), data) for n, dtype, shape, data in inputs],
            [Argument(n, dtype, tuple(shape)) for n, dtype, shape in outputs],
            tuple(grid),
            tuple(group),
        )
        return run(language, launch)

    return call
