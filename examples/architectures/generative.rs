//! Generative models: a variational autoencoder and a DCGAN.

use lucid::ops::index::cat;
use lucid::prelude::*;
use nn::{BatchNorm2d, Conv2d, ConvTranspose2d, Linear, Sequential};

/// A variational autoencoder (Kingma and Welling, 2014); the code is the mean, so that nothing is random.
#[derive(Module)]
pub struct Vae {
    encoder: Sequential,
    mean: Linear,
    log_var: Linear,
    decoder: Sequential,
}

impl Vae {
    pub fn new(on: Device) -> Result<Vae> {
        Ok(Vae {
            encoder: Sequential::new().add(Linear::new(64, 32, on)?).add(nn::Silu::new()),
            mean: Linear::new(32, 4, on)?,
            log_var: Linear::new(32, 4, on)?,
            decoder: Sequential::new()
                .add(Linear::new(4, 32, on)?)
                .add(nn::Elu::default())
                .add(Linear::new(32, 64, on)?)
                .add(nn::Sigmoid::new()),
        })
    }
}

impl Forward for Vae {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let h = self.encoder.forward(x)?;
        let (mean, log_var) = (self.mean.forward(&h)?, self.log_var.forward(&h)?);
        cat(&[self.decoder.forward(&mean)?, mean, log_var], 1)
    }
}

/// Generator and discriminator of a DCGAN (Radford et al., 2016): from codes to the discriminator's scores of pictures.
#[derive(Module)]
pub struct Dcgan {
    generator: Sequential,
    discriminator: Sequential,
}

impl Dcgan {
    pub fn new(on: Device) -> Result<Dcgan> {
        let up = |from: usize, to: usize, stride: i64, padding: i64| {
            ConvTranspose2d::options(from, to, 4).stride(stride).padding(padding).bias(false).build(on)
        };
        let down = |from: usize, to: usize| Conv2d::options(from, to, 4).stride(2).padding(1).bias(false).build(on);
        Ok(Dcgan {
            generator: Sequential::new()
                .add(up(10, 16, 1, 0)?)
                .add(BatchNorm2d::new(16, on)?)
                .add(nn::Relu::new())
                .add(up(16, 8, 2, 1)?)
                .add(BatchNorm2d::new(8, on)?)
                .add(nn::Relu::new())
                .add(up(8, 1, 2, 1)?)
                .add(nn::Tanh::new()),
            discriminator: Sequential::new()
                .add(down(1, 8)?)
                .add(nn::LeakyRelu::new().negative_slope(0.2))
                .add(down(8, 16)?)
                .add(BatchNorm2d::new(16, on)?)
                .add(nn::LeakyRelu::new().negative_slope(0.2))
                .add(Conv2d::options(16, 1, 4).bias(false).build(on)?)
                .add(nn::Flatten::default()),
        })
    }
}

impl Forward for Dcgan {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.discriminator.forward(&self.generator.forward(x)?)
    }
}

crate::of_one_input!(Vae, Dcgan);
