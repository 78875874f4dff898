"""Every public class and function of `lucid.distributions` is documented, and every example runs."""

from __future__ import annotations

import doctest
import importlib
import inspect
import pkgutil
from typing import Any

import lucid
import lucid.distributions as LD
import pytest

MODULES = sorted(m.name for m in pkgutil.iter_modules(LD.__path__, "lucid.distributions."))


@pytest.mark.parametrize("name", MODULES)
def test_examples(name: str) -> None:
    module = importlib.import_module(name)
    lucid.manual_seed(0)
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    for example in doctest.DocTestFinder().find(module, extraglobs={"lucid": lucid}):
        runner.run(example)
    assert runner.failures == 0


PUBLIC = sorted(
    {(n, m) for m in ["lucid.distributions", *MODULES] for n in getattr(importlib.import_module(m), "__all__", ())}
)


def public(module: str, name: str) -> Any:
    return getattr(importlib.import_module(module), name)


@pytest.mark.parametrize(("name", "module"), PUBLIC)
def test_docstrings(name: str, module: str) -> None:
    item = public(module, name)
    if not (inspect.isclass(item) or inspect.isfunction(item)):
        assert item is not None
        return
    doc = inspect.getdoc(item) or ""
    assert doc, name
    if item is LD.constraints.Constraint or name in ("dependent_property", "ConstraintRegistry"):
        assert ">>>" in doc
        return
    parameters = [p for p in inspect.signature(item).parameters if not p.startswith("_")]
    if parameters and item.__module__ != "lucid.distributions.constraints":
        assert "Args:" in doc, name
        missing = [p for p in parameters if p not in doc.split("Args:")[1]]
        assert not missing, f"{name}: {missing}"
        assert ">>>" in doc, name


@pytest.mark.parametrize(
    "name", [n for n in LD.__all__ if inspect.isclass(getattr(LD, n)) and issubclass(getattr(LD, n), LD.Distribution)]
)
def test_distributions_state_their_density(name: str) -> None:
    doc = inspect.getdoc(getattr(LD, name)) or ""
    assert any(sign in doc for sign in ("p(", "P(", "sample + p", "exp(", "K`")) or name == "Distribution", name
    for member in ("sample", "log_prob", "mean", "expand"):
        assert inspect.getdoc(getattr(getattr(LD, name), member)), (name, member)
