//! Standardisation of channels, as batch norm needs it, where they lie: each in as many pieces as the batch has samples.
//!
//! Depends on `simd`, `strided` and `fused`. Invariant: results lie in memory in the input's order.

use super::fused::{total, Compute, Float};
use super::gradients::total2;
use super::simd::{run, threads, Task, Wide};
use super::strided::collapse;
use super::CpuArray;
use crate::shape::Layout;
use crate::Result;

/// Pieces shorter than this are not worth a loop of their own.
const SHORT: usize = 16;

/// How rows lie that are made of pieces.
#[derive(Clone, Copy)]
pub(super) struct Channels {
    /// Pieces of a row.
    pieces: usize,
    /// Rows.
    rows: usize,
    /// Elements of a piece.
    len: usize,
}

impl Channels {
    /// Of an array whose last `dims` dimensions make the rows; `None` where rows do not lie so.
    pub(super) fn of(layout: &Layout, dims: usize) -> Option<Channels> {
        let lead = layout.ndim().checked_sub(dims)?;
        let part = |from: usize, to: usize| collapse((from..to).map(|d| (layout.shape[d], layout.strides[d])));
        match (part(0, lead).as_slice(), part(lead, layout.ndim()).as_slice()) {
            (&[(rows, apart)], &[(pieces, step), (len, 1)])
                if apart == len && Some(step) == rows.checked_mul(len) && len >= SHORT =>
            {
                Some(Channels { pieces, rows, len })
            }
            _ => None,
        }
    }

    fn numel(&self) -> usize {
        self.pieces * self.rows * self.len
    }

    /// What a row's elements count.
    fn count(&self) -> f64 {
        (self.pieces * self.len) as f64
    }

    /// The pieces of a row.
    #[inline(always)]
    fn row<'a, T>(&self, x: &'a [T], row: usize) -> impl Iterator<Item = &'a [T]> {
        let Channels { rows, len, .. } = *self;
        (0..self.pieces).map(move |piece| &x[(piece * rows + row) * len..][..len])
    }
}

/// Mean and `1/σ` of rows, from `first` on; with a gradient also its mean, and what deviations are multiplied by in it.
struct Statistics<'a, T: Wide> {
    x: &'a [T],
    g: Option<&'a [T]>,
    how: Channels,
    first: usize,
    eps: f64,
    out: &'a mut [[T::W; 4]],
}
impl<T: Wide<W: Compute>> Task for Statistics<'_, T> {
    type Out = ();
    #[inline(always)]
    fn run<const F: bool>(self) {
        let Statistics { x, g, how, first, eps, out } = self;
        let (count, zero) = (how.count(), T::W::of(0.0));
        for (i, out) in out.iter_mut().enumerate() {
            // Loops, no closures: these would not be compiled for this function's instruction set.
            let mut sum = 0.0;
            for x in how.row(x, first + i) {
                sum += total(x, |x| x);
            }
            let mean = T::W::of(sum / count);
            let mut squares = 0.0;
            for x in how.row(x, first + i) {
                squares += total(x, |x| (x - mean) * (x - mean));
            }
            let variance = squares / count + eps;
            let (mut g_mean, mut slope) = (zero, zero);
            if let Some(g) = g {
                let (mut sum, mut met) = (0.0, 0.0);
                for (g, x) in how.row(g, first + i).zip(how.row(x, first + i)) {
                    sum += total(g, |g| g);
                    met += total2(g, x, |g, x| g * (x - mean));
                }
                g_mean = T::W::of(sum / count);
                slope = T::W::of(met / count / variance);
            }
            *out = [mean, T::W::of(1.0 / variance.sqrt()), g_mean, slope];
        }
    }
}

/// The elements from the piece of that number on, by their rows' statistics: standardised, or, of `g`, the gradient.
struct Apply<'a, T: Wide> {
    x: &'a [T],
    g: Option<&'a [T]>,
    how: Channels,
    first: usize,
    by: &'a [[T::W; 4]],
    out: &'a mut [T],
}
impl<T: Wide<W: Compute>> Task for Apply<'_, T> {
    type Out = ();
    #[inline(always)]
    fn run<const F: bool>(self) {
        let Apply { x, g, how, first, by, out } = self;
        let len = how.len;
        for (i, (x, out)) in x.chunks(len).zip(out.chunks_mut(len)).enumerate() {
            let [mean, scale, g_mean, slope] = by[(first + i) % how.rows];
            match g {
                None => x.iter().zip(out).for_each(|(x, o)| *o = T::narrow((x.widen() - mean) * scale)),
                Some(g) => {
                    for ((x, g), o) in x.iter().zip(&g[i * len..]).zip(out) {
                        *o = T::narrow((g.widen() - g_mean - (x.widen() - mean) * slope) * scale);
                    }
                }
            }
        }
    }
}

/// Rows less their mean over their deviation; of `g`, which lies as `x` does, what goes back through that.
pub(super) fn standardize<T: Float>(x: &CpuArray, g: Option<&CpuArray>, how: Channels, eps: f64) -> Result<CpuArray> {
    let start = |a: &CpuArray| a.layout.offset;
    let (guard, g_guard) = (x.read::<T>(), g.map(|g| g.read::<T>()));
    let data = &guard[start(x)..][..how.numel()];
    let g = g_guard.as_ref().zip(g).map(|(guard, g)| &guard[start(g)..][..how.numel()]);
    let mut by = vec![[T::W::of(0.0); 4]; how.rows];
    threads::for_chunks(&mut by, 1, threads::GRAIN / 2 / (how.pieces * how.len), |first, out| {
        run(Statistics { x: data, g, how, first, eps, out });
    });
    let flat = CpuArray::build(&[how.numel()], |out: &mut [T]| {
        threads::for_chunks(out, how.len, threads::GRAIN, |start, out| {
            let part = start..start + out.len();
            let g = g.map(|g| &g[part.clone()]);
            run(Apply { x: &data[part], g, how, first: start / how.len, by: &by, out });
        });
        Ok(())
    })?;
    Ok(flat.with_layout(Layout { offset: 0, ..x.layout.clone() }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::tests::{array, show};

    #[test]
    fn channels_are_rows_of_pieces() {
        let (pieces, rows, len, eps) = (3, 4, 20, 0.1);
        let numbers = |seed: usize| -> Vec<f64> {
            (0..pieces * rows * len).map(|i| ((i * 37 + seed) % 23) as f64 / 8.0 - 1.25).collect()
        };
        let shape = [pieces, rows, 4, 5];
        let turned = |x: &[f64]| {
            let x = array(&shape, x);
            x.with_layout(x.layout.view(&crate::ops::view::ViewOp::Permute { axes: [1, 0, 2, 3][..].into() }).unwrap())
        };
        for threads in [1, 3] {
            threads::set_num_threads(threads);
            let (x, g) = (turned(&numbers(1)), turned(&numbers(2)));
            let how = Channels::of(&x.layout, 3).unwrap();
            let (y, back) =
                (standardize::<f64>(&x, None, how, eps).unwrap(), standardize::<f64>(&x, Some(&g), how, eps).unwrap());
            assert_eq!((&y.layout, &back.layout), (&x.layout, &x.layout));
            // The same of rows that are dense.
            let (rows_of_x, rows_of_g) = (x.contiguous().unwrap(), g.contiguous().unwrap());
            let near = |a: CpuArray, b: CpuArray| {
                let (a, b) = (show::<f64>(&a), show::<f64>(&b));
                assert!(a.iter().zip(&b).all(|(a, b)| (a - b).abs() < 1e-12), "{a:?} {b:?}");
            };
            near(y, super::super::fused::standardize::<f64>(&rows_of_x, 3, eps).unwrap());
            near(back, super::super::gradients::standardize::<f64>(&rows_of_g, &rows_of_x, 3, eps).unwrap());
        }
        assert!(Channels::of(&array(&[2, 3, 30], &[0f32; 180]).layout, 1).is_none());
    }
}
