"""Every public callable with hostile arguments, the same programs in each run; `make hostile` runs many more."""

from __future__ import annotations

import os

import pytest

from tests.python.fuzz.process import Child, one
from tests.python.hostile.compare import Differs, with_copies, with_temporaries
from tests.python.hostile.programs import CONDITIONS
from tests.python.hostile.sweep import MODULE, Report, paths, sweep

#: Programs of each run: every target under every condition, and most a second time.
PROGRAMS = int(os.environ.get("LUCID_HOSTILE_PROGRAMS", "60000"))


@pytest.fixture(scope="module")
def report() -> Report:
    # Work on giants may rightly take long: of it a share, for a short while.
    return sweep(900, jobs=2, most=PROGRAMS, patience=2.0, share=0.25, shrink=False)


def test_no_call_crashes_hangs_panics_or_lies(report: Report) -> None:
    assert not report.findings, report.text()


def test_nearly_all_callables_are_reached(report: Report) -> None:
    # Of those that take a tensor or a number, which are more than half of all.
    takers = len(paths()) - len(report.without - report.reached)
    assert len(report.reached) > 0.95 * takers, report.text()
    assert len(report.reached) > 0.5 * len(paths()), report.text()
    assert report.kinds["ok"] > report.calls / 2, report.text()


@pytest.mark.parametrize(
    ("program", "kind"),
    [
        ("import os; os.kill(os.getpid(), 11)", "crash (SIGSEGV)"),
        ("import os; os._exit(3)", "crash (exit code 3)"),
        ("import time; time.sleep(100)", "hang"),
        ("{}['a']", "KeyError"),
        ("class PanicException(BaseException): pass\nraise PanicException", "PanicException"),
        ("np.empty(1 << 32)", "MemoryError"),
        ("import mmap\nm = mmap.mmap(-1, 3 << 30)\nfor i in range(3 << 10): m.write(bytes(1 << 20))", "memory"),
        ("lucid.ones(3) @ lucid.ones(4)", "ShapeMismatch"),
    ],
)
def test_the_sweep_sees_what_is_wrong(program: str, kind: str) -> None:
    child = Child(MODULE)
    try:
        said, _ = one(child, {"program": program, "times": 1}, 5.0 if kind == "hang" else 60.0)
    finally:
        child.close()
    assert said["kind"] == kind, said
    assert said["finding"] == (kind not in ("MemoryError", "ShapeMismatch"))


def test_differences_of_temporaries_and_views_are_seen() -> None:
    import lucid

    calls: list[bool] = []

    def forgets(x: lucid.Tensor) -> lucid.Tensor:
        calls.append(True)
        return x + len(calls)

    with pytest.raises(Differs, match="argument"):
        with_temporaries(forgets, lucid.ones(3))
    with pytest.raises(Differs, match="copies"):
        with_copies(lambda x: lucid.tensor(x.stride()), lucid.ones(3, 4).t())
    with_temporaries(lambda x, y: x.sigmoid_() * y, lucid.ones(3), lucid.ones(3), grad=True)


def test_every_condition_writes_programs() -> None:
    from tests.python.hostile.programs import Programs

    write = Programs()
    for condition in CONDITIONS:
        texts = [write(path, condition, s) for path in ("lucid.where", "lucid.add") for s in range(5)]
        assert any(texts), condition
        for text in filter(None, texts):
            compile(text, condition, "exec")
