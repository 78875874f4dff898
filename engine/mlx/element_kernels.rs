//! Functions of one element in one pass over memory, by kernels of our own: gelu, the functions of `element_fn`, and the
//! products of gradients with their derivatives. MLX's primitives take up to twenty passes.
//!
//! Depends on `custom_kernel`, `element_fn` and `fused_kernel`. Invariant: the primitives stay beside each, for all other cases
//! and as its reference; 16-bit floats are computed in float32 and rounded once.

use super::convert::int;
use super::custom_kernel::{self, Text, GROUP};
use super::fused_kernel;
use super::kernel_error::Made;
use super::kernel_name::KernelName;
use super::kernel_text::{counted, strings, type_name};
use crate::DType;
use lucid_ir::fused::ElementOp;
use mlx_ffi::Array;

/// Elements that one thread computes.
const EACH: usize = 4;

/// The complementary error function of `u` as `erfc` (Press et al., Numerical Recipes, 6.2): exact to 1.2e-7 of itself.
const ERFC: &str = "float z = fabs(u), t = 1.0f / (1.0f + 0.5f * z);
  float erfc = t * exp(-z * z - 1.26551223f + t * (1.00002368f + t * (0.37409196f + t * (0.09678418f
    + t * (-0.18628806f + t * (0.27886807f + t * (-1.13520398f + t * (1.48851587f
    + t * (-0.82215223f + t * 0.17087277f)))))))));
  erfc = u >= 0.0f ? erfc : 2.0f - erfc;
";

/// Statements that leave the result in `y`, of `x` and, for gradients, `g`; `None` where that has no short form.
fn statements(op: &ElementOp) -> Option<String> {
    Some(match op {
        ElementOp::Gelu { tanh: false } => {
            format!("float u = -0.70710678f * x;\n  {ERFC}  float y = 0.5f * x * erfc;")
        }
        ElementOp::GeluGradient { tanh: false } => {
            let density = "0.3989422804f * x * exp(-0.5f * x * x)";
            format!("float u = -0.70710678f * x;\n  {ERFC}  float y = g * (0.5f * erfc + {density});")
        }
        op => {
            let gradient = matches!(op, ElementOp::CurveGradient(..) | ElementOp::GeluGradient { .. });
            let (dtypes, names): (&[DType], &[&str]) = match gradient {
                true => (&[DType::F32, DType::F32], &["g", "x"]),
                false => (&[DType::F32], &["x"]),
            };
            format!("float y = {};", fused_kernel::expression(op, dtypes, DType::F32, names)?)
        }
    })
}

/// The text over elements of this type: `x`, and `g` before it for gradients.
fn text(gradient: bool, statements: &str, kind: &str) -> Text {
    // All loads come before the first store, which they would otherwise wait for: pointers may be the same.
    let (load, again) = match gradient {
        true => (format!("gs[k] = (float)p0[j]; xs[k] = (float)p1[j]; // {kind}\n"), "float g = gs[k], x = xs[k];"),
        false => (format!("xs[k] = (float)p0[j]; // {kind}\n"), "float x = xs[k];"),
    };
    let declared = if gradient { format!(", gs[{EACH}]") } else { String::new() };
    let body = format!(
        "unsigned int first = i / LUCID_GROUP * {} + lane, total = (unsigned int)d[0], j = first;
float xs[{EACH}]{declared};
for (int k = 0; k < {EACH}; k++, j += LUCID_GROUP) if (j < total) {{ {load}}}
j = first;
for (int k = 0; k < {EACH}; k++, j += LUCID_GROUP) if (j < total) {{
  {again}
  {statements}
  out[j] = ({kind})y;
}}
",
        GROUP * EACH,
    );
    let inputs = if gradient { strings(&["p0", "p1", "d"]) } else { strings(&["p0", "d"]) };
    Text { name: KernelName::Element, inputs, outputs: strings(&["out"]), body, group: GROUP }
}

/// The op over arrays of one shape, order of axes and dtype, where a kernel of our own may take them.
pub(super) fn run(op: &ElementOp, inputs: &[&Array]) -> Made<Option<Array>> {
    let Some(&x) = inputs.last().filter(|x| x.ndim() > 0 && counted(x)) else { return Ok(None) };
    let fits =
        custom_kernel::room().is_some() && inputs.iter().all(|a| a.shape() == x.shape() && a.dtype() == x.dtype());
    let (Some(kind), true) = (type_name(x.dtype()), fits) else { return Ok(None) };
    let Some(statements) = statements(op) else { return Ok(None) };
    let d = custom_kernel::numbers(&[int(x.size())? as i64])?;
    let gradient = inputs.len() > 1;
    let key = format!("element {gradient} {kind} {statements}");
    let given: smallvec::SmallVec<[&Array; 3]> = inputs.iter().copied().chain([&d]).collect();
    let threads = x.size().div_ceil(GROUP * EACH) * GROUP;
    let outputs = [(x.shape(), x.dtype())];
    let made = custom_kernel::launch_typed(&key, || text(gradient, &statements, kind), &given, &outputs, threads)?;
    Ok(made.into_iter().next())
}
