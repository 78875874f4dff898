"""Each test has caches of its own, and leaves the runtime's settings as it found them."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path

import lucid
import lucid.lightning as lc
import pytest

with warnings.catch_warnings():
    # The one warning that another GPU than the one named is used.
    warnings.simplefilter("ignore")
    lucid.device("metal"), lucid.device("cuda")


@pytest.fixture(autouse=True)
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("LUCID_CACHE_DIR", str(tmp_path / "cache"))
    for name in lc.environment():
        monkeypatch.delenv(name, raising=False)
    lc.crossover_policy_set(lc.CrossoverPolicy())
    yield
    lc.runtime_trace_enable(False, capacity=4096)
    lc.runtime_trace_clear()
    lc.runtime_sync_policy_set("auto")
    lc.runtime_input_check_set("none")
    lc.crossover_policy_set(lc.CrossoverPolicy())
    lc.api.set_backend("lightning")
    lc.api.clear_attention_session_cache()
    monkeypatch.undo()
    lc.matmul_reset_tuning()
