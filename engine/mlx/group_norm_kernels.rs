//! Group norm by kernels of our own, over images whose channels are innermost, where groups are no rows: moments of the columns of
//! each image in parts, joined by groups, and what follows from them in another pass.
//!
//! Depends on `custom_kernel` and `norm_kernels`. Invariant: parts have rows of one image each, and are joined in a fixed order.

use super::array::GpuArray;
use super::convert::int;
use super::custom_kernel::{self, Text, GROUP};
use super::kernel_error::Made;
use super::kernel_name::KernelName;
use super::kernel_text::{counted, strings, type_name};
use super::norm_kernels::{
    by_channels, by_element, element_threads, moments_text, named, part_sums, Of, Table, COLUMNS, GROUP_OF, JOIN,
    LEAST_ROWS,
};
use super::value::{Perm, Value};
use mlx_ffi::{ops, Array, Dtype};
use smallvec::SmallVec;

/// The most parts of all images.
const PARTS: usize = 1024;

/// Means and `1 / sqrt(var + eps)` of groups of channels of each image from the parts' moments of [`moments_text`]: threads in
/// step share a group.
fn groups_joined_text() -> Text {
    let body = format!(
        "unsigned int group = i / 32, columns = (unsigned int)d[1], groups = (unsigned int)d[3], own = columns / groups;
if (group >= (unsigned int)d[0] * groups) return;
float mean = 0.0f, sum = 0.0f, count = 0.0f, n = (float)d[2];
unsigned int parts = (unsigned int)d[4], first = group / groups * parts;
for (unsigned int k = lane % 32; k < parts * own; k += 32) {{
  unsigned int at = (first + k / own) * columns + group % groups * own + k % own;
  float m = means[at], s = squares[at];
  {JOIN}
}}
for (int o = 16; o > 0; o /= 2) {{
  float n = LUCID_SHUFFLE(count, o), m = LUCID_SHUFFLE(mean, o), s = LUCID_SHUFFLE(sum, o);
  {JOIN}
}}
if (lane % 32 == 0) {{
  mean_[group] = mean;
  scale[group] = 1.0f / sqrt(sum / count + f[0]);
}}
"
    );
    let inputs = strings(&["means", "squares", "d", "f"]);
    let outputs = strings(&["mean_", "scale"]);
    Text { name: KernelName::GroupMomentsJoined, inputs, outputs, body, group: GROUP }
}

/// `(x - mean) / sqrt(var + eps) * w + b` of groups of channels.
fn group_scaled_text(kind: &str) -> Text {
    let result = format!(
        "unsigned int q = j / columns, a = {GROUP_OF};
  out[j] = ({kind})((x0 - mean[a]) * scale[a] * (float)w[c] + (float)b[c]);"
    );
    let body = by_element(&[("x", "x")], &result);
    let inputs = strings(&["x", "mean", "scale", "w", "b", "d"]);
    Text { name: KernelName::GroupNorm, inputs, outputs: strings(&["out"]), body, group: GROUP }
}

/// The gradient of the input of a norm of groups, with means over each group of `w g` and of that times what was standardised.
fn group_back_text(kind: &str) -> Text {
    let result = format!(
        "unsigned int q = j / columns, a = {GROUP_OF};
  out[j] = ({kind})(scale[a] * ((float)w[c] * g0 - plain[a] - (x0 - mean[a]) * scale[a] * met[a]));"
    );
    let body = by_element(&[("g", "g"), ("x", "x")], &result);
    let inputs = strings(&["g", "x", "mean", "scale", "w", "plain", "met", "d"]);
    Text { name: KernelName::GroupNormBack, inputs, outputs: strings(&["out"]), body, group: GROUP }
}

/// Images whose channels are innermost, in parts of rows that have one image each.
struct Images {
    order: Option<Perm>,
    table: Table,
    images: usize,
    groups: usize,
    /// Rows of a part.
    each: usize,
}

impl Images {
    fn of(x: &GpuArray, groups: usize) -> Option<Images> {
        let (order, table) = by_channels(x)?;
        let images = x.shape()[0];
        let rows = table.rows / images;
        // The fewest rows of at least so many that divide an image.
        let each = (LEAST_ROWS.max(table.rows / PARTS)..rows).find(|each| rows.is_multiple_of(*each)).unwrap_or(rows);
        Some(Images { order, table, images, groups, each })
    }

    fn parts(&self) -> usize {
        self.table.rows / self.each
    }

    /// Rows, columns, rows of a part, blocks of columns, parts, rows of an image, groups.
    fn numbers(&self) -> Made<Array> {
        let Table { rows, columns } = self.table;
        let blocks = columns.div_ceil(COLUMNS);
        let sizes = [rows, columns, self.each, blocks, self.parts(), rows / self.images, self.groups];
        custom_kernel::numbers(&sizes.map(|n| n as i64))
    }

    fn threads(&self) -> usize {
        self.table.columns.div_ceil(COLUMNS) * self.parts() * GROUP
    }

    fn partial(&self) -> Made<[i32; 2]> {
        Ok([int(self.parts())?, int(self.table.columns)?])
    }
}

/// Group norm by weights and biases of the channels, then means and `1 / sqrt(var + eps)` of the groups; `None` where kernels of
/// our own cannot take it.
pub(super) fn groups(x: &GpuArray, by: [&GpuArray; 2], groups: usize, eps: f64) -> Made<Option<SmallVec<[Value; 4]>>> {
    let Some(images) = Images::of(x, groups) else { return Ok(None) };
    let v = x.value()?;
    let x = v.ordered(images.order.as_ref())?;
    let (w, b) = (by[0].value()?, by[1].value()?);
    let (w, b) = (w.logical()?, b.logical()?);
    let (Some(kind), Some(of)) = (type_name(x.dtype()), type_name(w.dtype())) else { return Ok(None) };
    if !counted(&x) {
        return Ok(None);
    }
    let (d, shape) = (images.numbers()?, images.partial()?);
    let key = format!("column moments {kind}");
    let outputs = [&shape[..], &shape[..]];
    let made = custom_kernel::launch(&key, || moments_text(kind), &[&*x, &d], &outputs, images.threads())?;
    let [means, squares] = named::<2>(made)?;
    let own = [int(images.images)?, int(groups)?];
    let parts = images.parts() / images.images;
    let sizes = [images.images, images.table.columns, images.each, groups, parts].map(|n| n as i64);
    let (sizes, f) = (custom_kernel::numbers(&sizes)?, custom_kernel::floats(&[eps as f32])?);
    let inputs = [&means, &squares, &sizes, &f];
    let threads = (images.images * groups * 32).div_ceil(GROUP) * GROUP;
    let outputs = [&own[..], &own[..]];
    let made = custom_kernel::launch("group moments joined", groups_joined_text, &inputs, &outputs, threads)?;
    let [mean, scale] = named::<2>(made)?;
    let inputs = [&*x, &mean, &scale, &*w, &*b, &d];
    let outputs = [(x.shape(), x.dtype())];
    let key = format!("group norm {kind} {of}");
    let threads = element_threads(images.table);
    let made = custom_kernel::launch_typed(&key, || group_scaled_text(kind), &inputs, &outputs, threads)?;
    let [made] = named::<1>(made)?;
    Ok(Some(SmallVec::from_iter([Value::new(made, images.order), Value::plain(mean), Value::plain(scale)])))
}

/// The gradient through that from `g`, with its means and `1 / sqrt(var + eps)`: of the input, the weight and the bias; `None`
/// where kernels of our own cannot take it.
pub(super) fn groups_back(
    g: &GpuArray,
    x: &GpuArray,
    weight: &GpuArray,
    by: [&GpuArray; 2],
) -> Made<Option<SmallVec<[Value; 4]>>> {
    let Some(images) = Images::of(x, by[0].shape()[1]) else { return Ok(None) };
    let (u, v, w) = (g.value()?, x.value()?, weight.value()?);
    let (g, x, w) = (u.ordered(images.order.as_ref())?, v.ordered(images.order.as_ref())?, w.logical()?);
    let (Some(kind), Some(of)) = (type_name(x.dtype()), type_name(w.dtype())) else { return Ok(None) };
    if !counted(&x) || g.dtype() != x.dtype() {
        return Ok(None);
    }
    let (mean, scale) = (by[0].value()?, by[1].value()?);
    let (mean, scale) = (mean.logical()?, scale.logical()?);
    let (d, threads) = (images.numbers()?, images.threads());
    let parts = part_sums(&g, &x, [&*mean, &*scale], (&d, images.partial()?, threads), Of::Groups)?;
    // Of the channels of each image, then of groups and of all images: sums of few.
    let (n, c, groups) = (int(images.images)?, int(images.table.columns)?, int(images.groups)?);
    let of_images = |a: &Array| ops::sum_axis(&ops::reshape(a, &[n, -1, c])?, 1, false);
    let [to_bias, to_weight] = [of_images(&parts[0])?, of_images(&parts[1])?];
    let count = (images.table.rows / images.images * (images.table.columns / images.groups)) as f32;
    let (wide, share) = (ops::astype(&w, Dtype::Float32)?, custom_kernel::floats(&[1.0 / count])?);
    let of_groups = |a: &Array| -> Made<Array> {
        let all = ops::reshape(&ops::multiply(a, &wide)?, &[n, groups, -1])?;
        Ok(ops::multiply(&ops::sum_axis(&all, 2, false)?, &share)?)
    };
    let (plain, met) = (of_groups(&to_bias)?, of_groups(&to_weight)?);
    let inputs = [&*g, &*x, &*mean, &*scale, &*w, &plain, &met, &d];
    let outputs = [(x.shape(), x.dtype())];
    let key = format!("group norm back {kind} {of}");
    let threads = element_threads(images.table);
    let made = custom_kernel::launch_typed(&key, || group_back_text(kind), &inputs, &outputs, threads)?;
    let [made] = named::<1>(made)?;
    let of_weight =
        |a: &Array| -> Made<Value> { Ok(Value::plain(ops::astype(&ops::sum_axis(a, 0, false)?, w.dtype())?)) };
    Ok(Some(SmallVec::from_iter([Value::new(made, images.order), of_weight(&to_weight)?, of_weight(&to_bias)?])))
}
