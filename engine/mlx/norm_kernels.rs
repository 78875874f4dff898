//! Normalisation by kernels of our own: channels' means and variances in one pass over images, what follows from them in
//! another, and the gradients through norms of rows and of channels.
//!
//! Depends on `custom_kernel` and `kernel_text`. Sums over columns are taken in two steps: groups of threads add up a part of
//! the rows each, and their results are combined in a fixed order. Invariant: the primitives stay beside each, for all other
//! cases and as its reference; 16-bit floats are computed in float32 and rounded once.

use super::array::GpuArray;
use super::conv::channels_last;
use super::convert::{int, ints};
use super::custom_kernel::{self, Text, GROUP};
use super::kernel_error::Made;
use super::kernel_name::KernelName;
use super::kernel_text::{counted, strings, type_name, Lanes};
use super::value::{Perm, Value};
use crate::Error;
use mlx_ffi::{ops, Array, Dtype};
use smallvec::SmallVec;

/// Columns that one group takes, and the threads that share a column of it.
pub(super) const COLUMNS: usize = 32;
const SHARED: usize = GROUP / COLUMNS;
/// The most parts that rows are taken in, and the fewest rows of one.
const PARTS: usize = 256;
pub(super) const LEAST_ROWS: usize = 64;

pub(super) fn named<const N: usize>(made: Vec<Array>) -> Made<[Array; N]> {
    let wrong = |_| Error::backend("norm", "a launch with another number of outputs");
    Ok(<[Array; N]>::try_from(made).map_err(wrong)?)
}

/// A matrix of rows and columns, and the parts that its rows are taken in.
#[derive(Clone, Copy, Debug)]
pub(super) struct Table {
    pub rows: usize,
    pub columns: usize,
}

impl Table {
    fn parts(self) -> usize {
        self.rows.div_ceil(LEAST_ROWS).clamp(1, PARTS)
    }

    /// Rows, columns, rows of a part, blocks of columns, and parts.
    fn numbers(self) -> Made<Array> {
        let (each, blocks) = (self.rows.div_ceil(self.parts()), self.columns.div_ceil(COLUMNS));
        let sizes = [self.rows, self.columns, each, blocks, self.parts()];
        custom_kernel::numbers(&sizes.map(|n| n as i64))
    }

    /// Threads of a launch over blocks of columns and parts of rows.
    fn threads(self) -> usize {
        self.columns.div_ceil(COLUMNS) * self.parts() * GROUP
    }

    /// The shape of what each part gives for each column.
    fn partial(self) -> Made<[i32; 2]> {
        Ok([int(self.parts())?, int(self.columns)?])
    }
}

/// This thread's column `c` and its rows, from `r` below `stop` in steps of [`SHARED`]; `part` and `slot` tell its group and
/// its place in it. Threads beyond the columns have no rows.
fn column_begin() -> String {
    format!(
        "LUCID_SHARED float part0[LUCID_GROUP], part1[LUCID_GROUP];
unsigned int group = i / LUCID_GROUP, columns = (unsigned int)d[1], blocks = (unsigned int)d[3];
unsigned int c = group % blocks * {COLUMNS} + lane % {COLUMNS}, part = group / blocks;
unsigned int r = part * (unsigned int)d[2], stop = r + (unsigned int)d[2], slot = lane / {COLUMNS};
if (stop > (unsigned int)d[0]) stop = (unsigned int)d[0];
if (c >= columns) stop = 0;
float a = 0.0f, b = 0.0f;
"
    )
}

const EACH_ROW: &str = "for (unsigned int q = r + slot; q < stop; q += 8)";

/// `a` and `b` of the threads that share a column, added up: into `a` and `b` of the first of them.
fn column_end() -> String {
    format!(
        "part0[lane] = a;
part1[lane] = b;
LUCID_BARRIER;
if (slot == 0) {{
  for (int o = 1; o < {SHARED}; o++) {{ a += part0[lane + o * {COLUMNS}]; b += part1[lane + o * {COLUMNS}]; }}
}}
"
    )
}

/// What groups of threads begin their sums of columns with must be as many rows apart as threads share a column.
const _: () = assert!(SHARED == 8);

/// Means and `1 / sqrt(var + eps)` of the columns, each (columns), and the variances.
fn moments(x: &Array, table: Table, eps: f64) -> Made<[Array; 3]> {
    let Some(kind) = type_name(x.dtype()) else { return Err(Error::runtime("norm", "takes floats").into()) };
    let (d, shape) = (table.numbers()?, table.partial()?);
    let key = format!("column moments {kind}");
    let outputs = [&shape[..], &shape[..]];
    let made = custom_kernel::launch(&key, || moments_text(kind), &[x, &d], &outputs, table.threads())?;
    let [means, squares] = named::<2>(made)?;
    let f = custom_kernel::floats(&[eps as f32])?;
    let columns = [int(table.columns)?];
    let threads = (table.columns * 32).div_ceil(GROUP) * GROUP;
    let outputs = [&columns[..]; 3];
    named::<3>(custom_kernel::launch(
        "column moments joined",
        joined_text,
        &[&means, &squares, &d, &f],
        &outputs,
        threads,
    )?)
}

/// Of each part of the rows the mean, and the sum of the squares of what elements differ from it.
pub(super) fn moments_text(kind: &str) -> Text {
    let body = format!(
        "{begin}unsigned int count = stop > r ? stop - r : 0;
{EACH_ROW} a += (float)x[q * columns + c]; // {kind}
part0[lane] = a;
LUCID_BARRIER;
float mean = 0.0f;
for (int o = 0; o < {SHARED}; o++) mean += part0[lane % {COLUMNS} + o * {COLUMNS}];
mean = count > 0 ? mean / (float)count : 0.0f;
LUCID_BARRIER;
a = 0.0f;
{EACH_ROW} {{ float v = (float)x[q * columns + c] - mean; b += v * v; }}
{end}if (slot == 0 && c < columns) {{
  means[part * columns + c] = mean;
  squares[part * columns + c] = b;
}}
",
        begin = column_begin(),
        end = column_end(),
    );
    let outputs = strings(&["means", "squares"]);
    Text { name: KernelName::ColumnMoments, inputs: strings(&["x", "d"]), outputs, body, group: GROUP }
}

/// Adds the moments `m` and `s` of `n` elements to those of `count` (Chan et al., 1979).
pub(super) const JOIN: &str = "float apart = m - mean, all = count + n, share = all > 0.0f ? n / all : 0.0f;
  sum += s + apart * apart * count * share;
  mean += apart * share;
  count = all;";

/// The parts' moments as those of all rows; threads in step share a column.
fn joined_text() -> Text {
    let body = format!(
        "unsigned int column = i / 32, columns = (unsigned int)d[1], rows = (unsigned int)d[0], each = (unsigned int)d[2];
if (column >= columns) return;
float mean = 0.0f, sum = 0.0f, count = 0.0f;
for (unsigned int p = lane % 32; p < (unsigned int)d[4]; p += 32) {{
  unsigned int first = p * each;
  if (first >= rows) break;
  float n = (float)(rows - first < each ? rows - first : each);
  float m = means[p * columns + column], s = squares[p * columns + column];
  {JOIN}
}}
for (int o = 16; o > 0; o /= 2) {{
  float n = LUCID_SHUFFLE(count, o), m = LUCID_SHUFFLE(mean, o), s = LUCID_SHUFFLE(sum, o);
  {JOIN}
}}
float v = sum / count;
if (lane % 32 == 0) {{
  mean_[column] = mean;
  scale[column] = 1.0f / sqrt(v + f[0]);
  var[column] = v;
}}
"
    );
    let inputs = strings(&["means", "squares", "d", "f"]);
    Text {
        name: KernelName::ColumnMomentsJoined,
        inputs,
        outputs: strings(&["mean_", "scale", "var"]),
        body,
        group: GROUP,
    }
}

/// Elements that one thread computes.
const EACH: usize = 4;

/// `out` of every element `j` of column `c`: what is in `loads`, names and inputs, is loaded of all before anything is stored,
/// which would otherwise wait for it.
pub(super) fn by_element(loads: &[(&str, &str)], result: &str) -> String {
    let declared: Vec<String> = loads.iter().map(|(name, _)| format!("{name}s[{EACH}]")).collect();
    let load: String = loads.iter().map(|(name, input)| format!("{name}s[k] = (float){input}[j]; ")).collect();
    let again: Vec<String> = loads.iter().map(|(name, _)| format!("{name}0 = {name}s[k]")).collect();
    format!(
        "unsigned int first = i / LUCID_GROUP * {} + lane, columns = (unsigned int)d[1];
unsigned int total = (unsigned int)d[0] * columns, j = first;
float {};
for (int k = 0; k < {EACH}; k++, j += LUCID_GROUP) if (j < total) {{ {load}}}
j = first;
for (int k = 0; k < {EACH}; k++, j += LUCID_GROUP) if (j < total) {{
  unsigned int c = j % columns;
  float {};
  {result}
}}
",
        GROUP * EACH,
        declared.join(", "),
        again.join(", "),
    )
}

pub(super) fn element_threads(table: Table) -> usize {
    (table.rows * table.columns).div_ceil(GROUP * EACH) * GROUP
}

/// `(x - mean) / sqrt(var + eps) * w + b` of each column.
fn scaled_text(kind: &str) -> Text {
    let result = format!("out[j] = ({kind})((x0 - mean[c]) * scale[c] * (float)w[c] + (float)b[c]);");
    let body = by_element(&[("x", "x")], &result);
    let inputs = strings(&["x", "mean", "scale", "w", "b", "d"]);
    Text { name: KernelName::ColumnNorm, inputs, outputs: strings(&["out"]), body, group: GROUP }
}

/// The group of channel `c` in the image of row `q`, among those of all images.
pub(super) const GROUP_OF: &str = "(q / (unsigned int)d[5] * (unsigned int)d[6] + c / (columns / (unsigned int)d[6]))";

/// Of each part of the rows the sums of `g` and of `g` times what the norm made of `x`, per column; for norms of rows, mean
/// and scale are of the row.
fn sums_text(kind: &str, of: Of) -> Text {
    let (name, of) = match of {
        Of::Rows => (KernelName::RowNormSums, "q"),
        Of::Columns => (KernelName::ColumnNormSums, "c"),
        Of::Groups => (KernelName::GroupNormSums, GROUP_OF),
    };
    let body = format!(
        "{begin}{EACH_ROW} {{
  float v = (float)g[q * columns + c]; // {kind}
  a += v;
  b += v * ((float)x[q * columns + c] - mean[{of}]) * scale[{of}];
}}
{end}if (slot == 0 && c < columns) {{
  to_bias[part * columns + c] = a;
  to_weight[part * columns + c] = b;
}}
",
        begin = column_begin(),
        end = column_end(),
    );
    let inputs = strings(&["g", "x", "mean", "scale", "d"]);
    Text { name, inputs, outputs: strings(&["to_bias", "to_weight"]), body, group: GROUP }
}

/// What mean and scale are of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Of {
    Rows,
    Columns,
    Groups,
}

/// The gradient of the input of a norm of columns, with the sums of [`sums_text`] of all rows.
fn column_back_text(kind: &str) -> Text {
    let result = format!(
        "float n = 1.0f / (float)d[0], y = (x0 - mean[c]) * scale[c];
  out[j] = ({kind})((float)w[c] * scale[c] * (g0 - to_bias[c] * n - y * to_weight[c] * n));"
    );
    let body = by_element(&[("g", "g"), ("x", "x")], &result);
    let inputs = strings(&["g", "x", "mean", "scale", "w", "to_bias", "to_weight", "d"]);
    Text { name: KernelName::ColumnNormBack, inputs, outputs: strings(&["out"]), body, group: GROUP }
}

/// The gradient of the input of a norm of rows, and each row's mean and scale.
fn row_back_text(lanes: Lanes, kept: Option<usize>, kind: &str, weighted: bool) -> Text {
    let g = if weighted { "(float)g[first + k] * (float)w[k]" } else { "(float)g[first + k]" };
    let (declared, keep_x, x, keep_g, again) = match kept {
        Some(n) => (format!("float xs[{n}], gs[{n}];\n"), "xs[e] = x0; ", "xs[e]", "gs[e] = v; ", "gs[e]"),
        None => (String::new(), "", "(float)x[first + k]", "", g),
    };
    let body = format!(
        "{begin}unsigned int n = (unsigned int)d[1], first = row * n;
float m = 0.0f, s = 0.0f, a = 0.0f, b = 0.0f, eps = f[0];
{declared}{each} {{ float x0 = (float)x[first + k]; {keep_x}m += x0; }} // {kind}
{mean}m /= (float)n;
{each} {{ float v = {x} - m; s += v * v; }}
{square}s = 1.0f / sqrt(s / (float)n + eps);
{each} {{ float v = {g}; {keep_g}a += v; b += v * ({x} - m) * s; }}
{first}{second}a /= (float)n;
b /= (float)n;
{each} {{
  float v = {again}, y = ({x} - m) * s;
  out[first + k] = ({kind})(s * (v - a - y * b));
}}
if (at == 0) {{ mean[row] = m; scale[row] = s; }}
",
        begin = lanes.begin(),
        each = lanes.each_kept(kept, "n"),
        mean = lanes.sum("m"),
        square = lanes.sum("s"),
        first = lanes.sum("a"),
        second = lanes.sum("b"),
    );
    let inputs = if weighted { strings(&["g", "x", "d", "f", "w"]) } else { strings(&["g", "x", "d", "f"]) };
    Text { name: KernelName::RowNormBack, inputs, outputs: strings(&["out", "mean", "scale"]), body, group: GROUP }
}

/// The gradient of the input of a norm of rows from `g`, by a weight or none, and each row's mean and scale; `None` where a
/// kernel of our own cannot take it.
fn rows_back(g: &Array, x: &Array, w: Option<&Array>, n: usize, eps: f64) -> Made<Option<[Array; 3]>> {
    let same = g.shape() == x.shape() && [Some(g), w].into_iter().flatten().all(|a| a.dtype() == x.dtype());
    let (Some(kind), true) = (type_name(x.dtype()), same && counted(x)) else { return Ok(None) };
    if custom_kernel::room().is_none() {
        return Ok(None);
    }
    let (rows, lanes) = (x.size() / n, Lanes::of(n));
    let d = custom_kernel::numbers(&[int(rows)? as i64, int(n)? as i64])?;
    let f = custom_kernel::floats(&[eps as f32])?;
    let inputs: Vec<&Array> = [g, x, &d, &f].into_iter().chain(w).collect();
    let each = [int(rows)?];
    let outputs = [(x.shape(), x.dtype()), (&each[..], Dtype::Float32), (&each[..], Dtype::Float32)];
    let kept = lanes.kept(n);
    let key = format!("row norm back {} {kept:?} {kind} {}", lanes.name(), w.is_some());
    let text = || row_back_text(lanes, kept, kind, w.is_some());
    named::<3>(custom_kernel::launch_typed(&key, text, &inputs, &outputs, lanes.threads(rows))?).map(Some)
}

/// The gradient through standardisation of rows of `n` elements.
pub(super) fn standardize_back(g: &Array, x: &Array, n: usize, eps: f64) -> Made<Option<Array>> {
    Ok(rows_back(g, x, None, n, eps)?.map(|[to_x, _, _]| to_x))
}

/// What [`sums_text`] gives of the parts of the rows.
pub(super) fn part_sums(
    g: &Array,
    x: &Array,
    by: [&Array; 2],
    (d, shape, threads): (&Array, [i32; 2], usize),
    of: Of,
) -> Made<[Array; 2]> {
    let Some(kind) = type_name(x.dtype()) else { return Err(Error::runtime("norm", "takes floats").into()) };
    let key = format!("norm sums {kind} {of:?}");
    let outputs = [&shape[..], &shape[..]];
    let inputs = [g, x, by[0], by[1], d];
    named::<2>(custom_kernel::launch(&key, || sums_text(kind, of), &inputs, &outputs, threads)?)
}

/// The sums over all rows.
fn sums(g: &Array, x: &Array, by: [&Array; 2], table: Table, of: Of) -> Made<[Array; 2]> {
    let d = table.numbers()?;
    let [to_bias, to_weight] = part_sums(g, x, by, (&d, table.partial()?, table.threads()), of)?;
    Ok([joined(&to_bias)?, joined(&to_weight)?])
}

/// The sum of the columns of each part of the rows.
fn column_sum_text(kind: &str) -> Text {
    let body = format!(
        "{begin}{EACH_ROW} a += (float)x[q * columns + c]; // {kind}
{end}if (slot == 0 && c < columns) sums[part * columns + c] = a;
",
        begin = column_begin(),
        end = column_end(),
    );
    Text { name: KernelName::ColumnSum, inputs: strings(&["x", "d"]), outputs: strings(&["sums"]), body, group: GROUP }
}

/// The sum over the parts' rows: one group for each block of columns.
fn joined(parts: &Array) -> Made<Array> {
    let &[rows, columns] = parts.shape() else { return Err(Error::runtime("sum", "takes rows of columns").into()) };
    let blocks = (columns as usize).div_ceil(COLUMNS);
    let d = custom_kernel::numbers(&[i64::from(rows), i64::from(columns), i64::from(rows), blocks as i64, 1])?;
    let text = || column_sum_text("float");
    let made = custom_kernel::launch("column sum float", text, &[parts, &d], &[&[1, columns]], blocks * GROUP)?;
    let [made] = named::<1>(made)?;
    Ok(ops::reshape(&made, &[columns])?)
}

/// Rows from which on a sum over them is worth a kernel, and columns that fill half of what a group takes.
const MANY_ROWS: usize = 512;
const FEW_COLUMNS: usize = 16;

/// The sum over the first `axes` axes in float32, of the shape of what is left; `None` where a kernel of our own cannot take it,
/// or another is better.
pub(super) fn column_sum(x: &Array, axes: usize) -> Made<Option<Array>> {
    let (lead, own) = x.shape().split_at(axes.min(x.ndim()));
    let size = |shape: &[i32]| shape.iter().map(|&n| n as usize).product::<usize>();
    let table = Table { rows: size(lead), columns: size(own) };
    let Some(kind) = type_name(x.dtype()).filter(|_| counted(x)) else { return Ok(None) };
    if table.rows < MANY_ROWS || table.columns < FEW_COLUMNS || custom_kernel::room().is_none() {
        return Ok(None);
    }
    let (d, shape) = (table.numbers()?, table.partial()?);
    let key = format!("column sum {kind}");
    let made = custom_kernel::launch(&key, || column_sum_text(kind), &[x, &d], &[&shape[..]], table.threads())?;
    let [made] = named::<1>(made)?;
    Ok(Some(ops::reshape(&joined(&made)?, own)?))
}

/// Channels-last images, or rows of features, whose columns are channels: the order of axes, and the table.
pub(super) fn by_channels(x: &GpuArray) -> Option<(Option<Perm>, Table)> {
    let (shape, ndim) = (x.shape(), x.ndim());
    if ndim < 2 || x.numel() == 0 || custom_kernel::room().is_none() {
        return None;
    }
    let order = (ndim > 2).then(|| channels_last(ndim));
    Some((order, Table { rows: x.numel() / shape[1], columns: shape[1] }))
}

/// `(x - mean) / sqrt(var + eps) * w + b` over all dimensions but the second, then means, variances and `1 / sqrt(var + eps)`;
/// `None` where kernels of our own cannot take it.
pub(super) fn channels(x: &GpuArray, by: [&GpuArray; 2], eps: f64) -> Made<Option<SmallVec<[Value; 4]>>> {
    let Some((order, table)) = by_channels(x) else { return Ok(None) };
    let v = x.value()?;
    let images = v.ordered(order.as_ref())?;
    let (w, b) = (by[0].value()?, by[1].value()?);
    let (w, b) = (w.logical()?, b.logical()?);
    let (Some(kind), Some(of)) = (type_name(images.dtype()), type_name(w.dtype())) else { return Ok(None) };
    if !counted(&images) {
        return Ok(None);
    }
    let [mean, scale, var] = moments(&images, table, eps)?;
    let inputs = [&*images, &mean, &scale, &*w, &*b, &table.numbers()?];
    let outputs = [(images.shape(), images.dtype())];
    let key = format!("column norm {kind} {of}");
    let made = custom_kernel::launch_typed(&key, || scaled_text(kind), &inputs, &outputs, element_threads(table))?;
    let [made] = named::<1>(made)?;
    let statistics = [mean, var, scale].map(Value::plain);
    Ok(Some(std::iter::once(Value::new(made, order)).chain(statistics).collect()))
}

/// The gradient through that from `g`, with its means and `1 / sqrt(var + eps)`: of the input, the weight and the bias; `None`
/// where kernels of our own cannot take it.
pub(super) fn channels_back(
    g: &GpuArray,
    x: &GpuArray,
    weight: &GpuArray,
    by: [&GpuArray; 2],
) -> Made<Option<SmallVec<[Value; 4]>>> {
    let Some((order, table)) = by_channels(x) else { return Ok(None) };
    let (u, v, w) = (g.value()?, x.value()?, weight.value()?);
    let (g, x, w) = (u.ordered(order.as_ref())?, v.ordered(order.as_ref())?, w.logical()?);
    let (Some(kind), Some(of)) = (type_name(x.dtype()), type_name(w.dtype())) else { return Ok(None) };
    if !counted(&x) || g.dtype() != x.dtype() {
        return Ok(None);
    }
    let (mean, scale) = (by[0].value()?, by[1].value()?);
    let (mean, scale) = (mean.logical()?, scale.logical()?);
    let [to_bias, to_weight] = sums(&g, &x, [&*mean, &*scale], table, Of::Columns)?;
    let inputs = [&*g, &*x, &*mean, &*scale, &*w, &to_bias, &to_weight, &table.numbers()?];
    let outputs = [(x.shape(), x.dtype())];
    let key = format!("column norm back {kind} {of}");
    let text = || column_back_text(kind);
    let made = custom_kernel::launch_typed(&key, text, &inputs, &outputs, element_threads(table))?;
    let [made] = named::<1>(made)?;
    let of_weight = |a: &Array| -> Made<Value> { Ok(Value::plain(ops::astype(a, w.dtype())?)) };
    Ok(Some(SmallVec::from_iter([Value::new(made, order), of_weight(&to_weight)?, of_weight(&to_bias)?])))
}

/// The gradient from `g` through a norm of rows with a weight and a bias: of the input, the weight and the bias. `None` where
/// kernels of our own cannot take it.
pub(super) fn rows_gradients(
    g: &GpuArray,
    x: &GpuArray,
    weight: &GpuArray,
    eps: f64,
) -> Made<Option<SmallVec<[Value; 4]>>> {
    let same = g.element() == x.element() && weight.element() == x.element();
    if !same || x.numel() == 0 || custom_kernel::room().is_none() {
        return Ok(None);
    }
    let n = weight.numel();
    let (u, v, w) = (g.value()?, x.value()?, weight.value()?);
    let (g, x) = (u.logical()?, v.logical()?);
    let weights = ops::reshape(&*w.logical()?, &[int(n)?])?;
    let Some([made, mean, scale]) = rows_back(&g, &x, Some(&weights), n, eps)? else { return Ok(None) };
    let [to_bias, to_weight] = sums(&g, &x, [&mean, &scale], Table { rows: x.size() / n, columns: n }, Of::Rows)?;
    let like = |a: &Array| -> Made<Value> {
        Ok(Value::plain(ops::reshape(&ops::astype(a, weights.dtype())?, &ints(weight.shape())?)?))
    };
    Ok(Some(SmallVec::from_iter([Value::plain(made), like(&to_weight)?, like(&to_bias)?])))
}
