//! The inner loops of convolutions: tiles of sums that stay in registers, written with each instruction set's vectors.
//!
//! Loops that LLVM vectorises by itself are good or bad here by chance (a factor of a hundred), so these name their
//! registers. Invariant: the public functions check every bound once, before the loops.

use super::lanes::Lanes;
pub use super::offsets::Offsets;
use std::ops::Add;

/// The most elements that a tile of sums has.
pub const TILE: usize = 512;

/// Rows and columns of a tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Rows: what shares the elements read.
    pub rows: usize,
    /// Columns: places side by side.
    pub places: usize,
    /// What is adjacent in a register.
    pub along: Along,
}

/// The dimension of a tile that registers are along.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Along {
    /// Places of one row.
    Places,
    /// Rows of one place: any number of places, which have to be transposed at the end. For wide registers, which leave many places
    /// of short lines unused.
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
    Rows,
}

/// `out[i, j] = sum over k of w[k, i] x[at + offset k + j]`
#[inline(always)]
unsafe fn gather<V: Lanes, const M: usize, const R: usize>(
    w: *const V::T,
    x: *const V::T,
    offsets: &[usize],
    out: *mut V::T,
) {
    // SAFETY: the caller's promise: the instruction set exists, and the pointers lead to as many elements as are read and written.
    unsafe {
        let mut sums = [[V::zero(); R]; M];
        let mut w = w;
        for &offset in offsets {
            let mut from = [V::zero(); R];
            for (r, from) in from.iter_mut().enumerate() {
                *from = V::load(x.add(offset + r * V::N));
            }
            for (i, sums) in sums.iter_mut().enumerate() {
                let w = V::splat(*w.add(i));
                for (sum, from) in sums.iter_mut().zip(from) {
                    *sum = sum.add_product(w, from);
                }
            }
            w = w.add(M);
        }
        for (i, sums) in sums.into_iter().enumerate() {
            for (r, sum) in sums.into_iter().enumerate() {
                sum.store(out.add((i * R + r) * V::N));
            }
        }
    }
}

/// The same for `R` registers of rows and `P` places.
#[cfg(target_arch = "x86_64")]
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn gather_rows<const R: usize, const P: usize>(w: *const f32, x: *const f32, offsets: &[usize], out: *mut f32) {
    use super::transpose::{turn_rows, SIDE};
    use std::arch::x86_64::*;
    // The tile, and what its last row stores beyond it.
    const { assert!((R * SIDE - 1) * P + (P - 1) / SIDE * SIDE + SIDE <= TILE) };
    // SAFETY: the caller's promise, as in `gather`; a tile has room for what is stored (asserted above).
    unsafe {
        let mut sums = [[_mm512_setzero_ps(); P]; R];
        let mut w = w;
        for &offset in offsets {
            let mut from = [_mm512_setzero_ps(); R];
            for (r, from) in from.iter_mut().enumerate() {
                *from = _mm512_loadu_ps(w.add(r * SIDE));
            }
            for p in 0..P {
                let x = _mm512_set1_ps(*x.add(offset + p));
                for (sums, from) in sums.iter_mut().zip(from) {
                    sums[p] = _mm512_fmadd_ps(x, from, sums[p]);
                }
            }
            w = w.add(R * SIDE);
        }
        for (r, sums) in sums.into_iter().enumerate() {
            // The last places first: what is stored beyond them is then written over by those of the next row, or is behind
            // the tile.
            for p in (0..P).step_by(SIDE).rev() {
                let mut square = [_mm512_setzero_si512(); SIDE];
                for (row, sum) in square.iter_mut().zip(&sums[p..]) {
                    *row = _mm512_castps_si512(*sum);
                }
                turn_rows(&mut square);
                for (i, row) in square.into_iter().enumerate() {
                    _mm512_storeu_si512(out.add((r * SIDE + i) * P + p).cast(), row);
                }
            }
        }
    }
}

/// `out[i, j] = sum over p of a[i, p] b[j, p]`, over `n` places, a multiple of `V::N`.
#[inline(always)]
unsafe fn dots<V: Lanes, const I: usize, const J: usize>(
    a: [*const V::T; I],
    b: [*const V::T; J],
    n: usize,
    out: *mut V::T,
) {
    // SAFETY: the caller's promise: the instruction set exists, and the pointers lead to as many elements as are read and written.
    unsafe {
        let mut sums = [[V::zero(); J]; I];
        let mut p = 0;
        while p < n {
            let mut left = [V::zero(); I];
            for (left, a) in left.iter_mut().zip(a) {
                *left = V::load(a.add(p));
            }
            for (j, b) in b.iter().enumerate() {
                let right = V::load(b.add(p));
                for (i, left) in left.iter().enumerate() {
                    sums[i][j] = sums[i][j].add_product(*left, right);
                }
            }
            p += V::N;
        }
        for (i, sums) in sums.into_iter().enumerate() {
            for (j, sum) in sums.into_iter().enumerate() {
                *out.add(i * J + j) = sum.sum();
            }
        }
    }
}

/// `sums[i, j] += sum over runs and their places of x[x_at[i] + place] g[number of the place, j]`
#[inline(always)]
unsafe fn outer<V: Lanes, const M: usize, const R: usize>(
    x: [*const V::T; M],
    runs: &[Run],
    g: *const V::T,
    ld: usize,
    out: *mut V::T,
) {
    // SAFETY: the caller's promise: the instruction set exists, and the pointers lead to as many elements as are read and written.
    unsafe {
        let mut sums = [[V::zero(); R]; M];
        let mut g = g;
        for run in runs {
            for p in run.place..run.place + run.len {
                let mut from = [V::zero(); R];
                for (r, from) in from.iter_mut().enumerate() {
                    *from = V::load(g.add(r * V::N));
                }
                for (sums, x) in sums.iter_mut().zip(x) {
                    let x = V::splat(*x.add(p));
                    for (sum, from) in sums.iter_mut().zip(from) {
                        *sum = sum.add_product(x, from);
                    }
                }
                g = g.add(ld);
            }
        }
        for (i, sums) in sums.into_iter().enumerate() {
            for (r, sum) in sums.into_iter().enumerate() {
                let out = out.add((i * R + r) * V::N);
                V::load(out).add(sum).store(out);
            }
        }
    }
}

/// `out[i pitch + to + j] = sums[i n + from + j] + bias[i]` for each part, a row of `sums` having `n` elements.
#[inline(always)]
unsafe fn put<V: Lanes<T: Add<Output = V::T>>>(
    sums: *const V::T,
    n: usize,
    bias: &[V::T],
    parts: &[Part],
    out: *mut V::T,
    pitch: usize,
) {
    for (i, &bias) in bias.iter().enumerate() {
        for part in parts {
            // SAFETY: the caller's promise: the instruction set exists, and all parts are in the tile and in the rows of `out`.
            unsafe {
                let (from, to) = (sums.add(i * n + part.from), out.add(i * pitch + part.to));
                let more = V::splat(bias);
                let mut j = 0;
                while j + V::N <= part.len {
                    V::load(from.add(j)).add(more).store(to.add(j));
                    j += V::N;
                }
                if j > 0 && j < part.len {
                    // The last register begins among those before it.
                    j = part.len - V::N;
                    V::load(from.add(j)).add(more).store(to.add(j));
                    continue;
                }
                for j in j..part.len {
                    *to.add(j) = *from.add(j) + bias;
                }
            }
        }
    }
}

/// Neighbours of a tile's row, and where they go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// The first one's place in the row.
    pub from: usize,
    /// How many.
    pub len: usize,
    /// Where the first one goes.
    pub to: usize,
}

/// Places side by side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// The first.
    pub place: usize,
    /// How many.
    pub len: usize,
}

/// (sums, elements of a row, bias, parts, out, pitch)
type PutKernel<T> = unsafe fn(*const T, usize, &[T], &[Part], *mut T, usize);
/// (size, x, starts, runs, g, ld, out)
type OuterKernel<T> = unsafe fn(Size, *const T, &[usize], &[Run], *const T, usize, *mut T);

/// The kernels of one instruction set. Their methods check what they are given, so that anything may be.
pub struct Kernels<T: 'static> {
    /// The tiles of [`Kernels::gather`], the best one first.
    pub sizes: &'static [Size],
    /// The tiles of [`Kernels::outer`], the best one first.
    pub outers: &'static [Size],
    /// (rows of `a`, rows of `b`) of the blocks of [`Kernels::dots`], the best one first.
    pub blocks: &'static [(usize, usize)],
    /// Elements of a register.
    pub step: usize,
    there: fn() -> bool,
    gather: unsafe fn(Size, *const T, *const T, &[usize], *mut T),
    put: PutKernel<T>,
    outer: OuterKernel<T>,
    dots: unsafe fn(*const T, &[usize], *const T, &[usize], usize, *mut T),
}

impl<T: Copy> Kernels<T> {
    /// `out[i, j] = sum over k of w[k, i] x[at + offset k + j]` for a tile of one of the sizes; `w` has a row of
    /// `size.rows` for each offset, `out` gets the rows one after another.
    ///
    /// # Panics
    /// If a slice is too short, or there are no kernels for the size.
    pub fn gather(&self, size: Size, w: &[T], x: &[T], offsets: &Offsets, at: usize, out: &mut [T; TILE]) {
        let fits = (self.there)()
            && self.sizes.contains(&size)
            && w.len() >= size.rows * offsets.len()
            && (offsets.len() == 0 || x.len() >= offsets.reach(at + size.places));
        assert!(fits && size.rows * size.places <= TILE, "gather: a slice is too short");
        // Without offsets nothing is read, and `at` may be anywhere.
        let x = x.as_ptr().wrapping_add(at);
        // SAFETY: the instruction set is there; the assertion covers each weight, each element at `at + offset + places`,
        // and the tile.
        unsafe { (self.gather)(size, w.as_ptr(), x, &offsets.list, out.as_mut_ptr()) }
    }

    /// Writes parts of a tile's rows, a bias added to each, to rows `pitch` apart: as many as there are biases, of `places`
    /// elements in `sums`.
    ///
    /// # Panics
    /// If a slice is too short.
    pub fn put(&self, sums: &[T; TILE], places: usize, bias: &[T], parts: &[Part], out: &mut [T], pitch: usize) {
        let Some(last) = bias.len().checked_sub(1) else { return };
        let before = last.saturating_mul(pitch);
        let fits = |p: &Part| {
            let end = p.to.saturating_add(p.len).saturating_add(before);
            p.from <= places && p.len <= places - p.from && end <= out.len()
        };
        let whole = bias.len().saturating_mul(places) <= TILE;
        assert!((self.there)() && whole && parts.iter().all(fits), "put: a slice is too short");
        // SAFETY: the instruction set is there; the assertion covers each part of each row, as it is read and written.
        unsafe { (self.put)(sums.as_ptr(), places, bias, parts, out.as_mut_ptr(), pitch) }
    }

    /// `out[i, j] += sum over the places p of x[x_at[i] + p] g[number of p, j]` for a tile of a size of `outers`: places
    /// are numbered through the runs, `g` has rows `ld` apart, `out` its rows one after another.
    ///
    /// # Panics
    /// If a slice is too short, or there are no kernels for the size.
    #[allow(clippy::too_many_arguments)]
    pub fn outer(&self, size: Size, x: &[T], x_at: &[usize], runs: &[Run], g: &[T], ld: usize, out: &mut [T]) {
        let end = runs.iter().map(|r| r.place.saturating_add(r.len)).max().unwrap_or(0);
        let places = runs.iter().fold(0usize, |n, r| n.saturating_add(r.len));
        let fits = (self.there)()
            && self.outers.contains(&size)
            && x_at.len() == size.rows
            && x_at.iter().all(|&at| at <= x.len() && x.len() - at >= end)
            && (places == 0 || g.len() >= (places - 1).saturating_mul(ld).saturating_add(size.places))
            && out.len() >= size.rows * size.places;
        assert!(fits, "outer: a slice is too short");
        // SAFETY: the instruction set is there; the assertion covers each place from each start, each row of `g`, and the
        // tile.
        unsafe { (self.outer)(size, x.as_ptr(), x_at, runs, g.as_ptr(), ld, out.as_mut_ptr()) }
    }

    /// `out[i, j] = sum over p of a[a_at[i] + p] b[b_at[j] + p]`, over `n` places; rows of `out` follow one another.
    ///
    /// # Panics
    /// If a slice is too short, there are no kernels for so many rows, or `n` is no multiple of the step.
    pub fn dots(&self, a: &[T], a_at: &[usize], b: &[T], b_at: &[usize], n: usize, out: &mut [T; TILE]) {
        let within = |x: &[T], at: &[usize]| at.iter().all(|&at| at <= x.len() && x.len() - at >= n);
        let fits = (self.there)()
            && self.blocks.contains(&(a_at.len(), b_at.len()))
            && n.is_multiple_of(self.step)
            && within(a, a_at)
            && within(b, b_at);
        assert!(fits && a_at.len() * b_at.len() <= TILE, "dots: a slice is too short");
        // SAFETY: the instruction set is there; the assertion covers n elements from each start, and the sums.
        unsafe { (self.dots)(a.as_ptr(), a_at, b.as_ptr(), b_at, n, out.as_mut_ptr()) }
    }
}

/// Has memory fetched that is soon written to.
#[inline(always)]
pub fn to_write<T>(out: &[T]) {
    #[cfg(target_arch = "x86_64")]
    for line in out.chunks(64 / size_of::<T>()) {
        use std::arch::x86_64::{_mm_prefetch, _MM_HINT_ET0};
        // SAFETY: a hint, which reads and writes nothing, whatever the address.
        unsafe { _mm_prefetch::<_MM_HINT_ET0>(line.as_ptr().cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = out;
}

/// Floats that tiles are computed with.
pub trait Tiles: Copy + Default + 'static {
    /// The kernels of all instruction sets of the target, the best one first, the last one always there.
    const ALL: &'static [Kernels<Self>];

    /// Those of the best instruction set of this machine.
    #[allow(clippy::expect_used)] // The last kernels of `ALL` need no instructions that a target may lack.
    fn kernels() -> &'static Kernels<Self> {
        Self::ALL.iter().find(|k| (k.there)()).expect("every target has its last kernels")
    }
}

/// Compiles the kernels for registers of an instruction set: the tiles (rows x registers, and registers x places) of gather, those
/// (rows x registers) of outer, and the blocks of dots.
macro_rules! kernels {
    ($t:ty, $V:ty, $there:expr, $(#[$feature:meta])?
     [$($m:literal x $r:literal),*], [$($ar:literal x $ap:literal),*], [$($om:literal x $or:literal),*],
     [$($i:literal x $j:literal),*]) => {{
        const STEP: usize = <$V as Lanes>::N;

        /// # Safety
        /// To be called where the instruction set exists, with what `Kernels::gather` has checked.
        $(#[$feature])?
        #[allow(clippy::unreachable)] // `Kernels` has checked the size.
        unsafe fn gather_as(size: Size, w: *const $t, x: *const $t, offsets: &[usize], out: *mut $t) {
            match (size.along, size.rows, size.places) {
                // SAFETY: the caller's promise.
                $((Along::Places, $m, _) => unsafe { gather::<$V, $m, $r>(w, x, offsets, out) },)*
                // SAFETY: the caller's promise.
                $((Along::Rows, rows, $ap) if rows == $ar * STEP => unsafe { gather_rows::<$ar, $ap>(w, x, offsets, out) },)*
                _ => unreachable!("the size was checked"),
            }
        }

        /// # Safety
        /// To be called where the instruction set exists, with what `Kernels::put` has checked.
        $(#[$feature])?
        unsafe fn put_as(sums: *const $t, n: usize, bias: &[$t], parts: &[Part], out: *mut $t, pitch: usize) {
            // SAFETY: the caller's promise.
            unsafe { put::<$V>(sums, n, bias, parts, out, pitch) }
        }

        /// # Safety
        /// To be called where the instruction set exists, with what `Kernels::outer` has checked.
        $(#[$feature])?
        #[allow(clippy::unreachable)] // `Kernels` has checked the size.
        unsafe fn outer_as(size: Size, x: *const $t, at: &[usize], runs: &[Run], g: *const $t, ld: usize, out: *mut $t) {
            match (size.rows, size.places / STEP) {
                // SAFETY: the caller's promise.
                $(($om, $or) => unsafe {
                    let mut from = [x; $om];
                    from.iter_mut().zip(at).for_each(|(from, &at)| *from = x.add(at));
                    outer::<$V, $om, $or>(from, runs, g, ld, out)
                },)*
                _ => unreachable!("the size was checked"),
            }
        }

        /// # Safety
        /// To be called where the instruction set exists, with what `Kernels::dots` has checked.
        $(#[$feature])?
        #[allow(clippy::unreachable)] // `Kernels` has checked the size.
        unsafe fn dots_as(a: *const $t, a_at: &[usize], b: *const $t, b_at: &[usize], n: usize, out: *mut $t) {
            match (a_at.len(), b_at.len()) {
                // SAFETY: the caller's promise.
                $(($i, $j) => unsafe {
                    let (mut x, mut y) = ([a; $i], [b; $j]);
                    x.iter_mut().zip(a_at).for_each(|(x, &at)| *x = a.add(at));
                    y.iter_mut().zip(b_at).for_each(|(y, &at)| *y = b.add(at));
                    dots::<$V, $i, $j>(x, y, n, out)
                },)*
                _ => unreachable!("the block was checked"),
            }
        }

        Kernels {
            sizes: &[
                $(Size { rows: $m, places: $r * STEP, along: Along::Places },)*
                $(Size { rows: $ar * STEP, places: $ap, along: Along::Rows },)*
            ],
            outers: &[$(Size { rows: $om, places: $or * STEP, along: Along::Places }),*],
            blocks: &[$(($i, $j)),*],
            step: STEP,
            there: $there,
            gather: gather_as,
            put: put_as,
            outer: outer_as,
            dots: dots_as,
        }
    }};
}

#[cfg(target_arch = "x86_64")]
macro_rules! tiles {
    ($t:ty, $v512:ident, $v256:ident, $v128:ident, $rows:tt) => {
        impl Tiles for $t {
            const ALL: &'static [Kernels<$t>] = &[
                kernels!(
                    $t, std::arch::x86_64::$v512, || std::is_x86_feature_detected!("avx512f"),
                    #[target_feature(enable = "avx512f")]
                    [8 x 3, 6 x 4, 4 x 6, 1 x 8], $rows, [8 x 3, 6 x 4, 8 x 2, 8 x 1], [4 x 6, 1 x 9]
                ),
                kernels!(
                    $t, std::arch::x86_64::$v256,
                    || std::is_x86_feature_detected!("avx2") && std::is_x86_feature_detected!("fma"),
                    #[target_feature(enable = "avx2,fma")]
                    [4 x 3, 6 x 2, 1 x 8], [], [4 x 3, 6 x 2, 8 x 1], [4 x 2, 1 x 9]
                ),
                kernels!($t, std::arch::x86_64::$v128, || true, [4 x 3, 1 x 8], [], [4 x 3, 8 x 1], [4 x 2, 1 x 9]),
            ];
        }
    };
}
#[cfg(target_arch = "x86_64")]
tiles!(f32, __m512, __m256, __m128, [1 x 28, 2 x 12, 1 x 16, 2 x 10, 1 x 14, 1 x 10]);
#[cfg(target_arch = "x86_64")]
tiles!(f64, __m512d, __m256d, __m128d, []);

#[cfg(target_arch = "aarch64")]
macro_rules! tiles {
    ($t:ty, $v:ident) => {
        impl Tiles for $t {
            const ALL: &'static [Kernels<$t>] = &[kernels!(
                $t, std::arch::aarch64::$v, || true,
                [8 x 3, 6 x 4, 4 x 6, 1 x 8], [],
                [8 x 3, 6 x 4, 8 x 2, 8 x 1], [4 x 6, 1 x 9]
            )];
        }
    };
}
#[cfg(target_arch = "aarch64")]
tiles!(f32, float32x4_t);
#[cfg(target_arch = "aarch64")]
tiles!(f64, float64x2_t);

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers<T: From<i8>>(n: usize, seed: usize) -> Vec<T> {
        (0..n).map(|i| T::from(((i * 31 + seed * 7) % 19) as i8 - 9)).collect()
    }

    /// Every kernel of every instruction set of this machine against plain sums of whole numbers, which are exact.
    fn check<T: Tiles + From<i8> + Into<f64>>() {
        let x: Vec<T> = numbers(4000, 1);
        let value = |x: T| -> f64 { x.into() };
        for kernels in T::ALL.iter().filter(|k| (k.there)()) {
            for &size in kernels.sizes {
                let list = vec![7, 0, 900, 33];
                let w: Vec<T> = numbers(size.rows * list.len(), 2);
                let mut out = [T::from(5); TILE];
                kernels.gather(size, &w, &x, &Offsets::new(list.clone()), 11, &mut out);
                for i in 0..size.rows {
                    for j in 0..size.places {
                        let terms = list.iter().enumerate();
                        let want: f64 = terms.map(|(k, at)| value(w[k * size.rows + i]) * value(x[11 + at + j])).sum();
                        assert_eq!(value(out[i * size.places + j]), want, "gather {size:?} at {i}, {j}");
                    }
                }
                kernels.gather(size, &[], &[], &Offsets::new(Vec::new()), 11, &mut out);
                assert!(out[..size.rows * size.places].iter().all(|&x| value(x) == 0.0));
            }
            let mut sums = [T::default(); TILE];
            sums.copy_from_slice(&x[..TILE]);
            let parts = [(0, 7, 30), (9, 16, 0), (26, 23, 40)].map(|(from, len, to)| Part { from, len, to });
            let (bias, mut out) = ([3, 5, -1].map(T::from), vec![T::from(50); 300]);
            kernels.put(&sums, 49, &bias, &parts, &mut out, 100);
            let mut want: Vec<f64> = vec![50.0; 300];
            for (i, &bias) in bias.iter().enumerate() {
                for Part { from, len, to } in parts {
                    (0..len).for_each(|j| want[i * 100 + to + j] = value(x[i * 49 + from + j]) + value(bias));
                }
            }
            assert_eq!(out.iter().map(|&x| value(x)).collect::<Vec<_>>(), want, "put");
            for &size in kernels.outers {
                let at: Vec<usize> = (0..size.rows).map(|i| i * 13 % 40).collect();
                let runs = [Run { place: 3, len: 5 }, Run { place: 20, len: 1 }, Run { place: 21, len: 4 }];
                let ld = size.places + 3;
                let g: Vec<T> = numbers(10 * ld, 3);
                let mut out = vec![T::from(5); size.rows * size.places];
                kernels.outer(size, &x, &at, &runs, &g, ld, &mut out);
                let places: Vec<usize> = runs.iter().flat_map(|r| r.place..r.place + r.len).collect();
                for (i, at) in at.iter().enumerate() {
                    for j in 0..size.places {
                        let terms = places.iter().enumerate();
                        let sum: f64 = terms.map(|(n, p)| value(x[at + p]) * value(g[n * ld + j])).sum();
                        assert_eq!(value(out[i * size.places + j]), 5.0 + sum, "outer {size:?} at {i}, {j}");
                    }
                }
            }
            for &(i, j) in kernels.blocks {
                let n = 3 * kernels.step;
                let (a, b): (Vec<usize>, Vec<usize>) =
                    ((0..i).map(|i| i * 5).collect(), (0..j).map(|j| j * 9).collect());
                let mut out = [T::from(5); TILE];
                kernels.dots(&x, &a, &x[100..], &b, n, &mut out);
                for (i, from) in a.iter().enumerate() {
                    for (j, to) in b.iter().enumerate() {
                        let want: f64 = (0..n).map(|p| value(x[from + p]) * value(x[100 + to + p])).sum();
                        assert_eq!(value(out[i * b.len() + j]), want, "dots of {} and {} rows", a.len(), b.len());
                    }
                }
            }
        }
    }

    #[test]
    fn tiles_are_plain_sums() {
        check::<f32>();
        check::<f64>();
    }

    #[test]
    #[should_panic(expected = "too short")]
    fn a_tile_beyond_the_elements_is_refused() {
        let kernels = f32::kernels();
        let (size, x) = (kernels.sizes[0], vec![0.0; 200]);
        let at = x.len() - size.places;
        kernels.gather(size, &vec![0.0; size.rows], &x, &Offsets::new(vec![1]), at, &mut [0.0; TILE]);
    }

    #[test]
    #[should_panic(expected = "too short")]
    fn a_part_beyond_the_row_is_refused() {
        let part = Part { from: 40, len: 9, to: 0 };
        f32::kernels().put(&[0.0; TILE], 48, &[0.0; 2], &[part], &mut [0.0; 100], 50);
    }

    #[test]
    #[should_panic(expected = "too short")]
    fn a_run_beyond_the_elements_is_refused() {
        let kernels = f32::kernels();
        let size = kernels.outers[0];
        let (at, runs) = (vec![0; size.rows], [Run { place: usize::MAX, len: 2 }]);
        let g = vec![0.0; 2 * size.places];
        kernels.outer(size, &[0.0; 9], &at, &runs, &g, size.places, &mut vec![0.0; size.rows * size.places]);
    }
}
