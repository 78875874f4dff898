//! [`Lbfgs`]: a quasi-Newton method over the whole of the parameters, which calls the loss itself.

use super::lbfgs::{flat_gradient, measures, move_along, move_back, History};
use super::optimizer::{numbers, single};
use super::Optimizer;
use crate::nn::StateDict;
use crate::{enable_grad, no_grad, Error, Result, Tensor};

/// How far a step goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LineSearch {
    /// By the learning rate.
    #[default]
    None,
    /// To where the strong Wolfe conditions hold (Nocedal and Wright, 2006).
    StrongWolfe,
}

/// L-BFGS (Liu and Nocedal, 1989): for losses without noise.
///
/// ```
/// use lucid::prelude::*;
/// # fn main() -> Result<()> {
/// let w = tensor!([5.0, -3.0])?.requires_grad_(true)?;
/// let mut lbfgs = optim::Lbfgs::new([w.clone()], 1.0);
/// lbfgs.line_search = optim::LineSearch::StrongWolfe;
/// lbfgs.step(|| (&w - 1.0)?.square()?.sum_all())?;
/// assert_close(&w.detach()?, [1.0, 1.0]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Lbfgs {
    params: Vec<Tensor>,
    /// Learning rate.
    pub lr: f64,
    /// Iterations of a step. Default: 20.
    pub max_iter: u64,
    /// Evaluations of the loss in a step. Default: 25.
    pub max_eval: u64,
    /// A step ends where no element of the gradient is larger. Default: 1e-7.
    pub tolerance_grad: f64,
    /// A step ends where the loss or the parameters change by less. Default: 1e-9.
    pub tolerance_change: f64,
    /// How many changes are remembered. Default: 100.
    pub history_size: usize,
    /// How far a step goes. Default: by the learning rate.
    pub line_search: LineSearch,
    history: History,
    last: Option<(Tensor, Tensor, f64)>,
}

/// A place along a direction.
#[derive(Clone, Debug)]
struct Point {
    t: f64,
    loss: f64,
    slope: f64,
    gradient: Tensor,
    largest: f64,
}

impl Lbfgs {
    /// With PyTorch's defaults; set the other fields as needed.
    pub fn new(params: impl IntoIterator<Item = Tensor>, lr: f64) -> Lbfgs {
        Lbfgs {
            params: params.into_iter().collect(),
            lr,
            max_iter: 20,
            max_eval: 25,
            tolerance_grad: 1e-7,
            tolerance_change: 1e-9,
            history_size: 100,
            line_search: LineSearch::None,
            history: History::default(),
            last: None,
        }
    }

    /// The parameters.
    pub fn parameters(&self) -> &[Tensor] {
        &self.params
    }

    /// The loss, and the gradients of the parameters anew.
    fn evaluate(&self, closure: &mut dyn FnMut() -> Result<Tensor>) -> Result<(Tensor, f64)> {
        self.params.iter().try_for_each(|p| p.set_grad(None))?;
        let loss = enable_grad(&mut *closure)?;
        loss.backward()?;
        let value = loss.item_f64()?;
        Ok((loss.detach()?, value))
    }

    /// The direction that the history suggests, from this gradient on.
    fn direction(&mut self, gradient: &Tensor) -> Result<Tensor> {
        no_grad(|| {
            if let Some((before, d, t)) = self.last.take() {
                self.history.remember((gradient - &before)?, (&d * t)?, self.history_size)?;
            }
            Ok(self.history.direction(gradient)?.0)
        })
    }

    /// Lowers the loss by several iterations, and gives what it was. The closure computes the loss.
    ///
    /// # Errors
    /// What the closure and `backward` report.
    pub fn step(&mut self, mut closure: impl FnMut() -> Result<Tensor>) -> Result<Tensor> {
        if self.lr.is_nan() || self.lr < 0.0 {
            return Err(Error::value("lbfgs", format!("invalid lr value: {}", self.lr)));
        }
        let (first_loss, mut loss) = self.evaluate(&mut closure)?;
        let mut evaluations = 1;
        let mut gradient = flat_gradient(&self.params, false)?;
        let [_, mut largest, ..] = measures(&gradient, &gradient)?;
        if largest <= self.tolerance_grad {
            return Ok(first_loss);
        }
        for iteration in 1..=self.max_iter {
            let fresh = self.last.is_none() && self.history.changes.is_empty();
            let d = self.direction(&gradient)?;
            let [slope, size, _, total] = measures(&gradient, &d)?;
            let mut t = if fresh { (1.0 / total).min(1.0) * self.lr } else { self.lr };
            let (before, loss_before) = (gradient.clone(), loss);
            self.last = Some((before, d.clone(), t));
            if slope > -self.tolerance_change {
                break;
            }
            let mut calls = 0;
            if self.line_search == LineSearch::StrongWolfe {
                let start = Point { t: 0.0, loss, slope, gradient: gradient.clone(), largest };
                let room = self.max_eval.saturating_sub(evaluations);
                let (place, used) = self.strong_wolfe(&mut closure, &d, t, size, start, room)?;
                move_along(&self.params, &d, place.t)?;
                (t, loss, gradient, largest, calls) = (place.t, place.loss, place.gradient, place.largest, used);
            } else {
                move_along(&self.params, &d, t)?;
                // The last iteration's loss would be computed for nothing.
                if iteration != self.max_iter {
                    loss = self.evaluate(&mut closure)?.1;
                    gradient = flat_gradient(&self.params, false)?;
                    largest = measures(&gradient, &gradient)?[1];
                    calls = 1;
                }
            }
            if let Some((_, _, length)) = &mut self.last {
                *length = t;
            }
            evaluations += calls;
            let still = size * t.abs() <= self.tolerance_change || (loss - loss_before).abs() < self.tolerance_change;
            if evaluations >= self.max_eval || largest <= self.tolerance_grad || still {
                break;
            }
        }
        Ok(first_loss)
    }

    /// A place along a direction that lowers the loss and flattens the slope enough, and how often the loss was computed.
    /// The parameters are where they were.
    fn strong_wolfe(
        &self,
        closure: &mut dyn FnMut() -> Result<Tensor>,
        d: &Tensor,
        mut t: f64,
        size: f64,
        start: Point,
        most: u64,
    ) -> Result<(Point, u64)> {
        const C1: f64 = 1e-4;
        const C2: f64 = 0.9;
        let home = no_grad(|| self.params.iter().map(|p| p.detach()?.copy()).collect::<Result<Vec<_>>>())?;
        let mut at = |t: f64| -> Result<Point> {
            move_along(&self.params, d, t)?;
            let loss = self.evaluate(&mut *closure)?.1;
            let gradient = flat_gradient(&self.params, false)?;
            move_back(&self.params, &home)?;
            let [slope, _, largest, _] = measures(&gradient, d)?;
            Ok(Point { t, loss, slope, gradient, largest })
        };
        let (f, slope) = (start.loss, start.slope);
        let mut new = at(t)?;
        let (mut calls, mut tries, mut done) = (1, 0, false);
        let mut last = start.clone();
        let mut bracket = [start.clone(), new.clone()];
        // First: bracket a good place.
        while tries < most {
            bracket = [last.clone(), new.clone()];
            if new.loss > f + C1 * t * slope || (tries > 1 && new.loss >= last.loss) {
                break;
            }
            if new.slope.abs() <= -C2 * slope {
                bracket = [new.clone(), new.clone()];
                done = true;
                break;
            }
            if new.slope >= 0.0 {
                break;
            }
            let bounds = (t + 0.01 * (t - last.t), t * 10.0);
            t = interpolate(&last, &new, Some(bounds));
            last = new;
            new = at(t)?;
            calls += 1;
            tries += 1;
        }
        if tries == most {
            bracket = [start, new];
        }
        // Then: narrow the bracket.
        let mut stuck = false;
        let order = |b: &[Point; 2]| if b[0].loss <= b[1].loss { (0, 1) } else { (1, 0) };
        let (mut low, mut high) = order(&bracket);
        while !done && tries < most {
            let (a, b) = (bracket[0].t, bracket[1].t);
            if (b - a).abs() * size < 1e-9 {
                break;
            }
            t = interpolate(&bracket[0], &bracket[1], None);
            // A place near the bracket's end is moved inwards, if it happens twice or is at the very end.
            let (least, highest) = (a.min(b), a.max(b));
            let margin = 0.1 * (highest - least);
            if (highest - t).min(t - least) < margin {
                if stuck || t >= highest || t <= least {
                    t = if (t - highest).abs() < (t - least).abs() { highest - margin } else { least + margin };
                    stuck = false;
                } else {
                    stuck = true;
                }
            } else {
                stuck = false;
            }
            let new = at(t)?;
            calls += 1;
            tries += 1;
            if new.loss > f + C1 * t * slope || new.loss >= bracket[low].loss {
                bracket[high] = new;
                (low, high) = order(&bracket);
            } else {
                if new.slope.abs() <= -C2 * slope {
                    done = true;
                } else if new.slope * (bracket[high].t - bracket[low].t) >= 0.0 {
                    bracket[high] = bracket[low].clone();
                }
                bracket[low] = new;
            }
        }
        Ok((bracket[low].clone(), calls))
    }
}

/// The minimum of the cubic through two points, within bounds; their middle where it has none.
fn interpolate(a: &Point, b: &Point, bounds: Option<(f64, f64)>) -> f64 {
    let (low, high) = bounds.unwrap_or((a.t.min(b.t), a.t.max(b.t)));
    let d1 = a.slope + b.slope - 3.0 * (a.loss - b.loss) / (a.t - b.t);
    let square = d1 * d1 - a.slope * b.slope;
    if square.is_nan() || square < 0.0 {
        return (low + high) / 2.0;
    }
    let d2 = square.sqrt();
    let place = match a.t <= b.t {
        true => b.t - (b.t - a.t) * ((b.slope + d2 - d1) / (b.slope - a.slope + 2.0 * d2)),
        false => a.t - (a.t - b.t) * ((a.slope + d2 - d1) / (a.slope - b.slope + 2.0 * d2)),
    };
    if place.is_nan() {
        (low + high) / 2.0
    } else {
        place.max(low).min(high)
    }
}

/// So that schedules set its rate, and a run goes on: state has PyTorch's names. Steps need the loss.
impl Optimizer for Lbfgs {
    fn step(&mut self) -> Result<()> {
        Err(Error::runtime(
            "lbfgs",
            "a step computes the loss several times: call Lbfgs::step with a closure that does",
        ))
    }

    fn parameters(&self) -> Vec<Tensor> {
        self.params.clone()
    }

    fn rates(&self) -> Vec<f64> {
        vec![self.lr]
    }

    fn set_rate(&mut self, group: usize, rate: f64) {
        if group == 0 {
            self.lr = rate;
        }
    }

    fn set_momentum(&mut self, _group: usize, _momentum: f64) -> bool {
        false
    }

    fn state_dict(&self) -> Result<StateDict> {
        let searches = if self.line_search == LineSearch::StrongWolfe { 1.0 } else { 0.0 };
        let mut state = numbers(&[
            ("param_groups.0.lr", &[self.lr]),
            ("param_groups.0.max_iter", &[self.max_iter as f64]),
            ("param_groups.0.max_eval", &[self.max_eval as f64]),
            ("param_groups.0.tolerance_grad", &[self.tolerance_grad]),
            ("param_groups.0.tolerance_change", &[self.tolerance_change]),
            ("param_groups.0.history_size", &[self.history_size as f64]),
            ("param_groups.0.line_search", &[searches]),
        ])?;
        for (name, list) in self.history.named() {
            state.extend(list.iter().enumerate().map(|(i, t)| (format!("state.0.{name}.{i}"), t.clone())));
        }
        if let Some(scale) = &self.history.scale {
            state.insert("state.0.H_diag".into(), scale.clone());
        }
        if let Some((gradient, d, t)) = &self.last {
            state.insert("state.0.prev_flat_grad".into(), gradient.clone());
            state.insert("state.0.d".into(), d.clone());
            state.extend(numbers(&[("state.0.t", &[*t])])?);
        }
        Ok(state)
    }

    fn load_state_dict(&mut self, state: &StateDict) -> Result<()> {
        let option = |name: &str| single("lbfgs", state, &format!("param_groups.0.{name}"));
        let count = |name: &str| option(name).map(|n| n.max(0.0) as u64);
        let mut new = Lbfgs {
            max_iter: count("max_iter")?,
            max_eval: count("max_eval")?,
            tolerance_grad: option("tolerance_grad")?,
            tolerance_change: option("tolerance_change")?,
            history_size: count("history_size")? as usize,
            line_search: if option("line_search")? == 0.0 { LineSearch::None } else { LineSearch::StrongWolfe },
            ..Lbfgs::new(self.params.iter().cloned(), option("lr")?)
        };
        let mut used = 7;
        let total = no_grad(|| flat_gradient(&self.params, false))?;
        let mut take = |name: String, of_parameters: bool| -> Result<Option<Tensor>> {
            let Some(given) = state.get(&format!("state.0.{name}")) else { return Ok(None) };
            used += 1;
            if of_parameters && given.shape() != total.shape() {
                let why = format!("state.0.{name} has not as many numbers as the parameters");
                return Err(Error::shape("lbfgs", why, &[given.shape(), total.shape()]));
            }
            // A copy: the other run may go on.
            no_grad(|| given.to(total.device())?.cast(total.dtype())?.copy()).map(Some)
        };
        for (name, list) in new.history.named_mut() {
            while let Some(t) = take(format!("{name}.{}", list.len()), name != "ro")? {
                list.push(t);
            }
        }
        new.history.scale = take("H_diag".into(), false)?;
        if let (Some(gradient), Some(d)) = (take("prev_flat_grad".into(), true)?, take("d".into(), true)?) {
            new.last = Some((gradient, d, single("lbfgs", state, "state.0.t")?));
            used += 1;
        }
        let pairs = new.history.named().map(|(_, list)| list.len());
        if used != state.len() || pairs.iter().any(|&n| n != pairs[0]) {
            return Err(Error::runtime("lbfgs", "the state dict has names that do not belong here, or lacks some"));
        }
        *self = new;
        Ok(())
    }
}
