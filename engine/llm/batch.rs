//! Several texts at once: batches of different lengths, and beam search.
//!
//! Depends on `cache`, `decoder` and `sampling`. Shorter prompts have tokens before them that nobody looks at, which moves
//! all positions of a text alike. Invariant: a text gets the tokens that it gets alone.

use super::cache::Cache;
use super::decoder::Decoder;
use super::sampling::{draw, Settings};
use super::weights::failed;
use crate::{no_grad, DType, Generator, Result, Tensor};

/// A sequence of a beam search, and its score.
struct Beam {
    score: f64,
    tokens: Vec<u32>,
}

impl Decoder {
    /// Goes on with several prompts at once: calls `each` with a prompt's number and its new token, until it says false, a token
    /// ends the text, or there are `most`, for each of them. Where the rotations depend on a text's length (longrope,
    /// dynamic), that of the longest prompt counts for all.
    ///
    /// # Errors
    /// As [`generate`](Decoder::generate), and for no prompts.
    ///
    /// # Examples
    /// ```no_run
    /// use lucid::{llm::decoder::Decoder, llm::sampling::Settings, Device};
    /// let model = Decoder::load("model.gguf", Device::Cpu)?;
    /// let mut texts = vec![vec![1, 2, 3], vec![4]];
    /// model.generate_batch(&texts.clone(), 16, &Settings::default(), None, |text, token| {
    ///     texts[text].push(token);
    ///     Ok(true)
    /// })?;
    /// # lucid::Result::<()>::Ok(())
    /// ```
    pub fn generate_batch(
        &self,
        prompts: &[Vec<u32>],
        most: usize,
        settings: &Settings,
        generator: Option<&Generator>,
        mut each: impl FnMut(usize, u32) -> Result<bool>,
    ) -> Result<()> {
        settings.check()?;
        let longest = prompts.iter().map(Vec::len).max().unwrap_or(0);
        if prompts.iter().any(Vec::is_empty) || longest == 0 {
            return Err(failed("generate_batch: every prompt needs at least one token, and there must be a prompt"));
        }
        self.ensure_room(longest, most)?;
        let padding: Vec<usize> = prompts.iter().map(|p| longest - p.len()).collect();
        let padded =
            |(prompt, &none): (&Vec<u32>, &usize)| std::iter::repeat_n(0, none).chain(prompt.iter().copied()).collect();
        let texts: Vec<Vec<u32>> = prompts.iter().zip(&padding).map(padded).collect();
        let mut cache = Cache::padded(padding);
        let mut logits = self.logits_of(&texts.iter().map(Vec::as_slice).collect::<Vec<_>>(), &mut cache)?;
        let mut going: Vec<usize> = (0..prompts.len()).collect();
        for left in (0..most).rev() {
            let tokens = no_grad(|| draw(&logits, settings, generator))?;
            let mut kept = Vec::new();
            for (row, (&text, &token)) in going.iter().zip(&tokens).enumerate() {
                if each(text, token)? && !self.config().ends.contains(&token) {
                    kept.push((row, text, token));
                }
            }
            if kept.is_empty() || left == 0 {
                break;
            }
            if kept.len() < going.len() {
                let rows: Vec<usize> = kept.iter().map(|k| k.0).collect();
                no_grad(|| cache.reorder(&rows))?;
                going = kept.iter().map(|k| k.1).collect();
            }
            let next: Vec<[u32; 1]> = kept.iter().map(|k| [k.2]).collect();
            logits = self.logits_of(&next.iter().map(|t| &t[..]).collect::<Vec<_>>(), &mut cache)?;
        }
        Ok(())
    }

    /// The tokens that go on with a prompt with the best score of those that a search over `beams` sequences finds, with
    /// Hugging Face's rules: the sum of the tokens' log-probabilities over their number to the power of `length_penalty`.
    ///
    /// # Errors
    /// As [`logits`](Decoder::logits), and for no beams or more than there are tokens.
    pub fn beam_search(&self, prompt: &[u32], most: usize, beams: usize, length_penalty: f64) -> Result<Vec<u32>> {
        let (ends, vocab) = (&self.config().ends, self.config().vocab_size);
        if beams == 0 || beams > vocab || !length_penalty.is_finite() {
            return Err(failed(format!(
                "beam_search: beams must be from 1 to {vocab} and length_penalty finite, got {beams} and {length_penalty}"
            )));
        }
        self.ensure_room(prompt.len(), most)?;
        let mut cache = Cache::default();
        let mut logits = self.logits_of(&[prompt], &mut cache)?;
        let mut running = vec![Beam { score: 0.0, tokens: Vec::new() }];
        let mut finished: Vec<Beam> = Vec::new();
        for step in 0..most {
            let length = (step as f64 + 1.0).powf(length_penalty);
            let mut chosen: Vec<(usize, Beam)> = Vec::new();
            for (rank, (score, beam, token)) in no_grad(|| best(&logits, &running, 2 * beams))?.into_iter().enumerate()
            {
                let tokens = || [&running[beam].tokens[..], &[token]].concat();
                // At the last step all end. One that is no better than the beams that go on is not kept.
                if ends.contains(&token) || step + 1 == most {
                    if rank < beams {
                        finished.push(Beam { score: score / length, tokens: tokens() });
                    }
                } else if chosen.len() < beams {
                    chosen.push((beam, Beam { score, tokens: tokens() }));
                }
            }
            finished.sort_by(|a, b| b.score.total_cmp(&a.score));
            finished.truncate(beams);
            let Some(lead) = chosen.first().map(|(_, beam)| beam.score) else { break };
            // No beam can still become better than the worst that is finished.
            if finished.len() == beams && finished.last().is_some_and(|worst| worst.score >= lead / length) {
                break;
            }
            let order: Vec<usize> = chosen.iter().map(|(from, _)| *from).collect();
            running = chosen.into_iter().map(|(_, beam)| beam).collect();
            no_grad(|| cache.reorder(&order))?;
            let next: Vec<&[u32]> = running.iter().map(|b| &b.tokens[step..]).collect();
            logits = self.logits_of(&next, &mut cache)?;
        }
        Ok(finished.into_iter().next().map_or_else(Vec::new, |beam| beam.tokens))
    }
}

/// The `count` best continuations: their scores, which of the sequences they go on with, and their tokens.
fn best(logits: &Tensor, running: &[Beam], count: usize) -> Result<Vec<(f64, usize, u32)>> {
    let scores: Vec<f32> = running.iter().map(|beam| beam.score as f32).collect();
    let scores = Tensor::of_elements(&scores, &[running.len(), 1], logits.device())?;
    let total = (&logits.cast(DType::F32)?.log_softmax(-1, None)? + &scores)?;
    let width = total.shape()[1];
    let (values, places) = total.reshape(&[-1])?.topk(count.min(total.numel()) as i64, -1, true, true)?;
    let places = places.to_vec::<i64>()?.into_iter().map(|place| place as usize);
    let of = |(score, place): (f32, usize)| (score.into(), place / width, (place % width) as u32);
    Ok(values.to_vec::<f32>()?.into_iter().zip(places).map(of).collect())
}
