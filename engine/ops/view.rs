//! Views: the same elements under another shape. They copy nothing and share writes with what they were made from.
//!
//! Those by strides, such as `as_strided` and `diagonal`, have their bodies in `strided`. The strides are worked out in
//! `shape`, for both backends alike; `gpu/view.rs` turns a step into MLX's terms.

use super::macros::define_ops;
use crate::autograd::Naming;
use crate::dispatch;
use crate::shape::{self, Axes, Layout, Shape, SliceDim, Slices};
use crate::{DType, Error, Result, Tensor};
use smallvec::smallvec;

/// The rows of the family, for `$cb`.
#[macro_export]
#[doc(hidden)]
macro_rules! view_ops {
    ($cb:ident) => { $cb! { "view" ViewOp :
        /// The tensor under another shape of as many elements; one size may be -1. A view where the strides allow it,
        /// else a copy.
        method reshape(shape: Sizes) -> Tensor {
            [] Keep Yes DTypes::ALL, Same,
            prim Reshape { shape: Shape } Nothing {|c, g| [reshape_to(g, c.shape(0))]},
            run reshape_body, torch "", samples ["N(3, 4), (4, 3)", "N(2, 3, 4), (-1, 4)", "N(6), (2, 1, 3)"],
            example ["assert_close(tensor([1, 2, 3, 4])?.reshape(&[2, -1])?, [[1, 2], [3, 4]]);"]
        }
        /// The dimensions in another order.
        method permute(dims: Sizes) -> Tensor {
            [] Keep Yes DTypes::ALL, Same,
            prim Permute { axes: Axes } Nothing {|c, g| [permute_axes(g, &inverse(axes))]},
            run permute_body, torch "", samples ["N(2, 3, 4), (2, 0, 1)", "N(3, 4), (-1, 0)"],
            example ["assert_eq!(tensor([[[0.0; 4]; 3]; 2])?.permute(&[2, 0, 1])?.shape(), [4, 2, 3]);"]
        }
        /// Dimensions of size 1 repeated to the given sizes (-1 keeps one), and new leading dimensions.
        method expand(size: Sizes) -> Tensor {
            [only_function] Keep Yes DTypes::ALL, Same,
            prim Expand { shape: Shape } Nothing {|c, g| [Ok(g.clone())]},
            run expand_body, torch "Tensor.expand", samples ["N(3, 1), (3, 4)", "N(3, 1), (2, -1, 4)", "N(), (2, 2)"],
            example ["assert_close(tensor([[1], [2]])?.expand(&[-1, 3])?, [[1, 1, 1], [2, 2, 2]]);"]
        }
        /// `length` elements of dimension `dim`, from `start`.
        method narrow(dim: Dim, start: Start, length: Int) -> Tensor {
            [] Keep Yes DTypes::ALL, Same,
            prim Slice { dims: Slices } Nothing {|c, g| [slice_gradient(g, c.shape(0), dims)]},
            run narrow_body, torch "", samples ["N(3, 4), 1, 1, 2", "N(3, 4), -2, -2, 1"],
            example ["assert_close(tensor([1, 2, 3, 4])?.narrow(0, 1, 2)?, [2, 3]);"]
        }
        /// The storage seen under any sizes and strides, in elements. Elements outside of the storage are refused.
        method as_strided(size: Sizes, stride: Sizes, storage_offset: OptInt = None) -> Tensor {
            [restrides] Keep Yes DTypes::ALL, Same,
            prim AsStrided { layout: Box<Layout>, source: Source } Nothing {|c, g| [
                super::strided::strided_gradient(g, layout, source, c.shape(0))
            ]},
            run super::strided::as_strided_body, torch "", samples ["N(3, 4), (2, 2), (4, 2), 1", "N(12), (5, 4), (2, 1)"],
            example ["assert_close(tensor([1, 2, 3, 4])?.as_strided(&[3, 2], &[1, 1], None)?, [[1, 2], [2, 3], [3, 4]]);"]
        }
        /// A complex tensor as real and imaginary parts, in a last dimension of size 2. A view.
        function view_as_real(input: Tensor) -> Tensor {
            [] Keep Yes DTypes::COMPLEX, Real,
            prim AsReal Nothing {|c, g| [view_as_complex(&g.contiguous()?)]},
            run view_as_real_body, torch "", samples ["N(3, 4)", "N()", "N(0, 3)"],
            example ["assert_close(view_as_real(&tensor([(1.0, 2.0), (3.0, 4.0)])?)?, [[1.0, 2.0], [3.0, 4.0]]);"]
        }
        /// A tensor whose last dimension, of size 2 and stride 1, holds real and imaginary parts, as complex64 or
        /// complex128. A view.
        function view_as_complex(input: Tensor) -> Tensor {
            [] FullCpu Yes DTypes::WIDE, Own,
            prim AsComplex Nothing {|c, g| [view_as_real(g)]},
            run view_as_complex_body, torch "", samples ["N(3, 4, 2)", "N(2)"],
            example ["assert_close(view_as_complex(&tensor([[1.0, 2.0], [3.0, 4.0]])?)?, [(1.0, 2.0), (3.0, 4.0)]);"]
        }
        /// The same bytes as elements of another dtype, cut off from the tape. Where its elements are smaller or larger, the
        /// last dimension, whose stride must be 1, has more or fewer of them; sizes, offset and strides must then be
        /// divisible. Writes through either are seen by both.
        ///
        /// Errors: where that is not so; for `bool` on the CPU where a byte of the storage is neither 0 nor 1 (PyTorch shows
        /// such as true). What is later written to a storage that is seen as `bool`, too, becomes 1 where it is not 0.
        method view_dtype(dtype: Dtype) -> Tensor {
            [nograd only_method] Keep Yes DTypes::ALL, Own,
            prim Recast { from: DType, dtype: DType } Nothing {none},
            run super::recast::view_dtype_body, torch "Tensor.view", samples ["N(3, 4), DT.int32", "N(2, 8), DT.float32", "N(4), DT.uint8"],
            example ["assert_close(tensor([1.0f32])?.view_dtype(DType::I32)?, [0x3f80_0000]);"]
        }
        /// Like [`reshape`], but an error where a copy would be needed.
        method view(shape: Sizes) -> Tensor {
            [only_method] Keep Yes DTypes::ALL, Same,
            run view_body, torch "Tensor.view", samples ["N(3, 4), (2, 6)", "N(3, 4), (-1,)"],
            example [
                "let x = tensor([1, 2, 3, 4])?;",
                "let square = x.view(&[2, 2])?;",
                "square.fill_(0.into())?;",
                "assert_close(x, [0, 0, 0, 0]);",
            ]
        }
        /// Two dimensions exchanged.
        method transpose(dim0: Dim, dim1: Dim) -> Tensor {
            [restrides] Keep Yes DTypes::ALL, Same,
            run transpose_body, torch "", samples ["N(3, 4), 0, 1", "N(2, 3, 4), -1, 0"],
            example ["assert_close(tensor([[1, 2], [3, 4]])?.transpose(0, 1)?, [[1, 3], [2, 4]]);"]
        }
        /// The transpose of a matrix; tensors of one or no dimension as they are.
        method t() -> Tensor {
            [restrides] Keep Yes DTypes::ALL, Same,
            run t_body, torch "", samples ["N(3, 4)", "N(3)"],
            example ["assert_close(tensor([[1, 2, 3]])?.t()?, [[1], [2], [3]]);"]
        }
        /// Dimensions moved to other places, the rest in order.
        method movedim(source: Dims, destination: Dims) -> Tensor {
            [] Keep Yes DTypes::ALL, Same,
            run movedim_body, torch "", samples ["N(2, 3, 4), 0, 2", "N(2, 3, 4), (0, 1), (2, 0)"],
            example ["assert_eq!(tensor([[[0.0; 4]; 3]; 2])?.movedim(&[0], &[2])?.shape(), [3, 4, 2]);"]
        }
        /// Dimensions of size 1 removed: those named, else all.
        method squeeze(dim: SomeDims = None) -> Tensor {
            [restrides] Keep Yes DTypes::ALL, Same,
            run squeeze_body, torch "", samples ["N(3, 1, 4, 1)", "N(3, 1, 4), 1", "N(3, 1, 4), 0", "N(1, 3, 1), (0, 2)"],
            example [
                "assert_close(tensor([[[1], [2]]])?.squeeze(None)?, [1, 2]);",
                "assert_close(tensor([[[1], [2]]])?.squeeze(Some(&[0]))?, [[1], [2]]);",
            ]
        }
        /// A dimension of size 1 put in at `dim`.
        method unsqueeze(dim: Dim) -> Tensor {
            [restrides] Keep Yes DTypes::ALL, Same,
            run unsqueeze_body, torch "", samples ["N(3, 4), 0", "N(3, 4), -1", "N(), 0"],
            example ["assert_close(tensor([1, 2])?.unsqueeze(-1)?, [[1], [2]]);"]
        }
        /// The dimensions from `start_dim` to `end_dim` as one.
        method flatten(start_dim: Dim = 0, end_dim: Dim = -1) -> Tensor {
            [] Keep Yes DTypes::ALL, Same,
            run flatten_body, torch "", samples ["N(2, 3, 4)", "N(2, 3, 4), 1", "N(2, 3, 4), 0, 1", "N()"],
            example ["assert_close(tensor([[1, 2], [3, 4]])?.flatten(0, -1)?, [1, 2, 3, 4]);"]
        }
        /// One dimension as several.
        method unflatten(dim: Dim, sizes: Sizes) -> Tensor {
            [] Keep Yes DTypes::ALL, Same,
            run unflatten_body, torch "", samples ["N(2, 12), 1, (3, -1)"],
            example ["assert_close(tensor([1, 2, 3, 4])?.unflatten(0, &[2, 2])?, [[1, 2], [3, 4]]);"]
        }
        /// Expanded to `size`, as broadcasting would.
        method broadcast_to(size: Sizes) -> Tensor {
            [] Keep Yes DTypes::ALL, Same,
            run expand_body, torch "", samples ["N(3, 1), (2, 3, 4)"],
            example ["assert_close(tensor([1, 2])?.broadcast_to(&[2, 2])?, [[1, 2], [1, 2]]);"]
        }
        /// One index of dimension `dim`, which goes away.
        method select(dim: Dim, index: Int) -> Tensor {
            [] Keep Yes DTypes::ALL, Same,
            run select_body, torch "", samples ["N(3, 4), 0, 1", "N(3, 4), -1, -2"],
            example ["assert_close(tensor([[1, 2], [3, 4]])?.select(1, -1)?, [2, 4]);"]
        }
        /// The diagonal between `dim1` and `dim2`, as the last dimension.
        method diagonal(offset: Int = 0, dim1: Dim = 0, dim2: Dim = 1) -> Tensor {
            [] Keep Yes DTypes::ALL, Same,
            run super::strided::diagonal_body, torch "", samples ["N(3, 4)", "N(3, 4), 1", "N(2, 3, 4), -1, 1, 2"],
            example ["assert_close(tensor([[1, 2], [3, 4]])?.diagonal(0, 0, 1)?, [1, 4]);"]
        }
        /// Windows of `size` elements along `dimension`, `step` apart, as a new last dimension.
        method unfold(dimension: Dim, size: Int, step: Int) -> Tensor {
            [only_method] Keep Yes DTypes::ALL, Same,
            run super::strided::unfold_body, torch "Tensor.unfold", samples ["N(7), 0, 3, 2", "N(3, 8), 1, 4, 2"],
            example ["assert_close(tensor([1, 2, 3, 4, 5])?.unfold(0, 3, 2)?, [[1, 2, 3], [3, 4, 5]]);"]
        }
        /// `chunks` pieces of dimension `dim` (fewer where it does not suffice).
        method chunk(chunks: Int, dim: Dim = 0) -> Tensors {
            [] Keep Yes DTypes::ALL, Same,
            run super::pieces::chunk_body, torch "", samples ["N(7, 3), 3", "N(3, 4), 2, dim=1"],
            example [
                "let pieces = tensor([1, 2, 3, 4, 5])?.chunk(2, 0)?;",
                "assert_close(&pieces[0], [1, 2, 3]);",
                "assert_close(&pieces[1], [4, 5]);",
            ]
        }
        /// Pieces of dimension `dim`, of one size or of the sizes listed.
        method split(split_size_or_sections: Sections, dim: Dim = 0) -> Tensors {
            [] Keep Yes DTypes::ALL, Same,
            run super::pieces::split_body, torch "", samples ["N(7, 3), 3", "N(3, 7), (3, 4), dim=1", "N(3), (3,)", "N(0, 2), 0"],
            example [
                "let pieces = tensor([1, 2, 3, 4, 5])?.split(&[1, 4], 0)?;",
                "assert_close(&pieces[0], [1]);",
                "assert_close(&pieces[1], [2, 3, 4, 5]);",
            ]
        }
        /// Pieces of dimension `dim`, of the sizes listed.
        method split_with_sizes(split_sizes: Sizes, dim: Dim = 0) -> Tensors {
            [] Keep Yes DTypes::ALL, Same,
            run super::pieces::split_with_sizes_body, torch "", samples ["N(7, 3), (3, 4)", "N(3, 7), (1, 0, 6), dim=-1"],
            example [
                "let pieces = tensor([1, 2, 3])?.split_with_sizes(&[1, 2], 0)?;",
                "assert_close(&pieces[0], [1]);",
                "assert_close(&pieces[1], [2, 3]);",
            ]
        }
        /// [`chunk`], of which each piece may be written in place while gradients are recorded.
        method unsafe_chunk(chunks: Int, dim: Dim = 0) -> Tensors {
            [] Keep Yes DTypes::ALL, Same,
            run super::pieces::unsafe_chunk_body, torch "", samples ["N(7, 3), 3", "N(3, 4), 2, dim=1"],
            example [
                "let pieces = tensor([1, 2, 3])?.unsafe_chunk(2, 0)?;",
                "pieces[1].fill_(9.into())?;",
                "assert_close(&pieces[0], [1, 2]);",
                "assert_close(&pieces[1], [9]);",
            ]
        }
        /// [`split`] in pieces of one size, of which each may be written in place while gradients are recorded.
        method unsafe_split(split_size: Sections, dim: Dim = 0) -> Tensors {
            [] Keep Yes DTypes::ALL, Same,
            run super::pieces::unsafe_split_body, torch "", samples ["N(7, 3), 3", "N(3, 7), 4, dim=1", "N(0, 2), 0"],
            example ["assert_close(&tensor([1, 2, 3])?.unsafe_split(2, 0)?[1], [3]);"]
        }
        /// [`split_with_sizes`], of which each piece may be written in place while gradients are recorded.
        method unsafe_split_with_sizes(split_sizes: Sizes, dim: Dim = 0) -> Tensors {
            [] Keep Yes DTypes::ALL, Same,
            run super::pieces::unsafe_sizes_body, torch "", samples ["N(7, 3), (3, 4)", "N(3, 7), (1, 0, 6), dim=-1"],
            example ["assert_close(&tensor([1, 2, 3])?.unsafe_split_with_sizes(&[1, 2], 0)?[1], [2, 3]);"]
        }
        /// Every index of dimension `dim`, as tensors without it.
        method unbind(dim: Dim = 0) -> Tensors {
            [] Keep Yes DTypes::ALL, Same,
            run super::pieces::unbind_body, torch "", samples ["N(3, 4)", "N(3, 4), 1"],
            example ["let rows = tensor([[1, 2], [3, 4]])?.unbind(0)?;", "assert_close(&rows[1], [3, 4]);"]
        }
        /// Row-major in memory: the tensor itself where it is already, else a copy.
        method contiguous() -> Tensor {
            [only_method] Keep Yes DTypes::ALL, Same,
            run contiguous_body, torch "Tensor.contiguous", samples ["N(3, 4)"],
            example [
                "let x = tensor([[1, 2], [3, 4]])?.t()?;",
                "assert!(!x.is_contiguous() && x.contiguous()?.is_contiguous());",
            ]
        }
    }};
}
view_ops!(define_ops);

/// How the tensor lies that an `AsStrided` view was taken of; its gradient needs to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// Row-major from the storage's start, as the layout sees it.
    Plain,
    /// Otherwise; over the tensor's own elements in row-major order the view would have this layout.
    Logical(Box<Layout>),
    /// Otherwise; the view is one of the storage, where the tensor has this layout.
    Storage(Box<Layout>),
}

impl ViewOp {
    /// The dtype that the view of a tensor of this one has.
    pub(crate) fn dtype(&self, dtype: DType) -> DType {
        match self {
            ViewOp::AsReal => dtype.to_real(),
            ViewOp::AsComplex => dtype.to_complex(),
            ViewOp::Recast { dtype, .. } => *dtype,
            ViewOp::Reshape { .. }
            | ViewOp::Permute { .. }
            | ViewOp::Expand { .. }
            | ViewOp::Slice { .. }
            | ViewOp::AsStrided { .. } => dtype,
        }
    }
}

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
    let _lies = called.then(|| crate::autograd::Laying::set(crate::autograd::Lay::RowMajor));
    match view_as(ViewOp::AsComplex, x)? {
        Some(view) => Ok(view),
        None if x.strides()[x.ndim() - 1] != 1 => fail("Tensor must have a last dimension with stride 1"),
        None if !x.storage_offset().is_multiple_of(2) => fail("Tensor must have a storage_offset divisible by 2"),
        None => fail("Tensor must have a stride divisible by 2 for all but last dimension"),
    }
}

/// A view of `x`; `None` where strides cannot express it.
fn view_as(op: ViewOp, x: &Tensor) -> Result<Option<Tensor>> {
    x.layout().view(&op).map(|layout| viewed(op, x, layout)).transpose()
}

/// The view of `x` that has this layout.
fn viewed(op: ViewOp, x: &Tensor, layout: Layout) -> Result<Tensor> {
    shape::countable(op.schema().name, &layout.shape)?;
    dispatch::view(op, x, layout)
}

pub(super) fn must_view(op: ViewOp, x: &Tensor) -> Result<Tensor> {
    match x.layout().view(&op) {
        Some(layout) => viewed(op, x, layout),
        None => Err(Error::runtime(op.schema().name, "no strides can express this view")),
    }
}

pub(crate) fn reshape_to(x: &Tensor, shape: &[usize]) -> Result<Tensor> {
    let op = ViewOp::Reshape { shape: Shape::from_slice(shape) };
    match x.layout().view(&op) {
        Some(layout) => {
            if !x.is_contiguous() {
                for name in ["reshape", "flatten"] {
                    Naming::rename(name, "reshape_alias");
                }
            }
            viewed(op, x, layout)
        }
        None => {
            let copy = {
                let _name = Naming::apart(&["reshape", "flatten", "ravel"], Some("clone"));
                x.copy()?
            };
            for name in ["reshape", "flatten"] {
                Naming::rename(name, "unsafe_view");
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
            "view size {shape:?} is not compatible with input tensor's size and stride {:?} (at least one dimension \
             spans across two contiguous subspaces). Use .reshape(...) instead.",
            x.layout().strides
        );
        Error::shape("view", why, &[x.shape()])
    })
}

pub(crate) fn permute_axes(x: &Tensor, axes: &[usize]) -> Result<Tensor> {
    must_view(ViewOp::Permute { axes: Axes::from_slice(axes) }, x)
}

/// The permutation that undoes one.
pub(crate) fn inverse(axes: &[usize]) -> Axes {
    let mut out: Axes = smallvec![0; axes.len()];
    for (i, &a) in axes.iter().enumerate() {
        out[a] = i;
    }
    out
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
