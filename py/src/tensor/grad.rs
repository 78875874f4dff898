//! A tensor's place on the tape: `requires_grad`, `grad`, `backward`, hooks, and what cuts a tensor off.

use super::{asks_for_grad, object_of, wrap, PyTensor};
use crate::args::{tensors_of, At};
use crate::autograd::{grads_of, hook_of, leaf_hook_of, node_object};
use crate::{engine_call, errors};
use lucid::autograd::BackwardOptions;
use lucid::Tensor;
use pyo3::prelude::*;

#[pymethods]
impl PyTensor {
    /// Is a gradient recorded for what is computed from this tensor?
    #[getter]
    fn requires_grad(&self) -> bool {
        self.read().requires_grad()
    }

    #[setter]
    fn set_requires_grad(slf: &Bound<'_, Self>, value: &Bound<'_, PyAny>) -> PyResult<()> {
        match value.extract() {
            Ok(value) => asks_for_grad(slf, value),
            Err(_) => Err(errors::runtime_error(slf.py(), "requires_grad must be a bool")),
        }
    }

    /// Says whether gradients are wanted for this leaf, and gives it back.
    #[doc = lucid::op_doc!(python tensor_requires_grad_)]
    #[pyo3(signature = (requires_grad=true))]
    fn requires_grad_<'py>(slf: &Bound<'py, Self>, requires_grad: bool) -> PyResult<Bound<'py, Self>> {
        engine_call::quick(slf.py(), || {
            lucid::autograd::check_untransformed("requires_grad_", "Tensor.requires_grad_()")
        })?;
        asks_for_grad(slf, requires_grad)?;
        Ok(slf.clone())
    }

    /// Was it made by the user, rather than recorded on the tape?
    #[getter]
    fn is_leaf(&self, py: Python<'_>) -> PyResult<bool> {
        engine_call::quick(py, || self.read().check_followed())?;
        let own = self.read();
        Ok(own.is_leaf() || own.is_input())
    }

    /// The gradient that backward passes have summed up, or `None`. The same object each time, until it is another tensor.
    /// Warns where none will come: of what is no leaf, unless `retain_grad()` was called.
    #[getter]
    fn grad<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTensor>>> {
        let Some(g) = self.read().grad() else {
            self.keep_grad(None);
            let none_comes = {
                let x = self.read();
                x.requires_grad() && !x.is_leaf() && !x.retains_grad()
            };
            if none_comes {
                let why = "The .grad attribute of a Tensor that is not a leaf Tensor is being accessed. Its .grad attribute \
                    won't be populated during autograd.backward(). If you indeed want the .grad field to be populated for a \
                    non-leaf Tensor, use .retain_grad() on the non-leaf Tensor. If you access the non-leaf Tensor by \
                    mistake, make sure you access the leaf Tensor instead.";
                crate::warn::user(py, why)?;
            }
            return Ok(None);
        };
        let kept = self.others.lock().grad.as_ref().map(|kept| kept.clone_ref(py));
        if let Some(kept) = kept.filter(|kept| kept.get().read().is_same(&g)) {
            return Ok(Some(kept.into_bound(py)));
        }
        g.mark_handed_out();
        let made = Bound::new(py, PyTensor::same(g))?;
        self.keep_grad(Some(made.clone().unbind()));
        Ok(Some(made))
    }

    #[setter]
    fn set_grad(&self, py: Python<'_>, value: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        let grad = match value {
            None => None,
            Some(v) => match v.cast::<PyTensor>() {
                Ok(g) => Some(g.get().share()),
                Err(_) => {
                    let got = crate::args::kind_name(v);
                    return Err(errors::type_error(
                        py,
                        format!("assigned grad expected to be a Tensor or None but got {got}"),
                    ));
                }
            },
        };
        let t = self.share();
        if grad.as_ref().is_some_and(|g| g.is_same(&t)) {
            return Err(errors::runtime_error(py, "can't assign Variable as its own grad"));
        }
        engine_call::quick(py, || t.set_grad(grad))?;
        self.keep_grad(value.and_then(|v| v.cast::<PyTensor>().ok()).map(|v| v.clone().unbind()));
        Ok(())
    }

    #[deleter]
    fn delete_grad(&self, py: Python<'_>) -> PyResult<()> {
        self.set_grad(py, None)
    }

    /// The node of the graph that made it; `None` for a leaf.
    #[getter]
    fn grad_fn<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        engine_call::quick(py, || self.read().check_followed())?;
        let node = self.read().grad_fn();
        node.map(|n| node_object(py, n)).transpose()
    }

    /// The name of the op that made it, as PyTorch shows it; `None` for a leaf.
    #[getter]
    fn _grad_fn_name(&self) -> Option<String> {
        let t = self.read();
        match t.check_followed() {
            Ok(()) => t.grad_fn().map(|n| n.name().into_owned()),
            Err(_) => Some("Invalid".into()),
        }
    }

    /// The node that its gradient goes to and which result of it this is; `None` where it needs no gradient.
    fn _gradient_edge<'py>(&self, py: Python<'py>) -> PyResult<Option<(Bound<'py, PyAny>, u32)>> {
        engine_call::quick(py, || self.read().check_followed())?;
        let edge = self.read().gradient_edge();
        edge.map(|(n, nr)| Ok((node_object(py, n)?, nr))).transpose()
    }

    /// Which result of its node it is.
    #[getter]
    fn output_nr(&self) -> u32 {
        self.read().output_nr()
    }

    /// Is its gradient kept though it is not a leaf?
    #[getter]
    fn retains_grad(&self) -> bool {
        self.read().retains_grad()
    }

    /// Was it made in inference mode? Such tensors cannot be saved for a gradient.
    fn is_inference(&self) -> bool {
        self.read().is_inference()
    }

    /// Is it a view of another tensor?
    fn _is_view(&self) -> bool {
        self.read().is_view()
    }

    /// The tensor that it is a view of, or `None`: the object that the view was taken of.
    #[getter]
    fn _base<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let Some(base) = self.read().view_base() else { return Ok(None) };
        let kept = self.others.lock().base.as_ref().map(|kept| kept.clone_ref(py));
        if let Some(kept) = kept.filter(|kept| kept.get().read().is_same(&base)) {
            return Ok(Some(kept.into_bound(py).into_any()));
        }
        let object = object_of(py, base)?;
        self.keep_base(object.cast::<PyTensor>()?.clone().unbind());
        Ok(Some(object))
    }

    /// Raises the version, as if the elements had been written.
    fn _touch(&self) {
        self.read().touch();
    }

    /// Adds the gradients of this tensor to the leaves it was computed from, or to `inputs` alone.
    #[doc = lucid::op_doc!(python tensor_backward)]
    #[pyo3(signature = (gradient=None, retain_graph=None, create_graph=false, inputs=None))]
    fn backward(
        slf: &Bound<'_, Self>,
        py: Python<'_>,
        gradient: Option<&Bound<'_, PyAny>>,
        retain_graph: Option<bool>,
        create_graph: bool,
        inputs: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        engine_call::quick(py, || lucid::autograd::check_untransformed("backward", "backward()"))?;
        let keep = BackwardOptions { graph: retain_graph.unwrap_or(create_graph), create_graph };
        let grads = grads_of(py, "backward", gradient, 1)?;
        let inputs = match inputs {
            None => None,
            Some(t) => match t.cast::<PyTensor>() {
                Ok(t) => Some(vec![t.get().share()]),
                Err(_) => match tensors_of(At { op: "backward", arg: "inputs" }, t.as_borrowed()) {
                    Ok(list) => Some(list),
                    // Edges of the graph stand for tensors, too.
                    Err(_) => {
                        let general = py.import("lucid.autograd")?.getattr("backward")?;
                        return general.call1((slf, gradient, retain_graph, create_graph, py.None(), t)).map(drop);
                    }
                },
            },
        };
        if inputs.as_ref().is_some_and(Vec::is_empty) {
            return Err(errors::runtime_error(py, "'inputs' argument to backward() cannot be empty"));
        }
        let t = slf.get().share();
        engine_call::long(py, || lucid::autograd::backward(&[t], &grads, keep, inputs.as_deref()))
    }

    /// The same storage, cut off from the tape.
    fn detach<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let t = self.share();
        wrap(py, engine_call::quick(py, || t.detach())?)
    }

    /// Cuts this tensor off from the tape, and gives it back. Not for views.
    fn detach_<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, Self>> {
        let t = slf.get().share();
        engine_call::quick(slf.py(), || t.detach_())?;
        Ok(slf.clone())
    }

    /// The tensor without its history, whose writes backward passes do not notice. Assigning puts another tensor's elements, dtype and device in its place.
    #[getter]
    fn data<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let t = self.share();
        wrap(py, engine_call::quick(py, || t.data())?)
    }

    #[setter]
    fn set_data(&self, py: Python<'_>, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let Ok(value) = value.cast::<PyTensor>() else {
            let got = crate::args::kind_name(value);
            return Err(errors::type_error(py, format!("Variable data has to be a tensor, but got {got}")));
        };
        let (mut own, source) = (self.share(), value.get().share());
        engine_call::quick(py, || own.refuse_new_data().and_then(|()| own.set_data(&source)))?;
        self.replace(py, own);
        Ok(())
    }

    /// Keeps this result's gradient as `grad`, which otherwise only leaves have.
    fn retain_grad(&self, py: Python<'_>) -> PyResult<()> {
        let t = self.share();
        engine_call::quick(py, || {
            if t.requires_grad() {
                lucid::autograd::check_untransformed("retain_grad", "Tensor.retain_grad()")?;
            }
            t.retain_grad()
        })
    }

    /// Calls `hook(grad)` with each gradient of this tensor; what it returns, unless `None`, takes its place.
    #[doc = lucid::op_doc!(python tensor_register_hook)]
    fn register_hook<'py>(slf: &Bound<'py, Self>, hook: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let (py, t, object) = (slf.py(), slf.get().share(), hook);
        let (hook, host) = hook_of(hook)?;
        let handle = engine_call::quick(py, || t.register_hook(hook))?;
        t.set_hook_host(handle, host);
        let hooks = match slf.get().hooks(py) {
            Some(hooks) => hooks,
            None => {
                let made = py.import("collections")?.getattr("OrderedDict")?.call0()?;
                slf.get().others.lock().hooks = Some(made.clone().unbind());
                made
            }
        };
        hooks.set_item(handle, object)?;
        crate::autograd::handle(slf, handle)
    }

    /// The hooks that `register_hook` put on it through this object, an `OrderedDict`; `None` where there never was one.
    #[getter]
    fn _backward_hooks<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyAny>> {
        self.hooks(py)
    }

    /// The dtype of `grad`: the tensor's own, unless it was set, or the function that made it declared another; `None`
    /// where it may be any. Of a leaf it may be set, while there is no gradient of another dtype.
    #[getter]
    fn grad_dtype<'py>(&self, py: Python<'py>) -> PyResult<Option<&'py Py<crate::dtype::PyDType>>> {
        let dtype = engine_call::quick(py, || Ok(self.read().grad_dtype()))?;
        dtype.map(|dtype| crate::dtype::dtype_object(py, dtype)).transpose()
    }

    #[setter]
    fn set_grad_dtype(&self, py: Python<'_>, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let dtype = crate::dtype::dtype_of(value);
        if dtype.is_none() && !value.is_none() {
            let got = crate::args::kind_name(value);
            let why = format!("grad_dtype must be a lucid.dtype or None, but got {got}");
            return Err(errors::runtime_error(py, why));
        }
        let t = self.share();
        engine_call::quick(py, || t.set_grad_dtype(dtype))
    }

    /// Calls `hook(tensor)` each time that a backward pass has added to this leaf's `grad`.
    #[doc = lucid::op_doc!(python tensor_register_post_accumulate_grad_hook)]
    fn register_post_accumulate_grad_hook<'py>(
        slf: &Bound<'py, Self>,
        hook: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let t = slf.get().share();
        let (hook, host) = leaf_hook_of(slf, hook)?;
        let handle = engine_call::quick(slf.py(), || t.register_post_accumulate_grad_hook(hook))?;
        t.set_hook_host(handle, host);
        crate::autograd::handle(slf, handle)
    }

    fn _remove_hook(&self, py: Python<'_>, handle: u64) -> PyResult<()> {
        self.read().remove_hook(handle);
        if let Some(hooks) = self.hooks(py) {
            hooks.call_method1("pop", (handle, py.None()))?;
        }
        Ok(())
    }
}

impl PyTensor {
    fn hooks<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyAny>> {
        self.others.lock().hooks.as_ref().map(|hooks| hooks.bind(py).clone())
    }

    /// Remembers the object of the gradient.
    fn keep_grad(&self, object: Option<Py<PyTensor>>) {
        let old = std::mem::replace(&mut self.others.lock().grad, object);
        // Not under the lock: what goes may run code of the user's.
        drop(old);
    }

    /// Remembers the object of what it is a view of.
    fn keep_base(&self, object: Py<PyTensor>) {
        let old = self.others.lock().base.replace(object);
        drop(old);
    }

    /// Remembers the object that it was made of, the object of `source`, where it is a view: that is its base, or has it.
    pub fn made_of(&self, object: &Bound<'_, PyTensor>, source: &Tensor) {
        let own = self.read();
        if !own.is_view() {
            return;
        }
        let base = match own.is_view_of(source) {
            true => object.clone().unbind(),
            false => match &object.get().others.lock().base {
                Some(base) => base.clone_ref(object.py()),
                None => return,
            },
        };
        drop(own);
        self.keep_base(base);
    }

    /// Puts another tensor into this object. Without the GIL: a reader may hold the lock and wait for it.
    pub fn replace(&self, py: Python<'_>, t: Tensor) {
        t.mark_handed_out();
        if let Some(object) = self.read().object().filter(|_| t.object().is_none()) {
            t.set_object(object);
        }
        let old = py.detach(|| std::mem::replace(&mut *self.tensor.write(), t));
        drop(old);
    }
}
