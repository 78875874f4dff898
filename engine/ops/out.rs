//! Which dtypes `out=` takes, of the ops where in PyTorch that depends on the arguments: a row with the flag `out_rule` has the
//! function of its name here.
//!
//! Most of it tells whether PyTorch's own path copies the result into `out`, and so casts, or computes in it.

use crate::{DType, Tensor};

/// What a rule sees of an argument.
#[derive(Clone, Debug, PartialEq)]
pub enum Given {
    /// It was left out, or None.
    Missing,
    /// An integer.
    Int(i64),
    /// A tensor.
    Tensor {
        /// Its dtype.
        dtype: DType,
        /// Its number of dimensions.
        ndim: usize,
    },
    /// So many tensors.
    Tensors(usize),
    /// Anything else.
    Other,
}

impl Given {
    /// What a rule sees of a tensor.
    pub fn tensor(t: &Tensor) -> Given {
        Given::Tensor { dtype: t.dtype(), ndim: t.ndim() }
    }

    fn is_complex(&self) -> bool {
        matches!(self, Given::Tensor { dtype, .. } if dtype.is_complex())
    }
}

/// May the result `made` be written to a tensor of this dtype, for these arguments?
pub type Rule = fn(&[Given], &Tensor, DType) -> bool;

fn own(made: &Tensor, out: DType) -> bool {
    made.dtype() == out
}

/// The result's own dtype, or where PyTorch copies what it can be cast to.
fn copied_if(copies: bool, made: &Tensor, out: DType) -> bool {
    own(made, out) || copies && made.dtype().can_cast(out)
}

pub(super) fn lerp(given: &[Given], made: &Tensor, out: DType) -> bool {
    copied_if(!matches!(given.get(2), Some(Given::Tensor { ndim: 1.., .. })), made, out)
}

pub(super) fn clamp(given: &[Given], made: &Tensor, out: DType) -> bool {
    copied_if(given.iter().skip(1).any(|g| matches!(g, Given::Tensor { .. })), made, out)
}

pub(super) fn clamp_min(given: &[Given], made: &Tensor, out: DType) -> bool {
    clamp(given, made, out)
}

pub(super) fn clamp_max(given: &[Given], made: &Tensor, out: DType) -> bool {
    clamp(given, made, out)
}

/// Sizes of complex numbers are copied, to complex ones of the same dtype alone.
pub(super) fn abs(given: &[Given], made: &Tensor, out: DType) -> bool {
    let same = |g: &Given| matches!(g, Given::Tensor { dtype, .. } if *dtype == out);
    copied_if(given.iter().any(|g| g.is_complex() && (!out.is_complex() || same(g))), made, out)
}

/// One number is filled in; several are computed in `out`, which then must be real.
pub(super) fn var(given: &[Given], made: &Tensor, out: DType) -> bool {
    let complex = given.iter().any(Given::is_complex);
    match made.numel() == 1 && !complex {
        true => copied_if(made.dtype().size() > 2, made, out),
        false => made.dtype().can_cast(out) && (complex || !out.is_complex()),
    }
}

pub(super) fn std(given: &[Given], made: &Tensor, out: DType) -> bool {
    var(given, made, out)
}

/// Sums of integers are made in any dtype, those of floats in a float.
pub(super) fn nansum(given: &[Given], _made: &Tensor, out: DType) -> bool {
    matches!(given.first(), Some(Given::Tensor { dtype, .. }) if dtype.is_integral()) || out.is_float()
}

pub(super) fn nanmean(_given: &[Given], _made: &Tensor, out: DType) -> bool {
    out.is_float()
}

/// Along dimensions the mean is made in `out`'s dtype; of all it is divided there, which must hold complex numbers.
pub(super) fn mean(given: &[Given], _made: &Tensor, out: DType) -> bool {
    let of_all = given.get(1).is_none_or(|g| *g == Given::Missing);
    out.is_complex() || out.is_float() && !(of_all && given.iter().any(Given::is_complex))
}

pub(super) fn logsumexp(_given: &[Given], _made: &Tensor, out: DType) -> bool {
    out.is_float() || out.is_complex()
}

pub(super) fn any(_given: &[Given], _made: &Tensor, out: DType) -> bool {
    matches!(out, DType::Bool | DType::U8)
}

pub(super) fn all(given: &[Given], made: &Tensor, out: DType) -> bool {
    any(given, made, out)
}

pub(super) fn diff(given: &[Given], made: &Tensor, out: DType) -> bool {
    copied_if(given.get(1) != Some(&Given::Int(0)), made, out)
}

pub(super) fn inner(given: &[Given], made: &Tensor, out: DType) -> bool {
    copied_if(given.iter().any(|g| matches!(g, Given::Tensor { ndim: 0, .. })), made, out)
}

/// One matrix is copied as it is.
pub(super) fn chain_matmul(given: &[Given], made: &Tensor, out: DType) -> bool {
    given == [Given::Tensors(1)] || own(made, out)
}

/// Powers of 0 and 1, and those of 4, 8 and so on, are copied; the others' last product is written to `out`.
pub(super) fn matrix_power(given: &[Given], made: &Tensor, out: DType) -> bool {
    let copies = |n: u64| n <= 1 || n >= 4 && n.is_power_of_two();
    copied_if(matches!(given.get(1), Some(Given::Int(n)) if *n >= 0 && copies(n.unsigned_abs())), made, out)
}

pub(super) fn linalg_matrix_power(given: &[Given], made: &Tensor, out: DType) -> bool {
    matrix_power(given, made, out)
}

/// Zeros and ones are written in any real dtype.
pub(super) fn bernoulli(_given: &[Given], _made: &Tensor, out: DType) -> bool {
    !out.is_complex()
}

/// What was made is copied, whatever the dtype.
pub(super) fn lu(_given: &[Given], _made: &Tensor, _out: DType) -> bool {
    true
}

/// Transforms are computed in their own dtype and copied to `out`, which is complex as they are, or real.
macro_rules! transform_rules {
    ($complex:literal: $($name:ident)*) => {
        $(pub(super) fn $name(_given: &[Given], _made: &Tensor, out: DType) -> bool {
            if $complex { out.is_complex() } else { out.is_float() }
        })*
    };
}
transform_rules! { true:
    fft_fft fft_ifft fft_rfft fft_ihfft fft_fft2 fft_ifft2 fft_rfft2 fft_ihfft2 fft_fftn fft_ifftn fft_rfftn fft_ihfftn
}
transform_rules! { false: fft_irfft fft_hfft fft_irfft2 fft_hfft2 fft_irfftn fft_hfftn }
