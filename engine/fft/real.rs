//! Transforms between real numbers and the half of a spectrum that its symmetry leaves.
//!
//! An even number of them is taken for half as many complex numbers, whose transform `butterfly` twiddles into theirs.
//! Depends on `plans`, `butterfly`, `lanes`, `columns` and `transform`.

use crate::batch::{Batch, Room, ROWS};
use crate::butterfly::{butterflies, butterflies_of, pairs, pairs_mut};
use crate::columns::for_rows;
use crate::lanes::Rows;
use crate::plans::{self, RealPlan};
use crate::transform::{along_others, times, GRAIN};
use crate::{Pool, Real, Source};
use lucid_core::fallible::scratch;
use lucid_core::shape::contiguous_strides;
use lucid_core::Result;
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
    let plan = plans::real::<T>(n, false)?;
    for_rows(out, width, (GRAIN / n).max(1), pool, |first, out| {
        let count = out.len() / width;
        let dense = rows.dense(first, count);
        let mut lanes = scratch(T::zero(), if dense.is_some() { 0 } else { n * ROWS.min(count) });
        let mut room = scratch(Complex::new(T::zero(), T::zero()), plan.room());
        let (batch, mut wide) = plan.batch(count);
        for (i, block) in out.chunks_mut(width * ROWS).enumerate() {
            let count = block.len() / width;
            let x = match dense {
                Some(x) => &x[i * ROWS * n..][..count * n],
                None => {
                    rows.copy_to(first + i * ROWS, &mut lanes[..count * n], n, |x| x);
                    &lanes[..count * n]
                }
            };
            let batch = batch.filter(|_| count == ROWS);
            if let Some(batch) = batch {
                T::forward(batch, x, block, width, &mut wide, T::of(scale));
            }
            for (x, y) in x.chunks(n).zip(block.chunks_mut(width)) {
                if batch.is_none() {
                    plan.forward(x, &mut y[..half], &mut room, scale);
                }
                let (known, rest) = y.split_at_mut(half);
                rest.iter_mut().zip(known[1..n.div_ceil(2)].iter().rev()).for_each(|(o, x)| *o = x.conj());
            }
        }
    });
    Ok(())
}

impl<T: Real> RealPlan<T> {
    /// Elements that a row needs to work in.
    fn room(&self) -> usize {
        match self {
            RealPlan::Even { fft, .. } => fft.len() + fft.get_immutable_scratch_len(),
            RealPlan::Odd(fft) => fft.len() + fft.get_inplace_scratch_len(),
        }
    }

    /// The plan of whole batches, where so many rows have one, and what it works in.
    fn batch(&self, rows: usize) -> (Option<&Batch>, Room) {
        let batch = match self {
            RealPlan::Even { batch, .. } if rows >= ROWS => batch.as_deref(),
            _ => None,
        };
        (batch, Room::of(batch))
    }

    /// The first half of a row's spectrum, times `scale`.
    fn forward(&self, x: &[T], y: &mut [Complex<T>], room: &mut [Complex<T>], scale: f64) {
        match self {
            RealPlan::Even { fft, twiddles, .. } => {
                let m = fft.len();
                fft.process_immutable_with_scratch(pairs(x), &mut y[..m], room);
                let (sum, difference) = (y[0].re + y[0].im, y[0].re - y[0].im);
                butterflies(&mut y[..m], twiddles, T::of(scale / 2.0));
                y[0] = Complex::new(sum * T::of(scale), T::zero());
                y[m] = Complex::new(difference * T::of(scale), T::zero());
            }
            RealPlan::Odd(fft) => {
                let (all, room) = room.split_at_mut(fft.len());
                all.iter_mut().zip(x).for_each(|(o, &x)| *o = Complex::new(x, T::zero()));
                fft.process_with_scratch(all, room);
                y.copy_from_slice(&all[..y.len()]);
                y[0].im = T::zero();
                times(y, scale);
            }
        }
    }

    /// The row whose spectrum's first half is `x`, times `scale`.
    fn inverse(&self, x: &[Complex<T>], y: &mut [T], room: &mut [Complex<T>], scale: T) {
        match self {
            RealPlan::Even { fft, twiddles, .. } => {
                let m = fft.len();
                let (halves, room) = room.split_at_mut(m);
                let (first, last) = (x[0].re * scale, x[m].re * scale);
                halves[0] = Complex::new(first + last, first - last);
                butterflies_of(x, halves, twiddles, scale);
                fft.process_immutable_with_scratch(halves, pairs_mut(y), room);
            }
            RealPlan::Odd(fft) => {
                let (all, room) = room.split_at_mut(fft.len());
                all[0] = Complex::new(x[0].re * scale, T::zero());
                let (low, high) = all[1..].split_at_mut(x.len() - 1);
                for ((low, high), x) in low.iter_mut().zip(high.iter_mut().rev()).zip(&x[1..]) {
                    *low = x.scale(scale);
                    *high = low.conj();
                }
                fft.process_with_scratch(all, room);
                y.iter_mut().zip(all).for_each(|(o, x)| *o = x.re);
            }
        }
    }
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

/// Real numbers of the halves of their spectra, along the last `axes` dimensions, times `scale`: the inverse transform,
/// which has a plus in the exponent. The source's last dimension has `n / 2 + 1` elements and that of `out`, row-major,
/// `n`; the others are transformed before it. Imaginary parts that the symmetry says are 0 are not read.
///
/// # Errors
/// As [`complex_to_complex`](crate::complex_to_complex).
pub fn complex_to_real<T: Real>(
    source: Source<'_, Complex<T>>,
    out: &mut [T],
    axes: usize,
    n: usize,
    scale: f64,
    pool: Pool<'_>,
) -> Result<()> {
    if out.is_empty() {
        return Ok(());
    }
    let rows = Rows::new(source);
    if axes > 1 {
        let shape = source.shape;
        let mut halves = lucid_core::fallible::filled(Complex::new(T::zero(), T::zero()), shape.iter().product())?;
        for_rows(&mut halves, rows.n, (GRAIN / rows.n).max(1), pool, |first, out| {
            rows.copy_to(first, out, rows.n, |x| x)
        });
        along_others(&mut halves, shape, axes, true, 1.0, pool)?;
        let strides = contiguous_strides(shape);
        let source = Source { data: &halves, offset: 0, shape, strides: &strides };
        return complex_to_real(source, out, 1, n, scale, pool);
    }
    let half = rows.n;
    let plan = plans::real::<T>(n, true)?;
    let (zero, scale) = (Complex::new(T::zero(), T::zero()), T::of(scale));
    for_rows(out, n, (GRAIN / n).max(1), pool, |first, out| {
        let count = out.len() / n;
        let dense = rows.dense(first, count);
        let mut lanes = scratch(zero, if dense.is_some() { 0 } else { half * ROWS.min(count) });
        let mut room = scratch(zero, plan.room());
        let (batch, mut wide) = plan.batch(count);
        for (i, block) in out.chunks_mut(n * ROWS).enumerate() {
            let count = block.len() / n;
            let x = match dense {
                Some(x) => &x[i * ROWS * half..][..count * half],
                None => {
                    rows.copy_to(first + i * ROWS, &mut lanes[..count * half], half, |x| x);
                    &lanes[..count * half]
                }
            };
            if let Some(batch) = batch.filter(|_| count == ROWS) {
                T::inverse(batch, x, block, &mut wide, scale);
                continue;
            }
            for (x, y) in x.chunks(half).zip(block.chunks_mut(n)) {
                plan.inverse(x, y, &mut room, scale);
            }
        }
    });
    Ok(())
}
