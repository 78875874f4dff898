//! Bessel functions of orders 0 and 1 of float32, eight elements side by side in float64.
//!
//! Depends on `chebyshev`, and on `bessel` and `special`, from which its expansions are made once and which compute what is beyond
//! them. Invariant: in float64 the error is some 1e-15 of the largest term, so that float32 has its rounding alone.

use super::bessel::{self, GAMMA, NEAR};
use super::chebyshev::Expansion;
use super::simd::{kernel, run, Map1, Task};
use super::special;
use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_PI};
use std::sync::LazyLock;

const LANES: usize = 8;
type Lanes = [f64; LANES];
/// A function of one number.
type One = fn(f64) -> f64;

/// A function of all lanes.
#[inline(always)]
fn each(x: &Lanes, f: impl Fn(f64) -> f64) -> Lanes {
    let mut out = *x;
    for v in &mut out {
        *v = f(*v);
    }
    out
}

/// Which function of an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `J`, the first kind.
    J,
    /// `Y`, the second kind.
    Y,
    /// `I`, modified of the first kind.
    I,
    /// `e^-|x| I`
    ScaledI,
    /// `K`, modified of the second kind.
    K,
    /// `e^x K`
    ScaledK,
}

/// Where `J` and `Y` go over from powers of x² to waves, and `I` to powers of 1 / x.
const EDGE: f64 = 8.0;
/// Beyond this the angles of waves need more digits than they are given here.
const FAR: f64 = 10_000.0;

/// The parts of `J` and `Y` of an order `n`.
struct Waves {
    /// `J / x^n` of x², and what is left of `Y` without its logarithm and its pole, over `x^n`.
    near: [Expansion<24>; 2],
    /// The factors of both waves of (8 / x)², the second one times x / 8 (DLMF 10.17.3).
    far: [Expansion<20>; 2],
}

static WAVES: LazyLock<[Waves; 2]> = LazyLock::new(|| {
    let functions: [[One; 2]; 2] = [[bessel::j0, bessel::y0], [bessel::j1, bessel::y1]];
    [0, 1].map(|n| {
        let [j, y] = functions[n];
        let over = move |x: f64| if n == 0 { 1.0 } else { x };
        let pole = move |x: f64| if n == 0 { 0.0 } else { FRAC_2_PI / x };
        let rest = move |x: f64| y(x) - FRAC_2_PI * x.ln() * j(x) + pole(x);
        let wave = move |t: f64, which: usize| {
            let x = EDGE / t.sqrt();
            let (cos, sin) = angle(n, x.cos(), x.sin());
            let size = (x / FRAC_2_PI).sqrt();
            size * if which == 0 { j(x) * cos + y(x) * sin } else { (y(x) * cos - j(x) * sin) * x / EDGE }
        };
        Waves {
            near: [
                Expansion::of(EDGE * EDGE, |z| j(z.sqrt()) / over(z.sqrt())),
                Expansion::of(EDGE * EDGE, |z| rest(z.sqrt()) / over(z.sqrt())),
            ],
            far: [Expansion::of(1.0, |t| wave(t, 0)), Expansion::of(1.0, |t| wave(t, 1))],
        }
    })
});

/// Cosine and sine of `x - (2 n + 1) π / 4`, from those of `x`.
#[inline(always)]
fn angle(n: usize, cos: f64, sin: f64) -> (f64, f64) {
    let (sum, difference) = ((cos + sin) * FRAC_1_SQRT_2, (sin - cos) * FRAC_1_SQRT_2);
    if n == 0 {
        (sum, difference)
    } else {
        (difference, -sum)
    }
}

/// `e^-x I_n(x) / x^n` up to 8, and `√x e^-x I_n(x)` of 1 / x beyond.
static MODIFIED: LazyLock<[(Expansion<32>, Expansion<26>); 2]> = LazyLock::new(|| {
    let functions: [One; 2] = [special::i0e, special::i1e];
    [0, 1].map(|n| {
        let f = functions[n];
        let near = Expansion::of(EDGE, |x| f(x) / if n == 0 { 1.0 } else { x });
        (near, Expansion::of(1.0 / EDGE, |inverse| f(1.0 / inverse) / inverse.sqrt()))
    })
});

/// A function of a slice.
struct Bessel<'a> {
    kind: Kind,
    n: usize,
    x: &'a [f32],
    out: &'a mut [f32],
}

impl Bessel<'_> {
    /// `J` or `Y` of positive arguments.
    #[inline(always)]
    fn waves<const F: bool>(n: usize, second: bool, x: &Lanes) -> Lanes {
        let Waves { near, far } = &WAVES[n];
        let square = each(x, |x| x * x);
        let mut close = near[0].lanes::<F, LANES>(&square);
        if second {
            let rest = near[1].lanes::<F, LANES>(&square);
            for i in 0..LANES {
                let log = FRAC_2_PI * kernel::Log.map::<F>(x[i]);
                close[i] = log * close[i] + rest[i];
            }
        }
        if n == 1 {
            for i in 0..LANES {
                close[i] = close[i] * x[i] - if second { FRAC_2_PI / x[i] } else { 0.0 };
            }
        }
        if x.iter().all(|&x| x <= EDGE) {
            return close;
        }
        let t = each(&square, |z| EDGE * EDGE / z);
        let [p, q] = [far[0].lanes::<F, LANES>(&t), far[1].lanes::<F, LANES>(&t)];
        let mut out = [0.0; LANES];
        for i in 0..LANES {
            let (cos, sin) = angle(n, kernel::Cos.map::<F>(x[i]), kernel::Sin.map::<F>(x[i]));
            let q = q[i] * EDGE / x[i];
            let wave = if second { p[i] * sin + q * cos } else { p[i] * cos - q * sin };
            let beyond = (FRAC_2_PI / x[i]).sqrt() * wave;
            out[i] = if x[i] <= EDGE { close[i] } else { beyond };
        }
        out
    }

    /// `I` of what is not negative.
    #[inline(always)]
    fn modified<const F: bool>(n: usize, scaled: bool, x: &Lanes) -> Lanes {
        let (near, far) = &MODIFIED[n];
        let close = near.few::<F, LANES>(x);
        let inverse = each(x, |x| 1.0 / x);
        let beyond = far.few::<F, LANES>(&inverse);
        let mut out = [0.0; LANES];
        for i in 0..LANES {
            let close = close[i] * if n == 0 { 1.0 } else { x[i] };
            let y = if x[i] <= EDGE { close } else { beyond[i] * inverse[i].sqrt() };
            out[i] = y * if scaled { 1.0 } else { kernel::Exp.map::<F>(x[i]) };
        }
        out
    }

    /// `K` of positive arguments.
    #[inline(always)]
    fn second_modified<const F: bool>(n: usize, scaled: bool, x: &Lanes) -> Lanes {
        let far = &bessel::FAR[n];
        let [plain, harmonic] = NEAR[n].map(|factors| {
            let mut sum = [0.0; LANES];
            for &c in factors.iter().rev() {
                for i in 0..LANES {
                    sum[i] = sum[i] * (x[i] * x[i] * 0.25) + c;
                }
            }
            sum
        });
        let inverse = each(x, |x| 1.0 / x);
        let beyond = far.few::<F, LANES>(&inverse);
        let mut out = [0.0; LANES];
        for i in 0..LANES {
            let rest = harmonic[i] - plain[i] * (kernel::Log.map::<F>(x[i] * 0.5) + GAMMA);
            let close = if n == 0 { rest } else { inverse[i] - x[i] * 0.5 * rest };
            let power = kernel::Exp.map::<F>(if scaled { x[i] } else { -x[i] });
            let (by_near, by_far) = if scaled { (power, 1.0) } else { (1.0, power) };
            out[i] = if x[i] < 2.0 { close * by_near } else { beyond[i] * inverse[i].sqrt() * by_far };
        }
        out
    }

    /// Of one element, by the functions of float64.
    fn alone(kind: Kind, n: usize, x: f64) -> f64 {
        let functions: [One; 2] = match kind {
            Kind::J => [bessel::j0, bessel::j1],
            Kind::Y => [bessel::y0, bessel::y1],
            Kind::I => [special::i0, special::i1],
            Kind::ScaledI => [special::i0e, special::i1e],
            Kind::K => [bessel::k0, bessel::k1],
            Kind::ScaledK => [bessel::k0e, bessel::k1e],
        };
        functions[n](x)
    }
}

impl Task for Bessel<'_> {
    type Out = ();
    #[inline(always)]
    fn run<const F: bool>(self) {
        let Bessel { kind, n, x, out } = self;
        let is_odd = n == 1;
        for (xs, out) in x.chunks(LANES).zip(out.chunks_mut(LANES)) {
            let mut given = [1.0; LANES];
            for (to, &x) in given.iter_mut().zip(xs) {
                *to = f64::from(x);
            }
            let size = each(&given, f64::abs);
            let made = match kind {
                Kind::J | Kind::Y => Self::waves::<F>(n, kind == Kind::Y, &size),
                Kind::I | Kind::ScaledI => Self::modified::<F>(n, kind == Kind::ScaledI, &size),
                Kind::K | Kind::ScaledK => Self::second_modified::<F>(n, kind == Kind::ScaledK, &size),
            };
            for (i, (out, &x)) in out.iter_mut().zip(xs).enumerate() {
                let x = f64::from(x);
                let fits = match kind {
                    Kind::J => size[i] <= FAR,
                    Kind::Y => x > 0.0 && x <= FAR,
                    Kind::I | Kind::ScaledI => size[i] < f64::INFINITY,
                    Kind::K | Kind::ScaledK => x > 0.0 && x < f64::INFINITY,
                };
                let y = if is_odd && x < 0.0 { -made[i] } else { made[i] };
                *out = if fits { y } else { Self::alone(kind, n, x) } as f32;
            }
        }
    }
}

/// A function of order `n`, 0 or 1, of each element.
///
/// # Panics
/// For other orders.
pub fn of(kind: Kind, n: usize, x: &[f32], out: &mut [f32]) {
    assert!(n < 2, "a Bessel function of order {n}");
    run(Bessel { kind, n, x, out });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::many;

    #[test]
    fn lanes_give_what_single_elements_do() {
        let sizes: Vec<f32> = (0..many(40_000, 400)).map(|i| (i as f32 * 0.000_7).exp_m1().min(3e4)).collect();
        let edges = [0.0, -0.0, 1e-30, 2.0, 8.0, 8.000_001, 90.0, 10_000.0, 10_001.0, 1e30, f32::INFINITY, f32::NAN];
        let x: Vec<f32> = sizes.iter().flat_map(|&x| [x, -x]).chain(edges).chain(edges.map(|x| -x)).collect();
        let mut out = vec![0.0; x.len()];
        for kind in [Kind::J, Kind::Y, Kind::I, Kind::ScaledI, Kind::K, Kind::ScaledK] {
            for n in 0..2 {
                of(kind, n, &x, &mut out);
                for (&x, &y) in x.iter().zip(&out) {
                    let exact = Bessel::alone(kind, n, x.into());
                    let want = exact as f32;
                    let near = (f64::from(y) - exact).abs() <= exact.abs() * 6.1e-8 + 1e-14;
                    let same = y.to_bits() == want.to_bits() || y.is_nan() && want.is_nan();
                    assert!(same || near, "{kind:?}{n}({x:e}) is {exact:e}, not {y:e}");
                }
            }
        }
    }
}
