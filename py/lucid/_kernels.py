"""Kernels that the user writes: what `metal.run_kernel` and `cuda.run_kernel` share."""

from __future__ import annotations

from collections.abc import Sequence

from lucid import _C


def _three(name: str, value: int | Sequence[int] | None) -> list[int] | None:
    if value is None:
        return None
    sizes = [value] if isinstance(value, int) else list(value)
    if not 1 <= len(sizes) <= 3 or any(n < 1 for n in sizes):
        raise ValueError(f"run_kernel: {name} must be one to three positive numbers, got {value!r}")
    return sizes + [1] * (3 - len(sizes))


def launch(
    language: str,
    source: str,
    kernel_name: str,
    inputs: Sequence[_C.Tensor],
    output_shape: Sequence[int],
    output_dtype: _C.dtype | None,
    grid: int | Sequence[int] | None,
    thread_group: int | Sequence[int] | None,
) -> _C.Tensor:
    """One launch of a kernel in Metal's or CUDA's language, recorded."""
    if output_dtype is None:
        if not inputs:
            raise ValueError("run_kernel: without inputs, output_dtype must be given")
        output_dtype = inputs[0].dtype
    sizes = (_three("grid", grid), _three("thread_group", thread_group))
    shape = list(output_shape)
    return _C._metal_run_kernel(source, kernel_name, list(inputs), shape, output_dtype, *sizes, language == "cuda")
