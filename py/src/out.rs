//! `out=`: results written to tensors that the caller gives, as PyTorch has it.
//!
//! The op runs as ever, then its result is copied over the given tensor, which is what the call gives back. Which dtypes
//! go the op's row says ([`OutDType`]): of most, the result's own, or what it can be cast to. A tensor of
//! another shape is resized: it gets storage of its own, so views of it keep what they showed (in PyTorch they may not).

use crate::args::{kind_name, weight_of, Arg};
use crate::results;
use crate::tensor::PyTensor;
use crate::{engine_call, errors};
use lucid::ops::out::Given;
use lucid::ops::OutDType;
use lucid::{DType, Device, Error, Tensor};
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};
use pyo3::Borrowed;

/// A result that can be written to `out`.
pub trait Store {
    fn store<'py>(
        self,
        py: Python<'py>,
        op: &'static str,
        out: Borrowed<'_, 'py, PyAny>,
        given: &[Given],
    ) -> PyResult<Bound<'py, PyAny>>;
}

/// Writes a result to `out`, and gives that back.
#[cold]
#[inline(never)]
pub fn store<'py>(
    py: Python<'py>,
    op: &'static str,
    out: Borrowed<'_, 'py, PyAny>,
    made: impl Store,
    given: &[Given],
) -> PyResult<Bound<'py, PyAny>> {
    made.store(py, op.trim_start_matches("r#"), out, given)
}

/// Writes a tensor that was made of sizes alone to `out`, which then has these sizes without a warning, as in PyTorch.
pub fn store_new<'py>(
    py: Python<'py>,
    op: &'static str,
    out: Borrowed<'_, 'py, PyAny>,
    made: Tensor,
) -> PyResult<Bound<'py, PyAny>> {
    if let Ok(target) = out.cast::<PyTensor>() {
        let (t, op) = (target.get().share(), op.trim_start_matches("r#"));
        if t.shape() != made.shape() {
            check(py, op, &t, &made, &[])?;
            if op == "arange" && t.numel() > 0 && t.numel() != made.numel() {
                let text = format!(
                    "arange: the number of elements of out is {}, and not {}, as it should be, which may be by a rounding \
                     error. It is resized.",
                    t.numel(),
                    made.numel()
                );
                crate::warn::user(py, &text)?;
            }
            let empty = engine_call::quick(py, || Tensor::full_of(&[0], lucid::Scalar::ZERO, t.dtype(), t.device()))?;
            target.get().replace(py, empty);
        }
    }
    store(py, op, out, made, &[])
}

impl Store for Tensor {
    fn store<'py>(
        self,
        py: Python<'py>,
        op: &'static str,
        out: Borrowed<'_, 'py, PyAny>,
        given: &[Given],
    ) -> PyResult<Bound<'py, PyAny>> {
        let Ok(target) = out.cast::<PyTensor>() else {
            let got = kind_name(&out);
            return Err(errors::type_error(py, format!("{op}(): argument 'out' must be Tensor, not {got}")));
        };
        let t = target.get().share();
        check(py, op, &t, &self, given)?;
        if t.shape() == self.shape() {
            engine_call::op(py, weight_of(&t), || t.take_(self))?;
        } else {
            // These take the size that they need without a word, as in PyTorch.
            if !matches!(op, "bernoulli" | "multinomial") {
                resize(py, &t, self.shape())?;
            }
            let fresh = engine_call::op(py, weight_of(&self), || {
                let cast = self.cast(t.dtype())?;
                if cast.is_same(&self) || cast.shares_storage(&self) {
                    self.copy_in(lucid::MemoryFormat::Preserve)
                } else {
                    Ok(cast)
                }
            })?;
            target.get().replace(py, fresh);
        }
        Ok(out.to_owned())
    }
}

fn check(py: Python<'_>, op: &'static str, out: &Tensor, made: &Tensor, given: &[Given]) -> PyResult<()> {
    let fail = |e: Error| Err(errors::raise(py, &e));
    if made.requires_grad() || out.requires_grad() && lucid::grad_enabled() {
        let why = format!(
            "{op}(): functions with out=... arguments don't support automatic differentiation, but one of the arguments \
             requires grad."
        );
        return fail(Error::Runtime { op, why: why.into() });
    }
    if made.tangent().is_ok_and(|v| v.is_some()) || out.tangent().is_ok_and(|v| v.is_some()) {
        let why = "Trying to use forward AD with an op that does not support it because it is an out= function".into();
        return fail(Error::NotImplemented { op, why });
    }
    if made.device() != out.device() {
        let why = "Expected all tensors to be on the same device; the argument 'out' is on another one".into();
        return fail(Error::DeviceMismatch { op, why, devices: vec![made.device(), out.device()] });
    }
    let (has, wants) = (out.dtype(), made.dtype());
    let schema = lucid::ops::schemas().find(|s| s.name == op);
    if let Some(takes) = schema.and_then(|s| s.out_rule).filter(|_| !given.is_empty()) {
        let why = format!("result type {wants} can't be written to an output of type {has} for these arguments");
        return match takes(given, made, has) {
            true => Ok(()),
            false => fail(Error::DtypeMismatch { op, why: why.into(), dtypes: vec![wants, has] }),
        };
    }
    if joins(op) && !wants.can_cast(has) {
        let why = format!("{op}(): input types can't be cast to the desired output type {has}, but are {wants}");
        return Err(errors::type_error(py, why));
    }
    let why = match rule(op) {
        OutDType::Own if has != wants => format!("Expected out tensor to have dtype {wants}, but got {has} instead"),
        OutDType::Cast | OutDType::Asked if !wants.can_cast(has) => {
            format!("result type {wants} can't be cast to the desired output type {has}")
        }
        OutDType::Own | OutDType::Cast | OutDType::Asked => return Ok(()),
    };
    fail(Error::DtypeMismatch { op, why: why.into(), dtypes: vec![wants, has] })
}

/// Does the op copy a sequence of tensors side by side to `out`? Then it can be none of them.
fn joins(op: &str) -> bool {
    let of_tensors = |s: &lucid::ops::Schema| s.params.first().is_some_and(|p| p.kind == "Tensors");
    lucid::ops::schemas().find(|s| s.name == op).is_some_and(|s| of_tensors(s) && s.out_rule.is_none())
}

/// What the row of an op says of `out`'s dtype; functions of several rows cast.
fn rule(op: &str) -> OutDType {
    lucid::ops::schemas().find(|s| s.name == op).map_or(OutDType::Cast, |s| s.out)
}

/// Refuses an `out` of another kind than the result's: it is one tensor, or as many as there are results. PyTorch sees that
/// before it looks at the other arguments.
#[inline]
pub fn check_kind(py: Python<'_>, op: &'static str, out: Arg<'_, '_>, result: &'static str) -> PyResult<()> {
    match out.0 {
        None => Ok(()),
        Some(out) if out.is_none() => Ok(()),
        Some(out) => check_given_kind(py, op, out, result),
    }
}

#[cold]
fn check_given_kind(py: Python<'_>, op: &'static str, out: Borrowed<'_, '_, PyAny>, result: &str) -> PyResult<()> {
    let op = op.trim_start_matches("r#");
    let one = out.is_instance_of::<PyTensor>();
    let expected = match result {
        "Tensor" if !one => "Tensor",
        "ValuesIndices" | "MaybeIndices" | "MinMax" | "SignLogabsdet" | "MantissaExponent" | "HistEdges" | "Pair"
        | "Named"
            if one =>
        {
            "tuple of Tensors"
        }
        _ => return Ok(()),
    };
    Err(errors::type_error(py, format!("{op}(): argument 'out' must be {expected}, not {}", kind_name(&out))))
}

/// Refuses an `out` beside an argument that is left out: PyTorch's overload without it writes to nothing.
#[inline]
pub fn check_with(py: Python<'_>, op: &'static str, out: Arg<'_, '_>, with: Arg<'_, '_>) -> PyResult<()> {
    if out.0.is_none() || with.0.is_some() {
        return Ok(());
    }
    let op = op.trim_start_matches("r#");
    Err(errors::type_error(
        py,
        format!("{op}() received an invalid combination of arguments: no overload has 'out' alone"),
    ))
}

/// The `dtype` of a call that writes to `out`: where none is given, `out`'s if the op makes its result in any.
pub fn asked(py: Python<'_>, op: &'static str, out: Arg<'_, '_>, dtype: Option<DType>) -> PyResult<Option<DType>> {
    let Some(out) = out.0.and_then(|o| Some(o.cast::<PyTensor>().ok()?.get().share())) else {
        return Ok(dtype);
    };
    match dtype {
        Some(dtype) if dtype != out.dtype() => {
            let why = format!("dtype {dtype} does not match dtype of out parameter ({})", out.dtype());
            Err(errors::raise(py, &Error::DtypeMismatch { op, why: why.into(), dtypes: vec![dtype, out.dtype()] }))
        }
        None if rule(op) == OutDType::Asked => Ok(Some(out.dtype())),
        same => Ok(same),
    }
}

/// The `device` of a call that writes to `out`: where none is given, `out`'s.
pub fn placed(out: Arg<'_, '_>, device: Option<Device>) -> Option<Device> {
    let of_out = || Some(out.0?.cast::<PyTensor>().ok()?.get().read().device());
    device.or_else(of_out)
}

/// Refuses a tensor to write to, or several, whose memory overlaps an argument's in part: what is read would change.
#[cold]
pub fn check_apart(py: Python<'_>, op: &'static str, out: Borrowed<'_, '_, PyAny>, inputs: &[Tensor]) -> PyResult<()> {
    let targets: Vec<Tensor> = match out.cast::<PyTensor>() {
        Ok(t) => vec![t.get().share()],
        Err(_) => match out.try_iter() {
            Ok(items) => items.filter_map(|o| Some(o.ok()?.cast::<PyTensor>().ok()?.get().share())).collect(),
            Err(_) => return Ok(()),
        },
    };
    let op = op.trim_start_matches("r#");
    // What is picked by an index, or read more than once, may not come from where it is written.
    const PICK: &[&str] = &["gather", "index_select", "take", "take_along_dim", "masked_select", "nonzero"];
    const AGAIN: &[&str] = &["cross", "linalg_cross", "kron", "outer", "ger"];
    let whole = joins(op) || PICK.contains(&op) || AGAIN.contains(&op);
    if !whole && copies(op) {
        return Ok(());
    }
    for (t, x) in targets.iter().flat_map(|t| inputs.iter().map(move |x| (t, x))) {
        t.refuse_shared(op, x, whole).map_err(|e| errors::raise(py, &e))?;
    }
    Ok(())
}

/// Does PyTorch let an op's `out` overlap what it reads? Here the result is made first, and is right then.
fn copies(op: &str) -> bool {
    const SINGLE: &[&str] =
        &["softmax", "log_softmax", "logsigmoid", "mvlgamma", "ndtr", "tril", "triu", "slice_scatter"];
    const POWERS: &[&str] = &["matrix_power", "linalg_matrix_power"];
    let family = lucid::ops::schemas().find(|s| s.name == op).map_or("", |s| s.family);
    let whole = ["reduce", "linalg", "contract", "matrix"].contains(&family) && !POWERS.contains(&op);
    whole || SINGLE.contains(&op)
}

/// PyTorch's warning where a tensor that holds something is resized.
fn resize(py: Python<'_>, out: &Tensor, shape: &[usize]) -> PyResult<()> {
    if out.numel() == 0 {
        return Ok(());
    }
    let text = format!(
        "An output with one or more elements was resized since it had shape {:?}, which does not match the required output \
         shape {shape:?}. This behavior is deprecated, and in a future release outputs will not be resized unless they \
         have zero elements.",
        out.shape()
    );
    crate::warn::user(py, &text)
}

/// The parts of `out` for several results.
fn parts<'py>(
    py: Python<'py>,
    op: &'static str,
    out: Borrowed<'_, 'py, PyAny>,
    n: usize,
) -> PyResult<Vec<Bound<'py, PyAny>>> {
    let items: Option<Vec<_>> = match (out.cast::<PyTuple>(), out.cast::<PyList>()) {
        (Ok(t), _) => Some(t.iter().collect()),
        (_, Ok(l)) => Some(l.iter().collect()),
        _ => None,
    };
    match items {
        Some(items) if items.len() == n => Ok(items),
        _ => {
            let got = kind_name(&out);
            Err(errors::type_error(py, format!("{op}(): argument 'out' must be tuple of {n} Tensors, not {got}")))
        }
    }
}

impl Store for Vec<Tensor> {
    fn store<'py>(
        self,
        py: Python<'py>,
        op: &'static str,
        out: Borrowed<'_, 'py, PyAny>,
        given: &[Given],
    ) -> PyResult<Bound<'py, PyAny>> {
        let parts = parts(py, op, out, self.len())?;
        let stored = parts.iter().zip(self).map(|(out, made)| made.store(py, op, out.as_borrowed(), given));
        let stored = stored.collect::<PyResult<Vec<_>>>()?;
        results::named(py, op, stored)
    }
}

macro_rules! tuples {
    ($($($name:ident)+: $($ty:ty)+;)*) => {$(
        impl Store for ($($ty),+) {
            fn store<'py>(self, py: Python<'py>, op: &'static str, out: Borrowed<'_, 'py, PyAny>, given: &[Given]) -> PyResult<Bound<'py, PyAny>> {
                let ($($name),+) = self;
                vec![$($name),+].store(py, op, out, given)
            }
        }
    )*};
}
tuples! {
    a b: Tensor Tensor;
    a b c: Tensor Tensor Tensor;
}

impl Store for bool {
    fn store<'py>(
        self,
        py: Python<'py>,
        op: &'static str,
        _out: Borrowed<'_, 'py, PyAny>,
        _given: &[Given],
    ) -> PyResult<Bound<'py, PyAny>> {
        Err(errors::type_error(py, format!("{op}() got an unexpected keyword argument 'out'")))
    }
}

impl Store for (Tensor, Option<Tensor>) {
    fn store<'py>(
        self,
        py: Python<'py>,
        op: &'static str,
        out: Borrowed<'_, 'py, PyAny>,
        given: &[Given],
    ) -> PyResult<Bound<'py, PyAny>> {
        match self {
            (values, Some(indices)) => (values, indices).store(py, op, out, given),
            // The form without indices writes to nothing.
            (_, None) => Err(errors::type_error(py, format!("{op}(): 'out' goes with 'dim'"))),
        }
    }
}

impl Store for (Tensor, Vec<Tensor>) {
    fn store<'py>(
        self,
        py: Python<'py>,
        op: &'static str,
        _out: Borrowed<'_, 'py, PyAny>,
        _given: &[Given],
    ) -> PyResult<Bound<'py, PyAny>> {
        Err(errors::type_error(py, format!("{op}() got an unexpected keyword argument 'out'")))
    }
}
