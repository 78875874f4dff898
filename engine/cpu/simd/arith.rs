//! The four operations of arithmetic over slices of floats: Apple's vDSP where that exists, loops elsewhere.
//!
//! Depends on the loops beside it. Invariant: results are IEEE 754's, each rounded once; both give the same bits, but for
//! those of a NaN.

use super::dispatch::Arg;
#[cfg(not(accelerate))]
use super::dispatch::{light2, light2_symmetric, Map2};

/// An operation of arithmetic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arith {
    /// a + b
    Add,
    /// a − b
    Sub,
    /// a · b
    Mul,
    /// a / b
    Div,
}

/// Floats with arithmetic over slices.
pub trait Float: Copy {
    /// `out[i] = a[i] op b[i]`, over the shortest.
    fn arith(op: Arith, a: Arg<Self>, b: Arg<Self>, out: &mut [Self]);
}

#[cfg(not(accelerate))]
macro_rules! kernels {
    ($($K:ident $sign:tt),*) => {$(
        #[derive(Clone, Copy)]
        struct $K;
        kernels!(@ $K $sign f32);
        kernels!(@ $K $sign f64);
    )*};
    (@ $K:ident $sign:tt $t:ident) => {
        impl Map2<$t, $t, $t> for $K {
            #[inline(always)]
            fn map<const F: bool>(self, a: $t, b: $t) -> $t {
                a $sign b
            }
        }
    };
}
#[cfg(not(accelerate))]
kernels!(Add +, Sub -, Mul *, Div /);

macro_rules! float {
    ($t:ident, $apple:ident) => {
        impl Float for $t {
            fn arith(op: Arith, a: Arg<$t>, b: Arg<$t>, out: &mut [$t]) {
                #[cfg(accelerate)]
                return super::apple::$apple(op, a, b, out);
                #[cfg(not(accelerate))]
                loops(op, a, b, out)
            }
        }
    };
}
float!(f32, arith32);
float!(f64, arith64);

#[cfg(not(accelerate))]
fn loops<T: Copy>(op: Arith, a: Arg<T>, b: Arg<T>, out: &mut [T])
where
    Add: Map2<T, T, T>,
    Sub: Map2<T, T, T>,
    Mul: Map2<T, T, T>,
    Div: Map2<T, T, T>,
{
    match op {
        Arith::Add => light2_symmetric(Add, a, b, out),
        Arith::Sub => light2(Sub, a, b, out),
        Arith::Mul => light2_symmetric(Mul, a, b, out),
        Arith::Div => light2(Div, a, b, out),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::many;

    fn check<T: Float + PartialEq + std::fmt::Debug>(
        values: &[T],
        same: impl Fn(T, T) -> bool,
        plain: impl Fn(Arith, T, T) -> T,
    ) {
        let at = |i: usize| values[(i * i + i / 7) % values.len()];
        for op in [Arith::Add, Arith::Sub, Arith::Mul, Arith::Div] {
            for n in [0usize, 1, 3, 7, 8, 33, many(1000, 40)] {
                let (a, b): (Vec<T>, Vec<T>) = (0..n).map(|i| (at(i), at(i * 3 + 5))).unzip();
                for &v in values {
                    let pairs = [
                        (Arg::Slice(&a[..]), Arg::Slice(&b[..])),
                        (Arg::Slice(&a[..]), Arg::Value(v)),
                        (Arg::Value(v), Arg::Slice(&b[..])),
                        (Arg::Value(v), Arg::Value(at(n))),
                    ];
                    for (a, b) in pairs {
                        let mut out = vec![values[0]; n];
                        T::arith(op, a, b, &mut out);
                        for (i, &got) in out.iter().enumerate() {
                            let (x, y) = (a.at(i), b.at(i));
                            let want = plain(op, x, y);
                            assert!(same(got, want), "{op:?}({x:?}, {y:?}) = {got:?} instead of {want:?}");
                        }
                    }
                }
                // The shortest counts.
                let mut out = vec![values[1]; n + 2];
                T::arith(op, Arg::Slice(&a), Arg::Slice(&b), &mut out);
                assert!(out[n..].iter().all(|&x| same(x, values[1])));
            }
        }
    }

    macro_rules! test {
        ($name:ident $t:ident) => {
            #[test]
            fn $name() {
                let (inf, nan, small, least) = ($t::INFINITY, $t::NAN, $t::MIN_POSITIVE, $t::from_bits(1));
                let values = [1.0, 0.1, -3.7, 0.0, -0.0, inf, -inf, nan, small, -small, least, $t::MAX, 1e-30, 1e30];
                let same = |a: $t, b: $t| a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan();
                check(&values, same, |op, a, b| match op {
                    Arith::Add => a + b,
                    Arith::Sub => a - b,
                    Arith::Mul => a * b,
                    Arith::Div => a / b,
                });
            }
        };
    }
    test!(arithmetic_of_f32_is_ieee_754s f32);
    test!(arithmetic_of_f64_is_ieee_754s f64);
}
