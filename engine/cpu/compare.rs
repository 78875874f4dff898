//! Comparisons, logic between arrays, and choosing by a condition.
//!
//! Depends on `elementwise` for its loops. Invariant: NaN equals nothing and is neither less nor more.

use super::cast::{cast, widened2};
use super::elementwise::{apply2, F};
use super::simd::{light2, light2_symmetric, run_light, threads::GRAIN, with_word, Arg, Choice, Map2, Task, Word};
use super::strided::each3;
use super::CpuArray;
use crate::{DType, Error, Result};
use half::{bf16, f16};
use lucid_ir::backend::Array;
use lucid_ir::ops::compare::CompareOp;
use lucid_ir::ops::select::SelectOp;
use lucid_ir::Meta;
use num_complex::{Complex32, Complex64};

macro_rules! comparisons {
    ($($K:ident $Trait:ident $op:tt;)*) => {
        $(
            #[derive(Clone, Copy)]
            struct $K;
            impl<T: $Trait + Copy> Map2<T, T, bool> for $K {
                #[inline(always)]
                fn map<const F: bool>(self, a: T, b: T) -> bool { a $op b }
            }
        )*
    };
}
comparisons! {
    Eq PartialEq ==;
    Ne PartialEq !=;
    Lt PartialOrd <;
    Le PartialOrd <=;
}

macro_rules! logic {
    ($($K:ident $op:tt;)*) => {
        $(
            #[derive(Clone, Copy)]
            struct $K;
            impl Map2<bool, bool, bool> for $K {
                #[inline(always)]
                fn map<const F: bool>(self, a: bool, b: bool) -> bool { a $op b }
            }
        )*
    };
}
logic! { And &; Or |; Xor ^; }

/// The loops of one comparison.
struct Loops<'f> {
    bool: &'f F<'f, bool, bool>,
    u8: &'f F<'f, u8, bool>,
    i8: &'f F<'f, i8, bool>,
    i16: &'f F<'f, i16, bool>,
    i32: &'f F<'f, i32, bool>,
    i64: &'f F<'f, i64, bool>,
    f32: &'f F<'f, f32, bool>,
    f64: &'f F<'f, f64, bool>,
    c64: Option<&'f F<'f, Complex32, bool>>,
    c128: Option<&'f F<'f, Complex64, bool>>,
}

impl Loops<'_> {
    fn run(&self, a: &CpuArray, b: &CpuArray, shape: &[usize]) -> Result<Option<CpuArray>> {
        Ok(Some(match a.dtype() {
            DType::Bool => apply2(a, b, shape, GRAIN, self.bool)?,
            DType::U8 => apply2(a, b, shape, GRAIN, self.u8)?,
            DType::I8 => apply2(a, b, shape, GRAIN, self.i8)?,
            DType::I16 => apply2(a, b, shape, GRAIN, self.i16)?,
            DType::I32 => apply2(a, b, shape, GRAIN, self.i32)?,
            DType::I64 => apply2(a, b, shape, GRAIN, self.i64)?,
            DType::F32 => apply2(a, b, shape, GRAIN, self.f32)?,
            DType::F64 => apply2(a, b, shape, GRAIN, self.f64)?,
            DType::F16 => apply2::<f16, bool>(a, b, shape, GRAIN, &widened2(self.f32))?,
            DType::BF16 => apply2::<bf16, bool>(a, b, shape, GRAIN, &widened2(self.f32))?,
            // Dispatch compares them as what they are computed in.
            DType::U16 | DType::U32 | DType::U64 | DType::F8E4M3FN | DType::F8E5M2 => return Ok(None),
            DType::C64 => match self.c64 {
                Some(f) => apply2(a, b, shape, GRAIN, f)?,
                None => return Ok(None),
            },
            DType::C128 => match self.c128 {
                Some(f) => apply2(a, b, shape, GRAIN, f)?,
                None => return Ok(None),
            },
        }))
    }
}

macro_rules! loops {
    ($light:ident $K:ident) => {
        loops!(@ $light $K; None, None)
    };
    ($light:ident $K:ident complex) => {
        loops!(@ $light $K; Some(&|a, b, out| $light($K, a, b, out)), Some(&|a, b, out| $light($K, a, b, out)))
    };
    (@ $light:ident $K:ident; $c64:expr, $c128:expr) => {
        Loops {
            bool: &|a, b, out| $light($K, a, b, out),
            u8: &|a, b, out| $light($K, a, b, out),
            i8: &|a, b, out| $light($K, a, b, out),
            i16: &|a, b, out| $light($K, a, b, out),
            i32: &|a, b, out| $light($K, a, b, out),
            i64: &|a, b, out| $light($K, a, b, out),
            f32: &|a, b, out| $light($K, a, b, out),
            f64: &|a, b, out| $light($K, a, b, out),
            c64: $c64,
            c128: $c128,
        }
    };
}

/// The kernels of the `compare` family.
pub fn compare(op: &CompareOp, a: &CpuArray, b: &CpuArray, out: &Meta) -> Result<CpuArray> {
    use CompareOp as C;
    let shape = &out.shape[..];
    let truths = |k: &F<bool, bool>| {
        apply2::<bool, bool>(&cast(a, DType::Bool)?, &cast(b, DType::Bool)?, shape, GRAIN, k).map(Some)
    };
    let done = match op {
        C::Eq => loops!(light2_symmetric Eq complex).run(a, b, shape)?,
        C::Ne => loops!(light2_symmetric Ne complex).run(a, b, shape)?,
        C::Lt => loops!(light2 Lt).run(a, b, shape)?,
        C::Le => loops!(light2 Le).run(a, b, shape)?,
        C::Gt => loops!(light2 Lt).run(b, a, shape)?,
        C::Ge => loops!(light2 Le).run(b, a, shape)?,
        C::And => truths(&|a, b, out| light2_symmetric(And, a, b, out))?,
        C::Or => truths(&|a, b, out| light2_symmetric(Or, a, b, out))?,
        C::Xor => truths(&|a, b, out| light2_symmetric(Xor, a, b, out))?,
    };
    done.ok_or_else(|| Error::dtype(op.name(), format!("has no CPU kernel for {}", a.dtype()), &[a.dtype()]))
}

/// A comparison of rows.
type Loop<T> = fn(Arg<T>, Arg<T>, &mut [bool]);

/// The loop of a comparison of float32, for fused kernels.
pub(super) fn of_floats(op: &CompareOp) -> Option<Loop<f32>> {
    use CompareOp as C;
    let found: fn(Arg<f32>, Arg<f32>, &mut [bool]) = match op {
        C::Eq => |a, b, out| light2_symmetric(Eq, a, b, out),
        C::Ne => |a, b, out| light2_symmetric(Ne, a, b, out),
        C::Lt => |a, b, out| light2(Lt, a, b, out),
        C::Le => |a, b, out| light2(Le, a, b, out),
        C::Gt => |a, b, out| light2(Lt, b, a, out),
        C::Ge => |a, b, out| light2(Le, b, a, out),
        C::And | C::Or | C::Xor => return None,
    };
    Some(found)
}

/// The loop of logic of two truths, for fused kernels.
pub(super) fn of_truths(op: &CompareOp) -> Option<Loop<bool>> {
    use CompareOp as C;
    let found: fn(Arg<bool>, Arg<bool>, &mut [bool]) = match op {
        C::And => |a, b, out| light2_symmetric(And, a, b, out),
        C::Or => |a, b, out| light2_symmetric(Or, a, b, out),
        C::Xor => |a, b, out| light2_symmetric(Xor, a, b, out),
        C::Eq | C::Ne | C::Lt | C::Le | C::Gt | C::Ge => return None,
    };
    Some(found)
}

/// `out = c ? a : b`
struct Choose<'a, T> {
    c: &'a [bool],
    a: Arg<'a, T>,
    b: Arg<'a, T>,
    out: &'a mut [T],
}
impl<T: Choice> Task for Choose<'_, T> {
    type Out = ();
    #[inline(always)]
    fn run<const F: bool>(self) {
        let Choose { c, a, b, out } = self;
        let zip = out.iter_mut().zip(c);
        match (a, b) {
            (Arg::Slice(a), Arg::Slice(b)) => {
                zip.zip(a).zip(b).for_each(|(((o, &c), &a), &b)| *o = T::choose(c, a, b));
            }
            (Arg::Slice(a), Arg::Value(b)) => zip.zip(a).for_each(|((o, &c), &a)| *o = T::choose(c, a, b)),
            (Arg::Value(a), Arg::Slice(b)) => zip.zip(b).for_each(|((o, &c), &b)| *o = T::choose(c, a, b)),
            (Arg::Value(a), Arg::Value(b)) => zip.for_each(|(o, &c)| *o = T::choose(c, a, b)),
            (a, b) => zip.enumerate().for_each(|(i, (o, &c))| *o = T::choose(c, a.at(i), b.at(i))),
        }
    }
}

pub(super) fn choose<T: Choice>(c: Arg<bool>, a: Arg<T>, b: Arg<T>, out: &mut [T]) {
    match (c, a, b) {
        (Arg::Slice(c), ..) => run_light(Choose { c, a, b, out }),
        (Arg::Value(true), Arg::Slice(x), _) | (Arg::Value(false), _, Arg::Slice(x)) => out.copy_from_slice(x),
        (Arg::Value(true), Arg::Value(x), _) | (Arg::Value(false), _, Arg::Value(x)) => out.fill(x),
        _ => out.iter_mut().enumerate().for_each(|(i, o)| *o = if c.at(i) { a.at(i) } else { b.at(i) }),
    }
}

fn choose_words<W: Word>(c: &CpuArray, a: &CpuArray, b: &CpuArray, out: &Meta) -> Result<CpuArray> {
    let shape = &out.shape[..];
    let (c, a, b) = (c.packed()?, a.packed()?, b.packed()?);
    let (z, x, y) = (c.read::<bool>(), a.read_words::<W>(), b.read_words::<W>());
    CpuArray::build_words(shape, out.dtype, |out| {
        let (z, x, y) = (c.source(&z, shape), a.source(&x, shape), b.source(&y, shape));
        each3(&z, &x, &y, out, GRAIN, &choose::<W>);
        Ok(())
    })
}

/// The kernels of the `select` family.
pub fn select(op: &SelectOp, c: &CpuArray, a: &CpuArray, b: &CpuArray, out: &Meta) -> Result<CpuArray> {
    match op {
        SelectOp::Where => with_word!(out.dtype, W => choose_words::<W>(c, a, b, out)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{array, layouts, show};

    fn meta(shape: &[usize], dtype: DType) -> Meta {
        Meta { shape: shape.into(), dtype }
    }

    #[test]
    fn comparisons_on_every_dtype_and_layout() {
        for &dtype in DType::ALL.iter().filter(|d| !d.is_stored_only()) {
            let make = |v: &[u8]| layouts(&[2, 2], v).into_iter().map(|x| cast(&x, dtype).unwrap()).collect::<Vec<_>>();
            for (a, b) in make(&[0, 1, 1, 0]).iter().zip(make(&[0, 0, 1, 1]).iter().rev()) {
                let ask = |op| show::<bool>(&compare(&op, a, b, &meta(&[2, 2], DType::Bool)).unwrap());
                assert_eq!(ask(CompareOp::Eq), [true, false, true, false], "{dtype}");
                assert_eq!(ask(CompareOp::Ne), [false, true, false, true], "{dtype}");
                assert_eq!(ask(CompareOp::And), [false, false, true, false], "{dtype}");
                assert_eq!(ask(CompareOp::Xor), [false, true, false, true], "{dtype}");
                if !dtype.is_complex() {
                    assert_eq!(ask(CompareOp::Lt), [false, false, false, true], "{dtype}");
                    assert_eq!(ask(CompareOp::Ge), [true, true, true, false], "{dtype}");
                }
            }
        }
        let nan = array(&[1], &[f32::NAN]);
        let ask = |op| show::<bool>(&compare(&op, &nan, &nan, &meta(&[1], DType::Bool)).unwrap())[0];
        assert!(!ask(CompareOp::Eq) && ask(CompareOp::Ne) && !ask(CompareOp::Le) && ask(CompareOp::And));
    }

    #[test]
    fn where_keeps_the_bits_of_every_dtype() {
        for n in [1, 7, 40] {
            let c: Vec<bool> = (0..n).map(|i| i * i % 5 < 2).collect();
            for dtype in DType::ALL {
                // 0 and 1 where they are truths, else bits of all kinds, those of NaN too.
                let number =
                    |i: usize, by: usize| if *dtype == DType::Bool { (i + by) as u8 & 1 } else { (i * by) as u8 };
                let bytes = |by| (0..n * dtype.size()).map(|i| number(i, by)).collect::<Vec<u8>>();
                let (a, b) = (bytes(37), bytes(90));
                let of = |bytes: &[u8]| super::super::copy::from_bytes(bytes, &meta(&[n], *dtype)).unwrap();
                let y = select(&SelectOp::Where, &array(&[n], &c), &of(&a), &of(&b), &meta(&[n], *dtype)).unwrap();
                let mut got = Vec::new();
                super::super::copy::with_bytes(&y, &mut |bytes| got.extend_from_slice(bytes)).unwrap();
                let size = dtype.size();
                let want = (0..n * size).map(|i| if c[i / size] { a[i] } else { b[i] });
                assert!(got.iter().copied().eq(want), "{dtype}");
            }
        }
    }

    #[test]
    fn where_broadcasts() {
        let c = array(&[2, 1], &[true, false]);
        let (a, b) = (array(&[3], &[1f64, 2.0, 3.0]), array(&[], &[0f64]));
        let y = select(&SelectOp::Where, &c, &a, &b, &meta(&[2, 3], DType::F64)).unwrap();
        assert_eq!(show::<f64>(&y), [1.0, 2.0, 3.0, 0.0, 0.0, 0.0]);
        for c in layouts(&[2, 3], &[true, false, true, false, true, false]) {
            let y = select(&SelectOp::Where, &c, &a, &b, &meta(&[2, 3], DType::F64)).unwrap();
            assert_eq!(show::<f64>(&y), [1.0, 0.0, 3.0, 0.0, 2.0, 0.0]);
        }
    }
}
