//! Convolutions in one to three dimensions, and their transposes.

use super::module::located;
use super::options::{dtype_or_default, options, uniform};
use super::{Forward, Module, Padding, PaddingMode, Place, Size};
use crate::ops::conv;
use crate::shape::numel;
use crate::{DType, Device, Error, Result, Tensor};
use smallvec::SmallVec;

/// Convolution over N dimensions: (batch, in, space…) to (batch, out, space…).
#[derive(Clone, Debug, Module)]
pub struct Conv<const N: usize> {
    /// (out, in / groups, window…)
    pub weight: Tensor,
    /// (out)
    pub bias: Option<Tensor>,
    #[module(skip)]
    options: ConvOptions<N>,
    place: Place,
}

/// Convolution over sequences: (batch, in, length).
pub type Conv1d = Conv<1>;
/// Convolution over images: (batch, in, height, width).
pub type Conv2d = Conv<2>;
/// Convolution over volumes: (batch, in, depth, height, width).
pub type Conv3d = Conv<3>;

options! {
    /// What a [`Conv`] is made of.
    ConvOptions[const N: usize][N] for Conv (
        /// Channels of the input.
        in_channels: usize, usize;
        /// Channels of the output.
        out_channels: usize, usize;
        /// The window's size.
        kernel_size: Size<N>, impl Into<Size<N>>;
    )
    /// Steps between windows. Default: 1.
    stride: Size<N>, impl Into<Size<N>> = Size([1; N]);
    /// Steps between a window's elements. Default: 1.
    dilation: Size<N>, impl Into<Size<N>> = Size([1; N]);
    /// Channel groups that do not see each other. Default: 1.
    groups: usize, usize = 1usize;
    /// Is a bias added? Default: true.
    bias: bool, bool = true;
    /// How the padding is filled. Default: with zeros.
    padding_mode: PaddingMode, PaddingMode = PaddingMode::Zeros;
    /// How much is padded, with [`Padding::Same`] as a choice. Default: nothing.
    pads: Padding<N>, Padding<N> = Padding::Each(Size([0; N]));
}

/// PyTorch's initial weight and bias: uniform in ±1/√fan_in.
fn parameters(
    shape: &[usize],
    out: usize,
    bias: bool,
    dtype: Option<DType>,
    device: Device,
) -> Result<(Tensor, Option<Tensor>)> {
    let (dtype, fan_in) = (dtype_or_default(dtype), numel(&shape[1..]));
    let bound = 1.0 / (fan_in.max(1) as f64).sqrt();
    let weight = uniform(shape, bound, dtype, device)?;
    Ok((weight, bias.then(|| uniform(&[out], bound, dtype, device)).transpose()?))
}

fn check_groups(inputs: usize, outputs: usize, groups: usize) -> Result<()> {
    let why = match groups {
        0 => "groups must be a positive integer".to_string(),
        _ if !inputs.is_multiple_of(groups) => format!("in_channels {inputs} must be divisible by groups {groups}"),
        _ if !outputs.is_multiple_of(groups) => format!("out_channels {outputs} must be divisible by groups {groups}"),
        _ => return Ok(()),
    };
    Err(Error::value("conv", why))
}

impl<const N: usize> ConvOptions<N> {
    /// Padding at both ends. Default: 0.
    pub fn padding(self, padding: impl Into<Size<N>>) -> Self {
        self.pads(Padding::Each(padding.into()))
    }

    /// Pads as much as leaves the sizes as they are; the stride must be 1.
    pub fn same(self) -> Self {
        self.pads(Padding::Same)
    }

    fn make(&self, device: Device) -> Result<Conv<N>> {
        let kernel = self.kernel_size.lengths("kernel_size", 1)?;
        self.stride.lengths("stride", 1)?;
        self.dilation.lengths("dilation", 1)?;
        match &self.pads {
            Padding::Each(size) => drop(size.lengths("padding", 0)?),
            Padding::Same if self.stride != Size([1; N]) => {
                return Err(Error::value("conv", "padding 'same' is not supported for strided convolutions"));
            }
            Padding::Same => {}
        }
        check_groups(self.in_channels, self.out_channels, self.groups)?;
        let mut shape: SmallVec<[usize; 5]> =
            SmallVec::from_slice(&[self.out_channels, self.in_channels / self.groups]);
        shape.extend_from_slice(&kernel);
        let (weight, bias) = parameters(&shape, self.out_channels, self.bias, self.dtype, device)?;
        Ok(Conv { weight, bias, options: self.clone(), place: Place::default() })
    }
}

impl<const N: usize> Forward for Conv<N> {
    fn forward(&self, input: &Tensor) -> Result<Tensor> {
        located(self, || {
            let o = &self.options;
            let ends = o.pads.ends(&o.kernel_size, &o.dilation);
            let even = ends.iter().all(|(before, after)| before == after);
            let given = match o.padding_mode == PaddingMode::Zeros && even {
                true => input.clone(),
                false => {
                    // From the last dimension on, as `pad` takes them.
                    let list: SmallVec<[isize; 6]> = ends.iter().rev().flat_map(|&(b, a)| [b, a]).collect();
                    input.pad(&list, o.padding_mode.kind(), None)?
                }
            };
            let inside = match o.padding_mode == PaddingMode::Zeros && even {
                true => ends.map(|(before, _)| before),
                false => [0; N],
            };
            let (stride, dilation, groups) = (o.stride.signed(), o.dilation.signed(), o.groups as i64);
            let run = match N {
                1 => conv::conv1d,
                2 => conv::conv2d,
                3 => conv::conv3d,
                _ => return Err(Error::value("conv", format!("convolutions have 1 to 3 dimensions, not {N}"))),
            };
            run(&given, &self.weight, self.bias.as_ref(), &stride, &inside, &dilation, groups)
        })
    }
}

/// Transposed convolution over N dimensions: the gradient of a [`Conv`] towards its input, as a layer.
#[derive(Clone, Debug, Module)]
pub struct ConvTranspose<const N: usize> {
    /// (in, out / groups, window…)
    pub weight: Tensor,
    /// (out)
    pub bias: Option<Tensor>,
    #[module(skip)]
    options: ConvTransposeOptions<N>,
    place: Place,
}

/// Transposed convolution over sequences.
pub type ConvTranspose1d = ConvTranspose<1>;
/// Transposed convolution over images.
pub type ConvTranspose2d = ConvTranspose<2>;
/// Transposed convolution over volumes.
pub type ConvTranspose3d = ConvTranspose<3>;

options! {
    /// What a [`ConvTranspose`] is made of.
    ConvTransposeOptions[const N: usize][N] for ConvTranspose (
        /// Channels of the input.
        in_channels: usize, usize;
        /// Channels of the output.
        out_channels: usize, usize;
        /// The window's size.
        kernel_size: Size<N>, impl Into<Size<N>>;
    )
    /// Steps between windows. Default: 1.
    stride: Size<N>, impl Into<Size<N>> = Size([1; N]);
    /// What the convolution that this is the transpose of pads. Default: 0.
    padding: Size<N>, impl Into<Size<N>> = Size([0; N]);
    /// Added to the output's size at one end. Default: 0.
    output_padding: Size<N>, impl Into<Size<N>> = Size([0; N]);
    /// Channel groups that do not see each other. Default: 1.
    groups: usize, usize = 1usize;
    /// Is a bias added? Default: true.
    bias: bool, bool = true;
    /// Steps between a window's elements. Default: 1.
    dilation: Size<N>, impl Into<Size<N>> = Size([1; N]);
}

impl<const N: usize> ConvTransposeOptions<N> {
    fn make(&self, device: Device) -> Result<ConvTranspose<N>> {
        let kernel = self.kernel_size.lengths("kernel_size", 1)?;
        self.stride.lengths("stride", 1)?;
        self.dilation.lengths("dilation", 1)?;
        self.padding.lengths("padding", 0)?;
        self.output_padding.lengths("output_padding", 0)?;
        check_groups(self.in_channels, self.out_channels, self.groups)?;
        let mut shape: SmallVec<[usize; 5]> =
            SmallVec::from_slice(&[self.in_channels, self.out_channels / self.groups]);
        shape.extend_from_slice(&kernel);
        let (weight, bias) = parameters(&shape, self.out_channels, self.bias, self.dtype, device)?;
        Ok(ConvTranspose { weight, bias, options: self.clone(), place: Place::default() })
    }
}

impl<const N: usize> Forward for ConvTranspose<N> {
    fn forward(&self, input: &Tensor) -> Result<Tensor> {
        located(self, || {
            let o = &self.options;
            let run = match N {
                1 => conv::conv_transpose1d,
                2 => conv::conv_transpose2d,
                3 => conv::conv_transpose3d,
                _ => return Err(Error::value("conv", format!("convolutions have 1 to 3 dimensions, not {N}"))),
            };
            let (stride, padding, extra) = (o.stride.signed(), o.padding.signed(), o.output_padding.signed());
            let (groups, dilation) = (o.groups as i64, o.dilation.signed());
            run(input, &self.weight, self.bias.as_ref(), &stride, &padding, &extra, groups, &dilation)
        })
    }
}
