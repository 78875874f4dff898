//! Asking for memory before it is read.
//!
//! Depends on `std::arch`.

/// Asks for the cache lines of a slice that will be read soon, and waits for none; for use inside of a task. On processors
/// other than x86-64 it does nothing: the language has no such instruction for them yet.
#[inline(always)]
pub fn fetch<T>(x: &[T]) {
    #[cfg(target_arch = "x86_64")]
    for line in (0..size_of_val(x)).step_by(64) {
        use std::arch::x86_64::{_mm_prefetch, _MM_HINT_T1};
        // SAFETY: the address is one of the slice's, and an instruction that asks for a line changes nothing.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(x.as_ptr().cast::<i8>().wrapping_add(line)) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = x;
}
