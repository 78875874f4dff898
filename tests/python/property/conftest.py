"""How long hypothesis looks: the same examples in every run, or others with `LUCID_TEST_MAX_EXAMPLES=5000`."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

_EXAMPLES = int(os.environ.get("LUCID_TEST_MAX_EXAMPLES", "0"))
_SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]

settings.register_profile(
    "quick", max_examples=150, derandomize=True, deadline=None, database=None, suppress_health_check=_SLOW
)
settings.register_profile("long", max_examples=_EXAMPLES or 1, deadline=None, suppress_health_check=_SLOW)
settings.load_profile("long" if _EXAMPLES else "quick")
