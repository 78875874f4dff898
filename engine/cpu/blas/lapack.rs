//! LU factorisation and what is solved by it, from LAPACK.
//!
//! Depends on `ffi`. LAPACK reads columns; a row-major matrix is its transpose there, and each function says what that means.

#[cfg(all(target_arch = "x86_64", not(accelerate)))]
use super::block_lu;
use super::{ffi, small_lu};
use crate::dtype::Element;
use crate::fallible::scratch;
use num_complex::{Complex32, Complex64, ComplexFloat};
use std::ffi::{c_char, c_int};

/// LAPACK's letter for a transposed matrix, not conjugated.
const TRANS: c_char = b'T' as c_char;
const NO_TRANS: c_char = b'N' as c_char;

/// Elements that LAPACK factors.
pub trait Lapack: Element + ComplexFloat<Real: Element> + std::ops::MulAssign {
    /// Factors the transpose of the row-major `n` by `n` matrix in place, as `P L U`. The number of the first pivot that is
    /// zero, from 1 on, or 0.
    fn lu(n: usize, a: &mut [Self], pivots: &mut [c_int]) -> usize;
    /// The inverse from [`Lapack::lu`]'s factors, in place: row-major again, as the inverse of a transpose is transposed.
    fn inverse(n: usize, a: &mut [Self], pivots: &[c_int]);
    /// Solves `A x = b` for `k` right sides of `n` elements each, one after the other, from [`Lapack::lu`]'s factors.
    fn solve(n: usize, k: usize, a: &[Self], pivots: &[c_int], b: &mut [Self]);
}

/// What is done by this crate's own products where they are better than LAPACK's; false or `None` where they are not.
pub(super) trait ByBlocks: Sized {
    /// `P L U` of `m` by `n` columns, in place: LAPACK's `info`.
    fn lu_by_blocks(_m: usize, _n: usize, _a: &mut [Self], _pivots: &mut [c_int]) -> Option<c_int> {
        None
    }
    /// The inverse from the factors.
    fn inverse_by_blocks(_n: usize, _a: &mut [Self], _pivots: &[c_int]) -> bool {
        false
    }
    /// Solves for `k` right sides of the factored matrix's transpose.
    fn solve_by_blocks(_n: usize, _k: usize, _a: &[Self], _pivots: &[c_int], _b: &mut [Self]) -> bool {
        false
    }
}
#[cfg(any(not(target_arch = "x86_64"), accelerate))]
impl ByBlocks for f32 {}
impl ByBlocks for f64 {}
impl ByBlocks for Complex32 {}
impl ByBlocks for Complex64 {}

#[cfg(all(target_arch = "x86_64", not(accelerate)))]
impl ByBlocks for f32 {
    fn lu_by_blocks(m: usize, n: usize, a: &mut [f32], pivots: &mut [c_int]) -> Option<c_int> {
        block_lu::suits(m.min(n)).then(|| block_lu::lu(m, n, a, pivots))
    }
    fn inverse_by_blocks(n: usize, a: &mut [f32], pivots: &[c_int]) -> bool {
        block_lu::suits(n) && {
            block_lu::inverse(n, a, pivots);
            true
        }
    }
    fn solve_by_blocks(n: usize, k: usize, a: &[f32], pivots: &[c_int], b: &mut [f32]) -> bool {
        block_lu::suits_sides(n, k) && {
            block_lu::solve_transposed(n, k, a, pivots, b);
            true
        }
    }
}

/// A size as LAPACK takes it. Sizes are checked before any of these functions is called.
fn int(n: usize) -> c_int {
    c_int::try_from(n).unwrap_or(c_int::MAX)
}

macro_rules! lapack {
    ($t:ty: $getrf:ident $getrs:ident) => {
        impl Lapack for $t {
            fn lu(n: usize, a: &mut [$t], pivots: &mut [c_int]) -> usize {
                assert!(n > 0 && n < c_int::MAX as usize && a.len() >= n * n && pivots.len() >= n, "lu: too short");
                let _inside = super::enter();
                let own = small_lu::lu(n, n, a, pivots).or_else(|| Self::lu_by_blocks(n, n, a, pivots));
                if let Some(info) = own {
                    return usize::try_from(info).unwrap_or(0);
                }
                let (size, mut info) = (int(n), 0);
                // SAFETY: the assertion says that both slices hold what an n by n matrix needs; they are exclusive.
                unsafe { ffi::$getrf(&size, &size, a.as_mut_ptr(), &size, pivots.as_mut_ptr(), &mut info) };
                usize::try_from(info).unwrap_or(0)
            }

            fn inverse(n: usize, a: &mut [$t], pivots: &[c_int]) {
                assert!(
                    n > 0 && n < c_int::MAX as usize && a.len() >= n * n && pivots.len() >= n,
                    "inverse: too short"
                );
                if n <= small_lu::LARGEST {
                    return small_lu::inverse(n, a, pivots);
                }
                if Self::inverse_by_blocks(n, a, pivots) {
                    return;
                }
                let _inside = super::enter();
                // The system of the identity: `getri` takes two and a half times as long for 512 rows.
                let (size, mut info) = (int(n), 0);
                let mut columns = scratch(<$t>::default(), n * n);
                columns.iter_mut().step_by(n + 1).for_each(|x| *x = num_traits::One::one());
                // SAFETY: as above; `columns` holds n columns of n elements.
                unsafe {
                    ffi::$getrs(
                        &NO_TRANS,
                        &size,
                        &size,
                        a.as_ptr(),
                        &size,
                        pivots.as_ptr(),
                        columns.as_mut_ptr(),
                        &size,
                        &mut info,
                        1,
                    )
                };
                a[..n * n].copy_from_slice(&columns);
            }

            fn solve(n: usize, k: usize, a: &[$t], pivots: &[c_int], b: &mut [$t]) {
                let fits = n > 0 && n.max(k) < c_int::MAX as usize && a.len() >= n * n && b.len() >= n * k;
                assert!(fits && pivots.len() >= n, "solve: too short");
                if n <= small_lu::LARGEST {
                    return small_lu::solve_transposed(n, a, pivots, &mut b[..n * k]);
                }
                if Self::solve_by_blocks(n, k, a, pivots, b) {
                    return;
                }
                let _inside = super::enter();
                let (size, sides, mut info) = (int(n), int(k), 0);
                // SAFETY: as above; `b` holds k columns of n elements. The factors are the transpose's: "T" undoes that.
                unsafe {
                    ffi::$getrs(
                        &TRANS,
                        &size,
                        &sides,
                        a.as_ptr(),
                        &size,
                        pivots.as_ptr(),
                        b.as_mut_ptr(),
                        &size,
                        &mut info,
                        1,
                    )
                };
            }
        }
    };
}
lapack!(f32: sgetrf_ sgetrs_);
lapack!(f64: dgetrf_ dgetrs_);
lapack!(Complex32: cgetrf_ cgetrs_);
lapack!(Complex64: zgetrf_ zgetrs_);
