//! Pooling layers.

use super::module::located;
use super::{Forward, Module, Place, Size};
use crate::fallible::collected;
use crate::ops::{index, order, pool};
use crate::shape::numel;
use crate::{Error, Result, Tensor};

fn no_such<T>(n: usize) -> Result<T> {
    Err(Error::value("pool", format!("pools have 1 to 3 dimensions, not {n}")))
}

/// The fields and setters that pools share.
macro_rules! pools {
    ($($(#[$doc:meta])* $Name:ident { $($(#[$fdoc:meta])* $field:ident: $Ty:ty, $Arg:ty = $default:expr;)* })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug, Module)]
        pub struct $Name<const N: usize> {
            #[module(skip)]
            kernel_size: Size<N>,
            #[module(skip)]
            stride: Option<Size<N>>,
            $(#[module(skip)] $field: $Ty,)*
            place: Place,
        }

        impl<const N: usize> $Name<N> {
            /// Over windows of this size, which do not overlap.
            pub fn new(kernel_size: impl Into<Size<N>>) -> Self {
                $Name { kernel_size: kernel_size.into(), stride: None, $($field: $default,)* place: Place::default() }
            }
            /// Steps between windows. Default: the window's size.
            #[must_use]
            pub fn stride(mut self, stride: impl Into<Size<N>>) -> Self {
                self.stride = Some(stride.into());
                self
            }
            $($(#[$fdoc])*
            #[must_use]
            pub fn $field(mut self, $field: $Arg) -> Self {
                self.$field = $field.into();
                self
            })*
        }
    )*};
}

pools! {
    /// The largest element of each window.
    MaxPool {
        /// What is added at both ends, and never the largest. Default: 0.
        padding: Size<N>, impl Into<Size<N>> = Size([0; N]);
        /// Steps between a window's elements. Default: 1.
        dilation: Size<N>, impl Into<Size<N>> = Size([1; N]);
        /// May the last window hang over? Default: false.
        ceil_mode: bool, bool = false;
    }
    /// The mean of each window.
    AvgPool {
        /// Zeros added at both ends. Default: 0.
        padding: Size<N>, impl Into<Size<N>> = Size([0; N]);
        /// May the last window hang over? Default: false.
        ceil_mode: bool, bool = false;
        /// Do padding zeros count in the mean? Default: true.
        count_include_pad: bool, bool = true;
        /// What the sums are divided by, instead of their counts. Default: `None`.
        divisor: Option<i64>, i64 = None;
    }
    /// `(Σ xᵖ)^(1/p)` over each window.
    LpPool {
        /// p. Default: 2.
        norm_type: f64, f64 = 2.0;
        /// May the last window hang over? Default: false.
        ceil_mode: bool, bool = false;
    }
    /// Puts what [`MaxPool::with_indices`] picked back where it was, among zeros.
    MaxUnpool {
        /// What the pool padded. Default: 0.
        padding: Size<N>, impl Into<Size<N>> = Size([0; N]);
    }
}

/// Over (…, length).
pub type MaxPool1d = MaxPool<1>;
/// Over (…, height, width).
pub type MaxPool2d = MaxPool<2>;
/// Over (…, depth, height, width).
pub type MaxPool3d = MaxPool<3>;
/// Over (…, length).
pub type AvgPool1d = AvgPool<1>;
/// Over (…, height, width).
pub type AvgPool2d = AvgPool<2>;
/// Over (…, depth, height, width).
pub type AvgPool3d = AvgPool<3>;
/// Over (…, length).
pub type LpPool1d = LpPool<1>;
/// Over (…, height, width).
pub type LpPool2d = LpPool<2>;
/// Over (…, depth, height, width).
pub type LpPool3d = LpPool<3>;
/// Over (…, length).
pub type MaxUnpool1d = MaxUnpool<1>;
/// Over (…, height, width).
pub type MaxUnpool2d = MaxUnpool<2>;
/// Over (…, depth, height, width).
pub type MaxUnpool3d = MaxUnpool<3>;

impl<const N: usize> MaxPool<N> {
    /// The maxima, and their flat places in the space of each channel, for [`MaxUnpool`].
    ///
    /// # Errors
    /// For shapes that do not fit.
    pub fn with_indices(&self, x: &Tensor) -> Result<(Tensor, Tensor)> {
        located(self, || {
            let (kernel, padding, dilation) =
                (self.kernel_size.signed(), self.padding.signed(), self.dilation.signed());
            let stride = self.stride.map(|s| s.signed()).unwrap_or(kernel);
            pool::max_pool_with_indices(N, x, &kernel, &stride, &padding, &dilation, self.ceil_mode)
        })
    }
}

impl<const N: usize> Forward for MaxPool<N> {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        located(self, || {
            let run = match N {
                1 => pool::max_pool1d,
                2 => pool::max_pool2d,
                3 => pool::max_pool3d,
                _ => return no_such(N),
            };
            let (kernel, padding, dilation) =
                (self.kernel_size.signed(), self.padding.signed(), self.dilation.signed());
            let stride = self.stride.map(|s| s.signed());
            run(x, &kernel, stride.as_ref().map(|s| &s[..]), &padding, &dilation, self.ceil_mode)
        })
    }
}

fn average<const N: usize>(
    x: &Tensor,
    kernel: &Size<N>,
    stride: &Option<Size<N>>,
    padding: &Size<N>,
    (ceil, include): (bool, bool),
    divisor: Option<i64>,
) -> Result<Tensor> {
    let (kernel, stride, padding) = (kernel.signed(), stride.map(|s| s.signed()), padding.signed());
    let stride = stride.as_ref().map(|s| &s[..]);
    match N {
        1 if divisor.is_none() => pool::avg_pool1d(x, &kernel, stride, &padding, ceil, include),
        1 => {
            Err(Error::value("avg_pool1d", "sequences are divided by their counts; divisor is for 2 and 3 dimensions"))
        }
        2 => pool::avg_pool2d(x, &kernel, stride, &padding, ceil, include, divisor),
        3 => pool::avg_pool3d(x, &kernel, stride, &padding, ceil, include, divisor),
        _ => no_such(N),
    }
}

impl<const N: usize> Forward for AvgPool<N> {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let flags = (self.ceil_mode, self.count_include_pad);
        located(self, || average(x, &self.kernel_size, &self.stride, &self.padding, flags, self.divisor))
    }
}

impl<const N: usize> Forward for LpPool<N> {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        located(self, || {
            if self.norm_type == 0.0 || !self.norm_type.is_finite() {
                return Err(Error::value(
                    "lp_pool",
                    format!("norm_type must be finite and not 0, got {}", self.norm_type),
                ));
            }
            let powers = x.pow(self.norm_type)?;
            let mean = average(&powers, &self.kernel_size, &self.stride, &Size([0; N]), (self.ceil_mode, true), None)?;
            let count: i64 = self.kernel_size.0.iter().product();
            ((mean.sign()? * mean.abs()?.relu()?)? * count as f64)?.pow(1.0 / self.norm_type)
        })
    }
}

impl<const N: usize> MaxUnpool<N> {
    /// (…, pooled space) and the places of its elements to the space before the pool, or `output` where given.
    ///
    /// # Errors
    /// For places of another shape, or outside of the space.
    pub fn forward(&self, x: &Tensor, indices: &Tensor, output: Option<Size<N>>) -> Result<Tensor> {
        located(self, || {
            if x.shape() != indices.shape() || x.ndim() < N + 1 {
                let why = format!("expected {}D input with indices of its shape", N + 2);
                return Err(Error::shape("max_unpool", why, &[x.shape(), indices.shape()]));
            }
            let stride = self.stride.unwrap_or(self.kernel_size);
            let lead = x.ndim() - N;
            let mut space = [0i64; N];
            for (i, size) in space.iter_mut().enumerate() {
                let own = x.shape()[lead + i] as i128;
                let [stride, kernel, padding] = [stride, self.kernel_size, self.padding].map(|s| i128::from(s.0[i]));
                *size = i64::try_from((own - 1) * stride + kernel - 2 * padding).unwrap_or(-1);
            }
            let space = output.unwrap_or(Size(space)).lengths("output size", 0)?;
            let mut sizes = super::options::dims(&x.shape()[..lead]);
            let total = numel(&space);
            let mut flat = sizes.clone();
            flat.push(-1);
            let (values, places) = (x.reshape(&flat)?, indices.reshape(&flat)?);
            flat[lead] = total as isize;
            let blank = crate::ops::create::zeros(&flat, Some(x.dtype()), Some(x.device()))?;
            let made = blank.scatter(lead as isize, &places, Some((&values).into()), None, None)?;
            sizes.extend(space.iter().map(|&n| n as isize));
            made.reshape(&sizes)
        })
    }
}

/// The size that each dimension gets; `None` keeps its own.
type Sizes<const N: usize> = [Option<usize>; N];

macro_rules! adaptive {
    ($($(#[$doc:meta])* $Name:ident $one:ident $two:ident $three:ident $op:literal |$window:ident, $dim:ident| $each:expr;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug, Module)]
        pub struct $Name<const N: usize> {
            #[module(skip)]
            sizes: Sizes<N>,
            place: Place,
        }
        /// To (…, length).
        pub type $one = $Name<1>;
        /// To (…, height, width).
        pub type $two = $Name<2>;
        /// To (…, depth, height, width).
        pub type $three = $Name<3>;

        impl<const N: usize> $Name<N> {
            /// To these sizes.
            ///
            /// # Errors
            /// For negative sizes.
            pub fn new(output_size: impl Into<Size<N>>) -> Result<Self> {
                let sizes = output_size.into().lengths("output_size", 0).map_err(|e| e.in_module(stringify!($Name)))?;
                Ok($Name { sizes: sizes.map(Some), place: Place::default() })
            }
            /// To these sizes, `None` for the input's own.
            pub fn keeping(sizes: Sizes<N>) -> Self {
                $Name { sizes, place: Place::default() }
            }
        }

        impl<const N: usize> Forward for $Name<N> {
            fn forward(&self, x: &Tensor) -> Result<Tensor> {
                located(self, || by_windows($op, x, &self.sizes, |$window, $dim| $each))
            }
        }
    )*};
}
adaptive! {
    /// Means over windows that give the wanted sizes, whatever the input's.
    AdaptiveAvgPool AdaptiveAvgPool1d AdaptiveAvgPool2d AdaptiveAvgPool3d "adaptive_avg_pool" |window, dim|
        window.mean(Some(&[dim]), true, None);
    /// Maxima over windows that give the wanted sizes, whatever the input's.
    AdaptiveMaxPool AdaptiveMaxPool1d AdaptiveMaxPool2d AdaptiveMaxPool3d "adaptive_max_pool" |window, dim|
        order::max_dim(window, dim, true).map(|(values, _)| values);
}

/// Reduces windows `floor(i size / out)..ceil((i + 1) size / out)` of each spatial dimension in turn.
fn by_windows<const N: usize>(
    op: &'static str,
    x: &Tensor,
    sizes: &Sizes<N>,
    reduce: impl Fn(&Tensor, isize) -> Result<Tensor>,
) -> Result<Tensor> {
    if x.ndim() != N + 1 && x.ndim() != N + 2 {
        return Err(Error::shape(op, format!("expected {}D or {}D tensor", N + 1, N + 2), &[x.shape()]));
    }
    if x.shape()[x.ndim() - N..].contains(&0) {
        return Err(Error::shape(op, "expected input to have non-zero size for non-batch dimensions", &[x.shape()]));
    }
    let mut made = x.clone();
    for (i, out) in sizes.iter().enumerate() {
        let dim = x.ndim() - N + i;
        let size = x.shape()[dim];
        let Some(out) = out.filter(|&out| out != size) else { continue };
        if out == 0 {
            made = made.narrow(dim as isize, 0, 0)?;
            continue;
        }
        if out > i32::MAX as usize {
            return Err(Error::value(op, format!("output_size must be below 2³¹, got {out}")));
        }
        // Where there are more windows than elements some are the same, which one sum serves.
        let (mut windows, mut places) = (Vec::new(), collected((0..out).map(|_| 0i64))?);
        for (j, place) in places.iter_mut().enumerate() {
            let window = (numel(&[j, size]) / out, numel(&[j + 1, size]).div_ceil(out));
            if windows.last() != Some(&window) {
                windows.push(window);
            }
            *place = windows.len() as i64 - 1;
        }
        let axis = dim as isize;
        let each =
            |&(start, end): &(usize, usize)| reduce(&made.narrow(axis, start as i64, (end - start) as i64)?, axis);
        let parts = windows.iter().map(each).collect::<Result<Vec<_>>>()?;
        made = index::cat(&parts, axis)?;
        if windows.len() < out {
            made = made.index_select(axis, &Tensor::of_elements(&places, &[out], made.device())?)?;
        }
    }
    Ok(made)
}
