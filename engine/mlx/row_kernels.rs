//! Kernels of our own over short rows: the logarithm of softmax, the negative log-likelihood, the gradient through them
//! and through relu. Each stands for two to ten primitives over a batch of a few hundred numbers, which cost their launches.
//!
//! Depends on `custom_kernel`. Invariant: the primitives stay beside each, for all other cases and as its reference.

use super::convert::int;
use super::custom_kernel::{self, Text, GROUP};
use super::kernel_error::Made;
use super::kernel_name::KernelName;
use crate::shape::numel;
use lucid_ir::ops::loss::Reduction;
use mlx_ffi::{ops, Array, Dtype};

/// The longest row that one thread goes through.
const SHORT: i32 = 128;
/// Targets that one group counts.
const COUNTED: usize = 1 << 14;

fn strings(names: &[&str]) -> Vec<String> {
    names.iter().map(|n| n.to_string()).collect()
}

/// May kernels of our own go over these rows?
fn short(x: &Array, axis: i32) -> bool {
    let (shape, last) = (x.shape(), x.ndim() as i32 - 1);
    let fits = axis == last && last >= 0 && x.dtype() == Dtype::Float32 && x.size() <= i32::MAX as usize;
    fits && (2..=SHORT).contains(&shape[last as usize]) && custom_kernel::room().is_some()
}

/// Launches a kernel with one thread for each row of `like`, whose shape is the result's; `d` are rows and columns.
fn by_row(key: &'static str, text: fn() -> Text, arrays: &[&Array], like: &Array) -> Made<Array> {
    let columns = like.shape().last().copied().unwrap_or(1);
    let count = like.size() / columns as usize;
    let d = custom_kernel::numbers(&[int(count)? as i64, i64::from(columns)])?;
    let inputs: Vec<&Array> = arrays.iter().copied().chain([&d]).collect();
    Ok(custom_kernel::launch(key, text, &inputs, &[like.shape()], count)?.swap_remove(0))
}

/// `x - log Σ e^x` over the last axis, where a kernel of our own may take it.
pub(super) fn log_softmax(x: &Array, axis: i32) -> Made<Option<Array>> {
    if !short(x, axis) {
        return Ok(None);
    }
    by_row("log softmax", log_softmax_text, &[x], x).map(Some)
}

/// The gradient through softmax or its logarithm from `g` and the result `y`.
pub(super) fn softmax_back(g: &Array, y: &Array, axis: i32, log: bool) -> Made<Option<Array>> {
    if !short(y, axis) {
        return Ok(None);
    }
    let (key, text): (_, fn() -> Text) = match log {
        true => ("log softmax back", || softmax_back_text(true)),
        false => ("softmax back", || softmax_back_text(false)),
    };
    by_row(key, text, &[g, y], y).map(Some)
}

const EACH_ROW: &str = "if (i >= (unsigned int)d[0]) return;
int n = d[1];
unsigned int first = i * n;
";

/// See [`log_softmax`]: infinite and NaN rows become NaN by the arithmetic itself.
pub(super) fn log_softmax_text() -> Text {
    let body = format!(
        "{EACH_ROW}float most = x[first];
for (int k = 1; k < n; k++) {{ float v = x[first + k]; if (v > most || v != v) most = v; }}
float sum = 0.0f;
for (int k = 0; k < n; k++) sum += exp(x[first + k] - most);
float low = log(sum);
for (int k = 0; k < n; k++) out[first + k] = x[first + k] - most - low;
"
    );
    Text { name: KernelName::LogSoftmax, inputs: strings(&["x", "d"]), outputs: strings(&["out"]), body, group: GROUP }
}

/// See [`softmax_back`].
pub(super) fn softmax_back_text(log: bool) -> Text {
    let (term, result) = match log {
        true => ("g[first + k]", "g[first + k] - exp(y[first + k]) * sum"),
        false => ("g[first + k] * y[first + k]", "y[first + k] * (g[first + k] - sum)"),
    };
    let body = format!(
        "{EACH_ROW}float sum = 0.0f;
for (int k = 0; k < n; k++) sum += {term};
for (int k = 0; k < n; k++) out[first + k] = {result};
"
    );
    let name = if log { KernelName::LogSoftmaxBack } else { KernelName::SoftmaxBack };
    Text { name, inputs: strings(&["g", "y", "d"]), outputs: strings(&["out"]), body, group: GROUP }
}

/// `g` where `y` is not 0 or less, where a kernel of our own may tell.
pub(super) fn relu_back(g: &Array, y: &Array) -> Made<Option<Array>> {
    let fits = g.dtype() == Dtype::Float32 && g.shape() == y.shape() && (1..=i32::MAX as usize).contains(&g.size());
    if !fits || y.ndim() == 0 || custom_kernel::room().is_none() {
        return Ok(None);
    }
    let d = custom_kernel::numbers(&[int(g.size())? as i64])?;
    Ok(custom_kernel::launch("relu back", relu_back_text, &[g, y, &d], &[y.shape()], g.size())?.into_iter().next())
}

/// See [`relu_back`].
pub(super) fn relu_back_text() -> Text {
    let body = "if (i >= (unsigned int)d[0]) return;\nout[i] = y[i] <= 0.0f ? 0.0f : g[i];\n".into();
    Text {
        name: KernelName::ReluBack,
        inputs: strings(&["g", "y", "d"]),
        outputs: strings(&["out"]),
        body,
        group: GROUP,
    }
}

// ---- negative log-likelihood -------------------------------------------------------------------------------------------

/// Rows, columns, the ignored target and whether there is one.
fn table(rows: usize, columns: usize, ignore: Option<i64>) -> Made<Array> {
    let ignores = i64::from(ignore.is_some());
    custom_kernel::numbers(&[rows as i64, columns as i64, ignore.unwrap_or_default(), ignores])
}

/// One number at least in one dimension: Metal hands single numbers over in another way.
fn at_least_1d(a: &Array) -> Made<Array> {
    if a.ndim() == 0 {
        Ok(ops::reshape(a, &[1])?)
    } else {
        Ok(a.clone())
    }
}

/// The loss of one batch (N, C), where a kernel of our own may take it.
pub(super) fn nll(logs: &Array, target: &Array, ignore: Option<i64>, how: Reduction) -> Made<Option<Array>> {
    let &[rows, columns] = logs.shape() else { return Ok(None) };
    let fits = logs.dtype() == Dtype::Float32 && target.size() <= COUNTED && logs.size() <= i32::MAX as usize;
    if !fits || custom_kernel::room().is_none() {
        return Ok(None);
    }
    let d = table(rows as usize, columns as usize, ignore)?;
    let inputs = [logs, target, &d];
    let made = match how {
        Reduction::None => custom_kernel::launch("nll rows", nll_rows_text, &inputs, &[target.shape()], rows as usize)?,
        Reduction::Sum => custom_kernel::launch("nll sum", || nll_text(false), &inputs, &[&[]], GROUP)?,
        Reduction::Mean => custom_kernel::launch("nll mean", || nll_text(true), &inputs, &[&[]], GROUP)?,
    };
    Ok(made.into_iter().next())
}

/// The gradient through the loss of one batch.
pub(super) fn nll_back(
    g: &Array,
    target: &Array,
    classes: usize,
    ignore: Option<i64>,
    how: Reduction,
) -> Made<Option<Array>> {
    let &[rows] = target.shape() else { return Ok(None) };
    let shape = [rows, int(classes)?];
    let total = numel(&shape.map(|n| n as usize));
    let fits = g.dtype() == Dtype::Float32 && target.size() <= COUNTED && total <= i32::MAX as usize;
    if !fits || custom_kernel::room().is_none() {
        return Ok(None);
    }
    let d = table(rows as usize, classes, ignore)?;
    let g = at_least_1d(g)?;
    let inputs = [&g, target, &d];
    // Whole groups: all threads of one count together.
    let threads = total.div_ceil(GROUP) * GROUP;
    let made = match how {
        Reduction::None => custom_kernel::launch("nll rows back", || nll_back_text(how), &inputs, &[&shape], threads)?,
        Reduction::Sum => custom_kernel::launch("nll sum back", || nll_back_text(how), &inputs, &[&shape], threads)?,
        Reduction::Mean => custom_kernel::launch("nll mean back", || nll_back_text(how), &inputs, &[&shape], threads)?,
    };
    Ok(made.into_iter().next())
}

/// Does target `t` count?
const COUNTS: &str = "(!d[3] || t[r] != d[2])";

/// Adds `name` of all threads of the group up, into its first element.
fn added_up(name: &str) -> String {
    format!(
        "LUCID_BARRIER;
for (int rest = LUCID_GROUP / 2; rest > 0; rest /= 2) {{
  if ((int)lane < rest) {name}[lane] += {name}[lane + rest];
  LUCID_BARRIER;
}}
"
    )
}

/// Each row's loss.
pub(super) fn nll_rows_text() -> Text {
    let body = format!(
        "if (i >= (unsigned int)d[0]) return;
int r = i;
out[i] = {COUNTS} ? -x[r * (int)d[1] + (int)t[r]] : 0.0f;
"
    );
    Text {
        name: KernelName::NllRows,
        inputs: strings(&["x", "t", "d"]),
        outputs: strings(&["out"]),
        body,
        group: GROUP,
    }
}

/// The sum or the mean of the rows' losses, by one group.
pub(super) fn nll_text(mean: bool) -> Text {
    let (sums, counts) = (added_up("sums"), if mean { added_up("counts") } else { String::new() });
    let result = if mean { "sums[0] / counts[0]" } else { "sums[0]" };
    let body = format!(
        "LUCID_SHARED float sums[LUCID_GROUP], counts[LUCID_GROUP];
float sum = 0.0f, count = 0.0f;
for (int r = lane; r < (int)d[0]; r += LUCID_GROUP)
  if ({COUNTS}) {{ sum -= x[r * (int)d[1] + (int)t[r]]; count += 1.0f; }}
sums[lane] = sum;
counts[lane] = count;
{sums}{counts}if (lane == 0) out[0] = {result};
"
    );
    let name = if mean { KernelName::NllMean } else { KernelName::NllSum };
    Text { name, inputs: strings(&["x", "t", "d"]), outputs: strings(&["out"]), body, group: GROUP }
}

/// The gradient of each element.
pub(super) fn nll_back_text(how: Reduction) -> Text {
    let counted = added_up("counts");
    let (name, before, share) = match how {
        Reduction::None => (KernelName::NllRowsBack, String::new(), "g[r]"),
        Reduction::Sum => (KernelName::NllSumBack, String::new(), "g[0]"),
        Reduction::Mean => (
            KernelName::NllMeanBack,
            format!(
                "LUCID_SHARED float counts[LUCID_GROUP];
float count = 0.0f;
for (int r = lane; r < (int)d[0]; r += LUCID_GROUP) if ({COUNTS}) count += 1.0f;
counts[lane] = count;
{counted}"
            ),
            "g[0] / counts[0]",
        ),
    };
    let body = format!(
        "{before}int n = (int)d[1];
if (i >= (unsigned int)((int)d[0] * n)) return;
int r = i / n;
out[i] = (int)t[r] == (int)(i % n) && {COUNTS} ? -{share} : 0.0f;
"
    );
    Text { name, inputs: strings(&["g", "t", "d"]), outputs: strings(&["out"]), body, group: GROUP }
}
