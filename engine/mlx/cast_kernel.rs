//! Casts of many arrays by one launch: a model's weights to the dtype of autocast, and their gradients back.
//!
//! Depends on `custom_kernel`. Invariant: MLX's casts stay beside it, for all other cases and as its reference; a text holds no
//! sizes, so that models share a kernel for as many arrays.

use super::array::GpuArray;
use super::convert::{self, int};
use super::custom_kernel::{self, Text, GROUP};
use super::kernel_error::Made;
use super::kernel_name::KernelName;
use super::kernel_text::type_name;
use super::value::Value;
use crate::DType;
use lucid_ir::backend::Array as _;
use mlx_ffi::{Array, Dtype};
use smallvec::SmallVec;
use std::fmt::Write;

/// Elements that one thread casts.
const EACH: usize = 8;

/// How many arrays a launch takes; none where kernels cannot be written.
pub(super) fn most() -> usize {
    custom_kernel::room().map_or(0, |room| (room.saturating_sub(1) / 2).min(32))
}

/// The text for so many arrays. `d` holds for each how many groups of threads have had their part after it, and its length.
fn text(count: usize, from: &str, to: &str) -> Text {
    let mut body = String::from("unsigned int group = i / LUCID_GROUP, first = 0, total, j;\n");
    // Writing to a String cannot fail. All loads come before the first store, which they would otherwise wait for.
    let _ = writeln!(body, "float v[{EACH}];");
    for k in 0..count {
        let _ = write!(
            body,
            "if (group < (unsigned int)d[{at}]) {{ // {from} to {to}
  total = (unsigned int)d[{length}]; first = (group - first) * {block} + lane; j = first;
  for (int e = 0; e < {EACH}; e++, j += LUCID_GROUP) if (j < total) v[e] = (float)x{k}[j];
  j = first;
  for (int e = 0; e < {EACH}; e++, j += LUCID_GROUP) if (j < total) out{k}[j] = ({to})v[e];
  return;
}}
first = (unsigned int)d[{at}];
",
            at = 2 * k,
            length = 2 * k + 1,
            block = GROUP * EACH,
        );
    }
    let inputs = (0..count).map(|k| format!("x{k}")).chain(["d".to_string()]).collect();
    let outputs = (0..count).map(|k| format!("out{k}")).collect();
    Text { name: KernelName::Casts, inputs, outputs, body, group: GROUP }
}

/// All arrays in another dtype, where a kernel takes them.
pub(super) fn cast_all(inputs: &[&GpuArray], dtype: DType) -> Made<Option<Vec<GpuArray>>> {
    let to = convert::dtype(dtype)?;
    let from = match inputs.first() {
        Some(x) => convert::dtype(x.element())?,
        None => return Ok(None),
    };
    let fits = |x: &&GpuArray| x.layout().is_contiguous() && x.numel() > 0 && !x.shape().is_empty();
    let (Some(from), Some(name)) = (type_name(from), type_name(to)) else { return Ok(None) };
    if inputs.len() > most() || !inputs.iter().all(fits) {
        return Ok(None);
    }
    let held = inputs.iter().map(|x| x.value()).collect::<Made<SmallVec<[_; 16]>>>()?;
    let mut arrays = held.iter().map(|value| value.array().cloned()).collect::<Made<SmallVec<[Array; 16]>>>()?;
    let (mut groups, mut table) = (0usize, SmallVec::<[i64; 64]>::new());
    for array in &arrays {
        groups = groups.saturating_add(array.size().div_ceil(GROUP * EACH));
        table.extend([groups as i64, array.size() as i64]);
    }
    // Threads and elements are counted in 32 bits.
    if int(groups.saturating_mul(GROUP)).is_err() || arrays.iter().any(|a| int(a.size()).is_err()) {
        return Ok(None);
    }
    arrays.push(custom_kernel::numbers(&table)?);
    let key = format!("casts {} {from} {name}", inputs.len());
    let outputs: SmallVec<[(&[i32], Dtype); 16]> = arrays[..inputs.len()].iter().map(|a| (a.shape(), to)).collect();
    let given: SmallVec<[&Array; 16]> = arrays.iter().collect();
    let text = || text(inputs.len(), from, name);
    let made = custom_kernel::launch_typed(&key, text, &given, &outputs, groups * GROUP)?;
    let wrap = |((x, value), array): ((&&GpuArray, &_), Array)| {
        let value: &Value = value;
        GpuArray::new(Value::new(array, value.perm.clone()), x.shape(), dtype)
    };
    inputs.iter().zip(held.iter().map(|v| &**v)).zip(made).map(wrap).collect::<Made<Vec<GpuArray>>>().map(Some)
}
