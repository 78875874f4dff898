//! Primitives with several results, each an array of its own: one run, one node of the tape, one step of a graph.
//!
//! Apart from the way of one result, so that this one needs no list.

use super::{arrays, device_mismatch, refuse_dtype, stored, Meta, Prim, Storage, Wrapped};
use crate::layout_propagation::{as_images, matrices_by_columns, ordered};
use crate::meta::MetaBackend;
use crate::ops::OpRow;
use crate::{autograd, batching, graph, profile, Device, Error, Result, Tensor};
use lucid_cpu::CpuBackend;
use lucid_ir::backend::{Array, Results};
use lucid_ir::ops::normalization::NormalizationOp;
use lucid_mlx::GpuBackend;

pub(super) fn execute<B: Wrapped>(prim: &Prim, inputs: &[&Tensor], metas: &[Meta]) -> Result<Results<Storage>> {
    if stored::applies_to_several(prim, inputs, metas) {
        return stored::run_multi::<B>(prim, inputs, metas);
    }
    let name = prim.name();
    let x = arrays::<B>(name, inputs)?;
    for out in metas {
        refuse_dtype::<B>(name, out.dtype)?;
        B::countable(name, out)?;
    }
    let made = match prim {
        Prim::Order(op) => ordered::<B>(op, x[0], metas)?,
        Prim::Quantize(op) => B::quantize(op, x[0], metas)?,
        Prim::Recurrent(op) => B::recurrent(op, &x, metas)?,
        Prim::Normalization(op @ (NormalizationOp::Batch { .. } | NormalizationOp::Group { .. })) => {
            let mut made = B::normalization(op, &x, metas)?;
            if let Some(first) = made.first_mut() {
                *first = as_images::<B>(&x[..1], first.clone())?;
            }
            made
        }
        Prim::Normalization(op) => B::normalization(op, &x, metas)?,
        Prim::Decomposition(op) => {
            let rank = x[0].layout().ndim();
            let made = B::decomposition(op, &x, metas)?;
            made.into_iter().map(|part| matrices_by_columns::<B>(part, rank)).collect::<Result<Results<_>>>()?
        }
        other => return Err(Error::runtime(name, format!("{other:?} has one result"))),
    };
    if made.len() != metas.len() {
        return Err(Error::runtime(name, format!("made {} results, not {}", made.len(), metas.len())));
    }
    Ok(made.into_iter().map(B::wrap).collect())
}

/// [`super::run`] of a primitive with several results.
pub(crate) fn run_multi(prim: &Prim, inputs: &[&Tensor], metas: &[Meta], device: Device) -> Result<Results<Storage>> {
    crate::determinism::check(|| prim.schema(), device)?;
    let begun = profile::begin();
    let made = with_backend!(device, execute(prim, inputs, metas))?;
    profile::end(begun, || prim.schema(), inputs.iter().copied(), metas.first().map_or(&[], |m| &m.shape[..]));
    Ok(made)
}

/// Runs a primitive of several results, of these shapes and dtypes, and records it on the tape where a gradient may be asked for.
pub(crate) fn apply_multi(prim: Prim, inputs: &[&Tensor], metas: &[Meta]) -> Result<Results<Tensor>> {
    let device = inputs[0].storage().device();
    if !inputs.iter().all(|t| t.storage().is_array_on(device)) {
        return match inputs.iter().any(|t| t.is_batched()) {
            true => batching::apply_multi(prim, inputs, metas),
            false => Err(device_mismatch(prim.name(), inputs)),
        };
    }
    let made = run_multi(&prim, inputs, metas, device)?;
    if graph::recording() {
        graph::note_multi_op(&prim, inputs, &made, metas);
    }
    debug_assert!(made.iter().zip(metas).all(|(made, meta)| made.layout().shape == meta.shape), "{prim:?}");
    debug_assert!(made.iter().zip(metas).all(|(made, meta)| made.dtype() == meta.dtype), "{prim:?}");
    match made.iter().any(|made| autograd::is_recorded(inputs, made.dtype())) {
        true => autograd::record_multi(prim, inputs, made),
        false => Ok(made.into_iter().map(Tensor::from_storage).collect()),
    }
}
