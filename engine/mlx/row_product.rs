//! Products of a few rows with large matrices, dense or packed in 4 or 8 bits, with the norm before them and what follows
//! them in the same launch: what one token of a language model is made of. Such products take as long as the matrix takes to
//! be read, so that a step's time is its launches beside that.
//!
//! Depends on `custom_kernel`. A warp takes some rows of the matrices, and all of a group take the few rows of `x` from
//! memory that they share. Invariant: sums are in float32 and rounded once; the ops that a launch stands for stay beside it,
//! for all other cases and as its reference.

use super::array::GpuArray;
use super::convert::int;
use super::custom_kernel::{self, Text, GROUP};
use super::decode_kernels::gate_text;
use super::emulator::{self, Language};
use super::kernel_error::Made;
use super::kernel_name::KernelName;
use super::kernel_text::type_name;
use super::value::Value;
use crate::{DType, Result};
use mlx_ffi::{Array, Dtype};
use smallvec::SmallVec;
use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt::Write;
use std::sync::Arc;

/// The most rows of `x`.
pub const MOST_ROWS: usize = 8;
/// Elements of `x` that a group holds at once.
const HELD: usize = 4096;
/// What `x`'s elements are in units of: threads in step.
const WARP: usize = 32;
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
enum Format {
    Dense,
    Packed { bits: usize, group: usize, scales: &'static str },
}

impl Format {
    /// Does a thread read 8 bytes of it at a time, and not 16?
    fn is_narrow(self) -> bool {
        matches!(self, Format::Packed { bits: 4, .. })
    }

    /// Elements that a thread takes at once.
    fn chunk(self) -> usize {
        match self {
            Format::Dense => 8,
            Format::Packed { .. } => 16,
        }
    }
}

/// What a text is written for.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Plan {
    kind: &'static str,
    format: Format,
    /// Rows of `x`, and columns.
    rows: usize,
    columns: usize,
    normed: bool,
    /// Rows of each matrix.
    sizes: SmallVec<[usize; 3]>,
    biased: bool,
    after: Form,
    /// Results that a warp makes.
    each: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Form {
    Product { added: bool },
    Gated(Gate),
    Rotated { head: usize },
}

impl Plan {
    /// Rows of matrices that a unit of results is made of.
    fn parts(&self) -> usize {
        match self.after {
            Form::Product { .. } => 1,
            Form::Gated(_) | Form::Rotated { .. } => 2,
        }
    }

    /// Units of results.
    fn units(&self) -> usize {
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
    fn turns(&self) -> usize {
        let (taken, step) = (self.each * self.parts(), WARP * self.format.chunk());
        let most = if self.format.is_narrow() { 16 } else { 8 } / taken;
        let held = (HELD / self.rows / step).max(1);
        most.clamp(1, held).min(self.columns.div_ceil(step))
    }

    /// Elements of a row of `x` that a group holds at once.
    fn tile(&self) -> usize {
        self.turns() * WARP * self.format.chunk()
    }

    /// What tells its kernel from others.
    fn key(&self) -> Arc<str> {
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
fn plan(of: Rows, normed: bool, matrices: &[RowMatrix<'_>], after: &After<'_>) -> Made<Option<Plan>> {
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
    Ok(Some(custom_kernel::launch_typed(&plan.key(), || text(&plan), &refs, &outputs, plan.threads())?))
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

/// Reads this thread's chunks of the piece from `first` on, where they are of the row.
fn loads(plan: &Plan, first: &str, words: bool, vector: &str) -> String {
    let Plan { format, columns, .. } = plan;
    let (chunk, taken) = (format.chunk(), plan.each * plan.parts());
    if !words {
        return String::new();
    }
    let mut text = format!(
        "LUCID_UNROLL
for (int turn = 0; turn < {}; turn++) {{
unsigned int at = {first} / {chunk} + turn * 32 + at32;
if (at >= {}) break;
",
        plan.turns(),
        columns / chunk,
    );
    for j in 0..taken {
        let _ = writeln!(text, "q{j}[turn] = ((LUCID_DEVICE const {vector}*)w{j})[at];");
        if let Format::Packed { group, .. } = format {
            let each = group / chunk;
            let _ = writeln!(text, "scale{j}[turn] = ws{j}[at / {each}]; bias{j}[turn] = wb{j}[at / {each}];");
        }
    }
    text + "}\n"
}

/// The number that some bits of a word are, without a conversion: put into the mantissa of 2²³, and that taken off.
fn number(word: &str, mask: u32) -> String {
    format!("(LUCID_AS_FLOAT(0x4B000000u | ({word} & {mask}u)) - 8388608.0f)")
}

/// The elements of a chunk from the words that were read into `q{j}`, each with what it is too large by.
fn elements(format: Format, kind: &str, j: usize) -> Vec<String> {
    let words = ["x", "y", "z", "w"];
    match format {
        Format::Packed { bits: 4, .. } => (0..16)
            .map(|e| {
                let half = if e / 4 % 2 == 0 {
                    format!("q{j}[turn].{}", words[e / 8])
                } else {
                    format!("(q{j}[turn].{} >> 16)", words[e / 8])
                };
                number(&half, 15 << (4 * (e % 4)))
            })
            .collect(),
        Format::Packed { .. } => (0..16)
            .map(|e| {
                let half = if e / 2 % 2 == 0 {
                    format!("q{j}[turn].{}", words[e / 4])
                } else {
                    format!("(q{j}[turn].{} >> 16)", words[e / 4])
                };
                number(&half, 255 << (8 * (e % 2)))
            })
            .collect(),
        Format::Dense if kind == "LUCID_BF16" => (0..8)
            .map(|e| match e % 2 {
                0 => format!("LUCID_AS_FLOAT(q{j}[turn].{} << 16)", words[e / 2]),
                _ => format!("LUCID_AS_FLOAT(q{j}[turn].{} & 0xffff0000u)", words[e / 2]),
            })
            .collect(),
        Format::Dense => (0..8).map(|e| format!("(float)w{j}[(size_t)at * 8 + {e}]")).collect(),
    }
}

/// What an element of [`elements`] is too large by.
fn excess(format: Format, e: usize) -> u32 {
    match format {
        Format::Packed { bits: 4, .. } => 1 << (4 * (e % 4)),
        Format::Packed { .. } => 1 << (8 * (e % 2)),
        Format::Dense => 1,
    }
}

/// See [`row_products`].
fn text(plan: &Plan) -> Text {
    let Plan { kind, format, rows, columns, sizes, .. } = plan;
    let (chunk, tile, parts, units) = (format.chunk(), plan.tile(), plan.parts(), plan.units());
    let taken = plan.each * parts;
    let mut inputs = vec!["x".to_string()];
    if plan.normed {
        inputs.extend(["nw".into(), "eps".into()]);
    }
    for m in 0..sizes.len() {
        inputs.push(format!("m{m}"));
        if matches!(format, Format::Packed { .. }) {
            inputs.extend([format!("s{m}"), format!("b{m}")]);
        }
        if plan.biased {
            inputs.push(format!("a{m}"));
        }
    }
    match plan.after {
        Form::Product { added: true } => inputs.push("more".into()),
        Form::Rotated { .. } => inputs.extend(["c".into(), "s".into()]),
        Form::Product { added: false } | Form::Gated(_) => {}
    }
    let results = if matches!(plan.after, Form::Gated(_)) { 1 } else { sizes.len() };
    let outputs: Vec<String> = (0..results).map(|m| format!("out{m}")).collect();

    let mut body = String::new();
    if matches!(format, Format::Packed { .. }) || *kind == "LUCID_BF16" {
        let named: Vec<String> = (0..sizes.len()).map(|m| format!("m{m}")).collect();
        let _ = writeln!(body, "// aligned to 16 bytes: {}", named.join(", "));
    }
    let _ = writeln!(body, "LUCID_SHARED float4 held[{}];", rows * tile / 4);
    let _ = writeln!(body, "unsigned int warp = i / 32, at32 = lane % 32;");
    body += &rows_of_warp(plan);
    let turns = plan.turns();
    let (vector, words) = match format {
        Format::Packed { bits: 4, .. } => ("uint2", true),
        Format::Packed { .. } => ("uint4", true),
        Format::Dense if *kind == "LUCID_BF16" => ("uint4", true),
        Format::Dense => ("float", false),
    };
    for j in 0..taken {
        if words {
            let _ = writeln!(body, "{vector} q{j}[{turns}];");
        }
        if let Format::Packed { .. } = format {
            let _ = writeln!(body, "float scale{j}[{turns}], bias{j}[{turns}];");
        }
    }
    for m in 0..*rows {
        for j in 0..taken {
            let _ = writeln!(body, "float sum{m}_{j} = 0.0f;");
        }
    }
    if *kind == "LUCID_BF16" {
        let norm = if plan.normed { " && (size_t)nw % 8 == 0" } else { "" };
        let _ = writeln!(body, "bool whole = {} && (size_t)x % 8 == 0{norm};", columns % 4 == 0);
    }
    // ---- the first chunks of the matrices, which need not wait for x
    body += &loads(plan, "0", words, vector);
    if plan.normed {
        body += "LUCID_SHARED float part[LUCID_GROUP / 32];\n";
        for m in 0..*rows {
            let _ = write!(
                body,
                "float inv{m} = 0.0f;
LUCID_UNROLL
for (unsigned int k = lane; k < {columns}; k += LUCID_GROUP) {{ float v = x[{base} + k]; inv{m} += v * v; }}
for (int o = 16; o > 0; o /= 2) inv{m} += LUCID_SHUFFLE(inv{m}, o);
if (at32 == 0) part[lane / 32] = inv{m};
LUCID_BARRIER;
inv{m} = 0.0f;
for (int o = 0; o < LUCID_GROUP / 32; o++) inv{m} += part[o];
inv{m} = 1.0f / sqrt(inv{m} / {columns}.0f + eps[0]);
LUCID_BARRIER;
",
                base = m * columns,
            );
        }
    }
    // ---- the rows of x, piece by piece
    let _ = write!(
        body,
        "for (unsigned int first = 0; first < {columns}; first += {tile}) {{
if (first > 0) {{
LUCID_BARRIER;
{again}}}
LUCID_UNROLL
for (unsigned int k = lane * 4; k < {tile}; k += LUCID_GROUP * 4) {{
if (first + k >= {columns}) break;
unsigned int chunk = k / {chunk}, place = (chunk / 32 * {quads} + k % {chunk} / 4) * 32 + chunk % 32;
float4 v{by};
",
        again = loads(plan, "first", words, vector),
        quads = chunk / 4,
        by = if plan.normed { ", by" } else { "" },
    );
    // 16-bit elements four at a time, where they are so aligned.
    let quick = *kind == "LUCID_BF16";
    let four = |name: &str, at: &str, to: &str| {
        let single: String = ["x", "y", "z", "w"]
            .into_iter()
            .enumerate()
            .map(|(e, word)| format!("{to}.{word} = (float){name}[{at} + {e}]; "))
            .collect();
        match quick {
            false => format!("{single}\n"),
            true => format!(
                "if (whole) {{ uint2 u = ((LUCID_DEVICE const uint2*){name})[({at}) / 4];
{to}.x = LUCID_AS_FLOAT(u.x << 16); {to}.y = LUCID_AS_FLOAT(u.x & 0xffff0000u);
{to}.z = LUCID_AS_FLOAT(u.y << 16); {to}.w = LUCID_AS_FLOAT(u.y & 0xffff0000u); }} else {{ {single}}}\n"
            ),
        }
    };
    if plan.normed {
        body += &four("nw", "first + k", "by");
    }
    for m in 0..*rows {
        body += &four("x", &format!("{} + first + k", m * columns), "v");
        if plan.normed {
            for word in ["x", "y", "z", "w"] {
                // Rounded as the norm's result would be.
                let _ = writeln!(body, "v.{word} = (float)(({kind})(v.{word} * inv{m} * by.{word}));");
            }
        }
        let _ = writeln!(body, "held[{} + place] = v;", m * tile / 4);
    }
    body += "}\nLUCID_BARRIER;\n";
    // ---- the matrices' rows
    let _ = write!(
        body,
        "LUCID_UNROLL
for (int turn = 0; turn < {turns}; turn++) {{
unsigned int k = turn * 32 + at32, at = first / {chunk} + k;
if (at >= {all}) break;
unsigned int from = turn * {} + at32;
",
        32 * chunk / 4,
        all = columns / chunk,
    );
    for m in 0..*rows {
        body += "{\n";
        for v in 0..chunk / 4 {
            let _ = writeln!(body, "float4 v{v} = held[{} + from + {}];", m * tile / 4, v * 32);
        }
        let of = |e: usize| format!("v{}.{}", e / 4, ["x", "y", "z", "w"][e % 4]);
        if matches!(format, Format::Packed { .. }) {
            let all: Vec<String> = (0..chunk).map(of).collect();
            let _ = writeln!(body, "float total = {};", all.join(" + "));
            for e in (0..chunk).filter(|&e| excess(*format, e) > 1) {
                let _ = writeln!(body, "{} *= {:e}f;", of(e), 1.0 / f64::from(excess(*format, e)));
            }
        }
        for j in 0..taken {
            let terms: Vec<String> =
                elements(*format, kind, j).into_iter().enumerate().map(|(e, q)| format!("{q} * {}", of(e))).collect();
            let dot = terms.join("\n + ");
            let _ = match format {
                Format::Packed { .. } => {
                    writeln!(body, "sum{m}_{j} += scale{j}[turn] * ({dot}) + bias{j}[turn] * total;")
                }
                Format::Dense => writeln!(body, "sum{m}_{j} += {dot};"),
            };
        }
        body += "}\n";
    }
    body += "}\n}\n";
    for m in 0..*rows {
        for j in 0..taken {
            let _ = writeln!(body, "for (int o = 16; o > 0; o /= 2) sum{m}_{j} += LUCID_SHUFFLE(sum{m}_{j}, o);");
        }
    }
    body += "if (at32 == 0) {\n";
    for u in 0..plan.each {
        let _ = writeln!(body, "if (warp * {} + {u} < {units}) {{", plan.each);
        for m in 0..*rows {
            body += &store(plan, m, u);
        }
        body += "}\n";
    }
    body += "}\n";
    Text { name: KernelName::RowProduct, inputs, outputs, body, group: GROUP }
}

/// Where the rows of a warp are: `w{j}`, `ws{j}`, `wb{j}` and `wa{j}` point to their elements, scales and biases, `t{j}` is
/// the place of each in its matrix and `of{j}` the matrix's number. Beyond the last row it is the last row.
fn rows_of_warp(plan: &Plan) -> String {
    let Plan { kind, format, columns, sizes, .. } = plan;
    let (parts, units) = (plan.parts(), plan.units());
    let (weight, words) = match format {
        Format::Packed { bits, .. } => ("int", columns * bits / 32),
        Format::Dense => (*kind, *columns),
    };
    let mut body = String::new();
    for u in 0..plan.each {
        let _ = writeln!(
            body,
            "unsigned int u{u} = warp * {each} + {u} < {units} ? warp * {each} + {u} : {last};",
            each = plan.each,
            last = units - 1
        );
        for part in 0..parts {
            let j = u * parts + part;
            match plan.after {
                Form::Gated(_) => {
                    let _ = writeln!(body, "unsigned int t{j} = u{u}, of{j} = {part};");
                }
                Form::Rotated { head } => {
                    let half = head / 2;
                    let _ =
                        writeln!(body, "unsigned int t{j} = u{u} / {half} * {head} + u{u} % {half} + {};", part * half);
                }
                Form::Product { .. } => {
                    let _ = writeln!(body, "unsigned int t{j} = u{u};");
                }
            }
            if !matches!(plan.after, Form::Gated(_)) {
                let _ = writeln!(body, "unsigned int of{j} = 0;");
                for (m, size) in sizes[..sizes.len() - 1].iter().enumerate() {
                    let _ =
                        writeln!(body, "if (of{j} == {m} && t{j} >= {size}) {{ t{j} -= {size}; of{j} = {}; }}", m + 1);
                }
            }
            let chosen = |name: &str| {
                let mut text = format!("{name}{}", sizes.len() - 1);
                for m in (0..sizes.len() - 1).rev() {
                    text = format!("of{j} == {m} ? {name}{m} : {text}");
                }
                text
            };
            let _ = writeln!(body, "LUCID_DEVICE const {weight}* w{j} = ({}) + (size_t)t{j} * {words};", chosen("m"));
            if let Format::Packed { group, scales, .. } = format {
                for name in ["s", "b"] {
                    let (from, each) = (chosen(name), columns / group);
                    let _ =
                        writeln!(body, "LUCID_DEVICE const {scales}* w{name}{j} = ({from}) + (size_t)t{j} * {each};");
                }
            }
            if plan.biased {
                let _ = writeln!(body, "LUCID_DEVICE const {kind}* wa{j} = {};", chosen("a"));
            }
        }
    }
    body
}

/// Stores the results of unit `u` of the warp and row `m` of `x`.
fn store(plan: &Plan, m: usize, u: usize) -> String {
    let Plan { kind, sizes, .. } = plan;
    let parts = plan.parts();
    let value = |part: usize| {
        let j = u * parts + part;
        match plan.biased {
            true => format!("(sum{m}_{j} + (float)wa{j}[t{j}])"),
            false => format!("sum{m}_{j}"),
        }
    };
    // A store into the result of each matrix, by its number.
    let each = |j: usize, of: &str| {
        let mut text = String::new();
        for (number, size) in sizes.iter().enumerate() {
            let _ = writeln!(text, "if (of{j} == {number}) out{number}[{} + t{j}] = ({kind})({of});", m * size);
        }
        text
    };
    match plan.after {
        Form::Product { added: false } => each(u, &value(0)),
        Form::Product { added: true } => {
            let at = format!("{} + t{u}", m * sizes[0]);
            format!("out0[{at}] = ({kind})({} + (float)more[{at}]);\n", value(0))
        }
        Form::Gated(gate) => {
            let f = gate_text(gate);
            format!(
                "{{ float g = {}; out0[{} + t{}] = ({kind})(({f}) * {}); }}\n",
                value(0),
                m * sizes[0],
                u * parts,
                value(1)
            )
        }
        Form::Rotated { head } => {
            let (a, b, half) = (u * parts, u * parts + 1, head / 2);
            let turned =
                [format!("of{a} < 2 ? p * c[k] - q * s[k] : p"), format!("of{a} < 2 ? q * c[k] + p * s[k] : q")];
            format!(
                "{{ float p = {}, q = {}; unsigned int k = u{u} % {half};\n{}{}}}\n",
                value(0),
                value(1),
                each(a, &turned[0]),
                each(b, &turned[1])
            )
        }
    }
}
