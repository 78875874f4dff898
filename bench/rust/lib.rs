//! What the sides of the benchmark share: sizes, and Lucid's models.

use lucid::prelude::*;

/// Pictures and hidden units of the training steps.
pub const BATCH: usize = 64;

/// LeNet-5 over (N, 1, 28, 28).
pub fn lenet() -> Result<nn::Sequential> {
    let on = Device::Cpu;
    Ok(nn::Sequential::new()
        .add(nn::Conv2d::options(1, 6, 5).padding(2).build(on)?)
        .add(nn::Relu::new())
        .add(nn::MaxPool2d::new(2))
        .add(nn::Conv2d::new(6, 16, 5, on)?)
        .add(nn::Relu::new())
        .add(nn::MaxPool2d::new(2))
        .add(nn::Flatten::default())
        .add(nn::Linear::new(400, 120, on)?)
        .add(nn::Relu::new())
        .add(nn::Linear::new(120, 84, on)?)
        .add(nn::Relu::new())
        .add(nn::Linear::new(84, 10, on)?))
}

/// Three layers over (N, 784).
pub fn mlp() -> Result<nn::Sequential> {
    let on = Device::Cpu;
    Ok(nn::Sequential::new()
        .add(nn::Linear::new(784, 256, on)?)
        .add(nn::Relu::new())
        .add(nn::Linear::new(256, 128, on)?)
        .add(nn::Relu::new())
        .add(nn::Linear::new(128, 10, on)?))
}
