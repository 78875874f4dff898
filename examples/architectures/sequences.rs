//! Recurrent networks: an LSTM that classifies texts, a GRU that continues series.

use lucid::prelude::*;

/// Both directions of two LSTM layers over a text, to classes.
#[derive(Module)]
pub struct LstmClassifier {
    embedding: nn::Embedding,
    lstm: nn::Lstm,
    fc: nn::Linear,
}

impl LstmClassifier {
    pub fn new(on: Device) -> Result<LstmClassifier> {
        Ok(LstmClassifier {
            embedding: nn::Embedding::options(20, 8).padding_idx(0).build(on)?,
            lstm: nn::Lstm::options(8, 12).num_layers(2).bidirectional(true).batch_first(true).build(on)?,
            fc: nn::Linear::new(24, 3, on)?,
        })
    }
}

impl Forward for LstmClassifier {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let (steps, _) = self.lstm.forward(&self.embedding.forward(x)?, None)?;
        self.fc.forward(&steps.mean(Some(&[1]), false, None)?)
    }
}

/// Two GRU layers over series, to the next numbers.
#[derive(Module)]
pub struct GruRegressor {
    gru: nn::Gru,
    norm: nn::LayerNorm,
    fc: nn::Linear,
}

impl GruRegressor {
    pub fn new(on: Device) -> Result<GruRegressor> {
        Ok(GruRegressor {
            gru: nn::Gru::options(4, 10).num_layers(2).build(on)?,
            norm: nn::LayerNorm::new(10, on)?,
            fc: nn::Linear::new(10, 4, on)?,
        })
    }
}

impl Forward for GruRegressor {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let (steps, last) = self.gru.forward(x, None)?;
        self.fc.forward(&(self.norm.forward(&steps)? + last.select(0, -1)?)?)
    }
}

crate::of_one_input!(LstmClassifier, GruRegressor);
