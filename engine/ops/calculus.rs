//! Differences, derivatives and integrals of sampled functions.
//!
//! No primitives: a row's body is in Tensor ops, so that it runs on both backends and needs no gradient rule of its own.

use super::macros::define_composites;
use super::Spacing;
use crate::shape::Sizes;
use crate::{shape, Error, Result, Scalar, Tensor};

/// The rows of the family, for `$cb`.
#[macro_export]
#[doc(hidden)]
macro_rules! calculus_ops {
    ($cb:ident) => { $crate::rows! { $cb "calculus" :
        /// The `n`-th differences of neighbours along `dim`, with `prepend` and `append` joined on first. For `bool`,
        /// where neighbours differ.
        method diff(n: Int = 1, dim: Dim = -1, prepend: OptTensor = None, append: OptTensor = None) -> Tensor {
            out: rule, flags: [steps], dtypes: ALL, result: Same,
            run: diff_body, node: "sub",
            samples: ["N(5)", "N(3, 4), 2, 0", "N(3, 4), 1, 1, N(3, 2), N(3, 1)", "N(3, 4), 0", "N(3), 5"],
            example: ["assert_close(tensor([1, 4, 9, 16])?.diff(1, -1, None, None)?, [3, 5, 7]);"],
        }
        /// The integral along `dim` by the trapezoidal rule, over points `x` or `dx` apart. `x` is a vector along
        /// `dim`, or broadcasts against `y` once the differences of its neighbours are taken.
        function trapezoid(y: Tensor, x: SomeTensor = None; dx: Number = 1, dim: Dim = -1) -> Tensor {
            out: none, flags: [steps], dtypes: NUMERIC, result: Same,
            run: trapezoid_body,
            samples: [
                "N(3, 4)",
                "N(3, 4), N(4)",
                "N(3, 4), dx=0.5, dim=0",
                "N(3, 4), N(3, 4)",
                "N(2, 1, 3), N(4, 3)",
                "N(3, 1), N(3, 4), dim=0",
            ],
            example: ["assert_close(trapezoid(&tensor([1.0, 2.0, 4.0])?, None, 1, -1)?, 4.5);"],
        }
        /// The running integral along `dim` by the trapezoidal rule, over points `x` or `dx` apart, as
        /// [`trapezoid`](crate::ops::calculus::trapezoid) takes them.
        function cumulative_trapezoid(y: Tensor, x: SomeTensor = None; dx: Number = 1, dim: Dim = -1) -> Tensor {
            out: none, flags: [steps], dtypes: NUMERIC, result: Same,
            run: cumulative_trapezoid_body,
            samples: ["N(3, 4)", "N(3, 4), N(4)", "N(3, 4), dx=0.5, dim=0"],
            example: ["assert_close(cumulative_trapezoid(&tensor([1.0, 2.0, 4.0])?, None, 1, -1)?, [1.5, 4.5]);"],
        }
        /// The derivative along each dimension of `dim` (of all, where none is given) by differences: one tensor for
        /// each. `spacing` is the distance of neighbours, one for all dimensions or one for each, or for each a vector
        /// of coordinates. Inside it is second order, from both neighbours; at the ends of order `edge_order`, 1 or 2,
        /// from the nearest `edge_order + 1` elements, which every dimension must have. Integers give the default
        /// float.
        function gradient(
            input: Tensor; spacing: Spacing = &$crate::ops::Spacing::Number($crate::Scalar::ONE), dim: OptDims = None,
            edge_order: Int = 1
        ) -> Tensors {
            out: none, flags: [steps], dtypes: NUMERIC.less(DTypes::of(&[$crate::DType::U8])), result: Own,
            run: gradient_body,
            samples: [
                "N(5)",
                "N(3, 4)",
                "N(3, 4), dim=1, spacing=0.5",
                "N(3, 4), spacing=[2, 0.5], edge_order=2",
                "N(3, 4), spacing=[ASC(3), ASC(4)], edge_order=2",
                "N(3, 4), dim=[-1], spacing=[ASC(4)]",
                "N(4, 3, 3), dim=(2, 0), spacing=-2",
            ],
            example: [
                "let slopes = gradient(&tensor([1.0, 4.0, 9.0])?, &lucid::ops::Spacing::Number(1.into()), None, 1)?;",
                "assert_close(&slopes[0], [3.0, 4.0, 5.0]);",
            ],
        }
    }};
}
calculus_ops!(define_composites);

fn diff_body(x: &Tensor, n: i64, dim: isize, prepend: Option<&Tensor>, append: Option<&Tensor>) -> Result<Tensor> {
    if x.ndim() == 0 {
        return Err(Error::shape("diff", "expects input to be at least one-dimensional", &[x.shape()]));
    }
    if n < 0 {
        return Err(Error::runtime("diff", format!("order must be non-negative but got {n}")));
    }
    if let Some(t) = [prepend, append].into_iter().flatten().find(|t| t.ndim() != x.ndim()) {
        let why = "expects prepend or append to be the same dimension as input";
        return Err(Error::shape("diff", why, &[x.shape(), t.shape()]));
    }
    if n == 0 {
        // As in PyTorch, neither the dimension nor what is joined on has an effect then.
        return x.copy_in(crate::MemoryFormat::Preserve);
    }
    let axis = shape::wrap_dim("diff", dim, x.ndim())?;
    let parts: Vec<Tensor> = [prepend, Some(x), append].into_iter().flatten().cloned().collect();
    let mut y = if parts.len() > 1 { super::index::cat(&parts, axis as isize)? } else { x.clone() };
    for _ in 0..n.min(y.shape()[axis] as i64) {
        let rest = y.shape()[axis] as i64 - 1;
        let (high, low) = (y.narrow(axis as isize, 1, rest)?, y.narrow(axis as isize, 0, rest)?);
        y = if y.dtype() == crate::DType::Bool { high.logical_xor(&low)? } else { (high - &low)? };
    }
    Ok(y)
}

/// Distances of the points `x`, to multiply `y`'s neighbours' sums with.
fn widths(op: &'static str, y: &Tensor, x: &Tensor, axis: usize) -> Result<Tensor> {
    if x.dtype() == crate::DType::Bool {
        return Err(Error::not_implemented(op, "received a bool input for x, but bool is not supported"));
    }
    let mut shape = Sizes::from_elem(1, y.ndim().saturating_sub(x.ndim()));
    shape.extend(x.shape().iter().map(|&n| n as isize));
    if x.ndim() == 1 {
        if x.numel() != y.shape()[axis] {
            let why = "there must be one `x` value for each sample point";
            return Err(Error::shape(op, why, &[y.shape(), x.shape()]));
        }
        shape = Sizes::from_elem(1, y.ndim());
        shape[axis] = -1;
    }
    let x = if shape.len() == x.ndim() && x.ndim() > 1 { x.clone() } else { x.reshape(&shape)? };
    let dim = axis as isize;
    let rest = (x.shape()[axis] as i64 - 1).max(0);
    let start = x.shape()[axis] as i64 - rest;
    x.narrow(dim, start, rest)? - &x.narrow(dim, 0, rest)?
}

/// A step that multiplies by a number, as PyTorch's own functions take it.
fn times(x: Tensor, number: impl Into<Scalar>) -> Result<Tensor> {
    let _name = crate::autograd::named("mul_number");
    x.mul(number.into())
}

/// The same of a quotient.
fn over(x: Tensor, number: impl Into<Scalar>) -> Result<Tensor> {
    let _name = crate::autograd::named("div_number");
    x.div(number.into(), None)
}

fn neighbour_sums(y: &Tensor, axis: usize) -> Result<Tensor> {
    let (dim, n) = (axis as isize, y.shape()[axis] as i64);
    y.narrow(dim, 1, n - 1)? + &y.narrow(dim, 0, n - 1)?
}

fn check_trapezoid(op: &'static str, y: &Tensor, x: Option<&Tensor>, dx: Scalar, dim: isize) -> Result<usize> {
    if x.is_some() && dx != Scalar::ONE {
        return Err(Error::kind(op, "takes either `x` or `dx`, not both"));
    }
    if matches!(dx, Scalar::Complex(..)) {
        return Err(Error::runtime(op, "Currently, we only support dx as a real number."));
    }
    if y.dtype() == crate::DType::Bool {
        return Err(Error::not_implemented(op, "received a bool input for y, but bool is not supported"));
    }
    if y.ndim() == 0 {
        return Err(Error::index(op, "expects at least one dimension"));
    }
    shape::wrap_dim(op, dim, y.ndim())
}

fn trapezoid_body(y: &Tensor, x: Option<&Tensor>, dx: Scalar, dim: isize) -> Result<Tensor> {
    let axis = check_trapezoid("trapezoid", y, x, dx, dim)?;
    if y.shape()[axis] == 0 {
        return y.detach()?.sum(Some(&[dim]), false, Some(y.dtype()));
    }
    let dim = axis as isize;
    match x {
        Some(x) => {
            over((neighbour_sums(y, axis)? * &widths("trapezoid", y, x, axis)?)?.sum(Some(&[dim]), false, None)?, 2.0)
        }
        // All but half of the two ends, as PyTorch computes it.
        None => {
            let ends = times((y.select(dim, 0)? + &y.select(dim, -1)?)?, 0.5)?;
            times((y.sum(Some(&[dim]), false, None)? - &ends)?, dx)
        }
    }
}

fn cumulative_trapezoid_body(y: &Tensor, x: Option<&Tensor>, dx: Scalar, dim: isize) -> Result<Tensor> {
    let op = "cumulative_trapezoid";
    let axis = check_trapezoid(op, y, x, dx, dim)?;
    if y.shape()[axis] == 0 {
        return y.copy();
    }
    let areas = match x {
        Some(x) => {
            let widths = widths(op, y, x, axis)?;
            (neighbour_sums(y, axis)? * &widths)?
        }
        None => times(neighbour_sums(y, axis)?, dx.to_f64() / 2.0)?,
    };
    let sums = areas.cumsum(dim, None)?;
    match x {
        Some(_) => over(sums, 2.0),
        None => Ok(sums),
    }
}

// ---- derivatives -----------------------------------------------------------------------------------------------------

fn gradient_body(x: &Tensor, spacing: &Spacing, dim: Option<&[isize]>, edge_order: i64) -> Result<Vec<Tensor>> {
    const OP: &str = "gradient";
    let given = match spacing {
        Spacing::Number(_) => None,
        Spacing::Numbers(list) => Some(list.len()),
        Spacing::Points(list) => Some(list.len()),
    };
    let axes = match dim {
        Some(dims) => shape::wrap_own_dims(OP, dims, x.ndim())?,
        None => (0..x.ndim()).collect(),
    };
    if !schema::gradient.dtypes.has(x.dtype()) {
        return Err(Error::not_implemented(OP, format!("torch.gradient does not support {} input", x.dtype())));
    }
    if let Some(n) = given.filter(|&n| n != axes.len()) {
        let why =
            format!("expected spacing to be one number, or one for each of {} dimensions, but got {n}", axes.len());
        return Err(Error::runtime(OP, why));
    }
    if !(1..=2).contains(&edge_order) {
        return Err(Error::runtime(OP, format!("only supports edge_order=1 and edge_order=2, got {edge_order}")));
    }
    if axes.iter().any(|&a| (x.shape()[a] as i64) <= edge_order) {
        let why = format!("expected each dimension size to be at least edge_order+1 = {}", edge_order + 1);
        return Err(Error::shape(OP, why, &[x.shape()]));
    }
    let second = edge_order == 2;
    let one = |(i, &axis): (usize, &usize)| match spacing {
        Spacing::Number(h) => even_gradient(x, *h, axis, second),
        Spacing::Numbers(list) => even_gradient(x, list[i], axis, second),
        Spacing::Points(list) => uneven_gradient(x, &list[i], axis, second),
    };
    axes.iter().enumerate().map(one).collect()
}

/// Index `i` of `axis`, which stays.
fn slice(x: &Tensor, axis: usize, i: i64) -> Result<Tensor> {
    x.narrow(axis as isize, if i < 0 { x.shape()[axis] as i64 + i } else { i }, 1)
}

/// Neighbours `h` apart: `(f[i + 1] - f[i - 1]) / 2h`, and one-sided at the ends.
fn even_gradient(x: &Tensor, h: Scalar, axis: usize, second: bool) -> Result<Tensor> {
    let inner = x.shape()[axis] as i64 - 2;
    let rise = (x.narrow(axis as isize, 2, inner)? - &x.narrow(axis as isize, 0, inner)?)?;
    let middle = over(over(rise, h)?, 2.0);
    let end = |at: [i64; 3], sign: f64| -> Result<Tensor> {
        let at = |i: usize| slice(x, axis, at[i]);
        if second {
            let (first, next, third) = (times(at(0)?, -1.5 * sign)?, times(at(1)?, 2.0)?, times(at(2)?, 0.5)?);
            return over((if sign > 0.0 { (first + &next)? - &third } else { (first - &next)? + &third })?, h);
        }
        over((if sign > 0.0 { at(1)? - &at(0)? } else { at(0)? - &at(1)? })?, h)
    };
    super::index::cat(&[end([0, 1, 2], 1.0)?, middle?, end([-1, -2, -3], -1.0)?], axis as isize)
}

/// The derivative of the parabola through three neighbours, whose distances are `left` and `right`.
fn uneven_gradient(x: &Tensor, points: &Tensor, axis: usize, second: bool) -> Result<Tensor> {
    let n = x.shape()[axis];
    if points.shape() != [n] {
        let why = format!("expected a vector of the {n} coordinates of dimension {axis}");
        return Err(Error::shape("gradient", why, &[x.shape(), points.shape()]));
    }
    let mut along = Sizes::from_elem(1, x.ndim());
    along[axis] = -1;
    let steps = points.diff(1, 0, None, None)?.reshape(&along)?;
    let (dim, inner) = (axis as isize, n as i64 - 2);
    let part = |start: i64| x.narrow(dim, start, inner);
    let (left, right) = (steps.narrow(dim, 0, inner)?, steps.narrow(dim, 1, inner)?);
    let both = (&left + &right)?;
    let before = ((-&right)? / &(&left * &both)?)?;
    let here = ((&right - &left)? / &(&left * &right)?)?;
    let after = (&left / &(&right * &both)?)?;
    let middle = (((before * &part(0)?)? + &(here * &part(1)?)?)? + &(after * &part(2)?)?)?;
    // From an end inwards: `near` and `far` are the first two steps; from the last end the derivative changes its sign.
    let end = |at: [i64; 3], steps_at: [i64; 2], last: bool| -> Result<Tensor> {
        let near = slice(&steps, axis, steps_at[0])?;
        let at = |i: usize| slice(x, axis, at[i]);
        let rise = if last { at(0)? - &at(1)? } else { at(1)? - &at(0)? };
        if !second {
            return rise? / &near;
        }
        let far = slice(&steps, axis, steps_at[1])?;
        let both = (&near + &far)?;
        let first = ((&near + &both)? / &(&near * &both)?)?;
        let next = (&both / &(&near * &far)?)?;
        let third = (&near / &(&far * &both)?)?;
        let (first, next, third) = match last {
            true => (Ok(first), -&next, Ok(third)),
            false => (-&first, Ok(next), -&third),
        };
        ((first? * &at(0)?)? + &(next? * &at(1)?)?)? + &(third? * &at(2)?)?
    };
    super::index::cat(&[end([0, 1, 2], [0, 1], false)?, middle, end([-1, -2, -3], [-1, -2], true)?], dim)
}
