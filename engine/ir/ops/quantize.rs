//! Quantisation: the row of the family, and the primitive that it makes. What reads quantised matrices is in `quantized`.

use super::macros::define_primitives;

/// The rows of the family, for `$cb`.
#[macro_export]
#[doc(hidden)]
macro_rules! quantize_ops {
    ($cb:ident) => {
        $crate::rows! { $cb "quantize" QuantizeOp :
            /// Quantises the rows of `input` (…, N, K) in groups of `group_size` neighbours to `bits` bits: packed
            /// int32 words (…, N, K·bits/32), scales and biases (…, N, K/group_size) with `input ≈ scale · q + bias`.
            /// Element `k` of a row is in its bits `k·bits` on, lowest first, as in MLX, whose results these are bit by
            /// bit. `group_size` is 32, 64 or 128; `bits` 2, 3, 4, 5, 6 or 8. What is not finite has no such form and
            /// gives numbers without meaning.
            method quantize_affine(; group_size: Int = 64, bits: Int = 4) -> Tensors {
                python: function, out: none, flags: [no_gradient, internal], amp: Own, dtypes: FLOAT, result: Same,
                primitive: Affine { format: $crate::ops::quantized::Affine }, gradient: none,
                run: quantize_body, torch: "-",
                samples: ["FIXED(N(3, 64))", "FIXED(N(2, 2, 128)), group_size=32, bits=3"],
                example: [
                    "let w = tensor([0.0, 1.0, 2.0, 3.0])?.repeat(&[16])?.reshape(&[1, 64])?;",
                    "let parts = quantize_affine(&w, 64, 4)?;",
                    "assert_eq!(parts[0].shape(), [1, 8]);",
                    "use lucid::ops::quantized::dequantize_affine;",
                    "assert_close(dequantize_affine(&parts[0], &parts[1], &parts[2], 64, 4)?, w);",
                ],
            }
        }
    };
}
quantize_ops!(define_primitives);
