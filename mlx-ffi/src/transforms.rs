//! Evaluating several arrays together, and MLX's function transforms. Depends on the closure and evaluation modules.
//! Invariant: as theirs.

use crate::compile::Closure;
use crate::error::{check, Result};
use crate::vector::Arrays;
use crate::{counters, sys, Array};

/// Computes the arrays in one evaluation and waits for them.
pub fn eval(arrays: &[&Array]) -> Result<()> {
    crate::eval::eval(arrays)
}

/// Starts computing the arrays in one evaluation.
pub fn async_eval(arrays: &[&Array]) -> Result<()> {
    crate::eval::async_eval(arrays)
}

type Transform = unsafe extern "C" fn(
    *mut sys::mlx_vector_array,
    *mut sys::mlx_vector_array,
    sys::mlx_closure,
    sys::mlx_vector_array,
    sys::mlx_vector_array,
) -> std::os::raw::c_int;

fn transform(call: Transform, f: &Closure, at: &[&Array], along: &[&Array]) -> Result<(Vec<Array>, Vec<Array>)> {
    crate::stream::stream()?;
    counters::count_op();
    crate::eval::expect_siblings();
    let (at, along) = (Arrays::from_refs(at)?, Arrays::from_refs(along)?);
    let (mut values, mut products) = (Arrays::new(), Arrays::new());
    // SAFETY: valid handles and null out-parameters for MLX to fill.
    check(unsafe { call(values.out(), products.out(), f.raw(), at.raw(), along.raw()) })?;
    Ok((values.to_vec()?, products.to_vec()?))
}

/// MLX's `vjp`: the function's outputs, and the product of the cotangents with its Jacobian.
pub fn vjp(f: &Closure, primals: &[&Array], cotangents: &[&Array]) -> Result<(Vec<Array>, Vec<Array>)> {
    transform(sys::mlx_vjp, f, primals, cotangents)
}

/// MLX's `jvp`: the function's outputs, and the product of its Jacobian with the tangents.
pub fn jvp(f: &Closure, primals: &[&Array], tangents: &[&Array]) -> Result<(Vec<Array>, Vec<Array>)> {
    transform(sys::mlx_jvp, f, primals, tangents)
}

/// MLX's `checkpoint`: the function, whose intermediate values are computed again for its gradient.
pub fn checkpoint(f: &Closure) -> Result<Closure> {
    crate::eval::expect_siblings();
    // SAFETY: a valid handle and a null out-parameter for MLX to fill.
    Closure::build(|out| unsafe { sys::mlx_checkpoint(out, f.raw()) })
}
