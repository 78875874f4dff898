//! Cholesky, QR, eigenvalue and singular value decompositions, and triangular systems, from LAPACK and BLAS.
//!
//! Depends on `ffi` and `ldl`. LAPACK reads columns; a row-major matrix is its transpose there, and each function says what
//! that means. Sizes are at least 1 and below `c_int::MAX`, which the callers see to; the slices' lengths are asserted.

use super::ffi;
use super::lapack::ByBlocks;
use super::{Lapack, Packed};
use crate::fallible::scratch;
use num_complex::{Complex, Complex32, Complex64, ComplexFloat};
use std::ffi::{c_char, c_int};

const UPPER: c_char = b'U' as c_char;
const VECTORS: c_char = b'V' as c_char;

/// Elements that LAPACK decomposes. The numbers given back are LAPACK's `info`: 0 where all went well.
pub trait Decompose: Lapack {
    /// The lower factor `L` of the row-major `A = L Lᴴ`, of which the lower half is read, in its place; what is above the
    /// diagonal stays.
    fn cholesky(n: usize, a: &mut [Self]) -> c_int;
    /// `Q R` of `m` rows of `n`, stored by columns: the first min(m, n) columns become those of `Q`; `R` goes to `r`, column by
    /// column.
    fn qr(m: usize, n: usize, a: &mut [Self], r: &mut [Self]) -> c_int;
    /// Eigenvalues, ascending, of the symmetric or Hermitian matrix whose lower half is read; its rows become the conjugate
    /// eigenvectors if asked.
    fn eigh(n: usize, vectors: bool, a: &mut [Self], values: &mut [Self::Real]) -> c_int;
    /// `U S Vᴴ` of a row-major matrix, which is used up. `job` is `'A'` (all of U and V), `'S'` (what belongs to a singular
    /// value) or `'N'` (neither; both are empty then). All row-major.
    fn svd(job: u8, m: usize, n: usize, a: &mut [Self], s: &mut [Self::Real], u: &mut [Self], vt: &mut [Self])
        -> c_int;
    /// `P L U` of `m` rows of `n`, stored by columns, in place; the number of the first pivot that is zero, from 1 on, or 0.
    fn lu_columns(m: usize, n: usize, a: &mut [Self], pivots: &mut [c_int]) -> c_int;
    /// `x` of `A x = b` in place, `k` columns one after the other, for a triangular row-major `A` whose other half is not read.
    fn triangular(n: usize, k: usize, upper: bool, unit: bool, a: &[Self], b: &mut [Self]);
}

fn int(n: usize) -> c_int {
    c_int::try_from(n).unwrap_or(c_int::MAX)
}

/// LAPACK's routines that take more workspace for complex numbers, under one signature. Callers pass pointers to what LAPACK
/// documents for the sizes given.
trait Routines: ComplexFloat {
    /// `syevd`, or `heevd` with `rwork`.
    #[allow(clippy::too_many_arguments)]
    unsafe fn eigh_routine(
        job: &c_char,
        n: &c_int,
        a: *mut Self,
        w: *mut Self::Real,
        work: *mut Self,
        len: &c_int,
        rwork: *mut Self::Real,
        rlen: &c_int,
        iwork: *mut c_int,
        ilen: &c_int,
        info: &mut c_int,
    );
    /// `gesdd`, with `rwork` for complex numbers.
    #[allow(clippy::too_many_arguments)]
    unsafe fn svd_routine(
        job: &c_char,
        m: &c_int,
        n: &c_int,
        a: *mut Self,
        s: *mut Self::Real,
        u: *mut Self,
        ldu: &c_int,
        vt: *mut Self,
        ldvt: &c_int,
        work: *mut Self,
        len: &c_int,
        rwork: *mut Self::Real,
        iwork: *mut c_int,
        info: &mut c_int,
    );
    /// Reals of workspace that the singular values of `k` columns and `most` rows need.
    fn svd_room(k: usize, most: usize) -> usize;
}

macro_rules! routines {
    ($t:ty: $room:expr, $rw:ident $rl:ident; ($($rwork:ident, $rlen:ident)?), $evd:ident $sdd:ident) => {
        impl Routines for $t {
            #[allow(unused_variables)]
            unsafe fn eigh_routine(
                job: &c_char,
                n: &c_int,
                a: *mut Self,
                w: *mut Self::Real,
                work: *mut Self,
                len: &c_int,
                $rw: *mut Self::Real,
                $rl: &c_int,
                iwork: *mut c_int,
                ilen: &c_int,
                info: &mut c_int,
            ) {
                // SAFETY: the caller passes what LAPACK documents, as the trait says.
                unsafe { ffi::$evd(job, &UPPER, n, a, n, w, work, len, $($rwork, $rlen,)? iwork, ilen, info, 1, 1) }
            }

            #[allow(unused_variables)]
            unsafe fn svd_routine(
                job: &c_char,
                m: &c_int,
                n: &c_int,
                a: *mut Self,
                s: *mut Self::Real,
                u: *mut Self,
                ldu: &c_int,
                vt: *mut Self,
                ldvt: &c_int,
                work: *mut Self,
                len: &c_int,
                $rw: *mut Self::Real,
                iwork: *mut c_int,
                info: &mut c_int,
            ) {
                // SAFETY: as above.
                unsafe { ffi::$sdd(job, m, n, a, m, s, u, ldu, vt, ldvt, work, len, $($rwork,)? iwork, info, 1) }
            }

            fn svd_room(k: usize, most: usize) -> usize {
                let room: fn(usize, usize) -> usize = $room;
                room(k, most)
            }
        }
    };
}
routines!(f32: |_, _| 1, rwork rlen; (), ssyevd_ sgesdd_);
routines!(f64: |_, _| 1, rwork rlen; (), dsyevd_ dgesdd_);
routines!(Complex32: complex_room, rwork rlen; (rwork, rlen), cheevd_ cgesdd_);
routines!(Complex64: complex_room, rwork rlen; (rwork, rlen), zheevd_ zgesdd_);

/// Reals that `gesdd` needs beside its workspace, for complex numbers.
fn complex_room(k: usize, most: usize) -> usize {
    k * (5 * k + 7).max(2 * most + 2 * k + 1)
}

macro_rules! decompose {
    ($t:ty, $one:expr; $potrf:ident $orgqr:ident $getrf:ident $trsm:ident) => {
        impl Decompose for $t {
            fn cholesky(n: usize, a: &mut [$t]) -> c_int {
                assert!(n > 0 && a.len() >= n * n, "cholesky: too short");
                let _inside = super::enter();
                let (size, mut info) = (int(n), 0);
                // SAFETY: `a` holds an n by n matrix. The lower half of rows is the upper one of columns.
                unsafe { ffi::$potrf(&UPPER, &size, a.as_mut_ptr(), &size, &mut info, 1) };
                info
            }

            fn qr(m: usize, n: usize, a: &mut [$t], r: &mut [$t]) -> c_int {
                let k = m.min(n);
                assert!(k > 0 && a.len() >= m * n && r.len() >= k * n, "qr: too short");
                let _inside = super::enter();
                let mut tau = scratch(<$t>::default(), k);
                let info = Self::reflections(m, n, a, &mut tau);
                if info != 0 {
                    return info;
                }
                for j in 0..n {
                    for i in 0..k {
                        r[j * k + i] = if i <= j { a[j * m + i] } else { <$t>::default() };
                    }
                }
                let room = k.saturating_mul(64);
                let (rows, rank, len, mut info) = (int(m), int(k), int(room), 0);
                let mut work = scratch(<$t>::default(), room);
                // SAFETY: k is at most m and n, so that `a` holds m by k elements; `tau` has one for each reflection, `work` is
                // as long as said.
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

            fn eigh(n: usize, vectors: bool, a: &mut [$t], values: &mut [Self::Real]) -> c_int {
                assert!(n > 0 && a.len() >= n * n && values.len() >= n, "eigh: too short");
                let _inside = super::enter();
                let job = if vectors { VECTORS } else { b'N' as c_char };
                let (size, mut info) = (int(n), 0);
                let (mut query, mut reals, mut whole) = ([<$t>::default(); 1], [Default::default(); 1], [0; 1]);
                let mut run =
                    |work: (&mut [$t], c_int), reals: (&mut [Self::Real], c_int), whole: (&mut [c_int], c_int)| {
                        // SAFETY: `a` and `values` were asserted to be long enough; the workspaces are as long as said, or one
                        // element for the question how long they should be.
                        unsafe {
                            <$t>::eigh_routine(
                                &job,
                                &size,
                                a.as_mut_ptr(),
                                values.as_mut_ptr(),
                                work.0.as_mut_ptr(),
                                &work.1,
                                reals.0.as_mut_ptr(),
                                &reals.1,
                                whole.0.as_mut_ptr(),
                                &whole.1,
                                &mut info,
                            )
                        };
                        info
                    };
                if run((&mut query, -1), (&mut reals, -1), (&mut whole, -1)) != 0 {
                    return -1;
                }
                let (len, rlen) = (query[0].re() as usize + 1, reals[0] as usize + 1);
                let ilen = usize::try_from(whole[0]).unwrap_or(0) + 1;
                run(
                    (&mut scratch(<$t>::default(), len), int(len)),
                    (&mut scratch(Default::default(), rlen), int(rlen)),
                    (&mut scratch(0, ilen), int(ilen)),
                )
            }

            fn svd(
                job: u8,
                m: usize,
                n: usize,
                a: &mut [$t],
                s: &mut [Self::Real],
                u: &mut [$t],
                vt: &mut [$t],
            ) -> c_int {
                let k = m.min(n);
                let (ku, kv) = match job {
                    b'A' => (m, n),
                    b'S' => (k, k),
                    _ => (0, 0),
                };
                let fits = a.len() >= m * n && s.len() >= k && u.len() >= m * ku && vt.len() >= kv * n;
                assert!(k > 0 && fits, "svd: too short");
                let _inside = super::enter();
                // The transpose is decomposed, into conj(V) S Uᵀ by columns: that is Vᴴ and U by rows.
                let (rows, columns, ld_v, ld_u) = (int(n), int(m), int(n), int(ku.max(1)));
                let (letter, mut iwork, mut info, mut query) =
                    (job as c_char, scratch(0, 8 * k), 0, [<$t>::default(); 1]);
                let mut reals = scratch(<$t as ComplexFloat>::Real::default(), <$t>::svd_room(k, m.max(n)));
                let mut run = |work: &mut [$t], len: c_int| {
                    // SAFETY: the assertion says that all arrays hold what the job writes; `work` is as long as said, or
                    // one element for the question how long it should be.
                    unsafe {
                        <$t>::svd_routine(
                            &letter,
                            &rows,
                            &columns,
                            a.as_mut_ptr(),
                            s.as_mut_ptr(),
                            vt.as_mut_ptr(),
                            &ld_v,
                            u.as_mut_ptr(),
                            &ld_u,
                            work.as_mut_ptr(),
                            &len,
                            reals.as_mut_ptr(),
                            iwork.as_mut_ptr(),
                            &mut info,
                        )
                    };
                    info
                };
                if run(&mut query, -1) != 0 {
                    return -1;
                }
                let len = query[0].re() as usize + 1;
                run(&mut scratch(<$t>::default(), len), int(len))
            }

            fn lu_columns(m: usize, n: usize, a: &mut [$t], pivots: &mut [c_int]) -> c_int {
                assert!(m.min(n) > 0 && a.len() >= m * n && pivots.len() >= m.min(n), "lu: too short");
                let _inside = super::enter();
                let own = super::small_lu::lu(m, n, a, pivots).or_else(|| Self::lu_by_blocks(m, n, a, pivots));
                if let Some(info) = own {
                    return info;
                }
                let (rows, columns, mut info) = (int(m), int(n), 0);
                // SAFETY: the assertion says that both slices hold what an m by n matrix needs.
                unsafe { ffi::$getrf(&rows, &columns, a.as_mut_ptr(), &rows, pivots.as_mut_ptr(), &mut info) };
                info
            }

            fn triangular(n: usize, k: usize, upper: bool, unit: bool, a: &[$t], b: &mut [$t]) {
                assert!(n > 0 && k > 0 && a.len() >= n * n && b.len() >= n * k, "triangular: too short");
                let _inside = super::enter();
                let half = if upper { ffi::UPPER } else { ffi::LOWER };
                let diagonal = if unit { ffi::UNIT } else { ffi::NON_UNIT };
                let (size, sides) = (int(n), int(k));
                // By rows the columns are the transpose, and the system `xᵀ Aᵀ = bᵀ`.
                // SAFETY: the assertion says that both slices hold what the sizes say, in rows without gaps.
                unsafe {
                    ffi::$trsm(
                        ffi::ROW_MAJOR,
                        ffi::RIGHT,
                        half,
                        ffi::TRANS,
                        diagonal,
                        sides,
                        size,
                        $one,
                        a.as_ptr(),
                        size,
                        b.as_mut_ptr(),
                        size,
                    )
                };
            }
        }
    };
}
decompose!(f32, 1.0; spotrf_ sorgqr_ sgetrf_ cblas_strsm);
decompose!(f64, 1.0; dpotrf_ dorgqr_ dgetrf_ cblas_dtrsm);
decompose!(Complex32, &Complex32::new(1.0, 0.0); cpotrf_ cungqr_ cgetrf_ cblas_ctrsm);
decompose!(Complex64, &Complex64::new(1.0, 0.0); zpotrf_ zungqr_ zgetrf_ cblas_ztrsm);

/// Matrices whose eigenvalues may be complex.
pub trait Eigen: Decompose {
    /// Eigenvalues of the matrix whose columns are given, and if asked eigenvectors of norm 1, one after the other.
    fn eig(
        n: usize,
        a: &mut [Self],
        values: &mut [Complex<Self::Real>],
        vectors: Option<&mut [Complex<Self::Real>]>,
    ) -> c_int;
}

macro_rules! real_eigen {
    ($t:ty: $geev:ident) => {
        impl Eigen for $t {
            fn eig(n: usize, a: &mut [$t], values: &mut [Complex<$t>], vectors: Option<&mut [Complex<$t>]>) -> c_int {
                let fits = vectors.as_ref().is_none_or(|v| v.len() >= n * n);
                assert!(n > 0 && a.len() >= n * n && values.len() >= n && fits, "eig: too short");
                let _inside = super::enter();
                let (none, job) = (b'N' as c_char, if vectors.is_some() { VECTORS } else { b'N' as c_char });
                let (size, one, mut info, mut query) = (int(n), 1, 0, [<$t>::default(); 1]);
                let (mut re, mut im) = (scratch(0.0, n), scratch(0.0, n));
                let mut found = scratch(0.0, if vectors.is_some() { n * n } else { 1 });
                let mut run = |work: &mut [$t], len: c_int| {
                    // SAFETY: the assertion says that `a` is an n by n matrix; `re`, `im` and `found` were made in their sizes, and
                    // `work` is as long as said, or one element for the question how long it should be. Left vectors are not written.
                    unsafe {
                        ffi::$geev(
                            &none,
                            &job,
                            &size,
                            a.as_mut_ptr(),
                            &size,
                            re.as_mut_ptr(),
                            im.as_mut_ptr(),
                            std::ptr::null_mut(),
                            &one,
                            found.as_mut_ptr(),
                            &size,
                            work.as_mut_ptr(),
                            &len,
                            &mut info,
                            1,
                            1,
                        )
                    };
                    info
                };
                if run(&mut query, -1) != 0 {
                    return -1;
                }
                let len = query[0] as usize + 1;
                let info = run(&mut scratch(0.0, len), int(len));
                values.iter_mut().zip(re.iter().zip(&im)).for_each(|(v, (&re, &im))| *v = Complex::<$t>::new(re, im));
                let Some(vectors) = vectors else { return info };
                // A pair of complex eigenvalues has the real parts of its vectors in one column, the imaginary ones in the next.
                for j in 0..n {
                    let (first, sign) = if im[j] < 0.0 { (j.saturating_sub(1), -1.0) } else { (j, 1.0) };
                    for i in 0..n {
                        let part = if im[j] == 0.0 { 0.0 } else { sign * found[(first + 1).min(n - 1) * n + i] };
                        vectors[j * n + i] = Complex::<$t>::new(found[first * n + i], part);
                    }
                }
                info
            }
        }
    };
}
real_eigen!(f32: sgeev_);
real_eigen!(f64: dgeev_);

macro_rules! complex_eigen {
    ($t:ty: $geev:ident) => {
        impl Eigen for Complex<$t> {
            fn eig(
                n: usize,
                a: &mut [Complex<$t>],
                values: &mut [Complex<$t>],
                vectors: Option<&mut [Complex<$t>]>,
            ) -> c_int {
                let fits = vectors.as_ref().is_none_or(|v| v.len() >= n * n);
                assert!(n > 0 && a.len() >= n * n && values.len() >= n && fits, "eig: too short");
                let _inside = super::enter();
                let (none, job) = (b'N' as c_char, if vectors.is_some() { VECTORS } else { b'N' as c_char });
                let (size, one, mut info, mut query) = (int(n), 1, 0, [Complex::<$t>::default(); 1]);
                let mut reals = scratch(0.0, 2 * n);
                let place = vectors.map_or(std::ptr::null_mut(), <[Complex<$t>]>::as_mut_ptr);
                let mut run = |work: &mut [Complex<$t>], len: c_int| {
                    // SAFETY: the assertion says that `a` and the vectors, if there are any, are n by n matrices; `reals` was made in
                    // its size, and `work` is as long as said, or one element for the question how long it should be. Left vectors
                    // are not written, nor are the right ones without a place for them.
                    unsafe {
                        ffi::$geev(
                            &none,
                            &job,
                            &size,
                            a.as_mut_ptr(),
                            &size,
                            values.as_mut_ptr(),
                            std::ptr::null_mut(),
                            &one,
                            place,
                            &size,
                            work.as_mut_ptr(),
                            &len,
                            reals.as_mut_ptr(),
                            &mut info,
                            1,
                            1,
                        )
                    };
                    info
                };
                if run(&mut query, -1) != 0 {
                    return -1;
                }
                let len = query[0].re as usize + 1;
                run(&mut scratch(Complex::<$t>::default(), len), int(len))
            }
        }
    };
}
complex_eigen!(f32: cgeev_);
complex_eigen!(f64: zgeev_);
