//! Complex transforms along the last dimensions.
//!
//! The last dimension is transformed row by row, from the source into the result; the others column by column in the
//! result, a block of columns at a time. Depends on `plans`, `lanes` and `columns`.

use crate::columns::{for_columns, for_rows};
use crate::lanes::{gather, scatter, Rows};
use crate::{plans, Pool, Real, Source};
use lucid_core::fallible::scratch;
use lucid_core::Result;
use num_complex::Complex;
use rustfft::Fft;

/// Elements that one task has at least.
pub(crate) const GRAIN: usize = 16 << 10;
/// Bytes of columns that are transformed at once: they and their transforms stay in the second cache.
const BLOCK: usize = 128 << 10;
/// Bytes of a row of such a block at least: of two cache lines, which processors load together.
const LINE: usize = 128;

/// The discrete Fourier transform along the last `axes` dimensions, each at least of size 1, times `scale`; forward
/// has a minus in the exponent. `out` is row-major and of the source's shape.
///
/// # Errors
/// `OutOfMemory`; the same unwinds where threads find no memory, see `lucid_core::fallible::kernel`.
pub fn complex_to_complex<T: Real>(
    source: Source<'_, Complex<T>>,
    out: &mut [Complex<T>],
    axes: usize,
    inverse: bool,
    scale: f64,
    pool: Pool<'_>,
) -> Result<()> {
    if out.is_empty() {
        return Ok(());
    }
    let rows = Rows::new(source);
    let plan = plans::complex::<T>(rows.n, inverse)?;
    let last = if axes == 1 { scale } else { 1.0 };
    for_rows(out, rows.n, (GRAIN / rows.n).max(1), pool, |first, out| transform_rows(&*plan, &rows, first, out, last));
    along_others(out, source.shape, axes, inverse, scale, pool)
}

/// Rows of the source from `first` on, transformed.
fn transform_rows<T: Real>(
    plan: &dyn Fft<T>,
    rows: &Rows<'_, Complex<T>>,
    first: usize,
    out: &mut [Complex<T>],
    scale: f64,
) {
    let (n, zero) = (rows.n, Complex::new(T::zero(), T::zero()));
    if let Some(dense) = rows.dense(first, out.len() / n) {
        let mut room = scratch(zero, plan.get_immutable_scratch_len());
        plan.process_immutable_with_scratch(dense, out, &mut room);
    } else {
        rows.copy_to(first, out, n, |x| x);
        let mut room = scratch(zero, plan.get_inplace_scratch_len());
        plan.process_with_scratch(out, &mut room);
    }
    times(out, scale);
}

/// Multiplies by a number, unless it is 1.
pub(crate) fn times<T: Real>(out: &mut [Complex<T>], scale: f64) {
    if scale != 1.0 {
        let scale = T::of(scale);
        out.iter_mut().for_each(|x| *x = Complex::new(x.re * scale, x.im * scale));
    }
}

/// Transforms `out`, row-major of this shape, in place along the last `axes` dimensions but the very last.
pub(crate) fn along_others<T: Real>(
    out: &mut [Complex<T>],
    shape: &[usize],
    axes: usize,
    inverse: bool,
    scale: f64,
    pool: Pool<'_>,
) -> Result<()> {
    let first = shape.len() - axes;
    for axis in (first..shape.len() - 1).rev() {
        let (n, inner) = (shape[axis], shape[axis + 1..].iter().product::<usize>());
        let plan = plans::complex::<T>(n, inverse)?;
        let scale = if axis == first { scale } else { 1.0 };
        transform_columns(&*plan, out, n, inner, scale, pool);
    }
    Ok(())
}

fn transform_columns<T: Real>(
    plan: &dyn Fft<T>,
    out: &mut [Complex<T>],
    n: usize,
    inner: usize,
    scale: f64,
    pool: Pool<'_>,
) {
    let size = size_of::<Complex<T>>();
    let width = (BLOCK / (n * size)).max(LINE / size).min(64);
    // Rows of the block that are a power of two apart would fall on the same lines of cache.
    let (pitch, zero) = (n + LINE / size / 2, Complex::new(T::zero(), T::zero()));
    let each = (GRAIN / (n * width.min(inner))).max(1);
    for_columns(out, (n, inner), width, each, pool, |blocks| {
        let mut room = scratch(zero, plan.get_outofplace_scratch_len());
        let (mut lanes, mut made) = (scratch(zero, pitch * width), scratch(zero, pitch * width));
        for mut block in blocks {
            gather(&block, &mut lanes, pitch);
            for (x, y) in lanes.chunks_mut(pitch).zip(made.chunks_mut(pitch)).take(block.width()) {
                plan.process_outofplace_with_scratch(&mut x[..n], &mut y[..n], &mut room);
                times(&mut y[..n], scale);
            }
            scatter(&made, pitch, &mut block);
        }
    });
}
