//! NCCL's groups: any processes of a job, sums, gathering and messages. Depends on the arrays, the evaluation locks and the shim,
//! which calls the NCCL that MLX has loaded.
//!
//! Invariants: one thread at a time uses a group; arrays that it reads and writes are evaluated, in row-major order, and those
//! that it writes are its own until it returns; a flag that ends it lives as long as it does.

use std::ffi::CString;
use std::os::raw::{c_char, c_int};
use std::sync::atomic::AtomicBool;
use std::sync::Arc;

use crate::array::zeros;
use crate::distributed::Reduce;
use crate::error::{check, Error, Result};
use crate::{exit, ops, stream, sys, Array, Dtype};

/// How many bytes an [`Id`] has.
const ID: usize = 128;

/// What members of a new group find one another by; as text, so that it may be handed on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Id([u8; ID]);

impl Id {
    /// One of this process's, which listens for the others at the network interface of this name, unless the environment
    /// (`NCCL_SOCKET_IFNAME`) names another.
    ///
    /// # Errors
    /// Without NCCL, or where it finds no network.
    pub fn new(interface: Option<&str>) -> Result<Id> {
        stream::ensure_not_forked()?;
        stream::stream()?;
        let interface = interface.map(CString::new).transpose();
        let interface = interface.map_err(|_| Error::Mismatch("a network interface with a 0 in its name".into()))?;
        let mut bytes = [0; ID];
        let name = interface.as_ref().map_or(std::ptr::null(), |i| i.as_ptr());
        // SAFETY: as many bytes as the shim writes, and null or a terminated text.
        check(unsafe { sys::lucid_nccl_new_id(bytes.as_mut_ptr().cast(), ID, name) })?;
        Ok(Id(bytes))
    }

    /// In hexadecimal digits.
    pub fn to_text(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// What [`Id::to_text`] was made of; `None` for other texts.
    pub fn from_text(text: &str) -> Option<Id> {
        let mut bytes = [0; ID];
        if text.len() != 2 * ID {
            return None;
        }
        for (i, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::from_str_radix(text.get(2 * i..2 * i + 2)?, 16).ok()?;
        }
        Some(Id(bytes))
    }
}

/// Has MLX loaded NCCL, and has it a CUDA device?
pub fn is_available() -> bool {
    // SAFETY: no arguments.
    unsafe { sys::lucid_nccl_is_available() }
}

/// A group.
pub(crate) struct Communicator {
    raw: sys::lucid_nccl,
    size: usize,
    /// Read by the shim, through a pointer.
    _ended: Arc<AtomicBool>,
}

// SAFETY: the shim's object may be used from any thread, by one at a time; it is only reached under the group's lock.
unsafe impl Send for Communicator {}

impl Drop for Communicator {
    fn drop(&mut self) {
        // The driver goes when the process ends, maybe before this.
        if exit::ensure_running().is_ok() && !stream::forked() {
            // SAFETY: owned, freed once.
            unsafe { sys::lucid_nccl_free(self.raw) }
        }
    }
}

impl Communicator {
    /// Waits for the others, unless `ended` says to stop.
    pub(crate) fn open(id: &Id, size: usize, rank: usize, ended: &Arc<AtomicBool>) -> Result<Communicator> {
        stream::ensure_not_forked()?;
        stream::stream()?;
        if rank >= size {
            return Err(Error::Mismatch(format!("rank {rank} of a group of {size} processes")));
        }
        let (count, number) = (size as c_int, rank as c_int);
        let mut raw = sys::lucid_nccl { ctx: std::ptr::null_mut() };
        let bytes: *const c_char = id.0.as_ptr().cast();
        // SAFETY: a null handle to fill, as many bytes as an id has, and a flag that lives as long as the handle.
        check(unsafe { sys::lucid_nccl_open(&mut raw, bytes, ID, count, number, ended.as_ptr().cast()) })?;
        Ok(Communicator { raw, size, _ended: Arc::clone(ended) })
    }

    /// An array that nobody else has, in whose memory something may arrive.
    fn place(shape: &[i32], dtype: Dtype) -> Result<Array> {
        if dtype == Dtype::Float64 {
            // Kernels have no such elements; memory is memory.
            let count = shape.iter().map(|&n| n as usize).product::<usize>();
            return Array::from_bytes(&zeros(count.saturating_mul(8))?, shape, dtype);
        }
        let place = ops::zeros(shape, dtype)?;
        place.eval()?;
        Ok(place)
    }

    /// Evaluated, in row-major order.
    fn ready(x: &Array) -> Result<Array> {
        x.eval()?;
        Ok(x.ordered()?.unwrap_or_else(|| x.clone()))
    }

    fn number(how: Reduce) -> c_int {
        match how {
            Reduce::Sum => 0,
            Reduce::Max => 1,
            Reduce::Min => 2,
        }
    }

    pub(crate) fn all_reduce(&self, x: &Array, how: Reduce) -> Result<Array> {
        let narrow = matches!(x.dtype(), Dtype::Int16 | Dtype::Uint16);
        let from = Self::ready(&if narrow { ops::astype(x, Dtype::Int32)? } else { x.clone() })?;
        let to = Self::place(from.shape(), from.dtype())?;
        let how = Self::number(how);
        // SAFETY: the group's own handle, evaluated arrays, of which `to` was made here.
        check(unsafe { sys::lucid_nccl_all_reduce(self.raw, from.raw(), to.raw(), how) })?;
        if narrow {
            ops::astype(&to, x.dtype())
        } else {
            Ok(to)
        }
    }

    pub(crate) fn all_gather(&self, x: &Array) -> Result<Array> {
        let from = Self::ready(x)?;
        let mut shape = from.shape().to_vec();
        match shape.first_mut() {
            Some(first) => *first = first.saturating_mul(self.size as i32),
            None => shape.push(self.size as i32),
        }
        let to = Self::place(&shape, from.dtype())?;
        // SAFETY: as above.
        check(unsafe { sys::lucid_nccl_all_gather(self.raw, from.raw(), to.raw()) })?;
        Ok(to)
    }

    /// This member's part of the reduction of all `x`, along whose first axis the members' parts are.
    pub(crate) fn reduce_scatter(&self, x: &Array, how: Reduce) -> Result<Array> {
        let from = Self::ready(x)?;
        let to = Self::place(from.shape().get(1..).unwrap_or_default(), from.dtype())?;
        // SAFETY: as above.
        check(unsafe { sys::lucid_nccl_reduce_scatter(self.raw, from.raw(), to.raw(), Self::number(how)) })?;
        Ok(to)
    }

    pub(crate) fn broadcast(&self, x: &Array, root: i32) -> Result<Array> {
        let from = Self::ready(x)?;
        let to = Self::place(from.shape(), from.dtype())?;
        // SAFETY: as above.
        check(unsafe { sys::lucid_nccl_broadcast(self.raw, from.raw(), to.raw(), root) })?;
        Ok(to)
    }

    /// The parts that others have for this member, in the members' order.
    pub(crate) fn all_to_all(&self, x: &Array) -> Result<Array> {
        let from = Self::ready(x)?;
        let to = Self::place(from.shape(), from.dtype())?;
        // SAFETY: as above.
        check(unsafe { sys::lucid_nccl_all_to_all(self.raw, from.raw(), to.raw()) })?;
        Ok(to)
    }

    pub(crate) fn send(&self, x: &Array, to: i32) -> Result<()> {
        let from = Self::ready(x)?;
        // SAFETY: as above.
        check(unsafe { sys::lucid_nccl_send(self.raw, from.raw(), to) })
    }

    pub(crate) fn recv(&self, shape: &[i32], dtype: Dtype, from: i32) -> Result<Array> {
        let to = Self::place(shape, dtype)?;
        // SAFETY: as above.
        check(unsafe { sys::lucid_nccl_recv(self.raw, to.raw(), from) })?;
        Ok(to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_its_text() {
        let id = Id(std::array::from_fn(|i| (i * 37) as u8));
        let text = id.to_text();
        assert_eq!(Id::from_text(&text), Some(id));
        assert_eq!(Id::from_text(&text[1..]), None);
        assert_eq!(Id::from_text(&text.replace('f', "g")), None);
        assert_eq!(Id::from_text(&"é".repeat(ID)), None);
    }

    #[test]
    fn without_nccl_there_are_errors() {
        if is_available() {
            return;
        }
        let told = Id::new(Some("lo")).unwrap_err().to_string();
        assert!(told.contains("NCCL") || told.contains("nccl"), "{told}");
        let ended = Arc::new(AtomicBool::new(false));
        assert!(Communicator::open(&Id([0; ID]), 2, 0, &ended).is_err());
        assert!(Communicator::open(&Id([0; ID]), 2, 2, &ended).is_err());
    }
}
