//! Elementwise operations: one array in (unary), two (binary, comparisons), three, casts.
//! Depends on the wrapping macro alone; its invariant holds here.

use crate::call::wrap;
use crate::error::{check, Result};
use crate::vector::Arrays;
use crate::{counters, eval, stream, sys, Array};

wrap! {
    kept abs = mlx_abs(a: arr);
    kept negative = mlx_negative(a: arr);
    positive = mlx_positive(a: arr);
    kept sign = mlx_sign(a: arr);
    kept square = mlx_square(a: arr);
    kept sqrt = mlx_sqrt(a: arr);
    kept rsqrt = mlx_rsqrt(a: arr);
    reciprocal = mlx_reciprocal(a: arr);
    kept exp = mlx_exp(a: arr);
    kept expm1 = mlx_expm1(a: arr);
    kept log = mlx_log(a: arr);
    kept log2 = mlx_log2(a: arr);
    kept log10 = mlx_log10(a: arr);
    kept log1p = mlx_log1p(a: arr);
    kept sin = mlx_sin(a: arr);
    kept cos = mlx_cos(a: arr);
    kept tan = mlx_tan(a: arr);
    kept sinh = mlx_sinh(a: arr);
    kept cosh = mlx_cosh(a: arr);
    kept tanh = mlx_tanh(a: arr);
    kept arcsin = mlx_arcsin(a: arr);
    kept arccos = mlx_arccos(a: arr);
    kept arctan = mlx_arctan(a: arr);
    kept arcsinh = mlx_arcsinh(a: arr);
    kept arccosh = mlx_arccosh(a: arr);
    kept arctanh = mlx_arctanh(a: arr);
    kept sigmoid = mlx_sigmoid(a: arr);
    kept erf = mlx_erf(a: arr);
    kept erfinv = mlx_erfinv(a: arr);
    kept ceil = mlx_ceil(a: arr);
    kept floor = mlx_floor(a: arr);
    kept trunc = mlx_trunc(a: arr);
    round = mlx_round(a: arr, decimals: int);
    degrees = mlx_degrees(a: arr);
    radians = mlx_radians(a: arr);
    kept conjugate = mlx_conjugate(a: arr);
    kept real = mlx_real(a: arr);
    kept imag = mlx_imag(a: arr);
    isnan = mlx_isnan(a: arr);
    isinf = mlx_isinf(a: arr);
    isfinite = mlx_isfinite(a: arr);
    isneginf = mlx_isneginf(a: arr);
    isposinf = mlx_isposinf(a: arr);
    kept logical_not = mlx_logical_not(a: arr);
    kept bitwise_invert = mlx_bitwise_invert(a: arr);
    nan_to_num = mlx_nan_to_num(a: arr, nan: f32, posinf: oflt, neginf: oflt);
    stop_gradient = mlx_stop_gradient(a: arr);
    copy = mlx_copy(a: arr);
    astype = mlx_astype(a: arr, dtype: dtype);
    view = mlx_view(a: arr, dtype: dtype);
    to_fp8 = mlx_to_fp8(x: arr);
    from_fp8 = mlx_from_fp8(x: arr, dtype: dtype);
    kept add = mlx_add(a: arr, b: arr);
    kept subtract = mlx_subtract(a: arr, b: arr);
    kept multiply = mlx_multiply(a: arr, b: arr);
    kept divide = mlx_divide(a: arr, b: arr);
    floor_divide = mlx_floor_divide(a: arr, b: arr);
    kept remainder = mlx_remainder(a: arr, b: arr);
    kept power = mlx_power(a: arr, b: arr);
    kept maximum = mlx_maximum(a: arr, b: arr);
    kept minimum = mlx_minimum(a: arr, b: arr);
    kept arctan2 = mlx_arctan2(a: arr, b: arr);
    kept logaddexp = mlx_logaddexp(a: arr, b: arr);
    kept logical_and = mlx_logical_and(a: arr, b: arr);
    kept logical_or = mlx_logical_or(a: arr, b: arr);
    logical_xor = mlx_logical_xor(a: arr, b: arr);
    kept bitwise_and = mlx_bitwise_and(a: arr, b: arr);
    kept bitwise_or = mlx_bitwise_or(a: arr, b: arr);
    kept bitwise_xor = mlx_bitwise_xor(a: arr, b: arr);
    kept left_shift = mlx_left_shift(a: arr, b: arr);
    kept right_shift = mlx_right_shift(a: arr, b: arr);
    vec divmod = mlx_divmod(a: arr, b: arr);
    kept equal = mlx_equal(a: arr, b: arr);
    kept not_equal = mlx_not_equal(a: arr, b: arr);
    kept greater = mlx_greater(a: arr, b: arr);
    kept greater_equal = mlx_greater_equal(a: arr, b: arr);
    kept less = mlx_less(a: arr, b: arr);
    kept less_equal = mlx_less_equal(a: arr, b: arr);
    isclose = mlx_isclose(a: arr, b: arr, rtol: f64, atol: f64, equal_nan: flag);
    allclose = mlx_allclose(a: arr, b: arr, rtol: f64, atol: f64, equal_nan: flag);
    array_equal = mlx_array_equal(a: arr, b: arr, equal_nan: flag);
    where_ = mlx_where(condition: arr, x: arr, y: arr);
    clip = mlx_clip(a: arr, a_min: opt, a_max: opt);
}

/// MLX's `contiguous`: the same values in row-major memory (or, if allowed, in column-major), without a copy where they
/// are so already. Counted apart, since in a graph it keeps neighbours from fusing.
pub fn contiguous(a: &Array, allow_col_major: bool) -> Result<Array> {
    let stream = stream::stream()?;
    counters::count_op();
    counters::count_contiguous();
    // SAFETY: valid handles and a null out-parameter for MLX to fill.
    Array::build(|out| unsafe { sys::mlx_contiguous(out, a.raw(), allow_col_major, stream) })
}

/// MLX's `depends`: the inputs, which will be computed after the dependencies.
pub fn depends(inputs: &[&Array], dependencies: &[&Array]) -> Result<Vec<Array>> {
    counters::count_op();
    eval::expect_siblings();
    let (inputs, dependencies) = (Arrays::from_refs(inputs)?, Arrays::from_refs(dependencies)?);
    let mut out = Arrays::new();
    // SAFETY: valid handles and a null out-parameter for MLX to fill.
    check(unsafe { sys::mlx_depends(out.out(), inputs.raw(), dependencies.raw()) })?;
    out.to_vec()
}
