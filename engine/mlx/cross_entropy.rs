//! The logarithm of softmax over long rows and the negative log-likelihood of it, without the (rows, classes) results between
//! them: the loss reads one logarithm of a row, and the gradient through both is one pass over the logits.
//!
//! Depends on `custom_kernel`, `kernel_text` and `lower`. Of a vocabulary of 50,000 each of those results is as large as the
//! logits. Invariant: what is looked through is made where anything else asks for it.

use super::convert::int;
use super::custom_kernel::{self, Text, GROUP};
use super::kernel_error::Made;
use super::kernel_name::KernelName;
use super::kernel_text::{counted, strings, type_name, Lanes, LEAST};
use super::lower::{self, Origin};
use super::value::Value;
use crate::Error;
use mlx_ffi::{ops, Array, Dtype};

/// Rows of fewer elements are one launch of a thread for each; see `row_kernels`.
const LONG: i32 = 129;

/// A logarithm of softmax over the last axis that has not been made.
#[derive(Clone)]
pub(super) struct LogSoftmax {
    /// The logits.
    pub x: Array,
    /// Each row's largest element, and the logarithm of the sum of what the others are below it.
    pub most: Array,
    pub low: Array,
}

/// A gradient that reaches but one class of each row, not made either.
#[derive(Clone)]
pub(super) struct OneClass {
    /// The class of each row.
    pub target: Array,
    /// What reaches it, in float32: 0 in rows that count nothing.
    pub share: Array,
    /// The gradient itself, as MLX's primitives make it.
    pub plain: Array,
}

impl LogSoftmax {
    /// Of logits whose rows are the last axis; `None` where kernels of our own cannot take them.
    pub(super) fn of(x: &Array) -> Made<Option<LogSoftmax>> {
        let n = x.shape().last().copied().unwrap_or(0);
        let Some(kind) = type_name(x.dtype()).filter(|_| n >= LONG && counted(x)) else { return Ok(None) };
        if custom_kernel::room().is_none() || !lower::is_on() {
            return Ok(None);
        }
        let rows = x.size() / n as usize;
        let lanes = Lanes::of(n as usize);
        let d = custom_kernel::numbers(&[int(rows)? as i64, i64::from(n)])?;
        let key = format!("log sum exp {} {kind}", lanes.name());
        let shape = [int(rows)?];
        let outputs = [&shape[..], &shape[..]];
        let made = custom_kernel::launch(&key, || sums_text(lanes, kind), &[x, &d], &outputs, lanes.threads(rows))?;
        let [most, low] =
            <[Array; 2]>::try_from(made).map_err(|_| Error::backend("log_softmax", "a launch without two outputs"))?;
        Ok(Some(LogSoftmax { x: x.clone(), most, low }))
    }

    /// The value, to be looked through.
    pub(super) fn value(self) -> Made<Value> {
        Value::later(Origin::LogSoftmax(self), None)
    }

    fn rows(&self) -> usize {
        self.most.size()
    }

    fn numbers(&self) -> Made<Array> {
        let rows = int(self.rows())?;
        custom_kernel::numbers(&[i64::from(rows), i64::from(self.x.shape().last().copied().unwrap_or(1))])
    }

    /// All of it.
    pub(super) fn make(&self) -> Made<Array> {
        let kind = type_name(self.x.dtype()).unwrap_or("float");
        let key = format!("log softmax rows {kind}");
        let outputs = [(self.x.shape(), self.x.dtype())];
        let inputs = [&self.x, &self.most, &self.low, &self.numbers()?];
        only(custom_kernel::launch_typed(&key, || logs_text(kind), &inputs, &outputs, self.rows() * GROUP)?)
    }

    /// The element of each row at `places` (rows, 1), in float32.
    pub(super) fn pick(&self, picked: &Array) -> Made<Array> {
        let logits = ops::reshape(&ops::astype(picked, Dtype::Float32)?, self.most.shape())?;
        Ok(ops::subtract(&ops::subtract(&logits, &self.most)?, &self.low)?)
    }

    /// The gradient of the logits, of one that reaches one class of each row.
    pub(super) fn back(&self, g: &OneClass) -> Made<Option<Array>> {
        if g.share.size() != self.rows() || g.target.size() != self.rows() {
            return Ok(None);
        }
        let kind = type_name(self.x.dtype()).unwrap_or("float");
        let key = format!("cross entropy back {kind} {:?}", g.target.dtype());
        let outputs = [(self.x.shape(), self.x.dtype())];
        let inputs = [&self.x, &self.most, &self.low, &g.target, &g.share, &self.numbers()?];
        only(custom_kernel::launch_typed(&key, || back_text(kind), &inputs, &outputs, self.rows() * GROUP)?).map(Some)
    }
}

fn only(made: Vec<Array>) -> Made<Array> {
    made.into_iter().next().ok_or_else(|| Error::backend("cross_entropy", "a launch without an output").into())
}

/// Each row's largest element, and the logarithm of the sum of the exponentials of what all are below it. A row with an
/// infinity is NaN throughout, as in PyTorch.
fn sums_text(lanes: Lanes, kind: &str) -> Text {
    let body = format!(
        "{begin}unsigned int n = (unsigned int)d[1], first = row * n;
float own = {LEAST}, sum = 0.0f;
{each} {{
  float x0 = (float)x[first + k]; // {kind}
  if (x0 > own || x0 != x0) {{ sum = sum * exp(own - x0) + 1.0f; own = x0; }}
  else sum += exp(x0 - own);
}}
float all = own;
{most}sum *= exp(own - all);
{total}if (at == 0) {{
  most[row] = all;
  low[row] = all > 3.402823466e38f ? all - all : log(sum);
}}
",
        begin = lanes.begin(),
        each = lanes.each("n"),
        most = lanes.largest("all"),
        total = lanes.sum("sum"),
    );
    Text {
        name: KernelName::LogSumExp,
        inputs: strings(&["x", "d"]),
        outputs: strings(&["most", "low"]),
        body,
        group: GROUP,
    }
}

/// See [`LogSoftmax::make`].
fn logs_text(kind: &str) -> Text {
    let body = format!(
        "unsigned int row = i / LUCID_GROUP, n = (unsigned int)d[1], first = row * n;
float top = most[row], rest = low[row];
for (unsigned int k = lane; k < n; k += LUCID_GROUP) out[first + k] = ({kind})((float)x[first + k] - top - rest);
"
    );
    let inputs = strings(&["x", "most", "low", "d"]);
    Text { name: KernelName::LogSoftmaxRows, inputs, outputs: strings(&["out"]), body, group: GROUP }
}

/// See [`LogSoftmax::back`].
fn back_text(kind: &str) -> Text {
    let body = format!(
        "unsigned int row = i / LUCID_GROUP, n = (unsigned int)d[1], first = row * n;
float top = most[row], rest = low[row], part = share[row];
unsigned int right = (unsigned int)t[row];
for (unsigned int k = lane; k < n; k += LUCID_GROUP) {{
  float p = exp((float)x[first + k] - top - rest);
  out[first + k] = ({kind})(part * ((k == right ? 1.0f : 0.0f) - p));
}}
"
    );
    let inputs = strings(&["x", "most", "low", "t", "share", "d"]);
    Text { name: KernelName::CrossEntropyBack, inputs, outputs: strings(&["out"]), body, group: GROUP }
}
