//! Initial values, written into tensors in place and unseen by the tape: `torch.nn.init`.

use crate::shape::numel;
use crate::{no_grad, Error, Result, Tensor};

/// Which side of a weight keeps the variance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fan {
    /// The forward pass.
    #[default]
    In,
    /// The backward pass.
    Out,
}

/// How many inputs and outputs each element of a weight (out, in, window…) meets.
///
/// # Errors
/// [`Error::InvalidValue`] for fewer than two dimensions.
pub fn fans(weight: &Tensor) -> Result<(usize, usize)> {
    match weight.shape() {
        [out, inputs, window @ ..] => {
            let field = numel(window);
            Ok((numel(&[*inputs, field]), numel(&[*out, field])))
        }
        shape => {
            let why = format!("fan in and fan out can not be computed for a tensor of shape {shape:?}");
            Err(Error::value("init", why))
        }
    }
}

/// Fills with one number.
///
/// # Errors
/// Where the tensor cannot be written.
pub fn constant(t: &Tensor, value: f64) -> Result<()> {
    no_grad(|| t.copy_(&Tensor::full_of(&[], value.into(), t.dtype(), t.device())?.broadcast_to(&dims(t))?))
}

/// Fills with zeros.
///
/// # Errors
/// As [`constant`].
pub fn zeros(t: &Tensor) -> Result<()> {
    constant(t, 0.0)
}

/// Fills with ones.
///
/// # Errors
/// As [`constant`].
pub fn ones(t: &Tensor) -> Result<()> {
    constant(t, 1.0)
}

/// Fills with numbers uniform in `low..high`.
///
/// # Errors
/// For bounds that are not in order, and dtypes that are not floating.
pub fn uniform(t: &Tensor, low: f64, high: f64) -> Result<()> {
    no_grad(|| t.uniform_(low, high, None).map(drop))
}

/// Fills with normal numbers.
///
/// # Errors
/// For a negative deviation, and dtypes that are not floating.
pub fn normal(t: &Tensor, mean: f64, std: f64) -> Result<()> {
    no_grad(|| t.normal_(mean, std, None).map(drop))
}

/// Fills with normal numbers, those outside of `low..high` drawn again, by the inverse of the distribution function.
///
/// # Errors
/// As [`normal`].
pub fn truncated_normal(t: &Tensor, mean: f64, std: f64, low: f64, high: f64) -> Result<()> {
    if !(std > 0.0 && low < high) {
        return Err(Error::value("init", format!("no normal numbers of deviation {std} from {low} to {high}")));
    }
    let cdf = |x: f64| (1.0 + libm::erf((x - mean) / std / std::f64::consts::SQRT_2)) / 2.0;
    no_grad(|| {
        t.uniform_(2.0 * cdf(low) - 1.0, 2.0 * cdf(high) - 1.0, None)?;
        let x = ((t.erfinv()? * (std * std::f64::consts::SQRT_2))? + mean)?;
        t.copy_(&x.clamp(Some(low.into()), Some(high.into()))?)
    })
}

/// Fills a square or rectangular matrix with the identity.
///
/// # Errors
/// For other than two dimensions.
pub fn eye(t: &Tensor) -> Result<()> {
    let &[rows, columns] = t.shape() else {
        return Err(Error::value("init", format!("eye takes a matrix, got shape {:?}", t.shape())));
    };
    let made = crate::ops::create::eye(rows as i64, Some(columns as i64), Some(t.dtype()), Some(t.device()))?;
    no_grad(|| t.copy_(&made))
}

/// Glorot's uniform numbers (2010): ±gain · √(6 / (fan_in + fan_out)).
///
/// # Errors
/// As [`fans`].
pub fn xavier_uniform(t: &Tensor, gain: f64) -> Result<()> {
    let (inputs, outputs) = fans(t)?;
    let bound = gain * (6.0 / inputs.saturating_add(outputs).max(1) as f64).sqrt();
    uniform(t, -bound, bound)
}

/// Glorot's normal numbers: deviation gain · √(2 / (fan_in + fan_out)).
///
/// # Errors
/// As [`fans`].
pub fn xavier_normal(t: &Tensor, gain: f64) -> Result<()> {
    let (inputs, outputs) = fans(t)?;
    normal(t, 0.0, gain * (2.0 / inputs.saturating_add(outputs).max(1) as f64).sqrt())
}

/// He's uniform numbers (2015): ±gain · √(3 / fan); the gain is √2 before relu.
///
/// # Errors
/// As [`fans`].
pub fn kaiming_uniform(t: &Tensor, gain: f64, mode: Fan) -> Result<()> {
    let bound = gain * (3.0 / fan(t, mode)?).sqrt();
    uniform(t, -bound, bound)
}

/// He's normal numbers: deviation gain / √fan.
///
/// # Errors
/// As [`fans`].
pub fn kaiming_normal(t: &Tensor, gain: f64, mode: Fan) -> Result<()> {
    normal(t, 0.0, gain / fan(t, mode)?.sqrt())
}

fn fan(t: &Tensor, mode: Fan) -> Result<f64> {
    let (inputs, outputs) = fans(t)?;
    Ok(match mode {
        Fan::In => inputs,
        Fan::Out => outputs,
    }
    .max(1) as f64)
}

fn dims(t: &Tensor) -> smallvec::SmallVec<[isize; 4]> {
    crate::tensor::signed(t.shape())
}
