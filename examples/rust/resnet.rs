//! A residual network (He et al., 2016) that tells discs, squares and crosses apart, in any colour, anywhere, under noise.
//! Weight decay is for weights alone, the rate goes up and down once, and evaluation uses the running means.

use lucid::data::FnDataset;
use lucid::prelude::*;

/// Two convolutions, and a shortcut around them.
#[derive(Module)]
struct Block {
    conv1: nn::Conv2d,
    bn1: nn::BatchNorm2d,
    conv2: nn::Conv2d,
    bn2: nn::BatchNorm2d,
    shortcut: Option<nn::Conv2d>,
}

impl Block {
    fn new(input: usize, output: usize, stride: i64, on: Device) -> Result<Block> {
        let conv =
            |from, stride: i64| nn::Conv2d::options(from, output, 3).padding(1).stride(stride).bias(false).build(on);
        let shortcut = || nn::Conv2d::options(input, output, 1).stride(stride).bias(false).build(on);
        Ok(Block {
            conv1: conv(input, stride)?,
            bn1: nn::BatchNorm2d::new(output, on)?,
            conv2: conv(output, 1)?,
            bn2: nn::BatchNorm2d::new(output, on)?,
            shortcut: (input != output).then(shortcut).transpose()?,
        })
    }
}

impl Forward for Block {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let y = self.bn1.forward(&self.conv1.forward(x)?)?.relu()?;
        let y = self.bn2.forward(&self.conv2.forward(&y)?)?;
        match &self.shortcut {
            Some(shortcut) => (y + shortcut.forward(x)?)?.relu(),
            None => (y + x)?.relu(),
        }
    }
}

fn network(on: Device) -> Result<nn::Sequential> {
    Ok(nn::Sequential::new()
        .add(nn::Conv2d::options(3, 12, 3).padding(1).bias(false).build(on)?)
        .add(nn::BatchNorm2d::new(12, on)?)
        .add(nn::Relu::new())
        .add(Block::new(12, 12, 1, on)?)
        .add(Block::new(12, 24, 2, on)?)
        .add(nn::AdaptiveAvgPool2d::new(1)?)
        .add(nn::Flatten::default())
        .add(nn::Linear::new(24, 3, on)?))
}

/// Picture (3, 16, 16) number `i`, and which of the three shapes is in it.
fn picture(i: usize) -> Result<(Tensor, i64)> {
    let (kind, mut bits) = (i % 3, (i as u32).wrapping_mul(2_654_435_761) | 1);
    let mut draw = |n: u32| {
        // Marsaglia's xorshift: the data is the same in every run.
        bits ^= bits << 13;
        bits ^= bits >> 17;
        bits ^= bits << 5;
        bits % n
    };
    let (row, column, radius) = (4 + draw(8) as i32, 4 + draw(8) as i32, 2 + draw(2) as i32);
    let colour = [0; 3].map(|_| 0.4 + 0.6 * draw(100) as f32 / 100.0);
    let mut pixels = Vec::new();
    for channel in colour {
        for at in 0..16 * 16 {
            let (y, x) = (at / 16 - row, at % 16 - column);
            let inside = match kind {
                0 => x * x + y * y <= radius * radius,
                1 => x.abs().max(y.abs()) <= radius,
                _ => (x == 0 || y == 0) && x.abs().max(y.abs()) <= radius + 1,
            };
            pixels.push(f32::from(u8::from(inside)) * channel + 0.2 * draw(100) as f32 / 100.0);
        }
    }
    Ok((Tensor::from_slice(&pixels, &[3, 16, 16], Device::Cpu)?, kind as i64))
}

/// Trains for so many steps, and gives the accuracy on pictures that are new.
pub fn run(on: Device, steps: usize) -> Result<f64> {
    lucid::manual_seed(0);
    let mut model = network(on)?;
    // Biases and the norms' scales are left out of the decay.
    let (weights, others): (Vec<_>, Vec<_>) = model.parameters().into_iter().partition(|p| p.ndim() > 1);
    let options = optim::Sgd::options().lr(0.1).momentum(0.9).nesterov(true);
    let mut sgd = options.clone().weight_decay(5e-4).build(weights).group(others, options);
    let mut schedule = optim::Scheduler::new(optim::OneCycleLr::new(0.1, steps as u64), &mut sgd);
    let loader = DataLoader::new(FnDataset::new(32 * steps, picture), 32).shuffle(0).workers(2);
    for batch in loader.iter()? {
        let (x, y) = batch?;
        let loss = nn::CrossEntropyLoss::new().forward(&model.forward(&x.to(on)?)?, &y.to(on)?)?;
        loss.eval()?;
        sgd.zero_grad()?;
        loss.backward()?;
        sgd.step()?;
        schedule.step(&mut sgd);
    }
    model.eval();
    let new = FnDataset::new(256, move |i| picture(32 * steps + i));
    let (mut right, mut all) = (0.0, 0.0);
    for batch in DataLoader::new(new, 64).iter()? {
        let (x, y) = batch?;
        let guess = no_grad(|| model.forward(&x.to(on)?))?.argmax(Some(1), false)?;
        right += guess.eq(&y.to(on)?)?.cast(DType::F32)?.sum_all()?.item_f64()?;
        all += y.numel() as f64;
    }
    Ok(right / all)
}
