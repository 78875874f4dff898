//! Indexing, scattering, joining and flipping: the rows of the family, and the primitives and arguments that they make.

use super::macros::define_primitives;
use lucid_core::shape::{Axes, Layout, Shape, Slices};

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

/// The rows of the family, for `$cb`.
#[macro_export]
#[doc(hidden)]
macro_rules! index_ops {
    ($cb:ident) => { $crate::rows! { $cb "index" IndexOp :
        /// `out[i][j] = input[index[i][j]][j]` for `dim` 0, and so on.
        method gather(dim: Dim, index: Tensor) -> Tensor {
            python: function, dtypes: NOT_FLOAT8, result: Same,
            primitive: Gather { axis: usize }, saves: Second,
            gradient: |c, g| [scatter_along(ScatterMode::Add, &c.zeros(0)?, *axis, &c.x(1)?, g), g.zeros_like()],
            run: gather_body,
            samples: ["N(3, 4), 1, I(0, 4, 3, 2)", "N(3, 4), 0, I(0, 3, 2, 4)"],
            example: [
                "let x = tensor([[1, 2], [3, 4]])?;",
                "assert_close(x.gather(1, &tensor([[1, 0], [0, 0]])?)?, [[2, 1], [3, 3]]);",
            ],
        }
        /// A copy with `src` (a tensor or a number) written at `index` along `dim`: `out[index[i][j]][j] = src[i][j]`
        /// for `dim` 0, and so on. `index` is no larger than `src`, nor than the tensor but along `dim`. With `reduce`
        /// "add" or "multiply" the sources are added to the elements or multiplied with them.
        method scatter(
            dim: Dim, index: Tensor, src: SomeOperand = None; reduce: SomeText = None, value: SomeNumber = None
        ) -> Tensor {
            in_place: body, deterministic: No("the order of writes to one element is not defined"), dtypes: ALL,
            result: Same,
            primitive: Scatter { axis: usize, mode: ScatterMode }, saves: Second,
            gradient: |c, g| [
                match mode {
                    ScatterMode::Set => scatter_along(*mode, g, *axis, &c.x(1)?, &c.zeros(2)?),
                    _ => Ok(g.clone()),
                },
                g.zeros_like(),
                g.gather(*axis as isize, &c.x(1)?),
            ],
            run: scatter::scatter_body[Target::Copy],
            node: |given| ("scatter", given.number("src").max(given.has("value"))),
            samples: [
                "N(3, 4), 1, PERM(3, 4), N(3, 4)",
                "N(3, 4), 1, PERM(3, 4), 2.0",
                "N(3, 4), 0, I(0, 3, 2, 4), FIXED(N(3, 5)), reduce='add'",
                "N(4), 0, ORDER(3), value=1.0",
            ],
            example: [
                "let x = tensor([0, 0, 0])?;",
                "let made = x.scatter(0, &tensor([2, 0])?, Some((&tensor([5, 6])?).into()), None, None)?;",
                "assert_close(made, [6, 0, 5]);",
            ],
        }
        /// A copy in which the elements of `src` that `index` sends to one place along `dim` are combined with what is
        /// there by `reduce`: "sum", "prod", "mean", "amax" or "amin". Without `include_self` what was there does not
        /// count, where anything is sent. Ties of extrema share the gradient evenly.
        method scatter_reduce(dim: Dim, index: Tensor, src: Tensor, reduce: Text; include_self: Bool = true) -> Tensor {
            in_place: body, deterministic: No("the order of additions is not defined on the GPU"), dtypes: ORDERED,
            result: Same,
            primitive: Reduce { axis: usize, mode: ScatterMode }, saves: Both,
            gradient: |c, g| all scatter::reduce_gradient(c, g, *axis, *mode),
            run: scatter::scatter_reduce_body[Target::Copy],
            samples: [
                "N(3, 4), 1, I(0, 4, 3, 6), N(3, 6), 'sum'",
                "N(3, 4), 0, I(0, 3, 2, 4), P(2, 4), 'prod'",
                "N(3, 4), 1, I(0, 4, 3, 6), N(3, 6), 'mean'",
                "N(3, 4), 1, I(0, 4, 3, 6), N(3, 6), 'amax'",
                "N(3, 4), 1, I(0, 4, 3, 6), N(3, 6), 'amin', include_self=False",
                "N(3, 4), 1, I(0, 2, 3, 6), N(3, 6), 'mean', include_self=False",
                "N(3, 4), 0, I(0, 3, 2, 4), P(2, 4), 'prod', include_self=False",
            ],
            example: [
                "let x = tensor([1.0, 2.0])?;",
                "let made = x.scatter_reduce(0, &tensor([0, 0, 1])?, &tensor([3.0, 4.0, 5.0])?, Combine::Sum, true)?;",
                "assert_close(made, [8.0, 7.0]);",
            ],
        }
        /// The elements at the index tensors, which broadcast together, along the listed dimensions: PyTorch's advanced
        /// indexing. The indexed dimensions are replaced by the broadcast ones, in front unless they are neighbours.
        function index(input: Tensor, dims: Dims, indices: Tensors) -> Tensor {
            flags: [internal], dtypes: ALL, result: Same,
            primitive: Index { axes: Axes, strict: bool }, saves: Rest,
            gradient: |c, g| [index_put_axes(&c.zeros(0)?, axes, &c.rest(1)?, g, true, *strict)],
            run: index_body, torch: "-",
            samples: [],
            example: [
                "let x = tensor([[1, 2], [3, 4]])?;",
                "assert_close(index(&x, &[0, 1], &[tensor([0, 1])?, tensor([1, 0])?])?, [2, 3]);",
            ],
        }
        /// A copy with `values` written (or added) where [`index`] reads.
        function index_put_dims(
            input: Tensor, dims: Dims, indices: Tensors, values: Tensor, accumulate: Bool
        ) -> Tensor {
            flags: [internal], deterministic: No("the order of writes to one element is not defined"), dtypes: ALL,
            result: Same,
            primitive: IndexPut { axes: Axes, accumulate: bool, strict: bool }, saves: Tail,
            gradient: |c, g| [
                if *accumulate { Ok(g.clone()) } else { index_put_axes(g, axes, &c.rest(2)?, &c.zeros(1)?, false, *strict) },
                index_axes(g, axes, &c.rest(2)?, *strict),
            ],
            run: index_put_body, torch: "-",
            samples: [],
            example: [
                "let (x, values) = (tensor([1, 2, 3])?, tensor([10, 20])?);",
                "assert_close(index_put_dims(&x, &[0], &[tensor([0, 0])?], &values, true)?, [31, 2, 3]);",
            ],
        }
        /// A copy of `input` with a slice along `dim` replaced by `src`.
        method slice_scatter(
            src: Tensor, dim: Dim = 0, start: OptInt = None, end: OptInt = None, step: Int = 1
        ) -> Tensor {
            dtypes: ALL, result: Same,
            primitive: SliceScatter { dims: Slices, pads: bool },
            gradient: |c, g| [
                slice_scatter_dims(g, &c.zeros(1)?, dims.clone()),
                // Of padding, PyTorch cuts a copy out.
                match (super::view::slice_dims(g, dims.clone())?, *pads) {
                    (part, true) => part.copy(),
                    (part, false) => Ok(part),
                },
            ],
            run: slice_scatter_body,
            samples: ["N(3, 4), N(3, 2), 1, 1, 3", "N(5, 4), N(2, 4), 0, 0, 4, 2"],
            example: [
                "let x = tensor([1, 2, 3, 4])?;",
                "assert_close(x.slice_scatter(&tensor([8, 9])?, 0, Some(1), Some(3), 1)?, [1, 8, 9, 4]);",
            ],
        }
        /// Zeros of the given shape with the elements of `input` added where `as_strided` would read them.
        function strided_scatter_add(input: Tensor, size: Sizes) -> Tensor {
            flags: [internal], dtypes: NUMERIC, result: Same,
            primitive: StridedAdd { layout: Box<Layout>, shape: Shape }, gradient: |c, g| [strided_read(g, layout)],
            run: strided_add_unit, torch: "-",
            samples: [],
            example: [
                "let x = tensor([1, 2])?.expand(&[2, 2])?;",
                "assert_close(strided_scatter_add(&x, &[2, 2])?, [[1, 2], [1, 2]]);",
            ],
        }
        /// The tensors joined along `dim`, which alone may differ in size.
        function cat(tensors: Tensors, dim: Dim = 0) -> Tensor {
            out: cast, amp: Promote, dtypes: ALL, result: Same,
            primitive: Concat { axis: usize }, gradient: |c, g| all cat_gradient(c, g, *axis),
            run: cat_body,
            samples: ["[N(2, 3), N(4, 3)]", "[N(2, 3), N(2, 1), N(2, 2)], dim=-1", "[N(2, 3), N(0,)]"],
            example: ["assert_close(cat(&[tensor([[1, 2]])?, tensor([[3, 4]])?], 1)?, [[1, 2, 3, 4]]);"],
        }
        /// The tensors, all of one shape, along a new dimension.
        function stack(tensors: Tensors, dim: Dim = 0) -> Tensor {
            out: cast, amp: Promote, dtypes: ALL, result: Same,
            run: stack_body,
            samples: ["[N(2, 3), N(2, 3)]", "[N(2, 3), N(2, 3), N(2, 3)], dim=-1"],
            example: ["assert_close(stack(&[tensor([1, 2])?, tensor([3, 4])?], 0)?, [[1, 2], [3, 4]]);"],
        }
        /// The order of elements reversed along `dims`. A copy, as in PyTorch.
        method flip(dims: Sizes) -> Tensor {
            out: none, dtypes: ALL, result: Same,
            primitive: Flip { axes: Axes }, gradient: |c, g| [flip_axes(g, axes)],
            run: flip_body,
            samples: ["N(3, 4), (0,)", "N(2, 3, 4), (0, -1)"],
            example: ["assert_close(tensor([[1, 2], [3, 4]])?.flip(&[0])?, [[3, 4], [1, 2]]);"],
        }
        /// Elements shifted along `dims`, those pushed out coming in at the other end; flattened first without `dims`.
        method roll(shifts: Dims, dims: OptDims = None) -> Tensor {
            out: none, dtypes: ALL, result: Same,
            run: roll_body,
            samples: ["N(3, 4), 1", "N(3, 4), -1, 0", "N(3, 4), (1, 2), (0, 1)"],
            example: ["assert_close(tensor([1, 2, 3, 4])?.roll(&[1], None)?, [4, 1, 2, 3]);"],
        }
        /// `value` put around the tensor: `pad` lists (before, after) from the last dimension on; negative sizes crop.
        function constant_pad_nd(input: Tensor, pad: Sizes, value: Number = 0) -> Tensor {
            out: none, dtypes: ALL, result: Same,
            run: pad_body,
            samples: ["N(3, 4), (1, 2)", "N(3, 4), (1, 0, 2, 1), 1.5", "N(3, 4), (-1, 1)"],
            example: ["assert_close(constant_pad_nd(&tensor([1, 2])?, &[1, 2], 7)?, [7, 1, 2, 7, 7]);"],
        }
        /// The tensor repeated along each dimension; a copy.
        method repeat(repeats: Sizes) -> Tensor {
            python: method, dtypes: ALL, result: Same,
            run: repeat_body, torch: "Tensor.repeat",
            samples: ["N(3, 4), (2, 1)", "N(3), (2, 2, 2)"],
            example: ["assert_close(tensor([1, 2])?.repeat(&[2, 2])?, [[1, 2, 1, 2], [1, 2, 1, 2]]);"],
        }
        /// The lower triangle of the last two dimensions, zero above diagonal `diagonal`.
        method tril(diagonal: Int = 0) -> Tensor {
            in_place: body, dtypes: ALL, result: Same,
            run: tril_body[Target::Copy],
            samples: ["N(3, 4)", "N(2, 3, 3), -1"],
            example: ["assert_close(tensor([[1, 2], [3, 4]])?.tril(0)?, [[1, 0], [3, 4]]);"],
        }
        /// The upper triangle of the last two dimensions, zero below diagonal `diagonal`.
        method triu(diagonal: Int = 0) -> Tensor {
            in_place: body, dtypes: ALL, result: Same,
            run: triu_body[Target::Copy],
            samples: ["N(3, 4)", "N(2, 3, 3), 1"],
            example: ["assert_close(tensor([[1, 2], [3, 4]])?.triu(1)?, [[0, 2], [0, 0]]);"],
        }
        /// The indices of the elements that are not zero, one row each. Evaluates: the result's size depends on the
        /// data.
        method nonzero() -> Tensor {
            flags: [no_gradient], dtypes: ALL, result: Index,
            run: nonzero_body,
            samples: ["I(0, 2, 3, 4)", "B(5)"],
            example: ["assert_close(tensor([[0, 5], [6, 0]])?.nonzero()?, [[0, 1], [1, 0]]);"],
        }
        /// The indices of the elements that are not zero, one row each, as [`nonzero`] gives them. Evaluates.
        method argwhere() -> Tensor {
            out: none, flags: [no_gradient], dtypes: ALL, result: Index,
            run: nonzero_body,
            samples: ["I(0, 2, 3, 4)", "B(5)", "N()"],
            example: ["assert_close(tensor([0, 5, 6])?.argwhere()?, [[1], [2]]);"],
        }
        /// The first `size` rows of [`nonzero`], and rows of `fill_value` where there are fewer. Evaluates.
        method nonzero_static(; size: OptInt = None, fill_value: Int = -1) -> Tensor {
            flags: [no_gradient], dtypes: ALL, result: Index,
            run: nonzero_static_body,
            samples: ["I(0, 2, 3, 4), size=3", "B(5), size=8, fill_value=2", "N(0, 2), size=2"],
            example: ["assert_close(tensor([0, 5, 6])?.nonzero_static(Some(3), -1)?, [[1], [2], [-1]]);"],
        }
    }};
}
index_ops!(define_primitives);

/// Where the broadcast dimensions go: in place of neighbouring indexed ones, else in front.
pub fn index_position(axes: &[usize]) -> usize {
    match axes.windows(2).all(|w| w[1] == w[0] + 1) {
        true => axes.first().copied().unwrap_or(0),
        false => 0,
    }
}
