"""Some eigenvalues of a symmetric matrix, or of a pair of matrices, by LOBPCG: `lucid.lobpcg`.

The method is Knyazev's ("Toward the Optimal Preconditioned Eigensolver: Locally Optimal Block Preconditioned
Conjugate Gradient Method", 2001); with `method="ortho"` the basis of each step is made orthonormal by Stathopoulos
and Wu's SVQB ("A Block Orthogonalization Procedure with Constant Synchronization Requirements", 2002), and the
directions, locking and stopping are those of Duersch, Shao, Yang and Gu ("A Robust and Efficient Implementation of
LOBPCG", 2018). All is made of Lucid's ops, so that it runs on both devices.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import lucid
from lucid import Tensor, errors

#: The machine epsilons that the default tolerance is the root of, by PyTorch's figures.
_EPSILON = {lucid.float32: 1.2e-07, lucid.float64: 2.23e-16}


def lobpcg(
    A: Tensor,
    k: int | None = None,
    B: Tensor | None = None,
    X: Tensor | None = None,
    n: int | None = None,
    iK: Tensor | None = None,
    niter: int | None = None,
    tol: float | None = None,
    largest: bool | None = None,
    method: str | None = None,
    tracker: Callable[[LOBPCG], Any] | None = None,
    ortho_iparams: dict[str, int] | None = None,
    ortho_fparams: dict[str, float] | None = None,
    ortho_bparams: dict[str, bool] | None = None,
) -> tuple[Tensor, Tensor]:
    """The `k` largest eigenvalues, or with `largest=False` the smallest, of symmetric matrices `A` of shape (..., m,
    m), or of `A x = e B x` with positive definite `B`, of shape (..., k), and their eigenvectors, of shape (..., m,
    k).

    `X`, of shape (..., m, n), is what the iteration starts from, by default `n` (`k`) columns of random numbers; `iK`
    is a preconditioner, one matrix for all. It stops where the residuals are below `tol` (the root of the dtype's
    epsilon) times the matrices' norms, after `niter` steps (1000; -1 is no limit), or where `tracker`, which is
    called with the `LOBPCG` after each step, sets `bvars["force_stop"]`. `method` is `"ortho"`, or `"basic"`, which
    may fail on matrices that come near to singular. Dense matrices of float32 and float64.

    Errors: an AssertionError for shapes that do not fit, a ValueError for a matrix with fewer than 3n rows, and a
    LinAlgError from `"basic"`. The gradient of `A` is symmetric; there is none of `B`, nor beside a `B`.
    Other than in PyTorch `iK` is used by both methods, and the first step gives eigenvalues, too.
    """
    arguments = (k, X, n, iK, niter, tol, largest, method, tracker, ortho_iparams, ortho_fparams, ortho_bparams)
    if lucid.is_grad_enabled() and (A.requires_grad or (B is not None and B.requires_grad)):
        # Of an asymmetric gradient a step would leave the symmetric matrices.
        halves = [m if m is None else (m + m.mT) / 2 for m in (A, B)]
        return LOBPCGAutogradFunction.apply(*halves, *arguments)  # type: ignore[no-any-return]
    return _solve(A, B, *arguments)


def _solve(
    A: Tensor,
    B: Tensor | None,
    k: int | None,
    X: Tensor | None,
    n: int | None,
    iK: Tensor | None,
    niter: int | None,
    tol: float | None,
    largest: bool | None,
    method: str | None,
    tracker: Callable[[LOBPCG], Any] | None,
    ortho_iparams: dict[str, int] | None,
    ortho_fparams: dict[str, float] | None,
    ortho_bparams: dict[str, bool] | None,
) -> tuple[Tensor, Tensor]:
    if A.ndim < 2 or A.shape[-2] != A.shape[-1]:
        raise AssertionError(f"lobpcg: A must be a square matrix, or a batch of such, got shape {tuple(A.shape)}")
    if B is not None and A.shape != B.shape:
        raise AssertionError(f"lobpcg: A and B must have one shape, got {tuple(A.shape)} and {tuple(B.shape)}")
    dtype = A.dtype if A.dtype in _EPSILON else lucid.float32
    m = A.shape[-1]
    if k is None:
        k = 1 if X is None else X.shape[-1]
    if X is not None:
        n = X.shape[-1]
    elif n is None:
        n = k
    if m < 3 * n:
        raise errors.ValueError(
            f"lobpcg: a matrix of {m} rows is too small for {n} eigenpairs: it must have three times as many rows"
        )
    tol = _EPSILON[dtype] ** 0.5 if tol is None else tol
    method = "ortho" if method is None else method
    iparams: dict[str, int] = {"m": m, "n": n, "k": k, "niter": 1000 if niter is None else niter}
    fparams: dict[str, float] = {"tol": tol}
    bparams: dict[str, bool] = {"largest": largest is None or largest}
    if method == "ortho":
        iparams |= {"ortho_i_max": 3, "ortho_j_max": 3} | (ortho_iparams or {})
        tolerances = dict.fromkeys(("ortho_tol", "ortho_tol_drop", "ortho_tol_replace"), tol)
        fparams |= tolerances | (ortho_fparams or {})
        bparams |= {"ortho_use_drop": False} | (ortho_bparams or {})
    batch = tuple(A.shape[:-2])
    if X is not None and tuple(X.shape) != (*batch, m, n):
        raise AssertionError(f"lobpcg: X must have shape {(*batch, m, n)}, got {tuple(X.shape)}")

    def one(a: Tensor, b: Tensor | None, x: Tensor | None) -> tuple[Tensor, Tensor]:
        start = lucid.randn(m, n, dtype=dtype, device=A.device) if x is None else x
        worker = LOBPCG(a, b, start, iK, iparams, fparams, bparams, method, tracker)
        worker.run()
        return worker.E[:k], worker.X[:, :k]

    if not batch:
        return one(A, B, X)
    values, vectors = [], []
    for i, a in enumerate(A.reshape(-1, m, m)):
        iparams["batch_index"] = i
        b = None if B is None else B.reshape(-1, m, m)[i]
        e, x = one(a, b, None if X is None else X.reshape(-1, m, n)[i])
        values.append(e)
        vectors.append(x)
    if not values:
        return A.new_empty(*batch, k, dtype=dtype), A.new_empty(*batch, m, k, dtype=dtype)
    return lucid.stack(values).reshape(*batch, k), lucid.stack(vectors).reshape(*batch, m, k)


def _times(matrix: Tensor | None, x: Tensor) -> Tensor:
    """The product; no matrix stands for the identity."""
    return x if matrix is None else matrix @ x


def _gram(matrix: Tensor | None, x: Tensor) -> Tensor:
    """`xᵀ matrix x`."""
    return x.mT @ _times(matrix, x)


def _eigenpairs(matrix: Tensor, largest: bool) -> tuple[Tensor, Tensor]:
    """All of a small symmetric matrix, the wanted ones first."""
    values, vectors = lucid.linalg.eigh(matrix)
    return (values.flip(-1), vectors.flip(-1)) if largest else (values, vectors)


class LOBPCG:
    """The state of an iteration, as a tracker sees it.

    `iparams`, `fparams`, `bparams` are what was asked for, and `A`, `B`, `iK` the matrices. `X` and `E` are the
    eigenpairs so far, `R` their residuals and `S` the basis that the next step searches. Of `ivars`, `"istep"` counts
    the steps, `"iterations_left"` those to come and `"converged_count"` the pairs that are there; `tvars["rerr"]` is
    what the tolerance is compared with. Tensors that a tracker keeps it must copy.
    """

    def __init__(
        self,
        A: Tensor,
        B: Tensor | None,
        X: Tensor,
        iK: Tensor | None,
        iparams: dict[str, int],
        fparams: dict[str, float],
        bparams: dict[str, bool],
        method: str,
        tracker: Callable[[LOBPCG], Any] | None,
    ) -> None:
        self.A, self.B, self.iK = A, B, iK
        self.iparams, self.fparams, self.bparams = iparams, fparams, bparams
        self.method = method
        self.tracker = tracker
        self.X = X
        self.E = X.new_zeros(iparams["n"])
        self.R = lucid.zeros_like(X)
        self.S = X
        self.tvars: dict[str, Tensor] = {}
        self.ivars: dict[str, int] = {"istep": 0}
        self.fvars: dict[str, float] = {}
        self.bvars: dict[str, bool] = {}

    def run(self) -> None:
        """Steps until `stop_iteration` says so."""
        while True:
            self.update()
            if self.tracker is not None:
                self.call_tracker()
            if self.stop_iteration():
                return

    def call_tracker(self) -> None:
        if self.tracker is not None:
            self.tracker(self)

    def stop_iteration(self) -> bool:
        """Has the tracker stopped it, are the steps used up, or are all pairs there?"""
        done = self.ivars["converged_count"] >= self.iparams["k"]
        return self.bvars.get("force_stop", False) or self.ivars["iterations_left"] == 0 or done

    def update(self) -> None:
        """One step: the best eigenpairs in the span of the basis, their residuals, and the basis of the next."""
        if self.ivars["istep"] == 0:
            self._measure()
        # What is there stays, and the rest is orthonormal to it; without an orthonormal basis all goes on turning.
        locked = self.ivars["converged_count"] if self.method == "ortho" else 0
        active = self.iparams["n"] - locked
        basis = self.S[:, locked:]
        orthonormal = self.method == "ortho" and self.ivars["istep"] > 0
        inner = None if orthonormal else self._whitening(basis)
        reduced = _gram(self.A, basis)
        if inner is not None:
            reduced = inner.mT @ reduced @ inner
        values, turned = _eigenpairs(reduced, self.bparams["largest"])
        coordinates = turned if inner is None else inner @ turned
        self.X = lucid.cat([self.X[:, :locked], basis @ coordinates[:, :active]], 1)
        self.E = lucid.cat([self.E[:locked], values[:active]])
        self.update_residual()
        count = self.update_converged_count()

        known = [self.X]
        if self.ivars["istep"] > 0:
            known.append(self._directions(basis, coordinates, active, count))
        gradient = _times(self.iK, self.R[:, count:])
        if self.method == "ortho":
            gradient = self._orthonormal(gradient, lucid.cat(known, 1))
        self.S = lucid.cat([*known, gradient], 1)
        self.ivars["converged_end"] = self.S.shape[1]
        self.ivars["iterations_left"] -= 1
        self.ivars["istep"] += 1

    def _measure(self) -> None:
        """Norms of the matrices, estimated by what they make of the random start."""
        norm = lucid.linalg.vector_norm
        size = float(norm(self.X))
        self.fvars["X_norm"] = size
        self.fvars["A_norm"] = float(norm(_times(self.A, self.X))) / size
        self.fvars["B_norm"] = float(norm(_times(self.B, self.X))) / size
        self.ivars |= {"iterations_left": self.iparams["niter"], "converged_count": 0, "converged_end": 0}

    def update_residual(self) -> None:
        """`R` of `A`, `B`, `X` and `E`."""
        self.R = _times(self.A, self.X) - _times(self.B, self.X) * self.E

    def update_converged_count(self) -> int:
        """How many pairs, counted from the first on, have a residual below the tolerance beside the matrices' norms:
        the backward stable criterion of Duersch and others, section 4.3. A subclass may have another."""

        def sizes(x: Tensor) -> Tensor:
            return lucid.linalg.vector_norm(x, dim=0)

        scale = self.fvars["A_norm"] + self.E.abs() * self.fvars["B_norm"]
        error = sizes(self.R) / (sizes(self.X) * scale)
        # A zero matrix has no residual.
        error = error.masked_fill(sizes(self.R) == 0, 0.0)
        # What is locked stays so.
        there = (error < self.fparams["tol"]).to(lucid.int64).cumprod(0).sum()
        count = max(int(there), self.ivars["converged_count"])
        self.ivars["converged_count"] = count
        self.tvars["rerr"] = error
        return count

    def _whitening(self, basis: Tensor) -> Tensor:
        """A matrix whose columns combine those of the basis to B-orthonormal ones: the inverse of a Cholesky factor, of
        columns scaled to length 1."""
        gram = _gram(self.B, basis)
        scale = gram.diagonal().rsqrt()
        factor = lucid.linalg.cholesky(gram * scale * scale.unsqueeze(1), upper=True)
        return lucid.linalg.solve_triangular(factor, scale.diag_embed(), upper=True, left=False)

    def _directions(self, basis: Tensor, coordinates: Tensor, active: int, there: int) -> Tensor:
        """The step that led to the new vectors: what of them is not in the span of the old ones."""
        if self.method != "ortho":
            return basis[:, active:] @ coordinates[active:, there:active]
        # In the coordinates of an orthonormal basis: of what the new vectors leave over, the part that holds the
        # old ones (Duersch and others, section 4.2).
        rest = coordinates[:, active:]
        span: Tensor = lucid.linalg.qr(rest[:active].mT).Q
        return basis @ (rest @ span)

    def _orthonormal(self, U: Tensor, V: Tensor) -> Tensor:
        """Columns that span what those of `U` add to those of `V`, which are B-orthonormal, and are so with them."""
        norm = lucid.linalg.vector_norm
        tolerance, drop = self.fparams["ortho_tol"], self.bparams["ortho_use_drop"]
        other = float(norm(_times(self.B, V)))
        outer = inner = 0
        for outer in range(self.iparams["ortho_i_max"]):
            U = U - V @ (V.mT @ _times(self.B, U))
            for inner in range(self.iparams["ortho_j_max"]):
                first = drop and inner == 0
                tau = self.fparams["ortho_tol_drop" if first else "ortho_tol_replace"]
                U = self._svqb(U, drop and not first, tau)
                if U.shape[1] == 0:
                    break
                BU = _times(self.B, U)
                off = U.mT @ BU - lucid.eye(U.shape[1], dtype=U.dtype, device=U.device)
                error = float(norm(off)) / (float(norm(BU)) * float(norm(U)))
                self.fvars[f"ortho_UBUmI_rerr[{outer}, {inner}]"] = error
                if error < tolerance:
                    break
            if U.shape[1] == 0:
                break
            error = float(norm(V.mT @ _times(self.B, U))) / (other * float(norm(U)))
            self.fvars[f"ortho_VBU_rerr[{outer}]"] = error
            if error < tolerance:
                break
            if self.iparams["m"] < U.shape[1] + V.shape[1]:
                raise errors.ValueError(f"lobpcg: {U.shape[1]} + {V.shape[1]} vectors of {self.iparams['m']} numbers")
        self.ivars |= {"ortho_i": outer, "ortho_j": inner}
        return U

    def _svqb(self, U: Tensor, drop: bool, tau: float) -> Tensor:
        """B-orthonormal columns that span those of `U`, from the eigenvectors of their scaled Gram matrix. Columns of
        zeros are left out; directions below `tau` are, with `drop`, or count as long as that."""
        sizes = _gram(self.B, U).diagonal()
        U = U[:, sizes > 0]
        if U.shape[1] == 0:
            return U
        gram = _gram(self.B, U)
        scale = gram.diagonal().rsqrt()
        values, vectors = lucid.linalg.eigh(gram * scale * scale.unsqueeze(1))
        least = tau * values.abs().max()
        if drop:
            vectors, values = vectors[:, values > least], values[values > least]
        whitened: Tensor = vectors * values.clamp(min=least).rsqrt()
        return (U * scale) @ whitened


class LOBPCGAutogradFunction(lucid.autograd.Function):
    """`lobpcg` with a gradient."""

    @staticmethod
    def forward(ctx: Any, A: Tensor, B: Tensor | None, *arguments: Any) -> tuple[Tensor, Tensor]:
        values, vectors = _solve(A, B, *arguments)
        ctx.save_for_backward(A, B, values, vectors)
        return values, vectors

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """With `g` and `G` the gradients to the eigenvalues `e` and eigenvectors `U`, that to `A` is `U (diag g +
        (UᵀG) ∘ F) Uᵀ`, where `F` is `1 / (eⱼ - eᵢ)` beside the diagonal, and outside of the span of `U`, where a
        vector may turn, too, `Σ (eᵢ - A)⁻¹ Gᵢ Uᵢᵀ`, from the derivative of `A u = e u`."""
        A, B, e, U = ctx.saved_tensors
        if B is not None:
            raise errors.ValueError("lobpcg: there is no gradient beside a B")
        g, G = gradients
        apart = e.unsqueeze(-2) - e.unsqueeze(-1)
        same = lucid.eye(e.shape[-1], dtype=lucid.bool, device=e.device)
        turns = (U.mT @ G / apart.masked_fill(same, 1.0)).masked_fill(same, 0.0)
        inside = U @ (turns + g.diag_embed()) @ U.mT

        # One system for each pair. On the span of `U` it is the identity, which the projected right side does not meet.
        span = U @ U.mT
        identity = lucid.eye(A.shape[-1], dtype=A.dtype, device=A.device)
        outside = identity - span
        projected = (outside @ A @ outside).unsqueeze(-3)
        shifts = e.unsqueeze(-1).unsqueeze(-1) * outside.unsqueeze(-3)
        systems = shifts - projected + span.unsqueeze(-3)
        turned = lucid.linalg.solve(systems, (outside @ G).mT.unsqueeze(-1)).squeeze(-1).mT
        return (inside + turned @ U.mT, *[None] * (len(ctx.needs_input_grad) - 1))
