//! Products of a few rows with large matrices, dense or packed in 4 or 8 bits, with the norm before them and what follows
//! them in the same launch: what one token of a language model is made of. Such products take as long as the matrix takes to
//! be read, so that a step's time is its launches beside that.
//!
//! Depends on `custom_kernel`. A warp takes some rows of the matrices, and all of a group take the few rows of `x` from
//! memory that they share. Invariant: sums are in float32 and rounded once; the ops that a launch stands for stay beside it,
//! for all other cases and as its reference.

use super::array::GpuArray;
use super::convert::int;
use super::custom_kernel::{self, GROUP};
use super::emulator::{self, Language};
use super::kernel_error::Made;
use super::kernel_text::type_name;
use super::row_product_text;
use super::value::Value;
use crate::{DType, Result};
use mlx_ffi::{Array, Dtype};
use smallvec::SmallVec;
use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

/// The most rows of `x`.
pub const MOST_ROWS: usize = 8;
/// Elements of `x` that a group holds at once.
const HELD: usize = 4096;
/// What `x`'s elements are in units of: threads in step.
pub(super) const WARP: usize = 32;
/// Bytes that a thread reads of a matrix at once.
const ALIGNED: usize = 16;

/// A matrix (rows, columns), whose product is `x Wᵀ`, and a bias (rows).
pub struct RowMatrix<'a> {
    /// Its elements, or packed words.
    pub weight: &'a GpuArray,
    /// Of packed ones scales, biases, the elements that share them, and the bits of an element.
    pub packed: Option<(&'a GpuArray, &'a GpuArray, usize, usize)>,
    /// What is added.
    pub bias: Option<&'a GpuArray>,
}

/// What becomes of the products.
pub(super) enum After<'a> {
    /// They are the results, one for each matrix.
    Product,
    /// The one matrix's result has this added.
    Added(&'a Array),
    /// `f(first) · second` of two matrices.
    Gated(Gate),
    /// Heads of this many elements, those of the first two of three matrices rotated by cosines and sines (elements / 2).
    Rotated {
        /// Elements of a head.
        head: usize,
        /// Cosines, float32.
        cos: &'a Array,
        /// Sines, float32.
        sin: &'a Array,
    },
}

/// The functions of gates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Gate {
    /// `x · sigmoid(x)`
    Silu,
    /// GELU by `tanh`.
    GeluTanh,
}

/// How a matrix's elements are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Format {
    Dense,
    Packed { bits: usize, group: usize, scales: &'static str },
}

impl Format {
    /// Does a thread read 8 bytes of it at a time, and not 16?
    pub(super) fn is_narrow(self) -> bool {
        matches!(self, Format::Packed { bits: 4, .. })
    }

    /// Elements that a thread takes at once.
    pub(super) fn chunk(self) -> usize {
        match self {
            Format::Dense => 8,
            Format::Packed { .. } => 16,
        }
    }
}

/// What a text is written for.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct Plan {
    pub kind: &'static str,
    pub format: Format,
    /// Rows of `x`, and columns.
    pub rows: usize,
    pub columns: usize,
    pub normed: bool,
    /// Rows of each matrix.
    pub sizes: SmallVec<[usize; 3]>,
    pub biased: bool,
    pub after: Form,
    /// Results that a warp makes.
    pub each: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Form {
    Product { added: bool },
    Gated(Gate),
    Rotated { head: usize },
}

impl Plan {
    /// Rows of matrices that a unit of results is made of.
    pub(super) fn parts(&self) -> usize {
        match self.after {
            Form::Product { .. } => 1,
            Form::Gated(_) | Form::Rotated { .. } => 2,
        }
    }

    /// Units of results.
    pub(super) fn units(&self) -> usize {
        match self.after {
            Form::Product { .. } => self.sizes.iter().sum(),
            Form::Gated(_) => self.sizes[0],
            Form::Rotated { .. } => self.sizes.iter().sum::<usize>() / 2,
        }
    }

    /// Units that a warp takes: few where there would be too few warps for the whole device.
    fn taken(units: usize, parts: usize, rows: usize, format: Format) -> usize {
        let together: usize = match units * parts {
            16384.. if rows < 4 && format.is_narrow() => 4,
            6144.. => 2,
            _ => 1,
        };
        together.div_ceil(parts)
    }

    /// What a thread reads of each matrix's row before it waits for `x`, in units of chunks: as many as registers hold.
    pub(super) fn turns(&self) -> usize {
        let (taken, step) = (self.each * self.parts(), WARP * self.format.chunk());
        let most = if self.format.is_narrow() { 16 } else { 8 } / taken;
        let held = (HELD / self.rows / step).max(1);
        most.clamp(1, held).min(self.columns.div_ceil(step))
    }

    /// Elements of a row of `x` that a group holds at once.
    pub(super) fn tile(&self) -> usize {
        self.turns() * WARP * self.format.chunk()
    }

    /// What tells its kernel from others.
    pub(super) fn key(&self) -> Arc<str> {
        thread_local! {
            static KEYS: RefCell<HashMap<Plan, Arc<str>>> = RefCell::default();
        }
        let made = || {
            let Plan { kind, format, rows, columns, normed, sizes, biased, after, each } = self;
            format!("row product {kind} {format:?} {rows} {columns} {normed} {sizes:?} {biased} {after:?} {each}")
        };
        KEYS.with_borrow_mut(|keys| match keys.get(self) {
            Some(key) => Arc::clone(key),
            None => Arc::clone(keys.entry(self.clone()).or_insert_with(|| made().into())),
        })
    }

    fn threads(&self) -> usize {
        (self.units().div_ceil(self.each) * WARP).div_ceil(GROUP) * GROUP
    }
}

/// Is there a language that kernels are written in, in which this one beats MLX's own? On Metal MLX's are made for the device
/// and ours have never run on one.
pub fn is_wanted() -> bool {
    let here = emulator::language().is_some() || custom_kernel::language() == Some(Language::Cuda);
    here && custom_kernel::room().is_some()
}

/// May threads read the array 16 bytes at a time? Known of what is in memory alone.
pub(super) fn aligned(x: &Array) -> Made<bool> {
    if x.size() < 8 || !x.is_evaluated() {
        return Ok(false);
    }
    Ok(x.offset()?.is_some_and(|at| at % ALIGNED == 0))
}

/// What a matrix is to a kernel; `None` where none takes it.
fn format(matrix: &RowMatrix<'_>, x: DType, columns: usize) -> Made<Option<Format>> {
    let weight = matrix.weight.value()?;
    if matrix.weight.ndim() != 2 || weight.perm.is_some() || !aligned(weight.array()?)? {
        return Ok(None);
    }
    let shape = matrix.weight.shape();
    let Some((scales, biases, group, bits)) = matrix.packed else {
        let fits = matrix.weight.element() == x && shape[1] == columns && columns.is_multiple_of(Format::Dense.chunk());
        return Ok(fits.then_some(Format::Dense));
    };
    let alike = scales.shape() == [shape[0], columns / group] && biases.shape() == scales.shape();
    let (s, b) = (scales.value()?, biases.value()?);
    let plain = s.perm.is_none() && b.perm.is_none() && scales.element() == biases.element() && scales.numel() >= 8;
    let words = matrix.weight.element() == DType::I32 && shape[1] * 32 == columns * bits;
    let plain = plain && aligned(s.array()?)? && aligned(b.array()?)?;
    let fits = alike && plain && words && matches!(bits, 4 | 8) && group.is_multiple_of(32);
    let Some(scales) = type_name(s.array()?.dtype()).filter(|_| fits && columns.is_multiple_of(group)) else {
        return Ok(None);
    };
    Ok(Some(Format::Packed { bits, group, scales }))
}

/// Rows of `x`, whatever its shape.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rows {
    pub rows: usize,
    pub columns: usize,
    pub dtype: DType,
}

impl RowMatrix<'_> {
    /// Columns, also of packed words.
    pub(super) fn columns(&self) -> usize {
        let words = self.weight.shape().last().copied().unwrap_or(0);
        self.packed.map_or(words, |(_, _, _, bits)| words * 32 / bits)
    }
}

/// The plan of a launch; `None` where there is none.
pub(super) fn plan(of: Rows, normed: bool, matrices: &[RowMatrix<'_>], after: &After<'_>) -> Made<Option<Plan>> {
    let Rows { rows, columns, dtype } = of;
    let kind = type_name(super::convert::dtype(dtype)?);
    let (Some(kind), Some(first), true) = (kind, matrices.first(), is_wanted() && (1..=MOST_ROWS).contains(&rows))
    else {
        return Ok(None);
    };
    let Some(known) = format(first, dtype, columns)? else { return Ok(None) };
    let biased = first.bias.is_some();
    for m in matrices {
        let fits = m.bias.is_none_or(|b| b.shape() == [m.weight.shape()[0]] && b.element() == dtype);
        if format(m, dtype, columns)? != Some(known) || !fits || m.bias.is_some() != biased {
            return Ok(None);
        }
    }
    let sizes: SmallVec<[usize; 3]> = matrices.iter().map(|m| m.weight.shape()[0]).collect();
    if rows * columns < 8 || sizes.iter().any(|&n| n < 8 || n * columns > 1 << 40) {
        return Ok(None);
    }
    let own = super::convert::dtype(dtype)?;
    let form = match after {
        After::Product => Form::Product { added: false },
        After::Added(added) if sizes.len() == 1 => {
            if added.size() != rows * sizes[0] || added.dtype() != own {
                return Ok(None);
            }
            Form::Product { added: true }
        }
        After::Gated(gate) if sizes.len() == 2 && sizes[0] == sizes[1] => Form::Gated(*gate),
        After::Rotated { head, cos, sin } => {
            let whole = |t: &Array| t.size() == head / 2 && t.dtype() == Dtype::Float32 && head / 2 >= 8;
            if sizes.len() != 3 || !sizes.iter().all(|n| n.is_multiple_of(*head)) || !whole(cos) || !whole(sin) {
                return Ok(None);
            }
            Form::Rotated { head: *head }
        }
        After::Added(_) | After::Gated(_) => return Ok(None),
    };
    let mut made = Plan { kind, format: known, rows, columns, normed, sizes, biased, after: form, each: 1 };
    made.each = Plan::taken(made.units(), made.parts(), rows, known);
    Ok(Some(made))
}

/// The products of the rows of `x`, which a norm's weight (K) and epsilon go before, with matrices, and what follows them:
/// results (rows, n). `None` where no kernel of our own can take it.
pub(super) fn products(
    x: &Array,
    of: Rows,
    norm: Option<(&Array, f64)>,
    matrices: &[RowMatrix<'_>],
    after: &After<'_>,
) -> Made<Option<Vec<Array>>> {
    let Some(plan) = plan(of, norm.is_some(), matrices, after)? else { return Ok(None) };
    let dtype = super::convert::dtype(of.dtype)?;
    if norm.is_some_and(|(w, _)| w.size() != plan.columns || w.dtype() != dtype || w.size() < 8) {
        return Ok(None);
    }
    let logical = |a: &GpuArray| -> Made<Array> { Ok(a.value()?.logical()?.into_owned()) };
    let mut inputs: SmallVec<[Array; 16]> = SmallVec::new();
    inputs.push(x.clone());
    if let Some((weight, eps)) = norm {
        inputs.extend([weight.clone(), custom_kernel::floats(&[eps as f32])?]);
    }
    for m in matrices {
        inputs.push(logical(m.weight)?);
        if let Some((scales, biases, ..)) = m.packed {
            inputs.extend([logical(scales)?, logical(biases)?]);
        }
        if let Some(bias) = m.bias {
            inputs.push(logical(bias)?);
        }
    }
    match after {
        After::Added(added) => inputs.push((*added).clone()),
        After::Rotated { cos, sin, .. } => inputs.extend([(*cos).clone(), (*sin).clone()]),
        After::Product | After::Gated(_) => {}
    }
    let results = if matches!(plan.after, Form::Gated(_)) { 1 } else { plan.sizes.len() };
    let shapes = plan.sizes[..results].iter().map(|&n| Ok([int(plan.rows)?, int(n)?]));
    let shapes = shapes.collect::<Made<SmallVec<[[i32; 2]; 3]>>>()?;
    let outputs: SmallVec<[(&[i32], Dtype); 3]> = shapes.iter().map(|shape| (&shape[..], dtype)).collect();
    let refs: SmallVec<[&Array; 16]> = inputs.iter().collect();
    Ok(Some(custom_kernel::launch_typed(
        &plan.key(),
        || row_product_text::text(&plan),
        &refs,
        &outputs,
        plan.threads(),
    )?))
}

/// The products of the rows of `x` (M, K), which a norm's weight (K) and epsilon go before, with a matrix: (M, n). `None` where
/// no kernel of our own can take it.
pub fn row_product(x: &GpuArray, norm: Option<(&GpuArray, f64)>, matrix: &RowMatrix<'_>) -> Result<Option<GpuArray>> {
    let recorded = || -> Made<Option<GpuArray>> {
        let &[rows, columns] = x.shape() else { return Ok(None) };
        let logical = |a: &GpuArray| -> Made<Array> { Ok(a.value()?.logical()?.into_owned()) };
        let weight = norm.map(|(w, _)| logical(w)).transpose()?;
        let norm = weight.as_ref().zip(norm).map(|(w, (_, eps))| (w, eps));
        let of = Rows { rows, columns, dtype: x.element() };
        let made = products(&logical(x)?, of, norm, std::slice::from_ref(matrix), &After::Product)?;
        let Some(made) = made.and_then(|mut made| made.pop()) else { return Ok(None) };
        Ok(Some(GpuArray::new(Value::plain(made), &[rows, matrix.weight.shape()[0]], x.element())?))
    };
    recorded().map_err(|e| e.of("row_product"))
}
