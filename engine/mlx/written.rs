//! Storages that kernels write in place, where MLX's arrays never change: the keys and values of a language model, of which
//! each token adds a little to much.
//!
//! Depends on `value`, `lower` and `array`. A storage of this kind holds memory that no other value shows, and what the last
//! kernel that wrote it gives, whom a reader waits for. Who reads it gets a copy, which the storage holds from then on, so that
//! the next writer copies it anew: nobody sees an array change. Invariant: `memory` is in one storage, and in launches that
//! came before.

use super::array::GpuArray;
use super::kernel_error::Made;
use super::lower::Origin;
use super::value::Value;
use mlx_ffi::{ops, Array, Dtype};
use smallvec::SmallVec;

/// Memory, and a result of the kernel that wrote it last.
#[derive(Clone)]
pub(super) struct Written {
    pub memory: Array,
    /// Counts for the next kernel, all of them 0, and behind them how many tokens there are and the room for them. They stay on
    /// the device: what the host writes anew for each token is moved there page by page.
    pub by: Array,
    /// How many tokens it says that there are.
    pub tokens: usize,
}

impl Written {
    /// A copy, made when the memory is written.
    pub(super) fn copied(&self) -> Made<Array> {
        let any = ops::equal(&ops::max(&self.by, false)?, &Array::scalar(0u32)?)?;
        Ok(ops::where_(&any, &self.memory, &self.memory)?)
    }
}

/// What a kernel with so many counts may write of two storages (B, heads, room, head) of so many tokens: as they are where the
/// last one wrote both and counted these tokens, else copies; `None` of views.
pub(super) fn both(buffers: [&GpuArray; 2], counts: usize, tokens: usize) -> Made<Option<[Written; 2]>> {
    let known = |buffer: &GpuArray| buffer.base().and_then(|cell| cell.value().written().cloned());
    if let (Some(first), Some(second)) = (known(buffers[0]), known(buffers[1]))
        && first.by.id() == second.by.id()
        && first.by.size() == counts + 2
        && first.tokens == tokens
    {
        return Ok(Some([first, second]));
    }
    let [Some(keys), Some(values)] = buffers.map(GpuArray::base) else { return Ok(None) };
    if std::ptr::eq(keys, values) {
        return Ok(None);
    }
    let shape = [super::convert::int(counts + 2)?];
    let behind = [tokens as u32, buffers[0].shape()[2] as u32];
    let known: SmallVec<[u32; 64]> = std::iter::repeat_n(0, counts).chain(behind).collect();
    let by = ops::add(&Array::from_slice(&known, &shape)?, &ops::zeros(&shape, Dtype::Uint32)?)?;
    let own = |buffer: &GpuArray| -> Made<Written> {
        let was = buffer.value()?.logical()?.into_owned();
        // An op, as MLX's own copies share memory; then in one piece, as kernels take it.
        let copy = ops::where_(&Array::scalar(true)?, &was, &was)?;
        Ok(Written { memory: ops::contiguous(&copy, false)?, by: by.clone(), tokens })
    };
    Ok(Some([own(buffers[0])?, own(buffers[1])?]))
}

/// Puts what was written into a storage.
pub(super) fn replace(buffer: &GpuArray, written: Written) -> Made<()> {
    buffer.replace(Value::later(Origin::Written(written), None)?)
}
