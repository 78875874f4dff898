//! Elements as bytes, from one device to another, and shown to others.
//!
//! Depends on `dispatch`, whose storages it makes and takes apart.

use super::{arrays, refuse_dtype, Meta, Repr, Storage, Wrapped};
use crate::fallible::copied;
use crate::graph;
use crate::meta::{self, MetaArray, MetaBackend};
use crate::profile;
use crate::{Device, Error, Result, Tensor};
use lucid_cpu::{CpuArray, CpuBackend, Offer};
use lucid_ir::backend::{Backend, Exposed};
use lucid_mlx::{self as gpu, GpuBackend};

/// The elements on another device.
pub(super) fn transfer(x: &Tensor, device: Device) -> Result<Storage> {
    let meta = Meta::new(x.shape(), x.dtype());
    match (x.device(), device) {
        (_, Device::Meta) => return Ok(MetaBackend::wrap(MetaArray::new(&meta))),
        (Device::Meta, Device::Cpu | Device::Gpu) => return Err(meta::unmovable()),
        (Device::Cpu | Device::Gpu, Device::Cpu | Device::Gpu) => {}
    }
    if let Some(storage) = transfer_in_place(x, &meta)? {
        return Ok(storage);
    }
    let _apart = graph::Paused::new(false);
    if let (Repr::Gpu(a), Device::Cpu) = (&x.storage().0, device) {
        return copied_to_host(a, &meta);
    }
    let mut made = None;
    with_bytes(x, &mut |bytes| made = Some(from_bytes(bytes, &meta, device)))?;
    made.unwrap_or_else(|| Err(Error::runtime("to", "the elements were not read".to_string())))
}

/// A storage of the host's with a copy of the elements. Evaluates.
fn copied_to_host(a: &gpu::GpuArray, meta: &Meta) -> Result<Storage> {
    let begun = profile::begin();
    let array = lucid_cpu::copy::from_writer(meta, |bytes| gpu::copy_to(a, bytes))?;
    profile::end_other(begun, "read");
    Ok(Storage(Repr::Cpu(array)))
}

/// Can elements of the GPU device go straight to a tensor of the host's, in its own memory?
pub(crate) fn fits_in_place(dst: &Tensor, src: &Tensor) -> bool {
    let followed = crate::autograd::is_followed;
    matches!((&dst.storage().0, &src.storage().0), (Repr::Cpu(_), Repr::Gpu(_)))
        && (dst.dtype(), dst.shape()) == (src.dtype(), src.shape())
        && dst.layout().is_contiguous()
        && !(followed(dst) || followed(src) || graph::recording())
}

/// Writes the elements there. Evaluates.
pub(super) fn bring(op: &'static str, dst: &Tensor, src: &Tensor) -> Result<()> {
    let (Repr::Cpu(to), Repr::Gpu(from)) = (&dst.storage().0, &src.storage().0) else {
        return Err(Error::runtime(op, "the tensors are not where they were"));
    };
    // Before the memory is locked, which what has to be computed may read.
    super::eval(&[src], true)?;
    let begun = profile::begin();
    lucid_cpu::copy::overwrite(to, |bytes| gpu::copy_to(from, bytes))?;
    profile::end_other(begun, "read");
    Ok(())
}

/// A storage of the other device that shows the same memory; whoever is written to first takes a copy. `None` where the
/// elements have to be copied now.
fn transfer_in_place(x: &Tensor, meta: &Meta) -> Result<Option<Storage>> {
    match &x.storage().0 {
        Repr::Cpu(_) | Repr::Gpu(_) if !gpu::shares_memory() => Ok(None),
        Repr::Gpu(a) => {
            Ok(gpu::lend(a)?.and_then(|lasting| CpuArray::lent(lasting, meta)).map(|array| Storage(Repr::Cpu(array))))
        }
        Repr::Cpu(a) if GpuBackend::supports(meta.dtype) && x.numel() * meta.dtype.size() >= gpu::lent_from() => {
            GpuBackend::countable("to", meta)?;
            let Some(buffer) = a.whole() else { return Ok(None) };
            let array = buffer.offer(|offer| match offer {
                Offer::Again(lasting, bytes) => Ok((gpu::again(lasting, bytes, meta)?, None)),
                Offer::New(memory, bytes) => gpu::over(memory, bytes, meta).map(|(array, kept)| (array, Some(kept))),
            })?;
            Ok(array.map(|array| Storage(Repr::Gpu(array))))
        }
        Repr::Cpu(_) | Repr::Meta(_) | Repr::Batched(_) | Repr::Sparse(_) => Ok(None),
    }
}

/// A new storage from row-major bytes.
pub(crate) fn from_bytes(bytes: &[u8], meta: &Meta, device: Device) -> Result<Storage> {
    fn run<B: Wrapped>(bytes: &[u8], meta: &Meta) -> Result<Storage> {
        refuse_dtype::<B>("to", meta.dtype)?;
        B::from_bytes(bytes, meta).map(B::wrap)
    }
    let storage = with_backend!(device, run(bytes, meta))?;
    if graph::recording() {
        graph::note_constant(&storage)?;
    }
    Ok(storage)
}

/// Hands over the elements as row-major bytes, without a copy where they have that layout. Evaluates.
fn with_bytes(x: &Tensor, f: &mut dyn FnMut(&[u8])) -> Result<()> {
    fn run<B: Wrapped>(x: &Tensor, f: &mut dyn FnMut(&[u8])) -> Result<()> {
        B::with_bytes(arrays::<B>("to_bytes", &[x])?[0], f)
    }
    graph::note_break("to_bytes", "the elements of a tensor are read")?;
    let begun = profile::begin();
    with_backend!(x.device(), run(x, f))?;
    profile::end_other(begun, "read");
    Ok(())
}

/// The elements as row-major bytes. Evaluates.
pub(crate) fn to_bytes(x: &Tensor) -> Result<Vec<u8>> {
    let mut copy = Ok(Vec::new());
    with_bytes(x, &mut |bytes| copy = copied(bytes))?;
    copy
}

/// Where the storage of a tensor begins, with `apart` at an address that no other storage has. Evaluates.
pub(crate) fn expose(x: &Tensor, apart: bool) -> Result<Exposed> {
    fn run<B: Wrapped>(x: &Tensor, apart: bool) -> Result<Exposed> {
        B::expose(arrays::<B>("data_ptr", &[x])?[0], apart)
    }
    graph::note_break("data_ptr", "the memory of a tensor is shown to others")?;
    with_backend!(x.device(), run(x, apart))
}
