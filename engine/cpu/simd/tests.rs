//! The elementary functions against the standard library's and libm's, in units in the last place.

use super::dispatch::map2;
use super::math::ALL;
use super::{call2, light2_over, light2_symmetric, Arg, Arith, Float, Math, Real, Rows};
use crate::tests::many;

fn reference(op: Math, x: f64) -> f64 {
    use std::f64::consts::*;
    match op {
        Math::Exp => x.exp(),
        Math::Exp2 => x.exp2(),
        Math::Expm1 => x.exp_m1(),
        Math::Log => x.ln(),
        Math::Log2 => x.log2(),
        Math::Log10 => x.log10(),
        Math::Log1p => x.ln_1p(),
        Math::Sqrt => x.sqrt(),
        Math::Rsqrt => 1.0 / x.sqrt(),
        Math::Sin => x.sin(),
        Math::Cos => x.cos(),
        Math::Tan => x.tan(),
        Math::Asin => x.asin(),
        Math::Acos => x.acos(),
        Math::Atan => x.atan(),
        Math::Sinh => x.sinh(),
        Math::Cosh => x.cosh(),
        Math::Tanh => x.tanh(),
        Math::Asinh => libm::asinh(x),
        Math::Acosh if x < 1.0 => f64::NAN,
        Math::Acosh => libm::acosh(x),
        Math::Atanh => libm::atanh(x),
        Math::Erf => libm::erf(x),
        Math::Erfc => libm::erfc(x),
        Math::Erfinv => erfinv(x),
        Math::Sigmoid => 1.0 / (1.0 + (-x).exp()),
        Math::Silu => x / (1.0 + (-x).exp()),
        Math::Gelu => 0.5 * x * (1.0 + libm::erf(x * FRAC_1_SQRT_2)),
        Math::GeluTanh => 0.5 * x * (1.0 + (FRAC_2_SQRT_PI * FRAC_1_SQRT_2 * (x + 0.044715 * x * x * x)).tanh()),
    }
}

/// What libm's error function takes to `x`, by halving an interval; near 1 by its complement, which is exact there.
fn erfinv(x: f64) -> f64 {
    let a = x.abs();
    let y = match a {
        _ if a.is_nan() || a > 1.0 => f64::NAN,
        1.0 => f64::INFINITY,
        0.0 => 0.0,
        // Of the series the first term alone counts.
        _ if a < 1e-9 => a / std::f64::consts::FRAC_2_SQRT_PI,
        _ => {
            let (mut low, mut high) = if a < 0.5 { (0.88 * a, a) } else { (0.4, 6.0) };
            for _ in 0..70 {
                let middle = 0.5 * (low + high);
                let below = if a < 0.5 { libm::erf(middle) < a } else { libm::erfc(middle) > 1.0 - a };
                *(if below { &mut low } else { &mut high }) = middle;
            }
            0.5 * (low + high)
        }
    };
    y.copysign(x)
}

/// (f32, f64) bounds in ulp. Products with a difference that cancels (gelu) are held to an absolute bound instead.
fn bound(op: Math) -> (f64, f64) {
    match op {
        Math::Sqrt => (0.5, 0.5),
        Math::Erfinv => (5.0, 8.0),
        Math::Gelu | Math::GeluTanh => (f64::INFINITY, f64::INFINITY),
        _ => (3.0, 4.0),
    }
}

/// Numbers of every exponent and sign, denser where the functions vary.
fn samples() -> Vec<f64> {
    let mut x: Vec<f64> = Vec::new();
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut unit = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 11) as f64 / (1u64 << 53) as f64
    };
    for scale in [1.0, 2.0, 4.0, 10.0, 30.0, 120.0, 1000.0, 99_000.0] {
        x.extend((0..many(40_000, 40)).map(|_| (unit() * 2.0 - 1.0) * scale));
    }
    x.extend((0..many(40_000, 40)).map(|_| (1.0 + (unit() - 0.5) * 1e-3) * if unit() < 0.5 { -1.0 } else { 1.0 }));
    x.extend((0..many(100_000, 100)).map(|_| (unit() * 2.0 - 1.0) * 2f64.powf(unit() * 270.0 - 148.0)));
    x.extend((0..many(200, 20)).map(|i| i as f64 * std::f64::consts::FRAC_PI_2));
    x
}

fn ulp32(x: f64) -> f64 {
    let e = x.abs().max(f64::from(f32::MIN_POSITIVE)).log2().floor();
    2f64.powf(e - 23.0)
}

fn ulp64(x: f64) -> f64 {
    let a = x.abs().max(f64::MIN_POSITIVE);
    f64::from_bits(a.to_bits() + 1) - a
}

#[test]
#[cfg_attr(miri, ignore = "libm takes square roots in assembly")]
fn f32_within_ulps() {
    let x: Vec<f32> = samples().into_iter().map(|x| x as f32).filter(|x| x.is_finite()).collect();
    let mut y = vec![0f32; x.len()];
    let mut report = String::new();
    let mut failed = false;
    for &op in ALL {
        f32::math(op, &x, &mut y);
        let (mut worst, mut at) = (0.0, 0.0);
        for (&x, &y) in x.iter().zip(&y) {
            let want = reference(op, x.into());
            let err = match () {
                _ if same(y.into(), (want as f32).into()) => 0.0,
                // As PyTorch's: e^-x overflows before the result underflows.
                _ if matches!(op, Math::Sigmoid | Math::Silu) && x < -87.0 => (f64::from(y) - want).abs() / 1e-36,
                _ if y.is_infinite() && want.abs() > 3.402e38 => 0.0,
                _ if want.is_nan() || y.is_nan() || y.is_infinite() || (want as f32).is_infinite() => 1e30,
                _ => (f64::from(y) - want).abs() / ulp32(want),
            };
            if err > worst {
                (worst, at) = (err, x);
            }
        }
        report += &format!("{op:?} {worst:.2} at {at:e}\n");
        failed |= worst > bound(op).0;
    }
    println!("{report}");
    assert!(!failed, "{report}");
}

#[test]
#[cfg_attr(miri, ignore = "libm takes square roots in assembly")]
fn f64_within_ulps() {
    let x = samples();
    let mut y = vec![0f64; x.len()];
    let mut report = String::new();
    let mut failed = false;
    for &op in ALL {
        f64::math(op, &x, &mut y);
        let (mut worst, mut at) = (0.0, 0.0);
        for (&x, &y) in x.iter().zip(&y) {
            let want = reference(op, x);
            let err = match () {
                _ if same(y, want) => 0.0,
                _ if !want.is_finite() || !y.is_finite() => 1e30,
                _ => (y - want).abs() / ulp64(want),
            };
            if err > worst {
                (worst, at) = (err, x);
            }
        }
        report += &format!("{op:?} {worst:.2} at {at:e}\n");
        failed |= worst > bound(op).1;
    }
    println!("{report}");
    assert!(!failed, "{report}");
}

/// Equal, or both NaN; the sign of zero counts.
fn same(a: f64, b: f64) -> bool {
    a.is_nan() && b.is_nan() || a == b && a.is_sign_negative() == b.is_sign_negative()
}

/// A short form may be used for some elements and the long one for others: nobody may see which.
#[test]
fn short_forms_give_the_same_bits() {
    let mut x: Vec<f32> = samples().into_iter().map(|x| x as f32).collect();
    x.extend([f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 0.0, -0.0, 1e-40, 87.0, -87.0, 86.999_99, f32::MIN_POSITIVE]);
    for op in [Math::Exp, Math::Log] {
        let (mut whole, mut odd) = (vec![0f32; x.len()], vec![0f32; 2]);
        f32::math(op, &x, &mut whole);
        for (&x, &y) in x.iter().zip(&whole) {
            for beside in [1.0, f32::NAN] {
                f32::math(op, &[x, beside], &mut odd);
                assert!(same(odd[0].into(), y.into()), "{op:?}({x}) = {y} and, beside {beside}, {}", odd[0]);
            }
        }
    }
}

#[test]
fn erf_and_gelu_stay_between_their_limits() {
    let x: Vec<f32> = (0..2_000_000).step_by(many(1, 10_007)).map(|i| f32::from_bits(0x4060_0000 + 2 * i)).collect();
    let mut y = vec![0f32; x.len()];
    f32::math(Math::Erf, &x, &mut y);
    assert!(y.iter().all(|&y| (0.999_999..=1.0).contains(&y)));
    f32::math(Math::Gelu, &x, &mut y);
    assert!(x.iter().zip(&y).all(|(&x, &y)| y <= x));
    f32::math(Math::Gelu, &x.iter().map(|x| -x).collect::<Vec<_>>(), &mut y);
    assert!(y.iter().all(|&y| (-1e-3..=0.0).contains(&y)));
}

#[test]
#[cfg_attr(miri, ignore = "libm takes square roots in assembly")]
fn special_values_are_libms() {
    let x = [0.0, -0.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1.0, -1.0, 1e30, -1e30];
    for &op in ALL {
        for x in x {
            let want = reference(op, x);
            let mut y = [0f64; 9];
            f64::math(op, &[x; 9], &mut y);
            let close = |y: f64| same(y, want) || (y - want).abs() <= 1e-14 * want.abs();
            assert!(y.iter().all(|&y| close(y)), "{op:?}({x}) = {} instead of {want} in f64", y[0]);
            let mut y = [0f32; 9];
            f32::math(op, &[x as f32; 9], &mut y);
            let want = reference(op, f64::from(x as f32)) as f32;
            let close = |y: f32| same(y.into(), want.into()) || (y - want).abs() <= 4e-7 * want.abs();
            assert!(y.iter().all(|&y| close(y)), "{op:?}({x}) = {} instead of {want} in f32", y[0]);
        }
    }
}

#[test]
fn gelu_is_close() {
    let x: Vec<f32> = (-800..800).map(|i| i as f32 / 100.0).collect();
    let mut y = vec![0.0; x.len()];
    for op in [Math::Gelu, Math::GeluTanh] {
        f32::math(op, &x, &mut y);
        for (&x, &y) in x.iter().zip(&y) {
            assert!(
                (f64::from(y) - reference(op, x.into())).abs() < 3e-7 * f64::from(x.abs()).max(1.0),
                "{op:?}({x}) = {y}"
            );
        }
    }
}

#[test]
fn pow_and_atan2_are_libms() {
    let inf = f32::INFINITY;
    let v = [
        0.0,
        -0.0,
        1.0,
        -1.0,
        2.0,
        -2.0,
        0.5,
        -0.5,
        3.0,
        -3.0,
        1e30,
        -1e30,
        1e-30,
        inf,
        -inf,
        f32::NAN,
        7.0,
        1.5,
        1e-40,
    ];
    for a in v {
        for b in v {
            let mut y = [0f32; 3];
            f32::pow_slices(Arg::Slice(&[a; 3]), Arg::Slice(&[b; 3]), &mut y);
            let want = a.powf(b);
            let close = same(y[0].into(), want.into()) || (y[0] - want).abs() <= 3e-7 * want.abs();
            assert!(close, "{a}^{b} = {} instead of {want}", y[0]);
            f32::atan2_slices(Arg::Value(a), Arg::Slice(&[b; 3]), &mut y);
            let want = a.atan2(b);
            let close = same(y[0].into(), want.into()) || (y[0] - want).abs() <= 3e-7 * want.abs();
            assert!(close, "atan2({a}, {b}) = {} instead of {want}", y[0]);
        }
    }
    let x: Vec<f32> = (1..many(4000, 40)).map(|i| i as f32 * 0.01).collect();
    let e: Vec<f32> = (1..many(4000, 40)).map(|i| ((i * 37) % 4001) as f32 * 0.01 - 20.0).collect();
    let mut y = vec![0.0; x.len()];
    f32::pow_slices(Arg::Slice(&x), Arg::Slice(&e), &mut y);
    for i in 0..x.len() {
        let want = f64::from(x[i]).powf(e[i].into());
        let fits = (f64::from(y[i]) - want).abs() <= 1.01 * ulp32(want) || want > 3.402e38 && y[i] == inf;
        assert!(fits, "{}^{} = {}, not {want}", x[i], e[i], y[i]);
    }
}

#[test]
fn pow_of_all_magnitudes() {
    // Near 1 with large exponents, subnormal bases and results, and integer exponents of either parity.
    let mut cases: Vec<(f32, f32)> = Vec::new();
    for i in (0..4000).step_by(many(1, 67)) {
        let t = i as f32 / 4000.0;
        cases.push((1.0 + (t - 0.5) * 1e-3, 8e4 * (t * 7.3).fract()));
        cases.push((f32::from_bits(1 + i * 2000), (t - 0.5) * 1.9));
        cases.push((2f32.powf(200.0 * t - 100.0), (t * 31.7).fract() * 2.4 - 1.2));
        cases.push((-1.5 - t, (i % 41) as f32 - 20.0));
        cases.push((-1.0 - t * 1e-6, 16_777_215.0 - (i % 2) as f32));
    }
    let (a, b): (Vec<f32>, Vec<f32>) = cases.iter().copied().unzip();
    let mut y = vec![0.0; a.len()];
    f32::pow_slices(Arg::Slice(&a), Arg::Slice(&b), &mut y);
    for ((&(a, b), &y), want) in cases.iter().zip(&y).zip(cases.iter().map(|&(a, b)| f64::from(a).powf(b.into()))) {
        let fits = (f64::from(y) - want).abs() <= 0.51 * ulp32(want) || want.abs() > 3.402_823e38 && y.is_infinite();
        assert!(fits, "{a}^{b} = {y}, not {want}");
    }
}

#[test]
fn sums_are_accurate() {
    let x = vec![0.1f32; many(10_000_019, 5019)];
    let want = f64::from(0.1f32) * x.len() as f64;
    assert!((super::sum(&x) - want).abs() < 1e-6 * want);
    assert_eq!(super::sum::<f32>(&[]), 0.0);
    assert_eq!(super::sum(&[1i8, 127, 1]), -127);
    for n in [1usize, 7, 63, 64, 65, 1023, 1024, 1500] {
        let x: Vec<f32> = (0..n).map(|i| i as f32).collect();
        assert_eq!(super::sum(&x), (n * (n - 1) / 2) as f64);
        let mut acc = vec![1.0; 3];
        super::sum_rows(&x.repeat(3), 1, n, &mut acc);
        assert_eq!(acc[0], 1.0 + (n * (n - 1) / 2) as f64);
    }
    assert_eq!(super::product(&[2.0f32; 10]), 1024.0);
}

#[test]
fn extrema_propagate_nan() {
    for n in [1usize, 5, 64, 200] {
        let mut x: Vec<f32> = (0..n).map(|i| ((i * 7) % n) as f32).collect();
        let (max, min) = (super::extremum::<_, true>(&x), super::extremum::<_, false>(&x));
        assert_eq!(max, x.iter().copied().reduce(f32::max));
        assert_eq!(min, x.iter().copied().reduce(f32::min));
        assert_eq!(super::arg_extremum::<_, true>(&x), x.iter().position(|&v| Some(v) == max));
        let at = n / 2;
        x[at] = f32::NAN;
        assert!(super::extremum::<_, true>(&x).unwrap().is_nan() && super::extremum::<_, false>(&x).unwrap().is_nan());
        assert_eq!(super::arg_extremum::<_, true>(&x), Some(at));
        assert_eq!(super::arg_extremum::<_, false>(&x), Some(at));
    }
    assert_eq!(super::extremum::<f32, true>(&[]), None);
    assert_eq!(super::extremum::<_, true>(&[f32::NEG_INFINITY; 70]), Some(f32::NEG_INFINITY));
}

#[derive(Clone, Copy)]
struct Add;
impl super::Map2<f32, f32, f32> for Add {
    #[inline(always)]
    fn map<const F: bool>(self, a: f32, b: f32) -> f32 {
        a + b
    }
}

#[test]
fn values_stand_for_slices() {
    let x = [1.0, 2.0, 3.0];
    let mut y = [0.0; 3];
    map2(Add, Arg::Slice(&x), Arg::Value(1.0), &mut y);
    assert_eq!(y, [2.0, 3.0, 4.0]);
    map2(Add, Arg::Value(1.0), Arg::Value(1.5), &mut y);
    assert_eq!(y, [2.5; 3]);
}

#[test]
fn rows_meet_their_own_values_or_slices() {
    type Loop = fn(Arg<f32>, Arg<f32>, &mut [f32]);
    // Rows of 3, of which the last is cut short.
    const N: usize = 11;
    let data: Vec<f32> = (0..40).map(|i| (i * i) as f32).collect();
    let rows = |pitch, one| Arg::Rows(Rows { data: &data, n: 3, pitch, one });
    let args = [
        Arg::Slice(&data[..N]),
        Arg::Value(0.5),
        rows(0, false),
        rows(0, true),
        rows(5, false),
        rows(5, true),
        rows(1, true),
    ];
    for a in args {
        for b in args {
            let want: Vec<f32> = (0..N).map(|i| a.at(i) + b.at(i)).collect();
            let loops: [Loop; 4] = [
                |a, b, y| map2(Add, a, b, y),
                |a, b, y| light2_symmetric(Add, a, b, y),
                |a, b, y| f32::arith(Arith::Add, a, b, y),
                |a, b, y| call2(|a, b| a + b, a, b, y),
            ];
            for run in loops {
                let mut y = [-1.0; N];
                run(a, b, &mut y);
                assert_eq!(y[..], want, "{a:?} and {b:?}");
            }
        }
        let mut y: Vec<f32> = data[..N].to_vec();
        light2_over(Add, &mut y, a);
        let want: Vec<f32> = (0..N).map(|i| data[i] + a.at(i)).collect();
        assert_eq!(y, want, "over by {a:?}");
    }
}
