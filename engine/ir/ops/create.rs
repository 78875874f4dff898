//! New tensors: the rows of the family, and the primitives and arguments that they make.

use super::macros::define_primitives;
use lucid_core::dtype::{narrow, wide, Part};
use lucid_core::{DType, Scalar};
use num_complex::Complex;

/// The rows of the family, for `$cb`.
#[macro_export]
#[doc(hidden)]
macro_rules! create_ops {
    ($cb:ident) => { $crate::rows! { $cb "create" CreateOp :
        /// A tensor of `size` filled with one number; its dtype follows from the number unless given.
        function full(size: Sizes, fill_value: Number; dtype: OptDtype = None, device: OptDevice = None) -> Tensor {
            call: creates, dtypes: ALL, result: Own,
            primitive: Full { value: Scalar }, gradient: none,
            run: full_body,
            samples: ["(2, 3), 1.5", "(2, 3), 7", "(), True", "(0, 3), 2, dtype=DT.float64"],
            example: ["assert_close(full(&[2, 2], 1.5, None, None)?, [[1.5, 1.5], [1.5, 1.5]]);"],
        }
        /// The numbers from `start` to before `end`, `step` apart: int64 for integers, else the default float.
        function arange(
            start: Number, end: SomeNumber = None, step: Number = 1; dtype: OptDtype = None, device: OptDevice = None
        ) -> Tensor {
            call: creates, dtypes: REAL, result: Own,
            primitive: Arange { start: Scalar, step: Scalar }, gradient: none,
            run: arange_body,
            samples: ["5", "2, 9, 3", "0.5, 3.0, 0.5", "5, 0, -2", "0, 4, dtype=DT.float32"],
            example: [
                "assert_close(arange(2, Some(9.into()), 3, None, None)?, [2, 5, 8]);",
                "assert_close(arange(3, None, 1, Some(DType::F32), None)?, [0.0, 1.0, 2.0]);",
            ],
        }
        /// The numbers from `start` to `end`, which is included where a step lands on it; in the default float unless
        /// given. [`arange`] has replaced it, in PyTorch too.
        function range(
            start: Number, end: Number, step: Number = 1; dtype: OptDtype = None, device: OptDevice = None
        ) -> Tensor {
            call: creates, dtypes: REAL, result: Own,
            run: range_body,
            samples: ["1, 4", "1, 5.5, 1.5", "3, 1, -1", "1.5, 4, dtype=DT.int64", "0, 0.9, 0.3, dtype=DT.float64"],
            example: ["assert_close(range(1, 4, 1, None, None)?, [1.0, 2.0, 3.0, 4.0]);"],
        }
        /// Ones on the diagonal of an `n` by `m` (by default `n`) matrix, zeros elsewhere.
        function eye(n: Int, m: SomeInt = None; dtype: OptDtype = None, device: OptDevice = None) -> Tensor {
            call: creates, dtypes: ALL, result: Own,
            primitive: Eye, gradient: none,
            run: eye_body,
            samples: ["3", "2, 4", "4, 2"],
            example: ["assert_close(eye(2, Some(3), None, None)?, [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]);"],
        }
        /// Zeros.
        function zeros(size: Sizes; dtype: OptDtype = None, device: OptDevice = None) -> Tensor {
            call: creates, dtypes: ALL, result: Own,
            run: filled[Scalar::ZERO],
            samples: ["(2, 3)", "()"],
            example: ["assert_close(zeros(&[2, 2], None, None)?, [[0.0, 0.0], [0.0, 0.0]]);"],
        }
        /// Ones.
        function ones(size: Sizes; dtype: OptDtype = None, device: OptDevice = None) -> Tensor {
            call: creates, dtypes: ALL, result: Own,
            run: filled[Scalar::ONE],
            samples: ["(2, 3)", "()"],
            example: ["assert_close(ones(&[3], Some(DType::I32), None)?, [1, 1, 1]);"],
        }
        /// A tensor whose elements may be anything; here they are zeros.
        function empty(
            size: Sizes; dtype: OptDtype = None, device: OptDevice = None, memory_format: OptFormat = None
        ) -> Tensor {
            call: creates, dtypes: ALL, result: Own,
            run: empty_body, torch: "-",
            samples: [],
            example: [
                "let x = empty(&[2, 3], Some(DType::F64), None, None)?;",
                "assert_eq!((x.shape(), x.dtype()), (&[2, 3][..], DType::F64));",
            ],
        }
        /// A tensor of the given sizes and strides, in elements. Its elements may be anything; here they are zeros.
        function empty_strided(size: Sizes, stride: Sizes; dtype: OptDtype = None, device: OptDevice = None) -> Tensor {
            call: creates, dtypes: ALL, result: Own,
            run: empty_strided_body, torch: "-",
            samples: [],
            example: [
                "let x = empty_strided(&[2, 3], &[1, 2], None, None)?;",
                "assert_eq!((x.shape(), x.strides()), (&[2, 3][..], &[1, 2][..]));",
            ],
        }
        /// A tensor of the given sizes whose dimensions are in memory in the order `physical_layout`, outermost first.
        /// Its elements may be anything; here they are zeros.
        function empty_permuted(
            size: Sizes, physical_layout: Sizes; dtype: OptDtype = None, device: OptDevice = None
        ) -> Tensor {
            call: creates, dtypes: ALL, result: Own,
            run: empty_permuted_body, torch: "-",
            samples: [],
            example: [
                "let x = empty_permuted(&[2, 3], &[1, 0], None, None)?;",
                "assert_eq!((x.shape(), x.strides()), (&[2, 3][..], &[1, 2][..]));",
            ],
        }
        /// A 0-d tensor of a number, in the default dtype unless given.
        function scalar_tensor(s: Number; dtype: OptDtype = None, device: OptDevice = None) -> Tensor {
            call: creates, out: none, dtypes: ALL, result: Own,
            run: scalar_tensor_body,
            samples: ["1.5", "7", "True", "3, dtype=DT.int64"],
            example: ["assert_close(scalar_tensor(7, None, None)?, 7.0);"],
        }
        /// `steps` numbers from `start` to `end`, both included, evenly spaced; in the dtype's own precision, from both
        /// ends. Complex ends give complex numbers. Ends that are 0-d tensors are evaluated.
        function linspace(
            start: Operand, end: Operand, steps: Int; dtype: OptDtype = None, device: OptDevice = None
        ) -> Tensor {
            call: creates, dtypes: NUMERIC, result: Own,
            primitive: Linspace { start: Scalar, end: Scalar, base: Option<f64> }, gradient: none,
            run: spaced["linspace", None],
            samples: [
                "0, 1, 5",
                "-2.0, 3.0, 7",
                "1, 2, 1",
                "1, 2, 0",
                "0, 10, 5, dtype=DT.int64",
                "-7, 20, 9, dtype=DT.int32",
                "3, -3, 100",
                "0, 1, 8, dtype=DT.float64",
                "1-2j, 3, 7",
                "1, 2j, 1",
                "0, 1, 4, dtype=DT.complex64",
            ],
            example: ["assert_close(linspace(0, 1, 5, None, None)?, [0.0, 0.25, 0.5, 0.75, 1.0]);"],
        }
        /// `base` to the powers of [`linspace`].
        function logspace(
            start: Operand, end: Operand, steps: Int, base: Float = 10.0; dtype: OptDtype = None,
            device: OptDevice = None
        ) -> Tensor {
            call: creates, dtypes: NUMERIC, result: Own,
            run: logspace_body,
            samples: [
                "0, 2, 5",
                "-1.0, 1.0, 6, 2.0",
                "1, 2, 1",
                "1, 2, 0",
                "0, 4, 5, 2.0, dtype=DT.int64",
                "0, 1, 8, dtype=DT.float64",
                "0.5j, 1-1j, 5",
                "0, 1, 4, 2.0, dtype=DT.complex64",
            ],
            example: ["assert_close(logspace(0, 2, 3, 10.0, None, None)?, [1.0, 10.0, 100.0]);"],
        }
        /// The row and column numbers of the lower triangle of a `row` by `col` matrix, up to diagonal `offset`: a (2,
        /// n) matrix, int64 unless given.
        function tril_indices(
            row: Int, col: Int, offset: Int = 0; dtype: OptDtype = None, device: OptDevice = None
        ) -> Tensor {
            call: creates, out: none, dtypes: REAL, result: Index,
            run: triangle_indices[true],
            samples: ["3, 4", "4, 3, -1", "3, 5, 2", "3, 3, -5", "0, 3", "2, 2, 9, dtype=DT.int32"],
            example: ["assert_close(tril_indices(2, 2, 0, None, None)?, [[0, 1, 1], [0, 0, 1]]);"],
        }
        /// The row and column numbers of the upper triangle of a `row` by `col` matrix, from diagonal `offset` on: a
        /// (2, n) matrix, int64 unless given.
        function triu_indices(
            row: Int, col: Int, offset: Int = 0; dtype: OptDtype = None, device: OptDevice = None
        ) -> Tensor {
            call: creates, out: none, dtypes: REAL, result: Index,
            run: triangle_indices[false],
            samples: ["3, 4", "4, 3, -1", "3, 5, 2", "3, 3, 5", "0, 3", "2, 2, -9, dtype=DT.int32"],
            example: ["assert_close(triu_indices(2, 2, 0, None, None)?, [[0, 0, 1], [0, 1, 1]]);"],
        }
        /// Zeros of the tensor's shape, dtype and device, where not given.
        function zeros_like(
            input: Tensor; dtype: OptDtype = None, device: OptDevice = None, memory_format: OptFormat = None
        ) -> Tensor {
            call: creates, out: none, dtypes: ALL, result: Own,
            run: like[Scalar::ZERO],
            samples: ["N(2, 3)"],
            example: ["assert_close(zeros_like(&tensor([1, 2])?, None, None, None)?, [0, 0]);"],
        }
        /// Ones of the tensor's shape, dtype and device, where not given.
        function ones_like(
            input: Tensor; dtype: OptDtype = None, device: OptDevice = None, memory_format: OptFormat = None
        ) -> Tensor {
            call: creates, out: none, dtypes: ALL, result: Own,
            run: like[Scalar::ONE],
            samples: ["N(2, 3)"],
            example: ["assert_close(ones_like(&tensor([1, 2])?, Some(DType::F32), None, None)?, [1.0, 1.0]);"],
        }
        /// One number in the tensor's shape, dtype and device, where not given.
        function full_like(
            input: Tensor, fill_value: Number; dtype: OptDtype = None, device: OptDevice = None,
            memory_format: OptFormat = None
        ) -> Tensor {
            call: creates, out: none, dtypes: ALL, result: Own,
            run: full_like_body,
            samples: ["N(2, 3), 4"],
            example: ["assert_close(full_like(&tensor([1, 2])?, 7, None, None, None)?, [7, 7]);"],
        }
    }};
}
create_ops!(define_primitives);

/// [`spaced_at`] of complex numbers, in the precision of their parts.
fn complex_at<P: Part>(start: Scalar, end: Scalar, base: Option<f64>, n: usize, i: usize) -> Complex<P> {
    let times = |n: usize| P::of(n as f64);
    let (a, b): (Complex<P>, Complex<P>) = (narrow(start.to_complex()), narrow(end.to_complex()));
    let step = if n > 1 { (b - a) / times(n - 1) } else { Complex::new(P::zero(), P::zero()) };
    let z = if n == 1 || i < n / 2 { a + step * times(i) } else { b - step * times(n - 1 - i) };
    match base {
        None => z,
        // A power of a negative base turns by its phase too.
        Some(base) => narrow((wide(z) * Complex::new(base, 0.0).ln()).exp()),
    }
}

/// Element `i` of `n` evenly spaced numbers (or powers), counted from the nearer end, as PyTorch does: so the last is `end`
/// exactly. In float32 and narrower the steps are float32's; integers take double precision and are cut off.
pub fn spaced_at(start: Scalar, end: Scalar, base: Option<f64>, n: usize, i: usize, dtype: DType) -> Scalar {
    match dtype {
        DType::C64 => return Scalar::from(complex_at::<f32>(start, end, base, n, i)),
        DType::C128 => return Scalar::from(complex_at::<f64>(start, end, base, n, i)),
        _ => {}
    }
    let whole = dtype.is_integral();
    let cut = |x: f64| if whole { Scalar::Int(x as i64) } else { Scalar::Float(x) };
    if let (None, true) = (base, n == 1) {
        return cut(start.to_f64());
    }
    let (up, at) = (i < n / 2, if i < n / 2 { i } else { n - 1 - i });
    let intervals = n.saturating_sub(1).max(1);
    let x = if whole || dtype == DType::F64 {
        let (a, b) = if whole { (start.to_i64() as f64, end.to_i64() as f64) } else { (start.to_f64(), end.to_f64()) };
        let step = (b - a) / intervals as f64;
        if n == 1 || up {
            a + step * at as f64
        } else {
            b - step * at as f64
        }
    } else {
        let (a, b) = (start.to_f64() as f32, end.to_f64() as f32);
        let step = (b - a) / intervals as f32;
        f64::from(if n == 1 || up { a + step * at as f32 } else { b - step * at as f32 })
    };
    cut(base.map_or(x, |base| base.powf(x)))
}
