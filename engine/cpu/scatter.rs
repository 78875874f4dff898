//! Writing at indices: `scatter` along one dimension, and advanced indexing's `index_put`, into a copy or in place.
//!
//! Depends on `index` for ranges and offsets, and on `simd`. Invariant: every index is checked before anything is written,
//! and what is written does not depend on the number of threads: values that meet are taken in their own order.

use super::index::{changed, stored_only, within, Walk, GRAIN};
use super::index_plan::{IndexGuards, Plan};
use super::simd::{threads, Extreme, Sum};
use super::strided::copy_to;
use super::{Buffer, CpuArray};
use crate::dtype::Element;
use crate::shape::Layout;
use crate::{with_computed_dtype, Error, Result};
use lucid_ir::backend::Array;
use lucid_ir::ops::index::{IndexOp, ScatterMode};
use num_complex::{Complex32, Complex64};
use smallvec::SmallVec;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Elements that may meet in one place.
pub(super) trait ScatterReduce: Element + Sum {
    /// The larger or the smaller of two; NaN wins.
    fn better(a: Self, b: Self, largest: bool) -> Self;
}

macro_rules! scatter_reduce {
    ($($t:ty)*) => {$(
        impl ScatterReduce for $t {
            #[inline(always)]
            fn better(a: $t, b: $t, largest: bool) -> $t {
                let wins = if largest { <$t>::beats::<true>(b, a) } else { <$t>::beats::<false>(b, a) };
                if wins { b } else { a }
            }
        }
    )*};
}
scatter_reduce!(bool u8 i8 i16 i32 i64 half::f16 half::bf16 f32 f64);

// Complex numbers have no order: the table lets none come here.
impl ScatterReduce for Complex32 {
    fn better(a: Complex32, _: Complex32, _: bool) -> Complex32 {
        a
    }
}
impl ScatterReduce for Complex64 {
    fn better(a: Complex64, _: Complex64, _: bool) -> Complex64 {
        a
    }
}

/// Writes one element where another is.
#[inline(always)]
pub(super) fn put<T: ScatterReduce>(to: &mut T, x: T, mode: ScatterMode) {
    *to = match mode {
        ScatterMode::Set => x,
        ScatterMode::Add => T::narrow(T::add(to.widen(), x.widen())),
        ScatterMode::Prod => T::finish(T::times(T::acc(to.widen()), T::acc(x.widen()))),
        ScatterMode::Max => T::better(*to, x, true),
        ScatterMode::Min => T::better(*to, x, false),
    }
}

/// Where values go in an array of some layout, and what happens there.
#[allow(clippy::large_enum_variant)] // There is one at a time.
enum Targets<'a> {
    Along { axis: usize, at: &'a [i64], shape: &'a [usize], mode: ScatterMode },
    Places { plan: Plan<'a>, mode: ScatterMode },
}

/// What an op writes: the values, and the index arrays that say where.
struct Parts<'a> {
    values: &'a CpuArray,
    /// Row-major where there is one of the values' shape.
    at: SmallVec<[CpuArray; 2]>,
}

/// The values and the indices of an op; an index that shows the memory of `dst` is copied.
fn parts<'a>(op: &IndexOp, dst: Option<&CpuArray>, rest: &[&'a CpuArray]) -> Result<Parts<'a>> {
    let (values, at, dense): (&CpuArray, &[&CpuArray], bool) = match (op, rest) {
        (IndexOp::Scatter { .. } | IndexOp::Reduce { .. }, [at, src]) => (src, std::slice::from_ref(at), true),
        (IndexOp::IndexPut { .. }, [values, at @ ..]) => (values, at, false),
        _ => return Err(Error::runtime(op.name(), format!("writes nothing of {} arrays", rest.len()))),
    };
    let shared = |i: &CpuArray| dst.is_some_and(|dst| dst.buffer().overlaps(i.buffer()));
    let own = |i: &&CpuArray| match shared(i) {
        true => super::copy::copy(i),
        false if dense => i.contiguous(),
        false => Ok((*i).clone()),
    };
    Ok(Parts { values, at: at.iter().map(own).collect::<Result<_>>()? })
}

/// The targets of an op in an array of this layout, all in range.
fn targets<'a>(
    op: &IndexOp,
    x: &Layout,
    values: &CpuArray,
    arrays: &'a [CpuArray],
    guards: &'a IndexGuards<'_>,
) -> Result<Targets<'a>> {
    match (op, arrays, guards.as_slice()) {
        (IndexOp::Scatter { axis, mode } | IndexOp::Reduce { axis, mode }, [at], [guard]) => {
            let shape = at.shape();
            if shape.len() != x.ndim() || values.shape() != shape || shape.is_empty() {
                let why = "index and source must have one shape";
                return Err(Error::shape("scatter", why, &[&x.shape, shape, values.shape()]));
            }
            let at = at.slice(guard);
            within("scatter", at, *axis, x.shape[*axis], 0)?;
            Ok(Targets::Along { axis: *axis, at, shape, mode: *mode })
        }
        (IndexOp::IndexPut { axes, accumulate, strict }, ..) => {
            let mode = if *accumulate { ScatterMode::Add } else { ScatterMode::Set };
            let refs: SmallVec<[&CpuArray; 2]> = arrays.iter().collect();
            let plan = Plan::new("index_put", x, (axes, *strict), (&refs, guards), values.shape())?;
            plan.check()?;
            Ok(Targets::Places { plan, mode })
        }
        _ => Err(Error::runtime(op.name(), format!("writes nothing at {} indices", arrays.len()))),
    }
}

/// A copy of the first input with the op's values written.
pub(super) fn scattered(op: &IndexOp, inputs: &[&CpuArray]) -> Result<CpuArray> {
    let (x, layout) = (inputs[0], Layout::contiguous(inputs[0].shape()));
    let Parts { values, at } = parts(op, None, &inputs[1..])?;
    let guards: IndexGuards = at.iter().map(|i| i.read::<i64>()).collect();
    let to = targets(op, &layout, values, &at, &guards)?;
    let values = values.contiguous()?;
    with_computed_dtype!(x.dtype(), T => {
        let (guard, values_guard) = (x.read::<T>(), values.read::<T>());
        let values = values.slice(&values_guard);
        CpuArray::build(x.shape(), |out: &mut [T]| {
            copy_to(&x.source(&guard, x.shape()), out);
            write(op, out, &layout, &to, values)
        })
    }, dtype => Err(stored_only(op.name(), dtype)))
}

/// The same over `dst` itself. What is written may share its storage.
pub(super) fn scatter_into(op: &IndexOp, dst: &CpuArray, rest: &[&CpuArray]) -> Result<()> {
    super::copy::refuse_read_only(op.name(), dst)?;
    let Parts { values, at } = parts(op, Some(dst), rest)?;
    let values = match dst.buffer().overlaps(values.buffer()) {
        true => super::copy::copy(values)?,
        false => values.contiguous()?,
    };
    with_computed_dtype!(dst.dtype(), T => {
        // Buffers are locked in the order of their addresses, as `Buffer::both` does.
        let before = |b: &Buffer| std::ptr::from_ref(b) < std::ptr::from_ref(&**dst.buffer());
        let early = |i: &'_ CpuArray| before(i.buffer());
        let first: SmallVec<[Option<_>; 2]> = at.iter().map(|i| early(i).then(|| i.read::<i64>())).collect();
        let values_first = early(&values).then(|| values.read::<T>());
        let mut into = dst.write::<T>()?;
        let guards: IndexGuards =
            first.into_iter().zip(&at).map(|(g, i)| g.unwrap_or_else(|| i.read::<i64>())).collect();
        let values_guard = values_first.unwrap_or_else(|| values.read::<T>());
        let to = targets(op, dst.layout(), &values, &at, &guards)?;
        write(op, &mut into, dst.layout(), &to, values.slice(&values_guard))?;
    }, dtype => return Err(stored_only(op.name(), dtype)));
    dst.touch();
    Ok(())
}

/// Writes the values. All indices were in range before; one that is not any more is an error.
fn write<T: ScatterReduce>(op: &IndexOp, out: &mut [T], layout: &Layout, to: &Targets, values: &[T]) -> Result<()> {
    let fine = match to {
        Targets::Along { axis, at, shape, mode } => {
            let to = Along { axis: *axis, size: layout.shape[*axis], rank: shape.len(), mode: *mode };
            to.write(out, layout, shape, at, values)
        }
        Targets::Places { plan, mode } => {
            // One after the other: several values may meet in one place.
            let (n, (len, step)) = (plan.run.max(1), plan.row());
            plan.runs(0, values.len() / n, |done, base, at| {
                if n == 1 {
                    let out = &mut out[base..];
                    let each = values[done..].iter().zip(at);
                    return match mode {
                        ScatterMode::Add => each.for_each(|(&x, &at)| put(&mut out[at], x, ScatterMode::Add)),
                        _ => each.for_each(|(&x, &at)| put(&mut out[at], x, *mode)),
                    };
                }
                for (values, at) in values[done * n..].chunks_exact(n).zip(at) {
                    plan.rows(|start, row| {
                        let (row, values) = (base + at + row, &values[start..start + len]);
                        match step {
                            1 => out[row..row + len].iter_mut().zip(values).for_each(|(o, &x)| put(o, x, *mode)),
                            _ => values.iter().enumerate().for_each(|(j, &x)| put(&mut out[row + j * step], x, *mode)),
                        }
                    });
                }
            })
        }
    };
    if fine {
        Ok(())
    } else {
        Err(changed(op.name()))
    }
}

struct Along {
    axis: usize,
    /// Of the dimension that is indexed.
    size: usize,
    rank: usize,
    mode: ScatterMode,
}

impl Along {
    /// False where an index is out of range.
    fn write<T: ScatterReduce>(
        &self,
        out: &mut [T],
        layout: &Layout,
        shape: &[usize],
        at: &[i64],
        values: &[T],
    ) -> bool {
        if at.is_empty() {
            return true;
        }
        if self.axis == 0 || !layout.is_contiguous() {
            return self.rows(&mut out[layout.offset..], shape, &layout.strides, at, values);
        }
        // Slices of dimension 0 do not see each other.
        let out = &mut out[layout.offset..layout.offset + layout.numel()];
        let (unit, each) = (layout.numel() / layout.shape[0], at.len() / shape[0]);
        let bad = AtomicBool::new(false);
        threads::for_chunks(out, unit, GRAIN, |start, out| {
            for (i, out) in out.chunks_mut(unit).enumerate().take(shape[0].saturating_sub(start / unit)) {
                let part = (start / unit + i) * each..(start / unit + i + 1) * each;
                if !self.rows(out, &shape[1..], &layout.strides[1..], &at[part.clone()], &values[part]) {
                    bad.store(true, Relaxed);
                }
            }
        });
        !bad.into_inner()
    }

    /// Into an array, or a slice of its dimension 0, whose trailing dimensions have these strides.
    fn rows<T: ScatterReduce>(
        &self,
        out: &mut [T],
        shape: &[usize],
        strides: &[usize],
        at: &[i64],
        values: &[T],
    ) -> bool {
        let axis = self.axis + shape.len() - self.rank;
        let last = shape.len() - 1;
        let (len, along) = (shape[last], strides[axis]);
        let mut outer: SmallVec<[usize; 4]> = SmallVec::from_slice(strides);
        outer[axis] = 0;
        let step = outer[last];
        let bases = Walk::new(&shape[..last], &outer, 0);
        let mut inside = true;
        for ((at, values), base) in at.chunks(len).zip(values.chunks(len)).zip(bases) {
            for (j, (&i, &x)) in at.iter().zip(values).enumerate() {
                // Each index is read once: what is checked is what is used, whoever else writes to it.
                match (i as usize) < self.size {
                    true => put(&mut out[base + j * step + i as usize * along], x, self.mode),
                    false => inside = false,
                }
            }
        }
        inside
    }
}
