//! Max pools of any windows over planes, by kernels of our own: the maxima, their places, and the gradient back to them.
//!
//! Depends on `custom_kernel` and `kernel_text`. Windows that overlap share elements, so that the gradient is gathered: each
//! element asks the windows that it is in whether it was their maximum. Invariant: NaN is the largest of all, and of equals
//! the first in row-major order is the maximum; MLX's primitives stay beside it for all other cases and as its reference.

use super::conv::channels_last;
use super::convert::int;
use super::custom_kernel::{self, numbers, Text, GROUP};
use super::kernel_error::Made;
use super::kernel_name::KernelName;
use super::kernel_text::{counted, strings, type_name};
use super::value::{Perm, Value};
use crate::Error;
use lucid_ir::ops::pool::PoolArgs;
use mlx_ffi::{Array, Dtype};

/// Windows over the planes of images.
#[derive(Clone, Copy, Debug)]
pub(super) struct Windows {
    /// Are the channels last?
    last: bool,
    /// Images, channels, rows, columns.
    size: [i32; 4],
    /// Rows and columns of windows.
    count: [i32; 2],
    /// Window, stride, padding and dilation, each along rows and columns.
    how: [i32; 8],
}

impl Windows {
    /// Of images in the given order of axes, where kernels of our own may take them.
    pub(super) fn of(x: &Array, perm: Option<&Perm>, args: &PoolArgs) -> Made<Option<Windows>> {
        let planar = perm.is_none();
        let fits = x.ndim() == 4
            && counted(x)
            && type_name(x.dtype()).is_some()
            && (planar || perm == Some(&channels_last(4)));
        if !fits || custom_kernel::room().is_none() {
            return Ok(None);
        }
        let s = x.shape();
        let size = if planar { [s[0], s[1], s[2], s[3]] } else { [s[0], s[3], s[1], s[2]] };
        let count = [int(args.output[0])?, int(args.output[1])?];
        let total = [size[0], size[1], count[0], count[1]].iter().map(|&n| n as usize).product::<usize>();
        if total == 0 || total > i32::MAX as usize {
            return Ok(None);
        }
        let mut how = [0; 8];
        for (place, part) in [&args.kernel, &args.stride, &args.padding, &args.dilation].into_iter().enumerate() {
            how[2 * place] = int(part[0])?;
            how[2 * place + 1] = int(part[1])?;
        }
        Ok(Some(Windows { last: !planar, size, count, how }))
    }

    fn numbers(&self) -> Made<Array> {
        let all: Vec<i64> = self.size.iter().chain(&self.count).chain(&self.how).map(|&n| i64::from(n)).collect();
        numbers(&all)
    }

    /// The shape of what there is one of for each window.
    fn shape(&self) -> [i32; 4] {
        let ([n, c, ..], [rows, columns]) = (self.size, self.count);
        if self.last {
            [n, rows, columns, c]
        } else {
            [n, c, rows, columns]
        }
    }

    fn windows(&self) -> usize {
        self.shape().iter().map(|&n| n as usize).product()
    }

    fn launch(&self, key: &str, text: Text, inputs: &[&Array], shape: &[i32], dtype: Dtype) -> Made<Array> {
        let d = self.numbers()?;
        let given: Vec<&Array> = inputs.iter().copied().chain([&d]).collect();
        let threads = shape.iter().map(|&n| n as usize).product();
        let made = custom_kernel::launch_typed(key, || text, &given, &[(shape, dtype)], threads)?;
        made.into_iter().next().ok_or_else(|| Error::backend("max_pool", "a launch without an output").into())
    }

    /// Each window's largest element.
    pub(super) fn max(&self, x: &Array, perm: Option<Perm>) -> Made<Value> {
        let kind = type_name(x.dtype()).unwrap_or("float");
        let key = format!("window max {} {kind}", self.last);
        Ok(Value::new(self.launch(&key, max_text(self.last, kind), &[x], &self.shape(), x.dtype())?, perm))
    }

    /// Each window's largest element as a place in its plane, int32.
    pub(super) fn places(&self, x: &Array) -> Made<Array> {
        let kind = type_name(x.dtype()).unwrap_or("float");
        let key = format!("window places {} {kind}", self.last);
        self.launch(&key, places_text(self.last, kind), &[x], &self.shape(), Dtype::Int32)
    }

    /// The gradient `g` of each window at its largest element of `x`, added up.
    pub(super) fn back(&self, x: &Array, g: &Array) -> Made<Option<Array>> {
        if g.size() != self.windows() || g.dtype() != x.dtype() {
            return Ok(None);
        }
        let kind = type_name(x.dtype()).unwrap_or("float");
        let key = format!("window back {} {kind}", self.last);
        let places = self.places(x)?;
        self.launch(&key, back_text(self.last, kind), &[g, &places], x.shape(), x.dtype()).map(Some)
    }
}

/// Names of the numbers, and of element `i` of an array with these rows and columns its image, channel, row and column, and
/// where its plane begins in another array of `of` rows and columns, whose elements are `step` apart.
fn begin(last: bool, rows: &str, columns: &str, of: [&str; 2]) -> String {
    let decomposed = match last {
        true => format!(
            "int c = i % C, x1 = i / C % {columns}, y1 = i / C / {columns} % {rows}, n = i / C / {columns} / {rows};"
        ),
        false => {
            format!("int x1 = i % {columns}, y1 = i / {columns} % {rows}, c = i / {columns} / {rows} % C, n = i / {columns} / {rows} / C;")
        }
    };
    let [h, w] = of;
    let plane = match last {
        true => format!("int plane = n * {h} * {w} * C + c, step = C;"),
        false => format!("int plane = (n * C + c) * {h} * {w}, step = 1;"),
    };
    format!(
        "int N = (int)d[0], C = (int)d[1], H = (int)d[2], W = (int)d[3], R = (int)d[4], Q = (int)d[5];
if (i >= (unsigned int)(N * C * {rows} * {columns})) return;
{decomposed}
{plane}
"
    )
}

/// The loop over a window, which leaves its largest element in `best` and that one's place in `where`.
fn over_window(last: bool, kind: &str) -> String {
    format!(
        "{}float best = 0.0f;
int where = -1;
for (int a = 0; a < (int)d[6]; a++) for (int b = 0; b < (int)d[7]; b++) {{
  int y = y1 * (int)d[8] - (int)d[10] + a * (int)d[12], z = x1 * (int)d[9] - (int)d[11] + b * (int)d[13];
  if (y < 0 || y >= H || z < 0 || z >= W) continue;
  float v = (float)x[plane + (y * W + z) * step]; // {kind}
  if (where < 0 || (best == best && (v > best || v != v))) {{ best = v; where = y * W + z; }}
}}
",
        begin(last, "R", "Q", ["H", "W"])
    )
}

fn max_text(last: bool, kind: &str) -> Text {
    let body = over_window(last, kind) + &format!("out[i] = ({kind})best;\n");
    Text { name: KernelName::WindowMax, inputs: strings(&["x", "d"]), outputs: strings(&["out"]), body, group: GROUP }
}

fn places_text(last: bool, kind: &str) -> Text {
    let body = over_window(last, kind) + "out[i] = where;\n";
    Text {
        name: KernelName::WindowPlaces,
        inputs: strings(&["x", "d"]),
        outputs: strings(&["out"]),
        body,
        group: GROUP,
    }
}

fn back_text(last: bool, kind: &str) -> Text {
    let body = begin(last, "H", "W", ["R", "Q"])
        + &format!(
            "int here = y1 * W + x1, top = y1 + (int)d[10], left = x1 + (int)d[11];
int first = top - ((int)d[6] - 1) * (int)d[12], begin = left - ((int)d[7] - 1) * (int)d[13];
int a0 = first > 0 ? (first + (int)d[8] - 1) / (int)d[8] : 0, b0 = begin > 0 ? (begin + (int)d[9] - 1) / (int)d[9] : 0;
float sum = 0.0f;
for (int a = a0; a < R && a * (int)d[8] <= top; a++) for (int b = b0; b < Q && b * (int)d[9] <= left; b++) {{
  int at = plane + (a * Q + b) * step;
  if (places[at] == here) sum += (float)g[at]; // {kind}
}}
out[i] = ({kind})sum;
"
        );
    Text {
        name: KernelName::WindowBack,
        inputs: strings(&["g", "places", "d"]),
        outputs: strings(&["out"]),
        body,
        group: GROUP,
    }
}
