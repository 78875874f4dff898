//! Matrix products: BLAS for `f32`, `f64` and `complex64`, and by way of `f32` for 16-bit floats; blocked loops for the
//! other dtypes.
//!
//! May depend on `simd`, `dtype` and `error`; with `simd` the one place on the CPU side where `unsafe` is allowed.
//! Invariant: BLAS itself runs on one thread, and rows are split over the engine's pool: two pools would fight.

#[cfg(all(target_arch = "x86_64", not(target_os = "macos")))]
mod dense;
mod factor;
mod ffi;
mod generic;
mod lapack;
mod ldl;
#[cfg(all(target_arch = "x86_64", not(target_os = "macos")))]
mod pairs;
#[cfg(all(target_arch = "x86_64", not(target_os = "macos")))]
mod turn;

pub use factor::{Decompose, Eigen};
pub use lapack::Lapack;
pub use ldl::Packed;

use super::simd::threads;
use crate::dtype::Element;
use half::{bf16, f16};
use num_complex::Complex32;
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

/// Elements that matrices can be multiplied of.
pub trait Gemm: Element {
    /// The number one.
    const ONE: Self;
    /// The number zero.
    const ZERO: Self;

    /// A whole product over the pool, all sizes at least 1 and checked; false where there is no better way than by blocks.
    #[allow(clippy::too_many_arguments, unused_variables)]
    fn whole(
        m: usize,
        n: usize,
        k: usize,
        alpha: Self,
        a: Matrix<Self>,
        b: Matrix<Self>,
        beta: Self,
        c: &mut [Self],
        ldc: usize,
    ) -> bool {
        false
    }

    /// One product on this thread, all sizes at least 1 and checked. Writes `c` without reading it where beta is 0.
    #[allow(clippy::too_many_arguments)]
    fn block(
        m: usize,
        n: usize,
        k: usize,
        alpha: Self,
        a: Matrix<Self>,
        b: Matrix<Self>,
        beta: Self,
        c: &mut [Self],
        ldc: usize,
    );
}

/// `c = alpha a b + beta c` for `a` of m × k, `b` of k × n, and `c` of m × n in rows `ldc` apart, over the pool where
/// that pays. `c` is only written where beta is 0.
///
/// # Panics
/// If a slice is too short for its matrix.
#[allow(clippy::too_many_arguments)]
pub fn gemm<T: Gemm>(
    m: usize,
    n: usize,
    k: usize,
    alpha: T,
    a: Matrix<T>,
    b: Matrix<T>,
    beta: T,
    c: &mut [T],
    ldc: usize,
) {
    if m == 0 || n == 0 {
        return;
    }
    let fits = c.len() >= (m - 1) * ldc + n && ldc >= n;
    assert!(a.holds(m, k) && b.holds(k, n) && fits, "gemm: a slice is too short for {m} x {k} x {n}");
    if k == 0 {
        if beta == T::ZERO {
            c.chunks_mut(ldc).take(m).for_each(|row| row[..n].fill(T::ZERO));
            return;
        }
        // Scaling by beta is a product of depth 1 with alpha 0.
        let zero = [T::ZERO];
        let of_zeros = |trans| Matrix { data: &zero, ld: 1, trans };
        for row in c.chunks_mut(ldc).take(m) {
            for x in &mut row[..n] {
                T::block(1, 1, 1, T::ZERO, of_zeros(false), of_zeros(false), beta, std::slice::from_mut(x), 1);
            }
        }
        return;
    }
    let c = &mut c[..(m - 1) * ldc + n];
    if T::whole(m, n, k, alpha, a, b, beta, c, ldc) {
        return;
    }
    // A region costs as much as 2^18 multiplications; Accelerate splits on its own.
    let rows = if cfg!(target_os = "macos") { m } else { ((1usize << 19) / (n * k)).max(8) };
    if m * n * k < 1 << 20 {
        return T::block(m, n, k, alpha, a, b, beta, c, ldc);
    }
    threads::for_chunks(c, ldc, rows.saturating_mul(ldc), |start, c| {
        let (r, m) = (start / ldc, c.len().div_ceil(ldc));
        T::block(m, n, k, alpha, a.below(r), b, beta, c, ldc);
    });
}

/// `c = a b` on this thread: for many small products that are split over the pool as a whole.
///
/// # Panics
/// If a slice is too short for its matrix.
pub fn gemm_here<T: Gemm>(m: usize, n: usize, k: usize, a: Matrix<T>, b: Matrix<T>, c: &mut [T]) {
    if m == 0 || n == 0 {
        return;
    }
    assert!(a.holds(m, k) && b.holds(k, n) && c.len() >= m * n, "gemm: a slice is too short for {m} x {k} x {n}");
    match k {
        0 => c[..m * n].fill(T::ZERO),
        _ => T::block(m, n, k, T::ONE, a, b, T::ZERO, c, n),
    }
}

/// OpenBLAS would start threads of its own.
fn one_thread() {
    static ONCE: Once = Once::new();
    #[cfg(not(target_os = "macos"))]
    // SAFETY: takes a number, and is called once before any other function of OpenBLAS.
    ONCE.call_once(|| unsafe { ffi::scipy_openblas_set_num_threads(1) });
    #[cfg(target_os = "macos")]
    ONCE.call_once(|| {});
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
#[allow(clippy::too_many_arguments)]
fn paired(
    m: usize,
    n: usize,
    k: usize,
    alpha: bf16,
    a: Matrix<bf16>,
    b: Matrix<bf16>,
    beta: bf16,
    c: &mut [bf16],
    ldc: usize,
) -> bool {
    #[cfg(all(target_arch = "x86_64", not(target_os = "macos")))]
    if pairs::product(m, n, k, alpha, a, b, beta, c, ldc) {
        return true;
    }
    generic::widened(m, n, k, alpha, a, b, beta, c, ldc)
}

/// [`paired`] as a block of a product.
#[allow(clippy::too_many_arguments)]
fn paired_here(
    m: usize,
    n: usize,
    k: usize,
    alpha: bf16,
    a: Matrix<bf16>,
    b: Matrix<bf16>,
    beta: bf16,
    c: &mut [bf16],
    ldc: usize,
) {
    paired(m, n, k, alpha, a, b, beta, c, ldc);
}

macro_rules! whole {
    ($t:ty) => {};
    ($t:ty, $whole:expr) => {
        fn whole(
            m: usize,
            n: usize,
            k: usize,
            alpha: $t,
            a: Matrix<$t>,
            b: Matrix<$t>,
            beta: $t,
            c: &mut [$t],
            ldc: usize,
        ) -> bool {
            ($whole)(m, n, k, alpha, a, b, beta, c, ldc)
        }
    };
}

macro_rules! by_blas {
    ($t:ty, $one:expr, $zero:expr, $gemm:ident, $by:tt, $gemv:expr, $whole:expr, $own:expr) => {
        impl Gemm for $t {
            const ONE: $t = $one;
            const ZERO: $t = $zero;

            whole!($t, $whole);

            fn block(m: usize, n: usize, k: usize, alpha: $t, a: Matrix<$t>, b: Matrix<$t>, beta: $t, c: &mut [$t], ldc: usize) {
                assert!(a.holds(m, k) && b.holds(k, n) && c.len() >= (m - 1) * ldc + n, "gemm: a slice is too short");
                let sizes = [m, n, k, a.ld, b.ld, ldc].map(int);
                let [Some(mi), Some(ni), Some(ki), Some(lda), Some(ldb), Some(ldc)] = sizes else {
                    return generic::block(m, n, k, alpha, a, b, beta, c, ldc);
                };
                one_thread();
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
                if own(m, n, k, alpha, a, b, beta, c, ldc as usize) {
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
type Own<T> = fn(usize, usize, usize, T, Matrix<T>, Matrix<T>, T, &mut [T], usize) -> bool;

/// What takes no product.
#[allow(clippy::too_many_arguments)]
fn none<T>(_: usize, _: usize, _: usize, _: T, _: Matrix<T>, _: Matrix<T>, _: T, _: &mut [T], _: usize) -> bool {
    false
}

#[cfg(all(target_arch = "x86_64", not(target_os = "macos")))]
const DENSE: [Own<f32>; 2] = [dense::whole, dense::product];
#[cfg(not(all(target_arch = "x86_64", not(target_os = "macos"))))]
const DENSE: [Own<f32>; 2] = [none, none];

by_blas!(f32, 1.0, 0.0, cblas_sgemm, value, Some(ffi::cblas_sgemv), DENSE[0], DENSE[1]);
by_blas!(f64, 1.0, 0.0, cblas_dgemm, value, Some(ffi::cblas_dgemv), none, none);
by_blas!(Complex32, Complex32::new(1.0, 0.0), Complex32::new(0.0, 0.0), cblas_cgemm, pointer, None, none, none);

macro_rules! by_loops {
    ($($t:ty, $one:expr, $zero:expr, $block:path $(, $whole:path)?;)*) => {
        $(impl Gemm for $t {
            const ONE: $t = $one;
            const ZERO: $t = $zero;
            whole!($t $(, $whole)?);

            fn block(m: usize, n: usize, k: usize, alpha: $t, a: Matrix<$t>, b: Matrix<$t>, beta: $t, c: &mut [$t], ldc: usize) {
                $block(m, n, k, alpha, a, b, beta, c, ldc);
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
    use crate::cpu::simd::Wide;

    /// Every transposition of a 5 × 7 by 7 × 3 product, by rows longer than needed.
    fn check<T: Gemm>(number: impl Fn(usize) -> T, value: impl Fn(T) -> f64, sizes: (usize, usize, usize)) {
        let (m, n, k) = sizes;
        for (ta, tb, pad) in [(false, false, 0), (true, false, 2), (false, true, 1), (true, true, 3)] {
            let (lda, ldb, ldc) = (if ta { m } else { k } + pad, if tb { k } else { n } + pad, n + pad);
            let a: Vec<T> = (0..m.max(k) * lda).map(|i| number(i * 7 % 5)).collect();
            let b: Vec<T> = (0..n.max(k) * ldb).map(|i| number(i * 5 % 4)).collect();
            let mut c = vec![number(3); m * ldc];
            let (ma, mb) = (Matrix { data: &a, ld: lda, trans: ta }, Matrix { data: &b, ld: ldb, trans: tb });
            gemm(m, n, k, T::ONE, ma, mb, T::ZERO, &mut c, ldc);
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
                gemm(m, n, k, number(alpha), ma, mb, number(beta), &mut c, ldc);
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
        gemm(m, n, k, number(1.0), of(&a), Matrix { ld: n, ..of(&b) }, number(0.0), &mut c, n);
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
        gemm(2, 2, 0, 1.0, empty, empty, 0.5, &mut c, 2);
        assert_eq!(c, [0.5, 1.0, 1.5, 2.0]);
        let eye = Matrix { data: &[1.0, 0.0, 0.0, 1.0], ld: 2, trans: false };
        gemm(2, 2, 2, 2.0, eye, eye, 1.0, &mut c, 2);
        assert_eq!(c, [2.5, 1.0, 1.5, 4.0]);
        gemm(2, 2, 0, 1.0, empty, empty, 0.0, &mut c, 2);
        assert_eq!(c, [0.0; 4]);
    }

    #[test]
    #[should_panic(expected = "too short")]
    fn short_slices_are_refused() {
        let x = Matrix { data: &[1.0f32; 5], ld: 3, trans: false };
        gemm(2, 2, 3, 1.0, x, x, 0.0, &mut [0.0; 4], 2);
    }
}
