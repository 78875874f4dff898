//! [`Step`]: one optimizer step as the backends see it, declared once; and running many of them in one call.
//!
//! Depends on `dispatch`. Invariant: every tensor of every batch is checked before the first one is written.

use super::algebra::Recorded;
use super::rules::{Rule, Visit};
use crate::ops::index::{put_axes, Target};
use crate::{dispatch, no_grad, sparse, Error, Result, Tensor};

/// Makes an enum of steps, one struct of options per kind, and `parse`.
macro_rules! define_steps {
    ($Enum:ident $(
        $(#[doc = $doc:literal])+
        $Kind:ident $name:literal { $($(#[doc = $fdoc:literal])+ $field:ident: $ty:ident,)* }
    )*) => {
        /// One optimizer step with its options.
        #[derive(Clone, Copy, Debug, PartialEq)]
        pub enum $Enum {
            $($(#[doc = $doc])+ $Kind($Kind),)*
        }

        $(
            $(#[doc = $doc])+
            #[derive(Clone, Copy, Debug, PartialEq)]
            pub struct $Kind { $($(#[doc = $fdoc])+ pub $field: $ty,)* }

            impl From<$Kind> for $Enum {
                fn from(s: $Kind) -> $Enum {
                    $Enum::$Kind(s)
                }
            }
        )*

        impl $Enum {
            /// The name of the kind, as in errors and for `parse`.
            pub fn name(&self) -> &'static str {
                match self { $($Enum::$Kind(_) => $name,)* }
            }

            /// A step by name; `option` gives each option as a number, truth as anything but 0.
            ///
            /// # Errors
            /// For a name that is none, and what `option` reports.
            pub fn parse<E: From<Box<Error>>>(name: &str, mut option: impl FnMut(&'static str) -> std::result::Result<f64, E>) -> std::result::Result<$Enum, E> {
                match name {
                    $($name => Ok($Enum::$Kind($Kind { $($field: <$ty as Parsed>::of(option(stringify!($field))?),)* })),)*
                    other => Err(Error::value("optimizer step", format!("there is no step named {other:?}")).into()),
                }
            }
        }
    };
}

pub(super) use define_steps;

/// An option as a number.
pub(super) trait Parsed {
    fn of(x: f64) -> Self;
}
impl Parsed for f64 {
    fn of(x: f64) -> f64 {
        x
    }
}
impl Parsed for bool {
    fn of(x: f64) -> bool {
        x != 0.0
    }
}

define_steps! { Step
    /// State: the momentum buffer, where `momentum` is not 0.
    ///
    /// `b = momentum · b + (1 - dampening) · g` (or `b = g` at the first step), then `p -= lr · b` (with Nesterov,
    /// `p -= lr · (g + momentum · b)`).
    Sgd "sgd" {
        /// Learning rate.
        lr: f64,
        /// Momentum.
        momentum: f64,
        /// Dampening of the gradient's entry into the buffer.
        dampening: f64,
        /// L2 penalty, added to the gradient.
        weight_decay: f64,
        /// Nesterov's momentum?
        nesterov: bool,
        /// Ascend instead?
        maximize: bool,
        /// Is this the buffers' first step?
        first: bool,
    }
    /// State: first moment, second moment, and its maximum where `amsgrad`.
    ///
    /// `m = β₁ m + (1 - β₁) g`, `v = β₂ v + (1 - β₂) g²`, `p -= lr / (1 - β₁ᵗ) · m / (√v / √(1 - β₂ᵗ) + eps)`
    /// (Kingma and Ba, 2015).
    Adam "adam" {
        /// Learning rate.
        lr: f64,
        /// Decay rate of the first moment.
        beta1: f64,
        /// Decay rate of the second moment.
        beta2: f64,
        /// Added to the denominator.
        eps: f64,
        /// Penalty.
        weight_decay: f64,
        /// Does the penalty shrink the parameter directly (AdamW; Loshchilov and Hutter, 2019)?
        decoupled_weight_decay: bool,
        /// Divide by the largest second moment so far (Reddi et al., 2018)?
        amsgrad: bool,
        /// Ascend instead?
        maximize: bool,
        /// Which step this is, from 1.
        t: f64,
    }
    /// State: first moment, second moment. Adam on the rows of a sparse gradient: others stay, and so do their moments.
    ///
    /// `m += (1 - β₁) (g - m)`, `v += (1 - β₂) (g² - v)`, `p -= lr · √(1 - β₂ᵗ) / (1 - β₁ᵗ) · m / (√v + eps)`.
    SparseAdam "sparse_adam" {
        /// Learning rate.
        lr: f64,
        /// Decay rate of the first moment.
        beta1: f64,
        /// Decay rate of the second moment.
        beta2: f64,
        /// Added to the denominator.
        eps: f64,
        /// Ascend instead?
        maximize: bool,
        /// Which step this is, from 1.
        t: f64,
    }
    /// State: the sum of squares.
    ///
    /// `s += g²`, `p -= lr / (1 + (t - 1) · lr_decay) · g / (√s + eps)` (Duchi et al., 2011).
    Adagrad "adagrad" {
        /// Learning rate.
        lr: f64,
        /// Decay of the learning rate.
        lr_decay: f64,
        /// L2 penalty.
        weight_decay: f64,
        /// Added to the denominator.
        eps: f64,
        /// Ascend instead?
        maximize: bool,
        /// Which step this is, from 1.
        t: f64,
    }
    /// State: the mean square of gradients, and that of changes.
    ///
    /// `s = ρ s + (1 - ρ) g²`, `d = √(u + eps) / √(s + eps) · g`, `u = ρ u + (1 - ρ) d²`, `p -= lr · d` (Zeiler, 2012).
    Adadelta "adadelta" {
        /// Learning rate.
        lr: f64,
        /// Decay rate of the means.
        rho: f64,
        /// Added below the roots.
        eps: f64,
        /// L2 penalty.
        weight_decay: f64,
        /// Ascend instead?
        maximize: bool,
    }
    /// State: the first moment, and the infinity norm.
    ///
    /// `u = max(β₂ u, |g| + eps)`, `p -= lr / (1 - β₁ᵗ) · m / u` (Kingma and Ba, 2015).
    Adamax "adamax" {
        /// Learning rate.
        lr: f64,
        /// Decay rate of the first moment.
        beta1: f64,
        /// Decay rate of the norm.
        beta2: f64,
        /// Added to the gradient's magnitude.
        eps: f64,
        /// L2 penalty.
        weight_decay: f64,
        /// Ascend instead?
        maximize: bool,
        /// Which step this is, from 1.
        t: f64,
    }
    /// State: first and second moment. Adam with Nesterov's momentum (Dozat, 2016).
    NAdam "nadam" {
        /// Learning rate.
        lr: f64,
        /// Decay rate of the first moment.
        beta1: f64,
        /// Decay rate of the second moment.
        beta2: f64,
        /// Added to the denominator.
        eps: f64,
        /// Penalty.
        weight_decay: f64,
        /// Does the penalty shrink the parameter directly?
        decoupled_weight_decay: bool,
        /// Ascend instead?
        maximize: bool,
        /// This step's momentum.
        mu: f64,
        /// The next step's momentum.
        mu_next: f64,
        /// The product of the momenta so far, this step's included.
        mu_product: f64,
        /// Which step this is, from 1.
        t: f64,
    }
    /// State: first and second moment. Adam whose rate follows how well the variance is known (Liu et al., 2020).
    RAdam "radam" {
        /// Learning rate.
        lr: f64,
        /// Decay rate of the first moment.
        beta1: f64,
        /// Decay rate of the second moment.
        beta2: f64,
        /// Added to the denominator.
        eps: f64,
        /// Penalty.
        weight_decay: f64,
        /// Does the penalty shrink the parameter directly?
        decoupled_weight_decay: bool,
        /// Ascend instead?
        maximize: bool,
        /// Which step this is, from 1.
        t: f64,
    }
    /// State: the mean square, the mean gradient where `centered`, and the momentum buffer where `momentum` is above 0.
    ///
    /// `s = α s + (1 - α) g²`, `p -= lr · g / (√s + eps)` (Hinton, 2012).
    RmsProp "rmsprop" {
        /// Learning rate.
        lr: f64,
        /// Decay rate of the means.
        alpha: f64,
        /// Added to the denominator.
        eps: f64,
        /// L2 penalty.
        weight_decay: f64,
        /// Momentum.
        momentum: f64,
        /// Divide by the root of the variance (Graves, 2013)?
        centered: bool,
        /// Ascend instead?
        maximize: bool,
    }
    /// State: the last gradient, and each element's step size (Riedmiller and Braun, 1993).
    Rprop "rprop" {
        /// Factor of the step size where the gradient's sign turned.
        eta_minus: f64,
        /// Factor where it stayed.
        eta_plus: f64,
        /// Smallest step.
        step_min: f64,
        /// Largest step.
        step_max: f64,
        /// Ascend instead?
        maximize: bool,
    }
    /// State: the average of the parameter over the steps (Polyak and Juditsky, 1992).
    Asgd "asgd" {
        /// This step's rate.
        eta: f64,
        /// Decay.
        lambd: f64,
        /// This step's share in the average.
        mu: f64,
        /// L2 penalty.
        weight_decay: f64,
        /// Ascend instead?
        maximize: bool,
    }
    /// State: the momentum. `p -= lr · (sign(β₁ m + (1 - β₁) g) + weight_decay · p)`, `m = β₂ m + (1 - β₂) g`
    /// (Chen et al., 2023).
    Lion "lion" {
        /// Learning rate.
        lr: f64,
        /// The momentum's share in the direction.
        beta1: f64,
        /// Decay rate of the momentum.
        beta2: f64,
        /// Penalty, which shrinks the parameter directly.
        weight_decay: f64,
        /// Ascend instead?
        maximize: bool,
    }
}

/// Parameters that take the same step. Per parameter: itself, its gradient, and its state in the step's order.
pub type Batch = (Step, Vec<Vec<Tensor>>);

struct States;
impl Visit for States {
    type Out = usize;
    fn rule<R: Rule, const S: usize>(self, _: R) -> usize {
        S
    }
}

impl Step {
    /// How many arrays each parameter brings: itself, its gradient, and its state.
    pub fn arity(&self) -> usize {
        2 + self.visit(States)
    }

    /// Does an element without a gradient stay as it is, with its state? Then a sparse gradient's rows may step alone.
    fn steps_rows(&self) -> Result<()> {
        let (op, decay) = match self {
            Step::SparseAdam(_) => return Ok(()),
            Step::Sgd(s) if s.momentum == 0.0 => ("sgd", s.weight_decay),
            Step::Adagrad(s) => ("adagrad", s.weight_decay),
            other => {
                let why = "does not support sparse gradients; please consider SparseAdam, or to_dense()";
                return Err(Error::runtime(other.name(), why));
            }
        };
        match decay == 0.0 {
            true => Ok(()),
            false => Err(Error::runtime(op, "weight_decay option is not compatible with sparse gradients")),
        }
    }

    /// Runs the step over all parameters, as [`run_steps`] does.
    ///
    /// # Errors
    /// As [`run_steps`].
    pub fn run(&self, tensors: &[Vec<Tensor>]) -> Result<()> {
        run_steps(&[(*self, tensors.to_vec())])
    }
}

/// A parameter whose gradient is sparse: what of it steps.
struct Rows<'a> {
    list: &'a [Tensor],
    indices: Tensor,
    rows: Vec<Tensor>,
}

impl<'a> Rows<'a> {
    /// The rows of parameter and state that the gradient has. `None` where it has none.
    fn of(list: &'a [Tensor]) -> Result<Option<Rows<'a>>> {
        let sparse::Parts { indices, values, .. } = list[1].coalesce()?.sparse_parts("step")?;
        if values.numel() == 0 {
            return Ok(None);
        }
        let row = |(i, t): (usize, &Tensor)| match i {
            1 => values.contiguous(),
            _ => sparse::rows_at(t, &indices),
        };
        let rows = list.iter().enumerate().map(row).collect::<Result<_>>()?;
        Ok(Some(Rows { list, indices, rows }))
    }

    /// Writes the stepped rows back.
    fn write(&self) -> Result<()> {
        let (axes, at) = sparse::places(&self.indices)?;
        let all = self.list.iter().zip(&self.rows).enumerate().filter(|(i, _)| *i != 1);
        all.map(|(_, own)| own)
            .try_for_each(|(own, rows)| put_axes(Target::Itself, own, &axes, &at, rows, false, true).map(drop))
    }
}

/// Runs many steps at once. Parameters and state are written in place, unseen by the tape. On the GPU the work is one
/// graph, which is started and not waited for. Where a gradient is sparse, its rows alone step, which evaluates.
///
/// # Errors
/// Where a list has the wrong length, or its tensors differ in shape, dtype or device, or are not floating.
pub fn run_steps(batches: &[Batch]) -> Result<()> {
    batches.iter().try_for_each(|(step, lists)| lists.iter().try_for_each(|l| check(step, l)))?;
    no_grad(|| {
        let is_sparse = |list: &Vec<Tensor>| list[1].is_sparse();
        if batches.iter().any(|(_, lists)| lists.iter().any(is_sparse)) {
            return run_mixed(batches);
        }
        // Kernels walk plain rows of memory: what does not lie so takes part as a copy.
        let dense = |list: &Vec<Tensor>| list.iter().map(Tensor::contiguous).collect::<Result<Vec<_>>>();
        let used: Vec<Batch> = batches
            .iter()
            .map(|(step, lists)| Ok((*step, lists.iter().map(dense).collect::<Result<_>>()?)))
            .collect::<Result<_>>()?;
        dispatch::steps(&used)?;
        for (own, used) in
            batches.iter().flat_map(|b| b.1.iter().flatten()).zip(used.iter().flat_map(|b| b.1.iter().flatten()))
        {
            if !own.is_same(used) {
                own.copy_(used)?;
            }
        }
        Ok(())
    })
}

/// [`run_steps`] where some gradients are sparse: dense parameters step as they are, of the others the rows.
fn run_mixed(batches: &[Batch]) -> Result<()> {
    let mut plain: Vec<Batch> = Vec::with_capacity(batches.len());
    let mut parts: Vec<Rows<'_>> = Vec::new();
    for (step, lists) in batches {
        let mut own = Vec::with_capacity(lists.len());
        for list in lists {
            if !list[1].is_sparse() {
                own.push(list.clone());
            } else if let Some(rows) = Rows::of(list)? {
                own.push(rows.rows.clone());
                parts.push(rows);
            }
        }
        plain.push((*step, own));
    }
    run_steps(&plain)?;
    parts.iter().try_for_each(Rows::write)
}

/// Runs many steps in tensor ops, which the tape records: for gradients through the steps themselves.
///
/// # Errors
/// As [`run_steps`], and where a parameter is a leaf that requires a gradient.
pub fn run_steps_recorded(batches: &[Batch]) -> Result<()> {
    struct Record<'a>(&'a [Tensor]);
    impl Visit for Record<'_> {
        type Out = Result<()>;
        fn rule<R: Rule, const S: usize>(self, rule: R) -> Result<()> {
            let [p, g, state @ ..] = self.0 else { return Ok(()) };
            // The tape keeps copies, since the tensors themselves are written.
            let mut new = state.iter().map(Tensor::copy).collect::<Result<Vec<_>>>()?;
            let next = rule.update(&Recorded, p.copy()?, g.copy()?, &mut new)?;
            p.copy_(&next)?;
            state.iter().zip(&new).try_for_each(|(own, new)| own.copy_(new))
        }
    }
    batches.iter().try_for_each(|(step, lists)| lists.iter().try_for_each(|l| check(step, l)))?;
    if let Some((step, _)) = batches.iter().find(|(_, lists)| lists.iter().any(|l| l[1].is_sparse())) {
        return Err(Error::runtime(step.name(), "differentiable steps take dense gradients; call to_dense()"));
    }
    batches.iter().try_for_each(|(step, lists)| lists.iter().try_for_each(|list| step.visit(Record(list))))
}

fn check(step: &Step, list: &[Tensor]) -> Result<()> {
    let op = step.name();
    let [param, rest @ ..] = list else {
        return Err(Error::runtime(op, "a parameter without arrays"));
    };
    if list.len() != step.arity() {
        let why = format!("expected {} arrays per parameter, got {}", step.arity(), list.len());
        return Err(Error::runtime(op, why));
    }
    if !param.dtype().is_float() {
        return Err(Error::dtype(op, "parameters must be of a floating dtype", &[param.dtype()]));
    }
    if list.iter().enumerate().any(|(i, t)| i != 1 && t.is_sparse()) {
        return Err(Error::runtime(op, "parameters and state must be dense; only gradients may be sparse"));
    }
    if list[1].is_sparse() {
        step.steps_rows()?;
    }
    for t in rest {
        if t.shape() != param.shape() {
            let why = "gradient and state must have the parameter's shape";
            return Err(Error::shape(op, why, &[param.shape(), t.shape()]));
        }
        if t.dtype() != param.dtype() {
            let why = "gradient and state must have the parameter's dtype";
            return Err(Error::dtype(op, why, &[param.dtype(), t.dtype()]));
        }
        if t.device() != param.device() {
            let why = "gradient and state must be on the parameter's device";
            return Err(Error::device(op, why, &[param.device(), t.device()]));
        }
    }
    Ok(())
}
