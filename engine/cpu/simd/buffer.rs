//! Memory of CPU tensors: aligned, shared between threads, read and written through guards.
//!
//! Depends on `memory`. Invariants: every byte of a buffer has a value (an arbitrary one after `uninit`); it is seen as
//! elements of its own dtype and of those that were admitted, for which it is aligned; while one of these is `bool`, its
//! bytes are 0 or 1; a slice of it lives no longer than its guard. An address that was handed out stays valid as long as the
//! buffer.

use super::alloc::Block;
use super::memory::{Foreign, Memory};
use super::shared::Segment;
use crate::dtype::{DType, Element};
use crate::error::{Error, Result};
use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::{fmt, slice};

/// A piece of memory holding elements of one dtype.
pub struct Buffer {
    len: usize,
    dtype: DType,
    version: AtomicU32,
    /// Is it seen as `bool` and as something else? Then what is written as something else is made 0 or 1.
    truths: AtomicBool,
    place: RwLock<Place>,
}

/// Where the elements are now.
struct Place {
    ptr: *mut u8,
    memory: Memory,
    /// Where they were before they moved; somebody may still look there.
    left: Vec<Memory>,
}

// SAFETY: the memory is as long-lived as the place, and its elements are reached only under the buffer's lock.
unsafe impl Send for Place {}
// SAFETY: as above; readers get shared slices and the one writer an exclusive one.
unsafe impl Sync for Place {}

impl From<Memory> for Place {
    fn from(memory: Memory) -> Place {
        Place { ptr: memory.as_ptr(), memory, left: Vec::new() }
    }
}

impl Buffer {
    /// Memory for `len` elements with arbitrary values (zeros for `bool`).
    ///
    /// # Errors
    /// `OutOfMemory`.
    pub fn uninit(dtype: DType, len: usize) -> Result<Buffer> {
        Ok(Buffer::on(Memory::Own(Block::new(len, dtype.size(), dtype == DType::Bool)?), dtype, len))
    }

    fn on(memory: Memory, dtype: DType, len: usize) -> Buffer {
        let (version, truths) = (AtomicU32::new(0), AtomicBool::new(false));
        Buffer { len, dtype, version, truths, place: RwLock::new(memory.into()) }
    }

    /// A buffer of the elements that lie in somebody else's memory.
    ///
    /// # Errors
    /// `InvalidValue` where there are too few bytes, their address is not a multiple of the element's size, or a `bool` is
    /// neither 0 nor 1.
    pub fn foreign(memory: Foreign, dtype: DType, len: usize) -> Result<Buffer> {
        let size = dtype.size();
        if len.checked_mul(size).is_none_or(|bytes| bytes > memory.bytes()) {
            let why = format!("{len} elements of {dtype} do not lie in {} bytes", memory.bytes());
            return Err(Error::value("from_foreign", why));
        }
        if len == 0 {
            // An address of nothing may be anything, null too.
            return Buffer::uninit(dtype, 0);
        }
        if memory.address() == 0 || !memory.address().is_multiple_of(size) {
            let why = format!(
                "the memory at {:#x} is not aligned for {dtype}; copy it (numpy.require(a, requirements='A'))",
                memory.address()
            );
            return Err(Error::value("from_foreign", why));
        }
        if dtype == DType::Bool && memory.as_bytes()[..len].iter().any(|&b| b > 1) {
            let why = "a Boolean tensor cannot show bytes other than 0 and 1; compare them with 0 first";
            return Err(Error::value("from_foreign", why));
        }
        Ok(Buffer::on(Memory::Foreign(memory), dtype, len))
    }

    /// A buffer of the elements in a segment that another process shares.
    ///
    /// # Errors
    /// As [`Segment::open`].
    pub fn open(name: &str, dtype: DType, len: usize) -> Result<Buffer> {
        let bytes = len.checked_mul(dtype.size()).ok_or_else(|| Error::value("from_shared", "the sizes overflow"))?;
        Ok(Buffer::on(Memory::Shared(Segment::open(name, bytes)?), dtype, len))
    }

    /// Where the first element is. The address stays valid, for as many elements, as long as the buffer.
    pub fn address(&self) -> usize {
        self.place.read_recursive().ptr as usize
    }

    /// May the elements be written to?
    pub fn writable(&self) -> bool {
        self.place.read_recursive().memory.writable()
    }

    /// Do both have bytes in common?
    pub fn overlaps(&self, other: &Buffer) -> bool {
        if std::ptr::eq(self, other) {
            return true;
        }
        let (a, b) = (self.address(), other.address());
        a < b + other.bytes() && b < a + self.bytes()
    }

    /// Do the elements lie in a segment that other processes can map?
    pub fn is_shared(&self) -> bool {
        matches!(self.place.read_recursive().memory, Memory::Shared(_))
    }

    /// Moves the elements to a segment that other processes can map, unless they are in one.
    ///
    /// # Errors
    /// `OutOfMemory` where the system has no room for it.
    pub fn share(&self) -> Result<()> {
        let mut place = self.place.write();
        if matches!(place.memory, Memory::Shared(_)) {
            return Ok(());
        }
        let segment = Segment::create(self.bytes())?;
        let to = segment.as_ptr();
        // SAFETY: both are that long, the segment is new, and the lock keeps readers and writers away.
        unsafe { std::ptr::copy_nonoverlapping(place.ptr, to, self.bytes()) };
        let old = std::mem::replace(&mut place.memory, Memory::Shared(segment));
        place.ptr = to;
        place.left.push(old);
        Ok(())
    }

    /// The name by which one other process can map the elements, once; `None` where they are not shared.
    pub fn lend(&self) -> Option<String> {
        match &self.place.read_recursive().memory {
            Memory::Shared(segment) => Some(segment.lend().to_owned()),
            Memory::Own(_) | Memory::Foreign(_) => None,
        }
    }

    /// Lets the memory be seen as elements of another dtype, too.
    ///
    /// # Errors
    /// `RuntimeError` where it is not aligned for these, or a `bool` would be neither 0 nor 1.
    pub fn admit(&self, dtype: DType) -> Result<()> {
        if !self.aligned(dtype) {
            let why =
                format!("the memory at {:#x} is not aligned for {dtype}; clone() the tensor first", self.address());
            return Err(Error::runtime("view", why));
        }
        if (dtype == DType::Bool) == (self.dtype == DType::Bool) || self.truths.load(Ordering::Acquire) {
            return Ok(());
        }
        // The lock keeps writers away between the look and the note.
        let place = self.place.write();
        // SAFETY: as in `read_bytes`.
        let bytes = unsafe { slice::from_raw_parts(place.ptr, self.bytes()) };
        if bytes.iter().any(|&b| b > 1) {
            let why = "a Boolean tensor cannot show bytes other than 0 and 1; compare them with 0 first";
            return Err(Error::runtime("view", why));
        }
        self.truths.store(true, Ordering::Release);
        Ok(())
    }

    /// Does the memory begin where an element of that dtype may?
    fn aligned(&self, dtype: DType) -> bool {
        // A complex number is two parts in a row.
        let align = if dtype.is_complex() { dtype.size() / 2 } else { dtype.size() };
        self.address().is_multiple_of(align)
    }

    /// May the elements be seen as this dtype?
    #[cold]
    fn shows(&self, dtype: DType) -> bool {
        let truth = dtype != self.dtype && (dtype == DType::Bool || self.dtype == DType::Bool);
        self.aligned(dtype) && (!truth || self.truths.load(Ordering::Acquire))
    }

    /// A buffer with the elements of a slice.
    ///
    /// # Errors
    /// `OutOfMemory`.
    #[cfg(test)]
    pub fn from_slice<T: Element>(data: &[T]) -> Result<Buffer> {
        let mut buffer = Buffer::uninit(T::DTYPE, data.len())?;
        buffer.get_mut::<T>().copy_from_slice(data);
        Ok(buffer)
    }

    /// How many elements of a type the memory holds: twice as many float32 as complex64.
    fn count<T>(&self) -> usize {
        self.bytes() / std::mem::size_of::<T>()
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Size in bytes.
    pub fn bytes(&self) -> usize {
        self.len * self.dtype.size()
    }

    /// The elements' dtype.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// How often the memory was written in place.
    pub fn version(&self) -> u32 {
        self.version.load(Ordering::Acquire)
    }

    /// Counts an in-place write.
    pub fn bump_version(&self) {
        self.version.fetch_add(1, Ordering::AcqRel);
    }

    /// The elements, to read; any number of guards may exist at once, on one thread too.
    ///
    /// # Panics
    /// If `T` is not the element type: a bug of the engine, which knows the dtype.
    pub fn read<T: Element>(&self) -> ReadGuard<'_, T> {
        self.check::<T>();
        let place = self.place.read_recursive();
        // SAFETY: initialised, aligned, of this type or of its parts (checked); the lock keeps writers away while the
        // guard lives.
        let data = unsafe { slice::from_raw_parts(place.ptr.cast::<T>(), self.count::<T>()) };
        ReadGuard { data, _place: place }
    }

    /// The elements, to write. Waits for all other guards, so the thread must hold none of this buffer.
    ///
    /// # Panics
    /// If `T` is not the element type.
    pub fn write<T: Element>(&self) -> WriteGuard<'_, T> {
        self.check::<T>();
        let place = self.place.write();
        assert!(place.memory.writable(), "a write to read-only memory");
        // SAFETY: as in `read`, and the write lock makes this the only slice.
        let data = unsafe { slice::from_raw_parts_mut(place.ptr.cast::<T>(), self.count::<T>()) };
        WriteGuard { data, truths: self.to_check(T::DTYPE == DType::Bool), place }
    }

    /// The elements of a buffer that nobody shares.
    ///
    /// # Panics
    /// If `T` is not the element type.
    pub fn get_mut<T: Element>(&mut self) -> &mut [T] {
        self.check::<T>();
        // SAFETY: as in `read`, and `&mut self` makes this the only access.
        unsafe { slice::from_raw_parts_mut(self.place.get_mut().ptr.cast::<T>(), self.count::<T>()) }
    }

    /// The elements as words of their size, for code that only moves them.
    ///
    /// # Panics
    /// If the word does not fit the dtype.
    pub fn read_words<W: Word>(&self) -> ReadGuard<'_, W> {
        self.check_word::<W>();
        let place = self.place.read_recursive();
        // SAFETY: as in `read`; any bits make a word of the element's size (checked), and a `bool` stands for itself only.
        let data = unsafe { slice::from_raw_parts(place.ptr.cast::<W>(), self.count::<W>()) };
        ReadGuard { data, _place: place }
    }

    /// The same, to write.
    ///
    /// # Panics
    /// If the word does not fit the dtype.
    pub fn write_words<W: Word>(&self) -> WriteGuard<'_, W> {
        self.check_word::<W>();
        let place = self.place.write();
        assert!(place.memory.writable(), "a write to read-only memory");
        // SAFETY: as in `read_words`; any word makes an element, since `bool` is only written as `bool`.
        let data = unsafe { slice::from_raw_parts_mut(place.ptr.cast::<W>(), self.count::<W>()) };
        WriteGuard { data, truths: self.to_check(W::fits(DType::Bool)), place }
    }

    /// The same, of a buffer that nobody shares.
    ///
    /// # Panics
    /// If the word does not fit the dtype.
    pub fn words_mut<W: Word>(&mut self) -> &mut [W] {
        self.check_word::<W>();
        // SAFETY: as in `write_words`, and `&mut self` makes this the only access.
        unsafe { slice::from_raw_parts_mut(self.place.get_mut().ptr.cast::<W>(), self.count::<W>()) }
    }

    /// The memory as bytes, to read.
    pub fn read_bytes(&self) -> ReadGuard<'_, u8> {
        let place = self.place.read_recursive();
        // SAFETY: every byte is initialised, and no element type has padding; the lock as in `read`.
        let data = unsafe { slice::from_raw_parts(place.ptr, self.bytes()) };
        ReadGuard { data, _place: place }
    }

    /// Overwrites a buffer that nobody shares with the bytes of as many elements; any but 0 is `true` in a `bool` buffer.
    ///
    /// # Panics
    /// If the sizes differ.
    pub fn fill_from_bytes(&mut self, bytes: &[u8]) {
        assert_eq!(bytes.len(), self.bytes(), "bytes of another buffer");
        // SAFETY: `&mut self` makes this the only access; u8 has no alignment.
        let to = unsafe { slice::from_raw_parts_mut(self.place.get_mut().ptr, self.len * self.dtype.size()) };
        match self.dtype {
            DType::Bool => to.iter_mut().zip(bytes).for_each(|(t, &b)| *t = u8::from(b != 0)),
            _ => to.copy_from_slice(bytes),
        }
    }

    /// How many bytes a guard must look through at its end: all, where it writes other than `bool` over such.
    fn to_check(&self, truth: bool) -> usize {
        if !truth && self.truths.load(Ordering::Acquire) {
            self.bytes()
        } else {
            0
        }
    }

    fn check_word<W: Word>(&self) {
        assert!(
            W::fits(self.dtype) || DType::ALL.iter().any(|&d| W::fits(d) && self.shows(d)),
            "a {} buffer as {}-byte words",
            self.dtype,
            std::mem::size_of::<W>()
        );
    }

    fn check<T: Element>(&self) {
        assert!(T::DTYPE == self.dtype || self.shows(T::DTYPE), "a {} buffer read as {}", self.dtype, T::DTYPE);
    }
}

/// What elements are moved as: one type per size, and `bool` for itself. (Five instead of eleven copies of such code.)
pub trait Word: sealed::Sealed + Copy + Default + Send + Sync + 'static {
    /// May elements of that dtype be moved as this type?
    fn fits(dtype: DType) -> bool;
}

mod sealed {
    /// Implemented here only: the `unsafe` code above relies on `fits`.
    pub trait Sealed {}
}

macro_rules! words {
    ($($w:ty: $($D:ident)|+;)*) => {
        $(
            impl sealed::Sealed for $w {}
            impl Word for $w {
                fn fits(dtype: DType) -> bool { matches!(dtype, $(DType::$D)|+) }
            }
        )*

        /// Runs `$body` with the type alias `$W` bound to the [`Word`] of a dtype.
        macro_rules! with_word {
            ($dtype:expr, $W:ident => $body:expr) => {
                match $dtype { $($(crate::DType::$D)|+ => { type $W = $w; $body })* }
            };
        }
    };
}
words! {
    bool: Bool;
    u8: U8 | I8;
    u16: I16 | F16 | BF16;
    u32: I32 | F32;
    u64: I64 | F64;
    // Aligned as float32, whose memory may be seen as complex64.
    [u32; 2]: C64;
}
#[allow(clippy::single_component_path_imports)] // Puts the macro on this module's path.
pub(crate) use with_word;

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer({} x {} at {:#x})", self.len, self.dtype, self.address())
    }
}

/// A buffer's elements, to read.
pub struct ReadGuard<'a, T> {
    data: &'a [T],
    _place: RwLockReadGuard<'a, Place>,
}

impl<T> Deref for ReadGuard<'_, T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        self.data
    }
}

/// A buffer's elements, to write.
pub struct WriteGuard<'a, T> {
    data: &'a mut [T],
    /// How many bytes of the place must be 0 or 1 again at the end.
    truths: usize,
    place: RwLockWriteGuard<'a, Place>,
}

impl<T> Deref for WriteGuard<'_, T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        self.data
    }
}

impl<T> Drop for WriteGuard<'_, T> {
    fn drop(&mut self) {
        if self.truths > 0 {
            // SAFETY: so many bytes are there, the lock is still held, and nobody looks at the elements any more.
            let bytes = unsafe { slice::from_raw_parts_mut(self.place.ptr, self.truths) };
            bytes.iter_mut().for_each(|b| *b = u8::from(*b != 0));
        }
    }
}

impl<T> DerefMut for WriteGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut [T] {
        self.data
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use num_complex::Complex32;

    #[test]
    fn elements_go_in_and_out() {
        let b = Buffer::from_slice(&[1.5f32, 2.5]).unwrap();
        assert_eq!((b.len(), b.bytes(), b.version()), (2, 8, 0));
        assert_eq!(b.read::<f32>().as_ptr() as usize % 64, 0);
        b.write::<f32>()[1] = 3.0;
        b.bump_version();
        let (x, y) = (b.read::<f32>(), b.read::<f32>());
        assert_eq!((&x[..], y[0], b.version()), (&[1.5, 3.0][..], 1.5, 1));
    }

    #[test]
    fn bools_are_0_or_1() {
        let mut b = Buffer::uninit(DType::Bool, 3).unwrap();
        assert_eq!(&b.read::<bool>()[..], &[false; 3]);
        b.fill_from_bytes(&[0, 1, 7]);
        assert_eq!(&b.read_bytes()[..], &[0, 1, 1]);
    }

    #[test]
    fn foreign_memory_is_shown_and_given_back() {
        let held = std::sync::Arc::new(());
        let mut data = vec![1.0f64, 2.0, 3.0];
        let ptr = data.as_mut_ptr().cast::<u8>();
        let owner = Box::new(held.clone());
        // SAFETY: `data` outlives the buffer.
        let b = Buffer::foreign(unsafe { Foreign::new(ptr, 24, true, owner) }, DType::F64, 3).unwrap();
        b.write::<f64>()[1] = 5.0;
        assert_eq!((b.address(), &b.read::<f64>()[..]), (ptr as usize, &[1.0, 5.0, 3.0][..]));
        assert_eq!(std::sync::Arc::strong_count(&held), 2);
        b.share().unwrap();
        b.share().unwrap();
        b.write::<f64>()[0] = 9.0;
        assert!(b.is_shared() && b.lend().is_some());
        assert_eq!(&b.read::<f64>()[..], &[9.0, 5.0, 3.0]);
        drop(b);
        assert_eq!((std::sync::Arc::strong_count(&held), data), (1, vec![1.0, 5.0, 3.0]));
    }

    #[test]
    fn foreign_memory_that_fits_not_is_refused() {
        let mut data = [2u8; 16];
        let ptr = data.as_mut_ptr();
        let made = |at: usize, writable, dtype, len| {
            // SAFETY: `data` outlives the buffer.
            Buffer::foreign(unsafe { Foreign::new(ptr.wrapping_add(at), 16 - at, writable, Box::new(())) }, dtype, len)
        };
        assert!(made(0, true, DType::U8, 17).is_err() && made(0, true, DType::F64, usize::MAX).is_err());
        let odd = usize::from((ptr as usize).is_multiple_of(2));
        assert!(made(odd, true, DType::I16, 1).is_err());
        assert!(made(0, true, DType::Bool, 1).is_err());
        assert!(!made(0, false, DType::U8, 16).unwrap().writable());
        let (a, b) = (made(0, true, DType::U8, 8).unwrap(), made(8, true, DType::U8, 8).unwrap());
        assert!(!a.overlaps(&b) && a.overlaps(&made(7, true, DType::U8, 1).unwrap()) && a.overlaps(&a));
    }

    #[test]
    fn absurd_sizes_are_errors() {
        assert!(Buffer::uninit(DType::F64, usize::MAX / 4).is_err());
        assert!(Buffer::uninit(DType::F64, usize::MAX / 16).is_err());
        assert_eq!(Buffer::uninit(DType::F64, 0).unwrap().len(), 0);
    }

    #[test]
    fn words_fit_by_size() {
        for &dtype in DType::ALL {
            let b = Buffer::uninit(dtype, 3).unwrap();
            assert_eq!(with_word!(dtype, W => std::mem::size_of_val(&b.read_words::<W>()[..])), b.bytes());
        }
        let x = Buffer::from_slice(&[1.0f32]).unwrap();
        x.write_words::<u32>()[0] = 2f32.to_bits();
        assert_eq!(x.read::<f32>()[0], 2.0);
    }

    #[test]
    fn complex_numbers_are_pairs() {
        let z = Buffer::from_slice(&[Complex32::new(1.0, 2.0), Complex32::new(3.0, 4.0)]).unwrap();
        assert_eq!(&z.read::<f32>()[..], &[1.0, 2.0, 3.0, 4.0]);
        z.write::<f32>()[3] = 5.0;
        assert_eq!(z.read::<Complex32>()[1], Complex32::new(3.0, 5.0));
        let odd = Buffer::from_slice(&[1f32, 2.0, 3.0]).unwrap();
        assert_eq!((odd.read::<Complex32>().len(), odd.read_words::<[u32; 2]>().len()), (1, 1));
    }

    #[test]
    fn bytes_are_seen_as_what_was_admitted() {
        let x = Buffer::from_slice(&[1f32, 2.0, 3.0]).unwrap();
        x.admit(DType::I16).unwrap();
        x.admit(DType::F64).unwrap();
        assert_eq!((x.read::<i16>().len(), x.read::<f64>().len(), x.read_words::<u8>().len()), (6, 1, 12));
        assert!(x.admit(DType::Bool).is_err());
        let truth = Buffer::from_slice(&[true, false]).unwrap();
        truth.admit(DType::U8).unwrap();
        truth.write::<u8>()[1] = 7;
        truth.write_words::<u8>()[0] = 0;
        assert_eq!((&truth.read::<bool>()[..], &truth.read::<u8>()[..]), (&[false, true][..], &[0, 1][..]));
        let bytes = Buffer::from_slice(&[0u8, 1]).unwrap();
        bytes.admit(DType::Bool).unwrap();
        bytes.write::<u8>()[0] = 255;
        assert_eq!((bytes.read::<bool>()[0], bytes.read::<u8>()[0]), (true, 1));
    }

    #[test]
    fn memory_that_is_not_aligned_is_not_admitted() {
        let mut data = [0u8; 24];
        let odd = usize::from((data.as_ptr() as usize).is_multiple_of(2));
        let ptr = data.as_mut_ptr().wrapping_add(odd);
        // SAFETY: `data` outlives the buffer.
        let b = Buffer::foreign(unsafe { Foreign::new(ptr, 16, true, Box::new(())) }, DType::U8, 16).unwrap();
        assert!(b.admit(DType::I8).is_ok() && b.admit(DType::F32).is_err() && b.admit(DType::C64).is_err());
    }

    #[test]
    #[should_panic(expected = "words")]
    fn truth_is_not_written_as_bytes() {
        let _ = Buffer::uninit(DType::Bool, 1).unwrap().write_words::<u8>();
    }

    #[test]
    #[should_panic(expected = "read as")]
    fn another_type_is_refused() {
        let _ = Buffer::uninit(DType::U8, 4).unwrap().read::<bool>();
    }
}
