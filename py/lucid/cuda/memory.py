"""The GPU's memory: what is in use, kept and free."""

from lucid.cuda._named import CUDA

__all__ = [
    "empty_cache",
    "max_memory_allocated",
    "max_memory_reserved",
    "mem_get_info",
    "memory_allocated",
    "memory_reserved",
    "memory_stats",
    "reset_max_memory_allocated",
    "reset_peak_memory_stats",
]

empty_cache = CUDA.empty_cache
memory_allocated = CUDA.memory_allocated
max_memory_allocated = CUDA.max_memory_allocated
memory_reserved = CUDA.memory_reserved
max_memory_reserved = CUDA.max_memory_reserved
memory_stats = CUDA.memory_stats
reset_peak_memory_stats = reset_max_memory_allocated = CUDA.reset_peak_memory_stats
mem_get_info = CUDA.memory_info
