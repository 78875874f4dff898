"""`associative_scan` against cumulative ops, and against one element after the other."""

from __future__ import annotations

from typing import Any

import lucid
import pytest
from lucid._higher_order_ops import cond, while_loop
from lucid._higher_order_ops.associative_scan import associative_scan

from tests.python.tolerances import within


@pytest.mark.parametrize("mode", ["pointwise", "generic"])
@pytest.mark.parametrize("device", ["cpu", "gpu"])
@pytest.mark.parametrize("n", [1, 2, 3, 7, 8])
def test_sums_and_recurrences(n: int, device: str, mode: str) -> None:
    x = lucid.randn(3, n, 2, device=device, requires_grad=True)
    for reverse in (False, True):
        found = associative_scan(lambda a, b: a + b, x, 1, reverse, mode)
        expected = x.flip(1).cumsum(1).flip(1) if reverse else x.cumsum(1)
        assert lucid.allclose(found, expected, **within("near zero"))
    (grad,) = lucid.autograd.grad(found.square().sum(), x)
    (wanted,) = lucid.autograd.grad(expected.square().sum(), x)
    assert lucid.allclose(grad, wanted, **within("deep program"))

    # h = a h + b, which state space models scan.
    def step(left: Any, right: Any) -> Any:
        return {"a": left["a"] * right["a"], "b": right["a"] * left["b"] + right["b"]}

    a, b = (lucid.rand(3, n, device=device) for _ in range(2))
    found = associative_scan(step, {"a": a, "b": b}, -1, combine_mode=mode)["b"]
    h = lucid.zeros(3, device=device)
    for i in range(n):
        h = a[:, i] * h + b[:, i]
        assert lucid.allclose(found[:, i], h, **within("near zero"))


def test_what_does_not_fit() -> None:
    x = lucid.ones(2, 3)
    for call, why in (
        (lambda: associative_scan(lambda a, b: a, x, 2), "dim 2"),
        (lambda: associative_scan(lambda a, b: a, [], 0), "at least one"),
        (lambda: associative_scan(lambda a, b: a, [x, lucid.ones(3, 3)], 0), "sizes"),
        (lambda: associative_scan(lambda a, b: (a, b), x, 0), "structure"),
        (lambda: associative_scan(lambda a, b: a.sum(), x, 0), "shapes"),
        (lambda: associative_scan(lambda a, b: a, x, 0, combine_mode="other"), "combine_mode"),
    ):
        with pytest.raises(ValueError, match=why):
            call()
    assert cond is lucid.cond and while_loop is lucid.while_loop
