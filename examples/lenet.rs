//! Trains LeNet-5 on the digits that `examples/digits.py` writes, and prints loss and accuracy per epoch.
//!
//! `cargo run --release --example lenet -- [--device cpu|gpu] [--epochs N] [--json] [--data FILE]`

use lucid::prelude::*;
use std::time::Instant;

#[derive(Module)]
struct LeNet {
    conv1: nn::Conv2d,
    conv2: nn::Conv2d,
    fc1: nn::Linear,
    fc2: nn::Linear,
    fc3: nn::Linear,
}

impl LeNet {
    fn new(device: Device) -> Result<LeNet> {
        Ok(LeNet {
            conv1: nn::Conv2d::options(1, 6, 5).padding(2).build(device)?,
            conv2: nn::Conv2d::new(6, 16, 5, device)?,
            fc1: nn::Linear::new(400, 120, device)?,
            fc2: nn::Linear::new(120, 84, device)?,
            fc3: nn::Linear::new(84, 10, device)?,
        })
    }
}

impl Forward for LeNet {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let pool = nn::MaxPool2d::new(2);
        let x = pool.forward(&self.conv1.forward(x)?.relu()?)?;
        let x = pool.forward(&self.conv2.forward(&x)?.relu()?)?.flatten(1, -1)?;
        let x = self.fc1.forward(&x)?.relu()?;
        let x = self.fc2.forward(&x)?.relu()?;
        self.fc3.forward(&x)
    }
}

struct Args {
    device: Device,
    epochs: usize,
    json: bool,
    data: String,
}

fn args() -> std::result::Result<Args, String> {
    let mut args = Args { device: Device::Cpu, epochs: 8, json: false, data: "target/digits.safetensors".into() };
    let mut given = std::env::args().skip(1);
    while let Some(arg) = given.next() {
        let mut value = || given.next().ok_or(format!("{arg} needs a value"));
        match arg.as_str() {
            "--device" => {
                let parsed = Device::parse(&value()?).map_err(|e| e.to_string())?;
                if let Some(warning) = parsed.warning {
                    eprintln!("warning: {warning}");
                }
                args.device = parsed.device;
            }
            "--epochs" => args.epochs = value()?.parse().map_err(|e| format!("--epochs: {e}"))?,
            "--data" => args.data = value()?,
            "--json" => args.json = true,
            other => return Err(format!("unknown argument {other:?}; takes --device, --epochs, --data, --json")),
        }
    }
    Ok(args)
}

fn accuracy(model: &LeNet, x: &Tensor, y: &Tensor) -> Result<f64> {
    let guess = no_grad(|| model.forward(x))?.argmax(Some(1), false)?;
    guess.eq(y)?.cast(DType::F32)?.mean(None, false, None)?.item_f64()
}

fn train(args: &Args) -> Result<()> {
    const BATCH: usize = 64;
    lucid::manual_seed(0);
    let data = lucid::io::load(&args.data, args.device)?;
    let part = |name: &str| {
        let missing = || lucid::Error::Io {
            path: args.data.clone(),
            why: format!("has no tensor {name}").into(),
            missing: false,
        };
        data.get(name).cloned().ok_or_else(|| Box::new(missing()))
    };
    let (train_x, train_y, test_x, test_y) = (part("train_x")?, part("train_y")?, part("test_x")?, part("test_y")?);
    let model = LeNet::new(args.device)?;
    let mut adam = optim::Adam::new(model.parameters(), 2e-3);
    let criterion = nn::CrossEntropyLoss::new();
    let (n, start, mut mean) = (train_x.shape()[0], Instant::now(), 0.0);
    for epoch in 1..=args.epochs {
        let order = lucid::ops::random::randperm(n as i64, None, None, Some(args.device))?;
        let batches = n / BATCH;
        mean = 0.0;
        for b in 0..batches {
            let pick = order.narrow(0, (b * BATCH) as i64, BATCH as i64)?;
            let (x, y) = (train_x.index_select(0, &pick)?, train_y.index_select(0, &pick)?);
            let loss = criterion.forward(&model.forward(&x)?, &y)?;
            loss.eval()?;
            adam.zero_grad()?;
            loss.backward()?;
            adam.step()?;
            mean += loss.item_f64()? / batches as f64;
        }
        let test = accuracy(&model, &test_x, &test_y)?;
        eprintln!("epoch {epoch}: loss {mean:.4}, test accuracy {test:.4}");
    }
    let (seconds, accuracy) = (start.elapsed().as_secs_f64(), accuracy(&model, &test_x, &test_y)?);
    if args.json {
        let device = args.device.name();
        println!(r#"{{"device": "{device}", "accuracy": {accuracy:.4}, "loss": {mean:.6}, "seconds": {seconds:.2}}}"#);
    } else {
        println!("{}: accuracy {accuracy:.4} after {seconds:.1} s", args.device);
    }
    Ok(())
}

fn main() {
    let result = args().and_then(|a| train(&a).map_err(|e| e.to_string()));
    if let Err(message) = result {
        eprintln!("error: {message}");
        std::process::exit(1);
    }
}
