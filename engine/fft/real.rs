//! Transforms between real numbers and the half of a spectrum that its symmetry leaves.
//!
//! Depends on `plans`, `lanes`, `columns` and `transform`.

use crate::columns::for_rows;
use crate::lanes::Rows;
use crate::transform::{along_others, times, GRAIN};
use crate::{plans, Pool, Real, Source};
use lucid_core::fallible::scratch;
use lucid_core::{Error, Result};
use num_complex::Complex;

/// The forward transform of real numbers along the last `axes` dimensions, times `scale`. `out` is row-major and of
/// the source's shape, but that the last dimension has `n / 2 + 1` elements where `onesided`; else all `n`, which are
/// conjugates of one another.
///
/// # Errors
/// As [`complex_to_complex`](crate::complex_to_complex).
pub fn real_to_complex<T: Real>(
    source: Source<'_, T>,
    out: &mut [Complex<T>],
    axes: usize,
    onesided: bool,
    scale: f64,
    pool: Pool<'_>,
) -> Result<()> {
    if out.is_empty() {
        return Ok(());
    }
    let rows = Rows::new(source);
    let half = rows.n / 2 + 1;
    let zero = Complex::new(T::zero(), T::zero());
    if axes == 1 {
        let width = if onesided { half } else { rows.n };
        return each_row(&rows, out, width, scale, pool);
    }
    let mut shape: Vec<usize> = source.shape.to_vec();
    if let Some(last) = shape.last_mut() {
        *last = half;
    }
    if onesided {
        each_row(&rows, out, half, 1.0, pool)?;
        return along_others(out, &shape, axes, false, scale, pool);
    }
    let mut halves = lucid_core::fallible::filled(zero, shape.iter().product())?;
    each_row(&rows, &mut halves, half, 1.0, pool)?;
    along_others(&mut halves, &shape, axes, false, scale, pool)?;
    let mirror = Mirror { halves: &halves, shape: &shape, axes };
    for_rows(out, rows.n, (GRAIN / rows.n).max(1), pool, |first, out| {
        for (i, row) in out.chunks_mut(rows.n).enumerate() {
            mirror.fill(first + i, row);
        }
    });
    Ok(())
}

/// Every row transformed, of which `width` elements are written.
fn each_row<T: Real>(
    rows: &Rows<'_, T>,
    out: &mut [Complex<T>],
    width: usize,
    scale: f64,
    pool: Pool<'_>,
) -> Result<()> {
    let (n, half) = (rows.n, rows.n / 2 + 1);
    let plan = plans::from_real::<T>(n)?;
    let failed = parking_lot::Mutex::new(None);
    for_rows(out, width, (GRAIN / n).max(1), pool, |first, out| {
        let mut lanes = scratch(T::zero(), n * LANES.min(out.len() / width));
        let mut room = scratch(Complex::new(T::zero(), T::zero()), plan.get_scratch_len());
        for (i, block) in out.chunks_mut(width * LANES).enumerate() {
            let count = block.len() / width;
            rows.copy_to(first + i * LANES, &mut lanes[..count * n], n, |x| x);
            for (x, y) in lanes.chunks_mut(n).zip(block.chunks_mut(width)) {
                if let Err(e) = plan.process_with_scratch(x, &mut y[..half], &mut room) {
                    *failed.lock() = Some(e);
                }
                times(&mut y[..half], scale);
                let (known, rest) = y.split_at_mut(half);
                rest.iter_mut().zip(known[1..n.div_ceil(2)].iter().rev()).for_each(|(o, x)| *o = x.conj());
            }
        }
    });
    refused(failed.into_inner())
}

/// Rows that are gathered at a time.
const LANES: usize = 8;

fn refused(failed: Option<realfft::FftError>) -> Result<()> {
    failed.map_or(Ok(()), |e| Err(Error::runtime("fft", e.to_string())))
}

/// The halves of spectra along several dimensions.
struct Mirror<'a, T> {
    halves: &'a [Complex<T>],
    shape: &'a [usize],
    axes: usize,
}

impl<T: Real> Mirror<'_, T> {
    /// Writes all of row `i`: the half that is known, and the conjugates of the row that is its mirror image.
    fn fill(&self, i: usize, out: &mut [Complex<T>]) {
        let (n, half) = (out.len(), out.len() / 2 + 1);
        let (mut rest, mut other, mut pitch) = (i, 0, 1);
        let lead = self.shape.len() - 1;
        for (axis, &size) in self.shape[..lead].iter().enumerate().rev() {
            let at = rest % size;
            rest /= size;
            let mirrored = if axis + self.axes > lead { (size - at) % size } else { at };
            other += mirrored * pitch;
            pitch *= size;
        }
        out[..half].copy_from_slice(&self.halves[i * half..(i + 1) * half]);
        let image = &self.halves[other * half..(other + 1) * half];
        for (k, o) in out.iter_mut().enumerate().skip(half) {
            *o = image[n - k].conj();
        }
    }
}

/// Real numbers of the halves of their spectra, along the last dimension, times `scale`: the inverse transform, which
/// has a plus in the exponent. The source's last dimension has `n / 2 + 1` elements and that of `out`, row-major,
/// `n`. Imaginary parts that the symmetry says are 0 are not read.
///
/// # Errors
/// As [`complex_to_complex`](crate::complex_to_complex).
pub fn complex_to_real<T: Real>(
    source: Source<'_, Complex<T>>,
    out: &mut [T],
    n: usize,
    scale: f64,
    pool: Pool<'_>,
) -> Result<()> {
    if out.is_empty() {
        return Ok(());
    }
    let rows = Rows::new(source);
    let half = rows.n;
    let plan = plans::to_real::<T>(n)?;
    let (failed, zero) = (parking_lot::Mutex::new(None), Complex::new(T::zero(), T::zero()));
    let scale = T::of(scale);
    for_rows(out, n, (GRAIN / n).max(1), pool, |first, out| {
        let mut lanes = scratch(zero, half * LANES.min(out.len() / n));
        let mut room = scratch(zero, plan.get_scratch_len());
        for (i, block) in out.chunks_mut(n * LANES).enumerate() {
            let count = block.len() / n;
            let scaled = |x: Complex<T>| Complex::new(x.re * scale, x.im * scale);
            rows.copy_to(first + i * LANES, &mut lanes[..count * half], half, scaled);
            for (x, y) in lanes.chunks_mut(half).zip(block.chunks_mut(n)) {
                x[0].im = T::zero();
                if n.is_multiple_of(2) {
                    x[half - 1].im = T::zero();
                }
                if let Err(e) = plan.process_with_scratch(x, y, &mut room) {
                    *failed.lock() = Some(e);
                }
            }
        }
    });
    refused(failed.into_inner())
}
