//! A character model that writes: a causal Transformer over the text of this repository's licence.

use lucid::prelude::*;

const TEXT: &str = include_str!("../../LICENSE-MIT");
const LENGTH: usize = 48;
const WIDTH: usize = 64;

#[derive(Module)]
struct Writer {
    tokens: nn::Embedding,
    positions: nn::Embedding,
    encoder: nn::TransformerEncoder,
    head: nn::Linear,
}

impl Writer {
    fn new(letters: usize, on: Device) -> Result<Writer> {
        let layer = nn::TransformerEncoderLayer::options(WIDTH, 4)
            .dim_feedforward(4 * WIDTH)
            .dropout(0.0)
            .batch_first(true)
            .norm_first(true)
            .activation(nn::FeedForward::Gelu);
        Ok(Writer {
            tokens: nn::Embedding::new(letters, WIDTH, on)?,
            positions: nn::Embedding::new(LENGTH, WIDTH, on)?,
            encoder: nn::TransformerEncoder::new(&layer, 2, Some(nn::LayerNorm::new(WIDTH, on)?), on)?,
            head: nn::Linear::new(WIDTH, letters, on)?,
        })
    }
}

impl Forward for Writer {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let steps = Tensor::arange(0, x.shape()[1] as i64)?.to(x.device())?;
        let x = (self.tokens.forward(x)? + self.positions.forward(&steps)?)?;
        self.head.forward(&self.encoder.forward(&x, nn::AttentionMask::causal())?)
    }
}

/// Trains for so many steps; gives the last loss, and a text that the model writes.
pub fn run(on: Device, steps: usize) -> Result<(f64, String)> {
    lucid::manual_seed(0);
    let mut letters: Vec<char> = TEXT.chars().collect();
    letters.sort_unstable();
    letters.dedup();
    let number = |c: char| letters.iter().position(|&l| l == c).unwrap_or(0) as i64;
    let text: Vec<i64> = TEXT.chars().map(number).collect();
    let text = Tensor::from_slice(&text, &[text.len()], on)?;
    let model = Writer::new(letters.len(), on)?;
    let mut adam = optim::AdamW::new(model.parameters(), 2e-3);
    let mut average = optim::Average::ema(&model, 0.95)?;
    let mut last = 0.0;
    for _ in 0..steps {
        let starts = lucid::ops::random::randint(0, (text.numel() - LENGTH - 1) as i64, &[16, 1], None, None, None)?;
        let places = (starts + Tensor::arange(0, LENGTH as i64 + 1)?)?.to(on)?;
        let rows = text.i(&places)?;
        let scores = model.forward(&rows.i((.., ..LENGTH))?)?;
        let loss = nn::CrossEntropyLoss::new().forward(&scores.flatten(0, 1)?, &rows.i((.., 1..))?.flatten(0, -1)?)?;
        loss.eval()?;
        adam.zero_grad()?;
        loss.backward()?;
        adam.step()?;
        average.update(&model)?;
        last = loss.item_f64()?;
    }
    average.copy_to(&model)?;
    let mut written: Vec<i64> = "Permission is ".chars().map(number).collect();
    for _ in 0..80 {
        let seen = &written[written.len().saturating_sub(LENGTH)..];
        let x = Tensor::from_slice(seen, &[1, seen.len()], on)?;
        let scores = no_grad(|| model.forward(&x))?.i((0, -1))?;
        let chances = (scores / 0.5)?.softmax(-1, None)?;
        written.push(chances.multinomial(1, false, None)?.item_f64()? as i64);
    }
    Ok((last, written.iter().filter_map(|&i| letters.get(i as usize)).collect()))
}
