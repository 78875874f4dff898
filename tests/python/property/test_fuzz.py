"""A thousand calls of the fuzzer over every public callable, the same in each run; what it finds is a bug."""

from __future__ import annotations

import os

from tests.python import fuzz


def test_no_call_crashes_hangs_or_panics() -> None:
    longer = os.environ.get("LUCID_FUZZ_SECONDS")
    report, total = fuzz.fuzz(float(longer or 600), jobs=2, most=None if longer else 1000)
    assert not report.findings, report.text(total)
    assert report.calls > 100 and report.kinds["ok"] > report.calls / 5, report.text(total)


def test_the_fuzzer_sees_what_is_wrong() -> None:
    crash = fuzz.Child()
    try:
        assert crash.process.stdin is not None
        crash.process.kill()
        done, alive = fuzz.one(crash, ["lucid.add", 1, False])
    finally:
        crash.close()
    assert not alive and (done["kind"].startswith("crash") or done["kind"] == "ok")
    for text, kind in (("{}['a']", "KeyError"), ("1 / 0", "ZeroDivisionError"), ("(lambda: undefined)()", "NameError")):
        done = fuzz.run_case(text, False)
        assert done["finding"] and done["kind"] == kind
    for text in ("lucid.zeros(3)[5]", "lucid.add(1)", "T((2, 3), 'float32', 'gpu').view(7)"):
        done = fuzz.run_case(text, False)
        assert not done["finding"] and done["kind"] != "ok", done
    assert fuzz.run_case("lucid.ones(2, 2) @ lucid.ones(2, 2)", False)["kind"] == "ok"


def test_cases_are_replayable() -> None:
    found, rows = fuzz.targets(), fuzz.schemas()
    for path in ("lucid.add", "lucid.Tensor.view", "lucid.nn.functional.interpolate", "lucid.nn.Linear"):
        for seed in range(5):
            assert fuzz.call_text(path, found[path], rows, seed) == fuzz.call_text(path, found[path], rows, seed)
