//! Short forms of what Rust programs write most, on the default device and in the default dtype.

use crate::nn::Approximate;
use crate::ops::{create, nn, random, DimList, Integer};
use crate::{Device, Element, Result, Scalar, Tensor};

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

    /// One number everywhere.
    ///
    /// # Errors
    /// For negative sizes, and where there is no room.
    pub fn full<'a>(shape: impl Into<DimList<'a>>, value: impl Into<Scalar>) -> Result<Tensor> {
        create::full(shape, value, None, None)
    }

    /// The identity matrix of `n` rows.
    ///
    /// # Errors
    /// For a negative number, and where there is no room.
    pub fn eye(n: impl Integer) -> Result<Tensor> {
        create::eye(n, None, None, None)
    }

    /// `steps` numbers from `start` to `end`, both included, evenly apart.
    ///
    /// # Errors
    /// For a negative number of steps, and where there is no room.
    pub fn linspace(start: f64, end: f64, steps: impl Integer) -> Result<Tensor> {
        create::linspace(start, end, steps, None, None)
    }

    /// Random whole numbers from `low` to before `high`.
    ///
    /// # Errors
    /// Where `high` is not above `low`, and for negative sizes.
    pub fn randint<'a>(low: impl Integer, high: impl Integer, shape: impl Into<DimList<'a>>) -> Result<Tensor> {
        random::randint(low.wide(), high.wide(), shape, None, None, None)
    }

    /// Normal numbers in this tensor's shape and dtype, and on its device.
    ///
    /// # Errors
    /// For dtypes that are not floating.
    pub fn randn_like(&self) -> Result<Tensor> {
        random::randn_like(self, None, None, None, None)
    }

    /// Ones in this tensor's shape and dtype, and on its device.
    ///
    /// # Errors
    /// Where the device has no room.
    pub fn ones_like(&self) -> Result<Tensor> {
        Tensor::full_of(self.shape(), 1.into(), self.dtype(), self.device())
    }

    /// A tensor of the given elements, in row-major order.
    ///
    /// ```
    /// use lucid::{Device, Tensor};
    /// let x = Tensor::from_vec(vec![1f32, 2.0, 3.0, 4.0, 5.0, 6.0], (2, 3), Device::Cpu)?;
    /// assert_eq!(x.size(-1)?, 3);
    /// assert_eq!(x.to_vec2::<f32>()?, [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]);
    /// # lucid::Result::<()>::Ok(())
    /// ```
    ///
    /// # Errors
    /// Where the number of elements is not the shape's, or the device has not the dtype or no room.
    pub fn from_vec<'a, T: Element>(data: Vec<T>, shape: impl Into<DimList<'a>>, device: Device) -> Result<Tensor> {
        let sizes = create::sizes("tensor", &shape.into())?;
        Tensor::of_elements(&data, &sizes, device)
    }

    /// Whole numbers from `start` to before `end`.
    ///
    /// # Errors
    /// Where `end` is before `start`.
    pub fn arange(start: impl Integer, end: impl Integer) -> Result<Tensor> {
        create::arange(start.wide(), Some(Scalar::Int(end.wide())), 1, None, None)
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
        nn::gelu(self, Approximate::None)
    }

    /// The size of a dimension, counted from the end where negative.
    ///
    /// # Errors
    /// For a dimension that is not there.
    pub fn size(&self, dim: impl Integer) -> Result<usize> {
        let axis = crate::shape::wrap_dim("size", dim.wide() as isize, self.ndim())?;
        let found = self.shape().get(axis).copied();
        found.ok_or_else(|| crate::Error::index("size", "a tensor of one number has no dimensions"))
    }

    /// The only element as a number of Rust. Evaluates.
    ///
    /// ```
    /// use lucid::tensor;
    /// assert_eq!(tensor!([2.5])?.to_scalar::<f32>()?, 2.5);
    /// assert_eq!(tensor!([1, 2])?.sum_all()?.to_scalar::<i64>()?, 3);
    /// assert!(tensor!([1, 2])?.to_scalar::<i64>().is_err());
    /// # lucid::Result::<()>::Ok(())
    /// ```
    ///
    /// # Errors
    /// Where there is not exactly one element, or its dtype is another.
    pub fn to_scalar<T: Element>(&self) -> Result<T> {
        self.item()?;
        let one = self.to_vec::<T>()?.into_iter().next();
        one.ok_or_else(|| crate::Error::runtime("to_scalar", "there is no element"))
    }

    /// The only element as a whole number. Evaluates.
    ///
    /// # Errors
    /// Where there is not exactly one element, or it is no whole number.
    pub fn item_i64(&self) -> Result<i64> {
        let found = self.item()?;
        let whole = match found {
            Scalar::Bool(b) => Some(b.into()),
            Scalar::Int(n) => Some(n),
            Scalar::Float(x) if x.fract() == 0.0 && x.abs() < 9e15 => Some(x as i64),
            _ => None,
        };
        whole.ok_or_else(|| crate::Error::runtime("item", format!("{found} is no whole number; item_f64 gives others")))
    }

    /// The rows of a matrix. Evaluates.
    ///
    /// # Errors
    /// For other than two dimensions, and where the dtype is another.
    pub fn to_vec2<T: Element>(&self) -> Result<Vec<Vec<T>>> {
        let &[rows, columns] = self.shape() else {
            return Err(crate::Error::shape("to_vec2", "expected a matrix", &[self.shape()]));
        };
        let all = self.to_vec::<T>()?;
        (0..rows).map(|i| crate::fallible::copied(&all[i * columns..(i + 1) * columns])).collect()
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
