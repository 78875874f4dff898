//! Sparse tensors in Python: `lucid.layout`, `sparse_coo_tensor`, and what a tensor tells of its indices and values.

use crate::args::{ints_of, Arg, At, Flag};
use crate::tensor::{converted, wrap, PyTensor};
use crate::{create, engine_call, errors};
use lucid::{Scalar, Tensor};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

type Object<'py> = PyResult<Bound<'py, PyAny>>;

/// How a tensor's elements are kept: `lucid.strided`, `sparse_coo`, `sparse_csr`, `sparse_csc`, `sparse_bsr` or `jagged`.
#[pyclass(name = "layout", module = "lucid", frozen)]
pub struct PyLayout(&'static str);

#[pymethods]
impl PyLayout {
    fn __repr__(&self) -> String {
        format!("lucid.{}", self.0)
    }

    /// Pickles as the global `lucid.<name>`, so that it stays one object.
    fn __reduce__(&self) -> &'static str {
        self.0
    }
}

/// The names of all layouts. But for the first two they are those of classes in Python: `lucid.sparse_csr`, `lucid.nested`.
const LAYOUTS: [&str; 6] = ["strided", "sparse_coo", "sparse_csr", "jagged", "sparse_csc", "sparse_bsr"];

/// The objects of the layouts, in the order of their names.
fn layouts(py: Python<'_>) -> PyResult<&'static Vec<Py<PyLayout>>> {
    static ALL: PyOnceLock<Vec<Py<PyLayout>>> = PyOnceLock::new();
    ALL.get_or_try_init(py, || LAYOUTS.iter().map(|&name| Py::new(py, PyLayout(name))).collect())
}

/// Refuses what a function that makes dense tensors cannot make. `pin_memory` says nothing here: there is one host memory.
pub fn check_dense(py: Python<'_>, op: &'static str, layout: Arg<'_, '_>, pin_memory: Arg<'_, '_>) -> PyResult<()> {
    let wrong = |arg: &str, kind: &str, got: &Bound<'_, PyAny>| {
        let got = crate::args::kind_name(got);
        Err(errors::type_error(py, format!("{op}(): argument '{arg}' must be {kind}, not {got}")))
    };
    if let Some(layout) = layout.0.filter(|l| !l.is_none()) {
        match layout.cast::<PyLayout>() {
            Ok(given) if given.get().0 == "strided" => {}
            Ok(_) => {
                let why = format!("{op} makes dense tensors; make one and call to_sparse(), or use sparse_coo_tensor");
                return Err(errors::raise(py, &lucid::Error::NotImplemented { op, why: why.into() }));
            }
            Err(_) => return wrong("layout", "lucid.layout", &layout),
        }
    }
    match pin_memory.0.filter(|p| !p.is_none()) {
        Some(pin) if !pin.is_instance_of::<pyo3::types::PyBool>() => wrong("pin_memory", "bool", &pin),
        _ => Ok(()),
    }
}

#[pymethods]
impl PyTensor {
    /// Is it sparse, in COO layout?
    #[getter]
    fn is_sparse(&self) -> bool {
        self.read().is_sparse()
    }

    /// This matrix in CSR layout: `lucid.sparse_csr_tensor` of its elements that are not zero.
    #[doc = lucid::op_doc!(python tensor_to_sparse_csr)]
    #[pyo3(signature = (dense_dim=None))]
    fn to_sparse_csr<'py>(slf: &Bound<'py, Self>, dense_dim: Option<usize>) -> Object<'py> {
        slf.py().import("lucid._sparse_csr")?.getattr("to_sparse_csr")?.call1((slf, dense_dim))
    }

    /// This matrix in CSC layout: `lucid.sparse_csc_tensor` of its elements that are not zero.
    #[doc = lucid::op_doc!(python tensor_to_sparse_csc)]
    #[pyo3(signature = (dense_dim=None))]
    fn to_sparse_csc<'py>(slf: &Bound<'py, Self>, dense_dim: Option<usize>) -> Object<'py> {
        slf.py().import("lucid._sparse_compressed")?.getattr("to_sparse_csc")?.call1((slf, dense_dim))
    }

    /// This matrix in BSR layout: `lucid.sparse_bsr_tensor` of its blocks that are not all zero.
    #[doc = lucid::op_doc!(python tensor_to_sparse_bsr)]
    #[pyo3(signature = (blocksize, dense_dim=None))]
    fn to_sparse_bsr<'py>(
        slf: &Bound<'py, Self>,
        blocksize: &Bound<'py, PyAny>,
        dense_dim: Option<usize>,
    ) -> Object<'py> {
        slf.py().import("lucid._sparse_compressed")?.getattr("to_sparse_bsr")?.call1((slf, blocksize, dense_dim))
    }

    /// Is it sparse, in CSR layout? The class of such tensors says so.
    #[getter]
    fn is_sparse_csr(&self) -> bool {
        false
    }

    /// `lucid.sparse_coo` for a sparse tensor, else `lucid.strided`.
    #[getter(layout)]
    fn layout_of(&self, py: Python<'_>) -> PyResult<&'static Py<PyLayout>> {
        Ok(&layouts(py)?[usize::from(self.read().is_sparse())])
    }

    /// How many dimensions a sparse tensor indexes; 0 for a dense one.
    fn sparse_dim(&self) -> usize {
        self.read().sparse_dim()
    }

    /// How many dimensions are not indexed.
    fn dense_dim(&self) -> usize {
        self.read().dense_dim()
    }

    /// How many indices a sparse tensor has, those that occur twice counted twice.
    fn _nnz(&self, py: Python<'_>) -> PyResult<usize> {
        let t = self.share();
        engine_call::quick(py, || t.nnz())
    }

    /// The indices of a sparse tensor as they are, (sparse_dim, nnz).
    fn _indices<'py>(&self, py: Python<'py>) -> Object<'py> {
        let t = self.share();
        wrap(py, engine_call::quick(py, || t.sparse_indices())?)
    }

    /// The values of a sparse tensor as they are, (nnz, …). Writes to them are seen by the sparse tensor.
    fn _values<'py>(&self, py: Python<'py>) -> Object<'py> {
        let t = self.share();
        wrap(py, engine_call::quick(py, || t.sparse_values())?)
    }

    /// The indices of a coalesced sparse tensor, (sparse_dim, nnz).
    fn indices<'py>(&self, py: Python<'py>) -> Object<'py> {
        self.once(py, "indices")?;
        self._indices(py)
    }

    /// The values of a coalesced sparse tensor, (nnz, …).
    fn values<'py>(&self, py: Python<'py>) -> Object<'py> {
        self.once(py, "values")?;
        self._values(py)
    }

    /// Does a sparse tensor have every index once, in order?
    fn is_coalesced(&self, py: Python<'_>) -> PyResult<bool> {
        let t = self.share();
        engine_call::quick(py, || t.is_coalesced())
    }

    /// The sparse tensor with every index once, in order, its values summed; itself where it is so already. Evaluates.
    fn coalesce<'py>(slf: &Bound<'py, Self>) -> Object<'py> {
        same_or(slf, |t| t.coalesce())
    }

    /// The dense tensor; itself where it is dense.
    fn to_dense<'py>(slf: &Bound<'py, Self>) -> Object<'py> {
        same_or(slf, |t| t.to_dense())
    }

    /// The elements that are not zero as a sparse tensor that indexes the first `sparse_dim` dimensions, all unless said;
    /// itself where it is sparse. Evaluates. A matrix in the compressed layout that `layout` names.
    #[doc = lucid::op_doc!(python tensor_to_sparse)]
    #[pyo3(signature = (sparse_dim=None, *, layout=None, blocksize=None, dense_dim=None))]
    fn to_sparse<'py>(
        slf: &Bound<'py, Self>,
        sparse_dim: Option<i64>,
        layout: Option<&Bound<'py, PyLayout>>,
        blocksize: Option<&Bound<'py, PyAny>>,
        dense_dim: Option<i64>,
    ) -> Object<'py> {
        if let Some(layout) = layout.filter(|l| l.get().0.starts_with("sparse_") && l.get().0 != "sparse_coo") {
            let made = slf.py().import("lucid._sparse_compressed")?.getattr("in_layout")?;
            return made.call1(("to_sparse", slf, layout, blocksize));
        }
        if blocksize.is_some() || dense_dim.is_some() || layout.is_some_and(|l| l.get().0 != "sparse_coo") {
            let why = "to_sparse: lucid.sparse_coo takes no blocksize and no dense_dim; say how many dimensions are \
                       indexed with sparse_dim";
            return Err(errors::runtime_error(slf.py(), why.to_string()));
        }
        let dim = sparse_dim.map(|d| usize::try_from(d).unwrap_or(usize::MAX));
        same_or(slf, move |t| t.to_sparse(dim))
    }

    /// `to_sparse()`.
    fn to_sparse_coo<'py>(slf: &Bound<'py, Self>) -> Object<'py> {
        same_or(slf, |t| t.to_sparse(None))
    }

    /// A sparse tensor of what this dense one has at the indices of `mask`, a sparse tensor of its shape.
    #[doc = lucid::op_doc!(python tensor_sparse_mask)]
    fn sparse_mask<'py>(&self, py: Python<'py>, mask: &Bound<'py, PyTensor>) -> Object<'py> {
        let (t, mask) = (self.share(), mask.get().share());
        wrap(py, engine_call::quick(py, || t.sparse_mask(&mask))?)
    }
}

impl PyTensor {
    fn once(&self, py: Python<'_>, op: &'static str) -> PyResult<()> {
        let t = self.share();
        if !t.is_sparse() {
            let why = format!("{op} expected sparse coordinate tensor layout but got Strided");
            return Err(errors::runtime_error(py, why));
        }
        match self.is_coalesced(py)? {
            true => Ok(()),
            false => Err(errors::runtime_error(
                py,
                format!("Cannot get {op} on an uncoalesced tensor, please call .coalesce() first"),
            )),
        }
    }
}

/// The result as an object: the very same where it is the very same tensor.
fn same_or<'py>(slf: &Bound<'py, PyTensor>, run: impl FnOnce(&Tensor) -> lucid::Result<Tensor> + Send) -> Object<'py> {
    let t = slf.get().share();
    let made = engine_call::op(slf.py(), t.numel(), || run(&t))?;
    match made.is_same(&t) {
        true => Ok(slf.clone().into_any()),
        false => wrap(slf.py(), made),
    }
}

/// A tensor of data, or a tensor as it is, with its history.
fn part(data: &Bound<'_, PyAny>, dtype: Arg<'_, '_>, device: Arg<'_, '_>) -> PyResult<Tensor> {
    let (dtype, device) = create::options("sparse_coo_tensor", dtype, device)?;
    match data.cast::<PyTensor>() {
        Ok(t) => {
            let t = t.get().share();
            Ok(converted(data.py(), &t, dtype, device, false, None)?.unwrap_or(t))
        }
        Err(_) => create::tensor_of(data, dtype, device),
    }
}

/// Sizes, none of them negative.
fn natural(size: &Bound<'_, PyAny>) -> PyResult<Vec<usize>> {
    const AT: At = At { op: "sparse_coo_tensor", arg: "size" };
    let sizes = ints_of(AT, size.as_borrowed(), "tuple of ints")?;
    let negative = |n: isize| {
        errors::runtime_error(
            size.py(),
            format!("sparse_coo_tensor: Trying to create tensor with negative dimension {n}"),
        )
    };
    sizes.into_iter().map(|n| usize::try_from(n).map_err(|_| negative(n))).collect()
}

/// A sparse tensor with `values` (nnz, …) at `indices` (sparse_dim, nnz), and zero elsewhere; values at one index count as
/// their sum. The size is the least that fits unless given. One argument alone is the size of a tensor without indices.
/// Gradients go to the values; the tensor itself is no leaf that may require one. The indices are checked in any case, which
/// evaluates.
#[doc = lucid::op_doc!(python sparse_coo_tensor)]
#[pyfunction]
#[pyo3(signature = (indices, values=None, size=Arg::MISSING, *, dtype=Arg::MISSING, device=Arg::MISSING, requires_grad=Flag::OFF, check_invariants=None, is_coalesced=None, pin_memory=Arg::MISSING))]
#[allow(clippy::too_many_arguments)]
fn sparse_coo_tensor<'py>(
    py: Python<'py>,
    indices: &Bound<'py, PyAny>,
    values: Option<&Bound<'py, PyAny>>,
    size: Arg<'_, 'py>,
    dtype: Arg<'_, 'py>,
    device: Arg<'_, 'py>,
    requires_grad: Flag,
    check_invariants: Option<bool>,
    is_coalesced: Option<bool>,
    pin_memory: Arg<'_, 'py>,
) -> Object<'py> {
    const OP: &str = "sparse_coo_tensor";
    check_dense(py, OP, Arg::MISSING, pin_memory)?;
    let _ = check_invariants;
    let (of_dtype, of_device) = create::options(OP, dtype, device)?;
    let Some(values) = values else {
        let size = natural(indices)?;
        let dtype = of_dtype.unwrap_or(lucid::default_dtype());
        let device = of_device.unwrap_or(lucid::default_device());
        let made = engine_call::quick(py, || {
            let indices = Tensor::full_of(&[size.len(), 0], Scalar::ZERO, lucid::DType::I64, device)?;
            let values = Tensor::full_of(&[0], Scalar::ZERO, dtype, device)?;
            Tensor::sparse_coo(&indices, &values, Some(&size), true)
        })?;
        return crate::results::leaf(py, made, requires_grad.0);
    };
    let values = part(values, dtype, device)?;
    let indices = match indices.cast::<PyTensor>() {
        Ok(t) => t.get().share(),
        Err(_) => create::tensor_of(indices, None, Some(values.device()))?,
    };
    let size = size.0.filter(|s| !s.is_none()).map(|s| natural(&s)).transpose()?;
    let made = engine_call::op(py, values.numel(), || {
        let indices = indices.to_device(values.device())?;
        Tensor::sparse_coo(&indices, &values, size.as_deref(), is_coalesced.unwrap_or(false))
    })?;
    crate::results::leaf(py, made, requires_grad.0)
}

/// Adds the class, its two objects and the function.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<PyLayout>()?;
    for (name, layout) in LAYOUTS.iter().zip(layouts(m.py())?) {
        m.add(*name, layout)?;
    }
    m.add_function(wrap_pyfunction!(sparse_coo_tensor, m)?)
}
