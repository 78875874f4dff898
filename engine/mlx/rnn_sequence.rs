//! Recurrent layers in one launch: a group of threads for each sequence, which goes through all of its steps.
//!
//! Depends on `custom_kernel`. A step of `rnn_layer` is a product and a launch, whose start costs more than what they compute
//! where states are short and sequences few; here the states of a sequence stay in the memory that its group shares, and the
//! weights in the cache. Invariant: layouts of operands and results are those of `rnn_layer`, which has all other cases.

use super::custom_kernel::{self, Text};
use super::emulator::Language;
use super::kernel_error::Made;
use super::kernel_name::KernelName;
use super::rnn_layer::{outputs, Layer};
use lucid_ir::ops::recurrent::RecurrentCell;
use lucid_ir::DType;
use mlx_ffi::{ops, Array};

/// Threads of a group, which is as many as either language has.
const GROUP: usize = 1024;
/// The longest states: those of a sequence, its gates and the parts of its products are in shared memory, 20 KB of them.
const HIDDEN: usize = 512;
/// The most sequences: beyond them each group reads weights that one product would read once for all.
const SEQUENCES: usize = 256;

/// Does one launch compute the whole layer? `hidden` elements of a state, `batch` sequences, `rows` of all steps.
pub(super) fn takes(cell: RecurrentCell, dtype: DType, hidden: usize, batch: usize, rows: usize) -> bool {
    let widest = match custom_kernel::language() {
        Some(Language::Cuda) => HIDDEN,
        // Not measured: the caches of Apple's GPUs are smaller.
        Some(Language::Metal) => HIDDEN / 2,
        None => 0,
    };
    let has_kernel = matches!(cell, RecurrentCell::Lstm | RecurrentCell::Gru) && dtype == DType::F32;
    // Places are counted in 32 bits, of six numbers for each state at most.
    let counted = rows.saturating_mul(hidden) <= i32::MAX as usize / 8;
    let fits = (1..=widest).contains(&hidden) && (1..=SEQUENCES).contains(&batch) && rows > 0;
    has_kernel && counted && fits && custom_kernel::room().is_some()
}

/// The places of all steps in the order in which they are computed: where their rows begin, and how many there are.
fn places(layer: &Layer<'_>) -> Vec<i64> {
    let mut begin = 0;
    let mut made: Vec<[i64; 2]> = Vec::new();
    for &rows in layer.sizes {
        made.push([begin, rows as i64]);
        begin += rows as i64;
    }
    if layer.reverse {
        made.reverse();
    }
    made.concat()
}

/// The last hidden states and an LSTM's last cells; and of all steps hidden states and, with `save`, cells and activations. `x`
/// as the primitive takes them.
pub(super) fn forward(layer: &Layer<'_>, save: bool, x: &[Array]) -> Made<(Vec<Array>, Vec<Array>)> {
    let cells = usize::from(layer.cell.has_cells());
    let (gates, first, weight) = (&x[0], &x[1], &x[2 + cells]);
    let (total, batch, hidden) = (gates.shape()[0], first.shape()[0], first.shape()[1]);
    let steps = layer.sizes.len();
    let at = custom_kernel::numbers(&places(layer))?;
    let d = custom_kernel::numbers(&[i64::from(hidden), steps as i64, i64::from(total)])?;
    let transposed = ops::transpose_axes(weight, &[1, 0])?;
    let (each, all, kept) = ([batch, hidden], [total, hidden], [total, 4 * hidden]);
    let threads = batch as usize * GROUP;
    let mut made = match layer.cell {
        RecurrentCell::Gru => {
            let bias = match x.get(3 + cells) {
                Some(bias) => bias.clone(),
                None => ops::zeros(&[3 * hidden], gates.dtype())?,
            };
            let inputs = [gates, first, &transposed, &bias, &at, &d];
            let shapes: [&[i32]; 3] = [&each, &all, &kept];
            match save {
                true => custom_kernel::launch("gru layer saved", || gru_text(true), &inputs, &shapes, threads)?,
                false => custom_kernel::launch("gru layer", || gru_text(false), &inputs, &shapes[..2], threads)?,
            }
        }
        RecurrentCell::Lstm | RecurrentCell::Tanh | RecurrentCell::Relu => {
            let inputs = [gates, first, &x[2], &transposed, &at, &d];
            let shapes: [&[i32]; 5] = [&each, &each, &all, &all, &kept];
            match save {
                true => custom_kernel::launch("lstm layer saved", || lstm_text(true), &inputs, &shapes, threads)?,
                false => custom_kernel::launch("lstm layer", || lstm_text(false), &inputs, &shapes[..3], threads)?,
            }
        }
    };
    let parts = made.split_off((1 + cells).min(made.len()));
    Ok((made, parts))
}

/// Gradients of the gates' sums, of the first states and of the first cells.
pub(super) fn backward(layer: &Layer<'_>, x: &[Array]) -> Made<Vec<Array>> {
    let cells = usize::from(layer.cell.has_cells());
    let (grads, first, weight) = (&x[0], &x[4 + 2 * cells], &x[5 + 3 * cells]);
    let (total, batch, hidden) = (grads.shape()[0], first.shape()[0], first.shape()[1]);
    let at = custom_kernel::numbers(&places(layer))?;
    let d = custom_kernel::numbers(&[i64::from(hidden), layer.sizes.len() as i64, i64::from(total)])?;
    let (sums, each) = ([total, layer.cell.gate_gradients() as i32 * hidden], [batch, hidden]);
    let threads = batch as usize * GROUP;
    match layer.cell {
        RecurrentCell::Gru => {
            let inputs = [grads, &x[1], &x[2], &x[3], first, weight, &at, &d];
            custom_kernel::launch("gru layer back", gru_back_text, &inputs, &[&sums, &each], threads)
        }
        RecurrentCell::Lstm | RecurrentCell::Tanh | RecurrentCell::Relu => {
            let inputs = [grads, &x[1], &x[2], &x[4], &x[5], &x[7], weight, &at, &d];
            custom_kernel::launch("lstm layer back", lstm_back_text, &inputs, &[&sums, &each, &each], threads)
        }
    }
}

fn strings(names: &[&str]) -> Vec<String> {
    names.iter().map(|n| n.to_string()).collect()
}

/// What all texts begin with: the group's sequence is `r`.
const BEGIN: &str = "int hidden = (int)d[0];
int steps = (int)d[1];
int total = (int)d[2];
int r = (int)(i / LUCID_GROUP);
";

/// The sums of products of the state `h` with the columns of `w`, of which there are `wide`: into `sums`, from `start` on.
fn product(wide: &str, start: &str) -> String {
    format!(
        "for (int k = (int)lane; k < {wide}; k += LUCID_GROUP) {{
  float s0 = {start}, s1 = 0.0f, s2 = 0.0f, s3 = 0.0f;
  int q = 0;
  for (; q + 4 <= hidden; q += 4) {{
    s0 += h[q] * w[q * {wide} + k];
    s1 += h[q + 1] * w[(q + 1) * {wide} + k];
    s2 += h[q + 2] * w[(q + 2) * {wide} + k];
    s3 += h[q + 3] * w[(q + 3) * {wide} + k];
  }}
  for (; q < hidden; q++) s0 += h[q] * w[q * {wide} + k];
  sums[k] = (s0 + s1) + (s2 + s3);
}}
LUCID_BARRIER;
"
    )
}

/// An LSTM's steps from the gates' sums without those of the states, `x`, the first states and cells, and the weights `w`,
/// a row for each element of a state.
pub(super) fn lstm_text(save: bool) -> Text {
    let saved = match save {
        true => {
            "    int to = row * wide + j;
    kept[to] = a;
    kept[to + hidden] = f;
    kept[to + 2 * hidden] = g;
    kept[to + 3 * hidden] = o;
    cells[row * hidden + j] = made;
"
        }
        false => "",
    };
    let body = format!(
        "LUCID_SHARED float h[{HIDDEN}], c[{HIDDEN}], sums[4 * {HIDDEN}];
{BEGIN}int wide = 4 * hidden;
for (int j = (int)lane; j < hidden; j += LUCID_GROUP) {{
  h[j] = hx[r * hidden + j];
  c[j] = cx[r * hidden + j];
}}
LUCID_BARRIER;
for (int t = 0; t < steps; t++) {{
  if (r >= (int)at[2 * t + 1]) continue;
  int row = (int)at[2 * t] + r;
{}  for (int j = (int)lane; j < hidden; j += LUCID_GROUP) {{
    float a = 1.0f / (1.0f + exp(-sums[j]));
    float f = 1.0f / (1.0f + exp(-sums[hidden + j]));
    float g = tanh(sums[2 * hidden + j]);
    float o = 1.0f / (1.0f + exp(-sums[3 * hidden + j]));
    float made = f * c[j] + a * g;
    float state = o * tanh(made);
    c[j] = made;
    h[j] = state;
    out[row * hidden + j] = state;
{saved}  }}
  LUCID_BARRIER;
}}
for (int j = (int)lane; j < hidden; j += LUCID_GROUP) {{
  hn[r * hidden + j] = h[j];
  cn[r * hidden + j] = c[j];
}}
",
        product("wide", "x[row * wide + k]")
    );
    let name = if save { KernelName::LstmLayerSaved } else { KernelName::LstmLayer };
    let outputs = strings(&["hn", "cn"]).into_iter().chain(outputs(save, save)).collect();
    Text { name, inputs: strings(&["x", "hx", "cx", "w", "at", "d"]), outputs, body, group: GROUP }
}

/// A GRU's steps. `b` is added to the products of the states.
pub(super) fn gru_text(save: bool) -> Text {
    let saved = match save {
        true => {
            "    int to = row * 4 * hidden + j;
    kept[to] = p;
    kept[to + hidden] = z;
    kept[to + 2 * hidden] = made;
    kept[to + 3 * hidden] = m;
"
        }
        false => "",
    };
    let body = format!(
        "LUCID_SHARED float h[{HIDDEN}], sums[3 * {HIDDEN}];
{BEGIN}int wide = 3 * hidden;
for (int j = (int)lane; j < hidden; j += LUCID_GROUP) h[j] = hx[r * hidden + j];
LUCID_BARRIER;
for (int t = 0; t < steps; t++) {{
  if (r >= (int)at[2 * t + 1]) continue;
  int row = (int)at[2 * t] + r;
{}  for (int j = (int)lane; j < hidden; j += LUCID_GROUP) {{
    int from = row * wide + j;
    float m = sums[2 * hidden + j];
    float p = 1.0f / (1.0f + exp(-(x[from] + sums[j])));
    float z = 1.0f / (1.0f + exp(-(x[from + hidden] + sums[hidden + j])));
    float made = tanh(x[from + 2 * hidden] + p * m);
    float state = made + z * (h[j] - made);
    h[j] = state;
    out[row * hidden + j] = state;
{saved}  }}
  LUCID_BARRIER;
}}
for (int j = (int)lane; j < hidden; j += LUCID_GROUP) hn[r * hidden + j] = h[j];
",
        product("wide", "b[k]")
    );
    let name = if save { KernelName::GruLayerSaved } else { KernelName::GruLayer };
    let outputs = strings(&["hn"]).into_iter().chain(outputs(false, save)).collect();
    Text { name, inputs: strings(&["x", "hx", "w", "b", "at", "d"]), outputs, body, group: GROUP }
}

/// The products of the `wide` sums with the columns of `w`, in parts that as many threads add up as there are: `before`
/// is what the state keeps of its own.
fn product_back(wide: &str, before: &str) -> String {
    format!(
        "  LUCID_BARRIER;
  int each = ({wide} + parts - 1) / parts;
  for (int k = (int)lane; k < parts * hidden; k += LUCID_GROUP) {{
    int part = k / hidden;
    int column = k - part * hidden;
    int end = (part + 1) * each < {wide} ? (part + 1) * each : {wide};
    float s0 = 0.0f, s1 = 0.0f;
    int q = part * each;
    for (; q + 2 <= end; q += 2) {{
      s0 += sums[q] * w[q * hidden + column];
      s1 += sums[q + 1] * w[(q + 1) * hidden + column];
    }}
    for (; q < end; q++) s0 += sums[q] * w[q * hidden + column];
    pieces[k] = s0 + s1;
  }}
  LUCID_BARRIER;
  for (int j = (int)lane; j < hidden; j += LUCID_GROUP) {{
    float s = {before};
    for (int part = 0; part < parts; part++) s += pieces[part * hidden + j];
    dh[j] = s;
  }}
  LUCID_BARRIER;
"
    )
}

/// How many parts a product is cut into: all threads have work, and shared memory holds the parts.
fn parts() -> String {
    format!(
        "int parts = LUCID_GROUP / hidden;
if (parts > 8) parts = 8;
if (parts < 1) parts = 1;
if (parts * hidden > {PIECES}) parts = {PIECES} / hidden;
"
    )
}

/// Elements of the parts of a product.
const PIECES: usize = 1024;

/// The gradient through [`lstm_text`], of the gradients `g` of all states, `gh` of the last ones and `gc` of the last cells.
pub(super) fn lstm_back_text() -> Text {
    let body = format!(
        "LUCID_SHARED float dh[{HIDDEN}], dc[{HIDDEN}], sums[4 * {HIDDEN}], pieces[{PIECES}];
{BEGIN}int wide = 4 * hidden;
{}for (int j = (int)lane; j < hidden; j += LUCID_GROUP) {{
  dh[j] = gh[r * hidden + j];
  dc[j] = gc[r * hidden + j];
}}
LUCID_BARRIER;
for (int t = steps - 1; t >= 0; t--) {{
  if (r >= (int)at[2 * t + 1]) continue;
  int row = (int)at[2 * t] + r;
  int was = t > 0 && r < (int)at[2 * t - 1] ? (int)at[2 * t - 2] + r : -1;
  for (int j = (int)lane; j < hidden; j += LUCID_GROUP) {{
    int from = row * wide + j;
    float a = kept[from];
    float f = kept[from + hidden];
    float u = kept[from + 2 * hidden];
    float o = kept[from + 3 * hidden];
    float old = was < 0 ? cx[r * hidden + j] : cells[was * hidden + j];
    float d_h = g[row * hidden + j] + dh[j];
    float s = tanh(cells[row * hidden + j]);
    float d_c = dc[j] + d_h * o * (1.0f - s * s);
    float da = d_c * u * a * (1.0f - a);
    float df = d_c * old * f * (1.0f - f);
    float du = d_c * a * (1.0f - u * u);
    float dq = d_h * s * o * (1.0f - o);
    out[from] = da;
    out[from + hidden] = df;
    out[from + 2 * hidden] = du;
    out[from + 3 * hidden] = dq;
    sums[j] = da;
    sums[hidden + j] = df;
    sums[2 * hidden + j] = du;
    sums[3 * hidden + j] = dq;
    dc[j] = d_c * f;
  }}
{}}}
for (int j = (int)lane; j < hidden; j += LUCID_GROUP) {{
  of_h[r * hidden + j] = dh[j];
  of_c[r * hidden + j] = dc[j];
}}
",
        parts(),
        product_back("wide", "0.0f")
    );
    let inputs = strings(&["g", "gh", "gc", "cells", "kept", "cx", "w", "at", "d"]);
    Text { name: KernelName::LstmLayerBack, inputs, outputs: strings(&["out", "of_h", "of_c"]), body, group: GROUP }
}

/// The gradient through [`gru_text`].
pub(super) fn gru_back_text() -> Text {
    let body = format!(
        "LUCID_SHARED float dh[{HIDDEN}], own[{HIDDEN}], sums[3 * {HIDDEN}], pieces[{PIECES}];
{BEGIN}int wide = 3 * hidden;
{}for (int j = (int)lane; j < hidden; j += LUCID_GROUP) dh[j] = gh[r * hidden + j];
LUCID_BARRIER;
for (int t = steps - 1; t >= 0; t--) {{
  if (r >= (int)at[2 * t + 1]) continue;
  int row = (int)at[2 * t] + r;
  int was = t > 0 && r < (int)at[2 * t - 1] ? (int)at[2 * t - 2] + r : -1;
  for (int j = (int)lane; j < hidden; j += LUCID_GROUP) {{
    int from = row * 4 * hidden + j;
    float p = kept[from];
    float z = kept[from + hidden];
    float n = kept[from + 2 * hidden];
    float m = kept[from + 3 * hidden];
    float old = was < 0 ? hx[r * hidden + j] : states[was * hidden + j];
    float d_h = g[row * hidden + j] + dh[j];
    float dn = d_h * (1.0f - z) * (1.0f - n * n);
    float dp = dn * m * p * (1.0f - p);
    float dz = d_h * (old - n) * z * (1.0f - z);
    float dm = dn * p;
    out[from] = dp;
    out[from + hidden] = dz;
    out[from + 2 * hidden] = dn;
    out[from + 3 * hidden] = dm;
    sums[j] = dp;
    sums[hidden + j] = dz;
    sums[2 * hidden + j] = dm;
    own[j] = d_h * z;
  }}
{}}}
for (int j = (int)lane; j < hidden; j += LUCID_GROUP) of_h[r * hidden + j] = dh[j];
",
        parts(),
        product_back("wide", "own[j]")
    );
    let inputs = strings(&["g", "gh", "states", "kept", "hx", "w", "at", "d"]);
    Text { name: KernelName::GruLayerBack, inputs, outputs: strings(&["out", "of_h"]), body, group: GROUP }
}
