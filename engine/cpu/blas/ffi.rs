//! The one declaration of each BLAS and LAPACK function used: Accelerate's (`cfg(accelerate)`: on macOS, and where
//! tools/accelerate stands in for it), OpenBLAS's (symbols prefixed `scipy_`) elsewhere.
//!
//! Depends on nothing. Both are cblas with 32-bit integers (LP64). Accelerate has two LAPACKs: plain symbols are those of 3.2.1,
//! deprecated since macOS 13.3; `$NEWLAPACK` ones, without Fortran's underscore, are newer, and what MLX uses. Only `blas` may
//! call these.

// Named so that it is linked: it brings Apple's Accelerate.
#[cfg(target_os = "macos")]
use accelerate_src as _;
use num_complex::{Complex32, Complex64};
use std::ffi::{c_char, c_int};

/// Row-major storage.
pub const ROW_MAJOR: c_int = 101;
/// As stored.
pub const NO_TRANS: c_int = 111;
/// Transposed.
pub const TRANS: c_int = 112;
/// The triangle above the diagonal, or below it.
pub const UPPER: c_int = 121;
pub const LOWER: c_int = 122;
/// A triangle's diagonal as stored, or of ones.
pub const NON_UNIT: c_int = 131;
pub const UNIT: c_int = 132;
/// The triangle is on the right.
pub const RIGHT: c_int = 142;

macro_rules! declare {
    ($($open:literal or $apple:literal fn $name:ident($($arg:ident: $ty:ty),* $(,)?);)*) => {
        unsafe extern "C" {
            $(
                #[cfg_attr(not(accelerate), link_name = $open)]
                #[cfg_attr(accelerate, link_name = $apple)]
                pub fn $name($($arg: $ty),*);
            )*
        }
    };
}

declare! {
    "scipy_cblas_sgemm" or "cblas_sgemm$NEWLAPACK" fn cblas_sgemm(
        order: c_int, transa: c_int, transb: c_int, m: c_int, n: c_int, k: c_int,
        alpha: f32, a: *const f32, lda: c_int, b: *const f32, ldb: c_int, beta: f32, c: *mut f32, ldc: c_int,
    );
    "scipy_cblas_dgemm" or "cblas_dgemm$NEWLAPACK" fn cblas_dgemm(
        order: c_int, transa: c_int, transb: c_int, m: c_int, n: c_int, k: c_int,
        alpha: f64, a: *const f64, lda: c_int, b: *const f64, ldb: c_int, beta: f64, c: *mut f64, ldc: c_int,
    );
    "scipy_cblas_cgemm" or "cblas_cgemm$NEWLAPACK" fn cblas_cgemm(
        order: c_int, transa: c_int, transb: c_int, m: c_int, n: c_int, k: c_int,
        alpha: *const Complex32, a: *const Complex32, lda: c_int, b: *const Complex32, ldb: c_int,
        beta: *const Complex32, c: *mut Complex32, ldc: c_int,
    );
    "scipy_cblas_zgemm" or "cblas_zgemm$NEWLAPACK" fn cblas_zgemm(
        order: c_int, transa: c_int, transb: c_int, m: c_int, n: c_int, k: c_int,
        alpha: *const Complex64, a: *const Complex64, lda: c_int, b: *const Complex64, ldb: c_int,
        beta: *const Complex64, c: *mut Complex64, ldc: c_int,
    );
    "scipy_sgetrf_" or "sgetrf$NEWLAPACK" fn sgetrf_(
        m: *const c_int, n: *const c_int, a: *mut f32, lda: *const c_int, ipiv: *mut c_int, info: *mut c_int,
    );
    "scipy_sgetrs_" or "sgetrs$NEWLAPACK" fn sgetrs_(
        trans: *const c_char, n: *const c_int, nrhs: *const c_int, a: *const f32, lda: *const c_int,
        ipiv: *const c_int, b: *mut f32, ldb: *const c_int, info: *mut c_int, trans_len: usize,
    );
    "scipy_dgetrf_" or "dgetrf$NEWLAPACK" fn dgetrf_(
        m: *const c_int, n: *const c_int, a: *mut f64, lda: *const c_int, ipiv: *mut c_int, info: *mut c_int,
    );
    "scipy_dgetrs_" or "dgetrs$NEWLAPACK" fn dgetrs_(
        trans: *const c_char, n: *const c_int, nrhs: *const c_int, a: *const f64, lda: *const c_int,
        ipiv: *const c_int, b: *mut f64, ldb: *const c_int, info: *mut c_int, trans_len: usize,
    );
    "scipy_spotrf_" or "spotrf$NEWLAPACK" fn spotrf_(
        uplo: *const c_char, n: *const c_int, a: *mut f32, lda: *const c_int, info: *mut c_int, uplo_len: usize,
    );
    "scipy_sgeqrf_" or "sgeqrf$NEWLAPACK" fn sgeqrf_(
        m: *const c_int, n: *const c_int, a: *mut f32, lda: *const c_int, tau: *mut f32, work: *mut f32,
        lwork: *const c_int, info: *mut c_int,
    );
    "scipy_sorgqr_" or "sorgqr$NEWLAPACK" fn sorgqr_(
        m: *const c_int, n: *const c_int, k: *const c_int, a: *mut f32, lda: *const c_int, tau: *const f32,
        work: *mut f32, lwork: *const c_int, info: *mut c_int,
    );
    "scipy_ssyevd_" or "ssyevd$NEWLAPACK" fn ssyevd_(
        jobz: *const c_char, uplo: *const c_char, n: *const c_int, a: *mut f32, lda: *const c_int, w: *mut f32,
        work: *mut f32, lwork: *const c_int, iwork: *mut c_int, liwork: *const c_int, info: *mut c_int,
        jobz_len: usize, uplo_len: usize,
    );
    "scipy_sgesdd_" or "sgesdd$NEWLAPACK" fn sgesdd_(
        jobz: *const c_char, m: *const c_int, n: *const c_int, a: *mut f32, lda: *const c_int, s: *mut f32,
        u: *mut f32, ldu: *const c_int, vt: *mut f32, ldvt: *const c_int, work: *mut f32, lwork: *const c_int,
        iwork: *mut c_int, info: *mut c_int, jobz_len: usize,
    );
    "scipy_cblas_strsm" or "cblas_strsm$NEWLAPACK" fn cblas_strsm(
        order: c_int, side: c_int, uplo: c_int, trans: c_int, diag: c_int, m: c_int, n: c_int,
        alpha: f32, a: *const f32, lda: c_int, b: *mut f32, ldb: c_int,
    );
    "scipy_dpotrf_" or "dpotrf$NEWLAPACK" fn dpotrf_(
        uplo: *const c_char, n: *const c_int, a: *mut f64, lda: *const c_int, info: *mut c_int, uplo_len: usize,
    );
    "scipy_dgeqrf_" or "dgeqrf$NEWLAPACK" fn dgeqrf_(
        m: *const c_int, n: *const c_int, a: *mut f64, lda: *const c_int, tau: *mut f64, work: *mut f64,
        lwork: *const c_int, info: *mut c_int,
    );
    "scipy_dorgqr_" or "dorgqr$NEWLAPACK" fn dorgqr_(
        m: *const c_int, n: *const c_int, k: *const c_int, a: *mut f64, lda: *const c_int, tau: *const f64,
        work: *mut f64, lwork: *const c_int, info: *mut c_int,
    );
    "scipy_dsyevd_" or "dsyevd$NEWLAPACK" fn dsyevd_(
        jobz: *const c_char, uplo: *const c_char, n: *const c_int, a: *mut f64, lda: *const c_int, w: *mut f64,
        work: *mut f64, lwork: *const c_int, iwork: *mut c_int, liwork: *const c_int, info: *mut c_int,
        jobz_len: usize, uplo_len: usize,
    );
    "scipy_dgesdd_" or "dgesdd$NEWLAPACK" fn dgesdd_(
        jobz: *const c_char, m: *const c_int, n: *const c_int, a: *mut f64, lda: *const c_int, s: *mut f64,
        u: *mut f64, ldu: *const c_int, vt: *mut f64, ldvt: *const c_int, work: *mut f64, lwork: *const c_int,
        iwork: *mut c_int, info: *mut c_int, jobz_len: usize,
    );
    "scipy_cblas_dtrsm" or "cblas_dtrsm$NEWLAPACK" fn cblas_dtrsm(
        order: c_int, side: c_int, uplo: c_int, trans: c_int, diag: c_int, m: c_int, n: c_int,
        alpha: f64, a: *const f64, lda: c_int, b: *mut f64, ldb: c_int,
    );
    "scipy_cgetrf_" or "cgetrf$NEWLAPACK" fn cgetrf_(
        m: *const c_int, n: *const c_int, a: *mut Complex32, lda: *const c_int, ipiv: *mut c_int, info: *mut c_int,
    );
    "scipy_zgetrf_" or "zgetrf$NEWLAPACK" fn zgetrf_(
        m: *const c_int, n: *const c_int, a: *mut Complex64, lda: *const c_int, ipiv: *mut c_int, info: *mut c_int,
    );
    "scipy_cgetrs_" or "cgetrs$NEWLAPACK" fn cgetrs_(
        trans: *const c_char, n: *const c_int, nrhs: *const c_int, a: *const Complex32, lda: *const c_int,
        ipiv: *const c_int, b: *mut Complex32, ldb: *const c_int, info: *mut c_int, trans_len: usize,
    );
    "scipy_zgetrs_" or "zgetrs$NEWLAPACK" fn zgetrs_(
        trans: *const c_char, n: *const c_int, nrhs: *const c_int, a: *const Complex64, lda: *const c_int,
        ipiv: *const c_int, b: *mut Complex64, ldb: *const c_int, info: *mut c_int, trans_len: usize,
    );
    "scipy_cpotrf_" or "cpotrf$NEWLAPACK" fn cpotrf_(
        uplo: *const c_char, n: *const c_int, a: *mut Complex32, lda: *const c_int, info: *mut c_int, uplo_len: usize,
    );
    "scipy_zpotrf_" or "zpotrf$NEWLAPACK" fn zpotrf_(
        uplo: *const c_char, n: *const c_int, a: *mut Complex64, lda: *const c_int, info: *mut c_int, uplo_len: usize,
    );
    "scipy_cgeqrf_" or "cgeqrf$NEWLAPACK" fn cgeqrf_(
        m: *const c_int, n: *const c_int, a: *mut Complex32, lda: *const c_int, tau: *mut Complex32,
        work: *mut Complex32, lwork: *const c_int, info: *mut c_int,
    );
    "scipy_zgeqrf_" or "zgeqrf$NEWLAPACK" fn zgeqrf_(
        m: *const c_int, n: *const c_int, a: *mut Complex64, lda: *const c_int, tau: *mut Complex64,
        work: *mut Complex64, lwork: *const c_int, info: *mut c_int,
    );
    "scipy_cungqr_" or "cungqr$NEWLAPACK" fn cungqr_(
        m: *const c_int, n: *const c_int, k: *const c_int, a: *mut Complex32, lda: *const c_int,
        tau: *const Complex32, work: *mut Complex32, lwork: *const c_int, info: *mut c_int,
    );
    "scipy_zungqr_" or "zungqr$NEWLAPACK" fn zungqr_(
        m: *const c_int, n: *const c_int, k: *const c_int, a: *mut Complex64, lda: *const c_int,
        tau: *const Complex64, work: *mut Complex64, lwork: *const c_int, info: *mut c_int,
    );
    "scipy_cheevd_" or "cheevd$NEWLAPACK" fn cheevd_(
        jobz: *const c_char, uplo: *const c_char, n: *const c_int, a: *mut Complex32, lda: *const c_int, w: *mut f32,
        work: *mut Complex32, lwork: *const c_int, rwork: *mut f32, lrwork: *const c_int, iwork: *mut c_int,
        liwork: *const c_int, info: *mut c_int, jobz_len: usize, uplo_len: usize,
    );
    "scipy_zheevd_" or "zheevd$NEWLAPACK" fn zheevd_(
        jobz: *const c_char, uplo: *const c_char, n: *const c_int, a: *mut Complex64, lda: *const c_int, w: *mut f64,
        work: *mut Complex64, lwork: *const c_int, rwork: *mut f64, lrwork: *const c_int, iwork: *mut c_int,
        liwork: *const c_int, info: *mut c_int, jobz_len: usize, uplo_len: usize,
    );
    "scipy_cgesdd_" or "cgesdd$NEWLAPACK" fn cgesdd_(
        jobz: *const c_char, m: *const c_int, n: *const c_int, a: *mut Complex32, lda: *const c_int, s: *mut f32,
        u: *mut Complex32, ldu: *const c_int, vt: *mut Complex32, ldvt: *const c_int, work: *mut Complex32,
        lwork: *const c_int, rwork: *mut f32, iwork: *mut c_int, info: *mut c_int, jobz_len: usize,
    );
    "scipy_zgesdd_" or "zgesdd$NEWLAPACK" fn zgesdd_(
        jobz: *const c_char, m: *const c_int, n: *const c_int, a: *mut Complex64, lda: *const c_int, s: *mut f64,
        u: *mut Complex64, ldu: *const c_int, vt: *mut Complex64, ldvt: *const c_int, work: *mut Complex64,
        lwork: *const c_int, rwork: *mut f64, iwork: *mut c_int, info: *mut c_int, jobz_len: usize,
    );
    "scipy_cblas_ctrsm" or "cblas_ctrsm$NEWLAPACK" fn cblas_ctrsm(
        order: c_int, side: c_int, uplo: c_int, trans: c_int, diag: c_int, m: c_int, n: c_int,
        alpha: *const Complex32, a: *const Complex32, lda: c_int, b: *mut Complex32, ldb: c_int,
    );
    "scipy_cblas_ztrsm" or "cblas_ztrsm$NEWLAPACK" fn cblas_ztrsm(
        order: c_int, side: c_int, uplo: c_int, trans: c_int, diag: c_int, m: c_int, n: c_int,
        alpha: *const Complex64, a: *const Complex64, lda: c_int, b: *mut Complex64, ldb: c_int,
    );
    "scipy_sgeev_" or "sgeev$NEWLAPACK" fn sgeev_(
        jobvl: *const c_char, jobvr: *const c_char, n: *const c_int, a: *mut f32, lda: *const c_int, wr: *mut f32,
        wi: *mut f32, vl: *mut f32, ldvl: *const c_int, vr: *mut f32, ldvr: *const c_int, work: *mut f32,
        lwork: *const c_int, info: *mut c_int, jobvl_len: usize, jobvr_len: usize,
    );
    "scipy_dgeev_" or "dgeev$NEWLAPACK" fn dgeev_(
        jobvl: *const c_char, jobvr: *const c_char, n: *const c_int, a: *mut f64, lda: *const c_int, wr: *mut f64,
        wi: *mut f64, vl: *mut f64, ldvl: *const c_int, vr: *mut f64, ldvr: *const c_int, work: *mut f64,
        lwork: *const c_int, info: *mut c_int, jobvl_len: usize, jobvr_len: usize,
    );
    "scipy_cgeev_" or "cgeev$NEWLAPACK" fn cgeev_(
        jobvl: *const c_char, jobvr: *const c_char, n: *const c_int, a: *mut Complex32, lda: *const c_int,
        w: *mut Complex32, vl: *mut Complex32, ldvl: *const c_int, vr: *mut Complex32, ldvr: *const c_int,
        work: *mut Complex32, lwork: *const c_int, rwork: *mut f32, info: *mut c_int, jobvl_len: usize,
        jobvr_len: usize,
    );
    "scipy_zgeev_" or "zgeev$NEWLAPACK" fn zgeev_(
        jobvl: *const c_char, jobvr: *const c_char, n: *const c_int, a: *mut Complex64, lda: *const c_int,
        w: *mut Complex64, vl: *mut Complex64, ldvl: *const c_int, vr: *mut Complex64, ldvr: *const c_int,
        work: *mut Complex64, lwork: *const c_int, rwork: *mut f64, info: *mut c_int, jobvl_len: usize,
        jobvr_len: usize,
    );
    "scipy_ssytrf_" or "ssytrf$NEWLAPACK" fn ssytrf_(
        uplo: *const c_char, n: *const c_int, a: *mut f32, lda: *const c_int, ipiv: *mut c_int, work: *mut f32,
        lwork: *const c_int, info: *mut c_int, uplo_len: usize,
    );
    "scipy_dsytrf_" or "dsytrf$NEWLAPACK" fn dsytrf_(
        uplo: *const c_char, n: *const c_int, a: *mut f64, lda: *const c_int, ipiv: *mut c_int, work: *mut f64,
        lwork: *const c_int, info: *mut c_int, uplo_len: usize,
    );
    "scipy_csytrf_" or "csytrf$NEWLAPACK" fn csytrf_(
        uplo: *const c_char, n: *const c_int, a: *mut Complex32, lda: *const c_int, ipiv: *mut c_int, work: *mut Complex32,
        lwork: *const c_int, info: *mut c_int, uplo_len: usize,
    );
    "scipy_zsytrf_" or "zsytrf$NEWLAPACK" fn zsytrf_(
        uplo: *const c_char, n: *const c_int, a: *mut Complex64, lda: *const c_int, ipiv: *mut c_int, work: *mut Complex64,
        lwork: *const c_int, info: *mut c_int, uplo_len: usize,
    );
    "scipy_chetrf_" or "chetrf$NEWLAPACK" fn chetrf_(
        uplo: *const c_char, n: *const c_int, a: *mut Complex32, lda: *const c_int, ipiv: *mut c_int, work: *mut Complex32,
        lwork: *const c_int, info: *mut c_int, uplo_len: usize,
    );
    "scipy_zhetrf_" or "zhetrf$NEWLAPACK" fn zhetrf_(
        uplo: *const c_char, n: *const c_int, a: *mut Complex64, lda: *const c_int, ipiv: *mut c_int, work: *mut Complex64,
        lwork: *const c_int, info: *mut c_int, uplo_len: usize,
    );
    "scipy_ssytrs_" or "ssytrs$NEWLAPACK" fn ssytrs_(
        uplo: *const c_char, n: *const c_int, nrhs: *const c_int, a: *const f32, lda: *const c_int,
        ipiv: *const c_int, b: *mut f32, ldb: *const c_int, info: *mut c_int, uplo_len: usize,
    );
    "scipy_dsytrs_" or "dsytrs$NEWLAPACK" fn dsytrs_(
        uplo: *const c_char, n: *const c_int, nrhs: *const c_int, a: *const f64, lda: *const c_int,
        ipiv: *const c_int, b: *mut f64, ldb: *const c_int, info: *mut c_int, uplo_len: usize,
    );
    "scipy_csytrs_" or "csytrs$NEWLAPACK" fn csytrs_(
        uplo: *const c_char, n: *const c_int, nrhs: *const c_int, a: *const Complex32, lda: *const c_int,
        ipiv: *const c_int, b: *mut Complex32, ldb: *const c_int, info: *mut c_int, uplo_len: usize,
    );
    "scipy_zsytrs_" or "zsytrs$NEWLAPACK" fn zsytrs_(
        uplo: *const c_char, n: *const c_int, nrhs: *const c_int, a: *const Complex64, lda: *const c_int,
        ipiv: *const c_int, b: *mut Complex64, ldb: *const c_int, info: *mut c_int, uplo_len: usize,
    );
    "scipy_chetrs_" or "chetrs$NEWLAPACK" fn chetrs_(
        uplo: *const c_char, n: *const c_int, nrhs: *const c_int, a: *const Complex32, lda: *const c_int,
        ipiv: *const c_int, b: *mut Complex32, ldb: *const c_int, info: *mut c_int, uplo_len: usize,
    );
    "scipy_zhetrs_" or "zhetrs$NEWLAPACK" fn zhetrs_(
        uplo: *const c_char, n: *const c_int, nrhs: *const c_int, a: *const Complex64, lda: *const c_int,
        ipiv: *const c_int, b: *mut Complex64, ldb: *const c_int, info: *mut c_int, uplo_len: usize,
    );
    "scipy_cblas_sgemv" or "cblas_sgemv$NEWLAPACK" fn cblas_sgemv(
        order: c_int, trans: c_int, m: c_int, n: c_int,
        alpha: f32, a: *const f32, lda: c_int, x: *const f32, incx: c_int, beta: f32, y: *mut f32, incy: c_int,
    );
    "scipy_cblas_dgemv" or "cblas_dgemv$NEWLAPACK" fn cblas_dgemv(
        order: c_int, trans: c_int, m: c_int, n: c_int,
        alpha: f64, a: *const f64, lda: c_int, x: *const f64, incx: c_int, beta: f64, y: *mut f64, incy: c_int,
    );
}

#[cfg(not(accelerate))]
unsafe extern "C" {
    pub fn scipy_openblas_set_num_threads(threads: c_int);
}
