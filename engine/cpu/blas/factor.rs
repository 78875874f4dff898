//! Cholesky, QR, eigenvalue and singular value decompositions, and triangular systems, from LAPACK and BLAS.
//!
//! Depends on `ffi`. LAPACK reads columns; a row-major matrix is its transpose there, and each function says what that means.
//! Sizes are at least 1 and below `c_int::MAX`, which the callers see to; the slices' lengths are asserted.

use super::ffi;
use super::Lapack;
use std::ffi::{c_char, c_int};

const UPPER: c_char = b'U' as c_char;
const VECTORS: c_char = b'V' as c_char;

/// Elements that LAPACK decomposes. The numbers given back are LAPACK's `info`: 0 where all went well.
pub trait Decompose: Lapack {
    /// The lower factor `L` of the row-major `A = L Lᵀ`, of which the lower half is read, in its place; what is above the
    /// diagonal stays.
    fn cholesky(n: usize, a: &mut [Self]) -> c_int;
    /// `Q R` of `m` rows of `n`, stored by columns: the first min(m, n) columns become those of `Q`; `R` goes to `r`, row by
    /// row.
    fn qr(m: usize, n: usize, a: &mut [Self], r: &mut [Self]) -> c_int;
    /// Eigenvalues, ascending, of the symmetric matrix whose lower half is read; its rows become the eigenvectors if asked.
    fn eigh(n: usize, vectors: bool, a: &mut [Self], values: &mut [Self]) -> c_int;
    /// `U S Vᵀ` of a row-major matrix, which is used up. `job` is `'A'` (all of U and V), `'S'` (what belongs to a singular
    /// value) or `'N'` (neither; both are empty then). All row-major.
    fn svd(job: u8, m: usize, n: usize, a: &mut [Self], s: &mut [Self], u: &mut [Self], vt: &mut [Self]) -> c_int;
    /// `P L U` of `m` rows of `n`, stored by columns, in place; the number of the first pivot that is zero, from 1 on, or 0.
    fn lu_columns(m: usize, n: usize, a: &mut [Self], pivots: &mut [c_int]) -> c_int;
    /// `x` of `A x = b`, row-major and in place, `k` columns, for a triangular `A` whose other half is not read.
    fn triangular(n: usize, k: usize, upper: bool, unit: bool, a: &[Self], b: &mut [Self]);
}

fn int(n: usize) -> c_int {
    c_int::try_from(n).unwrap_or(c_int::MAX)
}

macro_rules! decompose {
    ($t:ty: $potrf:ident $geqrf:ident $orgqr:ident $syevd:ident $gesdd:ident $getrf:ident $trsm:ident) => {
        impl Decompose for $t {
            fn cholesky(n: usize, a: &mut [$t]) -> c_int {
                assert!(n > 0 && a.len() >= n * n, "cholesky: too short");
                super::one_thread();
                let (size, mut info) = (int(n), 0);
                // SAFETY: `a` holds an n by n matrix. The lower half of rows is the upper one of columns.
                unsafe { ffi::$potrf(&UPPER, &size, a.as_mut_ptr(), &size, &mut info, 1) };
                info
            }

            fn qr(m: usize, n: usize, a: &mut [$t], r: &mut [$t]) -> c_int {
                let k = m.min(n);
                assert!(k > 0 && a.len() >= m * n && r.len() >= k * n, "qr: too short");
                super::one_thread();
                let (rows, columns, rank) = (int(m), int(n), int(k));
                let room = n.max(k).saturating_mul(64);
                let (mut tau, mut work, len, mut info) = (vec![0.0; k], vec![0.0; room], int(room), 0);
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
                if info != 0 {
                    return info;
                }
                for i in 0..k {
                    for j in 0..n {
                        r[i * n + j] = if i <= j { a[j * m + i] } else { 0.0 };
                    }
                }
                // SAFETY: as above; k is at most m, and `a` holds at least m by k elements.
                unsafe {
                    ffi::$orgqr(
                        &rows,
                        &rank,
                        &rank,
                        a.as_mut_ptr(),
                        &rows,
                        tau.as_ptr(),
                        work.as_mut_ptr(),
                        &len,
                        &mut info,
                    )
                };
                info
            }

            fn eigh(n: usize, vectors: bool, a: &mut [$t], values: &mut [$t]) -> c_int {
                assert!(n > 0 && a.len() >= n * n && values.len() >= n, "eigh: too short");
                super::one_thread();
                let job = if vectors { VECTORS } else { b'N' as c_char };
                let (size, mut info, mut query, mut whole) = (int(n), 0, [0.0; 1], [0; 1]);
                let mut run = |work: &mut [$t], len: c_int, iwork: &mut [c_int], ilen: c_int| {
                    // SAFETY: `a` and `values` were asserted to be long enough; the workspaces are as long as said, or one
                    // element for the question how long they should be.
                    unsafe {
                        ffi::$syevd(
                            &job,
                            &UPPER,
                            &size,
                            a.as_mut_ptr(),
                            &size,
                            values.as_mut_ptr(),
                            work.as_mut_ptr(),
                            &len,
                            iwork.as_mut_ptr(),
                            &ilen,
                            &mut info,
                            1,
                            1,
                        )
                    };
                    info
                };
                if run(&mut query, -1, &mut whole, -1) != 0 {
                    return -1;
                }
                let (len, ilen) = (query[0] as usize + 1, usize::try_from(whole[0]).unwrap_or(0) + 1);
                run(&mut vec![0.0; len], int(len), &mut vec![0; ilen], int(ilen))
            }

            fn svd(job: u8, m: usize, n: usize, a: &mut [$t], s: &mut [$t], u: &mut [$t], vt: &mut [$t]) -> c_int {
                let k = m.min(n);
                let (ku, kv) = match job {
                    b'A' => (m, n),
                    b'S' => (k, k),
                    _ => (0, 0),
                };
                let fits = a.len() >= m * n && s.len() >= k && u.len() >= m * ku && vt.len() >= kv * n;
                assert!(k > 0 && fits, "svd: too short");
                super::one_thread();
                // The transpose is decomposed, into V S Uᵀ by columns: that is Vᵀ and U by rows.
                let (rows, columns, ld_v, ld_u) = (int(n), int(m), int(n), int(ku.max(1)));
                let (letter, mut iwork, mut info, mut query) = (job as c_char, vec![0; 8 * k], 0, [0.0; 1]);
                let mut run = |work: &mut [$t], len: c_int| {
                    // SAFETY: the assertion says that all arrays hold what the job writes; `work` is as long as said, or
                    // one element for the question how long it should be.
                    unsafe {
                        ffi::$gesdd(
                            &letter,
                            &rows,
                            &columns,
                            a.as_mut_ptr(),
                            &rows,
                            s.as_mut_ptr(),
                            vt.as_mut_ptr(),
                            &ld_v,
                            u.as_mut_ptr(),
                            &ld_u,
                            work.as_mut_ptr(),
                            &len,
                            iwork.as_mut_ptr(),
                            &mut info,
                            1,
                        )
                    };
                    info
                };
                if run(&mut query, -1) != 0 {
                    return -1;
                }
                let len = query[0] as usize + 1;
                run(&mut vec![0.0; len], int(len))
            }

            fn lu_columns(m: usize, n: usize, a: &mut [$t], pivots: &mut [c_int]) -> c_int {
                assert!(m.min(n) > 0 && a.len() >= m * n && pivots.len() >= m.min(n), "lu: too short");
                super::one_thread();
                let (rows, columns, mut info) = (int(m), int(n), 0);
                // SAFETY: the assertion says that both slices hold what an m by n matrix needs.
                unsafe { ffi::$getrf(&rows, &columns, a.as_mut_ptr(), &rows, pivots.as_mut_ptr(), &mut info) };
                info
            }

            fn triangular(n: usize, k: usize, upper: bool, unit: bool, a: &[$t], b: &mut [$t]) {
                assert!(n > 0 && k > 0 && a.len() >= n * n && b.len() >= n * k, "triangular: too short");
                super::one_thread();
                let half = if upper { ffi::UPPER } else { ffi::LOWER };
                let diagonal = if unit { ffi::UNIT } else { ffi::NON_UNIT };
                let (size, sides) = (int(n), int(k));
                // SAFETY: the assertion says that both slices hold what the sizes say, in rows without gaps.
                unsafe {
                    ffi::$trsm(
                        ffi::ROW_MAJOR,
                        ffi::LEFT,
                        half,
                        ffi::NO_TRANS,
                        diagonal,
                        size,
                        sides,
                        1.0,
                        a.as_ptr(),
                        size,
                        b.as_mut_ptr(),
                        sides,
                    )
                };
            }
        }
    };
}
decompose!(f32: spotrf_ sgeqrf_ sorgqr_ ssyevd_ sgesdd_ sgetrf_ cblas_strsm);
decompose!(f64: dpotrf_ dgeqrf_ dorgqr_ dsyevd_ dgesdd_ dgetrf_ cblas_dtrsm);
