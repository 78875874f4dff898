"""`lobpcg` beside PyTorch's: eigenvalues, gradients, what a tracker sees, and errors; on both devices."""

from __future__ import annotations

from typing import Any

import lucid
import numpy as np
import pytest
import torch

from tests.python.tolerances import TABLE, near, within

DEVICES = pytest.mark.parametrize("device", ["cpu", "gpu"])


def positive(m: int, seed: int, *batch: int) -> np.ndarray[Any, Any]:
    """Symmetric matrices with eigenvalues far from 0 and from each other."""
    a = np.random.default_rng(seed).standard_normal((*batch, m, m))
    return a @ np.swapaxes(a, -1, -2) / m + np.diag(np.arange(m) * 0.5 + 1)


@DEVICES
@pytest.mark.parametrize("paired", [False, True])
@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("k", [1, 3])
@pytest.mark.parametrize("method", ["ortho", "basic"])
def test_eigenpairs(method: str, k: int, largest: bool, paired: bool, device: str) -> None:
    kind = {"dtype": lucid.float64} if device == "cpu" else {"dtype": lucid.float32, "device": device}
    a, b = positive(24, 0), positive(24, 1)
    start = np.random.default_rng(2).standard_normal((24, k))
    A, X = lucid.tensor(a, **kind), lucid.tensor(start, **kind)
    B = lucid.tensor(b, **kind) if paired else None
    values, vectors = lucid.lobpcg(A, k, B, X, largest=largest, method=method)
    theirs, _ = torch.lobpcg(torch.tensor(a), k, torch.tensor(b) if paired else None, largest=largest)
    slack = 1e-7 if device == "cpu" else 2e-3
    np.testing.assert_allclose(values.cpu().numpy(), theirs.numpy(), slack)
    BX = vectors if B is None else B @ vectors
    assert (A @ vectors - BX * values).abs().max() < 20 * slack
    assert (vectors.mT @ BX - lucid.eye(k, **kind)).abs().max() < (1e-10 if device == "cpu" else 1e-4)


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("k", [1, 2, 4])
def test_gradients(k: int, largest: bool) -> None:
    rng = np.random.default_rng(3)
    a, start = positive(12, 0), rng.standard_normal((12, k))
    by_value, by_vector = rng.standard_normal(k), rng.standard_normal((12, k))
    found = []
    for m in (torch, lucid):
        A = m.tensor(a, requires_grad=True)
        values, vectors = m.lobpcg(A, k, X=m.tensor(start), largest=largest, tol=1e-12)
        # A vector's sign is free.
        turned = vectors * vectors.detach()[:1].sign()
        ((values * m.tensor(by_value)).sum() + (turned * m.tensor(by_vector)).sum()).backward()
        found.append(A.grad.numpy())
        assert values.grad_fn.name() == "LOBPCGAutogradFunctionBackward"
    np.testing.assert_allclose(found[1], found[0], **within("float64 factors"))


@DEVICES
def test_batches(device: str) -> None:
    a = positive(12, 4, 2, 3)
    A = lucid.tensor(a, dtype=lucid.float32, device=device, requires_grad=True)
    values, vectors = lucid.lobpcg(A, 2)
    assert values.shape == (2, 3, 2) and vectors.shape == (2, 3, 12, 2)
    np.testing.assert_allclose(
        values.detach().cpu().numpy(), np.linalg.eigvalsh(a)[..., :-3:-1], rtol=TABLE["solve"].rtol
    )
    values.sum().backward()
    assert A.grad is not None and A.grad.shape == A.shape
    # The trace of an eigenvalue's gradient, the projector on its vector, is 1.
    np.testing.assert_allclose(
        A.grad.diagonal(dim1=-2, dim2=-1).sum(-1).cpu().numpy(), np.full((2, 3), 2.0), rtol=TABLE["program"].rtol
    )
    assert [t.shape for t in lucid.lobpcg(lucid.ones(0, 9, 9, device=device), 2)] == [(0, 2), (0, 9, 2)]


def test_the_tracker_and_the_limits() -> None:
    a, start = positive(30, 5), np.random.default_rng(6).standard_normal((30, 2))
    steps = []
    for m in (torch, lucid):
        seen: list[tuple[int, int, bool]] = []

        def track(w: Any, seen: list[tuple[int, int, bool]] = seen) -> None:
            assert w.X.shape == (30, 2) and w.R.shape == (30, 2) and w.E.shape == (2,) and w.tvars["rerr"].shape == (2,)
            assert w.iparams["n"] == 2 and w.bparams["largest"] and w.fparams["tol"] > 0
            seen.append((w.ivars["istep"], w.ivars["iterations_left"], w.ivars["converged_count"] == 2))

        m.lobpcg(m.tensor(a), 2, X=m.tensor(start), tracker=track)
        assert [s for s, _, _ in seen] == list(range(1, len(seen) + 1)) and seen[-1][2] and not seen[-2][2]
        steps.append(len(seen))
        seen.clear()
        m.lobpcg(m.tensor(a), 2, X=m.tensor(start), niter=4, tracker=track)
        assert [(s, left) for s, left, _ in seen] == [(1, 3), (2, 2), (3, 1), (4, 0)]
        stops = []
        m.lobpcg(m.tensor(a), 2, tracker=lambda w, stops=stops: stops.append(w.bvars.update(force_stop=True)))
        assert len(stops) == 1
    assert abs(steps[0] - steps[1]) <= 3


def test_matrices_that_are_solved_at_once() -> None:
    for m in (torch, lucid):
        assert m.lobpcg(m.eye(9))[0].tolist() == pytest.approx([1.0], **near("near zero"))
        assert m.lobpcg(m.zeros(9, 9), 2)[0].tolist() == pytest.approx([0.0, 0.0], **near("few ops"))
        spread = m.diag(m.arange(9.0))
        options = {"ortho_bparams": {"ortho_use_drop": True}, "ortho_iparams": {"ortho_i_max": 4}}
        assert m.lobpcg(spread, 2, n=3, **options)[0].tolist() == pytest.approx([8.0, 7.0], **near("eigenvalues"))
        inverse = m.diag(1 / (m.arange(9.0) + 0.1))
        found = m.lobpcg(spread, 2, iK=inverse, largest=False)[0]
        assert found.tolist() == pytest.approx([0.0, 1.0], **near("eigenvalues"))


@pytest.mark.parametrize(
    ("run", "kind"),
    [
        (lambda m: m.lobpcg(m.ones(2, 3)), AssertionError),
        (lambda m: m.lobpcg(m.ones(3, 3), 2), ValueError),
        (lambda m: m.lobpcg(m.eye(9), X=m.ones(8, 1)), AssertionError),
        (lambda m: m.lobpcg(m.eye(9), B=m.eye(8)), AssertionError),
        (lambda m: m.lobpcg(m.eye(9, dtype=m.complex64)), RuntimeError),
        (lambda m: m.lobpcg(m.eye(9, dtype=m.int64)), RuntimeError),
        (lambda m: m.lobpcg(m.eye(9).requires_grad_(), B=m.eye(9))[0].sum().backward(), ValueError),
    ],
)
def test_errors(run: Any, kind: type[Exception]) -> None:
    for m in (torch, lucid):
        with pytest.raises(kind):
            run(m)
