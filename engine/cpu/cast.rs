//! Conversion between dtypes, as PyTorch does it.
//!
//! Depends on `strided`. Floats are truncated to integers, which wrap into narrower ones; anything but zero is true; a
//! complex number keeps its real part. Invariant: 16-bit floats go by way of float32, small integers by way of int32, wide unsigned ones by way of int64,
//! complex numbers by way of float32, so that there is a loop for each pair of the six dtypes left, not of all.

use super::simd::{light1, map1, threads, Arg, Map1, Narrow, Wide, Widen};
use super::strided::{each1, F1, F2};
use super::CpuArray;
use crate::dtype::float8::{F8E4M3FN, F8E5M2};
use crate::dtype::Element;
use crate::{DType, Result};
use half::{bf16, f16};
use lucid_ir::backend::Array;
use num_complex::{Complex32, Complex64};

/// A conversion between the types that are computed in.
trait To<O> {
    fn to(self) -> O;
}

macro_rules! from_integer {
    ($($t:ty),*) => {
        $(
            from_integer!(@ $t => u8, i8, i16, i32, i64, u16, u32, u64, f32, f64);
            impl To<bool> for $t {
                #[inline(always)]
                fn to(self) -> bool { self != 0 }
            }
            impl To<Complex32> for $t {
                #[inline(always)]
                fn to(self) -> Complex32 { Complex32::new(self as f32, 0.0) }
            }
            impl To<Complex64> for $t {
                #[inline(always)]
                fn to(self) -> Complex64 { Complex64::new(self as f64, 0.0) }
            }
        )*
    };
    (@ $t:ty => $($o:ty),*) => {
        $(impl To<$o> for $t {
            #[inline(always)]
            fn to(self) -> $o { self as $o }
        })*
    };
}
from_integer!(u8, i8, i16, i32, i64, u16, u32, u64);

macro_rules! from_float {
    ($($t:ty),*) => {
        $(
            // Through a wide integer, so that what is out of range wraps as in C.
            from_float!(@ $t => u8 as i32, i8 as i32, i16 as i32, i32 as i32, i64 as i64, f32 as f32, f64 as f64);
            impl To<u64> for $t {
                #[inline(always)]
                fn to(self) -> u64 { if self > 0.0 { self as u64 } else { self as i64 as u64 } }
            }
            impl To<bool> for $t {
                #[inline(always)]
                fn to(self) -> bool { self != 0.0 }
            }
            impl To<Complex32> for $t {
                #[inline(always)]
                fn to(self) -> Complex32 { Complex32::new(self as f32, 0.0) }
            }
            impl To<Complex64> for $t {
                #[inline(always)]
                fn to(self) -> Complex64 { Complex64::new(self as f64, 0.0) }
            }
        )*
    };
    (@ $t:ty => $($o:ty as $via:ty),*) => {
        $(impl To<$o> for $t {
            #[inline(always)]
            fn to(self) -> $o { self as $via as $o }
        })*
    };
}
from_float!(f32, f64);

macro_rules! by_way_of {
    ($t:ty as $x:ident => $via:expr => $($o:ty),*) => {
        $(impl To<$o> for $t {
            #[inline(always)]
            fn to(self) -> $o {
                let $x = self;
                $via.to()
            }
        })*
    };
}
by_way_of!(bool as x => u8::from(x) => u8, i8, i16, i32, i64, f32, f64, Complex32, Complex64);
by_way_of!(Complex32 as x => x.re => u8, i8, i16, i32, i64, f32, f64);
by_way_of!(Complex64 as x => x.re => u8, i8, i16, i32, i64, f32, f64);
impl To<bool> for bool {
    #[inline(always)]
    fn to(self) -> bool {
        self
    }
}
impl To<bool> for Complex32 {
    #[inline(always)]
    fn to(self) -> bool {
        self.re != 0.0 || self.im != 0.0
    }
}
impl To<bool> for Complex64 {
    #[inline(always)]
    fn to(self) -> bool {
        self.re != 0.0 || self.im != 0.0
    }
}
impl To<Complex64> for Complex32 {
    #[inline(always)]
    fn to(self) -> Complex64 {
        Complex64::new(self.re.into(), self.im.into())
    }
}
impl To<Complex32> for Complex64 {
    #[inline(always)]
    fn to(self) -> Complex32 {
        Complex32::new(self.re as f32, self.im as f32)
    }
}

#[derive(Clone, Copy)]
struct Convert;
impl<A: Wide, O: Wide> Map1<A, O> for Convert
where
    A::W: To<O::W>,
{
    #[inline(always)]
    fn map<const F: bool>(self, a: A) -> O {
        O::narrow(a.widen().to())
    }
}

/// The dtype by way of which this one is converted; itself where there are loops for it.
fn hub(dtype: DType) -> DType {
    match dtype {
        DType::I8 | DType::I16 | DType::U16 => DType::I32,
        DType::U32 | DType::U64 => DType::I64,
        DType::F16 | DType::BF16 | DType::C64 | DType::F8E4M3FN | DType::F8E5M2 => DType::F32,
        DType::C128 => DType::F64,
        DType::Bool | DType::U8 | DType::I32 | DType::I64 | DType::F32 | DType::F64 => dtype,
    }
}

/// The elements in another dtype.
pub fn cast(x: &CpuArray, dtype: DType) -> Result<CpuArray> {
    let from = x.dtype();
    if from == dtype {
        return super::copy::copy(x);
    }
    let x = &x.packed()?;
    macro_rules! direct {
        ($($A:ident $a:ty => $($O:ident $o:ty),+;)*) => {
            match (from, dtype) {
                $($((DType::$A, DType::$O) => convert::<$a, $o>(x),)+)*
                // A complex number is true where its imaginary part is not zero, too.
                (DType::C64, DType::Bool) => convert::<Complex32, bool>(x),
                (DType::C128, DType::Bool) => convert::<Complex64, bool>(x),
                (_, to) if to != hub(to) && from != hub(to) => cast(&cast(x, hub(to))?, to),
                (from, to) => cast(&cast(x, hub(from))?, to),
            }
        };
    }
    direct! {
        Bool bool => U8 u8, I32 i32, I64 i64, F32 f32, F64 f64;
        U8 u8 => Bool bool, I32 i32, I64 i64, F32 f32, F64 f64;
        I32 i32 => Bool bool, U8 u8, I64 i64, F32 f32, F64 f64, I8 i8, I16 i16, U16 u16;
        I64 i64 => Bool bool, U8 u8, I32 i32, F32 f32, F64 f64, U32 u32, U64 u64;
        F32 f32 => Bool bool, U8 u8, I32 i32, I64 i64, F64 f64, F16 f16, BF16 bf16, C64 Complex32, U64 u64, F8E4M3FN F8E4M3FN, F8E5M2 F8E5M2;
        F64 f64 => Bool bool, U8 u8, I32 i32, I64 i64, F32 f32, C128 Complex64, U64 u64;
        I8 i8 => I32 i32;
        I16 i16 => I32 i32;
        U16 u16 => I32 i32;
        U32 u32 => I64 i64;
        // Beyond 2^63 they are numbers that int64 has not.
        U64 u64 => I64 i64, F32 f32, F64 f64;
        F8E4M3FN F8E4M3FN => F32 f32;
        F8E5M2 F8E5M2 => F32 f32;
        F16 f16 => F32 f32;
        BF16 bf16 => F32 f32;
        C64 Complex32 => F32 f32, C128 Complex64;
        C128 Complex64 => F64 f64, C64 Complex32;
    }
}

fn convert<A, O>(x: &CpuArray) -> Result<CpuArray>
where
    A: Element + Wide,
    O: Element + Wide,
    A::W: To<O::W>,
{
    let guard = x.read::<A>();
    CpuArray::build(x.shape(), |out: &mut [O]| {
        each1(&x.source(&guard, x.shape()), out, threads::GRAIN, &|x, out| light1(Convert, x, out));
        Ok(())
    })
}

/// A kernel over float32, made one over a 16-bit float.
pub fn widened1<'f, H: Wide<W = f32>>(f: &'f F1<'f, f32, f32>) -> impl Fn(&[H], &mut [H]) + Sync + 'f {
    move |x, out| {
        let (mut wide, mut result) = ([0f32; BLOCK], [0f32; BLOCK]);
        for (x, out) in x.chunks(BLOCK).zip(out.chunks_mut(BLOCK)) {
            let n = x.len().min(out.len());
            H::widen_all(x, &mut wide);
            f(&wide[..n], &mut result[..n]);
            H::narrow_all(&result[..n], out);
        }
    }
}

/// A kernel over two float32 operands, made one over a 16-bit float; the result may be of another type.
pub fn widened2<'f, H: Wide<W = f32>, O, R: Copy + Default>(
    f: &'f F2<'f, f32, f32, R>,
) -> impl Fn(Arg<H>, Arg<H>, &mut [O]) + Sync + 'f
where
    O: Copy + Finish<R>,
{
    move |a, b, out| {
        let (mut wide_a, mut wide_b, mut result) = ([0f32; BLOCK], [0f32; BLOCK], [R::default(); BLOCK]);
        for (i, out) in out.chunks_mut(BLOCK).enumerate() {
            let n = out.len();
            let a = widen_arg(a, i * BLOCK, n, &mut wide_a);
            let b = widen_arg(b, i * BLOCK, n, &mut wide_b);
            f(a, b, &mut result[..n]);
            O::finish(&result[..n], out);
        }
    }
}

fn widen_arg<'a, H: Wide<W = f32>>(x: Arg<H>, start: usize, n: usize, to: &'a mut [f32; BLOCK]) -> Arg<'a, f32> {
    match x {
        Arg::Value(x) => Arg::Value(x.widen()),
        Arg::Slice(x) => {
            H::widen_all(&x[start..start + n], to);
            Arg::Slice(&to[..n])
        }
        Arg::Rows(x) => {
            let (mut at, mut i, mut column) = (0, start / x.n, start % x.n);
            while at < n {
                let to = &mut to[at..at + (x.n - column).min(n - at)];
                match x.one {
                    true => to.fill(x.data[i * x.pitch].widen()),
                    false => map1(Widen, &x.data[i * x.pitch + column..][..to.len()], to),
                }
                (at, i, column) = (at + to.len(), i + 1, 0);
            }
            Arg::Slice(&to[..n])
        }
    }
}

/// What a block of results becomes.
pub trait Finish<R>: Sized {
    /// Converts or copies.
    fn finish(from: &[R], to: &mut [Self]);
}
impl Finish<f32> for f16 {
    fn finish(from: &[f32], to: &mut [f16]) {
        f16::narrow_all(from, to);
    }
}
impl Finish<f32> for bf16 {
    fn finish(from: &[f32], to: &mut [bf16]) {
        map1(Narrow, from, to);
    }
}
impl Finish<bool> for bool {
    fn finish(from: &[bool], to: &mut [bool]) {
        to.copy_from_slice(from);
    }
}

const BLOCK: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{array, show};
    use smallvec::smallvec;

    fn to<A: Element, O: Element>(x: &[A]) -> Vec<O> {
        show::<O>(&cast(&array(&[x.len()], x), O::DTYPE).unwrap())
    }

    #[test]
    fn numbers_convert_as_in_pytorch() {
        assert_eq!(to::<f32, i64>(&[-1.7, 1.7, 0.0]), [-1, 1, 0]);
        assert_eq!(to::<f32, u8>(&[-1.0, 300.0]), [255, 44]);
        assert_eq!(to::<i64, i8>(&[-1, 300]), [-1, 44]);
        assert_eq!(to::<f32, bool>(&[0.0, -0.0, 0.1, f32::NAN]), [false, false, true, true]);
        assert_eq!(to::<bool, f32>(&[false, true]), [0.0, 1.0]);
        assert_eq!(to::<i64, bf16>(&[3]), [bf16::from_f32(3.0)]);
        assert_eq!(to::<f64, f16>(&[1e6, 0.1]), [f16::INFINITY, f16::from_f32(0.1)]);
        assert_eq!(to::<f16, bf16>(&[f16::from_f32(0.5)]), [bf16::from_f32(0.5)]);
        assert_eq!(to::<Complex32, f64>(&[Complex32::new(1.5, 2.0)]), [1.5]);
        assert_eq!(to::<Complex32, bool>(&[Complex32::new(0.0, 2.0)]), [true]);
        assert_eq!(to::<i32, Complex32>(&[2]), [Complex32::new(2.0, 0.0)]);
    }

    #[test]
    fn every_pair_exists_on_every_layout() {
        for &a in DType::ALL {
            for &b in DType::ALL {
                let x = cast(&array(&[2, 3], &[0u8, 1, 1, 0, 1, 0]), a).unwrap();
                let t =
                    x.with_layout(crate::shape::Layout { shape: smallvec![3, 2], strides: smallvec![1, 3], offset: 0 });
                let back = cast(&cast(&t, b).unwrap(), DType::I32).unwrap();
                assert_eq!(show::<i32>(&back), [0, 0, 1, 1, 1, 0], "{a} to {b}");
            }
        }
    }
}
