//! Apple's vForce and vDSP behind the same interfaces as the kernels in `math32` and `math64`, and the loops in `arith`.
//!
//! Depends on Accelerate, linked by the build. Invariant: a function is only listed here if its results for NaN,
//! infinities and zeros are those of C's libm. The declarations are checked against Apple's headers (docs/macos.md), the
//! results by the tests of the interfaces, which are the same everywhere.

use super::dispatch::by_rows;
use super::{Arg, Arith, Math};
use std::ffi::c_int;

macro_rules! vforce {
    ($name:ident, $t:ty: $($Op:ident => $f:ident,)*) => {
        unsafe extern "C" {
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

macro_rules! vdsp {
    ($name:ident, $t:ty: $add:ident $sub:ident $mul:ident $div:ident) => {
        unsafe extern "C" {
            fn $add(a: *const $t, ia: isize, b: *const $t, ib: isize, c: *mut $t, ic: isize, n: usize);
            // These two take what is subtracted, or divided by, first.
            fn $sub(b: *const $t, ib: isize, a: *const $t, ia: isize, c: *mut $t, ic: isize, n: usize);
            fn $mul(a: *const $t, ia: isize, b: *const $t, ib: isize, c: *mut $t, ic: isize, n: usize);
            fn $div(b: *const $t, ib: isize, a: *const $t, ia: isize, c: *mut $t, ic: isize, n: usize);
        }

        /// `out[i] = a[i] op b[i]`, over the shortest.
        pub fn $name(op: Arith, a: Arg<$t>, b: Arg<$t>, out: &mut [$t]) {
            // A value is a slice that is walked in steps of 0.
            fn walk<'x>(x: &'x Arg<'_, $t>, n: usize) -> (&'x [$t], isize, usize) {
                match x {
                    Arg::Slice(x) => (x, 1, n.min(x.len())),
                    Arg::Value(x) => (std::slice::from_ref(x), 0, n),
                    Arg::Rows(x) => (x.data, isize::from(!x.one), n.min(x.n)),
                }
            }
            by_rows(a, b, out, |a, b, out| {
                let (a, ia, n) = walk(&a, out.len());
                let (b, ib, n) = walk(&b, n);
                let (a, b, c) = (a.as_ptr(), b.as_ptr(), out.as_mut_ptr());
                // SAFETY: `walk` says that n steps stay inside of both operands and of `out`, which is exclusive.
                unsafe {
                    match op {
                        Arith::Add => $add(a, ia, b, ib, c, 1, n),
                        Arith::Sub => $sub(b, ib, a, ia, c, 1, n),
                        Arith::Mul => $mul(a, ia, b, ib, c, 1, n),
                        Arith::Div => $div(b, ib, a, ia, c, 1, n),
                    }
                }
            });
        }
    };
}
vdsp!(arith32, f32: vDSP_vadd vDSP_vsub vDSP_vmul vDSP_vdiv);
vdsp!(arith64, f64: vDSP_vaddD vDSP_vsubD vDSP_vmulD vDSP_vdivD);
