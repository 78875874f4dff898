"""Which results require a gradient that is zero by construction, against PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import lucid
import pytest
import torch

DEVICES = ["cpu", "gpu"]
CALLS: dict[str, Callable[..., Any]] = {
    "copysign of it": lambda m, a, b: m.copysign(a, b),
    "copysign by it": lambda m, a, b: m.copysign(b, a),
    "copysign by more of it": lambda m, a, b: m.copysign(b[0], a),
    "copysign of both": lambda m, a, b: m.copysign(a, a),
    "copysign by a number": lambda m, a, b: m.copysign(a, -2.0),
    "copysign, in place": lambda m, a, b: b.clone().copysign_(a),
    "cat of an empty vector": lambda m, a, b: m.cat([b, a[:0, 0]]),
    "cat with an empty vector": lambda m, a, b: m.cat([a, a[:0, 0], b]),
    "cat of integers": lambda m, a, b: m.cat([b.long(), a]),
    **{
        f"{name}, beta {beta}, alpha {alpha}": lambda m, a, b, f=f, beta=beta, alpha=alpha: f(m, a, b, beta, alpha)
        for beta, alpha in ((0, 1), (1, 0), (0, 0), (0.5, 2))
        for name, f in {
            "addmm": lambda m, a, b, beta, alpha: m.addmm(a, b, b, beta=beta, alpha=alpha),
            "addmm of a row": lambda m, a, b, beta, alpha: m.addmm(a[0], b, b, beta=beta, alpha=alpha),
            "addmm of its factor": lambda m, a, b, beta, alpha: m.addmm(b, a, b, beta=beta, alpha=alpha),
            "addmm, in place": lambda m, a, b, beta, alpha: (a * 1).addmm_(b, b, beta=beta, alpha=alpha),
            "baddbmm": lambda m, a, b, beta, alpha: m.baddbmm(a[None], b[None], b[None], beta=beta, alpha=alpha),
            "addbmm": lambda m, a, b, beta, alpha: m.addbmm(a, b[None], b[None], beta=beta, alpha=alpha),
            "addmv": lambda m, a, b, beta, alpha: m.addmv(a[0], b, b[0], beta=beta, alpha=alpha),
            "addr": lambda m, a, b, beta, alpha: m.addr(a, b[0], b[0], beta=beta, alpha=alpha),
        }.items()
    },
    "add of none of it": lambda m, a, b: m.add(b, a, alpha=0),
    "sign": lambda m, a, b: m.sign(a),
    "nothing of a triangle": lambda m, a, b: a.tril(-5),
    "the power 0": lambda m, a, b: a**0,
}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", CALLS)
def test_gradients_that_are_zero(name: str, device: str) -> None:
    found = []
    for m, on in ((lucid, device), (torch, "cpu")):
        nan = float("nan")
        a = m.tensor([[1.0, -2.0], [nan if "beta 0," in name and "factor" not in name else 3.0, 0.5]], device=on)
        a.requires_grad_()
        y = CALLS[name](m, a, m.ones(2, 2, device=on))
        (g,) = m.autograd.grad(y.sum(), a, allow_unused=True)
        # PyTorch's product by 0 is +0.
        numbers = (y.detach() + 0.0).tolist()
        found.append([y.requires_grad, y.grad_fn.name(), numbers, None if g is None else g.tolist()])
    assert repr(found[0]) == repr(found[1])


@pytest.mark.parametrize("device", DEVICES)
def test_tangents_that_are_zero(device: str) -> None:
    found = []
    for m, on in ((lucid, device), (torch, "cpu")):
        a, b = m.tensor([1.0, -2.0], device=on), m.ones(2, device=on)
        for f in (lambda t, m=m, b=b: m.copysign(b, t), lambda t, m=m, b=b: m.copysign(t, b)):
            out, tangent = m.func.jvp(f, (a,), (b,))
            found.append([out.tolist(), [abs(v) for v in tangent.tolist()]])
    assert found[:2] == found[2:]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("asks", [False, True])
def test_a_tensor_that_is_written_over_itself(asks: bool, device: str) -> None:
    found = []
    for m, on in ((lucid, device), (torch, "cpu")):
        base = m.tensor([[1.0, 2.0], [3.0, 4.0]], device=on).requires_grad_(asks) * 1
        wide = base.expand(3, 2, 2)
        first = base._version

        def write(name: str, base: Any = base, wide: Any = wide) -> str:
            try:
                if name == "item":
                    wide[...] = base
                elif name == "copy":
                    wide.copy_(base)
                elif name == "itself":
                    wide.copy_(wide)
                elif name == "another":
                    wide.copy_(base.clone())
                else:
                    wide.copy_(base[:, :1])
            except RuntimeError:
                return "refused"
            return "done"

        did = [write(name) for name in ("another", "part", *(() if asks else ("item", "copy", "itself")))]
        found.append([did, wide.tolist(), base._version - first])
    assert found[0] == found[1]
