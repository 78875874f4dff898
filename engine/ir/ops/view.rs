//! Views: the rows of the family, and the primitives and arguments that they make.

use super::macros::define_primitives;
use lucid_core::shape::{Axes, Layout, Shape, Slices};
use lucid_core::DType;

/// The layout of the tensor that an `AsStrided` view was taken of; its gradient needs to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// Row-major from the storage's start, as the layout sees it.
    Plain,
    /// Otherwise; over the tensor's own elements in row-major order the view would have this layout.
    Logical(Box<Layout>),
    /// Otherwise; the view is one of the storage, where the tensor has this layout.
    Storage(Box<Layout>),
}

/// The rows of the family, for `$cb`.
#[macro_export]
#[doc(hidden)]
macro_rules! view_ops {
    ($cb:ident) => { $crate::rows! { $cb "view" ViewOp :
        /// The tensor under another shape of as many elements; one size may be -1. A view where the strides allow it,
        /// else a copy.
        method reshape(shape: Sizes) -> Tensor {
            dtypes: ALL, result: Same,
            primitive: Reshape { shape: Shape }, gradient: |c, g| [reshape_to(g, c.shape(0))],
            run: reshape_body, node: "view",
            samples: ["N(3, 4), (4, 3)", "N(2, 3, 4), (-1, 4)", "N(6), (2, 1, 3)"],
            example: ["assert_close(tensor([1, 2, 3, 4])?.reshape(&[2, -1])?, [[1, 2], [3, 4]]);"],
        }
        /// The dimensions in another order.
        method permute(dims: Sizes) -> Tensor {
            dtypes: ALL, result: Same,
            primitive: Permute { axes: Axes }, gradient: |c, g| [permute_axes(g, &inverse(axes))],
            run: permute_body,
            samples: ["N(2, 3, 4), (2, 0, 1)", "N(3, 4), (-1, 0)"],
            example: ["assert_eq!(tensor([[[0.0; 4]; 3]; 2])?.permute(&[2, 0, 1])?.shape(), [4, 2, 3]);"],
        }
        /// Dimensions of size 1 repeated to the given sizes (-1 keeps one), and new leading dimensions.
        method expand(size: Sizes) -> Tensor {
            python: function, dtypes: ALL, result: Same,
            primitive: Expand { shape: Shape }, gradient: |c, g| [Ok(g.clone())],
            run: expand_body, torch: "Tensor.expand",
            samples: ["N(3, 1), (3, 4)", "N(3, 1), (2, -1, 4)", "N(), (2, 2)"],
            example: ["assert_close(tensor([[1], [2]])?.expand(&[-1, 3])?, [[1, 1, 1], [2, 2, 2]]);"],
        }
        /// `length` elements of dimension `dim`, from `start`.
        method narrow(dim: Dim, start: Start, length: Int) -> Tensor {
            dtypes: ALL, result: Same,
            primitive: Slice { dims: Slices }, gradient: |c, g| [slice_gradient(g, c.shape(0), dims)],
            run: narrow_body, node: "slice",
            samples: ["N(3, 4), 1, 1, 2", "N(3, 4), -2, -2, 1"],
            example: ["assert_close(tensor([1, 2, 3, 4])?.narrow(0, 1, 2)?, [2, 3]);"],
        }
        /// The storage seen under any sizes and strides, in elements. Elements outside of the storage are refused.
        method as_strided(size: Sizes, stride: Sizes, storage_offset: OptInt = None) -> Tensor {
            in_place: view, dtypes: ALL, result: Same,
            primitive: AsStrided { layout: Box<Layout>, source: Source },
            gradient: |c, g| [super::strided::strided_gradient(g, layout, source, c.shape(0))],
            run: super::strided::as_strided_body, node: |given| ("as_strided", given.in_place()),
            samples: ["N(3, 4), (2, 2), (4, 2), 1", "N(12), (5, 4), (2, 1)"],
            example: [
                "assert_close(tensor([1, 2, 3, 4])?.as_strided(&[3, 2], &[1, 1], None)?, [[1, 2], [2, 3], [3, 4]]);",
            ],
        }
        /// A complex tensor as real and imaginary parts, in a last dimension of size 2. A view.
        function view_as_real(input: Tensor) -> Tensor {
            dtypes: COMPLEX, result: Real,
            primitive: AsReal, gradient: |c, g| [view_as_complex(&g.contiguous()?)],
            run: view_as_real_body,
            samples: ["N(3, 4)", "N()", "N(0, 3)"],
            example: ["assert_close(view_as_real(&tensor([(1.0, 2.0), (3.0, 4.0)])?)?, [[1.0, 2.0], [3.0, 4.0]]);"],
        }
        /// A tensor whose last dimension, of size 2 and stride 1, holds real and imaginary parts, as complex64 or
        /// complex128. A view.
        function view_as_complex(input: Tensor) -> Tensor {
            amp: FullCpu, dtypes: WIDE, result: Own,
            primitive: AsComplex, gradient: |c, g| [view_as_real(g)],
            run: view_as_complex_body,
            samples: ["N(3, 4, 2)", "N(2)"],
            example: ["assert_close(view_as_complex(&tensor([[1.0, 2.0], [3.0, 4.0]])?)?, [(1.0, 2.0), (3.0, 4.0)]);"],
        }
        /// The same bytes as elements of another dtype, cut off from the tape. Where its elements are smaller or
        /// larger, the last dimension, whose stride must be 1, has more or fewer of them; sizes, offset and strides
        /// must then be divisible. Writes through either are seen by both.
        ///
        /// Errors: where that is not so; for `bool` on the CPU where a byte of the storage is neither 0 nor 1 (PyTorch
        /// shows such as true). What is later written to a storage that is seen as `bool`, too, becomes 1 where it is
        /// not 0.
        method view_dtype(dtype: Dtype) -> Tensor {
            python: method, flags: [no_gradient], dtypes: ALL, result: Own,
            primitive: Recast { from: DType, dtype: DType }, gradient: none,
            run: super::view_dtype::view_dtype_body, torch: "Tensor.view",
            samples: ["N(3, 4), DT.int32", "N(2, 8), DT.float32", "N(4), DT.uint8"],
            example: ["assert_close(tensor([1.0f32])?.view_dtype(DType::I32)?, [0x3f80_0000]);"],
        }
        /// Like [`reshape`], but an error where a copy would be needed.
        method view(shape: Sizes) -> Tensor {
            python: method, dtypes: ALL, result: Same,
            run: view_body, node: "view", torch: "Tensor.view",
            samples: ["N(3, 4), (2, 6)", "N(3, 4), (-1,)"],
            example: [
                "let x = tensor([1, 2, 3, 4])?;",
                "let square = x.view(&[2, 2])?;",
                "square.fill_(0.into())?;",
                "assert_close(x, [0, 0, 0, 0]);",
            ],
        }
        /// Two dimensions exchanged.
        method transpose(dim0: Dim, dim1: Dim) -> Tensor {
            in_place: view, dtypes: ALL, result: Same,
            run: transpose_body, node: |given| ("transpose", given.in_place()),
            samples: ["N(3, 4), 0, 1", "N(2, 3, 4), -1, 0"],
            example: ["assert_close(tensor([[1, 2], [3, 4]])?.transpose(0, 1)?, [[1, 3], [2, 4]]);"],
        }
        /// The transpose of a matrix; tensors of one or no dimension as they are.
        method t() -> Tensor {
            in_place: view, dtypes: ALL, result: Same,
            run: t_body, node: |given| ("t", given.in_place()),
            samples: ["N(3, 4)", "N(3)"],
            example: ["assert_close(tensor([[1, 2, 3]])?.t()?, [[1], [2], [3]]);"],
        }
        /// Dimensions moved to other places, the rest in order.
        method movedim(source: Dims, destination: Dims) -> Tensor {
            dtypes: ALL, result: Same,
            run: movedim_body, node: "permute",
            samples: ["N(2, 3, 4), 0, 2", "N(2, 3, 4), (0, 1), (2, 0)"],
            example: ["assert_eq!(tensor([[[0.0; 4]; 3]; 2])?.movedim(&[0], &[2])?.shape(), [3, 4, 2]);"],
        }
        /// Dimensions of size 1 removed: those named, else all.
        method squeeze(dim: SomeDims = None) -> Tensor {
            in_place: view, dtypes: ALL, result: Same,
            run: squeeze_body, node: |given| ("squeeze", given.mark("dim") + 3 * given.in_place()),
            samples: ["N(3, 1, 4, 1)", "N(3, 1, 4), 1", "N(3, 1, 4), 0", "N(1, 3, 1), (0, 2)"],
            example: [
                "assert_close(tensor([[[1], [2]]])?.squeeze(None)?, [1, 2]);",
                "assert_close(tensor([[[1], [2]]])?.squeeze(Some(&[0]))?, [[1], [2]]);",
            ],
        }
        /// A dimension of size 1 put in at `dim`.
        method unsqueeze(dim: Dim) -> Tensor {
            in_place: view, dtypes: ALL, result: Same,
            run: unsqueeze_body, node: |given| ("unsqueeze", given.in_place()),
            samples: ["N(3, 4), 0", "N(3, 4), -1", "N(), 0"],
            example: ["assert_close(tensor([1, 2])?.unsqueeze(-1)?, [[1], [2]]);"],
        }
        /// The dimensions from `start_dim` to `end_dim` as one.
        method flatten(start_dim: Dim = 0, end_dim: Dim = -1) -> Tensor {
            dtypes: ALL, result: Same,
            run: flatten_body, node: "view",
            samples: ["N(2, 3, 4)", "N(2, 3, 4), 1", "N(2, 3, 4), 0, 1", "N()"],
            example: ["assert_close(tensor([[1, 2], [3, 4]])?.flatten(0, -1)?, [1, 2, 3, 4]);"],
        }
        /// One dimension as several.
        method unflatten(dim: Dim, sizes: Sizes) -> Tensor {
            dtypes: ALL, result: Same,
            run: unflatten_body, node: "view",
            samples: ["N(2, 12), 1, (3, -1)"],
            example: ["assert_close(tensor([1, 2, 3, 4])?.unflatten(0, &[2, 2])?, [[1, 2], [3, 4]]);"],
        }
        /// Expanded to `size`, as broadcasting would.
        method broadcast_to(size: Sizes) -> Tensor {
            dtypes: ALL, result: Same,
            run: expand_body, node: "expand",
            samples: ["N(3, 1), (2, 3, 4)"],
            example: ["assert_close(tensor([1, 2])?.broadcast_to(&[2, 2])?, [[1, 2], [1, 2]]);"],
        }
        /// One index of dimension `dim`, which goes away.
        method select(dim: Dim, index: Int) -> Tensor {
            dtypes: ALL, result: Same,
            run: select_body,
            samples: ["N(3, 4), 0, 1", "N(3, 4), -1, -2"],
            example: ["assert_close(tensor([[1, 2], [3, 4]])?.select(1, -1)?, [2, 4]);"],
        }
        /// The diagonal between `dim1` and `dim2`, as the last dimension.
        method diagonal(offset: Int = 0, dim1: Dim = 0, dim2: Dim = 1) -> Tensor {
            dtypes: ALL, result: Same,
            run: super::strided::diagonal_body,
            samples: ["N(3, 4)", "N(3, 4), 1", "N(2, 3, 4), -1, 1, 2"],
            example: ["assert_close(tensor([[1, 2], [3, 4]])?.diagonal(0, 0, 1)?, [1, 4]);"],
        }
        /// Windows of `size` elements along `dimension`, `step` apart, as a new last dimension.
        method unfold(dimension: Dim, size: Int, step: Int) -> Tensor {
            python: method, dtypes: ALL, result: Same,
            run: super::strided::unfold_body, torch: "Tensor.unfold",
            samples: ["N(7), 0, 3, 2", "N(3, 8), 1, 4, 2"],
            example: ["assert_close(tensor([1, 2, 3, 4, 5])?.unfold(0, 3, 2)?, [[1, 2, 3], [3, 4, 5]]);"],
        }
        /// `chunks` pieces of dimension `dim` (fewer where it does not suffice).
        method chunk(chunks: Int, dim: Dim = 0) -> Tensors {
            dtypes: ALL, result: Same,
            run: super::split::chunk_body, node: "split",
            samples: ["N(7, 3), 3", "N(3, 4), 2, dim=1"],
            example: [
                "let pieces = tensor([1, 2, 3, 4, 5])?.chunk(2, 0)?;",
                "assert_close(&pieces[0], [1, 2, 3]);",
                "assert_close(&pieces[1], [4, 5]);",
            ],
        }
        /// Pieces of dimension `dim`, of one size or of the sizes listed.
        method split(split_size_or_sections: Sections, dim: Dim = 0) -> Tensors {
            dtypes: ALL, result: Same,
            run: super::split::split_body,
            node: |given| (if given.has("split_size_or_sections") == 1 { "split_with_sizes" } else { "split" }, 0),
            samples: ["N(7, 3), 3", "N(3, 7), (3, 4), dim=1", "N(3), (3,)", "N(0, 2), 0"],
            example: [
                "let pieces = tensor([1, 2, 3, 4, 5])?.split(&[1, 4], 0)?;",
                "assert_close(&pieces[0], [1]);",
                "assert_close(&pieces[1], [2, 3, 4, 5]);",
            ],
        }
        /// Pieces of dimension `dim`, of the sizes listed.
        method split_with_sizes(split_sizes: Sizes, dim: Dim = 0) -> Tensors {
            dtypes: ALL, result: Same,
            run: super::split::split_with_sizes_body,
            samples: ["N(7, 3), (3, 4)", "N(3, 7), (1, 0, 6), dim=-1"],
            example: [
                "let pieces = tensor([1, 2, 3])?.split_with_sizes(&[1, 2], 0)?;",
                "assert_close(&pieces[0], [1]);",
                "assert_close(&pieces[1], [2, 3]);",
            ],
        }
        /// [`chunk`], of which each piece may be written in place while gradients are recorded.
        method unsafe_chunk(chunks: Int, dim: Dim = 0) -> Tensors {
            dtypes: ALL, result: Same,
            run: super::split::unsafe_chunk_body, node: "unsafe_split",
            samples: ["N(7, 3), 3", "N(3, 4), 2, dim=1"],
            example: [
                "let pieces = tensor([1, 2, 3])?.unsafe_chunk(2, 0)?;",
                "pieces[1].fill_(9.into())?;",
                "assert_close(&pieces[0], [1, 2]);",
                "assert_close(&pieces[1], [9]);",
            ],
        }
        /// [`split`] in pieces of one size, of which each may be written in place while gradients are recorded.
        method unsafe_split(split_size: Sections, dim: Dim = 0) -> Tensors {
            dtypes: ALL, result: Same,
            run: super::split::unsafe_split_body,
            samples: ["N(7, 3), 3", "N(3, 7), 4, dim=1", "N(0, 2), 0"],
            example: ["assert_close(&tensor([1, 2, 3])?.unsafe_split(2, 0)?[1], [3]);"],
        }
        /// [`split_with_sizes`], of which each piece may be written in place while gradients are recorded.
        method unsafe_split_with_sizes(split_sizes: Sizes, dim: Dim = 0) -> Tensors {
            dtypes: ALL, result: Same,
            run: super::split::unsafe_sizes_body,
            samples: ["N(7, 3), (3, 4)", "N(3, 7), (1, 0, 6), dim=-1"],
            example: ["assert_close(&tensor([1, 2, 3])?.unsafe_split_with_sizes(&[1, 2], 0)?[1], [2, 3]);"],
        }
        /// Every index of dimension `dim`, as tensors without it.
        method unbind(dim: Dim = 0) -> Tensors {
            dtypes: ALL, result: Same,
            run: super::split::unbind_body,
            samples: ["N(3, 4)", "N(3, 4), 1"],
            example: ["let rows = tensor([[1, 2], [3, 4]])?.unbind(0)?;", "assert_close(&rows[1], [3, 4]);"],
        }
        /// Row-major in memory: the tensor itself where it is already, else a copy.
        method contiguous() -> Tensor {
            python: method, dtypes: ALL, result: Same,
            run: contiguous_body, node: "clone", torch: "Tensor.contiguous",
            samples: ["N(3, 4)"],
            example: [
                "let x = tensor([[1, 2], [3, 4]])?.t()?;",
                "assert!(!x.is_contiguous() && x.contiguous()?.is_contiguous());",
            ],
        }
    }};
}
view_ops!(define_primitives);

impl ViewOp {
    /// The layout of the view of a tensor that has this one; `None` where no strides can express it.
    pub fn layout(&self, of: &Layout) -> Option<Layout> {
        Some(match self {
            ViewOp::Reshape { shape } => return of.reshaped(shape),
            ViewOp::Permute { axes } => of.permuted_by(axes),
            ViewOp::Expand { shape } => of.broadcast_to(shape),
            ViewOp::Slice { dims } => of.sliced(dims),
            ViewOp::AsStrided { layout, .. } => (**layout).clone(),
            ViewOp::AsReal => of.as_real(),
            ViewOp::AsComplex => return of.as_complex(),
            ViewOp::Recast { from, dtype } => return of.recast(from.size(), dtype.size()),
        })
    }

    /// The dtype that the view of a tensor of this one has.
    pub fn dtype(&self, dtype: DType) -> DType {
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
