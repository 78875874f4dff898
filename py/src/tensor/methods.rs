//! Methods without a row of their own: filling, new tensors like this one, views like another, `where`.
//! What PyTorch gives several signatures is in `overloads.rs`.

use super::{wrap, PyTensor};
use crate::args::{kinds, optional, weight_of, Arg, At, Flag, HeldOperand, Kind};
use crate::create::options;
use crate::{engine_call, errors, results};
use lucid::{Scalar, Tensor};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

type Object<'py> = PyResult<Bound<'py, PyAny>>;

/// Writes over a tensor, and gives it back.
fn write<'py>(
    slf: &Bound<'py, PyTensor>,
    f: impl FnOnce(&Tensor) -> lucid::Result<()> + Send,
) -> PyResult<Bound<'py, PyTensor>> {
    let t = slf.get().share();
    engine_call::op(slf.py(), weight_of(&t), || t.refuse_captured("in-place").and_then(|()| f(&t)))?;
    Ok(slf.clone())
}

/// Methods that are functions only in PyTorch.
macro_rules! by_function {
    ($($(#[$doc:meta])* $name:ident $function:literal;)*) => {
        #[pymethods]
        impl PyTensor {
            $(
                $(#[$doc])*
                #[pyo3(signature = (*args, **kwargs))]
                fn $name<'py>(slf: &Bound<'py, Self>, args: &Bound<'py, PyTuple>, kwargs: Option<&Bound<'py, PyDict>>) -> Object<'py> {
                    let given: Vec<_> = std::iter::once(slf.clone().into_any()).chain(args.iter()).collect();
                    let function = slf.py().import("lucid._C")?.getattr($function)?;
                    function.call(PyTuple::new(slf.py(), given)?, kwargs)
                }
            )*
        }
    };
}
by_function! {
    /// `lucid.nn.functional.gelu` of the tensor.
    #[doc = lucid::op_doc!(python tensor_gelu)]
    gelu "gelu";
    /// `lucid.nn.functional.relu6` of the tensor.
    relu6 "relu6";
    /// `lucid.nn.functional.softplus` of the tensor.
    #[doc = lucid::op_doc!(python tensor_softplus)]
    softplus "softplus";
    /// `lucid.nn.functional.selu` of the tensor.
    selu "selu";
    /// `lucid.nn.functional.mish` of the tensor.
    mish "mish";
    /// `lucid.nn.functional.hardshrink` of the tensor.
    #[doc = lucid::op_doc!(python tensor_hardshrink)]
    hardshrink "hardshrink";
    /// `lucid.nn.functional.prelu` of the tensor.
    #[doc = lucid::op_doc!(python tensor_prelu)]
    prelu "prelu";
    /// `lucid.nn.functional.hardsigmoid` of the tensor.
    hard_sigmoid "hardsigmoid";
    /// `lucid.nn.functional.hardswish` of the tensor.
    hard_swish "hardswish";
}

/// Writes a number or a tensor over the real or the imaginary part.
fn write_part(
    slf: &Bound<'_, PyTensor>,
    op: &'static str,
    value: Arg<'_, '_>,
    part: fn(&Tensor) -> lucid::Result<Tensor>,
) -> PyResult<()> {
    let value = crate::args::required::<kinds::Operand>(slf.py(), At { op, arg: "value" }, value)?;
    let value = match value {
        HeldOperand::Scalar(s) => lucid::Tensor::full_of(&[], s, lucid::DType::F32, slf.get().share().device()),
        HeldOperand::Tensor(v) => Ok(Tensor::clone(&v)),
    };
    write(slf, move |t| part(t)?.copy_(&value?)).map(drop)
}

pub(super) fn signed(shape: &[usize]) -> Vec<isize> {
    shape.iter().map(|&n| n as isize).collect()
}

fn number(op: &'static str, arg: &'static str, obj: Arg<'_, '_>, default: f64) -> PyResult<f64> {
    optional::<kinds::Float>(At { op, arg }, obj, default)
}

/// Sizes given one by one, as a sequence, or by name.
fn sizes(op: &'static str, args: &Bound<'_, PyTuple>, named: Arg<'_, '_>) -> PyResult<crate::args::Ints> {
    crate::ops::listed(At { op, arg: "size" }, args, named)
}

impl PyTensor {
    fn filled<'py>(
        &self,
        py: Python<'py>,
        op: &'static str,
        size: &[isize],
        value: Scalar,
        (dtype, device): (Arg<'_, '_>, Arg<'_, '_>),
        requires_grad: bool,
    ) -> Object<'py> {
        let (dtype, device) = options(op, dtype, device)?;
        let t = self.share();
        let (dtype, device) = (dtype.unwrap_or(t.dtype()), device.unwrap_or(t.device()));
        let made = engine_call::quick(py, || lucid::ops::create::new_full(&t, size, value, dtype, device))?;
        results::leaf(py, made, requires_grad)
    }
}

#[pymethods]
impl PyTensor {
    /// The real part: a view of a complex tensor, a real tensor itself.
    #[getter]
    fn real<'py>(slf: &Bound<'py, Self>) -> Object<'py> {
        let t = slf.get().share();
        match t.dtype().is_complex() {
            true => {
                let made = wrap(slf.py(), engine_call::quick(slf.py(), || lucid::ops::complex::real(&t))?)?;
                Ok(results::made_of(slf, &t, made))
            }
            false => Ok(slf.clone().into_any()),
        }
    }

    #[setter(real)]
    fn set_real(slf: &Bound<'_, Self>, value: Arg<'_, '_>) -> PyResult<()> {
        write_part(slf, "real", value, lucid::ops::complex::real)
    }

    /// The imaginary part of a complex tensor, a view.
    #[getter]
    fn imag<'py>(slf: &Bound<'py, Self>) -> Object<'py> {
        let t = slf.get().share();
        let made = wrap(slf.py(), engine_call::quick(slf.py(), || lucid::ops::complex::imag(&t))?)?;
        Ok(results::made_of(slf, &t, made))
    }

    #[setter(imag)]
    fn set_imag(slf: &Bound<'_, Self>, value: Arg<'_, '_>) -> PyResult<()> {
        write_part(slf, "imag", value, lucid::ops::complex::imag)
    }

    /// The derivative of order `n` of `digamma`.
    #[doc = lucid::op_doc!(python tensor_polygamma)]
    fn polygamma<'py>(slf: &Bound<'py, Self>, n: Arg<'_, 'py>) -> Object<'py> {
        let n = crate::args::required::<kinds::Int>(slf.py(), At { op: "polygamma", arg: "n" }, n)?;
        let t = slf.get().share();
        wrap(slf.py(), engine_call::op(slf.py(), weight_of(&t), || lucid::ops::pointwise::polygamma(n, &t))?)
    }

    /// In-place form of `polygamma`.
    #[doc = lucid::op_doc!(python tensor_polygamma_)]
    fn polygamma_<'py>(slf: &Bound<'py, Self>, n: Arg<'_, 'py>) -> PyResult<Bound<'py, Self>> {
        let n = crate::args::required::<kinds::Int>(slf.py(), At { op: "polygamma_", arg: "n" }, n)?;
        write(slf, move |t| t.polygamma_(n))
    }

    /// Is the only element anything but zero? Evaluates.
    fn is_nonzero(&self, py: Python<'_>) -> PyResult<bool> {
        let t = self.share();
        if t.numel() != 1 {
            let kind = if t.numel() == 0 { "no values" } else { "more than one value" };
            return Err(errors::runtime_error(py, format!("Boolean value of Tensor with {kind} is ambiguous")));
        }
        engine_call::long(py, || t.item_bool())
    }

    /// Is it in memory that a GPU reads directly? Never: no device here copies from such memory.
    fn is_pinned(&self) -> bool {
        false
    }

    /// The tensor itself: there is no page-locked memory to move it to, and transfers do not need any.
    #[doc = lucid::op_doc!(python tensor_pin_memory)]
    #[pyo3(signature = (device=None))]
    fn pin_memory<'py>(slf: &Bound<'py, Self>, device: Option<&Bound<'py, PyAny>>) -> PyResult<Bound<'py, Self>> {
        let _ = device;
        if slf.get().read().device() != lucid::Device::Cpu {
            return Err(errors::runtime_error(slf.py(), "cannot pin a tensor that is not on the cpu"));
        }
        Ok(slf.clone())
    }

    /// Writes `function(element)` over each element. Slow: a Python call each. CPU only, as in PyTorch.
    #[doc = lucid::op_doc!(python tensor_apply_)]
    fn apply_<'py>(slf: &Bound<'py, Self>, function: &Bound<'py, PyAny>) -> PyResult<Bound<'py, Self>> {
        call_each(slf, "apply_", function, &[])
    }

    /// Writes `function(element, element of other)` over each element. Slow: a Python call each. CPU only, as in PyTorch.
    #[doc = lucid::op_doc!(python tensor_map_)]
    fn map_<'py>(
        slf: &Bound<'py, Self>,
        other: &Bound<'py, PyTensor>,
        function: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, Self>> {
        call_each(slf, "map_", function, &[other])
    }

    /// Writes `function(element, element of x, element of y)` over each element. Slow: a Python call each. CPU only.
    #[doc = lucid::op_doc!(python tensor_map2_)]
    fn map2_<'py>(
        slf: &Bound<'py, Self>,
        x: &Bound<'py, PyTensor>,
        y: &Bound<'py, PyTensor>,
        function: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, Self>> {
        call_each(slf, "map2_", function, &[x, y])
    }

    /// The tensor as an instance of a subclass of `Tensor`: the same memory, still attached to the tape.
    fn as_subclass<'py>(slf: &Bound<'py, Self>, cls: &Bound<'py, pyo3::types::PyType>) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        if !cls.is_subclass_of::<PyTensor>()? {
            let why = "Creating a Tensor subclass from a class that does not inherit from Tensor is not possible.";
            return Err(errors::type_error(py, why));
        }
        subclassed(slf, cls)
    }

    /// What `load_state_dict` puts in place of this parameter or buffer for `other`: this tensor with `other`'s elements, or with
    /// `assign` `other` itself; cut off from the tape.
    #[doc = lucid::op_doc!(python tensor_module_load)]
    #[pyo3(signature = (other, assign=false))]
    fn module_load<'py>(
        slf: &Bound<'py, Self>,
        other: &Bound<'py, PyTensor>,
        assign: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        match assign {
            true => other.call_method0("detach"),
            false => slf.call_method1("copy_", (other,))?.call_method0("detach"),
        }
    }

    /// Writes `other`, which is broadcast, cast and moved, over the elements. A number is written to all of them.
    #[doc = lucid::op_doc!(python tensor_copy_)]
    #[pyo3(signature = (other, non_blocking=false))]
    fn copy_<'py>(slf: &Bound<'py, Self>, other: Arg<'_, 'py>, non_blocking: bool) -> PyResult<Bound<'py, Self>> {
        let _ = non_blocking;
        let t = slf.get().share();
        let src = match crate::args::required::<kinds::Operand>(slf.py(), At { op: "copy_", arg: "other" }, other)? {
            HeldOperand::Tensor(src) => Tensor::clone(&src),
            HeldOperand::Scalar(s) => {
                let made = || lucid::ops::create::full((), s, Some(t.dtype()), Some(t.device()));
                engine_call::quick(slf.py(), made)?
            }
        };
        let weight = if src.device() == t.device() { weight_of(&t) } else { engine_call::LARGE };
        engine_call::op(slf.py(), weight, || t.refuse_captured("copy_").and_then(|()| t.copy_(&src)))?;
        Ok(slf.clone())
    }

    /// Writes one number over the elements.
    #[doc = lucid::op_doc!(python tensor_fill_)]
    fn fill_<'py>(slf: &Bound<'py, Self>, value: Arg<'_, 'py>) -> PyResult<Bound<'py, Self>> {
        let at = At { op: "fill_", arg: "value" };
        match crate::args::required::<kinds::Operand>(slf.py(), at, value)? {
            HeldOperand::Scalar(s) => write(slf, move |t| t.fill_(s)),
            HeldOperand::Tensor(v) => {
                let v = Tensor::clone(&v);
                write(slf, move |t| t.fill_with(&v))
            }
        }
    }

    /// Writes zeros over the elements. A sparse tensor is left with no indices.
    fn zero_<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, Self>> {
        write(slf, |t| t.zero_())
    }

    /// Fills with uniform numbers from `from` to `to`.
    #[doc = lucid::op_doc!(python tensor_uniform_)]
    #[pyo3(signature = (from=Arg::MISSING, to=Arg::MISSING, *, generator=Arg::MISSING))]
    fn uniform_<'py>(
        slf: &Bound<'py, Self>,
        from: Arg<'_, 'py>,
        to: Arg<'_, 'py>,
        generator: Arg<'_, 'py>,
    ) -> PyResult<Bound<'py, Self>> {
        let (from, to) = (number("uniform_", "from", from, 0.0)?, number("uniform_", "to", to, 1.0)?);
        let generator = optional::<kinds::OptGenerator>(At { op: "uniform_", arg: "generator" }, generator, None)?;
        write(slf, move |t| t.uniform_(from, to, generator.as_ref()))
    }

    /// Fills with normal numbers.
    #[doc = lucid::op_doc!(python tensor_normal_)]
    #[pyo3(signature = (mean=Arg::MISSING, std=Arg::MISSING, *, generator=Arg::MISSING))]
    fn normal_<'py>(
        slf: &Bound<'py, Self>,
        mean: Arg<'_, 'py>,
        std: Arg<'_, 'py>,
        generator: Arg<'_, 'py>,
    ) -> PyResult<Bound<'py, Self>> {
        let (mean, std) = (number("normal_", "mean", mean, 0.0)?, number("normal_", "std", std, 1.0)?);
        let generator = optional::<kinds::OptGenerator>(At { op: "normal_", arg: "generator" }, generator, None)?;
        write(slf, move |t| t.normal_(mean, std, generator.as_ref()))
    }

    /// Zeros of the given sizes, by default in this tensor's dtype and on its device.
    #[doc = lucid::op_doc!(python tensor_new_filled)]
    #[pyo3(signature = (*args, size=Arg::MISSING, dtype=Arg::MISSING, device=Arg::MISSING, layout=Arg::MISSING, pin_memory=Arg::MISSING, requires_grad=Flag::OFF))]
    #[allow(clippy::too_many_arguments)]
    fn new_zeros<'py>(
        &self,
        py: Python<'py>,
        args: &Bound<'py, PyTuple>,
        size: Arg<'_, 'py>,
        dtype: Arg<'_, 'py>,
        device: Arg<'_, 'py>,
        layout: Arg<'_, 'py>,
        pin_memory: Arg<'_, 'py>,
        requires_grad: Flag,
    ) -> Object<'py> {
        crate::sparse::check_dense(py, "new_zeros", layout, pin_memory)?;
        self.filled(py, "new_zeros", &sizes("new_zeros", args, size)?, Scalar::ZERO, (dtype, device), requires_grad.0)
    }

    /// Ones of the given sizes, by default in this tensor's dtype and on its device.
    #[doc = lucid::op_doc!(python tensor_new_filled)]
    #[pyo3(signature = (*args, size=Arg::MISSING, dtype=Arg::MISSING, device=Arg::MISSING, layout=Arg::MISSING, pin_memory=Arg::MISSING, requires_grad=Flag::OFF))]
    #[allow(clippy::too_many_arguments)]
    fn new_ones<'py>(
        &self,
        py: Python<'py>,
        args: &Bound<'py, PyTuple>,
        size: Arg<'_, 'py>,
        dtype: Arg<'_, 'py>,
        device: Arg<'_, 'py>,
        layout: Arg<'_, 'py>,
        pin_memory: Arg<'_, 'py>,
        requires_grad: Flag,
    ) -> Object<'py> {
        crate::sparse::check_dense(py, "new_ones", layout, pin_memory)?;
        self.filled(py, "new_ones", &sizes("new_ones", args, size)?, Scalar::ONE, (dtype, device), requires_grad.0)
    }

    /// A tensor of the given sizes, by default in this tensor's dtype and on its device. Its elements are zeros.
    #[doc = lucid::op_doc!(python tensor_new_filled)]
    #[pyo3(signature = (*args, size=Arg::MISSING, dtype=Arg::MISSING, device=Arg::MISSING, layout=Arg::MISSING, pin_memory=Arg::MISSING, requires_grad=Flag::OFF))]
    #[allow(clippy::too_many_arguments)]
    fn new_empty<'py>(
        &self,
        py: Python<'py>,
        args: &Bound<'py, PyTuple>,
        size: Arg<'_, 'py>,
        dtype: Arg<'_, 'py>,
        device: Arg<'_, 'py>,
        layout: Arg<'_, 'py>,
        pin_memory: Arg<'_, 'py>,
        requires_grad: Flag,
    ) -> Object<'py> {
        crate::sparse::check_dense(py, "new_empty", layout, pin_memory)?;
        self.filled(py, "new_empty", &sizes("new_empty", args, size)?, Scalar::ZERO, (dtype, device), requires_grad.0)
    }

    /// One number in the given sizes, by default in this tensor's dtype and on its device.
    #[doc = lucid::op_doc!(python tensor_new_full)]
    #[pyo3(signature = (size, fill_value, *, dtype=Arg::MISSING, device=Arg::MISSING, layout=Arg::MISSING, pin_memory=Arg::MISSING, requires_grad=Flag::OFF))]
    #[allow(clippy::too_many_arguments)]
    fn new_full<'py>(
        &self,
        py: Python<'py>,
        size: Arg<'_, 'py>,
        fill_value: Arg<'_, 'py>,
        dtype: Arg<'_, 'py>,
        device: Arg<'_, 'py>,
        layout: Arg<'_, 'py>,
        pin_memory: Arg<'_, 'py>,
        requires_grad: Flag,
    ) -> Object<'py> {
        crate::sparse::check_dense(py, "new_full", layout, pin_memory)?;
        let op = "new_full";
        let size = crate::args::required::<kinds::Sizes>(py, At { op, arg: "size" }, size)?;
        let value = crate::args::required::<kinds::Number>(py, At { op, arg: "fill_value" }, fill_value)?;
        self.filled(py, op, &size, value, (dtype, device), requires_grad.0)
    }

    /// A tensor of `data`, by default in this tensor's dtype and on its device.
    #[doc = lucid::op_doc!(python tensor_new_tensor)]
    #[pyo3(signature = (data, *, dtype=Arg::MISSING, device=Arg::MISSING, requires_grad=false))]
    fn new_tensor<'py>(
        &self,
        data: &Bound<'py, PyAny>,
        dtype: Arg<'_, 'py>,
        device: Arg<'_, 'py>,
        requires_grad: bool,
    ) -> Object<'py> {
        let (dtype, device) = options("new_tensor", dtype, device)?;
        crate::create::warn_of_copy(data, "tensor.new_tensor")?;
        let (own_dtype, own_device) = {
            let t = self.read();
            (t.dtype(), t.device())
        };
        let made = crate::create::tensor_of(data, dtype.or(Some(own_dtype)), device.or(Some(own_device)))?;
        results::leaf(data.py(), made, requires_grad)
    }

    /// The same elements under other sizes, an error where a copy would be needed; or, with a dtype, the same bytes as
    /// elements of that dtype (`view_dtype`).
    #[doc = lucid::op_doc!(python tensor_view)]
    #[pyo3(signature = (*args, size=Arg::MISSING, shape=Arg::MISSING, dtype=Arg::MISSING))]
    fn _view<'py>(
        slf: &Bound<'py, Self>,
        args: &Bound<'py, PyTuple>,
        size: Arg<'_, 'py>,
        shape: Arg<'_, 'py>,
        dtype: Arg<'_, 'py>,
    ) -> Object<'py> {
        let (py, op) = (slf.py(), "view");
        let alone = if args.len() == 1 { Some(args.get_item(0)?) } else { None };
        let by_place = alone.as_ref().filter(|a| crate::dtype::dtype_of(a).is_some());
        if by_place.is_some() || dtype.0.is_some() {
            let others = args.len() > usize::from(by_place.is_some()) || size.0.is_some() || shape.0.is_some();
            if others || by_place.is_some() && dtype.0.is_some() {
                return Err(errors::type_error(py, "view(): takes sizes or a dtype, not both"));
            }
            let given = by_place.map_or(dtype, |d| Arg(Some(d.as_borrowed())));
            let dtype = crate::args::required::<kinds::Dtype>(py, At { op, arg: "dtype" }, given)?;
            let t = slf.get().share();
            return Ok(results::made_of(slf, &t, wrap(py, engine_call::long(py, || t.view_dtype(dtype))?)?));
        }
        let at = At { op, arg: "size" };
        let size = crate::ops::listed(at, args, at.either(py, size, shape)?)?;
        let t = slf.get().read();
        let made = engine_call::quick(py, || t.view(&size))?;
        results::same_or(slf, &t, made, |made| wrap(py, made))
    }

    /// `view` with the other's sizes.
    #[doc = lucid::op_doc!(python tensor_like)]
    fn view_as<'py>(slf: &Bound<'py, Self>, py: Python<'py>, other: &Bound<'py, PyTensor>) -> Object<'py> {
        let sizes = signed(other.get().read().shape());
        let t = slf.get().read();
        Ok(results::made_of(slf, &t, wrap(py, engine_call::quick(py, || t.view(&sizes))?)?))
    }

    /// `reshape` with the other's sizes.
    #[doc = lucid::op_doc!(python tensor_like)]
    fn reshape_as<'py>(slf: &Bound<'py, Self>, py: Python<'py>, other: &Bound<'py, PyTensor>) -> Object<'py> {
        let sizes = signed(other.get().read().shape());
        let t = slf.get().read();
        Ok(results::made_of(slf, &t, wrap(py, engine_call::quick(py, || t.reshape(&sizes))?)?))
    }

    /// Dimensions of size 1 repeated to the given sizes (-1 keeps one), and new leading dimensions: a view. `implicit` says
    /// nothing, as in PyTorch.
    #[doc = lucid::op_doc!(python tensor_expand)]
    #[pyo3(signature = (*args, size=Arg::MISSING, implicit=Arg::MISSING))]
    fn expand<'py>(
        slf: &Bound<'py, Self>,
        args: &Bound<'py, PyTuple>,
        size: Arg<'_, 'py>,
        implicit: Arg<'_, 'py>,
    ) -> Object<'py> {
        const OP: &str = "expand";
        let size = crate::ops::listed(At { op: OP, arg: "size" }, args, size)?;
        crate::args::optional::<kinds::Bool>(At { op: OP, arg: "implicit" }, implicit, false)?;
        let t = slf.get().read();
        let made = engine_call::quick(slf.py(), || t.expand(&size))?;
        results::same_or(slf, &t, made, |made| wrap(slf.py(), made))
    }

    /// `expand` with the other's sizes.
    #[doc = lucid::op_doc!(python tensor_like)]
    fn expand_as<'py>(slf: &Bound<'py, Self>, py: Python<'py>, other: &Bound<'py, PyTensor>) -> Object<'py> {
        let sizes = signed(other.get().read().shape());
        let t = slf.get().read();
        Ok(results::made_of(slf, &t, wrap(py, engine_call::quick(py, || t.expand(&sizes))?)?))
    }

    /// All elements in one dimension: a view where the strides allow it, else a copy.
    fn ravel<'py>(slf: &Bound<'py, Self>, py: Python<'py>) -> Object<'py> {
        let t = slf.get().share();
        let rows = engine_call::op(py, weight_of(&t), || t.contiguous())?;
        // A view, also of a copy that nobody has, as in PyTorch.
        rows.mark_handed_out();
        Ok(results::made_of(slf, &t, wrap(py, engine_call::quick(py, || rows.view(&[-1]))?)?))
    }

    /// This tensor's elements where `condition` holds, those of `other` elsewhere.
    #[doc = lucid::op_doc!(python tensor_where)]
    fn r#where<'py>(&self, py: Python<'py>, condition: Arg<'_, 'py>, other: Arg<'_, 'py>) -> Object<'py> {
        let condition = crate::args::required::<kinds::Tensor>(py, At { op: "where", arg: "condition" }, condition)?;
        let other = crate::args::required::<kinds::Operand>(py, At { op: "where", arg: "other" }, other)?;
        let t = self.share();
        let condition = kinds::Tensor::lend(&condition);
        wrap(
            py,
            engine_call::op(py, weight_of(&t), || lucid::ops::compare::select::r#where(condition, &t, other.lend()))?,
        )
    }
}

/// An instance of a subclass of `Tensor` for a tensor: a view of all of it, so that both may be written to and the tape goes
/// through, as PyTorch's alias is one. A sparse tensor, which has no views, gives the same tensor.
pub fn subclassed<'py>(
    t: &Bound<'py, PyTensor>,
    class: &Bound<'py, pyo3::types::PyType>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = t.py();
    let made = py.get_type::<PyTensor>().call_method1("__new__", (class,))?;
    let own = t.get().share();
    let same = match own.is_sparse() {
        true => own.clone(),
        false => engine_call::quick(py, || own.view(&signed(own.shape())))?,
    };
    let object = made.cast::<PyTensor>()?.get();
    object.replace(py, same);
    object.made_of(t, &own);
    Ok(made)
}

/// Where in the storage each element is, in row-major order.
fn places_of(t: &Tensor) -> Vec<usize> {
    let mut places = vec![t.storage_offset()];
    for (&size, &stride) in t.shape().iter().zip(t.strides()) {
        places = places.iter().flat_map(|p| (0..size).map(move |i| p + i * stride)).collect();
    }
    places
}

/// Writes what a Python function makes of the elements, and those of other tensors of the same dtype.
fn call_each<'py>(
    slf: &Bound<'py, PyTensor>,
    op: &'static str,
    function: &Bound<'py, PyAny>,
    others: &[&Bound<'py, PyTensor>],
) -> PyResult<Bound<'py, PyTensor>> {
    let py = slf.py();
    let t = slf.get().share();
    let others: Vec<Tensor> = others.iter().map(|o| o.get().share()).collect();
    if std::iter::once(&t).chain(&others).any(|t| t.device() != lucid::Device::Cpu) {
        return Err(errors::type_error(py, format!("{op} is only implemented on CPU tensors")));
    }
    if std::iter::once(&t).chain(&others).any(Tensor::requires_grad) {
        return Err(errors::runtime_error(py, format!("Can't call {op}() on Variable that requires grad.")));
    }
    if let Some(odd) = others.iter().find(|o| o.dtype() != t.dtype()) {
        let why = format!("{op}: expected tensors of {}, got {}", t.dtype(), odd.dtype());
        return Err(errors::type_error(py, why));
    }
    let number = |made: Bound<'py, PyAny>| match made.is_none() {
        true => Err(errors::type_error(py, format!("{op}: the function must return a number, not None"))),
        false => Ok(made),
    };
    let flat = |t: &Tensor| -> PyResult<Bound<'py, PyAny>> {
        let t = engine_call::quick(py, || t.expand(&signed(slf.get().read().shape()))?.reshape(&[-1]))?;
        wrap(py, t)?.call_method0("tolist")
    };
    let columns = std::iter::once(&t).chain(&others).map(flat).collect::<PyResult<Vec<_>>>()?;
    let lists = columns.iter().map(|c| c.extract::<Vec<Py<PyAny>>>()).collect::<PyResult<Vec<_>>>()?;
    let as_tensor = |made: &Bound<'py, PyAny>| crate::create::tensor_of(made, Some(t.dtype()), Some(t.device()));
    let places = places_of(&t);
    if places.iter().collect::<std::collections::HashSet<_>>().len() < places.len() {
        // Elements that meet in memory: each call sees what the last one wrote there.
        let whole = engine_call::quick(py, || t.detach()?.as_strided(&[t.storage_numel() as isize], &[1], Some(0)))?;
        for (i, place) in places.into_iter().enumerate() {
            let cell = engine_call::quick(py, || whole.narrow(0, place as i64, 1)?.reshape(()))?;
            let own = wrap(py, cell.clone())?.call_method0("item")?;
            let others = lists[1..].iter().map(|list| list[i].bind(py).clone());
            let row: Vec<Bound<'py, PyAny>> = std::iter::once(own).chain(others).collect();
            let row = pyo3::types::PyTuple::new(py, row)?;
            let value = as_tensor(&number(function.call1(row)?)?)?;
            engine_call::quick(py, || cell.copy_(&value))?;
        }
        return Ok(slf.clone());
    }
    let call = |i: usize| {
        let row = lists.iter().map(|list| list[i].bind(py));
        number(function.call1(pyo3::types::PyTuple::new(py, row)?)?)
    };
    let made: Vec<Bound<'py, PyAny>> = (0..t.numel()).map(call).collect::<PyResult<_>>()?;
    let list = pyo3::types::PyList::new(py, made)?;
    let values = as_tensor(list.as_any())?;
    engine_call::quick(py, || t.copy_(&values.reshape(&signed(t.shape()))?))?;
    Ok(slf.clone())
}
