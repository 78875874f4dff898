"""Saved tensors, against PyTorch: an operand or a result that is written after the op, and then the gradient.

What PyTorch has no need of may be written here too. What it refuses to differentiate is refused here, or has the
gradient of what was there: an op that is made of others there may keep less here.
"""

from __future__ import annotations

import warnings
from typing import Any

import lucid
import numpy as np
import pytest
import torch

from tests.python import limitations
from tests.python.parity.ops.test_table_parity import (
    lucid_tensor,
    name_of,
    named,
    to_numpy,
    torch_function,
    torch_tensor,
)
from tests.python.samples import Data, Sample, lucid_function, results, rows, samples
from tests.python.tolerances import within

DEVICES = ["cpu", "gpu"]
ROWS = [r for r in rows() if r["torch"] != "-" and r["differentiable"] and "float64" in r["dtypes"]]
VALUES_ALONE = "the vectors, which the gradient needs, are found when it is asked for, from the matrix"
#: Operands that PyTorch has a copy of, or makes something else of, where the tape here needs them as they were.
KEPT_HERE = {
    "matmul": "PyTorch lays broadcast batches out anew; the copies are what it keeps",
    "kron": "PyTorch lays its factors out anew; the copies are what it keeps",
    "ldexp": "PyTorch's power of two is of another dtype, and the operand's copy in it is kept",
    "frexp": "PyTorch keeps the exponent, which here is another op's result",
    "scaled_dot_product_attention": "PyTorch's for short sequences keeps the scaled operands",
    "linalg_eigvalsh": VALUES_ALONE,
    "linalg_svdvals": VALUES_ALONE,
    "svd": VALUES_ALONE,
    "linalg_cond": VALUES_ALONE,
    "linalg_matrix_norm": VALUES_ALONE,
    "linalg_norm": VALUES_ALONE,
    "nuclear_norm": VALUES_ALONE,
}


def run(m: Any, row: Any, sample: Sample, device: str, asks: tuple[int, ...], write: tuple[str, int] | None) -> Any:
    """The gradients, or "refused"; `None` where there is nothing to write or to ask."""
    leaves: list[Any] = []
    operands: list[Any] = []
    dtype = "float32" if device == "gpu" else "float64"

    def convert(d: Data) -> Any:
        wanted = len(operands) in asks
        made = torch_tensor(d, dtype, "", wanted) if m is torch else lucid_tensor(d, dtype, "", wanted, device)
        leaves.extend([made] if wanted else [])
        operands.append(made.clone())
        return operands[-1]

    args, kwargs = sample.map(convert)
    m.manual_seed(0)
    function = torch_function(row) if m is torch else lucid_function(row)
    out = results(function(*[named(a, m) for a in args], **{k: named(v, m) for k, v in kwargs.items()}))
    roots = [t for t in out if isinstance(t, m.Tensor) and t.requires_grad]
    if not roots:
        return None
    if write is not None:
        pool = [t for t in (operands if write[0] == "operand" else out) if isinstance(t, m.Tensor)]
        if write[1] >= len(pool):
            return None
        try:
            with m.no_grad():
                pool[write[1]].zero_()
        except RuntimeError:
            return None
    try:
        grads = m.autograd.grad(roots, leaves, [m.ones_like(t) for t in roots], allow_unused=True)
    except RuntimeError as e:
        assert "modified by an inplace operation" in str(e) or "modified inplace" in str(e), (
            f"{row['name']}({sample.text}): {e}"
        )
        return "refused"
    return [np.zeros(tuple(x.shape)) if g is None else to_numpy(g) for g, x in zip(grads, leaves, strict=True)]


def plain(t: Any) -> Any:
    return t.detach().cpu().tolist()


def close(a: Any, b: Any) -> bool:
    return all(np.allclose(x, y, **within("second derivatives"), equal_nan=True) for x, y in zip(a, b, strict=True))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("row", ROWS, ids=name_of)
def test_operands_and_results_that_are_written(row: Any, device: str) -> None:
    if limitations.known(row["name"], device, "float32" if device == "gpu" else "float64"):
        return
    for sample in samples(row, device):
        data = sample.tensors()
        able = [i for i, d in enumerate(data) if d.varies and d.gradient]
        writes = [("operand", i) for i in range(len(data))] + [("result", i) for i in range(4)]
        for asks in sorted({tuple(able), *((i,) for i in able)} - {()}):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                try:
                    plain = run(torch, row, sample, device, asks, None)
                except (RuntimeError, AssertionError):
                    continue  # PyTorch has no gradient of it.
                ours = run(lucid, row, sample, device, asks, None)
                if plain is None or ours is None or plain == "refused":
                    continue
                for write in writes:
                    where = f"{row['name']}({sample.text}) {asks} {write}"
                    wanted = run(torch, row, sample, device, asks, write)
                    got = run(lucid, row, sample, device, asks, write)
                    if wanted is None or got is None:
                        continue
                    if isinstance(got, str):
                        assert wanted == "refused" or row["name"] in KEPT_HERE, where
                    else:
                        # Whatever was written, the gradient is that of what the op was given.
                        assert close(got, ours), where


PARTS = {
    "svd": lambda m, x: m.linalg.svd(x),
    "thin svd": lambda m, x: m.linalg.svd(x, full_matrices=False),
    "eigh": lambda m, x: m.linalg.eigh(x @ x.mT),
    "qr": lambda m, x: m.linalg.qr(x),
    "complete qr": lambda m, x: m.linalg.qr(x, mode="complete"),
    "geqrf": lambda m, x: m.geqrf(x),
    "eig": lambda m, x: m.linalg.eig(x),
    "slogdet": lambda m, x: m.slogdet(x),
    "slogdet of one": lambda m, x: m.slogdet(x[None]),
    "lu": lambda m, x: m.linalg.lu(x),
    "sort": lambda m, x: x.sort(0),
    "max": lambda m, x: x.max(0),
    "topk": lambda m, x: x.topk(2),
    "cummax": lambda m, x: x.cummax(0),
    "aminmax": lambda m, x: m.aminmax(x),
    "var_mean": lambda m, x: m.var_mean(x, 0),
    "unsafe_chunk": lambda m, x: x.unsafe_chunk(2),
    "unsafe_split": lambda m, x: x.unsafe_split(1),
}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", PARTS)
def test_a_write_to_one_of_several_results_is_none_to_the_others(name: str, device: str) -> None:
    rows = [[2.0, 0.3, 0.1], [0.2, 3.0, 0.4], [0.5, 0.7, 5.0]]

    def f(m: Any, device: str) -> Any:
        x = m.tensor(rows, device=device, requires_grad=True)
        found = []
        for i in range(len(PARTS[name](m, x))):
            parts = PARTS[name](m, x)
            if not parts[i].requires_grad:
                continue
            first = [t._version for t in parts]
            others = [t for t in parts if t is not parts[i] and t.requires_grad and not t.is_complex()]
            uses = [(t * t).sum() for t in others]
            with m.no_grad():
                parts[i].zero_()
            found.append([t._version - n for t, n in zip(parts, first, strict=True)])
            # The others' own users do not notice.
            found.append([plain(m.autograd.grad(y, t)[0] - 2 * t) for y, t in zip(uses, others, strict=True)])
            found.append([t._is_view() for t in parts])
        return found

    assert f(lucid, device) == f(torch, "cpu")


@pytest.mark.parametrize("device", DEVICES)
def test_infinite_terms_of_logaddexp(device: str) -> None:
    inf = float("inf")
    numbers = [[inf, -inf, 1.0, inf, -inf, 1.0, 0.0], [inf, -inf, inf, 1.0, 1.0, -inf, 0.0]]
    found = []
    for m, on in ((lucid, device), (torch, "cpu")):
        a, b = (m.tensor(n, device=on, requires_grad=True) for n in numbers)
        m.logaddexp(a, b).sum().backward()
        found.append([a.grad.tolist(), b.grad.tolist()])
    np.testing.assert_array_equal(*found)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("exponent", [0.5, -0.5, 2, 3, 1.5])
def test_powers_that_are_written(exponent: float, device: str) -> None:
    found = []
    for m, on in ((lucid, device), (torch, "cpu")):
        x = m.tensor([0.0, 0.25, 4.0], device=on, requires_grad=True)
        y = x**exponent
        kind = y.grad_fn.name()
        y.add_(1)
        (y * m.tensor([1.0, 2.0, 3.0], device=on)).sum().backward()
        found.append([kind, y.tolist(), x.grad.tolist()])
    assert found[0] == found[1]


@pytest.mark.parametrize("device", DEVICES)
def test_a_quotient_does_not_keep_its_numerator(device: str) -> None:
    for f in (lambda x: x / 3, lambda x: x % 3, lambda x: x.fmod(3.0), lambda x: x / x.new_tensor(3.0)):
        x = lucid.ones(3, device=device, requires_grad=True)
        y = f(x * 1)
        assert y.grad_fn.saved_tensors[0] is None if y.grad_fn.saved_tensors else True
        y.sum().backward()


@pytest.mark.parametrize("device", DEVICES)
def test_unsafe_pieces_of_what_was_written(device: str) -> None:
    found = []
    for m, on in ((lucid, device), (torch, "cpu")):
        x = m.tensor([1.0, 2.0, 3.0, 4.0], device=on, requires_grad=True)
        y = x * 1
        first, second = y.unsafe_split(2)
        y.mul_(3)
        second.add_(1)
        # They show what was written, but the tape does not know.
        found.append([y.tolist(), first.tolist(), second.tolist(), y._version, first._version, second._version])
        (first * second).sum().backward()
        found.append(x.grad.tolist())
    assert found[:2] == found[2:]
