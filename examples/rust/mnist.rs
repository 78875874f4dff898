//! LeNet-5 on handwritten digits: MNIST's own files in `target/mnist` where they are, pictures of strokes that are drawn here
//! where they are not.

use lucid::data::{read_idx, FnDataset};
use lucid::prelude::*;
use std::path::Path;

#[derive(Module)]
struct LeNet {
    features: nn::Sequential,
    classifier: nn::Sequential,
}

impl LeNet {
    fn new(on: Device) -> Result<LeNet> {
        Ok(LeNet {
            features: nn::Sequential::new()
                .add(nn::Conv2d::options(1, 6, 5).padding(2).build(on)?)
                .add(nn::Relu::new())
                .add(nn::MaxPool2d::new(2))
                .add(nn::Conv2d::new(6, 16, 5, on)?)
                .add(nn::Relu::new())
                .add(nn::MaxPool2d::new(2))
                .add(nn::Flatten::default()),
            classifier: nn::Sequential::new()
                .add(nn::Linear::new(400, 84, on)?)
                .add(nn::Relu::new())
                .add(nn::Dropout::new(0.1)?)
                .add(nn::Linear::new(84, 10, on)?),
        })
    }
}

impl Forward for LeNet {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.classifier.forward(&self.features.forward(x)?)
    }
}

/// Digit `i % 10` as strokes: so many bars, moved by a few pixels.
fn drawn(i: usize) -> Result<(Tensor, i64)> {
    let (digit, moved) = (i % 10, (i / 10) % 7);
    let pixel = |at: usize| {
        let (y, x) = (at / 28, at % 28);
        let bar = x >= 3 + moved && (x - 3 - moved).is_multiple_of(2) && (x - 3 - moved) / 2 < digit + 1;
        f32::from(u8::from(bar && (6..22).contains(&y)))
    };
    let pixels: Vec<f32> = (0..28 * 28).map(pixel).collect();
    Ok((Tensor::from_slice(&pixels, &[1, 28, 28], Device::Cpu)?, digit as i64))
}

type Sample = (Tensor, i64);
type Digits = FnDataset<Box<dyn Fn(usize) -> Result<Sample> + Send + Sync>>;

fn digits() -> Result<Digits> {
    let folder = Path::new("target/mnist");
    if !folder.is_dir() {
        return Ok(FnDataset::new(2000, Box::new(drawn)));
    }
    let images = read_idx(folder.join("train-images-idx3-ubyte"))?;
    let labels = read_idx(folder.join("train-labels-idx1-ubyte"))?.to_vec::<u8>()?;
    let get = move |i: usize| {
        let image = (images.select(0, i as i64)?.cast(DType::F32)? / 255.0)?.unsqueeze(0)?;
        Ok((image, i64::from(labels[i])))
    };
    Ok(FnDataset::new(60_000, Box::new(get)))
}

/// Trains for so many steps, and gives the accuracy over the last batches.
pub fn run(on: Device, steps: usize) -> Result<f64> {
    lucid::manual_seed(0);
    let loader = DataLoader::new(digits()?, 32).shuffle(0).workers(2).drop_last(true);
    let mut model = LeNet::new(on)?;
    let mut adam = optim::Adam::new(model.parameters(), 1e-3);
    let mut schedule = optim::Scheduler::new(optim::CosineAnnealingLr::new(steps as u64), &mut adam);
    let criterion = nn::CrossEntropyLoss::new().label_smoothing(0.05);
    let mut done = 0;
    while done < steps {
        for batch in loader.iter()?.take(steps - done) {
            let (x, y) = batch?;
            let loss = criterion.forward(&model.forward(&x.to(on)?)?, &y.to(on)?)?;
            loss.eval()?;
            adam.zero_grad()?;
            loss.backward()?;
            optim::clip_grad_norm(&adam.parameters(), 1.0, 2.0)?;
            adam.step()?;
            schedule.step(&mut adam);
            done += 1;
        }
    }
    model.eval();
    let (mut right, mut all) = (0.0, 0.0);
    for batch in loader.iter()?.take(10) {
        let (x, y) = batch?;
        let guess = no_grad(|| model.forward(&x.to(on)?))?.argmax(Some(1), false)?;
        right += guess.eq(&y.to(on)?)?.cast(DType::F32)?.sum_all()?.item_f64()?;
        all += y.numel() as f64;
    }
    Ok(right / all)
}
