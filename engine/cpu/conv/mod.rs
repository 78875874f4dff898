//! Convolutions in one to three dimensions, and their products with gradients.
//!
//! Three kinds of kernels: `few_places` makes a matrix of many small images for one product, `direct` sums over shifted planes in
//! registers, `columns` makes a matrix for each image; the former two say which sizes suit them. 16-bit floats are computed with in `float32`. Invariant: results do not depend on the
//! number of threads.

mod columns;
mod direct;
mod few_places;
mod planes;
#[cfg(test)]
mod tests;

use super::cast::cast;
use super::fused::{Compute, Float};
use super::pool::Window;
use super::simd::tile::Tiles;
use super::CpuArray;
use crate::shape::{numel, product};
use crate::{DType, Error, Result};
use lucid_ir::ops::conv::{ConvArgs, ConvOp};
use lucid_ir::Meta;

/// Multiplications below which one thread does it.
const WORK: usize = 1 << 18;
/// Those of one image below which it is not cut: some 40 µs, several times what it takes to wake a thread that sleeps.
const WORTH_CUTTING: usize = 1 << 20;

/// The kernels of the `conv` family.
pub fn conv(op: &ConvOp, inputs: &[&CpuArray], out: &Meta) -> Result<CpuArray> {
    let refused = |dtype| Err(Error::dtype("convolution", "expected a floating dtype", &[dtype]));
    match out.dtype {
        DType::F32 => conv_as::<f32>(op, inputs, out),
        DType::F64 => conv_as::<f64>(op, inputs, out),
        DType::F16 | DType::BF16 => {
            let wide: Vec<CpuArray> = inputs.iter().map(|x| cast(x, DType::F32)).collect::<Result<_>>()?;
            let wide: Vec<&CpuArray> = wide.iter().collect();
            cast(&conv(op, &wide, &Meta::new(&out.shape, DType::F32))?, out.dtype)
        }
        other @ (DType::Bool | DType::U8 | DType::I8 | DType::I16 | DType::I32 | DType::I64) => refused(other),
        other @ (DType::C64 | DType::C128) => refused(other),
        other @ (DType::U16 | DType::U32 | DType::U64 | DType::F8E4M3FN | DType::F8E5M2) => refused(other),
    }
}

fn conv_as<T: Float + Compute + Tiles>(op: &ConvOp, inputs: &[&CpuArray], out: &Meta) -> Result<CpuArray> {
    let (a, b) = (inputs[0].contiguous()?, inputs[1].contiguous()?);
    let (a_guard, b_guard) = (a.read::<T>(), b.read::<T>());
    let (x, y) = (a.slice(&a_guard), b.slice(&b_guard));
    match op {
        ConvOp::Forward { args } => {
            let s = Sizes::new(args, a.shape(), b.shape(), &out.shape)?;
            let bias = inputs.get(2).map(|b| b.contiguous()).transpose()?;
            let guard = bias.as_ref().map(|b| b.read::<T>());
            let bias = bias.as_ref().zip(guard.as_ref()).map(|(b, guard)| b.slice(guard));
            CpuArray::build(&out.shape, |out| {
                if few_places::suits_forward(&s) {
                    few_places::forward(&s, x, y, bias, out);
                    return Ok(());
                }
                if !s.is_strided_pointwise() && direct::forward(&s, x, y, bias, out) {
                    return Ok(());
                }
                s.each_unit(out, s.outputs * s.area, |unit, out, scratch, wide| {
                    let bias = bias.map(|b| &b[unit % s.groups * s.outputs..][..s.outputs]);
                    columns::forward(&s, s.input(x, unit), s.weight(y, unit), bias, out, scratch, wide);
                });
                Ok(())
            })
        }
        ConvOp::InputGradient { args, shape } => {
            let s = Sizes::new(args, shape, b.shape(), a.shape())?;
            CpuArray::build(&out.shape, |out| {
                if few_places::suits(&s) {
                    few_places::input_gradient(&s, x, y, out);
                    return Ok(());
                }
                if !s.is_strided_pointwise() && direct::input_gradient(&s, x, y, out) {
                    return Ok(());
                }
                s.each_unit(out, s.inputs * s.space, |unit, out, scratch, wide| {
                    columns::input_gradient(&s, s.output(x, unit), s.weight(y, unit), out, scratch, wide);
                });
                Ok(())
            })
        }
        ConvOp::WeightGradient { args, shape } => {
            let s = Sizes::new(args, a.shape(), shape, b.shape())?;
            CpuArray::build(&out.shape, |out| {
                if few_places::suits(&s) {
                    few_places::weight_gradient(&s, x, y, out);
                    return Ok(());
                }
                if s.is_strided_pointwise() || !direct::weight_gradient(&s, x, y, out) {
                    columns::weight_gradient(&s, x, y, out);
                }
                Ok(())
            })
        }
    }
}

/// The sizes of a convolution. A unit is one group of one image: its input, and its output, are dense.
struct Sizes {
    windows: [Window; 3],
    batch: usize,
    groups: usize,
    /// Input channels of a group.
    inputs: usize,
    /// Output channels of a group.
    outputs: usize,
    /// Elements of a window in one channel.
    taps: usize,
    /// Elements of an input channel.
    space: usize,
    /// Elements of an output channel.
    area: usize,
}

impl Sizes {
    /// From the shapes of input, weight and output.
    fn new(args: &ConvArgs, x: &[usize], w: &[usize], y: &[usize]) -> Result<Sizes> {
        let n = args.stride.len();
        let fits = (1..=3).contains(&n)
            && [x, w, y].iter().all(|s| s.len() == n + 2)
            && args.groups > 0
            && (x[0], w[0]) == (y[0], y[1])
            && x[1] == w[1] * args.groups
            && w[0].is_multiple_of(args.groups);
        if !fits {
            return Err(Error::shape("convolution", "input, weight and output do not belong together", &[x, w, y]));
        }
        let mut windows = [Window::NONE; 3];
        for (i, window) in windows[3 - n..].iter_mut().enumerate() {
            let (stride, padding, dilation) = (args.stride[i], args.padding[i], args.dilation[i]);
            *window = Window { size: x[i + 2], count: y[i + 2], taps: w[i + 2], stride, padding, dilation };
        }
        let all = |f: fn(&Window) -> usize| product(windows.iter().map(f));
        let made = Sizes {
            batch: x[0],
            groups: args.groups,
            inputs: w[1],
            outputs: w[0] / args.groups,
            taps: all(|w| w.taps),
            space: all(|w| w.size),
            area: all(|w| w.count),
            windows,
        };
        // Of an empty batch sizes may be any, which no array of one image would have.
        let least = [&[made.inputs, made.space][..], &[made.outputs, made.area], &[made.inputs, made.taps, made.area]];
        if least.iter().any(|sizes| numel(sizes) > isize::MAX as usize / 8) {
            return Err(Error::shape("convolution", "these sizes are too large", &[x, w, y]));
        }
        Ok(made)
    }

    /// Rows of a matrix of columns.
    fn depth(&self) -> usize {
        self.inputs * self.taps
    }

    fn input<'a, T>(&self, x: &'a [T], unit: usize) -> &'a [T] {
        let n = self.inputs * self.space;
        &x[unit * n..(unit + 1) * n]
    }

    fn output<'a, T>(&self, y: &'a [T], unit: usize) -> &'a [T] {
        let n = self.outputs * self.area;
        &y[unit * n..(unit + 1) * n]
    }

    fn weight<'a, T>(&self, w: &'a [T], unit: usize) -> &'a [T] {
        let n = self.outputs * self.depth();
        &w[unit % self.groups * n..][..n]
    }

    /// Are the columns the input itself?
    fn is_pointwise(&self) -> bool {
        self.windows.iter().all(|w| w.taps == 1 && w.stride == 1 && w.padding == 0)
    }

    /// Do windows of one element, whatever the stride, make the columns?
    fn is_strided_pointwise(&self) -> bool {
        self.windows.iter().all(|w| w.taps == 1 && w.padding == 0) && !self.is_depthwise()
    }

    fn is_depthwise(&self) -> bool {
        self.inputs == 1 && self.outputs == 1
    }
}
