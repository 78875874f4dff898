//! Clipping of gradients, and the scale that keeps those of 16-bit floats from vanishing.

use super::optimizer::{numbers, single};
use super::Optimizer;
use crate::ops::arguments::Setting;
use crate::ops::index::stack;
use crate::ops::matrix::linalg_vector_norm;
use crate::{no_grad, DType, Device, Error, Result, Tensor};

/// Scales the gradients so that the norm of all of them together is `max_norm` at most, and gives what it was. `norm_type` is
/// 2 for the Euclidean norm, infinity for the largest element. Waits for nothing.
///
/// ```
/// use lucid::prelude::*;
/// # fn main() -> Result<()> {
/// let w = tensor!([3.0, 4.0])?.requires_grad_(true)?;
/// ((&w * &w)? * 0.5)?.sum_all()?.backward()?;
/// assert_eq!(optim::clip_grad_norm(&[w.clone()], 1.0, 2.0)?.item_f64()?, 5.0);
/// assert_close(w.grad().unwrap(), [0.6, 0.8]);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// For gradients on several devices, and a norm that is none.
pub fn clip_grad_norm(params: &[Tensor], max_norm: f64, norm_type: f64) -> Result<Tensor> {
    no_grad(|| {
        let grads: Vec<Tensor> = params.iter().filter_map(Tensor::grad).collect();
        let Some(first) = grads.first() else {
            return Tensor::full_of(&[], 0.0.into(), DType::F32, Device::Cpu);
        };
        let norm = |t: &Tensor| linalg_vector_norm(t, norm_type, None, false, None)?.cast(DType::F32);
        let total = norm(&stack(&grads.iter().map(norm).collect::<Result<Vec<_>>>()?, 0)?)?;
        let factor = (max_norm / (&total + 1e-6)?)?.clamp(None, Some(1.0.into()))?;
        grads.iter().try_for_each(|g| g.copy_(&(g * &factor.cast(g.dtype())?.to_device(first.device())?)?))?;
        Ok(total)
    })
}

/// Clamps every element of the gradients to ±`value`.
///
/// # Errors
/// For a negative value.
pub fn clip_grad_value(params: &[Tensor], value: f64) -> Result<()> {
    if value.is_nan() || value < 0.0 {
        return Err(Error::value("clip_grad_value", format!("the value must be from 0 on, got {value}")));
    }
    no_grad(|| {
        let mut grads = params.iter().filter_map(Tensor::grad);
        grads.try_for_each(|g| g.copy_(&g.clamp(Some((-value).into()), Some(value.into()))?))
    })
}

/// Multiplies losses so that gradients of 16-bit floats do not vanish, and leaves steps out whose gradients are not finite.
///
/// ```
/// use lucid::prelude::*;
/// # fn main() -> Result<()> {
/// let w = tensor!([1.0])?.requires_grad_(true)?;
/// let (mut sgd, mut scaler) = (optim::Sgd::new([w.clone()], 0.1), optim::GradScaler::default());
/// scaler.scale(&(&w * &w)?.sum_all()?)?.backward()?;
/// assert!(scaler.step(&mut sgd)?);
/// assert_close(&w, [0.8]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct GradScaler {
    scale: f64,
    growth_factor: f64,
    backoff_factor: f64,
    growth_interval: u64,
    good: u64,
    unscaled: bool,
}

impl Default for GradScaler {
    fn default() -> GradScaler {
        GradScaler {
            scale: 65_536.0,
            growth_factor: 2.0,
            backoff_factor: 0.5,
            growth_interval: 2000,
            good: 0,
            unscaled: false,
        }
    }
}

impl GradScaler {
    /// With another scale at first, and other steps between rises.
    ///
    /// # Errors
    /// For a scale that is not above 0.
    pub fn new(scale: f64, growth_interval: impl Setting<u64>) -> Result<GradScaler> {
        if !(scale > 0.0 && scale.is_finite()) {
            return Err(Error::value("grad_scaler", format!("the scale must be above 0 and finite, got {scale}")));
        }
        Ok(GradScaler { scale, growth_interval: growth_interval.set(), ..GradScaler::default() })
    }

    /// By what the scale rises after so many good steps, and falls after one that was skipped. Default: 2 and 0.5.
    ///
    /// # Errors
    /// Unless the first is above 1 and the second between 0 and 1.
    pub fn factors(self, growth: f64, backoff: f64) -> Result<GradScaler> {
        if !(growth > 1.0 && growth.is_finite() && backoff > 0.0 && backoff < 1.0) {
            let why = format!("growth must be above 1 and backoff between 0 and 1, got {growth} and {backoff}");
            return Err(Error::value("grad_scaler", why));
        }
        Ok(GradScaler { growth_factor: growth, backoff_factor: backoff, ..self })
    }

    /// The scale.
    pub fn get_scale(&self) -> f64 {
        self.scale
    }

    /// The scale, and how many good steps there were since it last changed.
    ///
    /// # Errors
    /// Where there is no memory.
    pub fn state_dict(&self) -> Result<crate::nn::StateDict> {
        numbers(&[("scale", &[self.scale]), ("_growth_tracker", &[self.good as f64])])
    }

    /// Goes on where the state comes from.
    ///
    /// # Errors
    /// [`Error::Runtime`] where a name is missing, [`Error::InvalidValue`] for a scale that is not above 0.
    pub fn load_state_dict(&mut self, state: &crate::nn::StateDict) -> Result<()> {
        let (scale, good) = (single("grad_scaler", state, "scale")?, single("grad_scaler", state, "_growth_tracker")?);
        let checked = GradScaler::new(scale, self.growth_interval)?;
        (self.scale, self.good, self.unscaled) = (checked.scale, good as u64, false);
        Ok(())
    }

    /// The loss, scaled.
    ///
    /// # Errors
    /// None that multiplication has not.
    pub fn scale(&self, loss: &Tensor) -> Result<Tensor> {
        loss * self.scale
    }

    /// Divides the gradients by the scale, as before clipping. `step` does it where it has not been done.
    ///
    /// # Errors
    /// Where it has been done in this step.
    pub fn unscale(&mut self, optimizer: &dyn Optimizer) -> Result<()> {
        if self.unscaled {
            return Err(Error::runtime("grad_scaler", "unscale() has already been called since the last step()"));
        }
        self.unscaled = true;
        let factor = 1.0 / self.scale;
        no_grad(|| optimizer.parameters().iter().filter_map(Tensor::grad).try_for_each(|g| g.copy_(&(&g * factor)?)))
    }

    /// Steps where all gradients are finite, and says whether; then raises or lowers the scale. Waits for one number.
    ///
    /// # Errors
    /// What the optimizer reports.
    pub fn step(&mut self, optimizer: &mut dyn Optimizer) -> Result<bool> {
        if !self.unscaled {
            self.unscale(optimizer)?;
        }
        self.unscaled = false;
        let largest = |p: &Tensor| {
            let g = p.grad().filter(|g| g.numel() > 0)?;
            Some(no_grad(|| g.abs()?.amax(None, false)?.cast(DType::F32)))
        };
        let largest: Vec<Tensor> = optimizer.parameters().iter().filter_map(largest).collect::<Result<_>>()?;
        let finite = match largest.is_empty() {
            true => true,
            false => stack(&largest, 0)?.isfinite()?.all(None, false)?.item_bool()?,
        };
        if finite {
            optimizer.step()?;
            self.good += 1;
            if self.good == self.growth_interval {
                self.good = 0;
                let grown = self.scale * self.growth_factor;
                self.scale = if grown <= f64::from(f32::MAX) { grown } else { self.scale };
            }
        } else {
            self.scale *= self.backoff_factor;
            self.good = 0;
        }
        Ok(finite)
    }
}

/// Averages of a model's parameters over steps: exponential (EMA), or of all steps alike (SWA, Izmailov et al., 2018).
///
/// ```
/// use lucid::prelude::*;
/// # fn main() -> Result<()> {
/// let model = nn::Linear::new(2, 1, Device::Cpu)?;
/// let mut average = optim::Average::ema(&model, 0.9)?;
/// nn::init::zeros(&model.weight)?;
/// average.update(&model)?;
/// average.copy_to(&model)?;
/// assert!(model.weight.abs()?.amax(None, false)?.item_f64()? > 0.0);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Average {
    values: crate::nn::StateDict,
    decay: Option<f64>,
    steps: u64,
}

impl Average {
    fn of(model: &dyn crate::nn::Module, decay: Option<f64>) -> Result<Average> {
        let copied = model.state_dict()?.into_iter().map(|(name, t)| Ok((name, no_grad(|| t.copy())?)));
        Ok(Average { values: copied.collect::<Result<_>>()?, decay, steps: 1 })
    }

    /// `average = decay · average + (1 - decay) · parameter` at every update.
    ///
    /// # Errors
    /// For a decay outside of 0 to 1.
    pub fn ema(model: &dyn crate::nn::Module, decay: f64) -> Result<Average> {
        match (0.0..=1.0).contains(&decay) {
            true => Average::of(model, Some(decay)),
            false => Err(Error::value("average", format!("the decay must be from 0 to 1, got {decay}"))),
        }
    }

    /// The mean of all that `update` was given, and of the model now.
    ///
    /// # Errors
    /// Where there is no memory.
    pub fn swa(model: &dyn crate::nn::Module) -> Result<Average> {
        Average::of(model, None)
    }

    /// Takes in the model as it is; buffers of whole numbers are copied.
    ///
    /// # Errors
    /// Where it is another model.
    pub fn update(&mut self, model: &dyn crate::nn::Module) -> Result<()> {
        let share = match self.decay {
            Some(decay) => 1.0 - decay,
            None => 1.0 / (self.steps + 1) as f64,
        };
        let state = model.state_dict()?;
        let own = self.values.iter().map(|(name, own)| {
            let new = state.get(name).filter(|new| new.shape() == own.shape());
            new.map(|new| (own, new)).ok_or_else(|| Error::runtime("average", format!("the model has no {name}")))
        });
        let pairs = own.collect::<Result<Vec<_>>>()?;
        no_grad(|| {
            pairs.into_iter().try_for_each(|(own, new)| match own.dtype().is_float() {
                true => own.copy_(&own.lerp(&new.to_device(own.device())?, share)?),
                false => own.copy_(new),
            })
        })?;
        self.steps += 1;
        Ok(())
    }

    /// The averages by name.
    pub fn averages(&self) -> &crate::nn::StateDict {
        &self.values
    }

    /// The averages by name, and `n_averaged`, how many models they are of. They share the average's memory.
    ///
    /// # Errors
    /// Where there is no memory.
    pub fn state_dict(&self) -> Result<crate::nn::StateDict> {
        let mut state = numbers(&[("n_averaged", &[self.steps as f64])])?;
        state.extend(self.values.iter().map(|(name, t)| (format!("module.{name}"), t.clone())));
        Ok(state)
    }

    /// Goes on where the state comes from.
    ///
    /// # Errors
    /// [`Error::Runtime`] where the state is that of another model.
    pub fn load_state_dict(&mut self, state: &crate::nn::StateDict) -> Result<()> {
        let steps = single("average", state, "n_averaged")?;
        let given = crate::checkpoint::section(state, "module");
        let fits = |(name, own): (&String, &Tensor)| given.get(name).is_some_and(|t| t.shape() == own.shape());
        if given.len() != self.values.len() || !self.values.iter().all(fits) {
            return Err(Error::runtime("average", "the state dict is that of another model"));
        }
        no_grad(|| {
            let mut pairs = self.values.iter().filter_map(|(name, own)| Some((own, given.get(name)?)));
            pairs.try_for_each(|(own, new)| own.copy_(&new.to_device(own.device())?.cast(own.dtype())?))
        })?;
        self.steps = steps as u64;
        Ok(())
    }

    /// Writes the averages into a model.
    ///
    /// # Errors
    /// Where it is another model.
    pub fn copy_to(&self, model: &dyn crate::nn::Module) -> Result<()> {
        model.load_state_dict(&self.values)
    }
}
