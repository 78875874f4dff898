//! Products of packed matrices with activations that are rounded to 8 bits.
//!
//! Depends on `simd::int8`, which has the kernels.

use super::super::fused::{Compute, Float};
use super::super::simd::int8::{self, Form, Packed, GROUP};
use super::super::CpuArray;
use crate::fallible::scratch_from;
use crate::Result;
use lucid_ir::ops::quantized::Packing;
use lucid_ir::Meta;

/// Scales and biases beside the elements of MLX's packings: one of each for so many neighbours.
pub struct Sides<'a, T> {
    pub scales: &'a [T],
    pub biases: &'a [T],
    pub group: usize,
}

fn form(packing: Packing) -> Form {
    match packing {
        Packing::Q4_0 => Form::Q4_0,
        Packing::Q8_0 => Form::Q8_0,
        Packing::Q4K => Form::Q4K,
        Packing::Q5K => Form::Q5K,
        Packing::Q6K => Form::Q6K,
        Packing::Affine4 => Form::Affine4,
        Packing::Affine8 => Form::Affine8,
    }
}

fn float<T: Float>(x: T) -> f32 {
    Into::<f64>::into(x.widen()) as f32
}

pub fn product<T: Float>(
    x: &[T],
    packing: Packing,
    bytes: &[u8],
    rows: usize,
    sides: Option<Sides<'_, T>>,
    out: &Meta,
) -> Result<CpuArray> {
    CpuArray::build(&out.shape, |y: &mut [T]| {
        if y.is_empty() {
            return Ok(());
        }
        let x: Vec<f32> = scratch_from(x.iter().map(|&x| float(x)));
        let columns = x.len() / (y.len() / rows);
        let fill;
        let sides: Option<int8::Sides<'_>> = match &sides {
            None => None,
            Some(Sides { scales, biases, group }) => {
                let (groups, each) = (columns / group, group / GROUP);
                fill = move |row: usize, s: &mut [f32], b: &mut [f32]| {
                    let of = row * groups..(row + 1) * groups;
                    let both = scales[of.clone()].iter().zip(&biases[of]);
                    for ((s, b), (&scale, &bias)) in s.chunks_mut(each).zip(b.chunks_mut(each)).zip(both) {
                        s.fill(float(scale));
                        b.fill(float(bias));
                    }
                };
                Some(&fill)
            }
        };
        let mut made: Vec<f32> = scratch_from(y.iter().map(|_| 0f32));
        int8::product(&x, &Packed { form: form(packing), bytes, rows, columns, sides }, &mut made);
        y.iter_mut().zip(&made).for_each(|(y, &v)| *y = T::narrow(T::W::of(f64::from(v))));
        Ok(())
    })
}
