//! Elementary functions over slices: the choice of kernel by function and element type.
//!
//! Depends on the kernels beside it, and on Apple's vForce where that exists. Invariant: both give the same results
//! within the tolerances stated in `math32` and `math64`.

use super::dispatch::{map1, map2, run, Arg, Map1, Map2, Task};
use super::half::Wide;
use super::{math32, math64};
use half::{bf16, f16};

macro_rules! functions {
    ($($(#[$doc:meta])* $Name:ident $f:ident;)*) => {
        /// A function of one real number.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Math { $($(#[$doc])* $Name,)* }

        /// One kernel per function.
        pub mod kernel {
            use super::*;
            $(
                $(#[$doc])*
                #[derive(Clone, Copy)]
                pub struct $Name;
                impl Map1<f32, f32> for $Name {
                    #[inline(always)]
                    fn map<const F: bool>(self, x: f32) -> f32 { lanes32::$f::<F>(x) }
                }
                impl Map1<f64, f64> for $Name {
                    #[inline(always)]
                    fn map<const F: bool>(self, x: f64) -> f64 { lanes64::$f::<F>(x) }
                }
            )*
        }

        #[cfg(test)]
        pub(super) const ALL: &[Math] = &[$(Math::$Name),*];

        macro_rules! apply {
            ($op:expr, $K:ident => $body:expr) => {
                match $op { $(Math::$Name => { let $K = kernel::$Name; $body })* }
            };
        }
    };
}

functions! {
    /// e^x
    Exp exp;
    /// 2^x
    Exp2 exp2;
    /// e^x − 1
    Expm1 expm1;
    /// Natural logarithm.
    Log log;
    /// Logarithm to base 2.
    Log2 log2;
    /// Logarithm to base 10.
    Log10 log10;
    /// ln(1 + x)
    Log1p log1p;
    /// Square root.
    Sqrt sqrt;
    /// 1 / √x
    Rsqrt rsqrt;
    /// Sine.
    Sin sin;
    /// Cosine.
    Cos cos;
    /// Tangent.
    Tan tan;
    /// Arcsine.
    Asin asin;
    /// Arccosine.
    Acos acos;
    /// Arctangent.
    Atan atan;
    /// Hyperbolic sine.
    Sinh sinh;
    /// Hyperbolic cosine.
    Cosh cosh;
    /// Hyperbolic tangent.
    Tanh tanh;
    /// Inverse hyperbolic sine.
    Asinh asinh;
    /// Inverse hyperbolic cosine.
    Acosh acosh;
    /// Inverse hyperbolic tangent.
    Atanh atanh;
    /// Error function.
    Erf erf;
    /// 1 − erf x
    Erfc erfc;
    /// Inverse of the error function.
    Erfinv erfinv;
    /// 1 / (1 + e^−x)
    Sigmoid sigmoid;
    /// x · sigmoid x
    Silu silu;
    /// x · ½ (1 + erf(x / √2))
    Gelu gelu;
    /// The approximation of `Gelu` by tanh.
    GeluTanh gelu_tanh;
}

/// What is made of other functions in the same way for both precisions.
macro_rules! composed {
    ($t:ident, $m:ident, $erf:ident) => {
        pub use super::super::$erf::*;
        pub use super::$m::*;

        #[inline(always)]
        pub fn sqrt<const F: bool>(x: $t) -> $t {
            x.sqrt()
        }
        #[inline(always)]
        pub fn rsqrt<const F: bool>(x: $t) -> $t {
            1.0 / x.sqrt()
        }
        #[inline(always)]
        pub fn silu<const F: bool>(x: $t) -> $t {
            x / (1.0 + exp::<F>(-x))
        }
        #[inline(always)]
        pub fn gelu_tanh<const F: bool>(x: $t) -> $t {
            let inner = std::$t::consts::FRAC_2_SQRT_PI * std::$t::consts::FRAC_1_SQRT_2 * (x + 0.044_715 * x * x * x);
            0.5 * x * (1.0 + tanh::<F>(inner))
        }
        /// g times the slope of `gelu`.
        #[inline(always)]
        pub fn gelu_back<const F: bool>(g: $t, x: $t) -> $t {
            let density = std::$t::consts::FRAC_2_SQRT_PI * std::$t::consts::FRAC_1_SQRT_2 * exp::<F>(-0.5 * x * x);
            0.5 * g * (1.0 + erf::<F>(x * std::$t::consts::FRAC_1_SQRT_2) + x * density)
        }
        /// g times the slope of `gelu_tanh`.
        #[inline(always)]
        pub fn gelu_tanh_back<const F: bool>(g: $t, x: $t) -> $t {
            let scale = std::$t::consts::FRAC_2_SQRT_PI * std::$t::consts::FRAC_1_SQRT_2;
            let t = tanh::<F>(scale * (x + 0.044_715 * x * x * x));
            0.5 * g * (1.0 + t + x * (1.0 - t * t) * scale * (1.0 + 3.0 * 0.044_715 * x * x))
        }
    };
}
mod lanes32 {
    composed!(f32, math32, math32_erf);
}
mod lanes64 {
    composed!(f64, math64, math64_erf);
}

/// Real numbers with elementary functions over slices.
pub trait Real: Wide + Send + Sync + 'static {
    /// `out[i] = op(x[i])`, over the shorter of the two.
    fn math(op: Math, x: &[Self], out: &mut [Self]);
    /// `out[i] = a[i] ^ b[i]`.
    fn pow_slices(a: Arg<Self>, b: Arg<Self>, out: &mut [Self]);
    /// The angle of the point (`x[i]`, `y[i]`).
    fn atan2_slices(y: Arg<Self>, x: Arg<Self>, out: &mut [Self]);
    /// `g[i]` times the slope at `x[i]` of `Gelu`, or of `GeluTanh`.
    fn gelu_gradient(tanh: bool, g: Arg<Self>, x: Arg<Self>, out: &mut [Self]);
}

/// x^y
#[derive(Clone, Copy)]
struct Pow;
/// Angle of (x, y).
#[derive(Clone, Copy)]
struct Atan2;
#[derive(Clone, Copy)]
struct GeluBack;
#[derive(Clone, Copy)]
struct GeluTanhBack;

/// A kernel over the wide type, for elements that are narrower.
#[derive(Clone, Copy)]
pub struct Widened<K>(pub K);
impl<T: Wide, K: Map1<T::W, T::W>> Map1<T, T> for Widened<K> {
    #[inline(always)]
    fn map<const F: bool>(self, x: T) -> T {
        T::narrow(self.0.map::<F>(x.widen()))
    }
}
impl<T: Wide, K: Map2<T::W, T::W, T::W>> Map2<T, T, T> for Widened<K> {
    #[inline(always)]
    fn map<const F: bool>(self, a: T, b: T) -> T {
        T::narrow(self.0.map::<F>(a.widen(), b.widen()))
    }
}

/// Is any element beyond a bound (in magnitude)?
struct AnyBeyond<'a, T>(&'a [T], f32);
impl<T: Wide> Task for AnyBeyond<'_, T>
where
    T::W: Into<f64>,
{
    type Out = bool;
    #[inline(always)]
    fn run<const F: bool>(self) -> bool {
        let bound = f64::from(self.1);
        self.0.iter().fold(false, |any, x| any | (x.widen().into().abs() > bound))
    }
}

/// Elements beyond the range of the vector reduction by multiples of π/2, again, one by one.
fn redo_large<T: Wide>(op: Math, x: &[T], out: &mut [T], bound: f32, f: impl Fn(Math, T) -> T)
where
    T::W: Into<f64>,
{
    if !matches!(op, Math::Sin | Math::Cos | Math::Tan) || !run(AnyBeyond(x, bound)) {
        return;
    }
    for (o, &x) in out.iter_mut().zip(x) {
        if x.widen().into().abs() > f64::from(bound) {
            *o = f(op, x);
        }
    }
}

fn trig(op: Math, x: f64) -> f64 {
    match op {
        Math::Sin => x.sin(),
        Math::Cos => x.cos(),
        _ => x.tan(),
    }
}

/// A function with a shorter form for the arguments that are not out of the ordinary.
trait Quick: Map1<f32, f32> {
    /// What [`Map1::map`] gives, where [`Quick::ordinary`] holds.
    fn quick<const F: bool>(x: f32) -> f32;
    fn ordinary(x: f32) -> bool;
}
impl Quick for kernel::Exp {
    #[inline(always)]
    fn quick<const F: bool>(x: f32) -> f32 {
        math32::exp_quick::<F>(x)
    }
    #[inline(always)]
    fn ordinary(x: f32) -> bool {
        math32::exp_is_ordinary(x)
    }
}
impl Quick for kernel::Log {
    #[inline(always)]
    fn quick<const F: bool>(x: f32) -> f32 {
        math32::log_quick::<F>(x)
    }
    #[inline(always)]
    fn ordinary(x: f32) -> bool {
        math32::log_is_ordinary(x)
    }
}

/// The shorter form block by block; the longer one for a block in which anything is out of the ordinary.
struct QuickLoop<'a, K>(K, &'a [f32], &'a mut [f32]);
impl<K: Quick> Task for QuickLoop<'_, K> {
    type Out = ();
    #[inline(always)]
    fn run<const F: bool>(self) {
        const BLOCK: usize = 512;
        let QuickLoop(k, x, out) = self;
        for (x, out) in x.chunks(BLOCK).zip(out.chunks_mut(BLOCK)) {
            let mut odd = false;
            for (o, &x) in out.iter_mut().zip(x) {
                *o = K::quick::<F>(x);
                odd |= !K::ordinary(x);
            }
            if odd {
                for (o, &x) in out.iter_mut().zip(x) {
                    *o = k.map::<F>(x);
                }
            }
        }
    }
}

/// Functions of `f32` that have a shorter form; was it one?
fn quick(op: Math, x: &[f32], out: &mut [f32]) -> bool {
    match op {
        Math::Exp => run(QuickLoop(kernel::Exp, x, out)),
        Math::Log => run(QuickLoop(kernel::Log, x, out)),
        _ => return false,
    }
    true
}

macro_rules! real {
    ($t:ident, $wide:ident, $m:ident, $k:ident => $wrap:expr, $apple:expr) => {
        impl Real for $t {
            fn math(op: Math, x: &[$t], out: &mut [$t]) {
                if $apple(op, x, out) {
                    return;
                }
                apply!(op, $k => map1($wrap, x, out));
                redo_large(op, x, out, $m::TRIG_MAX as f32, |op, x| $t::narrow(trig(op, x.widen().into()) as $wide));
            }
            fn pow_slices(a: Arg<$t>, b: Arg<$t>, out: &mut [$t]) {
                let $k = Pow;
                map2($wrap, a, b, out);
            }
            fn atan2_slices(y: Arg<$t>, x: Arg<$t>, out: &mut [$t]) {
                let $k = Atan2;
                map2($wrap, y, x, out);
            }
            fn gelu_gradient(tanh: bool, g: Arg<$t>, x: Arg<$t>, out: &mut [$t]) {
                if tanh {
                    let $k = GeluTanhBack;
                    map2($wrap, g, x, out);
                } else {
                    let $k = GeluBack;
                    map2($wrap, g, x, out);
                }
            }
        }
    };
}
real!(f32, f32, math32, k => k, |op, x: &[f32], out: &mut [f32]| apple::math32(op, x, out) || quick(op, x, out));
real!(f64, f64, math64, k => k, apple::math64);
real!(f16, f32, math32, k => Widened(k), |_, _: &[f16], _: &mut [f16]| false);
real!(bf16, f32, math32, k => Widened(k), |_, _: &[bf16], _: &mut [bf16]| false);

#[cfg(accelerate)]
use super::apple;
#[cfg(not(accelerate))]
mod apple {
    //! No vendor functions here.
    pub fn math32(_: super::Math, _: &[f32], _: &mut [f32]) -> bool {
        false
    }
    pub fn math64(_: super::Math, _: &[f64], _: &mut [f64]) -> bool {
        false
    }
}

macro_rules! two {
    ($($K:ident $f:ident),*) => {
        $(
            impl Map2<f32, f32, f32> for $K {
                #[inline(always)]
                fn map<const F: bool>(self, a: f32, b: f32) -> f32 { lanes32::$f::<F>(a, b) }
            }
            impl Map2<f64, f64, f64> for $K {
                #[inline(always)]
                fn map<const F: bool>(self, a: f64, b: f64) -> f64 { lanes64::$f::<F>(a, b) }
            }
        )*
    };
}
two!(Pow pow, Atan2 atan2, GeluBack gelu_back, GeluTanhBack gelu_tanh_back);
