//! Contractions: matrix products, convolutions (channels last), quantised products, transforms.
//! Depends on the wrapping macro and on kept primitives; the macro's invariant holds here.

use crate::call::wrap;
use crate::primitive::Kept;
use crate::{sys, Array, Result};

/// The shape of a product of matrices that fit, neither of them empty.
fn product(a: &Array, b: &Array) -> Option<[i32; 2]> {
    match (a.shape(), b.shape()) {
        (&[rows, inner], &[same, columns]) if inner == same && [rows, inner, columns].iter().all(|&n| n > 0) => {
            Some([rows, columns])
        }
        _ => None,
    }
}

/// MLX's `matmul`.
pub fn matmul(a: &Array, b: &Array) -> Result<Array> {
    static KEPT: Kept = Kept::new();
    let shape = product(a, b);
    // SAFETY: valid handles and a null out-parameter for MLX to fill.
    KEPT.shaped([a, b], shape.as_ref().map(|s| s.as_slice()), |out, stream| unsafe {
        sys::mlx_matmul(out, a.raw(), b.raw(), stream)
    })
}

/// MLX's `addmm` with factors of 1: `c + a b`.
pub fn addmm(c: &Array, a: &Array, b: &Array) -> Result<Array> {
    static KEPT: Kept = Kept::new();
    let shape = product(a, b).filter(|s| c.shape() == s);
    // SAFETY: valid handles and a null out-parameter for MLX to fill.
    KEPT.shaped([a, b, c], shape.as_ref().map(|s| s.as_slice()), |out, stream| unsafe {
        sys::mlx_addmm(out, c.raw(), a.raw(), b.raw(), 1.0, 1.0, stream)
    })
}

wrap! {
    inner = mlx_inner(a: arr, b: arr);
    outer = mlx_outer(a: arr, b: arr);
    vecdot = mlx_vecdot(a: arr, b: arr, axis: int);
    tensordot = mlx_tensordot(a: arr, b: arr, axes_a: ints, axes_b: ints);
    tensordot_axis = mlx_tensordot_axis(a: arr, b: arr, axis: int);
    einsum = mlx_einsum(subscripts: text, operands: arrs);
    kron = mlx_kron(a: arr, b: arr);
    block_masked_mm = mlx_block_masked_mm(a: arr, b: arr, block_size: int, mask_out: opt, mask_lhs: opt, mask_rhs: opt);
    gather_mm = mlx_gather_mm(a: arr, b: arr, lhs_indices: opt, rhs_indices: opt, sorted_indices: flag);
    segmented_mm = mlx_segmented_mm(a: arr, b: arr, segments: arr);
    hadamard_transform = mlx_hadamard_transform(a: arr, scale: oflt);
    conv1d = mlx_conv1d(input: arr, weight: arr, stride: int, padding: int, dilation: int, groups: int);
    conv2d = mlx_conv2d(input: arr, weight: arr, stride_0: int, stride_1: int, padding_0: int, padding_1: int, dilation_0: int, dilation_1: int, groups: int);
    conv3d = mlx_conv3d(input: arr, weight: arr, stride_0: int, stride_1: int, stride_2: int, padding_0: int, padding_1: int, padding_2: int, dilation_0: int, dilation_1: int, dilation_2: int, groups: int);
    conv_general = mlx_conv_general(input: arr, weight: arr, stride: ints, padding_lo: ints, padding_hi: ints, kernel_dilation: ints, input_dilation: ints, groups: int, flip: flag);
    conv_transpose1d = mlx_conv_transpose1d(input: arr, weight: arr, stride: int, padding: int, dilation: int, output_padding: int, groups: int);
    conv_transpose2d = mlx_conv_transpose2d(input: arr, weight: arr, stride_0: int, stride_1: int, padding_0: int, padding_1: int, dilation_0: int, dilation_1: int, output_padding_0: int, output_padding_1: int, groups: int);
    conv_transpose3d = mlx_conv_transpose3d(input: arr, weight: arr, stride_0: int, stride_1: int, stride_2: int, padding_0: int, padding_1: int, padding_2: int, dilation_0: int, dilation_1: int, dilation_2: int, output_padding_0: int, output_padding_1: int, output_padding_2: int, groups: int);
    vec quantize = mlx_quantize(w: arr, group_size: oint, bits: oint, mode: text, global_scale: opt);
    dequantize = mlx_dequantize(w: arr, scales: arr, biases: opt, group_size: oint, bits: oint, mode: text, global_scale: opt, dtype: odt);
    quantized_matmul = mlx_quantized_matmul(x: arr, w: arr, scales: arr, biases: opt, transpose: flag, group_size: oint, bits: oint, mode: text);
    gather_qmm = mlx_gather_qmm(x: arr, w: arr, scales: arr, biases: opt, lhs_indices: opt, rhs_indices: opt, transpose: flag, group_size: oint, bits: oint, mode: text, sorted_indices: flag);
    qqmm = mlx_qqmm(x: arr, w: arr, w_scales: opt, group_size: oint, bits: oint, mode: text, global_scale_x: opt, global_scale_w: opt);
    gather_qqmm = mlx_gather_qqmm(x: arr, w: arr, scales_w: opt, lhs_indices: opt, rhs_indices: opt, group_size: oint, bits: oint, mode: text, global_scale_x: opt, global_scale_w: opt, sorted_indices: flag);
}
