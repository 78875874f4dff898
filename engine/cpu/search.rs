//! Where values belong in sorted rows.
//!
//! Depends on `sort` for the order of elements. Invariant: NaN is the largest number, and -0 equals 0.

use super::simd::threads;
use super::sort::Ordered;
use super::CpuArray;
use crate::Result;
use lucid_ir::Meta;

/// For each value the place in its sorted row where it belongs: before its equals, or with `right` behind them. NaN
/// belongs behind all.
pub(super) fn search<T: Ordered>(rows: &CpuArray, values: &CpuArray, right: bool, out: &Meta) -> Result<CpuArray> {
    let n = rows.shape().last().copied().unwrap_or(0);
    let (rows, values) = (rows.contiguous()?, values.contiguous()?);
    let (rows_guard, guard) = (rows.read::<T>(), values.read::<T>());
    let (rows, values) = (rows.slice(&rows_guard), values.slice(&guard));
    CpuArray::build(&out.shape, |out: &mut [i64]| {
        if n == 0 {
            out.fill(0);
            return Ok(());
        }
        let each = (values.len() / (rows.len() / n).max(1)).max(1);
        threads::for_chunks(out, 1, threads::GRAIN / 16, |start, out| {
            let mut at = start;
            let mut out = out;
            while !out.is_empty() {
                let row = at / each;
                let (now, rest) = out.split_at_mut(out.len().min((row + 1) * each - at));
                let of = Places { row: &rows[row * n..(row + 1) * n], values: &values[at..at + now.len()], right };
                at += now.len();
                of.write(now);
                out = rest;
            }
        });
        Ok(())
    })
}

/// How many elements of a sorted row, which is not empty, come before each value; with `right` its equals do. NaN comes behind
/// all.
struct Places<'a, T> {
    row: &'a [T],
    values: &'a [T],
    right: bool,
}

/// Values that are looked for at once, so that one does not wait for what another reads.
const TOGETHER: usize = 8;

impl<T: Ordered> Places<'_, T> {
    fn write(&self, out: &mut [i64]) {
        let (groups, rest) = self.values.as_chunks::<TOGETHER>();
        let (whole, tail) = out.split_at_mut(groups.len() * TOGETHER);
        for (out, values) in whole.chunks_mut(TOGETHER).zip(groups) {
            out.copy_from_slice(&self.find(*values).map(|at| at as i64));
        }
        for (out, &value) in tail.iter_mut().zip(rest) {
            *out = self.find([value])[0] as i64;
        }
    }

    /// Halves are chosen by arithmetic: where values come in no order, every other guess of a branch would be wrong.
    #[inline]
    fn find<const N: usize>(&self, values: [T; N]) -> [usize; N] {
        let (row, right) = (self.row, self.right);
        let (keys, last) = (values.map(T::key), values.map(|x| x.is_nan()));
        let before = |i: usize, y: T| {
            let y = y.key();
            last[i] | (y < keys[i]) | (right & (y == keys[i]))
        };
        let (mut base, mut size) = ([0; N], row.len());
        while size > 1 {
            let half = size / 2;
            for i in 0..N {
                base[i] += half * usize::from(before(i, row[base[i] + half - 1]));
            }
            size -= half;
        }
        for i in 0..N {
            base[i] += usize::from(before(i, row[base[i]]));
        }
        base
    }
}
