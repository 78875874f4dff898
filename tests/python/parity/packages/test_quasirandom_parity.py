"""Sobol sequences: unscrambled the numbers of PyTorch's, scrambled their properties."""

from __future__ import annotations

import copy
import pickle
import sys
from typing import Any

import lucid
import numpy as np
import pytest
import torch
from lucid.quasirandom import SobolEngine

Reference = torch.quasirandom.SobolEngine


@pytest.mark.parametrize("dimension", [1, 2, 7, 111, 21201])
def test_numbers_are_pytorchs(dimension: int) -> None:
    ours, theirs = SobolEngine(dimension), Reference(dimension)
    assert np.array_equal(ours.sobolstate.numpy(), theirs.sobolstate.numpy())
    for n in (1, 2, 5, 64, 131):
        assert np.array_equal(ours.draw(n).numpy(), theirs.draw(n).numpy())
        assert np.array_equal(ours.quasi.numpy(), theirs.quasi.numpy())
    for engine in (ours, theirs):
        assert engine.fast_forward(0) is engine and engine.fast_forward(1003) is engine
    assert (ours.num_generated, theirs.num_generated) == (1206, 1206)
    doubles = ours.draw(33, dtype=lucid.float64)
    assert doubles.dtype == lucid.float64
    assert np.array_equal(doubles.numpy(), theirs.draw(33, dtype=torch.float64).numpy())
    assert np.array_equal(ours.reset().draw(1).numpy(), theirs.reset().draw(1).numpy())
    assert np.array_equal(ours.draw(0).numpy(), theirs.draw(0).numpy())


def test_a_first_step_by_fast_forward() -> None:
    for n in (1, 2, 63, 64, 2**20 + 5):
        ours, theirs = SobolEngine(3).fast_forward(n), Reference(3).fast_forward(n)
        assert np.array_equal(ours.quasi.numpy(), theirs.quasi.numpy())
        assert np.array_equal(ours.draw(70).numpy(), theirs.draw(70).numpy())


def test_powers_of_two() -> None:
    ours, theirs = SobolEngine(4), Reference(4)
    for m in (3, 3, 4):
        assert np.array_equal(ours.draw_base2(m).numpy(), theirs.draw_base2(m).numpy())
    for engine in (ours, theirs):
        with pytest.raises(ValueError, match=r"n to be a power of 2\. 32 points"):
            engine.draw_base2(3)


def test_out_and_dtype() -> None:
    for framework, engine in ((lucid, SobolEngine), (torch, Reference)):
        out = framework.zeros(7, dtype=framework.float64)
        assert engine(2).draw(2, out=out) is out
        assert (out.tolist(), out.dtype) == ([[0.0, 0.0], [0.5, 0.5]], framework.float64)
        with pytest.raises(NotImplementedError if framework is torch else lucid.errors.UnsupportedDtype):
            engine(2).draw(2, dtype=framework.float16)


def test_errors() -> None:
    for engine in (SobolEngine, Reference):
        for dimension in (0, 21202):
            with pytest.raises(ValueError, match=r"\[1, 21201\]"):
                engine(dimension)
        for call in (lambda e: e.draw(-1), lambda e: e.fast_forward(-1)):
            with pytest.raises(ValueError, match="n must be non-negative"):
                call(engine(2))
        for call in (lambda e: e.draw(2.5), lambda e: e.fast_forward(2.5), lambda e: e.draw_base2(2.5)):
            with pytest.raises(TypeError):
                call(engine(2))
        with pytest.raises(TypeError):
            engine(2.5)


def test_the_sequence_ends() -> None:
    engine = SobolEngine(2).fast_forward(2**30 - 1)
    # The Gray code of 2**30 - 1 has its last bit alone.
    assert (engine.draw(1, dtype=lucid.float64) * 2**30).tolist() == [engine.sobolstate[:, 29].tolist()]
    with pytest.raises(ValueError, match=r"2\*\*30 points"):
        engine.draw(1)


def test_without_scipy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scipy.stats", None)
    with pytest.raises(ImportError, match="pip install scipy"):
        SobolEngine(2)


@pytest.mark.parametrize("dimension", [1, 5, 40])
@pytest.mark.parametrize("seed", [0, 1234])
def test_scrambled_points_are_balanced(dimension: int, seed: int) -> None:
    points = SobolEngine(dimension, scramble=True, seed=seed).draw(2**8, dtype=lucid.float64).numpy()
    assert points.min() >= 0 and points.max() < 1
    for m in range(9):
        # Each dyadic interval of length 2**-m has as many points.
        for column in points.T:
            assert np.bincount((column * 2**m).astype(int), minlength=2**m).tolist() == [2 ** (8 - m)] * 2**m


def test_pairs_of_scrambled_coordinates_are_balanced() -> None:
    # The first two coordinates are a (0, m, 2)-net: each box of area 2**-m has one of 2**m points.
    points = SobolEngine(2, scramble=True, seed=7).draw_base2(6, dtype=lucid.float64).numpy()
    for k in range(7):
        boxes = (points[:, 0] * 2**k).astype(int) * 2 ** (6 - k) + (points[:, 1] * 2 ** (6 - k)).astype(int)
        assert sorted(boxes.tolist()) == list(range(64))


def test_scrambling_is_by_seed() -> None:
    lucid.manual_seed(3)
    before = lucid.get_rng_state()
    drawn = [SobolEngine(4, scramble=True, seed=seed).draw(5) for seed in (11, 11, 12)]
    assert bool((before == lucid.get_rng_state()).all())
    assert drawn[0].tolist() == drawn[1].tolist() != drawn[2].tolist()
    unseeded = [SobolEngine(4, scramble=True).draw(5).tolist() for _ in range(2)]
    assert unseeded[0] != unseeded[1]
    lucid.manual_seed(3)
    assert SobolEngine(4, scramble=True).draw(5).tolist() == unseeded[0]
    engine = SobolEngine(4, scramble=True, seed=11)
    engine.draw(3)
    assert engine.reset().draw(5).tolist() == drawn[0].tolist()


def test_scrambled_parts_follow_each_other() -> None:
    whole = SobolEngine(3, scramble=True, seed=1).draw(40)
    parts = SobolEngine(3, scramble=True, seed=1)
    assert lucid.cat([parts.draw(n) for n in (1, 7, 32)]).tolist() == whole.tolist()


def test_integrals_of_smooth_functions() -> None:
    points = SobolEngine(6, scramble=True, seed=5).draw(2**12, dtype=lucid.float64)
    # The integral is 1; of random points the error is about 0.01.
    assert abs(float((12 * (points - 0.5) ** 2).prod(-1).mean()) - 1) < 0.1
    assert abs(float(points.mean()) - 0.5) < 1e-4


def copies(engine: Any) -> list[Any]:
    return [copy.deepcopy(engine), pickle.loads(pickle.dumps(engine))]


def test_copies_go_on_by_themselves() -> None:
    engine = SobolEngine(3, scramble=True, seed=2)
    engine.draw(5)
    made = copies(engine)
    expected = engine.draw(4).tolist()
    assert [e.draw(4).tolist() for e in made] == [expected, expected]


def test_repr() -> None:
    for args in ((3,), (3, True), (3, True, 9), (3, False, 9)):
        assert repr(SobolEngine(*args)) == repr(Reference(*args))
