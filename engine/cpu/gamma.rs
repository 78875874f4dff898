//! The logarithm of the gamma function of `f32`, vectorised.
//!
//! Depends on `simd`. Computed in double precision by Stirling's series, from 8 on, where what is below is moved to; what is
//! below ½ is reflected. Near the zeros at 1 and 2 the last digits of float32 are those of what cancels.

use super::simd::{kernel, Map1};

/// `log |Γ(x)|`
#[derive(Clone, Copy)]
pub struct LogGamma;

/// log(π)
const LOG_PI: f64 = 1.144_729_885_849_400_2;
/// log(2π) / 2
const HALF_LOG_TWO_PI: f64 = 0.918_938_533_204_672_7;
/// Stirling's series in 1 / y², times 1 / y, the last term first.
const SERIES: [f64; 8] = [
    -3617.0 / 122_400.0,
    1.0 / 156.0,
    -691.0 / 360_360.0,
    1.0 / 1188.0,
    -1.0 / 1680.0,
    1.0 / 1260.0,
    -1.0 / 360.0,
    1.0 / 12.0,
];
/// Where the series begins to be exact enough.
const FAR: f64 = 8.0;

/// |sin(πx)|
#[inline(always)]
fn wave(x: f64) -> f64 {
    let t = (x - x.round_ties_even()) * std::f64::consts::PI;
    let s = t * t;
    // 1 / (k (k + 1)) from term to term, up to t¹⁹.
    let mut sum = 1.0;
    for k in [18.0, 16.0, 14.0, 12.0, 10.0, 8.0, 6.0, 4.0, 2.0] {
        sum = 1.0 - sum * s / (k * (k + 1.0));
    }
    (t * sum).abs()
}

impl Map1<f32, f32> for LogGamma {
    #[inline(always)]
    fn map<const F: bool>(self, x: f32) -> f32 {
        let wide = f64::from(x);
        let mirrored = wide < 0.5;
        let z = if mirrored { 1.0 - wide } else { wide };
        let product = z * (z + 1.0) * ((z + 2.0) * (z + 3.0)) * ((z + 4.0) * (z + 5.0) * ((z + 6.0) * (z + 7.0)));
        let (y, product) = if z < FAR { (z + FAR, product) } else { (z, 1.0) };
        let one = 1.0 / y;
        let square = one * one;
        let mut tail = 0.0;
        for c in SERIES {
            tail = tail * square + c;
        }
        let series = (y - 0.5) * kernel::Log.map::<F>(y) - y + (HALF_LOG_TWO_PI + tail * one);
        let rest = if mirrored { wave(wide) / product } else { product };
        let rest = kernel::Log.map::<F>(rest);
        let result = if mirrored { LOG_PI - series - rest } else { series - rest };
        let result = if wide.is_infinite() { f32::INFINITY } else { result as f32 };
        // What cancels leaves a rest.
        if (x == 1.0) | (x == 2.0) {
            0.0
        } else {
            result
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_values_of_the_scalar_function() {
        let mut x = 1e-30f32;
        while x < 1e30 {
            for x in [x, -x] {
                let (got, expected) = (LogGamma.map::<false>(x), libm::lgamma(x.into()));
                let spacing = f64::from(f32::EPSILON) * expected.abs().max(1e-7);
                let fine =
                    (f64::from(got) - expected).abs() <= 2.0 * spacing || f64::from(got) == f64::from(expected as f32);
                assert!(fine, "{x}: {got} for {expected}");
            }
            x *= 1.013;
        }
        for (x, y) in [(0.0, f32::INFINITY), (-0.0, f32::INFINITY), (-3.0, f32::INFINITY), (1.0, 0.0), (2.0, 0.0)] {
            assert!((LogGamma.map::<false>(x) - y).abs() < 1e-14 || LogGamma.map::<false>(x) == y, "{x}");
        }
        assert_eq!(LogGamma.map::<false>(f32::INFINITY), f32::INFINITY);
        assert_eq!(LogGamma.map::<false>(f32::NEG_INFINITY), f32::INFINITY);
        assert!(LogGamma.map::<false>(f32::NAN).is_nan());
    }
}
