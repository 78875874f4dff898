//! Quantising matrices in MLX's packed layout. What reads them is in `quantized`, kernels in `cpu/quantized/` and
//! `mlx/quantized.rs`.

use super::macros::define_ops;
use crate::dispatch::{self, Prim};
use crate::{Error, Result, Tensor};
pub use lucid_ir::ops::quantize::*;
use lucid_ir::ops::quantized::Affine;
use lucid_ir::quantize_ops;

quantize_ops!(define_ops);

fn quantize_body(input: &Tensor, group: i64, bits: i64) -> Result<Vec<Tensor>> {
    let schema = &schema::quantize_affine;
    let format = Affine::of(schema.name, group, bits)?;
    schema.check(input.dtype())?;
    let metas = format.results(input.shape(), input.dtype()).ok_or_else(|| {
        let why = format!("input must be at least 2-D, its last dimension a multiple of group_size {group}");
        Error::shape(schema.name, why, &[input.shape()])
    })?;
    let prim = Prim::Quantize(QuantizeOp::Affine { format });
    dispatch::apply_multi(prim, &[&input.detach()?], &metas).map(|made| made.into_vec())
}
