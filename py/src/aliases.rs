//! PyTorch's other names for ops, and which hand-written method stands for a row's.

use crate::tensor::PyTensor;
use pyo3::prelude::*;

/// (other name, name in the table). Holds for the function, the method and the in-place method, where there is one.
pub const ALIASES: &[(&str, &str)] = &[
    ("absolute", "abs"),
    ("arccos", "acos"),
    ("arccosh", "acosh"),
    ("arcsin", "asin"),
    ("arcsinh", "asinh"),
    ("arctan", "atan"),
    ("arctan2", "atan2"),
    ("arctanh", "atanh"),
    ("clip", "clamp"),
    ("concat", "cat"),
    ("concatenate", "cat"),
    ("conj", "conj_physical"),
    ("divide", "div"),
    ("fix", "trunc"),
    ("empty_like", "zeros_like"),
    ("expand_dims", "unsqueeze"),
    ("ger", "outer"),
    ("greater", "gt"),
    ("greater_equal", "ge"),
    ("less", "lt"),
    ("less_equal", "le"),
    ("moveaxis", "movedim"),
    ("multiply", "mul"),
    ("negative", "neg"),
    ("not_equal", "ne"),
    ("row_stack", "vstack"),
    ("subtract", "sub"),
    ("swapaxes", "transpose"),
    ("swapdims", "transpose"),
    ("trapz", "trapezoid"),
    ("true_divide", "div"),
];

/// Rows whose method is written by hand, since PyTorch gives it more than the row has.
const OVERRIDES: &[&str] = &["contiguous", "nonzero", "view"];

/// Adds the aliases to the module and to the class.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    let class = m.py().get_type::<PyTensor>();
    for name in OVERRIDES {
        let own = format!("_{name}");
        class.setattr(*name, class.getattr(own.as_str())?)?;
        class.delattr(own.as_str())?;
    }
    // In-place forms are functions too.
    for row in lucid::ops::schemas().filter(|s| s.in_place) {
        let name = format!("{}_", row.name);
        m.add(name.as_str(), class.getattr(name.as_str())?)?;
    }
    for (alias, name) in ALIASES {
        if let Ok(method) = class.getattr(*name) {
            class.setattr(*alias, &method)?;
            // A row for methods only still has a function in PyTorch under such a name (`clone`).
            let function = m.getattr(*name).unwrap_or(method);
            m.add(alias, function)?;
        } else {
            m.add(alias, m.getattr(*name)?)?;
        }
        // `copy_` is no in-place form of the row `copy`.
        let in_place = lucid::ops::schemas().any(|s| s.name == *name && s.in_place);
        let (alias, name) = (format!("{alias}_"), format!("{name}_"));
        if let Some(method) = in_place.then(|| class.getattr(name.as_str())).transpose()? {
            class.setattr(alias.as_str(), &method)?;
            m.add(alias.as_str(), method)?;
        }
    }
    Ok(())
}
