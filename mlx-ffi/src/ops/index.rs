//! Slicing, gathering and scattering.
//! Depends on the wrapping macro alone; its invariant holds here. MLX reads and writes where an index says, inside of the array or
//! not: functions with index arrays are `unsafe`, and who calls them promises that the indices are in range.

use crate::call::wrap;

wrap! {
    unsafe gather = mlx_gather(a: arr, indices: arrs, axes: ints, slice_sizes: ints);
    unsafe gather_single = mlx_gather_single(a: arr, indices: arr, axis: int, slice_sizes: ints);
    masked_scatter = mlx_masked_scatter(a: arr, mask: arr, src: arr);
    unsafe put_along_axis = mlx_put_along_axis(a: arr, indices: arr, values: arr, axis: int);
    unsafe scatter = mlx_scatter(a: arr, indices: arrs, updates: arr, axes: ints);
    unsafe scatter_single = mlx_scatter_single(a: arr, indices: arr, updates: arr, axis: int);
    unsafe scatter_add = mlx_scatter_add(a: arr, indices: arrs, updates: arr, axes: ints);
    unsafe scatter_add_single = mlx_scatter_add_single(a: arr, indices: arr, updates: arr, axis: int);
    unsafe scatter_add_axis = mlx_scatter_add_axis(a: arr, indices: arr, values: arr, axis: int);
    unsafe scatter_max = mlx_scatter_max(a: arr, indices: arrs, updates: arr, axes: ints);
    unsafe scatter_max_single = mlx_scatter_max_single(a: arr, indices: arr, updates: arr, axis: int);
    unsafe scatter_min = mlx_scatter_min(a: arr, indices: arrs, updates: arr, axes: ints);
    unsafe scatter_min_single = mlx_scatter_min_single(a: arr, indices: arr, updates: arr, axis: int);
    unsafe scatter_prod = mlx_scatter_prod(a: arr, indices: arrs, updates: arr, axes: ints);
    unsafe scatter_prod_single = mlx_scatter_prod_single(a: arr, indices: arr, updates: arr, axis: int);
    slice = mlx_slice(a: arr, start: ints, stop: ints, strides: ints);
    unsafe slice_dynamic = mlx_slice_dynamic(a: arr, start: arr, axes: ints, slice_size: ints);
    slice_update = mlx_slice_update(src: arr, update: arr, start: ints, stop: ints, strides: ints);
    unsafe slice_update_dynamic = mlx_slice_update_dynamic(src: arr, update: arr, start: arr, axes: ints);
    slice_update_add = mlx_slice_update_add(src: arr, update: arr, start: ints, stop: ints, strides: ints);
    slice_update_max = mlx_slice_update_max(src: arr, update: arr, start: ints, stop: ints, strides: ints);
    slice_update_min = mlx_slice_update_min(src: arr, update: arr, start: ints, stop: ints, strides: ints);
    slice_update_prod = mlx_slice_update_prod(src: arr, update: arr, start: ints, stop: ints, strides: ints);
    unsafe take_axis = mlx_take_axis(a: arr, indices: arr, axis: int);
    unsafe take = mlx_take(a: arr, indices: arr);
    unsafe take_along_axis = mlx_take_along_axis(a: arr, indices: arr, axis: int);
}
