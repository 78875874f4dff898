//! Python's operators on tensors. What is neither tensor nor number gives `NotImplemented`, so that Python asks the other side.

use super::{wrap, PyTensor};
use crate::args::{kind_name, operand_of, weight_of, At, HeldOperand};
use crate::{cross, errors};
use lucid::ops::{binary, compare, contract, result_type, unary};
use lucid::{Operand, Result, Scalar, Tensor};
use pyo3::prelude::*;
use pyo3::pyclass::CompareOp;
use pyo3::types::PyNotImplemented;

type Object<'py> = PyResult<Bound<'py, PyAny>>;

#[inline]
fn held<'a>(op: &'static str, other: &'a Bound<'_, PyAny>) -> PyResult<Option<HeldOperand<'a>>> {
    operand_of(At { op, arg: "other" }, other.as_borrowed())
}

fn not_implemented(py: Python<'_>) -> Object<'_> {
    Ok(PyNotImplemented::get(py).to_owned().into_any())
}

/// `op(self, other)`.
#[inline]
fn forward<'py>(
    slf: &Bound<'py, PyTensor>,
    other: &Bound<'py, PyAny>,
    name: &'static str,
    op: impl Fn(&Tensor, Operand<'_>) -> Result<Tensor> + Sync,
) -> Object<'py> {
    let py = slf.py();
    let Some(b) = held(name, other)? else { return not_implemented(py) };
    let a = slf.get().read();
    let a: &Tensor = &a;
    let y = cross::op(py, weight_of(a).max(b.weight()), || op(a, b.lend()))?;
    wrap(py, y)
}

/// `op(other, self)`: the left side becomes a tensor if it is none.
fn reflected<'py>(
    slf: &Bound<'py, PyTensor>,
    other: &Bound<'py, PyAny>,
    name: &'static str,
    op: impl Fn(&Tensor, Operand<'_>) -> Result<Tensor> + Sync,
) -> Object<'py> {
    let py = slf.py();
    let Some(left) = held(name, other)? else { return not_implemented(py) };
    let b = slf.get().read();
    let b: &Tensor = &b;
    let y = cross::op(py, weight_of(b), || match left.lend() {
        Operand::Tensor(a) => op(a, b.into()),
        Operand::Scalar(s) => {
            let dtype = result_type([left.lend(), b.into()]);
            let _led = (name == "pow").then(|| lucid::autograd::led_by_number(name));
            op(&Tensor::full_of(&[], s, dtype, b.device())?, b.into())
        }
    })?;
    wrap(py, y)
}

/// Writes `op(self, other)` over `self`.
fn in_place(
    slf: &Bound<'_, PyTensor>,
    other: &Bound<'_, PyAny>,
    name: &'static str,
    op: impl Fn(&Tensor, Operand<'_>) -> Result<()> + Sync,
) -> PyResult<()> {
    let py = slf.py();
    let Some(b) = held(name, other)? else {
        let got = crate::args::kind_name(other);
        return Err(errors::type_error(
            py,
            format!("{name}(): argument 'other' must be Tensor or a number, not {got}"),
        ));
    };
    let a = slf.get().read();
    let a: &Tensor = &a;
    cross::op(py, weight_of(a).max(b.weight()), || a.refuse_captured(name).and_then(|()| op(a, b.lend())))
}

/// The right side as a tensor, where an op takes only those.
fn only_tensor(name: &'static str, b: Operand<'_>, run: impl Fn(&Tensor) -> Result<Tensor>) -> Result<Tensor> {
    match b {
        Operand::Tensor(b) => run(b),
        Operand::Scalar(_) => {
            let why = "argument 'other' must be Tensor, not a number";
            Err(Box::new(lucid::Error::InvalidType { op: name, why: why.into() }))
        }
    }
}

fn matmul(a: &Tensor, b: Operand<'_>) -> Result<Tensor> {
    only_tensor("matmul", b, |b| contract::matmul(a, b))
}

/// The table of two-sided operators: forward, reflected and in-place form of each.
macro_rules! operators {
    ($($op:ident $forward:ident |$a:ident, $b:ident| $body:expr;)*) => {
        $(fn $op($a: &Tensor, $b: Operand<'_>) -> Result<Tensor> { $body })*

        #[pymethods]
        impl PyTensor {
            $(fn $forward<'py>(slf: &Bound<'py, Self>, other: &Bound<'py, PyAny>) -> Object<'py> {
                forward(slf, other, stringify!($op), $op)
            })*
        }
    };
}
operators! {
    add __add__ |a, b| binary::add(a, b, Scalar::ONE);
    sub __sub__ |a, b| binary::sub(a, b, Scalar::ONE);
    mul __mul__ |a, b| binary::mul(a, b);
    div __truediv__ |a, b| binary::div(a, b, None);
    floor_divide __floordiv__ |a, b| binary::floor_divide(a, b);
    remainder __mod__ |a, b| binary::remainder(a, b);
    bitwise_and __and__ |a, b| binary::bitwise_and(a, b);
    bitwise_or __or__ |a, b| binary::bitwise_or(a, b);
    bitwise_xor __xor__ |a, b| binary::bitwise_xor(a, b);
    bitwise_left_shift __lshift__ |a, b| binary::bitwise_left_shift(a, b);
    bitwise_right_shift __rshift__ |a, b| binary::bitwise_right_shift(a, b);
}

macro_rules! reflected_operators {
    ($($op:ident $name:ident;)*) => {
        #[pymethods]
        impl PyTensor {
            $(fn $name<'py>(slf: &Bound<'py, Self>, other: &Bound<'py, PyAny>) -> Object<'py> {
                reflected(slf, other, stringify!($op), $op)
            })*
        }
    };
}
reflected_operators! {
    floor_divide __rfloordiv__;
    remainder __rmod__;
    bitwise_left_shift __rlshift__;
    bitwise_right_shift __rrshift__;
}

macro_rules! in_place_operators {
    ($($name:ident |$a:ident, $b:ident| $body:expr;)*) => {
        #[pymethods]
        impl PyTensor {
            $(fn $name(slf: &Bound<'_, Self>, other: &Bound<'_, PyAny>) -> PyResult<()> {
                in_place(slf, other, stringify!($name), |$a, $b| $body)
            })*
        }
    };
}
in_place_operators! {
    __iadd__ |a, b| a.add_(b, Scalar::ONE);
    __isub__ |a, b| a.sub_(b, Scalar::ONE);
    __imul__ |a, b| a.mul_(b);
    __itruediv__ |a, b| a.div_(b, None);
    __ifloordiv__ |a, b| a.floor_divide_(b);
    __imod__ |a, b| a.remainder_(b);
    __iand__ |a, b| a.bitwise_and_(b);
    __ior__ |a, b| a.bitwise_or_(b);
    __ixor__ |a, b| a.bitwise_xor_(b);
    __ilshift__ |a, b| a.bitwise_left_shift_(b);
    __irshift__ |a, b| a.bitwise_right_shift_(b);
}

#[pymethods]
impl PyTensor {
    fn __radd__<'py>(slf: &Bound<'py, Self>, other: &Bound<'py, PyAny>) -> Object<'py> {
        forward(slf, other, "add", add)
    }

    fn __rmul__<'py>(slf: &Bound<'py, Self>, other: &Bound<'py, PyAny>) -> Object<'py> {
        forward(slf, other, "mul", mul)
    }

    fn __rand__<'py>(slf: &Bound<'py, Self>, other: &Bound<'py, PyAny>) -> Object<'py> {
        forward(slf, other, "bitwise_and", bitwise_and)
    }

    fn __ror__<'py>(slf: &Bound<'py, Self>, other: &Bound<'py, PyAny>) -> Object<'py> {
        forward(slf, other, "bitwise_or", bitwise_or)
    }

    fn __rxor__<'py>(slf: &Bound<'py, Self>, other: &Bound<'py, PyAny>) -> Object<'py> {
        forward(slf, other, "bitwise_xor", bitwise_xor)
    }

    fn __rsub__<'py>(slf: &Bound<'py, Self>, other: &Bound<'py, PyAny>) -> Object<'py> {
        forward(slf, other, "rsub", |a, b| binary::rsub(a, b, Scalar::ONE))
    }

    /// `other * (1 / self)`, as PyTorch computes it.
    fn __rtruediv__<'py>(slf: &Bound<'py, Self>, other: &Bound<'py, PyAny>) -> Object<'py> {
        forward(slf, other, "div", |a, b| binary::mul(&unary::reciprocal(a)?, b))
    }

    fn __matmul__<'py>(slf: &Bound<'py, Self>, other: &Bound<'py, PyAny>) -> Object<'py> {
        forward(slf, other, "matmul", matmul)
    }

    fn __rmatmul__<'py>(slf: &Bound<'py, Self>, other: &Bound<'py, PyAny>) -> Object<'py> {
        match other.is_instance_of::<PyTensor>() {
            true => reflected(slf, other, "matmul", matmul),
            false => not_implemented(slf.py()),
        }
    }

    fn __pow__<'py>(slf: &Bound<'py, Self>, other: &Bound<'py, PyAny>, modulo: &Bound<'py, PyAny>) -> Object<'py> {
        refuse_modulo(modulo)?;
        forward(slf, other, "pow", |a, b| binary::pow(a, b))
    }

    fn __rpow__<'py>(slf: &Bound<'py, Self>, other: &Bound<'py, PyAny>, modulo: &Bound<'py, PyAny>) -> Object<'py> {
        refuse_modulo(modulo)?;
        reflected(slf, other, "pow", |a, b| binary::pow(a, b))
    }

    fn __ipow__(slf: &Bound<'_, Self>, other: &Bound<'_, PyAny>, modulo: &Bound<'_, PyAny>) -> PyResult<()> {
        refuse_modulo(modulo)?;
        in_place(slf, other, "__ipow__", |a, b| a.pow_(b))
    }

    fn __neg__<'py>(slf: &Bound<'py, Self>) -> Object<'py> {
        alone(slf, unary::neg)
    }

    fn __pos__<'py>(slf: &Bound<'py, Self>) -> Object<'py> {
        cross::quick(slf.py(), || lucid::ops::pointwise::positive(&slf.get().share()).map(drop))?;
        Ok(slf.clone().into_any())
    }

    fn __abs__<'py>(slf: &Bound<'py, Self>) -> Object<'py> {
        alone(slf, unary::abs)
    }

    fn __invert__<'py>(slf: &Bound<'py, Self>) -> Object<'py> {
        alone(slf, unary::bitwise_not)
    }

    fn __richcmp__<'py>(slf: &Bound<'py, Self>, other: &Bound<'py, PyAny>, op: CompareOp) -> Object<'py> {
        match op {
            CompareOp::Eq => match array(slf, other)? {
                Some(other) => forward(slf, &other, "eq", |a, b| compare::eq(a, b)),
                None => forward(slf, other, "eq", |a, b| compare::eq(a, b)),
            },
            CompareOp::Ne => forward(slf, other, "ne", |a, b| compare::ne(a, b)),
            CompareOp::Lt => forward(slf, other, "lt", |a, b| compare::lt(a, b)),
            CompareOp::Le => forward(slf, other, "le", |a, b| compare::le(a, b)),
            CompareOp::Gt => forward(slf, other, "gt", |a, b| compare::gt(a, b)),
            CompareOp::Ge => forward(slf, other, "ge", |a, b| compare::ge(a, b)),
        }
    }

    fn __contains__(slf: &Bound<'_, Self>, element: &Bound<'_, PyAny>) -> PyResult<bool> {
        let py = slf.py();
        let Some(b) = held("__contains__", element)? else {
            let got = crate::args::kind_name(element);
            let why = format!("Tensor.__contains__ only supports Tensor or numbers, not {got}");
            return Err(errors::runtime_error(py, why));
        };
        let a = slf.get().share();
        cross::long(py, || compare::eq(&a, b.lend())?.any(None, false)?.item_bool())
    }
}

/// A NumPy array as a tensor: of all that compares, `==` alone takes one, as in PyTorch, rather than be false.
fn array<'py>(slf: &Bound<'py, PyTensor>, other: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
    let py = slf.py();
    if other.is_instance_of::<PyTensor>() || kind_name(other) != "ndarray" {
        return Ok(None);
    }
    let shown = py.import("lucid")?.call_method1("as_tensor", (other,))?;
    Ok(Some(shown.call_method1("to", (slf.getattr("device")?,))?))
}

fn alone<'py>(slf: &Bound<'py, PyTensor>, op: fn(&Tensor) -> Result<Tensor>) -> Object<'py> {
    let a = slf.get().read();
    let a: &Tensor = &a;
    let y = cross::op(slf.py(), weight_of(a), || op(a))?;
    wrap(slf.py(), y)
}

fn refuse_modulo(modulo: &Bound<'_, PyAny>) -> PyResult<()> {
    match modulo.is_none() {
        true => Ok(()),
        false => Err(errors::type_error(modulo.py(), "pow() with a modulus is not supported for tensors")),
    }
}
