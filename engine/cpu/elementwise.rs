//! Element-wise ops on one and two arrays.
//!
//! Depends on `loops`, `numbers` and `simd`. Invariant: 16-bit floats are computed in float32 and rounded once per op.

use super::bessel_lanes::{self, Kind};
use super::cast::cast;
use super::complex;
use super::gamma::LogGamma;
use super::numbers::{next_after, Bits, Integer, Number, RealNumber};
use super::simd::{
    call1, call2, integer_quotients, kernel, light1, light1_over, light2, light2_over, light2_symmetric, map1, map2,
    quotients, threads::GRAIN, Arg, Arith, Float, Half, Map1, Map2, Math, Quotient, Real,
};
use super::strided::F1;
use super::CpuArray;
use super::{airy, bessel, special};
use crate::{DType, Error, Result};
use half::{bf16, f16};
use loops::{better, better_half, better_over, extremes, loops1, loops2, Overs1, Overs2};
use lucid_ir::backend::Array;
use lucid_ir::ops::binary::BinaryOp;
use lucid_ir::ops::unary::UnaryOp;
use lucid_ir::Meta;
use num_complex::{Complex, Complex32, Complex64};

mod halves;
mod loops;
mod slices;
pub(super) use halves::binary_rounded;
pub(super) use loops::{apply1, apply2, Call, Call2, Loops1, Loops2, F};
pub(super) use slices::{Slices1, Slices2};

/// Elements from which an expensive function goes to the pool.
const COSTLY: usize = GRAIN / 4;

/// Declares kernels: a name, the types (listed, or all in a trait), and what it does.
macro_rules! kernels {
    ($($K:ident $types:tt |$x:ident $(, $y:ident)?| $e:expr;)*) => {
        $(
            #[derive(Clone, Copy)]
            struct $K;
            kernels!(@ $K $types |$x $(, $y)?| $e);
        )*
    };
    (@ $K:ident [in $Trait:ident] |$x:ident| $e:expr) => {
        impl<T: $Trait> Map1<T, T> for $K {
            #[inline(always)]
            fn map<const F: bool>(self, $x: T) -> T { $e }
        }
    };
    (@ $K:ident [in $Trait:ident] |$x:ident, $y:ident| $e:expr) => {
        impl<T: $Trait> Map2<T, T, T> for $K {
            #[inline(always)]
            fn map<const F: bool>(self, $x: T, $y: T) -> T { $e }
        }
    };
    (@ $K:ident [$($t:ident)*] |$x:ident| $e:expr) => {
        $(impl Map1<$t, $t> for $K {
            #[inline(always)]
            fn map<const F: bool>(self, $x: $t) -> $t { $e }
        })*
    };
    (@ $K:ident [$($t:ident)*] |$x:ident, $y:ident| $e:expr) => {
        $(impl Map2<$t, $t, $t> for $K {
            #[inline(always)]
            fn map<const F: bool>(self, $x: $t, $y: $t) -> $t { $e }
        })*
    };
}

kernels! {
    Neg [in Number] |x| x.neg();
    Square [in Number] |x| x.mul(x);
    Abs [in RealNumber] |x| x.abs();
    Sign [in RealNumber] |x| x.sign();
    Not [in Bits] |x| x.not();
    Floor [f32 f64] |x| x.floor();
    Ceil [f32 f64] |x| x.ceil();
    Trunc [f32 f64] |x| x.trunc();
    Round [f32 f64] |x| x.round_ties_even();
    Reciprocal [f32 f64] |x| 1.0 / x;
    Cube [f32 f64] |x| x * x * x;
    InverseSquare [f32 f64] |x| 1.0 / (x * x);
    ComplexNeg [Complex32 Complex64] |x| -x;
    ComplexSquare [Complex32 Complex64] |x| x * x;
    ComplexConj [Complex32 Complex64] |x| x.conj();
    ComplexAdd [Complex32 Complex64] |a, b| a + b;
    ComplexSub [Complex32 Complex64] |a, b| a - b;
    ComplexMul [Complex32 Complex64] |a, b| a * b;
    // Both of a subnormal number are those of 2^32 times it.
    Exponent [f32] |x| {
        let (by, less) = if x.abs() < f32::MIN_POSITIVE { (4_294_967_296.0, 158) } else { (1.0, 126) };
        let e = ((x * by).to_bits() >> 23 & 255) as i32 - less;
        if (x == 0.0) | !x.is_finite() { 0.0 } else { e as f32 }
    };
    Mantissa [f32] |x| {
        let y = x * if x.abs() < f32::MIN_POSITIVE { 4_294_967_296.0 } else { 1.0 };
        let m = f32::from_bits(y.to_bits() & 0x807f_ffff | 0x3f00_0000);
        if (x == 0.0) | !x.is_finite() { x } else { m }
    };
    // The sum makes 0 of -0. This is one instruction for a maximum; a choice between 0 and `x` that goes where `x` was would be
    // a masked store, which takes five times as long on some processors.
    Relu [f32 f64] |x| { let y = x + 0.0; if 0.0 > y { 0.0 } else { y } };
    Add [in Number] |a, b| a.add(b);
    Sub [in Number] |a, b| a.sub(b);
    Mul [in Number] |a, b| a.mul(b);
    Div [f32 f64] |a, b| a / b;
    And [in Bits] |a, b| a.and(b);
    Or [in Bits] |a, b| a.or(b);
    Xor [in Bits] |a, b| a.xor(b);
    ShiftLeft [in Integer] |a, b| a.shift_left(b);
    ShiftRight [in Integer] |a, b| a.shift_right(b);
    // Infinities of one sign have no difference; they are the result.
    LogAddExp [f32 f64] |a, b| {
        let (high, less) = (if a > b { a } else { b }, -(a - b).abs());
        let sum = high + kernel::Log1p.map::<{ F }>(kernel::Exp.map::<{ F }>(less));
        if a == b && high.is_infinite() { high } else { sum }
    };
    ReluGradient [f32 f64] |g, y| if y <= 0.0 { 0.0 } else { g };
    CopySign [f32 f64] |size, sign| size.copysign(sign);
}

/// The length of (a, b), infinite where either is.
#[derive(Clone, Copy)]
struct Hypot;
macro_rules! hypot {
    ($($t:ident $edge:literal $power:literal;)*) => {
        $(impl Map2<$t, $t, $t> for Hypot {
            #[inline(always)]
            fn map<const F: bool>(self, a: $t, b: $t) -> $t {
                let (a, b) = (a.abs(), b.abs());
                let most = if a > b { a } else { b };
                // By a power of 2 that takes both to where squares neither overflow nor are subnormal.
                let (by, back) = if most > 1.0 / $edge { (1.0 / $power, $power) } else { (1.0, 1.0) };
                let (by, back) = if most < $edge { ($power, 1.0 / $power) } else { (by, back) };
                let (x, y) = (a * by, b * by);
                let square = if F { x.mul_add(x, y * y) } else { x * x + y * y };
                let length = square.sqrt() * back;
                if (a == $t::INFINITY) | (b == $t::INFINITY) { $t::INFINITY } else { length }
            }
        })*
    };
}
hypot! {
    // 2^-50 and 2^100, 2^-450 and 2^600.
    f32 8.881_784e-16 1.267_650_6e30;
    f64 3.439_552_567_074_349_4e-136 4.149_515_568_880_993e180;
}

/// The number next to `a` on the way to `b`, as [`next_after`] gives it.
#[derive(Clone, Copy)]
struct NextAfter;
macro_rules! next_after_kernels {
    ($($t:ident)*) => {
        $(impl Map2<$t, $t, $t> for NextAfter {
            #[inline(always)]
            fn map<const F: bool>(self, a: $t, b: $t) -> $t {
                // Magnitudes count up away from 0; from 0 the first one is on the side of `b`.
                let away = (b > a) == (a > 0.0);
                let bits = a.to_bits();
                let near = $t::from_bits(if away { bits.wrapping_add(1) } else { bits.wrapping_sub(1) });
                let near = if a == 0.0 { $t::from_bits(1).copysign(b) } else { near };
                let near = if a == b { b } else { near };
                if a.is_nan() { a } else if b.is_nan() { b } else { near }
            }
        })*
    };
}
next_after_kernels!(f32 f64);

/// Declares tests of a float, and how those of a complex number's parts are one.
macro_rules! tests {
    ($($K:ident $is:ident $join:tt;)*) => {
        $(
            #[derive(Clone, Copy)]
            struct $K;
            tests! { @ $K $is; f32 f64 f16 bf16 }
            impl<P: Copy> Map1<Complex<P>, bool> for $K
            where
                $K: Map1<P, bool>,
            {
                #[inline(always)]
                fn map<const FMA: bool>(self, x: Complex<P>) -> bool {
                    Map1::<P, bool>::map::<FMA>(self, x.re) $join Map1::<P, bool>::map::<FMA>(self, x.im)
                }
            }
        )*
    };
    (@ $K:ident $is:ident; $($t:ident)*) => {
        $(impl Map1<$t, bool> for $K {
            #[inline(always)]
            fn map<const FMA: bool>(self, x: $t) -> bool { x.$is() }
        })*
    };
}
tests! {
    Nan is_nan |;
    Infinite is_infinite |;
    Finite is_finite &;
}

pub(super) fn log_add_exp(a: f64, b: f64) -> f64 {
    let (hi, lo) = if a > b { (a, b) } else { (b, a) };
    // Infinities of one sign have no difference; they are the result.
    if hi == lo && hi.is_infinite() {
        hi
    } else {
        hi + (lo - hi).exp().ln_1p()
    }
}

fn math(op: Math, call: Call) -> Result<CpuArray> {
    let f32: &F1<f32, f32> = &|x, out| f32::math(op, x, out);
    let f64: &F1<f64, f64> = &|x, out| f64::math(op, x, out);
    let c64: &F1<Complex32, Complex32> = &|x, out| complex::math(op, x, out);
    let c128: &F1<Complex64, Complex64> = &|x, out| complex::math(op, x, out);
    let (c64, c128) = match complex::has(op) {
        true => (Some(c64), Some(c128)),
        false => (None, None),
    };
    Loops1 { f32: Some(f32), f64: Some(f64), c64, c128, ..Loops1::default() }.run(call, COSTLY)
}

/// A function that is computed in double precision, element by element.
fn exact(f: fn(f64) -> f64, call: Call) -> Result<CpuArray> {
    let f32: &F1<f32, f32> = &|x, out| out.iter_mut().zip(x).for_each(|(o, &v)| *o = f(v.into()) as f32);
    let f64: &F1<f64, f64> = &|x, out| call1(f, x, out);
    Loops1 { f32: Some(f32), f64: Some(f64), ..Loops1::default() }.run(call, COSTLY / 4)
}

/// A Bessel function: float32 side by side, float64 one after the other.
fn of_order(n: usize, kind: Kind, f: fn(f64) -> f64, call: Call) -> Result<CpuArray> {
    let f32: &F1<f32, f32> = &|x, out| bessel_lanes::of(kind, n, x, out);
    let f64: &F1<f64, f64> = &|x, out| call1(f, x, out);
    Loops1 { f32: Some(f32), f64: Some(f64), ..Loops1::default() }.run(call, COSTLY / 4)
}

/// The sign bit of each element.
fn sign_bit(x: &CpuArray) -> Result<CpuArray> {
    match x.dtype() {
        DType::F32 => apply1::<f32, bool>(x, GRAIN, &|x, out| call1(f32::is_sign_negative, x, out)),
        DType::F64 => apply1::<f64, bool>(x, GRAIN, &|x, out| call1(f64::is_sign_negative, x, out)),
        DType::F16 => apply1::<f16, bool>(x, GRAIN, &|x, out| call1(f16::is_sign_negative, x, out)),
        DType::BF16 => apply1::<bf16, bool>(x, GRAIN, &|x, out| call1(bf16::is_sign_negative, x, out)),
        DType::Bool | DType::U8 | DType::C64 | DType::C128 => everywhere(x, false),
        DType::I8 | DType::I16 | DType::I32 => sign_bit(&cast(x, DType::I64)?),
        DType::I64 => apply1::<i64, bool>(x, GRAIN, &|x, out| call1(i64::is_negative, x, out)),
        DType::U16 | DType::U32 | DType::U64 => everywhere(x, false),
        DType::F8E4M3FN | DType::F8E5M2 => sign_bit(&cast(x, DType::F32)?),
    }
}

/// Rounding, which leaves integers as they are.
fn rounding(loops: &Loops1, call: Call) -> Result<CpuArray> {
    match call.x.dtype().is_integral() {
        true => super::copy::copy(call.x),
        false => loops.run(call, GRAIN),
    }
}

/// What holds of each element: a test that whole numbers pass, or do not.
fn test<K>(x: &CpuArray, kernel: K, whole: bool) -> Result<CpuArray>
where
    K: Map1<f32, bool> + Map1<f64, bool> + Map1<f16, bool> + Map1<bf16, bool>,
    K: Map1<Complex32, bool> + Map1<Complex64, bool> + Sync,
{
    match x.dtype() {
        DType::F32 => apply1::<f32, bool>(x, GRAIN, &|x, out| light1(kernel, x, out)),
        DType::F64 => apply1::<f64, bool>(x, GRAIN, &|x, out| light1(kernel, x, out)),
        DType::F16 => apply1::<f16, bool>(x, GRAIN, &|x, out| light1(kernel, x, out)),
        DType::BF16 => apply1::<bf16, bool>(x, GRAIN, &|x, out| light1(kernel, x, out)),
        DType::C64 => apply1::<Complex32, bool>(x, GRAIN, &|x, out| light1(kernel, x, out)),
        DType::C128 => apply1::<Complex64, bool>(x, GRAIN, &|x, out| light1(kernel, x, out)),
        DType::F8E4M3FN | DType::F8E5M2 => test(&cast(x, DType::F32)?, kernel, whole),
        _ => everywhere(x, whole),
    }
}

/// The same of every element.
fn everywhere(x: &CpuArray, value: bool) -> Result<CpuArray> {
    CpuArray::build(x.shape(), |out: &mut [bool]| {
        out.fill(value);
        Ok(())
    })
}

/// One loop for each complex dtype.
macro_rules! complexes1 {
    (light $K:ident) => {{
        let c64: &F1<Complex32, Complex32> = &|x, out| light1($K, x, out);
        let c128: &F1<Complex64, Complex64> = &|x, out| light1($K, x, out);
        (Some(c64), Some(c128))
    }};
    ($f:expr) => {{
        let c64: &F1<Complex32, Complex32> = &|x, out| call1($f, x, out);
        let c128: &F1<Complex64, Complex64> = &|x, out| call1($f, x, out);
        (Some(c64), Some(c128))
    }};
}
/// The same of two operands.
macro_rules! complexes2 {
    (light $K:ident) => {{
        let c64: &F<Complex32, Complex32> = &|a, b, out| light2($K, a, b, out);
        let c128: &F<Complex64, Complex64> = &|a, b, out| light2($K, a, b, out);
        (Some(c64), Some(c128))
    }};
    ($f:expr) => {{
        let c64: &F<Complex32, Complex32> = &|a, b, out| call2($f, a, b, out);
        let c128: &F<Complex64, Complex64> = &|a, b, out| call2($f, a, b, out);
        (Some(c64), Some(c128))
    }};
}

/// The kernels of the `unary` family; the result may be written over `x`, row-major and of its dtype.
pub fn unary(op: &UnaryOp, x: &CpuArray, over: bool) -> Result<CpuArray> {
    use UnaryOp as U;
    let call = Call { op: op.name(), x, over };
    let (complex, double) = (x.dtype().is_complex(), x.dtype() == DType::C128);
    match op {
        U::Neg => {
            let (c64, c128) = complexes1!(light ComplexNeg);
            Loops1 { c64, c128, ..loops1!(Neg; u8 i8 i16 i32 i64 f16 bf16 f32 f64) }.run(call, GRAIN)
        }
        U::Square => {
            let (c64, c128) = complexes1!(light ComplexSquare);
            Loops1 { c64, c128, ..loops1!(Square; u8 i8 i16 i32 i64 f32 f64; halves) }.run(call, GRAIN)
        }
        U::Abs if double => apply1::<Complex64, f64>(x, COSTLY, &|x, out| call1(Complex64::norm, x, out)),
        U::Abs if complex => apply1::<Complex32, f32>(x, COSTLY, &|x, out| call1(Complex32::norm, x, out)),
        U::Abs => loops1!(Abs; u8 i8 i16 i32 i64 f16 bf16 f32 f64).run(call, GRAIN),
        // The sign of a truth value is itself.
        U::Sign if x.dtype() == DType::Bool => super::copy::copy(x),
        U::Sign => loops1!(Sign; u8 i8 i16 i32 i64 f32 f64; halves).run(call, GRAIN),
        U::Conj if double => apply1::<Complex64, Complex64>(x, GRAIN, &|x, out| light1(ComplexConj, x, out)),
        U::Conj if complex => apply1::<Complex32, Complex32>(x, GRAIN, &|x, out| light1(ComplexConj, x, out)),
        U::Conj => super::copy::copy(x),
        U::Exp => math(Math::Exp, call),
        U::Exp2 => math(Math::Exp2, call),
        U::Expm1 => math(Math::Expm1, call),
        U::Log => math(Math::Log, call),
        U::Log2 => math(Math::Log2, call),
        U::Log10 => math(Math::Log10, call),
        U::Log1p => math(Math::Log1p, call),
        U::Sqrt if matches!(x.dtype(), DType::F16 | DType::BF16) => loops1!(kernel::Sqrt;; halves).run(call, GRAIN),
        U::Sqrt => math(Math::Sqrt, call),
        U::Rsqrt => math(Math::Rsqrt, call),
        U::Reciprocal => {
            let (c64, c128) = complexes1!(complex::reciprocal);
            Loops1 { c64, c128, ..loops1!(Reciprocal; f32 f64; halves) }.run(call, GRAIN)
        }
        U::Floor => rounding(&loops1!(Floor; f32 f64; halves), call),
        U::Ceil => rounding(&loops1!(Ceil; f32 f64; halves), call),
        U::Trunc => rounding(&loops1!(Trunc; f32 f64; halves), call),
        U::Round => rounding(&loops1!(Round; f32 f64; halves), call),
        U::Sin => math(Math::Sin, call),
        U::Cos => math(Math::Cos, call),
        U::Tan => math(Math::Tan, call),
        U::Asin => math(Math::Asin, call),
        U::Acos => math(Math::Acos, call),
        U::Atan => math(Math::Atan, call),
        U::Sinh => math(Math::Sinh, call),
        U::Cosh => math(Math::Cosh, call),
        U::Tanh => math(Math::Tanh, call),
        U::Asinh => math(Math::Asinh, call),
        U::Acosh => math(Math::Acosh, call),
        U::Atanh => math(Math::Atanh, call),
        U::Erf => math(Math::Erf, call),
        U::Erfc => math(Math::Erfc, call),
        U::Erfinv => math(Math::Erfinv, call),
        U::Sigmoid => math(Math::Sigmoid, call),
        U::Silu => math(Math::Silu, call),
        U::Relu if x.dtype() == DType::U8 => super::copy::copy(x),
        U::Relu => {
            let (i32, i64): (&F1<i32, i32>, &F1<i64, i64>) =
                (&|x, out| call1(|v| v.max(0), x, out), &|x, out| call1(|v| v.max(0), x, out));
            Loops1 { i32: Some(i32), i64: Some(i64), ..loops1!(Relu; f32 f64; halves) }.run(call, GRAIN)
        }
        U::Lgamma if x.dtype() == DType::F32 => apply1::<f32, f32>(x, COSTLY, &|x, out| map1(LogGamma, x, out)),
        U::Lgamma => exact(special::lgamma, call),
        U::Digamma => exact(special::digamma, call),
        U::I0 => of_order(0, Kind::I, special::i0, call),
        U::I0e => of_order(0, Kind::ScaledI, special::i0e, call),
        U::I1 => of_order(1, Kind::I, special::i1, call),
        U::I1e => of_order(1, Kind::ScaledI, special::i1e, call),
        U::Erfcx => exact(special::erfcx, call),
        U::Entr => exact(bessel::entropy, call),
        U::Ndtri => exact(bessel::normal_quantile, call),
        U::J0 => of_order(0, Kind::J, bessel::j0, call),
        U::J1 => of_order(1, Kind::J, bessel::j1, call),
        U::Y0 => of_order(0, Kind::Y, bessel::y0, call),
        U::Y1 => of_order(1, Kind::Y, bessel::y1, call),
        U::K0 => of_order(0, Kind::K, bessel::k0, call),
        U::K1 => of_order(1, Kind::K, bessel::k1, call),
        U::K0e => of_order(0, Kind::ScaledK, bessel::k0e, call),
        U::K1e => of_order(1, Kind::ScaledK, bessel::k1e, call),
        U::AiryAi => exact(airy::ai, call),
        U::Exponent if x.dtype() == DType::F32 => apply1::<f32, f32>(x, GRAIN, &|x, out| light1(Exponent, x, out)),
        U::Exponent => exact(|x| special::frexp(x).1, call),
        U::Mantissa if x.dtype() == DType::F32 => apply1::<f32, f32>(x, GRAIN, &|x, out| light1(Mantissa, x, out)),
        U::Mantissa => exact(|x| special::frexp(x).0, call),
        U::SignBit => sign_bit(x),
        U::LogicalNot => loops1!(Not; bool).run(Call { x: &cast(x, DType::Bool)?, over: false, ..call }, GRAIN),
        U::BitwiseNot => loops1!(Not; bool u8 i8 i16 i32 i64).run(call, GRAIN),
        U::IsNan => test(x, Nan, false),
        U::IsInf => test(x, Infinite, false),
        U::IsFinite => test(x, Finite, true),
    }
}

/// Powers; the commonest of one exponent are products, as in PyTorch.
fn powers<T: Real + num_traits::Float>(a: Arg<T>, b: Arg<T>, out: &mut [T])
where
    Cube: Map1<T, T>,
    Reciprocal: Map1<T, T>,
    InverseSquare: Map1<T, T>,
{
    if let (Arg::Slice(x), Arg::Value(e)) = (a, b) {
        match e.to_f64() {
            Some(1.0) => return out.copy_from_slice(x),
            Some(3.0) => return light1(Cube, x, out),
            Some(-1.0) => return light1(Reciprocal, x, out),
            Some(-2.0) => return light1(InverseSquare, x, out),
            _ => {}
        }
    }
    T::pow_slices(a, b, out);
}

/// An integer division's divisors, none of which may be 0.
fn refuse_zero(op: &'static str, b: &CpuArray) -> Result<()> {
    let truth = cast(b, DType::Bool)?.contiguous()?;
    let guard = truth.read::<bool>();
    match truth.slice(&guard).contains(&false) {
        true => Err(Error::runtime(op, "ZeroDivisionError")),
        false => Ok(()),
    }
}

/// Loops that call a function per element, of each type.
macro_rules! calls {
    ($f:ident) => {
        Loops2 {
            u8: Some(&|a, b, out| call2(u8::$f, a, b, out)),
            i8: Some(&|a, b, out| call2(i8::$f, a, b, out)),
            i16: Some(&|a, b, out| call2(i16::$f, a, b, out)),
            i32: Some(&|a, b, out| call2(i32::$f, a, b, out)),
            i64: Some(&|a, b, out| call2(i64::$f, a, b, out)),
            ..Loops2::default()
        }
    };
}

/// The operation of arithmetic that it is, if it is one.
#[inline]
fn arith(op: &BinaryOp) -> Option<Arith> {
    match op {
        BinaryOp::Add => Some(Arith::Add),
        BinaryOp::Sub => Some(Arith::Sub),
        BinaryOp::Mul => Some(Arith::Mul),
        BinaryOp::Div => Some(Arith::Div),
        _ => None,
    }
}

/// Arithmetic on few float32 of one shape, row-major; `None` where it is anything else.
#[inline]
pub fn few(op: &BinaryOp, a: &CpuArray, b: &CpuArray) -> Option<Result<CpuArray>> {
    match a.dtype() == DType::F32 && b.dtype() == DType::F32 {
        true => loops::few(arith(op)?, a, b, a.shape()),
        false => None,
    }
}

/// Sums, differences, products and quotients of float32, written to the elements of `out`; false, and nothing written, where the
/// op is another, unless all three are row-major and of one shape and `out`'s memory is no operand's.
///
/// # Errors
/// `RuntimeError` where `out` is read-only.
pub fn arithmetic_into(op: &BinaryOp, a: &CpuArray, b: &CpuArray, out: &CpuArray) -> Result<bool> {
    arith(op).map_or(Ok(false), |op| loops::into(op, a, b, out, GRAIN))
}

/// The kernels of the `binary` family; the result may be written over `a`, row-major and of its shape and dtype.
pub fn binary(op: &BinaryOp, a: &CpuArray, b: &CpuArray, out: &Meta, over: bool) -> Result<CpuArray> {
    match arith(op) {
        Some(arith) if !over && a.dtype() == DType::F32 => match loops::few(arith, a, b, &out.shape) {
            Some(made) => made,
            None => apply2::<f32, f32>(a, b, &out.shape, GRAIN, &|a, b, out| f32::arith(arith, a, b, out)),
        },
        _ => by_table(op, a, b, out, over),
    }
}

/// [`binary`] of any op and dtype.
#[inline(never)]
fn by_table(op: &BinaryOp, a: &CpuArray, b: &CpuArray, out: &Meta, over: bool) -> Result<CpuArray> {
    use BinaryOp as B;
    let shape = &out.shape[..];
    let name = op.name();
    let run = |loops: &Loops2, grain: usize| loops.run(Call2 { op: name, a, b, shape, over }, grain);
    if matches!(op, B::FloorDivide | B::Remainder | B::Fmod) && a.dtype().is_integral() && !shape.contains(&0) {
        refuse_zero(name, b)?;
    }
    match op {
        B::Add => {
            let (c64, c128) = complexes2!(light ComplexAdd);
            run(&Loops2 { c64, c128, ..loops2!(light2_symmetric Add; bool u8 i8 i16 i32 i64; floats) }, GRAIN)
        }
        B::Sub => {
            let (c64, c128) = complexes2!(light ComplexSub);
            run(&Loops2 { c64, c128, ..loops2!(light2 Sub; u8 i8 i16 i32 i64; floats) }, GRAIN)
        }
        B::Mul => {
            let (c64, c128) = complexes2!(light ComplexMul);
            run(&Loops2 { c64, c128, ..loops2!(light2_symmetric Mul; bool u8 i8 i16 i32 i64; floats) }, GRAIN)
        }
        B::Div => {
            let (c64, c128) = complexes2!(complex::div);
            run(&Loops2 { c64, c128, ..loops2!(light2 Div;; floats) }, GRAIN)
        }
        B::FloorDivide => {
            let f32: &F<f32, f32> = &|a, b, out| quotients(Quotient::Floor, f32::floor_divide, a, b, out);
            let f64: &F<f64, f64> = &|a, b, out| quotients(Quotient::Floor, f64::floor_divide, a, b, out);
            let i64: &F<i64, i64> = &|a, b, out| integer_quotients(Quotient::Floor, i64::floor_divide, a, b, out);
            run(&Loops2 { f32: Some(f32), f64: Some(f64), i64: Some(i64), ..calls!(floor_divide) }, COSTLY)
        }
        B::Remainder => {
            let f32: &F<f32, f32> = &|a, b, out| quotients(Quotient::Remainder, f32::remainder, a, b, out);
            let f64: &F<f64, f64> = &|a, b, out| quotients(Quotient::Remainder, f64::remainder, a, b, out);
            let i64: &F<i64, i64> = &|a, b, out| integer_quotients(Quotient::Remainder, i64::remainder, a, b, out);
            run(&Loops2 { f32: Some(f32), f64: Some(f64), i64: Some(i64), ..calls!(remainder) }, COSTLY)
        }
        B::Fmod => {
            let f32: &F<f32, f32> = &|a, b, out| quotients(Quotient::Fmod, f32::fmod, a, b, out);
            let f64: &F<f64, f64> = &|a, b, out| quotients(Quotient::Fmod, f64::fmod, a, b, out);
            let i64: &F<i64, i64> = &|a, b, out| integer_quotients(Quotient::Fmod, i64::fmod, a, b, out);
            run(&Loops2 { f32: Some(f32), f64: Some(f64), i64: Some(i64), ..calls!(fmod) }, COSTLY)
        }
        B::Pow => {
            let (f32, f64): (&F<f32, f32>, &F<f64, f64>) = (&powers::<f32>, &powers::<f64>);
            let (c64, c128) = complexes2!(complex::pow);
            run(&Loops2 { f32: Some(f32), f64: Some(f64), c64, c128, ..calls!(power) }, COSTLY)
        }
        B::Maximum => run(&extremes!(true; bool u8 i8 i16 i32 i64 f32 f64), GRAIN),
        B::Minimum => run(&extremes!(false; bool u8 i8 i16 i32 i64 f32 f64), GRAIN),
        B::ReluGradient => run(&loops2!(light2 ReluGradient; f32 f64; halves), GRAIN),
        B::CopySign => run(&loops2!(light2 CopySign; f32 f64; halves), GRAIN),
        B::Atan2 => {
            let (f32, f64): (&F<f32, f32>, &F<f64, f64>) = (&f32::atan2_slices, &f64::atan2_slices);
            run(&Loops2 { f32: Some(f32), f64: Some(f64), ..Loops2::default() }, COSTLY)
        }
        B::LogAddExp => {
            let (f32, f64): (&F<f32, f32>, &F<f64, f64>) =
                (&|a, b, out| map2(LogAddExp, a, b, out), &|a, b, out| map2(LogAddExp, a, b, out));
            run(&Loops2 { f32: Some(f32), f64: Some(f64), ..Loops2::default() }, COSTLY)
        }
        B::Hypot => {
            let (f32, f64): (&F<f32, f32>, &F<f64, f64>) =
                (&|a, b, out| map2(Hypot, a, b, out), &|a, b, out| map2(Hypot, a, b, out));
            run(&Loops2 { f32: Some(f32), f64: Some(f64), ..Loops2::default() }, GRAIN)
        }
        B::NextAfter if a.dtype() == DType::BF16 => {
            apply2::<bf16, bf16>(a, b, shape, GRAIN, &|a, b, out| call2(next_after::<bf16>, a, b, out))
        }
        B::NextAfter if a.dtype() == DType::F16 => {
            apply2::<f16, f16>(a, b, shape, GRAIN, &|a, b, out| call2(next_after::<f16>, a, b, out))
        }
        B::NextAfter => run(&loops2!(light2 NextAfter; f32 f64), GRAIN),
        B::Gcd => run(&calls!(gcd), COSTLY),
        B::Lcm => run(&calls!(lcm), COSTLY),
        B::Zeta => {
            let (f32, f64): (&F<f32, f32>, &F<f64, f64>) =
                (&special::zetas, &|a, b, out| call2(special::zeta, a, b, out));
            run(&Loops2 { f32: Some(f32), f64: Some(f64), ..Loops2::default() }, COSTLY / 4)
        }
        B::Igamma | B::Igammac => {
            type One<T> = fn(T, T) -> T;
            let (narrow, wide): (One<f32>, One<f64>) = match op {
                B::Igamma => {
                    (|a, x| special::igamma(a.into(), x.into(), false) as f32, |a, x| special::igamma(a, x, false))
                }
                _ => (|a, x| special::igamma(a.into(), x.into(), true) as f32, |a, x| special::igamma(a, x, true)),
            };
            let f32: &F<f32, f32> = &|a, b, out| call2(narrow, a, b, out);
            let f64: &F<f64, f64> = &|a, b, out| call2(wide, a, b, out);
            run(&Loops2 { f32: Some(f32), f64: Some(f64), ..Loops2::default() }, COSTLY / 4)
        }
        B::BitwiseAnd => run(&loops2!(light2_symmetric And; bool u8 i8 i16 i32 i64), GRAIN),
        B::BitwiseOr => run(&loops2!(light2_symmetric Or; bool u8 i8 i16 i32 i64), GRAIN),
        B::BitwiseXor => run(&loops2!(light2_symmetric Xor; bool u8 i8 i16 i32 i64), GRAIN),
        B::LeftShift => run(&loops2!(light2 ShiftLeft; u8 i8 i16 i32 i64), GRAIN),
        B::RightShift => run(&loops2!(light2 ShiftRight; u8 i8 i16 i32 i64), GRAIN),
    }
}

#[cfg(test)]
mod tests;
