//! The optimizers: their options with PyTorch's defaults, and what each step is made of.

use super::optimizer::{AnyStep, Counts, Kind, Saved, Stepper};
use super::{matrix, step};
use crate::{DType, Error, Result, Tensor};

/// Option structs with setters, and the optimizer as a type.
macro_rules! optimizers {
    ($(
        $(#[$doc:meta])*
        $Name:ident $Options:ident $name:literal lr $lr:literal {
            $($(#[$fdoc:meta])* $field:ident: $Ty:ty = $default:expr;)*
        }
    )*) => {$(
        #[doc = concat!("The options of [`", stringify!($Name), "`].")]
        #[derive(Clone, Debug, PartialEq)]
        pub struct $Options {
            /// Learning rate.
            pub lr: f64,
            $($(#[$fdoc])* pub $field: $Ty,)*
        }

        impl Default for $Options {
            fn default() -> Self {
                $Options { lr: $lr, $($field: $default,)* }
            }
        }

        impl $Options {
            /// Learning rate.
            #[must_use]
            pub fn lr(mut self, lr: f64) -> Self {
                self.lr = lr;
                self
            }
            $($(#[$fdoc])*
            #[must_use]
            pub fn $field(mut self, $field: $Ty) -> Self {
                self.$field = $field;
                self
            })*
            /// The optimizer of these parameters; [`Stepper::group`] adds others.
            pub fn build(self, params: impl IntoIterator<Item = Tensor>) -> $Name {
                Stepper::of(params, self)
            }
            fn all_saved(&self) -> Vec<(&'static str, Vec<f64>)> {
                vec![("lr", self.lr.save()), $((stringify!($field), self.$field.save()),)*]
            }
            fn load_one(&mut self, name: &str, numbers: &[f64]) -> bool {
                match name {
                    "lr" => f64::load(numbers).map(|x| self.lr = x).is_some(),
                    $(stringify!($field) => <$Ty as Saved>::load(numbers).map(|x| self.$field = x).is_some(),)*
                    _ => false,
                }
            }
            /// Refuses a rate or a penalty that is no number from 0 on.
            fn check_rate(&self) -> Result<()> {
                within($name, "lr", self.lr, 0.0, f64::INFINITY)
            }
        }

        $(#[$doc])*
        pub type $Name = Stepper<$Options>;

        impl $Name {
            #[doc = concat!("The options, to change and [`build`](", stringify!($Options), "::build).")]
            pub fn options() -> $Options {
                $Options::default()
            }
            /// The optimizer with PyTorch's defaults.
            pub fn new(params: impl IntoIterator<Item = Tensor>, lr: f64) -> Self {
                $Options::default().lr(lr).build(params)
            }
        }
    )*};
}

/// What every kind has the same.
macro_rules! common {
    ($name:literal $(, momentum |$own:ident| $momentum:expr)?) => {
        const NAME: &'static str = $name;
        fn rate(&mut self) -> &mut f64 {
            &mut self.lr
        }
        fn saved(&self) -> Vec<(&'static str, Vec<f64>)> {
            self.all_saved()
        }
        fn load(&mut self, name: &str, numbers: &[f64]) -> bool {
            self.load_one(name, numbers)
        }
        $(fn momentum(&mut self) -> Option<&mut f64> {
            let $own = self;
            Some($momentum)
        })?
    };
}

/// Refuses a number outside of `low..high`, the lower end included.
fn within(name: &'static str, option: &str, x: f64, low: f64, high: f64) -> Result<()> {
    match x >= low && (x < high || high == f64::INFINITY) {
        true => Ok(()),
        false => Err(Error::value(name, format!("invalid {option} value: {x}; it is from {low} to below {high}"))),
    }
}

fn betas_within(name: &'static str, betas: (f64, f64)) -> Result<()> {
    within(name, "beta 1", betas.0, 0.0, 1.0)?;
    within(name, "beta 2", betas.1, 0.0, 1.0)
}

fn elements(step: impl Into<step::Step>) -> AnyStep {
    AnyStep::Elements(step.into())
}

fn stepped(counts: &mut Counts) -> f64 {
    counts.step += 1.0;
    counts.step
}

const MOMENTS: [&str; 2] = ["exp_avg", "exp_avg_sq"];

optimizers! {
    /// Stochastic gradient descent, with momentum as PyTorch has it.
    ///
    /// ```
    /// use lucid::prelude::*;
    /// # fn main() -> Result<()> {
    /// let w = tensor!([1.0])?.requires_grad_(true)?;
    /// let mut sgd = optim::Sgd::options().lr(0.1).momentum(0.9).build([w.clone()]);
    /// (&w * &w)?.sum_all()?.backward()?;
    /// sgd.step()?;
    /// assert_eq!(w.to_vec::<f32>()?, [0.8]);
    /// # Ok(())
    /// # }
    /// ```
    Sgd SgdOptions "sgd" lr 1e-3 {
        /// Momentum. Default: 0.
        momentum: f64 = 0.0;
        /// How much less of the gradient the momentum takes. Default: 0.
        dampening: f64 = 0.0;
        /// L2 penalty. Default: 0.
        weight_decay: f64 = 0.0;
        /// Nesterov's momentum? Default: false.
        nesterov: bool = false;
        /// Ascend instead? Default: false.
        maximize: bool = false;
    }
    /// Adam (Kingma and Ba, 2015).
    Adam AdamOptions "adam" lr 1e-3 {
        /// Decay rates of the moments. Default: (0.9, 0.999).
        betas: (f64, f64) = (0.9, 0.999);
        /// Added to the denominator. Default: 1e-8.
        eps: f64 = 1e-8;
        /// Penalty. Default: 0.
        weight_decay: f64 = 0.0;
        /// Is the second moment the largest so far (Reddi et al., 2018)? Default: false.
        amsgrad: bool = false;
        /// Ascend instead? Default: false.
        maximize: bool = false;
        /// Does the penalty shrink parameters directly? Default: false.
        decoupled_weight_decay: bool = false;
    }
    /// AdamW (Loshchilov and Hutter, 2019): Adam whose penalty shrinks parameters directly.
    AdamW AdamWOptions "adamw" lr 1e-3 {
        /// Decay rates of the moments. Default: (0.9, 0.999).
        betas: (f64, f64) = (0.9, 0.999);
        /// Added to the denominator. Default: 1e-8.
        eps: f64 = 1e-8;
        /// Penalty. Default: 0.01.
        weight_decay: f64 = 0.01;
        /// Is the second moment the largest so far? Default: false.
        amsgrad: bool = false;
        /// Ascend instead? Default: false.
        maximize: bool = false;
    }
    /// Adam over the rows that sparse gradients have.
    SparseAdam SparseAdamOptions "sparse_adam" lr 1e-3 {
        /// Decay rates of the moments. Default: (0.9, 0.999).
        betas: (f64, f64) = (0.9, 0.999);
        /// Added to the denominator. Default: 1e-8.
        eps: f64 = 1e-8;
        /// Ascend instead? Default: false.
        maximize: bool = false;
    }
    /// Adagrad (Duchi et al., 2011).
    Adagrad AdagradOptions "adagrad" lr 1e-2 {
        /// How fast the rate falls. Default: 0.
        lr_decay: f64 = 0.0;
        /// L2 penalty. Default: 0.
        weight_decay: f64 = 0.0;
        /// The sum of squares at first. Default: 0.
        initial_accumulator_value: f64 = 0.0;
        /// Added to the denominator. Default: 1e-10.
        eps: f64 = 1e-10;
        /// Ascend instead? Default: false.
        maximize: bool = false;
    }
    /// Adadelta (Zeiler, 2012).
    Adadelta AdadeltaOptions "adadelta" lr 1.0 {
        /// Decay rate of the means. Default: 0.9.
        rho: f64 = 0.9;
        /// Added to the means. Default: 1e-6.
        eps: f64 = 1e-6;
        /// L2 penalty. Default: 0.
        weight_decay: f64 = 0.0;
        /// Ascend instead? Default: false.
        maximize: bool = false;
    }
    /// Adam by the largest gradient (Kingma and Ba, 2015).
    Adamax AdamaxOptions "adamax" lr 2e-3 {
        /// Decay rates. Default: (0.9, 0.999).
        betas: (f64, f64) = (0.9, 0.999);
        /// Added to the denominator. Default: 1e-8.
        eps: f64 = 1e-8;
        /// L2 penalty. Default: 0.
        weight_decay: f64 = 0.0;
        /// Ascend instead? Default: false.
        maximize: bool = false;
    }
    /// Adam with Nesterov's momentum (Dozat, 2016).
    NAdam NAdamOptions "nadam" lr 2e-3 {
        /// Decay rates of the moments. Default: (0.9, 0.999).
        betas: (f64, f64) = (0.9, 0.999);
        /// Added to the denominator. Default: 1e-8.
        eps: f64 = 1e-8;
        /// Penalty. Default: 0.
        weight_decay: f64 = 0.0;
        /// How fast the momentum approaches β₁. Default: 4e-3.
        momentum_decay: f64 = 4e-3;
        /// Does the penalty shrink parameters directly? Default: false.
        decoupled_weight_decay: bool = false;
        /// Ascend instead? Default: false.
        maximize: bool = false;
    }
    /// Adam whose rate follows how well the variance is known (Liu et al., 2020).
    RAdam RAdamOptions "radam" lr 1e-3 {
        /// Decay rates of the moments. Default: (0.9, 0.999).
        betas: (f64, f64) = (0.9, 0.999);
        /// Added to the denominator. Default: 1e-8.
        eps: f64 = 1e-8;
        /// Penalty. Default: 0.
        weight_decay: f64 = 0.0;
        /// Does the penalty shrink parameters directly? Default: false.
        decoupled_weight_decay: bool = false;
        /// Ascend instead? Default: false.
        maximize: bool = false;
    }
    /// Division by the root of the mean square (Hinton, 2012).
    RmsProp RmsPropOptions "rmsprop" lr 1e-2 {
        /// Decay rate of the means. Default: 0.99.
        alpha: f64 = 0.99;
        /// Added to the denominator. Default: 1e-8.
        eps: f64 = 1e-8;
        /// L2 penalty. Default: 0.
        weight_decay: f64 = 0.0;
        /// Momentum. Default: 0.
        momentum: f64 = 0.0;
        /// Divide by the root of the variance? Default: false.
        centered: bool = false;
        /// Ascend instead? Default: false.
        maximize: bool = false;
    }
    /// Resilient backpropagation (Riedmiller and Braun, 1993): by the gradient's signs.
    Rprop RpropOptions "rprop" lr 1e-2 {
        /// Factors of the step where the sign turned, and where it stayed. Default: (0.5, 1.2).
        etas: (f64, f64) = (0.5, 1.2);
        /// Least and largest step. Default: (1e-6, 50).
        step_sizes: (f64, f64) = (1e-6, 50.0);
        /// Ascend instead? Default: false.
        maximize: bool = false;
    }
    /// Averaged gradient descent (Polyak and Juditsky, 1992); the averages are its state, `ax`.
    Asgd AsgdOptions "asgd" lr 1e-2 {
        /// Decay. Default: 1e-4.
        lambd: f64 = 1e-4;
        /// Power of the rate's decay. Default: 0.75.
        alpha: f64 = 0.75;
        /// From which step on it averages. Default: 1e6.
        t0: f64 = 1e6;
        /// L2 penalty. Default: 0.
        weight_decay: f64 = 0.0;
        /// Ascend instead? Default: false.
        maximize: bool = false;
    }
    /// Lion (Chen et al., 2023): by the sign of the momentum.
    Lion LionOptions "lion" lr 1e-4 {
        /// The momentum's share in the direction, and its decay rate. Default: (0.9, 0.99).
        betas: (f64, f64) = (0.9, 0.99);
        /// Penalty, which shrinks parameters directly. Default: 0.
        weight_decay: f64 = 0.0;
        /// Ascend instead? Default: false.
        maximize: bool = false;
    }
    /// Muon (Jordan et al., 2024): momentum made orthogonal, for matrices.
    Muon MuonOptions "muon" lr 1e-3 {
        /// Penalty, which shrinks parameters directly. Default: 0.1.
        weight_decay: f64 = 0.1;
        /// Momentum. Default: 0.95.
        momentum: f64 = 0.95;
        /// Nesterov's momentum? Default: true.
        nesterov: bool = true;
        /// Least norm to divide by. Default: 1e-7.
        eps: f64 = 1e-7;
        /// Iterations of the polynomial. Default: 5.
        ns_steps: f64 = 5.0;
        /// Is the rate that of AdamW, by the larger side? Default: by the ratio of the sides.
        match_rms_adamw: bool = false;
    }
    /// Adafactor (Shazeer and Stern, 2018): second moments of matrices as a row and a column.
    Adafactor AdafactorOptions "adafactor" lr 1e-2 {
        /// The second moment takes `t^beta2_decay` of the new square. Default: -0.8.
        beta2_decay: f64 = -0.8;
        /// Least root of a second moment. Default: the dtype's.
        eps1: Option<f64> = None;
        /// Least size of a parameter. Default: 1e-3.
        eps2: f64 = 1e-3;
        /// Largest root mean square of an update. Default: 1.
        d: f64 = 1.0;
        /// Penalty, which shrinks parameters directly. Default: 0.
        weight_decay: f64 = 0.0;
        /// Ascend instead? Default: false.
        maximize: bool = false;
    }
}

impl Kind for SgdOptions {
    common!("sgd", momentum |own| &mut own.momentum);
    fn check(&self) -> Result<()> {
        self.check_rate()?;
        if self.nesterov && (self.momentum <= 0.0 || self.dampening != 0.0) {
            return Err(Error::value("sgd", "Nesterov momentum requires a momentum and zero dampening"));
        }
        within("sgd", "momentum", self.momentum, 0.0, f64::INFINITY)
    }
    fn names(&self, _: &Tensor) -> &'static [&'static str] {
        if self.momentum == 0.0 { &[] } else { &["momentum_buffer"] }
    }
    fn next(&self, _: &Tensor, counts: &mut Counts) -> AnyStep {
        let first = stepped(counts) == 1.0;
        let &SgdOptions { lr, momentum, dampening, weight_decay, nesterov, maximize } = self;
        // Without momentum there is no first step that differs.
        let first = first && momentum != 0.0;
        elements(step::Sgd { lr, momentum, dampening, weight_decay, nesterov, maximize, first })
    }
}

impl Kind for AdamOptions {
    common!("adam", momentum |own| &mut own.betas.0);
    fn check(&self) -> Result<()> {
        self.check_rate()?;
        betas_within("adam", self.betas)
    }
    fn names(&self, _: &Tensor) -> &'static [&'static str] {
        if self.amsgrad { &["exp_avg", "exp_avg_sq", "max_exp_avg_sq"] } else { &MOMENTS }
    }
    fn next(&self, _: &Tensor, counts: &mut Counts) -> AnyStep {
        let &AdamOptions { lr, betas, eps, weight_decay, amsgrad, maximize, decoupled_weight_decay } = self;
        let (beta1, beta2) = betas;
        let t = stepped(counts);
        elements(step::Adam { lr, beta1, beta2, eps, weight_decay, decoupled_weight_decay, amsgrad, maximize, t })
    }
}

impl Kind for AdamWOptions {
    common!("adamw", momentum |own| &mut own.betas.0);
    fn check(&self) -> Result<()> {
        self.check_rate()?;
        betas_within("adamw", self.betas)
    }
    fn names(&self, _: &Tensor) -> &'static [&'static str] {
        if self.amsgrad { &["exp_avg", "exp_avg_sq", "max_exp_avg_sq"] } else { &MOMENTS }
    }
    fn next(&self, _: &Tensor, counts: &mut Counts) -> AnyStep {
        let &AdamWOptions { lr, betas: (beta1, beta2), eps, weight_decay, amsgrad, maximize } = self;
        let t = stepped(counts);
        let decoupled_weight_decay = true;
        elements(step::Adam { lr, beta1, beta2, eps, weight_decay, decoupled_weight_decay, amsgrad, maximize, t })
    }
}

impl Kind for SparseAdamOptions {
    common!("sparse_adam", momentum |own| &mut own.betas.0);
    fn check(&self) -> Result<()> {
        self.check_rate()?;
        betas_within("sparse_adam", self.betas)
    }
    fn names(&self, _: &Tensor) -> &'static [&'static str] {
        &MOMENTS
    }
    fn next(&self, _: &Tensor, counts: &mut Counts) -> AnyStep {
        let &SparseAdamOptions { lr, betas: (beta1, beta2), eps, maximize } = self;
        elements(step::SparseAdam { lr, beta1, beta2, eps, maximize, t: stepped(counts) })
    }
}

impl Kind for AdagradOptions {
    common!("adagrad");
    fn check(&self) -> Result<()> {
        self.check_rate()
    }
    fn names(&self, _: &Tensor) -> &'static [&'static str] {
        &["sum"]
    }
    fn first(&self, _: usize, p: &Tensor) -> Result<Tensor> {
        Tensor::full_of(p.shape(), self.initial_accumulator_value.into(), p.dtype(), p.device())
    }
    fn next(&self, _: &Tensor, counts: &mut Counts) -> AnyStep {
        let &AdagradOptions { lr, lr_decay, weight_decay, eps, maximize, .. } = self;
        elements(step::Adagrad { lr, lr_decay, weight_decay, eps, maximize, t: stepped(counts) })
    }
}

impl Kind for AdadeltaOptions {
    common!("adadelta");
    fn check(&self) -> Result<()> {
        self.check_rate()?;
        within("adadelta", "rho", self.rho, 0.0, 1.0 + f64::EPSILON)
    }
    fn names(&self, _: &Tensor) -> &'static [&'static str] {
        &["square_avg", "acc_delta"]
    }
    fn next(&self, _: &Tensor, counts: &mut Counts) -> AnyStep {
        stepped(counts);
        let &AdadeltaOptions { lr, rho, eps, weight_decay, maximize } = self;
        elements(step::Adadelta { lr, rho, eps, weight_decay, maximize })
    }
}

impl Kind for AdamaxOptions {
    common!("adamax", momentum |own| &mut own.betas.0);
    fn check(&self) -> Result<()> {
        self.check_rate()?;
        betas_within("adamax", self.betas)
    }
    fn names(&self, _: &Tensor) -> &'static [&'static str] {
        &["exp_avg", "exp_inf"]
    }
    fn next(&self, _: &Tensor, counts: &mut Counts) -> AnyStep {
        let &AdamaxOptions { lr, betas: (beta1, beta2), eps, weight_decay, maximize } = self;
        elements(step::Adamax { lr, beta1, beta2, eps, weight_decay, maximize, t: stepped(counts) })
    }
}

impl Kind for NAdamOptions {
    common!("nadam", momentum |own| &mut own.betas.0);
    fn check(&self) -> Result<()> {
        self.check_rate()?;
        betas_within("nadam", self.betas)
    }
    fn names(&self, _: &Tensor) -> &'static [&'static str] {
        &MOMENTS
    }
    fn counts(&self) -> (Counts, &'static [&'static str]) {
        (Counts { step: 0.0, numbers: [1.0, 0.0] }, &["mu_product"])
    }
    fn next(&self, _: &Tensor, counts: &mut Counts) -> AnyStep {
        let &NAdamOptions { lr, betas: (beta1, beta2), eps, weight_decay, maximize, .. } = self;
        let t = stepped(counts);
        let mu_at = |n: f64| beta1 * (1.0 - 0.5 * 0.96f64.powf(n * self.momentum_decay));
        let (mu, mu_next) = (mu_at(t), mu_at(t + 1.0));
        // Kept in float32, as PyTorch's is.
        let mu_product = f64::from(counts.numbers[0] as f32 * mu as f32);
        counts.numbers[0] = mu_product;
        let decoupled_weight_decay = self.decoupled_weight_decay;
        elements(step::NAdam {
            lr,
            beta1,
            beta2,
            eps,
            weight_decay,
            decoupled_weight_decay,
            maximize,
            mu,
            mu_next,
            mu_product,
            t,
        })
    }
}

impl Kind for RAdamOptions {
    common!("radam", momentum |own| &mut own.betas.0);
    fn check(&self) -> Result<()> {
        self.check_rate()?;
        betas_within("radam", self.betas)
    }
    fn names(&self, _: &Tensor) -> &'static [&'static str] {
        &MOMENTS
    }
    fn next(&self, _: &Tensor, counts: &mut Counts) -> AnyStep {
        let &RAdamOptions { lr, betas: (beta1, beta2), eps, weight_decay, decoupled_weight_decay, maximize } = self;
        let t = stepped(counts);
        elements(step::RAdam { lr, beta1, beta2, eps, weight_decay, decoupled_weight_decay, maximize, t })
    }
}

impl Kind for RmsPropOptions {
    common!("rmsprop", momentum |own| &mut own.momentum);
    fn check(&self) -> Result<()> {
        self.check_rate()?;
        within("rmsprop", "momentum", self.momentum, 0.0, f64::INFINITY)?;
        within("rmsprop", "alpha", self.alpha, 0.0, f64::INFINITY)
    }
    fn names(&self, _: &Tensor) -> &'static [&'static str] {
        match (self.centered, self.momentum > 0.0) {
            (false, false) => &["square_avg"],
            (true, false) => &["square_avg", "grad_avg"],
            (false, true) => &["square_avg", "momentum_buffer"],
            (true, true) => &["square_avg", "grad_avg", "momentum_buffer"],
        }
    }
    fn next(&self, _: &Tensor, counts: &mut Counts) -> AnyStep {
        stepped(counts);
        let &RmsPropOptions { lr, alpha, eps, weight_decay, momentum, centered, maximize } = self;
        elements(step::RmsProp { lr, alpha, eps, weight_decay, momentum, centered, maximize })
    }
}

impl Kind for RpropOptions {
    common!("rprop");
    fn check(&self) -> Result<()> {
        self.check_rate()?;
        within("rprop", "eta minus", self.etas.0, f64::MIN_POSITIVE, 1.0)?;
        within("rprop", "eta plus", self.etas.1, 1.0, f64::INFINITY)
    }
    fn names(&self, _: &Tensor) -> &'static [&'static str] {
        &["prev", "step_size"]
    }
    fn first(&self, i: usize, p: &Tensor) -> Result<Tensor> {
        let value = if i == 1 { self.lr } else { 0.0 };
        Tensor::full_of(p.shape(), value.into(), p.dtype(), p.device())
    }
    fn next(&self, _: &Tensor, counts: &mut Counts) -> AnyStep {
        stepped(counts);
        let &RpropOptions { etas, step_sizes, maximize, .. } = self;
        let ((eta_minus, eta_plus), (step_min, step_max)) = (etas, step_sizes);
        elements(step::Rprop { eta_minus, eta_plus, step_min, step_max, maximize })
    }
}

impl Kind for AsgdOptions {
    common!("asgd");
    fn check(&self) -> Result<()> {
        self.check_rate()
    }
    fn names(&self, _: &Tensor) -> &'static [&'static str] {
        &["ax"]
    }
    fn counts(&self) -> (Counts, &'static [&'static str]) {
        (Counts { step: 0.0, numbers: [self.lr, 1.0] }, &["eta", "mu"])
    }
    fn next(&self, _: &Tensor, counts: &mut Counts) -> AnyStep {
        let &AsgdOptions { lr, lambd, alpha, t0, weight_decay, maximize } = self;
        let [eta, mu] = counts.numbers;
        let t = stepped(counts);
        counts.numbers = [lr / (1.0 + lambd * lr * t).powf(alpha), 1.0 / (t - t0).max(1.0)];
        elements(step::Asgd { eta, lambd, mu, weight_decay, maximize })
    }
}

impl Kind for LionOptions {
    common!("lion", momentum |own| &mut own.betas.0);
    fn check(&self) -> Result<()> {
        self.check_rate()?;
        betas_within("lion", self.betas)
    }
    fn names(&self, _: &Tensor) -> &'static [&'static str] {
        &["exp_avg"]
    }
    fn next(&self, _: &Tensor, counts: &mut Counts) -> AnyStep {
        stepped(counts);
        let &LionOptions { lr, betas: (beta1, beta2), weight_decay, maximize } = self;
        elements(step::Lion { lr, beta1, beta2, weight_decay, maximize })
    }
}

impl Kind for MuonOptions {
    common!("muon", momentum |own| &mut own.momentum);
    fn check(&self) -> Result<()> {
        self.check_rate()?;
        within("muon", "ns_steps", self.ns_steps, 0.0, 100.0)
    }
    fn names(&self, _: &Tensor) -> &'static [&'static str] {
        &["momentum_buffer"]
    }
    fn next(&self, p: &Tensor, counts: &mut Counts) -> AnyStep {
        stepped(counts);
        let side = |i: usize| p.shape().get(i).copied().unwrap_or(1).max(1) as f64;
        let factor = match self.match_rms_adamw {
            true => 0.2 * side(0).max(side(1)).sqrt(),
            false => (side(0) / side(1)).max(1.0).sqrt(),
        };
        let &MuonOptions { lr, weight_decay, momentum, nesterov, eps, ns_steps: iterations, .. } = self;
        let (a, b, c, rate) = (3.4445, -4.775, 2.0315, lr * factor);
        AnyStep::Matrix(
            matrix::Muon { lr, rate, weight_decay, momentum, nesterov, a, b, c, eps, iterations }.into(),
        )
    }
}

impl Kind for AdafactorOptions {
    common!("adafactor");
    fn check(&self) -> Result<()> {
        self.check_rate()
    }
    fn names(&self, p: &Tensor) -> &'static [&'static str] {
        if p.ndim() > 1 { &["row_var", "col_var"] } else { &["variance"] }
    }
    fn first(&self, i: usize, p: &Tensor) -> Result<Tensor> {
        let mut shape = p.shape().to_vec();
        if let [.., rows, columns] = &mut shape[..] {
            *(if i == 0 { columns } else { rows }) = 1;
        }
        Tensor::full_of(&shape, 0.0.into(), p.dtype(), p.device())
    }
    fn next(&self, p: &Tensor, counts: &mut Counts) -> AnyStep {
        let least = match p.dtype() {
            DType::F64 => f64::EPSILON,
            DType::F16 => 2f64.powi(-10),
            DType::BF16 => 2f64.powi(-7),
            _ => f64::from(f32::EPSILON),
        };
        let (eps1, t) = (self.eps1.unwrap_or(least), stepped(counts));
        let &AdafactorOptions { lr, beta2_decay, eps2, d, weight_decay, maximize, .. } = self;
        AnyStep::Matrix(
            matrix::Adafactor { lr, beta2_decay, eps1, eps2, d, weight_decay, maximize, t }.into(),
        )
    }
}
