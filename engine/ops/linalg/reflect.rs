//! Products of Householder's reflections, `I - τ v vᴴ`, and the QR factors that are given as such.
//!
//! A product of reflections is `I - V D M⁻¹ Vᴴ`, where `V` has their vectors as columns, `D` the factors τ on its diagonal, and
//! `M = I + triu(Vᴴ V, 1) D` is unit upper triangular (Joffrain, Low, Quintana-Ortí, van de Geijn and Van Zee, 2006): matrix
//! products and one triangular system, from which gradients follow, also where a τ is 0.
#![allow(non_snake_case)]

use super::{adjoint, matrices, solve_triangle};
use crate::autograd::{with_grad_layout, GradLayoutRule};
use crate::ops::macros::define_composites;
use crate::shape::Shape;
use crate::{Error, Result, Tensor};

/// The rows of the family, for `$cb`.
#[macro_export]
#[doc(hidden)]
macro_rules! reflect_ops {
    ($cb:ident) => { $crate::rows! { $cb "reflect" :
        /// The QR factors as LAPACK leaves them: `a` with `R` from the diagonal on and the vectors of the reflections
        /// below it, from which a 1 on the diagonal is left out, and their factors `tau`, min(m, n). No gradient. On
        /// the GPU device the matrix is read back, which evaluates.
        method geqrf() -> Named {
            out: cast, flags: [no_gradient], amp: Full, dtypes: FACTORED, result: Same,
            run: geqrf_body,
            samples: ["N(3, 3)", "N(2, 4, 3)", "N(3, 5)", "N(2, 0)"],
            example: [
                "let made = tensor([[3.0], [4.0]])?.geqrf()?;",
                "assert_close(&made[0], [[-5.0], [0.5]]);",
                "assert_close(&made[1], [1.6]);",
            ],
        }
        /// The first n columns of the product of the reflections whose vectors are below the diagonal of `A`, m by n
        /// with n ≤ m, and whose factors are `tau`, up to n.
        function linalg_householder_product(input: Tensor, tau: Tensor) -> Tensor {
            out: cast, amp: Full, dtypes: FACTORED, result: Same,
            run: product_body["linalg.householder_product"], torch: "linalg.householder_product",
            samples: ["N(4, 3), U(3)", "N(2, 3, 3), U(2, 3)", "N(2, 4, 3), U(2, 2)", "N(3, 2), U(0)", "N(3, 0), U(0)"],
            example: [
                "let (a, tau) = (tensor([[-5.0], [0.5]])?, tensor([1.6])?);",
                "assert_close(linalg_householder_product(&a, &tau)?, [[-0.6], [-0.8]]);",
            ],
        }
        /// [`linalg_householder_product`].
        method orgqr(input2: Tensor) -> Tensor {
            out: cast, amp: Full, dtypes: FACTORED, result: Same,
            run: product_body["orgqr"], node: "linalg_householder_product",
            samples: ["N(4, 3), U(3)", "N(2, 3, 3), U(2, 3)"],
            example: ["assert_close(tensor([[-5.0], [0.5]])?.orgqr(&tensor([1.6])?)?, [[-0.6], [-0.8]]);"],
        }
        /// `Q C`, without `left` `C Q`, with `transpose` of the adjoint of `Q`: the square product of the reflections
        /// whose vectors are below the diagonal of the input, and whose factors are `input2`. `C` is `input3`. Batches
        /// are the same.
        method ormqr(input2: Tensor, input3: Tensor, left: Bool = true, transpose: Bool = false) -> Tensor {
            amp: Full, dtypes: FACTORED, result: Same,
            run: ormqr_body,
            samples: [
                "N(4, 3), U(3), N(4, 2)",
                "N(2, 3, 3), U(2, 3), N(2, 3, 4), True, True",
                "N(4, 2), U(2), N(3, 4), left=False",
                "N(4, 2), U(2), N(3, 4), False, True",
                "N(3, 5), U(3), N(3, 2)",
            ],
            example: [
                "let (a, tau) = (tensor([[-5.0], [0.5]])?, tensor([1.6])?);",
                "assert_close(a.ormqr(&tau, &tensor([[3.0], [4.0]])?, true, true)?, [[-5.0], [0.0]]);",
            ],
        }
    }};
}
reflect_ops!(define_composites);

fn geqrf_body(a: &Tensor) -> Result<Vec<Tensor>> {
    matrices("geqrf", a)?;
    super::decomposition::reflector_parts(a)
}

/// Vectors and factors of reflections, and how they act on columns.
struct Reflections {
    vectors: Tensor,
    /// Their negatives, so that the product is a sum.
    factors: Tensor,
    /// `M` of the module's formula.
    inner: Tensor,
}

impl Reflections {
    fn new(op: &'static str, a: &Tensor, tau: &Tensor) -> Result<Reflections> {
        let (lead, m, n) = matrices(op, a)?;
        if tau.ndim() + 1 != a.ndim() || &tau.shape()[..lead.len()] != lead {
            let why = "Expected tau to have one dimension less than the matrices, and the same batch";
            return Err(Error::shape(op, why, &[a.shape(), tau.shape()]));
        }
        if tau.dtype() != a.dtype() {
            return Err(Error::dtype(op, "tau must have the same dtype as input", &[a.dtype(), tau.dtype()]));
        }
        let k = tau.shape()[lead.len()];
        if k > n.min(m) {
            let why = "input.shape[-1] must be greater than or equal to tau.shape[-1]";
            return Err(Error::shape(op, why, &[a.shape(), tau.shape()]));
        }
        let unit = |rows: usize| crate::ops::create::identity(rows, a.dtype(), a.device());
        let vectors = (a.narrow(-1, 0, k as i64)?.tril(-1)? + &unit(m)?.narrow(-1, 0, k as i64)?)?;
        let factors = tau.neg()?.unsqueeze(-1)?;
        let products = adjoint(&vectors)?.matmul(&vectors)?.triu(1)?;
        let inner = ((products * &tau.unsqueeze(-2)?)? + &unit(k)?)?;
        Ok(Reflections { vectors, factors, inner })
    }

    /// The product with the columns `c`, from what `Vᴴ` makes of them; it is column-major, as LAPACK leaves it, or by rows.
    fn act(&self, c: &Tensor, along: &Tensor, adjointed: bool, columns: bool) -> Result<Tensor> {
        let middle = match adjointed {
            false => (&self.factors * &solve_triangle(&self.inner, along, true, true)?)?,
            true => solve_triangle(&adjoint(&self.inner)?, &(self.factors.conjugated()? * along)?, false, true)?,
        };
        let turned = |t: &Tensor| t.transpose(-2, -1);
        match columns {
            true => turned(&(turned(&middle)?.matmul(&turned(&self.vectors)?)? + &turned(c)?)?),
            false => self.vectors.matmul(&middle)? + c,
        }
    }
}

fn product_body(op: &'static str, a: &Tensor, tau: &Tensor) -> Result<Tensor> {
    let (lead, m, n) = matrices(op, a)?;
    if n > m {
        let why = "input.shape[-2] must be greater than or equal to input.shape[-1]";
        return Err(Error::shape(op, why, &[a.shape()]));
    }
    let (a, tau) = (&with_grad_layout(a, GradLayoutRule::AsInput)?, &with_grad_layout(tau, GradLayoutRule::AsInput)?);
    let reflections = Reflections::new(op, a, tau)?;
    let columns = crate::ops::create::identity(m, a.dtype(), a.device())?.narrow(-1, 0, n as i64)?;
    // Of the vectors' adjoint, the first columns are what it makes of the first unit vectors.
    let along = adjoint(&reflections.vectors.narrow(-2, 0, n as i64)?)?;
    let shape: Shape = lead.iter().copied().chain([m, n]).collect();
    reflections.act(&crate::ops::view::expand_to(&columns, &shape)?, &along, false, true)
}

fn ormqr_body(a: &Tensor, tau: &Tensor, c: &Tensor, left: bool, transpose: bool) -> Result<Tensor> {
    let op = "ormqr";
    let (lead, m, _) = matrices(op, a)?;
    if c.dtype() != a.dtype() {
        return Err(Error::dtype(op, "other must have the same dtype as input", &[a.dtype(), c.dtype()]));
    }
    if c.ndim() != a.ndim() || &c.shape()[..lead.len()] != lead {
        let why = "batch dimensions of other should be equal to batch dimensions of input";
        return Err(Error::shape(op, why, &[a.shape(), c.shape()]));
    }
    if c.shape()[if left { lead.len() } else { lead.len() + 1 }] != m {
        let why = "the side of other that Q is on must be as long as input.shape[-2]";
        return Err(Error::shape(op, why, &[a.shape(), c.shape()]));
    }
    let (a, tau, c) = (
        &with_grad_layout(a, GradLayoutRule::AsInput)?,
        &with_grad_layout(tau, GradLayoutRule::AsInput)?,
        &with_grad_layout(c, GradLayoutRule::Columns)?,
    );
    let reflections = Reflections::new(op, a, tau)?;
    // From the right, the adjoint acts on the adjoint.
    let c = if left { c.clone() } else { adjoint(c)? };
    let y = reflections.act(&c, &adjoint(&reflections.vectors)?.matmul(&c)?, transpose == left, left)?;
    if left {
        Ok(y)
    } else {
        adjoint(&y)
    }
}
