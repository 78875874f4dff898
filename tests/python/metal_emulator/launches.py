"""Launches of small kernels."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tools.metal.emulator import Launch, run
from tools.metal.mlx_text import Argument, Template

METAL = {
    "INDEX": "thread_position_in_grid.x",
    "LANE": "thread_position_in_threadgroup.x",
    "SHARED": "threadgroup",
    "BARRIER": "threadgroup_barrier(mem_flags::mem_threadgroup)",
}
CUDA = {
    "INDEX": "(blockIdx.x * blockDim.x + threadIdx.x)",
    "LANE": "threadIdx.x",
    "SHARED": "__shared__",
    "BARRIER": "__syncthreads()",
}


def launch(
    language: str,
    body: str,
    inputs: dict[str, np.ndarray],
    outputs: dict[str, tuple[str, tuple[int, ...]]],
    grid: int | tuple[int, int, int] = 64,
    group: int | tuple[int, int, int] = 32,
    *,
    header: str = "",
    template: Template = (),
    atomic: bool = False,
    init_value: float | None = None,
    kinds: dict[str, str] | None = None,
) -> list[np.ndarray]:
    """Runs a body in which INDEX, LANE, SHARED and BARRIER stand for the language's words."""
    for word, meaning in (METAL if language == "metal" else CUDA).items():
        body, header = body.replace(word, meaning), header.replace(word, meaning)
    three = [n if isinstance(n, tuple) else (n, 1, 1) for n in (grid, group)]
    arguments: Sequence[tuple[Argument, bytes]] = [
        (Argument(name, (kinds or {}).get(name, str(a.dtype)), a.shape), a.tobytes()) for name, a in inputs.items()
    ]
    results = [Argument(name, dtype, shape) for name, (dtype, shape) in outputs.items()]
    made = run(language, Launch("test", header, body, arguments, results, *three, template, atomic, init_value))
    plain = {"bfloat16": "uint16"}
    return [np.frombuffer(m, plain.get(r.dtype, r.dtype)).reshape(r.shape) for m, r in zip(made, results, strict=True)]
