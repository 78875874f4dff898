//! Fits a line by gradient descent on the device named in the first argument (`cpu` by default), then saves it and reads
//! it back. The whole of what embedding takes is this file, `Cargo.toml` and `build.rs`.
#![deny(unsafe_code)]

use lucid::ops::create;
use lucid::prelude::*;

fn run(device: Device) -> Result<()> {
    lucid::manual_seed(0);
    let x = create::linspace(-1, 1, 64, None, Some(device))?.unsqueeze(1)?;
    let y = ((&x * 3.0)? - 0.5)?;
    let line = nn::Linear::new(1, 1, device)?;
    let mut sgd = optim::Sgd::new(line.parameters(), 0.3);
    for step in 0..=100 {
        let loss = nn::MseLoss::new().forward(&line.forward(&x)?, &y)?;
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
    let copy = nn::Linear::new(1, 1, device)?;
    copy.load(&path)?;
    let slope = copy.weight.item_f64()?;
    println!("on {device}: slope {slope:.3} of 3, read back from {}", path.display());
    std::fs::remove_file(&path).ok();
    Ok(())
}

fn main() {
    let name = std::env::args().nth(1).unwrap_or("cpu".into());
    let result = Device::parse(&name).and_then(|parsed| {
        if let Some(warning) = &parsed.warning {
            eprintln!("warning: {warning}");
        }
        run(parsed.device)
    });
    if let Err(error) = result {
        eprintln!("error: {error}");
        std::process::exit(1);
    }
}
