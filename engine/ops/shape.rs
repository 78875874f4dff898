//! Joining, cutting, repeating and mirroring, made of views, `cat` and indexing; the body of `pad` is in `pad`.
//!
//! No primitives: a row's body is in Tensor ops, so that it runs on both backends and needs no gradient rule of its own.

use super::macros::define_composites;
use super::Sections;
use crate::shape::{self, Layout, Shape};
use crate::tensor::signed;
use crate::warnings::warn_once;
use crate::{Error, Result, Scalar, Tensor};

/// The rows of the family, for `$cb`.
#[macro_export]
#[doc(hidden)]
macro_rules! shape_ops {
    ($cb:ident) => { $crate::rows! { $cb "shape" :
        /// The tensor repeated `dims` times along the last dimensions; missing numbers count as 1. A copy.
        method tile(dims: Sizes) -> Tensor {
            out: none, dtypes: ALL, result: Same,
            run: tile_body, node: "repeat",
            samples: ["N(3, 4), (2,)", "N(3), (2, 2)", "N(2, 1, 3), (2, 1, 2)", "N(2, 3), ()", "N(0, 3), (2, 1)"],
            example: ["assert_close(tensor([1, 2])?.tile(&[2, 2])?, [[1, 2, 1, 2], [1, 2, 1, 2]]);"],
        }
        /// The tensors side by side: joined along the second dimension, vectors along their only one.
        function hstack(tensors: Tensors) -> Tensor {
            out: cast, flags: [steps], amp: Promote, dtypes: ALL, result: Same,
            run: hstack_body, node: "cat",
            samples: ["[N(2), N(3)]", "[N(2, 3), N(2, 1)]", "[N(), N()]"],
            example: ["assert_close(hstack(&[tensor([1, 2])?, tensor([3])?])?, [1, 2, 3]);"],
        }
        /// The tensors on top of each other: joined along the first dimension, vectors as rows.
        function vstack(tensors: Tensors) -> Tensor {
            out: cast, flags: [steps], amp: Promote, dtypes: ALL, result: Same,
            run: vstack_body, node: "cat",
            samples: ["[N(3), N(3)]", "[N(2, 3), N(1, 3)]", "[N(), N()]"],
            example: ["assert_close(vstack(&[tensor([1, 2])?, tensor([3, 4])?])?, [[1, 2], [3, 4]]);"],
        }
        /// The tensors behind each other: joined along the third dimension, which vectors and matrices get.
        function dstack(tensors: Tensors) -> Tensor {
            out: cast, flags: [steps], amp: Promote, dtypes: ALL, result: Same,
            run: dstack_body, node: "cat",
            samples: ["[N(3), N(3)]", "[N(2, 3), N(2, 3)]", "[N(2, 3, 1), N(2, 3, 2)]"],
            example: ["assert_close(dstack(&[tensor([1, 2])?, tensor([3, 4])?])?, [[[1, 3], [2, 4]]]);"],
        }
        /// The tensors as columns: vectors are one each, matrices are joined along the second dimension.
        function column_stack(tensors: Tensors) -> Tensor {
            out: cast, flags: [steps], amp: Promote, dtypes: ALL, result: Same,
            run: column_stack_body, node: "cat",
            samples: ["[N(3), N(3)]", "[N(3, 2), N(3)]", "[N(), N()]"],
            example: ["assert_close(column_stack(&[tensor([1, 2])?, tensor([3, 4])?])?, [[1, 3], [2, 4]]);"],
        }
        /// Each tensor with at least one dimension. Views.
        function atleast_1d(tensors: Tensors) -> Each {
            call: variadic, out: none, flags: [steps], dtypes: ALL, result: Same,
            run: each[at_least_1],
            samples: ["N()", "N(3)", "[N(), N(2, 3)]"],
            example: ["assert_close(&atleast_1d(&[tensor(5)?])?[0], [5]);"],
        }
        /// Each tensor with at least two dimensions: vectors become rows. Views.
        function atleast_2d(tensors: Tensors) -> Each {
            call: variadic, out: none, flags: [steps], dtypes: ALL, result: Same,
            run: each[at_least_2],
            samples: ["N()", "N(3)", "[N(), N(2, 3)]"],
            example: ["assert_close(&atleast_2d(&[tensor([5, 6])?])?[0], [[5, 6]]);"],
        }
        /// Each tensor with at least three dimensions: (n) becomes (1, n, 1), (m, n) becomes (m, n, 1). Views.
        function atleast_3d(tensors: Tensors) -> Each {
            call: variadic, out: none, flags: [steps], dtypes: ALL, result: Same,
            run: each[at_least_3],
            samples: ["N()", "N(3)", "[N(2, 3), N(2, 3, 1)]"],
            example: ["assert_close(&atleast_3d(&[tensor([5, 6])?])?[0], [[[5], [6]]]);"],
        }
        /// The tensors expanded to their common shape. Views.
        function broadcast_tensors(tensors: Tensors) -> Tensors {
            call: variadic, out: none, dtypes: ALL, result: Same,
            run: broadcast_tensors_body, node: "expand",
            samples: ["N(3, 1), N(4)", "N(2)"],
            example: [
                "let both = broadcast_tensors(&[tensor([[1], [2]])?, tensor([3, 4])?])?;",
                "assert_close(&both[0], [[1, 1], [2, 2]]);",
                "assert_close(&both[1], [[3, 4], [3, 4]]);",
            ],
        }
        /// SplitInfo of dimension `dim`, as views: so many, the first ones longer by one where it does not divide
        /// evenly, or cut at the indices listed.
        method tensor_split(indices_or_sections: Sections, dim: Dim = 0) -> Tensors {
            out: none, dtypes: ALL, result: Same,
            run: tensor_split_body, node: "slice",
            samples: ["N(7, 2), 3", "N(7), (1, 4)", "N(3, 5), (2,), 1", "N(4), (3, 1, -1, 9)", "N(2), 3"],
            example: [
                "let pieces = tensor([1, 2, 3, 4, 5])?.tensor_split(2, 0)?;",
                "assert_close(&pieces[0], [1, 2, 3]);",
                "assert_close(&pieces[1], [4, 5]);",
            ],
        }
        /// [`tensor_split`] along the second dimension, along the only one of a vector; must divide evenly.
        method hsplit(indices_or_sections: Sections) -> Tensors {
            out: none, dtypes: ALL, result: Same,
            run: split_along["hsplit", 1, 1], node: "slice",
            samples: ["N(2, 6), 3", "N(6), (2, 3)", "N(2, 6), (1,)"],
            example: ["let pieces = tensor([[1, 2], [3, 4]])?.hsplit(2)?;", "assert_close(&pieces[0], [[1], [3]]);"],
        }
        /// [`tensor_split`] along the first dimension; must divide evenly.
        method vsplit(indices_or_sections: Sections) -> Tensors {
            out: none, dtypes: ALL, result: Same,
            run: split_along["vsplit", 0, 2], node: "slice",
            samples: ["N(6, 2), 3", "N(6, 2), (1, 4)"],
            example: ["let pieces = tensor([[1, 2], [3, 4]])?.vsplit(2)?;", "assert_close(&pieces[0], [[1, 2]]);"],
        }
        /// [`tensor_split`] along the third dimension; must divide evenly.
        method dsplit(indices_or_sections: Sections) -> Tensors {
            out: none, dtypes: ALL, result: Same,
            run: split_along["dsplit", 2, 3], node: "slice",
            samples: ["N(1, 2, 4), 2", "N(1, 2, 4), (1, 3)"],
            example: [
                "let pieces = tensor([[[1, 2], [3, 4]]])?.dsplit(2)?;",
                "assert_close(&pieces[0], [[[1], [3]]]);",
            ],
        }
        /// The tensor turned by `k` quarters from the first of `dims` towards the second. A copy.
        method rot90(k: Int = 1, dims: Sizes = &[0, 1]) -> Tensor {
            out: none, dtypes: ALL, result: Same,
            run: rot90_body,
            samples: ["N(2, 3)", "N(2, 3), 2", "N(2, 3, 4), -1, (1, 2)", "N(2, 3), 4", "N(2, 3), 7, (1, 0)"],
            example: ["assert_close(tensor([[1, 2], [3, 4]])?.rot90(1, &[0, 1])?, [[2, 4], [1, 3]]);"],
        }
        /// The second dimension reversed. A copy.
        method fliplr() -> Tensor {
            out: none, dtypes: ALL, result: Same,
            run: mirror["fliplr", 1], node: "flip",
            samples: ["N(2, 3)", "N(2, 3, 2)"],
            example: ["assert_close(tensor([[1, 2], [3, 4]])?.fliplr()?, [[2, 1], [4, 3]]);"],
        }
        /// The first dimension reversed. A copy.
        method flipud() -> Tensor {
            out: none, dtypes: ALL, result: Same,
            run: mirror["flipud", 0], node: "flip",
            samples: ["N(3)", "N(2, 3)"],
            example: ["assert_close(tensor([[1, 2], [3, 4]])?.flipud()?, [[3, 4], [1, 2]]);"],
        }
        /// Elements put around the tensor: `pad` lists (before, after) from the last dimension on, negative numbers
        /// crop. `mode` is `"constant"` (`value`, by default 0), `"reflect"` (mirrored without the edge), `"replicate"`
        /// (the edge) or `"circular"`; the last three pad one to three dimensions, beside one or two others.
        method pad(pad: Sizes, mode: Text = "constant", value: OptNumber = None) -> Tensor {
            out: none, dtypes: ALL, result: Same,
            run: super::pad::pad_body, torch: "_C._nn.pad",
            samples: [
                "N(3, 4), (1, 2)",
                "N(3, 4), (1, 0, 2, 1), 'constant', 1.5",
                "N(2, 3, 4), (2, 3), 'reflect'",
                "N(2, 4, 4), (1, 2, 3, 0), mode='reflect'",
                "N(2, 4), (3, 5), mode='replicate'",
                "N(2, 3, 4), (2, 1, 1, 3), 'circular'",
                "N(2, 3, 4), (-1, 2), 'replicate'",
            ],
            example: [
                "assert_close(tensor([1, 2, 3])?.pad(&[1, 2], PadMode::Constant, None)?, [0, 1, 2, 3, 0, 0]);",
                "assert_close(tensor([[1, 2, 3]])?.pad(&[2, 1], PadMode::Reflect, None)?, [[3, 2, 1, 2, 3, 2]]);",
            ],
        }
        /// Grids of coordinates: of vectors, tensors of all their sizes together, each vector along its own dimension.
        /// `indexing="xy"` exchanges the first two dimensions; `"ij"` is the default. Views.
        function meshgrid(tensors: Tensors; indexing: OptText = None) -> Tensors {
            call: variadic, out: none, flags: [steps], dtypes: ALL, result: Same,
            run: meshgrid_body, node: "expand",
            samples: ["N(2), N(3)", "N(2), N(3), N(), indexing='xy'", "N(2), indexing='ij'"],
            example: [
                "let grids = meshgrid(&[tensor([1, 2])?, tensor([3, 4])?], None)?;",
                "assert_close(&grids[0], [[1, 1], [2, 2]]);",
                "assert_close(&grids[1], [[3, 4], [3, 4]]);",
            ],
        }
        /// A matrix with the given ones (vectors as rows, numbers as 1 by 1) along its diagonal, zeros elsewhere.
        function block_diag(tensors: Tensors) -> Tensor {
            call: variadic, out: none, amp: Promote, dtypes: ALL, result: Same,
            run: block_diag_body,
            samples: ["N(2, 3), N(1, 2)", "N(), N(3), N(2, 2)", "N(2, 2)"],
            example: ["assert_close(block_diag(&[tensor([[1, 2]])?, tensor(3)?])?, [[1, 2, 0], [0, 0, 3]]);"],
        }
        /// Of a vector, the matrix with it on diagonal `diagonal`; of a matrix, a copy of that diagonal.
        method diag(diagonal: Int = 0) -> Tensor {
            dtypes: ALL, result: Same,
            run: diag_body,
            samples: ["N(3)", "N(3), 1", "N(3, 4)", "N(3, 4), -1"],
            example: [
                "assert_close(tensor([1, 2])?.diag(0)?, [[1, 0], [0, 2]]);",
                "assert_close(tensor([[1, 2], [3, 4]])?.diag(1)?, [2]);",
            ],
        }
        /// The last dimension as diagonal `offset` of new matrices over `dim1` and `dim2`, zeros elsewhere.
        method diag_embed(offset: Int = 0, dim1: Dim = -2, dim2: Dim = -1) -> Tensor {
            out: none, dtypes: ALL, result: Same,
            run: diag_embed_body,
            samples: ["N(3)", "N(2, 3), 1", "N(2, 3), -1, 0, 2", "N(2, 3), 0, 2, 1"],
            example: [
                "assert_close(tensor([[1, 2], [3, 4]])?.diag_embed(0, -2, -1)?, [[[1, 0], [0, 2]], [[3, 0], [0, 4]]]);",
            ],
        }
        /// The elements, flattened, on diagonal `offset` of a matrix.
        method diagflat(offset: Int = 0) -> Tensor {
            out: none, flags: [steps], dtypes: ALL, result: Same,
            run: diagflat_body, node: "diag_embed",
            samples: ["N(2, 2)", "N(3), -2", "N()"],
            example: ["assert_close(tensor([1, 2])?.diagflat(1)?, [[0, 1, 0], [0, 0, 2], [0, 0, 0]]);"],
        }
        /// The coordinates, one int64 tensor for each dimension of a tensor of that `shape`, of elements whose places
        /// in the flattened tensor are `indices`. Negative ones count from the end, and what is beyond begins again at
        /// the front.
        function unravel_index(indices: Tensor, shape: Dims) -> Tensors {
            out: none, flags: [no_gradient], dtypes: INTEGER, result: Index,
            run: unravel_index_body,
            samples: [
                "I(0, 12, 5), (3, 4)",
                "I(-30, 30, 2, 3), (2, 5, 1)",
                "I(0, 3), (3,)",
                "I(0, 9, 4), ()",
                "I(0, 9, 0), (2, 0)",
            ],
            example: [
                "let places = unravel_index(&tensor([0, 5])?, &[2, 3])?;",
                "assert_close(&places[0], [0, 1]);",
                "assert_close(&places[1], [0, 2]);",
            ],
        }
        /// The conjugate transpose of matrices: the last two dimensions exchanged.
        method adjoint() -> Tensor {
            out: none, dtypes: ALL, result: Same,
            run: adjoint_body, node: "transpose",
            samples: ["N(2, 3)", "N(4, 2, 3)"],
            example: ["assert_close(tensor([[(1.0, 2.0), (3.0, 4.0)]])?.adjoint()?, [[(1.0, -2.0)], [(3.0, -4.0)]]);"],
        }
        /// Every dimension of size 1 removed; a view.
        method squeeze_all() -> Tensor {
            flags: [internal], dtypes: ALL, result: Same,
            run: squeeze_all_body, torch: "-",
            samples: [],
            example: ["assert_close(tensor([[[1], [2]]])?.squeeze_all()?, [1, 2]);"],
        }
        /// Summed over what broadcasting would repeat to get this tensor from one of `size`.
        method sum_to_size(size: Sizes) -> Tensor {
            python: method, flags: [steps], dtypes: NUMERIC, result: Same,
            run: sum_to_size_body, torch: "Tensor.sum_to_size",
            samples: ["N(2, 3, 4), (3, 1)", "N(3, 4), (3, 4)", "N(3, 4), (1,)"],
            example: ["assert_close(tensor([[1, 2], [3, 4]])?.sum_to_size(&[1, 2])?, [[4, 6]]);"],
        }
        /// A copy of [`narrow`](crate::ops::view::narrow).
        method narrow_copy(dim: Dim, start: Int, length: Int) -> Tensor {
            dtypes: ALL, result: Same,
            run: narrow_copy_body,
            samples: ["N(3, 4), 1, 1, 2", "N(3, 4), -2, -2, 1"],
            example: ["assert_close(tensor([1, 2, 3, 4])?.narrow_copy(0, 1, 2)?, [2, 3]);"],
        }
    }};
}
shape_ops!(define_composites);

fn tile_body(x: &Tensor, dims: &[isize]) -> Result<Tensor> {
    let lead = x.ndim().saturating_sub(dims.len());
    let all: Vec<isize> = std::iter::repeat_n(1, lead).chain(dims.iter().copied()).collect();
    x.repeat(&all)
}

// ---- joining ---------------------------------------------------------------------------------------------------------

fn some(op: &'static str, tensors: &[Tensor]) -> Result<()> {
    match tensors {
        [] => Err(Error::runtime(op, "expects a non-empty TensorList")),
        _ => Ok(()),
    }
}

fn hstack_body(tensors: &[Tensor]) -> Result<Tensor> {
    some("hstack", tensors)?;
    let tensors = each(at_least_1, tensors)?;
    super::index::cat(&tensors, if tensors[0].ndim() == 1 { 0 } else { 1 })
}

fn vstack_body(tensors: &[Tensor]) -> Result<Tensor> {
    some("vstack", tensors)?;
    super::index::cat(&each(at_least_2, tensors)?, 0)
}

fn dstack_body(tensors: &[Tensor]) -> Result<Tensor> {
    some("dstack", tensors)?;
    super::index::cat(&each(at_least_3, tensors)?, 2)
}

fn column_stack_body(tensors: &[Tensor]) -> Result<Tensor> {
    some("column_stack", tensors)?;
    let column = |x: &Tensor| if x.ndim() <= 1 { x.reshape(&[x.numel() as isize, 1]) } else { Ok(x.clone()) };
    super::index::cat(&each(column, tensors)?, 1)
}

fn each(f: impl Fn(&Tensor) -> Result<Tensor>, tensors: &[Tensor]) -> Result<Vec<Tensor>> {
    tensors.iter().map(f).collect()
}

fn at_least_1(x: &Tensor) -> Result<Tensor> {
    match x.ndim() {
        0 => x.reshape(&[1]),
        _ => Ok(x.clone()),
    }
}

fn at_least_2(x: &Tensor) -> Result<Tensor> {
    match x.ndim() {
        0 => x.reshape(&[1, 1]),
        1 => x.unsqueeze(0),
        _ => Ok(x.clone()),
    }
}

fn at_least_3(x: &Tensor) -> Result<Tensor> {
    match x.ndim() {
        0 => x.reshape(&[1, 1, 1]),
        1 => x.unsqueeze(0)?.unsqueeze(-1),
        2 => x.unsqueeze(-1),
        _ => Ok(x.clone()),
    }
}

fn broadcast_tensors_body(tensors: &[Tensor]) -> Result<Vec<Tensor>> {
    let mut shape = Shape::new();
    for t in tensors {
        shape = shape::broadcast("broadcast_tensors", &shape, t.shape())?;
    }
    each(|t| super::view::expand_to(t, &shape), tensors)
}

fn meshgrid_body(tensors: &[Tensor], indexing: Option<&str>) -> Result<Vec<Tensor>> {
    some("meshgrid", tensors)?;
    let swap = match indexing {
        None => {
            warn_once!("meshgrid: it will be required to pass the indexing argument, in a future release.");
            false
        }
        Some("ij") => false,
        Some("xy") => tensors.len() >= 2,
        Some(other) => {
            let why = format!("indexing must be one of \"xy\" or \"ij\", but received: {other}");
            return Err(Error::runtime("meshgrid", why));
        }
    };
    if let Some(t) = tensors.iter().find(|t| t.ndim() > 1) {
        return Err(Error::shape("meshgrid", "Expected 0D or 1D tensor in the tensor list", &[t.shape()]));
    }
    if let Some(t) = tensors.iter().find(|t| t.dtype() != tensors[0].dtype()) {
        let why = "expects all tensors to have the same dtype";
        return Err(Error::dtype("meshgrid", why, &[tensors[0].dtype(), t.dtype()]));
    }
    let mut order: Vec<usize> = (0..tensors.len()).collect();
    if swap {
        order.swap(0, 1);
    }
    let sizes: Vec<usize> = order.iter().map(|&i| tensors[i].numel()).collect();
    let grid = |(i, t): (usize, &Tensor)| {
        let mut own = crate::shape::Sizes::from_elem(1, tensors.len());
        own[order[i]] = -1;
        t.reshape(&own)?.expand(&signed(&sizes))
    };
    tensors.iter().enumerate().map(grid).collect()
}

fn block_diag_body(tensors: &[Tensor]) -> Result<Tensor> {
    if let Some(t) = tensors.iter().find(|t| t.ndim() > 2) {
        let why = "Input tensors must have 2 or fewer dimensions";
        return Err(Error::shape("block_diag", why, &[t.shape()]));
    }
    let blocks = each(at_least_2, tensors)?;
    let cols: usize = blocks.iter().map(|b| b.shape()[1]).sum();
    let mut left = 0;
    let mut rows = Vec::new();
    for b in &blocks {
        let right = cols - left - b.shape()[1];
        rows.push(super::concat::padded(b, &[left as isize, right as isize], Scalar::ZERO)?);
        left += b.shape()[1];
    }
    match rows.is_empty() {
        true => Tensor::full_of(&[1, 0], Scalar::ZERO, crate::default_dtype(), crate::default_device()),
        false => super::index::cat(&rows, 0),
    }
}

// ---- cutting ---------------------------------------------------------------------------------------------------------

fn tensor_split_body(x: &Tensor, sections: Sections<'_>, dim: isize) -> Result<Vec<Tensor>> {
    if x.ndim() == 0 {
        let why = "expected at least a 1-dimensional tensor";
        return Err(Error::shape("tensor_split", why, &[x.shape()]));
    }
    let axis = shape::wrap_dim("tensor_split", dim, x.ndim())?;
    let n = x.shape()[axis];
    let cuts: Vec<usize> = match sections {
        Sections::Count(count) if count < 1 => {
            let why = format!("number of sections must be larger than 0, got {count}");
            return Err(Error::runtime("tensor_split", why));
        }
        Sections::Count(count) => {
            let (count, most) = (count as usize, n.max(1) << 20);
            if count > most {
                return Err(Error::runtime("tensor_split", format!("{count} sections of {n} elements are too many")));
            }
            (1..count).map(|i| i * (n / count) + i.min(n % count)).collect()
        }
        Sections::List(list) => {
            let place = |&i: &isize| if i < 0 { (n as isize).saturating_add(i).max(0) } else { i.min(n as isize) };
            list.iter().map(|i| place(i) as usize).collect()
        }
    };
    let mut start = 0;
    let ends = cuts.into_iter().chain([n]);
    ends.map(|end| {
        let piece = x.narrow(axis as isize, start.min(n) as i64, end.saturating_sub(start) as i64);
        start = end;
        piece
    })
    .collect()
}

fn split_along(op: &'static str, dim: isize, least: usize, x: &Tensor, sections: Sections<'_>) -> Result<Vec<Tensor>> {
    if x.ndim() < least {
        let why = format!("requires a tensor with at least {least} dimension, but got a tensor with {}", x.ndim());
        return Err(Error::shape(op, why, &[x.shape()]));
    }
    let dim = dim.min(x.ndim() as isize - 1);
    if let Sections::Count(count) = sections {
        let n = x.shape()[dim as usize];
        if count < 1 || !n.is_multiple_of(count as usize) {
            let why = format!(
                "attempted to split along dimension {dim}, but the size of the dimension {n} is not divisible by the split_size {count}!"
            );
            return Err(Error::shape(op, why, &[x.shape()]));
        }
    }
    tensor_split_body(x, sections, dim)
}

// ---- turning ---------------------------------------------------------------------------------------------------------

fn rot90_body(x: &Tensor, k: i64, dims: &[isize]) -> Result<Tensor> {
    let &[a, b] = dims else {
        let why = format!("expected total rotation dims == 2, but got dims = {}", dims.len());
        return Err(Error::runtime("rot90", why));
    };
    if x.ndim() < 2 {
        let why = format!("expected total dims >= 2, but got total dims = {}", x.ndim());
        return Err(Error::shape("rot90", why, &[x.shape()]));
    }
    let (wa, wb) = (shape::wrap_dim("rot90", a, x.ndim())?, shape::wrap_dim("rot90", b, x.ndim())?);
    if wa == wb {
        let why = format!("expected rotation dims to be different, but got dim0 = {a} and dim1 = {b}");
        return Err(Error::runtime("rot90", why));
    }
    match k.rem_euclid(4) {
        1 => x.flip(&[b])?.transpose(a, b),
        2 => x.flip(dims),
        3 => x.flip(&[a])?.transpose(a, b),
        _ => x.copy(),
    }
}

fn mirror(op: &'static str, dim: usize, x: &Tensor) -> Result<Tensor> {
    if x.ndim() <= dim {
        let why = format!("Input must be >= {}-d.", dim + 1);
        return Err(Error::shape(op, why, &[x.shape()]));
    }
    x.flip(&[dim as isize])
}

fn adjoint_body(x: &Tensor) -> Result<Tensor> {
    if x.ndim() == 0 {
        warn_once!("adjoint() is deprecated on 0-D tensors. Consider using x.conj().");
        return x.conj_physical();
    }
    if x.ndim() < 2 {
        let why = format!("only supported on matrices or batches of matrices. Got {}-D tensor.", x.ndim());
        return Err(Error::shape("adjoint", why, &[x.shape()]));
    }
    x.transpose(-2, -1)?.conj_physical()
}

fn squeeze_all_body(x: &Tensor) -> Result<Tensor> {
    x.squeeze(None)
}

fn sum_to_size_body(x: &Tensor, size: &[isize]) -> Result<Tensor> {
    let wanted = super::create::sizes("sum_to_size", size)?;
    let lead = x.ndim().checked_sub(wanted.len());
    let fits = |lead: usize| wanted.iter().zip(&x.shape()[lead..]).all(|(&w, &n)| w == n || w == 1);
    let Some(lead) = lead.filter(|&l| fits(l)) else {
        let why = format!("size {size:?} is not expandable to size {:?}.", x.shape());
        return Err(Error::shape("sum_to_size", why, &[x.shape()]));
    };
    let over = |i: &usize| *i < lead || wanted[*i - lead] != x.shape()[*i];
    let dims: Vec<isize> = (0..x.ndim()).filter(over).map(|i| i as isize).collect();
    match dims.is_empty() {
        // A number is summed all the same, as in PyTorch: integers give int64, and nothing gives the tensor itself.
        true if x.ndim() == 0 => x.sum(None, false, None),
        true => Ok(x.clone()),
        false => x.sum(Some(&dims), true, None)?.reshape(size),
    }
}

// ---- diagonals -------------------------------------------------------------------------------------------------------

fn diag_body(x: &Tensor, diagonal: i64) -> Result<Tensor> {
    match x.ndim() {
        1 => {
            crate::autograd::OpScope::rename("diag", "diag_embed");
            diag_embed_body(x, diagonal, 0, 1)
        }
        2 => x.diagonal(diagonal, 0, 1)?.copy(),
        n => Err(Error::shape("diag", format!("Supports 1D or 2D tensors. Got {n}D"), &[x.shape()])),
    }
}

fn diagflat_body(x: &Tensor, offset: i64) -> Result<Tensor> {
    diag_embed(&x.reshape(&[-1])?, offset, -2, -1)
}

fn diag_embed_body(x: &Tensor, offset: i64, dim1: isize, dim2: isize) -> Result<Tensor> {
    let op = "diag_embed";
    let rank = x.ndim() + 1;
    let (a, b) = (shape::wrap_dim(op, dim1, rank)?, shape::wrap_dim(op, dim2, rank)?);
    if a == b || x.ndim() == 0 {
        let why = format!("diagonal dimensions cannot be identical {dim1}, {dim2}");
        return Err(Error::runtime(op, why));
    }
    let last = x.ndim() - 1;
    let side =
        super::create::sizes(op, &[(x.shape()[last] as isize).saturating_add(offset.unsigned_abs() as isize)])?[0];
    let mut sizes = Shape::from_slice(&x.shape()[..last]);
    let mut places = [a, b];
    places.sort_unstable();
    places.into_iter().for_each(|place| sizes.insert(place, side));
    super::create::sizes(op, &signed(&sizes))?;
    let diagonal = super::strided::diagonal_of(Layout::contiguous(&sizes), offset, a, b);
    super::index::strided_add(x, &diagonal, &sizes)
}

fn unravel_index_body(indices: &Tensor, shape: &[isize]) -> Result<Vec<Tensor>> {
    const OP: &str = "unravel_index";
    if !schema::unravel_index.dtypes.has(indices.dtype()) {
        return Err(Error::kind(OP, format!("expected 'indices' to be integer dtype, but got {}", indices.dtype())));
    }
    if shape.iter().any(|&n| n < 0) {
        return Err(Error::value(OP, format!("'shape' cannot have negative values, but got {shape:?}")));
    }
    if shape.iter().try_fold(1_i64, |n, &size| n.checked_mul(size as i64)).is_none() {
        return Err(Error::runtime(OP, format!("a tensor of shape {shape:?} has more elements than can be numbered")));
    }
    let indices = indices.detach()?.cast(crate::DType::I64)?;
    if shape.contains(&0) {
        // There is no element: of no indices there are no coordinates.
        return match indices.numel() {
            0 => shape.iter().map(|_| indices.copy()).collect(),
            _ => Err(Error::runtime(OP, format!("a tensor of shape {shape:?} has no elements"))),
        };
    }
    if shape.is_empty() {
        return Ok(vec![]);
    }
    // As in PyTorch one tensor, of which they are the columns.
    let along = |list: Vec<i64>| Tensor::of_elements(&list, &[shape.len()], indices.device());
    let apart = along((0..shape.len()).map(|i| shape[i + 1..].iter().map(|&n| n as i64).product()).collect())?;
    let sizes = along(shape.iter().map(|&n| n as i64).collect())?;
    indices.unsqueeze(-1)?.floor_divide(&apart)?.remainder(&sizes)?.unbind(-1)
}

fn narrow_copy_body(x: &Tensor, dim: isize, start: i64, length: i64) -> Result<Tensor> {
    x.narrow(dim, start, length)?.copy()
}
