//! What the steps of each optimizer are made of, from its options.

use super::optimizer::{AnyStep, Counts, Kind};
use super::options::*;
use super::{matrix, step};
use crate::{DType, Error, Result, Tensor};

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

impl Kind for SgdOptions {
    common!("sgd", momentum | own | &mut own.momentum);
    fn check(&self) -> Result<()> {
        self.check_rate()?;
        if self.nesterov && (self.momentum <= 0.0 || self.dampening != 0.0) {
            return Err(Error::value("sgd", "Nesterov momentum requires a momentum and zero dampening"));
        }
        within("sgd", "momentum", self.momentum, 0.0, f64::INFINITY)
    }
    fn names(&self, _: &Tensor) -> &'static [&'static str] {
        if self.momentum == 0.0 {
            &[]
        } else {
            &["momentum_buffer"]
        }
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
    common!("adam", momentum | own | &mut own.betas.0);
    fn check(&self) -> Result<()> {
        self.check_rate()?;
        betas_within("adam", self.betas)
    }
    fn names(&self, _: &Tensor) -> &'static [&'static str] {
        if self.amsgrad {
            &["exp_avg", "exp_avg_sq", "max_exp_avg_sq"]
        } else {
            &MOMENTS
        }
    }
    fn next(&self, _: &Tensor, counts: &mut Counts) -> AnyStep {
        let &AdamOptions { lr, betas, eps, weight_decay, amsgrad, maximize, decoupled_weight_decay } = self;
        let (beta1, beta2) = betas;
        let t = stepped(counts);
        elements(step::Adam { lr, beta1, beta2, eps, weight_decay, decoupled_weight_decay, amsgrad, maximize, t })
    }
}

impl Kind for AdamWOptions {
    common!("adamw", momentum | own | &mut own.betas.0);
    fn check(&self) -> Result<()> {
        self.check_rate()?;
        betas_within("adamw", self.betas)
    }
    fn names(&self, _: &Tensor) -> &'static [&'static str] {
        if self.amsgrad {
            &["exp_avg", "exp_avg_sq", "max_exp_avg_sq"]
        } else {
            &MOMENTS
        }
    }
    fn next(&self, _: &Tensor, counts: &mut Counts) -> AnyStep {
        let &AdamWOptions { lr, betas: (beta1, beta2), eps, weight_decay, amsgrad, maximize } = self;
        let t = stepped(counts);
        let decoupled_weight_decay = true;
        elements(step::Adam { lr, beta1, beta2, eps, weight_decay, decoupled_weight_decay, amsgrad, maximize, t })
    }
}

impl Kind for SparseAdamOptions {
    common!("sparse_adam", momentum | own | &mut own.betas.0);
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
    common!("adamax", momentum | own | &mut own.betas.0);
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
    common!("nadam", momentum | own | &mut own.betas.0);
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
    common!("radam", momentum | own | &mut own.betas.0);
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
    common!("rmsprop", momentum | own | &mut own.momentum);
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
    common!("lion", momentum | own | &mut own.betas.0);
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
    common!("muon", momentum | own | &mut own.momentum);
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
        AnyStep::Matrix(matrix::Muon { lr, rate, weight_decay, momentum, nesterov, a, b, c, eps, iterations }.into())
    }
}

impl Kind for AdafactorOptions {
    common!("adafactor");
    fn check(&self) -> Result<()> {
        self.check_rate()
    }
    fn names(&self, p: &Tensor) -> &'static [&'static str] {
        if p.ndim() > 1 {
            &["row_var", "col_var"]
        } else {
            &["variance"]
        }
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
        AnyStep::Matrix(matrix::Adafactor { lr, beta2_decay, eps1, eps2, d, weight_decay, maximize, t }.into())
    }
}
