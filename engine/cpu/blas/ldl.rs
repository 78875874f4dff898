//! Factors of symmetric matrices that need not be definite, and Householder's reflections, from LAPACK.
//!
//! Depends on `ffi`. Matrices are stored by columns. Sizes are at least 1 and below `c_int::MAX`, which the callers see to;
//! the slices' lengths are asserted.

use super::ffi;
use super::Lapack;
use crate::fallible::scratch;
use num_complex::{Complex32, Complex64};
use std::ffi::{c_char, c_int};

const LOWER: c_char = b'L' as c_char;

/// Elements of matrices that LAPACK factors in place. The numbers given back are LAPACK's `info`.
pub trait Packed: Lapack {
    /// `L D Lᵀ`, or if `hermitian` `L D Lᴴ`, of the matrix whose lower half is read and written, with the pivots of
    /// Bunch and Kaufman; 0, or the first block of `D` that is zero, from 1 on.
    fn ldl(n: usize, hermitian: bool, a: &mut [Self], pivots: &mut [c_int]) -> c_int;
    /// Solves for `k` columns from [`Packed::ldl`]'s factors. False where the pivots are none that it could have given.
    fn ldl_solve(n: usize, k: usize, hermitian: bool, a: &[Self], pivots: &[c_int], b: &mut [Self]) -> bool;
    /// `Q R` of `m` rows of `n`: `R` from the diagonal on, and below it the vectors of the reflections that make `Q`.
    fn reflections(m: usize, n: usize, a: &mut [Self], tau: &mut [Self]) -> c_int;
}

fn int(n: usize) -> c_int {
    c_int::try_from(n).unwrap_or(c_int::MAX)
}

/// Does each pivot name a row, and does each negative one, which belongs to a block of two, have a second beside it?
fn sound(pivots: &[c_int]) -> bool {
    let row = |p: c_int| (1..=pivots.len()).contains(&(p.unsigned_abs() as usize));
    let mut i = 0;
    while i < pivots.len() {
        let block = if pivots[i] > 0 { 1 } else { 2 };
        let of_block = |&p: &c_int| row(p) && (p > 0) == (block == 1);
        match pivots.get(i..i + block) {
            Some(block) if block.iter().all(of_block) => i += block.len(),
            _ => return false,
        }
    }
    true
}

macro_rules! packed {
    ($t:ty: $sytrf:ident $hetrf:ident $sytrs:ident $hetrs:ident $geqrf:ident) => {
        impl Packed for $t {
            fn ldl(n: usize, hermitian: bool, a: &mut [$t], pivots: &mut [c_int]) -> c_int {
                assert!(n > 0 && a.len() >= n * n && pivots.len() >= n, "ldl: too short");
                let _inside = super::enter();
                let room = n.saturating_mul(64);
                let (size, len, mut info, mut work) = (int(n), int(room), 0, scratch(<$t>::default(), room));
                let routine = if hermitian { ffi::$hetrf } else { ffi::$sytrf };
                // SAFETY: the assertion says that both slices hold what an n by n matrix needs; `work` is as long as said.
                unsafe {
                    routine(
                        &LOWER,
                        &size,
                        a.as_mut_ptr(),
                        &size,
                        pivots.as_mut_ptr(),
                        work.as_mut_ptr(),
                        &len,
                        &mut info,
                        1,
                    )
                };
                info
            }

            fn ldl_solve(n: usize, k: usize, hermitian: bool, a: &[$t], pivots: &[c_int], b: &mut [$t]) -> bool {
                let fits = a.len() >= n * n && pivots.len() == n && b.len() >= n * k;
                assert!(n > 0 && k > 0 && fits, "ldl_solve: too short");
                if !sound(pivots) {
                    return false;
                }
                let _inside = super::enter();
                let (size, sides, mut info) = (int(n), int(k), 0);
                let routine = if hermitian { ffi::$hetrs } else { ffi::$sytrs };
                // SAFETY: as above, and `b` holds k columns of n elements; the pivots name rows of theirs, in pairs where
                // LAPACK takes two at once.
                unsafe {
                    routine(
                        &LOWER,
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
                info == 0
            }

            fn reflections(m: usize, n: usize, a: &mut [$t], tau: &mut [$t]) -> c_int {
                let k = m.min(n);
                assert!(k > 0 && a.len() >= m * n && tau.len() >= k, "reflections: too short");
                let _inside = super::enter();
                let room = n.saturating_mul(64);
                let (rows, columns, len, mut info) = (int(m), int(n), int(room), 0);
                let mut work = scratch(<$t>::default(), room);
                // SAFETY: `a` holds m by n elements, `tau` one for each reflection, `work` is as long as said.
                unsafe {
                    ffi::$geqrf(
                        &rows,
                        &columns,
                        a.as_mut_ptr(),
                        &rows,
                        tau.as_mut_ptr(),
                        work.as_mut_ptr(),
                        &len,
                        &mut info,
                    )
                };
                info
            }
        }
    };
}
packed!(f32: ssytrf_ ssytrf_ ssytrs_ ssytrs_ sgeqrf_);
packed!(f64: dsytrf_ dsytrf_ dsytrs_ dsytrs_ dgeqrf_);
packed!(Complex32: csytrf_ chetrf_ csytrs_ chetrs_ cgeqrf_);
packed!(Complex64: zsytrf_ zhetrf_ zsytrs_ zhetrs_ zgeqrf_);
