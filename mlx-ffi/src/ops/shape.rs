//! What changes or joins shapes: views, joins, splits, padding, repetition.
//! Depends on the wrapping macro alone; its invariant holds here.

use crate::call::wrap;
use crate::error::{Error, Result};
use crate::{counters, stream, sys, Array};

wrap! {
    reshape = mlx_reshape(a: arr, shape: ints);
    flatten = mlx_flatten(a: arr, start_axis: int, end_axis: int);
    unflatten = mlx_unflatten(a: arr, axis: int, shape: ints);
    transpose = mlx_transpose(a: arr);
    transpose_axes = mlx_transpose_axes(a: arr, axes: ints);
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
    broadcast_to = mlx_broadcast_to(a: arr, shape: ints);
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
    // lie inside the array.
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
