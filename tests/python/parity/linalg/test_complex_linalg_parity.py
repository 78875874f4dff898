"""Complex matrices: what factors them against PyTorch, values and gradients, and eigenvalues of matrices that are not
symmetric. MLX factors no complex matrices, which the GPU device says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import lucid
import numpy as np
import pytest
import torch

from tests.python.tolerances import TABLE, within

RTOL = 2e-3


def matrices(*shape: int, seed: int = 0, dtype: torch.dtype = torch.complex64) -> torch.Tensor:
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(*shape, generator=g, dtype=dtype)
    if shape[-1] == shape[-2]:
        x = x / 2 + 2 * torch.eye(shape[-1])
    return x.requires_grad_()


def ours(t: torch.Tensor, device: str = "cpu") -> lucid.Tensor:
    return lucid.tensor(t.detach().numpy(), device=device).requires_grad_(t.requires_grad)


def close(want: torch.Tensor, got: lucid.Tensor, rtol: float = RTOL) -> None:
    assert str(want.dtype).rsplit(".", 1)[-1] == str(got.dtype).rsplit(".", 1)[-1]
    a = want.detach().resolve_conj().resolve_neg().numpy()
    np.testing.assert_allclose(np.asarray(got.detach().tolist()).reshape(a.shape), a, rtol=rtol, atol=rtol)


def agree(call: Callable[..., Any], *args: torch.Tensor, rtol: float = RTOL) -> None:
    """The results of `call(module, *args)`, and the gradients of them all with weights, are PyTorch's."""
    mine = [ours(a) for a in args]
    want, got = call(torch, *args), call(lucid, *mine)
    want, got = ([y] if isinstance(y, (torch.Tensor, lucid.Tensor)) else list(y) for y in (want, got))
    assert len(want) == len(got)
    total, other = torch.zeros(()), lucid.zeros(())
    for i, (a, b) in enumerate(zip(want, got, strict=True)):
        close(a, b, rtol)
        if not a.requires_grad:
            continue
        weights = torch.cos(torch.arange(a.numel()) * 1.5 + i).reshape(a.shape)
        turned = torch.sin(torch.arange(a.numel()) + i).reshape(a.shape)
        for part in ("real", "imag") if a.is_complex() else ("real",):
            w = weights if part == "real" else turned
            total = total + (getattr(a, part) * w).sum()
            other = other + (getattr(b, part) * lucid.tensor(w.numpy())).sum()
    for a, b in zip(torch.autograd.grad(total, args), lucid.autograd.grad(other, mine), strict=True):
        close(a, b, rtol)


def hermitian(x: Any) -> Any:
    return x @ x.mH + 0.5 * x.mH @ x


CALLS: dict[str, tuple[Callable[..., Any], list[torch.Tensor]]] = {
    "inv": (lambda m, a: m.linalg.inv(a), [matrices(2, 3, 3)]),
    "inv_ex": (lambda m, a: m.linalg.inv_ex(a)[0], [matrices(2, 3, 3)]),
    "det": (lambda m, a: m.linalg.det(a), [matrices(2, 3, 3)]),
    "det of none": (lambda m, a: m.linalg.det(a), [matrices(2, 0, 0)]),
    "slogdet": (lambda m, a: m.linalg.slogdet(a), [matrices(2, 3, 3)]),
    "logdet": (lambda m, a: m.logdet(a), [matrices(2, 3, 3)]),
    "solve": (lambda m, a, b: m.linalg.solve(a, b), [matrices(2, 3, 3), matrices(3, 2)]),
    "solve from the right": (lambda m, a, b: m.linalg.solve(a, b, left=False), [matrices(3, 3), matrices(2, 3)]),
    "solve_ex": (lambda m, a, b: m.linalg.solve_ex(a, b)[0], [matrices(3, 3), matrices(3, 2)]),
    "upper": (lambda m, a, b: m.linalg.solve_triangular(a, b, upper=True), [matrices(3, 3), matrices(3, 2)]),
    "unit": (
        lambda m, a, b: m.linalg.solve_triangular(a, b, upper=False, left=False, unitriangular=True),
        [matrices(3, 3), matrices(2, 3)],
    ),
    "cholesky": (lambda m, a: m.linalg.cholesky(hermitian(a)), [matrices(2, 3, 3)]),
    "cholesky above": (lambda m, a: m.linalg.cholesky(hermitian(a), upper=True), [matrices(3, 3)]),
    "cholesky_solve": (
        lambda m, a, b: m.cholesky_solve(b, m.linalg.cholesky(hermitian(a))),
        [matrices(3, 3), matrices(3, 2)],
    ),
    "cholesky_inverse": (
        lambda m, a: m.cholesky_inverse(m.linalg.cholesky(hermitian(a), upper=True), upper=True),
        [matrices(3, 3)],
    ),
    "qr": (lambda m, a: m.linalg.qr(a), [matrices(2, 4, 3)]),
    "qr of wide ones": (lambda m, a: m.linalg.qr(a), [matrices(2, 4)]),
    "lu": (lambda m, a: m.linalg.lu(a)[1:], [matrices(2, 3, 3)]),
    "lu_factor": (lambda m, a: m.linalg.lu_factor(a)[0], [matrices(3, 4)]),
    **{
        f"lu_solve {left} {adjoint}": (
            lambda m, a, b, left=left, adjoint=adjoint: m.linalg.lu_solve(
                *m.linalg.lu_factor(a), b, left=left, adjoint=adjoint
            ),
            [matrices(3, 3), matrices(3, 3, seed=1)],
        )
        for left in (True, False)
        for adjoint in (True, False)
    },
    "eigvalsh": (lambda m, a: m.linalg.eigvalsh(hermitian(a)), [matrices(2, 3, 3)]),
    "eigvalsh above": (lambda m, a: m.linalg.eigvalsh(a + a.mH, "U"), [matrices(3, 3)]),
    "svdvals": (lambda m, a: m.linalg.svdvals(a), [matrices(2, 4, 3)]),
    "pinv": (lambda m, a: m.linalg.pinv(a), [matrices(4, 3)]),
    "pinverse": (lambda m, a: m.pinverse(a), [matrices(3, 4)]),
    "matrix_exp": (lambda m, a: m.linalg.matrix_exp(a), [matrices(2, 3, 3)]),
    "matrix_power": (lambda m, a: m.linalg.matrix_power(a, -2), [matrices(3, 3)]),
    "cond": (lambda m, a: m.linalg.cond(a), [matrices(3, 3)]),
    "tensorinv": (lambda m, a: m.linalg.tensorinv(a.reshape(2, 2, 4)), [matrices(4, 4)]),
    "lstsq": (lambda m, a, b: m.linalg.lstsq(a, b)[0], [matrices(4, 3), matrices(4, 2)]),
    **{
        f"norm {p}": (lambda m, a, p=p: m.linalg.matrix_norm(a, p), [matrices(3, 4)])
        for p in ("fro", "nuc", 1, -1, 2, -2, float("inf"), -float("inf"))
    },
    "norm of all": (lambda m, a: m.linalg.norm(a), [matrices(3, 4)]),
}


@pytest.mark.parametrize("name", CALLS)
def test_complex_matrices(name: str) -> None:
    call, args = CALLS[name]
    agree(call, *args)


def test_eigenvectors_of_hermitian_matrices() -> None:
    # Phases are free: compared in projections, which have none.
    def projections(m: Any, a: Any) -> Any:
        w, v = m.linalg.eigh(hermitian(a))
        return [w, v.unsqueeze(-2) * v.conj().unsqueeze(-3)]

    agree(projections, matrices(2, 3, 3))


def test_singular_vectors() -> None:
    def projections(m: Any, a: Any) -> Any:
        u, s, vh = m.linalg.svd(a, full_matrices=False)
        return [s, u.unsqueeze(-2) * vh.mT.unsqueeze(-3)]

    agree(projections, matrices(4, 3))
    agree(projections, matrices(2, 3, 4))


def test_all_singular_vectors_are_orthonormal() -> None:
    a = matrices(4, 3)
    u, s, vh = (x.detach() for x in lucid.linalg.svd(ours(a)))
    np.testing.assert_allclose(np.asarray((u @ u.mH).tolist()), np.eye(4), **within("near zero"))
    close(a, (u[:, :3] * s) @ vh)


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64, torch.float64, torch.complex128])
@pytest.mark.parametrize("shape", [(3, 3), (2, 4, 4), (1, 1), (0, 0), (5, 5)])
def test_eigenvalues(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    a = matrices(*shape, dtype=dtype, seed=3)
    x = ours(a)
    w, v = lucid.linalg.eig(x)
    assert repr(w.dtype)[6:] == repr(v.dtype)[6:] == repr(torch.linalg.eigvals(a).dtype)[6:]
    vectors = torch.tensor(v.tolist(), dtype=dtype.to_complex()).reshape(shape)
    close(a.detach().to(dtype.to_complex()) @ vectors, v * w[..., None, :])
    norms = v.detach().abs().square().sum(-2)
    np.testing.assert_allclose(np.asarray(norms.tolist()), np.ones(tuple(w.shape)), rtol=TABLE["few ops"].rtol)
    alone = lucid.linalg.eigvals(x)

    def ordered(t: Any) -> np.ndarray[Any, Any]:
        return np.sort_complex(np.round(np.asarray(t.detach().tolist(), dtype=np.complex64).reshape(w.shape), 4))

    np.testing.assert_allclose(ordered(alone), ordered(torch.linalg.eigvals(a)), **within("eigenvalues"))
    np.testing.assert_allclose(ordered(w), ordered(alone), **within("eigenvalues"))
    # Symmetric functions of the eigenvalues, and projections, need no order.
    wt, vt = torch.linalg.eig(a)
    want = torch.autograd.grad((wt**3).sum().real + (vt @ (wt[..., None] ** 2 * torch.linalg.inv(vt))).real.sum(), a)[0]
    got = lucid.autograd.grad((w**3).sum().real + (v @ (w[..., None] ** 2 * lucid.linalg.inv(v))).real.sum(), x)[0]
    close(want, got)
    want = torch.autograd.grad((torch.linalg.eigvals(a) ** 3).sum().imag + torch.linalg.eigvals(a).abs().sum(), a)[0]
    close(want, lucid.autograd.grad((alone**3).sum().imag + alone.abs().sum(), x)[0])


def test_eigenvalues_on_the_gpu_device() -> None:
    a = matrices(2, 3, 3, dtype=torch.float32)
    w, v = lucid.linalg.eig(ours(a, "gpu"))
    assert w.device.type != "cpu"
    w, v = w.detach().cpu(), v.detach().cpu()
    close(a.detach().to(torch.complex64) @ torch.tensor(v.tolist()), v * w[..., None, :])


def test_losses_that_depend_on_phases_are_refused() -> None:
    for call in (
        lambda m, a: m.linalg.eigh(hermitian(a))[1].imag.sum(),
        lambda m, a: m.linalg.svd(a, full_matrices=False)[0].imag.sum(),
        lambda m, a: (m.linalg.eig(a)[1] ** 2).imag.sum(),
    ):
        a = matrices(3, 3)
        with pytest.raises(RuntimeError):
            call(torch, a).backward()
        with pytest.raises(RuntimeError):
            call(lucid, ours(a)).backward()


def test_what_has_no_eigenvalues() -> None:
    with pytest.raises(RuntimeError):
        lucid.linalg.eig(lucid.tensor([[float("nan"), 1.0], [0.0, 1.0]]))
    with pytest.raises(RuntimeError):
        lucid.linalg.eigvals(lucid.ones(2, 3))


def test_singular_and_indefinite_complex_matrices_are_refused() -> None:
    with pytest.raises(RuntimeError):
        lucid.linalg.inv(lucid.zeros(2, 2, dtype=lucid.complex64))
    with pytest.raises(RuntimeError):
        lucid.linalg.cholesky(-lucid.eye(2, dtype=lucid.complex64))


def test_the_gradient_of_a_complex_determinant_of_0_is_made_of_cofactors() -> None:
    # PyTorch's is 0.
    a = lucid.tensor([[1 + 1j, 2 + 2j], [2 + 0j, 4 + 0j]], requires_grad=True)
    lucid.linalg.det(a).real.backward()
    np.testing.assert_allclose(
        np.asarray(a.grad.tolist()), np.array([[4, -2], [-2 + 2j, 1 - 1j]]), **within("decomposition")
    )


def test_the_gpu_device_says_that_it_factors_no_complex_matrices() -> None:
    a = lucid.eye(2, dtype=lucid.complex64, device="gpu")
    for call in (lucid.linalg.inv, lucid.linalg.svd, lucid.linalg.eigh, lucid.linalg.eig, lucid.linalg.det):
        with pytest.raises((RuntimeError, TypeError), match="complex"):
            call(a)
