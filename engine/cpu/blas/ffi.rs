//! The one declaration of each BLAS and LAPACK function used: Accelerate's on Apple, OpenBLAS's (symbols prefixed `scipy_`) elsewhere.
//!
//! Depends on nothing. Both are cblas with 32-bit integers (LP64). Only `blas` may call these.

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
    ($($prefixed:literal fn $name:ident($($arg:ident: $ty:ty),* $(,)?);)*) => {
        unsafe extern "C" {
            $(
                #[cfg_attr(not(target_os = "macos"), link_name = $prefixed)]
                pub fn $name($($arg: $ty),*);
            )*
        }
    };
}

declare! {
    "scipy_cblas_sgemm" fn cblas_sgemm(
        order: c_int, transa: c_int, transb: c_int, m: c_int, n: c_int, k: c_int,
        alpha: f32, a: *const f32, lda: c_int, b: *const f32, ldb: c_int, beta: f32, c: *mut f32, ldc: c_int,
    );
    "scipy_cblas_dgemm" fn cblas_dgemm(
        order: c_int, transa: c_int, transb: c_int, m: c_int, n: c_int, k: c_int,
        alpha: f64, a: *const f64, lda: c_int, b: *const f64, ldb: c_int, beta: f64, c: *mut f64, ldc: c_int,
    );
    "scipy_cblas_cgemm" fn cblas_cgemm(
        order: c_int, transa: c_int, transb: c_int, m: c_int, n: c_int, k: c_int,
        alpha: *const Complex32, a: *const Complex32, lda: c_int, b: *const Complex32, ldb: c_int,
        beta: *const Complex32, c: *mut Complex32, ldc: c_int,
    );
    "scipy_cblas_zgemm" fn cblas_zgemm(
        order: c_int, transa: c_int, transb: c_int, m: c_int, n: c_int, k: c_int,
        alpha: *const Complex64, a: *const Complex64, lda: c_int, b: *const Complex64, ldb: c_int,
        beta: *const Complex64, c: *mut Complex64, ldc: c_int,
    );
    "scipy_sgetrf_" fn sgetrf_(
        m: *const c_int, n: *const c_int, a: *mut f32, lda: *const c_int, ipiv: *mut c_int, info: *mut c_int,
    );
    "scipy_sgetri_" fn sgetri_(
        n: *const c_int, a: *mut f32, lda: *const c_int, ipiv: *const c_int, work: *mut f32, lwork: *const c_int,
        info: *mut c_int,
    );
    "scipy_sgetrs_" fn sgetrs_(
        trans: *const c_char, n: *const c_int, nrhs: *const c_int, a: *const f32, lda: *const c_int,
        ipiv: *const c_int, b: *mut f32, ldb: *const c_int, info: *mut c_int, trans_len: usize,
    );
    "scipy_dgetrf_" fn dgetrf_(
        m: *const c_int, n: *const c_int, a: *mut f64, lda: *const c_int, ipiv: *mut c_int, info: *mut c_int,
    );
    "scipy_dgetri_" fn dgetri_(
        n: *const c_int, a: *mut f64, lda: *const c_int, ipiv: *const c_int, work: *mut f64, lwork: *const c_int,
        info: *mut c_int,
    );
    "scipy_dgetrs_" fn dgetrs_(
        trans: *const c_char, n: *const c_int, nrhs: *const c_int, a: *const f64, lda: *const c_int,
        ipiv: *const c_int, b: *mut f64, ldb: *const c_int, info: *mut c_int, trans_len: usize,
    );
    "scipy_spotrf_" fn spotrf_(
        uplo: *const c_char, n: *const c_int, a: *mut f32, lda: *const c_int, info: *mut c_int, uplo_len: usize,
    );
    "scipy_sgeqrf_" fn sgeqrf_(
        m: *const c_int, n: *const c_int, a: *mut f32, lda: *const c_int, tau: *mut f32, work: *mut f32,
        lwork: *const c_int, info: *mut c_int,
    );
    "scipy_sorgqr_" fn sorgqr_(
        m: *const c_int, n: *const c_int, k: *const c_int, a: *mut f32, lda: *const c_int, tau: *const f32,
        work: *mut f32, lwork: *const c_int, info: *mut c_int,
    );
    "scipy_ssyevd_" fn ssyevd_(
        jobz: *const c_char, uplo: *const c_char, n: *const c_int, a: *mut f32, lda: *const c_int, w: *mut f32,
        work: *mut f32, lwork: *const c_int, iwork: *mut c_int, liwork: *const c_int, info: *mut c_int,
        jobz_len: usize, uplo_len: usize,
    );
    "scipy_sgesdd_" fn sgesdd_(
        jobz: *const c_char, m: *const c_int, n: *const c_int, a: *mut f32, lda: *const c_int, s: *mut f32,
        u: *mut f32, ldu: *const c_int, vt: *mut f32, ldvt: *const c_int, work: *mut f32, lwork: *const c_int,
        iwork: *mut c_int, info: *mut c_int, jobz_len: usize,
    );
    "scipy_cblas_strsm" fn cblas_strsm(
        order: c_int, side: c_int, uplo: c_int, trans: c_int, diag: c_int, m: c_int, n: c_int,
        alpha: f32, a: *const f32, lda: c_int, b: *mut f32, ldb: c_int,
    );
    "scipy_dpotrf_" fn dpotrf_(
        uplo: *const c_char, n: *const c_int, a: *mut f64, lda: *const c_int, info: *mut c_int, uplo_len: usize,
    );
    "scipy_dgeqrf_" fn dgeqrf_(
        m: *const c_int, n: *const c_int, a: *mut f64, lda: *const c_int, tau: *mut f64, work: *mut f64,
        lwork: *const c_int, info: *mut c_int,
    );
    "scipy_dorgqr_" fn dorgqr_(
        m: *const c_int, n: *const c_int, k: *const c_int, a: *mut f64, lda: *const c_int, tau: *const f64,
        work: *mut f64, lwork: *const c_int, info: *mut c_int,
    );
    "scipy_dsyevd_" fn dsyevd_(
        jobz: *const c_char, uplo: *const c_char, n: *const c_int, a: *mut f64, lda: *const c_int, w: *mut f64,
        work: *mut f64, lwork: *const c_int, iwork: *mut c_int, liwork: *const c_int, info: *mut c_int,
        jobz_len: usize, uplo_len: usize,
    );
    "scipy_dgesdd_" fn dgesdd_(
        jobz: *const c_char, m: *const c_int, n: *const c_int, a: *mut f64, lda: *const c_int, s: *mut f64,
        u: *mut f64, ldu: *const c_int, vt: *mut f64, ldvt: *const c_int, work: *mut f64, lwork: *const c_int,
        iwork: *mut c_int, info: *mut c_int, jobz_len: usize,
    );
    "scipy_cblas_dtrsm" fn cblas_dtrsm(
        order: c_int, side: c_int, uplo: c_int, trans: c_int, diag: c_int, m: c_int, n: c_int,
        alpha: f64, a: *const f64, lda: c_int, b: *mut f64, ldb: c_int,
    );
    "scipy_cgetrf_" fn cgetrf_(
        m: *const c_int, n: *const c_int, a: *mut Complex32, lda: *const c_int, ipiv: *mut c_int, info: *mut c_int,
    );
    "scipy_zgetrf_" fn zgetrf_(
        m: *const c_int, n: *const c_int, a: *mut Complex64, lda: *const c_int, ipiv: *mut c_int, info: *mut c_int,
    );
    "scipy_cgetri_" fn cgetri_(
        n: *const c_int, a: *mut Complex32, lda: *const c_int, ipiv: *const c_int, work: *mut Complex32,
        lwork: *const c_int, info: *mut c_int,
    );
    "scipy_zgetri_" fn zgetri_(
        n: *const c_int, a: *mut Complex64, lda: *const c_int, ipiv: *const c_int, work: *mut Complex64,
        lwork: *const c_int, info: *mut c_int,
    );
    "scipy_cgetrs_" fn cgetrs_(
        trans: *const c_char, n: *const c_int, nrhs: *const c_int, a: *const Complex32, lda: *const c_int,
        ipiv: *const c_int, b: *mut Complex32, ldb: *const c_int, info: *mut c_int, trans_len: usize,
    );
    "scipy_zgetrs_" fn zgetrs_(
        trans: *const c_char, n: *const c_int, nrhs: *const c_int, a: *const Complex64, lda: *const c_int,
        ipiv: *const c_int, b: *mut Complex64, ldb: *const c_int, info: *mut c_int, trans_len: usize,
    );
    "scipy_cpotrf_" fn cpotrf_(
        uplo: *const c_char, n: *const c_int, a: *mut Complex32, lda: *const c_int, info: *mut c_int, uplo_len: usize,
    );
    "scipy_zpotrf_" fn zpotrf_(
        uplo: *const c_char, n: *const c_int, a: *mut Complex64, lda: *const c_int, info: *mut c_int, uplo_len: usize,
    );
    "scipy_cgeqrf_" fn cgeqrf_(
        m: *const c_int, n: *const c_int, a: *mut Complex32, lda: *const c_int, tau: *mut Complex32,
        work: *mut Complex32, lwork: *const c_int, info: *mut c_int,
    );
    "scipy_zgeqrf_" fn zgeqrf_(
        m: *const c_int, n: *const c_int, a: *mut Complex64, lda: *const c_int, tau: *mut Complex64,
        work: *mut Complex64, lwork: *const c_int, info: *mut c_int,
    );
    "scipy_cungqr_" fn cungqr_(
        m: *const c_int, n: *const c_int, k: *const c_int, a: *mut Complex32, lda: *const c_int,
        tau: *const Complex32, work: *mut Complex32, lwork: *const c_int, info: *mut c_int,
    );
    "scipy_zungqr_" fn zungqr_(
        m: *const c_int, n: *const c_int, k: *const c_int, a: *mut Complex64, lda: *const c_int,
        tau: *const Complex64, work: *mut Complex64, lwork: *const c_int, info: *mut c_int,
    );
    "scipy_cheevd_" fn cheevd_(
        jobz: *const c_char, uplo: *const c_char, n: *const c_int, a: *mut Complex32, lda: *const c_int, w: *mut f32,
        work: *mut Complex32, lwork: *const c_int, rwork: *mut f32, lrwork: *const c_int, iwork: *mut c_int,
        liwork: *const c_int, info: *mut c_int, jobz_len: usize, uplo_len: usize,
    );
    "scipy_zheevd_" fn zheevd_(
        jobz: *const c_char, uplo: *const c_char, n: *const c_int, a: *mut Complex64, lda: *const c_int, w: *mut f64,
        work: *mut Complex64, lwork: *const c_int, rwork: *mut f64, lrwork: *const c_int, iwork: *mut c_int,
        liwork: *const c_int, info: *mut c_int, jobz_len: usize, uplo_len: usize,
    );
    "scipy_cgesdd_" fn cgesdd_(
        jobz: *const c_char, m: *const c_int, n: *const c_int, a: *mut Complex32, lda: *const c_int, s: *mut f32,
        u: *mut Complex32, ldu: *const c_int, vt: *mut Complex32, ldvt: *const c_int, work: *mut Complex32,
        lwork: *const c_int, rwork: *mut f32, iwork: *mut c_int, info: *mut c_int, jobz_len: usize,
    );
    "scipy_zgesdd_" fn zgesdd_(
        jobz: *const c_char, m: *const c_int, n: *const c_int, a: *mut Complex64, lda: *const c_int, s: *mut f64,
        u: *mut Complex64, ldu: *const c_int, vt: *mut Complex64, ldvt: *const c_int, work: *mut Complex64,
        lwork: *const c_int, rwork: *mut f64, iwork: *mut c_int, info: *mut c_int, jobz_len: usize,
    );
    "scipy_cblas_ctrsm" fn cblas_ctrsm(
        order: c_int, side: c_int, uplo: c_int, trans: c_int, diag: c_int, m: c_int, n: c_int,
        alpha: *const Complex32, a: *const Complex32, lda: c_int, b: *mut Complex32, ldb: c_int,
    );
    "scipy_cblas_ztrsm" fn cblas_ztrsm(
        order: c_int, side: c_int, uplo: c_int, trans: c_int, diag: c_int, m: c_int, n: c_int,
        alpha: *const Complex64, a: *const Complex64, lda: c_int, b: *mut Complex64, ldb: c_int,
    );
    "scipy_sgeev_" fn sgeev_(
        jobvl: *const c_char, jobvr: *const c_char, n: *const c_int, a: *mut f32, lda: *const c_int, wr: *mut f32,
        wi: *mut f32, vl: *mut f32, ldvl: *const c_int, vr: *mut f32, ldvr: *const c_int, work: *mut f32,
        lwork: *const c_int, info: *mut c_int, jobvl_len: usize, jobvr_len: usize,
    );
    "scipy_dgeev_" fn dgeev_(
        jobvl: *const c_char, jobvr: *const c_char, n: *const c_int, a: *mut f64, lda: *const c_int, wr: *mut f64,
        wi: *mut f64, vl: *mut f64, ldvl: *const c_int, vr: *mut f64, ldvr: *const c_int, work: *mut f64,
        lwork: *const c_int, info: *mut c_int, jobvl_len: usize, jobvr_len: usize,
    );
    "scipy_cgeev_" fn cgeev_(
        jobvl: *const c_char, jobvr: *const c_char, n: *const c_int, a: *mut Complex32, lda: *const c_int,
        w: *mut Complex32, vl: *mut Complex32, ldvl: *const c_int, vr: *mut Complex32, ldvr: *const c_int,
        work: *mut Complex32, lwork: *const c_int, rwork: *mut f32, info: *mut c_int, jobvl_len: usize,
        jobvr_len: usize,
    );
    "scipy_zgeev_" fn zgeev_(
        jobvl: *const c_char, jobvr: *const c_char, n: *const c_int, a: *mut Complex64, lda: *const c_int,
        w: *mut Complex64, vl: *mut Complex64, ldvl: *const c_int, vr: *mut Complex64, ldvr: *const c_int,
        work: *mut Complex64, lwork: *const c_int, rwork: *mut f64, info: *mut c_int, jobvl_len: usize,
        jobvr_len: usize,
    );
    "scipy_ssytrf_" fn ssytrf_(
        uplo: *const c_char, n: *const c_int, a: *mut f32, lda: *const c_int, ipiv: *mut c_int, work: *mut f32,
        lwork: *const c_int, info: *mut c_int, uplo_len: usize,
    );
    "scipy_dsytrf_" fn dsytrf_(
        uplo: *const c_char, n: *const c_int, a: *mut f64, lda: *const c_int, ipiv: *mut c_int, work: *mut f64,
        lwork: *const c_int, info: *mut c_int, uplo_len: usize,
    );
    "scipy_csytrf_" fn csytrf_(
        uplo: *const c_char, n: *const c_int, a: *mut Complex32, lda: *const c_int, ipiv: *mut c_int, work: *mut Complex32,
        lwork: *const c_int, info: *mut c_int, uplo_len: usize,
    );
    "scipy_zsytrf_" fn zsytrf_(
        uplo: *const c_char, n: *const c_int, a: *mut Complex64, lda: *const c_int, ipiv: *mut c_int, work: *mut Complex64,
        lwork: *const c_int, info: *mut c_int, uplo_len: usize,
    );
    "scipy_chetrf_" fn chetrf_(
        uplo: *const c_char, n: *const c_int, a: *mut Complex32, lda: *const c_int, ipiv: *mut c_int, work: *mut Complex32,
        lwork: *const c_int, info: *mut c_int, uplo_len: usize,
    );
    "scipy_zhetrf_" fn zhetrf_(
        uplo: *const c_char, n: *const c_int, a: *mut Complex64, lda: *const c_int, ipiv: *mut c_int, work: *mut Complex64,
        lwork: *const c_int, info: *mut c_int, uplo_len: usize,
    );
    "scipy_ssytrs_" fn ssytrs_(
        uplo: *const c_char, n: *const c_int, nrhs: *const c_int, a: *const f32, lda: *const c_int,
        ipiv: *const c_int, b: *mut f32, ldb: *const c_int, info: *mut c_int, uplo_len: usize,
    );
    "scipy_dsytrs_" fn dsytrs_(
        uplo: *const c_char, n: *const c_int, nrhs: *const c_int, a: *const f64, lda: *const c_int,
        ipiv: *const c_int, b: *mut f64, ldb: *const c_int, info: *mut c_int, uplo_len: usize,
    );
    "scipy_csytrs_" fn csytrs_(
        uplo: *const c_char, n: *const c_int, nrhs: *const c_int, a: *const Complex32, lda: *const c_int,
        ipiv: *const c_int, b: *mut Complex32, ldb: *const c_int, info: *mut c_int, uplo_len: usize,
    );
    "scipy_zsytrs_" fn zsytrs_(
        uplo: *const c_char, n: *const c_int, nrhs: *const c_int, a: *const Complex64, lda: *const c_int,
        ipiv: *const c_int, b: *mut Complex64, ldb: *const c_int, info: *mut c_int, uplo_len: usize,
    );
    "scipy_chetrs_" fn chetrs_(
        uplo: *const c_char, n: *const c_int, nrhs: *const c_int, a: *const Complex32, lda: *const c_int,
        ipiv: *const c_int, b: *mut Complex32, ldb: *const c_int, info: *mut c_int, uplo_len: usize,
    );
    "scipy_zhetrs_" fn zhetrs_(
        uplo: *const c_char, n: *const c_int, nrhs: *const c_int, a: *const Complex64, lda: *const c_int,
        ipiv: *const c_int, b: *mut Complex64, ldb: *const c_int, info: *mut c_int, uplo_len: usize,
    );
    "scipy_cblas_sgemv" fn cblas_sgemv(
        order: c_int, trans: c_int, m: c_int, n: c_int,
        alpha: f32, a: *const f32, lda: c_int, x: *const f32, incx: c_int, beta: f32, y: *mut f32, incy: c_int,
    );
    "scipy_cblas_dgemv" fn cblas_dgemv(
        order: c_int, trans: c_int, m: c_int, n: c_int,
        alpha: f64, a: *const f64, lda: c_int, x: *const f64, incx: c_int, beta: f64, y: *mut f64, incy: c_int,
    );
}

#[cfg(not(target_os = "macos"))]
unsafe extern "C" {
    pub fn scipy_openblas_set_num_threads(threads: c_int);
}
