//! Gives MLX's CPU stream the BLAS and LAPACK that the CPU device uses, in place of the netlib ones of MLX's wheel.
//!
//! This library defines the functions that `libmlx` calls, each a jump to OpenBLAS's. `libmlx` finds them first where it is
//! loaded as a part of this library; where MLX was imported before, it has found its own, and nothing changes. With
//! `LUCID_MLX_BLAS=stock` in the environment the jumps lead to the next definition, MLX's own. Other libraries of the process
//! do not see any of this. On macOS both use Accelerate anyhow.
//!
//! Nothing is known here of the functions' parameters: a jump leaves them where they are.

#![allow(unsafe_code)]
#![warn(unsafe_op_in_unsafe_fn)]

use std::arch::naked_asm;
use std::ffi::{c_int, c_void, CStr};
use std::sync::atomic::{AtomicPtr, Ordering};

macro_rules! forward {
    ($($name:ident to $ours:ident,)*) => {
        unsafe extern "C" {
            $(fn $ours();)*
            fn scipy_openblas_set_num_threads(threads: c_int);
        }

        #[allow(non_camel_case_types, clippy::enum_variant_names)]
        enum Slot {
            $($name,)*
        }

        /// Where the functions are. Read by the jumps.
        static TARGETS: [AtomicPtr<c_void>; [$(stringify!($name)),*].len()] =
            [$(AtomicPtr::new($ours as *mut c_void)),*];

        const NAMES: [&CStr; TARGETS.len()] =
            // SAFETY: the literals end in the one zero that they hold.
            [$(unsafe { CStr::from_bytes_with_nul_unchecked(concat!(stringify!($name), "\0").as_bytes()) }),*];

        $(
            /// The function of this name, for `libmlx`.
            // No other function of this library has the name, and what it jumps to has the same parameters.
            #[unsafe(no_mangle)]
            #[unsafe(naked)]
            unsafe extern "C" fn $name() {
                #[cfg(target_arch = "x86_64")]
                naked_asm!("jmp qword ptr [rip + {} + {}]", sym TARGETS, const 8 * Slot::$name as usize);
                #[cfg(target_arch = "aarch64")]
                naked_asm!(
                    "adrp x16, {targets}",
                    "add x16, x16, :lo12:{targets}",
                    "ldr x16, [x16, {offset}]",
                    "br x16",
                    targets = sym TARGETS,
                    offset = const 8 * Slot::$name as usize
                );
            }
        )*
    };
}

// What `libmlx` 0.32.2 imports; `tests/python/unit/test_mlx_blas.py` holds the list to it.
forward! {
    cblas_cgemm to scipy_cblas_cgemm,
    cblas_dgemm to scipy_cblas_dgemm,
    cblas_sgemm to scipy_cblas_sgemm,
    cgeev_ to scipy_cgeev_,
    cgesdd_ to scipy_cgesdd_,
    cheevd_ to scipy_cheevd_,
    dgeev_ to scipy_dgeev_,
    dgeqrf_ to scipy_dgeqrf_,
    dgesdd_ to scipy_dgesdd_,
    dgetrf_ to scipy_dgetrf_,
    dgetri_ to scipy_dgetri_,
    dorgqr_ to scipy_dorgqr_,
    dpotrf_ to scipy_dpotrf_,
    dsyevd_ to scipy_dsyevd_,
    dtrtri_ to scipy_dtrtri_,
    sgeev_ to scipy_sgeev_,
    sgeqrf_ to scipy_sgeqrf_,
    sgesdd_ to scipy_sgesdd_,
    sgetrf_ to scipy_sgetrf_,
    sgetri_ to scipy_sgetri_,
    sorgqr_ to scipy_sorgqr_,
    spotrf_ to scipy_spotrf_,
    ssyevd_ to scipy_ssyevd_,
    strtri_ to scipy_strtri_,
}

/// Runs when the library is loaded, before anything can call the functions.
#[used]
#[unsafe(link_section = ".init_array")]
static CHOOSE: extern "C" fn() = choose;

extern "C" fn choose() {
    // SAFETY: a plain call; OpenBLAS is loaded before what depends on it. One thread, as the engine sets it later: here
    // so that a first product is computed as all others are.
    unsafe { scipy_openblas_set_num_threads(1) };
    if std::env::var_os("LUCID_MLX_BLAS").is_none_or(|v| v != "stock") {
        return;
    }
    for (target, name) in TARGETS.iter().zip(NAMES) {
        // SAFETY: a terminated string.
        let next = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
        if !next.is_null() {
            target.store(next, Ordering::Relaxed);
        }
    }
}
