//! Functions of the host's as nodes of a graph on MLX's CPU stream. Depends on arrays, the callbacks' guard and the shim.
//!
//! Invariants: such a function gets elements and no arrays, so that it takes none of this crate's locks; what it gets stays
//! where it is for as long as it holds it.

use std::ffi::{c_void, CStr};
use std::os::raw::c_int;

use smallvec::SmallVec;

use crate::compile::guard;
use crate::device::{self, Kind};
use crate::error::{Error, Result};
use crate::primitive::raw_outputs;
use crate::{counters, eval, stream, sys, Array, Dtype};

/// An input: elements in memory. Nobody writes to them while this exists.
#[derive(Debug)]
pub struct Input {
    first: *const u8,
    sizes: Sizes,
    strides: SmallVec<[i64; 6]>,
    kept: sys::lucid_kept,
}

/// An array's sizes, and the bytes of an element.
type Sizes = (SmallVec<[i32; 6]>, usize);

// SAFETY: the address is of plain memory that `kept`, an atomically counted pointer, keeps; it is only read.
unsafe impl Send for Input {}
// SAFETY: as above.
unsafe impl Sync for Input {}

impl Input {
    /// The sizes.
    pub fn shape(&self) -> &[i32] {
        &self.sizes.0
    }

    /// Steps from element to element along each axis, in elements; negative along an axis that is turned around.
    pub fn strides(&self) -> &[i64] {
        &self.strides
    }

    /// Where the lowest of its bytes is, and how many there are up to the highest; they can be read while this exists.
    pub fn memory(&self) -> (*const u8, usize) {
        let (shape, size) = &self.sizes;
        if shape.contains(&0) {
            return (self.first, 0);
        }
        let steps = || shape.iter().zip(&self.strides).map(|(&n, &s)| i64::from(n - 1) * s);
        let (below, above) = (steps().filter(|&s| s < 0).sum::<i64>(), steps().filter(|&s| s > 0).sum::<i64>());
        (self.first.wrapping_offset(below as isize * *size as isize), (above - below + 1) as usize * size)
    }
}

impl Drop for Input {
    fn drop(&mut self) {
        // SAFETY: owned, freed once.
        unsafe { sys::lucid_kept_free(self.kept) };
    }
}

/// The inputs of a node.
pub type Inputs = SmallVec<[Input; 4]>;

/// Takes the bytes of the output of this number.
pub type Put<'a> = &'a mut dyn FnMut(usize, &[u8]) -> Result<()>;

/// A function of inputs, which hands every output's bytes to the last argument.
pub type Function = Box<dyn Fn(Inputs, Put<'_>) -> std::result::Result<(), String> + Send + Sync>;

struct Task {
    function: Function,
    inputs: SmallVec<[Sizes; 4]>,
    /// Bytes of each output.
    outputs: SmallVec<[usize; 4]>,
}

impl Task {
    fn run(&self, inputs: Inputs, outputs: *const *mut c_void) -> Result<()> {
        let mut missing: SmallVec<[bool; 4]> = self.outputs.iter().map(|_| true).collect();
        let mut put = |i: usize, bytes: &[u8]| {
            if self.outputs.get(i) != Some(&bytes.len()) {
                let why = format!("{} bytes for output {i} of {:?}", bytes.len(), self.outputs.as_slice());
                return Err(Error::Mismatch(why));
            }
            // SAFETY: there are as many outputs as lengths, each of so many bytes that nobody else knows yet.
            unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), (*outputs.add(i)).cast(), bytes.len()) };
            missing[i] = false;
            Ok(())
        };
        (self.function)(inputs, &mut put).map_err(Error::Mlx)?;
        match missing.contains(&true) {
            false => Ok(()),
            true => Err(Error::Mlx("the function left out an output".into())),
        }
    }
}

/// Records a node that the function computes on MLX's CPU stream, and returns its outputs, of these shapes and dtypes. The
/// function runs on the stream's own thread. It must hold no arrays.
///
/// # Errors
/// Where MLX has another device. What the function reports, evaluating its outputs does.
pub fn node(
    name: &'static CStr,
    function: Function,
    inputs: &[&Array],
    outputs: &[(&[i32], Dtype)],
) -> Result<Vec<Array>> {
    if device::kind()? != Kind::Cpu {
        return Err(Error::Mlx(format!("{}: MLX does not compute on the CPU here", name.to_string_lossy())));
    }
    record(name, function, inputs, outputs)
}

/// Records a node without inputs whose elements the function has, on MLX's CPU stream, whatever the device is.
///
/// # Errors
/// What the function reports, evaluating its output does.
pub fn source(name: &'static CStr, function: Function, shape: &[i32], dtype: Dtype) -> Result<Array> {
    let made = record(name, function, &[], &[(shape, dtype)])?;
    made.into_iter().next().ok_or_else(|| Error::Mlx("a node without an output".into()))
}

fn record(
    name: &'static CStr,
    function: Function,
    inputs: &[&Array],
    outputs: &[(&[i32], Dtype)],
) -> Result<Vec<Array>> {
    extern "C" fn run(
        context: *mut c_void,
        inputs: *const sys::lucid_host_input,
        outputs: *const *mut c_void,
    ) -> c_int {
        // SAFETY: the context is the task made below, which lives until `release`.
        let task = unsafe { &*context.cast::<Task>() };
        let each = task.inputs.iter().enumerate().map(|(i, sizes)| {
            // SAFETY: as many inputs as were recorded, each with as many strides as it has axes and with what keeps it.
            let (input, strides) = unsafe {
                let input = *inputs.add(i);
                (input, if sizes.0.is_empty() { &[] } else { std::slice::from_raw_parts(input.strides, sizes.0.len()) })
            };
            let strides = SmallVec::from_slice(strides);
            Input { first: input.data.cast(), sizes: sizes.clone(), strides, kept: input.kept }
        });
        let inputs = each.collect();
        guard(|| task.run(inputs, outputs))
    }
    extern "C" fn release(context: *mut c_void) {
        // SAFETY: what `Box::into_raw` gave below, once.
        drop(unsafe { Box::from_raw(context.cast::<Task>()) });
    }
    let stream = stream::cpu_stream()?;
    counters::count_op();
    if outputs.len() > 1 {
        eval::expect_siblings();
    }
    let sizes = |a: &&Array| (SmallVec::from_slice(a.shape()), a.dtype().size());
    let bytes = |o: &(&[i32], Dtype)| o.0.iter().map(|&n| n as usize).product::<usize>() * o.1.size();
    let task =
        Task { function, inputs: inputs.iter().map(sizes).collect(), outputs: outputs.iter().map(bytes).collect() };
    let context = Box::into_raw(Box::new(task)).cast();
    let host = sys::lucid_host { name: name.as_ptr(), context, run: Some(run), release: Some(release) };
    let outputs = raw_outputs(outputs);
    let inputs: SmallVec<[sys::mlx_array; 4]> = inputs.iter().map(|a| a.raw()).collect();
    // SAFETY: valid handles, live slices, a context that the shim releases, and as many null out-parameters as outputs.
    Array::build_all(outputs.len(), |made| unsafe {
        let (to, from) = ((outputs.as_ptr(), outputs.len()), (inputs.as_ptr(), inputs.len()));
        sys::lucid_host_node(made, to.0, to.1, host, from.0, from.1, stream)
    })
}
