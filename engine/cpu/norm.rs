//! Standardisation of rows, with the scale and shift of layer norm, and the gradient through it.
//!
//! Depends on `simd`, `fused` and `batch_norm`. A row is worked on while it is in the cache: its mean, its variance, then the
//! results; on the way back the shares of weight and bias in the same pass. 16-bit floats are computed with in `float32`.
//! Invariant: sums over rows are made of blocks of fixed size, so that they do not depend on the number of threads.

use super::batch_norm::{self, By, Channels};
use super::batch_norm_columns::{self, Table};
use super::fused::{total, total2, with_float, Compute, Float, LANES, SUMMED};
use super::group_norm::{self, Groups};
use super::group_norm_columns::{self, Images};
use super::simd::{join, run, threads, Task, Wide};
use super::CpuArray;
use crate::fallible::{scratch, scratch_from};
use crate::{Error, Result};
use lucid_ir::backend::{Array, Results};
use lucid_ir::ops::norm::NormOp;
use lucid_ir::ops::normalization::NormalizationOp;
use lucid_ir::Meta;
use smallvec::SmallVec;

/// Rows whose shares of the gradients of weight and bias are added up in their own precision.
const GROUP: usize = 64;

/// The kernels of the `norm` family.
pub fn norm(op: &NormOp, inputs: &[&CpuArray], out: &Meta) -> Result<CpuArray> {
    let x = inputs[0];
    match *op {
        NormOp::Standardize { dims, eps } => {
            with_float!("layer_norm", out.dtype, T => standardize::<T>(x, dims, eps))
        }
        NormOp::StandardizeGradient { dims, eps } => {
            with_float!("layer_norm", out.dtype, T => standardize_gradient::<T>(x, inputs[1], dims, eps))
        }
        NormOp::Affine { dims, eps } => {
            with_float!("layer_norm", out.dtype, T => affine::<T>(x, inputs[1], inputs[2], dims, eps))
        }
    }
}

/// The kernels of the `normalization` family.
pub fn normalization(op: &NormalizationOp, inputs: &[&CpuArray], out: &[Meta]) -> Result<Results<CpuArray>> {
    let &NormalizationOp::LayerGradient { dims, eps } = op else { return of_channels(op, inputs, out) };
    let &[g, x, weight] = inputs else { return Err(Error::runtime(op.name(), "takes three arrays")) };
    with_float!("layer_norm", x.dtype(), T => affine_back::<T>(g, x, weight, dims, eps)).map(Results::from)
}

/// Batch or group norm with its statistics, or its gradient.
fn of_channels(op: &NormalizationOp, inputs: &[&CpuArray], out: &[Meta]) -> Result<Results<CpuArray>> {
    let (g, x, rest) = match (op, inputs) {
        (NormalizationOp::Batch { .. } | NormalizationOp::Group { .. }, [x, rest @ ..]) => (None, *x, rest),
        (_, [g, x, rest @ ..]) => (Some(*g), *x, rest),
        _ => return Err(Error::runtime(op.name(), "takes more arrays")),
    };
    let mut vectors: SmallVec<[Vec<f64>; 3]> = SmallVec::new();
    for vector in rest {
        vectors.push(with_float!("batch_norm", vector.dtype(), T => doubles::<T>(vector))?);
    }
    let (made, sums) = with_float!("batch_norm", x.dtype(), T => match (op, &vectors[..]) {
        (NormalizationOp::Group { groups, eps }, [weight, bias]) => {
            match Images::of(&x.layout, *groups) {
                Some(of) => group_norm_columns::forward::<T>(x, of, *eps, [weight, bias]),
                None => group_norm::forward::<T>(x, Groups::of(x.shape(), *groups), *eps, [weight, bias]),
            }
        }
        (NormalizationOp::GroupGradient, [weight, mean, scale]) => {
            let groups = rest.get(1).map_or(1, |mean| mean.shape()[1]);
            let (g, known) = (g.unwrap_or(x), [&mean[..], &scale[..]]);
            match Images::of(&x.layout, groups) {
                Some(of) => group_norm_columns::backward::<T>(x, &g.ordered_as(&x.layout)?, of, weight, known),
                None => group_norm::backward::<T>(x, g, Groups::of(x.shape(), groups), weight, known),
            }
        }
        (op, vectors) => {
            let x = match Table::of(&x.layout) {
                Some(_) => x.clone(),
                None => x.contiguous()?,
            };
            let g = g.map(|g| g.ordered_as(&x.layout)).transpose()?;
            let eps = if let NormalizationOp::Batch { eps } = *op { eps } else { 0.0 };
            channels::<T>(&x, g.as_ref(), vectors, eps)
        }
    })?;
    let mut results = Results::from_iter([made]);
    for (nr, meta) in out.iter().enumerate().skip(1) {
        let of = |[a, b]: &[f64; 2]| match (nr, op) {
            (1, _) => *a,
            (3, NormalizationOp::Batch { eps }) => 1.0 / (b + eps).sqrt(),
            _ => *b,
        };
        results.push(with_float!("batch_norm", meta.dtype, T => vector::<T>(&meta.shape, sums.iter().map(of)))?);
    }
    Ok(results)
}

/// An array of these numbers.
fn vector<T: Float>(shape: &[usize], numbers: impl Iterator<Item = f64>) -> Result<CpuArray> {
    CpuArray::build(shape, |out: &mut [T]| {
        out.iter_mut().zip(numbers).for_each(|(o, x)| *o = T::finish(x));
        Ok(())
    })
}

/// The elements of a vector in double precision.
fn doubles<T: Float>(x: &CpuArray) -> Result<Vec<f64>> {
    let x = x.contiguous()?;
    let guard = x.read::<T>();
    Ok(scratch_from(x.slice(&guard).iter().map(|x| x.widen().into())))
}

/// Of `x` alone batch norm by a weight and a bias, and means and variances; of `g` its gradient from a weight, means and
/// `1 / sqrt(var + eps)`, and the gradients of weight and bias.
fn channels<T: Float>(
    x: &CpuArray,
    g: Option<&CpuArray>,
    vectors: &[Vec<f64>],
    eps: f64,
) -> Result<(CpuArray, Vec<[f64; 2]>)> {
    let second = Channels::second(x.shape());
    match (g, vectors, Table::of(&x.layout)) {
        (None, [weight, bias], Some(table)) => batch_norm_columns::forward::<T>(x, table, eps, weight, bias),
        (None, [weight, bias], None) => {
            batch_norm::standardize::<T>(x, None, second, eps, Some(By { weight, bias: Some(bias), known: None }))
        }
        (Some(g), [weight, mean, scale], Some(table)) => {
            batch_norm_columns::backward::<T>(x, g, table, weight, [mean, scale])
        }
        (Some(g), [weight, mean, scale], None) => {
            let by = By { weight, bias: None, known: Some([mean, scale]) };
            batch_norm::standardize::<T>(x, Some(g), second, eps, Some(by))
        }
        _ => Err(Error::runtime("batch_norm", "takes more arrays")),
    }
}

/// The length of rows of the last dimensions.
fn row_of(shape: &[usize], dims: usize) -> Result<usize> {
    let lead = shape.len().checked_sub(dims);
    let lead = lead.ok_or_else(|| Error::shape("layer_norm", format!("there are no {dims} dimensions"), &[shape]))?;
    Ok(crate::shape::numel(&shape[lead..]).max(1))
}

/// Mean and `1/σ²` of a row.
#[inline(always)]
fn moments<T: Wide<W: Compute>>(x: &[T], eps: f64) -> (T::W, f64) {
    let count = x.len() as f64;
    let mean = T::W::of(total(x, |x| x) / count);
    (mean, 1.0 / (total(x, |x| (x - mean) * (x - mean)) / count + eps))
}

/// Rows less their mean, over the root of their variance plus `eps`; scaled and shifted by a weight and a bias.
struct Standard<'a, T> {
    x: &'a [T],
    n: usize,
    eps: f64,
    by: Option<(&'a [T], &'a [T])>,
    out: &'a mut [T],
}
impl<T: Wide<W: Compute>> Task for Standard<'_, T> {
    type Out = ();
    #[inline(always)]
    fn run<const F: bool>(self) {
        let Standard { x, n, eps, by, out } = self;
        for (x, out) in x.chunks(n).zip(out.chunks_mut(n)) {
            let (mean, inverse) = moments(x, eps);
            let scale = T::W::of(inverse.sqrt());
            match by {
                None => x.iter().zip(out).for_each(|(x, o)| *o = T::narrow((x.widen() - mean) * scale)),
                Some((weight, bias)) => {
                    for (((x, o), w), b) in x.iter().zip(out).zip(weight).zip(bias) {
                        *o = T::narrow((x.widen() - mean) * scale * w.widen() + b.widen());
                    }
                }
            }
        }
    }
}

/// `(v - mean(v) - y mean(v y)) / σ` of each row, where `v` is `g`, or `g` times a weight, and `y` and σ are those of `x`.
/// With a weight the rows' shares of its gradient and of the bias's are added to `sums`, one behind the other.
struct Back<'a, T: Wide> {
    g: &'a [T],
    x: &'a [T],
    n: usize,
    eps: f64,
    by: Option<(&'a [T], &'a mut [T::W])>,
    out: &'a mut [T],
}
impl<T: Wide<W: Compute>> Task for Back<'_, T> {
    type Out = ();
    #[inline(always)]
    fn run<const F: bool>(self) {
        /// Elements of a row that go through all loops before the next ones.
        const PART: usize = 256;
        let Back { g, x, n, eps, mut by, out } = self;
        let count = n as f64;
        for ((g, x), out) in g.chunks(n).zip(x.chunks(n)).zip(out.chunks_mut(n)) {
            let (mean, inverse) = moments(x, eps);
            let scale = T::W::of(inverse.sqrt());
            // The second mean is of `v` times deviations, which are y σ.
            match &mut by {
                None => {
                    let v_mean = T::W::of(total(g, |g| g) / count);
                    let slope = T::W::of(total2(g, x, |g, x| g * (x - mean)) / count * inverse);
                    for ((g, x), o) in g.iter().zip(x).zip(out) {
                        *o = T::narrow((g.widen() - v_mean - (x.widen() - mean) * slope) * scale);
                    }
                }
                Some((weight, sums)) => {
                    let weight = *weight;
                    let (of_weight, of_bias) = sums.split_at_mut(n);
                    let (sum, met) = weighted(g, x, weight, mean);
                    let v_mean = T::W::of(sum / count);
                    let slope = T::W::of(met / count * inverse);
                    let sums = of_weight.chunks_mut(PART).zip(of_bias.chunks_mut(PART));
                    let parts = g.chunks(PART).zip(x.chunks(PART)).zip(weight.chunks(PART));
                    for (((g, x), w), (o, (by, bias))) in parts.zip(out.chunks_mut(PART).zip(sums)) {
                        // Loops of one result each: the compiler gives up on more.
                        for (((g, x), w), o) in g.iter().zip(x).zip(w).zip(o) {
                            *o = T::narrow((g.widen() * w.widen() - v_mean - (x.widen() - mean) * slope) * scale);
                        }
                        for ((g, x), sum) in g.iter().zip(x).zip(by) {
                            *sum = *sum + g.widen() * ((x.widen() - mean) * scale);
                        }
                        for (g, sum) in g.iter().zip(bias) {
                            *sum = *sum + g.widen();
                        }
                    }
                }
            }
        }
    }
}

/// The sums of `g w` and of `g w (x - mean)`.
#[inline(always)]
fn weighted<T: Wide<W: Compute>>(g: &[T], x: &[T], w: &[T], mean: T::W) -> (f64, f64) {
    let zero = T::W::of(0.0);
    let (mut plain, mut met) = (0.0, 0.0);
    for ((g, x), w) in g.chunks(SUMMED).zip(x.chunks(SUMMED)).zip(w.chunks(SUMMED)) {
        let (mut lanes, mut far) = ([zero; LANES], [zero; LANES]);
        let ((gs, g), (xs, x), (ws, w)) = (g.as_chunks::<LANES>(), x.as_chunks::<LANES>(), w.as_chunks::<LANES>());
        for ((g, x), w) in gs.iter().zip(xs).zip(ws) {
            for j in 0..LANES {
                let v = g[j].widen() * w[j].widen();
                lanes[j] = lanes[j] + v;
                far[j] = far[j] + v * (x[j].widen() - mean);
            }
        }
        for ((g, x), w) in g.iter().zip(x).zip(w) {
            let v = g.widen() * w.widen();
            plain += v.into();
            met += (v * (x.widen() - mean)).into();
        }
        plain += join(lanes, |a, b| a + b).into();
        met += join(far, |a, b| a + b).into();
    }
    (plain, met)
}

pub(super) fn standardize<T: Float>(x: &CpuArray, dims: usize, eps: f64) -> Result<CpuArray> {
    if let Some(how) = Channels::of(&x.layout, dims) {
        let (y, _) = batch_norm::standardize::<T>(x, None, how, eps, None)?;
        return Ok(y);
    }
    forward::<T>(&x.contiguous()?, row_of(x.shape(), dims)?, eps, None)
}

fn forward<T: Float>(x: &CpuArray, n: usize, eps: f64, by: Option<(&[T], &[T])>) -> Result<CpuArray> {
    let guard = x.read::<T>();
    let data = x.slice(&guard);
    CpuArray::build(x.shape(), |out: &mut [T]| {
        threads::for_chunks(out, n, threads::GRAIN / 2, |start, out| {
            run(Standard { x: &data[start..start + out.len()], n, eps, by, out });
        });
        Ok(())
    })
}

/// The gradient of standardisation over the last `dims` dimensions.
pub(super) fn standardize_gradient<T: Float>(g: &CpuArray, x: &CpuArray, dims: usize, eps: f64) -> Result<CpuArray> {
    if let Some(how) = Channels::of(&x.layout, dims) {
        let (dx, _) = batch_norm::standardize::<T>(x, Some(&g.ordered_as(&x.layout)?), how, eps, None)?;
        return Ok(dx);
    }
    let n = row_of(x.shape(), dims)?;
    let (g, x) = (g.contiguous()?, x.contiguous()?);
    let (g_guard, x_guard) = (g.read::<T>(), x.read::<T>());
    let (gs, xs) = (g.slice(&g_guard), x.slice(&x_guard));
    CpuArray::build(x.shape(), |out: &mut [T]| {
        threads::for_chunks(out, n, threads::GRAIN / 4, |start, out| {
            let end = start + out.len();
            run(Back { g: &gs[start..end], x: &xs[start..end], n, eps, by: None, out });
        });
        Ok(())
    })
}

fn affine<T: Float>(x: &CpuArray, weight: &CpuArray, bias: &CpuArray, dims: usize, eps: f64) -> Result<CpuArray> {
    let (x, weight, bias) = (x.contiguous()?, weight.contiguous()?, bias.contiguous()?);
    let (weight_guard, bias_guard) = (weight.read::<T>(), bias.read::<T>());
    let (w, b) = (weight.slice(&weight_guard), bias.slice(&bias_guard));
    forward(&x, row_of(x.shape(), dims)?, eps, Some((w, b)))
}

fn affine_back<T: Float>(
    g: &CpuArray,
    x: &CpuArray,
    weight: &CpuArray,
    dims: usize,
    eps: f64,
) -> Result<[CpuArray; 3]> {
    let (g, x, weight) = (g.contiguous()?, x.contiguous()?, weight.contiguous()?);
    let weight_guard = weight.read::<T>();
    let w = weight.slice(&weight_guard);
    let n = row_of(x.shape(), dims)?;
    let (g_guard, x_guard) = (g.read::<T>(), x.read::<T>());
    let (gs, xs) = (g.slice(&g_guard), x.slice(&x_guard));
    let mut shares = scratch(T::W::of(0.0), (x.numel() / n).div_ceil(GROUP) * 2 * n);
    let dx = CpuArray::build(x.shape(), |out: &mut [T]| {
        let mut jobs: Vec<_> = scratch_from(out.chunks_mut(GROUP * n).zip(shares.chunks_mut(2 * n)));
        threads::for_chunks(&mut jobs, 1, (threads::GRAIN / 4 / (GROUP * n)).max(1), |first, jobs| {
            for (i, (out, sums)) in jobs.iter_mut().enumerate() {
                let part = (first + i) * GROUP * n..(first + i) * GROUP * n + out.len();
                run(Back { g: &gs[part.clone()], x: &xs[part], n, eps, by: Some((w, sums)), out });
            }
        });
        Ok(())
    })?;
    let mut sums = scratch(0f64, 2 * n);
    for share in shares.chunks(2 * n) {
        sums.iter_mut().zip(share).for_each(|(sum, &s)| *sum += s.into());
    }
    let (of_weight, of_bias) = sums.split_at(n);
    let vector = |sums: &[f64]| vector::<T>(weight.shape(), sums.iter().copied());
    Ok([dx, vector(of_weight)?, vector(of_bias)?])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{array, layouts, near, numbers, show};

    #[test]
    fn standardized_rows_have_mean_0_and_variance_1() {
        let data: Vec<f32> = numbers(300, 3).iter().map(|&x| x as f32).collect();
        for x in layouts(&[2, 3, 50], &data) {
            for dims in 1..=3 {
                let op = NormOp::Standardize { dims, eps: 0.0 };
                let y = show::<f32>(&norm(&op, &[&x], &Meta::new(&[2, 3, 50], crate::DType::F32)).unwrap());
                for row in y.chunks([50, 150, 300][dims - 1]) {
                    let n = row.len() as f32;
                    assert!(row.iter().sum::<f32>().abs() / n < 1e-5);
                    assert!((row.iter().map(|y| y * y).sum::<f32>() / n - 1.0).abs() < 1e-4);
                }
            }
        }
        // Far from zero, where the mean of squares would cancel.
        let x = array(&[1, 4], &[10_001f32, 10_002.0, 10_003.0, 10_004.0]);
        let y =
            norm(&NormOp::Standardize { dims: 1, eps: 1e-5 }, &[&x], &Meta::new(&[1, 4], crate::DType::F32)).unwrap();
        let want = [-1.341_635, -0.447_212, 0.447_212, 1.341_635];
        assert!(show::<f32>(&y).iter().zip(want).all(|(y, want)| (y - want).abs() < 2e-5));
    }

    #[test]
    fn standardized_rows_pass_gradients_across_their_mean_and_scale() {
        let (shape, eps) = ([2, 3, 50], 0.1);
        let (g, x) = (numbers(300, 1), numbers(300, 2));
        for (dims, n) in [(1, 50), (2, 150), (3, 300)] {
            let mut want = Vec::new();
            for (g, x) in g.chunks(n).zip(x.chunks(n)) {
                let mean = |f: &dyn Fn(usize) -> f64| (0..n).map(f).sum::<f64>() / n as f64;
                let m = mean(&|i| x[i]);
                let sigma = (mean(&|i| (x[i] - m) * (x[i] - m)) + eps).sqrt();
                let y = |i: usize| (x[i] - m) / sigma;
                let (a, b) = (mean(&|i| g[i]), mean(&|i| g[i] * y(i)));
                want.extend((0..n).map(|i| (g[i] - a - y(i) * b) / sigma));
            }
            for (g, x) in layouts(&shape, &g).iter().zip(layouts(&shape, &x).iter().rev()) {
                near(&show::<f64>(&standardize_gradient::<f64>(g, x, dims, eps).unwrap()), &want);
            }
        }
    }

    /// By definition, for rows given as lists of places: results and the three gradients.
    fn scaled(x: &[f64], g: &[f64], w: &[f64], b: &[f64], rows: &[Vec<(usize, usize)>], eps: f64) -> [Vec<f64>; 4] {
        let (mut y, mut dx) = (vec![0.0; x.len()], vec![0.0; x.len()]);
        let (mut dw, mut db) = (vec![0.0; w.len()], vec![0.0; w.len()]);
        for row in rows {
            let mean =
                |f: &dyn Fn(usize, usize) -> f64| row.iter().map(|&(i, k)| f(i, k)).sum::<f64>() / row.len() as f64;
            let m = mean(&|i, _| x[i]);
            let sigma = (mean(&|i, _| (x[i] - m) * (x[i] - m)) + eps).sqrt();
            let z = |i: usize| (x[i] - m) / sigma;
            let (a, c) = (mean(&|i, k| g[i] * w[k]), mean(&|i, k| g[i] * w[k] * z(i)));
            for &(i, k) in row {
                y[i] = z(i) * w[k] + b[k];
                dx[i] = (g[i] * w[k] - a - z(i) * c) / sigma;
                dw[k] += g[i] * z(i);
                db[k] += g[i];
            }
        }
        [y, dx, dw, db]
    }

    #[test]
    fn scaled_and_shifted_rows_and_channels() {
        let eps = 0.1;
        for (shape, dims) in [([70, 3, 50], 1), ([70, 3, 50], 2), ([4, 5, 20], 0), ([4, 5, 3], 0), ([70, 19, 1], 0)] {
            let numel: usize = shape.iter().product();
            let (x, g) = (numbers(numel, 1), numbers(numel, 2));
            let [a, b, c] = shape;
            let (features, rows): (Vec<usize>, Vec<Vec<(usize, usize)>>) = match dims {
                0 => {
                    (vec![b], (0..b).map(|k| (0..a * c).map(|i| ((i / c * b + k) * c + i % c, k)).collect()).collect())
                }
                1 => (vec![c], (0..a * b).map(|r| (0..c).map(|k| (r * c + k, k)).collect()).collect()),
                _ => (vec![b, c], (0..a).map(|r| (0..b * c).map(|k| (r * b * c + k, k)).collect()).collect()),
            };
            let n: usize = features.iter().product();
            let (w, shift) = (numbers(n, 5), numbers(n, 6));
            let [y, dx, dw, db] = scaled(&x, &g, &w, &shift, &rows, eps);
            let (w, shift) = (array(&features, &w), array(&features, &shift));
            for threads in [1, 3] {
                threads::set_num_threads(threads);
                for (x, g) in layouts(&shape, &x).iter().zip(layouts(&shape, &g).iter().rev()) {
                    let made = |op: &NormalizationOp, inputs: &[&CpuArray]| {
                        let given: Vec<_> = inputs.iter().map(|x| (x.shape(), x.dtype())).collect();
                        normalization(op, inputs, &op.results(&given).unwrap()).unwrap()
                    };
                    let got = if dims == 0 {
                        let parts = made(&NormalizationOp::Batch { eps }, &[x, &w, &shift]);
                        near(&show::<f64>(&parts[0]), &y);
                        made(&NormalizationOp::BatchGradient, &[g, x, &w, &parts[1], &parts[3]])
                    } else {
                        let meta = Meta::new(&shape, crate::DType::F64);
                        let got = norm(&NormOp::Affine { dims, eps }, &[x, &w, &shift], &meta);
                        near(&show::<f64>(&got.unwrap()), &y);
                        made(&NormalizationOp::LayerGradient { dims, eps }, &[g, x, &w])
                    };
                    for (got, want) in got.iter().zip([&dx, &dw, &db]) {
                        near(&show::<f64>(got), want);
                    }
                }
            }
        }
    }
}
