//! A tensor's transposes: `T`, `mT`, `H` and `mH`, with PyTorch's warnings where they are no matrices'.

use super::{wrap, PyTensor};
use crate::{engine_call, errors, results, warn};
use pyo3::prelude::*;
use std::sync::atomic::AtomicBool;

type Object<'py> = PyResult<Bound<'py, PyAny>>;

#[pymethods]
impl PyTensor {
    /// The dimensions in reverse order.
    #[getter]
    #[allow(non_snake_case)]
    fn T<'py>(slf: &Bound<'py, Self>, py: Python<'py>) -> Object<'py> {
        static SCALAR: AtomicBool = AtomicBool::new(false);
        static OTHER: AtomicBool = AtomicBool::new(false);
        let t = slf.get().read();
        match t.ndim() {
            0 => warn::once(py, &SCALAR, "Tensor.T is deprecated on 0-D tensors, where it is the identity.")?,
            2 => {}
            _ => {
                let why = "The use of `x.T` on tensors of dimension other than 2 is deprecated. Use `x.mT` to \
                    transpose batches of matrices, or `x.permute(*range(x.ndim)[::-1])` to reverse the dimensions.";
                warn::once(py, &OTHER, why)?;
            }
        }
        let dims: Vec<isize> = (0..t.ndim() as isize).rev().collect();
        Ok(results::made_of(slf, &t, wrap(py, engine_call::quick(py, || t.permute(&dims))?)?))
    }

    /// The last two dimensions exchanged.
    #[getter]
    #[allow(non_snake_case)]
    fn mT<'py>(slf: &Bound<'py, Self>, py: Python<'py>) -> Object<'py> {
        static SCALAR: AtomicBool = AtomicBool::new(false);
        let t = slf.get().read();
        if t.ndim() == 0 {
            warn::once(py, &SCALAR, "Tensor.mT is deprecated on 0-D tensors, where it is the identity.")?;
            return Ok(slf.clone().into_any());
        }
        if t.ndim() < 2 {
            let why =
                format!("tensor.mT is only supported on matrices or batches of matrices. Got {}-D tensor.", t.ndim());
            return Err(errors::runtime_error(py, why));
        }
        Ok(results::made_of(slf, &t, wrap(py, engine_call::quick(py, || t.transpose(-2, -1))?)?))
    }

    /// The conjugate transpose of a matrix.
    #[getter]
    #[allow(non_snake_case)]
    fn H<'py>(slf: &Bound<'py, Self>, py: Python<'py>) -> Object<'py> {
        let t = slf.get().read();
        if !matches!(t.ndim(), 0 | 2) {
            let why = format!("tensor.H is only supported on matrices (2-D tensors). Got {}-D tensor.", t.ndim());
            return Err(errors::runtime_error(py, why));
        }
        if t.ndim() == 0 {
            static SCALAR: AtomicBool = AtomicBool::new(false);
            warn::once(py, &SCALAR, "Tensor.H is deprecated on 0-D tensors. Consider using x.conj().")?;
            if !t.dtype().is_complex() {
                return Ok(slf.clone().into_any());
            }
        }
        wrap(py, engine_call::quick(py, || t.t()?.conj_physical())?)
    }

    /// The conjugate transpose of matrices: the last two dimensions exchanged.
    #[getter]
    #[allow(non_snake_case)]
    fn mH<'py>(slf: &Bound<'py, Self>, py: Python<'py>) -> Object<'py> {
        let t = slf.get().read();
        if t.ndim() == 0 {
            static SCALAR: AtomicBool = AtomicBool::new(false);
            warn::once(py, &SCALAR, "Tensor.mH is deprecated on 0-D tensors. Consider using x.conj().")?;
            if !t.dtype().is_complex() {
                return Ok(slf.clone().into_any());
            }
            return Ok(results::made_of(slf, &t, wrap(py, engine_call::quick(py, || t.conj_physical())?)?));
        }
        Ok(results::made_of(slf, &t, wrap(py, engine_call::quick(py, || t.adjoint())?)?))
    }
}
