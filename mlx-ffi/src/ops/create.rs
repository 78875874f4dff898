//! Arrays from nothing: constants, ranges, windows.
//! Depends on the wrapping macro alone; its invariant holds here.

use crate::call::wrap;

wrap! {
    full = mlx_full(shape: ints, vals: arr, dtype: dtype);
    full_like = mlx_full_like(a: arr, vals: arr, dtype: dtype);
    zeros = mlx_zeros(shape: ints, dtype: dtype);
    zeros_like = mlx_zeros_like(a: arr);
    zeros_like_dtype = mlx_zeros_like_dtype(a: arr, dtype: dtype);
    ones = mlx_ones(shape: ints, dtype: dtype);
    ones_like = mlx_ones_like(a: arr);
    ones_like_dtype = mlx_ones_like_dtype(a: arr, dtype: dtype);
    arange = mlx_arange(start: f64, stop: f64, step: f64, dtype: dtype);
    linspace = mlx_linspace(start: f64, stop: f64, num: int, dtype: dtype);
    linspace_endpoint = mlx_linspace_endpoint(start: f64, stop: f64, num: int, endpoint: flag, dtype: dtype);
    eye = mlx_eye(n: int, m: int, k: int, dtype: dtype);
    identity = mlx_identity(n: int, dtype: dtype);
    tri = mlx_tri(n: int, m: int, k: int, dtype: dtype);
    bartlett = mlx_bartlett(m: int);
    blackman = mlx_blackman(m: int);
    hamming = mlx_hamming(m: int);
    hanning = mlx_hanning(m: int);
}
