//! Moving elements without changing them: copies, writes through views, bytes, and finding what is not zero.
//!
//! Depends on `strided`. Invariant: `assign` is right also where source and target share a buffer.

use super::simd::with_word;
use super::strided::{copy_to, write_to};
use super::{Buffer, CpuArray};
use crate::shape::Layout;
use crate::{Error, Result};
use lucid_ir::backend::Array;
use lucid_ir::Meta;
use std::sync::Arc;

/// A row-major copy.
pub fn copy(x: &CpuArray) -> Result<CpuArray> {
    with_word!(x.dtype(), W => {
        let guard = x.read_words::<W>();
        CpuArray::build_words(x.shape(), x.dtype(), |out: &mut [W]| {
            copy_to(&x.source(&guard, x.shape()), out);
            Ok(())
        })
    })
}

/// Writes `src` over the elements that `dst` shows. The memory of a `donated` one, which nobody reads again, becomes `dst`'s
/// where both are all there is in their buffers and are alike.
pub fn assign(dst: &CpuArray, src: &CpuArray, donated: bool) -> Result<()> {
    if dst.dtype() != src.dtype() {
        let why = "the source of a write must have the target's dtype";
        return Err(Error::dtype("assign", why, &[dst.dtype(), src.dtype()]));
    }
    refuse_read_only("assign", dst)?;
    let all = |x: &CpuArray| x.layout.is_dense() && x.numel() == x.buffer.len();
    if donated && dst.layout == src.layout && all(dst) && all(src) && dst.buffer.swap(&src.buffer) {
        dst.touch();
        return Ok(());
    }
    if dst.buffer.overlaps(&src.buffer) {
        return assign(dst, &copy(src)?, true);
    }
    with_word!(dst.dtype(), W => {
        let (guard, mut to) =
            Buffer::both((&src.buffer, |_| src.read_words::<W>()), (&dst.buffer, Buffer::write_words::<W>))?;
        write_to(&src.source(&guard, dst.shape()), &mut to, &dst.layout);
    });
    dst.touch();
    Ok(())
}

/// An error where the elements are in memory that must not be written to.
pub fn refuse_read_only(op: &'static str, x: &CpuArray) -> Result<()> {
    if x.buffer.writable() {
        return Ok(());
    }
    Err(super::simd::read_only(op))
}

/// A new array from row-major bytes in native order.
pub fn from_bytes(bytes: &[u8], out: &Meta) -> Result<CpuArray> {
    from_writer(out, |own| {
        if bytes.len() != own.len() {
            let (shape, dtype) = (&out.shape, out.dtype);
            let why = format!("expected {} bytes for {shape:?} of {dtype}, got {}", own.len(), bytes.len());
            return Err(Error::value("from_bytes", why));
        }
        own.copy_from_slice(bytes);
        Ok(())
    })
}

/// A new array whose row-major bytes, in native order, a function writes.
pub fn from_writer(out: &Meta, write: impl FnOnce(&mut [u8]) -> Result<()>) -> Result<CpuArray> {
    let layout = Layout::contiguous(&out.shape);
    let mut buffer = super::Buffer::uninit(out.dtype, layout.numel())?;
    buffer.fill_by(write)?;
    Ok(CpuArray { buffer: Arc::new(buffer), layout, dtype: out.dtype, apart: None })
}

/// Writes row-major bytes, in native order, over all elements of an array that has them so.
///
/// # Panics
/// Where the array is not row-major.
pub fn overwrite(dst: &CpuArray, write: impl FnOnce(&mut [u8]) -> Result<()>) -> Result<()> {
    refuse_read_only("assign", dst)?;
    assert!(dst.layout.is_contiguous(), "bytes for an array that is not row-major");
    let size = dst.dtype().size();
    let start = dst.layout.offset * size;
    dst.buffer.overwrite_by(start..start + dst.numel() * size, write)?;
    dst.touch();
    Ok(())
}

/// Hands over row-major bytes in native order.
pub fn with_bytes(x: &CpuArray, f: &mut dyn FnMut(&[u8])) -> Result<()> {
    // A view of nothing may start beyond its storage.
    if x.numel() == 0 {
        f(&[]);
        return Ok(());
    }
    // Others may have put bytes there that are neither 0 nor 1.
    let x = if x.dtype() == crate::DType::Bool && x.buffer.is_open() { copy(x)? } else { x.contiguous()? };
    let size = x.dtype().size();
    let start = x.layout.offset * size;
    let bytes = x.buffer.read_bytes();
    f(&bytes[start..start + x.numel() * size]);
    Ok(())
}

/// Indices of the elements that are not zero, one column of `ndim` numbers each.
pub fn nonzero(x: &CpuArray) -> Result<CpuArray> {
    let flags = super::cast::cast(x, crate::DType::Bool)?.contiguous()?;
    let guard = flags.read::<bool>();
    let flags = flags.slice(&guard);
    let count = flags.iter().filter(|&&f| f).count();
    let shape = x.shape();
    CpuArray::build::<i64>(&[shape.len(), count], |out| {
        let Some((&last, lead)) = shape.split_last() else { return Ok(()) };
        let (outer, inner) = out.split_at_mut(lead.len() * count);
        let mut at = 0;
        for (i, row) in flags.chunks(last.max(1)).enumerate() {
            let start = at;
            // Every place is written, and kept where it counts: conditions without a pattern would mislead a branch.
            for (k, &f) in row.iter().enumerate() {
                let Some(place) = inner.get_mut(at) else { break };
                *place = k as i64;
                at += usize::from(f);
            }
            let mut i = i;
            for (axis, &n) in lead.iter().enumerate().rev() {
                outer[axis * count..][start..at].fill((i % n) as i64);
                i /= n;
            }
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{array, show};
    use crate::DType;
    use smallvec::smallvec;

    #[test]
    fn writes_go_through_views() {
        let x = array(&[2, 3], &[1i32, 2, 3, 4, 5, 6]);
        let t = x.with_layout(Layout { shape: smallvec![3, 2], strides: smallvec![1, 3], offset: 0 });
        assert_eq!(show::<i32>(&t), [1, 4, 2, 5, 3, 6]);
        // Onto its own transpose: the old elements count.
        let square = array(&[2, 2], &[1i32, 2, 3, 4]);
        let flipped = square.with_layout(Layout { shape: smallvec![2, 2], strides: smallvec![1, 2], offset: 0 });
        assign(&square, &flipped, false).unwrap();
        assert_eq!(show::<i32>(&square), [1, 3, 2, 4]);
        let column = x.with_layout(Layout { shape: smallvec![2], strides: smallvec![3], offset: 1 });
        assign(&column, &array(&[1], &[9i32]), false).unwrap();
        assert_eq!((show::<i32>(&x), x.version()), (vec![1, 9, 3, 4, 9, 6], 1));
        assert!(assign(&x, &array(&[2, 3], &[0f32; 6]), false).is_err());
    }

    #[test]
    fn bytes_go_both_ways() {
        let x = array(&[2, 2], &[1u8, 2, 3, 4]);
        let t = x.with_layout(Layout { shape: smallvec![2, 2], strides: smallvec![1, 2], offset: 0 });
        let mut bytes = Vec::new();
        with_bytes(&t, &mut |b| bytes = b.to_vec()).unwrap();
        assert_eq!(bytes, [1, 3, 2, 4]);
        let meta = Meta { shape: smallvec![2], dtype: DType::Bool };
        assert_eq!(show::<bool>(&from_bytes(&[0, 5], &meta).unwrap()), [false, true]);
        assert!(from_bytes(&[0], &meta).is_err());
    }

    #[test]
    fn bytes_are_written_in_place() {
        let x = array(&[2, 3], &[1i16, 2, 3, 4, 5, 6]);
        let row = x.with_layout(Layout { shape: smallvec![3], strides: smallvec![1], offset: 3 });
        let write = |to: &mut [u8]| {
            assert_eq!(to.len(), 6);
            to.fill(0);
            Ok(())
        };
        overwrite(&row, write).unwrap();
        assert_eq!((show::<i16>(&x), x.version()), (vec![1, 2, 3, 0, 0, 0], 1));
        let flags = array(&[2], &[false, true]);
        overwrite(&flags, |to| {
            to.copy_from_slice(&[7, 0]);
            Ok(())
        })
        .unwrap();
        assert_eq!(show::<bool>(&flags), [true, false]);
        assert!(overwrite(&flags, |_| Err(Error::value("x", "y"))).is_err());
    }

    #[test]
    fn nonzero_lists_indices() {
        let x = array(&[2, 2], &[0f32, f32::NAN, -1.0, 0.0]);
        assert_eq!(show::<i64>(&nonzero(&x).unwrap()), [0, 1, 1, 0]);
        let x: Vec<bool> = (0..24).map(|i| i * i % 7 < 3).collect();
        let hits: Vec<i64> = (0..24).filter(|&i| x[i as usize]).collect();
        let parts = |f: fn(i64) -> i64| hits.iter().map(move |&i| f(i));
        let want: Vec<i64> = parts(|i| i / 12).chain(parts(|i| i / 4 % 3)).chain(parts(|i| i % 4)).collect();
        assert_eq!(show::<i64>(&nonzero(&array(&[2, 3, 4], &x)).unwrap()), want);
        assert_eq!(show::<i64>(&nonzero(&array(&[24], &x)).unwrap()), hits);
        assert_eq!(nonzero(&array(&[], &[true])).unwrap().shape(), [0, 1]);
        assert_eq!(nonzero(&array::<f32>(&[0, 3], &[])).unwrap().shape(), [2, 0]);
    }
}
