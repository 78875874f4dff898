//! Norms with several results: batch norm with its statistics, and the gradients through norms.
//!
//! By kernels of our own (`norm_kernels.rs`), by MLX's ops where these cannot run, and on MLX's CPU stream by the CPU device's.
//! Invariant: 16-bit floats are computed in float32 and rounded once.

use super::array::GpuArray;
use super::convert::{self, constant, int, ints, Ints};
use super::kernel_error::Made;
use super::value::Value;
use super::{group_norm_kernels, host_kernel, norm_kernels};
use crate::shape::numel;
use crate::Error;
use lucid_cpu::{CpuArray, CpuBackend};
use lucid_ir::backend::{Backend, Results};
use lucid_ir::ops::normalization::{statistics_dtype, NormalizationOp};
use lucid_ir::{DType, Meta};
use mlx_ffi::{ops, Array, Dtype};
use smallvec::SmallVec;

/// The results of the `normalization` family.
pub(super) fn normalization(op: &NormalizationOp, inputs: &[&GpuArray], out: &[Meta]) -> Made<Results<GpuArray>> {
    let Some(first) = out.first() else { return Err(Error::runtime(op.name(), "has results").into()) };
    let (shape, dtype) = (&first.shape[..], first.dtype);
    let terms = match op {
        NormalizationOp::LayerGradient { dims, .. } => numel(&shape[shape.len() - dims..]),
        NormalizationOp::Group { groups, .. } => numel(shape) / (shape[0] * groups).max(1),
        NormalizationOp::GroupGradient => numel(&shape[2..]),
        NormalizationOp::Batch { .. } | NormalizationOp::BatchGradient => numel(shape) / shape[1].max(1),
    };
    if numel(shape) > 0 && host_kernel::takes_sum(terms, dtype) {
        return by_host(op, inputs, out);
    }
    let made = match (op, inputs) {
        (NormalizationOp::Batch { eps }, &[x, w, b]) => norm_kernels::channels(x, [w, b], *eps)?,
        (NormalizationOp::BatchGradient, &[g, x, w, mean, scale]) => {
            norm_kernels::channels_back(g, x, w, [mean, scale])?
        }
        (NormalizationOp::Group { groups, eps }, &[x, w, b]) => group_norm_kernels::groups(x, [w, b], *groups, *eps)?,
        (NormalizationOp::GroupGradient, &[g, x, w, mean, scale]) => {
            group_norm_kernels::groups_back(g, x, w, [mean, scale])?
        }
        (NormalizationOp::LayerGradient { eps, .. }, &[g, x, w]) => norm_kernels::rows_gradients(g, x, w, *eps)?,
        _ => None,
    };
    let values: SmallVec<[Value; 4]> = match made {
        Some(made) => made,
        None => by_ops(op, inputs, dtype)?.into_iter().map(Value::plain).collect(),
    };
    let like = |(value, out): (Value, &Meta)| GpuArray::new(value, &out.shape, out.dtype);
    values.into_iter().zip(out).map(like).collect()
}

/// The CPU device's kernel as a node of MLX's graph.
fn by_host(op: &NormalizationOp, inputs: &[&GpuArray], out: &[Meta]) -> Made<Results<GpuArray>> {
    let held = inputs.iter().map(|x| x.value()).collect::<Made<SmallVec<[_; 5]>>>()?;
    let arrays = held.iter().map(|v| v.logical()).collect::<Made<SmallVec<[_; 5]>>>()?;
    let refs: SmallVec<[&Array; 5]> = arrays.iter().map(|a| &**a).collect();
    let shapes = out.iter().map(|out| ints(&out.shape)).collect::<Made<Vec<_>>>()?;
    let dtypes = out.iter().map(|out| convert::dtype(out.dtype)).collect::<Made<Vec<_>>>()?;
    let to: Vec<(&[i32], Dtype)> = shapes.iter().map(|shape| &**shape).zip(dtypes).collect();
    let (op, metas) = (op.clone(), out.to_vec());
    let kernel = move |x: &[&CpuArray]| CpuBackend::normalization(&op, x, &metas).map(|made| made.into_vec());
    let dtypes = inputs.iter().map(|x| x.element()).collect();
    let made = host_kernel::nodes(c"LucidNormalization", &refs, dtypes, &to, kernel)?;
    made.into_iter().zip(out).map(|(made, out)| GpuArray::new(Value::plain(made), &out.shape, out.dtype)).collect()
}

/// All results in logical order by MLX's ops.
fn by_ops(op: &NormalizationOp, inputs: &[&GpuArray], dtype: DType) -> Made<SmallVec<[Array; 4]>> {
    let (wide, to) = (convert::dtype(statistics_dtype(dtype))?, convert::dtype(dtype)?);
    let arrays = inputs
        .iter()
        .map(|x| Ok(ops::astype(&*x.value()?.logical()?, wide)?))
        .collect::<Made<SmallVec<[Array; 5]>>>()?;
    let eps = |eps: f64| constant(eps, statistics_dtype(dtype));
    let scaled = |var: &Array, by: f64| -> Made<Array> { Ok(ops::rsqrt(&ops::add(var, &eps(by)?)?)?) };
    let of_weight = || convert::dtype(inputs.get(2).map_or(dtype, |w| w.element()));
    Ok(match (op, &arrays[..]) {
        (NormalizationOp::Batch { eps }, [x, w, b]) => {
            let (over, along) = channels(x)?;
            let mean = mean_over(x, &over)?;
            let centred = ops::subtract(x, &mean)?;
            let var = mean_over(&ops::square(&centred)?, &over)?;
            let scale = scaled(&var, *eps)?;
            let y = ops::multiply(&ops::multiply(&centred, &scale)?, &ops::reshape(w, &along)?)?;
            let y = ops::astype(&ops::add(&y, &ops::reshape(b, &along)?)?, to)?;
            let flat = |a: &Array| ops::reshape(a, &[-1]);
            smallvec::smallvec![y, flat(&mean)?, flat(&var)?, flat(&scale)?]
        }
        (NormalizationOp::BatchGradient, [g, x, w, mean, scale]) => {
            let (over, along) = channels(x)?;
            let wide = |a: &Array| ops::reshape(a, &along);
            let (mean, scale) = (wide(mean)?, wide(scale)?);
            let y = ops::multiply(&ops::subtract(x, &mean)?, &scale)?;
            let gy = ops::multiply(g, &y)?;
            let met = ops::multiply(&y, &mean_over(&gy, &over)?)?;
            let inner = ops::subtract(&ops::subtract(g, &mean_over(g, &over)?)?, &met)?;
            let to_x = ops::astype(&ops::multiply(&inner, &ops::multiply(&wide(w)?, &scale)?)?, to)?;
            let of = of_weight()?;
            let sum = |a: &Array| -> Made<Array> { Ok(ops::astype(&ops::sum_axes(a, &over, false)?, of)?) };
            smallvec::smallvec![to_x, sum(&gy)?, sum(g)?]
        }
        (NormalizationOp::Group { groups, eps }, [x, w, b]) => {
            let (_, along) = channels(x)?;
            let rows = ops::reshape(x, &rows_of(x, *groups)?)?;
            let mean = mean_over(&rows, &[2])?;
            let centred = ops::subtract(&rows, &mean)?;
            let scale = scaled(&mean_over(&ops::square(&centred)?, &[2])?, *eps)?;
            let y = ops::reshape(&ops::multiply(&centred, &scale)?, x.shape())?;
            let y = ops::multiply(&y, &ops::reshape(w, &along)?)?;
            let y = ops::astype(&ops::add(&y, &ops::reshape(b, &along)?)?, to)?;
            let flat = |a: &Array| ops::squeeze_axis(a, 2);
            smallvec::smallvec![y, flat(&mean)?, flat(&scale)?]
        }
        (NormalizationOp::GroupGradient, [g, x, w, mean, scale]) => {
            let (over, along) = channels(x)?;
            let shape = rows_of(x, mean.shape()[1] as usize)?;
            let rows = |a: &Array| ops::reshape(a, &shape);
            let (mean, scale) = (ops::expand_dims(mean, -1)?, ops::expand_dims(scale, -1)?);
            let y = ops::multiply(&ops::subtract(&rows(x)?, &mean)?, &scale)?;
            let v = rows(&ops::multiply(g, &ops::reshape(w, &along)?)?)?;
            let met = ops::multiply(&y, &mean_over(&ops::multiply(&v, &y)?, &[2])?)?;
            let inner = ops::subtract(&ops::subtract(&v, &mean_over(&v, &[2])?)?, &met)?;
            let to_x = ops::astype(&ops::reshape(&ops::multiply(&inner, &scale)?, x.shape())?, to)?;
            let of = of_weight()?;
            let sum = |a: &Array| -> Made<Array> { Ok(ops::astype(&ops::sum_axes(a, &over, false)?, of)?) };
            smallvec::smallvec![to_x, sum(&ops::multiply(g, &ops::reshape(&y, x.shape())?)?)?, sum(g)?]
        }
        (NormalizationOp::LayerGradient { dims, eps }, [g, x, w]) => {
            let lead = x.ndim() - dims;
            let over = (lead..x.ndim()).map(int).collect::<Made<Ints>>()?;
            let rows = (0..lead).map(int).collect::<Made<Ints>>()?;
            let own: Ints = x.shape()[lead..].iter().copied().collect();
            let centred = ops::subtract(x, &mean_over(x, &over)?)?;
            let scale = scaled(&mean_over(&ops::square(&centred)?, &over)?, *eps)?;
            let y = ops::multiply(&centred, &scale)?;
            let v = ops::multiply(g, &ops::reshape(w, &own)?)?;
            let met = ops::multiply(&y, &mean_over(&ops::multiply(&v, &y)?, &over)?)?;
            let inner = ops::subtract(&ops::subtract(&v, &mean_over(&v, &over)?)?, &met)?;
            let (of, shape) = (of_weight()?, w.shape());
            let sum = |a: &Array| -> Made<Array> {
                let all = if rows.is_empty() { a.clone() } else { ops::sum_axes(a, &rows, false)? };
                Ok(ops::astype(&ops::reshape(&all, shape)?, of)?)
            };
            smallvec::smallvec![
                ops::astype(&ops::multiply(&inner, &scale)?, to)?,
                sum(&ops::multiply(g, &y)?)?,
                sum(g)?
            ]
        }
        _ => return Err(Error::runtime(op.name(), format!("does not take {} arrays", inputs.len())).into()),
    })
}

/// All axes but the second, and the shape of what has that alone.
fn channels(x: &Array) -> Made<(Ints, Ints)> {
    let over = (0..x.ndim()).filter(|&d| d != 1).map(int).collect::<Made<Ints>>()?;
    let mut along = Ints::from_elem(1, x.ndim());
    along[1] = x.shape()[1];
    Ok((over, along))
}

/// The shape of rows of groups of channels.
fn rows_of(x: &Array, groups: usize) -> Made<[i32; 3]> {
    let (images, groups) = (x.shape()[0], int(groups)?);
    Ok([images, groups, int(x.size())? / (images * groups).max(1)])
}

fn mean_over(x: &Array, over: &[i32]) -> Made<Array> {
    Ok(ops::mean_axes(x, over, true)?)
}
