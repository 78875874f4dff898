//! Fits a line by gradient descent on the device named in the first argument (`cpu` by default), then saves it and reads
//! it back. The whole of what embedding takes is this file, `Cargo.toml` and `build.rs`.
#![deny(unsafe_code)]

use lucid::nn::{Linear, Module};
use lucid::ops::{create, loss::mse_loss};
use lucid::optim::{Optimizer, Sgd};
use lucid::{Device, Result};

fn run(device: Device) -> Result<()> {
    lucid::manual_seed(0);
    let x = create::linspace(-1, 1, 64, None, Some(device))?.unsqueeze(1)?;
    let y = ((&x * 3.0)? - 0.5)?;
    let line = Linear::new(1, 1, device)?;
    let mut sgd = Sgd::new(line.parameters(), 0.3);
    for step in 0..=100 {
        let loss = mse_loss(&line.forward(&x)?, &y, "mean")?;
        loss.eval()?;
        if step % 50 == 0 {
            println!("step {step:3}: loss {:.6}", loss.item_f64()?);
        }
        sgd.zero_grad()?;
        loss.backward()?;
        sgd.step()?;
    }
    let path = std::env::temp_dir().join(format!("lucid-embed-{}.safetensors", std::process::id()));
    line.save(&path)?;
    let copy = Linear::new(1, 1, device)?;
    copy.load(&path)?;
    let slope = copy.weight.item_f64()?;
    println!("on {device}: slope {slope:.3} of 3, read back from {}", path.display());
    std::fs::remove_file(&path).ok();
    Ok(())
}

fn main() {
    let name = std::env::args().nth(1).unwrap_or("cpu".into());
    let result = Device::parse(&name).and_then(|parsed| run(parsed.device));
    if let Err(error) = result {
        eprintln!("error: {error}");
        std::process::exit(1);
    }
}
