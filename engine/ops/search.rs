//! Finding, counting and repeating: ops whose results depend on what the elements are, most of them in size too.
//!
//! All are made of sorting, bisection and writing at indices. Where the size of a result depends on the data, the op
//! evaluates it, on the device that it was called on.

use super::histogram::{bincount_body, histc_body, histogram2d_body, histogram_body, histogramdd_body};
use super::macros::define_composites;
use super::sort::search_rows;
use super::unique::{unique_body, unique_consecutive_body};
use super::{result_type, Operand};
use crate::fallible::{collected, filled};
use crate::shape::{self, Shape};
use crate::warnings::warn_once;
use crate::{DType, Error, Result, Scalar, Tensor};

/// The rows of the family, for `$cb`.
#[macro_export]
#[doc(hidden)]
macro_rules! search_ops {
    ($cb:ident) => { $crate::rows! { $cb "search" :
        /// For each element of `input` the place in the sorted `sorted_sequence`, along its last dimension, where it
        /// belongs: before its equals, or with `right` (or `side` "right") behind them. A sequence of several rows is
        /// searched row by row. `sorter` holds the indices that sort it, where it is not sorted itself. int64, or int32
        /// with `out_int32`.
        function searchsorted(
            sorted_sequence: Tensor, input: Operand; out_int32: Bool = false, right: Bool = false, side: OptText = None,
            sorter: OptTensor = None
        ) -> Tensor {
            flags: [no_gradient], dtypes: REAL, result: Index,
            run: searchsorted_body,
            samples: [
                "ASC(5), N(3, 2)",
                "ASC(3, 6), P(3, 4), right=True",
                "FIXED(ASC(6)), 1.5, side='right', out_int32=True",
                "ASC(2, 3, 4), P(2, 3, 0)",
                "N(4), N(3), sorter=ORDER(4)",
                "N(0), N(3)",
            ],
            example: [
                "let places = searchsorted(&tensor([1, 3, 5])?, &tensor([3, 4])?, false, false, None, None)?;",
                "assert_close(places, [1, 2]);",
            ],
        }
        /// [`searchsorted`] of the elements among `boundaries`, a sorted vector: the number of the bucket each falls
        /// into.
        function bucketize(input: Operand, boundaries: Tensor; out_int32: Bool = false, right: Bool = false) -> Tensor {
            flags: [no_gradient], dtypes: REAL, result: Index,
            run: bucketize_body,
            samples: ["P(3, 4), ASC(6)", "N(7), ASC(6), right=True", "2, ASC(6), out_int32=True"],
            example: [
                "let made = bucketize(&tensor([0.5, 3.0, 9.0])?, &tensor([1.0, 3.0, 5.0])?, false, false)?;",
                "assert_close(made, [0, 1, 3]);",
            ],
        }
        /// Is each element among `test_elements`? With `invert` the opposite. NaN is nowhere.
        function isin(
            elements: Operand, test_elements: Operand; assume_unique: Bool = false, invert: Bool = false
        ) -> Tensor {
            flags: [no_gradient], dtypes: REAL, result: Bool,
            run: isin_body,
            samples: [
                "I(0, 9, 3, 4), I(0, 9, 4)",
                "I(0, 9, 3, 4), I(0, 9, 4), invert=True",
                "I(0, 3, 6), 1",
                "2, I(0, 9, 4)",
                "N(3), N(0)",
            ],
            example: ["assert_close(isin(&tensor([1, 2, 3])?, &tensor([3, 1])?, false, false)?, [true, false, true]);"],
        }
        /// The distinct elements in ascending order; with `dim` the distinct slices along it. With `return_inverse`
        /// also where each element went, with `return_counts` also how often each occurs. NaN equals nothing.
        /// Evaluates. The elements have no derivative: backward raises.
        method unique(
            sorted: Bool = true, return_inverse: Bool = false, return_counts: Bool = false, dim: OptDim = None
        ) -> Packed {
            out: none, flags: [no_gradient], dtypes: ORDERED.and(DTypes::UNSIGNED), result: Same,
            run: unique_body,
            samples: [
                "I(0, 5, 3, 4)",
                "I(0, 5, 3, 4), return_inverse=True, return_counts=True",
                "N(7), return_counts=True",
                "I(0, 2, 6, 2), True, True, True, 0",
                "I(0, 2, 2, 6), return_inverse=True, dim=1",
                "N(0)",
                "N(3, 4), return_inverse=True",
            ],
            example: [
                "let made = tensor([3, 1, 3])?.unique(true, true, true, None)?;",
                "assert_close(&made[0], [1, 3]);",
                "assert_close(&made[1], [1, 0, 1]);",
                "assert_close(&made[2], [1, 2]);",
            ],
        }
        /// The elements without those that equal the one before; with `dim` the slices along it. With `return_inverse`
        /// also where each element went, with `return_counts` also how long each run is. Evaluates. The elements have
        /// no derivative: backward raises.
        method unique_consecutive(
            return_inverse: Bool = false, return_counts: Bool = false, dim: OptDim = None
        ) -> Packed {
            out: none, flags: [no_gradient], dtypes: ALL, result: Same,
            run: unique_consecutive_body,
            samples: [
                "I(0, 2, 3, 4)",
                "I(0, 2, 12), True, True",
                "I(0, 2, 8, 1), return_counts=True, dim=0",
                "I(0, 2, 2, 6), return_inverse=True, dim=-1",
                "N(0)",
            ],
            example: ["assert_close(&tensor([1, 1, 2, 1])?.unique_consecutive(false, false, None)?[0], [1, 2, 1]);"],
        }
        /// Each element `repeats` times (a number, or one for each index of `dim`); flattened first without `dim`. A
        /// tensor of counts alone gives each index as often as it says. With a tensor of counts it evaluates, unless
        /// `output_size` is given.
        method repeat_interleave(
            repeats: SomeOperand = None, dim: OptDim = None; output_size: OptInt = None
        ) -> Tensor {
            out: none, flags: [steps], dtypes: ALL, result: Same,
            run: repeat_interleave_body,
            node: |given| (if given.tensor("repeats") == 1 { "index_select" } else { "view" }, 0),
            samples: [
                "N(3, 4), 2",
                "N(3, 4), 3, 1",
                "N(3, 4), I(0, 3, 4), dim=1",
                "N(3, 4), I(0, 3, 3), 0",
                "N(3, 4), I(2, 3, 1), 0, output_size=6",
                "I(0, 4, 5)",
                "N(2), 0",
            ],
            example: ["assert_close(tensor([1, 2])?.repeat_interleave(Some(2.into()), None, None)?, [1, 1, 2, 2]);"],
        }
        /// How often each number occurs in a vector of integers from 0 on, or with `weights` the sum of theirs; at
        /// least `minlength` counts. Evaluates.
        method bincount(weights: OptTensor = None, minlength: Int = 0) -> Tensor {
            out: none, flags: [no_gradient], deterministic: No("the order of additions is not defined on the GPU"),
            dtypes: INTEGER, result: Own,
            run: bincount_body,
            samples: ["I(0, 6, 12)", "I(0, 6, 12), minlength=9", "I(0, 1, 0), minlength=3", "I(0, 1, 0)"],
            example: ["assert_close(tensor([0, 2, 2])?.bincount(None, 4)?, [1, 0, 2, 0]);"],
        }
        /// How many elements are in each of `bins` equal parts of `min` to `max` (of the elements' range where both are
        /// equal); the last part has both its ends. What is outside does not count.
        method histc(bins: Int = 100, min: Number = 0, max: Number = 0) -> Tensor {
            flags: [no_gradient], dtypes: REAL, result: Same,
            run: histc_body,
            samples: ["N(30), 10", "N(5, 6), 4, -1, 1.5", "N(3, 4)", "N(4), 3, 8, 9"],
            example: ["assert_close(tensor([0.0, 0.5, 1.9, 2.0])?.histc(2, 0, 2)?, [2.0, 2.0]);"],
        }
        /// Counts (or the sums of `weight`) of the elements between neighbours of the bins' edges, and the edges.
        /// `bins` is a number of equal parts of `range` (by default the elements' own), or the edges. The last bin has
        /// both its ends. With `density` divided by the bins' widths, so that the integral is 1.
        method histogram(
            bins: Operand; range: OptFloats = None, weight: OptTensor = None, density: Bool = false
        ) -> HistEdges {
            flags: [no_gradient], deterministic: No("the order of additions is not defined on the GPU"), dtypes: FLOAT,
            result: Same,
            run: histogram_body,
            samples: [
                "N(30), 5",
                "N(5, 6), 4, range=[-1.0, 1.5]",
                "N(12), 4, weight=P(12), density=True",
                "N(30), ASC(6)",
            ],
            example: [
                "let (counts, edges) = tensor([0.0, 0.5, 1.9, 2.0])?.histogram(2, Some(&[0.0, 2.0]), None, false)?;",
                "assert_close(counts, [2.0, 2.0]);",
                "assert_close(edges, [0.0, 1.0, 2.0]);",
            ],
        }
        /// [`histogram`] in several dimensions: `input` holds one point in each row. `bins` lists for each dimension a
        /// number of parts or the edges, `range` the ends of all, two by two.
        method histogramdd(
            bins: Bins, range: OptFloats = None, weight: OptTensor = None, density: Bool = false
        ) -> HistEdgesList {
            python: function, out: none, flags: [no_gradient],
            deterministic: No("the order of additions is not defined on the GPU"), dtypes: FLOAT, result: Same,
            run: histogramdd_body,
            samples: [
                "N(30, 2), [3, 5]",
                "N(30, 3), [1, 3, 3], density=True",
                "N(20, 2), [3, 4], [-1.0, 1.0, -2.0, 0.5], P(20)",
                "N(20, 2), 3",
            ],
            example: [
                "let points = tensor([[0.0, 0.0], [0.0, 1.0], [1.0, 1.0]])?;",
                "let (counts, edges) = points.histogramdd(&[tensor(2)?, tensor(2)?], None, None, false)?;",
                "assert_close(counts, [[1.0, 1.0], [0.0, 1.0]]);",
                "assert_close(&edges[0], [0.0, 0.5, 1.0]);",
            ],
        }
        /// [`histogramdd`] of the points (`x`, `y`), as NumPy's `histogram2d`: counts, the edges along `x`, those along
        /// `y`. PyTorch has none.
        function histogram2d(
            x: Tensor, y: Tensor, bins: Bins = &[], range: OptFloats = None, density: Bool = false,
            weights: OptTensor = None
        ) -> Packed {
            flags: [no_gradient], deterministic: No("the order of additions is not defined on the GPU"), dtypes: FLOAT,
            result: Same,
            run: histogram2d_body, torch: "-",
            samples: [],
            example: [
                "let (x, y) = (tensor([0.0, 0.0, 1.0])?, tensor([0.0, 1.0, 1.0])?);",
                "assert_close(&histogram2d(&x, &y, &[tensor(2)?], None, false, None)?[0], [[1.0, 1.0], [0.0, 1.0]]);",
            ],
        }
        /// The combinations of `r` elements of a vector, in order, one in each row; with `with_replacement` also of one
        /// element several times.
        method combinations(r: Int = 2, with_replacement: Bool = false) -> Tensor {
            python: function, out: none, dtypes: ALL, result: Same,
            run: combinations_body, node: "index",
            samples: ["N(5)", "N(4), 3", "N(3), 2, with_replacement=True", "N(2), 3", "N(3), 1"],
            example: ["assert_close(tensor([1, 2, 3])?.combinations(2, false)?, [[1, 2], [1, 3], [2, 3]]);"],
        }
        /// Every way to take one element of each vector, in order, one in each row; one vector alone as it is.
        function cartesian_prod(tensors: Tensors) -> Tensor {
            call: variadic, out: none, dtypes: ALL, result: Same,
            run: cartesian_body, node: "stack",
            samples: ["N(3), N(2)", "N(3), N(2), N(4)", "N(3)"],
            example: [
                "assert_close(cartesian_prod(&[tensor([1, 2])?, tensor([3, 4])?])?, [[1, 3], [1, 4], [2, 3], [2, 4]]);",
            ],
        }
    }};
}
search_ops!(define_composites);

// ---- bisection -------------------------------------------------------------------------------------------------------

fn searchsorted_body(
    sorted: &Tensor,
    input: Operand<'_>,
    out_int32: bool,
    right: bool,
    side: Option<&str>,
    sorter: Option<&Tensor>,
) -> Result<Tensor> {
    const OP: &str = "searchsorted";
    let right = match side {
        None => right,
        Some("left") if right => {
            let why = "side and right can't be set to opposites, got side of left while right was True";
            return Err(Error::runtime(OP, why));
        }
        Some("left") => false,
        Some("right") => true,
        Some(other) => {
            return Err(Error::runtime(OP, format!("side can only be 'left' or 'right' but got {other}")));
        }
    };
    if sorted.ndim() == 0 {
        return Err(Error::shape(OP, "boundaries tensor should have positive dimension", &[sorted.shape()]));
    }
    warn_of_layout(sorted, input, sorter);
    let sorted = sorted.detach()?;
    let values = match input {
        Operand::Scalar(_) if sorted.ndim() != 1 => {
            let why = "input value can be a scalar only when the boundaries tensor has one dimension";
            return Err(Error::shape(OP, why, &[sorted.shape()]));
        }
        Operand::Scalar(s) => {
            let dtype = result_type([Operand::Tensor(&sorted), input])?;
            return found(
                &in_order(&sorted, sorter)?.cast(dtype)?,
                &Tensor::constant(s, dtype, sorted.device())?,
                right,
                out_int32,
            );
        }
        Operand::Tensor(v) => v.detach()?,
    };
    let dtype = sorted.dtype().promote(values.dtype())?;
    let (sorted, values) = (sorted.cast(dtype)?, values.cast(dtype)?);
    let rows = |t: &Tensor| Shape::from_slice(&t.shape()[..t.ndim().saturating_sub(1)]);
    if sorted.ndim() != 1 && (sorted.ndim() != values.ndim() || rows(&sorted) != rows(&values)) {
        let why = "boundaries tensor should be 1 dimension or the first N-1 dimensions of boundaries tensor and input value tensor must match";
        return Err(Error::shape(OP, why, &[sorted.shape(), values.shape()]));
    }
    found(&in_order(&sorted, sorter)?, &values, right, out_int32)
}

/// Warns of tensors that are copied before they are read, which is slow.
fn warn_of_layout(sorted: &Tensor, input: Operand<'_>, sorter: Option<&Tensor>) {
    if matches!(input, Operand::Tensor(t) if !t.is_contiguous()) {
        warn_once!("searchsorted(): the input is not contiguous, which costs a copy.");
    }
    if !sorted.is_contiguous() {
        warn_once!("searchsorted(): the boundaries are not contiguous, which costs a copy.");
    }
    if sorter.is_some_and(|t| !t.is_contiguous()) {
        warn_once!("searchsorted(): the sorter is not contiguous, which costs a copy.");
    }
}

fn in_order(sorted: &Tensor, sorter: Option<&Tensor>) -> Result<Tensor> {
    let Some(sorter) = sorter else { return Ok(sorted.clone()) };
    if sorter.shape() != sorted.shape() || sorter.dtype() != DType::I64 {
        let why = format!("sorter must be int64 of the boundaries' shape {:?}, got {}", sorted.shape(), sorter.dtype());
        return Err(Error::shape("searchsorted", why, &[sorted.shape(), sorter.shape()]));
    }
    sorted.gather(-1, sorter)
}

fn found(rows: &Tensor, values: &Tensor, right: bool, out_int32: bool) -> Result<Tensor> {
    schema::searchsorted.check(rows.dtype())?;
    let at = search_rows(rows, values, right)?;
    if out_int32 {
        at.cast(DType::I32)
    } else {
        Ok(at)
    }
}

fn bucketize_body(input: Operand<'_>, boundaries: &Tensor, out_int32: bool, right: bool) -> Result<Tensor> {
    if boundaries.ndim() != 1 {
        return Err(Error::shape("bucketize", "boundaries tensor must be 1 dimension", &[boundaries.shape()]));
    }
    searchsorted_body(boundaries, input, out_int32, right, None, None)
}

fn isin_body(elements: Operand<'_>, test: Operand<'_>, _assume_unique: bool, invert: bool) -> Result<Tensor> {
    let dtype = result_type([elements, test])?;
    schema::isin.check(dtype)?;
    let own = |o: Operand<'_>| match o {
        Operand::Tensor(t) => t.dtype(),
        Operand::Scalar(s) => super::scalar_dtype(s),
    };
    schema::isin.check(own(elements))?;
    schema::isin.check(own(test))?;
    let device = match (elements, test) {
        (Operand::Tensor(t), _) | (_, Operand::Tensor(t)) => t.device(),
        (Operand::Scalar(_), Operand::Scalar(_)) => {
            return Err(Error::kind("isin", "one of 'elements' and 'test_elements' must be a Tensor"))
        }
    };
    let tensor = |o: Operand<'_>| match o {
        Operand::Tensor(t) => t.detach()?.cast(dtype),
        Operand::Scalar(s) => Tensor::constant(s, dtype, device),
    };
    let sorted = tensor(test)?.reshape(&[-1])?.msort()?;
    let x = tensor(elements)?;
    // What belongs at two places is there.
    let hit = search_rows(&sorted, &x, false)?.lt(&search_rows(&sorted, &x, true)?)?;
    if invert {
        hit.logical_not()
    } else {
        Ok(hit)
    }
}

fn repeat_interleave_body(
    x: &Tensor,
    repeats: Option<Operand<'_>>,
    dim: Option<isize>,
    output_size: Option<i64>,
) -> Result<Tensor> {
    const OP: &str = "repeat_interleave";
    let Some(repeats) = repeats else {
        return match (dim, x.dtype()) {
            (Some(_), _) => {
                let why = "received an invalid combination of arguments: 'dim' goes with 'repeats'".into();
                Err(Error::InvalidType { op: OP, why }.into())
            }
            (None, _) => repeated_places(x, output_size),
        };
    };
    let (x, axis) = match dim {
        None if x.ndim() == 1 => (x.clone(), 0),
        None => (x.reshape(&[-1])?, 0),
        Some(dim) => (x.clone(), shape::wrap_own_dims(OP, &[dim], x.ndim())?[0]),
    };
    let n = x.shape()[axis];
    let counts = match repeats {
        Operand::Tensor(t) if t.numel() != 1 || t.ndim() > 1 => {
            if t.ndim() != 1 || t.numel() != n {
                let why = "repeats must have the same size as input along dim";
                return Err(Error::shape(OP, why, &[t.shape(), x.shape()]));
            }
            return x.index_select(axis as isize, &repeated_places(t, output_size)?);
        }
        Operand::Tensor(t) => {
            let counts = t.reshape(&[1])?.expand(&[n as isize])?;
            return x.index_select(axis as isize, &repeated_places(&counts, output_size)?);
        }
        Operand::Scalar(s) => s,
    };
    let Scalar::Int(r) = counts else {
        return Err(Error::not_implemented(
            OP,
            format!("repeats must be an int or a tensor of integers, not {counts}"),
        ));
    };
    let total = i64::try_from(n).ok().and_then(|n| n.checked_mul(r)).filter(|_| r >= 0);
    let Some(total) = total else {
        return Err(Error::runtime(OP, format!("Repeats must be non-negative and not too many, got {r}")));
    };
    if output_size.is_some_and(|s| s != total) {
        let why = format!("Invalid output_size, the result has {total} elements along dim {axis}");
        return Err(Error::runtime(OP, why));
    }
    let mut wide = Shape::from_slice(x.shape());
    wide.insert(axis + 1, r as usize);
    let mut shape = Shape::from_slice(x.shape());
    shape[axis] = total as usize;
    let spread = super::view::expand_to(&x.unsqueeze(axis as isize + 1)?, &wide)?;
    super::view::reshape_to(&spread.copy()?, &shape)
}

/// Each index as often as its count says.
fn repeated_places(counts: &Tensor, output_size: Option<i64>) -> Result<Tensor> {
    const OP: &str = "repeat_interleave";
    if !counts.dtype().is_integral() || counts.dtype() == DType::Bool {
        return Err(Error::not_implemented(OP, format!("repeats must be integers, not {}", counts.dtype())));
    }
    if counts.ndim() != 1 {
        let why = format!("repeats must be a vector, got {:?}", counts.shape());
        return Err(Error::shape(OP, why, &[counts.shape()]));
    }
    let n = counts.numel();
    if n == 0 {
        return super::create::arange_of(0, counts.device());
    }
    if let (crate::Device::Meta, Some(total)) = (counts.device(), output_size) {
        let size = super::create::sizes(OP, &[total as isize])?;
        return Tensor::full_of(&size, Scalar::ZERO, DType::I64, counts.device());
    }
    let counts = counts.detach()?.cast(DType::I64)?;
    if counts.lt(0)?.any(None, false)?.item_bool()? {
        return Err(Error::runtime(OP, "repeats can not be negative"));
    }
    let ends = counts.cumsum(0, None)?;
    let total = match ends.select(0, -1)?.item()? {
        Scalar::Int(total) if output_size.is_none_or(|s| s == total) => total,
        total => {
            let why = format!("allocated size does not match required size: output_size is not {total}");
            return Err(Error::runtime(OP, why));
        }
    };
    let size = super::create::sizes(OP, &[total as isize])?;
    search_rows(&ends, &super::create::arange_of(size[0], counts.device())?, true)
}

// ---- combinations ----------------------------------------------------------------------------------------------------

fn combinations_body(x: &Tensor, r: i64, with_replacement: bool) -> Result<Tensor> {
    const OP: &str = "combinations";
    if x.ndim() != 1 {
        return Err(Error::shape(OP, "Expect a 1D vector", &[x.shape()]));
    }
    if r < 0 {
        return Err(Error::runtime(OP, format!("Expect a non-negative number, but got {r}")));
    }
    let (n, r) = (x.numel(), r as usize);
    if r == 0 {
        return x.narrow(0, 0, 0)?.reshape(&[0]);
    }
    // The number of rows, before any memory is taken: (n over r), or (n + r - 1 over r).
    let pool = if with_replacement { n.saturating_add(r - 1) } else { n };
    let rows = (0..r as u128).try_fold(1u128, |c, i| Some(c.checked_mul((pool as u128).checked_sub(i)?)? / (i + 1)));
    let rows = if n == 0 || r > pool { Some(0) } else { rows };
    let cells = rows.and_then(|rows| rows.checked_mul(r as u128)).filter(|&c| c < 1 << 40);
    let Some(cells) = cells else {
        return Err(Error::runtime(OP, format!("there are too many combinations of {r} out of {n} elements")));
    };
    if cells == 0 {
        return x.take(&Tensor::from_slice::<i64>(&[], &[0, r], x.device())?);
    }
    let mut places = super::create::room(OP, cells as usize)?;
    let mut pick: Vec<usize> = if with_replacement { filled(0, r)? } else { collected(0..r)? };
    for _ in 0..cells as usize / r {
        places.extend(pick.iter().map(|&i| i as i64));
        // The last place that can still move on; those behind it follow.
        let top = |i: usize| if with_replacement { n - 1 } else { n - r + i };
        if let Some(i) = (0..r).rev().find(|&i| pick[i] < top(i)) {
            let next = pick[i] + 1;
            (i..r).for_each(|j| pick[j] = if with_replacement { next } else { next + j - i });
        }
    }
    let places = Tensor::of_elements(&places, &[cells as usize / r, r], x.device())?;
    x.take(&places)
}

fn cartesian_body(tensors: &[Tensor]) -> Result<Tensor> {
    const OP: &str = "cartesian_prod";
    let Some(first) = tensors.first() else {
        return Err(Error::runtime(OP, "expected at least one tensor"));
    };
    if let Some(odd) = tensors.iter().find(|t| t.ndim() != 1) {
        return Err(Error::shape(OP, "Expect a 1D vector", &[odd.shape()]));
    }
    if let [one] = tensors {
        return Ok(one.clone());
    }
    let sizes: Shape = tensors.iter().map(Tensor::numel).collect();
    let total = sizes.iter().try_fold(1usize, |a, &b| a.checked_mul(b)).and_then(|n| isize::try_from(n).ok());
    let Some(total) = total else {
        return Err(Error::runtime(OP, "the result has more elements than can be addressed"));
    };
    if let Some(odd) = tensors.iter().find(|t| t.dtype() != first.dtype()) {
        let why = "meshgrid expects all tensors to have the same dtype";
        return Err(Error::dtype(OP, why, &[first.dtype(), odd.dtype()]));
    }
    let columns: Vec<Tensor> = tensors
        .iter()
        .enumerate()
        .map(|(i, t)| {
            let mut line = Shape::from_elem(1, sizes.len());
            line[i] = sizes[i];
            super::view::expand_to(&super::view::reshape_to(t, &line)?, &sizes)?.reshape(&[total])
        })
        .collect::<Result<_>>()?;
    super::index::stack(&columns, 1)
}
