//! Random numbers, always from an explicit key: MLX's implicit random state is not used. Depends on the wrapping macro.
//! A key is a `uint32` array of two elements; the same key gives the same numbers on every device.

use crate::call::wrap;
use crate::error::Result;
use crate::{counters, sys, Array};

wrap! {
    /// Raw random integers of `width` bytes (1, 2 or 4) each.
    bits = mlx_random_bits(shape: ints, width: int, key: key);
    /// Uniform in `[low, high)`; the bounds broadcast to the shape.
    uniform = mlx_random_uniform(low: arr, high: arr, shape: ints, dtype: dtype, key: key);
    /// Normal with the given mean and standard deviation.
    normal = mlx_random_normal(shape: ints, dtype: dtype, loc: f32, scale: f32, key: key);
    normal_broadcast = mlx_random_normal_broadcast(shape: ints, dtype: dtype, loc: opt, scale: opt, key: key);
    multivariate_normal = mlx_random_multivariate_normal(mean: arr, cov: arr, shape: ints, dtype: dtype, key: key) on cpu;
    /// Integers in `[low, high)`.
    randint = mlx_random_randint(low: arr, high: arr, shape: ints, dtype: dtype, key: key);
    bernoulli = mlx_random_bernoulli(p: arr, shape: ints, key: key);
    truncated_normal = mlx_random_truncated_normal(lower: arr, upper: arr, shape: ints, dtype: dtype, key: key);
    gumbel = mlx_random_gumbel(shape: ints, dtype: dtype, key: key);
    laplace = mlx_random_laplace(shape: ints, dtype: dtype, loc: f32, scale: f32, key: key);
    categorical = mlx_random_categorical(logits: arr, axis: int, key: key);
    categorical_shape = mlx_random_categorical_shape(logits: arr, axis: int, shape: ints, key: key);
    categorical_num_samples = mlx_random_categorical_num_samples(logits: arr, axis: int, num_samples: int, key: key);
    permutation = mlx_random_permutation(x: arr, axis: int, key: key);
    permutation_arange = mlx_random_permutation_arange(x: int, key: key);
    /// `num` keys, in the rows of one array.
    split_num = mlx_random_split_num(key: arr, num: int) on siblings;
    /// Two keys.
    pair split = mlx_random_split(key: arr);
}

/// The key for a seed.
pub fn key(seed: u64) -> Result<Array> {
    counters::count_op();
    // SAFETY: a null out-parameter for MLX to fill.
    Array::build(|out| unsafe { sys::mlx_random_key(out, seed) })
}
