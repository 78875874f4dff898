//! Collectives of both devices: `distributed` runs them, over MLX's communication.

use super::{MetaBackend, Storage, Wrapped};
use crate::autograd::no_grad;
use crate::meta::MetaArray;
use crate::ops::communication::CommunicationOp;
use crate::{distributed, graph, Device, Error, Result, Scalar, Tensor};
use lucid_ir::Meta;
use std::cell::Cell;

thread_local! {
    static REHEARSING: Cell<bool> = const { Cell::new(false) };
}

/// Has the collectives that this thread runs give zeros, without any other process; says what it was. For recording a graph
/// whose results nobody reads.
pub fn set_rehearsing(on: bool) -> bool {
    REHEARSING.try_with(|cell| cell.replace(on)).unwrap_or(false)
}

/// Runs a collective, which the tape and graphs see as one primitive.
pub(super) fn run(op: &CommunicationOp, inputs: &[&Tensor], meta: &Meta) -> Result<Storage> {
    let [x] = inputs else {
        let why = format!("takes one array, not {}", inputs.len());
        return Err(Error::runtime(op.name(), why));
    };
    if x.device() == Device::Meta {
        return Ok(MetaBackend::wrap(MetaArray::new(meta)));
    }
    let _apart = graph::Paused::new(false);
    no_grad(|| {
        if REHEARSING.try_with(Cell::get).unwrap_or(false) {
            let zeros = Tensor::full_of(&meta.shape, Scalar::ZERO, meta.dtype, x.device())?;
            return Ok(zeros.storage().clone());
        }
        distributed::perform(op, &Tensor::from_storage(x.storage().clone()), meta)
    })
}
