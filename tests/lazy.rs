//! The GPU device's laziness, in counts: what a LeNet forward records, when evaluation happens, and that memory stays flat.

mod common;
use common::{counting, resident_bytes, values};
use lucid::nn::{Conv2d, Forward, Linear, MaxPool2d, Module};
use lucid::{lazy, no_grad, profile, Device, Result, Tensor};
use std::sync::{Mutex, MutexGuard};

/// Counts and limits belong to the process: these tests take turns.
static TURN: Mutex<()> = Mutex::new(());
fn turn() -> MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(|e| e.into_inner())
}

struct LeNet {
    conv1: Conv2d,
    conv2: Conv2d,
    fc: [Linear; 3],
}

impl LeNet {
    fn new(device: Device) -> Result<LeNet> {
        lucid::manual_seed(3);
        let fc = [Linear::new(400, 120, device)?, Linear::new(120, 84, device)?, Linear::new(84, 10, device)?];
        let conv1 = Conv2d::options(1, 6, 5).padding(2).build(device)?;
        Ok(LeNet { conv1, conv2: Conv2d::new(6, 16, 5, device)?, fc })
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let pool = MaxPool2d::new(2);
        let x = pool.forward(&self.conv1.forward(x)?.relu()?)?;
        let x = pool.forward(&self.conv2.forward(&x)?.relu()?)?.flatten(1, -1)?;
        let x = self.fc[0].forward(&x)?.relu()?;
        self.fc[2].forward(&self.fc[1].forward(&x)?.relu()?)
    }
}

fn image(batch: usize) -> Result<Tensor> {
    lucid::ops::random::rand(&[batch as isize, 1, 28, 28], None, None, Some(Device::Gpu))
}

#[test]
fn a_lenet_forward_records_no_more_than_hand_written_mlx() -> Result<()> {
    let _turn = turn();
    let model = LeNet::new(Device::Gpu)?;
    let params: Vec<Tensor> = [&model.conv1 as &dyn Module, &model.conv2, &model.fc[0], &model.fc[1], &model.fc[2]]
        .iter()
        .flat_map(|m| m.parameters())
        .collect();
    lucid::eval(&params.iter().collect::<Vec<_>>(), true)?;
    // What functional MLX in NHWC records for the same network: bench/lenet_overhead.py counts it.
    const RAW_MLX: usize = 30;
    for batch in [64, 1] {
        let x = image(batch)?;
        x.eval()?;
        // The first forward also brings the weights into MLX's order and broadcasts the constants, once.
        no_grad(|| model.forward(&x))?.eval()?;
        profile::start();
        let y = no_grad(|| model.forward(&x))?;
        profile::stop();
        let counts = profile::report();
        let recorded: usize = lazy::primitives(&[&y])?.iter().map(|(_, n)| n).sum();
        assert!(recorded <= RAW_MLX, "batch {batch}: {recorded} primitives: {:?}", lazy::primitives(&[&y])?);
        assert_eq!(counts.total.contiguous, 0, "{counts:?}");
        assert_eq!(counts.total.evaluations, 0, "{counts:?}");
    }
    Ok(())
}

#[test]
fn both_devices_and_both_lowerings_agree_on_lenet() -> Result<()> {
    let _turn = turn();
    let (gpu, cpu) = (LeNet::new(Device::Gpu)?, LeNet::new(Device::Cpu)?);
    let x = image(4)?;
    let reference = values(&cpu.forward(&x.to_device(Device::Cpu)?)?)?;
    for lowering in [true, false] {
        lazy::set_lowering(lowering);
        let got = values(&gpu.forward(&x)?);
        lazy::set_lowering(true);
        for (a, b) in got?.iter().zip(&reference) {
            assert!((a - b).abs() < 1e-4, "{a} on the gpu, {b} on the cpu");
        }
    }
    Ok(())
}

#[test]
fn building_evaluates_nothing_and_reading_does() -> Result<()> {
    let _turn = turn();
    let x = counting(&[4], Device::Gpu)?;
    profile::start();
    let y = (&x.exp()? + 1.0)?;
    assert_eq!(profile::report().total.evaluations, 0);
    y.eval()?;
    let once = profile::report();
    assert_eq!((once.total.evaluations, once.ops["exp"].calls), (1, 1));
    profile::stop();
    Ok(())
}

#[test]
fn ten_thousand_steps_that_never_evaluate_keep_memory_flat() -> Result<()> {
    let _turn = turn();
    let w = counting(&[64, 64], Device::Gpu)?;
    let mut x = counting(&[64, 64], Device::Gpu)?;
    let step = |x: &Tensor| -> Result<Tensor> { (x * 0.5)?.maximum(&w)? + &(&w * 0.25)? };
    for _ in 0..1000 {
        x = step(&x)?;
    }
    let (warm_tensors, warm) = (lucid::memory_stats(Device::Gpu).current, resident_bytes());
    for _ in 0..10_000 {
        x = step(&x)?;
    }
    let grown = lucid::memory_stats(Device::Gpu).current.saturating_sub(warm_tensors);
    // 10,000 steps of three 16 KB results are 480 MB when kept.
    assert!(grown < 64 << 20, "tensor memory grew by {grown} bytes");
    if let (Some(before), Some(after)) = (warm, resident_bytes()) {
        assert!(after.saturating_sub(before) < 128 << 20, "resident memory went from {before} to {after}");
    }
    assert!(values(&x)?.iter().all(|v| v.is_finite()));
    Ok(())
}

#[test]
fn a_seed_gives_the_same_numbers_on_both_devices() -> Result<()> {
    let _turn = turn();
    let draw = |device| -> Result<_> {
        lucid::manual_seed(42);
        let u = lucid::ops::random::rand(&[3, 37], None, None, Some(device))?;
        let i = lucid::ops::random::randint(-5, 1000, &[101], None, None, Some(device))?;
        let p = lucid::ops::random::randperm(50, None, None, Some(device))?;
        let n = lucid::ops::random::randn(&[257], None, None, Some(device))?;
        Ok((u.to_vec::<f32>()?, i.to_vec::<i64>()?, p.to_vec::<i64>()?, n.to_vec::<f32>()?))
    };
    let (cpu, gpu) = (draw(Device::Cpu)?, draw(Device::Gpu)?);
    assert_eq!((&cpu.0, &cpu.1, &cpu.2), (&gpu.0, &gpu.1, &gpu.2));
    assert!(cpu.3.iter().zip(&gpu.3).all(|(a, b)| (a - b).abs() <= 2e-6 * a.abs().max(1.0)));
    assert!(cpu.0.iter().all(|v| (0.0..1.0).contains(v)));
    Ok(())
}
