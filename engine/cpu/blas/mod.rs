//! Matrix products: BLAS for `f32`, `f64` and `complex64`, and by way of `f32` for 16-bit floats; blocked loops for the
//! other dtypes.
//!
//! May depend on `simd`, `dtype` and `error`; with `simd` the one place on the CPU side where `unsafe` is allowed.
//! Invariant: BLAS itself runs on one thread, and rows are split over the engine's pool: two pools would fight.
#![allow(unsafe_code)] // Foreign functions and vector instructions.

#[cfg(all(target_arch = "x86_64", not(accelerate)))]
mod block_lu;
mod factor;
#[cfg(target_arch = "x86_64")]
mod few_rows;
mod ffi;
#[cfg(all(target_arch = "x86_64", not(accelerate)))]
mod gemm_bf16;
#[cfg(all(target_arch = "x86_64", not(accelerate)))]
mod gemm_f32;
#[cfg(all(target_arch = "x86_64", not(accelerate)))]
mod gemm_f32_dots;
mod generic;
mod lapack;
#[cfg(test)]
mod lapack_tests;
mod ldl;
mod small_lu;

pub use factor::{Decompose, Eigen};
pub use lapack::Lapack;
pub use ldl::Packed;

use super::simd::{exit, threads};
use crate::dtype::Element;
use half::{bf16, f16};
use num_complex::{Complex32, Complex64};
use std::ffi::c_int;
use std::sync::Once;

/// A matrix stored by rows of `ld` elements, or, if `trans`, the transpose of one.
#[derive(Clone, Copy, Debug)]
pub struct Matrix<'a, T> {
    /// From the first element on.
    pub data: &'a [T],
    /// Distance between rows as stored.
    pub ld: usize,
    /// Is the matrix the transpose of what is stored?
    pub trans: bool,
}

impl<'a, T> Matrix<'a, T> {
    /// The matrix from row `r` on.
    fn below(&self, r: usize) -> Matrix<'a, T> {
        let start = if self.trans { r } else { r * self.ld };
        Matrix { data: &self.data[start..], ..*self }
    }

    /// Is every element of a `rows` × `cols` matrix inside the slice?
    fn holds(&self, rows: usize, cols: usize) -> bool {
        let (rows, cols) = if self.trans { (cols, rows) } else { (rows, cols) };
        rows == 0 || cols == 0 || self.ld >= cols && self.data.len() >= (rows - 1) * self.ld + cols
    }
}

/// `c = alpha a b + beta c` for `a` of m × k, `b` of k × n, and `c` of m × n in rows `ldc` apart. `c` is only written where
/// beta is 0.
#[derive(Clone, Copy, Debug)]
pub struct Product<'a, T> {
    pub m: usize,
    pub n: usize,
    pub k: usize,
    pub alpha: T,
    pub a: Matrix<'a, T>,
    pub b: Matrix<'a, T>,
    pub beta: T,
    pub ldc: usize,
}

impl<'a, T: Gemm> Product<'a, T> {
    /// `c = a b`, the rows of `c` one after another; `sizes` are m, n and k.
    pub fn of(sizes: [usize; 3], a: Matrix<'a, T>, b: Matrix<'a, T>) -> Product<'a, T> {
        let [m, n, k] = sizes;
        Product { m, n, k, alpha: T::ONE, a, b, beta: T::ZERO, ldc: n }
    }

    /// Multiplications.
    fn work(&self) -> usize {
        self.m.saturating_mul(self.n).saturating_mul(self.k)
    }

    /// Does every slice hold its matrix? Sizes at least 1.
    fn fits(&self, c: &[T]) -> bool {
        let Product { m, n, k, a, b, ldc, .. } = *self;
        a.holds(m, k) && b.holds(k, n) && c.len() >= (m - 1) * ldc + n && ldc >= n
    }

    /// # Panics
    /// If a slice is too short for its matrix.
    fn check(&self, c: &[T]) {
        let Product { m, n, k, .. } = *self;
        assert!(self.fits(c), "gemm: a slice is too short for {m} x {k} x {n}");
    }
}

/// Elements that matrices can be multiplied of.
pub trait Gemm: Element {
    /// The number one.
    const ONE: Self;
    /// The number zero.
    const ZERO: Self;

    /// A whole product over the pool, all sizes at least 1 and checked; false where there is no better way than by blocks.
    fn whole(_: &Product<Self>, _: &mut [Self]) -> bool {
        false
    }

    /// One product on this thread, all sizes at least 1 and checked. Writes `c` without reading it where beta is 0.
    fn block(product: &Product<Self>, c: &mut [Self]);
}

/// Makes a product, over the pool where that pays.
///
/// # Panics
/// If a slice is too short for its matrix.
pub fn gemm<T: Gemm>(product: &Product<T>, c: &mut [T]) {
    let Product { m, n, k, a, beta, ldc, .. } = *product;
    if m == 0 || n == 0 {
        return;
    }
    product.check(c);
    if k == 0 {
        if beta == T::ZERO {
            c.chunks_mut(ldc).take(m).for_each(|row| row[..n].fill(T::ZERO));
            return;
        }
        // Scaling by beta is a product of depth 1 with alpha 0.
        let zero = Matrix { data: &[T::ZERO], ld: 1, trans: false };
        let scaled = Product { alpha: T::ZERO, beta, ..Product::of([1, 1, 1], zero, zero) };
        for row in c.chunks_mut(ldc).take(m) {
            row[..n].iter_mut().for_each(|x| T::block(&scaled, std::slice::from_mut(x)));
        }
        return;
    }
    let c = &mut c[..(m - 1) * ldc + n];
    if T::whole(product, c) {
        return;
    }
    // A region costs as much as 2^18 multiplications; Accelerate splits on its own.
    let rows = if cfg!(accelerate) { m } else { ((1usize << 19) / (n * k)).max(8) };
    if product.work() < 1 << 20 {
        return T::block(product, c);
    }
    threads::for_chunks(c, ldc, rows.saturating_mul(ldc), |start, c| {
        let (r, m) = (start / ldc, c.len().div_ceil(ldc));
        T::block(&Product { m, a: a.below(r), ..*product }, c);
    });
}

/// A product on this thread: for many small ones that are split over the pool as a whole.
///
/// # Panics
/// If a slice is too short for its matrix.
pub fn gemm_here<T: Gemm>(product: &Product<T>, c: &mut [T]) {
    if product.work() == 0 {
        // Nothing is added up, which takes no pool.
        return gemm(product, c);
    }
    product.check(c);
    T::block(product, c);
}

/// To be held around every call of BLAS and LAPACK. OpenBLAS would start threads of its own.
fn enter() -> exit::Inside {
    static ONCE: Once = Once::new();
    let inside = exit::enter();
    #[cfg(not(accelerate))]
    ONCE.call_once(|| {
        // SAFETY: takes a number, and is called once before any other function of OpenBLAS.
        unsafe { ffi::scipy_openblas_set_num_threads(1) };
        reserve();
    });
    #[cfg(accelerate)]
    ONCE.call_once(|| {});
    inside
}

/// Has OpenBLAS map the buffer that a thread works in, which it keeps: without memory for it later, it would end the process.
#[cfg(not(accelerate))]
fn reserve() {
    let (n, mut a, mut pivot, mut info) = (1, [1f32], [0], 0);
    // SAFETY: a matrix of one element, with room for its pivot.
    unsafe { ffi::sgetrf_(&n, &n, a.as_mut_ptr(), &n, pivot.as_mut_ptr(), &mut info) };
}

/// Prepares BLAS for calls under a limit of memory; to be called early. Does nothing the second time.
pub fn prepare() {
    drop(enter());
}

fn int(n: usize) -> Option<c_int> {
    c_int::try_from(n).ok()
}

fn flag(trans: bool) -> c_int {
    if trans {
        ffi::TRANS
    } else {
        ffi::NO_TRANS
    }
}

/// A product of `bfloat16` over the pool, by pairs where the machine multiplies pairs.
fn paired(product: &Product<bf16>, c: &mut [bf16]) -> bool {
    #[cfg(all(target_arch = "x86_64", not(accelerate)))]
    if !generic::is_few(product) && generic::as_one_row(product).is_none() && gemm_bf16::product(product, c) {
        return true;
    }
    generic::widened(product, c)
}

/// [`paired`] as a block of a product.
fn paired_here(product: &Product<bf16>, c: &mut [bf16]) {
    paired(product, c);
}

macro_rules! whole {
    ($t:ty) => {};
    ($t:ty, $whole:expr) => {
        fn whole(product: &Product<$t>, c: &mut [$t]) -> bool {
            ($whole)(product, c)
        }
    };
}

macro_rules! by_blas {
    ($t:ty, $one:expr, $zero:expr, $gemm:ident, $by:tt, $gemv:expr, $whole:expr, $own:expr) => {
        impl Gemm for $t {
            const ONE: $t = $one;
            const ZERO: $t = $zero;

            whole!($t, $whole);

            fn block(product: &Product<$t>, c: &mut [$t]) {
                product.check(c);
                let Product { m, n, k, alpha, a, b, beta, ldc } = *product;
                let sizes = [m, n, k, a.ld, b.ld, ldc].map(int);
                let [Some(mi), Some(ni), Some(ki), Some(lda), Some(ldb), Some(ldc)] = sizes else {
                    return generic::block(product, c);
                };
                let _inside = enter();
                let gemv: Option<Gemv<$t>> = $gemv;
                if let (Some(gemv), 1, 1) = (gemv, n, ldb) {
                    let (rows, cols) = if a.trans { (ki, mi) } else { (mi, ki) };
                    // SAFETY: as for gemm below; x is a dense column of k elements, y has m elements ldc apart.
                    unsafe {
                        gemv(ffi::ROW_MAJOR, flag(a.trans), rows, cols, alpha, a.data.as_ptr(), lda, b.data.as_ptr(), 1, beta, c.as_mut_ptr(), ldc)
                    };
                    return;
                }
                let own: Own<$t> = $own;
                if own(product, c) {
                    return;
                }
                if let (Some(gemv), 1) = (gemv, m) {
                    let (rows, cols) = if b.trans { (ni, ki) } else { (ki, ni) };
                    let step = if a.trans { lda } else { 1 };
                    // SAFETY: as for gemm below; x is a row of k elements, `step` apart, y has n elements side by side.
                    unsafe {
                        gemv(ffi::ROW_MAJOR, flag(!b.trans), rows, cols, alpha, b.data.as_ptr(), ldb, a.data.as_ptr(), step, beta, c.as_mut_ptr(), 1)
                    };
                    return;
                }
                let (ta, tb) = (flag(a.trans), flag(b.trans));
                // SAFETY: the assertion says that each slice holds its matrix; c overlaps neither, being exclusive; the
                // sizes fit 32 bits.
                unsafe {
                    ffi::$gemm(
                        ffi::ROW_MAJOR, ta, tb, mi, ni, ki, by_blas!($by alpha), a.data.as_ptr(), lda, b.data.as_ptr(), ldb,
                        by_blas!($by beta), c.as_mut_ptr(), ldc,
                    )
                };
            }
        }
    };
    (value $x:ident) => { $x };
    (pointer $x:ident) => { &$x };
}

type Gemv<T> = unsafe extern "C" fn(c_int, c_int, c_int, c_int, T, *const T, c_int, *const T, c_int, T, *mut T, c_int);

/// A product of our own; false where BLAS is to do it.
type Own<T> = fn(&Product<T>, &mut [T]) -> bool;

/// What takes no product.
fn none<T>(_: &Product<T>, _: &mut [T]) -> bool {
    false
}

#[cfg(all(target_arch = "x86_64", not(accelerate)))]
const DENSE: [Own<f32>; 2] = [gemm_f32::whole, gemm_f32::here];
#[cfg(not(all(target_arch = "x86_64", not(accelerate))))]
const DENSE: [Own<f32>; 2] = [none, none];

by_blas!(f32, 1.0, 0.0, cblas_sgemm, value, Some(ffi::cblas_sgemv), DENSE[0], DENSE[1]);
by_blas!(f64, 1.0, 0.0, cblas_dgemm, value, Some(ffi::cblas_dgemv), none, none);
by_blas!(Complex32, Complex32::new(1.0, 0.0), Complex32::new(0.0, 0.0), cblas_cgemm, pointer, None, none, none);
by_blas!(Complex64, Complex64::new(1.0, 0.0), Complex64::new(0.0, 0.0), cblas_zgemm, pointer, None, none, none);

macro_rules! by_loops {
    ($($t:ty, $one:expr, $zero:expr, $block:path $(, $whole:path)?;)*) => {
        $(impl Gemm for $t {
            const ONE: $t = $one;
            const ZERO: $t = $zero;
            whole!($t $(, $whole)?);

            fn block(product: &Product<$t>, c: &mut [$t]) {
                $block(product, c);
            }
        })*
    };
}
by_loops! {
    bool, true, false, generic::block;
    u8, 1, 0, generic::block;
    i8, 1, 0, generic::block;
    i16, 1, 0, generic::block;
    i32, 1, 0, generic::block;
    i64, 1, 0, generic::block;
    f16, f16::ONE, f16::ZERO, generic::widened_here, generic::widened;
    bf16, bf16::ONE, bf16::ZERO, paired_here, paired;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd::Wide;

    /// Every transposition of a 5 × 7 by 7 × 3 product, by rows longer than needed.
    fn check<T: Gemm>(number: impl Fn(usize) -> T, value: impl Fn(T) -> f64, sizes: (usize, usize, usize)) {
        let (m, n, k) = sizes;
        for (ta, tb, pad) in [(false, false, 0), (true, false, 2), (false, true, 1), (true, true, 3)] {
            let (lda, ldb, ldc) = (if ta { m } else { k } + pad, if tb { k } else { n } + pad, n + pad);
            let a: Vec<T> = (0..m.max(k) * lda).map(|i| number(i * 7 % 5)).collect();
            let b: Vec<T> = (0..n.max(k) * ldb).map(|i| number(i * 5 % 4)).collect();
            let mut c = vec![number(3); m * ldc];
            let (ma, mb) = (Matrix { data: &a, ld: lda, trans: ta }, Matrix { data: &b, ld: ldb, trans: tb });
            gemm(&Product { ldc, ..Product::of([m, n, k], ma, mb) }, &mut c);
            let at =
                |x: &[T], ld: usize, t: bool, i: usize, j: usize| value(if t { x[j * ld + i] } else { x[i * ld + j] });
            for i in 0..m {
                for j in 0..ldc {
                    let sum: f64 = (0..k).map(|l| at(&a, lda, ta, i, l) * at(&b, ldb, tb, l, j.min(n - 1))).sum();
                    let want = if j < n { sum } else { value(number(3)) };
                    assert_eq!(value(c[i * ldc + j]), want, "{:?} ({ta}, {tb}) at {i}, {j}", T::DTYPE);
                }
            }
        }
    }

    #[test]
    fn products_of_every_dtype() {
        // Those of our own products: whole and cut tiles and panels, and more terms than are added up at once.
        for sizes in [(33, 70, 80), (6, 16, 600), (17, 130, 1030), (200, 64, 64), (50, 250, 400)] {
            check(|i| (i % 3) as f32 - 1.0, f64::from, sizes);
        }
        for sizes in [(5, 3, 7), (1, 1, 1), (40, 1, 9), (1, 17, 4), (33, 70, 20)] {
            check(|i| i as f32, f64::from, sizes);
            check(|i| i as f64, |x| x, sizes);
            check(|i| i as i64, |x| x as f64, sizes);
            check(|i| i as i32, f64::from, sizes);
            check(|i| i as i16, f64::from, sizes);
            check(|i| Complex32::new(i as f32, 0.0), |x| x.re.into(), sizes);
            check(|i| Complex64::new(i as f64, 0.0), |x| x.re, sizes);
            check(|i| f16::from_f32(i as f32), f64::from, sizes);
            check(|i| bf16::from_f32(i as f32 / 4.0), |x| (f64::from(x) * 4.0 * 256.0).round() / 1024.0, (3, 2, 2));
        }
        check(|i| i as u8, f64::from, (2, 3, 4));
        check(|i| i as i8, f64::from, (2, 3, 4));
    }

    /// Products that are cut into panels in every direction, with factors, against sums in double precision.
    fn check_panels<T: Gemm + Wide<W = f32>>(number: impl Fn(f32) -> T, tolerance: f64) {
        let entry = |i: usize, seed: usize| ((i * 7919 + seed * 31) % 257) as f32 / 128.0 - 1.0;
        for (m, n, k) in [(17, 33, 32), (40, 100, 790), (21, 4200, 33), (97, 65, 385), (1, 300, 50), (200, 32, 170)] {
            for (ta, tb, pad, alpha, beta) in [
                (false, false, 0, 1.0, 0.0),
                (true, false, 2, -0.5, 1.0),
                (false, true, 1, 2.0, 0.5),
                (true, true, 3, 1.0, 1.0),
            ] {
                let (lda, ldb, ldc) = (if ta { m } else { k } + pad, if tb { k } else { n } + pad, n + pad);
                let a: Vec<T> = (0..m.max(k) * lda).map(|i| number(entry(i, 1))).collect();
                let b: Vec<T> = (0..n.max(k) * ldb).map(|i| number(entry(i, 2))).collect();
                // What is not read may be anything.
                let before = |i: usize| if beta == 0.0 { number(f32::NAN) } else { number(entry(i, 3)) };
                let mut c: Vec<T> = (0..m * ldc).map(before).collect();
                let (ma, mb) = (Matrix { data: &a, ld: lda, trans: ta }, Matrix { data: &b, ld: ldb, trans: tb });
                let (alpha_of, beta_of) = (number(alpha), number(beta));
                gemm(&Product { m, n, k, alpha: alpha_of, a: ma, b: mb, beta: beta_of, ldc }, &mut c);
                let at = |x: &[T], ld: usize, t: bool, i: usize, j: usize| {
                    f64::from(if t { x[j * ld + i] } else { x[i * ld + j] }.widen())
                };
                for (i, j) in (0..m).step_by(9).flat_map(|i| (0..ldc).map(move |j| (i, j))) {
                    let got = c[i * ldc + j];
                    if j >= n {
                        assert_eq!(got.widen().to_bits(), before(i * ldc + j).widen().to_bits());
                        continue;
                    }
                    let sum: f64 = (0..k).map(|l| at(&a, lda, ta, i, l) * at(&b, ldb, tb, l, j)).sum();
                    let old = if beta == 0.0 { 0.0 } else { f64::from(before(i * ldc + j).widen()) };
                    let want = f64::from(alpha) * sum + f64::from(beta) * old;
                    let near = (f64::from(got.widen()) - want).abs() <= tolerance * (want.abs() + 0.01 * k as f64);
                    assert!(near, "{:?} {m} {n} {k} ({ta}, {tb}) at {i}, {j}: {want}", T::DTYPE);
                }
            }
        }
        // What is not finite stays in its own rows and columns.
        let (m, n, k) = (40, 70, 60);
        let mut a = vec![number(1.0); m * k];
        let b = vec![number(1.0); k * n];
        a[3 * k + 5] = number(f32::NAN);
        a[9 * k] = number(f32::INFINITY);
        let mut c = vec![number(0.0); m * n];
        let of = |data| Matrix { data, ld: k, trans: false };
        gemm(&Product::of([m, n, k], of(&a), Matrix { ld: n, ..of(&b) }), &mut c);
        for (i, row) in c.chunks(n).enumerate() {
            let fits = |x: f32| match i {
                3 => x.is_nan(),
                9 => x == f32::INFINITY,
                _ => x == k as f32,
            };
            assert!(row.iter().all(|x| fits(x.widen())), "row {i}");
        }
    }

    #[test]
    fn panels_of_every_shape() {
        for threads in [1, 3] {
            threads::set_num_threads(threads);
            check_panels::<f32>(|x| x, 1e-5);
            check_panels::<f16>(f16::from_f32, 1e-3);
            check_panels::<bf16>(bf16::from_f32, 8e-3);
        }
    }

    #[test]
    fn large_products_split_over_threads() {
        threads::set_num_threads(3);
        check(|i| i as f32, f64::from, (301, 203, 107));
        check(|i| i as i64, |x| x as f64, (301, 103, 107));
    }

    #[test]
    fn beta_and_empty_depth() {
        let mut c = [1.0f32, 2.0, 3.0, 4.0];
        let empty = Matrix { data: &[], ld: 2, trans: false };
        gemm(&Product { beta: 0.5, ..Product::of([2, 2, 0], empty, empty) }, &mut c);
        assert_eq!(c, [0.5, 1.0, 1.5, 2.0]);
        let eye = Matrix { data: &[1.0, 0.0, 0.0, 1.0], ld: 2, trans: false };
        gemm(&Product { alpha: 2.0, beta: 1.0, ..Product::of([2, 2, 2], eye, eye) }, &mut c);
        assert_eq!(c, [2.5, 1.0, 1.5, 4.0]);
        gemm(&Product::of([2, 2, 0], empty, empty), &mut c);
        assert_eq!(c, [0.0; 4]);
    }

    #[test]
    #[should_panic(expected = "too short")]
    fn short_slices_are_refused() {
        let x = Matrix { data: &[1.0f32; 5], ld: 3, trans: false };
        gemm(&Product::of([2, 2, 3], x, x), &mut [0.0; 4]);
    }
}
