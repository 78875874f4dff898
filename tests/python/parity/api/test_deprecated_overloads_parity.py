"""PyTorch's older overloads, with the numbers of keywords by position: what PyTorch still takes, and nothing else."""

from __future__ import annotations

import subprocess
import sys
import warnings
from typing import Any

import lucid
import numpy as np
import pytest
import torch

from tests.python.parity.ops.test_table_parity import to_numpy
from tests.python.tolerances import TABLE

# `m` is the package; `x`, `a` and `b` are 2 by 2, `B` and `C` 3 by 2 by 2, `v` and `w` have 2 elements, `s` is 0-d,
# `r` asks for a gradient, `o`, `o1` and `o3` are outputs like `x`, `v` and `B`, `i` are integers like `x`.
CALLS = """
m.add(x, 2, a); x.add(2, a); x.add_(2, a); m.sub(x, 2, a); x.sub(2, a); x.sub_(2, a); m.add(x, 2.5, a); m.add(x, s, a)
m.add(x, 2, a, out=o); m.sub(x, 2, a, out=o); m.add(x, 2, other=a); x.add(2, other=a); m.add(x, 2, 3); x.add(2, 3)
m.add(1, 2, x); m.add(x, True, a); m.add(x, 2j, a); m.add(x, None, a); m.add(x, a, 2); m.add(x, 2, a, alpha=3)
m.add(2, x, a); x.sub(a, 2); m.add(x, 2); m.add(i, 2, i); i.add_(2, i); m.add(i, 2.5, i); i.add_(2, x); m.add(r, 2, r)
m.rsub(x, 2, a); m.mul(x, 2, a); x.mul(2, a); x.div(2, a); m.div(x, 2, a); m.eq(x, 2, a); x.lerp(2, a)
x.bitwise_and(2, a); m.addmm(2, x, 3, a, b); m.addmm(2, x, a, b); x.addmm(2, 3, a, b); x.addmm(2, a, b)
x.addmm_(2, 3, a, b); x.addmm_(2, a, b); m.addmm(2, x, 3, a, b, out=o); m.addmm(2, x, a, b, out=o)
m.addmm(2, x, 3, mat1=a, mat2=b); m.addmm(2, input=x, mat1=a, mat2=b); m.addmm(2.5, x, 1.5, a, b)
m.addmm(s, x, s, a, b)
m.addmm(2, x, a, b, alpha=2); m.addmm(x, a, b, 2, 3); m.addmm(2, 3, a, b); m.addmm(x, 2, 3, a, b); x.addmm_(2, 3, a)
x.addmm(2, x, 3, a, b); m.addmm(2, x, 3, i, b); m.addmm(2, r, 3, r, b); m.addbmm(2, x, 3, B, C); m.addbmm(2, x, B, C)
x.addbmm(2, 3, B, C); x.addbmm(2, B, C); x.addbmm_(2, 3, B, C); x.addbmm_(2, B, C); m.addbmm(2, x, 3, B, C, out=o)
m.baddbmm(2, B, 3, B, C); m.baddbmm(2, B, B, C); B.baddbmm(2, 3, B, C); B.baddbmm(2, B, C)
(B * 2).baddbmm_(2, 3, B, C); (B * 2).baddbmm_(2, B, C); m.baddbmm(2, B, 3, B, C, out=o3); m.baddbmm(B, B, C, 2, 3)
m.addmv(2, v, 3, a, w); m.addmv(2, v, a, w); v.addmv(2, 3, a, w); v.addmv(2, a, w); v.addmv_(2, 3, a, w)
v.addmv_(2, a, w); m.addmv(2, v, 3, a, w, out=o1); m.addmv(2, a, 3, a, x); m.addr(2, x, 3, v, w); m.addr(2, x, v, w)
x.addr(2, 3, v, w); x.addr(2, v, w); x.addr_(2, 3, v, w); x.addr_(2, v, w); m.addr(2, x, 3, v, w, out=o)
m.addcmul(x, 2, a, b); x.addcmul(2, a, b); x.addcmul_(2, a, b); m.addcmul(x, 2, a, b, out=o)
x.addcmul(2, tensor1=a, tensor2=b); m.addcmul(x, 2, tensor1=a, tensor2=b); m.addcmul(r, 2, r, b); m.addcdiv(x, 2, a, b)
x.addcdiv(2, a, b); x.addcdiv_(2, a, b); m.addcdiv(x, 2, a, b, out=o); m.addcdiv(x, 2, a)
"""


def values(m: Any, **k: Any) -> dict[str, Any]:
    x = m.arange(1.0, 5.0, **k).reshape(2, 2)
    cube = m.arange(12.0, **k).reshape(3, 2, 2)
    return {
        "m": m,
        "x": x.clone(),
        "a": x + 1,
        "b": x * 0.5 - 4,
        "i": x.to(m.int64),
        "B": cube,
        "C": cube - 5,
        "v": m.tensor([1.0, -2.0], **k),
        "w": m.tensor([3.0, 0.5], **k),
        "s": m.tensor(1.5, **k),
        "r": x.clone().requires_grad_(),
        "o": m.zeros(2, 2, **k),
        "o1": m.zeros(2, **k),
        "o3": m.zeros(3, 2, 2, **k),
    }


def outcome(m: Any, text: str, **k: Any) -> Any:
    """The result, with what the names hold then, or the kind of error."""
    own = values(m, **k)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            made = eval(text, own)
            if made.requires_grad:
                made.sum().backward()
                return [("made", to_numpy(made.detach())), ("gradient", to_numpy(own["r"].grad))]
        except Exception as e:
            return type(e)
        seen = [made, *(own[name] for name in ("x", "i", "B", "v", "o", "o1", "o3"))]
        return [(str(t.dtype).partition(".")[2], to_numpy(t)) for t in seen]


@pytest.mark.parametrize("device", ["cpu", "gpu"])
@pytest.mark.parametrize("text", [part.strip() for part in CALLS.replace("\n", ";").split(";") if part.strip()])
def test_numbers_by_position(text: str, device: str) -> None:
    theirs, ours = outcome(torch, text), outcome(lucid, text, device=device)
    if isinstance(theirs, type):
        assert isinstance(ours, type) and issubclass(ours, theirs), (ours, theirs)
        return
    assert not isinstance(ours, type), ours
    for (kind, o), (wanted, t) in zip(ours, theirs, strict=True):
        assert kind == wanted
        np.testing.assert_allclose(o, t, rtol=TABLE["rounding"].rtol)


def test_they_warn_once_in_a_process() -> None:
    code = (
        "import warnings, lucid\n"
        "x = lucid.ones(2)\n"
        "with warnings.catch_warnings(record=True) as seen:\n"
        "    warnings.simplefilter('always')\n"
        "    x.add(2, x), lucid.add(x, 2, x), lucid.addcmul(x, 2, x, x), x.add(x, alpha=2)\n"
        "print(*(f'{w.category.__name__}: {w.message}' for w in seen), sep='\\n')\n"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said.strip() == (
        "UserWarning: This overload of add is deprecated: add(alpha, other). "
        "Use add(other, alpha=1) instead, with the numbers as keywords."
    )
    theirs = subprocess.run([sys.executable, "-c", code.replace("lucid", "torch")], capture_output=True, text=True)
    assert theirs.stdout.startswith("UserWarning: This overload of add is deprecated:"), theirs


def test_a_warning_that_is_an_error_stops_the_call() -> None:
    code = (
        "import warnings, lucid\n"
        "warnings.simplefilter('error')\n"
        "x = lucid.ones(2)\n"
        "for _ in range(2):\n"
        "    try:\n"
        "        x.add_(2, x)\n"
        "        print('wrote', x.tolist())\n"
        "    except UserWarning:\n"
        "        print('warned', x.tolist())\n"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    # Once in a process, as in PyTorch: the second call writes.
    assert said.split("\n")[:2] == ["warned [1.0, 1.0]", "wrote [3.0, 3.0]"]


def test_a_subclass_is_asked_once_with_the_arguments_as_they_came() -> None:
    for m in (torch, lucid):
        seen = []

        class Own(m.Tensor):  # type: ignore[name-defined, misc]
            @classmethod
            def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
                if function.__name__ == "add":
                    seen.append(len(args))  # noqa: B023
                return super().__torch_function__(function, types, args, kwargs or {})

        x = m.ones(2).as_subclass(Own)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            made = x.add(2, x)
        assert (seen, made.tolist(), type(made)) == ([3], [3.0, 3.0], Own)
