//! A mixture of experts: each token goes through the MLPs that a router gives the largest shares.
//!
//! Depends on `config`, `layer`, `weights` and the engine's ops. Packed matrices of all experts are multiplied at once
//! (`gather_qmm`); others one expert after another, for which the choice is read by the host. Reference: Python's
//! `lucid.llm.model.MoE`.

use super::config::{Activation, Mixture};
use super::layer::activated;
use super::weights::{Matrix, Tensors};
use crate::{DType, Result, Tensor};

pub(super) struct Experts {
    router: Matrix,
    gate: Matrix,
    up: Matrix,
    down: Matrix,
    count: usize,
    chosen: usize,
    normed: bool,
}

impl Experts {
    pub(super) fn of(t: &mut Tensors, mixture: &Mixture, name: &str, hidden: usize) -> Result<Experts> {
        let (count, inner) = (mixture.experts, mixture.intermediate_size);
        Ok(Experts {
            router: t.matrix(&format!("{name}.gate"), count, hidden, false)?,
            gate: t.experts(name, "gate_proj", [count, inner, hidden])?,
            up: t.experts(name, "up_proj", [count, inner, hidden])?,
            down: t.experts(name, "down_proj", [count, hidden, inner])?,
            count,
            chosen: mixture.chosen,
            normed: mixture.normed,
        })
    }

    pub(super) fn bytes(&self) -> usize {
        [&self.router, &self.gate, &self.up, &self.down].iter().map(|m| m.bytes()).sum()
    }

    /// `x` (B, L, hidden_size) through the experts of each token, by their shares.
    pub(super) fn forward(&self, x: &Tensor, activation: Activation) -> Result<Tensor> {
        let shape: Vec<isize> = x.shape().iter().map(|&n| n as isize).collect();
        let flat = x.reshape(&[-1, shape.last().copied().unwrap_or(1)])?;
        let shares = self.router.product(&flat)?.cast(DType::F32)?.softmax(-1, None)?;
        let (mut shares, chosen) = shares.topk(self.chosen as i64, -1, true, true)?;
        if self.normed {
            shares = (&shares / &shares.sum_over(&[-1])?.unsqueeze(-1)?)?;
        }
        let shares = shares.cast(x.dtype())?;
        let made = match self.at_once(&flat, &chosen, &shares, activation)? {
            Some(made) => made,
            None => self.in_turn(&flat, &chosen, &shares, activation)?,
        };
        made.reshape(&shape)
    }

    /// All experts' products in three calls.
    fn at_once(&self, x: &Tensor, chosen: &Tensor, shares: &Tensor, act: Activation) -> Result<Option<Tensor>> {
        let numbered = |count: usize| -> Result<Tensor> {
            let numbers: Vec<i64> = (0..count as i64).collect();
            Tensor::of_elements(&numbers, &[count], x.device())
        };
        let tokens = numbered(x.shape()[0])?.unsqueeze(1)?;
        let Some(gate) = self.gate.gathered(x, chosen, &tokens)? else { return Ok(None) };
        let Some(up) = self.up.gathered(x, chosen, &tokens)? else { return Ok(None) };
        let inner = (&activated(&gate, act)? * &up)?;
        let inner = inner.reshape(&[chosen.numel() as isize, up.shape()[2] as isize])?;
        let each = numbered(chosen.numel())?.reshape(&[chosen.shape()[0] as isize, chosen.shape()[1] as isize])?;
        let Some(down) = self.down.gathered(&inner, chosen, &each)? else { return Ok(None) };
        (&down * &shares.unsqueeze(-1)?)?.sum_over(&[-2]).map(Some)
    }

    /// One expert after another, each with the tokens that chose it.
    fn in_turn(&self, x: &Tensor, chosen: &Tensor, shares: &Tensor, act: Activation) -> Result<Tensor> {
        let mut rows: Vec<Vec<i64>> = (0..self.count).map(|_| Vec::new()).collect();
        for (place, expert) in chosen.reshape(&[-1])?.to_vec::<i64>()?.into_iter().enumerate() {
            if let Some(rows) = rows.get_mut(expert as usize) {
                rows.push(place as i64);
            }
        }
        let shares = shares.reshape(&[-1, 1])?;
        let mut made = x.zeros_like()?;
        for (expert, places) in rows.into_iter().enumerate().filter(|(_, places)| !places.is_empty()) {
            let tokens: Vec<i64> = places.iter().map(|p| p / self.chosen as i64).collect();
            let tokens = Tensor::of_elements(&tokens, &[tokens.len()], x.device())?;
            let places = Tensor::of_elements(&places, &[places.len()], x.device())?;
            let x = x.index_select(0, &tokens)?;
            let gate = activated(&self.gate.expert(expert)?.product(&x)?, act)?;
            let y = self.down.expert(expert)?.product(&(&gate * &self.up.expert(expert)?.product(&x)?)?)?;
            made = made.index_add(0, &tokens, &(&y * &shares.index_select(0, &places)?)?, 1)?;
        }
        Ok(made)
    }
}
