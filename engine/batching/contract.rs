//! Batching rules of products of matrices: one product, whatever is batched.

use super::batch_dim::{aligned, batched};
use super::rules::each_sample;
use super::Input;
use crate::dispatch::{apply1, Meta, Prim};
use crate::ops::contract::ContractOp;
use crate::ops::view::{expand_to, reshape_to};
use crate::shape::{numel, Shape};
use crate::{Result, Tensor};

pub(super) fn run(op: ContractOp, x: &[Input<'_>], size: usize, out: Meta) -> Result<Tensor> {
    match op {
        ContractOp::MatMul { .. } => matmul(&x[0], &x[1], out),
        #[allow(unreachable_patterns, reason = "for ops to come")]
        op => each_sample(Prim::Contract(op), x, size, out),
    }
}

fn matmul(a: &Input<'_>, b: &Input<'_>, out: Meta) -> Result<Tensor> {
    if !b.batched && b.ndim() == 2 {
        // One product of all samples' rows.
        return rows_by(&a.value.contiguous()?, b.value, &out.shape);
    }
    if !a.batched && a.ndim() == 2 {
        let mut shape = out.shape.clone();
        let n = shape.len();
        shape.swap(n - 2, n - 1);
        return rows_by(&b.value.transpose(-2, -1)?.contiguous()?, &a.value.transpose(-2, -1)?, &shape)?
            .transpose(-2, -1);
    }
    let ndim = out.shape.len() - 1;
    aligned(a, ndim)?.matmul(&aligned(b, ndim)?)
}

/// The last dimension of `x` times the matrix `m`, in the given shape.
fn rows_by(x: &Tensor, m: &Tensor, shape: &[usize]) -> Result<Tensor> {
    let (rows, cols) = (numel(&x.shape()[..x.ndim() - 1]), x.shape()[x.ndim() - 1]);
    reshape_to(&reshape_to(x, &[rows, cols])?.matmul(m)?, shape)
}

/// `input @ weight.T + bias`.
pub(super) fn linear(x: &[Input<'_>], out: Meta) -> Result<Tensor> {
    let (input, weight) = (&x[0], &x[1]);
    let bias = x.get(2);
    if !weight.batched && !bias.is_some_and(|b| b.batched) {
        return crate::ops::nn::linear(input.value, weight.value, bias.map(|b| b.value));
    }
    let y = match weight.batched {
        false => crate::ops::nn::linear(input.value, weight.value, None)?,
        true => {
            let weight = weight.value.transpose(-2, -1)?;
            let cols = input.shape()[input.ndim() - 1];
            let rows = numel(&input.shape()[..input.ndim() - 1]);
            let mut shape = Shape::from_slice(&[rows, cols]);
            if input.batched {
                shape.insert(0, input.value.shape()[0]);
            }
            reshape_to(input.value, &shape)?.matmul(&weight)?
        }
    };
    // Without a batch of its own the input gave the samples' shape.
    let batch = out.shape[0];
    let (ndim, features) = (out.shape.len(), out.shape[out.shape.len() - 1]);
    let Some(bias) = bias else { return reshape_to(&y, &out.shape) };
    let mut wide = Shape::from_elem(1, ndim);
    wide[ndim - 1] = features;
    if bias.batched {
        wide[0] = batch;
    }
    let y = match y.numel() == numel(&out.shape) {
        true => reshape_to(&y, &out.shape)?,
        false => reshape_to(&y, &out.shape[1..])?,
    };
    y + &reshape_to(bias.value, &wide)?
}

/// Attention with the samples as more of its batch; a mask that its batch shares is repeated for that.
pub(super) fn attention(prim: Prim, x: &[Input<'_>], size: usize, out: Meta) -> Result<Tensor> {
    let merged = |x: &Input<'_>, count: usize| -> Result<Tensor> {
        let x = batched(x, size)?;
        let mut shape = Shape::from_slice(x.shape());
        shape[1] = count;
        let x = expand_to(&x, &shape)?;
        shape.remove(0);
        shape[0] *= size;
        reshape_to(&x, &shape)
    };
    let count = out.shape[1];
    let mut all = Vec::new();
    for (i, x) in x.iter().enumerate() {
        // One mask for everything stays one.
        let whole = i == 3 && !x.batched && x.shape()[0] == 1;
        all.push(if whole { x.value.clone() } else { merged(x, count)? });
    }
    let mut shape = Shape::from_slice(&out.shape[1..]);
    shape[0] *= size;
    let y = apply1(prim, &all.iter().collect::<Vec<_>>(), Meta::new(&shape, out.dtype))?;
    reshape_to(&y, &out.shape)
}
