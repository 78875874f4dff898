//! 16-bit floats: what is done to their bits as they are, and arithmetic with a number of float32.
//!
//! Depends on `simd`. Optional, for speed: nothing is widened in memory.

use super::loops::apply1;
use super::{arith, binary, cast, Abs, Add, Div, Mul, Neg, Sub};
use crate::simd::{threads::GRAIN, Arith, Half, Map1, Map2};
use crate::{CpuArray, DType, Element, Result};
use half::{bf16, f16};
use lucid_ir::backend::Array;
use lucid_ir::ops::binary::BinaryOp;
use lucid_ir::Meta;

macro_rules! signs {
    ($($t:ident)*) => {$(
        impl Map1<$t, $t> for Neg {
            #[inline(always)]
            fn map<const F: bool>(self, x: $t) -> $t {
                $t::from_bits(x.to_bits() ^ 0x8000)
            }
        }
        impl Map1<$t, $t> for Abs {
            #[inline(always)]
            fn map<const F: bool>(self, x: $t) -> $t {
                $t::from_bits(x.to_bits() & 0x7fff)
            }
        }
    )*};
}
signs!(f16 bf16);

/// A kernel of two numbers, one of which is given: the second one, or with `FIRST` the first.
#[derive(Clone, Copy)]
struct Given<K, const FIRST: bool>(K, f32);
impl<K: Map2<f32, f32, f32>, const FIRST: bool> Map1<f32, f32> for Given<K, FIRST> {
    #[inline(always)]
    fn map<const F: bool>(self, x: f32) -> f32 {
        let Given(k, v) = self;
        if FIRST {
            k.map::<F>(v, x)
        } else {
            k.map::<F>(x, v)
        }
    }
}

/// Arithmetic of an array and a number, which is the first operand where `first`.
fn with_number<H: Half + Element>(op: Arith, x: &CpuArray, v: f32, first: bool) -> Result<CpuArray> {
    apply1::<H, H>(x, GRAIN, &|x, out| match (op, first) {
        (Arith::Add, _) => H::half1(Given::<_, false>(Add, v), x, out),
        (Arith::Mul, _) => H::half1(Given::<_, false>(Mul, v), x, out),
        (Arith::Sub, false) => H::half1(Given::<_, false>(Sub, v), x, out),
        (Arith::Sub, true) => H::half1(Given::<_, true>(Sub, v), x, out),
        (Arith::Div, false) => H::half1(Given::<_, false>(Div, v), x, out),
        (Arith::Div, true) => H::half1(Given::<_, true>(Div, v), x, out),
    })
}

/// The number that an array of float32 with one element is.
fn number(x: &CpuArray) -> Option<f32> {
    let is_one = x.dtype() == DType::F32 && x.shape().iter().product::<usize>() == 1;
    is_one.then(|| x.read::<f32>()[x.layout().offset])
}

/// A kernel of the `binary` family in float32, whose result is rounded to a 16-bit float.
pub fn binary_rounded(op: &BinaryOp, a: &CpuArray, b: &CpuArray, out: &Meta) -> Result<CpuArray> {
    let fits = |x: &CpuArray| x.dtype() == out.dtype && x.shape() == &out.shape[..];
    let sides = [(a, b, false), (b, a, true)].map(|(x, v, first)| Some((x, number(v)?, first)).filter(|_| fits(x)));
    if let (Some(op), Some((x, v, first))) = (arith(op), sides.into_iter().flatten().next()) {
        match out.dtype {
            DType::F16 => return with_number::<f16>(op, x, v, first),
            DType::BF16 => return with_number::<bf16>(op, x, v, first),
            _ => {}
        }
    }
    let (a, b) = (cast(a, DType::F32)?, cast(b, DType::F32)?);
    let wide = Meta { shape: out.shape.clone(), dtype: DType::F32 };
    cast(&binary(op, &a, &b, &wide, false)?, out.dtype)
}
