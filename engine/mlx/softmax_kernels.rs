//! Softmax over rows of any length, by kernels of our own: attention's weights from its scores, and the gradients through
//! softmax and its logarithm. Each reads and writes a row once, where MLX's primitives take five to ten passes.
//!
//! Depends on `custom_kernel` and `kernel_text`. Invariant: the primitives stay beside each, for all other cases and as its
//! reference; 16-bit floats are computed in float32 and rounded once.

use super::custom_kernel::{self, Text, GROUP};
use super::kernel_error::Made;
use super::kernel_name::KernelName;
use super::kernel_text::{counted, strings, type_name, Lanes, LEAST};
use crate::Error;
use mlx_ffi::{Array, Dtype};
use smallvec::SmallVec;

fn only(made: Vec<Array>) -> Made<Array> {
    made.into_iter().next().ok_or_else(|| Error::backend("softmax", "a launch without an output").into())
}

/// Rows and columns of what kernels of our own may go over, the last axis being the row.
fn rows(x: &Array) -> Option<[i32; 2]> {
    let &n = x.shape().last()?;
    let fits = counted(x) && type_name(x.dtype()).is_some() && custom_kernel::room().is_some();
    fits.then(|| [(x.size() / n as usize) as i32, n])
}

/// The threads that share a row, and how many elements of it each keeps in registers, if all.
#[derive(Clone, Copy, Debug)]
struct Row {
    lanes: Lanes,
    kept: Option<usize>,
}

/// What hides scores: nothing, truths that show them, or numbers added to them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mask {
    None,
    Shown,
    Added,
}

/// `softmax(scale · scores + mask)` over the last axis of scores (B, H, L, S), zeros in rows that the mask hides altogether;
/// with `causal` no query sees a later key. `None` where a kernel of our own cannot take them.
pub(super) fn weights(scores: &Array, mask: Option<&Array>, causal: bool, scale: f64) -> Made<Option<Array>> {
    let (Some([count, n]), &[_, heads, length, _]) = (rows(scores), scores.shape()) else { return Ok(None) };
    let kind = match mask.map(Array::dtype) {
        None => Mask::None,
        Some(Dtype::Bool) => Mask::Shown,
        Some(dtype) if type_name(dtype).is_some() => Mask::Added,
        Some(_) => return Ok(None),
    };
    let mut sizes: SmallVec<[i64; 10]> = [count, n, length, heads].iter().map(|&n| i64::from(n)).collect();
    if let Some(mask) = mask {
        // Row-major, as the kernel gets it; what it has once is the same for all.
        let mut step = 1;
        let mut steps: SmallVec<[i64; 4]> = SmallVec::new();
        for &n in mask.shape().iter().rev() {
            steps.push(if n == 1 { 0 } else { step });
            step *= i64::from(n);
        }
        if mask.ndim() != 4 || !counted(mask) {
            return Ok(None);
        }
        sizes.extend(steps.into_iter().rev());
    }
    let (d, f) = (custom_kernel::numbers(&sizes)?, custom_kernel::floats(&[scale as f32])?);
    let (lanes, dtype) = (Lanes::of(n as usize), scores.dtype());
    let Some(name) = type_name(dtype) else { return Ok(None) };
    let of_mask = mask.and_then(|m| type_name(m.dtype())).unwrap_or("bool");
    let row = Row { lanes, kept: lanes.kept(n as usize) };
    let key = format!("attention weights {} {:?} {name} {kind:?} {of_mask} {causal}", lanes.name(), row.kept);
    let given: SmallVec<[&Array; 4]> = [scores, &d, &f].into_iter().chain(mask).collect();
    let text = || weights_text(row, name, kind, of_mask, causal);
    let outputs = [(scores.shape(), dtype)];
    only(custom_kernel::launch_typed(&key, text, &given, &outputs, lanes.threads(count as usize))?).map(Some)
}

/// See [`weights`].
fn weights_text(row: Row, kind: &str, mask: Mask, of_mask: &str, causal: bool) -> Text {
    let Row { lanes, kept } = row;
    let stop = if causal { "(l + 1 < n ? l + 1 : n)" } else { "n" };
    let place = match mask {
        Mask::None => "",
        Mask::Shown | Mask::Added => {
            "unsigned int h = row / (unsigned int)d[2] % (unsigned int)d[3];
unsigned int b = row / (unsigned int)d[2] / (unsigned int)d[3];
unsigned int of = b * (unsigned int)d[4] + h * (unsigned int)d[5] + l * (unsigned int)d[6], by = (unsigned int)d[7];
"
        }
    };
    // A score as `v`, and whether it counts.
    let load = match mask {
        Mask::None => "float v = (float)s[first + k] * scale; bool shown = true;".to_string(),
        Mask::Shown => {
            format!("float v = (float)s[first + k] * scale; bool shown = m[of + k * by]; // {of_mask}\n")
        }
        Mask::Added => format!(
            "float a = (float)m[of + k * by]; float v = (float)s[first + k] * scale + a; bool shown = true; // {of_mask}\n"
        ),
    };
    let opens = match mask {
        Mask::None => "",
        Mask::Shown => "if (shown) open = 1.0f; ",
        Mask::Added => "if (!(a < -3.402823466e38f)) open = 1.0f; ",
    };
    let (declared, keep, again) = match kept {
        Some(kept) => (
            format!("float vs[{kept}]; bool is[{kept}];\n"),
            "vs[e] = v; is[e] = shown; ",
            "float v = vs[e]; bool shown = is[e];",
        ),
        None => (String::new(), "", &*load),
    };
    let opened = if mask == Mask::None { String::new() } else { lanes.sum("open") };
    let result = if mask == Mask::None { "shown" } else { "open > 0.0f && shown" };
    let body = format!(
        "{begin}unsigned int n = (unsigned int)d[1], first = row * n, l = row % (unsigned int)d[2];
unsigned int stop = {stop};
{place}float scale = f[0], most = {LEAST}, sum = 0.0f, open = 0.0f;
{declared}{below} {{ {load} {keep}{opens}if (shown && (v > most || v != v)) most = v; }}
{most}{opened}{below} {{ {again} if (shown) sum += exp(v - most); }}
{sum}{below} {{ {again} out[first + k] = ({kind})({result} ? exp(v - most) / sum : 0.0f); }}
{rest}",
        begin = lanes.begin(),
        below = lanes.each_kept(kept, "stop"),
        most = lanes.largest("most"),
        sum = lanes.sum("sum"),
        rest = match causal {
            true => format!("{} if (k >= stop) out[first + k] = ({kind})0.0f;\n", lanes.each_kept(kept, "n")),
            false => String::new(),
        },
    );
    let mut inputs = strings(&["s", "d", "f"]);
    if mask != Mask::None {
        inputs.push("m".into());
    }
    Text { name: KernelName::AttentionWeights, inputs, outputs: strings(&["out"]), body, group: GROUP }
}

/// `scale` times the gradient through softmax, or its logarithm, over the last axis from `g` and the result `y`; `None` where
/// a kernel of our own cannot take them.
pub(super) fn back(g: &Array, y: &Array, log: bool, scale: f64) -> Made<Option<Array>> {
    let Some([count, n]) = rows(y) else { return Ok(None) };
    let Some(name) = type_name(y.dtype()).filter(|_| g.shape() == y.shape() && g.dtype() == y.dtype()) else {
        return Ok(None);
    };
    let lanes = Lanes::of(n as usize);
    let kept = lanes.kept(n as usize);
    let d = custom_kernel::numbers(&[i64::from(count), i64::from(n)])?;
    let f = custom_kernel::floats(&[scale as f32])?;
    let key = format!("softmax rows back {} {kept:?} {name} {log}", lanes.name());
    let outputs = [(y.shape(), y.dtype())];
    let text = || back_text(lanes, kept, name, log);
    only(custom_kernel::launch_typed(&key, text, &[g, y, &d, &f], &outputs, lanes.threads(count as usize))?).map(Some)
}

/// See [`back`].
fn back_text(lanes: Lanes, kept: Option<usize>, kind: &str, log: bool) -> Text {
    let (term, result) = match log {
        true => ("gk", "gk - exp(yk) * sum"),
        false => ("gk * yk", "yk * (gk - sum)"),
    };
    let (declared, again) = match kept {
        Some(kept) => (format!("float gs[{kept}], ys[{kept}];\n"), "float gk = gs[e], yk = ys[e];"),
        None => (String::new(), "float gk = (float)g[first + k], yk = (float)y[first + k];"),
    };
    let keep = if kept.is_some() { "gs[e] = gk; ys[e] = yk; " } else { "" };
    let body = format!(
        "{begin}unsigned int n = (unsigned int)d[1], first = row * n;
float scale = f[0], sum = 0.0f;
{declared}{each} {{ float gk = (float)g[first + k], yk = (float)y[first + k]; {keep}sum += {term}; }}
{total}{each} {{ {again} out[first + k] = ({kind})(scale * ({result})); }}
",
        begin = lanes.begin(),
        each = lanes.each_kept(kept, "n"),
        total = lanes.sum("sum"),
    );
    let name = if log { KernelName::LogSoftmaxRowsBack } else { KernelName::SoftmaxRowsBack };
    Text { name, inputs: strings(&["g", "y", "d", "f"]), outputs: strings(&["out"]), body, group: GROUP }
}
