//! What the crate's page promises, written as programs would, with `lucid::prelude` alone: operators, indices, macros, every optimizer and
//! schedule, groups, scalers, averages, data, files, functions of functions.

// A test may panic, and its lengths are its own.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::disallowed_methods)]

use lucid::data::{random_split, FnDataset, TensorDataset};
use lucid::optim::*;
use lucid::prelude::*;

#[derive(Module)]
struct Net {
    hidden: nn::Linear,
    norm: nn::BatchNorm1d,
    out: nn::Linear,
}

impl Net {
    fn new(on: Device) -> Result<Net> {
        let options = nn::Linear::options(8, 1).bias(false);
        Ok(Net { hidden: nn::Linear::new(4, 8, on)?, norm: nn::BatchNorm1d::new(8, on)?, out: options.build(on)? })
    }
}

impl Forward for Net {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.out.forward(&self.norm.forward(&self.hidden.forward(x)?)?.relu()?)
    }
}

fn loss(model: &Net) -> Result<Tensor> {
    let x = Tensor::arange(0, 32)?.reshape((8usize, -1))?.cast(DType::F32)?;
    let x = ((x - 16)? / 8)?;
    mse_loss(&model.forward(&x)?, &x.sum_keepdim(1)?, Reduction::Mean)
}

#[test]
fn numbers_stand_on_either_side() -> Result<()> {
    let x = tensor!([1.0, 2.0])?;
    assert_close((2.0 * &x)?, [2.0, 4.0]);
    assert_close((1 - &x)?, [0.0, -1.0]);
    assert_close((2 / x.clone())?, [2.0, 1.0]);
    assert_close(((&x * 3)? - 1i64)?, [2.0, 5.0]);
    let n = tensor!([1, 2])?;
    assert_eq!((2 * &n)?.dtype(), DType::I64);
    assert_eq!((2.0 * &n)?.dtype(), DType::F32);
    assert_eq!((1 + &tensor!([true])?)?.to_vec::<i64>()?, [2]);
    let half = x.cast(DType::F16)?;
    assert_eq!((2 * &half)?.dtype(), DType::F16);
    assert_eq!((-&x)?.to_vec::<f32>()?, [-1.0, -2.0]);
    Ok(())
}

/// The shortest way is for few float32 side by side; what is next to it goes another and must give the same.
#[test]
fn arithmetic_of_few_is_that_of_many() -> Result<()> {
    let (many, three) = (Tensor::arange(1, 65)?.cast(DType::F32)?, Tensor::full([64], 3.0)?);
    type Op = fn(&Tensor, &Tensor) -> Result<Tensor>;
    let ops: [Op; 4] = [|a, b| a + b, |a, b| a - b, |a, b| a * b, |a, b| a / b];
    for op in ops {
        let whole = op(&many, &three)?.to_vec::<f32>()?;
        for n in [0, 1, 4, 15, 16, 17] {
            let (a, b) = (many.i(7..7 + n)?, three.i(..n)?);
            assert_eq!(op(&a, &b)?.to_vec::<f32>()?, whole[7..7 + n]);
            let followed = a.copy()?.requires_grad_(true)?;
            let y = op(&followed, &b)?;
            assert!(y.requires_grad());
            assert_eq!(y.detach()?.to_vec::<f32>()?, whole[7..7 + n]);
        }
        let square = many.i(..16)?.reshape([4, 4])?;
        let transposed = op(&square.t()?, &square)?.t()?.to_vec::<f32>()?;
        assert_eq!(transposed, op(&square, &square.t()?.contiguous()?)?.to_vec::<f32>()?);
        assert_eq!(op(&square, &square.i(0)?)?.shape(), [4, 4]);
        assert!(op(&square, &three.i(..3)?).is_err());
    }
    let x = many.i(..4)?.copy()?;
    x.add_(&three.i(..4)?, 1)?;
    assert_close(&x, [4.0, 5.0, 6.0, 7.0]);
    lucid::profile::start();
    // More than other tests add meanwhile.
    for _ in 0..10_000 {
        assert_eq!((&x + &x)?.numel(), 4);
    }
    lucid::profile::stop();
    assert!(lucid::profile::report().ops["add"].calls >= 10_000);
    Ok(())
}

#[test]
fn sizes_are_of_any_integer_type() -> Result<()> {
    let (n, wide, dim) = (3usize, 2i64, 1u32);
    let x = Tensor::arange(0usize, 6)?.reshape((n, wide))?;
    assert_eq!(x.size(dim)?, 2);
    assert_eq!(x.size(-1)?, 2);
    let lent = [wide, wide];
    let four = [1f32, 2.0, 3.0, 4.0];
    for made in [
        Tensor::from_slice(&four, (2u32, wide), Device::Cpu)?,
        Tensor::from_slice(&four, &lent[..], Device::Cpu)?,
        Tensor::from_slice(&four, [2, 2], Device::Cpu)?,
        Tensor::from_vec(four.to_vec(), &[2usize, 2], Device::Cpu)?,
        Tensor::from_bytes(&four.map(f32::to_ne_bytes).concat(), dims![2, 2], DType::F32, Device::Cpu)?,
    ] {
        assert_close(made, [[1.0, 2.0], [3.0, 4.0]]);
    }
    assert_eq!(Tensor::from_slice(&[1f32], (), Device::Cpu)?.ndim(), 0);
    let refused = |shape: [i64; 2]| Tensor::from_slice(&four, shape, Device::Cpu).unwrap_err().to_string();
    assert!(refused([-2, -2]).contains("negative dimension -2"), "{}", refused([-2, -2]));
    assert!(refused([3, 2]).contains("4 elements do not make a tensor of shape [3, 2]"), "{}", refused([3, 2]));
    assert!(refused([i64::MAX, 2]).contains("more elements than can be addressed"), "{}", refused([i64::MAX, 2]));
    assert!(x.size(2usize).is_err() && x.size(u64::MAX).is_err());
    assert_eq!(x.i((.., -1, None))?.to_vec::<i64>()?, [1, 3, 5]);
    assert_eq!(x.i((ellipsis(), 0..1))?.shape(), [3, 1]);
    assert_eq!(Tensor::randint(0u32, n, dims![n, 2])?.shape(), [3, 2]);
    let softmax = nn::Softmax::new().dim(0usize);
    assert_close(softmax.forward(&x.cast(DType::F32)?)?.sum_over(0)?, [1.0, 1.0]);
    assert_eq!(nn::Flatten::new(0usize, -1i64).forward(&x)?.shape(), [6]);
    assert_eq!(nn::Unflatten::new(0i32, [n, 1])?.forward(&x)?.shape(), [3, 1, 2]);
    assert!(nn::Unflatten::new(0, ()).is_err());
    let rates = |schedule: &dyn Schedule| (0..4).map(|t| schedule.rate(t, 1.0)).collect::<Vec<_>>();
    assert_eq!(rates(&StepLr::new(2usize).gamma(0.5)), [1.0, 1.0, 0.5, 0.5]);
    assert_eq!(rates(&MultiStepLr::new([1usize, 3]).gamma(0.5)), [1.0, 0.5, 0.5, 0.25]);
    Ok(())
}

fn learns(name: &str, make: impl FnOnce(Vec<Tensor>) -> Box<dyn Optimizer>) -> Result<()> {
    lucid::manual_seed(1);
    let model = Net::new(Device::Cpu)?;
    let mut optimizer = make(model.parameters());
    let first = loss(&model)?.item_f64()?;
    for _ in 0..40 {
        let loss = loss(&model)?;
        optimizer.zero_grad()?;
        loss.backward()?;
        clip_grad_norm(&model.parameters(), 10.0, 2.0)?;
        optimizer.step()?;
    }
    let last = loss(&model)?.item_f64()?;
    assert!(last < first, "{name}: {first} to {last}");
    // The run goes on from a file.
    let state = optimizer.state_dict()?;
    let folder = tempfile::tempdir().unwrap();
    checkpoint::save(folder.path().join("run.safetensors"), &state)?;
    optimizer.load_state_dict(&checkpoint::load(folder.path().join("run.safetensors"), Device::Cpu)?)?;
    let mut wrong = state.clone();
    wrong.insert("nothing".into(), tensor!([1.0])?);
    assert!(optimizer.load_state_dict(&wrong).is_err(), "{name}");
    Ok(())
}

#[test]
fn every_optimizer_learns_and_resumes() -> Result<()> {
    learns("sgd", |p| Box::new(Sgd::options().lr(0.01).momentum(0.9).nesterov(true).build(p)))?;
    learns("adam", |p| Box::new(Adam::new(p, 0.01)))?;
    learns("adamw", |p| Box::new(AdamW::new(p, 0.01)))?;
    learns("sparse adam", |p| Box::new(SparseAdam::new(p, 0.01)))?;
    learns("adagrad", |p| Box::new(Adagrad::new(p, 0.05)))?;
    learns("adadelta", |p| Box::new(Adadelta::new(p, 1.0)))?;
    learns("adamax", |p| Box::new(Adamax::new(p, 0.01)))?;
    learns("nadam", |p| Box::new(NAdam::new(p, 0.01)))?;
    learns("radam", |p| Box::new(RAdam::new(p, 0.01)))?;
    learns("rmsprop", |p| Box::new(RmsProp::new(p, 0.01)))?;
    learns("rprop", |p| Box::new(Rprop::new(p, 0.01)))?;
    learns("asgd", |p| Box::new(Asgd::new(p, 0.01)))?;
    learns("lion", |p| Box::new(Lion::new(p, 0.005)))?;
    learns("adafactor", |p| Box::new(Adafactor::new(p, 0.02)))?;
    // Of matrices alone; the rest is another optimizer's.
    lucid::manual_seed(1);
    let model = Net::new(Device::Cpu)?;
    let (matrices, rest): (Vec<Tensor>, Vec<Tensor>) = model.parameters().into_iter().partition(|p| p.ndim() == 2);
    assert!(Muon::new(rest.clone(), 0.02).step().is_ok(), "nothing to do without gradients");
    let (mut muon, mut adam) = (Muon::new(matrices, 0.02), Adam::new(rest, 0.02));
    let first = loss(&model)?.item_f64()?;
    for _ in 0..30 {
        let loss = loss(&model)?;
        muon.zero_grad()?;
        adam.zero_grad()?;
        loss.backward()?;
        muon.step()?;
        adam.step()?;
    }
    assert!(loss(&model)?.item_f64()? < first);
    Ok(())
}

#[test]
fn lbfgs_goes_on_as_it_would_have() -> Result<()> {
    let rosenbrock = |w: &Tensor| -> Result<Tensor> {
        let (x, y) = (w.i(0)?, w.i(1)?);
        (1 - &x)?.square()? + &(100 * &(y - x.square()?)?.square()?)?
    };
    let begin = || tensor!([-1.5, 2.0])?.requires_grad_(true);
    let options = |w: &Tensor| {
        let mut made = Lbfgs::new([w.clone()], 1.0);
        (made.max_iter, made.line_search) = (4, LineSearch::StrongWolfe);
        made
    };
    let w = begin()?;
    let mut whole = options(&w);
    for _ in 0..2 {
        whole.step(|| rosenbrock(&w))?;
    }
    let state = whole.state_dict()?;
    let middle = w.detach()?.copy()?;
    let other = middle.copy()?.requires_grad_(true)?;
    let mut resumed = Lbfgs::new([other.clone()], 0.5);
    resumed.load_state_dict(&state)?;
    for _ in 0..3 {
        whole.step(|| rosenbrock(&w))?;
        resumed.step(|| rosenbrock(&other))?;
    }
    assert_eq!(w.to_vec::<f32>()?, other.to_vec::<f32>()?);
    let fresh = middle.requires_grad_(true)?;
    let mut without = options(&fresh);
    (0..3).try_for_each(|_| without.step(|| rosenbrock(&fresh)).map(drop))?;
    assert_ne!(fresh.to_vec::<f32>()?, other.to_vec::<f32>()?, "the history counts");
    assert!(Optimizer::step(&mut whole).unwrap_err().to_string().contains("closure"));
    let mut schedule = Scheduler::new(StepLr::new(1).gamma(0.5), &mut resumed);
    schedule.step(&mut resumed);
    assert_eq!(resumed.lr, 0.5);
    for damaged in ["state.0.old_dirs.0", "state.0.t", "param_groups.0.lr"] {
        let mut state = whole.state_dict()?;
        assert!(state.remove(damaged).is_some(), "{damaged}");
        assert!(resumed.load_state_dict(&state).is_err(), "{damaged}");
    }
    let mut state = whole.state_dict()?;
    state.insert("state.0.d".into(), tensor!([1.0])?);
    assert!(resumed.load_state_dict(&state).is_err());
    Ok(())
}

#[test]
fn every_schedule_sets_rates_and_resumes() -> Result<()> {
    let all: Vec<Box<dyn Schedule>> = vec![
        Box::new(StepLr::new(2)),
        Box::new(MultiStepLr::new(vec![2, 5])),
        Box::new(ConstantLr::new().factor(0.5).total_iters(3)),
        Box::new(LinearLr::new()),
        Box::new(ExponentialLr::new(0.9)),
        Box::new(PolynomialLr::new().power(2.0)),
        Box::new(CosineAnnealingLr::new(10)),
        Box::new(CosineAnnealingWarmRestarts::new(3).t_mult(2)),
        Box::new(CyclicLr::new(0.01, 0.1).step_size_up(4).mode(Cycle::Triangular2)),
        Box::new(OneCycleLr::new(0.1, 20).three_phase(true).anneal(Anneal::Linear)),
        Box::new(NoamLr::new(64, 5)),
        Box::new(SwaLr::new(0.05)),
        Box::new(MultiplicativeLr(|_| 0.95)),
        Box::new(|t: u64| 1.0 / (1.0 + t as f64)),
        Box::new(SequentialLr::new(vec![Box::new(LinearLr::new()), Box::new(ExponentialLr::new(0.9))], [5usize])?),
        Box::new(ChainedLr(vec![Box::new(ConstantLr::new()), Box::new(ExponentialLr::new(0.9))])),
    ];
    for (i, schedule) in all.iter().enumerate() {
        let rates: Vec<f64> = (0..24).map(|t| schedule.rate(t, 0.1)).collect();
        assert!(rates.iter().all(|r| r.is_finite() && *r >= 0.0), "{i}: {rates:?}");
        assert!(rates.windows(2).any(|w| w[0] != w[1]), "{i}: {rates:?}");
    }
    let w = tensor!([1.0])?.requires_grad_(true)?;
    let mut sgd = Sgd::options().lr(0.1).build([w.clone()]).group([w.copy()?], Sgd::options().lr(1.0));
    let mut schedule = Scheduler::new(ExponentialLr::new(0.5), &mut sgd);
    (0..3).for_each(|_| schedule.step(&mut sgd));
    assert_eq!(sgd.rates(), [0.1 * 0.125, 0.125]);
    let saved = schedule.state_dict()?;
    let mut resumed = Scheduler::new(ExponentialLr::new(0.5), &mut sgd);
    resumed.load_state_dict(&saved)?;
    resumed.step(&mut sgd);
    assert_eq!((resumed.last_step(), sgd.rates()[1]), (4, 0.0625));
    let mut plateau = ReduceLrOnPlateau::new().patience(1usize).factor(0.5).better(Better::More).cooldown(0);
    for accuracy in [0.5, 0.4, 0.3, 0.2] {
        plateau.step(accuracy, &mut sgd);
    }
    assert_eq!(sgd.rates()[1], 0.03125);
    Ok(())
}

#[test]
fn scalers_and_averages() -> Result<()> {
    let model = Net::new(Device::Cpu)?;
    let mut sgd = Sgd::new(model.parameters(), 0.01);
    let mut scaler = GradScaler::new(1024.0, 1usize)?.factors(4.0, 0.25)?;
    assert!(GradScaler::default().factors(1.0, 0.5).is_err() && GradScaler::new(f64::NAN, 1).is_err());
    scaler.scale(&loss(&model)?)?.backward()?;
    assert!(scaler.step(&mut sgd)? && scaler.get_scale() == 4096.0);
    model.parameters()[0].set_grad(Some(model.parameters()[0].detach()?.zeros_like()?.add(f64::INFINITY, 1)?))?;
    assert!(!scaler.step(&mut sgd)? && scaler.get_scale() == 1024.0);
    for mut average in [Average::ema(&model, 0.9)?, Average::swa(&model)?] {
        let before = average.averages()["hidden.weight"].to_vec::<f32>()?;
        no_grad(|| model.hidden.weight.add_(1.0, 1))?;
        average.update(&model)?;
        assert_ne!(average.averages()["hidden.weight"].to_vec::<f32>()?, before);
        let saved = average.state_dict()?;
        average.load_state_dict(&saved)?;
        average.copy_to(&model)?;
    }
    Ok(())
}

#[test]
fn models_move_and_list_what_they_hold() -> Result<()> {
    let mut model = Net::new(Device::Cpu)?;
    let names: Vec<String> = model.named_parameters().into_iter().map(|(name, _)| name.to_string()).collect();
    assert_eq!(names, ["hidden.weight", "hidden.bias", "norm.weight", "norm.bias", "out.weight"]);
    assert!(model.state_dict()?.contains_key("norm.running_mean"));
    model.eval();
    let x = Tensor::randn((2, 4))?;
    let y = model.forward(&x)?;
    assert_eq!(model.forward(&x)?.to_vec::<f32>()?, y.to_vec::<f32>()?);
    model.train();
    let other = Net::new(Device::Cpu)?;
    other.load_state_dict(&model.state_dict()?)?;
    let refused = model.forward(&Tensor::randn((2, 5))?).unwrap_err();
    assert!(refused.to_string().starts_with("hidden: linear"), "{refused}");
    fn shared<T: Send + Sync>() {}
    shared::<(Tensor, Net, lucid::Error, nn::Sequential, Adam, Lbfgs, Scheduler<SequentialLr>, GradScaler, Average)>();
    Ok(())
}

#[test]
fn data_in_batches() -> Result<()> {
    let set = TensorDataset::new([Tensor::arange(0, 10)?, Tensor::randn((10, 3))?])?;
    assert_eq!(set.len(), 10);
    let seen = |workers: usize| -> Result<Vec<i64>> {
        let set = FnDataset::new(10, |i| Ok([Tensor::full((), i as i64)?]));
        let loader = DataLoader::new(set, 4).shuffle(7).workers(workers).prefetch(2);
        let batches = loader.iter()?.collect::<Result<Vec<_>>>()?;
        assert_eq!((loader.len(), batches.len()), (3, 3));
        Ok(batches.iter().map(|[x]| x.to_vec::<i64>()).collect::<Result<Vec<_>>>()?.concat())
    };
    let order = seen(0)?;
    assert_eq!(seen(2)?, order, "threads keep the order");
    assert_ne!(order, (0..10).collect::<Vec<_>>());
    let parts = random_split(set, &[7, 3], 0)?;
    assert_eq!(parts.iter().map(Dataset::len).collect::<Vec<_>>(), [7, 3]);
    let joined = DataLoader::new(FnDataset::new(3, |i| Ok([tensor!([i as i64])?])), 3)
        .collate(|samples: Vec<[Tensor; 1]>| Ok([lucid::ops::index::cat(&samples.concat(), 0)?]));
    assert_eq!(joined.iter()?.next().unwrap()?[0].to_vec::<i64>()?, [0, 1, 2]);
    let failing = DataLoader::new(
        FnDataset::new(3, |_| -> Result<[Tensor; 1]> { Err(lucid::Error::value("read", "damaged")) }),
        2,
    );
    assert!(failing.workers(1).iter()?.any(|batch| batch.is_err()));
    Ok(())
}

#[test]
fn functions_of_functions() -> Result<()> {
    let x = tensor!([1.0, 2.0, 3.0])?;
    assert_close(&func::grad(|x| x[0].square()?.sum_all(), std::slice::from_ref(&x))?[0], [2.0, 4.0, 6.0]);
    assert_close(func::hessian(|x| x.square()?.sum_all(), &x)?.diagonal(0, 0, 1)?, [2.0, 2.0, 2.0]);
    assert_close(func::jacobian(|x| x * 2.0, &x)?.diagonal(0, 0, 1)?, [2.0, 2.0, 2.0]);
    let (_, pushed) = func::jvp(|x| Ok(vec![x[0].square()?]), std::slice::from_ref(&x), &[Tensor::ones(3)?])?;
    assert_close(&pushed[0], [2.0, 4.0, 6.0]);
    let (_, back) = func::vjp(|x| Ok(vec![x[0].square()?]), std::slice::from_ref(&x))?;
    assert_close(&back.call(&[Tensor::ones(3)?])?[0], [2.0, 4.0, 6.0]);
    let rows = Tensor::ones((4, 3))?;
    assert_eq!(func::vmap(|x| Ok(vec![x[0].sum_all()?]), &[rows], &[Some(0)])?[0].shape(), [4]);
    assert!(func::grad(|x| Ok(x[0].clone()), std::slice::from_ref(&x)).is_err());
    assert_eq!(tensor!([[1.0, 2.5], [3.0, 4.0]])?.to_string(), "tensor([[1.0000, 2.5000],\n        [3.0000, 4.0000]])");
    assert!(format!("{x:?}").contains('3'));
    Ok(())
}
