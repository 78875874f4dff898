//! Decompositions of low rank by random samples of the columns (Halko, Martinsson and Tropp, 2011).
//!
//! Composed of products, QR and small singular value decompositions; gradients follow from these.
#![allow(non_snake_case)]

use super::factor::{linalg_qr, linalg_svd};
use super::{adjoint, first_of, matrices};
use crate::ops::macros::define_composites;
use crate::ops::{random, QrMode};
use crate::{Error, Result, Tensor};

/// The rows of the family, for `$cb`.
#[macro_export]
#[doc(hidden)]
macro_rules! lowrank_ops {
    ($cb:ident) => { $crate::rows! { $cb "lowrank" :
        /// `U`, singular values and `V` of about `A` (of `A - M` where that is given), of rank up to `q`, by `niter`
        /// rounds of power iteration on a random sample. More rounds and a larger `q` come nearer; `q` a little above
        /// the rank sought is best.
        function svd_lowrank(A: Tensor, q: OptInt = Some(6), niter: OptInt = Some(2), M: OptTensor = None) -> Tensors {
            out: none, amp: Full, deterministic: Seeded, dtypes: FACTORED, result: Same,
            run: svd_lowrank_body,
            samples: [],
            example: [
                "let a = tensor([[1.0, 2.0], [2.0, 4.0], [3.0, 6.0]])?;",
                "let made = svd_lowrank(&a, Some(2), Some(2), None)?;",
                "assert_close((&made[0] * &made[1])?.matmul(&made[2].t()?)?, &a);",
            ],
        }
        /// [`svd_lowrank`] of `A` with the mean of each column taken off, unless `center` is false: principal
        /// components, in the columns of `V`. `q` is 6 by default, or the smaller side.
        function pca_lowrank(A: Tensor, q: OptInt = None, center: Bool = true, niter: Int = 2) -> Tensors {
            out: none, amp: Full, deterministic: Seeded, dtypes: FACTORED, result: Same,
            run: pca_lowrank_body,
            samples: [],
            example: [
                "let made = pca_lowrank(&tensor([[0.0, 0.0], [3.0, 4.0], [6.0, 8.0]])?, Some(1), true, 2)?;",
                "assert_close(made[2].abs()?, [[0.6], [0.8]]);",
            ],
        }
    }};
}
lowrank_ops!(define_composites);

/// `(A - M) x`, or the adjoint's product.
fn applied(a: &Tensor, m: Option<&Tensor>, x: &Tensor) -> Result<Tensor> {
    let y = a.matmul(x)?;
    match m {
        Some(m) => y - &m.matmul(x)?,
        None => Ok(y),
    }
}

/// Orthonormal columns that span the columns of the matrix, but for a little.
fn basis(x: &Tensor) -> Result<Tensor> {
    Ok(linalg_qr(x, QrMode::Reduced)?.swap_remove(0))
}

fn svd_lowrank_body(a: &Tensor, q: Option<i64>, niter: Option<i64>, m: Option<&Tensor>) -> Result<Vec<Tensor>> {
    let op = "svd_lowrank";
    let (lead, rows, columns) = matrices(op, a)?;
    let m = match m {
        Some(m) if m.dtype() != a.dtype() => {
            return Err(Error::dtype(op, "Expected A and M to have the same dtype", &[a.dtype(), m.dtype()]));
        }
        Some(m) if !crate::shape::broadcast(op, m.shape(), a.shape()).is_ok_and(|s| s.as_slice() == a.shape()) => {
            return Err(Error::shape(op, "expected M to be expandable to A's shape", &[a.shape(), m.shape()]));
        }
        Some(m) => Some(crate::ops::view::expand_to(m, a.shape())?),
        None => None,
    };
    let Ok(q) = usize::try_from(q.unwrap_or(6)) else {
        return Err(Error::value(op, "q must be a non-negative integer"));
    };
    let wide = rows < columns;
    let (turned, turned_m) = (adjoint(a)?, m.as_ref().map(adjoint).transpose()?);
    let (tall, tall_m, back, back_m) = match wide {
        true => (&turned, turned_m.as_ref(), a, m.as_ref()),
        false => (a, m.as_ref(), &turned, turned_m.as_ref()),
    };
    let _ = lead;
    let sample = random::normal_of(&[rows.min(columns), q], a.dtype(), a.device(), None)?;
    let mut range = basis(&applied(tall, tall_m, &sample)?)?;
    for _ in 0..niter.unwrap_or(2) {
        let other = basis(&applied(back, back_m, &range)?)?;
        range = basis(&applied(tall, tall_m, &other)?)?;
    }
    let small = adjoint(&applied(back, back_m, &range)?)?;
    let [u, s, vh] = first_of(linalg_svd(&small, false, None)?)?;
    let (u, v) = (range.matmul(&u)?, adjoint(&vh)?);
    Ok(if wide { vec![v, s, u] } else { vec![u, s, v] })
}

fn pca_lowrank_body(a: &Tensor, q: Option<i64>, center: bool, niter: i64) -> Result<Vec<Tensor>> {
    let op = "pca_lowrank";
    let (_, m, n) = matrices(op, a)?;
    let least = m.min(n) as i64;
    let q = q.unwrap_or(least.min(6));
    if !(0..=least).contains(&q) {
        let why = format!("q(={q}) must be non-negative integer and not greater than min(m, n)={least}");
        return Err(Error::value(op, why));
    }
    if niter < 0 {
        return Err(Error::value(op, format!("niter(={niter}) must be non-negative integer")));
    }
    let a = if center { (a - &a.mean(Some(&[-2]), true, None)?)? } else { a.clone() };
    svd_lowrank_body(&a, Some(q), Some(niter), None)
}
