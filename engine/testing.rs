//! Assertions about tensors, for tests and examples.

use crate::literal::{on_cpu, Nested};
use crate::{DType, Device, Result, Tensor};
use std::borrow::Borrow;

/// What a tensor is compared with: another tensor, or numbers as [`tensor`](fn@crate::tensor) takes them.
pub trait Expected {
    /// As a tensor on the CPU. Numbers written without a type are of the width that `actual` has, if they are of its kind.
    ///
    /// # Errors
    /// Where there is no room for it.
    fn on_cpu(&self, actual: &Tensor) -> Result<Tensor>;
}

impl<N: Nested> Expected for N {
    fn on_cpu(&self, actual: &Tensor) -> Result<Tensor> {
        let made = on_cpu(self)?;
        match N::PLAIN && made.dtype().category() == actual.dtype().category() {
            true => made.cast(actual.dtype()),
            false => Ok(made),
        }
    }
}

impl Expected for Tensor {
    fn on_cpu(&self, actual: &Tensor) -> Result<Tensor> {
        Expected::on_cpu(&self, actual)
    }
}

impl Expected for &Tensor {
    fn on_cpu(&self, _: &Tensor) -> Result<Tensor> {
        self.detach()?.to_device(Device::Cpu)
    }
}

/// Checks that a tensor has the shape, the dtype and the numbers expected, the last as near as `torch.testing.assert_close`
/// wants them: `|actual - expected| <= atol + rtol |expected|`, with `atol` 1e-5 and `rtol` 1.3e-6 for float32 and
/// complex64, 1e-7 both for float64, 1e-5 and 1e-3 for float16, 1e-5 and 1.6e-2 for bfloat16; integers and `bool` must be
/// equal. NaN is equal to NaN here. Devices may differ. Evaluates.
///
/// # Panics
/// Where they differ, with the first number that does.
///
/// # Examples
/// ```
/// use lucid::{tensor, testing::assert_close};
/// let x = tensor([[1.0, 2.0], [3.0, 4.0]])?;
/// assert_close(x.sqrt()?, [[1.0, 1.41421], [1.73205, 2.0]]);
/// assert_close(x.sum(None, false, None)?, 10.0);
/// # lucid::Result::<()>::Ok(())
/// ```
#[track_caller]
#[allow(clippy::panic)] // That is what an assertion does.
pub fn assert_close(actual: impl Borrow<Tensor>, expected: impl Expected) {
    match difference(actual.borrow(), &expected) {
        Ok(None) => {}
        Ok(Some(why)) => panic!("{why}"),
        Err(error) => panic!("{error}"),
    }
}

/// How far numbers of a dtype may be apart: `rtol` and `atol`.
fn tolerance(dtype: DType) -> (f64, f64) {
    match dtype {
        DType::F16 => (1e-3, 1e-5),
        DType::BF16 => (1.6e-2, 1e-5),
        DType::F32 | DType::C64 => (1.3e-6, 1e-5),
        DType::F64 | DType::C128 => (1e-7, 1e-7),
        DType::Bool | DType::U8 | DType::I8 | DType::I16 | DType::I32 | DType::I64 => (0.0, 0.0),
        DType::U16 | DType::U32 | DType::U64 | DType::F8E4M3FN | DType::F8E5M2 => (0.0, 0.0),
    }
}

fn difference(actual: &Tensor, expected: &impl Expected) -> Result<Option<String>> {
    let expected = expected.on_cpu(actual)?;
    if actual.shape() != expected.shape() || actual.dtype() != expected.dtype() {
        return Ok(Some(format!("{actual:?} is expected to be {expected:?}")));
    }
    let actual = actual.detach()?.to_device(Device::Cpu)?.reshape(&[-1])?;
    let expected = expected.reshape(&[-1])?;
    let (rtol, atol) = tolerance(actual.dtype());
    let close = actual.isclose(&expected, rtol, atol, true)?.to_vec::<bool>()?;
    let Some(first) = close.iter().position(|close| !close) else { return Ok(None) };
    let at = |x: &Tensor| x.select(0, first as i64)?.item();
    let (wrong, all) = (close.iter().filter(|close| !**close).count(), close.len());
    let (actual, expected) = (at(&actual)?, at(&expected)?);
    Ok(Some(format!("element {first} in row-major order is {actual}, not {expected}; {wrong} of {all} differ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor;

    fn says(actual: &Tensor, expected: impl Expected, part: &str) {
        let why = difference(actual, &expected).unwrap().expect("a difference");
        assert!(why.contains(part), "{why}");
    }

    #[test]
    fn differences_are_seen() {
        let x = tensor([[1.0, 2.0], [3.0, f64::NAN]]).unwrap();
        assert_close(&x, [[1.0, 2.000_01], [3.0, f64::NAN]]);
        assert_close(&x, &x);
        says(&x, [[1.0, 2.0], [3.5, f64::NAN]], "element 2 in row-major order is 3, not 3.5; 1 of 4 differ");
        says(&x, [[1.0, 2.0], [3.0, 4.0]], "is NaN, not 4");
        says(&x, [1.0, 2.0], "[2, 2] float32 cpu is expected to be tensor([1., 2.]) [2] float32");
        says(&x, [[1, 2], [3, 4]], "int64");
        says(&x.cast(DType::F64).unwrap(), &x, "float64");
        says(&tensor(3).unwrap(), 4, "is 3, not 4");
        says(&tensor([1u8, 2]).unwrap(), [1i64, 2], "uint8");
        says(&tensor([true, false]).unwrap(), [true, true], "is false, not true");
        says(&tensor((1.0, 2.0)).unwrap(), (1.0, 2.1), "is (1+2j)");
    }

    #[test]
    fn plain_numbers_have_any_width() {
        for dtype in [DType::U8, DType::I16, DType::I32, DType::I64] {
            assert_close(tensor([1, 2]).unwrap().cast(dtype).unwrap(), [1, 2]);
        }
        for dtype in [DType::F16, DType::BF16, DType::F32, DType::F64] {
            assert_close(tensor([0.5, 2.0]).unwrap().cast(dtype).unwrap(), [0.5, 2.0]);
        }
        assert_close(tensor([[0.0; 0]; 3]).unwrap(), [[0.0; 0]; 3]);
    }
}
