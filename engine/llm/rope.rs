//! Rotary position embeddings: frequencies with the scalings of long contexts, and the rotation.
//!
//! Depends on the engine's ops. Python's `lucid.llm.rope` calls what is here.
//!
//! References: J. Su et al., "RoFormer", 2021; B. Peng et al., "YaRN", 2023; Y. Ding et al., "LongRoPE", 2024.

use crate::ops::index::cat;
use crate::{Error, Result, Tensor};
use serde_json::Value as Json;
use std::f64::consts::PI;

const OP: &str = "rope";

/// What the frequencies of a head depend on.
#[derive(Clone, Debug, PartialEq)]
pub struct Angles {
    /// How many elements of a head are rotated.
    pub dim: usize,
    /// The base of the frequencies.
    pub theta: f64,
    /// `max_position_embeddings` of the model.
    pub context: usize,
    /// Hugging Face's `rope_scaling`, or null.
    pub scaling: Json,
}

fn failed(why: String) -> Box<Error> {
    Error::value(OP, why)
}

impl Angles {
    /// With the scaling as JSON.
    ///
    /// # Errors
    /// [`Error::InvalidValue`] where it is none.
    pub fn parsed(dim: usize, theta: f64, context: usize, scaling: &str) -> Result<Angles> {
        let scaling = serde_json::from_str(scaling);
        let scaling = scaling.map_err(|e| failed(format!("config: rope_scaling has no JSON form: {e}")))?;
        Ok(Angles { dim, theta, context, scaling })
    }

    /// No scaling.
    pub fn unscaled() -> Json {
        Json::Null
    }

    /// The name of the scaling.
    pub fn kind(&self) -> &str {
        let name = |key: &str| self.scaling[key].as_str();
        name("rope_type").or(name("type")).unwrap_or("default")
    }

    /// A positive number of the scaling.
    fn number(&self, key: &str, default: Option<f64>) -> Result<f64> {
        let found = match &self.scaling[key] {
            Json::Null => default,
            other => other.as_f64(),
        };
        let why = || failed(format!("config: rope_scaling needs a positive number {key}, got {}", self.scaling[key]));
        found.filter(|x| x.is_finite() && *x > 0.0).ok_or_else(why)
    }

    /// Texts above this length have frequencies of their own; `None` where all have the same.
    ///
    /// # Errors
    /// As [`frequencies`](Angles::frequencies).
    pub fn limit(&self) -> Result<Option<f64>> {
        match self.kind() {
            "longrope" | "su" => self.number("original_max_position_embeddings", None).map(Some),
            "dynamic" => Ok(Some(self.context as f64)),
            _ => Ok(None),
        }
    }

    /// Angles per position of the pairs of a head, and the factor that cosines and sines are multiplied by.
    ///
    /// `length` is the text's number of tokens, on which those of `longrope` and `dynamic` depend.
    ///
    /// # Errors
    /// [`Error::InvalidValue`] for a scaling that is not known, or whose numbers are missing or not positive.
    pub fn frequencies(&self, length: usize) -> Result<(Vec<f64>, f64)> {
        let (dim, theta, context) = (self.dim as f64, self.theta, self.context as f64);
        let of = |base: f64| (0..self.dim).step_by(2).map(move |i| base.powf(-(i as f64 / dim)));
        let plain: Vec<f64> = of(theta).collect();
        Ok(match self.kind() {
            "default" => (plain, 1.0),
            "linear" => {
                let factor = self.number("factor", None)?;
                (plain.iter().map(|f| f / factor).collect(), 1.0)
            }
            "dynamic" => {
                let factor = self.number("factor", None)?;
                let longer = factor * (length as f64).max(context) / context - (factor - 1.0);
                (of(theta * longer.powf(dim / (dim - 2.0))).collect(), 1.0)
            }
            "llama3" => (self.llama3(&plain)?, 1.0),
            "yarn" => self.yarn(&plain)?,
            "longrope" | "su" => self.longrope(&plain, length)?,
            other => return Err(failed(format!("config: rope_scaling of type {other:?} is not known"))),
        })
    }

    fn llama3(&self, plain: &[f64]) -> Result<Vec<f64>> {
        let number = |key| self.number(key, None);
        let (factor, low, high) = (number("factor")?, number("low_freq_factor")?, number("high_freq_factor")?);
        let context = number("original_max_position_embeddings")?;
        let scaled = |&f: &f64| {
            let length = 2.0 * PI / f;
            if length < context / high {
                f
            } else if length > context / low {
                f / factor
            } else {
                let smooth = (context / length - low) / (high - low);
                (1.0 - smooth) * f / factor + smooth * f
            }
        };
        Ok(plain.iter().map(scaled).collect())
    }

    fn yarn(&self, plain: &[f64]) -> Result<(Vec<f64>, f64)> {
        let most = self.context as f64;
        let context = self.number("original_max_position_embeddings", Some(most))?;
        let factor = self.number("factor", Some(most / context))?;
        let (fast, slow) = (self.number("beta_fast", Some(32.0))?, self.number("beta_slow", Some(1.0))?);
        let dim = self.dim as f64;
        let index = |rotations: f64| dim * (context / (rotations * 2.0 * PI)).ln() / (2.0 * self.theta.ln());
        let (mut low, mut high) = (index(fast), index(slow));
        if self.scaling["truncate"].as_bool().unwrap_or(true) {
            (low, high) = (low.floor(), high.ceil());
        }
        (low, high) = (low.max(0.0), high.min(dim - 1.0));
        let span = (high - low).max(0.001);
        let mixed = |(i, f): (usize, &f64)| {
            let ramp = ((i as f64 - low) / span).clamp(0.0, 1.0);
            f / factor * ramp + f * (1.0 - ramp)
        };
        let made = plain.iter().enumerate().map(mixed).collect();
        let scale = |by: f64| if factor <= 1.0 { 1.0 } else { 0.1 * by * factor.ln() + 1.0 };
        let given = |key: &str| self.scaling[key].as_f64().filter(|&x| x != 0.0);
        let attention = match (self.scaling["attention_factor"].as_f64(), given("mscale"), given("mscale_all_dim")) {
            (Some(x), _, _) => x,
            (None, Some(one), Some(all)) => scale(one) / scale(all),
            _ => scale(1.0),
        };
        Ok((made, attention))
    }

    fn longrope(&self, plain: &[f64], length: usize) -> Result<(Vec<f64>, f64)> {
        let context = self.number("original_max_position_embeddings", None)?;
        let key = if length as f64 > context { "long_factor" } else { "short_factor" };
        let factors: Option<Vec<f64>> =
            self.scaling[key].as_array().and_then(|list| list.iter().map(Json::as_f64).collect());
        let factors = factors.filter(|f| f.len() == plain.len()).ok_or_else(|| {
            let count = plain.len();
            failed(format!("config: rope_scaling needs long_factor and short_factor of {count} numbers"))
        })?;
        let factor = self.context as f64 / context;
        let attention = self.scaling["attention_factor"].as_f64().unwrap_or_else(|| match factor <= 1.0 {
            true => 1.0,
            false => (1.0 + factor.ln() / context.ln()).sqrt(),
        });
        Ok((plain.iter().zip(&factors).map(|(f, by)| f / by).collect(), attention))
    }
}

/// `x` (…, L, D) with its first elements rotated: pairs are `i` and `i + dim / 2`, where cosines and sines are
/// (…, L, dim / 2).
///
/// # Errors
/// For shapes that do not broadcast.
///
/// # Examples
/// ```
/// use lucid::{tensor, testing::assert_close};
/// let x = tensor([[1.0, 2.0]])?;
/// assert_close(lucid::llm::rope::rotate(&x, &tensor([[0.0]])?, &tensor([[1.0]])?)?, [[-2.0, 1.0]]);
/// # lucid::Result::<()>::Ok(())
/// ```
pub fn rotate(x: &Tensor, cos: &Tensor, sin: &Tensor) -> Result<Tensor> {
    let size = |t: &Tensor| t.shape().last().copied().unwrap_or(0);
    let (half, all) = (size(cos), size(x));
    if 2 * half > all {
        return Err(Error::shape("rotate", "more angles than pairs of elements", &[x.shape(), cos.shape()]));
    }
    let (cos, sin) = (cos.cast(x.dtype())?, sin.cast(x.dtype())?);
    let part = |from: usize, len: usize| x.narrow(-1, from as i64, len as i64);
    let (a, b) = (part(0, half)?, part(half, half)?);
    let mut parts = vec![((&a * &cos)? - &(&b * &sin)?)?, ((&b * &cos)? + &(&a * &sin)?)?];
    if 2 * half < all {
        parts.push(part(2 * half, all - 2 * half)?);
    }
    cat(&parts, -1)
}
