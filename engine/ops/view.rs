//! Views: the same elements under another shape. They copy nothing and share writes with what they were made from.
//!
//! Those by strides, such as `as_strided` and `diagonal`, have their bodies in `strided`. The strides are worked out in
//! `shape`, for both backends alike; `mlx/view.rs` turns a step into MLX's terms.

use super::macros::define_ops;
use crate::autograd::OpScope;
use crate::dispatch;
use crate::shape::{self, inverse, Axes, Layout, Shape, SliceDim, Slices};
use crate::{Error, Result, Tensor};
pub use lucid_ir::ops::view::*;
use lucid_ir::view_ops;
use smallvec::smallvec;

view_ops!(define_ops);

fn view_as_real_body(x: &Tensor) -> Result<Tensor> {
    if !x.dtype().is_complex() {
        let why = format!("view_as_real is only supported for complex tensors, got {}", x.dtype());
        return Err(Error::dtype("view_as_real", why, &[x.dtype()]));
    }
    must_view(ViewOp::AsReal, x)
}

fn view_as_complex_body(x: &Tensor) -> Result<Tensor> {
    let fail = |why: &str| Err(Error::runtime("view_as_complex", why));
    if !crate::dtype::DTypes::WIDE.has(x.dtype()) {
        let why = format!("view_as_complex is only supported for float32 and float64 tensors, got {}", x.dtype());
        return Err(Error::dtype("view_as_complex", why, &[x.dtype()]));
    }
    match x.shape().last() {
        None => return fail("Input tensor must have one or more dimensions"),
        Some(2) => {}
        Some(_) => {
            return Err(Error::shape("view_as_complex", "Tensor must have a last dimension of size 2", &[x.shape()]))
        }
    }
    // As PyTorch's, the gradient is row-major. Not so within other ops.
    let called = matches!(crate::autograd::op_name(), Some("view_as_complex"));
    let _lies = called.then(|| crate::autograd::GradLayoutGuard::set(crate::autograd::GradLayoutRule::RowMajor));
    match view_as(ViewOp::AsComplex, x)? {
        Some(view) => Ok(view),
        None if x.strides()[x.ndim() - 1] != 1 => fail("Tensor must have a last dimension with stride 1"),
        None if !x.storage_offset().is_multiple_of(2) => fail("Tensor must have a storage_offset divisible by 2"),
        None => fail("Tensor must have a stride divisible by 2 for all but last dimension"),
    }
}

/// A view of `x`; `None` where strides cannot express it.
fn view_as(op: ViewOp, x: &Tensor) -> Result<Option<Tensor>> {
    op.layout(x.layout()).map(|layout| viewed(op, x, layout)).transpose()
}

/// The view of `x` that has this layout.
fn viewed(op: ViewOp, x: &Tensor, layout: Layout) -> Result<Tensor> {
    shape::countable(op.name(), &layout.shape)?;
    dispatch::view(op, x, layout)
}

pub(super) fn must_view(op: ViewOp, x: &Tensor) -> Result<Tensor> {
    match op.layout(x.layout()) {
        Some(layout) => viewed(op, x, layout),
        None => Err(Error::runtime(op.name(), "no strides can express this view")),
    }
}

pub(crate) fn reshape_to(x: &Tensor, shape: &[usize]) -> Result<Tensor> {
    let op = ViewOp::Reshape { shape: Shape::from_slice(shape) };
    match op.layout(x.layout()) {
        Some(layout) => {
            if !x.is_contiguous() {
                for name in ["reshape", "flatten"] {
                    OpScope::rename(name, "reshape_alias");
                }
            }
            viewed(op, x, layout)
        }
        None => {
            let copy = {
                let _name = OpScope::apart(&["reshape", "flatten", "ravel"], Some("clone"));
                x.copy()?
            };
            for name in ["reshape", "flatten"] {
                OpScope::rename(name, "unsafe_view");
            }
            must_view(op, &copy).map(Tensor::alone_on_storage)
        }
    }
}

fn reshape_body(x: &Tensor, shape: &[isize]) -> Result<Tensor> {
    reshape_to(x, &shape::infer_size("reshape", shape, x.shape())?)
}

fn view_body(x: &Tensor, shape: &[isize]) -> Result<Tensor> {
    let shape = shape::infer_size("view", shape, x.shape())?;
    view_as(ViewOp::Reshape { shape: shape.clone() }, x)?.ok_or_else(|| {
        let why = format!(
            "view size {shape:?} is not compatible with input tensor's size and stride {:?} (at least one dimension spans across two contiguous subspaces). Use .reshape(...) instead.",
            x.layout().strides
        );
        Error::shape("view", why, &[x.shape()])
    })
}

pub(crate) fn permute_axes(x: &Tensor, axes: &[usize]) -> Result<Tensor> {
    must_view(ViewOp::Permute { axes: Axes::from_slice(axes) }, x)
}

fn permute_body(x: &Tensor, dims: &[isize]) -> Result<Tensor> {
    if dims.len() != x.ndim() {
        let why = format!("permute(dims): number of dims does not match: {} given for {}", dims.len(), x.ndim());
        return Err(Error::shape("permute", why, &[x.shape()]));
    }
    permute_axes(x, &shape::wrap_dims("permute", dims, x.ndim())?)
}

fn transpose_body(x: &Tensor, dim0: isize, dim1: isize) -> Result<Tensor> {
    let (a, b) = (shape::wrap_dim("transpose", dim0, x.ndim())?, shape::wrap_dim("transpose", dim1, x.ndim())?);
    let mut axes = shape::every_axis(x.ndim());
    if x.ndim() > 0 {
        axes.swap(a, b);
    }
    must_view(ViewOp::Permute { axes }, x)
}

fn t_body(x: &Tensor) -> Result<Tensor> {
    match x.ndim() {
        0 | 1 => permute_axes(x, &(0..x.ndim()).collect::<Axes>()),
        2 => permute_axes(x, &[1, 0]),
        n => Err(Error::shape("t", format!("expects a tensor with <= 2 dimensions, but it is {n}D"), &[x.shape()])),
    }
}

fn movedim_body(x: &Tensor, source: &[isize], destination: &[isize]) -> Result<Tensor> {
    if source.len() != destination.len() {
        let why = format!("source {source:?} and destination {destination:?} must have the same number of dims");
        return Err(Error::runtime("movedim", why));
    }
    // One that does not exist is named before one that comes twice.
    source.iter().chain(destination).try_for_each(|&dim| shape::wrap_dim("movedim", dim, x.ndim()).map(drop))?;
    let source = shape::wrap_dims("movedim", source, x.ndim())?;
    let destination = shape::wrap_dims("movedim", destination, x.ndim())?;
    if x.ndim() == 0 {
        return permute_axes(x, &[]);
    }
    let mut axes: Axes = (0..x.ndim()).filter(|a| !source.contains(a)).collect();
    let mut moves: Vec<_> = destination.iter().zip(&source).collect();
    moves.sort();
    for (&to, &from) in moves {
        axes.insert(to.min(axes.len()), from);
    }
    permute_axes(x, &axes)
}

/// `x` broadcast to a shape that it is known to broadcast to.
pub(crate) fn expand_to(x: &Tensor, shape: &[usize]) -> Result<Tensor> {
    match x.shape() == shape {
        true => Ok(x.clone()),
        false => must_view(ViewOp::Expand { shape: Shape::from_slice(shape) }, x),
    }
}

fn expand_body(x: &Tensor, size: &[isize]) -> Result<Tensor> {
    let fail = |why: String| Error::shape("expand", why, &[x.shape()]);
    let Some(lead) = size.len().checked_sub(x.ndim()) else {
        return Err(fail(format!(
            "the number of sizes provided ({}) must be greater or equal to the number of dimensions in the tensor ({})",
            size.len(),
            x.ndim()
        )));
    };
    let mut out: Shape = smallvec![0; size.len()];
    for (i, &n) in size.iter().enumerate() {
        let own = i.checked_sub(lead).map(|j| x.shape()[j]);
        out[i] = match (n, own) {
            (-1, Some(own)) => own,
            (n, _) if n < 0 => return Err(fail(format!("size {n} is not allowed in dimension {i} (sizes: {size:?})"))),
            (n, None | Some(1)) => n as usize,
            (n, Some(own)) if n as usize == own => own,
            (n, Some(own)) => {
                let why = format!("The expanded size of the tensor ({n}) must match the existing size ({own}) at non-singleton dimension {i}");
                return Err(fail(format!("{why}. Target sizes: {size:?}")));
            }
        };
    }
    must_view(ViewOp::Expand { shape: out }, x)
}

pub(crate) fn slice_dims(x: &Tensor, dims: Slices) -> Result<Tensor> {
    must_view(ViewOp::Slice { dims }, x)
}

fn narrow_body(x: &Tensor, dim: isize, start: i64, length: i64) -> Result<Tensor> {
    if x.ndim() == 0 {
        return Err(Error::runtime("narrow", "cannot be applied to a 0-dim tensor."));
    }
    let axis = shape::wrap_dim("narrow", dim, x.ndim())?;
    let n = x.shape()[axis] as i64;
    if start < -n || start > n {
        return Err(Error::index(
            "narrow",
            format!("start out of range (expected to be in range of [{}, {n}], but got {start})", -n),
        ));
    }
    let start = if start < 0 { start + n } else { start };
    if length < 0 || length > n - start {
        let why = format!("start ({start}) + length ({length}) exceeds dimension size ({n})");
        return Err(Error::shape("narrow", why, &[x.shape()]));
    }
    slice_dims(x, smallvec![SliceDim { axis, start: start as usize, step: 1, len: length as usize }])
}

fn select_body(x: &Tensor, dim: isize, index: i64) -> Result<Tensor> {
    if x.ndim() == 0 {
        return Err(Error::index("select", "cannot be applied to a 0-dim tensor."));
    }
    let axis = shape::wrap_dim("select", dim, x.ndim())?;
    let n = x.shape()[axis] as i64;
    if index < -n || index >= n {
        let why = format!("index {index} out of range for tensor of size {:?} at dimension {axis}", x.shape());
        return Err(Error::index("select", why));
    }
    let start = if index < 0 { index + n } else { index } as usize;
    let one = slice_dims(x, smallvec![SliceDim { axis, start, step: 1, len: 1 }])?;
    let mut layout = one.layout().clone();
    layout.shape.remove(axis);
    layout.strides.remove(axis);
    relaid(&one, layout)
}

/// The same elements under a layout that differs from the tensor's by dimensions of size 1, whose strides PyTorch keeps.
fn relaid(x: &Tensor, layout: Layout) -> Result<Tensor> {
    dispatch::view(ViewOp::Reshape { shape: layout.shape.clone() }, x, layout)
}

/// The gradient of a slice: zeros of the whole shape with `g` in its place.
fn slice_gradient(g: &Tensor, shape: &[usize], dims: &Slices) -> Result<Tensor> {
    let zeros = Tensor::full_of(shape, crate::Scalar::ZERO, g.dtype(), g.device())?;
    super::index::slice_scatter_dims(&zeros, g, dims.clone())
}

fn squeeze_body(x: &Tensor, dim: Option<&[isize]>) -> Result<Tensor> {
    let axes = match dim {
        Some(dims) => shape::wrap_dims("squeeze", dims, x.ndim())?,
        None => (0..x.ndim()).collect(),
    };
    let mut layout = x.layout().clone();
    for axis in (0..x.ndim()).rev().filter(|i| x.shape()[*i] == 1 && axes.contains(i)) {
        layout.shape.remove(axis);
        layout.strides.remove(axis);
    }
    relaid(x, layout)
}

fn unsqueeze_body(x: &Tensor, dim: isize) -> Result<Tensor> {
    let axis = shape::wrap_dim("unsqueeze", dim, x.ndim() + 1)?;
    let mut layout = x.layout().clone();
    let around = |i: usize| layout.shape[i].saturating_mul(layout.strides[i]).min(isize::MAX as usize);
    let step = if axis < x.ndim() { around(axis) } else { 1 };
    layout.shape.insert(axis, 1);
    layout.strides.insert(axis, step);
    relaid(x, layout)
}

fn flatten_body(x: &Tensor, start_dim: isize, end_dim: isize) -> Result<Tensor> {
    let (a, b) = (shape::wrap_dim("flatten", start_dim, x.ndim())?, shape::wrap_dim("flatten", end_dim, x.ndim())?);
    if a > b {
        return Err(Error::runtime(
            "flatten",
            format!("start_dim ({start_dim}) cannot come after end_dim ({end_dim})"),
        ));
    }
    if x.ndim() == 0 {
        return reshape_to(x, &[1]);
    }
    if a == b {
        return Ok(x.clone());
    }
    let mut shape = Shape::from_slice(&x.shape()[..a]);
    // A tensor without elements may have sizes elsewhere whose product is beyond a number.
    let none = x.shape()[a..=b].contains(&0).then_some(0);
    let product = || x.shape()[a..=b].iter().try_fold(1usize, |size, &n| size.checked_mul(n));
    let Some(size) = none.or_else(product) else {
        let why = format!("dimensions {a} to {b} of shape {:?} have too many elements to be one", x.shape());
        return Err(Error::runtime("flatten", why));
    };
    shape.push(size);
    shape.extend_from_slice(&x.shape()[b + 1..]);
    reshape_to(x, &shape)
}

fn unflatten_body(x: &Tensor, dim: isize, sizes: &[isize]) -> Result<Tensor> {
    let axis = shape::wrap_dim("unflatten", dim, x.ndim())?;
    if sizes.is_empty() || x.ndim() == 0 {
        return Err(Error::runtime("unflatten", "sizes must not be empty"));
    }
    let parts = shape::infer_size("unflatten", sizes, &x.shape()[axis..=axis])?;
    let mut shape = Shape::from_slice(&x.shape()[..axis]);
    shape.extend(parts);
    shape.extend_from_slice(&x.shape()[axis + 1..]);
    reshape_to(x, &shape)
}

fn contiguous_body(x: &Tensor) -> Result<Tensor> {
    if x.layout().is_contiguous() {
        Ok(x.clone())
    } else {
        x.copy()
    }
}
