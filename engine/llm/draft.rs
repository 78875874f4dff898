//! Speculative decoding: a small model proposes tokens, which a large one reads at once.
//!
//! Depends on `cache`, `decoder` and `sampling`. Every token is drawn from the large model's logits, so that the small one
//! changes the time alone. Reference: Leviathan et al., "Fast Inference from Transformers via Speculative Decoding", 2023.

use super::cache::Cache;
use super::decoder::Decoder;
use super::sampling::{draw, Settings};
use super::weights::failed;
use crate::{no_grad, Error, Generator, Result};

impl Decoder {
    /// Goes on with a prompt as [`generate`](Decoder::generate) does, in fewer steps: `draft`, a model of the same vocabulary,
    /// proposes `ahead` tokens at a time.
    ///
    /// # Errors
    /// As [`generate`](Decoder::generate) of both models; [`Error::InvalidValue`] for another vocabulary and for `ahead` of 0,
    /// [`Error::NotImplemented`] where the text is longer than a layer's window.
    ///
    /// # Examples
    /// ```no_run
    /// use lucid::{llm::decoder::Decoder, llm::sampling::Settings, Device};
    /// let (model, draft) = (Decoder::load("8B.gguf", Device::Cpu)?, Decoder::load("1B.gguf", Device::Cpu)?);
    /// model.generate_with_draft(&draft, 4, &[1, 2, 3], 16, &Settings::default(), None, |token| {
    ///     println!("{token}");
    ///     Ok(true)
    /// })?;
    /// # lucid::Result::<()>::Ok(())
    /// ```
    #[allow(clippy::too_many_arguments)]
    pub fn generate_with_draft(
        &self,
        draft: &Decoder,
        ahead: usize,
        prompt: &[u32],
        most: usize,
        settings: &Settings,
        generator: Option<&Generator>,
        mut each: impl FnMut(u32) -> Result<bool>,
    ) -> Result<()> {
        settings.check()?;
        let sizes = [self, draft].map(|model| model.config().vocab_size);
        if ahead == 0 || sizes[0] != sizes[1] {
            let why =
                format!("generate_with_draft: {ahead} tokens ahead, of vocabularies of {} and {}", sizes[0], sizes[1]);
            return Err(failed(why));
        }
        let all = prompt.len().saturating_add(most);
        for model in [self, draft] {
            model.ensure_room(prompt.len(), most)?;
            if model.config().windows.iter().flatten().any(|&window| window < all) {
                let why = format!("generate_with_draft: layers with a window shorter than the {all} tokens");
                return Err(Error::not_implemented("llm", why));
            }
        }
        let (mut cache, mut drafted) = (Cache::default(), Cache::default());
        let mut logits = self.logits_of(&[prompt], &mut cache)?;
        let mut text = prompt.to_vec();
        let mut proposed: Vec<u32> = Vec::new();
        loop {
            // Those that the large model would have taken as well are read already.
            let mut right = 0;
            for row in 0..=proposed.len() {
                if text.len() == all {
                    return Ok(());
                }
                let token = no_grad(|| draw(&logits.narrow(0, row as i64, 1)?, settings, generator))?;
                let Some(&token) = token.first() else { return Ok(()) };
                text.push(token);
                if !each(token)? || self.config().ends.contains(&token) || text.len() == all {
                    return Ok(());
                }
                if proposed.get(row) != Some(&token) {
                    break;
                }
                right += 1;
            }
            cache.truncate(cache.len() - (proposed.len() - right));
            drafted.truncate(text.len() - 1);
            proposed.clear();
            let last = text.len() - 1;
            let mut unread = text[drafted.len()..].to_vec();
            for _ in 0..ahead.min(all - text.len() - 1) {
                let best = draft.logits(&unread, &mut drafted)?;
                let token = no_grad(|| best.argmax(None, false)?.to_scalar::<i64>())? as u32;
                proposed.push(token);
                unread = vec![token];
            }
            let read = [&text[last..], &proposed].concat();
            logits = self.logits_of_each(&read, &mut cache)?;
        }
    }
}
