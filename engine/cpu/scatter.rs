//! Writing at indices: `scatter` along one dimension, and advanced indexing's `index_put`, into a copy or in place.
//!
//! Depends on `index` for ranges and offsets, and on `simd`. Invariant: every index is checked before anything is written,
//! and what is written does not depend on the number of threads: values that meet are taken in their own order.

use super::index::{checked, Negative, Plan, Walk, GRAIN};
use super::simd::{threads, Extreme, Sum};
use super::strided::copy_to;
use super::{Buffer, CpuArray};
use crate::backend::Array;
use crate::dtype::Element;
use crate::ops::index::{IndexOp, ScatterMode};
use crate::shape::Layout;
use crate::{with_dtype, Error, Result};
use num_complex::{Complex32, Complex64};
use smallvec::SmallVec;
use std::sync::Arc;

/// Elements that may meet in one place.
pub(super) trait Meet: Element + Sum {
    /// The larger or the smaller of two; NaN wins.
    fn better(a: Self, b: Self, largest: bool) -> Self;
}

macro_rules! meet {
    ($($t:ty)*) => {$(
        impl Meet for $t {
            #[inline(always)]
            fn better(a: $t, b: $t, largest: bool) -> $t {
                let wins = if largest { <$t>::beats::<true>(b, a) } else { <$t>::beats::<false>(b, a) };
                if wins { b } else { a }
            }
        }
    )*};
}
meet!(bool u8 i8 i16 i32 i64 half::f16 half::bf16 f32 f64);

// Complex numbers have no order: the table lets none come here.
impl Meet for Complex32 {
    fn better(a: Complex32, _: Complex32, _: bool) -> Complex32 {
        a
    }
}
impl Meet for Complex64 {
    fn better(a: Complex64, _: Complex64, _: bool) -> Complex64 {
        a
    }
}

/// Writes one element where another is.
#[inline(always)]
pub(super) fn put<T: Meet>(to: &mut T, x: T, mode: ScatterMode) {
    *to = match mode {
        ScatterMode::Set => x,
        ScatterMode::Add => T::narrow(T::add(to.widen(), x.widen())),
        ScatterMode::Prod => T::finish(T::times(T::acc(to.widen()), T::acc(x.widen()))),
        ScatterMode::Max => T::better(*to, x, true),
        ScatterMode::Min => T::better(*to, x, false),
    }
}

/// Where values go in an array of some layout, and what happens there.
enum Targets<'a> {
    Along { axis: usize, at: Vec<usize>, shape: &'a [usize], mode: ScatterMode },
    Places { plan: Plan, mode: ScatterMode },
}

/// The targets of an op in an array of this layout, all in range, and the values for them.
fn targets<'a>(op: &IndexOp, x: &Layout, rest: &[&'a CpuArray]) -> Result<(Targets<'a>, &'a CpuArray)> {
    match (op, rest) {
        (IndexOp::Scatter { axis, mode } | IndexOp::Reduce { axis, mode }, [at, src]) => {
            let shape = at.shape();
            if shape.len() != x.ndim() || src.shape() != shape || shape.is_empty() {
                let why = "index and source must have one shape";
                return Err(Error::shape("scatter", why, &[&x.shape, shape, src.shape()]));
            }
            let at = checked("scatter", at, *axis, &x.shape, Negative::Refused)?;
            Ok((Targets::Along { axis: *axis, at, shape, mode: *mode }, src))
        }
        (IndexOp::IndexPut { axes, accumulate, strict }, [values, at @ ..]) => {
            let mode = if *accumulate { ScatterMode::Add } else { ScatterMode::Set };
            let plan = Plan::new("index_put", x, (axes, *strict), at, values.shape())?;
            Ok((Targets::Places { plan, mode }, values))
        }
        _ => Err(Error::runtime(op.schema().name, format!("writes nothing of {} arrays", rest.len()))),
    }
}

/// A copy of the first input with the op's values written.
pub(super) fn scattered(op: &IndexOp, inputs: &[&CpuArray]) -> Result<CpuArray> {
    let (x, rest) = (inputs[0], &inputs[1..]);
    let layout = Layout::contiguous(x.shape());
    let (to, values) = targets(op, &layout, rest)?;
    let values = values.contiguous()?;
    with_dtype!(x.dtype(), T => {
        let (guard, values_guard) = (x.read::<T>(), values.read::<T>());
        let values = values.slice(&values_guard);
        CpuArray::build(x.shape(), |out: &mut [T]| {
            copy_to(&x.source(&guard, x.shape()), out);
            write(out, &layout, &to, values);
            Ok(())
        })
    })
}

/// The same over `dst` itself. What is written may share its storage.
pub(super) fn scatter_into(op: &IndexOp, dst: &CpuArray, rest: &[&CpuArray]) -> Result<()> {
    let (to, values) = targets(op, dst.layout(), rest)?;
    let values = match Arc::ptr_eq(dst.buffer(), values.buffer()) {
        true => super::copy::copy(values)?,
        false => values.contiguous()?,
    };
    with_dtype!(dst.dtype(), T => {
        let (guard, mut into) =
            Buffer::both((values.buffer(), Buffer::read::<T>), (dst.buffer(), Buffer::write::<T>))?;
        write(&mut into, dst.layout(), &to, values.slice(&guard));
    });
    dst.touch();
    Ok(())
}

fn write<T: Meet>(out: &mut [T], layout: &Layout, to: &Targets, values: &[T]) {
    match to {
        Targets::Along { axis, at, shape, mode } => {
            let to = Along { axis: *axis, rank: shape.len(), mode: *mode };
            to.write(out, layout, shape, at, values);
        }
        Targets::Places { plan, mode } => {
            // One after the other: several values may meet in one place.
            for (values, at) in values.chunks(plan.after.len().max(1)).zip(plan.starts(0)) {
                match plan.dense {
                    true => out[at..].iter_mut().zip(values).for_each(|(o, &x)| put(o, x, *mode)),
                    false => plan.after.iter().zip(values).for_each(|(&j, &x)| put(&mut out[at + j], x, *mode)),
                }
            }
        }
    }
}

struct Along {
    axis: usize,
    rank: usize,
    mode: ScatterMode,
}

impl Along {
    fn write<T: Meet>(&self, out: &mut [T], layout: &Layout, shape: &[usize], at: &[usize], values: &[T]) {
        if at.is_empty() {
            return;
        }
        if self.axis == 0 || !layout.is_contiguous() {
            self.rows(&mut out[layout.offset..], shape, &layout.strides, at, values);
            return;
        }
        // Slices of dimension 0 do not see each other.
        let out = &mut out[layout.offset..layout.offset + layout.numel()];
        let (unit, each) = (layout.numel() / layout.shape[0], at.len() / shape[0]);
        threads::for_chunks(out, unit, GRAIN, |start, out| {
            for (i, out) in out.chunks_mut(unit).enumerate().take(shape[0].saturating_sub(start / unit)) {
                let part = (start / unit + i) * each..(start / unit + i + 1) * each;
                self.rows(out, &shape[1..], &layout.strides[1..], &at[part.clone()], &values[part]);
            }
        });
    }

    /// Into an array, or a slice of its dimension 0, whose trailing dimensions have these strides.
    fn rows<T: Meet>(&self, out: &mut [T], shape: &[usize], strides: &[usize], at: &[usize], values: &[T]) {
        let axis = self.axis + shape.len() - self.rank;
        let last = shape.len() - 1;
        let (len, along) = (shape[last], strides[axis]);
        let mut outer: SmallVec<[usize; 4]> = SmallVec::from_slice(strides);
        outer[axis] = 0;
        let step = outer[last];
        let bases = Walk::new(&shape[..last], &outer, 0);
        for ((at, values), base) in at.chunks(len).zip(values.chunks(len)).zip(bases) {
            for (j, (&i, &x)) in at.iter().zip(values).enumerate() {
                put(&mut out[base + j * step + i * along], x, self.mode);
            }
        }
    }
}
