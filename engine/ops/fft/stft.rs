//! Fourier transforms of short times: of the frames of a signal, and back.
//!
//! Made of views, windows and transforms. Griffin and Lim, "Signal estimation from modified short-time Fourier
//! transform" (1984), is where the inverse, which divides by the sum of squared windows, comes from.

use super::{c2c, c2r, r2c, Normalization};
use crate::ops::arguments::Named;
use crate::ops::macros::define_composites;
use crate::ops::view::view_as_real;
use crate::shape::Axes;
use crate::{DType, Error, Result, Scalar, Tensor};

/// The rows of the family, for `$cb`.
#[macro_export]
#[doc(hidden)]
macro_rules! stft_ops {
    ($cb:ident) => {
        $crate::rows! { $cb "fft" :
            /// The Fourier transforms of the frames of a signal, (L) or (B, L): `X[f, t] = Σ w[k] x[t hop + k]
            /// e^(-2πi fk / n_fft)`, of shape (B, F, T) with `F = n_fft / 2 + 1` if `onesided`, as it is by default
            /// where all is real, else `n_fft`.
            ///
            /// `hop_length` is `n_fft / 4` and `win_length` `n_fft` unless given; a shorter `window` has zeros on
            /// both sides, and none is ones. With `center` frame `t` is around `t hop`, and the signal is padded by
            /// `n_fft / 2` on both sides in the way `pad_mode` says. `normalized` divides by `√n_fft`. Without
            /// `return_complex` real and imaginary parts are a last dimension. Where it is not centered,
            /// `align_to_window` makes the frames those of the window, and not of `n_fft` elements.
            method stft(
                n_fft: Int, hop_length: OptInt = None, win_length: OptInt = None, window: OptTensor = None,
                center: Bool = true, pad_mode: Text = "reflect", normalized: Bool = false, onesided: OptBool = None,
                return_complex: OptBool = None, align_to_window: OptBool = None
            ) -> Tensor {
                out: none, flags: [steps], amp: FullCpu, dtypes: FACTORED, result: Own,
                run: stft_body,
                samples: [
                    "N(40), 8, return_complex=True",
                    "N(2, 30), 8, 3, 6, P(6), return_complex=True",
                    "N(20), 7, 2, None, P(7), False, return_complex=True",
                    "N(2, 20), 8, 4, window=P(8), pad_mode='constant', normalized=True, onesided=False, return_complex=True",
                    "N(24), 8, 4, window=P(8), return_complex=False",
                ],
                example: [
                    "let x = tensor([1.0, 2.0, 3.0, 4.0])?;",
                    "let y = x.stft(2, Some(2), None, Some(&tensor([1.0, 1.0])?), false, PadMode::Reflect, false, None, Some(true), None)?;",
                    "assert_close(y, [[(3.0, 0.0), (7.0, 0.0)], [(-1.0, 0.0), (-1.0, 0.0)]]);",
                ],
            }
            /// The signal, (L) or (B, L), of which [`stft`] gives transforms that are nearest to these, (F, T) or (B,
            /// F, T): the sum of the frames' inverse transforms times `window`, over the sum of its squares. An error
            /// where the latter is 0 somewhere; that is read back, which evaluates. `length` elements where it is
            /// given; arguments as of [`stft`].
            method istft(
                n_fft: Int, hop_length: OptInt = None, win_length: OptInt = None, window: OptTensor = None,
                center: Bool = true, normalized: Bool = false, onesided: OptBool = None, length: OptInt = None,
                return_complex: Bool = false
            ) -> Tensor {
                out: none, flags: [steps], dtypes: COMPLEX, result: Own,
                run: istft_body,
                samples: [
                    "N(5, 7), 8, window=P(8)",
                    "N(2, 5, 7), 8, 3, 6, P(6), length=15",
                    "N(4, 6), 7, 2, None, P(7), False",
                    "N(8, 7), 8, 4, window=P(8), normalized=True, onesided=False",
                    "N(8, 7), 8, 4, window=P(8), return_complex=True",
                ],
                example: [
                    "let y = tensor([[(3.0, 0.0), (7.0, 0.0)], [(-1.0, 0.0), (-1.0, 0.0)]])?;",
                    "let x = y.istft(2, Some(2), None, Some(&tensor([1.0, 1.0])?), false, false, None, None, false)?;",
                    "assert_close(x, [1.0, 2.0, 3.0, 4.0]);",
                ],
            }
        }
    };
}
stft_ops!(define_composites);

/// Hops in a frame up to which frames are added as shifted signals; more are added up by index.
const SHIFTS: i64 = 16;

/// The length of a hop and of the window, checked.
struct Frames {
    n_fft: i64,
    hop: i64,
    window: i64,
}

impl Frames {
    fn of(op: &'static str, n_fft: i64, hop: Option<i64>, window: Option<i64>) -> Result<Frames> {
        let frames = Frames { n_fft, hop: hop.unwrap_or(n_fft >> 2), window: window.unwrap_or(n_fft) };
        if n_fft < 1 {
            return Err(Error::runtime(op, format!("expected 0 < n_fft, but got n_fft={n_fft}")));
        }
        if frames.hop < 1 {
            return Err(Error::runtime(op, format!("expected hop_length > 0, but got hop_length={}", frames.hop)));
        }
        if !(1..=n_fft).contains(&frames.window) {
            let why =
                format!("expected 0 < win_length <= n_fft, but got win_length={} and n_fft={n_fft}", frames.window);
            return Err(Error::runtime(op, why));
        }
        Ok(frames)
    }

    /// Refuses a window of another shape.
    fn check(&self, op: &'static str, window: Option<&Tensor>) -> Result<()> {
        match window {
            Some(w) if w.shape() != [self.window as usize] => {
                let why = format!("expected a 1D window tensor of size equal to win_length={}", self.window);
                Err(Error::shape(op, why, &[w.shape()]))
            }
            _ => Ok(()),
        }
    }

    /// Zeros before and behind the window.
    fn margins(&self) -> [isize; 2] {
        let left = (self.n_fft - self.window) / 2;
        [left as isize, (self.n_fft - self.window - left) as isize]
    }

    /// The window with zeros on both sides, so that it is as long as a transform.
    fn padded(&self, window: &Tensor) -> Result<Tensor> {
        match self.margins() {
            [0, 0] => Ok(window.clone()),
            margins => crate::ops::index::constant_pad_nd(window, &margins, Scalar::ZERO),
        }
    }
}

/// PyTorch's warning of a call without a window.
fn warn_rectangular(why: &str) {
    crate::warnings::warn(format!(
        "A window was not provided. A rectangular window will be applied{why} To suppress this warning and use a rectangular window, explicitly set `window=lucid.ones(n_fft, device=<device>)`."
    ));
}

#[allow(clippy::too_many_arguments)]
fn stft_body(
    x: &Tensor,
    n_fft: i64,
    hop: Option<i64>,
    win_length: Option<i64>,
    window: Option<&Tensor>,
    center: bool,
    pad_mode: &str,
    normalized: bool,
    onesided: Option<bool>,
    return_complex: Option<bool>,
    align: Option<bool>,
) -> Result<Tensor> {
    let op = "stft";
    if center && align.is_some() {
        return Err(Error::runtime(op, "stft align_to_window should only be set when center = false"));
    }
    check_dtype(x)?;
    if !(1..=2).contains(&x.ndim()) {
        return Err(Error::shape(op, "expected a 1D or 2D tensor", &[x.shape()]));
    }
    let frames = Frames::of(op, n_fft, hop, win_length)?;
    frames.check(op, window)?;
    let complex = x.dtype().is_complex() || window.is_some_and(|w| w.dtype().is_complex());
    if return_complex.is_none() && !complex {
        let why = "stft requires the return_complex parameter be given for real inputs; give return_complex=True";
        return Err(Error::runtime(op, why));
    }
    if complex && onesided == Some(true) {
        return Err(Error::runtime(op, "Cannot have onesided output if window or input is complex"));
    }
    if window.is_none() {
        warn_rectangular(
            ", which is known to cause spectral leakage. Other windows such as lucid.hann_window or lucid.hamming_window are recommended to reduce spectral leakage.",
        );
    }
    if return_complex == Some(false) {
        crate::warnings::warn(
            "stft with return_complex=False is deprecated. In a future pytorch release, stft will return complex tensors \
             for all inputs, and return_complex=False will raise an error.\nNote: you can still call \
             lucid.view_as_real on the complex output to recover the old return format."
                .to_string(),
        );
    }
    let mut signal = if x.ndim() == 1 { x.unsqueeze(0)? } else { x.clone() };
    if center {
        let pad = (n_fft / 2) as isize;
        signal = signal.unsqueeze(0)?.pad(&[pad, pad], Named(pad_mode), None)?.squeeze(Some(&[0][..]))?;
    }
    let aligned = align == Some(true);
    let (size, len) = (if aligned { frames.window } else { n_fft }, signal.shape()[1] as i64);
    if size > len {
        let why = format!("expected 0 < n_fft <= {len}, the length of the signal, but got n_fft={n_fft}");
        return Err(Error::shape(op, why, &[x.shape()]));
    }
    let mut each = signal.unfold(-1, size, frames.hop)?;
    if aligned {
        each = match window {
            Some(w) => (&each * w)?,
            None => each,
        };
        let margins = frames.margins();
        if margins != [0, 0] {
            each = crate::ops::index::constant_pad_nd(&each, &margins, Scalar::ZERO)?;
        }
    } else if let Some(w) = window {
        each = (&each * &frames.padded(w)?)?;
    } else if frames.window < n_fft {
        let ones = Tensor::full_of(&[frames.window as usize], Scalar::ONE, x.dtype().to_real(), x.device())?;
        each = (&each * &frames.padded(&ones)?)?;
    }
    let norm = if normalized { Normalization::RootN } else { Normalization::Nothing };
    let last = Axes::from_slice(&[2]);
    check_dtype(&each)?;
    let made = match each.dtype().is_complex() {
        true => c2c(&each, last, norm, true)?,
        false => r2c(&each, last, norm, onesided.unwrap_or(true))?,
    };
    let made = made.transpose(1, 2)?;
    let made = if x.ndim() == 1 { made.squeeze(Some(&[0][..]))? } else { made };
    if return_complex.unwrap_or(true) {
        Ok(made)
    } else {
        view_as_real(&made)
    }
}

/// Refuses what has no transform.
fn check_dtype(x: &Tensor) -> Result<()> {
    if schema::stft.dtypes.has(x.dtype()) {
        return Ok(());
    }
    let why = format!("expected a tensor of floating point or complex values of 32 bits or more, got {}", x.dtype());
    Err(Box::new(Error::UnsupportedDtype { op: "stft", why: why.into(), dtypes: vec![x.dtype()] }))
}

#[allow(clippy::too_many_arguments)]
fn istft_body(
    x: &Tensor,
    n_fft: i64,
    hop: Option<i64>,
    win_length: Option<i64>,
    window: Option<&Tensor>,
    center: bool,
    normalized: bool,
    onesided: Option<bool>,
    length: Option<i64>,
    return_complex: bool,
) -> Result<Tensor> {
    let op = "istft";
    if !x.dtype().is_complex() {
        let why =
            "istft requires a complex-valued input tensor matching the output from stft with return_complex=True.";
        return Err(Error::dtype(op, why, &[x.dtype()]));
    }
    if !(2..=3).contains(&x.ndim()) {
        let why = "expected a complex tensor with 2 or 3 dimensions, (F, T) or (B, F, T)";
        return Err(Error::shape(op, why, &[x.shape()]));
    }
    if x.numel() == 0 {
        return Err(Error::shape(op, "input tensor cannot be empty.", &[x.shape()]));
    }
    let frames = Frames::of(op, n_fft, hop, win_length)?;
    if frames.hop > frames.window {
        let why = format!(
            "expected 0 < hop_length <= win_length, but got hop_length={} and win_length={}",
            frames.hop, frames.window
        );
        return Err(Error::runtime(op, why));
    }
    frames.check(op, window)?;
    let (bins, count) = (x.shape()[x.ndim() - 2], x.shape()[x.ndim() - 1]);
    let onesided = onesided.unwrap_or(bins as i64 != n_fft);
    let expected = if onesided { n_fft / 2 + 1 } else { n_fft };
    if bins as i64 != expected {
        let why = format!("expected {expected} frequencies for n_fft={n_fft} and onesided={onesided}, but got {bins}");
        return Err(Error::shape(op, why, &[x.shape()]));
    }
    if length.is_some_and(|n| n < 1) {
        return Err(Error::runtime(op, format!("expected length > 0, but got length={}", length.unwrap_or(0))));
    }
    if return_complex && onesided {
        return Err(Error::runtime(op, "Cannot have onesided output if window or input is complex"));
    }
    if !return_complex && window.is_some_and(|w| w.dtype().is_complex()) {
        return Err(Error::dtype(op, "Complex windows are incompatible with return_complex=False", &[DType::C64]));
    }
    if window.is_none() {
        warn_rectangular(". Please provide the same window used by stft to make the inversion lossless.");
    }
    let spectra = if x.ndim() == 2 { x.unsqueeze(0)? } else { x.clone() }.transpose(1, 2)?;
    let norm = if normalized { Normalization::RootN } else { Normalization::N };
    let last = Axes::from_slice(&[2]);
    let each = match return_complex {
        true => c2c(&spectra, last, norm, false)?,
        false => c2r(&spectra.narrow(-1, 0, n_fft / 2 + 1)?, last, norm, n_fft as usize)?,
    };
    let weights = match window {
        Some(w) => w.clone(),
        None => Tensor::full_of(&[frames.window as usize], Scalar::ONE, x.dtype().to_real(), x.device())?,
    };
    let weights = frames.padded(&weights)?;
    let reach = n_fft.saturating_add(frames.hop.saturating_mul(count as i64 - 1));
    let start = if center { n_fft / 2 } else { 0 };
    let end = match length {
        Some(n) => start.saturating_add(n),
        None if center => reach - n_fft / 2,
        None => reach,
    };
    if start >= end.min(reach) {
        let why = format!("no element is left of {reach}: those from {start} to {end} were asked for");
        return Err(Error::runtime(op, why));
    }
    let cut = |y: &Tensor| y.narrow(1, start, end.min(reach) - start);
    let signal = cut(&overlap_added(&(&each * &weights)?, frames.hop)?)?;
    let squares = (&weights * &weights)?;
    let squares = crate::ops::view::expand_to(&squares, &[1, count, n_fft as usize])?;
    let envelope = cut(&overlap_added(&squares, frames.hop)?)?;
    refuse_gaps(op, &envelope)?;
    let mut signal = signal.div(&envelope, None)?;
    if x.ndim() == 2 {
        signal = signal.squeeze(Some(&[0][..]))?;
    }
    if end > reach {
        crate::warnings::warn(
            "The length of signal is shorter than the length parameter. Result is being padded with zeros in the tail. Please check your center and hop_length settings."
                .to_string(),
        );
        let behind = isize::try_from(end - reach).unwrap_or(isize::MAX);
        signal = crate::ops::index::constant_pad_nd(&signal, &[0, behind], Scalar::ZERO)?;
    }
    Ok(signal)
}

/// An error where nothing, or next to nothing, was added up.
fn refuse_gaps(op: &'static str, envelope: &Tensor) -> Result<()> {
    if envelope.device() == crate::Device::Meta {
        return Ok(());
    }
    let least = crate::batching::bare(envelope).detach()?.abs()?.amin(None, false)?.item()?.to_f64();
    if least < 1e-11 {
        let why = format!(
            "window overlap add min: {least}: the windows leave a gap, by which the signal would have to be divided; take a window without zeros at both ends, or a smaller hop_length"
        );
        return Err(Error::runtime(op, why));
    }
    Ok(())
}

/// Frames, (B, T, n), added up where they are in the signal, (B, n + hop (T - 1)).
fn overlap_added(frames: &Tensor, hop: i64) -> Result<Tensor> {
    let [batch, count, n] = [0, 1, 2].map(|i| frames.shape()[i] as i64);
    let (reach, hops) = (n + hop * (count - 1), (n + hop - 1) / hop);
    if hops > SHIFTS {
        let place = |len: i64| crate::ops::create::arange_of(len as usize, frames.device());
        let index = ((place(count)? * hop)?.unsqueeze(-1)? + &place(n)?)?.reshape(&[-1])?;
        let zeros = Tensor::full_of(&[batch as usize, reach as usize], Scalar::ZERO, frames.dtype(), frames.device())?;
        return zeros.index_add(1, &index, &frames.reshape(&[batch as isize, -1])?, 1);
    }
    let whole = crate::ops::index::constant_pad_nd(frames, &[0, (hops * hop - n) as isize], Scalar::ZERO)?;
    let pieces = whole.reshape(&[batch as isize, count as isize, hops as isize, hop as isize])?;
    let mut sum: Option<Tensor> = None;
    for i in 0..hops {
        // The i-th hop of each frame is in the signal's place of the frame that comes i later.
        let pad = [0, 0, i as isize, (hops - 1 - i) as isize];
        let moved = crate::ops::index::constant_pad_nd(&pieces.select(2, i)?, &pad, Scalar::ZERO)?;
        sum = Some(match sum {
            None => moved,
            Some(sum) => (sum + &moved)?,
        });
    }
    let sum = sum.ok_or_else(|| Error::runtime("istft", "a frame without elements"))?;
    sum.reshape(&[batch as isize, -1])?.narrow(1, 0, reach)
}
