//! Rust types that stand for MLX's element types. Depends on [`Dtype`]. Invariant: a type's size is its dtype's, and
//! every bit pattern that reaches it is one of its values (booleans are normalised).

use half::{bf16, f16};
use num_complex::Complex32;

use crate::{Dtype, Error, Result};

mod sealed {
    pub trait Sealed {}
}

/// A Rust type that an [`crate::Array`] can be made from and read as.
pub trait Element: Copy + Default + Send + Sync + 'static + sealed::Sealed {
    /// The element type it stands for.
    const DTYPE: Dtype;

    #[doc(hidden)]
    fn from_bytes(bytes: &[u8]) -> Result<Vec<Self>>;
}

/// The bytes of a slice of elements.
pub(crate) fn as_bytes<T: Element>(values: &[T]) -> &[u8] {
    // SAFETY: the sealed implementors below are plain numbers (and bool) without padding; the length is the slice's own.
    unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), std::mem::size_of_val(values)) }
}

/// An empty vector with room for `len` elements.
fn room<T>(len: usize) -> Result<Vec<T>> {
    let mut values = Vec::new();
    match values.try_reserve_exact(len) {
        Ok(()) => Ok(values),
        Err(_) => Err(Error::OutOfMemory(format!("there is no memory for {len} elements of {} bytes", size_of::<T>()))),
    }
}

macro_rules! elements {
    ($($ty:ty => $dtype:ident),* $(,)?) => {$(
        impl sealed::Sealed for $ty {}

        impl Element for $ty {
            const DTYPE: Dtype = Dtype::$dtype;

            fn from_bytes(bytes: &[u8]) -> Result<Vec<Self>> {
                const { assert!(std::mem::size_of::<$ty>() == Dtype::$dtype.size()) };
                let len = bytes.len() / std::mem::size_of::<$ty>();
                let mut values = room::<$ty>(len)?;
                // SAFETY: the vector has room for `len` elements, the source holds as many bytes, the two do not
                // overlap, and every bit pattern is a value of this type.
                unsafe {
                    let size = len * std::mem::size_of::<$ty>();
                    std::ptr::copy_nonoverlapping(bytes.as_ptr(), values.as_mut_ptr().cast::<u8>(), size);
                    values.set_len(len);
                }
                Ok(values)
            }
        }
    )*};
}

elements! {
    u8 => Uint8, u16 => Uint16, u32 => Uint32, u64 => Uint64,
    i8 => Int8, i16 => Int16, i32 => Int32, i64 => Int64,
    f16 => Float16, bf16 => Bfloat16, f32 => Float32, f64 => Float64, Complex32 => Complex64,
}

impl sealed::Sealed for bool {}

impl Element for bool {
    const DTYPE: Dtype = Dtype::Bool;

    fn from_bytes(bytes: &[u8]) -> Result<Vec<Self>> {
        let mut values = room(bytes.len())?;
        // A reinterpreting view may leave any byte in a boolean array.
        values.extend(bytes.iter().map(|&b| b != 0));
        Ok(values)
    }
}
