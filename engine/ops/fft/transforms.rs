//! The functions of `lucid.fft`, with PyTorch's names: `fft_fft` is `torch.fft.fft`, and so on.
//!
//! Made of the three primitives, of padding and of cutting. Integers are transformed in the default float,
//! half-precision numbers not at all, as on PyTorch's CPU.

use super::{c2c, c2r, points, r2c, Normalization};
use crate::ops::macros::define_composites;
use crate::shape::{self, Axes};
use crate::{DType, Device, Error, Result, Scalar, Tensor};

/// The rows of the family, for `$cb`.
#[macro_export]
#[doc(hidden)]
macro_rules! transform_ops {
    ($cb:ident) => {
        $crate::rows! { $cb "fft" :
            /// The discrete Fourier transform along `dim`, `X[k] = Σ x[j] e^(-2πi jk / n)`; `n` elements, by default
            /// all, which are cut off or filled up with zeros. With `norm` "ortho" it is divided by `√n`, with
            /// "forward" by `n`.
            function fft_fft(input: Tensor, n: OptInt = None, dim: Dim = -1, norm: OptText = None) -> Tensor {
                out: rule, flags: [steps], amp: FullCpu, dtypes: FACTORED.and(DTypes::INTEGRAL), result: Own,
                run: line["fft", Kind::Complex, true], torch: "fft.fft",
                samples: ["N(3, 4)", "N(7), 5, 0, 'ortho'", "N(2, 5, 3), 8, 1, 'forward'", "I(0, 9, 6)"],
                example: [
                    "let made = fft_fft(&tensor([1.0, 2.0, 3.0])?, None, -1, None)?;",
                    "assert_close(made, [(6.0, 0.0), (-1.5, 0.86603), (-1.5, -0.86603)]);",
                ],
            }
            /// The inverse of [`fft_fft`], `x[j] = Σ X[k] e^(2πi jk / n) / n`; not divided with `norm` "forward", by
            /// `√n` with "ortho".
            function fft_ifft(input: Tensor, n: OptInt = None, dim: Dim = -1, norm: OptText = None) -> Tensor {
                out: rule, flags: [steps], amp: FullCpu, dtypes: FACTORED.and(DTypes::INTEGRAL), result: Own,
                run: line["ifft", Kind::Complex, false], torch: "fft.ifft",
                samples: ["N(3, 4)", "N(7), 5, 0, 'ortho'", "N(2, 5, 3), 8, 1, 'forward'", "I(0, 9, 6)"],
                example: [
                    "let made = fft_ifft(&tensor([6.0, 0.0, 0.0])?, None, -1, None)?;",
                    "assert_close(made, [(2.0, 0.0), (2.0, 0.0), (2.0, 0.0)]);",
                ],
            }
            /// [`fft_fft`] of real numbers: the first `n / 2 + 1` elements, of which the others are conjugates.
            function fft_rfft(input: Tensor, n: OptInt = None, dim: Dim = -1, norm: OptText = None) -> Tensor {
                out: rule, flags: [steps], amp: FullCpu, dtypes: WIDE.and(DTypes::INTEGRAL), result: Own,
                run: line["rfft", Kind::FromReal, true], torch: "fft.rfft",
                samples: ["N(3, 4)", "N(7), 5, 0, 'ortho'", "N(2, 5, 3), 8, 1, 'forward'", "I(0, 9, 6)"],
                example: [
                    "let made = fft_rfft(&tensor([1.0, 2.0, 3.0])?, None, -1, None)?;",
                    "assert_close(made, [(6.0, 0.0), (-1.5, 0.86603)]);",
                ],
            }
            /// The inverse of [`fft_rfft`]: `n` real numbers, by default `2 (m - 1)` of `m` elements.
            function fft_irfft(input: Tensor, n: OptInt = None, dim: Dim = -1, norm: OptText = None) -> Tensor {
                out: rule, flags: [steps], amp: FullCpu, dtypes: FACTORED.and(DTypes::INTEGRAL), result: Own,
                run: line["irfft", Kind::ToReal, false], torch: "fft.irfft",
                samples: ["N(3, 4)", "N(7), 5, 0, 'ortho'", "N(2, 5, 3), 8, 1, 'forward'", "I(0, 9, 6)"],
                example: [
                    "let made = fft_irfft(&tensor([(6.0, 0.0), (-1.5, 0.86603)])?, Some(3), -1, None)?;",
                    "assert_close(made, [1.0, 2.0, 3.0]);",
                ],
            }
            /// The transform, real, of `n` numbers whose halves are conjugates of each other, by default `2 (m - 1)`
            /// of the `m` elements of the first half; divided as [`fft_fft`] is.
            function fft_hfft(input: Tensor, n: OptInt = None, dim: Dim = -1, norm: OptText = None) -> Tensor {
                out: rule, flags: [steps], amp: FullCpu, dtypes: FACTORED.and(DTypes::INTEGRAL), result: Own,
                run: line["hfft", Kind::ToReal, true], torch: "fft.hfft",
                samples: ["N(3, 4)", "N(7), 5, 0, 'ortho'", "N(2, 5, 3), 8, 1, 'forward'", "I(0, 9, 6)"],
                example: [
                    "let made = fft_hfft(&tensor([(1.0, 0.0), (2.0, 1.0)])?, Some(3), -1, None)?;",
                    "assert_close(made, [5.0, 0.73205, -2.73205]);",
                ],
            }
            /// The inverse of [`fft_hfft`]: of real numbers, the first half.
            function fft_ihfft(input: Tensor, n: OptInt = None, dim: Dim = -1, norm: OptText = None) -> Tensor {
                out: rule, flags: [steps], amp: FullCpu, dtypes: WIDE.and(DTypes::INTEGRAL), result: Own,
                run: line["ihfft", Kind::FromReal, false], torch: "fft.ihfft",
                samples: ["N(3, 4)", "N(7), 5, 0, 'ortho'", "N(2, 5, 3), 8, 1, 'forward'", "I(0, 9, 6)"],
                example: [
                    "let made = fft_ihfft(&tensor([5.0, 0.73205, -2.73205])?, None, -1, None)?;",
                    "assert_close(made, [(1.0, 0.0), (2.0, 1.0)]);",
                ],
            }
            /// [`fft_fft`] along two dimensions, of which `s` elements are taken.
            function fft_fft2(input: Tensor, s: OptDims = None, dim: Dims = &[-2, -1], norm: OptText = None) -> Tensor {
                out: rule, flags: [steps], amp: FullCpu, dtypes: FACTORED.and(DTypes::INTEGRAL), result: Own,
                run: plane["fft2", Kind::Complex, true], torch: "fft.fft2",
                samples: ["N(3, 4)", "N(2, 5, 3), (4, -1), (0, 1), 'ortho'", "N(3, 5), (2, 7), (1, 0), 'forward'"],
                example: [
                    "let made = fft_fft2(&tensor([[1.0, 2.0], [3.0, 4.0]])?, None, &[-2, -1], None)?.abs()?;",
                    "assert_close(made, [[10.0, 2.0], [4.0, 0.0]]);",
                ],
            }
            /// The inverse of [`fft_fft2`].
            function fft_ifft2(
                input: Tensor, s: OptDims = None, dim: Dims = &[-2, -1], norm: OptText = None
            ) -> Tensor {
                out: rule, flags: [steps], amp: FullCpu, dtypes: FACTORED.and(DTypes::INTEGRAL), result: Own,
                run: plane["ifft2", Kind::Complex, false], torch: "fft.ifft2",
                samples: ["N(3, 4)", "N(2, 5, 3), (4, -1), (0, 1), 'ortho'", "N(3, 5), (2, 7), (1, 0), 'forward'"],
                example: [
                    "let made = fft_ifft2(&tensor([[4.0, 0.0], [0.0, 0.0]])?, None, &[-2, -1], None)?.abs()?;",
                    "assert_close(made, [[1.0, 1.0], [1.0, 1.0]]);",
                ],
            }
            /// [`fft_rfft`] along the second of two dimensions, and [`fft_fft`] along the first.
            function fft_rfft2(
                input: Tensor, s: OptDims = None, dim: Dims = &[-2, -1], norm: OptText = None
            ) -> Tensor {
                out: rule, flags: [steps], amp: FullCpu, dtypes: WIDE.and(DTypes::INTEGRAL), result: Own,
                run: plane["rfft2", Kind::FromReal, true], torch: "fft.rfft2",
                samples: ["N(3, 4)", "N(2, 5, 3), (4, -1), (0, 1), 'ortho'", "N(3, 5), (2, 7), (1, 0), 'forward'"],
                example: [
                    "let made = fft_rfft2(&tensor([[1.0, 2.0], [3.0, 4.0]])?, None, &[-2, -1], None)?.abs()?;",
                    "assert_close(made, [[10.0, 2.0], [4.0, 0.0]]);",
                ],
            }
            /// The inverse of [`fft_rfft2`].
            function fft_irfft2(
                input: Tensor, s: OptDims = None, dim: Dims = &[-2, -1], norm: OptText = None
            ) -> Tensor {
                out: rule, flags: [steps], amp: FullCpu, dtypes: FACTORED.and(DTypes::INTEGRAL), result: Own,
                run: plane["irfft2", Kind::ToReal, false], torch: "fft.irfft2",
                samples: ["N(3, 4)", "N(2, 5, 3), (4, -1), (0, 1), 'ortho'", "N(3, 5), (2, 7), (1, 0), 'forward'"],
                example: [
                    "let made = fft_irfft2(&tensor([[10.0, -2.0], [-4.0, 0.0]])?, None, &[-2, -1], None)?;",
                    "assert_close(made, [[1.0, 2.0], [3.0, 4.0]]);",
                ],
            }
            /// [`fft_hfft`] along the second of two dimensions, after [`fft_fft`] along the first.
            function fft_hfft2(
                input: Tensor, s: OptDims = None, dim: Dims = &[-2, -1], norm: OptText = None
            ) -> Tensor {
                out: rule, flags: [steps], dtypes: FACTORED.and(DTypes::INTEGRAL), result: Own,
                run: plane["hfft2", Kind::ToReal, true], torch: "fft.hfft2",
                samples: ["N(3, 4)", "N(2, 5, 3), (4, -1), (0, 1), 'ortho'", "N(3, 5), (2, 7), (1, 0), 'forward'"],
                example: [
                    "let made = fft_hfft2(&tensor([[1.0, 0.0], [0.0, 0.0]])?, None, &[-2, -1], None)?;",
                    "assert_close(made, [[1.0, 1.0], [1.0, 1.0]]);",
                ],
            }
            /// The inverse of [`fft_hfft2`].
            function fft_ihfft2(
                input: Tensor, s: OptDims = None, dim: Dims = &[-2, -1], norm: OptText = None
            ) -> Tensor {
                out: rule, flags: [steps], dtypes: WIDE.and(DTypes::INTEGRAL), result: Own,
                run: plane["ihfft2", Kind::FromReal, false], torch: "fft.ihfft2",
                samples: ["N(3, 4)", "N(2, 5, 3), (4, -1), (0, 1), 'ortho'", "N(3, 5), (2, 7), (1, 0), 'forward'"],
                example: [
                    "let made = fft_ihfft2(&tensor([[1.0, 1.0], [1.0, 1.0]])?, None, &[-2, -1], None)?.abs()?;",
                    "assert_close(made, [[1.0, 0.0], [0.0, 0.0]]);",
                ],
            }
            /// [`fft_fft`] along `dim`, of which `s` elements are taken: without either along all dimensions, with
            /// `s` alone along the last ones.
            function fft_fftn(input: Tensor, s: OptDims = None, dim: OptDims = None, norm: OptText = None) -> Tensor {
                out: rule, flags: [steps], amp: FullCpu, dtypes: FACTORED.and(DTypes::INTEGRAL), result: Own,
                run: grid["fftn", Kind::Complex, true], torch: "fft.fftn",
                samples: [
                    "N(3, 4)",
                    "N(2, 5, 3), None, (0, 2), 'ortho'",
                    "N(2, 5, 3), (4, 2), None, 'forward'",
                    "N()",
                    "N(2, 3), None, ()",
                ],
                example: [
                    "let made = fft_fftn(&tensor([[1.0, 2.0], [3.0, 4.0]])?, None, None, None)?.abs()?;",
                    "assert_close(made, [[10.0, 2.0], [4.0, 0.0]]);",
                ],
            }
            /// The inverse of [`fft_fftn`].
            function fft_ifftn(input: Tensor, s: OptDims = None, dim: OptDims = None, norm: OptText = None) -> Tensor {
                out: rule, flags: [steps], amp: FullCpu, dtypes: FACTORED.and(DTypes::INTEGRAL), result: Own,
                run: grid["ifftn", Kind::Complex, false], torch: "fft.ifftn",
                samples: ["N(3, 4)", "N(2, 5, 3), None, (0, 2), 'ortho'", "N(2, 5, 3), (4, 2), None, 'forward'"],
                example: [
                    "let made = fft_ifftn(&tensor([[4.0, 0.0], [0.0, 0.0]])?, None, None, None)?.abs()?;",
                    "assert_close(made, [[1.0, 1.0], [1.0, 1.0]]);",
                ],
            }
            /// [`fft_rfft`] along the last of `dim`, and [`fft_fft`] along the others.
            function fft_rfftn(input: Tensor, s: OptDims = None, dim: OptDims = None, norm: OptText = None) -> Tensor {
                out: rule, flags: [steps], amp: FullCpu, dtypes: WIDE.and(DTypes::INTEGRAL), result: Own,
                run: grid["rfftn", Kind::FromReal, true], torch: "fft.rfftn",
                samples: [
                    "N(3, 4)",
                    "N(2, 5, 3), None, (0, 2), 'ortho'",
                    "N(2, 5, 3), (4, 2), None, 'forward'",
                    "N(2, 4, 3), None, (2, 0, 1)",
                ],
                example: [
                    "let made = fft_rfftn(&tensor([[1.0, 2.0], [3.0, 4.0]])?, None, None, None)?.abs()?;",
                    "assert_close(made, [[10.0, 2.0], [4.0, 0.0]]);",
                ],
            }
            /// The inverse of [`fft_rfftn`].
            function fft_irfftn(input: Tensor, s: OptDims = None, dim: OptDims = None, norm: OptText = None) -> Tensor {
                out: rule, flags: [steps], amp: FullCpu, dtypes: FACTORED.and(DTypes::INTEGRAL), result: Own,
                run: grid["irfftn", Kind::ToReal, false], torch: "fft.irfftn",
                samples: ["N(3, 4)", "N(2, 5, 3), None, (0, 2), 'ortho'", "N(2, 5, 3), (4, 5), None, 'forward'"],
                example: [
                    "let made = fft_irfftn(&tensor([[10.0, -2.0], [-4.0, 0.0]])?, None, None, None)?;",
                    "assert_close(made, [[1.0, 2.0], [3.0, 4.0]]);",
                ],
            }
            /// [`fft_hfft`] along the last of `dim`, after [`fft_fft`] along the others.
            function fft_hfftn(input: Tensor, s: OptDims = None, dim: OptDims = None, norm: OptText = None) -> Tensor {
                out: rule, flags: [steps], dtypes: FACTORED.and(DTypes::INTEGRAL), result: Own,
                run: grid["hfftn", Kind::ToReal, true], torch: "fft.hfftn",
                samples: ["N(3, 4)", "N(2, 5, 3), None, (0, 2), 'ortho'", "N(2, 5, 3), (4, 5), None, 'forward'"],
                example: [
                    "let made = fft_hfftn(&tensor([[1.0, 0.0], [0.0, 0.0]])?, None, None, None)?;",
                    "assert_close(made, [[1.0, 1.0], [1.0, 1.0]]);",
                ],
            }
            /// The inverse of [`fft_hfftn`].
            function fft_ihfftn(input: Tensor, s: OptDims = None, dim: OptDims = None, norm: OptText = None) -> Tensor {
                out: rule, flags: [steps], dtypes: WIDE.and(DTypes::INTEGRAL), result: Own,
                run: grid["ihfftn", Kind::FromReal, false], torch: "fft.ihfftn",
                samples: ["N(3, 4)", "N(2, 5, 3), None, (0, 2), 'ortho'", "N(2, 5, 3), (4, 5), None, 'forward'"],
                example: [
                    "let made = fft_ihfftn(&tensor([[1.0, 1.0], [1.0, 1.0]])?, None, None, None)?.abs()?;",
                    "assert_close(made, [[1.0, 0.0], [0.0, 0.0]]);",
                ],
            }
            /// The frequencies of the elements that [`fft_fft`] gives of `n` samples, which are `d` apart: `0, 1, …,
            /// -2, -1`, over `n d`.
            function fft_fftfreq(n: Int, d: Float = 1.0; dtype: OptDtype = None, device: OptDevice = None) -> Tensor {
                call: creates, dtypes: FLOAT, result: Own,
                run: frequencies["fftfreq", false], torch: "fft.fftfreq",
                samples: ["5", "6, 0.5", "0", "1", "7, dtype=DT.float64"],
                example: ["assert_close(fft_fftfreq(4, 1.0, None, None)?, [0.0, 0.25, -0.5, -0.25]);"],
            }
            /// The frequencies of the elements that [`fft_rfft`] gives: `0, 1, …, n / 2`, over `n d`.
            function fft_rfftfreq(n: Int, d: Float = 1.0; dtype: OptDtype = None, device: OptDevice = None) -> Tensor {
                call: creates, dtypes: FLOAT, result: Own,
                run: frequencies["rfftfreq", true], torch: "fft.rfftfreq",
                samples: ["5", "6, 0.5", "1", "7, dtype=DT.float64"],
                example: ["assert_close(fft_rfftfreq(4, 1.0, None, None)?, [0.0, 0.25, 0.5]);"],
            }
            /// The elements rolled by half the size along `dim`, by default all, so that the frequency 0 comes to the
            /// middle.
            function fft_fftshift(input: Tensor, dim: OptDims = None) -> Tensor {
                out: none, flags: [steps], dtypes: ALL, result: Same,
                run: shifted[false], torch: "fft.fftshift",
                samples: ["N(5)", "N(3, 4)", "N(2, 4, 3), (0, 2)", "I(0, 9, 6), 0"],
                example: ["assert_close(fft_fftshift(&tensor([0, 1, -2, -1])?, None)?, [-2, -1, 0, 1]);"],
            }
            /// The inverse of [`fft_fftshift`], which is another one for odd sizes.
            function fft_ifftshift(input: Tensor, dim: OptDims = None) -> Tensor {
                out: none, flags: [steps], dtypes: ALL, result: Same,
                run: shifted[true], torch: "fft.ifftshift",
                samples: ["N(5)", "N(3, 4)", "N(2, 4, 3), (0, 2)", "I(0, 9, 6), 0"],
                example: ["assert_close(fft_ifftshift(&tensor([-1, 0, 1])?, None)?, [0, 1, -1]);"],
            }
        }
    };
}
transform_ops!(define_composites);

/// What is complex.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    /// Both sides.
    Complex,
    /// The result, of which half is there.
    FromReal,
    /// The input, of which half is there.
    ToReal,
}

/// What `norm` says of a direction.
fn normalization(op: &'static str, norm: Option<&str>, forward: bool) -> Result<Normalization> {
    match norm {
        None | Some("backward") if forward => Ok(Normalization::Nothing),
        None | Some("backward") => Ok(Normalization::N),
        Some("forward") if forward => Ok(Normalization::N),
        Some("forward") => Ok(Normalization::Nothing),
        Some("ortho") => Ok(Normalization::RootN),
        Some(other) => Err(Error::runtime(
            op,
            format!("Invalid normalization mode: \"{other}\"; it is \"backward\", \"ortho\" or \"forward\""),
        )),
    }
}

/// The numbers in a dtype that is transformed; complex ones where they have to be.
fn promoted(op: &'static str, x: &Tensor, kind: Kind) -> Result<Tensor> {
    if kind == Kind::FromReal && x.dtype().is_complex() {
        let why = format!("{op} expects a real input tensor, but got {}; take its real part", x.dtype());
        return Err(Error::dtype(op, why, &[x.dtype()]));
    }
    let dtype = if x.dtype().is_integral() { crate::default_dtype() } else { x.dtype() };
    if dtype.is_half() {
        let why = format!("Unsupported dtype {dtype}; cast to float32");
        return Err(Box::new(Error::UnsupportedDtype { op, why: why.into(), dtypes: vec![x.dtype()] }));
    }
    x.cast(if kind == Kind::ToReal { dtype.to_complex() } else { dtype })
}

/// The first elements along the axes, as many as are asked for, with zeros behind where there are fewer.
fn resized(x: &Tensor, axes: &[usize], sizes: &[usize]) -> Result<Tensor> {
    let mut y = x.clone();
    let mut pad = [0isize; 2].repeat(x.ndim());
    for (&axis, &size) in axes.iter().zip(sizes) {
        match x.shape()[axis] {
            n if n > size => y = y.narrow(axis as isize, 0, size as i64)?,
            n => pad[2 * (x.ndim() - 1 - axis) + 1] = isize::try_from(size - n).unwrap_or(isize::MAX),
        }
    }
    match pad.iter().all(|&n| n == 0) {
        true => Ok(y),
        false => crate::ops::index::constant_pad_nd(&y, &pad, Scalar::ZERO),
    }
}

/// Conjugated, if asked for.
fn conjugated_if(turned: bool, x: &Tensor) -> Result<Tensor> {
    if turned {
        x.conjugated()
    } else {
        Ok(x.clone())
    }
}

fn line(
    op: &'static str,
    kind: Kind,
    forward: bool,
    x: &Tensor,
    n: Option<i64>,
    dim: isize,
    norm: Option<&str>,
) -> Result<Tensor> {
    let x = promoted(op, x, kind)?;
    let axes = shape::wrap_own_dims(op, &[dim], x.ndim())?;
    let size = x.shape()[axes[0]];
    let n = points(op, n.unwrap_or(if kind == Kind::ToReal { 2 * (size as i64 - 1) } else { size as i64 }))?;
    let taken = if kind == Kind::ToReal { n / 2 + 1 } else { n };
    let x = if taken == size { x } else { resized(&x, &axes, &[taken])? };
    transformed(kind, forward, &x, axes, normalization(op, norm, forward)?, n)
}

fn plane(
    op: &'static str,
    kind: Kind,
    forward: bool,
    x: &Tensor,
    s: Option<&[isize]>,
    dim: &[isize],
    norm: Option<&str>,
) -> Result<Tensor> {
    grid(op, kind, forward, x, s, Some(dim), norm)
}

fn grid(
    op: &'static str,
    kind: Kind,
    forward: bool,
    x: &Tensor,
    s: Option<&[isize]>,
    dim: Option<&[isize]>,
    norm: Option<&str>,
) -> Result<Tensor> {
    let x = promoted(op, x, kind)?;
    let axes = dims(op, &x, s, dim)?;
    if kind != Kind::Complex && axes.is_empty() {
        return Err(Error::runtime(op, format!("{op} must transform at least one axis")));
    }
    let mut sizes = Vec::new();
    let mut n = 0;
    for (i, &axis) in axes.iter().enumerate() {
        let (own, asked) = (x.shape()[axis] as i64, s.map_or(-1, |s| s[i]) as i64);
        let halved = kind == Kind::ToReal && i + 1 == axes.len();
        let size = match asked {
            -1 if halved => 2 * (own - 1),
            -1 => own,
            asked => asked,
        };
        n = points(op, size)?;
        sizes.push(if halved { n / 2 + 1 } else { n });
    }
    let x = resized(&x, &axes, &sizes)?;
    transformed(kind, forward, &x, axes, normalization(op, norm, forward)?, n)
}

/// The dimensions that are transformed.
fn dims(op: &'static str, x: &Tensor, s: Option<&[isize]>, dim: Option<&[isize]>) -> Result<Axes> {
    if let Some(dim) = dim {
        if s.is_some_and(|s| s.len() != dim.len()) {
            return Err(Error::runtime(op, "When given, dim and shape arguments must have the same length"));
        }
        let mut axes = Axes::new();
        for &dim in dim {
            let axis = shape::wrap_own_dims(op, &[dim], x.ndim())?[0];
            if axes.contains(&axis) {
                return Err(Error::runtime(op, format!("FFT dims must be unique, got {axis} twice")));
            }
            axes.push(axis);
        }
        return Ok(axes);
    }
    let count = s.map_or(x.ndim(), <[isize]>::len);
    if count > x.ndim() {
        let why = format!("Got shape with {count} values but input tensor only has {} dimensions.", x.ndim());
        return Err(Error::runtime(op, why));
    }
    Ok((x.ndim() - count..x.ndim()).collect())
}

/// The transform of `x`, which has its sizes; `n` is the result's where it is real.
fn transformed(
    kind: Kind,
    forward: bool,
    x: &Tensor,
    mut axes: Axes,
    normalization: Normalization,
    n: usize,
) -> Result<Tensor> {
    match kind {
        Kind::Complex if x.dtype().is_complex() => c2c(x, axes, normalization, forward),
        Kind::Complex if axes.is_empty() => x.cast(x.dtype().to_complex()),
        // All of it follows from half; lanes are the elements next to one another.
        Kind::Complex => {
            axes.sort_by_key(|&axis| std::cmp::Reverse(x.strides()[axis]));
            conjugated_if(!forward, &r2c(x, axes, normalization, false)?)
        }
        Kind::FromReal if forward => r2c(x, axes, normalization, true),
        Kind::FromReal => {
            let last = axes.split_off_last();
            let halves = r2c(x, last, normalization, true)?.conjugated()?;
            if axes.is_empty() {
                Ok(halves)
            } else {
                c2c(&halves, axes, normalization, false)
            }
        }
        Kind::ToReal if forward => {
            let last = axes.split_off_last();
            let x = if axes.is_empty() { x.clone() } else { c2c(x, axes, normalization, true)? };
            c2r(&x.conjugated()?, last, normalization, n)
        }
        Kind::ToReal => c2r(x, axes, normalization, n),
    }
}

/// The last of a list of dimensions, taken off.
trait SplitOffLast {
    fn split_off_last(&mut self) -> Axes;
}

impl SplitOffLast for Axes {
    fn split_off_last(&mut self) -> Axes {
        self.pop().into_iter().collect()
    }
}

fn frequencies(
    op: &'static str,
    half: bool,
    n: i64,
    d: f64,
    dtype: Option<DType>,
    device: Option<Device>,
) -> Result<Tensor> {
    let dtype = dtype.unwrap_or(crate::default_dtype());
    if !dtype.is_float() {
        return Err(Error::runtime(op, format!("{op} requires a floating point dtype, got {dtype}")));
    }
    let device = device.unwrap_or(crate::default_device());
    crate::ops::create::sizes(op, &[n as isize])?;
    let count = |from: i64, to: i64| crate::ops::create::arange(from, Some(to.into()), 1, Some(dtype), Some(device));
    let places = match half {
        true => count(0, n / 2 + 1)?,
        false => crate::ops::index::cat(&[count(0, (n + 1) / 2)?, count(-(n / 2), 0)?], 0)?,
    };
    &places * (1.0 / (n as f64 * d))
}

fn shifted(back: bool, x: &Tensor, dim: Option<&[isize]>) -> Result<Tensor> {
    let op = if back { "ifftshift" } else { "fftshift" };
    let all: Vec<isize> = (0..x.ndim() as isize).collect();
    let dim = dim.unwrap_or(&all);
    let mut shifts = Vec::new();
    for &dim in dim {
        let n = x.shape().get(shape::wrap_dim(op, dim, x.ndim())?).copied().unwrap_or(1);
        shifts.push((if back { n.div_ceil(2) } else { n / 2 }) as isize);
    }
    x.roll(&shifts, Some(dim))
}
