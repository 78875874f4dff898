//! What is done for tensors of all devices at once: evaluation, and optimizers' steps.

use super::{arrays, Wrapped};
use crate::meta::MetaBackend;
use crate::optim::Step;
use crate::sparse::Coo;
use crate::{batching, graph, profile, Result, Tensor};
use lucid_cpu::CpuBackend;
use lucid_mlx::{GpuArray, GpuBackend};
use smallvec::SmallVec;

/// Optimizer steps over all parameters, each on its own device.
pub(crate) fn steps(batches: &[(Step, Vec<Vec<Tensor>>)]) -> Result<()> {
    fn run<B: Wrapped>(batches: &[(Step, Vec<Vec<Tensor>>)]) -> Result<()> {
        let on_device = |list: &&Vec<Tensor>| list.first().is_some_and(|p| B::unwrap(p.storage()).is_some());
        #[allow(clippy::disallowed_methods)] // As many as groups of parameters that are there.
        let mut own = Vec::with_capacity(batches.len());
        for (step, lists) in batches {
            #[allow(clippy::disallowed_methods)] // As many as parameters that are there.
            let mut of_step: Vec<Vec<&B::Array>> = Vec::with_capacity(lists.len());
            for list in lists.iter().filter(on_device) {
                let refs: SmallVec<[&Tensor; 6]> = list.iter().collect();
                of_step.push(arrays::<B>(step.name(), &refs)?.into_vec());
            }
            if !of_step.is_empty() {
                own.push((*step, of_step));
            }
        }
        if own.is_empty() {
            Ok(())
        } else {
            B::steps(&own)
        }
    }
    graph::note_break("step", "an optimizer's step outside of Optimizer.step()")?;
    run::<CpuBackend>(batches)?;
    run::<MetaBackend>(batches)?;
    run::<GpuBackend>(batches)
}

/// Computes what is pending for these tensors, each on its own device; waits unless told not to.
pub(crate) fn eval(tensors: &[&Tensor], wait: bool) -> Result<()> {
    fn run<B: Wrapped>(tensors: &[&Tensor], wait: bool) -> Result<()> {
        let own: Vec<&B::Array> = tensors.iter().filter_map(|t| B::unwrap(batching::bare(t).storage())).collect();
        if own.is_empty() {
            Ok(())
        } else {
            B::eval(&own, wait)
        }
    }
    let begun = profile::begin();
    let parts: Vec<Tensor> = tensors.iter().filter_map(|t| t.storage().coo()).flat_map(Coo::both).collect();
    let all: SmallVec<[&Tensor; 4]> = tensors.iter().copied().chain(&parts).collect();
    if graph::recording() {
        graph::note_eval(&all, wait);
    }
    run::<CpuBackend>(&all, wait)?;
    run::<GpuBackend>(&all, wait)?;
    profile::end_other(begun, "eval");
    Ok(())
}

/// The MLX primitives that evaluating these tensors would run, by name; CPU tensors have none.
///
/// # Errors
/// Where MLX reports one.
pub fn primitives(tensors: &[&Tensor]) -> Result<Vec<(String, usize)>> {
    let own: Vec<&GpuArray> = tensors.iter().filter_map(|t| GpuBackend::unwrap(t.storage())).collect();
    lucid_mlx::primitives(&own)
}
