//! Reading and writing at indices, in all of PyTorch's forms, over the primitives of `index`. The bodies of those that take
//! whole slices along a dimension are in `slices`.
//!
//! A body that writes takes a [`Target`] first: a copy, or the tensor itself. Index tensors are checked before anything is
//! written, on both devices.

use super::compare::select::r#where;
use super::index::{as_index, check_extent, index_axes, put_axes, with_dims, write_at, IndexOp, ScatterMode, Target};
use super::index_put::index_put_body;
pub use super::index_put::{check_mask, index_assign, places};
use super::macros::define_composites;
use super::masked::{
    as_strided_scatter_body, diagonal_scatter_body, fill_body, masked_scatter_body, masked_select_body,
    select_scatter_body,
};
use super::{Combine, Operand};
use crate::autograd::{self, Ctx, Grads};
use crate::shape::{self, Shape, SliceDim, Slices};
use crate::warnings::warn_once;
use crate::{DType, Error, Result, Scalar, Tensor};

/// The rows of the family, for `$cb`.
#[macro_export]
#[doc(hidden)]
macro_rules! scatter_ops {
    ($cb:ident) => { $crate::rows! { $cb "scatter" :
        /// A copy with `src` added at `index` along `dim` (`bool` is true where one is); what
        /// [`scatter`](crate::ops::index::scatter) says of sizes holds.
        method scatter_add(dim: Dim, index: Tensor, src: Tensor) -> Tensor {
            in_place: body, amp: PromoteGpu, deterministic: No("the order of additions is not defined on the GPU"),
            dtypes: NOT_FLOAT8, result: Same,
            run: scatter_add_body[Target::Copy],
            samples: ["N(3, 4), 1, I(0, 4, 3, 2), N(3, 2)", "N(3, 4), 0, I(0, 3, 2, 4), FIXED(N(3, 4))"],
            example: [
                "let x = tensor([1, 2])?;",
                "assert_close(x.scatter_add(0, &tensor([0, 0, 1])?, &tensor([10, 20, 30])?)?, [31, 32]);",
            ],
        }
        /// The slices of dimension `dim` that `index`, a vector, lists.
        method index_select(dim: Dim, index: Tensor) -> Tensor {
            dtypes: ALL, result: Same,
            run: super::slices::index_select_body,
            samples: ["N(3, 4), 1, I(0, 4, 6)", "N(3, 4), 0, I(0, 3, 2)", "N(3, 4), -1, I(0, 4, 0)"],
            example: [
                "let made = tensor([[1, 2], [3, 4]])?.index_select(0, &tensor([1, 1, 0])?)?;",
                "assert_close(made, [[3, 4], [3, 4], [1, 2]]);",
            ],
        }
        /// A copy with `alpha * source` added to the slices of `dim` that `index` lists.
        method index_add(dim: Dim, index: Tensor, source: Tensor; alpha: Number = 1) -> Tensor {
            in_place: body, deterministic: No("the order of additions is not defined on the GPU"), dtypes: NUMERIC,
            result: Same,
            run: super::slices::index_add_body[Target::Copy],
            samples: ["N(3, 4), 1, I(0, 4, 6), N(3, 6)", "N(3, 4), 0, I(0, 3, 2), N(2, 4), alpha=2"],
            example: ["assert_close(tensor([1, 2])?.index_add(0, &tensor([1, 1])?, &tensor([10, 20])?, 2)?, [1, 62]);"],
        }
        /// A copy with the slices of `dim` that `index` lists replaced by those of `source`.
        method index_copy(dim: Dim, index: Tensor, source: Tensor) -> Tensor {
            in_place: body, deterministic: No("the order of writes to one element is not defined"), dtypes: ALL,
            result: Same,
            run: super::slices::index_copy_body[Target::Copy],
            samples: ["N(3, 4), 1, ORDER(4), N(3, 4)", "N(3, 4), 0, I(1, 2, 1), N(1, 4)"],
            example: [
                "assert_close(tensor([1, 2, 3])?.index_copy(0, &tensor([2, 0])?, &tensor([8, 9])?)?, [9, 2, 8]);",
            ],
        }
        /// A copy with a number, or a 0-d tensor, written over the slices of `dim` that `index` lists.
        method index_fill(dim: Dim, index: Tensor, value: Operand) -> Tensor {
            in_place: body, out: none, dtypes: ALL, result: Same,
            run: super::slices::index_fill_body[Target::Copy], node: |given| ("index_fill", given.tensor("value")),
            samples: ["N(3, 4), 1, I(-4, 4, 3), 2", "N(3, 4), 0, I(0, 3, 2), N()"],
            example: ["assert_close(tensor([1, 2, 3])?.index_fill(0, &tensor([0, 2])?, 7)?, [7, 2, 7]);"],
        }
        /// A copy in which the slices of `source` that `index` sends to one slice of `dim` are combined with it by
        /// `reduce`: "prod", "mean", "amax" or "amin". Without `include_self` what was there does not count.
        method index_reduce(
            dim: Dim, index: Tensor, source: Tensor, reduce: Text; include_self: Bool = true
        ) -> Tensor {
            in_place: body, deterministic: No("the order of additions is not defined on the GPU"), dtypes: REAL,
            result: Same,
            run: super::slices::index_reduce_body[Target::Copy],
            samples: [
                "N(3, 4), 1, I(0, 4, 6), N(3, 6), 'mean'",
                "N(3, 4), 0, I(0, 3, 5), N(5, 4), 'amax'",
                "N(3, 4), 0, I(0, 3, 5), P(5, 4), 'prod', include_self=False",
                "N(3, 4), 1, I(0, 4, 6), N(3, 6), 'amin', include_self=False",
            ],
            example: [
                "let x = tensor([1.0, 2.0])?;",
                "let made = x.index_reduce(0, &tensor([0, 0])?, &tensor([3.0, 4.0])?, Combine::Prod, true)?;",
                "assert_close(made, [12.0, 2.0]);",
            ],
        }
        /// A copy with `values`, which broadcast, written (or with `accumulate` added) at the index tensors, as
        /// `x[indices] = values`. Masks count as the indices where they hold.
        method index_put(indices: Tensors, values: Tensor, accumulate: Bool = false) -> Tensor {
            in_place: body, out: none, amp: PromoteGpu,
            deterministic: No("the order of writes to one element is not defined"), dtypes: ALL, result: Same,
            run: index_put_body[Target::Copy],
            samples: [
                "N(3, 4), [I(0, 3, 2), I(0, 4, 2)], N(2), True",
                "N(3, 4), [I(1, 2, 1)], N(4)",
                "N(3, 4), [B(3, 4)], N()",
                "N(3, 4), [B(3)], N(1)",
            ],
            example: [
                "assert_close(tensor([1, 2, 3])?.index_put(&[tensor([2, 0])?], &tensor([8, 9])?, false)?, [9, 2, 8]);",
            ],
        }
        /// The elements of the flattened tensor at `index`, in its shape. Negative indices count from the end.
        method take(index: Tensor) -> Tensor {
            dtypes: ALL, result: Same,
            run: take_body,
            samples: ["N(3, 4), I(-12, 12, 2, 5)", "N(3), I(0, 3)"],
            example: ["assert_close(tensor([[1, 2], [3, 4]])?.take(&tensor([3, -4])?)?, [4, 1]);"],
        }
        /// A copy with `source` written (or with `accumulate` added) at `index` of the flattened tensor.
        method put(index: Tensor, source: Tensor, accumulate: Bool = false) -> Tensor {
            in_place: body, out: none, deterministic: No("the order of writes to one element is not defined"),
            dtypes: ALL, result: Same,
            run: put_body[Target::Copy],
            samples: ["N(3, 4), I(-12, 12, 2, 5), N(2, 5), True", "N(3, 4), ORDER(12), N(12)"],
            example: [
                "let x = tensor([[1, 2], [3, 4]])?;",
                "assert_close(x.put(&tensor([3, 0])?, &tensor([8, 9])?, false)?, [[9, 2], [3, 8]]);",
            ],
        }
        /// `out[i][j] = input[indices[i][j]][j]` for `dim` 0, and so on, where both broadcast together but along `dim`.
        /// Without `dim` both are flattened.
        method take_along_dim(indices: Tensor, dim: OptDim = None) -> Tensor {
            flags: [steps], dtypes: ALL, result: Same,
            run: take_along_body, node: "gather",
            samples: ["N(3, 4), I(0, 4, 3, 2), 1", "N(3, 4), I(0, 3, 2, 1), dim=0", "N(12), I(0, 12, 5)"],
            example: [
                "let x = tensor([[30, 10, 20]])?;",
                "assert_close(x.take_along_dim(&x.argsort(1, false, true)?, Some(1))?, [[10, 20, 30]]);",
            ],
        }
        /// The elements where `mask` holds, as a vector; both broadcast. Evaluates: the result's size depends on the
        /// data.
        method masked_select(mask: Tensor) -> Tensor {
            dtypes: ALL, result: Same,
            run: masked_select_body,
            samples: ["N(3, 4), B(3, 4)", "N(3, 4), B(4)", "N(4), B(3, 1)", "N(), B()"],
            example: ["assert_close(tensor([1, 2, 3])?.masked_select(&tensor([true, false, true])?)?, [1, 3]);"],
        }
        /// A copy with the elements of `source`, in order, where `mask`, which broadcasts, holds. Evaluates: how many
        /// are needed depends on the data.
        method masked_scatter(mask: Tensor, source: Tensor) -> Tensor {
            in_place: body, out: none, dtypes: ALL, result: Same,
            run: masked_scatter_body[Target::Copy],
            samples: ["N(3, 4), B(3, 4), N(3, 4)", "N(3, 4), B(4), N(15)"],
            example: [
                "let x = tensor([1, 2, 3])?;",
                "assert_close(x.masked_scatter(&tensor([true, false, true])?, &tensor([8, 9])?)?, [8, 2, 9]);",
            ],
        }
        /// A number, or a 0-d tensor, in the tensor's shape and dtype.
        method fill(value: Operand) -> Tensor {
            python: function, out: none, dtypes: ALL, result: Same,
            run: fill_body,
            node: |given| ("fill", if given.in_place() == 1 { 2 + given.given } else { given.tensor("value") }),
            samples: ["N(3, 4), 2.5", "N(3, 4), N()", "N(), 1"],
            example: ["assert_close(tensor([1, 2])?.fill(7)?, [7, 7]);"],
        }
        /// A copy with index `index` of dimension `dim` replaced by `src`.
        method select_scatter(src: Tensor, dim: Dim, index: Int) -> Tensor {
            out: none, dtypes: ALL, result: Same,
            run: select_scatter_body,
            samples: ["N(3, 4), N(3), 1, -2", "N(3, 4), N(4), 0, 1"],
            example: [
                "assert_close(tensor([[1, 2], [3, 4]])?.select_scatter(&tensor([8, 9])?, 0, 1)?, [[1, 2], [8, 9]]);",
            ],
        }
        /// A copy with a diagonal replaced by `src`.
        method diagonal_scatter(src: Tensor, offset: Int = 0, dim1: Dim = 0, dim2: Dim = 1) -> Tensor {
            out: none, dtypes: ALL, result: Same,
            run: diagonal_scatter_body,
            samples: ["N(3, 4), N(3)", "N(3, 4), N(2), -1", "N(2, 3, 4), N(2, 3), 1, 1, 2"],
            example: [
                "let made = tensor([[1, 2], [3, 4]])?.diagonal_scatter(&tensor([8, 9])?, 0, 0, 1)?;",
                "assert_close(made, [[8, 2], [3, 9]]);",
            ],
        }
        /// A copy with the elements that `as_strided` would show replaced by `src`. What is replaced gets no gradient
        /// (in PyTorch it gets that of what replaces it, and the rest gets none).
        method as_strided_scatter(src: Tensor, size: Sizes, stride: Sizes, storage_offset: OptInt = None) -> Tensor {
            out: none, dtypes: ALL, result: Same,
            run: as_strided_scatter_body, torch: "-",
            samples: [],
            example: [
                "let made = tensor([1, 2, 3, 4])?.as_strided_scatter(&tensor([8, 9])?, &[2], &[2], None)?;",
                "assert_close(made, [8, 2, 9, 4]);",
            ],
        }
    }};
}
scatter_ops!(define_composites);

pub(super) fn same_dtype(op: &'static str, x: &Tensor, src: &Tensor, why: &str) -> Result<()> {
    match x.dtype() == src.dtype() {
        true => Ok(()),
        false => Err(Error::dtype(op, why, &[x.dtype(), src.dtype()])),
    }
}

/// The part of `src` that is under `index`.
fn trimmed(src: &Tensor, index: &Tensor) -> Result<Tensor> {
    let dims = index.shape().iter().enumerate().filter(|&(a, &len)| len != src.shape()[a]);
    let dims: Slices = dims.map(|(axis, &len)| SliceDim { axis, start: 0, step: 1, len }).collect();
    if dims.is_empty() {
        Ok(src.clone())
    } else {
        super::view::slice_dims(src, dims)
    }
}

/// Gives `write` the tensor, axis, index and source of a scatter, with at least one dimension; does nothing for an empty index.
fn scattering(
    op: &'static str,
    to: Target,
    (x, dim): (&Tensor, isize),
    (index, src): (&Tensor, &Tensor),
    write: impl Fn(&Tensor, usize, &Tensor, &Tensor) -> Result<Tensor>,
) -> Result<Tensor> {
    let axis = shape::wrap_dim(op, dim, x.ndim())?;
    let index = if index.numel() == 0 { index.clone() } else { as_index(op, index)? };
    if index.numel() > 0 {
        check_extent(op, &index, x, Some(axis))?;
        check_extent(op, &index, src, None)?;
    }
    same_dtype(op, x, src, "Expected self.dtype to be equal to src.dtype")?;
    if index.numel() == 0 {
        if to == Target::Copy {
            return x.copy();
        }
        // Nothing is written, where it might have been.
        crate::autograd::check_in_place(op, x, src)?;
        return Ok(x.clone());
    }
    let (index, src) = (with_dims(&index)?, with_dims(src)?);
    let src = trimmed(&src, &index)?;
    let out = write(&with_dims(x)?, axis, &index, &src)?;
    super::view::reshape_to(&out, x.shape())
}

fn scatter_mode(
    op: &'static str,
    to: Target,
    x: (&Tensor, isize),
    what: (&Tensor, &Tensor),
    mode: ScatterMode,
) -> Result<Tensor> {
    scattering(op, to, x, what, |x, axis, index, src| {
        let op = match mode {
            ScatterMode::Set | ScatterMode::Add => IndexOp::Scatter { axis, mode },
            ScatterMode::Prod | ScatterMode::Max | ScatterMode::Min => IndexOp::Reduce { axis, mode },
        };
        write_at(to, op, x, &[index, src])
    })
}

pub(super) fn scatter_body(
    to: Target,
    x: &Tensor,
    dim: isize,
    index: &Tensor,
    src: Option<Operand<'_>>,
    reduce: Option<&str>,
    value: Option<Scalar>,
) -> Result<Tensor> {
    let mode = match reduce {
        None => ScatterMode::Set,
        Some("add") => ScatterMode::Add,
        Some("multiply") => ScatterMode::Prod,
        Some(other) => {
            return Err(Error::runtime(
                "scatter",
                format!("reduce argument must be either add or multiply, got {other}"),
            ))
        }
    };
    match src.or(value.map(Operand::Scalar)) {
        None => Err(Error::kind("scatter", "missing required argument 'src' (or 'value')")),
        Some(Operand::Tensor(src)) => {
            if reduce.is_some() {
                warn_once!("The reduce argument of scatter with a tensor is deprecated. Use scatter_reduce instead.");
            }
            scatter_mode("scatter", to, (x, dim), (index, src), mode)
        }
        Some(Operand::Scalar(s)) => {
            let src = super::view::expand_to(&super::create::held("scatter", s, x)?, index.shape())?;
            scatter_mode("scatter", to, (x, dim), (index, &src), mode)
        }
    }
}

fn scatter_add_body(to: Target, x: &Tensor, dim: isize, index: &Tensor, src: &Tensor) -> Result<Tensor> {
    schema::scatter_add.check(x.dtype())?;
    if x.dtype() == DType::Bool {
        return reduced("scatter_add", to, (x, dim), (index, src), "sum", true);
    }
    scatter_mode("scatter_add", to, (x, dim), (index, src), ScatterMode::Add)
}

/// What no element changes under a reduction.
fn identity(mode: ScatterMode, dtype: DType) -> Scalar {
    let (low, high) = match dtype {
        DType::Bool => (0, 1),
        DType::U8 => (0, 255),
        DType::I8 => (i8::MIN.into(), i8::MAX.into()),
        DType::I16 => (i16::MIN.into(), i16::MAX.into()),
        DType::I32 => (i32::MIN.into(), i32::MAX.into()),
        _ => (i64::MIN, i64::MAX),
    };
    match mode {
        ScatterMode::Set | ScatterMode::Add => Scalar::ZERO,
        ScatterMode::Prod => Scalar::ONE,
        ScatterMode::Max if dtype.is_float() => Scalar::Float(f64::NEG_INFINITY),
        ScatterMode::Min if dtype.is_float() => Scalar::Float(f64::INFINITY),
        ScatterMode::Max => Scalar::Int(low),
        ScatterMode::Min => Scalar::Int(high),
    }
}

pub(super) fn scatter_reduce_body(
    to: Target,
    x: &Tensor,
    dim: isize,
    index: &Tensor,
    src: &Tensor,
    reduce: &str,
    include_self: bool,
) -> Result<Tensor> {
    reduced("scatter_reduce", to, (x, dim), (index, src), reduce, include_self)
}

pub(super) fn reduced(
    op: &'static str,
    to: Target,
    (x, dim): (&Tensor, isize),
    (index, src): (&Tensor, &Tensor),
    reduce: &str,
    include_self: bool,
) -> Result<Tensor> {
    super::index::schema::scatter_reduce.check(x.dtype())?;
    let mode = match reduce {
        "sum" | "mean" => ScatterMode::Add,
        "prod" => ScatterMode::Prod,
        "amax" => ScatterMode::Max,
        "amin" => ScatterMode::Min,
        other => {
            let why = format!("reduce argument must be either sum, prod, mean, amax or amin, got {other}");
            return Err(Error::runtime(op, why));
        }
    };
    if mode == ScatterMode::Prod {
        // PyTorch's gradient is the product by the element, which the latter is in twice.
        crate::autograd::OpScope::mark_piecewise_linear(op);
    }
    if x.dtype() == DType::Bool && src.dtype() == DType::Bool {
        // A sum of truths is true where one is, a product where all are; there is no mean.
        let reduce = match mode {
            ScatterMode::Add if reduce == "mean" => {
                return Err(Error::dtype(op, "takes no mean of bools", &[x.dtype()]));
            }
            ScatterMode::Set | ScatterMode::Add | ScatterMode::Max => "amax",
            ScatterMode::Prod | ScatterMode::Min => "amin",
        };
        let (bytes, src) = (x.cast(DType::U8)?, src.cast(DType::U8)?);
        let y = reduced(op, Target::Copy, (&bytes, dim), (index, &src), reduce, include_self)?.cast(DType::Bool)?;
        if to == Target::Copy {
            return Ok(y);
        }
        x.write_in_place(op, y)?;
        return Ok(x.clone());
    }
    if to == Target::Itself && (reduce == "mean" || !include_self) {
        // Several steps: they are done on a copy, so that an error leaves the tensor as it was.
        x.write_in_place(op, reduced(op, Target::Copy, (x, dim), (index, src), reduce, include_self)?)?;
        return Ok(x.clone());
    }
    // PyTorch's gradients of extrema meet the tensors themselves, or for `scatter_reduce` a row-major copy.
    let extremum = matches!(mode, ScatterMode::Max | ScatterMode::Min);
    let as_input = |on: bool| on.then(|| autograd::GradLayoutGuard::set(autograd::GradLayoutRule::AsInput));
    let layout = as_input(extremum && op == "index_reduce");
    let start = match include_self {
        true => x.clone(),
        false => {
            let unit = Tensor::constant(identity(mode, x.dtype()), x.dtype(), x.device())?;
            let unit = super::view::expand_to(&unit, index.shape())?;
            scatter_mode(op, Target::Copy, (x, dim), (index, &unit), ScatterMode::Set)?
        }
    };
    drop(layout);
    let y = {
        let _lies = as_input(extremum);
        scatter_mode(op, to, (&start, dim), (index, src), mode)?
    };
    if reduce != "mean" {
        return match extremum && !include_self && crate::autograd::is_followed(src) {
            true => shared_with_former(&y, x, dim, index, src),
            false => Ok(y),
        };
    }
    let ones = src.detach()?.full_in_shape(Scalar::ONE)?;
    let own = x.detach()?.full_in_shape(if include_self { Scalar::ONE } else { Scalar::ZERO })?;
    let count = scatter_mode(op, Target::Copy, (&own, dim), (index, &ones), ScatterMode::Add)?;
    let count = super::compare::select::r#where(&count.eq(0)?, Scalar::ONE, &count)?;
    match x.dtype().is_float() {
        true => y / &count,
        false => y.floor_divide(&count),
    }
}

impl Tensor {
    fn full_in_shape(&self, value: Scalar) -> Result<Tensor> {
        Tensor::full_of(self.shape(), value, self.dtype(), self.device())
    }
}

/// Extrema `y` of `src` alone, whose gradient counts an element of `x` that equals them, though it takes no part: as PyTorch's.
fn shared_with_former(y: &Tensor, x: &Tensor, dim: isize, index: &Tensor, src: &Tensor) -> Result<Tensor> {
    let (x, value) = (x.detach()?, y.detach()?);
    // What of the sources has an index.
    let each = index.shape().iter().enumerate();
    let src = each.fold(src.detach(), |src, (axis, &n)| src?.narrow(axis as isize, 0, n as i64))?;
    let hit = src.eq(&value.gather(dim, index)?)?.cast(x.dtype())?;
    let hits = x.zeros_like()?.scatter_add(dim, index, &hit)?;
    let tie = x.eq(&value)?.logical_and(&hits.gt(0)?)?.logical_and(&value.isfinite()?)?;
    let part = (&hits / &(&hits + 1.0)?)?;
    super::compare::select::r#where(&tie, &(&value + &((y - &value)? * &part)?)?, y)
}

/// The gradients of a product or an extremum at indices. Of several zeros' product, and of ties, as PyTorch has it.
pub(super) fn reduce_gradient(c: &Ctx<'_>, g: &Tensor, axis: usize, mode: ScatterMode) -> Result<Grads> {
    use super::compare::select::r#where;
    let (x, index, src, out) = (c.x(0)?, c.x(1)?, c.x(2)?, c.out()?);
    let dim = axis as isize;
    let at = |t: &Tensor| t.gather(dim, &index);
    let add = |t: &Tensor, src: &Tensor| t.scatter_add(dim, &index, src);
    let (of_x, of_src) = match mode {
        ScatterMode::Set | ScatterMode::Add => (g.clone(), at(g)?),
        ScatterMode::Max | ScatterMode::Min => {
            let hit = src.detach()?.eq(&at(&out.detach()?)?)?.cast(src.dtype())?;
            let own = x.detach()?.eq(&out.detach()?)?.cast(x.dtype())?;
            // Where neither is the result, which only NaN does, 0 · ∞ gives NaN, as in PyTorch.
            let share = (g / &add(&own, &hit)?)?;
            ((&share * &own)?, (at(&share)? * &hit)?)
        }
        ScatterMode::Prod => {
            let prod = |t: &Tensor, src: &Tensor| t.scatter_reduce(dim, &index, src, Combine::Prod, true);
            let ones = x.detach()?.full_in_shape(Scalar::ONE)?;
            let of_x = (g * &prod(&ones, &src)?)?;
            let zero = src.detach()?.eq(0)?;
            let filled = r#where(&zero, Scalar::ONE, &src)?;
            // Of one zero the others' product is the gradient; of more there is none.
            let zeros = at(&add(&x.detach()?.zeros_like()?, &zero.cast(src.dtype())?)?)?;
            let others = at(&(g * &prod(&x, &filled)?)?)?;
            let alone = others.where_else_zero(&zero.logical_and(&zeros.eq(1)?)?)?;
            let plain = (at(&(g * &out)?)? / &filled)?;
            (of_x, r#where(&zero, &alone, &plain)?)
        }
    };
    Ok([c.needs(0).then_some(of_x), None, c.needs(2).then_some(of_src)].into_iter().collect())
}

fn take_body(x: &Tensor, index: &Tensor) -> Result<Tensor> {
    let index = as_index("take", index)?.contiguous()?;
    let flat = {
        // PyTorch's gradient is put into zeros that have the layout of the input.
        let _lies = autograd::GradLayoutGuard::set(autograd::GradLayoutRule::AsInput);
        x.reshape(&[-1])?
    };
    index_axes(&flat, &[0], std::slice::from_ref(&index), false)
}

pub(super) fn put_body(to: Target, x: &Tensor, index: &Tensor, source: &Tensor, accumulate: bool) -> Result<Tensor> {
    let index = as_index("put", index)?;
    same_dtype("put", x, source, "self and source expected to have the same dtype")?;
    if index.numel() != source.numel() {
        let why = format!(
            "Expected source and index to have the same number of elements, but got source.numel() = {}, index.numel() = {}",
            source.numel(),
            index.numel()
        );
        return Err(Error::index("put", why));
    }
    let source = super::view::reshape_to(source, index.shape())?;
    if to == Target::Itself && x.layout().may_overlap() && !x.is_batched() {
        // What shows the same memory beside it keeps what is put there.
        autograd::check_in_place("put_", x, &source)?;
        x.refuse_expanded("put_")?;
        let read = autograd::rewritten(x);
        let value = put_body(Target::Copy, read.as_ref().unwrap_or(x), &index, &source, accumulate)?;
        super::aliased_write::put_at(x, &index, &source, accumulate)?;
        return autograd::record_write(x, &value, false).map(|()| x.clone());
    }
    // What is recorded is a step of its own, not a write over a view of all elements.
    let followed = x.0.auto.view.is_none() && (autograd::is_followed(x) || autograd::is_followed(&source));
    if to == Target::Itself && (followed || !x.is_contiguous()) {
        x.write_in_place("put_", put_body(Target::Copy, x, &index, &source, accumulate)?)?;
        return Ok(x.clone());
    }
    let flat = x.reshape(&[-1])?;
    let out = put_axes(to, &flat, &[0], &[index], &source, accumulate, false)?;
    super::view::reshape_to(&out, x.shape())
}

fn take_along_body(x: &Tensor, indices: &Tensor, dim: Option<isize>) -> Result<Tensor> {
    let indices = as_index("take_along_dim", indices)?;
    let Some(dim) = dim else { return x.reshape(&[-1])?.gather(0, &indices.reshape(&[-1])?) };
    let axis = shape::wrap_dim("take_along_dim", dim, x.ndim())?;
    if x.ndim() != indices.ndim() {
        let why = "input and indices should have the same number of dimensions";
        return Err(Error::shape("take_along_dim", why, &[x.shape(), indices.shape()]));
    }
    if x.ndim() == 0 {
        return x.gather(dim, &indices);
    }
    let without = |t: &Tensor| {
        let mut shape = Shape::from_slice(t.shape());
        shape[axis] = 1;
        shape
    };
    let common = shape::broadcast("take_along_dim", &without(x), &without(&indices))?;
    let spread = |t: &Tensor| {
        let mut shape = common.clone();
        shape[axis] = t.shape()[axis];
        t.expand(&crate::tensor::signed(&shape))
    };
    let spread_out = spread(&indices)?;
    let from_the_end = spread_out.add(x.shape()[axis] as i64, 1)?;
    let wrapped = r#where(&spread_out.lt(0)?, &from_the_end, &spread_out)?;
    spread(x)?.gather(dim, &wrapped)
}
