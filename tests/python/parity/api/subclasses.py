"""What the tests of subclasses share: classes for both libraries, and what comes out of a call in a form to compare."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import lucid
import numpy as np
import pytest
import torch

from tests.python.tolerances import near

DEVICES = ("cpu", "gpu")


class LucidPlain(lucid.Tensor):
    """A subclass with nothing of its own. Classes of this file are at its top, so that they can be pickled."""


class TorchPlain(torch.Tensor):
    pass


class LucidDeep(LucidPlain):
    pass


class TorchDeep(TorchPlain):
    pass


class LucidOther(lucid.Tensor):
    pass


class TorchOther(torch.Tensor):
    pass


PLAIN = {lucid: LucidPlain, torch: TorchPlain}
DEEP = {lucid: LucidDeep, torch: TorchDeep}
OTHER = {lucid: LucidOther, torch: TorchOther}


def tensor(L: Any, device: str, data: Any = None, kind: str = "float32") -> Any:
    data = [[1.0, 2.0, 0.5], [4.0, 3.0, 2.0]] if data is None else data
    return L.tensor(data, dtype=getattr(L, kind), device=device if L is lucid else "cpu")


def kinds(L: Any, value: Any) -> Any:
    """The classes and values of a result, without the library's name."""
    if isinstance(value, L.Tensor):
        name = type(value).__name__.removeprefix("Lucid").removeprefix("Torch")
        plain = value.as_subclass(L.Tensor).detach().cpu()
        return name, (plain.tolist() if plain.dtype is not L.bfloat16 else plain.float().tolist())
    if isinstance(value, L.Size):
        return "Size", tuple(value)
    if isinstance(value, tuple | list):
        return [kinds(L, v) for v in value]
    if isinstance(value, np.ndarray):
        return "ndarray", value.tolist()
    if isinstance(value, bool | int | float | complex | str | None):
        return value
    return str(value).replace("torch.", "").replace("lucid.", "")


def outcome(L: Any, act: Callable[[], Any]) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return kinds(L, act())
        except Exception as error:
            return next(
                k.__name__
                for k in (TypeError, IndexError, ValueError, AttributeError, RuntimeError)
                if isinstance(error, k)
            )


def same(act: Callable[[Any, str], Any], device: str) -> Any:
    ours, theirs = (outcome(L, lambda L=L: act(L, device)) for L in (lucid, torch))
    approximately(ours, theirs)
    return ours


def approximately(a: Any, b: Any) -> None:
    if isinstance(a, float) and isinstance(b, float):
        assert a == pytest.approx(b, **near("few ops"), nan_ok=True)
    elif isinstance(a, tuple | list) and isinstance(b, tuple | list):
        assert len(a) == len(b), (a, b)
        for x, y in zip(a, b, strict=True):
            approximately(x, y)
    else:
        assert a == b
