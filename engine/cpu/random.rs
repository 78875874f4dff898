//! Random arrays: threefry blocks, and what is made of their bits.
//!
//! Depends on `simd` and on `crate::random`, whose documentation is the recipe that is followed here. Invariant: the bits
//! are those of MLX's `random::bits` for the same key, whatever the number of threads.

use super::cast::cast;
use super::simd::{map1, run, threads, Map1, Math, Real, Task};
use super::CpuArray;
use crate::fallible::scratch_from;
use crate::{DType, Error, Result};
use lucid_ir::ops::random::{uniform_bits, RandomOp};
use lucid_ir::random::{threefry2x32, Key};
use lucid_ir::Meta;

/// Elements worked on at once; the words stay in the first cache level.
const BLOCK: usize = 1024;
/// Elements below which one thread does it: each takes some 40 instructions.
const GRAIN: usize = threads::GRAIN / 4;

/// The kernels of the `random` family.
pub fn random(op: &RandomOp, out: &Meta) -> Result<CpuArray> {
    match *op {
        RandomOp::Uniform { key } => match float(out.dtype)? {
            DType::F64 => CpuArray::build(&out.shape, |x| each_wide(key, x, |w, x| map1(UnitWide, w, x))),
            dtype => {
                let unit = Unit { bits: uniform_bits(dtype) };
                rounded(out, |x| each_word(key, x, |w, x| map1(unit, w, x)))
            }
        },
        RandomOp::Normal { key } => match float(out.dtype)? {
            DType::F64 => CpuArray::build(&out.shape, |x| each_wide(key, x, normal::<u64, f64>)),
            _ => rounded(out, |x| each_word(key, x, normal::<u32, f32>)),
        },
        RandomOp::Integers { key, low, high } => {
            let range = (high as u64).wrapping_sub(low as u64);
            let drawn = CpuArray::build(&out.shape, |x: &mut [i64]| {
                each_wide(key, x, |w, x| match range {
                    0 => map1(Any, w, x),
                    range => map1(Within { low, range }, w, x),
                })
            })?;
            if out.dtype == DType::I64 {
                Ok(drawn)
            } else {
                cast(&drawn, out.dtype)
            }
        }
        _ => Err(Error::runtime(op.name(), "takes arrays")),
    }
}

fn float(dtype: DType) -> Result<DType> {
    match dtype.is_float() {
        true => Ok(dtype),
        false => Err(Error::dtype("random", "expected a floating dtype", &[dtype])),
    }
}

/// A float32 draw in the dtype asked for.
fn rounded(out: &Meta, fill: impl FnOnce(&mut [f32]) -> Result<()>) -> Result<CpuArray> {
    let drawn = CpuArray::build(&out.shape, fill)?;
    if out.dtype == DType::F32 {
        Ok(drawn)
    } else {
        cast(&drawn, out.dtype)
    }
}

/// Threefry blocks of neighbouring counters, into two rows of words.
struct Blocks<'a> {
    key: Key,
    counts: [u32; 2],
    first: &'a mut [u32],
    second: &'a mut [u32],
}
impl Task for Blocks<'_> {
    type Out = ();
    #[inline(always)]
    fn run<const F: bool>(self) {
        let Blocks { key: Key(key), counts: [a, b], first, second } = self;
        // By index: a zip with a counter is not vectorised.
        let n = first.len().min(second.len());
        let (first, second) = (&mut first[..n], &mut second[..n]);
        for i in 0..n {
            let [x, y] = threefry2x32(key, [a.wrapping_add(i as u32), b.wrapping_add(i as u32)]);
            first[i] = x;
            second[i] = y;
        }
    }
}

/// Hands `f` the words of `bits(out.len())` and the elements to make of them.
fn each_word<O: Send>(key: Key, out: &mut [O], f: impl Fn(&[u32], &mut [O]) + Sync) -> Result<()> {
    let (half, odd) = (out.len() / 2, out.len() % 2);
    let (low, high) = out.split_at_mut(half);
    let (middle, high) = high.split_at_mut(odd);
    if odd == 1 {
        f(&threefry2x32(key.0, [half as u32, 0])[..1], middle);
    }
    // One block gives a word to each half, so both halves go together.
    let mut pieces = scratch_from(low.chunks_mut(BLOCK).zip(high.chunks_mut(BLOCK)));
    threads::for_chunks(&mut pieces, 1, GRAIN / BLOCK / 2, |start, pieces| {
        let (mut first, mut second) = ([0; BLOCK], [0; BLOCK]);
        for (i, (low, high)) in pieces.iter_mut().enumerate() {
            let at = (start + i) * BLOCK;
            let (first, second) = (&mut first[..low.len()], &mut second[..low.len()]);
            run(Blocks { key, counts: [at as u32, (half + odd + at) as u32], first, second });
            f(first, low);
            f(second, high);
        }
    });
    Ok(())
}

/// Hands `f` the 64-bit words of `bits(2 out.len())`, the first half high, and the elements to make of them.
fn each_wide<O: Send>(key: Key, out: &mut [O], f: impl Fn(&[u64], &mut [O]) + Sync) -> Result<()> {
    let n = out.len();
    threads::for_chunks(out, BLOCK, GRAIN, |start, out| {
        let (mut first, mut second, mut wide) = ([0; BLOCK], [0; BLOCK], [0; BLOCK]);
        for (i, out) in out.chunks_mut(BLOCK).enumerate() {
            let at = start + i * BLOCK;
            let (first, second) = (&mut first[..out.len()], &mut second[..out.len()]);
            run(Blocks { key, counts: [at as u32, (n + at) as u32], first, second });
            for ((w, &high), &low) in wide.iter_mut().zip(&*first).zip(&*second) {
                *w = u64::from(high) << 32 | u64::from(low);
            }
            f(&wide[..out.len()], out);
        }
    });
    Ok(())
}

/// Uniform in [0, 1), of so many bits, at most 24.
#[derive(Clone, Copy)]
struct Unit {
    bits: u32,
}
impl Map1<u32, f32> for Unit {
    #[inline(always)]
    fn map<const F: bool>(self, w: u32) -> f32 {
        // Through i32: that conversion is one instruction everywhere.
        (w >> (32 - self.bits)) as i32 as f32 * (1.0 / (1u32 << self.bits) as f32)
    }
}
/// Uniform in [0, 1), of 53 bits.
#[derive(Clone, Copy)]
struct UnitWide;
impl Map1<u64, f64> for UnitWide {
    #[inline(always)]
    fn map<const F: bool>(self, w: u64) -> f64 {
        (w >> 11) as f64 * (0.5 / (1u64 << 52) as f64)
    }
}

/// Uniform in (-1, 1), never at its ends, and symmetric.
#[derive(Clone, Copy)]
struct Signed;
impl Map1<u32, f32> for Signed {
    #[inline(always)]
    fn map<const F: bool>(self, w: u32) -> f32 {
        (w >> 8) as i32 as f32 * (1.0 / (1 << 23) as f32) - (1.0 - f32::EPSILON / 2.0)
    }
}
impl Map1<u64, f64> for Signed {
    #[inline(always)]
    fn map<const F: bool>(self, w: u64) -> f64 {
        (w >> 11) as f64 * (1.0 / (1u64 << 52) as f64) - (1.0 - f64::EPSILON / 2.0)
    }
}

/// A word as it is.
#[derive(Clone, Copy)]
struct Any;
impl Map1<u64, i64> for Any {
    #[inline(always)]
    fn map<const F: bool>(self, w: u64) -> i64 {
        w as i64
    }
}

/// A word within a range of integers.
#[derive(Clone, Copy)]
struct Within {
    low: i64,
    range: u64,
}
impl Map1<u64, i64> for Within {
    #[inline(always)]
    fn map<const F: bool>(self, w: u64) -> i64 {
        self.low.wrapping_add((w % self.range) as i64)
    }
}

/// Times the square root of two.
#[derive(Clone, Copy)]
struct Widened;
impl Map1<f32, f32> for Widened {
    #[inline(always)]
    fn map<const F: bool>(self, x: f32) -> f32 {
        x * std::f32::consts::SQRT_2
    }
}
impl Map1<f64, f64> for Widened {
    #[inline(always)]
    fn map<const F: bool>(self, x: f64) -> f64 {
        x * std::f64::consts::SQRT_2
    }
}

fn normal<W: Copy, O: Real + Default>(words: &[W], out: &mut [O])
where
    Signed: Map1<W, O>,
    Widened: Map1<O, O>,
{
    let mut inverse = [O::default(); BLOCK];
    for (words, out) in words.chunks(BLOCK).zip(out.chunks_mut(BLOCK)) {
        let inverse = &mut inverse[..out.len()];
        map1(Signed, words, out);
        O::math(Math::Erfinv, out, inverse);
        map1(Widened, inverse, out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::show;
    use half::bf16;

    const KEY: Key = Key([0x0123_4567, 0x89ab_cdef]);

    fn draw(op: RandomOp, shape: &[usize], dtype: DType) -> CpuArray {
        random(&op, &Meta::new(shape, dtype)).unwrap()
    }

    fn bits(key: Key, n: usize) -> Vec<u32> {
        let mut out = vec![0; n];
        each_word(key, &mut out, |w, x| x.copy_from_slice(w)).unwrap();
        out
    }

    #[test]
    fn bits_are_those_of_mlx() {
        // What MLX 0.32.2 prints for random::bits({n}, 4, key).
        let of_mlx: &[&[u32]] = &[
            &[],
            &[0x4d88_4901],
            &[0x674a_d376, 0x032a_bcdb],
            &[0x3bdb_6692, 0xb275_c909, 0x6be0_5423],
            &[0x3bdb_6692, 0x1733_a6c5, 0x6be0_5423, 0x54e6_0409],
            &[0xb566_25d1, 0xca66_f4e5, 0xa706_4d77, 0xa83e_cbad, 0xbbce_5c09],
        ];
        for want in of_mlx {
            assert_eq!(bits(KEY, want.len()), *want);
        }
        let seven = [0x9e24_0cb9, 0x4f10_0eac, 0x08cd_a27e, 0x5ae0_5a17, 0x5203_310d, 0x7456_923d, 0xbfa5_ab77];
        assert_eq!(bits(KEY, 7), seven);
    }

    #[test]
    fn draws_follow_the_recipe() {
        // What the recipe gives in MLX's ops.
        let key = Key([0, 42]);
        assert_eq!(bits(key, 6), [0xbad5_6946, 0xde83_7c89, 0xdf4f_11df, 0x354b_a891, 0x2fc6_9b62, 0x8cdb_9797]);
        let integers = draw(RandomOp::Integers { key, low: -500, high: 500 }, &[3], DType::I64);
        assert_eq!(show::<i64>(&integers), [325, 62, -317]);
        let normal = show::<f32>(&draw(RandomOp::Normal { key }, &[2, 3], DType::F32));
        let of_mlx = [0.612_265_4, 1.122_588_3, 1.137_332, -0.812_732_5, -0.890_404_8, 0.126_231_6];
        assert!(normal.iter().zip(of_mlx).all(|(a, b)| (a - b).abs() < 1e-6), "{normal:?}");
        let uniform = show::<f32>(&draw(RandomOp::Uniform { key }, &[6], DType::F32));
        let want: Vec<f32> = bits(key, 6).iter().map(|&b| (b >> 8) as f32 / 16_777_216.0).collect();
        assert_eq!(uniform, want);
    }

    #[test]
    fn threads_do_not_matter() {
        let serial = {
            threads::set_num_threads(1);
            bits(KEY, 100_001)
        };
        threads::set_num_threads(3);
        assert_eq!(bits(KEY, 100_001), serial);
        let wide = show::<f64>(&draw(RandomOp::Uniform { key: KEY }, &[50_000], DType::F64));
        let pairs = bits(KEY, 100_000);
        let want = |i: usize| (u64::from(pairs[i]) << 32 | u64::from(pairs[50_000 + i])) >> 11;
        assert!(wide.iter().enumerate().all(|(i, &x)| x == want(i) as f64 / (1u64 << 53) as f64));
    }

    #[test]
    fn moments_and_bounds() {
        for dtype in [DType::F32, DType::F64, DType::BF16] {
            let wide = |op| show::<f64>(&cast(&draw(op, &[200_001], dtype), DType::F64).unwrap());
            let (u, z) = (wide(RandomOp::Uniform { key: KEY }), wide(RandomOp::Normal { key: KEY }));
            let mean = |x: &[f64], f: fn(f64) -> f64| x.iter().map(|&x| f(x)).sum::<f64>() / x.len() as f64;
            assert!(u.iter().all(|x| (0.0..1.0).contains(x)));
            let step = if dtype == DType::BF16 { 1.0 / 512.0 } else { 0.0 };
            assert!(
                (mean(&u, |x| x) + step - 0.5).abs() < 2e-3 && (mean(&u, |x| x * x) + step - 1.0 / 3.0).abs() < 3e-3
            );
            assert!(mean(&z, |x| x).abs() < 1e-2 && (mean(&z, |x| x * x) - 1.0).abs() < 2e-2);
            assert!((mean(&z, |x| x.powi(4)) - 3.0).abs() < 0.1, "{dtype}");
        }
        assert_eq!(show::<bf16>(&draw(RandomOp::Uniform { key: KEY }, &[], DType::BF16)).len(), 1);
        assert!(show::<f32>(&draw(RandomOp::Normal { key: KEY }, &[0, 3], DType::F32)).is_empty());
    }

    #[test]
    fn integers_fill_any_range() {
        let op = |low, high| RandomOp::Integers { key: KEY, low, high };
        let dice = show::<u8>(&draw(op(1, 7), &[1000], DType::U8));
        assert!((1..7).all(|n| dice.contains(&n)) && dice.iter().all(|n| (1..7).contains(n)));
        let all = show::<i64>(&draw(op(i64::MIN, i64::MAX), &[1000], DType::I64));
        assert!(all.iter().any(|&x| x < 0) && all.iter().any(|&x| x > 0));
        let all = show::<i64>(&draw(op(3, 3), &[1000], DType::I64));
        assert!(all.iter().any(|&x| x < i64::MIN / 2) && all.iter().any(|&x| x > i64::MAX / 2));
        assert!(random(&RandomOp::Uniform { key: KEY }, &Meta::new(&[1], DType::I64)).is_err());
    }
}
