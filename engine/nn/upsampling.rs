//! Resizing and rearranging images.

use super::module::located;
use super::options::dims;
use super::{Forward, Module, Place, Size};
use crate::fallible::ensure_room;
use crate::ops::{create, PadMode};
use crate::shape::numel;
use crate::{DType, Error, Result, Tensor};

/// How new elements are found between old ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Interpolation {
    /// The nearest one, as PyTorch's "nearest" has it.
    #[default]
    Nearest,
    /// The nearest one by the centres of the elements: "nearest-exact".
    NearestExact,
    /// Linear in every dimension: "linear", "bilinear", "trilinear".
    Linear,
    /// By cubic polynomials (Keys, 1981), for images: "bicubic".
    Cubic,
}

/// The new sizes.
#[derive(Clone, Copy, Debug)]
enum Target<const N: usize> {
    Sizes([usize; N]),
    Scales([f64; N]),
}

/// Resizes the last N dimensions of (batch, channels, space…).
///
/// ```
/// use lucid::prelude::*;
/// # fn main() -> Result<()> {
/// let x = tensor!([[[0.0, 1.0]]])?;
/// let up = nn::Upsample::<1>::scale(2.0).mode(nn::Interpolation::Linear);
/// assert_close(up.forward(&x)?, [[[0.0, 0.25, 0.75, 1.0]]]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Module)]
pub struct Upsample<const N: usize> {
    #[module(skip)]
    target: Target<N>,
    #[module(skip)]
    mode: Interpolation,
    align_corners: bool,
    place: Place,
}

impl<const N: usize> Upsample<N> {
    fn of(target: Target<N>) -> Self {
        Upsample { target, mode: Interpolation::Nearest, align_corners: false, place: Place::default() }
    }

    /// To these sizes.
    ///
    /// # Errors
    /// For sizes below 1.
    pub fn size(size: impl Into<Size<N>>) -> Result<Self> {
        let sizes = size.into().lengths("size", 1).map_err(|e| e.in_module("Upsample"))?;
        Ok(Upsample::of(Target::Sizes(sizes)))
    }

    /// To the sizes times a factor.
    pub fn scale(factor: f64) -> Self {
        Upsample::of(Target::Scales([factor; N]))
    }

    /// To the sizes times factors.
    pub fn scales(factors: [f64; N]) -> Self {
        Upsample::of(Target::Scales(factors))
    }

    /// How new elements are found. Default: the nearest one.
    #[must_use]
    pub fn mode(mut self, mode: Interpolation) -> Self {
        self.mode = mode;
        self
    }

    /// Do the outer elements' centres, not their outer edges, stay in place? Default: false.
    #[must_use]
    pub fn align_corners(mut self, on: bool) -> Self {
        self.align_corners = on;
        self
    }

    /// One dimension resized; `ratio` is the old step per new element where it was given.
    fn along(&self, x: &Tensor, dim: usize, out: usize, ratio: Option<f64>) -> Result<Tensor> {
        let size = x.shape()[dim];
        let ratio = ratio.unwrap_or(size as f64 / out as f64);
        // Of sizes that there is no room for nothing is begun.
        ensure_room(numel(&[x.numel() / size.max(1), out]), x.dtype().size())?;
        let (on, axis) = (x.device(), dim as isize);
        let line = create::arange(0, Some((out as i64).into()), 1, Some(DType::F32), Some(on))?;
        let last = (size - 1) as f64;
        let pick = |places: &Tensor| {
            x.index_select(axis, &places.cast(DType::I64)?.clamp(Some(0.into()), Some((size as i64 - 1).into()))?)
        };
        match self.mode {
            Interpolation::Nearest => return pick(&(line * ratio)?.floor()?),
            Interpolation::NearestExact => return pick(&((line + 0.5)? * ratio)?.floor()?),
            Interpolation::Linear | Interpolation::Cubic => {}
        }
        let cubic = self.mode == Interpolation::Cubic;
        let real = match self.align_corners {
            true => (line * if out > 1 { last / (out - 1) as f64 } else { 0.0 })?,
            false => (((line + 0.5)? * ratio)? - 0.5)?,
        };
        let real = if cubic { real } else { real.clamp(Some(0.0.into()), None)? };
        let low = real.floor()?.clamp(None, Some(last.into()))?;
        let t = (real - &low)?.clamp(Some(0.0.into()), Some(1.0.into()))?;
        let mut view = dims(&vec_of_ones(x.ndim()));
        view[dim] = -1;
        let mut total: Option<Tensor> = None;
        let taps: &[i64] = if cubic { &[-1, 0, 1, 2] } else { &[0, 1] };
        for &k in taps {
            let weight = match (cubic, k) {
                (true, _) => keys(&(&t - k as f64)?.abs()?)?,
                (false, 0) => (1.0 - &t)?,
                (false, _) => t.clone(),
            };
            let part = (pick(&(&low + k as f64)?)? * &weight.reshape(&view)?.cast(x.dtype())?)?;
            total = Some(match total {
                Some(sum) => (sum + &part)?,
                None => part,
            });
        }
        total.ok_or_else(|| Error::runtime("interpolate", "no neighbours"))
    }
}

fn vec_of_ones(n: usize) -> Vec<usize> {
    (0..n).map(|_| 1).collect()
}

/// Keys' kernel of a = -3/4 at distances from 0 to 2.
fn keys(t: &Tensor) -> Result<Tensor> {
    const A: f64 = -0.75;
    let near = ((((((t * (A + 2.0))? - (A + 3.0))? * t)? * t)?) + 1.0)?;
    let far = ((((((t * A)? - 5.0 * A)? * t)? + 8.0 * A)? * t)? - 4.0 * A)?;
    crate::ops::compare::select::r#where(&t.le(1.0)?, &near, &far.masked_fill(&t.ge(2.0)?, 0.0)?)
}

impl<const N: usize> Forward for Upsample<N> {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        located(self, || {
            let bad = |why: &str| Err(Error::shape("interpolate", why, &[x.shape()]));
            if x.ndim() != N + 2 || x.shape()[2..].contains(&0) {
                return bad(&format!("expected a {}D input with sizes above 0", N + 2));
            }
            if self.mode == Interpolation::Cubic && N != 2 {
                return bad("cubic interpolation is for images, of 2 dimensions");
            }
            let nearest = matches!(self.mode, Interpolation::Nearest | Interpolation::NearestExact);
            if self.align_corners && nearest {
                return bad("align_corners is for linear and cubic interpolation");
            }
            if !nearest && !x.dtype().is_float() {
                return Err(Error::dtype("interpolate", "elements between others are of floating dtype", &[x.dtype()]));
            }
            let half = matches!(x.dtype(), DType::F16 | DType::BF16) && !nearest;
            let mut made = if half { x.cast(DType::F32)? } else { x.clone() };
            for i in 0..N {
                let own = x.shape()[i + 2];
                let (out, ratio) = match self.target {
                    Target::Sizes(sizes) => (sizes[i], None),
                    Target::Scales(scales) => {
                        let out = (own as f64 * scales[i]).floor();
                        if !(1.0..=f64::from(i32::MAX)).contains(&out) {
                            return bad(&format!("a scale of {} leaves no size from 1 to 2³¹ - 1", scales[i]));
                        }
                        (out as usize, Some(1.0 / scales[i]))
                    }
                };
                if out != own || ratio.is_some_and(|r| r != 1.0) {
                    made = self.along(&made, i + 2, out, ratio)?;
                }
            }
            if half {
                made.cast(x.dtype())
            } else {
                Ok(made)
            }
        })
    }
}

macro_rules! rearranging {
    ($($(#[$doc:meta])* $Name:ident $field:ident |$x:ident, $r:ident| $body:expr;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug, Module)]
        pub struct $Name {
            /// The factor.
            pub $field: usize,
            place: Place,
        }

        impl $Name {
            /// With this factor.
            ///
            /// # Errors
            /// For 0.
            pub fn new($field: usize) -> Result<$Name> {
                if $field == 0 || $field > 1 << 20 {
                    let why = format!(concat!(stringify!($field), " must be from 1 to 2²⁰, got {}"), $field);
                    return Err(Error::value("module", why).in_module(stringify!($Name)));
                }
                Ok($Name { $field, place: Place::default() })
            }
        }

        impl Forward for $Name {
            fn forward(&self, $x: &Tensor) -> Result<Tensor> {
                located(self, || {
                    let $r = self.$field;
                    $body
                })
            }
        }
    )*};
}

fn images(name: &'static str, x: &Tensor, fits: bool, why: &str) -> Result<()> {
    match x.ndim() >= 3 && fits {
        true => Ok(()),
        false => Err(Error::shape(name, format!("expected (…, C, H, W) with {why}"), &[x.shape()])),
    }
}

/// The sizes before the last three, then others.
fn with(x: &Tensor, rest: &[usize]) -> smallvec::SmallVec<[isize; 4]> {
    let mut shape = dims(&x.shape()[..x.ndim() - 3]);
    shape.extend(rest.iter().map(|&n| n as isize));
    shape
}

/// The dimensions before the last three as they are, then the rest in an order.
fn permuted(y: &Tensor, order: &[usize]) -> Result<Tensor> {
    let lead = y.ndim() - order.len();
    let all: Vec<isize> = (0..lead).chain(order.iter().map(|i| lead + i)).map(|i| i as isize).collect();
    y.permute(&all)
}

rearranging! {
    /// Channels as finer images (Shi et al., 2016): (…, C r², H, W) to (…, C, H r, W r).
    PixelShuffle upscale_factor |x, r| {
        let last = x.shape().iter().rev().take(3).rev().copied().collect::<Vec<_>>();
        images("pixel_shuffle", x, last.first().is_some_and(|c| c.is_multiple_of(r * r)), "C divisible by the factor's square")?;
        let (c, h, w) = (last[0] / (r * r), last[1], last[2]);
        let sizes = [c, numel(&[h, r]), numel(&[w, r])];
        permuted(&x.reshape(&with(x, &[c, r, r, h, w]))?, &[0, 3, 1, 4, 2])?.reshape(&with(x, &sizes))
    };
    /// Images as coarser ones of more channels: (…, C, H r, W r) to (…, C r², H, W).
    PixelUnshuffle downscale_factor |x, r| {
        let last = x.shape().iter().rev().take(3).rev().copied().collect::<Vec<_>>();
        let fits = last.get(1..).is_some_and(|space| space.iter().all(|n| n.is_multiple_of(r)));
        images("pixel_unshuffle", x, fits, "H and W divisible by the factor")?;
        let (c, h, w) = (last[0], last[1] / r, last[2] / r);
        permuted(&x.reshape(&with(x, &[c, h, r, w, r]))?, &[0, 2, 4, 1, 3])?.reshape(&with(x, &[numel(&[c, r, r]), h, w]))
    };
    /// Channels of all groups in turn (Zhang et al., 2018): (N, C, …) to the same.
    ChannelShuffle groups |x, r| {
        let c = x.shape().get(1).copied().unwrap_or(0);
        images("channel_shuffle", x, c.is_multiple_of(r), "C divisible by the groups")?;
        let mut split = dims(x.shape());
        split[1] = r as isize;
        split.insert(2, (c / r) as isize);
        x.reshape(&split)?.transpose(1, 2)?.reshape(&dims(x.shape()))
    };
}

/// The windows of an image as columns: (N, C, H, W) to (N, C · window, places).
#[derive(Clone, Debug, Module)]
pub struct Unfold {
    #[module(skip)]
    windows: Windows,
    place: Place,
}

/// The windows of columns, summed up in an image: the reverse of [`Unfold`], which sums where windows overlap.
#[derive(Clone, Debug, Module)]
pub struct Fold {
    #[module(skip)]
    output: Size<2>,
    #[module(skip)]
    windows: Windows,
    place: Place,
}

/// Which windows of an image there are.
#[derive(Clone, Copy, Debug)]
pub struct Windows {
    kernel_size: Size<2>,
    dilation: Size<2>,
    padding: Size<2>,
    stride: Size<2>,
}

impl Windows {
    /// Of this size, one at every place.
    pub fn new(kernel_size: impl Into<Size<2>>) -> Windows {
        Windows { kernel_size: kernel_size.into(), dilation: Size([1; 2]), padding: Size([0; 2]), stride: Size([1; 2]) }
    }
    /// Steps between a window's elements. Default: 1.
    #[must_use]
    pub fn dilation(mut self, dilation: impl Into<Size<2>>) -> Windows {
        self.dilation = dilation.into();
        self
    }
    /// Zeros added at both ends. Default: 0.
    #[must_use]
    pub fn padding(mut self, padding: impl Into<Size<2>>) -> Windows {
        self.padding = padding.into();
        self
    }
    /// Steps between windows. Default: 1.
    #[must_use]
    pub fn stride(mut self, stride: impl Into<Size<2>>) -> Windows {
        self.stride = stride.into();
        self
    }

    /// Window's elements and places as strides over a padded image: the sizes, and their layout.
    fn laid_out(&self, size: [usize; 2], shape: &[usize]) -> Result<([usize; 2], [usize; 2], [usize; 2])> {
        let (k, d) = (self.kernel_size.lengths("kernel_size", 1)?, self.dilation.lengths("dilation", 1)?);
        let (p, s) = (self.padding.lengths("padding", 0)?, self.stride.lengths("stride", 1)?);
        let mut count = [0; 2];
        for i in 0..2 {
            let whole = size[i] + 2 * p[i];
            let room = whole.checked_sub(d[i] * (k[i] - 1) + 1);
            let room =
                room.ok_or_else(|| Error::shape("unfold", "the window is larger than the padded image", &[shape]))?;
            count[i] = room / s[i] + 1;
        }
        Ok((k, count, [size[0] + 2 * p[0], size[1] + 2 * p[1]]))
    }

    /// The flat index into the padded image of every window element (k, k) at every place (count, count).
    fn indices(&self, k: [usize; 2], count: [usize; 2], width: usize, on: crate::Device) -> Result<Tensor> {
        let axis =
            |n: usize, step: i64| create::arange(0, Some((n as i64).into()), 1, Some(DType::I64), Some(on))? * step;
        ensure_room(numel(&[k[0], k[1], count[0], count[1]]), size_of::<i64>())?;
        let (d, s) = (self.dilation.0, self.stride.0);
        let along = |t: Result<Tensor>, dim: usize| -> Result<Tensor> {
            let mut view = [1isize; 4];
            view[dim] = -1;
            t?.reshape(&view)
        };
        let w = width as i64;
        let rows =
            (along(axis(k[0], d[0].saturating_mul(w)), 0)? + &along(axis(count[0], s[0].saturating_mul(w)), 2)?)?;
        let columns = (along(axis(k[1], d[1]), 1)? + &along(axis(count[1], s[1]), 3)?)?;
        (rows + &columns)?.reshape(&[-1])
    }
}

impl Unfold {
    /// Of these windows.
    pub fn new(windows: Windows) -> Unfold {
        Unfold { windows, place: Place::default() }
    }
}

impl Forward for Unfold {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        located(self, || {
            let &[n, c, h, w] = x.shape() else {
                return Err(Error::shape("unfold", "expected a 4D input (N, C, H, W)", &[x.shape()]));
            };
            let (k, count, whole) = self.windows.laid_out([h, w], x.shape())?;
            let p = self.windows.padding.signed();
            let flat =
                x.pad(&[p[1], p[1], p[0], p[0]], PadMode::Constant, None)?.reshape(&[n as isize, c as isize, -1])?;
            let found = flat.index_select(2, &self.windows.indices(k, count, whole[1], x.device())?)?;
            found.reshape(&dims(&[n, numel(&[c, k[0], k[1]]), numel(&count)]))
        })
    }
}

impl Fold {
    /// To an image of this size, from these windows.
    pub fn new(output_size: impl Into<Size<2>>, windows: Windows) -> Fold {
        Fold { output: output_size.into(), windows, place: Place::default() }
    }
}

impl Forward for Fold {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        located(self, || {
            let size = self.output.lengths("output_size", 1)?;
            let (k, count, whole) = self.windows.laid_out(size, x.shape())?;
            let (window, places) = (numel(&k), numel(&count));
            let &[n, columns, found] = x.shape() else {
                return Err(Error::shape("fold", "expected a 3D input (N, C · window, places)", &[x.shape()]));
            };
            if !columns.is_multiple_of(window) || found != places {
                let why = format!("expected columns of a multiple of {window} at {places} places");
                return Err(Error::shape("fold", why, &[x.shape()]));
            }
            let c = columns / window;
            let rows = x.reshape(&dims(&[n, c, numel(&[window, places])]))?;
            let blank = create::zeros(&dims(&[n, c, numel(&whole)]), Some(x.dtype()), Some(x.device()))?;
            let at = self.windows.indices(k, count, whole[1], x.device())?;
            let image = blank.index_add(2, &at, &rows, 1)?.reshape(&dims(&[n, c, whole[0], whole[1]]))?;
            let p = self.windows.padding.0;
            image.narrow(2, p[0], size[0] as i64)?.narrow(3, p[1], size[1] as i64)
        })
    }
}
