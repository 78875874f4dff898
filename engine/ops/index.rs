//! Gathering and scattering by index tensors, joining, padding and flipping.
//!
//! Kernels are in `cpu/index.rs` and `gpu/index.rs`. Index tensors reach them as int64 on the op's own device; both
//! backends check their range.

use super::arrange::{
    cat_body, cat_gradient, flip_axes, flip_body, pad_body, repeat_body, roll_body, stack_body, tril_body, triu_body,
};
use super::macros::define_ops;
use super::scatter;
use crate::dispatch::{self, Meta, Prim};
use crate::shape::{self, Axes, Layout, Shape, SliceDim, Slices};
use crate::{DType, Device, Error, Result, Scalar, Tensor};
use smallvec::SmallVec;

/// What a scatter does where several sources meet one element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScatterMode {
    /// The source replaces the element; of several, an unspecified one.
    Set,
    /// The sources are added to the element.
    Add,
    /// They are multiplied with it.
    Prod,
    /// The largest of all stays; NaN wins.
    Max,
    /// The smallest of all stays; NaN wins.
    Min,
}

/// Where a write at indices goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// Into a copy.
    Copy,
    /// Into the tensor itself.
    Itself,
}

/// The rows of the family, for `$cb`.
#[macro_export]
#[doc(hidden)]
macro_rules! index_ops {
    ($cb:ident) => { $cb! { "index" IndexOp :
        /// `out[i][j] = input[index[i][j]][j]` for `dim` 0, and so on.
        method gather(dim: Dim, index: Tensor) -> Tensor {
            [only_function] Keep Yes DTypes::ALL, Same,
            prim Gather { axis: usize } Second {|c, g| [
                scatter_along(ScatterMode::Add, &c.zeros(0)?, *axis, &c.x(1)?, g),
                g.zeros_like()
            ]},
            run gather_body, torch "", samples ["N(3, 4), 1, I(0, 4, 3, 2)", "N(3, 4), 0, I(0, 3, 2, 4)"],
            example [
                "let x = tensor([[1, 2], [3, 4]])?;",
                "assert_close(x.gather(1, &tensor([[1, 0], [0, 0]])?)?, [[2, 1], [3, 3]]);",
            ]
        }
        /// A copy with `src` (a tensor or a number) written at `index` along `dim`: `out[index[i][j]][j] = src[i][j]` for `dim`
        /// 0, and so on. `index` is no larger than `src`, nor than the tensor but along `dim`. With `reduce` "add" or
        /// "multiply" the sources are added to the elements or multiplied with them.
        method scatter(dim: Dim, index: Tensor, src: SomeOperand = None; reduce: SomeText = None, value: SomeNumber = None) -> Tensor {
            [updates] Keep ["the order of writes to one element is not defined"] DTypes::ALL, Same,
            prim Scatter { axis: usize, mode: ScatterMode } Second {|c, g| [
                match mode {
                    ScatterMode::Set => scatter_along(*mode, g, *axis, &c.x(1)?, &c.zeros(2)?),
                    _ => Ok(g.clone()),
                },
                g.zeros_like(),
                g.gather(*axis as isize, &c.x(1)?)
            ]},
            run scatter::scatter_body[Target::Copy], torch "", samples [
                "N(3, 4), 1, PERM(3, 4), N(3, 4)", "N(3, 4), 1, PERM(3, 4), 2.0", "N(3, 4), 0, I(0, 3, 2, 4), FIXED(N(3, 5)), reduce='add'",
                "N(4), 0, ORDER(3), value=1.0"
            ],
            example [
                "let x = tensor([0, 0, 0])?;",
                "assert_close(x.scatter(0, &tensor([2, 0])?, Some((&tensor([5, 6])?).into()), None, None)?, [6, 0, 5]);",
            ]
        }
        /// A copy in which the elements of `src` that `index` sends to one place along `dim` are combined with what is there
        /// by `reduce`: "sum", "prod", "mean", "amax" or "amin". Without `include_self` what was there does not count, where
        /// anything is sent. Ties of extrema share the gradient evenly.
        method scatter_reduce(dim: Dim, index: Tensor, src: Tensor, reduce: Text; include_self: Bool = true) -> Tensor {
            [updates] Keep ["the order of additions is not defined on the GPU"] DTypes::ORDERED, Same,
            prim Reduce { axis: usize, mode: ScatterMode } Both {|c, g| all scatter::reduce_gradient(c, g, *axis, *mode)},
            run scatter::scatter_reduce_body[Target::Copy], torch "", samples [
                "N(3, 4), 1, I(0, 4, 3, 6), N(3, 6), 'sum'", "N(3, 4), 0, I(0, 3, 2, 4), P(2, 4), 'prod'",
                "N(3, 4), 1, I(0, 4, 3, 6), N(3, 6), 'mean'", "N(3, 4), 1, I(0, 4, 3, 6), N(3, 6), 'amax'",
                "N(3, 4), 1, I(0, 4, 3, 6), N(3, 6), 'amin', include_self=False",
                "N(3, 4), 1, I(0, 2, 3, 6), N(3, 6), 'mean', include_self=False",
                "N(3, 4), 0, I(0, 3, 2, 4), P(2, 4), 'prod', include_self=False"
            ],
            example [
                "let x = tensor([1.0, 2.0])?;",
                r#"let made = x.scatter_reduce(0, &tensor([0, 0, 1])?, &tensor([3.0, 4.0, 5.0])?, "sum", true)?;"#,
                "assert_close(made, [8.0, 7.0]);",
            ]
        }
        /// The elements at the index tensors, which broadcast together, along the listed dimensions: PyTorch's advanced
        /// indexing. The indexed dimensions are replaced by the broadcast ones, in front unless they are neighbours.
        function index(input: Tensor, dims: Dims, indices: Tensors) -> Tensor {
            [] Keep Yes DTypes::ALL, Same,
            prim Index { axes: Axes, strict: bool } Rest {|c, g| [
                index_put_axes(&c.zeros(0)?, axes, &c.rest(1)?, g, true, *strict)
            ]},
            run index_body, torch "-", samples [],
            example [
                "let x = tensor([[1, 2], [3, 4]])?;",
                "assert_close(index(&x, &[0, 1], &[tensor([0, 1])?, tensor([1, 0])?])?, [2, 3]);",
            ]
        }
        /// A copy with `values` written (or added) where [`index`] reads.
        function index_put_dims(input: Tensor, dims: Dims, indices: Tensors, values: Tensor, accumulate: Bool) -> Tensor {
            [] Keep ["the order of writes to one element is not defined"] DTypes::ALL, Same,
            prim IndexPut { axes: Axes, accumulate: bool, strict: bool } Tail {|c, g| [
                if *accumulate { Ok(g.clone()) } else { index_put_axes(g, axes, &c.rest(2)?, &c.zeros(1)?, false, *strict) },
                index_axes(g, axes, &c.rest(2)?, *strict)
            ]},
            run index_put_body, torch "-", samples [],
            example [
                "let (x, values) = (tensor([1, 2, 3])?, tensor([10, 20])?);",
                "assert_close(index_put_dims(&x, &[0], &[tensor([0, 0])?], &values, true)?, [31, 2, 3]);",
            ]
        }
        /// A copy of `input` with a slice along `dim` replaced by `src`.
        method slice_scatter(src: Tensor, dim: Dim = 0, start: OptInt = None, end: OptInt = None, step: Int = 1) -> Tensor {
            [] Keep Yes DTypes::ALL, Same,
            prim SliceScatter { dims: Slices, pads: bool } Nothing {|c, g| [
                slice_scatter_dims(g, &c.zeros(1)?, dims.clone()),
                // Of padding, PyTorch cuts a copy out.
                match (super::view::slice_dims(g, dims.clone())?, *pads) {
                    (part, true) => part.copy(),
                    (part, false) => Ok(part),
                }
            ]},
            run slice_scatter_body, torch "", samples ["N(3, 4), N(3, 2), 1, 1, 3", "N(5, 4), N(2, 4), 0, 0, 4, 2"],
            example [
                "let x = tensor([1, 2, 3, 4])?;",
                "assert_close(x.slice_scatter(&tensor([8, 9])?, 0, Some(1), Some(3), 1)?, [1, 8, 9, 4]);",
            ]
        }
        /// Zeros of the given shape with the elements of `input` added where `as_strided` would read them.
        function strided_scatter_add(input: Tensor, size: Sizes) -> Tensor {
            [] Keep Yes DTypes::NUMERIC, Same,
            prim StridedAdd { layout: Box<Layout>, shape: Shape } Nothing {|c, g| [strided_read(g, layout)]},
            run strided_add_unit, torch "-", samples [],
            example [
                "let x = tensor([1, 2])?.expand(&[2, 2])?;",
                "assert_close(strided_scatter_add(&x, &[2, 2])?, [[1, 2], [1, 2]]);",
            ]
        }
        /// The tensors joined along `dim`, which alone may differ in size.
        function cat(tensors: Tensors, dim: Dim = 0) -> Tensor {
            [casts_out] Promote Yes DTypes::ALL, Same,
            prim Concat { axis: usize } Nothing {|c, g| all cat_gradient(c, g, *axis)},
            run cat_body, torch "", samples ["[N(2, 3), N(4, 3)]", "[N(2, 3), N(2, 1), N(2, 2)], dim=-1", "[N(2, 3), N(0,)]"],
            example ["assert_close(cat(&[tensor([[1, 2]])?, tensor([[3, 4]])?], 1)?, [[1, 2, 3, 4]]);"]
        }
        /// The tensors, all of one shape, along a new dimension.
        function stack(tensors: Tensors, dim: Dim = 0) -> Tensor {
            [casts_out] Promote Yes DTypes::ALL, Same,
            run stack_body, torch "", samples ["[N(2, 3), N(2, 3)]", "[N(2, 3), N(2, 3), N(2, 3)], dim=-1"],
            example ["assert_close(stack(&[tensor([1, 2])?, tensor([3, 4])?], 0)?, [[1, 2], [3, 4]]);"]
        }
        /// The order of elements reversed along `dims`. A copy, as in PyTorch.
        method flip(dims: Sizes) -> Tensor {
            [no_out] Keep Yes DTypes::ALL, Same,
            prim Flip { axes: Axes } Nothing {|c, g| [flip_axes(g, axes)]},
            run flip_body, torch "", samples ["N(3, 4), (0,)", "N(2, 3, 4), (0, -1)"],
            example ["assert_close(tensor([[1, 2], [3, 4]])?.flip(&[0])?, [[3, 4], [1, 2]]);"]
        }
        /// Elements shifted along `dims`, those pushed out coming in at the other end; flattened first without `dims`.
        method roll(shifts: Dims, dims: OptDims = None) -> Tensor {
            [no_out] Keep Yes DTypes::ALL, Same,
            run roll_body, torch "", samples ["N(3, 4), 1", "N(3, 4), -1, 0", "N(3, 4), (1, 2), (0, 1)"],
            example ["assert_close(tensor([1, 2, 3, 4])?.roll(&[1], None)?, [4, 1, 2, 3]);"]
        }
        /// `value` put around the tensor: `pad` lists (before, after) from the last dimension on; negative sizes crop.
        function constant_pad_nd(input: Tensor, pad: Sizes, value: Number = 0) -> Tensor {
            [no_out] Keep Yes DTypes::ALL, Same,
            run pad_body, torch "", samples ["N(3, 4), (1, 2)", "N(3, 4), (1, 0, 2, 1), 1.5", "N(3, 4), (-1, 1)"],
            example ["assert_close(constant_pad_nd(&tensor([1, 2])?, &[1, 2], 7)?, [7, 1, 2, 7, 7]);"]
        }
        /// The tensor repeated along each dimension; a copy.
        method repeat(repeats: Sizes) -> Tensor {
            [only_method] Keep Yes DTypes::ALL, Same,
            run repeat_body, torch "Tensor.repeat", samples ["N(3, 4), (2, 1)", "N(3), (2, 2, 2)"],
            example ["assert_close(tensor([1, 2])?.repeat(&[2, 2])?, [[1, 2, 1, 2], [1, 2, 1, 2]]);"]
        }
        /// The lower triangle of the last two dimensions, zero above diagonal `diagonal`.
        method tril(diagonal: Int = 0) -> Tensor {
            [updates] Keep Yes DTypes::ALL, Same,
            run tril_body[Target::Copy], torch "", samples ["N(3, 4)", "N(2, 3, 3), -1"],
            example ["assert_close(tensor([[1, 2], [3, 4]])?.tril(0)?, [[1, 0], [3, 4]]);"]
        }
        /// The upper triangle of the last two dimensions, zero below diagonal `diagonal`.
        method triu(diagonal: Int = 0) -> Tensor {
            [updates] Keep Yes DTypes::ALL, Same,
            run triu_body[Target::Copy], torch "", samples ["N(3, 4)", "N(2, 3, 3), 1"],
            example ["assert_close(tensor([[1, 2], [3, 4]])?.triu(1)?, [[0, 2], [0, 0]]);"]
        }
        /// The indices of the elements that are not zero, one row each. Evaluates: the result's size depends on the data.
        method nonzero() -> Tensor {
            [nograd] Keep Yes DTypes::ALL, Index,
            run nonzero_body, torch "", samples ["I(0, 2, 3, 4)", "B(5)"],
            example ["assert_close(tensor([[0, 5], [6, 0]])?.nonzero()?, [[0, 1], [1, 0]]);"]
        }
        /// The indices of the elements that are not zero, one row each, as [`nonzero`] gives them. Evaluates.
        method argwhere() -> Tensor {
            [no_out nograd] Keep Yes DTypes::ALL, Index,
            run nonzero_body, torch "", samples ["I(0, 2, 3, 4)", "B(5)", "N()"],
            example ["assert_close(tensor([0, 5, 6])?.argwhere()?, [[1], [2]]);"]
        }
        /// The first `size` rows of [`nonzero`], and rows of `fill_value` where there are fewer. Evaluates.
        method nonzero_static(; size: OptInt = None, fill_value: Int = -1) -> Tensor {
            [nograd] Keep Yes DTypes::ALL, Index,
            run nonzero_static_body, torch "", samples ["I(0, 2, 3, 4), size=3", "B(5), size=8, fill_value=2", "N(0, 2), size=2"],
            example ["assert_close(tensor([0, 5, 6])?.nonzero_static(Some(3), -1)?, [[1], [2], [-1]]);"]
        }
    }};
}
index_ops!(define_ops);

pub(super) fn run(op: IndexOp, inputs: &[&Tensor], shape: &[usize]) -> Result<Tensor> {
    let dtype = inputs[0].dtype();
    dispatch::apply1(Prim::Index(op), inputs, Meta::new(shape, dtype))
}

/// An index tensor as the kernels take it: int64. Which other dtypes are taken is for the op to say, as in PyTorch.
pub(super) fn as_index(op: &'static str, index: &Tensor) -> Result<Tensor> {
    let long_only = matches!(op, "index_copy" | "index_fill" | "put" | "take" | "take_along_dim");
    // Where nothing is indexed PyTorch does not look.
    let nothing = index.numel() == 0 && (op == "gather" || op.starts_with("scatter"));
    match index.dtype() {
        DType::I64 => Ok(index.clone()),
        DType::I32 if !long_only => index.cast(DType::I64),
        _ if nothing => index.cast(DType::I64),
        other if matches!(op, "index" | "index_put") => {
            let why = "tensors used as indices must be long, int, byte or bool tensors";
            Err(Error::index(op, format!("{why}, got {other}")))
        }
        other if op == "index_fill" => Err(Error::index(op, format!("Expected dtype int64 for index, got {other}"))),
        other => {
            let taken = if long_only { "int64" } else { "int32 or int64" };
            Err(Error::dtype(op, format!("Expected dtype {taken} for index"), &[other]))
        }
    }
}

/// PyTorch's rule for `gather` and `scatter`: as many dimensions, and no size above the other's but along `axis`.
pub(super) fn check_extent(op: &'static str, index: &Tensor, other: &Tensor, axis: Option<usize>) -> Result<()> {
    let fits = |(i, (&a, &b)): (usize, (&usize, &usize))| Some(i) == axis || a <= b;
    let same_rank = index.ndim().max(1) == other.ndim().max(1);
    if same_rank && (index.numel() == 0 || index.shape().iter().zip(other.shape()).enumerate().all(fits)) {
        return Ok(());
    }
    let apart = axis.map_or(String::new(), |a| format!(" apart from dimension {a}"));
    let why = format!("Expected index {:?} to be no larger than {:?}{apart}", index.shape(), other.shape());
    Err(Error::shape(op, why, &[index.shape(), other.shape()]))
}

/// Runs an op along a dimension on 0-d tensors as on vectors of one element.
pub(super) fn with_dims(x: &Tensor) -> Result<Tensor> {
    if x.ndim() == 0 {
        x.reshape(&[1])
    } else {
        Ok(x.clone())
    }
}

fn gather_body(x: &Tensor, dim: isize, index: &Tensor) -> Result<Tensor> {
    let axis = shape::wrap_dim("gather", dim, x.ndim())?;
    let wide = as_index("gather", index)?;
    if index.numel() == 0 && index.ndim() != x.ndim() {
        return super::view::reshape_to(&x.reshape(&[-1])?.narrow(0, 0, 0)?.copy()?, index.shape());
    }
    check_extent("gather", index, x, Some(axis))?;
    if x.ndim() == 0 || index.ndim() == 0 {
        let out = gather_body(&with_dims(x)?, dim, &with_dims(&wide)?)?;
        return super::view::reshape_to(&out, index.shape());
    }
    run(IndexOp::Gather { axis }, &[x, &wide], index.shape())
}

pub(super) fn scatter_along(
    mode: ScatterMode,
    x: &Tensor,
    axis: usize,
    index: &Tensor,
    src: &Tensor,
) -> Result<Tensor> {
    run(IndexOp::Scatter { axis, mode }, &[x, index, src], x.shape())
}

/// The shape that advanced indexing gives, and the shape of the broadcast index.
pub(super) fn indexed_shape(
    op: &'static str,
    x: &Tensor,
    axes: &[usize],
    indices: &[Tensor],
) -> Result<(Shape, Shape)> {
    if axes.len() > x.ndim() {
        let why = format!("too many indices for tensor of dimension {}", x.ndim());
        return Err(Error::index(op, why));
    }
    let mut index = Shape::new();
    for i in indices {
        index = shape::broadcast(op, &index, i.shape()).map_err(|_| {
            let shapes: Vec<_> = indices.iter().map(Tensor::shape).collect();
            Error::index(
                op,
                format!("shape mismatch: indexing tensors could not be broadcast together with shapes {shapes:?}"),
            )
        })?;
    }
    let mut out: Shape = x.shape().iter().enumerate().filter(|(a, _)| !axes.contains(a)).map(|(_, &n)| n).collect();
    let at = index_position(axes);
    out.insert_many(at, index.iter().copied());
    Ok((out, index))
}

/// Where the broadcast dimensions go: in place of neighbouring indexed ones, else in front.
pub(crate) fn index_position(axes: &[usize]) -> usize {
    match axes.windows(2).all(|w| w[1] == w[0] + 1) {
        true => axes.first().copied().unwrap_or(0),
        false => 0,
    }
}

/// The indices of a read or write without elements, which PyTorch does not look at, as zeros; others as they are. Of a
/// dimension of size 0 only indices without elements read nothing: `index` is what all of them broadcast to.
fn unread<'a>(
    x: &Tensor,
    axes: &[usize],
    indices: &'a [Tensor],
    (shape, index): (&[usize], &[usize]),
    strict: bool,
) -> Result<std::borrow::Cow<'a, [Tensor]>> {
    if strict || shape::numel(shape) > 0 {
        return Ok(indices.into());
    }
    if shape::numel(index) == 0 {
        let none = || Tensor::full_of(index, Scalar::Int(0), DType::I64, x.device());
        return Ok(indices.iter().map(|_| none()).collect::<Result<Vec<_>>>()?.into());
    }
    match axes.iter().all(|&axis| x.shape()[axis] > 0) {
        true => Ok(indices.iter().map(Tensor::zeros_like).collect::<Result<Vec<_>>>()?.into()),
        false => Ok(indices.into()),
    }
}

/// Reads at index tensors along sorted axes; with `strict` negative ones are refused, as PyTorch does outside of `x[…]`.
pub(crate) fn index_axes(x: &Tensor, axes: &[usize], indices: &[Tensor], strict: bool) -> Result<Tensor> {
    if crate::autograd::is_followed(x) {
        // PyTorch says that before it looks at the indices.
        crate::autograd::check_followed("index", x)?;
    }
    let (shape, index) = indexed_shape("index", x, axes, indices)?;
    let indices = unread(x, axes, indices, (&shape, &index), strict)?;
    let indices = indices.iter();
    let inputs: SmallVec<[&Tensor; 4]> = std::iter::once(x).chain(indices).collect();
    run(IndexOp::Index { axes: Axes::from_slice(axes), strict }, &inputs, &shape)
}

fn index_put_axes(
    x: &Tensor,
    axes: &[usize],
    indices: &[Tensor],
    values: &Tensor,
    accumulate: bool,
    strict: bool,
) -> Result<Tensor> {
    put_axes(Target::Copy, x, axes, indices, values, accumulate, strict)
}

/// Writes or adds values at index tensors along sorted axes.
pub(crate) fn put_axes(
    to: Target,
    x: &Tensor,
    axes: &[usize],
    indices: &[Tensor],
    values: &Tensor,
    accumulate: bool,
    strict: bool,
) -> Result<Tensor> {
    let (shape, index) = indexed_shape("index_put", x, axes, indices)?;
    let fits = shape::broadcast("index_put", values.shape(), &shape).is_ok_and(|s| s == shape);
    if !fits {
        let (values, shape) = (values.shape(), shape.as_slice());
        let why = format!(
            "shape mismatch: value tensor of shape {values:?} cannot be broadcast to indexing result of shape {shape:?}"
        );
        return Err(Error::shape("index_put", why, &[values, shape]));
    }
    if to == Target::Itself && values.ndim() > 0 {
        x.refuse_shared("index_put_", values, true)?;
    }
    let indices = unread(x, axes, indices, (&shape, &index), strict)?;
    let indices = indices.iter();
    // A number may be on the CPU, too.
    let number = if values.ndim() == 0 { Some(beside(x, values)?) } else { None };
    let values = super::view::expand_to(number.as_ref().unwrap_or(values), &shape)?;
    let rest: SmallVec<[&Tensor; 4]> = std::iter::once(&values).chain(indices).collect();
    write_at(to, IndexOp::IndexPut { axes: Axes::from_slice(axes), accumulate, strict }, x, &rest)
}

/// Runs an op that writes into its first input, on a copy or in place. Where its gradient needs what was there before, in
/// place too a copy is made.
pub(super) fn write_at(to: Target, op: IndexOp, x: &Tensor, rest: &[&Tensor]) -> Result<Tensor> {
    let read = if to == Target::Itself { crate::autograd::rewritten(x) } else { None };
    let read = read.as_ref().unwrap_or(x);
    let inputs: SmallVec<[&Tensor; 4]> = std::iter::once(read).chain(rest.iter().copied()).collect();
    if to == Target::Copy {
        return run(op, &inputs, x.shape());
    }
    let name = op.schema().name;
    let keeps = matches!(op, IndexOp::Reduce { .. }) && inputs.iter().any(|t| crate::autograd::is_followed(t));
    if keeps || inputs.iter().any(|t| t.is_batched()) {
        let copy = read.copy()?;
        let made = run(
            op,
            &std::iter::once(&copy).chain(rest.iter().copied()).collect::<SmallVec<[&Tensor; 4]>>(),
            x.shape(),
        )?;
        x.write_in_place(name, made)?;
        return Ok(x.clone());
    }
    rest.iter().try_for_each(|t| crate::autograd::check_in_place(name, x, t))?;
    if let (IndexOp::IndexPut { .. }, [values, ..]) = (&op, rest)
        && super::overlap::ends_the_tape(x, values)
    {
        rest.iter().try_for_each(|t| x.refuse_shared(name, t, true))?;
        let write = || super::overlap::write_at(&op, x, rest);
        return crate::autograd::record_fill(name, x, values, write).map(|()| x.clone());
    }
    let recorded = || crate::grad_enabled() && inputs.iter().any(|t| t.requires_grad());
    // Of an expanded tensor the tape could not say how often a gradient counts.
    if !matches!(op, IndexOp::IndexPut { .. }) || x.layout().repeats() && recorded() {
        x.refuse_expanded(name)?;
    }
    rest.iter().try_for_each(|t| x.refuse_shared(name, t, true))?;
    match x.layout().may_overlap() {
        true => super::overlap::write_at(&op, x, rest)?,
        false => dispatch::index_into(&op, x, rest)?,
    }
    // The rule needs the indices alone, so the op can be recorded after the fact.
    let made = crate::autograd::record(Prim::Index(op), &inputs, x.storage().clone())?;
    crate::autograd::record_write(x, &made, false)?;
    Ok(x.clone())
}

pub(super) fn checked_indices(
    op: &'static str,
    x: &Tensor,
    dims: &[isize],
    indices: &[Tensor],
) -> Result<(Axes, Vec<Tensor>)> {
    if dims.len() != indices.len() || dims.is_empty() {
        return Err(Error::index(op, format!("{} dims and {} index tensors given", dims.len(), indices.len())));
    }
    let axes = shape::wrap_dims(op, dims, x.ndim())?;
    let indices: Vec<Tensor> = indices.iter().map(|i| as_index(op, &beside(x, i)?)).collect::<Result<_>>()?;
    if axes.is_sorted() {
        return Ok((axes, indices));
    }
    let mut order: Vec<_> = axes.into_iter().zip(indices).collect();
    order.sort_by_key(|(a, _)| *a);
    Ok(order.into_iter().unzip())
}

/// An index or mask on the device of `x`: PyTorch takes those of the CPU for tensors of any device.
///
/// # Errors
/// As [`Tensor::to_device`].
pub fn beside(x: &Tensor, index: &Tensor) -> Result<Tensor> {
    match (index.device(), x.device()) {
        (Device::Cpu, Device::Gpu) => index.to_device(Device::Gpu),
        _ => Ok(index.clone()),
    }
}

fn index_body(x: &Tensor, dims: &[isize], indices: &[Tensor]) -> Result<Tensor> {
    let (axes, indices) = checked_indices("index", x, dims, indices)?;
    index_axes(x, &axes, &indices, false)
}

fn index_put_body(x: &Tensor, dims: &[isize], indices: &[Tensor], values: &Tensor, accumulate: bool) -> Result<Tensor> {
    let (axes, indices) = checked_indices("index_put", x, dims, indices)?;
    if x.dtype() != values.dtype() {
        let why = "Index put requires the source and destination dtypes match";
        return Err(Error::dtype("index_put", why, &[x.dtype(), values.dtype()]));
    }
    index_put_axes(x, &axes, &indices, values, accumulate, false)
}

pub(crate) fn slice_scatter_dims(x: &Tensor, src: &Tensor, dims: Slices) -> Result<Tensor> {
    run(IndexOp::SliceScatter { dims, pads: false }, &[x, src], x.shape())
}

fn slice_scatter_body(
    x: &Tensor,
    src: &Tensor,
    dim: isize,
    start: Option<i64>,
    end: Option<i64>,
    step: i64,
) -> Result<Tensor> {
    if x.ndim() == 0 {
        return Err(Error::index("slice_scatter", "cannot be applied to a 0-dim tensor."));
    }
    let axis = shape::wrap_dim("slice_scatter", dim, x.ndim())?;
    if step < 1 {
        return Err(Error::runtime("slice_scatter", "slice step must be positive"));
    }
    let slice = slice_of("slice_scatter", x, axis, start, end, step)?;
    let mut expected = Shape::from_slice(x.shape());
    expected[axis] = slice.len;
    let src = super::part::for_part("slice_scatter", x, src, &expected)?;
    slice_scatter_dims(x, &src, smallvec::smallvec![slice])
}

/// Python's slice of one dimension, with its ends clamped.
pub fn slice_of(
    op: &'static str,
    x: &Tensor,
    axis: usize,
    start: Option<i64>,
    end: Option<i64>,
    step: i64,
) -> Result<SliceDim> {
    if step < 1 {
        return Err(Error::value(op, "slice step must be positive"));
    }
    let n = x.shape()[axis] as i64;
    let clamp = |i: i64| (if i < 0 { i.saturating_add(n) } else { i }).clamp(0, n);
    let (start, end) = (clamp(start.unwrap_or(0)), clamp(end.unwrap_or(n)));
    let len = (end - start).max(0).div_euclid(step) + i64::from((end - start).max(0) % step != 0);
    Ok(SliceDim { axis, start: start as usize, step: step as usize, len: len as usize })
}

/// The view that such a slice gives.
///
/// # Errors
/// What the view reports.
pub fn sliced(x: &Tensor, slice: SliceDim) -> Result<Tensor> {
    super::view::slice_dims(x, smallvec::smallvec![slice])
}

/// Zeros of `shape` with `g` added where `layout` reads.
pub(crate) fn strided_add(g: &Tensor, layout: &Layout, shape: &[usize]) -> Result<Tensor> {
    let op = IndexOp::StridedAdd { layout: Box::new(layout.clone()), shape: Shape::from_slice(shape) };
    run(op, &[g], shape)
}

/// What `layout` reads from a tensor whose elements lie in row-major order.
pub(crate) fn strided_read(x: &Tensor, layout: &Layout) -> Result<Tensor> {
    let offset = Some(layout.offset as i64);
    let signed = |v: &[usize]| v.iter().map(|&n| n as isize).collect::<Vec<_>>();
    // The layout counts from the storage's start: give it a storage of its own.
    let base = if x.layout().offset == 0 && x.layout().is_contiguous() { x.clone() } else { x.copy()? };
    base.as_strided(&signed(&layout.shape), &signed(&layout.strides), offset)
}

fn strided_add_unit(x: &Tensor, size: &[isize]) -> Result<Tensor> {
    let shape = shape::infer_size("strided_scatter_add", size, x.shape())?;
    strided_add(x, &Layout::contiguous(x.shape()), &shape)
}

fn nonzero_body(x: &Tensor) -> Result<Tensor> {
    dispatch::nonzero(&x.detach()?)?.transpose(0, 1)
}

fn nonzero_static_body(x: &Tensor, size: Option<i64>, fill_value: i64) -> Result<Tensor> {
    let size = size.ok_or_else(|| Error::kind("nonzero_static", "missing 1 required keyword-only argument: 'size'"))?;
    if size < 0 {
        return Err(Error::runtime("nonzero_static", format!("'size' must be a non-negative number, got {size}")));
    }
    let found = nonzero_body(x)?;
    let rows = found.shape()[0] as i64;
    if rows >= size {
        return found.narrow(0, 0, size)?.copy();
    }
    let wanted = super::create::sizes("nonzero_static", &[(size - rows) as isize, found.shape()[1] as isize])?;
    let rest = Tensor::full_of(&wanted, Scalar::Int(fill_value), crate::DType::I64, x.device())?;
    cat(&[found, rest], 0)
}
