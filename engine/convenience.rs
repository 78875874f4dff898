//! Short forms of what Rust programs write most, on the default device and in the default dtype.

use crate::ops::{create, nn, random, DimList};
use crate::{Device, Result, Scalar, Tensor};

/// A tensor of numbers in nested arrays; a device may follow.
///
/// ```
/// use lucid::{tensor, Device};
/// assert_eq!(tensor!([[1.0, 2.0], [3.0, 4.0]])?.shape(), [2, 2]);
/// assert_eq!(tensor!([1, 2], Device::Cpu)?.to_vec::<i64>()?, [1, 2]);
/// # lucid::Result::<()>::Ok(())
/// ```
#[macro_export]
macro_rules! tensor {
    ($numbers:expr) => {
        $crate::tensor($numbers)
    };
    ($numbers:expr, $device:expr) => {
        $crate::tensor($numbers).and_then(|t: $crate::Tensor| t.to_device($device))
    };
}

/// Sizes of several integer types, as ops take them; an array will do where they are of one.
///
/// ```
/// use lucid::{dims, tensor};
/// let n: usize = 2;
/// assert_eq!(tensor!([[1, 2], [3, 4]])?.reshape(dims![n * 2, -1])?.shape(), [4, 1]);
/// # lucid::Result::<()>::Ok(())
/// ```
#[macro_export]
macro_rules! dims {
    ($($size:expr),* $(,)?) => {
        (&[$(($size) as isize),*] as &[isize])
    };
}

/// Dimensions as the reductions take them.
fn list<'a>(dims: impl Into<DimList<'a>>) -> DimList<'a> {
    dims.into()
}

impl Tensor {
    /// Zeros.
    ///
    /// # Errors
    /// For negative sizes, and where there is no room.
    pub fn zeros<'a>(shape: impl Into<DimList<'a>>) -> Result<Tensor> {
        create::zeros(shape, None, None)
    }

    /// Ones.
    ///
    /// # Errors
    /// For negative sizes, and where there is no room.
    pub fn ones<'a>(shape: impl Into<DimList<'a>>) -> Result<Tensor> {
        create::ones(shape, None, None)
    }

    /// Normal numbers.
    ///
    /// # Errors
    /// For negative sizes, and where there is no room.
    pub fn randn<'a>(shape: impl Into<DimList<'a>>) -> Result<Tensor> {
        random::randn(shape, None, None, None)
    }

    /// Numbers uniform in 0 to 1.
    ///
    /// # Errors
    /// For negative sizes, and where there is no room.
    pub fn rand<'a>(shape: impl Into<DimList<'a>>) -> Result<Tensor> {
        random::rand(shape, None, None, None)
    }

    /// Whole numbers from `start` to before `end`.
    ///
    /// # Errors
    /// Where `end` is before `start`.
    pub fn arange(start: i64, end: i64) -> Result<Tensor> {
        create::arange(start, Some(Scalar::Int(end)), 1, None, None)
    }

    /// The sum of all elements.
    ///
    /// # Errors
    /// What [`sum`](Tensor::sum) reports.
    pub fn sum_all(&self) -> Result<Tensor> {
        self.sum(None, false, None)
    }

    /// The mean of all elements.
    ///
    /// # Errors
    /// What [`mean`](Tensor::mean) reports.
    pub fn mean_all(&self) -> Result<Tensor> {
        self.mean(None, false, None)
    }

    /// The sum over these dimensions, which are left out of the result.
    ///
    /// ```
    /// use lucid::{tensor, testing::assert_close};
    /// let x = tensor!([[1.0, 2.0], [3.0, 4.0]])?;
    /// assert_close(x.sum_over(0)?, [4.0, 6.0]);
    /// assert_close(x.sum_over([0, 1])?, 10.0);
    /// assert_close(x.mean_over(-1)?, [1.5, 3.5]);
    /// assert_close((&x - x.max_keepdim(1)?)?, [[-1.0, 0.0], [-1.0, 0.0]]);
    /// assert_close(x.max_all()?, 4.0);
    /// # lucid::Result::<()>::Ok(())
    /// ```
    ///
    /// # Errors
    /// For a dimension that is not there.
    pub fn sum_over<'a>(&self, dims: impl Into<DimList<'a>>) -> Result<Tensor> {
        self.sum(Some(&list(dims)), false, None)
    }

    /// The mean over these dimensions, which are left out of the result.
    ///
    /// # Errors
    /// For a dimension that is not there.
    pub fn mean_over<'a>(&self, dims: impl Into<DimList<'a>>) -> Result<Tensor> {
        self.mean(Some(&list(dims)), false, None)
    }

    /// The sum over these dimensions, which stay with size 1.
    ///
    /// # Errors
    /// For a dimension that is not there.
    pub fn sum_keepdim<'a>(&self, dims: impl Into<DimList<'a>>) -> Result<Tensor> {
        self.sum(Some(&list(dims)), true, None)
    }

    /// The mean over these dimensions, which stay with size 1.
    ///
    /// # Errors
    /// For a dimension that is not there.
    pub fn mean_keepdim<'a>(&self, dims: impl Into<DimList<'a>>) -> Result<Tensor> {
        self.mean(Some(&list(dims)), true, None)
    }

    /// The largest elements over these dimensions, which are left out of the result.
    ///
    /// # Errors
    /// For a dimension that is not there, or has no element.
    pub fn max_over<'a>(&self, dims: impl Into<DimList<'a>>) -> Result<Tensor> {
        self.amax(Some(&list(dims)), false)
    }

    /// The least elements over these dimensions, which are left out of the result.
    ///
    /// # Errors
    /// For a dimension that is not there, or has no element.
    pub fn min_over<'a>(&self, dims: impl Into<DimList<'a>>) -> Result<Tensor> {
        self.amin(Some(&list(dims)), false)
    }

    /// The largest elements over these dimensions, which stay with size 1.
    ///
    /// # Errors
    /// For a dimension that is not there, or has no element.
    pub fn max_keepdim<'a>(&self, dims: impl Into<DimList<'a>>) -> Result<Tensor> {
        self.amax(Some(&list(dims)), true)
    }

    /// The least elements over these dimensions, which stay with size 1.
    ///
    /// # Errors
    /// For a dimension that is not there, or has no element.
    pub fn min_keepdim<'a>(&self, dims: impl Into<DimList<'a>>) -> Result<Tensor> {
        self.amin(Some(&list(dims)), true)
    }

    /// The largest of all elements.
    ///
    /// # Errors
    /// Where there is none.
    pub fn max_all(&self) -> Result<Tensor> {
        self.amax(None, false)
    }

    /// The least of all elements.
    ///
    /// # Errors
    /// Where there is none.
    pub fn min_all(&self) -> Result<Tensor> {
        self.amin(None, false)
    }

    /// `x Φ(x)`, by the error function.
    ///
    /// # Errors
    /// For dtypes that are not floating.
    pub fn gelu(&self) -> Result<Tensor> {
        nn::gelu(self, "none")
    }

    /// The tensor on a device; itself where it is there.
    ///
    /// # Errors
    /// Where the device has no room, or not the dtype.
    pub fn to(&self, device: Device) -> Result<Tensor> {
        if self.device() == device {
            Ok(self.clone())
        } else {
            self.to_device(device)
        }
    }
}
