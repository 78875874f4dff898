//! Functions of one element with numbers of their own, and products of gradients with their derivatives, in one pass each.
//!
//! Depends on `elementwise` and `simd`. Invariant: 16-bit floats are computed in float32 and rounded once; an element that a
//! function cuts off has the derivative 0 whatever the gradient.

use super::elementwise::{Call, Call2, Loops1, Loops2, F as Pairs};
use super::simd::{kernel, light1, light2, map1, map2, threads::GRAIN, Arg, Half, Map1, Map2};
use super::strided::F1;
use super::CpuArray;
use crate::Result;
use half::{bf16, f16};
use lucid_ir::ops::nn::ElementFn;
use lucid_ir::Meta;

/// Floats with the functions that these are made of.
trait Lane: num_traits::Float {
    fn of(x: f64) -> Self;
    fn power<const F: bool>(self) -> Self;
    fn power_less_one<const F: bool>(self) -> Self;
    fn log_of_more<const F: bool>(self) -> Self;
    fn logistic<const F: bool>(self) -> Self;
}
macro_rules! lane {
    ($t:ident) => {
        impl Lane for $t {
            #[inline(always)]
            fn of(x: f64) -> $t {
                x as $t
            }
            #[inline(always)]
            fn power<const F: bool>(self) -> $t {
                kernel::Exp.map::<F>(self)
            }
            #[inline(always)]
            fn power_less_one<const F: bool>(self) -> $t {
                kernel::Expm1.map::<F>(self)
            }
            #[inline(always)]
            fn log_of_more<const F: bool>(self) -> $t {
                kernel::Log1p.map::<F>(self)
            }
            #[inline(always)]
            fn logistic<const F: bool>(self) -> $t {
                kernel::Sigmoid.map::<F>(self)
            }
        }
    };
}
lane!(f32);
lane!(f64);

/// A function with its numbers.
trait Curve<T>: Copy {
    /// Does it take so much work that memory does not decide?
    const HEAVY: bool;
    fn value<const F: bool>(self, x: T) -> T;
    /// `g` times its derivative at `x`.
    fn back<const F: bool>(self, g: T, x: T) -> T;
}

/// A curve as a kernel of its values.
#[derive(Clone, Copy)]
struct Value<C>(C);
impl<T, C: Curve<T>> Map1<T, T> for Value<C> {
    #[inline(always)]
    fn map<const F: bool>(self, x: T) -> T {
        self.0.value::<F>(x)
    }
}

/// A curve as a kernel of gradients.
#[derive(Clone, Copy)]
struct Back<C>(C);
impl<T, C: Curve<T>> Map2<T, T, T> for Back<C> {
    #[inline(always)]
    fn map<const F: bool>(self, g: T, x: T) -> T {
        self.0.back::<F>(g, x)
    }
}

/// Declares curves: whether they are heavy, the numbers that they use, the value at `x`, and `g` times the derivative.
macro_rules! curves {
    ($($Name:ident $heavy:literal [$($n:pat),*] |$x:ident| $value:expr, |$g:ident| $back:expr;)*) => {
        $(
            #[derive(Clone, Copy)]
            struct $Name<T>([T; 3]);
            impl<T: Lane> Curve<T> for $Name<T> {
                const HEAVY: bool = $heavy;
                #[inline(always)]
                #[allow(unused_variables)]
                fn value<const F: bool>(self, $x: T) -> T {
                    let [$($n),*] = self.0;
                    $value
                }
                #[inline(always)]
                #[allow(unused_variables)]
                fn back<const F: bool>(self, $g: T, $x: T) -> T {
                    let [$($n),*] = self.0;
                    $back
                }
            }
        )*

        /// Runs `$body` with `$c` bound to the curve of a function, of elements `$t`.
        macro_rules! with_curve {
            ($f:expr, $numbers:expr, $t:ident, $c:ident => $body:expr) => {
                match $f {
                    $(ElementFn::$Name => {
                        let $c = $Name::<$t>($numbers.map(<$t as Lane>::of));
                        $body
                    })*
                }
            };
        }
    };
}

/// A number of the type that is computed in.
#[inline(always)]
fn k<T: Lane>(x: f64) -> T {
    T::of(x)
}

/// 0
#[inline(always)]
fn nil<T: Lane>() -> T {
    T::zero()
}

curves! {
    LeakyRelu false [a, _, _]
        |x| if x > nil() { x } else { x * a },
        |g| if x > nil() { g } else { g * a };
    Elu true [a, b, c]
        |x| if x <= nil() { (x * c).power_less_one::<F>() * (a * b) } else { x * b },
        |g| if x <= nil() { g * (a * b * c) * (x * c).power::<F>() } else { g * b };
    Softplus true [a, b, c]
        |x| { let z = x * a; if z > b { x } else { z.power::<F>().log_of_more::<F>() * c } },
        |g| { let z = x * a; if z > b { g } else { g * z.logistic::<F>() } };
    Hardtanh false [a, b, _]
        |x| { let y = if x <= a { a } else { x }; if y >= b { b } else { y } },
        |g| if (x <= a) | (x >= b) { nil() } else { g };
    Clamp false [a, b, _]
        |x| { let y = if x < a { a } else { x }; if y > b { b } else { y } },
        |g| if (a.is_nan() | (x > a)) & (b.is_nan() | (x < b)) { g } else { nil() };
    Hardswish false [_, _, _]
        |x| {
            let y = x + k(3.0);
            let y = x * (if y < nil() { nil() } else { y }) / k(6.0);
            if x < k(3.0) { y } else { x }
        },
        |g| {
            let inside = g * (x * k(1.0 / 3.0) + k(0.5));
            let low = if x <= k(-3.0) { nil() } else { inside };
            if x < k(3.0) { low } else { g }
        };
    Hardsigmoid false [_, _, _]
        |x| {
            let y = x + k(3.0);
            let y = if y < nil() { nil() } else { y };
            (if y > k(6.0) { k(6.0) } else { y }) * k(1.0 / 6.0)
        },
        |g| if (x > k(-3.0)) & (x < k(3.0)) { g * k(1.0 / 6.0) } else { nil() };
    LogSigmoid true [_, _, _]
        |x| (if x < nil() { x } else { nil() }) - (-x.abs()).power::<F>().log_of_more::<F>(),
        |g| g * (-x).logistic::<F>();
    Mish true [_, _, _]
        |x| {
            // tanh(log(1 + e)) = (e² + 2 e) / (e² + 2 e + 2), which is 1 long before e² overflows.
            let e = (if x > k(20.0) { k(20.0) } else { x }).power::<F>();
            let w = e * (e + k(2.0));
            x * (w / (w + k(2.0)))
        },
        |g| {
            let e = (if x > k(20.0) { k(20.0) } else { x }).power::<F>();
            let w = e * (e + k(2.0));
            let (t, s) = (w / (w + k(2.0)), e / (e + T::one()));
            let left = if x > k(20.0) { nil() } else { k::<T>(2.0) / (w + k(2.0)) * (T::one() + t) };
            g * (t + x * (s * left))
        };
    Silu true [_, _, _]
        |x| x / (T::one() + (-x).power::<F>()),
        |g| { let s = x.logistic::<F>(); g * (s * (T::one() + x * (T::one() - s))) };
    SigmoidResult false [_, _, _]
        |x| x,
        |g| g * ((T::one() - x) * x);
    TanhResult false [_, _, _]
        |x| x,
        |g| g * (T::one() - x * x);
    Huber false [a, _, _]
        |x| { let d = x.abs(); if d < a { x * x * k(0.5) } else { (d - a * k(0.5)) * a } },
        |g| { let y = if x <= -a { -a } else { x }; g * (if y >= a { a } else { y }) };
    SmoothL1 false [a, _, _]
        |x| { let d = x.abs(); if d < a { x * x * (k::<T>(0.5) / a) } else { d - a * k(0.5) } },
        |g| { let y = if x <= -a { -T::one() } else { x / a }; g * (if x >= a { T::one() } else { y }) };
    NanToNum false [a, b, c]
        |x| {
            let y = if x.is_nan() { a } else { x };
            let y = if x == T::infinity() { b } else { y };
            if x == T::neg_infinity() { c } else { y }
        },
        |g| if x.abs() < T::infinity() { g } else { nil() };
    Threshold false [a, b, _]
        |x| if x <= a { b } else { x },
        |g| if x <= a { nil() } else { g };
    Hardshrink false [a, _, _]
        |x| if x.abs() <= a { nil() } else { x },
        |g| if x.abs() <= a { nil() } else { g };
    Softshrink false [a, _, _]
        |x| {
            let y = if x < nil() { x + a } else { x - a };
            if x.abs() <= a { nil() } else { y }
        },
        |g| if x.abs() <= a { nil() } else { g };
}

fn run_values<T: Copy, C: Curve<T>>(c: C, x: &[T], out: &mut [T]) {
    match C::HEAVY {
        true => map1(Value(c), x, out),
        false => light1(Value(c), x, out),
    }
}

fn run_gradients<T: Copy, C: Curve<T>>(c: C, g: Arg<T>, x: Arg<T>, out: &mut [T]) {
    match C::HEAVY {
        true => map2(Back(c), g, x, out),
        false => light2(Back(c), g, x, out),
    }
}

/// Does a function take so much work that memory, and conversions of 16-bit floats, do not decide?
fn is_heavy(f: ElementFn) -> bool {
    fn of<C: Curve<f32>>(_: C) -> bool {
        C::HEAVY
    }
    with_curve!(f, [0.0; 3], f32, c => of(c))
}

/// Elements of a function from which it goes to the pool.
const SOME: usize = GRAIN / 4;

/// A function of each element of a slice.
pub fn values(f: ElementFn, numbers: [f64; 3], x: &[f32], out: &mut [f32]) {
    with_curve!(f, numbers, f32, c => run_values(c, x, out));
}

/// Gradients times the derivative of a function, of slices.
pub fn gradients(f: ElementFn, numbers: [f64; 3], g: Arg<f32>, x: Arg<f32>, out: &mut [f32]) {
    with_curve!(f, numbers, f32, c => run_gradients(c, g, x, out));
}

/// A function of each element.
pub fn forward(f: ElementFn, numbers: [f64; 3], x: &CpuArray) -> Result<CpuArray> {
    let narrow: &F1<f32, f32> = &|x, out| values(f, numbers, x, out);
    let wide: &F1<f64, f64> = &|x, out| with_curve!(f, numbers, f64, c => run_values(c, x, out));
    let half: &F1<f16, f16> = &|x, out| with_curve!(f, numbers, f32, c => f16::half1(Value(c), x, out));
    let brain: &F1<bf16, bf16> = &|x, out| with_curve!(f, numbers, f32, c => bf16::half1(Value(c), x, out));
    let (f16, bf16) = if is_heavy(f) { (None, None) } else { (Some(half), Some(brain)) };
    let loops = Loops1 { f16, bf16, f32: Some(narrow), f64: Some(wide), ..Loops1::default() };
    loops.run(Call { op: "elementwise", x, over: false }, SOME)
}

/// A gradient times the derivative of a function.
pub fn backward(f: ElementFn, numbers: [f64; 3], g: &CpuArray, x: &CpuArray, out: &Meta) -> Result<CpuArray> {
    let narrow: &Pairs<f32, f32> = &|g, x, out| gradients(f, numbers, g, x, out);
    let wide: &Pairs<f64, f64> = &|g, x, out| with_curve!(f, numbers, f64, c => run_gradients(c, g, x, out));
    let half: &Pairs<f16, f16> = &|g, x, out| with_curve!(f, numbers, f32, c => f16::half2(Back(c), g, x, out));
    let brain: &Pairs<bf16, bf16> = &|g, x, out| with_curve!(f, numbers, f32, c => bf16::half2(Back(c), g, x, out));
    let (f16, bf16) = if is_heavy(f) { (None, None) } else { (Some(half), Some(brain)) };
    let loops = Loops2 { f16, bf16, f32: Some(narrow), f64: Some(wide), ..Loops2::default() };
    loops.run(Call2 { op: "elementwise_gradient", a: g, b: x, shape: &out.shape, over: false }, SOME)
}
