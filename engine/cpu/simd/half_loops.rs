//! Loops over 16-bit floats in one pass: elements are widened, computed with and narrowed in registers.
//!
//! Depends on the conversions and the loops beside it. For kernels of a few instructions, for which passes over blocks of float32
//! would take longer than the work. Invariant: an element has the bits that widening, the kernel and narrowing give it.

use super::dispatch::{light1, light2, Arg, Map1, Map2};
use super::half::Wide;
use half::{bf16, f16};

/// Elements of a block that rows are written to.
const BLOCK: usize = 512;

/// A kernel of float32 as one of a 16-bit float.
#[derive(Clone, Copy)]
struct Rounded<K>(K);
impl<H: Wide<W = f32>, K: Map1<f32, f32>> Map1<H, H> for Rounded<K> {
    #[inline(always)]
    fn map<const F: bool>(self, x: H) -> H {
        H::narrow(self.0.map::<F>(x.widen()))
    }
}
impl<H: Wide<W = f32>, K: Map2<f32, f32, f32>> Map2<H, H, H> for Rounded<K> {
    #[inline(always)]
    fn map<const F: bool>(self, a: H, b: H) -> H {
        H::narrow(self.0.map::<F>(a.widen(), b.widen()))
    }
}

/// 16-bit floats.
pub trait Half: Wide<W = f32> + Default {
    /// `out[i] = k(x[i])`, over the shorter of the two.
    fn half1<K: Map1<f32, f32>>(k: K, x: &[Self], out: &mut [Self]);
    /// `out[i] = k(a[i], b[i])`, of slices as long as `out` and of values.
    fn pairs<K: Map2<f32, f32, f32>>(k: K, a: Arg<Self>, b: Arg<Self>, out: &mut [Self]);

    /// `out[i] = k(a[i], b[i])`, of operands as long as `out`.
    fn half2<K: Map2<f32, f32, f32>>(k: K, a: Arg<Self>, b: Arg<Self>, out: &mut [Self]) {
        if !matches!((a, b), (Arg::Rows(_), _) | (_, Arg::Rows(_))) {
            return Self::pairs(k, a, b, out);
        }
        let mut blocks = [[Self::default(); BLOCK]; 2];
        let [x, y] = &mut blocks;
        for (i, out) in out.chunks_mut(BLOCK).enumerate() {
            let n = out.len();
            Self::pairs(k, piece(a, i * BLOCK, &mut x[..n]), piece(b, i * BLOCK, &mut y[..n]), out);
        }
    }
}

/// Elements of an operand from the one of number `start` on, as many as fit into `to`: a value, or a slice, in `to` if need be.
fn piece<'a, T: Copy>(x: Arg<'a, T>, start: usize, to: &'a mut [T]) -> Arg<'a, T> {
    let n = to.len();
    match x {
        Arg::Value(x) => Arg::Value(x),
        Arg::Slice(x) => Arg::Slice(&x[start..start + n]),
        Arg::Rows(x) => {
            let (mut at, mut i, mut column) = (0, start / x.n, start % x.n);
            while at < n {
                let to = &mut to[at..at + (x.n - column).min(n - at)];
                match x.one {
                    true => to.fill(x.data[i * x.pitch]),
                    false => to.copy_from_slice(&x.data[i * x.pitch + column..][..to.len()]),
                }
                (at, i, column) = (at + to.len(), i + 1, 0);
            }
            Arg::Slice(to)
        }
    }
}

impl Half for bf16 {
    fn half1<K: Map1<f32, f32>>(k: K, x: &[bf16], out: &mut [bf16]) {
        light1(Rounded(k), x, out);
    }
    fn pairs<K: Map2<f32, f32, f32>>(k: K, a: Arg<bf16>, b: Arg<bf16>, out: &mut [bf16]) {
        light2(Rounded(k), a, b, out);
    }
}

impl Half for f16 {
    fn half1<K: Map1<f32, f32>>(k: K, x: &[f16], out: &mut [f16]) {
        #[cfg(target_arch = "x86_64")]
        if by_instruction::is_there() {
            // SAFETY: the processor has the instructions.
            return unsafe { by_instruction::all1(k, x, out) };
        }
        light1(Rounded(k), x, out);
    }
    fn pairs<K: Map2<f32, f32, f32>>(k: K, a: Arg<f16>, b: Arg<f16>, out: &mut [f16]) {
        #[cfg(target_arch = "x86_64")]
        if by_instruction::is_there() {
            // SAFETY: the processor has the instructions.
            return unsafe { by_instruction::all2(k, a, b, out) };
        }
        light2(Rounded(k), a, b, out);
    }
}

/// Loops with F16C's conversions, which the compiler does not choose by itself.
#[cfg(target_arch = "x86_64")]
mod by_instruction {
    use super::{f16, Arg, Map1, Map2, Wide};
    use std::arch::x86_64::{
        __m128i, _mm256_cvtph_ps, _mm256_cvtps_ph, _mm256_loadu_ps, _mm256_storeu_ps, _mm_loadu_si128, _mm_storeu_si128,
    };

    const LANES: usize = 8;
    type Lanes<T> = [T; LANES];

    pub(super) fn is_there() -> bool {
        is_x86_feature_detected!("f16c") && is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma")
    }

    #[inline]
    #[target_feature(enable = "f16c,avx2,fma")]
    fn widen(x: &Lanes<f16>) -> Lanes<f32> {
        let mut wide = [0f32; LANES];
        // SAFETY: both have as many elements as are read and written, 16 bytes and 32; no alignment is asked for.
        unsafe { _mm256_storeu_ps(wide.as_mut_ptr(), _mm256_cvtph_ps(_mm_loadu_si128(x.as_ptr().cast::<__m128i>()))) };
        wide
    }

    #[inline]
    #[target_feature(enable = "f16c,avx2,fma")]
    fn narrow(wide: &Lanes<f32>, out: &mut Lanes<f16>) {
        // SAFETY: both have as many elements as are read and written, 32 bytes and 16; no alignment is asked for.
        unsafe {
            let halves = _mm256_cvtps_ph::<0>(_mm256_loadu_ps(wide.as_ptr()));
            _mm_storeu_si128(out.as_mut_ptr().cast::<__m128i>(), halves);
        }
    }

    /// The last elements, fewer than lanes, as a whole vector.
    fn padded(x: &[f16]) -> Lanes<f16> {
        let mut all = [f16::ZERO; LANES];
        all[..x.len()].copy_from_slice(x);
        all
    }

    #[target_feature(enable = "f16c,avx2,fma")]
    pub(super) fn all1<K: Map1<f32, f32>>(k: K, x: &[f16], out: &mut [f16]) {
        let n = x.len().min(out.len());
        let ((xs, x_rest), (outs, out_rest)) = (x[..n].as_chunks::<LANES>(), out[..n].as_chunks_mut::<LANES>());
        for (out, x) in outs.iter_mut().zip(xs) {
            let mut wide = widen(x);
            for v in &mut wide {
                *v = k.map::<true>(*v);
            }
            narrow(&wide, out);
        }
        if !out_rest.is_empty() {
            let (mut wide, mut last) = (widen(&padded(x_rest)), [f16::ZERO; LANES]);
            for v in &mut wide {
                *v = k.map::<true>(*v);
            }
            narrow(&wide, &mut last);
            out_rest.copy_from_slice(&last[..out_rest.len()]);
        }
    }

    /// Lanes of an operand of two, one after the other.
    macro_rules! each_lane {
        ($k:ident, $a:ident, $b:ident, $out:expr) => {{
            let mut wide = [0f32; LANES];
            for i in 0..LANES {
                wide[i] = $k.map::<true>($a[i], $b[i]);
            }
            narrow(&wide, $out);
        }};
    }

    #[target_feature(enable = "f16c,avx2,fma")]
    pub(super) fn all2<K: Map2<f32, f32, f32>>(k: K, a: Arg<f16>, b: Arg<f16>, out: &mut [f16]) {
        let n = out.len();
        let (outs, out_rest) = out.as_chunks_mut::<LANES>();
        let mut last = [f16::ZERO; LANES];
        match (a, b) {
            (Arg::Slice(a), Arg::Slice(b)) => {
                let ((xs, x_rest), (ys, y_rest)) = (a[..n].as_chunks::<LANES>(), b[..n].as_chunks::<LANES>());
                for ((out, x), y) in outs.iter_mut().zip(xs).zip(ys) {
                    let (x, y) = (widen(x), widen(y));
                    each_lane!(k, x, y, out);
                }
                let (x, y) = (widen(&padded(x_rest)), widen(&padded(y_rest)));
                each_lane!(k, x, y, &mut last);
            }
            (a, Arg::Slice(b)) => {
                let (x, (ys, y_rest)) = ([a.at(0).widen(); LANES], b[..n].as_chunks::<LANES>());
                for (out, y) in outs.iter_mut().zip(ys) {
                    let y = widen(y);
                    each_lane!(k, x, y, out);
                }
                let y = widen(&padded(y_rest));
                each_lane!(k, x, y, &mut last);
            }
            (Arg::Slice(a), b) => {
                let ((xs, x_rest), y) = (a[..n].as_chunks::<LANES>(), [b.at(0).widen(); LANES]);
                for (out, x) in outs.iter_mut().zip(xs) {
                    let x = widen(x);
                    each_lane!(k, x, y, out);
                }
                let x = widen(&padded(x_rest));
                each_lane!(k, x, y, &mut last);
            }
            (a, b) => {
                let (x, y) = ([a.at(0).widen(); LANES], [b.at(0).widen(); LANES]);
                each_lane!(k, x, y, &mut last);
                outs.fill(last);
            }
        }
        out_rest.copy_from_slice(&last[..out_rest.len()]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd::Rows;
    use crate::tests::many;

    /// A kernel of both kinds with rounding that shows.
    #[derive(Clone, Copy)]
    struct Scaled;
    impl Map1<f32, f32> for Scaled {
        fn map<const F: bool>(self, x: f32) -> f32 {
            x * 1.37 - 0.25
        }
    }
    impl Map2<f32, f32, f32> for Scaled {
        fn map<const F: bool>(self, a: f32, b: f32) -> f32 {
            a * 1.37 - b
        }
    }

    fn check<H: Half + std::fmt::Debug>(of: impl Fn(u16) -> H, bits: impl Fn(H) -> u16) {
        let is_nan = |h: H| h.widen().is_nan();
        let same = |x: H, y: H| bits(x) == bits(y) || is_nan(x) && is_nan(y);
        for n in [0usize, 1, 7, 8, 9, 31, many(2000, 40)] {
            let a: Vec<H> = (0..n).map(|i| of((i * 40_503) as u16)).collect();
            let b: Vec<H> = (0..n).map(|i| of((i * 30_011 + 9) as u16)).collect();
            let mut out = vec![H::default(); n];
            H::half1(Scaled, &a, &mut out);
            for (&x, &y) in a.iter().zip(&out) {
                assert!(same(y, H::narrow(Map1::map::<false>(Scaled, x.widen()))), "{x:?} {y:?}");
            }
            let half = n.div_ceil(2).max(1);
            let rows = Rows { data: &b, n: half, pitch: 0, one: false };
            let ones = Rows { data: &b, n: half, pitch: 1, one: true };
            let value = of(0x3e00);
            let sides = [Arg::Slice(&a[..]), Arg::Value(value), Arg::Rows(rows), Arg::Rows(ones)];
            for (x, y) in sides.iter().flat_map(|&x| sides.iter().map(move |&y| (x, y))) {
                H::half2(Scaled, x, y, &mut out);
                for (i, &o) in out.iter().enumerate() {
                    let expected = H::narrow(Map2::map::<false>(Scaled, x.at(i).widen(), y.at(i).widen()));
                    assert!(same(o, expected), "{n} {i} {o:?} {expected:?}");
                }
            }
        }
    }

    #[test]
    fn loops_over_halves_give_what_single_elements_do() {
        check::<f16>(f16::from_bits, f16::to_bits);
        check::<bf16>(bf16::from_bits, bf16::to_bits);
    }
}
