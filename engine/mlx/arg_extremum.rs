//! Where the largest or the smallest number of a long row is, in one launch: what ends each token of a language model. MLX's own
//! passes over NaN, so that without it this takes five ops.
//!
//! Depends on `custom_kernel`. Invariant: of equal numbers the first counts, zeros of both signs are equal, and NaN counts as
//! more extreme than any number, as on the CPU device.

use super::convert::{int, Ints};
use super::custom_kernel::{self, Text};
use super::kernel_error::Made;
use super::kernel_name::KernelName;
use super::kernel_text::{counted, strings, type_name};
use mlx_ffi::{ops, Array, Dtype};

/// Threads of a row.
const THREADS: usize = 1024;
/// The shortest row.
const LONG: i32 = 2048;
/// The most rows: of more, each takes too few of MLX's threads for the five ops to matter.
const MOST: usize = 256;

/// The places along an axis, uint32; `None` where no kernel takes them.
pub(super) fn arg_extremum(x: &Array, axis: i32, keep: bool, largest: bool) -> Made<Option<Array>> {
    let shape = x.shape();
    let columns = shape.last().copied().unwrap_or(0);
    let Some(kind) = type_name(x.dtype()) else { return Ok(None) };
    if axis + 1 != shape.len() as i32 || columns < LONG || !counted(x) || custom_kernel::room().is_none() {
        return Ok(None);
    }
    let rows = x.size() / columns as usize;
    if rows > MOST {
        return Ok(None);
    }
    let d = custom_kernel::numbers(&[int(rows)? as i64, i64::from(columns)])?;
    let leading: Ints = shape[..shape.len() - 1].iter().copied().chain(keep.then_some(1)).collect();
    let (flat, key) = ([int(rows)?], format!("arg extremum {kind} {largest}"));
    let outputs = [(&flat[..], Dtype::Uint32)];
    let made = custom_kernel::launch_typed(&key, || text(largest), &[x, &d], &outputs, rows * THREADS)?;
    made.first().map(|places| Ok(ops::reshape(places, &leading)?)).transpose()
}

fn text(largest: bool) -> Text {
    // As whole numbers in the order of the floats, of which NaN is the last.
    let order = if largest { "key" } else { "~key" };
    let body = format!(
        "LUCID_SHARED unsigned int keys[LUCID_GROUP / 32], places[LUCID_GROUP / 32];
unsigned int row = i / LUCID_GROUP, n = (unsigned int)d[1], best = 0u, place = 0u;
LUCID_UNROLL_BY_4
for (unsigned int k = lane; k < n; k += LUCID_GROUP) {{
unsigned int bits = LUCID_AS_BITS((float)x[row * n + k]);
unsigned int size = bits & 0x7fffffffu;
unsigned int key = size == 0u ? 0x80000000u : bits == size ? bits | 0x80000000u : ~bits;
key = size > 0x7f800000u ? 0xffffffffu : {order};
if (key > best) {{ best = key; place = k; }}
}}
for (int o = 16; o > 0; o /= 2) {{
unsigned int other = LUCID_SHUFFLE(best, o), at = LUCID_SHUFFLE(place, o);
if (other > best || (other == best && at < place)) {{ best = other; place = at; }}
}}
if (lane % 32 == 0) {{ keys[lane / 32] = best; places[lane / 32] = place; }}
LUCID_BARRIER;
if (lane > 0) return;
for (unsigned int w = 1; w < LUCID_GROUP / 32; w++) {{
if (keys[w] > best || (keys[w] == best && places[w] < place)) {{ best = keys[w]; place = places[w]; }}
}}
out[row] = place;
"
    );
    Text {
        name: KernelName::ArgExtremum,
        inputs: strings(&["x", "d"]),
        outputs: strings(&["out"]),
        body,
        group: THREADS,
    }
}
