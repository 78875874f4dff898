//! Sums of rows of a table, bag by bag, each row read once.
//!
//! Depends on `index` and `simd`. Sums go on in the type that elements are computed in; 16-bit floats are rounded once.
//! Invariant: an index that is out of range is an error, and nothing is read by it.

use super::fused::{with_float, Compute, Float};
use super::index::{changed, within};
use super::simd::{run, threads, Task, Wide};
use super::CpuArray;
use crate::fallible::scratch;
use crate::{Error, Result};
use lucid_ir::Meta;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

const OP: &str = "embedding_sum";

/// Some bags: as many indices each, and a factor for each index or none.
struct Bags<'a, T: Wide> {
    table: &'a [T],
    size: usize,
    length: usize,
    index: &'a [i64],
    factors: Option<&'a [T]>,
    scale: T::W,
    sum: &'a mut [T::W],
    out: &'a mut [T],
}

impl<T: Wide<W: Compute>> Task for Bags<'_, T> {
    type Out = bool;
    /// Were all indices in range?
    #[inline(always)]
    fn run<const F: bool>(self) -> bool {
        let Bags { table, size, length, index, factors, scale, sum, out } = self;
        for (bag, out) in out.chunks_mut(size).enumerate() {
            sum.fill(T::W::of(0.0));
            for at in bag * length..(bag + 1) * length {
                let row = usize::try_from(index[at]).ok().and_then(|i| table.chunks_exact(size).nth(i));
                let Some(row) = row else { return false };
                match factors {
                    Some(factors) => {
                        let f = factors[at].widen();
                        sum.iter_mut().zip(row).for_each(|(s, x)| *s = *s + f * x.widen());
                    }
                    None => sum.iter_mut().zip(row).for_each(|(s, x)| *s = *s + x.widen()),
                }
            }
            out.iter_mut().zip(&*sum).for_each(|(o, &s)| *o = T::narrow(s * scale));
        }
        true
    }
}

/// `scale` times the sum of the rows of a table (count, size) at the last dimension of indices, each times its factor.
pub fn sum(inputs: &[&CpuArray], scale: f64, out: &Meta) -> Result<CpuArray> {
    let (table, index, factors) = match *inputs {
        [table, index] => (table, index, None),
        [table, index, factors] => (table, index, Some(factors)),
        _ => return Err(Error::runtime(OP, format!("does not take {} arrays", inputs.len()))),
    };
    with_float!("embedding_sum", out.dtype, T => sum_of::<T>(table, index, factors, scale, out))
}

fn sum_of<T: Float>(
    table: &CpuArray,
    index: &CpuArray,
    factors: Option<&CpuArray>,
    scale: f64,
    out: &Meta,
) -> Result<CpuArray> {
    let (table, index) = (table.contiguous()?, index.contiguous()?);
    let factors = factors.map(|f| f.contiguous()).transpose()?;
    let (table_guard, index_guard) = (table.read::<T>(), index.read::<i64>());
    let factors_guard = factors.as_ref().map(|f| f.read::<T>());
    let (rows, at) = (table.slice(&table_guard), index.slice(&index_guard));
    let factors = factors.as_ref().zip(factors_guard.as_ref()).map(|(f, guard)| f.slice(guard));
    let length = index.shape().last().copied().unwrap_or(1);
    let size = out.shape.last().copied().unwrap_or(1);
    let count = table.shape().first().copied().unwrap_or(0);
    within(OP, at, 0, count, 0)?;
    let fine = AtomicBool::new(true);
    let made = CpuArray::build(&out.shape, |out: &mut [T]| {
        if out.is_empty() {
            return Ok(());
        }
        let grain = (threads::GRAIN / length.max(1)).max(size);
        threads::for_chunks(out, size, grain, |first, out| {
            let (from, bags) = (first / size * length, out.len() / size);
            let index = &at[from..from + bags * length];
            let factors = factors.map(|f| &f[from..from + bags * length]);
            let mut sum = scratch(T::W::of(0.0), size);
            let scale = T::W::of(scale);
            let done = run(Bags { table: rows, size, length, index, factors, scale, sum: &mut sum, out });
            if !done {
                fine.store(false, Relaxed);
            }
        });
        Ok(())
    })?;
    match fine.into_inner() {
        true => Ok(made),
        false => Err(changed(OP)),
    }
}
