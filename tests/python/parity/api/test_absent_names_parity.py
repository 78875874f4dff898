"""Every public name of PyTorch's is there, or listed with a reason; and what is listed is not there."""

from __future__ import annotations

import importlib

import lucid
import pytest
import torch
import torch.nn.grad
import torch.nn.utils.prune
import torch.optim.swa_utils
import torch.utils.checkpoint

from tests.python.absent import ABSENT, COMPARED, MODULES, public


@pytest.mark.parametrize("module", COMPARED)
def test_every_name_is_there_or_listed(module: str) -> None:
    here = lucid.Tensor if module == "Tensor" else importlib.import_module(f"lucid.{module}".rstrip("."))
    names = public(torch, module)
    missing = {name for name in names if not hasattr(here, name)}
    listed = set(ABSENT.get(module, {}))
    assert not missing - listed, f"not there, and not listed: {sorted(missing - listed)}"
    there = {name for name in listed if hasattr(here, name)}
    assert not there, f"listed, but there: {sorted(there)}"


def test_only_what_is_compared_is_listed() -> None:
    assert not set(ABSENT) - set(COMPARED)


@pytest.mark.parametrize("module", MODULES)
def test_modules(module: str) -> None:
    with pytest.raises(ImportError):
        importlib.import_module(f"lucid.{module}")
