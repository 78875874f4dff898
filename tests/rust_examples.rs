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
#[path = "../examples/rust/transformer.rs"]
mod transformer;
#[path = "../examples/rust/vae.rs"]
mod vae;

use lucid::prelude::*;

#[test]
fn each_runs_and_learns_on_both_devices() -> Result<()> {
    for on in [Device::Cpu, Device::Gpu] {
        assert!(mnist::run(on, 60)? > 0.5);
        assert!(lstm::run(on, 60)? < 0.2);
        let (loss, text) = transformer::run(on, 25)?;
        assert!(loss < 3.5 && text.starts_with("Permission is "), "{loss} {text}");
        assert!(vae::run(on, 60)? < 40.0);
        gradients::run(on)?;
        export::run(on, None)?;
    }
    Ok(())
}
