//! Group-wise affine quantisation: the rows of the family, and the primitives and arguments that they make.

use super::macros::define_primitives;
use crate::primitive::Metas;
use crate::shape::Shape;
use crate::{DType, Meta};
use lucid_core::{Error, Result};

/// How a matrix is quantised: `group` neighbours of a row share a scale and a bias, each element has `bits` bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Affine {
    /// Elements that share a scale and a bias.
    pub group: usize,
    /// Bits of an element.
    pub bits: usize,
}

impl Affine {
    /// Bits that MLX's packed layout has.
    pub const BITS: [i64; 6] = [2, 3, 4, 5, 6, 8];
    /// Its group sizes.
    pub const GROUPS: [i64; 3] = [32, 64, 128];

    /// Of the arguments of an op.
    ///
    /// # Errors
    /// [`Error::InvalidValue`] for a group size or a number of bits that the format has not.
    pub fn of(op: &'static str, group: i64, bits: i64) -> Result<Affine> {
        if !Affine::GROUPS.contains(&group) {
            return Err(Error::value(op, format!("group_size must be 32, 64 or 128, got {group}")));
        }
        if !Affine::BITS.contains(&bits) {
            return Err(Error::value(op, format!("bits must be 2, 3, 4, 5, 6 or 8, got {bits}")));
        }
        Ok(Affine { group: group as usize, bits: bits as usize })
    }

    /// The words of 32 bits that a row of so many elements takes.
    pub fn words(self, elements: usize) -> usize {
        elements / 32 * self.bits
    }

    /// The results of quantising matrices (…, N, K) of this dtype: packed words, scales and biases; `None` where groups do not
    /// divide K, or there are none.
    pub fn results(self, shape: &[usize], dtype: DType) -> Option<Metas> {
        let [lead @ .., _, columns] = shape else { return None };
        if *columns == 0 || !columns.is_multiple_of(self.group) {
            return None;
        }
        let part = |size: usize, dtype: DType| {
            let mut shape = Shape::from_slice(&shape[..=lead.len()]);
            shape.push(size);
            Meta { shape, dtype }
        };
        let side = || part(columns / self.group, dtype);
        Some(Metas::from_iter([part(self.words(*columns), DType::I32), side(), side()]))
    }

    /// The elements of a row of so many words.
    pub fn elements(self, words: usize) -> usize {
        words / self.bits * 32 + words % self.bits * 32 / self.bits
    }
}

/// How the matrix of a product with rounded activations is packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(non_camel_case_types)] // ggml's names.
pub enum Packing {
    /// ggml's 4 bits, a scale for 32.
    Q4_0,
    /// ggml's 8 bits, a scale for 32.
    Q8_0,
    /// ggml's 4 bits, 6-bit scales and minimums for 32 of 256.
    Q4K,
    /// ggml's 5 bits, 6-bit scales and minimums for 32 of 256.
    Q5K,
    /// ggml's 6 bits, 8-bit scales for 16 of 256.
    Q6K,
    /// MLX's 4 bits.
    Affine4,
    /// MLX's 8 bits.
    Affine8,
}

impl Packing {
    /// Every one, with its name.
    pub const ALL: [(Packing, &'static str); 7] = [
        (Packing::Q4_0, "Q4_0"),
        (Packing::Q8_0, "Q8_0"),
        (Packing::Q4K, "Q4_K"),
        (Packing::Q5K, "Q5_K"),
        (Packing::Q6K, "Q6_K"),
        (Packing::Affine4, "affine4"),
        (Packing::Affine8, "affine8"),
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        Packing::ALL.iter().find(|(packing, _)| *packing == self).map_or("", |(_, name)| name)
    }

    /// The one of that name.
    ///
    /// # Errors
    /// [`Error::InvalidValue`] for any other.
    pub fn of(op: &'static str, text: &str) -> Result<Packing> {
        let found = Packing::ALL.iter().find(|(_, name)| *name == text).map(|(packing, _)| *packing);
        found.ok_or_else(|| {
            let names = Packing::ALL.map(|(_, name)| name).join(", ");
            Error::value(op, format!("packing must be one of {names}, got {text:?}"))
        })
    }

    /// Elements and bytes of a block of ggml's; `None` for MLX's, whose scales lie apart.
    pub fn block(self) -> Option<(usize, usize)> {
        match self {
            Packing::Q4_0 => Some((32, 18)),
            Packing::Q8_0 => Some((32, 34)),
            Packing::Q4K => Some((256, 144)),
            Packing::Q5K => Some((256, 176)),
            Packing::Q6K => Some((256, 210)),
            Packing::Affine4 | Packing::Affine8 => None,
        }
    }

    /// Bits of an element of MLX's.
    pub fn bits(self) -> usize {
        match self {
            Packing::Affine8 | Packing::Q8_0 => 8,
            Packing::Q6K => 6,
            Packing::Q5K => 5,
            Packing::Affine4 | Packing::Q4_0 | Packing::Q4K => 4,
        }
    }
}

/// The rows of the family, for `$cb`.
#[macro_export]
#[doc(hidden)]
macro_rules! quantized_ops {
    ($cb:ident) => { $crate::rows! { $cb "quantized" QuantizedOp :
        /// The matrix that [`quantize_affine`] made `w` (…, N, K·bits/32) of, but for rounding: `scale · q + bias`, in
        /// the scales' dtype. It has no gradient.
        function dequantize_affine(
            w: Tensor, scales: Tensor, biases: Tensor; group_size: Int = 64, bits: Int = 4
        ) -> Tensor {
            flags: [internal], amp: Own, dtypes: FLOAT, result: Same,
            primitive: DequantizeAffine { format: $crate::ops::quantized::Affine }, gradient: none,
            run: dequantize_body, torch: "-",
            samples: [
                "W(3, 8), FIXED(N(3, 1)), FIXED(N(3, 1))",
                "W(2, 2, 10), FIXED(N(2, 2, 2)), FIXED(N(2, 2, 2)), group_size=32, bits=5",
            ],
            example: [
                "let (scale, bias) = (tensor([[2.0]])?, tensor([[1.0]])?);",
                "let w = tensor([0x10i32, 0, 0, 0])?.cast(DType::I32)?.reshape(&[1, 4])?;",
                "assert_close(dequantize_affine(&w, &scale, &bias, 32, 4)?.narrow(1, 0, 3)?, [[1.0, 3.0, 1.0]]);",
            ],
        }
        /// The product of `x` (…, M, K) and a quantised matrix of rows (N, K), transposed: (…, M, N); with
        /// `transpose = false` of one of rows (K, N). As [`dequantize_affine`] and a matrix product, without the
        /// matrix in memory. Scales and biases have the dtype of `x` or are cast to it. `x` gets a gradient; scales or
        /// biases that require one raise in backward.
        function quantized_matmul(
            x: Tensor, w: Tensor, scales: Tensor, biases: Tensor; transpose: Bool = true, group_size: Int = 64,
            bits: Int = 4
        ) -> Tensor {
            flags: [internal], amp: Own, dtypes: FLOAT, result: Same,
            primitive: QuantizedMatmul { format: $crate::ops::quantized::Affine, transpose: bool }, saves: Rest,
            gradient: |c, g| all quantized_gradient(c, g, *format, *transpose),
            run: matmul_body, torch: "-",
            samples: [
                "N(3, 64), W(5, 8), FIXED(N(5, 1)), FIXED(N(5, 1))",
                "N(2, 1, 64), W(32, 12), FIXED(N(32, 2)), FIXED(N(32, 2)), group_size=32, bits=6",
                "N(3, 5), W(5, 16), FIXED(N(5, 1)), FIXED(N(5, 1)), transpose=False, bits=8",
            ],
            example: [
                "let w = tensor([0.0, 1.0, 2.0, 3.0])?.repeat(&[16])?.reshape(&[1, 64])?;",
                "let parts = quantize_affine(&w, 64, 4)?;",
                "let x = tensor(1.0)?.expand(&[2, 64])?;",
                "let made = quantized_matmul(&x, &parts[0], &parts[1], &parts[2], true, 64, 4)?;",
                "assert_close(made, [[96.0], [96.0]]);",
            ],
        }
        /// The product of `x` (…, M, K), rounded to 8 bits in groups of 32 that have a scale of their own, and a packed
        /// matrix of rows (N, K), transposed: (…, M, N). The CPU multiplies integers (AVX-512 VNNI, AVX2, or what the
        /// compiler makes for the machine) and reads each packed row once. With `packing` `"affine4"` or `"affine8"`
        /// the matrix is what [`quantize_affine`] gives; with `"Q4_0"`, `"Q8_0"`, `"Q4_K"`, `"Q5_K"` or `"Q6_K"`, `w`
        /// holds ggml's blocks as bytes (N, bytes of a row), without scales and biases. `x` gets the gradient of the
        /// product with the matrix as if it were not rounded. GPUs have no such kernel.
        function dynamic_quantized_matmul(
            x: Tensor, w: Tensor, packing: Text, scales: OptTensor = None, biases: OptTensor = None;
            group_size: Int = 64
        ) -> Tensor {
            flags: [internal], amp: Own, dtypes: FLOAT, result: Same,
            primitive: DynamicMatmul { packing: $crate::ops::quantized::Packing, group: usize }, saves: Rest,
            gradient: |c, g| all dynamic_gradient(c, g, *packing, *group),
            run: dynamic_body, torch: "-",
            samples: [
                "FIXED(N(3, 64)), W(5, 16), 'affine8', FIXED(N(5, 1)), FIXED(N(5, 1))",
                "FIXED(N(2, 1, 64)), W(32, 8), 'affine4', FIXED(N(32, 2)), FIXED(N(32, 2)), group_size=32",
            ],
            example: [
                "let w = tensor([0.0, 1.0, 2.0, 3.0])?.repeat(&[16])?.reshape(&[1, 64])?;",
                "let parts = quantize_affine(&w, 64, 4)?;",
                "let x = tensor(1.0)?.expand(&[2, 64])?;",
                r#"let made = dynamic_quantized_matmul(&x, &parts[0], Packing::Affine4, Some(&parts[1]), Some(&parts[2]), 64)?;"#,
                "assert_close(made, [[96.0], [96.0]]);",
            ],
        }
        /// Products of chosen pairs, as a mixture of experts takes them: `x` (…, M, K) and quantised matrices `w`
        /// (E, N, K·bits/32) give, for each pair of `lhs_indices` (into the leading dimensions of `x` as one; all of
        /// them where it is left out) and `rhs_indices` (into E), which broadcast, the [`quantized_matmul`] of that
        /// pair: (*indices, M, N). `x` gets a gradient.
        function gather_qmm(
            x: Tensor, w: Tensor, scales: Tensor, biases: Tensor, rhs_indices: Tensor, lhs_indices: OptTensor = None;
            transpose: Bool = true, group_size: Int = 64, bits: Int = 4
        ) -> Tensor {
            flags: [internal], amp: Own, dtypes: FLOAT, result: Same,
            primitive: GatherQmm { format: $crate::ops::quantized::Affine, transpose: bool }, saves: Rest,
            gradient: |c, g| all gather_gradient(c, g, *format, *transpose),
            run: gather_body, torch: "-",
            samples: [
                "N(3, 2, 64), W(4, 5, 8), FIXED(N(4, 5, 1)), FIXED(N(4, 5, 1)), I(0, 4, 6), I(0, 3, 6)",
                "N(3, 1, 64), W(2, 32, 8), FIXED(N(2, 32, 1)), FIXED(N(2, 32, 1)), I(0, 2, 3)",
            ],
            example: [
                "let w = tensor([0.0, 1.0, 2.0, 3.0])?.repeat(&[32])?.reshape(&[2, 1, 64])?;",
                "let parts = quantize_affine(&w, 64, 4)?;",
                "let x = tensor(1.0)?.expand(&[1, 1, 64])?;",
                "let made = gather_qmm(&x, &parts[0], &parts[1], &parts[2], &tensor([1])?, None, true, 64, 4)?;",
                "assert_close(made, [[[96.0]]]);",
            ],
        }
    }};
}
quantized_ops!(define_primitives);
