"""Programs in PyTorch's idioms run with PyTorch and with Lucid on both devices: losses, weights and answers agree."""

from __future__ import annotations

from typing import Any

import lucid
import lucid.func
import numpy as np
import pytest
import torch
import torch.func

from tests.python.parity.ops.test_table_parity import to_numpy
from tests.python.parity.programs import (  # noqa: F401
    programs_of_models,
    programs_of_perception,
    programs_of_repositories,
    programs_of_science,
)
from tests.python.parity.programs.programs import PROGRAMS, Draws
from tests.python.tolerances import near, within


def agree(ours: Any, theirs: Any, where: str) -> None:
    if isinstance(theirs, torch.Tensor):
        assert isinstance(ours, lucid.Tensor), where
        assert str(ours.dtype).partition(".")[2] == str(theirs.dtype).partition(".")[2], where
        assert tuple(ours.shape) == tuple(theirs.shape), where
        np.testing.assert_allclose(to_numpy(ours), to_numpy(theirs), **within("whole programs"), err_msg=where)
    elif isinstance(theirs, (list, tuple)):
        assert len(ours) == len(theirs), (where, ours, theirs)
        for i, (o, t) in enumerate(zip(ours, theirs, strict=True)):
            agree(o, t, f"{where}[{i}]")
    elif isinstance(theirs, float):
        assert ours == pytest.approx(theirs, **near("whole programs")), where
    else:
        assert ours == theirs, where


@pytest.mark.parametrize("device", ["cpu", "gpu"])
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.filterwarnings("ignore")
def test_same_as_pytorch(name: str, device: str) -> None:
    theirs = PROGRAMS[name](torch, "cpu", Draws(torch, "cpu"))
    agree(PROGRAMS[name](lucid, device, Draws(lucid, device)), theirs, name)
