"""Pictures of PyTorch's allocator, as `torch.cuda._memory_viz`: MLX does not tell its allocations one by one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        raise AttributeError(
            f"module 'lucid.cuda._memory_viz' has no attribute {name!r}: MLX does not tell its allocations one by one; "
            "lucid.cuda.memory_summary tells what it counts"
        )
