//! The loops of element-wise ops: per dtype one kernel, over operands of any layout or over the first operand itself.
//!
//! Depends on `simd` and `strided`.

use crate::cast::{cast, widened1, widened2};
use crate::dtype::Element;
use crate::shape::{is_same, numel};
use crate::simd::{
    light2, light2_over, light2_symmetric, over_rows, threads::for_chunks, Arg, Arith, Better, BetterNumber, Extreme,
    Float, Half, Map2, ReadGuard,
};
use crate::strided::{aside, each1, each2, over2, Over1, Over2, F1, F2};
use crate::{Buffer, CpuArray};
use crate::{DType, Error, Result};
use half::{bf16, f16};
use lucid_ir::backend::Array;
use num_complex::{Complex32, Complex64};

/// A kernel over two operands of one type.
pub(crate) type F<'f, A, O> = F2<'f, A, A, O>;

/// Are there elements, as a kernel takes them: row-major and of the result's shape? Then there is nothing to walk over, which
/// is most of the time that an op of few elements takes.
fn is_dense(x: &CpuArray, shape: &[usize]) -> bool {
    is_same(x.shape(), shape) && x.layout().is_contiguous() && !shape.contains(&0)
}

/// The elements of an array that [`is_dense`], of which there are `n`.
fn dense<'a, T: Copy>(x: &CpuArray, guard: &'a ReadGuard<'_, T>, n: usize) -> &'a [T] {
    &guard[x.layout().offset..][..n]
}

/// Elements as a kernel is given them: one alone is a value, as where it broadcasts.
fn piece<T: Copy>(all: &[T], at: usize, len: usize) -> Arg<'_, T> {
    match all {
        [one] => Arg::Value(*one),
        all => Arg::Slice(&all[at..at + len]),
    }
}

pub(crate) fn apply1<A: Element, O: Element>(x: &CpuArray, grain: usize, f: &F1<A, O>) -> Result<CpuArray> {
    if is_dense(x, x.shape()) {
        let guard = x.read::<A>();
        return CpuArray::build(x.shape(), |out| {
            let own = dense(x, &guard, out.len());
            for_chunks(out, 64, grain, |at, out| f(&own[at..at + out.len()], out));
            Ok(())
        });
    }
    let x = x.packed()?;
    let guard = x.read::<A>();
    CpuArray::build(x.shape(), |out| {
        each1(&x.source(&guard, x.shape()), out, grain, f);
        Ok(())
    })
}

pub(crate) fn apply2<A: Element, O: Element>(
    a: &CpuArray,
    b: &CpuArray,
    shape: &[usize],
    grain: usize,
    f: &F2<A, A, O>,
) -> Result<CpuArray> {
    if is_dense(a, shape) && is_dense(b, shape) {
        let (x, y) = (a.read::<A>(), b.read::<A>());
        return CpuArray::build(shape, |out| {
            let (x, y) = (dense(a, &x, out.len()), dense(b, &y, out.len()));
            for_chunks(out, 64, grain, |at, out| {
                f(piece(x, at, out.len()), piece(y, at, out.len()), out);
            });
            Ok(())
        });
    }
    let (a, b) = (a.packed()?, b.packed()?);
    let (x, y) = (a.read::<A>(), b.read::<A>());
    CpuArray::build(shape, |out| {
        each2(&a.source(&x, shape), &b.source(&y, shape), out, grain, f);
        Ok(())
    })
}

/// The most elements for which choosing a kernel would take longer than the work.
const FEW: usize = 16;

/// Arithmetic on few float32 side by side; `None` where it is on others.
#[inline]
pub(crate) fn few(op: Arith, a: &CpuArray, b: &CpuArray, shape: &[usize]) -> Option<Result<CpuArray>> {
    let count = numel(shape);
    let same = is_same(a.shape(), shape) && is_same(b.shape(), shape);
    if count == 0 || count > FEW || !same || !a.layout().is_contiguous() || !b.layout().is_contiguous() {
        return None;
    }
    let (x, y) = (a.read::<f32>(), b.read::<f32>());
    Some(CpuArray::build(shape, |out: &mut [f32]| {
        let pairs = dense(a, &x, out.len()).iter().zip(dense(b, &y, out.len()));
        let each = out.iter_mut().zip(pairs);
        match op {
            Arith::Add => each.for_each(|(out, (a, b))| *out = a + b),
            Arith::Sub => each.for_each(|(out, (a, b))| *out = a - b),
            Arith::Mul => each.for_each(|(out, (a, b))| *out = a * b),
            Arith::Div => each.for_each(|(out, (a, b))| *out = a / b),
        }
        Ok(())
    }))
}

/// Arithmetic on float32 side by side, written to the elements of `out`; false, and nothing written, unless all three are
/// row-major and of one shape and `out`'s memory is no operand's.
pub(crate) fn into(op: Arith, a: &CpuArray, b: &CpuArray, out: &CpuArray, grain: usize) -> Result<bool> {
    let fits = |x: &CpuArray| x.dtype() == DType::F32 && is_dense(x, out.shape());
    if !(fits(a) && fits(b) && fits(out)) || [a, b].iter().any(|x| x.buffer.overlaps(&out.buffer)) {
        return Ok(false);
    }
    // Guards of buffers at lower addresses come first, as in `Buffer::both`.
    let before = |x: &CpuArray| std::ptr::from_ref(&*x.buffer) < std::ptr::from_ref(&*out.buffer);
    let [x, y] = [a, b].map(|x| before(x).then(|| x.read::<f32>()));
    let mut to = out.write::<f32>()?;
    let (x, y) = (x.unwrap_or_else(|| a.read()), y.unwrap_or_else(|| b.read()));
    let to = out.slice_mut(&mut to);
    let (x, y) = (dense(a, &x, to.len()), dense(b, &y, to.len()));
    for_chunks(to, 64, grain, |at, to| f32::arith(op, piece(x, at, to.len()), piece(y, at, to.len()), to));
    out.touch();
    Ok(true)
}

/// What an op of one operand is called with.
#[derive(Clone, Copy)]
pub(crate) struct Call<'a> {
    pub op: &'static str,
    pub x: &'a CpuArray,
    /// Is the result to be written over the operand?
    pub over: bool,
}

impl Call<'_> {
    pub fn apply<T: Element>(&self, grain: usize, f: &F1<T, T>, over: Option<&Over1<T>>) -> Result<CpuArray> {
        if !self.over {
            return apply1(self.x, grain, f);
        }
        for_chunks(self.x.slice_mut(&mut self.x.write::<T>()?), 64, grain, |_, x| match over {
            Some(over) => over(x),
            None => aside(x, |_, old, new| f(old, new)),
        });
        Ok(self.x.clone())
    }
}

/// The same of an op of two operands, of which the first may be written over.
#[derive(Clone, Copy)]
pub(crate) struct Call2<'a> {
    pub op: &'static str,
    pub a: &'a CpuArray,
    pub b: &'a CpuArray,
    pub shape: &'a [usize],
    pub over: bool,
}

/// A kernel that is given a copy of the elements that it writes over.
fn apart<T: Element>(f: &F<T, T>, a: &mut [T], b: Arg<T>) {
    match b {
        Arg::Slice(b) => aside(a, |at, old, new| f(Arg::Slice(old), Arg::Slice(&b[at..at + old.len()]), new)),
        Arg::Value(_) => aside(a, |_, old, new| f(Arg::Slice(old), b, new)),
        Arg::Rows(b) => over_rows(a, b, |a, b| apart(f, a, b)),
    }
}

impl Call2<'_> {
    pub fn apply<T: Element>(&self, grain: usize, f: &F<T, T>, over: Option<&Over2<T, T>>) -> Result<CpuArray> {
        let Call2 { a, b, shape, .. } = *self;
        if !self.over {
            return apply2(a, b, shape, grain, f);
        }
        let b = b.packed()?;
        let (y, mut x) = Buffer::both((&b.buffer, |_| b.read::<T>()), (&a.buffer, |_| a.write::<T>()))?;
        let apart: &Over2<T, T> = &|a, b| apart(f, a, b);
        over2(a.slice_mut(&mut x), &b.source(&y, shape), grain, over.unwrap_or(apart));
        Ok(a.clone())
    }
}

pub(crate) fn refused(op: &'static str, dtype: DType) -> Box<Error> {
    Error::dtype(op, format!("has no CPU kernel for {dtype}"), &[dtype])
}

/// The loops of one op: what it does to each dtype, where it does anything. Small integers without one are computed as int32.
#[derive(Default)]
pub(crate) struct Loops1<'f> {
    pub bool: Option<&'f F1<'f, bool, bool>>,
    pub u8: Option<&'f F1<'f, u8, u8>>,
    pub i8: Option<&'f F1<'f, i8, i8>>,
    pub i16: Option<&'f F1<'f, i16, i16>>,
    pub i32: Option<&'f F1<'f, i32, i32>>,
    pub i64: Option<&'f F1<'f, i64, i64>>,
    /// Where 16-bit floats are not computed by blocks of float32.
    pub f16: Option<&'f F1<'f, f16, f16>>,
    pub bf16: Option<&'f F1<'f, bf16, bf16>>,
    pub f32: Option<&'f F1<'f, f32, f32>>,
    pub f64: Option<&'f F1<'f, f64, f64>>,
    pub c64: Option<&'f F1<'f, Complex32, Complex32>>,
    pub c128: Option<&'f F1<'f, Complex64, Complex64>>,
    pub over: Overs1<'f>,
}

/// The same kernels where they write over their operand.
#[derive(Default)]
pub(crate) struct Overs1<'f> {
    pub bool: Option<&'f Over1<'f, bool>>,
    pub u8: Option<&'f Over1<'f, u8>>,
    pub i8: Option<&'f Over1<'f, i8>>,
    pub i16: Option<&'f Over1<'f, i16>>,
    pub i32: Option<&'f Over1<'f, i32>>,
    pub i64: Option<&'f Over1<'f, i64>>,
    pub f16: Option<&'f Over1<'f, f16>>,
    pub bf16: Option<&'f Over1<'f, bf16>>,
    pub f32: Option<&'f Over1<'f, f32>>,
    pub f64: Option<&'f Over1<'f, f64>>,
}

impl Loops1<'_> {
    pub fn run(&self, call: Call, grain: usize) -> Result<CpuArray> {
        let Call { op, x, .. } = call;
        let done = match x.dtype() {
            DType::Bool => self.bool.map(|f| call.apply(grain, f, self.over.bool)),
            DType::U8 => self.u8.map(|f| call.apply(grain, f, self.over.u8)),
            DType::I8 if self.i8.is_some() => self.i8.map(|f| call.apply(grain, f, self.over.i8)),
            DType::I16 if self.i16.is_some() => self.i16.map(|f| call.apply(grain, f, self.over.i16)),
            DType::I8 | DType::I16 if self.i32.is_some() => {
                let wide = cast(x, DType::I32)?;
                return cast(&self.run(Call { op, x: &wide, over: false }, grain)?, x.dtype());
            }
            DType::I8 | DType::I16 => None,
            DType::I32 => self.i32.map(|f| call.apply(grain, f, self.over.i32)),
            DType::I64 => self.i64.map(|f| call.apply(grain, f, self.over.i64)),
            DType::F32 => self.f32.map(|f| call.apply(grain, f, self.over.f32)),
            DType::F64 => self.f64.map(|f| call.apply(grain, f, self.over.f64)),
            DType::F16 if self.f16.is_some() => self.f16.map(|f| call.apply(grain, f, self.over.f16)),
            DType::BF16 if self.bf16.is_some() => self.bf16.map(|f| call.apply(grain, f, self.over.bf16)),
            DType::F16 => self.f32.map(|f| call.apply::<f16>(grain, &widened1(f), None)),
            DType::BF16 => self.f32.map(|f| call.apply::<bf16>(grain, &widened1(f), None)),
            DType::U16 | DType::U32 | DType::U64 | DType::F8E4M3FN | DType::F8E5M2 => None,
            DType::C64 => self.c64.map(|f| call.apply(grain, f, None)),
            DType::C128 => self.c128.map(|f| call.apply(grain, f, None)),
        };
        done.unwrap_or_else(|| Err(refused(op, x.dtype())))
    }
}

#[derive(Default)]
pub(crate) struct Overs2<'f> {
    pub bool: Option<&'f Over2<'f, bool, bool>>,
    pub u8: Option<&'f Over2<'f, u8, u8>>,
    pub i8: Option<&'f Over2<'f, i8, i8>>,
    pub i16: Option<&'f Over2<'f, i16, i16>>,
    pub i32: Option<&'f Over2<'f, i32, i32>>,
    pub i64: Option<&'f Over2<'f, i64, i64>>,
    pub f32: Option<&'f Over2<'f, f32, f32>>,
    pub f64: Option<&'f Over2<'f, f64, f64>>,
}

/// The loops of an op of two operands.
#[derive(Default)]
pub(crate) struct Loops2<'f> {
    pub bool: Option<&'f F<'f, bool, bool>>,
    pub u8: Option<&'f F<'f, u8, u8>>,
    pub i32: Option<&'f F<'f, i32, i32>>,
    pub i64: Option<&'f F<'f, i64, i64>>,
    pub f32: Option<&'f F<'f, f32, f32>>,
    pub f64: Option<&'f F<'f, f64, f64>>,
    pub c64: Option<&'f F<'f, Complex32, Complex32>>,
    pub c128: Option<&'f F<'f, Complex64, Complex64>>,
    pub over: Overs2<'f>,
    /// Where these are not computed as int32 and cut off.
    pub i8: Option<&'f F<'f, i8, i8>>,
    pub i16: Option<&'f F<'f, i16, i16>>,
    /// Where 16-bit floats are not computed by blocks of float32.
    pub f16: Option<&'f F<'f, f16, f16>>,
    pub bf16: Option<&'f F<'f, bf16, bf16>>,
}

impl Loops2<'_> {
    pub fn run(&self, call: Call2, grain: usize) -> Result<CpuArray> {
        let Call2 { op, a, b, .. } = call;
        let done = match a.dtype() {
            DType::Bool => self.bool.map(|f| call.apply(grain, f, self.over.bool)),
            DType::U8 => self.u8.map(|f| call.apply(grain, f, self.over.u8)),
            DType::I8 if self.i8.is_some() => self.i8.map(|f| call.apply(grain, f, self.over.i8)),
            DType::I16 if self.i16.is_some() => self.i16.map(|f| call.apply(grain, f, self.over.i16)),
            DType::I8 | DType::I16 if self.i32.is_some() => {
                let (wide, other) = (cast(a, DType::I32)?, cast(b, DType::I32)?);
                let y = self.run(Call2 { a: &wide, b: &other, over: false, ..call }, grain)?;
                return cast(&y, a.dtype());
            }
            DType::I8 | DType::I16 => None,
            DType::I32 => self.i32.map(|f| call.apply(grain, f, self.over.i32)),
            DType::I64 => self.i64.map(|f| call.apply(grain, f, self.over.i64)),
            DType::F32 => self.f32.map(|f| call.apply(grain, f, self.over.f32)),
            DType::F64 => self.f64.map(|f| call.apply(grain, f, self.over.f64)),
            DType::F16 if self.f16.is_some() => self.f16.map(|f| call.apply(grain, f, None)),
            DType::BF16 if self.bf16.is_some() => self.bf16.map(|f| call.apply(grain, f, None)),
            DType::F16 => self.f32.map(|f| call.apply::<f16>(grain, &widened2(f), None)),
            DType::BF16 => self.f32.map(|f| call.apply::<bf16>(grain, &widened2(f), None)),
            DType::U16 | DType::U32 | DType::U64 | DType::F8E4M3FN | DType::F8E5M2 => None,
            DType::C64 => self.c64.map(|f| call.apply(grain, f, None)),
            DType::C128 => self.c128.map(|f| call.apply(grain, f, None)),
        };
        done.unwrap_or_else(|| Err(refused(op, a.dtype())))
    }
}

/// Loops of a kernel for the listed dtypes, and for 16-bit floats in one pass.
macro_rules! loops1 {
    ($k:expr; $($t:ident)*; halves) => {
        Loops1 {
            f16: Some(&|x, out| f16::half1($k, x, out)),
            bf16: Some(&|x, out| bf16::half1($k, x, out)),
            ..loops1!($k; $($t)*)
        }
    };
    ($k:expr; $($t:ident)*) => {
        Loops1 {
            $($t: Some(&|x, out| light1($k, x, out)),)*
            over: Overs1 { $($t: Some(&|x| light1_over($k, x)),)* ..Overs1::default() },
            ..Loops1::default()
        }
    };
}
/// The same of two operands.
macro_rules! loops2 {
    // That for integers, and arithmetic's own loops for floats.
    ($light:ident $k:ident; $($t:ident)*; floats) => {
        Loops2 {
            f32: Some(&|a, b, out| f32::arith(Arith::$k, a, b, out)),
            f64: Some(&|a, b, out| f64::arith(Arith::$k, a, b, out)),
            f16: Some(&|a, b, out| f16::half2($k, a, b, out)),
            bf16: Some(&|a, b, out| bf16::half2($k, a, b, out)),
            ..loops2!(@ $light $k; $($t)*; f32 f64 $($t)*)
        }
    };
    ($light:ident $k:expr; $($t:ident)*; halves) => {
        Loops2 {
            f16: Some(&|a, b, out| f16::half2($k, a, b, out)),
            bf16: Some(&|a, b, out| bf16::half2($k, a, b, out)),
            ..loops2!(@ $light $k; $($t)*; $($t)*)
        }
    };
    ($light:ident $k:expr; $($t:ident)*) => { loops2!(@ $light $k; $($t)*; $($t)*) };
    (@ $light:ident $k:expr; $($t:ident)*; $($over:ident)*) => {
        Loops2 {
            $($t: Some(&|a, b, out| $light($k, a, b, out)),)*
            over: {
                // Some list all dtypes.
                #[allow(clippy::needless_update)]
                let over = Overs2 { $($over: Some(&|a, b| light2_over($k, a, b)),)* ..Overs2::default() };
                over
            },
            ..Loops2::default()
        }
    };
}

/// Those of a maximum (`true`) or minimum.
macro_rules! extremes {
    ($max:literal; $($t:ident)*) => {
        Loops2 {
            $($t: Some(&better::<$t, $max>),)*
            f16: Some(&better_half::<f16, $max>),
            bf16: Some(&better_half::<bf16, $max>),
            over: Overs2 { $($t: Some(&better_over::<$t, $max>),)* },
            ..Loops2::default()
        }
    };
}

/// The better of two elements, NaN where either is.
pub(crate) fn better<T: Extreme, const MAX: bool>(a: Arg<T>, b: Arg<T>, out: &mut [T]) {
    match b {
        Arg::Value(v) if !v.is_none() => light2(BetterNumber::<MAX>, a, b, out),
        _ => light2_symmetric(Better::<MAX>, a, b, out),
    }
}

/// The better of two floats, NaN where either is: of values alone, as a choice of what is read would be a choice of addresses.
#[derive(Clone, Copy)]
struct BetterFloat<const MAX: bool>;
impl<const MAX: bool> Map2<f32, f32, f32> for BetterFloat<MAX> {
    #[inline(always)]
    fn map<const F: bool>(self, a: f32, b: f32) -> f32 {
        let better = if MAX { a.max(b) } else { a.min(b) };
        if a.is_nan() | b.is_nan() {
            a + b
        } else {
            better
        }
    }
}

/// [`better`] of 16-bit floats.
pub(crate) fn better_half<T: Half, const MAX: bool>(a: Arg<T>, b: Arg<T>, out: &mut [T]) {
    T::half2(BetterFloat::<MAX>, a, b, out);
}

/// The same over the first. Of two slices from a copy: a choice that may leave the element would be a masked store.
pub(crate) fn better_over<T: Extreme, const MAX: bool>(a: &mut [T], b: Arg<T>) {
    match b {
        Arg::Value(v) if !v.is_none() => light2_over(BetterNumber::<MAX>, a, b),
        Arg::Value(_) => aside(a, |_, old, new| better::<T, MAX>(Arg::Slice(old), b, new)),
        Arg::Slice(b) => {
            aside(a, |at, old, new| better::<T, MAX>(Arg::Slice(old), Arg::Slice(&b[at..at + old.len()]), new))
        }
        Arg::Rows(b) => over_rows(a, b, |a, b| better_over::<T, MAX>(a, b)),
    }
}

pub(super) use {extremes, loops1, loops2};
