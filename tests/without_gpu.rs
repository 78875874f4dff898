//! The crate without its feature `gpu` (`make test-features`): the CPU trains, and the GPU device is an error that says why.
#![cfg(not(feature = "gpu"))]
// A test may panic, and its lengths are its own.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::disallowed_methods)]

use lucid::prelude::*;

#[test]
fn the_cpu_trains_and_the_gpu_says_why_it_does_not() -> Result<()> {
    lucid::manual_seed(0);
    let x = Tensor::randn(dims![32, 3])?;
    let y = x.matmul(&tensor!([[1.0], [-2.0], [0.5]])?)?;
    let model = nn::Linear::options(3, 1).bias(false).build(Device::Cpu)?;
    let mut sgd = optim::Sgd::new(model.parameters(), 0.3);
    for _ in 0..100 {
        let loss = mse_loss(&model.forward(&x)?, &y, Reduction::Mean)?;
        loss.eval()?;
        sgd.zero_grad()?;
        loss.backward()?;
        sgd.step()?;
    }
    let away = (&model.weight - tensor!([[1.0, -2.0, 0.5]])?)?.abs()?.max_all()?.item_f64()?;
    assert!(away < 1e-3, "{away}");
    for error in [Device::parse("gpu").map(drop).unwrap_err(), x.to_device(Device::Gpu).map(drop).unwrap_err()] {
        assert!(error.to_string().contains("without the feature `gpu`"), "{error}");
    }
    Ok(())
}
