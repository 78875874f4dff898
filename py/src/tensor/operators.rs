//! Python's operators on tensors. What is neither tensor nor number gives `NotImplemented`, so that Python asks the other side.

use super::{wrap, PyTensor};
use crate::args::{kind_name, operand_of, weight_of, At, HeldOperand};
use crate::overrides::{asked, asked_operator};
use crate::{engine_call, errors};
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

/// `op(self, other)`. Classes are asked about the first name of the two, the second is the op's.
#[inline]
fn forward<'py>(
    slf: &Bound<'py, PyTensor>,
    other: &Bound<'py, PyAny>,
    (called, name): (&'static str, &'static str),
    op: impl Fn(&Tensor, Operand<'_>) -> Result<Tensor> + Sync,
) -> Object<'py> {
    let py = slf.py();
    if let Some(answer) = asked_operator(slf, called, other)? {
        return Ok(answer);
    }
    let Some(b) = held(name, other)? else { return not_implemented(py) };
    let a = slf.get().read();
    let a: &Tensor = &a;
    let y = engine_call::op(py, weight_of(a).max(b.weight()), || op(a, b.lend()))?;
    wrap(py, y)
}

/// `op(other, self)`: the left side becomes a tensor if it is none.
fn reflected<'py>(
    slf: &Bound<'py, PyTensor>,
    other: &Bound<'py, PyAny>,
    (called, name): (&'static str, &'static str),
    op: impl Fn(&Tensor, Operand<'_>) -> Result<Tensor> + Sync,
) -> Object<'py> {
    let py = slf.py();
    if let Some(answer) = asked_operator(slf, called, other)? {
        return Ok(answer);
    }
    let Some(left) = held(name, other)? else { return not_implemented(py) };
    let b = slf.get().read();
    let b: &Tensor = &b;
    let y = engine_call::op(py, weight_of(b), || match left.lend() {
        Operand::Tensor(a) => op(a, b.into()),
        Operand::Scalar(s) => {
            let dtype = result_type([left.lend(), b.into()])?;
            let _led = (name == "pow").then(|| lucid::autograd::led_by_number(name));
            op(&Tensor::full_of(&[], s, dtype, b.device())?, b.into())
        }
    })?;
    wrap(py, y)
}

/// The right side of an operator in place. For what is neither tensor nor number nor of a class that is asked the operator is
/// not there, and Python goes on with the one that makes a new tensor: `x += array` is `x = x + array`, as in PyTorch.
struct InplaceOperand<'a, 'py>(Borrowed<'a, 'py, PyAny>);

impl<'a, 'py> FromPyObject<'a, 'py> for InplaceOperand<'a, 'py> {
    type Error = PyErr;
    #[inline]
    fn extract(obj: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        let taken = obj.cast_exact::<PyTensor>().is_ok()
            // What is too large is so later, by the op's name.
            || !matches!(operand_of(At { op: "in place", arg: "other" }, obj), Ok(None))
            || obj.hasattr("__torch_function__")?;
        match taken {
            true => Ok(InplaceOperand(obj)),
            false => Err(errors::type_error(obj.py(), kind_name(&obj))),
        }
    }
}

/// Writes `op(self, other)` over `self`. The object stays the same: what a class that is asked gives back is dropped.
fn in_place(
    slf: &Bound<'_, PyTensor>,
    other: &Bound<'_, PyAny>,
    (called, name): (&'static str, &'static str),
    op: impl Fn(&Tensor, Operand<'_>) -> Result<()> + Sync,
) -> PyResult<()> {
    let py = slf.py();
    if asked(slf, called, &[other])?.is_some() {
        return Ok(());
    }
    let Some(b) = held(name, other)? else {
        let got = crate::args::kind_name(other);
        return Err(errors::type_error(
            py,
            format!("{name}(): argument 'other' must be Tensor or a number, not {got}"),
        ));
    };
    let a = slf.get().read();
    let a: &Tensor = &a;
    engine_call::op(py, weight_of(a).max(b.weight()), || a.refuse_captured(name).and_then(|()| op(a, b.lend())))
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

/// The table of two-sided operators, and the attribute of `Tensor` that classes are asked about, PyTorch's.
macro_rules! operators {
    ($($op:ident $forward:ident $called:literal |$a:ident, $b:ident| $body:expr;)*) => {
        $(fn $op($a: &Tensor, $b: Operand<'_>) -> Result<Tensor> { $body })*

        #[pymethods]
        impl PyTensor {
            $(fn $forward<'py>(slf: &Bound<'py, Self>, other: &Bound<'py, PyAny>) -> Object<'py> {
                forward(slf, other, ($called, stringify!($op)), $op)
            })*
        }
    };
}
operators! {
    add __add__ "add" |a, b| binary::add(a, b, Scalar::ONE);
    sub __sub__ "sub" |a, b| binary::sub(a, b, Scalar::ONE);
    mul __mul__ "mul" |a, b| binary::mul(a, b);
    div __truediv__ "div" |a, b| binary::div(a, b, None);
    floor_divide __floordiv__ "__floordiv__" |a, b| binary::floor_divide(a, b);
    remainder __mod__ "remainder" |a, b| binary::remainder(a, b);
    bitwise_and __and__ "__and__" |a, b| binary::bitwise_and(a, b);
    bitwise_or __or__ "__or__" |a, b| binary::bitwise_or(a, b);
    bitwise_xor __xor__ "__xor__" |a, b| binary::bitwise_xor(a, b);
    bitwise_left_shift __lshift__ "__lshift__" |a, b| binary::bitwise_left_shift(a, b);
    bitwise_right_shift __rshift__ "__rshift__" |a, b| binary::bitwise_right_shift(a, b);
}

macro_rules! reflected_operators {
    ($($op:ident $name:ident;)*) => {
        #[pymethods]
        impl PyTensor {
            $(fn $name<'py>(slf: &Bound<'py, Self>, other: &Bound<'py, PyAny>) -> Object<'py> {
                reflected(slf, other, (stringify!($name), stringify!($op)), $op)
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
    ($($name:ident $called:literal |$a:ident, $b:ident| $body:expr;)*) => {
        #[pymethods]
        impl PyTensor {
            $(fn $name(slf: &Bound<'_, Self>, other: InplaceOperand<'_, '_>) -> PyResult<()> {
                in_place(slf, &other.0, ($called, stringify!($name)), |$a, $b| $body)
            })*
        }
    };
}
in_place_operators! {
    __iadd__ "add_" |a, b| a.add_(b, Scalar::ONE);
    __isub__ "sub_" |a, b| a.sub_(b, Scalar::ONE);
    __imul__ "mul_" |a, b| a.mul_(b);
    __itruediv__ "div_" |a, b| a.div_(b, None);
    __ifloordiv__ "floor_divide_" |a, b| a.floor_divide_(b);
    __imod__ "remainder_" |a, b| a.remainder_(b);
    __iand__ "__iand__" |a, b| a.bitwise_and_(b);
    __ior__ "__ior__" |a, b| a.bitwise_or_(b);
    __ixor__ "__ixor__" |a, b| a.bitwise_xor_(b);
    __ilshift__ "__ilshift__" |a, b| a.bitwise_left_shift_(b);
    __irshift__ "__irshift__" |a, b| a.bitwise_right_shift_(b);
}

#[pymethods]
impl PyTensor {
    fn __radd__<'py>(slf: &Bound<'py, Self>, other: &Bound<'py, PyAny>) -> Object<'py> {
        forward(slf, other, ("add", "add"), add)
    }

    fn __rmul__<'py>(slf: &Bound<'py, Self>, other: &Bound<'py, PyAny>) -> Object<'py> {
        forward(slf, other, ("mul", "mul"), mul)
    }

    fn __rand__<'py>(slf: &Bound<'py, Self>, other: &Bound<'py, PyAny>) -> Object<'py> {
        forward(slf, other, ("bitwise_and", "bitwise_and"), bitwise_and)
    }

    fn __ror__<'py>(slf: &Bound<'py, Self>, other: &Bound<'py, PyAny>) -> Object<'py> {
        forward(slf, other, ("bitwise_or", "bitwise_or"), bitwise_or)
    }

    fn __rxor__<'py>(slf: &Bound<'py, Self>, other: &Bound<'py, PyAny>) -> Object<'py> {
        forward(slf, other, ("bitwise_xor", "bitwise_xor"), bitwise_xor)
    }

    fn __rsub__<'py>(slf: &Bound<'py, Self>, other: &Bound<'py, PyAny>) -> Object<'py> {
        forward(slf, other, ("__rsub__", "rsub"), |a, b| binary::rsub(a, b, Scalar::ONE))
    }

    /// `other * (1 / self)`, as PyTorch computes it.
    fn __rtruediv__<'py>(slf: &Bound<'py, Self>, other: &Bound<'py, PyAny>) -> Object<'py> {
        forward(slf, other, ("__rtruediv__", "div"), |a, b| binary::mul(&unary::reciprocal(a)?, b))
    }

    fn __matmul__<'py>(slf: &Bound<'py, Self>, other: &Bound<'py, PyAny>) -> Object<'py> {
        forward(slf, other, ("matmul", "matmul"), matmul)
    }

    fn __rmatmul__<'py>(slf: &Bound<'py, Self>, other: &Bound<'py, PyAny>) -> Object<'py> {
        match other.is_instance_of::<PyTensor>() {
            true => reflected(slf, other, ("__rmatmul__", "matmul"), matmul),
            false => {
                crate::overrides::refuse_pytorch("matmul", other)?;
                not_implemented(slf.py())
            }
        }
    }

    fn __pow__<'py>(slf: &Bound<'py, Self>, other: &Bound<'py, PyAny>, modulo: &Bound<'py, PyAny>) -> Object<'py> {
        refuse_modulo(modulo)?;
        forward(slf, other, ("pow", "pow"), |a, b| binary::pow(a, b))
    }

    fn __rpow__<'py>(slf: &Bound<'py, Self>, other: &Bound<'py, PyAny>, modulo: &Bound<'py, PyAny>) -> Object<'py> {
        refuse_modulo(modulo)?;
        reflected(slf, other, ("__rpow__", "pow"), |a, b| binary::pow(a, b))
    }

    fn __ipow__(slf: &Bound<'_, Self>, other: InplaceOperand<'_, '_>, modulo: &Bound<'_, PyAny>) -> PyResult<()> {
        refuse_modulo(modulo)?;
        in_place(slf, &other.0, ("pow_", "__ipow__"), |a, b| a.pow_(b))
    }

    fn __neg__<'py>(slf: &Bound<'py, Self>) -> Object<'py> {
        alone(slf, "neg", unary::neg)
    }

    fn __pos__<'py>(slf: &Bound<'py, Self>) -> Object<'py> {
        if let Some(answer) = asked(slf, "positive", &[])? {
            return Ok(answer);
        }
        engine_call::quick(slf.py(), || lucid::ops::pointwise::positive(&slf.get().share()).map(drop))?;
        Ok(slf.clone().into_any())
    }

    fn __abs__<'py>(slf: &Bound<'py, Self>) -> Object<'py> {
        alone(slf, "abs", unary::abs)
    }

    fn __invert__<'py>(slf: &Bound<'py, Self>) -> Object<'py> {
        alone(slf, "__invert__", unary::bitwise_not)
    }

    fn __richcmp__<'py>(slf: &Bound<'py, Self>, other: &Bound<'py, PyAny>, op: CompareOp) -> Object<'py> {
        match op {
            CompareOp::Eq => match array(slf, other)? {
                Some(other) => forward(slf, &other, ("__eq__", "eq"), |a, b| compare::eq(a, b)),
                None => forward(slf, other, ("__eq__", "eq"), |a, b| compare::eq(a, b)),
            },
            CompareOp::Ne => forward(slf, other, ("ne", "ne"), |a, b| compare::ne(a, b)),
            CompareOp::Lt => forward(slf, other, ("lt", "lt"), |a, b| compare::lt(a, b)),
            CompareOp::Le => forward(slf, other, ("le", "le"), |a, b| compare::le(a, b)),
            CompareOp::Gt => forward(slf, other, ("gt", "gt"), |a, b| compare::gt(a, b)),
            CompareOp::Ge => forward(slf, other, ("ge", "ge"), |a, b| compare::ge(a, b)),
        }
    }

    fn __contains__(slf: &Bound<'_, Self>, element: &Bound<'_, PyAny>) -> PyResult<bool> {
        let py = slf.py();
        if let Some(answer) = asked(slf, "__contains__", &[element])? {
            return answer.is_truthy();
        }
        let Some(b) = held("__contains__", element)? else {
            let got = crate::args::kind_name(element);
            let why = format!("Tensor.__contains__ only supports Tensor or numbers, not {got}");
            return Err(errors::runtime_error(py, why));
        };
        let a = slf.get().share();
        engine_call::long(py, || compare::eq(&a, b.lend())?.any(None, false)?.item_bool())
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

fn alone<'py>(slf: &Bound<'py, PyTensor>, called: &'static str, op: fn(&Tensor) -> Result<Tensor>) -> Object<'py> {
    if let Some(answer) = asked(slf, called, &[])? {
        return Ok(answer);
    }
    let a = slf.get().read();
    let a: &Tensor = &a;
    let y = engine_call::op(slf.py(), weight_of(a), || op(a))?;
    wrap(slf.py(), y)
}

fn refuse_modulo(modulo: &Bound<'_, PyAny>) -> PyResult<()> {
    match modulo.is_none() {
        true => Ok(()),
        false => Err(errors::type_error(modulo.py(), "pow() with a modulus is not supported for tensors")),
    }
}
