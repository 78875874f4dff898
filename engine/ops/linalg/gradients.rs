//! The gradients of the primitives, in `Tensor` ops.
//!
//! Each rule names its formula or its source. Depends on the primitives themselves, which the rules call again.

use super::decomposition::{eig_parts, eigh_parts, svd_parts};
use super::{adjoint, first_of, linalg_matrix_exp, real_part, row_order, solve_matrices, solve_triangle};
use crate::autograd::Ctx;
use crate::ops::compare::select;
use crate::{Error, Result, Scalar, Tensor};

/// Rows and columns of a gradient rule's matrix.
fn sides(c: &Ctx<'_>) -> (usize, usize) {
    match c.shape(0).as_slice() {
        [.., m, n] => (*m, *n),
        _ => (0, 0),
    }
}

/// In the diagonal's place its real part.
fn real_diagonal(t: &Tensor) -> Result<Tensor> {
    match t.dtype().is_complex() {
        true => off_diagonal(t)? + &real_part(&t.diagonal(0, -2, -1)?)?.cast(t.dtype())?.diag_embed(0, -2, -1)?,
        false => Ok(t.clone()),
    }
}

/// The gradient of what is unique up to a factor of absolute value 1 must not depend on that factor: refuses one whose
/// component along it, in a diagonal's imaginary part, is not 0. On the CPU alone, where reading costs nothing.
fn refuse_phase(op: &'static str, along: &Tensor) -> Result<()> {
    if !along.dtype().is_complex() || along.numel() == 0 || along.device() != crate::Device::Cpu {
        return Ok(());
    }
    let along = crate::batching::bare(along).detach()?;
    match crate::ops::complex::imag(&along)?.abs()?.amax(None, false)?.item_f64()? {
        most if most > 1e-2 => {
            let why =
                "the vectors are unique up to factors of absolute value 1 alone; the loss depends on them, so that its gradient is not defined";
            Err(Error::runtime(op, why))
        }
        _ => Ok(()),
    }
}

/// `a / b`, and 0 where both are 0: of equal values, and nothing asked of them.
fn quotient(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    let none = a.detach()?.eq(0)?.logical_and(&b.detach()?.eq(0)?)?;
    a / &select::r#where(&none, Scalar::ONE, b)?
}

/// `L⁻ᴴ Φ(Lᴴ g) L⁻¹ / 2`, where Φ copies the lower half up, conjugated (Murray, 2016).
pub(super) fn cholesky_gradient(c: &Ctx<'_>) -> Result<Tensor> {
    let (l, g) = (c.result(0)?, c.grad_or_zeros(0)?);
    let upper = adjoint(&l)?;
    let x = upper.matmul(&g)?;
    let phi = ((x.tril(0)? + &adjoint(&x.tril(-1)?)?)? * 0.5)?;
    // By columns, as it comes: of Φ's adjoint.
    let half = adjoint(&solve_triangle(&upper, &adjoint(&phi)?, true, false)?)?;
    solve_triangle(&upper, &half, true, false)
}

/// Of a matrix that is not wide `(g_Q + Q sym(R g_Rᵀ - g_Qᵀ Q)) R⁻ᵀ`, where sym copies the lower half up; of a wide one the
/// same of its square part, after the columns behind it (Roberts and Roberts, 2020).
pub(super) fn qr_gradient(c: &Ctx<'_>) -> Result<Tensor> {
    let (m, n) = sides(c);
    let (q, r, gq, gr) = (c.result(0)?, c.result(1)?, c.grad_or_zeros(0)?, c.grad_or_zeros(1)?);
    let tall = |gq: &Tensor, r: &Tensor, gr: &Tensor| -> Result<Tensor> {
        let x = (r.matmul(&adjoint(gr)?)? - &adjoint(gq)?.matmul(&q)?)?;
        let both = real_diagonal(&(x.tril(0)? + &adjoint(&x.tril(-1)?)?)?)?;
        adjoint(&solve_triangle(r, &adjoint(&(gq + &q.matmul(&both)?)?)?, true, false)?)
    };
    if m >= n {
        return tall(&gq, &r, &gr);
    }
    let cut = |t: &Tensor| -> Result<(Tensor, Tensor)> {
        Ok((t.narrow(-1, 0, m as i64)?, t.narrow(-1, m as i64, (n - m) as i64)?))
    };
    let ((u, v), (gu, gv)) = (cut(&r)?, cut(&gr)?);
    let behind = q.matmul(&v)?;
    let gq = (&gq + &behind.matmul(&adjoint(&gv)?)?)?;
    crate::ops::index::cat(&[tall(&gq, &u, &gu)?, q.matmul(&gv)?], -1)
}

/// `V (diag(g_λ) + (Vᴴ g_V) / (λⱼ - λᵢ)) Vᴴ` (Giles, 2008).
pub(super) fn eigh_gradient(c: &Ctx<'_>) -> Result<Tensor> {
    let (w, v, gw, gv) = (c.result(0)?, c.result(1)?, c.grad_or_zeros(0)?, c.grad_or_zeros(1)?);
    let gaps = (w.unsqueeze(-2)? - &w.unsqueeze(-1)?)?;
    let x = adjoint(&v)?.matmul(&gv)?;
    refuse_phase("linalg.eigh", &x.diagonal(0, -2, -1)?)?;
    let x = off_diagonal(&x)?;
    let inner = (quotient(&x, &gaps)? + &gw.diag_embed(0, -2, -1)?)?;
    let whole = v.matmul(&inner)?.matmul(&adjoint(&v)?)?;
    // One half is read: its gradient goes to both, evenly.
    (&whole + &adjoint(&whole)?)? * 0.5
}

/// `V⁻ᴴ (diag(g_λ) + (Vᴴ g_V - Vᴴ V diag(Re Vᴴ g_V)) / conj(λⱼ - λᵢ)) Vᴴ`, of a real matrix the real part.
pub(super) fn eig_gradient(c: &Ctx<'_>, vectors: bool) -> Result<Tensor> {
    let [w, v] = if vectors { [c.result(0)?, c.result(1)?] } else { first_of(eig_parts(&c.x(0)?, true)?)? };
    let (vh, gw) = (adjoint(&v)?, c.grad_or_zeros(0)?);
    let inner = if vectors {
        let x = vh.matmul(&c.grad_or_zeros(1)?)?;
        let own = x.diagonal(0, -2, -1)?;
        refuse_phase("linalg.eig", &own)?;
        let x = (x - &(vh.matmul(&v)? * &real_part(&own)?.unsqueeze(-2)?)?)?;
        let gaps = (w.unsqueeze(-2)? - &w.unsqueeze(-1)?)?.conjugated()?;
        (quotient(&off_diagonal(&x)?, &gaps)? + &gw.diag_embed(0, -2, -1)?)?
    } else {
        gw.diag_embed(0, -2, -1)?
    };
    let total = solve_matrices(&vh, &inner.matmul(&vh)?)?;
    match c.x(0)?.dtype().is_complex() {
        true => Ok(total),
        false => real_part(&total),
    }
}

fn off_diagonal(x: &Tensor) -> Result<Tensor> {
    x.tril(-1)? + &x.triu(1)?
}

/// Townsend's formula (2016); columns that belong to no singular value have no gradient.
pub(super) fn svd_gradient(c: &Ctx<'_>) -> Result<Tensor> {
    let (m, n) = sides(c);
    let k = m.min(n);
    let thin = |u: Tensor, vt: Tensor| -> Result<(Tensor, Tensor)> {
        Ok((u.narrow(-1, 0, k as i64)?, vt.narrow(-2, 0, k as i64)?))
    };
    let (u, vt) = thin(c.result(0)?, c.result(2)?)?;
    let (gu, gvt) = thin(c.grad_or_zeros(0)?, c.grad_or_zeros(2)?)?;
    let (s, gs) = (c.result(1)?, c.grad_or_zeros(1)?);
    let (ut, v, gv) = (adjoint(&u)?, adjoint(&vt)?, adjoint(&gvt)?);
    let squares = s.square()?;
    let gaps = (squares.unsqueeze(-2)? - &squares.unsqueeze(-1)?)?;
    let skew = |x: Tensor| -> Result<Tensor> { quotient(&off_diagonal(&(&x - &adjoint(&x)?)?)?, &gaps) };
    let (row, column) = (s.unsqueeze(-2)?, s.unsqueeze(-1)?);
    let (along_u, along_v) = (ut.matmul(&gu)?, vt.matmul(&gv)?);
    let mut of_s = gs;
    if along_u.dtype().is_complex() {
        // U and V turn together: a factor of one column of both is free, that of U alone is not.
        let (own_u, own_v) = (along_u.diagonal(0, -2, -1)?, along_v.diagonal(0, -2, -1)?);
        refuse_phase("linalg.svd", &(&own_u + &own_v)?)?;
        of_s = (of_s + &quotient(&(&own_u - &own_u.conjugated()?)?, &(&s * 2.0)?)?)?;
    }
    let of_u = (skew(along_u)? * &row)?;
    let of_v = (skew(along_v)? * &column)?;
    let inner = ((of_u + &of_v)? + &of_s.diag_embed(0, -2, -1)?)?;
    let mut total = u.matmul(&inner)?.matmul(&vt)?;
    if m > k {
        let rest = (&gu - &u.matmul(&ut.matmul(&gu)?)?)?;
        total = (total + &quotient(&rest, &row)?.matmul(&vt)?)?;
    }
    if n > k {
        let rest = (&gvt - &gvt.matmul(&v)?.matmul(&vt)?)?;
        total = (total + &u.matmul(&quotient(&rest, &column)?)?)?;
    }
    Ok(total)
}

pub(super) fn singular_values_gradient(c: &Ctx<'_>, g: &Tensor) -> Result<Tensor> {
    let [u, _, vt] = first_of(svd_parts(&c.x(0)?, false)?)?;
    (u * &g.unsqueeze(-2)?)?.matmul(&vt)
}

pub(super) fn eigenvalues_gradient(c: &Ctx<'_>, g: &Tensor) -> Result<Tensor> {
    let [_, v] = first_of(eigh_parts(&c.x(0)?)?)?;
    (&v * &g.unsqueeze(-2)?)?.matmul(&adjoint(&v)?)
}

/// `dP = -P dA P + P Pᵀ dAᵀ (I - A P) + (I - P A) dAᵀ Pᵀ P` (Golub and Pereyra, 1973), where the rank stays.
pub(super) fn pseudo_inverse_gradient(c: &Ctx<'_>, g: &Tensor) -> Result<Tensor> {
    let (a, p) = (c.x(0)?, c.out()?);
    let (pt, gt) = (adjoint(&p)?, adjoint(g)?);
    let own = adjoint(&p.matmul(&gt)?.matmul(&p)?)?;
    // The smaller products first: `left` is short on the side of the columns, `right` on that of the rows.
    let k = gt.matmul(&p)?.matmul(&pt)?;
    let left = (&k - &a.matmul(&p.matmul(&k)?)?)?;
    let k = pt.matmul(&p.matmul(&gt)?)?;
    let right = (&k - &k.matmul(&p)?.matmul(&a)?)?;
    (left - &own)? + &right
}

/// With `L⁻ᵀ (tril(Lᵀ g_L) + triu(g_U Uᵀ)) U⁻ᵀ` for the square part, and for what is beside or below it what follows from
/// `A₂ = L U₂` and `A₂ = L₂ U`.
pub(super) fn lu_gradient(c: &Ctx<'_>) -> Result<Tensor> {
    let (m, n) = sides(c);
    let k = m.min(n);
    let (lu, pivots, g) = (c.result(0)?, c.result(1)?, c.grad_or_zeros(0)?);
    let (square, rest) = (k as i64, (m.max(n) - k) as i64);
    let corner = |t: &Tensor| t.narrow(-1, 0, square)?.narrow(-2, 0, square);
    let (own, g1) = (corner(&lu)?, corner(&g)?);
    let eye = crate::ops::create::identity(k, lu.dtype(), lu.device())?;
    let (lt, u) = ((adjoint(&own.tril(-1)?)? + &eye)?, own.triu(0)?);
    let mut left = lt.matmul(&g1.tril(-1)?)?;
    let mut right = g1.triu(0)?.matmul(&adjoint(&u)?)?;
    let by_u = |x: &Tensor| adjoint(&solve_triangle(&u, &adjoint(x)?, true, false)?);
    let mut outside = None;
    if n > k {
        let (u2, g2) = (lu.narrow(-1, square, rest)?, g.narrow(-1, square, rest)?);
        left = (left - &g2.matmul(&adjoint(&u2)?)?)?;
        outside = Some((solve_triangle(&lt, &g2, true, true)?, -1));
    } else if m > k {
        let (l2, g2) = (lu.narrow(-2, square, rest)?, g.narrow(-2, square, rest)?);
        right = (right - &adjoint(&l2)?.matmul(&g2)?)?;
        outside = Some((by_u(&g2)?, -2));
    }
    let inner = (left.tril(-1)? + &right.triu(0)?)?;
    let mut total = by_u(&solve_triangle(&lt, &inner, true, true)?)?;
    if let Some((beside, dim)) = outside {
        total = crate::ops::index::cat(&[total, beside], dim)?;
    }
    let back = row_order(&pivots, m)?.argsort(-1, false, true)?;
    total.gather(-2, &crate::ops::view::expand_to(&back.unsqueeze(-1)?, total.shape())?)
}

pub(super) fn triangle_gradient(c: &Ctx<'_>, g: &Tensor, upper: bool, unit: bool) -> Result<crate::autograd::Grads> {
    let of_b = solve_triangle(&adjoint(&c.x(0)?)?, g, !upper, unit)?;
    let mut grads = crate::autograd::Grads::new();
    grads.push(match c.needs(0) {
        true => {
            let whole = of_b.matmul(&adjoint(&c.out()?)?)?.neg()?;
            let inside = i64::from(unit);
            Some(if upper { whole.triu(inside)? } else { whole.tril(-inside)? })
        }
        false => None,
    });
    grads.push(c.needs(1).then_some(of_b));
    Ok(grads)
}

/// The upper right block of the exponential of `[[Aᵀ, g], [0, Aᵀ]]` (Al-Mohy and Higham, 2009).
pub(super) fn exponential_gradient(c: &Ctx<'_>, g: &Tensor) -> Result<Tensor> {
    let (n, _) = sides(c);
    let at = adjoint(&c.x(0)?)?;
    let above = crate::ops::index::cat(&[at.clone(), g.clone()], -1)?;
    let below = crate::ops::index::cat(&[g.zeros_like()?, at], -1)?;
    let whole = linalg_matrix_exp(&crate::ops::index::cat(&[above, below], -2)?)?;
    whole.narrow(-2, 0, n as i64)?.narrow(-1, n as i64, n as i64)
}

/// `d log|det A| = Re tr(A⁻¹ dA)`, `d det A = tr(adj A dA)`; a real sign is constant. Where a matrix is singular, its cofactors are
/// made of its singular values, and the logarithm's gradient is infinite.
pub(super) fn determinant_gradient(c: &Ctx<'_>) -> Result<crate::autograd::Grads> {
    // A real sign leads nowhere, as in PyTorch, rather than to zeros.
    let along_sign_alone = c.grad(1).is_none() && c.grad(2).is_none();
    let made = match along_sign_alone && !c.x(0)?.dtype().is_complex() {
        true => None,
        false => Some(determinant_total(c)?),
    };
    Ok(std::iter::once(made).collect())
}

fn determinant_total(c: &Ctx<'_>) -> Result<Tensor> {
    let wide = |t: Tensor| t.unsqueeze(-1)?.unsqueeze(-1);
    let (a, sign, det) = (c.x(0)?, c.result(0)?, c.result(2)?);
    let (of_log, of_det) = (c.grad_or_zeros(1)?, c.grad_or_zeros(2)?);
    let mut along = (&of_log + &(&of_det * &det.conjugated()?)?)?;
    if a.dtype().is_complex() {
        // The sign turns by the imaginary part of what the logarithm grows by.
        let turn = (c.grad_or_zeros(0)? * &sign.conjugated()?)?;
        along = (along + &((&turn - &turn.conjugated()?)? * 0.5)?)?;
    }
    let singular = sign.detach()?.eq(0)?;
    if matches!(singular.any(None, false)?.item_bool(), Ok(false)) {
        return wide(along)?.mul(&adjoint(&a)?.inverse()?);
    }
    // Each branch gets matrices that it can take.
    let n = a.shape()[a.ndim() - 1];
    let eye = crate::ops::create::identity(n, a.dtype(), a.device())?;
    let singular = wide(singular)?;
    let regular = select::r#where(&singular, &eye, &a)?.inverse()?;
    let regular = adjoint(&regular)?;
    let odd = select::r#where(&singular, &a, &eye)?;
    let [u, s, vt] = first_of(svd_parts(&odd, false)?)?;
    let others = crate::ops::scan::product_of_others(&s, s.ndim() - 1)?;
    let turn = wide((u.det()? * &vt.det()?)?.conjugated()?)?;
    let cofactors = ((&u * &others.unsqueeze(-2)?)?.matmul(&vt)? * &turn)?;
    // Nothing times infinity would be no number: only where the logarithm was asked for.
    let asked = wide(of_log.detach()?.ne(0)?)?;
    let infinite = (cofactors.detach()? / 0.0)?.where_else_zero(&asked)?;
    let at_singular = ((wide(of_det)? * &cofactors)? + &(wide(of_log)? * &infinite)?.where_else_zero(&asked)?)?;
    let plain = wide(along.where_else_zero(&singular.squeeze(Some(&[-1]))?.squeeze(Some(&[-1]))?.logical_not()?)?)?;
    select::r#where(&singular, &at_singular, &plain.mul(&regular)?)
}

/// `-A⁻ᴴ g A⁻ᴴ`.
pub(super) fn inverse_gradient(c: &Ctx<'_>, g: &Tensor) -> Result<Tensor> {
    let inverse = adjoint(&c.out()?)?;
    inverse.matmul(g)?.matmul(&inverse)?.neg()
}

pub(super) fn solve_gradient(c: &Ctx<'_>, g: &Tensor) -> Result<crate::autograd::Grads> {
    let of_b = solve_matrices(&adjoint(&c.x(0)?)?, g)?;
    let of_a = match c.needs(0) {
        true => Some(of_b.matmul(&adjoint(&c.out()?)?)?.neg()?),
        false => None,
    };
    let mut grads = crate::autograd::Grads::new();
    grads.push(of_a);
    grads.push(c.needs(1).then_some(of_b));
    Ok(grads)
}
