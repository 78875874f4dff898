//! Schedules of learning rates: each is a function of the step and the rate at first, applied by a [`Scheduler`].

use super::optimizer::{number, numbers, single};
use super::Optimizer;
use crate::nn::StateDict;
use crate::ops::arguments::Setting;
use crate::{Error, Result};
use std::f64::consts::PI;

/// A learning rate over time.
pub trait Schedule: Send + Sync {
    /// The rate at a step, from 0, where it is `base` at first.
    fn rate(&self, step: u64, base: f64) -> f64;

    /// The momentum at a step, where the schedule sets it.
    fn momentum(&self, _step: u64) -> Option<f64> {
        None
    }
}

/// Closures from step to factor are schedules: PyTorch's `LambdaLR`.
impl<F: Fn(u64) -> f64 + Send + Sync> Schedule for F {
    fn rate(&self, step: u64, base: f64) -> f64 {
        base * self(step)
    }
}

/// Applies a schedule to an optimizer.
///
/// ```
/// use lucid::optim::{Optimizer, Scheduler, Sgd, StepLr};
/// let mut sgd = Sgd::new([], 0.1);
/// let mut scheduler = Scheduler::new(StepLr::new(2).gamma(0.5), &mut sgd);
/// let mut rates = Vec::new();
/// for _epoch in 0..4 {
///     rates.push(sgd.rates()[0]);
///     scheduler.step(&mut sgd);
/// }
/// assert_eq!(rates, [0.1, 0.1, 0.05, 0.05]);
/// ```
#[derive(Clone, Debug)]
pub struct Scheduler<S> {
    schedule: S,
    bases: Vec<f64>,
    step: u64,
}

impl<S: Schedule> Scheduler<S> {
    /// The optimizer's rates are the ones at first; sets the schedule's first.
    pub fn new(schedule: S, optimizer: &mut dyn Optimizer) -> Self {
        let made = Scheduler { schedule, bases: optimizer.rates(), step: 0 };
        made.set(optimizer);
        made
    }

    /// Goes on to the next step.
    pub fn step(&mut self, optimizer: &mut dyn Optimizer) {
        self.step_to(self.step + 1, optimizer);
    }

    /// Goes to a step, as when a run is resumed.
    pub fn step_to(&mut self, step: impl Setting<u64>, optimizer: &mut dyn Optimizer) {
        self.step = step.set();
        self.set(optimizer);
    }

    /// Which step it is at.
    pub fn last_step(&self) -> u64 {
        self.step
    }

    /// The step and the rates at first: all that a schedule does not say of itself.
    ///
    /// # Errors
    /// Where there is no memory.
    pub fn state_dict(&self) -> Result<StateDict> {
        numbers(&[("base_lrs", &self.bases), ("last_epoch", &[self.step as f64])])
    }

    /// Goes on where the state comes from. The optimizer has its own state, with the rates of the moment.
    ///
    /// # Errors
    /// [`Error::Runtime`] where the state is that of another number of groups.
    pub fn load_state_dict(&mut self, state: &StateDict) -> Result<()> {
        let bases = number("scheduler", state, "base_lrs")?;
        if bases.len() != self.bases.len() {
            let why = format!("the state dict has {} groups, the optimizer {}", bases.len(), self.bases.len());
            return Err(Error::runtime("scheduler", why));
        }
        self.step = single("scheduler", state, "last_epoch")? as u64;
        self.bases = bases;
        Ok(())
    }

    fn set(&self, optimizer: &mut dyn Optimizer) {
        for (group, &base) in self.bases.iter().enumerate() {
            optimizer.set_rate(group, self.schedule.rate(self.step, base));
            if let Some(momentum) = self.schedule.momentum(self.step) {
                optimizer.set_momentum(group, momentum);
            }
        }
    }
}

/// Schedules with fields that have defaults and setters.
macro_rules! schedules {
    ($(
        $(#[$doc:meta])*
        $Name:ident ($($(#[$rdoc:meta])* $req:ident: $ReqTy:ty),*) { $($(#[$fdoc:meta])* $field:ident: $Ty:ty = $default:expr;)* }
        |$own:ident, $t:ident, $base:ident| $rate:expr $(, |$mown:ident, $mt:ident| $momentum:expr)?;
    )*) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug)]
        pub struct $Name {
            $($(#[$rdoc])* pub $req: $ReqTy,)*
            $($(#[$fdoc])* pub $field: $Ty,)*
        }

        impl $Name {
            /// The schedule with PyTorch's defaults.
            #[allow(clippy::new_without_default)]
            pub fn new($($req: impl Setting<$ReqTy>),*) -> Self {
                $Name { $($req: $req.set(),)* $($field: $default,)* }
            }
            $($(#[$fdoc])*
            #[must_use]
            pub fn $field(mut self, $field: impl Setting<$Ty>) -> Self {
                self.$field = $field.set();
                self
            })*
        }

        impl Schedule for $Name {
            fn rate(&self, step: u64, $base: f64) -> f64 {
                let ($own, $t) = (self, step);
                $rate
            }
            $(fn momentum(&self, step: u64) -> Option<f64> {
                let ($mown, $mt) = (self, step);
                $momentum
            })?
        }
    )*};
}

/// How [`OneCycleLr`] goes from one rate to another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Anneal {
    /// Along half a cosine.
    #[default]
    Cosine,
    /// Along a line.
    Linear,
}

impl Anneal {
    fn between(self, from: f64, to: f64, part: f64) -> f64 {
        match self {
            Anneal::Cosine => to + (from - to) / 2.0 * (1.0 + (PI * part).cos()),
            Anneal::Linear => from + (to - from) * part,
        }
    }
}

/// How the peaks of [`CyclicLr`] go on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Cycle {
    /// All alike.
    #[default]
    Triangular,
    /// Each half of the one before it.
    Triangular2,
    /// By gamma to the power of the step.
    ExpRange,
}

schedules! {
    /// The rate times gamma every so many steps.
    StepLr(/** How many. */ step_size: u64) {
        /// The factor. Default: 0.1.
        gamma: f64 = 0.1;
    } |own, t, base| base * own.gamma.powf((t / own.step_size.max(1)) as f64);
    /// The rate times gamma at each milestone.
    MultiStepLr(/** The milestones. */ milestones: Vec<u64>) {
        /// The factor. Default: 0.1.
        gamma: f64 = 0.1;
    } |own, t, base| base * own.gamma.powf(own.milestones.iter().filter(|&&m| m <= t).count() as f64);
    /// The rate times a factor until a step.
    ConstantLr() {
        /// The factor. Default: 1/3.
        factor: f64 = 1.0 / 3.0;
        /// Until which step. Default: 5.
        total_iters: u64 = 5;
    } |own, t, base| if t < own.total_iters { base * own.factor } else { base };
    /// The rate times a factor that goes along a line.
    LinearLr() {
        /// The factor at first. Default: 1/3.
        start_factor: f64 = 1.0 / 3.0;
        /// The factor in the end. Default: 1.
        end_factor: f64 = 1.0;
        /// Until which step. Default: 5.
        total_iters: u64 = 5;
    } |own, t, base| {
        let part = t.min(own.total_iters) as f64 / own.total_iters.max(1) as f64;
        base * (own.start_factor + (own.end_factor - own.start_factor) * part)
    };
    /// The rate times gamma at every step.
    ExponentialLr(/** The factor. */ gamma: f64) {} |own, t, base| base * own.gamma.powf(t as f64);
    /// The rate falls to 0 along a power.
    PolynomialLr() {
        /// Until which step. Default: 5.
        total_iters: u64 = 5;
        /// The power. Default: 1.
        power: f64 = 1.0;
    } |own, t, base| base * (1.0 - t.min(own.total_iters) as f64 / own.total_iters.max(1) as f64).powf(own.power);
    /// The rate falls and rises along a cosine (Loshchilov and Hutter, 2017).
    CosineAnnealingLr(/** Steps from the highest to the lowest. */ t_max: u64) {
        /// The lowest. Default: 0.
        eta_min: f64 = 0.0;
    } |own, t, base| {
        own.eta_min + (base - own.eta_min) * (1.0 + (PI * t as f64 / own.t_max.max(1) as f64).cos()) / 2.0
    };
    /// The rate falls along a cosine, and begins again (Loshchilov and Hutter, 2017).
    CosineAnnealingWarmRestarts(/** Steps of the first fall. */ t_0: u64) {
        /// By what each fall is longer than the one before it. Default: 1.
        t_mult: u64 = 1;
        /// The lowest. Default: 0.
        eta_min: f64 = 0.0;
    } |own, t, base| {
        let (mut left, mut length) = (t, own.t_0.max(1));
        if own.t_mult <= 1 {
            left %= length;
        } else {
            while left >= length {
                left -= length;
                length = length.saturating_mul(own.t_mult);
            }
        }
        own.eta_min + (base - own.eta_min) * (1.0 + (PI * left as f64 / length as f64).cos()) / 2.0
    };
    /// The rate rises and falls between two (Smith, 2017), and the momentum against it.
    CyclicLr(/** The lowest. */ base_lr: f64, /** The highest. */ max_lr: f64) {
        /// Steps up. Default: 2000.
        step_size_up: u64 = 2000;
        /// Steps down. Default: 2000.
        step_size_down: u64 = 2000;
        /// How the peaks go on. Default: all alike.
        mode: Cycle = Cycle::Triangular;
        /// The factor of [`Cycle::ExpRange`]. Default: 1.
        gamma: f64 = 1.0;
        /// The momentum's least and most; `None` leaves it. Default: (0.8, 0.9).
        momenta: Option<(f64, f64)> = Some((0.8, 0.9));
    } |own, t, _base| own.base_lr + (own.max_lr - own.base_lr) * own.height(t),
    |own, t| own.momenta.map(|(least, most)| most - (most - least) * own.height(t));
    /// One rise and one fall (Smith and Topin, 2019), and the momentum against them.
    OneCycleLr(/** The highest. */ max_lr: f64, /** All steps. */ total_steps: u64) {
        /// Share of the rise. Default: 0.3.
        pct_start: f64 = 0.3;
        /// How it goes between. Default: along cosines.
        anneal: Anneal = Anneal::Cosine;
        /// By what the first rate is lower than the highest. Default: 25.
        div_factor: f64 = 25.0;
        /// By what the last rate is lower than the first. Default: 1e4.
        final_div_factor: f64 = 1e4;
        /// Does it fall as it rose, and then further? Default: false.
        three_phase: bool = false;
        /// The momentum's least and most; `None` leaves it. Default: (0.85, 0.95).
        momenta: Option<(f64, f64)> = Some((0.85, 0.95));
    } |own, t, _base| {
        let first = own.max_lr / own.div_factor;
        own.along(t, first, own.max_lr, first / own.final_div_factor, first)
    },
    |own, t| own.momenta.map(|(least, most)| own.along(t, most, least, most, most));
    /// The rate of the first Transformer (Vaswani et al., 2017): it rises along a line and falls by the root.
    NoamLr(/** Size of the model. */ model_size: u64, /** Steps of the rise. */ warmup_steps: u64) {
        /// What the formula is multiplied by. Default: 1.
        factor: f64 = 1.0;
    } |own, t, _base| {
        let t = t.max(1) as f64;
        let rise = t * (own.warmup_steps.max(1) as f64).powf(-1.5);
        own.factor * (own.model_size.max(1) as f64).powf(-0.5) * t.powf(-0.5).min(rise)
    };
    /// From the rate at first to one that averaging wants (Izmailov et al., 2018).
    SwaLr(/** The rate in the end. */ swa_lr: f64) {
        /// Steps on the way. Default: 10.
        anneal_epochs: u64 = 10;
        /// How it goes there. Default: along a cosine.
        anneal: Anneal = Anneal::Cosine;
    } |own, t, base| {
        let part = if own.anneal_epochs == 0 { 1.0 } else { (t as f64 / own.anneal_epochs as f64).min(1.0) };
        own.anneal.between(base, own.swa_lr, part)
    };
}

impl CyclicLr {
    /// Where between the lowest and the highest a step is.
    fn height(&self, t: u64) -> f64 {
        let total = (self.step_size_up + self.step_size_down).max(1) as f64;
        let up = self.step_size_up as f64 / total;
        let cycle = (1.0 + t as f64 / total).floor();
        let x = 1.0 + t as f64 / total - cycle;
        let height = if x <= up { x / up } else { (x - 1.0) / (up - 1.0) };
        let peak = match self.mode {
            Cycle::Triangular => 1.0,
            Cycle::Triangular2 => 0.5f64.powf(cycle - 1.0),
            Cycle::ExpRange => self.gamma.powf(t as f64),
        };
        height * peak
    }
}

impl OneCycleLr {
    /// From `first` to `peak`, back (over `middle` in three phases), and to `last`.
    fn along(&self, t: u64, first: f64, peak: f64, last: f64, middle: f64) -> f64 {
        let total = self.total_steps as f64;
        let rise = (self.pct_start * total - 1.0).max(f64::MIN_POSITIVE);
        let phases = match self.three_phase {
            true => vec![
                (rise, first, peak),
                (2.0 * self.pct_start * total - 2.0, peak, middle),
                (total - 1.0, middle, last),
            ],
            false => vec![(rise, first, peak), (total - 1.0, peak, last)],
        };
        let (mut start, t) = (0.0, t as f64);
        for (i, &(end, from, to)) in phases.iter().enumerate() {
            if t <= end || i + 1 == phases.len() {
                let part = if end > start { ((t - start) / (end - start)).min(1.0) } else { 1.0 };
                return self.anneal.between(from, to, part);
            }
            start = end;
        }
        last
    }
}

/// The rate times `factor(1) · factor(2) · … · factor(step)`.
#[derive(Clone, Debug)]
pub struct MultiplicativeLr<F>(pub F);

impl<F: Fn(u64) -> f64 + Send + Sync> Schedule for MultiplicativeLr<F> {
    fn rate(&self, step: u64, base: f64) -> f64 {
        (1..=step).fold(base, |rate, i| rate * (self.0)(i))
    }
}

/// Schedules one after the other, each from its milestone on.
pub struct SequentialLr {
    schedules: Vec<Box<dyn Schedule>>,
    milestones: Vec<u64>,
}

impl SequentialLr {
    /// The schedules, and the steps at which all but the first begin.
    ///
    /// # Errors
    /// Where there are not as many milestones as schedules less one, or they do not rise.
    pub fn new(schedules: Vec<Box<dyn Schedule>>, milestones: impl Setting<Vec<u64>>) -> Result<SequentialLr> {
        let milestones = milestones.set();
        if schedules.len() != milestones.len() + 1 || milestones.windows(2).any(|w| w[0] >= w[1]) {
            let why = format!("{} schedules need one rising milestone less, got {milestones:?}", schedules.len());
            return Err(Error::value("sequential_lr", why));
        }
        Ok(SequentialLr { schedules, milestones })
    }

    fn at(&self, step: u64) -> Option<(&dyn Schedule, u64)> {
        let i = self.milestones.iter().filter(|&&m| m <= step).count();
        let start = i.checked_sub(1).and_then(|i| self.milestones.get(i)).copied().unwrap_or(0);
        Some((self.schedules.get(i)?.as_ref(), step - start))
    }
}

impl Schedule for SequentialLr {
    fn rate(&self, step: u64, base: f64) -> f64 {
        self.at(step).map_or(base, |(own, t)| own.rate(t, base))
    }
    fn momentum(&self, step: u64) -> Option<f64> {
        self.at(step).and_then(|(own, t)| own.momentum(t))
    }
}

/// Schedules at once: their factors are multiplied.
pub struct ChainedLr(pub Vec<Box<dyn Schedule>>);

impl Schedule for ChainedLr {
    fn rate(&self, step: u64, base: f64) -> f64 {
        if base == 0.0 {
            return 0.0;
        }
        self.0.iter().fold(base, |rate, own| rate * (own.rate(step, base) / base))
    }
}

/// Is less or more of the watched number better?
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Better {
    /// Less, as of a loss.
    #[default]
    Less,
    /// More, as of an accuracy.
    More,
}

/// Lowers the rate when a number has stopped getting better.
#[derive(Clone, Debug)]
pub struct ReduceLrOnPlateau {
    /// What is better. Default: less.
    pub better: Better,
    /// The factor. Default: 0.1.
    pub factor: f64,
    /// How many steps it waits. Default: 10.
    pub patience: u64,
    /// How much better, as a share, counts. Default: 1e-4.
    pub threshold: f64,
    /// Steps without counting after a fall. Default: 0.
    pub cooldown: u64,
    /// The lowest rate. Default: 0.
    pub min_lr: f64,
    /// The least change. Default: 1e-8.
    pub eps: f64,
    best: Option<f64>,
    bad: u64,
    cooling: u64,
}

macro_rules! plateau_settings {
    ($($(#[$doc:meta])* $field:ident: $Ty:ty;)*) => {
        impl ReduceLrOnPlateau {
            /// With PyTorch's defaults.
            pub fn new() -> ReduceLrOnPlateau {
                ReduceLrOnPlateau::default()
            }
            $($(#[$doc])*
            #[must_use]
            pub fn $field(mut self, $field: impl Setting<$Ty>) -> ReduceLrOnPlateau {
                self.$field = $field.set();
                self
            })*
        }
    };
}
plateau_settings! {
    /// What is better. Default: less.
    better: Better;
    /// The factor. Default: 0.1.
    factor: f64;
    /// Waits this many steps without an improvement. Default: 10.
    patience: u64;
    /// How much better, as a share, counts. Default: 1e-4.
    threshold: f64;
    /// Steps without counting after a fall. Default: 0.
    cooldown: u64;
    /// The lowest rate. Default: 0.
    min_lr: f64;
    /// The least change. Default: 1e-8.
    eps: f64;
}

impl Default for ReduceLrOnPlateau {
    fn default() -> ReduceLrOnPlateau {
        ReduceLrOnPlateau {
            better: Better::Less,
            factor: 0.1,
            patience: 10,
            threshold: 1e-4,
            cooldown: 0,
            min_lr: 0.0,
            eps: 1e-8,
            best: None,
            bad: 0,
            cooling: 0,
        }
    }
}

impl ReduceLrOnPlateau {
    /// The best number so far, and how long ago that was.
    ///
    /// # Errors
    /// Where there is no memory.
    pub fn state_dict(&self) -> Result<StateDict> {
        let best: Vec<f64> = self.best.into_iter().collect();
        numbers(&[
            ("best", &best),
            ("num_bad_epochs", &[self.bad as f64]),
            ("cooldown_counter", &[self.cooling as f64]),
        ])
    }

    /// Goes on where the state comes from.
    ///
    /// # Errors
    /// [`Error::Runtime`] where a name is missing.
    pub fn load_state_dict(&mut self, state: &StateDict) -> Result<()> {
        const NAME: &str = "reduce_lr_on_plateau";
        let best = number(NAME, state, "best")?.first().copied();
        let (bad, cooling) = (single(NAME, state, "num_bad_epochs")?, single(NAME, state, "cooldown_counter")?);
        (self.best, self.bad, self.cooling) = (best, bad as u64, cooling as u64);
        Ok(())
    }

    /// Takes the number of a step.
    pub fn step(&mut self, watched: f64, optimizer: &mut dyn Optimizer) {
        let improved = match (self.best, self.better) {
            (None, _) => !watched.is_nan(),
            (Some(best), Better::Less) => watched < best * (1.0 - self.threshold),
            (Some(best), Better::More) => watched > best * (1.0 + self.threshold),
        };
        if improved {
            (self.best, self.bad) = (Some(watched), 0);
        } else {
            self.bad += 1;
        }
        if self.cooling > 0 {
            self.cooling -= 1;
            self.bad = 0;
        }
        if self.bad > self.patience {
            for (group, rate) in optimizer.rates().into_iter().enumerate() {
                let new = (rate * self.factor).max(self.min_lr);
                if rate - new > self.eps {
                    optimizer.set_rate(group, new);
                }
            }
            (self.cooling, self.bad) = (self.cooldown, 0);
        }
    }
}
