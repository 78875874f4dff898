//! The Rust examples, each for a few steps.
#![allow(clippy::disallowed_methods)]

#[path = "../examples/rust/export.rs"]
mod export;
#[path = "../examples/rust/gradients.rs"]
mod gradients;
#[path = "../examples/rust/lstm.rs"]
mod lstm;
#[path = "../examples/rust/mnist.rs"]
mod mnist;
#[path = "../examples/rust/resnet.rs"]
mod resnet;
#[path = "../examples/rust/serve.rs"]
mod serve;
#[path = "../examples/rust/transformer.rs"]
mod transformer;
#[path = "../examples/rust/vae.rs"]
mod vae;

use lucid::prelude::*;

#[test]
fn each_learns() -> Result<()> {
    let on = Device::Cpu;
    assert!(mnist::run(on, 300)? > 0.9);
    assert!(resnet::run(on, 150)? > 0.9);
    assert!(lstm::run(on, 600)? < 0.05);
    let (loss, text) = transformer::run(on, 400)?;
    assert!(loss < 2.5 && text.starts_with("Permission is "), "{loss} {text}");
    assert!(vae::run(on, 400)? < 20.0);
    gradients::run(on)?;
    export::run(on, None)?;
    for on in [on, Device::Gpu] {
        let (outputs, refused) = serve::run(on, None)?;
        let right = [true, false, true, false].iter().zip(&outputs).all(|(&differ, p)| (*p > 0.5) == differ);
        assert!(outputs.len() == 4 && right, "{outputs:?}");
        assert!(refused.starts_with("0: linear: "), "{refused}");
    }
    both_devices_agree()
}

/// Part of the one test: examples seed the generator, which the threads of several tests would share.
fn both_devices_agree() -> Result<()> {
    let near = |a: f64, b: f64| assert!((a - b).abs() <= 0.02 * a.abs().max(b.abs()), "{a} on the cpu, {b} on the gpu");
    near(lstm::run(Device::Cpu, 8)?, lstm::run(Device::Gpu, 8)?);
    near(transformer::run(Device::Cpu, 4)?.0, transformer::run(Device::Gpu, 4)?.0);
    near(vae::run(Device::Cpu, 20)?, vae::run(Device::Gpu, 20)?);
    mnist::run(Device::Gpu, 4)?;
    gradients::run(Device::Gpu)?;
    resnet::run(Device::Gpu, 3)?;
    export::run(Device::Gpu, None)?;
    Ok(())
}
