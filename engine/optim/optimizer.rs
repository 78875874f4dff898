//! [`Optimizer`], and the one implementation behind all whose parameters step on their own: groups, state, state dicts.

use super::{run_matrix_steps, run_steps, MatrixStep, Step};
use crate::nn::StateDict;
use crate::{no_grad, DType, Device, Error, Result, Tensor};
use std::fmt::Debug;

/// What every optimizer does.
pub trait Optimizer {
    /// Updates the parameters that have a gradient, in one call of the backend. On the GPU it does not wait.
    ///
    /// # Errors
    /// For options out of range, and what the backend reports.
    fn step(&mut self) -> Result<()>;

    /// The parameters of all groups.
    fn parameters(&self) -> Vec<Tensor>;

    /// The learning rate of each group.
    fn rates(&self) -> Vec<f64>;

    /// Sets the learning rate of a group; a number without a group is ignored.
    fn set_rate(&mut self, group: usize, rate: f64);

    /// Sets the momentum (of Adam and its like: β₁) of a group. `false` where the optimizer has none.
    fn set_momentum(&mut self, group: usize, momentum: f64) -> bool;

    /// State and options by name: `state.0.exp_avg`, `param_groups.0.lr`. They share the optimizer's memory.
    ///
    /// # Errors
    /// Where there is no memory.
    fn state_dict(&self) -> Result<StateDict>;

    /// Takes over state and options: the run goes on as the one that they come from.
    ///
    /// # Errors
    /// [`Error::Runtime`] for names that do not belong here, and shapes that are not the parameters'.
    fn load_state_dict(&mut self, state: &StateDict) -> Result<()>;

    /// Removes all gradients.
    ///
    /// # Errors
    /// None today; a `Result` so that it reads as the ops do.
    fn zero_grad(&self) -> Result<()> {
        self.parameters().iter().try_for_each(|p| p.set_grad(None))
    }

    /// Sets the learning rate of all groups.
    fn set_lr(&mut self, rate: f64) {
        (0..self.rates().len()).for_each(|group| self.set_rate(group, rate));
    }
}

/// How often a parameter has stepped, and numbers that go with it.
#[derive(Clone, Copy, Debug)]
pub struct Counts {
    /// Steps so far.
    pub step: f64,
    /// What the kind keeps besides.
    pub numbers: [f64; 2],
}

/// A step of either sort.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum AnyStep {
    /// Of elements.
    Elements(Step),
    /// Of matrices.
    Matrix(MatrixStep),
}

/// The options of an optimizer: what its steps are made of.
pub trait Kind: Clone + Debug + Send + Sync {
    /// The optimizer's name.
    const NAME: &'static str;

    /// Refuses options out of range.
    ///
    /// # Errors
    /// [`Error::InvalidValue`] that names the option.
    fn check(&self) -> Result<()>;

    /// The names of the state's tensors for a parameter, as in PyTorch.
    fn names(&self, p: &Tensor) -> &'static [&'static str];

    /// The state's tensor of that number at first.
    ///
    /// # Errors
    /// Where there is no memory.
    fn first(&self, _: usize, p: &Tensor) -> Result<Tensor> {
        p.zeros_like()
    }

    /// The counts at first, and the names of their numbers.
    fn counts(&self) -> (Counts, &'static [&'static str]) {
        (Counts { step: 0.0, numbers: [0.0; 2] }, &[])
    }

    /// The parameter's next step; brings the counts up to date.
    #[doc(hidden)]
    fn next(&self, p: &Tensor, counts: &mut Counts) -> AnyStep;

    /// The learning rate.
    fn rate(&mut self) -> &mut f64;

    /// The momentum, if any.
    fn momentum(&mut self) -> Option<&mut f64> {
        None
    }

    /// All options as numbers, by name.
    #[doc(hidden)]
    fn saved(&self) -> Vec<(&'static str, Vec<f64>)>;

    /// Takes an option over. `false` for a name or a length that is none.
    #[doc(hidden)]
    fn load(&mut self, name: &str, numbers: &[f64]) -> bool;
}

/// An option that is saved as numbers.
#[doc(hidden)]
pub trait Saved: Sized {
    fn save(&self) -> Vec<f64>;
    fn load(numbers: &[f64]) -> Option<Self>;
}
impl Saved for f64 {
    fn save(&self) -> Vec<f64> {
        vec![*self]
    }
    fn load(numbers: &[f64]) -> Option<f64> {
        <[f64; 1]>::try_from(numbers).ok().map(|[x]| x)
    }
}
impl Saved for bool {
    fn save(&self) -> Vec<f64> {
        vec![f64::from(u8::from(*self))]
    }
    fn load(numbers: &[f64]) -> Option<bool> {
        f64::load(numbers).map(|x| x != 0.0)
    }
}
impl Saved for (f64, f64) {
    fn save(&self) -> Vec<f64> {
        vec![self.0, self.1]
    }
    fn load(numbers: &[f64]) -> Option<(f64, f64)> {
        <[f64; 2]>::try_from(numbers).ok().map(|[a, b]| (a, b))
    }
}
impl Saved for Option<f64> {
    fn save(&self) -> Vec<f64> {
        self.iter().copied().collect()
    }
    fn load(numbers: &[f64]) -> Option<Option<f64>> {
        (numbers.len() < 2).then(|| numbers.first().copied())
    }
}

/// Numbers as tensors of float64, by name: how schedules and scalers save what they count.
pub(super) fn numbers(named: &[(&str, &[f64])]) -> Result<StateDict> {
    let one =
        |&(name, list): &(&str, &[f64])| Ok((name.to_string(), Tensor::of_elements(list, &[list.len()], Device::Cpu)?));
    named.iter().map(one).collect()
}

/// The numbers of that name in a state dict.
pub(super) fn number(op: &'static str, state: &StateDict, name: &str) -> Result<Vec<f64>> {
    let found = state.get(name).ok_or_else(|| Error::runtime(op, format!("the state dict lacks {name}")))?;
    found.to_device(Device::Cpu)?.cast(DType::F64)?.to_vec::<f64>()
}

/// The one number of that name in a state dict.
pub(super) fn single(op: &'static str, state: &StateDict, name: &str) -> Result<f64> {
    match number(op, state, name)?[..] {
        [x] => Ok(x),
        ref list => Err(Error::runtime(op, format!("{name} is one number, but the state dict has {}", list.len()))),
    }
}

#[derive(Clone, Debug)]
struct State {
    counts: Counts,
    tensors: Vec<Tensor>,
}

/// Parameters with options of their own.
#[derive(Clone, Debug)]
pub struct ParamGroup<K> {
    params: Vec<Tensor>,
    states: Vec<Option<State>>,
    /// The options.
    pub options: K,
}

impl<K> ParamGroup<K> {
    fn new(params: Vec<Tensor>, options: K) -> Self {
        let states = params.iter().map(|_| None).collect();
        ParamGroup { params, states, options }
    }

    /// The parameters.
    pub fn parameters(&self) -> &[Tensor] {
        &self.params
    }
}

/// An optimizer of one kind, over groups of parameters.
#[derive(Clone, Debug)]
pub struct Stepper<K> {
    groups: Vec<ParamGroup<K>>,
}

impl<K: Kind> Stepper<K> {
    pub(super) fn of(params: impl IntoIterator<Item = Tensor>, options: K) -> Self {
        Stepper { groups: vec![ParamGroup::new(params.into_iter().collect(), options)] }
    }

    /// Adds parameters with options of their own.
    #[must_use]
    pub fn group(mut self, params: impl IntoIterator<Item = Tensor>, options: K) -> Self {
        self.groups.push(ParamGroup::new(params.into_iter().collect(), options));
        self
    }

    /// The groups.
    pub fn groups(&self) -> &[ParamGroup<K>] {
        &self.groups
    }

    /// The groups, to change their options.
    pub fn groups_mut(&mut self) -> &mut [ParamGroup<K>] {
        &mut self.groups
    }
}

fn begun<K: Kind>(options: &K, p: &Tensor) -> Result<State> {
    let tensors = (0..options.names(p).len()).map(|i| no_grad(|| options.first(i, &p.detach()?)));
    Ok(State { counts: options.counts().0, tensors: tensors.collect::<Result<_>>()? })
}

impl<K: Kind> Optimizer for Stepper<K> {
    fn step(&mut self) -> Result<()> {
        let mut batches: Vec<(AnyStep, Vec<Vec<Tensor>>)> = Vec::new();
        for group in &mut self.groups {
            group.options.check()?;
            for (p, state) in group.params.iter().zip(&mut group.states) {
                let Some(g) = p.grad() else { continue };
                let own = match state {
                    Some(own) => own,
                    None => state.insert(begun(&group.options, p)?),
                };
                let step = group.options.next(p, &mut own.counts);
                let mut list = vec![p.clone(), g];
                list.extend(own.tensors.iter().cloned());
                match batches.iter_mut().find(|(known, lists)| *known == step && lists[0].len() == list.len()) {
                    Some((_, lists)) => lists.push(list),
                    None => batches.push((step, vec![list])),
                }
            }
        }
        let (mut elements, mut matrices) = (Vec::new(), Vec::new());
        for (step, lists) in batches {
            match step {
                AnyStep::Elements(step) => elements.push((step, lists)),
                AnyStep::Matrix(step) => matrices.push((step, lists)),
            }
        }
        if !elements.is_empty() {
            run_steps(&elements)?;
        }
        if !matrices.is_empty() {
            run_matrix_steps(&matrices)?;
        }
        Ok(())
    }

    fn parameters(&self) -> Vec<Tensor> {
        self.groups.iter().flat_map(|g| g.params.iter().cloned()).collect()
    }

    fn rates(&self) -> Vec<f64> {
        self.groups.iter().map(|g| *g.options.clone().rate()).collect()
    }

    fn set_rate(&mut self, group: usize, rate: f64) {
        if let Some(group) = self.groups.get_mut(group) {
            *group.options.rate() = rate;
        }
    }

    fn set_momentum(&mut self, group: usize, momentum: f64) -> bool {
        match self.groups.get_mut(group).and_then(|g| g.options.momentum()) {
            Some(own) => {
                *own = momentum;
                true
            }
            None => false,
        }
    }

    fn state_dict(&self) -> Result<StateDict> {
        let mut state = StateDict::new();
        let mut at = 0;
        for (i, group) in self.groups.iter().enumerate() {
            for (name, numbers) in group.options.saved() {
                let t = Tensor::of_elements(&numbers, &[numbers.len()], Device::Cpu)?;
                state.insert(format!("param_groups.{i}.{name}"), t);
            }
            for (p, own) in group.params.iter().zip(&group.states) {
                if let Some(own) = own {
                    let number = |x: f64| Tensor::of_elements(&[x], &[], Device::Cpu);
                    state.insert(format!("state.{at}.step"), number(own.counts.step)?);
                    for (name, x) in group.options.counts().1.iter().zip(own.counts.numbers) {
                        state.insert(format!("state.{at}.{name}"), number(x)?);
                    }
                    for (name, t) in group.options.names(p).iter().zip(&own.tensors) {
                        state.insert(format!("state.{at}.{name}"), t.clone());
                    }
                }
                at += 1;
            }
        }
        Ok(state)
    }

    fn load_state_dict(&mut self, state: &StateDict) -> Result<()> {
        let mut left: std::collections::BTreeSet<&str> = state.keys().map(String::as_str).collect();
        let mut groups = self.groups.clone();
        let mut at = 0;
        for (i, group) in groups.iter_mut().enumerate() {
            let prefix = format!("param_groups.{i}.");
            for (name, t) in state.iter().filter_map(|(n, t)| Some((n.strip_prefix(&prefix)?, t))) {
                let numbers = t.to_device(Device::Cpu)?.cast(DType::F64)?.to_vec::<f64>()?;
                if group.options.load(name, &numbers) {
                    left.remove(format!("{prefix}{name}").as_str());
                }
            }
            for (p, own) in group.params.iter().zip(&mut group.states) {
                let prefix = format!("state.{at}.");
                at += 1;
                if !state.keys().any(|n| n.starts_with(&prefix)) {
                    *own = None;
                    continue;
                }
                let mut new = begun(&group.options, p)?;
                let mut take = |name: &str| -> Result<&Tensor> {
                    let full = format!("{prefix}{name}");
                    left.remove(full.as_str());
                    state.get(&full).ok_or_else(|| Error::runtime(K::NAME, format!("the state dict lacks {full}")))
                };
                new.counts.step = take("step")?.item_f64()?;
                for (number, name) in new.counts.numbers.iter_mut().zip(group.options.counts().1) {
                    *number = take(name)?.item_f64()?;
                }
                for (own, name) in new.tensors.iter().zip(group.options.names(p)) {
                    let given = take(name)?;
                    if given.shape() != own.shape() {
                        let why = format!("{prefix}{name} has another shape than its parameter's state");
                        return Err(Error::shape(K::NAME, why, &[given.shape(), own.shape()]));
                    }
                    no_grad(|| own.copy_(&given.to_device(own.device())?.cast(own.dtype())?))?;
                }
                *own = Some(new);
            }
        }
        if let Some(name) = left.first() {
            return Err(Error::runtime(K::NAME, format!("the state dict has {name}, which does not belong here")));
        }
        self.groups = groups;
        Ok(())
    }
}
