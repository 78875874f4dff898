//! Collectives with gradients, and how a primitive of the family `communication` runs.
//!
//! Depends on `group` and on the rows. Invariant: whatever runs a primitive, a call, a backward pass or a graph, it is
//! announced and run by its group as every other collective is.

use super::group::Group;
use super::pending;
use super::work::Work;
use crate::dispatch::{self, Storage};
use crate::ops::communication::{self as rows, CommunicationOp, Reduce};
use crate::{Device, Error, Result, Tensor};
use lucid_ir::Meta;
use lucid_mlx::communication;

/// Runs a primitive: at once on the CPU device and where elements travel from the GPU's memory to another's. Else the group's
/// thread runs it on the GPU device, and its result is lazy.
pub(crate) fn perform(op: &CommunicationOp, x: &Tensor, meta: &Meta) -> Result<Storage> {
    let name = op.name();
    let mut group = Group::named(op.group())?;
    if x.device() != Device::Gpu || group.size() == 1 || meta.shape.contains(&0) {
        let made = begun(op, &group, x)?.wait_interruptible()?;
        let own = made.is_contiguous() && !made.storage().shares_storage(x.storage());
        return Ok(if own { made } else { made.copy()? }.storage().clone());
    }
    let now = dispatch::of_gpu_array(communication::snapshot(name, dispatch::gpu_arrays(name, &[x])?[0])?);
    if group.is_on_gpu() {
        return Ok(begun(op, &group, &now)?.wait_interruptible()?.storage().clone());
    }
    group.hosts = true;
    let work = begun(op, &group, &now)?;
    let node = pending::node_of(group.name());
    pending::expect(node, &work);
    let arrived = move || {
        let made = work.wait(None)?;
        let array = dispatch::cpu_array(&made).cloned();
        array.ok_or_else(|| Error::runtime(name, "a result that is not in the host's memory"))
    };
    Ok(dispatch::of_gpu_array(communication::arriving(name, node, meta, arrived)?).storage().clone())
}

fn begun(op: &CommunicationOp, group: &Group, x: &Tensor) -> Result<Work<Tensor>> {
    match op {
        CommunicationOp::AllReduce { how, .. } | CommunicationOp::AllReduceExtreme { how, .. } => {
            group.all_reduce(x, *how, None, None)
        }
        CommunicationOp::AllGather { .. } => group.all_gather(x, None, None),
        CommunicationOp::ReduceScatter { how, .. } => group.reduce_scatter(x, *how, None, None),
        CommunicationOp::Broadcast { src, .. } => group.broadcast(x, *src, None, None),
        CommunicationOp::AllToAll { .. } => group.all_to_all(x, None, None),
    }
}

/// `how` over the tensors of all members of a group, as a new tensor on each, with gradients: those of sums and means are
/// reduced as the tensors were, members with the same extreme share its gradient.
///
/// # Errors
/// Where the dtype has no such reduction; [`Error::Distributed`](crate::Error::Distributed) where members do not call the same,
/// with the same shapes and dtypes, in time.
pub fn all_reduce(x: &Tensor, group: &Group, how: Reduce) -> Result<Tensor> {
    rows::reduced(x, &group.reference(), how)
}

/// The tensors of all members along a new first dimension, with gradients.
///
/// # Errors
/// As [`all_reduce`].
pub fn all_gather(x: &Tensor, group: &Group) -> Result<Tensor> {
    rows::gathered(x, &group.reference())
}

/// This member's part of the reduction of all members' tensors, of shape `(n, …)`, with gradients of sums and means.
///
/// # Errors
/// As [`all_reduce`]; where the first dimension is not the number of members.
pub fn reduce_scatter(x: &Tensor, group: &Group, how: Reduce) -> Result<Tensor> {
    rows::scattered(x, &group.reference(), how)
}

/// Member `src`'s tensor on every member, with gradients, which `src` gets summed.
///
/// # Errors
/// As [`all_reduce`].
pub fn broadcast(x: &Tensor, group: &Group, src: usize) -> Result<Tensor> {
    rows::sent_by(x, &group.reference(), src)
}

/// `out[i] = x_i[rank]`, of tensors of shape `(n, …)`, with gradients.
///
/// # Errors
/// As [`reduce_scatter`].
pub fn all_to_all(x: &Tensor, group: &Group) -> Result<Tensor> {
    rows::exchanged(x, &group.reference())
}
