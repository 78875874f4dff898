//! A layer of a decoder-only transformer in as few launches as there are points where all of a row is needed: one token of a
//! few texts takes one or five, many tokens take MLX's products with kernels of our own between them.
//!
//! Depends on `row_product`, `decode_kernels`, `quantized` and `contract`. Invariant: it gives what the ops of `lucid.llm` give
//! but for roundings between them, and writes keys and values where they would be written.

use super::array::GpuArray;
use super::convert::int;
use super::decode_kernels::{self, Sizes};
use super::kernel_error::Made;
use super::kernel_text::type_name;
use super::layer_kernel::{self, KnownLayer, Token};
use super::nn;
use super::quantized;
use super::row_product::{self, After, Gate, RowMatrix, Rows, MOST_ROWS};
use super::value::Value;
use crate::{DType, Result};
use mlx_ffi::{fast, ops, Array};
use smallvec::SmallVec;

/// A layer's matrices and norms.
pub struct DecoderLayer<'a> {
    /// Of queries, keys and values.
    pub projections: [RowMatrix<'a>; 3],
    /// Behind attention.
    pub joined: RowMatrix<'a>,
    /// The gate and what it is multiplied with.
    pub gates: [RowMatrix<'a>; 2],
    /// The MLP's last.
    pub last: RowMatrix<'a>,
    /// Weights of the norms before attention and the MLP.
    pub norms: [&'a GpuArray; 2],
    /// Added to the mean square.
    pub eps: f64,
    /// The gate's function.
    pub gate: Gate,
    /// Heads of queries, of keys, and elements of a head.
    pub heads: [usize; 3],
    /// What scores are multiplied by.
    pub scale: f64,
    /// What earlier launches found out about the layer.
    pub known: &'a KnownLayer,
}

impl<'a> DecoderLayer<'a> {
    /// In the order in which kernels take them.
    pub(super) fn matrices(&self) -> impl Iterator<Item = &RowMatrix<'a>> {
        self.projections.iter().chain([&self.joined]).chain(&self.gates).chain([&self.last])
    }
}

/// The layer's result for `x` (B, L, hidden), whose tokens come behind `at` others. Cosines and sines (L, head / 2) are
/// float32; keys and values (B, kv heads, room, head) are written in place. With `last_alone` the result is that of the last
/// tokens, (B, 1, hidden). `None` where kernels of our own do not take it.
pub fn decoder_layer(
    x: &GpuArray,
    layer: &DecoderLayer<'_>,
    angles: [&GpuArray; 2],
    buffers: [&GpuArray; 2],
    at: usize,
    last_alone: bool,
) -> Result<Option<GpuArray>> {
    let recorded = || -> Made<Option<GpuArray>> {
        let &[batch, length, hidden] = x.shape() else { return Ok(None) };
        let [heads, kv_heads, head] = layer.heads;
        let rows = batch * length;
        let kind = type_name(super::convert::dtype(x.element())?);
        let plain = |a: &GpuArray, shape: &[usize]| a.shape() == shape && a.element() == x.element();
        let fit = angles.iter().all(|a| a.shape() == [length, head / 2] && a.element() == DType::F32);
        let fit = fit && buffers.iter().all(|b| b.ndim() == 4 && plain(b, &[batch, kv_heads, b.shape()[2], head]));
        let fit =
            fit && layer.norms.iter().all(|n| plain(n, &[hidden])) && (8..=i32::MAX as usize).contains(&x.numel());
        let (Some(kind), true) = (kind, fit && row_product::is_wanted() && head >= 16 && rows < 1 << 20) else {
            return Ok(None);
        };
        let room = buffers[0].shape()[2];
        if at + length > room || buffers[1].shape()[2] != room {
            return Ok(None);
        }
        let logical = |a: &GpuArray| -> Made<Array> { Ok(a.value()?.logical()?.into_owned()) };
        let state = logical(x)?;
        let (cos, sin) = (logical(angles[0])?, logical(angles[1])?);
        let norms = [logical(layer.norms[0])?, logical(layer.norms[1])?];
        let few = length == 1 && rows <= MOST_ROWS;
        // Tokens whose result is asked for.
        let asked = if last_alone { 1 } else { length };
        let own = Rows { rows, columns: hidden, dtype: x.element() };
        if few {
            let (norms, angles) = (norms.each_ref(), [&cos, &sin]);
            let token = Token { x: &state, norms, angles, buffers, at };
            if let Some(made) = layer_kernel::launch(own, layer, kind, &token)? {
                return Ok(Some(GpuArray::new(Value::plain(made), x.shape(), x.element())?));
            }
        }

        // ---- queries, keys and values
        let counts = [heads, kv_heads, kv_heads];
        let rotation = After::Rotated { head, cos: &cos, sin: &sin };
        let norm = Some((&norms[0], layer.eps));
        let made = match few {
            true => row_product::products(&state, own, norm, &layer.projections, &rotation)?,
            false => None,
        };
        let shaped = |y: &Array, n: usize| -> Made<Array> {
            Ok(ops::reshape(y, &[int(batch)?, int(n)?, int(length)?, int(head)?])?)
        };
        let [q, k, v] = match made.as_deref() {
            Some([q, k, v]) => [shaped(q, heads)?, shaped(k, kv_heads)?, shaped(v, kv_heads)?],
            _ => {
                let y = decode_kernels::rms_norm(&state, &norms[0], kind, [rows, hidden], layer.eps)?;
                let mut parts: SmallVec<[Array; 3]> = SmallVec::new();
                for (number, matrix) in layer.projections.iter().enumerate() {
                    let sizes = [batch, if number == 0 { asked } else { length }, counts[number], head];
                    if number == 0 && asked != length {
                        let y = product(&ends(&y, own, length)?, Rows { rows: batch, ..own }, matrix)?;
                        let first = [int(length - 1)?, 0];
                        let end = |a: &Array| ops::slice(a, &first, a.shape(), &[1; 2]);
                        parts.push(decode_kernels::rotated_heads(&y, [&end(&cos)?, &end(&sin)?], kind, sizes)?);
                        continue;
                    }
                    let y = product(&y, own, matrix)?;
                    parts.push(match number {
                        2 => {
                            let shape = [int(batch)?, int(length)?, int(kv_heads)?, int(head)?];
                            ops::swapaxes(&ops::reshape(&y, &shape)?, 1, 2)?
                        }
                        _ => decode_kernels::rotated_heads(&y, [&cos, &sin], kind, sizes)?,
                    });
                }
                let [q, k, v] = parts.into_inner().map_err(|_| wrong())?;
                [q, k, v]
            }
        };
        // ---- the cache
        let (start, stop, step): ([i32; 4], [i32; 4], [i32; 4]) =
            ([0, 0, int(at)?, 0], [int(batch)?, int(kv_heads)?, int(at + length)?, int(head)?], [1; 4]);
        let mut held: SmallVec<[Array; 2]> = SmallVec::new();
        for (buffer, new) in buffers.iter().zip([&k, &v]) {
            let array = match room - length {
                // The first tokens: what was there are zeros, which nobody has filled in yet.
                0 if at == 0 => ops::contiguous(new, false)?,
                left if at == 0 => {
                    let zeros = ops::zeros(&[int(batch)?, int(kv_heads)?, int(left)?, int(head)?], new.dtype())?;
                    ops::concatenate_axis(&[new, &zeros], 2)?
                }
                _ => {
                    let was = logical(buffer)?;
                    ops::slice_update(&was, new, &start, &stop, &step)?
                }
            };
            buffer.replace(Value::plain(array.clone()))?;
            held.push(array);
        }
        // ---- attention
        let sizes = Sizes { batch, heads, kv_heads, head, count: at + length, room };
        let attended = match asked == 1 && sizes.fit() {
            true => decode_kernels::attention(&q, [&held[0], &held[1]], kind, &sizes, layer.scale)?,
            false => {
                let shown = |a: &Array| ops::slice(a, &[0; 4], &stop, &step);
                let how = if asked > 1 { "causal" } else { "" };
                let (k, v) = (shown(&held[0])?, shown(&held[1])?);
                fast::scaled_dot_product_attention(&q, &k, &v, layer.scale as f32, how, None, None, false)?
            }
        };
        drop(held);
        let state = if asked == length { state } else { ends(&state, own, length)? };
        let (rows, own) = (batch * asked, Rows { rows: batch * asked, ..own });
        let few = asked == 1 && rows <= MOST_ROWS;
        let flat = match asked {
            1 => attended,
            _ => {
                let y = ops::swapaxes(&attended, 1, 2)?;
                ops::reshape(&y, &[int(rows)?, int(heads * head)?])?
            }
        };
        // ---- the rest
        let wide = Rows { columns: heads * head, ..own };
        let state = added(&flat, wide, &layer.joined, &state, few)?;
        let gates = match few {
            true => {
                let norm = Some((&norms[1], layer.eps));
                row_product::products(&state, own, norm, &layer.gates, &After::Gated(layer.gate))?
            }
            false => None,
        };
        let inner = match gates.as_deref() {
            Some([inner]) => inner.clone(),
            _ => {
                let y = decode_kernels::rms_norm(&state, &norms[1], kind, [rows, hidden], layer.eps)?;
                let (g, u) = (product(&y, own, &layer.gates[0])?, product(&y, own, &layer.gates[1])?);
                decode_kernels::gated(&g, &u, kind, layer.gate)?
            }
        };
        let inside = Rows { columns: layer.last.columns(), ..own };
        let state = added(&inner, inside, &layer.last, &state, few)?;
        let state = ops::reshape(&state, &[int(batch)?, int(asked)?, int(hidden)?])?;
        Ok(Some(GpuArray::new(Value::plain(state), &[batch, asked, hidden], x.element())?))
    };
    recorded().map_err(|e| e.of("decoder_layer"))
}

fn wrong() -> super::kernel_error::Fault {
    crate::Error::backend("decoder_layer", "another number of projections").into()
}

/// The last of every `length` rows.
fn ends(x: &Array, of: Rows, length: usize) -> Made<Array> {
    let (batch, columns) = (int(of.rows / length)?, int(of.columns)?);
    let x = ops::reshape(x, &[batch, int(length)?, columns])?;
    let last = ops::slice(&x, &[0, int(length - 1)?, 0], x.shape(), &[1; 3])?;
    Ok(ops::contiguous(&ops::reshape(&last, &[batch, columns])?, false)?)
}

/// The product of rows with a matrix, as (rows, n).
fn product(x: &Array, of: Rows, matrix: &RowMatrix<'_>) -> Made<Array> {
    let flat = ops::reshape(x, &[int(of.rows)?, int(of.columns)?])?;
    let bias = matrix.bias.map(|b| -> Made<Array> { Ok(b.value()?.logical()?.into_owned()) }).transpose()?;
    match matrix.packed {
        None => {
            let w = matrix.weight.value()?;
            nn::product(&flat, &*nn::transposed(&w)?, bias.as_ref())
        }
        Some((scales, biases, group, bits)) => {
            let made = quantized::product_of(&flat, matrix.weight, [scales, biases], (group, bits), of.dtype)?;
            Ok(match bias {
                None => made,
                Some(bias) => ops::add(&made, &bias)?,
            })
        }
    }
}

/// The same, with `more` (rows, n) added.
fn added(x: &Array, of: Rows, matrix: &RowMatrix<'_>, more: &Array, few: bool) -> Made<Array> {
    if few {
        let made = row_product::products(x, of, None, std::slice::from_ref(matrix), &After::Added(more))?;
        if let Some([made]) = made.as_deref() {
            return Ok(made.clone());
        }
    }
    let made = product(x, of, matrix)?;
    Ok(ops::add(&ops::reshape(more, made.shape())?, &made)?)
}
