//! Primitives with several results on the tape: one node, a gradient for each result that something used.
//!
//! What such a node keeps of its results is kept behind its inputs, so that nodes of one result have no room for more.

use super::autograd_meta::Auto;
use super::node::{Edge, InputMeta, Kind, Node, Saved, SavedTensor};
use super::record::{check_followed, edge_of, requires_grad};
use super::{forward, grad_enabled, Ctx};
use crate::dispatch::{Prim, Storage};
use crate::ops::{OpRow, Schema};
use crate::{Result, Scalar, Tensor};
use lucid_ir::backend::Results;
use smallvec::SmallVec;
use std::sync::Arc;

/// A primitive with several results.
pub(crate) struct MultiOp {
    pub(crate) prim: Prim,
    pub(crate) results: SmallVec<[InputMeta; 3]>,
}

/// The results of a primitive that has several, of one node where a gradient may be asked for.
pub(crate) fn record_multi(prim: Prim, inputs: &[&Tensor], made: Results<Storage>) -> Result<Results<Tensor>> {
    match forward::active() {
        true => forward::record_multi(prim, inputs, |prim| record_multi_step(prim, inputs, made)),
        false => record_multi_step(prim, inputs, made),
    }
}

fn record_multi_step(prim: Prim, inputs: &[&Tensor], made: Results<Storage>) -> Result<Results<Tensor>> {
    let schema = prim.schema();
    if !grad_enabled() || !schema.differentiable || !inputs.iter().any(|t| requires_grad(t)) {
        return Ok(made.into_iter().map(Tensor::from_storage).collect());
    }
    inputs.iter().try_for_each(|t| check_followed(schema.name, t))?;
    let edges: SmallVec<[Option<Edge>; 2]> = inputs.iter().map(|t| edge_of(t)).collect();
    let needs = |j: usize| edges.get(j).is_some_and(Option::is_some);
    let saved = saved_of_multi(
        schema,
        inputs,
        needs,
        SavedTensor::input,
        |nr| SavedTensor::output(&made[nr], nr as u32),
        made.len(),
    )?;
    let of = match &prim {
        Prim::Normalization(_) => InputMeta::of_images,
        _ => InputMeta::of,
    };
    let metas = inputs.iter().map(|t| of(t)).collect();
    let op = MultiOp { prim, results: made.iter().map(InputMeta::of_result).collect() };
    let node = Node::new(Kind::MultiOp(Box::new(op)), edges, metas, saved);
    let tensor = |(nr, storage): (u32, Storage)| match storage.dtype().is_differentiable() {
        true => Tensor::with_auto(storage, Auto::recorded(Edge { node: Arc::clone(&node), nr })),
        false => Tensor::from_storage(storage),
    };
    Ok((0..).zip(made).map(tensor).collect())
}

/// What a primitive of several results keeps, by its row: the inputs, and behind them the results.
pub(super) fn saved_of_multi(
    schema: &Schema,
    inputs: &[&Tensor],
    needs: impl Fn(usize) -> bool + Copy,
    input: impl Fn(&Tensor) -> Result<SavedTensor>,
    result: impl Fn(usize) -> Result<SavedTensor>,
    results: usize,
) -> Result<Saved> {
    let keep = |(i, t): (usize, &&Tensor)| schema.saves.input(i, needs).then(|| input(t)).transpose();
    let mut kept = inputs.iter().enumerate().map(keep).collect::<Result<SmallVec<[Option<SavedTensor>; 2]>>>()?;
    for nr in 0..results {
        kept.push(schema.saves.result(nr, needs).then(|| result(nr)).transpose()?);
    }
    Ok(Saved { inputs: kept, ..Saved::default() })
}

impl Ctx<'_> {
    /// Saved result `nr` of several, on the tape as this node's own.
    pub(crate) fn result(&self, nr: usize) -> Result<Tensor> {
        let at = self.len() + nr;
        let kept = self.node.kept(at)?.ok_or_else(|| self.missing())?;
        self.unpack(at, &kept)
    }

    /// The gradient of result `nr` of several; `None` where nothing used it.
    pub(crate) fn grad(&self, nr: usize) -> Option<&Tensor> {
        self.grads.get(nr).and_then(Option::as_ref)
    }

    /// The same, with zeros where nothing used it.
    pub(crate) fn grad_or_zeros(&self, nr: usize) -> Result<Tensor> {
        if let Some(g) = self.grad(nr) {
            return Ok(g.clone());
        }
        let Kind::MultiOp(op) = &self.node.kind else { return Err(self.missing()) };
        let InputMeta { shape, dtype, device, .. } = op.results.get(nr).ok_or_else(|| self.missing())?;
        Tensor::full_of(shape, Scalar::ZERO, *dtype, *device)
    }
}
