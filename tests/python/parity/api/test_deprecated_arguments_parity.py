"""Arguments that PyTorch still takes for older code, and numbers at the ends of what an op is defined for."""

from __future__ import annotations

from typing import Any

import lucid
import numpy as np
import pytest
import torch
import torch.nn.functional

from tests.python.parity.ops.test_table_parity import to_numpy
from tests.python.tolerances import within

DEVICES = ["cpu", "gpu"]
NAN = float("nan")


def outcome(m: Any, call: Any, **kind: Any) -> Any:
    """The result as an array with its dtype's name, or the class of the error."""
    try:
        made = call(m, kind)
    except Exception as e:
        return type(e)
    return str(made.dtype).partition(".")[2], to_numpy(made.detach())


def same(call: Any, **kind: Any) -> None:
    ours, theirs = outcome(lucid, call, **kind), outcome(torch, call)
    if isinstance(theirs, type) or isinstance(ours, type):
        assert isinstance(theirs, type) and isinstance(ours, type) and issubclass(ours, theirs), (ours, theirs)
        return
    assert ours[0] == theirs[0]
    np.testing.assert_allclose(ours[1], theirs[1], **within("few ops"))


def x(m: Any, k: Any) -> Any:
    return m.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], **k)


def index(m: Any, k: Any) -> Any:
    return m.tensor([[0, 2], [1, 1]], **k)


GATHER = {
    "true": lambda m, k: m.gather(x(m, k), 1, index(m, k), sparse_grad=True),
    "false": lambda m, k: m.gather(x(m, k), 1, index(m, k), sparse_grad=False),
    "method": lambda m, k: x(m, k).gather(1, index(m, k), sparse_grad=True),
    "names": lambda m, k: x(m, k).gather(dim=1, index=index(m, k)),
    "input": lambda m, k: m.gather(input=x(m, k), dim=-1, index=index(m, k), sparse_grad=False),
    "axis": lambda m, k: m.gather(x(m, k), axis=1, index=index(m, k)),
    "out": lambda m, k: m.gather(x(m, k), 1, index(m, k), sparse_grad=False, out=m.empty(2, 2, **k)),
    "method out": lambda m, k: x(m, k).gather(1, index(m, k), out=m.empty(2, 2, **k)),
    "out over the index": lambda m, k: m.gather(
        index(m, k), 1, (t := m.zeros(5, dtype=m.int64, **k))[:4].view(2, 2), out=t[1:].view(2, 2)
    ),
    "none": lambda m, k: m.gather(x(m, k), 1, index(m, k), sparse_grad=None),
    "number": lambda m, k: m.gather(x(m, k), 1, index(m, k), sparse_grad=1),
    "by position": lambda m, k: m.gather(x(m, k), 1, index(m, k), True),
    "no index": lambda m, k: m.gather(x(m, k), 1),
    "no dim": lambda m, k: x(m, k).gather(index=index(m, k)),
    "twice": lambda m, k: m.gather(x(m, k), 1, index(m, k), dim=1),
}
EXPAND = {
    "sizes": lambda m, k: x(m, k).expand(2, 2, 3, implicit=True),
    "size": lambda m, k: x(m, k).expand((2, -1, 3), implicit=False),
    "named": lambda m, k: x(m, k).expand(size=(2, 2, 3), implicit=True),
    "plain": lambda m, k: x(m, k).expand([1, 2, 3]),
    "none": lambda m, k: x(m, k).expand((2, 2, 3), implicit=None),
    "number": lambda m, k: x(m, k).expand((2, 2, 3), implicit=1),
    "wrong": lambda m, k: x(m, k).expand(3, 3, implicit=True),
    "nothing": lambda m, k: x(m, k).expand(implicit=True),
    "twice": lambda m, k: x(m, k).expand(2, 2, 3, size=(2, 2, 3)),
}


def diagonal(m: Any, k: Any) -> Any:
    return m.diag(m.tensor([10.0, 3.0, 0.01], **k))


TOLERANCE = {
    "pinv": lambda m, k: m.linalg.pinv(diagonal(m, k), 0.1),
    "pinv int": lambda m, k: m.linalg.pinv(diagonal(m, k), 0),
    "pinv tensor": lambda m, k: m.linalg.pinv(diagonal(m, k), m.tensor(0.5, **k)),
    "pinv hermitian": lambda m, k: m.linalg.pinv(diagonal(m, k), 0.1, True),
    "pinv names": lambda m, k: m.linalg.pinv(diagonal(m, k), rcond=0.1, hermitian=True),
    "pinv input": lambda m, k: m.linalg.pinv(input=diagonal(m, k), rcond=0.1),
    "pinv own": lambda m, k: m.linalg.pinv(diagonal(m, k), atol=1.0, hermitian=True),
    "pinv rtol": lambda m, k: m.linalg.pinv(diagonal(m, k), rtol=0.5),
    "pinv both own": lambda m, k: m.linalg.pinv(diagonal(m, k), atol=4.0, rtol=0.1),
    "pinv plain": lambda m, k: m.linalg.pinv(input=diagonal(m, k)),
    "pinv out": lambda m, k: m.linalg.pinv(diagonal(m, k), 0.1, out=m.empty(3, 3, **k)),
    "pinv both": lambda m, k: m.linalg.pinv(diagonal(m, k), 0.1, atol=0.1),
    "pinv none": lambda m, k: m.linalg.pinv(diagonal(m, k), None),
    "pinv text": lambda m, k: m.linalg.pinv(diagonal(m, k), "0.1"),
    "pinv missing": lambda m, k: m.linalg.pinv(rcond=0.1),
    "rank": lambda m, k: m.linalg.matrix_rank(diagonal(m, k), 5.0),
    "rank small": lambda m, k: m.linalg.matrix_rank(diagonal(m, k), 0.001),
    "rank zero": lambda m, k: m.linalg.matrix_rank(diagonal(m, k), 0),
    "rank tensor": lambda m, k: m.linalg.matrix_rank(diagonal(m, k), m.tensor(5.0, **k)),
    "rank hermitian": lambda m, k: m.linalg.matrix_rank(diagonal(m, k), 5.0, True),
    "rank names": lambda m, k: m.linalg.matrix_rank(input=diagonal(m, k), tol=5.0, hermitian=True),
    "rank own": lambda m, k: m.linalg.matrix_rank(diagonal(m, k), rtol=0.5),
    "rank out": lambda m, k: m.linalg.matrix_rank(diagonal(m, k), 5.0, out=m.empty((), dtype=m.int64, **k)),
    "rank both": lambda m, k: m.linalg.matrix_rank(diagonal(m, k), 5.0, rtol=0.1),
    "rank none": lambda m, k: m.linalg.matrix_rank(diagonal(m, k), None),
    "rank rcond": lambda m, k: m.linalg.matrix_rank(diagonal(m, k), rcond=1.0),
}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", GATHER)
def test_gather_takes_sparse_grad(name: str, device: str) -> None:
    same(GATHER[name], device=device)


@pytest.mark.parametrize("device", DEVICES)
def test_the_gradient_of_gather_with_sparse_grad_is_dense_and_the_same(device: str) -> None:
    theirs = x(torch, {}).requires_grad_()
    theirs.gather(1, index(torch, {}), sparse_grad=True).pow(2).sum().backward()
    ours = x(lucid, {"device": device}).requires_grad_()
    ours.gather(1, index(lucid, {"device": device}), sparse_grad=True).pow(2).sum().backward()
    assert theirs.grad is not None and ours.grad is not None
    assert theirs.grad.is_sparse and not ours.grad.is_sparse
    assert ours.grad.tolist() == theirs.grad.to_dense().tolist()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", EXPAND)
def test_expand_takes_implicit(name: str, device: str) -> None:
    same(EXPAND[name], device=device)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", TOLERANCE)
def test_tolerances_of_matrices_come_by_position(name: str, device: str) -> None:
    same(TOLERANCE[name], device=device)


@pytest.mark.parametrize("flag", [None, 1, True, False])
def test_frombuffer_takes_requires_grad_as_bool_alone(flag: Any) -> None:
    same(lambda m, k: m.frombuffer(bytearray(8), dtype=m.float32, requires_grad=flag))


def gradient(m: Any, values: Any, run: Any, **kind: Any) -> tuple[Any, Any]:
    given = m.tensor(values, requires_grad=True, **kind)
    made = run(m, given)
    made.sum().backward()
    return made.detach().tolist(), given.grad.tolist()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    "values", [[1.0, NAN, 3.0, NAN], [NAN, NAN], [NAN], [1.0, 3.0, 3.0], [2.0, 2.0], [[1.0, NAN], [0.0, 5.0]]]
)
@pytest.mark.parametrize("name", ["max", "min", "median", "nanmedian", "amax", "amin"])
def test_the_gradient_of_an_extremum_of_all_goes_to_the_nan(name: str, values: Any, device: str) -> None:
    def run(m: Any, t: Any) -> Any:
        return getattr(m, name)(t) * 2

    theirs = gradient(torch, values, run)
    for ours, wanted in zip(gradient(lucid, values, run, device=device), theirs, strict=True):
        np.testing.assert_array_equal(ours, wanted)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", ["int8", "int16", "uint8"])
def test_lcm_of_narrow_integers_is_cut_off_at_the_end(dtype: str, device: str) -> None:
    info = torch.iinfo(getattr(torch, dtype))
    picked = {info.min, info.min + 1, -100, -64, -7, 0, 1, 3, 12, 100, info.max - 1, info.max}
    values = sorted(v for v in picked if v >= info.min)

    def table(m: Any, **kind: Any) -> Any:
        t = m.tensor(values, dtype=getattr(m, dtype), **kind)
        return m.lcm(t[:, None], t[None])

    ours, theirs = table(lucid, device=device), table(torch)
    assert str(ours.dtype).partition(".")[2] == dtype
    assert ours.tolist() == theirs.tolist()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("threshold", [20.0, -1.0])
@pytest.mark.parametrize("beta", [0, 0.0, -1.0, 0.5])
def test_softplus_without_a_beta_has_a_slope(beta: float, threshold: float, device: str) -> None:
    values = [-3.0, 0.0, 2.0, 30.0, NAN, float("inf")]

    def run(m: Any, t: Any) -> Any:
        return m.nn.functional.softplus(t, beta=beta, threshold=threshold)

    theirs = gradient(torch, values, run)
    for ours, wanted in zip(gradient(lucid, values, run, device=device), theirs, strict=True):
        np.testing.assert_allclose(ours, wanted, **within("few ops"))
