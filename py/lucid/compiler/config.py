"""Settings of PyTorch's compiler, as `torch.compiler.config`: kept and read back. Nothing is compiled here."""

from __future__ import annotations

job_id: str | None = None
cache_key_tag: str = ""
dynamic_sources: str = ""
unbacked_sources: str = ""
force_disable_caches: bool = False
