"""`testing.assert_close`: what it takes and refuses, with which words, beside PyTorch's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import lucid
import numpy as np
import pytest
import torch

NAN, INF = float("nan"), float("inf")
#: Two values, and how they are compared.
CASES: list[Callable[[Any], tuple[Any, ...]]] = [
    lambda m: (m.tensor([1.0, 2.0]), m.tensor([1.0, 3.0])),
    lambda m: (m.tensor([1.0, 2.0]), m.tensor([1.0, 2.000001])),
    lambda m: (m.tensor([1, 2]), m.tensor([1, 3])),
    lambda m: (m.tensor([[1.0, 2.0], [5.0, 6.0]]), m.tensor([[1.0, 3.0], [5.0, 6.0]])),
    lambda m: (1.0, 2.0),
    lambda m: (1.0, 1.0 + 1e-8),
    lambda m: (1.0, 0.0),
    lambda m: (1, 2),
    lambda m: (1, 1.0),
    lambda m: (1, 1.0, {"check_dtype": False}),
    lambda m: (2**70, 2**70 + 1),
    lambda m: (1 + 1j, 1 + 2j),
    lambda m: (True, False),
    lambda m: (None, 1),
    lambda m: (1, None),
    lambda m: (None, None),
    lambda m: (m.tensor(1.0), m.tensor(2.0)),
    lambda m: (m.tensor(3), m.tensor(2)),
    lambda m: (m.tensor(1.0), 1.0),
    lambda m: (1.0, m.tensor(1.0)),
    lambda m: (np.ones(2), np.zeros(2)),
    lambda m: (np.ones(2), np.ones(2)),
    lambda m: (np.float64(1), np.float64(2)),
    lambda m: (m.ones(2), m.ones(2, dtype=m.float64)),
    lambda m: (m.ones(2), m.ones(2, dtype=m.float64), {"check_dtype": False}),
    lambda m: (m.ones(2), m.zeros(2, dtype=m.int64), {"check_dtype": False}),
    lambda m: (m.ones(2), m.ones(3)),
    lambda m: (m.ones(2, 2).t(), m.ones(2, 2)),
    lambda m: (m.ones(2, 2).t(), m.ones(2, 2), {"check_stride": True}),
    lambda m: ([m.ones(2), 1.0], [m.ones(2), 2.0]),
    lambda m: ([1.0], (1.0,)),
    lambda m: ([1.0], [1.0, 2.0]),
    lambda m: ([], []),
    lambda m: (b"a", b"a"),
    lambda m: ({"a": 1.0}, {"b": 1.0}),
    lambda m: ({"a": {"b": [1.0, {"c": 2.0}]}}, {"a": {"b": [1.0, {"c": 3.0}]}}),
    lambda m: ("a", "a"),
    lambda m: (["a"], ["a"]),
    lambda m: (m.ones(2), [1.0, 1.0]),
    lambda m: (m.ones(2), m.zeros(2), {"rtol": 1e-3}),
    lambda m: (m.ones(2), m.zeros(2), {"atol": 1e-3}),
    lambda m: (m.ones(2), m.ones(2) + 1, {"rtol": 0.5, "atol": 0.1}),
    lambda m: (m.ones(2), m.ones(2) + 1, {"rtol": 0.1, "atol": 0.1}),
    lambda m: (m.ones(2), m.ones(2) + 1, {"rtol": 0, "atol": 0}),
    lambda m: (1.0, 2.0, {"rtol": 0.5, "atol": 0}),
    lambda m: (m.tensor([NAN]), m.tensor([NAN])),
    lambda m: (m.tensor([NAN]), m.tensor([NAN]), {"equal_nan": True}),
    lambda m: (NAN, NAN),
    lambda m: (NAN, NAN, {"equal_nan": True}),
    lambda m: (INF, INF),
    lambda m: (m.tensor([INF, 1.0]), m.tensor([-INF, 1.0])),
    lambda m: (m.tensor([INF, 1.0]), m.tensor([INF, 1.0])),
    lambda m: (m.ones(2), m.zeros(2), {"msg": "hello"}),
    lambda m: (m.ones(2), m.zeros(2), {"msg": lambda text: "before\n" + text}),
    lambda m: ([m.ones(2)], [m.zeros(2)], {"msg": "hello"}),
    lambda m: (m.tensor([True, False]), m.tensor([True, True])),
    lambda m: (m.tensor([1 + 1j]), m.tensor([1 + 2j])),
    lambda m: (m.ones(0), m.ones(0)),
    lambda m: (m.ones(2, dtype=m.float16), m.ones(2, dtype=m.float16) * 1.01),
    lambda m: (m.ones(2, dtype=m.float16), m.ones(2, dtype=m.float16) * 1.0005),
    lambda m: (m.ones(2, dtype=m.bfloat16), m.ones(2, dtype=m.bfloat16) * 1.01),
    lambda m: (m.ones(2, dtype=m.uint8), m.zeros(2, dtype=m.uint8)),
    lambda m: (m.nn.Parameter(m.ones(1)), m.ones(1)),
    lambda m: (m.nn.Parameter(m.ones(1)), m.ones(1), {"allow_subclasses": False}),
    lambda m: (m.ones(2, 3).expand(2, 2, 3), m.zeros(2, 2, 3)),
    lambda m: (m.ones(1).to_sparse(), m.ones(1)),
    lambda m: (m.ones(1).to_sparse(), m.ones(1), {"check_layout": False}),
    lambda m: (m.ones(1).to_sparse(), m.zeros(1).to_sparse()),
    lambda m: (m.ones(2).to_sparse(), m.tensor([1.0, 2.0]).to_sparse()),
    lambda m: (m.eye(2).to_sparse(), m.tensor([[1.0, 0.0], [1.0, 0.0]]).to_sparse()),
    lambda m: (m.tensor([0.0]), m.tensor([1e-3])),
    lambda m: (object(), object()),
]


def outcome(m: Any, case: Callable[[Any], tuple[Any, ...]]) -> tuple[str, str] | None:
    actual, expected, *options = case(m)
    try:
        m.testing.assert_close(actual, expected, **(options[0] if options else {}))
    except Exception as e:
        name = f"{type(e).__name__}"
        return name, str(e).replace("lucid", "torch").replace("torch.nn.parameter.Parameter", "torch.nn.Parameter")
    return None


@pytest.mark.parametrize("i", range(len(CASES)))
def test_as_pytorch(i: int) -> None:
    assert outcome(lucid, CASES[i]) == outcome(torch, CASES[i])


def test_devices_and_what_pytorch_fails_at() -> None:
    a, b = lucid.ones(2), lucid.ones(2, device="gpu")
    with pytest.raises(AssertionError, match="attribute 'device' do not match"):
        lucid.testing.assert_close(a, b)
    lucid.testing.assert_close(a, b, check_device=False)
    lucid.testing.assert_close(b, b.clone())
    with pytest.raises(AssertionError, match=r"1 / 2 \(50.0%\)"):
        lucid.testing.assert_close(b, lucid.tensor([1.0, 2.0], device="gpu"))
    with pytest.raises(TypeError, match="No comparison pair"):
        lucid.testing.assert_close(True, 1)
