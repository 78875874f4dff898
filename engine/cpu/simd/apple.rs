//! Apple's vForce behind the same interface as the kernels in `math32` and `math64`.
//!
//! Depends on Accelerate, linked by the build. Invariant: a function is only listed here if its results for NaN,
//! infinities and zeros are those of C's libm.

use super::Math;
use std::ffi::c_int;

macro_rules! vforce {
    ($name:ident, $t:ty: $($Op:ident => $f:ident,)*) => {
        extern "C" {
            $(fn $f(out: *mut $t, x: *const $t, n: *const c_int);)*
        }

        /// Computes the function if vForce has it; false if it has not.
        pub fn $name(op: Math, x: &[$t], out: &mut [$t]) -> bool {
            let f: unsafe extern "C" fn(*mut $t, *const $t, *const c_int) = match op {
                $(Math::$Op => $f,)*
                _ => return false,
            };
            // The length is an int: longer slices go in pieces.
            for (x, out) in x.chunks(1 << 30).zip(out.chunks_mut(1 << 30)) {
                let n = x.len().min(out.len()) as c_int;
                // SAFETY: both slices have n elements, and do not overlap since one is exclusive.
                unsafe { f(out.as_mut_ptr(), x.as_ptr(), &n) };
            }
            true
        }
    };
}

vforce!(math32, f32:
    Exp => vvexpf, Exp2 => vvexp2f, Expm1 => vvexpm1f, Log => vvlogf, Log2 => vvlog2f, Log10 => vvlog10f, Log1p => vvlog1pf,
    Sqrt => vvsqrtf, Rsqrt => vvrsqrtf, Sin => vvsinf, Cos => vvcosf, Tan => vvtanf, Asin => vvasinf, Acos => vvacosf,
    Atan => vvatanf, Sinh => vvsinhf, Cosh => vvcoshf, Tanh => vvtanhf, Asinh => vvasinhf, Acosh => vvacoshf,
    Atanh => vvatanhf,
);
vforce!(math64, f64:
    Exp => vvexp, Exp2 => vvexp2, Expm1 => vvexpm1, Log => vvlog, Log2 => vvlog2, Log10 => vvlog10, Log1p => vvlog1p,
    Sqrt => vvsqrt, Rsqrt => vvrsqrt, Sin => vvsin, Cos => vvcos, Tan => vvtan, Asin => vvasin, Acos => vvacos,
    Atan => vvatan, Sinh => vvsinh, Cosh => vvcosh, Tanh => vvtanh, Asinh => vvasinh, Acosh => vvacosh,
    Atanh => vvatanh,
);
