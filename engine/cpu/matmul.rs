//! Batched matrix products.
//!
//! Depends on `blas`. A transposed operand is handed on as such, without a copy; batches broadcast by their strides.
//! Invariant: only an operand that has no dense dimension is copied.

use super::blas::{gemm, gemm_here, Gemm, Matrix, Product};
use super::index::stored_only;
use super::simd::threads;
use super::CpuArray;
use crate::fallible::scratch_from;
use crate::shape::Layout;
use crate::{with_computed_dtype, Result};
use lucid_ir::backend::Array;
use lucid_ir::Meta;

/// Multiplications below which all products of a batch are shared out over the pool as wholes.
const SMALL: usize = 1 << 21;

/// (row length as stored, transposed?) of the last two dimensions, where BLAS can read them.
fn storage(layout: &Layout) -> Option<(usize, bool)> {
    let n = layout.ndim();
    let (rows, cols) = (layout.shape[n - 2], layout.shape[n - 1]);
    let (down, right) = (layout.strides[n - 2], layout.strides[n - 1]);
    if (right == 1 || cols <= 1) && (down >= cols || rows <= 1) {
        return Some((if rows <= 1 { cols.max(1) } else { down.max(1) }, false));
    }
    if (down == 1 || rows <= 1) && (right >= rows || cols <= 1) {
        return Some((if cols <= 1 { rows.max(1) } else { right.max(1) }, true));
    }
    None
}

/// The array, or a copy of it, with what [`storage`] says.
pub(super) fn readable(x: &CpuArray) -> Result<(CpuArray, usize, bool)> {
    if let Some((ld, trans)) = storage(x.layout()) {
        return Ok((x.clone(), ld, trans));
    }
    let x = super::copy::copy(x)?;
    let ld = x.shape()[x.shape().len() - 1].max(1);
    Ok((x, ld, false))
}

/// `a @ b`, over broadcast batches.
pub fn matmul(a: &CpuArray, b: &CpuArray, out: &Meta) -> Result<CpuArray> {
    with_computed_dtype!(out.dtype, T => product::<T>(a, b, &out.shape), dtype => Err(stored_only("matmul", dtype)))
}

/// Where each matrix of the batch begins.
pub(super) fn starts(x: &CpuArray, batch: &[usize]) -> Vec<usize> {
    let Layout { shape, strides, offset } = x.layout();
    let n = shape.len() - 2;
    let lead = Layout { shape: shape[..n].into(), strides: strides[..n].into(), offset: *offset }.broadcast_to(batch);
    let mut out = vec![lead.offset];
    for (&n, &s) in lead.shape.iter().zip(&lead.strides) {
        out = scratch_from(out.iter().flat_map(|&start| (0..n).map(move |i| start + i * s)));
    }
    out
}

fn product<T: Gemm>(a: &CpuArray, b: &CpuArray, shape: &[usize]) -> Result<CpuArray> {
    let rank = shape.len();
    let (m, n) = (shape[rank - 2], shape[rank - 1]);
    let k = a.shape()[a.shape().len() - 1];
    let ((a, lda, ta), (b, ldb, tb)) = (readable(a)?, readable(b)?);
    let (x, y) = (a.read::<T>(), b.read::<T>());
    CpuArray::build(shape, |c| {
        if c.is_empty() {
            return Ok(());
        }
        if k == 0 {
            c.fill(T::ZERO);
            return Ok(());
        }
        let (at, bt) = (starts(&a, &shape[..rank - 2]), starts(&b, &shape[..rank - 2]));
        let left = |i: usize| Matrix { data: &x[at[i]..], ld: lda, trans: ta };
        let right = |i: usize| Matrix { data: &y[bt[i]..], ld: ldb, trans: tb };
        let work = m.saturating_mul(n).saturating_mul(k);
        // Small ones as wholes, and large ones as long as every thread has one; Accelerate splits these on its own.
        let shared = match at.len() {
            1 => 0,
            count if work < SMALL => count,
            _ if cfg!(accelerate) => 0,
            count => count - count % threads::num_threads(),
        };
        let (whole, rest) = c.split_at_mut(shared * m * n);
        let together = (SMALL / 4 / work).max(1) * m * n;
        threads::for_chunks(whole, m * n, together, |first, c| {
            for (i, c) in c.chunks_mut(m * n).enumerate() {
                let i = first / (m * n) + i;
                gemm_here(&Product::of([m, n, k], left(i), right(i)), c);
            }
        });
        for (i, c) in (shared..).zip(rest.chunks_mut(m * n)) {
            gemm(&Product::of([m, n, k], left(i), right(i)), c);
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{array, layouts, show};
    use crate::DType;
    use smallvec::smallvec;

    fn meta(shape: &[usize], dtype: DType) -> Meta {
        Meta { shape: shape.into(), dtype }
    }

    #[test]
    fn products_of_every_layout() {
        let want = [58f32, 64.0, 139.0, 154.0];
        for a in layouts(&[2, 3], &[1f32, 2.0, 3.0, 4.0, 5.0, 6.0]) {
            for b in layouts(&[3, 2], &[7f32, 8.0, 9.0, 10.0, 11.0, 12.0]) {
                assert_eq!(show::<f32>(&matmul(&a, &b, &meta(&[2, 2], DType::F32)).unwrap()), want);
            }
        }
    }

    #[test]
    fn batches_broadcast() {
        let a = array(&[2, 1, 1, 2], &[1i64, 2, 3, 4]);
        let b = array(&[3, 2, 1], &[1i64, 0, 0, 1, 1, 1]);
        let y = matmul(&a, &b, &meta(&[2, 3, 1, 1], DType::I64)).unwrap();
        assert_eq!(show::<i64>(&y), [1, 2, 3, 3, 4, 7]);
        // Rows that are one row repeated, columns that are one column.
        let row = array(&[1, 2], &[1f32, 2.0]);
        let rows = row.with_layout(Layout { shape: smallvec![3, 2], strides: smallvec![0, 1], offset: 0 });
        let column = row.with_layout(Layout { shape: smallvec![2, 3], strides: smallvec![1, 0], offset: 0 });
        let y = matmul(&rows, &column, &meta(&[3, 3], DType::F32)).unwrap();
        assert_eq!(show::<f32>(&y), [5.0; 9]);
    }

    #[test]
    fn empty_products() {
        let (a, b) = (array::<f32>(&[2, 0], &[]), array::<f32>(&[0, 3], &[]));
        assert_eq!(show::<f32>(&matmul(&a, &b, &meta(&[2, 3], DType::F32)).unwrap()), [0.0; 6]);
        let none = array::<f32>(&[0, 2], &[]);
        assert_eq!(matmul(&none, &array(&[2, 1], &[1f32; 2]), &meta(&[0, 1], DType::F32)).unwrap().shape(), [0, 1]);
    }
}
