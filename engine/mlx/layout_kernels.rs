//! Strided arrays as row-major ones, by a kernel of our own: MLX's finds the place of every element by divisions, at a third
//! of the memory's speed.
//!
//! Depends on `custom_kernel`. Invariant: the result is what MLX's `contiguous` gives; the kernel takes any strides, which MLX
//! tells it at the launch.

use super::convert::int;
use super::custom_kernel::{self, Text, GROUP};
use super::emulator::Language;
use super::kernel_error::Made;
use super::kernel_name::KernelName;
use super::kernel_text::{counted, strings, type_name};
use super::value::Value;
use mlx_ffi::{ops, Array};
use smallvec::SmallVec;
use std::fmt::Write;

/// Bytes that a thread moves.
const MOVED: usize = 16;
/// Elements from which on a kernel is worth its launch, and its compilation once in a process.
const WORTH: usize = 1 << 16;
/// Dimensions that the kernel is written for.
const DIMENSIONS: std::ops::RangeInclusive<usize> = 3..=6;

/// A value's elements in logical order, row-major.
pub(super) fn row_major(v: &Value) -> Made<Array> {
    let x = v.logical()?;
    if v.perm.is_some() {
        if let Some(made) = copied(&x)? {
            return Ok(made);
        }
    }
    Ok(ops::contiguous(&x, false)?)
}

/// A row-major copy; `None` where a kernel of our own cannot make it, or another is better.
pub(super) fn copied(x: &Array) -> Made<Option<Array>> {
    let shape = x.shape();
    let fits = DIMENSIONS.contains(&x.ndim()) && counted(x) && x.size() >= WORTH;
    let (Some(kind), Some(&last), true) = (type_name(x.dtype()), shape.last(), fits) else { return Ok(None) };
    let moved = MOVED / x.dtype().size();
    if !(last as usize).is_multiple_of(moved)
        || custom_kernel::language() != Some(Language::Cuda)
        || custom_kernel::room().is_none()
    {
        return Ok(None);
    }
    let threads = x.size() / moved;
    let mut sizes: SmallVec<[i64; 10]> = SmallVec::from_slice(&[int(threads)? as i64]);
    sizes.extend(shape.iter().map(|&n| i64::from(n)));
    let (d, key) = (custom_kernel::numbers(&sizes)?, format!("row major {kind} {}", x.ndim()));
    let made =
        custom_kernel::launch_typed(&key, || text(kind, moved, x.ndim()), &[x, &d], &[(shape, x.dtype())], threads)?;
    Ok(made.into_iter().next())
}

fn text(kind: &str, moved: usize, dimensions: usize) -> Text {
    let last = dimensions - 1;
    let mut body = format!(
        "if (i >= (unsigned int)d[0]) return; // {kind}
unsigned int per = (unsigned int)d[{dimensions}] / {moved}, rest = i / per;
auto at = i % per * {moved} * x_strides[{last}];
"
    );
    for axis in (0..last).rev() {
        let size = axis + 1;
        let _ = match axis {
            0 => writeln!(body, "at += rest * x_strides[0];"),
            _ => writeln!(
                body,
                "at += rest % (unsigned int)d[{size}] * x_strides[{axis}];\nrest /= (unsigned int)d[{size}];"
            ),
        };
    }
    // All are loaded before one is stored: pointers may be the same, so that each load would wait for the store before it.
    body += &format!(
        "{kind} v[{moved}];
for (int k = 0; k < {moved}; k++) v[k] = x[at + k * x_strides[{last}]];
for (int k = 0; k < {moved}; k++) out[i * {moved} + k] = v[k];
"
    );
    Text { name: KernelName::RowMajor, inputs: strings(&["x", "d"]), outputs: strings(&["out"]), body, group: GROUP }
}
