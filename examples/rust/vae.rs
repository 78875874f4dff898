//! A variational autoencoder (Kingma and Welling, 2014) of small pictures: a code of two numbers for each, and pictures from
//! codes that nobody made.

use lucid::prelude::*;

#[derive(Module)]
struct Vae {
    encoder: nn::Linear,
    mean: nn::Linear,
    log_var: nn::Linear,
    decoder: nn::Sequential,
}

impl Vae {
    fn new(on: Device) -> Result<Vae> {
        Ok(Vae {
            encoder: nn::Linear::new(64, 32, on)?,
            mean: nn::Linear::new(32, 2, on)?,
            log_var: nn::Linear::new(32, 2, on)?,
            decoder: nn::Sequential::new()
                .add(nn::Linear::new(2, 32, on)?)
                .add(nn::Relu::new())
                .add(nn::Linear::new(32, 64, on)?),
        })
    }

    /// The scores of the pixels, and how far the codes are from normal numbers.
    fn forward(&self, x: &Tensor) -> Result<(Tensor, Tensor)> {
        let h = self.encoder.forward(x)?.relu()?;
        let (mean, log_var) = (self.mean.forward(&h)?, self.log_var.forward(&h)?);
        let noise = Tensor::randn(dims![x.shape()[0], 2])?.to(x.device())?;
        let code = (&mean + (noise * (&log_var * 0.5)?.exp()?)?)?;
        let divergence = (((log_var.exp()? + mean.square()?)? - 1.0)? - log_var)?;
        Ok((self.decoder.forward(&code)?, (divergence.sum_all()? * 0.5)?))
    }
}

/// Pictures (n, 64) of a bar, at any of 8 places, upright or across.
fn bars(n: isize) -> Result<Tensor> {
    let rows = lucid::ops::random::randint(0, 8, &[n], None, None, None)?;
    let across = lucid::ops::nn::one_hot(&rows, 8)?.cast(DType::F32)?.unsqueeze(1)?.broadcast_to(dims![n, 8, 8])?;
    let upright = lucid::ops::random::rand(&[n, 1, 1], None, None, None)?.gt(0.5)?;
    lucid::ops::compare::select::r#where(&upright, &across, &across.transpose(1, 2)?)?.reshape(dims![n, 64])
}

/// Trains for so many steps, and gives the loss of a picture.
pub fn run(on: Device, steps: usize) -> Result<f64> {
    lucid::manual_seed(0);
    let model = Vae::new(on)?;
    let mut adam = optim::Adam::new(model.parameters(), 3e-3);
    let criterion = nn::BceWithLogitsLoss::new().reduction(Reduction::Sum);
    let mut last = 0.0;
    for _ in 0..steps {
        let x = bars(64)?.to(on)?;
        let (scores, divergence) = model.forward(&x)?;
        let loss = ((criterion.forward(&scores, &x)? + divergence)? / 64.0)?;
        loss.eval()?;
        adam.zero_grad()?;
        loss.backward()?;
        adam.step()?;
        last = loss.item_f64()?;
    }
    Ok(last)
}
