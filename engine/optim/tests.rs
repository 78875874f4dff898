//! Optimizers and schedules as Rust programs use them; the steps' formulas have tests of their own.

use super::*;
use crate::testing::assert_close;
use crate::{tensor, Result, Tensor};

/// A step by the gradient of `Σ c x²`.
fn descend(x: &Tensor, optimizer: &mut dyn Optimizer) -> Result<()> {
    optimizer.zero_grad()?;
    (x * x)?.sum_all()?.backward()?;
    optimizer.step()
}

fn parameter() -> Result<Tensor> {
    tensor([[1.0, -2.0], [0.5, 3.0]])?.requires_grad_(true)
}

type Maker = fn(Tensor) -> Box<dyn Optimizer>;

const ALL: [Maker; 15] = [
    |p| Box::new(Sgd::options().lr(0.1).momentum(0.9).nesterov(true).build([p])),
    |p| Box::new(Adam::options().lr(0.1).amsgrad(true).build([p])),
    |p| Box::new(AdamW::new([p], 0.1)),
    |p| Box::new(SparseAdam::new([p], 0.1)),
    |p| Box::new(Adagrad::options().lr(0.1).initial_accumulator_value(0.1).build([p])),
    |p| Box::new(Adadelta::new([p], 1.0)),
    |p| Box::new(Adamax::new([p], 0.1)),
    |p| Box::new(NAdam::new([p], 0.1)),
    |p| Box::new(RAdam::new([p], 0.1)),
    |p| Box::new(RmsProp::options().lr(0.1).centered(true).momentum(0.5).build([p])),
    |p| Box::new(Rprop::new([p], 0.1)),
    |p| Box::new(Asgd::new([p], 0.1)),
    |p| Box::new(Lion::new([p], 0.1)),
    |p| Box::new(Muon::new([p], 0.1)),
    |p| Box::new(Adafactor::new([p], 0.1)),
];

#[test]
fn a_run_that_is_resumed_goes_on_as_it_would_have() -> Result<()> {
    for make in ALL {
        let x = parameter()?;
        let mut whole = make(x.clone());
        (0..3).try_for_each(|_| descend(&x, whole.as_mut()))?;
        let state = whole.state_dict()?.into_iter().map(|(n, t)| Ok((n, t.copy()?))).collect::<Result<_>>()?;
        let y = x.detach()?.copy()?.requires_grad_(true)?;
        let mut resumed = make(y.clone());
        resumed.load_state_dict(&state)?;
        (0..2).try_for_each(|_| descend(&x, whole.as_mut()))?;
        (0..2).try_for_each(|_| descend(&y, resumed.as_mut()))?;
        assert_eq!(x.to_vec::<f32>()?, y.to_vec::<f32>()?, "{:?}", state.keys());
        assert!(x.square()?.sum_all()?.item_f64()? < 14.25);
        let mut odd = state.clone();
        odd.insert("state.0.unknown".into(), Tensor::ones(&[1])?);
        assert!(resumed.load_state_dict(&odd).is_err());
        resumed.set_lr(-1.0);
        assert!(descend(&y, resumed.as_mut()).is_err());
    }
    Ok(())
}

#[test]
fn groups_have_options_of_their_own() -> Result<()> {
    let (a, b) = (parameter()?, parameter()?);
    let mut sgd = Sgd::new([a.clone()], 0.1).group([b.clone()], Sgd::options().lr(0.01).weight_decay(1.0));
    ((&a * &a)? + (&b * &b)?)?.sum_all()?.backward()?;
    sgd.step()?;
    assert_close(a.detach()?, [[0.8, -1.6], [0.4, 2.4]]);
    assert_close(b.detach()?, [[0.97, -1.94], [0.485, 2.91]]);
    assert_eq!((sgd.rates(), sgd.groups()[1].parameters().len()), (vec![0.1, 0.01], 1));
    Ok(())
}

#[test]
fn schedules_give_pytorchs_rates() {
    let close = |schedule: &dyn Schedule, step: u64, rate: f64| {
        let found = schedule.rate(step, 0.1);
        assert!((found - rate).abs() < 1e-9, "{found} at {step}, not {rate}");
    };
    close(&MultiStepLr::new(vec![2, 4]), 3, 0.01);
    close(&ConstantLr::new(), 4, 0.1 / 3.0);
    close(&LinearLr::new().total_iters(4), 2, 0.1 * (1.0 / 3.0 + 1.0 / 3.0));
    close(&ExponentialLr::new(0.5), 3, 0.0125);
    close(&PolynomialLr::new().total_iters(4).power(2.0), 2, 0.025);
    close(&CosineAnnealingLr::new(10), 5, 0.05);
    close(&CosineAnnealingWarmRestarts::new(2).t_mult(2), 4, 0.05);
    close(&CyclicLr::new(0.1, 0.3).step_size_up(4).step_size_down(4), 6, 0.2);
    let one = OneCycleLr::new(1.0, 10);
    close(&one, 0, 0.04);
    close(&one, 2, 1.0);
    close(&one, 9, 4e-6);
    assert_eq!(one.momentum(2), Some(0.85));
    close(&MultiplicativeLr(|_| 0.5), 2, 0.025);
    close(&|t: u64| 1.0 / (t + 1) as f64, 3, 0.025);
    close(&NoamLr::new(4, 2), 2, 0.5 / 2f64.sqrt());
    close(&SwaLr::new(0.05).anneal(Anneal::Linear), 5, 0.075);
    let both = || -> Vec<Box<dyn Schedule>> { vec![Box::new(ConstantLr::new()), Box::new(ExponentialLr::new(0.5))] };
    let sequence = SequentialLr::new(both(), vec![3]).unwrap();
    close(&sequence, 5, 0.025);
    close(&ChainedLr(both()), 1, 0.05 / 3.0);
    assert!(SequentialLr::new(both(), Vec::<u64>::new()).is_err());
    let mut sgd = Sgd::new([], 0.1);
    let mut plateau = ReduceLrOnPlateau::default().patience(1);
    [1.0, 0.9, 0.9, 0.9].into_iter().for_each(|loss| plateau.step(loss, &mut sgd));
    assert!((sgd.rates()[0] - 0.01).abs() < 1e-12);
}

#[test]
fn schedules_scalers_and_averages_go_on_where_they_were_saved() -> Result<()> {
    let rates = |saved: bool| -> Result<Vec<f64>> {
        let mut sgd = Sgd::new([parameter()?], 0.1);
        let mut scheduler = Scheduler::new(ExponentialLr::new(0.5), &mut sgd);
        let mut plateau = ReduceLrOnPlateau::default().patience(1);
        let mut all = Vec::new();
        for (step, loss) in [1.0, 2.0, 2.0, 2.0, 2.0, 2.0].into_iter().enumerate() {
            if saved && step == 2 {
                let states = (sgd.state_dict()?, scheduler.state_dict()?, plateau.state_dict()?);
                sgd = Sgd::new([parameter()?], 7.0);
                scheduler = Scheduler::new(ExponentialLr::new(0.5), &mut sgd);
                plateau = ReduceLrOnPlateau::default().patience(1);
                sgd.load_state_dict(&states.0)?;
                scheduler.load_state_dict(&states.1)?;
                plateau.load_state_dict(&states.2)?;
            }
            all.push(sgd.rates()[0]);
            scheduler.step(&mut sgd);
            plateau.step(loss, &mut sgd);
        }
        all.push(sgd.rates()[0]);
        Ok(all)
    };
    assert_eq!(rates(true)?, rates(false)?);
    assert!(rates(true)?[3] < 0.1 * 0.125 * 0.5, "the plateau has counted across the save");
    let mut two = Scheduler::new(ConstantLr::new(), &mut Sgd::new([], 0.1).group([], Sgd::options()));
    assert!(two.load_state_dict(&Scheduler::new(ConstantLr::new(), &mut Sgd::new([], 0.1)).state_dict()?).is_err());

    let mut scaler = GradScaler::new(8.0, 2)?;
    let x = parameter()?;
    x.set_grad(Some(x.zeros_like()?))?;
    assert!(scaler.step(&mut Sgd::new([x.clone()], 0.1))?);
    let mut other = GradScaler::new(2.0, 2)?;
    other.load_state_dict(&scaler.state_dict()?)?;
    assert!(other.step(&mut Sgd::new([x], 0.1))?);
    assert_eq!(other.get_scale(), 16.0);
    assert!(other.load_state_dict(&crate::nn::StateDict::new()).is_err());

    let model = crate::nn::Linear::new(2, 1, crate::Device::Cpu)?;
    let mut average = Average::swa(&model)?;
    crate::nn::init::constant(&model.weight, 1.0)?;
    average.update(&model)?;
    let mut resumed = Average::swa(&model)?;
    resumed.load_state_dict(&average.state_dict()?)?;
    crate::nn::init::constant(&model.weight, -3.0)?;
    average.update(&model)?;
    resumed.update(&model)?;
    assert_close(&resumed.averages()["weight"], average.averages()["weight"].clone());
    assert!(resumed
        .load_state_dict(&Average::swa(&crate::nn::Linear::new(3, 1, crate::Device::Cpu)?)?.state_dict()?)
        .is_err());
    Ok(())
}

#[test]
fn steps_with_gradients_that_are_not_finite_are_left_out() -> Result<()> {
    let x = parameter()?;
    let mut sgd = Sgd::new([x.clone()], 0.1);
    let mut scaler = GradScaler::new(8.0, 1)?;
    x.set_grad(Some(tensor([[1.0, f64::INFINITY], [0.0, 0.0]])?))?;
    assert!(!scaler.step(&mut sgd)?);
    assert_eq!(scaler.get_scale(), 4.0);
    assert_close(x.detach()?, [[1.0, -2.0], [0.5, 3.0]]);
    x.set_grad(Some(tensor([[4.0, 0.0], [0.0, 0.0]])?))?;
    scaler.unscale(&sgd)?;
    assert!(scaler.unscale(&sgd).is_err() && scaler.step(&mut sgd)?);
    assert_close(x.detach()?, [[0.9, -2.0], [0.5, 3.0]]);
    assert_eq!(scaler.get_scale(), 8.0);
    assert!(GradScaler::new(0.0, 1).is_err());
    Ok(())
}
