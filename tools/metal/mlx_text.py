"""The text that MLX 0.32.2 makes of a custom kernel: the function's head around its body, for Metal and for CUDA.

A copy of MLX's rules. tests/python/metal_emulator compares it with MLX itself, whose Linux library holds the writer of
Metal's head too (mlx_probe.cpp makes it speak), and with texts that the library of `mlx-cuda-12` printed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

METAL_TYPES = {
    "bool": "bool",
    "uint8": "uint8_t",
    "uint16": "uint16_t",
    "uint32": "uint32_t",
    "uint64": "uint64_t",
    "int8": "int8_t",
    "int16": "int16_t",
    "int32": "int32_t",
    "int64": "int64_t",
    "float16": "float16_t",
    "float32": "float",
    "bfloat16": "bfloat16_t",
    "complex64": "complex64_t",
}
CUDA_TYPES = METAL_TYPES | {
    "float16": "__half",
    "bfloat16": "__nv_bfloat16",
    "complex64": "mlx::core::cu::complex64_t",
    "float64": "double",
}
# What a thread knows of itself, in MLX's order: name and type. A parameter is declared where the body holds the name.
ATTRIBUTES = {
    "dispatch_quadgroups_per_threadgroup": "uint",
    "dispatch_simdgroups_per_threadgroup": "uint",
    "dispatch_threads_per_threadgroup": "uint3",
    "grid_origin": "uint3",
    "grid_size": "uint3",
    "quadgroup_index_in_threadgroup": "uint",
    "quadgroups_per_threadgroup": "uint",
    "simdgroup_index_in_threadgroup": "uint",
    "simdgroups_per_threadgroup": "uint",
    "thread_execution_width": "uint",
    "thread_index_in_quadgroup": "uint",
    "thread_index_in_simdgroup": "uint",
    "thread_index_in_threadgroup": "uint",
    "thread_position_in_grid": "uint3",
    "thread_position_in_threadgroup": "uint3",
    "threadgroup_position_in_grid": "uint3",
    "threadgroups_per_grid": "uint3",
    "threads_per_grid": "uint3",
    "threads_per_simdgroup": "uint",
    "threads_per_threadgroup": "uint3",
}
# Inputs of fewer elements come in Metal's constant memory.
CONSTANT = 8


@dataclass(frozen=True)
class Argument:
    """An input or output: its name in the body, MLX's name of its dtype, its shape."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """The number of elements."""
        n = 1
        for d in self.shape:
            n *= d
        return n


# A dtype's name, a bool or an integer.
Template = Sequence[tuple[str, str | bool | int]]


def infos(argument: Argument, body: str) -> list[str]:
    """Which of `shape`, `strides` and `ndim` of an input the body asks for; of a single number none are handed over."""
    kinds = ("shape", "strides", "ndim") if argument.shape else ()
    return [kind for kind in kinds if f"{argument.name}_{kind}" in body]


def metal(
    name: str,
    header: str,
    body: str,
    inputs: Sequence[Argument],
    outputs: Sequence[Argument],
    template: Template = (),
    atomic: bool = False,
) -> tuple[str, str]:
    """The function's name and the whole text, before which MLX puts its own head (`include/mlx_head.h`)."""
    values = [METAL_TYPES[v] if isinstance(v, str) else str(int(v)) for _, v in template]
    full = f"custom_kernel_{name}" + "".join(f"_{v}" for v in ["", *values][: len(values) + 1 if values else 0])
    for x in inputs:
        full += f"_{METAL_TYPES[x.dtype]}" + ("s" if not x.shape else "c" if x.size < CONSTANT else "")
    full += "".join(f"_{METAL_TYPES[x.dtype]}" for x in outputs)
    parameters: list[str] = []

    def add(declared: str) -> None:
        parameters.append(f"  {declared} [[buffer({len(parameters)})]]")

    for x in inputs:
        space = "constant" if x.size < CONSTANT else "device"
        add(f"const {space} {METAL_TYPES[x.dtype]}{'*' if x.shape else '&'} {x.name}")
        for kind in infos(x, body):
            plain = {"shape": "int*", "strides": "int64_t*", "ndim": "int&"}[kind]
            add(f"const constant {plain} {x.name}_{kind}")
    for x in outputs:
        kind = f"atomic<{METAL_TYPES[x.dtype]}>" if atomic else METAL_TYPES[x.dtype]
        add(f"device {kind}* {x.name}")
    parameters += [f"  {kind} {name} [[{name}]]" for name, kind in ATTRIBUTES.items() if name in body]
    text = header
    if template:
        kinds = ["typename" if isinstance(v, str) else "bool" if isinstance(v, bool) else "int" for _, v in template]
        text += f"template <{', '.join(f'{k} {n}' for k, (n, _) in zip(kinds, template, strict=True))}>\n"
    text += f"[[kernel]] void {full}(\n" + ",\n".join(parameters) + f") {{\n{body}\n}}\n"
    if template:
        whole = f"{full}<{', '.join(values)}>"
        text += f'\ntemplate [[host_name("{full}")]] [[kernel]] decltype({whole}) {whole};\n'
    return full, text


CUDA_HEAD = '\n#include "mlx/backend/cuda/device/utils.cuh"\n\n#include <cooperative_groups.h>\n\n'


def cuda(
    name: str,
    header: str,
    body: str,
    inputs: Sequence[Argument],
    outputs: Sequence[Argument],
    template: Template = (),
) -> tuple[str, str]:
    """The function's name and the whole text."""
    values = [
        CUDA_TYPES[v] if isinstance(v, str) else "t" if v is True else "f" if v is False else str(v)
        for _, v in template
    ]
    keys = [METAL_TYPES[v] if isinstance(v, str) else w for (_, v), w in zip(template, values, strict=True)]
    full = "_".join([f"custom_kernel_{name}", *keys])
    parameters = []
    for x in inputs:
        parameters.append(f"    const {CUDA_TYPES[x.dtype]}* {x.name}")
        for kind in infos(x, body):
            plain = {"shape": "Shape", "strides": "Strides", "ndim": "int"}[kind]
            parameters.append(f"    const __grid_constant__ {plain} {x.name}_{kind}")
    parameters += [f"    {CUDA_TYPES[x.dtype]}* {x.name}" for x in outputs]
    text = f"{CUDA_HEAD}{header}namespace mlx::core::cu {{\n\nnamespace cg = cooperative_groups;\n\n"
    text += f"__global__ void {full}(\n" + ",\n".join(parameters) + ") {\n"
    for (n, v), w in zip(template, values, strict=True):
        if isinstance(v, str):
            text += f"  using {n} = {w};\n"
        else:
            text += f"  constexpr {'bool' if isinstance(v, bool) else 'int'} {n} = {str(v).lower()};\n"
    text += "\n" if template else ""
    return full, f"{text}{body}\n}}\n\n}} // namespace mlx::core::cu\n"


PARAMETER = re.compile(r"^\s*(.*?)(\w+)\s*(?:\[\[(\w+)(?:\((\d+)\))?\]\])?\s*$", re.DOTALL)


def signature(text: str, name: str) -> list[tuple[str, str, str, int | None]]:
    """The parameters of the function `name` of a whole text: type, name, attribute, and the buffer's number."""
    start = text.index(f"{name}(") + len(name) + 1
    end = text.index(") {", start)
    found = []
    for part in text[start:end].split(",\n"):
        match = PARAMETER.match(part)
        if not match:
            raise ValueError(f"{name}: the parameter {part.strip()!r} is not understood")
        kind, parameter, attribute, number = match.groups()
        found.append((kind.strip(), parameter, attribute or "", int(number) if number else None))
    return found
