//! What layers are told: sizes per dimension, kinds as enums, and the macro that makes option structs.

pub use lucid_ir::ops::loss::Reduction;

use crate::ops::PadMode;
use crate::{DType, Device, Error, Result, Tensor};
use smallvec::SmallVec;

/// One whole number per dimension: of one number for all, or an array.
///
/// ```
/// use lucid::nn::Size;
/// assert_eq!(Size::<2>::from(3), Size::from([3, 3]));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size<const N: usize>(pub [i64; N]);

impl<const N: usize> Size<N> {
    /// As ops take it.
    pub(crate) fn signed(&self) -> [isize; N] {
        self.0.map(|n| n as isize)
    }

    /// The numbers as lengths, each at least `least`.
    pub(crate) fn lengths(&self, what: &str, least: i64) -> Result<[usize; N]> {
        match self.0.iter().find(|&&n| n < least || n > i64::from(i32::MAX)) {
            Some(n) => Err(Error::value("module", format!("{what} must be from {least} to 2³¹ - 1, got {n}"))),
            None => Ok(self.0.map(|n| n as usize)),
        }
    }
}

macro_rules! sizes {
    ($($int:ty)*) => {$(
        impl<const N: usize> From<$int> for Size<N> {
            #[allow(clippy::cast_lossless)]
            fn from(n: $int) -> Self {
                Size([n as i64; N])
            }
        }
        impl<const N: usize> From<[$int; N]> for Size<N> {
            #[allow(clippy::cast_lossless)]
            fn from(list: [$int; N]) -> Self {
                Size(list.map(|n| n as i64))
            }
        }
    )*};
}
sizes!(i32 i64 isize usize u32);

/// The elements, reduced.
pub(crate) fn reduced(x: Tensor, how: Reduction) -> Result<Tensor> {
    match how {
        Reduction::None => Ok(x),
        Reduction::Mean => x.mean(None, false, None),
        Reduction::Sum => x.sum(None, false, None),
    }
}

/// How a convolution's padding is filled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PaddingMode {
    /// With zeros.
    #[default]
    Zeros,
    /// With the elements mirrored at the edge.
    Reflect,
    /// With the edge's element.
    Replicate,
    /// With the elements of the other end.
    Circular,
}

impl PaddingMode {
    /// As `pad` takes it.
    pub(crate) fn kind(self) -> PadMode {
        match self {
            PaddingMode::Zeros => PadMode::Constant,
            PaddingMode::Reflect => PadMode::Reflect,
            PaddingMode::Replicate => PadMode::Replicate,
            PaddingMode::Circular => PadMode::Circular,
        }
    }
}

/// How much a convolution pads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Padding<const N: usize> {
    /// So much at both ends.
    Each(Size<N>),
    /// As much as leaves the sizes as they are, for a stride of 1.
    Same,
}

impl<const N: usize> Padding<N> {
    /// What is added before and after each dimension.
    pub(crate) fn ends(&self, kernel: &Size<N>, dilation: &Size<N>) -> [(isize, isize); N] {
        let mut ends = [(0, 0); N];
        for (i, end) in ends.iter_mut().enumerate() {
            *end = match self {
                Padding::Each(size) => (size.0[i] as isize, size.0[i] as isize),
                Padding::Same => {
                    let total = (dilation.0[i] * (kernel.0[i] - 1)) as isize;
                    (total / 2, total - total / 2)
                }
            };
        }
        ends
    }
}

/// What the hidden state of an [`Rnn`](super::Rnn) goes through.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Nonlinearity {
    /// The hyperbolic tangent.
    #[default]
    Tanh,
    /// `max(x, 0)`.
    Relu,
}

impl Nonlinearity {
    /// PyTorch's name of it.
    pub fn name(self) -> &'static str {
        match self {
            Nonlinearity::Tanh => "tanh",
            Nonlinearity::Relu => "relu",
        }
    }
}

/// How `gelu` is computed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Approximate {
    /// By the error function.
    #[default]
    None,
    /// By a hyperbolic tangent.
    Tanh,
}

impl Approximate {
    /// PyTorch's name of it, as [`ops::nn::gelu`](crate::ops::nn::gelu) takes it.
    pub fn name(self) -> &'static str {
        match self {
            Approximate::None => "none",
            Approximate::Tanh => "tanh",
        }
    }
}

/// The dtype of new parameters.
pub(crate) fn dtype_or_default(dtype: Option<DType>) -> DType {
    dtype.unwrap_or_else(crate::default_dtype)
}

/// A tensor of one number, without history.
pub(crate) fn filled(shape: &[usize], value: f64, dtype: DType, device: Device) -> Result<Tensor> {
    Tensor::full_of(shape, value.into(), dtype, device)
}

/// A parameter of one number.
pub(crate) fn parameter(shape: &[usize], value: f64, dtype: DType, device: Device) -> Result<Tensor> {
    filled(shape, value, dtype, device)?.requires_grad_(true)
}

/// A parameter uniform in ±`bound`.
pub(crate) fn uniform(shape: &[usize], bound: f64, dtype: DType, device: Device) -> Result<Tensor> {
    let t = filled(shape, 0.0, dtype, device)?;
    t.uniform_(-bound, bound, None)?;
    t.requires_grad_(true)
}

/// Sizes as ops take them.
pub(crate) fn dims(sizes: &[usize]) -> SmallVec<[isize; 4]> {
    crate::tensor::signed(sizes)
}

/// An option struct: what must be given, then what has a default, each with a setter; `options` and `new` of the layer.
macro_rules! options {
    (
        $(#[$doc:meta])*
        $Name:ident $([$($gen:tt)*] [$($arg:tt)*])? for $Layer:ident
        ($($(#[$rdoc:meta])* $req:ident: $ReqTy:ty, $ReqArg:ty;)*)
        $($(#[$odoc:meta])* $opt:ident: $OptTy:ty, $OptArg:ty = $default:expr;)*
    ) => {
        $(#[$doc])*
        #[derive(Clone, Debug)]
        #[must_use = "options become a layer by `build`"]
        pub struct $Name $(<$($gen)*>)? {
            $($(#[$rdoc])* pub $req: $ReqTy,)*
            $($(#[$odoc])* pub $opt: $OptTy,)*
            /// The parameters' dtype; the default one where nothing else is said.
            pub dtype: Option<$crate::DType>,
        }

        #[allow(clippy::too_many_arguments)]
        impl $(<$($gen)*>)? $Name $(<$($arg)*>)? {
            /// The options with PyTorch's defaults.
            pub fn new($($req: $ReqArg),*) -> Self {
                Self { $($req: $req.into(),)* $($opt: $default,)* dtype: None }
            }
            $($(#[$odoc])*
            pub fn $opt(mut self, $opt: $OptArg) -> Self {
                self.$opt = $opt.into();
                self
            })*
            /// The parameters' dtype.
            pub fn dtype(mut self, dtype: $crate::DType) -> Self {
                self.dtype = Some(dtype);
                self
            }
            /// Makes the layer on a device, with PyTorch's initial values.
            ///
            /// # Errors
            /// For options that do not fit together, and where the device has no room or not the dtype.
            pub fn build(&self, device: $crate::Device) -> $crate::Result<$Layer $(<$($arg)*>)?> {
                self.make(device).map_err(|e| e.in_module(stringify!($Layer)))
            }
        }

        #[allow(clippy::too_many_arguments)]
        impl $(<$($gen)*>)? $Layer $(<$($arg)*>)? {
            #[doc = concat!("The layer's options, to change and [`build`](", stringify!($Name), "::build).")]
            pub fn options($($req: $ReqArg),*) -> $Name $(<$($arg)*>)? {
                $Name::new($($req),*)
            }
            /// The layer with PyTorch's defaults.
            ///
            /// # Errors
            /// Where the device has no room.
            pub fn new($($req: $ReqArg,)* device: $crate::Device) -> $crate::Result<Self> {
                Self::options($($req),*).build(device)
            }
        }
    };
}
pub(crate) use options;
