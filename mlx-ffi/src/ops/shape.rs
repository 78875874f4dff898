//! What changes or joins shapes: views, joins, splits, padding, repetition.
//! Depends on the wrapping macro, whose invariant holds here. A transposed, reshaped or broadcast view of an evaluated array
//! needs no primitive: it is made at once, over the same memory.

use crate::call::wrap;
use crate::error::{Error, Result};
use crate::{counters, eval, stream, sys, Array};
use smallvec::SmallVec;

type Shape = SmallVec<[i32; 8]>;
type Strides = SmallVec<[i64; 8]>;

/// The view of an evaluated array that `look` gives the shape and the strides of, from the array's own strides and whether
/// its elements are in row-major order; `None` where the array is not evaluated, or `look` declines.
fn at_once(a: &Array, look: impl FnOnce(&[i32], &[i64], bool) -> Option<(Shape, Strides)>) -> Result<Option<Array>> {
    if !a.is_evaluated() {
        return Ok(None);
    }
    let shape = a.shape();
    let (mut strides, mut row_major) = (Strides::from_elem(0, shape.len()), false);
    let _lock = eval::schedule_lock();
    // SAFETY: a valid handle, room for as many strides as the array has; the lock keeps its state as it is.
    if !unsafe { sys::lucid_array_strides(a.raw(), strides.as_mut_ptr(), &mut row_major) } {
        return Ok(None);
    }
    let Some((to, steps)) = look(shape, &strides, row_major) else { return Ok(None) };
    counters::count_op();
    // SAFETY: a valid handle, live slices of one length and an empty array, which the call may fill; the lock as above.
    Array::attempt(|made| unsafe { sys::lucid_view_now(made, a.raw(), to.as_ptr(), steps.as_ptr(), to.len()) })
}

/// MLX's `reshape`.
pub fn reshape(a: &Array, shape: &[i32]) -> Result<Array> {
    let look = |from: &[i32], _: &[i64], row_major: bool| {
        let size = |shape: &[i32]| shape.iter().map(|&n| i64::from(n)).product::<i64>();
        if !row_major || size(from) != size(shape) || shape.iter().any(|&n| n <= 0) {
            return None;
        }
        let mut strides = Strides::from_elem(1, shape.len());
        for i in (1..shape.len()).rev() {
            strides[i - 1] = strides[i] * i64::from(shape[i]);
        }
        Some((Shape::from_slice(shape), strides))
    };
    if let Some(view) = at_once(a, look)? {
        return Ok(view);
    }
    let stream = stream::stream()?;
    counters::count_op();
    // SAFETY: valid handles, a live slice and a null out-parameter for MLX to fill.
    Array::build(|out| unsafe { sys::mlx_reshape(out, a.raw(), shape.as_ptr(), shape.len(), stream) })
}

/// MLX's `transpose` with these axes.
pub fn transpose_axes(a: &Array, axes: &[i32]) -> Result<Array> {
    let look = |shape: &[i32], strides: &[i64], _: bool| {
        let all = axes.len() == shape.len() && (0..shape.len() as i32).all(|i| axes.contains(&i));
        all.then(|| axes.iter().map(|&i| (shape[i as usize], strides[i as usize])).unzip())
    };
    if let Some(view) = at_once(a, look)? {
        return Ok(view);
    }
    let stream = stream::stream()?;
    counters::count_op();
    // SAFETY: valid handles, a live slice and a null out-parameter for MLX to fill.
    Array::build(|out| unsafe { sys::mlx_transpose_axes(out, a.raw(), axes.as_ptr(), axes.len(), stream) })
}

/// MLX's `broadcast_to`.
pub fn broadcast_to(a: &Array, shape: &[i32]) -> Result<Array> {
    let look = |from: &[i32], strides: &[i64], _: bool| {
        let lead = shape.len().checked_sub(from.len())?;
        let mut steps = Strides::from_elem(0, shape.len());
        for (i, &n) in from.iter().enumerate() {
            match shape[lead + i] {
                to if to == n => steps[lead + i] = strides[i],
                _ if n == 1 => {}
                _ => return None,
            }
        }
        shape.iter().all(|&n| n > 0).then(|| (Shape::from_slice(shape), steps))
    };
    if let Some(view) = at_once(a, look)? {
        return Ok(view);
    }
    let stream = stream::stream()?;
    counters::count_op();
    // SAFETY: valid handles, a live slice and a null out-parameter for MLX to fill.
    Array::build(|out| unsafe { sys::mlx_broadcast_to(out, a.raw(), shape.as_ptr(), shape.len(), stream) })
}

wrap! {
    flatten = mlx_flatten(a: arr, start_axis: int, end_axis: int);
    unflatten = mlx_unflatten(a: arr, axis: int, shape: ints);
    transpose = mlx_transpose(a: arr);
    swapaxes = mlx_swapaxes(a: arr, axis1: int, axis2: int);
    moveaxis = mlx_moveaxis(a: arr, source: int, destination: int);
    expand_dims = mlx_expand_dims(a: arr, axis: int);
    expand_dims_axes = mlx_expand_dims_axes(a: arr, axes: ints);
    squeeze = mlx_squeeze(a: arr);
    squeeze_axis = mlx_squeeze_axis(a: arr, axis: int);
    squeeze_axes = mlx_squeeze_axes(a: arr, axes: ints);
    atleast_1d = mlx_atleast_1d(a: arr);
    atleast_2d = mlx_atleast_2d(a: arr);
    atleast_3d = mlx_atleast_3d(a: arr);
    vec broadcast_arrays = mlx_broadcast_arrays(inputs: arrs);
    number_of_elements = mlx_number_of_elements(a: arr, axes: ints, inverted: flag, dtype: dtype);
    concatenate = mlx_concatenate(arrays: arrs);
    concatenate_axis = mlx_concatenate_axis(arrays: arrs, axis: int);
    stack = mlx_stack(arrays: arrs);
    stack_axis = mlx_stack_axis(arrays: arrs, axis: int);
    vec unstack = mlx_unstack(a: arr);
    vec unstack_axis = mlx_unstack_axis(a: arr, axis: int);
    vec split = mlx_split(a: arr, num_splits: int, axis: int);
    vec split_sections = mlx_split_sections(a: arr, indices: ints, axis: int);
    pad = mlx_pad(a: arr, axes: ints, low_pad_size: ints, high_pad_size: ints, pad_value: arr, mode: text);
    pad_symmetric = mlx_pad_symmetric(a: arr, pad_width: int, pad_value: arr, mode: text);
    tile = mlx_tile(arr: arr, reps: ints);
    repeat = mlx_repeat(arr: arr, repeats: int);
    repeat_axis = mlx_repeat_axis(arr: arr, repeats: int, axis: int);
    roll = mlx_roll(a: arr, shift: ints);
    roll_axis = mlx_roll_axis(a: arr, shift: ints, axis: int);
    roll_axes = mlx_roll_axes(a: arr, shift: ints, axes: ints);
    flip = mlx_flip(a: arr);
    flip_axis = mlx_flip_axis(a: arr, axis: int);
    flip_axes = mlx_flip_axes(a: arr, axes: ints);
    vec meshgrid = mlx_meshgrid(arrays: arrs, sparse: flag, indexing: text);
    diag = mlx_diag(a: arr, k: int);
    diagonal = mlx_diagonal(a: arr, offset: int, axis1: int, axis2: int);
    trace = mlx_trace(a: arr);
    trace_axes = mlx_trace_axes(a: arr, offset: int, axis1: int, axis2: int, dtype: dtype);
    tril = mlx_tril(x: arr, k: int);
    triu = mlx_triu(x: arr, k: int);
}

/// MLX's `as_strided`: a view of the array's elements in row-major order, with strides and offset counted in elements.
/// MLX does not check that the view stays inside; this function does.
pub fn as_strided(a: &Array, shape: &[i32], strides: &[i64], offset: usize) -> Result<Array> {
    if !stays_inside(a.size(), shape, strides, offset) {
        let (size, dtype) = (a.size(), a.dtype());
        return Err(Error::Mismatch(format!(
            "as_strided: shape {shape:?}, strides {strides:?} and offset {offset} leave an array of {size} {dtype} elements"
        )));
    }
    let stream = stream::stream()?;
    counters::count_op();
    let (dims, steps) = ((shape.as_ptr(), shape.len()), (strides.as_ptr(), strides.len()));
    // SAFETY: valid handles, live slices, a null out-parameter for MLX to fill; every element of the view was checked to
    // are inside the array.
    Array::build(|out| unsafe { sys::mlx_as_strided(out, a.raw(), dims.0, dims.1, steps.0, steps.1, offset, stream) })
}

fn stays_inside(size: usize, shape: &[i32], strides: &[i64], offset: usize) -> bool {
    if shape.len() != strides.len() || shape.iter().any(|&d| d < 0) {
        return false;
    }
    if shape.contains(&0) {
        return offset <= size;
    }
    let (mut low, mut high) = (offset as i128, offset as i128);
    for (&dim, &stride) in shape.iter().zip(strides) {
        let reach = i128::from(dim - 1) * i128::from(stride);
        low += reach.min(0);
        high += reach.max(0);
    }
    low >= 0 && high < size as i128
}
