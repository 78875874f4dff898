//! Distinct elements: the bodies of `unique` and `unique_consecutive`, whose rows are in `search`.

use super::index::cat;
use super::search::schema;
use super::sort::argsort_rows;
use crate::{autograd, shape, DType, Error, Result, Scalar, Tensor};

/// The runs of a vector or of rows.
struct Runs {
    /// Of each element, whether a run begins with it.
    begins: Tensor,
    /// The elements that they begin with.
    starts: Tensor,
}

impl Runs {
    /// The number of the run that each element is in.
    fn groups(&self) -> Result<Tensor> {
        self.begins.cumsum(0, None)? - 1i64
    }

    /// How long each is.
    fn counts(&self) -> Result<Tensor> {
        let (n, count) = (self.begins.numel() as i64, self.starts.numel() as i64);
        if n == 0 {
            return Ok(self.starts.clone());
        }
        let end = Tensor::full_of(&[1], Scalar::Int(n), DType::I64, self.starts.device())?;
        &cat(&[self.starts.narrow(0, 1, count - 1)?, end], 0)? - &self.starts
    }
}

/// The runs of a vector or of rows, where each element differs from the one before or not.
fn runs(rows: &Tensor) -> Result<Runs> {
    let n = rows.shape()[0] as i64;
    let device = rows.device();
    if n == 0 {
        let none = super::create::arange_of(0, device)?;
        return Ok(Runs { begins: none.cast(DType::Bool)?, starts: none });
    }
    let first = Tensor::full_of(&[1], Scalar::Bool(true), DType::Bool, device)?;
    let differs = rows.narrow(0, 1, n - 1)?.ne(&rows.narrow(0, 0, n - 1)?)?;
    let differs = if rows.ndim() > 1 { differs.any(Some(&[1]), false)? } else { differs };
    let begins = cat(&[first, differs], 0)?;
    let starts = begins.nonzero()?.reshape(&[-1])?;
    Ok(Runs { begins, starts })
}

fn packed(values: Tensor, inverse: Option<Tensor>, counts: Option<Tensor>) -> Vec<Tensor> {
    std::iter::once(values).chain(inverse).chain(counts).collect()
}

/// Slices along `dim` as the rows of a matrix.
fn as_rows(op: &'static str, x: &Tensor, dim: isize) -> Result<Tensor> {
    let axis = shape::wrap_own_dims(op, &[dim], x.ndim())?[0];
    let n = x.shape()[axis];
    if x.shape().iter().enumerate().any(|(a, &n)| n == 0 && a != axis) {
        let why = "There are 0 sized dimensions, and they aren't selected, so unique cannot be applied";
        return Err(Error::shape(op, why, &[x.shape()]));
    }
    if n == 0 {
        return Tensor::full_of(&[0, 1], Scalar::ZERO, x.dtype(), x.device());
    }
    x.movedim(&[axis as isize], &[0])?.reshape(&[n as isize, -1])
}

/// What backward says of a function whose derivative is declared as none.
fn underivable(torch: &'static str) -> Box<Error> {
    Error::not_implemented(torch, format!("the derivative for '{torch}' is not implemented."))
}

pub(super) fn unique_body(
    x: &Tensor,
    _sorted: bool,
    return_inverse: bool,
    return_counts: bool,
    dim: Option<isize>,
) -> Result<Vec<Tensor>> {
    schema::unique.check(x.dtype())?;
    let (given, x) = (x, x.detach()?);
    let rows = match dim {
        None => x.reshape(&[-1])?,
        Some(dim) => as_rows("unique", &x, dim)?,
    };
    let order = match dim {
        None => rows.argsort(0, false, true)?,
        Some(_) => argsort_rows(&rows)?,
    };
    let runs = runs(&rows.index_select(0, &order)?)?;
    let heads = order.index_select(0, &runs.starts)?;
    let values = match dim {
        None => rows.index_select(0, &heads)?,
        // Found as rows, and turned back.
        Some(dim) => x.movedim(&[dim], &[0])?.contiguous()?.index_select(0, &heads)?.movedim(&[0], &[dim])?,
    };
    match dim {
        None => autograd::refusing("unique", &values, "Unique2Backward0", &[given], || underivable("_unique2"))?,
        Some(_) => autograd::refusing("unique", &values, "UniqueDimBackward0", &[given], || underivable("unique_dim"))?,
    }
    let inverse = match return_inverse {
        true => {
            let groups = runs.groups()?;
            let inverse = groups.zeros_like()?.scatter(0, &order, Some((&groups).into()), None, None)?;
            Some(if dim.is_none() { super::view::reshape_to(&inverse, x.shape())? } else { inverse })
        }
        false => None,
    };
    Ok(packed(values, inverse, return_counts.then(|| runs.counts()).transpose()?))
}

pub(super) fn unique_consecutive_body(
    x: &Tensor,
    return_inverse: bool,
    return_counts: bool,
    dim: Option<isize>,
) -> Result<Vec<Tensor>> {
    let (given, x) = (x, x.detach()?);
    let rows = match dim {
        None => x.reshape(&[-1])?,
        Some(dim) => as_rows("unique_consecutive", &x, dim)?,
    };
    let runs = runs(&rows)?;
    let values = match dim {
        None => rows.index_select(0, &runs.starts)?,
        Some(dim) => x.movedim(&[dim], &[0])?.contiguous()?.index_select(0, &runs.starts)?.movedim(&[0], &[dim])?,
    };
    const OP: &str = "unique_consecutive";
    autograd::refusing(OP, &values, "UniqueConsecutiveBackward0", &[given], || underivable(OP))?;
    let inverse = match (return_inverse, dim) {
        (true, None) => Some(super::view::reshape_to(&runs.groups()?, x.shape())?),
        (true, Some(_)) => Some(runs.groups()?),
        (false, _) => None,
    };
    Ok(packed(values, inverse, return_counts.then(|| runs.counts()).transpose()?))
}
