"""Tolerances are stated in one table: no test has a number of its own."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.python.tolerances import BACKWARD, FORWARD, TABLE

TESTS = Path(__file__).resolve().parents[1]
NAMES = {"rtol", "atol", "rel", "abs", "tol", "tolerance", "rel_tol", "abs_tol"}

#: How many arguments are compared; tolerances may follow by position.
COMPARED = {"assert_allclose": 2, "allclose": 2, "assert_close": 2, "approx": 1}
#: Functions whose own tolerance is what the test is about.
SUBJECTS = {"pinv", "matrix_rank", "isclose", "gradcheck", "gradgradcheck", "nondet_tol", "lobpcg"}
#: Files in which it is, and why.
SUBJECT_FILES = {
    "parity/autograd/test_gradcheck_parity.py": "gradcheck's own tolerances",
    "parity/devices/test_on_the_gpu_parity.py": "gradcheck's own tolerances",
    "parity/programs/programs_of_models.py": "programs as users write them, run in both frameworks",
    "parity/programs/programs_of_science.py": "programs as users write them, run in both frameworks",
}


def _has_number(node: ast.expr) -> bool:
    """Is there a number that is no whole one, nor 0, as in `1e-5` and in `0.1 * scale`?"""
    return any(isinstance(n, ast.Constant) and isinstance(n.value, float) and n.value for n in ast.walk(node))


def literals(tree: ast.AST) -> list[int]:
    """The lines with tolerances as numbers: in calls, as defaults of parameters, and in variables of their names."""
    lines = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func).rpartition(".")[2]
            given = [k.value for k in node.keywords if k.arg in NAMES and called not in SUBJECTS]
            given += node.args[COMPARED.get(called, len(node.args)) :]
        elif isinstance(node, ast.FunctionDef):
            every = node.args
            pairs = list(zip(reversed(every.args), reversed(every.defaults), strict=False))
            pairs += [(a, d) for a, d in zip(every.kwonlyargs, every.kw_defaults, strict=True) if d is not None]
            given = [d for a, d in pairs if a.arg in NAMES]
        elif isinstance(node, ast.Assign):
            targets = {ast.unparse(t) for t in node.targets}
            given = [node.value] if targets & (NAMES | {"(rtol, atol)"}) else []
        else:
            continue
        lines += [node.lineno for value in given if _has_number(value)]
    return lines


@pytest.mark.parametrize("folder", sorted(p.name for p in TESTS.iterdir() if p.is_dir() and any(p.rglob("*.py"))))
def test_no_tolerance_is_left_outside_of_the_table(folder: str) -> None:
    found = []
    for path in sorted((TESTS / folder).rglob("*.py")):
        name = str(path.relative_to(TESTS))
        if name not in SUBJECT_FILES and name != "unit/test_tolerances.py":
            found += [f"{name}:{line}" for line in literals(ast.parse(path.read_text(encoding="utf-8")))]
    assert found == [], "name these in tests/python/tolerances.py"


def test_files_that_are_excepted_have_tolerances() -> None:
    assert [n for n in SUBJECT_FILES if not literals(ast.parse((TESTS / n).read_text(encoding="utf-8")))] == []


def test_every_exception_is_used_and_has_a_reason() -> None:
    text = "\n".join(p.read_text(encoding="utf-8") for p in TESTS.rglob("*.py") if p.name != "tolerances.py")
    by_dtype = ("one rounding of ", "arithmetic of ", "emulated ")
    assert [name for name in TABLE if f'"{name}"' not in text and not name.startswith(by_dtype)] == []
    assert all(len(t.reason) > 10 and t.rtol >= 0 and t.atol >= 0 for t in TABLE.values())
    assert FORWARD.keys() == BACKWARD.keys()


def test_numbers_are_found_wherever_they_are() -> None:
    program = "f(x, rtol=1e-5)\nrtol = 1e-5\ndef g(x, *, atol=1e-6): ...\nf(x, rtol=rtol)\nm.isclose(x, rtol=0.5)"
    program += "\nallclose(x, y, 0.1)"
    assert sorted(literals(ast.parse(program))) == [1, 2, 3, 6]
