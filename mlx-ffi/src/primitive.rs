//! Primitives taken from one node of a graph and used for more: MLX's functions check shapes and dtypes, look for casts
//! and broadcasts and make a primitive at every call, which costs more than the node itself.
//!
//! A primitive holds parameters and no arrays, so that any number of nodes may share it. Depends on the array type and the
//! shim. Invariant: a primitive is used only for inputs and outputs like those of the call that it was taken from, as far
//! as its parameters and MLX's checks of them say.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::OnceLock;

use smallvec::SmallVec;

use crate::{counters, eval, stream, sys, Array, Dtype, Result};

type Handles = SmallVec<[sys::mlx_array; 8]>;

static SHARED: AtomicBool = AtomicBool::new(true);

/// Whether functions without parameters take the primitives of earlier calls; if not, each call is MLX's own function, for
/// comparing both.
pub fn share_primitives(on: bool) {
    SHARED.store(on, Ordering::Relaxed);
}

fn handles(arrays: &[&Array]) -> Handles {
    arrays.iter().map(|a| a.raw()).collect()
}

/// Shapes and dtypes of outputs, as the shim takes them while the slices live.
pub(crate) fn raw_outputs(outputs: &[(&[i32], Dtype)]) -> SmallVec<[sys::lucid_output; 8]> {
    let raw = |&(shape, dtype): &(&[i32], Dtype)| sys::lucid_output {
        shape: shape.as_ptr(),
        ndim: shape.len(),
        dtype: dtype.raw(),
    };
    outputs.iter().map(raw).collect()
}

/// A primitive with its parameters and its stream.
#[derive(Debug)]
pub struct Primitive(sys::lucid_primitive);

// SAFETY: a shared pointer to what MLX does not change once it is made; evaluating it is serialised (see `eval`).
unsafe impl Send for Primitive {}
// SAFETY: as above.
unsafe impl Sync for Primitive {}

impl Primitive {
    /// The primitive of an array that was made just now from these inputs and nothing else; `None` where MLX put other
    /// nodes between, or made none.
    pub fn of(made: &Array, inputs: &[&Array]) -> Option<Primitive> {
        let inputs = handles(inputs);
        // SAFETY: valid handles; nobody else knows the array, so that nobody changes it.
        let raw = unsafe { sys::lucid_primitive_of(made.raw(), inputs.as_ptr(), inputs.len()) };
        (!raw.ctx.is_null()).then_some(Primitive(raw))
    }

    /// The array of this shape and dtype that the primitive makes of the inputs.
    #[inline]
    pub(crate) fn repeat<const N: usize>(&self, inputs: [&Array; N], shape: &[i32], dtype: Dtype) -> Result<Array> {
        let inputs = inputs.map(Array::raw);
        let output = sys::lucid_output { shape: shape.as_ptr(), ndim: shape.len(), dtype: dtype.raw() };
        // SAFETY: valid handles, a live slice and a null out-parameter for MLX to fill.
        Array::build(|made| unsafe { sys::lucid_repeat(made, &output, 1, self.0, inputs.as_ptr(), N) })
    }

    /// The arrays of these shapes and dtypes that the primitive makes of the inputs, as many and of the kinds that it has
    /// parameters for: MLX does not check them again.
    pub fn repeat_all(&self, inputs: &[&Array], outputs: &[(&[i32], Dtype)]) -> Result<Vec<Array>> {
        counters::count_op();
        if outputs.len() > 1 {
            eval::expect_siblings();
        }
        let inputs = handles(inputs);
        let outputs = raw_outputs(outputs);
        // SAFETY: valid handles, live slices and as many null out-parameters as there are outputs.
        Array::build_all(outputs.len(), |made| unsafe {
            sys::lucid_repeat(made, outputs.as_ptr(), outputs.len(), self.0, inputs.as_ptr(), inputs.len())
        })
    }
}

impl Drop for Primitive {
    fn drop(&mut self) {
        // SAFETY: owned, freed once.
        unsafe { sys::lucid_primitive_free(self.0) };
    }
}

/// What a function without parameters makes of inputs of one dtype: its primitive and the result's dtype, if it makes one
/// node of them.
type Learned = OnceLock<Option<(Primitive, Dtype)>>;

/// The primitives of a function without parameters, by the dtype that all its inputs have.
pub(crate) struct Kept([Learned; Dtype::ALL.len()]);

impl Kept {
    pub(crate) const fn new() -> Kept {
        Kept([const { OnceLock::new() }; Dtype::ALL.len()])
    }

    /// The function of inputs of one shape and one dtype, which is the result's shape; other inputs go to `call`.
    #[inline]
    pub(crate) fn alike<const N: usize>(
        &self,
        inputs: [&Array; N],
        call: impl FnOnce(*mut sys::mlx_array, sys::mlx_stream) -> std::os::raw::c_int,
    ) -> Result<Array> {
        let first = inputs[0];
        let same = inputs[1..].iter().all(|a| a.shape() == first.shape());
        self.shaped(inputs, same.then(|| first.shape()), call)
    }

    /// The function of inputs of one dtype, whose result has this shape; other inputs, and those without it, go to `call`.
    #[inline]
    pub(crate) fn shaped<const N: usize>(
        &self,
        inputs: [&Array; N],
        shape: Option<&[i32]>,
        call: impl FnOnce(*mut sys::mlx_array, sys::mlx_stream) -> std::os::raw::c_int,
    ) -> Result<Array> {
        let stream = stream::stream()?;
        counters::count_op();
        let dtype = inputs[0].dtype();
        let alike = |_: &_| SHARED.load(Ordering::Relaxed) && inputs[1..].iter().all(|a| a.dtype() == dtype);
        let shape = shape.filter(alike);
        let learned = &self.0[dtype as usize];
        match (shape, learned.get()) {
            (Some(shape), Some(Some((primitive, dtype)))) => primitive.repeat(inputs, shape, *dtype),
            (Some(_), None) => {
                let made = Array::build(|out| call(out, stream))?;
                let _ = learned.set(Primitive::of(&made, &inputs).map(|p| (p, made.dtype())));
                Ok(made)
            }
            _ => Array::build(|out| call(out, stream)),
        }
    }
}
