//! Elements seen as bytes, and made of bytes.
//!
//! Depends on `dtype`. Invariant: no `bool` is ever made of another byte than 0 or 1.

use crate::dtype::{DType, Element};
use crate::error::Result;
use crate::fallible::filled;

/// The memory of a slice of elements.
pub fn as_bytes<T: Element>(data: &[T]) -> &[u8] {
    // SAFETY: no element type has padding, so that every byte is initialised; u8 has no alignment; the size is the slice's.
    unsafe { std::slice::from_raw_parts(data.as_ptr().cast(), std::mem::size_of_val(data)) }
}

/// The elements that bytes stand for; what is left over of an incomplete one is dropped.
///
/// # Errors
/// `OutOfMemory`.
pub fn from_bytes<T: Element>(bytes: &[u8]) -> Result<Vec<T>> {
    let size = std::mem::size_of::<T>();
    let len = bytes.len() / size;
    let mut out = filled(T::default(), len)?;
    // SAFETY: the vector's memory, as bytes, of which only those of whole elements are written; any bytes make a number,
    // and `bool` gets 0 or 1 only.
    let to = unsafe { std::slice::from_raw_parts_mut(out.as_mut_ptr().cast::<u8>(), len * size) };
    match T::DTYPE {
        DType::Bool => to.iter_mut().zip(bytes).for_each(|(t, &b)| *t = u8::from(b != 0)),
        _ => to.copy_from_slice(&bytes[..len * size]),
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_and_elements() {
        assert_eq!(as_bytes(&[1i16, 256]), [1i16, 256].map(i16::to_ne_bytes).concat());
        assert_eq!(from_bytes::<f64>(as_bytes(&[1.5f64, -2.0])).unwrap(), [1.5, -2.0]);
        assert_eq!(from_bytes::<bool>(&[0, 7]).unwrap(), [false, true]);
        assert_eq!(from_bytes::<i32>(&[0; 7]).unwrap().len(), 1);
    }
}
