//! From logits to tokens: temperature, top-k, top-p, min-p.
//!
//! Depends on the engine's ops. Python's `lucid.llm.Sampler` calls [`scores`]; with the same seed both draw the same
//! tokens. Invariant: a token always remains.

use crate::{DType, Error, Generator, Result, Tensor};

const OP: &str = "sampling";

/// How tokens are chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// 0 takes the best token; otherwise logits are divided by it.
    pub temperature: f64,
    /// Keep so many of the best tokens; 0 keeps all.
    pub top_k: usize,
    /// Keep the best tokens that together have this probability.
    pub top_p: f64,
    /// Keep tokens with at least this share of the best one's probability.
    pub min_p: f64,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings { temperature: 0.0, top_k: 0, top_p: 1.0, min_p: 0.0 }
    }
}

impl Settings {
    /// Are the numbers what they may be?
    ///
    /// # Errors
    /// [`Error::InvalidValue`] naming the one that is not.
    pub fn check(&self) -> Result<()> {
        let why = if !(self.temperature >= 0.0 && self.temperature.is_finite()) {
            format!("temperature must be a number from 0 on, got {}", self.temperature)
        } else if !(self.top_p > 0.0 && self.top_p <= 1.0) {
            format!("top_p must be above 0 and at most 1, got {}", self.top_p)
        } else if !(0.0..=1.0).contains(&self.min_p) {
            format!("min_p must be from 0 to 1, got {}", self.min_p)
        } else {
            return Ok(());
        };
        Err(Error::value(OP, why))
    }
}

/// Log-probabilities (B, V), up to a constant, of what may be drawn; minus infinity for the rest.
///
/// # Errors
/// For logits that are not (B, V), and a temperature of 0.
///
/// # Examples
/// ```
/// use lucid::{llm::sampling::{scores, Settings}, tensor, testing::assert_close};
/// let settings = Settings { temperature: 0.5, top_k: 2, ..Settings::default() };
/// assert_close(scores(&tensor([[1.0, 3.0, 2.0]])?, &settings)?, [[f64::NEG_INFINITY, 6.0, 4.0]]);
/// # lucid::Result::<()>::Ok(())
/// ```
pub fn scores(logits: &Tensor, settings: &Settings) -> Result<Tensor> {
    settings.check()?;
    if logits.ndim() != 2 || settings.temperature == 0.0 {
        return Err(Error::shape(OP, "expected logits (B, V) and a temperature above 0", &[logits.shape()]));
    }
    let mut logits = (logits.cast(DType::F32)? / settings.temperature)?;
    if settings.top_k > 0 && settings.top_k < logits.shape()[1] {
        let least = logits.topk(settings.top_k as i64, -1, true, true)?.0.narrow(1, -1, 1)?;
        logits = logits.masked_fill(&logits.lt(&least)?, f64::NEG_INFINITY)?;
    }
    if settings.min_p > 0.0 {
        let chances = logits.softmax(-1, None)?;
        let least = (chances.amax(Some(&[-1]), true)? * settings.min_p)?;
        logits = logits.masked_fill(&chances.lt(&least)?, f64::NEG_INFINITY)?;
    }
    if settings.top_p < 1.0 {
        let (ordered, order) = logits.sort(-1, true, true)?;
        let chances = ordered.softmax(-1, None)?;
        // A token stays if those before it have not reached top_p; the best one always does.
        let before = (chances.cumsum(-1, None)? - &chances)?;
        let drop = before.ge(settings.top_p)?;
        let drop = drop.zeros_like()?.scatter(1, &order, Some((&drop).into()), None, None)?;
        logits = logits.masked_fill(&drop, f64::NEG_INFINITY)?;
    }
    Ok(logits)
}

/// One token for each row of logits (B, V).
///
/// # Errors
/// As [`scores`].
pub fn draw(logits: &Tensor, settings: &Settings, generator: Option<&Generator>) -> Result<Vec<u32>> {
    settings.check()?;
    let chosen = match settings.temperature == 0.0 {
        true => logits.argmax(Some(-1), false)?,
        false => scores(logits, settings)?.softmax(-1, None)?.multinomial(1, false, generator)?,
    };
    Ok(chosen.to_vec::<i64>()?.into_iter().map(|n| n as u32).collect())
}
