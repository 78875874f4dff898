//! Fourier transforms: the rows of the family, and the primitives and arguments that they make.

use super::macros::define_primitives;
use crate::shape::{Axes, Shape};

/// The rows of the family, for `$cb`.
#[macro_export]
#[doc(hidden)]
macro_rules! fft_ops {
    ($cb:ident) => {
        $crate::rows! { $cb "fft" FftOp :
            /// The discrete Fourier transform of complex numbers along `dim`, `X[k] = s Σ x[j] e^(-2πi jk / n)`, with
            /// a plus in the exponent unless `forward`. `normalization` says what `s` is: 0 for 1, 1 for `1 / √n`, 2
            /// for `1 / n`, where `n` is the number of elements that are transformed together. What the transforms of
            /// `lucid.fft` are made of.
            function _fft_c2c(input: Tensor, dim: Dims, normalization: Int, forward: Bool) -> Tensor {
                out: none, dtypes: COMPLEX, result: Same,
                primitive: ComplexToComplex { axes: Axes, inverse: bool, scale: f64 },
                gradient: |c, g| [c2c_gradient(g, axes, *inverse, *scale)],
                run: c2c_body,
                samples: ["N(3, 4), [1], 0, True", "N(2, 5, 3), [0, 1], 1, False", "N(7), [0], 2, True"],
                example: [
                    "let x = tensor([(1.0, 0.0), (2.0, 0.0), (3.0, 0.0), (4.0, 0.0)])?;",
                    "let made = _fft_c2c(&x, &[0], 0, true)?;",
                    "assert_close(made, [(10.0, 0.0), (-2.0, 2.0), (-2.0, 0.0), (-2.0, -2.0)]);",
                ],
            }
            /// The forward transform of real numbers along `dim`, of whose last dimension with `onesided` the first
            /// `n / 2 + 1` elements are there: the others are conjugates of these. `normalization` as of `_fft_c2c`.
            function _fft_r2c(input: Tensor, dim: Dims, normalization: Int, onesided: Bool) -> Tensor {
                out: none, dtypes: WIDE, result: Own,
                primitive: RealToComplex { axes: Axes, onesided: bool, scale: f64 },
                gradient: |c, g| [r2c_gradient(c, g, axes, *onesided, *scale)],
                run: r2c_body,
                samples: [
                    "N(3, 4), [1], 0, True",
                    "N(2, 5, 3), [0, 2], 1, True",
                    "N(3, 5), [0, 1], 2, False",
                    "N(7), [0], 0, True",
                ],
                example: [
                    "let x = tensor([1.0, 2.0, 3.0, 4.0])?;",
                    "assert_close(_fft_r2c(&x, &[0], 0, true)?, [(10.0, 0.0), (-2.0, 2.0), (-2.0, 0.0)]);",
                ],
            }
            /// The inverse transform along `dim` of numbers whose last dimension in `dim` has the first `n / 2 + 1`
            /// elements of `n = last_dim_size`, the others being conjugates of these; so the result is real.
            /// Imaginary parts that the symmetry says are 0 are not read. `normalization` as of `_fft_c2c`.
            function _fft_c2r(input: Tensor, dim: Dims, normalization: Int, last_dim_size: Int) -> Tensor {
                out: none, dtypes: COMPLEX, result: Real,
                primitive: ComplexToReal { axes: Axes, n: usize, scale: f64 },
                gradient: |c, g| [c2r_gradient(g, axes, *n, *scale)],
                run: c2r_body,
                samples: [
                    "N(3, 4), [1], 0, 6",
                    "N(3, 4), [1], 0, 7",
                    "N(2, 5, 3), [1, 2], 2, 4",
                    "N(5, 3), [0], 1, 8",
                    "N(1), [0], 2, 1",
                ],
                example: [
                    "let x = tensor([(10.0, 0.0), (-2.0, 2.0), (-2.0, 0.0)])?;",
                    "assert_close(_fft_c2r(&x, &[0], 2, 4)?, [1.0, 2.0, 3.0, 4.0]);",
                ],
            }
        }
    };
}
fft_ops!(define_primitives);

impl FftOp {
    /// The dimensions that are transformed, the one that is halved last.
    pub fn axes(&self) -> &Axes {
        match self {
            FftOp::ComplexToComplex { axes, .. }
            | FftOp::RealToComplex { axes, .. }
            | FftOp::ComplexToReal { axes, .. } => axes,
        }
    }

    /// How many dimensions are transformed.
    pub fn count(&self) -> usize {
        self.axes().len()
    }

    /// Has it a plus in the exponent?
    pub fn is_inverse(&self) -> bool {
        match self {
            FftOp::ComplexToComplex { inverse, .. } => *inverse,
            FftOp::RealToComplex { .. } => false,
            FftOp::ComplexToReal { .. } => true,
        }
    }

    /// The factor of the result.
    pub fn scale(&self) -> f64 {
        match self {
            FftOp::ComplexToComplex { scale, .. }
            | FftOp::RealToComplex { scale, .. }
            | FftOp::ComplexToReal { scale, .. } => *scale,
        }
    }

    /// The same op on dimensions that `f` tells the new numbers of.
    pub fn moved(&self, f: impl Fn(usize) -> usize) -> FftOp {
        let mut op = self.clone();
        let (FftOp::ComplexToComplex { axes, .. }
        | FftOp::RealToComplex { axes, .. }
        | FftOp::ComplexToReal { axes, .. }) = &mut op;
        axes.iter_mut().for_each(|axis| *axis = f(*axis));
        op
    }

    /// The result's sizes.
    pub fn shape(&self, input: &[usize]) -> Shape {
        let mut shape = Shape::from_slice(input);
        match self {
            FftOp::RealToComplex { axes, onesided: true, .. } => {
                if let Some(n) = axes.last().and_then(|&last| shape.get_mut(last)) {
                    *n = *n / 2 + 1;
                }
            }
            FftOp::ComplexToReal { axes, n, .. } => {
                if let Some(size) = axes.last().and_then(|&last| shape.get_mut(last)) {
                    *size = *n;
                }
            }
            FftOp::ComplexToComplex { .. } | FftOp::RealToComplex { .. } => {}
        }
        shape
    }

    /// The order of all dimensions in which they are transformed: those that are not, then those that are, each by
    /// falling strides, but for the one that is halved. The result is row-major in that order, as PyTorch's is.
    pub fn order(&self, strides: &[usize]) -> Axes {
        let mut axes = self.axes().clone();
        let mut order: Axes = (0..strides.len()).filter(|axis| !axes.contains(axis)).collect();
        order.sort_by_key(|&axis| std::cmp::Reverse(strides[axis]));
        let sorted = axes.len() - usize::from(!matches!(self, FftOp::ComplexToComplex { .. }));
        axes[..sorted].sort_by_key(|&axis| std::cmp::Reverse(strides[axis]));
        order.extend(axes);
        order
    }
}
