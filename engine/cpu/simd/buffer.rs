//! Memory of CPU tensors: aligned, shared between threads, read and written through guards.
//!
//! Depends on `memory`. Invariants: every byte of a buffer has a value (an arbitrary one after `uninit`); it is seen as
//! elements of its own dtype and of those that were admitted, for which it is aligned; while one of these is `bool`, the
//! engine writes 0 or 1 only, and where others may write, too, a `bool` is read from a copy whose bytes are 0 or 1; a slice
//! of it lives no longer than its guard. An address that [`Buffer::expose`] handed out stays
//! valid as long as the buffer. Nothing that an MLX array has too is written.

use super::alloc::Block;
use super::guards::{read_only, zeroed, Elements, ReadGuard, WriteGuard};
use super::memory::{Foreign, Memory, Offer};
use super::shared_memory::Segment;
use super::word::Word;
use crate::dtype::{DType, Element};
use crate::error::{Error, Result};
use crate::fallible::raise;
use mlx_ffi::HostLease;
use parking_lot::{RwLock, RwLockWriteGuard};
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::Arc;
use std::{fmt, slice};

/// A piece of memory holding elements of one dtype.
pub struct Buffer {
    /// How many elements there is memory for; it never becomes less, since arrays may show them all.
    len: AtomicUsize,
    /// How many bytes the storage says that it has.
    stated: AtomicUsize,
    dtype: DType,
    version: AtomicU32,
    /// Is it seen as `bool` and as something else? Then what is written as something else is made 0 or 1.
    truths: AtomicBool,
    place: RwLock<Place>,
}

/// Where the elements are now.
pub(super) struct Place {
    pub(super) ptr: *mut u8,
    memory: Memory,
    /// Where they were before they moved; somebody may still look there.
    left: Vec<Memory>,
    /// Was the address handed out? Then others read and write there without asking.
    exposed: bool,
    /// Does an array of another library show it, which could not follow if it moved?
    held: bool,
}

// SAFETY: the memory is as long-lived as the place, and its elements are reached only under the buffer's lock.
unsafe impl Send for Place {}
// SAFETY: as above; readers get shared slices and the one writer an exclusive one.
unsafe impl Sync for Place {}

impl From<Memory> for Place {
    fn from(memory: Memory) -> Place {
        Place { ptr: memory.as_ptr(), memory, left: Vec::new(), exposed: false, held: false }
    }
}

impl Place {
    /// May others write to the elements without asking?
    fn open(&self) -> bool {
        self.exposed || matches!(self.memory, Memory::Foreign(_) | Memory::Shared(_))
    }

    /// Moves the elements to memory of their own if somebody else reads them where they are.
    fn part(&mut self, dtype: DType, len: usize) -> Result<()> {
        let read = match &self.memory {
            Memory::Lent(lasting) => !lasting.alone(),
            Memory::Kept(block) => Arc::strong_count(block) > 1,
            Memory::Own(_) | Memory::Foreign(_) | Memory::Shared(_) | Memory::Hollow(_) => false,
        };
        if read {
            let block = Block::new(len, dtype.size(), false)?;
            // SAFETY: both have that many bytes, and the block is new.
            unsafe { std::ptr::copy_nonoverlapping(self.ptr, block.as_ptr(), len * dtype.size()) };
            self.ptr = block.as_ptr();
            self.memory = Memory::Own(block);
        }
        Ok(())
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

    #[inline]
    fn on(memory: Memory, dtype: DType, len: usize) -> Buffer {
        let (version, truths) = (AtomicU32::new(0), AtomicBool::new(false));
        let (len, stated) = (AtomicUsize::new(len), AtomicUsize::new(len * dtype.size()));
        Buffer { len, stated, dtype, version, truths, place: RwLock::new(memory.into()) }
    }

    /// A buffer of the elements that are in somebody else's memory.
    ///
    /// # Errors
    /// `InvalidValue` where there are too few bytes, their address is not a multiple of the element's size, or a `bool` is
    /// neither 0 nor 1.
    pub fn foreign(memory: Foreign, dtype: DType, len: usize) -> Result<Buffer> {
        let size = dtype.size();
        if len.checked_mul(size).is_none_or(|bytes| bytes > memory.bytes()) {
            let why = format!("{len} elements of {dtype} do not fit in {} bytes", memory.bytes());
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

    /// A buffer of the elements of an MLX array; `None` where they are not aligned, or may be Booleans other than 0 and 1.
    pub fn lent(lasting: HostLease, dtype: DType) -> Option<Buffer> {
        let fits = dtype != DType::Bool && (lasting.as_ptr() as usize).is_multiple_of(dtype.size());
        let len = lasting.bytes() / dtype.size();
        fits.then(|| Buffer::on(Memory::Lent(lasting), dtype, len))
    }

    /// Offers the elements to `make`, which makes an MLX array of them, and keeps that array if it is one over this memory.
    /// `None` where the elements have to be copied: others may write to them at any time, or copying so few is no work.
    ///
    /// # Errors
    /// What `make` reports.
    pub fn offer<R>(&self, make: impl FnOnce(Offer<'_>) -> Result<(R, Option<HostLease>)>) -> Result<Option<R>> {
        let mut place = self.place.write();
        if place.exposed {
            return Ok(None);
        }
        // SAFETY: as in `read_bytes`; the lock is held until `make` is done.
        let bytes = unsafe { slice::from_raw_parts(place.ptr, self.bytes()) };
        if let Memory::Lent(lasting) = &place.memory {
            return make(Offer::Again(lasting, bytes)).map(|(result, _)| Some(result));
        }
        let block = match std::mem::replace(&mut place.memory, Memory::Own(Block::new(0, 1, false)?)) {
            Memory::Own(block) if block.fills_pages() => Arc::new(block),
            Memory::Kept(block) if Arc::strong_count(&block) == 1 => block,
            memory => {
                place.memory = memory;
                return Ok(None);
            }
        };
        place.memory = Memory::Kept(block.clone());
        let at = NonNull::new(place.ptr).unwrap_or(NonNull::dangling());
        // SAFETY: the block has that many initialised bytes, which are written only after `part`.
        let memory = unsafe { mlx_ffi::Memory::new(at, self.bytes(), block.clone()) };
        let (result, lasting) = make(Offer::New(memory, bytes))?;
        // With the place's and ours; a third is MLX's, which then has taken the memory as it is.
        if let (3.., Some(lasting)) = (Arc::strong_count(&block), lasting) {
            place.memory = Memory::Lent(lasting);
        }
        Ok(Some(result))
    }

    /// A buffer of the elements in a segment that another process shares.
    ///
    /// # Errors
    /// As [`Segment::open`].
    pub fn open(name: &str, dtype: DType, len: usize) -> Result<Buffer> {
        let bytes = len.checked_mul(dtype.size()).ok_or_else(|| Error::value("from_shared", "the sizes overflow"))?;
        Ok(Buffer::on(Memory::Shared(Segment::open(name, bytes)?), dtype, len))
    }

    /// Exchanges the elements with those of a buffer of the same dtype and length, by exchanging the memory. False, and nothing
    /// done, where the address of either is known to others or the memory is not the engine's own.
    pub fn swap(&self, other: &Buffer) -> bool {
        let free = |b: &Buffer, place: &Place| {
            let whole = b.stated() == b.bytes() && !b.truths.load(Ordering::Acquire);
            matches!(place.memory, Memory::Own(_)) && !place.exposed && whole
        };
        if std::ptr::eq(self, other) || self.dtype != other.dtype || self.len() != other.len() {
            return false;
        }
        // In the order of `both`.
        let (first, second) =
            if std::ptr::from_ref(self) < std::ptr::from_ref(other) { (self, other) } else { (other, self) };
        let (mut a, mut b) = (first.place.write(), second.place.write());
        let fits = free(first, &a) && free(second, &b);
        if fits {
            std::mem::swap(&mut *a, &mut *b);
        }
        fits
    }

    /// Where the first element is now.
    pub fn address(&self) -> usize {
        self.place.read_recursive().ptr as usize
    }

    /// Where the first element is from now on, for others to read and write: the address stays valid, for as many elements, as
    /// long as the buffer, unless that is resized; whoever must not be left behind then calls [`Buffer::hold`].
    ///
    /// # Errors
    /// `OutOfMemory` where the elements must move for it and there is no room.
    pub fn expose(&self) -> Result<usize> {
        let mut place = self.place.write();
        place.part(self.dtype, self.len())?;
        place.exposed = true;
        Ok(place.ptr as usize)
    }

    /// May the elements be written to?
    pub fn writable(&self) -> bool {
        self.place.read_recursive().memory.writable()
    }

    /// May others write to the elements at any time?
    pub fn is_open(&self) -> bool {
        self.place.read_recursive().open()
    }

    /// Do both have bytes in common?
    pub fn overlaps(&self, other: &Buffer) -> bool {
        if std::ptr::eq(self, other) {
            return true;
        }
        // Two that show one array's memory part before either is written.
        if [self, other].iter().any(|b| matches!(b.place.read_recursive().memory, Memory::Lent(_))) {
            return false;
        }
        let (a, b) = (self.address(), other.address());
        a < b + other.bytes() && b < a + self.bytes()
    }

    /// Are the elements in a segment that other processes can map?
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
        if place.exposed {
            place.left.push(old);
        }
        Ok(())
    }

    /// The name by which one other process can map the elements, once; `None` where they are not shared.
    pub fn lend(&self) -> Option<String> {
        match &self.place.read_recursive().memory {
            Memory::Shared(segment) => Some(segment.lend().to_owned()),
            Memory::Own(_) | Memory::Kept(_) | Memory::Foreign(_) | Memory::Hollow(_) | Memory::Lent(_) => None,
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

    /// How many elements of a type the memory holds: twice as many float32 as complex64.
    fn count<T>(&self) -> usize {
        self.bytes() / std::mem::size_of::<T>()
    }

    /// Are there no elements?
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.len.load(Ordering::Acquire)
    }

    /// How many bytes the storage has, as its users see it.
    pub fn stated(&self) -> usize {
        self.stated.load(Ordering::Acquire)
    }

    /// May the storage get another size?
    pub fn is_resizable(&self) -> bool {
        let place = self.place.read_recursive();
        !place.held && place.memory.is_resizable()
    }

    /// Says that an array of another library shows the memory: it keeps its size from now on.
    pub fn hold(&self) {
        self.place.write().held = true;
    }

    /// Gives the storage another number of bytes: the first ones as they were, then zeros. What is beyond its end is zero, too,
    /// to those arrays that still show it, and takes no memory until it is written. False, and nothing done, where the memory is
    /// not the engine's own.
    ///
    /// # Errors
    /// `OutOfMemory`.
    pub fn resize(&self, bytes: usize) -> Result<bool> {
        let mut place = self.place.write();
        if place.held || !place.memory.is_resizable() {
            return Ok(false);
        }
        let width = self.dtype.size();
        let len = bytes.div_ceil(width).max(self.len());
        let mut memory = match bytes < len * width {
            // SAFETY: zeros make a number.
            true => Memory::Hollow(unsafe { zeroed((len * width).div_ceil(size_of::<u128>())) }?),
            false => Memory::Own(Block::new(len, width, true)?),
        };
        let at = match &mut memory {
            Memory::Hollow(zeros) => zeros.as_mut_ptr().cast(),
            memory => memory.as_ptr(),
        };
        // SAFETY: both have that many bytes, the new ones are nobody else's, and the lock keeps readers and writers away.
        unsafe { std::ptr::copy_nonoverlapping(place.ptr, at, bytes.min(self.stated())) };
        place.ptr = at;
        // Arrays of other libraries hold the storage: an address alone keeps no memory, as in PyTorch.
        let old = std::mem::replace(&mut place.memory, memory);
        self.len.store(len, Ordering::Release);
        self.stated.store(bytes, Ordering::Release);
        drop(place);
        drop(old);
        Ok(true)
    }

    /// Size in bytes.
    pub fn bytes(&self) -> usize {
        self.len() * self.dtype.size()
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

    /// The elements, for a reader of those in a range alone: outside of it a `bool` may be wrong. Any number of guards may exist at
    /// once, on one thread too.
    ///
    /// # Panics
    /// If `T` is not the element type: a bug of the engine, which knows the dtype.
    pub fn read_span<T: Element>(&self, span: Range<usize>) -> ReadGuard<'_, T> {
        self.check::<T>();
        // SAFETY: the type was checked.
        unsafe { self.guard(span, T::DTYPE == DType::Bool) }
    }

    /// A guard to read.
    ///
    /// # Safety
    /// The memory must hold elements of type `T`, which is `bool` exactly where `truth` is true.
    unsafe fn guard<T: Copy>(&self, span: Range<usize>, truth: bool) -> ReadGuard<'_, T> {
        let place = self.place.read_recursive();
        let len = self.count::<T>();
        if !(truth && place.open()) {
            // SAFETY: initialised, aligned, of this type or of its parts (the caller's promise); the lock keeps writers away
            // while the guard lives.
            let data = Elements::Here(unsafe { slice::from_raw_parts(place.ptr.cast::<T>(), len) });
            return ReadGuard::new(data, place);
        }
        let end = span.end.min(len);
        let span = span.start.min(end)..end;
        // SAFETY: zeros make a `bool`, which `T` is.
        let mut copy = raise(unsafe { zeroed::<T>(end) });
        // SAFETY: the copy is that long, in bytes too, as `bool` has one; the memory is at least as long and initialised.
        let (to, from) = unsafe {
            (slice::from_raw_parts_mut(copy.as_mut_ptr().cast::<u8>(), end), slice::from_raw_parts(place.ptr, end))
        };
        to[span.clone()].iter_mut().zip(&from[span]).for_each(|(t, &b)| *t = u8::from(b != 0));
        ReadGuard::new(Elements::Copied(copy), place)
    }

    /// The place, when nobody else reads the elements there.
    fn exclusive(&self) -> Result<RwLockWriteGuard<'_, Place>> {
        let mut place = self.place.write();
        if !place.memory.writable() {
            return Err(read_only("write"));
        }
        place.part(self.dtype, self.len())?;
        Ok(place)
    }

    /// The elements, to write. Waits for all other guards, so the thread must hold none of this buffer.
    ///
    /// # Errors
    /// `OutOfMemory` where the elements are a GPU array's too and there is no room for a copy; `RuntimeError` where the memory
    /// is read-only.
    ///
    /// # Panics
    /// If `T` is not the element type.
    pub fn write<T: Element>(&self) -> Result<WriteGuard<'_, T>> {
        self.write_span(0..self.count::<T>())
    }

    /// The same for who reads and writes the elements in a range alone: outside of it a `bool` may be neither 0 nor 1.
    ///
    /// # Errors
    /// As [`Buffer::write`].
    ///
    /// # Panics
    /// If `T` is not the element type.
    pub fn write_span<T: Element>(&self, span: Range<usize>) -> Result<WriteGuard<'_, T>> {
        self.check::<T>();
        let place = self.exclusive()?;
        if T::DTYPE == DType::Bool && place.open() {
            // SAFETY: as in `read_bytes`, and the write lock makes this the only slice.
            let bytes = unsafe { slice::from_raw_parts_mut(place.ptr, self.bytes()) };
            let end = span.end.min(bytes.len());
            bytes[span.start.min(end)..end].iter_mut().for_each(|b| *b = u8::from(*b != 0));
        }
        // SAFETY: as in `guard`, and the write lock makes this the only slice.
        let data = unsafe { slice::from_raw_parts_mut(place.ptr.cast::<T>(), self.count::<T>()) };
        Ok(WriteGuard { data, truths: self.to_check(T::DTYPE == DType::Bool), place })
    }

    /// Takes a guard that reads `from` and one that writes `to`, another buffer. Always the one at the lower address comes
    /// first: two threads that write to and fro would wait for each other otherwise.
    ///
    /// # Errors
    /// What `write` reports.
    pub fn both<'a, R, W>(
        (from, read): (&'a Buffer, impl FnOnce(&'a Buffer) -> R),
        (to, write): (&'a Buffer, impl FnOnce(&'a Buffer) -> Result<W>),
    ) -> Result<(R, W)> {
        if std::ptr::from_ref(from) < std::ptr::from_ref(to) {
            let read = read(from);
            return Ok((read, write(to)?));
        }
        let written = write(to)?;
        Ok((read(from), written))
    }

    /// The elements of a buffer that nobody shares.
    ///
    /// # Panics
    /// If `T` is not the element type.
    pub fn get_mut<T: Element>(&mut self) -> &mut [T] {
        self.check::<T>();
        // SAFETY: as in `read`, and `&mut self` makes this the only access.
        unsafe { slice::from_raw_parts_mut(self.own_mut().cast::<T>(), self.count::<T>()) }
    }

    /// The elements as words of their size, for code that only moves those in a range.
    ///
    /// # Panics
    /// If the word does not fit the dtype.
    pub fn read_words<W: Word>(&self, span: Range<usize>) -> ReadGuard<'_, W> {
        self.check_word::<W>();
        // SAFETY: any bits make a word of the element's size (checked), and a `bool` stands for itself only.
        unsafe { self.guard(span, W::fits(DType::Bool)) }
    }

    /// The same, to write.
    ///
    /// # Errors
    /// As [`Buffer::write`].
    ///
    /// # Panics
    /// If the word does not fit the dtype.
    pub fn write_words<W: Word>(&self) -> Result<WriteGuard<'_, W>> {
        self.check_word::<W>();
        let place = self.exclusive()?;
        // SAFETY: as in `read_words`; any word makes an element, since `bool` is only written as `bool`.
        let data = unsafe { slice::from_raw_parts_mut(place.ptr.cast::<W>(), self.count::<W>()) };
        Ok(WriteGuard { data, truths: self.to_check(W::fits(DType::Bool)), place })
    }

    /// The same, of a buffer that nobody shares.
    ///
    /// # Panics
    /// If the word does not fit the dtype.
    pub fn words_mut<W: Word>(&mut self) -> &mut [W] {
        self.check_word::<W>();
        // SAFETY: as in `write_words`, and `&mut self` makes this the only access.
        unsafe { slice::from_raw_parts_mut(self.own_mut().cast::<W>(), self.count::<W>()) }
    }

    /// The memory as bytes, to read.
    pub fn read_bytes(&self) -> ReadGuard<'_, u8> {
        let place = self.place.read_recursive();
        // SAFETY: every byte is initialised, and no element type has padding; the lock as in `read`.
        let data = Elements::Here(unsafe { slice::from_raw_parts(place.ptr, self.bytes()) });
        ReadGuard::new(data, place)
    }

    /// Overwrites a buffer that nobody shares with the bytes that `write` puts there; any but 0 is `true` in a `bool` buffer.
    ///
    /// # Errors
    /// What `write` returns.
    pub fn fill_by(&mut self, write: impl FnOnce(&mut [u8]) -> Result<()>) -> Result<()> {
        // SAFETY: `&mut self` makes this the only access; u8 has no alignment.
        let to = unsafe { slice::from_raw_parts_mut(self.own_mut(), self.bytes()) };
        write(to)?;
        if self.dtype == DType::Bool {
            to.iter_mut().for_each(|t| *t = u8::from(*t != 0));
        }
        Ok(())
    }

    fn own_mut(&mut self) -> *mut u8 {
        let place = self.place.get_mut();
        assert!(matches!(place.memory, Memory::Own(_)), "a write past the lock to memory that others may have");
        place.ptr
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

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer({} x {} at {:#x})", self.len(), self.dtype, self.address())
    }
}

mod filled;
#[cfg(test)]
mod tests;
