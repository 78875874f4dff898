//! What element-wise ops do to slices of float32: the same loops that they run by themselves, for fused kernels.
//!
//! Depends on the kernels of `elementwise`. Optional, for speed: an op that is not here runs by itself.

use super::loops::better;
use super::{powers, Abs, Ceil, Floor, Neg, Reciprocal, Relu, ReluGradient, Round, Sign, Square, Trunc};
use crate::simd::{light1, light2, Arg, Arith, Float, Math, Real};
use lucid_ir::ops::binary::BinaryOp;
use lucid_ir::ops::unary::UnaryOp;

/// A loop over one slice.
#[derive(Clone, Copy)]
pub(crate) enum Slices1 {
    /// An elementary function.
    Math(Math),
    /// Another one.
    Light(fn(&[f32], &mut [f32])),
}

/// A loop over two operands.
#[derive(Clone, Copy)]
pub(crate) enum Slices2 {
    /// Arithmetic.
    Arith(Arith),
    /// Another one.
    Light(fn(Arg<f32>, Arg<f32>, &mut [f32])),
}

impl Slices1 {
    /// That of an op, if it has one.
    pub(crate) fn of(op: &UnaryOp) -> Option<Slices1> {
        use UnaryOp as U;
        Some(match op {
            U::Neg => Slices1::Light(|x, out| light1(Neg, x, out)),
            U::Square => Slices1::Light(|x, out| light1(Square, x, out)),
            U::Abs => Slices1::Light(|x, out| light1(Abs, x, out)),
            U::Sign => Slices1::Light(|x, out| light1(Sign, x, out)),
            U::Reciprocal => Slices1::Light(|x, out| light1(Reciprocal, x, out)),
            U::Floor => Slices1::Light(|x, out| light1(Floor, x, out)),
            U::Ceil => Slices1::Light(|x, out| light1(Ceil, x, out)),
            U::Trunc => Slices1::Light(|x, out| light1(Trunc, x, out)),
            U::Round => Slices1::Light(|x, out| light1(Round, x, out)),
            U::Relu => Slices1::Light(|x, out| light1(Relu, x, out)),
            U::Exp => Slices1::Math(Math::Exp),
            U::Exp2 => Slices1::Math(Math::Exp2),
            U::Expm1 => Slices1::Math(Math::Expm1),
            U::Log => Slices1::Math(Math::Log),
            U::Log2 => Slices1::Math(Math::Log2),
            U::Log10 => Slices1::Math(Math::Log10),
            U::Log1p => Slices1::Math(Math::Log1p),
            U::Sqrt => Slices1::Math(Math::Sqrt),
            U::Rsqrt => Slices1::Math(Math::Rsqrt),
            U::Sin => Slices1::Math(Math::Sin),
            U::Cos => Slices1::Math(Math::Cos),
            U::Tan => Slices1::Math(Math::Tan),
            U::Asin => Slices1::Math(Math::Asin),
            U::Acos => Slices1::Math(Math::Acos),
            U::Atan => Slices1::Math(Math::Atan),
            U::Sinh => Slices1::Math(Math::Sinh),
            U::Cosh => Slices1::Math(Math::Cosh),
            U::Tanh => Slices1::Math(Math::Tanh),
            U::Asinh => Slices1::Math(Math::Asinh),
            U::Acosh => Slices1::Math(Math::Acosh),
            U::Atanh => Slices1::Math(Math::Atanh),
            U::Erf => Slices1::Math(Math::Erf),
            U::Erfc => Slices1::Math(Math::Erfc),
            U::Erfinv => Slices1::Math(Math::Erfinv),
            U::Sigmoid => Slices1::Math(Math::Sigmoid),
            U::Silu => Slices1::Math(Math::Silu),
            // The rest runs by itself: nothing to do here for a new op.
            _ => return None,
        })
    }

    /// `out[i] = f(x[i])`
    pub(crate) fn run(self, x: &[f32], out: &mut [f32]) {
        match self {
            Slices1::Math(op) => f32::math(op, x, out),
            Slices1::Light(f) => f(x, out),
        }
    }
}

impl Slices2 {
    /// That of an op, if it has one.
    #[allow(clippy::redundant_closure)] // Pointers to functions of any lifetimes.
    pub(crate) fn of(op: &BinaryOp) -> Option<Slices2> {
        use BinaryOp as B;
        Some(match op {
            B::Add => Slices2::Arith(Arith::Add),
            B::Sub => Slices2::Arith(Arith::Sub),
            B::Mul => Slices2::Arith(Arith::Mul),
            B::Div => Slices2::Arith(Arith::Div),
            B::Maximum => Slices2::Light(|a, b, out| better::<f32, true>(a, b, out)),
            B::Minimum => Slices2::Light(|a, b, out| better::<f32, false>(a, b, out)),
            B::ReluGradient => Slices2::Light(|a, b, out| light2(ReluGradient, a, b, out)),
            B::Pow => Slices2::Light(|a, b, out| powers(a, b, out)),
            B::Atan2 => Slices2::Light(|a, b, out| f32::atan2_slices(a, b, out)),
            // As above.
            _ => return None,
        })
    }

    /// `out[i] = f(a[i], b[i])`
    pub(crate) fn run(self, a: Arg<f32>, b: Arg<f32>, out: &mut [f32]) {
        match self {
            Slices2::Arith(op) => f32::arith(op, a, b, out),
            Slices2::Light(f) => f(a, b, out),
        }
    }
}
