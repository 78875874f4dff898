//! [`Array`], the owner of one of MLX's arrays: making, inspecting, evaluating and reading. Depends on the evaluation
//! module. Invariant: it is never empty outside of this crate, and its bytes are read only after its evaluation succeeded.

use std::ffi::c_void;
use std::fmt;
use std::ptr::null_mut;

use smallvec::SmallVec;

use crate::element::as_bytes;
use crate::error::{self, Error, Result};
use crate::{device, eval, ops, sys, Dtype, Element};

/// An MLX array: a node in a lazy graph, or its computed value. A clone is a second handle of the same array.
///
/// MLX's object is here itself, a pointer to the node and one to its count of holders, which may be moved as they are; mlx-c's
/// handle, a pointer to such an object, is made for each call. Both null is the empty object, which only MLX's functions see.
#[repr(transparent)]
pub struct Array([*mut c_void; 2]);

// SAFETY: an array points at a C++ object whose reference counts are atomic and which this crate never changes in
// place. What evaluation changes in an array (its state, its links to its inputs) is changed under the evaluation lock,
// and building a graph reads only what is fixed at creation (shape, dtype) and copies references. The one stream that
// all operations use is MLX's thread-unsafe kind, meant to be shared under such a lock.
unsafe impl Send for Array {}
// SAFETY: as above.
unsafe impl Sync for Array {}

/// So many bytes, all 0.
pub(crate) fn zeros(len: usize) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(len).map_err(|_| Error::OutOfMemory(format!("no memory for {len} bytes")))?;
    bytes.extend(std::iter::repeat_n(0, len));
    Ok(bytes)
}

impl Array {
    /// The object before MLX fills it.
    #[inline(always)]
    fn empty() -> Array {
        Array([null_mut(); 2])
    }

    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        self.0[0].is_null()
    }

    /// The handle by which MLX fills an empty array.
    #[inline(always)]
    fn slot(&mut self) -> sys::mlx_array {
        sys::mlx_array { ctx: self.0.as_mut_ptr().cast() }
    }

    /// Makes an array from a call that may fill it, or leave it empty.
    #[inline(always)]
    pub(crate) fn attempt(call: impl FnOnce(*mut sys::mlx_array) -> std::os::raw::c_int) -> Result<Option<Array>> {
        let mut made = Array::empty();
        error::check(call(&mut made.slot()))?;
        Ok((!made.is_empty()).then_some(made))
    }

    /// Makes an array from a call that fills it.
    #[inline(always)]
    pub(crate) fn build(call: impl FnOnce(*mut sys::mlx_array) -> std::os::raw::c_int) -> Result<Array> {
        let mut made = Array::empty();
        error::check(call(&mut made.slot()))?;
        debug_assert!(!made.is_empty());
        // SAFETY: an array that MLX just filled.
        eval::note_size(unsafe { sys::lucid_array_nbytes(made.raw()) });
        Ok(made)
    }

    /// Makes two arrays from a call that fills both.
    pub(crate) fn build_pair(
        call: impl FnOnce(*mut sys::mlx_array, *mut sys::mlx_array) -> std::os::raw::c_int,
    ) -> Result<(Array, Array)> {
        let (mut first, mut second) = (Array::empty(), Array::empty());
        error::check(call(&mut first.slot(), &mut second.slot()))?;
        Ok((first, second))
    }

    /// Makes `n` arrays from a call that fills as many, or none where it fails.
    pub(crate) fn build_all(
        n: usize,
        call: impl FnOnce(*mut sys::mlx_array) -> std::os::raw::c_int,
    ) -> Result<Vec<Array>> {
        let mut made: Vec<Array> = (0..n).map(|_| Array::empty()).collect();
        let mut slots: SmallVec<[sys::mlx_array; 8]> = made.iter_mut().map(Array::slot).collect();
        error::check(call(slots.as_mut_ptr()))?;
        Ok(made)
    }

    /// Takes the array out of a handle that a constructor returned, and frees the handle; null means failure.
    #[inline]
    pub(crate) fn own(raw: sys::mlx_array) -> Result<Array> {
        if raw.ctx.is_null() {
            return Err(error::take());
        }
        let mut taken = Array::empty();
        // SAFETY: an empty array and a handle that nobody else has.
        unsafe { sys::lucid_array_take(taken.slot(), raw) };
        Ok(taken)
    }

    /// The handle for a call, good as long as the array is borrowed.
    #[inline(always)]
    pub(crate) fn raw(&self) -> sys::mlx_array {
        sys::mlx_array { ctx: self.0.as_ptr().cast_mut().cast() }
    }

    /// An array of the given shape and dtype with a copy of the bytes, which are in row-major order.
    pub fn from_bytes(bytes: &[u8], shape: &[i32], dtype: Dtype) -> Result<Array> {
        let size = shape.iter().try_fold(dtype.size(), |n, &d| usize::try_from(d).ok().and_then(|d| n.checked_mul(d)));
        if size != Some(bytes.len()) {
            let len = bytes.len();
            return Err(Error::Mismatch(format!("{len} bytes do not make an array of shape {shape:?} and {dtype}")));
        }
        if bytes.is_empty() {
            // An empty vector's pointer dangles; MLX is given one that does not.
            let data = [0u8; 16];
            let (data, n) = (data.as_ptr().cast(), shape.len() as i32);
            // SAFETY: no bytes are read.
            return Array::own(unsafe { sys::mlx_array_new_data(data, shape.as_ptr(), n, dtype.raw()) });
        }
        let mut made = Array::empty();
        let (data, len) = (bytes.as_ptr().cast(), bytes.len());
        // SAFETY: an empty array; the bytes are as many as the shape and dtype say, and are copied during the call.
        error::check(unsafe {
            sys::lucid_array_upload(&mut made.slot(), data, len, shape.as_ptr(), shape.len(), dtype.raw())
        })?;
        Ok(made)
    }

    /// An array of the given shape with a copy of the values, which are in row-major order.
    pub fn from_slice<T: Element>(values: &[T], shape: &[i32]) -> Result<Array> {
        Array::from_bytes(as_bytes(values), shape, T::DTYPE)
    }

    /// A 0-d array.
    pub fn scalar<T: Element>(value: T) -> Result<Array> {
        Array::from_bytes(as_bytes(&[value]), &[], T::DTYPE)
    }

    /// The shape.
    #[inline]
    pub fn shape(&self) -> &[i32] {
        let mut ndim = 0usize;
        // SAFETY: the handle is valid; the shape is fixed at creation and lives as long as the handle, which `self`
        // borrows; MLX's shapes hold 32-bit signed integers.
        unsafe {
            let data = sys::lucid_array_shape(self.raw(), &mut ndim);
            if ndim == 0 {
                &[]
            } else {
                std::slice::from_raw_parts(data, ndim)
            }
        }
    }

    /// The number of dimensions.
    #[inline]
    pub fn ndim(&self) -> usize {
        self.shape().len()
    }

    /// The number of elements.
    #[inline]
    pub fn size(&self) -> usize {
        self.shape().iter().map(|&d| d as usize).product()
    }

    /// The size of the value in bytes, `size` times the dtype's.
    #[inline]
    pub fn nbytes(&self) -> usize {
        self.size() * self.dtype().size()
    }

    /// The element type.
    #[inline]
    pub fn dtype(&self) -> Dtype {
        // SAFETY: the handle is valid; the dtype is fixed at creation.
        Dtype::from_raw(unsafe { sys::mlx_array_dtype(self.raw()) })
    }

    /// A number that two handles share exactly when they are clones of one another; it is reused once all are dropped.
    #[inline]
    pub fn id(&self) -> usize {
        // SAFETY: the handle is valid.
        unsafe { sys::lucid_array_id(self.raw()) }
    }

    /// Whether nothing is left to schedule: the value is there, or is being computed.
    #[inline]
    pub fn is_evaluated(&self) -> bool {
        // SAFETY: the handle is valid; the call reads one word, which at worst is about to change.
        unsafe { sys::lucid_array_is_evaluated(self.raw()) }
    }

    /// Computes the value and waits for it. To evaluate several arrays together see [`crate::transforms::eval`].
    pub fn eval(&self) -> Result<()> {
        eval::eval_raw(&[self.raw()])
    }

    /// Starts computing the value.
    pub fn async_eval(&self) -> Result<()> {
        eval::async_eval(&[self])
    }

    /// Evaluates and hands the value's bytes, in row-major order, to the function. A value whose memory is not so
    /// ordered is copied by MLX first.
    pub fn read<R>(&self, f: impl FnOnce(&[u8]) -> R) -> Result<R> {
        self.eval()?;
        let len = self.nbytes();
        if len == 0 {
            return Ok(f(&[]));
        }
        if device::copies_by_device() {
            let mut bytes = zeros(len)?;
            self.copy_to(&mut bytes)?;
            return Ok(f(&bytes));
        }
        let data = self.data()?;
        if !data.is_null() {
            // SAFETY: the array is available and row-contiguous, so its buffer holds `len` bytes from there; the buffer
            // is neither written nor freed while `self` holds a handle of it.
            return Ok(f(unsafe { std::slice::from_raw_parts(data, len) }));
        }
        match self.ordered()? {
            Some(copy) => copy.read(f),
            None => Err(Error::NotEvaluated("its bytes are nowhere".into())),
        }
    }

    /// Evaluates and copies the value's bytes, in row-major order, to as many bytes of the host's.
    pub fn copy_to(&self, out: &mut [u8]) -> Result<()> {
        self.eval()?;
        if out.len() != self.nbytes() {
            let (given, shape) = (out.len(), self.shape());
            return Err(Error::Mismatch(format!(
                "{given} bytes do not hold an array of shape {shape:?} and {}",
                self.dtype()
            )));
        }
        if out.is_empty() {
            return Ok(());
        }
        if let Some(ordered) = self.ordered()? {
            return ordered.copy_to(out);
        }
        let (to, len) = (out.as_mut_ptr().cast(), out.len());
        let _lock = eval::schedule_lock();
        // SAFETY: as many bytes as the evaluated, row-major array has; finding its own may move them, hence the lock.
        error::check(unsafe { sys::lucid_array_copy(to, len, self.raw()) })
    }

    /// A row-major copy of an evaluated array that is not row-major, evaluated too.
    pub(crate) fn ordered(&self) -> Result<Option<Array>> {
        if self.offset()?.is_some() {
            return Ok(None);
        }
        let copy = ops::contiguous(self, false)?;
        copy.eval()?;
        match copy.offset()? {
            Some(_) => Ok(Some(copy)),
            None => Err(Error::NotEvaluated("its contiguous copy is not contiguous".into())),
        }
    }

    /// Evaluates and says where the value's bytes are in the memory of this process; `None` where they are not in
    /// row-major order. The bytes stay there while a handle of the array exists, and must not be written.
    pub fn address(&self) -> Result<Option<usize>> {
        self.eval()?;
        let data = self.data()?;
        Ok((!data.is_null()).then_some(data as usize))
    }

    /// How many bytes an evaluated row-major array begins behind its buffer, which MLX allocates at multiples of 256; `None`
    /// where it is not such an array.
    pub fn offset(&self) -> Result<Option<usize>> {
        let mut offset = -1;
        // SAFETY: a valid handle and an out-parameter; only what the handle holds is read.
        error::check(unsafe { sys::lucid_array_offset(&mut offset, self.raw()) })?;
        Ok(usize::try_from(offset).ok())
    }

    /// May the first element be at an odd multiple of 4 bytes? It may not where the array or what it is to be computed from is
    /// seen to begin elsewhere.
    pub fn may_begin_odd(&self) -> Result<bool> {
        let mut odd = false;
        let _lock = eval::schedule_lock();
        // SAFETY: a valid handle and an out-parameter; the lock keeps the graph below it as it is.
        error::check(unsafe { sys::lucid_array_may_begin_odd(&mut odd, self.raw()) })?;
        Ok(odd)
    }

    /// Where an available array's bytes are; null if they are not in row-major order.
    fn data(&self) -> Result<*const u8> {
        let mut data = std::ptr::null();
        let _lock = eval::schedule_lock();
        // SAFETY: the caller evaluated the array; finding the bytes may move them to the CPU, hence the lock.
        error::check(unsafe { sys::lucid_array_data(&mut data, self.raw()) })?;
        Ok(data.cast())
    }

    /// Evaluates and copies the values out, in row-major order.
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>> {
        if self.dtype() != T::DTYPE {
            return Err(Error::Mismatch(format!("an array of {} cannot be read as {}", self.dtype(), T::DTYPE)));
        }
        self.read(T::from_bytes)?
    }

    /// Evaluates and returns the only element.
    pub fn item<T: Element>(&self) -> Result<T> {
        if self.size() != 1 {
            return Err(Error::Mismatch(format!("item() needs one element, the shape is {:?}", self.shape())));
        }
        Ok(self.to_vec::<T>()?.pop().unwrap_or_default())
    }
}

impl Clone for Array {
    #[inline]
    fn clone(&self) -> Self {
        let mut shared = Array::empty();
        // SAFETY: an empty array and a valid one; a counter goes up.
        unsafe { sys::lucid_array_share(shared.slot(), self.raw()) };
        shared
    }
}

impl Drop for Array {
    #[inline]
    fn drop(&mut self) {
        if self.is_empty() {
            return;
        }
        let _guard = eval::drop_guard();
        // SAFETY: owned, ended once.
        unsafe { sys::lucid_array_end(self.slot()) };
    }
}

impl fmt::Debug for Array {
    /// Shape and dtype; the value is not computed for it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Array({:?}, {})", self.shape(), self.dtype())
    }
}
