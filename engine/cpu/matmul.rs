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
use crate::{with_computed_dtype, DType, Result};
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
    let (a, b) = (Operand::of(a)?, Operand::of(b)?);
    let (x, y) = (a.array.read::<T>(), b.array.read::<T>());
    CpuArray::build(shape, |c| {
        multiply((&a, &x), (&b, &y), shape, c);
        Ok(())
    })
}

/// The product of two float32 matrices, written to the elements of `out`; false, and nothing written, unless it is a row-major
/// matrix of the product's sizes whose memory is no operand's.
///
/// # Errors
/// `RuntimeError` where `out` is read-only.
pub fn matmul_into(a: &CpuArray, b: &CpuArray, out: &CpuArray) -> Result<bool> {
    let sizes = match (a.shape(), b.shape()) {
        ([m, k], [rows, n]) if k == rows => [*m, *n],
        _ => return Ok(false),
    };
    let own = [a, b].iter().all(|x| !x.buffer.overlaps(&out.buffer));
    let float = [a, b, out].iter().all(|x| x.dtype() == DType::F32);
    if !own || !float || out.shape() != sizes || !out.layout().is_contiguous() {
        return Ok(false);
    }
    let (a, b) = (Operand::of(a)?, Operand::of(b)?);
    // Guards of buffers at lower addresses come first, as in `Buffer::both`.
    let before = |x: &Operand| std::ptr::from_ref(&*x.array.buffer) < std::ptr::from_ref(&*out.buffer);
    let [x, y] = [&a, &b].map(|x| before(x).then(|| x.array.read::<f32>()));
    let mut to = out.write::<f32>()?;
    let (x, y) = (x.unwrap_or_else(|| a.array.read()), y.unwrap_or_else(|| b.array.read()));
    multiply((&a, &x), (&b, &y), &sizes, out.slice_mut(&mut to));
    out.touch();
    Ok(true)
}

/// An operand that BLAS can read.
struct Operand {
    array: CpuArray,
    ld: usize,
    trans: bool,
}

impl Operand {
    fn of(x: &CpuArray) -> Result<Operand> {
        let (array, ld, trans) = readable(x)?;
        Ok(Operand { array, ld, trans })
    }

    /// The matrix that begins at an element.
    fn matrix<'a, T>(&self, data: &'a [T], at: usize) -> Matrix<'a, T> {
        Matrix { data: &data[at..], ld: self.ld, trans: self.trans }
    }
}

/// Writes the products of a batch to `c`.
fn multiply<T: Gemm>((a, x): (&Operand, &[T]), (b, y): (&Operand, &[T]), shape: &[usize], c: &mut [T]) {
    let rank = shape.len();
    let (m, n) = (shape[rank - 2], shape[rank - 1]);
    let k = a.array.shape()[a.array.shape().len() - 1];
    if c.is_empty() {
        return;
    }
    if k == 0 {
        c.fill(T::ZERO);
        return;
    }
    let (at, bt) = (starts(&a.array, &shape[..rank - 2]), starts(&b.array, &shape[..rank - 2]));
    let of = |i: usize| Product::of([m, n, k], a.matrix(x, at[i]), b.matrix(y, bt[i]));
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
            gemm_here(&of(first / (m * n) + i), c);
        }
    });
    for (i, c) in (shared..).zip(rest.chunks_mut(m * n)) {
        gemm(&of(i), c);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{array, layouts, show};
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
    fn products_in_memory_that_is_there() {
        let out = array(&[2, 2], &[0f32; 4]);
        for (a, b) in layouts(&[2, 3], &[1f32, 2.0, 3.0, 4.0, 5.0, 6.0])
            .iter()
            .zip(&layouts(&[3, 2], &[7f32, 8.0, 9.0, 10.0, 11.0, 12.0]))
        {
            out.slice_mut(&mut out.write::<f32>().unwrap()).fill(-1.0);
            assert!(matmul_into(a, b, &out).unwrap());
            assert_eq!(show::<f32>(&out), [58f32, 64.0, 139.0, 154.0]);
        }
        let none = array::<f32>(&[2, 0], &[]);
        assert!(matmul_into(&none, &array(&[0, 2], &[] as &[f32]), &out).unwrap());
        assert_eq!(show::<f32>(&out), [0.0; 4]);
        let transposed = out.with_layout(Layout { shape: smallvec![2, 2], strides: smallvec![1, 2], offset: 0 });
        let other = array(&[2, 2], &[1f64; 4]);
        let x = array(&[2, 2], &[1f32; 4]);
        for (a, b, to) in
            [(&out, &x, &out), (&x, &x, &transposed), (&x, &other, &out), (&x, &array(&[3, 2], &[0f32; 6]), &out)]
        {
            assert!(!matmul_into(a, b, to).unwrap());
        }
    }

    #[test]
    fn empty_products() {
        let (a, b) = (array::<f32>(&[2, 0], &[]), array::<f32>(&[0, 3], &[]));
        assert_eq!(show::<f32>(&matmul(&a, &b, &meta(&[2, 3], DType::F32)).unwrap()), [0.0; 6]);
        let none = array::<f32>(&[0, 2], &[]);
        assert_eq!(matmul(&none, &array(&[2, 1], &[1f32; 2]), &meta(&[0, 1], DType::F32)).unwrap().shape(), [0, 1]);
    }
}
